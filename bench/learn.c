/* learn.c - the slower learning check: a real text, three seeds, bars that were set before the first run

      make learn DATA=FILE          # FILE: tinyshakespeare, `input.txt` of char-rnn
      build/learn --help

   Trains the model that is judged, and others to compare it with; prints tables in Markdown; exits with 1 if a bar is
   missed. A finished run is a line of build/learn.csv, and one whose line is there, with this model, seed, number of
   steps and text, is not run again: what was stopped goes on. Remove that file when mod.h has changed.

   The first nine tenths of the text are trained on, windows drawn by the seed. Four fifths of the last tenth are for
   validation, in windows side by side; calibrated thresholds come from the rest, of which nothing is reported. */
#include "../examples/common/text.h" /* before any system header */
#include "../examples/common/options.h"
#include <time.h>
#define MOD_IMPLEMENTATION
#include "../mod.h"

/* The setting, fixed before the first run. What is not here is the library's default. */
enum { VOCAB = 256, CONTEXT = 256, WIDTH = 128, HEADS = 4, SEQS = 16, STEPS = 400, SEEDS = 3 };
enum { VALIDATION_MOST = 512, EVAL_SEQS = 64, CALIBRATION_SEQS = 64, LAYERS = 10, ROUTED = 5 };
static const double lr = 2e-3, weight_decay = 0.1, clip_norm = 1, warmup = 0.05, capacity = 0.125;
static const int shares[TEXT_N_PARTS] = {90, 8, 2};
static const char *const tinyshakespeare = "4016c93c3be74c18"; /* its text_hash */

enum { MOD, DENSE_6, STOCHASTIC, DENSE_10, MODELS };
static const char *const names[] = {"mod", "dense-6", "stochastic", "dense-10", "all", NULL};
static const int layers[MODELS] = {LAYERS, 6, LAYERS, LAYERS};
static const int selects[MODELS] = {MOD_SELECT_LEARNED, MOD_SELECT_ALL, MOD_SELECT_STOCHASTIC, MOD_SELECT_ALL};

/* What is measured, a column of the CSV each. NONE: an empty field. ACCURACY, RECALL, SHARE stand beside each other. */
enum {
   PARAMS, FLOPS, TOPK, CAUSAL, ACCURACY, RECALL, SHARE, CAL_CAUSAL, CAL_ACCURACY, CAL_RECALL, CAL_SHARE, SECONDS,
   BLOCKS, PER_BLOCK = 3, VALUES = BLOCKS + PER_BLOCK * ROUTED
};
static const char columns[] = "model,seed,steps,text_fnv1a,params,flops_per_token,topk_loss,causal_loss,accuracy,"
   "recall,causal_share,calibrated_causal_loss,calibrated_accuracy,calibrated_recall,calibrated_causal_share,"
   "train_seconds";
static const double NONE = -1;

/* For each seed of `mod`, with thresholds of 0. Accuracy, recall, share: the mean over its routed blocks. */
enum { BARS = 5 };
static const struct {
   const char *what, *bar;
   double least, most;
} bars[BARS] = {{"causal loss, nats a byte", "at most 1.95", 0, 1.95},
                {"causal loss beside the top-k loss, %", "within 0.5", -0.5, 0.5},
                {"predictor's accuracy, %", "at least 96", 96, 100},
                {"predictor's recall, %", "at least 85", 85, 100},
                {"routed share in causal mode, %", "12.5, give or take a fifth of it", 10, 15}};

static const char *data;
static int threads = 2, steps = STEPS, only = MODELS, seeds = SEEDS;
static const option table[] = {
   {"--data", "FILE", OPTION_TEXT, &data, 0, 0, NULL, "the text"},
   {"--threads", "N", OPTION_INT, &threads, 1, 256, NULL, "never changes a result (default 2)"},
   {"--model", "M", OPTION_CHOICE, &only, 0, 0, names, "mod, dense-6, stochastic, dense-10 or all (default all)"},
   {"--seeds", "N", OPTION_INT, &seeds, 1, SEEDS, NULL, "runs with the seeds 1 to N (default 3)"},
   {"--steps", "N", OPTION_INT, &steps, 1, 1000000, NULL, "for a trial; the bars are for 400 (default 400)"}};
enum { OPTIONS = sizeof table / sizeof table[0] };

static text_corpus text;
static char hash[17];
static FILE *csv;
static mod_error err;
static text_error text_err;
static int tokens[EVAL_SEQS * CONTEXT], targets[EVAL_SEQS * CONTEXT]; /* the most sequences that a batch has */

static int failed(const char *during, const char *why)
{
   fprintf(stderr, "learn: %s: %s\n", during, why);
   return 0;
}

static int window(int s, uint64_t position)
{
   if (text_read(&text, position, CONTEXT, tokens + s * CONTEXT, targets + s * CONTEXT, &text_err)) return 1;
   return failed("text", text_err.message);
}

/* How many windows, at most `most`, are taken from a part. */
static int windows_of(int part, int most)
{
   uint64_t all = text_windows(&text, part, CONTEXT);
   return all < (uint64_t)most ? (int)all : most;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

typedef struct lab {
   mod_config cfg;
   mod_model *model;
   mod_trainer *trainer;
   mod_tape *tape; /* forward only */
   mod_batch batch;
   uint64_t seed;
} lab;

static int make(lab *l, int m)
{
   mod_config *cfg = &l->cfg;
   mod_train_desc how = {0};
   mod_tape_desc desc = {0};
   size_t bytes[2];
   cfg->vocab_size = VOCAB; cfg->context = CONTEXT; cfg->d_model = WIDTH; cfg->n_heads = HEADS;
   cfg->n_layers = layers[m]; cfg->select = selects[m];
   cfg->route_first = cfg->route_every = 2; cfg->capacity = capacity; cfg->gate = MOD_GATE_RAW;
   how.n_seqs = SEQS; how.length = CONTEXT; how.steps = steps; how.warmup = (int)(warmup * steps + 0.5);
   how.lr = lr; how.weight_decay = weight_decay; how.clip_norm = clip_norm;
   desc.n_threads = how.n_threads = threads; desc.forward_only = 1; how.seed = l->seed;
   l->batch.n_seqs = EVAL_SEQS; l->batch.length = CONTEXT;
   l->batch.tokens = tokens; l->batch.targets = targets; l->batch.seed = l->seed;
   l->model = mod_model_create(cfg, NULL, &err);
   if (!l->model || mod_model_randomize(l->model, l->seed, &err) != MOD_RESULT_OK ||
       !(l->trainer = mod_trainer_create(l->model, &how, NULL, &err)))
      return failed("model", err.message);
   for (int mode = MOD_MODE_TOPK; mode <= MOD_MODE_CAUSAL; ++mode) {
      l->batch.mode = mode;
      if (mod_forward_plan(cfg, &l->batch, &desc, &bytes[mode], &err) != MOD_RESULT_OK)
         return failed("memory", err.message);
   }
   l->tape = mod_tape_create(&desc, bytes[0] > bytes[1] ? bytes[0] : bytes[1], NULL, &err);
   return l->tape ? 1 : failed("memory", err.message);
}

static int train(lab *l, const char *name, double *seconds)
{
   mod_step_info info;
   time_t began = time(NULL), shown = began, now;
   l->batch.n_seqs = SEQS; l->batch.mode = MOD_MODE_TOPK;
   for (int done = 0; done < steps;) {
      for (int s = 0; s < SEQS; ++s)
         if (!window(s, text_draw(&text, TEXT_TRAIN, CONTEXT, l->seed, (uint64_t)(done * SEQS + s)))) return 0;
      if (mod_train_step(l->trainer, &l->batch, &info, &err) != MOD_RESULT_OK) return failed("training", err.message);
      now = time(NULL);
      if (++done < steps && difftime(now, shown) < 10) continue;
      shown = now;
      *seconds = difftime(now, began);
      fprintf(stderr, "%s, seed %d: step %d of %d, loss %.3f, %.0f s gone, %.0f to go\n", name, (int)l->seed, done,
              steps, info.loss, *seconds, *seconds / done * (steps - done));
   }
   return 1;
}

/* n windows, from the first-th of `all` that are spread over a part on, into the batch. */
static int fill(lab *l, int part, int first, int n, int all)
{
   l->batch.n_seqs = n;
   l->batch.first_id = (uint64_t)first;
   for (int s = 0; s < n; ++s)
      if (!window(s, text_spread(&text, part, CONTEXT, (uint64_t)(first + s), (uint64_t)all))) return 0;
   mod_tape_reset(l->tape);
   return 1;
}

/* The validation text: nats a byte; and sums for each block and, at [LAYERS], for all that are routed. */
static int evaluate(lab *l, int mode, double *loss, mod_block_stats *sums)
{
   mod_forward f;
   int all = windows_of(TEXT_VALIDATION, VALIDATION_MOST);
   *loss = 0;
   memset(sums, 0, (LAYERS + 1) * sizeof *sums);
   l->batch.mode = mode;
   for (int first = 0, n; first < all; first += n) {
      n = all - first < EVAL_SEQS ? all - first : EVAL_SEQS;
      if (!fill(l, TEXT_VALIDATION, first, n, all)) return 0;
      if (mod_model_forward(l->model, l->tape, NULL, &l->batch, &f, &err) != MOD_RESULT_OK)
         return failed("evaluation", err.message);
      *loss += f.cross_entropy * n / all;
      for (int b = 0; b < l->cfg.n_layers; ++b)
         for (int to = b; f.blocks[b].routed && to <= LAYERS; to += LAYERS - b) {
            sums[to].routed = 1; sums[to].decided = f.blocks[b].decided;
            sums[to].tokens += f.blocks[b].tokens; sums[to].kept += f.blocks[b].kept;
            sums[to].hits += f.blocks[b].hits; sums[to].agree += f.blocks[b].agree;
         }
   }
   return 1;
}

/* Accuracy and recall of the deciding logits, of a top-k pass; the share that is taken, of a causal one. */
static void rates(double *to, const mod_block_stats *topk, const mod_block_stats *causal)
{
   to[0] = topk->decided ? (double)topk->agree / (double)topk->tokens : NONE;
   to[1] = topk->decided ? (double)topk->hits / (double)topk->kept : NONE;
   to[2] = causal->routed ? (double)causal->kept / (double)causal->tokens : NONE;
}

static int measure(lab *l, int m, double *v)
{
   mod_flops flops;
   mod_block_stats topk[LAYERS + 1], causal[LAYERS + 1];
   size_t params = 0;
   int length = CONTEXT, n = windows_of(TEXT_TEST, CALIBRATION_SEQS), routed = 0;
   if (!make(l, m) || !train(l, names[m], &v[SECONDS])) return 0;
   if (mod_config_flops(&l->cfg, 1, &length, NULL, &flops, &err) != MOD_RESULT_OK) return failed("FLOPs", err.message);
   mod_model_params(l->model, &params);
   v[PARAMS] = (double)params; v[FLOPS] = flops.total / CONTEXT;
   if (!evaluate(l, MOD_MODE_TOPK, &v[TOPK], topk) || !evaluate(l, MOD_MODE_CAUSAL, &v[CAUSAL], causal)) return 0;
   rates(&v[ACCURACY], &topk[LAYERS], &causal[LAYERS]);
   for (int b = 0; b < LAYERS; ++b)
      if (topk[b].routed) rates(&v[BLOCKS + PER_BLOCK * routed++], &topk[b], &causal[b]);
   if (!topk[LAYERS].decided) return 1;
   double again;
   if (!fill(l, TEXT_TEST, 0, n, n)) return 0;
   if (mod_model_calibrate(l->model, l->tape, &l->batch, &err) != MOD_RESULT_OK)
      return failed("calibration", err.message);
   if (!evaluate(l, MOD_MODE_TOPK, &again, topk) || !evaluate(l, MOD_MODE_CAUSAL, &v[CAL_CAUSAL], causal)) return 0;
   rates(&v[CAL_ACCURACY], &topk[LAYERS], &causal[LAYERS]);
   return 1;
}

/* ---- the CSV file ------------------------------------------------------------------------------------------------ */

/* Is the run there, with all its values? */
static int find(const char *key, double *v)
{
   char line[2048];
   rewind(csv);
   while (fgets(line, sizeof line, csv)) {
      int n = 0;
      if (strncmp(line, key, strlen(key)) != 0) continue;
      for (char *at = line + strlen(key), *end; n < VALUES && *at == ','; at = end) {
         double x = strtod(++at, &end);
         v[n++] = end == at ? NONE : x;
      }
      if (n == VALUES && strchr(line, '\n')) return 1;
   }
   return 0;
}

/* Appends a run, or the line at the top. */
static int append(const char *key, const double *v)
{
   fseek(csv, 0, SEEK_END);
   fprintf(csv, "%s", key);
   for (int i = 0; v && i < VALUES; ++i) fprintf(csv, v[i] < 0 ? "," : ",%.9g", v[i]);
   for (int b = 2; !v && b <= 2 * ROUTED; b += 2) fprintf(csv, ",accuracy_%d,recall_%d,causal_share_%d", b, b, b);
   fprintf(csv, "\n");
   return fflush(csv) == 0 && !ferror(csv) ? 1 : failed("build/learn.csv", "cannot be written");
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static double gap(const double *v, double causal) { return 100 * (causal - v[TOPK]) / v[TOPK]; }

static void percents(const double *x)
{
   for (int i = 0; i < PER_BLOCK; ++i) printf(x[i] < 0 ? " - |" : " %.2f |", 100 * x[i]);
}

static void print_run(int m, int seed, const double *v)
{
   printf("| %s | %d | %.0f | %.0f | %d | %.4f | %.4f | %+.2f |", names[m], seed, v[PARAMS], v[FLOPS], steps, v[TOPK],
          v[CAUSAL], gap(v, v[CAUSAL]));
   percents(&v[ACCURACY]);
   printf(" %.0f |\n", v[SECONDS]);
   fflush(stdout);
}

static void print_details(double v[SEEDS][VALUES])
{
   printf("\nThe routed blocks of `mod`, and all with thresholds calibrated on %d other windows of held-out text:\n\n"
          "| block | seed | causal loss | gap %% | accuracy %% | recall %% | routed share %% |\n"
          "|---|---|---|---|---|---|---|\n", windows_of(TEXT_TEST, CALIBRATION_SEQS));
   for (int s = 0; s < seeds; ++s)
      for (int b = 0; b <= ROUTED; ++b) {
         if (b < ROUTED) printf("| %d | %d | | |", 2 * b + 2, s + 1);
         else printf("| calibrated | %d | %.4f | %+.2f |", s + 1, v[s][CAL_CAUSAL], gap(v[s], v[s][CAL_CAUSAL]));
         percents(b < ROUTED ? &v[s][BLOCKS + PER_BLOCK * b] : &v[s][CAL_ACCURACY]);
         printf("\n");
      }
}

/* The number of bars that are missed. */
static int judge(double v[SEEDS][VALUES])
{
   int missed = 0;
   printf("\n| | seed | of `mod` | measured | bar |\n|---|---|---|---|---|\n");
   for (int s = 0; s < seeds; ++s) {
      const double *x = v[s];
      const double got[BARS] = {x[CAUSAL], gap(x, x[CAUSAL]), 100 * x[ACCURACY], 100 * x[RECALL], 100 * x[SHARE]};
      for (int b = 0; b < BARS; ++b) {
         int ok = got[b] >= bars[b].least && got[b] <= bars[b].most;
         missed += !ok;
         printf("| %s | %d | %s | %.4f | %s |\n", ok ? "PASS" : "miss", s + 1, bars[b].what, got[b], bars[b].bar);
      }
   }
   printf("\n%d of %d bars passed%s\n", BARS * seeds - missed, BARS * seeds,
          seeds < SEEDS ? "; not all seeds were run" : "");
   return missed;
}

int main(int argc, char **argv)
{
   static double judged[SEEDS][VALUES];
   int n_words = 0, kept = 0;
   int asked = option_parse("learn", table, OPTIONS, argc - 1, argv + 1, NULL, 0, &n_words);
   if (asked == 0) option_help(stdout, table, OPTIONS);
   if (asked <= 0) return asked == 0 ? 0 : 2;
   text_desc desc = {0};
   uint64_t fnv;
   desc.paths = &data; desc.n_paths = 1;
   memcpy(desc.shares, shares, sizeof shares);
   if (!data) return failed("no text", "say --data FILE"), 2;
   if (!text_open(&text, &desc, &text_err) || !text_hash(&text, &fnv, &text_err))
      return failed(data, text_err.code ? strerror(text_err.code) : text_err.message), 2;
   if (!windows_of(TEXT_VALIDATION, 1) || !windows_of(TEXT_TEST, 1)) return failed(data, "the text is too short"), 2;
   snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv);
   if (!(csv = fopen("build/learn.csv", "a+"))) return failed("build/learn.csv", strerror(errno)), 2;
   rewind(csv);
   if (fgetc(csv) == EOF && !append(columns, NULL)) return 2;

   printf("Text: %s, %llu bytes, fnv1a %s; %d windows of %d bytes for validation; %d threads.\n%s\n\n",
          strcmp(hash, tinyshakespeare) == 0 ? "tinyshakespeare" : "NOT tinyshakespeare, for which the bars are",
          (unsigned long long)text.n_bytes, hash, windows_of(TEXT_VALIDATION, VALIDATION_MOST), CONTEXT, threads,
          mod_build_info());
   printf("| model | seed | params | FLOPs/token | steps | top-k loss | causal loss | gap %% | accuracy %% | recall %% "
          "| routed share %% | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
   for (int m = 0; m < MODELS; ++m)
      for (int seed = 1; seed <= seeds && (only == MODELS || only == m); ++seed) {
         double v[VALUES];
         char key[80];
         lab l = {0};
         snprintf(key, sizeof key, "%s,%d,%d,%s", names[m], seed, steps, hash);
         int ok = find(key, v);
         kept += ok;
         if (!ok) {
            for (int i = 0; i < VALUES; ++i) v[i] = NONE;
            l.seed = (uint64_t)seed;
            ok = measure(&l, m, v) && append(key, v);
            mod_tape_destroy(l.tape); mod_trainer_destroy(l.trainer); mod_model_destroy(l.model);
         }
         if (!ok) return 2;
         print_run(m, seed, v);
         if (m == MOD) memcpy(judged[seed - 1], v, sizeof v);
      }
   if (kept) printf("\nFrom build/learn.csv, not run now: %d of these.\n", kept);
   int missed = 0;
   if (only == MODELS || only == MOD) {
      print_details(judged);
      if (steps == STEPS) missed = judge(judged);
      else printf("\nNot judged: the bars are for %d steps.\n", STEPS);
   }
   text_close(&text);
   fclose(csv);
   return missed > 0;
}
