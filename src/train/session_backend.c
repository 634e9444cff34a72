/* session_backend.c: which backend computes: what was asked for, what the run was
 * started with, and what there is here.
 *
 * Main thread, before the model is made.  Disadvantage: a device is opened even
 * where a run turns out not to fit. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "src/train/session.h"

/* The products of this backend, by which a resumed run knows it. */
static const struct {
  const char *backend, *products;
} backends[] = {{"cuda", "cublas"}};

static const char *backend_of_products(const char *products)
{
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
    if (strcmp(backends[i].products, products) == 0)
      return backends[i].backend;
  return NULL;
}

/* NULL: the host.  *ret_must: nothing else will do. */
static int choose(const char *asked, const char *gemm, const char **ret_name,
                  bool *ret_must)
{
  const char *by_gemm = backend_of_products(gemm);
  bool any_gemm = strcmp(gemm, "auto") == 0;
  *ret_name = NULL;
  *ret_must = true;
  if (strcmp(asked, "auto") == 0) {
    *ret_must = by_gemm != NULL;
    *ret_name = any_gemm ? backends[0].backend : by_gemm;
    return 0;
  }
  if (strcmp(asked, "host") == 0 && !by_gemm)
    return 0;
  if (strcmp(asked, "host") != 0 &&
      (any_gemm || (by_gemm && strcmp(by_gemm, asked) == 0))) {
    *ret_name = asked;
    return 0;
  }
  return pen_error_set(PEN_EMISMATCH,
                       "products by %s, with which this is to be computed, are "
                       "not those of --backend %s; drop one, or start another "
                       "run",
                       gemm, asked);
}

/* Device memory is what was allowed, or all that is free. */
static int limit_memory(struct pen_session *s)
{
  const struct pen_backend *b = s->backend;
  struct pen_machine_settings *m = &s->machine;
  char asked[PEN_SIZE_TEXT_BYTES], there[PEN_SIZE_TEXT_BYTES];
  uint64_t all = b->device_bytes ? b->device_bytes + b->workspace_bytes : 0;
  if (!all)
    return pen_error_set(PEN_ENOFIT,
                         "does not fit: the device memory that is free is no "
                         "more than products and the driver take; end what "
                         "else uses the device (%s)",
                         b->about);
  if (m->device_bytes > all) {
    pen_size_format(m->device_bytes, asked);
    pen_size_format(all, there);
    return pen_error_set(PEN_ENOFIT,
                         "does not fit: --device-memory %s, but %s are free on "
                         "the device for a run",
                         asked, there);
  }
  if (m->device_bytes && m->device_bytes <= b->workspace_bytes)
    return pen_error_set(PEN_ENOFIT,
                         "does not fit: --device-memory %llu is no more than "
                         "the %llu bytes of workspace that products take",
                         (unsigned long long)m->device_bytes,
                         (unsigned long long)b->workspace_bytes);
  m->device_bytes = m->device_bytes ? m->device_bytes - b->workspace_bytes
                                    : b->device_bytes;
  m->wish.unified = false;
  pen_memory_add(&s->memory, "workspace of products", PEN_TIER_DEVICE,
                 b->workspace_bytes);
  pen_memory_add(&s->memory, "libraries of the backend (allowance)",
                 PEN_TIER_HOST, b->host_bytes);
  return 0;
}

static int open_backend(struct pen_session *s, const char *gemm)
{
  const char *asked = s->machine.backend ? s->machine.backend : "host", *name;
  bool must;
  int rc = choose(asked, gemm, &name, &must);
  if (rc < 0 || !name || (!must && !s->machine.wish.unified))
    return rc;
  rc = pen_backend_open(name, s->machine.device, &s->backend);
  if (rc == -PEN_EUNSUPPORTED && !must) {
    pen_log_info("computing on the CPU: %s", pen_error_text());
    pen_error_clear();
    return 0;
  }
  if (rc < 0)
    return pen_error_context(rc, "cannot compute on %s", name);
  pen_log_info("computing on %s", s->backend->about);
  return limit_memory(s);
}

/* Never where nothing would come of it. */
static int allow_tf32(const struct pen_session *s)
{
  if (!s->backend || !s->backend->allow_tf32)
    return pen_error_set(PEN_EUSAGE,
                         "--tf32 is for products of a GPU, and the CPU computes "
                         "here; drop it, or see --backend cuda");
  if (s->elem != PEN_ELEM_F32)
    return pen_error_set(PEN_EUSAGE,
                         "--tf32 is for products in fp32, and these are in %s; "
                         "drop it, or add --dtype fp32",
                         pen_elem_name(s->elem));
  s->backend->allow_tf32(s->backend);
  return 0;
}

int pen_session_open_backend(struct pen_session *s, const char *gemm, bool tf32)
{
  int rc = open_backend(s, gemm);
  return rc < 0 || !tf32 ? rc : allow_tf32(s);
}

const char *pen_session_products(const struct pen_session *s)
{
  return s->backend ? s->backend->products : pen_model_gemm(s->model)->name;
}

const char *pen_session_products_variant(const struct pen_session *s)
{
  return s->backend ? s->backend->products_variant
                    : pen_model_gemm(s->model)->variant();
}
