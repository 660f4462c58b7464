/* mor_token.c - Mixture-of-Recursions, token-choice: every token says at once how often it wants the block

   Bae et al. 2025, arXiv:2507.10524. A first and a last layer of their own, between them one block that is used up
   to R times. After the first layer a token chooses its number of uses, the likeliest of p = softmax(x W), W [d, R]:

      x_i <- x_i + f(X~)_i,  and at its last use, number e:  x_i + p_ie f(X~)_i

   X~: the rows that want this use. The loss that balances the choices keeps all tokens from taking the same. Causal
   as it is: a token chooses by its own row. What later tokens attend to: at each use the rows that it takes.

   Not as there: keys and values are made anew at every use. */
#include "variants.h"

enum { FIRST, SHARED, LAST };
static const double BALANCE = 0.1;

/* All rows of x want use r; wish [rows, uses]: the logits. */
static mod_tensor *recurse(net *n, mod_tensor *x, mod_tensor *wish, const mod_rows *rows, int r)
{
   mod_tape *t = n->tape;
   int uses = n->layers - 2;
   mod_rows *depth[MAX_LAYERS] = {NULL};
   mod_tensor *delta = block(n, SHARED, x, rows), *gate = mod_slice(t, mod_softmax(t, wish), 1, r, 1);
   took(n, 1 + r, rows);
   if (r + 1 == uses) return mod_add(t, x, mod_mul(t, delta, gate));
   if (!mod_rows_choose(t, rows, wish, 1, uses, n->length, NULL, NULL, depth)) return NULL;
   const mod_rows *last = depth[r], *more = mod_rows_others(t, rows, last);
   mod_tensor *y = mod_scatter_add(t, x, mod_gather(t, delta, last), mod_gather(t, gate, last), last);
   mod_tensor *on = mod_add(t, mod_gather(t, x, more), mod_gather(t, delta, more));
   return replace(n, y, recurse(n, on, mod_gather(t, wish, more), more, r + 1), more);
}

static mod_tensor *forward(net *n)
{
   mod_tape *t = n->tape;
   mod_tensor *x = embed(n);
   took(n, 0, n->rows);
   x = mod_add(t, x, block(n, FIRST, x, n->rows));
   mod_tensor *wish = linear(n, "router", 0, x, n->layers - 2, INIT);
   if (n->training) add_loss(n, balance(n, n->rows, mod_softmax(t, wish)), BALANCE);
   x = recurse(n, x, wish, n->rows, 0);
   took(n, n->layers - 1, n->rows);
   return head(n, mod_add(t, x, block(n, LAST, x, n->rows)));
}

int main(int argc, char **argv)
{
   static const variant mor = {"recursions, tokens", "yes", forward};
   return variant_main(&mor, argc, argv);
}
