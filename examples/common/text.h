/* text.h - text as bytes, for training language models: files, splits, windows. Needs libc only.

   Include it before any system header, or define _FILE_OFFSET_BITS as 64 yourself: on 32-bit systems files above 2 GiB
   need that; and with -std=c99 it asks the system for fseeko. All functions are static.

      const char *files[] = {"a.txt", "b.txt"};
      text_desc desc = {0};                              // in C++ write {}; zero means default
      desc.paths = files; desc.n_paths = 2;
      text_corpus text; text_error err;
      if (!text_open(&text, &desc, &err)) return puts(err.message);
      for (index = 0; index < 1000; ++index)             // 1000 random windows of the training part
         text_read(&text, text_draw(&text, TEXT_TRAIN, 128, seed, index), 128, tokens, targets, &err);
      for (i = 0; i < 64; ++i)                           // 64 fixed windows, spread over the validation part
         text_read(&text, text_spread(&text, TEXT_VALIDATION, 128, i, 64), 128, tokens, targets, &err);
      text_close(&text);

   A *position* counts bytes from the start of the first file, through all files in the order given. A *window* of
   length L at position p is L + 1 bytes: tokens p .. p+L-1 and targets p+1 .. p+L. It lies within one part of one file.

   Parts. Each file is cut in three: its first bytes train, the next validate, the last test. So all parts are of the
   same mixture of files, and no window of one part reads a byte of another, target or not. The price: a file whose
   validation part is shorter than a window adds nothing to validation. For many small files set `together`: the files
   are cut as if they were one, the held-out text is then of the last files only, and a file may lie across a cut.
   To use whole files as parts, open several corpora with the shares 1, 0, 0.

   Same on every machine: cuts, positions and windows are integer arithmetic. Threads: what is in memory may be read by
   several at once; a streamed corpus by one. Files should not change while a corpus is open: what is shorter than it
   was is an error, what was appended is not seen, other changes go unnoticed (compare text_hash). */
#ifndef TEXT_H
#define TEXT_H

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#if defined(__STRICT_ANSI__) && (defined(__linux__) || defined(__CYGWIN__)) && !defined(_POSIX_C_SOURCE) && \
   !defined(_XOPEN_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_NONE UINT64_MAX /* no position: there is no such window */

enum { TEXT_TRAIN, TEXT_VALIDATION, TEXT_TEST, TEXT_N_PARTS };

typedef struct text_desc {
   const char *const *paths; /* the files, in order; paths and names are not copied */
   int n_paths;
   const void *bytes; /* or, with n_paths 0, text in memory: one file; not copied */
   size_t n_bytes;
   int stream;   /* 0: files are read into memory; 1: they stay open, all of them, and are read window by window */
   int together; /* 0: each file is cut in three parts; 1: all of them as one */
   int shares[TEXT_N_PARTS]; /* of train, validation, test, as whole numbers: 18, 1, 1. All 0: 90, 5, 5 */
} text_desc;

typedef struct text_error {
   const char *message; /* a constant sentence */
   int code;            /* errno, or 0 if the system had no say */
   const char *path;    /* the file, or NULL */
} text_error;

typedef struct text_file {
   uint64_t at[TEXT_N_PARTS + 1]; /* part p is the positions at[p] .. at[p+1] - 1 */
   const char *path;              /* NULL: the caller's bytes */
   FILE *stream;                  /* NULL: in memory */
} text_file;

typedef struct text_corpus {
   uint64_t n_bytes;
   int n_files;
   text_file *files;
   const unsigned char *bytes; /* of all files; NULL if streamed */
   unsigned char *owned;       /* the same, if it is to be freed */
} text_corpus;

/* ---- plumbing ---------------------------------------------------------------------------------------------------- */

static inline int text__fail(text_error *err, const char *message, int code, const char *path)
{
   if (err) {
      err->message = message; err->code = code; err->path = path;
   }
   return 0;
}

static inline int text__seek(FILE *f, uint64_t offset, int whence)
{
#if defined(_WIN32)
   return _fseeki64(f, (__int64)offset, whence);
#elif defined(__unix__) || defined(__APPLE__)
   return fseeko(f, (off_t)offset, whence);
#else
   if (offset > LONG_MAX) return errno = ERANGE, -1;
   return fseek(f, (long)offset, whence);
#endif
}

static inline int64_t text__tell(FILE *f)
{
#if defined(_WIN32)
   return _ftelli64(f);
#elif defined(__unix__) || defined(__APPLE__)
   return ftello(f);
#else
   return ftell(f);
#endif
}

/* n bytes of a file, from `offset`. */
static inline int text__get(FILE *f, const char *path, uint64_t offset, unsigned char *to, size_t n, text_error *err)
{
   const size_t most = (size_t)1 << 30; /* some systems refuse to read more at once */
   clearerr(f);
   errno = 0;
   if (text__seek(f, offset, SEEK_SET)) return text__fail(err, "cannot seek in the file", errno, path);
   for (size_t done = 0, got; done < n; done += got) {
      size_t want = n - done < most ? n - done : most;
      got = fread(to + done, 1, want, f);
      if (got == want) continue;
      if (ferror(f)) return text__fail(err, "cannot read the file", errno, path);
      return text__fail(err, "the file is shorter than it was when it was opened", 0, path);
   }
   return 1;
}

/* Opens a file that can be read and sought in, and tells its size. NULL on failure. */
static inline FILE *text__open_file(const char *path, uint64_t *size, text_error *err)
{
   int64_t end = -1;
   int byte = EOF;
   errno = 0;
   FILE *f = fopen(path, "rb");
   if (!f) {
      text__fail(err, "cannot open the file", errno, path);
      return NULL;
   }
   setvbuf(f, NULL, _IONBF, 0); /* windows are read from the file, not from a copy of what it was */
   if (!text__seek(f, 0, SEEK_END)) end = text__tell(f);
   if (end < 0 || text__seek(f, end ? (uint64_t)end - 1 : 0, SEEK_SET)) {
      text__fail(err, "cannot tell the size of the file", errno, path);
   } else {
      byte = fgetc(f); /* the last one: a folder or a device may claim any size */
      if (ferror(f)) text__fail(err, "cannot read the file", errno, path);
      else if ((byte == EOF) != (end == 0)) text__fail(err, "the file is not as long as it says", 0, path);
      else return *size = (uint64_t)end, f;
   }
   fclose(f);
   return NULL;
}

/* n bytes from `position` on, all within file f: in memory, or read into `space`. NULL on failure. */
static inline const unsigned char *text__bytes(const text_corpus *t, const text_file *f, uint64_t position, size_t n,
                                               unsigned char *space, text_error *err)
{
   if (!f->stream) return t->bytes + position;
   return text__get(f->stream, f->path, position - f->at[0], space, n, err) ? space : NULL;
}

/* Cuts [start, end) in three. floor(size * share / sum) in integers, without overflow as shares are <= 2^30. */
static inline void text__cut(uint64_t start, uint64_t end, const int *shares, uint64_t *at)
{
   uint64_t size = end - start, sum = 0, before = 0;
   for (int p = 0; p < TEXT_N_PARTS; ++p) sum += (uint64_t)shares[p];
   at[0] = start;
   for (int p = 0; p < TEXT_N_PARTS; ++p) {
      before += (uint64_t)shares[p];
      at[p + 1] = start + size / sum * before + size % sum * before / sum;
   }
}

static inline uint64_t text__mix(uint64_t x) /* the finalizer of splitmix64 */
{
   x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
   x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
   return x ^ (x >> 31);
}

/* How many windows begin in a part, one at every `step` bytes of each file; *position: where the k-th of them does. */
static inline uint64_t text__find(const text_corpus *t, int part, int length, int step, uint64_t k, uint64_t *position)
{
   uint64_t all = 0, l = (uint64_t)length, s = (uint64_t)step;
   if (part < 0 || part >= TEXT_N_PARTS || length < 1) return 0;
   for (int i = 0; i < t->n_files; ++i) {
      uint64_t start = t->files[i].at[part], n = t->files[i].at[part + 1] - start;
      n = n <= l ? 0 : (n - l - 1) / s + 1;
      if (k >= all && k - all < n) *position = start + (k - all) * s;
      all += n;
   }
   return all;
}

/* ---- to use ------------------------------------------------------------------------------------------------------
   What returns an int returns 1, or 0 and fills *err (which may be NULL). */

/* Gives everything back. For a corpus that failed to open, or is zeroed, there is nothing to do. */
static inline void text_close(text_corpus *t)
{
   for (int i = 0; i < t->n_files; ++i)
      if (t->files[i].stream) fclose(t->files[i].stream);
   free(t->files);
   free(t->owned);
   memset(t, 0, sizeof *t);
}

/* The next file: read into memory, or left open. */
static inline int text__append(text_corpus *t, const char *path, int stream, text_error *err)
{
   uint64_t size = 0;
   FILE *f = text__open_file(path, &size, err);
   if (!f) return 0;
   text_file *file = &t->files[t->n_files++];
   file->path = path; file->stream = f; /* from here on text_close closes it */
   file->at[0] = t->n_bytes;
   if (size >= INT64_MAX - t->n_bytes) return text__fail(err, "the text has more than 2^63 bytes", 0, path);
   t->n_bytes += size;
   file->at[TEXT_N_PARTS] = t->n_bytes;
   if (stream) return 1;
   if (size) {
      unsigned char *more = t->n_bytes > SIZE_MAX / 2 ? NULL : (unsigned char *)realloc(t->owned, (size_t)t->n_bytes);
      if (!more) return text__fail(err, "the text does not fit in memory; it can be streamed", ENOMEM, path);
      t->bytes = t->owned = more;
      if (!text__get(f, path, 0, more + file->at[0], (size_t)size, err)) return 0;
   }
   fclose(f);
   file->stream = NULL;
   return 1;
}

/* Opens a corpus. Files may be empty; all of them, or one that is missing, or a folder, is an error. On failure there
   is nothing to close. */
static inline int text_open(text_corpus *t, const text_desc *desc, text_error *err)
{
   static const int usual[TEXT_N_PARTS] = {90, 5, 5};
   const int *shares = desc->shares;
   int n = desc->n_paths, ok = 1;
   uint64_t all[TEXT_N_PARTS + 1];
   memset(t, 0, sizeof *t);
   if (n < 0 || (n == 0) != !desc->paths || (n == 0) != !!desc->bytes)
      return text__fail(err, "a text is either files or bytes", 0, NULL);
   for (int p = 0; p < TEXT_N_PARTS; ++p)
      if (shares[p] < 0 || shares[p] > 1 << 30) return text__fail(err, "a share is not in 0 .. 2^30", 0, NULL);
   if (!shares[0] && !shares[1] && !shares[2]) shares = usual;
   t->files = (text_file *)calloc(n ? (size_t)n : 1, sizeof *t->files);
   if (!t->files) return text__fail(err, "no memory", ENOMEM, NULL);
   if (n == 0) {
      t->n_files = 1;
      t->bytes = (const unsigned char *)desc->bytes;
      t->n_bytes = t->files[0].at[TEXT_N_PARTS] = desc->n_bytes;
   }
   for (int i = 0; ok && i < n; ++i) ok = text__append(t, desc->paths[i], desc->stream, err);
   if (ok && t->n_bytes == 0) ok = text__fail(err, "the text is empty", 0, n == 1 ? desc->paths[0] : NULL);
   if (!ok) {
      text_close(t);
      return 0;
   }
   text__cut(0, t->n_bytes, shares, all);
   for (int i = 0; i < t->n_files; ++i) {
      uint64_t *at = t->files[i].at, start = at[0], end = at[TEXT_N_PARTS];
      if (desc->together)
         for (int p = 0; p <= TEXT_N_PARTS; ++p) at[p] = all[p] < start ? start : all[p] > end ? end : all[p];
      else text__cut(start, end, shares, at);
   }
   return 1;
}

/* How many windows of this length a part has, over all files. 0: none fits. */
static inline uint64_t text_starts(const text_corpus *t, int part, int length)
{
   uint64_t ignored;
   return text__find(t, part, length, 1, 0, &ignored);
}

/* How many it has side by side: each starts at the last target of the one before, so that no byte is a target twice. */
static inline uint64_t text_windows(const text_corpus *t, int part, int length)
{
   uint64_t ignored;
   return text__find(t, part, length, length, 0, &ignored);
}

/* The position of random window number `index`, uniform over all text_starts; TEXT_NONE if there is none. A pure
   function of the cuts, length, seed and index. No bias: values at the ragged end are drawn again. */
static inline uint64_t text_draw(const text_corpus *t, int part, int length, uint64_t seed, uint64_t index)
{
   const uint64_t golden = 0x9e3779b97f4a7c15u;
   uint64_t position = TEXT_NONE, n = text_starts(t, part, length);
   if (!n) return TEXT_NONE;
   uint64_t ragged = (UINT64_MAX - n + 1) % n; /* 2^64 mod n */
   uint64_t x = text__mix(text__mix(seed + golden) + (index + 1) * golden);
   while (x < ragged) x = text__mix(x + golden);
   text__find(t, part, length, 1, x % n, &position);
   return position;
}

/* The position of window `index` of a part's text_windows in an order that the seed shuffles: none comes twice before
   all have come; then they come again, in another order. TEXT_NONE if there is none. */
static inline uint64_t text_deal(const text_corpus *t, int part, int length, uint64_t seed, uint64_t index)
{
   const uint64_t golden = 0x9e3779b97f4a7c15u;
   uint64_t position = TEXT_NONE, n = text_windows(t, part, length), x, key, half = 1;
   if (!n) return TEXT_NONE;
   key = text__mix(text__mix(seed + golden) + index / n * golden);
   while ((n - 1) >> half >> half) ++half;
   /* A Feistel network permutes the numbers of 2 half bits; those from n on are sent on until they fall below it. */
   x = index % n;
   do
      for (uint64_t round = 0, mask = ((uint64_t)1 << half) - 1; round < 4; ++round)
         x = ((x & mask) << half) | ((x >> half) ^ (text__mix(key + (x & mask) * 4 + round) & mask));
   while (x >= n);
   text__find(t, part, length, length, x, &position);
   return position;
}

/* The position of window i of n, side by side or further apart, spread evenly over a part. n = text_windows: all of
   them, in order. TEXT_NONE unless i < n <= text_windows and n <= 2^32. */
static inline uint64_t text_spread(const text_corpus *t, int part, int length, uint64_t i, uint64_t n)
{
   uint64_t position = TEXT_NONE, all = text_windows(t, part, length);
   if (i >= n || n > all || n > (uint64_t)1 << 32) return TEXT_NONE;
   text__find(t, part, length, length, all / n * i + all % n * i / n, &position);
   return position;
}

/* Reads the window at a position: `length` byte values into each of tokens and targets (undefined after a failure).
   TEXT_NONE, and a window that does not lie within one part of one file, are refused. */
static inline int text_read(const text_corpus *t, uint64_t position, int length, int *tokens, int *targets,
                            text_error *err)
{
   unsigned char space[4096];
   const text_file *f = NULL;
   for (int i = 0; i < t->n_files && length > 0 && !f; ++i)
      for (int p = 0; p < TEXT_N_PARTS; ++p) {
         const uint64_t *at = &t->files[i].at[p];
         if (position >= at[0] && position < at[1] && at[1] - position > (uint64_t)length) f = &t->files[i];
      }
   if (!f) return text__fail(err, "this part of the text has no such window: shorter ones, or fewer?", 0, NULL);
   for (size_t total = (size_t)length + 1, done = 0, n; done < total; done += n) {
      n = total - done < sizeof space ? total - done : sizeof space;
      const unsigned char *bytes = text__bytes(t, f, position + done, n, space, err);
      if (!bytes) return 0;
      for (size_t i = 0; i < n; ++i) {
         if (done + i + 1 < total) tokens[done + i] = bytes[i];
         if (done + i > 0) targets[done + i - 1] = bytes[i];
      }
   }
   return 1;
}

/* *hash = FNV-1a (64 bits) of all bytes, in order: with n_bytes, what the text was. Reads all of it. */
static inline int text_hash(const text_corpus *t, uint64_t *hash, text_error *err)
{
   unsigned char space[16384];
   uint64_t h = 14695981039346656037u;
   for (int f = 0; f < t->n_files; ++f) {
      uint64_t end = t->files[f].at[TEXT_N_PARTS];
      for (uint64_t at = t->files[f].at[0]; at < end;) {
         size_t n = end - at < sizeof space ? (size_t)(end - at) : sizeof space;
         const unsigned char *bytes = text__bytes(t, &t->files[f], at, n, space, err);
         if (!bytes) return 0;
         for (size_t i = 0; i < n; ++i) h = (h ^ bytes[i]) * 1099511628211u;
         at += n;
      }
   }
   *hash = h;
   return 1;
}

#endif
/* Public domain or MIT, at your choice, like mod.h. */
