/* experiments.c - runs what bench/experiments/plan.txt lists, one after the other

      make experiments DATA=FILE     # FILE: the text that bench/experiments/text.sh makes
      build/experiments --help

   A finished run is a line of runs.csv, and is not run again: what was stopped goes on. Runs that say full=yes also
   write their course to curves.csv and keep their model in build/models/. The library gives the same bits on every
   machine with any number of threads, so only the seconds differ from one machine to the next. Started twice, it does
   two runs at a time: with models this small that is faster than two threads for one. */
#include "../examples/common/text.h" /* before any system header */
#include "../examples/common/options.h"
#include <fcntl.h>
#include <sys/stat.h>
#include "../mod.h"
#include "lab.h"
#include "experiments/spec.h"

enum { EVAL_SEQS = 32, VALIDATION_MOST = 512, CURVE_MOST = 64, TEST_MOST = 1024, POINTS = 16, TAIL = 10, TRIAL = 2 };

/* What is measured, a column each. LAB_NONE: an empty field. The four of RATES stand beside each other. */
enum {
   PARAMS, FLOPS, STEPS, SECONDS, TRAIN, TOPK, CAUSAL, RATES,
   TEST_TOPK = RATES + LAB_RATES, TEST_CAUSAL, TEST_CALIBRATED, CALIBRATED_RATES, VALUES = CALIBRATED_RATES + LAB_RATES
};
static const char columns[] = "params,flops_per_token,steps,seconds,train_topk_loss,validation_topk_loss,"
   "validation_loss,accuracy,precision,recall,share,test_topk_loss,test_loss,test_calibrated_loss,"
   "calibrated_accuracy,calibrated_precision,calibrated_recall,calibrated_share";
static const char curve_columns[] = "step,train_topk_loss,validation_loss,accuracy,precision,recall,share,seconds";

static const char *data, *plan = "bench/experiments/plan.txt", *out = "bench/experiments", *stage;
static int threads = 1, quick, estimate, speed;
static const option table[] = {
   {"--data", "FILE", OPTION_TEXT, &data, 0, 0, NULL, "the text, made by bench/experiments/text.sh"},
   {"--plan", "FILE", OPTION_TEXT, &plan, 0, 0, NULL, "what to run (default bench/experiments/plan.txt)"},
   {"--out", "DIR", OPTION_TEXT, &out, 0, 0, NULL, "where the CSV files are (default bench/experiments)"},
   {"--stage", "NAME", OPTION_TEXT, &stage, 0, 0, NULL, "only the lines of this stage"},
   {"--threads", "N", OPTION_INT, &threads, 1, 256, NULL, "never changes a result (default 1)"},
   {"--speed", NULL, OPTION_FLAG, &speed, 0, 0, NULL,
    "time the first seed's models instead, taking turns: training steps and, of\n"
    "those that full=yes has kept, decoding, into speed.csv; on an idle machine"},
   {"--estimate", NULL, OPTION_FLAG, &estimate, 0, 0, NULL, "say how long it would take, and stop"},
   {"--quick", NULL, OPTION_FLAG, &quick, 0, 0, NULL,
    "the first run of each line, a few steps of it, on a made-up text:\n"
    "to see that all works; the numbers mean nothing; needs no --data"}};
enum { OPTIONS = sizeof table / sizeof table[0] };

static text_corpus text;
static char hash[17];
static FILE *csv, *curves;
static int claims; /* a file of which a byte is locked for each run that is under way */

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static int most(int windows) { return quick ? 4 : windows; }

static void put(FILE *to, const char *key, const double *v, int n)
{
   fputs(key, to);
   for (int i = 0; i < n; ++i) fprintf(to, v[i] < 0 ? "," : ",%.9g", v[i]);
   fputc('\n', to);
   fflush(to);
}

static int train(lab *l, const char *key, int full, double *v)
{
   int steps = l->how.steps, tail = steps - (steps + TAIL - 1) / TAIL, counted = 0;
   double began = lab_seconds(), shown = began, aside = 0, sum = 0;
   mod_path_stats topk = {0};
   mod_step_info info;
   v[TRAIN] = 0;
   for (int done = 1; done <= steps; ++done) {
      if (!lab_step(l, &info)) return 0;
      sum += info.loss;
      ++counted;
      for (int b = 0; b < l->cfg.n_layers; ++b) lab_count(&topk, &mod_trainer_forward(l->trainer)->blocks[b]);
      if (done > tail) v[TRAIN] += info.loss / (steps - tail);
      if (full && done * POINTS / steps > (done - 1) * POINTS / steps) {
         lab_result now;
         double at = lab_seconds(), p[3 + LAB_RATES + 1] = {done, sum / counted};
         if (!lab_evaluate(l, TEXT_VALIDATION, MOD_MODE_CAUSAL, most(CURVE_MOST), &now, NULL)) return 0;
         p[2] = now.loss;
         lab_rates(p + 3, &topk, &now.all);
         p[3 + LAB_RATES] = at - began - aside;
         put(curves, key, p, 3 + LAB_RATES + 1);
         memset(&topk, 0, sizeof topk);
         sum = counted = 0;
         aside += lab_seconds() - at;
      }
      if (lab_seconds() - shown > 30) {
         shown = lab_seconds();
         fprintf(stderr, "   step %d of %d, loss %.3f\n", done, steps, info.loss);
      }
   }
   v[SECONDS] = lab_seconds() - began - aside;
   return 1;
}

static void model_name(char *name, size_t size, const char *key)
{
   snprintf(name, size, "build/models/%s.safetensors", key);
   for (char *at = name; *at; ++at)
      if (*at == ',') *at = '_';
}

static int measure(lab *l, const char *key, int full, double *v)
{
   lab_result topk, causal;
   size_t params = 0;
   if (!train(l, key, full, v)) return 0;
   mod_model_params(l->model, &params);
   v[PARAMS] = (double)params; v[STEPS] = l->how.steps;
   if (!lab_evaluate(l, TEXT_VALIDATION, MOD_MODE_TOPK, most(VALIDATION_MOST), &topk, NULL) ||
       !lab_evaluate(l, TEXT_VALIDATION, MOD_MODE_CAUSAL, most(VALIDATION_MOST), &causal, NULL))
      return 0;
   v[TOPK] = topk.loss; v[CAUSAL] = causal.loss;
   lab_rates(&v[RATES], &topk.all, &causal.all);
   if (!full) return 1;
   char name[512];
   model_name(name, sizeof name, key);
   if (mod_save_file(l->model, NULL, name, &l->err) != MOD_RESULT_OK) return lab_failed(name, l->err.message);
   if (!lab_evaluate(l, TEXT_TEST, MOD_MODE_TOPK, most(TEST_MOST), &topk, NULL) ||
       !lab_evaluate(l, TEXT_TEST, MOD_MODE_CAUSAL, most(TEST_MOST), &causal, NULL))
      return 0;
   v[TEST_TOPK] = topk.loss; v[TEST_CAUSAL] = causal.loss;
   if (!topk.all.decided) return 1;
   if (!lab_calibrate(l, TEXT_VALIDATION) ||
       !lab_evaluate(l, TEXT_TEST, MOD_MODE_TOPK, most(TEST_MOST), &topk, NULL) ||
       !lab_evaluate(l, TEXT_TEST, MOD_MODE_CAUSAL, most(TEST_MOST), &causal, NULL))
      return 0;
   v[TEST_CALIBRATED] = causal.loss;
   lab_rates(&v[CALIBRATED_RATES], &topk.all, &causal.all);
   return 1;
}

/* ---- the plan and the CSV ---------------------------------------------------------------------------------------- */

typedef struct job {
   spec s;
   mod_config cfg;
   double flops; /* per token */
   int full;
   char key[320];
} job;
static job *jobs;
static int n_jobs;

/* Is the run's line there, whole? */
static int is_done(const char *key)
{
   char line[2048];
   rewind(csv);
   while (fgets(line, sizeof line, csv)) {
      int commas = 0;
      if (strncmp(line, key, strlen(key)) != 0) continue;
      for (const char *at = line + strlen(key); *at; ++at) commas += *at == ',';
      if (commas == VALUES) return 1;
   }
   return 0;
}

/* 0: another process is at this run. What is claimed is free again when its process ends, however it ends. */
static int claim(const char *key)
{
   struct flock one = {0};
   one.l_type = F_WRLCK; one.l_whence = SEEK_SET; one.l_len = 1;
   one.l_start = (off_t)(mod_random_stream(key) >> 33);
   return fcntl(claims, F_SETLK, &one) == 0;
}

/* Every combination of the alternatives in a line, the last word's changing fastest. */
static int add_line(char *line, int number)
{
   char *words[64], *name[64], *alternatives[64][32], where[512];
   int n = 0, n_of[64], combinations = 1;
   snprintf(where, sizeof where, "%s:%d", plan, number);
   for (char *w = strtok(line, " \t\n"); w; w = strtok(NULL, " \t\n")) {
      if (n == 64) return lab_failed(where, "too many words");
      words[n++] = w;
   }
   for (int w = 0; w < n; ++w) {
      char *at = strchr(words[w], '=');
      if (!at) return lab_failed(where, "a word is not key=value");
      *at = '\0';
      name[w] = words[w];
      n_of[w] = 0;
      for (++at; at; at = strchr(at, ',')) {
         if (*at == ',') *at++ = '\0';
         if (n_of[w] == 32) return lab_failed(where, "too many alternatives");
         alternatives[w][n_of[w]++] = at;
      }
      combinations *= n_of[w];
   }
   for (int i = 0; i < (quick && !speed ? 1 : combinations); ++i) {
      job j = {0};
      int left = i, skip = 0, length = snprintf(j.key, sizeof j.key, "%.8s", hash);
      const char *wrong = NULL;
      for (int f = 0; f < SPEC_FIELDS; ++f)
         if (spec_defaults[f]) strcpy(j.s.value[f], spec_defaults[f]);
      for (int w = n - 1; w >= 0; --w) {
         const char *value = alternatives[w][left % n_of[w]];
         int f = 0;
         left /= n_of[w];
         while (f < SPEC_FIELDS && strcmp(spec_names[f], name[w]) != 0) ++f;
         if (strcmp(name[w], "stage") == 0) skip = stage && strcmp(stage, value) != 0;
         else if (strcmp(name[w], "full") == 0) j.full = strcmp(value, "yes") == 0;
         else if (f == SPEC_FIELDS || strlen(value) >= sizeof j.s.value[f]) wrong = "an unknown key, or a long value";
         else strcpy(j.s.value[f], value);
      }
      for (int f = 0; f < SPEC_FIELDS; ++f) {
         if (!*j.s.value[f] && !wrong) wrong = "budget, size, lr and seed must be given";
         length += snprintf(j.key + length, sizeof j.key - (size_t)length, ",%s", j.s.value[f]);
      }
      if (!wrong) wrong = spec_config(&j.s, &j.cfg, &j.flops);
      if (wrong) return lab_failed(where, wrong);
      for (int k = 0; k < n_jobs; ++k)
         if (strcmp(jobs[k].key, j.key) == 0) { /* of an earlier stage too */
            jobs[k].full |= j.full;
            skip = 1;
         }
      if (skip || (speed ? strcmp(j.s.value[SPEC_SEED], "1") != 0 : is_done(j.key))) continue;
      job *more = (job *)realloc(jobs, (size_t)(n_jobs + 1) * sizeof *jobs);
      if (!more) return lab_failed(where, "no memory");
      jobs = more;
      jobs[n_jobs++] = j;
   }
   return 1;
}

static int read_plan(void)
{
   char line[1024];
   FILE *f = fopen(plan, "r");
   int ok = f != NULL, number = 0;
   if (!f) return lab_failed(plan, strerror(errno));
   while (ok && fgets(line, sizeof line, f)) {
      ++number;
      if (!strncmp(line, "stage=", 6)) ok = add_line(line, number);
   }
   fclose(f);
   return ok;
}

static FILE *open_csv(const char *name, const char *rest, const char *mode)
{
   char path[512];
   snprintf(path, sizeof path, "%s/%s", out, name);
   FILE *f = fopen(path, mode);
   if (!f) {
      lab_failed(path, strerror(errno));
      return NULL;
   }
   int last = EOF;
   rewind(f);
   for (int c; (c = fgetc(f)) != EOF;) last = c;
   if (last == EOF) {
      fputs("text", f);
      for (int i = 0; i < SPEC_FIELDS; ++i) fprintf(f, ",%s", spec_names[i]);
      fprintf(f, ",%s\n", rest);
   } else if (last != '\n') fputc('\n', f); /* it was stopped in the middle of a line */
   return f;
}

static void begin(lab *l, const job *j)
{
   memset(l, 0, sizeof *l);
   l->cfg = j->cfg;
   l->how = spec_train(&j->s, j->flops);
   if (quick) l->how.steps = 3;
   l->how.n_threads = threads;
   l->text = &text;
   l->eval_seqs = EVAL_SEQS;
   l->init = strcmp(j->s.value[SPEC_INIT], "fan") == 0 ? 0 : spec_number(&j->s, SPEC_INIT);
   l->seed = strtoull(j->s.value[SPEC_SEED], NULL, 10);
}

static double cost(const job *j) { return spec_number(&j->s, SPEC_BUDGET); }

/* FLOPs a second, of the first run that is to come. */
static double trial(void)
{
   lab l;
   mod_step_info info;
   double began, gone = 0;
   int steps = 0;
   begin(&l, &jobs[0]);
   int ok = lab_make(&l) && lab_step(&l, &info);
   for (began = lab_seconds(); ok && gone < TRIAL && (!quick || !steps); gone = lab_seconds() - began) {
      ok = lab_step(&l, &info);
      ++steps;
   }
   lab_end(&l);
   return ok ? spec_step(&jobs[0].s, jobs[0].flops) * steps / gone : 0;
}

/* ---- speed ------------------------------------------------------------------------------------------------------- */

enum { TURNS = 21 };

static int by_size(const void *a, const void *b)
{
   double x = *(const double *)a, y = *(const double *)b;
   return (x > y) - (x < y);
}

/* Decodes the second half of a window of the test part token by token: seconds a token, LAB_NONE without a model. */
static double decode(lab *l, const char *key, mod_session **session)
{
   char name[512];
   int half = SPEC_CONTEXT / 2;
   if (!*session) {
      mod_session_desc desc = {0};
      model_name(name, sizeof name, key);
      mod_file *file = mod_file_open(name, NULL, &l->err);
      if (!file) return LAB_NONE;
      int ok = mod_file_load(file, l->model, NULL, &l->err) == MOD_RESULT_OK &&
               (*session = mod_session_create(l->model, &desc, NULL, &l->err));
      mod_file_close(file);
      if (!ok) return lab_failed(name, l->err.message), LAB_NONE;
   }
   mod_session_reset(*session);
   if (!lab_fill(l, TEXT_TEST, 0, 1, 1) || mod_session_feed(*session, l->tokens, half, &l->err) != MOD_RESULT_OK)
      return LAB_NONE;
   double began = lab_seconds();
   for (int i = half; i < SPEC_CONTEXT; ++i)
      if (mod_session_feed(*session, l->tokens + i, 1, &l->err) != MOD_RESULT_OK) return LAB_NONE;
   return (lab_seconds() - began) / (SPEC_CONTEXT - half);
}

/* All jobs take turns. Decoding has rounds of its own, in one thread: it changes the weights of the trainer's model. */
static int time_all(void)
{
   lab *labs = (lab *)calloc((size_t)n_jobs, sizeof *labs);
   mod_session **sessions = (mod_session **)calloc((size_t)n_jobs, sizeof *sessions);
   double (*seconds)[2][TURNS] = (double (*)[2][TURNS])calloc((size_t)n_jobs, sizeof *seconds);
   mod_step_info info;
   FILE *to = open_csv("speed.csv", "threads,step_best,step_median,step_quarter,step_three_quarters,token_best,"
                                    "token_median,token_quarter,token_three_quarters", "w+");
   int ok = labs && sessions && seconds && to;
   for (int i = 0; ok && i < n_jobs; ++i) {
      begin(&labs[i], &jobs[i]);
      ok = lab_make(&labs[i]) && lab_step(&labs[i], &info);
   }
   for (int kind = 0; kind < 2; ++kind)
      for (int turn = 0; ok && turn < (quick ? 1 : TURNS); ++turn)
         for (int i = 0; ok && i < n_jobs; ++i) {
            double began = lab_seconds();
            if (kind == 0) ok = lab_step(&labs[i], &info);
            seconds[i][kind][turn] = kind == 0 ? lab_seconds() - began : decode(&labs[i], jobs[i].key, &sessions[i]);
         }
   for (int i = 0; ok && i < n_jobs; ++i) {
      double v[9] = {threads};
      for (int kind = 0; kind < 2; ++kind) {
         double *s = seconds[i][kind];
         int n = quick ? 1 : TURNS;
         qsort(s, (size_t)n, sizeof *s, by_size);
         v[1 + 4 * kind] = s[0]; v[2 + 4 * kind] = s[n / 2];
         v[3 + 4 * kind] = s[n / 4]; v[4 + 4 * kind] = s[3 * n / 4];
      }
      put(to, jobs[i].key, v, 9);
      printf("%s: %.1f ms a step", jobs[i].key, 1e3 * v[2]);
      if (v[6] >= 0) printf(", %.1f us a token", 1e6 * v[6]);
      putchar('\n');
   }
   for (int i = 0; labs && i < n_jobs; ++i) {
      mod_session_destroy(sessions[i]);
      lab_end(&labs[i]);
   }
   free(labs);
   free(sessions);
   free(seconds);
   if (to) fclose(to);
   return ok;
}

static int open_text(void)
{
   static char made_up[1 << 20];
   text_desc desc = {0};
   text_error err;
   uint64_t fnv;
   memcpy(desc.shares, spec_shares, sizeof desc.shares);
   for (size_t i = 0; quick && i < sizeof made_up; ++i)
      made_up[i] = (char)('a' + mod_random_bits(1, 0, i / 3) % (1 + i % 3 * 8));
   if (data) {
      desc.paths = &data; desc.n_paths = 1;
   } else {
      desc.bytes = made_up; desc.n_bytes = sizeof made_up;
   }
   if (!text_open(&text, &desc, &err) || !text_hash(&text, &fnv, &err)) return lab_failed(data, err.message);
   snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv);
   return 1;
}

int main(int argc, char **argv)
{
   int n_words = 0, asked = option_parse("experiments", table, OPTIONS, argc - 1, argv + 1, NULL, 0, &n_words);
   double rate, left = 0;
   if (asked == 0) option_help(stdout, table, OPTIONS);
   if (asked <= 0) return asked == 0 ? 0 : 2;
   if (!data && !quick) return lab_failed("no text", "say --data FILE, or --quick"), 2;
   mkdir("build/models", 0777);
   if ((claims = open("build/models/claims", O_RDWR | O_CREAT, 0666)) < 0)
      return lab_failed("build/models/claims", strerror(errno)), 2;
   if (!open_text() || !(csv = open_csv("runs.csv", columns, "a+")) ||
       !(curves = open_csv("curves.csv", curve_columns, "a+")) || !read_plan())
      return 2;
   if (speed) return time_all() ? 0 : 2;
   for (int i = 0; i < n_jobs; ++i) left += cost(&jobs[i]);
   if (n_jobs == 0) return puts("All runs of the plan are done."), 0;
   if ((rate = trial()) <= 0) return 2;
   printf("%d runs to do, %.3g FLOPs of training. At %.0f GFLOP/s, as a short trial says: %.0f minutes.\n", n_jobs,
          left, rate / 1e9, left / rate / 60);
   for (int i = 0; i < n_jobs && !estimate; ++i) {
      lab l;
      double v[VALUES];
      left -= cost(&jobs[i]);
      if (!claim(jobs[i].key) || is_done(jobs[i].key)) continue;
      for (int k = 0; k < VALUES; ++k) v[k] = LAB_NONE;
      v[FLOPS] = jobs[i].flops;
      begin(&l, &jobs[i]);
      int ok = lab_make(&l) && measure(&l, jobs[i].key, jobs[i].full, v);
      lab_end(&l);
      if (!ok) return 2;
      put(csv, jobs[i].key, v, VALUES);
      rate = cost(&jobs[i]) / v[SECONDS];
      printf("%s: %.4f nats a byte, %.0f s; %d runs left, some %.0f minutes\n", jobs[i].key, v[CAUSAL], v[SECONDS],
             n_jobs - i - 1, left / rate / 60);
      fflush(stdout);
   }
   text_close(&text);
   return 0;
}
