/* prepare_server.h: penstock-prepare kept running beside a program that speaks:
 * text and conversations to ids, and ids to text as they come. */
#ifndef PEN_SRC_DATA_PREPARE_SERVER_H
#define PEN_SRC_DATA_PREPARE_SERVER_H

#include <stddef.h>
#include <stdint.h>

struct pen_prepare_server;

/* One turn of a conversation; borrowed during a call. */
struct pen_prepare_message {
  const char *role, *content;
};

/* Starts the tool (found as pen_prepare_find does) for a tokenizer and waits
 * until it is ready.  chat_template: file or name; NULL: the model's own.
 * Errors of this and all calls below: -ENOENT where the tool is not installed,
 * -PEN_EFORMAT with the tool's own reason, -PEN_ESTOPPED where it ended.
 * Caller owns *ret_server. */
int pen_prepare_server_open(const char *tokenizer, const char *chat_template,
                            struct pen_prepare_server **ret_server);
/* NULL is fine; sets NULL. */
void pen_prepare_server_close(struct pen_prepare_server **server);

/* A prompt's ids, with the begin token and without an end token; and those of a
 * conversation up to where the assistant speaks.  The caller owns *ret_ids. */
int pen_prepare_server_encode(struct pen_prepare_server *server,
                              const char *text, uint32_t **ret_ids,
                              size_t *ret_n);
int pen_prepare_server_chat(struct pen_prepare_server *server,
                            const struct pen_prepare_message *messages,
                            size_t n_messages, uint32_t **ret_ids,
                            size_t *ret_n);

/* An answer: begins behind ids that are not its own, grows, ends.  *ret_text is
 * what is new of it, in whole UTF-8 characters, without special tokens; borrowed
 * until the next call. */
int pen_prepare_server_begin(struct pen_prepare_server *server,
                             const uint32_t *ids, size_t n);
int pen_prepare_server_add(struct pen_prepare_server *server,
                           const uint32_t *ids, size_t n,
                           const char **ret_text);
int pen_prepare_server_end(struct pen_prepare_server *server,
                           const char **ret_text);

#endif
