/* spec.h - a run of bench/experiments/plan.txt: `key=value` words, and the model and training that they mean */
#ifndef SPEC_H
#define SPEC_H

#include <stdlib.h>
#include <string.h>

/* What no run varies. */
enum { SPEC_VOCAB = 256, SPEC_CONTEXT = 256 };
static const int spec_shares[3] = {96, 2, 2}; /* of the text: to train on, validation, test */
static const double spec_weight_decay = 0.1, spec_clip_norm = 1, spec_warmup = 0.05;

typedef enum spec_field {
   SPEC_BUDGET, /* FLOPs of training: 3 times the forward pass of all tokens, as the formula has it for top-k */
   SPEC_SIZE,   /* blocks x width; heads of 32 */
   SPEC_MATCH,  /* yes: `size` is a dense model, of which this one has the width and the FLOPs of a forward pass */
   SPEC_SELECT, SPEC_CAPACITY, SPEC_FIRST, SPEC_EVERY, SPEC_GATE, SPEC_CAUSAL,
   SPEC_ROUTER_LOSS,
   SPEC_RAMP,   /* capacity warm-up, as a share of the steps */
   SPEC_MLP, SPEC_EXPERTS, SPEC_CHOICE, SPEC_FACTOR, /* n_experts; mod_choice; capacity_factor */
   SPEC_INIT, /* fan: the library's; 0.02: matrices of attention and MLP N(0, 0.02) instead of N(0, 1/sqrt(inputs)) */
   SPEC_SEQS, /* windows of a step */
   SPEC_LR, SPEC_SEED,
   SPEC_FIELDS
} spec_field;

/* The names, in the order of the columns of runs.csv, and what a run has that does not say. */
static const char *const spec_names[SPEC_FIELDS] = {
   "budget", "size", "match", "select", "capacity", "first", "every", "gate", "causal", "router_loss", "ramp", "mlp",
   "experts", "choice", "factor", "init", "seqs", "lr", "seed"};
static const char *const spec_defaults[SPEC_FIELDS] = {
   NULL, NULL, "no", "all", "1", "2", "2", "-", "-", "-", "0", "plain", "-", "-", "-", "0.02", "4",
   NULL, NULL};

typedef struct spec {
   char value[SPEC_FIELDS][16];
} spec;

static inline double spec_number(const spec *s, spec_field f)
{
   return strcmp(s->value[f], "-") == 0 ? 0 : strtod(s->value[f], NULL); /* 0: the library's default */
}

/* 1 + the index of a word; 0, the library's default, for "-"; -1: unknown. */
static inline int spec_word(const spec *s, spec_field f, const char *const *words)
{
   if (strcmp(s->value[f], "-") == 0) return 0;
   for (int i = 0; words[i]; ++i)
      if (strcmp(words[i], s->value[f]) == 0) return i + 1;
   return -1;
}

/* The model. flops: of a forward pass, per token of a full window in top-k mode. NULL, or what is wrong. */
static inline const char *spec_config(const spec *s, mod_config *cfg, double *flops)
{
   static const char *const selects[] = {"all", "learned", "stochastic", "token", "every", "first", NULL};
   static const char *const gates[] = {"raw", "sigmoid", "tanh", "one", NULL};
   static const char *const causals[] = {"predictor", "router", "both", "none", NULL};
   static const char *const mlps[] = {"plain", "moe", "mode", NULL};
   static const char *const choices[] = {"token", "expert", NULL};
   static const char *const inits[] = {"fan", "0.02", NULL};
   mod_config c = {0}, dense = {0};
   mod_flops f;
   mod_error err;
   int length = SPEC_CONTEXT;
   if (sscanf(s->value[SPEC_SIZE], "%dx%d", &c.n_layers, &c.d_model) != 2) return "size is not BLOCKSxWIDTH";
   c.vocab_size = SPEC_VOCAB; c.context = SPEC_CONTEXT;
   c.n_heads = (c.d_model + 16) / 32;
   dense = c;
   dense.select = MOD_SELECT_ALL;
   c.select = spec_word(s, SPEC_SELECT, selects);
   c.gate = spec_word(s, SPEC_GATE, gates);
   c.causal = spec_word(s, SPEC_CAUSAL, causals);
   c.mlp = spec_word(s, SPEC_MLP, mlps);
   c.choice = spec_word(s, SPEC_CHOICE, choices);
   if (c.select < 0 || c.gate < 0 || c.causal < 0 || c.mlp < 0 || c.choice < 0 || spec_word(s, SPEC_INIT, inits) < 1)
      return "an unknown word";
   c.capacity = spec_number(s, SPEC_CAPACITY);
   c.route_first = (int)spec_number(s, SPEC_FIRST);
   c.route_every = (int)spec_number(s, SPEC_EVERY);
   c.router_loss = spec_number(s, SPEC_ROUTER_LOSS);
   c.n_experts = (int)spec_number(s, SPEC_EXPERTS);
   c.capacity_factor = spec_number(s, SPEC_FACTOR);
   if (strcmp(s->value[SPEC_MATCH], "yes") == 0) {
      if (mod_config_flops(&dense, 1, &length, NULL, &f, &err) != MOD_RESULT_OK ||
          mod_config_match(&c, f.total, &c, &err) != MOD_RESULT_OK)
         return err.message;
   }
   if (mod_config_flops(&c, 1, &length, NULL, &f, &err) != MOD_RESULT_OK) return err.message;
   *flops = f.total / length;
   *cfg = c;
   return NULL;
}

/* FLOPs of a training step. flops: of a forward pass, per token. */
static inline double spec_step(const spec *s, double flops)
{
   return 3 * flops * spec_number(s, SPEC_SEQS) * SPEC_CONTEXT;
}

/* The training: steps that use up the budget. */
static inline mod_train_desc spec_train(const spec *s, double flops)
{
   mod_train_desc how = {0};
   how.n_seqs = (int)spec_number(s, SPEC_SEQS);
   how.steps = (int)(spec_number(s, SPEC_BUDGET) / spec_step(s, flops) + 0.5);
   if (how.steps < 1) how.steps = 1;
   how.warmup = (int)(spec_warmup * how.steps + 0.5);
   how.lr = spec_number(s, SPEC_LR);
   how.weight_decay = spec_weight_decay; how.clip_norm = spec_clip_norm;
   how.capacity_warmup = (int)(spec_number(s, SPEC_RAMP) * how.steps + 0.5);
   return how;
}

#endif
