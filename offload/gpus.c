/* gpus.c: the catalogue, one row a product.
 *
 * Rates are peaks from NVIDIA's data sheets and architecture white papers:
 * bf16 is dense (half of what is printed "with sparsity") with fp32 sums (on
 * GeForce half of the rate with fp16 sums).  Pure data.  Disadvantage: a peak
 * is not reached; --gpu-flops takes a measured one. */
#include "offload/gpus.h"

#include <ctype.h>
#include <stdbool.h>

#define T 1e12
#define G 1e9
#define GI (1024.0 * 1024 * 1024)

static const struct pen_gpu gpus[] = {
    {"rtx3060", "GeForce RTX 3060 12 GB", 25.5 * T, 12.7 * T, 360 * G, 12 * GI, 4, 16},
    {"rtx3080", "GeForce RTX 3080 10 GB", 59.5 * T, 29.8 * T, 760 * G, 10 * GI, 4, 16},
    {"rtx3090", "GeForce RTX 3090", 71.2 * T, 35.6 * T, 936 * G, 24 * GI, 4, 16},
    {"rtx3090ti", "GeForce RTX 3090 Ti", 80.0 * T, 40.0 * T, 1008 * G, 24 * GI, 4, 16},
    {"rtx4060ti", "GeForce RTX 4060 Ti 16 GB", 44.1 * T, 22.1 * T, 288 * G, 16 * GI, 4, 8},
    {"rtx4070ti", "GeForce RTX 4070 Ti", 80.2 * T, 40.1 * T, 504 * G, 12 * GI, 4, 16},
    {"rtx4080", "GeForce RTX 4080", 97.5 * T, 48.7 * T, 717 * G, 16 * GI, 4, 16},
    {"rtx4090", "GeForce RTX 4090", 165.2 * T, 82.6 * T, 1008 * G, 24 * GI, 4, 16},
    {"rtx5070ti", "GeForce RTX 5070 Ti", 87.9 * T, 43.9 * T, 896 * G, 16 * GI, 5, 16},
    {"rtx5080", "GeForce RTX 5080", 112.6 * T, 56.3 * T, 960 * G, 16 * GI, 5, 16},
    {"rtx5090", "GeForce RTX 5090", 209.5 * T, 104.8 * T, 1792 * G, 32 * GI, 5, 16},
    {"a6000", "RTX A6000", 154.8 * T, 38.7 * T, 768 * G, 48 * GI, 4, 16},
    {"rtx6000ada", "RTX 6000 Ada", 364.2 * T, 91.1 * T, 960 * G, 48 * GI, 4, 16},
    {"rtxpro6000", "RTX PRO 6000 Blackwell", 503.8 * T, 125.9 * T, 1792 * G, 96 * GI, 5, 16},
    {"a10", "A10", 125.0 * T, 31.2 * T, 600 * G, 24 * GI, 4, 16},
    {"l4", "L4", 121.0 * T, 30.3 * T, 300 * G, 24 * GI, 4, 16},
    {"l40", "L40", 181.1 * T, 90.5 * T, 864 * G, 48 * GI, 4, 16},
    {"l40s", "L40S", 362.1 * T, 91.6 * T, 864 * G, 48 * GI, 4, 16},
    {"a100", "A100 80 GB", 312.0 * T, 19.5 * T, 1935 * G, 80 * GI, 4, 16},
    {"a100-40gb", "A100 40 GB", 312.0 * T, 19.5 * T, 1555 * G, 40 * GI, 4, 16},
    {"h100", "H100 SXM", 989.4 * T, 66.9 * T, 3350 * G, 80 * GI, 5, 16},
    {"h100-pcie", "H100 PCIe", 756.0 * T, 51.0 * T, 2000 * G, 80 * GI, 5, 16},
    {"h200", "H200", 989.4 * T, 66.9 * T, 4800 * G, 141 * G, 5, 16},
    {"h20", "H20", 148.0 * T, 44.0 * T, 4000 * G, 96 * GI, 5, 16},
    {"b200", "B200", 2250.0 * T, 75.0 * T, 8000 * G, 180 * G, 5, 16},
};

#define N_GPUS (sizeof gpus / sizeof *gpus)

static char next_letter(const char **text)
{
  while (**text == ' ' || **text == '-' || **text == '_')
    (*text)++;
  return **text ? (char)tolower((unsigned char)*(*text)++) : '\0';
}

static bool same_name(const char *a, const char *b)
{
  for (;;) {
    char x = next_letter(&a), y = next_letter(&b);
    if (x != y)
      return false;
    if (!x)
      return true;
  }
}

const struct pen_gpu *pen_gpu_find(const char *name)
{
  for (size_t i = 0; i < N_GPUS; i++)
    if (same_name(gpus[i].name, name) || same_name(gpus[i].label, name))
      return &gpus[i];
  return NULL;
}

const struct pen_gpu *pen_gpu_at(size_t i)
{
  return i < N_GPUS ? &gpus[i] : NULL;
}
