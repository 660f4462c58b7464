/* variants.h - what the programs of this folder share: text, parameters, building blocks, training, the table's line

   Each program is one way of spending less on some tokens than on others, written with the public ops of mod.h. Such
   a variant is a function that is given tokens and gives logits:

      static mod_tensor *forward(net *n)
      {
         mod_tensor *x = embed(n);
         for (int l = 0; l < n->layers; ++l) x = mod_add(n->tape, x, block(n, l, x, n->rows));
         return head(n, x);
      }
      int main(int argc, char **argv)
      {
         static const variant dense = {"dense", "yes", forward};
         return variant_main(&dense, argc, argv);
      }

   It reads n->training. 1: it learns, may look at later tokens, and adds what it wants to be small with add_loss. 0:
   what becomes of a token may depend on that token and on earlier ones only; what a row costs is counted in this
   mode.

   variant_main runs it first on a measuring tape: there weight() notes which parameters there are, and the tape how
   much memory is needed. Then it trains, evaluates on held-out text, checks that no logit depends on a later token
   (if one does, the exit status is 1), and prints a line. Text, batches, steps and width are the same for all; all
   but the speed is the same in every run, for any number of threads.

   To build one: cc -O2 exit.c library.c -lm; library.c is mod.h's implementation. C99. */
#ifndef VARIANTS_H
#define VARIANTS_H

#include "../common/text.h" /* first: it asks the system for more than C99 */
#include "../../mod.h"
#include "../common/map.h"
#include "../common/options.h"
#include <math.h>
#include <time.h>

enum { MAX_PARAMS = 256, MAX_LAYERS = 8, MAP_TOKENS = 36, TEXT_BYTES = 1 << 20 };
static const double INIT = 0.02; /* deviation of initial weights */

/* A matrix of the flat buffer. Its name and layer are its key: who asks for the same gets the same. */
typedef struct param {
   const char *name;
   int layer, rows, columns;
   double mean, deviation; /* of the initial numbers */
   size_t at;
} param;

typedef struct net {
   int layers, width, heads, length, seqs, steps, threads; /* the setting, the same for all variants */
   int vocab;                                     /* the text's largest byte + 1 */
   /* What forward works with: */
   mod_tape *tape;
   mod_rows *rows;      /* of the batch: made by embed */
   mod_tensor *rope;    /* the same */
   const int *tokens, *targets; /* [seqs, length] */
   int training;        /* see above */
   int measuring;       /* no tensor has data */
   double progress;     /* share of the training that is done */
   mod_tensor *loss;    /* what forward added to the loss */
   int complete;        /* 1: and that is all of it, cross-entropy included */
   /* Parameters, their gradient, AdamW's moments; [n_numbers] each: */
   param params[MAX_PARAMS];
   int n_params;
   size_t n_numbers;
   mod_real *numbers, *gradient, *moment1, *moment2;
   mod_model *model;       /* of the variants that are mod_models */
   size_t bytes;           /* of the tape */
   unsigned char *entered; /* NULL, or [layers, length]: what `took` notes */
} net;

static inline void need(int ok, const char *what)
{
   if (ok) return;
   fprintf(stderr, "%s\n", what);
   exit(1);
}
/* message: of the error that the call has filled. Its address, for C may read the message before it makes the call. */
static inline void must(int ok, const char *const *message) { if (!ok) need(0, *message); }

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The matrix of this name in this layer. Initial numbers are normal. */
static inline mod_tensor *weight(net *n, const char *name, int layer, int rows, int columns, double mean,
                                 double deviation)
{
   static mod_real mark; /* stands for a gradient while measuring */
   int i = 0, dim[2] = {rows, columns};
   while (i < n->n_params && (n->params[i].layer != layer || strcmp(n->params[i].name, name) != 0)) ++i;
   if (i == n->n_params) {
      param p = {name, layer, rows, columns, mean, deviation, n->n_numbers};
      need(n->measuring && i < MAX_PARAMS, "a parameter that was not there while measuring, or too many");
      n->params[n->n_params++] = p;
      n->n_numbers += (size_t)rows * (size_t)columns;
   }
   need(n->params[i].rows == rows && n->params[i].columns == columns, "two parameters of one name");
   if (n->measuring) return mod_leaf(n->tape, NULL, n->training ? &mark : NULL, 2, dim);
   size_t at = n->params[i].at;
   return mod_leaf(n->tape, n->numbers + at, n->training ? n->gradient + at : NULL, 2, dim);
}

static inline mod_tensor *linear(net *n, const char *name, int layer, mod_tensor *x, int columns, double deviation)
{
   return x ? mod_matmul(n->tape, x, weight(n, name, layer, x->dim[1], columns, 0, deviation)) : NULL;
}

/* One number, added to all of x. */
static inline mod_tensor *bias(net *n, const char *name, int layer, mod_tensor *x, double initially)
{
   return mod_add(n->tape, x, weight(n, name, layer, 1, 1, initially, 0));
}

static inline mod_tensor *norm(net *n, const char *name, int layer, mod_tensor *x)
{
   int columns = n->width;
   return mod_rmsnorm(n->tape, x, mod_reshape(n->tape, weight(n, name, layer, 1, columns, 1, 0), 1, &columns), 1e-5);
}

/* ---- building blocks: of a transformer --------------------------------------------------------------------------- */

static inline mod_tensor *embed(net *n)
{
   n->rows = mod_rows_make(n->tape, n->seqs, n->length, NULL);
   n->rope = mod_rope_table(n->tape, 0, n->length, n->width / n->heads, 10000);
   return mod_embedding(n->tape, weight(n, "embed", 0, n->vocab, n->width, 0, INIT), n->tokens, n->seqs * n->length);
}

/* The logits, with the embedding as the last matrix too. */
static inline mod_tensor *head(net *n, mod_tensor *x)
{
   return mod_matmul_nt(n->tape, norm(n, "norm", 0, x), weight(n, "embed", 0, n->vocab, n->width, 0, INIT));
}

/* Of what is added to the stream: less the deeper the model. */
static inline double init_out(const net *n) { return INIT / sqrt(2.0 * n->layers); }

typedef struct cache { /* keys and values, and whose they are */
   mod_tensor *k, *v;
   const mod_rows *rows;
} cache;

/* u: a norm of the stream. */
static inline cache keys(net *n, int layer, mod_tensor *u, const mod_rows *rows, int heads)
{
   int columns = n->width / n->heads * heads;
   cache c = {mod_rope(n->tape, linear(n, "k", layer, u, columns, INIT), rows, n->rope),
              linear(n, "v", layer, u, columns, INIT), rows};
   return c;
}
static inline mod_tensor *attend_to(net *n, int layer, mod_tensor *u, const mod_rows *rows, cache c, int heads)
{
   int columns = n->width / n->heads * heads;
   mod_tensor *q = mod_rope(n->tape, linear(n, "q", layer, u, columns, INIT), rows, n->rope);
   return linear(n, "o", layer, mod_attention(n->tape, q, c.k, c.v, rows, c.rows, heads, heads, MOD_MASK_CAUSAL),
                 n->width, init_out(n));
}

/* Attention of the rows among themselves: what it adds to x. */
static inline mod_tensor *attend(net *n, int layer, mod_tensor *x, const mod_rows *rows)
{
   mod_tensor *u = norm(n, "attention norm", layer, x);
   return attend_to(n, layer, u, rows, keys(n, layer, u, rows, n->heads), n->heads);
}

static inline mod_tensor *mlp(net *n, int layer, mod_tensor *x, int hidden)
{
   mod_tensor *u = linear(n, "up", layer, norm(n, "mlp norm", layer, x), hidden, INIT);
   return linear(n, "down", layer, mod_gelu(n->tape, u), n->width, init_out(n));
}

/* Attention h, then the MLP of x + h: what both add to x. */
static inline mod_tensor *block(net *n, int layer, mod_tensor *x, const mod_rows *rows)
{
   mod_tensor *h = attend(n, layer, x, rows);
   return mod_add(n->tape, h, mlp(n, layer, mod_add(n->tape, x, h), 4 * n->width));
}

/* ---- building blocks: of routing --------------------------------------------------------------------------------- */

static inline void add_loss(net *n, mod_tensor *loss, double factor)
{
   loss = mod_scale(n->tape, loss, factor);
   n->loss = n->loss ? mod_add(n->tape, n->loss, loss) : loss;
}

/* These rows went through this layer: for the map. */
static inline void took(net *n, int layer, const mod_rows *rows)
{
   if (!n->entered || !rows) return;
   for (int i = rows->start[0]; i < rows->start[1]; ++i) n->entered[layer * n->length + rows->position[i]] = 1;
}

/* Numbers that nobody learns: all 0, or all 1. */
static inline void zeros_forward(mod_tape *tape, mod_tensor *y)
{
   (void)tape;
   memset(y->data, 0, (size_t)y->dim[0] * (size_t)y->dim[1] * sizeof *y->data);
}
static inline void ones_forward(mod_tape *tape, mod_tensor *y)
{
   (void)tape;
   for (int i = 0; i < y->dim[0] * y->dim[1]; ++i) y->data[i] = 1;
}
static inline mod_tensor *constant(net *n, int rows, int columns, int one)
{
   mod_custom_desc d = {0};
   d.n_dim = 2; d.dim[0] = rows; d.dim[1] = columns;
   d.forward = one ? ones_forward : zeros_forward;
   return mod_custom(n->tape, &d);
}

/* An op without a gradient, from the rows of x to as many rows of `columns` numbers. */
static inline mod_tensor *by_rows(net *n, mod_tensor *x, int columns, void (*forward)(mod_tape *, mod_tensor *))
{
   mod_custom_desc d = {0};
   if (!x) return NULL; /* the tape has failed before */
   d.n_in = 1; d.in[0] = x;
   d.n_dim = 2; d.dim[0] = x->dim[0]; d.dim[1] = columns;
   d.by_rows = 1;
   d.forward = forward;
   return mod_custom(n->tape, &d);
}

/* 1 where x is above 0, else 0. */
static inline void above_forward(mod_tape *tape, mod_tensor *y)
{
   (void)tape;
   for (int i = 0; i < y->dim[0] * y->dim[1]; ++i) y->data[i] = y->in[0]->data[i] > 0;
}
static inline mod_tensor *above(net *n, mod_tensor *x) { return x ? by_rows(n, x, x->dim[1], above_forward) : NULL; }

/* x, in which the rows `which` are now those of y. */
static inline mod_tensor *replace(net *n, mod_tensor *x, mod_tensor *y, const mod_rows *which)
{
   return mod_scatter_add(n->tape, x, mod_sub(n->tape, y, mod_gather(n->tape, x, which)), NULL, which);
}

/* A small net that sees each row alone, and through which no gradient reaches it: a logit. */
static inline mod_tensor *predictor(net *n, int number, mod_tensor *x)
{
   mod_tensor *u = linear(n, "predictor in", number, mod_stop_grad(n->tape, x), n->width / 2, INIT);
   return bias(n, "predictor bias", number, linear(n, "predictor out", number, mod_gelu(n->tape, u), 1, 0), -1);
}

/* Expert-choice: in training the share `capacity` of each sequence that has the highest scores. These look ahead, so
   the logit `decides` learns to tell them from the others (binary cross-entropy), and otherwise it chooses. */
static inline mod_rows *take_best(net *n, const mod_rows *rows, mod_tensor *score, double capacity,
                                  mod_tensor *decides, double factor)
{
   if (!n->training) return mod_rows_threshold(n->tape, rows, decides, 0);
   mod_rows *best = mod_rows_topk(n->tape, rows, score, capacity);
   add_loss(n, mod_bce_logits(n->tape, decides, mod_rows_mask(n->tape, rows, best), 0), factor);
   return best;
}

/* Token-choice: with p [rows, paths] the probabilities, paths x sum (share of the rows that prefer a path) x (its mean
   probability), the mean over sequences. It is 1 where all paths are preferred alike. (Fedus et al. 2021,
   arXiv:2101.03961) */
static inline void preferred_forward(mod_tape *tape, mod_tensor *y)
{
   (void)tape;
   int paths = y->dim[1];
   for (int i = 0; i < y->dim[0]; ++i) {
      const mod_real *p = y->in[0]->data + i * paths;
      int best = 0;
      for (int e = 0; e < paths; ++e) {
         if (p[e] > p[best]) best = e;
         y->data[i * paths + e] = 0;
      }
      y->data[i * paths + best] = 1;
   }
}
static inline mod_tensor *balance(net *n, const mod_rows *rows, mod_tensor *p)
{
   if (!p) return NULL;
   mod_tensor *share = mod_pool(n->tape, by_rows(n, p, p->dim[1], preferred_forward), rows, MOD_POOL_MEAN);
   mod_tensor *both = mod_mul(n->tape, mod_pool(n->tape, p, rows, MOD_POOL_MEAN), share);
   return mod_scale(n->tape, mod_mean(n->tape, both), p->dim[1] * p->dim[1]);
}

/* ---- the library's own model, to compare with -------------------------------------------------------------------- */

static inline void model_probe(void *user, int layer, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   (void)x;
   if (site == MOD_SITE_KEPT) took((net *)user, layer, rows);
}

static inline mod_tensor *model_forward(net *n, mod_select select)
{
   mod_error err;
   mod_config cfg = {0};
   mod_batch batch = {0};
   mod_forward out = {0};
   cfg.vocab_size = n->vocab; cfg.context = n->length; cfg.n_layers = n->layers;
   cfg.d_model = n->width; cfg.n_heads = n->heads; cfg.select = (int)select;
   batch.n_seqs = n->seqs; batch.length = n->length; batch.tokens = n->tokens;
   batch.targets = n->training || n->measuring ? n->targets : NULL; /* then it makes the loss, or room for one */
   batch.mode = n->training ? MOD_MODE_TOPK : MOD_MODE_CAUSAL;
   batch.probe = model_probe; batch.probe_user = n;
   if (n->measuring) { /* which a mod_model does itself */
      mod_tape_desc d = {0};
      size_t bytes = 0;
      d.n_threads = n->threads;
      must(mod_forward_plan(&cfg, &batch, &d, &bytes, &err) == MOD_RESULT_OK, &err.message);
      if (bytes > n->bytes) n->bytes = bytes;
      if (n->model) return NULL;
      n->model = mod_model_create(&cfg, NULL, &err);
      must(n->model && mod_model_randomize(n->model, 1, &err) == MOD_RESULT_OK, &err.message);
      n->numbers = mod_model_params(n->model, &n->n_numbers);
      return NULL;
   }
   must(mod_model_forward(n->model, n->tape, n->training ? n->gradient : NULL, &batch, &out, &err) == MOD_RESULT_OK,
        &err.message);
   n->loss = out.loss;
   n->complete = 1;
   return out.logits;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static inline int draw(uint64_t *drawn, uint64_t below) { return (int)(mod_random_bits(1, 7, (*drawn)++) % below); }

/* A text from a seed, of passages of four kinds: sentences, counting, sums, and who has what. Some bytes are easy to
   foretell, some hard, some not at all. */
static inline size_t make_text(char *text, size_t room)
{
   static const char *const who[] = {"ann", "bob", "cleo", "dan"}, *const how[] = {"old", "small", "red", "quick"};
   static const char *const what[] = {"fox", "owl", "house", "river"}, *const does[] = {"sees", "likes", "has", "is"};
   uint64_t drawn = 0;
   size_t at = 0;
   while (at + 12 * 64 < room) {
      int kind = draw(&drawn, 4), number = draw(&drawn, 50), step = 1 + draw(&drawn, 5), has[4];
      for (int i = 0; i < 4; ++i) has[i] = draw(&drawn, 10);
      for (int i = 0; i < 12; ++i) {
         int word[4], x = draw(&drawn, 50), y = draw(&drawn, 50);
         char *to = text + at;
         for (int w = 0; w < 4; ++w) word[w] = draw(&drawn, 4);
         if (kind == 0) at += (size_t)sprintf(to, "the %s %s %s %s. ", how[word[0]], what[word[1]], does[word[2]],
                                             who[word[3]]);
         if (kind == 1) at += (size_t)sprintf(to, "%d ", number + i * step);
         if (kind == 2) at += (size_t)sprintf(to, "%d+%d=%d; ", x, y, x + y);
         if (kind == 3) at += (size_t)sprintf(to, "%s has %d, ", who[word[0]], has[word[0]]);
      }
      text[at++] = '\n';
   }
   return at;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

typedef struct variant {
   const char *name;   /* in the table */
   const char *causal; /* may it decode as it is, token by token? "yes", or what it needs */
   mod_tensor *(*forward)(net *n);
} variant;

/* The options, and what follows from them. */
typedef struct run {
   int quick, look_ahead, heading, steps;
   const char *data, *map, *svg;
   text_corpus text;
   int *tokens, *targets; /* a batch */
   int windows;           /* of held-out text */
   double train_speed, eval_speed, loss, flops; /* results: bytes a second, nats a byte, FLOPs a byte */
} run;

static inline double seconds_now(void)
{
#ifdef CLOCK_MONOTONIC
   struct timespec t;
   clock_gettime(CLOCK_MONOTONIC, &t);
   return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
   return (double)time(NULL);
#endif
}

static inline void *memory(size_t count, size_t size)
{
   void *p = calloc(count ? count : 1, size);
   need(p != NULL, "no memory");
   return p;
}

static inline void read_windows(run *r, const net *n, int part, uint64_t first)
{
   for (int s = 0; s < n->seqs; ++s) {
      text_error err;
      uint64_t i = first + (uint64_t)s, at = part == TEXT_TRAIN
         ? text_draw(&r->text, part, n->length, 1, i) : text_spread(&r->text, part, n->length, i, (uint64_t)r->windows);
      int *tokens = r->tokens + s * n->length, *targets = r->targets + s * n->length;
      must(text_read(&r->text, at, n->length, tokens, targets, &err), &err.message);
   }
}

static inline void open_text(run *r, net *n)
{
   text_desc desc = {0};
   text_error err = {0};
   if (r->data) {
      desc.paths = &r->data; desc.n_paths = 1;
   } else {
      static char made[TEXT_BYTES];
      desc.n_bytes = make_text(made, TEXT_BYTES);
      desc.bytes = made;
   }
   must(text_open(&r->text, &desc, &err), &err.message);
   for (uint64_t i = 0; i < r->text.n_bytes; ++i) if (r->text.bytes[i] >= n->vocab) n->vocab = r->text.bytes[i] + 1;
   r->tokens = (int *)memory((size_t)(n->seqs * n->length), sizeof(int));
   r->targets = (int *)memory((size_t)(n->seqs * n->length), sizeof(int));
   n->tokens = r->tokens; n->targets = r->targets;
}

/* Logits, on a tape that begins anew. */
static inline mod_tensor *pass(net *n, const variant *v, int training)
{
   mod_error err;
   if (!n->measuring) mod_tape_reset(n->tape);
   n->training = training; n->loss = NULL; n->complete = 0;
   mod_tensor *logits = v->forward(n);
   must(mod_tape_status(n->tape, &err) == MOD_RESULT_OK, &err.message);
   return logits;
}

/* What training makes small: the cross-entropy, and what the variant added. */
static inline mod_tensor *loss_of(net *n, mod_tensor *logits)
{
   if (n->complete || !logits) return n->loss;
   mod_tensor *loss = mod_cross_entropy(n->tape, logits, n->targets, 0);
   return n->loss ? mod_add(n->tape, loss, n->loss) : loss;
}

/* Finds the parameters and sizes the tape, then makes both. */
static inline void set_up(net *n, const variant *v)
{
   mod_error err;
   mod_tape_desc desc = {0};
   desc.n_threads = n->threads;
   for (int training = 1; training >= 0; --training) {
      mod_tape_desc measure = desc;
      measure.measure = 1;
      n->measuring = 1;
      must((n->tape = mod_tape_create(&measure, 1 << 22, NULL, &err)) != NULL, &err.message);
      mod_tensor *loss = loss_of(n, pass(n, v, training));
      if (loss && training) must(mod_tape_backward(n->tape, loss, &err) == MOD_RESULT_OK, &err.message);
      if (mod_tape_peak(n->tape) > n->bytes) n->bytes = mod_tape_peak(n->tape);
      mod_tape_destroy(n->tape);
   }
   n->measuring = 0;
   must((n->tape = mod_tape_create(&desc, n->bytes, NULL, &err)) != NULL, &err.message);
   n->gradient = (mod_real *)memory(n->n_numbers, sizeof(mod_real));
   n->moment1 = (mod_real *)memory(n->n_numbers, sizeof(mod_real));
   n->moment2 = (mod_real *)memory(n->n_numbers, sizeof(mod_real));
   if (n->model) return; /* it has made its own */
   n->numbers = (mod_real *)memory(n->n_numbers, sizeof(mod_real));
   for (int p = 0; p < n->n_params; ++p) {
      const param *q = &n->params[p];
      uint64_t key = mod_random_substream(mod_random_stream(q->name), (uint64_t)q->layer);
      for (size_t i = 0; i < (size_t)q->rows * (size_t)q->columns; ++i)
         n->numbers[q->at + i] = (mod_real)(q->mean + q->deviation * mod_random_normal(1, key, i));
   }
}

static inline void train(run *r, net *n, const variant *v)
{
   mod_error err;
   mod_train_desc how = {0};
   how.steps = n->steps; how.warmup = n->steps / 10; how.lr = r->quick ? 1e-2 : 3e-3; how.clip_norm = 1;
   how.n_threads = n->threads;
   how = mod_train_resolve(&how, NULL);
   double start = seconds_now();
   for (int step = 0; step < n->steps; ++step) {
      read_windows(r, n, TEXT_TRAIN, (uint64_t)step * (uint64_t)n->seqs);
      n->progress = (double)step / n->steps;
      memset(n->gradient, 0, n->n_numbers * sizeof *n->gradient);
      mod_tensor *loss = loss_of(n, pass(n, v, 1));
      must(mod_tape_backward(n->tape, loss, &err) == MOD_RESULT_OK, &err.message);
      must(mod_adamw(&how, step, n->numbers, n->gradient, n->moment1, n->moment2, n->n_numbers, NULL, &err) ==
           MOD_RESULT_OK, &err.message);
   }
   r->train_speed = (double)n->steps * n->seqs * n->length / (seconds_now() - start);
}

static inline void evaluate(run *r, net *n, const variant *v)
{
   double start = seconds_now(), bytes = (double)r->windows * n->length;
   for (int first = 0; first < r->windows; first += n->seqs) {
      read_windows(r, n, TEXT_VALIDATION, (uint64_t)first);
      mod_tensor *logits = pass(n, v, 0);
      r->flops += mod_tape_flops(n->tape) / bytes;
      r->loss += mod_cross_entropy(n->tape, logits, n->targets, 0)->value * n->seqs / r->windows;
   }
   r->eval_speed = bytes / (seconds_now() - start);
}

/* Does a logit change when later tokens do? The last quarter of every sequence becomes another text. */
static inline void check_causal(run *r, net *n, const variant *v)
{
   size_t row = (size_t)n->vocab, all = (size_t)(n->seqs * n->length) * row;
   mod_real *before = (mod_real *)memory(all, sizeof *before);
   int kept = n->length - n->length / 4, changed = 0;
   read_windows(r, n, TEXT_VALIDATION, 0);
   memcpy(before, pass(n, v, r->look_ahead)->data, all * sizeof *before);
   for (int i = 0; i < n->seqs * n->length; ++i)
      if (i % n->length >= kept) r->tokens[i] = (r->tokens[i] + 1 + i) % n->vocab;
   mod_tensor *after = pass(n, v, r->look_ahead);
   for (int i = 0; i < n->seqs * n->length; ++i) {
      int differs = memcmp(before + (size_t)i * row, after->data + (size_t)i * row, row * sizeof *before) != 0;
      if (i % n->length >= kept) changed += differs;
      else need(!differs, "a logit depends on a later token");
   }
   need(changed > 0, "no logit depends on its own token");
   free(before);
}

/* The last tokens of a window and the layers that they went through, the last layer on top, as in the paper's figure 1;
   all lines equally wide, to be pasted beside another. */
static inline void draw_map(const char *path, const char *name, const map *m)
{
   FILE *f = fopen(path, "w");
   need(f != NULL, "the map cannot be written");
   fprintf(f, "   %-*s\n   ", MAP_TOKENS, name);
   for (int i = 0; i < m->n_tokens; ++i) fputc(m->bytes[i] >= 32 && m->bytes[i] < 127 ? m->bytes[i] : ' ', f);
   for (int l = m->n_blocks - 1; l >= 0; --l) {
      fprintf(f, "\n%2d ", l + 1);
      for (int i = 0; i < m->n_tokens; ++i) fputs(map_entered(m, l, i) ? "\xe2\x96\x88" : "\xc2\xb7", f);
   }
   fputc('\n', f);
   need(!fclose(f), "the map cannot be written");
}

static inline void make_map(run *r, net *n, const variant *v)
{
   unsigned char bytes[MAP_TOKENS], entered[MAX_LAYERS * MAP_TOKENS], routed[MAX_LAYERS];
   int shown = n->length < MAP_TOKENS ? n->length : MAP_TOKENS, first = n->length - shown;
   map m = {0};
   n->entered = (unsigned char *)memory((size_t)(n->layers * n->length), 1);
   read_windows(r, n, TEXT_VALIDATION, 0);
   pass(n, v, 0);
   for (int i = 0; i < shown; ++i) bytes[i] = (unsigned char)r->tokens[first + i];
   for (int l = 0; l < n->layers; ++l) {
      memcpy(entered + l * shown, n->entered + l * n->length + first, (size_t)shown);
      routed[l] = memchr(n->entered + l * n->length, 0, (size_t)n->length) != NULL;
   }
   m.n_tokens = shown; m.n_blocks = n->layers; m.first = first;
   m.bytes = bytes; m.routed = routed; m.entered = entered;
   if (r->map) draw_map(r->map, v->name, &m);
   if (r->svg) {
      FILE *f = fopen(r->svg, "w");
      need(f != NULL, "the picture cannot be written");
      map_svg(f, &m, MAP_TOKENS);
      need(!fclose(f), "the picture cannot be written");
   }
   free(n->entered);
   n->entered = NULL;
}

static inline void print_heading(const run *r, const net *n)
{
   printf("%s; %d layers of width %d, %d heads; %d steps of %d x %d bytes; %d thread%s; %d held-out windows\n\n",
          r->data ? r->data : "a text made from a seed", n->layers, n->width, n->heads, n->steps, n->seqs, n->length,
          n->threads, n->threads > 1 ? "s" : "", r->windows);
   printf("%-22s %10s %10s %10s %19s   %s\n", "", "", "FLOPs", "causal", "bytes a second", "causal");
   printf("%-22s %10s %10s %10s %9s %9s   %s\n", "variant", "parameters", "a byte", "loss", "training", "running",
          "at decode");
}

static inline int variant_main(const variant *v, int argc, char **argv)
{
   static run r;
   static net n;
   const option options[] = {
      {"--quick", NULL, OPTION_FLAG, &r.quick, 0, 0, NULL, "a small model and few steps, to see that it works"},
      {"--steps", "N", OPTION_INT, &r.steps, 1, 1e6, NULL, "training steps"},
      {"--data", "FILE", OPTION_TEXT, &r.data, 0, 0, NULL, "another text than the one made from a seed"},
      {"--threads", "N", OPTION_INT, &n.threads, 1, 1024, NULL, "how many                           (default 1)"},
      {"--map", "FILE", OPTION_TEXT, &r.map, 0, 0, NULL, "which token went through which layer, as text"},
      {"--svg", "FILE", OPTION_TEXT, &r.svg, 0, 0, NULL, "the same as a picture"},
      {"--heading", NULL, OPTION_FLAG, &r.heading, 0, 0, NULL, "print the table's heading, and no more"},
      {"--look-ahead", NULL, OPTION_FLAG, &r.look_ahead, 0, 0, NULL,
       "check training's choice of tokens, which may look ahead:\nthe check should fail where the table says so"}};
   enum { N_OPTIONS = sizeof options / sizeof options[0] };
   const char *words[1];
   int n_words, asked = option_parse(v->name, options, N_OPTIONS, argc - 1, argv + 1, words, 0, &n_words);
   if (asked < 0) return 2;
   if (asked == 0) {
      option_help(stdout, options, N_OPTIONS);
      return 0;
   }
   if (!n.threads) n.threads = 1;
   n.layers = 6; n.width = r.quick ? 16 : 48; n.heads = r.quick ? 2 : 3; n.length = r.quick ? 48 : 128;
   n.seqs = r.quick ? 4 : 8; n.steps = r.steps ? r.steps : r.quick ? 150 : 600;
   r.windows = r.quick ? 8 : 64;
   if (r.heading) {
      print_heading(&r, &n);
      return 0;
   }
   open_text(&r, &n);
   set_up(&n, v);
   train(&r, &n, v);
   evaluate(&r, &n, v);
   check_causal(&r, &n, v);
   if (r.map || r.svg) make_map(&r, &n, v);
   printf("%-22s %10zu %10.0f %10.3f %9.0f %9.0f   %s\n", v->name, n.n_numbers, r.flops, r.loss, r.train_speed,
          r.eval_speed, v->causal);
   mod_tape_destroy(n.tape);
   mod_model_destroy(n.model);
   text_close(&r.text);
   return 0;
}

#endif
