/* bench.c - how fast mod.h is, beside what the machine can do and beside other programs

      cc -O2 -fopenmp bench.c -o bench -lm          (make bench does more: OpenBLAS, both kinds of arithmetic)
      ./bench [--full] [--shapes] [--seconds S] [--json FILE] [--settings FILE] [ROW]...

   A ROW is a part of a row's name: gemm, attention, train, levels, mod, scaling, elementwise, allocator. Built with -O2
   and no -march, as a user would. 'Peak' is what the machine's multiply-adds reach, in the widest instructions of the
   level in use, measured right before and after each row with as many threads; a row during which that has changed by
   more than 5% is done again, and marked ? if it never was steady. Best and median are those of ten turns, see bench.h;
   rows with fewer, because one is long or S seconds are over, are marked <. Nothing here passes or fails.

   Peers: OpenBLAS (-DBENCH_OPENBLAS), PyTorch (if python3 has it), llm.c (LLMC=DIR in the environment).
*/
#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE
#include <stdlib.h>

static long n_allocations; /* of the library */
static void *counted_alloc(size_t size, void *user) { (void)user; return ++n_allocations, malloc(size); }
static void counted_free(void *memory, void *user) { (void)user; free(memory); }
#define MOD_MALLOC(size) counted_alloc(size, NULL)
#define MOD_FREE(memory) counted_free(memory, NULL)
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "bench.h"
#include "peer.h"
#ifdef BENCH_OPENBLAS
#include <cblas.h>
#endif

static int full, shapes;     /* all shapes; a line for each */
static const char *settings; /* a file that remembers how PyTorch is fastest */
static int most_threads = 1;
static mod_simd best_level;
static mod_error err;
#define MUST(condition) do { if (!(condition)) bench_fail(err.code ? err.message : #condition); } while (0)
#define SIDE(run, what, once) {run, what, once, 0, {0}, 0, 0}

static const char *mark(const bench_row *row)
{
   return !row->steady ? "?" : row->turns < BENCH_TURNS ? "<" : " ";
}
static double percent(double flops, const bench_row *row) { return row->flops > 0 ? 100 * flops / row->flops : NAN; }

static mod_real *numbers(size_t count, uint64_t seed) /* in [-3, 3) */
{
   mod_real *x = (mod_real *)bench_alloc(count * sizeof *x);
   for (size_t i = 0; i < count; ++i) x[i] = (mod_real)(6 * mod_random_uniform(seed, 0, i) - 3);
   return x;
}

static mod_tape_desc tape_desc(int threads, mod_simd level)
{
   mod_tape_desc desc = {0};
   desc.n_threads = threads;
   desc.simd = level;
   return desc;
}

/* ---- ops on a tape of their own: products, attention, element by element ----------------------------------------- */

typedef enum kind {
   NOTHING, MATMUL, MATMUL_NT, MATMUL_TN, ATTENTION, GELU, SILU, SIGMOID, TANH, EXP, LOG, SOFTMAX, RMSNORM, LAYERNORM,
   CROSS_ENTROPY, ROPE
} kind;

typedef struct op {
   kind kind;
   int rows, cols, heads;
   mod_tape_desc desc;
   mod_real *data[3], *grad[3]; /* of the leaves */
   int dim[3][2];
   const int *targets;
   mod_tape *tape;
   mod_mark mark; /* after the leaves */
   mod_tensor *x[3], *table;
   mod_rows *r;
} op;

static void op_leaves(op *o, mod_tape *t)
{
   for (int i = 0; i < 3; ++i) o->x[i] = o->dim[i][0] ? mod_leaf(t, o->data[i], o->grad[i], 2, o->dim[i]) : NULL;
   o->r = o->heads ? mod_rows_make(t, 1, o->rows, NULL) : NULL;
   o->table = o->kind == ROPE ? mod_rope_table(t, 0, o->rows, o->cols / o->heads, 10000) : NULL;
}

static mod_tensor *op_run(const op *o, mod_tape *t)
{
   mod_tensor *x = o->x[0], *y = o->x[1], *z = o->x[2];
   switch (o->kind) {
   case MATMUL: return mod_matmul(t, x, y);
   case MATMUL_NT: return mod_matmul_nt(t, x, y);
   case MATMUL_TN: return mod_matmul_tn(t, x, y);
   case ATTENTION: return mod_attention(t, x, y, z, o->r, o->r, o->heads, o->heads, MOD_MASK_CAUSAL);
   case GELU: return mod_gelu(t, x);
   case SILU: return mod_silu(t, x);
   case SIGMOID: return mod_sigmoid(t, x);
   case TANH: return mod_tanh(t, x);
   case EXP: return mod_exp(t, x);
   case LOG: return mod_log(t, x);
   case SOFTMAX: return mod_softmax(t, x);
   case RMSNORM: return mod_rmsnorm(t, x, y, 1e-5);
   case LAYERNORM: return mod_layernorm(t, x, y, z, 1e-5);
   case CROSS_ENTROPY: return mod_cross_entropy(t, x, o->targets, 0);
   case ROPE: return mod_rope(t, x, o->r, o->table);
   default: return x;
   }
}

static mod_tensor *op_loss(mod_tape *t, mod_tensor *y) { return y && y->n_dim == 1 ? y : mod_sum(t, y); }

/* A tape as large as the op needs: found by running it on one that only counts. */
static void op_open(op *o)
{
   mod_tape_desc measure = o->desc;
   size_t bytes;
   measure.measure = 1;
   o->tape = mod_tape_create(&measure, 1 << 16, NULL, &err);
   MUST(o->tape);
   op_leaves(o, o->tape);
   mod_tensor *y = op_run(o, o->tape);
   if (!o->desc.forward_only) mod_tape_backward(o->tape, op_loss(o->tape, y), NULL);
   MUST(mod_tape_status(o->tape, &err) == MOD_RESULT_OK);
   bytes = mod_tape_peak(o->tape);
   mod_tape_destroy(o->tape);
   o->tape = mod_tape_create(&o->desc, bytes, NULL, &err);
   MUST(o->tape);
   op_leaves(o, o->tape);
   MUST(mod_tape_status(o->tape, &err) == MOD_RESULT_OK);
   o->mark = mod_tape_mark(o->tape);
}

static double op_forward(void *what)
{
   op *o = (op *)what;
   double t = bench_clock();
   op_run(o, o->tape);
   t = bench_clock() - t;
   MUST(mod_tape_status(o->tape, &err) == MOD_RESULT_OK);
   MUST(mod_tape_rewind(o->tape, o->mark, &err) == MOD_RESULT_OK);
   return t;
}

static double op_backward(void *what)
{
   op *o = (op *)what;
   mod_tape_reset(o->tape); /* backward runs once for each recording */
   op_leaves(o, o->tape);
   mod_tensor *loss = op_loss(o->tape, op_run(o, o->tape));
   double t = bench_clock();
   MUST(mod_tape_backward(o->tape, loss, &err) == MOD_RESULT_OK);
   return bench_clock() - t;
}

/* ---- gemm -------------------------------------------------------------------------------------------------------- */

#ifdef BENCH_OPENBLAS
static mod_real *blas_result;
static double gemm_openblas(void *what)
{
   const op *o = (const op *)what;
   int tn = o->kind == MATMUL_TN, nt = o->kind == MATMUL_NT;
   int m = o->dim[0][tn], k = o->dim[0][!tn], n = o->dim[1][!nt];
   double t = bench_clock();
   cblas_sgemm(CblasRowMajor, tn ? CblasTrans : CblasNoTrans, nt ? CblasTrans : CblasNoTrans, m, n, k, 1, o->data[0],
               o->dim[0][1], o->data[1], o->dim[1][1], 0, blas_result, n);
   return bench_clock() - t;
}

/* A product that is wrong is not worth timing. */
static void gemm_compare(op *o)
{
   const mod_tensor *y = op_run(o, o->tape);
   double most = 0, differ = 0;
   gemm_openblas(o);
   for (size_t i = 0; y && i < (size_t)y->dim[0] * (size_t)y->dim[1]; ++i) {
      most = fmax(most, fabs(blas_result[i]));
      differ = fmax(differ, fabs(blas_result[i] - y->data[i]));
   }
   if (!(differ <= 1e-4 * most)) printf("   ! differs from OpenBLAS by %g of %g\n", differ, most);
   MUST(mod_tape_rewind(o->tape, o->mark, &err) == MOD_RESULT_OK);
}
#endif

static void gemm_form(kind form, int threads, mod_simd level)
{
   static const char *const names[] = {"", "A B", "A B^T", "A^T B"};
   static const int all[] = {128, 256, 384, 512, 1024, 1536}, few[] = {128, 1024};
   const int *size = full ? all : few, n_sizes = full ? 6 : 2, m = 2048;
   bench_mean ours = {0, 0, 0}, ours_median = {0, 0, 0}, rate = {0, 0, 0}, ratio = {0, 0, 0}, ratio_median = {0, 0, 0};
   int unsteady = 0, cut = 0, worst[2] = {0, 0};
   for (int i = 0; i < n_sizes * n_sizes; ++i) {
      int n = size[i / n_sizes], k = size[i % n_sizes], tn = form == MATMUL_TN;
      op o = {0};
      o.kind = form;
      o.desc = tape_desc(threads, level);
      o.desc.forward_only = 1;
      o.dim[0][0] = m;
      o.dim[0][1] = tn ? n : k;
      o.dim[1][0] = tn ? m : form == MATMUL_NT ? n : k;
      o.dim[1][1] = !tn && form == MATMUL_NT ? k : tn ? k : n;
      for (int x = 0; x < 2; ++x) o.data[x] = numbers((size_t)o.dim[x][0] * (size_t)o.dim[x][1], (uint64_t)x);
      op_open(&o);
      bench_side side[2] = {SIDE(op_forward, &o, 0), SIDE(NULL, &o, 0)};
      int n_sides = 1;
#ifdef BENCH_OPENBLAS
      blas_result = (mod_real *)bench_alloc((size_t)m * 1536 * sizeof *blas_result);
      openblas_set_num_threads(threads);
      side[n_sides++].run = gemm_openblas;
      gemm_compare(&o);
#endif
      bench_row row = bench_measure(side, n_sides, BENCH_TURNS, level, threads);
      double flops = 2.0 * m * n * k, reached = percent(flops / side[0].best, &row);
      if (i == 0 || reached < ours.least) worst[0] = n, worst[1] = k;
      bench_add(&ours, reached);
      bench_add(&ours_median, percent(flops / side[0].median, &row));
      bench_add(&rate, flops / side[0].best * 1e-9);
      unsteady += !row.steady;
      cut += row.turns < BENCH_TURNS;
      if (shapes) printf("   %-6s N %4d K %4d  %7.1f GFLOP/s %5.1f%%%s", names[form], n, k, flops / side[0].best * 1e-9,
                         reached, mark(&row));
      json_begin("gemm");
      json_text("form", names[form]);
      json_number("n", n);
      json_number("k", k);
      json_number("flops", flops);
      json_side("ours", &side[0]);
      if (n_sides > 1) {
         bench_add(&ratio, side[1].best / side[0].best);
         bench_add(&ratio_median, side[1].median / side[0].median);
         json_side("openblas", &side[1]);
         if (shapes) printf("   OpenBLAS %7.1f GFLOP/s", flops / side[1].best * 1e-9);
      }
      if (shapes) puts("");
      json_measured(&row, level, threads);
      json_end();
      mod_tape_destroy(o.tape);
      for (int x = 0; x < 2; ++x) free(o.data[x]);
#ifdef BENCH_OPENBLAS
      free(blas_result);
#endif
   }
   printf("   %-6s %-6s  %d    %7.1f  %5.1f%% %5.1f%%   %5.1f%% at %4d x %4d", names[form], mod_simd_name(level),
          threads, bench_of(&rate), bench_of(&ours), bench_of(&ours_median), ours.least, worst[0], worst[1]);
   if (ratio.n) printf("    %5.2f %6.2f", bench_of(&ratio), bench_of(&ratio_median));
   else printf("        -      -");
   if (unsteady) printf("  ?%d", unsteady); /* so many shapes */
   if (cut) printf("  <%d", cut);
   puts("");
}

static void gemm(void)
{
   puts("gemm: products of the tape, M = 2048 (of A^T B: the sum's length), geometric means over N x K\n"
        "   form   level   threads  GFLOP/s  % of peak        worst shape            times OpenBLAS\n"
        "                             best    best  median   (best)                best / median");
#ifndef BENCH_OPENBLAS
   puts("   (OpenBLAS was not found when this was built: no <cblas.h>, or no -lopenblas)");
#endif
   for (int threads = 1; threads <= most_threads; ++threads)
      for (int form = MATMUL; form <= MATMUL_TN; ++form) {
         gemm_form((kind)form, threads, best_level);
         if (best_level == MOD_SIMD_AVX512) gemm_form((kind)form, threads, MOD_SIMD_AVX2);
      }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void attention(void)
{
   enum { HEADS = 6, HD = 64 };
   puts("attention: causal, 6 heads of 64; FLOPs of the pairs that are computed, backward 2.5 times as many\n"
        "       T  threads   forward GFLOP/s  % of peak, median   backward GFLOP/s  % of peak, median");
   for (int threads = 1; threads <= most_threads; ++threads)
      for (int length = 256; length <= 4096; length *= 4) {
         op o[2] = {{0}, {0}};
         for (int b = 0; b < 2; ++b) {
            o[b].kind = ATTENTION;
            o[b].rows = length;
            o[b].cols = HEADS * HD;
            o[b].heads = HEADS;
            o[b].desc = tape_desc(threads, best_level);
            o[b].desc.forward_only = !b;
            for (int x = 0; x < 3; ++x) {
               o[b].dim[x][0] = length;
               o[b].dim[x][1] = HEADS * HD;
               o[b].data[x] = numbers((size_t)length * HEADS * HD, (uint64_t)x);
               o[b].grad[x] = b ? numbers((size_t)length * HEADS * HD, 9) : NULL;
            }
            op_open(&o[b]);
         }
         bench_side side[2] = {SIDE(op_forward, &o[0], 0), SIDE(op_backward, &o[1], 0)};
         bench_row row = bench_measure(side, 2, BENCH_TURNS, best_level, threads);
         double flops = 2.0 * HD * length * (length + 1.0) * HEADS;
         printf("   %5d  %4d", length, threads);
         json_begin("attention");
         json_number("length", length);
         json_number("flops_forward", flops);
         json_side("forward", &side[0]);
         json_side("backward", &side[1]);
         json_measured(&row, best_level, threads);
         json_end();
         for (int b = 0; b < 2; ++b) {
            double f = b ? 2.5 * flops : flops;
            printf("      %12.1f   %6.1f%% %6.1f%%", f / side[b].best * 1e-9, percent(f / side[b].best, &row),
                   percent(f / side[b].median, &row));
            mod_tape_destroy(o[b].tape);
            for (int x = 0; x < 3; ++x) free(o[b].data[x]), free(o[b].grad[x]);
         }
         printf(" %s\n", mark(&row));
      }
}

/* ---- models in training ------------------------------------------------------------------------------------------ */

typedef struct lm {
   mod_model *model;
   mod_trainer *trainer;
   mod_batch batch;
   int *tokens; /* with the targets behind them */
   double flops; /* of a step: three forward passes */
   int n_tokens;
} lm;

static mod_config config(int layers, int width, int heads, int context, int dense)
{
   mod_config cfg = {0};
   cfg.vocab_size = 256;
   cfg.context = context;
   cfg.n_layers = layers;
   cfg.d_model = width;
   cfg.n_heads = heads;
   if (dense) cfg.select = MOD_SELECT_ALL;
   return cfg;
}

static mod_train_desc training(int n_seqs, int threads)
{
   mod_train_desc how = {0};
   how.n_seqs = n_seqs;
   how.n_threads = threads;
   how.steps = 1000000;
   how.simd = best_level;
   return how;
}

static lm lm_open(mod_config cfg, int n_seqs, int threads, const mod_allocator *allocator)
{
   mod_train_desc how = training(n_seqs, threads);
   mod_flops flops;
   lm m = {0};
   m.n_tokens = n_seqs * cfg.context;
   m.model = mod_model_create(&cfg, allocator, &err);
   MUST(m.model && mod_model_randomize(m.model, 1, &err) == MOD_RESULT_OK);
   m.trainer = mod_trainer_create(m.model, &how, allocator, &err);
   MUST(m.trainer);
   m.tokens = (int *)bench_alloc((size_t)(2 * m.n_tokens) * sizeof *m.tokens);
   for (int i = 0; i < 2 * m.n_tokens; ++i) m.tokens[i] = (int)(mod_random_bits(1, 0, (uint64_t)i) % 256);
   m.batch.n_seqs = n_seqs;
   m.batch.length = cfg.context;
   m.batch.tokens = m.tokens;
   m.batch.targets = m.tokens + m.n_tokens;
   int *lengths = (int *)bench_alloc((size_t)n_seqs * sizeof *lengths);
   for (int s = 0; s < n_seqs; ++s) lengths[s] = cfg.context;
   MUST(mod_config_flops(&cfg, n_seqs, lengths, NULL, &flops, &err) == MOD_RESULT_OK);
   free(lengths);
   m.flops = 3 * flops.total;
   return m;
}

static void lm_close(lm *m)
{
   mod_trainer_destroy(m->trainer);
   mod_model_destroy(m->model);
   free(m->tokens);
}

static double lm_step(void *what)
{
   lm *m = (lm *)what;
   mod_step_info info;
   double t = bench_clock();
   MUST(mod_train_step(m->trainer, &m->batch, &info, &err) == MOD_RESULT_OK);
   return bench_clock() - t;
}

static double lm_accumulate(void *what)
{
   lm *m = (lm *)what;
   double t = bench_clock();
   MUST(mod_train_accumulate(m->trainer, &m->batch, &err) == MOD_RESULT_OK);
   return bench_clock() - t;
}

static double lm_update(void *what)
{
   lm *m = (lm *)what;
   mod_step_info info;
   double t = bench_clock();
   MUST(mod_train_update(m->trainer, &info, &err) == MOD_RESULT_OK);
   return bench_clock() - t;
}

/* How PyTorch is told to use threads. */
typedef struct torch_setting {
   int threads, blas, active;
} torch_setting;

enum { LAYERS = 6, CONTEXT = 256, SEQS = 8 };

static int torch_open(peer *p, int width, int heads, torch_setting s)
{
   static const char *const python[] = {"/usr/bin/python3", "python3"};
   static char text[10][48];
   snprintf(text[0], 48, "OPENBLAS_NUM_THREADS=%d", s.blas);
   snprintf(text[1], 48, "OMP_WAIT_POLICY=%s", s.active ? "active" : "passive");
   const int number[] = {s.threads, LAYERS, width, heads, CONTEXT, SEQS, 256};
   for (int i = 0; i < 7; ++i) snprintf(text[2 + i], 48, "%d", number[i]);
   for (int i = 0; i < 2; ++i) {
      const char *argv[] = {"env", text[0], text[1], python[i], "bench/peers/torch_step.py", text[2], text[3], text[4],
                            text[5], text[6], text[7], text[8], NULL};
      if (peer_open(p, argv)) return 1;
   }
   return 0;
}

/* The quickest setting with at most this many threads, by two steps after the first; one step for those far behind.
   In a reduced run, what was far behind with the model before is not tried. */
static int torch_best(int width, int heads, int threads, torch_setting *best, const char **why)
{
   static double seconds[8]; /* of each setting, for the model before */
   static char said[256];
   double least = INFINITY, limit = full ? INFINITY : 1.5 * seconds[0];
   int w, n, t, b, a;
   FILE *f = settings ? fopen(settings, "r") : NULL;
   while (f && fscanf(f, "%d%d%d%d%d", &w, &n, &t, &b, &a) == 5)
      if (w == width && n == threads) *best = (torch_setting){t, b, a}, least = 0;
   if (f) fclose(f);
   if (least == 0) return 1;
   if (threads > 1) for (int i = 1; i < 8; ++i) limit = fmin(limit, 1.5 * seconds[i]);
   for (int i = 0; i < (threads > 1 ? 8 : 1); ++i) {
      torch_setting s = {i & 1 ? 1 : threads, i & 2 ? 1 : threads, i >> 2 & 1};
      peer p;
      if (threads > 1 && limit > 0 && seconds[i] > limit) continue;
      if (!torch_open(&p, width, heads, s)) {
         strcpy(said, p.said);
         *why = said;
         continue;
      }
      double first = peer_step(&p), time = peer_step(&p);
      if (time < 1.3 * least) time = fmin(time, peer_step(&p));
      if (shapes) printf("   torch %d, OpenBLAS %d, %-7s: %.0f ms, %.0f at first\n", s.threads, s.blas,
                         s.active ? "active" : "passive", 1e3 * time, 1e3 * first);
      if (time < least) least = time, *best = s;
      if (threads > 1) seconds[i] = time;
      peer_close(&p);
   }
   if (least < INFINITY && settings && (f = fopen(settings, "a")) != NULL) {
      fprintf(f, "%d %d %d %d %d\n", width, threads, best->threads, best->blas, best->active);
      fclose(f);
   }
   return least < INFINITY;
}

static int llmc_open(peer *p, int width, int heads, int threads)
{
   static char text[8][16];
   const int number[] = {threads, LAYERS, width, heads, CONTEXT, SEQS, 256};
   const char *argv[] = {"python3", "bench/peers/llmc_step.py", getenv("LLMC"), text[0], text[1], text[2], text[3],
                         text[4], text[5], text[6], NULL};
   strcpy(p->said, "LLMC=DIR names no checkout of llm.c");
   for (int i = 0; i < 7; ++i) snprintf(text[i], 16, "%d", number[i]);
   return argv[2] && *argv[2] && peer_open(p, argv);
}

static void train_peer(const char *name, const char *key, const bench_side *ours, const bench_side *side,
                       const char *how)
{
   printf("      %-8s best %7.1f ms, median %7.1f ms; ours is %.2f times as fast, by the median %.2f (%s)\n", name,
          1e3 * side->best, 1e3 * side->median, side->best / ours->best, side->median / ours->median, how);
   json_side(key, side);
   json_text(key[0] == 'p' ? "pytorch_setting" : "llmc_setting", how);
}

static void train(void)
{
   static const int shape[][2] = {{128, 4}, {384, 6}};
   puts("train: a whole dense step, 6 blocks, 8 x 256 bytes, AdamW; FLOPs: three forward passes\n"
        "   width  threads   ms a step best, median   tokens/s   % of peak, median   against one thread");
   for (int i = 0; i < 2; ++i) {
      double alone = NAN;
      for (int threads = 1; threads <= most_threads; ++threads) {
         int width = shape[i][0], heads = shape[i][1], n = 1, torch = 0, llmc = 0;
         const char *why = "cannot be started";
         char how[192];
         torch_setting setting = {1, 1, 0};
         peer peers[2];
         lm m = lm_open(config(LAYERS, width, heads, CONTEXT, 1), SEQS, threads, NULL);
         bench_side side[3] = {SIDE(lm_step, &m, 0)};
         if (!full && threads < most_threads) why = "with one thread only if BENCH=full";
         else if (torch_best(width, heads, threads, &setting, &why) && torch_open(&peers[0], width, heads, setting)) {
            snprintf(how, sizeof how, "%.60s, %d thread%s, OpenBLAS %d, waiting %s", peers[0].name, setting.threads,
                     setting.threads > 1 ? "s" : "", setting.blas, setting.active ? "active" : "passive");
            side[n].run = peer_step;
            side[torch = n++].what = &peers[0];
            peer_step(&peers[0]); /* the first is slow */
         }
         if (!full && threads < most_threads) strcpy(peers[1].said, why);
         else if (llmc_open(&peers[1], width, heads, threads)) {
            side[n].run = peer_step;
            side[llmc = n++].what = &peers[1];
         }
         bench_row row = bench_measure(side, n, BENCH_TURNS, best_level, threads);
         if (threads == 1) alone = side[0].best;
         printf("   %5d  %4d      %8.1f %8.1f      %10.0f    %6.1f%% %6.1f%%%s      %.2f\n", width, threads,
                1e3 * side[0].best, 1e3 * side[0].median, m.n_tokens / side[0].best,
                percent(m.flops / side[0].best, &row), percent(m.flops / side[0].median, &row), mark(&row),
                alone / side[0].best);
         json_begin("train");
         json_number("width", width);
         json_number("flops", m.flops);
         json_number("tokens", m.n_tokens);
         json_side("ours", &side[0]);
         if (torch) train_peer("PyTorch", "pytorch", &side[0], &side[torch], how);
         else printf("      PyTorch  skipped: %s\n", why);
         if (llmc) train_peer("llm.c", "llmc", &side[0], &side[llmc], peers[1].name);
         else printf("      llm.c    skipped: %s\n", peers[1].said);
         json_measured(&row, best_level, threads);
         json_end();
         if (torch) peer_close(&peers[0]);
         if (llmc) peer_close(&peers[1]);
         lm_close(&m);
      }
   }
}

/* ---- instruction sets -------------------------------------------------------------------------------------------- */

static void levels(void)
{
   enum { MOST = MOD_SIMD_WASM128 + 1 };
   const mod_simd best = best_level;
   bench_side side[MOST];
   mod_simd level[MOST];
   lm m[MOST];
   int n = 0;
   for (int l = MOD_SIMD_SCALAR; l <= (int)best; ++l) {
      mod_tape *tape;
      mod_tape_desc desc = tape_desc(1, (mod_simd)l);
      if ((tape = mod_tape_create(&desc, 4096, NULL, NULL)) == NULL) continue; /* of another family */
      mod_tape_destroy(tape);
      level[n] = best_level = (mod_simd)l;
      m[n] = lm_open(config(4, 128, 4, CONTEXT, 1), 2, 1, NULL);
      side[n] = (bench_side)SIDE(lm_step, &m[n], 0);
      ++n;
   }
   best_level = best;
   bench_row row = bench_measure(side, n, BENCH_TURNS, best, 1);
   puts("levels: a dense step, 4 blocks of width 128, 2 x 256 bytes, one thread; how many times as fast as plain loops\n"
        "   level                  ms best, median    times");
   json_begin("levels");
   for (int i = 0; i < n; ++i) {
      printf("   %-20s  %8.1f %7.1f      %5.2f %s\n", mod_simd_name(level[i]), 1e3 * side[i].best, 1e3 * side[i].median,
             side[0].best / side[i].best, mark(&row));
      json_side(mod_simd_name(level[i]), &side[i]);
      lm_close(&m[i]);
   }
   json_measured(&row, best, 1);
   json_end();
}

/* ---- Mixture-of-Depths against dense ----------------------------------------------------------------------------- */

static void mod_step(void)
{
   puts("mod: a step of 2048 bytes, 6 blocks of width 384, every second routed at 0.125, against the dense model\n"
        "    T  threads   MoD ms  dense ms   time ratio best, median   FLOP ratio   AdamW ms MoD, dense   whole ratio");
   for (int context = 256; context <= 2048; context *= full ? 2 : 4)
      for (int threads = full ? 1 : most_threads; threads <= most_threads; ++threads) {
         lm m[2]; /* routed, dense */
         for (int dense = 0; dense < 2; ++dense)
            m[dense] = lm_open(config(LAYERS, 384, 6, context, dense), 2048 / context, threads, NULL);
         bench_side side[4] = {SIDE(lm_accumulate, &m[0], 1), SIDE(lm_update, &m[0], 1),
                               SIDE(lm_accumulate, &m[1], 1), SIDE(lm_update, &m[1], 1)};
         bench_row row = bench_measure(side, 4, BENCH_TURNS, best_level, threads);
         printf("   %4d  %4d   %8.1f  %8.1f          %5.3f  %5.3f          %5.3f       %8.1f %8.1f          %5.3f %s\n",
                context, threads, 1e3 * side[0].best, 1e3 * side[2].best, side[0].best / side[2].best,
                side[0].median / side[2].median, m[0].flops / m[1].flops, 1e3 * side[1].best, 1e3 * side[3].best,
                (side[0].best + side[1].best) / (side[2].best + side[3].best), mark(&row));
         json_begin("mod");
         json_number("context", context);
         json_number("flops_mod", m[0].flops);
         json_number("flops_dense", m[1].flops);
         json_side("mod", &side[0]);
         json_side("mod_update", &side[1]);
         json_side("dense", &side[2]);
         json_side("dense_update", &side[3]);
         json_measured(&row, best_level, threads);
         json_end();
         for (int dense = 0; dense < 2; ++dense) lm_close(&m[dense]);
      }
}

/* ---- scaling in the length of a sequence ------------------------------------------------------------------------- */

static void scaling(void)
{
   double flops_256 = NAN, time_256 = NAN;
   size_t before = 0;
   puts("scaling: one sequence of T bytes, dense, 4 blocks of width 128, without AdamW, one thread\n"
        "      T   trainer MB  bytes a token more   us a token best, median   times T = 256   FLOPs: times T = 256");
   for (int length = 256, last = 0; length <= 8192; last = length, length *= full || length > 1024 ? 2 : 4) {
      mod_config cfg = config(4, 128, 2, length, 1);
      mod_train_desc how = training(1, 1);
      mod_plan plan;
      MUST(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_OK);
      lm m = lm_open(cfg, 1, 1, NULL);
      bench_side side = SIDE(lm_accumulate, &m, 0);
      int turns = full || length < 4096 ? BENCH_TURNS : BENCH_LEAST;
      bench_row row = bench_measure(&side, 1, turns, best_level, 1);
      double time = side.best / length, flops = m.flops / length;
      if (length == 256) time_256 = time, flops_256 = flops;
      printf("   %4d   %10.1f", length, (double)plan.trainer * 1e-6);
      if (last) printf("  %18.0f", (double)(plan.trainer - before) / (length - last));
      else printf("  %18s", "");
      printf("         %8.2f %8.2f          %5.2f           %5.2f %s\n", 1e6 * time, 1e6 * side.median / length,
             time / time_256, flops / flops_256, mark(&row));
      before = plan.trainer;
      json_begin("scaling");
      json_number("length", length);
      json_number("trainer_bytes", (double)plan.trainer);
      json_number("flops", m.flops);
      json_side("accumulate", &side);
      json_measured(&row, best_level, 1);
      json_end();
      lm_close(&m);
   }
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static void elementwise(void)
{
   static const struct { const char *name; kind kind; int rows, cols, heads; } line[] = {
      {"gelu", GELU, 512, 512, 0}, {"silu", SILU, 512, 512, 0}, {"sigmoid", SIGMOID, 512, 512, 0},
      {"tanh", TANH, 512, 512, 0}, {"exp", EXP, 512, 512, 0}, {"log", LOG, 512, 512, 0},
      {"softmax 128", SOFTMAX, 2048, 128, 0}, {"softmax 1024", SOFTMAX, 256, 1024, 0},
      {"rmsnorm 384", RMSNORM, 1024, 384, 0}, {"layernorm 384", LAYERNORM, 1024, 384, 0},
      {"cross-entropy 256", CROSS_ENTROPY, 1024, 256, 0}, {"rope 6 x 64", ROPE, 1024, 384, 6}};
   static const int targets[1024] = {0};
   puts("elementwise: elements a nanosecond, one thread (backward: a sum's own backward pass is taken off)\n"
        "   op                  forward best, median    backward best, median");
   for (size_t i = 0; i < sizeof line / sizeof *line; ++i) {
      op o[3] = {{0}, {0}, {0}}; /* forward, backward, the sum alone */
      size_t n = (size_t)line[i].rows * (size_t)line[i].cols;
      mod_real *x = numbers(n, 1), *gain = numbers((size_t)line[i].cols, 2), *grad = numbers(n, 3);
      mod_real *gain_grad = numbers((size_t)line[i].cols, 4);
      if (line[i].kind == LOG) for (size_t e = 0; e < n; ++e) x[e] = x[e] + 3.001f;
      for (int j = 0; j < 3; ++j) {
         o[j].kind = j < 2 ? line[i].kind : NOTHING;
         o[j].rows = line[i].rows;
         o[j].cols = line[i].cols;
         o[j].heads = line[i].heads;
         o[j].targets = targets;
         o[j].desc = tape_desc(1, best_level);
         o[j].desc.forward_only = !j;
         o[j].dim[0][0] = line[i].rows;
         o[j].dim[1][0] = line[i].kind == RMSNORM || line[i].kind == LAYERNORM ? 1 : 0;
         o[j].dim[2][0] = line[i].kind == LAYERNORM;
         for (int k = 0; k < 3; ++k) {
            o[j].dim[k][1] = line[i].cols;
            o[j].data[k] = k ? gain : x;
            o[j].grad[k] = !j ? NULL : k ? gain_grad : grad;
         }
         op_open(&o[j]);
      }
      bench_side side[3] = {SIDE(op_forward, &o[0], 0), SIDE(op_backward, &o[1], 0),
                            SIDE(op_backward, &o[2], 0)};
      int sum = line[i].kind != CROSS_ENTROPY; /* which is a loss itself */
      bench_row row = bench_measure(side, 2 + sum, BENCH_TURNS, best_level, 1);
      printf("   %-18s     %7.3f %7.3f         %7.3f %7.3f %s\n", line[i].name, 1e-9 * (double)n / side[0].best,
             1e-9 * (double)n / side[0].median, 1e-9 * (double)n / (side[1].best - side[2].best),
             1e-9 * (double)n / (side[1].median - side[2].median), mark(&row));
      json_begin("elementwise");
      json_text("op", line[i].name);
      json_number("elements", (double)n);
      json_side("forward", &side[0]);
      json_side("backward", &side[1]);
      if (sum) json_side("backward_of_sum", &side[2]);
      json_measured(&row, best_level, 1);
      json_end();
      for (int j = 0; j < 3; ++j) mod_tape_destroy(o[j].tape);
      free(x), free(gain), free(grad), free(gain_grad);
   }

   lm m = lm_open(config(4, 384, 6, 16, 1), 1, 1, NULL); /* short sequences: AdamW is most of it */
   size_t n;
   mod_model_params(m.model, &n);
   bench_side side[2] = {SIDE(lm_accumulate, &m, 1), SIDE(lm_update, &m, 1)};
   bench_row row = bench_measure(side, 2, BENCH_TURNS, best_level, 1);
   printf("   %-18s     %7.3f ns a parameter, median %.3f, of %.1f million %s\n", "AdamW, norms",
          1e9 * side[1].best / (double)n, 1e9 * side[1].median / (double)n, 1e-6 * (double)n, mark(&row));
   json_begin("elementwise");
   json_text("op", "adamw");
   json_number("parameters", (double)n);
   json_side("update", &side[1]);
   json_measured(&row, best_level, 1);
   json_end();
   lm_close(&m);
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static void allocator(void)
{
   const mod_allocator counting = {counted_alloc, counted_free, NULL};
   long begun = n_allocations;
   lm m = lm_open(config(4, 64, 2, 64, 0), 4, most_threads, &counting);
   long before = n_allocations;
   for (int step = 0; step < 3; ++step) lm_step(&m);
   printf("allocator: %ld calls by the library in three steps of training, %ld to set up\n", n_allocations - before,
          before - begun);
   json_begin("allocator");
   json_number("calls", (double)(n_allocations - before));
   json_end();
   lm_close(&m);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

#ifdef MOD_FAST_FMA
#define ARITHMETIC "fused multiply-adds (MOD_FAST_FMA)"
#define FUSED 1
#else
#define ARITHMETIC "plain: multiply, round, add, round"
#define FUSED 0
#endif

static void where_am_i(void)
{
   const char *policy = getenv("OMP_WAIT_POLICY");
   bench_peak p[2];
   printf("%s\narithmetic %s; level %s\n%s, load %.2f, %d thread%s at most, OMP_WAIT_POLICY %s\ncompiler %s\n%s\n",
          bench_date(), ARITHMETIC, mod_simd_name(best_level), bench_cpu_model(), bench_load(), most_threads,
          most_threads > 1 ? "s" : "", policy ? policy : "not set", __VERSION__, mod_build_info());
   for (int t = 1; t <= most_threads; ++t) {
      p[t - 1] = bench_peaks(best_level, t);
      printf("peak with %d thread%s: %.1f GFLOP/s, reads %.1f GB/s\n", t, t > 1 ? "s" : "", p[t - 1].flops * 1e-9,
             p[t - 1].bytes * 1e-9);
   }
   if (!bench_json) return;
   fputs("{\"where\": {\"bench\": 1", bench_json);
   json_text("date", bench_date());
   json_text("arithmetic", ARITHMETIC);
   json_text("level", mod_simd_name(best_level));
   json_text("cpu", bench_cpu_model());
   json_text("compiler", __VERSION__);
   json_text("build", mod_build_info());
   json_text("omp_wait_policy", policy ? policy : "");
   json_number("load", bench_load());
   json_number("full", full);
   json_number("peak_flops", p[0].flops);
   json_number("read_bytes", p[0].bytes);
   fputs("},\n   \"rows\": [", bench_json);
}

int main(int argc, char **argv)
{
   /* plain: in a reduced run measured in plain arithmetic only */
   static const struct { const char *name; void (*run)(void); int plain; } rows[] = {
      {"gemm", gemm, 0}, {"attention", attention, 0}, {"train", train, 0}, {"levels", levels, 1},
      {"mod", mod_step, 1}, {"scaling", scaling, 1}, {"elementwise", elementwise, 1}, {"allocator", allocator, 1}};
   const char *json = NULL, *wanted[16];
   int n_wanted = 0;
   setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* each line when it is known */
   for (int i = 1; i < argc; ++i)
      if (!strcmp(argv[i], "--full")) full = 1;
      else if (!strcmp(argv[i], "--shapes")) shapes = 1;
      else if (!strcmp(argv[i], "--json") && i + 1 < argc) json = argv[++i];
      else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
         bench_end = bench_clock() + atof(argv[++i]), bench_spare = 0.1 * atof(argv[i]);
      else if (!strcmp(argv[i], "--settings") && i + 1 < argc) settings = argv[++i];
      else if (argv[i][0] != '-' && n_wanted < 16) wanted[n_wanted++] = argv[i];
      else return puts("bench [--full] [--shapes] [--seconds S] [--json FILE] [--settings FILE] [ROW]..."), 2;
   if (json && !(bench_json = fopen(json, "w"))) return perror(json), 2;
#ifdef _OPENMP
   most_threads = omp_get_num_procs() > 1 ? 2 : 1;
#endif
   best_level = mod_simd_best();
   where_am_i();
   for (size_t r = 0; r < sizeof rows / sizeof *rows; ++r) {
      int run = !n_wanted && (full || !FUSED || !rows[r].plain);
      double began = bench_clock();
      for (int i = 0; i < n_wanted; ++i) run |= strstr(rows[r].name, wanted[i]) != NULL;
      if (!run) continue;
      puts("");
      rows[r].run();
      printf("   (%.0f s)\n", bench_clock() - began);
   }
   if (bench_json) fputs("\n   ]}\n", bench_json), fclose(bench_json);
}
