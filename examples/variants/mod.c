/* mod.c - Mixture-of-Depths, by the library's own model

   Raposo et al. 2024, arXiv:2404.02258. Every second layer takes an eighth of the tokens, those with the highest
   scores; the others pass it by:

      y_i = x_i + r_i f(X~)_i  for the rows i of the k largest r = X w, X~ = these rows;  else  y_i = x_i

   The k largest look ahead. A predictor, which sees one token at a time, learns to foretell them, and decides when
   the model runs: that is the loss in the table. What later tokens attend to in such a layer: the rows that it took.
   */
#include "variants.h"

static mod_tensor *forward(net *n) { return model_forward(n, MOD_SELECT_LEARNED); }

int main(int argc, char **argv)
{
   static const variant mod = {"mixture of depths", "needs a predictor", forward};
   return variant_main(&mod, argc, argv);
}
