/* test_durable.c - examples/common/durable.h: what is at path, path.1, ... after success, after any failing call, and
   after a crash at any call. The calls to the system are counted, and made to fail or to crash, by macros. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE) && !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "test.h"

#if defined(__unix__) || defined(__APPLE__)
#define HAVE_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Call number fail_at returns an error and does nothing; at crash_at, the process ends. `calls` spells what was done.
   The disk is waited for only where asked for, or the tests would do little else. */
static int n_calls, fail_at, crash_at, links_work = 1, wait_for_disk;
static char calls[64];

static int blocked(char name)
{
   if (n_calls < (int)sizeof calls - 1) {
      calls[n_calls] = name; calls[n_calls + 1] = 0;
   }
   ++n_calls;
   if (n_calls == crash_at) _exit(9);
   if (n_calls == fail_at) errno = EIO;
   return n_calls == fail_at;
}
static FILE *my_fopen(const char *path, const char *mode) { return blocked('o') ? NULL : fopen(path, mode); }
static size_t my_fwrite(const void *from, size_t one, size_t n, FILE *f)
{
   return blocked('w') ? 0 : fwrite(from, one, n, f);
}
static int my_fflush(FILE *f) { return blocked('f') ? -1 : fflush(f); }
static int my_fclose(FILE *f) { return blocked('c') ? (fclose(f), errno = EIO, -1) : fclose(f); }
static int my_rename(const char *a, const char *b) { return blocked('r') ? -1 : rename(a, b); }
static int my_remove(const char *a) { return blocked('d') ? -1 : remove(a); }
static int my_open(const char *path, int flags) { return blocked('O') ? -1 : open(path, flags); }
static int my_fsync(int fd)
{
   struct stat s;
   int folder = !fstat(fd, &s) && S_ISDIR(s.st_mode);
   if (blocked(folder ? 'S' : 's')) return -1;
   return wait_for_disk ? fsync(fd) : 0;
}
static int my_link(const char *a, const char *b)
{
   if (blocked('l')) return -1;
   if (links_work) return link(a, b);
   errno = EPERM;
   return -1;
}
#define fopen my_fopen
#define fwrite my_fwrite
#define fflush my_fflush
#define fclose my_fclose
#define rename my_rename
#define remove my_remove
#define open my_open
#define fsync my_fsync
#define link my_link
#include "../examples/common/durable.h"
#undef fopen
#undef fwrite
#undef fflush
#undef fclose
#undef rename
#undef remove
#undef open
#undef fsync
#undef link

static char folder[256], path[300];
enum { KEEP = 3 };

static const char *name(int generation) /* 0: path; -1: path.tmp */
{
   static char text[4][320];
   static int next;
   char *s = text[next = (next + 1) % 4];
   if (generation < 0) snprintf(s, 320, "%s.tmp", path);
   else if (generation) snprintf(s, 320, "%s.%d", path, generation);
   else snprintf(s, 320, "%s", path);
   return s;
}

static int exists(int generation)
{
   struct stat s;
   return lstat(name(generation), &s) == 0;
}

static void clean(void)
{
   for (int g = -1; g <= 2 * KEEP; ++g) remove(name(g));
}

static uint64_t fnv(uint64_t h, const unsigned char *p, size_t n)
{
   for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 1099511628211u;
   return h;
}

/* A file: its number, its size, that many bytes, and a checksum of all. Written in pieces. */
static int save(int number, int size, int keep)
{
   static unsigned char bytes[1 << 20];
   durable out;
   int head[2];
   head[0] = number; head[1] = size;
   for (int i = 0; i < size; ++i) bytes[i] = (unsigned char)(i * 7 + number);
   uint64_t h = fnv(fnv(1469598103934665603u, (unsigned char *)head, sizeof head), bytes, (size_t)size);
   durable_begin(&out, path);
   int ok = durable_write(head, sizeof head, &out) == sizeof head;
   for (int at = 0; ok && at < size; at += 50000) {
      size_t n = (size_t)(size - at < 50000 ? size - at : 50000);
      ok = durable_write(bytes + at, n, &out) == n;
   }
   ok = ok && durable_write(&h, sizeof h, &out) == sizeof h;
   int done = durable_commit(&out, keep);
   CHECK(done == !out.error && (ok || !done) && !out.names && !out.file);
   if (!done) CHECKF(out.code != 0, "%s", out.error);
   return done;
}

/* The number of a generation; 0: there is none; -1: it is not complete. */
static int load(int generation)
{
   static unsigned char bytes[1 << 20];
   int head[2] = {0, 0};
   uint64_t h = 0;
   FILE *f = fopen(name(generation), "rb");
   if (!f) return exists(generation) ? -1 : 0;
   int ok = fread(head, sizeof head, 1, f) == 1 && head[0] > 0 && head[1] >= 0 && head[1] <= 1 << 20;
   ok = ok && fread(bytes, 1, (size_t)head[1], f) == (size_t)head[1];
   ok = ok && fread(&h, sizeof h, 1, f) == 1 && fgetc(f) == EOF;
   fclose(f);
   return ok && h == fnv(fnv(1469598103934665603u, (unsigned char *)head, sizeof head), bytes, (size_t)head[1])
             ? head[0] : -1;
}

static void begin_counting(int fail, int crash)
{
   n_calls = 0; fail_at = fail; crash_at = crash;
   calls[0] = 0;
}

static void normal(void)
{
   clean();
   CHECK(save(1, 1000, 0) && load(0) == 1 && !exists(1) && !exists(-1));
   CHECK(save(2, 200000, 0) && load(0) == 2 && !exists(1));
   CHECK(save(3, 0, 1) && load(0) == 3 && load(1) == 2 && !exists(2));
   for (int i = 4; i < 10; ++i) {
      CHECK(save(i, 10 * i, KEEP) && load(0) == i && load(1) == i - 1 && load(2) == i - 2);
      CHECK(load(3) == (i - 3 < 2 ? 0 : i - 3) && !exists(4) && !exists(-1));
   }
   CHECK(save(10, 5, 0) && load(0) == 10 && load(1) == 8); /* keep 0: the generations stay as they are */
   CHECK(save(11, 5, -1) && load(0) == 11 && load(1) == 8 && load(3) == 6);
   CHECK(save(12, 5, 1) && load(0) == 12 && load(1) == 11 && load(2) == 7 && load(3) == 6);
   remove(name(2)); /* a gap is filled before anything is lost */
   CHECK(save(13, 5, KEEP) && load(1) == 12 && load(2) == 11 && load(3) == 6);
   remove(name(0)); /* nothing to keep: nothing moves */
   CHECK(save(14, 5, KEEP) && load(0) == 14 && load(1) == 12 && load(2) == 11 && load(3) == 6);
   CHECK(save(15, 5, 1000) && load(4) == 6 && load(1) == 14);

   /* The order of it all: the file's bytes are on disk before any name changes, the folder's names last. */
   wait_for_disk = 1;
   begin_counting(0, 0);
   CHECK(save(16, 5, 2));
   CHECKF(!strcmp(calls, "dowwwfscdrlrOS"), "%s", calls);
   begin_counting(0, 0);
   CHECK(save(17, 5, 0));
   CHECKF(!strcmp(calls, "dowwwfscrOS"), "%s", calls);
   wait_for_disk = 0;

   /* Abort; a name in the current folder; commit without begin, or twice. */
   durable out;
   begin_counting(0, 0);
   CHECK(durable_begin(&out, path) && durable_write("x", 1, &out) == 1 && durable_write("x", 0, &out) == 0);
   CHECK(exists(-1) && load(0) == 17);
   durable_abort(&out);
   durable_abort(&out);
   CHECK(!exists(-1) && load(0) == 17 && !out.error);
   CHECK(!durable_commit(&out, 0) && out.error && load(0) == 17);
   CHECK(durable_write("x", 1, &out) == 0);
   char *here = getcwd(NULL, 0);
   if (here && CHECK(chdir(folder) == 0)) {
      CHECK(durable_begin(&out, "bare") && durable_write("x", 1, &out) == 1 && durable_commit(&out, 1));
      CHECK(remove("bare") == 0);
      CHECK(chdir(here) == 0);
   }
   free(here);
   clean();
}

static void refused(const char *at)
{
   durable out;
   CHECKF(!durable_begin(&out, at) && out.error && !out.names && !out.file, "%s", at);
   CHECK(durable_write("x", 1, &out) == 0 && !durable_commit(&out, 1));
   durable_abort(&out);
}

static void refusals(void)
{
   struct stat s;
   char inside[320];
   refused("");
   refused(folder);
   refused("/no/such/folder/file");
   snprintf(inside, sizeof inside, "%s/", folder);
   refused(inside);
   if (!stat("/dev/null", &s) && S_ISCHR(s.st_mode)) {
      refused("/dev/null");
      CHECK(!stat("/dev/null", &s) && S_ISCHR(s.st_mode));
   } else test_skip("a device as path", "there is no /dev/null");
   if (geteuid() == 0) {
      test_skip("a folder without permission", "the tests run as root");
   } else {
      CHECK(chmod(folder, 0500) == 0);
      refused(path);
      CHECK(chmod(folder, 0700) == 0);
   }
   /* What is in the way of a generation is not lost. */
   clean();
   CHECK(save(1, 5, 0) && mkdir(name(1), 0700) == 0);
   snprintf(inside, sizeof inside, "%s/x", name(1));
   FILE *f = fopen(inside, "wb");
   CHECK(f && !fclose(f));
   CHECK(!save(2, 5, 1) && load(0) == 1 && !exists(-1));
   CHECK(save(2, 5, 2) && load(0) == 2 && load(1) == 1); /* a folder moves up like a file */
   snprintf(inside, sizeof inside, "%s/x", name(2));
   CHECK(remove(inside) == 0);
   clean();
}

/* What must hold whatever happened, after path was `old` and the generations before it old - 1, old - 2, ...: no file
   is incomplete, path is old or new, and of the numbers at most the last of the generations is lost. */
static void intact(int old, int keep, int path_may_be_gone, const char *what, int at)
{
   int found[64] = {0}, wrong = 0, now = load(0);
   for (int g = 0; g <= KEEP + 1; ++g) {
      int n = load(g);
      if (n < 0) ++wrong;
      else ++found[n];
   }
   wrong += now != old && now != old + 1 && !(path_may_be_gone && now == 0);
   for (int g = 0; g < keep; ++g) wrong += !found[old - g];
   CHECKF(!wrong, "%s at call %d (%s): path %d, then %d, %d, %d, %d", what, at, calls, now, load(1), load(2), load(3),
          load(4));
}

/* Every call fails once; then every call is the last of the process. With and without hard links. */
static void failures(void)
{
   for (int links = 0; links < 2; ++links)
      for (int keep = 0; keep <= KEEP; ++keep)
         for (int full = 0; full < 2; ++full)
            for (int at = 1, ended = 0; !ended; ++at) {
               int old = full ? KEEP + 1 : 2;
               for (int crash = 0; crash < 2; ++crash) {
                  begin_counting(0, 0);
                  clean();
                  links_work = links;
                  for (int i = 1; i <= old; ++i) CHECK(save(i, 300, keep));
                  if (!crash) {
                     begin_counting(at, 0);
                     int ok = save(old + 1, 300, keep);
                     ended = n_calls < at;
                     fail_at = 0;
                     /* Only a link, and removing what is not there, may fail without harm. */
                     if (ended) CHECK(ok);
                     else if (calls[at - 1] != 'l' && calls[at - 1] != 'd') CHECKF(!ok, "call %d (%s)", at, calls);
                     CHECK(!ok || load(0) == old + 1);
                     CHECKF(at == 1 || !exists(-1) || !ok, "call %d", at);
                     intact(old, keep < old ? keep : old, 0, "failure", at);
                  } else {
                     pid_t child = fork();
                     if (child == 0) {
                        begin_counting(0, at);
                        save(old + 1, 300, keep);
                        _exit(0);
                     }
                     int status = 0;
                     CHECK(child > 0 && waitpid(child, &status, 0) == child);
                     CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (ended ? 0 : 9));
                     intact(old, keep < old ? keep : old, !links && keep > 0, "crash", at);
                  }
                  /* The next one works, cleans up, and has lost no more. */
                  begin_counting(0, 0);
                  int now = load(0) ? load(0) : old;
                  CHECK(save(now + 1, 20, keep) && load(0) == now + 1 && !exists(-1));
                  for (int g = 1; g <= keep && g < now; ++g)
                     CHECKF(load(g) == now + 1 - g, "after %s at call %d: generation %d is %d, keep %d, links %d",
                            crash ? "crash" : "failure", at, g, load(g), keep, links);
               }
            }
   links_work = 1;
   clean();
}

/* A disk that is full: a limit of the size of files, in a process of its own. */
static void full_disk(void)
{
   clean();
   CHECK(save(1, 100, KEEP) && save(2, 100, KEEP));
   pid_t child = fork();
   if (child == 0) {
      struct rlimit limit;
      signal(SIGXFSZ, SIG_IGN);
      limit.rlim_cur = limit.rlim_max = 4000;
      if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(77);
      int small = save(3, 3000, KEEP), little = save(4, 5000, KEEP), much = save(4, 300000, KEEP);
      _exit(small && !little && !much ? 0 : 1);
   }
   int status = 0;
   CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
   if (WEXITSTATUS(status) == 77) test_skip("a full disk", "no limit can be set");
   else CHECK(WEXITSTATUS(status) == 0 && load(0) == 3 && load(1) == 2 && load(2) == 1 && !exists(-1));
   clean();
}

/* Killed 30 times at random moments while it saves without pause. */
static void killed(void)
{
   clean();
   int last = 0, wrong = 0, advanced = 0;
   for (int round = 0; round < 30; ++round) {
      struct timespec pause;
      pid_t child = fork();
      if (child == 0) {
         wait_for_disk = round % 2;
         for (int i = last + 1;; ++i) save(i, (i * 7919) % 100000, 2);
      }
      if (!CHECK(child > 0)) return;
      pause.tv_sec = 0; pause.tv_nsec = 1000000 + test_below(30000000);
      nanosleep(&pause, NULL);
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
      int now = load(0), one = load(1), two = load(2);
      wrong += now < last || (last && !now) || now < 0 || one < 0 || two < 0 || exists(3); /* complete, all of them */
      if (now > 2) wrong += (one != now && one != now - 1 && one != 0) || (!one && two != now - 1);
      advanced += now > last;
      last = now;
   }
   CHECKF(!wrong, "%d of 30 times something was not complete", wrong);
   if (!advanced) test_skip("killed while saving", "no file was completed in time");
   clean();
}

int main(void)
{
   const char *tmp = getenv("TMPDIR");
   snprintf(folder, sizeof folder, "%.200s/moddurable.XXXXXX", tmp && *tmp ? tmp : "/tmp");
   if (!mkdtemp(folder)) {
      test_skip("durable.h", "cannot make a temporary folder");
      return test_end();
   }
   snprintf(path, sizeof path, "%s/file", folder);
   normal();
   refusals();
   failures();
   full_disk();
   killed();
   clean();
   CHECK(rmdir(folder) == 0);
   return test_end();
}

#else

int main(void)
{
   CHECK(1);
   test_skip("durable.h", "not a POSIX system");
   return test_end();
}

#endif
