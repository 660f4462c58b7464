/* lm.c - a small language model of bytes: train it, stop, go on, sample, evaluate, look inside

      cc -O3 -fopenmp lm.c -o lm -lm
      ./lm train --data FILE --out model.safetensors
      ./lm train --task sums --out sums.safetensors
      ./lm sample model.safetensors
      ./lm --help

   Each command is a function near the end of the file. Apart from the clock, which decides how many steps `lm run`
   takes unless --steps says so, everything is a pure function of the text and the seed.
*/
#if defined(__unix__) || defined(__APPLE__)
#define LM_POSIX 1
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <unistd.h>
#endif
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(_OPENMP) && !defined(MOD_NO_OPENMP)
#include <omp.h>
#endif

#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "common/durable.h"
#include "common/map.h"
#include "common/options.h"
#include "common/spearman.h"
#include "common/sums.h"
#include "common/text.h"

#define VERSION "0.4.0"
enum { PART_ALL = TEXT_N_PARTS }; /* beside text.h's parts: the text is then not cut */
enum { VOCAB = 256, MAX_LAYERS = 1024, CALIBRATION_SEQS = 64 };
enum { NOTED_MOST = 1 << 21 }; /* tokens whose routes an evaluation notes: at least those of one window */
enum { TASK_SUMS = 1 };        /* 0: none, the text is files */
enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 }; /* 130 is what shells say of Ctrl-C */

/* ---- options ----------------------------------------------------------------------------------------------------- */

static const char *const gate_names[] = {"", "raw", "sigmoid", "tanh", "one", NULL};         /* by mod_gate_kind */
static const char *const causal_names[] = {"", "predictor", "router", "both", "none", NULL}; /* by mod_causal */
static const char *const select_names[] = {"", "all", "learned", "random", "token", "every", "first", "none", NULL};
static const char *const mlp_names[] = {"", "plain", "moe", "mode", NULL};                   /* by mod_mlp_kind */
static const char *const choice_names[] = {"", "token", "expert", NULL};                     /* by mod_choice */
static const char *const task_names[] = {"", "sums", NULL};                                  /* by task */
static const char *const part_names[] = {"train", "validation", "test", "all", NULL};        /* by part */

/* What was asked for; 0 or NULL where nothing was. */
static struct {
   option_list data;
   const char *out, *resume, *prompt, *text, *svg, *csv, *flops_of, *word[1];
   int layers, width, heads, context, d_ff, every, gate, causal, dense, seqs, steps, threads, keep, calibrate, stream;
   int select, gated_bypass, mlp, experts, choice, choices, warm_capacity;
   int task, tokens, top_k, part, windows, columns, topk, tensors, n_words;
   double capacity, kv_capacity, factor, dropout, moving, lr, seconds, save_every, temperature, top_p;
   uint64_t seed, at;
} o;

static void set_defaults(void)
{
   o.layers = 6; o.width = 48; o.heads = 3; o.context = 128; o.every = 2; o.capacity = 0.125; o.gate = MOD_GATE_RAW;
   o.causal = MOD_CAUSAL_PREDICTOR;
   o.seqs = 4; o.lr = 4e-3; o.seconds = 75; o.save_every = 60; o.seed = 1;
   o.tokens = 400; o.temperature = 0.8; o.top_p = 1; o.prompt = "\n";
   o.part = TEXT_TEST; o.windows = 64; o.columns = 76; o.at = TEXT_NONE;
}

/* For --task sums, which a model of this size learns in less than a minute; eight lines in a context. */
static void set_task_defaults(void)
{
   o.layers = 4; o.context = 8 * SUMS_LINE; o.seqs = 8; o.prompt = "\n";
}

#define OPTION_TASK \
   {"--task", "T", OPTION_CHOICE, &o.task, 0, 0, task_names, \
    "instead of a text: sums, generated lines such as 9+2+6=17, which show\n" \
    "what routing picks; the defaults are then --layers 4 --context 72\n" \
    "--seqs 8"}
#define TRAINED_ON "                    (default: what the model was trained on)"
#define OPTIONS_SAVE \
   {"--save-every", "S", OPTION_REAL, &o.save_every, 0, 1e7, NULL, \
    "seconds between checkpoints                                      (default 60)"}, \
   {"--keep", "N", OPTION_INT, &o.keep, 0, 99, NULL, \
    "older checkpoints to keep, as MODEL.1, MODEL.2, ...               (default 0)"}, \
   {"--calibrate", NULL, OPTION_FLAG, &o.calibrate, 0, 0, NULL, \
    "at the end, set the thresholds so that on the validation text routed blocks\n" \
    "take no more than their capacity"}
#define OPTION_STREAM \
   {"--stream", NULL, OPTION_FLAG, &o.stream, 0, 0, NULL, \
    "read the text window by window: for one that is larger than memory"}
#define OPTION_THREADS \
   {"--threads", "N", OPTION_INT, &o.threads, 1, 256, NULL, \
    "never changes a result                       (default: what is fastest, at most 4)"}
#define OPTIONS_MODEL \
   {"--layers", "N", OPTION_INT, &o.layers, 1, MAX_LAYERS, NULL, \
    "blocks                                                            (default 6)"}, \
   {"--width", "N", OPTION_INT, &o.width, 2, 65536, NULL, \
    "numbers in a token's row, a multiple of 2 heads                  (default 48)"}, \
   {"--heads", "N", OPTION_INT, &o.heads, 1, 1024, NULL, \
    "of attention                                                      (default 3)"}, \
   {"--context", "N", OPTION_INT, &o.context, 2, 1 << 20, NULL, \
    "bytes that it sees at most                                      (default 128)"}, \
   {"--d-ff", "N", OPTION_INT, &o.d_ff, 1, 1 << 18, NULL, \
    "inner width of an MLP                                      (default 4 widths)"}, \
   OPTIONS_ROUTING, \
   {"--dropout", "P", OPTION_REAL, &o.dropout, 0, 0.99, NULL, \
    "in training                                                       (default 0)"}, \
   {"--capacity-warmup", "S", OPTION_INT, &o.warm_capacity, 1, 1e8, NULL, \
    "steps over which the capacity falls from 1                      (default off)"}, \
   {"--threshold-decay", "D", OPTION_ABOVE, &o.moving, 0, 0.9999, NULL, \
    "they follow the top-k's cut-off, with this memory, say 0.99     (default off)"}, \
   {"--seqs", "N", OPTION_INT, &o.seqs, 1, 4096, NULL, \
    "windows of text in a step                                         (default 4)"}, \
   {"--lr", "X", OPTION_ABOVE, &o.lr, 0, 10, NULL, \
    "highest learning rate                                         (default 0.004)"}, \
   {"--seed", "N", OPTION_COUNT, &o.seed, 0, 0, NULL, \
    "of weights, windows and sampling                                  (default 1)"}
#define OPTIONS_ROUTING \
   {"--capacity", "C", OPTION_ABOVE, &o.capacity, 0, 1, NULL, \
    "share of the tokens that a routed block takes, at most 1      (default 0.125)"}, \
   {"--every", "N", OPTION_INT, &o.every, 1, MAX_LAYERS, NULL, \
    "every Nth block is routed                                         (default 2)"}, \
   {"--gate", "G", OPTION_CHOICE, &o.gate, 0, 0, gate_names, \
    "raw, sigmoid, tanh or one: how the router's score scales        (default raw)"}, \
   {"--causal", "C", OPTION_CHOICE, &o.causal, 0, 0, causal_names, \
    "predictor, router, both or none: what learns to decide\n" \
    "without looking ahead                                     (default predictor)"}, \
   {"--dense", NULL, OPTION_FLAG, &o.dense, 0, 0, NULL, \
    "route nothing: every token goes through every block"}, \
   {"--select", "S", OPTION_CHOICE, &o.select, 0, 0, select_names, \
    "which tokens a routed block takes: learned, its router's best; token, those\n" \
    "that choose it; or the controls random, every (nth), first; all, none\n" \
    "                                                            (default learned)"}, \
   {"--gated-bypass", NULL, OPTION_FLAG, &o.gated_bypass, 0, 0, NULL, \
    "with --gate tanh: the router scales those too that a block passes by"}, \
   {"--kv", "C", OPTION_ABOVE, &o.kv_capacity, 0, 1, NULL, \
    "a second router chooses this share as keys and values of routed blocks;\n" \
    "with --select all: what a block remembers     (default: the tokens it takes)"}, \
   {"--mlp", "M", OPTION_CHOICE, &o.mlp, 0, 0, mlp_names, \
    "plain, moe (experts) or mode (with ways past them too)        (default plain)"}, \
   {"--experts", "N", OPTION_INT, &o.experts, 1, 64, NULL, \
    "experts of an MLP                                                 (default 4)"}, \
   {"--choice", "C", OPTION_CHOICE, &o.choice, 0, 0, choice_names, \
    "token or expert: who chooses        (default token; in routed blocks expert)"}, \
   {"--choices", "N", OPTION_INT, &o.choices, 1, 2, NULL, \
    "experts of a token, if it chooses                                 (default 1)"}, \
   {"--factor", "F", OPTION_ABOVE, &o.factor, 0, 64, NULL, \
    "capacity factor of moe: its slots for each choice                 (default 1)"}
#define OPTIONS_SAMPLE \
   {"--prompt", "TEXT", OPTION_TEXT, &o.prompt, 0, 0, NULL, \
    "what to go on from; - reads it from standard input\n" \
    "                                            (default a new line; of lm run \"/* \")"}, \
   {"--tokens", "N", OPTION_INT, &o.tokens, 0, 1000000000, NULL, \
    "how many bytes                                                  (default 400)"}, \
   {"--temperature", "X", OPTION_REAL, &o.temperature, 0, 100, NULL, \
    "0: always the likeliest byte                                    (default 0.8)"}, \
   {"--top-p", "P", OPTION_ABOVE, &o.top_p, 0, 1, NULL, \
    "only the likeliest bytes that make up P                           (default 1)"}, \
   {"--top-k", "N", OPTION_INT, &o.top_k, 1, VOCAB, NULL, \
    "only the N likeliest bytes                                      (default all)"}

static const option run_options[] = {
   {"--data", "FILE", OPTION_LIST, &o.data, 0, 0, NULL,
    "a text; may be given again             (default: mod.h and docs/*.md in here)"},
   OPTION_TASK,
   {"--seconds", "S", OPTION_REAL, &o.seconds, 1, 1e7, NULL,
    "time for everything; decides the number of steps                 (default 75)"},
   {"--steps", "N", OPTION_INT, &o.steps, 1, 1e8, NULL, "that many steps instead, however long they take"},
   {"--out", "MODEL", OPTION_TEXT, &o.out, 0, 0, NULL, "keep what was learned in this file"},
   OPTIONS_MODEL, OPTIONS_SAMPLE, OPTION_THREADS};
static const option train_options[] = {
   {"--data", "FILE", OPTION_LIST, &o.data, 0, 0, NULL,
    "a text; may be given again. Of each, 90% is trained on, then come 5% for\nvalidation and 5% for tests"},
   OPTION_TASK, OPTION_STREAM,
   {"--out", "MODEL", OPTION_TEXT, &o.out, 0, 0, NULL,
    "the file to write                                 (default model.safetensors)"},
   {"--resume", "MODEL", OPTION_TEXT, &o.resume, 0, 0, NULL,
    "go on from this file instead, with the settings in it: see --resume --help"},
   {"--steps", "N", OPTION_INT, &o.steps, 1, 1e8, NULL,
    "length of the training                   (default 1000; of --task sums, 2500)"},
   OPTIONS_SAVE, OPTIONS_MODEL, OPTION_THREADS};
static const option resume_options[] = {
   {"--resume", "MODEL", OPTION_TEXT, &o.resume, 0, 0, NULL,
    "go on from this file, to the bit, with the settings in it; writes it again\nunless there is an --out"},
   {"--data", "FILE", OPTION_LIST, &o.data, 0, 0, NULL, "the same text, if it is elsewhere now"},
   {"--out", "MODEL", OPTION_TEXT, &o.out, 0, 0, NULL, "another file to write"},
   OPTION_STREAM, OPTIONS_SAVE, OPTION_THREADS};
static const option sample_options[] = {
   OPTIONS_SAMPLE,
   {"--seed", "N", OPTION_COUNT, &o.seed, 0, 0, NULL,
    "another seed, another text                                        (default 1)"},
   OPTION_THREADS};
static const option eval_options[] = {
   {"--data", "FILE", OPTION_LIST, &o.data, 0, 0, NULL, "the text" TRAINED_ON},
   OPTION_STREAM,
   {"--part", "P", OPTION_CHOICE, &o.part, 0, 0, part_names,
    "train, validation, test or all of it                           (default test)"},
   {"--windows", "N", OPTION_INT, &o.windows, 1, 1e8, NULL,
    "how many windows of the context's length, spread evenly          (default 64)"},
   OPTION_THREADS};
static const option routes_options[] = {
   {"--text", "TEXT", OPTION_TEXT, &o.text, 0, 0, NULL, "the text to look at"},
   {"--data", "FILE", OPTION_LIST, &o.data, 0, 0, NULL, "or a file with it  " TRAINED_ON},
   {"--at", "N", OPTION_COUNT, &o.at, 0, 0, NULL,
    "from which byte of the file on                     (default: its test part's)"},
   {"--tokens", "N", OPTION_INT, &o.tokens, 1, 1 << 20, NULL,
    "how many bytes, at most the context                    (default: the context)"},
   {"--columns", "N", OPTION_INT, &o.columns, 8, 4096, NULL,
    "bytes beside each other                                          (default 76)"},
   {"--topk", NULL, OPTION_FLAG, &o.topk, 0, 0, NULL,
    "as in training: each block takes its k best, looking ahead"},
   {"--svg", "FILE", OPTION_TEXT, &o.svg, 0, 0, NULL, "draw it into this file instead"},
   {"--csv", "FILE", OPTION_TEXT, &o.csv, 0, 0, NULL, "the router's scores as numbers; - is standard output"}};
static const option match_options[] = {
   {"--flops-of", "M", OPTION_TEXT, &o.flops_of, 0, 0, NULL,
    "a model's file; or BLOCKSxWIDTH, such as 6x48: a dense model with otherwise\nthe defaults of lm train"},
   OPTIONS_ROUTING};
static const option info_options[] = {
   {"--tensors", NULL, OPTION_FLAG, &o.tensors, 0, 0, NULL, "list them: name, type, shape"}};

/* ---- small things ------------------------------------------------------------------------------------------------ */

static double seconds_now(void)
{
#ifdef LM_POSIX
   struct timespec t;
   clock_gettime(CLOCK_MONOTONIC, &t);
   return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
   return (double)time(NULL);
#endif
}

static int on_terminal(void)
{
#ifdef LM_POSIX
   return isatty(fileno(stdout));
#else
   return 0;
#endif
}

/* 1234567 as "1,234,567", in the caller's buffer */
typedef char number[32];
static const char *grouped(number out, double x)
{
   char digits[32];
   int n = snprintf(digits, sizeof digits, "%.0f", x), at = 0;
   for (int i = 0; i < n && at < 30; ++i) {
      if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') out[at++] = ',';
      out[at++] = digits[i];
   }
   out[at] = 0;
   return out;
}

static const char *minutes(number out, double s)
{
   int whole = s > 0 && s < 1e9 ? (int)(s + 0.5) : 0;
   snprintf(out, sizeof(number), "%d:%02d", whole / 60, whole % 60);
   return out;
}

#ifdef LM_POSIX
static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }
#endif

static double bits(double nats) { return nats / log(2.0); }

/* An error of the library, with its place. Returns 0, as all that can fail here do then. */
static int failed(const char *during, const mod_error *err)
{
   fprintf(stderr, "lm: %s: %s", during, err->message);
   if (err->block >= 0) fprintf(stderr, " (block %d)", err->block + 1);
   if (err->where >= 0) fprintf(stderr, " (at %lld)", (long long)err->where);
   fputc('\n', stderr);
   return 0;
}

static int failed_file(const char *path, const char *message)
{
   fprintf(stderr, "lm: %s: %s\n", path, message);
   return 0;
}

/* OpenMP's threads spin while they wait, and when another program wants their processor that costs far more than it
   wins: measured, a step took 3 to 6 times as long. They wait passively if the environment says so before the program
   starts. So it starts again, once. */
static void wait_passively(char **argv)
{
#if defined(LM_POSIX) && defined(_OPENMP) && !defined(MOD_NO_OPENMP)
   if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
   execvp(argv[0], argv); /* comes back only if it fails, and then nothing is lost */
#else
   (void)argv;
#endif
}

/* Ctrl-C once: finish the step, save, stop. Twice: stop at once; files are whole at every moment. */
static volatile sig_atomic_t interrupted;
static void on_signal(int which)
{
   interrupted = 1;
   signal(which, SIG_DFL);
}
static void stop_on_signal(void)
{
   signal(SIGINT, on_signal);
   signal(SIGTERM, on_signal);
}

/* ---- the model, its text and its file ---------------------------------------------------------------------------- */

typedef struct lm {
   text_corpus text;
   uint64_t text_hash;
   mod_config cfg;
   mod_train_desc how;
   mod_model *model;
   mod_trainer *trainer;
   mod_tape *tape; /* forward only: to evaluate */
   mod_file *file;
   mod_batch batch;
   int *tokens, *targets; /* [batch] */
   double began;
} lm;

/* Buffers for n_seqs windows of the context's length. */
static int make_batch(lm *m, int n_seqs)
{
   size_t n = (size_t)n_seqs * (size_t)m->cfg.context;
   free(m->tokens);
   free(m->targets);
   m->tokens = (int *)malloc(n * sizeof(int));
   m->targets = (int *)malloc(n * sizeof(int));
   m->batch.n_seqs = n_seqs;
   m->batch.length = m->cfg.context;
   m->batch.tokens = m->tokens;
   m->batch.targets = m->targets;
   m->batch.mode = MOD_MODE_TOPK;
   return m->tokens && m->targets ? 1 : failed_file("memory", strerror(ENOMEM));
}

/* A forward-only tape for the batch in both modes: exactly as large as the larger one needs. */
static int make_tape(lm *m)
{
   mod_tape_desc desc = {0};
   mod_error err;
   size_t most = 0;
   desc.forward_only = 1;
   desc.n_threads = m->how.n_threads;
   for (int mode = MOD_MODE_TOPK; mode <= MOD_MODE_CAUSAL; ++mode) {
      size_t bytes;
      m->batch.mode = mode;
      if (mod_forward_plan(&m->cfg, &m->batch, &desc, &bytes, &err) != MOD_RESULT_OK) return failed("memory", &err);
      if (bytes > most) most = bytes;
   }
   mod_tape_destroy(m->tape);
   m->tape = mod_tape_create(&desc, most, NULL, &err);
   return m->tape ? 1 : failed("memory", &err);
}

/* What the options say of a model. */
static int make_config(lm *m)
{
   if ((o.experts || o.choice || o.choices || o.factor > 0) && o.mlp != MOD_MLP_MOE && o.mlp != MOD_MLP_MODE)
      return failed_file("--experts, --choice, --choices and --factor", "need --mlp moe or mode");
   if (o.dense && o.select) return failed_file("--dense and --select", "cannot be both: --dense is --select all");
   m->cfg.vocab_size = VOCAB; m->cfg.context = o.context; m->cfg.n_layers = o.layers;
   m->cfg.d_model = o.width; m->cfg.n_heads = o.heads; m->cfg.d_ff = o.d_ff;
   m->cfg.capacity = o.capacity; m->cfg.gate = o.gate; m->cfg.causal = o.causal;
   m->cfg.route_first = m->cfg.route_every = o.every;
   m->cfg.select = o.dense ? MOD_SELECT_ALL : o.select;
   if (o.gated_bypass) m->cfg.bypass = MOD_BYPASS_GATED;
   if (o.kv_capacity > 0) m->cfg.kv_select = MOD_SELECT_LEARNED;
   m->cfg.kv_capacity = o.kv_capacity;
   m->cfg.mlp = o.mlp; m->cfg.n_experts = o.experts; m->cfg.capacity_factor = o.factor;
   m->cfg.choice = o.choice; m->cfg.choices = o.choices;
   return 1;
}

/* What they say of a model and its training, but for the number of steps. */
static int make_model(lm *m)
{
   mod_error err;
   if (!make_config(m)) return 0;
   m->how.dropout = o.dropout; m->how.capacity_warmup = o.warm_capacity; m->how.threshold_decay = o.moving;
   m->how.n_seqs = o.seqs;
   m->how.lr = o.lr; m->how.weight_decay = 0.1; m->how.clip_norm = 1;
   m->how.seed = o.seed;
   m->model = mod_model_create(&m->cfg, NULL, &err);
   if (!m->model || mod_model_randomize(m->model, o.seed, &err) != MOD_RESULT_OK) return failed("model", &err);
   m->cfg = mod_model_config(m->model);
   return 1;
}

static void set_steps(lm *m, int steps)
{
   m->how.steps = steps;
   m->how.warmup = steps < 10 ? 1 : steps < 1000 ? steps / 10 : 100;
}

static int open_file(lm *m, const char *path)
{
   mod_error err;
   mod_file_close(m->file);
   errno = 0;
   m->file = mod_file_open(path, NULL, &err);
   if (m->file) return 1;
   return err.code == MOD_RESULT_IO && errno ? failed_file(path, strerror(errno)) : failed(path, &err);
}

/* The model in a file. The file stays open: its metadata is asked later. */
static int open_model(lm *m, const char *path)
{
   mod_error err;
   if (!open_file(m, path)) return 0;
   if (mod_file_config(m->file, &m->cfg, &err) != MOD_RESULT_OK) return failed(path, &err);
   if (m->cfg.vocab_size != VOCAB) return failed_file(path, "its tokens are not bytes");
   m->model = mod_model_create(&m->cfg, NULL, &err);
   if (!m->model) return failed(path, &err);
   m->cfg = mod_model_config(m->model);
   return 1;
}

/* Its parameters and thresholds and, if there is a trainer, the state of that. */
static int load_model(lm *m, const char *path)
{
   mod_error err;
   return mod_file_load(m->file, m->model, m->trainer, &err) == MOD_RESULT_OK ? 1 : failed(path, &err);
}

static int failed_text(const text_error *err)
{
   const char *why = err->code ? strerror(err->code) : err->message;
   return failed_file(err->path ? err->path : "text", why);
}

/* Sequence s of the batch: the window at a position of the text. */
static int window(lm *m, int s, uint64_t position)
{
   text_error err;
   size_t at = (size_t)s * (size_t)m->cfg.context;
   if (text_read(&m->text, position, m->cfg.context, m->tokens + at, m->targets + at, &err)) return 1;
   return failed_text(&err);
}

static int part_of(int part) { return part == PART_ALL ? TEXT_TRAIN : part; }

/* How many windows evaluation takes from a part: what was asked for, or what there is. */
static uint64_t even_windows(const lm *m, int part, int wanted)
{
   uint64_t all = text_windows(&m->text, part, m->cfg.context);
   return (uint64_t)wanted < all ? (uint64_t)wanted : all;
}

/* Where a model came from: these stand in its file. */
static const char *const key_version = "lm.version", *const key_files = "lm.text.files", *const key_task = "lm.task",
                  *const key_bytes = "lm.text.bytes", *const key_hash = "lm.text.fnv1a";

/* mod.h and the .md files of docs/, in order of name. */
static void default_text(void)
{
   o.data.item[o.data.n++] = "mod.h";
#ifdef LM_POSIX
   static char names[OPTION_LIST_MOST][264];
   int n = 0;
   DIR *dir = opendir("docs");
   if (!dir) return;
   for (struct dirent *e; n < OPTION_LIST_MOST - 1 && (e = readdir(dir)) != NULL;) {
      size_t length = strlen(e->d_name);
      if (length > 3 && length < 256 && strcmp(e->d_name + length - 3, ".md") == 0)
         snprintf(names[n++], sizeof names[0], "docs/%s", e->d_name);
   }
   closedir(dir);
   qsort(names, (size_t)n, sizeof names[0], by_name);
   for (int i = 0; i < n; ++i) o.data.item[o.data.n++] = names[i];
#endif
}

/* The text: of --data or --task, or what the model was trained on, which must be what it was. */
static int open_text(lm *m)
{
   static char names[1 << 16];
   static unsigned char sums[SUMS_BYTES];
   const char *task = m->file ? mod_file_meta(m->file, key_task) : NULL;
   const char *trained_on = m->file ? mod_file_meta(m->file, key_files) : NULL;
   const char *hash = m->file ? mod_file_meta(m->file, key_hash) : NULL;
   char now[17];
   text_desc desc = {0};
   text_error err;
   int from_model = !o.data.n && trained_on && strlen(trained_on) < sizeof names;
   if (!o.data.n && task) {
      if (strcmp(task, task_names[TASK_SUMS]) != 0) return failed_file(task, "a task that this lm does not know");
      o.task = TASK_SUMS;
   }
   if (o.task) {
      sums_text(sums, 1);
      desc.bytes = sums; desc.n_bytes = sizeof sums;
   }
   if (from_model) {
      strcpy(names, trained_on);
      for (char *s = strtok(names, "\n"); s && o.data.n < OPTION_LIST_MOST; s = strtok(NULL, "\n"))
         o.data.item[o.data.n++] = s;
   }
   if (!o.data.n && !o.task) return failed_file("no text", "say --data FILE");
   size_t room = sizeof names; /* they are to stand in the model's file, a line each */
   for (int i = 0; i < o.data.n; ++i) {
      size_t length = strlen(o.data.item[i]) + 1;
      if (strchr(o.data.item[i], '\n')) return failed_file(o.data.item[i], "a name with a line break");
      if (length > room) return failed_file("--data", "the names are longer than 65,536 bytes together");
      room -= length;
   }
   if (o.data.n) desc.paths = o.data.item;
   desc.n_paths = o.data.n;
   desc.stream = o.stream;
   if (o.part == PART_ALL) desc.shares[TEXT_TRAIN] = 1;
   if (!text_open(&m->text, &desc, &err) || !text_hash(&m->text, &m->text_hash, &err)) {
      failed_text(&err);
      if (from_model) fprintf(stderr, "lm: the model was trained on it, perhaps in another folder: say --data FILE\n");
      return 0;
   }
   snprintf(now, sizeof now, "%016llx", (unsigned long long)m->text_hash);
   if (hash && strcmp(hash, now) != 0 && (o.resume || from_model || o.task))
      return failed_file(o.task ? task : o.data.item[0], "is not the text that the model was trained on");
   return 1;
}

static double part_size(const lm *m, int part)
{
   double size = 0;
   for (int i = 0; i < m->text.n_files; ++i)
      size += (double)(m->text.files[i].at[part + 1] - m->text.files[i].at[part]);
   return size;
}

static void print_text(const lm *m)
{
   number a, b, c, d;
   printf("text      %s bytes of ", grouped(a, (double)m->text.n_bytes));
   if (o.task) printf("%s", task_names[o.task]);
   else printf("%d file%s", o.data.n, o.data.n == 1 ? "" : "s");
   printf(": %s to train on, %s validation, %s test\n", grouped(b, part_size(m, TEXT_TRAIN)),
          grouped(c, part_size(m, TEXT_VALIDATION)), grouped(d, part_size(m, TEXT_TEST)));
   fflush(stdout);
}

static int enough_text(lm *m, int part)
{
   if (text_windows(&m->text, part_of(part), m->cfg.context)) return 1;
   fprintf(stderr, "lm: the %s part of the text is shorter than a window of %d bytes and its successor\n",
           part_names[part], m->cfg.context);
   return 0;
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

typedef struct score {
   double loss; /* nats a byte */
   double flops, dense;
   int64_t tokens, skipped;
   mod_block_stats blocks[MAX_LAYERS];
} score;

/* Of the tokens, as far as a selection is fixed beforehand. */
static double share_of(int select, double capacity)
{
   if (select == MOD_SELECT_ALL) return 1;
   if (select == MOD_SELECT_EVERY) return 1 / ceil(1 / capacity - 1e-6);
   return select == MOD_SELECT_NONE ? 0 : capacity;
}

static int is_routed_block(const lm *m, int block) { return mod_config_block(&m->cfg, block).select != MOD_SELECT_ALL; }

/* Of the tokens at one place in the lines of sums: how many, and totals over them. */
typedef struct place {
   double tokens, entered, entropy, loss, hits;
} place;

/* What an evaluation notes of single tokens. */
typedef struct notes {
   const lm *m;
   uint64_t every; /* one of so many windows is noted */
   size_t n;
   double *entered, *entropy; /* [n] how many routed blocks took it; of the prediction of its successor, in nats */
   place places[SUMS_LINE];   /* from here on: of sums only */
   double answers, right;     /* that lie within a window; of these, with all digits foretold */
} notes;

static int make_notes(const lm *m, notes *to)
{
   uint64_t n = even_windows(m, part_of(o.part), o.windows);
   to->m = m;
   to->every = 1 + n * (uint64_t)m->cfg.context / NOTED_MOST;
   size_t size = (size_t)((n - 1) / to->every + 1) * (size_t)m->cfg.context;
   to->entered = (double *)calloc(size, sizeof(double));
   to->entropy = (double *)malloc(size * sizeof(double));
   return to->entered && to->entropy ? 1 : failed_file("memory", strerror(ENOMEM));
}

static void note_entered(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   notes *to = (notes *)user;
   (void)x;
   if (site != MOD_SITE_KEPT || !is_routed_block(to->m, block)) return;
   for (int i = 0; i < rows->n; ++i) to->entered[to->n + (size_t)rows->position[i]] += 1;
}

/* The predictions in the window at this position of the text, whose routes note_entered has noted. */
static void note_predictions(notes *to, uint64_t position, const mod_tensor *logits)
{
   int whole = 0;
   for (int i = 0; i < to->m->cfg.context; ++i, ++to->n) {
      const mod_real *row = logits->data + (size_t)i * VOCAB;
      int at = (int)((position + (uint64_t)i) % SUMS_LINE), next = (at + 1) % SUMS_LINE, best = 0;
      double sum = 0, mean = 0;
      for (int c = 1; c < VOCAB; ++c)
         if (row[c] > row[best]) best = c;
      for (int c = 0; c < VOCAB; ++c) {
         double over = (double)row[c] - (double)row[best], p = exp(over);
         sum += p; mean += p * over;
      }
      to->entropy[to->n] = log(sum) - mean / sum;
      if (!o.task) continue;
      int target = to->m->targets[i], hit = best == target;
      place *p = &to->places[at];
      p->tokens += 1; p->entered += to->entered[to->n]; p->entropy += to->entropy[to->n]; p->hits += hit;
      p->loss += log(sum) + (double)row[best] - (double)row[target];
      whole = next == SUMS_ANSWER ? hit : whole && hit;
      if (next != SUMS_ANSWER + SUMS_DIGITS - 1 || i < SUMS_DIGITS - 1) continue;
      to->answers += 1; to->right += whole;
   }
}

/* The same model without any routing: the one to compare with. */
static void make_dense(mod_config *cfg)
{
   cfg->select = MOD_SELECT_ALL;
   cfg->kv_select = MOD_SELECT_SAME;
   cfg->bypass = MOD_BYPASS_IDENTITY;
   cfg->mlp = MOD_MLP_PLAIN;
   cfg->blocks = NULL;
}

/* Windows spread evenly over a part of the text. `to` may be NULL. */
static int evaluate(lm *m, int mode, score *out, notes *to)
{
   mod_error err;
   mod_config full = m->cfg;
   int part = part_of(o.part);
   uint64_t n = even_windows(m, part, o.windows);
   make_dense(&full);
   memset(out, 0, sizeof *out);
   for (uint64_t w = 0; w < n; ++w) {
      mod_forward f;
      mod_flops dense;
      uint64_t position = text_spread(&m->text, part, m->cfg.context, w, n);
      int noted = to && w % to->every == 0;
      if (!window(m, 0, position)) return 0;
      m->batch.mode = mode;
      m->batch.probe = noted ? note_entered : NULL; m->batch.probe_user = to;
      mod_tape_reset(m->tape);
      if (mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err) != MOD_RESULT_OK ||
          mod_config_flops(&full, 1, &m->batch.length, NULL, &dense, &err) != MOD_RESULT_OK)
         return failed("evaluation", &err);
      if (noted) note_predictions(to, position, f.logits);
      out->loss += f.cross_entropy / (double)n;
      out->flops += f.flops_blocks + f.flops_head;
      out->dense += dense.total;
      out->tokens += f.n_tokens;
      out->skipped += f.skipped;
      for (int l = 0; l < m->cfg.n_layers; ++l) {
         mod_block_stats *sum = &out->blocks[l];
         const mod_block_stats *b = &f.blocks[l];
         sum->routed = b->routed; sum->decided = b->decided;
         sum->tokens += b->tokens; sum->kept += b->kept;
         sum->predicted += b->predicted; sum->hits += b->hits; sum->agree += b->agree;
         sum->mlp_rows += b->mlp_rows; sum->dropped += b->dropped;
         sum->experts.tokens += b->experts.tokens; sum->experts.kept += b->experts.kept;
         sum->experts.hits += b->experts.hits; sum->experts.agree += b->experts.agree;
      }
   }
   m->batch.probe = NULL;
   return 1;
}

static int has_experts(const lm *m, int block) { return mod_config_block(&m->cfg, block).mlp != MOD_MLP_PLAIN; }

/* MLPs in which experts choose. */
static int expert_choice(const lm *m)
{
   int n = 0;
   for (int l = 0; l < m->cfg.n_layers; ++l)
      n += has_experts(m, l) && mod_config_block(&m->cfg, l).choice == MOD_CHOICE_EXPERT;
   return n;
}

/* Is there anything that top-k decides by looking ahead? */
static int looks_ahead(const lm *m)
{
   for (int l = 0; l < m->cfg.n_layers; ++l) {
      mod_block_config b = mod_config_block(&m->cfg, l);
      if ((b.select != MOD_SELECT_ALL && b.select != MOD_SELECT_NONE) || b.kv_select == MOD_SELECT_LEARNED) return 1;
   }
   return expert_choice(m) > 0;
}

static int is_sparse(const lm *m)
{
   for (int l = 0; l < m->cfg.n_layers; ++l)
      if (is_routed_block(m, l) || has_experts(m, l) || mod_config_block(&m->cfg, l).kv_select != MOD_SELECT_SAME)
         return 1;
   return 0;
}

static int is_routed(const lm *m)
{
   for (int l = 0; l < m->cfg.n_layers; ++l)
      if (is_routed_block(m, l)) return 1;
   return 0;
}

/* A line of the table of losses. */
static void print_loss(const char *name, const score *s)
{
   number a;
   printf("%-14s %10.3f %8.3f %10s    %5.1f%%\n", name, s->loss, bits(s->loss),
          grouped(a, s->flops / (double)s->tokens), 100 * s->flops / s->dense);
}

static void percent(double part, double whole)
{
   if (whole > 0) printf("%11.1f%%", 100 * part / whole);
   else printf("%12s", "-");
}

static void print_decider(const char *name, const mod_block_stats *b, const mod_block_stats *causal)
{
   printf("%-8s", name);
   percent((double)b->agree, (double)b->tokens);
   percent((double)(b->tokens - b->kept), (double)b->tokens);
   percent((double)b->hits, (double)b->predicted);
   percent((double)b->hits, (double)b->kept);
   percent((double)causal->kept, (double)causal->tokens);
   printf("\n");
}

/* How well the deciding logits foretell the top-k: measured in top-k mode, where there is a truth. */
static void print_deciders(const lm *m, const score *topk, const score *causal)
{
   mod_block_stats all = {0}, all_causal = {0};
   char name[32];
   int n = 0;
   for (int l = 0; l < m->cfg.n_layers; ++l) {
      const mod_block_stats *b = &topk->blocks[l], *c = &causal->blocks[l];
      if (!b->decided) continue; /* a dense block, or one that takes everything: there is nothing to foretell */
      if (!n++)
         printf("\n%-9s%11s%12s%12s%12s%12s\n",
                m->cfg.causal == MOD_CAUSAL_PREDICTOR || m->cfg.causal == MOD_CAUSAL_BOTH ? "predictor" : "router",
                "accuracy", "if 'never'", "precision", "recall", "takes then");
      snprintf(name, sizeof name, "block %d", l + 1);
      print_decider(name, b, c);
      all.tokens += b->tokens; all.kept += b->kept;
      all.predicted += b->predicted; all.hits += b->hits; all.agree += b->agree;
      all_causal.tokens += c->tokens; all_causal.kept += c->kept;
   }
   if (n > 1) print_decider("all", &all, &all_causal);
   number a, b;
   if (n)
      printf("takes then: its share in causal mode, where %s of %s tokens skipped every routed block\n",
             grouped(a, (double)causal->skipped), grouped(b, (double)causal->tokens));
}

/* Of the tokens that enter a block; and of experts that choose: how well that is foretold. */
static void print_experts(const lm *m, const score *topk, const score *causal)
{
   int n = 0;
   for (int l = 0; l < m->cfg.n_layers; ++l) {
      const mod_block_stats *b = &causal->blocks[l];
      const mod_path_stats *e = &topk->blocks[l].experts;
      if (!has_experts(m, l)) continue;
      if (!n++) printf("\n%-8s%12s%12s%12s%12s\n", "experts", "computed", "dropped", "accuracy", "recall");
      printf("block %-2d", l + 1);
      percent((double)b->mlp_rows, (double)b->kept);
      percent((double)b->dropped, (double)b->kept);
      percent((double)e->agree, (double)e->tokens);
      percent((double)e->hits, (double)e->kept);
      printf("\n");
   }
   if (n)
      printf("in %% of the tokens in the block, causally: computed, passes through experts; dropped, choices that found no\n"
             "place or, where experts choose, tokens that none took; what else is missing chose a way past\n");
}

/* For each place in a line of sums: how often the token there enters a routed block, and what is foretold from it. */
static void print_sums(const notes *s)
{
   number a;
   int routed = 0;
   for (int l = 0; l < s->m->cfg.n_layers; ++l) routed += is_routed_block(s->m, l);
   printf("\n%-15s%-15s%11s%10s%10s%12s\n", "token", "the next one", "routed", "entropy", "loss", "right");
   for (int at = 0; at < SUMS_LINE; ++at) {
      const place *p = &s->places[at];
      if (p->tokens == 0) continue;
      printf("%-15s%-14s", sums_places[at], sums_places[(at + 1) % SUMS_LINE]);
      percent(p->entered, p->tokens * routed);
      printf("%10.3f%10.3f", p->entropy / p->tokens, p->loss / p->tokens);
      percent(p->hits, p->tokens);
      printf("\n");
   }
   printf("routed: how often a routed block takes the token, causally; the rest is of the prediction of the next one:\n"
          "entropy and loss in nats, how often the likeliest byte is right\n");
   if (s->answers > 0) printf("answers: %.1f%% of %s right, in all digits\n", 100 * s->right / s->answers,
                              grouped(a, s->answers));
}

/* The notes are then ranks. */
static void print_correlation(notes *s)
{
   number a;
   double rho;
   printf("\nSpearman's correlation of routing with entropy: ");
   if (spearman(s->entered, s->entropy, s->n, &rho)) printf("rho = %.3f, n = %s\n", rho, grouped(a, (double)s->n));
   else printf("none, all tokens are routed alike\n");
   printf("of a token: how many routed blocks take it, causally, and the entropy of the prediction of the next one\n");
}

/* Top-k: each routed block takes its k best, as in training. Causal: as when sampling; this is the loss to quote. */
static int print_evaluation(lm *m, const score *start)
{
   static score topk, causal;
   notes noted = {0};
   int ok = make_batch(m, 1) && make_tape(m) && make_notes(m, &noted) && evaluate(m, MOD_MODE_TOPK, &topk, NULL) &&
            evaluate(m, MOD_MODE_CAUSAL, &causal, &noted);
   if (!ok) goto done;
   printf("\n%-10s           nats     bits      FLOPs    of the\n", part_names[o.part]);
   printf("text               a byte   a byte     a byte     dense\n");
   if (start) print_loss("at the start", start);
   if (looks_ahead(m)) print_loss("top-k", &topk);
   print_loss(is_sparse(m) ? "causal" : "dense", &causal);
   print_deciders(m, &topk, &causal);
   print_experts(m, &topk, &causal);
   if (o.task) print_sums(&noted);
   if (is_routed(m)) print_correlation(&noted);
done:
   free(noted.entered); free(noted.entropy);
   return ok;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* Step `step` reads windows that are a function of the seed and of its number alone. */
static int training_batch(lm *m, int64_t step)
{
   for (int s = 0; s < m->how.n_seqs; ++s) {
      uint64_t draw = (uint64_t)step * (uint64_t)m->how.n_seqs + (uint64_t)s;
      if (!window(m, s, text_draw(&m->text, TEXT_TRAIN, m->cfg.context, m->how.seed, draw))) return 0;
   }
   return 1;
}

/* How long does a step take? Tried on a model of its own. */
static int time_step(lm *m, int n_threads, double *seconds)
{
   mod_error err;
   double t = 0, gone = 0;
   int ok = 1, step = 0;
   mod_train_desc how = m->how;
   how.n_threads = n_threads;
   mod_model *model = mod_model_create(&m->cfg, NULL, &err);
   ok = model && mod_model_randomize(model, 1, &err) == MOD_RESULT_OK;
   mod_trainer *trainer = ok ? mod_trainer_create(model, &how, NULL, &err) : NULL;
   ok = trainer != NULL;
   for (; ok && (step < 3 || (step < 20 && gone < 0.7)); ++step) {
      if (step == 1) t = seconds_now(); /* the first one warms up */
      ok = training_batch(m, step) && mod_train_step(trainer, &m->batch, NULL, &err) == MOD_RESULT_OK;
      gone = step ? seconds_now() - t : 0;
   }
   *seconds = gone / (step - 1);
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   return ok ? 1 : failed("training, tried for speed", &err);
}

/* One thread, or one per processor? Where other programs are running, threads that wait for each other lose more than
   they win, so both are tried. (More than four have too little to do in so small a model.) */
static int choose_threads(lm *m, double *step_seconds)
{
   int most = 1;
   double one;
#if defined(_OPENMP) && !defined(MOD_NO_OPENMP)
   most = omp_get_num_procs() < 4 ? omp_get_num_procs() : 4;
#endif
   m->how.n_threads = o.threads ? o.threads : most;
   if (o.threads && o.steps) return 1;
   if (!time_step(m, m->how.n_threads, step_seconds)) return 0;
   if (o.threads || most == 1) return 1;
   if (!time_step(m, 1, &one)) return 0;
   if (one < *step_seconds) {
      m->how.n_threads = 1;
      *step_seconds = one;
   }
   return 1;
}

/* The progress line: rewritten in place on a terminal, a line every few seconds elsewhere. */
static void progress(const lm *m, int64_t done, int64_t from, double loss, double t0, double *shown, int tty)
{
   double now = seconds_now(), gone = now - t0;
   int last = done == m->how.steps || interrupted;
   if (!last && now - *shown < (tty ? 0.2 : 5.0)) return;
   *shown = now;
   number speed, elapsed, left;
   printf("%s  step %*lld of %d   loss %.3f   %7s tokens/s   %s gone, %s to go  %s", tty ? "\r" : "",
          m->how.steps < 1000 ? 3 : 5, (long long)done, m->how.steps, loss,
          grouped(speed, (double)(done - from) * m->how.n_seqs * m->cfg.context / gone), minutes(elapsed, gone),
          minutes(left, gone / (double)(done - from) * (double)(m->how.steps - done)), tty && !last ? "" : "\n");
   fflush(stdout);
}

static int failed_durable(const char *path, const durable *file)
{
   return failed_file(path, file->code ? strerror(file->code) : file->error);
}

static size_t nowhere(const void *from, size_t size, void *user)
{
   (void)from; (void)user;
   return size;
}

/* The model, its trainer, and where they come from, in `path`; then both survive a power cut. NULL: only tries whether
   that can be written down at all. */
static int save(lm *m, const char *path)
{
   mod_error err;
   mod_save_desc what = {0};
   durable file;
   static char files[1 << 16];
   char bytes[24], hash[17];
   const char *meta[] = {key_version, VERSION, o.task ? key_task : key_files, files, key_bytes, bytes, key_hash, hash};
   strcpy(files, task_names[o.task]);
   for (int i = 0; i < o.data.n && strlen(files) + strlen(o.data.item[i]) + 2 < sizeof files; ++i) {
      if (i) strcat(files, "\n");
      strcat(files, o.data.item[i]);
   }
   snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)m->text.n_bytes);
   snprintf(hash, sizeof hash, "%016llx", (unsigned long long)m->text_hash);
   what.trainer = m->trainer;
   what.position = (uint64_t)mod_trainer_step(m->trainer) * (uint64_t)m->how.n_seqs;
   what.meta = meta;
   what.n_meta = (int)(sizeof meta / sizeof meta[0] / 2);
   mod_writer writer = {durable_write, &file}, none = {nowhere, NULL};
   if (!path)
      return mod_save(m->model, &what, &none, &err) == MOD_RESULT_OK ? 1 : failed("the file to be written", &err);
   if (durable_begin(&file, path) && mod_save(m->model, &what, &writer, &err) != MOD_RESULT_OK) {
      durable_abort(&file);
      if (!file.error) return failed(path, &err);
   } else if (durable_commit(&file, o.keep)) {
      return 1;
   }
   return failed_durable(path, &file);
}

/* Trains to the end of the schedule, or until it is interrupted; `limit`: or for so long. */
static int train(lm *m, const char *path, double limit)
{
   mod_error err;
   double t0 = seconds_now(), shown = t0, saved = t0, smooth = 0;
   int64_t from = mod_trainer_step(m->trainer), done = from;
   int tty = on_terminal();
   m->batch.mode = MOD_MODE_TOPK;
   while (done < m->how.steps && !interrupted && !ferror(stdout)) {
      mod_step_info info;
      if (!training_batch(m, done)) return 0;
      if (mod_train_step(m->trainer, &m->batch, &info, &err) != MOD_RESULT_OK) {
         printf(tty ? "\n" : "");
         return failed("training", &err);
      }
      smooth = done == from ? info.loss : 0.95 * smooth + 0.05 * info.loss;
      progress(m, ++done, from, smooth, t0, &shown, tty);
      if (limit > 0 && seconds_now() - m->began > limit && done < m->how.steps) {
         printf("%s  stopped for lack of time: the machine became slower than it was at first\n", tty ? "\n" : "");
         break;
      }
      if (path && seconds_now() - saved > o.save_every && done < m->how.steps) {
         if (!save(m, path)) return 0;
         saved = seconds_now();
      }
   }
   return !path || !interrupted || save(m, path);
}

/* Thresholds from validation text, so that a routed block takes, causally, what it took in training. */
static int calibrate(lm *m)
{
   mod_error err;
   int n = (int)even_windows(m, TEXT_VALIDATION, CALIBRATION_SEQS);
   if (!n) return failed_file("--calibrate", "the validation text is shorter than the context");
   if (!make_batch(m, n)) return 0;
   for (int s = 0; s < n; ++s)
      if (!window(m, s, text_spread(&m->text, TEXT_VALIDATION, m->cfg.context, (uint64_t)s, (uint64_t)n))) return 0;
   m->batch.targets = NULL;
   if (!make_tape(m)) return 0;
   mod_tape_reset(m->tape);
   if (mod_model_calibrate(m->model, m->tape, &m->batch, &err) != MOD_RESULT_OK) return failed("calibration", &err);
   printf("thresholds calibrated on %d windows of validation text\n", n);
   return 1;
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

static double flops_a_byte(const mod_config *cfg)
{
   mod_flops flops;
   mod_error err;
   return mod_config_flops(cfg, 1, &cfg->context, NULL, &flops, &err) == MOD_RESULT_OK ? flops.total / cfg->context : 0;
}

/* Sizes and costs, each beside those of the dense model of the same shape. */
static int print_model(const lm *m)
{
   mod_error err;
   mod_plan plan[2];
   mod_config cfg[2] = {m->cfg, m->cfg};
   number a, b;
   int routed = 0, experts = 0;
   double share = 0, cached = 0, head = (double)m->cfg.d_model / m->cfg.n_heads;
   make_dense(&cfg[1]);
   for (int i = 0; i < 2; ++i)
      if (mod_model_plan(&cfg[i], &m->how, &plan[i], &err) != MOD_RESULT_OK) return failed("model", &err);
   for (int l = 0; l < m->cfg.n_layers; ++l) {
      mod_block_config block = mod_config_block(&m->cfg, l);
      double takes = share_of(block.select, block.capacity);
      routed += block.select != MOD_SELECT_ALL;
      experts += block.mlp != MOD_MLP_PLAIN;
      share += takes / m->cfg.n_layers;
      cached += (block.kv_select == MOD_SELECT_SAME ? takes : share_of(block.kv_select, block.kv_capacity)) / m->cfg.n_layers;
   }
   double row = 2 * m->cfg.n_kv_heads * head * m->cfg.n_layers * (double)sizeof(mod_real);
   const struct {
      const char *what;
      double here, dense;
   } line[] = {{"parameters", (double)plan[0].n_params, (double)plan[1].n_params},
               {"FLOPs a byte forward", flops_a_byte(&cfg[0]), flops_a_byte(&cfg[1])},
               {"bytes of cache a byte", cached * row, row},
               {"KB of the model", (double)plan[0].model / 1024, (double)plan[1].model / 1024},
               {"KB to train it, beside", (double)plan[0].trainer / 1024, (double)plan[1].trainer / 1024}};
   printf("model     %d blocks of width %d, %d heads, context %d; ", m->cfg.n_layers, m->cfg.d_model, m->cfg.n_heads,
          m->cfg.context);
   if (!routed) printf(is_sparse(m) ? "all tokens enter them all\n" : "dense\n");
   else
      printf("%d of them routed, %g%% of the tokens on average, %s%s\n", routed,
             100 * (share * m->cfg.n_layers - (m->cfg.n_layers - routed)) / routed,
             m->cfg.select == MOD_SELECT_LEARNED ? "gate " : "selected: ",
             m->cfg.select == MOD_SELECT_LEARNED ? gate_names[m->cfg.gate] : select_names[m->cfg.select]);
   if (experts)
      printf("          %d MLPs of %d experts%s; tokens choose in %d, experts in %d\n", experts, m->cfg.n_experts,
             m->cfg.mlp == MOD_MLP_MODE ? " and as many ways past them" : "", experts - expert_choice(m),
             expert_choice(m));
   for (size_t i = 0; i < sizeof line / sizeof line[0]; ++i) {
      printf("          %-22s %12s", line[i].what, grouped(a, line[i].here));
      if (is_sparse(m))
         printf("   %5.1f%% of the dense model's %s", 100 * line[i].here / line[i].dense, grouped(b, line[i].dense));
      printf("\n");
   }
   return 1;
}

/* A byte as a terminal can show it; to a file or a pipe, as it is. */
static void show(int byte, int tty)
{
   if (!tty || byte == '\n' || byte == '\t' || byte >= 128 || (byte >= 32 && byte < 127)) putchar(byte);
   else printf("\\x%02x", (unsigned)byte);
   fflush(stdout);
}

/* Goes on from the prompt, byte by byte. When the context is full, its second half becomes the new beginning. */
static int generate(lm *m, const char *prompt, size_t n_prompt, int tty)
{
   mod_error err;
   mod_session_desc desc = {0};
   mod_sample_desc how = {0};
   int n = 0, fed = 0, room = m->cfg.context, ok = 1; /* the prompt is fed in one go, what follows byte by byte */
   how.temperature = o.temperature; how.top_p = o.top_p; how.top_k = o.top_k; how.seed = o.seed;
   desc.n_threads = o.threads;
   mod_session *s = mod_session_create(m->model, &desc, NULL, &err);
   int *seen = s ? (int *)malloc((size_t)room * sizeof(int)) : NULL;
   if (!s) return failed("session", &err);
   ok = seen != NULL || failed_file("memory", strerror(ENOMEM));
   for (size_t i = 0, total = n_prompt + (size_t)o.tokens; ok && i < total && !ferror(stdout); ++i) {
      int next = i < n_prompt ? (unsigned char)prompt[i]
                              : mod_sample(mod_session_logits(s), VOCAB, &how, (uint64_t)(i - n_prompt), &err);
      if (next < 0) ok = failed("sampling", &err);
      if (ok && n == room) {
         fed = n = room / 2;
         memmove(seen, seen + room - n, (size_t)n * sizeof(int));
         mod_session_reset(s);
         ok = n == 0 || mod_session_feed(s, seen, n, &err) == MOD_RESULT_OK || failed("sampling", &err);
      }
      if (!ok) break;
      show(next, tty);
      seen[n++] = next;
      if (i + 1 < n_prompt && n < room) continue;
      ok = mod_session_feed(s, seen + fed, n - fed, &err) == MOD_RESULT_OK || failed("sampling", &err);
      fed = n;
   }
   mod_session_destroy(s);
   free(seen);
   if (tty) putchar('\n');
   return ok;
}

/* ---- the map ----------------------------------------------------------------------------------------------------- */

/* What the forward pass tells of itself, filed by block and position. */
typedef struct seen {
   map map;
   unsigned char *bytes, *routed, *entered;
   float *score, *logit;
} seen;

static void look(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   seen *to = (seen *)user;
   for (int i = 0; i < rows->n; ++i) {
      int at = block * to->map.n_tokens + rows->position[i];
      if (site == MOD_SITE_KEPT) to->entered[at] = 1;
      if (site == MOD_SITE_SCORE) to->score[at] = (float)x->data[i * x->dim[1]];
      if (site == MOD_SITE_PREDICTOR) to->logit[at] = (float)x->data[i];
   }
}

static int write_map(const char *path, void (*write)(FILE *, const map *, int), const map *what, int columns)
{
   int to_stdout = strcmp(path, "-") == 0;
   FILE *f = to_stdout ? stdout : fopen(path, "wb");
   if (!f) return failed_file(path, strerror(errno));
   write(f, what, columns);
   int ok = !ferror(f);
   if (!to_stdout) ok = fclose(f) == 0 && ok;
   if (ok && !to_stdout) printf("wrote %s\n", path);
   return ok ? 1 : failed_file(path, "cannot be written to its end");
}

static void write_csv(FILE *to, const map *what, int columns)
{
   (void)columns;
   map_csv(to, what);
}

/* The n bytes of batch.tokens, which begin at position `first` of their text, through the model. */
static int draw(lm *m, int n, long long first)
{
   mod_error err;
   mod_forward f;
   size_t cells = (size_t)n * (size_t)m->cfg.n_layers;
   seen s = {0};
   int ok = 0;
   s.bytes = (unsigned char *)malloc((size_t)n);
   s.routed = (unsigned char *)calloc((size_t)m->cfg.n_layers, 1);
   s.entered = (unsigned char *)calloc(cells, 1);
   s.score = (float *)malloc(cells * sizeof(float));
   s.logit = (float *)malloc(cells * sizeof(float));
   if (!s.bytes || !s.routed || !s.entered || !s.score || !s.logit) {
      failed_file("memory", strerror(ENOMEM));
      goto done;
   }
   for (size_t i = 0; i < cells; ++i) s.score[i] = s.logit[i] = (float)NAN;
   for (int i = 0; i < n; ++i) s.bytes[i] = (unsigned char)m->tokens[i];
   for (int l = 0; l < m->cfg.n_layers; ++l) s.routed[l] = (unsigned char)is_routed_block(m, l);
   s.map.n_tokens = n; s.map.n_blocks = m->cfg.n_layers; s.map.first = first;
   s.map.bytes = s.bytes; s.map.routed = s.routed; s.map.entered = s.entered;
   s.map.score = s.score; s.map.logit = s.logit;

   m->batch.length = n;
   m->batch.targets = NULL;
   if (!make_tape(m)) goto done;
   m->batch.mode = o.topk ? MOD_MODE_TOPK : MOD_MODE_CAUSAL;
   m->batch.probe = look; m->batch.probe_user = &s;
   mod_tape_reset(m->tape);
   ok = mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err) == MOD_RESULT_OK;
   m->batch.probe = NULL;
   if (!ok) {
      failed("map", &err);
      goto done;
   }
   if (!o.svg && !o.csv) {
      printf("a column is a byte, a row is a block, %s: \xe2\x96\x88 it went through, \xc2\xb7 it passed by\n\n",
             o.topk ? "top-k" : "causal");
      map_text(stdout, &s.map, o.columns, on_terminal());
   }
   if (o.svg) ok = write_map(o.svg, map_svg, &s.map, o.columns);
   if (o.csv) ok = write_map(o.csv, write_csv, &s.map, o.columns) && ok;
done:
   free(s.bytes); free(s.routed); free(s.entered); free(s.score); free(s.logit);
   return ok;
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static const char *program; /* as it was called */

/* At most *n bytes of the text into the batch: from --at on, or from where a line begins in the test part. */
static int route_text(lm *m, int *n)
{
   text_error err;
   uint64_t at = o.at != TEXT_NONE ? o.at : text_spread(&m->text, TEXT_TEST, *n, 0, 1);
   if (!text_read(&m->text, at, *n, m->tokens, m->targets, &err)) return failed_text(&err);
   for (int i = 0; o.at == TEXT_NONE && i < *n; ++i)
      if (m->tokens[i] == '\n' && text_read(&m->text, at + (uint64_t)i + 1, *n, m->tokens, m->targets, NULL)) {
         at += (uint64_t)i + 1;
         break;
      }
   o.at = at;
   return 1;
}

static void print_next(const char *path)
{
   printf("\nnext      %s sample %s --prompt TEXT\n", program, path);
   printf("          %s eval %s\n", program, path);
   printf("          %s routes %s --svg routes.svg\n", program, path);
}

/* After training that was interrupted. */
static int stopped(const lm *m, const char *path)
{
   printf("\nstopped   after step %lld of %d", (long long)mod_trainer_step(m->trainer), m->how.steps);
   if (path) {
      printf("; nothing is lost, %s has it. To go on:\n          %s train --resume %s", path, program, path);
      if (o.save_every != 60) printf(" --save-every %g", o.save_every);
      if (o.keep) printf(" --keep %d", o.keep);
      if (o.calibrate) printf(" --calibrate");
   }
   printf("\n");
   return EXIT_INTERRUPTED;
}

static int make_trainer(lm *m)
{
   mod_error err;
   m->trainer = mod_trainer_create(m->model, &m->how, NULL, &err);
   return m->trainer ? 1 : failed("memory", &err);
}

/* Better now than after hours of training. A model that is there already is not replaced by a new one. */
static int can_write(const char *path)
{
   durable file;
   FILE *old = o.resume ? NULL : fopen(path, "rb");
   if (old) {
      fclose(old);
      return failed_file(path, "is there already: go on from it with --resume, remove it, or choose another --out");
   }
   if (!durable_begin(&file, path)) return failed_durable(path, &file);
   durable_abort(&file);
   return 1;
}

static int lm_train(lm *m)
{
   const char *path = o.out ? o.out : o.resume ? o.resume : "model.safetensors";
   mod_error err;
   number a;
   double seconds;
   if (o.resume) {
      if (!open_model(m, o.resume)) return EXIT_FAILURE;
      if (mod_file_train_desc(m->file, &m->how, NULL, &err) != MOD_RESULT_OK)
         return failed(o.resume, &err), EXIT_FAILURE;
      if (m->how.length != m->cfg.context)
         return failed_file(o.resume, "it was trained on windows that are shorter than its context"), EXIT_FAILURE;
      o.steps = m->how.steps;
   }
   if (!open_text(m) || (!o.resume && !make_model(m))) return EXIT_FAILURE;
   print_text(m);
   if (!o.resume) set_steps(m, o.steps ? o.steps : o.task ? 2500 : 1000);
   o.seed = m->how.seed;
   if (!enough_text(m, TEXT_TRAIN) || !print_model(m) || !make_batch(m, m->how.n_seqs) ||
       !can_write(path) || !choose_threads(m, &seconds) || !make_trainer(m) ||
       (o.resume && !load_model(m, o.resume)) || !save(m, NULL))
      return EXIT_FAILURE;
   printf("training  %s steps of %d x %d bytes, seed %llu, %d thread%s, into %s\n", grouped(a, m->how.steps),
          m->how.n_seqs, m->cfg.context, (unsigned long long)m->how.seed, m->how.n_threads,
          m->how.n_threads == 1 ? "" : "s", path);
   if (o.resume && mod_trainer_step(m->trainer) < m->how.steps)
      printf("          from step %lld on\n", (long long)mod_trainer_step(m->trainer));
   else if (o.resume)
      printf("          finished already, at step %d\n", m->how.steps);
   printf("\n");
   stop_on_signal();
   if (!train(m, path, 0)) return EXIT_FAILURE;
   if (interrupted) return stopped(m, path);
   if (o.calibrate && !calibrate(m)) return EXIT_FAILURE;
   if (!save(m, path)) return EXIT_FAILURE;
   o.part = TEXT_VALIDATION;
   if (text_windows(&m->text, o.part, m->cfg.context) && !print_evaluation(m, NULL)) return EXIT_FAILURE;
   print_next(path);
   return EXIT_SUCCESS;
}

static int lm_sample(lm *m)
{
   static char from_stdin[1 << 16];
   const char *prompt = o.prompt;
   size_t n = strlen(prompt);
   if (!open_model(m, o.word[0]) || !load_model(m, o.word[0])) return EXIT_FAILURE;
   if (strcmp(prompt, "-") == 0) {
      n = fread(from_stdin, 1, sizeof from_stdin, stdin);
      if (getchar() != EOF) return failed_file("--prompt -", "more than 65,536 bytes"), EXIT_FAILURE;
      if (!n) return failed_file("--prompt -", "standard input gave nothing"), EXIT_FAILURE;
      prompt = from_stdin;
   }
   return generate(m, prompt, n, on_terminal()) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int lm_eval(lm *m)
{
   if (!open_model(m, o.word[0]) || !load_model(m, o.word[0]) || !open_text(m) || !enough_text(m, o.part))
      return EXIT_FAILURE;
   m->how.n_threads = o.threads ? o.threads : 1;
   print_text(m);
   return print_evaluation(m, NULL) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int lm_routes(lm *m)
{
   int n;
   if (!open_model(m, o.word[0]) || !load_model(m, o.word[0]) || !make_batch(m, 1)) return EXIT_FAILURE;
   n = o.tokens && o.tokens < m->cfg.context ? o.tokens : m->cfg.context;
   if (o.text) {
      size_t given = strlen(o.text);
      if (given < (size_t)n) n = (int)given;
      for (int i = 0; i < n; ++i) m->tokens[i] = (unsigned char)o.text[i];
   } else if (!open_text(m) || !route_text(m, &n)) {
      return EXIT_FAILURE;
   }
   return draw(m, n, o.text ? 0 : (long long)o.at) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void print_tensors(const mod_file *f)
{
   int n;
   const mod_entry *e = mod_file_tensors(f, &n);
   for (; n-- > 0; ++e) {
      if (strncmp(e->name, "adam.", 5) == 0) continue; /* the moments: like the parameters */
      printf("%10s%-32s %-4s ", "", e->name, e->dtype);
      for (int d = 0; d < e->n_dim; ++d) printf(d ? " x %llu" : "%llu", (unsigned long long)e->dim[d]);
      printf("\n");
   }
}

/* How a block routes, if it does. */
static void print_routing(const lm *m, int l)
{
   mod_block_config b = mod_config_block(&m->cfg, l);
   const double *theta = mod_model_thresholds(m->model) + l;
   if (b.select != MOD_SELECT_ALL) {
      printf("          block %-3d takes %g%%, %s", l + 1, 100 * share_of(b.select, b.capacity), select_names[b.select]);
      if (b.select == MOD_SELECT_LEARNED) printf(", threshold %.3f", theta[0]);
      printf("\n");
   }
   if (b.kv_select != MOD_SELECT_SAME) {
      printf("          block %-3d keys: %g%%, %s", l + 1, 100 * share_of(b.kv_select, b.kv_capacity),
             select_names[b.kv_select]);
      if (b.kv_select == MOD_SELECT_LEARNED) printf(", threshold %.3f", theta[m->cfg.n_layers]);
      printf("\n");
   }
   if (b.mlp != MOD_MLP_PLAIN) {
      printf("          block %-3d %d experts%s, chosen by %s", l + 1, m->cfg.n_experts,
             b.mlp == MOD_MLP_MODE ? " and ways past them" : "", b.choice == MOD_CHOICE_TOKEN ? "tokens" : "themselves");
      for (int e = 0; b.choice == MOD_CHOICE_EXPERT && e < m->cfg.n_experts; ++e)
         printf("%s %.3f", e ? "" : ", thresholds", theta[(2 + e) * m->cfg.n_layers]);
      printf("\n");
   }
}

static int lm_info(lm *m)
{
   const char *path = o.word[0], *s;
   mod_error err;
   number a;
   int n;
   if (!open_file(m, path)) return EXIT_FAILURE;
   mod_file_tensors(m->file, &n);
   printf("file      %s: %d tensors", path, n);
   if (!mod_file_meta(m->file, "mod.format")) {
      printf(", not written by mod.h\n");
      print_tensors(m->file);
      return EXIT_SUCCESS;
   }
   s = mod_file_meta(m->file, key_version);
   printf(", written by lm %s\n", s ? s : "(another program, with mod.h)");
   if (!open_model(m, path) || !load_model(m, path)) return EXIT_FAILURE;
   uint64_t windows = 0;
   int trained = mod_file_train_desc(m->file, &m->how, &windows, &err) == MOD_RESULT_OK;
   if (!print_model(m)) return EXIT_FAILURE;
   if (looks_ahead(m))
      printf("routing   where there are thresholds, decided causally by %s\n",
             m->cfg.causal == MOD_CAUSAL_PREDICTOR || m->cfg.causal == MOD_CAUSAL_BOTH ? "a predictor" : "the router");
   for (int l = 0; l < m->cfg.n_layers; ++l) print_routing(m, l);
   if (trained)
      printf("training  step %llu of %d, %d x %d bytes each, learning rate %g, seed %llu\n",
             (unsigned long long)(windows / (uint64_t)m->how.n_seqs), m->how.steps, m->how.n_seqs, m->how.length,
             m->how.lr, (unsigned long long)m->how.seed);
   if ((s = mod_file_meta(m->file, key_files)) != NULL || (s = mod_file_meta(m->file, key_task)) != NULL) {
      const char *bytes = mod_file_meta(m->file, key_bytes), *hash = mod_file_meta(m->file, key_hash);
      printf("text      ");
      for (; *s; ++s) fputs(*s == '\n' ? ", " : (char[2]){*s, 0}, stdout);
      printf(": %s bytes, FNV-1a %s\n", bytes ? grouped(a, strtod(bytes, NULL)) : "?", hash ? hash : "?");
   }
   if (o.tensors) print_tensors(m->file);
   return EXIT_SUCCESS;
}

/* The model of the routing asked for that has the width of another, and the FLOPs of its forward pass. */
static int lm_match(lm *m)
{
   mod_config of, cfg;
   mod_plan plan[2];
   mod_error err;
   number a, b;
   int end = 0, dense = o.flops_of && sscanf(o.flops_of, "%9dx%9d%n", &o.layers, &o.width, &end) == 2 &&
                        !o.flops_of[end];
   if (!o.flops_of) return failed_file("match", "say --flops-of MODEL, or BLOCKSxWIDTH"), EXIT_USAGE;
   if (!dense && !open_model(m, o.flops_of)) return EXIT_FAILURE;
   of = m->cfg;
   m->cfg = (mod_config){0};
   if (!make_config(m)) return EXIT_USAGE;
   cfg = m->cfg;
   if (dense) {
      of = cfg;
      make_dense(&of);
   }
   cfg.d_model = of.d_model; cfg.n_heads = of.n_heads; cfg.context = of.context;
   if (mod_model_plan(&of, NULL, &plan[0], &err) != MOD_RESULT_OK ||
       mod_config_match(&cfg, flops_a_byte(&of) * of.context, &cfg, &err) != MOD_RESULT_OK ||
       mod_model_plan(&cfg, NULL, &plan[1], &err) != MOD_RESULT_OK)
      return failed("match", &err), EXIT_FAILURE;
   for (int i = 0; i < 2; ++i) {
      const mod_config c = mod_config_resolve(i ? &cfg : &of);
      printf("%-9s %d blocks of width %d, MLPs of width %d: %s FLOPs a byte forward, %s parameters\n",
             i ? "matched" : "given", c.n_layers, c.d_model, c.d_ff, grouped(a, flops_a_byte(&c)),
             grouped(b, (double)plan[i].n_params));
   }
   printf("\nnext      lm train --layers %d --width %d --heads %d --context %d --d-ff %d, and the options of this "
          "command\n          but --flops-of\n", cfg.n_layers, cfg.d_model, cfg.n_heads, cfg.context, cfg.d_ff);
   return EXIT_SUCCESS;
}

/* Everything in one go, on the text of this checkout or another: what `make run` does. */
static int lm_run(lm *m)
{
   static score start;
   double step_seconds = 1, t;
   number a, b;
   if (!o.data.n && !o.task) default_text();
   if (!open_text(m) || !make_model(m)) return EXIT_FAILURE;
   print_text(m);
   if (!enough_text(m, TEXT_TRAIN) || !enough_text(m, TEXT_TEST) || !print_model(m) || (o.out && !can_write(o.out)))
      return EXIT_FAILURE;
   m->how.n_threads = 1;
   set_steps(m, o.steps ? o.steps : 1000);
   t = seconds_now();
   if (!make_batch(m, 1) || !make_tape(m) || !evaluate(m, MOD_MODE_CAUSAL, &start, NULL)) return EXIT_FAILURE;
   double evaluation = 2 * (seconds_now() - t);
   if (!make_batch(m, o.seqs) || !choose_threads(m, &step_seconds)) return EXIT_FAILURE;
   if (!o.steps) { /* as many as fit into the time that evaluation and sampling leave */
      double fit = (o.seconds - (seconds_now() - m->began) - evaluation - 1) / step_seconds;
      set_steps(m, fit < 10 ? 10 : fit > 1e8 ? 100000000 : (int)fit);
   }
   printf("training  %s steps of %d x %d bytes (%s in all), seed %llu, %d thread%s\n\n", grouped(a, m->how.steps),
          o.seqs, o.context, grouped(b, (double)m->how.steps * o.seqs * o.context), (unsigned long long)o.seed,
          m->how.n_threads, m->how.n_threads == 1 ? "" : "s");
   fflush(stdout);
   stop_on_signal();
   if (!make_trainer(m) || !train(m, o.out, o.steps ? 0 : 1.2 * o.seconds)) return EXIT_FAILURE;
   if (interrupted) return stopped(m, o.out);
   if (o.out && !save(m, o.out)) return EXIT_FAILURE;
   if (!print_evaluation(m, &start)) return EXIT_FAILURE;

   printf("\nsample    causal, temperature %g, top-p %g\n\n", o.temperature, o.top_p);
   if (!generate(m, o.prompt, strlen(o.prompt), 1)) return EXIT_FAILURE;
   if (is_routed(m)) {
      int n = o.columns < o.context ? o.columns : o.context;
      printf("\nmap       of test text; ");
      if (!make_batch(m, 1) || !route_text(m, &n) || !draw(m, n, (long long)o.at)) return EXIT_FAILURE;
   }
   if (o.out) print_next(o.out);
   else printf("\nnext      to keep a model:  %s train --data FILE --out model.safetensors\n", program);
   return EXIT_SUCCESS;
}

/* ---- which command ----------------------------------------------------------------------------------------------- */

static const struct command {
   const char *name, *word, *does;
   int (*run)(lm *m);
   const option *table;
   size_t n_options;
} commands[] = {
#define TABLE(t) t, sizeof t / sizeof t[0]
   {"train", NULL, "trains a model on a text, or goes on; Ctrl-C stops it, and nothing is lost", lm_train,
    TABLE(train_options)},
   {"sample", "MODEL", "lets a model write", lm_sample, TABLE(sample_options)},
   {"eval", "MODEL", "its loss with top-k and causally, and how well it foretells its routes", lm_eval,
    TABLE(eval_options)},
   {"routes", "MODEL", "draws which token goes through which block", lm_routes, TABLE(routes_options)},
   {"match", NULL, "which depth gives a routed model the FLOPs of another", lm_match, TABLE(match_options)},
   {"info", "MODEL", "what a file holds, what it costs, where it comes from", lm_info, TABLE(info_options)},
   {"run", NULL, "all of it in a minute: train, evaluate, sample, draw; keeps nothing by itself", lm_run,
    TABLE(run_options)}};
enum { N_COMMANDS = (int)(sizeof commands / sizeof commands[0]) };

static const struct command resume = {"train", NULL, "goes on with a training that was stopped", lm_train,
                                      TABLE(resume_options)};

static void help(FILE *to, const struct command *c)
{
   if (c) {
      fprintf(to, "lm %s%s%s [options]: %s\n\n", c->name, c->word ? " " : "", c->word ? c->word : "", c->does);
      option_help(to, c->table, (int)c->n_options);
   } else {
      fputs("lm - small Mixture-of-Depths language models of bytes\n\n", to);
      for (int i = 0; i < N_COMMANDS; ++i)
         fprintf(to, "   lm %-6s %-6s  %s\n", commands[i].name, commands[i].word ? commands[i].word : "",
                 commands[i].does);
      fputs("\nlm COMMAND --help lists its options.\n", to);
   }
   fputs("\nExit status: 0 done, 1 it failed, 2 it was not asked properly, 130 stopped by\n"
         "Ctrl-C (after train has saved).\n", to);
}

static int any(int argc, char **argv, const char *word)
{
   for (int i = 2; i < argc; ++i)
      if (strcmp(argv[i], word) == 0) return 1;
   return 0;
}

static int ask(int argc, char **argv, const struct command **c)
{
   char name[32];
   if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) return 0;
   for (int i = 0; argc > 1 && i < N_COMMANDS; ++i)
      if (strcmp(argv[1], commands[i].name) == 0) *c = &commands[i];
   if (!*c) {
      if (argc > 1) fprintf(stderr, "lm: unknown command '%s'\n\n", argv[1]);
      help(stderr, NULL);
      return -1;
   }
   snprintf(name, sizeof name, "lm %s", (*c)->name);
   if ((*c)->run == lm_run) o.prompt = "/* ";
   if (any(argc, argv, "--task")) set_task_defaults();
   if ((*c)->run == lm_routes) o.tokens = 0;
   if ((*c)->run == lm_train && any(argc, argv, "--resume")) *c = &resume;
   int asked = option_parse(name, (*c)->table, (int)(*c)->n_options, argc - 2, argv + 2, o.word, (*c)->word ? 1 : 0,
                            &o.n_words);
   if (asked == 1 && (*c)->word && !o.n_words) {
      fprintf(stderr, "%s: which %s? %s --help tells more\n", name, (*c)->word, name);
      return -1;
   }
   if (asked == 1 && o.task && o.data.n) {
      fprintf(stderr, "%s: --data or --task? It learns one text\n", name);
      return -1;
   }
   if (asked == 1 && (*c)->run == lm_train && !o.resume && !o.data.n && !o.task) {
      fprintf(stderr, "%s: on which text? Say --data FILE or --task sums, or --resume MODEL to go on\n", name);
      return -1;
   }
   return asked;
}

int main(int argc, char **argv)
{
   static lm m;
   const struct command *c = NULL;
   program = argv[0];
   m.began = seconds_now();
   wait_passively(argv);
   set_defaults();
   int asked = ask(argc, argv, &c);
   if (asked < 0) return EXIT_USAGE;
   if (asked == 0) {
      help(stdout, c);
      return EXIT_SUCCESS;
   }
#ifdef SIGPIPE
   signal(SIGPIPE, SIG_IGN); /* a closed pipe is then an error like others */
#endif
   int status = c->run(&m);
   if (fflush(stdout) != 0 || ferror(stdout)) {
      failed_file("standard output", "cannot be written");
      status = EXIT_FAILURE;
   }
   text_close(&m.text);
   mod_file_close(m.file);
   mod_tape_destroy(m.tape);
   mod_trainer_destroy(m.trainer);
   mod_model_destroy(m.model);
   free(m.tokens);
   free(m.targets);
   return status;
}
