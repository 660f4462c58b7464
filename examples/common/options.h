/* options.h - command-line options from a table, and their --help from the same table

      static int steps = 100;
      static const option table[] = {
         {"--steps", "N", OPTION_INT, &steps, 1, 1e9, NULL, "how many steps                      (default 100)"}};
      const char *files[8];
      int n_files = 0;
      int asked = option_parse("program", table, 1, argc - 1, argv + 1, files, 8, &n_files);

   Alone: no other header of this project is needed. Errors go to stderr, with what was expected. C99, C++11.
*/
#ifndef OPTIONS_H
#define OPTIONS_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
   OPTION_FLAG,   /* int: 1 if it is there; takes no value */
   OPTION_INT,    /* int in [least, most] */
   OPTION_COUNT,  /* uint64_t */
   OPTION_REAL,   /* double in [least, most] */
   OPTION_ABOVE,  /* double in (least, most] */
   OPTION_TEXT,   /* const char *, not empty */
   OPTION_CHOICE, /* int: the index in `words` */
   OPTION_LIST    /* option_list: the option may be given several times */
} option_kind;

enum { OPTION_LIST_MOST = 64 };
typedef struct option_list {
   int n;
   const char *item[OPTION_LIST_MOST];
} option_list;

typedef struct option {
   const char *name, *value; /* "--steps", and what its value is called in the help; a flag has NULL */
   option_kind kind;
   void *to;
   double least, most;
   const char *const *words; /* of a choice: ends with NULL; "" is no choice */
   const char *help;         /* lines of at most 80 characters */
} option;

/* The options of a table, aligned, each on as many lines as its help has. */
static inline void option_help(FILE *to, const option *table, int n)
{
   for (int i = 0; i < n; ++i) {
      int width = fprintf(to, "   %s %s", table[i].name, table[i].value ? table[i].value : "");
      for (const char *at = table[i].help; at; width = 0) {
         const char *end = strchr(at, '\n');
         fprintf(to, "%*s%.*s\n", width < 24 ? 24 - width : 1, "", end ? (int)(end - at) : (int)strlen(at), at);
         at = end ? end + 1 : NULL;
      }
   }
}

static inline int option_bad(const char *program, const option *o, const char *value)
{
   fprintf(stderr, "%s: %s %s: expected ", program, o->name, *value ? value : "''");
   switch (o->kind) {
   case OPTION_INT: fprintf(stderr, "a whole number from %.0f to %.0f\n", o->least, o->most); break;
   case OPTION_COUNT: fprintf(stderr, "a whole number\n"); break;
   case OPTION_REAL: fprintf(stderr, "a number from %g to %g\n", o->least, o->most); break;
   case OPTION_ABOVE: fprintf(stderr, "a number above %g, at most %g\n", o->least, o->most); break;
   case OPTION_CHOICE:
      for (int w = 0, shown = 0; o->words[w]; ++w)
         if (*o->words[w]) fprintf(stderr, shown++ ? ", %s" : "one of %s", o->words[w]);
      fputc('\n', stderr);
      break;
   case OPTION_LIST: fprintf(stderr, "at most %d of them, none empty\n", OPTION_LIST_MOST); break;
   default: fprintf(stderr, "something\n");
   }
   return 0;
}

static inline int option_set(const char *program, const option *o, const char *value)
{
   char *end = NULL;
   errno = 0;
   switch (o->kind) {
   case OPTION_INT: {
      long x = strtol(value, &end, 10);
      if (errno || end == value || *end || (double)x < o->least || (double)x > o->most) break;
      *(int *)o->to = (int)x;
      return 1;
   }
   case OPTION_COUNT: {
      unsigned long long x = strtoull(value, &end, 10);
      if (errno || end == value || *end || strchr(value, '-')) break;
      *(uint64_t *)o->to = (uint64_t)x;
      return 1;
   }
   case OPTION_REAL:
   case OPTION_ABOVE: {
      double x = strtod(value, &end);
      if (end == value || *end || !(x <= o->most) || !(o->kind == OPTION_REAL ? x >= o->least : x > o->least)) break;
      *(double *)o->to = x;
      return 1;
   }
   case OPTION_CHOICE:
      for (int w = 0; o->words[w]; ++w)
         if (*value && strcmp(value, o->words[w]) == 0) {
            *(int *)o->to = w;
            return 1;
         }
      break;
   case OPTION_LIST: {
      option_list *list = (option_list *)o->to;
      if (!*value || list->n == OPTION_LIST_MOST) break;
      list->item[list->n++] = value;
      return 1;
   }
   default:
      if (!*value) break;
      *(const char **)o->to = value;
      return 1;
   }
   return option_bad(program, o, value);
}

/* Reads options and, in between, at most `most` other words. `--` ends the options; `-` is a word. 1: done; 0: --help
   or -h was among them; -1: wrong, and stderr says how. */
static inline int option_parse(const char *program, const option *table, int n, int argc, char **argv,
                               const char **words, int most, int *n_words)
{
   int only_words = 0;
   for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; ++i)
      if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 0;
   *n_words = 0;
   for (int i = 0; i < argc; ++i) {
      const option *o = NULL;
      if (!only_words && strcmp(argv[i], "--") == 0) {
         only_words = 1;
         continue;
      }
      if (only_words || argv[i][0] != '-' || !argv[i][1]) {
         if (*n_words == most) {
            fprintf(stderr, "%s: '%s' is one word too many\n", program, argv[i]);
            return -1;
         }
         words[(*n_words)++] = argv[i];
         continue;
      }
      for (int k = 0; k < n && !o; ++k)
         if (strcmp(argv[i], table[k].name) == 0) o = &table[k];
      if (!o) {
         fprintf(stderr, "%s: unknown option '%s'; %s --help lists them\n", program, argv[i], program);
         return -1;
      }
      if (o->kind == OPTION_FLAG) {
         *(int *)o->to = 1;
         continue;
      }
      if (i + 1 == argc) {
         fprintf(stderr, "%s: %s needs a value\n", program, o->name);
         return -1;
      }
      if (!option_set(program, o, argv[++i])) return -1;
   }
   return 1;
}

#endif
