/* lm.c - a small language model of bytes, from text to text in one go: train, evaluate, sample, look inside

      cc -O3 -fopenmp lm.c -o lm -lm
      ./lm run                 trains on mod.h and docs/ of this checkout: a model of its own source
      ./lm run --data FILE     on any other file
      ./lm --help

   The order of things is in run(), at the end of the file. Apart from the clock, which decides how many steps there
   are unless --steps says so, everything is a pure function of the text and the seed.
*/
#if defined(__unix__) || defined(__APPLE__)
#define LM_POSIX 1
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <dirent.h>
#include <unistd.h>
#endif
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(_OPENMP) && !defined(MOD_NO_OPENMP)
#include <omp.h>
#endif

#define MOD_IMPLEMENTATION
#include "../mod.h"

/* The size of the model: what a small machine learns something with in a minute. Change it here. */
enum { VOCAB = 256, CONTEXT = 128, LAYERS = 6, WIDTH = 48, HEADS = 3, SEQS = 4 };
enum { EVAL_WINDOWS = 64, MAP_COLUMNS = 76, TAB = 10 };
enum { EXIT_USAGE = 2 }; /* EXIT_FAILURE: the run failed */

/* ---- options ----------------------------------------------------------------------------------------------------- */

typedef struct options {
   const char *data, *prompt;
   int steps, threads, dense, gate, tokens;
   double seconds, capacity, temperature, top_p;
   uint64_t seed;
} options;

static const char *const gate_names[] = {"", "raw", "sigmoid", "tanh", "one"}; /* in the order of mod_gate_kind */

static void help(FILE *to)
{
   fputs("lm - trains a small Mixture-of-Depths model on the bytes of a text, and shows what it learned\n"
         "\n"
         "   lm run [options]     train, evaluate, sample, draw which tokens went through which block\n"
         "\n"
         "   --data FILE          the text; its last tenth is held out        (default: mod.h and docs/*.md in here)\n"
         "   --seconds S          time for everything; decides the number of steps               (default 75)\n"
         "   --steps N            that many steps instead, however long they take\n"
         "   --seed N             of weights, windows of text and sampling                       (default 1)\n"
         "   --threads N          never changes a result                (default: what is fastest here, at most 4)\n"
         "\n"
         "   --dense              route nothing: every token goes through every block\n"
         "   --capacity C         share of the tokens that a routed block takes, 0 < C <= 1      (default 0.125)\n"
         "   --gate G             raw, sigmoid, tanh or one: how the router's score scales       (default raw)\n"
         "\n"
         "   --prompt TEXT        what the sample goes on from                                   (default \"/* \")\n"
         "   --tokens N           length of the sample                                           (default 400)\n"
         "   --temperature X      0: always the likeliest byte                                   (default 0.8)\n"
         "   --top-p P            only the likeliest bytes that make up P, 0 < P <= 1            (default 1)\n"
         "\n"
         "exit status: 0 done, 1 it failed, 2 it was not asked properly\n",
         to);
}

static int bad_option(const char *name, const char *value, const char *wanted)
{
   fprintf(stderr, "lm: %s %s: expected %s\n", name, value, wanted);
   return 0;
}

static int parse_int(const char *name, const char *value, long least, long most, int *out)
{
   char *end, wanted[64];
   errno = 0;
   long x = strtol(value, &end, 10);
   snprintf(wanted, sizeof wanted, "a whole number from %ld to %ld", least, most);
   if (errno || end == value || *end || x < least || x > most) return bad_option(name, value, wanted);
   *out = (int)x;
   return 1;
}

/* least <= x <= most; or least < x, with `open` */
static int parse_real(const char *name, const char *value, double least, int open, double most, double *out)
{
   char *end, wanted[64];
   double x = strtod(value, &end);
   snprintf(wanted, sizeof wanted, open ? "a number above %g, at most %g" : "a number from %g to %g", least, most);
   if (end == value || *end || !(open ? x > least : x >= least) || !(x <= most)) return bad_option(name, value, wanted);
   *out = x;
   return 1;
}

static int parse_seed(const char *name, const char *value, uint64_t *out)
{
   char *end;
   errno = 0;
   unsigned long long x = strtoull(value, &end, 10);
   if (errno || end == value || *end || value[0] == '-') return bad_option(name, value, "a whole number");
   *out = (uint64_t)x;
   return 1;
}

static int parse_gate(const char *name, const char *value, int *out)
{
   for (int g = MOD_GATE_RAW; g <= MOD_GATE_ONE; ++g)
      if (strcmp(value, gate_names[g]) == 0) {
         *out = g;
         return 1;
      }
   return bad_option(name, value, "raw, sigmoid, tanh or one");
}

/* 1: run; 0: asked for help; -1: wrong, and said so */
static int parse(int argc, char **argv, options *o)
{
   memset(o, 0, sizeof *o);
   o->seconds = 75; o->seed = 1; o->tokens = 400; o->temperature = 0.8; o->top_p = 1; o->prompt = "/* ";
   o->gate = MOD_GATE_RAW;
   for (int i = 1; i < argc; ++i)
      if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 0;
   if (argc < 2 || strcmp(argv[1], "run") != 0) {
      if (argc < 2) fprintf(stderr, "lm: what shall I do?\n\n");
      else fprintf(stderr, "lm: unknown command '%s'\n\n", argv[1]);
      help(stderr);
      return -1;
   }
   for (int i = 2; i < argc; ++i) {
      const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
      int ok = 1;
      if (strcmp(name, "--dense") == 0) {
         o->dense = 1;
         continue;
      }
      static const char *const with_value[] = {"--data", "--prompt", "--steps", "--seconds", "--seed", "--threads",
                                               "--tokens", "--gate", "--capacity", "--temperature", "--top-p"};
      int known = 0;
      for (size_t j = 0; j < sizeof with_value / sizeof with_value[0]; ++j)
         known |= strcmp(name, with_value[j]) == 0;
      if (!known || !value) {
         fprintf(stderr, known ? "lm: %s needs a value\n" : "lm: unknown option '%s'; lm --help lists them\n", name);
         return -1;
      }
      ++i;
      if (strcmp(name, "--data") == 0) o->data = value;
      if (strcmp(name, "--prompt") == 0) ok = *value ? (o->prompt = value, 1) : bad_option(name, "''", "some text");
      if (strcmp(name, "--steps") == 0) ok = parse_int(name, value, 1, 100000000, &o->steps);
      if (strcmp(name, "--seconds") == 0) ok = parse_real(name, value, 1, 0, 1e7, &o->seconds);
      if (strcmp(name, "--seed") == 0) ok = parse_seed(name, value, &o->seed);
      if (strcmp(name, "--threads") == 0) ok = parse_int(name, value, 1, 256, &o->threads);
      if (strcmp(name, "--tokens") == 0) ok = parse_int(name, value, 0, 1000000, &o->tokens);
      if (strcmp(name, "--gate") == 0) ok = parse_gate(name, value, &o->gate);
      if (strcmp(name, "--capacity") == 0) ok = parse_real(name, value, 0, 1, 1, &o->capacity);
      if (strcmp(name, "--temperature") == 0) ok = parse_real(name, value, 0, 0, 100, &o->temperature);
      if (strcmp(name, "--top-p") == 0) ok = parse_real(name, value, 0, 1, 1, &o->top_p);
      if (!ok) return -1;
   }
   return 1;
}

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
   int whole = s > 0 ? (int)(s + 0.5) : 0;
   snprintf(out, sizeof(number), "%d:%02d", whole / 60, whole % 60);
   return out;
}

static double bits(double nats) { return nats / log(2.0); }

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

/* ---- the text ---------------------------------------------------------------------------------------------------- */

typedef struct text {
   unsigned char *bytes;
   size_t n, n_train, reserved; /* [0, n_train) is trained on, the rest is held out */
   int n_files;
} text;

/* Appends a file. 0 if it cannot be read. */
static int text_append(text *t, const char *path)
{
   FILE *f = fopen(path, "rb");
   if (!f) return 0;
   for (;;) {
      if (t->n == t->reserved) {
         size_t more = t->reserved ? t->reserved * 2 : (size_t)1 << 20;
         unsigned char *bytes = more > t->reserved ? (unsigned char *)realloc(t->bytes, more) : NULL;
         if (!bytes) {
            fclose(f);
            errno = ENOMEM;
            return 0;
         }
         t->bytes = bytes; t->reserved = more;
      }
      size_t got = fread(t->bytes + t->n, 1, t->reserved - t->n, f);
      if (!got) break;
      t->n += got;
   }
   int ok = !ferror(f);
   fclose(f);
   t->n_files += ok;
   return ok;
}

#ifdef LM_POSIX
static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }
#endif

/* The .md files of docs/ in order of name. What is not there is not read. */
static void text_append_docs(text *t)
{
#ifdef LM_POSIX
   enum { MAX_FILES = 64, MAX_NAME = 264 };
   static char names[MAX_FILES][MAX_NAME];
   int n = 0;
   DIR *dir = opendir("docs");
   if (!dir) return;
   for (struct dirent *e; n < MAX_FILES && (e = readdir(dir)) != NULL;) {
      size_t length = strlen(e->d_name);
      if (length > 3 && length < MAX_NAME - 6 && strcmp(e->d_name + length - 3, ".md") == 0)
         snprintf(names[n++], MAX_NAME, "docs/%s", e->d_name);
   }
   closedir(dir);
   qsort(names, (size_t)n, sizeof names[0], by_name);
   for (int i = 0; i < n; ++i) text_append(t, names[i]);
#else
   (void)t;
#endif
}

/* The text, split. 0 after saying what is wrong. */
static int text_read(text *t, const options *o)
{
   if (!o->data) text_append_docs(t);
   const char *path = o->data ? o->data : "mod.h";
   if (!text_append(t, path)) {
      fprintf(stderr, "lm: %s: %s%s\n", path, strerror(errno),
              o->data ? "" : "; run it from the folder of the checkout, or say --data FILE");
      return 0;
   }
   t->n_train = t->n - t->n / 10;
   if (t->n - t->n_train < CONTEXT + 1) {
      fprintf(stderr, "lm: %s: %lu bytes are too few; at least %d are needed\n", path, (unsigned long)t->n,
              10 * (CONTEXT + 1));
      return 0;
   }
   return 1;
}

/* ---- the model and its batches ----------------------------------------------------------------------------------- */

typedef struct lm {
   options o;
   text text;
   mod_config cfg;
   mod_train_desc how;
   mod_plan plan;
   mod_model *model;
   mod_trainer *trainer;
   mod_tape *tape; /* forward only: to evaluate and sample */
   mod_batch batch;
   int tokens[SEQS * CONTEXT], targets[SEQS * CONTEXT];
   double began;
} lm;

/* What the model is and how it is trained, but for the number of steps. */
static void describe(lm *m)
{
   m->cfg.vocab_size = VOCAB; m->cfg.context = CONTEXT; m->cfg.n_layers = LAYERS;
   m->cfg.d_model = WIDTH; m->cfg.n_heads = HEADS;
   m->cfg.capacity = m->o.capacity;
   m->cfg.gate = m->o.gate;
   if (m->o.dense) m->cfg.select = MOD_SELECT_ALL;
   m->cfg = mod_config_resolve(&m->cfg);

   m->how.n_seqs = SEQS;
   m->how.lr = 1e-2;
   m->how.weight_decay = 0.1;
   m->how.clip_norm = 1;
   m->how.seed = m->o.seed;
}

static void set_steps(lm *m, int steps)
{
   m->how.steps = steps;
   m->how.warmup = steps < 10 ? 1 : steps < 1000 ? steps / 10 : 100;
}

static void set_batch(lm *m, int n_seqs, int length, int with_targets, int mode)
{
   m->batch.n_seqs = n_seqs;
   m->batch.length = length;
   m->batch.tokens = m->tokens;
   m->batch.targets = with_targets ? m->targets : NULL;
   m->batch.mode = mode;
}

/* Sequence s of the batch: CONTEXT bytes from `offset`, each with its successor as the target. */
static void window(lm *m, int s, size_t offset)
{
   const unsigned char *from = m->text.bytes + offset;
   for (int i = 0; i < CONTEXT; ++i) {
      m->tokens[s * CONTEXT + i] = from[i];
      m->targets[s * CONTEXT + i] = from[i + 1];
   }
}

static void training_batch(lm *m, int step)
{
   for (int s = 0; s < SEQS; ++s) {
      uint64_t draw = mod_random_bits(m->o.seed, mod_random_stream("lm.window"), (uint64_t)step * SEQS + (uint64_t)s);
      window(m, s, (size_t)(draw % (uint64_t)(m->text.n_train - CONTEXT)));
   }
}

/* An error of the library, with its place. */
static int failed(const char *during, const mod_error *err)
{
   fprintf(stderr, "lm: %s: %s", during, err->message);
   if (err->block >= 0) fprintf(stderr, " (block %d)", err->block + 1);
   if (err->where >= 0) fprintf(stderr, " (at %lld)", (long long)err->where);
   fputc('\n', stderr);
   return 0;
}

static int build_model(lm *m)
{
   mod_error err;
   m->model = mod_model_create(&m->cfg, NULL, &err);
   if (m->model && mod_model_randomize(m->model, m->o.seed, &err) == MOD_RESULT_OK) return 1;
   return failed("model", &err);
}

/* The tape to evaluate and sample with: no gradients, and exactly as large as the larger of the two modes needs. */
static int build_tape(lm *m)
{
   mod_error err;
   mod_tape_desc forward = {0};
   size_t most = 0;
   forward.forward_only = 1;
   forward.n_threads = m->how.n_threads;
   for (int mode = MOD_MODE_TOPK; mode <= MOD_MODE_CAUSAL; ++mode) {
      size_t bytes;
      set_batch(m, SEQS, CONTEXT, 1, mode);
      if (mod_forward_plan(&m->cfg, &m->batch, &forward, &bytes, &err) != MOD_RESULT_OK) return failed("plan", &err);
      if (bytes > most) most = bytes;
   }
   m->tape = mod_tape_create(&forward, most, NULL, &err);
   return m->tape ? 1 : failed("memory", &err);
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

typedef struct score {
   double loss; /* nats per byte */
   double flops, formula;
   int64_t tokens, skipped;
   mod_block_stats blocks[LAYERS];
} score;

/* Fixed windows, spread evenly over the held-out text. */
static int evaluate(lm *m, int mode, score *out)
{
   mod_error err;
   size_t room = m->text.n - m->text.n_train - CONTEXT - 1; /* offsets 0 .. room */
   int lengths[SEQS];
   for (int s = 0; s < SEQS; ++s) lengths[s] = CONTEXT;
   memset(out, 0, sizeof *out);
   for (int w = 0; w < EVAL_WINDOWS; w += SEQS) {
      for (int s = 0; s < SEQS; ++s)
         window(m, s, m->text.n_train + (size_t)((double)room * (w + s) / (EVAL_WINDOWS - 1)));
      mod_forward f;
      mod_flops formula;
      set_batch(m, SEQS, CONTEXT, 1, mode);
      mod_tape_reset(m->tape);
      if (mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err) != MOD_RESULT_OK ||
          mod_config_flops(&m->cfg, SEQS, lengths, f.kept, &formula, &err) != MOD_RESULT_OK)
         return failed("evaluation", &err);
      out->loss += f.cross_entropy * SEQS / EVAL_WINDOWS;
      out->flops += f.flops_blocks + f.flops_head;
      out->formula += formula.total;
      out->tokens += f.n_tokens;
      out->skipped += f.skipped;
      for (int l = 0; l < LAYERS; ++l) {
         mod_block_stats *sum = &out->blocks[l];
         const mod_block_stats *b = &f.blocks[l];
         sum->routed = b->routed; sum->decided = b->decided;
         sum->tokens += b->tokens; sum->kept += b->kept;
         sum->predicted += b->predicted; sum->hits += b->hits; sum->agree += b->agree;
      }
   }
   return 1;
}

/* [0]: each routed block takes its k best, as in training. [1]: causally, as when sampling. */
static int evaluate_both(lm *m, score out[2])
{
   return evaluate(m, MOD_MODE_TOPK, &out[0]) && evaluate(m, MOD_MODE_CAUSAL, &out[1]);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* One sampled byte costs a forward pass over the whole context as long as there is no cache. */
static int time_forward(lm *m, double *seconds)
{
   mod_error err;
   mod_forward f;
   double t = seconds_now();
   set_batch(m, 1, CONTEXT, 0, MOD_MODE_CAUSAL);
   mod_tape_reset(m->tape);
   if (mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err) != MOD_RESULT_OK) return failed("forward", &err);
   *seconds = seconds_now() - t;
   return 1;
}

/* A few steps on a model that is then made anew: how long does a step take? */
static int time_step(lm *m, int n_threads, double *seconds)
{
   mod_error err;
   double t = 0, gone = 0;
   int ok = 1, step = 0;
   set_steps(m, 1000);
   m->how.n_threads = n_threads;
   mod_trainer *trainer = mod_trainer_create(m->model, &m->how, NULL, &err);
   if (!trainer) return failed("memory", &err);
   set_batch(m, SEQS, CONTEXT, 1, MOD_MODE_TOPK);
   for (; ok && (step < 3 || (step < 20 && gone < 0.7)); ++step) {
      if (step == 1) t = seconds_now(); /* the first one warms up */
      training_batch(m, step);
      ok = mod_train_step(trainer, &m->batch, NULL, &err) == MOD_RESULT_OK;
      gone = step ? seconds_now() - t : 0;
   }
   *seconds = gone / (step - 1);
   mod_trainer_destroy(trainer);
   ok = ok && mod_model_randomize(m->model, m->o.seed, &err) == MOD_RESULT_OK;
   return ok ? 1 : failed("training", &err);
}

/* One thread, or one per processor? Where other programs are running, threads that wait for each other lose more than
   they win, so both are tried. (More than four have too little to do in so small a model.) */
static int choose_threads(lm *m, double *step_seconds)
{
   int most = 1;
#if defined(_OPENMP) && !defined(MOD_NO_OPENMP)
   most = omp_get_num_procs() < 4 ? omp_get_num_procs() : 4;
#endif
   m->how.n_threads = m->o.threads;
   if (m->o.threads) return m->o.steps || time_step(m, m->o.threads, step_seconds);
   if (!time_step(m, most, step_seconds)) return 0;
   double one = *step_seconds;
   if (most > 1 && !time_step(m, 1, &one)) return 0;
   m->how.n_threads = one < *step_seconds ? 1 : most;
   *step_seconds = one < *step_seconds ? one : *step_seconds;
   return 1;
}

/* The progress line: rewritten in place on a terminal, a line every few seconds elsewhere. */
static void progress(const lm *m, int step, double loss, double t0, double *shown, int tty)
{
   double now = seconds_now(), gone = now - t0;
   int last = step == m->how.steps;
   if (!last && now - *shown < (tty ? 0.2 : 5.0)) return;
   *shown = now;
   number speed, elapsed, left;
   printf("%s  step %*d of %d   loss %.3f   %7s tokens/s   %s gone, %s to go  %s", tty ? "\r" : "",
          m->how.steps < 1000 ? 3 : 5, step, m->how.steps, loss, grouped(speed, (double)step * SEQS * CONTEXT / gone),
          minutes(elapsed, gone), minutes(left, gone / step * (m->how.steps - step)), tty && !last ? "" : "\n");
   fflush(stdout);
}

/* *steps: how many were done. All of them, unless the machine became much slower than it was at first. */
static int train(lm *m, int *steps)
{
   mod_error err;
   m->trainer = mod_trainer_create(m->model, &m->how, NULL, &err);
   if (!m->trainer) return failed("memory", &err);
   set_batch(m, SEQS, CONTEXT, 1, MOD_MODE_TOPK);
   double t0 = seconds_now(), shown = t0, smooth = 0;
   int tty = on_terminal();
   for (*steps = 0; *steps < m->how.steps;) {
      mod_step_info info;
      training_batch(m, *steps);
      if (mod_train_step(m->trainer, &m->batch, &info, &err) != MOD_RESULT_OK) {
         printf(tty ? "\n" : "");
         return failed("training", &err);
      }
      ++*steps;
      smooth = *steps == 1 ? info.loss : 0.95 * smooth + 0.05 * info.loss;
      progress(m, *steps, smooth, t0, &shown, tty);
      if (!m->o.steps && seconds_now() - m->began > 1.2 * m->o.seconds && *steps < m->how.steps) {
         printf("%s  stopped for lack of time: the machine became slower than it was at first\n", tty ? "\n" : "");
         break;
      }
   }
   return 1;
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

static void print_text(const text *t)
{
   number a, b;
   printf("text      %s bytes of %d file%s; the last %s are held out\n", grouped(a, (double)t->n), t->n_files,
          t->n_files == 1 ? "" : "s", grouped(b, (double)(t->n - t->n_train)));
   fflush(stdout);
}

static int print_model(lm *m)
{
   mod_error err;
   if (mod_model_plan(&m->cfg, &m->how, &m->plan, &err) != MOD_RESULT_OK) return failed("model", &err);
   mod_flops here, dense;
   mod_config full = m->cfg;
   number a, b, c, d, e;
   int length = CONTEXT;
   full.select = MOD_SELECT_ALL;
   if (mod_config_flops(&m->cfg, 1, &length, NULL, &here, &err) != MOD_RESULT_OK ||
       mod_config_flops(&full, 1, &length, NULL, &dense, &err) != MOD_RESULT_OK)
      return failed("model", &err);

   printf("model     %d blocks of width %d, %d heads, context %d; ", LAYERS, WIDTH, HEADS, CONTEXT);
   if (m->o.dense) printf("dense\n");
   else printf("every second one takes %g%% of the tokens, gate %s\n", 100 * m->cfg.capacity, gate_names[m->cfg.gate]);
   printf("          %s parameters; KB planned: parameters %s, gradient %s, moments %s, activations %s\n",
          grouped(a, (double)m->plan.n_params), grouped(b, (double)m->plan.params / 1024),
          grouped(c, (double)m->plan.grads / 1024), grouped(d, (double)m->plan.optimizer / 1024),
          grouped(e, (double)m->plan.activations / 1024));
   printf("          %s FLOPs a byte forward, %.1f%% of the dense model's %s\n", grouped(a, here.total / CONTEXT),
          100 * here.total / dense.total, grouped(b, dense.total / CONTEXT));
   return 1;
}

static int print_losses(const lm *m, const score start[2], const score end[2])
{
   static const char *const mode[] = {"top-k", "causal"};
   mod_error err;
   mod_flops dense;
   mod_config full = m->cfg;
   number a;
   int length = CONTEXT, same = 1;
   full.select = MOD_SELECT_ALL;
   if (mod_config_flops(&full, 1, &length, NULL, &dense, &err) != MOD_RESULT_OK) return failed("model", &err);

   printf("\nheld-out       start: nats     bits       end: nats     bits      FLOPs    of the\n");
   printf("text                a byte   a byte          a byte   a byte     a byte     dense\n");
   for (int i = 0; i < (m->o.dense ? 1 : 2); ++i) {
      printf("%-14s %11.3f %8.3f     %11.3f %8.3f %10s    %5.1f%%\n", m->o.dense ? "dense" : mode[i], start[i].loss,
             bits(start[i].loss), end[i].loss, bits(end[i].loss), grouped(a, end[i].flops / (double)end[i].tokens),
             100 * end[i].flops / ((double)end[i].tokens / CONTEXT * dense.total));
      same &= end[i].flops == end[i].formula;
   }
   if (same) printf("FLOPs as counted while it ran; the formula gives the same number\n");
   else printf("FLOPs as counted while it ran; THE FORMULA SAYS %.0f AND %.0f\n", end[0].formula, end[1].formula);
   return 1;
}

static void percent(double part, double whole)
{
   if (whole > 0) printf("%11.1f%%", 100 * part / whole);
   else printf("%12s", "-");
}

/* How well the deciding logits foretell the top-k: measured in top-k mode, where there is a truth. */
static void print_predictor(const score end[2])
{
   mod_block_stats all = {0};
   int64_t took = 0, of = 0;
   int decided = 0;
   for (int l = 0; l < LAYERS; ++l) decided += end[0].blocks[l].decided;
   if (!decided) return; /* with a capacity of 1 there is nothing to foretell */
   printf("\npredictor  accuracy 'skip' always   precision      recall  takes, causally\n");
   for (int l = 0; l <= LAYERS; ++l) {
      const mod_block_stats *b = l < LAYERS ? &end[0].blocks[l] : &all;
      if (l < LAYERS && !b->decided) continue;
      if (l < LAYERS) {
         all.tokens += b->tokens; all.kept += b->kept;
         all.predicted += b->predicted; all.hits += b->hits; all.agree += b->agree;
         took += end[1].blocks[l].kept, of += end[1].blocks[l].tokens;
         printf("block %d", l + 1);
      } else {
         printf("all    ");
      }
      percent((double)b->agree, (double)b->tokens);
      percent((double)(b->tokens - b->kept), (double)b->tokens);
      percent((double)b->hits, (double)b->predicted);
      percent((double)b->hits, (double)b->kept);
      if (l < LAYERS) percent((double)end[1].blocks[l].kept, (double)end[1].blocks[l].tokens);
      else percent((double)took, (double)of);
      printf("\n");
   }
   number a, b;
   printf("%s of %s tokens passed by every routed block, causally\n", grouped(a, (double)end[1].skipped),
          grouped(b, (double)end[1].tokens));
}

/* A byte as the terminal can show it. */
static void show(int byte)
{
   if (byte == '\n') printf("\n   ");
   else if (byte == '\t' || (byte >= 32 && byte < 127)) putchar(byte);
   else printf("\\x%02x", (unsigned)byte);
}

/* Goes on from the prompt, byte by byte: the last CONTEXT bytes through the causal forward pass, one byte drawn. */
static int print_sample(lm *m)
{
   mod_error err;
   mod_forward f;
   mod_sample_desc how = {0};
   how.temperature = m->o.temperature; how.top_p = m->o.top_p; how.seed = m->o.seed;
   int n = 0;
   printf("\nsample    causal, temperature %g, top-p %g\n\n   ", how.temperature, how.top_p);
   for (const char *p = m->o.prompt; *p; ++p) {
      if (n == CONTEXT) memmove(m->tokens, m->tokens + 1, sizeof(int) * (size_t)--n);
      m->tokens[n++] = (unsigned char)*p;
      show((unsigned char)*p);
   }
   for (int i = 0; i < m->o.tokens; ++i) {
      set_batch(m, 1, n, 0, MOD_MODE_CAUSAL);
      mod_tape_reset(m->tape);
      if (mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err) != MOD_RESULT_OK)
         return failed("sampling", &err);
      int next = mod_sample(f.logits->data + (size_t)(n - 1) * VOCAB, VOCAB, &how, (uint64_t)i, &err);
      if (next < 0) return failed("sampling", &err);
      if (n == CONTEXT) memmove(m->tokens, m->tokens + 1, sizeof(int) * (size_t)--n);
      m->tokens[n++] = next;
      show(next);
      fflush(stdout);
   }
   printf("\n");
   return 1;
}

/* The map: which positions entered which block, as the forward pass tells it. */
typedef struct map {
   unsigned char entered[LAYERS][MAP_COLUMNS];
} map;
static void map_probe(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   map *seen = (map *)user;
   (void)x;
   if (site != MOD_SITE_KEPT) return;
   for (int i = 0; i < rows->n; ++i) seen->entered[block][rows->position[i]] = 1;
}

static int print_map(lm *m)
{
   map seen;
   mod_error err;
   mod_forward f;
   size_t at = m->text.n_train + (m->text.n - m->text.n_train) / 2, last = m->text.n - MAP_COLUMNS;
   while (at < last && m->text.bytes[at - 1] != '\n') ++at; /* a piece that begins a line */
   if (at > last) at = last;

   memset(&seen, 0, sizeof seen);
   for (int i = 0; i < MAP_COLUMNS; ++i) m->tokens[i] = m->text.bytes[at + (size_t)i];
   set_batch(m, 1, MAP_COLUMNS, 0, MOD_MODE_CAUSAL);
   m->batch.probe = map_probe; m->batch.probe_user = &seen;
   mod_tape_reset(m->tape);
   mod_result result = mod_model_forward(m->model, m->tape, NULL, &m->batch, &f, &err);
   m->batch.probe = NULL;
   if (result != MOD_RESULT_OK) return failed("map", &err);

   printf("\nmap       a column is a byte of held-out text, a row is a block; "
          "\xe2\x96\x88 it went through, \xc2\xb7 it passed by\n\n");
   printf("%*s", TAB, "");
   for (int i = 0; i < MAP_COLUMNS; ++i) {
      int c = m->tokens[i];
      if (c == '\n') printf("\xc2\xb6"); /* pilcrow */
      else putchar(c >= 32 && c < 127 ? c : '~');
   }
   printf("  took\n");
   for (int l = 0; l < LAYERS; ++l) {
      int count = 0;
      printf("block %-2d  ", l + 1);
      for (int i = 0; i < MAP_COLUMNS; ++i) {
         count += seen.entered[l][i];
         printf(seen.entered[l][i] ? "\xe2\x96\x88" : "\xc2\xb7");
      }
      printf(f.blocks[l].routed ? "  %d\n" : "  all\n", count);
   }
   return 1;
}

/* The command again, but for its --steps and --seconds. */
static void print_again(int argc, char **argv)
{
   printf("%s run", argv[0]);
   for (int i = 2; i < argc; ++i) {
      if (strcmp(argv[i], "--steps") == 0 || strcmp(argv[i], "--seconds") == 0) ++i;
      else printf(strpbrk(argv[i], " *\\\"$&;|<>()") || !argv[i][0] ? " '%s'" : " %s", argv[i]);
   }
}

static void print_next(const lm *m, int steps, int argc, char **argv)
{
   int all = steps == m->how.steps;
   printf("\nnext      %s     ", all ? "this run again, the same numbers:" : "all of it, time or not:          ");
   print_again(argc, argv);
   printf(" --steps %d\n", m->how.steps);
   if (!m->o.dense) {
      printf("          the dense model of the same size:     ");
      print_again(argc, argv);
      printf(" --steps %d --dense\n", m->how.steps);
   }
   printf("          longer, and on a text of yours:       %s run --seconds 600 --data FILE\n", argv[0]);
}

/* ---- the order of things ----------------------------------------------------------------------------------------- */

static int run(lm *m, int argc, char **argv)
{
   score start[2], end[2];
   double step_seconds = 1, forward_seconds = 0, t;
   int steps = 0;

   if (!text_read(&m->text, &m->o)) return 0;
   print_text(&m->text);
   describe(m);
   if (!build_model(m) || !choose_threads(m, &step_seconds) || !build_tape(m) || !print_model(m)) return 0;

   t = seconds_now();
   if (!evaluate_both(m, start)) return 0;
   double evaluation = seconds_now() - t;

   if (m->o.steps) {
      set_steps(m, m->o.steps);
   } else { /* as many as fit into the time that evaluation and sampling leave */
      if (!time_forward(m, &forward_seconds)) return 0;
      double left = m->o.seconds - (seconds_now() - m->began) - evaluation - forward_seconds * m->o.tokens - 0.5;
      double fit = left / step_seconds;
      set_steps(m, fit < 10 ? 10 : fit > 1e8 ? 100000000 : (int)fit);
   }
   number a, b;
   printf("training  %s steps of %d x %d bytes (%s in all), seed %llu, %d thread%s\n\n", grouped(a, m->how.steps), SEQS,
          CONTEXT, grouped(b, (double)m->how.steps * SEQS * CONTEXT), (unsigned long long)m->o.seed,
          m->how.n_threads, m->how.n_threads == 1 ? "" : "s");
   fflush(stdout);

   if (!train(m, &steps) || !evaluate_both(m, end) || !print_losses(m, start, end)) return 0;
   if (!m->o.dense) print_predictor(end);
   if (!print_sample(m)) return 0;
   if (!m->o.dense && !print_map(m)) return 0;
   print_next(m, steps, argc, argv);
   return 1;
}

int main(int argc, char **argv)
{
   static lm m;
   m.began = seconds_now();
   wait_passively(argv);
   int asked = parse(argc, argv, &m.o);
   if (asked < 0) return EXIT_USAGE;
   if (asked == 0) {
      help(stdout);
      return EXIT_SUCCESS;
   }
   int ok = run(&m, argc, argv);
   mod_tape_destroy(m.tape);
   mod_trainer_destroy(m.trainer);
   mod_model_destroy(m.model);
   free(m.text.bytes);
   return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
