/* lab.h - train a model on a text and measure it: what learn.c, experiments.c and routing.c share

   Include it after ../examples/common/text.h and ../mod.h. A function that fails says why on stderr and returns 0. */
#ifndef LAB_H
#define LAB_H

#include <time.h>
#include "flat.h"

typedef struct lab {
   /* Set before lab_make: */
   mod_config cfg;
   mod_train_desc how; /* length: the context */
   text_corpus *text;
   int eval_seqs; /* sequences of a batch of evaluation */
   uint64_t seed; /* of weights, windows and random selection */
   double init;   /* 0: the library's random weights; else those of flat.h, and their deviation */
   int repeats;   /* 1: windows are drawn, so that they overlap; 0: dealt, so that no byte is a target twice */
   /* The rest is its own. */
   mod_model *model;
   mod_trainer *trainer;
   mod_tape *tape; /* forward only, for evaluation */
   mod_batch batch;
   int *tokens, *targets;
   mod_error err;
} lab;

/* What an evaluation gives: nats per target, and counts over all routed blocks. */
typedef struct lab_result {
   double loss;
   mod_path_stats all;
} lab_result;

static inline int lab_failed(const char *during, const char *why)
{
   fprintf(stderr, "%s: %s\n", during, why);
   return 0;
}

static inline double lab_seconds(void)
{
   struct timespec t;
   clock_gettime(CLOCK_MONOTONIC, &t);
   return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ends what lab_make began, whether it succeeded or not. */
static inline void lab_end(lab *l)
{
   mod_tape_destroy(l->tape);
   mod_trainer_destroy(l->trainer);
   mod_model_destroy(l->model);
   free(l->tokens);
   free(l->targets);
   l->tape = NULL; l->trainer = NULL; l->model = NULL; l->tokens = l->targets = NULL;
}

static inline mod_result lab_randomize(lab *l)
{
   return l->init > 0 ? flat_randomize(l->model, l->seed, l->init, &l->err)
                      : mod_model_randomize(l->model, l->seed, &l->err);
}

static inline int lab_make(lab *l)
{
   mod_tape_desc desc = {0};
   size_t bytes[2] = {0, 0}, n;
   int seqs = l->how.n_seqs > l->eval_seqs ? l->how.n_seqs : l->eval_seqs;
   l->how.length = l->cfg.context; l->how.seed = l->seed;
   desc.n_threads = l->how.n_threads; desc.forward_only = 1;
   n = (size_t)seqs * (size_t)l->cfg.context;
   l->tokens = (int *)malloc(n * sizeof *l->tokens);
   l->targets = (int *)malloc(n * sizeof *l->targets);
   if (!l->tokens || !l->targets) return lab_failed("memory", "there is not enough");
   l->batch.length = l->cfg.context; l->batch.tokens = l->tokens; l->batch.targets = l->targets;
   l->batch.seed = l->seed; l->batch.n_seqs = l->eval_seqs;
   l->model = mod_model_create(&l->cfg, NULL, &l->err);
   if (!l->model || lab_randomize(l) != MOD_RESULT_OK ||
       !(l->trainer = mod_trainer_create(l->model, &l->how, NULL, &l->err)))
      return lab_failed("model", l->err.message);
   for (int mode = MOD_MODE_TOPK; mode <= MOD_MODE_CAUSAL; ++mode) {
      l->batch.mode = mode;
      if (mod_forward_plan(&l->cfg, &l->batch, &desc, &bytes[mode], &l->err) != MOD_RESULT_OK)
         return lab_failed("memory", l->err.message);
   }
   l->tape = mod_tape_create(&desc, bytes[0] > bytes[1] ? bytes[0] : bytes[1], NULL, &l->err);
   return l->tape ? 1 : lab_failed("memory", l->err.message);
}

static inline int lab_window(lab *l, int s, uint64_t position)
{
   text_error err;
   size_t at = (size_t)s * (size_t)l->cfg.context;
   if (text_read(l->text, position, l->cfg.context, l->tokens + at, l->targets + at, &err)) return 1;
   return lab_failed("text", err.message);
}

static inline int lab_step(lab *l, mod_step_info *info)
{
   uint64_t first = (uint64_t)mod_trainer_step(l->trainer) * (uint64_t)l->how.n_seqs;
   l->batch.n_seqs = l->how.n_seqs; l->batch.mode = MOD_MODE_TOPK; l->batch.first_id = 0;
   for (int s = 0; s < l->how.n_seqs; ++s) {
      uint64_t i = first + (uint64_t)s;
      if (!lab_window(l, s, l->repeats ? text_draw(l->text, TEXT_TRAIN, l->cfg.context, l->seed, i)
                                       : text_deal(l->text, TEXT_TRAIN, l->cfg.context, l->seed, i)))
         return 0;
   }
   if (mod_train_step(l->trainer, &l->batch, info, &l->err) == MOD_RESULT_OK) return 1;
   return lab_failed("training", l->err.message);
}

/* Adds what a block did, if it is routed. */
static inline void lab_count(mod_path_stats *to, const mod_block_stats *b)
{
   if (!b->routed) return;
   to->tokens += b->tokens; to->kept += b->kept;
   if (!b->decided) return;
   to->decided = 1; to->predicted += b->predicted; to->hits += b->hits; to->agree += b->agree;
}

/* Accuracy, precision and recall of the deciding logits, of a top-k pass; the share that is taken, of a causal one.
   LAB_NONE where there is none. */
enum { LAB_ACCURACY, LAB_PRECISION, LAB_RECALL, LAB_SHARE, LAB_RATES };
static const double LAB_NONE = -1;
static inline void lab_rates(double to[LAB_RATES], const mod_path_stats *topk, const mod_path_stats *causal)
{
   for (int i = 0; i < LAB_RATES; ++i) to[i] = LAB_NONE;
   if (topk->decided) {
      to[LAB_ACCURACY] = (double)topk->agree / (double)topk->tokens;
      to[LAB_PRECISION] = topk->predicted ? (double)topk->hits / (double)topk->predicted : 0;
      to[LAB_RECALL] = (double)topk->hits / (double)topk->kept;
   }
   if (causal->tokens) to[LAB_SHARE] = (double)causal->kept / (double)causal->tokens;
}

/* How many windows, at most `most`, are taken from a part. */
static inline int lab_windows(const text_corpus *text, int part, int context, int most)
{
   uint64_t all = text_windows(text, part, context);
   return all < (uint64_t)most ? (int)all : most;
}

/* n windows, from the first-th of `all` that are spread over a part on, into the batch. */
static inline int lab_fill(lab *l, int part, int first, int n, int all)
{
   l->batch.n_seqs = n;
   l->batch.first_id = (uint64_t)first;
   for (int s = 0; s < n; ++s)
      if (!lab_window(l, s, text_spread(l->text, part, l->cfg.context, (uint64_t)(first + s), (uint64_t)all)))
         return 0;
   mod_tape_reset(l->tape);
   return 1;
}

/* At most `most` windows of a part. blocks: NULL, or [n_layers], of each the counts. */
static inline int lab_evaluate(lab *l, int part, int mode, int most, lab_result *to, mod_path_stats *blocks)
{
   mod_forward f;
   int all = lab_windows(l->text, part, l->cfg.context, most);
   memset(to, 0, sizeof *to);
   if (blocks) memset(blocks, 0, (size_t)l->cfg.n_layers * sizeof *blocks);
   l->batch.mode = mode;
   for (int first = 0, n; first < all; first += n) {
      n = all - first < l->eval_seqs ? all - first : l->eval_seqs;
      if (!lab_fill(l, part, first, n, all)) return 0;
      if (mod_model_forward(l->model, l->tape, NULL, &l->batch, &f, &l->err) != MOD_RESULT_OK)
         return lab_failed("evaluation", l->err.message);
      to->loss += f.cross_entropy * n / all;
      for (int b = 0; b < l->cfg.n_layers; ++b) {
         lab_count(&to->all, &f.blocks[b]);
         if (blocks) lab_count(&blocks[b], &f.blocks[b]);
      }
   }
   return 1;
}

/* Thresholds from one batch of windows of a part. */
static inline int lab_calibrate(lab *l, int part)
{
   int n = lab_windows(l->text, part, l->cfg.context, l->eval_seqs);
   l->batch.mode = MOD_MODE_TOPK;
   if (!lab_fill(l, part, 0, n, n)) return 0;
   if (mod_model_calibrate(l->model, l->tape, &l->batch, &l->err) == MOD_RESULT_OK) return 1;
   return lab_failed("calibration", l->err.message);
}

#endif
