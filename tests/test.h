/* test.h - the smallest harness that can fail: counts checks, prints those that fail, closes with one line. */
#ifndef TEST_H
#define TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_passed, test_failed, test_skipped;

#define CHECK(ok) test_check((ok) ? 1 : 0, #ok, __FILE__, __LINE__, "")
/* The same with a printf-style explanation, printed when it fails. */
#define CHECKF(ok, ...)                                       \
   do {                                                       \
      const int test_ok_ = (ok) ? 1 : 0;                      \
      char test_text_[256] = "";                              \
      if (!test_ok_) snprintf(test_text_, sizeof test_text_, __VA_ARGS__); \
      test_check(test_ok_, #ok, __FILE__, __LINE__, test_text_); \
   } while (0)

static int test_check(int ok, const char *expr, const char *file, int line, const char *text)
{
   if (ok) {
      ++test_passed;
   } else {
      ++test_failed;
      printf("FAILED %s:%d: %s %s\n", file, line, expr, text);
      fflush(stdout);
   }
   return ok;
}

static inline void test_skip(const char *what, const char *why)
{
   ++test_skipped;
   printf("skipped %s: %s\n", what, why);
}

/* The closing line; main returns this. */
static inline int test_end(void)
{
   printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
   return test_failed || !test_passed;
}

/* FNV-1a of the bytes of n floats, each little-endian: the same on every machine. */
static inline uint64_t test_hash_f32(const float *x, size_t n)
{
   uint64_t h = 14695981039346656037ull;
   for (size_t i = 0; i < n; ++i) {
      uint32_t bits;
      memcpy(&bits, x + i, 4);
      for (int b = 0; b < 4; ++b) h = (h ^ ((bits >> (8 * b)) & 255u)) * 1099511628211ull;
   }
   return h;
}

static inline uint64_t test_hash_int(const int *x, size_t n)
{
   uint64_t h = 14695981039346656037ull;
   for (size_t i = 0; i < n; ++i)
      for (int b = 0; b < 4; ++b) h = (h ^ (((uint32_t)x[i] >> (8 * b)) & 255u)) * 1099511628211ull;
   return h;
}

/* An exact pseudo-random stream for test data, independent of the library under test. */
static uint64_t test_state = 88172645463325252ull;
static inline uint64_t test_bits(void)
{
   test_state ^= test_state << 13;
   test_state ^= test_state >> 7;
   test_state ^= test_state << 17;
   return test_state;
}
static inline double test_uniform(void) { return (double)(test_bits() >> 11) / 9007199254740992.0; }
static inline int test_below(int n) { return (int)(test_bits() % (uint64_t)n); }
/* Roughly normal: mean 0, deviation 1 (a sum of twelve uniforms). */
static inline double test_normal(void)
{
   double s = -6;
   for (int i = 0; i < 12; ++i) s += test_uniform();
   return s;
}

#endif
