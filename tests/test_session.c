/* test_session.c - decoding with a cache gives what the whole sequence at once gives, bit for bit; what a session
   takes, what it refuses, and that a refusal changes nothing; thresholds from held-out text */
#include <stddef.h>
static void *counted_malloc(size_t size);
static void counted_free(void *memory);
#define MOD_MALLOC(size) counted_malloc(size)
#define MOD_FREE(memory) counted_free(memory)
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <limits.h>
#include <math.h>
#if (defined(__unix__) || defined(__APPLE__)) && !defined(MOD_TEST_NO_THREADS)
#define THREADS 1
#include <pthread.h>
#else
#define THREADS 0
#endif

enum { VOCAB = 31, CONTEXT = 100, LAYERS = 4, D = 24, SEQS = 4, ROWS = SEQS * CONTEXT };
enum { POISON = VOCAB - 1 }; /* a token that no text has */
static const int lengths[SEQS] = {CONTEXT, 1, 37, 71};
static int tokens[ROWS], targets[ROWS];

/* All that the library takes from malloc passes here. */
static int mallocs, live;
static void *counted_malloc(size_t size)
{
   ++mallocs;
   ++live;
   return malloc(size);
}
static void counted_free(void *memory)
{
   --live;
   free(memory);
}

/* An allocator of the caller's. */
static int user_allocs, user_live;
static void *user_alloc(size_t size, void *user)
{
   CHECK(user == &user_live);
   ++user_allocs;
   ++user_live;
   return malloc(size);
}
static void user_free(void *memory, void *user)
{
   CHECK(user == &user_live);
   --user_live;
   free(memory);
}
static const mod_allocator user_allocator = {user_alloc, user_free, &user_live};

/* Runs tasks one after the other, the last one first. */
static void backwards(mod_task task, void *arg, int n_tasks, void *user)
{
   ++*(int *)user;
   while (n_tasks-- > 0) task(arg, n_tasks);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Models
   ------------------------------------------------------------------------------------------------------------------ */

enum {
   PLAIN,      /* all defaults: RMS, RoPE, GELU, tied, raw gate, predictor */
   BOTH,       /* LayerNorm, learned positions, ReLU, biases, untied, sigmoid gate, router and predictor trained */
   ROUTER,     /* SwiGLU, grouped heads, tanh gate, the router decides */
   NONE,       /* LayerNorm, SwiGLU, biases, one key head, gate one, nobody is trained to decide */
   MIXED,      /* RMS, learned positions, biases, grouped heads, untied, gate one, predictor */
   STOCHASTIC, /* random selection */
   DENSE,
   FIRST,      /* the first block is routed, and the third */
   EVERY,      /* all blocks routed */
   OWN,        /* all blocks routed, each with its own selection, capacity and gate */
   FULL,       /* routed blocks of capacity 1 */
   NOBODY,     /* thresholds that no token passes */
   EVERYBODY,  /* thresholds that every token passes */
   CALIBRATED, /* thresholds from mod_model_calibrate */
   VARIANTS
};

static const mod_block_config own[LAYERS] = {{.gate = MOD_GATE_ONE, .capacity = 0.5},
                                             {.select = MOD_SELECT_STOCHASTIC, .capacity = 0.3},
                                             {.gate = MOD_GATE_SIGMOID, .capacity = 1},
                                             {.gate = MOD_GATE_TANH, .capacity = 0.75}};

static mod_config variant(int v)
{
   mod_config cfg = {0};
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = D;
   cfg.d_ff = 2 * D;
   cfg.n_heads = 4;
   cfg.capacity = 0.25;
   if (v == BOTH || v == NONE) cfg.norm = MOD_NORM_LAYER;
   if (v == BOTH || v == NONE || v == MIXED) cfg.bias = MOD_BIAS_ON;
   if (v == BOTH || v == MIXED) cfg.position = MOD_POSITION_LEARNED, cfg.head = MOD_HEAD_UNTIED;
   if (v == ROUTER || v == MIXED) cfg.n_kv_heads = 2;
   if (v == NONE) cfg.n_kv_heads = 1;
   if (v == ROUTER || v == NONE) cfg.activation = MOD_ACTIVATION_SWIGLU;
   if (v == NONE || v == MIXED) cfg.gate = MOD_GATE_ONE;
   if (v == BOTH) cfg.activation = MOD_ACTIVATION_RELU, cfg.gate = MOD_GATE_SIGMOID, cfg.causal = MOD_CAUSAL_BOTH;
   if (v == ROUTER) cfg.gate = MOD_GATE_TANH, cfg.causal = MOD_CAUSAL_ROUTER;
   if (v == NONE) cfg.causal = MOD_CAUSAL_NONE;
   if (v == STOCHASTIC) cfg.select = MOD_SELECT_STOCHASTIC;
   if (v == DENSE) cfg.select = MOD_SELECT_ALL;
   if (v == FIRST || v == EVERY || v == OWN) cfg.route_first = 1;
   if (v == EVERY || v == OWN) cfg.route_every = 1;
   if (v == OWN) cfg.blocks = own;
   if (v == FULL) cfg.capacity = 1;
   return cfg;
}

static void fill_text(void)
{
   for (int i = 0; i < ROWS; ++i) tokens[i] = test_below(POISON);
   for (int i = 0; i < ROWS; ++i) targets[i] = i % CONTEXT == CONTEXT - 1 ? -1 : tokens[i + 1];
}

static mod_batch make_batch(int mode)
{
   mod_batch batch = {0};
   batch.n_seqs = SEQS;
   batch.length = CONTEXT;
   batch.tokens = tokens;
   batch.lengths = lengths;
   batch.mode = mode;
   batch.seed = 3;
   return batch;
}

/* The block is decided in causal mode by a deciding logit and a threshold. */
static int by_threshold(const mod_config *cfg, int l)
{
   mod_block_config b = mod_config_block(cfg, l);
   return b.select == MOD_SELECT_LEARNED && b.capacity < 1;
}

/* ---------------------------------------------------------------------------------------------------------------------
   A whole batch at once: what every session must give again
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct truth {
   int length, n_kept[LAYERS], kept[LAYERS][CONTEXT];
   const int *tokens;
   mod_real logits[CONTEXT][VOCAB];
} truth;
static truth truths[SEQS];

static struct {
   int only; /* -1, or the one sequence to remember */
   int n[LAYERS];
   mod_real score[LAYERS][ROWS], predictor[LAYERS][ROWS];
} seen;

static void see(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   if (user != &seen || block >= LAYERS) return;
   if (site == MOD_SITE_SCORE) memcpy(seen.score[block], x->data, (size_t)rows->n * sizeof(mod_real));
   if (site == MOD_SITE_PREDICTOR) memcpy(seen.predictor[block], x->data, (size_t)rows->n * sizeof(mod_real));
   if (site == MOD_SITE_INPUT) seen.n[block] = rows->n;
   if (site != MOD_SITE_KEPT) return;
   for (int s = 0; s < rows->n_seqs; ++s) {
      if (seen.only >= 0 && s != seen.only) continue;
      truths[s].n_kept[block] = rows->start[s + 1] - rows->start[s];
      for (int i = rows->start[s]; i < rows->start[s + 1]; ++i)
         truths[s].kept[block][i - rows->start[s]] = rows->position[i];
   }
}

/* The logits that decide over block l, as last seen. */
static const mod_real *deciding(const mod_config *cfg, int l)
{
   int causal = mod_config_resolve(cfg).causal;
   return causal == MOD_CAUSAL_PREDICTOR || causal == MOD_CAUSAL_BOTH ? seen.predictor[l] : seen.score[l];
}

/* A tape on which a pass over the batch fits, of `less` bytes less. */
static mod_tape *tape_for(const mod_model *model, const mod_batch *batch, size_t less)
{
   mod_config cfg = mod_model_config(model);
   mod_tape_desc desc = {0};
   size_t bytes = 0;
   mod_error err;
   desc.forward_only = 1;
   CHECK(mod_forward_plan(&cfg, batch, &desc, &bytes, NULL) == MOD_RESULT_OK);
   mod_tape *tape = mod_tape_create(&desc, bytes - less, NULL, &err);
   CHECKF(tape != NULL, "%s", err.message);
   return tape;
}

/* Runs the batch; fills `seen`, and in causal mode `truths`. Returns the cross-entropy if there are targets. */
static double observe(const mod_model *model, mod_batch batch)
{
   mod_config cfg = mod_model_config(model);
   mod_tape *tape = tape_for(model, &batch, 0);
   mod_forward out = {0};
   mod_error err;
   int random = 0;
   for (int l = 0; l < LAYERS && batch.mode == MOD_MODE_CAUSAL; ++l)
      random |= mod_config_block(&cfg, l).select == MOD_SELECT_STOCHASTIC;
   batch.probe = see;
   batch.probe_user = &seen;
   /* A session is the sequence with id 0. Where that matters, each sequence gets it in turn. */
   for (int only = random ? 0 : -1; only < (random ? SEQS : 0); ++only) {
      seen.only = only;
      batch.first_id = only < 0 ? 0 : (uint64_t)0 - (uint64_t)only;
      mod_tape_reset(tape);
      CHECKF(mod_model_forward(model, tape, NULL, &batch, &out, &err) == MOD_RESULT_OK, "%s", err.message);
      for (int s = 0; s < batch.n_seqs && out.rows; ++s) {
         if (only >= 0 && s != only) continue;
         truth *t = &truths[s];
         int first = out.rows->start[s];
         t->length = out.rows->start[s + 1] - first;
         t->tokens = batch.tokens + s * batch.length;
         memcpy(t->logits, out.logits->data + (size_t)first * VOCAB, (size_t)t->length * sizeof t->logits[0]);
         for (int l = 0; l < LAYERS; ++l) CHECK(t->n_kept[l] == out.kept[l * batch.n_seqs + s]);
      }
   }
   mod_tape_destroy(tape);
   return out.cross_entropy;
}

static int descending(const void *a, const void *b)
{
   mod_real x = *(const mod_real *)a, y = *(const mod_real *)b;
   return x < y ? 1 : x > y ? -1 : 0;
}

/* The logit with `above` others before it, by sorting. */
static double ranked(const mod_real *logit, int n, int above)
{
   static mod_real sorted[ROWS];
   memcpy(sorted, logit, (size_t)n * sizeof *sorted);
   qsort(sorted, (size_t)n, sizeof *sorted, descending);
   return (double)sorted[above];
}

/* A model with random numbers in every tensor, gains, biases and predictors too. */
static mod_model *make_of(const mod_config *cfg, uint64_t seed)
{
   mod_error err;
   size_t n;
   mod_model *model = mod_model_create(cfg, NULL, &err);
   CHECKF(model != NULL, "%s", err.message);
   if (!model) exit(test_end());
   CHECK(mod_model_randomize(model, seed, NULL) == MOD_RESULT_OK);
   mod_real *w = mod_model_params(model, &n);
   test_state = 88172645463325252ull + seed * 2654435761u; /* the same noise for the same model */
   for (size_t i = 0; i < n; ++i) w[i] += (mod_real)(0.2 * test_normal());
   return model;
}

/* The variant's model, with thresholds that a third of the tokens pass unless it says otherwise; and the truths. */
static mod_model *make(int v)
{
   mod_config cfg = variant(v);
   mod_model *model = make_of(&cfg, (uint64_t)v + 1);
   mod_batch batch = make_batch(MOD_MODE_CAUSAL);
   double *theta = mod_model_thresholds(model);
   if (v == CALIBRATED) {
      mod_batch shape = make_batch(MOD_MODE_TOPK);
      mod_tape *tape = tape_for(model, &shape, 0);
      CHECK(mod_model_calibrate(model, tape, &batch, NULL) == MOD_RESULT_OK);
      mod_tape_destroy(tape);
   }
   for (int l = 0; l < LAYERS && v != CALIBRATED; ++l) {
      if (!by_threshold(&cfg, l)) continue;
      if (v == NOBODY || v == EVERYBODY) {
         theta[l] = v == NOBODY ? (double)INFINITY : -(double)INFINITY;
         continue;
      }
      observe(model, batch); /* the blocks before have theirs by now */
      theta[l] = ranked(deciding(&cfg, l), seen.n[l], seen.n[l] / 3);
   }
   memset(truths, 0x55, sizeof truths);
   observe(model, batch);
   return model;
}

/* How many of the first n tokens block l took. */
static int took(const truth *t, int l, int n)
{
   int count = 0;
   while (count < t->n_kept[l] && t->kept[l][count] < n) ++count;
   return count;
}

/* The decisions are worth comparing: the long sequence's blocks take some and skip some, in more than a few runs. */
static void check_decisions(const mod_config *cfg, int v)
{
   for (int l = 0; l < LAYERS; ++l) {
      const truth *t = &truths[0];
      mod_block_config b = mod_config_block(cfg, l);
      int n = t->n_kept[l], runs = 0, all = b.select == MOD_SELECT_ALL || b.capacity == 1 || v == EVERYBODY;
      for (int i = 1; i < n; ++i) runs += t->kept[l][i] != t->kept[l][i - 1] + 1;
      if (all || v == NOBODY)
         CHECKF(n == (all ? CONTEXT : 0), "variant %d, block %d took %d", v, l, n);
      else
         CHECKF(n > CONTEXT / 10 && n < 9 * CONTEXT / 10 && runs > 4, "variant %d, block %d: %d, %d", v, l, n, runs);
      CHECK(truths[0].n_kept[l] != truths[3].n_kept[l] || v == NOBODY);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Sessions against it
   ------------------------------------------------------------------------------------------------------------------ */

/* What a session's probe sees. */
typedef struct record {
   const truth *t;
   int n[LAYERS], position[LAYERS][CONTEXT], chunks, longest, wrong;
} record;

static void note(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   record *r = (record *)user;
   if (site == MOD_SITE_KEPT) {
      if (r->n[block] + rows->n > CONTEXT) {
         r->wrong = 1;
         return;
      }
      memcpy(r->position[block] + r->n[block], rows->position, (size_t)rows->n * sizeof(int));
      r->n[block] += rows->n;
   } else if (site == MOD_SITE_LOGITS) { /* of the chunk's last token */
      int last = rows->position[rows->n - 1];
      ++r->chunks;
      if (rows->n > r->longest) r->longest = rows->n;
      r->wrong |= block != LAYERS || x->n_dim != 2 || x->dim[0] != 1 || x->dim[1] != VOCAB ||
                  memcmp(x->data, r->t->logits[last], sizeof r->t->logits[last]) != 0;
   }
}

/* What is wrong with a session that should have had the first n tokens; 0: nothing. */
static int differs(const mod_session *session, const truth *t, int n)
{
   const mod_real *logits = mod_session_logits(session);
   int wrong = mod_session_length(session) != n;
   if (n == 0)
      wrong |= logits ? 2 : 0;
   else
      wrong |= !logits || memcmp(logits, t->logits[n - 1], sizeof t->logits[n - 1]) ? 2 : 0;
   for (int l = 0; l < LAYERS; ++l) wrong |= mod_session_cached(session, l) != took(t, l, n) ? 4 : 0;
   return wrong;
}

enum { SINGLY, ODDLY, AT_ONCE, SPLITS };

static int piece(int split, int *turn, int left)
{
   static const int odd[] = {1, 3, 65, 2, 17, 7, 5, 33};
   int n = split == SINGLY ? 1 : split == AT_ONCE ? left : odd[(*turn)++ % 8];
   return n < left ? n : left;
}

/* Feeds all that is left of the text after `at` tokens. Returns what differs after any call. */
static int feed_rest(mod_session *session, const truth *t, record *r, int split, int at)
{
   int wrong = 0, turn = 0;
   mod_error err;
   while (at < t->length) {
      int n = piece(split, &turn, t->length - at);
      if (mod_session_feed(session, t->tokens + at, n, &err) != MOD_RESULT_OK || err.code != MOD_RESULT_OK) return 64;
      at += n;
      wrong |= differs(session, t, at);
      for (int l = 0; l < LAYERS && r; ++l)
         if (r->n[l] != took(t, l, at) || memcmp(r->position[l], t->kept[l], (size_t)r->n[l] * sizeof(int)))
            wrong |= 8;
   }
   return wrong | (r && r->wrong ? 16 : 0);
}

static void test_same_bits(int v, const mod_model *model)
{
   static const int chunks[] = {1, 2, 7, 64, 0 /* the default */, -1 /* all */};
   static record r;
   mod_error err;
   for (int c = 0; c < 6; ++c)
      for (int s = 0; s < SEQS; ++s)
         for (int split = 0; split < SPLITS; ++split) {
            const truth *t = &truths[s];
            mod_session_desc desc = {0};
            if (split == SINGLY && c != 0 && c != 5) continue; /* then the chunk does not matter */
            desc.length = s == 0 ? 0 : t->length;
            desc.chunk = chunks[c] < 0 || chunks[c] > t->length ? t->length : chunks[c];
            desc.seed = 3;
            desc.probe = note;
            desc.probe_user = &r;
            memset(&r, 0, sizeof r);
            r.t = t;
            mod_session *session = mod_session_create(model, &desc, NULL, &err);
            CHECKF(session != NULL, "%s", err.message);
            if (!session) continue;
            CHECK(!differs(session, t, 0));
            int wrong = feed_rest(session, t, &r, split, 0);
            CHECKF(!wrong, "variant %d, sequence %d, chunk %d, split %d: %d", v, s, desc.chunk, split, wrong);
            if (split == AT_ONCE) {
               int chunk = desc.chunk ? desc.chunk : 32 < t->length ? 32 : t->length;
               CHECK(r.longest == chunk && r.chunks == (t->length + chunk - 1) / chunk);
            }

            if (split == AT_ONCE) {
               mod_session_reset(session);
               CHECK(!differs(session, t, 0));
               memset(&r, 0, sizeof r);
               r.t = t;
               wrong = feed_rest(session, t, &r, ODDLY, 0);
               CHECKF(!wrong, "variant %d, sequence %d, chunk %d, reset: %d", v, s, desc.chunk, wrong);
            }
            mod_session_destroy(session);
         }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Bytes, threads of one session, allocations
   ------------------------------------------------------------------------------------------------------------------ */

static size_t up(size_t bytes) { return (bytes + 15) / 16 * 16; }

static int threaded; /* variants whose work was enough for a second thread */
static void test_bytes(int v, const mod_model *model)
{
   static const int chunks[] = {1, 7, 64, 0, CONTEXT};
   mod_config cfg = mod_model_config(model);
   mod_error err;
   size_t before = 0;
   int calls = 0;
   for (int threads = 0; threads <= 3; ++threads) /* 0: the default */
      for (int c = 0; c < 5; ++c)
         for (int length = 0; length < 2; ++length) {
            size_t plan = 0, again = 0, cache = 0, n = length ? 99 : CONTEXT;
            int chunk = chunks[c] ? chunks[c] : 32;
            mod_session_desc desc = {0};
            if (length && (chunk == CONTEXT || threads == 2)) continue;
            desc.length = length ? 99 : 0;
            desc.chunk = chunks[c];
            desc.n_threads = threads;
            desc.seed = 3;
            if (threads == 3 && length) desc.jobs.run = backwards, desc.jobs.user = &calls;
            CHECK(mod_session_plan(&cfg, &desc, &plan, &cache, NULL) == MOD_RESULT_OK);
            CHECK(mod_session_plan(&cfg, &desc, &again, NULL, NULL) == MOD_RESULT_OK && again == plan);
            size_t numbers = up((size_t)LAYERS * n * (size_t)(D / 4 * cfg.n_kv_heads) * sizeof(mod_real));
            CHECK(cache == 2 * numbers + up((size_t)LAYERS * n * sizeof(int)));
            CHECK(plan > cache && plan % 8 == 0);

            /* Exactly as much as planned, aligned to 8 and no more, and a guard on either side. */
            unsigned char *whole = (unsigned char *)malloc(plan + 64), *memory;
            memset(whole, 0x5A, plan + 64);
            memory = whole + 16 + (16 - (uintptr_t)whole % 16) % 16 + 8;
            mallocs = 0;
            for (size_t less = 1; less < plan; less *= 3) {
               mod_session *none = mod_session_init(model, &desc, memory, plan - less, &err);
               CHECKF(!none && err.code == MOD_RESULT_MEMORY, "%zu of %zu bytes", plan - less, plan);
            }
            mod_session *session = mod_session_init(model, &desc, memory, plan, &err);
            CHECKF(session != NULL, "%s", err.message);
            if (session) {
               const truth *t = &truths[0];
               size_t at_first = mod_session_peak(session);
               CHECK(at_first > cache && at_first < plan);
               CHECK(mod_session_feed(session, t->tokens, chunk, &err) == MOD_RESULT_OK && !differs(session, t, chunk));
               CHECKF(mod_session_peak(session) == plan, "variant %d, chunk %d, %d threads: peak %zu, plan %zu", v,
                      chunk, threads, mod_session_peak(session), plan);
               CHECK(mod_session_feed(session, t->tokens + chunk, (int)n - chunk, &err) == MOD_RESULT_OK ||
                     chunk == (int)n);
               CHECKF(!differs(session, t, (int)n), "variant %d, chunk %d, %d threads", v, chunk, threads);
               CHECK(mod_session_peak(session) == plan);
            }
            CHECK(mallocs == 0);
            for (size_t i = 0; i < 16; ++i)
               if (memory[plan + i] != 0x5A || memory[-1 - (ptrdiff_t)i] != 0x5A) CHECK(!"wrote beside its memory");
            free(whole);
            if (threads == 1 && c == 3) CHECK((plan == before) == !length);
            if (threads == 0 && c == 3 && !length) before = plan; /* one thread is the default */
         }
   threaded += calls > 0;
}

static void test_allocations(const mod_model *model)
{
   mod_session_desc desc = {0};
   mod_error err;
   desc.seed = 3;
   for (int own_allocator = 0; own_allocator < 2; ++own_allocator) {
      const mod_allocator *allocator = own_allocator ? &user_allocator : NULL;
      int outside = live;
      mallocs = user_allocs = 0;
      mod_session *session = mod_session_create(model, &desc, allocator, &err);
      CHECK(mallocs == !own_allocator && user_allocs == own_allocator);
      for (int split = 0; split < SPLITS; ++split) {
         CHECK(!feed_rest(session, &truths[0], NULL, split, 0));
         CHECK(mod_session_feed(session, tokens, 1, NULL) == MOD_RESULT_FULL);
         mod_session_reset(session);
      }
      CHECK(mallocs == !own_allocator && user_allocs == own_allocator);
      mod_session_destroy(session);
      CHECK(live == outside && user_live == 0);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   What fails changes nothing
   ------------------------------------------------------------------------------------------------------------------ */

static void test_full(int v, const mod_model *model)
{
   const truth *t = &truths[0];
   mod_session_desc desc = {0};
   mod_error err;
   desc.length = 50;
   desc.chunk = 7;
   desc.seed = 3;
   mod_session *session = mod_session_create(model, &desc, NULL, NULL);
   CHECK(mod_session_feed(session, t->tokens, 51, &err) == MOD_RESULT_FULL && !differs(session, t, 0));
   CHECK(mod_session_feed(session, t->tokens, 45, &err) == MOD_RESULT_OK && !differs(session, t, 45));
   CHECK(mod_session_feed(session, t->tokens + 45, 6, &err) == MOD_RESULT_FULL && err.code == MOD_RESULT_FULL);
   CHECKF(!differs(session, t, 45), "variant %d", v);
   CHECK(mod_session_feed(session, t->tokens + 45, INT_MAX, &err) == MOD_RESULT_FULL && !differs(session, t, 45));
   CHECK(mod_session_feed(session, t->tokens + 45, 4, &err) == MOD_RESULT_OK && !differs(session, t, 49));
   CHECK(mod_session_feed(session, t->tokens + 49, 1, &err) == MOD_RESULT_OK && !differs(session, t, 50));
   CHECK(mod_session_feed(session, t->tokens + 50, 1, &err) == MOD_RESULT_FULL && !differs(session, t, 50));
   mod_session_reset(session);
   CHECK(mod_session_feed(session, t->tokens, 50, &err) == MOD_RESULT_OK && !differs(session, t, 50));
   mod_session_destroy(session);
}

/* Fails in every way in the middle of the text: after `at` tokens, `before` good ones and then what is bad. */
static void test_failures(int v, mod_model *model)
{
   static const int starts[] = {0, 1, 30, 64};
   static int text[CONTEXT];
   mod_config cfg = mod_model_config(model);
   const truth *t = &truths[0];
   mod_param embed;
   mod_error err;
   int routed[LAYERS], n_routed = 0;
   CHECK(mod_model_param(model, mod_model_find(model, "embed"), &embed, NULL) == MOD_RESULT_OK);
   for (int l = 0; l < LAYERS; ++l)
      if (mod_config_block(&cfg, l).select == MOD_SELECT_LEARNED) routed[n_routed++] = l;
   for (int i = 0; i < 4; ++i)
      for (int chunk = 3; chunk <= 24; chunk += 21) {
         int at = starts[i];
         mod_session_desc desc = {0};
         desc.chunk = chunk;
         desc.seed = 3;
         mod_session *session = mod_session_create(model, &desc, NULL, NULL);
         CHECK(!at || mod_session_feed(session, t->tokens, at, NULL) == MOD_RESULT_OK);

         /* Tokens that do not exist. */
         for (int bad = 0; bad < 4; ++bad) {
            static const int outside[4] = {-1, VOCAB, INT_MIN, INT_MAX};
            memcpy(text, t->tokens + at, 36 * sizeof(int));
            text[11 * bad] = outside[bad];
            CHECK(mod_session_feed(session, text, 36, &err) == MOD_RESULT_RANGE && err.where == 11 * bad);
            CHECK(!differs(session, t, at));
         }
         CHECK(mod_session_feed(session, text, 0, &err) == MOD_RESULT_ARG && !differs(session, t, at));

         /* A token whose embedding is NaN, after chunks that went well: the first router sees it, at its position. */
         for (int before = 0; before < 30 && n_routed; before += 7) {
            mod_real *cell = embed.data + POISON * D + 5, keep = *cell;
            memcpy(text, t->tokens + at, 36 * sizeof(int));
            text[before] = POISON;
            *cell = (mod_real)NAN;
            CHECKF(mod_session_feed(session, text, 36, &err) == MOD_RESULT_NUMERIC && err.where == at + before &&
                   err.block == routed[0], "variant %d: block %d, at %d, not %d", v, err.block, (int)err.where,
                   at + before);
            *cell = keep;
            CHECKF(!differs(session, t, at), "variant %d, %d + %d, chunk %d", v, at, before, chunk);
         }

         /* The last routed block fails when the ones before it have remembered their tokens already. */
         if (n_routed) {
            char name[40];
            mod_param router;
            snprintf(name, sizeof name, "blocks.%d.router", routed[n_routed - 1]);
            CHECK(mod_model_param(model, mod_model_find(model, name), &router, NULL) == MOD_RESULT_OK);
            mod_real keep = router.data[D - 1];
            router.data[D - 1] = (mod_real)NAN;
            CHECK(mod_session_feed(session, t->tokens + at, 30, &err) == MOD_RESULT_NUMERIC && err.where == at &&
                  err.block == routed[n_routed - 1]);
            router.data[D - 1] = keep;
            CHECK(!differs(session, t, at));
         }

         int wrong = feed_rest(session, t, NULL, i % SPLITS, at);
         CHECKF(!wrong, "variant %d, after failures at %d: %d", v, at, wrong);
         mod_session_destroy(session);
      }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Many sessions, one model
   ------------------------------------------------------------------------------------------------------------------ */

static void test_interleaved(int v, const mod_model *model)
{
   enum { SESSIONS = 3 * SEQS };
   mod_session *session[SESSIONS];
   int wrong = 0, left = 0, calls = 0;
   for (int i = 0; i < SESSIONS; ++i) {
      const truth *t = &truths[i % SEQS];
      mod_session_desc desc = {0};
      desc.length = t->length;
      desc.chunk = t->length < 7 ? 1 : i / SEQS == 0 ? 1 : i / SEQS == 1 ? 5 : t->length;
      desc.seed = 3;
      session[i] = mod_session_create(model, &desc, NULL, NULL);
      CHECK(session[i] != NULL);
      left += t->length;
   }
   while (left > 0) {
      int i = test_below(SESSIONS), at = mod_session_length(session[i]), n = 1 + test_below(9);
      const truth *t = &truths[i % SEQS];
      if (n > t->length - at) n = t->length - at;
      if (n == 0) continue;
      if (mod_session_feed(session[i], t->tokens + at, n, NULL) != MOD_RESULT_OK) break;
      left -= n;
      wrong |= differs(session[i], t, at + n);
      ++calls;
   }
   CHECKF(!wrong && !left && calls > 100, "variant %d: %d", v, wrong);
   for (int i = 0; i < SESSIONS; ++i) mod_session_destroy(session[i]);
}

#if THREADS
typedef struct worker {
   const mod_model *model;
   const truth *t;
   mod_session *session; /* or: */
   mod_tape *tape;
   int wrong;
} worker;

static void *work(void *arg)
{
   worker *w = (worker *)arg;
   for (int round = 0; round < 3; ++round) {
      if (w->session) {
         w->wrong |= feed_rest(w->session, w->t, NULL, (round + 1) % SPLITS, 0);
         mod_session_reset(w->session);
      } else {
         mod_batch batch = make_batch(MOD_MODE_CAUSAL);
         mod_forward out = {0};
         mod_tape_reset(w->tape);
         w->wrong |= mod_model_forward(w->model, w->tape, NULL, &batch, &out, NULL) != MOD_RESULT_OK ||
                     memcmp(out.logits->data, w->t->logits, (size_t)w->t->length * sizeof w->t->logits[0]);
      }
   }
   return NULL;
}
#endif

/* Two sessions and a forward pass at the same time, each in its own thread. */
static void test_threads(int v, const mod_model *model)
{
#if THREADS
   pthread_t thread[3];
   worker w[3];
   mod_batch batch = make_batch(MOD_MODE_CAUSAL);
   int started = 0;
   memset(w, 0, sizeof w);
   for (int i = 0; i < 3; ++i) {
      mod_session_desc desc = {0};
      desc.chunk = i ? 7 : 40;
      desc.seed = 3;
      w[i].model = model;
      w[i].t = &truths[i == 1 ? 3 : 0];
      if (i < 2)
         w[i].session = mod_session_create(model, &desc, NULL, NULL);
      else
         w[i].tape = tape_for(model, &batch, 0);
   }
   for (; started < 3; ++started)
      if (pthread_create(&thread[started], NULL, work, &w[started])) break;
   for (int i = 0; i < started; ++i) pthread_join(thread[i], NULL);
   if (started < 3) test_skip("sessions in threads", "no thread could be started");
   for (int i = 0; i < started; ++i) CHECKF(!w[i].wrong, "variant %d, thread %d: %d", v, i, w[i].wrong);
   for (int i = 0; i < 2; ++i) mod_session_destroy(w[i].session);
   mod_tape_destroy(w[2].tape);
#else
   (void)model;
   if (v == PLAIN) test_skip("sessions in threads", "no pthreads");
#endif
}

/* ---------------------------------------------------------------------------------------------------------------------
   Thresholds from held-out text
   ------------------------------------------------------------------------------------------------------------------ */

/* Calibrates on the batch, and compares with a sort of the logits that a top-k pass shows. Returns the tokens. */
static int check_calibration(mod_model *model, const mod_batch *text, int v)
{
   mod_config cfg = mod_model_config(model);
   double *theta = mod_model_thresholds(model), before[LAYERS];
   mod_batch batch = *text;
   mod_error err;
   int n;
   batch.mode = MOD_MODE_TOPK;
   observe(model, batch);
   for (int l = 0; l < LAYERS; ++l) before[l] = theta[l] = 7.5 + l;
   mod_tape *tape = tape_for(model, &batch, 0);
   for (int mode = 0; mode < 3; ++mode) { /* its mode does not matter */
      batch.mode = mode == 2 ? 99 : mode;
      mod_tape_reset(tape);
      CHECKF(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK, "%s",
             err.message);
   }
   n = seen.n[0];
   for (int l = 0; l < LAYERS; ++l) {
      const mod_real *logit = deciding(&cfg, l);
      double c = mod_config_block(&cfg, l).capacity;
      int k = (int)floor(c * n + 1e-6), above = 0;
      if (!by_threshold(&cfg, l)) {
         CHECKF(theta[l] == before[l], "variant %d, block %d has no deciding logit", v, l);
         continue;
      }
      if (k < 1) k = 1;
      CHECK(seen.n[l] == n);
      if (k == n) {
         CHECK(theta[l] == -(double)INFINITY);
         continue;
      }
      CHECKF(theta[l] == ranked(logit, n, k), "variant %d, block %d: %.9g, not %.9g", v, l, theta[l],
             ranked(logit, n, k));
      for (int i = 0; i < n; ++i) above += (double)logit[i] > theta[l];
      CHECK(above <= k);
   }
   mod_tape_destroy(tape);
   return n;
}

static void test_calibrate(int v)
{
   static const int few[SEQS] = {3, 0, 2, 4};
   mod_model *model = make(v);
   mod_config cfg = mod_model_config(model);
   double *theta = mod_model_thresholds(model), set[LAYERS], loss, zero;
   mod_batch batch = make_batch(MOD_MODE_CAUSAL);
   mod_real *w = mod_model_params(model, NULL);
   mod_param p;
   mod_error err;
   int n, first = -1;

   batch.lengths = few;
   CHECK(check_calibration(model, &batch, v) == 9);
   batch.lengths = NULL;
   CHECK(check_calibration(model, &batch, v) == ROWS);
   batch.lengths = lengths;
   batch.targets = targets;
   n = check_calibration(model, &batch, v);
   CHECK(n == 209);

   /* Causal mode decides by it: the first routed block sees what it saw in the top-k pass, so the share is the
      capacity's, less the ties; of later ones, whose input differs a little, near it. The loss is that of these
      decisions. */
   memcpy(set, theta, sizeof set);
   loss = observe(model, batch);
   for (int l = 0; l < LAYERS; ++l) {
      int k = mod_route_capacity(n, mod_config_block(&cfg, l).capacity), kept = 0, above = 0, equal = 0;
      if (!by_threshold(&cfg, l)) continue;
      for (int s = 0; s < SEQS; ++s) kept += truths[s].n_kept[l];
      for (int i = 0; i < n; ++i) {
         above += (double)deciding(&cfg, l)[i] > set[l];
         equal += (double)deciding(&cfg, l)[i] == set[l];
      }
      CHECK(kept == above || v == OWN);
      if (first < 0) first = l;
      if (l == first)
         CHECKF(kept <= k && kept + equal > k && (equal == 1 || l == 0), "variant %d, block %d took %d of %d, %d equal",
                v, l, kept, k, equal);
      else if (v == EVERY || v == OWN) /* no dense block between: it differs more */
         CHECKF(kept > k / 4 && kept < 2 * k, "variant %d, block %d took %d of %d", v, l, kept, k);
      else
         CHECKF(kept > k / 2 && kept < k + k / 2, "variant %d, block %d took %d of %d", v, l, kept, k);
   }
   if (first >= 0) {
      for (int l = 0; l < LAYERS; ++l) theta[l] = (double)INFINITY;
      zero = observe(model, batch);
      memcpy(theta, set, sizeof set);
      CHECK(isfinite(loss) && loss != zero && observe(model, batch) == loss);
   }

   /* What fails leaves the thresholds as they were. */
   for (int l = 0; l < LAYERS; ++l) theta[l] = set[l] = 0.25 * l;
   batch.mode = MOD_MODE_TOPK;
   mod_tape *small = tape_for(model, &batch, 16), *tape = tape_for(model, &batch, 0);
   CHECK(mod_model_calibrate(model, small, &batch, &err) == MOD_RESULT_MEMORY && err.code == MOD_RESULT_MEMORY);
   CHECK(memcmp(set, theta, sizeof set) == 0);
   mod_tape_destroy(small);
   static const int none[SEQS] = {0, 0, 0, 0}, one[SEQS] = {0, 1, 0, 0}; /* nothing to rank */
   batch.lengths = none;
   CHECK(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_ARG && memcmp(set, theta, sizeof set) == 0);
   mod_tape_reset(tape);
   batch.lengths = one;
   CHECK(mod_model_calibrate(model, tape, &batch, &err) == (first < 0 ? MOD_RESULT_OK : MOD_RESULT_ARG));
   CHECK(memcmp(set, theta, sizeof set) == 0);
   batch.lengths = lengths;
   mod_tape_reset(tape);
   tokens[2] = VOCAB;
   CHECK(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_RANGE && memcmp(set, theta, sizeof set) == 0);
   tokens[2] = 0;
   for (int l = 0; l < LAYERS; ++l)
      for (int what = 0; what < 2; ++what) {
         char name[40];
         snprintf(name, sizeof name, what ? "blocks.%d.predictor.w1" : "blocks.%d.router", l);
         int index = mod_model_find(model, name);
         if (index < 0) continue;
         CHECK(mod_model_param(model, index, &p, NULL) == MOD_RESULT_OK);
         mod_real keep = p.data[3];
         p.data[3] = (mod_real)NAN;
         mod_tape_reset(tape);
         CHECK(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_NUMERIC && err.block == l);
         CHECK(memcmp(set, theta, sizeof set) == 0);
         p.data[3] = keep;
      }
   mod_tape_reset(tape);
   CHECK(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_OK);
   CHECK((memcmp(set, theta, sizeof set) != 0) == (first >= 0));
   mod_tape_destroy(tape);

   /* All equal: nobody lies above, so nobody passes. */
   memset(w, 0, sizeof(mod_real) * (size_t)(mod_model_param(model, mod_model_param_count(model) - 1, &p, NULL)
                                               ? 0 : p.offset + p.count));
   batch.targets = NULL;
   check_calibration(model, &batch, v);
   batch.mode = MOD_MODE_CAUSAL;
   observe(model, batch);
   for (int l = 0; l < LAYERS; ++l)
      if (by_threshold(&cfg, l)) CHECK(theta[l] == 0 && truths[0].n_kept[l] == 0 && truths[3].n_kept[l] == 0);
   mod_model_destroy(model);
}

/* Three different tokens in front of a routed block: three different logits, each many times. */
static void test_ties(int causal)
{
   mod_config cfg = variant(EVERY);
   static int few[ROWS];
   cfg.causal = causal;
   mod_model *model = make_of(&cfg, 40);
   mod_batch batch = make_batch(MOD_MODE_CAUSAL);
   double *theta = mod_model_thresholds(model);
   for (int i = 0; i < ROWS; ++i) few[i] = test_below(3);
   batch.tokens = few;
   int n = check_calibration(model, &batch, EVERY), equal = 0, above = 0;
   for (int i = 0; i < n; ++i) {
      equal += (double)deciding(&cfg, 0)[i] == theta[0];
      above += (double)deciding(&cfg, 0)[i] > theta[0];
   }
   CHECKF(equal > n / 10 && above <= n / 4, "%d equal, %d above, of %d", equal, above, n);
   mod_model_destroy(model);
}

/* ---------------------------------------------------------------------------------------------------------------------
   The rotary table from a position on
   ------------------------------------------------------------------------------------------------------------------ */

static void test_rope_table(void)
{
   static const int firsts[] = {0, 1, 7, 63, 64, 99}, dims[] = {2, 6, 32};
   static const double bases[] = {10000, 1, 500000};
   mod_tape *tape = mod_tape_create(NULL, 1 << 20, NULL, NULL);
   for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 6; ++j) {
         int dim = dims[i], first = firsts[j];
         mod_tape_reset(tape);
         mod_tensor *all = mod_rope_table(tape, 0, 120, dim, bases[i]);
         for (int n = 1; n <= 120 - first; n += 10) {
            mod_tensor *part = mod_rope_table(tape, first, n, dim, bases[i]);
            CHECK(all && part && part->n_dim == 2 && part->dim[0] == n && part->dim[1] == dim &&
                  !memcmp(part->data, all->data + first * dim, (size_t)(n * dim) * sizeof(mod_real)));
         }
      }
   CHECK(mod_tape_status(tape, NULL) == MOD_RESULT_OK);
   mod_tape_destroy(tape);
}

int main(void)
{
   fill_text();
   test_rope_table();
   for (int v = 0; v < VARIANTS; ++v) {
      mod_model *model = make(v);
      mod_config cfg = variant(v);
      check_decisions(&cfg, v);
      test_same_bits(v, model);
      test_bytes(v, model);
      test_full(v, model);
      test_failures(v, model);
      test_interleaved(v, model);
      test_threads(v, model);
      if (v == PLAIN || v == ROUTER) test_allocations(model);
      mod_model_destroy(model);
   }
   for (int v = 0; v < VARIANTS; ++v)
      if (v != NOBODY && v != EVERYBODY && v != CALIBRATED) test_calibrate(v);
   CHECKF(threaded > VARIANTS / 2, "%d of %d", threaded, (int)VARIANTS);
   test_ties(MOD_CAUSAL_PREDICTOR);
   test_ties(MOD_CAUSAL_ROUTER);
   CHECK(live == 0 && user_live == 0);
   return test_end();
}
