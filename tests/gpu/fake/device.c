/* device.c: which devices and versions there are. */
#include <stdio.h>

#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/include/cuda_runtime_api.h"

#define RUNTIME_VERSION 13000

const char *cudaGetErrorString(cudaError_t error)
{
  switch (error) {
  case cudaSuccess:
    return "no error";
  case cudaErrorInvalidValue:
    return "invalid argument";
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorInsufficientDriver:
    return "CUDA driver version is insufficient for CUDA runtime version";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  case cudaErrorInvalidDevice:
    return "invalid device ordinal";
  case cudaErrorIllegalAddress:
    return "an illegal memory access was encountered";
  case cudaErrorHostMemoryAlreadyRegistered:
    return "part or all of the requested memory range is already mapped";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
  return (cudaError_t)fake_broken();
}

cudaError_t cudaDriverGetVersion(int *version)
{
  *version = fake_settings()->driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}

/* Without a driver the count is not written, as with CUDA. */
cudaError_t cudaGetDeviceCount(int *count)
{
  const struct fake_settings *s = fake_settings();
  if (s->driver < RUNTIME_VERSION)
    return cudaErrorInsufficientDriver;
  *count = s->devices;
  return s->devices ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
  return device < fake_settings()->devices ? (cudaError_t)fake_broken()
                                           : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties,
                                    int device)
{
  int capability = fake_settings()->capability;
  snprintf(properties->name, sizeof properties->name, "Fake GPU %d", device);
  properties->major = capability / 10;
  properties->minor = capability % 10;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
