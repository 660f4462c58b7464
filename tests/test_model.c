/* test_model.c - what must hold of a Mixture-of-Depths model's forward and backward pass */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <limits.h>
#include <math.h>

enum { VOCAB = 29, CONTEXT = 24, LAYERS = 4, D = 32, SEQS = 3, LENGTH = 20, ROWS = SEQS * LENGTH };

/* ---------------------------------------------------------------------------------------------------------------------
   Models and batches to test with
   ------------------------------------------------------------------------------------------------------------------ */

enum {
   PLAIN,      /* all defaults: RMS, RoPE, GELU, tied, raw gate, predictor */
   BOTH,       /* LayerNorm, learned positions, ReLU, biases, untied, sigmoid gate, router and predictor trained */
   ROUTER,     /* SwiGLU, grouped heads, tanh gate, the router decides */
   NONE,       /* LayerNorm, biases, one key head, gate one, nobody is trained to decide */
   STOCHASTIC, /* random selection */
   EVERY,      /* every block routed, each with its own capacity and gate */
   DENSE,
   VARIANTS
};

static const mod_block_config own[LAYERS] = {{.gate = MOD_GATE_ONE, .capacity = 0.5},
                                             {.select = MOD_SELECT_STOCHASTIC, .capacity = 0.3},
                                             {.gate = MOD_GATE_SIGMOID, .capacity = 0.1},
                                             {.gate = MOD_GATE_TANH, .capacity = 0.75}};

static mod_config variant(int v)
{
   mod_config cfg = {0};
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = D;
   cfg.n_heads = 4;
   cfg.capacity = 0.25;
   if (v == BOTH || v == NONE) cfg.norm = MOD_NORM_LAYER, cfg.bias = MOD_BIAS_ON;
   if (v == BOTH) {
      cfg.position = MOD_POSITION_LEARNED;
      cfg.activation = MOD_ACTIVATION_RELU;
      cfg.head = MOD_HEAD_UNTIED;
      cfg.gate = MOD_GATE_SIGMOID;
      cfg.causal = MOD_CAUSAL_BOTH;
   } else if (v == ROUTER) {
      cfg.activation = MOD_ACTIVATION_SWIGLU;
      cfg.n_kv_heads = 2;
      cfg.gate = MOD_GATE_TANH;
      cfg.causal = MOD_CAUSAL_ROUTER;
   } else if (v == NONE) {
      cfg.n_kv_heads = 1;
      cfg.gate = MOD_GATE_ONE;
      cfg.causal = MOD_CAUSAL_NONE;
   } else if (v == STOCHASTIC) {
      cfg.select = MOD_SELECT_STOCHASTIC;
   } else if (v == EVERY) {
      cfg.route_first = 1;
      cfg.route_every = 1;
      cfg.blocks = own;
   } else if (v == DENSE) {
      cfg.select = MOD_SELECT_ALL;
   }
   return cfg;
}

static int same(const void *a, const void *b, size_t n_floats) { return !memcmp(a, b, n_floats * sizeof(float)); }

/* A model with random numbers in every tensor, gains, biases and predictors too. */
static mod_model *make(const mod_config *cfg, uint64_t seed)
{
   mod_error err;
   size_t n;
   mod_model *model = mod_model_create(cfg, NULL, &err);
   CHECKF(model != NULL, "%s", err.message);
   if (!model) exit(test_end());
   CHECK(mod_model_randomize(model, seed, NULL) == MOD_RESULT_OK);
   mod_real *w = mod_model_params(model, &n);
   test_state = 88172645463325252ull + seed * 2654435761u; /* the same noise for the same model */
   for (size_t i = 0; i < n; ++i) w[i] += (mod_real)(0.15 * test_normal());
   return model;
}

static int tokens[ROWS], targets[ROWS];
static const int ragged[SEQS] = {LENGTH, 1, 7}, holes[SEQS] = {0, 13, LENGTH}, empty[SEQS] = {0, 0, 0};

static mod_batch make_batch(const int *lengths, int mode)
{
   mod_batch batch = {0};
   batch.n_seqs = SEQS;
   batch.length = LENGTH;
   batch.tokens = tokens;
   batch.targets = targets;
   batch.lengths = lengths;
   batch.mode = mode;
   batch.seed = 3;
   batch.step = 8;
   return batch;
}

static void fill_batch(void)
{
   for (int i = 0; i < ROWS; ++i) tokens[i] = test_below(VOCAB), targets[i] = test_below(VOCAB + 1) - 1;
}

/* ---------------------------------------------------------------------------------------------------------------------
   A forward pass on a tape of exactly the planned size. Every run of this file checks plan and FLOPs.
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct run {
   mod_tape *tape;
   mod_forward out;
   mod_error err;
   mod_result result;
   float *grads;  /* NULL: forward only */
   float *logits; /* [n_seqs, length, VOCAB], padding 0 */
} run;

static int n_runs, wrong_peaks, wrong_flops;

/* The formula once more, written down independently: 2 per multiply-add. */
static double flops_by_hand(const mod_config *given, int n_seqs, const int *lengths, const int *kept)
{
   mod_config cfg = mod_config_resolve(given);
   double d = cfg.d_model, kv = d / cfg.n_heads * cfg.n_kv_heads, ff = cfg.d_ff, n_all = 0, sum = 0;
   double hidden = d / 4 < 16 ? 16 : floor(d / 4);
   for (int s = 0; s < n_seqs; ++s) n_all += lengths[s];
   for (int b = 0; b < cfg.n_layers; ++b) {
      mod_block_config block = mod_config_block(&cfg, b);
      double n = 0, pairs = 0;
      for (int s = 0; s < n_seqs; ++s) {
         double k = kept[b * n_seqs + s];
         n += k;
         pairs += k * (k + 1) / 2;
      }
      sum += 2 * n * (d * d + 2 * d * kv + d * d) + 2 * 2 * d * pairs;
      sum += 2 * n * d * ff * (cfg.activation == MOD_ACTIVATION_SWIGLU ? 3 : 2);
      if (block.select != MOD_SELECT_LEARNED) continue;
      sum += 2 * n_all * d;
      if (block.capacity < 1 && (cfg.causal == MOD_CAUSAL_PREDICTOR || cfg.causal == MOD_CAUSAL_BOTH))
         sum += 2 * n_all * (d * hidden + hidden);
   }
   return sum + 2 * n_all * d * cfg.vocab_size;
}

static run run_model(const mod_model *model, const mod_batch *batch, int with_grads, int n_threads)
{
   run r;
   size_t bytes = 0, n_params;
   mod_tape_desc desc = {0};
   mod_config cfg = mod_model_config(model);
   memset(&r, 0, sizeof r);
   desc.n_threads = n_threads;
   desc.forward_only = !with_grads;
   r.result = mod_forward_plan(&cfg, batch, &desc, &bytes, &r.err);
   if (r.result != MOD_RESULT_OK) return r;
   mod_model_params(model, &n_params);
   if (with_grads) r.grads = (float *)calloc(n_params, sizeof(float));
   r.tape = mod_tape_create(&desc, bytes, NULL, &r.err);
   if (!r.tape) {
      r.result = r.err.code;
      return r;
   }
   r.result = mod_model_forward(model, r.tape, r.grads, batch, &r.out, &r.err);
   if (r.result != MOD_RESULT_OK) return r;
   if (with_grads) r.result = mod_tape_backward(r.tape, r.out.loss, &r.err);

   ++n_runs;
   if (mod_tape_peak(r.tape) != bytes && !wrong_peaks++)
      printf("peak %zu, plan %zu: mode %d, grads %d, threads %d\n", mod_tape_peak(r.tape), bytes, batch->mode,
             with_grads, n_threads);
   int lengths[SEQS] = {0};
   mod_flops f;
   for (int s = 0; s < batch->n_seqs; ++s) lengths[s] = batch->lengths ? batch->lengths[s] : batch->length;
   mod_result known = mod_config_flops(&cfg, batch->n_seqs, lengths, r.out.blocks, &f, NULL);
   double hand = flops_by_hand(&cfg, batch->n_seqs, lengths, r.out.kept), counted = mod_tape_flops(r.tape);
   if (!(known == MOD_RESULT_OK && counted == f.total && counted == hand && f.total == f.blocks + f.head &&
         r.out.flops_blocks == f.blocks && r.out.flops_head == f.head) &&
       !wrong_flops++)
      printf("FLOPs: counted %.0f, formula %.0f, by hand %.0f (head %.0f)\n", counted, f.total, hand, f.head);
   if (batch->mode == MOD_MODE_TOPK) { /* without counts the formula takes the top-k's */
      mod_flops by_rule;
      CHECK(mod_config_flops(&cfg, batch->n_seqs, lengths, NULL, &by_rule, NULL) == MOD_RESULT_OK &&
            by_rule.total == f.total);
   }
   r.logits = (float *)malloc(sizeof(float) * (size_t)(batch->n_seqs * batch->length * VOCAB));
   for (int i = 0; i < batch->n_seqs * batch->length * VOCAB; ++i) r.logits[i] = -7;
   CHECK(mod_forward_logits(&r.out, batch, r.logits, NULL) == MOD_RESULT_OK);
   return r;
}

static void end_run(run *r)
{
   mod_tape_destroy(r->tape);
   free(r->grads);
   free(r->logits);
   memset(r, 0, sizeof *r);
}

/* ---------------------------------------------------------------------------------------------------------------------
   A probe that copies all it sees
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct block_seen {
   int times[MOD_SITE_LOGITS + 1], n, n_kept, start[SEQS + 1], index[ROWS], position[ROWS], malformed;
   float input[ROWS * D], output[ROWS * D], attention[ROWS * D], mlp[ROWS * D], score[ROWS], predictor[ROWS];
} block_seen;

static block_seen seen[LAYERS + 1];

static void copy_site(block_seen *b, float *to, const mod_rows *rows, const mod_tensor *x, int columns)
{
   if (!x || x->n_dim != 2 || x->dim[0] != rows->n || x->dim[1] != columns) {
      b->malformed = 1;
      return;
   }
   if (to) memcpy(to, x->data, sizeof(float) * (size_t)(rows->n * columns));
}

static void probe(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   if (user != seen || block < 0 || block > LAYERS || (block == LAYERS) != (site == MOD_SITE_LOGITS)) {
      seen[0].malformed = 1;
      return;
   }
   block_seen *b = &seen[block];
   ++b->times[site];
   switch (site) {
      case MOD_SITE_INPUT:
         b->n = rows->n;
         memcpy(b->start, rows->start, sizeof(int) * (size_t)(rows->n_seqs + 1));
         copy_site(b, b->input, rows, x, D);
         break;
      case MOD_SITE_SCORE: copy_site(b, b->score, rows, x, 1); break;
      case MOD_SITE_PREDICTOR: copy_site(b, b->predictor, rows, x, 1); break;
      case MOD_SITE_KEPT:
         b->n_kept = rows->n;
         b->malformed |= x != NULL;
         for (int i = 0; i < rows->n; ++i) { /* all rows have no index */
            b->index[i] = rows->index ? rows->index[i] : i;
            b->position[i] = rows->position[i];
         }
         break;
      case MOD_SITE_ATTENTION: copy_site(b, b->attention, rows, x, D); break;
      case MOD_SITE_MLP: copy_site(b, b->mlp, rows, x, D); break;
      case MOD_SITE_OUTPUT: copy_site(b, b->output, rows, x, D); break;
      case MOD_SITE_LOGITS: copy_site(b, NULL, rows, x, VOCAB); break;
      default: b->malformed = 1; /* these models have neither experts nor keys that are selected apart */
   }
}

static run run_probed(const mod_model *model, mod_batch batch, int with_grads)
{
   memset(seen, 0, sizeof seen);
   batch.probe = probe;
   batch.probe_user = seen;
   return run_model(model, &batch, with_grads, 1);
}

/* Is row i of what block b saw among the kept? */
static int is_kept(int b, int i)
{
   for (int j = 0; j < seen[b].n_kept; ++j)
      if (seen[b].index[j] == i) return 1;
   return 0;
}

static int has_predictor(const mod_config *cfg, int b)
{
   mod_block_config block = mod_config_block(cfg, b);
   return block.select == MOD_SELECT_LEARNED && block.capacity < 1 &&
          (cfg->causal == MOD_CAUSAL_PREDICTOR || cfg->causal == MOD_CAUSAL_BOTH);
}

/* Thresholds at which causal mode takes about half of the tokens. */
static void halve(mod_model *model)
{
   mod_config cfg = mod_model_config(model);
   double *theta = mod_model_thresholds(model);
   run r = run_probed(model, make_batch(NULL, MOD_MODE_TOPK), 0);
   CHECK(r.result == MOD_RESULT_OK);
   for (int b = 0; b < LAYERS; ++b) {
      const float *logit = has_predictor(&cfg, b) ? seen[b].predictor : seen[b].score;
      for (int i = 0; i < ROWS; ++i) {
         int below = 0;
         for (int j = 0; j < ROWS; ++j) below += logit[j] < logit[i];
         if (below == ROWS / 2) theta[b] = (double)logit[i];
      }
   }
   end_run(&r);
}

static int kept_in(const run *r, int block, int seq) { return r->out.kept[block * r->out.rows->n_seqs + seq]; }

/* ---------------------------------------------------------------------------------------------------------------------
   2. Capacity 1 with gate one is the dense model
   ------------------------------------------------------------------------------------------------------------------ */

/* Compares all tensors of a with those of the same name in b; `values`: NULL for the weights, or flat gradients. */
static int shared_differ(const mod_model *a, const mod_model *b, const float *grads_a, const float *grads_b,
                         int *compared)
{
   int differ = 0;
   *compared = 0;
   for (int i = 0; i < mod_model_param_count(a); ++i) {
      mod_param p, q;
      mod_model_param(a, i, &p, NULL);
      int j = mod_model_find(b, p.name);
      if (j < 0) {
         ++differ;
         continue;
      }
      mod_model_param(b, j, &q, NULL);
      const float *x = grads_a ? grads_a + p.offset : p.data, *y = grads_b ? grads_b + q.offset : q.data;
      differ += p.count != q.count || !same(x, y, p.count);
      ++*compared;
   }
   return differ;
}

static void test_dense_equal(void)
{
   static const int variants[] = {PLAIN, BOTH, ROUTER, NONE};
   for (int v = 0; v < 4; ++v) {
      mod_config routed_cfg = variant(variants[v]), dense_cfg;
      routed_cfg.capacity = 1;
      routed_cfg.gate = MOD_GATE_ONE;
      routed_cfg.causal = MOD_CAUSAL_NONE;
      dense_cfg = routed_cfg;
      dense_cfg.select = MOD_SELECT_ALL;
      mod_model *dense = make(&dense_cfg, 10), *routed = make(&routed_cfg, 20);
      int copied = 0, compared = 0;
      for (int i = 0; i < mod_model_param_count(dense); ++i) {
         mod_param p, q;
         mod_model_param(dense, i, &p, NULL);
         int j = mod_model_find(routed, p.name);
         CHECKF(j >= 0, "%s", p.name);
         if (j < 0) continue;
         mod_model_param(routed, j, &q, NULL);
         memcpy(q.data, p.data, p.count * sizeof *p.data);
         ++copied;
      }
      /* One router more for each routed block, and nothing else. */
      CHECK(copied == mod_model_param_count(dense) && mod_model_param_count(routed) == copied + LAYERS / 2);
      CHECK(mod_model_find(dense, "blocks.1.router") < 0 && mod_model_find(routed, "blocks.1.router") >= 0);

      fill_batch();
      for (int l = 0; l < 3; ++l)
         for (int mode = 0; mode < 2; ++mode) {
            mod_batch batch = make_batch(l == 0 ? NULL : l == 1 ? ragged : holes, mode);
            run a = run_model(dense, &batch, 1, 1), b = run_model(routed, &batch, 1, 1);
            CHECK(a.result == MOD_RESULT_OK && b.result == MOD_RESULT_OK);
            if (a.logits && b.logits) {
               CHECK(same(a.logits, b.logits, ROWS * VOCAB));
               CHECK(a.out.cross_entropy == b.out.cross_entropy && a.out.cross_entropy > 0);
               CHECK(shared_differ(dense, routed, a.grads, b.grads, &compared) == 0 && compared == copied);
            }
            end_run(&a);
            end_run(&b);
         }

      mod_train_desc how = {0};
      how.n_seqs = SEQS;
      how.length = LENGTH;
      how.steps = 20;
      how.warmup = 5;
      how.lr = 3e-3;
      how.weight_decay = 0.1;
      how.clip_norm = 0.5;
      mod_param first;
      mod_model_param(dense, 0, &first, NULL);
      float before = first.data[0];
      mod_trainer *ta = mod_trainer_create(dense, &how, NULL, NULL), *tb = mod_trainer_create(routed, &how, NULL, NULL);
      CHECK(ta && tb);
      for (int step = 0; ta && tb && step < 20; ++step) {
         mod_step_info ia, ib;
         fill_batch();
         mod_batch batch = make_batch(step % 2 ? ragged : NULL, MOD_MODE_TOPK);
         CHECK(mod_train_step(ta, &batch, &ia, NULL) == MOD_RESULT_OK);
         CHECK(mod_train_step(tb, &batch, &ib, NULL) == MOD_RESULT_OK);
         CHECK(ia.loss == ib.loss && ia.grad_norm == ib.grad_norm);
      }
      CHECK(shared_differ(dense, routed, NULL, NULL, &compared) == 0 && compared == copied);
      CHECK(first.data[0] != before);
      mod_trainer_destroy(ta);
      mod_trainer_destroy(tb);
      mod_model_destroy(dense);
      mod_model_destroy(routed);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   2. The block's equation; exactly k rows change; zero weights change nothing
   ------------------------------------------------------------------------------------------------------------------ */

/* g(r) where it is exact arithmetic in float; else by libm. */
static double gate_value(mod_block_config block, double r)
{
   if (block.select != MOD_SELECT_LEARNED || block.gate == MOD_GATE_ONE) return 1;
   if (block.gate == MOD_GATE_RAW) return r;
   if (block.gate == MOD_GATE_SIGMOID) return 1 / (1 + exp(-r));
   return 1 + 0.2 * tanh(r);
}

/* After a probed run: rows that were not kept are bit-identical, the others are x + g (h + m). Exact where the gate is
   (volatile: so that no compiler fuses). Returns the number of rows that changed in [start, end). */
static int check_equation(const mod_config *cfg, int b, int start, int end)
{
   mod_block_config block = mod_config_block(cfg, b);
   int exact = block.select != MOD_SELECT_LEARNED || block.gate == MOD_GATE_RAW || block.gate == MOD_GATE_ONE;
   int changed = 0, wrong = 0;
   for (int i = start; i < end; ++i) {
      const float *x = seen[b].input + i * D, *y = seen[b].output + i * D;
      changed += !same(x, y, D);
      int j = 0;
      while (j < seen[b].n_kept && seen[b].index[j] != i) ++j;
      if (j == seen[b].n_kept) {
         wrong += !same(x, y, D);
         continue;
      }
      double g = gate_value(block, (double)seen[b].score[i]);
      for (int c = 0; c < D; ++c) {
         volatile float delta = seen[b].attention[j * D + c] + seen[b].mlp[j * D + c];
         volatile float scaled = g == 1 ? delta : (float)g * delta;
         volatile float want = x[c] + scaled;
         wrong += exact ? want != y[c] : fabs((double)want - (double)y[c]) > 1e-5 * (1 + fabs((double)want));
      }
   }
   CHECKF(wrong == 0, "block %d: %d", b, wrong);
   return changed;
}

/* y [n, cols] = x W + b in double, the weights by name; without such a bias there is none. */
static void ref_linear(const mod_model *model, int b, const char *weight, const char *bias, const double *x, int n,
                       int d, int cols, double *y)
{
   char name[64];
   mod_param w, v;
   snprintf(name, sizeof name, "blocks.%d.%s", b, weight);
   int found = mod_model_param(model, mod_model_find(model, name), &w, NULL) == MOD_RESULT_OK;
   CHECKF(found && w.dim[0] == d && w.dim[1] == cols, "%s", name);
   snprintf(name, sizeof name, "blocks.%d.%s", b, bias);
   int has_bias = mod_model_param(model, mod_model_find(model, name), &v, NULL) == MOD_RESULT_OK;
   CHECK(has_bias == (mod_model_config(model).bias == MOD_BIAS_ON));
   for (int i = 0; i < n; ++i)
      for (int c = 0; c < cols; ++c) {
         double sum = has_bias ? (double)v.data[c] : 0;
         for (int k = 0; found && k < d; ++k) sum += x[i * d + k] * (double)w.data[k * cols + c];
         y[i * cols + c] = sum;
      }
}

static void ref_norm(const mod_model *model, int b, int which, const double *x, int n, double *y)
{
   char name[64];
   mod_config cfg = mod_model_config(model);
   mod_param gain, bias;
   int layer = cfg.norm == MOD_NORM_LAYER;
   snprintf(name, sizeof name, "blocks.%d.norm%d.gain", b, which);
   CHECK(mod_model_param(model, mod_model_find(model, name), &gain, NULL) == MOD_RESULT_OK);
   snprintf(name, sizeof name, "blocks.%d.norm%d.bias", b, which);
   int has_bias = mod_model_param(model, mod_model_find(model, name), &bias, NULL) == MOD_RESULT_OK;
   for (int i = 0; i < n; ++i) {
      double mean = 0, square = 0;
      for (int c = 0; layer && c < D; ++c) mean += x[i * D + c] / D;
      for (int c = 0; c < D; ++c) square += (x[i * D + c] - mean) * (x[i * D + c] - mean) / D;
      for (int c = 0; c < D; ++c)
         y[i * D + c] = (x[i * D + c] - mean) / sqrt(square + 1e-5) * (double)gain.data[c] +
            (has_bias ? (double)bias.data[c] : 0);
   }
}

/* Rotates adjacent pairs of each head by position * 10000^(-2 i / head_dim). */
static void ref_rope(double *x, const int *position, int n, int cols, int head_dim)
{
   for (int i = 0; i < n; ++i)
      for (int c = 0; c < cols; c += 2) {
         double angle = position[i] * pow(10000, -(double)(c % head_dim) / head_dim);
         double a = x[i * cols + c], b = x[i * cols + c + 1];
         x[i * cols + c] = a * cos(angle) - b * sin(angle);
         x[i * cols + c + 1] = a * sin(angle) + b * cos(angle);
      }
}

/* After a probed run: h and m of block b for the rows [from, to) of the kept, all of one sequence, once more in double.
   Returns the largest difference. */
static double check_branch(const mod_model *model, int b, int from, int to)
{
   static double x[LENGTH * D], u[LENGTH * D], q[LENGTH * D], k[LENGTH * D], v[LENGTH * D], o[LENGTH * D],
      h[LENGTH * D], f[LENGTH * 4 * D], g[LENGTH * 4 * D], m[LENGTH * D];
   mod_config cfg = mod_model_config(model);
   int n = to - from, hd = D / cfg.n_heads, kv = hd * cfg.n_kv_heads, group = cfg.n_heads / cfg.n_kv_heads;
   const int *position = seen[b].position + from;
   double worst = 0;
   for (int i = 0; i < n; ++i)
      for (int c = 0; c < D; ++c) x[i * D + c] = (double)seen[b].input[seen[b].index[from + i] * D + c];
   ref_norm(model, b, 1, x, n, u);
   ref_linear(model, b, "attn.wq", "attn.bq", u, n, D, D, q);
   ref_linear(model, b, "attn.wk", "attn.bk", u, n, D, kv, k);
   ref_linear(model, b, "attn.wv", "attn.bv", u, n, D, kv, v);
   if (cfg.position == MOD_POSITION_ROPE) ref_rope(q, position, n, D, hd), ref_rope(k, position, n, kv, hd);
   for (int i = 0; i < n; ++i)
      for (int head = 0; head < cfg.n_heads; ++head) {
         double score[LENGTH], sum = 0, out[D];
         const double *qi = q + i * D + head * hd;
         memset(out, 0, sizeof out);
         for (int j = 0; j <= i; ++j) {
            const double *kj = k + j * kv + head / group * hd, *vj = v + j * kv + head / group * hd;
            score[j] = 0;
            for (int c = 0; c < hd; ++c) score[j] += qi[c] * kj[c];
            score[j] = exp(score[j] / sqrt(hd));
            sum += score[j];
            for (int c = 0; c < hd; ++c) out[c] += score[j] * vj[c];
         }
         for (int c = 0; c < hd; ++c) o[i * D + head * hd + c] = out[c] / sum;
      }
   ref_linear(model, b, "attn.wo", "attn.bo", o, n, D, D, h);
   for (int i = 0; i < n * D; ++i) x[i] += h[i];
   ref_norm(model, b, 2, x, n, u);
   ref_linear(model, b, "mlp.w1", "mlp.b1", u, n, D, cfg.d_ff, f);
   if (cfg.activation == MOD_ACTIVATION_SWIGLU) ref_linear(model, b, "mlp.wg", "mlp.bg", u, n, D, cfg.d_ff, g);
   for (int i = 0; i < n * cfg.d_ff; ++i) {
      if (cfg.activation == MOD_ACTIVATION_SWIGLU) f[i] *= g[i] / (1 + exp(-g[i]));
      else if (cfg.activation == MOD_ACTIVATION_RELU) f[i] = f[i] > 0 ? f[i] : 0;
      else f[i] = f[i] / 2 * (1 + tanh(0.79788456080286535588 * (f[i] + 0.044715 * f[i] * f[i] * f[i])));
   }
   ref_linear(model, b, "mlp.w2", "mlp.b2", f, n, cfg.d_ff, D, m);
   for (int i = 0; i < n * D; ++i) {
      worst = fmax(worst, fabs(h[i] - (double)seen[b].attention[from * D + i]));
      worst = fmax(worst, fabs(m[i] - (double)seen[b].mlp[from * D + i]));
   }
   return worst;
}

static void test_equation(void)
{
   int blocks_checked = 0, chains = 0, rows_checked = 0;
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v), full;
      mod_model *model = make(&cfg, 30 + (uint64_t)v);
      full = mod_model_config(model);
      fill_batch();
      if (v != DENSE) halve(model);
      for (int l = 0; l < 3; ++l)
         for (int mode = 0; mode < 2; ++mode)
            for (int grads = 0; grads < 2; ++grads) {
               const int *lengths = l == 0 ? NULL : l == 1 ? ragged : holes;
               run r = run_probed(model, make_batch(lengths, mode), grads);
               CHECKF(r.result == MOD_RESULT_OK, "%s", r.err.message);
               if (r.result != MOD_RESULT_OK) continue;
               for (int b = 0; b < LAYERS; ++b) {
                  mod_block_config block = mod_config_block(&full, b);
                  int routed = block.select != MOD_SELECT_ALL;
                  for (int s = 0; s < SEQS; ++s) {
                     int start = seen[b].start[s], end = seen[b].start[s + 1], n = end - start;
                     int k = !routed ? n : mod_route_capacity(n, block.capacity);
                     int changed = check_equation(&full, b, start, end);
                     CHECKF(changed == kept_in(&r, b, s), "variant %d block %d: %d changed, %d kept", v, b, changed,
                            kept_in(&r, b, s));
                     CHECKF(mode == MOD_MODE_CAUSAL || changed == k, "variant %d block %d: %d, not %d", v, b, changed,
                            k);
                     ++blocks_checked;
                  }
                  /* h and m, among the kept rows of a sequence at their original positions */
                  for (int s = 0, from = 0; s < SEQS; ++s) {
                     int to = from + kept_in(&r, b, s);
                     double off = check_branch(model, b, from, to);
                     CHECKF(off < 2e-5, "variant %d block %d mode %d: %g", v, b, mode, off);
                     rows_checked += to - from;
                     from = to;
                  }
                  /* One block's output is the next one's input. */
                  if (b) CHECK(same(seen[b].input, seen[b - 1].output, (size_t)(seen[b].n * D)));
                  /* The score is one chain over the inner index, from the un-normalised input. */
                  char name[40];
                  mod_param w;
                  snprintf(name, sizeof name, "blocks.%d.router", b);
                  if (mod_model_param(model, mod_model_find(model, name), &w, NULL) != MOD_RESULT_OK) continue;
                  for (int i = 0; i < seen[b].n; ++i) {
                     volatile float sum = 0;
                     for (int c = 0; c < D; ++c) {
                        volatile float product = seen[b].input[i * D + c] * w.data[c];
                        sum = sum + product;
                     }
                     float got = seen[b].score[i], want = sum;
                     CHECK(got == want);
                     ++chains;
                  }
                  /* The kept are what the deciding numbers say. */
                  if (!routed || (mode == MOD_MODE_CAUSAL && block.select != MOD_SELECT_LEARNED)) continue;
                  int by_predictor = mode == MOD_MODE_CAUSAL && has_predictor(&full, b);
                  const float *decide = by_predictor ? seen[b].predictor : seen[b].score;
                  int at = 0, wrong = 0;
                  for (int s = 0; s < SEQS; ++s) {
                     int start = seen[b].start[s], end = seen[b].start[s + 1];
                     int k = mod_route_capacity(end - start, block.capacity);
                     for (int i = start; i < end; ++i) {
                        int before = 0;
                        for (int j = start; j < end; ++j)
                           before += decide[j] > decide[i] || (decide[j] == decide[i] && j < i);
                        int in = mode == MOD_MODE_TOPK ? before < k
                                                       : (double)decide[i] > mod_model_thresholds(model)[b];
                        if (in) wrong += seen[b].index[at] != i || seen[b].position[at] != i - start, ++at;
                     }
                  }
                  CHECKF(wrong == 0 && at == seen[b].n_kept, "variant %d block %d mode %d", v, b, mode);
               }
               end_run(&r);
            }
      mod_model_destroy(model);
   }
   CHECK(blocks_checked == VARIANTS * 3 * 2 * 2 * LAYERS * SEQS);
   CHECKF(chains > 5000 && rows_checked > 5000, "%d %d", chains, rows_checked);
}

static int has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static void test_zero_blocks(void)
{
   for (int v = 0; v < VARIANTS; ++v)
      for (int all = 0; all < 2; ++all) { /* only what projects out of attention and MLP, or every weight of a block */
         mod_config cfg = variant(v);
         mod_model *model = make(&cfg, 50 + (uint64_t)v);
         int zeroed = 0, rows = 0, routers = 0;
         for (int i = 0; i < mod_model_param_count(model); ++i) {
            mod_param p;
            mod_model_param(model, i, &p, NULL);
            if (has(p.name, "router")) {
               ++routers;
               for (size_t j = 0; j < p.count; ++j) p.data[j] = (float)(3 * test_normal());
            }
            int out = has(p.name, "attn.wo") || has(p.name, "attn.bo") || has(p.name, "mlp.w2") ||
               has(p.name, "mlp.b2");
            if (p.predictor || has(p.name, "router") || !has(p.name, "blocks.") || !(out || all)) continue;
            memset(p.data, 0, p.count * sizeof *p.data);
            ++zeroed;
         }
         int bias = mod_model_config(model).bias == MOD_BIAS_ON;
         CHECKF(all || zeroed == LAYERS * (bias ? 4 : 2), "%d", zeroed);
         CHECK(!all || zeroed > LAYERS * 4);
         CHECK(routers == (v == DENSE || v == STOCHASTIC ? 0 : v == EVERY ? 3 : 2));
         fill_batch();
         for (int mode = 0; mode < 2; ++mode) {
            run r = run_probed(model, make_batch(ragged, mode), 0);
            CHECK(r.result == MOD_RESULT_OK);
            for (int b = 0; b < LAYERS; ++b) {
               CHECK(same(seen[b].input, seen[b].output, (size_t)(seen[b].n * D)));
               rows += seen[b].n;
            }
            end_run(&r);
         }
         CHECK(rows == 2 * LAYERS * (LENGTH + 1 + 7));
         mod_model_destroy(model);
      }
}

/* ---------------------------------------------------------------------------------------------------------------------
   3. Batches and padding
   ------------------------------------------------------------------------------------------------------------------ */

static void test_batches(void)
{
   int compared = 0, mixed = 0;
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v);
      mod_model *model = make(&cfg, 70 + (uint64_t)v);
      fill_batch();
      if (v != DENSE) halve(model);
      for (int l = 0; l < 4; ++l)
         for (int mode = 0; mode < 2; ++mode) {
            const int *lengths = l == 0 ? NULL : l == 1 ? ragged : l == 2 ? holes : empty;
            mod_batch batch = make_batch(lengths, mode);
            run all = run_model(model, &batch, 0, 1);
            CHECKF(all.result == MOD_RESULT_OK, "%s", all.err.message);
            if (!all.logits) continue;
            CHECK(all.out.n_tokens == all.out.rows->n);
            for (int s = 0; s < SEQS; ++s) { /* one by one: as it stands, and cut to its real length */
               int n = lengths ? lengths[s] : LENGTH;
               for (int cut = 0; cut < 2; ++cut) {
                  mod_batch one = batch;
                  if (cut && !n) continue;
                  one.n_seqs = 1;
                  one.tokens = tokens + s * LENGTH;
                  one.targets = targets + s * LENGTH;
                  one.lengths = lengths && !cut ? lengths + s : NULL;
                  one.length = cut ? n : LENGTH;
                  one.first_id = (uint64_t)s;
                  run r = run_model(model, &one, 0, 1);
                  CHECK(r.result == MOD_RESULT_OK);
                  if (r.logits) CHECK(same(r.logits, all.logits + s * LENGTH * VOCAB, (size_t)(one.length * VOCAB)));
                  for (int b = 0; r.logits && b < LAYERS; ++b) {
                     CHECK(kept_in(&r, b, 0) == kept_in(&all, b, s));
                     mixed += mode == MOD_MODE_CAUSAL && kept_in(&r, b, 0) > 0 && kept_in(&r, b, 0) < n;
                  }
                  ++compared;
                  end_run(&r);
               }
               /* Padding is 0 in what mod_forward_logits gives, and nothing else is. */
               int zeros = 0;
               for (int i = 0; i < LENGTH; ++i) {
                  int zero = 1;
                  for (int c = 0; c < VOCAB; ++c) zero = zero && all.logits[(s * LENGTH + i) * VOCAB + c] == 0;
                  zeros += zero == (i >= n);
               }
               CHECK(zeros == LENGTH);
            }
            end_run(&all);
         }
      mod_model_destroy(model);
   }
   CHECKF(compared == VARIANTS * 2 * (6 + 6 + 5 + 3), "%d", compared);
   CHECK(mixed > 100);
}

static void test_padding(void)
{
   static const int garbage[] = {INT_MIN, INT_MAX, -1, VOCAB, 1 << 20, 0, 5};
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v);
      mod_model *model = make(&cfg, 90 + (uint64_t)v);
      size_t n_params;
      mod_model_params(model, &n_params);
      fill_batch();
      if (v != DENSE) halve(model);
      for (int mode = 0; mode < 2; ++mode)
         for (int l = 0; l < 2; ++l) {
            const int *lengths = l ? holes : ragged;
            mod_batch batch = make_batch(lengths, mode);
            run clean = run_model(model, &batch, 1, 1);
            CHECK(clean.result == MOD_RESULT_OK);
            for (int s = 0; mode == MOD_MODE_TOPK && clean.logits && s < SEQS; ++s)
               for (int b = 0; b < LAYERS; ++b) {
                  mod_block_config block = mod_config_block(&cfg, b);
                  CHECK(kept_in(&clean, b, s) == (block.select == MOD_SELECT_ALL
                                                     ? lengths[s] : mod_route_capacity(lengths[s], block.capacity)));
               }
            for (int round = 0; round < 4; ++round) {
               int dirty_tokens[ROWS], dirty_targets[ROWS];
               for (int i = 0; i < ROWS; ++i) {
                  int pad = i % LENGTH >= lengths[i / LENGTH];
                  dirty_tokens[i] = pad ? garbage[test_below(7)] : tokens[i];
                  dirty_targets[i] = pad ? garbage[test_below(7)] : targets[i];
               }
               batch.tokens = dirty_tokens;
               batch.targets = dirty_targets;
               run dirty = run_model(model, &batch, 1, 1);
               CHECKF(dirty.result == MOD_RESULT_OK, "%s", dirty.err.message);
               if (clean.logits && dirty.logits) {
                  CHECK(same(clean.logits, dirty.logits, ROWS * VOCAB) && same(clean.grads, dirty.grads, n_params));
                  CHECK(clean.out.cross_entropy == dirty.out.cross_entropy);
                  CHECK(clean.out.n_targets == dirty.out.n_targets && clean.out.skipped == dirty.out.skipped);
               }
               end_run(&dirty);
            }
            end_run(&clean);
            /* A token or target that does not exist, where it is real, is refused with its place. */
            for (int which = 0; which < 2; ++which) {
               int bad[ROWS], at = 2 * LENGTH + 4; /* sequence 2 is longer than 4 in both */
               memcpy(bad, which ? targets : tokens, sizeof bad);
               bad[at] = which ? VOCAB : -1;
               batch.tokens = which ? tokens : bad;
               batch.targets = which ? bad : targets;
               run r = run_model(model, &batch, 1, 1);
               CHECK(r.result == MOD_RESULT_RANGE && r.err.code == MOD_RESULT_RANGE && r.err.where >= 0);
               for (size_t i = 0; r.grads && i < n_params; ++i)
                  if (r.grads[i] != 0) {
                     CHECK(!"a failed pass wrote a gradient");
                     break;
                  }
               end_run(&r);
            }
         }
      mod_model_destroy(model);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   5. Prefix invariance
   ------------------------------------------------------------------------------------------------------------------ */

static void test_prefix(void)
{
   static const int cuts[] = {1, 2, 5, 11, 16, 19};
   int held = 0, mixed = 0;
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v);
      mod_model *model = make(&cfg, 110 + (uint64_t)v);
      int found = 0;
      fill_batch();
      if (v != DENSE) halve(model);
      for (int round = 0; round < 6; ++round) {
         int changed[ROWS];
         fill_batch();
         for (int mode = 0; mode < 2; ++mode) {
            mod_batch batch = make_batch(NULL, mode);
            run whole = run_model(model, &batch, 0, 1);
            CHECK(whole.result == MOD_RESULT_OK);
            if (!whole.logits) continue;
            for (int b = 0; b < LAYERS; ++b)
               for (int s = 0; s < SEQS; ++s)
                  mixed += mode == MOD_MODE_CAUSAL && kept_in(&whole, b, s) > 0 && kept_in(&whole, b, s) < LENGTH;
            for (int c = 0; c < 6; ++c) {
               int later = 0, earlier = 0;
               for (int i = 0; i < ROWS; ++i)
                  changed[i] = i % LENGTH < cuts[c] ? tokens[i] : (tokens[i] + 1 + test_below(VOCAB - 1)) % VOCAB;
               batch.tokens = changed;
               run other = run_model(model, &batch, 0, 1);
               CHECK(other.result == MOD_RESULT_OK);
               for (int s = 0; other.logits && s < SEQS; ++s) {
                  const float *a = whole.logits + s * LENGTH * VOCAB, *b = other.logits + s * LENGTH * VOCAB;
                  earlier += !same(a, b, (size_t)(cuts[c] * VOCAB));
                  later += !same(a + cuts[c] * VOCAB, b + cuts[c] * VOCAB, (size_t)((LENGTH - cuts[c]) * VOCAB));
               }
               end_run(&other);
               CHECK(later == SEQS); /* the change is seen at all */
               if (mode == MOD_MODE_TOPK) {
                  found += earlier;
                  continue;
               }
               CHECKF(earlier == 0, "variant %d, cut %d", v, cuts[c]);
               /* The prefix alone gives the same logits too. */
               int prefix[ROWS];
               for (int s = 0; s < SEQS; ++s)
                  memcpy(prefix + s * cuts[c], tokens + s * LENGTH, sizeof(int) * (size_t)cuts[c]);
               mod_batch cut = make_batch(NULL, mode);
               cut.tokens = prefix;
               cut.targets = NULL;
               cut.length = cuts[c];
               run alone = run_model(model, &cut, 0, 1);
               CHECK(alone.result == MOD_RESULT_OK);
               for (int s = 0; alone.logits && s < SEQS; ++s)
                  held += same(whole.logits + s * LENGTH * VOCAB, alone.logits + s * cuts[c] * VOCAB,
                               (size_t)(cuts[c] * VOCAB));
               end_run(&alone);
            }
            end_run(&whole);
         }
      }
      /* Top-k looks ahead: a later token evicts an earlier one. Random scores do not depend on tokens. */
      if (v == STOCHASTIC || v == DENSE) CHECK(found == 0);
      else CHECKF(found > 0, "variant %d: top-k never looked ahead", v);
      mod_model_destroy(model);
   }
   CHECKF(held == VARIANTS * 6 * 6 * SEQS, "%d of %d", held, VARIANTS * 6 * 6 * SEQS);
   CHECKF(mixed > 200, "%d", mixed);
}

/* Thresholds out of reach: everybody enters, or nobody and the model still runs. */
static void test_thresholds(void)
{
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v);
      mod_model *model = make(&cfg, 130 + (uint64_t)v);
      fill_batch();
      for (int up = 0; up < 2; ++up)
         for (int grads = 0; grads < 2; ++grads) {
            for (int b = 0; b < LAYERS; ++b) mod_model_thresholds(model)[b] = up ? 1e30 : -1e30;
            run r = run_probed(model, make_batch(ragged, MOD_MODE_CAUSAL), grads);
            CHECKF(r.result == MOD_RESULT_OK, "%s", r.err.message);
            if (!r.logits) continue;
            for (int b = 0; b < LAYERS; ++b) {
               mod_block_config block = mod_config_block(&cfg, b);
               if (block.select == MOD_SELECT_STOCHASTIC) continue; /* its threshold is 1 - c, whatever theta is */
               int none = up && block.select == MOD_SELECT_LEARNED;
               for (int s = 0; s < SEQS; ++s) CHECK(kept_in(&r, b, s) == (none ? 0 : ragged[s]));
               CHECK(r.out.blocks[b].kept == (none ? 0 : LENGTH + 1 + 7));
               CHECK(same(seen[b].input, seen[b].output, (size_t)(seen[b].n * D)) == none);
            }
            int finite = 1;
            for (int i = 0; i < ROWS * VOCAB; ++i) finite = finite && fabsf(r.logits[i]) < 1e6f;
            CHECK(finite && r.out.cross_entropy > 0 && r.out.cross_entropy < 1e3);
            end_run(&r);
         }
      mod_model_destroy(model);
   }
   /* A block that takes everything has no predictor and no threshold. */
   mod_config cfg = variant(PLAIN);
   cfg.capacity = 1;
   mod_model *model = make(&cfg, 1);
   for (int b = 0; b < LAYERS; ++b) mod_model_thresholds(model)[b] = 1e30;
   for (int i = 0; i < mod_model_param_count(model); ++i) {
      mod_param p;
      mod_model_param(model, i, &p, NULL);
      CHECK(!p.predictor);
   }
   mod_batch batch = make_batch(NULL, MOD_MODE_CAUSAL);
   run r = run_model(model, &batch, 0, 1);
   CHECK(r.result == MOD_RESULT_OK);
   for (int b = 0; r.logits && b < LAYERS; ++b) CHECK(kept_in(&r, b, 1) == LENGTH);
   end_run(&r);
   mod_model_destroy(model);
}

/* ---------------------------------------------------------------------------------------------------------------------
   7. Memory: the plan is exact
   ------------------------------------------------------------------------------------------------------------------ */

/* Forward (and backward) on a tape of `size` bytes. */
static mod_result run_in(const mod_model *model, const mod_batch *batch, mod_tape_desc desc, float *grads, size_t size,
                         size_t *peak)
{
   mod_error err = {MOD_RESULT_OK, NULL, 0, 0};
   mod_forward out;
   mod_tape *tape = mod_tape_create(&desc, size, NULL, &err);
   if (!tape) return err.code;
   mod_result result = mod_model_forward(model, tape, grads, batch, &out, &err);
   if (result == MOD_RESULT_OK && grads && out.loss) result = mod_tape_backward(tape, out.loss, &err);
   if (result != err.code) result = MOD_RESULT_STATE; /* the error must say the same */
   if (peak) *peak = mod_tape_peak(tape);
   mod_tape_destroy(tape);
   return result;
}

static void test_memory(void)
{
   static const struct { int n_seqs, length, ragged; } shapes[] = {{1, 1, 0}, {1, LENGTH, 0}, {SEQS, LENGTH, 0},
                                                                   {SEQS, LENGTH, 1}, {2, 7, 0}, {SEQS, 3, 1}};
   int exact = 0, refused = 0, tried = 0, smaller = 0, smaller_refused = 0;
   fill_batch();
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v);
      mod_model *model = make(&cfg, 150 + (uint64_t)v);
      size_t n_params;
      mod_model_params(model, &n_params);
      float *grads = (float *)malloc(n_params * sizeof(float));
      for (int shape = 0; shape < 6; ++shape)
         for (int kind = 0; kind < 5; ++kind) { /* top-k, causal: none, few, all, half */
            int lengths[SEQS] = {shapes[shape].length, 1, shapes[shape].length / 2};
            double theta = kind == 1 ? 1e30 : kind == 2 ? 0.5 : kind == 3 ? -1e30 : 0;
            for (int b = 0; b < LAYERS; ++b) mod_model_thresholds(model)[b] = theta;
            for (int grad = 0; grad < 2; ++grad)
               for (int no_targets = 0; no_targets < 2; ++no_targets)
                  for (int threads = 1; threads <= 3; ++threads) {
                     if (threads > 1 && (no_targets || (kind != 0 && kind != 3))) continue;
                     mod_batch batch = make_batch(shapes[shape].ragged ? lengths : NULL,
                                                  kind ? MOD_MODE_CAUSAL : MOD_MODE_TOPK);
                     mod_tape_desc desc = {0};
                     size_t bytes = 0, peak = 0;
                     batch.n_seqs = shapes[shape].n_seqs;
                     batch.length = shapes[shape].length;
                     if (no_targets) batch.targets = NULL;
                     desc.forward_only = !grad;
                     desc.n_threads = threads;
                     if (!CHECK(mod_forward_plan(&cfg, &batch, &desc, &bytes, NULL) == MOD_RESULT_OK)) continue;
                     ++tried;
                     memset(grads, 0, n_params * sizeof(float));
                     mod_result enough = run_in(model, &batch, desc, grad ? grads : NULL, bytes, &peak);
                     exact += enough == MOD_RESULT_OK && (peak == bytes || (grad && no_targets));
                     mod_result less = run_in(model, &batch, desc, grad ? grads : NULL, bytes - 1, NULL);
                     refused += less == MOD_RESULT_MEMORY || (grad && no_targets); /* no loss, no backward */
                     if (threads != 1 || no_targets || kind > 1) continue;
                     for (int i = 0; i < 12; ++i) {
                        ++smaller;
                        less = run_in(model, &batch, desc, grad ? grads : NULL, bytes * (size_t)i / 12, NULL);
                        smaller_refused += less == MOD_RESULT_MEMORY;
                     }
                  }
         }
      free(grads);
      mod_model_destroy(model);
   }
   CHECK(tried == VARIANTS * 6 * (5 * 4 + 2 * 2 * 2));
   CHECKF(exact == tried, "%d of %d", exact, tried);
   CHECKF(refused == tried, "%d of %d", refused, tried);
   CHECKF(smaller_refused == smaller && smaller == VARIANTS * 6 * 2 * 2 * 12, "%d of %d", smaller_refused, smaller);
}

/* One tape, planned for full sequences, serves batches with any lengths and any thresholds at the same peak. */
static void test_memory_reuse(void)
{
   for (int v = 0; v < VARIANTS; ++v)
      for (int mode = 0; mode < 2; ++mode) {
         mod_config cfg = variant(v);
         mod_model *model = make(&cfg, 170 + (uint64_t)v);
         mod_tape_desc desc = {0};
         size_t bytes = 0, n_params;
         int full[SEQS] = {LENGTH, LENGTH, LENGTH};
         mod_batch batch = make_batch(full, mode);
         mod_model_params(model, &n_params);
         float *grads = (float *)calloc(n_params, sizeof(float));
         CHECK(mod_forward_plan(&cfg, &batch, &desc, &bytes, NULL) == MOD_RESULT_OK);
         mod_tape *tape = mod_tape_create(&desc, bytes, NULL, NULL);
         CHECK(tape != NULL);
         for (int round = 0; tape && round < 8; ++round) {
            mod_forward out;
            int lengths[SEQS] = {test_below(LENGTH + 1), test_below(LENGTH + 1), test_below(LENGTH + 1)};
            fill_batch();
            for (int b = 0; b < LAYERS; ++b) mod_model_thresholds(model)[b] = 0.5 * test_normal();
            if (round) batch.lengths = lengths;
            mod_tape_reset(tape);
            CHECK(mod_model_forward(model, tape, grads, &batch, &out, NULL) == MOD_RESULT_OK);
            CHECK(mod_tape_backward(tape, out.loss, NULL) == MOD_RESULT_OK);
            CHECK(mod_tape_peak(tape) == bytes);
         }
         mod_tape_destroy(tape);
         free(grads);
         mod_model_destroy(model);
      }
}

static void test_plan(void)
{
   for (int v = 0; v < VARIANTS; ++v)
      for (int threads = 1; threads <= 3; ++threads) {
         mod_config cfg = variant(v);
         mod_train_desc how = {0};
         mod_plan plan;
         mod_error err;
         how.n_seqs = SEQS;
         how.length = LENGTH;
         how.n_threads = threads;
         CHECK(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_OK);
         void *memory = malloc(plan.model), *work = malloc(plan.trainer);
         CHECK(!mod_model_init(&cfg, memory, plan.model - 1, &err) && err.code == MOD_RESULT_MEMORY);
         CHECK(!mod_model_init(&cfg, memory, 0, &err) && err.code == MOD_RESULT_MEMORY);
         mod_model *model = mod_model_init(&cfg, memory, plan.model, &err);
         CHECKF(model != NULL, "%s", err.message);
         if (!model) continue;
         CHECK(mod_model_randomize(model, 4, NULL) == MOD_RESULT_OK);

         size_t n, counted = 0;
         mod_model_params(model, &n);
         for (int i = 0; i < mod_model_param_count(model); ++i) {
            mod_param p;
            CHECK(mod_model_param(model, i, &p, NULL) == MOD_RESULT_OK);
            CHECK(p.data == mod_model_params(model, NULL) + p.offset && p.offset == counted);
            CHECK(mod_model_find(model, p.name) == i);
            CHECK(p.count == (size_t)p.dim[0] * (size_t)(p.n_dim > 1 ? p.dim[1] : 1));
            counted += p.count;
         }
         CHECK(n == plan.n_params && counted == n);
         CHECK(plan.params == n * sizeof(float) && plan.grads == n * sizeof(float));
         CHECK(plan.optimizer == 2 * n * sizeof(float));
         CHECK(plan.model >= plan.params && plan.trainer >= plan.grads + plan.optimizer + plan.activations);

         CHECK(!mod_trainer_init(model, &how, work, plan.trainer - 1, &err) && err.code == MOD_RESULT_MEMORY);
         CHECK(!mod_trainer_init(model, &how, work, 0, &err) && err.code == MOD_RESULT_MEMORY);
         mod_trainer *trainer = mod_trainer_init(model, &how, work, plan.trainer, &err);
         CHECKF(trainer != NULL, "%s", err.message);
         fill_batch();
         mod_batch batch = make_batch(NULL, MOD_MODE_TOPK);
         if (trainer) CHECK(mod_train_step(trainer, &batch, NULL, &err) == MOD_RESULT_OK);
         CHECKF(mod_trainer_peak(trainer) == plan.trainer, "%zu, plan %zu", mod_trainer_peak(trainer), plan.trainer);
         /* Ragged batches fit too; larger ones are refused. */
         batch.lengths = holes;
         if (trainer) CHECK(mod_train_step(trainer, &batch, NULL, &err) == MOD_RESULT_OK);
         CHECK(mod_trainer_peak(trainer) == plan.trainer);
         batch.lengths = NULL;
         batch.n_seqs = SEQS + 1;
         int more[ROWS + LENGTH];
         for (int i = 0; i < ROWS + LENGTH; ++i) more[i] = i % VOCAB;
         batch.tokens = batch.targets = more;
         if (trainer) CHECK(mod_train_step(trainer, &batch, NULL, &err) != MOD_RESULT_OK);
         CHECK(mod_trainer_peak(trainer) <= plan.trainer);
         mod_trainer_destroy(trainer);
         mod_model_destroy(model);
         free(memory);
         free(work);
      }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Stochastic selection, probe, statistics, NaN
   ------------------------------------------------------------------------------------------------------------------ */

static float random_scores[LAYERS][ROWS];

static void keep_scores(void)
{
   for (int b = 0; b < LAYERS; ++b) memcpy(random_scores[b], seen[b].score, sizeof random_scores[b]);
}

static void test_stochastic(void)
{
   mod_config cfg = variant(STOCHASTIC);
   mod_model *model = make(&cfg, 190), *other = make(&cfg, 191);
   for (int i = 0; i < mod_model_param_count(model); ++i) {
      mod_param p;
      mod_model_param(model, i, &p, NULL);
      CHECKF(!p.predictor && !has(p.name, "router") && !has(p.name, "predictor"), "%s", p.name);
   }
   fill_batch();
   mod_batch batch = make_batch(NULL, MOD_MODE_TOPK);
   run r = run_probed(model, batch, 0);
   CHECK(r.result == MOD_RESULT_OK);
   keep_scores();
   for (int b = 1; r.logits && b < LAYERS; b += 2) {
      for (int s = 0; s < SEQS; ++s) CHECK(kept_in(&r, b, s) == LENGTH / 4);
      int differ = 0;
      for (int i = 0; i < ROWS; ++i) {
         CHECK(random_scores[b][i] >= 0 && random_scores[b][i] <= 1);
         differ += i > 0 && random_scores[b][i] != random_scores[b][i - 1];
         differ += random_scores[b][i] != random_scores[b ^ 2][i];
      }
      CHECK(differ == 2 * ROWS - 1); /* by position and by block */
   }
   end_run(&r);

   /* Neither tokens, weights, lengths nor mode matter; sequence id, seed and step do. */
   for (int change = 0; change < 8; ++change) {
      int lengths[SEQS] = {5, LENGTH, 11}, equal = 0, unequal = 0;
      mod_batch changed = batch;
      if (change == 1) fill_batch();
      if (change == 3) changed.lengths = lengths;
      if (change == 4) changed.mode = MOD_MODE_CAUSAL;
      if (change == 5) changed.first_id = 1;
      if (change == 6) ++changed.seed;
      if (change == 7) ++changed.step;
      r = run_probed(change == 2 ? other : model, changed, 0);
      CHECK(r.result == MOD_RESULT_OK);
      for (int b = 1; b < LAYERS; b += 2)
         for (int s = 0; s < SEQS; ++s)
            for (int i = 0; i < (changed.lengths ? lengths[s] : LENGTH); ++i) {
               int from = change == 5 ? s + 1 : s; /* sequence s now has the id of s + 1 */
               if (from == SEQS) continue;
               float now = seen[b].score[seen[b].start[s] + i];
               if (now == random_scores[b][from * LENGTH + i]) ++equal;
               else ++unequal;
            }
      int rows = change == 3 ? 5 + LENGTH + 11 : change == 5 ? 2 * LENGTH : ROWS;
      CHECKF(change < 6 ? equal == 2 * rows && !unequal : unequal == 2 * rows && !equal, "change %d: %d equal, %d not",
             change, equal, unequal);
      if (change == 4) /* causally: kept iff u > 1 - c */
         for (int b = 1; b < LAYERS; b += 2)
            for (int i = 0; i < ROWS; ++i) CHECK(is_kept(b, i) == ((double)seen[b].score[i] > 1 - 0.25));
      end_run(&r);
   }

   /* The causal share is close to c: 5 deviations of a binomial. */
   double kept = 0, n = 0;
   for (int step = 0; step < 60; ++step) {
      batch.mode = MOD_MODE_CAUSAL;
      batch.step = (uint64_t)step;
      r = run_model(model, &batch, 0, 1);
      for (int b = 1; r.logits && b < LAYERS; b += 2)
         for (int s = 0; s < SEQS; ++s) kept += kept_in(&r, b, s), n += LENGTH;
      end_run(&r);
   }
   CHECK(n == 60 * 2 * ROWS);
   CHECKF(fabs(kept / n - 0.25) < 5 * sqrt(0.25 * 0.75 / n), "share %g", kept / n);
   mod_model_destroy(model);
   mod_model_destroy(other);
}

/* max(x, 0) - x t + log(1 + exp(-|x|)) */
static double bce(double x, int t) { return (x > 0 ? x : 0) - (t ? x : 0) + log1p(exp(-fabs(x))); }

static void test_statistics(void)
{
   int routed_seen = 0, decided_seen = 0, disagreed = 0;
   for (int v = 0; v < VARIANTS; ++v) {
      mod_config cfg = variant(v), full;
      mod_model *model = make(&cfg, 210 + (uint64_t)v);
      full = mod_model_config(model);
      fill_batch();
      if (v != DENSE) halve(model);
      for (int l = 0; l < 3; ++l)
         for (int mode = 0; mode < 2; ++mode)
            for (int grads = 0; grads < 2; ++grads) {
               const int *lengths = l == 0 ? NULL : l == 1 ? ragged : holes;
               mod_batch batch = make_batch(lengths, mode);
               run r = run_probed(model, batch, grads);
               CHECK(r.result == MOD_RESULT_OK);
               if (!r.logits) continue;
               int n = seen[0].n, skipped[ROWS], n_skipped = 0, n_routed = 0, n_predictors = 0, n_routers = 0;
               double router_bce = 0, predictor_bce = 0;
               for (int i = 0; i < n; ++i) skipped[i] = 1;
               CHECK(r.out.n_tokens == n);
               for (int b = 0; b < LAYERS; ++b) {
                  mod_block_config block = mod_config_block(&full, b);
                  mod_block_stats stats = r.out.blocks[b];
                  int routed = block.select != MOD_SELECT_ALL, learned = block.select == MOD_SELECT_LEARNED;
                  int predictor = has_predictor(&full, b);
                  /* Every site is seen once, and only where there is something to see. */
                  CHECK(!seen[b].malformed);
                  CHECK(seen[b].times[MOD_SITE_INPUT] == 1 && seen[b].times[MOD_SITE_OUTPUT] == 1);
                  CHECK(seen[b].times[MOD_SITE_ATTENTION] == 1 && seen[b].times[MOD_SITE_MLP] == 1);
                  CHECK(seen[b].times[MOD_SITE_SCORE] == routed);
                  CHECK(seen[b].times[MOD_SITE_PREDICTOR] == predictor);
                  CHECK(seen[b].times[MOD_SITE_KEPT] == 1);
                  CHECK(stats.routed == routed && stats.tokens == n);
                  if (!routed) {
                     CHECK(stats.kept == n && !stats.decided);
                     continue;
                  }
                  ++n_routed;
                  n_predictors += predictor;
                  n_routers += learned;
                  CHECK(stats.kept == seen[b].n_kept);
                  const float *logit = predictor ? seen[b].predictor : seen[b].score;
                  int predicted = 0, hits = 0, agree = 0;
                  double r_sum = 0, p_sum = 0;
                  for (int i = 0; i < n; ++i) {
                     int in = is_kept(b, i), says = (double)logit[i] > mod_model_thresholds(model)[b];
                     if (in) skipped[i] = 0;
                     predicted += says;
                     hits += says && in;
                     agree += says == in;
                     r_sum += bce((double)seen[b].score[i], in);
                     if (predictor) p_sum += bce((double)seen[b].predictor[i], in);
                  }
                  if (learned) router_bce += r_sum / n;
                  predictor_bce += p_sum / n;
                  CHECK(stats.decided == (mode == MOD_MODE_TOPK && learned));
                  if (stats.decided) {
                     CHECKF(stats.predicted == predicted && stats.hits == hits && stats.agree == agree,
                            "variant %d block %d: %d %d %d", v, b, predicted, hits, agree);
                     disagreed += agree < n;
                     ++decided_seen;
                  }
                  ++routed_seen;
               }
               for (int i = 0; i < n; ++i) n_skipped += skipped[i];
               CHECK(r.out.skipped == (n_routed ? n_skipped : 0));
               CHECK(seen[LAYERS].times[MOD_SITE_LOGITS] == 1);

               /* Losses: the BCEs are means over tokens, then over the routed blocks that have one. */
               int trains_router = full.causal == MOD_CAUSAL_ROUTER || full.causal == MOD_CAUSAL_BOTH;
               double want_r = mode == MOD_MODE_TOPK && trains_router && n_routers ? router_bce / n_routers : 0;
               double want_p = mode == MOD_MODE_TOPK && n_predictors ? predictor_bce / n_predictors : 0;
               CHECKF(fabs(r.out.router_bce - want_r) <= 1e-5 * (1 + want_r), "variant %d: %g, not %g", v,
                      r.out.router_bce, want_r);
               CHECKF(fabs(r.out.predictor_bce - want_p) <= 1e-5 * (1 + want_p), "variant %d: %g, not %g", v,
                      r.out.predictor_bce, want_p);
               double ce = 0, n_targets = 0;
               for (int s = 0; s < SEQS; ++s)
                  for (int i = 0; i < (lengths ? lengths[s] : LENGTH); ++i) {
                     const float *x = r.logits + (s * LENGTH + i) * VOCAB;
                     double sum = 0;
                     int target = targets[s * LENGTH + i];
                     if (target < 0) continue;
                     for (int c = 0; c < VOCAB; ++c) sum += exp((double)x[c]);
                     ce += log(sum) - (double)x[target];
                     ++n_targets;
                  }
               CHECK((double)r.out.n_targets == n_targets);
               CHECKF(fabs(r.out.cross_entropy - ce / n_targets) <= 1e-5, "%g, not %g", r.out.cross_entropy,
                      ce / n_targets);
               /* What is differentiated is the sum with the default weights. */
               CHECK((r.out.loss != NULL) == grads);
               if (grads) {
                  double total = r.out.cross_entropy + 0.01 * r.out.router_bce + r.out.predictor_bce;
                  CHECKF(fabs((double)r.out.loss->data[0] - total) <= 1e-5 * total, "%g, not %g",
                         (double)r.out.loss->data[0], total);
               }
               end_run(&r);
            }
      mod_model_destroy(model);
   }
   CHECK(routed_seen == 3 * 2 * 2 * (5 * 2 + 4));
   CHECK(decided_seen == 3 * 2 * (4 * 2 + 3) && disagreed > 20);
}

static int all_zero(const float *x, size_t n)
{
   for (size_t i = 0; i < n; ++i)
      if (x[i] != 0) return 0;
   return 1;
}

/* NaN as a score or deciding logit is reported with block and position; nothing is written. */
static void test_nan(void)
{
   for (int kind = 0; kind < 4; ++kind) /* a router's weight, a predictor's, one token's embedding, the same late */
      for (int mode = 0; mode < 2; ++mode) {
         mod_config cfg = variant(PLAIN);
         if (kind == 2) cfg.route_first = 1;
         mod_model *model = make(&cfg, 230);
         mod_param p;
         size_t n;
         int block = kind == 2 ? 0 : kind == 3 ? 1 : 3, where = kind < 2 ? 0 : 6;
         fill_batch();
         for (int i = 0; i < ROWS; ++i) tokens[i] = i == LENGTH + 6 ? 7 : (8 + test_below(VOCAB - 8)); /* 7 once */
         if (kind == 0) {
            CHECK(mod_model_param(model, mod_model_find(model, "blocks.3.router"), &p, NULL) == MOD_RESULT_OK);
            p.data[5] = NAN;
         } else if (kind == 1) {
            int poisoned = 0;
            for (int i = 0; i < mod_model_param_count(model); ++i) {
               mod_model_param(model, i, &p, NULL);
               if (!p.predictor || !has(p.name, "blocks.3")) continue;
               p.data[0] = NAN;
               ++poisoned;
            }
            CHECK(poisoned > 0);
         } else {
            CHECK(mod_model_param(model, mod_model_find(model, "embed"), &p, NULL) == MOD_RESULT_OK);
            p.data[7 * D + 3] = NAN;
         }
         float *params = mod_model_params(model, &n), *copy = (float *)malloc(n * sizeof(float));
         double theta[LAYERS];
         memcpy(copy, params, n * sizeof(float));
         memcpy(theta, mod_model_thresholds(model), sizeof theta);
         mod_batch batch = make_batch(NULL, mode);
         for (int grads = 0; grads < 2; ++grads) {
            run r = run_model(model, &batch, grads, 1);
            CHECKF(r.result == MOD_RESULT_NUMERIC && r.err.code == MOD_RESULT_NUMERIC, "kind %d mode %d: %s", kind,
                   mode,
                   mod_result_name(r.result));
            CHECKF(r.err.block == block && r.err.where == where, "kind %d: block %d, position %d", kind, r.err.block,
                   (int)r.err.where);
            CHECK(same(copy, params, n) && !memcmp(theta, mod_model_thresholds(model), sizeof theta));
            if (r.grads) CHECK(all_zero(r.grads, n));
            end_run(&r);
         }
         free(copy);
         mod_model_destroy(model);
      }

   /* Infinite scores are legal. Zero and minus-zero weights give ties: the first k positions. */
   for (int kind = 0; kind < 3; ++kind) {
      mod_config cfg = variant(PLAIN);
      mod_model *model = make(&cfg, 231);
      mod_param p;
      CHECK(mod_model_param(model, mod_model_find(model, "blocks.1.router"), &p, NULL) == MOD_RESULT_OK);
      for (int i = 0; i < D; ++i) p.data[i] = kind == 0 ? 0.0f : kind == 1 ? -0.0f : i ? 0.0f : INFINITY;
      fill_batch();
      run r = run_probed(model, make_batch(ragged, MOD_MODE_TOPK), 0);
      if (kind < 2) {
         CHECK(r.result == MOD_RESULT_OK);
         for (int j = 0; j < seen[1].n_kept; ++j) CHECK(seen[1].position[j] == (j < 5 ? j : j == 5 ? 0 : j - 6));
         CHECK(seen[1].n_kept == 5 + 1 + 1);
      } else { /* with the raw gate the infinity goes on, and reaches the next router as NaN */
         CHECK(seen[1].n_kept == 7 && r.result == MOD_RESULT_NUMERIC && r.err.block == 3);
      }
      end_run(&r);
      mod_model_destroy(model);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   A model with given FLOPs: no other depth comes nearer, and d_ff makes up for the rest */

static double flops_of(mod_config c, int n_layers, int d_ff)
{
   mod_flops f;
   c.n_layers = n_layers; c.d_ff = d_ff;
   return mod_config_flops(&c, 1, &c.context, NULL, &f, NULL) == MOD_RESULT_OK ? f.total : -1;
}

static void test_match(void)
{
   static const int mlps[] = {MOD_MLP_PLAIN, MOD_MLP_MOE, MOD_MLP_MODE};
   int deeper = 0, same = 0;
   for (int round = 0; round < 200; ++round) {
      mod_config c = {0}, found;
      c.vocab_size = 64; c.context = 48; c.d_model = 16 * (1 + round % 4); c.n_heads = 1 + round % 2;
      c.select = round % 5 == 4 ? MOD_SELECT_ALL : MOD_SELECT_LEARNED;
      c.mlp = mlps[round % 3];
      if (c.mlp == MOD_MLP_MODE) c.select = 0;
      c.capacity = round % 7 ? 0.125 * (round % 7) : 1;
      c.route_first = c.route_every = 1 + round % 3;
      int d_ff = 4 * c.d_model;
      double flops = flops_of(c, 2, d_ff) * (1 + test_below(1000) / 100.0), left;
      if (!CHECK(mod_config_match(&c, flops, &found, NULL) == MOD_RESULT_OK)) continue;
      left = fabs(flops_of(c, found.n_layers, d_ff) - flops);
      for (int n = 1; n < found.n_layers + 8; ++n)
         CHECKF(fabs(flops_of(c, n, d_ff) - flops) >= left, "round %d: %d blocks, not %d", round, n, found.n_layers);
      left = fabs(flops_of(c, found.n_layers, found.d_ff) - flops);
      for (int d = found.d_ff - 16; d <= found.d_ff + 16; d += 32)
         CHECKF(d < 1 || fabs(flops_of(c, found.n_layers, d) - flops) >= left, "round %d: d_ff %d", round, d);
      deeper += found.n_layers > 2;
      same += found.d_ff == d_ff;
      found.n_layers = c.n_layers; found.d_ff = c.d_ff;
      CHECK(memcmp(&found, &c, sizeof c) == 0); /* the rest is as it was */
   }
   CHECKF(deeper > 150 && same > 20 && same < 180, "%d deeper, %d with the same d_ff", deeper, same);
   /* By hand: the FLOPs of the model itself give that model. */
   mod_config c = {0}, found;
   c.vocab_size = 256; c.context = 256; c.d_model = 64; c.n_heads = 2;
   for (int n = 1; n < 20; ++n)
      CHECK(mod_config_match(&c, flops_of(c, n, 256), &found, NULL) == MOD_RESULT_OK && found.n_layers == n &&
            found.d_ff == 256);
}

int main(void)
{
   fill_batch();
   test_dense_equal();
   test_equation();
   test_zero_blocks();
   test_batches();
   test_padding();
   test_prefix();
   test_thresholds();
   test_memory();
   test_memory_reuse();
   test_plan();
   test_stochastic();
   test_statistics();
   test_nan();
   test_match();
   CHECKF(wrong_peaks == 0, "%d of %d runs", wrong_peaks, n_runs);
   CHECKF(wrong_flops == 0, "%d of %d runs", wrong_flops, n_runs);
   CHECKF(n_runs > 1400, "%d", n_runs);
   return test_end();
}
