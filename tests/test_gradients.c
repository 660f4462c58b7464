/* test_gradients.c - gradients in double: every op, and two-block models with every gate, against 4-point central
   differences. Adding an op is one builder and one row of `cases`; an op of mod.h without a row fails. */
#define MOD_USE_DOUBLE
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"

#include <math.h>

/* Bars, chosen before the first run. */
static const double step = 1e-4;      /* h of the differences, whose own error falls with h^4 */
static const double bar = 1e-6;       /* |analytic - numeric| <= bar * max|g| of the tensor */
static const double margin_of = 0.02; /* between the k-th and the next score: some 200 steps */
static const double share_of = 0.95;  /* of a model's parameters that must have been checked */

enum { MAX_IN = 3, MAX_COUNT = 1024, TAPE_BYTES = 1 << 20 };

/* CHECK as an expression, with a sentence. (Arguments are evaluated in any order: call first, then ask err.) */
#define HOLDS(ok, why) test_check((ok) ? 1 : 0, #ok, __FILE__, __LINE__, why)

static size_t count_of(const mod_tensor *x)
{
   size_t n = 1;
   for (int i = 0; i < x->n_dim; ++i) n *= (size_t)x->dim[i];
   return n;
}

/* (-f(2h) + 8 f(h) - 8 f(-h) + f(-2h)) / 12h, with f at offsets -2h, -h, h, 2h. Exactly 0 where f is constant. */
static const double offset[4] = {-2, -1, 1, 2};
static double difference(const double *f) { return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * step); }

/* -----------------------------------------------------------------------------------------------------------------
   Ops
   ----------------------------------------------------------------------------------------------------------------- */

/* Twelve rows of three sequences. Of these seven exist (a number that depends on the data: 4, 0, 3); of those the top
   half (2, 0, 1), and those with a score above 0 (3, 0, 2: the third sequence has lost its first row). */
static double exists[12] = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, -1};
static double score[12] = {0.3, -1, 2, 0.7, 5, 5, 5, 5, -0.2, 1.5, 0.1, 5};

static mod_tensor *column_of_12(mod_tape *t, double *data)
{
   const int dim[2] = {12, 1};
   return mod_leaf(t, data, NULL, 2, dim);
}
static mod_rows *full(mod_tape *t, int n_seqs, int length) { return mod_rows_make(t, n_seqs, length, NULL); }
static mod_rows *all(mod_tape *t) { return mod_rows_threshold(t, full(t, 3, 4), column_of_12(t, exists), 0); }
static mod_tensor *score_of_all(mod_tape *t) { return mod_gather(t, column_of_12(t, score), all(t)); }
static mod_rows *best(mod_tape *t) { return mod_rows_topk(t, all(t), score_of_all(t), 0.5); }
static mod_rows *above(mod_tape *t) { return mod_rows_threshold(t, all(t), score_of_all(t), 0); }
static mod_rows *best_of_12(mod_tape *t) { return mod_rows_topk(t, full(t, 3, 4), column_of_12(t, score), 0.5); }

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
static mod_tensor *attend_full(mod_tape *t, mod_tensor *q, mod_tensor *k, mod_tensor *v, int n_seqs, int length,
                               int heads, int kv_heads, mod_mask mask)
{
   mod_rows *rows = full(t, n_seqs, length);
   return mod_attention(t, q, k, v, rows, rows, heads, kv_heads, mask);
}

static const int ids[6] = {2, 0, 4, 2, 2, 3};
static const int targets[5] = {3, -1, 0, 2, -1};
static const unsigned char truths[6] = {1, 0, 0, 1, 1, 0};

static mod_tensor *reshape(mod_tape *t, mod_tensor *x, int n_dim, int a, int b, int c)
{
   const int dim[3] = {a, b, c};
   return mod_reshape(t, x, n_dim, dim);
}

static mod_tensor *routed(mod_tape *t, mod_tensor *x, mod_tensor *w, mod_tensor *r)
{
   mod_rows *kept = above(t);
   mod_tensor *delta = mod_gelu(t, mod_matmul(t, mod_rmsnorm(t, of(t, x, kept), NULL, 1e-5), w));
   return mod_scatter_add(t, of_all(t, x), delta, mod_gate(t, of(t, r, kept), MOD_GATE_SIGMOID, 0), kept);
}

/* Rows above, of x; the others, of y: one after the other. */
static mod_tensor *others_too(mod_tape *t, mod_tensor *x, mod_tensor *y)
{
   mod_rows *every = full(t, 3, 4), *kept = mod_rows_topk(t, every, column_of_12(t, score), 0.5);
   mod_tensor *z = mod_scatter_add(t, x, mod_tanh(t, mod_gather(t, x, kept)), NULL, kept);
   kept = mod_rows_others(t, every, kept);
   return mod_scatter_add(t, z, mod_gelu(t, mod_gather(t, y, kept)), NULL, kept);
}

/* Two experts and a way past them, each row with its two best, weighted by the softmax; some find no slot. */
static double wish[36] = {2, 1, 0, 2, 1, 0, 2, 1, 0, 1, 2, 0, 0, 0, 9, 9, 0, 1, 0, 9, 1, 0, 1, 9,
                          5, 6, 7, 6, 5, 0, 0, 6, 1, 7, 6, 5};
static mod_tensor *experts_of(mod_tape *t, mod_tensor *x, mod_tensor *w, mod_tensor *r)
{
   const int dim[2] = {12, 3};
   mod_rows *every = full(t, 3, 4), *out[2] = {NULL, NULL};
   mod_tensor *p = mod_softmax(t, r), *y = x;
   if (!mod_rows_choose(t, every, mod_leaf(t, wish, NULL, 2, dim), 2, 2, 2, NULL, NULL, out)) return NULL;
   for (int e = 0; e < 2; ++e)
      y = mod_scatter_add(t, y, mod_gelu(t, mod_matmul(t, mod_gather(t, x, out[e]), w)),
                          mod_gather(t, mod_slice(t, p, 1, e, 1), out[e]), out[e]);
   return y;
}

/* An op from outside: y = a a b, element by element; keeps a a for the way back. */
static void outside_forward(mod_tape *t, mod_tensor *out)
{
   double *square = (double *)out->saved;
   (void)t;
   for (size_t i = 0; i < count_of(out); ++i) {
      square[i] = out->in[0]->data[i] * out->in[0]->data[i];
      out->data[i] = *(const double *)out->user * square[i] * out->in[1]->data[i];
   }
}
static void outside_backward(mod_tape *t, mod_tensor *out)
{
   const double *square = (const double *)out->saved, s = *(const double *)out->user;
   (void)t;
   for (size_t i = 0; i < count_of(out); ++i) {
      if (out->in[0]->grad) out->in[0]->grad[i] += s * 2 * out->in[0]->data[i] * out->in[1]->data[i] * out->grad[i];
      if (out->in[1]->grad) out->in[1]->grad[i] += s * square[i] * out->grad[i];
   }
}
static mod_tensor *outside(mod_tape *t, mod_tensor *a, mod_tensor *b)
{
   static double three = 3;
   mod_custom_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.n_in = 2;
   desc.in[0] = a;
   desc.in[1] = b;
   desc.n_dim = 2;
   desc.dim[0] = 3;
   desc.dim[1] = 4;
   desc.saved_bytes = 12 * sizeof(double);
   desc.forward = outside_forward;
   desc.backward = outside_backward;
   desc.user = &three;
   return mod_custom(t, &desc);
}

#define OP(name, expr) \
   static mod_tensor *op_##name(mod_tape *t, mod_tensor **x) { (void)t; return expr; }
OP(leaf, x[0])
OP(matmul, mod_matmul(t, x[0], x[1]))
OP(matmul_self, mod_matmul(t, x[0], x[0]))
OP(matmul_nt, mod_matmul_nt(t, x[0], x[1]))
OP(matmul_nt_self, mod_matmul_nt(t, x[0], x[0]))
OP(matmul_tn, mod_matmul_tn(t, x[0], x[1]))
OP(matmul_tn_self, mod_matmul_tn(t, x[0], x[0]))
OP(add, mod_add(t, x[0], x[1]))
OP(add_self, mod_add(t, x[0], x[0]))
OP(sub, mod_sub(t, x[0], x[1]))
OP(mul, mod_mul(t, x[0], x[1]))
OP(mul_self, mod_mul(t, x[0], x[0]))
OP(bias, mod_bias(t, x[0], x[1]))
OP(scale, mod_scale(t, x[0], -1.7))
OP(exp, mod_exp(t, x[0]))
OP(log, mod_log(t, x[0]))
OP(gelu, mod_gelu(t, x[0]))
OP(silu, mod_silu(t, x[0]))
OP(relu, mod_relu(t, x[0]))
OP(sigmoid, mod_sigmoid(t, x[0]))
OP(tanh, mod_tanh(t, x[0]))
OP(softmax, mod_softmax(t, x[0]))
OP(rmsnorm, mod_rmsnorm(t, x[0], NULL, 1e-5))
OP(rmsnorm_gain, mod_rmsnorm(t, x[0], x[1], 0.1))
OP(layernorm, mod_layernorm(t, x[0], NULL, NULL, 1e-5))
OP(layernorm_gain, mod_layernorm(t, x[0], x[1], NULL, 0.1))
OP(layernorm_bias, mod_layernorm(t, x[0], NULL, x[1], 1e-5))
OP(layernorm_both, mod_layernorm(t, x[0], x[1], x[2], 1e-5))
OP(embedding, mod_embedding(t, x[0], ids, 6))
OP(rope_table, mod_mul(t, x[0], mod_rope_table(t, 0, 5, 4, 100)))
OP(rope, mod_rope(t, x[0], full(t, 2, 4), mod_rope_table(t, 0, 4, 4, 10000)))
OP(rope_kept, mod_rope(t, of(t, x[0], above(t)), above(t), mod_rope_table(t, 0, 9, 2, 10)))
OP(attention, attend(t, x, 0, 0, 2, 1, MOD_MASK_CAUSAL))
OP(attention_heads, attend(t, x, 0, 0, 2, 2, MOD_MASK_CAUSAL))
OP(attention_full, attend(t, x, 0, 0, 4, 2, MOD_MASK_FULL))
OP(attention_q, attend(t, x, 1, 0, 2, 1, MOD_MASK_CAUSAL))
OP(attention_kv, attend(t, x, 0, 1, 2, 1, MOD_MASK_CAUSAL))
OP(attention_kv_full, attend(t, x, 0, 1, 2, 2, MOD_MASK_FULL))
OP(attention_kept, attend(t, x, 1, 1, 3, 1, MOD_MASK_CAUSAL))
OP(attention_self, attend_full(t, x[0], x[0], x[0], 2, 4, 2, 2, MOD_MASK_CAUSAL))
OP(attention_long, attend_full(t, x[0], x[1], x[2], 1, 41, 2, 1, MOD_MASK_CAUSAL))
OP(attention_long_full, attend_full(t, x[0], x[1], x[2], 1, 37, 2, 1, MOD_MASK_FULL))
OP(gather, mod_gather(t, x[0], best_of_12(t)))
OP(gather_best, of(t, x[0], best(t)))
OP(gather_above, of(t, x[0], above(t)))
OP(gather_all, mod_gather(t, x[0], full(t, 3, 2)))
OP(scatter, mod_scatter_add(t, x[0], x[1], NULL, best_of_12(t)))
OP(scatter_best, mod_scatter_add(t, of_all(t, x[0]), of(t, x[1], best(t)), NULL, best(t)))
OP(scatter_weight, mod_scatter_add(t, of_all(t, x[0]), of(t, x[1], above(t)), of(t, x[2], above(t)), above(t)))
OP(scatter_all, mod_scatter_add(t, x[0], x[1], x[2], full(t, 3, 2)))
OP(routed, routed(t, x[0], x[1], x[2]))
OP(gate_raw, mod_gate(t, x[0], MOD_GATE_RAW, 0.2))
OP(gate_sigmoid, mod_gate(t, x[0], MOD_GATE_SIGMOID, 0.2))
OP(gate_tanh, mod_gate(t, x[0], MOD_GATE_TANH, 0.7))
OP(gate_one, mod_mul(t, x[0], mod_gate(t, x[1], MOD_GATE_ONE, 0.2)))
OP(stop_grad, mod_mul(t, x[0], mod_stop_grad(t, x[1])))
OP(dropout, mod_dropout(t, x[0], full(t, 3, 4), 0.3, 5, 6, 7))
OP(dropout_off, mod_dropout(t, x[0], full(t, 3, 4), 0, 5, 6, 7))
OP(dropout_all, mod_dropout(t, of_all(t, x[0]), all(t), 0.5, 5, 6, 7))
OP(dropout_above, mod_dropout(t, of(t, x[0], above(t)), above(t), 0.5, 5, 6, 7))
OP(logsumexp, mod_logsumexp(t, x[0]))
OP(logsumexp_above, mod_logsumexp(t, of(t, x[0], above(t))))
OP(pool_mean, mod_pool(t, x[0], full(t, 3, 4), MOD_POOL_MEAN))
OP(pool_last, mod_pool(t, x[0], full(t, 3, 4), MOD_POOL_LAST))
OP(pool_mean_all, mod_pool(t, of_all(t, x[0]), all(t), MOD_POOL_MEAN))
OP(pool_last_all, mod_pool(t, of_all(t, x[0]), all(t), MOD_POOL_LAST))
OP(pool_mean_above, mod_pool(t, of(t, x[0], above(t)), above(t), MOD_POOL_MEAN))
OP(pool_last_above, mod_pool(t, of(t, x[0], above(t)), above(t), MOD_POOL_LAST))
OP(others, others_too(t, x[0], x[1]))
OP(experts, experts_of(t, x[0], x[1], x[2]))
OP(sum, mod_sum(t, x[0]))
OP(mean, mod_mean(t, x[0]))
OP(cross_entropy, mod_cross_entropy(t, x[0], targets, 0))
OP(cross_entropy_count, mod_cross_entropy(t, x[0], targets, 7.5))
OP(bce, mod_bce_logits(t, x[0], truths, 0))
OP(bce_count, mod_bce_logits(t, x[0], truths, 2.5))
OP(reshape, mod_mul(t, reshape(t, x[0], 2, 4, 3, 0), x[1]))
OP(reshape_3, mod_softmax(t, reshape(t, x[0], 3, 2, 3, 2)))
OP(transpose, mod_transpose(t, x[0], 0, 1))
OP(transpose_far, mod_transpose(t, x[0], 0, 2))
OP(transpose_4, mod_transpose(t, x[0], 3, 1))
OP(slice, mod_slice(t, x[0], 0, 1, 2))
OP(slice_last, mod_slice(t, x[0], 1, 2, 3))
OP(slice_middle, mod_slice(t, x[0], 1, 0, 2))
OP(concat, mod_concat(t, x[0], x[1], 0))
OP(concat_last, mod_concat(t, x[0], x[1], 1))
OP(concat_middle, mod_concat(t, x[0], x[1], 1))
OP(concat_self, mod_concat(t, x[0], x[0], 1))
OP(custom, outside(t, x[0], x[1]))

typedef enum draw { NORMAL, POSITIVE, OFF_ZERO } draw;

typedef struct op_case {
   const char *name;   /* the function, without mod_ */
   const char *shapes; /* of the inputs */
   mod_tensor *(*build)(mod_tape *t, mod_tensor **x);
   draw how;  /* inputs are drawn */
   int stopped; /* bit i: the gradient of input i must be exactly 0 */
} op_case;

static const op_case cases[] = {
   {"leaf", "3x4", op_leaf, NORMAL, 0},
   {"matmul", "3x4 4x5", op_matmul, NORMAL, 0},
   {"matmul", "2x3x4 4x5", op_matmul, NORMAL, 0},
   {"matmul", "19x21 21x18", op_matmul, NORMAL, 0},
   {"matmul", "4x4", op_matmul_self, NORMAL, 0},
   {"matmul_nt", "3x4 5x4", op_matmul_nt, NORMAL, 0},
   {"matmul_nt", "18x5 17x5", op_matmul_nt, NORMAL, 0},
   {"matmul_nt", "3x4", op_matmul_nt_self, NORMAL, 0},
   {"matmul_tn", "4x3 4x5", op_matmul_tn, NORMAL, 0},
   {"matmul_tn", "5x18 5x17", op_matmul_tn, NORMAL, 0},
   {"matmul_tn", "3x4", op_matmul_tn_self, NORMAL, 0},
   {"add", "3x4 3x4", op_add, NORMAL, 0},
   {"add", "3x4 4", op_add, NORMAL, 0},
   {"add", "3x4 1x4", op_add, NORMAL, 0},
   {"add", "3x4 3x1", op_add, NORMAL, 0},
   {"add", "2x3x4 6x1", op_add, NORMAL, 0},
   {"add", "3x4", op_add_self, NORMAL, 0},
   {"sub", "3x4 3x4", op_sub, NORMAL, 0},
   {"sub", "3x4 4", op_sub, NORMAL, 0},
   {"sub", "3x4 1x4", op_sub, NORMAL, 0},
   {"sub", "3x4 3x1", op_sub, NORMAL, 0},
   {"mul", "3x4 3x4", op_mul, NORMAL, 0},
   {"mul", "3x4 4", op_mul, NORMAL, 0},
   {"mul", "2x3x4 1x4", op_mul, NORMAL, 0},
   {"mul", "3x4 3x1", op_mul, NORMAL, 0},
   {"mul", "4x1 4x1", op_mul, NORMAL, 0},
   {"mul", "3x4", op_mul_self, NORMAL, 0},
   {"bias", "3x4 4", op_bias, NORMAL, 0},
   {"bias", "2x3x4 4", op_bias, NORMAL, 0},
   {"scale", "3x4", op_scale, NORMAL, 0},
   {"exp", "3x4", op_exp, NORMAL, 0},
   {"log", "3x4", op_log, POSITIVE, 0},
   {"gelu", "5x8", op_gelu, NORMAL, 0},
   {"silu", "5x8", op_silu, NORMAL, 0},
   {"relu", "5x8", op_relu, OFF_ZERO, 0},
   {"sigmoid", "5x8", op_sigmoid, NORMAL, 0},
   {"tanh", "5x8", op_tanh, NORMAL, 0},
   {"softmax", "3x5", op_softmax, NORMAL, 0},
   {"softmax", "2x2x19", op_softmax, NORMAL, 0},
   {"rmsnorm", "3x5", op_rmsnorm, NORMAL, 0},
   {"rmsnorm", "2x3x19 19", op_rmsnorm_gain, NORMAL, 0},
   {"layernorm", "3x5", op_layernorm, NORMAL, 0},
   {"layernorm", "3x19 19", op_layernorm_gain, NORMAL, 0},
   {"layernorm", "3x5 5", op_layernorm_bias, NORMAL, 0},
   {"layernorm", "2x3x5 5 5", op_layernorm_both, NORMAL, 0},
   {"embedding", "5x3", op_embedding, NORMAL, 0},
   {"rope_table", "5x4", op_rope_table, NORMAL, 0},
   {"rope", "8x8", op_rope, NORMAL, 0},
   {"rope", "12x6", op_rope_kept, NORMAL, 0},
   {"attention", "12x6 12x3 12x3", op_attention, NORMAL, 0},
   {"attention", "12x6 12x6 12x6", op_attention_heads, NORMAL, 0},
   {"attention", "12x8 12x4 12x4", op_attention_full, NORMAL, 0},
   {"attention", "12x4 12x2 12x2", op_attention_q, NORMAL, 0},
   {"attention", "12x4 12x2 12x2", op_attention_kv, NORMAL, 0},
   {"attention", "12x4 12x4 12x4", op_attention_kv_full, NORMAL, 0},
   {"attention", "12x6 12x2 12x2", op_attention_kept, NORMAL, 0},
   {"attention", "8x4", op_attention_self, NORMAL, 0},
   {"attention", "41x4 41x2 41x2", op_attention_long, NORMAL, 0},
   {"attention", "37x4 37x2 37x2", op_attention_long_full, NORMAL, 0},
   {"gather", "12x3", op_gather, NORMAL, 0},
   {"gather", "12x3", op_gather_best, NORMAL, 0},
   {"gather", "12x3", op_gather_above, NORMAL, 0},
   {"gather", "6x3", op_gather_all, NORMAL, 0},
   {"scatter_add", "12x3 6x3", op_scatter, NORMAL, 0},
   {"scatter_add", "12x3 12x3", op_scatter_best, NORMAL, 0},
   {"scatter_add", "12x3 12x3 12x1", op_scatter_weight, NORMAL, 0},
   {"scatter_add", "6x3 6x3 6x1", op_scatter_all, NORMAL, 0},
   {"scatter_add", "12x3 3x3 12x1", op_routed, NORMAL, 0},
   {"gate", "5x1", op_gate_raw, NORMAL, 0},
   {"gate", "5x1", op_gate_sigmoid, NORMAL, 0},
   {"gate", "5x1", op_gate_tanh, NORMAL, 0},
   {"gate", "5x3 5x1", op_gate_one, NORMAL, 2},
   {"stop_grad", "3x4 3x4", op_stop_grad, NORMAL, 2},
   {"dropout", "12x3", op_dropout, NORMAL, 0},
   {"dropout", "12x3", op_dropout_off, NORMAL, 0},
   {"dropout", "12x3", op_dropout_all, NORMAL, 0},
   {"dropout", "12x3", op_dropout_above, NORMAL, 0},
   {"logsumexp", "3x5", op_logsumexp, NORMAL, 0},
   {"logsumexp", "2x2x19", op_logsumexp, NORMAL, 0},
   {"logsumexp", "5x1", op_logsumexp, NORMAL, 0},
   {"logsumexp", "12x3", op_logsumexp_above, NORMAL, 0},
   {"pool", "12x3", op_pool_mean, NORMAL, 0},
   {"pool", "12x3", op_pool_last, NORMAL, 0},
   {"pool", "12x3", op_pool_mean_all, NORMAL, 0},
   {"pool", "12x3", op_pool_last_all, NORMAL, 0},
   {"pool", "12x3", op_pool_mean_above, NORMAL, 0},
   {"pool", "12x3", op_pool_last_above, NORMAL, 0},
   {"scatter_add", "12x3 12x3", op_others, NORMAL, 0},
   {"scatter_add", "12x3 3x3 12x3", op_experts, NORMAL, 0},
   {"sum", "3x4", op_sum, NORMAL, 0},
   {"mean", "2x3x4", op_mean, NORMAL, 0},
   {"cross_entropy", "5x4", op_cross_entropy, NORMAL, 0},
   {"cross_entropy", "5x19", op_cross_entropy_count, NORMAL, 0},
   {"bce_logits", "6x1", op_bce, NORMAL, 0},
   {"bce_logits", "6x1", op_bce_count, NORMAL, 0},
   {"reshape", "3x4 4x3", op_reshape, NORMAL, 0},
   {"reshape", "3x4", op_reshape_3, NORMAL, 0},
   {"transpose", "3x4", op_transpose, NORMAL, 0},
   {"transpose", "2x3x4", op_transpose_far, NORMAL, 0},
   {"transpose", "2x3x2x5", op_transpose_4, NORMAL, 0},
   {"slice", "4x3", op_slice, NORMAL, 0},
   {"slice", "3x6", op_slice_last, NORMAL, 0},
   {"slice", "2x3x2", op_slice_middle, NORMAL, 0},
   {"concat", "2x3 4x3", op_concat, NORMAL, 0},
   {"concat", "3x2 3x4", op_concat_last, NORMAL, 0},
   {"concat", "2x1x3 2x4x3", op_concat_middle, NORMAL, 0},
   {"concat", "3x4", op_concat_self, NORMAL, 0},
   {"custom", "3x4 3x4", op_custom, NORMAL, 0},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

typedef struct input {
   int n_dim, dim[4], count;
   double data[MAX_COUNT], grad[MAX_COUNT], plain[MAX_COUNT]; /* plain: the gradient as first found */
} input;

/* How a gradient is asked for. */
typedef enum way {
   DIRECT, /* the inputs are leaves */
   SHARED  /* the inputs are intermediate results that other ops read too, before and after the op under test */
} way;

/* The scalar: <functional, output>, a random linear functional, so that every output counts. A custom op, because a
   constant leaf does not go with rows whose number depends on the data. */
static double functional[MAX_COUNT];
static void weigh_forward(mod_tape *t, mod_tensor *out)
{
   (void)t;
   out->data[0] = 0;
   for (size_t i = 0; i < count_of(out->in[0]); ++i) out->data[0] += functional[i] * out->in[0]->data[i];
}
static void weigh_backward(mod_tape *t, mod_tensor *out)
{
   (void)t;
   for (size_t i = 0; i < count_of(out->in[0]); ++i) out->in[0]->grad[i] += functional[i] * out->grad[0];
}
static mod_tensor *weigh(mod_tape *t, mod_tensor *y)
{
   mod_custom_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.n_in = 1;
   desc.in[0] = y;
   desc.n_dim = 1;
   desc.dim[0] = 1;
   desc.forward = weigh_forward;
   desc.backward = weigh_backward;
   return mod_custom(t, &desc);
}

/* Value of the case; with `mask` the gradients of the inputs in it are added to input.grad, others are constants. */
static double run_case(const op_case *c, mod_tape *tape, input *in, int n_in, int mask, way w)
{
   mod_tensor *x[MAX_IN] = {NULL, NULL, NULL}, *early = NULL, *out, *loss;
   mod_error err;
   double value = NAN;

   mod_tape_reset(tape);
   for (int i = 0; i < n_in; ++i) {
      int wanted = mask >> i & 1;
      x[i] = mod_leaf(tape, in[i].data, wanted ? in[i].grad : NULL, in[i].n_dim, in[i].dim);
      if (w == SHARED && wanted) {
         x[i] = mod_scale(tape, x[i], 1);
         mod_tensor *s = mod_scale(tape, mod_sum(tape, x[i]), 0.75);
         early = early ? mod_add(tape, early, s) : s;
      }
   }
   out = c->build(tape, x);
   if (out && count_of(out) <= MAX_COUNT) {
      loss = weigh(tape, out);
      if (early) loss = mod_add(tape, loss, early);
      for (int i = 0; w == SHARED && i < n_in; ++i)
         if (mask >> i & 1) loss = mod_add(tape, loss, mod_scale(tape, mod_sum(tape, x[i]), 0.5));
      if (loss) value = loss->data[0];
      if (loss && mask) mod_tape_backward(tape, loss, &err);
   }
   mod_tape_status(tape, &err);
   if (err.code != MOD_RESULT_OK) CHECKF(0, "%s %s: %s", c->name, c->shapes, err.message);
   return err.code == MOD_RESULT_OK ? value : NAN;
}

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

static double drawn(draw how)
{
   double x = test_normal();
   return how == POSITIVE ? 0.5 + fabs(x) : how == OFF_ZERO ? (x < 0 ? x - 0.1 : x + 0.1) : x;
}

static int check_case(const op_case *c, mod_tape *tape)
{
   static input in[MAX_IN];
   int n_in = parse_shapes(c->shapes, in), every = (1 << n_in) - 1, checked = 0;

   for (int i = 0; i < n_in; ++i) {
      if (!HOLDS(in[i].count <= MAX_COUNT, c->shapes)) return 0;
      for (int j = 0; j < in[i].count; ++j) in[i].data[j] = drawn(c->how), in[i].grad[j] = 0;
   }
   for (int j = 0; j < MAX_COUNT; ++j) functional[j] = test_normal();

   double value = run_case(c, tape, in, n_in, every, DIRECT);
   if (!HOLDS(value == value, c->name)) return 0;
   for (int i = 0; i < n_in; ++i) {
      double largest = 0, worst = 0;
      memcpy(in[i].plain, in[i].grad, sizeof in[i].plain);
      for (int j = 0; j < in[i].count; ++j) largest = fmax(largest, fabs(in[i].plain[j]));
      if (c->stopped >> i & 1) {
         CHECKF(largest == 0, "%s %s: input %d has a gradient", c->name, c->shapes, i);
         continue;
      }
      CHECKF(largest > 1e-3, "%s %s: input %d has no gradient", c->name, c->shapes, i);
      for (int j = 0; j < in[i].count; ++j, ++checked) {
         double at = in[i].data[j], f[4];
         for (int k = 0; k < 4; ++k) {
            in[i].data[j] = at + offset[k] * step;
            f[k] = run_case(c, tape, in, n_in, 0, DIRECT);
         }
         in[i].data[j] = at;
         double off = fabs(in[i].plain[j] - difference(f));
         worst = off <= worst ? worst : off; /* keeps NaN */
      }
      CHECKF(worst <= bar * largest, "%s %s: input %d is off by %g of %g", c->name, c->shapes, i, worst, largest);
   }

   /* Any subset of the inputs may be constants, gradients are added to what is there, and every reader counts. */
   for (int w = DIRECT; w <= SHARED; ++w)
      for (int mask = 1; mask <= every; ++mask) {
         if ((mask & ~c->stopped) == 0 && w == DIRECT) continue; /* nothing to differentiate */
         for (int i = 0; i < n_in; ++i)
            for (int j = 0; j < in[i].count; ++j) in[i].grad[j] = -3;
         run_case(c, tape, in, n_in, mask, (way)w);
         for (int i = 0; i < n_in; ++i) {
            double worst = 0, largest = 1;
            for (int j = 0; j < in[i].count; ++j) {
               double want = mask >> i & 1 ? -3 + in[i].plain[j] + (w == SHARED ? 1.25 : 0) : -3;
               double off = fabs(in[i].grad[j] - want);
               largest = fmax(largest, fabs(in[i].plain[j]));
               worst = off <= worst ? worst : off;
            }
            CHECKF(worst <= 1e-12 * largest, "%s %s: input %d of subset %d, way %d: off by %g", c->name, c->shapes, i,
                   mask, w, worst);
         }
      }
   return checked;
}

/* mod.h beside this file's folder, or where the program was started. */
static char *read_header(void)
{
   char beside[1024];
   const char *from = __FILE__, *slash = strrchr(from, '/'), *paths[3];
   snprintf(beside, sizeof beside, "%.*s../mod.h", slash ? (int)(slash + 1 - from) : 0, from);
   paths[0] = beside;
   paths[1] = "mod.h";
   paths[2] = "../mod.h";
   for (int i = 0; i < 3; ++i) {
      FILE *f = fopen(paths[i], "rb");
      if (!f) continue;
      size_t size = 1 << 20;
      char *text = (char *)malloc(size + 1);
      if (text) text[fread(text, 1, size, f)] = 0;
      fclose(f);
      return text;
   }
   return NULL;
}

/* Every op that mod.h declares has a row, and every row is an op that mod.h declares. */
static void check_coverage(void)
{
   static const char mark[] = "MODDEF mod_tensor *mod_";
   char *text = read_header(), *from = text ? strstr(text, "\n   >>api-ops  ") : NULL;
   char *to = from ? strstr(from, "\n   >>api-model  ") : NULL;
   int n_ops = 0, seen[N_CASES] = {0};

   if (HOLDS(from && to, "mod.h and its section >>api-ops")) {
      *to = 0;
      for (char *s = from; (s = strstr(s, mark)) != NULL;) {
         s += sizeof mark - 1;
         size_t length = strcspn(s, "(");
         int rows = 0;
         for (int i = 0; i < N_CASES; ++i)
            if (strlen(cases[i].name) == length && !memcmp(cases[i].name, s, length)) seen[i] = 1, ++rows;
         CHECKF(rows > 0, "no gradient test for mod_%.*s", (int)length, s);
         ++n_ops;
      }
      CHECKF(n_ops >= 35, "found %d ops", n_ops);
      for (int i = 0; i < N_CASES; ++i) CHECKF(seen[i], "mod.h declares no mod_%s", cases[i].name);
   }
   free(text);
}

static void check_ops(void)
{
   mod_error err;
   mod_tape *tape = mod_tape_create(NULL, TAPE_BYTES, NULL, &err);
   int checked = 0, expected = 0;
   if (!HOLDS(tape != NULL, err.message)) return;
   for (int i = 0; i < N_CASES; ++i) {
      input in[MAX_IN];
      int n_in = parse_shapes(cases[i].shapes, in);
      for (int j = 0; j < n_in; ++j)
         if (!(cases[i].stopped >> j & 1)) expected += in[j].count;
      checked += check_case(cases + i, tape);
   }
   CHECKF(checked == expected && checked > 3000, "%d of %d elements were checked", checked, expected);
   mod_tape_destroy(tape);
}

/* -----------------------------------------------------------------------------------------------------------------
   Models
   ----------------------------------------------------------------------------------------------------------------- */

enum { VOCAB = 11, SEQS = 2, LENGTH = 8, D = 8, D_FF = 12, MAX_ROWS = SEQS * LENGTH, MAX_LAYERS = 3 };

enum { N_IN = 3, N_OUT = 4, MAX_COLUMNS = 8 };

typedef struct model_case {
   const char *name;
   mod_config cfg;
   int mode; /* mod_mode */
   double dropout;
} model_case;

static const model_case models[] = {
   {"gate raw", {.gate = MOD_GATE_RAW, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"gate sigmoid", {.gate = MOD_GATE_SIGMOID, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"gate tanh", {.gate = MOD_GATE_TANH, .gate_scale = 0.7, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"gate one", {.gate = MOD_GATE_ONE, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"layernorm, biases", {.norm = MOD_NORM_LAYER, .bias = MOD_BIAS_ON, .causal = MOD_CAUSAL_ROUTER}, MOD_MODE_TOPK, 0},
   {"learned positions, swiglu",
    {.position = MOD_POSITION_LEARNED, .activation = MOD_ACTIVATION_SWIGLU},
    MOD_MODE_TOPK, 0},
   {"relu, biases, untied",
    {.activation = MOD_ACTIVATION_RELU, .bias = MOD_BIAS_ON, .head = MOD_HEAD_UNTIED, .gate = MOD_GATE_SIGMOID},
    MOD_MODE_TOPK, 0},
   {"stochastic, untied", {.select = MOD_SELECT_STOCHASTIC, .head = MOD_HEAD_UNTIED}, MOD_MODE_TOPK, 0},
   {"all blocks routed", {.route_first = 1, .route_every = 1, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"causal by the predictor", {.causal = MOD_CAUSAL_BOTH}, MOD_MODE_CAUSAL, 0},
   {"causal by the router", {.causal = MOD_CAUSAL_ROUTER, .gate = MOD_GATE_SIGMOID}, MOD_MODE_CAUSAL, 0},
   {"token-choice", {.select = MOD_SELECT_TOKEN}, MOD_MODE_TOPK, 0},
   {"token-choice, causal", {.select = MOD_SELECT_TOKEN}, MOD_MODE_CAUSAL, 0},
   {"every second", {.select = MOD_SELECT_EVERY}, MOD_MODE_TOPK, 0},
   {"the first", {.select = MOD_SELECT_FIRST}, MOD_MODE_CAUSAL, 0},
   {"gated bypass", {.gate = MOD_GATE_TANH, .gate_scale = 0.7, .bypass = MOD_BYPASS_GATED}, MOD_MODE_TOPK, 0},
   {"gated bypass, causal",
    {.gate = MOD_GATE_TANH, .gate_scale = 0.7, .bypass = MOD_BYPASS_GATED, .causal = MOD_CAUSAL_ROUTER},
    MOD_MODE_CAUSAL, 0},
   {"memory", {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"memory, raw, causal",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_RAW}, MOD_MODE_CAUSAL, 0},
   {"memory, tanh, untrained",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_TANH, .causal = MOD_CAUSAL_NONE},
    MOD_MODE_TOPK, 0},
   {"memory, one",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_ONE, .causal = MOD_CAUSAL_ROUTER},
     MOD_MODE_TOPK, 0},
   {"two routers", {.kv_select = MOD_SELECT_LEARNED, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"two routers, causal", {.kv_select = MOD_SELECT_LEARNED}, MOD_MODE_CAUSAL, 0},
   {"all keys", {.kv_select = MOD_SELECT_ALL}, MOD_MODE_TOPK, 0},
   {"every second key, biases", {.kv_select = MOD_SELECT_EVERY, .bias = MOD_BIAS_ON}, MOD_MODE_TOPK, 0},
   {"the first keys", {.kv_select = MOD_SELECT_FIRST}, MOD_MODE_CAUSAL, 0},
   {"random keys", {.select = MOD_SELECT_TOKEN, .kv_select = MOD_SELECT_STOCHASTIC}, MOD_MODE_TOPK, 0},
   {"MoE top-1", {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 2}, MOD_MODE_TOPK, 0},
   {"MoE top-2, causal",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 3, .choices = 2, .activation = MOD_ACTIVATION_SWIGLU},
    MOD_MODE_CAUSAL, 0},
   {"MoE top-2, biases",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 3, .choices = 2, .capacity_factor = 0.6,
     .bias = MOD_BIAS_ON},
    MOD_MODE_TOPK, 0},
   {"MoE by the experts",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 2, .choice = MOD_CHOICE_EXPERT,
     .causal = MOD_CAUSAL_BOTH},
    MOD_MODE_TOPK, 0},
   {"MoE by the experts, causal",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 2, .choice = MOD_CHOICE_EXPERT}, MOD_MODE_CAUSAL, 0},
   {"staged", {.mlp = MOD_MLP_MOE, .n_experts = 2, .causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0},
   {"staged, by the tokens", {.mlp = MOD_MLP_MOE, .n_experts = 2, .choice = MOD_CHOICE_TOKEN}, MOD_MODE_TOPK, 0},
   {"staged, causal",
    {.mlp = MOD_MLP_MOE, .n_experts = 2, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_ROUTER}, MOD_MODE_CAUSAL, 0},
   {"integrated", {.mlp = MOD_MLP_MODE, .n_experts = 2}, MOD_MODE_TOPK, 0},
   {"integrated, by the experts",
    {.mlp = MOD_MLP_MODE, .n_experts = 2, .n_noops = 1, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_BOTH},
    MOD_MODE_TOPK, 0},
   {"dropout", {.causal = MOD_CAUSAL_BOTH}, MOD_MODE_TOPK, 0.3},
   {"dropout, experts",
    {.mlp = MOD_MLP_MOE, .n_experts = 2, .choice = MOD_CHOICE_TOKEN, .head = MOD_HEAD_UNTIED}, MOD_MODE_TOPK, 0.2},
   {"rows in", {.n_inputs = N_IN, .head = MOD_HEAD_UNTIED, .bias = MOD_BIAS_ON}, MOD_MODE_TOPK, 0},
   {"rows in, class out",
    {.route_first = 1, .n_inputs = N_IN, .head = MOD_HEAD_CLASS, .n_outputs = N_OUT}, MOD_MODE_CAUSAL, 0},
   {"numbers out",
    {.route_first = 1, .head = MOD_HEAD_REGRESSION, .n_outputs = N_OUT, .bias = MOD_BIAS_ON}, MOD_MODE_TOPK, 0},
   {"encoder, class out",
    {.mask = MOD_MASK_FULL, .head = MOD_HEAD_CLASS, .n_outputs = N_OUT, .kv_select = MOD_SELECT_LEARNED},
     MOD_MODE_TOPK, 0},
   {"encoder, experts",
    {.mask = MOD_MASK_FULL, .mlp = MOD_MLP_MOE, .n_experts = 2, .head = MOD_HEAD_REGRESSION, .n_outputs = N_OUT,
     .n_inputs = N_IN},
    MOD_MODE_TOPK, 0},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static mod_config model_config(mod_config cfg)
{
   cfg.vocab_size = cfg.n_inputs && cfg.head >= MOD_HEAD_CLASS ? 0 : VOCAB;
   cfg.context = LENGTH;
   cfg.n_layers = 2;
   cfg.d_model = D;
   cfg.n_heads = 2;
   cfg.n_kv_heads = 1;
   cfg.d_ff = D_FF;
   cfg.capacity = 0.5; /* 4 rows of 8, 2 of 5 */
   cfg.router_loss = 0.5;
   cfg.predictor_loss = 0.7;
   cfg.balance_loss = 0.4;
   cfg.z_loss = 0.3;
   return mod_config_resolve(&cfg);
}

/* What a forward pass decided, as seen by the probe. Two passes that decide the same lie on one smooth piece. */
typedef struct watch {
   const mod_model *model;
   mod_config cfg;
   int mode;
   uint64_t decisions;      /* hash of all rows kept and paths chosen, and of which hidden units a ReLU lets pass */
   double margin, relu;     /* smallest distance of a score from changing a decision; smallest |input| of a ReLU */
   int n_kept[MAX_LAYERS];
   int lopsided;            /* some learned path has none, or all, of the rows */
   double x[MAX_ROWS * D], decider[3][MAX_ROWS * MAX_COLUMNS]; /* of the block, of keys, of experts */
   int columns[3], expert;
   int kept[MAX_ROWS];
} watch;

static const double *param_data(const mod_model *model, int block, const char *name)
{
   char full_name[64];
   mod_param p;
   mod_error err;
   snprintf(full_name, sizeof full_name, "blocks.%d.%s", block, name);
   int i = mod_model_find(model, full_name);
   if (mod_model_param(model, i, &p, &err) != MOD_RESULT_OK) {
      printf("FAILED: no parameter %s: %s\n", full_name, err.message);
      exit(1);
   }
   return p.data;
}

static void remember(watch *w, int number)
{
   w->decisions = (w->decisions ^ (uint64_t)(unsigned)number) * 1099511628211ull;
}

/* The inputs of a ReLU MLP on row x + h: norm, then W1 and its bias. */
static void watch_relu(watch *w, int block, const double *x, const double *h)
{
   const double *gain = param_data(w->model, block, "norm2.gain"), *w1 = param_data(w->model, block, "mlp.w1");
   const double *b1 = param_data(w->model, block, "mlp.b1");
   double u[D], mean_square = 0;
   for (int i = 0; i < D; ++i) {
      u[i] = x[i] + h[i];
      mean_square += u[i] * u[i] / D;
   }
   for (int j = 0; j < D_FF; ++j) {
      double s = b1[j];
      for (int i = 0; i < D; ++i) s += u[i] / sqrt(mean_square + w->cfg.norm_eps) * gain[i] * w1[i * D_FF + j];
      remember(w, s > 0);
      w->relu = fmin(w->relu, fabs(s));
   }
}

/* Column j of router `which` has taken `kept`. In causal mode it decides by its logit, against 0. */
static void watch_path(watch *w, int which, int j, const mod_rows *kept, int causal)
{
   const mod_rows *rows = kept->parent;
   const double *logit = w->decider[which] + j;
   int in[MAX_ROWS] = {0}, columns = w->columns[which];
   for (int i = 0; i < kept->n; ++i) in[kept->index[i]] = 1;
   w->lopsided |= kept->n == 0 || kept->n == rows->n;
   for (int s = 0; s < rows->n_seqs; ++s) {
      double low = HUGE_VAL, high = -HUGE_VAL;
      for (int i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         if (causal) w->margin = fmin(w->margin, fabs(logit[i * columns]));
         else if (in[i]) low = fmin(low, logit[i * columns]);
         else high = fmax(high, logit[i * columns]);
      }
      w->margin = fmin(w->margin, low - high);
   }
}

/* Each row chooses its best columns, the best first. */
static void watch_choice(watch *w, int which, int n, int choices)
{
   for (int i = 0; i < n; ++i) {
      int columns = w->columns[which], chosen[MAX_COLUMNS] = {0};
      const double *z = w->decider[which] + i * columns;
      double last = 0;
      for (int c = 0; c <= choices && c < columns; ++c) {
         int best = -1;
         for (int e = 0; e < columns; ++e)
            if (!chosen[e] && (best < 0 || z[e] > z[best])) best = e;
         if (c) w->margin = fmin(w->margin, last - z[best]);
         if (c < choices) remember(w, best);
         last = z[best];
         chosen[best] = 1;
      }
   }
}

static void probe(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   watch *w = (watch *)user;
   mod_block_config b = mod_config_block(&w->cfg, block);
   int causal = w->mode == MOD_MODE_CAUSAL, which = -1;

   if (site == MOD_SITE_SCORE || (causal && site == MOD_SITE_PREDICTOR)) which = 0;
   if (site == MOD_SITE_KV_SCORE || (causal && site == MOD_SITE_KV_PREDICTOR)) which = 1;
   if (site == MOD_SITE_EXPERT_SCORE || (causal && site == MOD_SITE_EXPERT_PREDICTOR)) which = 2;
   if (which >= 0) {
      memcpy(w->decider[which], x->data, count_of(x) * sizeof(double));
      w->columns[which] = x->dim[1];
      w->expert = 0;
   }
   if (site == MOD_SITE_INPUT) memcpy(w->x, x->data, count_of(x) * sizeof(double));
   if (site == MOD_SITE_KEPT) {
      w->n_kept[block] = rows->n;
      for (int i = 0; i < rows->n; ++i) w->kept[i] = rows->index ? rows->index[i] : i;
   }
   if (site == MOD_SITE_KEPT || site == MOD_SITE_KV_KEPT || site == MOD_SITE_EXPERT_KEPT) {
      for (int i = 0; i < rows->n; ++i) remember(w, rows->index ? rows->index[i] : i);
      remember(w, -1);
   }
   if (site == MOD_SITE_ATTENTION && w->cfg.activation == MOD_ACTIVATION_RELU)
      for (int i = 0; i < rows->n; ++i) watch_relu(w, block, w->x + w->kept[i] * D, x->data + i * D);
   if (site == MOD_SITE_KEPT && b.select == MOD_SELECT_LEARNED) watch_path(w, 0, 0, rows, causal);
   if (site == MOD_SITE_KV_KEPT && b.kv_select == MOD_SELECT_LEARNED) watch_path(w, 1, 0, rows, causal);
   if (site == MOD_SITE_EXPERT_KEPT) {
      if (b.choice == MOD_CHOICE_EXPERT) watch_path(w, 2, w->expert++, rows, causal);
      w->lopsided |= !rows->n;
   }
   if (site == MOD_SITE_SCORE && b.select == MOD_SELECT_TOKEN) watch_choice(w, 0, rows->n, 1);
   if (site == MOD_SITE_EXPERT_SCORE && b.choice == MOD_CHOICE_TOKEN) watch_choice(w, 2, rows->n, w->cfg.choices);
}

/* A model, a batch, a tape with gradients and one without. */
typedef struct world {
   mod_model *model;
   mod_config cfg;
   mod_batch batch;
   mod_tape *train, *eval;
   mod_real *params, *grads;
   size_t n_params;
   watch seen;
   int tokens[MAX_ROWS], targets[MAX_ROWS], lengths[SEQS];
   mod_real inputs[MAX_ROWS * N_IN], values[SEQS * N_OUT];
} world;

static void world_free(world *w)
{
   mod_tape_destroy(w->train);
   mod_tape_destroy(w->eval);
   mod_model_destroy(w->model);
   free(w->grads);
   memset(w, 0, sizeof *w);
}

/* Random weights, w2 of the predictors too; those of norms around 1. */
static void random_weights(world *w)
{
   for (int i = 0; i < mod_model_param_count(w->model); ++i) {
      mod_param p;
      mod_model_param(w->model, i, &p, NULL);
      double centre = strstr(p.name, "gain") ? 1 : 0;
      for (size_t j = 0; j < p.count; ++j) p.data[j] = centre + 0.5 * test_normal();
   }
}

/* All terms of the loss; without the predictor's, which the language model must not feel. */
static double terms(const world *w, const mod_forward *out, int with_predictor)
{
   return out->cross_entropy + w->cfg.router_loss * out->router_bce + w->cfg.balance_loss * out->balance_loss +
          w->cfg.z_loss * out->z_loss + (with_predictor ? w->cfg.predictor_loss * out->predictor_bce : 0);
}

/* The same, of a pass without gradients. */
static double objective(world *w, int with_predictor)
{
   mod_forward out;
   mod_error err;
   w->batch.probe_user = &w->seen;
   w->seen.decisions = 14695981039346656037ull;
   w->seen.margin = w->seen.relu = HUGE_VAL;
   w->seen.lopsided = 0;
   mod_tape_reset(w->eval);
   if (mod_model_forward(w->model, w->eval, NULL, &w->batch, &out, &err) != MOD_RESULT_OK) {
      HOLDS(0, err.message);
      return NAN;
   }
   return terms(w, &out, with_predictor);
}

/* Draws weights until no decision is near its edge. Returns 0 if there are none. */
static int world_make(world *w, const model_case *c)
{
   mod_error err;
   mod_tape_desc forward_only;
   size_t bytes[2];

   memset(w, 0, sizeof *w);
   memset(&forward_only, 0, sizeof forward_only);
   forward_only.forward_only = 1;
   w->cfg = model_config(c->cfg);
   w->batch.n_seqs = SEQS;
   w->batch.length = LENGTH;
   w->batch.tokens = w->cfg.n_inputs ? NULL : w->tokens;
   w->batch.inputs = w->inputs;
   w->batch.targets = w->cfg.head == MOD_HEAD_REGRESSION ? NULL : w->targets;
   w->batch.values = w->values;
   w->batch.dropout = c->dropout;
   w->batch.step = 5;
   w->batch.lengths = w->lengths;
   w->batch.mode = c->mode;
   w->batch.seed = 3;
   w->batch.probe = probe;
   w->lengths[0] = LENGTH;
   w->lengths[1] = 5;
   for (int i = 0; i < MAX_ROWS; ++i) {
      w->tokens[i] = test_below(VOCAB);
      w->targets[i] = i % 6 == 4 ? -1 : test_below(w->cfg.head == MOD_HEAD_CLASS ? N_OUT : VOCAB);
   }
   for (int i = 0; i < MAX_ROWS * N_IN; ++i) w->inputs[i] = test_normal();
   for (int i = 0; i < SEQS * N_OUT; ++i) w->values[i] = test_normal();
   w->model = mod_model_create(&w->cfg, NULL, &err);
   if (!HOLDS(w->model != NULL, err.message)) return 0;
   w->params = mod_model_params(w->model, &w->n_params);
   w->grads = (mod_real *)calloc(w->n_params, sizeof *w->grads);
   if (mod_forward_plan(&w->cfg, &w->batch, NULL, bytes, &err) == MOD_RESULT_OK)
      mod_forward_plan(&w->cfg, &w->batch, &forward_only, bytes + 1, &err);
   if (!HOLDS(err.code == MOD_RESULT_OK, err.message)) return 0;
   w->train = mod_tape_create(NULL, bytes[0] + 65536, NULL, &err); /* room for a loss of the test's own */
   w->eval = mod_tape_create(&forward_only, bytes[1], NULL, &err);
   if (!HOLDS(w->grads && w->train && w->eval, err.message)) return 0;
   w->seen.model = w->model;
   w->seen.cfg = w->cfg;
   w->seen.mode = c->mode;

   for (int tries = 0; tries < 200; ++tries) {
      random_weights(w);
      double f = objective(w, 1);
      if (!(f == f)) return 0;
      int some = !w->seen.lopsided;
      for (int l = 0; l < w->cfg.n_layers; ++l)
         if (mod_config_block(&w->cfg, l).select != MOD_SELECT_ALL)
            some = some && w->seen.n_kept[l] >= 4 && w->seen.n_kept[l] < 10;
      if (some && w->seen.margin > margin_of) return 1;
   }
   return HOLDS(0, "no weights with a margin");
}

/* One pass with gradients into w->grads. kind 0: the model's loss; 1: the cross-entropy of its logits alone. */
static double differentiate(world *w, int alone)
{
   mod_forward out;
   mod_error err;
   mod_batch batch = w->batch;
   watch seen = w->seen;
   int packed[MAX_ROWS], n = 0;
   mod_tensor *loss;

   batch.probe_user = &seen;
   if (alone) batch.targets = NULL;
   memset(w->grads, 0, w->n_params * sizeof *w->grads);
   mod_tape_reset(w->train);
   mod_model_forward(w->model, w->train, w->grads, &batch, &out, &err);
   if (!HOLDS(err.code == MOD_RESULT_OK, err.message)) return NAN;
   loss = out.loss;
   for (int s = 0; s < SEQS; ++s)
      for (int i = 0; i < w->lengths[s]; ++i) packed[n++] = w->targets[s * LENGTH + i];
   if (alone) loss = mod_cross_entropy(w->train, out.logits, packed, 0);
   mod_tape_backward(w->train, loss, &err);
   if (!HOLDS(err.code == MOD_RESULT_OK, err.message)) return NAN;
   return loss->data[0];
}

/* Is this parameter one that the term under test may reach? */
typedef int (*reach)(const mod_param *p);
static int anything(const mod_param *p) { return p != NULL; }
static int predictors(const mod_param *p) { return p->predictor; }
static int language_model(const mod_param *p) { return !p->predictor; }
/* The router of the second block and what stands before it, in a model with an untied head. */
static int up_to_the_router(const mod_param *p)
{
   return !strcmp(p->name, "embed") || !strncmp(p->name, "blocks.0.", 9) || !strcmp(p->name, "blocks.1.router");
}

/* w->grads: within reach as the differences say and (each tensor) not zero, elsewhere exactly zero. */
static void check_grads(world *w, const char *name, reach within)
{
   size_t checked = 0, total = 0;
   double f0 = objective(w, 1);
   uint64_t decisions = w->seen.decisions;
   CHECKF(f0 == f0, "%s", name);

   for (int t = 0; t < mod_model_param_count(w->model); ++t) {
      mod_param p;
      double largest = 0, worst = 0;
      mod_model_param(w->model, t, &p, NULL);
      const mod_real *g = w->grads + p.offset;
      for (size_t i = 0; i < p.count; ++i) largest = fmax(largest, fabs(g[i]));
      if (!within(&p)) {
         CHECKF(largest == 0, "%s: reaches %s", name, p.name);
         continue;
      }
      CHECKF(largest > 1e-6, "%s: does not reach %s", name, p.name);
      for (size_t i = 0; i < p.count; ++i, ++total) {
         double at = p.data[i], f[4];
         int same = 1;
         for (int k = 0; k < 4; ++k) {
            p.data[i] = at + offset[k] * step;
            f[k] = objective(w, p.predictor);
            same = same && w->seen.decisions == decisions;
         }
         p.data[i] = at;
         if (!same) continue;
         double off = fabs(g[i] - difference(f));
         worst = off <= worst ? worst : off;
         ++checked;
      }
      CHECKF(worst <= bar * largest, "%s: %s is off by %g of %g", name, p.name, worst, largest);
   }
   CHECKF(total > 0 && (double)checked >= share_of * (double)total, "%s: only %d of %d parameters were checked", name,
          (int)checked, (int)total);
}

static void check_models(void)
{
   int gates = 0;
   for (int i = 0; i < N_MODELS; ++i) {
      const model_case *c = models + i;
      world w;
      if (world_make(&w, c)) {
         double value = differentiate(&w, 0), want = objective(&w, 1);
         CHECKF(fabs(value - want) <= 1e-12 * fabs(want), "%s: loss %.17g, its parts %.17g", c->name, value, want);
         CHECKF(w.seen.margin > margin_of, "%s", c->name);
         /* In causal mode nothing trains the predictor. */
         check_grads(&w, c->name, c->mode == MOD_MODE_CAUSAL ? language_model : anything);
         gates |= 1 << w.cfg.gate;

         /* Without a gradient buffer there is no loss to differentiate; its value is the same. */
         mod_forward out;
         mod_tape_reset(w.train);
         CHECK(mod_model_forward(w.model, w.train, NULL, &w.batch, &out, NULL) == MOD_RESULT_OK && !out.loss);
         CHECK(fabs(terms(&w, &out, 1) - want) <= 1e-12 * fabs(want));
      }
      world_free(&w);
   }
   CHECK(gates == (1 << MOD_GATE_RAW | 1 << MOD_GATE_SIGMOID | 1 << MOD_GATE_TANH | 1 << MOD_GATE_ONE));
}

/* Each loss alone, against what it may reach. */
static void check_terms(void)
{
   static const model_case by_predictor = {
      "", {.causal = MOD_CAUSAL_PREDICTOR, .head = MOD_HEAD_UNTIED}, MOD_MODE_TOPK, 0};
   static const model_case by_router = {"", {.causal = MOD_CAUSAL_ROUTER, .head = MOD_HEAD_UNTIED}, MOD_MODE_TOPK, 0};
   static const model_case by_both = {"", {.causal = MOD_CAUSAL_BOTH, .head = MOD_HEAD_UNTIED}, MOD_MODE_TOPK, 0};
   world w;

   if (world_make(&w, &by_predictor)) {
      /* With all three in one loss, the language model's gradient is that of the cross-entropy alone, to the bit. */
      mod_real *whole = (mod_real *)malloc(w.n_params * sizeof *whole);
      int differ = 0, n = 0;
      if (HOLDS(whole != NULL, "memory")) {
         differentiate(&w, 0);
         memcpy(whole, w.grads, w.n_params * sizeof *whole);
         differentiate(&w, 1);
         for (int t = 0; t < mod_model_param_count(w.model); ++t) {
            mod_param p;
            mod_model_param(w.model, t, &p, NULL);
            if (p.predictor) continue;
            differ += memcmp(whole + p.offset, w.grads + p.offset, p.count * sizeof *whole) != 0;
            ++n;
         }
         CHECKF(differ == 0 && n > 10, "%d of %d tensors differ", differ, n);
      }
      free(whole);

      check_grads(&w, "cross-entropy alone", language_model);
      for (int i = 0; i < MAX_ROWS; ++i) w.targets[i] = -1;
      differentiate(&w, 0);
      check_grads(&w, "predictor's loss alone", predictors);
   }
   world_free(&w);

   if (world_make(&w, &by_router)) {
      for (int i = 0; i < MAX_ROWS; ++i) w.targets[i] = -1;
      differentiate(&w, 0);
      check_grads(&w, "router's loss alone", up_to_the_router);
   }
   world_free(&w);

   if (world_make(&w, &by_both)) { /* the two auxiliary losses together: the sum of the two reaches */
      for (int i = 0; i < MAX_ROWS; ++i) w.targets[i] = -1;
      differentiate(&w, 0);
      for (int t = 0; t < mod_model_param_count(w.model); ++t) {
         mod_param p;
         double largest = 0;
         mod_model_param(w.model, t, &p, NULL);
         for (size_t i = 0; i < p.count; ++i) largest = fmax(largest, fabs(w.grads[p.offset + i]));
         CHECKF((largest > 0) == (predictors(&p) || up_to_the_router(&p)), "both auxiliary losses: %s", p.name);
      }
   }
   world_free(&w);
}

int main(void)
{
   check_coverage();
   check_ops();
   check_models();
   check_terms();
   return test_end();
}
