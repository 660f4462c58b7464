/* test_math.c - mod.h's own functions against libm in double; random numbers; sampling against exact chances */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <float.h>
#include <math.h>

/* ---------------------------------------------------------------------------------------------------------------------
   Scalar functions in float
   ------------------------------------------------------------------------------------------------------------------ */

static float float_of(uint32_t bits)
{
   float f;
   memcpy(&f, &bits, 4);
   return f;
}

/* |got - want| in units of the last place of a float of want's size. */
static double ulps(float got, double want)
{
   if (isnan(want)) return isnan(got) ? 0 : 1e9;
   if (isinf(want) || fabs(want) > (double)FLT_MAX) { /* beyond floats: infinity, or so near that FLT_MAX is right */
      if (isinf(got) && (got > 0) == (want > 0)) return 0;
      if (isinf(want)) return 1e9;
   }
   if (isnan(got)) return 1e9;
   int e;
   double unit = ldexp(1, -149);
   if (fabs(want) >= (double)FLT_MIN) {
      frexp(want, &e);
      unit = ldexp(1, (e > 128 ? 128 : e) - 24);
   }
   if (isinf(got)) return (ldexp(1, 128) - fabs(want)) / unit + ((got > 0) == (want > 0) ? 0 : 1e9);
   return fabs((double)got - want) / unit;
}

typedef float (*scalar)(float);
typedef double (*reference)(double);

static double ref_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static double ref_silu(double x) { return isinf(x) && x < 0 ? 0 : x * ref_sigmoid(x); }
static double ref_gelu(double x)
{
   if (isinf(x)) return x > 0 ? x : 0;
   double u = 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x); /* (1 + tanh u/2) / 2 = sigmoid u */
   return x * ref_sigmoid(u);
}

/* Worst error over the floats `start`, `start` + stride, ... (as bits), and how many there were. `absolute`: in units
   of 2^-22 max(1, |x|); else in units of the last place. */
static double sweep(scalar f, reference r, float low, float high, int absolute, long *n)
{
   double worst = 0;
   *n = 0;
   for (uint64_t bits = 0; bits < 0x100000000ull; bits += 4099) {
      float x = float_of((uint32_t)bits);
      if (!(x >= low && x <= high)) continue; /* NaN too */
      double want = r((double)x);
      float got = f(x);
      double e = absolute ? fabs((double)got - want) / ldexp(fmax(1, fabs((double)x)), -22) : ulps(got, want);
      if (absolute && (isinf(want) || isnan(got))) e = (double)got == want ? 0 : 1e9;
      if (e > worst) worst = e;
      ++*n;
   }
   /* The middle again, evenly: half of all floats are below 1e-19. */
   for (int i = -400000; i <= 400000; ++i) {
      float x = (float)i * 0.000271f;
      if (!(x >= low && x <= high)) continue;
      double want = r((double)x);
      float got = f(x);
      double e = absolute ? fabs((double)got - want) / ldexp(fmax(1, fabs((double)x)), -22) : ulps(got, want);
      if (e > worst || isnan(e)) worst = isnan(e) ? 1e9 : e;
      ++*n;
   }
   return worst;
}

static void test_floats(void)
{
   long n;
   double e;
   e = sweep(mod__exp, exp, -INFINITY, INFINITY, 0, &n);
   CHECKF(e <= 2, "exp: %g ulp", e);
   CHECK(n > 1800000);
   e = sweep(mod__log, log, 0, INFINITY, 0, &n);
   CHECKF(e <= 2, "log: %g ulp", e);
   CHECK(n > 900000);
   e = sweep(mod__tanh, tanh, -INFINITY, INFINITY, 0, &n);
   CHECKF(e <= 4, "tanh: %g ulp", e);
   CHECK(n > 1800000);
   e = sweep(mod__sigmoid, ref_sigmoid, -80, INFINITY, 0, &n);
   CHECKF(e <= 4, "sigmoid: %g ulp", e);
   CHECK(n > 1200000);
   e = sweep(mod__sigmoid, ref_sigmoid, -INFINITY, -80, 1, &n);
   CHECKF(e <= 1, "sigmoid below -80: %g of the bar", e);
   CHECK(n > 350000);
   e = sweep(mod__silu, ref_silu, -INFINITY, INFINITY, 1, &n);
   CHECKF(e <= 1, "silu: %g of the bar", e);
   CHECK(n > 1800000);
   e = sweep(mod__gelu, ref_gelu, -INFINITY, INFINITY, 1, &n);
   CHECKF(e <= 1, "gelu: %g of the bar", e);
   CHECK(n > 1800000);

   /* log around 1, where the result is small */
   double worst = 0;
   for (int i = -200000; i <= 200000; ++i) {
      float x = float_of((uint32_t)(0x3f800000 + i * 3));
      worst = fmax(worst, ulps(mod__log(x), log((double)x)));
   }
   CHECKF(worst <= 2, "log near 1: %g ulp", worst);
   /* exp around its ends */
   worst = 0;
   for (int i = 0; i < 100000; ++i) {
      float up = 88.0f + (float)i * 1e-5f, down = -86.0f - (float)i * 2e-4f;
      worst = fmax(worst, fmax(ulps(mod__exp(up), exp((double)up)), ulps(mod__exp(down), exp((double)down))));
   }
   CHECKF(worst <= 2, "exp at its ends: %g ulp", worst);

   float inf = INFINITY;
   CHECK(mod__exp(0.0f) == 1.0f && mod__exp(-0.0f) == 1.0f);
   CHECK(mod__exp(inf) == inf && mod__exp(-inf) == 0.0f && isnan(mod__exp(NAN)));
   CHECK(mod__exp(FLT_MAX) == inf && mod__exp(-FLT_MAX) == 0.0f);
   CHECK(mod__exp(1e-45f) == 1.0f && mod__exp(-1e-45f) == 1.0f);
   CHECK(mod__log(1.0f) == 0.0f && mod__log(0.0f) == -inf && mod__log(-0.0f) == -inf);
   CHECK(mod__log(inf) == inf && isnan(mod__log(-1.0f)) && isnan(mod__log(-inf)) && isnan(mod__log(NAN)));
   CHECK(isnan(mod__log(-1e-45f)));
   CHECK(ulps(mod__log(1e-45f), log((double)1e-45f)) <= 2);
   CHECK(mod__tanh(inf) == 1.0f && mod__tanh(-inf) == -1.0f && isnan(mod__tanh(NAN)));
   CHECK(mod__tanh(FLT_MAX) == 1.0f && mod__tanh(-FLT_MAX) == -1.0f);
   CHECK(mod__tanh(0.0f) == 0.0f && !signbit(mod__tanh(0.0f)) && mod__tanh(-0.0f) == 0.0f);
   CHECK(mod__tanh(1e-45f) == 1e-45f && mod__tanh(-1e-45f) == -1e-45f);
   CHECK(mod__sigmoid(0.0f) == 0.5f && mod__sigmoid(-0.0f) == 0.5f && mod__sigmoid(1e-45f) == 0.5f);
   CHECK(mod__sigmoid(inf) == 1.0f && mod__sigmoid(-inf) == 0.0f && isnan(mod__sigmoid(NAN)));
   CHECK(mod__sigmoid(FLT_MAX) == 1.0f && mod__sigmoid(-FLT_MAX) == 0.0f);
   CHECK(mod__silu(0.0f) == 0.0f && mod__silu(inf) == inf && isnan(mod__silu(NAN)));
   CHECKF(mod__silu(-inf) == 0.0f, "silu(-inf) = %g", (double)mod__silu(-inf));
   CHECK(mod__silu(FLT_MAX) == FLT_MAX && mod__silu(-FLT_MAX) == 0.0f);
   CHECK(mod__gelu(0.0f) == 0.0f && mod__gelu(inf) == inf && isnan(mod__gelu(NAN)));
   CHECKF(mod__gelu(-inf) == 0.0f, "gelu(-inf) = %g", (double)mod__gelu(-inf));
   CHECK(mod__gelu(FLT_MAX) == FLT_MAX && mod__gelu(-FLT_MAX) == 0.0f);

   /* tanh and sigmoid stay inside their ranges, and tanh is odd to the bit. */
   long outside = 0, odd = 0, tried = 0;
   for (uint64_t bits = 0; bits < 0x7f800000ull; bits += 8191, ++tried) {
      float x = float_of((uint32_t)bits);
      outside += !(fabsf(mod__tanh(x)) <= 1.0f) + !(mod__sigmoid(x) <= 1.0f) + !(mod__sigmoid(-x) >= 0.0f);
      odd += mod__tanh(-x) != -mod__tanh(x);
   }
   CHECK(outside == 0 && odd == 0 && tried > 200000);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Scalar functions in double: schedules, rotary tables, noise
   ------------------------------------------------------------------------------------------------------------------ */

/* 0 if within 4 units of the last place or 1e-15; else how far. */
static double off64(double got, double want)
{
   int e;
   double d = fabs(got - want);
   if (got == want) return 0;
   if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : 1e9;
   if (d <= 1e-15) return 0;
   frexp(want, &e);
   return d <= 4 * ldexp(1, e - 53) ? 0 : d;
}

static void test_doubles(void)
{
   double worst[4] = {0, 0, 0, 0}, sine, cosine;
   int n = 0;
   for (int i = 0; i < 400000; ++i, ++n) {
      double x = 1400 * test_uniform() - 700, y = exp(x / 1.01); /* y: 1e-301 .. 1e300 */
      double angle = i & 1 ? test_uniform() * 1048576 : test_uniform() * 8; /* positions are below 2^20 */
      worst[0] = fmax(worst[0], off64(mod__exp64(x), exp(x)) / exp(x));
      worst[1] = fmax(worst[1], off64(mod__log64(y), log(y)));
      mod__sincos64(angle, &sine, &cosine);
      worst[2] = fmax(worst[2], off64(sine, sin(angle)));
      worst[3] = fmax(worst[3], off64(cosine, cos(angle)));
      double near1 = 1 + (test_uniform() - 0.5) * 1e-3;
      worst[1] = fmax(worst[1], off64(mod__log64(near1), log(near1)));
      x = test_uniform() * 2 - 1;
      worst[0] = fmax(worst[0], off64(mod__exp64(x), exp(x)) / exp(x));
   }
   CHECKF(worst[0] == 0, "exp in double: off by %g of itself", worst[0]);
   CHECKF(worst[1] == 0, "log in double: off by %g", worst[1]);
   CHECKF(worst[2] == 0, "sin in double: off by %g", worst[2]);
   CHECKF(worst[3] == 0, "cos in double: off by %g", worst[3]);
   CHECK(n == 400000);
   CHECK(mod__exp64(0) == 1 && isnan(mod__exp64((double)NAN)) && mod__log64(1) == 0);
   mod__sincos64(0, &sine, &cosine);
   CHECK(sine == 0 && cosine == 1);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Random numbers
   ------------------------------------------------------------------------------------------------------------------ */

/* Chi-squared of counts in 256 equal buckets: mean 255, deviation 22.6; the bounds are five deviations away. */
static int fair256(const int *count, int n)
{
   double chi = 0, want = n / 256.0;
   for (int b = 0; b < 256; ++b) chi += (count[b] - want) * (count[b] - want) / want;
   return chi > 142 && chi < 368;
}

static void test_random(void)
{
   enum { N = 1 << 16 };
   uint64_t stream = mod_random_stream("blocks.1.router");

   /* A pure function of its key. */
   uint64_t first = mod_random_bits(1, stream, 5);
   double u = mod_random_uniform(1, stream, 5), z = mod_random_normal(1, stream, 5);
   for (uint64_t i = 0; i < 100; ++i) mod_random_bits(i, stream, i);
   CHECK(mod_random_bits(1, stream, 5) == first);
   CHECK(mod_random_uniform(1, stream, 5) == u && mod_random_normal(1, stream, 5) == z);
   CHECK(mod_random_stream("blocks.1.router") == stream);
   CHECK(mod_random_stream(NULL) == mod_random_stream(""));

   /* Different names and numbers give different streams. */
   static const char *const name[] = {"", "a", "b", "aa", "ab", "ba", "blocks.1.router", "blocks.2.router", "embed"};
   for (int i = 0; i < 9; ++i)
      for (int j = 0; j < i; ++j) CHECK(mod_random_stream(name[i]) != mod_random_stream(name[j]));
   int same = 0;
   for (uint64_t i = 1; i <= 2000; ++i) {
      same += mod_random_substream(stream, i) == mod_random_substream(stream, i - 1);
      same += mod_random_substream(stream, i) == stream;
      same += mod_random_substream(stream, i) == mod_random_substream(stream + 1, i);
      same += mod_random_substream(i, i - 1) == mod_random_substream(i - 1, i);
   }
   CHECK(same == 0);

   /* Uniform along each part of the key, in each byte of the bits. What runs in key 0: the index; 1: the
      stream; 2: the seed; 3: a substream */
   for (int key = 0; key < 4; ++key) {
      static int byte[8][256], bucket[256];
      double mean = 0, square = 0, lag = 0, before = 0.5;
      int outside = 0, coarse = 0;
      memset(byte, 0, sizeof byte);
      memset(bucket, 0, sizeof bucket);
      for (uint64_t i = 0; i < N; ++i) {
         uint64_t seed = key == 2 ? i : 7, s = key == 1 ? i : key == 3 ? mod_random_substream(stream, i) : stream;
         uint64_t bits = mod_random_bits(seed, s, key == 0 ? i : 3);
         double x = mod_random_uniform(seed, s, key == 0 ? i : 3);
         for (int b = 0; b < 8; ++b) ++byte[b][(bits >> (8 * b)) & 255];
         outside += !(x >= 0 && x < 1);
         coarse += floor(ldexp(x, 52)) == ldexp(x, 52); /* half of them, if there are 53 bits */
         if (x >= 0 && x < 1) ++bucket[(int)(x * 256)];
         mean += x / N;
         square += (x - 0.5) * (x - 0.5) / N;
         lag += (x - 0.5) * (before - 0.5) / N;
         before = x;
      }
      CHECK(outside == 0);
      CHECKF(abs(coarse - N / 2) < 5 * 128, "%d", coarse);
      for (int b = 0; b < 8; ++b) CHECKF(fair256(byte[b], N), "key %d, byte %d", key, b);
      CHECKF(fair256(bucket, N), "key %d", key);
      /* deviations: mean sqrt(1/12 / N) = 0.00113, variance sqrt(1/180 / N) = 0.00029, lag 1/12 / sqrt N = 0.00033 */
      CHECKF(fabs(mean - 0.5) < 5 * 0.00113, "key %d: mean %g", key, mean);
      CHECKF(fabs(square - 1 / 12.0) < 5 * 0.00029, "key %d: variance %g", key, square);
      CHECKF(fabs(lag) < 5 * 0.00033, "key %d: lag %g", key, lag);
   }

   /* One bit of the key changes half of the bits: 32 on average, deviation 4 / sqrt(64 rounds of each) = 0.5. */
   for (int part = 0; part < 3; ++part)
      for (int bit = 0; bit < 64; ++bit) {
         int changed = 0;
         for (uint64_t i = 0; i < 64; ++i) {
            uint64_t key[3] = {i, stream + i, i}, flip = (uint64_t)1 << bit;
            uint64_t a = mod_random_bits(key[0], key[1], key[2]);
            key[part] ^= flip;
            for (uint64_t d = a ^ mod_random_bits(key[0], key[1], key[2]); d; d &= d - 1) ++changed;
         }
         CHECKF(fabs(changed / 64.0 - 32) < 3, "part %d, bit %d: %g", part, bit, changed / 64.0);
      }

   /* Moments of the normal. Deviations of the sample's: sqrt(1, 2, 15, 96 over M), where 15 = E z^6, 96 = var z^4. */
   enum { M = 1 << 18 };
   for (int key = 0; key < 3; ++key) {
      double m[5] = {0, 0, 0, 0, 0}, within = 0, largest = 0;
      for (uint64_t i = 0; i < M; ++i) {
         double x = mod_random_normal(key == 2 ? i : 9, key == 1 ? i : stream, key == 0 ? i : 3);
         for (int p = 1; p <= 4; ++p) m[p] += pow(x, p) / M;
         within += fabs(x) < 1;
         largest = fmax(largest, fabs(x));
      }
      CHECKF(fabs(m[1]) < 5 * sqrt(1.0 / M), "key %d: mean %g", key, m[1]);
      CHECKF(fabs(m[2] - 1) < 5 * sqrt(2.0 / M), "key %d: variance %g", key, m[2]);
      CHECKF(fabs(m[3]) < 5 * sqrt(15.0 / M), "key %d: third %g", key, m[3]);
      CHECKF(fabs(m[4] - 3) < 5 * sqrt(96.0 / M), "key %d: fourth %g", key, m[4]);
      CHECKF(fabs(within / M - 0.682689) < 5 * sqrt(0.2166 / M), "key %d: within one deviation %g", key, within / M);
      CHECKF(largest > 3.5 && largest < 6.8, "key %d: largest %g", key, largest);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Sampling
   ------------------------------------------------------------------------------------------------------------------ */

enum { V_MAX = 64 };

/* Exact probabilities: temperature, then top-k, then top-p on what is left. */
static void exact_probabilities(const float *logit, int n, const mod_sample_desc *how, double *p)
{
   int order[V_MAX], k = how->top_k > 0 && how->top_k < n ? how->top_k : n;
   double sum = 0, reached = 0, largest = -HUGE_VAL;
   for (int i = 0; i < n; ++i) { /* likeliest first, the lower id among equals */
      int at = i;
      for (; at > 0 && logit[order[at - 1]] < logit[i]; --at) order[at] = order[at - 1];
      order[at] = i;
      p[i] = 0;
      largest = fmax(largest, (double)logit[i]);
   }
   for (int i = 0; i < k; ++i) sum += exp(((double)logit[order[i]] - largest) / how->temperature);
   for (int i = 0; i < k; ++i) {
      p[order[i]] = exp(((double)logit[order[i]] - largest) / how->temperature) / sum;
      reached += p[order[i]];
      if (how->top_p > 0 && reached >= how->top_p) break;
   }
   for (int i = 0; i < n; ++i) p[i] /= reached;
}

/* Draws against exact probabilities. Index runs, or with by_seed the seed. */
static void compare_draws(const float *logit, int n, mod_sample_desc how, int by_seed, const char *what)
{
   enum { DRAWS = 20000 };
   int count[V_MAX] = {0}, classes = 0, impossible = 0;
   double p[V_MAX], chi = 0, rare_p = 0, rare = 0;
   exact_probabilities(logit, n, &how, p);
   for (int i = 0; i < DRAWS; ++i) {
      uint64_t index = by_seed ? 4 : (uint64_t)i;
      how.seed = by_seed ? (uint64_t)i : 11;
      int id = mod_sample(logit, n, &how, index, NULL);
      if (id < 0 || id >= n || p[id] == 0) {
         ++impossible;
         continue;
      }
      ++count[id];
   }
   for (int i = 0; i < n; ++i) { /* rare ids are pooled: chi-squared wants five or more of each */
      double want = p[i] * DRAWS;
      if (want < 5) {
         rare += count[i];
         rare_p += want;
      } else {
         chi += (count[i] - want) * (count[i] - want) / want;
         ++classes;
      }
   }
   if (rare_p >= 5) {
      chi += (rare - rare_p) * (rare - rare_p) / rare_p;
      ++classes;
   }
   CHECKF(impossible == 0, "%s: %d outside of what is allowed", what, impossible);
   CHECKF(classes > 1, "%s", what);
   /* mean classes - 1, deviation sqrt(2 (classes - 1)), and a long tail: about one false alarm in 10^6 */
   double dof = classes - 1;
   CHECKF(chi < dof + 6 * sqrt(2 * dof) + 8, "%s: chi-squared %g for %g", what, chi, dof);
}

static mod_sample_desc sampling(double temperature, int top_k, double top_p)
{
   mod_sample_desc how = {0};
   how.temperature = temperature;
   how.top_k = top_k;
   how.top_p = top_p;
   return how;
}

static void test_sample(void)
{
   float logit[V_MAX], tied[V_MAX];
   mod_error err;
   for (int i = 0; i < V_MAX; ++i) logit[i] = (float)(2 * test_normal());
   for (int i = 0; i < V_MAX; ++i) tied[i] = (float)(test_below(4));

   for (int by_seed = 0; by_seed < 2; ++by_seed) {
      compare_draws(logit, V_MAX, sampling(1, 0, 0), by_seed, "temperature 1");
      compare_draws(logit, V_MAX, sampling(0.5, 0, 0), by_seed, "temperature 0.5");
      compare_draws(logit, V_MAX, sampling(3, 0, 0), by_seed, "temperature 3");
      compare_draws(logit, V_MAX, sampling(1, 5, 0), by_seed, "top-k 5");
      compare_draws(logit, V_MAX, sampling(1, 1000, 0), by_seed, "top-k above n");
      compare_draws(logit, V_MAX, sampling(1, 0, 0.8), by_seed, "top-p 0.8");
      compare_draws(logit, V_MAX, sampling(2, 0, 0.5), by_seed, "top-p 0.5 at temperature 2");
      compare_draws(logit, V_MAX, sampling(0.7, 20, 0.9), by_seed, "all three");
      compare_draws(logit, V_MAX, sampling(1, 0, 1), by_seed, "top-p 1");
      compare_draws(tied, V_MAX, sampling(1, 7, 0), by_seed, "top-k 7 among ties");
      compare_draws(tied, V_MAX, sampling(1, 0, 0.21), by_seed, "top-p among ties");
      compare_draws(logit, 2, sampling(1, 0, 0), by_seed, "two ids");
   }

   /* Greedy: temperature 0, NULL, top_k = 1, a tiny top_p; whatever the seed and index. Ties: the lower id. */
   int wrong = 0;
   for (int round = 0; round < 500; ++round) {
      int n = 1 + test_below(V_MAX), best = 0;
      for (int i = 0; i < n; ++i) logit[i] = round & 1 ? (float)test_below(3) : (float)test_normal();
      if (round % 7 == 0) logit[test_below(n)] = -INFINITY;
      if (n == 1) logit[0] = -3;
      for (int i = 1; i < n; ++i)
         if (logit[i] > logit[best]) best = i;
      mod_sample_desc how[4] = {sampling(0, 0, 0), sampling(1.5, 1, 0), sampling(1, 0, 1e-9), sampling(0, 9, 0.9)};
      for (int h = 0; h < 4; ++h) {
         how[h].seed = test_bits();
         wrong += mod_sample(logit, n, &how[h], test_bits(), &err) != best || err.code != MOD_RESULT_OK;
      }
      wrong += mod_sample(logit, n, NULL, 0, NULL) != best;
   }
   CHECKF(wrong == 0, "%d", wrong);

   /* -0 ties with +0; ids at -inf are never drawn; huge logits do not overflow. */
   float zero[3] = {-0.0f, 0.0f, -0.0f};
   CHECK(mod_sample(zero, 3, NULL, 0, NULL) == 0);
   float some[4] = {-INFINITY, 1.0f, -INFINITY, 0.5f};
   compare_draws(some, 4, sampling(1, 0, 0), 0, "-inf");
   float huge[4] = {3e38f, -3e38f, 3e38f, 0.0f};
   compare_draws(huge, 4, sampling(1, 0, 0), 0, "huge");
   mod_sample_desc warm = sampling(1, 0, 0);
   float up[3] = {0.0f, INFINITY, 5.0f}; /* no distribution comes of it */
   CHECK(mod_sample(up, 3, NULL, 0, &err) == -1 && err.code == MOD_RESULT_NUMERIC && err.where == 1);
   CHECK(mod_sample(up, 3, &warm, 0, &err) == -1 && err.code == MOD_RESULT_NUMERIC && err.where == 1);

   /* Many ties at the edge of top-p and top-k: the lower ids stay in. */
   static float flat[1000];
   mod_sample_desc some_p = sampling(1, 0, 0.25), some_k = sampling(1, 250, 0);
   int largest_p = 0, largest_k = 0;
   for (uint64_t i = 0; i < 300; ++i) { /* the largest of 300 draws from 250: below 235 with a chance of 1e-8 */
      int p = mod_sample(flat, 1000, &some_p, i, NULL), k = mod_sample(flat, 1000, &some_k, i, NULL);
      if (p > largest_p) largest_p = p;
      if (k > largest_k) largest_k = k;
   }
   CHECKF(largest_p < 250 && largest_p >= 235, "%d", largest_p);
   CHECKF(largest_k < 250 && largest_k >= 235, "%d", largest_k);

   /* The draw is a function of (seed, index), and depends on both. */
   for (int i = 0; i < V_MAX; ++i) logit[i] = 0;
   int same_seed = 0, same_index = 0;
   for (uint64_t i = 0; i < 1000; ++i) {
      warm.seed = 5;
      int a = mod_sample(logit, V_MAX, &warm, i, NULL);
      int b = mod_sample(logit, V_MAX, &warm, i + 1, NULL);
      CHECK(mod_sample(logit, V_MAX, &warm, i, NULL) == a);
      warm.seed = 6;
      same_index += a == b;
      same_seed += a == mod_sample(logit, V_MAX, &warm, i, NULL);
   }
   CHECKF(same_index < 50 && same_seed < 50, "%d %d of 1000, 16 expected", same_index, same_seed);

   /* Refused: NaN wherever it is, nothing above -inf. */
   for (int at = 0; at < 8; ++at)
      for (int h = 0; h < 4; ++h) {
         mod_sample_desc how = h == 0 ? sampling(0, 0, 0) : h == 1 ? sampling(1, 0, 0) : h == 2 ? sampling(1, 3, 0)
                                                                                               : sampling(1, 0, 0.5);
         for (int i = 0; i < 8; ++i) logit[i] = (float)i;
         logit[at] = NAN;
         CHECK(mod_sample(logit, 8, &how, 1, &err) == -1 && err.code == MOD_RESULT_NUMERIC && err.where == at);
         for (int i = 0; i < 8; ++i) logit[i] = -INFINITY;
         CHECK(mod_sample(logit, 8, &how, 1, &err) == -1 && err.code == MOD_RESULT_NUMERIC);
      }
   CHECK(mod_sample(logit, 0, NULL, 0, &err) == -1 && err.code == MOD_RESULT_ARG);
}

int main(void)
{
   test_floats();
   test_doubles();
   test_random();
   test_sample();
   return test_end();
}
