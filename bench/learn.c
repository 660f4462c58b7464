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
#include "../mod.h"
#include "lab.h"

/* The setting, fixed before the first run. What is not here is the library's default. */
enum { VOCAB = 256, CONTEXT = 256, WIDTH = 128, HEADS = 4, SEQS = 16, STEPS = 400, SEEDS = 3 };
enum { VALIDATION_MOST = 512, EVAL_SEQS = 64, LAYERS = 10, ROUTED = 5 };
static const double lr = 2e-3, weight_decay = 0.1, clip_norm = 1, warmup = 0.05, capacity = 0.125;
static const double init = 0.02; /* as flat.h has it: of mod.h before 0.5 */
static const int shares[TEXT_N_PARTS] = {90, 8, 2};
static const char *const tinyshakespeare = "4016c93c3be74c18"; /* its text_hash */

enum { MOD, DENSE_6, STOCHASTIC, DENSE_10, MODELS };
static const char *const names[] = {"mod", "dense-6", "stochastic", "dense-10", "all", NULL};
static const int layers[MODELS] = {LAYERS, 6, LAYERS, LAYERS};
static const int selects[MODELS] = {MOD_SELECT_LEARNED, MOD_SELECT_ALL, MOD_SELECT_STOCHASTIC, MOD_SELECT_ALL};

/* What is measured, a column of the CSV each. LAB_NONE: an empty field. ACCURACY, RECALL, SHARE are side by side. */
enum {
   PARAMS, FLOPS, TOPK, CAUSAL, ACCURACY, RECALL, SHARE, CAL_CAUSAL, CAL_ACCURACY, CAL_RECALL, CAL_SHARE, SECONDS,
   BLOCKS, PER_BLOCK = 3, VALUES = BLOCKS + PER_BLOCK * ROUTED
};
static const char columns[] = "model,seed,steps,text_fnv1a,params,flops_per_token,topk_loss,causal_loss,accuracy,"
   "recall,causal_share,calibrated_causal_loss,calibrated_accuracy,calibrated_recall,calibrated_causal_share,"
   "train_seconds";

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
static text_error text_err;
static char hash[17];
static FILE *csv;

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void set(lab *l, int m, int seed)
{
   mod_config *cfg = &l->cfg;
   mod_train_desc *how = &l->how;
   cfg->vocab_size = VOCAB; cfg->context = CONTEXT; cfg->d_model = WIDTH; cfg->n_heads = HEADS;
   cfg->n_layers = layers[m]; cfg->select = selects[m];
   cfg->route_first = cfg->route_every = 2; cfg->capacity = capacity; cfg->gate = MOD_GATE_RAW;
   how->n_seqs = SEQS; how->steps = steps; how->warmup = (int)(warmup * steps + 0.5);
   how->lr = lr; how->weight_decay = weight_decay; how->clip_norm = clip_norm;
   how->n_threads = threads;
   l->text = &text;
   l->eval_seqs = EVAL_SEQS;
   l->seed = (uint64_t)seed;
   l->init = init;
   l->repeats = 1;
}

static int train(lab *l, const char *name, double *seconds)
{
   mod_step_info info;
   double began = lab_seconds(), shown = began;
   for (int done = 0; done < steps;) {
      if (!lab_step(l, &info)) return 0;
      if (++done < steps && lab_seconds() - shown < 10) continue;
      shown = lab_seconds();
      *seconds = shown - began;
      fprintf(stderr, "%s, seed %d: step %d of %d, loss %.3f, %.0f s gone, %.0f to go\n", name, (int)l->seed, done,
              steps, info.loss, *seconds, *seconds / done * (steps - done));
   }
   return 1;
}

static void rates(double *to, const mod_path_stats *topk, const mod_path_stats *causal)
{
   double r[LAB_RATES];
   lab_rates(r, topk, causal);
   to[0] = r[LAB_ACCURACY]; to[1] = r[LAB_RECALL]; to[2] = r[LAB_SHARE];
}

static int evaluate(lab *l, int mode, lab_result *to, mod_path_stats *blocks)
{
   return lab_evaluate(l, TEXT_VALIDATION, mode, VALIDATION_MOST, to, blocks);
}

static int measure(lab *l, int m, double *v)
{
   mod_flops flops;
   lab_result topk, causal;
   mod_path_stats by_topk[LAYERS], causally[LAYERS];
   size_t params = 0;
   int length = CONTEXT, routed = 0;
   if (!lab_make(l) || !train(l, names[m], &v[SECONDS])) return 0;
   if (mod_config_flops(&l->cfg, 1, &length, NULL, &flops, &l->err) != MOD_RESULT_OK)
      return lab_failed("FLOPs", l->err.message);
   mod_model_params(l->model, &params);
   v[PARAMS] = (double)params; v[FLOPS] = flops.total / CONTEXT;
   if (!evaluate(l, MOD_MODE_TOPK, &topk, by_topk) || !evaluate(l, MOD_MODE_CAUSAL, &causal, causally)) return 0;
   v[TOPK] = topk.loss; v[CAUSAL] = causal.loss;
   rates(&v[ACCURACY], &topk.all, &causal.all);
   for (int b = 0; b < l->cfg.n_layers; ++b)
      if (by_topk[b].tokens) rates(&v[BLOCKS + PER_BLOCK * routed++], &by_topk[b], &causally[b]);
   if (!topk.all.decided) return 1;
   if (!lab_calibrate(l, TEXT_TEST) || !evaluate(l, MOD_MODE_TOPK, &topk, NULL) ||
       !evaluate(l, MOD_MODE_CAUSAL, &causal, NULL))
      return 0;
   v[CAL_CAUSAL] = causal.loss;
   rates(&v[CAL_ACCURACY], &topk.all, &causal.all);
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
         v[n++] = end == at ? LAB_NONE : x;
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
   return fflush(csv) == 0 && !ferror(csv) ? 1 : lab_failed("build/learn.csv", "cannot be written");
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
          "|---|---|---|---|---|---|---|\n", lab_windows(&text, TEXT_TEST, CONTEXT, EVAL_SEQS));
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
   if (!data) return lab_failed("no text", "say --data FILE"), 2;
   if (!text_open(&text, &desc, &text_err) || !text_hash(&text, &fnv, &text_err))
      return lab_failed(data, text_err.code ? strerror(text_err.code) : text_err.message), 2;
   if (!text_windows(&text, TEXT_VALIDATION, CONTEXT) || !text_windows(&text, TEXT_TEST, CONTEXT))
      return lab_failed(data, "the text is too short"), 2;
   snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv);
   if (!(csv = fopen("build/learn.csv", "a+"))) return lab_failed("build/learn.csv", strerror(errno)), 2;
   rewind(csv);
   if (fgetc(csv) == EOF && !append(columns, NULL)) return 2;

   printf("Text: %s, %llu bytes, fnv1a %s; %d windows of %d bytes for validation; %d threads.\n%s\n\n",
          strcmp(hash, tinyshakespeare) == 0 ? "tinyshakespeare" : "NOT tinyshakespeare, for which the bars are",
          (unsigned long long)text.n_bytes, hash, lab_windows(&text, TEXT_VALIDATION, CONTEXT, VALIDATION_MOST), CONTEXT,
          threads,
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
            for (int i = 0; i < VALUES; ++i) v[i] = LAB_NONE;
            set(&l, m, seed);
            ok = measure(&l, m, v) && append(key, v);
            lab_end(&l);
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
