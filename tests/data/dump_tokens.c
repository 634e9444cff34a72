/* Prints a token file as the C reader sees it, for tests of the tool that
 * writes them: one line of numbers each for the header, the borders, the ids
 * and the loss flags. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "src/data/tokens.h"

static int dump(struct pen_tokens *tokens)
{
  const struct pen_tokens_info *info = pen_tokens_info(tokens);
  size_t n = (size_t)info->n_tokens, n_borders = (size_t)info->n_docs + 1;
  uint64_t *borders = calloc(n_borders, sizeof *borders);
  uint32_t *ids = calloc(n, sizeof *ids);
  uint8_t *trained = calloc(n, 1);
  char hex[2 * PEN_SHA256_BYTES + 1];
  int r = pen_tokens_verify(tokens);

  if (r == 0)
    r = pen_tokens_borders(tokens, 0, n_borders, borders);
  if (r == 0)
    r = pen_tokens_read(tokens, 0, n, ids, trained);
  if (r == 0) {
    pen_sha256_hex(info->tokenizer_sha256, hex);
    printf("%" PRIu32 " %" PRIu32 " %d %" PRId64 " %" PRId64 " %" PRId64 " %s\n",
           info->token_bytes, info->vocab_size, info->records, info->bos_id, info->eos_id,
           info->pad_id, hex);
    for (size_t i = 0; i < n_borders; i++)
      printf("%" PRIu64 " ", borders[i]);
    putchar('\n');
    for (size_t i = 0; i < n; i++)
      printf("%" PRIu32 " ", ids[i]);
    putchar('\n');
    for (size_t i = 0; i < n; i++)
      printf("%d ", trained[i]);
    putchar('\n');
  }
  free(borders);
  free(ids);
  free(trained);
  return r;
}

int main(int argc, char **argv)
{
  struct pen_tokens *tokens;
  int r = argc == 2 ? pen_tokens_open(argv[1], &(struct pen_tokens_options){ 0 }, &tokens)
                    : pen_error_set(PEN_EUSAGE, "one token file is named");

  if (r == 0) {
    r = dump(tokens);
    pen_tokens_close(&tokens);
  }
  if (r < 0)
    fprintf(stderr, "%s\n", pen_error_text());
  return r < 0;
}
