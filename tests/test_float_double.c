/* test_float_double.c - gradients in float against those in double, in one program: each half has a mod.h of its own by
   MOD_STATIC. Build with test_float_double_f64.c. */
#define MOD_STATIC
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include "float_double.h"

#include <math.h>

/* |float - double| / |double|, of each tensor as a whole; chosen before the first run. */
static const double bar = 1e-5;

static void check_model(int i)
{
   static fd_result f, d;
   static int tokens[FD_ROWS], targets[FD_ROWS];
   static const int lengths[FD_SEQS] = {FD_LENGTH, 17, 9};
   mod_config cfg = fd_config(i);
   mod_error err;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   size_t n_params = 0, n_logits = (size_t)FD_ROWS * FD_VOCAB;
   float *weights = mod_model_params(model, &n_params);
   int n_tensors = mod_model_param_count(model), compared = 0;

   memset(&f, 0, sizeof f);
   memset(&d, 0, sizeof d);
   f.grads = (double *)calloc(n_params + n_logits, sizeof *f.grads);
   d.grads = (double *)calloc(n_params + n_logits, sizeof *d.grads);
   if (!model || !f.grads || !d.grads) {
      CHECKF(0, "model %d: no memory", i);
      return;
   }
   f.logits = f.grads + n_params;
   d.logits = d.grads + n_params;

   /* Random everywhere: biases, gains and the predictors' last layer too. */
   for (int t = 0; t < n_tensors; ++t) {
      mod_param p;
      mod_model_param(model, t, &p, NULL);
      double centre = strstr(p.name, "gain") ? 1 : 0, scale = strcmp(p.name, "embed") ? 0.2 : 1;
      for (size_t j = 0; j < p.count; ++j) p.data[j] = (float)(centre + scale * test_normal());
   }
   /* No token twice in a sequence: two rows that are equal in exact arithmetic would leave a tie to rounding. */
   for (int j = 0; j < FD_ROWS; ++j) {
      int taken;
      do {
         tokens[j] = test_below(FD_VOCAB);
         taken = 0;
         for (int e = j - j % FD_LENGTH; e < j; ++e) taken |= tokens[e] == tokens[j];
      } while (taken);
      targets[j] = j % 7 == 5 ? -1 : test_below(FD_VOCAB);
   }

   const char *wrong_f = fd_pass(i, weights, n_params, tokens, targets, lengths, &f);
   const char *wrong_d = fd_pass_f64(i, weights, n_params, tokens, targets, lengths, &d);
   CHECKF(!wrong_f && !wrong_d, "model %d: %s; %s", i, wrong_f ? wrong_f : "", wrong_d ? wrong_d : "");
   if (!wrong_f && !wrong_d) {
      /* The same rows entered every block, or the two gradients are of different functions. */
      CHECKF(f.n_decisions > 4 && f.n_decisions < FD_MAX_DECISIONS && f.n_decisions == d.n_decisions &&
                !memcmp(f.decisions, d.decisions, (size_t)f.n_decisions * sizeof f.decisions[0]),
             "model %d: the selections differ", i);
      CHECKF(fabs(f.loss - d.loss) <= bar * fabs(d.loss), "model %d: loss %.9g, %.9g", i, f.loss, d.loss);
      double logits_off = 0, logits_norm = 0;
      for (size_t j = 0; j < n_logits; ++j) {
         logits_off += (f.logits[j] - d.logits[j]) * (f.logits[j] - d.logits[j]);
         logits_norm += d.logits[j] * d.logits[j];
      }
      CHECKF(sqrt(logits_off / logits_norm) <= bar, "model %d: logits are off by %g", i,
             sqrt(logits_off / logits_norm));

      for (int t = 0; t < n_tensors; ++t) {
         mod_param p;
         double off = 0, norm = 0;
         mod_model_param(model, t, &p, NULL);
         for (size_t j = p.offset; j < p.offset + p.count; ++j) {
            off += (f.grads[j] - d.grads[j]) * (f.grads[j] - d.grads[j]);
            norm += d.grads[j] * d.grads[j];
         }
         CHECKF(norm > 0 && sqrt(off / norm) <= bar, "model %d: %s is off by %g of %g", i, p.name, sqrt(off),
                sqrt(norm));
         /* Equal to the last digit everywhere would mean that both halves compute in one precision. */
         compared += off > 0;
      }
      CHECKF(compared * 2 > n_tensors, "model %d: only %d of %d tensors differ at all", i, compared, n_tensors);
   }
   free(f.grads);
   free(d.grads);
   mod_model_destroy(model);
}

int main(void)
{
   for (int i = 0; i < FD_MODELS; ++i) check_model(i);
   CHECK(sizeof(mod_real) == sizeof(float));
   return test_end();
}
