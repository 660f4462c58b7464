/* test_plot.c - examples/common/plot.h: well-formed, within the picture, round ticks, escaped, the same bytes. */
#include "../examples/common/plot.h"
#include "test.h"
#include <locale.h>

enum { MOST = 1 << 20 };
static char text[2][MOST];
static size_t length;

/* What a figure is written as, in text[i]. */
static const char *drawn(int i, const plot *p)
{
   FILE *f = tmpfile();
   text[i][length = 0] = '\0';
   if (!CHECK(f)) return text[i];
   CHECK(plot_svg(f, p) == 1);
   rewind(f);
   length = fread(text[i], 1, MOST - 1, f);
   text[i][length] = '\0';
   CHECK(length > 100 && length < MOST - 1);
   fclose(f);
   return text[i];
}

static plot_series of(plot_kind kind, int n, const double *x, const double *y)
{
   plot_series s;
   memset(&s, 0, sizeof s);
   s.kind = kind; s.n = n; s.x = x; s.y = y;
   return s;
}

static plot_panel panel_of(const plot_series *s, int n)
{
   plot_panel p;
   memset(&p, 0, sizeof p);
   p.series = s; p.n_series = n;
   return p;
}

static plot figure_of(const plot_panel *panels, int n)
{
   plot p;
   memset(&p, 0, sizeof p);
   p.panels = panels; p.n_panels = n;
   return p;
}

/* Every tag is closed by its own, attributes are quoted, nothing else has < or a bare &. */
static int well_formed(const char *s)
{
   char open[32][16];
   int depth = 0, roots = 0;
   while (*s) {
      if (*s == '&') {
         const char *end = s + 2;
         while (*end >= '0' && *end <= '9') ++end;
         if (s[1] != '#' || end == s + 2 || *end != ';') return 0;
         s = end;
      } else if (*s == '<') {
         char name[16];
         int n = 0, closing = s[1] == '/';
         s += 1 + closing;
         while (*s >= 'a' && *s <= 'z' && n < 15) name[n++] = *s++;
         name[n] = '\0';
         if (!n) return 0;
         if (closing) {
            if (depth == 0 || strcmp(open[--depth], name) || *s != '>') return 0;
         } else {
            roots += depth == 0;
            while (*s == ' ') {
               const char *key = ++s;
               while (*s && !strchr("= >", *s)) ++s;
               if (s == key || s[0] != '=' || s[1] != '"') return 0;
               for (s += 2; *s && *s != '"'; ++s)
                  if (*s == '<') return 0;
               if (!*s++) return 0;
            }
            if (s[0] == '/' && s[1] == '>') ++s;
            else if (depth < 32) strcpy(open[depth++], name);
            if (*s != '>') return 0;
         }
      } else if (depth == 0 && *s != '\n') return 0;
      ++s;
   }
   return depth == 0 && roots == 1;
}

static int within(double v, double most) { return v >= -0.01 && v <= most + 0.01; }

/* Follows texts, rectangles and paths: 0 if a place is outside the view box. */
static int inside(const char *s)
{
   double width = 0, height = 0;
   const char *box = strstr(s, "viewBox=\"0 0 ");
   if (!box || sscanf(box, "viewBox=\"0 0 %lf %lf\"", &width, &height) != 2) return 0;
   for (const char *t = s; (t = strstr(t, " x=\"")) != NULL; ++t) {
      double x, y, w = 0, h = 0;
      if (sscanf(t, " x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y, &w, &h) < 2) return 0;
      if (!within(x, width) || !within(y, height) || !within(x + w, width) || !within(y + h, height) || w < 0 || h < 0)
         return 0;
   }
   for (const char *t = s; (t = strstr(t, " d=\"")) != NULL;) {
      double x = 0, y = 0, v;
      char *end;
      for (t += 4; *t && *t != '"';) {
         char c = *t++;
         int n = 0;
         if (c == 'a' || c == 'z') { /* the arcs of a circle end where they began */
            while (*t && !strchr("az\"", *t)) ++t;
            continue;
         }
         if (c == 'm' || c == 'l') c = 'm';
         if (!strchr("MLHVmhv", c)) return 0;
         while (*t && (strchr("+-. ", *t) || (*t >= '0' && *t <= '9'))) {
            v = strtod(t, &end);
            if (end == t) return 0;
            t = end;
            if (c == 'H' || (strchr("ML", c) && n % 2 == 0)) x = v;
            else if (c == 'V' || strchr("ML", c)) y = v;
            else if (c == 'h' || (c == 'm' && n % 2 == 0)) x += v;
            else y += v;
            ++n;
            if ((n % 2 == 0 || strchr("HVhv", c)) && !(within(x, width) && within(y, height))) return 0;
         }
         if (n == 0) return 0;
      }
   }
   return !strstr(s, "nan") && !strstr(s, "inf");
}

static void good(const plot *p, const char *what)
{
   drawn(0, p);
   CHECKF(well_formed(text[0]), "%s", what);
   CHECKF(inside(text[0]), "%s", what);
}

/* All kinds of series and axes, of good values and bad ones. */
static void kinds(void)
{
   static const double bad[] = {0, 1, -1, 2.5, 1e308, -1e308, 1e-320, HUGE_VAL, -HUGE_VAL, 1e18, 3e-9, 5, 7};
   enum { BAD = sizeof bad / sizeof bad[0], N = 20 };
   static const char *const names[] = {"one", NULL, "two\nlines", "<&>\"'", "five", "six"};
   double x[N], y[N], error[N];
   const char *labels[N];
   int drew = 0;
   for (int round = 0; round < 4000; ++round) {
      plot_series s[3];
      plot_panel p[3];
      for (int i = 0; i < N; ++i) {
         x[i] = round % 3 ? test_uniform() * 10 - 3 : bad[test_below(BAD)];
         y[i] = round % 3 ? test_normal() * pow(10, round % 17 - 8) : bad[test_below(BAD)];
         if (test_below(9) == 0) x[i] = bad[test_below(BAD)];
         if (test_below(9) == 0) y[i] = sqrt(-1.0);
         error[i] = test_below(4) ? test_uniform() : bad[test_below(BAD)];
         labels[i] = names[test_below(6)];
      }
      for (int k = 0; k < 3; ++k) {
         s[k] = of((plot_kind)test_below(7), test_below(N + 1), test_below(5) ? x : NULL, test_below(5) ? y : NULL);
         s[k].name = names[test_below(5)];
         s[k].marker = (plot_marker)test_below(7); s[k].colour = (plot_colour)test_below(6);
         s[k].dash = test_below(3); s[k].sideways = test_below(4) == 0; s[k].place = (plot_place)test_below(4);
         if (test_below(2)) s[k].error = error;
         if (test_below(4) == 0) s[k].low = x;
         if (test_below(4) == 0) s[k].shade = error;
         if (test_below(2)) s[k].labels = labels;
      }
      for (int k = 0; k < 3; ++k) {
         p[k] = panel_of(s, test_below(4));
         p[k].width = test_below(2) ? 0.5 : 0;
         p[k].title = names[test_below(5)]; p[k].x.label = names[test_below(2)]; p[k].y.label = names[test_below(2)];
         p[k].x.log = test_below(3) == 0; p[k].y.log = test_below(3) == 0;
         p[k].y.down = test_below(4) == 0;
         if (test_below(5) == 0) p[k].x.names = names, p[k].x.n_ticks = 6;
         if (test_below(5) == 0) p[k].y.lo = 0.5, p[k].y.hi = 2;
         if (test_below(9) == 0) p[k].y.ticks = bad, p[k].y.n_ticks = BAD;
      }
      plot f = figure_of(p, test_below(4));
      f.title = names[test_below(5)]; f.desc = names[test_below(5)]; f.legend = test_below(2);
      drawn(0, &f);
      int ok = well_formed(text[0]), in = inside(text[0]);
      if (!ok || !in) CHECKF(0, "round %d: %s", round, ok ? "outside" : "not well-formed");
      else ++drew;
   }
   CHECK(drew == 4000);
}

/* Which decimal digits a number has, without zeros at the ends: how round it is. */
static int digits(double v)
{
   char s[64];
   snprintf(s, sizeof s, "%.9e", v);
   char *e = strchr(s, 'e');
   int n = (int)(e - s);
   while (n > 1 && (s[n - 1] == '0' || s[n - 1] == '.')) --n;
   return n - (s[0] == '-') - (memchr(s, '.', (size_t)n) != NULL);
}

/* Ticks: in the range, ascending, evenly spaced by 1, 2 or 5 times a power of ten; labels that differ. */
static void linear(double lo, double hi)
{
   plot_axis a;
   plot_tick t[PLOT_TICKS], last;
   int major = 0, wrong = 0;
   double step = 0;
   memset(&a, 0, sizeof a);
   memset(&last, 0, sizeof last);
   a.lo = lo; a.hi = hi;
   int n = plot_ticks(&a, 300, 50, t);
   for (int i = 0; i < n; ++i) {
      double slack = 1e-6 * (hi - lo);
      wrong += t[i].at < lo - slack || t[i].at > hi + slack || (i && t[i].at <= t[i - 1].at);
      if (t[i].minor) continue;
      wrong += !t[i].text[0] || strlen(t[i].text) > 30 || (major && !strcmp(t[i].text, last.text));
      if (major == 1) step = t[i].at - last.at;
      if (major > 1) wrong += fabs(t[i].at - last.at - step) > 1e-6 * step + 1e-9 * fabs(t[i].at);
      last = t[i];
      ++major;
   }
   CHECKF(!wrong && major >= 2 && major <= 15, "%g to %g: %d wrong, %d ticks", lo, hi, wrong, major);
   if (fabs(lo) + fabs(hi) < 1e4 * (hi - lo)) {
      char s[32];
      snprintf(s, sizeof s, "%.4e", step);
      CHECKF(strchr("125", s[0]) && !strncmp(s + 1, ".0000", 5), "%g to %g by %s", lo, hi, s);
      for (int i = 0; i < n; ++i)
         if (!t[i].minor && fabs(t[i].at) > 1e-6 * step)
            CHECKF(digits(t[i].at) < 7, "%g to %g: %.17g", lo, hi, t[i].at);
   }
}

static const char *tick_text(double lo, double hi, int log, double at)
{
   static plot_tick t[PLOT_TICKS];
   plot_axis a;
   memset(&a, 0, sizeof a);
   a.lo = lo; a.hi = hi; a.log = log;
   for (int i = plot_ticks(&a, 300, 50, t) - 1; i >= 0; --i)
      if (fabs(t[i].at - at) <= 1e-9 * fabs(at) && !t[i].minor) return t[i].text;
   return "no such tick";
}

static void ticks(void)
{
   static const double from_to[][2] = {
      {0, 1}, {-1, 1}, {0, 100}, {1.9, 1.96}, {-0.017, 0.052}, {-5e-300, 5e-300}, {1e299, 2e299}, {-1e299, 1e299},
      {123456, 123457}, {1e9, 1e9 + 1}, {-3e-7, -1e-7}, {0, 3.2e12}, {99.9, 100.1}, {1e-12, 1e12}, {1e15, 1e15 + 64}};
   for (size_t i = 0; i < sizeof from_to / sizeof from_to[0]; ++i) linear(from_to[i][0], from_to[i][1]);
   for (int i = 0; i < 3000; ++i) {
      double lo = test_normal() * pow(10, test_below(40) - 20), size = pow(10, test_uniform() * 40 - 20);
      if (size > 1e-8 * fabs(lo)) linear(lo, lo + size);
   }
   CHECK(!strcmp(tick_text(0, 1, 0, 0.4), "0.4"));
   CHECK(!strcmp(tick_text(-1, 1, 0, 0), "0.0") && !strcmp(tick_text(-1, 1, 0, -0.5), "-0.5"));
   CHECK(!strcmp(tick_text(0, 3e12, 0, 2e12), "2.0\xc3\x97" "10\xc2\xb9\xc2\xb2"));
   CHECK(!strcmp(tick_text(0, 3e12, 0, 0), "0"));
   CHECK(!strcmp(tick_text(0.1, 1000, 1, 100), "100") && !strcmp(tick_text(0.1, 1000, 1, 0.1), "0.1"));
   CHECK(!strcmp(tick_text(1e10, 1e14, 1, 1e12), "10\xc2\xb9\xc2\xb2"));
   CHECK(!strcmp(tick_text(1e-9, 1e-5, 1, 1e-7), "10\xe2\x81\xbb\xe2\x81\xb7"));
   CHECK(!strcmp(tick_text(0.2, 8, 1, 5), "5") && !strcmp(tick_text(0.2, 8, 1, 0.5), "0.5"));
   CHECK(!strcmp(tick_text(1, 1.5, 1, 1.2), "1.2"));
   for (int i = 0; i < 600; ++i) { /* logarithmic: labelled ticks exist, and ascend */
      plot_axis a;
      plot_tick t[PLOT_TICKS];
      memset(&a, 0, sizeof a);
      a.log = 1; a.lo = pow(10, test_uniform() * 500 - 280);
      a.hi = a.lo * pow(10, 0.05 + test_uniform() * (i % 2 ? 2 : 60));
      int n = plot_ticks(&a, 300, 50, t), major = 0, wrong = 0;
      for (int k = 0; k < n; ++k) {
         major += !t[k].minor;
         wrong += t[k].at < a.lo * 0.999 || t[k].at > a.hi * 1.001 || (k && t[k].at <= t[k - 1].at);
      }
      CHECKF(major >= 1 && major < 15 && !wrong, "%g to %g: %d ticks, %d wrong", a.lo, a.hi, major, wrong);
   }
}

/* One value, the same values, none at all, far ones, backwards. */
static void ranges(void)
{
   static const double values[] = {0, 1, -1, 1e-305, 1e299, -1e299, 3.25, 1e9};
   for (size_t i = 0; i < sizeof values / sizeof values[0]; ++i)
      for (int log = 0; log < 2; ++log) {
         double v[3];
         v[0] = v[1] = v[2] = values[i];
         plot_series s = of(PLOT_LINE, 3, v, v);
         s.marker = PLOT_CIRCLE;
         plot_panel p = panel_of(&s, 1);
         p.x.log = p.y.log = log;
         plot f = figure_of(&p, 1);
         good(&f, "equal values");
         CHECK((strstr(text[0], "a4 4 0") != NULL) == (!log || values[i] > 1e-300)); /* the circles */
         plot_axis a = plot__range(&p, 0);
         CHECKF(a.lo < a.hi && (!log || a.lo > 0), "%g: %g to %g", values[i], a.lo, a.hi);
      }
   plot none = figure_of(NULL, 0);
   good(&none, "no panel");
   plot_panel p = panel_of(NULL, 0);
   none = figure_of(&p, 1);
   good(&none, "no series");
   p.x.lo = 5; p.x.hi = 1;
   good(&none, "lo > hi");
}

/* NaN and infinities are left out, the rest is drawn; a log axis leaves out what is not above 0. */
static void missing(void)
{
   static const double x[] = {1, 2, 3, 4, 5};
   double y[] = {1, 2, HUGE_VAL, 4, 5};
   plot_series s = of(PLOT_LINE, 5, x, y);
   s.marker = PLOT_CIRCLE;
   plot_panel p = panel_of(&s, 1);
   plot f = figure_of(&p, 1);
   for (int kind = 0; kind < 3; ++kind) {
      int marks = 0, stretches = 0;
      y[2] = kind == 0 ? HUGE_VAL : kind == 1 ? sqrt(-1.0) : -3;
      p.y.log = kind == 2;
      good(&f, "missing values");
      for (const char *at = text[0]; (at = strstr(at, "a4 4 0 1 0 8 0")) != NULL; ++at) ++marks;
      const char *path = strstr(text[0], "<path fill=\"none\" d=\"");
      for (; path && *path != '>'; ++path) stretches += *path == 'M';
      CHECKF(marks == 4 && stretches == 2, "%d marks, %d stretches", marks, stretches);
   }
}

static void words(void)
{
   static const char *const said[] = {"a < b & c > \"d\" 'e'",
                                      "bad \xff\xc3 \xe2\x82 \xed\xa0\x80 \xc0\x80 \xef\xbf\xbf bytes\x01",
                                      "10\xc2\xb9\xc2\xb2 \xe2\x89\xa4 \xf0\x9f\x99\x82"};
   double v[] = {1, 2};
   for (int i = 0; i < 3; ++i) {
      const char *labels[2];
      labels[0] = labels[1] = said[i];
      plot_series s = of(PLOT_POINTS, 2, v, v);
      s.name = said[i]; s.labels = labels;
      plot_panel p = panel_of(&s, 1);
      p.title = p.x.label = p.y.label = said[i];
      plot f = figure_of(&p, 1);
      f.title = f.desc = said[i];
      drawn(0, &f);
      CHECK(well_formed(text[0]));
      CHECK(strstr(text[0], i == 0 ? ">a &#60; b &#38; c &#62; &#34;d&#34; &#39;e&#39;<" :
                            i == 1 ? ">bad ?? ?? ??? ?? ??? bytes?<" :
                                     ">10\xc2\xb9\xc2\xb2 \xe2\x89\xa4 \xf0\x9f\x99\x82<"));
      CHECK(strstr(text[0], "role=\"img\"") && strstr(text[0], "<title>") && strstr(text[0], "<desc>"));
      CHECK(strstr(text[0], "prefers-color-scheme:dark"));
   }
}

/* The same bytes again, and in a locale with a decimal comma. */
static void same(void)
{
   static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "C.UTF-8"};
   double x[50], y[50], error[50];
   for (int i = 0; i < 50; ++i) x[i] = i * 0.7, y[i] = test_normal(), error[i] = 0.3 * test_uniform();
   plot_series s = of(PLOT_LINE, 50, x, y);
   s.error = error; s.name = "line";
   plot_panel p = panel_of(&s, 1);
   plot f = figure_of(&p, 1);
   drawn(0, &f);
   drawn(1, &f);
   CHECK(!strcmp(text[0], text[1]));
   int found = 0;
   for (int i = 0; i < 5 && !found; ++i)
      found = setlocale(LC_ALL, locales[i]) != NULL && *localeconv()->decimal_point == ',';
   if (!found) test_skip("a locale with a decimal comma", "there is none here");
   drawn(1, &f);
   CHECK(!strcmp(text[0], text[1]));
   setlocale(LC_ALL, "C");
}

static void full(void)
{
   FILE *f = fopen("/dev/full", "w");
   plot_panel p = panel_of(NULL, 0);
   plot figure = figure_of(&p, 1);
   if (!f) {
      test_skip("a full disk", "there is no /dev/full");
      return;
   }
   CHECK(plot_svg(f, &figure) == 0);
   fclose(f);
}

int main(void)
{
   kinds();
   ticks();
   ranges();
   missing();
   words();
   same();
   full();
   return test_end();
}
