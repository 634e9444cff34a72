/* fake_nvml.c: NVIDIA's driver library with one device whose answers come from
 * the environment: FAKE_NVML_WIDTH, _GENERATION, _LIMIT (W), _CELSIUS, _SLOW (bits)
 * and _START (error of nvmlInit_v2).  Signatures as in the NVML reference. */
#include <stdio.h>
#include <stdlib.h>

static unsigned from_environment(const char *name, unsigned standard)
{
  const char *text = getenv(name);
  return text ? (unsigned)strtoul(text, NULL, 10) : standard;
}

static int the_device;
static int started;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *text, unsigned n);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
int nvmlDeviceGetName(void *device, char *text, unsigned n);
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value);
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value);
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *value);
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *value);
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least,
                                                 unsigned *most);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *value);
int nvmlDeviceGetTemperatureThreshold(void *device, int kind, unsigned *value);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                              unsigned long long *bits);

int nvmlInit_v2(void)
{
  int code = (int)from_environment("FAKE_NVML_START", 0);
  started = code == 0;
  return code;
}

int nvmlShutdown(void)
{
  started = 0;
  return 0;
}

const char *nvmlErrorString(int code)
{
  return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned n)
{
  snprintf(text, n, "580.00");
  return !started;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
  *n = 1;
  return !started;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
  *device = &the_device;
  return !started || i > 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned n)
{
  snprintf(text, n, "Fake 4090");
  return device != &the_device;
}

/* Answers for this device alone. */
static int tell(void *device, unsigned answer, unsigned *value)
{
  *value = answer;
  return device != &the_device;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value)
{
  return tell(device, from_environment("FAKE_NVML_GENERATION", 4), value);
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value)
{
  return tell(device, 4, value);
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value)
{
  return tell(device, from_environment("FAKE_NVML_WIDTH", 16), value);
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value)
{
  return tell(device, 16, value);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *value)
{
  return tell(device, 1000 * from_environment("FAKE_NVML_LIMIT", 450), value);
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *value)
{
  return tell(device, 450000, value);
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least,
                                                 unsigned *most)
{
  *least = 10000;
  return tell(device, 600000, most);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *value)
{
  return sensor ? 2
                : tell(device, from_environment("FAKE_NVML_CELSIUS", 50), value);
}

int nvmlDeviceGetTemperatureThreshold(void *device, int kind, unsigned *value)
{
  return tell(device, kind == 1 ? 93 : 98, value);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device,
                                              unsigned long long *bits)
{
  *bits = from_environment("FAKE_NVML_SLOW", 1); /* at rest */
  return device != &the_device;
}
