/* options.c: every option of penstock, once.
 *
 * The table drives the parser, config files, help, --dump-config, the fuzzer
 * and the test that no row is dead.  Names are those of transformers and TRL;
 * aliases are other trainers' words.  Each row's type is checked against its
 * field at compile time.  Disadvantage: rows are wide. */
#include "src/cli/options.h"

#include <stddef.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/cli/config_file.h"
#include "src/cli/verb.h"

/* The field's offset; does not compile if the field has another type. */
#define OFFSET(field, type)                                                   \
  (offsetof(struct pen_config, field) +                                       \
   0 * sizeof(_Generic(((struct pen_config *)0)->field, type: 0)))

#define STRING(field) PEN_OPTION_STRING, OFFSET(field, char *)
#define LIST(field) PEN_OPTION_LIST, OFFSET(field, struct pen_option_list)
#define COUNTS(field) PEN_OPTION_COUNTS, OFFSET(field, struct pen_option_list)
#define SIZES(field) PEN_OPTION_SIZES, OFFSET(field, struct pen_option_list)
#define U64(field) PEN_OPTION_U64, OFFSET(field, uint64_t)
#define DOUBLE(field) PEN_OPTION_DOUBLE, OFFSET(field, double)
#define SIZE(field) PEN_OPTION_SIZE, OFFSET(field, uint64_t)
#define RATE(field) PEN_OPTION_RATE, OFFSET(field, uint64_t)
#define BOOL(field) PEN_OPTION_BOOL, OFFSET(field, bool)
#define ENUM(field) PEN_OPTION_ENUM, OFFSET(field, int)

#define T PEN_VERB_TRAIN
#define E PEN_VERB_EVAL
#define G PEN_VERB_GENERATE
#define N PEN_VERB_INIT
#define I PEN_VERB_INSPECT
#define V PEN_VERB_VERIFY
#define P PEN_VERB_PLAN
#define D PEN_VERB_DOCTOR
#define B PEN_VERB_BENCH
#define X PEN_VERB_EXPORT
#define COMPUTES (T | E | G | P)
#define ALL (T | E | G | N | I | V | P | D | B | X)

#define WORDS(name) static const struct pen_option_word name[]

WORDS(auto_words) = { { "auto", PEN_CONFIG_AUTO }, { 0 } };
WORDS(none_words) = { { "none", 0 }, { 0 } };
WORDS(max_steps_words) = { { "auto", 0 }, { "-1", 0 }, { 0 } };
WORDS(place_words) = {
  { "auto", PEN_CONFIG_PLACE_AUTO },
  { "none", PEN_CONFIG_PLACE_NONE },
  { "cpu", PEN_CONFIG_PLACE_CPU },
  { "nvme", PEN_CONFIG_PLACE_NVME },
  { 0 },
};
WORDS(gradient_place_words) = {
  { "auto", PEN_CONFIG_PLACE_AUTO },
  { "cpu", PEN_CONFIG_PLACE_CPU },
  { "nvme", PEN_CONFIG_PLACE_NVME },
  { 0 },
};
WORDS(dtype_words) = {
  { "auto", PEN_CONFIG_DTYPE_AUTO },
  { "bf16", PEN_CONFIG_DTYPE_BF16 },
  { "fp32", PEN_CONFIG_DTYPE_FP32 },
  { "fp16", PEN_CONFIG_DTYPE_FP16 },
  { 0 },
};
WORDS(gemm_words) = {
  { "auto", 0 }, { "reference", 0 }, { "openblas", 0 }, { "onednn", 0 },
  { "panels", 0 },  { "cublas", 0 }, { 0 },
};
WORDS(state_format_words) = {
  { "auto", PEN_CONFIG_FORMAT_AUTO },
  { "fp32", PEN_CONFIG_FORMAT_FP32 },
  { "split32", PEN_CONFIG_FORMAT_SPLIT32 },
  { "bf16", PEN_CONFIG_FORMAT_BF16 },
  { "int8", PEN_CONFIG_FORMAT_INT8 },
  { 0 },
};
WORDS(backend_words) = {
  { "auto", 0 }, { "host", 0 }, { "cuda", 0 }, { 0 },
};
WORDS(gguf_words) = {
  { "F32", 0 }, { "F16", 0 }, { "BF16", 0 }, { "Q8_0", 0 }, { 0 },
};
WORDS(bench_words) = {
  { "memory", 0 }, { "gemm", 0 }, { "adam", 0 }, { "device", 0 }, { "nvme", 0 },
  { "tiers", 0 }, { "link", 0 }, { "step", 0 }, { "all", 0 },
  { 0 },
};
WORDS(isa_words) = {
  { "auto", 0 }, { "scalar", 0 }, { "neon", 0 }, { "avx2", 0 }, { "avx512", 0 },
  { "avx512bf16", 0 },
  { 0 },
};
WORDS(schedule_words) = {
  { "constant", PEN_CONFIG_SCHEDULE_CONSTANT },
  { "linear", PEN_CONFIG_SCHEDULE_LINEAR },
  { "cosine", PEN_CONFIG_SCHEDULE_COSINE },
  { "warmup_stable_decay", PEN_CONFIG_SCHEDULE_WSD },
  { "wsd", PEN_CONFIG_SCHEDULE_WSD },
  { "constant_with_warmup", PEN_CONFIG_SCHEDULE_CONSTANT },
  { "cosine_with_min_lr", PEN_CONFIG_SCHEDULE_COSINE },
  { 0 },
};
WORDS(host_mode_words) = {
  { "unified", PEN_CONFIG_HOST_UNIFIED },
  { "discrete", PEN_CONFIG_HOST_DISCRETE },
  { 0 },
};
WORDS(numa_words) = {
  { "auto", PEN_CONFIG_NUMA_AUTO },
  { "off", PEN_CONFIG_NUMA_OFF },
  { 0 },
};
WORDS(durability_words) = {
  { "step", PEN_CONFIG_DURABILITY_STEP },
  { "none", PEN_CONFIG_DURABILITY_NONE },
  { 0 },
};
WORDS(state_words) = {
  { "keep", PEN_CONFIG_STATE_KEEP },
  { "discard", PEN_CONFIG_STATE_DISCARD },
  { 0 },
};
WORDS(format_words) = {
  { "text", PEN_CONFIG_OUTPUT_TEXT }, { "json", PEN_CONFIG_OUTPUT_JSON },
  { "yaml", PEN_CONFIG_OUTPUT_YAML }, { "jsonl", PEN_CONFIG_OUTPUT_JSONL },
  { "md", PEN_CONFIG_OUTPUT_MD }, { "csv", PEN_CONFIG_OUTPUT_CSV }, { 0 },
};
WORDS(log_words) = {
  { "error", PEN_LOG_ERROR }, { "warn", PEN_LOG_WARN },
  { "info", PEN_LOG_INFO },   { "debug", PEN_LOG_DEBUG },
  { 0 },
};
WORDS(recompute_words) = {
  { "auto", PEN_CONFIG_RECOMPUTE_AUTO },
  { "none", 0 },
  { "all", PEN_CONFIG_RECOMPUTE_ALL },
  { "false", 0 },
  { "true", PEN_CONFIG_RECOMPUTE_ALL },
  { 0 },
};

#define DATA "data"
#define OUTPUT "output"
#define TRAINING "training"
#define NUMERICS "numerics (what may change the numbers; fixed at a run's start)"
#define PLACEMENT "placement (never changes the numbers)"
#define SAMPLING "sampling"
#define EXPORT "export"
#define DESCRIBED "a described machine (no part of it need be there)"

/* name, aliases, letter, type and field, default, words, min, max,
 * verbs, required by, group, metavar, help */
static const struct pen_option table[] = {
  { "help", NULL, 'h', BOOL(help), NULL, NULL, 0, 0,
    ALL, 0, NULL, NULL, "show this and stop" },
  { "config", NULL, 'c', STRING(config_file), NULL, NULL, 0, 0,
    ALL, 0, NULL, "FILE", "options from a YAML or JSON file; the command line wins" },
  { "dump-config", NULL, 0, BOOL(dump_config), NULL, NULL, 0, 0,
    ALL, 0, NULL, NULL, "print every option's value as YAML for -c and stop" },
  { "log-level", NULL, 0, ENUM(log_level), "info", log_words, 0, 0,
    ALL, 0, NULL, NULL, "how much to say on standard error (or PEN_LOG)" },
  { "resume", NULL, 0, BOOL(resume), NULL, NULL, 0, 0,
    T, 0, NULL, NULL, "go on from the newest committed state, or start where there is none" },
  { "overwrite", "overwrite-output-dir", 0, BOOL(overwrite), NULL, NULL, 0, 0,
    T | N | X, 0, NULL, NULL, "replace what the output directory holds" },
  { "dry-run", NULL, 0, BOOL(dry_run), NULL, NULL, 0, 0,
    T, 0, NULL, NULL, "print the plan (bytes per tier) and stop" },

  { "path", NULL, 0, STRING(path), NULL, NULL, 0, 0,
    I | V | X, I | V | X, DATA, "PATH", "model directory or file to look into; of export a run too" },
  { "model-config", NULL, 0, STRING(model_config), NULL, NULL, 0, 0,
    N, N, DATA, "FILE", "config.json of the model to make" },
  { "bench", NULL, 0, STRING(bench), NULL, bench_words, 0, 0,
    B, B, DATA, "WHAT", "memory, gemm, adam, device, nvme DIR[,DIR], all of these; or tiers, link, step" },
  { "bench-size", NULL, 0, SIZE(bench_size), "auto", auto_words, 1048576, 0,
    B, 0, DATA, NULL, "bytes of RAM (1GiB), or of a file on each drive (4GiB), to measure on" },
  { "threads", "num-threads", 't', COUNTS(bench_threads), "auto", auto_words, 1, 9999,
    B, 0, DATA, NULL, "threads; bench memory: each number of them" },
  { "request-size", NULL, 0, SIZES(request_sizes), "auto", auto_words, 65536, 0x1p28,
    B, 0, DATA, NULL, "bench nvme: sizes of a transfer to try, each with each --io-depth" },
  { "io-depth", NULL, 0, COUNTS(bench_depths), "auto", auto_words, 1, 256,
    B, 0, DATA, NULL, "bench nvme: transfers in flight to try" },
  { "state-bytes", NULL, 0, COUNTS(state_bytes), "12,10,3", NULL, 1, 64,
    B, 0, DATA, NULL, "bench nvme: of state a parameter, read and written; the first for plan" },
  { "repeats", NULL, 'r', U64(repeats), "5", NULL, 1, 64,
    B, 0, DATA, NULL, "runs of each measurement; the median counts" },
  { "soak", NULL, 0, BOOL(soak), NULL, NULL, 0, 0,
    B, 0, DATA, NULL, "bench nvme: write until the rate falls, and see what is sustained" },
  { "soak-idle", NULL, 0, DOUBLE(soak_idle), "60", NULL, 0, 86400,
    B, 0, DATA, "SECONDS", "of rest, after which --soak tries the drive's cache again; 0: never" },
  { "tokens-per-step", NULL, 0, U64(tokens_per_step), "auto", auto_words, 1, 0x1p31,
    B, 0, DATA, NULL, "bench nvme (65536), step (2048): of the steps that are spoken of" },
  { "model", "model-name-or-path", 0, STRING(model), NULL, NULL, 0, 0,
    COMPUTES | B, COMPUTES, DATA, "DIR", "model directory in Hugging Face's layout" },
  { "data", "train-data,train-file", 0, STRING(data), NULL, NULL, 0, 0,
    T | E | P, T | E, DATA, "FILE", "text, records (JSON, JSONL, Parquet), token file or directory" },
  { "eval-data", "validation-file", 0, STRING(eval_data), NULL, NULL, 0, 0,
    T | P, 0, DATA, "FILE", "held-out data for --eval-steps" },
  { "max-length", "seq-len,max-seq-length,sequence-length,block-size", 0, U64(max_length), "auto", auto_words, 2, 0x1p31,
    COMPUTES, 0, DATA, "TOKENS", "longest sequence: text goes on in the next one, a record is cut off" },
  { "packing", NULL, 0, BOOL(packing), NULL, NULL, 0, 0,
    T | P, 0, DATA, NULL, "several sequences in a row of --max-length, apart from each other" },
  { "refuse-truncation", NULL, 0, BOOL(refuse_truncation), NULL, NULL, 0, 0,
    T | E | P, 0, DATA, NULL, "stop rather than cut off a record at --max-length" },
  { "chat-template", "chat-template-path", 0, STRING(chat_template), NULL, NULL, 0, 0,
    COMPUTES, 0, DATA, "FILE|NAME", "for conversations, instead of the model's own (or chatml)" },
  { "assistant-only-loss", NULL, 0, BOOL(assistant_only_loss), NULL, NULL, 0, 0,
    T | E | P, 0, DATA, NULL, "only what the assistant says is a target" },
  { "completion-only-loss", NULL, 0, BOOL(completion_only_loss), NULL, NULL, 0, 0,
    T | E | P, 0, DATA, NULL, "only the completion of a record is a target" },
  { "lenient", NULL, 0, BOOL(lenient), NULL, NULL, 0, 0,
    COMPUTES | I | V | X, 0, DATA, NULL, "warn of bytes after the last tensor instead of refusing the file" },
  { "vocab-size", NULL, 0, U64(vocab_size), "auto", auto_words, 1, 0x1p31,
    N, 0, DATA, "N", "instead of the config's vocab_size" },
  { "untie", NULL, 0, BOOL(untie), NULL, NULL, 0, 0,
    ALL & ~(D | B), 0, DATA, NULL, "own weights for the head, not the embedding's" },

  { "output-dir", NULL, 'o', STRING(output_dir), NULL, NULL, 0, 0,
    T | N | X, T | N | X, OUTPUT, "DIR", "directory of the run or of the new model" },
  { "output-format", NULL, 'o', ENUM(output_format), "text", format_words, 0, 0,
    E | G | I | V | P | D | B, 0, OUTPUT, NULL, "how results are printed; yaml: of plan; jsonl: bench, eval; md, csv: bench" },
  { "profile", "machine", 0, STRING(profile), NULL, NULL, 0, 0,
    T | P | B, 0, OUTPUT, "FILE", "machine profile; default: ~/.config/penstock/machine.json" },
  { "tbw", NULL, 0, SIZE(tbw), "none", none_words, 1, 0,
    P | B, 0, OUTPUT, NULL, "bytes one drive is rated to take, to see its wear" },
  { "sweep", NULL, 0, STRING(sweep), NULL, NULL, 0, 0,
    P, 0, OUTPUT, "NAME=V,V", "a line for each value of an option, such as ram=32GiB,64GiB" },
  { "plot", NULL, 0, STRING(plot), NULL, NULL, 0, 0,
    P, 0, OUTPUT, "FILE", "the sweep as a figure: SVG, or a page if FILE ends in .html" },
  { "logging-steps", "steps-per-print,log-interval", 0, U64(logging_steps), "1", NULL, 1, 0x1p53,
    T | P, 0, OUTPUT, NULL, "a line in log.jsonl every N steps" },
  { "eval-steps", "eval-interval", 0, U64(eval_steps), "none", none_words, 1, 0x1p53,
    T | P, 0, OUTPUT, NULL, "loss on --eval-data every N steps" },
  { "samples-every", "sample-every,sample-steps", 0, U64(samples_every), "none", none_words, 1, 0x1p53,
    T | P, 0, OUTPUT, NULL, "what the model says to --sample-prompt, every N steps" },
  { "sample-prompt", NULL, 0, STRING(sample_prompt), NULL, NULL, 0, 0,
    T | P, 0, OUTPUT, "TEXT", "what it is to go on from; default: the begin token" },
  { "save-steps", "save-interval", 0, U64(save_steps), "none", none_words, 1, 0x1p53,
    T | P, 0, OUTPUT, NULL, "a checkpoint every N steps" },
  { "save-total-limit", NULL, 0, U64(save_total_limit), "2", NULL, 1, 1000,
    T | P, 0, OUTPUT, NULL, "checkpoints kept; the oldest goes first" },
  { "trace", NULL, 0, STRING(trace), NULL, NULL, 0, 0,
    T | P, 0, OUTPUT, "FILE", "timeline of the lanes, for ui.perfetto.dev" },
  { "dump-logits", NULL, 0, STRING(dump_logits), NULL, NULL, 0, 0,
    E, 0, OUTPUT, "FILE", "logits of every token as safetensors" },

  { "learning-rate", "lr", 0, DOUBLE(learning_rate), "5e-5", NULL, 0, 1e6,
    T | P, 0, TRAINING, NULL, "peak learning rate" },
  { "lr-scheduler-type", "lr-scheduler,lr-decay-style", 0, ENUM(lr_scheduler_type), "linear", schedule_words, 0, 0,
    T | P, 0, TRAINING, NULL, "course of the learning rate" },
  { "warmup-steps", "warmup-ratio,lr-warmup-iters,warmup-num-steps", 0, DOUBLE(warmup_steps), "0", NULL, 0, 0x1p53,
    T | P, 0, TRAINING, NULL, "linear rise from 0; below 1: a share of all steps" },
  { "min-lr", "lr-end", 0, DOUBLE(min_lr), "0", NULL, 0, 1e6,
    T | P, 0, TRAINING, NULL, "where cosine, linear and wsd end" },
  { "lr-decay-steps", NULL, 0, DOUBLE(lr_decay_steps), "0.1", NULL, 0, 0x1p53,
    T | P, 0, TRAINING, NULL, "wsd: length of the decay; below 1: a share of all steps" },
  { "num-train-epochs", "epochs,num-epochs", 0, DOUBLE(num_train_epochs), "3", NULL, 0, 1e9,
    T | P, 0, TRAINING, NULL, "passes over the data, unless --max-steps is given" },
  { "max-steps", "steps,train-iters,total-num-steps", 0, U64(max_steps), "auto", max_steps_words, 1, 0x1p53,
    T | P, 0, TRAINING, NULL, "optimizer steps; auto: by epochs" },
  { "per-device-train-batch-size", "batch-size,micro-batch-size,train-micro-batch-size-per-gpu", 'b', U64(per_device_train_batch_size), "8", NULL, 1, 0x1p31,
    T | E | P, 0, TRAINING, NULL, "sequences in a micro-batch" },
  { "gradient-accumulation-steps", "grad-accum", 0, U64(gradient_accumulation_steps), "1", NULL, 1, 0x1p31,
    T | P, 0, TRAINING, NULL, "micro-batches in an optimizer step" },
  { "max-grad-norm", "grad-clip,clip-grad,gradient-clipping", 0, DOUBLE(max_grad_norm), "1", NULL, 0, 1e30,
    T | P, 0, TRAINING, NULL, "clip the global gradient norm; 0: never" },
  { "weight-decay", NULL, 0, DOUBLE(weight_decay), "0", NULL, 0, 1e6,
    T | P, 0, TRAINING, NULL, "decoupled decay (AdamW)" },
  { "adam-beta1", "beta1", 0, DOUBLE(adam_beta1), "0.9", NULL, 0, 1,
    T | P, 0, TRAINING, NULL, "decay of the first moment" },
  { "adam-beta2", "beta2", 0, DOUBLE(adam_beta2), "0.999", NULL, 0, 1,
    T | P, 0, TRAINING, NULL, "decay of the second moment" },
  { "adam-epsilon", "adam-eps", 0, DOUBLE(adam_epsilon), "1e-8", NULL, 0, 1,
    T | P, 0, TRAINING, NULL, "added to the root of the second moment" },
  { "max-skips", NULL, 0, U64(max_skips), "20", NULL, 1, 0x1p53,
    T | P, 0, TRAINING, NULL, "stop after so many steps in a row with non-finite gradients" },
  { "seed", NULL, 0, U64(seed), "42", NULL, 0, 0,
    T | G | N | P, 0, TRAINING, NULL, "seed of order, initial weights and samples" },

  { "with-optimizer", NULL, 0, BOOL(with_optimizer), NULL, NULL, 0, 0,
    X, 0, EXPORT, NULL, "also exp_avg, exp_avg_sq and master_weights, as safetensors" },
  { "gguf", NULL, 0, STRING(gguf), NULL, gguf_words, 0, 0,
    X, 0, EXPORT, "TYPE", "also DIR/model-TYPE.gguf for llama.cpp" },

  { "prompt", NULL, 0, STRING(prompt), NULL, NULL, 0, 0,
    G, 0, SAMPLING, NULL, "text to go on from; else what is piped in" },
  { "chat", NULL, 0, BOOL(chat), NULL, NULL, 0, 0,
    G, 0, SAMPLING, NULL, "converse by the chat template; without --prompt a turn per line of input" },
  { "system", NULL, 0, STRING(system), NULL, NULL, 0, 0,
    G, 0, SAMPLING, "TEXT", "what --chat begins with" },
  { "max-new-tokens", NULL, 0, U64(max_new_tokens), "100", NULL, 1, 0x1p31,
    T | G | P, 0, SAMPLING, NULL, "tokens to add" },
  { "stop", NULL, 0, STRING(stop), NULL, NULL, 0, 0,
    G, 0, SAMPLING, "TEXT", "end before this text, besides the model's end tokens" },
  { "greedy", NULL, 0, BOOL(greedy), NULL, NULL, 0, 0,
    G, 0, SAMPLING, NULL, "always the most likely token" },
  { "temperature", NULL, 0, DOUBLE(temperature), "1", NULL, 0, 1e6,
    G, 0, SAMPLING, NULL, "divides the logits; 0: as --greedy" },
  { "top-k", NULL, 0, U64(top_k), "none", none_words, 1, 0x1p31,
    G, 0, SAMPLING, "N", "draw from the N most likely tokens" },
  { "top-p", NULL, 0, DOUBLE(top_p), "1", NULL, 0, 1,
    G, 0, SAMPLING, NULL, "draw from the fewest tokens that have this probability" },

  { "dtype", "torch-dtype", 0, ENUM(dtype), "auto", dtype_words, 0, 0,
    COMPUTES | N | X, 0, NUMERICS, NULL, "of weights and activations; auto: as the model's files" },
  { "state-format", "optim-state", 0, ENUM(state_format), "auto", state_format_words, 0, 0,
    T | P, 0, NUMERICS, NULL, "of master weights and moments; auto: the run's, or fp32" },
  { "convert-state", NULL, 0, BOOL(convert_state), NULL, NULL, 0, 0,
    T, 0, NUMERICS, NULL, "with --resume: let --state-format change the run's, and with it its numbers" },
  { "backend", NULL, 0, STRING(backend), "auto", backend_words, 0, 0,
    T | E | G, 0, NUMERICS, NULL, "what computes; auto: a GPU if there is one" },
  { "gemm", NULL, 0, STRING(gemm), "auto", gemm_words, 0, 0,
    COMPUTES, 0, NUMERICS, NULL, "library for matrix products" },
  { "tf32", NULL, 0, BOOL(tf32), NULL, NULL, 0, 0,
    T | E | G, 0, NUMERICS, NULL, "on a GPU with --dtype fp32: products round what they multiply to TF32" },

  { "device-memory", NULL, 0, SIZE(device_memory), "auto", auto_words, 1, 0,
    COMPUTES, 0, PLACEMENT, NULL, "most bytes used on the device" },
  { "device", NULL, 0, U64(device), "0", NULL, 0, 1023,
    T | E | G | B, 0, PLACEMENT, "N", "which GPU" },
  { "host-memory", NULL, 0, SIZE(host_memory), "auto", auto_words, 1, 0,
    COMPUTES | D, 0, PLACEMENT, NULL, "most bytes of RAM used" },
  { "nvme-path", "offload-dir,offload-folder", 0, LIST(nvme_path), NULL, NULL, 0, 0,
    COMPUTES | D | B, 0, PLACEMENT, "DIR[,DIR]", "directories for state, one per drive" },
  { "nvme-memory", NULL, 0, SIZE(nvme_memory), "auto", auto_words, 1, 0,
    T | P, 0, PLACEMENT, NULL, "most bytes used under --nvme-path" },
  { "offload-optimizer", "offload-optimizer-device", 0, ENUM(offload_optimizer), "auto", place_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "master weights and moments" },
  { "optimizer-host-memory", NULL, 0, SIZE(optimizer_host_memory), "auto", auto_words, 1, 0,
    T | P, 0, PLACEMENT, NULL, "most bytes of them in RAM; drives have the rest" },
  { "offload-gradients", NULL, 0, ENUM(offload_gradients), "auto", gradient_place_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "gradients that wait for their update" },
  { "offload-params", "offload-param-device", 0, ENUM(offload_params), "auto", place_words, 0, 0,
    COMPUTES, 0, PLACEMENT, NULL, "weights" },
  { "offload-activations", NULL, 0, ENUM(offload_activations), "auto", place_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "activation checkpoints" },
  { "host-mode", NULL, 0, ENUM(host_mode), "unified", host_mode_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "CPU as device: uploads are pointers, or real copies" },
  { "group-size", NULL, 0, U64(group_size), "auto", auto_words, 1, 0x1p31,
    T | P, 0, PLACEMENT, NULL, "micro-batches that pass a block before the next" },
  { "tile-size", NULL, 0, SIZE(tile_size), "auto", auto_words, 1, 0,
    T | P, 0, PLACEMENT, NULL, "optimizer state streamed as one piece" },
  { "weight-slots", NULL, 0, U64(weight_slots), "auto", auto_words, 1, 1e6,
    COMPUTES, 0, PLACEMENT, NULL, "blocks whose weights are on the device at once" },
  { "gradient-slots", NULL, 0, U64(gradient_slots), "auto", auto_words, 1, 1e6,
    T | P, 0, PLACEMENT, NULL, "blocks whose gradients are on the device at once" },
  { "tile-slots", NULL, 0, U64(tile_slots), "auto", auto_words, 1, 1e6,
    T | P, 0, PLACEMENT, NULL, "tiles in flight" },
  { "recompute", "gradient-checkpointing", 0, U64(recompute), "auto", recompute_words, 1, 1e6,
    T | P, 0, PLACEMENT, "N", "blocks whose forward is repeated in backward" },
  { "recompute-logits", NULL, 0, U64(recompute_logits), "auto", recompute_words, 1, 1e6,
    T | P, 0, PLACEMENT, "N", "blocks of the head whose logits are computed again in backward" },
  { "speculative-updates", NULL, 0, U64(speculative_updates), "none", recompute_words, 1, 1e6,
    T | P, 0, PLACEMENT, "N", "blocks updated during backward, out of place, before the norm is known" },
  { "update-after-backward", NULL, 0, BOOL(update_after_backward), NULL, NULL, 0, 0,
    T | P, 0, PLACEMENT, NULL, "apply each update before the next step begins: slower, to compare with" },
  { "threads", "num-threads", 0, U64(threads), "auto", auto_words, 1, 9999,
    COMPUTES, 0, PLACEMENT, NULL, "compute threads" },
  { "update-threads", NULL, 0, U64(update_threads), "auto", auto_words, 1, 9999,
    T | P, 0, PLACEMENT, NULL, "threads of the optimizer" },
  { "numa", NULL, 0, ENUM(numa), "auto", numa_words, 0, 0,
    COMPUTES, 0, PLACEMENT, NULL, "threads bound to NUMA nodes and memory on them, where there are several" },
  { "isa", NULL, 0, STRING(isa), "auto", isa_words, 0, 0,
    COMPUTES | B, 0, PLACEMENT, NULL, "highest instruction set of our own kernels" },
  { "require-simd", NULL, 0, BOOL(require_simd), NULL, NULL, 0, 0,
    COMPUTES, 0, PLACEMENT, NULL, "stop rather than run the scalar kernels" },
  { "io-engine", NULL, 0, STRING(io_engine), "auto", NULL, 0, 0,
    COMPUTES | B, 0, PLACEMENT, "NAME", "auto, uring, threads, ram, null or fault:..." },
  { "io-depth", NULL, 0, U64(io_depth), "auto", auto_words, 1, 4096,
    COMPUTES, 0, PLACEMENT, NULL, "requests in flight per lane" },
  { "durability", NULL, 0, ENUM(durability), "step", durability_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "survive a power cut, or update in place" },
  { "commit-interval", NULL, 0, U64(commit_interval), "1", NULL, 1, 1e6,
    T | P, 0, PLACEMENT, NULL, "steps between commits" },
  { "state-after-run", NULL, 0, ENUM(state_after_run), "keep", state_words, 0, 0,
    T | P, 0, PLACEMENT, NULL, "state files of a finished run" },
  { "max-write", NULL, 0, SIZE(max_write), "none", none_words, 1, 0,
    T | P | B, 0, PLACEMENT, NULL, "stop cleanly before a run, or a soak, has put more on drives" },

  { "gpu", NULL, 0, STRING(gpu), NULL, NULL, 0, 0,
    P, 0, DESCRIBED, "NAME", "of the catalogue: rtx4090, h200 ...; none: the cores compute" },
  { "gpu-flops", NULL, 0, DOUBLE(gpu_flops), "auto", auto_words, 1, 0,
    P, 0, DESCRIBED, NULL, "bf16 products a GPU really does, instead of its data sheet's" },
  { "pcie", NULL, 0, STRING(pcie), NULL, NULL, 0, 0,
    P, 0, DESCRIBED, "4x16", "generation and lanes of the GPU's link" },
  { "ram", NULL, 0, SIZE(ram), "auto", auto_words, 1, 0,
    P, 0, DESCRIBED, NULL, "RAM built in; 1/16 of it is left to the system" },
  { "cores", NULL, 0, U64(cores), "auto", auto_words, 1, 65536,
    P, 0, DESCRIBED, NULL, "cores, each as fast as the profile's" },
  { "memory-bandwidth", NULL, 0, RATE(memory_bandwidth), "auto", auto_words, 1, 0,
    P, 0, DESCRIBED, NULL, "of RAM, reads and writes together" },
  { "drives", NULL, 0, U64(drives), "auto", auto_words, 1, 16,
    P, 0, DESCRIBED, NULL, "drives, all alike, instead of --nvme-path" },
  { "drive-read", NULL, 0, RATE(drive_read), "auto", auto_words, 1, 0,
    P, 0, DESCRIBED, NULL, "that one drive sustains" },
  { "drive-write", NULL, 0, RATE(drive_write), "auto", auto_words, 1, 0,
    P, 0, DESCRIBED, NULL, "that one drive sustains" },
};

#define N_OPTIONS (sizeof table / sizeof table[0])

int pen_options_init(struct pen_options *options, struct pen_config *config,
                     uint32_t verb, const char *verb_name)
{
  int r = pen_option_init(options, table, N_OPTIONS, config, sizeof *config);
  if (r)
    return r;
  options->verb = verb;
  options->verb_name = verb_name;
  config->options = options;
  return 0;
}

int pen_options_parse(struct pen_options *options, struct pen_config *config,
                      int argc, char *const *argv, const char *positional)
{
  int r = pen_option_parse(options, argc, argv, positional);
  if (r || config->help)
    return r;
  if (config->config_file && !pen_files_exists(config->config_file))
    return pen_error_set(-PEN_EUSAGE, "unexpected argument, or a config file that "
                         "is not there: \"%.128s\"", config->config_file);
  if (config->config_file)
    r = pen_config_file_load(config->config_file, options);
  if (r || config->dump_config)
    return r;
  r = pen_option_check_required(options);
  return r ? r : pen_options_check(config, options->verb);
}

void pen_options_dump(const struct pen_config *config, uint32_t verb, FILE *f)
{
  const struct pen_options view = {
    .table = table, .n_options = N_OPTIONS,
    .values = (void *)config, /* only read */
    .verb = verb,
  };
  pen_option_dump(&view, f);
}
