/* dense.c - the baseline: the library's own model, whose layers all take every token

   Vaswani et al. 2017, arXiv:1706.03762, as a decoder with RMSNorm and RoPE. Nothing is routed; it is causal. */
#include "variants.h"

static mod_tensor *forward(net *n) { return model_forward(n, MOD_SELECT_ALL); }

int main(int argc, char **argv)
{
   static const variant dense = {"dense", "yes", forward};
   return variant_main(&dense, argc, argv);
}
