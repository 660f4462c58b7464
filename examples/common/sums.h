/* sums.h - a text of sums from a seed: numbers that nobody can foretell, and answers that can be worked out

      static unsigned char text[SUMS_BYTES];
      sums_text(text, 1);                        // 9+2+6=17\n and so on: SUMS_LINES lines of SUMS_LINE bytes
      puts(sums_places[position % SUMS_LINE]);   // what stands at a position: "1st number", "+", ...

   Three numbers of one digit, and their sum in two. text.h cuts the text in parts of 90%, 5% and 5%: these are whole
   lines, and no sum of one part stands in another, in whatever order of its numbers. Of the 220 ways to choose three
   digits 185 are for training, 17 for validation, 18 for the test. Within a part lines are drawn with repetition.

   Why these: a small model learns them within a minute. Two numbers of two digits it did not, whichever end of the
   answer came first.

   Alone: no other header of this project is needed. Integers only: the same bytes on every machine. C99, C++11.
*/
#ifndef SUMS_H
#define SUMS_H

#include <stdint.h>

enum { SUMS_LINE = 9, SUMS_LINES = 40000, SUMS_BYTES = SUMS_LINE * SUMS_LINES };
enum { SUMS_ANSWER = 6, SUMS_DIGITS = 2 }; /* the first place of the answer, and how many it has */

static const char *const sums_places[SUMS_LINE] = {
   "1st number", "+", "2nd number", "+", "3rd number", "=", "answer, tens", "answer, units", "end of line"};

static inline uint64_t sums__mix(uint64_t x) /* the finalizer of splitmix64 */
{
   x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
   x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
   return x ^ (x >> 31);
}

/* The part that three digits belong to, in any order: 0 training, 1 validation, 2 test. */
static inline int sums_part(int a, int b, int c)
{
   uint64_t how_often = (1u << 2 * a) + (1u << 2 * b) + (1u << 2 * c); /* two bits for each digit */
   uint64_t tenth = sums__mix(how_often * 0x9e3779b97f4a7c15u) % 10;
   return tenth < 8 ? 0 : (int)tenth - 7;
}

/* Writes SUMS_BYTES bytes, without a 0 at the end. */
static inline void sums_text(unsigned char *to, uint64_t seed)
{
   uint64_t drawn = sums__mix(seed);
   for (int line = 0; line < SUMS_LINES; ++line, to += SUMS_LINE) {
      int part = line < SUMS_LINES / 100 * 90 ? 0 : line < SUMS_LINES / 100 * 95 ? 1 : 2, a, b, c;
      do {
         uint64_t x = sums__mix(drawn += 0x9e3779b97f4a7c15u) % 1000;
         a = (int)(x / 100); b = (int)(x / 10 % 10); c = (int)(x % 10);
      } while (sums_part(a, b, c) != part);
      const int byte[SUMS_LINE] = {'0' + a,   '+', '0' + b, '+', '0' + c, '=', '0' + (a + b + c) / 10,
                                   '0' + (a + b + c) % 10, '\n'};
      for (int i = 0; i < SUMS_LINE; ++i) to[i] = (unsigned char)byte[i];
   }
}

#endif
