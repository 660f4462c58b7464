/* routing.c - what the routers of a trained model do (figure 5 of the paper), as numbers for bench/figures.c

      build/routing --data FILE --model MODEL --out bench/experiments/routing.csv

   FILE is the text of the experiments, MODEL a file in build/models/ that they left. Columns: what, block (from 1 on),
   x, y; what stands where is said beside each row below. 512 windows of the test part; nothing is chosen by them. */
#include "../examples/common/text.h" /* before any system header */
#include "../examples/common/options.h"
#include "../examples/common/spearman.h"
#include "../mod.h"
#include "lab.h"
#include "experiments/spec.h"

enum { WINDOWS = 512, SEQS = 32, BINS = 50, DECILES = 10, POSITIONS = 16, LAYERS_MOST = 64, BYTES = 256, RARE = 200 };

/* For the map: lines of our own, in the language of the text. */
static const char sample[] =
   "static int clamp(int value, int low, int high)\n{\n\tif (value < low)\n\t\treturn low;\n\treturn value > high ? high "
   ": value;\n}\n\n/* Sum of n numbers. */\nlong sum(const int *x, int n)\n{\n\tlong total = 0;\n";

static const char *data, *model, *out;
static int threads = 2;
static const option table[] = {
   {"--data", "FILE", OPTION_TEXT, &data, 0, 0, NULL, "the text"},
   {"--model", "MODEL", OPTION_TEXT, &model, 0, 0, NULL, "a model's file"},
   {"--out", "FILE", OPTION_TEXT, &out, 0, 0, NULL, "the CSV file to write"},
   {"--threads", "N", OPTION_INT, &threads, 1, 256, NULL, "never changes a result (default 2)"}};
enum { OPTIONS = sizeof table / sizeof table[0] };

/* What the probe files, token by token of the batch, and in sum. */
typedef struct study {
   int n_layers, context, causal;
   unsigned char routed[LAYERS_MOST];
   unsigned char *kept;                              /* [n_layers][SEQS][context], of the batch */
   double histogram[LAYERS_MOST][BINS], above, scores; /* sigmoid(router) */
   double *entropy, *used;                           /* [WINDOWS][context] */
   double byte[BYTES], byte_used[BYTES], position_used[POSITIONS], share[LAYERS_MOST];
   size_t first, n; /* the batch's first token, and all so far */
} study;

static void look(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   study *s = (study *)user;
   for (int q = 0; q < rows->n_seqs; ++q)
      for (int i = rows->start[q]; i < rows->start[q + 1]; ++i) {
         size_t at = (size_t)q * (size_t)s->context + (size_t)rows->position[i];
         if (site == MOD_SITE_KEPT && s->causal)
            s->kept[(size_t)block * SEQS * (size_t)s->context + at] = 1;
         if (site == MOD_SITE_SCORE && !s->causal) {
            double p = 1 / (1 + exp(-(double)x->data[i]));
            ++s->histogram[block][p >= 1 ? BINS - 1 : (int)(p * BINS)];
            s->above += p > 0.5;
            ++s->scores;
         }
         if (site == MOD_SITE_LOGITS && s->causal) {
            const mod_real *l = x->data + (size_t)i * (size_t)x->dim[1];
            double most = l[0], sum = 0, weighed = 0;
            for (int v = 1; v < x->dim[1]; ++v) most = l[v] > most ? l[v] : most;
            for (int v = 0; v < x->dim[1]; ++v) {
               double e = exp(l[v] - most);
               sum += e;
               weighed += e * (l[v] - most);
            }
            s->entropy[s->first + at] = log(sum) - weighed / sum;
         }
      }
}

static int pass(lab *l, study *s, int causal)
{
   mod_forward f;
   int all = lab_windows(l->text, TEXT_TEST, s->context, WINDOWS);
   size_t context = (size_t)s->context;
   s->causal = causal;
   l->batch.mode = causal ? MOD_MODE_CAUSAL : MOD_MODE_TOPK;
   l->batch.probe = look; l->batch.probe_user = s;
   for (int first = 0, n; first < all; first += n) {
      n = all - first < SEQS ? all - first : SEQS;
      s->first = (size_t)first * context;
      memset(s->kept, 0, (size_t)s->n_layers * SEQS * context);
      if (!lab_fill(l, TEXT_TEST, first, n, all)) return 0;
      if (mod_model_forward(l->model, l->tape, NULL, &l->batch, &f, &l->err) != MOD_RESULT_OK)
         return lab_failed("routing", l->err.message);
      for (size_t at = 0; causal && at < (size_t)n * context; ++at) {
         int used = 0;
         for (int b = 0; b < s->n_layers; ++b) {
            if (!s->routed[b]) continue;
            unsigned char kept = s->kept[(size_t)b * SEQS * context + at];
            used += kept;
            s->share[b] += kept;
         }
         s->used[s->first + at] = used;
         ++s->byte[l->tokens[at]];
         s->byte_used[l->tokens[at]] += used;
         s->position_used[at % context * POSITIONS / context] += used;
         ++s->n;
      }
   }
   return 1;
}

static int by_entropy(const void *a, const void *b)
{
   double x = **(const double *const *)a, y = **(const double *const *)b;
   return (x > y) - (x < y);
}

static void row(FILE *to, const char *what, int block, double x, double y)
{
   fprintf(to, "%s,%d,%.9g,%.9g\n", what, block, x, y);
}

static int report(lab *l, study *s, FILE *to)
{
   int routed = 0;
   double n = (double)s->n, independent[LAYERS_MOST + 1] = {1}, engaged[LAYERS_MOST + 1] = {0}, rho = 0;
   mod_forward f;
   for (int b = 0; b < s->n_layers; ++b) {
      if (!s->routed[b]) continue;
      double c = s->share[b] / n;
      ++routed;
      for (int k = routed; k >= 0; --k) independent[k] = independent[k] * (1 - c) + (k ? independent[k - 1] * c : 0);
      row(to, "share", b + 1, 0, c);                         /* of the tokens, causally */
      for (int i = 0; i < BINS; ++i)                         /* tokens by sigmoid(router), of a top-k pass */
         row(to, "router_histogram", b + 1, (i + 0.5) / BINS, s->histogram[b][i]);
   }
   row(to, "above_half", 0, 0.5, s->above / s->scores); /* the share of sigmoid(router) above 0.5 */
   for (size_t i = 0; i < s->n; ++i) ++engaged[(int)s->used[i]];
   for (int k = 0; k <= routed; ++k) { /* tokens that use k of the routed blocks: measured, and if blocks took them */
      row(to, "engaged", 0, k, engaged[k] / n); /* independently of each other */
      row(to, "engaged", 1, k, independent[k]);
   }
   for (int v = 0; v < BYTES; ++v)                            /* of bytes not rare: share of routed blocks they use */
      if (s->byte[v] >= RARE) row(to, "byte_share", 0, v, s->byte_used[v] / s->byte[v] / routed);
   for (int p = 0; p < POSITIONS; ++p)
      row(to, "position_share", 0, (p + 0.5) * s->context / POSITIONS,
          s->position_used[p] / (n / POSITIONS) / routed);
   double **order = (double **)malloc(s->n * sizeof *order);
   if (!order) return lab_failed("memory", "there is not enough");
   for (size_t i = 0; i < s->n; ++i) order[i] = &s->entropy[i];
   qsort(order, s->n, sizeof *order, by_entropy);
   for (size_t d = 0, at = 0; d < DECILES; ++d) {             /* by tenths of the tokens, in order of entropy */
      size_t end = s->n * (d + 1) / DECILES, from = at;
      double sum = 0, entropy = 0;
      for (; at < end; ++at) {
         entropy += *order[at];
         sum += s->used[order[at] - s->entropy];
      }
      row(to, "entropy", (int)d, entropy / (double)(end - from), sum / (double)(end - from) / routed);
   }
   free(order);
   if (spearman(s->used, s->entropy, s->n, &rho)) row(to, "spearman", 0, n, rho); /* blocks used and entropy */

   int length = (int)sizeof sample - 1 < s->context ? (int)sizeof sample - 1 : s->context;
   for (int i = 0; i < length; ++i) l->tokens[i] = (unsigned char)sample[i];
   memset(s->kept, 0, (size_t)s->n_layers * SEQS * (size_t)s->context);
   mod_tape_reset(l->tape);
   s->first = 0; s->causal = 1;
   l->batch.n_seqs = 1; l->batch.length = length; l->batch.targets = NULL; l->batch.mode = MOD_MODE_CAUSAL;
   if (mod_model_forward(l->model, l->tape, NULL, &l->batch, &f, &l->err) != MOD_RESULT_OK)
      return lab_failed("map", l->err.message);
   for (int i = 0; i < length; ++i) row(to, "text", 0, i, (unsigned char)sample[i]);
   for (int b = 0; b < s->n_layers; ++b)                      /* did the block take byte x of it, causally? */
      for (int i = 0; i < length; ++i)
         row(to, "map", b + 1, i, s->kept[(size_t)b * SEQS * (size_t)s->context + (size_t)i]);
   printf("%d routed blocks, %.1f%% of the routers' sigmoids above 0.5, rho = %.3f with entropy, n = %.0f\n", routed,
          100 * s->above / s->scores, rho, n);
   return 1;
}

static int study_model(const char *path, text_corpus *text, FILE *to)
{
   lab l = {0};
   study s = {0};
   mod_file *file = mod_file_open(path, NULL, &l.err);
   int ok = file && mod_file_config(file, &l.cfg, &l.err) == MOD_RESULT_OK;
   if (!ok) lab_failed(path, l.err.message);
   l.how.n_seqs = 1; l.how.n_threads = threads;
   l.text = text;
   l.eval_seqs = SEQS;
   ok = ok && (l.cfg.n_layers <= LAYERS_MOST || lab_failed(path, "too many blocks")) && lab_make(&l);
   if (ok && mod_file_load(file, l.model, NULL, &l.err) != MOD_RESULT_OK) ok = lab_failed(path, l.err.message);
   if (ok) {
      size_t context = (size_t)l.cfg.context, n = WINDOWS * context;
      s.n_layers = l.cfg.n_layers; s.context = l.cfg.context;
      for (int b = 0; b < s.n_layers; ++b) s.routed[b] = mod_config_block(&l.cfg, b).select == MOD_SELECT_LEARNED;
      s.kept = (unsigned char *)malloc((size_t)s.n_layers * SEQS * context);
      s.entropy = (double *)calloc(n, sizeof *s.entropy);
      s.used = (double *)calloc(n, sizeof *s.used);
      ok = s.kept && s.entropy && s.used ? 1 : lab_failed("memory", "there is not enough");
      ok = ok && pass(&l, &s, 0) && pass(&l, &s, 1) && report(&l, &s, to);
   }
   free(s.kept);
   free(s.entropy);
   free(s.used);
   lab_end(&l);
   mod_file_close(file);
   return ok;
}

int main(int argc, char **argv)
{
   int n_words = 0, asked = option_parse("routing", table, OPTIONS, argc - 1, argv + 1, NULL, 0, &n_words);
   text_desc desc = {0};
   text_corpus text;
   text_error err;
   if (asked == 0) option_help(stdout, table, OPTIONS);
   if (asked <= 0) return asked == 0 ? 0 : 2;
   if (!data || !model || !out) return lab_failed("options", "say --data FILE --model MODEL --out FILE"), 2;
   desc.paths = &data; desc.n_paths = 1;
   memcpy(desc.shares, spec_shares, sizeof desc.shares);
   if (!text_open(&text, &desc, &err)) return lab_failed(data, err.message), 2;
   FILE *to = fopen(out, "w");
   if (!to) return lab_failed(out, strerror(errno)), 2;
   fputs("what,block,x,y\n", to);
   int ok = study_model(model, &text, to);
   ok = fclose(to) == 0 && ok;
   text_close(&text);
   return ok ? 0 : 1;
}
