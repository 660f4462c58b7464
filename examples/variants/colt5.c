/* colt5.c - a light path for all tokens, a heavy one beside it for some

   Ainslie et al. 2023, CoLT5, arXiv:2303.09752. Every layer has a narrow attention to the last few tokens and a
   narrow MLP, which take every token; and a wide attention and a wide MLP, which take some. Three routers per layer
   choose: whose queries, and whose keys and values, the wide attention works on, and who goes through the wide MLP.

      x <- x + light_attention(x) + sigmoid(r) heavy_attention(x[queries], x[keys])
      x <- x + light_mlp(x)       + sigmoid(r) heavy_mlp(x[rows])

   The best scores look ahead; that model is an encoder and may. Here, in a decoder, a predictor for each router
   learns to foretell them and decides when the model runs. What later tokens attend to: in the wide attention the
   chosen keys.

   Not as there: a plain top-k instead of the soft one; 'the last few' means within blocks of LOCAL tokens. */
#include "variants.h"

enum { LOCAL = 16, QUERIES = 0, KEYS, ROWS, ROUTERS, HEAVY = MAX_LAYERS /* + layer: its heavy weights */ };
static const double SHARE[ROUTERS] = {0.125, 0.25, 0.125};

/* The rows that a router takes, and the factor of each. */
static const mod_rows *choose(net *n, int which, int layer, mod_tensor *x, mod_tensor **factor)
{
   int router = ROUTERS * layer + which;
   mod_tensor *score = linear(n, "router", router, x, 1, INIT);
   const mod_rows *rows = take_best(n, n->rows, score, SHARE[which], predictor(n, router, x), 1);
   *factor = mod_sigmoid(n->tape, mod_gather(n->tape, score, rows));
   return rows;
}

static mod_tensor *forward(net *n)
{
   mod_tape *t = n->tape;
   mod_tensor *x = embed(n), *of_query, *of_key, *of_row;
   const mod_rows *local = mod_rows_make(t, n->seqs * n->length / LOCAL, LOCAL, NULL);
   int narrow = 1, wide = n->heads - narrow; /* heads */
   for (int l = 0; l < n->layers; ++l) {
      mod_tensor *u = norm(n, "attention norm", l, x);
      const mod_rows *queries = choose(n, QUERIES, l, u, &of_query), *sources = choose(n, KEYS, l, u, &of_key);
      cache c = keys(n, HEAVY + l, mod_gather(t, u, sources), sources, wide);
      c.v = mod_mul(t, c.v, of_key);
      mod_tensor *heavy = attend_to(n, HEAVY + l, mod_gather(t, u, queries), queries, c, wide);
      x = mod_add(t, x, attend_to(n, l, u, local, keys(n, l, u, local, narrow), narrow));
      x = mod_scatter_add(t, x, heavy, of_query, queries);

      const mod_rows *rows = choose(n, ROWS, l, x, &of_row);
      took(n, l, rows);
      heavy = mlp(n, HEAVY + l, mod_gather(t, x, rows), 4 * n->width);
      x = mod_scatter_add(t, mod_add(t, x, mlp(n, l, x, n->width / 2)), heavy, of_row, rows);
   }
   return head(n, x);
}

int main(int argc, char **argv)
{
   static const variant colt5 = {"light and heavy", "needs predictors", forward};
   return variant_main(&colt5, argc, argv);
}
