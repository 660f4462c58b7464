/* gateskip.c - gated branches: a token leaves out the attention or the MLP whose gate is nearly shut

   Laitenberger et al. 2025, GateSkip, arXiv:2510.13876. Attention and MLP of every layer have a gate that looks at
   the row and scales what they add; a small loss on its square shuts it where it may be shut:

      g_i = sigmoid(w . x_i + b),   x_i <- x_i + g_i branch(x)_i,   loss + SPARSE mean(g^2)

   In training a branch takes the share of the tokens with the largest gates, a share that falls from all to BUDGET.
   These look ahead; so each branch remembers the smallest gate that got in (a running mean over the sequences), and
   when the model runs a gate above it gets in: causal by a threshold. (The first layer's branches take every token.)
   What later tokens attend to for a token that leaves out the attention: its keys and values of the layer below.

   Not as there: one number as a gate instead of a vector; trained from scratch, not on top of a trained model;
   thresholds from training instead of a quantile of the text at hand. */
#include "variants.h"

static const double BUDGET = 0.6, SPARSE = 0.02, SLOWLY = 0.99;
enum { ATTENTION, MLP, BRANCHES };

/* The rows that branch number `branch` takes, and their gates. */
static const mod_rows *choose(net *n, int branch, mod_tensor *x, mod_tensor **gate)
{
   static double least[BRANCHES * MAX_LAYERS]; /* the smallest gate that gets in */
   mod_tape *t = n->tape;
   mod_tensor *g = mod_sigmoid(t, bias(n, "gate bias", branch, linear(n, "gate", branch, x, 1, INIT), 1));
   const mod_rows *in = n->rows;
   if (n->training) add_loss(n, mod_mean(t, mod_mul(t, g, g)), SPARSE);
   if (branch >= BRANCHES) {
      if (n->training) in = mod_rows_topk(t, n->rows, g, 1 - (1 - BUDGET) * n->progress);
      else in = mod_rows_threshold(t, n->rows, g, least[branch]);
   }
   *gate = mod_gather(t, g, in);
   for (int s = 0; n->training && !n->measuring && *gate && s < n->seqs; ++s) {
      double smallest = 1;
      for (int i = in->start[s]; i < in->start[s + 1]; ++i) smallest = fmin(smallest, (double)(*gate)->data[i]);
      least[branch] = SLOWLY * least[branch] + (1 - SLOWLY) * smallest;
   }
   return in;
}

static mod_tensor *forward(net *n)
{
   mod_tape *t = n->tape;
   mod_tensor *x = embed(n), *gate;
   cache c = {NULL, NULL, NULL};
   for (int l = 0; l < n->layers; ++l) {
      const mod_rows *in = choose(n, BRANCHES * l + ATTENTION, x, &gate);
      took(n, l, in);
      mod_tensor *u = norm(n, "attention norm", l, mod_gather(t, x, in));
      cache fresh = keys(n, l, u, in, n->heads);
      if (l > 0) {
         fresh.k = replace(n, c.k, fresh.k, in); fresh.v = replace(n, c.v, fresh.v, in);
      }
      c = fresh; c.rows = n->rows;
      x = mod_scatter_add(t, x, attend_to(n, l, u, in, c, n->heads), gate, in);
      in = choose(n, BRANCHES * l + MLP, x, &gate);
      x = mod_scatter_add(t, x, mlp(n, l, mod_gather(t, x, in), 4 * n->width), gate, in);
   }
   return head(n, x);
}

int main(int argc, char **argv)
{
   static const variant gates = {"gated branches", "by a threshold", forward};
   return variant_main(&gates, argc, argv);
}
