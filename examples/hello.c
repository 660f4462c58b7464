/* hello.c - the smallest useful program: a Mixture-of-Depths model reads simple sentences, then writes its own.
   cc -O3 hello.c -lm && ./a.out */
#include <stdio.h>
#include <stdlib.h>
#define MOD_IMPLEMENTATION
#include "../mod.h"

enum { CONTEXT = 64, SEQS = 4, STEPS = 200, VOCAB = 128, TEXT = 4000 };

static mod_error err; /* what went wrong, if anything did */
static void must(int ok) { if (!ok) { puts(err.message); exit(1); } }

int main(void)
{
   static const char *const who[] = {"cat", "dog", "owl", "fox"}, *const does[] = {"sees", "likes", "hears", "finds"};
   static char text[TEXT + 32]; /* "the owl likes the dog. the cat ..." */
   for (uint64_t n = 0, i = 0; n < TEXT; i += 3)
      n += (uint64_t)sprintf(text + n, "the %s %s the %s. ", who[mod_random_bits(1, 0, i) % 4],
                             does[mod_random_bits(1, 0, i + 1) % 4], who[mod_random_bits(1, 0, i + 2) % 4]);

   mod_config cfg = {0}; /* the model: 4 blocks; the 2nd and the 4th take an eighth of the tokens. Zero means default */
   cfg.vocab_size = VOCAB; cfg.context = CONTEXT; cfg.n_layers = 4; cfg.d_model = 32; cfg.n_heads = 2;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   must(model && mod_model_randomize(model, 1, &err) == MOD_RESULT_OK);
   mod_train_desc how = {0}; /* the training: all memory is taken here, none while it runs */
   how.n_seqs = SEQS; how.steps = STEPS; how.lr = 1e-2; how.warmup = 20; how.clip_norm = 1;
   mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
   must(trainer != NULL);
   int tokens[SEQS * CONTEXT], targets[SEQS * CONTEXT];
   mod_batch batch = {0};
   batch.n_seqs = SEQS; batch.length = CONTEXT; batch.tokens = tokens; batch.targets = targets;
   for (int step = 1; step <= STEPS; ++step) {
      mod_step_info info;
      for (int i = 0; i < SEQS * CONTEXT; ++i) { /* random windows; the target of a byte is the one that follows it */
         const char *from = text + mod_random_bits(2, 0, (uint64_t)(step * SEQS + i / CONTEXT)) % (TEXT - CONTEXT);
         tokens[i] = from[i % CONTEXT]; targets[i] = from[i % CONTEXT + 1];
      }
      must(mod_train_step(trainer, &batch, &info, &err) == MOD_RESULT_OK);
      if (step % 50 == 0) printf("step %3d: loss %.3f nats per byte\n", step, info.loss);
   }

   mod_session *session = mod_session_create(model, NULL, NULL, &err); /* to write: a cache for each block */
   must(session != NULL);
   mod_sample_desc sampling = {0, 0, 0.8, 1}; /* top-k and top-p off; temperature; seed */
   for (int n = 1, next = ' '; n <= CONTEXT; ++n) { /* goes on from a space */
      must(mod_session_feed(session, &next, 1, &err) == MOD_RESULT_OK);
      must((next = mod_sample(mod_session_logits(session), VOCAB, &sampling, (uint64_t)n, &err)) >= 0);
      putchar(next);
   }
   puts("...");
   mod_session_destroy(session); mod_trainer_destroy(trainer); mod_model_destroy(model);
}
