/* exit.c - early exit: a token that is sure of what follows leaves the model

   Schuster et al. 2022, CALM, arXiv:2207.07061; before it Elbayad et al. 2020, arXiv:1910.10073. Every layer's state
   can be read by the one head. In training all tokens go through all L layers, and the loss is a mean over the
   layers, the later ones weighing more:

      sum over l of w_l CE(head(x^l)),  w_l = l / (1 + 2 + ... + L)

   When it runs, a token leaves after the first layer at which the likeliest byte leads the next by more than LEAD:

      softmax(head(x^l)):  p1 - p2 > LEAD   ->   its logits are head(x^l), and no later layer computes it

   Causal: a token decides by its own row. What later tokens attend to in the layers that it left out: the keys and
   values of the state with which it left; these two products are made for it in every layer, and counted, as are the
   heads.

   Not as there: a decoder without an encoder, trained from scratch; one threshold for all positions and no
   calibration. */
#include "variants.h"

static const double LEAD = 0.9;

/* From probabilities: by how much more than LEAD the largest exceeds the next. */
static void lead_forward(mod_tape *tape, mod_tensor *y)
{
   (void)tape;
   int classes = y->in[0]->dim[1];
   for (int i = 0; i < y->dim[0]; ++i) {
      const mod_real *p = y->in[0]->data + i * classes;
      double first = 0, second = 0;
      for (int c = 0; c < classes; ++c) {
         if (p[c] > first) second = first, first = p[c];
         else if (p[c] > second) second = p[c];
      }
      y->data[i] = (mod_real)(first - second - LEAD);
   }
}

static mod_tensor *train_all_layers(net *n)
{
   mod_tensor *logits = NULL, *x = embed(n);
   int sum = n->layers * (n->layers + 1) / 2;
   for (int l = 0; l < n->layers; ++l) {
      x = mod_add(n->tape, x, block(n, l, x, n->rows));
      logits = head(n, x);
      add_loss(n, mod_cross_entropy(n->tape, logits, n->targets, 0), (l + 1.0) / sum);
   }
   n->complete = 1;
   return logits;
}

static mod_tensor *forward(net *n)
{
   if (n->training) return train_all_layers(n);
   mod_tape *t = n->tape;
   mod_tensor *x = embed(n), *logits = constant(n, n->seqs * n->length, n->vocab, 0);
   mod_tensor *gone = constant(n, n->seqs * n->length, 1, 0);
   const mod_rows *here = n->rows; /* who is still in the model */
   for (int l = 0; l < n->layers; ++l) {
      took(n, l, here);
      mod_tensor *u = norm(n, "attention norm", l, x), *rest = mod_gather(t, x, here);
      cache c = keys(n, l, u, n->rows, n->heads); /* of all: those who left, as they left */
      mod_tensor *h = attend_to(n, l, mod_gather(t, u, here), here, c, n->heads);
      mod_tensor *m = mlp(n, l, mod_add(t, rest, h), 4 * n->width);
      x = mod_scatter_add(t, x, mod_add(t, h, m), NULL, here);

      mod_tensor *said = head(n, mod_gather(t, x, here)), *sure = NULL; /* NULL: all leave after the last layer */
      if (l + 1 < n->layers) sure = above(n, by_rows(n, mod_softmax(t, said), 1, lead_forward));
      logits = mod_scatter_add(t, logits, said, sure, here);
      if (!sure) break;
      gone = mod_scatter_add(t, gone, sure, NULL, here);
      here = mod_rows_threshold(t, n->rows, mod_scale(t, gone, -1), -0.5);
   }
   return logits;
}

int main(int argc, char **argv)
{
   static const variant early = {"early exit", "yes", forward};
   return variant_main(&early, argc, argv);
}
