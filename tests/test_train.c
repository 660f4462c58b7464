/* test_train.c - what must hold of training: the same bits, AdamW, clip groups, refusal of what is not finite */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <math.h>

enum { VOCAB = 23, CONTEXT = 16, LAYERS = 4, D = 32, SEQS = 4, LENGTH = 16, ROWS = SEQS * LENGTH };

static mod_config small(void)
{
   mod_config cfg = {0};
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = D;
   cfg.n_heads = 4;
   cfg.n_kv_heads = 2;
   cfg.capacity = 0.25;
   return cfg;
}

static mod_train_desc usual(void)
{
   mod_train_desc how = {0};
   how.n_seqs = SEQS;
   how.length = LENGTH;
   how.steps = 50;
   how.warmup = 5;
   how.lr = 3e-3;
   how.weight_decay = 0.1;
   how.clip_norm = 0.5;
   how.seed = 5;
   return how;
}

static mod_model *make(const mod_config *cfg, uint64_t seed)
{
   mod_error err;
   mod_model *model = mod_model_create(cfg, NULL, &err);
   CHECKF(model != NULL, "%s", err.message);
   if (!model) exit(test_end());
   CHECK(mod_model_randomize(model, seed, NULL) == MOD_RESULT_OK);
   return model;
}

static mod_trainer *train(mod_model *model, const mod_train_desc *how)
{
   mod_error err;
   mod_trainer *trainer = mod_trainer_create(model, how, NULL, &err);
   CHECKF(trainer != NULL, "%s", err.message);
   if (!trainer) exit(test_end());
   return trainer;
}

static int tokens[ROWS], targets[ROWS];
static const int ragged[SEQS] = {LENGTH, 3, 0, 9};

/* The batch of step `step`: a function of the step alone. Every third is ragged, some targets are missing. */
static mod_batch batch_of(int step)
{
   mod_batch batch = {0};
   test_state = 88172645463325252ull ^ ((uint64_t)(step + 1) * 0x9e3779b97f4a7c15ull);
   for (int i = 0; i < ROWS; ++i) tokens[i] = test_below(VOCAB);
   for (int i = 0; i < ROWS; ++i) targets[i] = test_below(8) ? (tokens[i] * 5 + i % 3) % VOCAB : -1;
   batch.n_seqs = SEQS;
   batch.length = LENGTH;
   batch.tokens = tokens;
   batch.targets = targets;
   batch.lengths = step % 3 == 2 ? ragged : NULL;
   return batch;
}

static int same(const void *a, const void *b, size_t n_floats) { return !memcmp(a, b, n_floats * sizeof(float)); }

static int same_weights(const mod_model *a, const mod_model *b)
{
   size_t n, m;
   const float *x = mod_model_params(a, &n), *y = mod_model_params(b, &m);
   return n == m && same(x, y, n);
}

static float *copy_weights(const mod_model *model)
{
   size_t n;
   const float *w = mod_model_params(model, &n);
   float *copy = (float *)malloc(n * sizeof(float));
   memcpy(copy, w, n * sizeof(float));
   return copy;
}

/* ---------------------------------------------------------------------------------------------------------------------
   6. The predictor leaves the language model untouched
   ------------------------------------------------------------------------------------------------------------------ */

static void test_predictor_untouched(void)
{
   static const int with[] = {MOD_CAUSAL_PREDICTOR, MOD_CAUSAL_BOTH}, without[] = {MOD_CAUSAL_NONE, MOD_CAUSAL_ROUTER};
   for (int pair = 0; pair < 2; ++pair)
      for (int gate = MOD_GATE_RAW; gate <= MOD_GATE_TANH; ++gate) {
         mod_config cfg = small();
         cfg.gate = gate;
         cfg.causal = with[pair];
         mod_model *on = make(&cfg, 1);
         cfg.causal = without[pair];
         mod_model *off = make(&cfg, 1);
         mod_train_desc how = usual();
         mod_trainer *a = train(on, &how), *b = train(off, &how);
         float *start_on = copy_weights(on);
         int clipped = 0, predictor_clipped = 0, shared = 0, own = 0, moved = 0;
         for (int step = 0; step < 50; ++step) {
            mod_step_info ia, ib;
            mod_batch batch = batch_of(step);
            CHECK(mod_train_step(a, &batch, &ia, NULL) == MOD_RESULT_OK);
            CHECK(mod_train_step(b, &batch, &ib, NULL) == MOD_RESULT_OK);
            CHECK(ia.loss == ib.loss && ia.grad_norm == ib.grad_norm && ia.router_bce == ib.router_bce);
            CHECK(ia.predictor_bce > 0 && ib.predictor_bce == 0 && ib.predictor_grad_norm == 0);
            clipped += ia.grad_norm > how.clip_norm;
            predictor_clipped += ia.predictor_grad_norm > how.clip_norm;
         }
         CHECKF(clipped >= 10, "only %d steps were clipped", clipped);
         CHECK(predictor_clipped < 50);
         for (int i = 0; i < mod_model_param_count(on); ++i) {
            mod_param p, q;
            mod_model_param(on, i, &p, NULL);
            int differs = !same(p.data, start_on + p.offset, p.count);
            if (p.predictor) {
               ++own;
               moved += differs;
               CHECKF(mod_model_find(off, p.name) < 0, "%s", p.name);
               continue;
            }
            CHECKF(mod_model_param(off, mod_model_find(off, p.name), &q, NULL) == MOD_RESULT_OK, "%s", p.name);
            CHECKF(p.count == q.count && same(p.data, q.data, p.count), "%s", p.name);
            CHECKF(differs, "%s did not move", p.name);
            ++shared;
         }
         CHECK(shared == mod_model_param_count(off) && own >= 2 * LAYERS / 2 && moved == own);
         free(start_on);
         mod_trainer_destroy(a);
         mod_trainer_destroy(b);
         mod_model_destroy(on);
         mod_model_destroy(off);
      }
}

/* ---------------------------------------------------------------------------------------------------------------------
   8. The same bits: twice, with any threads, in any order of tasks, in micro-batches
   ------------------------------------------------------------------------------------------------------------------ */

static int jobs_run, tasks_run;
static void reversed(mod_task task, void *arg, int n_tasks, void *user)
{
   CHECK(user == &jobs_run);
   ++jobs_run;
   tasks_run += n_tasks;
   for (int i = n_tasks; i-- > 0;) task(arg, i);
}

static mod_config kind_of(int kind)
{
   mod_config cfg = small();
   if (kind == 1) cfg.select = MOD_SELECT_STOCHASTIC;
   if (kind == 2) {
      cfg.norm = MOD_NORM_LAYER;
      cfg.position = MOD_POSITION_LEARNED;
      cfg.activation = MOD_ACTIVATION_SWIGLU;
      cfg.bias = MOD_BIAS_ON;
      cfg.head = MOD_HEAD_UNTIED;
      cfg.gate = MOD_GATE_SIGMOID;
      cfg.causal = MOD_CAUSAL_BOTH;
      cfg.d_model = 36; /* no power of two: 4 heads of 9 need learned positions */
      cfg.capacity = 0.4;
   }
   return cfg;
}

static void test_same_bits(void)
{
   enum { SAME = 10 }; /* steps: few, as three threads on two cores wait for each other */
   for (int kind = 0; kind < 3; ++kind) {
      mod_config cfg = kind_of(kind);
      mod_model *first = make(&cfg, 2);
      mod_train_desc how = usual();
      mod_trainer *trainer = train(first, &how);
      mod_step_info info[SAME], now;
      for (int step = 0; step < SAME; ++step) {
         mod_batch batch = batch_of(step);
         CHECK(mod_train_step(trainer, &batch, &info[step], NULL) == MOD_RESULT_OK);
         CHECK(info[step].step == step + 1);
      }
      mod_trainer_destroy(trainer);
      for (int threads = 1; threads <= 3; ++threads)
         for (int backwards = 0; backwards < 2; ++backwards) {
            mod_model *again = make(&cfg, 2);
            how = usual();
            how.n_threads = threads;
            jobs_run = tasks_run = 0;
            if (backwards) how.jobs.run = reversed, how.jobs.user = &jobs_run;
            trainer = train(again, &how);
            for (int step = 0; step < SAME; ++step) {
               mod_batch batch = batch_of(step);
               CHECK(mod_train_step(trainer, &batch, &now, NULL) == MOD_RESULT_OK);
               CHECK(now.loss == info[step].loss && now.grad_norm == info[step].grad_norm);
               CHECK(now.predictor_grad_norm == info[step].predictor_grad_norm && now.lr == info[step].lr);
            }
            CHECKF(same_weights(first, again), "kind %d, %d threads, backwards %d", kind, threads, backwards);
            if (backwards && threads > 1) CHECKF(jobs_run > 20 && tasks_run > jobs_run, "%d %d", jobs_run, tasks_run);
            mod_trainer_destroy(trainer);
            mod_model_destroy(again);
         }
      /* Another seed gives other weights: the comparison can fail. */
      mod_model *other = make(&cfg, 3);
      CHECK(!same_weights(first, other));
      mod_model_destroy(other);
      /* Stochastic selection reads the trainer's seed; learned selection does not. */
      mod_model *again = make(&cfg, 2);
      how = usual();
      how.seed = 6;
      trainer = train(again, &how);
      for (int step = 0; step < SAME; ++step) {
         mod_batch batch = batch_of(step);
         CHECK(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
      }
      CHECK(same_weights(first, again) == (kind != 1));
      mod_trainer_destroy(trainer);
      mod_model_destroy(again);
      mod_model_destroy(first);
   }
}

typedef struct scores {
   float block[LAYERS][ROWS];
   int seen;
} scores;

static void copy_scores(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   scores *s = (scores *)user;
   if (site != MOD_SITE_SCORE || block >= LAYERS || rows->n != ROWS) return;
   memcpy(s->block[block], x->data, ROWS * sizeof(float));
   ++s->seen;
}

/* Stochastic selection in training is keyed by the trainer's seed and the step, not by what the batch says. */
static void test_random_selection(void)
{
   static scores drawn[4], again;
   mod_config cfg = kind_of(1);
   mod_model *model = make(&cfg, 2);
   mod_train_desc how = usual();
   mod_trainer *trainer = train(model, &how);
   mod_tape_desc forward_only = {0};
   forward_only.forward_only = 1;
   for (int step = 0; step < 4; ++step) {
      mod_batch batch = batch_of(0);
      size_t bytes = 0;
      batch.probe = copy_scores;
      batch.probe_user = &drawn[step];
      batch.seed = 77;
      batch.step = 77;
      batch.first_id = 77;
      CHECK(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
      CHECK(drawn[step].seen == LAYERS / 2);
      for (int before = 0; before < step; ++before)
         CHECK(!same(drawn[step].block[1], drawn[before].block[1], ROWS) &&
               !same(drawn[step].block[3], drawn[before].block[3], ROWS));
      batch.seed = how.seed; /* the forward pass with these keys draws the same */
      batch.step = (uint64_t)step;
      batch.first_id = 0;
      batch.probe_user = &again;
      CHECK(mod_forward_plan(&cfg, &batch, &forward_only, &bytes, NULL) == MOD_RESULT_OK);
      mod_tape *tape = mod_tape_create(&forward_only, bytes, NULL, NULL);
      mod_forward out;
      CHECK(mod_model_forward(model, tape, NULL, &batch, &out, NULL) == MOD_RESULT_OK);
      CHECK(same(drawn[step].block[1], again.block[1], ROWS) && same(drawn[step].block[3], again.block[3], ROWS));
      mod_tape_destroy(tape);
   }
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
}

/* How many of the whole step's targets and tokens there are, for micro-batches. */
static void totals(const mod_batch *batch, int64_t *n_targets, int64_t *n_tokens)
{
   *n_targets = *n_tokens = 0;
   for (int s = 0; s < batch->n_seqs; ++s)
      for (int i = 0; i < (batch->lengths ? batch->lengths[s] : batch->length); ++i, ++*n_tokens)
         *n_targets += batch->targets[s * batch->length + i] >= 0;
}

/* The batch in micro-batches of `size` sequences. */
static void accumulate(mod_trainer *trainer, const mod_batch *batch, int size)
{
   mod_batch part = *batch;
   totals(batch, &part.n_targets, &part.n_tokens);
   for (int s = 0; s < batch->n_seqs; s += size) {
      part.n_seqs = size;
      part.tokens = batch->tokens + s * batch->length;
      part.targets = batch->targets + s * batch->length;
      part.lengths = batch->lengths ? batch->lengths + s : NULL;
      CHECK(mod_train_accumulate(trainer, &part, NULL) == MOD_RESULT_OK);
   }
}

static void test_micro_batches(void)
{
   for (int kind = 0; kind < 4; ++kind) /* 0: tied; untied: 1: stochastic; 2: everything else; 3: plain */
      for (int size = 1; size <= 2; ++size) {
         mod_config cfg = kind_of(kind == 3 ? 0 : kind);
         if (kind) cfg.head = MOD_HEAD_UNTIED;
         mod_model *whole = make(&cfg, 4), *parts = make(&cfg, 4);
         mod_train_desc how = usual();
         mod_trainer *a = train(whole, &how);
         how.n_seqs = size == 1 ? 1 : SEQS; /* a trainer planned for more takes less */
         mod_trainer *b = train(parts, &how);
         size_t n, embed_checked = 0;
         mod_param embed;
         CHECK(mod_model_param(whole, mod_model_find(whole, "embed"), &embed, NULL) == MOD_RESULT_OK);
         for (int step = 0; step < 12; ++step) {
            mod_step_info ia, ib;
            mod_batch batch = batch_of(step);
            CHECK(mod_train_accumulate(a, &batch, NULL) == MOD_RESULT_OK);
            accumulate(b, &batch, size);
            float *ga = mod_trainer_grads(a, &n), *gb = mod_trainer_grads(b, NULL);
            if (kind) {
               CHECKF(same(ga, gb, n), "kind %d, size %d, step %d", kind, size, step);
            } else { /* a tied embedding is fed by two ops */
               double off = 0, norm = 0;
               size_t end = embed.offset + embed.count;
               for (size_t i = embed.offset; i < end; ++i, ++embed_checked) {
                  off += ((double)ga[i] - (double)gb[i]) * ((double)ga[i] - (double)gb[i]);
                  norm += (double)ga[i] * (double)ga[i];
               }
               CHECKF(sqrt(off) <= 1e-6 * sqrt(norm) && norm > 0, "%g of %g", sqrt(off), sqrt(norm));
               CHECK(same(ga, gb, embed.offset) && same(ga + end, gb + end, n - end));
            }
            CHECK(mod_train_update(a, &ia, NULL) == MOD_RESULT_OK && mod_train_update(b, &ib, NULL) == MOD_RESULT_OK);
            CHECK(ia.step == step + 1 && ib.step == step + 1 && ia.lr == ib.lr);
            CHECKF(fabs(ia.loss - ib.loss) <= 1e-6 * ia.loss, "%g %g", ia.loss, ib.loss);
            CHECKF(fabs(ia.predictor_bce - ib.predictor_bce) <= 1e-6 && fabs(ia.router_bce - ib.router_bce) <= 1e-6,
                   "%g %g", ia.predictor_bce, ib.predictor_bce);
            if (kind) {
               CHECK(ia.grad_norm == ib.grad_norm && ia.predictor_grad_norm == ib.predictor_grad_norm);
               CHECKF(same_weights(whole, parts), "kind %d, size %d, step %d", kind, size, step);
            } else { /* the next step starts from the same weights again */
               memcpy(mod_model_params(parts, NULL), mod_model_params(whole, NULL), n * sizeof(float));
            }
         }
         CHECK(kind || embed_checked == 12 * VOCAB * D);
         mod_trainer_destroy(a);
         mod_trainer_destroy(b);
         mod_model_destroy(whole);
         mod_model_destroy(parts);
      }
}

/* ---------------------------------------------------------------------------------------------------------------------
   AdamW against an implementation in double
   ------------------------------------------------------------------------------------------------------------------ */

static int has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static void test_adamw(void)
{
   for (int kind = 0; kind < 4; ++kind) { /* clip nothing, both, the model only, the predictors only */
      mod_config cfg = kind_of(2);
      mod_model *model = make(&cfg, 6);
      mod_train_desc how = {0}, full;
      how.n_seqs = SEQS;
      how.steps = 12;
      how.lr = 2e-3;
      how.warmup = 3;
      how.beta1 = 0.8;
      how.beta2 = 0.9;
      how.eps = 1e-6;
      how.weight_decay = 0.3;
      if (kind) how.clip_norm = kind == 1 ? 0.01 : 1e6;
      mod_trainer *trainer = train(model, &how);
      full = mod_train_resolve(&how, &cfg);
      size_t n;
      float *w = mod_model_params(model, &n);
      double *ref = (double *)malloc(n * sizeof(double)), *m = (double *)calloc(n, sizeof(double)),
         *v = (double *)calloc(n, sizeof(double));
      double worst = 0;
      int clipped[2] = {0, 0};
      size_t checked = 0;
      if (kind >= 2) { /* one group's gradients are far larger than the other's, and the bar lies between */
         mod_step_info info;
         mod_batch batch = batch_of(0);
         mod_model *probe = make(&cfg, 6);
         how.clip_norm = 0;
         mod_trainer *t = train(probe, &how);
         CHECK(mod_train_step(t, &batch, &info, NULL) == MOD_RESULT_OK);
         CHECK(info.grad_norm > 0 && info.predictor_grad_norm > 0);
         mod_trainer_destroy(t);
         mod_model_destroy(probe);
         mod_trainer_destroy(trainer);
         /* The model's gradient is scaled through the predictors' loss weight: it moves that group alone. */
         mod_model_destroy(model);
         cfg.predictor_loss = (kind == 2 ? 0.01 : 100) * info.grad_norm / info.predictor_grad_norm;
         model = make(&cfg, 6);
         how.clip_norm = info.grad_norm * (kind == 2 ? 0.3 : 5);
         full = mod_train_resolve(&how, &cfg);
         trainer = train(model, &how);
         w = mod_model_params(model, &n);
      }
      for (size_t i = 0; i < n; ++i) ref[i] = (double)w[i];
      for (int step = 0; step < 12; ++step) {
         mod_step_info info;
         mod_batch batch = batch_of(step);
         CHECK(mod_train_accumulate(trainer, &batch, NULL) == MOD_RESULT_OK);
         const float *g = mod_trainer_grads(trainer, NULL);
         double norm[2] = {0, 0}, scale[2] = {1, 1}, lr = mod_train_lr(&full, step);
         for (int i = 0; i < mod_model_param_count(model); ++i) {
            mod_param p;
            mod_model_param(model, i, &p, NULL);
            for (size_t j = p.offset; j < p.offset + p.count; ++j) norm[p.predictor] += (double)g[j] * (double)g[j];
         }
         for (int group = 0; group < 2; ++group) {
            norm[group] = sqrt(norm[group]);
            if (how.clip_norm <= 0 || norm[group] <= how.clip_norm) continue;
            scale[group] = how.clip_norm / norm[group];
            ++clipped[group];
         }
         for (int i = 0; i < mod_model_param_count(model); ++i) {
            mod_param p;
            mod_model_param(model, i, &p, NULL);
            for (size_t j = p.offset; j < p.offset + p.count; ++j) {
               double grad = (double)g[j] * scale[p.predictor];
               m[j] = 0.8 * m[j] + 0.2 * grad;
               v[j] = 0.9 * v[j] + 0.1 * grad * grad;
               double mhat = m[j] / (1 - pow(0.8, step + 1)), vhat = v[j] / (1 - pow(0.9, step + 1));
               ref[j] -= lr * (mhat / (sqrt(vhat) + 1e-6) + (p.decay ? 0.3 * ref[j] : 0));
            }
         }
         CHECK(mod_train_update(trainer, &info, NULL) == MOD_RESULT_OK);
         CHECKF(fabs(info.grad_norm - norm[0]) <= 1e-12 * norm[0], "%.17g %.17g", info.grad_norm, norm[0]);
         CHECKF(fabs(info.predictor_grad_norm - norm[1]) <= 1e-12 * norm[1], "%.17g %.17g", info.predictor_grad_norm,
                norm[1]);
         CHECK(info.lr == lr);
         for (size_t i = 0; i < n; ++i, ++checked) {
            /* a rounding of the weight and a few of the update, each step */
            double bar = (step + 1) * (6e-8 * fabs(ref[i]) + 2e-6 * lr) + 1e-30;
            worst = fmax(worst, fabs((double)w[i] - ref[i]) / bar);
         }
      }
      CHECKF(worst <= 1, "kind %d: %g of the bar", kind, worst);
      CHECK(checked == 12 * n);
      CHECKF(clipped[0] == (kind == 1 || kind == 2 ? 12 : 0), "kind %d: %d", kind, clipped[0]);
      CHECKF(kind == 3 ? clipped[1] >= 6 : clipped[1] == (kind == 1 ? 12 : 0), "kind %d: %d", kind, clipped[1]);
      free(ref);
      free(m);
      free(v);
      mod_trainer_destroy(trainer);
      mod_model_destroy(model);
   }

   /* What decays: matrices of the language model and the embedding. */
   int decays = 0, not_decays = 0;
   for (int kind = 0; kind < 3; ++kind) {
      mod_config cfg = kind_of(kind);
      mod_model *model = make(&cfg, 6);
      for (int i = 0; i < mod_model_param_count(model); ++i) {
         mod_param p;
         mod_model_param(model, i, &p, NULL);
         int never = p.predictor || has(p.name, "router") || has(p.name, "norm") || has(p.name, "pos") || p.n_dim == 1;
         CHECKF(p.decay == !never, "%s", p.name);
         CHECK(p.predictor == has(p.name, "predictor"));
         decays += p.decay;
         not_decays += !p.decay;
      }
      mod_model_destroy(model);
   }
   CHECK(decays > 3 * LAYERS * 5 && not_decays > 3 * LAYERS * 2);
}

/* ---------------------------------------------------------------------------------------------------------------------
   mod_adamw, for a network of one's own
   ------------------------------------------------------------------------------------------------------------------ */

enum { FLAT = 3 * 1024 + 77, FLAT_STEPS = 14 };

static mod_train_desc flat_desc(void)
{
   mod_train_desc how = {0};
   how.steps = 12;
   how.warmup = 3;
   how.lr = 2e-3;
   how.beta1 = 0.8;
   how.beta2 = 0.9;
   how.eps = 1e-6;
   how.weight_decay = 0.3;
   return mod_train_resolve(&how, NULL);
}

/* The gradient of step `step`: of any sizes, some of them 0 at times or always. */
static void flat_gradient(float *g, int step)
{
   test_state = 88172645463325252ull ^ ((uint64_t)(step + 1) * 0x9e3779b97f4a7c15ull);
   for (int i = 0; i < FLAT; ++i) g[i] = (float)(test_normal() * pow(10, i % 7 - 4));
   for (int i = step % 5; i < FLAT; i += 5) g[i] = 0;
   for (int i = 0; i < FLAT; i += 50) g[i] = 0;
}

static void test_adamw_alone(void)
{
   static float w[FLAT], g[FLAT], m[FLAT], v[FLAT], start[FLAT], was[3][FLAT];
   static double ref[FLAT], ref_m[FLAT], ref_v[FLAT];
   mod_error err;
   for (int i = 0; i < FLAT; ++i) start[i] = (float)(test_normal() * (i % 3 ? 0.02 : 1));

   /* Against an implementation in double: without a clip, always clipped, and never though there is one. */
   for (int kind = 0; kind < 3; ++kind) {
      mod_train_desc how = flat_desc();
      double worst = 0;
      int clipped = 0;
      how.clip_norm = kind == 0 ? 0 : kind == 1 ? 0.5 : 1e6;
      memcpy(w, start, sizeof w);
      memset(m, 0, sizeof m);
      memset(v, 0, sizeof v);
      memset(ref_m, 0, sizeof ref_m);
      memset(ref_v, 0, sizeof ref_v);
      for (int i = 0; i < FLAT; ++i) ref[i] = (double)w[i];
      for (int step = 0; step < FLAT_STEPS; ++step) {
         double squares = 0, norm = -1, scale = 1, lr = mod_train_lr(&how, step), bar;
         flat_gradient(g, step);
         for (int i = 0; i < FLAT; ++i) squares += (double)g[i] * (double)g[i];
         if (how.clip_norm > 0 && sqrt(squares) > how.clip_norm) scale = how.clip_norm / sqrt(squares), ++clipped;
         for (int i = 0; i < FLAT; ++i) {
            double grad = (double)g[i] * scale;
            ref_m[i] = 0.8 * ref_m[i] + 0.2 * grad;
            ref_v[i] = 0.9 * ref_v[i] + 0.1 * grad * grad;
            double mhat = ref_m[i] / (1 - pow(0.8, step + 1)), vhat = ref_v[i] / (1 - pow(0.9, step + 1));
            ref[i] -= lr * (mhat / (sqrt(vhat) + 1e-6) + 0.3 * ref[i]);
         }
         memcpy(was[0], g, sizeof g);
         CHECKF(mod_adamw(&how, step, w, g, m, v, FLAT, &norm, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK,
                "%s", err.message);
         CHECK(same(was[0], g, FLAT));
         CHECKF(fabs(norm - sqrt(squares)) <= 1e-12 * norm, "%.17g %.17g", norm, sqrt(squares));
         for (int i = 0; i < FLAT; ++i) {
            bar = (step + 1) * (6e-8 * fabs(ref[i]) + 2e-6 * how.lr) + 1e-30;
            worst = fmax(worst, fabs((double)w[i] - ref[i]) / bar);
         }
      }
      CHECKF(worst <= 1, "kind %d: %g of the bar", kind, worst);
      CHECK(clipped == (kind == 1 ? FLAT_STEPS : 0));
   }

   /* The first step moves each number by the learning rate, against its gradient, and decays it; what has no gradient
      decays only. */
   mod_train_desc how = flat_desc();
   for (int step = 0, wrong; step < 2; ++step) { /* counted as step 0 or as step 20, past the end of the schedule */
      int number = step ? 20 : 0;
      double lr = mod_train_lr(&how, number);
      CHECK(lr == (step ? how.lr_min : how.lr / 3));
      memcpy(w, start, sizeof w);
      memset(m, 0, sizeof m);
      memset(v, 0, sizeof v);
      flat_gradient(g, 0);
      CHECK(mod_adamw(&how, number, w, g, m, v, FLAT, NULL, NULL) == MOD_RESULT_OK);
      wrong = 0;
      double b1 = 0.2 / (1 - pow(0.8, number + 1)), b2 = 0.1 / (1 - pow(0.9, number + 1));
      for (int i = 0; i < FLAT; ++i) {
         double grad = (double)g[i], x = (double)start[i];
         double want = x - lr * (b1 * grad / (sqrt(b2 * grad * grad) + 1e-6) + 0.3 * x);
         wrong += !(fabs((double)w[i] - want) <= 1.2e-7 * fabs(x) + 2e-6 * lr);
         wrong += grad == 0 && (m[i] != 0 || v[i] != 0);
      }
      CHECKF(wrong == 0, "step %d: %d", number, wrong);
   }

   /* The same bits with any number of threads, jobs in any order, any instructions; and from the arrays alone. */
   static const int threads[] = {1, 2, 3, 7, 2};
   uint64_t first = 0;
   for (int run = 0; run < 7; ++run) {
      uint64_t hash = 0;
      memcpy(w, start, sizeof w);
      memset(m, 0, sizeof m);
      memset(v, 0, sizeof v);
      for (int step = 0; step < FLAT_STEPS; ++step) {
         mod_train_desc d = flat_desc();
         d.clip_norm = 1;
         d.n_threads = run < 5 ? threads[run] : 1 + step % 4;
         if (run == 4) d.jobs.run = reversed, d.jobs.user = &jobs_run;
         d.simd = run == 5 ? MOD_SIMD_SCALAR : MOD_SIMD_BEST;
         flat_gradient(g, step);
         CHECK(mod_adamw(&d, step, w, g, m, v, FLAT, NULL, &err) == MOD_RESULT_OK);
         hash = (hash * 31 + test_hash_f32(w, FLAT)) * 31 + test_hash_f32(m, FLAT) + test_hash_f32(v, FLAT);
      }
      if (run == 0) first = hash;
      CHECKF(hash == first, "run %d", run);
   }

   /* A gradient that is not finite, wherever it stands: nothing changes. */
   static const int at[] = {0, 1, 1023, 1024, 3 * 1024, FLAT - 1};
   static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
   memcpy(was[0], w, sizeof w);
   memcpy(was[1], m, sizeof m);
   memcpy(was[2], v, sizeof v);
   for (int i = 0; i < 6; ++i)
      for (int k = 0; k < 4; ++k)
         for (int clip = 0; clip < 2; ++clip) {
            double norm = -5;
            how = flat_desc();
            how.clip_norm = clip;
            flat_gradient(g, 1);
            g[at[i]] = bad[k];
            CHECKF(mod_adamw(&how, 3, w, g, m, v, FLAT, &norm, &err) == MOD_RESULT_NUMERIC &&
                      err.code == MOD_RESULT_NUMERIC && has(err.message, "not finite"), "%d %d", at[i], k);
            CHECKF(same(was[0], w, FLAT) && same(was[1], m, FLAT) && same(was[2], v, FLAT) && norm == -5, "%d %d",
                   at[i], k);
         }
   /* One whose square a float cannot hold would freeze its parameter: refused as well, but clipped it is fine. */
   for (int clip = 0; clip < 2; ++clip) {
      double norm = -5;
      how = flat_desc();
      how.clip_norm = clip;
      flat_gradient(g, 1);
      g[7] = 1e30f;
      mod_result result = mod_adamw(&how, 3, w, g, m, v, FLAT, &norm, &err);
      CHECK(result == (clip ? MOD_RESULT_OK : MOD_RESULT_NUMERIC));
      if (clip) CHECK(fabs(norm / (double)1e30f - 1) < 1e-12);
      else CHECK(same(was[0], w, FLAT) && same(was[1], m, FLAT) && same(was[2], v, FLAT) && norm == -5);
      for (int i = 0; i < FLAT; ++i)
         if (!isfinite(w[i]) || !isfinite(m[i]) || !isfinite(v[i])) CHECKF(0, "%d", i);
   }

   /* Nothing to do; and steps without end. */
   double norm = -5;
   how = flat_desc();
   CHECK(mod_adamw(&how, 0, NULL, NULL, NULL, NULL, 0, &norm, &err) == MOD_RESULT_OK && norm == 0);
   flat_gradient(g, 2);
   CHECK(mod_adamw(&how, INT64_MAX - 1, w, g, m, v, FLAT, NULL, &err) == MOD_RESULT_OK);
   for (int i = 0; i < FLAT; ++i)
      if (!isfinite(w[i])) CHECKF(0, "%d", i);
}

/* What a trainer does with all its gradients, mod_adamw does with the same: to the bit where the powers of beta are
   exact. */
static void test_adamw_like_trainer(void)
{
   for (int exact = 0; exact < 2; ++exact)
      for (int by_tensor = 0; by_tensor < 2; ++by_tensor) { /* a decay of its own for each, or a clip for all */
         mod_config cfg = small();
         mod_train_desc how = usual(), full;
         size_t n;
         mod_error err;
         int clipped = 0, bits = 0;
         double worst = 0;
         cfg.causal = MOD_CAUSAL_NONE; /* no predictors: one group */
         how.steps = 20;
         how.beta1 = exact ? 0.75 : 0.9;
         how.beta2 = exact ? 0.875 : 0.95;
         if (by_tensor) how.clip_norm = 0;
         else how.weight_decay = 0;
         full = mod_train_resolve(&how, &cfg);
         mod_model *model = make(&cfg, 8);
         mod_trainer *trainer = train(model, &how);
         const float *weights = mod_model_params(model, &n);
         float *w = copy_weights(model), *m = (float *)calloc(n, sizeof *m), *v = (float *)calloc(n, sizeof *v);
         for (int step = 0; step < 16; ++step) {
            mod_step_info info;
            mod_batch batch = batch_of(step);
            double norm = 0, squares = 0;
            CHECK(mod_train_accumulate(trainer, &batch, &err) == MOD_RESULT_OK);
            const float *g = mod_trainer_grads(trainer, NULL);
            if (!by_tensor) CHECK(mod_adamw(&full, step, w, g, m, v, n, &norm, &err) == MOD_RESULT_OK);
            for (int i = 0; by_tensor && i < mod_model_param_count(model); ++i) {
               mod_train_desc d = full;
               mod_param p;
               double part;
               CHECK(mod_model_param(model, i, &p, NULL) == MOD_RESULT_OK);
               if (!p.decay) d.weight_decay = 0;
               mod_result result = mod_adamw(&d, step, w + p.offset, g + p.offset, m + p.offset, v + p.offset, p.count,
                                             &part, &err);
               CHECK(result == MOD_RESULT_OK);
               squares += part * part;
            }
            if (by_tensor) norm = sqrt(squares);
            CHECK(mod_train_update(trainer, &info, &err) == MOD_RESULT_OK);
            clipped += how.clip_norm > 0 && info.grad_norm > how.clip_norm;
            CHECKF(fabs(info.grad_norm - norm) <= 1e-12 * norm, "%.17g %.17g", info.grad_norm, norm);
            bits += same(w, weights, n);
            for (size_t i = 0; i < n; ++i)
               worst = fmax(worst, fabs((double)w[i] - (double)weights[i]) / (fabs((double)w[i]) + how.lr));
         }
         CHECKF(worst <= 1e-6, "exact %d, by tensor %d: %g", exact, by_tensor, worst);
         if (exact && by_tensor) CHECKF(bits == 16, "%d of 16 steps give the same bits", bits);
         CHECK(by_tensor || clipped >= 10);
         free(w);
         free(m);
         free(v);
         mod_trainer_destroy(trainer);
         mod_model_destroy(model);
      }
}

static void test_schedule(void)
{
   mod_config cfg = small();
   mod_train_desc how = {0};
   how.steps = 100;
   how.warmup = 10;
   how.lr = 0.02;
   how.lr_min = 0.001;
   how = mod_train_resolve(&how, &cfg);
   CHECK(fabs(mod_train_lr(&how, 0) - 0.002) < 1e-12);   /* the first step already moves */
   CHECK(fabs(mod_train_lr(&how, 4) - 0.010) < 1e-12);
   CHECK(fabs(mod_train_lr(&how, 9) - 0.020) < 1e-12);
   CHECK(fabs(mod_train_lr(&how, 10) - 0.020) < 1e-12);
   CHECK(fabs(mod_train_lr(&how, 55) - (0.001 + 0.0095)) < 3e-4); /* half way down */
   CHECK(mod_train_lr(&how, 99) < 0.001 + 3e-5 && mod_train_lr(&how, 99) >= 0.001);
   CHECK(fabs(mod_train_lr(&how, 100) - 0.001) < 1e-12);
   CHECK(mod_train_lr(&how, 101) == 0.001 && mod_train_lr(&how, 1000000000) == 0.001);
   for (int step = 0; step < 9; ++step) CHECK(mod_train_lr(&how, step + 1) > mod_train_lr(&how, step));
   for (int step = 10; step < 99; ++step) CHECK(mod_train_lr(&how, step + 1) < mod_train_lr(&how, step));
   how.warmup = 0;
   how = mod_train_resolve(&how, &cfg);
   CHECK(fabs(mod_train_lr(&how, 0) - 0.02) < 1e-12);
   mod_train_desc plain = {0};
   plain = mod_train_resolve(&plain, &cfg);
   CHECK(plain.n_seqs == 8 && plain.length == CONTEXT && plain.steps == 1000 && plain.lr == 1e-3 && plain.warmup == 0);
   CHECK(fabs(plain.lr_min - 1e-4) < 1e-12 && plain.beta1 == 0.9 && plain.beta2 == 0.95 && plain.eps == 1e-8);
   CHECK(plain.weight_decay == 0 && plain.clip_norm == 0 && plain.n_threads == 1);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Not finite: refused before anything changes
   ------------------------------------------------------------------------------------------------------------------ */

enum { NAN_WEIGHT, INF_WEIGHT, NAN_PREDICTOR, INF_PREDICTOR, HUGE_LOGITS, INF_GRADIENT, POISONS };

static void poison(mod_model *model, int how)
{
   mod_param p;
   if (how == NAN_PREDICTOR || how == INF_PREDICTOR) {
      for (int i = 0; i < mod_model_param_count(model); ++i) {
         mod_model_param(model, i, &p, NULL);
         if (p.predictor) p.data[p.count - 1] = how == NAN_PREDICTOR ? NAN : INFINITY;
      }
      return;
   }
   mod_model_param(model, mod_model_find(model, "blocks.2.attn.wq"), &p, NULL);
   if (how == NAN_WEIGHT) p.data[0] = NAN;
   if (how == INF_WEIGHT) p.data[0] = INFINITY;
   if (how < HUGE_LOGITS) return;
   mod_param head, gain;
   CHECK(mod_model_param(model, mod_model_find(model, "head.w"), &head, NULL) == MOD_RESULT_OK ||
         mod_model_param(model, mod_model_find(model, "head"), &head, NULL) == MOD_RESULT_OK);
   if (how == HUGE_LOGITS) {
      for (size_t i = 0; i < head.count; ++i) head.data[i] = i & 1 ? 3e38f : -3e38f;
      return;
   }
   /* Finite loss, infinite gradient: the head's first row is -3.3e38 for class 0 and 3.3e38 for the others, and the
      gain before it makes logits of size 1 of that. With class 0 as the only target the gradient with respect to the
      head's input is 3.3e38 (2 - 2 p_0). */
   CHECK(mod_model_param(model, mod_model_find(model, "norm"), &gain, NULL) == MOD_RESULT_OK ||
         mod_model_param(model, mod_model_find(model, "norm.gain"), &gain, NULL) == MOD_RESULT_OK ||
         mod_model_param(model, mod_model_find(model, "final_norm.gain"), &gain, NULL) == MOD_RESULT_OK);
   memset(head.data, 0, head.count * sizeof(float));
   for (int c = 0; c < VOCAB; ++c) head.data[c] = c ? 3.3e38f : -3.3e38f;
   for (int i = 0; i < D; ++i) gain.data[i] = 1e-39f;
}

static void test_not_finite(void)
{
   int refused = 0;
   for (int kind = 0; kind < 2; ++kind)
      for (int bad = 0; bad < POISONS; ++bad)
         for (int parts = 0; parts < 2; ++parts) {
            mod_config cfg = kind_of(kind);
            if (kind == 1 && (bad == NAN_PREDICTOR || bad == INF_PREDICTOR)) continue;
            cfg.head = MOD_HEAD_UNTIED;
            mod_model *clean = make(&cfg, 7), *hit = make(&cfg, 7);
            mod_train_desc how = usual();
            mod_trainer *a = train(clean, &how), *b = train(hit, &how);
            for (int step = 0; step < 10; ++step) {
               mod_step_info ia, ib;
               if (step == 0 || step == 4 || step == 5) {
                  size_t n;
                  mod_error err = {MOD_RESULT_OK, NULL, 0, 0};
                  float *good = copy_weights(hit), *weights = mod_model_params(hit, &n);
                  poison(hit, bad);
                  float *poisoned = copy_weights(hit);
                  mod_batch batch = batch_of(step);
                  if (bad == INF_GRADIENT)
                     for (int i = 0; i < ROWS; ++i) targets[i] = i ? -1 : 0;
                  mod_result result;
                  if (parts) { /* after a good micro-batch, whose gradient must not stay behind either */
                     mod_batch part = batch;
                     totals(&batch, &part.n_targets, &part.n_tokens);
                     part.n_seqs = 1;
                     memcpy(weights, good, n * sizeof(float));
                     CHECK(mod_train_accumulate(b, &part, NULL) == MOD_RESULT_OK);
                     memcpy(weights, poisoned, n * sizeof(float));
                     result = mod_train_accumulate(b, &part, &err);
                     CHECKF(result == (bad == INF_GRADIENT ? MOD_RESULT_OK : MOD_RESULT_NUMERIC), "bad %d: %d", bad,
                            result);
                     if (result == MOD_RESULT_OK) result = mod_train_update(b, NULL, &err);
                  } else {
                     result = mod_train_step(b, &batch, NULL, &err);
                  }
                  CHECKF(result == MOD_RESULT_NUMERIC && err.code == result && err.message,
                         "kind %d, bad %d, parts %d: %s", kind, bad, parts, mod_result_name(result));
                  refused += result == MOD_RESULT_NUMERIC;
                  CHECK(same(weights, poisoned, n));
                  CHECKF(bad == INF_GRADIENT || mod_trainer_forward(b) == NULL,
                         "bad %d: a failed forward pass is shown", bad);
                  const float *g = mod_trainer_grads(b, NULL);
                  int zero = 1;
                  for (size_t i = 0; i < n; ++i) zero = zero && g[i] == 0;
                  CHECKF(zero, "gradients left behind: kind %d, bad %d, parts %d", kind, bad, parts);
                  memcpy(weights, good, n * sizeof(float));
                  free(good);
                  free(poisoned);
               }
               mod_batch batch = batch_of(step);
               CHECK(mod_train_step(a, &batch, &ia, NULL) == MOD_RESULT_OK);
               CHECK(mod_train_step(b, &batch, &ib, NULL) == MOD_RESULT_OK);
               CHECK(ia.step == ib.step && ia.loss == ib.loss && ia.grad_norm == ib.grad_norm && ia.lr == ib.lr);
               CHECKF(same_weights(clean, hit), "kind %d, bad %d, parts %d, step %d", kind, bad, parts, step);
            }
            mod_trainer_destroy(a);
            mod_trainer_destroy(b);
            mod_model_destroy(clean);
            mod_model_destroy(hit);
         }
   CHECK(refused == 3 * 2 * (POISONS + POISONS - 2));
}

/* ---------------------------------------------------------------------------------------------------------------------
   7. No allocator call after set-up
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct counter {
   int allocs, frees;
} counter;

static void *count_alloc(size_t size, void *user)
{
   ++((counter *)user)->allocs;
   return malloc(size);
}

static void count_free(void *memory, void *user)
{
   ++((counter *)user)->frees;
   free(memory);
}

static void test_allocator(void)
{
   for (int kind = 0; kind < 3; ++kind) {
      counter calls = {0, 0};
      mod_allocator allocator = {count_alloc, count_free, NULL};
      allocator.user = &calls;
      mod_config cfg = kind_of(kind);
      mod_train_desc how = usual();
      mod_tape_desc forward_only = {0};
      size_t bytes;
      forward_only.forward_only = 1;
      how.n_threads = 2;
      mod_model *model = mod_model_create(&cfg, &allocator, NULL);
      mod_trainer *trainer = mod_trainer_create(model, &how, &allocator, NULL);
      mod_batch batch = batch_of(0);
      batch.mode = MOD_MODE_CAUSAL;
      CHECK(mod_forward_plan(&cfg, &batch, &forward_only, &bytes, NULL) == MOD_RESULT_OK);
      mod_tape *tape = mod_tape_create(&forward_only, bytes, &allocator, NULL);
      CHECK(model && trainer && tape);
      CHECKF(calls.allocs == 3 && calls.frees == 0, "%d %d", calls.allocs, calls.frees); /* one block each */
      CHECK(mod_model_randomize(model, 1, NULL) == MOD_RESULT_OK);
      for (int step = 0; step < 5; ++step) {
         mod_forward out;
         batch = batch_of(step);
         CHECK(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
         batch.mode = MOD_MODE_CAUSAL;
         mod_tape_reset(tape);
         CHECK(mod_model_forward(model, tape, NULL, &batch, &out, NULL) == MOD_RESULT_OK);
         CHECK(mod_sample(out.logits->data, VOCAB, NULL, 0, NULL) >= 0);
      }
      CHECKF(calls.allocs == 3 && calls.frees == 0, "%d %d", calls.allocs, calls.frees);
      mod_tape_destroy(tape);
      mod_trainer_destroy(trainer);
      mod_model_destroy(model);
      CHECKF(calls.allocs == 3 && calls.frees == 3, "%d %d", calls.allocs, calls.frees);
   }
}

int main(void)
{
   test_predictor_untouched();
   test_same_bits();
   test_random_selection();
   test_micro_batches();
   test_adamw();
   test_adamw_alone();
   test_adamw_like_trainer();
   test_schedule();
   test_not_finite();
   test_allocator();
   return test_end();
}
