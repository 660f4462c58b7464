/* exchange.c - a file written on one machine loads on another: the second half is run there. C99 that is also C++11.
   `exchange write PATH` trains a small model and saves it with its trainer and metadata. `exchange read PATH` makes the
   same model by itself, compares every setting and number with the file, and goes on from both. tests/check.sh carries
   the files about, and compares their bytes too. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"

enum { VOCAB = 24, CONTEXT = 16, SEQS = 2, LAYERS = 4, STEPS = 4, ROWS = SEQS * CONTEXT };

static const uint64_t POSITION = 0xfedcba9876543210ull;
static const char *const META[] = {"name", "exchange",
                                   "odd", "\"quoted\" \\ and \ttab\n, \xc3\xa4 \xe2\x82\xac \xf0\x9d\x84\x9e, {}[]:,",
                                   "", "the empty key",
                                   "empty", ""};
enum { N_META = (int)(sizeof META / sizeof META[0] / 2) };

typedef struct run {
   mod_model *model;
   mod_trainer *trainer;
   mod_step_info info; /* of the last step */
} run;

/* Says the library's own words if something is not `ok`. */
static int good(int ok, const mod_error *err)
{
   CHECKF(ok, "%s (block %d, %ld)", err->message, err->block, (long)err->where);
   return ok;
}
static int succeeded(mod_result result, const mod_error *err) { return good(result == MOD_RESULT_OK, err); }

/* One step on a batch that follows from its number. */
static int step(run *r, int number)
{
   int tokens[ROWS], targets[ROWS];
   mod_batch batch;
   mod_error err;
   memset(&batch, 0, sizeof batch);
   batch.n_seqs = SEQS;
   batch.length = CONTEXT;
   batch.tokens = tokens;
   batch.targets = targets;
   for (int i = 0; i < ROWS; ++i) {
      tokens[i] = (i * i + 5 * number + i / CONTEXT) % VOCAB;
      targets[i] = (tokens[i] * 7 + 3) % VOCAB;
   }
   return succeeded(mod_train_step(r->trainer, &batch, &r->info, &err), &err);
}

/* The model as it is saved: a dense block, a stochastic one, two learned ones with other capacities and gates. */
static run make(void)
{
   run r;
   mod_error err;
   mod_config cfg;
   mod_train_desc how;
   mod_block_config blocks[LAYERS];
   memset(&r, 0, sizeof r);
   memset(&cfg, 0, sizeof cfg);
   memset(&how, 0, sizeof how);
   memset(blocks, 0, sizeof blocks);
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = 16;
   cfg.n_heads = 2;
   cfg.d_ff = 24;
   cfg.norm = MOD_NORM_LAYER;
   cfg.activation = MOD_ACTIVATION_SWIGLU;
   cfg.bias = MOD_BIAS_ON;
   cfg.head = MOD_HEAD_UNTIED;
   cfg.capacity = 0.3;
   cfg.causal = MOD_CAUSAL_BOTH;
   cfg.norm_eps = 1.1e-5;
   cfg.rope_base = 12345.678;
   blocks[1].gate = MOD_GATE_TANH;
   blocks[2].select = MOD_SELECT_STOCHASTIC;
   blocks[2].capacity = 0.7;
   cfg.blocks = blocks;
   how.n_seqs = SEQS;
   how.steps = 100;
   how.warmup = 2;
   how.lr = 3e-3;
   how.weight_decay = 0.1;
   how.clip_norm = 0.5;
   how.seed = 0x9e3779b97f4a7c15ull; /* of the stochastic block */
   r.model = mod_model_create(&cfg, NULL, &err);
   if (!good(r.model != NULL, &err)) return r;
   mod_model_randomize(r.model, 0xdeadbeef12345678ull, NULL);
   for (int b = 0; b < LAYERS; ++b) mod_model_thresholds(r.model)[b] = (b - 1.5) / 3;
   r.trainer = mod_trainer_create(r.model, &how, NULL, &err);
   if (!good(r.trainer != NULL, &err)) return r;
   for (int i = 0; i < STEPS; ++i)
      if (!step(&r, i)) break;
   return r;
}

static void destroy(run *r)
{
   mod_trainer_destroy(r->trainer);
   mod_model_destroy(r->model);
}

static mod_save_desc saved(const run *r)
{
   mod_save_desc what;
   memset(&what, 0, sizeof what);
   what.n_meta = N_META;
   what.meta = META;
   what.trainer = r->trainer;
   what.position = POSITION;
   return what;
}

/* A writer that compares what it is given with a file. */
typedef struct same_bytes {
   FILE *file;
   size_t count, differ;
} same_bytes;
static size_t compare(const void *from, size_t size, void *user)
{
   same_bytes *s = (same_bytes *)user;
   for (size_t i = 0; i < size; ++i) s->differ += getc(s->file) != ((const unsigned char *)from)[i];
   s->count += size;
   return size;
}

/* Saving `r` gives the bytes of the file. */
static void same_file(const run *r, const char *path)
{
   same_bytes s;
   mod_writer writer;
   mod_error err;
   mod_save_desc what = saved(r);
   memset(&s, 0, sizeof s);
   s.file = fopen(path, "rb");
   if (!CHECK(s.file != NULL)) return;
   writer.write = compare;
   writer.user = &s;
   succeeded(mod_save(r->model, &what, &writer, &err), &err);
   CHECKF(s.differ == 0 && getc(s.file) == EOF, "of %lu bytes %lu differ", (unsigned long)s.count,
          (unsigned long)s.differ);
   CHECK(s.count > 10000);
   fclose(s.file);
}

static void same_config(mod_config a, mod_config b)
{
   CHECK(a.n_layers == LAYERS && b.n_layers == LAYERS && a.blocks && b.blocks);
   for (int i = 0; a.blocks && b.blocks && i < LAYERS; ++i)
      CHECKF(a.blocks[i].select == b.blocks[i].select && a.blocks[i].gate == b.blocks[i].gate &&
                a.blocks[i].capacity == b.blocks[i].capacity,
             "block %d", i);
   CHECK(a.vocab_size == b.vocab_size && a.context == b.context && a.d_model == b.d_model);
   CHECK(a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads && a.d_ff == b.d_ff);
   CHECK(a.norm == b.norm && a.position == b.position && a.activation == b.activation && a.bias == b.bias);
   CHECK(a.head == b.head && a.select == b.select && a.route_first == b.route_first && a.gate == b.gate);
   CHECK(a.route_every == b.route_every && a.capacity == b.capacity && a.gate_scale == b.gate_scale);
   CHECK(a.causal == b.causal && a.router_loss == b.router_loss && a.predictor_loss == b.predictor_loss);
   CHECK(a.norm_eps == b.norm_eps && a.rope_base == b.rope_base);
}

static void same_numbers(const run *a, const run *b)
{
   size_t n = 0, m = 0, differ = 0;
   const mod_real *x = mod_model_params(a->model, &n), *y = mod_model_params(b->model, &m);
   CHECK(n == m && n > 1000);
   for (size_t i = 0; i < n && i < m; ++i) differ += memcmp(x + i, y + i, sizeof *x) != 0;
   CHECKF(differ == 0, "%lu of %lu weights differ", (unsigned long)differ, (unsigned long)n);
   for (int i = 0; i < LAYERS; ++i) CHECK(mod_model_thresholds(a->model)[i] == mod_model_thresholds(b->model)[i]);
}

/* Logits of both after the same tokens, in causal mode. */
static void same_logits(const run *a, const run *b)
{
   const run *runs[2];
   mod_real logits[2][VOCAB];
   int tokens[CONTEXT];
   runs[0] = a;
   runs[1] = b;
   for (int i = 0; i < CONTEXT; ++i) tokens[i] = 5 * i % VOCAB;
   for (int k = 0; k < 2; ++k) {
      mod_error err;
      mod_session *session = mod_session_create(runs[k]->model, NULL, NULL, &err);
      if (!good(session != NULL, &err)) return;
      if (succeeded(mod_session_feed(session, tokens, CONTEXT, &err), &err))
         memcpy(logits[k], mod_session_logits(session), sizeof logits[k]);
      mod_session_destroy(session);
   }
   CHECK(!memcmp(logits[0], logits[1], sizeof logits[0]));
}

static void read_file(const char *path)
{
   run fresh = make(), loaded;
   mod_error err;
   mod_config cfg;
   mod_train_desc how;
   uint64_t position = 0;
   mod_file *file = mod_file_open(path, NULL, &err);
   memset(&loaded, 0, sizeof loaded);
   if (!good(file != NULL, &err)) return;
   for (int i = 0; i < N_META; ++i) {
      const char *value = mod_file_meta(file, META[2 * i]);
      CHECKF(value && !strcmp(value, META[2 * i + 1]), "the value of '%s'", META[2 * i]);
   }
   CHECK(mod_file_meta(file, "no such key") == NULL);
   if (succeeded(mod_file_config(file, &cfg, &err), &err) &&
       succeeded(mod_file_train_desc(file, &how, &position, &err), &err)) {
      same_config(cfg, mod_model_config(fresh.model));
      CHECK(position == POSITION && how.seed == 0x9e3779b97f4a7c15ull && how.n_seqs == SEQS && how.steps == 100);
      CHECK(how.length == CONTEXT && how.warmup == 2 && how.lr == 3e-3 && how.lr_min == 3e-3 / 10);
      CHECK(how.beta1 == 0.9 && how.beta2 == 0.95 && how.eps == 1e-8 && how.weight_decay == 0.1);
      CHECK(how.clip_norm == 0.5);
      loaded.model = mod_model_create(&cfg, NULL, &err);
      loaded.trainer = mod_trainer_create(loaded.model, &how, NULL, &err);
   }
   if (CHECK(fresh.trainer && loaded.trainer) &&
       succeeded(mod_file_load(file, loaded.model, loaded.trainer, &err), &err)) {
      same_numbers(&fresh, &loaded);
      same_file(&fresh, path);
      same_file(&loaded, path);
      same_logits(&fresh, &loaded);
      if (step(&fresh, STEPS) && step(&loaded, STEPS)) { /* moments, step count, schedule, draws */
         CHECK(fresh.info.step == STEPS + 1 && loaded.info.step == STEPS + 1);
         CHECKF(fresh.info.loss == loaded.info.loss, "loss %.17g, from the file %.17g", fresh.info.loss,
                loaded.info.loss);
         CHECK(fresh.info.router_bce == loaded.info.router_bce && fresh.info.lr == loaded.info.lr);
         CHECK(fresh.info.predictor_bce == loaded.info.predictor_bce);
         CHECK(fresh.info.grad_norm == loaded.info.grad_norm);
         CHECK(fresh.info.predictor_grad_norm == loaded.info.predictor_grad_norm);
         same_numbers(&fresh, &loaded);
      }
   }
   mod_file_close(file);
   destroy(&fresh);
   destroy(&loaded);
}

static void write_file(const char *path)
{
   mod_error err;
   run r = make();
   mod_save_desc what = saved(&r);
   if (r.trainer) succeeded(mod_save_file(r.model, &what, path, &err), &err);
   destroy(&r);
}

int main(int argc, char **argv)
{
   if (argc == 3 && !strcmp(argv[1], "write"))
      write_file(argv[2]);
   else if (argc == 3 && !strcmp(argv[1], "read"))
      read_file(argv[2]);
   else
      CHECKF(0, "usage: exchange write PATH, or exchange read PATH");
   return test_end();
}
