/* test_text.c - examples/common/text.h: windows, splits, files, errors. */
#include "../examples/common/text.h"
#include "test.h"

#if defined(__unix__) || defined(__APPLE__)
#define HAVE_POSIX
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { MAX_TEXT = 4096, MAX_LENGTH = 64 };

static char folder[256] = ".";
static char names[8][300];
static unsigned char content[MAX_TEXT];

/* File i of the test folder, with n bytes of content from `from` on. */
static const char *put(int i, int from, int n)
{
   snprintf(names[i], sizeof names[i], "%s/text%d", folder, i);
   FILE *f = fopen(names[i], "wb");
   CHECK(f && fwrite(content + from, 1, (size_t)n, f) == (size_t)n);
   if (f) CHECK(fclose(f) == 0);
   return names[i];
}

static text_desc in_memory(int n)
{
   text_desc desc;
   memset(&desc, 0, sizeof desc);
   desc.bytes = content; desc.n_bytes = (size_t)n;
   return desc;
}

/* Which file and part owns each byte, worked out from the documented rule: 3 * file + part. */
static void owners(const int *sizes, int n_files, const int *shares, int together, int *owner)
{
   int sum = shares[0] + shares[1] + shares[2], total = 0, done = 0;
   for (int f = 0; f < n_files; ++f) total += sizes[f];
   for (int f = 0; f < n_files; ++f) {
      for (int i = 0; i < sizes[f]; ++i) {
         int at = together ? done + i : i, size = together ? total : sizes[f];
         int part = at < size * shares[0] / sum ? 0 : at < size * (shares[0] + shares[1]) / sum ? 1 : 2;
         owner[done + i] = 3 * f + part;
      }
      done += sizes[f];
   }
}

/* Reads every position of t: exactly the windows within one part of one file can be read, text_starts counts them, and
   their bytes are right. */
static void every_window(const text_corpus *t, const int *owner, int length)
{
   int tokens[MAX_LENGTH + 1], targets[MAX_LENGTH + 1], wrong = 0;
   uint64_t starts[3] = {0, 0, 0};
   for (int p = 0; p < (int)t->n_bytes + 2; ++p) {
      int allowed = p + length < (int)t->n_bytes;
      for (int i = 1; allowed && i <= length; ++i) allowed = owner[p + i] == owner[p];
      tokens[length] = targets[length] = -7;
      int got = text_read(t, (uint64_t)p, length, tokens, targets, NULL);
      wrong += got != allowed || tokens[length] != -7 || targets[length] != -7;
      if (!got) continue;
      ++starts[owner[p] % 3];
      for (int i = 0; i < length; ++i) wrong += tokens[i] != content[p + i] || targets[i] != content[p + i + 1];
   }
   CHECKF(!wrong, "%d positions wrong at length %d", wrong, length);
   for (int part = 0; part < 3; ++part) CHECK(text_starts(t, part, length) == starts[part]);
}

/* text_spread: for each n in order, no byte a target twice; for n = all, every tile. */
static void every_tile(const text_corpus *t, const int *owner, int length)
{
   static unsigned char used[MAX_TEXT];
   for (int part = 0; part < 3; ++part) {
      uint64_t all = text_windows(t, part, length), wrong = 0, sum = 0;
      for (int i = 0, n = 0; i < (int)t->n_bytes; ++i) {
         n = i && owner[i] == owner[i - 1] ? n + 1 : 0;
         if (owner[i] % 3 == part && n && n % length == 0) ++sum;
      }
      CHECK(all == sum);
      CHECK(text_spread(t, part, length, 0, all + 1) == TEXT_NONE && text_spread(t, part, length, 0, 0) == TEXT_NONE);
      CHECK(text_spread(t, part, length, all, all) == TEXT_NONE);
      for (uint64_t n = 1; n <= all; n += 1 + all / 9) {
         uint64_t last = 0;
         memset(used, 0, sizeof used);
         for (uint64_t i = 0; i < n; ++i) {
            uint64_t p = text_spread(t, part, length, i, n);
            if (p >= t->n_bytes || (i && p <= last)) {
               ++wrong;
               continue;
            }
            last = p;
            for (int j = 0; j <= length; ++j) wrong += owner[p + (uint64_t)j] != owner[p] || owner[p] % 3 != part;
            for (int j = 1; j <= length; ++j) wrong += used[p + (uint64_t)j]++;
         }
      }
      CHECKF(!wrong, "part %d length %d: %d wrong", part, length, (int)wrong);
   }
}

/* Draws: all within the part, every start reached. */
static void every_start(const text_corpus *t, const int *owner, int length)
{
   static int seen[MAX_TEXT];
   for (int part = 0; part < 3; ++part) {
      uint64_t n = text_starts(t, part, length), reached = 0, wrong = 0;
      memset(seen, 0, sizeof seen);
      for (uint64_t i = 0; i < 20 * n; ++i) {
         uint64_t p = text_draw(t, part, length, 11, i);
         if (p >= t->n_bytes || owner[p] % 3 != part || owner[p + (uint64_t)length] != owner[p]) {
            ++wrong;
            continue;
         }
         reached += !seen[p]++;
      }
      CHECKF(!wrong && reached == n, "part %d length %d: %d of %d reached", part, length, (int)reached, (int)n);
      if (!n) CHECK(text_draw(t, part, length, 11, 0) == TEXT_NONE);
   }
}

/* Dealt: in each round every window comes once, and where it should lie. */
static void every_deal(const text_corpus *t, const int *owner, int length)
{
   static int seen[MAX_TEXT];
   for (int part = 0; part < 3; ++part) {
      uint64_t n = text_windows(t, part, length), wrong = 0;
      memset(seen, 0, sizeof seen);
      for (uint64_t i = 0; i < 3 * n; ++i) {
         uint64_t p = text_deal(t, part, length, 11, i);
         if (p >= t->n_bytes || owner[p] % 3 != part || owner[p + (uint64_t)length] != owner[p]) ++wrong;
         else wrong += seen[p]++ != (int)(i / n);
      }
      for (uint64_t i = 0; i < n; ++i) wrong += seen[text_spread(t, part, length, i, n)] != 3;
      CHECKF(!wrong, "part %d length %d: %d of %d wrong", part, length, (int)wrong, (int)n);
      if (!n) CHECK(text_deal(t, part, length, 11, 0) == TEXT_NONE);
   }
}

static void splits(void)
{
   static const int shares[][3] = {{90, 5, 5}, {18, 1, 1}, {1, 0, 0}, {0, 1, 0}, {1, 1, 1}, {7, 0, 3}, {0, 3, 5}};
   static const int sizes[][4] = {{300, 0, 0, 0}, {1, 0, 200, 90}, {37, 150, 5, 61}, {2, 2, 2, 2}, {19, 20, 21, 22}};
   static const int lengths[] = {1, 2, 7, 16};
   int owner[MAX_TEXT];
   for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
      for (size_t h = 0; h < sizeof shares / sizeof shares[0]; ++h)
         for (int kind = 0; kind < 4; ++kind) {
            const char *paths[4];
            text_desc desc;
            text_corpus t;
            int at = 0;
            memset(&desc, 0, sizeof desc);
            for (int f = 0; f < 4; ++f) {
               paths[f] = put(f, at, sizes[s][f]);
               at += sizes[s][f];
            }
            desc.paths = paths; desc.n_paths = 4; desc.stream = kind & 1; desc.together = kind >> 1;
            for (int p = 0; p < 3; ++p) desc.shares[p] = shares[h][p];
            if (!CHECK(text_open(&t, &desc, NULL))) continue;
            CHECK(t.n_bytes == (uint64_t)at && (t.bytes == NULL) == (kind & 1));
            owners(sizes[s], 4, shares[h], kind >> 1, owner);
            for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; ++l) {
               every_window(&t, owner, lengths[l]);
               every_tile(&t, owner, lengths[l]);
               if (h < 2 || h == 4) {
                  every_start(&t, owner, lengths[l]);
                  every_deal(&t, owner, lengths[l]);
               }
            }
            text_close(&t);
            text_close(&t);
            CHECK(!t.files && !t.owned);
         }
}

/* The cut is floor(size * share / sum), for sizes beyond 2^53 too. */
static void cuts(void)
{
   uint64_t at[4];
   int usual[3] = {90, 5, 5}, large[3] = {1 << 30, 1 << 30, 1 << 30}, odd[3] = {1, 2, 4};
   text__cut(1000, 1999, usual, at);
   CHECK(at[0] == 1000 && at[1] == 1899 && at[2] == 1949 && at[3] == 1999);
   text__cut(0, INT64_MAX, large, at);
   CHECK(at[1] == 3074457345618258602u && at[2] == 6148914691236517204u && at[3] == INT64_MAX);
   text__cut(0, INT64_MAX, odd, at);
   CHECK(at[1] == 1317624576693539401u && at[2] == 3952873730080618203u && at[3] == INT64_MAX);
   text_desc desc = in_memory(1000); /* the default shares */
   text_corpus t;
   CHECK(text_open(&t, &desc, NULL));
   CHECK(text_starts(&t, TEXT_TRAIN, 10) == 890 && text_starts(&t, TEXT_VALIDATION, 10) == 40);
   CHECK(text_starts(&t, TEXT_TEST, 49) == 1 && text_starts(&t, TEXT_TEST, 50) == 0);
   CHECK(text_starts(&t, TEXT_TRAIN, 0) == 0 && text_starts(&t, TEXT_TRAIN, -1) == 0 && text_starts(&t, 3, 1) == 0 &&
         text_starts(&t, -1, 1) == 0 && text_starts(&t, TEXT_TRAIN, INT_MAX) == 0);
   CHECK(text_windows(&t, TEXT_TRAIN, 10) == 89);
   for (uint64_t n = 2; n <= 89; ++n) /* spread evenly: to a window, and to both ends */
      for (uint64_t i = 0; i < n; ++i) {
         double ideal = 890.0 / (double)n * (double)i, p = (double)text_spread(&t, TEXT_TRAIN, 10, i, n);
         CHECK(p <= ideal && p > ideal - 10);
      }
   text_close(&t);
}

/* Shuffled: where one window went says nothing about the next, the next round, or the next seed. Then known values. */
static void deals(void)
{
   enum { N = 1000, CELLS = 5 };
   static int pair[3][CELLS * CELLS];
   text_desc desc = in_memory(N + 1);
   desc.shares[0] = 1;
   text_corpus t;
   CHECK(text_open(&t, &desc, NULL) && text_windows(&t, 0, 1) == N);
   for (uint64_t i = 0; i < 50 * N; ++i) {
      uint64_t other[3] = {text_deal(&t, 0, 1, 5, i + 1), text_deal(&t, 0, 1, 5, i + N), text_deal(&t, 0, 1, 6, i)};
      for (int k = 0; k < 3; ++k) ++pair[k][text_deal(&t, 0, 1, 5, i) * CELLS / N * CELLS + other[k] * CELLS / N];
   }
   for (int k = 0; k < 3; ++k) {
      double chi = 0;
      for (int i = 0; i < CELLS * CELLS; ++i) chi += (pair[k][i] - 2000) * (pair[k][i] - 2000) / 2000.0;
      CHECKF(chi > 1 && chi < 60, "chi-squared %g of 16 to 24", chi);
   }
   static const uint64_t known[] = {527, 562, 594, 613, 390, 303, 440, 721};
   uint64_t got[8];
   for (int i = 7; i >= 0; --i) got[i] = text_deal(&t, 0, 1, (uint64_t)(i / 4) << 60, (uint64_t)i << 8 * (i % 4));
   CHECKF(!memcmp(known, got, sizeof got), "%d, %d, %d, %d, %d, %d, %d, %d", (int)got[0], (int)got[1], (int)got[2],
          (int)got[3], (int)got[4], (int)got[5], (int)got[6], (int)got[7]);

   /* Up to 2^62 windows; the corpus is made up. */
   for (int bits = 0; bits <= 62; ++bits) {
      t.files[0].at[1] = t.files[0].at[2] = t.files[0].at[3] = ((uint64_t)1 << bits) + 1;
      uint64_t p = text_deal(&t, 0, 1, 5, 0);
      CHECKF(p >> bits == 0 && (bits < 8 || p != text_deal(&t, 0, 1, 6, 0)), "2^%d windows", bits);
   }
   text_close(&t);
}

/* Uniform: chi-squared over all starts, and over pairs of neighbours. Then known values: the same on any machine. */
static void draws(void)
{
   enum { N = 500 };
   static int count[N], pair[25];
   text_desc desc = in_memory(N + 10);
   desc.shares[0] = 1;
   text_corpus t;
   CHECK(text_open(&t, &desc, NULL) && text_starts(&t, 0, 10) == N);
   double chi = 0, chi2 = 0;
   for (uint64_t i = 0; i < 200 * N; ++i) {
      ++count[text_draw(&t, 0, 10, 5, i)];
      ++pair[text_draw(&t, 0, 10, 5, i) / 100 * 5 + text_draw(&t, 0, 10, 5 + i % 2, i + 1) / 100];
   }
   for (int i = 0; i < N; ++i) chi += (count[i] - 200) * (count[i] - 200) / 200.0;
   for (int i = 0; i < 25; ++i) chi2 += (pair[i] - 4000) * (pair[i] - 4000) / 4000.0;
   CHECKF(chi > 350 && chi < 660, "chi-squared %g of 499", chi); /* five deviations */
   CHECKF(chi2 > 4 && chi2 < 60, "chi-squared %g of 24", chi2);

   static const uint64_t known[] = {55, 160, 124, 252, 487, 232, 450, 159};
   uint64_t got[8];
   for (int i = 7; i >= 0; --i) got[i] = text_draw(&t, 0, 10, (uint64_t)(i / 4) << 60, (uint64_t)i << 8 * (i % 4));
   CHECKF(!memcmp(known, got, sizeof got), "%d, %d, %d, %d, %d, %d, %d, %d", (int)got[0], (int)got[1], (int)got[2],
          (int)got[3], (int)got[4], (int)got[5], (int)got[6], (int)got[7]);

   /* 3 * 2^61 starts: a quarter of all 64-bit values is ragged. The corpus is made up; nothing is read. */
   int third[3] = {0, 0, 0};
   t.files[0].at[1] = t.files[0].at[2] = t.files[0].at[3] = ((uint64_t)3 << 61) + 1;
   for (uint64_t i = 0; i < 30000; ++i) ++third[text_draw(&t, 0, 1, 5, i) >> 61];
   for (int i = 0; i < 3; ++i) CHECKF(third[i] > 9600 && third[i] < 10400, "%d of 30000", third[i]);
   text_close(&t);
}

/* A text larger than the chunks in which it is read and hashed: memory, files, streams give the same. */
static void same(void)
{
   enum { N = 40000, LENGTH = 9000 };
   static unsigned char bytes[N];
   static int tokens[3][LENGTH], targets[3][LENGTH];
   const char *paths[2];
   text_corpus t[3];
   text_desc desc;
   uint64_t hash = 0;
   for (int i = 0; i < N; ++i) bytes[i] = (unsigned char)test_bits();
   for (int f = 0; f < 2; ++f) {
      paths[f] = put(f, 0, 0);
      FILE *out = fopen(paths[f], "wb");
      CHECK(out && fwrite(bytes + (f ? 17000 : 0), 1, f ? 23000 : 17000, out) && !fclose(out));
   }
   for (int i = 0; i < 3; ++i) {
      memset(&desc, 0, sizeof desc);
      desc.paths = paths; desc.n_paths = 2; desc.stream = i; desc.shares[0] = 7; desc.shares[1] = 3;
      if (i == 2) {
         memset(&desc, 0, sizeof desc);
         desc.bytes = bytes; desc.n_bytes = N;
      }
      if (!CHECK(text_open(&t[i], &desc, NULL))) return;
   }
   int wrong = 0;
   for (uint64_t i = 0; i < 50; ++i) {
      uint64_t p = text_draw(&t[0], TEXT_TRAIN, LENGTH, 1, i);
      CHECK(p == text_draw(&t[1], TEXT_TRAIN, LENGTH, 1, i) && p != TEXT_NONE);
      for (int k = 0; k < 3; ++k) {
         int got = text_read(&t[k], p, LENGTH, tokens[k], targets[k], NULL);
         if (k < 2 && !got) ++wrong;
         if (got) wrong += memcmp(tokens[0], tokens[k], sizeof tokens[0]) != 0;
         if (got) wrong += memcmp(targets[0], targets[k], sizeof targets[0]) != 0;
      }
   }
   CHECK(!wrong);
   uint64_t want = 14695981039346656037u;
   for (int i = 0; i < N; ++i) want = (want ^ bytes[i]) * 1099511628211u;
   for (int i = 0; i < 3; ++i) {
      CHECK(text_hash(&t[i], &hash, NULL) && hash == want);
      text_close(&t[i]);
   }
   desc.bytes = "foobar"; desc.n_bytes = 6; /* the published value */
   CHECK(text_open(&t[0], &desc, NULL) && text_hash(&t[0], &hash, NULL) && hash == 0x85944171f73967e8u);
   text_close(&t[0]);
}

static void refused(const text_desc *desc, const char *part_of_message, int code)
{
   text_corpus t;
   text_error err = {NULL, -1, NULL};
   memset(&t, 1, sizeof t);
   CHECK(!text_open(&t, desc, NULL));
   CHECK(!text_open(&t, desc, &err));
   CHECKF(err.message && strstr(err.message, part_of_message) && (code == -1 || err.code == code), "%s (%d)",
          err.message ? err.message : "", err.code);
   CHECK(!t.files && !t.owned && !t.n_files);
}

static void errors(void)
{
   const char *paths[3];
   text_corpus t;
   text_error err;
   int tokens[8], targets[8];
   text_desc none, desc = in_memory(100), both = desc, negative = desc, empty = desc;
   memset(&none, 0, sizeof none);
   refused(&none, "either files or bytes", 0);
   both.paths = paths; both.n_paths = 1;
   refused(&both, "either files or bytes", 0);
   negative.shares[1] = -1;
   refused(&negative, "share", 0);
   negative.shares[1] = INT_MAX;
   refused(&negative, "share", 0);
   empty.n_bytes = 0;
   refused(&empty, "empty", 0);

   for (int stream = 0; stream < 2; ++stream) {
      memset(&desc, 0, sizeof desc);
      desc.paths = paths; desc.stream = stream; desc.n_paths = 3;
      paths[0] = put(0, 0, 100); paths[1] = put(1, 0, 0); paths[2] = "no such file";
      refused(&desc, "cannot open", ENOENT);
      CHECK(!text_open(&t, &desc, &err) && err.path == paths[2]);
      desc.n_paths = 2;
      CHECK(text_open(&t, &desc, &err)); /* an empty file beside another */
      CHECK(!text_read(&t, TEXT_NONE, 4, tokens, targets, &err) && strstr(err.message, "no such window") && !err.code);
      CHECK(!text_read(&t, UINT64_MAX - 2, 4, tokens, targets, NULL));
      CHECK(!text_read(&t, 0, 0, tokens, targets, NULL) && !text_read(&t, 0, -4, tokens, targets, NULL));
      CHECK(!text_read(&t, 0, INT_MAX, tokens, targets, NULL));
      text_close(&t);
      paths[0] = paths[1];
      refused(&desc, "empty", 0);
      desc.n_paths = 1;
      refused(&desc, "empty", 0);
      paths[0] = folder;
      refused(&desc, "cannot", -1);
      CHECK(!text_open(&t, &desc, &err) && err.path == folder && err.code);
   }
#if defined(HAVE_POSIX)
   /* A file that shrinks while it is open; one that grows. */
   memset(&desc, 0, sizeof desc);
   desc.paths = paths; desc.stream = desc.n_paths = desc.shares[0] = 1;
   paths[0] = put(0, 0, 100);
   uint64_t hash = 0, again = 0;
   CHECK(text_open(&t, &desc, NULL) && text_hash(&t, &hash, NULL));
   put(0, 0, 200);
   CHECK(text_hash(&t, &again, NULL) && again == hash && t.n_bytes == 100);
   CHECK(text_read(&t, 80, 8, tokens, targets, NULL));
   CHECK(truncate(paths[0], 85) == 0);
   CHECK(!text_read(&t, 80, 8, tokens, targets, &err) && strstr(err.message, "shorter") && err.path == paths[0]);
   CHECK(text_read(&t, 70, 8, tokens, targets, &err) && tokens[7] == content[77] && targets[7] == content[78]);
   CHECK(!text_hash(&t, &hash, &err) && strstr(err.message, "shorter"));
   text_close(&t);
   paths[0] = "/dev/zero"; /* endless; Linux says that it is empty */
   if (access("/dev/zero", R_OK)) test_skip("a device as text", "there is no /dev/zero");
#if defined(__linux__)
   else refused(&desc, "not as long", 0);
#else
   else refused(&desc, "", -1);
#endif
#else
   test_skip("a file that shrinks while it is open", "not a POSIX system");
#endif
}

/* More than 4 GiB, nearly all of it a hole: windows at the end, streamed. */
static void huge(void)
{
#if defined(HAVE_POSIX)
   static const uint64_t size = ((uint64_t)1 << 32) + 100000;
   if (sizeof(off_t) < 8) {
      test_skip("a file of 4 GiB", "offsets have 32 bits");
      return;
   }
   const char *paths[2] = {NULL, NULL};
   paths[0] = put(0, 0, 10); paths[1] = put(1, 10, 100);
   FILE *f = fopen(paths[0], "r+b");
   struct stat s;
   int ok = f && !fseeko(f, (off_t)(size - 20), SEEK_SET) && fwrite(content, 1, 20, f) == 20;
   if (f && fclose(f)) ok = 0;
   if (!ok || stat(paths[0], &s) || (uint64_t)s.st_size != size || s.st_blocks > 10000) {
      test_skip("a file of 4 GiB", "this file system has no holes, or not such files");
      put(0, 0, 0);
      return;
   }
   text_desc desc;
   text_corpus t;
   int tokens[19], targets[19], wrong = 0;
   memset(&desc, 0, sizeof desc);
   desc.paths = paths; desc.n_paths = 2; desc.stream = 1; desc.shares[2] = 1;
   CHECK(text_open(&t, &desc, NULL) && t.n_bytes == size + 100);
   CHECK(text_starts(&t, TEXT_TEST, 19) == size - 19 + 100 - 19);
   CHECK(text_read(&t, size - 20, 19, tokens, targets, NULL));
   for (int i = 0; i < 19; ++i) wrong += tokens[i] != content[i] || targets[i] != content[i + 1];
   CHECK(text_read(&t, size, 19, tokens, targets, NULL)); /* the second file */
   for (int i = 0; i < 19; ++i) wrong += tokens[i] != content[10 + i] || targets[i] != content[11 + i];
   CHECK(!text_read(&t, size - 19, 19, tokens, targets, NULL)); /* across both */
   int beyond = 0;
   for (uint64_t i = 0; i < 200; ++i) {
      uint64_t p = text_draw(&t, TEXT_TEST, 19, 3, i);
      CHECK(text_read(&t, p, 19, tokens, targets, NULL));
      beyond += p >> 31 != 0;
      if (p > 30 && p < size - 40) wrong += tokens[0] != 0 || targets[18] != 0;
   }
   CHECK(beyond > 70 && beyond < 130 && !wrong);
   uint64_t n = text_windows(&t, TEXT_TEST, 19);
   CHECK(n == (size - 1) / 19 + 99 / 19 && text_spread(&t, TEXT_TEST, 19, n - 1, n) == size + 4 * 19);
   text_close(&t);
   desc.stream = 0;
   if (sizeof(size_t) < 8) refused(&desc, "can be streamed", ENOMEM);
   put(0, 0, 0);
#else
   test_skip("a file of 4 GiB", "not a POSIX system");
#endif
}

static int lowest_handle(void)
{
#if defined(HAVE_POSIX)
   FILE *f = tmpfile();
   int handle = f ? fileno(f) : -1;
   if (f) fclose(f);
   return handle;
#else
   return 0;
#endif
}

int main(void)
{
   for (int i = 0; i < MAX_TEXT; ++i) content[i] = (unsigned char)test_bits();
#if defined(HAVE_POSIX)
   const char *tmp = getenv("TMPDIR");
   snprintf(folder, sizeof folder, "%.200s/modtext.XXXXXX", tmp && *tmp ? tmp : "/tmp");
   if (!mkdtemp(folder)) {
      test_skip("text.h", "cannot make a temporary folder");
      return test_end();
   }
#endif
   int before = lowest_handle();
   splits();
   cuts();
   draws();
   deals();
   same();
   errors();
   huge();
   CHECK(lowest_handle() == before); /* all files are closed */
   for (int i = 0; i < 8; ++i)
      if (names[i][0]) remove(names[i]);
#if defined(HAVE_POSIX)
   CHECK(rmdir(folder) == 0);
#endif
   return test_end();
}
