/* test_ops.c - the tape and its ops in float: values against plain loops, order of sums, shapes, empty and ragged rows,
   FLOPs, exact memory, mark and rewind, errors. Gradients are test_gradients.c's. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"

#include <math.h>

enum { MAX_IN = 3, MAX_COUNT = 4096, TAPE_BYTES = 1 << 21 };

/* CHECK as an expression, with a sentence. (Arguments are evaluated in any order: call first, then ask err.) */
#define HOLDS(ok, why) test_check((ok) ? 1 : 0, #ok, __FILE__, __LINE__, why)

static size_t count_of(const mod_tensor *x)
{
   size_t n = 1;
   for (int i = 0; i < x->n_dim; ++i) n *= (size_t)x->dim[i];
   return n;
}

static mod_tensor *leaf(mod_tape *t, float *data, float *grad, int rows, int columns)
{
   const int dim[2] = {rows, columns};
   return mod_leaf(t, data, grad, 2, dim);
}

static void fill(float *x, int n)
{
   for (int i = 0; i < n; ++i) x[i] = (float)test_normal();
}

/* -----------------------------------------------------------------------------------------------------------------
   Values
   ----------------------------------------------------------------------------------------------------------------- */

typedef struct input {
   int n_dim, dim[4], count;
   float data[MAX_COUNT];
} input;

/* Twelve rows of three sequences. `all` are the seven of them that exist (how many depends on the data), `best` the top
   half of these in each sequence, `above` those with a score above 0. Row r is position r % 4 of sequence r / 4. */
static float exists[12] = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, -1};
static float score[12] = {0.3f, -1, 2, 0.1f, 5, 5, 5, 5, -0.2f, 1.5f, 0.1f, 5};
static const int all_rows[7] = {0, 1, 2, 3, 8, 9, 10}, best_rows[3] = {0, 2, 9}, above_rows[5] = {0, 2, 3, 9, 10};
static const int best_of_12_rows[6] = {0, 2, 4, 5, 9, 11};

static mod_rows *full(mod_tape *t) { return mod_rows_make(t, 3, 4, NULL); }
static mod_rows *all(mod_tape *t) { return mod_rows_threshold(t, full(t), leaf(t, exists, NULL, 12, 1), 0); }
static mod_tensor *score_of_all(mod_tape *t) { return mod_gather(t, leaf(t, score, NULL, 12, 1), all(t)); }
static mod_rows *best(mod_tape *t) { return mod_rows_topk(t, all(t), score_of_all(t), 0.5); }
static mod_rows *above(mod_tape *t) { return mod_rows_threshold(t, all(t), score_of_all(t), 0); }
static mod_rows *best_of_12(mod_tape *t) { return mod_rows_topk(t, full(t), leaf(t, score, NULL, 12, 1), 0.5); }
static mod_rows *not_above(mod_tape *t)
{
   mod_rows *every = all(t);
   return mod_rows_others(t, every, mod_rows_threshold(t, every, score_of_all(t), 0));
}
static mod_rows *not_best_of_12(mod_tape *t)
{
   mod_rows *every = full(t);
   return mod_rows_others(t, every, mod_rows_topk(t, every, leaf(t, score, NULL, 12, 1), 0.5));
}
static const int not_above_rows[2] = {1, 8}, not_best_of_12_rows[6] = {1, 3, 6, 7, 8, 10};

/* The first of two experts (and a way past both), each with room for two rows of each sequence. */
static float wish[36] = {2, 1, 0, 2, 1, 0, 2, 1, 0, 1, 2, 0, 0, 0, 9, 9, 0, 0, 0, 9, 0, 0, 0, 9,
                         5, 6, 7, 6, 5, 0, 0, 6, 0, 7, 6, 5};
static mod_rows *chosen_of(mod_tape *t, int choices, int ragged)
{
   mod_rows *out[2] = {NULL, NULL}, *every = ragged ? all(t) : full(t);
   mod_tensor *r = leaf(t, wish, NULL, 12, 3);
   if (ragged) r = mod_gather(t, r, every);
   return mod_rows_choose(t, every, r, choices, 2, 2, NULL, NULL, out) ? out[0] : NULL;
}
static const int chosen_rows[5] = {0, 1, 5, 9, 11}, chosen_all_rows[4] = {0, 1, 9, 10};

/* Rows of x [12, d]: those that exist, and a selection of these. */
static mod_tensor *of_all(mod_tape *t, mod_tensor *x) { return mod_gather(t, x, all(t)); }
static mod_tensor *of(mod_tape *t, mod_tensor *x, const mod_rows *kept) { return mod_gather(t, of_all(t, x), kept); }

/* Attention among some queries and other keys. */
static mod_tensor *attend(mod_tape *t, mod_tensor **x, int q_above, int kv_above, int heads, int kv_heads,
                          mod_mask mask)
{
   mod_rows *every = all(t), *kept = above(t), *q = q_above ? kept : every, *kv = kv_above ? kept : every;
   mod_tensor *in[3];
   for (int i = 0; i < 3; ++i) in[i] = (i ? kv_above : q_above) ? of(t, x[i], kept) : of_all(t, x[i]);
   return mod_attention(t, in[0], in[1], in[2], q, kv, heads, kv_heads, mask);
}

static const int ids[6] = {2, 0, 4, 2, 2, 3};
static const int targets[5] = {3, -1, 0, 2, -1};
static const unsigned char truths[6] = {1, 0, 0, 1, 1, 0};

static mod_tensor *reshape(mod_tape *t, mod_tensor *x, int n_dim, int a, int b, int c)
{
   const int dim[3] = {a, b, c};
   return mod_reshape(t, x, n_dim, dim);
}

/* y = 3 a a b; forward is not called while measuring. */
static int outside_calls, outside_dirty; /* dirty: saved numbers that did not come zeroed */
static void outside_forward(mod_tape *t, mod_tensor *out)
{
   float *square = (float *)out->saved;
   (void)t;
   ++outside_calls;
   for (size_t i = 0; i < count_of(out); ++i) {
      outside_dirty += square[i] != 0;
      square[i] = out->in[0]->data[i] * out->in[0]->data[i];
      out->data[i] = *(const float *)out->user * square[i] * out->in[1]->data[i];
   }
}
static void outside_backward(mod_tape *t, mod_tensor *out)
{
   const float *square = (const float *)out->saved, s = *(const float *)out->user;
   (void)t;
   for (size_t i = 0; i < count_of(out); ++i) {
      if (out->in[0]->grad) out->in[0]->grad[i] += s * 2 * out->in[0]->data[i] * out->in[1]->data[i] * out->grad[i];
      if (out->in[1]->grad) out->in[1]->grad[i] += s * square[i] * out->grad[i];
   }
}
static mod_tensor *outside(mod_tape *t, mod_tensor *a, mod_tensor *b, int rows, int columns)
{
   static float three = 3;
   mod_custom_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.n_in = 2;
   desc.in[0] = a;
   desc.in[1] = b;
   desc.n_dim = 2;
   desc.dim[0] = rows;
   desc.dim[1] = columns;
   desc.saved_bytes = (size_t)rows * (size_t)columns * sizeof(float);
   desc.forward = outside_forward;
   desc.backward = outside_backward;
   desc.user = &three;
   return mod_custom(t, &desc);
}

/* An op under test, and what it should give. */
#define OP(name, expr) \
   static mod_tensor *op_##name(mod_tape *t, mod_tensor **x) { (void)t; return expr; }
#define WANT(name) static void want_##name(const input *in, double *y)
#define POINTWISE(name, op, want)                                             \
   OP(name, op)                                                               \
   WANT(name)                                                                 \
   {                                                                          \
      for (int i = 0; i < in->count; ++i) {                                   \
         double x = (double)in->data[i];                                      \
         y[i] = want;                                                         \
      }                                                                       \
   }
/* b: like a, one row, or one column. */
#define PAIRWISE(name, op, want)                                              \
   OP(name, op)                                                               \
   WANT(name)                                                                 \
   {                                                                          \
      int columns = in->dim[in->n_dim - 1], last = in[1].dim[in[1].n_dim - 1]; \
      for (int i = 0; i < in->count; ++i) {                                   \
         int j = in[1].count == in->count ? i : last == columns ? i % columns : i / columns; \
         double a = (double)in->data[i], b = (double)in[1].data[j];           \
         y[i] = want;                                                         \
      }                                                                       \
   }

/* y = a b with the elements of a and b at these strides. */
static void want_product(const input *in, double *y, int m, int k, int n, int a_row, int a_k, int b_k, int b_column)
{
   for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
         double s = 0;
         for (int p = 0; p < k; ++p)
            s += (double)in[0].data[i * a_row + p * a_k] * (double)in[1].data[p * b_k + j * b_column];
         y[i * n + j] = s;
      }
}
OP(matmul, mod_matmul(t, x[0], x[1]))
WANT(matmul)
{
   int k = in[1].dim[0], n = in[1].dim[1];
   want_product(in, y, in->count / k, k, n, k, 1, n, 1);
}
OP(matmul_nt, mod_matmul_nt(t, x[0], x[1]))
WANT(matmul_nt) { want_product(in, y, in->dim[0], in->dim[1], in[1].dim[0], in->dim[1], 1, 1, in->dim[1]); }
OP(matmul_tn, mod_matmul_tn(t, x[0], x[1]))
WANT(matmul_tn) { want_product(in, y, in->dim[1], in->dim[0], in[1].dim[1], 1, in->dim[1], in[1].dim[1], 1); }

PAIRWISE(add, mod_add(t, x[0], x[1]), a + b)
PAIRWISE(sub, mod_sub(t, x[0], x[1]), a - b)
PAIRWISE(mul, mod_mul(t, x[0], x[1]), a * b)
PAIRWISE(bias, mod_bias(t, x[0], x[1]), a + b)
PAIRWISE(custom, outside(t, x[0], x[1], 3, 4), 3 * a * a * b)
POINTWISE(leaf, x[0], x)
POINTWISE(scale, mod_scale(t, x[0], -1.25), -1.25 * x)
POINTWISE(exp, mod_exp(t, x[0]), exp(x))
POINTWISE(log, mod_log(t, x[0]), log(x))
POINTWISE(gelu, mod_gelu(t, x[0]), 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
POINTWISE(silu, mod_silu(t, x[0]), x / (1 + exp(-x)))
POINTWISE(relu, mod_relu(t, x[0]), x > 0 ? x : 0)
POINTWISE(sigmoid, mod_sigmoid(t, x[0]), 1 / (1 + exp(-x)))
POINTWISE(tanh, mod_tanh(t, x[0]), tanh(x))
POINTWISE(gate_raw, mod_gate(t, x[0], MOD_GATE_RAW, 0.3), x)
POINTWISE(gate_sigmoid, mod_gate(t, x[0], MOD_GATE_SIGMOID, 0.3), 1 / (1 + exp(-x)))
POINTWISE(gate_tanh, mod_gate(t, x[0], MOD_GATE_TANH, 0.3), 1 + 0.3 * tanh(x))
POINTWISE(gate_one, mod_gate(t, x[0], MOD_GATE_ONE, 0.3), 1 + 0 * x)
POINTWISE(stop_grad, mod_stop_grad(t, x[0]), x)
POINTWISE(reshape, reshape(t, x[0], 3, 2, 3, 2), x)
POINTWISE(gather_full, mod_gather(t, x[0], full(t)), x)

OP(softmax, mod_softmax(t, x[0]))
WANT(softmax)
{
   int n = in->dim[in->n_dim - 1];
   for (int r = 0; r < in->count / n; ++r) {
      double s = 0;
      for (int i = 0; i < n; ++i) s += exp((double)in->data[r * n + i]);
      for (int i = 0; i < n; ++i) y[r * n + i] = exp((double)in->data[r * n + i]) / s;
   }
}

static void want_norm(const input *in, double *y, int centred, const float *gain, const float *shift, double eps)
{
   int n = in->dim[in->n_dim - 1];
   for (int r = 0; r < in->count / n; ++r) {
      double mean = 0, square = 0;
      for (int i = 0; i < n && centred; ++i) mean += (double)in->data[r * n + i] / n;
      for (int i = 0; i < n; ++i)
         square += ((double)in->data[r * n + i] - mean) * ((double)in->data[r * n + i] - mean) / n;
      for (int i = 0; i < n; ++i)
         y[r * n + i] = ((double)in->data[r * n + i] - mean) / sqrt(square + eps) * (gain ? (double)gain[i] : 1) +
                        (shift ? (double)shift[i] : 0);
   }
}
OP(rmsnorm, mod_rmsnorm(t, x[0], NULL, 1e-5))
WANT(rmsnorm) { want_norm(in, y, 0, NULL, NULL, 1e-5); }
OP(rmsnorm_gain, mod_rmsnorm(t, x[0], x[1], 0.5))
WANT(rmsnorm_gain) { want_norm(in, y, 0, in[1].data, NULL, 0.5); }
OP(layernorm, mod_layernorm(t, x[0], NULL, NULL, 1e-5))
WANT(layernorm) { want_norm(in, y, 1, NULL, NULL, 1e-5); }
OP(layernorm_gain, mod_layernorm(t, x[0], x[1], NULL, 0.5))
WANT(layernorm_gain) { want_norm(in, y, 1, in[1].data, NULL, 0.5); }
OP(layernorm_bias, mod_layernorm(t, x[0], NULL, x[1], 1e-5))
WANT(layernorm_bias) { want_norm(in, y, 1, NULL, in[1].data, 1e-5); }
OP(layernorm_both, mod_layernorm(t, x[0], x[1], x[2], 1e-5))
WANT(layernorm_both) { want_norm(in, y, 1, in[1].data, in[2].data, 1e-5); }

static void copy_rows(const input *in, double *y, const int *rows, int n)
{
   int d = in->dim[1];
   for (int i = 0; i < n * d; ++i) y[i] = (double)in->data[rows[i / d] * d + i % d];
}
OP(embedding, mod_embedding(t, x[0], ids, 6))
WANT(embedding) { copy_rows(in, y, ids, 6); }
OP(gather, mod_gather(t, x[0], best_of_12(t)))
WANT(gather) { copy_rows(in, y, best_of_12_rows, 6); }
OP(gather_all, of_all(t, x[0]))
WANT(gather_all) { copy_rows(in, y, all_rows, 7); }
OP(gather_best, of(t, x[0], best(t)))
WANT(gather_best) { copy_rows(in, y, best_rows, 3); }
OP(gather_above, of(t, x[0], above(t)))
WANT(gather_above) { copy_rows(in, y, above_rows, 5); }
OP(gather_others, of(t, x[0], not_above(t)))
WANT(gather_others) { copy_rows(in, y, not_above_rows, 2); }
OP(gather_others_of_12, mod_gather(t, x[0], not_best_of_12(t)))
WANT(gather_others_of_12) { copy_rows(in, y, not_best_of_12_rows, 6); }
OP(gather_chosen, mod_gather(t, x[0], chosen_of(t, 1, 0)))
WANT(gather_chosen) { copy_rows(in, y, chosen_rows, 5); }
OP(gather_chosen_of_all, of(t, x[0], chosen_of(t, 2, 1)))
WANT(gather_chosen_of_all) { copy_rows(in, y, chosen_all_rows, 4); }

/* As mod_dropout draws. */
static void want_dropout_of(const input *in, double *y, const int *rows, int n, double p)
{
   int d = in->dim[1];
   for (int i = 0; i < n * d; ++i) {
      int r = rows ? rows[i / d] : i / d;
      uint64_t stream = mod_random_substream(8, 9 + (uint64_t)(r / 4));
      int drop = mod_random_uniform(7, stream, (uint64_t)(r % 4 * d + i % d)) < p;
      y[i] = drop ? 0 : (double)in->data[r * d + i % d] / (1 - p);
   }
}
OP(dropout, mod_dropout(t, x[0], full(t), 0.4, 7, 8, 9))
WANT(dropout) { want_dropout_of(in, y, NULL, 12, 0.4); }
OP(dropout_above, mod_dropout(t, of(t, x[0], above(t)), above(t), 0.75, 7, 8, 9))
WANT(dropout_above) { want_dropout_of(in, y, above_rows, 5, 0.75); }
OP(dropout_off, mod_dropout(t, x[0], full(t), 0, 7, 8, 9))
WANT(dropout_off) { want_dropout_of(in, y, NULL, 12, 0); }

static void want_pool_of(const input *in, double *y, const int *rows, int n, int last)
{
   int d = in->dim[1], count[3] = {0, 0, 0};
   for (int i = 0; i < 3 * d; ++i) y[i] = 0;
   for (int i = 0; i < n; ++i) ++count[rows[i] / 4];
   for (int i = 0; i < n * d; ++i) {
      int r = rows[i / d], s = r / 4;
      if (last) y[s * d + i % d] = (double)in->data[r * d + i % d]; /* ascending: the last one stays */
      else y[s * d + i % d] += (double)in->data[r * d + i % d] / count[s];
   }
}
static const int every_row[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
OP(pool_mean, mod_pool(t, x[0], full(t), MOD_POOL_MEAN))
WANT(pool_mean) { want_pool_of(in, y, every_row, 12, 0); }
OP(pool_last, mod_pool(t, x[0], full(t), MOD_POOL_LAST))
WANT(pool_last) { want_pool_of(in, y, every_row, 12, 1); }
OP(pool_mean_all, mod_pool(t, of_all(t, x[0]), all(t), MOD_POOL_MEAN))
WANT(pool_mean_all) { want_pool_of(in, y, all_rows, 7, 0); }
OP(pool_last_all, mod_pool(t, of_all(t, x[0]), all(t), MOD_POOL_LAST))
WANT(pool_last_all) { want_pool_of(in, y, all_rows, 7, 1); }
OP(pool_mean_above, mod_pool(t, of(t, x[0], above(t)), above(t), MOD_POOL_MEAN))
WANT(pool_mean_above) { want_pool_of(in, y, above_rows, 5, 0); }
OP(pool_last_above, mod_pool(t, of(t, x[0], above(t)), above(t), MOD_POOL_LAST))
WANT(pool_last_above) { want_pool_of(in, y, above_rows, 5, 1); }

OP(logsumexp, mod_logsumexp(t, x[0]))
WANT(logsumexp)
{
   int n = in->dim[in->n_dim - 1];
   for (int r = 0; r < in->count / n; ++r) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += exp((double)in->data[r * n + i]);
      y[r] = log(sum);
   }
}
OP(logsumexp_above, mod_logsumexp(t, of(t, x[0], above(t))))
WANT(logsumexp_above)
{
   int n = in->dim[1];
   for (int r = 0; r < 5; ++r) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += exp((double)in->data[above_rows[r] * n + i]);
      y[r] = log(sum);
   }
}

/* x [12, d] plus weighted rows of f; `take`: of f [12, d] the rows that are kept, else f has just these. */
static void want_scatter_of(const input *in, double *x, const int *rows, int n, int take, const float *weight)
{
   int d = in->dim[1];
   for (int i = 0; i < in->count; ++i) x[i] = (double)in->data[i];
   for (int j = 0; j < n; ++j)
      for (int c = 0; c < d; ++c) {
         int from = take ? rows[j] : j;
         x[rows[j] * d + c] += (weight ? (double)weight[from] : 1) * (double)in[1].data[from * d + c];
      }
}
OP(scatter, mod_scatter_add(t, x[0], x[1], NULL, best_of_12(t)))
WANT(scatter) { want_scatter_of(in, y, best_of_12_rows, 6, 0, NULL); }
OP(scatter_above,
   mod_scatter_add(t, of_all(t, x[0]), of(t, x[1], above(t)), of(t, x[2], above(t)), above(t)))
WANT(scatter_above)
{
   double x[MAX_COUNT];
   int d = in->dim[1];
   want_scatter_of(in, x, above_rows, 5, 1, in[2].data);
   for (int i = 0; i < 7 * d; ++i) y[i] = x[all_rows[i / d] * d + i % d];
}

static double angle(int at, int pair, int head_dim, double base) { return at * pow(base, -2.0 * pair / head_dim); }
OP(rope_table, mod_add(t, x[0], mod_rope_table(t, 0, 9, 6, 100)))
WANT(rope_table)
{
   for (int i = 0; i < 54; ++i) {
      double a = angle(i / 6, i % 6 / 2, 6, 100);
      y[i] = (double)in->data[i] + (i % 2 ? sin(a) : cos(a));
   }
}
static void want_rope_of(const input *in, double *y, const int *rows, int n, int head_dim, double base)
{
   int d = in->dim[1];
   for (int i = 0; i < n; ++i)
      for (int j = 0; j < d; j += 2) {
         int r = rows ? rows[i] : i;
         double a = angle(r % 4, j % head_dim / 2, head_dim, base);
         double x0 = (double)in->data[r * d + j], x1 = (double)in->data[r * d + j + 1];
         y[i * d + j] = x0 * cos(a) - x1 * sin(a);
         y[i * d + j + 1] = x0 * sin(a) + x1 * cos(a);
      }
}
OP(rope, mod_rope(t, x[0], full(t), mod_rope_table(t, 0, 4, 4, 10000)))
WANT(rope) { want_rope_of(in, y, NULL, 12, 4, 10000); }
OP(rope_kept, mod_rope(t, of(t, x[0], above(t)), above(t), mod_rope_table(t, 0, 9, 2, 10)))
WANT(rope_kept) { want_rope_of(in, y, above_rows, 5, 2, 10); }

static void want_attention_of(const input *in, double *y, const int *q_rows, int n_q, const int *kv_rows, int n_kv,
                              int heads, int kv_heads, int causal)
{
   int d = in->dim[1], hd = d / heads, kv_d = kv_heads * hd;
   for (int i = 0; i < n_q; ++i)
      for (int h = 0; h < heads; ++h) {
         int g = h / (heads / kv_heads), row = q_rows[i];
         const float *q = in[0].data + row * d + h * hd;
         double total = 0, *out = y + i * d + h * hd;
         for (int e = 0; e < hd; ++e) out[e] = 0;
         for (int j = 0; j < n_kv; ++j) {
            int key = kv_rows[j];
            double s = 0;
            if (row / 4 != key / 4 || (causal && key > row)) continue;
            for (int e = 0; e < hd; ++e) s += (double)q[e] * (double)in[1].data[key * kv_d + g * hd + e];
            s = exp(s / sqrt(hd));
            total += s;
            for (int e = 0; e < hd; ++e) out[e] += s * (double)in[2].data[key * kv_d + g * hd + e];
         }
         for (int e = 0; e < hd && total > 0; ++e) out[e] /= total;
      }
}
OP(attention, attend(t, x, 0, 0, 2, 1, MOD_MASK_CAUSAL))
WANT(attention) { want_attention_of(in, y, all_rows, 7, all_rows, 7, 2, 1, 1); }
OP(attention_full, attend(t, x, 0, 0, 4, 2, MOD_MASK_FULL))
WANT(attention_full) { want_attention_of(in, y, all_rows, 7, all_rows, 7, 4, 2, 0); }
OP(attention_q, attend(t, x, 1, 0, 2, 2, MOD_MASK_CAUSAL))
WANT(attention_q) { want_attention_of(in, y, above_rows, 5, all_rows, 7, 2, 2, 1); }
OP(attention_kv, attend(t, x, 0, 1, 2, 1, MOD_MASK_CAUSAL))
WANT(attention_kv) { want_attention_of(in, y, all_rows, 7, above_rows, 5, 2, 1, 1); }
OP(attention_kv_full, attend(t, x, 0, 1, 3, 1, MOD_MASK_FULL))
WANT(attention_kv_full) { want_attention_of(in, y, all_rows, 7, above_rows, 5, 3, 1, 0); }
OP(attention_kept, attend(t, x, 1, 1, 2, 1, MOD_MASK_CAUSAL))
WANT(attention_kept) { want_attention_of(in, y, above_rows, 5, above_rows, 5, 2, 1, 1); }

OP(sum, mod_sum(t, x[0]))
WANT(sum)
{
   *y = 0;
   for (int i = 0; i < in->count; ++i) *y += (double)in->data[i];
}
OP(mean, mod_mean(t, x[0]))
WANT(mean)
{
   want_sum(in, y);
   *y /= in->count;
}
static void want_ce_of(const input *in, double *y, double count)
{
   int n = in->dim[1];
   *y = 0;
   for (int r = 0; r < in->dim[0]; ++r) {
      double s = 0;
      if (targets[r] < 0) continue;
      for (int i = 0; i < n; ++i) s += exp((double)in->data[r * n + i]);
      *y += (log(s) - (double)in->data[r * n + targets[r]]) / count;
   }
}
OP(cross_entropy, mod_cross_entropy(t, x[0], targets, 0))
WANT(cross_entropy) { want_ce_of(in, y, 3); }
OP(cross_entropy_count, mod_cross_entropy(t, x[0], targets, 7.5))
WANT(cross_entropy_count) { want_ce_of(in, y, 7.5); }
static void want_bce_of(const input *in, double *y, double count)
{
   *y = 0;
   for (int i = 0; i < in->count; ++i)
      *y += log(1 + exp(truths[i] ? -(double)in->data[i] : (double)in->data[i])) / count;
}
OP(bce, mod_bce_logits(t, x[0], truths, 0))
WANT(bce) { want_bce_of(in, y, 6); }
OP(bce_count, mod_bce_logits(t, x[0], truths, 2.5))
WANT(bce_count) { want_bce_of(in, y, 2.5); }

OP(transpose, mod_transpose(t, x[0], 0, 1))
WANT(transpose)
{
   for (int i = 0; i < in->count; ++i) y[i % in->dim[1] * in->dim[0] + i / in->dim[1]] = (double)in->data[i];
}
OP(transpose_4, mod_transpose(t, x[0], 3, 1)) /* 2 3 4 5 -> 2 5 4 3 */
WANT(transpose_4)
{
   for (int i = 0; i < 120; ++i)
      y[i / 60 * 60 + i % 5 * 12 + i / 5 % 4 * 3 + i / 20 % 3] = (double)in->data[i];
}
OP(slice, mod_slice(t, x[0], 0, 1, 2))
WANT(slice)
{
   for (int i = 0; i < 2 * in->dim[1]; ++i) y[i] = (double)in->data[in->dim[1] + i];
}
OP(slice_middle, mod_slice(t, x[0], 1, 1, 2)) /* 2 4 3 -> 2 2 3 */
WANT(slice_middle)
{
   for (int i = 0; i < 12; ++i) y[i] = (double)in->data[i / 6 * 12 + 3 + i % 6];
}
OP(concat, mod_concat(t, x[0], x[1], 0))
WANT(concat)
{
   for (int i = 0; i < in[0].count; ++i) y[i] = (double)in[0].data[i];
   for (int i = 0; i < in[1].count; ++i) y[in[0].count + i] = (double)in[1].data[i];
}
OP(concat_last, mod_concat(t, x[0], x[1], 1))
WANT(concat_last)
{
   int a = in[0].dim[1], b = in[1].dim[1];
   for (int i = 0; i < in[0].dim[0] * (a + b); ++i) {
      int r = i / (a + b), c = i % (a + b);
      y[i] = (double)(c < a ? in[0].data[r * a + c] : in[1].data[r * b + c - a]);
   }
}

typedef struct value_case {
   const char *name, *in, *out; /* shapes */
   mod_tensor *(*build)(mod_tape *t, mod_tensor **x);
   void (*want)(const input *in, double *y);
   double bar; /* of the largest value; 0: the nearest float */
} value_case;

#define ROW(name, in, out, bar) {#name, in, out, op_##name, want_##name, bar}
static const value_case values[] = {
   ROW(leaf, "2x3x4", "2x3x4", 0),
   ROW(matmul, "3x4 4x5", "3x5", 1e-6),
   ROW(matmul, "2x3x4 4x5", "2x3x5", 1e-6),
   ROW(matmul, "19x33 33x41", "19x41", 1e-6),
   ROW(matmul_nt, "3x4 5x4", "3x5", 1e-6),
   ROW(matmul_nt, "19x33 41x33", "19x41", 1e-6),
   ROW(matmul_tn, "4x3 4x5", "3x5", 1e-6),
   ROW(matmul_tn, "33x19 33x41", "19x41", 1e-6),
   ROW(add, "3x4 3x4", "3x4", 0),
   ROW(add, "3x4 4", "3x4", 0),
   ROW(add, "3x4 1x4", "3x4", 0),
   ROW(add, "3x4 3x1", "3x4", 0),
   ROW(add, "2x3x4 6x1", "2x3x4", 0),
   ROW(add, "5 5", "5", 0),
   ROW(sub, "3x4 3x4", "3x4", 0),
   ROW(sub, "3x4 4", "3x4", 0),
   ROW(sub, "3x4 1x4", "3x4", 0),
   ROW(sub, "3x4 3x1", "3x4", 0),
   ROW(mul, "3x4 3x4", "3x4", 0),
   ROW(mul, "2x3x4 4", "2x3x4", 0),
   ROW(mul, "3x4 1x4", "3x4", 0),
   ROW(mul, "3x4 3x1", "3x4", 0),
   ROW(mul, "4x1 4x1", "4x1", 0),
   ROW(bias, "2x3x4 4", "2x3x4", 0),
   ROW(scale, "3x4", "3x4", 0),
   ROW(exp, "7x9", "7x9", 1e-6),
   ROW(log, "7x9", "7x9", 1e-6),
   ROW(gelu, "7x9", "7x9", 1e-6),
   ROW(silu, "7x9", "7x9", 1e-6),
   ROW(relu, "7x9", "7x9", 0),
   ROW(sigmoid, "7x9", "7x9", 1e-6),
   ROW(tanh, "7x9", "7x9", 1e-6),
   ROW(softmax, "3x5", "3x5", 1e-6),
   ROW(softmax, "2x2x33", "2x2x33", 1e-6),
   ROW(softmax, "3x1", "3x1", 0),
   ROW(rmsnorm, "3x5", "3x5", 1e-6),
   ROW(rmsnorm_gain, "2x3x37 37", "2x3x37", 1e-6),
   ROW(layernorm, "3x5", "3x5", 2e-6),
   ROW(layernorm_gain, "3x37 37", "3x37", 2e-6),
   ROW(layernorm_bias, "3x5 5", "3x5", 2e-6),
   ROW(layernorm_both, "2x3x5 5 5", "2x3x5", 2e-6),
   ROW(embedding, "5x3", "6x3", 0),
   ROW(rope_table, "9x6", "9x6", 1e-6),
   ROW(rope, "12x8", "12x8", 1e-6),
   ROW(rope_kept, "12x6", "5x6", 1e-6),
   ROW(attention, "12x6 12x3 12x3", "7x6", 1e-6),
   ROW(attention_full, "12x8 12x4 12x4", "7x8", 1e-6),
   ROW(attention_q, "12x6 12x6 12x6", "5x6", 1e-6),
   ROW(attention_kv, "12x6 12x3 12x3", "7x6", 1e-6),
   ROW(attention_kv_full, "12x6 12x2 12x2", "7x6", 1e-6),
   ROW(attention_kept, "12x6 12x3 12x3", "5x6", 1e-6),
   ROW(gather, "12x3", "6x3", 0),
   ROW(gather_full, "12x3", "12x3", 0),
   ROW(gather_all, "12x3", "7x3", 0),
   ROW(gather_best, "12x3", "3x3", 0),
   ROW(gather_above, "12x3", "5x3", 0),
   ROW(gather_others, "12x3", "2x3", 0),
   ROW(gather_others_of_12, "12x3", "6x3", 0),
   ROW(gather_chosen, "12x3", "5x3", 0),
   ROW(gather_chosen_of_all, "12x3", "4x3", 0),
   ROW(scatter, "12x3 6x3", "12x3", 1e-7),
   ROW(scatter_above, "12x3 12x3 12x1", "7x3", 2e-7),
   ROW(gate_raw, "5x1", "5x1", 0),
   ROW(gate_sigmoid, "5x1", "5x1", 1e-6),
   ROW(gate_tanh, "5x1", "5x1", 1e-6),
   ROW(gate_one, "5x1", "5x1", 0),
   ROW(stop_grad, "3x4", "3x4", 0),
   ROW(dropout, "12x5", "12x5", 2e-7),
   ROW(dropout_above, "12x5", "5x5", 2e-7),
   ROW(dropout_off, "12x5", "12x5", 0),
   ROW(logsumexp, "3x5", "3x1", 1e-6),
   ROW(logsumexp, "7x1", "7x1", 0),
   ROW(logsumexp, "2x2x33", "2x2x1", 1e-6),
   ROW(logsumexp_above, "12x3", "5x1", 1e-6),
   ROW(pool_mean, "12x5", "3x5", 1e-6),
   ROW(pool_last, "12x5", "3x5", 0),
   ROW(pool_mean_all, "12x5", "3x5", 1e-6),
   ROW(pool_last_all, "12x5", "3x5", 0),
   ROW(pool_mean_above, "12x5", "3x5", 1e-6),
   ROW(pool_last_above, "12x5", "3x5", 0),
   ROW(sum, "6x7", "1", 0),
   ROW(mean, "2x3x4", "1", 1e-7),
   ROW(cross_entropy, "5x4", "1", 1e-6),
   ROW(cross_entropy_count, "5x19", "1", 1e-6),
   ROW(bce, "6x1", "1", 1e-6),
   ROW(bce_count, "6x1", "1", 1e-6),
   ROW(reshape, "3x4", "2x3x2", 0),
   ROW(transpose, "3x4", "4x3", 0),
   ROW(transpose_4, "2x3x4x5", "2x5x4x3", 0),
   ROW(slice, "4x3", "2x3", 0),
   ROW(slice_middle, "2x4x3", "2x2x3", 0),
   ROW(concat, "2x3 4x3", "6x3", 0),
   ROW(concat_last, "3x2 3x4", "3x6", 0),
   ROW(custom, "3x4 3x4", "3x4", 1e-6),
};
enum { N_VALUES = sizeof values / sizeof values[0] };

static int parse_shapes(const char *s, input *in)
{
   int n_in = 0;
   while (*s && n_in < MAX_IN) {
      input *x = in + n_in++;
      x->n_dim = 0;
      x->count = 1;
      while (*s && *s != ' ') {
         char *end;
         x->dim[x->n_dim] = (int)strtol(s, &end, 10);
         x->count *= x->dim[x->n_dim++];
         s = *end == 'x' ? end + 1 : end;
      }
      if (*s) ++s;
   }
   return n_in;
}

static void check_values(mod_tape *tape)
{
   static input in[MAX_IN], out[MAX_IN];
   static double want[MAX_COUNT];
   mod_error err;
   for (int c = 0; c < N_VALUES; ++c) {
      const value_case *v = values + c;
      mod_tensor *x[MAX_IN] = {NULL, NULL, NULL}, *y;
      int n_in = parse_shapes(v->in, in), same_shape;
      parse_shapes(v->out, out);
      mod_tape_reset(tape);
      for (int i = 0; i < n_in; ++i) {
         fill(in[i].data, in[i].count);
         for (int j = 0; j < in[i].count && v->build == op_log; ++j) in[i].data[j] = fabsf(in[i].data[j]) + 0.01f;
         x[i] = mod_leaf(tape, in[i].data, NULL, in[i].n_dim, in[i].dim);
      }
      y = v->build(tape, x);
      mod_tape_status(tape, &err);
      if (!HOLDS(y && y->data, v->name) || !HOLDS(err.code == MOD_RESULT_OK, err.message)) continue;
      same_shape = y->n_dim == out->n_dim && !memcmp(y->dim, out->dim, (size_t)out->n_dim * sizeof(int));
      CHECKF(same_shape, "%s %s: shape", v->name, v->in);
      CHECKF(!y->grad, "%s %s: a gradient of constants", v->name, v->in);
      if (!same_shape) continue;
      v->want(in, want);
      double worst = 0, largest = 0;
      for (int i = 0; i < out->count; ++i) largest = fmax(largest, fabs(want[i]));
      for (int i = 0; i < out->count; ++i) {
         double off =
            v->bar > 0 ? fabs((double)y->data[i] - want[i]) : fabs((double)y->data[i] - (double)(float)want[i]);
         worst = off <= worst ? worst : off;
      }
      CHECKF(worst <= v->bar * largest, "%s %s: off by %g of %g", v->name, v->in, worst, largest);
   }
}

/* The library's own functions over their whole range: relative error, and what happens at the ends. */
static void check_functions(mod_tape *tape)
{
   enum { N = 2001, ENDS = 4 };
   static float x[N], up[N], ends[ENDS] = {-HUGE_VALF, -1e30f, 1e30f, HUGE_VALF};
   double worst[6] = {0, 0, 0, 0, 0, 0};
   mod_tensor *y[6];
   for (int i = 0; i < N; ++i) {
      x[i] = (float)(-87 + 174.0 * i / (N - 1));                 /* exp is a normal number here */
      up[i] = (float)pow(10, -37 + 74.0 * i / (N - 1));
   }
   mod_tape_reset(tape);
   y[0] = mod_exp(tape, leaf(tape, x, NULL, N, 1));
   y[1] = mod_sigmoid(tape, leaf(tape, x, NULL, N, 1));
   y[2] = mod_tanh(tape, leaf(tape, x, NULL, N, 1));
   y[3] = mod_log(tape, leaf(tape, up, NULL, N, 1));
   y[4] = mod_tanh(tape, leaf(tape, up, NULL, N, 1));
   y[5] = mod_gelu(tape, leaf(tape, x, NULL, N, 1));
   if (!HOLDS(mod_tape_status(tape, NULL) == MOD_RESULT_OK, "functions")) return;
   for (int i = 0; i < N; ++i) {
      double a = (double)x[i], b = (double)up[i], want[6], least[6] = {0, 0, 1e-2, 1e-2, 1e-2, 1};
      want[0] = exp(a);
      want[1] = 1 / (1 + exp(-a));
      want[2] = tanh(a);
      want[3] = log(b);
      want[4] = tanh(b);
      want[5] = 0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
      for (int f = 0; f < 6; ++f) {
         double off = fabs((double)y[f]->data[i] - want[f]) / fmax(fabs(want[f]), least[f]);
         worst[f] = off <= worst[f] ? worst[f] : off;
      }
   }
   for (int f = 0; f < 6; ++f) CHECKF(worst[f] <= 1e-6, "function %d is off by %g", f, worst[f]);

   mod_tape_reset(tape);
   mod_tensor *e = leaf(tape, ends, NULL, ENDS, 1), *z[4];
   z[0] = mod_exp(tape, e);
   z[1] = mod_sigmoid(tape, e);
   z[2] = mod_tanh(tape, e);
   z[3] = mod_relu(tape, e);
   if (!HOLDS(mod_tape_status(tape, NULL) == MOD_RESULT_OK, "ends")) return;
   for (int i = 0; i < ENDS; ++i) {
      int right = i >= 2;
      CHECKF(z[0]->data[i] == (right ? HUGE_VALF : 0), "exp(%g) = %g", (double)ends[i], (double)z[0]->data[i]);
      CHECKF(z[1]->data[i] == (right ? 1 : 0), "sigmoid(%g) = %g", (double)ends[i], (double)z[1]->data[i]);
      CHECKF(z[2]->data[i] == (right ? 1 : -1), "tanh(%g) = %g", (double)ends[i], (double)z[2]->data[i]);
      CHECKF(z[3]->data[i] == (right ? ends[i] : 0), "relu(%g) = %g", (double)ends[i], (double)z[3]->data[i]);
   }
   static float odd[3] = {0, -1, NAN};
   mod_tensor *logs = mod_log(tape, leaf(tape, odd, NULL, 3, 1)), *exps = mod_exp(tape, leaf(tape, odd, NULL, 3, 1));
   CHECK(logs && logs->data[0] == -HUGE_VALF && logs->data[1] != logs->data[1] && logs->data[2] != logs->data[2]);
   CHECK(exps && exps->data[0] == 1 && exps->data[2] != exps->data[2]);

   /* Large scores: softmax and the losses do not overflow. */
   static float big[4] = {1e4f, 1e4f, -1e4f, -HUGE_VALF}, far[2] = {200, -200};
   static const int to[1] = {2};
   static const unsigned char wrong[2] = {0, 1};
   mod_tensor *s = mod_softmax(tape, leaf(tape, big, NULL, 1, 4));
   mod_tensor *ce = mod_cross_entropy(tape, leaf(tape, big, NULL, 1, 4), to, 0);
   mod_tensor *bce = mod_bce_logits(tape, leaf(tape, far, NULL, 2, 1), wrong, 0);
   CHECK(s && s->data[0] == 0.5f && s->data[1] == 0.5f && s->data[2] == 0 && s->data[3] == 0);
   CHECK(ce && fabs(ce->value - (2e4 + log(2))) < 0.01);
   CHECK(bce && fabs(bce->value - 200) < 1e-3);
   mod_tensor *lse = mod_logsumexp(tape, leaf(tape, big, NULL, 1, 4));
   mod_tensor *one = mod_logsumexp(tape, leaf(tape, ends, NULL, ENDS, 1));
   CHECK(lse && fabs((double)lse->data[0] - (1e4 + log(2))) < 1e-3);
   CHECK(one && one->data[1] == -1e30f && one->data[2] == 1e30f); /* of one number: that number */
}

/* A softmax over a score and 0 is the score's sigmoid, to the bit, at either end, with any instructions. */
static void check_softmax_of_two(void)
{
   enum { N = 20000 };
   static const float ends[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-38f, -1e-38f, 3.4e38f, -3.4e38f, -HUGE_VALF, 88.7f,
                                -88.7f, 103.9f, -103.9f, 104.1f, -104.1f, 16.6f, -16.6f, 17.4f, -17.4f};
   static float r[N], pair[2 * N], turned[2 * N];
   mod_error err;
   for (int i = 0; i < N; ++i) {
      int end = i - (N - (int)(sizeof ends / sizeof *ends));
      r[i] = end >= 0 ? ends[end]
             : i % 2  ? (float)(220 * (test_uniform() - 0.5))
                      : (float)((i % 4 ? -1 : 1) * pow(10, 83 * test_uniform() - 45));
      pair[2 * i] = turned[2 * i + 1] = r[i];
   }
   for (int level = 0; level < 2; ++level)
      for (int threads = 1; threads < 4; threads += 2) {
         mod_tape_desc desc;
         memset(&desc, 0, sizeof desc);
         desc.simd = level ? MOD_SIMD_BEST : MOD_SIMD_SCALAR;
         desc.n_threads = threads;
         mod_tape *tape = mod_tape_create(&desc, TAPE_BYTES, NULL, &err);
         if (!HOLDS(tape != NULL, err.message)) return;
         mod_tensor *p = mod_softmax(tape, leaf(tape, pair, NULL, N, 2));
         mod_tensor *s = mod_sigmoid(tape, leaf(tape, r, NULL, N, 1));
         mod_tensor *q = mod_softmax(tape, leaf(tape, turned, NULL, N, 2));
         int wrong = 0, sums = 0;
         for (int i = 0; i < N && p && q && s; ++i) {
            wrong += memcmp(p->data + 2 * i, s->data + i, sizeof(float)) != 0;
            wrong += memcmp(q->data + 2 * i + 1, s->data + i, sizeof(float)) != 0;
            sums += fabs((double)p->data[2 * i] + (double)p->data[2 * i + 1] - 1) > 1.2e-7;
         }
         CHECKF(p && q && s && wrong == 0, "level %d: %d scores of %d differ in a bit", level, wrong, 2 * N);
         CHECKF(sums == 0, "level %d: %d of %d do not add up to 1", level, sums, N);
         mod_tape_destroy(tape);
      }
}

static int same_rows(const float *a, const float *b, int n) { return !memcmp(a, b, (size_t)n * sizeof(float)); }

static void check_dropout(void)
{
   enum { S = 16, L = 24, D = 40, N = S * L };
   static const double ps[] = {0.05, 0.1, 0.25, 0.5, 0.9, 0.999};
   static float x[N * D], grad[N * D], weight[N * D], first[N * D], r[N];
   static const float odd[8] = {-0.0f, 0.0f, 1e-45f, -1e-45f, 3.4e38f, HUGE_VALF, -HUGE_VALF, 1};
   int lengths[S];
   mod_error err;
   fill(x, N * D);
   fill(weight, N * D);
   fill(r, N);
   for (int i = 0; i < 8; ++i) x[i * 31] = odd[i];
   mod_tape *tape = mod_tape_create(NULL, TAPE_BYTES, NULL, &err);
   if (!HOLDS(tape != NULL, err.message)) return;

   /* Off: x, bit for bit. */
   mod_tensor *y = mod_dropout(tape, leaf(tape, x, NULL, N, D), mod_rows_make(tape, S, L, NULL), 0, 1, 2, 3);
   CHECK(y && same_rows(y->data, x, N * D));

   /* The share of zeros, in all and by column and row; the others are x / (1 - p). */
   for (int i = 0; i < N * D; ++i) x[i] = 0.5f + (float)test_uniform();
   for (size_t k = 0; k < sizeof ps / sizeof *ps; ++k) {
      double p = ps[k], deviation = sqrt(p * (1 - p));
      int zeros = 0, wrong = 0, column[D], most = 0, all_row = 0;
      memset(column, 0, sizeof column);
      mod_tape_reset(tape);
      y = mod_dropout(tape, leaf(tape, x, NULL, N, D), mod_rows_make(tape, S, L, NULL), p, 1, 2, 3);
      if (!HOLDS(y != NULL, "dropout")) return;
      for (int i = 0; i < N; ++i) {
         int here = 0;
         for (int j = 0; j < D; ++j) {
            double want = (double)x[i * D + j] / (1 - p), got = (double)y->data[i * D + j];
            int zero = got == 0;
            here += zero, column[j] += zero, zeros += zero;
            wrong += !zero && !(fabs(got - want) <= 1.2e-7 * want);
         }
         all_row += p < 0.9 && here == D;
      }
      for (int j = 0; j < D; ++j) most += fabs(column[j] - p * N) > 5 * deviation * sqrt(N);
      CHECKF(fabs(zeros - p * N * D) < 4 * deviation * sqrt(N * D), "p %g: %d of %d are 0", p, zeros, N * D);
      CHECKF(wrong == 0 && most == 0 && all_row == 0, "p %g: %d values, %d columns, %d rows", p, wrong, most, all_row);
   }

   /* Every part of the key counts: of two masks with p = 1/2, half the elements agree. */
   for (int k = 0; k < 6; ++k) {
      static const uint64_t key[6][3] = {{1, 2, 3}, {1, 2, 3}, {4, 2, 3}, {1, 4, 3}, {1, 2, 4}, {1, 3, 2}};
      int agree = 0;
      mod_tape_reset(tape);
      y = mod_dropout(tape, leaf(tape, x, NULL, N, D), mod_rows_make(tape, S, L, NULL), 0.5, key[k][0], key[k][1],
                      key[k][2]);
      if (!HOLDS(y != NULL, "dropout")) return;
      for (int i = 0; k && i < N * D; ++i) agree += (y->data[i] == 0) == (first[i] == 0);
      if (k == 0) memcpy(first, y->data, sizeof first);
      else if (k == 1) CHECK(same_rows(y->data, first, N * D));
      else CHECKF(fabs(agree - N * D / 2.0) < 2 * sqrt(N * D), "key %d: %d of %d agree", k, agree, N * D);
   }
   /* Within a mask neighbours in column, position and sequence have nothing to do with each other. */
   for (int step = 0; step < 3; ++step) {
      int far = step == 0 ? 1 : step == 1 ? D : L * D, agree = 0, n = N * D - far;
      for (int i = 0; i < n; ++i) agree += (first[i] == 0) == (first[i + far] == 0);
      CHECKF(fabs(agree - n / 2.0) < 2 * sqrt(n), "%d away: %d of %d agree", far, agree, n);
   }

   /* Gathered before or after: the same rows. Sequences in other batches, with their ids: the same rows. Shorter
      sequences: the same rows, as far as they go. */
   mod_tape_reset(tape);
   mod_rows *rows = mod_rows_make(tape, S, L, NULL);
   mod_rows *kept = mod_rows_threshold(tape, rows, leaf(tape, r, NULL, N, 1), 0);
   mod_rows *top = mod_rows_topk(tape, kept, mod_gather(tape, leaf(tape, r, NULL, N, 1), kept), 0.4);
   mod_tensor *whole = leaf(tape, x, NULL, N, D), *g = mod_gather(tape, whole, kept);
   mod_tensor *before = mod_dropout(tape, g, kept, 0.5, 1, 2, 3);
   mod_tensor *after = mod_gather(tape, mod_dropout(tape, whole, rows, 0.5, 1, 2, 3), kept);
   mod_tensor *twice = mod_dropout(tape, mod_gather(tape, g, top), top, 0.5, 1, 2, 3);
   mod_tensor *of_after = mod_gather(tape, after, top);
   CHECK(before && after && kept->n > N / 4 && same_rows(before->data, after->data, kept->n * D));
   CHECK(twice && of_after && top->n > N / 20 && same_rows(twice->data, of_after->data, top->n * D));
   for (int from = 0, n; from < S; from += n) {
      n = 1 + from % 5;
      if (n > S - from) n = S - from;
      mod_tape_reset(tape);
      y = mod_dropout(tape, leaf(tape, x + from * L * D, NULL, n * L, D), mod_rows_make(tape, n, L, NULL), 0.5, 1, 2,
                      3 + (uint64_t)from);
      CHECKF(y && same_rows(y->data, first + from * L * D, n * L * D), "sequences from %d on", from);
   }
   int total = 0, wrong = 0;
   for (int s = 0; s < S; ++s) {
      lengths[s] = s % 4 == 1 ? 0 : test_below(L + 1);
      memcpy(grad + total * D, x + s * L * D, (size_t)(lengths[s] * D) * sizeof(float));
      total += lengths[s];
   }
   mod_tape_reset(tape);
   y = mod_dropout(tape, leaf(tape, grad, NULL, total, D), mod_rows_make(tape, S, L, lengths), 0.5, 1, 2, 3);
   for (int s = 0, at = 0; y && s < S; at += lengths[s++])
      wrong += !same_rows(y->data + at * D, first + s * L * D, lengths[s] * D);
   CHECKF(y && wrong == 0, "%d sequences", wrong);

   /* The way back draws the same mask, in threads too. */
   for (int threads = 1; threads < 4; threads += 2) {
      mod_tape_desc desc;
      memset(&desc, 0, sizeof desc);
      desc.n_threads = threads;
      mod_tape *t = mod_tape_create(&desc, TAPE_BYTES, NULL, &err);
      if (!HOLDS(t != NULL, err.message)) break;
      memset(grad, 0, sizeof grad);
      y = mod_dropout(t, leaf(t, x, grad, N, D), mod_rows_make(t, S, L, NULL), 0.5, 1, 2, 3);
      CHECK(y && same_rows(y->data, first, N * D));
      mod_tensor *loss = mod_sum(t, mod_mul(t, y, leaf(t, weight, NULL, N, D)));
      CHECK(mod_tape_backward(t, loss, &err) == MOD_RESULT_OK);
      wrong = 0;
      for (int i = 0; i < N * D; ++i) wrong += grad[i] != (first[i] == 0 ? 0 : 2 * weight[i]);
      CHECKF(wrong == 0, "%d threads: %d gradients", threads, wrong);
      mod_tape_destroy(t);
   }
   mod_tape_destroy(tape);
}

/* -----------------------------------------------------------------------------------------------------------------
   The order of sums
   ----------------------------------------------------------------------------------------------------------------- */

/* s + a b in two rounded steps, whatever the compiler would rather do. */
static float chain(float s, float a, float b)
{
   volatile float product = a * b;
   volatile float sum = s + product;
   return sum;
}

/* Each element of a product is one chain over the inner index; a gradient continues from what is there. */
static void check_chains(mod_tape *tape)
{
   enum { M = 37, K = 131, N = 45 };
   static float a[M * K], b[K * N], c[M * N], a_grad[M * K], b_grad[K * N], a_was[M * K], b_was[K * N], flip[M * K],
      turn[K * N];
   static const int shape[4][3] = {{M, K, N}, {1, K, N}, {M, 1, N}, {M, K, 1}};

   for (int form = 0; form < 3; ++form) /* a b, a b^T, a^T b */
      for (int s = 0; s < 4; ++s) {
         int m = shape[s][0], k = shape[s][1], n = shape[s][2], forward = 0, back_a = 0, back_b = 0;
         fill(a, m * k);
         fill(b, k * n);
         fill(c, m * n);
         fill(a_was, m * k);
         fill(b_was, k * n);
         memcpy(a_grad, a_was, sizeof a_was);
         memcpy(b_grad, b_was, sizeof b_was);
         /* flip, turn: the operands as this form wants them. */
         for (int i = 0; i < m * k; ++i) flip[form == 2 ? i % k * m + i / k : i] = a[i];
         for (int i = 0; i < k * n; ++i) turn[form == 1 ? i % n * k + i / n : i] = b[i];
         mod_tape_reset(tape);
         mod_tensor *x = form == 2 ? leaf(tape, flip, a_grad, k, m) : leaf(tape, flip, a_grad, m, k);
         mod_tensor *y = form == 1 ? leaf(tape, turn, b_grad, n, k) : leaf(tape, turn, b_grad, k, n);
         mod_tensor *z = form == 0   ? mod_matmul(tape, x, y)
                         : form == 1 ? mod_matmul_nt(tape, x, y)
                                     : mod_matmul_tn(tape, x, y);
         mod_tensor *loss = mod_sum(tape, mod_mul(tape, z, leaf(tape, c, NULL, m, n)));
         if (!HOLDS(z && loss && mod_tape_backward(tape, loss, NULL) == MOD_RESULT_OK, "matmul")) return;
         for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) {
               float sum = 0;
               for (int p = 0; p < k; ++p) sum = chain(sum, a[i * k + p], b[p * n + j]);
               forward += memcmp(&sum, z->data + i * n + j, sizeof sum) != 0;
            }
         for (int i = 0; i < m; ++i)
            for (int p = 0; p < k; ++p) {
               int at = form == 2 ? p * m + i : i * k + p;
               float sum = a_was[at];
               for (int j = 0; j < n; ++j) sum = chain(sum, c[i * n + j], b[p * n + j]);
               back_a += memcmp(&sum, a_grad + at, sizeof sum) != 0;
            }
         for (int p = 0; p < k; ++p)
            for (int j = 0; j < n; ++j) {
               int at = form == 1 ? j * k + p : p * n + j;
               float sum = b_was[at];
               for (int i = 0; i < m; ++i) sum = chain(sum, a[i * k + p], c[i * n + j]);
               back_b += memcmp(&sum, b_grad + at, sizeof sum) != 0;
            }
         CHECKF(forward + back_a + back_b == 0,
                "form %d, %d x %d x %d: %d, %d, %d elements of y, da, db differ in a bit", form, m, k, n, forward,
                back_a, back_b);
      }

   /* Bias and gain gradients are chains over the rows; the sum of all elements is one chain in double. */
   mod_tape_reset(tape);
   float *g = b_grad, *x = a;
   int differ = 0;
   double total = 0;
   fill(x, M * 40);
   fill(c, M * 40);
   fill(b_was, 40);
   memcpy(g, b_was, sizeof b_was);
   const int row[1] = {40};
   mod_tensor *y = mod_bias(tape, leaf(tape, x, NULL, M, 40), mod_leaf(tape, b, g, 1, row));
   mod_tensor *loss = mod_sum(tape, mod_mul(tape, y, leaf(tape, c, NULL, M, 40)));
   mod_tensor *sum = mod_sum(tape, leaf(tape, x, NULL, M, 40));
   if (!HOLDS(loss && sum && mod_tape_backward(tape, loss, NULL) == MOD_RESULT_OK, "bias")) return;
   for (int j = 0; j < 40; ++j) {
      float s = b_was[j];
      for (int i = 0; i < M; ++i) s = chain(s, c[i * 40 + j], 1);
      differ += memcmp(&s, g + j, sizeof s) != 0;
   }
   for (int i = 0; i < M * 40; ++i) total += (double)x[i];
   CHECKF(differ == 0, "%d of 40 bias gradients differ", differ);
   CHECK(sum->data[0] == (float)total);
}

/* What comes later in a sequence, or in another one, is not even multiplied by 0: a NaN there does not show. */
static void check_attention_mask(mod_tape *tape)
{
   enum { T = 21, D = 8 };
   static float q[2 * T * D], k[2 * T * D], v[2 * T * D], before[2 * T * D];
   fill(q, 2 * T * D);
   fill(k, 2 * T * D);
   fill(v, 2 * T * D);
   for (int pass = 0; pass < 2; ++pass) {
      mod_tape_reset(tape);
      mod_rows *rows = mod_rows_make(tape, 2, T, NULL);
      mod_tensor *y = mod_attention(tape, leaf(tape, q, NULL, 2 * T, D), leaf(tape, k, NULL, 2 * T, D),
                                    leaf(tape, v, NULL, 2 * T, D), rows, rows, 2, 2, MOD_MASK_CAUSAL);
      if (!HOLDS(y != NULL, "attention")) return;
      if (pass == 0) {
         memcpy(before, y->data, sizeof before);
         for (int i = 10 * D; i < T * D; ++i) k[i] = v[i] = NAN;
      } else {
         CHECK(!memcmp(before, y->data, 10 * D * sizeof(float)));
         CHECK(!memcmp(before + T * D, y->data + T * D, T * D * sizeof(float)));
         CHECK(y->data[10 * D] != y->data[10 * D]);
      }
   }
}

/* -----------------------------------------------------------------------------------------------------------------
   Rows
   ----------------------------------------------------------------------------------------------------------------- */

static int rows_are(const mod_rows *r, int n, const int *start, const int *at, const int *index)
{
   return r->n == n && !memcmp(r->start, start, 4 * sizeof(int)) && !memcmp(r->position, at, (size_t)n * sizeof(int)) &&
          (index ? r->index && !memcmp(r->index, index, (size_t)n * sizeof(int)) : !r->index);
}

static void check_rows(mod_tape *tape)
{
   static const int lengths[3] = {4, 0, 3}, start[4] = {0, 4, 4, 7}, at[7] = {0, 1, 2, 3, 0, 1, 2};
   static const int full_start[4] = {0, 4, 8, 12}, full_at[12] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
   /* indices of selections are rows of `all` */
   static const int b_start[4] = {0, 2, 2, 3}, b_at[3] = {0, 2, 1}, b_index[3] = {0, 2, 5};
   static const int c_start[4] = {0, 3, 3, 5}, c_at[5] = {0, 2, 3, 1, 2}, c_index[5] = {0, 2, 3, 5, 6};
   static const int d_start[4] = {0, 1, 1, 2}, d_at[2] = {2, 1}, d_index[2] = {1, 2}, none_start[4] = {0, 0, 0, 0};
   static float second[12] = {1, 0, 7, 0, 0, 0, 0, 0, 0, -3, 0, 0};
   mod_tape_reset(tape);
   mod_rows *f = full(tape), *given = mod_rows_make(tape, 3, 4, lengths), *a = all(tape);
   mod_tensor *r = score_of_all(tape);
   mod_rows *b = mod_rows_topk(tape, a, r, 0.5), *c = mod_rows_threshold(tape, a, r, 0);
   mod_rows *none = mod_rows_threshold(tape, a, r, 6);
   mod_rows *d = mod_rows_topk(tape, b, of(tape, leaf(tape, second, NULL, 12, 1), b), 0.5);
   if (!HOLDS(f && given && a && b && c && none && d, "rows")) return;
   CHECK(rows_are(f, 12, full_start, full_at, NULL));
   CHECK(rows_are(given, 7, start, at, NULL));
   CHECK(rows_are(a, 7, start, at, all_rows));
   CHECK(rows_are(b, 3, b_start, b_at, b_index));
   CHECK(rows_are(c, 5, c_start, c_at, c_index));
   CHECK(none->n == 0 && !memcmp(none->start, none_start, sizeof none_start));
   /* A selection of a selection: positions stay the original ones, indices are the parent's rows. */
   CHECK(rows_are(d, 2, d_start, d_at, d_index));
   CHECK(f->n_seqs == 3 && a->n_seqs == 3 && b->n_seqs == 3 && c->n_seqs == 3 && d->n_seqs == 3);
   CHECK(!f->parent && !given->parent && a->parent && b->parent && none->parent);
   /* A count that depends on the data is reserved at its maximum: everything may pass a threshold. */
   mod_rows *fixed = best_of_12(tape);
   CHECK(fixed && !fixed->ragged && fixed->n == 6 && fixed->n_max == 6 && fixed->length_max == 2);
   CHECK(!f->ragged && a->ragged && b->ragged && c->ragged && none->ragged);
   CHECK(f->n_max == 12 && a->n_max == 12 && c->n_max == 12 && none->n_max == 12 && b->n_max == 6);
   CHECK(f->length_max == 4 && c->length_max == 4 && b->length_max == 2);

   const unsigned char *mask = mod_rows_mask(tape, a, b), *no = mod_rows_mask(tape, a, none);
   const unsigned char *yes = mod_rows_mask(tape, f, f);
   static const unsigned char b_mask[7] = {1, 0, 1, 0, 0, 1, 0}, no_mask[7] = {0, 0, 0, 0, 0, 0, 0};
   static const unsigned char yes_mask[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
   CHECK(mask && !memcmp(mask, b_mask, 7));
   CHECK(no && !memcmp(no, no_mask, 7));
   CHECK(yes && !memcmp(yes, yes_mask, 12));
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK);
}

/* 1 if `others` are the rows of `rows` that are not in `kept`. */
static int others_right(const mod_rows *rows, const mod_rows *kept, const mod_rows *others)
{
   int at = 0, k = 0;
   if (!others || others->parent != rows || others->n_seqs != rows->n_seqs || others->n > others->n_max) return 0;
   for (int s = 0; s < rows->n_seqs; ++s) {
      if (others->start[s] != at) return 0;
      for (int i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         if (k < kept->n && (kept == rows || kept->index[k] == i)) {
            ++k;
            continue;
         }
         if (at >= others->n || others->index[at] != i || others->position[at++] != rows->position[i]) return 0;
      }
      if (others->start[s + 1] - others->start[s] > others->length_max) return 0;
   }
   return others->start[rows->n_seqs] == at && others->n == at && k == kept->n;
}

static void check_others(mod_tape *tape)
{
   static float r[6 * 30];
   int wrong = 0, lengths[6];
   for (int round = 0; round < 200; ++round) {
      int n_seqs = 1 + test_below(6), length = 1 + test_below(30), ragged = round % 2;
      for (int s = 0; s < n_seqs; ++s) lengths[s] = test_below(length + 1);
      mod_tape_reset(tape);
      mod_rows *rows = mod_rows_make(tape, n_seqs, length, ragged ? lengths : NULL);
      if (!HOLDS(rows != NULL, "rows")) return;
      fill(r, rows->n);
      mod_tensor *score_ = leaf(tape, r, NULL, rows->n, 1);
      double capacity = (1 + test_below(100)) / 100.0;
      mod_rows *top = mod_rows_topk(tape, rows, score_, capacity);
      mod_rows *some = mod_rows_threshold(tape, rows, score_, round % 10 == 9 ? 1e9 : 0);
      mod_rows *a = mod_rows_others(tape, rows, top), *b = mod_rows_others(tape, rows, some);
      mod_rows *c = mod_rows_others(tape, rows, rows), *d = b ? mod_rows_others(tape, rows, b) : NULL;
      mod_rows *e = b ? mod_rows_others(tape, b, mod_rows_topk(tape, b, mod_gather(tape, score_, b), 0.5)) : NULL;
      if (!HOLDS(a && b && c && d && e, "others")) return;
      wrong += !others_right(rows, top, a) + !others_right(rows, some, b) + !others_right(rows, rows, c);
      /* the others of the others are those that were kept; of all there are no others */
      wrong += d->n != some->n || memcmp(d->index, some->index, (size_t)d->n * sizeof(int)) ||
               memcmp(d->start, some->start, (size_t)(n_seqs + 1) * sizeof(int));
      wrong += c->n != 0 || e->parent != b || e->n_max > b->n_max;
      /* a count that is fixed is reserved exactly; another at its most */
      int k = mod_route_capacity(length, capacity);
      if (ragged) wrong += !a->ragged || a->n_max != n_seqs * length || a->length_max != length;
      else
         wrong += a->ragged || a->n != a->n_max || a->n_max != n_seqs * (length - k) || a->length_max != length - k ||
                  c->n_max != 0;
      wrong += !b->ragged || b->n_max != n_seqs * length || b->length_max != length;
   }
   CHECKF(wrong == 0, "%d selections", wrong);
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK);
}

/* Against mod_route_choose, sequence by sequence; and a sequence in pieces against the whole. */
static void check_choose(mod_tape *tape)
{
   enum { SEQS = 5, L = 20, P = 6 };
   static float r[SEQS * L * P];
   int wrong = 0, dropped = 0, lengths[SEQS];
   for (int round = 0; round < 300; ++round) {
      int n_seqs = 1 + test_below(SEQS), length = 1 + test_below(L), paths = 1 + test_below(P), ragged = round % 2;
      int n_experts = 1 + test_below(paths), choices = 1 + test_below(paths), slots = test_below(length + 3);
      int at[P] = {0}, chosen[SEQS * P + 1], want[SEQS * P], room[P], path[L * P], slot[L * P], used[P + 1];
      mod_rows *out[P + 1];
      if (round % 10 == 0) slots = 0;
      for (int s = 0; s < n_seqs; ++s) lengths[s] = test_below(length + 1);
      for (int i = 0; i < SEQS * L * P; ++i) r[i] = round % 3 ? (float)test_normal() : (float)test_below(3);
      mod_tape_reset(tape);
      mod_rows *rows = mod_rows_make(tape, n_seqs, length, ragged ? lengths : NULL);
      if (!HOLDS(rows != NULL, "rows")) return;
      if (round % 4 == 3) { /* rows of a selection: what is chosen is counted in these */
         mod_rows *kept = mod_rows_threshold(tape, rows, leaf(tape, r + 7, NULL, rows->n, 1), 0);
         if (!HOLDS(kept != NULL, "rows")) return;
         rows = kept;
      }
      mod_tensor *x = mod_gather(tape, leaf(tape, r, NULL, rows->parent ? rows->parent->n : rows->n, paths), rows);
      for (int i = 0; i <= SEQS * P; ++i) chosen[i] = -99;
      out[n_experts] = NULL;
      if (!HOLDS(mod_rows_choose(tape, rows, x, choices, n_experts, slots, NULL, round % 5 ? chosen : NULL, out) == 1,
                 "choose"))
         return;
      for (int e = 0; e < paths; ++e) room[e] = e < n_experts ? slots : -1;
      memset(want, 0, sizeof want);
      for (int s = 0; s < n_seqs; ++s) {
         int start = rows->start[s], n = rows->start[s + 1] - start;
         memset(used, 0, sizeof used);
         wrong += mod_route_choose(x->data + start * paths, n, paths, choices, room, used, path, slot, NULL) != 0;
         for (int e = 0; e < n_experts; ++e) wrong += out[e]->start[s] != at[e];
         for (int i = 0; i < n * choices; ++i) {
            ++want[s * paths + path[i]];
            dropped += slot[i] < 0;
            if (slot[i] < 0 || path[i] >= n_experts) continue;
            mod_rows *o = out[path[i]];
            wrong += at[path[i]] >= o->n || o->index[at[path[i]]] != start + i / choices ||
                     o->position[at[path[i]]] != rows->position[start + i / choices];
            ++at[path[i]];
         }
      }
      for (int e = 0; e < n_experts; ++e) {
         int most = slots < length ? slots : length;
         wrong += out[e]->n != at[e] || out[e]->start[n_seqs] != at[e] || out[e]->parent != rows || !out[e]->ragged;
         wrong += out[e]->n_max != most * n_seqs || out[e]->length_max != most || (slots == 0 && out[e]->n != 0);
      }
      wrong += out[n_experts] != NULL;
      if (round % 5) wrong += memcmp(chosen, want, (size_t)(n_seqs * paths) * sizeof(int)) != 0;
      for (int i = round % 5 ? n_seqs * paths : 0; i <= SEQS * P; ++i) wrong += chosen[i] != -99;

      /* The first sequence again, alone: whole and in pieces, `used` carried over. */
      int n = rows->start[1];
      mod_rows *piece[P];
      int seen[P] = {0};
      if (n == 0) continue;
      memset(used, 0, sizeof used);
      used[paths] = -99;
      for (int from = 0, m; from < n; from += m) {
         m = 1 + test_below(5);
         if (m > n - from) m = n - from;
         mod_rows *part = mod_rows_make(tape, 1, m, NULL);
         if (!HOLDS(part && mod_rows_choose(tape, part, leaf(tape, x->data + from * paths, NULL, m, paths), choices,
                                            n_experts, slots, used, chosen, piece) == 1, "choose in pieces"))
            return;
         for (int e = 0; e < n_experts; ++e)
            for (int i = 0; i < piece[e]->n; ++i, ++seen[e])
               wrong += seen[e] >= out[e]->start[1] || out[e]->index[seen[e]] != from + piece[e]->index[i];
      }
      for (int e = 0; e < n_experts; ++e) wrong += seen[e] != out[e]->start[1] || used[e] != seen[e];
      for (int e = n_experts; e < paths; ++e) wrong += used[e] != want[e]; /* ways past them have no limit */
      wrong += used[paths] != -99;
   }
   CHECKF(wrong == 0, "%d", wrong);
   CHECKF(dropped > 1000, "%d dropped", dropped);
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK);

   /* A measuring tape reserves the same, and writes neither count. */
   for (int ragged = 0; ragged < 2; ++ragged)
      for (int slots = 0; slots < 7; slots += 3) {
         size_t bytes = 0;
         for (int pass = 0; pass < 3; ++pass) {
            static float s[12] = {3, 2, 1, 2, 1, 3, 3, 1, 1, 2, 3, 3};
            static const int given[2] = {4, 2};
            int used[3] = {-7, -7, -7}, chosen[6] = {-7, -7, -7, -7, -7, -7};
            mod_rows *out[2] = {NULL, NULL};
            mod_error err;
            mod_tape_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.measure = pass == 0;
            mod_tape *t = mod_tape_create(&desc, pass == 0 ? TAPE_BYTES : pass == 1 ? bytes : bytes - 1, NULL, &err);
            mod_rows *rows = mod_rows_make(t, ragged ? 2 : 1, 4, ragged ? given : NULL);
            int made = rows && mod_rows_choose(t, rows, leaf(t, s, NULL, ragged ? 6 : 4, 2), 2, 2, slots,
                                               ragged || pass ? NULL : used, chosen, out);
            if (pass == 0) bytes = mod_tape_peak(t);
            if (pass < 2) {
               CHECKF(made && mod_tape_peak(t) == bytes, "ragged %d, slots %d: %d, not %d", ragged, slots,
                      (int)mod_tape_peak(t), (int)bytes);
               int most = slots < 4 ? slots : 4;
               for (int e = 0; e < 2 && made; ++e)
                  CHECK(out[e]->n_max == (ragged ? 2 : 1) * most && out[e]->length_max == most && out[e]->ragged);
               CHECK((chosen[0] == -7) == (pass == 0) && used[0] == -7);
            } else {
               CHECKF(!made, "ragged %d, slots %d: one byte less", ragged, slots);
            }
            mod_tape_destroy(t);
         }
      }

   /* NaN in the second of two sequences: refused with its position there. */
   float bad_score[2 * 4 * 2] = {0};
   mod_rows *out[2];
   mod_error err;
   int chosen[4] = {0, 0, 0, 0};
   bad_score[2 * (4 + 3) + 1] = NAN;
   mod_tape_reset(tape);
   CHECK(!mod_rows_choose(tape, mod_rows_make(tape, 2, 4, NULL), leaf(tape, bad_score, NULL, 8, 2), 1, 2, 2, NULL,
                          chosen, out));
   CHECK(mod_tape_status(tape, &err) == MOD_RESULT_NUMERIC && err.where == 3);
   int used[2] = {1, 0};
   mod_tape_reset(tape);
   CHECK(!mod_rows_choose(tape, mod_rows_make(tape, 1, 8, NULL), leaf(tape, bad_score, NULL, 8, 2), 1, 2, 2, used, NULL,
                          out));
   CHECK(mod_tape_status(tape, &err) == MOD_RESULT_NUMERIC && err.where == 7 && used[0] == 1 && used[1] == 0);
}

/* Rows by given lengths: what is documented as [rows->n, ..] may be a leaf or an embedding with as many rows, and its
   memory is known beforehand. */
static void check_lengths(void)
{
   static const int lengths[3] = {4, 0, 3}, token[7] = {0, 4, 2, 2, 1, 3, 0};
   static float x[7 * 4], grad[7 * 4], s[7] = {0.3f, -1, 2, 0.1f, -0.2f, 1.5f, 0.1f};
   size_t peak[2] = {0, 0};
   mod_error err;
   fill(x, 7 * 4);
   for (int pass = 0; pass < 2; ++pass) {
      mod_tape_desc desc;
      memset(&desc, 0, sizeof desc);
      desc.measure = pass == 0;
      mod_tape *tape = mod_tape_create(&desc, TAPE_BYTES, NULL, &err);
      if (!HOLDS(tape != NULL, err.message)) return;
      mod_rows *rows = mod_rows_make(tape, 3, 4, lengths);
      mod_tensor *in = leaf(tape, x, grad, 7, 4), *e = mod_embedding(tape, in, token, 7);
      mod_tensor *q = mod_rope(tape, e, rows, mod_rope_table(tape, 0, 4, 4, 10000));
      mod_tensor *h = mod_attention(tape, q, q, in, rows, rows, 1, 1, MOD_MASK_CAUSAL);
      mod_rows *kept = mod_rows_topk(tape, rows, leaf(tape, s, NULL, 7, 1), 0.5);
      mod_tensor *y = mod_scatter_add(tape, in, mod_gather(tape, h, kept), NULL, kept);
      if (y) mod_tape_backward(tape, mod_sum(tape, y), NULL);
      mod_tape_status(tape, &err);
      CHECKF(err.code == MOD_RESULT_OK && y && y->dim[0] == 7 && (pass == 0 || kept->n == 3), "pass %d: %s", pass,
             err.message);
      peak[pass] = mod_tape_peak(tape);
      mod_tape_destroy(tape);
   }
   CHECKF(peak[0] == peak[1], "measured %d, used %d", (int)peak[0], (int)peak[1]);
}

/* Rows reserved against rows used: memory is the same whatever the data say, and only the used rows are computed. */
static void check_ragged(void)
{
   static float x[7 * 4], r[7], w[4 * 4];
   static const float edge[4] = {9, 1.2f, -0.1f, -9}; /* none, some, more, all */
   size_t peaks[5];
   mod_error err;
   fill(x, 28);
   fill(w, 16);
   for (int i = 0; i < 7; ++i) r[i] = (float)(i * 3 % 7) / 2 - 1;
   for (int pass = 0; pass < 5; ++pass) {
      mod_tape_desc desc;
      memset(&desc, 0, sizeof desc);
      desc.measure = pass == 0;
      mod_tape *tape = mod_tape_create(&desc, pass == 0 ? TAPE_BYTES : peaks[0], NULL, &err);
      if (!HOLDS(tape != NULL, err.message)) return;
      int above_edge = 0;
      mod_rows *rows = mod_rows_make(tape, 1, 7, NULL);
      mod_rows *kept = mod_rows_threshold(tape, rows, leaf(tape, r, NULL, 7, 1), pass ? (double)edge[pass - 1] : 0);
      mod_tensor *in = leaf(tape, x, NULL, 7, 4), *matrix = leaf(tape, w, NULL, 4, 4);
      mod_tensor *g = mod_gather(tape, in, kept), *m = mod_matmul(tape, g, matrix);
      mod_tensor *h = mod_attention(tape, m, m, m, kept, kept, 2, 2, MOD_MASK_CAUSAL);
      mod_tensor *y = mod_scatter_add(tape, in, mod_softmax(tape, h),
                                      mod_gate(tape, mod_slice(tape, g, 1, 0, 1), MOD_GATE_RAW, 0), kept);
      mod_tape_status(tape, &err);
      if (HOLDS(err.code == MOD_RESULT_OK && y, err.message)) {
         CHECK(g->n_max >= 7 && m->n_max == g->n_max && h->n_max == g->n_max && y->dim[0] == 7);
         for (int i = 0; i < 7 && pass; ++i) {
            int in_it = r[i] > edge[pass - 1];
            above_edge += in_it;
            CHECKF((memcmp(x + 4 * i, y->data + 4 * i, 4 * sizeof(float)) != 0) == in_it, "row %d, edge %d", i,
                   pass - 1);
         }
         CHECKF(!pass || (g->dim[0] == above_edge && m->dim[0] == above_edge && h->dim[0] == above_edge &&
                          kept->n == above_edge),
                "edge %d: %d rows", pass - 1, above_edge);
         CHECK(!pass || above_edge == (pass == 1 ? 0 : pass == 2 ? 2 : pass == 3 ? 5 : 7));
         CHECKF(!pass || mod_tape_flops(tape) >= 2.0 * above_edge * 16, "edge %d", pass - 1);
         CHECK(pass != 1 || mod_tape_flops(tape) == 0);
      }
      peaks[pass] = mod_tape_peak(tape);
      CHECKF(peaks[pass] == peaks[0], "edge %d: peak %d, measured %d", pass - 1, (int)peaks[pass], (int)peaks[0]);
      mod_tape_destroy(tape);
   }
}

/* -----------------------------------------------------------------------------------------------------------------
   Nothing at all: zero rows through every op, forward and backward
   ----------------------------------------------------------------------------------------------------------------- */

static void check_empty(mod_tape *tape, int ragged)
{
   enum { C = 4, MAX = 64 };
   static float none[1], none_grad[1], w[C * C], w_grad[C * C], row[C], row_grad[C], x[3 * C], x_grad[3 * C], s[3];
   static const int row_dim[1] = {C}, empty_lengths[2] = {0, 0}, to[1] = {0}, dim3[3] = {0, 2, 2};
   static const unsigned char truth[1] = {1};
   mod_tensor *y[MAX];
   mod_rows *experts[2] = {NULL, NULL};
   int n = 0, chosen[3] = {-1, -1, -1};
   static const int zero_chosen[3] = {0, 0, 0};
   mod_error err;

   fill(w, C * C);
   fill(row, C);
   fill(x, 3 * C);
   fill(s, 3);
   for (int i = 0; i < C * C; ++i) w_grad[i] = 5;
   for (int i = 0; i < C; ++i) row_grad[i] = 5;
   for (int i = 0; i < 3 * C; ++i) x_grad[i] = 0;
   mod_tape_reset(tape);
   mod_tensor *m = leaf(tape, w, w_grad, C, C), *g = mod_leaf(tape, row, row_grad, 1, row_dim);
   mod_tensor *x3 = leaf(tape, x, x_grad, 3, C);
   mod_rows *some = mod_rows_make(tape, 1, 3, NULL), *by_lengths = mod_rows_make(tape, 2, 5, empty_lengths);
   mod_rows *rows = mod_rows_threshold(tape, some, leaf(tape, s, NULL, 3, 1), 1e9); /* no row is above that */
   /* Nothing: as a leaf of zero rows, or because the data selected nothing. */
   mod_tensor *selected = mod_gather(tape, x3, rows), *selected1 = mod_slice(tape, selected, 1, 0, 1);
   mod_tensor *e = ragged ? selected : leaf(tape, none, none_grad, 0, C);
   mod_tensor *e1 = ragged ? selected1 : leaf(tape, none, none_grad, 0, 1);
   mod_rows *top = mod_rows_topk(tape, rows, selected1, 0.5), *passed = mod_rows_threshold(tape, rows, selected1, 0);
   if (!HOLDS(some && rows && by_lengths && top && passed, "empty rows")) return;
   CHECK(rows->n == 0 && by_lengths->n == 0 && top->n == 0 && passed->n == 0);

   y[n++] = mod_matmul(tape, e, m);
   y[n++] = mod_matmul_nt(tape, e, m);
   y[n++] = mod_add(tape, e, e);
   y[n++] = mod_add(tape, e, g);
   y[n++] = mod_sub(tape, e, g);
   y[n++] = mod_mul(tape, e, e1);
   y[n++] = mod_mul(tape, e, g);
   y[n++] = mod_bias(tape, e, g);
   y[n++] = mod_scale(tape, e, 2);
   y[n++] = mod_exp(tape, e);
   y[n++] = mod_log(tape, e);
   y[n++] = mod_gelu(tape, e);
   y[n++] = mod_silu(tape, e);
   y[n++] = mod_relu(tape, e);
   y[n++] = mod_sigmoid(tape, e);
   y[n++] = mod_tanh(tape, e);
   y[n++] = mod_softmax(tape, e);
   y[n++] = mod_logsumexp(tape, e);
   y[n++] = mod_rmsnorm(tape, e, g, 1e-5);
   y[n++] = mod_layernorm(tape, e, g, g, 1e-5);
   y[n++] = mod_embedding(tape, m, ids, 0);
   y[n++] = mod_rope_table(tape, 0, 0, C, 10000);
   y[n++] = mod_rope(tape, selected, rows, mod_rope_table(tape, 0, 3, C, 10000));
   y[n++] = mod_attention(tape, selected, selected, selected, rows, rows, 2, 2, MOD_MASK_CAUSAL);
   y[n++] = mod_attention(tape, selected, x3, x3, rows, some, 2, 2, MOD_MASK_FULL);
   y[n++] = selected;
   y[n++] = mod_gather(tape, selected, top);
   y[n++] = mod_gather(tape, selected, passed);
   y[n++] =
      mod_scatter_add(tape, selected, mod_gather(tape, selected, passed), mod_gather(tape, selected1, passed), passed);
   for (int kind = MOD_GATE_RAW; kind <= MOD_GATE_ONE; ++kind) y[n++] = mod_gate(tape, e1, (mod_gate_kind)kind, 0.2);
   y[n++] = mod_stop_grad(tape, e);
   y[n++] = mod_dropout(tape, selected, rows, 0.5, 1, 2, 3);
   y[n++] = mod_gather(tape, selected, mod_rows_others(tape, rows, passed));
   y[n++] = mod_gather(tape, x3, mod_rows_others(tape, some, some));
   int any = mod_rows_choose(tape, rows, mod_slice(tape, selected, 1, 0, 3), 2, 2, 1, NULL, chosen, experts);
   CHECK(any && experts[1]->n == 0 && !memcmp(chosen, zero_chosen, sizeof chosen));
   y[n++] = mod_gather(tape, selected, any ? experts[0] : NULL);
   any = mod_rows_choose(tape, some, mod_slice(tape, x3, 1, 0, 3), 3, 2, 0, NULL, chosen, experts); /* no slots */
   CHECK(any && experts[0]->n == 0 && chosen[0] == 3 && chosen[1] == 3 && chosen[2] == 3);
   y[n++] = mod_gather(tape, x3, any ? experts[1] : NULL);
   y[n++] = mod_reshape(tape, e, 3, dim3);
   y[n++] = mod_slice(tape, e, 1, 1, 2);
   y[n++] = mod_slice(tape, x3, 0, 3, 0);
   y[n++] = mod_concat(tape, e, e, 1);
   y[n++] = outside(tape, e, e, 0, C);
   if (!ragged) {
      y[n++] = mod_transpose(tape, mod_transpose(tape, e, 0, 1), 0, 1);
      y[n++] = mod_concat(tape, e, e, 0);
   }
   int n_rows = n;
   /* These have something to say about nothing. */
   mod_tensor *zeros = mod_matmul_tn(tape, e, e);                     /* [C, C]: sums of nothing */
   mod_tensor *same = mod_scatter_add(tape, x3, selected, NULL, rows); /* x3 */
   mod_tensor *unseen = mod_attention(tape, x3, selected, selected, some, rows, 2, 2, MOD_MASK_CAUSAL); /* no key: 0 */
   mod_tensor *means = mod_pool(tape, selected, rows, MOD_POOL_MEAN); /* of no row: 0 */
   mod_tensor *lasts = mod_pool(tape, selected, rows, MOD_POOL_LAST);
   y[n++] = mod_sum(tape, e);
   y[n++] = mod_mean(tape, e);
   y[n++] = mod_cross_entropy(tape, e, to, 0);
   y[n++] = mod_bce_logits(tape, e1, truth, 0);
   mod_tape_status(tape, &err);
   if (!HOLDS(err.code == MOD_RESULT_OK && n <= MAX, err.message)) return;
   for (int i = 0; i < n_rows; ++i) CHECKF(y[i] && count_of(y[i]) == 0, "op %d of zero rows", i);
   for (int i = n_rows; i < n; ++i)
      CHECKF(y[i] && count_of(y[i]) == 1 && y[i]->data[0] == 0, "reduction %d of zero rows", i - n_rows);
   CHECK(zeros && count_of(zeros) == C * C);
   for (int i = 0; i < C * C && zeros; ++i) CHECK(zeros->data[i] == 0);
   CHECK(means && lasts && count_of(means) == C && count_of(lasts) == C);
   for (int i = 0; i < C && means && lasts; ++i) CHECK(means->data[i] == 0 && lasts->data[i] == 0);
   CHECK(same && !memcmp(same->data, x, sizeof x));
   for (int i = 0; i < 3 * C && unseen; ++i) CHECK(unseen->data[i] == 0);

   mod_tensor *loss = mod_add(tape, mod_sum(tape, zeros), mod_add(tape, mod_sum(tape, same), mod_sum(tape, unseen)));
   loss = mod_add(tape, loss, mod_add(tape, mod_sum(tape, means), mod_sum(tape, lasts)));
   for (int i = 0; i < n; ++i)
      if (y[i] && y[i]->grad) loss = mod_add(tape, loss, i < n_rows ? mod_sum(tape, y[i]) : y[i]);
   mod_tape_backward(tape, loss, &err);
   if (!HOLDS(err.code == MOD_RESULT_OK, err.message)) return;
   for (int i = 0; i < C * C; ++i) CHECK(w_grad[i] == 5);
   for (int i = 0; i < C; ++i) CHECK(row_grad[i] == 5);
   for (int i = 0; i < 3 * C; ++i) CHECK(x_grad[i] == 1); /* through `same` alone */
}

/* -----------------------------------------------------------------------------------------------------------------
   FLOPs
   ----------------------------------------------------------------------------------------------------------------- */

static void check_flops(mod_tape *tape)
{
   static float a[600], b[600], grad[600];
   double before;
   mod_error err;
   fill(a, 600);
   fill(b, 600);
   mod_tape_reset(tape);
   CHECK(mod_tape_flops(tape) == 0);
   mod_matmul(tape, leaf(tape, a, NULL, 3, 7), leaf(tape, b, NULL, 7, 5));
   CHECK(mod_tape_flops(tape) == 2 * 3 * 7 * 5);
   mod_matmul_nt(tape, leaf(tape, a, NULL, 3, 7), leaf(tape, b, NULL, 5, 7));
   CHECK(mod_tape_flops(tape) == 2 * (2 * 3 * 7 * 5));
   mod_matmul_tn(tape, leaf(tape, a, NULL, 7, 3), leaf(tape, b, NULL, 7, 5));
   CHECK(mod_tape_flops(tape) == 3 * (2 * 3 * 7 * 5));
   const int dim[3] = {2, 3, 7};
   mod_matmul(tape, mod_leaf(tape, a, NULL, 3, dim), leaf(tape, b, NULL, 7, 5));
   CHECK(mod_tape_flops(tape) == 5 * (2 * 3 * 7 * 5));

   /* Other ops are not counted. */
   before = mod_tape_flops(tape);
   mod_softmax(tape, mod_rmsnorm(tape, mod_gelu(tape, leaf(tape, a, NULL, 6, 7)), NULL, 1e-5));
   CHECK(mod_tape_flops(tape) == before);

   /* Attention: 2 hd for a score and 2 hd for its value, per head and pair that is seen. */
   const double pair = 2 * 4 * 3; /* two heads of 3 */
   mod_tape_reset(tape);
   mod_rows *rows = all(tape), *kept = above(tape);
   mod_tensor *q12 = leaf(tape, a, NULL, 12, 6), *k12 = leaf(tape, b, NULL, 12, 3);
   mod_tensor *q7 = of_all(tape, q12), *k7 = of_all(tape, k12), *q5 = of(tape, q12, kept), *k5 = of(tape, k12, kept);
   static const struct {
      int q_kept, kv_kept;
      mod_mask mask;
      double pairs;
   } seen[] = {
      {0, 0, MOD_MASK_CAUSAL, 4 * 5 / 2 + 3 * 4 / 2}, {0, 0, MOD_MASK_FULL, 4 * 4 + 3 * 3},
      {1, 1, MOD_MASK_CAUSAL, 3 * 4 / 2 + 2 * 3 / 2}, {1, 1, MOD_MASK_FULL, 3 * 3 + 2 * 2},
      {1, 0, MOD_MASK_CAUSAL, 1 + 3 + 4 + 2 + 3},     {0, 1, MOD_MASK_CAUSAL, 1 + 1 + 2 + 3 + 0 + 1 + 2},
      {0, 1, MOD_MASK_FULL, 4 * 3 + 3 * 2},
   };
   for (size_t i = 0; i < sizeof seen / sizeof seen[0]; ++i) {
      before = mod_tape_flops(tape);
      mod_tensor *k = seen[i].kv_kept ? k5 : k7;
      mod_attention(tape, seen[i].q_kept ? q5 : q7, k, k, seen[i].q_kept ? kept : rows, seen[i].kv_kept ? kept : rows,
                    2, 1, seen[i].mask);
      double counted = mod_tape_flops(tape) - before;
      CHECKF(counted == pair * seen[i].pairs, "case %d: %g, not %g", (int)i, counted, pair * seen[i].pairs);
   }
   mod_tape_status(tape, &err);
   CHECKF(err.code == MOD_RESULT_OK, "%s", err.message);

   /* Neither the way back nor a refused op counts. */
   mod_tape_reset(tape);
   mod_tensor *y = mod_matmul(tape, leaf(tape, a, grad, 3, 7), leaf(tape, b, NULL, 7, 5));
   CHECK(mod_tape_backward(tape, mod_sum(tape, y), NULL) == MOD_RESULT_OK && mod_tape_flops(tape) == 210);
   CHECK(!mod_matmul(tape, y, y) && mod_tape_flops(tape) == 210);
}

/* -----------------------------------------------------------------------------------------------------------------
   Memory: random graphs over all ops take exactly what a measuring tape says
   ----------------------------------------------------------------------------------------------------------------- */

enum { R_MAX = 192, W_MAX = 64, POOL = 12, KINDS = 32, STEPS = 50 };
static int R, W; /* rows and columns of this graph */

/* What the leaves stand on; and, in another one, their gradients. */
typedef struct ground {
   float x[R_MAX * W_MAX], w[W_MAX * W_MAX], row[W_MAX], column[R_MAX], score[W_MAX], table[5 * W_MAX];
} ground;
static int graph_ids[R_MAX], graph_targets[R_MAX];

/* A stream of its own, so that the measuring and the real run draw the same. */
static uint64_t graph_state;
static int draw_below(int n)
{
   graph_state = graph_state * 6364136223846793005ull + 1442695040888963407ull;
   return (int)((graph_state >> 33) % (uint64_t)n);
}

/* Builds the graph of `seed`, and its backward pass if there are gradients (g). Returns a hash of all that came out. */
static uint64_t graph(mod_tape *t, ground *f, ground *g, uint64_t seed, int measure, int *kinds_seen)
{
   mod_tensor *pool[POOL], *loss = NULL;
   mod_rows *rows;
   const int row_dim[1] = {W};
   int order[STEPS];
   uint64_t hash = 0;

#define LEAF(name, rows_, columns_) leaf(t, measure ? NULL : f->name, g ? g->name : NULL, rows_, columns_)
   graph_state = seed;
   rows = mod_rows_make(t, 2, R / 2, NULL);
   mod_tensor *w = LEAF(w, W, W), *column = LEAF(column, R, 1), *router = LEAF(score, W, 1), *table = LEAF(table, 5, W);
   mod_tensor *row = mod_leaf(t, measure ? NULL : f->row, g ? g->row : NULL, 1, row_dim);
   mod_tensor *angles = mod_rope_table(t, 0, R / 2, W / 2, 10000);
   for (int i = 0; i < POOL; ++i) pool[i] = LEAF(x, R, W);

   /* Every kind once, in random order, then at random. */
   for (int i = 0; i < STEPS; ++i) order[i] = i < KINDS ? i : draw_below(KINDS);
   for (int i = KINDS - 1; i > 0; --i) {
      int j = draw_below(i + 1), swap = order[i];
      order[i] = order[j];
      order[j] = swap;
   }
   for (int i = 0; i < STEPS; ++i) {
      mod_tensor *x = pool[draw_below(POOL)], *y = pool[draw_below(POOL)], *z = NULL, *r, *term = NULL, *part;
      mod_rows *kept, *within, *expert[2] = {NULL, NULL};
      mod_mark mark;
      int dim[3] = {R * 2, W / 2, 0};
      if (kinds_seen) kinds_seen[order[i]] = 1;
      switch (order[i]) {
      case 0: z = mod_matmul(t, x, w); break;
      case 1: z = mod_matmul_nt(t, x, w); break;
      case 2: z = mod_matmul(t, x, mod_matmul_tn(t, x, y)); break;
      case 3: z = mod_add(t, mod_add(t, mod_add(t, x, y), row), column); break;
      case 4: z = mod_sub(t, mod_sub(t, mod_sub(t, x, y), row), column); break;
      case 5: z = mod_mul(t, mod_mul(t, mod_mul(t, x, y), row), column); break;
      case 6: z = mod_bias(t, x, row); break;
      case 7: z = mod_scale(t, x, 0.5); break;
      case 8: z = mod_exp(t, mod_tanh(t, x)); break;
      case 9: z = mod_log(t, mod_sigmoid(t, x)); break;
      case 10: z = mod_gelu(t, x); break;
      case 11: z = mod_mul(t, mod_silu(t, x), mod_relu(t, y)); break;
      case 12: z = mod_softmax(t, x); break;
      case 13: z = mod_rmsnorm(t, x, draw_below(2) ? row : NULL, 1e-5); break;
      case 14: z = mod_layernorm(t, x, draw_below(2) ? row : NULL, draw_below(2) ? row : NULL, 1e-5); break;
      case 15: z = mod_add(t, x, mod_embedding(t, table, graph_ids, R)); break;
      case 16: z = mod_rope(t, x, rows, angles); break;
      case 17: /* two heads share one for keys and values */
         z = mod_attention(t, x, mod_slice(t, y, 1, 0, W / 2), mod_slice(t, y, 1, W / 2, W / 2), rows, rows, 2, 1,
                           draw_below(2) ? MOD_MASK_CAUSAL : MOD_MASK_FULL);
         break;
      case 18: /* a routed branch with its auxiliary loss */
         r = mod_matmul(t, x, router);
         kept = mod_rows_topk(t, rows, r, 0.4);
         z = mod_scatter_add(t, x, mod_matmul(t, mod_gather(t, x, kept), w),
                             mod_gate(t, mod_gather(t, r, kept), (mod_gate_kind)(MOD_GATE_RAW + draw_below(4)), 0.2),
                             kept);
         term = mod_bce_logits(t, r, mod_rows_mask(t, rows, kept), 0);
         break;
      case 19: /* a branch whose rows depend on the data */
         r = mod_matmul(t, x, router);
         kept = mod_rows_threshold(t, rows, r, 0.2);
         part = mod_rmsnorm(t, mod_gather(t, x, kept), row, 1e-5);
         part = mod_attention(t, mod_rope(t, part, kept, angles), part, part, kept, kept, 2, 2, MOD_MASK_CAUSAL);
         r = mod_gather(t, r, kept);
         within = mod_rows_topk(t, kept, r, 0.5);
         part = mod_scatter_add(t, part, mod_softmax(t, mod_gather(t, part, within)), NULL, within);
         z = mod_scatter_add(t, x, mod_bias(t, mod_gelu(t, part), row), draw_below(2) ? r : NULL, kept);
         break;
      case 20: z = mod_add(t, x, mod_stop_grad(t, mod_exp(t, mod_tanh(t, y)))); break;
      case 21:
         z = mod_softmax(t, mod_reshape(t, x, 2, dim));
         dim[0] = R;
         dim[1] = W;
         z = mod_reshape(t, z, 2, dim);
         break;
      case 22: z = mod_transpose(t, mod_softmax(t, mod_transpose(t, x, 0, 1)), 0, 1); break;
      case 23: z = mod_concat(t, mod_slice(t, x, 1, 3, W - 3), mod_slice(t, y, 1, 0, 3), 1); break;
      case 24: z = mod_concat(t, mod_slice(t, x, 0, 5, R - 5), mod_slice(t, y, 0, 0, 5), 0); break;
      case 25: z = outside(t, x, y, R, W); break;
      case 26: z = mod_dropout(t, x, rows, 0.3, seed, 2, (uint64_t)i); break;
      case 27: z = mod_sub(t, x, mod_logsumexp(t, x)); break;
      case 28:
         z = mod_scale(t, x, 0.5);
         term = mod_sum(t, mod_tanh(t, mod_pool(t, x, rows, draw_below(2) ? MOD_POOL_MEAN : MOD_POOL_LAST)));
         loss = loss ? mod_add(t, loss, term) : term;
         term = NULL;
         break;
      case 29: /* two branches, one for those that another router takes and one for the others */
         r = mod_matmul(t, x, router);
         kept = draw_below(2) ? mod_rows_topk(t, rows, r, 0.4) : mod_rows_threshold(t, rows, r, 0.2);
         within = mod_rows_others(t, rows, kept);
         part = mod_scatter_add(t, x, mod_gelu(t, mod_gather(t, x, within)), NULL, within);
         z = mod_scatter_add(t, part, mod_dropout(t, mod_gather(t, x, kept), kept, 0.5, seed, 3, 4), NULL, kept);
         break;
      case 30: /* experts */
         part = mod_softmax(t, mod_slice(t, x, 1, 0, 3));
         if (mod_rows_choose(t, rows, part, 1 + draw_below(2), 2, R / 8, NULL, NULL, expert)) {
            z = x;
            for (int j = 0; j < 2; ++j)
               z = mod_scatter_add(t, z, mod_matmul(t, mod_gather(t, x, expert[j]), w),
                                   mod_gather(t, mod_slice(t, part, 1, j, 1), expert[j]), expert[j]);
         }
         break;
      default: /* what is rewound takes nothing but the peak */
         mark = mod_tape_mark(t);
         for (int j = draw_below(30); j >= 0; --j) mod_softmax(t, mod_matmul(t, x, w));
         if (mod_tape_status(t, NULL) == MOD_RESULT_OK) CHECK(mod_tape_rewind(t, mark, NULL) == MOD_RESULT_OK);
         z = mod_scale(t, x, -1);
         break;
      }
      z = mod_rmsnorm(t, z, NULL, 1e-3); /* keeps the numbers small */
      switch (draw_below(6)) {
      case 0: term = mod_sum(t, z); break;
      case 1: term = mod_mean(t, z); break;
      case 2: term = mod_cross_entropy(t, z, graph_targets, 0); break;
      default: break;
      }
      if (term) loss = loss ? mod_add(t, loss, term) : term;
      if (z && z->data) hash = hash * 31 + test_hash_f32(z->data, count_of(z));
      pool[draw_below(POOL)] = z;
   }
   loss = mod_add(t, loss, mod_mean(t, pool[0]));
   if (g) mod_tape_backward(t, loss, NULL);
   if (loss && loss->data) hash = hash * 31 + test_hash_f32(loss->data, 1);
   if (g && !measure) hash = hash * 31 + test_hash_f32((const float *)g, sizeof *g / sizeof(float));
#undef LEAF
   return hash;
}

/* Every op alone, without and with its way back, takes exactly what a measuring tape says: here what an op needs only
   while it runs is the largest thing there is. */
static void check_memory_of_each(void)
{
   static input in[MAX_IN];
   static float grad[MAX_IN][MAX_COUNT];
   int exact = 0, refused = 0;
   mod_error err;
   for (int c = 0; c < N_VALUES; ++c)
      for (int with_grads = 0; with_grads < 2; ++with_grads) {
         size_t bytes = 0;
         int n_in = parse_shapes(values[c].in, in);
         for (int i = 0; i < n_in; ++i)
            for (int j = 0; j < in[i].count; ++j) in[i].data[j] = fabsf((float)test_normal()) + 0.1f;
         for (int pass = 0; pass < 3; ++pass) { /* measure, run in that, run in one byte less */
            mod_tensor *x[MAX_IN] = {NULL, NULL, NULL};
            mod_tape_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.measure = pass == 0;
            mod_tape *tape = mod_tape_create(&desc, pass == 0 ? TAPE_BYTES : pass == 1 ? bytes : bytes - 1, NULL, &err);
            for (int i = 0; i < n_in; ++i)
               x[i] = mod_leaf(tape, in[i].data, with_grads ? grad[i] : NULL, in[i].n_dim, in[i].dim);
            mod_tensor *y = values[c].build(tape, x);
            if (y && y->grad) mod_tape_backward(tape, mod_sum(tape, y), NULL);
            if (tape) mod_tape_status(tape, &err);
            if (pass == 0) bytes = mod_tape_peak(tape);
            if (pass < 2)
               CHECKF(err.code == MOD_RESULT_OK && mod_tape_peak(tape) == bytes, "%s %s, gradients %d: %s; %d, not %d",
                      values[c].name, values[c].in, with_grads, err.message, (int)mod_tape_peak(tape), (int)bytes);
            else
               CHECKF(err.code == MOD_RESULT_MEMORY, "%s %s, gradients %d: one byte less: %s", values[c].name,
                      values[c].in, with_grads, mod_result_name(err.code));
            exact += pass == 1 && err.code == MOD_RESULT_OK;
            refused += pass == 2 && err.code == MOD_RESULT_MEMORY;
            mod_tape_destroy(tape);
         }
      }
   CHECK(exact == 2 * N_VALUES && refused == 2 * N_VALUES);
}

/* A pool that runs the tasks one by one, the last first. */
static int jobs_run;
static void run_backwards(mod_task task, void *arg, int n_tasks, void *user)
{
   (void)user;
   ++jobs_run;
   while (n_tasks-- > 0) task(arg, n_tasks);
}

static void check_memory(void)
{
   enum { SEEDS = 12, CANARY = 64 };
   static ground f, g;
   static const ground zero;
   int seen[KINDS] = {0}, refused = 0;
   mod_error err;
   fill((float *)&f, (int)(sizeof f / sizeof(float)));

   for (int i = 0; i < SEEDS; ++i) {
      uint64_t hash[2][2] = {{0, 0}, {0, 0}}, seed = 1000 + (uint64_t)i;
      size_t plan[2] = {0, 0};
      int large = i + 1 == SEEDS; /* enough work for threads to share */
      R = large ? R_MAX : 16;
      W = large ? W_MAX : 8;
      for (int j = 0; j < R; ++j) {
         graph_ids[j] = test_below(5);
         graph_targets[j] = j % 5 == 3 ? -1 : test_below(W);
      }
      for (int with_grads = 0; with_grads < 2; ++with_grads)
         for (int threads = 1; threads <= 3; threads += 2) {
            mod_tape_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.n_threads = threads;
            desc.measure = 1;
            if (threads > 1) desc.jobs.run = run_backwards;

            ground *grads = with_grads ? &g : NULL;
            g = zero;
            mod_tape *tape = mod_tape_create(&desc, TAPE_BYTES, NULL, &err);
            if (!HOLDS(tape != NULL, err.message)) return;
            int calls = outside_calls;
            graph(tape, &f, grads, seed, 1, seen);
            mod_tape_status(tape, &err);
            CHECKF(err.code == MOD_RESULT_OK, "seed %d: measuring: %s", i, err.message);
            CHECKF(outside_calls == calls, "seed %d: a custom op ran while measuring", i);
            CHECKF(!memcmp(&g, &zero, sizeof g), "seed %d: measuring wrote to a gradient", i);
            size_t bytes = mod_tape_peak(tape);
            if (threads == 1) plan[with_grads] = bytes;
            mod_tape_destroy(tape);

            /* That much is enough, twice over; it is all used, and nothing beyond. */
            desc.measure = 0;
            unsigned char *memory = (unsigned char *)malloc(bytes + CANARY);
            if (!HOLDS(memory != NULL, "memory")) return;
            memset(memory, 0xa5, bytes + CANARY);
            tape = mod_tape_init(&desc, memory, bytes, &err);
            if (!HOLDS(tape != NULL, err.message)) return;
            for (int round = 0; round < 2; ++round) {
               g = zero;
               mod_tape_reset(tape);
               uint64_t h = graph(tape, &f, grads, seed, 0, NULL);
               mod_tape_status(tape, &err);
               CHECKF(err.code == MOD_RESULT_OK, "seed %d: %d bytes: %s", i, (int)bytes, err.message);
               CHECKF(mod_tape_peak(tape) == bytes, "seed %d: measured %d, used %d", i, (int)bytes,
                      (int)mod_tape_peak(tape));
               if (round == 0) hash[with_grads][threads > 1] = h;
               CHECKF(h == hash[with_grads][threads > 1], "seed %d: another round, other bits", i);
            }
            for (int j = 0; j < CANARY; ++j) CHECK(memory[bytes + (size_t)j] == 0xa5);

            /* One byte less is not. */
            tape = mod_tape_init(&desc, memory, bytes - 1, &err);
            if (tape) {
               graph(tape, &f, grads, seed, 0, NULL);
               mod_tape_status(tape, &err);
               CHECK(mod_tape_peak(tape) < bytes);
            }
            CHECKF(err.code == MOD_RESULT_MEMORY, "seed %d: one byte less: %s", i, mod_result_name(err.code));
            refused += err.code == MOD_RESULT_MEMORY;
            free(memory);
         }
      CHECKF(hash[0][0] == hash[0][1] && hash[1][0] == hash[1][1], "seed %d: three threads, other bits", i);
      CHECKF(plan[1] > plan[0], "seed %d: gradients take %d, none %d bytes", i, (int)plan[1], (int)plan[0]);
   }
   for (int k = 0; k < KINDS; ++k) CHECKF(seen[k], "kind %d never built", k);
   CHECK(refused == SEEDS * 4);
   CHECK(jobs_run > 50);
   CHECK(outside_calls > 0 && outside_dirty == 0);
}

/* Attention has as many tasks as sequences times key heads: threads beyond those take no memory. */
static void check_memory_of_threads(void)
{
   size_t peak[3];
   for (int i = 0; i < 3; ++i) {
      mod_tape_desc desc;
      memset(&desc, 0, sizeof desc);
      desc.measure = 1;
      desc.n_threads = i == 0 ? 1 : i == 1 ? 2 : 1024;
      mod_tape *tape = mod_tape_create(&desc, TAPE_BYTES, NULL, NULL);
      static float grad[64 * 4];
      mod_rows *rows = mod_rows_make(tape, 2, 32, NULL);
      mod_tensor *x = leaf(tape, NULL, grad, 64, 4), *y = mod_attention(tape, x, x, x, rows, rows, 1, 1, MOD_MASK_FULL);
      CHECK(mod_tape_backward(tape, mod_sum(tape, y), NULL) == MOD_RESULT_OK);
      peak[i] = mod_tape_peak(tape);
      mod_tape_destroy(tape);
   }
   CHECKF(peak[0] < peak[1] && peak[1] == peak[2], "1, 2, 1024 threads: %d, %d, %d bytes", (int)peak[0], (int)peak[1],
          (int)peak[2]);
}

/* -----------------------------------------------------------------------------------------------------------------
   Mark and rewind; custom ops
   ----------------------------------------------------------------------------------------------------------------- */

static void check_marks(void)
{
   static float x[12], g[12], before[12];
   mod_error err;
   mod_tape *tape = mod_tape_create(NULL, 65536, NULL, &err);
   if (!HOLDS(tape != NULL, err.message)) return;
   fill(x, 12);
   mod_tensor *a = leaf(tape, x, g, 3, 4), *b = mod_gelu(tape, a);
   memcpy(before, b->data, sizeof before);
   mod_mark outer = mod_tape_mark(tape);
   mod_tensor *c = mod_exp(tape, b);
   void *first = c->data;
   mod_mark inner = mod_tape_mark(tape);
   mod_tanh(tape, c);
   size_t peak = mod_tape_peak(tape);
   CHECK(mod_tape_rewind(tape, inner, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   CHECK(mod_tape_mark(tape).used == inner.used && mod_tape_mark(tape).last == inner.last);
   CHECK(mod_tape_rewind(tape, outer, &err) == MOD_RESULT_OK);
   CHECK(mod_tape_mark(tape).used == outer.used);
   CHECK(mod_tape_peak(tape) == peak); /* the peak stays */
   CHECK(mod_tape_rewind(tape, inner, &err) == MOD_RESULT_ARG && err.message); /* forgotten with what it stood on */
   CHECK(mod_tape_mark(tape).used == outer.used);

   /* The memory is used again, what stands is untouched, and backward no longer sees what was forgotten. */
   c = mod_sigmoid(tape, b);
   CHECK(c && (void *)c->data == first && !memcmp(before, b->data, sizeof before));
   memset(g, 0, sizeof g);
   CHECK(mod_tape_rewind(tape, outer, NULL) == MOD_RESULT_OK);
   mod_tensor *loss = mod_sum(tape, b);
   CHECK(mod_tape_backward(tape, loss, &err) == MOD_RESULT_OK);
   for (int i = 0; i < 12; ++i) {
      double v = (double)x[i], u = 0.7978845608028654 * (v + 0.044715 * v * v * v), th = tanh(u);
      double want = 0.5 * (1 + th) + 0.5 * v * (1 - th * th) * 0.7978845608028654 * (1 + 3 * 0.044715 * v * v);
      CHECKF(fabs((double)g[i] - want) < 1e-5, "%g, not %g", (double)g[i], want);
   }
   mod_tape_reset(tape);
   CHECK(mod_tape_rewind(tape, outer, &err) == MOD_RESULT_ARG);
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK); /* a refused mark is no error of the tape */
   CHECK(mod_tape_peak(tape) >= peak);
   mod_tape_destroy(tape);
}

/* A custom op of no inputs and without a backward pass; and one that fails. */
static void ones_forward(mod_tape *t, mod_tensor *out)
{
   (void)t;
   for (size_t i = 0; i < count_of(out); ++i) out->data[i] = 1;
}
static void failing_forward(mod_tape *t, mod_tensor *out)
{
   (void)out;
   mod_tape_fail(t, MOD_RESULT_STATE, "out of order", 7);
}
static void check_custom(mod_tape *tape)
{
   static float x[3], g[3];
   mod_custom_desc desc;
   mod_error err;
   memset(&desc, 0, sizeof desc);
   desc.n_dim = 1;
   desc.dim[0] = 3;
   desc.forward = ones_forward;
   mod_tape_reset(tape);
   mod_tensor *y = mod_custom(tape, &desc);
   CHECK(y && !y->grad && y->data[0] == 1 && y->data[2] == 1);
   /* backward NULL: no gradient arrives, others are not disturbed. */
   const int dim[1] = {3};
   desc.n_in = 1;
   desc.in[0] = mod_leaf(tape, x, g, 1, dim);
   y = mod_add(tape, mod_custom(tape, &desc), desc.in[0]);
   CHECK(mod_tape_backward(tape, mod_sum(tape, y), NULL) == MOD_RESULT_OK && g[0] == 1 && g[1] == 1 && g[2] == 1);
   desc.forward = failing_forward;
   CHECK(!mod_custom(tape, &desc));
   CHECK(mod_tape_status(tape, &err) == MOD_RESULT_STATE && !strcmp(err.message, "out of order") && err.where == 7);
   CHECK(mod_sum(tape, y) == NULL);
   mod_tape_fail(tape, MOD_RESULT_ARG, "a second error", 1);
   CHECK(mod_tape_status(tape, &err) == MOD_RESULT_STATE && err.where == 7); /* the first one stays */
   mod_tape_reset(tape);
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK);
}

/* -----------------------------------------------------------------------------------------------------------------
   Errors
   ----------------------------------------------------------------------------------------------------------------- */

static float err_a[128], err_nan[4];

static mod_tensor *A(mod_tape *t, int rows, int columns) { return leaf(t, err_a, NULL, rows, columns); }
static mod_tensor *V(mod_tape *t, int n)
{
   return mod_leaf(t, err_a, NULL, 1, &n);
}
static mod_rows *kept_of(mod_tape *t) { return mod_rows_topk(t, full(t), A(t, 12, 1), 0.5); } /* 6 rows of 12 */
static mod_tensor *attention_of(mod_tape *t, int q, int q_width, int k, int k_width, int v, int v_width, int heads,
                                int kv_heads)
{
   mod_rows *rows = full(t);
   return mod_attention(t, A(t, q, q_width), A(t, k, k_width), A(t, v, v_width), rows, rows, heads, kv_heads,
                        MOD_MASK_CAUSAL);
}
static mod_tensor *custom_of(mod_tape *t, int n_in, int n_dim, int with_forward)
{
   mod_custom_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.n_in = n_in;
   desc.n_dim = n_dim;
   for (int i = 0; i < 3; ++i) desc.in[i] = A(t, 1, 1);
   for (int i = 0; i < 4; ++i) desc.dim[i] = 1;
   desc.forward = with_forward ? ones_forward : NULL;
   return mod_custom(t, &desc);
}
static mod_tensor *leaf_of(mod_tape *t, int n_dim, int first)
{
   const int dim[5] = {first, 1, 1, 1, 1};
   return mod_leaf(t, err_a, NULL, n_dim, dim);
}

static const int bad_ids[3] = {1, 0, 5}, negative_ids[2] = {0, -1}, bad_targets[3] = {0, -1, 4},
                 long_lengths[2] = {3, 6}, negative_lengths[2] = {3, -1}, low_targets[3] = {0, -2, 1};

/* What must be refused, with which code and position (ANY: the op may name one). */
enum { ANY = -1000 };
#define BAD(id, expr) \
   static const void *bad_##id(mod_tape *t) { return expr; }
BAD(leaf_dims, leaf_of(t, 5, 1))
BAD(leaf_no_dims, leaf_of(t, 0, 1))
BAD(leaf_negative, leaf_of(t, 2, -1))
BAD(leaf_no_data, mod_leaf(t, NULL, NULL, 1, bad_ids))
BAD(matmul, mod_matmul(t, A(t, 3, 4), A(t, 5, 4)))
BAD(matmul_null, mod_matmul(t, NULL, A(t, 5, 4)))
BAD(matmul_null_b, mod_matmul(t, A(t, 5, 4), NULL))
BAD(matmul_nt, mod_matmul_nt(t, A(t, 3, 4), A(t, 4, 5)))
BAD(matmul_tn, mod_matmul_tn(t, A(t, 3, 4), A(t, 4, 5)))
BAD(add, mod_add(t, A(t, 3, 4), A(t, 4, 3)))
BAD(add_row, mod_add(t, A(t, 3, 4), V(t, 3)))
BAD(sub, mod_sub(t, A(t, 3, 4), A(t, 2, 4)))
BAD(mul_column, mod_mul(t, A(t, 3, 4), A(t, 4, 1)))
BAD(bias, mod_bias(t, A(t, 3, 4), V(t, 3)))
BAD(scale_nan, mod_scale(t, A(t, 3, 4), NAN))
BAD(scale_inf, mod_scale(t, A(t, 3, 4), HUGE_VAL))
BAD(gelu_null, mod_gelu(t, NULL))
BAD(rmsnorm_gain, mod_rmsnorm(t, A(t, 3, 4), V(t, 3), 1e-5))
BAD(rmsnorm_eps, mod_rmsnorm(t, A(t, 3, 4), NULL, 0))
BAD(rmsnorm_eps_nan, mod_rmsnorm(t, A(t, 3, 4), NULL, NAN))
BAD(layernorm_bias, mod_layernorm(t, A(t, 3, 4), V(t, 4), V(t, 3), 1e-5))
BAD(layernorm_eps, mod_layernorm(t, A(t, 3, 4), NULL, NULL, -1))
BAD(embedding_id, mod_embedding(t, A(t, 5, 4), bad_ids, 3))
BAD(embedding_low, mod_embedding(t, A(t, 5, 4), negative_ids, 2))
BAD(embedding_n, mod_embedding(t, A(t, 5, 4), bad_ids, -1))
BAD(embedding_null, mod_embedding(t, A(t, 5, 4), NULL, 2))
BAD(rope_table_odd, mod_rope_table(t, 0, 4, 3, 10000))
BAD(rope_table_base, mod_rope_table(t, 0, 4, 4, 0))
BAD(rope_table_n, mod_rope_table(t, 0, -1, 4, 10000))
BAD(rope_short, mod_rope(t, A(t, 12, 4), full(t), mod_rope_table(t, 0, 2, 4, 10000)))
BAD(rope_width, mod_rope(t, A(t, 12, 6), full(t), mod_rope_table(t, 0, 4, 4, 10000)))
BAD(rope_rows, mod_rope(t, A(t, 6, 4), full(t), mod_rope_table(t, 0, 4, 4, 10000)))
BAD(rope_null, mod_rope(t, A(t, 12, 4), NULL, mod_rope_table(t, 0, 4, 4, 10000)))
BAD(attention_heads, attention_of(t, 12, 6, 12, 6, 12, 6, 4, 4))
BAD(attention_groups, attention_of(t, 12, 6, 12, 4, 12, 4, 3, 2))
BAD(attention_none, attention_of(t, 12, 6, 12, 6, 12, 6, 0, 0))
BAD(attention_q, attention_of(t, 11, 6, 12, 6, 12, 6, 2, 2))
BAD(attention_k, attention_of(t, 12, 6, 11, 6, 12, 6, 2, 2))
BAD(attention_v, attention_of(t, 12, 6, 12, 6, 12, 4, 2, 2))
BAD(attention_seqs, mod_attention(t, A(t, 12, 4), A(t, 12, 4), A(t, 12, 4), full(t), mod_rows_make(t, 1, 12, NULL), 2,
                                  2, MOD_MASK_FULL))
BAD(rows_long, mod_rows_make(t, 2, 5, long_lengths))
BAD(rows_negative, mod_rows_make(t, 2, 5, negative_lengths))
BAD(rows_seqs, mod_rows_make(t, -1, 5, NULL))
BAD(topk_nan, mod_rows_topk(t, mod_rows_make(t, 1, 4, NULL), leaf(t, err_nan, NULL, 4, 1), 0.5))
BAD(topk_capacity, mod_rows_topk(t, full(t), A(t, 12, 1), 1.5))
BAD(topk_zero, mod_rows_topk(t, full(t), A(t, 12, 1), 0))
BAD(topk_shape, mod_rows_topk(t, full(t), A(t, 6, 1), 0.5))
BAD(threshold_nan, mod_rows_threshold(t, mod_rows_make(t, 1, 4, NULL), leaf(t, err_nan, NULL, 4, 1), 0))
BAD(threshold_theta, mod_rows_threshold(t, full(t), A(t, 12, 1), NAN))
BAD(mask, mod_rows_mask(t, mod_rows_make(t, 1, 2, NULL), kept_of(t)))
BAD(gather, mod_gather(t, A(t, 5, 4), kept_of(t)))
BAD(gather_all, mod_gather(t, A(t, 5, 4), full(t)))
BAD(gather_null, mod_gather(t, A(t, 12, 4), NULL))
BAD(scatter_rows, mod_scatter_add(t, A(t, 12, 4), A(t, 2, 4), NULL, kept_of(t)))
BAD(scatter_width, mod_scatter_add(t, A(t, 12, 4), A(t, 6, 3), NULL, kept_of(t)))
BAD(scatter_weight, mod_scatter_add(t, A(t, 12, 4), A(t, 6, 4), A(t, 5, 1), kept_of(t)))
BAD(scatter_parent, mod_scatter_add(t, A(t, 4, 4), A(t, 6, 4), NULL, kept_of(t)))
BAD(dropout_null, mod_dropout(t, A(t, 12, 4), NULL, 0.5, 0, 0, 0))
BAD(dropout_one, mod_dropout(t, A(t, 12, 4), full(t), 1, 0, 0, 0))
BAD(dropout_low, mod_dropout(t, A(t, 12, 4), full(t), -0.1, 0, 0, 0))
BAD(dropout_nan, mod_dropout(t, A(t, 12, 4), full(t), NAN, 0, 0, 0))
BAD(dropout_rows, mod_dropout(t, A(t, 11, 4), full(t), 0.5, 0, 0, 0))
BAD(logsumexp_row, mod_logsumexp(t, V(t, 4)))
BAD(logsumexp_none, mod_logsumexp(t, A(t, 3, 0)))
BAD(logsumexp_null, mod_logsumexp(t, NULL))
BAD(pool_null, mod_pool(t, A(t, 12, 4), NULL, MOD_POOL_MEAN))
BAD(pool_kind, mod_pool(t, A(t, 12, 4), full(t), (mod_pool_kind)2))
BAD(pool_rows, mod_pool(t, A(t, 6, 4), full(t), MOD_POOL_LAST))
BAD(others_null, mod_rows_others(t, full(t), NULL))
BAD(others_of_null, mod_rows_others(t, NULL, kept_of(t)))
BAD(others, mod_rows_others(t, full(t), kept_of(t)))
static const void *choose_of(mod_tape *t, int rows, int paths, int choices, int n_experts, int slots, int carried)
{
   static int used[8];
   mod_rows *out[8];
   int made = mod_rows_choose(t, full(t), A(t, rows, paths), choices, n_experts, slots, carried ? used : NULL, NULL,
                              out);
   return made ? t : NULL;
}
BAD(choose_rows, choose_of(t, 11, 3, 1, 2, 4, 0))
BAD(choose_choices, choose_of(t, 12, 3, 4, 2, 4, 0))
BAD(choose_no_choice, choose_of(t, 12, 3, 0, 2, 4, 0))
BAD(choose_experts, choose_of(t, 12, 3, 1, 4, 4, 0))
BAD(choose_no_expert, choose_of(t, 12, 3, 1, 0, 4, 0))
BAD(choose_slots, choose_of(t, 12, 3, 1, 2, -1, 0))
BAD(choose_used, choose_of(t, 12, 3, 1, 2, 4, 1)) /* three sequences, and one count */
BAD(gate_kind, mod_gate(t, A(t, 7, 1), (mod_gate_kind)9, 0.2))
BAD(gate_scale, mod_gate(t, A(t, 7, 1), MOD_GATE_TANH, NAN))
BAD(ce_target, mod_cross_entropy(t, A(t, 3, 4), bad_targets, 0))
BAD(ce_low, mod_cross_entropy(t, A(t, 3, 4), low_targets, 0))
BAD(ce_null, mod_cross_entropy(t, A(t, 3, 4), NULL, 0))
BAD(ce_count, mod_cross_entropy(t, A(t, 3, 4), ids, -1))
BAD(bce_null, mod_bce_logits(t, A(t, 3, 1), NULL, 0))
BAD(bce_count, mod_bce_logits(t, A(t, 3, 1), truths, NAN))
BAD(reshape, mod_reshape(t, A(t, 3, 4), 1, ids))
BAD(reshape_null, mod_reshape(t, A(t, 3, 4), 2, NULL))
BAD(transpose, mod_transpose(t, A(t, 3, 4), 0, 2))
BAD(transpose_low, mod_transpose(t, A(t, 3, 4), -1, 0))
BAD(slice_dim, mod_slice(t, A(t, 3, 4), 2, 0, 1))
BAD(slice_end, mod_slice(t, A(t, 3, 4), 1, 2, 3))
BAD(slice_first, mod_slice(t, A(t, 3, 4), 1, -1, 2))
BAD(slice_huge, mod_slice(t, A(t, 3, 4), 1, 1, 2147483647))
BAD(concat, mod_concat(t, A(t, 3, 4), A(t, 2, 4), 1))
BAD(concat_dims, mod_concat(t, A(t, 3, 4), V(t, 4), 0))
BAD(concat_dim, mod_concat(t, A(t, 3, 4), A(t, 3, 4), 2))
BAD(custom_inputs, custom_of(t, 4, 2, 1))
BAD(custom_dims, custom_of(t, 1, 5, 1))
BAD(custom_forward, custom_of(t, 1, 2, 0))
BAD(custom_null, mod_custom(t, NULL))

typedef struct bad_case {
   const char *name;
   const void *(*build)(mod_tape *t);
   mod_result code;
   int where;
} bad_case;
#define ROW_BAD(id, code, where) {#id, bad_##id, MOD_RESULT_##code, where}
static const bad_case bad[] = {
   ROW_BAD(leaf_dims, ARG, ANY),
   ROW_BAD(leaf_no_dims, ARG, ANY),
   ROW_BAD(leaf_negative, ARG, ANY),
   ROW_BAD(leaf_no_data, ARG, ANY),
   ROW_BAD(matmul, SHAPE, ANY),
   ROW_BAD(matmul_null, ARG, ANY),
   ROW_BAD(matmul_null_b, ARG, ANY),
   ROW_BAD(matmul_nt, SHAPE, ANY),
   ROW_BAD(matmul_tn, SHAPE, ANY),
   ROW_BAD(add, SHAPE, ANY),
   ROW_BAD(add_row, SHAPE, ANY),
   ROW_BAD(sub, SHAPE, ANY),
   ROW_BAD(mul_column, SHAPE, ANY),
   ROW_BAD(bias, SHAPE, ANY),
   ROW_BAD(scale_nan, ARG, ANY),
   ROW_BAD(scale_inf, ARG, ANY),
   ROW_BAD(gelu_null, ARG, ANY),
   ROW_BAD(rmsnorm_gain, SHAPE, ANY),
   ROW_BAD(rmsnorm_eps, ARG, ANY),
   ROW_BAD(rmsnorm_eps_nan, ARG, ANY),
   ROW_BAD(layernorm_bias, SHAPE, ANY),
   ROW_BAD(layernorm_eps, ARG, ANY),
   ROW_BAD(embedding_id, RANGE, 2),
   ROW_BAD(embedding_low, RANGE, 1),
   ROW_BAD(embedding_n, ARG, ANY),
   ROW_BAD(embedding_null, ARG, ANY),
   ROW_BAD(rope_table_odd, ARG, ANY),
   ROW_BAD(rope_table_base, ARG, ANY),
   ROW_BAD(rope_table_n, ARG, ANY),
   ROW_BAD(rope_short, RANGE, ANY),
   ROW_BAD(rope_width, SHAPE, ANY),
   ROW_BAD(rope_rows, SHAPE, ANY),
   ROW_BAD(rope_null, ARG, ANY),
   ROW_BAD(attention_heads, SHAPE, ANY),
   ROW_BAD(attention_groups, ARG, ANY),
   ROW_BAD(attention_none, ARG, ANY),
   ROW_BAD(attention_q, SHAPE, ANY),
   ROW_BAD(attention_k, SHAPE, ANY),
   ROW_BAD(attention_v, SHAPE, ANY),
   ROW_BAD(attention_seqs, SHAPE, ANY),
   ROW_BAD(rows_long, ARG, ANY),
   ROW_BAD(rows_negative, ARG, ANY),
   ROW_BAD(rows_seqs, ARG, ANY),
   ROW_BAD(topk_nan, NUMERIC, 2),
   ROW_BAD(topk_capacity, ARG, ANY),
   ROW_BAD(topk_zero, ARG, ANY),
   ROW_BAD(topk_shape, SHAPE, ANY),
   ROW_BAD(threshold_nan, NUMERIC, 2),
   ROW_BAD(threshold_theta, NUMERIC, ANY),
   ROW_BAD(mask, SHAPE, ANY),
   ROW_BAD(gather, SHAPE, ANY),
   ROW_BAD(gather_all, SHAPE, ANY),
   ROW_BAD(gather_null, ARG, ANY),
   ROW_BAD(scatter_rows, SHAPE, ANY),
   ROW_BAD(scatter_width, SHAPE, ANY),
   ROW_BAD(scatter_weight, SHAPE, ANY),
   ROW_BAD(scatter_parent, SHAPE, ANY),
   ROW_BAD(dropout_null, ARG, ANY),
   ROW_BAD(dropout_one, ARG, ANY),
   ROW_BAD(dropout_low, ARG, ANY),
   ROW_BAD(dropout_nan, ARG, ANY),
   ROW_BAD(dropout_rows, SHAPE, ANY),
   ROW_BAD(logsumexp_row, SHAPE, ANY),
   ROW_BAD(logsumexp_none, SHAPE, ANY),
   ROW_BAD(logsumexp_null, ARG, ANY),
   ROW_BAD(pool_null, ARG, ANY),
   ROW_BAD(pool_kind, ARG, ANY),
   ROW_BAD(pool_rows, SHAPE, ANY),
   ROW_BAD(others_null, ARG, ANY),
   ROW_BAD(others_of_null, ARG, ANY),
   ROW_BAD(others, SHAPE, ANY),
   ROW_BAD(choose_rows, SHAPE, ANY),
   ROW_BAD(choose_choices, ARG, ANY),
   ROW_BAD(choose_no_choice, ARG, ANY),
   ROW_BAD(choose_experts, ARG, ANY),
   ROW_BAD(choose_no_expert, ARG, ANY),
   ROW_BAD(choose_slots, ARG, ANY),
   ROW_BAD(choose_used, ARG, ANY),
   ROW_BAD(gate_kind, ARG, ANY),
   ROW_BAD(gate_scale, ARG, ANY),
   ROW_BAD(ce_target, RANGE, 2),
   ROW_BAD(ce_low, RANGE, 1),
   ROW_BAD(ce_null, ARG, ANY),
   ROW_BAD(ce_count, ARG, ANY),
   ROW_BAD(bce_null, ARG, ANY),
   ROW_BAD(bce_count, ARG, ANY),
   ROW_BAD(reshape, SHAPE, ANY),
   ROW_BAD(reshape_null, ARG, ANY),
   ROW_BAD(transpose, ARG, ANY),
   ROW_BAD(transpose_low, ARG, ANY),
   ROW_BAD(slice_dim, ARG, ANY),
   ROW_BAD(slice_end, ARG, ANY),
   ROW_BAD(slice_first, ARG, ANY),
   ROW_BAD(slice_huge, ARG, ANY),
   ROW_BAD(concat, SHAPE, ANY),
   ROW_BAD(concat_dims, SHAPE, ANY),
   ROW_BAD(concat_dim, ARG, ANY),
   ROW_BAD(custom_inputs, ARG, ANY),
   ROW_BAD(custom_dims, ARG, ANY),
   ROW_BAD(custom_forward, ARG, ANY),
   ROW_BAD(custom_null, ARG, ANY),
};

static void check_errors(mod_tape *tape)
{
   static float g[4];
   mod_error err;
   fill(err_a, 128);
   err_nan[2] = NAN;
   for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
      const bad_case *b = bad + i;
      mod_tape_reset(tape);
      mod_tensor *before = mod_sum(tape, leaf(tape, err_a, g, 2, 2));
      const void *result = b->build(tape);
      mod_result code = mod_tape_status(tape, &err);
      CHECKF(!result, "%s: not refused", b->name);
      CHECKF(code == b->code && err.code == code && err.message && strlen(err.message) > 5, "%s: %s, not %s (%s)",
             b->name, mod_result_name(code), mod_result_name(b->code), err.message ? err.message : "no message");
      CHECKF(b->where == ANY || err.where == b->where, "%s: at %d, not %d", b->name, (int)err.where, b->where);

      /* Sticky: nothing works, nothing grows, the first error stays. */
      mod_mark mark = mod_tape_mark(tape);
      double flops = mod_tape_flops(tape);
      CHECKF(!leaf(tape, err_a, g, 2, 2) && !mod_matmul(tape, before, before) && !mod_gelu(tape, before) &&
                !all(tape) && !mod_embedding(tape, before, bad_ids, 3) && !mod_custom(tape, NULL) &&
                !mod_rope_table(tape, 0, 2, 2, 10),
             "%s: a failed tape goes on", b->name);
      memset(g, 0, sizeof g);
      CHECKF(mod_tape_backward(tape, before, NULL) == b->code && g[0] == 0, "%s: backward on a failed tape", b->name);
      mod_error now;
      CHECKF(mod_tape_status(tape, &now) == b->code && now.message == err.message && now.where == err.where,
             "%s: another error", b->name);
      CHECKF(mod_tape_mark(tape).used == mark.used && mod_tape_mark(tape).last == mark.last &&
                mod_tape_flops(tape) == flops,
             "%s: a failed tape grew", b->name);
   }
   mod_tape_reset(tape);
   mod_tensor *x = leaf(tape, err_a, g, 2, 2);
   CHECK(mod_tape_status(tape, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK && x);

   /* The way back: of one element, of something with a gradient, once. */
   CHECK(mod_tape_backward(tape, x, &err) != MOD_RESULT_OK && err.message);
   mod_tape_reset(tape);
   CHECK(mod_tape_backward(tape, mod_sum(tape, leaf(tape, err_a, NULL, 2, 2)), &err) != MOD_RESULT_OK && err.message);
   mod_tape_reset(tape);
   CHECK(mod_tape_backward(tape, NULL, &err) != MOD_RESULT_OK && err.message);
   mod_tape_reset(tape);
   memset(g, 0, sizeof g);
   x = mod_sum(tape, leaf(tape, err_a, g, 2, 2));
   CHECK(mod_tape_backward(tape, x, &err) == MOD_RESULT_OK && g[3] == 1);
   CHECK(mod_tape_backward(tape, x, &err) == MOD_RESULT_STATE && g[3] == 1);

   /* A forward-only tape has no way back. */
   mod_tape_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.forward_only = 1;
   mod_tape *forward = mod_tape_create(&desc, 4096, NULL, &err);
   if (!HOLDS(forward != NULL, err.message)) return;
   x = mod_sum(forward, leaf(forward, err_a, g, 2, 2));
   CHECK(x && !x->grad);
   CHECK(mod_tape_backward(forward, x, &err) != MOD_RESULT_OK && g[3] == 1);
   mod_tape_destroy(forward);
}

int main(void)
{
   mod_error err;
   mod_tape *tape = mod_tape_create(NULL, TAPE_BYTES, NULL, &err);
   if (HOLDS(tape != NULL, err.message)) {
      check_values(tape);
      check_functions(tape);
      check_softmax_of_two();
      check_dropout();
      check_chains(tape);
      check_attention_mask(tape);
      check_rows(tape);
      check_others(tape);
      check_choose(tape);
      check_ragged();
      check_lengths();
      check_empty(tape, 0);
      check_empty(tape, 1);
      check_flops(tape);
      check_memory_of_each();
      check_memory();
      check_memory_of_threads();
      check_marks();
      check_custom(tape);
      check_errors(tape);
   }
   mod_tape_destroy(tape);
   return test_end();
}
