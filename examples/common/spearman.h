/* spearman.h - Spearman's rank correlation: do two things rise and fall together, in whatever shape?

      double rho;
      if (spearman(x, y, n, &rho)) printf("rho = %.3f, n = %zu\n", rho, n);   // x and y now hold their ranks

   Equal values share the mean of their ranks, and rho is Pearson's correlation of the ranks: the short formula with the
   squared differences holds only without ties. No NaN in x or y. Alone: libc and libm only. C99, C++11.
*/
#ifndef SPEARMAN_H
#define SPEARMAN_H

#include <math.h>
#include <stdlib.h>

typedef struct spearman_item {
   double value;
   size_t at;
} spearman_item;

/* A total order, so that the result does not depend on the system's qsort. */
static inline int spearman_order(const void *a, const void *b)
{
   const spearman_item *x = (const spearman_item *)a, *y = (const spearman_item *)b;
   if (x->value != y->value) return x->value < y->value ? -1 : 1;
   return x->at < y->at ? -1 : x->at > y->at;
}

/* x[n] become their ranks, from 1 on; `space` is for n items. */
static inline void spearman_ranks(double *x, size_t n, spearman_item *space)
{
   for (size_t i = 0; i < n; ++i) {
      space[i].value = x[i]; space[i].at = i;
   }
   if (n) qsort(space, n, sizeof *space, spearman_order);
   for (size_t i = 0, end = 0; i < n; i = end) {
      while (end < n && space[end].value == space[i].value) ++end;
      for (size_t k = i; k < end; ++k) x[space[k].at] = 0.5 * (double)(i + 1 + end); /* the mean of i + 1 .. end */
   }
}

/* 1, or 0 if there is no rho: less than two pairs, all x equal, all y equal, or no memory. */
static inline int spearman(double *x, double *y, size_t n, double *rho)
{
   double mean = 0.5 * ((double)n + 1), xx = 0, yy = 0, xy = 0;
   spearman_item *space = n < 2 ? NULL : (spearman_item *)calloc(n, sizeof *space);
   if (!space) return 0;
   spearman_ranks(x, n, space);
   spearman_ranks(y, n, space);
   free(space);
   for (size_t i = 0; i < n; ++i) {
      xx += (x[i] - mean) * (x[i] - mean); yy += (y[i] - mean) * (y[i] - mean); xy += (x[i] - mean) * (y[i] - mean);
   }
   if (!(xx > 0 && yy > 0)) return 0;
   *rho = xy / sqrt(xx * yy);
   return 1;
}

#endif
