/* test_learn.c - does it learn? A small model on generated text, judged causally on text that it has not seen.

   The source: eight words of three letters and a space. After each word one of three words follows, with chances 5/8,
   2/8 and 1/8. So a word costs H = 5/8 ln 8/5 + 2/8 ln 8/2 + 1/8 ln 8 = 0.9003 nats, spread over 4 tokens: the entropy
   rate is 0.2251 nats a token, and nothing can predict better. A model that looks at one token only gets the bigram
   entropy, counted below (1.183). The bar, set before the first run: a quarter of the way from the rate to the bigram
   entropy, 0.465. That is less than the best that two tokens of context can do (0.518), so it takes attention. The
   start of a window, where the context is missing, costs even a perfect model 0.040. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <math.h>

enum { VOCAB = 8, CONTEXT = 32, LAYERS = 3, BATCH = 8, STEPS = 600, WORDS = 8, TEXT = 40000, HELD_OUT = 64 };

static const char *const words[WORDS] = {"abc", "bca", "cab", "ade", "dab", "ebf", "fce", "bdf"};

static void make_text(int *text, int n, uint64_t seed)
{
   test_state = seed * 0x9e3779b97f4a7c15ull + 1;
   for (int i = 0; i < 20; ++i) test_bits();
   int w = 0;
   for (int at = 0; at < n; ++at) {
      text[at] = at % 4 < 3 ? words[w][at % 4] - 'a' + 1 : 0;
      if (at % 4 < 3) continue;
      int dice = test_below(8);
      w = dice < 5 ? (w * 3 + 1) % WORDS : dice < 7 ? (w * 5 + 2) % WORDS : (w + 4) % WORDS;
   }
}

static double bigram_entropy(const int *text, int n)
{
   double pair[VOCAB][VOCAB] = {{0}}, h = 0;
   for (int i = 0; i + 1 < n; ++i) pair[text[i]][text[i + 1]] += 1;
   for (int a = 0; a < VOCAB; ++a) {
      double sum = 0;
      for (int b = 0; b < VOCAB; ++b) sum += pair[a][b];
      for (int b = 0; b < VOCAB; ++b)
         if (pair[a][b] > 0) h -= pair[a][b] * log(pair[a][b] / sum);
   }
   return h / (n - 1);
}

static int tokens[HELD_OUT * CONTEXT], targets[HELD_OUT * CONTEXT];

static mod_batch windows(const int *text, int n, int n_seqs, int mode)
{
   mod_batch batch = {0};
   for (int s = 0; s < n_seqs; ++s) {
      int start = test_below(n - CONTEXT);
      memcpy(tokens + s * CONTEXT, text + start, CONTEXT * sizeof(int));
      memcpy(targets + s * CONTEXT, text + start + 1, CONTEXT * sizeof(int));
   }
   batch.n_seqs = n_seqs;
   batch.length = CONTEXT;
   batch.tokens = tokens;
   batch.targets = targets;
   batch.mode = mode;
   return batch;
}

int main(void)
{
   static int text[TEXT], unseen[TEXT];
   make_text(text, TEXT, 1);
   make_text(unseen, TEXT, 2);
   double rate = (5 * log(8 / 5.0) + 2 * log(8 / 2.0) + log(8)) / 8 / 4, bigram = bigram_entropy(text, TEXT);
   double bar = rate + (bigram - rate) / 4;
   CHECKF(fabs(rate - 0.2251) < 1e-4 && fabs(bigram - 1.183) < 0.01, "rate %g, bigram %g", rate, bigram);

   mod_error err;
   mod_config cfg = {0};
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = 32;
   cfg.n_heads = 4;
   cfg.d_ff = 64;
   mod_train_desc how = {0};
   how.n_seqs = BATCH;
   how.steps = STEPS;
   how.warmup = 20;
   how.lr = 2.5e-3;
   how.clip_norm = 1;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   CHECK(model && mod_model_randomize(model, 1, NULL) == MOD_RESULT_OK);
   mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
   CHECKF(trainer != NULL, "%s", err.message);
   if (!trainer) return test_end();
   test_state = 42;
   for (int step = 0; step < STEPS; ++step) {
      mod_batch batch = windows(text, TEXT, BATCH, MOD_MODE_TOPK);
      if (mod_train_step(trainer, &batch, NULL, &err) != MOD_RESULT_OK) {
         CHECKF(!"a step failed", "%s", err.message);
         return test_end();
      }
   }
   mod_trainer_destroy(trainer);

   /* The same unseen windows, both ways. */
   double loss[2] = {0, 0};
   mod_tape_desc fwd = {0};
   fwd.forward_only = 1;
   for (int mode = 0; mode < 2; ++mode) {
      test_state = 4242;
      mod_batch batch = windows(unseen, TEXT, HELD_OUT, mode);
      mod_forward out;
      size_t bytes = 0;
      CHECK(mod_forward_plan(&cfg, &batch, &fwd, &bytes, &err) == MOD_RESULT_OK);
      mod_tape *tape = mod_tape_create(&fwd, bytes, NULL, &err);
      CHECKF(tape && mod_model_forward(model, tape, NULL, &batch, &out, &err) == MOD_RESULT_OK, "%s", err.message);
      if (!tape || err.code != MOD_RESULT_OK) return test_end();
      loss[mode] = out.cross_entropy;
      CHECK(out.n_targets == HELD_OUT * CONTEXT);
      for (int b = 0; b < LAYERS; ++b) {
         mod_block_stats s = out.blocks[b];
         if (!s.routed || mode == MOD_MODE_CAUSAL) continue;
         double accuracy = (double)s.agree / (double)s.tokens, skip = 1 - (double)s.kept / (double)s.tokens;
         CHECKF(s.decided && accuracy > skip, "block %d: predictor accuracy %.4f, always 'skip' %.4f", b, accuracy,
                skip);
      }
      mod_tape_destroy(tape);
   }
   double topk = loss[MOD_MODE_TOPK], causal = loss[MOD_MODE_CAUSAL];
   CHECKF(causal < bar, "causal loss %.4f, bar %.4f (rate %.4f, bigram %.4f)", causal, bar, rate, bigram);
   CHECKF(fabs(causal - topk) <= 0.01 * topk, "causal loss %.4f, top-k %.4f: off by %.2f%%", causal, topk,
          100 * fabs(causal - topk) / topk);
   CHECKF(causal > rate && topk > rate, "%.4f, %.4f: below the entropy rate %.4f", causal, topk, rate);
   mod_model_destroy(model);
   return test_end();
}
