/* test_file.c - safetensors files: the bytes that are written, what is read back, exact resume, files that are wrong in
   every place, readers and writers that fail at every call, and checkpoints made by earlier builds.
   `test_file --make-checkpoint PATH` makes tests/checkpoint-v2.safetensors, and prints its hashes for tests/hashes.h;
   checkpoint-v1 is of format 1, which only versions before 0.4.0 write. DATA=FOLDER: also files by others. */
#if defined(__unix__) || defined(__APPLE__)
#define HAVE_POSIX 1
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define HAVE_POSIX 0
#endif
#include <stdlib.h>
static int n_allocated; /* calls of malloc by the library */
static void *counted_malloc(size_t size)
{
   ++n_allocated;
   return malloc(size);
}
static void counted_free(void *memory) { free(memory); }
#define MOD_MALLOC counted_malloc
#define MOD_FREE counted_free
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include "hashes.h"
#include "../bench/flat.h"

static mod_error err;

static int is_sentence(const char *text)
{
   int spaces = 0;
   if (!text) return 0;
   for (const char *c = text; *c; ++c) spaces += *c == ' ';
   return spaces >= 2 && strlen(text) >= 12;
}

static void *checked(void *made, const char *what)
{
   if (!made) {
      CHECKF(0, "%s: %s", what, err.message ? err.message : "no memory");
      exit(test_end());
   }
   return made;
}

/* ----------------------------------------------------------------------------------- files in memory, faults -- */

typedef struct mem {
   unsigned char *at;
   size_t size, room;
   int calls;            /* of read or write */
   int fail_at, shorter; /* call number fail_at and all later ones fail; or give one byte less */
   size_t most;          /* a writer takes no more bytes than this */
   int limited;
   int change_at;        /* from this call on, what is read is other bytes */
} mem;

static void mem_reset(mem *m)
{
   free(m->at);
   memset(m, 0, sizeof *m);
}

static size_t mem_write(const void *from, size_t size, void *user)
{
   mem *m = (mem *)user;
   ++m->calls;
   if (m->limited && size > m->most - m->size) size = m->most - m->size;
   if (!size) return 0; /* no arithmetic on NULL */
   if (m->size + size > m->room) {
      m->room = 2 * (m->size + size);
      m->at = (unsigned char *)checked(realloc(m->at, m->room), "realloc");
   }
   memcpy(m->at + m->size, from, size);
   m->size += size;
   return size;
}

static size_t mem_read(uint64_t offset, void *to, size_t size, void *user)
{
   mem *m = (mem *)user;
   ++m->calls;
   if (offset > m->size || size > m->size - offset) {
      CHECKF(0, "the library reads what is not there");
      return 0;
   }
   if (m->fail_at && m->calls >= m->fail_at) {
      if (!m->shorter || !size) return m->shorter ? 1 : 0;
      memcpy(to, m->at + offset, --size);
      return size;
   }
   if (size) memcpy(to, m->at + offset, size);
   if (m->change_at && m->calls >= m->change_at)
      for (size_t i = 0; i < size; ++i) ((unsigned char *)to)[i] ^= 0x55;
   return size;
}

static mod_reader reader_of(mem *m)
{
   mod_reader reader = {m->size, mem_read, m};
   return reader;
}

static mod_file *open_mem(mem *m)
{
   mod_reader reader = reader_of(m);
   return mod_file_create(&reader, NULL, &err);
}

/* header and `data` zero bytes */
static void mem_text(mem *m, const char *header, size_t data)
{
   unsigned char zeros[64] = {0};
   size_t n = strlen(header);
   mem_reset(m);
   for (int i = 0; i < 8; ++i) zeros[i] = (unsigned char)((uint64_t)n >> (8 * i));
   mem_write(zeros, 8, m);
   memset(zeros, 0, 8);
   mem_write(header, n, m);
   for (; data > 64; data -= 64) mem_write(zeros, 64, m);
   mem_write(zeros, data, m);
}

static size_t header_of(const mem *m)
{
   uint64_t n = 0;
   for (int i = 0; i < 8; ++i) n |= (uint64_t)m->at[i] << (8 * i);
   return (size_t)n;
}

/* A copy in which the first `from` of the header is `to`, with the length made right. 0: there is no `from`. */
static int mem_edit(const mem *m, mem *out, const char *from, const char *to)
{
   size_t header = header_of(m), a = strlen(from), b = strlen(to), i;
   unsigned char length[8];
   mem_reset(out);
   for (i = 8; i + a <= 8 + header && memcmp(m->at + i, from, a); ++i) {}
   if (i + a > 8 + header) return 0;
   for (int k = 0; k < 8; ++k) length[k] = (unsigned char)((uint64_t)(header - a + b) >> (8 * k));
   mem_write(length, 8, out);
   mem_write(m->at + 8, i - 8, out);
   mem_write(to, b, out);
   mem_write(m->at + i + a, m->size - i - a, out);
   return 1;
}

static mem saved(const mod_model *model, const mod_save_desc *desc)
{
   mem m = {0};
   mod_writer writer = {mem_write, &m};
   int before = n_allocated;
   CHECKF(mod_save(model, desc, &writer, &err) == MOD_RESULT_OK, "%s", err.message);
   CHECK(n_allocated == before);
   CHECK(err.code == MOD_RESULT_OK);
   m.calls = 0;
   return m;
}

static mem saved_with(const mod_model *model, const mod_trainer *trainer, uint64_t position)
{
   mod_save_desc desc = {0};
   desc.trainer = trainer;
   desc.position = position;
   return saved(model, &desc);
}

static int equal(const mem *a, const mem *b)
{
   return a->size == b->size && (!a->size || !memcmp(a->at, b->at, a->size));
}

/* -------------------------------------------------------------------------------- models in memory of our own -- */

/* A model, and if asked for a trainer, in blocks whose every byte can be compared. */
typedef struct owned {
   void *memory[2], *copy[2];
   size_t size[2];
   mod_model *model;
   mod_trainer *trainer;
} owned;

static owned own(const mod_config *cfg, const mod_train_desc *how)
{
   owned o = {{0}, {0}, {0}, NULL, NULL};
   mod_plan plan;
   CHECKF(mod_model_plan(cfg, how, &plan, &err) == MOD_RESULT_OK, "%s", err.message);
   o.size[0] = plan.model;
   o.size[1] = how ? plan.trainer : 0;
   for (int i = 0; i < 2; ++i) {
      o.memory[i] = checked(calloc(1, o.size[i] + 1), "calloc");
      o.copy[i] = checked(malloc(o.size[i] + 1), "malloc");
   }
   o.model = (mod_model *)checked(mod_model_init(cfg, o.memory[0], o.size[0], &err), "model");
   if (how)
      o.trainer = (mod_trainer *)checked(mod_trainer_init(o.model, how, o.memory[1], o.size[1], &err), "trainer");
   return o;
}
static void keep(owned *o)
{
   for (int i = 0; i < 2; ++i) memcpy(o->copy[i], o->memory[i], o->size[i]);
}
static void restore(owned *o)
{
   for (int i = 0; i < 2; ++i) memcpy(o->memory[i], o->copy[i], o->size[i]);
}
static int unchanged(const owned *o)
{
   return !memcmp(o->memory[0], o->copy[0], o->size[0]) && !memcmp(o->memory[1], o->copy[1], o->size[1]);
}
static void disown(owned *o)
{
   for (int i = 0; i < 2; ++i) {
      free(o->memory[i]);
      free(o->copy[i]);
   }
}

static mod_config tiny(void)
{
   mod_config cfg = {0};
   cfg.vocab_size = 3;
   cfg.context = 4;
   cfg.n_layers = 2;
   cfg.d_model = 2;
   cfg.d_ff = 3;
   cfg.n_heads = 1;
   cfg.capacity = 0.5;
   return cfg;
}
static mod_train_desc tiny_desc(void)
{
   mod_train_desc how = {0};
   how.n_seqs = 1;
   how.length = 4;
   how.steps = 10;
   how.seed = 0xfedcba9876543210u;
   return how;
}

/* A tiny model after two steps, with its trainer. */
static owned tiny_trained(void)
{
   static const int tokens[] = {0, 1, 2, 1}, targets[] = {1, 2, 1, 0};
   mod_config cfg = tiny();
   mod_train_desc how = tiny_desc();
   mod_batch batch = {0};
   owned o = own(&cfg, &how);
   batch.n_seqs = 1;
   batch.length = 4;
   batch.tokens = tokens;
   batch.targets = targets;
   CHECK(mod_model_randomize(o.model, 3, NULL) == MOD_RESULT_OK);
   for (int i = 0; i < 2; ++i) CHECK(mod_train_step(o.trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
   mod_model_thresholds(o.model)[1] = -0.75;
   return o;
}

static int same_config(mod_config a, mod_config b)
{
   for (int i = 0; i < a.n_layers && a.n_layers == b.n_layers; ++i) {
      mod_block_config p = mod_config_block(&a, i), q = mod_config_block(&b, i);
      if (p.select != q.select || p.gate != q.gate || p.capacity != q.capacity || p.kv_select != q.kv_select ||
          p.kv_gate != q.kv_gate || p.kv_capacity != q.kv_capacity || p.mlp != q.mlp || p.choice != q.choice)
         return 0;
   }
   return a.vocab_size == b.vocab_size && a.context == b.context && a.n_layers == b.n_layers &&
          a.d_model == b.d_model && a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads && a.d_ff == b.d_ff &&
          a.norm == b.norm && a.position == b.position && a.activation == b.activation && a.bias == b.bias &&
          a.head == b.head && a.select == b.select && a.route_first == b.route_first &&
          a.route_every == b.route_every && a.capacity == b.capacity && a.gate == b.gate &&
          a.gate_scale == b.gate_scale && a.causal == b.causal && a.router_loss == b.router_loss &&
          a.predictor_loss == b.predictor_loss && a.norm_eps == b.norm_eps && a.rope_base == b.rope_base &&
          a.mask == b.mask && a.n_inputs == b.n_inputs && a.n_outputs == b.n_outputs && a.bypass == b.bypass &&
          a.kv_select == b.kv_select && a.kv_gate == b.kv_gate && a.kv_capacity == b.kv_capacity && a.mlp == b.mlp &&
          a.n_experts == b.n_experts && a.n_noops == b.n_noops && a.choice == b.choice && a.choices == b.choices &&
          a.capacity_factor == b.capacity_factor && a.balance_loss == b.balance_loss && a.z_loss == b.z_loss;
}

/* ---------------------------------------------------------------------------------------------- 1. round trip -- */

/* Bit patterns that decimal text or arithmetic would spoil: -0, denormals, infinities, quiet NaN, extremes. */
static const uint32_t odd_bits[] = {0x80000000u, 1u, 0x80000001u, 0x007fffffu, 0x00800000u, 0x7f7fffffu, 0xff7fffffu,
                                    0x7f800000u, 0xff800000u, 0x7fc00000u, 0x3dcccccdu, 0x3f800001u};

static void fill_odd(mod_model *model)
{
   size_t n;
   mod_real *x = mod_model_params(model, &n);
   for (size_t i = 0; i < n; ++i) {
      uint32_t bits = i < 12 ? odd_bits[i] : (uint32_t)test_bits();
      float f;
      if (i >= 12 && (bits >> 23 & 255) == 255) bits &= 0xbfffffffu; /* no other NaN: their payloads are not promised */
      memcpy(&f, &bits, 4);
      x[i] = (mod_real)f;
   }
}

static const char *const odd_meta[] = {
   "quote\"and\\", "\\\"", "", "empty key", "empty value", "", "control\n\t\r\b\f\x01\x1f", "\x7f\n",
   "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "{\"a\":1}", "\\u0041", "modest", "/"};

enum { N_KINDS = 11 };
static mod_config kind_of(int kind)
{
   static const mod_block_config blocks[5] = {
      {.select = MOD_SELECT_DEFAULT},
      {.select = MOD_SELECT_LEARNED, .gate = MOD_GATE_SIGMOID, .capacity = 1.0 / 3},
      {.select = MOD_SELECT_STOCHASTIC, .capacity = 0.7},
      {.select = MOD_SELECT_ALL},
      {.select = MOD_SELECT_LEARNED, .gate = MOD_GATE_TANH}};
   /* The config alone would be refused, for the gate of its routed blocks; what the blocks say makes it a model. */
   static const mod_block_config mixed[4] = {
      {.mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_EXPERT, .capacity = 0.6},
      {.gate = MOD_GATE_TANH, .kv_select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_TOKEN},
      {.select = MOD_SELECT_TOKEN, .capacity = 0.45, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_TANH,
       .kv_capacity = 1.0 / 3},
      {.select = MOD_SELECT_FIRST, .kv_select = MOD_SELECT_EVERY, .kv_capacity = 0.4}};
   static const mod_block_config plain_if_routed[4] = { /* the same: integrated MoDE takes every token */
      {.mlp = MOD_MLP_DEFAULT}, {.mlp = MOD_MLP_PLAIN}, {.choice = MOD_CHOICE_EXPERT}, {.mlp = MOD_MLP_MOE}};
   mod_config cfg = {0};
   cfg.vocab_size = 11;
   cfg.context = 8;
   cfg.n_layers = 4;
   cfg.d_model = 12;
   cfg.n_heads = 2;
   cfg.capacity = 0.3;
   cfg.gate_scale = 0.1;
   cfg.norm_eps = 1.0 / 3 * 1e-5;
   cfg.rope_base = 12345.678;
   cfg.router_loss = 1e-30;
   cfg.predictor_loss = 2.2250738585072014e-20;
   if (kind == 1) cfg.causal = MOD_CAUSAL_BOTH;
   if (kind == 2) cfg.select = MOD_SELECT_STOCHASTIC;
   if (kind == 3) {
      cfg.n_layers = 5;
      cfg.blocks = blocks;
   }
   if (kind == 4) {
      cfg.norm = MOD_NORM_LAYER;
      cfg.position = MOD_POSITION_LEARNED;
      cfg.activation = MOD_ACTIVATION_SWIGLU;
      cfg.bias = MOD_BIAS_ON;
      cfg.head = MOD_HEAD_UNTIED;
      cfg.gate = MOD_GATE_TANH;
      cfg.n_kv_heads = 1;
      cfg.route_first = 1;
      cfg.route_every = 3;
   }
   if (kind == 5) {
      cfg.select = MOD_SELECT_ALL;
      cfg.n_layers = 1;
   }
   if (kind == 6) { /* experts everywhere, and keys and values with a router of their own */
      cfg.mlp = MOD_MLP_MOE;
      cfg.n_experts = 3;
      cfg.choices = 2;
      cfg.capacity_factor = 4.0 / 3;
      cfg.balance_loss = 1.0 / 7;
      cfg.z_loss = 1e-30;
      cfg.kv_select = MOD_SELECT_LEARNED;
      cfg.kv_gate = MOD_GATE_RAW;
      cfg.kv_capacity = 0.6;
      cfg.causal = MOD_CAUSAL_BOTH;
   }
   if (kind == 7) {
      cfg.blocks = mixed;
      cfg.bypass = MOD_BYPASS_GATED;
      cfg.n_experts = 2;
      cfg.n_noops = 3;
   }
   if (kind == 8) { /* an encoder of float rows, with classes */
      cfg.mask = MOD_MASK_FULL;
      cfg.vocab_size = 0;
      cfg.n_inputs = 5;
      cfg.head = MOD_HEAD_CLASS;
      cfg.n_outputs = 11;
      cfg.bias = MOD_BIAS_ON;
      cfg.position = MOD_POSITION_LEARNED;
      cfg.select = MOD_SELECT_EVERY;
      cfg.kv_select = MOD_SELECT_NONE;
   }
   if (kind == 9) { /* numbers out */
      cfg.head = MOD_HEAD_REGRESSION;
      cfg.n_outputs = 2;
      cfg.mlp = MOD_MLP_MOE;
      cfg.choice = MOD_CHOICE_TOKEN;
      cfg.select = MOD_SELECT_TOKEN;
   }
   if (kind == 10) {
      cfg.mlp = MOD_MLP_MODE;
      cfg.select = MOD_SELECT_LEARNED;
      cfg.blocks = plain_if_routed;
      cfg.kv_select = MOD_SELECT_STOCHASTIC;
   }
   return cfg;
}

static void test_round_trip(void)
{
   for (int kind = 0; kind < N_KINDS; ++kind) {
      mod_config cfg = kind_of(kind), got;
      owned a = own(&cfg, NULL), b;
      int thetas = mod_config_paths(&cfg) * cfg.n_layers;
      mod_save_desc desc = {0};
      const mod_entry *e;
      int count = -1;
      size_t n, header;
      fill_odd(a.model);
      CHECK((thetas > cfg.n_layers) == (kind == 6 || kind == 7 || kind == 10)); /* more than one path decides */
      for (int i = 0; i < thetas; ++i)
         mod_model_thresholds(a.model)[i] = i == 0 ? -0.0 : i == 1 ? 4.9406564584124654e-324 : -1.0986122886681098 * i;
      desc.n_meta = 8;
      desc.meta = odd_meta;
      mem m = saved(a.model, &desc);
      header = header_of(&m);
      mod_model_params(a.model, &n);
      CHECK(header % 8 == 0 && m.size == 8 + header + n * sizeof(mod_real));
      mod_file *file = (mod_file *)checked(open_mem(&m), "file");
      CHECK(err.code == MOD_RESULT_OK);
      for (int i = 0; i < 8; ++i) {
         const char *value = mod_file_meta(file, odd_meta[2 * i]);
         CHECKF(value && !strcmp(value, odd_meta[2 * i + 1]), "%s", odd_meta[2 * i]);
      }
      CHECK(!mod_file_meta(file, "absent") && !mod_file_meta(file, "empty") && mod_file_meta(file, "mod.format"));
      e = mod_file_tensors(file, &count);
      CHECK(count == mod_model_param_count(a.model));
      for (int i = 0; i < count; ++i) { /* in the order of their names */
         mod_param p;
         CHECK(i == 0 || strcmp(e[i - 1].name, e[i].name) < 0);
         CHECK(mod_model_param(a.model, mod_model_find(a.model, e[i].name), &p, NULL) == MOD_RESULT_OK);
         CHECKF(!strcmp(e[i].name, p.name) && !strcmp(e[i].dtype, sizeof(mod_real) == 8 ? "F64" : "F32"), "%s", p.name);
         CHECK(e[i].n_dim == p.n_dim);
         for (int k = 0; k < p.n_dim; ++k) CHECK(e[i].dim[k] == (uint64_t)p.dim[k]);
         CHECK(e[i].begin == 8 + header + p.offset * sizeof(mod_real));
         CHECK(e[i].end == e[i].begin + p.count * sizeof(mod_real));
      }
      CHECKF(mod_file_config(file, &got, &err) == MOD_RESULT_OK, "%s", err.message);
      CHECKF(same_config(got, mod_model_config(a.model)), "kind %d", kind);
      CHECK(got.blocks != NULL && same_config(got, mod_config_resolve(&got)));
      b = own(&got, NULL);
      int before = n_allocated;
      CHECKF(mod_file_load(file, b.model, NULL, &err) == MOD_RESULT_OK, "%s", err.message);
      CHECK(n_allocated == before && err.code == MOD_RESULT_OK);
      CHECK(!memcmp(mod_model_params(a.model, NULL), mod_model_params(b.model, NULL), n * sizeof(mod_real)));
      CHECK(!memcmp(mod_model_thresholds(a.model), mod_model_thresholds(b.model),
                    (size_t)thetas * sizeof(double)));
      mod_train_desc how;
      CHECK(mod_file_train_desc(file, &how, NULL, &err) == MOD_RESULT_STATE && is_sentence(err.message));
      mod_file_close(file);
      mem again = saved(b.model, &desc);
      CHECK(equal(&m, &again));
      mem_reset(&m);
      mem_reset(&again);
      disown(&a);
      disown(&b);
   }
}

/* -------------------------------------------------------------- 2. the bytes of a tiny file, literally written -- */

static void test_bytes(void)
{
   static const char header[] =
      "{\"__metadata__\":{\"mod.format\":\"2\",\"mod.vocab_size\":\"2\",\"mod.context\":\"1\",\"mod.n_layers\":\"1\","
      "\"mod.d_model\":\"2\",\"mod.n_heads\":\"1\",\"mod.n_kv_heads\":\"1\",\"mod.d_ff\":\"1\",\"mod.norm\":\"1\","
      "\"mod.position\":\"1\",\"mod.activation\":\"1\",\"mod.bias\":\"1\",\"mod.head\":\"1\",\"mod.select\":\"2\","
      "\"mod.route_first\":\"2\",\"mod.route_every\":\"2\",\"mod.capacity\":\"3fc0000000000000\","
      "\"mod.capacity is about\":\"0.125000000\",\"mod.gate\":\"1\",\"mod.gate_scale\":\"3fc999999999999a\","
      "\"mod.gate_scale is about\":\"0.200000000\",\"mod.causal\":\"1\",\"mod.router_loss\":\"3f847ae147ae147b\","
      "\"mod.router_loss is about\":\"0.010000000\",\"mod.predictor_loss\":\"3ff0000000000000\","
      "\"mod.predictor_loss is about\":\"1.000000000\",\"mod.norm_eps\":\"3ee4f8b588e368f1\","
      "\"mod.norm_eps is about\":\"0.000010000\",\"mod.rope_base\":\"40c3880000000000\","
      "\"mod.rope_base is about\":\"10000.000000000\",\"mod.mask\":\"0\",\"mod.n_inputs\":\"0\","
      "\"mod.n_outputs\":\"0\",\"mod.bypass\":\"1\",\"mod.kv_select\":\"8\",\"mod.kv_gate\":\"2\","
      "\"mod.kv_capacity\":\"3fc0000000000000\",\"mod.kv_capacity is about\":\"0.125000000\",\"mod.mlp\":\"1\","
      "\"mod.n_experts\":\"4\",\"mod.n_noops\":\"4\",\"mod.choice\":\"0\",\"mod.choices\":\"1\","
      "\"mod.capacity_factor\":\"3ff0000000000000\",\"mod.capacity_factor is about\":\"1.000000000\","
      "\"mod.balance_loss\":\"3f847ae147ae147b\",\"mod.balance_loss is about\":\"0.010000000\","
      "\"mod.z_loss\":\"3f50624dd2f1a9fc\",\"mod.z_loss is about\":\"0.001000000\","
      "\"mod.blocks\":\"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;\","
      "\"mod.thresholds\":\"c004000000000000;\",\"na\\\"me\":\"a\\u000ab\"},"
      "\"embed\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},";
   static const float values[4] = {1.0f, -2.0f, 0.5f, 3.140625f};
   static const unsigned char data[16] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0, 0x49, 0x40};
   static const char *const meta[] = {"na\"me", "a\nb"};
   static const char *const names[] = {"norm.gain",        "blocks.0.norm1.gain", "blocks.0.attn.wq",
                                       "blocks.0.attn.wk", "blocks.0.attn.wv",    "blocks.0.attn.wo",
                                       "blocks.0.norm2.gain", "blocks.0.mlp.w1",  "blocks.0.mlp.w2"};
   static const char *const shapes[] = {"2", "2", "2,2", "2,2", "2,2", "2,2", "2", "2,1", "1,2"};
   static const int counts[] = {2, 2, 4, 4, 4, 4, 2, 2, 2};
   char expected[4096];
   size_t n, at = 16;
   mod_config cfg = {0};
   mod_save_desc desc = {0};
   if (sizeof(mod_real) != 4) {
      test_skip("the bytes of a file", "MOD_USE_DOUBLE writes F64");
      return;
   }
   cfg.vocab_size = 2;
   cfg.context = cfg.n_layers = cfg.n_heads = cfg.d_ff = 1;
   cfg.d_model = 2;
   owned o = own(&cfg, NULL);
   for (int i = 0; i < 4; ++i) mod_model_params(o.model, &n)[i] = (mod_real)values[i];
   mod_model_thresholds(o.model)[0] = -2.5;
   desc.n_meta = 1;
   desc.meta = meta;
   mem m = saved(o.model, &desc);
   strcpy(expected, header);
   for (int i = 0; i < 9; ++i, at += 4 * (size_t)counts[i - 1])
      snprintf(expected + strlen(expected), 200, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
               i ? "," : "", names[i], shapes[i], (int)at, (int)at + 4 * counts[i]);
   strcat(expected, "}");
   while (strlen(expected) % 8) strcat(expected, " ");
   CHECK(header_of(&m) == strlen(expected) && n * 4 == at && m.size == 8 + strlen(expected) + at);
   if (!CHECK(m.size > 8 + strlen(expected) && !memcmp(m.at + 8, expected, strlen(expected))))
      printf("wrote:\n%.*s\nexpected:\n%s\n", (int)header_of(&m), (const char *)m.at + 8, expected);
   CHECK(m.size >= at && !memcmp(m.at + m.size - at, data, 16));
   for (size_t i = m.size - at + 16; i < m.size; ++i) CHECK(m.at[i] == 0);
   mem_reset(&m);
   disown(&o);
}

/* ------------------------------------------------------------------------------------------------- 3. resume -- */

enum { STEPS = 12, SEQS = 3, LENGTH = 8, VOCAB = 11, INPUTS = 5, OUTPUTS = 2 };

static mod_train_desc usual(void)
{
   mod_train_desc how = {0};
   how.n_seqs = SEQS;
   how.length = LENGTH;
   how.steps = STEPS;
   how.warmup = 4;
   how.lr = 3.3e-3;
   how.lr_min = 1e-4;
   how.beta1 = 0.85;
   how.beta2 = 0.97;
   how.eps = 1.1e-8;
   how.weight_decay = 0.1;
   how.clip_norm = 0.5;
   how.dropout = 1.0 / 3;
   how.capacity_warmup = 5;
   how.threshold_decay = 0.7;
   how.seed = 0x8000000000000005u;
   return how;
}

/* Step `step`, whose batch is a function of it alone; every fourth in three micro-batches. */
static mod_step_info run_step(const mod_config *cfg, mod_trainer *trainer, int step)
{
   int tokens[SEQS * LENGTH], targets[SEQS * LENGTH], pooled = cfg->n_outputs > 0;
   mod_real inputs[SEQS * LENGTH * INPUTS], values[SEQS * OUTPUTS];
   mod_batch batch = {0};
   mod_step_info info = {0};
   test_state = 88172645463325252ull ^ ((uint64_t)(step + 1) * 0x9e3779b97f4a7c15ull);
   for (int i = 0; i < SEQS * LENGTH; ++i) tokens[i] = test_below(VOCAB);
   for (int i = 0; i < SEQS * LENGTH; ++i) targets[i] = (tokens[i] * 5 + i % 3) % VOCAB;
   for (int i = 0; i < SEQS * LENGTH * INPUTS; ++i) inputs[i] = (mod_real)test_normal();
   for (int i = 0; i < SEQS * OUTPUTS; ++i) values[i] = (mod_real)test_normal();
   batch.n_seqs = SEQS;
   batch.length = LENGTH;
   batch.tokens = tokens;
   batch.targets = targets;
   batch.inputs = inputs;
   batch.values = values;
   if (step % 4 != 2) {
      CHECK(mod_train_step(trainer, &batch, &info, &err) == MOD_RESULT_OK);
      return info;
   }
   batch.n_seqs = 1;
   batch.n_tokens = SEQS * LENGTH;
   batch.n_targets = cfg->head == MOD_HEAD_REGRESSION ? SEQS * OUTPUTS : pooled ? SEQS : SEQS * LENGTH;
   for (int s = 0; s < SEQS; ++s) {
      batch.tokens = tokens + s * LENGTH;
      batch.targets = targets + (pooled ? s : s * LENGTH);
      batch.inputs = inputs + s * LENGTH * INPUTS;
      batch.values = values + s * OUTPUTS;
      CHECK(mod_train_accumulate(trainer, &batch, &err) == MOD_RESULT_OK);
   }
   CHECK(mod_train_update(trainer, &info, &err) == MOD_RESULT_OK);
   return info;
}

static void test_resume(void)
{
   for (int kind = 0; kind < N_KINDS; ++kind) {
      mod_config cfg = kind_of(kind);
      mod_train_desc how = usual();
      if (kind == 5) continue;
      owned o = own(&cfg, &how);
      mem at[STEPS + 1], end;
      mod_step_info info[STEPS];
      int clipped = 0;
      CHECK(mod_model_randomize(o.model, 7, NULL) == MOD_RESULT_OK);
      for (int step = 0; step < STEPS; ++step) {
         at[step] = saved_with(o.model, o.trainer, (uint64_t)step << 60 | 5);
         info[step] = run_step(&cfg, o.trainer, step);
         clipped += info[step].grad_norm > how.clip_norm;
      }
      at[STEPS] = end = saved_with(o.model, o.trainer, (uint64_t)STEPS << 60 | 5);
      CHECKF(kind == 1 || clipped > 0, "kind %d: nothing was clipped", kind);
      for (int from = 0; from <= STEPS; ++from) {
         mod_config got;
         mod_train_desc again;
         uint64_t position = 0;
         mod_file *file = (mod_file *)checked(open_mem(&at[from]), "file");
         CHECK(mod_file_config(file, &got, &err) == MOD_RESULT_OK);
         CHECK(mod_file_train_desc(file, &again, &position, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
         CHECK(position == ((uint64_t)from << 60 | 5));
         CHECK(again.n_seqs == SEQS && again.length == LENGTH && again.steps == STEPS && again.warmup == 4);
         CHECK(again.lr == how.lr && again.lr_min == how.lr_min && again.beta1 == how.beta1 &&
               again.beta2 == how.beta2 && again.eps == how.eps && again.weight_decay == how.weight_decay &&
               again.clip_norm == how.clip_norm && again.dropout == how.dropout &&
               again.capacity_warmup == how.capacity_warmup && again.threshold_decay == how.threshold_decay &&
               again.seed == how.seed && again.n_threads == 0 && !again.jobs.run);
         CHECK(mod_file_train_desc(file, &again, NULL, NULL) == MOD_RESULT_OK);
         again.n_threads = from % 3;
         owned b = own(&got, &again);
         CHECK(mod_model_randomize(b.model, 1234, NULL) == MOD_RESULT_OK);
         if (from % 2) run_step(&cfg, b.trainer, 3); /* it need not be fresh */
         if (from == 5) {                      /* nor between steps: what was accumulated is forgotten */
            int tokens[LENGTH] = {1, 2, 3};
            mod_real zeros[LENGTH * INPUTS] = {0};
            mod_batch batch = {0};
            batch.n_seqs = 1;
            batch.length = LENGTH;
            batch.tokens = batch.targets = tokens;
            batch.inputs = batch.values = zeros;
            CHECK(mod_train_accumulate(b.trainer, &batch, &err) == MOD_RESULT_OK);
         }
         int before = n_allocated;
         CHECKF(mod_file_load(file, b.model, b.trainer, &err) == MOD_RESULT_OK, "%s", err.message);
         CHECK(n_allocated == before);
         mod_file_close(file);
         mem same = saved_with(b.model, b.trainer, position);
         CHECKF(equal(&same, &at[from]), "kind %d, step %d: loaded, then saved", kind, from);
         mem_reset(&same);
         for (int step = from; step < STEPS; ++step) {
            mod_step_info now = run_step(&cfg, b.trainer, step);
            CHECK(now.step == info[step].step && now.step == step + 1 && now.lr == info[step].lr);
            CHECKF(now.loss == info[step].loss && now.grad_norm == info[step].grad_norm &&
                   now.router_bce == info[step].router_bce && now.predictor_bce == info[step].predictor_bce &&
                   now.predictor_grad_norm == info[step].predictor_grad_norm &&
                   now.balance_loss == info[step].balance_loss && now.z_loss == info[step].z_loss,
                   "%d from %d at %d", kind, from, step);
         }
         same = saved_with(b.model, b.trainer, (uint64_t)STEPS << 60 | 5);
         CHECKF(equal(&same, &end), "kind %d from %d: the end differs", kind, from);
         mem_reset(&same);
         disown(&b);
      }
      { /* in the middle of a step there is nothing to save */
         int tokens[LENGTH] = {1, 2, 3};
         mod_real zeros[LENGTH * INPUTS] = {0};
         mod_batch batch = {0};
         mod_save_desc desc = {0};
         mem none = {0};
         mod_writer writer = {mem_write, &none};
         batch.n_seqs = 1;
         batch.length = LENGTH;
         batch.tokens = batch.targets = tokens;
         batch.inputs = batch.values = zeros;
         desc.trainer = o.trainer;
         CHECK(mod_train_accumulate(o.trainer, &batch, &err) == MOD_RESULT_OK);
         CHECK(mod_save(o.model, &desc, &writer, &err) == MOD_RESULT_STATE && err.code == MOD_RESULT_STATE);
         CHECK(is_sentence(err.message) && none.calls == 0);
         desc.trainer = NULL;
         CHECK(mod_save(o.model, &desc, &writer, &err) == MOD_RESULT_OK); /* the model alone can be */
         mem_reset(&none);
      }
      for (int i = 0; i <= STEPS; ++i) mem_reset(&at[i]);
      disown(&o);
   }
}

/* ----------------------------------------------------------------------------------------------- 4. malformed -- */

static int refused_open(mem *m, mod_result code, const char *sentence, const char *what)
{
   mod_file *file = open_mem(m);
   int ok = !file && err.code == code && is_sentence(err.message) && strstr(err.message, sentence) &&
            (code != MOD_RESULT_FORMAT || (err.where >= 0 && (uint64_t)err.where <= m->size));
   CHECKF(ok, "%.100s (%d bytes): %s", what, (int)m->size, file ? "opened" : err.message);
   if (file) mod_file_close(file);
   return ok;
}

static void test_truncated(void)
{
   owned o = tiny_trained();
   mem m = saved_with(o.model, o.trainer, 9);
   size_t whole = m.size, header = header_of(&m);
   for (m.size = 0; m.size < whole; ++m.size) {
      const char *sentence = m.size < 8 ? "shorter than the 8 bytes" : m.size < 8 + header ? "longer than the file"
                                                                                         : "beyond the end";
      if (!refused_open(&m, MOD_RESULT_FORMAT, sentence, "truncated")) break;
   }
   m.size = whole;
   mem_write("", 1, &m);
   refused_open(&m, MOD_RESULT_FORMAT, "goes on after its last tensor", "one byte more");
   mem_reset(&m);
   disown(&o);
}

/* Every byte of the length and of the header, changed: refused, or loaded with the numbers that are there. */
static void test_every_byte(void)
{
   static const unsigned char others[] = {0xff, ' ', '"', '\\', '}', ',', '9'};
   owned o = tiny_trained(), b;
   mem m = saved_with(o.model, o.trainer, 9);
   mod_config cfg = tiny();
   mod_train_desc how = tiny_desc();
   size_t header = header_of(&m), n;
   int opened = 0, loaded = 0, tried = 0;
   b = own(&cfg, &how);
   mod_model_randomize(b.model, 77, NULL);
   keep(&b);
   mod_model_params(o.model, &n);
   for (size_t at = 0; at < 8 + header; ++at)
      for (int k = 0; k < 9; ++k) {
         unsigned char was = m.at[at], now = k < 7 ? others[k] : k == 7 ? was ^ 1 : was ^ 0x20;
         mod_file *file;
         if (now == was) continue;
         m.at[at] = now;
         ++tried;
         file = open_mem(&m);
         if (!file) {
            if (err.code != MOD_RESULT_FORMAT || !is_sentence(err.message)) CHECKF(0, "byte %d", (int)at);
         } else {
            mod_config got;
            mod_train_desc desc;
            ++opened;
            mod_result config = mod_file_config(file, &got, &err);
            if (config != MOD_RESULT_OK && !is_sentence(err.message)) CHECKF(0, "byte %d: config", (int)at);
            if (mod_file_train_desc(file, &desc, NULL, &err) != MOD_RESULT_OK && !is_sentence(err.message))
               CHECKF(0, "byte %d: train_desc", (int)at);
            mod_result result = mod_file_load(file, b.model, b.trainer, &err);
            if (result != MOD_RESULT_OK) {
               if (!is_sentence(err.message) || !unchanged(&b)) CHECKF(0, "byte %d: load", (int)at);
            } else {
               ++loaded;
               if (memcmp(mod_model_params(b.model, NULL), mod_model_params(o.model, NULL), n * sizeof(mod_real)) ||
                   config != MOD_RESULT_OK)
                  CHECKF(0, "byte %d: loaded other numbers", (int)at);
               restore(&b);
            }
            mod_file_close(file);
         }
         m.at[at] = was;
      }
   CHECKF(tried > 40000 && opened > 1000 && loaded > 100 && loaded < opened, "%d %d %d", tried, opened, loaded);
   mem_reset(&m);
   disown(&o);
   disown(&b);
}

#define T(rest) "{\"a\":{" rest "}}"
#define OF(dtype, shape, from, to) \
   "\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]"
#define NEST8(x) "[[[[[[[[" x "]]]]]]]]"
#define NOT_JSON "not the JSON"

static void test_headers(void)
{
   static const struct {
      const char *header;
      int data;
      const char *sentence; /* NULL: a good file */
   } rows[] = {
      /* good, though odd */
      {"{}", 0, NULL},
      {" \t\r\n{ } \n", 0, NULL},
      {"{\"__metadata__\":null}", 0, NULL},
      {"{\"__metadata__\": {} }", 0, NULL},
      {"{\"\\u005f_metadata__\":{\"k\":\"v\"}}", 0, NULL},
      {T(OF("F32", "2,3", 0, 24)), 24, NULL},
      {T(OF("F32", "", 0, 4)), 4, NULL},
      {T(OF("U8", "1,1,1,1,1,1,1,1", 0, 1)), 1, NULL},
      {T(OF("F32", "0,5", 0, 0)), 0, NULL},
      {T(OF("F64", "0,18446744073709551615", 0, 0)), 0, NULL},
      {"{\"a\" : {\"data_offsets\" :[ 0 , 4 ], \"shape\"\n:[ 4 ] ,\"dtype\": \"BOOL\"} }", 4, NULL},
      {"{\"b\":{" OF("F64", "1", 1, 9) "},\"a\":{" OF("I8", "1", 0, 1) "}}", 9, NULL}, /* not in order, not aligned */
      {"{\"a\":{" OF("F32", "1", 0, 4) "},\"z\":{" OF("F32", "0", 4, 4) "},\"b\":{" OF("F32", "1", 4, 8) "}}", 8, NULL},
      {T(OF("BF16", "1", 0, 2) ",\"x\":{\"y\":[1,-2.5e+3,true,false,null,\"\\n\"],\"z\":{}}"), 2, NULL},
      {T(OF("F16", "1", 0, 2) ",\"x\":" NEST8(NEST8(NEST8(NEST8("1"))))), 2, NULL},
      {T("\"x\":1,\"x\":2," OF("U16", "1", 0, 2)), 2, NULL},
      {T("\"x\":[-0,0.5,1E5,-1.25e-3,[],{},[[{\"y\":[null]}]]]," OF("U16", "1", 0, 2)), 2, NULL},
      {"{\"\":{" OF("U64", "1", 0, 8) "}}", 8, NULL},
      {"{\"\\ud83d\\ude00\\u00e9\\u20AC\\b\\f\\/\":{" OF("I64", "1", 0, 8) "}}", 8, NULL},
      /* the data */
      {"{\"a\":{" OF("F32", "2", 0, 8) "},\"b\":{" OF("F32", "2", 4, 12) "}}", 12, "overlap"},
      {"{\"a\":{" OF("F32", "2", 0, 8) "},\"b\":{" OF("F32", "2", 0, 8) "}}", 8, "overlap"},
      {"{\"a\":{" OF("F32", "2", 0, 8) "},\"b\":{" OF("F32", "2", 9, 17) "}}", 17, "hole"},
      {T(OF("F32", "2", 4, 12)), 12, "hole"},
      {"{\"a\":{" OF("F32", "2", 0, 8) "},\"b\":{" OF("F32", "0", 9, 9) "}}", 8, "hole"},
      {"{\"a\":{" OF("F32", "2", 0, 8) "},\"b\":{" OF("F32", "0", 4, 4) "}}", 8, "overlap"},
      {T(OF("F32", "3", 0, 12)), 11, "beyond the end"},
      {T(OF("F32", "3", 0, 12)), 0, "beyond the end"},
      {T(OF("U8", "18446744073709551615", 0, 18446744073709551615)), 4, "beyond the end"},
      {T(OF("F32", "3", 0, 12)), 13, "goes on after"},
      {"{}", 1, "goes on after"},
      {T(OF("F32", "3", 0, 11)), 12, "do not match"},
      {T(OF("F32", "3", 4, 12)), 12, "do not match"},
      {T(OF("F32", "3", 12, 0)), 12, "do not match"},
      {T(OF("F32", "", 0, 0)), 0, "do not match"},
      {T(OF("F32", "4611686018427387904", 0, 0)), 0, "overflows"},
      {T(OF("F32", "4294967296,4294967296", 0, 0)), 0, "overflows"},
      {T(OF("U8", "4294967296,4294967297", 0, 4294967296)), 0, "overflows"},
      {T(OF("F64", "2305843009213693952", 0, 0)), 0, "overflows"},
      {T(OF("F32", "18446744073709551616", 0, 0)), 0, "64 bits"},
      {T(OF("F32", "99999999999999999999", 0, 0)), 0, "64 bits"},
      {T(OF("F32", "1", 0, 18446744073709551620)), 4, "64 bits"},
      {T(OF("U8", "1,1,1,1,1,1,1,1,1", 0, 1)), 1, "more than 8 dimensions"},
      /* numbers */
      {T(OF("F32", "-1", 0, 4)), 4, "without sign"},
      {T(OF("F32", "+1", 0, 4)), 4, "without sign"},
      {T(OF("F32", "01", 0, 4)), 4, "without sign"},
      {T(OF("F32", "00", 0, 0)), 0, "without sign"},
      {T(OF("F32", "1.0", 0, 4)), 4, NOT_JSON},
      {T(OF("F32", "1e0", 0, 4)), 4, NOT_JSON},
      {T(OF("F32", "\"1\"", 0, 4)), 4, "without sign"},
      {T(OF("F32", "1,", 0, 4)), 4, "without sign"},
      {T(OF("F32", ",1", 0, 4)), 4, "without sign"},
      {T(OF("F32", "1 1", 0, 4)), 4, NOT_JSON},
      {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4, NOT_JSON},
      {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]"), 4, NOT_JSON},
      {T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[]"), 4, "without sign"},
      {T("\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,4]"), 4, NOT_JSON},
      /* entries */
      {T("\"dtype\":\"F32\",\"shape\":[1]"), 4, "needs dtype"},
      {T("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "needs dtype"},
      {T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "needs dtype"},
      {"{\"a\":{}}", 0, "needs dtype"},
      {T(OF("F31", "1", 0, 4)), 4, "unknown dtype"},
      {T(OF("", "1", 0, 4)), 4, "unknown dtype"},
      {T(OF("F", "1", 0, 4)), 4, "unknown dtype"},
      {T(OF("f32", "1", 0, 4)), 4, "unknown dtype"},
      {T(OF("F32 ", "1", 0, 4)), 4, "unknown dtype"},
      {T(OF("U8 ", "1", 0, 1)), 1, "unknown dtype"},
      {T(OF("U8  ", "1", 0, 1)), 1, "unknown dtype"},
      {T(OF("U8  1", "1", 0, 1)), 1, "unknown dtype"},
      {T(OF("BOOL1", "1", 0, 1)), 1, "unknown dtype"},
      {T(OF("OL1U", "1", 0, 1)), 1, "unknown dtype"},
      {T(OF("F32", "1", 0, 4) ",\"dtype\":\"F32\""), 4, "same thing twice"},
      {T(OF("F32", "1", 0, 4) ",\"shape\":[1]"), 4, "same thing twice"},
      {T("\"data_offsets\":[0,4]," OF("F32", "1", 0, 4)), 4, "same thing twice"},
      {T(OF("F32", "1", 0, 4) ",\"d\\u0074ype\":\"F32\""), 4, "same thing twice"},
      {"{\"a\":{" OF("F32", "1", 0, 4) "},\"a\":{" OF("F32", "1", 4, 8) "}}", 8, "same name"},
      {"{\"a\":{" OF("F32", "1", 0, 4) "},\"\\u0061\":{" OF("F32", "1", 4, 8) "}}", 8, "same name"},
      {"{\"a\":{" OF("F32", "0", 0, 0) "},\"b\":{" OF("F32", "0", 0, 0) "},\"a\":{" OF("F32", "0", 0, 0) "}}", 0,
       "same name"},
      {"{\"a\":[]}", 0, NOT_JSON},
      {"{\"a\":null}", 0, NOT_JSON},
      {"{\"a\":\"b\"}", 0, NOT_JSON},
      {T(OF("F32", "1", 0, 4) ",\"x\":[" NEST8(NEST8(NEST8(NEST8("1")))) "]"), 4, "nested too deeply"},
      {T(OF("F32", "1", 0, 4) ",\"x\":[}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":]"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":?"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":01"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":-"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":1."), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":1e"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":+1"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":nul"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":truex"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":[1,]"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":[,1]"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":[1 2]"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{,}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{1:2}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{\"a\"}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{\"a\":}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{\"a\":1,}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":{,:}"), 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\":--"), 4, "not the JSON"},
      {"{\"a\":{" OF("F32", "1", 0, 4) ",\"x\":[", 4, "not the JSON"},
      {T(OF("F32", "1", 0, 4) ",\"x\""), 4, NOT_JSON},
      /* metadata */
      {"{\"__metadata__\":{\"a\":1}}", 0, NOT_JSON},
      {"{\"__metadata__\":{\"a\":null}}", 0, NOT_JSON},
      {"{\"__metadata__\":{\"a\":{}}}", 0, NOT_JSON},
      {"{\"__metadata__\":{\"a\"}}", 0, NOT_JSON},
      {"{\"__metadata__\":{\"a\":\"b\",}}", 0, NOT_JSON},
      {"{\"__metadata__\":[]}", 0, NOT_JSON},
      {"{\"__metadata__\":\"x\"}", 0, NOT_JSON},
      {"{\"__metadata__\":nul}", 0, NOT_JSON},
      {"{\"__metadata__\":nullx}", 0, NOT_JSON},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
      {"{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{\"a\":\"b\"}}", 0, "two __metadata__"},
      {"{\"__metadata__\":null,\"__metadata__\":{\"a\":\"b\"}}", 0, "two __metadata__"},
      {"{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":null}", 0, "two __metadata__"},
      /* strings */
      {"{\"\\u0000\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\ud800\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\ud800x\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\udc00\\ud800\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\ud800\\u0041\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\ud800\\ud800\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\u12\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\u12g4\":{" OF("F32", "1", 0, 4) "}}", 4, "no character, or 0"},
      {"{\"\\u", 0, "no character, or 0"},
      {"{\"\\ud800\\u", 0, "no character, or 0"},
      {"{\"\\x41\":{" OF("F32", "1", 0, 4) "}}", 4, "escape that JSON does not have"},
      {"{\"\\", 0, "escape that JSON does not have"},
      {"{\"a\nb\":{" OF("F32", "1", 0, 4) "}}", 4, "control character"},
      {"{\"a\x1f\":{" OF("F32", "1", 0, 4) "}}", 4, "control character"},
      {"{\"\xff\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xc0\xaf\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xed\xa0\x80\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xe0\x80\xaf\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xf0\x80\x80\xaf\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xf4\x90\x80\x80\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{\"\xe2\x82\":{" OF("F32", "1", 0, 4) "}}", 4, "not UTF-8"},
      {"{}\xe2\x82", 0, "not UTF-8"},
      /* the whole */
      {"", 0, NOT_JSON},
      {"   ", 0, NOT_JSON},
      {"[]", 0, NOT_JSON},
      {"{", 0, NOT_JSON},
      {"{\"", 0, NOT_JSON},
      {"{\"a", 0, NOT_JSON},
      {"{\"a\"", 0, NOT_JSON},
      {"{\"a\":", 0, NOT_JSON},
      {"{,}", 0, NOT_JSON},
      {"{a:1}", 0, NOT_JSON},
      {"{'a':{}}", 0, NOT_JSON},
      {"{}}", 0, "something follows"},
      {"{}{}", 0, "something follows"},
      {"{} x", 0, "something follows"},
      {"\xef\xbb\xbf{}", 0, NOT_JSON},
      {"{\"a\":{" OF("F32", "1", 0, 4) "},}", 4, NOT_JSON},
      {"{\"a\":{" OF("F32", "1", 0, 4) "}\"b\":{" OF("F32", "0", 4, 4) "}}", 4, NOT_JSON},
      {"{\"a\":{" OF("F32", "1", 0, 4) ",}}", 4, NOT_JSON},
   };
   mem m = {0};
   for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
      mem_text(&m, rows[i].header, (size_t)rows[i].data);
      if (rows[i].sentence) {
         refused_open(&m, MOD_RESULT_FORMAT, rows[i].sentence, rows[i].header);
         continue;
      }
      mod_file *file = open_mem(&m);
      CHECKF(file != NULL, "%s: %s", rows[i].header, err.message);
      mod_config cfg;
      if (file) CHECK(mod_file_config(file, &cfg, &err) == MOD_RESULT_FORMAT && strstr(err.message, "not written by"));
      mod_file_close(file);
   }
   /* what was understood of a few */
   mem_text(&m, "{\"b\":{" OF("F64", "1", 1, 9) "},\"a\":{" OF("I8", "1", 0, 1) "},"
                "\"__metadata__\":{\"k\\n\":\"\"}}", 9);
   mod_file *file = open_mem(&m);
   int count = 0;
   const mod_entry *e = mod_file_tensors(file, &count);
   if (CHECK(e && count == 2)) {
      CHECK(!strcmp(e[0].name, "a") && !strcmp(e[0].dtype, "I8") && e[0].begin == m.size - 9 && e[0].end == m.size - 8);
      CHECK(!strcmp(e[1].name, "b") && !strcmp(e[1].dtype, "F64") && e[1].n_dim == 1 && e[1].dim[0] == 1 &&
            e[1].begin == m.size - 8 && e[1].end == m.size);
      CHECK(mod_file_meta(file, "k\n") && !*mod_file_meta(file, "k\n") && !mod_file_meta(file, "k"));
   }
   mod_file_close(file);
   mem_text(&m, "{\"\\ud83d\\ude00\\u00e9\\u20AC\\b\\f\\/\\u0041\":{" OF("F32", "", 0, 4) "}}", 4);
   file = open_mem(&m);
   e = mod_file_tensors(file, &count);
   if (CHECK(e && count == 1))
      CHECK(!strcmp(e[0].name, "\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\b\f/A") && e[0].n_dim == 0);
   mod_file_close(file);
   for (int u = 1; u < 0x110000; u = u < 0x3000 ? u + 1 : u + 991) { /* escapes, against an encoder of our own */
      char text[200], escape[20], name[5] = {0};
      if (u >= 0xd800 && u < 0xe000) continue;
      if (u < 0x80) name[0] = (char)u;
      else if (u < 0x800) name[0] = (char)(0xc0 + u / 64), name[1] = (char)(0x80 + u % 64);
      else if (u < 0x10000)
         name[0] = (char)(0xe0 + u / 4096), name[1] = (char)(0x80 + u / 64 % 64), name[2] = (char)(0x80 + u % 64);
      else {
         name[0] = (char)(0xf0 + u / 262144);
         name[1] = (char)(0x80 + u / 4096 % 64);
         name[2] = (char)(0x80 + u / 64 % 64);
         name[3] = (char)(0x80 + u % 64);
      }
      if (u < 0x10000) snprintf(escape, sizeof escape, u % 2 ? "\\u%04x" : "\\u%04X", (unsigned)u);
      else
         snprintf(escape, sizeof escape, "\\u%04x\\u%04X", 0xd7c0u + (unsigned)u / 1024,
                  0xdc00u + (unsigned)u % 1024);
      snprintf(text, sizeof text, "{\"%s\":{%s}}", escape, OF("F32", "", 0, 4));
      mem_text(&m, text, 4);
      file = open_mem(&m);
      e = mod_file_tensors(file, &count);
      if (!e || count != 1 || strcmp(e[0].name, name)) CHECKF(0, "%s", escape);
      mod_file_close(file);
   }
   /* a NUL byte; lengths */
   mem_text(&m, "{} x", 0);
   m.at[10] = 0;
   refused_open(&m, MOD_RESULT_FORMAT, "not UTF-8", "a NUL byte");
   static const struct {
      uint64_t length;
      const char *sentence;
   } lengths[] = {{5, "longer than the file"}, {100000000, "longer than the file"}, {100000001, "100,000,000"},
                  {UINT64_MAX, "100,000,000"}, {UINT64_MAX - 7, "100,000,000"}, {(uint64_t)1 << 32, "100,000,000"}};
   for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
      size_t bytes = 0;
      for (int k = 0; k < 8; ++k) m.at[k] = (unsigned char)(lengths[i].length >> (8 * k));
      refused_open(&m, MOD_RESULT_FORMAT, lengths[i].sentence, "length");
      mod_reader reader = reader_of(&m);
      CHECK(mod_file_plan(&reader, &bytes, &err) == MOD_RESULT_FORMAT && bytes == 0);
   }
   mem_reset(&m);
}

/* A file of a model, edited: each edit is refused by the call that it concerns, and changes nothing. */
static void test_edits(void)
{
   /* what is refused; what is not named must succeed */
   enum { CONFIG = 1, LOAD = 2, TRAIN = 4, RESUME = 8, LOADS = LOAD | RESUME, ALL = CONFIG | LOADS };
   static const struct {
      const char *from, *to;
      int refused;
      mod_result code;
      const char *sentence;
   } rows[] = {
      {"\"mod.format\":\"2\"", "\"mod.format\":\"3\"", ALL | TRAIN, MOD_RESULT_VERSION, "later version"},
      {"\"mod.format\":\"2\"", "\"mod.format\":\"02\"", ALL | TRAIN, MOD_RESULT_VERSION, "later version"},
      {"\"mod.format\":\"2\"", "\"mod.format\":\"0\"", ALL | TRAIN, MOD_RESULT_VERSION, "later version"},
      {"\"mod.format\":\"2\"", "\"mod.format\":\"\"", ALL | TRAIN, MOD_RESULT_VERSION, "later version"},
      {"\"mod.format\":\"2\"", "\"mod.format\":\"1\"", ALL, MOD_RESULT_FORMAT, "list of blocks is wrong"},
      {"\"mod.format\":\"2\"", "\"mod.forma\":\"2\"", ALL | TRAIN, MOD_RESULT_FORMAT, "not written by"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_mode\":\"2\"", ALL, MOD_RESULT_FORMAT, "setting is missing"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"-2\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"2 \"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"4294967298\"", ALL, MOD_RESULT_FORMAT,
       "not a number"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"99999999999999999999999\"", ALL, MOD_RESULT_FORMAT,
       "not a number"},
      {"\"mod.d_model\":\"2\"", "\"mod.d_model\":\"3\"", ALL, MOD_RESULT_CONFIG, "RoPE"},
      {"\"mod.norm\":\"1\"", "\"mod.norm\":\"3\"", ALL, MOD_RESULT_CONFIG, "norm"},
      {"\"mod.n_layers\":\"2\"", "\"mod.n_layers\":\"1025\"", ALL, MOD_RESULT_CONFIG, "n_layers"},
      {"\"mod.n_layers\":\"2\"", "\"mod.n_layers\":\"3\"", ALL, MOD_RESULT_FORMAT, "list of blocks"},
      {"\"mod.n_layers\":\"2\"", "\"mod.n_layers\":\"1\"", ALL, MOD_RESULT_FORMAT, "list of blocks"},
      {"\"mod.vocab_size\":\"3\"", "\"mod.vocab_size\":\"1000000\"", ALL, MOD_RESULT_FORMAT,
       "shorter than the model"},
      {"\"mod.capacity\":\"3fe0000000000000\"", "\"mod.capacity\":\"7ff8000000000000\"", ALL,
       MOD_RESULT_CONFIG, "capacity"},
      {"\"mod.capacity\":\"3fe0000000000000\"", "\"mod.capacity\":\"3fe000000000000\"", ALL,
       MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.capacity\":\"3fe0000000000000\"", "\"mod.capacity\":\"3fe00000000000000\"", ALL,
       MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.capacity\":\"3fe0000000000000\"", "\"mod.capacity\":\"0.5\"", ALL, MOD_RESULT_FORMAT,
       "not a number"},
      {"\"mod.blocks\"", "\"mod.block\"", ALL, MOD_RESULT_FORMAT, "list of blocks is missing"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;9 1 3fe", ALL, MOD_RESULT_CONFIG,
       "select"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;8 1 3fe", ALL, MOD_RESULT_CONFIG,
       "select"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1,2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1 1;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff000000000000 1 1;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 -4 3ff0000000000000 1 1;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000  1 1;2", ALL, MOD_RESULT_FORMAT,
       "list of blocks is wrong"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1",
       "1 4 4000000000000000 8 4 3ff0000000000000 1 1;2 1", ALL, MOD_RESULT_CONFIG,
       "capacity"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 9 4 3ff0000000000000 1 1;2", ALL, MOD_RESULT_CONFIG,
       "kv_select"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 4 4 3ff0000000000000 1 1;2", ALL, MOD_RESULT_CONFIG,
       "kv_select"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 5 3ff0000000000000 1 1;2", ALL, MOD_RESULT_CONFIG,
       "kv_gate"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 4000000000000000 1 1;2", ALL, MOD_RESULT_CONFIG,
       "kv_capacity"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 7ff8000000000000 1 1;2", ALL, MOD_RESULT_CONFIG,
       "kv_capacity"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 4 1;2", ALL, MOD_RESULT_CONFIG,
       "mlp"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 3;2", ALL, MOD_RESULT_CONFIG,
       "choice"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 3 2",
       ALL, MOD_RESULT_CONFIG, "MOD_MLP_MODE"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;7 4 3fe0000000000000 1 4 3ff0000000000000 1 2;",
       ALL, MOD_RESULT_CONFIG, "takes nobody"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;2 1",
       ALL, MOD_RESULT_FORMAT, "list of blocks is too long"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 2", LOADS, MOD_RESULT_FORMAT,
       "another block"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fd0", LOADS, MOD_RESULT_FORMAT,
       "another block"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 2 3 3fd0000000000000 1 2;",
       LOADS, MOD_RESULT_FORMAT, "another block"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 1 4 3ff0000000000000 1 2;",
       LOADS, MOD_RESULT_FORMAT, "another block"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 2 2;",
       LOADS, MOD_RESULT_FORMAT, "another block"},
      {"1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;",
       "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;2 1 3fe0000000000000 8 4 3ff0000000000000 1 1;",
       LOADS, MOD_RESULT_FORMAT, "another block"},
      {"\"mod.mask\":\"0\"", "\"mod.mask\":\"2\"", ALL, MOD_RESULT_CONFIG, "mask"},
      {"\"mod.mask\":\"0\"", "\"mod.mask\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.n_inputs\":\"0\"", "\"mod.n_inputs\":\"1\"", ALL, MOD_RESULT_CONFIG, "tied head"},
      {"\"mod.n_inputs\":\"0\"", "\"mod.n_inputs\":\"65537\"", ALL, MOD_RESULT_CONFIG, "n_inputs"},
      {"\"mod.n_inputs\":\"0\"", "\"mod.n_inputs\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.n_outputs\":\"0\"", "\"mod.n_outputs\":\"1\"", ALL, MOD_RESULT_CONFIG, "n_outputs"},
      {"\"mod.n_outputs\":\"0\"", "\"mod.n_outputs\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.bypass\":\"1\"", "\"mod.bypass\":\"3\"", ALL, MOD_RESULT_CONFIG, "bypass"},
      {"\"mod.bypass\":\"1\"", "\"mod.bypass\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.kv_select\":\"8\"", "\"mod.kv_select\":\"9\"", ALL, MOD_RESULT_CONFIG, "kv_select"},
      {"\"mod.kv_select\":\"8\"", "\"mod.kv_select\":\"4\"", ALL, MOD_RESULT_CONFIG, "kv_select"},
      {"\"mod.kv_select\":\"8\"", "\"mod.kv_select\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.kv_gate\":\"2\"", "\"mod.kv_gate\":\"5\"", ALL, MOD_RESULT_CONFIG, "kv_gate"},
      {"\"mod.kv_gate\":\"2\"", "\"mod.kv_gate\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.kv_capacity\":\"3fe0000000000000\"", "\"mod.kv_capacity\":\"4000000000000000\"",
       ALL, MOD_RESULT_CONFIG, "kv_capacity"},
      {"\"mod.kv_capacity\":\"3fe0000000000000\"", "\"mod.kv_capacity\":\"7ff8000000000000\"",
       ALL, MOD_RESULT_CONFIG, "kv_capacity"},
      {"\"mod.kv_capacity\":\"3fe0000000000000\"", "\"mod.kv_capacity\":\"bff0000000000000\"",
       ALL, MOD_RESULT_CONFIG, "kv_capacity"},
      {"\"mod.kv_capacity\":\"3fe0000000000000\"", "\"mod.kv_capacity\":\"0.5\"",
       ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.mlp\":\"1\"", "\"mod.mlp\":\"4\"", ALL, MOD_RESULT_CONFIG, "mlp"},
      {"\"mod.mlp\":\"1\"", "\"mod.mlp\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.n_experts\":\"4\"", "\"mod.n_experts\":\"65\"", ALL, MOD_RESULT_CONFIG, "n_experts"},
      {"\"mod.n_experts\":\"4\"", "\"mod.n_experts\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.n_noops\":\"4\"", "\"mod.n_noops\":\"65\"", ALL, MOD_RESULT_CONFIG, "n_noops"},
      {"\"mod.n_noops\":\"4\"", "\"mod.n_noops\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.choice\":\"0\"", "\"mod.choice\":\"3\"", ALL, MOD_RESULT_CONFIG, "choice"},
      {"\"mod.choice\":\"0\"", "\"mod.choice\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.choices\":\"1\"", "\"mod.choices\":\"3\"", ALL, MOD_RESULT_CONFIG, "choices"},
      {"\"mod.choices\":\"1\"", "\"mod.choices\":\"-1\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.capacity_factor\":\"3ff0000000000000\"", "\"mod.capacity_factor\":\"7ff8000000000000\"",
       ALL, MOD_RESULT_CONFIG, "capacity_factor"},
      {"\"mod.capacity_factor\":\"3ff0000000000000\"", "\"mod.capacity_factor\":\"7ff0000000000000\"",
       ALL, MOD_RESULT_CONFIG, "capacity_factor"},
      {"\"mod.capacity_factor\":\"3ff0000000000000\"", "\"mod.capacity_factor\":\"bff0000000000000\"",
       ALL, MOD_RESULT_CONFIG, "capacity_factor"},
      {"\"mod.capacity_factor\":\"3ff0000000000000\"", "\"mod.capacity_factor\":\"0.5\"",
       ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.balance_loss\":\"3f847ae147ae147b\"", "\"mod.balance_loss\":\"7ff8000000000000\"",
       ALL, MOD_RESULT_CONFIG, "balance_loss"},
      {"\"mod.balance_loss\":\"3f847ae147ae147b\"", "\"mod.balance_loss\":\"7ff0000000000000\"",
       ALL, MOD_RESULT_CONFIG, "balance_loss"},
      {"\"mod.balance_loss\":\"3f847ae147ae147b\"", "\"mod.balance_loss\":\"bff0000000000000\"",
       ALL, MOD_RESULT_CONFIG, "balance_loss"},
      {"\"mod.balance_loss\":\"3f847ae147ae147b\"", "\"mod.balance_loss\":\"0.5\"",
       ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.z_loss\":\"3f50624dd2f1a9fc\"", "\"mod.z_loss\":\"7ff8000000000000\"", ALL, MOD_RESULT_CONFIG, "z_loss"},
      {"\"mod.z_loss\":\"3f50624dd2f1a9fc\"", "\"mod.z_loss\":\"7ff0000000000000\"", ALL, MOD_RESULT_CONFIG, "z_loss"},
      {"\"mod.z_loss\":\"3f50624dd2f1a9fc\"", "\"mod.z_loss\":\"bff0000000000000\"", ALL, MOD_RESULT_CONFIG, "z_loss"},
      {"\"mod.z_loss\":\"3f50624dd2f1a9fc\"", "\"mod.z_loss\":\"0.5\"", ALL, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.head\":\"1\"", "\"mod.head\":\"3\"", ALL, MOD_RESULT_CONFIG, "n_outputs"},
      {"\"mod.head\":\"1\"", "\"mod.head\":\"4\"", ALL, MOD_RESULT_CONFIG, "n_outputs"},
      {"\"mod.head\":\"1\"", "\"mod.head\":\"5\"", ALL, MOD_RESULT_CONFIG, "head"},
      {"\"mod.select\":\"2\"", "\"mod.select\":\"8\"", ALL, MOD_RESULT_CONFIG, "select"},
      {"\"mod.mask\":\"0\"", "\"mod.mask\":\"1\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.bypass\":\"1\"", "\"mod.bypass\":\"2\"", ALL, MOD_RESULT_CONFIG, "gated bypass"},
      {"\"mod.kv_select\":\"8\"", "\"mod.kv_select\":\"1\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.kv_gate\":\"2\"", "\"mod.kv_gate\":\"3\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.kv_capacity\":\"3fe0000000000000\"", "\"mod.kv_capacity\":\"3fe0000000000001\"",
       LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.mlp\":\"1\"", "\"mod.mlp\":\"2\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.n_experts\":\"4\"", "\"mod.n_experts\":\"5\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.n_noops\":\"4\"", "\"mod.n_noops\":\"1\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.choice\":\"0\"", "\"mod.choice\":\"2\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.choices\":\"1\"", "\"mod.choices\":\"2\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.capacity_factor\":\"3ff0000000000000\"", "\"mod.capacity_factor\":\"4000000000000000\"",
       LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.balance_loss\":\"3f847ae147ae147b\"", "\"mod.balance_loss\":\"3f847ae147ae147c\"",
       LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.z_loss\":\"3f50624dd2f1a9fc\"", "\"mod.z_loss\":\"3f50624dd2f1a9fd\"",
       LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.context\":\"4\"", "\"mod.context\":\"5\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.causal\":\"1\"", "\"mod.causal\":\"3\"", LOADS, MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.router_loss\":\"3f847ae147ae147b\"", "\"mod.router_loss\":\"3f847ae147ae147c\"", LOADS,
       MOD_RESULT_FORMAT, "other settings"},
      {"\"mod.thresholds\"", "\"mod.threshold\"", LOADS, MOD_RESULT_FORMAT, "thresholds are missing"},
      {"\"mod.thresholds\":\"", "\"mod.thresholds\":\"0000000000000000;", LOADS, MOD_RESULT_FORMAT,
       "thresholds are missing, wrong"},
      {"\"mod.thresholds\":\"0000000000000000;", "\"mod.thresholds\":\"", LOADS, MOD_RESULT_FORMAT,
       "thresholds are missing, wrong"},
      {"\"mod.thresholds\":\"0000000000000000;", "\"mod.thresholds\":\"7ff8000000000000;", LOADS,
       MOD_RESULT_FORMAT, "thresholds are missing, wrong"},
      {"\"mod.thresholds\":\"0000000000000000;", "\"mod.thresholds\":\"7ff0000000000000;", 0, MOD_RESULT_OK, ""},
      {"\"mod.thresholds\":\"0000000000000000;", "\"mod.thresholds\":\"0000000000000000 ", LOADS,
       MOD_RESULT_FORMAT, "thresholds are missing, wrong"},
      {"\"embed\":{\"dtype\":\"F32\"", "\"embed\":{\"dtype\":\"I32\"", LOADS, MOD_RESULT_FORMAT, "missing, or has"},
      {"\"embed\":{\"dtype\":\"F32\",\"shape\":[3,2]", "\"embed\":{\"dtype\":\"F32\",\"shape\":[2,3]", LOADS,
       MOD_RESULT_FORMAT, "missing, or has"},
      {"\"embed\":{\"dtype\":\"F32\",\"shape\":[3,2]", "\"embed\":{\"dtype\":\"F64\",\"shape\":[3]", LOADS,
       MOD_RESULT_FORMAT, "missing, or has"},
      {"\"embed\":{\"dtype\":\"F32\",\"shape\":[3,2]", "\"embed\":{\"dtype\":\"F32\",\"shape\":[3,2,1]", LOADS,
       MOD_RESULT_FORMAT, "missing, or has"},
      {"\"embed\":{", "\"Embed\":{", LOADS, MOD_RESULT_FORMAT, "missing, or has"},
      {"\"blocks.1.router\"", "\"blocks.2.router\"", LOADS, MOD_RESULT_FORMAT, "missing, or has"},
      {"\"adam.m.embed\"", "\"adam.n.embed\"", RESUME, MOD_RESULT_FORMAT, "missing, or has"},
      {"\"adam.v.embed\"", "\"adam.v.\"", RESUME, MOD_RESULT_FORMAT, "missing, or has"},
      {"\"mod.train.state\"", "\"mod.train.stat\"", TRAIN | RESUME, MOD_RESULT_STATE, "no training state"},
      {"\"mod.train.state\":\"", "\"mod.train.state\":\"0", TRAIN | RESUME, MOD_RESULT_FORMAT,
       "training state is wrong"},
      {"\"mod.train.state\":\"fedcba9876543210 ", "\"mod.train.state\":\"fedcba9876543210", TRAIN | RESUME,
       MOD_RESULT_FORMAT, "training state is wrong"},
      {" 0000000000000009 0000000000000002 ", " 0000000000000009 8000000000000000 ", TRAIN | RESUME, MOD_RESULT_FORMAT,
       "out of range"},
      {" 0000000000000009 0000000000000002 ", " 0000000000000009 7fffffffffffffff ", TRAIN | RESUME, MOD_RESULT_FORMAT,
       "out of range"},
      {" 0000000000000009 0000000000000002 3f", " 0000000000000009 0000000000000002 4f", TRAIN | RESUME,
       MOD_RESULT_FORMAT, "out of range"},
      {" 0000000000000009 0000000000000002 3f", " 0000000000000009 0000000000000002 bf", TRAIN | RESUME,
       MOD_RESULT_FORMAT, "out of range"},
      {"\"mod.train.steps\":\"10\"", "\"mod.train.steps\":\"0\"", TRAIN, MOD_RESULT_FORMAT, "steps"},
      {"\"mod.train.lr\":\"3f", "\"mod.train.lr\":\"bf", TRAIN, MOD_RESULT_FORMAT, "lr must be"},
      {"\"mod.train.beta1\":\"3fe", "\"mod.train.beta1\":\"7ff", TRAIN, MOD_RESULT_FORMAT, "beta1"},
      {"\"mod.train.warmup\":\"0\"", "\"mod.train.warm\":\"0\"", TRAIN, MOD_RESULT_FORMAT, "setting is missing"},
      {"\"mod.train.n_seqs\":\"1\"", "\"mod.train.n_seqs\":\"2000000000\"", 0, MOD_RESULT_OK, ""}, /* plan sees it */
      {"\"mod.train.steps\":\"10\"", "\"mod.train.steps\":\"2147483647\"", 0, MOD_RESULT_OK, ""},
      {"\"mod.train.steps\":\"10\"", "\"mod.train.steps\":\"2147483648\"", TRAIN, MOD_RESULT_FORMAT, "not a number"},
      {"\"mod.train.n_seqs\":\"1\"", "\"mod.train.n_seqs\":\"0\"", TRAIN, MOD_RESULT_FORMAT, "at least 1"},
      {"\"mod.train.length\":\"4\"", "\"mod.train.length\":\"0\"", TRAIN, MOD_RESULT_FORMAT, "at least 1"},
      {"\"mod.train.dropout\":\"0000", "\"mod.train.dropout\":\"3ff0", TRAIN, MOD_RESULT_FORMAT, "dropout"},
      {"\"mod.train.dropout\":\"0000", "\"mod.train.dropout\":\"bfe0", TRAIN, MOD_RESULT_FORMAT, "dropout"},
      {"\"mod.train.dropout\":\"0000", "\"mod.train.dropout\":\"7ff8", TRAIN, MOD_RESULT_FORMAT, "dropout"},
      {"\"mod.train.dropout\":\"0000", "\"mod.train.dropout\":\"3fe0", 0, MOD_RESULT_OK, ""},
      {"\"mod.train.capacity_warmup\":\"0\"", "\"mod.train.capacity_warmup\":\"-1\"", TRAIN, MOD_RESULT_FORMAT,
       "not a number"},
      {"\"mod.train.capacity_warmup\":\"0\"", "\"mod.train.capacity_warmup\":\"7\"", 0, MOD_RESULT_OK, ""},
      {"\"mod.train.threshold_decay\":\"0000", "\"mod.train.threshold_decay\":\"3ff0", TRAIN, MOD_RESULT_FORMAT,
       "threshold_decay"},
      {"\"mod.train.threshold_decay\":\"0000", "\"mod.train.threshold_decay\":\"bfe0", TRAIN, MOD_RESULT_FORMAT,
       "threshold_decay"},
      {"\"mod.train.threshold_decay\":\"0000", "\"mod.train.threshold_decay\":\"7ff8", TRAIN, MOD_RESULT_FORMAT,
       "threshold_decay"},
      {"\"mod.train.threshold_decay\":\"0000", "\"mod.train.threshold_decay\":\"3fe0", 0, MOD_RESULT_OK, ""},
   };
   mod_config cfg = tiny(), got;
   mod_train_desc how = tiny_desc(), desc;
   owned o = tiny_trained(), b;
   mem m = saved_with(o.model, o.trainer, 9), edited = {0};
   b = own(&cfg, &how);
   mod_model_randomize(b.model, 55, NULL);
   keep(&b);
   for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
      CHECKF(mem_edit(&m, &edited, rows[i].from, rows[i].to), "no %s", rows[i].from);
      mod_file *file = open_mem(&edited);
      CHECKF(file != NULL, "%s: %s", rows[i].to, err.message);
      for (int call = 1; file && call <= 8; call *= 2) {
         mod_result result = call == CONFIG ? mod_file_config(file, &got, &err)
                             : call == LOAD ? mod_file_load(file, b.model, NULL, &err)
                             : call == TRAIN ? mod_file_train_desc(file, &desc, NULL, &err)
                                             : mod_file_load(file, b.model, b.trainer, &err);
         if (rows[i].refused & call) {
            CHECKF(result == rows[i].code && err.code == result && is_sentence(err.message) &&
                   strstr(err.message, rows[i].sentence), "%s, call %d: %s", rows[i].to, call, err.message);
            CHECKF(unchanged(&b), "%s, call %d", rows[i].to, call);
         } else {
            CHECKF(result == MOD_RESULT_OK, "%s, call %d: %s", rows[i].to, call, err.message);
         }
         restore(&b);
      }
      mod_file_close(file);
   }
   mem_reset(&edited);
   /* the trainer of another model; a model of another config */
   mod_file *file = (mod_file *)checked(open_mem(&m), "file");
   CHECK(mod_file_load(file, b.model, o.trainer, &err) == MOD_RESULT_ARG && is_sentence(err.message) && unchanged(&b));
   for (int kind = 0; kind < 16; ++kind) {
      cfg = tiny();
      if (kind == 3) cfg.mask = MOD_MASK_FULL;
      if (kind == 4) cfg.n_outputs = 2, cfg.head = MOD_HEAD_CLASS;
      if (kind == 5) cfg.n_inputs = 2, cfg.head = MOD_HEAD_UNTIED;
      if (kind == 6) cfg.kv_select = MOD_SELECT_ALL;
      if (kind == 7) cfg.kv_gate = MOD_GATE_RAW;
      if (kind == 8) cfg.kv_capacity = 0.25;
      if (kind == 9) cfg.mlp = MOD_MLP_MOE;
      if (kind == 10) cfg.n_experts = 3;
      if (kind == 11) cfg.n_noops = 3;
      if (kind == 12) cfg.choice = MOD_CHOICE_EXPERT;
      if (kind == 13) cfg.choices = 2;
      if (kind == 14) cfg.capacity_factor = 2;
      if (kind == 15) cfg.balance_loss = 1;
      if (kind == 0) cfg.vocab_size = 4;
      if (kind == 1) cfg.n_layers = 3;
      if (kind == 2) cfg.gate = MOD_GATE_TANH;
      owned other = own(&cfg, NULL);
      keep(&other);
      CHECK(mod_file_load(file, other.model, NULL, &err) == MOD_RESULT_FORMAT && unchanged(&other));
      CHECK(strstr(err.message, "other settings") != NULL);
      disown(&other);
   }
   mod_file_close(file);
   mem_reset(&m);
   disown(&o);
   disown(&b);
}

/* Each setting is needed; in files of format 1 only those that it had. */
static void test_formats(void)
{
   static const char *const settings[] = {
      "vocab_size", "context", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "norm", "position", "activation",
      "bias", "head", "select", "route_first", "route_every", "capacity", "gate", "gate_scale", "causal", "router_loss",
      "predictor_loss", "norm_eps", "rope_base", /* from here on since format 2: */ "mask", "n_inputs", "n_outputs",
      "bypass", "kv_select", "kv_gate", "kv_capacity", "mlp", "n_experts", "n_noops", "choice", "choices",
      "capacity_factor", "balance_loss", "z_loss"};
   static const char *const of_training[] = {"n_seqs", "length", "steps", "warmup", "lr", "lr_min", "beta1", "beta2",
      "eps", "weight_decay", "clip_norm", /* since format 2: */ "dropout", "capacity_warmup", "threshold_decay"};
   enum { SETTINGS = sizeof settings / sizeof *settings, ALL = SETTINGS + sizeof of_training / sizeof *of_training };
   static const char blocks[] = "1 4 3ff0000000000000 8 4 3ff0000000000000 1 1;"
                                "2 1 3fe0000000000000 8 4 3ff0000000000000 1 2;";
   mod_config cfg = tiny(), got;
   mod_train_desc how = tiny_desc(), desc;
   owned o = tiny_trained(), b = own(&cfg, &how);
   mem format[3] = {{0}, {0}, {0}}, edited = {0};
   int found = 0;
   format[2] = saved_with(o.model, o.trainer, 9);
   CHECK(mem_edit(&format[2], &edited, "\"mod.format\":\"2\"", "\"mod.format\":\"1\""));
   CHECK(mem_edit(&edited, &format[1], blocks, "1 4 3ff0000000000000;2 1 3fe0000000000000;"));
   for (size_t at = 8; at < header_of(&format[2]); ++at) { /* none is forgotten here */
      const char *key = (const char *)format[2].at + at;
      found += !memcmp(key, "\"mod.", 5) && !memchr(key, ' ', strcspn(key + 1, "\""));
   }
   CHECKF(found == ALL + 4, "%d settings", found); /* and format, blocks, thresholds, train.state */
   for (int f = 1; f <= 2; ++f)
      for (int i = -1; i < ALL; ++i) {
         int training = i >= SETTINGS, needed = training ? f == 2 || i < SETTINGS + 11 : i >= 0 && (f == 2 || i < 23);
         char from[60], to[60];
         const char *name = training ? of_training[i - SETTINGS] : i < 0 ? "format" : settings[i];
         snprintf(from, sizeof from, "\"mod.%s%s\":", training ? "train." : "", name);
         snprintf(to, sizeof to, "\"mod.%s%s\":", training ? "train." : "", i < 0 ? name : "other");
         CHECKF(mem_edit(&format[f], &edited, from, to), "no %s", from);
         mod_file *file = (mod_file *)checked(open_mem(&edited), "file");
         memset(&got, 0x5c, sizeof got);
         memset(&desc, 0x5c, sizeof desc);
         mod_result config = mod_file_config(file, &got, &err), wanted = needed ? MOD_RESULT_FORMAT : MOD_RESULT_OK;
         CHECKF(config == (training ? MOD_RESULT_OK : wanted), "format %d without %s: %s", f, name, err.message);
         if (config == MOD_RESULT_OK) CHECK(same_config(got, mod_model_config(o.model)));
         else CHECK(err.where == i && strstr(err.message, "setting is missing"));
         mod_result train = mod_file_train_desc(file, &desc, NULL, &err);
         CHECKF(train == (training ? wanted : MOD_RESULT_OK), "format %d without %s: %s", f, name, err.message);
         if (train == MOD_RESULT_OK)
            CHECK(desc.steps == 10 && desc.dropout == 0 && desc.capacity_warmup == 0 && desc.threshold_decay == 0);
         CHECK(mod_file_load(file, b.model, b.trainer, &err) == (training ? MOD_RESULT_OK : wanted));
         mod_file_close(file);
      }
   for (int f = 1; f <= 2; ++f) { /* both give the model that was saved */
      mod_file *file = (mod_file *)checked(open_mem(&format[f]), "file");
      mod_model_randomize(b.model, 55, NULL);
      CHECKF(mod_file_load(file, b.model, b.trainer, &err) == MOD_RESULT_OK, "%s", err.message);
      mem again = saved_with(b.model, b.trainer, 9);
      CHECK(equal(&again, &format[2]));
      mem_reset(&again);
      mod_file_close(file);
   }
   for (int f = 1; f <= 2; ++f) mem_reset(&format[f]);
   mem_reset(&edited);
   disown(&o);
   disown(&b);
}

/* ----------------------------------------------------------------------------------------------- 5. I/O faults -- */

static void test_faults(void)
{
   mod_config cfg = tiny(), got;
   mod_train_desc how = tiny_desc();
   owned o = tiny_trained(), b;
   mod_save_desc desc = {0};
   desc.trainer = o.trainer;
   mem m = saved(o.model, &desc), out = {0};
   mod_writer writer = {mem_write, &out};
   keep(&o);
   for (size_t most = 0; most <= m.size; ++most) {
      out.size = 0;
      out.calls = 0;
      out.limited = 1;
      out.most = most;
      mod_result result = mod_save(o.model, &desc, &writer, &err);
      if (most == m.size) CHECK(result == MOD_RESULT_OK && equal(&out, &m));
      else if (result != MOD_RESULT_IO || err.code != result || !is_sentence(err.message) || out.size != most)
         CHECKF(0, "a writer of %d bytes: %s", (int)most, err.message);
   }
   CHECK(unchanged(&o));
   mem_reset(&out);

   /* opening: three reads; loading: a pass that looks, and one that stores */
   b = own(&cfg, &how);
   mod_model_randomize(b.model, 99, NULL);
   keep(&b);
   m.calls = 0;
   mod_file *file = (mod_file *)checked(open_mem(&m), "file");
   int opening = m.calls, passes[2], theta_bytes = (int)(cfg.n_layers * sizeof(double));
   CHECK(mod_file_config(file, &got, &err) == MOD_RESULT_OK && m.calls == opening); /* reads nothing */
   for (int with = 0; with < 2; ++with) {
      m.calls = 0;
      CHECK(mod_file_load(file, b.model, with ? b.trainer : NULL, &err) == MOD_RESULT_OK);
      CHECK(m.calls % 2 == 0);
      passes[with] = m.calls / 2;
      restore(&b);
      for (int shorter = 0; shorter < 3; ++shorter)
         for (int at = 1; at <= 2 * passes[with]; ++at) {
            m.calls = 0;
            m.fail_at = shorter == 2 ? 0 : at;
            m.shorter = shorter;
            m.change_at = shorter == 2 ? at : 0; /* the data is another: no fault that can be seen, and no crash */
            mod_result result = mod_file_load(file, b.model, with ? b.trainer : NULL, &err);
            CHECKF(result == (shorter == 2 ? MOD_RESULT_OK : MOD_RESULT_IO) && err.code == result, "call %d", at);
            if (shorter < 2) {
               CHECK(is_sentence(err.message) && err.where >= 0 && (uint64_t)err.where < m.size);
               if (at <= passes[with]) CHECKF(unchanged(&b), "call %d of a load", at);
               CHECK(!memcmp(mod_model_thresholds(b.model),
                             (char *)b.copy[0] + ((char *)mod_model_thresholds(b.model) - (char *)b.memory[0]),
                             (size_t)theta_bytes));
            }
            m.fail_at = m.change_at = 0;
            restore(&b);
         }
   }
   CHECK(passes[1] > passes[0] && passes[0] >= mod_model_param_count(b.model));
   mod_file_close(file);
   for (int shorter = 0; shorter < 2; ++shorter)
      for (int at = 1; at <= opening; ++at) {
         m.calls = 0;
         m.fail_at = at;
         m.shorter = shorter;
         file = open_mem(&m);
         CHECKF(!file && err.code == MOD_RESULT_IO && is_sentence(err.message), "call %d of opening", at);
         mod_file_close(file);
         m.calls = m.fail_at = 0;
         m.change_at = at;
         file = open_mem(&m);
         CHECKF(!file && err.code <= MOD_RESULT_ARG && is_sentence(err.message), "call %d of opening, changed", at);
         mod_file_close(file);
         m.change_at = 0;
      }
   mem_reset(&m);
   disown(&o);
   disown(&b);
}

typedef struct heap {
   int calls, live, fail;
   size_t size;
} heap;
static void *heap_alloc(size_t size, void *user)
{
   heap *h = (heap *)user;
   ++h->calls;
   h->size = size;
   if (h->fail) return NULL;
   ++h->live;
   return malloc(size);
}
static void heap_free(void *memory, void *user)
{
   --((heap *)user)->live;
   free(memory);
}

static void test_memory(void)
{
   heap h = {0, 0, 0, 0};
   mod_allocator allocator = {heap_alloc, heap_free, &h};
   owned o = tiny_trained();
   mem m = saved_with(o.model, o.trainer, 0);
   mod_reader reader = reader_of(&m);
   size_t planned = 0;
   int before = n_allocated;
   CHECK(mod_file_plan(&reader, &planned, &err) == MOD_RESULT_OK && planned > header_of(&m));
   CHECKF(planned < 8 * header_of(&m) + 100000, "%d bytes for a header of %d", (int)planned, (int)header_of(&m));
   mod_file *file = mod_file_create(&reader, &allocator, &err);
   CHECK(file && h.calls == 1 && h.live == 1 && h.size == planned);
   mod_file_close(file);
   CHECK(h.live == 0);
   h.fail = 1;
   CHECK(!mod_file_create(&reader, &allocator, &err) && err.code == MOD_RESULT_MEMORY && is_sentence(err.message));
   h.fail = 0;
   m.at[8] = '[';
   CHECK(!mod_file_create(&reader, &allocator, &err) && err.code == MOD_RESULT_FORMAT && h.live == 0 && h.calls == 3);
   m.at[8] = '{';
   for (size_t size = 0; size <= planned; size = size + 997 < planned - 40 ? size + 997 : size < planned - 40 ?
        planned - 40 : size + 1) {
      unsigned char *memory = (unsigned char *)checked(malloc(size + 64), "malloc");
      memset(memory, 0x5a, size + 64);
      file = mod_file_init(&reader, memory, size, &err);
      CHECKF(!file == (size < planned) && err.code == (size < planned ? MOD_RESULT_MEMORY : MOD_RESULT_OK), "%d of %d",
             (int)size, (int)planned);
      for (int i = 0; i < 64; ++i)
         if (memory[size + (size_t)i] != 0x5a) CHECKF(0, "wrote past %d bytes", (int)size);
      if (file) CHECK(mod_file_load(file, o.model, o.trainer, &err) == MOD_RESULT_OK);
      mod_file_close(file); /* memory of ours: not freed */
      free(memory);
   }
   CHECK(n_allocated == before);
   mem_reset(&m);
   disown(&o);
}

/* ------------------------------------------------------------------------------------------------- 6. on disk -- */

#if HAVE_POSIX

static mem slurp(const char *path)
{
   mem m = {0};
   char piece[4096];
   FILE *file = fopen(path, "rb");
   size_t n;
   if (!file) return m;
   while ((n = fread(piece, 1, sizeof piece, file)) > 0) mem_write(piece, n, &m);
   fclose(file);
   return m;
}
static int exists(const char *path)
{
   struct stat s;
   return !lstat(path, &s);
}

static void test_disk(void)
{
   const char *tmp = getenv("TMPDIR");
   char folder[600], path[700], aside[720], missing[720], deep[700], longest[1200];
   owned o = tiny_trained(), b;
   mod_config cfg;
   mod_save_desc desc = {0};
   mem was, now, whole;
   snprintf(folder, sizeof folder, "%.500s/modfile.XXXXXX", tmp && *tmp ? tmp : "/tmp");
   if (!mkdtemp(folder)) {
      test_skip("files on disk", "no folder can be made in TMPDIR or /tmp");
      disown(&o);
      return;
   }
   snprintf(path, sizeof path, "%s/a.safetensors", folder);
   snprintf(aside, sizeof aside, "%s.tmp", path);
   snprintf(missing, sizeof missing, "%s/none/a.safetensors", folder);
   snprintf(deep, sizeof deep, "%s/folder", folder);
   desc.trainer = o.trainer;
   whole = saved(o.model, &desc);

   CHECK(!mod_file_open(path, NULL, &err) && err.code == MOD_RESULT_IO && is_sentence(err.message));
   CHECK(!mod_file_open(folder, NULL, &err) && err.code <= MOD_RESULT_ARG && is_sentence(err.message)); /* a folder */
   int before = n_allocated;
   CHECK(mod_save_file(o.model, &desc, path, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   CHECK(n_allocated == before);
   now = slurp(path);
   CHECK(equal(&now, &whole) && !exists(aside));
   mem_reset(&now);
   mod_file *file = (mod_file *)checked(mod_file_open(path, NULL, &err), "file");
   CHECK(mod_file_config(file, &cfg, &err) == MOD_RESULT_OK);
   b = own(&cfg, NULL);
   CHECK(mod_file_load(file, b.model, NULL, &err) == MOD_RESULT_OK);

   /* replaced, while it is open: what was opened is still the old one */
   CHECK(mod_save_file(b.model, NULL, path, &err) == MOD_RESULT_OK && !exists(aside));
   CHECK(mod_file_load(file, b.model, NULL, &err) == MOD_RESULT_OK);
   mod_file_close(file);
   now = slurp(path);
   mem alone = saved(b.model, NULL);
   CHECK(equal(&now, &alone) && now.size < whole.size);
   mem_reset(&alone);
   was = now;

   /* failures leave the old file, and nothing beside it */
   CHECK(mod_save_file(o.model, &desc, missing, &err) == MOD_RESULT_IO && is_sentence(err.message));
   CHECK(!mkdir(deep, 0777) && mod_save_file(o.model, &desc, deep, &err) == MOD_RESULT_IO && is_sentence(err.message));
   strcat(deep, ".tmp");
   CHECK(!exists(deep));
   desc.n_meta = 1; /* and no meta */
   CHECK(mod_save_file(o.model, &desc, path, &err) == MOD_RESULT_ARG && !exists(aside));
   desc.n_meta = 0;
   now = slurp(path);
   CHECK(equal(&now, &was));
   mem_reset(&now);
   CHECK(!mkdir(aside, 0777)); /* the name beside it is taken by a folder */
   CHECK(mod_save_file(o.model, &desc, path, &err) == MOD_RESULT_IO && exists(aside));
   rmdir(aside);
   struct rlimit limit, small;
   if (!getrlimit(RLIMIT_FSIZE, &limit)) {
      static const size_t sizes[] = {0, 1, 8, 512, 4096, 8192};
      void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
      fflush(stdout);
      for (size_t i = 0; i < 8; ++i) {
         mod_result result;
         size_t most = i < 6 ? sizes[i] : i == 6 ? whole.size - 1 : whole.size;
         small = limit;
         small.rlim_cur = most;
         if (setrlimit(RLIMIT_FSIZE, &small)) break;
         result = mod_save_file(o.model, &desc, path, &err);
         setrlimit(RLIMIT_FSIZE, &limit);
         now = slurp(path);
         if (most >= whole.size) {
            CHECK(result == MOD_RESULT_OK && equal(&now, &whole));
         } else {
            CHECKF(result == MOD_RESULT_IO && err.code == result && equal(&now, &was), "a disk of %d", (int)most);
            CHECK(is_sentence(err.message));
         }
         CHECK(!exists(aside));
         mem_reset(&now);
      }
      signal(SIGXFSZ, old);
   }
   remove(path);

   /* a path that with ".tmp" and its 0 fits 1,024 bytes, and one that does not */
   size_t n = strlen(folder);
   memcpy(longest, folder, n);
   while (n < 1000) {
      longest[n++] = '/';
      longest[n++] = '.';
   }
   longest[n++] = '/';
   while (n < 1019) longest[n++] = 'x';
   longest[n] = 0;
   CHECKF(mod_save_file(o.model, &desc, longest, &err) == MOD_RESULT_OK, "%s", err.message);
   now = slurp(longest);
   CHECK(equal(&now, &whole));
   mem_reset(&now);
   remove(longest);
   longest[n++] = 'x';
   longest[n] = 0;
   CHECK(mod_save_file(o.model, &desc, longest, &err) == MOD_RESULT_ARG && is_sentence(err.message));
   CHECK(!exists(longest));

   deep[strlen(deep) - 4] = 0;
   CHECK(!rmdir(deep) && !rmdir(folder)); /* nothing else is in it */
   mem_reset(&was);
   mem_reset(&whole);
   disown(&o);
   disown(&b);
}

#else

static void test_disk(void) { test_skip("files on disk", "no POSIX here"); }

#endif

/* -------------------------------------------------------------------------------------- 7. numbers of a tensor -- */

static void test_read(void)
{
   static const char header[] = "{\"a\":{" OF("F32", "2,2", 0, 16) "},\"b\":{" OF("F64", "3", 16, 40) "},\"c\":{"
      OF("F16", "2", 40, 44) "},\"d\":{" OF("I32", "1", 44, 48) "},\"e\":{" OF("F32", "0", 48, 48) "},\"f\":{"
      OF("BF16", "2", 48, 52) "},\"g\":{" OF("F32", "300", 52, 1252) "}}";
   static const unsigned char a[16] = {0, 0, 0x80, 0x3f, 1, 0, 0, 0, 0, 0, 0x80, 0xff, 0, 0, 0, 0x80};
   static const unsigned char b[24] = {0, 0, 0, 0, 0, 0, 0xf8, 0xbf, 0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f};
   mem m = {0};
   mod_real out[301], before[301];
   mem_text(&m, header, 1252);
   unsigned char *data = m.at + m.size - 1252;
   memcpy(data, a, 16);
   memcpy(data + 16, b, 24);
   for (int i = 0; i < 300; ++i) {
      float f = (float)(i * 0.5 - 7);
      uint32_t bits;
      memcpy(&bits, &f, 4);
      for (int k = 0; k < 4; ++k) data[52 + 4 * i + k] = (unsigned char)(bits >> (8 * k));
   }
   mod_file *file = (mod_file *)checked(open_mem(&m), "file");
   memset(out, 0x3c, sizeof out);
   memcpy(before, out, sizeof out);
   CHECK(mod_file_read(file, 0, out, 4, &err) == MOD_RESULT_OK && err.code == MOD_RESULT_OK);
   CHECK(out[0] == 1 && (float)out[1] == 1.401298464324817e-45f && out[2] < -3e38 && out[2] * 2 == out[2]);
   CHECK(out[3] == 0 && 1 / out[3] < 0 && out[4] == before[4]);
   CHECK(mod_file_read(file, 1, out, 3, &err) == MOD_RESULT_OK);
   CHECK(out[0] == -1.5 && out[1] == (mod_real)0.1 && out[2] == 0 && 1 / out[2] > 0 && out[4] == before[4]);
   CHECK(mod_file_read(file, 6, out, 300, &err) == MOD_RESULT_OK && out[300] == before[300]);
   for (int i = 0; i < 300; ++i) CHECK(out[i] == (mod_real)(i * 0.5 - 7));
   memcpy(out, before, sizeof out);
   CHECK(mod_file_read(file, 4, out, 0, &err) == MOD_RESULT_OK); /* nothing to read */
   for (int i = 2; i < 6; ++i) {
      if (i == 4) continue;
      CHECK(mod_file_read(file, i, out, i == 3 ? 1 : 2, &err) == MOD_RESULT_FORMAT && err.code == MOD_RESULT_FORMAT);
      CHECK(is_sentence(err.message) && strstr(err.message, "neither F32 nor F64"));
   }
   static const size_t wrong[] = {0, 3, 5, 8, 16, (size_t)-1, (size_t)-1 / 4 + 5};
   for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
      CHECK(mod_file_read(file, 0, out, wrong[i], &err) == MOD_RESULT_SHAPE && is_sentence(err.message));
   for (int i = -1; i < 8; i += 8) CHECK(mod_file_read(file, i, out, 1, &err) == MOD_RESULT_ARG);
   CHECK(!memcmp(out, before, sizeof out));
   mod_file_close(file);
   mem_reset(&m);
}

/* -------------------------------------------------------------------------------------------- 8. a checkpoint -- */

enum { C_VOCAB = 8, C_CONTEXT = 16, C_SEQS = 4, C_STEPS = 30 };

static void checkpoint_batch(int step, int *tokens, int *targets, mod_batch *batch)
{
   memset(batch, 0, sizeof *batch);
   for (int i = 0; i < C_SEQS * C_CONTEXT; ++i) { /* a sawtooth of a period that each sequence has for itself */
      int period = 3 + (step * C_SEQS + i / C_CONTEXT) % 5;
      tokens[i] = i % C_CONTEXT % period;
      targets[i] = (i % C_CONTEXT + 1) % period;
   }
   batch->n_seqs = C_SEQS;
   batch->length = C_CONTEXT;
   batch->tokens = tokens;
   batch->targets = targets;
}

/* Trains a small model, sets its thresholds, saves it with its trainer half way through the schedule. That of version 2
   has what is new in its format: a block with MoDE and token-choice, one with keys and values apart and experts that
   choose, dropout, warm-up of the capacity, moving thresholds. */
static mem make_checkpoint(int version)
{
   static const char *const meta[] = {"made-by", "test_file --make-checkpoint", "licence", "public domain or MIT"};
   int tokens[C_SEQS * C_CONTEXT], targets[C_SEQS * C_CONTEXT];
   mod_config cfg = {0};
   mod_train_desc how = {0};
   mod_tape_desc only = {0};
   mod_save_desc desc = {0};
   mod_batch batch;
   size_t bytes = 0;
   cfg.vocab_size = C_VOCAB;
   cfg.context = C_CONTEXT;
   cfg.n_layers = 2;
   cfg.d_model = 8;
   cfg.d_ff = 8;
   cfg.n_heads = 2;
   cfg.capacity = 0.25;
   how.n_seqs = C_SEQS;
   how.steps = 2 * C_STEPS;
   how.warmup = 5;
   how.lr = 2e-2;
   how.weight_decay = 0.01;
   how.clip_norm = 1;
   how.seed = 11;
   if (version == 2) {
      static const mod_block_config blocks[2] = {
         {.mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_TOKEN, .capacity = 0.75},
         {.kv_select = MOD_SELECT_LEARNED, .kv_capacity = 0.5, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT}};
      cfg.blocks = blocks;
      cfg.d_ff = 4;
      cfg.capacity = 0.5;
      cfg.n_experts = 2;
      cfg.n_noops = 1;
      cfg.capacity_factor = 1.5;
      how.dropout = 0.1;
      how.capacity_warmup = 10;
      how.threshold_decay = 0.9;
   }
   owned o = own(&cfg, &how);
   CHECK(flat_randomize(o.model, 2024, 0.02, NULL) == MOD_RESULT_OK);
   for (int step = 0; step < C_STEPS; ++step) {
      checkpoint_batch(step, tokens, targets, &batch);
      CHECK(mod_train_step(o.trainer, &batch, NULL, &err) == MOD_RESULT_OK);
   }
   if (version == 1) {
      only.forward_only = 1;
      CHECK(mod_forward_plan(&cfg, &batch, &only, &bytes, &err) == MOD_RESULT_OK);
      mod_tape *tape = (mod_tape *)checked(mod_tape_create(&only, bytes, NULL, &err), "tape");
      CHECK(mod_model_calibrate(o.model, tape, &batch, &err) == MOD_RESULT_OK);
      mod_tape_destroy(tape);
   }
   desc.n_meta = 2;
   desc.meta = meta;
   desc.trainer = o.trainer;
   desc.position = C_STEPS;
   mem m = saved(o.model, &desc);
   disown(&o);
   return m;
}

/* Logits in causal mode over fixed tokens. */
static uint64_t causal_hash(const mod_model *model, int *routed, int *dropped)
{
   static int tokens[C_CONTEXT];
   static mod_real logits[C_CONTEXT * C_VOCAB];
   mod_config cfg = mod_model_config(model);
   mod_tape_desc only = {0};
   mod_batch batch = {0};
   mod_forward out;
   size_t bytes = 0;
   float x[C_CONTEXT * C_VOCAB];
   for (int i = 0; i < C_CONTEXT; ++i) tokens[i] = (i * i + i / 5) % C_VOCAB;
   only.forward_only = 1;
   batch.n_seqs = 1;
   batch.length = C_CONTEXT;
   batch.tokens = tokens;
   batch.mode = MOD_MODE_CAUSAL;
   CHECK(mod_forward_plan(&cfg, &batch, &only, &bytes, &err) == MOD_RESULT_OK);
   mod_tape *tape = (mod_tape *)checked(mod_tape_create(&only, bytes, NULL, &err), "tape");
   CHECK(mod_model_forward(model, tape, NULL, &batch, &out, &err) == MOD_RESULT_OK);
   CHECK(mod_forward_logits(&out, &batch, logits, &err) == MOD_RESULT_OK);
   *routed = (int)out.blocks[1].kept;
   *dropped = (int)out.blocks[0].dropped;
   mod_tape_destroy(tape);
   for (int i = 0; i < C_CONTEXT * C_VOCAB; ++i) x[i] = (float)logits[i];
   return test_hash_f32(x, C_CONTEXT * C_VOCAB);
}

/* Five more steps; then a hash of all weights. */
static uint64_t resumed_hash(const owned *o)
{
   int tokens[C_SEQS * C_CONTEXT], targets[C_SEQS * C_CONTEXT];
   mod_batch batch;
   size_t n;
   for (int step = C_STEPS; step < C_STEPS + 5; ++step) {
      checkpoint_batch(step, tokens, targets, &batch);
      CHECK(mod_train_step(o->trainer, &batch, NULL, &err) == MOD_RESULT_OK);
   }
   const mod_real *weights = mod_model_params(o->model, &n);
   return test_hash_f32((const float *)(const void *)weights, n);
}

static owned loaded(const mod_file *file)
{
   mod_config cfg;
   mod_train_desc how;
   uint64_t position = 0;
   CHECKF(mod_file_config(file, &cfg, &err) == MOD_RESULT_OK, "%s", err.message);
   CHECK(cfg.vocab_size == C_VOCAB && cfg.n_layers == 2);
   CHECK(mod_file_train_desc(file, &how, &position, &err) == MOD_RESULT_OK && position == C_STEPS && how.seed == 11);
   owned o = own(&cfg, &how);
   CHECKF(mod_file_load(file, o.model, o.trainer, &err) == MOD_RESULT_OK, "%s", err.message);
   return o;
}

static void test_checkpoint(int version)
{
   static const uint64_t hashes[2][2] = {{HASH_CHECKPOINT_LOGITS, HASH_CHECKPOINT_RESUMED},
                                         {HASH_CHECKPOINT_2_LOGITS, HASH_CHECKPOINT_2_RESUMED}};
   char paths[2][60], piece[4096];
   const char *path = paths[0];
   uint64_t hash;
   int routed = 0, dropped = 0;
   size_t got;
   mem on_disk = {0};
   for (int i = 0; i < 2; ++i) snprintf(paths[i], 60, "%scheckpoint-v%d.safetensors", i ? "" : "tests/", version);
   FILE *there = fopen(path, "rb");
   if (!there) there = fopen(path = paths[1], "rb");
   CHECKF(there != NULL, "%s is needed: run from the top folder or from tests/", paths[0]);
   if (!there) return;
   while ((got = fread(piece, 1, sizeof piece, there)) > 0) mem_write(piece, got, &on_disk);
   fclose(there);
   mod_file *file = (mod_file *)checked(mod_file_open(path, NULL, &err), "checkpoint");
   CHECK(!strcmp(mod_file_meta(file, "mod.format"), version == 1 ? "1" : "2"));
   CHECK(!strcmp(mod_file_meta(file, "licence"), "public domain or MIT"));
   owned o = loaded(file);
   mod_config cfg = mod_model_config(o.model);
   CHECK(version == 1 ? cfg.capacity == 0.25 && cfg.mask == 0 && cfg.mlp == MOD_MLP_PLAIN && mod_config_paths(&cfg) == 1
                      : cfg.capacity == 0.5 && cfg.blocks[0].mlp == MOD_MLP_MODE && mod_config_paths(&cfg) == 4);
   CHECK(on_disk.size <= (version == 1 ? 20480 : 30720));
   hash = causal_hash(o.model, &routed, &dropped);
   CHECKF(routed > 0 && routed < C_CONTEXT, "%d tokens entered", routed);
   CHECKF(version == 1 || (dropped > 0 && dropped < C_CONTEXT), "%d tokens were dropped", dropped);
   if (sizeof(mod_real) != 4 || !strstr(mod_build_info(), "same bits: promised")) {
      test_skip("the checkpoint's bits", mod_build_info());
   } else {
      const uint64_t *wanted = hashes[version - 1];
      mem made = make_checkpoint(version), resaved = {0}, anew = {0};
      mod_file *now = (mod_file *)checked(open_mem(&made), "the checkpoint, made again");
      owned b = loaded(now);
      int count, made_count;
      /* What this build makes is what is in the file: its config, every tensor, thresholds and state of training. */
      const mod_entry *e = mod_file_tensors(file, &count), *f = mod_file_tensors(now, &made_count);
      CHECK(count == made_count && count == 3 * mod_model_param_count(o.model));
      for (int i = 0; i < count && count == made_count; ++i) {
         size_t n = (size_t)(e[i].end - e[i].begin);
         CHECKF(!strcmp(e[i].name, f[i].name) && f[i].end - f[i].begin == n &&
                   !memcmp(on_disk.at + e[i].begin, made.at + f[i].begin, n), "%s", e[i].name);
      }
      CHECK(same_config(cfg, mod_model_config(b.model)));
      resaved = saved_with(o.model, o.trainer, C_STEPS);
      anew = saved_with(b.model, b.trainer, C_STEPS);
      CHECK(equal(&resaved, &anew));
      if (version == 2) CHECK(equal(&made, &on_disk));
      CHECKF(hash == wanted[0], "0x%016llx", (unsigned long long)hash);
      hash = causal_hash(b.model, &routed, &dropped);
      CHECKF(hash == wanted[0], "0x%016llx", (unsigned long long)hash);
      hash = resumed_hash(&o); /* and training goes on as it would have */
      CHECKF(hash == wanted[1], "0x%016llx", (unsigned long long)hash);
      hash = resumed_hash(&b);
      CHECKF(hash == wanted[1], "0x%016llx", (unsigned long long)hash);
      mod_file_close(now);
      mem_reset(&made);
      mem_reset(&resaved);
      mem_reset(&anew);
      disown(&b);
   }
   mod_file_close(file);
   mem_reset(&on_disk);
   disown(&o);
}

static int write_checkpoint(const char *path)
{
   mem m = make_checkpoint(2);
   mod_file *made = (mod_file *)checked(open_mem(&m), "the checkpoint");
   owned o = loaded(made);
   int routed, dropped;
   FILE *file = fopen(path, "wb");
   int ok = file && fwrite(m.at, 1, m.size, file) == m.size && m.size <= 30720 && !test_failed;
   if (file && fclose(file)) ok = 0;
   printf("%s: %d bytes%s\n", path, (int)m.size, ok ? "" : ": failed");
   printf("#define HASH_CHECKPOINT_2_LOGITS 0x%016llxull\n",
          (unsigned long long)causal_hash(o.model, &routed, &dropped));
   printf("#define HASH_CHECKPOINT_2_RESUMED 0x%016llxull\n", (unsigned long long)resumed_hash(&o));
   printf("%d of %d tokens entered, %d were dropped\n", routed, C_CONTEXT, dropped);
   mod_file_close(made);
   mem_reset(&m);
   disown(&o);
   return !ok;
}

/* ------------------------------------------------------------------------------------------- files by others -- */

static void test_others(void)
{
   const char *data = getenv("DATA");
#if HAVE_POSIX
   char path[1400], line[300], name[200], verdict[20];
   long size;
   int seen = 0;
   if (!data || !*data) {
      test_skip("files by others", "DATA names no folder");
      return;
   }
   snprintf(path, sizeof path, "%.900s/safetensors", data);
   DIR *folder = opendir(path);
   if (!folder) {
      test_skip("files by others", "there is no safetensors folder in DATA");
      return;
   }
   for (struct dirent *d; (d = readdir(folder)) != NULL;) {
      size_t n = strlen(d->d_name);
      if (n < 12 || strcmp(d->d_name + n - 12, ".safetensors")) continue;
      snprintf(path, sizeof path, "%.900s/safetensors/%.300s", data, d->d_name);
      mod_file *file = mod_file_open(path, NULL, &err);
      CHECKF(!file == !!strstr(d->d_name, "abuse"), "%.80s: %.99s", d->d_name, err.message);
      if (!file) CHECK(err.code == MOD_RESULT_FORMAT && is_sentence(err.message));
      int count = 0;
      const mod_entry *e = mod_file_tensors(file, &count);
      CHECK(!file || count > 0);
      for (int i = 0; i < count; ++i) {
         int real = !strcmp(e[i].dtype, "F32") || !strcmp(e[i].dtype, "F64");
         size_t numbers = (size_t)(e[i].end - e[i].begin) / (e[i].dtype[1] == '6' ? 8 : 4);
         mod_real *x = (mod_real *)checked(malloc(numbers * sizeof *x + 1), "malloc");
         CHECK(mod_file_read(file, i, x, numbers, &err) == (real ? MOD_RESULT_OK : MOD_RESULT_FORMAT));
         free(x);
      }
      mod_file_close(file);
      ++seen;
   }
   closedir(folder);
   CHECKF(seen > 0, "no file in DATA/safetensors");
   snprintf(path, sizeof path, "%.900s/safetensors/reference-verdicts/EXPECTED.tsv", data);
   FILE *list = fopen(path, "r");
   if (!list) {
      test_skip("the reference's verdicts", "there is no reference-verdicts/EXPECTED.tsv");
      return;
   }
   for (seen = 0; fgets(line, sizeof line, list); ++seen) {
      if (sscanf(line, "%199s %ld %19s", name, &size, verdict) != 3) continue;
      snprintf(path, sizeof path, "%.900s/safetensors/reference-verdicts/%s", data, name);
      mod_file *file = mod_file_open(path, NULL, &err);
      CHECKF(!file == !!strcmp(verdict, "OK"), "%.80s: %.99s", line, err.message);
      if (!file) CHECKF(err.code == MOD_RESULT_FORMAT && is_sentence(err.message), "%.80s: %.99s", line, err.message);
      mod_file_close(file);
   }
   fclose(list);
   CHECK(seen > 0);
#else
   test_skip("files by others", data ? "no POSIX here" : "DATA names no folder");
#endif
}

int main(int argc, char **argv)
{
   if (argc == 3 && !strcmp(argv[1], "--make-checkpoint")) return write_checkpoint(argv[2]);
   test_round_trip();
   test_bytes();
   test_resume();
   test_truncated();
   test_every_byte();
   test_headers();
   test_edits();
   test_formats();
   test_faults();
   test_memory();
   test_disk();
   test_read();
   for (int version = 1; version <= 2; ++version) test_checkpoint(version);
   test_others();
   return test_end();
}
