/* test_hash.c - the same bits everywhere: one hash of the weights after 50 steps, one of 100 sampled tokens, one of a
   model with a block of every other scheme. C99 that is also C++11. `test_hash --print` prints the three hashes; `test_hash --threads N` trains with N threads;
   `test_hash --levels` prints the instruction sets that this build and this processor have, the best last. The
   variable MOD_TEST_SIMD of the environment is one of them, to be used instead of the best. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include "hashes.h"

enum { VOCAB = 32, CONTEXT = 32, BATCH = 4, STEPS = 50, SAMPLES = 100, TEXT = 4096, PROMPT = 4 };

static int text[TEXT];

/* Text from integers alone: six words of one to six letters, each mostly followed by its successor. */
static void make_text(void)
{
   static const int word[6][6] = {{1, 2, 3, 0, 0, 0},     {4, 5, 6, 7, 0, 0},     {8, 9, 2, 0, 0, 0},
                                  {10, 0, 0, 0, 0, 0},    {11, 12, 13, 14, 15, 16}, {17, 3, 18, 5, 19, 0}};
   uint32_t state = 12345;
   int w = 0, at = 0;
   while (at < TEXT) {
      for (int i = 0; i < 6 && word[w][i] && at < TEXT; ++i) text[at++] = word[w][i];
      if (at < TEXT) text[at++] = 0;
      state = state * 1664525u + 1013904223u;
      w = (state >> 24) < 200 ? (w + 1) % 6 : (int)((state >> 16) % 6u);
   }
}

/* Whether a tape can be made at this level. */
static int has_level(mod_simd level)
{
   mod_tape_desc desc;
   mod_tape *tape;
   memset(&desc, 0, sizeof desc);
   desc.simd = level;
   tape = mod_tape_create(&desc, 65536, NULL, NULL);
   mod_tape_destroy(tape);
   return tape != NULL;
}

enum { SCHEMES = 6, SCHEME_STEPS = 12 };

/* Every scheme but the default in a block of its own: trained, then fed to a session. The weights, thresholds and logits
   after that, in one hash. */
static uint64_t schemes_hash(mod_simd simd, int n_threads)
{
   mod_error err;
   mod_config cfg;
   mod_block_config blocks[SCHEMES];
   mod_train_desc how;
   mod_session_desc session;
   int tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT];
   size_t n_params, n_theta;
   uint64_t hash = 0;
   memset(&cfg, 0, sizeof cfg);
   memset(blocks, 0, sizeof blocks);
   memset(&how, 0, sizeof how);
   memset(&session, 0, sizeof session);
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = SCHEMES;
   cfg.d_model = 16;
   cfg.n_heads = 2;
   cfg.capacity = 0.5;
   cfg.select = MOD_SELECT_ALL;
   cfg.causal = MOD_CAUSAL_BOTH;
   cfg.gate = MOD_GATE_TANH;
   cfg.bypass = MOD_BYPASS_GATED;
   cfg.n_experts = 3;
   cfg.choices = 2;
   cfg.blocks = blocks;
   blocks[0].mlp = MOD_MLP_MOE; /* token-choice, top-2 */
   blocks[1].select = MOD_SELECT_LEARNED; /* staged MoDE, gated bypass */
   blocks[1].mlp = MOD_MLP_MOE;
   blocks[2].mlp = MOD_MLP_MODE;
   blocks[3].select = MOD_SELECT_TOKEN;
   blocks[4].kv_select = MOD_SELECT_LEARNED;
   blocks[5].select = MOD_SELECT_EVERY;
   blocks[5].kv_select = MOD_SELECT_STOCHASTIC;
   how.n_seqs = BATCH;
   how.steps = SCHEME_STEPS;
   how.lr = 4e-3;
   how.dropout = 0.1;
   how.capacity_warmup = 4;
   how.threshold_decay = 0.9;
   how.n_threads = n_threads;
   how.simd = session.simd = simd;
   session.chunk = 7;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   if (!CHECK(model != NULL)) return 0;
   CHECK(mod_model_randomize(model, 2, NULL) == MOD_RESULT_OK);
   mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
   mod_session *decoder = mod_session_create(model, &session, NULL, &err);
   if (CHECK(trainer && decoder)) {
      mod_batch batch;
      memset(&batch, 0, sizeof batch);
      batch.n_seqs = BATCH;
      batch.length = CONTEXT;
      batch.tokens = tokens;
      batch.targets = targets;
      for (int step = 0; step < SCHEME_STEPS; ++step) {
         for (int i = 0; i < BATCH * CONTEXT; ++i) {
            tokens[i] = text[(step * 977 + i / CONTEXT * 331 + i % CONTEXT) % (TEXT - 1)];
            targets[i] = text[(step * 977 + i / CONTEXT * 331 + i % CONTEXT) % (TEXT - 1) + 1];
         }
         CHECKF(mod_train_step(trainer, &batch, NULL, &err) == MOD_RESULT_OK, "%s", err.message);
      }
      CHECKF(mod_session_feed(decoder, tokens, CONTEXT, &err) == MOD_RESULT_OK, "%s", err.message);
      const mod_real *params = mod_model_params(model, &n_params), *logits = mod_session_logits(decoder);
      n_theta = (size_t)mod_config_paths(&cfg) * SCHEMES;
      hash = test_hash_f32(params, n_params) ^ test_hash_f32(logits, VOCAB) * 3;
      for (size_t i = 0; i < n_theta; ++i) {
         float theta = (float)mod_model_thresholds(model)[i];
         hash = hash * 31 + test_hash_f32(&theta, 1);
      }
   }
   mod_session_destroy(decoder);
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   return hash;
}

int main(int argc, char **argv)
{
   static const mod_simd levels[] = {MOD_SIMD_SCALAR, MOD_SIMD_SSE2, MOD_SIMD_AVX2,
                                     MOD_SIMD_AVX512, MOD_SIMD_NEON, MOD_SIMD_WASM128};
   const char *wanted = getenv("MOD_TEST_SIMD");
   mod_simd simd = MOD_SIMD_BEST;
   if (argc > 1 && !strcmp(argv[1], "--levels")) {
      for (size_t i = 0; i < sizeof levels / sizeof *levels; ++i)
         if (has_level(levels[i])) puts(mod_simd_name(levels[i]));
      return 0;
   }
   for (size_t i = 0; wanted && i < sizeof levels / sizeof *levels; ++i)
      if (!strcmp(wanted, mod_simd_name(levels[i]))) simd = levels[i];
   if (wanted && !CHECK(simd != MOD_SIMD_BEST && has_level(simd))) return test_end();

   int print = argc > 1 && !strcmp(argv[1], "--print");
   mod_error err;
   mod_config cfg;
   memset(&cfg, 0, sizeof cfg);
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = 4;
   cfg.d_model = 32;
   cfg.n_heads = 4;
   cfg.n_kv_heads = 2;
   cfg.capacity = 0.25;

   mod_train_desc how;
   memset(&how, 0, sizeof how);
   how.n_seqs = BATCH;
   how.steps = STEPS;
   how.warmup = 5;
   how.lr = 4e-3;
   how.weight_decay = 0.1;
   how.clip_norm = 1;
   how.simd = simd;
   if (argc > 2 && !strcmp(argv[1], "--threads")) how.n_threads = atoi(argv[2]);

   make_text();
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   CHECK(model != NULL && mod_model_randomize(model, 1, NULL) == MOD_RESULT_OK);
   mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
   CHECK(trainer != NULL);
   if (!trainer) return test_end();

   int tokens[BATCH * CONTEXT], targets[BATCH * CONTEXT], clipped = 0;
   double first_loss = 0, last_loss = 0;
   uint32_t state = 99;
   for (int step = 0; step < STEPS; ++step) {
      mod_batch batch;
      mod_step_info info;
      memset(&batch, 0, sizeof batch);
      batch.n_seqs = BATCH;
      batch.length = CONTEXT;
      batch.tokens = tokens;
      batch.targets = targets;
      for (int s = 0; s < BATCH; ++s) {
         state = state * 1664525u + 1013904223u;
         int start = (int)((state >> 8) % (uint32_t)(TEXT - CONTEXT));
         for (int i = 0; i < CONTEXT; ++i) {
            tokens[s * CONTEXT + i] = text[start + i];
            targets[s * CONTEXT + i] = text[start + i + 1];
         }
      }
      CHECK(mod_train_step(trainer, &batch, &info, &err) == MOD_RESULT_OK);
      clipped += info.grad_norm > how.clip_norm;
      if (step == 0) first_loss = info.loss;
      last_loss = info.loss;
   }
   CHECKF(last_loss < 0.8 * first_loss, "loss %g, then %g", first_loss, last_loss);
   CHECKF(clipped > 0 && clipped < STEPS, "%d steps clipped", clipped);

   /* Sampling: half of the tokens greedily, half by chance; the window is the last CONTEXT tokens. The thresholds are
      the predictors' base rate, so that some tokens enter and some do not. */
   int out[PROMPT + SAMPLES], n = PROMPT, entered = 0, passed = 0;
   size_t n_params, bytes = 0;
   mod_tape_desc fwd;
   mod_batch batch;
   mod_sample_desc warm;
   memset(&fwd, 0, sizeof fwd);
   memset(&batch, 0, sizeof batch);
   memset(&warm, 0, sizeof warm);
   fwd.forward_only = 1;
   fwd.simd = simd;
   batch.n_seqs = 1;
   batch.length = CONTEXT;
   batch.mode = MOD_MODE_CAUSAL;
   warm.temperature = 0.9;
   warm.top_k = 20;
   warm.top_p = 0.95;
   warm.seed = 7;
   for (int b = 0; b < cfg.n_layers; ++b) mod_model_thresholds(model)[b] = -1.0986122886681098;
   CHECK(mod_forward_plan(&cfg, &batch, &fwd, &bytes, &err) == MOD_RESULT_OK);
   mod_tape *tape = mod_tape_create(&fwd, bytes, NULL, &err);
   CHECK(tape != NULL);
   for (int i = 0; i < PROMPT; ++i) out[i] = text[i];
   while (tape && n < PROMPT + SAMPLES) {
      mod_forward f;
      int start = n > CONTEXT ? n - CONTEXT : 0;
      batch.length = n - start;
      batch.tokens = out + start;
      mod_tape_reset(tape);
      if (!CHECK(mod_model_forward(model, tape, NULL, &batch, &f, &err) == MOD_RESULT_OK)) break;
      for (int b = 0; b < cfg.n_layers; ++b)
         if (f.blocks[b].routed) {
            entered += (int)f.blocks[b].kept;
            passed += (int)(f.blocks[b].tokens - f.blocks[b].kept);
         }
      out[n] = mod_sample(f.logits->data + (size_t)(n - start - 1) * VOCAB, VOCAB, n % 2 ? &warm : NULL, (uint64_t)n,
                          &err);
      if (!CHECK(out[n] >= 0)) break;
      ++n;
   }
   CHECK(n == PROMPT + SAMPLES);
   CHECKF(entered > 500 && passed > 500, "%d entered, %d passed", entered, passed);

   const mod_real *weights = mod_model_params(model, &n_params);
   uint64_t weights_hash = test_hash_f32(weights, n_params), tokens_hash = test_hash_int(out + PROMPT, SAMPLES);
   uint64_t schemes = schemes_hash(simd, how.n_threads);
   if (print) {
      printf("0x%016llx 0x%016llx 0x%016llx\n", (unsigned long long)weights_hash, (unsigned long long)tokens_hash,
             (unsigned long long)schemes);
      if (test_failed) return test_end();
   } else {
      CHECKF(weights_hash == HASH_WEIGHTS, "0x%016llx", (unsigned long long)weights_hash);
      CHECKF(tokens_hash == HASH_TOKENS, "0x%016llx", (unsigned long long)tokens_hash);
      CHECKF(schemes == HASH_SCHEMES, "0x%016llx", (unsigned long long)schemes);
   }
   mod_tape_destroy(tape);
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   return print ? 0 : test_end();
}
