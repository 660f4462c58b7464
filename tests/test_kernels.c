/* Every kernel at every level that this processor has, against plain loops written here, bit for bit: awkward lengths,
   places that are not aligned, arrays that end where a page begins that must not be touched, adversarial numbers. */
#define _GNU_SOURCE
#define MOD_IMPLEMENTATION
#define MOD_STATIC
#include "../mod.h"
#include "test.h"
#if defined(__unix__) && !defined(__wasi__)
#include <sys/mman.h>
#include <unistd.h>
#endif

static mod_simd level; /* under test */

/* One step of a chain: c + a b, rounded twice, or once where this build fuses. */
static mod_real step(mod_real c, mod_real a, mod_real b)
{
#if defined(MOD_FAST_FMA) && !defined(MOD_USE_DOUBLE)
   if (level > MOD_SIMD_SSE2 && level != MOD_SIMD_WASM128) return fmaf(a, b, c);
#endif
   return c + a * b;
}

/* n numbers that end at a guard page where the system has such, else at the end of an allocation; fresh() takes all
   back. */
#if defined(__unix__) && !defined(__wasi__)
enum { POOL = 16 << 20 };
static char *pool, *pool_end; /* pieces are taken from its end, a page of guard behind each */

static void fresh(void)
{
   if (!pool) pool = (char *)mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   if (pool == (char *)MAP_FAILED || mprotect(pool, POOL, PROT_READ | PROT_WRITE) != 0) exit(2);
   pool_end = pool + POOL;
}

static mod_real *guarded(size_t n)
{
   size_t bytes = n * sizeof(mod_real), page = (size_t)sysconf(_SC_PAGESIZE);
   char *end = pool_end - page;
   pool_end = end - (bytes + page - 1) / page * page;
   if (pool_end < pool || mprotect(end, page, PROT_NONE) != 0) exit(2);
   return (mod_real *)(void *)(end - bytes);
}
#else
enum { PIECES = 256 };
static void *piece[PIECES];
static int pieces;

static void fresh(void)
{
   while (pieces > 0) free(piece[--pieces]);
}

static mod_real *guarded(size_t n)
{
   if (pieces == PIECES || !(piece[pieces] = malloc(n * sizeof(mod_real) + 1))) exit(2);
   return (mod_real *)piece[pieces++];
}
#endif

enum { USUAL, SPECIAL };
/* Usual: normal. Special: also huge, tiny, denormal, zeros of both signs, infinite; NaN only where said. */
static void fill(mod_real *x, size_t n, int kind, int nan)
{
   static const double odd[] = {0.0,   -0.0, 1e-45,  -1e-40, 1.1754944e-38, 3.4e38, -3.4e38,
                                88.7, -103.9, -87.4, 1e-20,  20,            -20};
   for (size_t i = 0; i < n; ++i) {
      x[i] = (mod_real)test_normal();
      if (kind == SPECIAL && test_below(4) == 0) x[i] = (mod_real)odd[test_below((int)(sizeof odd / sizeof *odd))];
      if (kind == SPECIAL && test_below(40) == 0) x[i] = (mod_real)(test_below(2) ? HUGE_VAL : -HUGE_VAL);
      if (nan && test_below(40) == 0) x[i] = (mod_real)NAN;
   }
}

/* The same bits; a NaN is a NaN: its sign and payload are not promised. */
static int same(const mod_real *a, const mod_real *b, size_t n)
{
   for (size_t i = 0; i < n; ++i)
      if (memcmp(a + i, b + i, sizeof *a) != 0 && !(a[i] != a[i] && b[i] != b[i])) return 0;
   return 1;
}

static mod_real *copy(const mod_real *x, size_t n)
{
   mod_real *y = guarded(n);
   if (n) memcpy(y, x, n * sizeof *x);
   return y;
}

static void rows_and_maps(const mod__kernels *use)
{
   const mod__kernels *plain = &mod__plain_kernels;
   static const size_t lengths[] = {1,  2,  3,  7,  8,  9,  15,  16,  17,  31,  32,  33,
                                    47, 48, 63, 64, 65, 127, 255, 256, 257, 1000, 4097};
   for (size_t l = 0; l < sizeof lengths / sizeof *lengths; ++l)
      for (int kind = USUAL; kind <= SPECIAL; ++kind)
         for (int trial = 0; trial < 4; ++trial) {
            size_t n = lengths[l];
            mod_real *x, *y, *e, *f, a, b;
            fresh();
            x = guarded(n), y = guarded(n), e = guarded(n), f = guarded(n);
            fill(x, n, kind, 0);
            a = use->largest(x, n), b = plain->largest(x, n);
            CHECKF(a == b, "largest %s %d", mod_simd_name(level), (int)n);
            fill(x, n, kind, trial & 1);
            fill(y, n, kind, trial & 1);
            a = use->sum(x, n), b = plain->sum(x, n);
            CHECKF(same(&a, &b, 1), "sum %s %d", mod_simd_name(level), (int)n);
            a = use->dot(x, y, n), b = plain->dot(x, y, n);
            CHECKF(same(&a, &b, 1), "dot %s %d", mod_simd_name(level), (int)n);
            for (int how = 0; how < 3; ++how) { /* to another place, over itself, to nowhere */
               memcpy(e, x, n * sizeof *e);
               memcpy(f, x, n * sizeof *f);
               a = use->exp_row(how == 2 ? NULL : e, how == 1 ? e : x, n, (mod_real)1.5, (mod_real)0.7);
               b = plain->exp_row(how == 2 ? NULL : f, how == 1 ? f : x, n, (mod_real)1.5, (mod_real)0.7);
               CHECKF(same(&a, &b, 1) && same(e, f, n), "exp_row %s %d", mod_simd_name(level), (int)n);
            }
            for (int map = 0; map < MOD__N_MAPS; ++map)
               for (int k = MOD_GATE_RAW; k <= (map == MOD__MAP_gate ? MOD_GATE_ONE : MOD_GATE_RAW); ++k) {
                  mod_real *de = guarded(n), *df;
                  use->map[map].forward(e, x, n, (mod_real)0.2, k);
                  plain->map[map].forward(f, x, n, (mod_real)0.2, k);
                  CHECKF(same(e, f, n), "map %d %s %d", map, mod_simd_name(level), (int)n);
                  fill(de, n, USUAL, 0);
                  df = copy(de, n);
                  use->map[map].dx(de, y, x, f, n, (mod_real)0.2, k);
                  plain->map[map].dx(df, y, x, f, n, (mod_real)0.2, k);
                  CHECKF(same(de, df, n), "map %d backward %s %d", map, mod_simd_name(level), (int)n);
               }
         }
#ifndef MOD_USE_DOUBLE
   for (uint32_t first = 0; first < 97; ++first) /* floats of every exponent and sign */
      for (int map = 0; map < MOD__N_MAPS; ++map) {
         static float x[1024], a[1024], b[1024];
         for (uint32_t i = 0; i < 1024; ++i) x[i] = mod__from_bits((first * 1024 + i) * 43237u);
         use->map[map].forward(a, x, 1024, 3, MOD_GATE_TANH);
         plain->map[map].forward(b, x, 1024, 3, MOD_GATE_TANH);
         CHECKF(same(a, b, 1024), "map %d over all floats, %s", map, mod_simd_name(level));
      }
#endif
}

static void adam(const mod__kernels *use)
{
   for (size_t n = 1; n < 70; ++n) {
      mod_real *start[4], *now[4];
      mod__adam a;
      fresh();
      memset(&a, 0, sizeof a);
      a.clip = (mod_real)0.5, a.b1 = (mod_real)0.9, a.b2 = (mod_real)0.95;
      a.one_b1 = (mod_real)0.1, a.one_b2 = (mod_real)0.05;
      a.step = (mod_real)0.01, a.v_scale = (mod_real)1.3, a.eps = (mod_real)1e-8, a.decay = (mod_real)1e-4;
      for (int i = 0; i < 4; ++i) {
         start[i] = guarded(n);
         fill(start[i], n, USUAL, 0);
         for (size_t j = 0; i == 2 && j < n; ++j) start[i][j] *= start[i][j];
      }
      for (int twin = 0; twin < 2; ++twin) {
         mod_real *x[4];
         for (int i = 0; i < 4; ++i) x[i] = copy(start[i], n);
         a.p = x[0], a.m = x[1], a.v = x[2], a.g = x[3], a.n = n;
         (twin ? &mod__plain_kernels : use)->adam_step(&a, n / 5, n);
         for (int i = 0; i < 4 && twin; ++i) CHECKF(same(now[i], x[i], n), "adam %s %d", mod_simd_name(level), (int)n);
         for (int i = 0; i < 4; ++i) now[i] = x[i];
      }
   }
}

static void reversed(mod_task task, void *arg, int n, void *user)
{
   (void)user;
   while (n-- > 0) task(arg, n);
}

static mod_tape *tape_of(int threads, int backwards)
{
   mod_tape_desc desc;
   mod_error err;
   mod_tape *t;
   memset(&desc, 0, sizeof desc);
   desc.n_threads = threads;
   desc.simd = level;
   if (backwards) desc.jobs.run = reversed;
   t = mod_tape_create(&desc, (size_t)64 << 20, NULL, &err);
   if (!t) exit(2);
   return t;
}

/* C (+)= A B, A B^T or A^T B: element by element, one chain */
static void product(mod_real *c, const mod_real *a, size_t a_row, size_t a_col, const mod_real *b, size_t b_row,
                    size_t b_col, int m, int n, int k)
{
   for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
         mod_real *sum = c + i * n + j;
         for (int q = 0; q < k; ++q)
            *sum = step(*sum, a[(size_t)i * a_row + (size_t)q * a_col], b[(size_t)q * b_row + (size_t)j * b_col]);
      }
}

static void matmul(int form, int m, int n, int k, int threads, int kind)
{
   size_t na = (size_t)m * (size_t)k, nb = (size_t)k * (size_t)n, nc = (size_t)m * (size_t)n;
   mod_real *a, *b, *da, *db, *want, *wa, *wb;
   mod_tape *t = tape_of(threads, threads == 3);
   int a_dim[2], b_dim[2];
   mod_tensor *c, *w, *loss;
   mod_error err;
   fresh();
   a = guarded(na), b = guarded(nb), da = guarded(na), db = guarded(nb), want = guarded(nc);
   fill(a, na, kind, 0), fill(b, nb, kind, 0), fill(da, na, USUAL, 0), fill(db, nb, USUAL, 0);
   wa = copy(da, na), wb = copy(db, nb);
   a_dim[0] = form == 2 ? k : m, a_dim[1] = form == 2 ? m : k;
   b_dim[0] = form == 1 ? n : k, b_dim[1] = form == 1 ? k : n;
   {
      mod_tensor *x = mod_leaf(t, a, da, 2, a_dim), *y = mod_leaf(t, b, db, 2, b_dim);
      c = form == 0 ? mod_matmul(t, x, y) : form == 1 ? mod_matmul_nt(t, x, y) : mod_matmul_tn(t, x, y);
   }
   if (!c) exit(2);
   for (size_t i = 0; i < nc; ++i) want[i] = 0;
   {
      size_t M = (size_t)m, N = (size_t)n, K = (size_t)k, ar = form == 2 ? 1 : K, ac = form == 2 ? M : 1;
      size_t br = form == 1 ? 1 : N, bc = form == 1 ? K : 1;
      mod_real *dc = guarded(nc);
      int c_dim[2];
      product(want, a, ar, ac, b, br, bc, m, n, k);
      CHECKF(same(c->data, want, nc), "%s form %d %dx%dx%d threads %d", mod_simd_name(level), form, m, n, k, threads);
      fill(dc, nc, USUAL, 0);
      c_dim[0] = m, c_dim[1] = n;
      w = mod_leaf(t, dc, NULL, 2, c_dim);
      loss = mod_sum(t, mod_mul(t, c, w));
      if (mod_tape_backward(t, loss, &err)) exit(2);
      { /* in the layout of the gradient: rows of A as it is stored */
         mod_real *g = guarded(na), *h = guarded(nb);
         for (int i = 0; i < m; ++i)
            for (int q = 0; q < k; ++q) g[i * k + q] = wa[(size_t)i * ar + (size_t)q * ac];
         product(g, c->grad, N, 1, b, bc, br, m, k, n);
         for (int i = 0; i < m; ++i)
            for (int q = 0; q < k; ++q) wa[(size_t)i * ar + (size_t)q * ac] = g[i * k + q];
         for (int q = 0; q < k; ++q)
            for (int j = 0; j < n; ++j) h[q * n + j] = wb[(size_t)q * br + (size_t)j * bc];
         product(h, a, ac, ar, c->grad, N, 1, k, n, m);
         for (int q = 0; q < k; ++q)
            for (int j = 0; j < n; ++j) wb[(size_t)q * br + (size_t)j * bc] = h[q * n + j];
      }
      CHECKF(same(da, wa, na), "%s dA form %d %dx%dx%d", mod_simd_name(level), form, m, n, k);
      CHECKF(same(db, wb, nb), "%s dB form %d %dx%dx%d", mod_simd_name(level), form, m, n, k);
   }
   mod_tape_destroy(t);
}

static void products(void)
{
   static const int edges[] = {1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47};
   const int n_edges = (int)(sizeof edges / sizeof *edges);
   for (int form = 0; form < 3; ++form) {
      for (int trial = 0; trial < 150; ++trial)
         matmul(form, edges[test_below(n_edges)], edges[test_below(n_edges)], edges[test_below(n_edges)],
                1 + test_below(3), trial % 3 == 0 ? SPECIAL : USUAL);
      matmul(form, 97, 65, 385, 1, USUAL); /* across the borders of blocks; shared among threads */
      matmul(form, 193, 130, 64, 3, USUAL);
      matmul(form, 40, 400, 100, 2, USUAL);
      matmul(form, 1, 384, 400, 2, USUAL);
   }
   for (int form = 0; form < 3; ++form)
      for (int zero = 0; zero < 3; ++zero)
         matmul(form, zero == 0 ? 0 : 5, zero == 1 ? 0 : 4, zero == 2 ? 0 : 3, 2, USUAL);
}

/* --- attention, query by query, as the design has it --- */

typedef struct shape {
   int n_seqs, length, heads, kv_heads, hd, q_subset, kv_subset, causal, threads;
} shape;

/* out[j] for the n keys that the query sees: a chain over the head dimension */
static void scores(mod_real *out, const mod_real *x, const mod_real *keys, size_t width, int n, int hd)
{
   for (int j = 0; j < n; ++j) {
      out[j] = 0;
      for (int c = 0; c < hd; ++c) out[j] = step(out[j], x[c], keys[(size_t)j * width + (size_t)c]);
   }
}

static mod_rows *choose(mod_tape *t, const mod_rows *rows, int subset)
{
   mod_tensor *score;
   mod_real *s;
   int dim[2];
   if (!subset) return (mod_rows *)rows;
   s = guarded((size_t)rows->n);
   fill(s, (size_t)rows->n, USUAL, 0);
   dim[0] = rows->n, dim[1] = 1;
   score = mod_leaf(t, s, NULL, 2, dim);
   return mod_rows_threshold(t, rows, score, 0.0);
}

static void attention(shape s, int poison)
{
   mod_tape *t = tape_of(s.threads, s.threads == 3);
   mod_rows *rows = mod_rows_make(t, s.n_seqs, s.length, NULL), *qr, *kr;
   size_t qw = (size_t)(s.heads * s.hd), kw = (size_t)(s.kv_heads * s.hd), nq, nk;
   int q_dim[2], k_dim[2];
   mod_real *q, *k, *v, *dq, *dk, *dv, *wq, *wk, *wv, *out, *p, *ds, scale;
   mod_tensor *y;
   mod_error err;
   fresh();
   qr = choose(t, rows, s.q_subset);
   kr = choose(t, rows, s.kv_subset);
   if (!qr || !kr) exit(2);
   nq = (size_t)qr->n * qw, nk = (size_t)kr->n * kw;
   q = guarded(nq), k = guarded(nk), v = guarded(nk), out = guarded(nq);
   dq = guarded(nq), dk = guarded(nk), dv = guarded(nk);
   fill(q, nq, USUAL, 0), fill(k, nk, USUAL, 0), fill(v, nk, USUAL, 0);
   fill(dq, nq, USUAL, 0), fill(dk, nk, USUAL, 0), fill(dv, nk, USUAL, 0);
   if (poison && kr->n) k[nk - 1] = v[nk - 1] = (mod_real)NAN; /* of the last key: only the last queries see it */
   wq = copy(dq, nq), wk = copy(dk, nk), wv = copy(dv, nk);
   q_dim[0] = qr->n, q_dim[1] = (int)qw, k_dim[0] = kr->n, k_dim[1] = (int)kw;
   {
      mod_tensor *Q = mod_leaf(t, q, dq, 2, q_dim), *K = mod_leaf(t, k, dk, 2, k_dim);
      mod_tensor *V = mod_leaf(t, v, dv, 2, k_dim), *w = mod_leaf(t, copy(q, nq), NULL, 2, q_dim);
      y = mod_attention(t, Q, K, V, qr, kr, s.heads, s.kv_heads, s.causal ? MOD_MASK_CAUSAL : MOD_MASK_FULL);
      if (!y || mod_tape_backward(t, mod_sum(t, mod_mul(t, y, w)), &err)) exit(2);
   }
   p = (mod_real *)malloc((size_t)(s.length + 1) * 2 * sizeof *p);
   if (!p) exit(2);
   ds = p + s.length + 1;
   scale = 1 / (mod_real)sqrt((double)s.hd); /* rounded once or twice: the same for small whole numbers */
   for (int b = 0; b < s.n_seqs; ++b)
      for (int h = 0; h < s.heads; ++h)
         for (int i = qr->start[b]; i < qr->start[b + 1]; ++i) {
            const int k0 = kr->start[b], per = s.heads / s.kv_heads, hd = s.hd;
            const size_t at = (size_t)i * qw + (size_t)(h * hd), kv = (size_t)k0 * kw + (size_t)(h / per * hd);
            int n = 0;
            mod_real m, inverse, D;
            while (k0 + n < kr->start[b + 1] && (!s.causal || kr->position[k0 + n] <= qr->position[i])) ++n;
            for (int c = 0; c < hd; ++c) out[at + (size_t)c] = 0;
            if (n == 0) continue;
            scores(p, q + at, k + kv, kw, n, hd);
            m = mod__largest(p, (size_t)n);
            inverse = 1 / mod__exp_row(p, p, (size_t)n, m, scale);
            for (int c = 0; c < hd; ++c) {
               mod_real sum = 0;
               for (int j = 0; j < n; ++j) sum = step(sum, p[j], v[kv + (size_t)j * kw + (size_t)c]);
               out[at + (size_t)c] = sum * inverse;
            }
            D = mod__dot(y->grad + at, out + at, (size_t)hd);
            scores(ds, y->grad + at, v + kv, kw, n, hd);
            for (int j = 0; j < n; ++j) {
               p[j] *= inverse;
               ds[j] = p[j] * (ds[j] - D) * scale;
               for (int c = 0; c < hd; ++c) {
                  const size_t x = kv + (size_t)j * kw + (size_t)c;
                  wv[x] = step(wv[x], p[j], y->grad[at + (size_t)c]);
                  wk[x] = step(wk[x], ds[j], q[at + (size_t)c]);
                  wq[at + (size_t)c] = step(wq[at + (size_t)c], ds[j], k[x]);
               }
            }
         }
   CHECKF(same(y->data, out, nq), "attention %s hd %d length %d", mod_simd_name(level), s.hd, s.length);
   CHECKF(same(dq, wq, nq), "dq %s hd %d length %d", mod_simd_name(level), s.hd, s.length);
   CHECKF(same(dk, wk, nk), "dk %s hd %d length %d", mod_simd_name(level), s.hd, s.length);
   CHECKF(same(dv, wv, nk), "dv %s hd %d length %d", mod_simd_name(level), s.hd, s.length);
   if (poison && s.causal && s.length > 1 && !s.q_subset && !s.kv_subset) { /* nothing before the last row is touched */
      int clean = 1;
      for (size_t i = 0; i < (size_t)(s.length - 1) * qw; ++i) clean &= y->data[i] == y->data[i];
      CHECKF(clean, "a NaN in the future leaks, %s hd %d length %d", mod_simd_name(level), s.hd, s.length);
   }
   free(p);
   mod_tape_destroy(t);
}

static void attentions(void)
{
   static const int hds[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64};
   static const int lengths[] = {1, 2, 5, 6, 7, 23, 24, 25, 31, 33, 49, 71};
   for (int trial = 0; trial < 160; ++trial) {
      shape s;
      s.hd = hds[test_below(11)];
      s.length = lengths[test_below(12)];
      s.kv_heads = 1 + test_below(2);
      s.heads = s.kv_heads * (1 + test_below(3));
      s.n_seqs = 1 + test_below(2);
      s.q_subset = test_below(3) == 0;
      s.kv_subset = test_below(3) == 0;
      s.causal = test_below(4) != 0;
      s.threads = 1 + test_below(3);
      attention(s, trial % 4 == 0);
   }
}

int main(void)
{
   mod_error err;
   for (int l = MOD_SIMD_SCALAR; l <= MOD_SIMD_WASM128; ++l) {
      mod_tape_desc desc;
      static unsigned char memory[4096];
      level = (mod_simd)l;
      memset(&desc, 0, sizeof desc);
      desc.simd = level;
      if (!mod__has_level(level)) {
         CHECK(!mod_tape_init(&desc, memory, sizeof memory, &err) && err.code == MOD_RESULT_ARG);
         test_skip(mod_simd_name(level), "not in this build, or not in this processor");
         continue;
      }
      CHECK(mod_tape_init(&desc, memory, sizeof memory, &err) != NULL);
      rows_and_maps(mod__level(level));
      adam(mod__level(level));
      products();
      attentions();
   }
   CHECK(mod__has_level(mod_simd_best()) && !mod__has_level((mod_simd)99) && !mod__has_level((mod_simd)-1));
   CHECK(strstr(mod_build_info(), mod_simd_name(mod_simd_best())) != NULL);
   return test_end();
}
