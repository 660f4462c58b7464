/* test_found.c - what people who tried to break mod.h found, so that it stays mended. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"

#include <time.h>

/* More equal logits than anybody would scan once for each. */
static void many_ties(void)
{
   enum { N = 50257 };
   static float logits[N];
   mod_sample_desc d = {0, 0.95, 1, 1};
   mod_error err;
   clock_t start = clock();
   int seen_high = 0;
   for (uint64_t i = 0; i < 20; ++i) {
      int id = mod_sample(logits, N, &d, i, &err);
      CHECKF(id >= 0 && id < (int)(0.95 * N) + 2, "%d", id);
      seen_high |= id > N / 2;
   }
   CHECK(seen_high);
   CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 20); /* seconds; it once took 12 for a single token */
}

/* A temperature so high that its inverse vanishes: all but the impossible token are equally likely. */
static void hot(void)
{
   const float logits[4] = {1, 2, -HUGE_VALF, 3};
   mod_sample_desc d = {0, 0, 1e46, 1};
   int seen[4] = {0, 0, 0, 0};
   for (uint64_t i = 0; i < 3000; ++i) {
      int id = mod_sample(logits, 4, &d, i, NULL);
      if (CHECK(id >= 0 && id < 4)) ++seen[id];
   }
   CHECKF(seen[2] == 0 && seen[0] > 800 && seen[1] > 800 && seen[3] > 800, "%d %d %d %d", seen[0], seen[1], seen[2], seen[3]);
}

static mod_result refused(mod_tape *t, const mod_tensor *y)
{
   mod_result r = mod_tape_status(t, NULL);
   CHECK(!y);
   mod_tape_reset(t);
   return r;
}

static void odd_shapes(void)
{
   mod_tape *t = mod_tape_create(NULL, 1 << 20, NULL, NULL);
   static float x[64];
   const int no_columns[2] = {4096, 0}, two[2] = {2, 2}, largest[2] = {0, INT_MAX}, four[2] = {4, 4}, column[2] = {4, 1};
   CHECK(refused(t, mod_rmsnorm(t, mod_leaf(t, x, NULL, 2, no_columns), NULL, 1e-5)) == MOD_RESULT_SHAPE);
   CHECK(refused(t, mod_leaf(t, x, NULL, 2, largest)) == MOD_RESULT_ARG);
   /* settings that a float does not hold */
   CHECK(refused(t, mod_rmsnorm(t, mod_leaf(t, x, NULL, 2, two), NULL, 1e-300)) == MOD_RESULT_ARG);
   CHECK(refused(t, mod_scale(t, mod_leaf(t, x, NULL, 2, two), 1e300)) == MOD_RESULT_ARG);
   CHECK(refused(t, mod_rope_table(t, 0, 4, 4, 1e-20)) == MOD_RESULT_ARG);
   /* a NaN goes through relu */
   x[0] = mod__from_bits(0x7fc00000u);
   mod_tensor *y = mod_relu(t, mod_leaf(t, x, NULL, 2, two));
   CHECK(y && mod__nan((double)y->data[0]) && y->data[1] == 0);
   x[0] = 0;
   mod_tape_reset(t);
   /* a selection of a selection is none of the first rows; nor are its rows theirs */
   mod_rows *rows = mod_rows_make(t, 1, 4, NULL);
   mod_rows *kept = mod_rows_topk(t, rows, mod_leaf(t, x, NULL, 2, column), 0.5);
   mod_rows *fewer = mod_rows_topk(t, kept, mod_gather(t, mod_leaf(t, x, NULL, 2, column), kept), 0.5);
   CHECK(fewer && fewer->n == 1 && mod_rows_mask(t, rows, kept) != NULL);
   CHECK(!mod_rows_mask(t, rows, fewer) && mod_tape_status(t, NULL) == MOD_RESULT_SHAPE);
   mod_tape_reset(t);
   /* rows that depend on the data: their number is no accident of shapes */
   rows = mod_rows_make(t, 1, 4, NULL);
   kept = mod_rows_threshold(t, rows, mod_leaf(t, x, NULL, 2, column), -1);
   y = mod_gather(t, mod_leaf(t, x, NULL, 2, four), kept);
   CHECK(y && y->n_max == 4 && !mod_transpose(t, y, 0, 1));
   mod_tape_reset(t);
   /* a loss that was reshaped has a gradient all the same */
   float g[4] = {0, 0, 0, 0};
   const int one[2] = {1, 1};
   y = mod_reshape(t, mod_sum(t, mod_leaf(t, x, g, 2, two)), 2, one);
   CHECK(mod_tape_backward(t, y, NULL) == MOD_RESULT_OK && g[0] == 1 && g[3] == 1);
   mod_tape_destroy(t);
}

/* Marks: of another tape; from before a reset. */
static void marks(void)
{
   mod_tape *a = mod_tape_create(NULL, 1 << 16, NULL, NULL), *b = mod_tape_create(NULL, 1 << 16, NULL, NULL);
   mod_mark mark = mod_tape_mark(a);
   CHECK(mod_tape_rewind(b, mark, NULL) == MOD_RESULT_ARG);
   CHECK(mod_tape_rewind(a, mark, NULL) == MOD_RESULT_OK);
   mod_tape_reset(a);
   CHECK(mod_tape_rewind(a, mark, NULL) == MOD_RESULT_ARG);
   mod_tape_destroy(a);
   mod_tape_destroy(b);
}

static void training_settings(void)
{
   mod_config cfg;
   mod_train_desc how;
   mod_plan plan;
   mod_error err;
   memset(&cfg, 0, sizeof cfg);
   memset(&how, 0, sizeof how);
   cfg.vocab_size = 4;
   cfg.context = cfg.d_model = 4;
   cfg.n_layers = cfg.n_heads = 1;
   const mod_train_desc good = how;
   CHECK(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_OK);
   how.eps = 1e-300; /* 0 as a float: 0 / 0 for a parameter without gradient */
   CHECK(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_ARG);
   how = good, how.lr = 1e38;
   CHECK(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_ARG);
   how = good, how.weight_decay = 1e300;
   CHECK(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_ARG);
   cfg.norm_eps = 1e-300;
   CHECK(mod_config_check(&cfg, &err) == MOD_RESULT_CONFIG);
   cfg.norm_eps = 0, cfg.gate_scale = 1e300;
   CHECK(mod_config_check(&cfg, &err) == MOD_RESULT_CONFIG);
   cfg.gate_scale = 0, cfg.route_first = INT_MIN;
   CHECK(mod_config_block(&cfg, 0).select == 0 && mod_config_check(&cfg, &err) == MOD_RESULT_CONFIG);
   cfg.route_first = 0;

   /* a gradient whose square is no float would stop its parameter for ever */
   mod_model *m = mod_model_create(&cfg, NULL, NULL);
   mod_model_randomize(m, 1, NULL);
   mod_trainer *tr = mod_trainer_create(m, &good, NULL, NULL);
   int tokens[32] = {0}, targets[32] = {1};
   mod_batch batch;
   memset(&batch, 0, sizeof batch);
   batch.n_seqs = 8;
   batch.length = 4;
   batch.tokens = tokens;
   batch.targets = targets;
   CHECK(mod_train_accumulate(tr, &batch, NULL) == MOD_RESULT_OK);
   mod_trainer_grads(tr, NULL)[0] = 1e20f;
   CHECK(mod_train_update(tr, NULL, &err) == MOD_RESULT_NUMERIC);
   CHECK(mod_train_step(tr, &batch, NULL, &err) == MOD_RESULT_OK);
   mod_trainer_destroy(tr);
   mod_model_destroy(m);
}

/* The mask of rows in themselves, when they are a selection. */
static void mask_of_a_selection(void)
{
   mod_tape *t = mod_tape_create(NULL, 1 << 20, NULL, NULL);
   static float x[16];
   const int column[2] = {16, 1};
   for (int i = 0; i < 16; ++i) x[i] = (float)i;
   mod_rows *rows = mod_rows_make(t, 1, 16, NULL), *best = mod_rows_topk(t, rows, mod_leaf(t, x, NULL, 2, column), 0.25);
   const unsigned char *of_rows = mod_rows_mask(t, rows, best), *of_itself = mod_rows_mask(t, best, best);
   for (int i = 0; i < 16; ++i) CHECK(of_rows[i] == (i >= 12));
   for (int i = 0; i < 4; ++i) CHECK(of_itself[i] == 1);
   mod_tape_destroy(t);
}

static mod_config routed_config(void)
{
   mod_config cfg;
   memset(&cfg, 0, sizeof cfg);
   cfg.vocab_size = cfg.context = cfg.d_model = 8;
   cfg.n_layers = cfg.n_heads = cfg.route_first = cfg.route_every = 1;
   return cfg;
}

/* A capacity that the experts' share of it underflows. */
static void no_capacity(void)
{
   mod_config cfg = routed_config();
   cfg.mlp = MOD_MLP_MODE;
   cfg.choice = MOD_CHOICE_EXPERT;
   cfg.capacity = 5e-324;
   CHECK(mod_config_check(&cfg, NULL) == MOD_RESULT_CONFIG);
   cfg.capacity = 1e-40; /* a float holds it, and an expert then has no slot */
   CHECK(mod_config_check(&cfg, NULL) == MOD_RESULT_OK);
   cfg = routed_config();
   cfg.kv_select = MOD_SELECT_LEARNED;
   cfg.kv_capacity = 5e-324;
   CHECK(mod_config_check(&cfg, NULL) == MOD_RESULT_CONFIG);
}

/* Controls that take every token, with keys selected apart that are everybody too. */
static void everybody(void)
{
   static const int selects[] = {MOD_SELECT_EVERY, MOD_SELECT_FIRST},
                    keys[] = {MOD_SELECT_ALL, MOD_SELECT_LEARNED, MOD_SELECT_STOCHASTIC, MOD_SELECT_EVERY};
   for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 4; ++k) {
         mod_config cfg = routed_config();
         mod_plan plan;
         size_t bytes;
         cfg.select = selects[i];
         cfg.capacity = 1;
         cfg.kv_select = keys[k];
         CHECK(mod_model_plan(&cfg, NULL, &plan, NULL) == MOD_RESULT_OK);
         CHECK(mod_session_plan(&cfg, NULL, &bytes, NULL, NULL) == MOD_RESULT_OK);
      }
}

/* Infinite scores, which are legal, gave a threshold that is no number. And a micro-batch that fails leaves no trace in
   the thresholds. */
static void thresholds(void)
{
   mod_config cfg = routed_config();
   mod_train_desc how;
   mod_batch batch;
   mod_param p;
   int tokens[32];
   memset(&how, 0, sizeof how);
   memset(&batch, 0, sizeof batch);
   cfg.d_model = 1;
   cfg.position = MOD_POSITION_LEARNED;
   cfg.gate = MOD_GATE_SIGMOID;
   cfg.causal = MOD_CAUSAL_NONE;
   cfg.capacity = 0.5;
   cfg.head = MOD_HEAD_UNTIED;
   how.n_seqs = 1;
   how.threshold_decay = 0.9;
   for (int i = 0; i < 32; ++i) tokens[i] = i % 8;
   batch.n_seqs = 1;
   batch.length = 8;
   batch.tokens = batch.targets = tokens;
   for (int infinite = 0; infinite < 2; ++infinite) {
      mod_model *m = mod_model_create(&cfg, NULL, NULL);
      mod_trainer *tr = mod_trainer_create(m, &how, NULL, NULL);
      CHECK(m && tr && mod_model_randomize(m, 1, NULL) == MOD_RESULT_OK);
      if (infinite) {
         CHECK(mod_model_param(m, mod_model_find(m, "blocks.0.router"), &p, NULL) == MOD_RESULT_OK);
         p.data[0] = 3e38f;
         CHECK(mod_model_param(m, mod_model_find(m, "embed"), &p, NULL) == MOD_RESULT_OK);
         for (int i = 0; i < 8; ++i) p.data[i] = i % 2 ? 2 : -2;
         CHECK(mod_train_step(tr, &batch, NULL, NULL) == MOD_RESULT_OK);
         CHECK(mod_model_thresholds(m)[0] == 0);
      } else {
         double alone;
         mod_batch larger = batch;
         CHECK(mod_train_step(tr, &batch, NULL, NULL) == MOD_RESULT_OK);
         alone = mod_model_thresholds(m)[0];
         CHECK(alone < 0 || alone > 0);
         mod_trainer_destroy(tr);
         tr = mod_trainer_create(m, &how, NULL, NULL);
         CHECK(tr && mod_model_randomize(m, 1, NULL) == MOD_RESULT_OK);
         larger.n_seqs = 4; /* fails for want of memory, after the router */
         CHECK(mod_train_accumulate(tr, &larger, NULL) == MOD_RESULT_MEMORY);
         CHECK(mod_train_step(tr, &batch, NULL, NULL) == MOD_RESULT_OK);
         CHECK(mod_model_thresholds(m)[0] == alone);
      }
      mod_trainer_destroy(tr);
      mod_model_destroy(m);
   }
}

/* The logits of a class head are of sequences, also where these are of one token each. */
static void logits_of_classes(void)
{
   mod_config cfg = routed_config();
   mod_tape_desc desc;
   mod_batch batch;
   mod_forward out;
   int tokens[3] = {1, 2, 3};
   float logits[64];
   size_t bytes = 0;
   memset(&desc, 0, sizeof desc);
   memset(&batch, 0, sizeof batch);
   cfg.head = MOD_HEAD_CLASS;
   cfg.n_outputs = 5;
   batch.n_seqs = 3;
   batch.length = 1;
   batch.tokens = tokens;
   mod_model *m = mod_model_create(&cfg, NULL, NULL);
   CHECK(m && mod_forward_plan(&cfg, &batch, &desc, &bytes, NULL) == MOD_RESULT_OK);
   mod_tape *t = mod_tape_create(&desc, bytes, NULL, NULL);
   CHECK(mod_model_forward(m, t, NULL, &batch, &out, NULL) == MOD_RESULT_OK && out.pooled);
   CHECK(mod_forward_logits(&out, &batch, logits, NULL) == MOD_RESULT_SHAPE);
   mod_tape_destroy(t);
   mod_model_destroy(m);
}

static void negative_use(void)
{
   const float score[2] = {1, 0};
   int used[2] = {0, -1}, path = 7, slot = 7;
   CHECK(mod_route_choose(score, 1, 2, 1, NULL, used, &path, &slot, NULL) == MOD_RESULT_ARG && path == 7 && slot == 7);
}

int main(void)
{
   many_ties();
   hot();
   odd_shapes();
   marks();
   training_settings();
   mask_of_a_selection();
   no_capacity();
   everybody();
   thresholds();
   logits_of_classes();
   negative_use();
   CHECK(test_passed == 3106); /* nothing was left out */
   return test_end();
}
