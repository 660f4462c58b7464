/* layerroute.c - whole layers for whole sequences: its beginning decides which layers a text needs

   After LayerRoute, 2026, arXiv:2606.01838. Every layer but the first has a router that looks at a sequence and says
   yes or no for all of it. The gate is hard, and its gradient that of the sigmoid (straight-through):

      z = w . mean(rows of the first PROMPT tokens) + b,   g = [z > 0],   dg/dz := sigmoid'(z)
      x <- x + g f(x),   loss + PULL (mean g - SHARE)^2

   A decision that has seen the whole sequence would not be causal, in training neither: the loss of an early token
   would profit from later ones. So only the first PROMPT tokens are looked at, and these go through every layer
   themselves, whatever they decide: causal as it is, for a text of at least PROMPT tokens. In training all rows go
   through, those of a 'no' times 0, so that the gate learns from both; when the model runs, a 'no' is not computed.
   What later tokens attend to in such a layer: nothing, for they are not computed either; within the prompt, the
   prompt.

   Not as there: trained from scratch, not as an adapter to a trained model; the mean over the prompt only. */
#include "variants.h"

enum { PROMPT = 16 };
static const double SHARE = 0.5, PULL = 0.5;

/* One row for each sequence: the mean of its first rows. */
static mod_tensor *prompt_of(net *n, mod_tensor *x)
{
   int whole[2] = {n->seqs, n->length * n->width}, rows[2] = {n->seqs * PROMPT, n->width};
   mod_tensor *first = mod_slice(n->tape, mod_reshape(n->tape, x, 2, whole), 1, 0, PROMPT * n->width);
   return mod_pool(n->tape, mod_reshape(n->tape, first, 2, rows), mod_rows_make(n->tape, n->seqs, PROMPT, NULL),
                   MOD_POOL_MEAN);
}

/* A number for each sequence becomes one for each row: 1 in the prompt, that number after it. */
static mod_tensor *for_rows(net *n, mod_tensor *gate)
{
   int column[2] = {n->seqs * n->length, 1};
   mod_tensor *after = mod_matmul(n->tape, gate, constant(n, 1, n->length - PROMPT, 1));
   return mod_reshape(n->tape, mod_concat(n->tape, constant(n, n->seqs, PROMPT, 1), after, 1), 2, column);
}

static mod_tensor *forward(net *n)
{
   mod_tape *t = n->tape;
   mod_tensor *x = embed(n);
   took(n, 0, n->rows);
   x = mod_add(t, x, block(n, 0, x, n->rows));
   for (int l = 1; l < n->layers; ++l) {
      mod_tensor *z = bias(n, "router bias", l, linear(n, "router", l, prompt_of(n, x), 1, INIT), 0.1);
      mod_tensor *soft = mod_sigmoid(t, z), *gate = above(n, z), *weights = NULL;
      const mod_rows *in = n->rows;
      if (n->training) {
         gate = mod_add(t, gate, mod_sub(t, soft, mod_stop_grad(t, soft)));
         mod_tensor *mean = mod_mean(t, gate); /* (mean - SHARE)^2, but for a constant: */
         add_loss(n, mod_sub(t, mod_mul(t, mean, mean), mod_scale(t, mean, 2 * SHARE)), PULL);
         weights = for_rows(n, gate);
      } else in = mod_rows_threshold(t, n->rows, for_rows(n, gate), 0.5);
      took(n, l, in);
      x = mod_scatter_add(t, x, block(n, l, mod_gather(t, x, in), in), weights, in);
   }
   return head(n, x);
}

int main(int argc, char **argv)
{
   static const variant sequences = {"layers by sequence", "yes, after the prompt", forward};
   return variant_main(&sequences, argc, argv);
}
