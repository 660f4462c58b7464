/* peer.h - another program that trains the same model, one step at a time

   It says "ready ..." (or why not), then answers each line with the milliseconds that a step took. Outside its turn its
   whole process group is stopped, so that no thread of it spins beside ours. If this program dies, the kernel ends the
   stopped group.
*/
#ifndef PEER_H
#define PEER_H

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct peer {
   pid_t pid; /* 0: it is not running */
   FILE *to, *from;
   char said[256]; /* its last line */
   char name[256]; /* what came after "ready " */
} peer;

static int peer_listen(peer *p)
{
   if (!fgets(p->said, sizeof p->said, p->from)) return 0;
   p->said[strcspn(p->said, "\n")] = 0;
   return 1;
}

static void peer_stop(peer *p)
{
   int status;
   kill(-p->pid, SIGSTOP);
   waitpid(p->pid, &status, WUNTRACED);
}

static void peer_close(peer *p)
{
   if (!p->pid) return;
   kill(-p->pid, SIGKILL);
   waitpid(p->pid, NULL, 0);
   fclose(p->to);
   fclose(p->from);
   p->pid = 0;
}

/* Starts argv (the last is NULL) and waits until it is ready; 0, and the reason in p->said, if it never is. */
static int peer_open(peer *p, const char *const *argv)
{
   int in[2], out[2];
   strcpy(p->said, "cannot be started");
   p->pid = 0;
   if (pipe(in)) return 0;
   if (pipe(out)) return close(in[0]), close(in[1]), 0;
   fcntl(in[1], F_SETFD, FD_CLOEXEC); /* so that our ends close when we die, whatever other peers there are */
   fcntl(out[0], F_SETFD, FD_CLOEXEC);
   signal(SIGPIPE, SIG_IGN); /* a peer that has died shows as a failed read */
   fflush(NULL);
   if ((p->pid = fork()) == 0) {
      setpgid(0, 0);
      signal(SIGPIPE, SIG_DFL);
      dup2(in[0], 0);
      dup2(out[1], 1);
      for (int i = 0; i < 2; ++i) close(in[i]), close(out[i]);
      execvp(argv[0], (char *const *)argv);
      _exit(127);
   }
   close(in[0]);
   close(out[1]);
   if (p->pid < 0) return close(in[1]), close(out[0]), p->pid = 0;
   setpgid(p->pid, p->pid); /* whoever comes first */
   p->to = fdopen(in[1], "w");
   p->from = fdopen(out[0], "r");
   if (peer_listen(p) && !strncmp(p->said, "ready ", 6)) return strcpy(p->name, p->said + 6), peer_stop(p), 1;
   return peer_close(p), 0;
}

/* Seconds of one step; a NaN if it cannot. For bench_side.run. */
static double peer_step(void *what)
{
   peer *p = (peer *)what;
   double ms;
   if (!p->pid) return NAN;
   kill(-p->pid, SIGCONT);
   fputs("step\n", p->to);
   fflush(p->to);
   if (!peer_listen(p) || sscanf(p->said, "%lf", &ms) != 1) return peer_close(p), NAN;
   return peer_stop(p), ms / 1000;
}

#endif
