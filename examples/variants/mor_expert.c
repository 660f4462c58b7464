/* mor_expert.c - Mixture-of-Recursions, expert-choice: one block, used again on fewer and fewer tokens

   Bae et al. 2025, arXiv:2507.10524. A first and a last layer of their own, between them one block that is used R
   times. Each use takes of the tokens that the use before took those with the highest scores, so that of R uses the
   r-th (counted from 0) sees (R - r) / R of all tokens:

      x_i <- x_i + sigmoid(r_i) f(X~)_i  for the rows taken;   X~: these rows

   The highest scores look ahead. The auxiliary loss of that paper trains the router itself to separate those that
   are taken from those that are not, and when the model runs a score above 0 decides. What later tokens attend to:
   at each use the rows that it takes.

   Not as there: plain sigmoid, without the factor 0.1; keys and values are made anew at every use. */
#include "variants.h"

enum { FIRST, SHARED, LAST };
static const double AUXILIARY = 0.05;

/* x holds the rows that use r - 1 took; the result too. */
static mod_tensor *recurse(net *n, mod_tensor *x, const mod_rows *rows, int r)
{
   int uses = n->layers - 2;
   mod_tensor *score = linear(n, "router", r, x, 1, INIT);
   double share = (double)(uses - r) / (uses - r + 1);
   const mod_rows *taken = r == 0 ? rows : take_best(n, rows, score, share, score, AUXILIARY);
   took(n, 1 + r, taken);
   mod_tensor *old = mod_gather(n->tape, x, taken), *gate = mod_sigmoid(n->tape, mod_gather(n->tape, score, taken));
   mod_tensor *y = mod_add(n->tape, old, mod_mul(n->tape, block(n, SHARED, old, taken), gate));
   if (r + 1 < uses) y = recurse(n, y, taken, r + 1);
   return replace(n, x, y, taken);
}

static mod_tensor *forward(net *n)
{
   mod_tensor *x = embed(n);
   took(n, 0, n->rows);
   x = mod_add(n->tape, x, block(n, FIRST, x, n->rows));
   x = recurse(n, x, n->rows, 0);
   took(n, n->layers - 1, n->rows);
   return head(n, mod_add(n->tape, x, block(n, LAST, x, n->rows)));
}

int main(int argc, char **argv)
{
   static const variant mor = {"recursions, experts", "by the router's loss", forward};
   return variant_main(&mor, argc, argv);
}
