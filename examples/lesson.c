/* lesson.c - Mixture-of-Depths in nine short parts

      cc -O2 lesson.c -lm && ./a.out

   A *routed* layer has room for k of T tokens. The tokens with the k highest scores go through it; all others pass
   by, unchanged, and cost their score and nothing else. This program builds such a layer (router, gate, and an MLP as
   the layer's work) from mod.h's primitives, and then

      1-2  shows what it does to 16 random tokens, and what that costs
      3-4  shows the catch - a later token can take an earlier token's place, which a program that writes one token at a
           time cannot know yet - and the way out: a small predictor, which decides about each token from it alone
      5    stacks such layers, with room for an eighth of the tokens
      6-9  makes four common mistakes on purpose, and measures the damage

   The functions stand in this order. Every claim that is printed is checked. If one does not hold, the program
   says so and its exit status is not 0. All but the line of times in part 8 is the same in every run.
*/
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define MOD_IMPLEMENTATION
#include "../mod.h"

enum {
   T = 16,       /* tokens of a sequence */
   D = 8,        /* a token is a row of D numbers */
   SMALL = 16,   /* width of the predictor */
   SEQS = 32,    /* sequences per training step of the predictor, and fresh ones to try things on */
   N = SEQS * T, /* their tokens */
   STEPS = 400,
   LAYERS = 8, /* of the deepest stack */
   WIDEST = 64 /* numbers in a row where the clock runs: rows of 8 are too little work to time */
};
static const double CAPACITY = 0.25; /* a quarter of the tokens goes through */
static const double EIGHTH = 0.125;  /* the capacity of parts 5 and 6 */

/* The parameters. A router is one vector; matrices are [in, out]. The MLP is four times as wide as a row. */
typedef struct layer {
   int width; /* of a row */
   mod_real router[WIDEST], w1[WIDEST * 4 * WIDEST], b1[4 * WIDEST], w2[4 * WIDEST * WIDEST], b2[WIDEST];
} layer;
typedef struct predictor {
   mod_real w1[D * SMALL], b1[SMALL], w2[SMALL], b2[1];
} predictor;

static layer block[LAYERS]; /* all but the stacks of parts 5 and 6 use the first only */
static predictor mind;      /* part 4 trains it, part 9 uses it */
static mod_real tokens[T * D], edited[T * D], fresh[N * D]; /* a sequence; with another last token; SEQS others */

/* Memory as a tensor, of one or two dimensions. With a gradient buffer it is trained, with NULL it is a constant. */
static mod_tensor *vector(mod_tape *tape, mod_real *x, mod_real *grad, int n) { return mod_leaf(tape, x, grad, 1, &n); }
static mod_tensor *matrix(mod_tape *tape, mod_real *x, mod_real *grad, int rows, int columns)
{
   int dim[2] = {rows, columns};
   return mod_leaf(tape, x, grad, 2, dim);
}

/* THE ALGORITHM, in four functions. The router: one number per token. */
static mod_tensor *score_of(mod_tape *tape, layer *p, mod_tensor *x)
{
   return mod_matmul(tape, x, matrix(tape, p->router, NULL, p->width, 1));
}

/* The layer's work, on the rows that it is given: the MLP. */
static mod_tensor *work(mod_tape *tape, layer *p, mod_tensor *x)
{
   int d = p->width, hidden = 4 * d;
   mod_tensor *h = mod_gelu(tape, mod_bias(tape, mod_matmul(tape, x, matrix(tape, p->w1, NULL, d, hidden)),
                                           vector(tape, p->b1, NULL, hidden)));
   return mod_bias(tape, mod_matmul(tape, h, matrix(tape, p->w2, NULL, hidden, d)), vector(tape, p->b2, NULL, d));
}

/* x -> y, where the rows `kept` go through and all others pass by. */
static mod_tensor *through(mod_tape *tape, layer *p, mod_tensor *x, mod_tensor *score, const mod_rows *kept)
{
   mod_tensor *delta = work(tape, p, mod_gather(tape, x, kept)); /* k rows: the others cost nothing */

   /* The score scales what the layer adds. Without this factor the router would get no gradient: choosing rows is
      not differentiable, multiplying is. */
   mod_tensor *gate = mod_gate(tape, mod_gather(tape, score, kept), MOD_GATE_SIGMOID, 0);
   return mod_scatter_add(tape, x, delta, gate, kept); /* y = x, and y[kept] += gate * delta */
}

/* All of it: the k highest scores of each sequence go through. With capacity 0 the layer is a full one: no router. */
static mod_tensor *run(mod_tape *tape, layer *p, double capacity, mod_tensor *x, const mod_rows *rows, mod_rows **kept)
{
   if (capacity == 0) return mod_add(tape, x, work(tape, p, x));
   mod_tensor *score = score_of(tape, p, x);
   *kept = mod_rows_topk(tape, rows, score, capacity); /* in order of position */
   return through(tape, p, x, score, *kept);
}

/* The predictor: from a token's row, and nothing else, the logit of "the top-k will take this token". It looks through
   stop_grad: it learns from the model, and the model never feels it. With g NULL it is only applied. */
static mod_tensor *predict(mod_tape *tape, predictor *p, predictor *g, mod_tensor *x)
{
   mod_tensor *in = mod_stop_grad(tape, x);
   mod_tensor *h = mod_gelu(tape, mod_bias(tape, mod_matmul(tape, in, matrix(tape, p->w1, g ? g->w1 : NULL, D, SMALL)),
                                           vector(tape, p->b1, g ? g->b1 : NULL, SMALL)));
   return mod_bias(tape, mod_matmul(tape, h, matrix(tape, p->w2, g ? g->w2 : NULL, SMALL, 1)),
                   vector(tape, p->b2, g ? g->b2 : NULL, 1));
}

/* n normal numbers of deviation s: a pure function of the stream's name and the number of the draw. */
static void random_numbers(mod_real *x, int n, double s, const char *stream, int draw)
{
   uint64_t key = mod_random_substream(mod_random_stream(stream), (uint64_t)draw);
   for (int i = 0; i < n; ++i) x[i] = (mod_real)(s * mod_random_normal(1, key, (uint64_t)i));
}

static void make_layer(layer *p, int width, int number)
{
   p->width = width; /* weights shrink as sums get longer, biases are 0 */
   random_numbers(p->router, width, 1 / sqrt(width), "router", number);
   random_numbers(p->w1, width * 4 * width, 1 / sqrt(width), "w1", number);
   random_numbers(p->w2, 4 * width * width, 1 / sqrt(4 * width), "w2", number);
}

/* One step of gradient descent. */
static void descend(mod_real *p, const mod_real *g, size_t n, double lr)
{
   for (size_t i = 0; i < n; ++i) p[i] -= (mod_real)lr * g[i];
}

static int contains(const int *set, int n, int value)
{
   for (int i = 0; i < n; ++i)
      if (set[i] == value) return 1;
   return 0;
}

static void print_set(const char *label, const int *set, int n)
{
   printf("   %-38s", label);
   for (int i = 0; i < n; ++i) printf(" %d", set[i]);
   printf(n ? "\n" : " none\n");
}

static int broken; /* claims that did not hold */
static void claim(int holds, const char *what)
{
   printf("   %s %s\n", holds ? "[holds]" : "[FAILS]", what);
   if (!holds) ++broken;
}

/* An error of the library ends the program. */
static void check(const mod_tape *tape)
{
   mod_error err;
   if (mod_tape_status(tape, &err) == MOD_RESULT_OK) return;
   fprintf(stderr, "lesson: %s\n", err.message);
   exit(1);
}

/* An empty tape, with sequences of tokens on it. */
static mod_tensor *begin(mod_tape *tape, mod_real *x, int n_seqs, int length, int width, mod_rows **rows)
{
   mod_tape_reset(tape);
   *rows = mod_rows_make(tape, n_seqs, length, NULL);
   return matrix(tape, x, NULL, n_seqs * length, width);
}

/* What the lesson counts: 2 per multiply-add of the MLP's two products, and 1 in the router. mod.h's counter has 2 in
   the router as well. */
static int mlp_flops(int width) { return 2 * width * 4 * width * 2; } /* of a token */

/* One sequence through the first layer: how many tokens were processed, and which. */
static int processed(mod_tape *tape, mod_real *x, int *position, const mod_real **y)
{
   mod_rows *rows, *kept = NULL;
   mod_tensor *in = begin(tape, x, 1, T, D, &rows), *out = run(tape, &block[0], CAPACITY, in, rows, &kept);
   check(tape);
   memcpy(position, kept->position, sizeof(int) * (size_t)kept->n);
   if (y) *y = out->data;
   return kept->n;
}

/* 1 and 2 ---------------------------------------------------------------------------------------------------------- */
static void a_routed_layer(mod_tape *tape)
{
   int in[T], same[T], n_same = 0, same_are_the_others = 1;
   const mod_real *y;
   int k = processed(tape, tokens, in, &y), counted = (int)mod_tape_flops(tape);
   int full = T * mlp_flops(D), routed = k * mlp_flops(D) + T * D;
   for (int t = 0; t < T; ++t)
      if (memcmp(y + t * D, tokens + t * D, sizeof(mod_real) * D) == 0) same[n_same++] = t;
   for (int t = 0; t < T; ++t)
      if (contains(in, k, t) == contains(same, n_same, t)) same_are_the_others = 0;

   printf("1. A layer with room for a quarter\n");
   printf("   %d tokens, capacity %.0f%%: %d processed, %d pass by\n", T, 100 * CAPACITY, k, T - k);
   print_set("processed:", in, k);
   print_set("rows equal to the input, bit for bit:", same, n_same);
   claim(k == mod_route_capacity(T, CAPACITY) && k == 4, "exactly k = 4 tokens are processed");
   claim(same_are_the_others, "for all others the layer is the identity, not an approximation of it");

   printf("\n2. What it costs (FLOPs: 2 per multiply-add of the MLP, %d per token for the router)\n", D);
   printf("   full %d,%03d   routed %d,%03d = %.1f%%   (mod.h's counter: %d,%03d, with %d per token for the router)\n",
          full / 1000, full % 1000, routed / 1000, routed % 1000, 100.0 * routed / full, counted / 1000,
          counted % 1000, 2 * D);
   claim(full == 16384 && routed == 4224 && counted == k * mlp_flops(D) + T * 2 * D,
         "a quarter, plus the router, which reads every token");
}

/* 3 ---------------------------------------------------------------------------------------------------------------- */
static void the_catch(mod_tape *tape)
{
   int before[T], after[T], gone[T] = {0}, n_gone = 0;
   int k = processed(tape, tokens, before, NULL);
   processed(tape, edited, after, NULL);
   for (int i = 0; i < k; ++i)
      if (before[i] != T - 1 && !contains(after, k, before[i])) gone[n_gone++] = before[i];

   printf("\n3. The catch: edit only token %d, the last\n", T - 1);
   print_set("processed before:", before, k);
   print_set("processed after:", after, k);
   print_set("lost its place to a later token:", gone, n_gone);
   claim(n_gone == 1 && !contains(before, k, T - 1) && contains(after, k, T - 1),
         "top-k is not causal: nothing up to that token had changed");
}

/* 4 ---------------------------------------------------------------------------------------------------------------- */
static void the_way_out(mod_tape *tape)
{
   static predictor slope; /* the gradient */
   static mod_real batch[N * D], batch_grad[N * D];
   mod_rows *rows;

   /* Training: random sequences, the top-k of each as the targets, binary cross-entropy, plain gradient descent. */
   double loss_first = 0, loss_last = 0;
   int model_untouched = 1;
   random_numbers(mind.w1, D * SMALL, 0.3, "predictor", 0);
   mind.b2[0] = (mod_real)log(CAPACITY / (1 - CAPACITY)); /* w2 = 0: it starts by giving every token the base rate */
   for (int step = 0; step < STEPS; ++step) {
      random_numbers(batch, N * D, 1, "training", step);
      memset(&slope, 0, sizeof slope);
      memset(batch_grad, 0, sizeof batch_grad);

      mod_tape_reset(tape);
      rows = mod_rows_make(tape, SEQS, T, NULL);
      mod_tensor *in = matrix(tape, batch, batch_grad, N, D), *score = score_of(tape, &block[0], in);
      unsigned char *taken = mod_rows_mask(tape, rows, mod_rows_topk(tape, rows, score, CAPACITY));
      mod_tensor *loss = mod_bce_logits(tape, predict(tape, &mind, &slope, in), taken, 0);
      mod_tape_backward(tape, loss, NULL);
      check(tape);

      descend(mind.w1, slope.w1, D * SMALL, 1);
      descend(mind.b1, slope.b1, SMALL, 1);
      descend(mind.w2, slope.w2, SMALL, 1);
      descend(mind.b2, slope.b2, 1, 1);
      for (int i = 0; i < N * D; ++i) model_untouched &= batch_grad[i] == 0;
      if (step == 0) loss_first = loss->value;
      loss_last = loss->value;
   }

   /* How often it is right about sequences that it has not seen. Saying 'no' to every token is right 3 times of 4. */
   int right = 0;
   mod_tensor *in = begin(tape, fresh, SEQS, T, D, &rows);
   mod_rows *best = mod_rows_topk(tape, rows, score_of(tape, &block[0], in), CAPACITY);
   unsigned char *taken = mod_rows_mask(tape, rows, best);
   mod_tensor *logit = predict(tape, &mind, NULL, in);
   check(tape);
   for (int i = 0; i < N; ++i) right += (logit->data[i] > 0) == taken[i];
   double never = 1 - (double)best->n / N;

   /* The same edit again, now decided by the predictor: a token goes through iff its logit is above 0. */
   int first[T] = {0}, second[T] = {0}, n_first = 0, n_second = 0;
   mod_tape_reset(tape);
   mod_tensor *logit_first = predict(tape, &mind, NULL, matrix(tape, tokens, NULL, T, D));
   mod_tensor *logit_second = predict(tape, &mind, NULL, matrix(tape, edited, NULL, T, D));
   check(tape);
   mod_route_threshold(logit_first->data, T, 0, first, &n_first, NULL);
   mod_route_threshold(logit_second->data, T, 0, second, &n_second, NULL);
   int n_earlier = n_first - contains(first, n_first, T - 1);
   int stay = n_earlier == n_second - contains(second, n_second, T - 1) &&
              memcmp(first, second, sizeof(int) * (size_t)n_earlier) == 0 &&
              memcmp(logit_first->data, logit_second->data, sizeof(mod_real) * (T - 1)) == 0;

   printf("\n4. The way out: a predictor that sees one token at a time\n");
   printf("   %d steps of %d random sequences: its loss went from %.3f to %.3f\n", STEPS, SEQS, loss_first, loss_last);
   printf("   on fresh sequences it agrees with the top-k on %.1f%% of the tokens ('never': %.1f%%)\n",
          100.0 * right / N, 100 * never);
   print_set("goes through before the edit:", first, n_first);
   print_set("goes through after it:", second, n_second);
   claim(model_untouched, "the predictor learned without touching the model: every gradient into x is 0");
   claim((double)right / N > never + 0.05, "it is better than always saying 'skip', by more than 5 points");
   claim(stay && n_earlier > 0, "every earlier decision stays: causal. Its price: it can err, and k is not exact");
}

/* Layers one upon the other, of which every second one (every = 2) or each (every = 1) is routed and has room for an
   eighth. changed[l][i]: layer l made another row of row i. This is read off the rows, bit for bit, not off the routes.
   Returns how many rows leave the stack as they came. */
static char changed[LAYERS][N];
static int stack(mod_tape *tape, int n_layers, int every, mod_real *x, int n_seqs)
{
   size_t row = sizeof(mod_real) * D;
   int as_they_came = 0;
   mod_rows *rows, *kept;
   mod_tensor *in = begin(tape, x, n_seqs, T, D, &rows);
   for (int l = 0; l < n_layers; ++l) {
      mod_tensor *out = run(tape, &block[l], (l + 1) % every ? 0 : EIGHTH, in, rows, &kept);
      check(tape);
      for (int i = 0; i < rows->n; ++i) changed[l][i] = memcmp(out->data + i * D, in->data + i * D, row) != 0;
      in = out;
   }
   for (int i = 0; i < rows->n; ++i) as_they_came += memcmp(in->data + i * D, x + i * D, row) == 0;
   return as_they_came;
}

/* 5 ---------------------------------------------------------------------------------------------------------------- */
static void the_exercise(mod_tape *tape)
{
   int k = mod_route_capacity(T, EIGHTH), full = T * mlp_flops(D), routed = k * mlp_flops(D) + T * D;
   int by_all = stack(tape, 4, 2, tokens, 1), counted = (int)mod_tape_flops(tape), by_routed = 0;
   for (int t = 0; t < T; ++t) by_routed += !changed[1][t] && !changed[3][t];

   printf("\n5. The exercise: room for an eighth, and two such layers, each after a full one\n");
   printf("   one routed layer: %d,%03d FLOPs = %.1f%% of a full one; all four: %.1f%% of four full ones\n",
          routed / 1000, routed % 1000, 100.0 * routed / full, 50.0 * (full + routed) / full);
   for (int l = 0; l < 4; ++l) {
      printf("   layer %d, %s", l + 1, l % 2 ? "routed   " : "full     ");
      for (int t = 0; t < T; ++t) putchar(changed[l][t] ? '#' : '.');
      printf("\n");
   }
   printf("   tokens that every routed layer skipped: %d of %d; that every layer skipped: %d\n", by_routed, T, by_all);
   claim(routed == 2176 && counted == 2 * (full + routed + T * D), "an eighth, plus the router: 13.3%");
   claim(by_routed >= T - 2 * k && by_routed < T && by_all == 0, "no token is skipped by every layer of the stack");
}

/* 6 ---------------------------------------------------------------------------------------------------------------- */
static void mistake_every_layer(mod_tape *tape)
{
   int every4 = stack(tape, 4, 1, fresh, SEQS), second4 = stack(tape, 4, 2, fresh, SEQS);
   int every8 = stack(tape, 8, 1, fresh, SEQS), second8 = stack(tape, 8, 2, fresh, SEQS);

   printf("\n6. Mistake: routing every layer (room for an eighth, untrained routers, %d fresh sequences)\n", SEQS);
   printf("   leave as they came, of %d tokens      4 layers   8 layers\n", N);
   printf("   every layer routed                         %3d        %3d\n", every4, every8);
   printf("   every second one                           %3d        %3d\n", second4, second8);
   claim(every4 >= N / 2 && every8 > 0, "4 such layers have room for half; 8 have for all, yet leave tokens out");
   claim(second4 == 0 && second8 == 0, "with full layers between them every token is processed");
}

/* 7 ---------------------------------------------------------------------------------------------------------------- */
static void mistake_free_router(mod_tape *tape)
{
   double share = 0;
   int grows = 1, as_counted = 1;
   printf("\n7. Mistake: taking the router for free. It reads the skipped tokens too, and so does the predictor\n");
   printf("   share of what is left       router, as in 2   router, mod.h's count   with predictor\n");
   for (int k = T / 2; k >= 1; k /= 2) {
      mod_rows *rows, *kept;
      mod_tensor *in = begin(tape, tokens, 1, T, D, &rows);
      run(tape, &block[0], (double)k / T, in, rows, &kept);
      double layer_flops = mod_tape_flops(tape);
      predict(tape, &mind, NULL, in);
      check(tape);
      double all = mod_tape_flops(tape), mlp = k * mlp_flops(D), router = layer_flops - mlp;
      printf("   capacity %5.2f%%, k = %d     %8.1f%%          %8.1f%%             %8.1f%%\n", 100.0 * k / T, k,
             100 * T * D / (mlp + T * D), 100 * router / layer_flops, 100 * (all - mlp) / all);
      grows &= router / layer_flops > share;
      share = router / layer_flops;
      as_counted &= router == 2 * T * D && all - layer_flops == 2 * T * (D + 1) * SMALL;
   }
   claim(as_counted && grows, "they cost the same at every capacity, so their share grows as the rest shrinks");
   double mlp = EIGHTH * mlp_flops(512), router = 2 * 512, both = router + 2 * (512 + 1) * SMALL;
   printf("   That is in rows of %d numbers. In rows of 512, at 12.5%%: router %.1f%%, with predictor %.1f%%\n",
          D, 100 * router / (mlp + router), 100 * both / (mlp + both));
}

/* One pass through a layer, by C's clock: processor time on most systems, so that other programs count little. */
static double seconds(mod_tape *tape, layer *p, double capacity, mod_real *x, int n, double *flops)
{
   mod_rows *rows, *kept;
   clock_t start = clock();
   mod_tensor *in = begin(tape, x, 1, n, p->width, &rows);
   run(tape, p, capacity, in, rows, &kept);
   clock_t end = clock();
   check(tape);
   *flops = mod_tape_flops(tape);
   return (double)(end - start) / CLOCKS_PER_SEC;
}

static int by_size(const void *a, const void *b)
{
   double x = *(const double *)a, y = *(const double *)b;
   return (x > y) - (x < y);
}

/* 8 ---------------------------------------------------------------------------------------------------------------- */
static void mistake_flops_are_time(mod_tape *tape)
{
   enum { LONG = 512, KINDS = 5, RUNS = 9 };
   static const int k[KINDS] = {LONG, LONG / 2, LONG / 8, LONG / 32, 1}; /* the first is the full layer */
   static layer wide;
   static mod_real x[LONG * WIDEST];
   double flops[KINDS], time_of[KINDS][RUNS];
   int as_counted = 1;
   make_layer(&wide, WIDEST, 0);
   random_numbers(x, LONG * WIDEST, 1, "long", 0);
   for (int r = 0; r < RUNS; ++r) /* in turn, so that a busy moment of the machine hits all alike; then the medians */
      for (int i = 0; i < KINDS; ++i)
         time_of[i][r] = seconds(tape, &wide, i ? (double)k[i] / LONG : 0, x, LONG, &flops[i]);

   printf("\n8. Mistake: taking FLOPs for time (%d tokens, rows of %d numbers)\n", LONG, WIDEST);
   printf("   tokens that go through       full");
   for (int i = 1; i < KINDS; ++i) printf("%8d", k[i]);
   printf("\n   FLOPs, of the full layer's ");
   for (int i = 0; i < KINDS; ++i) printf("%7.1f%%", 100 * flops[i] / flops[0]);
   printf("\n   time, of the full layer's  ");
   for (int i = 0; i < KINDS; ++i) {
      qsort(time_of[i], RUNS, sizeof(double), by_size);
      double full = time_of[0][RUNS / 2]; /* 0 by a clock that is too coarse */
      printf("%7.1f%%", full > 0 ? 100 * time_of[i][RUNS / 2] / full : 0);
      as_counted &= flops[i] == (double)k[i] * mlp_flops(WIDEST) + (i ? 2.0 * LONG * WIDEST : 0);
   }
   printf("   (full: %.2f ms)\n", 1e3 * time_of[0][RUNS / 2]);
   claim(as_counted, "the FLOPs are as counted. The times are no claim: they are this machine's, just now");
   printf("   Choosing, gathering and copying take time and no FLOPs: the faster the products, the more it shows.\n");
}

/* A rule for which tokens go through, against the top-k: the share that it takes, how many decisions are the same, and
   how far the layer's output is from what it was in training, where 100% is all that the layer adds. */
typedef struct verdict {
   double takes, agrees, off;
} verdict;
static verdict judge(mod_tape *tape, const char *rule, mod_tensor *x, mod_tensor *score, const mod_rows *kept,
                     const mod_rows *best)
{
   mod_tensor *y = through(tape, &block[0], x, score, kept), *trained = through(tape, &block[0], x, score, best);
   char differs[N] = {0};
   int same = 0;
   double wrong = 0, added = 0;
   check(tape);
   for (int j = 0; j < kept->n; ++j) differs[kept->index[j]] ^= 1;
   for (int j = 0; j < best->n; ++j) differs[best->index[j]] ^= 1;
   for (int i = 0; i < N; ++i) same += !differs[i];
   for (int i = 0; i < N * D; ++i) {
      wrong += pow(y->data[i] - trained->data[i], 2);
      added += pow(trained->data[i] - x->data[i], 2);
   }
   verdict v = {(double)kept->n / N, (double)same / N, sqrt(wrong / added)};
   printf("   %-42s %7.1f%%   %9.1f%%   %10.1f%%\n", rule, 100 * v.takes, 100 * v.agrees, 100 * v.off);
   return v;
}

/* Of many tokens of other sequences, the lowest score that is among the best quarter: a threshold. */
static double calibrated(mod_tape *tape)
{
   static mod_real other[N * D];
   double theta = HUGE_VAL;
   mod_rows *rows;
   random_numbers(other, N * D, 1, "training", 0);
   mod_tensor *score = score_of(tape, &block[0], begin(tape, other, 1, N, D, &rows));
   mod_rows *best = mod_rows_topk(tape, rows, score, CAPACITY);
   check(tape);
   for (int j = 0; j < best->n; ++j) theta = fmin(theta, score->data[best->index[j]]);
   return theta;
}

/* 9 ---------------------------------------------------------------------------------------------------------------- */
static void mistake_two_rules(mod_tape *tape)
{
   double theta = calibrated(tape);
   mod_real minus_one = -1;
   mod_rows *rows;
   mod_tensor *x = begin(tape, fresh, SEQS, T, D, &rows), *score = score_of(tape, &block[0], x);
   mod_tensor *lower = mod_bias(tape, score, vector(tape, &minus_one, NULL, 1));
   mod_rows *best = mod_rows_topk(tape, rows, score, CAPACITY);
   mod_rows *best_lower = mod_rows_topk(tape, rows, lower, CAPACITY);
   mod_rows *single = mod_rows_make(tape, N, 1, NULL); /* every token a sequence of its own */
   mod_tensor *logit = predict(tape, &mind, NULL, x);
   const mod_rows *best_of_one = mod_rows_topk(tape, single, score, CAPACITY);
   check(tape);
   int same_order = memcmp(best->index, best_lower->index, sizeof(int) * (size_t)best->n) == 0;

   printf("\n9. Mistake: training with the top-k, generating by another rule (%d fresh sequences)\n", SEQS);
   printf("   (off: the error of the output; 100%% is as much as the layer adds)\n"
          "   who goes through                              takes   as the top-k          off\n");
   judge(tape, "top-k of the whole sequence, as trained", x, score, best, best);
   verdict one = judge(tape, "top-k of one token at a time", x, score, best_of_one, best);
   verdict zero = judge(tape, "score above 0", x, score, mod_rows_threshold(tape, rows, score, 0), best);
   verdict shifted = judge(tape, "score above 0, all scores lower by 1", x, score,
                           mod_rows_threshold(tape, rows, lower, 0), best);
   verdict fitted = judge(tape, "score above a threshold fitted beforehand", x, score,
                          mod_rows_threshold(tape, rows, score, theta), best);
   verdict learned = judge(tape, "the predictor of part 4", x, score, mod_rows_threshold(tape, rows, logit, 0), best);
   claim(one.takes == 1, "the best of one is always that one: nothing is skipped, nothing is saved");
   claim(same_order && zero.takes > 1.5 * CAPACITY && shifted.takes < 0.5 * zero.takes,
         "the top-k knows only the order of scores (lower by 1, it takes the same): 0 is no border to it");
   claim(fmin(learned.agrees, fitted.agrees) > zero.agrees + 0.05 && fmax(learned.off, fitted.off) < 0.8 * zero.off,
         "a rule made to imitate the top-k comes much closer");
   claim(fmax(learned.agrees, fitted.agrees) < 1 && fmin(learned.off, fitted.off) > 0.1,
         "but not all the way: measure a model in the way in which it will generate");
}

int main(void)
{
   mod_error err;
   mod_tape *tape = mod_tape_create(NULL, 8 << 20, NULL, &err); /* all memory of this program but for its constants */
   if (!tape) {
      fprintf(stderr, "lesson: %s\n", err.message);
      return 1;
   }
   for (int l = 0; l < LAYERS; ++l) make_layer(&block[l], D, l);
   random_numbers(tokens, T * D, 1, "tokens", 3);
   random_numbers(fresh, N * D, 1, "fresh", 0);
   memcpy(edited, tokens, sizeof tokens);
   for (int i = 0; i < D; ++i) edited[(T - 1) * D + i] = 10 * block[0].router[i]; /* its score is 10 |w|^2 */

   a_routed_layer(tape);
   the_catch(tape);
   the_way_out(tape);
   the_exercise(tape);
   mistake_every_layer(tape);
   mistake_free_router(tape);
   mistake_flops_are_time(tape);
   mistake_two_rules(tape);

   mod_tape_destroy(tape);
   if (broken) printf("\n%d claims do not hold.\n", broken);
   return broken != 0;
}
