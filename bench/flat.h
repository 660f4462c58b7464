/* flat.h - the random initial weights of mod.h before 0.5: matrices of attention and MLP as small as the embedding

   Include it after ../mod.h. What was made then, a checkpoint of the tests and runs of the experiments, can be made
   again with it. */
#ifndef FLAT_H
#define FLAT_H

#include <math.h>
#include <string.h>

/* mod_model_randomize with N(0, std) where it has N(0, 1/sqrt(inputs)). */
static inline mod_result flat_randomize(mod_model *model, uint64_t seed, double std, mod_error *err)
{
   mod_config cfg = mod_model_config(model);
   mod_result result = mod_model_randomize(model, seed, err);
   mod_param p;
   for (int i = 0; result == MOD_RESULT_OK && i < mod_model_param_count(model); ++i) {
      if ((result = mod_model_param(model, i, &p, err)) != MOD_RESULT_OK) break;
      if (!p.decay || strncmp(p.name, "blocks.", 7) != 0) continue;
      int writes = strstr(p.name, ".wo") || strstr(p.name, ".w2"); /* to the residual */
      double s = writes ? std / sqrt(2.0 * cfg.n_layers) : std;
      for (size_t k = 0; k < p.count; ++k)
         p.data[k] = (mod_real)(s * mod_random_normal(seed, mod_random_stream(p.name), k));
   }
   return result;
}

#endif
