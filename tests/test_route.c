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

/* ceil(p T / 100) of exact integers, and at most T. */
static void test_slots(void)
{
   int checked = 0, wrong = 0;
   for (int p = 1; p <= 250; ++p)
      for (int t = 0; t <= 1024; ++t, ++checked) {
         int k = (p * t + 99) / 100, got = mod_route_slots(t, p / 100.0);
         if (k > t) k = t;
         if (got != k && !wrong++) printf("slots %d%% of %d: %d, not %d\n", p, t, got, k);
      }
   for (int parts = 1; parts <= 64; ++parts) /* shares such as a third or a 48th, none of them exact */
      for (int t = 0; t <= 4096; ++t, ++checked) {
         int k = (t + parts - 1) / parts, got = mod_route_slots(t, 1.0 / parts);
         if (got != k && !wrong++) printf("slots 1/%d of %d: %d, not %d\n", parts, t, got, k);
      }
   CHECK(wrong == 0);
   CHECK(checked == 250 * 1025 + 64 * 4097);

   CHECK(mod_route_slots(200, 0.29) == 58);
   CHECK(mod_route_slots(100, 0.07) == 7); /* 0.07 * 100 is a little above 7 */
   CHECK(mod_route_slots(3, 1.0 / 3) == 1);
   CHECK(mod_route_slots(4, 1.0 / 3) == 2);
   CHECK(mod_route_slots(9, 2.0 / 3) == 6);
   CHECK(mod_route_slots(8, 0.125) == 1);
   CHECK(mod_route_slots(9, 0.125) == 2);
   CHECK(mod_route_slots(7, 0.125) == 1);
   CHECK(mod_route_slots(10, 1) == 10);
   CHECK(mod_route_slots(10, 1.25) == 10);
   CHECK(mod_route_slots(10, 1e300) == 10);
   CHECK(mod_route_slots(0, 0.5) == 0);
   CHECK(mod_route_slots(0, 1e300) == 0);
   CHECK(mod_route_slots(INT_MAX, 1) == INT_MAX);
   CHECK(mod_route_slots(INT_MAX, 0.5) == INT_MAX / 2 + 1);
   CHECK(mod_route_slots(INT_MAX, 1 - 1e-16) == INT_MAX);
   CHECK(mod_route_slots(1000, 1e-300) == 0); /* as the formula says: there is no least one here */
   CHECK(mod_route_slots(-1, 0.5) == -1);
   CHECK(mod_route_slots(INT_MIN, 0.5) == -1);
   CHECK(mod_route_slots(5, 0) == -1);
   CHECK(mod_route_slots(5, -0.0) == -1);
   CHECK(mod_route_slots(5, -0.5) == -1);
   CHECK(mod_route_slots(5, HUGE_VAL) == -1);
   CHECK(mod_route_slots(5, -HUGE_VAL) == -1);
   CHECK(mod_route_slots(5, (double)NAN) == -1);
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

enum { PATHS_MAX = 9, ROWS_MAX = 64 };

static const float *by_score; /* of one row */
static int better(const void *a, const void *b)
{
   int p = *(const int *)a, q = *(const int *)b;
   float x = by_score[p], y = by_score[q];
   return x > y ? -1 : x < y ? 1 : p - q;
}

/* Token-choice by sorting each row's paths. */
static void choose_by_sorting(const float *score, int n, int n_paths, int choices, const int *slots, int *used,
                              int *path, int *slot)
{
   for (int i = 0; i < n; ++i) {
      int order[PATHS_MAX];
      for (int e = 0; e < n_paths; ++e) order[e] = e;
      by_score = score + i * n_paths;
      qsort(order, (size_t)n_paths, sizeof *order, better);
      for (int c = 0; c < choices; ++c) {
         int e = order[c], full = slots && slots[e] >= 0 && used[e] >= slots[e];
         path[i * choices + c] = e;
         slot[i * choices + c] = full ? -1 : used[e];
         used[e] += !full;
      }
   }
}

static void test_choose(void)
{
   static float score[ROWS_MAX * PATHS_MAX];
   int path[ROWS_MAX * PATHS_MAX + 1], slot[ROWS_MAX * PATHS_MAX + 1], want_path[ROWS_MAX * PATHS_MAX];
   int want_slot[ROWS_MAX * PATHS_MAX], slots[PATHS_MAX], used[PATHS_MAX + 1], want_used[PATHS_MAX], start[PATHS_MAX];
   int checked = 0, wrong = 0, dropped = 0, pieces = 0;
   for (int kind = 0; kind < KINDS; ++kind)
      for (int n_paths = 1; n_paths <= PATHS_MAX; ++n_paths)
         for (int choices = 1; choices <= n_paths; ++choices)
            for (int round = 0; round < 8; ++round, ++checked) {
               int n = round ? test_below(ROWS_MAX + 1) : 0;
               const int *given = round % 4 == 3 ? NULL : slots;
               mod_error err = {MOD_RESULT_ARG, NULL, 0, 0};
               make_scores(score, n * n_paths, kind);
               for (int e = 0; e < n_paths; ++e) {
                  slots[e] = round % 4 == 1 ? test_below(4) - 1 : test_below(n + 2); /* none, no limit, few or many */
                  start[e] = round % 2 ? test_below(3) : 0;
                  used[e] = want_used[e] = start[e];
               }
               for (int i = 0; i <= n * choices; ++i) path[i] = slot[i] = -99;
               used[n_paths] = -99;
               choose_by_sorting(score, n, n_paths, choices, given, want_used, want_path, want_slot);
               mod_result result = mod_route_choose(score, n, n_paths, choices, given, used, path, slot, &err);
               int right = result == MOD_RESULT_OK && err.code == MOD_RESULT_OK && path[n * choices] == -99 &&
                           slot[n * choices] == -99 && used[n_paths] == -99 &&
                           !memcmp(path, want_path, (size_t)(n * choices) * sizeof *path) &&
                           !memcmp(slot, want_slot, (size_t)(n * choices) * sizeof *slot) &&
                           !memcmp(used, want_used, (size_t)n_paths * sizeof *used);
               if (!right && !wrong++) printf("choose: kind %d, %d of %d paths\n", kind, choices, n_paths);
               for (int i = 0; i < n * choices; ++i) dropped += slot[i] < 0;

               /* In pieces of any length, `used` carried over: the same. */
               for (int e = 0; e < n_paths; ++e) used[e] = start[e];
               for (int at = 0, m; at < n; at += m, ++pieces) {
                  m = 1 + test_below(round % 3 ? 7 : 1);
                  if (m > n - at) m = n - at;
                  if (mod_route_choose(score + at * n_paths, m, n_paths, choices, given, used, path + at * choices,
                                       slot + at * choices, NULL))
                     ++wrong;
               }
               wrong += memcmp(path, want_path, (size_t)(n * choices) * sizeof *path) ||
                        memcmp(slot, want_slot, (size_t)(n * choices) * sizeof *slot) ||
                        memcmp(used, want_used, (size_t)n_paths * sizeof *used);
            }
   CHECKF(wrong == 0, "%d of %d", wrong, checked);
   CHECK(checked == KINDS * PATHS_MAX * (PATHS_MAX + 1) / 2 * 8);
   CHECKF(dropped > 10000 && pieces > 10000, "%d dropped, %d pieces", dropped, pieces);
}

static void test_choose_by_hand(void)
{
   int path[12], slot[12], used[3];

   /* The paper's figure 2, left: three tokens prefer the first expert, which has room for two; the last of them is
      dropped though the second expert is half empty. */
   static const float figure[8] = {2, 1, 3, -1, 0, 1, 0.5f, 0.25f};
   static const int room[2] = {2, 2}, figure_path[4] = {0, 0, 1, 0}, figure_slot[4] = {0, 1, 0, -1};
   memset(used, 0, sizeof used);
   CHECK(mod_route_choose(figure, 4, 2, 1, room, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(!memcmp(path, figure_path, sizeof figure_path) && !memcmp(slot, figure_slot, sizeof figure_slot));
   CHECK(used[0] == 2 && used[1] == 1);

   /* Ties, of either zero too, go to the lower path; the rest of a row's choices skips what it has taken. */
   static const float tied[9] = {0.0f, -0.0f, 0.0f, -0.0f, 0.0f, 0.0f, -1, 5, 5};
   static const int tied_path[6] = {0, 1, 0, 1, 1, 2};
   memset(used, 0, sizeof used);
   CHECK(mod_route_choose(tied, 3, 3, 2, NULL, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(!memcmp(path, tied_path, sizeof tied_path) && used[0] == 2 && used[1] == 3 && used[2] == 1);

   /* Infinities are scores like others: all at -inf is a tie. */
   static const float far[9] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0, INFINITY, INFINITY, INFINITY, FLT_MAX};
   static const int far_path[9] = {0, 1, 2, 2, 1, 0, 0, 1, 2};
   memset(used, 0, sizeof used);
   CHECK(mod_route_choose(far, 3, 3, 3, NULL, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(!memcmp(path, far_path, sizeof far_path) && used[0] == 3 && used[1] == 3 && used[2] == 3);

   /* All choices of a row come before the next row: the first takes the last slot of both paths. */
   static const float both[4] = {1, 2, 2, 1};
   static const int one[2] = {1, 1}, both_path[4] = {1, 0, 0, 1}, both_slot[4] = {0, 0, -1, -1};
   memset(used, 0, sizeof used);
   CHECK(mod_route_choose(both, 2, 2, 2, one, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(!memcmp(path, both_path, sizeof both_path) && !memcmp(slot, both_slot, sizeof both_slot));

   /* No slots at all; and without limit beside it. */
   static const int some[2] = {0, -1}, some_slot[4] = {-1, 0, 1, -1};
   static const float mixed[8] = {1, 0, 0, 1, 0, 1, 1, 0};
   memset(used, 0, sizeof used);
   CHECK(mod_route_choose(mixed, 4, 2, 1, some, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(!memcmp(slot, some_slot, sizeof some_slot) && used[0] == 0 && used[1] == 2);

   /* More held already than there are slots. */
   used[0] = 7, used[1] = 1;
   CHECK(mod_route_choose(mixed, 2, 2, 1, one, used, path, slot, NULL) == MOD_RESULT_OK);
   CHECK(slot[0] == -1 && slot[1] == -1 && used[0] == 7 && used[1] == 1);
}

/* NaN at each place: refused with its row, and nothing is written. */
static void test_choose_nan(void)
{
   float score[7 * 5];
   int path[7 * 5], slot[7 * 5], used[5], slots[5] = {1, 0, -1, 7, 2}, checked = 0, wrong = 0;
   for (int n_paths = 1; n_paths <= 5; ++n_paths)
      for (int choices = 1; choices <= n_paths; ++choices)
         for (int at = 0; at < 7 * n_paths; ++at)
            for (int kind = 0; kind < KINDS; ++kind, ++checked) {
               mod_error err = {MOD_RESULT_OK, NULL, 0, 0};
               make_scores(score, 7 * n_paths, kind);
               score[at] = kind & 1 ? NAN : -NAN;
               for (int later = at + 1; kind > 4 && later < 7 * n_paths; later += 3) score[later] = NAN;
               for (int i = 0; i < 35; ++i) path[i] = slot[i] = -99;
               for (int e = 0; e < 5; ++e) used[e] = e + 1;
               const int *room = kind & 2 ? slots : NULL;
               mod_result result = mod_route_choose(score, 7, n_paths, choices, room, used, path, slot, &err);
               int right = result == MOD_RESULT_NUMERIC && err.code == result && err.where == at / n_paths &&
                           err.message;
               for (int i = 0; i < 35; ++i) right = right && path[i] == -99 && slot[i] == -99;
               for (int e = 0; e < 5; ++e) right = right && used[e] == e + 1;
               wrong += !right;
            }
   CHECKF(wrong == 0, "%d of %d", wrong, checked);
   CHECK(checked == 7 * KINDS * (1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 5));
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
   test_slots();
   test_topk();
   test_nan();
   test_threshold();
   test_choose();
   test_choose_by_hand();
   test_choose_nan();
   test_rows();
   return test_end();
}
