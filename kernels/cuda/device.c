/* device.c: a CUDA device as a row of struct pen_device: memory, three streams,
 * events for marks, pinned host memory.
 *
 * Everything is made by open and alloc; after that no call allocates or waits
 * but sync, and the first launch of each kernel, which loads it.  Any thread; each binds itself to the device at its first call.
 * Disadvantage: copies of memory that could not be pinned block their issuer. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

/* Left to the driver, to kernels that are loaded at their first launch and what
 * they need beside the arena, and to whoever else is there. */
#define SPARE_BYTES_MAX ((size_t)512 << 20)
#define SPARE_SHARE 8
/* What the context and cuBLAS take of RAM: an allowance. */
#define HOST_BYTES ((uint64_t)512 << 20)
/* What cuBLASLt asks of its workspace. */
#define WORKSPACE_ALIGN ((size_t)256)
/* The smallest piece of host memory worth asking for. */
#define PIECE_BYTES_MIN ((size_t)2 << 20)

static struct pen_cuda *of(const struct pen_device *device)
{
  return device->state;
}

const char *pen_cuda_error_text(int cuda_error)
{
  return cudaGetErrorString((cudaError_t)cuda_error);
}

/* 0 for 0, else -PEN_ENOFIT for lack of memory, -PEN_EDEVICE for the rest. */
static int check(int cuda_error, const char *what)
{
  if (cuda_error == cudaSuccess)
    return 0;
  int code = cuda_error == cudaErrorMemoryAllocation ? PEN_ENOFIT : PEN_EDEVICE;
  return pen_cuda_error_set(code, "CUDA: %s: %s", what,
                            pen_cuda_error_text(cuda_error));
}

int pen_cuda_enter(const struct pen_cuda *cuda)
{
  static _Thread_local int bound = -1;
  if (bound == cuda->number)
    return 0;
  int rc = check(cudaSetDevice(cuda->number), "choosing the device");
  if (rc == 0)
    bound = cuda->number;
  return rc;
}

/* ---- memory ---- */

static int alloc(const struct pen_device *device, size_t bytes, void **ret_base)
{
  struct pen_cuda *cuda = of(device);
  size_t arena = (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
  size_t all = arena + PEN_CUDA_WORKSPACE_BYTES, left = 0, total = 0;
  void *base = NULL;
  int rc = pen_cuda_enter(cuda);
  if (rc < 0)
    return rc;
  cudaError_t r = cudaMalloc(&base, all);
  if (r == cudaErrorMemoryAllocation) {
    cudaMemGetInfo(&left, &total);
    return pen_cuda_error_set(
        PEN_ENOFIT,
        "does not fit: cannot take %zu bytes of device memory, %zu of %zu are "
        "free; lower --device-memory, or wait until another program has ended",
        all, left, total);
  }
  rc = check(r, "taking device memory");
  if (rc < 0)
    return rc;
  cuda->workspace = (char *)base + arena;
  *ret_base = base;
  return 0;
}

static void release(const struct pen_device *device, void **base, size_t bytes)
{
  (void)bytes;
  of(device)->workspace = NULL;
  if (*base && pen_cuda_enter(of(device)) == 0)
    cudaFree(*base);
  *base = NULL;
}

/* Pieces from the beginning on; a refused one is tried with half its size. */
static int pin(const struct pen_device *device, void *base, size_t bytes,
               size_t *ret_pinned)
{
  struct pen_cuda *cuda = of(device);
  size_t piece = PEN_CUDA_PIECE_BYTES, done = 0;
  int rc = pen_cuda_enter(cuda);
  if (rc < 0)
    return rc;
  cuda->pinned = base;
  /* no piece but the last is smaller */
  cuda->piece_ends =
      malloc((bytes / PIECE_BYTES_MIN + 1) * sizeof *cuda->piece_ends);
  if (!cuda->piece_ends)
    return pen_cuda_error_set(PEN_ENOFIT, "no memory for a table of pieces");
  while (done < bytes && piece >= PIECE_BYTES_MIN) {
    size_t n = bytes - done < piece ? bytes - done : piece;
    cudaError_t r =
        cudaHostRegister((char *)base + done, n, cudaHostRegisterPortable);
    if (r == cudaSuccess) {
      done += n;
      cuda->piece_ends[cuda->n_pieces++] = done;
    } else {
      cudaGetLastError(); /* it was handled */
      piece /= 2;
    }
  }
  *ret_pinned = done;
  return 0;
}

static void unpin(const struct pen_device *device)
{
  struct pen_cuda *cuda = of(device);
  size_t begin = 0;
  for (size_t i = 0; i < cuda->n_pieces; i++) {
    cudaHostUnregister(cuda->pinned + begin);
    begin = cuda->piece_ends[i];
  }
  free(cuda->piece_ends);
  cuda->piece_ends = NULL;
  cuda->n_pieces = 0;
  cuda->pinned = NULL;
}

/* Bytes from `host` to the end of its piece; SIZE_MAX beyond the last. */
static size_t left_in_piece(const struct pen_cuda *cuda, const void *host)
{
  size_t at = (size_t)((const char *)host - cuda->pinned);
  size_t low = 0, high = cuda->n_pieces;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (cuda->piece_ends[middle] > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low < cuda->n_pieces ? cuda->piece_ends[low] - at : SIZE_MAX;
}

/* `host` is the end that is cut at pieces. */
static int copy(const struct pen_device *device, enum pen_device_queue queue,
                enum cudaMemcpyKind kind, void *to, const void *from,
                size_t bytes)
{
  struct pen_cuda *cuda = of(device);
  int rc = pen_cuda_enter(cuda);
  for (size_t done = 0; rc == 0 && done < bytes;) {
    const char *source = (const char *)from + done;
    char *target = (char *)to + done;
    size_t n = left_in_piece(cuda, kind == cudaMemcpyHostToDevice
                                       ? source : (const char *)target);
    if (n > bytes - done)
      n = bytes - done;
    rc = check(
        cudaMemcpyAsync(target, source, n, kind, cuda->queues[queue]),
        kind == cudaMemcpyHostToDevice ? "copying to the device"
                                       : "copying from the device");
    done += n;
  }
  return rc;
}

static int upload(const struct pen_device *device, void *to, const void *host,
                  size_t bytes)
{
  return copy(device, PEN_DEVICE_UPLOAD, cudaMemcpyHostToDevice, to, host,
              bytes);
}

static int download(const struct pen_device *device, void *host,
                    const void *from, size_t bytes)
{
  return copy(device, PEN_DEVICE_DOWNLOAD, cudaMemcpyDeviceToHost, host, from,
              bytes);
}

static int zero(const struct pen_device *device, void *at, size_t bytes)
{
  struct pen_cuda *cuda = of(device);
  int rc = pen_cuda_enter(cuda);
  return rc < 0 ? rc
                : check(cudaMemsetAsync(at, 0, bytes,
                                                 cuda->queues[PEN_DEVICE_COMPUTE]),
                                 "zeroing device memory");
}

/* ---- marks ---- */

static int begin_mark(const struct pen_device *device,
                      enum pen_device_queue queue, uint32_t number)
{
  struct pen_cuda *cuda = of(device);
  int rc = pen_cuda_enter(cuda);
  return rc < 0 ? rc
                : check(cudaEventRecord(cuda->begun[queue][number],
                                                 cuda->queues[queue]),
                                 "recording an event");
}

static int set_mark(const struct pen_device *device,
                    enum pen_device_queue queue, uint32_t number)
{
  struct pen_cuda *cuda = of(device);
  int rc = pen_cuda_enter(cuda);
  return rc < 0 ? rc
                : check(cudaEventRecord(cuda->done[queue][number],
                                                 cuda->queues[queue]),
                                 "recording an event");
}

static int wait_mark(const struct pen_device *device,
                     enum pen_device_queue queue, enum pen_device_queue other,
                     uint32_t number)
{
  struct pen_cuda *cuda = of(device);
  int rc = pen_cuda_enter(cuda);
  return rc < 0 ? rc
                : check(cudaStreamWaitEvent(cuda->queues[queue],
                                                     cuda->done[other][number],
                                                     0),
                                 "ordering two queues");
}

static int sync_mark(const struct pen_device *device,
                     enum pen_device_queue queue, uint32_t number,
                     uint64_t *ret_busy_ns)
{
  struct pen_cuda *cuda = of(device);
  float ms = 0;
  int rc = pen_cuda_enter(cuda);
  if (rc == 0)
    rc = check(cudaEventSynchronize(cuda->done[queue][number]),
                        "the device's work");
  if (rc == 0 && ret_busy_ns) {
    rc = check(cudaEventElapsedTime(&ms, cuda->begun[queue][number],
                                             cuda->done[queue][number]),
                        "timing the device's work");
    *ret_busy_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
  }
  return rc;
}

/* ---- opening ---- */

static const struct pen_device_marks marks = {begin_mark, set_mark, wait_mark,
                                              sync_mark};

static int no_device(int cuda_error)
{
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (cuda_error == cudaErrorInsufficientDriver && driver)
    return pen_cuda_error_set(
        PEN_EUNSUPPORTED,
        "the NVIDIA driver knows CUDA %d.%d, this needs %d.%d; install a newer "
        "driver", driver / 1000, driver % 1000 / 10, runtime / 1000,
        runtime % 1000 / 10);
  if (cuda_error == cudaErrorInsufficientDriver)
    return pen_cuda_error_set(PEN_EUNSUPPORTED, "no NVIDIA driver here");
  if (cuda_error)
    return pen_cuda_error_set(PEN_EUNSUPPORTED, "no CUDA device: %s",
                              pen_cuda_error_text(cuda_error));
  return pen_cuda_error_set(PEN_EUNSUPPORTED, "there is no CUDA device here");
}

static int choose(struct pen_cuda *cuda, uint64_t number,
                  struct cudaDeviceProp *ret_properties)
{
  int count = 0; /* not written where there is no driver */
  cudaError_t r = cudaGetDeviceCount(&count);
  if (r != cudaSuccess || count <= 0)
    return no_device(r);
  if (number >= (uint64_t)count)
    return pen_cuda_error_set(PEN_EUSAGE,
                              "--device %llu: there are %d CUDA devices, "
                              "counted from 0",
                              (unsigned long long)number, count);
  cuda->number = (int)number;
  int rc = pen_cuda_enter(cuda);
  if (rc == 0)
    rc = check(cudaGetDeviceProperties(ret_properties, cuda->number),
                        "asking for the device's properties");
  if (rc == 0 && ret_properties->major < 8)
    rc = pen_cuda_error_set(PEN_EUNSUPPORTED,
                            "%s has compute capability %d.%d; 8.0 is the least",
                            ret_properties->name, ret_properties->major,
                            ret_properties->minor);
  return rc;
}

int pen_cuda_device_describe(struct pen_cuda *cuda)
{
  struct pen_backend *b = &cuda->backend;
  struct cudaDeviceProp p;
  size_t left = 0, total = 0;
  int driver = 0, runtime = 0;
  memset(&p, 0, sizeof p);
  int rc = check(cudaGetDeviceProperties(&p, cuda->number),
                          "asking for the device's properties");
  if (rc == 0)
    rc = check(cudaMemGetInfo(&left, &total), "asking for memory");
  if (rc < 0)
    return rc;
  size_t spare = left / SPARE_SHARE;
  if (spare > SPARE_BYTES_MAX)
    spare = SPARE_BYTES_MAX;
  spare += PEN_CUDA_WORKSPACE_BYTES;
  b->device_bytes = left > spare ? left - spare : 0;
  b->workspace_bytes = PEN_CUDA_WORKSPACE_BYTES;
  b->host_bytes = HOST_BYTES;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  snprintf(b->about, sizeof b->about,
           "CUDA device %d, %.80s (%d.%d), %zu of %zu MiB free, driver for CUDA "
           "%d.%d, runtime %d.%d",
           cuda->number, p.name, p.major, p.minor, left >> 20, total >> 20,
           driver / 1000, driver % 1000 / 10, runtime / 1000,
           runtime % 1000 / 10);
  return 0;
}

static int make_queues(struct pen_cuda *cuda)
{
  int rc = 0;
  for (int q = 0; rc == 0 && q < PEN_DEVICE_QUEUES; q++) {
    rc = check(cudaStreamCreateWithFlags(&cuda->queues[q],
                                                  cudaStreamNonBlocking),
                        "making a stream");
    for (uint32_t m = 0; rc == 0 && m < PEN_DEVICE_MARKS; m++) {
      rc = check(cudaEventCreateWithFlags(&cuda->begun[q][m],
                                                   cudaEventDefault),
                          "making an event");
      if (rc == 0)
        rc = check(cudaEventCreateWithFlags(&cuda->done[q][m],
                                                     cudaEventBlockingSync),
                            "making an event");
    }
  }
  return rc;
}

int pen_cuda_device_open(struct pen_cuda *cuda, uint64_t number)
{
  struct cudaDeviceProp properties;
  memset(&properties, 0, sizeof properties);
  int rc = choose(cuda, number, &properties);
  if (rc == 0)
    rc = make_queues(cuda);
  /* cuBLAS chooses by version, architecture and number of multiprocessors. */
  snprintf(cuda->backend.products_variant,
           sizeof cuda->backend.products_variant, "sm_%d%d x %d",
           properties.major, properties.minor, properties.multiProcessorCount);
  cuda->device = (struct pen_device){
      .name = "cuda", .state = cuda, .alloc = alloc, .free = release,
      .pin = pin, .unpin = unpin, .upload = upload, .download = download,
      .zero = zero, .marks = &marks};
  cuda->backend.device = &cuda->device;
  return rc;
}

void pen_cuda_device_close(struct pen_cuda *cuda)
{
  for (int q = 0; q < PEN_DEVICE_QUEUES; q++) {
    for (uint32_t m = 0; m < PEN_DEVICE_MARKS; m++) {
      if (cuda->begun[q][m])
        cudaEventDestroy(cuda->begun[q][m]);
      if (cuda->done[q][m])
        cudaEventDestroy(cuda->done[q][m]);
    }
    if (cuda->queues[q])
      cudaStreamDestroy(cuda->queues[q]);
  }
}
