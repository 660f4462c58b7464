/* test_route.c - routing on plain arrays against brute force, and the tape's selections against the arrays' */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <float.h>
#include <limits.h>
#include <math.h>

enum { N_MAX = 4096 };

/* k from exact integers: floor(p T / 100), clamped to [1, T]. */
static void test_capacity(void)
{
   int checked = 0, wrong = 0;
   for (int p = 1; p <= 100; ++p)
      for (int t = 1; t <= 4096; ++t) {
         int k = p * t / 100, got = mod_route_capacity(t, p / 100.0);
         if (k < 1) k = 1;
         if (k > t) k = t;
         ++checked;
         if (got != k && !wrong++) printf("capacity %d%% of %d: %d, not %d\n", p, t, got, k);
      }
   CHECK(wrong == 0);
   CHECK(checked == 409600);

   CHECK(mod_route_capacity(200, 0.29) == 58); /* (float)0.29 gives 57 */
   CHECK(mod_route_capacity(3, 0.125) == 1);   /* T below 1/c */
   CHECK(mod_route_capacity(7, 0.125) == 1);
   CHECK(mod_route_capacity(8, 0.125) == 1);
   CHECK(mod_route_capacity(16, 0.125) == 2);
   CHECK(mod_route_capacity(1, 1e-300) == 1);
   CHECK(mod_route_capacity(1, 1) == 1);
   CHECK(mod_route_capacity(1000000, 1e-300) == 1);
   CHECK(mod_route_capacity(INT_MAX, 1) == INT_MAX);
   CHECK(mod_route_capacity(INT_MAX, 0.5) == INT_MAX / 2);
   CHECK(mod_route_capacity(0, 0.5) == 0);
   CHECK(mod_route_capacity(-1, 0.5) == -1);
   CHECK(mod_route_capacity(INT_MIN, 0.5) == -1);
   CHECK(mod_route_capacity(5, 0) == -1);
   CHECK(mod_route_capacity(5, -0.5) == -1);
   CHECK(mod_route_capacity(5, 1 + 1e-9) == -1);
   CHECK(mod_route_capacity(5, HUGE_VAL) == -1);
   CHECK(mod_route_capacity(5, (double)NAN) == -1);
}

enum { KIND_NORMAL, KIND_TIED, KIND_QUANTISED, KIND_SPECIAL, KIND_EQUAL, KIND_UP, KIND_DOWN, KIND_DENORMAL, KINDS };

static void make_scores(float *score, int n, int kind)
{
   static const float special[] = {INFINITY, -INFINITY, 0.0f, -0.0f, FLT_MIN, -FLT_MIN, 1e-45f, -1e-45f,
                                   FLT_MAX, -FLT_MAX, 1.0f, -1.0f, 1.00000012f, 0.99999994f};
   for (int i = 0; i < n; ++i) switch (kind) {
      case KIND_NORMAL: score[i] = (float)test_normal(); break;
      case KIND_TIED: score[i] = (float)test_below(3); break;
      case KIND_QUANTISED: score[i] = (float)floor(4 * test_normal()) / 4; break;
      case KIND_SPECIAL: score[i] = special[test_below((int)(sizeof special / sizeof *special))]; break;
      case KIND_EQUAL: score[i] = i & 1 ? 0.0f : -0.0f; break; /* equal numbers, different bits */
      case KIND_UP: score[i] = (float)i - 7.0f; break;
      case KIND_DOWN: score[i] = 7.0f - (float)(i / 2); break;
      default: score[i] = (float)(test_below(9) - 4) * 1e-45f; break;
   }
}

/* rank[i]: how many come before i in the order (score descending, position ascending). */
static void brute_ranks(const float *score, int n, int *rank)
{
   for (int i = 0; i < n; ++i) {
      rank[i] = 0;
      for (int j = 0; j < n; ++j) rank[i] += score[j] > score[i] || (score[j] == score[i] && j < i);
   }
}

/* 1 if mod_route_topk gives exactly the rows of rank below k, in ascending order, and writes nothing else. */
static int topk_right(const float *score, const int *rank, int n, int k)
{
   static int kept[N_MAX + 2];
   for (int i = 0; i <= k; ++i) kept[i] = -99;
   mod_error err = {MOD_RESULT_ARG, NULL, 0, 0};
   if (mod_route_topk(score, n, k, kept, &err) != MOD_RESULT_OK || err.code != MOD_RESULT_OK) return 0;
   int at = 0;
   for (int i = 0; i < n; ++i)
      if (rank[i] < k && kept[at++] != i) return 0;
   return at == k && kept[k] == -99;
}

static void test_topk(void)
{
   static float score[N_MAX];
   static int rank[N_MAX];
   static const int large[] = {64, 65, 127, 128, 129, 255, 256, 257, 1000, 1023, 4095, 4096};
   int checked = 0, wrong = 0;
   for (int kind = 0; kind < KINDS; ++kind) {
      for (int n = 0; n <= 40; ++n)
         for (int round = 0; round < 5; ++round) {
            make_scores(score, n, kind);
            brute_ranks(score, n, rank);
            for (int k = 0; k <= n; ++k, ++checked)
               if (!topk_right(score, rank, n, k) && !wrong++) printf("top-k: kind %d, n %d, k %d\n", kind, n, k);
         }
      for (int l = 0; l < (int)(sizeof large / sizeof *large); ++l) {
         int n = large[l];
         make_scores(score, n, kind);
         brute_ranks(score, n, rank);
         int ks[] = {0, 1, 2, n / 8, n / 2, n - 1, n, test_below(n + 1), test_below(n + 1)};
         for (int i = 0; i < 9; ++i, ++checked)
            if (!topk_right(score, rank, n, ks[i]) && !wrong++) printf("top-k: kind %d, n %d, k %d\n", kind, n, ks[i]);
      }
   }
   CHECK(wrong == 0);
   CHECK(checked == KINDS * (5 * 41 * 42 / 2 + 12 * 9));
}

/* NaN at each place, of either sign: refused with its position, and nothing is written. */
static void test_nan(void)
{
   float score[24];
   int kept[25], n_kept, checked = 0, wrong = 0;
   for (int n = 1; n <= 24; ++n)
      for (int at = 0; at < n; ++at)
         for (int kind = 0; kind < KINDS; ++kind) {
            make_scores(score, n, kind);
            score[at] = kind & 1 ? NAN : -NAN;
            for (int k = 0; k <= n; k += k < 2 ? 1 : 5) {
               mod_error err = {MOD_RESULT_OK, NULL, 0, 0};
               int untouched = 1;
               for (int i = 0; i < 25; ++i) kept[i] = -99;
               int refused = mod_route_topk(score, n, k, kept, &err) == MOD_RESULT_NUMERIC;
               for (int i = 0; i < 25; ++i) untouched = untouched && kept[i] == -99;
               ++checked;
               wrong += !(refused && untouched && err.code == MOD_RESULT_NUMERIC && err.where == at && err.message);
            }
            mod_error err = {MOD_RESULT_OK, NULL, 0, 0};
            int untouched = 1;
            n_kept = -77;
            int refused = mod_route_threshold(score, n, 0.0, kept, &n_kept, &err) == MOD_RESULT_NUMERIC;
            for (int i = 0; i < 25; ++i) untouched = untouched && kept[i] == -99;
            ++checked;
            wrong += !(refused && untouched && n_kept == -77 && err.code == MOD_RESULT_NUMERIC && err.where == at);
         }
   CHECKF(wrong == 0, "%d of %d", wrong, checked);
   CHECK(checked > 5000);

   make_scores(score, 24, KIND_NORMAL);
   for (int i = 0; i < 25; ++i) kept[i] = -99;
   n_kept = -77;
   CHECK(mod_route_threshold(score, 24, (double)NAN, kept, &n_kept, NULL) == MOD_RESULT_NUMERIC);
   CHECK(n_kept == -77 && kept[0] == -99);
   CHECK(mod_route_topk(score, 24, -1, kept, NULL) == MOD_RESULT_ARG);
   CHECK(mod_route_topk(score, 24, 25, kept, NULL) == MOD_RESULT_ARG);
   CHECK(mod_route_topk(score, -1, 0, kept, NULL) == MOD_RESULT_ARG);
   CHECK(mod_route_threshold(score, -1, 0, kept, &n_kept, NULL) == MOD_RESULT_ARG);
   CHECK(n_kept == -77 && kept[0] == -99);
}

static int threshold_right(const float *score, int n, double theta)
{
   static int kept[N_MAX + 1];
   int n_kept = -1, at = 0;
   for (int i = 0; i <= n; ++i) kept[i] = -99;
   if (mod_route_threshold(score, n, theta, kept, &n_kept, NULL) != MOD_RESULT_OK) return 0;
   for (int i = 0; i < n; ++i)
      if ((double)score[i] > theta && kept[at++] != i) return 0;
   return at == n_kept;
}

static void test_threshold(void)
{
   static float score[N_MAX];
   int checked = 0, wrong = 0;
   for (int kind = 0; kind < KINDS; ++kind)
      for (int round = 0; round < 300; ++round) {
         int n = round < 290 ? test_below(70) : N_MAX - test_below(3);
         make_scores(score, n, kind);
         double thetas[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, 1e-320, test_normal(),
                            n ? (double)score[test_below(n)] : 1.0};
         for (int i = 0; i < 7; ++i, ++checked) wrong += !threshold_right(score, n, thetas[i]);
      }
   CHECKF(wrong == 0, "%d of %d", wrong, checked);
   CHECK(checked == KINDS * 300 * 7);

   /* Strictly above, and theta is not rounded to float. */
   float one[3] = {1.0f, 1.0f, 0.99999994f};
   int kept[3], n_kept;
   CHECK(mod_route_threshold(one, 3, 1.0, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   CHECK(mod_route_threshold(one, 3, 1.0 - 1e-12, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 2);
   CHECK(mod_route_threshold(one, 3, 1.0 + 1e-12, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   CHECK(mod_route_threshold(one, 3, -1e300, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 3 && kept[2] == 2);
   CHECK(mod_route_threshold(one, 3, 1e300, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   CHECK(mod_route_threshold(one, 0, 0.0, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   float zero[2] = {-0.0f, 0.0f};
   CHECK(mod_route_threshold(zero, 2, -0.0, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   CHECK(mod_route_threshold(zero, 2, 0.0, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   float inf[2] = {INFINITY, -INFINITY};
   CHECK(mod_route_threshold(inf, 2, HUGE_VAL, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 0);
   CHECK(mod_route_threshold(inf, 2, -HUGE_VAL, kept, &n_kept, NULL) == MOD_RESULT_OK && n_kept == 1 && kept[0] == 0);
}

/* The selection `got` of `rows` against the array functions, sequence by sequence. Without `by_theta`: top-k. */
static int rows_right(const mod_rows *rows, const mod_rows *got, const float *score, double capacity, double theta,
                      int by_theta)
{
   static int kept[N_MAX];
   int at = 0;
   if (got->n_seqs != rows->n_seqs || got->n_max < got->n || got->n_max > rows->n_max) return 0;
   for (int s = 0; s < rows->n_seqs; ++s) {
      int start = rows->start[s], n = rows->start[s + 1] - start, k;
      if (by_theta) {
         if (mod_route_threshold(score + start, n, theta, kept, &k, NULL) != MOD_RESULT_OK) return 0;
      } else {
         k = mod_route_capacity(n, capacity);
         if (mod_route_topk(score + start, n, k, kept, NULL) != MOD_RESULT_OK) return 0;
      }
      if (got->start[s] != at) return 0;
      for (int j = 0; j < k; ++j, ++at)
         if (got->index[at] != start + kept[j] || got->position[at] != rows->position[start + kept[j]]) return 0;
   }
   return got->start[rows->n_seqs] == at && got->n == at;
}

static int mask_right(const mod_rows *rows, const mod_rows *kept, const unsigned char *mask)
{
   int at = 0;
   for (int i = 0; i < rows->n; ++i) {
      int in = at < kept->n && kept->index[at] == i;
      if (mask[i] != in) return 0;
      at += in;
   }
   return at == kept->n;
}

/* Numbers as a column of scores for `rows`. */
static mod_tensor *score_of(mod_tape *tape, const mod_rows *rows, float *score)
{
   int dim[2] = {rows ? rows->n : 0, 1};
   return mod_leaf(tape, score, NULL, 2, dim);
}

static void test_rows(void)
{
   static float score[N_MAX];
   size_t size = 1 << 20;
   void *memory = malloc(size);
   mod_tape *tape = mod_tape_init(NULL, memory, size, NULL);
   int checked = 0, wrong = 0;
   CHECK(tape != NULL);
   for (int round = 0; tape && round < 400; ++round) {
      int n_seqs = 1 + test_below(6), length = 1 + test_below(60), lengths[6];
      double capacity = (1 + test_below(100)) / 100.0;
      double theta = round % 5 ? 0.5 * test_normal() : round % 2 ? 1e30 : -1e30;
      for (int s = 0; s < n_seqs; ++s) lengths[s] = round % 4 ? test_below(length + 1) : 1; /* 0 and 1 among them */
      mod_tape_reset(tape);
      mod_rows *rows = mod_rows_make(tape, n_seqs, length, round % 3 ? lengths : NULL);
      if (!rows) {
         ++wrong;
         continue;
      }
      int made = rows->n_seqs == n_seqs && rows->index == NULL && rows->start[0] == 0, at = 0;
      for (int s = 0; s < n_seqs; ++s) {
         int n = round % 3 ? lengths[s] : length;
         made = made && rows->start[s + 1] - rows->start[s] == n;
         for (int i = 0; made && i < n; ++i) made = rows->position[at++] == i;
      }
      wrong += !(made && at == rows->n);
      make_scores(score, rows->n, round % KINDS);
      mod_tensor *r = score_of(tape, rows, score);
      mod_rows *top = mod_rows_topk(tape, rows, r, capacity), *above = mod_rows_threshold(tape, rows, r, theta);
      if (!top || !above) {
         ++wrong;
         continue;
      }
      wrong += !rows_right(rows, top, score, capacity, 0, 0) + !rows_right(rows, above, score, 0, theta, 1);
      unsigned char *mask = mod_rows_mask(tape, rows, top), *mask2 = mod_rows_mask(tape, rows, above);
      wrong += !(mask && mask_right(rows, top, mask)) + !(mask2 && mask_right(rows, above, mask2));

      /* A selection of a selection keeps the original positions; index counts in its own parent. */
      make_scores(score, above->n, KIND_QUANTISED);
      mod_tensor *r2 = score_of(tape, above, score);
      mod_rows *top2 = mod_rows_topk(tape, above, r2, capacity);
      wrong += !(top2 && rows_right(above, top2, score, capacity, 0, 0));
      checked += 6;
   }
   CHECKF(wrong == 0, "%d of %d", wrong, checked);
   CHECK(checked == 2400);

   /* NaN in the second of two sequences: refused with the position inside it; the error stays on the tape. */
   for (int at = 0; tape && at < 5; ++at) {
      int lengths[2] = {4, 5};
      mod_error err;
      for (int by_theta = 0; by_theta < 2; ++by_theta) {
         make_scores(score, 9, KIND_NORMAL);
         score[4 + at] = NAN;
         mod_tape_reset(tape);
         mod_rows *rows = mod_rows_make(tape, 2, 6, lengths);
         mod_tensor *r = score_of(tape, rows, score);
         CHECK(rows && r);
         CHECK(!(by_theta ? mod_rows_threshold(tape, rows, r, 0) : mod_rows_topk(tape, rows, r, 0.5)));
         CHECK(mod_tape_status(tape, &err) == MOD_RESULT_NUMERIC);
         CHECKF(err.where == at, "where %d, not %d", (int)err.where, at);
      }
   }
   mod_tape_destroy(tape);
   free(memory);
}

int main(void)
{
   test_capacity();
   test_topk();
   test_nan();
   test_threshold();
   test_rows();
   return test_end();
}
