/* nvml.c: NVML by dlopen; its few functions are declared here, as NVIDIA's
 * "NVML API Reference Guide" has them, so that no header of theirs is needed.
 *
 * Invariant: a function that the library lacks is a question without answer,
 * never a failure.  Disadvantage: a driver in trouble may let the library wait. */
#include "src/cli/nvml.h"

#include <dlfcn.h>
#include <stdio.h>

#include "base/error.h"

#define LIBRARY "libnvidia-ml.so.1"
#define SENSOR_GPU 0
#define THRESHOLD_SLOWDOWN 1
/* nvmlClocksThrottleReason... */
#define HEAT_BITS (0x20ull | 0x40ull)  /* software's and hardware's slowdown */
#define POWER_BITS (0x80ull)           /* a brake by the power supply */

typedef void *device_t; /* nvmlDevice_t */

static const char *error_text(void *library, int code)
{
  const char *(*text)(int) = (const char *(*)(int))dlsym(library,
                                                        "nvmlErrorString");
  return text ? text(code) : "an error without a text";
}

static unsigned ask(void *library, const char *name, device_t device)
{
  int (*fn)(device_t, unsigned *) =
      (int (*)(device_t, unsigned *))dlsym(library, name);
  unsigned value = 0;
  return fn && fn(device, &value) == 0 ? value : 0;
}

static unsigned ask_kind(void *library, const char *name, device_t device,
                         int kind)
{
  int (*fn)(device_t, int, unsigned *) =
      (int (*)(device_t, int, unsigned *))dlsym(library, name);
  unsigned value = 0;
  return fn && fn(device, kind, &value) == 0 ? value : 0;
}

static double greatest_watts(void *library, device_t device)
{
  int (*fn)(device_t, unsigned *, unsigned *) =
      (int (*)(device_t, unsigned *, unsigned *))dlsym(
          library, "nvmlDeviceGetPowerManagementLimitConstraints");
  unsigned least = 0, most = 0;
  return fn && fn(device, &least, &most) == 0 ? most / 1000.0 : 0;
}

static unsigned long long slowdowns(void *library, device_t device)
{
  int (*fn)(device_t, unsigned long long *) =
      (int (*)(device_t, unsigned long long *))dlsym(
          library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  unsigned long long bits = 0;
  return fn && fn(device, &bits) == 0 ? bits : 0;
}

static void see_device(void *library, device_t device,
                       struct pen_nvml_device *d)
{
  int (*name)(device_t, char *, unsigned) =
      (int (*)(device_t, char *, unsigned))dlsym(library, "nvmlDeviceGetName");
  unsigned long long slow = slowdowns(library, device);
  *d = (struct pen_nvml_device){
      .generation = ask(library, "nvmlDeviceGetCurrPcieLinkGeneration", device),
      .generation_max = ask(library, "nvmlDeviceGetMaxPcieLinkGeneration", device),
      .width = ask(library, "nvmlDeviceGetCurrPcieLinkWidth", device),
      .width_max = ask(library, "nvmlDeviceGetMaxPcieLinkWidth", device),
      .watts_limit =
          ask(library, "nvmlDeviceGetEnforcedPowerLimit", device) / 1000.0,
      .watts_standard =
          ask(library, "nvmlDeviceGetPowerManagementDefaultLimit", device) / 1000.0,
      .watts_max = greatest_watts(library, device),
      .celsius = ask_kind(library, "nvmlDeviceGetTemperature", device, SENSOR_GPU),
      .celsius_slow = ask_kind(library, "nvmlDeviceGetTemperatureThreshold", device,
                               THRESHOLD_SLOWDOWN),
      .slowed_by_heat = slow & HEAT_BITS,
      .slowed_by_power = slow & POWER_BITS};
  if (!name || name(device, d->name, sizeof d->name))
    snprintf(d->name, sizeof d->name, "a device without a name");
}

static void see_devices(void *library, struct pen_nvml *n)
{
  int (*count)(unsigned *) =
      (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
  int (*at)(unsigned, device_t *) =
      (int (*)(unsigned, device_t *))dlsym(library,
                                           "nvmlDeviceGetHandleByIndex_v2");
  int (*driver)(char *, unsigned) =
      (int (*)(char *, unsigned))dlsym(library, "nvmlSystemGetDriverVersion");
  unsigned devices = 0;
  if (!driver || driver(n->driver, sizeof n->driver))
    n->driver[0] = '\0';
  if (!count || !at || count(&devices))
    return;
  for (unsigned i = 0; i < devices && n->n_devices < PEN_NVML_DEVICES_MAX; i++) {
    device_t device;
    if (at(i, &device) == 0)
      see_device(library, device, &n->devices[n->n_devices++]);
  }
}

int pen_nvml_read(struct pen_nvml *ret_nvml)
{
  struct pen_nvml n = {.n_devices = 0};
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return pen_error_set(PEN_EUNSUPPORTED, "%s cannot be loaded: %s", LIBRARY,
                         dlerror());
  int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
  int (*shutdown)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
  int code = init ? init() : 0, rc = 0;
  if (!init || !shutdown)
    rc = pen_error_set(PEN_EUNSUPPORTED, "%s lacks nvmlInit_v2", LIBRARY);
  else if (code)
    rc = pen_error_set(PEN_EUNSUPPORTED, "%s does not start: %s", LIBRARY,
                       error_text(library, code));
  if (rc == 0) {
    see_devices(library, &n);
    shutdown();
  }
  dlclose(library);
  if (rc == 0)
    *ret_nvml = n;
  return rc;
}
