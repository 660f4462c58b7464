/* float_double.h - what test_float_double.c (float) and test_float_double_f64.c (double) share: the models, and one
   pass over one of them with whatever mod_real is. Include after mod.h. */
#ifndef FLOAT_DOUBLE_H
#define FLOAT_DOUBLE_H

#include <stdlib.h>
#include <string.h>

enum { FD_VOCAB = 40, FD_SEQS = 3, FD_LENGTH = 24, FD_ROWS = FD_SEQS * FD_LENGTH, FD_MAX_DECISIONS = 4096 };

/* The settings of model `i` (0 <= i < FD_MODELS). */
enum { FD_MODELS = 11 };
static mod_config fd_config(int i)
{
   mod_config cfg;
   memset(&cfg, 0, sizeof cfg);
   cfg.vocab_size = FD_VOCAB;
   cfg.context = FD_LENGTH;
   cfg.n_layers = 4;
   cfg.d_model = 32;
   cfg.n_heads = 4;
   cfg.n_kv_heads = 2;
   cfg.capacity = 0.25; /* 6 rows of 24 */
   cfg.causal = MOD_CAUSAL_BOTH;
   switch (i) {
   case 0: cfg.select = MOD_SELECT_ALL; break;
   case 1: cfg.gate = MOD_GATE_RAW; break;
   case 2: cfg.gate = MOD_GATE_SIGMOID; break;
   case 3: cfg.gate = MOD_GATE_TANH; break;
   case 4: cfg.gate = MOD_GATE_ONE; break;
   case 5: cfg.norm = MOD_NORM_LAYER; cfg.bias = MOD_BIAS_ON; break;
   case 6: cfg.activation = MOD_ACTIVATION_SWIGLU; cfg.head = MOD_HEAD_UNTIED; break;
   case 7: cfg.position = MOD_POSITION_LEARNED; cfg.gate = MOD_GATE_SIGMOID; break;
   case 8: cfg.activation = MOD_ACTIVATION_RELU; cfg.causal = MOD_CAUSAL_ROUTER; break;
   case 9: cfg.select = MOD_SELECT_STOCHASTIC; break;
   default: cfg.select = MOD_SELECT_ALL; cfg.norm = MOD_NORM_LAYER; cfg.position = MOD_POSITION_LEARNED; break;
   }
   return mod_config_resolve(&cfg);
}

/* What a pass gives, in double on both sides. */
typedef struct fd_result {
   double loss;
   double *grads;  /* [n_params] */
   double *logits; /* [FD_ROWS, FD_VOCAB] */
   int n_decisions, decisions[FD_MAX_DECISIONS]; /* the rows that entered each block */
} fd_result;

static void fd_probe(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   fd_result *r = (fd_result *)user;
   (void)block;
   (void)x;
   if (site != MOD_SITE_KEPT) return;
   for (int i = 0; i <= rows->n && r->n_decisions < FD_MAX_DECISIONS; ++i)
      r->decisions[r->n_decisions++] = i == rows->n ? -1 : rows->index ? rows->index[i] : i;
}

/* Runs model `i` with these weights over this batch, forward and backward. NULL, or what went wrong. */
static const char *fd_pass(int i, const float *weights, size_t n_weights, const int *tokens, const int *targets,
                           const int *lengths, fd_result *result)
{
   mod_config cfg = fd_config(i);
   mod_error err;
   mod_batch batch;
   mod_forward out;
   mod_tape *tape = NULL;
   mod_real *params, *grads = NULL, *logits = NULL;
   size_t bytes, n_params = 0, n_logits = (size_t)FD_ROWS * FD_VOCAB, j;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   const char *wrong = "memory, or another number of parameters";

   memset(&batch, 0, sizeof batch);
   batch.n_seqs = FD_SEQS;
   batch.length = FD_LENGTH;
   batch.tokens = tokens;
   batch.targets = targets;
   batch.lengths = lengths;
   batch.probe = fd_probe;
   batch.probe_user = result;
   result->n_decisions = 0;

   params = mod_model_params(model, &n_params);
   grads = (mod_real *)calloc(n_weights, sizeof *grads);
   logits = (mod_real *)calloc(n_logits, sizeof *logits);
   if (model && n_params == n_weights && grads && logits &&
       mod_forward_plan(&cfg, &batch, NULL, &bytes, &err) == MOD_RESULT_OK)
      tape = mod_tape_create(NULL, bytes, NULL, &err);
   if (tape) {
      for (j = 0; j < n_params; ++j) params[j] = (mod_real)weights[j];
      if (mod_model_forward(model, tape, grads, &batch, &out, &err) != MOD_RESULT_OK ||
          mod_forward_logits(&out, &batch, logits, &err) != MOD_RESULT_OK ||
          mod_tape_backward(tape, out.loss, &err) != MOD_RESULT_OK) {
         wrong = err.message;
      } else {
         for (j = 0; j < n_params; ++j) result->grads[j] = (double)grads[j];
         for (j = 0; j < n_logits; ++j) result->logits[j] = (double)logits[j];
         result->loss = (double)out.loss->data[0];
         wrong = NULL;
      }
   }
   free(grads);
   free(logits);
   mod_tape_destroy(tape);
   mod_model_destroy(model);
   return wrong;
}

/* The same in double, from the other file. */
const char *fd_pass_f64(int i, const float *weights, size_t n_weights, const int *tokens, const int *targets,
                        const int *lengths, fd_result *result);

#endif
