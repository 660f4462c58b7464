/* bench.h - measuring on a machine that is not quiet: clock, peaks, interleaved turns, JSON

   A row is one thing measured, perhaps beside others (its sides). The sides take turns: ours, peer, ours, peer, ...;
   what one of them leaves spinning has stopped before the next begins. The machine's own speed, multiply-adds and
   reading memory, is measured right before and right after each row with as many threads: if the multiply-adds
   differ, or are far below what they once were, something else was running, and the row is done again.

   Include it after mod.h. POSIX, C99.
*/
#ifndef BENCH_H
#define BENCH_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#define BENCH_OMP(words) _Pragma(#words)
#else
#define BENCH_OMP(words)
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { BENCH_TURNS = 10, BENCH_LEAST = 3, BENCH_TRIES = 5 };
static const double BENCH_DIFFER = 0.05;  /* two peaks that differ by more: something else was running */
static const double BENCH_LOST = 0.2;     /* both peaks that much below the best so far: it ran all the time */
static const double BENCH_TURN = 0.02;    /* seconds that a turn takes at least: short things run several times in it */
static double bench_spare = HUGE_VAL;     /* seconds left for doing rows again */
static double bench_end = HUGE_VAL;       /* by bench_clock: from then on three turns must do */

static void bench_fail(const char *message)
{
   fflush(stdout);
   fprintf(stderr, "bench: %s\n", message);
   exit(1);
}

static void *bench_alloc(size_t size)
{
   void *memory = malloc(size);
   if (!memory) bench_fail("out of memory");
   return memory;
}

/* ---- clock ------------------------------------------------------------------------------------------------------- */

static double bench_clock(void)
{
   struct timespec t;
   clock_gettime(CLOCK_MONOTONIC, &t);
   return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of processor time of all threads of this process. */
static double bench_cpu(void)
{
   struct timespec t;
   clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
   return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits until the threads of this process have gone to sleep, at most 0.4 s: OpenBLAS's workers and OpenMP's spin for a
   while after their work, and would take a core from whoever runs next. */
static void bench_quiet(void)
{
   const struct timespec pause = {0, 2000000};
   for (int i = 0; i < 200; ++i) {
      double cpu = bench_cpu(), t = bench_clock();
      nanosleep(&pause, NULL);
      if (bench_cpu() - cpu < 0.1 * (bench_clock() - t)) return;
   }
}

/* ---- what the machine can do ------------------------------------------------------------------------------------- */

/* Twelve independent chains a = a x + y: enough for two units whose results take six cycles. */
#define BENCH_EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define BENCH_START(i) a##i = START(1 + i); /* different, or the compiler makes one of them */
#define BENCH_STEP(i) a##i = STEP(a##i);
#define BENCH_SUM(i) y = ADD(y, a##i);
#define BENCH_CHAINS(vector)                                                                  \
   vector x = START(0.5f), y = START(0.25f), a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11; \
   BENCH_EACH(BENCH_START)                                                                    \
   for (; n > 0; n -= 4) {                                                                    \
      BENCH_EACH(BENCH_STEP) BENCH_EACH(BENCH_STEP) BENCH_EACH(BENCH_STEP) BENCH_EACH(BENCH_STEP) \
   }                                                                                          \
   BENCH_EACH(BENCH_SUM)

#if defined(__x86_64__) && defined(__GNUC__)
#define START _mm512_set1_ps
#define STEP(a) _mm512_fmadd_ps(a, x, y)
#define ADD _mm512_add_ps
__attribute__((target("avx512f"), noinline)) static void bench_avx512(long n, float *out)
{
   BENCH_CHAINS(__m512)
   _mm512_storeu_ps(out, y);
}
#undef START
#undef STEP
#undef ADD
#define START _mm256_set1_ps
#define STEP(a) _mm256_fmadd_ps(a, x, y)
#define ADD _mm256_add_ps
__attribute__((target("avx2,fma"), noinline)) static void bench_avx2(long n, float *out)
{
   BENCH_CHAINS(__m256)
   _mm256_storeu_ps(out, y);
}
#undef START
#undef STEP
#undef ADD
#define START _mm_set1_ps
#define STEP(a) _mm_add_ps(_mm_mul_ps(a, x), y)
#define ADD _mm_add_ps
__attribute__((noinline)) static void bench_sse2(long n, float *out)
{
   BENCH_CHAINS(__m128)
   _mm_storeu_ps(out, y);
}
#elif defined(__aarch64__)
#define START vdupq_n_f32
#define STEP(a) vfmaq_f32(y, a, x)
#define ADD vaddq_f32
__attribute__((noinline)) static void bench_neon(long n, float *out)
{
   BENCH_CHAINS(float32x4_t)
   vst1q_f32(out, y);
}
#endif
#undef START
#undef STEP
#undef ADD

typedef void (*bench_chains)(long n, float *out);

static volatile long bench_count; /* read after the first clock and ... */
static volatile double bench_keep; /* ... written before the last, so that the compiler leaves the work between them */

/* Most floating-point operations a second that `threads` threads did at once in a few milliseconds of this. */
static double bench_rate(bench_chains chains, int lanes, int threads)
{
   const long n = 400000;
   double best = 0;
   bench_count = n;
   for (int burst = 0; burst < 10; ++burst) {
      double first = HUGE_VAL, last = 0;
      BENCH_OMP(omp parallel num_threads(threads) reduction(min:first) reduction(max:last))
      {
         float out[16];
         BENCH_OMP(omp barrier)
         first = bench_clock();
         chains(bench_count, out);
         bench_keep = out[0];
         last = bench_clock();
      }
      best = fmax(best, 2.0 * 12 * lanes * (double)n * threads / (last - first));
   }
   return best;
}

/* Peak of an instruction set: the best of what belongs to it. 0: none is known. */
static double bench_flops(mod_simd level, int threads)
{
   switch ((int)level) {
#if defined(__x86_64__) && defined(__GNUC__)
   case MOD_SIMD_AVX512: return fmax(bench_rate(bench_avx512, 16, threads), bench_rate(bench_avx2, 8, threads));
   case MOD_SIMD_AVX2: return bench_rate(bench_avx2, 8, threads);
   case MOD_SIMD_SSE2: return bench_rate(bench_sse2, 4, threads);
#elif defined(__aarch64__)
   case MOD_SIMD_NEON: return bench_rate(bench_neon, 4, threads);
#endif
   default: return 0;
   }
}

/* Bytes a second that threads read from an array larger than most caches. */
static double bench_reading(int threads)
{
   enum { BYTES = 1 << 27 };
   static uint64_t *data;
   const long n = BYTES / 8 / threads / 8 * 8; /* numbers a thread */
   double best = 0;
   if (!data) memset(data = (uint64_t *)bench_alloc(BYTES), 1, BYTES);
   bench_count = n;
   for (int pass = 0; pass < 3; ++pass) {
      double first = HUGE_VAL, last = 0;
      BENCH_OMP(omp parallel num_threads(threads) reduction(min:first) reduction(max:last))
      {
#ifdef _OPENMP
         const uint64_t *at = data + n * omp_get_thread_num();
#else
         const uint64_t *at = data;
#endif
         uint64_t a = 0, b = 0, c = 0, d = 0;
         BENCH_OMP(omp barrier)
         first = bench_clock();
         for (long i = 0, end = bench_count; i < end; i += 8) {
            a += at[i] ^ at[i + 1];
            b += at[i + 2] ^ at[i + 3];
            c += at[i + 4] ^ at[i + 5];
            d += at[i + 6] ^ at[i + 7];
         }
         bench_keep = (double)(a + b + c + d);
         last = bench_clock();
      }
      best = fmax(best, 8.0 * (double)n * threads / (last - first));
   }
   return best;
}

typedef struct bench_peak {
   double flops, bytes; /* a second */
} bench_peak;

static bench_peak bench_peaks(mod_simd level, int threads)
{
   bench_peak p;
   bench_quiet();
   p.flops = bench_flops(level, threads);
   p.bytes = bench_reading(threads);
   return p;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

typedef struct bench_side {
   double (*run)(void *what); /* does it once; returns its seconds, or a NaN: it cannot go on */
   void *what;
   int once; /* 1: once in a turn, without a run to warm up, as where runs of one side prepare those of another */
   int turns; /* that it had */
   double time[BENCH_TURNS], best, median; /* seconds of a run in each turn */
} bench_side;

typedef struct bench_row {
   bench_peak before, after;
   double flops; /* the better of both */
   int tries, steady, turns;
} bench_row;

static int bench_ascending(const void *a, const void *b)
{
   double x = *(const double *)a, y = *(const double *)b;
   return (x > y) - (x < y);
}

static double bench_median(const double *x, int n)
{
   double sorted[BENCH_TURNS];
   memcpy(sorted, x, (size_t)n * sizeof *x);
   qsort(sorted, (size_t)n, sizeof *x, bench_ascending);
   return 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
}

static int bench_turns(bench_side *side, int n_sides, int most)
{
   double about[8]; /* seconds that a run takes */
   int turn = 0;
   for (int s = 0; s < n_sides; ++s) about[s] = side[s].run(side[s].what); /* first touch of everything */
   for (; turn < most && (turn < BENCH_LEAST || bench_clock() < bench_end); ++turn)
      for (int s = 0; s < n_sides; ++s) {
         int runs = side[s].once || !(about[s] < BENCH_TURN) ? 1 : (int)(BENCH_TURN / fmax(about[s], 1e-6)) + 1;
         double sum = 0;
         bench_quiet();
         if (!side[s].once && about[s] < 0.05) side[s].run(side[s].what); /* wakes threads, fills caches */
         for (int i = 0; i < runs; ++i) sum += side[s].run(side[s].what);
         about[s] = side[s].time[turn] = sum / runs;
      }
   for (int s = 0; s < n_sides; ++s) {
      side[s].turns = turn;
      side[s].best = side[s].median = bench_median(side[s].time, turn);
      for (int i = 0; i < turn; ++i) side[s].best = fmin(side[s].best, side[s].time[i]);
   }
   return turn;
}

/* Runs a row between two measurements of the peaks, again while these differ and there is time for it. */
static bench_row bench_measure(bench_side *side, int n_sides, int turns, mod_simd level, int threads)
{
   static double most[16][65]; /* flops so far, by level and threads */
   double *best = &most[level][threads < 64 ? threads : 64];
   bench_row row = {{0, 0}, {0, 0}, 0, 0, 0, 0};
   for (double began = bench_clock(), now; row.tries < BENCH_TRIES && !row.steady; began = now) {
      row.before = bench_peaks(level, threads);
      row.turns = bench_turns(side, n_sides, turns);
      row.after = bench_peaks(level, threads);
      row.flops = fmax(row.before.flops, row.after.flops);
      *best = fmax(*best, row.flops);
      row.steady = fabs(row.before.flops - row.after.flops) <= BENCH_DIFFER * row.flops &&
                   row.flops >= (1 - BENCH_LOST) * *best;
      now = bench_clock();
      if (row.tries++) bench_spare -= now - began;
      if (bench_spare < now - began || now > bench_end) break;
   }
   return row;
}

/* ---- geometric means --------------------------------------------------------------------------------------------- */

typedef struct bench_mean {
   double sum_log, least;
   int n;
} bench_mean;

static void bench_add(bench_mean *m, double x)
{
   m->least = m->n++ ? fmin(m->least, x) : x;
   m->sum_log += log(x);
}

static double bench_of(const bench_mean *m) { return m->n ? exp(m->sum_log / m->n) : NAN; }

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static FILE *bench_json; /* NULL: none is written */
static int bench_json_rows;

static void json_text(const char *key, const char *text)
{
   if (!bench_json) return;
   fprintf(bench_json, ", \"%s\": \"", key);
   for (; *text; ++text)
      if ((unsigned char)*text >= ' ') fprintf(bench_json, strchr("\"\\", *text) ? "\\%c" : "%c", *text);
   fputc('"', bench_json);
}

static void json_number(const char *key, double x)
{
   if (bench_json) fprintf(bench_json, isfinite(x) ? ", \"%s\": %.9g" : ", \"%s\": null", key, x);
}

static void json_begin(const char *row)
{
   if (bench_json) fprintf(bench_json, "%s\n      {\"row\": \"%s\"", bench_json_rows++ ? "," : "", row);
}

static void json_end(void)
{
   if (bench_json) fputc('}', bench_json), fflush(bench_json);
}

/* Seconds of a side: best, median and each turn's. */
static void json_side(const char *key, const bench_side *side)
{
   if (!bench_json) return;
   fprintf(bench_json, ", \"%s\": {\"best\": %.6g, \"median\": %.6g, \"turns\": [", key, side->best, side->median);
   for (int i = 0; i < side->turns; ++i) fprintf(bench_json, i ? ", %.6g" : "%.6g", side->time[i]);
   fputs("]}", bench_json);
}

static void json_measured(const bench_row *row, mod_simd level, int threads)
{
   json_text("level", mod_simd_name(level));
   json_number("threads", threads);
   json_number("peak_flops_before", row->before.flops);
   json_number("peak_flops_after", row->after.flops);
   json_number("read_bytes_before", row->before.bytes);
   json_number("read_bytes_after", row->after.bytes);
   json_number("tries", row->tries);
   json_number("steady", row->steady);
}

/* ---- where it ran ------------------------------------------------------------------------------------------------ */

static const char *bench_cpu_model(void)
{
   static char line[256];
   FILE *f = fopen("/proc/cpuinfo", "r");
   char *colon = NULL;
   while (f && !colon && fgets(line, sizeof line, f))
      if (!strncmp(line, "model name", 10) && (colon = strchr(line, ':')) != NULL) colon[strcspn(colon, "\n")] = 0;
   if (f) fclose(f);
   return colon ? colon + 2 : "unknown";
}

static const char *bench_date(void)
{
   static char text[32];
   time_t now = time(NULL);
   strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
   return text;
}

static double bench_load(void)
{
   double load[1];
   return getloadavg(load, 1) == 1 ? load[0] : NAN;
}

#endif
