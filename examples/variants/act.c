/* act.c - Adaptive Computation Time: one layer, used again until a token has had enough

   Graves 2016, arXiv:1603.08983; for transformers Dehghani et al. 2018, arXiv:1807.03819. After each use of the
   layer a token says with which probability p it stops there. It stops when these have come to 1; what is left for
   the last one is the remainder R. Its output is the mean of its states, weighted by the probabilities:

      N = the first s with p^1 + ... + p^s >= 1 - EPS, at most STEPS;   R = 1 - (p^1 + ... + p^(N-1))
      y = p^1 x^1 + ... + p^(N-1) x^(N-1) + R x^N,   loss + PONDER (N + R)

   N has no gradient; R has one, to all p. Rows that have stopped are gathered out and cost nothing from there on.
   Causal: a token decides by its own rows. What later tokens attend to: the keys and values of its last use.

   Not as there: a decoder; a vector learned for each use tells the layer which one it is; no halting unit for the
   text as a whole. */
#include "variants.h"

static const double EPS = 0.01, PONDER = 0.02;

static mod_tensor *forward(net *n)
{
   mod_tape *t = n->tape;
   int all = n->seqs * n->length, steps = n->layers;
   mod_tensor *x = embed(n), *y = constant(n, all, n->width, 0);
   mod_tensor *left = constant(n, all, 1, 1); /* of each token's probability */
   const mod_rows *here = n->rows;            /* who has not stopped */
   cache c = {NULL, NULL, NULL};
   for (int s = 0; s < steps; ++s) {
      took(n, s, here);
      mod_tensor *old = mod_gather(t, x, here), *remainder = mod_gather(t, left, here);
      mod_tensor *u = norm(n, "attention norm", 0, mod_add(t, old, weight(n, "use", s, 1, n->width, 0, INIT)));
      cache fresh = keys(n, 0, u, here, n->heads);
      if (s > 0) {
         fresh.k = replace(n, c.k, fresh.k, here); fresh.v = replace(n, c.v, fresh.v, here);
      }
      c = fresh; c.rows = n->rows;
      mod_tensor *h = attend_to(n, 0, u, here, c, n->heads);
      mod_tensor *state = mod_add(t, mod_add(t, old, h), mlp(n, 0, mod_add(t, old, h), 4 * n->width));
      x = replace(n, x, state, here);

      mod_tensor *spend = remainder, *stopped = remainder; /* all stop after the last use */
      if (s + 1 < steps) {
         mod_tensor *p = mod_sigmoid(t, bias(n, "stop bias", 0, linear(n, "stop", 0, state, 1, INIT), -1));
         mod_tensor *over = mod_sub(t, p, remainder); /* stop if p >= remainder - EPS */
         mod_tensor *stop = above(n, mod_add(t, over, mod_scale(t, constant(n, 1, 1, 1), EPS)));
         spend = mod_sub(t, p, mod_mul(t, stop, over)); /* p; the remainder, if it stops */
         stopped = mod_mul(t, stop, remainder);
      }
      if (n->training) add_loss(n, mod_sum(t, stopped), PONDER / all);
      y = mod_scatter_add(t, y, state, spend, here);
      left = mod_scatter_add(t, left, mod_scale(t, spend, -1), NULL, here);
      here = mod_rows_threshold(t, n->rows, left, EPS);
   }
   return head(n, y);
}

int main(int argc, char **argv)
{
   static const variant act = {"adaptive time", "yes", forward};
   return variant_main(&act, argc, argv);
}
