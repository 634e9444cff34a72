/* Token files made once and found again.
 *
 * Main thread, before training.  Invariant: a file's name is a hash of all that
 * the tool reads to make it, so that one that is there is the one that is wanted.
 *
 * Disadvantage: every start reads the data once to know them, some seconds per
 * gigabyte; and directories, whose files are many, are prepared anew each time. */
#include "src/data/prepare.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir_folder.h"
#include "src/data/sha256.h"
#include "src/data/tokens.h"

#define TOOL_VERSION "6" /* part of the key; raised when its output changes */

static void key_add(struct pen_sha256 *sha, const char *text)
{
  pen_sha256_add(sha, text, strlen(text) + 1);
}

/* A file's name, which says what it holds, and its contents; of a directory only
 * the path, so that it is read anew each time. */
static int key_add_data(struct pen_sha256 *sha, const char *path, bool *ret_directory)
{
  char real[PATH_MAX];
  struct stat st;

  if (!realpath(path, real) || stat(real, &st) < 0)
    return pen_error_set(-errno, "cannot find %s", path);
  *ret_directory = S_ISDIR(st.st_mode);
  key_add(sha, *ret_directory ? real : strrchr(real, '/') + 1);
  return *ret_directory ? 0 : pen_sha256_add_file(sha, real);
}

/* The contents of `folder`/`name`, if it is there. */
static int key_add_optional(struct pen_sha256 *sha, const char *folder, const char *name)
{
  char path[PATH_MAX];

  key_add(sha, name);
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
      access(path, R_OK) < 0)
    return 0;
  return pen_sha256_add_file(sha, path);
}

static int key_add_tokenizer(struct pen_sha256 *sha, const char *tokenizer)
{
  /* They say which begin and end tokens and which template there are. */
  static const char *const names[] = { "tokenizer_config.json", "config.json",
                                       "generation_config.json", "chat_template.jinja",
                                       "chat_template.json", PEN_HFDIR_TEMPLATES "/tool_use.jinja" };
  uint8_t digest[PEN_SHA256_BYTES] = { 0 };
  struct stat st;
  bool found;

  if (stat(tokenizer, &st) < 0)
    return pen_error_set(-errno, "cannot find the tokenizer %s", tokenizer);
  if (!S_ISDIR(st.st_mode))
    return pen_sha256_add_file(sha, tokenizer);
  int r = pen_tokens_hash_tokenizer(tokenizer, digest, &found);
  if (r < 0)
    return r;
  if (!found)
    return pen_error_set(PEN_EFORMAT, "there is no tokenizer.json in %s", tokenizer);
  pen_sha256_add(sha, digest, sizeof digest);
  for (size_t i = 0; r == 0 && i < sizeof names / sizeof *names; i++)
    r = key_add_optional(sha, tokenizer, names[i]);
  return r;
}

/* The template's contents where a file is named; and what names the columns of
 * the data, beside it. */
static int key_add_forms(struct pen_sha256 *sha, const struct pen_prepare_request *request)
{
  const char *template = request->chat_template, *slash = strrchr(request->data, '/');
  char folder[PATH_MAX];
  int r = 0;

  key_add(sha, template ? template : "");
  if (template && access(template, R_OK) == 0) {
    r = pen_sha256_add_file(sha, template);
  } else if (template) { /* one of the model's, by its name */
    snprintf(folder, sizeof folder, PEN_HFDIR_TEMPLATES "/%.1000s.jinja", template);
    r = key_add_optional(sha, request->tokenizer, folder);
  }
  if (r < 0)
    return r;
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - request->data) : 1,
           slash ? request->data : ".");
  return key_add_optional(sha, folder, "dataset_info.json");
}

/* The name of the request's token file; *ret_directory: it is to be made anew. */
static int cache_path(const struct pen_prepare_request *request, char *ret_path,
                      size_t path_bytes, bool *ret_directory)
{
  struct pen_sha256 sha;
  uint8_t digest[PEN_SHA256_BYTES];
  char hex[2 * PEN_SHA256_BYTES + 1];
  int r;

  pen_sha256_begin(&sha);
  key_add(&sha, TOOL_VERSION);
  key_add(&sha, request->completion_only ? "completion" : "all");
  key_add(&sha, request->assistant_only ? "assistant" : "all");
  key_add(&sha, request->choices ? "choices" : "none");
  key_add(&sha, request->held_out ? "valid" : "train");
  r = key_add_data(&sha, request->data, ret_directory);
  if (r == 0)
    r = key_add_tokenizer(&sha, request->tokenizer);
  if (r == 0)
    r = key_add_forms(&sha, request);
  if (r < 0)
    return r;
  pen_sha256_end(&sha, digest);
  pen_sha256_hex(digest, hex);
  if (snprintf(ret_path, path_bytes, "%s/%.24s" PEN_TOKENS_SUFFIX, request->cache_dir, hex) >=
      (int)path_bytes)
    return pen_error_set(-ENAMETOOLONG, "the cache path %s is too long", request->cache_dir);
  return 0;
}

int pen_prepare_cached(const struct pen_prepare_request *request, char *ret_path,
                       size_t path_bytes, char *ret_note, size_t note_bytes)
{
  const char *arguments[20];
  size_t n = 0;
  char path[PATH_MAX], template[PATH_MAX + sizeof PEN_PREPARE_TEMPLATE_SUFFIX];
  char choices[PATH_MAX + sizeof PEN_PREPARE_CHOICES_SUFFIX];
  bool directory = false;
  int r = cache_path(request, path, sizeof path < path_bytes ? sizeof path : path_bytes,
                     &directory);

  if (r < 0)
    return r;
  if (ret_note && note_bytes)
    ret_note[0] = 0;
  snprintf(template, sizeof template, "%s" PEN_PREPARE_TEMPLATE_SUFFIX, path);
  if (directory || access(path, R_OK) < 0 ||
      (request->chat_template && access(template, R_OK) < 0)) {
    r = pen_files_make_dirs(request->cache_dir);
    if (r < 0)
      return r;
    arguments[n++] = "--tokenizer";
    arguments[n++] = request->tokenizer;
    arguments[n++] = "--output";
    arguments[n++] = path;
    if (request->completion_only)
      arguments[n++] = "--completion-only-loss";
    if (request->assistant_only)
      arguments[n++] = "--assistant-only-loss";
    if (request->chat_template) {
      arguments[n++] = "--chat-template";
      arguments[n++] = request->chat_template;
      arguments[n++] = "--save-template";
      arguments[n++] = template;
      arguments[n++] = "--overwrite"; /* an earlier one of that name */
    }
    if (request->choices) {
      snprintf(choices, sizeof choices, "%s" PEN_PREPARE_CHOICES_SUFFIX, path);
      arguments[n++] = "--choices";
      arguments[n++] = choices;
    }
    if (request->held_out) {
      arguments[n++] = "--split";
      arguments[n++] = "valid";
    }
    arguments[n++] = "--"; /* a path may begin with a dash */
    arguments[n++] = request->data;
    arguments[n] = NULL;
    r = pen_prepare_run(arguments, request->stop, ret_note, note_bytes);
    if (r < 0)
      return r;
  }
  memcpy(ret_path, path, strlen(path) + 1);
  return 0;
}
