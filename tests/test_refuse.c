/* test_refuse.c - what the library refuses. One row (a function) per public function of mod.h calls it with NULL, zero,
   negative, huge and non-finite arguments and looks at four things: the code, a sentence that says something, that
   nothing was written, and that the same call without a mod_error gives the same. The names of the public functions are
   read from mod.h itself: one without a row fails, and so does a row whose function is gone.

   Then memory: every size that is too small, every misalignment, every failing allocation; and sizes that overflow. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <math.h>

#define NAN_ ((double)NAN)
#define INF_ ((double)INFINITY)

/* ----------------------------------------------------------------------------------------------------- refusals -- */

/* Stands for any error where the header does not say which: an argument that is both too large and does not fit. */
#define REFUSAL ((mod_result)1)

static mod_error err;
static const char *row_name = ""; /* the public function whose row runs */
static int row_hits;              /* checks of this row that call it */

static void note(const char *text)
{
   const char *at = strstr(text, row_name);
   if (at && at[strlen(row_name)] == '(') ++row_hits;
}

/* A check that belongs to this row's function. */
#define HOLDS(ok)    \
   do {              \
      note(#ok);     \
      CHECK(ok);     \
   } while (0)

/* A sentence and not a word: at least three words. */
static int is_sentence(const char *text)
{
   int spaces = 0;
   if (!text) return 0;
   for (const char *c = text; *c; ++c) spaces += *c == ' ';
   return spaces >= 2 && strlen(text) >= 12;
}

/* Memory that a refused call must leave alone. */
#define WATCH_MAX 32768
static struct {
   const void *at;
   size_t size;
   unsigned char copy[WATCH_MAX];
} watched[6];
static int n_watched;

static void watch(const void *at, size_t size)
{
   if (!at || size > WATCH_MAX || n_watched == 6) {
      printf("test_refuse: cannot watch %lu bytes\n", (unsigned long)size);
      exit(2);
   }
   watched[n_watched].at = at;
   watched[n_watched].size = size;
   memcpy(watched[n_watched++].copy, at, size);
}
/* An output: filled with a pattern that no function writes, then watched. */
static void watch_out(void *at, size_t size)
{
   memset(at, 0xA5, size);
   watch(at, size);
}
static void unwatch(void) { n_watched = 0; }
static int untouched(void)
{
   for (int i = 0; i < n_watched; ++i)
      if (memcmp(watched[i].at, watched[i].copy, watched[i].size)) return 0;
   return 1;
}

static void soil(void)
{
   err.code = (mod_result)77;
   err.message = NULL;
   err.block = -77;
   err.where = -77;
}

static int same_code(mod_result got, mod_result expected)
{
   return expected == REFUSAL ? got <= MOD_RESULT_ARG && got >= MOD_RESULT_LAST : got == expected;
}

static void refused(mod_result got, mod_result expected, const char *text, int line)
{
   char why[200];
   note(text);
   snprintf(why, sizeof why, "got %s, expected %s; said: %s", mod_result_name(got),
            expected == REFUSAL ? "any error" : mod_result_name(expected), err.message ? err.message : "(nothing)");
   test_check(same_code(got, expected), text, __FILE__, line, why);
   test_check(err.code == got, text, __FILE__, line, "err.code is not the result");
   test_check(is_sentence(err.message), text, __FILE__, line, why);
   test_check(err.block >= -1 && err.where != -77, text, __FILE__, line, "err.block or err.where not set");
   test_check(untouched(), text, __FILE__, line, "wrote something though it refused");
}

/* `call` uses e as its mod_error, and is made with one and without. */
#define REFUSED(expected, call)                                                                          \
   do {                                                                                                  \
      mod_error *e = &err;                                                                               \
      mod_result got_;                                                                                   \
      soil();                                                                                            \
      got_ = (call);                                                                                     \
      refused(got_, expected, #call, __LINE__);                                                          \
      e = NULL;                                                                                          \
      test_check((call) == got_, #call, __FILE__, __LINE__, "another result without a mod_error");       \
      test_check(untouched(), #call, __FILE__, __LINE__, "wrote something though it refused");           \
   } while (0)

/* The same for calls that return a pointer. */
#define REFUSED_NULL(expected, call)                                                                     \
   do {                                                                                                  \
      mod_error *e = &err;                                                                               \
      soil();                                                                                            \
      test_check((call) == NULL, #call, __FILE__, __LINE__, "should be NULL");                           \
      refused(err.code, expected, #call, __LINE__);                                                      \
      e = NULL;                                                                                          \
      test_check((call) == NULL, #call, __FILE__, __LINE__, "should be NULL without a mod_error too");   \
   } while (0)

/* Success is reported in the mod_error as well. */
#define ACCEPTED(call)                                                                                   \
   do {                                                                                                  \
      mod_error *e = &err;                                                                               \
      mod_result got_;                                                                                   \
      note(#call);                                                                                       \
      soil();                                                                                            \
      got_ = (call);                                                                                     \
      test_check(got_ == MOD_RESULT_OK, #call, __FILE__, __LINE__, err.message ? err.message : "");      \
      test_check(err.code == MOD_RESULT_OK && err.message, #call, __FILE__, __LINE__, "err not set");    \
      e = NULL;                                                                                          \
      test_check((call) == MOD_RESULT_OK, #call, __FILE__, __LINE__, "fails without a mod_error");       \
   } while (0)

/* ------------------------------------------------------------------------------------------------------- memory -- */

/* `size` bytes, `offset` past a multiple of 16, between two guards that fenced() looks at. */
enum { FENCE = 64 };
static unsigned char *fence_block, *fence_base;
static size_t fence_size;

static unsigned char *fence(size_t size, size_t offset)
{
   size_t whole = size + 2 * FENCE + 32;
   unsigned char *base;
   free(fence_block);
   fence_block = (unsigned char *)malloc(whole);
   if (!fence_block) exit(2);
   memset(fence_block, 0x5A, whole);
   base = fence_block + (16 - (uintptr_t)fence_block % 16) % 16;
   fence_base = base + FENCE + offset;
   fence_size = size;
   return fence_base;
}
static int fenced(void)
{
   for (int i = 1; i <= FENCE; ++i)
      if (fence_base[-i] != 0x5A) return 0;
   for (size_t i = 0; i < FENCE; ++i)
      if (fence_base[fence_size + i] != 0x5A) return 0;
   return 1;
}
static void unfence(void)
{
   free(fence_block);
   fence_block = NULL;
}

/* An allocator that counts, fails on the call number fail_at, and has no more than a gibibyte. */
static struct {
   int calls, live, fail_at, frees_null;
   size_t offset; /* misaligns what it gives */
} heap;
static void heap_start(int fail_at)
{
   memset(&heap, 0, sizeof heap);
   heap.fail_at = fail_at;
}
static void *heap_alloc(size_t size, void *user)
{
   char *p;
   CHECK(user == &heap);
   if (++heap.calls == heap.fail_at || size > (size_t)1 << 30) return NULL;
   p = (char *)malloc(size + 32);
   if (!p) return NULL;
   ++heap.live;
   p[0] = (char)heap.offset;
   return p + 16 + heap.offset;
}
static void heap_free(void *memory, void *user)
{
   CHECK(user == &heap);
   if (!memory) {
      ++heap.frees_null;
      return;
   }
   --heap.live;
   free((char *)memory - 16 - heap.offset);
}
static const mod_allocator heap_allocator = {heap_alloc, heap_free, &heap};

/* --------------------------------------------------------------------------------- plumbing, config, rng, route -- */

static void row_mod_version(void) { HOLDS(mod_version() == MOD_H_VERSION); }

static void row_mod_build_info(void)
{
   const char *text = mod_build_info();
   char version[32];
   snprintf(version, sizeof version, "mod.h %d.%d.%d,", MOD_H_VERSION / 10000, MOD_H_VERSION / 100 % 100,
            MOD_H_VERSION % 100);
   HOLDS(strncmp(mod_build_info(), version, strlen(version)) == 0);
   CHECK(text && strlen(text) >= 12 && !strchr(text, '\n'));
}

static const int no_level[] = {MOD_SIMD_WASM128 + 1, INT32_MAX, INT32_MIN}; /* no level of any build */

static void row_mod_simd_best(void)
{
   HOLDS(mod_simd_best() >= MOD_SIMD_SCALAR && mod_simd_best() <= MOD_SIMD_WASM128);
}

static void row_mod_simd_name(void)
{
   HOLDS(strcmp(mod_simd_name(MOD_SIMD_SCALAR), "scalar") == 0);
   HOLDS(strcmp(mod_simd_name(MOD_SIMD_WASM128), "WebAssembly SIMD128") == 0);
   HOLDS(strcmp(mod_simd_name((mod_simd)(MOD_SIMD_WASM128 + 1)), "unknown") == 0);
   HOLDS(strcmp(mod_simd_name((mod_simd)INT32_MAX), "unknown") == 0);
   HOLDS(strcmp(mod_simd_name((mod_simd)INT32_MIN), "unknown") == 0);
}

static void row_mod_result_name(void)
{
   HOLDS(strcmp(mod_result_name(MOD_RESULT_OK), "OK") == 0);
   HOLDS(strcmp(mod_result_name(MOD_RESULT_SHAPE), "SHAPE") == 0);
   HOLDS(strcmp(mod_result_name((mod_result)1), "UNKNOWN") == 0);
   HOLDS(strcmp(mod_result_name((mod_result)(MOD_RESULT_LAST - 1)), "UNKNOWN") == 0);
   HOLDS(strcmp(mod_result_name((mod_result)INT32_MAX), "UNKNOWN") == 0);
   HOLDS(strcmp(mod_result_name((mod_result)INT32_MIN), "UNKNOWN") == 0);
   for (int r = MOD_RESULT_LAST; r < 0; ++r) HOLDS(strcmp(mod_result_name((mod_result)r), "UNKNOWN") != 0);
}

static void row_mod_arena_init(void)
{
   mod_arena a;
   unsigned char *memory = fence(64, 0);
   watch_out(&a, sizeof a);
   REFUSED(MOD_RESULT_ARG, mod_arena_init(NULL, memory, 64, e));
   REFUSED(MOD_RESULT_ARG, mod_arena_init(NULL, NULL, 0, e));
   for (size_t off = 1; off < 8; ++off) REFUSED(MOD_RESULT_ALIGN, mod_arena_init(&a, memory + off, 48, e));
   unwatch();
   ACCEPTED(mod_arena_init(&a, memory, 64, e));
   CHECK(a.base == memory && a.size == 64 && a.used == 0 && a.peak == 0);
   ACCEPTED(mod_arena_init(&a, memory + 8, 8, e));
   ACCEPTED(mod_arena_init(&a, memory, 0, e));
   ACCEPTED(mod_arena_init(&a, NULL, SIZE_MAX, e));
   ACCEPTED(mod_arena_init(&a, NULL, 0, e));
   CHECK(fenced());
}

static void row_mod_arena_push(void)
{
   for (int counting = 0; counting < 2; ++counting) {
      mod_arena a;
      void *out, *first;
      unsigned char *memory = fence(64, 0);
      CHECK(mod_arena_init(&a, counting ? NULL : memory, 64, NULL) == MOD_RESULT_OK);
      CHECK(mod_arena_push(&a, 3, 4, &first, NULL) == MOD_RESULT_OK && first == (counting ? NULL : memory));
      CHECK(a.used >= 12 && a.peak >= 12);
      watch(&a, sizeof a);
      watch_out(&out, sizeof out);
      watch(memory, 64);
      REFUSED(MOD_RESULT_ARG, mod_arena_push(NULL, 1, 1, &out, e));
      REFUSED(MOD_RESULT_ARG, mod_arena_push(&a, 1, 1, NULL, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, 53, 1, &out, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, 1, 65, &out, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, 1, SIZE_MAX, &out, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX, 1, &out, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX - 15, 1, &out, e)); /* used + this wraps to small */
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX - a.used + 2, 1, &out, e));
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX, SIZE_MAX, &out, e)); /* the product wraps to 1 */
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX / 2 + 1, 2, &out, e)); /* the product wraps to 0 */
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, SIZE_MAX / 4 + 2, 4, &out, e)); /* the product wraps to 4 */
      unwatch();
      HOLDS(mod_arena_push(&a, 48, 1, &out, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
      CHECK(out == (counting ? NULL : memory + 16) && a.used == 64 && a.peak == 64);
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, 1, 1, &out, e));
      CHECK(fenced());
   }
   { /* a counting arena at the end of the address space */
      mod_arena a;
      void *out;
      CHECK(mod_arena_init(&a, NULL, SIZE_MAX, NULL) == MOD_RESULT_OK);
      CHECK(mod_arena_push(&a, SIZE_MAX - 31, 1, &out, NULL) == MOD_RESULT_OK);
      watch(&a, sizeof a);
      REFUSED(MOD_RESULT_MEMORY, mod_arena_push(&a, 64, 1, &out, e));
      unwatch();
   }
}

static void row_mod_arena_rewind(void)
{
   mod_arena a;
   void *out;
   unsigned char *memory = fence(64, 0);
   CHECK(mod_arena_init(&a, memory, 64, NULL) == MOD_RESULT_OK);
   CHECK(mod_arena_push(&a, 16, 1, &out, NULL) == MOD_RESULT_OK);
   watch(&a, sizeof a);
   REFUSED(MOD_RESULT_ARG, mod_arena_rewind(NULL, 0, e));
   REFUSED(MOD_RESULT_ARG, mod_arena_rewind(&a, 17, e));
   REFUSED(MOD_RESULT_ARG, mod_arena_rewind(&a, SIZE_MAX, e));
   unwatch();
   ACCEPTED(mod_arena_rewind(&a, 16, e));
   ACCEPTED(mod_arena_rewind(&a, 0, e));
   CHECK(a.used == 0 && a.peak == 16);
}

/* A model that is valid, small, and has something of everything. */
static mod_config small_config(void)
{
   mod_config cfg;
   memset(&cfg, 0, sizeof cfg);
   cfg.vocab_size = 8;
   cfg.context = 4;
   cfg.n_layers = 2;
   cfg.d_model = 8;
   cfg.n_heads = 2;
   cfg.capacity = 0.5;
   return cfg;
}
static mod_train_desc small_desc(void)
{
   mod_train_desc how;
   memset(&how, 0, sizeof how);
   how.n_seqs = 2;
   how.length = 4;
   how.steps = 10;
   return how;
}
/* The limits that the header names, all at once: a dense model, so that its parameters are easily counted. */
static mod_config huge_config(void)
{
   mod_config cfg;
   memset(&cfg, 0, sizeof cfg);
   cfg.vocab_size = 1 << 20;
   cfg.context = 1 << 20;
   cfg.n_layers = 1024;
   cfg.d_model = 1 << 16;
   cfg.d_ff = 1 << 18;
   cfg.select = MOD_SELECT_ALL;
   return cfg;
}

static void row_mod_config_resolve(void)
{
   static const int extreme[] = {0, -1, 1, INT32_MIN, INT32_MAX};
   mod_config zero, cfg;
   memset(&zero, 0, sizeof zero);
   cfg = mod_config_resolve(NULL);
   HOLDS(mod_config_resolve(NULL).vocab_size == 0);
   CHECK(memcmp(&cfg, &zero, sizeof cfg) == 0);
   cfg = mod_config_resolve(&zero);
   CHECK(cfg.vocab_size == 0 && cfg.d_model == 0);
   for (size_t i = 0; i < sizeof extreme / sizeof *extreme; ++i)
      for (size_t j = 0; j < sizeof extreme / sizeof *extreme; ++j) {
         cfg = zero;
         cfg.vocab_size = cfg.context = cfg.n_layers = cfg.d_model = extreme[i];
         cfg.n_heads = cfg.d_ff = cfg.route_first = cfg.route_every = extreme[j];
         cfg.activation = j % 2 ? MOD_ACTIVATION_SWIGLU : extreme[j];
         HOLDS(mod_config_resolve(&cfg).d_model == extreme[i]);
      }
   cfg = small_config();
   cfg.capacity = cfg.norm_eps = cfg.rope_base = NAN_;
   CHECK(isnan(mod_config_resolve(&cfg).capacity)); /* not replaced: mod_config_check shall see it */
   cfg = small_config();
   CHECK(mod_config_resolve(&cfg).n_kv_heads == 2 && mod_config_resolve(&cfg).d_ff == 32);
}

/* Refused by mod_config_check with a sentence that names the field, and by everything that takes a config. */
static int bad_fields;
static void bad_config(const mod_config *cfg, const char *field)
{
   mod_plan plan;
   REFUSED(MOD_RESULT_CONFIG, mod_config_check(cfg, e));
   if (!err.message) err.message = "";
   CHECKF(strstr(err.message, field) != NULL, "%s is not in: %s", field, err.message);
   CHECK(mod_model_plan(cfg, NULL, &plan, NULL) == MOD_RESULT_CONFIG);
   ++bad_fields;
}
static void bad_int(const char *field, size_t offset, int value)
{
   mod_config cfg = small_config();
   memcpy((char *)&cfg + offset, &value, sizeof value);
   bad_config(&cfg, field);
}
static void bad_double(const char *field, size_t offset, double value)
{
   mod_config cfg = small_config();
   memcpy((char *)&cfg + offset, &value, sizeof value);
   bad_config(&cfg, field);
}
#define BAD_INT(field, value) bad_int(#field, offsetof(mod_config, field), value)
#define BAD_DOUBLE(field, value) bad_double(#field, offsetof(mod_config, field), value)

/* Settings that are each in range, but do not go together. */
static void test_combinations(void)
{
   mod_config good, c_;
   mod_block_config blocks[2];
#define TOGETHER(block_, field, change)   \
   do {                                   \
      good = c_ = small_config();         \
      memset(blocks, 0, sizeof blocks);   \
      change;                             \
      bad_config(&c_, field);             \
      CHECK(err.block == (block_));       \
      good.blocks = NULL;                 \
      CHECK(mod_config_check(&good, NULL) == MOD_RESULT_OK); \
   } while (0)
#define FINE(change)                      \
   do {                                   \
      c_ = small_config();                \
      memset(blocks, 0, sizeof blocks);   \
      change;                             \
      ACCEPTED(mod_config_check(&c_, e)); \
   } while (0)
   /* What is passed by is scaled by the gate: that must be the identity at 0. */
   for (int gate = MOD_GATE_DEFAULT; gate <= MOD_GATE_ONE; ++gate)
      if (gate == MOD_GATE_TANH) FINE((c_.bypass = MOD_BYPASS_GATED, c_.gate = gate));
      else TOGETHER(1, "gated bypass", (c_.bypass = MOD_BYPASS_GATED, c_.gate = gate));
   TOGETHER(0, "gated bypass", (c_.bypass = MOD_BYPASS_GATED, c_.gate = MOD_GATE_TANH, c_.blocks = blocks,
                                blocks[0].select = MOD_SELECT_LEARNED, blocks[0].gate = MOD_GATE_SIGMOID));
   FINE((c_.bypass = MOD_BYPASS_GATED, c_.blocks = blocks, blocks[1].gate = MOD_GATE_TANH));
   FINE((c_.bypass = MOD_BYPASS_GATED, c_.select = MOD_SELECT_STOCHASTIC)); /* no router, no gate */
   FINE((c_.bypass = MOD_BYPASS_GATED, c_.select = MOD_SELECT_TOKEN));

   /* Integrated MoDE routes in front of the MLP, of all tokens. */
   for (int select = MOD_SELECT_LEARNED; select <= MOD_SELECT_NONE; ++select)
      TOGETHER(1, "MOD_MLP_MODE", (c_.mlp = MOD_MLP_MODE, c_.select = select));
   TOGETHER(1, "MOD_MLP_MODE", (c_.blocks = blocks, blocks[1].mlp = MOD_MLP_MODE));
   TOGETHER(0, "MOD_MLP_MODE", (c_.mlp = MOD_MLP_MODE, c_.blocks = blocks, blocks[0].select = MOD_SELECT_FIRST));
   FINE(c_.mlp = MOD_MLP_MODE);
   FINE((c_.blocks = blocks, blocks[0].mlp = MOD_MLP_MODE));
   FINE((c_.mlp = MOD_MLP_MODE, c_.select = MOD_SELECT_LEARNED, c_.blocks = blocks, blocks[1].mlp = MOD_MLP_MOE));

   /* Keys and values. */
   TOGETHER(-1, "kv_select", c_.kv_select = MOD_SELECT_TOKEN);
   for (int select = MOD_SELECT_ALL; select < MOD_SELECT_SAME; ++select)
      if (select != MOD_SELECT_TOKEN)
         TOGETHER(1, "takes nobody", (c_.kv_select = select, c_.select = MOD_SELECT_NONE));
   TOGETHER(0, "takes nobody", (c_.blocks = blocks, blocks[0].select = MOD_SELECT_NONE,
                                blocks[0].kv_select = MOD_SELECT_LEARNED));
   FINE(c_.select = MOD_SELECT_NONE);
   FINE((c_.select = MOD_SELECT_NONE, c_.kv_select = MOD_SELECT_SAME));
   FINE((c_.blocks = blocks, blocks[0].kv_select = MOD_SELECT_NONE)); /* a block that only computes its MLP */

   /* More choices than ways. */
   TOGETHER(0, "choices", (c_.mlp = MOD_MLP_MOE, c_.n_experts = 1, c_.choices = 2));
   TOGETHER(1, "choices", (c_.blocks = blocks, blocks[1].mlp = MOD_MLP_MOE, blocks[1].choice = MOD_CHOICE_TOKEN,
                           c_.n_experts = 1, c_.choices = 2));
   FINE((c_.mlp = MOD_MLP_MODE, c_.n_experts = 1, c_.choices = 2)); /* an expert and a way past it */
   FINE((c_.mlp = MOD_MLP_MOE, c_.n_experts = 1, c_.choices = 2, c_.choice = MOD_CHOICE_EXPERT)); /* nobody chooses */
   FINE((c_.n_experts = 1, c_.choices = 2));                                                      /* no experts */
   FINE((c_.mlp = MOD_MLP_MOE, c_.n_experts = 64, c_.choices = 2));

   /* Rows in, classes and numbers out. */
   TOGETHER(-1, "tied head", c_.n_inputs = 3);
   TOGETHER(-1, "tied head", (c_.n_inputs = 3, c_.head = MOD_HEAD_TIED));
   FINE((c_.n_inputs = 3, c_.head = MOD_HEAD_UNTIED));
   TOGETHER(-1, "vocab_size", (c_.n_inputs = 3, c_.head = MOD_HEAD_UNTIED, c_.vocab_size = 0));
   for (int head = MOD_HEAD_DEFAULT; head <= MOD_HEAD_REGRESSION; ++head)
      for (int outputs = -1; outputs < 3; ++outputs) {
         static const int values[] = {-1, 0, 1, 1 << 20};
         int pooled = head >= MOD_HEAD_CLASS, n = values[outputs + 1];
         if (pooled ? n > 0 : n == 0) FINE((c_.head = head, c_.n_outputs = n));
         else TOGETHER(-1, "n_outputs", (c_.head = head, c_.n_outputs = n));
      }
   TOGETHER(-1, "n_outputs", (c_.head = MOD_HEAD_CLASS, c_.n_outputs = (1 << 20) + 1));
   TOGETHER(-1, "vocab_size", (c_.head = MOD_HEAD_CLASS, c_.n_outputs = 2, c_.vocab_size = 0));
   FINE((c_.head = MOD_HEAD_CLASS, c_.n_outputs = 2, c_.vocab_size = 0, c_.n_inputs = 1 << 16));
   FINE((c_.mask = MOD_MASK_FULL, c_.head = MOD_HEAD_REGRESSION, c_.n_outputs = 1, c_.mlp = MOD_MLP_MODE));
#undef TOGETHER
#undef FINE
}

static void row_mod_config_check(void)
{
   mod_config cfg = small_config();
   mod_block_config blocks[2];
   ACCEPTED(mod_config_check(&cfg, e));
   REFUSED(MOD_RESULT_ARG, mod_config_check(NULL, e));
   memset(&cfg, 0, sizeof cfg);
   REFUSED(MOD_RESULT_CONFIG, mod_config_check(&cfg, e));
   bad_fields = 0;
#define BAD_COUNT(field, limit) /* required, at least 1, at most `limit` */ \
   BAD_INT(field, 0);                                                       \
   BAD_INT(field, -1);                                                      \
   BAD_INT(field, (limit) + 1);                                             \
   BAD_INT(field, INT32_MIN);                                               \
   BAD_INT(field, INT32_MAX)
   BAD_COUNT(vocab_size, 1 << 20);
   BAD_COUNT(context, 1 << 20);
   BAD_COUNT(n_layers, 1024);
   BAD_COUNT(d_model, 1 << 16);
   BAD_INT(n_heads, -1);
   BAD_INT(n_heads, 3);
   BAD_INT(n_heads, 16);
   BAD_INT(n_heads, INT32_MAX);
   BAD_INT(n_kv_heads, -1);
   BAD_INT(n_kv_heads, 3);
   BAD_INT(n_kv_heads, 4);
   BAD_INT(n_kv_heads, INT32_MAX);
   BAD_INT(d_ff, -1);
   BAD_INT(d_ff, (1 << 18) + 1);
   BAD_INT(d_ff, INT32_MAX);
#define BAD_ENUM(field, last) \
   BAD_INT(field, -1);        \
   BAD_INT(field, (last) + 1); \
   BAD_INT(field, INT32_MAX); \
   BAD_INT(field, INT32_MIN)
   BAD_ENUM(norm, MOD_NORM_LAYER);
   BAD_ENUM(position, MOD_POSITION_LEARNED);
   BAD_ENUM(activation, MOD_ACTIVATION_SWIGLU);
   BAD_ENUM(bias, MOD_BIAS_ON);
   BAD_ENUM(head, MOD_HEAD_REGRESSION);
   BAD_ENUM(mask, MOD_MASK_FULL);
   BAD_ENUM(select, MOD_SELECT_NONE);
   BAD_ENUM(bypass, MOD_BYPASS_GATED);
   BAD_ENUM(kv_select, MOD_SELECT_SAME);
   BAD_ENUM(kv_gate, MOD_GATE_ONE);
   BAD_ENUM(mlp, MOD_MLP_MODE);
   BAD_ENUM(choice, MOD_CHOICE_EXPERT);
   BAD_ENUM(gate, MOD_GATE_ONE);
   BAD_ENUM(causal, MOD_CAUSAL_NONE);
   BAD_INT(route_first, -1);
   BAD_INT(route_first, INT32_MIN);
   BAD_INT(route_every, -1);
   BAD_INT(route_every, INT32_MIN);
#define BAD_LIMIT(field, limit) /* 0 stands for the default */ \
   BAD_INT(field, -1);                                        \
   BAD_INT(field, (limit) + 1);                               \
   BAD_INT(field, INT32_MIN);                                 \
   BAD_INT(field, INT32_MAX)
   BAD_LIMIT(n_inputs, 1 << 16);
   BAD_LIMIT(n_outputs, 0); /* with a head for tokens */
   BAD_LIMIT(n_experts, 64);
   BAD_LIMIT(n_noops, 64);
   BAD_LIMIT(choices, 2);
#define BAD_REAL(field)       \
   BAD_DOUBLE(field, NAN_);   \
   BAD_DOUBLE(field, INF_);   \
   BAD_DOUBLE(field, -INF_)
   BAD_REAL(capacity);
   BAD_DOUBLE(capacity, -0.5);
   BAD_DOUBLE(capacity, 1.0000001);
   BAD_REAL(kv_capacity);
   BAD_DOUBLE(kv_capacity, -0.5);
   BAD_DOUBLE(kv_capacity, 1.0000001);
   BAD_REAL(capacity_factor);
   BAD_DOUBLE(capacity_factor, -1);
   BAD_REAL(balance_loss);
   BAD_DOUBLE(balance_loss, -0.01);
   BAD_REAL(z_loss);
   BAD_DOUBLE(z_loss, -0.001);
   BAD_REAL(gate_scale);
   BAD_DOUBLE(gate_scale, -0.2);
   BAD_REAL(router_loss);
   BAD_DOUBLE(router_loss, -1);
   BAD_REAL(predictor_loss);
   BAD_DOUBLE(predictor_loss, -1);
   BAD_REAL(norm_eps);
   BAD_DOUBLE(norm_eps, -1e-5);
   BAD_REAL(rope_base);
   BAD_DOUBLE(rope_base, -10000);
   CHECK(bad_fields == 20 + 11 + 56 + 4 + 20 + 18 + 12 + 12);
   test_combinations();

   /* RoPE turns pairs: an odd head has none. Learned positions have no such need. */
   cfg = small_config();
   cfg.d_model = 6;
   REFUSED(MOD_RESULT_CONFIG, mod_config_check(&cfg, e));
   cfg.position = MOD_POSITION_LEARNED;
   ACCEPTED(mod_config_check(&cfg, e));

   for (int b = 0; b < 2; ++b) { /* the list of blocks: err.block says which, the sentence names the field */
      static const double share[] = {NAN_, INF_, -INF_, -0.1, 1.5};
      static const struct {
         const char *name;
         size_t offset;
         int last;
      } kinds[] = {{"select", offsetof(mod_block_config, select), MOD_SELECT_NONE},
                   {"gate", offsetof(mod_block_config, gate), MOD_GATE_ONE},
                   {"kv_select", offsetof(mod_block_config, kv_select), MOD_SELECT_SAME},
                   {"kv_gate", offsetof(mod_block_config, kv_gate), MOD_GATE_ONE},
                   {"mlp", offsetof(mod_block_config, mlp), MOD_MLP_MODE},
                   {"choice", offsetof(mod_block_config, choice), MOD_CHOICE_EXPERT}};
      int checked = 0;
      cfg = small_config();
      cfg.blocks = blocks;
      memset(blocks, 0, sizeof blocks);
      ACCEPTED(mod_config_check(&cfg, e));
      for (int c = 0; c < 10; ++c, ++checked) {
         memset(blocks, 0, sizeof blocks);
         *(c % 2 ? &blocks[b].kv_capacity : &blocks[b].capacity) = share[c / 2];
         bad_config(&cfg, c % 2 ? "kv_capacity" : "capacity");
         CHECK(err.block == b);
      }
      for (int k = 0; k < 6; ++k)
         for (int c = 0; c < 4; ++c, ++checked) {
            int value = c == 0 ? -1 : c == 1 ? kinds[k].last + 1 : c == 2 ? INT32_MAX : INT32_MIN;
            memset(blocks, 0, sizeof blocks);
            memcpy((char *)&blocks[b] + kinds[k].offset, &value, sizeof value);
            bad_config(&cfg, kinds[k].name);
            CHECK(err.block == b);
         }
      memset(blocks, 0, sizeof blocks);
      blocks[b].kv_select = MOD_SELECT_TOKEN;
      bad_config(&cfg, "kv_select");
      CHECK(err.block == b && checked == 34);
   }
   cfg = huge_config();
   ACCEPTED(mod_config_check(&cfg, e));
}

static void row_mod_config_block(void)
{
   mod_config cfg = small_config();
   mod_block_config zero, got;
   static const int outside[] = {-1, 2, INT32_MIN, INT32_MAX};
   memset(&zero, 0, sizeof zero);
   got = mod_config_block(NULL, 0);
   HOLDS(mod_config_block(NULL, 0).select == 0);
   CHECK(memcmp(&got, &zero, sizeof got) == 0);
   for (int i = 0; i < 4; ++i) {
      got = mod_config_block(&cfg, outside[i]);
      CHECK(memcmp(&got, &zero, sizeof got) == 0);
   }
   HOLDS(mod_config_block(&cfg, 0).select == MOD_SELECT_ALL && mod_config_block(&cfg, 0).capacity == 1);
   HOLDS(mod_config_block(&cfg, 1).select == MOD_SELECT_LEARNED && mod_config_block(&cfg, 1).capacity == 0.5);
   cfg.n_layers = INT32_MIN;
   HOLDS(mod_config_block(&cfg, 0).select == 0);
   cfg.n_layers = INT32_MAX; /* nonsense in the other fields must not divide by zero or overflow */
   cfg.route_every = cfg.route_first = INT32_MAX;
   HOLDS(mod_config_block(&cfg, INT32_MAX - 1).select >= 0);
   cfg.route_every = cfg.route_first = INT32_MIN;
   HOLDS(mod_config_block(&cfg, INT32_MAX - 1).select >= 0);
   cfg.route_every = -1;
   HOLDS(mod_config_block(&cfg, 5).select >= 0);
}

static void row_mod_config_paths(void)
{
   mod_config c_ = small_config();
   mod_block_config blocks[2];
   HOLDS(mod_config_paths(NULL) == 0);
   HOLDS(mod_config_paths(&c_) == 1);
   c_.kv_select = MOD_SELECT_LEARNED;
   HOLDS(mod_config_paths(&c_) == 2);
   c_.kv_select = MOD_SELECT_EVERY;
   HOLDS(mod_config_paths(&c_) == 1);
   c_.mlp = MOD_MLP_MOE;
   c_.n_experts = 64;
   HOLDS(mod_config_paths(&c_) == 66); /* in the block that selects, experts choose */
   c_.choice = MOD_CHOICE_TOKEN;
   HOLDS(mod_config_paths(&c_) == 1);
   memset(blocks, 0, sizeof blocks);
   c_.blocks = blocks;
   blocks[0].choice = MOD_CHOICE_EXPERT;
   blocks[1].mlp = MOD_MLP_PLAIN;
   HOLDS(mod_config_paths(&c_) == 66);
   blocks[0].mlp = 99;
   HOLDS(mod_config_paths(&c_) == 0);
   memset(&c_, 0, sizeof c_);
   HOLDS(mod_config_paths(&c_) == 0);
   c_ = huge_config();
   HOLDS(mod_config_paths(&c_) == 1);
   c_.n_layers = INT32_MAX; /* refused before any block is looked at */
   HOLDS(mod_config_paths(&c_) == 0);
}

static void row_mod_random_stream(void)
{
   HOLDS(mod_random_stream(NULL) == mod_random_stream(""));
   HOLDS(mod_random_stream("a") != mod_random_stream("b"));
}
static void row_mod_random_substream(void)
{
   HOLDS(mod_random_substream(0, 0) != mod_random_substream(0, UINT64_MAX));
   HOLDS(mod_random_substream(UINT64_MAX, UINT64_MAX) != mod_random_substream(UINT64_MAX, 0));
}
static void row_mod_random_bits(void)
{
   HOLDS(mod_random_bits(0, 0, 0) != mod_random_bits(0, 0, 1));
   HOLDS(mod_random_bits(UINT64_MAX, UINT64_MAX, UINT64_MAX) != mod_random_bits(0, 0, 0));
}
static const uint64_t corner[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63, (uint64_t)1 << 32};
static void row_mod_random_uniform(void)
{
   for (int i = 0; i < 216; ++i) {
      double u = mod_random_uniform(corner[i / 36], corner[i / 6 % 6], corner[i % 6]);
      CHECK(u >= 0 && u < 1);
   }
   HOLDS(mod_random_uniform(0, 0, 0) != mod_random_uniform(0, 0, 1));
}
static void row_mod_random_normal(void)
{
   for (int i = 0; i < 216; ++i) {
      double x = mod_random_normal(corner[i / 36], corner[i / 6 % 6], corner[i % 6]);
      CHECK(x > -6.8 && x < 6.8);
   }
   HOLDS(mod_random_normal(0, 0, 0) != mod_random_normal(0, 0, 1));
}

static void row_mod_route_capacity(void)
{
   static const double bad[] = {0, -0.0, -0.1, 1.0000001, 2, 1e300, NAN_, INF_, -INF_};
   for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) HOLDS(mod_route_capacity(10, bad[i]) == -1);
   HOLDS(mod_route_capacity(-1, 0.5) == -1);
   HOLDS(mod_route_capacity(INT32_MIN, 0.5) == -1);
   HOLDS(mod_route_capacity(0, 0.5) == 0);
   HOLDS(mod_route_capacity(INT32_MAX, 1) == INT32_MAX);
   HOLDS(mod_route_capacity(INT32_MAX, 1e-300) == 1);
   HOLDS(mod_route_capacity(1, 4.9e-324) == 1);
}

static void row_mod_route_topk(void)
{
   mod_real score[4] = {1, 2, 3, 4};
   int kept[4];
   watch_out(kept, sizeof kept);
   REFUSED(MOD_RESULT_ARG, mod_route_topk(NULL, 4, 2, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 4, 2, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, -1, 0, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, INT32_MIN, 1, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 4, -1, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 4, INT32_MIN, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 4, 5, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 4, INT32_MAX, kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_topk(score, 0, 1, kept, e));
   for (int at = 0; at < 4; ++at)
      for (int k = 1; k <= 4; ++k) { /* wherever it is, and whatever k: k = n needs no comparison, but finds it too */
         score[at] = (mod_real)NAN_;
         REFUSED(MOD_RESULT_NUMERIC, mod_route_topk(score, 4, k, kept, e));
         CHECK(err.where == at);
         score[at] = (mod_real)(at + 1);
      }
   unwatch();
   ACCEPTED(mod_route_topk(NULL, 0, 0, NULL, e));
   ACCEPTED(mod_route_topk(score, 4, 0, kept, e));
   score[1] = (mod_real)INF_;
   score[3] = (mod_real)-INF_;
   ACCEPTED(mod_route_topk(score, 4, 4, kept, e));
}

static void row_mod_route_threshold(void)
{
   mod_real score[4] = {1, 2, 3, 4};
   int kept[4], n_kept;
   watch_out(kept, sizeof kept);
   watch_out(&n_kept, sizeof n_kept);
   REFUSED(MOD_RESULT_ARG, mod_route_threshold(NULL, 4, 0, kept, &n_kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_threshold(score, 4, 0, NULL, &n_kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_threshold(score, 4, 0, kept, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_route_threshold(score, -1, 0, kept, &n_kept, e));
   REFUSED(MOD_RESULT_ARG, mod_route_threshold(score, INT32_MIN, 0, kept, &n_kept, e));
   REFUSED(MOD_RESULT_NUMERIC, mod_route_threshold(score, 4, NAN_, kept, &n_kept, e));
   score[2] = (mod_real)NAN_;
   REFUSED(MOD_RESULT_NUMERIC, mod_route_threshold(score, 4, 0, kept, &n_kept, e));
   CHECK(err.where == 2);
   score[2] = 3;
   unwatch();
   ACCEPTED(mod_route_threshold(NULL, 0, 0, NULL, &n_kept, e));
   CHECK(n_kept == 0);
   ACCEPTED(mod_route_threshold(score, 4, INF_, kept, &n_kept, e));
   CHECK(n_kept == 0);
   ACCEPTED(mod_route_threshold(score, 4, -INF_, kept, &n_kept, e));
   CHECK(n_kept == 4);
   score[0] = (mod_real)-INF_;
   ACCEPTED(mod_route_threshold(score, 4, -INF_, kept, &n_kept, e)); /* strictly above */
   CHECK(n_kept == 3);
}

static void row_mod_route_slots(void)
{
   static const double bad[] = {0, -0.0, -0.1, -1e300, NAN_, INF_, -INF_};
   for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) HOLDS(mod_route_slots(10, bad[i]) == -1);
   HOLDS(mod_route_slots(-1, 0.5) == -1);
   HOLDS(mod_route_slots(INT32_MIN, 0.5) == -1);
   HOLDS(mod_route_slots(INT32_MIN, NAN_) == -1);
   HOLDS(mod_route_slots(0, 0.5) == 0);
   HOLDS(mod_route_slots(INT32_MAX, 1) == INT32_MAX);
   HOLDS(mod_route_slots(INT32_MAX, 1e300) == INT32_MAX);
   HOLDS(mod_route_slots(INT32_MAX, 4.9e-324) == 0);
}

static void row_mod_route_choose(void)
{
   mod_real score[6] = {1, 2, 3, 6, 5, 4};
   int path[6], slot[6], used[3], slots[3] = {1, 1, 1};
   memset(used, 0, sizeof used);
   watch(used, sizeof used);
   watch_out(path, sizeof path);
   watch_out(slot, sizeof slot);
   REFUSED(MOD_RESULT_ARG, mod_route_choose(NULL, 2, 3, 1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, 1, slots, NULL, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, 1, slots, used, NULL, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, 1, slots, used, path, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(NULL, 0, 3, 1, slots, NULL, NULL, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, -1, 3, 1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, INT32_MIN, 3, 1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 0, 0, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, -3, 1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, INT32_MIN, 1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, 0, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, -1, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, 4, slots, used, path, slot, e));
   REFUSED(MOD_RESULT_ARG, mod_route_choose(score, 2, 3, INT32_MAX, slots, used, path, slot, e));
   for (int at = 0; at < 6; ++at) {
      mod_real keep = score[at];
      score[at] = (mod_real)NAN_;
      REFUSED(MOD_RESULT_NUMERIC, mod_route_choose(score, 2, 3, 2, slots, used, path, slot, e));
      CHECK(err.where == at / 3);
      score[at] = keep;
   }
   unwatch();
   ACCEPTED(mod_route_choose(NULL, 0, 3, 1, NULL, used, NULL, NULL, e));
   ACCEPTED(mod_route_choose(score, 2, 3, 3, slots, used, path, slot, e));
   score[1] = (mod_real)INF_;
   score[3] = (mod_real)-INF_;
   ACCEPTED(mod_route_choose(score, 2, 3, 1, NULL, used, path, slot, e));
}

/* --------------------------------------------------------------------------------------------------------- tape -- */

static size_t tape_least; /* smallest size that mod_tape_init takes */

static void row_mod_tape_init(void)
{
   static uint64_t memory[512];
   mod_tape_desc desc;
   memset(&desc, 0, sizeof desc);
   watch(memory, sizeof memory);
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_init(&desc, NULL, 4096, e));
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_init(NULL, NULL, 0, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_init(&desc, memory, 0, e));
   for (int off = 1; off < 8; ++off)
      REFUSED_NULL(MOD_RESULT_ALIGN, mod_tape_init(&desc, (char *)memory + off, 4000, e));
   desc.n_threads = -1;
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_init(&desc, memory, 4096, e));
   desc.n_threads = INT32_MIN;
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_init(&desc, memory, 4096, e));
   desc.n_threads = INT32_MAX;
   REFUSED_NULL(REFUSAL, mod_tape_init(&desc, memory, 4096, e));
   desc.n_threads = 0;
   for (int i = 0; i < 3; ++i) {
      desc.simd = (mod_simd)no_level[i];
      REFUSED_NULL(MOD_RESULT_ARG, mod_tape_init(&desc, memory, 4096, e));
   }
   desc.simd = MOD_SIMD_BEST;
   unwatch();

   /* Each size from 0 on: refused up to some size, never after it, and never a byte outside. */
   desc.n_threads = 0;
   for (size_t size = 0; size <= 1024; ++size) {
      unsigned char *at = fence(size, 8 * (size % 2));
      mod_tape *tape;
      soil();
      tape = mod_tape_init(&desc, at, size, &err);
      if (tape && !tape_least) tape_least = size;
      CHECKF(tape_least ? tape != NULL : !tape && err.code == MOD_RESULT_MEMORY && is_sentence(err.message),
             "size %lu", (unsigned long)size);
      CHECKF(fenced(), "size %lu", (unsigned long)size);
   }
   CHECK(tape_least >= 32 && tape_least <= 512);
   HOLDS(mod_tape_init(NULL, memory, sizeof memory, &err) != NULL && err.code == MOD_RESULT_OK && err.message);
}

static void row_mod_tape_create(void)
{
   mod_allocator a = heap_allocator;
   mod_tape_desc desc;
   mod_tape *tape;
   memset(&desc, 0, sizeof desc);
   heap_start(0);
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, 0, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, 1, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, tape_least - 1, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, SIZE_MAX, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, SIZE_MAX - 15, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_tape_create(&desc, (size_t)1 << 40, &a, e));
   a.alloc = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_create(&desc, 4096, &a, e));
   a = heap_allocator;
   a.free = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_create(&desc, 4096, &a, e));
   a = heap_allocator;
   desc.n_threads = -1;
   REFUSED_NULL(MOD_RESULT_ARG, mod_tape_create(&desc, 4096, &a, e));
   CHECK(heap.live == 0 && heap.frees_null == 0);
   HOLDS((tape = mod_tape_create(NULL, 4096, &a, &err)) != NULL && err.code == MOD_RESULT_OK);
   CHECK(heap.live == 1);
   mod_tape_destroy(tape);
   CHECK(heap.live == 0);
   HOLDS((tape = mod_tape_create(NULL, 4096, NULL, NULL)) != NULL);
   mod_tape_destroy(tape);
}

static void row_mod_tape_destroy(void)
{
   mod_tape_destroy(NULL);
   note("mod_tape_destroy(NULL)");
}

static uint64_t tape_memory[16384], measure_memory[16384];
static mod_tape *T; /* the tape under test */

static void row_mod_tape_reset(void)
{
   mod_tape_reset(NULL);
   note("mod_tape_reset(NULL)");
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   mod_tape_fail(T, MOD_RESULT_SHAPE, "an error made by the test", 3);
   CHECK(mod_tape_status(T, NULL) == MOD_RESULT_SHAPE);
   mod_tape_reset(T);
   CHECK(mod_tape_status(T, NULL) == MOD_RESULT_OK);
}

static mod_real data_x[6] = {1, -2, 3, -4, 5, -6}, grad_x[6];
static mod_real data_w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, grad_w[12];

static mod_tensor *leaf(int n_dim, int a, int b, int c, mod_real *data, mod_real *grad)
{
   int dim[4];
   dim[0] = a;
   dim[1] = b;
   dim[2] = c;
   dim[3] = 1;
   return mod_leaf(T, data, grad, n_dim, dim);
}

static void row_mod_tape_mark(void)
{
   mod_mark zero, mark;
   memset(&zero, 0, sizeof zero);
   mark = mod_tape_mark(NULL);
   HOLDS(mod_tape_mark(NULL).used == 0);
   CHECK(mark.used == zero.used && mark.described == zero.described && mark.last == zero.last);
}

static void row_mod_tape_rewind(void)
{
   mod_mark first, later, wrong;
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   first = mod_tape_mark(T);
   CHECK(mod_exp(T, leaf(2, 2, 3, 0, data_x, grad_x)) != NULL);
   later = mod_tape_mark(T);
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(NULL, first, e));
   wrong = later;
   wrong.used = SIZE_MAX;
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, wrong, e));
   wrong = later;
   wrong.tape = NULL; /* another tape's */
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, wrong, e));
   wrong = mod_tape_mark(NULL);
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, wrong, e));
   CHECK(mod_tape_mark(T).used == later.used && mod_tape_mark(T).last == later.last);
   ACCEPTED(mod_tape_rewind(T, later, e));
   ACCEPTED(mod_tape_rewind(T, first, e));
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, later, e)); /* from before an earlier rewind */
   mod_tape_reset(T);
   CHECK(mod_exp(T, leaf(2, 2, 3, 0, data_x, grad_x)) != NULL);
   later = mod_tape_mark(T);
   mod_tape_reset(T);
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, later, e)); /* from before a reset */
   for (int i = 0; i < 4; ++i) CHECK(mod_exp(T, leaf(1, 6, 0, 0, data_x, NULL)) != NULL);
   CHECK(mod_exp(T, leaf(2, 2, 3, 0, data_x, grad_x)) != NULL);
   REFUSED(MOD_RESULT_ARG, mod_tape_rewind(T, later, e)); /* though the tape has grown beyond it since */
}

static void row_mod_tape_status(void)
{
   REFUSED(MOD_RESULT_ARG, mod_tape_status(NULL, e));
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   ACCEPTED(mod_tape_status(T, e));
   mod_tape_fail(T, MOD_RESULT_SHAPE, "an error made by the test", 3);
   REFUSED(MOD_RESULT_SHAPE, mod_tape_status(T, e));
   CHECK(err.message && strcmp(err.message, "an error made by the test") == 0 && err.where == 3);
}

static void row_mod_tape_peak(void)
{
   HOLDS(mod_tape_peak(NULL) == 0);
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   HOLDS(mod_tape_peak(T) > 0 && mod_tape_peak(T) <= tape_least);
}

static void row_mod_tape_flops(void)
{
   HOLDS(mod_tape_flops(NULL) == 0);
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   HOLDS(mod_tape_flops(T) == 0);
}

static void row_mod_tape_fail(void)
{
   mod_tape_fail(NULL, MOD_RESULT_ARG, "no tape to put it on", 0);
   note("mod_tape_fail(NULL)");
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   mod_tape_fail(T, MOD_RESULT_RANGE, NULL, -1);
   REFUSED(REFUSAL, mod_tape_status(T, e)); /* an error all the same, and a sentence */
   mod_tape_reset(T);
   mod_tape_fail(T, MOD_RESULT_RANGE, "the first error is kept", 5);
   mod_tape_fail(T, MOD_RESULT_NUMERIC, "the second error is not kept", 0);
   CHECK(mod_tape_status(T, &err) == MOD_RESULT_RANGE && err.where == 5);
   mod_tape_reset(T);
   mod_tape_fail(T, MOD_RESULT_OK, "no error at all", 0); /* either ignored, or made an error: never an OK that fails */
   CHECK(mod_tape_status(T, NULL) != MOD_RESULT_OK || leaf(2, 2, 3, 0, data_x, NULL) != NULL);
}

static void row_mod_tape_backward(void)
{
   mod_tensor *x, *sum;
   mod_tape_desc desc;
   T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
   x = leaf(2, 2, 3, 0, data_x, grad_x);
   sum = mod_sum(T, x);
   watch(grad_x, sizeof grad_x);
   REFUSED(MOD_RESULT_ARG, mod_tape_backward(NULL, sum, e));
   REFUSED(MOD_RESULT_ARG, mod_tape_backward(T, NULL, e));
   unwatch();
   HOLDS(mod_tape_backward(T, sum, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   watch(grad_x, sizeof grad_x);
   REFUSED(MOD_RESULT_STATE, mod_tape_backward(T, sum, e)); /* a second time */

   mod_tape_reset(T);
   x = leaf(2, 2, 3, 0, data_x, grad_x);
   REFUSED(MOD_RESULT_SHAPE, mod_tape_backward(T, mod_exp(T, x), e)); /* more than one element */
   mod_tape_reset(T);
   sum = mod_sum(T, leaf(2, 2, 3, 0, data_x, NULL));
   REFUSED(REFUSAL, mod_tape_backward(T, sum, e)); /* nothing to differentiate by */
   mod_tape_reset(T);
   sum = mod_sum(T, leaf(2, 2, 3, 0, data_x, grad_x));
   mod_tape_fail(T, MOD_RESULT_RANGE, "an error made by the test", 3);
   REFUSED(MOD_RESULT_RANGE, mod_tape_backward(T, sum, e)); /* the tape's own error */

   memset(&desc, 0, sizeof desc);
   desc.forward_only = 1;
   T = mod_tape_init(&desc, tape_memory, sizeof tape_memory, NULL);
   sum = mod_sum(T, leaf(2, 2, 3, 0, data_x, grad_x));
   CHECK(sum != NULL);
   REFUSED(REFUSAL, mod_tape_backward(T, sum, e));
   unwatch();
}

/* ---------------------------------------------------------------------------------------------------------- ops -- */

/* What the ops are tried on, made anew on T by fresh(). */
static mod_tensor *x, *c;          /* [2, 3]: with a gradient, and constant */
static mod_tensor *w, *wt;         /* [3, 4], [4, 3] */
static mod_tensor *k3;             /* [2, 2, 3] */
static mod_tensor *r3, *r4, *col;  /* [3], [4], [2, 1] */
static mod_tensor *z, *z1;         /* [0, 3], [0, 1] */
static mod_tensor *q;              /* [2, 4]: two heads of two */
static mod_tensor *table;          /* rotary table of 2 positions, heads of 2 */
static const mod_rows *two, *none; /* one sequence of 2 rows; none of its rows */
#define no_col mod_gather(T, col, none) /* [0, 1] */
static const mod_rows *kept;       /* its row with the larger score: 1 of 2 */
static const int ids[3] = {0, 1, 0};
static mod_real data_col[2] = {1, 2}, nan_col[2];

static void fresh(void)
{
   mod_tensor *score;
   mod_tape_reset(T);
   x = leaf(2, 2, 3, 0, data_x, grad_x);
   c = leaf(2, 2, 3, 0, data_x, NULL);
   w = leaf(2, 3, 4, 0, data_w, grad_w);
   wt = leaf(2, 4, 3, 0, data_w, grad_w);
   k3 = leaf(3, 2, 2, 3, data_w, grad_w);
   r3 = leaf(1, 3, 0, 0, data_w, grad_w);
   r4 = leaf(1, 4, 0, 0, data_w, grad_w);
   col = leaf(2, 2, 1, 0, data_col, grad_w);
   z = leaf(2, 0, 3, 0, data_x, grad_x);
   z1 = leaf(2, 0, 1, 0, data_x, grad_x);
   q = leaf(2, 2, 4, 0, data_w, grad_w);
   table = mod_rope_table(T, 0, 2, 2, 10000);
   two = mod_rows_make(T, 1, 2, NULL);
   score = leaf(2, 2, 1, 0, data_col, NULL);
   kept = mod_rows_topk(T, two, score, 0.5);
   none = mod_rows_threshold(T, two, score, 1e9);
}

/* One op, refused. The tape carries the error, gains nothing, and takes no further op. */
static void op_refused(const void *got, mod_mark before, mod_result expected, const char *text, int line)
{
   mod_mark after = mod_tape_mark(T);
   mod_error first;
   test_check(got == NULL, text, __FILE__, line, "should be NULL");
   soil();
   refused(mod_tape_status(T, &err), expected, text, line);
   first = err;
   test_check(after.last == before.last, text, __FILE__, line, "recorded something though it refused");
   test_check(mod_exp(T, c) == NULL && mod_rows_make(T, 0, -1, NULL) == NULL, text, __FILE__, line, "not sticky");
   mod_tape_status(T, &err);
   test_check(err.code == first.code && err.message == first.message && err.where == first.where, text, __FILE__, line,
              "a later error hides the first");
}
#define OP_REFUSED(expected, call)                            \
   do {                                                       \
      mod_mark before_;                                       \
      const void *got_;                                       \
      fresh();                                                \
      before_ = mod_tape_mark(T);                             \
      got_ = (call);                                          \
      op_refused(got_, before_, expected, #call, __LINE__);   \
   } while (0)

/* One op as it should be called: works; passes NULL through on no tape and on a failed one; needs exactly the memory
   that the measuring tape counted, and with one byte less is refused and writes nothing outside. */
#define OP(call)                                                                                              \
   do {                                                                                                       \
      mod_tape *keep_ = T;                                                                                    \
      mod_tape_desc measure_;                                                                                 \
      size_t need_;                                                                                           \
      int ok_;                                                                                                \
      note(#call);                                                                                            \
      fresh();                                                                                                \
      ok_ = (call) != NULL;                                                                                   \
      test_check(ok_, #call, __FILE__, __LINE__, status_text());                                              \
      T = NULL;                                                                                               \
      test_check((call) == NULL, #call, __FILE__, __LINE__, "should be NULL without a tape");                 \
      T = keep_;                                                                                              \
      fresh();                                                                                                \
      mod_tape_fail(T, MOD_RESULT_RANGE, "an error made by the test", 3);                                     \
      test_check((call) == NULL, #call, __FILE__, __LINE__, "should be NULL on a failed tape");               \
      test_check(mod_tape_status(T, NULL) == MOD_RESULT_RANGE, #call, __FILE__, __LINE__, "hides an error");  \
      memset(&measure_, 0, sizeof measure_);                                                                  \
      measure_.measure = 1;                                                                                   \
      T = mod_tape_init(&measure_, measure_memory, sizeof measure_memory, NULL);                              \
      fresh();                                                                                                \
      (void)(call);                                                                                           \
      test_check(mod_tape_status(T, &err) == MOD_RESULT_OK, #call, __FILE__, __LINE__, "fails to measure");   \
      need_ = mod_tape_peak(T);                                                                               \
      for (size_t less_ = 0; less_ <= 48; less_ = less_ < 2 ? less_ + 1 : less_ * 3) {                        \
         char text_[80];                                                                                      \
         snprintf(text_, sizeof text_, "with %lu bytes, %lu less than measured", (unsigned long)(need_ - less_), \
                  (unsigned long)less_);                                                                      \
         T = mod_tape_init(NULL, fence(need_ - less_, 0), need_ - less_, NULL);                               \
         fresh();                                                                                             \
         (void)(call);                                                                                        \
         test_check(mod_tape_status(T, NULL) == (less_ ? MOD_RESULT_MEMORY : MOD_RESULT_OK), #call, __FILE__, \
                    __LINE__, text_);                                                                         \
         test_check(less_ || mod_tape_peak(T) == need_, #call, __FILE__, __LINE__, "peak is not as measured"); \
         test_check(fenced(), #call, __FILE__, __LINE__, text_);                                              \
      }                                                                                                       \
      T = keep_;                                                                                              \
   } while (0)

static const char *status_text(void)
{
   mod_tape_status(T, &err);
   return err.message ? err.message : "";
}

/* The same for calls on empty tensors: they may need no memory, so only that they work. */
#define OP_WORKS(call)                                                            \
   do {                                                                           \
      int ok_;                                                                    \
      note(#call);                                                                \
      fresh();                                                                    \
      ok_ = (call) != NULL;                                                       \
      test_check(ok_, #call, __FILE__, __LINE__, status_text());                  \
   } while (0)

/* Huge shapes on a measuring tape (leaves without data): either refused, or counted to at least `bytes`. */
#define OP_HUGE(bytes, call)                                                                              \
   do {                                                                                                   \
      mod_tape *keep_ = T;                                                                                \
      mod_tape_desc measure_;                                                                             \
      note(#call);                                                                                        \
      memset(&measure_, 0, sizeof measure_);                                                              \
      measure_.measure = 1;                                                                               \
      T = mod_tape_init(&measure_, measure_memory, sizeof measure_memory, NULL);                          \
      (void)(call);                                                                                       \
      test_check(mod_tape_status(T, &err) != MOD_RESULT_OK || (double)mod_tape_peak(T) >= (bytes), #call, \
                 __FILE__, __LINE__, "counted too little");                                               \
      test_check(err.code == MOD_RESULT_OK || is_sentence(err.message), #call, __FILE__, __LINE__, "");   \
      T = keep_;                                                                                          \
   } while (0)
#define HUGE_REFUSED(call)                                                                                \
   do {                                                                                                   \
      mod_tape *keep_ = T;                                                                                \
      mod_tape_desc measure_;                                                                             \
      memset(&measure_, 0, sizeof measure_);                                                              \
      measure_.measure = 1;                                                                               \
      T = mod_tape_init(&measure_, measure_memory, sizeof measure_memory, NULL);                          \
      test_check((call) == NULL, #call, __FILE__, __LINE__, "should be NULL");                            \
      soil();                                                                                             \
      refused(mod_tape_status(T, &err), REFUSAL, #call, __LINE__);                                        \
      T = keep_;                                                                                          \
   } while (0)

static mod_tensor *big(int a, int b) { return leaf(2, a, b, 0, NULL, NULL); }

static void row_mod_leaf(void)
{
   int dim[5] = {2, 3, 1, 1, 1}, wrong[4] = {2, -3, 1, 1}, zero[2] = {0, 3};
   int most[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, wraps[4] = {65536, 65536, 65536, 65536};
   OP(mod_leaf(T, data_x, grad_x, 2, dim));
   OP(mod_leaf(T, data_x, NULL, 4, dim));
   OP_WORKS(mod_leaf(T, data_x, grad_x, 2, zero));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, NULL, NULL, 2, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, 2, NULL));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, 0, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, -1, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, 5, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, INT32_MAX, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, INT32_MIN, dim));
   OP_REFUSED(MOD_RESULT_ARG, mod_leaf(T, data_x, NULL, 2, wrong));
   HUGE_REFUSED(mod_leaf(T, NULL, NULL, 4, most));
   HUGE_REFUSED(mod_leaf(T, NULL, NULL, 3, most));
   HUGE_REFUSED(mod_leaf(T, NULL, NULL, 4, wraps)); /* 2^64 elements */
   OP_REFUSED(REFUSAL, mod_leaf(T, data_x, NULL, 4, wraps));
}

static void row_mod_matmul(void)
{
   OP(mod_matmul(T, x, w));
   OP(mod_matmul(T, k3, w));
   OP_WORKS(mod_matmul(T, z, w));
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul(T, NULL, w));
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul(T, x, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul(T, x, x));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul(T, x, k3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul(T, w, z));
   OP_HUGE(1.8e16, mod_matmul(T, big(1 << 26, 1), big(1, 1 << 26)));
   OP_HUGE(1.8e19, mod_matmul(T, big(INT32_MAX, 1), big(1, INT32_MAX))); /* just below 2^64 bytes */
   HUGE_REFUSED((mod_matmul(T, big(INT32_MAX, 1), big(1, INT32_MAX)),
                 mod_matmul(T, big(INT32_MAX, 1), big(1, INT32_MAX)))); /* and twice is above */
}
static void row_mod_matmul_nt(void)
{
   OP(mod_matmul_nt(T, x, wt));
   OP_WORKS(mod_matmul_nt(T, z, wt));
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul_nt(T, NULL, wt));
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul_nt(T, x, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul_nt(T, x, w));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul_nt(T, x, col));
   OP_HUGE(1.8e16, mod_matmul_nt(T, big(1 << 26, 1), big(1 << 26, 1)));
   OP_HUGE(1.8e19, mod_matmul_nt(T, big(INT32_MAX, 1), big(INT32_MAX, 1))); /* just below 2^64 bytes */
   HUGE_REFUSED((mod_matmul_nt(T, big(INT32_MAX, 1), big(INT32_MAX, 1)),
                 mod_matmul_nt(T, big(INT32_MAX, 1), big(INT32_MAX, 1)))); /* and twice is above */
}
static void row_mod_matmul_tn(void)
{
   OP(mod_matmul_tn(T, x, c));
   OP_WORKS(mod_matmul_tn(T, z, z)); /* no rows: zeros [3, 3] */
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul_tn(T, NULL, w));
   OP_REFUSED(MOD_RESULT_ARG, mod_matmul_tn(T, x, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul_tn(T, x, w));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_matmul_tn(T, x, z));
   OP_HUGE(1.8e16, mod_matmul_tn(T, big(1, 1 << 26), big(1, 1 << 26)));
   OP_HUGE(1.8e19, mod_matmul_tn(T, big(1, INT32_MAX), big(1, INT32_MAX))); /* just below 2^64 bytes */
   HUGE_REFUSED((mod_matmul_tn(T, big(1, INT32_MAX), big(1, INT32_MAX)),
                 mod_matmul_tn(T, big(1, INT32_MAX), big(1, INT32_MAX)))); /* and twice is above */
}

#define ELEMENTWISE(op)                          \
   static void row_##op(void)                    \
   {                                             \
      OP(op(T, x, c));                           \
      OP(op(T, x, r3));                          \
      OP(op(T, x, col));                         \
      OP_WORKS(op(T, z, r3));                    \
      OP_WORKS(op(T, z, z));                     \
      OP_REFUSED(MOD_RESULT_ARG, op(T, NULL, c)); \
      OP_REFUSED(MOD_RESULT_ARG, op(T, x, NULL)); \
      OP_REFUSED(MOD_RESULT_SHAPE, op(T, x, w)); \
      OP_REFUSED(MOD_RESULT_SHAPE, op(T, x, r4)); \
      OP_REFUSED(MOD_RESULT_SHAPE, op(T, x, k3)); \
      OP_REFUSED(MOD_RESULT_SHAPE, op(T, x, z)); \
      OP_REFUSED(MOD_RESULT_SHAPE, op(T, r3, x)); \
      OP_HUGE(8e9, op(T, big(INT32_MAX, 1), big(INT32_MAX, 1))); \
   }
ELEMENTWISE(mod_add)
ELEMENTWISE(mod_sub)
ELEMENTWISE(mod_mul)

static void row_mod_bias(void)
{
   OP(mod_bias(T, x, r3));
   OP_WORKS(mod_bias(T, z, r3));
   OP_REFUSED(MOD_RESULT_ARG, mod_bias(T, NULL, r3));
   OP_REFUSED(MOD_RESULT_ARG, mod_bias(T, x, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_bias(T, x, r4));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_bias(T, x, c));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_bias(T, x, col));
}
static void row_mod_scale(void)
{
   OP(mod_scale(T, x, 0));
   OP(mod_scale(T, x, -1e30));
   OP_WORKS(mod_scale(T, z, 2));
   OP_REFUSED(MOD_RESULT_ARG, mod_scale(T, NULL, 1));
   OP_REFUSED(MOD_RESULT_ARG, mod_scale(T, x, NAN_));
   OP_REFUSED(MOD_RESULT_ARG, mod_scale(T, x, INF_));
   OP_REFUSED(MOD_RESULT_ARG, mod_scale(T, x, -INF_));
}

#define UNARY(op)                               \
   static void row_##op(void)                   \
   {                                            \
      OP(op(T, x));                             \
      OP(op(T, c));                             \
      OP_WORKS(op(T, z));                       \
      OP_REFUSED(MOD_RESULT_ARG, op(T, NULL));  \
      OP_HUGE(8e9, op(T, big(INT32_MAX, 1)));   \
   }
UNARY(mod_exp)
UNARY(mod_log)
UNARY(mod_gelu)
UNARY(mod_silu)
UNARY(mod_relu)
UNARY(mod_sigmoid)
UNARY(mod_tanh)
UNARY(mod_softmax)

static void row_mod_stop_grad(void)
{
   OP_WORKS(mod_stop_grad(T, x));
   OP_WORKS(mod_stop_grad(T, c));
   OP_WORKS(mod_stop_grad(T, z));
   OP_REFUSED(MOD_RESULT_ARG, mod_stop_grad(T, NULL));
}
static void row_mod_sum(void)
{
   OP(mod_sum(T, x));
   OP_WORKS(mod_sum(T, z));
   OP_REFUSED(MOD_RESULT_ARG, mod_sum(T, NULL));
}
static void row_mod_mean(void)
{
   OP(mod_mean(T, x));
   OP_WORKS(mod_mean(T, z));
   fresh();
   CHECK(mod_mean(T, z) && mod_mean(T, z)->data[0] == 0); /* the mean of nothing */
   OP_REFUSED(MOD_RESULT_ARG, mod_mean(T, NULL));
}

static const double bad_eps[] = {0, -1e-5, NAN_, INF_, -INF_};
static void row_mod_rmsnorm(void)
{
   OP(mod_rmsnorm(T, x, r3, 1e-5));
   OP(mod_rmsnorm(T, x, NULL, 1e-5));
   OP_WORKS(mod_rmsnorm(T, z, r3, 1e-5));
   OP_REFUSED(MOD_RESULT_ARG, mod_rmsnorm(T, NULL, r3, 1e-5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rmsnorm(T, x, r4, 1e-5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rmsnorm(T, x, c, 1e-5));
   for (int i = 0; i < 5; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_rmsnorm(T, x, r3, bad_eps[i]));
}
static void row_mod_layernorm(void)
{
   OP(mod_layernorm(T, x, r3, r3, 1e-5));
   OP(mod_layernorm(T, x, NULL, NULL, 1e-5));
   OP_WORKS(mod_layernorm(T, z, r3, NULL, 1e-5));
   OP_REFUSED(MOD_RESULT_ARG, mod_layernorm(T, NULL, r3, r3, 1e-5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_layernorm(T, x, r4, r3, 1e-5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_layernorm(T, x, r3, r4, 1e-5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_layernorm(T, x, r3, c, 1e-5));
   for (int i = 0; i < 5; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_layernorm(T, x, r3, r3, bad_eps[i]));
}

static void row_mod_embedding(void)
{
   static const int bad[4] = {-1, 3, INT32_MIN, INT32_MAX};
   OP(mod_embedding(T, w, ids, 3));
   OP_WORKS(mod_embedding(T, w, ids, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_embedding(T, NULL, ids, 3));
   OP_REFUSED(MOD_RESULT_ARG, mod_embedding(T, w, NULL, 3));
   OP_REFUSED(MOD_RESULT_ARG, mod_embedding(T, w, ids, -1));
   OP_REFUSED(MOD_RESULT_ARG, mod_embedding(T, w, ids, INT32_MIN));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_embedding(T, k3, ids, 3));
   for (int i = 0; i < 4; ++i) {
      int some[3] = {0, 1, 2};
      some[2 - i % 2] = bad[i];
      OP_REFUSED(MOD_RESULT_RANGE, mod_embedding(T, w, some, 3));
      CHECK(err.where == 2 - i % 2);
   }
   OP_HUGE(1.8e19, mod_embedding(T, big(1, INT32_MAX), ids, INT32_MAX));
}

static void row_mod_rope_table(void)
{
   static const double bad[5] = {0, -1, NAN_, INF_, -INF_};
   OP(mod_rope_table(T, 0, 4, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, -1, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, INT32_MIN, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, 4, 0, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, 4, -2, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, 4, 3, 10000)); /* odd: no pairs */
   OP_REFUSED(REFUSAL, mod_rope_table(T, 0, INT32_MAX, 2, 10000));
   OP_REFUSED(REFUSAL, mod_rope_table(T, 0, 2, INT32_MAX - 1, 10000));
   for (int i = 0; i < 5; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, 0, 4, 4, bad[i]));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, -1, 4, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, INT32_MIN, 4, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, INT32_MAX, 1, 4, 10000));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope_table(T, INT32_MAX - 3, 4, 4, 10000));
   OP_WORKS(mod_rope_table(T, INT32_MAX - 4, 4, 4, 10000));
   OP_HUGE(1.8e19, mod_rope_table(T, 0, INT32_MAX, INT32_MAX - 1, 10000));
   HUGE_REFUSED((mod_rope_table(T, 0, INT32_MAX, INT32_MAX - 1, 10000),
                 mod_rope_table(T, 0, INT32_MAX, INT32_MAX - 1, 10000)));
}

static void row_mod_rope(void)
{
   OP(mod_rope(T, q, two, table));
   OP_WORKS(mod_rope(T, mod_gather(T, q, none), none, table));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope(T, NULL, two, table));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope(T, q, NULL, table));
   OP_REFUSED(MOD_RESULT_ARG, mod_rope(T, q, two, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rope(T, x, two, table));  /* 3 columns, heads of 2 */
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rope(T, q, kept, table)); /* 2 rows, kept has 1 */
   OP_REFUSED(MOD_RESULT_RANGE, mod_rope(T, leaf(2, 3, 4, 0, data_w, NULL), mod_rows_make(T, 1, 3, NULL), table));
}

static void row_mod_attention(void)
{
   static const int heads[5] = {0, -1, 3, INT32_MAX, INT32_MIN};
   OP(mod_attention(T, q, q, q, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP(mod_attention(T, q, col, col, two, two, 4, 1, MOD_MASK_FULL));
   OP_WORKS(mod_attention(T, q, no_col, no_col, two, none, 4, 1, MOD_MASK_FULL)); /* no keys: zeros */
   OP_WORKS(mod_attention(T, no_col, col, col, none, two, 1, 1, MOD_MASK_FULL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, NULL, q, q, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, NULL, q, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, q, NULL, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, q, q, NULL, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, q, q, two, NULL, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, q, q, two, two, 2, 2, (mod_mask)2));
   OP_REFUSED(MOD_RESULT_ARG, mod_attention(T, q, q, q, two, two, 2, 2, (mod_mask)-1));
   for (int i = 0; i < 5; ++i) {
      OP_REFUSED(REFUSAL, mod_attention(T, q, q, q, two, two, heads[i], 1, MOD_MASK_CAUSAL));
      OP_REFUSED(REFUSAL, mod_attention(T, q, q, q, two, two, 2, heads[i], MOD_MASK_CAUSAL));
   }
   OP_REFUSED(REFUSAL, mod_attention(T, q, q, q, two, two, 2, 4, MOD_MASK_CAUSAL)); /* more keys' heads than queries' */
   OP_REFUSED(MOD_RESULT_SHAPE, mod_attention(T, q, x, x, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_attention(T, q, q, x, two, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_attention(T, q, q, q, kept, two, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_attention(T, q, q, q, two, kept, 2, 2, MOD_MASK_CAUSAL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_attention(T, q, q, q, two, mod_rows_make(T, 2, 1, NULL), 2, 2, MOD_MASK_CAUSAL));
}

static void row_mod_rows_make(void)
{
   static const int wrong[4][2] = {{-1, 2}, {2, 3}, {INT32_MIN, 0}, {0, INT32_MAX}};
   static const int fine[2] = {2, 0};
   OP(mod_rows_make(T, 2, 3, NULL));
   OP(mod_rows_make(T, 2, 2, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_make(T, -1, 2, NULL));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_make(T, 2, -1, NULL));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_make(T, INT32_MIN, INT32_MIN, NULL));
   for (int i = 0; i < 4; ++i) OP_REFUSED(REFUSAL, mod_rows_make(T, 2, 2, wrong[i]));
   OP_REFUSED(REFUSAL, mod_rows_make(T, INT32_MAX, INT32_MAX, NULL));
   OP_REFUSED(REFUSAL, mod_rows_make(T, 65536, 65536, NULL)); /* 2^32: wraps to 0 in an int */
   OP_REFUSED(REFUSAL, mod_rows_make(T, INT32_MAX, 1, NULL));
   HUGE_REFUSED(mod_rows_make(T, 1 << 13, (1 << 11) + 1, NULL)); /* more than 2^24 rows */
}

static void row_mod_rows_topk(void)
{
   static const double bad[8] = {0, -0.5, 1.5, 1e300, NAN_, INF_, -INF_, -0.0};
   OP(mod_rows_topk(T, two, col, 0.5));
   OP_WORKS(mod_rows_topk(T, none, no_col, 0.5));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_topk(T, NULL, col, 0.5));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_topk(T, two, NULL, 0.5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_topk(T, two, x, 0.5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_topk(T, two, z1, 0.5));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_topk(T, kept, col, 0.5));
   for (int i = 0; i < 8; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_rows_topk(T, two, col, bad[i]));
   nan_col[0] = 1;
   nan_col[1] = (mod_real)NAN_;
   OP_REFUSED(MOD_RESULT_NUMERIC, mod_rows_topk(T, two, leaf(2, 2, 1, 0, nan_col, NULL), 0.5));
   CHECK(err.where == 1);
}

static void row_mod_rows_threshold(void)
{
   OP(mod_rows_threshold(T, two, col, 1.5));
   OP(mod_rows_threshold(T, two, col, INF_));
   OP_WORKS(mod_rows_threshold(T, none, no_col, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_threshold(T, NULL, col, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_threshold(T, two, NULL, 0));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_threshold(T, two, x, 0));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_threshold(T, kept, col, 0));
   OP_REFUSED(MOD_RESULT_NUMERIC, mod_rows_threshold(T, two, col, NAN_));
   nan_col[0] = 1;
   nan_col[1] = (mod_real)NAN_;
   OP_REFUSED(MOD_RESULT_NUMERIC, mod_rows_threshold(T, two, leaf(2, 2, 1, 0, nan_col, NULL), 0));
   CHECK(err.where == 1);
}

static void row_mod_rows_others(void)
{
   OP(mod_rows_others(T, two, kept));
   OP(mod_rows_others(T, two, two));
   OP_WORKS(mod_rows_others(T, two, none));
   OP_WORKS(mod_rows_others(T, none, none));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_others(T, NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_others(T, two, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_others(T, mod_rows_make(T, 1, 2, NULL), kept)); /* of other rows */
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_others(T, kept, two));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_others(T, none, kept));
}

static mod_rows *experts[4];
#define CHOOSE(rows_, score_, choices, n_experts, slots, used) \
   (mod_rows_choose(T, rows_, score_, choices, n_experts, slots, used, NULL, experts) ? experts[0] : NULL)
static void row_mod_rows_choose(void)
{
   int used[3] = {0, 0, 0}, chosen[3];
   OP(CHOOSE(two, c, 1, 2, 1, NULL));
   OP(CHOOSE(two, c, 3, 3, 0, NULL));
   OP(CHOOSE(two, c, 2, 1, INT32_MAX, NULL));
   OP_WORKS(CHOOSE(none, mod_gather(T, x, none), 1, 2, 1, NULL));
   note("mod_rows_choose(");
   memset(used, 0, sizeof used);
   watch(used, sizeof used);
   watch_out(chosen, sizeof chosen);
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, NULL, c, 1, 2, 1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, NULL, 1, 2, 1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, c, 1, 2, 1, used, chosen, NULL) ? T : NULL);
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_choose(T, two, k3, 1, 2, 1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_choose(T, two, r3, 1, 2, 1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_choose(T, two, w, 1, 2, 1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_SHAPE, mod_rows_choose(T, kept, c, 1, 2, 1, used, chosen, experts) ? T : NULL);
   {
      static const int bad[] = {0, -1, 4, INT32_MAX, INT32_MIN};
      for (int i = 0; i < 5; ++i) {
         OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, c, bad[i], 2, 1, used, chosen, experts) ? T : NULL);
         OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, c, 1, bad[i], 1, used, chosen, experts) ? T : NULL);
      }
   }
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, c, 1, 2, -1, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_choose(T, two, c, 1, 2, INT32_MIN, used, chosen, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_ARG,
              mod_rows_choose(T, mod_rows_make(T, 2, 1, NULL), c, 1, 2, 1, used, NULL, experts) ? T : NULL);
   OP_REFUSED(MOD_RESULT_ARG,
              mod_rows_choose(T, two, leaf(2, 2, 0, 0, data_x, NULL), 1, 1, 1, used, chosen, experts) ? T : NULL);
   unwatch();
   watch(used, sizeof used);
   nan_col[0] = 1;
   nan_col[1] = (mod_real)NAN_;
   OP_REFUSED(MOD_RESULT_NUMERIC,
              mod_rows_choose(T, two, leaf(2, 2, 1, 0, nan_col, NULL), 1, 1, 1, used, NULL, experts) ? T : NULL);
   CHECK(err.where == 1);
   unwatch();
   fresh();
   HOLDS(mod_rows_choose(T, two, c, 2, 2, 1, used, chosen, experts) == 1 && used[0] + used[1] + used[2] > 0);
   CHECK(chosen[0] + chosen[1] + chosen[2] == 4);
}

static void row_mod_dropout(void)
{
   static const double bad[] = {-0.1, 1, 1.5, 1e300, NAN_, INF_, -INF_};
   OP(mod_dropout(T, x, two, 0.5, 1, 2, 3));
   OP(mod_dropout(T, c, two, 0, UINT64_MAX, UINT64_MAX, UINT64_MAX));
   OP_WORKS(mod_dropout(T, mod_gather(T, x, none), none, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_ARG, mod_dropout(T, NULL, two, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_ARG, mod_dropout(T, x, NULL, 0.5, 1, 2, 3));
   for (int i = 0; i < 7; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_dropout(T, x, two, bad[i], 1, 2, 3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_dropout(T, k3, two, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_dropout(T, r3, two, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_dropout(T, w, two, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_dropout(T, x, kept, 0.5, 1, 2, 3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_dropout(T, z, two, 0.5, 1, 2, 3));
}

static void row_mod_logsumexp(void)
{
   OP(mod_logsumexp(T, x));
   OP(mod_logsumexp(T, c));
   OP(mod_logsumexp(T, k3));
   OP_WORKS(mod_logsumexp(T, z));
   OP_REFUSED(MOD_RESULT_ARG, mod_logsumexp(T, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_logsumexp(T, r3));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_logsumexp(T, leaf(2, 3, 0, 0, data_x, NULL)));
   OP_HUGE(8e9, mod_logsumexp(T, big(INT32_MAX, 1)));
}

static void row_mod_pool(void)
{
   OP(mod_pool(T, x, two, MOD_POOL_MEAN));
   OP(mod_pool(T, x, two, MOD_POOL_LAST));
   OP_WORKS(mod_pool(T, mod_gather(T, x, none), none, MOD_POOL_MEAN));
   OP_WORKS(mod_pool(T, mod_gather(T, x, none), none, MOD_POOL_LAST));
   OP_REFUSED(MOD_RESULT_ARG, mod_pool(T, NULL, two, MOD_POOL_MEAN));
   OP_REFUSED(MOD_RESULT_ARG, mod_pool(T, x, NULL, MOD_POOL_MEAN));
   OP_REFUSED(MOD_RESULT_ARG, mod_pool(T, x, two, (mod_pool_kind)-1));
   OP_REFUSED(MOD_RESULT_ARG, mod_pool(T, x, two, (mod_pool_kind)2));
   OP_REFUSED(MOD_RESULT_ARG, mod_pool(T, x, two, (mod_pool_kind)INT32_MAX));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_pool(T, k3, two, MOD_POOL_MEAN));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_pool(T, r3, two, MOD_POOL_LAST));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_pool(T, w, two, MOD_POOL_LAST));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_pool(T, x, kept, MOD_POOL_MEAN));
}

static void row_mod_rows_mask(void)
{
   OP(mod_rows_mask(T, two, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_mask(T, NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_rows_mask(T, two, NULL));
   OP_REFUSED(REFUSAL, mod_rows_mask(T, mod_rows_make(T, 1, 1, NULL), kept)); /* kept row 1 of 1 */
   OP_REFUSED(REFUSAL, mod_rows_mask(T, none, kept));
}

static void row_mod_gather(void)
{
   OP(mod_gather(T, x, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_gather(T, NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_gather(T, x, NULL));
   OP_REFUSED(REFUSAL, mod_gather(T, z, kept));                              /* its row 1 of none */
   OP_REFUSED(REFUSAL, mod_gather(T, leaf(2, 1, 3, 0, data_x, NULL), kept)); /* its row 1 of one */
   OP_REFUSED(REFUSAL, mod_gather(T, wt, two));                              /* no parent, and 4 rows for 2 */
}

static void row_mod_scatter_add(void)
{
   int one_row[2] = {1, 3};
   OP(mod_scatter_add(T, x, leaf(2, 1, 3, 0, data_x, grad_x), leaf(2, 1, 1, 0, data_x, grad_x), kept));
   OP(mod_scatter_add(T, x, mod_leaf(T, data_x, NULL, 2, one_row), NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_scatter_add(T, NULL, r3, NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_scatter_add(T, x, NULL, NULL, kept));
   OP_REFUSED(MOD_RESULT_ARG, mod_scatter_add(T, x, c, NULL, NULL));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_scatter_add(T, x, c, NULL, kept)); /* 2 rows for 1 */
   OP_REFUSED(MOD_RESULT_SHAPE, mod_scatter_add(T, x, leaf(2, 1, 2, 0, data_x, NULL), NULL, kept));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_scatter_add(T, x, leaf(2, 1, 3, 0, data_x, NULL), col, kept));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_scatter_add(T, x, leaf(2, 1, 3, 0, data_x, NULL), r3, kept));
   OP_REFUSED(REFUSAL, mod_scatter_add(T, z, leaf(2, 1, 3, 0, data_x, NULL), NULL, kept)); /* its row 1 of none */
}

static void row_mod_gate(void)
{
   OP(mod_gate(T, col, MOD_GATE_TANH, 0.2));
   OP(mod_gate(T, col, MOD_GATE_SIGMOID, 0));
   OP_WORKS(mod_gate(T, z1, MOD_GATE_RAW, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_gate(T, NULL, MOD_GATE_RAW, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_gate(T, col, (mod_gate_kind)-1, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_gate(T, col, (mod_gate_kind)(MOD_GATE_ONE + 1), 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_gate(T, col, MOD_GATE_TANH, NAN_));
   OP_REFUSED(MOD_RESULT_ARG, mod_gate(T, col, MOD_GATE_TANH, INF_));
}

static const double bad_count[] = {-1, NAN_, INF_, -INF_};
static void row_mod_cross_entropy(void)
{
   static const int fine[2] = {0, 2}, none_at_all[2] = {-1, -1};
   static const int wrong[3][2] = {{0, 3}, {INT32_MAX, 0}, {0, INT32_MIN}};
   OP(mod_cross_entropy(T, x, fine, 0));
   OP_WORKS(mod_cross_entropy(T, x, none_at_all, 0)); /* nothing to average: 0, not NaN */
   fresh();
   {
      mod_tensor *loss = mod_cross_entropy(T, x, none_at_all, 0);
      CHECK(loss && loss->data[0] == 0 && loss->value == 0);
   }
   OP_WORKS(mod_cross_entropy(T, z, fine, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_cross_entropy(T, NULL, fine, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_cross_entropy(T, x, NULL, 0));
   for (int i = 0; i < 3; ++i) {
      OP_REFUSED(MOD_RESULT_RANGE, mod_cross_entropy(T, x, wrong[i], 0));
      CHECK(err.where == (i != 1));
   }
   for (int i = 0; i < 4; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_cross_entropy(T, x, fine, bad_count[i]));
}
static void row_mod_bce_logits(void)
{
   static const unsigned char fine[6] = {0, 1, 1, 0, 0, 1}, wrong[6] = {0, 1, 2, 0, 0, 1};
   OP(mod_bce_logits(T, x, fine, 0));
   OP_WORKS(mod_bce_logits(T, z, fine, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_bce_logits(T, NULL, fine, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_bce_logits(T, x, NULL, 0));
   OP_REFUSED(MOD_RESULT_RANGE, mod_bce_logits(T, x, wrong, 0));
   CHECK(err.where == 2);
   for (int i = 0; i < 4; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_bce_logits(T, x, fine, bad_count[i]));
}

static void row_mod_reshape(void)
{
   static const int fine[2] = {3, 2}, fewer[2] = {3, 1}, minus[2] = {-2, -3}, wraps[4] = {65536, 65536, 65536, 65536};
   static const int most[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
   OP(mod_reshape(T, x, 2, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, NULL, 2, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, 2, NULL));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, 0, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, -1, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, 5, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, INT32_MAX, fine));
   OP_REFUSED(MOD_RESULT_ARG, mod_reshape(T, x, 2, minus)); /* the product is right */
   OP_REFUSED(MOD_RESULT_SHAPE, mod_reshape(T, x, 2, fewer));
   OP_REFUSED(REFUSAL, mod_reshape(T, z, 4, wraps)); /* 2^64 is not 0 */
   OP_REFUSED(REFUSAL, mod_reshape(T, x, 4, most));
}
static void row_mod_transpose(void)
{
   static const int bad[4] = {-1, 2, INT32_MIN, INT32_MAX};
   OP(mod_transpose(T, x, 0, 1));
   OP(mod_transpose(T, k3, 0, 2));
   OP_WORKS(mod_transpose(T, z, 0, 1));
   OP_WORKS(mod_transpose(T, x, 1, 1));
   OP_REFUSED(MOD_RESULT_ARG, mod_transpose(T, NULL, 0, 1));
   for (int i = 0; i < 4; ++i) {
      OP_REFUSED(MOD_RESULT_ARG, mod_transpose(T, x, bad[i], 0));
      OP_REFUSED(MOD_RESULT_ARG, mod_transpose(T, x, 0, bad[i]));
   }
}
static void row_mod_slice(void)
{
   static const int bad[10][3] = {{-1, 0, 1}, {2, 0, 1}, {INT32_MAX, 0, 1}, {1, -1, 1}, {1, 0, -1}, {1, 0, 4},
                                  {1, 3, 1}, {1, INT32_MAX, INT32_MAX}, {1, INT32_MIN, INT32_MAX}, {1, 3, INT32_MAX}};
   OP(mod_slice(T, x, 1, 1, 2));
   OP(mod_slice(T, x, 0, 0, 2));
   OP_WORKS(mod_slice(T, z, 1, 0, 2));
   OP_REFUSED(MOD_RESULT_ARG, mod_slice(T, NULL, 0, 0, 1));
   for (int i = 0; i < 10; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_slice(T, x, bad[i][0], bad[i][1], bad[i][2]));
}
static void row_mod_concat(void)
{
   static const int bad[4] = {-1, 2, INT32_MIN, INT32_MAX};
   OP(mod_concat(T, x, c, 0));
   OP(mod_concat(T, x, col, 1));
   OP_WORKS(mod_concat(T, z, z, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_concat(T, NULL, c, 0));
   OP_REFUSED(MOD_RESULT_ARG, mod_concat(T, x, NULL, 0));
   for (int i = 0; i < 4; ++i) OP_REFUSED(MOD_RESULT_ARG, mod_concat(T, x, c, bad[i]));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_concat(T, x, col, 0));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_concat(T, x, w, 1));
   OP_REFUSED(MOD_RESULT_SHAPE, mod_concat(T, x, k3, 0));
   HUGE_REFUSED(mod_concat(T, big(INT32_MAX, 1), big(INT32_MAX, 1), 0)); /* no int holds the sum */
}

static void double_it(mod_tape *tape, mod_tensor *out)
{
   (void)tape;
   for (int i = 0; i < 6; ++i) out->data[i] = 2 * out->in[0]->data[i];
}
static void row_mod_custom(void)
{
   mod_custom_desc d, good;
   static const int bad[4] = {-1, 5, INT32_MIN, INT32_MAX};
   memset(&good, 0, sizeof good);
   good.n_in = 1;
   good.n_dim = 2;
   good.dim[0] = 2;
   good.dim[1] = 3;
   good.saved_bytes = 24;
   good.forward = double_it;
#define CUSTOM (d.in[0] = x, mod_custom(T, &d))
   d = good;
   OP(CUSTOM);
   OP_WORKS(mod_custom(T, (d.in[0] = x, &d)));
   OP_REFUSED(MOD_RESULT_ARG, mod_custom(T, NULL));
   for (int i = 0; i < 4; ++i) {
      d = good;
      d.n_in = bad[i];
      OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
      d = good;
      d.n_dim = bad[i];
      OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   }
   d = good;
   d.n_dim = 0;
   OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   d = good;
   d.n_in = MOD_TENSOR_MAX_INPUTS + 1;
   OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   d = good;
   d.n_in = 2; /* in[1] is NULL */
   OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   d = good;
   d.dim[1] = -3;
   OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   d = good;
   d.forward = NULL;
   OP_REFUSED(MOD_RESULT_ARG, CUSTOM);
   d = good;
   d.saved_bytes = SIZE_MAX;
   OP_REFUSED(MOD_RESULT_MEMORY, CUSTOM);
   d.saved_bytes = SIZE_MAX - 8;
   OP_REFUSED(MOD_RESULT_MEMORY, CUSTOM);
   d = good;
   d.n_dim = 4;
   d.dim[0] = d.dim[1] = d.dim[2] = d.dim[3] = 65536; /* 2^64 numbers */
   OP_REFUSED(REFUSAL, CUSTOM);
}

/* -------------------------------------------------------------------------------------------------------- model -- */

static mod_config cfg;
static mod_train_desc how;
static mod_plan plan;
static mod_model *model; /* of cfg, with random weights */
static mod_tape *tape;   /* of forward_bytes, for batch in causal mode */
static size_t forward_bytes;
static mod_batch batch, good_batch; /* 2 sequences of 4 */
static const int good_tokens[8] = {0, 1, 2, 3, 4, 5, 6, 7}, good_targets[8] = {1, 2, 3, -1, 5, 6, 7, 0};
static int tokens[16], targets[16]; /* room for a batch larger than planned */
static mod_forward fwd;
static mod_trainer *trainer;
static mod_step_info info;

static void model_set_up(void)
{
   mod_tape_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.forward_only = 1;
   cfg = small_config();
   how = small_desc();
   model = mod_model_create(&cfg, NULL, &err);
   if (!model || mod_model_randomize(model, 1, NULL) || mod_model_plan(&cfg, &how, &plan, NULL)) {
      printf("test_refuse: no model: %s\n", err.message ? err.message : "");
      exit(1);
   }
   memset(&good_batch, 0, sizeof good_batch);
   good_batch.n_seqs = 2;
   good_batch.length = 4;
   good_batch.tokens = tokens;
   good_batch.targets = targets;
   batch = good_batch;
   memcpy(tokens, good_tokens, sizeof good_tokens);
   memcpy(targets, good_targets, sizeof good_targets);
   batch.mode = MOD_MODE_CAUSAL;
   CHECK(mod_forward_plan(&cfg, &batch, &desc, &forward_bytes, NULL) == MOD_RESULT_OK);
   tape = mod_tape_create(&desc, forward_bytes, NULL, NULL);
   CHECK(tape != NULL);
   batch = good_batch;
}

/* Settings of training that no trainer takes. what(i) spoils field i; returns 0 when there is no such i. */
static int spoil_desc(mod_train_desc *d, int i)
{
   static const double bad[3] = {NAN_, INF_, -1};
   static const double no_share[5] = {NAN_, INF_, -INF_, -0.1, 1};
   double *field[8];
   *d = small_desc();
   field[0] = &d->lr;
   field[1] = &d->lr_min;
   field[2] = &d->beta1;
   field[3] = &d->beta2;
   field[4] = &d->eps;
   field[5] = &d->weight_decay;
   field[6] = &d->clip_norm;
   if (i < 21) *field[i / 3] = bad[i % 3];
   else if (i == 21) d->n_seqs = -1;
   else if (i == 22) d->n_seqs = INT32_MAX;
   else if (i == 23) d->length = -1;
   else if (i == 24) d->length = 5; /* longer than the context */
   else if (i == 25) d->length = INT32_MAX;
   else if (i == 26) d->steps = -1;
   else if (i == 27) d->warmup = -1;
   else if (i == 28) d->n_threads = -1;
   else if (i == 29) d->n_threads = INT32_MAX;
   else if (i == 30) d->beta1 = 1;
   else if (i == 31) d->beta2 = 1.5;
   else if (i == 32) d->n_seqs = INT32_MIN;
   else if (i < 36) d->simd = (mod_simd)no_level[i - 33];
   else if (i < 41) d->dropout = no_share[i - 36];
   else if (i < 46) d->threshold_decay = no_share[i - 41];
   else if (i == 46) d->capacity_warmup = -1;
   else if (i == 47) d->capacity_warmup = INT32_MIN;
   else return 0;
   return 1;
}

static void row_mod_model_plan(void)
{
   mod_plan p;
   mod_config bad = cfg, most = huge_config();
   mod_train_desc d;
   int n;
   watch_out(&p, sizeof p);
   REFUSED(MOD_RESULT_ARG, mod_model_plan(NULL, &how, &p, e));
   REFUSED(MOD_RESULT_ARG, mod_model_plan(&cfg, &how, NULL, e));
   bad.d_model = 0;
   REFUSED(MOD_RESULT_CONFIG, mod_model_plan(&bad, &how, &p, e));
   for (n = 0; spoil_desc(&d, n); ++n) REFUSED(REFUSAL, mod_model_plan(&cfg, &d, &p, e));
   CHECK(n == 48);
   unwatch();
   ACCEPTED(mod_model_plan(&cfg, NULL, &p, e));
   ACCEPTED(mod_model_plan(&cfg, &how, &p, e));

   /* The largest model of all: a plan without overflow, or a refusal. */
   d = small_desc();
   d.n_seqs = 16;
   d.length = 0;
   for (int i = 0; i < 2; ++i) {
      double D = 65536, F = 262144, V = 1048576, L = 1024, N = V * D + L * (4 * D * D + 2 * D * F + 2 * D) + D;
      mod_result r = mod_model_plan(&most, i ? &d : NULL, &p, &err);
      if (sizeof(size_t) == 8) CHECKF(r == MOD_RESULT_OK || i, "%s", err.message);
      if (r == MOD_RESULT_OK) {
         CHECKF((double)p.n_params == N, "%.0f parameters, not %.0f", (double)p.n_params, N);
         CHECK((double)p.params == 4 * N && (double)p.grads == 4 * N && (double)p.optimizer >= 8 * N);
         CHECK(p.model > p.params && p.trainer > p.grads + p.optimizer);
         CHECK(p.trainer - p.grads - p.optimizer >= p.activations);
         CHECK((double)p.activations > 2 * V * V * 4 * 8); /* more than the logits alone */
      } else {
         CHECK(is_sentence(err.message));
      }
   }
}

static void row_mod_model_init(void)
{
   static uint64_t memory[512];
   mod_config bad = cfg, most = huge_config();
   watch(memory, sizeof memory);
   REFUSED_NULL(MOD_RESULT_ARG, mod_model_init(NULL, memory, sizeof memory, e));
   REFUSED_NULL(MOD_RESULT_ARG, mod_model_init(&cfg, NULL, sizeof memory, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_model_init(&cfg, memory, 0, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_model_init(&cfg, memory, 1, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_model_init(&most, memory, sizeof memory, e));
   for (int off = 1; off < 8; ++off)
      REFUSED_NULL(MOD_RESULT_ALIGN, mod_model_init(&cfg, (char *)memory + off, sizeof memory - 8, e));
   bad.n_heads = 3;
   REFUSED_NULL(MOD_RESULT_CONFIG, mod_model_init(&bad, memory, sizeof memory, e));
   unwatch();
}

static void row_mod_model_create(void)
{
   mod_config bad = cfg, most = huge_config();
   mod_allocator a = heap_allocator;
   mod_model *m;
   heap_start(0);
   REFUSED_NULL(MOD_RESULT_ARG, mod_model_create(NULL, &a, e));
   bad.vocab_size = -1;
   REFUSED_NULL(MOD_RESULT_CONFIG, mod_model_create(&bad, &a, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_model_create(&most, &a, e));
   a.alloc = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_model_create(&cfg, &a, e));
   a = heap_allocator;
   a.free = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_model_create(&cfg, &a, e));
   CHECK(heap.live == 0);
   a = heap_allocator;
   HOLDS((m = mod_model_create(&cfg, &a, &err)) != NULL && err.code == MOD_RESULT_OK);
   mod_model_destroy(m);
   CHECK(heap.live == 0 && heap.frees_null == 0);
}

static void row_mod_model_destroy(void)
{
   mod_model_destroy(NULL);
   note("mod_model_destroy(NULL)");
}

static void row_mod_model_randomize(void)
{
   static const uint64_t seeds[3] = {UINT64_MAX, 0, 1};
   size_t n;
   mod_real *p = mod_model_params(model, &n);
   REFUSED(MOD_RESULT_ARG, mod_model_randomize(NULL, 1, e));
   for (int i = 0; i < 3; ++i) {
      int finite = 1;
      ACCEPTED(mod_model_randomize(model, seeds[i], e));
      for (size_t j = 0; j < n; ++j) finite = finite && isfinite(p[j]);
      CHECK(finite && n == plan.n_params);
   }
}

static void row_mod_model_config(void)
{
   mod_config got = mod_model_config(NULL), zero;
   memset(&zero, 0, sizeof zero);
   HOLDS(mod_model_config(NULL).vocab_size == 0);
   CHECK(memcmp(&got, &zero, sizeof got) == 0);
   HOLDS(mod_model_config(model).d_ff == 32);
}
static void row_mod_model_params(void)
{
   size_t n = 77;
   HOLDS(mod_model_params(NULL, NULL) == NULL);
   HOLDS(mod_model_params(NULL, &n) == NULL);
   CHECK(n == 0);
   HOLDS(mod_model_params(model, NULL) != NULL);
}
static void row_mod_model_thresholds(void)
{
   HOLDS(mod_model_thresholds(NULL) == NULL);
   HOLDS(mod_model_thresholds(model) != NULL);
}
static void row_mod_model_param_count(void)
{
   HOLDS(mod_model_param_count(NULL) == 0);
   HOLDS(mod_model_param_count(model) > 10);
}
static void row_mod_model_param(void)
{
   mod_param out;
   int n = mod_model_param_count(model);
   watch_out(&out, sizeof out);
   REFUSED(MOD_RESULT_ARG, mod_model_param(NULL, 0, &out, e));
   REFUSED(MOD_RESULT_ARG, mod_model_param(model, 0, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_model_param(model, -1, &out, e));
   REFUSED(MOD_RESULT_ARG, mod_model_param(model, n, &out, e));
   REFUSED(MOD_RESULT_ARG, mod_model_param(model, INT32_MAX, &out, e));
   REFUSED(MOD_RESULT_ARG, mod_model_param(model, INT32_MIN, &out, e));
   unwatch();
   ACCEPTED(mod_model_param(model, n - 1, &out, e));
   CHECK(out.offset + out.count == plan.n_params);
}
static void row_mod_model_find(void)
{
   HOLDS(mod_model_find(NULL, "embed") == -1);
   HOLDS(mod_model_find(model, NULL) == -1);
   HOLDS(mod_model_find(model, "") == -1);
   HOLDS(mod_model_find(model, "embe") == -1);
   HOLDS(mod_model_find(model, "embedd") == -1);
   HOLDS(mod_model_find(model, "blocks.1.router") >= 0);
   HOLDS(mod_model_find(model, "blocks.0.router") == -1);
   HOLDS(mod_model_find(model, "blocks.2147483648.router") == -1);
}

/* A batch whose shape no pass takes; 0 when there is no such i. From OF_TRAINER on it is spoilt in what a trainer sets
   by itself. */
enum { OF_TRAINER = 19, SHAPES = 30 };
static int spoil_shape(mod_batch *b, int i)
{
   static const int wrong[4][2] = {{-1, 4}, {4, 5}, {INT32_MIN, 1}, {1, INT32_MAX}};
   static const double no_share[5] = {NAN_, INF_, -INF_, -0.1, 1.1};
   *b = good_batch;
   switch (i) {
   case 0: b->n_seqs = -1; break;
   case 1: b->n_seqs = INT32_MIN; break;
   case 2: b->n_seqs = INT32_MAX; break;
   case 3: b->length = -1; break;
   case 4: b->length = 5; break; /* longer than the context */
   case 5: b->length = INT32_MAX; break;
   case 6: b->length = INT32_MIN; break;
   case 7: b->mode = -1; break;
   case 8: b->mode = 2; break;
   case 9: b->mode = INT32_MAX; break;
   case 10: b->n_seqs = (1 << 22) + 1; break; /* more than 2^24 rows */
   case 11: b->n_targets = -1; break;
   case 12: b->n_tokens = -1; break;
   case 13: b->n_targets = INT64_MIN; break;
   case 14: b->n_tokens = INT64_MIN; break;
   case 15: case 16: case 17: case 18: b->lengths = wrong[i - 15]; break;
   case 19: case 20: case 21: case 22: case 23: b->least_capacity = no_share[i - 19]; break;
   case 24: case 25: case 26: case 27: case 28: b->dropout = no_share[i - 24]; break;
   case 29: b->dropout = 1; break;
   default: return 0;
   }
   return 1;
}

static void row_mod_forward_plan(void)
{
   size_t bytes;
   mod_config bad = cfg, most = huge_config();
   mod_tape_desc desc;
   mod_batch b = good_batch;
   memset(&desc, 0, sizeof desc);
   watch_out(&bytes, sizeof bytes);
   REFUSED(MOD_RESULT_ARG, mod_forward_plan(NULL, &b, &desc, &bytes, e));
   REFUSED(MOD_RESULT_ARG, mod_forward_plan(&cfg, NULL, &desc, &bytes, e));
   REFUSED(MOD_RESULT_ARG, mod_forward_plan(&cfg, &b, &desc, NULL, e));
   bad.context = 0;
   REFUSED(MOD_RESULT_CONFIG, mod_forward_plan(&bad, &b, &desc, &bytes, e));
   for (int i = 0; i < SHAPES; i = i == 14 ? OF_TRAINER : i + 1)
      REFUSED(REFUSAL, (spoil_shape(&b, i), mod_forward_plan(&cfg, &b, &desc, &bytes, e)));
   bad = cfg; /* a model that is not causal has one mode */
   bad.mask = MOD_MASK_FULL;
   b = good_batch;
   b.mode = MOD_MODE_CAUSAL;
   REFUSED(MOD_RESULT_ARG, mod_forward_plan(&bad, &b, &desc, &bytes, e));
   b = good_batch;
   desc.n_threads = -1;
   REFUSED(MOD_RESULT_ARG, mod_forward_plan(&cfg, &b, &desc, &bytes, e));
   desc.n_threads = 0;
   unwatch();
   ACCEPTED(mod_forward_plan(&cfg, &b, NULL, &bytes, e));
   b.tokens = NULL; /* it reads no token */
   ACCEPTED(mod_forward_plan(&cfg, &b, &desc, &bytes, e));

   b.n_seqs = 16;
   b.length = 1 << 20;
   for (int i = 0; i < 2; ++i) {
      desc.forward_only = i;
      if (mod_forward_plan(&most, &b, &desc, &bytes, &err) == MOD_RESULT_OK)
         CHECK((double)bytes >= 4.0 * 16777216 * 1048576); /* at least the logits */
      else
         CHECK(is_sentence(err.message));
   }
}

static mod_result forward(mod_error *e)
{
   mod_tape_reset(tape);
   return mod_model_forward(model, tape, NULL, &batch, &fwd, e);
}
#define FORWARD(expected, spoil)                     \
   do {                                              \
      batch = good_batch;                            \
      memcpy(tokens, good_tokens, sizeof good_tokens); \
      memcpy(targets, good_targets, sizeof good_targets); \
      spoil;                                         \
      REFUSED(expected, forward(e));                 \
   } while (0)

static void test_other_models(void);

static void row_mod_model_forward(void)
{
   static const int outside[4] = {-1, 8, INT32_MIN, INT32_MAX};
   double *theta = mod_model_thresholds(model);
   size_t n;
   mod_real *params = mod_model_params(model, &n), *router, keep;
   mod_param p;
   mod_batch b;
   int shapes;
   ACCEPTED(forward(e));
   watch_out(&fwd, sizeof fwd);
   watch(params, n * sizeof *params);
   batch = good_batch;
   mod_tape_reset(tape);
   REFUSED(MOD_RESULT_ARG, mod_model_forward(NULL, tape, NULL, &batch, &fwd, e));
   REFUSED(MOD_RESULT_ARG, mod_model_forward(model, NULL, NULL, &batch, &fwd, e));
   mod_tape_reset(tape);
   REFUSED(MOD_RESULT_ARG, mod_model_forward(model, tape, NULL, NULL, &fwd, e));
   mod_tape_reset(tape);
   REFUSED(MOD_RESULT_ARG, mod_model_forward(model, tape, NULL, &batch, NULL, e));
   mod_tape_reset(tape);
   mod_tape_fail(tape, MOD_RESULT_SHAPE, "an error made by the test", 3);
   REFUSED(MOD_RESULT_SHAPE, mod_model_forward(model, tape, NULL, &batch, &fwd, e));
   FORWARD(MOD_RESULT_ARG, batch.tokens = NULL);
   for (shapes = 0; spoil_shape(&b, shapes); ++shapes) FORWARD(REFUSAL, batch = b);
   CHECK(shapes == SHAPES);
   unwatch();
   test_other_models();
   batch = good_batch;
   ACCEPTED(forward(e));
   watch_out(&fwd, sizeof fwd);
   watch(params, n * sizeof *params);
   for (int mode = 0; mode < 2; ++mode)
      for (int i = 0; i < 4; ++i) {
         FORWARD(MOD_RESULT_RANGE, batch.mode = mode; tokens[2 * i + 1] = outside[i]);
         CHECK(err.where >= 0);
         if (outside[i] == -1) continue; /* as a target: none */
         FORWARD(MOD_RESULT_RANGE, batch.mode = mode; targets[2 * i] = outside[i]);
         CHECK(err.where >= 0);
      }
   FORWARD(MOD_RESULT_RANGE, targets[7] = -2);
   theta[1] = NAN_;
   FORWARD(MOD_RESULT_NUMERIC, batch.mode = MOD_MODE_CAUSAL);
   CHECK(err.block == 1);
   theta[1] = 0;
   FORWARD(REFUSAL, batch.n_seqs = 3); /* more than the tape was made for */

   unwatch(); /* a NaN among the weights reaches the score, and is named there */
   watch_out(&fwd, sizeof fwd);
   CHECK(mod_model_param(model, mod_model_find(model, "blocks.1.router"), &p, NULL) == MOD_RESULT_OK);
   router = p.data;
   keep = router[3];
   router[3] = (mod_real)NAN_;
   FORWARD(MOD_RESULT_NUMERIC, (void)0);
   CHECK(err.block == 1 && err.where == 0);
   router[3] = keep;
   unwatch();

   batch = good_batch;
   memcpy(tokens, good_tokens, sizeof good_tokens);
   memcpy(targets, good_targets, sizeof good_targets);
   ACCEPTED(forward(e));
   theta[1] = INF_; /* nothing enters */
   batch.mode = MOD_MODE_CAUSAL;
   ACCEPTED(forward(e));
   theta[1] = 0;
   {
      static const int some[2] = {4, 0};
      batch.lengths = some; /* an empty sequence */
      ACCEPTED(forward(e));
   }
   for (int i = 0; i < 2; ++i) { /* no sequences, or none of any length: a sentence or an empty result, but no crash */
      mod_result r;
      batch = good_batch;
      if (i) batch.length = 0;
      else batch.n_seqs = 0;
      soil();
      r = forward(&err);
      CHECK(err.code == r && (r == MOD_RESULT_OK ? fwd.rows && fwd.rows->n == 0 : is_sentence(err.message)));
   }
   note("mod_model_forward(");
   batch = good_batch;
}

/* Other models than that of the tests above. Their batches have 2 sequences of 4, good_rows or good_tokens. */
enum { INPUTS = 3 };
static mod_real good_rows[2 * 4 * INPUTS], good_values[4] = {1, -1, 0.5f, 2};
static mod_model *other_model(int rows_in, int head, int mask)
{
   mod_config other = small_config();
   mod_model *m;
   other.mask = mask;
   other.head = head;
   if (head >= MOD_HEAD_CLASS) other.n_outputs = 2;
   if (rows_in) other.n_inputs = INPUTS;
   m = mod_model_create(&other, NULL, &err);
   CHECK(m && mod_model_randomize(m, 1, NULL) == MOD_RESULT_OK);
   if (!m) exit(1);
   for (int i = 0; i < 2 * 4 * INPUTS; ++i) good_rows[i] = (mod_real)(i % 5 - 2);
   memcpy(tokens, good_tokens, sizeof good_tokens);
   return m;
}

static mod_result forward_on(const mod_model *m, mod_tape *t, mod_error *e)
{
   mod_tape_reset(t);
   return mod_model_forward(m, t, NULL, &batch, &fwd, e);
}

static void test_other_models(void)
{
   static uint64_t memory[8192];
   static const double wrong[] = {NAN_, INF_, -INF_};
   static const int lengths[2] = {4, 1};
   static int classes[2] = {1, -1};
   mod_tape *t = mod_tape_init(NULL, memory, sizeof memory, NULL);
   mod_model *m;

   /* Float rows: all that are read must be finite, and there must be some. */
   m = other_model(1, MOD_HEAD_UNTIED, MOD_MASK_CAUSAL);
   watch_out(&fwd, sizeof fwd);
   for (int mode = 0; mode < 2; ++mode) {
      batch = good_batch;
      batch.mode = mode;
      REFUSED(MOD_RESULT_ARG, forward_on(m, t, e)); /* tokens instead */
      batch.inputs = good_rows;
      for (int at = 0; at < 8 * INPUTS; ++at) {
         good_rows[at] = (mod_real)wrong[at % 3];
         REFUSED(MOD_RESULT_NUMERIC, forward_on(m, t, e));
         CHECKF(err.where == at / INPUTS, "number %d: where %d", at, (int)err.where);
         good_rows[at] = 0;
      }
   }
   unwatch();
   batch.tokens = NULL; /* not needed */
   batch.targets = NULL;
   ACCEPTED(forward_on(m, t, e));
   good_rows[5 * INPUTS] = (mod_real)NAN_;
   batch.lengths = lengths; /* padding is never read */
   ACCEPTED(forward_on(m, t, e));
   mod_model_destroy(m);

   /* Tokens: not rows. Classes: one target for a sequence, of n_outputs. */
   m = other_model(0, MOD_HEAD_CLASS, MOD_MASK_CAUSAL);
   watch_out(&fwd, sizeof fwd);
   batch = good_batch;
   batch.targets = classes;
   batch.tokens = NULL;
   batch.inputs = good_rows;
   REFUSED(MOD_RESULT_ARG, forward_on(m, t, e));
   batch.tokens = tokens;
   for (int i = 0; i < 4; ++i) {
      static const int outside[4] = {2, 8, INT32_MAX, -2};
      classes[i % 2] = outside[i];
      REFUSED(MOD_RESULT_RANGE, forward_on(m, t, e));
      CHECK(err.where == i % 2);
      classes[0] = 1, classes[1] = -1;
   }
   unwatch();
   ACCEPTED(forward_on(m, t, e));
   CHECK(fwd.n_targets == 1);
   mod_model_destroy(m);

   /* Not causal: in no mode but one, and without sessions. */
   m = other_model(0, MOD_HEAD_TIED, MOD_MASK_FULL);
   {
      mod_config c_ = mod_model_config(m);
      mod_session_desc d;
      size_t bytes, cache;
      memset(&d, 0, sizeof d);
      watch_out(&fwd, sizeof fwd);
      watch_out(&bytes, sizeof bytes);
      watch_out(&cache, sizeof cache);
      batch = good_batch;
      batch.mode = MOD_MODE_CAUSAL;
      REFUSED(MOD_RESULT_ARG, forward_on(m, t, e));
      REFUSED(MOD_RESULT_ARG, mod_session_plan(&c_, &d, &bytes, &cache, e));
      REFUSED_NULL(MOD_RESULT_ARG, mod_session_init(m, &d, memory, sizeof memory, e));
      REFUSED_NULL(MOD_RESULT_ARG, mod_session_create(m, NULL, NULL, e));
      unwatch();
      t = mod_tape_init(NULL, memory, sizeof memory, NULL);
      batch.mode = MOD_MODE_TOPK;
      ACCEPTED(forward_on(m, t, e));
   }
   mod_model_destroy(m);

   /* Numbers: without values there is no loss, and no training; with such that are no numbers, no step. */
   m = other_model(0, MOD_HEAD_REGRESSION, MOD_MASK_CAUSAL);
   {
      mod_trainer *train = mod_trainer_create(m, &how, NULL, &err);
      size_t n;
      mod_real *params = mod_model_params(m, &n);
      CHECK(train != NULL);
      batch = good_batch; /* targets are no values */
      soil();
      ACCEPTED(forward_on(m, t, e));
      CHECK(fwd.loss == NULL && fwd.cross_entropy == 0 && fwd.n_targets == 0);
      watch(params, n * sizeof *params);
      watch_out(&info, sizeof info);
      REFUSED(MOD_RESULT_ARG, mod_train_step(train, &batch, &info, e));
      REFUSED(MOD_RESULT_ARG, mod_train_accumulate(train, &batch, e));
      batch.values = good_values;
      for (int i = 0; i < 3; ++i) {
         good_values[i] = (mod_real)wrong[i];
         REFUSED(MOD_RESULT_NUMERIC, mod_train_step(train, &batch, &info, e));
         good_values[i] = 1;
      }
      unwatch();
      CHECK(mod_train_step(train, &batch, &info, &err) == MOD_RESULT_OK && info.step == 1);
      mod_trainer_destroy(train);
   }
   mod_model_destroy(m);

   /* What draws nothing and takes all is fine at the ends of the ranges. */
   batch = good_batch;
   batch.least_capacity = 1;
   batch.dropout = 0.999;
   m = other_model(0, MOD_HEAD_UNTIED, MOD_MASK_CAUSAL);
   ACCEPTED(forward_on(m, t, e));
   CHECK(fwd.logits && fwd.kept[2] == 4 && fwd.kept[3] == 4); /* the routed block takes everyone */
   mod_model_destroy(m);
   batch = good_batch;
   note("mod_model_forward(");
}

static void row_mod_forward_logits(void)
{
   mod_real out[2 * 4 * 8];
   mod_forward empty;
   mod_batch other;
   memset(&empty, 0, sizeof empty);
   batch = good_batch;
   CHECK(forward(NULL) == MOD_RESULT_OK);
   watch_out(out, sizeof out);
   REFUSED(MOD_RESULT_ARG, mod_forward_logits(NULL, &batch, out, e));
   REFUSED(MOD_RESULT_ARG, mod_forward_logits(&fwd, NULL, out, e));
   REFUSED(MOD_RESULT_ARG, mod_forward_logits(&fwd, &batch, NULL, e));
   REFUSED(REFUSAL, mod_forward_logits(&empty, &batch, out, e));
   other = batch;
   other.n_seqs = 1;
   REFUSED(REFUSAL, mod_forward_logits(&fwd, &other, out, e));
   other.n_seqs = -1;
   REFUSED(REFUSAL, mod_forward_logits(&fwd, &other, out, e));
   other = batch;
   other.length = 3;
   REFUSED(REFUSAL, mod_forward_logits(&fwd, &other, out, e));
   other.length = INT32_MIN;
   REFUSED(REFUSAL, mod_forward_logits(&fwd, &other, out, e));
   unwatch();
   ACCEPTED(mod_forward_logits(&fwd, &batch, out, e));

   { /* of a class head: one row for a sequence, though there be as many tokens as sequences */
      static uint64_t memory[4096];
      static const int lengths[2] = {2, 0}, classes[2] = {0, 1};
      mod_model *m = other_model(0, MOD_HEAD_CLASS, MOD_MASK_CAUSAL);
      mod_tape *t = mod_tape_init(NULL, memory, sizeof memory, NULL);
      for (int i = 0; i < 2; ++i) {
         batch.targets = classes;
         batch.lengths = i ? lengths : NULL;
         CHECK(forward_on(m, t, &err) == MOD_RESULT_OK && fwd.logits->dim[0] == 2);
         watch_out(out, sizeof out);
         REFUSED(MOD_RESULT_SHAPE, mod_forward_logits(&fwd, &batch, out, e));
         unwatch();
      }
      mod_model_destroy(m);
      batch = good_batch;
      batch.lengths = lengths; /* as many tokens, of a head for tokens */
      CHECK(forward(NULL) == MOD_RESULT_OK);
      ACCEPTED(mod_forward_logits(&fwd, &batch, out, e));
      batch = good_batch;
   }
}

static void row_mod_config_match(void)
{
   mod_config bad = cfg, found, most = huge_config();
   static const double wrong[] = {0, -1, 1, 1e300};
   static const mod_block_config blocks[16] = {{0}};
   watch_out(&found, sizeof found);
   REFUSED(MOD_RESULT_CONFIG, mod_config_match(NULL, 1e6, &found, e));
   REFUSED(MOD_RESULT_ARG, mod_config_match(&cfg, 1e6, NULL, e));
   for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i)
      REFUSED(MOD_RESULT_ARG, mod_config_match(&cfg, wrong[i], &found, e));
   REFUSED(MOD_RESULT_ARG, mod_config_match(&cfg, nan(""), &found, e));
   REFUSED(MOD_RESULT_ARG, mod_config_match(&cfg, HUGE_VAL, &found, e));
   bad.blocks = blocks;
   REFUSED(MOD_RESULT_ARG, mod_config_match(&bad, 1e6, &found, e));
   bad = cfg;
   bad.d_model = 0;
   REFUSED(MOD_RESULT_CONFIG, mod_config_match(&bad, 1e6, &found, e));
   unwatch();
   bad = cfg;
   bad.n_layers = -1; /* is not read */
   ACCEPTED(mod_config_match(&bad, 1e6, &found, e));
   ACCEPTED(mod_config_match(&bad, 1e6, &bad, e));
   CHECK(bad.n_layers == found.n_layers && bad.d_ff == found.d_ff);
   mod_flops f;
   CHECK(mod_config_flops(&most, 1, &most.context, NULL, &f, NULL) == MOD_RESULT_OK);
   ACCEPTED(mod_config_match(&most, f.total, &found, e));
   CHECK(found.n_layers == most.n_layers);
   REFUSED(MOD_RESULT_ARG, mod_config_match(&most, 2 * f.total, &found, e)); /* more blocks than there may be */
}

static void row_mod_config_flops(void)
{
   static const int lengths[2] = {4, 3}, wrong[4][2] = {{-1, 4}, {4, 5}, {INT32_MIN, 0}, {0, INT32_MAX}};
   static const mod_block_stats counts[2] = {{.kept = 7, .keys = 7, .pairs = 16, .mlp_rows = 7},
                                             {.kept = 3, .keys = 2, .pairs = 4, .mlp_rows = 6}};
   static const mod_block_stats wrong_counts[6][2] = {{{.kept = 8}}, {{.kept = -1}}, {{.keys = 8}}, {{.keys = -1}},
                                                      {{.pairs = -1}}, {{.kept = 7}, {.mlp_rows = -1}}};
   static const int longest[2] = {1 << 20, 1 << 20};
   mod_config bad = cfg, most = huge_config();
   mod_flops f;
   watch_out(&f, sizeof f);
   REFUSED(MOD_RESULT_ARG, mod_config_flops(NULL, 2, lengths, NULL, &f, e));
   REFUSED(MOD_RESULT_ARG, mod_config_flops(&cfg, 2, NULL, NULL, &f, e));
   REFUSED(MOD_RESULT_ARG, mod_config_flops(&cfg, 2, lengths, NULL, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_config_flops(&cfg, -1, lengths, NULL, &f, e));
   REFUSED(MOD_RESULT_ARG, mod_config_flops(&cfg, INT32_MIN, lengths, NULL, &f, e));
   bad.n_layers = 0;
   REFUSED(MOD_RESULT_CONFIG, mod_config_flops(&bad, 2, lengths, NULL, &f, e));
   for (int i = 0; i < 4; ++i) REFUSED(REFUSAL, mod_config_flops(&cfg, 2, wrong[i], NULL, &f, e));
   for (int i = 0; i < 6; ++i) REFUSED(REFUSAL, mod_config_flops(&cfg, 2, lengths, wrong_counts[i], &f, e));
   unwatch();
   ACCEPTED(mod_config_flops(&cfg, 2, lengths, counts, &f, e));
   ACCEPTED(mod_config_flops(&cfg, 2, lengths, NULL, &f, e));
   ACCEPTED(mod_config_flops(&most, 2, longest, NULL, &f, e));
   {
      /* 2 D per attended pair for q k and again for p v: no integer below 2^53 holds it, a double does. */
      double D = 65536, F = 262144, N = 2097152, pairs = 1048576.0 * 1048577;
      double expected = 1024 * (2 * N * (4 * D * D + 2 * D * F) + 4 * D * pairs);
      CHECKF(fabs(f.blocks / expected - 1) < 1e-12, "%g, not %g", f.blocks, expected);
      CHECK(isfinite(f.head) && isfinite(f.total) && f.total >= f.blocks);
   }
}

/* ----------------------------------------------------------------------------------------------------- training -- */

static void row_mod_train_resolve(void)
{
   mod_train_desc zero, d;
   memset(&zero, 0, sizeof zero);
   d = mod_train_resolve(NULL, NULL);
   HOLDS(mod_train_resolve(NULL, NULL).n_threads >= 0);
   CHECK(isfinite(d.lr));
   HOLDS(mod_train_resolve(&zero, NULL).steps == 1000);
   HOLDS(mod_train_resolve(&zero, &cfg).length == 4);
   HOLDS(mod_train_resolve(NULL, &cfg).n_seqs >= 0);
   zero.lr = NAN_;
   zero.steps = INT32_MIN;
   d = mod_train_resolve(&zero, &cfg);
   CHECK(isnan(d.lr) && d.steps == INT32_MIN); /* not replaced: the trainer shall see them */
}

static void row_mod_train_lr(void)
{
   static const int64_t steps[8] = {0, 1, 9, 10, INT64_MAX, -1, INT64_MIN, (int64_t)1 << 40};
   mod_train_desc d = mod_train_resolve(&how, &cfg);
   HOLDS(mod_train_lr(NULL, 0) == 0);
   HOLDS(mod_train_lr(NULL, INT64_MIN) == 0);
   for (int w_ = 0; w_ < 3; ++w_) {
      d.warmup = w_ == 0 ? 0 : w_ == 1 ? 5 : INT32_MAX;
      for (int i = 0; i < 8; ++i) HOLDS(mod_train_lr(&d, steps[i]) >= 0 && mod_train_lr(&d, steps[i]) <= d.lr);
   }
   memset(&d, 0, sizeof d); /* not resolved: 0 steps must not divide */
   HOLDS(!isnan(mod_train_lr(&d, 0)) && !isnan(mod_train_lr(&d, 5)));
}

static void row_mod_adamw(void)
{
   static mod_real p[6] = {1, 2, 3, 4, 5, 6}, g[6] = {1, -1, 2, -2, 0, 3}, m[6], v[6];
   static const double bad[] = {NAN_, INF_, -INF_};
   mod_train_desc d, good = mod_train_resolve(&how, &cfg);
   double norm;
   int tried = 0;
   watch(p, sizeof p);
   watch(m, sizeof m);
   watch(v, sizeof v);
   watch_out(&norm, sizeof norm);
   REFUSED(MOD_RESULT_ARG, mod_adamw(NULL, 0, p, g, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, 0, NULL, g, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, 0, p, NULL, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, 0, p, g, NULL, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, 0, p, g, m, NULL, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, -1, p, g, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, INT64_MIN, p, g, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(&good, INT64_MAX, p, g, m, v, 6, &norm, e));
   REFUSED(MOD_RESULT_ARG, mod_adamw(NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, e));
   if (sizeof(size_t) == 8) REFUSED(MOD_RESULT_ARG, mod_adamw(&good, 0, p, g, m, v, SIZE_MAX, &norm, e));
   for (int i = 0; spoil_desc(&d, i); ++i) { /* the shape of batches is none of its business */
      if ((i >= 22 && i <= 25) || i == 21 || i == 32) continue;
      d = mod_train_resolve(&d, &cfg);
      REFUSED(MOD_RESULT_ARG, mod_adamw(&d, 0, p, g, m, v, 6, &norm, e));
      ++tried;
   }
   CHECK(tried == 48 - 6);
   memset(&d, 0, sizeof d); /* not resolved */
   REFUSED(MOD_RESULT_ARG, mod_adamw(&d, 0, p, g, m, v, 6, &norm, e));
   for (int i = 0; i < 18; ++i) {
      mod_real keep = g[i / 3];
      g[i / 3] = (mod_real)bad[i % 3];
      REFUSED(MOD_RESULT_NUMERIC, mod_adamw(&good, 0, p, g, m, v, 6, &norm, e));
      g[i / 3] = keep;
   }
   unwatch();
   ACCEPTED(mod_adamw(&good, 0, NULL, NULL, NULL, NULL, 0, NULL, e));
   ACCEPTED(mod_adamw(&good, INT64_MAX - 1, p, g, m, v, 6, NULL, e));
   d = good; /* the shape of batches may be anything */
   d.n_seqs = d.length = -7;
   ACCEPTED(mod_adamw(&d, 0, p, g, m, v, 6, &norm, e));
   CHECK(fabs(norm - sqrt(19.0)) < 1e-12);
}

static void row_mod_trainer_init(void)
{
   mod_train_desc d;
   uint64_t *memory = (uint64_t *)malloc(plan.trainer + 16);
   int n;
   if (!memory) exit(2);
   memset(memory, 0, plan.trainer + 16);
   watch(memory, 4096);
   REFUSED_NULL(MOD_RESULT_ARG, mod_trainer_init(NULL, &how, memory, plan.trainer, e));
   REFUSED_NULL(MOD_RESULT_ARG, mod_trainer_init(model, &how, NULL, plan.trainer, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_trainer_init(model, &how, memory, 0, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_trainer_init(model, &how, memory, 1, e));
   for (int off = 1; off < 8; ++off)
      REFUSED_NULL(MOD_RESULT_ALIGN, mod_trainer_init(model, &how, (char *)memory + off, plan.trainer, e));
   for (n = 0; spoil_desc(&d, n); ++n) REFUSED_NULL(REFUSAL, mod_trainer_init(model, &d, memory, plan.trainer, e));
   CHECK(n == 48);
   unwatch();
   HOLDS(mod_trainer_init(model, &how, memory, plan.trainer, &err) != NULL && err.code == MOD_RESULT_OK);
   free(memory);
}

static void row_mod_trainer_create(void)
{
   mod_allocator a = heap_allocator;
   mod_train_desc d;
   mod_trainer *t;
   heap_start(0);
   REFUSED_NULL(MOD_RESULT_ARG, mod_trainer_create(NULL, &how, &a, e));
   for (int n = 0; spoil_desc(&d, n); ++n) REFUSED_NULL(REFUSAL, mod_trainer_create(model, &d, &a, e));
   a.alloc = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_trainer_create(model, &how, &a, e));
   a = heap_allocator;
   a.free = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_trainer_create(model, &how, &a, e));
   a = heap_allocator;
   d = small_desc();
   d.n_seqs = 1 << 22; /* 2^24 rows: more than the allocator has */
   REFUSED_NULL(REFUSAL, mod_trainer_create(model, &d, &a, e));
   CHECK(heap.live == 0 && heap.frees_null == 0);
   HOLDS((t = mod_trainer_create(model, NULL, &a, &err)) != NULL && err.code == MOD_RESULT_OK);
   mod_trainer_destroy(t);
   CHECK(heap.live == 0);
}

static void row_mod_trainer_destroy(void)
{
   mod_trainer_destroy(NULL);
   note("mod_trainer_destroy(NULL)");
}

/* Refused steps leave weights, gradients and the caller's info alone. */
static void watch_training(void)
{
   size_t n;
   mod_real *g = mod_trainer_grads(trainer, &n);
   watch(mod_model_params(model, NULL), plan.params);
   watch(g, n * sizeof *g);
   watch_out(&info, sizeof info);
}
#define STEP(expected, spoil, call)                  \
   do {                                              \
      batch = good_batch;                            \
      memcpy(tokens, good_tokens, sizeof good_tokens); \
      memcpy(targets, good_targets, sizeof good_targets); \
      spoil;                                         \
      REFUSED(expected, call);                       \
   } while (0)

/* What mod_train_step and mod_train_accumulate refuse alike. */
#define BAD_STEPS(call)                                                        \
   do {                                                                        \
      static const int outside_[4] = {-1, 8, INT32_MIN, INT32_MAX};            \
      mod_batch b_;                                                            \
      for (int i_ = 0; i_ < OF_TRAINER && spoil_shape(&b_, i_); ++i_) STEP(REFUSAL, batch = b_, call); \
      STEP(MOD_RESULT_ARG, batch.tokens = NULL, call);                         \
      STEP(MOD_RESULT_ARG, batch.targets = NULL, call);                        \
      STEP(REFUSAL, batch.n_seqs = 3, call); /* more than was planned */       \
      for (int i_ = 0; i_ < 4; ++i_) {                                         \
         STEP(MOD_RESULT_RANGE, tokens[2 * i_ + 1] = outside_[i_], call);      \
         if (i_) STEP(MOD_RESULT_RANGE, targets[2 * i_] = outside_[i_], call); \
      }                                                                        \
   } while (0)

static void row_mod_train_step(void)
{
   mod_param p;
   mod_real keep;
   size_t n, zeros = 0;
   mod_real *g = mod_trainer_grads(trainer, &n);
   mod_error *none_ = NULL;
   batch = good_batch;
   memcpy(tokens, good_tokens, sizeof good_tokens);
   memcpy(targets, good_targets, sizeof good_targets);
   HOLDS(mod_train_step(trainer, &batch, &info, &err) == MOD_RESULT_OK && info.step == 1);
   HOLDS(mod_train_step(trainer, &batch, NULL, none_) == MOD_RESULT_OK);
   watch_training();
   REFUSED(MOD_RESULT_ARG, mod_train_step(NULL, &batch, &info, e));
   REFUSED(MOD_RESULT_ARG, mod_train_step(trainer, NULL, &info, e));
   BAD_STEPS(mod_train_step(trainer, &batch, &info, e));

   /* Weights that are no numbers, in the router (seen as a score) and in the last norm (seen as a loss). */
   for (int i = 0; i < 2; ++i) {
      unwatch();
      CHECK(mod_model_param(model, mod_model_find(model, i ? "norm.gain" : "blocks.1.router"), &p, NULL) ==
            MOD_RESULT_OK);
      keep = p.data[3];
      p.data[3] = (mod_real)NAN_;
      watch_training();
      STEP(MOD_RESULT_NUMERIC, (void)0, mod_train_step(trainer, &batch, &info, e));
      p.data[3] = keep;
   }
   unwatch();
   for (size_t i = 0; i < n; ++i) zeros += g[i] == 0;
   CHECK(zeros == n);
   batch = good_batch;
   memcpy(tokens, good_tokens, sizeof good_tokens);
   memcpy(targets, good_targets, sizeof good_targets);
   HOLDS(mod_train_step(trainer, &batch, &info, &err) == MOD_RESULT_OK && info.step == 3); /* none of them counted */
   for (int i = 0; i < 8; ++i) targets[i] = -1; /* nothing to learn: no NaN, whether refused or done */
   soil();
   CHECK(mod_train_step(trainer, &batch, &info, &err) == err.code);
   CHECK(err.code == MOD_RESULT_OK ? info.loss == 0 && isfinite(info.grad_norm) : is_sentence(err.message));
   memcpy(targets, good_targets, sizeof good_targets);
}

static void row_mod_train_accumulate(void)
{
   batch = good_batch;
   watch_training();
   REFUSED(MOD_RESULT_ARG, mod_train_accumulate(NULL, &batch, e));
   REFUSED(MOD_RESULT_ARG, mod_train_accumulate(trainer, NULL, e));
   BAD_STEPS(mod_train_accumulate(trainer, &batch, e));
   unwatch();
   batch = good_batch;
   memcpy(tokens, good_tokens, sizeof good_tokens);
   memcpy(targets, good_targets, sizeof good_targets);
   HOLDS(mod_train_accumulate(trainer, &batch, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   CHECK(mod_train_update(trainer, NULL, NULL) == MOD_RESULT_OK);
}

static void row_mod_train_update(void)
{
   watch_training();
   REFUSED(MOD_RESULT_ARG, mod_train_update(NULL, &info, e));
   REFUSED(MOD_RESULT_STATE, mod_train_update(trainer, &info, e)); /* nothing accumulated */
   unwatch();
   { /* a gradient that is no number */
      mod_real *g = mod_trainer_grads(trainer, NULL);
      batch = good_batch;
      CHECK(mod_train_accumulate(trainer, &batch, NULL) == MOD_RESULT_OK);
      g[5] = (mod_real)NAN_;
      watch(mod_model_params(model, NULL), plan.params);
      soil();
      refused(mod_train_update(trainer, &info, &err), MOD_RESULT_NUMERIC, "mod_train_update(a NaN gradient)", __LINE__);
      CHECK(g[5] == 0);
      unwatch();
   }
   batch = good_batch;
   CHECK(mod_train_accumulate(trainer, &batch, NULL) == MOD_RESULT_OK);
   HOLDS(mod_train_update(trainer, &info, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
}

static void row_mod_trainer_forward(void)
{
   mod_trainer *t = mod_trainer_create(model, &how, NULL, NULL);
   HOLDS(mod_trainer_forward(NULL) == NULL);
   HOLDS(mod_trainer_forward(t) == NULL); /* before the first */
   batch = good_batch;
   CHECK(mod_train_step(t, &batch, NULL, NULL) == MOD_RESULT_OK);
   HOLDS(mod_trainer_forward(t) != NULL);
   tokens[3] = -5;
   CHECK(mod_train_step(t, &batch, NULL, NULL) == MOD_RESULT_RANGE);
   HOLDS(mod_trainer_forward(t) == NULL); /* after a failed one */
   memcpy(tokens, good_tokens, sizeof good_tokens);
   mod_trainer_destroy(t);
}

static void row_mod_trainer_grads(void)
{
   size_t n = 77;
   HOLDS(mod_trainer_grads(NULL, NULL) == NULL);
   HOLDS(mod_trainer_grads(NULL, &n) == NULL);
   CHECK(n == 0);
   HOLDS(mod_trainer_grads(trainer, &n) != NULL && n == plan.n_params);
}

static void row_mod_trainer_peak(void)
{
   HOLDS(mod_trainer_peak(NULL) == 0);
   HOLDS(mod_trainer_peak(trainer) > 0 && mod_trainer_peak(trainer) <= plan.trainer);
}

static void row_mod_trainer_step(void)
{
   HOLDS(mod_trainer_step(NULL) == 0);
   HOLDS(mod_trainer_step(trainer) >= 0);
}

static void row_mod_sample(void)
{
   mod_real logits[4] = {1, 2, 3, 2};
   mod_sample_desc d;
   static const double bad_t[4] = {NAN_, INF_, -1, -INF_}, bad_p[6] = {NAN_, INF_, -0.1, 1.0000001, 2, -INF_};
   memset(&d, 0, sizeof d);
#define SAMPLED(expected, call) REFUSED(expected, ((call) == -1 ? e ? err.code : last_code : MOD_RESULT_OK))
   /* mod_sample returns a token or -1, so without a mod_error the code is the one seen before. */
   {
      static const int bad_n[3] = {0, -1, INT32_MIN};
      mod_result last_code;
#define BAD_SAMPLE(expected, l, n, desc)                                                          \
   last_code = (mod_sample(l, n, desc, 0, &err), err.code);                                       \
   SAMPLED(expected, mod_sample(l, n, desc, 0, e))
      BAD_SAMPLE(MOD_RESULT_ARG, NULL, 4, &d);
      BAD_SAMPLE(MOD_RESULT_ARG, NULL, 0, NULL);
      for (int i = 0; i < 3; ++i) {
         BAD_SAMPLE(MOD_RESULT_ARG, logits, bad_n[i], &d);
      }
      d.top_k = -1;
      BAD_SAMPLE(MOD_RESULT_ARG, logits, 4, &d);
      d.top_k = 0;
      for (int i = 0; i < 4; ++i) {
         d.temperature = bad_t[i];
         BAD_SAMPLE(MOD_RESULT_ARG, logits, 4, &d);
      }
      d.temperature = 1;
      for (int i = 0; i < 6; ++i) {
         d.top_p = bad_p[i];
         BAD_SAMPLE(MOD_RESULT_ARG, logits, 4, &d);
      }
      d.top_p = 0;
      for (int i = 0; i < 8; ++i) { /* greedy and drawn, NaN anywhere */
         d.temperature = i / 4;
         logits[i % 4] = (mod_real)NAN_;
         BAD_SAMPLE(MOD_RESULT_NUMERIC, logits, 4, &d);
         CHECK(err.where == i % 4);
         logits[i % 4] = 1;
      }
      for (int i = 0; i < 4; ++i) logits[i] = (mod_real)-INF_;
      for (int i = 0; i < 2; ++i) {
         d.temperature = i;
         BAD_SAMPLE(MOD_RESULT_NUMERIC, logits, 4, &d);
      }
   }
   logits[2] = 5; /* the only one that is possible, whatever is asked */
   for (int i = 0; i < 40; ++i) {
      static const double t[5] = {0, 1, 1e-300, 1e300, 4.9e-324};
      static const double p[4] = {0, 1, 1e-300, 0.5};
      d.temperature = t[i % 5];
      d.top_p = p[i / 5 % 4];
      d.top_k = i / 20 ? INT32_MAX : 1;
      d.seed = i % 2 ? UINT64_MAX : 0;
      HOLDS(mod_sample(logits, 4, &d, UINT64_MAX, &err) == 2 && err.code == MOD_RESULT_OK && err.message);
   }
   HOLDS(mod_sample(logits, 4, NULL, 0, NULL) == 2);
   logits[0] = (mod_real)INF_;
   d.top_k = 0;
   d.top_p = 0;
   for (int i = 0; i < 2; ++i) { /* an infinite logit is token 0 or is refused, never inf - inf */
      int token;
      d.temperature = i;
      soil();
      token = mod_sample(logits, 4, &d, 0, &err);
      CHECK(token == 0 || (token == -1 && err.code == MOD_RESULT_NUMERIC && is_sentence(err.message)));
   }
}

/* ------------------------------------------------------------------------------------- calibration and sessions -- */

#define CALIBRATE(expected, spoil)                      \
   do {                                                 \
      batch = good_batch;                               \
      memcpy(tokens, good_tokens, sizeof good_tokens);  \
      memcpy(targets, good_targets, sizeof good_targets); \
      spoil;                                            \
      REFUSED(expected, calibrate(e));                  \
   } while (0)
static mod_result calibrate(mod_error *e)
{
   mod_tape_reset(tape);
   return mod_model_calibrate(model, tape, &batch, e);
}

static void row_mod_model_calibrate(void)
{
   static const int outside[4] = {-1, 8, INT32_MIN, INT32_MAX};
   static const char *const poisoned[2] = {"blocks.1.router", "blocks.1.predictor.w1"};
   static uint64_t small[1024];
   double *theta = mod_model_thresholds(model);
   size_t n;
   mod_real *params = mod_model_params(model, &n), keep;
   mod_tape_desc desc;
   mod_tape *other;
   mod_param p;
   mod_batch b;
   int shapes;
   theta[0] = 0.25;
   theta[1] = -0.5;
   watch(theta, 2 * sizeof *theta);
   watch(params, n * sizeof *params);
   batch = good_batch;
   mod_tape_reset(tape);
   REFUSED(MOD_RESULT_ARG, mod_model_calibrate(NULL, tape, &batch, e));
   REFUSED(MOD_RESULT_ARG, mod_model_calibrate(model, NULL, &batch, e));
   REFUSED(MOD_RESULT_ARG, mod_model_calibrate(model, tape, NULL, e));
   mod_tape_reset(tape);
   mod_tape_fail(tape, MOD_RESULT_SHAPE, "an error made by the test", 3);
   REFUSED(MOD_RESULT_SHAPE, mod_model_calibrate(model, tape, &batch, e));
   for (shapes = 0; spoil_shape(&b, shapes); ++shapes)
      if (shapes < 7 || shapes > 9) CALIBRATE(REFUSAL, batch = b); /* 7 to 9 spoil the mode, which is ignored */
   CHECK(shapes == SHAPES);
   CALIBRATE(MOD_RESULT_ARG, batch.tokens = NULL);
   CALIBRATE(REFUSAL, batch.n_seqs = 3); /* more than the tape was made for */
   for (int i = 0; i < 4; ++i) {
      CALIBRATE(MOD_RESULT_RANGE, tokens[2 * i + 1] = outside[i]);
      CHECK(err.where == 2 * i + 1);
      if (i) CALIBRATE(MOD_RESULT_RANGE, targets[2 * i] = outside[i]);
   }
   memset(&desc, 0, sizeof desc);
   for (int measure = 0; measure < 2; ++measure) { /* too small, and one that only counts */
      batch = good_batch;
      memcpy(tokens, good_tokens, sizeof good_tokens);
      memcpy(targets, good_targets, sizeof good_targets);
      desc.measure = measure;
      desc.forward_only = 1;
      other = mod_tape_init(&desc, small, tape_least + 512, &err);
      CHECK(other != NULL);
      REFUSED(measure ? MOD_RESULT_ARG : MOD_RESULT_MEMORY, mod_model_calibrate(model, other, &batch, e));
   }
   unwatch();
   for (int i = 0; i < 2; ++i) {
      CHECK(mod_model_param(model, mod_model_find(model, poisoned[i]), &p, NULL) == MOD_RESULT_OK);
      keep = p.data[3];
      p.data[3] = (mod_real)NAN_;
      watch(theta, 2 * sizeof *theta);
      CALIBRATE(MOD_RESULT_NUMERIC, (void)0);
      CHECK(err.block == 1 && err.where == 0);
      unwatch();
      p.data[3] = keep;
   }
   batch = good_batch;
   for (int mode = -1; mode < 3; ++mode) {
      static const int nothing[2] = {0, 0};
      batch.mode = mode;
      batch.lengths = mode == 2 ? nothing : NULL; /* no token at all */
      batch.targets = mode == 1 ? NULL : targets;
      if (mode == 2) REFUSED(MOD_RESULT_ARG, calibrate(e));
      else ACCEPTED(calibrate(e));
      CHECK(theta[0] == 0.25 && isfinite(theta[1]));
   }
   theta[0] = theta[1] = 0;
   note("mod_model_calibrate(");
   batch = good_batch;
}

/* Settings of which no session is made; 0 when there is no such i. */
static int spoil_session(mod_session_desc *d, int i)
{
   static const int bad_seqs[] = {-1, 2, INT32_MIN, INT32_MAX}, bad[] = {-1, 5, INT32_MIN, INT32_MAX},
                    bad_threads[] = {-1, 1025, INT32_MIN, INT32_MAX};
   memset(d, 0, sizeof *d);
   if (i < 4) d->n_seqs = bad_seqs[i];
   else if (i < 8) d->length = bad[i - 4]; /* the context is 4 */
   else if (i < 12) d->chunk = bad[i - 8];
   else if (i < 16) d->n_threads = bad_threads[i - 12];
   else if (i == 16) d->length = 2, d->chunk = 3;
   else if (i < 20) d->simd = (mod_simd)no_level[i - 17];
   else return 0;
   return 1;
}

static void row_mod_session_plan(void)
{
   size_t bytes, cache;
   mod_config bad = cfg, most = huge_config();
   mod_session_desc d;
   int n;
   watch_out(&bytes, sizeof bytes);
   watch_out(&cache, sizeof cache);
   memset(&d, 0, sizeof d);
   REFUSED(MOD_RESULT_ARG, mod_session_plan(NULL, &d, &bytes, &cache, e));
   REFUSED(MOD_RESULT_ARG, mod_session_plan(&cfg, &d, NULL, &cache, e));
   bad.n_heads = 3;
   REFUSED(MOD_RESULT_CONFIG, mod_session_plan(&bad, &d, &bytes, &cache, e));
   for (n = 0; spoil_session(&d, n); ++n) REFUSED(MOD_RESULT_ARG, mod_session_plan(&cfg, &d, &bytes, &cache, e));
   CHECK(n == 20);
   unwatch();
   ACCEPTED(mod_session_plan(&cfg, NULL, &bytes, &cache, e));
   CHECK(bytes > cache && cache > 0);
   ACCEPTED(mod_session_plan(&cfg, NULL, &bytes, NULL, e));

   /* The largest of all: 2^46 keys, as many values, 2^30 positions. */
   soil();
   memset(&d, 0, sizeof d);
   d.chunk = 1 << 20;
   for (int i = 0; i < 2; ++i)
      if (mod_session_plan(&most, i ? &d : NULL, &bytes, &cache, &err) == MOD_RESULT_OK)
         CHECK((double)cache == 2 * 70368744177664.0 * sizeof(mod_real) + 4 * 1073741824.0 && bytes > cache);
      else
         CHECK(sizeof(size_t) < 8 && err.code == MOD_RESULT_MEMORY && is_sentence(err.message));
}

static void row_mod_session_init(void)
{
   static uint64_t memory[4000];
   mod_session_desc d;
   size_t bytes;
   int n;
   CHECK(mod_session_plan(&cfg, NULL, &bytes, NULL, NULL) == MOD_RESULT_OK && bytes + 8 <= sizeof memory);
   memset(&d, 0, sizeof d);
   watch_out(memory, sizeof memory);
   REFUSED_NULL(MOD_RESULT_ARG, mod_session_init(NULL, &d, memory, bytes, e));
   REFUSED_NULL(MOD_RESULT_ARG, mod_session_init(model, &d, NULL, bytes, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_session_init(model, &d, memory, 0, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_session_init(model, &d, memory, 1, e));
   for (int off = 1; off < 8; ++off)
      REFUSED_NULL(MOD_RESULT_ALIGN, mod_session_init(model, &d, (char *)memory + off, bytes, e));
   for (n = 0; spoil_session(&d, n); ++n) REFUSED_NULL(MOD_RESULT_ARG, mod_session_init(model, &d, memory, bytes, e));
   unwatch();
   HOLDS(mod_session_init(model, NULL, memory, bytes, &err) != NULL && err.code == MOD_RESULT_OK);
   HOLDS(mod_session_init(model, NULL, memory + 1, bytes, NULL) != NULL);
}

static void row_mod_session_create(void)
{
   mod_allocator a = heap_allocator;
   mod_session_desc d;
   mod_session *s;
   heap_start(0);
   memset(&d, 0, sizeof d);
   REFUSED_NULL(MOD_RESULT_ARG, mod_session_create(NULL, &d, &a, e));
   for (int n = 0; spoil_session(&d, n); ++n) REFUSED_NULL(MOD_RESULT_ARG, mod_session_create(model, &d, &a, e));
   a.alloc = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_session_create(model, NULL, &a, e));
   a = heap_allocator;
   a.free = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_session_create(model, NULL, &a, e));
   CHECK(heap.live == 0 && heap.calls == 0);
   a = heap_allocator;
   HOLDS((s = mod_session_create(model, NULL, &a, &err)) != NULL && err.code == MOD_RESULT_OK);
   mod_session_destroy(s);
   CHECK(heap.live == 0 && heap.frees_null == 0);
}

static void row_mod_session_destroy(void)
{
   mod_session_destroy(NULL);
   note("mod_session_destroy(NULL)");
}

static mod_session *session; /* of the model, with room for 4 tokens, fed 2 at a time */
static void session_set_up(int n_tokens)
{
   mod_session_desc d;
   memset(&d, 0, sizeof d);
   d.chunk = 2;
   session = mod_session_create(model, &d, NULL, &err);
   CHECK(session && (!n_tokens || mod_session_feed(session, good_tokens, n_tokens, NULL) == MOD_RESULT_OK));
   if (!session) exit(1);
}

static void row_mod_session_reset(void)
{
   mod_session_reset(NULL);
   session_set_up(0);
   for (int i = 0; i < 2; ++i) { /* before the first token, and twice */
      mod_session_reset(session);
      CHECK(mod_session_length(session) == 0 && mod_session_cached(session, 0) == 0 && !mod_session_logits(session));
   }
   mod_session_destroy(session);
   note("mod_session_reset(NULL)");
}

static void row_mod_session_feed(void)
{
   static const int counts[4] = {0, -1, INT32_MIN, -4}, outside[4] = {-1, 8, INT32_MIN, INT32_MAX};
   double *theta = mod_model_thresholds(model);
   int some[3];
   session_set_up(1);
   CHECK(mod_session_logits(session) != NULL);
   watch(mod_session_logits(session), 8 * sizeof(mod_real));
   REFUSED(MOD_RESULT_ARG, mod_session_feed(NULL, good_tokens, 1, e));
   REFUSED(MOD_RESULT_ARG, mod_session_feed(session, NULL, 1, e));
   for (int i = 0; i < 4; ++i) REFUSED(MOD_RESULT_ARG, mod_session_feed(session, good_tokens, counts[i], e));
   REFUSED(MOD_RESULT_FULL, mod_session_feed(session, good_tokens, 4, e));
   REFUSED(MOD_RESULT_FULL, mod_session_feed(session, good_tokens, INT32_MAX, e));
   for (int at = 0; at < 3; ++at)
      for (int i = 0; i < 4; ++i) {
         memcpy(some, good_tokens, sizeof some);
         some[at] = outside[i];
         REFUSED(MOD_RESULT_RANGE, mod_session_feed(session, some, 3, e));
         CHECK(err.where == at);
      }
   theta[1] = NAN_;
   REFUSED(MOD_RESULT_NUMERIC, mod_session_feed(session, good_tokens, 3, e));
   CHECK(err.block == 1);
   theta[1] = 0;
   CHECK(mod_session_length(session) == 1 && mod_session_cached(session, 0) == 1);
   unwatch();
   soil();
   HOLDS(mod_session_feed(session, good_tokens + 1, 3, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   watch(mod_session_logits(session), 8 * sizeof(mod_real));
   REFUSED(MOD_RESULT_FULL, mod_session_feed(session, good_tokens, 1, e));
   unwatch();
   mod_session_reset(session);
   HOLDS(mod_session_feed(session, good_tokens, 4, NULL) == MOD_RESULT_OK);
   mod_session_destroy(session);
}

static void row_mod_session_feed_rows(void)
{
   static const int counts[4] = {0, -1, INT32_MIN, -4};
   static const double wrong[] = {NAN_, INF_, -INF_};
   mod_model *m = other_model(1, MOD_HEAD_CLASS, MOD_MASK_CAUSAL);
   double *theta = mod_model_thresholds(m);
   mod_session_desc d;
   mod_session *s;
   memset(&d, 0, sizeof d);
   d.chunk = 2;
   s = mod_session_create(m, &d, NULL, &err);
   CHECK(s != NULL);
   if (!s) exit(1);
   HOLDS(mod_session_feed_rows(s, good_rows, 1, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   watch(mod_session_logits(s), 2 * sizeof(mod_real));
   REFUSED(MOD_RESULT_ARG, mod_session_feed_rows(NULL, good_rows, 1, e));
   REFUSED(MOD_RESULT_ARG, mod_session_feed_rows(s, NULL, 1, e));
   for (int i = 0; i < 4; ++i) REFUSED(MOD_RESULT_ARG, mod_session_feed_rows(s, good_rows, counts[i], e));
   REFUSED(MOD_RESULT_FULL, mod_session_feed_rows(s, good_rows, 4, e));
   REFUSED(MOD_RESULT_FULL, mod_session_feed_rows(s, good_rows, INT32_MAX, e));
   for (int at = 0; at < 3 * INPUTS; ++at) /* in the first chunk or a later one: the row of the call, as with tokens */
      for (int i = 0; i < 3; ++i) {
         mod_real keep = good_rows[at];
         good_rows[at] = (mod_real)wrong[i];
         REFUSED(MOD_RESULT_NUMERIC, mod_session_feed_rows(s, good_rows, 3, e));
         CHECKF(err.where == at / INPUTS, "number %d: where %d", at, (int)err.where);
         good_rows[at] = keep;
      }
   theta[1] = NAN_;
   REFUSED(MOD_RESULT_NUMERIC, mod_session_feed_rows(s, good_rows, 3, e));
   CHECK(err.block == 1);
   theta[1] = 0;
   REFUSED(MOD_RESULT_ARG, mod_session_feed(s, good_tokens, 1, e)); /* this model takes rows */
   CHECK(mod_session_length(s) == 1 && mod_session_cached(s, 0) == 1);
   unwatch();
   HOLDS(mod_session_feed_rows(s, good_rows, 3, NULL) == MOD_RESULT_OK);
   REFUSED(MOD_RESULT_FULL, mod_session_feed_rows(s, good_rows, 1, e));
   mod_session_destroy(s);
   mod_model_destroy(m);
   session_set_up(1);
   watch(mod_session_logits(session), 8 * sizeof(mod_real));
   REFUSED(MOD_RESULT_ARG, mod_session_feed_rows(session, good_rows, 1, e)); /* and that one tokens */
   CHECK(mod_session_length(session) == 1);
   unwatch();
   mod_session_destroy(session);
}

static void row_mod_session_logits(void)
{
   HOLDS(mod_session_logits(NULL) == NULL);
   session_set_up(0);
   HOLDS(mod_session_logits(session) == NULL);
   CHECK(mod_session_feed(session, good_tokens, 5, NULL) == MOD_RESULT_FULL);
   HOLDS(mod_session_logits(session) == NULL); /* after a failed one */
   CHECK(mod_session_feed(session, good_tokens, 1, NULL) == MOD_RESULT_OK);
   HOLDS(mod_session_logits(session) != NULL);
   mod_session_destroy(session);
}

static void row_mod_session_length(void)
{
   HOLDS(mod_session_length(NULL) == -1);
   session_set_up(0);
   HOLDS(mod_session_length(session) == 0);
   mod_session_destroy(session);
   session_set_up(3);
   HOLDS(mod_session_length(session) == 3);
   mod_session_destroy(session);
}

static void row_mod_session_cached(void)
{
   static const int no_block[4] = {-1, 2, INT32_MIN, INT32_MAX};
   HOLDS(mod_session_cached(NULL, 0) == -1);
   session_set_up(3);
   HOLDS(mod_session_cached(session, 0) == 3);
   HOLDS(mod_session_cached(session, 1) >= 0 && mod_session_cached(session, 1) <= 3);
   for (int i = 0; i < 4; ++i) HOLDS(mod_session_cached(session, no_block[i]) == -1);
   mod_session_destroy(session);
}

static void row_mod_session_peak(void)
{
   size_t bytes;
   mod_session_desc d;
   memset(&d, 0, sizeof d);
   d.chunk = 2;
   CHECK(mod_session_plan(&cfg, &d, &bytes, NULL, NULL) == MOD_RESULT_OK);
   HOLDS(mod_session_peak(NULL) == 0);
   session_set_up(0);
   HOLDS(mod_session_peak(session) > 0 && mod_session_peak(session) < bytes);
   CHECK(mod_session_feed(session, good_tokens, 4, NULL) == MOD_RESULT_OK);
   HOLDS(mod_session_peak(session) == bytes);
   mod_session_destroy(session);
}

/* -------------------------------------------------------------------------------------------------------- files -- */

static struct {
   unsigned char at[32768];
   size_t size;
} disk;
static size_t disk_read(uint64_t offset, void *to, size_t size, void *user)
{
   CHECK(user == &disk && offset <= disk.size && size <= disk.size - offset);
   memcpy(to, disk.at + offset, size);
   return size;
}
static size_t disk_write(const void *from, size_t size, void *user)
{
   CHECK(user == &disk);
   if (size > sizeof disk.at - disk.size) return 0;
   memcpy(disk.at + disk.size, from, size);
   disk.size += size;
   return size;
}
static const mod_writer disk_writer = {disk_write, &disk};
static mod_reader disk_reader(void)
{
   mod_reader reader = {0, disk_read, &disk};
   reader.size = disk.size;
   return reader;
}
/* The model on that disk, opened; to be closed. */
static mod_file *disk_file(void)
{
   mod_reader reader;
   disk.size = 0;
   if (mod_save(model, NULL, &disk_writer, &err) != MOD_RESULT_OK) return NULL;
   reader = disk_reader();
   return mod_file_create(&reader, NULL, &err);
}

static void row_mod_save(void)
{
   static const char *const meta[4] = {"a", "b", "c", "d"};
   const char *bad[4];
   static const char *const bad_text[3] = {"\xff", "\xed\xa0\x80", "a\xc3"};
   mod_save_desc d;
   mod_writer empty = {NULL, NULL};
   mod_model *other = mod_model_create(&cfg, NULL, NULL);
   memset(&d, 0, sizeof d);
   disk.size = 0;
   watch(&disk.size, sizeof disk.size); /* nothing is written by what is refused beforehand */
   REFUSED(MOD_RESULT_ARG, mod_save(NULL, NULL, &disk_writer, e));
   mod_model_thresholds(model)[1] = NAN_;
   REFUSED(MOD_RESULT_NUMERIC, mod_save(model, NULL, &disk_writer, e));
   mod_model_thresholds(model)[1] = 0;
   REFUSED(MOD_RESULT_ARG, mod_save(model, NULL, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_save(model, NULL, &empty, e));
   d.n_meta = 1;
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   d.meta = meta;
   d.n_meta = -1;
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   d.n_meta = INT32_MIN;
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   d.n_meta = INT32_MAX; /* twice as many texts are more than an int counts */
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   d.n_meta = 2;
   d.meta = bad;
   for (int i = 0; i < 4; ++i) {
      memcpy(bad, meta, sizeof bad);
      bad[i] = NULL;
      REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
      for (int k = 0; k < 3; ++k) {
         bad[i] = bad_text[k];
         REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
      }
   }
   memcpy(bad, meta, sizeof bad);
   bad[2] = "a"; /* the same key twice */
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   bad[2] = "mod.format";
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   bad[2] = "mod.";
   REFUSED(MOD_RESULT_ARG, mod_save(model, &d, &disk_writer, e));
   d.n_meta = 0;
   d.trainer = trainer; /* of `model` */
   REFUSED(MOD_RESULT_ARG, mod_save(other, &d, &disk_writer, e));
   unwatch();
   d.trainer = NULL;
   d.n_meta = 2;
   bad[2] = "mod";
   ACCEPTED((disk.size = 0, mod_save(model, &d, &disk_writer, e)));
   REFUSED(MOD_RESULT_IO, (disk.size = sizeof disk.at - 100, mod_save(model, NULL, &disk_writer, e)));
   mod_model_destroy(other);
}

static void row_mod_file_plan(void)
{
   mod_reader reader, bad;
   size_t bytes;
   mod_file *f = disk_file();
   mod_file_close(f);
   reader = bad = disk_reader();
   watch_out(&bytes, sizeof bytes);
   REFUSED(MOD_RESULT_ARG, mod_file_plan(NULL, &bytes, e));
   REFUSED(MOD_RESULT_ARG, mod_file_plan(&reader, NULL, e));
   bad.read = NULL;
   REFUSED(MOD_RESULT_ARG, mod_file_plan(&bad, &bytes, e));
   bad = reader;
   for (bad.size = 0; bad.size < 9; ++bad.size) REFUSED(MOD_RESULT_FORMAT, mod_file_plan(&bad, &bytes, e));
   disk.at[3] = 0xff;
   REFUSED(MOD_RESULT_FORMAT, mod_file_plan(&reader, &bytes, e));
   disk.at[3] = 0;
   unwatch();
   ACCEPTED(mod_file_plan(&reader, &bytes, e));
}

static void row_mod_file_init(void)
{
   mod_reader reader, bad;
   size_t bytes = 0;
   unsigned char *memory;
   mod_file_close(disk_file());
   reader = bad = disk_reader();
   CHECK(mod_file_plan(&reader, &bytes, &err) == MOD_RESULT_OK);
   memory = fence(bytes, 0);
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_init(NULL, memory, bytes, e));
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_init(&reader, NULL, bytes, e));
   bad.read = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_init(&bad, memory, bytes, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_file_init(&reader, memory, 0, e));
   REFUSED_NULL(MOD_RESULT_MEMORY, mod_file_init(&reader, memory, bytes - 1, e));
   for (size_t off = 1; off < 8; ++off)
      REFUSED_NULL(MOD_RESULT_ALIGN, mod_file_init(&reader, memory + off, bytes - 8, e));
   bad = reader;
   --bad.size;
   REFUSED_NULL(MOD_RESULT_FORMAT, mod_file_init(&bad, memory, bytes, e));
   HOLDS(mod_file_init(&reader, memory, bytes, &err) != NULL && err.code == MOD_RESULT_OK && err.message);
   CHECK(fenced());
}

static void row_mod_file_create(void)
{
   mod_reader reader, bad;
   mod_allocator a = heap_allocator;
   mod_file *f;
   mod_file_close(disk_file());
   reader = bad = disk_reader();
   heap_start(0);
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_create(NULL, &a, e));
   bad.read = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_create(&bad, &a, e));
   bad = reader;
   bad.size = UINT64_MAX; /* believed; but what it says must be there */
   disk.at[4] = 1;
   REFUSED_NULL(MOD_RESULT_FORMAT, mod_file_create(&bad, &a, e));
   disk.at[4] = 0;
   --reader.size;
   REFUSED_NULL(MOD_RESULT_FORMAT, mod_file_create(&reader, &a, e));
   ++reader.size;
   a.alloc = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_create(&reader, &a, e));
   a = heap_allocator;
   a.free = NULL;
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_create(&reader, &a, e));
   CHECK(heap.live == 0);
   heap_start(1);
   a = heap_allocator;
   HOLDS(mod_file_create(&reader, &a, &err) == NULL && err.code == MOD_RESULT_MEMORY && is_sentence(err.message));
   heap_start(0);
   heap.offset = 4;
   HOLDS(mod_file_create(&reader, &a, &err) == NULL && err.code == MOD_RESULT_ALIGN && heap.live == 0);
   heap_start(0);
   HOLDS((f = mod_file_create(&reader, &a, &err)) != NULL && err.code == MOD_RESULT_OK && heap.live == 1);
   mod_file_close(f);
   CHECK(heap.live == 0 && heap.frees_null == 0);
}

static void row_mod_file_close(void)
{
   mod_file_close(NULL);
   note("mod_file_close(NULL)");
}

static void row_mod_file_tensors(void)
{
   mod_file *f = disk_file();
   int count = 77;
   HOLDS(mod_file_tensors(NULL, &count) == NULL && count == 0);
   HOLDS(mod_file_tensors(NULL, NULL) == NULL);
   HOLDS(mod_file_tensors(f, NULL) != NULL && mod_file_tensors(f, &count) != NULL);
   CHECK(count == mod_model_param_count(model));
   mod_file_close(f);
}

static void row_mod_file_meta(void)
{
   mod_file *f = disk_file();
   HOLDS(mod_file_meta(NULL, "mod.format") == NULL && mod_file_meta(NULL, NULL) == NULL);
   HOLDS(mod_file_meta(f, NULL) == NULL && mod_file_meta(f, "") == NULL && mod_file_meta(f, "1") == NULL);
   HOLDS(mod_file_meta(f, "mod.format") != NULL);
   mod_file_close(f);
}

static void row_mod_file_read(void)
{
   mod_file *f = disk_file();
   mod_real out[64];
   int count;
   const mod_entry *t = mod_file_tensors(f, &count);
   size_t n = t ? (size_t)(t->end - t->begin) / sizeof *out : 0;
   CHECK(n == 64);
   watch_out(out, sizeof out);
   REFUSED(MOD_RESULT_ARG, mod_file_read(NULL, 0, out, n, e));
   REFUSED(MOD_RESULT_ARG, mod_file_read(f, 0, NULL, n, e));
   REFUSED(MOD_RESULT_ARG, mod_file_read(f, -1, out, n, e));
   REFUSED(MOD_RESULT_ARG, mod_file_read(f, count, out, n, e));
   REFUSED(MOD_RESULT_ARG, mod_file_read(f, INT32_MIN, out, n, e));
   REFUSED(MOD_RESULT_ARG, mod_file_read(f, INT32_MAX, out, n, e));
   REFUSED(MOD_RESULT_SHAPE, mod_file_read(f, 0, out, 0, e));
   REFUSED(MOD_RESULT_SHAPE, mod_file_read(f, 0, out, n - 1, e));
   REFUSED(MOD_RESULT_SHAPE, mod_file_read(f, 0, out, SIZE_MAX, e));
   unwatch();
   ACCEPTED(mod_file_read(f, 0, out, n, e));
   mod_file_close(f);
}

static void row_mod_file_config(void)
{
   mod_file *f = disk_file();
   mod_config out;
   watch_out(&out, sizeof out);
   REFUSED(MOD_RESULT_ARG, mod_file_config(NULL, &out, e));
   REFUSED(MOD_RESULT_ARG, mod_file_config(f, NULL, e));
   unwatch();
   ACCEPTED(mod_file_config(f, &out, e));
   mod_file_close(f);
}

static void row_mod_file_train_desc(void)
{
   mod_file *f = disk_file();
   mod_train_desc out;
   mod_save_desc d;
   uint64_t position;
   mod_reader reader;
   watch_out(&out, sizeof out);
   watch_out(&position, sizeof position);
   REFUSED(MOD_RESULT_ARG, mod_file_train_desc(NULL, &out, &position, e));
   REFUSED(MOD_RESULT_ARG, mod_file_train_desc(f, NULL, &position, e));
   REFUSED(MOD_RESULT_STATE, mod_file_train_desc(f, &out, &position, e)); /* saved without a trainer */
   mod_file_close(f);
   unwatch();
   memset(&d, 0, sizeof d);
   d.trainer = trainer;
   disk.size = 0;
   CHECK(mod_save(model, &d, &disk_writer, &err) == MOD_RESULT_OK);
   reader = disk_reader();
   f = mod_file_create(&reader, NULL, &err);
   ACCEPTED(mod_file_train_desc(f, &out, NULL, e));
   ACCEPTED(mod_file_train_desc(f, &out, &position, e));
   mod_file_close(f);
}

static void row_mod_file_load(void)
{
   mod_file *f = disk_file();
   mod_config wide = cfg;
   mod_model *other;
   size_t n;
   mod_real *weights = mod_model_params(model, &n);
   wide.d_ff = 9;
   other = mod_model_create(&wide, NULL, NULL);
   watch(weights, n * sizeof *weights);
   REFUSED(MOD_RESULT_ARG, mod_file_load(NULL, model, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_file_load(f, NULL, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_file_load(f, NULL, trainer, e));
   REFUSED(MOD_RESULT_ARG, mod_file_load(f, other, trainer, e));
   REFUSED(MOD_RESULT_FORMAT, mod_file_load(f, other, NULL, e));
   REFUSED(MOD_RESULT_STATE, mod_file_load(f, model, trainer, e)); /* saved without a trainer */
   ACCEPTED(mod_file_load(f, model, NULL, e)); /* the numbers that are there already */
   CHECK(untouched());
   unwatch();
   mod_model_destroy(other);
   mod_file_close(f);
}

static void row_mod_save_file(void)
{
   static char path[3000];
   mod_save_desc d;
   memset(&d, 0, sizeof d);
   memset(path, 'x', sizeof path - 1);
   REFUSED(MOD_RESULT_ARG, mod_save_file(NULL, NULL, "none/none", e));
   REFUSED(MOD_RESULT_ARG, mod_save_file(model, NULL, NULL, e));
   REFUSED(MOD_RESULT_ARG, mod_save_file(model, NULL, path, e));
   REFUSED(MOD_RESULT_IO, mod_save_file(model, NULL, "no such folder/none", e));
   REFUSED(MOD_RESULT_ARG, mod_save_file(model, NULL, "", e));
   d.n_meta = -1;
   REFUSED(MOD_RESULT_ARG, mod_save_file(model, &d, "test_refuse.none", e));
   CHECK(fopen("test_refuse.none", "rb") == NULL && fopen("test_refuse.none.tmp", "rb") == NULL);
}

static void row_mod_file_open(void)
{
   mod_allocator a = heap_allocator;
   heap_start(0);
   REFUSED_NULL(MOD_RESULT_ARG, mod_file_open(NULL, &a, e));
   REFUSED_NULL(MOD_RESULT_IO, mod_file_open("no such folder/none", &a, e));
   REFUSED_NULL(MOD_RESULT_IO, mod_file_open("", &a, e));
   CHECK(heap.calls == 0);
}

/* -------------------------------------------------------------------------------------------- memory, all sizes -- */

/* 0, the first and last 48 sizes below n, and some 100 between. */
static size_t next_size(size_t size, size_t n)
{
   size_t step = size < 48 || size + 48 >= n ? 1 : n / 100 + 1;
   if (size < n && size + 48 < n && size + step + 48 > n) step = n - 48 - size;
   return size + step;
}

static void test_small_memory(void)
{
   static mod_real grads[8192];
   mod_tape_desc desc;
   size_t least[2] = {0, 0};
   int tried = 0;
   CHECK(plan.n_params <= sizeof grads / sizeof *grads);
   memset(&desc, 0, sizeof desc);
   for (size_t size = 0; size <= plan.model; size = next_size(size, plan.model)) {
      mod_model *m = mod_model_init(&cfg, fence(size, 8), size, &err);
      CHECKF(size == plan.model ? m != NULL : !m && err.code == MOD_RESULT_MEMORY, "model of %lu bytes, planned %lu",
             (unsigned long)size, (unsigned long)plan.model);
      if (m) CHECK(mod_model_randomize(m, 1, NULL) == MOD_RESULT_OK);
      CHECKF(fenced(), "model of %lu bytes", (unsigned long)size);
      ++tried;
   }
   for (size_t size = 0; size <= plan.trainer; size = next_size(size, plan.trainer)) {
      mod_trainer *t = mod_trainer_init(model, &how, fence(size, 8), size, &err);
      CHECKF(size == plan.trainer ? t != NULL : !t && err.code == MOD_RESULT_MEMORY,
             "trainer of %lu bytes, planned %lu", (unsigned long)size, (unsigned long)plan.trainer);
      if (t) {
         batch = good_batch;
         CHECK(mod_train_step(t, &batch, NULL, &err) == MOD_RESULT_OK);
         CHECK(mod_trainer_peak(t) == plan.trainer);
      }
      CHECKF(fenced(), "trainer of %lu bytes", (unsigned long)size);
      ++tried;
   }
   /* A tape takes any size above its own; the forward pass then succeeds with exactly what was planned for it. */
   for (int mode = 0; mode < 2; ++mode)
      for (int only = 0; only < 2; ++only) {
         size_t bytes;
         desc.forward_only = only;
         batch = good_batch;
         batch.mode = mode;
         CHECK(mod_forward_plan(&cfg, &batch, &desc, &bytes, NULL) == MOD_RESULT_OK);
         least[only] = bytes;
         for (size_t size = 0; size <= bytes; size = next_size(size, bytes)) {
            mod_tape *t = mod_tape_init(&desc, fence(size, 8), size, &err);
            CHECKF(t || (size < tape_least && err.code == MOD_RESULT_MEMORY), "tape of %lu", (unsigned long)size);
            if (t) {
               mod_result r = mod_model_forward(model, t, grads, &batch, &fwd, &err);
               if (r == MOD_RESULT_OK && !only) r = mod_tape_backward(t, fwd.loss, &err);
               CHECKF(r == (size == bytes ? MOD_RESULT_OK : MOD_RESULT_MEMORY), "passes in %lu bytes, planned %lu: %s",
                      (unsigned long)size, (unsigned long)bytes, err.message);
               if (size == bytes) CHECK(mod_tape_peak(t) == bytes);
            }
            CHECKF(fenced(), "tape of %lu bytes", (unsigned long)size);
            ++tried;
         }
      }
   CHECK(tried > 6 * 150);
   CHECK(least[1] < least[0]); /* forward only needs less */
}

/* Each `create`, with call n of the allocator failing, for n = 1, 2, ... until none fails. */
static void test_failing_allocations(void)
{
   for (int what = 0; what < 3; ++what)
      for (int fail_at = 1;; ++fail_at) {
         void *made;
         heap_start(fail_at);
         soil();
         made = what == 0   ? (void *)mod_tape_create(NULL, 4096, &heap_allocator, &err)
                : what == 1 ? (void *)mod_model_create(&cfg, &heap_allocator, &err)
                            : (void *)mod_trainer_create(model, &how, &heap_allocator, &err);
         if (!made) {
            CHECK(err.code == MOD_RESULT_MEMORY && is_sentence(err.message) && heap.calls == fail_at && heap.live == 0);
            continue;
         }
         CHECK(fail_at == 2 && heap.calls == 1); /* each object is one block */
         CHECK(heap.live == 1);
         if (what == 0) mod_tape_destroy((mod_tape *)made);
         if (what == 1) mod_model_destroy((mod_model *)made);
         if (what == 2) {
            CHECK(mod_train_step((mod_trainer *)made, &good_batch, NULL, NULL) == MOD_RESULT_OK);
            CHECK(heap.calls == 1); /* nothing is allocated after set-up */
            mod_trainer_destroy((mod_trainer *)made);
         }
         CHECK(heap.live == 0 && heap.frees_null == 0);
         break;
      }
   for (int what = 0; what < 3; ++what) { /* an allocator that breaks its promise */
      void *made;
      heap_start(0);
      heap.offset = 4;
      made = what == 0   ? (void *)mod_tape_create(NULL, 4096, &heap_allocator, &err)
             : what == 1 ? (void *)mod_model_create(&cfg, &heap_allocator, &err)
                         : (void *)mod_trainer_create(model, &how, &heap_allocator, &err);
      CHECK(!made && err.code == MOD_RESULT_ALIGN && is_sentence(err.message) && heap.live == 0);
   }
}

/* The same for sessions: every size, and an allocator that has nothing or breaks its promise. */
static void test_session_memory(void)
{
   mod_session_desc d;
   size_t bytes;
   int tried = 0;
   memset(&d, 0, sizeof d);
   d.chunk = 3;
   CHECK(mod_session_plan(&cfg, &d, &bytes, NULL, NULL) == MOD_RESULT_OK);
   for (size_t size = 0; size <= bytes; size = next_size(size, bytes)) {
      mod_session *s = mod_session_init(model, &d, fence(size, 8), size, &err);
      CHECKF(size == bytes ? s != NULL : !s && err.code == MOD_RESULT_MEMORY, "session of %lu bytes, planned %lu",
             (unsigned long)size, (unsigned long)bytes);
      if (s) {
         CHECK(mod_session_feed(s, good_tokens, 4, &err) == MOD_RESULT_OK && mod_session_peak(s) == bytes);
         mod_session_destroy(s); /* its memory is ours: nothing to do */
      }
      CHECKF(fenced(), "session of %lu bytes", (unsigned long)size);
      ++tried;
   }
   CHECK(tried > 150);
   heap_start(1);
   CHECK(!mod_session_create(model, &d, &heap_allocator, &err) && err.code == MOD_RESULT_MEMORY && heap.calls == 1);
   heap_start(0);
   heap.offset = 4;
   CHECK(!mod_session_create(model, &d, &heap_allocator, &err) && err.code == MOD_RESULT_ALIGN && heap.live == 0);
   heap_start(2); /* each session is one block, and nothing is allocated after set-up */
   session = mod_session_create(model, &d, &heap_allocator, &err);
   CHECK(session && mod_session_feed(session, good_tokens, 4, NULL) == MOD_RESULT_OK);
   mod_session_destroy(session);
   CHECK(heap.calls == 1 && heap.live == 0 && heap.frees_null == 0);
}

/* -------------------------------------------------------------------------------------------- the table of rows -- */

typedef struct row {
   const char *name;
   void (*run)(void);
} row;
#define ROW(name) {#name, row_##name}
static const row rows[] = {
   ROW(mod_version), ROW(mod_build_info), ROW(mod_simd_best), ROW(mod_simd_name),
   ROW(mod_result_name), ROW(mod_arena_init), ROW(mod_arena_push),
   ROW(mod_arena_rewind), ROW(mod_config_resolve), ROW(mod_config_check), ROW(mod_config_block),
   ROW(mod_config_paths),
   ROW(mod_random_stream), ROW(mod_random_substream), ROW(mod_random_bits), ROW(mod_random_uniform),
   ROW(mod_random_normal), ROW(mod_route_capacity), ROW(mod_route_topk), ROW(mod_route_threshold),
   ROW(mod_route_slots), ROW(mod_route_choose),
   ROW(mod_tape_init), ROW(mod_tape_create), ROW(mod_tape_destroy), ROW(mod_tape_reset), ROW(mod_tape_mark),
   ROW(mod_tape_rewind), ROW(mod_tape_status), ROW(mod_tape_peak), ROW(mod_tape_flops), ROW(mod_tape_backward),
   ROW(mod_tape_fail), ROW(mod_leaf), ROW(mod_matmul), ROW(mod_matmul_nt), ROW(mod_matmul_tn), ROW(mod_add),
   ROW(mod_sub), ROW(mod_mul), ROW(mod_bias), ROW(mod_scale), ROW(mod_exp), ROW(mod_log), ROW(mod_gelu),
   ROW(mod_silu), ROW(mod_relu), ROW(mod_sigmoid), ROW(mod_tanh), ROW(mod_softmax), ROW(mod_rmsnorm),
   ROW(mod_layernorm), ROW(mod_embedding), ROW(mod_rope_table), ROW(mod_rope), ROW(mod_attention),
   ROW(mod_rows_make), ROW(mod_rows_topk), ROW(mod_rows_threshold), ROW(mod_rows_others),
   ROW(mod_rows_choose), ROW(mod_rows_mask), ROW(mod_gather), ROW(mod_dropout), ROW(mod_logsumexp), ROW(mod_pool),
   ROW(mod_scatter_add), ROW(mod_gate), ROW(mod_stop_grad), ROW(mod_sum), ROW(mod_mean), ROW(mod_cross_entropy),
   ROW(mod_bce_logits), ROW(mod_reshape), ROW(mod_transpose), ROW(mod_slice), ROW(mod_concat), ROW(mod_custom),
   ROW(mod_model_plan), ROW(mod_model_init), ROW(mod_model_create), ROW(mod_model_destroy),
   ROW(mod_model_randomize), ROW(mod_model_config), ROW(mod_model_params), ROW(mod_model_thresholds),
   ROW(mod_model_param_count), ROW(mod_model_param), ROW(mod_model_find), ROW(mod_forward_plan),
   ROW(mod_model_forward), ROW(mod_forward_logits), ROW(mod_config_flops), ROW(mod_config_match),
   ROW(mod_train_resolve), ROW(mod_train_lr),
   ROW(mod_adamw),
   ROW(mod_trainer_init), ROW(mod_trainer_create), ROW(mod_trainer_destroy), ROW(mod_train_step),
   ROW(mod_train_accumulate), ROW(mod_train_update), ROW(mod_trainer_forward), ROW(mod_trainer_grads),
   ROW(mod_trainer_peak), ROW(mod_trainer_step), ROW(mod_sample),
   /* Calibration and sessions. */
   ROW(mod_model_calibrate), ROW(mod_session_plan), ROW(mod_session_init), ROW(mod_session_create),
   ROW(mod_session_destroy), ROW(mod_session_reset), ROW(mod_session_feed), ROW(mod_session_feed_rows),
   ROW(mod_session_logits),
   ROW(mod_session_length), ROW(mod_session_cached), ROW(mod_session_peak),
   /* files */
   ROW(mod_save), ROW(mod_file_plan), ROW(mod_file_init), ROW(mod_file_create), ROW(mod_file_close),
   ROW(mod_file_tensors), ROW(mod_file_meta), ROW(mod_file_read), ROW(mod_file_config), ROW(mod_file_train_desc),
   ROW(mod_file_load), ROW(mod_save_file), ROW(mod_file_open),
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Every line of mod.h that begins with MODDEF declares or defines a public function: its name stands before the first
   parenthesis. Each must have a row; seen[i] counts those of row i. */
static void read_header(const char *path)
{
   static int seen[N_ROWS];
   FILE *file = path ? fopen(path, "rb") : NULL;
   char line[200];
   int names = 0;
   if (!path) file = fopen("mod.h", "rb");
   if (!file && !path) file = fopen("../mod.h", "rb");
   CHECKF(file != NULL, "mod.h is needed: give its path as an argument");
   if (!file) return;
   while (fgets(line, sizeof line, file)) {
      char *end, *name;
      int found = 0;
      if (strncmp(line, "MODDEF ", 7)) continue;
      end = strchr(line, '(');
      CHECKF(end != NULL, "no name found in: %.99s", line);
      if (!end) continue;
      *end = 0;
      for (name = end; name > line && (name[-1] == '_' || (name[-1] >= 'a' && name[-1] <= 'z') ||
                                       (name[-1] >= '0' && name[-1] <= '9')); --name) {}
      for (int i = 0; i < N_ROWS; ++i)
         if (!strcmp(rows[i].name, name)) found = ++seen[i];
      CHECKF(found, "%s has no row in tests/test_refuse.c", name);
      ++names;
   }
   fclose(file);
   for (int i = 0; i < N_ROWS; ++i) CHECKF(seen[i], "%s has a row but is not in mod.h", rows[i].name);
   CHECK(names >= N_ROWS && names >= 90);
}

int main(int argc, char **argv)
{
   read_header(argc > 1 ? argv[1] : NULL);
   model_set_up();
   trainer = mod_trainer_create(model, &how, NULL, &err);
   CHECK(trainer != NULL);
   for (int i = 0; i < N_ROWS; ++i) {
      int before = test_passed + test_failed;
      row_name = rows[i].name;
      row_hits = 0;
      n_watched = 0;
      T = mod_tape_init(NULL, tape_memory, sizeof tape_memory, NULL);
      rows[i].run();
      CHECKF(row_hits > 0, "the row of %s does not call it", rows[i].name);
      CHECKF(n_watched == 0 && (test_passed + test_failed > before || row_hits), "the row of %s", rows[i].name);
   }
   row_name = "";
   test_small_memory();
   test_failing_allocations();
   test_session_memory();
   mod_trainer_destroy(trainer);
   mod_tape_destroy(tape);
   mod_model_destroy(model);
   unfence();
   return test_end();
}
