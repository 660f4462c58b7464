/* paths.c - different computations, each at its price: a block, an MLP, a memory, nothing

   Raposo et al. 2024, arXiv:2404.02258, in its discussion: tokens might be routed among more kinds of computation
   than 'block' and 'nothing', such as a look-up in a memory. Here every second layer has four paths, and each token
   takes the likeliest one, e, of p = softmax(x W):

      x_i <- x_i + p_ie f_e(x)_i     f: attention and MLP among those who chose it; an MLP; softmax(q K^T) V, with K
                                     and V learned; 0
      loss + PRICE mean(sum_e p_e cost_e) + BALANCE balance(p)

   cost: the FLOPs of a path, in those of a block. Causal as it is: a token chooses by its own row. What later tokens
   attend to in such a layer: the rows that took the block. The memory is that of key-value networks (product keys,
   which make it large: Lample et al. 2019, arXiv:1907.05242). */
#include "variants.h"

enum { BLOCK, MLP, MEMORY, NOTHING, PATHS, SLOTS = 32 };
static const double PRICE = 0.1, BALANCE = 0.02;

static mod_tensor *look_up(net *n, int layer, mod_tensor *x)
{
   mod_tensor *q = linear(n, "question", layer, norm(n, "memory norm", layer, x), n->width, INIT);
   mod_tensor *k = weight(n, "memory keys", layer, SLOTS, n->width, 0, 1 / sqrt(n->width));
   mod_tensor *v = weight(n, "memory values", layer, SLOTS, n->width, 0, INIT);
   return mod_matmul(n->tape, mod_softmax(n->tape, mod_matmul_nt(n->tape, q, k)), v);
}

/* What a row costs on average, as far as the router can tell. */
static mod_tensor *price(net *n, mod_tensor *p)
{
   static mod_real cost[PATHS] = {1};
   int dim[2] = {PATHS, 1};
   double d = n->width, whole = 12 * d * d; /* multiply-adds of a block, but for its attention */
   cost[MLP] = (mod_real)(8 * d * d / whole);
   cost[MEMORY] = (mod_real)((d * d + 2 * SLOTS * d) / whole);
   return mod_mean(n->tape, mod_matmul(n->tape, p, mod_leaf(n->tape, cost, NULL, 2, dim)));
}

static mod_tensor *routed(net *n, int layer, mod_tensor *x)
{
   mod_tape *t = n->tape;
   mod_rows *who[NOTHING] = {NULL};
   mod_tensor *score = linear(n, "router", layer, x, PATHS, INIT), *p = mod_softmax(t, score), *y = x;
   if (!mod_rows_choose(t, n->rows, score, 1, NOTHING, n->length, NULL, NULL, who)) return NULL;
   took(n, layer, who[BLOCK]);
   for (int e = 0; e < NOTHING; ++e) {
      mod_tensor *in = mod_gather(t, x, who[e]), *gate = mod_gather(t, mod_slice(t, p, 1, e, 1), who[e]);
      mod_tensor *out = e == BLOCK ? block(n, layer, in, who[e])
                      : e == MLP ? mlp(n, MAX_LAYERS + layer, in, 4 * n->width) : look_up(n, layer, in);
      y = mod_scatter_add(t, y, out, gate, who[e]);
   }
   if (n->training) {
      add_loss(n, price(n, p), PRICE);
      add_loss(n, balance(n, n->rows, p), BALANCE);
   }
   return y;
}

static mod_tensor *forward(net *n)
{
   mod_tensor *x = embed(n);
   for (int l = 0; l < n->layers; ++l) {
      if (l % 2 == 0) took(n, l, n->rows);
      x = l % 2 ? routed(n, l, x) : mod_add(n->tape, x, block(n, l, x, n->rows));
   }
   return head(n, x);
}

int main(int argc, char **argv)
{
   static const variant paths = {"paths at a price", "yes", forward};
   return variant_main(&paths, argc, argv);
}
