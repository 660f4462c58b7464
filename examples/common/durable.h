/* durable.h - write a file so that it survives a power cut, and keep the last few. libc and POSIX or Win32.

   Include it before any system header: with -std=c99 it asks the system for fsync. All functions are static.

      durable out;
      durable_begin(&out, "model.bin");                  // writes go to model.bin.tmp
      ok = save(model, durable_write, &out);             // size_t (*write)(const void *from, size_t size, void *user)
      if (!ok) durable_abort(&out);                      // model.bin.tmp is gone, nothing has happened
      else if (!durable_commit(&out, 3)) printf("%s: %s\n", out.error, strerror(out.code));

   The first error stays in the struct and later calls do nothing, so one check at the end is enough. Commit or abort
   each begun file; both give everything back.

   What commit does, in this order:
      1  the new bytes reach the disk: flush, fsync(path.tmp), close
      2  generations move up: path.1 -> path.2 and so on, to a gap or to path.<keep>, whose old file is then lost
      3  path.1 becomes a second name (hard link) of path
      4  path.tmp is renamed over path: atomic, so path always exists, and is the old file or the new one, complete
      5  fsync(folder): the new name reaches the disk
   If it fails before 4, path is as it was and path.tmp is gone; generations may have moved, none but the last is lost.
   If 5 fails, the new file is in place, but a power cut might undo that. A crash leaves at most a path.tmp, which the
   next begin removes, and repeated crashes cost no generations: if path.1 already is path, 2 and 3 are not done again.

   Weaker where the system is. Without hard links (FAT; Windows here), 3 renames path to path.1: a crash between 3 and 4
   leaves path.1 complete but no path; with keep 0 that cannot happen. Systems that are neither POSIX nor Windows, or
   with DURABLE_PLAIN_C defined: only C's own functions, so nothing is forced to the disk, and keep 0 fails if the
   system's rename does not replace. A disk that lies about its cache is beyond help.

   One writer at a time for a path. A symbolic link at path is itself replaced. The new file has the usual mode (0666
   less umask) and owner, not those of the old one. */
#ifndef DURABLE_H
#define DURABLE_H

#if defined(__STRICT_ANSI__) && (defined(__linux__) || defined(__CYGWIN__)) && !defined(_POSIX_C_SOURCE) && \
   !defined(_XOPEN_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(DURABLE_PLAIN_C)
#elif defined(_WIN32)
#define DURABLE__WINDOWS
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <io.h>
#include <windows.h>
#elif defined(__unix__) || defined(__APPLE__) || defined(__HAIKU__)
#define DURABLE__POSIX
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

typedef struct durable {
   const char *error; /* NULL, or what went wrong first: a constant sentence */
   int code;          /* errno then, or 0 (Windows: of a move, GetLastError) */
   FILE *file;        /* path.tmp; NULL when it is not open */
   size_t length;     /* of path */
   char *names;       /* path, path.tmp and two generations, in one allocation */
} durable;

/* ---- the system -------------------------------------------------------------------------------------------------- */

/* All return 0 if it worked, else -1 and errno, if not said otherwise. */
static inline int durable__sync(FILE *f)
{
   if (fflush(f)) return -1;
#if defined(DURABLE__POSIX)
#if defined(F_FULLFSYNC) /* Apple: fsync leaves the bytes in the drive's cache */
   if (fcntl(fileno(f), F_FULLFSYNC) == 0) return 0;
#endif
   int r;
   do r = fsync(fileno(f));
   while (r && errno == EINTR);
   return r;
#elif defined(DURABLE__WINDOWS)
   return _commit(_fileno(f));
#else
   return 0;
#endif
}

/* Replaces `to` (in plain C: perhaps). */
static inline int durable__move(const char *from, const char *to)
{
#if defined(DURABLE__WINDOWS)
   if (MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) return 0;
   errno = (int)GetLastError();
   return -1;
#else
   return rename(from, to);
#endif
}

/* What there is: 0 nothing, 1 a file (or a link), 2 something else, or what cannot be told. */
static inline int durable__kind(const char *path)
{
#if defined(DURABLE__POSIX)
   struct stat s;
   if (lstat(path, &s)) return errno == ENOENT ? 0 : 2;
   return S_ISREG(s.st_mode) || S_ISLNK(s.st_mode) ? 1 : 2;
#elif defined(DURABLE__WINDOWS)
   DWORD attributes = GetFileAttributesA(path);
   return attributes == INVALID_FILE_ATTRIBUTES ? 0 : attributes & FILE_ATTRIBUTE_DIRECTORY ? 2 : 1;
#else
   FILE *f = fopen(path, "rb");
   if (f) fclose(f);
   return f != NULL;
#endif
}

/* 1: two names of one file. */
static inline int durable__same(const char *a, const char *b)
{
#if defined(DURABLE__POSIX)
   struct stat x, y;
   return !lstat(a, &x) && !lstat(b, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
#else
   return a == b;
#endif
}

/* A second name, or if the system cannot, a new name. *moved = 1: it is that. */
static inline int durable__link(const char *from, const char *to, int *moved)
{
#if defined(DURABLE__POSIX)
   if (!link(from, to)) return 0;
#endif
   *moved = 1;
   return durable__move(from, to);
}

/* The names in the folder of this file reach the disk. */
static inline int durable__sync_folder(char *path)
{
#if defined(DURABLE__POSIX)
   char *slash = strrchr(path, '/');
   if (slash) slash[1] = 0;
   int r, code, folder = open(slash ? path : ".", O_RDONLY);
   if (folder < 0) return -1;
   do r = fsync(folder);
   while (r && errno == EINTR);
   code = errno;
   close(folder);
   errno = code;
   return r && code != EINVAL && code != ENOTSUP ? -1 : 0; /* those two: this file system has no such thing */
#else
   (void)path;
   return 0;
#endif
}

/* ---- to use ------------------------------------------------------------------------------------------------------
   What returns an int returns 1, or 0 with the reason in d->error and d->code. */

static inline int durable__fail(durable *d, const char *message)
{
   if (!d->error) {
      d->error = message; d->code = errno;
   }
   return 0;
}

enum { DURABLE__SUFFIX = 16 }; /* room for one: ".tmp" or a number */

/* Name 0: path; 1: path.tmp; 2, 3: for generations. */
static inline char *durable__name(const durable *d, int i)
{
   return d->names + (size_t)i * (d->length + DURABLE__SUFFIX);
}

static inline const char *durable__generation(const durable *d, int i, int number)
{
   snprintf(durable__name(d, i) + d->length, DURABLE__SUFFIX, ".%d", number);
   return durable__name(d, i);
}

/* Gives up: path.tmp is removed. The error stays. */
static inline void durable_abort(durable *d)
{
   if (d->file) {
      fclose(d->file);
      remove(durable__name(d, 1));
   }
   free(d->names);
   d->file = NULL; d->names = NULL;
}

/* Opens path.tmp. A file that is there, left behind by a crash, is removed. */
static inline int durable_begin(durable *d, const char *path)
{
   memset(d, 0, sizeof *d);
   d->length = strlen(path);
   errno = ENOMEM;
   if (d->length < SIZE_MAX / 8) d->names = (char *)malloc(4 * (d->length + DURABLE__SUFFIX));
   if (!d->names) return durable__fail(d, "no memory");
   for (int i = 0; i < 4; ++i) memcpy(durable__name(d, i), path, d->length + 1);
   memcpy(durable__name(d, 1) + d->length, ".tmp", 5);
   errno = 0;
   if (d->length == 0 || durable__kind(path) == 2) {
      durable__fail(d, "this is no name for a file");
   } else {
      remove(durable__name(d, 1));
      errno = 0;
      d->file = fopen(durable__name(d, 1), "wb");
      if (!d->file) durable__fail(d, "cannot create a file in this folder");
   }
   if (d->error) durable_abort(d);
   return !d->error;
}

/* Appends to the file; `user` is the durable. Returns size, or less after an error. */
static inline size_t durable_write(const void *from, size_t size, void *user)
{
   durable *d = (durable *)user;
   if (d->error || !d->file || !size) return 0;
   errno = 0;
   size_t n = fwrite(from, 1, size, d->file);
   if (n < size) durable__fail(d, "cannot write the file");
   return n;
}

/* Steps 2 and 3. *moved = 1 if there is no path any more. */
static inline int durable__shift(durable *d, int keep, int *moved)
{
   const char *path = durable__name(d, 0);
   int i = 0;
   if (keep < 1 || !durable__kind(path) || durable__same(path, durable__generation(d, 2, 1))) return 1;
   do ++i;
   while (i < keep && durable__kind(durable__generation(d, 2, i)));
   remove(durable__generation(d, 2, i)); /* it is missing, or the last */
   for (; i > 1; --i)
      if (durable__move(durable__generation(d, 2, i - 1), durable__generation(d, 3, i)))
         return durable__fail(d, "cannot rename an older generation");
   if (!durable__link(path, durable__generation(d, 2, 1), moved)) return 1;
   return durable__fail(d, "cannot keep the old file");
}

/* Makes what was written the file at path, and the old one path.1 and so on up to path.<keep> (0: none is kept). */
static inline int durable_commit(durable *d, int keep)
{
   int moved = 0;
   errno = 0;
   if (d->error || !d->file) {
      durable_abort(d);
      return durable__fail(d, "nothing was begun");
   }
   char *path = durable__name(d, 0), *aside = durable__name(d, 1);
   if (durable__sync(d->file)) durable__fail(d, "cannot write the file to disk");
   if (fclose(d->file)) durable__fail(d, "cannot close the file");
   d->file = NULL;
   if (!d->error && durable__shift(d, keep, &moved) && durable__move(aside, path)) {
      durable__fail(d, "cannot rename the file");
      if (moved) durable__move(durable__name(d, 2), path);
   }
   if (d->error) remove(aside);
   else if (durable__sync_folder(path)) durable__fail(d, "the file is in place, but perhaps not yet on disk");
   durable_abort(d);
   return !d->error;
}

#endif
/* Public domain or MIT, at your choice, like mod.h. */
