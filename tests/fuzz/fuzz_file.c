/* fuzz_file.c - bytes as a safetensors file: opened, walked, read, loaded into a model and a trainer, saved again.

   libFuzzer, with a mutator that keeps the header's length true, without which no mutation gets far:
      clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all tests/fuzz/fuzz_file.c -o fuzz_file -lm
      ./fuzz_file -max_len=20000 -dict=tests/fuzz/file.dict CORPUS tests/fuzz/seeds/file
   AFL++ (afl-clang-fast -fsanitize=fuzzer ...) builds the same file.
   Without either, as a program that runs files, and with --seeds writes those of tests/fuzz/seeds/file:
      cc -g -DMOD_FUZZ_MAIN tests/fuzz/fuzz_file.c -o replay -lm
      ./replay FILE...          ./replay --seeds FOLDER */
#include <stdio.h>
#include <stdlib.h>
#define MOD_ASSERT(condition) MUST(condition)
/* What must hold of any input. */
#define MUST(condition)                                                               \
   do {                                                                               \
      if (!(condition)) {                                                             \
         fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
         abort();                                                                     \
      }                                                                               \
   } while (0)
#define MOD_IMPLEMENTATION
#include "../../mod.h"

enum { MAX_PLAN = 64 << 20, MAX_OBJECT = 1 << 20, MAX_READ = 4096, MAX_ROWS = 64, MAX_LAYERS = 16 };

/* --------------------------------------------------------------------------------------------- bytes in memory -- */

typedef struct bytes {
   unsigned char *at;
   size_t size, room;
} bytes;

static size_t read_bytes(uint64_t offset, void *to, size_t size, void *user)
{
   const bytes *b = (const bytes *)user;
   MUST(offset <= b->size && size <= b->size - offset); /* the library never asks for what is not there */
   memcpy(to, b->at + offset, size);
   return size;
}

static size_t write_bytes(const void *from, size_t size, void *user)
{
   bytes *b = (bytes *)user;
   if (b->size + size > b->room) {
      b->room = 2 * (b->size + size);
      b->at = (unsigned char *)realloc(b->at, b->room);
      MUST(b->at != NULL);
   }
   memcpy(b->at + b->size, from, size);
   b->size += size;
   return size;
}

static void *take(size_t size, void *user)
{
   ++*(int *)user;
   return malloc(size);
}
static void give(void *memory, void *user)
{
   --*(int *)user;
   free(memory);
}

static int says(const mod_error *err) { return err->code < 0 && err->message && strlen(err->message) > 8; }

static void *copy_of(const void *from, size_t size)
{
   void *copy = malloc(size ? size : 1);
   MUST(copy != NULL);
   memcpy(copy, from, size);
   return copy;
}

/* ---------------------------------------------------------------------------------------------- one file's life -- */

static void walk(const mod_file *file, uint64_t size)
{
   int count = -1, i, k;
   uint64_t begin = size, sum = 0;
   const mod_entry *e = mod_file_tensors(file, &count);
   mod_error err;
   MUST(e && count >= 0);
   for (i = 0; i < count; ++i) {
      uint64_t width = mod__dtype_size(e[i].dtype), n = 1;
      int real = !strcmp(e[i].dtype, "F32") || !strcmp(e[i].dtype, "F64");
      MUST(e[i].name && width && e[i].n_dim >= 0 && e[i].n_dim <= MOD_ENTRY_MAX_DIM);
      MUST(mod__utf8(e[i].name, strlen(e[i].name)));
      MUST(i == 0 || strcmp(e[i - 1].name, e[i].name) < 0); /* in order, so no name twice */
      MUST(e[i].begin >= 8 && e[i].begin <= e[i].end && e[i].end <= size);
      if (e[i].begin < begin) begin = e[i].begin;
      sum += e[i].end - e[i].begin;
      for (k = 0; k < e[i].n_dim; ++k) n *= e[i].dim[k];
      MUST(n * width == e[i].end - e[i].begin);
      if (count <= 400) /* no overlap */
         for (k = 0; k < i; ++k) MUST(e[i].end <= e[k].begin || e[k].end <= e[i].begin);
      if (n <= MAX_READ) {
         mod_real *x = (mod_real *)malloc((size_t)n * sizeof *x + 1); /* + 1: malloc(0) may be NULL */
         MUST(x != NULL);
         MUST(mod_file_read(file, i, x, (size_t)n, &err) == (real ? MOD_RESULT_OK : MOD_RESULT_FORMAT));
         if (real) MUST(mod_file_read(file, i, x, (size_t)n + 1, &err) == MOD_RESULT_SHAPE && says(&err));
         free(x);
      }
   }
   if (count) MUST(begin + sum == size); /* and no hole */
   mod_file_meta(file, "");
   mod_file_meta(file, "format");
   if (mod_file_meta(file, "mod.format")) MUST(mod_file_meta(file, "mod.format") == mod_file_meta(file, "mod.format"));
}

/* What was loaded, saved and loaded again, is the same bytes once more. */
static void save_twice(const mod_model *model, const mod_trainer *trainer, uint64_t position)
{
   bytes once = {NULL, 0, 0}, again = {NULL, 0, 0};
   mod_writer writer = {write_bytes, &once};
   mod_reader reader;
   mod_save_desc desc;
   mod_config cfg;
   mod_train_desc how;
   mod_error err;
   memset(&desc, 0, sizeof desc);
   desc.trainer = trainer;
   desc.position = position;
   MUST(mod_save(model, &desc, &writer, &err) == MOD_RESULT_OK);
   reader.size = once.size;
   reader.read = read_bytes;
   reader.user = &once;
   mod_file *file = mod_file_create(&reader, NULL, &err);
   MUST(file && mod_file_config(file, &cfg, &err) == MOD_RESULT_OK);
   mod_model *copy = mod_model_create(&cfg, NULL, &err);
   mod_trainer *other = NULL;
   MUST(copy != NULL);
   if (trainer) {
      MUST(mod_file_train_desc(file, &how, &desc.position, &err) == MOD_RESULT_OK && desc.position == position);
      other = mod_trainer_create(copy, &how, NULL, &err);
      MUST(other != NULL);
   }
   MUST(mod_file_load(file, copy, other, &err) == MOD_RESULT_OK);
   mod_file_close(file);
   writer.user = &again;
   desc.trainer = other;
   MUST(mod_save(copy, &desc, &writer, &err) == MOD_RESULT_OK);
   MUST(once.size == again.size && !memcmp(once.at, again.at, once.size));
   mod_trainer_destroy(other);
   mod_model_destroy(copy);
   free(once.at);
   free(again.at);
}

/* Loads; a failure must leave every byte of model and trainer as it was. */
static mod_result load(const mod_file *file, mod_model *model, size_t model_size, mod_trainer *trainer,
                       size_t trainer_size)
{
   mod_error err;
   void *model_was = copy_of(model, model_size), *trainer_was = trainer ? copy_of(trainer, trainer_size) : NULL;
   mod_result result = mod_file_load(file, model, trainer, &err);
   if (result != MOD_RESULT_OK) {
      MUST(says(&err) && err.code == result);
      MUST(!memcmp(model, model_was, model_size));
      if (trainer) MUST(!memcmp(trainer, trainer_was, trainer_size));
   }
   free(model_was);
   free(trainer_was);
   return result;
}

static void use(const mod_file *file)
{
   mod_config cfg;
   mod_train_desc how;
   mod_plan plan;
   mod_error err;
   uint64_t position = 0;
   size_t n, i;
   mod_result got, trained;
   memset(&how, 0, sizeof how);
   got = mod_file_config(file, &cfg, &err);
   if (got != MOD_RESULT_OK) MUST(says(&err));
   trained = mod_file_train_desc(file, &how, &position, &err);
   if (trained != MOD_RESULT_OK) MUST(says(&err));
   if (got != MOD_RESULT_OK) return;
   MUST(mod_config_check(&cfg, NULL) == MOD_RESULT_OK);
   MUST(mod_model_plan(&cfg, NULL, &plan, &err) == MOD_RESULT_OK);
   if (plan.model > MAX_OBJECT || cfg.n_layers > MAX_LAYERS) return;
   mod_model *model = mod_model_create(&cfg, NULL, &err);
   MUST(model != NULL);
   mod_real *x = mod_model_params(model, &n);
   for (i = 0; i < n; ++i) x[i] = (mod_real)((double)(i % 61) * 0.125 - 3);
   if (load(file, model, plan.model, NULL, 0) == MOD_RESULT_OK) save_twice(model, NULL, 0);
   if (trained == MOD_RESULT_OK && mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_OK &&
       plan.trainer <= MAX_OBJECT) {
      mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
      MUST(trainer != NULL);
      if (load(file, model, plan.model, trainer, plan.trainer) == MOD_RESULT_OK) {
         int tokens[MAX_ROWS] = {0};
         mod_batch batch;
         memset(&batch, 0, sizeof batch);
         save_twice(model, trainer, position);
         how = mod_train_resolve(&how, &cfg);
         batch.n_seqs = 1;
         batch.length = how.length < MAX_ROWS ? how.length : MAX_ROWS;
         batch.tokens = batch.targets = tokens;
         mod_train_step(trainer, &batch, NULL, &err);
      }
      mod_trainer_destroy(trainer);
   }
   mod_model_destroy(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
   bytes input = {NULL, 0, 0};
   mod_reader reader;
   mod_error err;
   size_t planned = 0;
   int live = 0;
   mod_allocator allocator = {take, give, NULL};
   input.at = (unsigned char *)copy_of(data, size);
   input.size = size;
   reader.size = size;
   reader.read = read_bytes;
   reader.user = &input;
   allocator.user = &live;
   if (mod_file_plan(&reader, &planned, &err) != MOD_RESULT_OK) {
      MUST(says(&err));
   } else if (planned <= MAX_PLAN) {
      mod_file *file = mod_file_create(&reader, &allocator, &err);
      MUST(live == (file != NULL));
      if (file) {
         void *memory = malloc(planned);
         MUST(memory && !mod_file_init(&reader, memory, planned - 1, &err) && err.code == MOD_RESULT_MEMORY);
         free(memory);
         walk(file, size);
         use(file);
         mod_file_close(file);
      } else {
         MUST(says(&err));
      }
      MUST(live == 0);
   }
   free(input.at);
   return 0;
}

#ifndef MOD_FUZZ_MAIN

/* Mutates the header's text, or what follows it, or all; for the first two the length is made true. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
   uint64_t header = 0;
   size_t i, part, rest;
   if (size < 9 || max_size < size || seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
   for (i = 0; i < 8; ++i) header |= (uint64_t)data[i] << (8 * i);
   if (header > size - 8) header = size - 8;
   rest = size - 8 - (size_t)header;
   if (seed % 8 == 1 && rest) {
      part = 8 + (size_t)header;
      return part + LLVMFuzzerMutate(data + part, rest, max_size - part);
   }
   uint8_t *tail = (uint8_t *)copy_of(data + 8 + header, rest);
   part = LLVMFuzzerMutate(data + 8, (size_t)header, max_size - 8 - rest);
   memcpy(data + 8 + part, tail, rest);
   free(tail);
   for (i = 0; i < 8; ++i) data[i] = (uint8_t)((uint64_t)part >> (8 * i));
   return 8 + part + rest;
}

#else

static int store(const char *folder, const char *name, const void *from, size_t size)
{
   char path[1000];
   snprintf(path, sizeof path, "%s/%s", folder, name);
   FILE *file = fopen(path, "wb");
   int ok = file && fwrite(from, 1, size, file) == size;
   if (file && fclose(file)) ok = 0;
   if (!ok) fprintf(stderr, "cannot write %s\n", path);
   return ok;
}

/* A file of this header and of `data` bytes 0, 1, 2, ... */
static int store_text(const char *folder, const char *name, const char *header, size_t data)
{
   unsigned char all[4096] = {0};
   size_t n = strlen(header), i;
   MUST(8 + n + data <= sizeof all);
   for (i = 0; i < 8; ++i) all[i] = (unsigned char)((uint64_t)n >> (8 * i));
   memcpy(all + 8, header, n);
   for (i = 0; i < data; ++i) all[8 + n + i] = (unsigned char)i;
   return store(folder, name, all, 8 + n + data);
}

static int store_model(const char *folder, const char *name, int layers, int with_trainer)
{
   static const char *const meta[] = {"format", "pt", "", "\xc3\xa9 \"\\\n"};
   static const int tokens[] = {0, 1, 2, 0, 2, 1, 0, 1}, targets[] = {1, 2, 0, -1, 1, 0, 1, 2};
   bytes out = {NULL, 0, 0};
   mod_writer writer = {write_bytes, &out};
   mod_config cfg;
   mod_train_desc how;
   mod_save_desc desc;
   mod_batch batch;
   int ok, i;
   memset(&cfg, 0, sizeof cfg);
   memset(&how, 0, sizeof how);
   memset(&desc, 0, sizeof desc);
   memset(&batch, 0, sizeof batch);
   cfg.vocab_size = 3;
   cfg.context = 4;
   cfg.n_layers = layers;
   cfg.d_model = 2;
   cfg.d_ff = 2;
   cfg.n_heads = 1;
   how.n_seqs = 2;
   how.steps = 10;
   how.warmup = 2;
   how.clip_norm = 1;
   batch.n_seqs = 2;
   batch.length = 4;
   batch.tokens = tokens;
   batch.targets = targets;
   mod_model *model = mod_model_create(&cfg, NULL, NULL);
   mod_trainer *trainer = model ? mod_trainer_create(model, &how, NULL, NULL) : NULL;
   MUST(trainer && mod_model_randomize(model, 1, NULL) == MOD_RESULT_OK);
   for (i = 0; i < 3; ++i) MUST(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
   desc.n_meta = with_trainer ? 0 : 2;
   desc.meta = meta;
   desc.trainer = with_trainer ? trainer : NULL;
   desc.position = 7;
   MUST(mod_save(model, &desc, &writer, NULL) == MOD_RESULT_OK);
   ok = store(folder, name, out.at, out.size);
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   free(out.at);
   return ok;
}

static int seeds(const char *folder)
{
   return store_model(folder, "model.safetensors", 2, 0) && store_model(folder, "trained.safetensors", 2, 1) &&
          store_text(folder, "empty.safetensors", "{}", 0) &&
          store_text(folder, "null-metadata.safetensors",
                     "{\"__metadata__\":null,\"s\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1) &&
          store_text(folder, "odd.safetensors",
                     " {\"b\\u00e9\\ud83d\\ude00\" : {\"data_offsets\":[0,16],\"x\":[{\"y\":[-1.5e3,true,\"\\n\"]},"
                     "null],\n\"shape\":[2,1,2],\"dtype\":\"F32\"},\"a\":{\"shape\":[0,9],\"dtype\":\"BF16\","
                     "\"data_offsets\":[16,16]},\"__metadata__\":{\"\\\"k\\\\\":\"\\t\",\"\":\"\"},"
                     "\"c\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[16,24]}} ", 24);
}

int main(int argc, char **argv)
{
   int i;
   if (argc == 3 && !strcmp(argv[1], "--seeds")) return !seeds(argv[2]);
   for (i = 1; i < argc; ++i) {
      FILE *file = fopen(argv[i], "rb");
      bytes all = {NULL, 0, 0};
      char piece[4096];
      size_t n;
      if (!file) {
         fprintf(stderr, "cannot open %s\n", argv[i]);
         return 1;
      }
      while ((n = fread(piece, 1, sizeof piece, file)) > 0) write_bytes(piece, n, &all);
      fclose(file);
      LLVMFuzzerTestOneInput(all.at ? all.at : (const uint8_t *)"", all.size);
      free(all.at);
   }
   printf("%d files, nothing wrong\n", argc - 1);
   return argc < 2;
}

#endif
