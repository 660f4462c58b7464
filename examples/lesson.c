/* lesson.c - Mixture-of-Depths on one screen

      cc -O2 lesson.c -lm && ./a.out

   A *routed* layer has room for k of T tokens. The tokens with the k highest scores go through it; all others pass
   by, unchanged, at no cost. This program builds such a layer (router, gate, and an MLP as the layer's work) from
   mod.h's primitives, shows what it does to 16 random tokens, shows the catch - a later token can take an earlier
   token's place, which a program that writes one token at a time cannot know yet - and then the way out: a small
   predictor, which decides about each token from that token alone.

   Every claim that is printed is checked. If one does not hold, the program says so and its exit status is not 0.
*/
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MOD_IMPLEMENTATION
#include "../mod.h"

enum {
   T = 16,         /* tokens of a sequence */
   D = 8,          /* a token is a row of D numbers */
   HIDDEN = 4 * D, /* width of the MLP */
   SMALL = 16,     /* width of the predictor */
   SEQS = 32,      /* sequences per training step of the predictor */
   STEPS = 400
};
static const double CAPACITY = 0.25; /* a quarter of the tokens goes through */

/* The parameters. A router is one vector; matrices are [in, out]. */
typedef struct layer {
   mod_real router[D], w1[D * HIDDEN], b1[HIDDEN], w2[HIDDEN * D], b2[D];
} layer;
typedef struct predictor {
   mod_real w1[D * SMALL], b1[SMALL], w2[SMALL], b2[1];
} predictor;

/* Memory as a tensor, of one or two dimensions. With a gradient buffer it is trained, with NULL it is a constant. */
static mod_tensor *vector(mod_tape *tape, mod_real *x, mod_real *grad, int n) { return mod_leaf(tape, x, grad, 1, &n); }
static mod_tensor *matrix(mod_tape *tape, mod_real *x, mod_real *grad, int rows, int columns)
{
   int dim[2] = {rows, columns};
   return mod_leaf(tape, x, grad, 2, dim);
}

/* THE ALGORITHM. x [T, D] -> y [T, D], and the rows that went through. */
static mod_tensor *routed_layer(mod_tape *tape, layer *p, mod_tensor *x, const mod_rows *rows, mod_rows **kept)
{
   mod_tensor *score = mod_matmul(tape, x, matrix(tape, p->router, NULL, D, 1)); /* one number per token */
   *kept = mod_rows_topk(tape, rows, score, CAPACITY);                           /* the k highest, in order */

   mod_tensor *in = mod_gather(tape, x, *kept); /* k rows: from here on the others cost nothing */
   mod_tensor *h = mod_gelu(tape, mod_bias(tape, mod_matmul(tape, in, matrix(tape, p->w1, NULL, D, HIDDEN)),
                                           vector(tape, p->b1, NULL, HIDDEN)));
   mod_tensor *delta = mod_bias(tape, mod_matmul(tape, h, matrix(tape, p->w2, NULL, HIDDEN, D)),
                                vector(tape, p->b2, NULL, D));

   /* The score scales what the layer adds. Without this factor the router would get no gradient: choosing rows is
      not differentiable, multiplying is. */
   mod_tensor *gate = mod_gate(tape, mod_gather(tape, score, *kept), MOD_GATE_SIGMOID, 0);
   return mod_scatter_add(tape, x, delta, gate, *kept); /* y = x, and y[kept] += gate * delta */
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

int main(void)
{
   static layer block;
   static predictor mind, slope; /* the predictor's parameters and their gradient */
   static mod_real x[T * D], x_edited[T * D], batch[SEQS * T * D], batch_grad[SEQS * T * D];
   mod_error err;

   mod_tape *tape = mod_tape_create(NULL, 4 << 20, NULL, &err); /* all memory of this program, in one piece */
   if (!tape) {
      fprintf(stderr, "lesson: %s\n", err.message);
      return 1;
   }
   random_numbers(x, T * D, 1, "tokens", 3);
   random_numbers(block.router, D, 0.35, "router", 0);
   random_numbers(block.w1, D * HIDDEN, 0.35, "w1", 0);
   random_numbers(block.w2, HIDDEN * D, 0.18, "w2", 0);

   /* 1 ------------------------------------------------------------------------------------------------------------- */
   mod_rows *rows = mod_rows_make(tape, 1, T, NULL), *kept = NULL;
   mod_tensor *y = routed_layer(tape, &block, matrix(tape, x, NULL, T, D), rows, &kept);
   check(tape);

   int k = kept->n, before[T], same[T], n_same = 0, same_are_the_others = 1;
   memcpy(before, kept->position, sizeof(int) * (size_t)k);
   for (int t = 0; t < T; ++t)
      if (memcmp(y->data + t * D, x + t * D, sizeof(mod_real) * D) == 0) same[n_same++] = t;
   for (int t = 0; t < T; ++t)
      if (contains(before, k, t) == contains(same, n_same, t)) same_are_the_others = 0;

   printf("1. A layer with room for a quarter\n");
   printf("   %d tokens, capacity %.0f%%: %d processed, %d pass by\n", T, 100 * CAPACITY, k, T - k);
   print_set("processed:", before, k);
   print_set("rows equal to the input, bit for bit:", same, n_same);
   claim(k == mod_route_capacity(T, CAPACITY) && k == 4, "exactly k = 4 tokens are processed");
   claim(same_are_the_others, "for all others the layer is the identity, not an approximation of it");

   /* 2 ------------------------------------------------------------------------------------------------------------- */
   /* By formula, from k, as the lesson counts: 2 per multiply-add of the MLP's two products, 1 in the router. The
      library's counter has 2 in the router as well. */
   int mlp = 2 * D * HIDDEN * 2, full = T * mlp, routed = k * mlp + T * D;
   int counted = (int)mod_tape_flops(tape);

   printf("\n2. What it costs (FLOPs: 2 per multiply-add of the MLP, %d per token for the router)\n", D);
   printf("   full %d,%03d   routed %d,%03d = %.1f%%   (mod.h's counter: %d,%03d, with %d per token for the router)\n",
          full / 1000, full % 1000, routed / 1000, routed % 1000, 100.0 * routed / full, counted / 1000,
          counted % 1000, 2 * D);
   claim(full == 16384 && routed == 4224 && counted == k * mlp + T * 2 * D,
         "a quarter, plus the router, which reads every token");

   /* 3 ------------------------------------------------------------------------------------------------------------- */
   /* The last token becomes the router's own weights times 10: its score is 10 |w|^2. */
   int after[T], gone[T] = {0}, n_gone = 0;
   memcpy(x_edited, x, sizeof x);
   for (int i = 0; i < D; ++i) x_edited[(T - 1) * D + i] = 10 * block.router[i];
   mod_tape_reset(tape);
   rows = mod_rows_make(tape, 1, T, NULL);
   routed_layer(tape, &block, matrix(tape, x_edited, NULL, T, D), rows, &kept);
   check(tape);
   memcpy(after, kept->position, sizeof(int) * (size_t)k);
   for (int i = 0; i < k; ++i)
      if (before[i] != T - 1 && !contains(after, k, before[i])) gone[n_gone++] = before[i];

   printf("\n3. The catch: edit only token %d, the last\n", T - 1);
   print_set("processed before:", before, k);
   print_set("processed after:", after, k);
   print_set("lost its place to a later token:", gone, n_gone);
   claim(n_gone == 1 && !contains(before, k, T - 1) && contains(after, k, T - 1),
         "top-k is not causal: nothing up to that token had changed");

   /* 4 ------------------------------------------------------------------------------------------------------------- */
   /* Training: random sequences, the top-k of each as the targets, binary cross-entropy, plain gradient descent. */
   double loss_first = 0, loss_last = 0;
   int model_untouched = 1;
   random_numbers(mind.w1, D * SMALL, 0.3, "predictor", 0);
   mind.b2[0] = (mod_real)log(CAPACITY / (1 - CAPACITY)); /* w2 = 0: it starts by giving every token the base rate */
   for (int step = 0; step < STEPS; ++step) {
      random_numbers(batch, SEQS * T * D, 1, "training", step);
      memset(&slope, 0, sizeof slope);
      memset(batch_grad, 0, sizeof batch_grad);

      mod_tape_reset(tape);
      rows = mod_rows_make(tape, SEQS, T, NULL);
      mod_tensor *in = matrix(tape, batch, batch_grad, SEQS * T, D);
      mod_tensor *score = mod_matmul(tape, in, matrix(tape, block.router, NULL, D, 1));
      unsigned char *taken = mod_rows_mask(tape, rows, mod_rows_topk(tape, rows, score, CAPACITY));
      mod_tensor *loss = mod_bce_logits(tape, predict(tape, &mind, &slope, in), taken, 0);
      mod_tape_backward(tape, loss, NULL);
      check(tape);

      descend(mind.w1, slope.w1, D * SMALL, 1);
      descend(mind.b1, slope.b1, SMALL, 1);
      descend(mind.w2, slope.w2, SMALL, 1);
      descend(mind.b2, slope.b2, 1, 1);
      for (int i = 0; i < SEQS * T * D; ++i) model_untouched &= batch_grad[i] == 0;
      if (step == 0) loss_first = loss->value;
      loss_last = loss->value;
   }

   /* How often it is right about sequences that it has not seen. Saying 'no' to every token is right 3 times of 4. */
   int right = 0, seen = SEQS * T;
   random_numbers(batch, SEQS * T * D, 1, "fresh", 0);
   mod_tape_reset(tape);
   rows = mod_rows_make(tape, SEQS, T, NULL);
   mod_tensor *fresh = matrix(tape, batch, NULL, SEQS * T, D);
   mod_tensor *score = mod_matmul(tape, fresh, matrix(tape, block.router, NULL, D, 1));
   unsigned char *taken = mod_rows_mask(tape, rows, mod_rows_topk(tape, rows, score, CAPACITY));
   mod_tensor *logit = predict(tape, &mind, NULL, fresh);
   check(tape);
   for (int i = 0; i < seen; ++i) right += (logit->data[i] > 0) == taken[i];

   /* The same edit again, now decided by the predictor: a token goes through iff its logit is above 0. */
   int first[T] = {0}, second[T] = {0}, n_first = 0, n_second = 0;
   mod_tape_reset(tape);
   mod_tensor *logit_first = predict(tape, &mind, NULL, matrix(tape, x, NULL, T, D));
   mod_tensor *logit_second = predict(tape, &mind, NULL, matrix(tape, x_edited, NULL, T, D));
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
          100.0 * right / seen, 100 * (1 - (double)k / T));
   print_set("goes through before the edit:", first, n_first);
   print_set("goes through after it:", second, n_second);
   claim(model_untouched, "the predictor learned without touching the model: every gradient into x is 0");
   claim((double)right / seen > 1 - (double)k / T + 0.05,
         "it is better than always saying 'skip', by more than 5 points");
   claim(stay && n_earlier > 0, "every earlier decision stays: causal. Its price: it can err, and k is not exact");

   mod_tape_destroy(tape);
   if (broken) printf("\n%d claims do not hold.\n", broken);
   return broken != 0;
}
