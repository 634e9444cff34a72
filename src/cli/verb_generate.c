/* verb_generate.c: `penstock generate`: one text, one answer, or a conversation.
 *
 * Ctrl-C ends the answer that is being told; a conversation goes on.  Before the
 * model is loaded it ends the program.  Main thread.  Disadvantage: a conversation
 * that has outgrown --max-length ends; nothing of it is forgotten by itself. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/json_write.h"
#include "src/cli/prompt.h"
#include "src/cli/settings.h"
#include "src/cli/speech.h"
#include "src/cli/verb.h"
#include "src/train/generate.h"
#include "src/train/inference.h"

#define CHAT_TOKENS_AUTO 4096

static volatile sig_atomic_t interrupted;

/* The second one before the answer has noticed the first ends the program. */
static void on_interrupt(int number)
{
  if (interrupted) {
    signal(number, SIG_DFL);
    raise(number);
  }
  __atomic_store_n(&interrupted, 1, __ATOMIC_RELAXED); /* threads look at it, too */
}

static void catch_interrupts(void)
{
  struct sigaction action = {.sa_handler = on_interrupt};
  sigemptyset(&action.sa_mask); /* no SA_RESTART: it ends the reading of a line */
  sigaction(SIGINT, &action, NULL);
}

struct talk {
  const struct pen_config *config;
  char *model;
  const char *prompt; /* NULL: none */
  bool json;
  struct pen_speech speech;
  struct pen_inference inference;
  struct pen_generator generator;
  struct pen_prepare_message *messages; /* strings are owned */
  size_t n_messages;
};

/* Why an answer ended. */
enum reason { BY_LENGTH, BY_END_TOKEN, BY_STOP_TEXT, BY_INTERRUPT };
static const char *const reason_names[] = {"length", "end token", "stop text",
                                           "interrupt"};

static int print_json(const struct talk *t, size_t n_prompt,
                      const struct pen_telling *told, enum reason reason)
{
  const char *json;
  size_t bytes;
  struct pen_json_writer w;
  const struct pen_generator *g = &t->generator;
  pen_json_writer_init(&w, NULL, 0, false);
  pen_json_begin_object(&w, NULL);
  pen_json_put_u64(&w, "prompt_tokens", n_prompt);
  pen_json_begin_array(&w, "ids");
  for (size_t i = 0; i < g->n; i++)
    pen_json_put_u64(&w, NULL, g->ids[i]);
  pen_json_end_array(&w);
  if (pen_speech_has_text(&t->speech))
    pen_json_put_string(&w, "text", told->text ? told->text : "");
  pen_json_put_string(&w, "ended_by", reason_names[reason]);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &json, &bytes);
  if (rc == 0) {
    puts(json);
    fflush(stdout);
  }
  pen_json_writer_done(&w);
  return rc;
}

static int add(struct talk *t, struct pen_telling *told, const uint32_t *ids,
               size_t n, bool *ret_stopped)
{
  const char *text;
  int rc = pen_speech_add(&t->speech, ids, n, &text);
  return rc < 0 ? rc : pen_telling_add(told, text, ret_stopped);
}

/* New tokens until something ends them. */
static int speak(struct talk *t, uint64_t most, struct pen_telling *told,
                 enum reason *ret_reason)
{
  const char *rest;
  int rc = 0;
  bool end = false, stopped = false;
  *ret_reason = BY_LENGTH;
  for (uint64_t i = 0; rc == 0 && i < most && !end && !stopped; i++) {
    uint32_t id;
    if (interrupted)
      break;
    rc = pen_generator_next(&t->generator, &id, &end);
    if (rc == 0)
      rc = add(t, told, &id, 1, &stopped);
  }
  *ret_reason = stopped       ? BY_STOP_TEXT
                : end         ? BY_END_TOKEN
                : interrupted ? BY_INTERRUPT
                              : BY_LENGTH;
  if (rc == 0 && !stopped)
    rc = pen_speech_end(&t->speech, &rest);
  if (rc == 0 && !stopped)
    rc = pen_telling_add(told, rest, &stopped);
  if (rc == 0)
    pen_telling_end(told);
  return rc;
}

static void say_rate(uint64_t begin_ns, size_t n_prompt, size_t n_new)
{
  double seconds = (double)(pen_clock_ns() - begin_ns) * 1e-9;
  pen_log_info("%zu tokens after %zu in %.2f s, %.1f a second", n_new,
               n_prompt, seconds, (double)n_new / seconds);
}

/* The answer to a document of n ids; with_prompt: they are told too. */
static int answer(struct talk *t, const uint32_t *ids, size_t n,
                  bool with_prompt, uint64_t most, struct pen_telling *told)
{
  bool stopped;
  enum reason reason = BY_LENGTH;
  uint64_t begin_ns = pen_clock_ns();
  struct pen_telling prompt = {.file = told->file};
  told->stop = t->config->stop;
  int rc = pen_generator_set(&t->generator, ids, n);
  if (rc == 0)
    rc = pen_speech_begin(&t->speech, ids, with_prompt ? 0 : n);
  if (rc == 0 && with_prompt)
    rc = add(t, &prompt, ids, n, &stopped);
  if (rc == 0)
    rc = speak(t, most, told, &reason);
  if (rc == 0 && told->file) {
    fputc('\n', told->file);
    fflush(told->file);
  }
  if (rc == 0 && t->json && prompt.text) {
    /* One text, as it would have been told. */
    struct pen_telling whole = {0};
    rc = pen_telling_add(&whole, prompt.text, &stopped);
    if (rc == 0)
      rc = pen_telling_add(&whole, told->text ? told->text : "", &stopped);
    if (rc == 0)
      rc = print_json(t, t->prompt ? n : 0, &whole, reason);
    pen_telling_done(&whole);
  } else if (rc == 0 && t->json) {
    rc = print_json(t, n, told, reason);
  }
  if (rc == 0 && t->generator.n > n)
    say_rate(begin_ns, n, t->generator.n - n);
  pen_telling_done(&prompt);
  return rc;
}

/* ---- conversations ---- */

static int put_message(struct talk *t, const char *role, const char *content)
{
  struct pen_prepare_message *larger =
      realloc(t->messages, (t->n_messages + 1) * sizeof *larger);
  if (!larger)
    return pen_error_set(PEN_ENOFIT, "no memory for the conversation");
  t->messages = larger;
  char *copy = strdup(content);
  if (!copy)
    return pen_error_set(PEN_ENOFIT, "no memory for the conversation");
  larger[t->n_messages++] = (struct pen_prepare_message){role, copy};
  return 0;
}

/* Ids of the conversation with one more word of the user's. */
static int ask(struct talk *t, const char *words, uint32_t **ret_ids,
               size_t *ret_n)
{
  int rc = put_message(t, "user", words);
  return rc < 0 ? rc
                : pen_prepare_server_chat(t->speech.server, t->messages,
                                          t->n_messages, ret_ids, ret_n);
}

static int turn(struct talk *t, const char *words)
{
  struct pen_telling told = {.file = t->json ? NULL : stdout};
  uint32_t *ids = NULL;
  size_t n = 0;
  int rc = ask(t, words, &ids, &n);
  if (rc == 0 && n >= t->generator.room)
    rc = pen_error_set(PEN_ENOFIT, "the conversation has %zu tokens and "
                       "--max-length allows %zu, the answer's included",
                       n, t->generator.room);
  if (rc == 0) {
    uint64_t most = t->config->max_new_tokens, room = t->generator.room - n;
    rc = answer(t, ids, n, false, most < room ? most : room, &told);
  }
  if (rc == 0)
    rc = put_message(t, "assistant", told.text ? told.text : "");
  pen_telling_done(&told);
  free(ids);
  return rc;
}

static int converse(struct talk *t)
{
  char *line = NULL;
  size_t cap = 0;
  ssize_t n;
  int rc = 0;
  bool shown = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
  while (rc == 0) {
    if (shown)
      fputs("> ", stderr);
    errno = 0;
    interrupted = 0;
    n = getline(&line, &cap, stdin);
    if (n < 0)
      break;
    if (line[n - 1] == '\n')
      line[n - 1] = '\0';
    if (line[0])
      rc = turn(t, line);
  }
  free(line);
  return rc;
}

/* ---- from options to a model that speaks ---- */

/* The document's room, where nobody asked for one: a conversation's is what the
 * model was made for, within reason. */
static int chat_room(const struct talk *t, size_t *ret_room)
{
  struct pen_model_config config;
  bool is_config;
  int rc = pen_session_load_config(&(struct pen_model_settings){.dir = t->model},
                                   &config, &is_config);
  if (rc == 0)
    *ret_room = config.max_positions < CHAT_TOKENS_AUTO ? config.max_positions
                                                        : CHAT_TOKENS_AUTO;
  return rc;
}

static int open_model(struct talk *t, size_t room)
{
  const struct pen_config *c = t->config;
  struct pen_model_settings model;
  struct pen_machine_settings machine;
  struct pen_session_shape shape = {0};
  struct pen_sampling sampling = {
      .greedy = c->greedy || c->temperature == 0,
      .temperature = c->temperature, .top_k = c->top_k, .top_p = c->top_p,
      .seed = c->seed};
  pen_settings_model(c, &model);
  pen_settings_machine(c, &machine);
  pen_settings_backend(c, &machine);
  model.dir = t->model;
  int rc = pen_generator_shape(t->model, room, &shape);
  if (rc == 0)
    rc = pen_inference_open(&t->inference, &model, &machine, &shape, room);
  if (rc == -PEN_ENOFIT)
    pen_memory_print(&t->inference.session.memory, stderr);
  if (rc == 0)
    pen_generate_warn_of_room(t->inference.session.config.max_positions, room,
                              "--max-length", 0);
  if (rc == 0) {
    catch_interrupts(); /* while it is loaded they end that, and the program */
    rc = pen_inference_start(&t->inference, &interrupted, false);
  }
  if (rc == 0 && t->inference.store)
    pen_log_info("weights on drives: %s",
                 pen_run_io_note(t->inference.session.run));
  if (rc == 0)
    rc = pen_generator_init(&t->generator, &t->inference.session, t->model,
                            &sampling, room);
  return rc;
}

static int run_text(struct talk *t)
{
  const struct pen_config *c = t->config;
  struct pen_telling told = {.file = t->json ? NULL : stdout};
  uint64_t most = c->max_new_tokens;
  uint32_t *ids = NULL;
  size_t n = 0;
  int rc = pen_speech_prompt(&t->speech, t->prompt, &ids, &n);
  if (!t->prompt)
    most--; /* the begin token is the first new one */
  if (rc == 0 && n == 0)
    rc = pen_error_set(PEN_EUSAGE, "the prompt \"%s\" has no tokens", t->prompt);
  if (rc == 0 && c->max_length && n > c->max_length)
    rc = pen_error_set(PEN_EUSAGE, "the prompt has %zu tokens, --max-length "
                       "allows %llu", n, (unsigned long long)c->max_length);
  if (rc == 0 && c->max_length && most > c->max_length - n)
    most = c->max_length - n;
  if (rc == 0)
    rc = open_model(t, n + most);
  if (rc == 0)
    rc = answer(t, ids, n, true, most, &told);
  pen_telling_done(&told);
  free(ids);
  return rc;
}

static int run_chat(struct talk *t)
{
  const struct pen_config *c = t->config;
  size_t room = c->max_length;
  int rc = 0;
  if (!t->speech.server)
    return pen_error_set(PEN_EUSAGE, "--chat: %s has no tokenizer", t->model);
  if (c->system)
    rc = put_message(t, "system", c->system);
  if (rc == 0 && !room)
    rc = chat_room(t, &room);
  if (rc == 0)
    rc = open_model(t, room);
  if (rc < 0)
    return rc;
  return t->prompt ? turn(t, t->prompt) : converse(t);
}

int pen_verb_generate(const struct pen_config *config)
{
  struct talk t = {.config = config,
                   .prompt = config->prompt,
                   .json = config->output_format == PEN_CONFIG_OUTPUT_JSON};
  char *read = NULL;
  int rc = pen_settings_outputs(config);
  if (rc == 0)
    rc = pen_settings_find_model(config, &t.model);
  if (rc == 0 && !config->prompt && !config->chat)
    rc = pen_prompt_read(&read);
  if (read)
    t.prompt = read;
  if (rc == 0)
    rc = pen_speech_open(t.model, config->chat_template,
                         config->chat || t.prompt || !t.json, &t.speech);
  if (rc == 0 && t.speech.has_bytes)
    pen_log_info("%s has no tokenizer: each byte of a text is a token", t.model);
  if (rc == 0)
    rc = config->chat ? run_chat(&t) : run_text(&t);
  pen_generator_done(&t.generator);
  pen_inference_close(&t.inference);
  pen_speech_close(&t.speech);
  for (size_t i = 0; i < t.n_messages; i++)
    free((char *)(uintptr_t)t.messages[i].content);
  free(t.messages);
  free(read);
  free(t.model);
  return rc;
}
