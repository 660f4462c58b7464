/* test_sums.c - examples/common/sums.h: the bytes, the arithmetic, what is held out; spearman.h by hand. */
#include "../examples/common/text.h" /* first: it asks the system for more */
#include "../examples/common/spearman.h"
#include "../examples/common/sums.h"
#include "test.h"

static unsigned char text[SUMS_BYTES + 1];

static int digit(const unsigned char *line, int place)
{
   return line[place] >= '0' && line[place] <= '9' ? line[place] - '0' : -1000;
}

/* Every line is a sum, and stands in the part that text.h cuts there; every sum of the part occurs. */
static void test_text(void)
{
   static int seen[1000];
   text_desc desc;
   text_corpus t;
   uint64_t hash = 0;
   int wrong = 0, missing = 0;
   memset(&desc, 0, sizeof desc);
   text[SUMS_BYTES] = '#';
   sums_text(text, 1);
   CHECK(text[SUMS_BYTES] == '#');
   desc.bytes = text; desc.n_bytes = SUMS_BYTES;
   if (!CHECK(text_open(&t, &desc, NULL))) return;
   CHECK(text_hash(&t, &hash, NULL));
   CHECKF(hash == 0x25796ff41a1c88d3u, "%016llx", (unsigned long long)hash);
   for (int part = 0; part < TEXT_N_PARTS; ++part) {
      CHECK(t.files[0].at[part] % SUMS_LINE == 0);
      for (uint64_t at = t.files[0].at[part]; at < t.files[0].at[part + 1]; at += SUMS_LINE) {
         const unsigned char *line = text + at;
         int a = digit(line, 0), b = digit(line, 2), c = digit(line, 4), sum = 10 * digit(line, 6) + digit(line, 7);
         wrong += line[1] != '+' || line[3] != '+' || line[5] != '=' || line[8] != '\n' || a < 0 || b < 0 || c < 0 ||
                  sum != a + b + c || sums_part(a, b, c) != part;
         if (!wrong) seen[100 * a + 10 * b + c] = 1;
      }
   }
   for (int i = 0; i < 1000; ++i) missing += !seen[i];
   CHECKF(!wrong && !missing, "%d lines wrong, %d sums missing", wrong, missing);
   text_close(&t);
   sums_text(text, 2);
   uint64_t other = 14695981039346656037u;
   for (int i = 0; i < SUMS_BYTES; ++i) other = (other ^ text[i]) * 1099511628211u;
   CHECK(other != hash);
}

/* The parts do not depend on the order of the numbers. */
static void test_parts(void)
{
   int sets[3] = {0, 0, 0}, wrong = 0;
   for (int a = 0; a < 10; ++a)
      for (int b = a; b < 10; ++b)
         for (int c = b; c < 10; ++c) {
            int part = sums_part(a, b, c);
            ++sets[part];
            wrong += sums_part(a, c, b) != part || sums_part(b, a, c) != part || sums_part(b, c, a) != part ||
                     sums_part(c, a, b) != part || sums_part(c, b, a) != part;
         }
   CHECK(!wrong);
   CHECKF(sets[0] == 185 && sets[1] == 17 && sets[2] == 18, "%d, %d, %d sets", sets[0], sets[1], sets[2]);
}

static void test_spearman(void)
{
   double rho = 7;
   /* Ranks 1 2 3 4 5 and 2 1 4 3 5: 1 - 6 * 4 / (5 * 24), without ties. */
   double x1[] = {10, 20, 30, 40, 50}, y1[] = {-2, -3, 5, 4, 1e9};
   CHECK(spearman(x1, y1, 5, &rho) && fabs(rho - 0.8) < 1e-15);
   CHECK(y1[0] == 2 && y1[1] == 1 && y1[2] == 4 && y1[3] == 3 && y1[4] == 5);
   /* Ranks 1.5 1.5 3 4 and 1 3 3 3: differences from 2.5 are -1 -1 .5 1.5 and -1.5 .5 .5 .5; products 1.5 - .5 + .25 +
      .75 = 2, squares 4.5 and 3. */
   double x2[] = {0, 0, 1, 2}, y2[] = {1, 8, 8, 8};
   CHECK(spearman(x2, y2, 4, &rho) && fabs(rho - 2 / sqrt(13.5)) < 1e-15);
   CHECK(x2[0] == 1.5 && x2[1] == 1.5 && x2[2] == 3 && x2[3] == 4);
   CHECK(y2[0] == 1 && y2[1] == 3 && y2[2] == 3 && y2[3] == 3);
   /* Falling, however bent, with a tie in both at the same places; -0 ties with 0. */
   double x3[] = {3, -0.0, 0, 2}, y3[] = {0.1, 100, 100, 1};
   CHECK(spearman(x3, y3, 4, &rho) && fabs(rho + 1) < 1e-15);
   /* No correlation is defined: a constant, one pair, none. *rho stays. */
   double x4[] = {1, 1, 1}, y4[] = {1, 2, 3};
   rho = 7;
   CHECK(!spearman(x4, y4, 3, &rho) && !spearman(y4, x4, 3, &rho));
   CHECK(!spearman(y4, x4, 1, &rho) && !spearman(y4, x4, 0, &rho) && rho == 7);
   /* Many ties: the ranks still sum to n (n + 1) / 2, and equal values have equal ranks. */
   static double x[1000], y[1000], was[1000];
   double sum = 0;
   int wrong = 0;
   for (int i = 0; i < 1000; ++i) {
      x[i] = was[i] = test_below(4); y[i] = test_uniform();
   }
   CHECK(spearman(x, y, 1000, &rho) && fabs(rho) < 0.15);
   for (int i = 0; i < 1000; ++i) {
      sum += x[i];
      wrong += (was[i] < was[0]) != (x[i] < x[0]) || (was[i] > was[0]) != (x[i] > x[0]);
   }
   CHECK(sum == 500500 && !wrong);
}

int main(void)
{
   test_text();
   test_parts();
   test_spearman();
   return test_end();
}
