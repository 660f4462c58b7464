/* plot.h - figures as SVG: panels with axes, lines, points, bands, bars and cells; readable on light and dark pages

      static const double size[] = {1e5, 2e5, 4e5}, loss[] = {1.92, 1.85, 1.88}, deviation[] = {0.01, 0.01, 0.02};
      plot_series series[1] = {0};                       // in C++ write {}; zero means default
      series[0].name = "dense"; series[0].n = 3;
      series[0].x = size; series[0].y = loss; series[0].error = deviation;
      series[0].colour = PLOT_BLUE; series[0].marker = PLOT_CIRCLE;
      plot_panel panel = {0};
      panel.x.label = "parameters"; panel.x.log = 1;
      panel.y.label = "loss (nats a byte)";
      panel.series = series; panel.n_series = 1;
      plot figure = {0};
      figure.title = "Loss by size"; figure.panels = &panel; figure.n_panels = 1;
      if (!plot_svg(file, &figure)) puts("cannot write");

   Fill the structs, whose arrays stay yours, and draw: nothing is allocated. Values that are not finite, or have no
   place on a logarithmic axis, are left out. The legend stands above the axes, where it hides nothing. Text is UTF-8.
   The same figure gives the same bytes, whatever the locale. Needs libm. Alone: no other header of this project is
   needed. C99, C++11. Public domain or MIT, as mod.h. */
#ifndef PLOT_H
#define PLOT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum plot_kind {
   PLOT_LINE,       /* through the points, in their order; a point that is left out makes a gap */
   PLOT_POINTS,     /* markers only */
   PLOT_BAND,       /* the area between `low` and y, or y - error and y + error */
   PLOT_BARS,       /* from `low` (NULL: 0) to y */
   PLOT_CELLS,      /* unit squares around (x, y), as opaque as `shade` says */
   PLOT_HORIZONTAL, /* a line across the panel at each y */
   PLOT_VERTICAL    /* the same at each x */
} plot_kind;

/* After Okabe and Ito, so that the colour-blind can tell them apart, with a contrast of 4 or more on both pages. */
typedef enum plot_colour {
   PLOT_GREY, PLOT_BLUE, PLOT_RED, PLOT_GREEN, PLOT_PURPLE, PLOT_OCHRE, PLOT_COLOURS
} plot_colour;
typedef enum plot_marker {
   PLOT_NONE, PLOT_CIRCLE, PLOT_SQUARE, PLOT_TRIANGLE, PLOT_DIAMOND, PLOT_RING, PLOT_CROSS
} plot_marker;
typedef enum plot_place { PLOT_ABOVE, PLOT_BELOW, PLOT_RIGHT, PLOT_LEFT } plot_place;

typedef struct plot_series {
   plot_kind kind;
   const char *name;          /* in the legend; NULL: not there */
   int n;
   const double *x, *y;       /* [n]; NULL: 0, 1, 2, ... */
   const double *error;       /* NULL, or [n]: bars from y - error to y + error */
   const double *low, *shade; /* [n] of bands and bars; [n] of cells, in [0, 1]. NULL: see above, and 1 */
   const char *const *labels; /* NULL, or [n]: written beside the points, or at the right or upper end of the lines */
   plot_place place;          /* where beside */
   plot_colour colour;
   plot_marker marker;
   int dash;                  /* 0: a full line; 1: dashes; 2: dots */
   int sideways;              /* 1: bars lie, and errors are of x */
   double thick;              /* of bars, in units of the other axis; 0 = 0.8 */
} plot_series;

typedef struct plot_axis {
   const char *label;
   int log;
   double lo, hi;            /* lo == hi: as the series need */
   const double *ticks;      /* NULL, or [n_ticks]: where ticks stand; NULL with names: at 0, 1, 2, ... */
   const char *const *names; /* NULL, or [n_ticks]: what is written there; of x, '\n' begins a new line */
   int n_ticks;
   int down;                 /* 1: values grow downwards, or to the left */
} plot_axis;

typedef struct plot_panel {
   const char *title;
   double width, height; /* as a share of the figure's, panels flow in rows; of the area within the axes. 0 = 1, 240 */
   plot_axis x, y;
   const plot_series *series;
   int n_series;
} plot_panel;

typedef struct plot {
   const char *title, *desc; /* the title is written too; both are read to those who do not see */
   int width;                /* 0 = 720 */
   int legend;               /* 1: one for all panels, a name once, instead of one for each */
   const plot_panel *panels;
   int n_panels;
} plot;

/* ---- numbers and text -------------------------------------------------------------------------------------------- */

enum { PLOT_TICKS = 64, PLOT_LABEL = 48 }; /* ticks of an axis; bytes of what is written at one */
static const double plot__most = 1e300, plot__font = 14, plot__row = 19, plot__gap = 18; /* the last three in pixels */

/* A number with so many decimals, without what a locale does to %f. Returns the end of the text. */
static inline char *plot__fixed(char *to, double v, int decimals, int trim)
{
   char digits[48];
   double scaled = fabs(v);
   int n = 0;
   for (int i = 0; i < decimals; ++i) scaled *= 10;
   unsigned long long all = scaled < 1e18 ? (unsigned long long)(scaled + 0.5) : 999999999999999999ull;
   for (; trim && decimals > 0 && all % 10 == 0; --decimals) all /= 10;
   if (v < 0 && all) *to++ = '-';
   for (; all || n <= decimals; all /= 10) digits[n++] = (char)('0' + all % 10);
   while (n) {
      if (n == decimals) *to++ = '.';
      *to++ = digits[--n];
   }
   *to = '\0';
   return to;
}

/* 3 with exponent -7: 3 times ten to the power, in superscript digits. `to` has PLOT_LABEL bytes. */
static inline void plot_power(char *to, double v, int decimals, int exponent)
{
   static const char *const raised[] = {"\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",     "\xc2\xb3",     "\xe2\x81\xb4",
                                        "\xe2\x81\xb5", "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8", "\xe2\x81\xb9"};
   char digits[16];
   int one = decimals == 0 && fabs(v - 1) < 1e-6;
   if (!one) to = plot__fixed(to, v, decimals, 0);
   strcpy(to, one ? "10" : "\xc3\x97" "10");
   if (exponent < 0) strcat(to, "\xe2\x81\xbb");
   plot__fixed(digits, abs(exponent), 0, 0);
   for (const char *d = digits; *d; ++d) strcat(to, raised[*d - '0']);
}

/* Each % of the format becomes a number, in hundredths. */
static inline void plot__print(FILE *to, const char *format, double a, double b, double c, double d)
{
   const double v[4] = {a, b, c, d};
   char text[48];
   for (int i = 0; *format; ++format)
      if (*format != '%') fputc(*format, to);
      else {
         plot__fixed(text, v[i++ & 3], 2, 1);
         fputs(text, to);
      }
}

/* The bytes of the UTF-8 character at s; 0 if it is none, or none that XML has. */
static inline int plot__utf8(const unsigned char *s)
{
   static const unsigned long least[] = {0, 0x20, 0x80, 0x800, 0x10000};
   int n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
   unsigned long c = n == 1 ? *s : n ? *s & (0x7fu >> n) : 0;
   for (int i = 1; i < n; ++i) {
      if ((s[i] & 0xc0) != 0x80) return 0;
      c = c << 6 | (s[i] & 0x3f);
   }
   return c < least[n] || c == 0x7f || (c >= 0xd800 && c < 0xe000) || (c & 0xfffe) == 0xfffe || c > 0x10ffff ? 0 : n;
}

/* Escaped; what cannot be shown becomes a question mark. Ends at a new line, and returns what follows it, or NULL. */
static inline const char *plot__line(FILE *to, const char *text)
{
   for (; *text && *text != '\n'; ++text) {
      int n = plot__utf8((const unsigned char *)text);
      if (strchr("&<>\"'", *text)) fprintf(to, "&#%d;", *text);
      else if (n) fwrite(text, 1, (size_t)n, to), text += n - 1;
      else fputc('?', to);
   }
   return *text ? text + 1 : NULL;
}

/* About as wide as the text is in a wide font, in pixels: of its widest line. */
static inline double plot__width(const char *text)
{
   double w = 0, most = 0;
   for (; *text; ++text) {
      if (*text == '\n') w = 0;
      else if ((*text & 0xc0) != 0x80) /* raised digits, and marks of all kinds, begin with c2 or e2 */
         w += strchr("ijl.,:;|!'()[] t\xc2\xe2", *text) ? 0.38 : strchr("mwMW%@", *text) ? 0.9 : 0.6;
      if (w > most) most = w;
   }
   return most * plot__font;
}

/* A line of text; style: its classes. Returns what follows it, as plot__line does. */
static inline const char *plot__text(FILE *to, double x, double y, const char *style, const char *text)
{
   plot__print(to, "<text x=\"%\" y=\"%\"", x, y, 0, 0);
   fprintf(to, *style ? " class=\"%s\">" : "%s>", style);
   text = plot__line(to, text);
   fputs("</text>\n", to);
   return text;
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

typedef struct plot_tick {
   double at;
   int minor; /* 1: a shorter mark, without text */
   char text[PLOT_LABEL];
} plot_tick;

static inline double plot__ten(int power, double times) /* exact where it can be */
{
   return power < 0 ? times / pow(10, -power) : times * pow(10, power);
}

static inline int plot__tick(plot_tick *to, int n, double at, int minor)
{
   if (n == PLOT_TICKS) return n;
   to[n].at = at; to[n].minor = minor; to[n].text[0] = '\0';
   return n + 1;
}

/* Multiples of 1, 2 or 5 times a power of ten, about `most` of them but not one or two; marks in between. */
static inline int plot__linear(const plot_axis *a, double most, plot_tick *to)
{
   double top = fmax(fabs(a->lo), fabs(a->hi)), raw = (a->hi - a->lo) / most;
   int n = 0, power = (int)floor(log10(raw)), whole = (int)floor(log10(top));
   double f = raw / pow(10, power);
   int step = f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10;
   if (raw / f * step * 2.5 > a->hi - a->lo) step = step == 10 ? 5 : step == 2 ? 1 : 2;
   if (step == 10) step = 1, ++power;
   const int parts = step == 2 ? 4 : 5;
   const double unit = plot__ten(power, step), first = ceil(a->lo / unit * parts - 1e-6);
   for (double i = first; i <= a->hi / unit * parts + 1e-6 && n < PLOT_TICKS; ++i) {
      double k = i * step / parts, v = power < 0 && power > -300 ? k / pow(10, -power) : k * pow(10, power);
      int minor = fabs(fmod(i, parts)) > 0.5;
      n = plot__tick(to, n, v, minor);
      if (minor) continue;
      if (power > -5 && whole < 6) plot__fixed(to[n - 1].text, v, power < 0 ? -power : 0, 0);
      else if (fabs(i) < 0.5) strcpy(to[n - 1].text, "0");
      else plot_power(to[n - 1].text, v / pow(10, whole), whole > power ? whole - power : 0, whole);
   }
   return n;
}

/* The ticks of an axis whose lo < hi: with text about one in each `each` of so many pixels. Returns how many; `to` has
   PLOT_TICKS. */
static inline int plot_ticks(const plot_axis *a, double pixels, double each, plot_tick *to)
{
   int n = 0;
   double most = fmax(2, floor(pixels / each));
   if (a->ticks || a->names) {
      for (int i = 0; i < a->n_ticks && n < PLOT_TICKS; ++i) {
         double at = a->ticks ? a->ticks[i] : i;
         if (!(at >= a->lo && at <= a->hi)) continue;
         n = plot__tick(to, n, at, 0);
         if (!a->names) plot__fixed(to[n - 1].text, at, 6, 1);
         else if (a->names[i]) strncat(to[n - 1].text, a->names[i], PLOT_LABEL - 1);
      }
      return n;
   }
   double decades = a->log ? log10(a->hi) - log10(a->lo) : 0;
   if (!a->log || decades < 0.7) return plot__linear(a, most, to);
   int each_power = decades > most ? (int)ceil(decades / most) : 1, first = (int)floor(log10(a->lo) + 1e-9);
   for (int power = first; power <= (int)floor(log10(a->hi) + 1e-9); ++power)
      for (int m = 1; m < 10; ++m) {
         double at = plot__ten(power, m);
         int major = m == 1 || (decades < 2 && (m == 2 || m == 5));
         if (at < a->lo * (1 - 1e-9) || at > a->hi * (1 + 1e-9)) continue;
         if (each_power > 1 && (m > 1 || power % each_power)) continue;
         n = plot__tick(to, n, at, !major);
         if (!major) continue;
         if (power > -4 && power < 5) plot__fixed(to[n - 1].text, at, power < 0 ? -power : 0, 0);
         else plot_power(to[n - 1].text, m, 0, power);
      }
   return n;
}

static inline int plot__can(const plot_axis *a, double v)
{
   return v > (a->log ? 1 / plot__most : -plot__most) && v < plot__most;
}
static inline double plot__value(const double *v, int i) { return v ? v[i] : i; }

/* From where to where item i of a series reaches, along x (0) or y (1). 0: it does not matter there. */
static inline int plot__reach(const plot_series *s, int i, int axis, double v[2])
{
   double at = plot__value(axis ? s->y : s->x, i), error = s->error ? fabs(s->error[i]) : 0;
   v[0] = v[1] = at;
   if (s->kind == (axis ? PLOT_VERTICAL : PLOT_HORIZONTAL)) return 0;
   if (s->kind == PLOT_CELLS) error = 0.5;
   else if (axis == (s->sideways != 0)) error = s->kind == PLOT_BARS ? (s->thick > 0 ? s->thick : 0.8) / 2 : 0;
   else if (s->kind == PLOT_BARS || s->low) {
      v[0] = s->low ? s->low[i] : 0;
      return 1;
   }
   if (error < plot__most) v[0] -= error, v[1] += error; /* a NaN is no error */
   return 1;
}

/* More room where bars have labels at their ends. */
static inline double plot__roof(const plot_panel *p, int axis)
{
   for (int k = 0; k < p->n_series; ++k) {
      const plot_series *s = &p->series[k];
      for (int i = 0; i < s->n && s->kind == PLOT_BARS && s->labels && axis != (s->sideways != 0); ++i)
         if (s->labels[i]) return axis ? 2.5 : 4;
   }
   return 1;
}

/* The axis with lo < hi, both in reach of arithmetic. */
static inline plot_axis plot__range(const plot_panel *p, int axis)
{
   plot_axis a = axis ? p->y : p->x;
   double lo = plot__most, hi = -plot__most, v[2], pad = 0.05;
   if (!(a.lo < a.hi && plot__can(&a, a.lo) && plot__can(&a, a.hi))) {
      for (int k = 0; k < p->n_series; ++k)
         for (int i = 0; i < p->series[k].n; ++i) {
            const plot_series *s = &p->series[k];
            if (!plot__reach(s, i, axis, v)) continue;
            if (s->kind == PLOT_BARS && s->error && axis != (s->sideways != 0))
               v[1] += v[1] < 0 ? -s->error[i] : s->error[i];
            for (int e = 0; e < 2; ++e)
               if (plot__can(&a, v[e])) lo = fmin(lo, v[e]), hi = fmax(hi, v[e]);
         }
      if (a.names && !a.ticks && a.n_ticks > 0) lo = fmin(lo, -0.5), hi = fmax(hi, a.n_ticks - 0.5), pad = 0;
      if (lo > hi) lo = a.log ? 1 : 0, hi = a.log ? 10 : 1;
      if (a.log) lo = log10(lo), hi = log10(hi);
      double size = fmax(fabs(lo), fabs(hi));
      if (hi - lo <= 1e-9 * size || hi - lo < 1e-290) {
         pad = a.log ? 0.5 : size < 1e-280 ? 1 : 0.1 * size; /* one value: some room on both sides */
         lo -= pad, hi += pad;
      } else {
         pad *= hi - lo;
         for (int k = 0; k < p->n_series; ++k) /* cells fill the panel, bars stand on its edge */
            if (p->series[k].kind == PLOT_CELLS) pad = 0;
         if (a.log || lo < 0 || lo > 0) lo -= pad;
         if (a.log || hi < 0 || hi > 0) hi += pad * plot__roof(p, axis);
      }
      a.lo = a.log ? pow(10, fmax(lo, -300)) : lo; a.hi = a.log ? pow(10, fmin(hi, 300)) : hi;
   }
   return a;
}

typedef struct plot__frame {
   plot_axis axis[2];
   double at[2], size[2]; /* left and top; width and height */
} plot__frame;

/* The pixel of a value: beyond the frame too, but not far. */
static inline double plot__pixel(const plot__frame *f, int axis, double v)
{
   const plot_axis *a = &f->axis[axis];
   double lo = a->log ? log10(a->lo) : a->lo, hi = a->log ? log10(a->hi) : a->hi;
   double t = ((a->log ? log10(fmax(v, 1e-300)) : v) - lo) / (hi - lo);
   if ((axis == 1) != (a->down != 0)) t = 1 - t;
   return f->at[axis] + f->size[axis] * fmin(fmax(t, -1e4), 1e4);
}
static inline double plot__inside(const plot__frame *f, int axis, double v)
{
   return fmin(fmax(plot__pixel(f, axis, v), f->at[axis]), f->at[axis] + f->size[axis]);
}

/* ---- series ------------------------------------------------------------------------------------------------------ */

static inline void plot__mark(FILE *to, plot_marker m, double x, double y)
{
   static const char *const path[] = {
      "", "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-3.7-3.7h7.4v7.4h-7.4z", "m0-4.8 4.6 8h-9.2z",
      "m0-5.2 5.2 5.2-5.2 5.2-5.2-5.2z",
      "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-4-4 8 8m0-8-8 8"};
   if (m == PLOT_NONE) return;
   plot__print(to, "<path d=\"M% %", x, y, 0, 0);
   fprintf(to, "%s\" %s stroke-dasharray=\"none\"/>\n", path[m],
           m == PLOT_RING || m == PLOT_CROSS ? "fill=\"none\" stroke-width=\"1.8\"" : "stroke=\"none\"");
}

static inline void plot__box(FILE *to, const plot__frame *f, const double x[2], const double y[2], double opacity)
{
   double x0 = plot__inside(f, 0, x[0]), x1 = plot__inside(f, 0, x[1]);
   double y0 = plot__inside(f, 1, y[0]), y1 = plot__inside(f, 1, y[1]);
   plot__print(to, "<rect x=\"%\" y=\"%\" width=\"%\" height=\"%\"", fmin(x0, x1), fmin(y0, y1), fabs(x1 - x0),
               fabs(y1 - y0));
   plot__print(to, " fill-opacity=\"%\" stroke=\"none\"/>\n", fmin(fmax(opacity, 0), 1), 0, 0, 0);
}

/* Keeps what is within the frame of a stretch from (a[0], a[1]) to (b[0], b[1]). 0: nothing is. */
static inline int plot__clip(const plot__frame *f, double *a, double *b)
{
   double t0 = 0, t1 = 1;
   for (int k = 0; k < 2; ++k)
      for (int side = 0; side < 2; ++side) {
         double d = side ? b[k] - a[k] : a[k] - b[k];
         double room = side ? f->at[k] + f->size[k] - a[k] : a[k] - f->at[k];
         if (fabs(d) < 1e-9) {
            if (room < -1e-9) return 0;
         } else if (d > 0) t1 = fmin(t1, room / d);
         else t0 = fmax(t0, room / d);
      }
   if (t0 > t1) return 0;
   for (int k = 0; k < 2; ++k) {
      double from = a[k], d = b[k] - a[k];
      a[k] = from + t0 * d; b[k] = from + t1 * d;
   }
   return 1;
}

static inline int plot__valid(const plot__frame *f, const plot_series *s, int i)
{
   return plot__can(&f->axis[0], plot__value(s->x, i)) && plot__can(&f->axis[1], plot__value(s->y, i));
}

static inline void plot__curve(FILE *to, const plot__frame *f, const plot_series *s)
{
   double last[2] = {-1, -1};
   int begun = 0;
   for (int i = 1; i < s->n; ++i) {
      if (!plot__valid(f, s, i - 1) || !plot__valid(f, s, i)) continue;
      double a[2], b[2];
      for (int k = 0; k < 2; ++k) {
         a[k] = plot__pixel(f, k, plot__value(k ? s->y : s->x, i - 1));
         b[k] = plot__pixel(f, k, plot__value(k ? s->y : s->x, i));
      }
      if (!plot__clip(f, a, b)) continue;
      if (!begun++) fputs("<path fill=\"none\" d=\"", to);
      if (fabs(a[0] - last[0]) + fabs(a[1] - last[1]) > 1e-6) plot__print(to, "M% %", a[0], a[1], 0, 0);
      plot__print(to, "L% %", b[0], b[1], 0, 0);
      last[0] = b[0]; last[1] = b[1];
   }
   if (begun) fputs("\"/>\n", to);
}

static inline void plot__band(FILE *to, const plot__frame *f, const plot_series *s)
{
   int begun = 0;
   double v[2];
   for (int k = 0; k < 2 * s->n; ++k) {
      int i = k < s->n ? k : 2 * s->n - 1 - k;
      if (!plot__valid(f, s, i) || !plot__reach(s, i, 1, v)) continue;
      fputs(begun++ ? "L" : "<path stroke=\"none\" fill-opacity=\"0.18\" d=\"M", to);
      plot__print(to, "% %", plot__inside(f, 0, plot__value(s->x, i)), plot__inside(f, 1, v[k < s->n]), 0, 0);
   }
   if (begun) fputs("z\"/>\n", to);
}

static inline void plot__whisker(FILE *to, const plot__frame *f, const plot_series *s, int i)
{
   const int along = !s->sideways;
   double at[2] = {plot__value(s->x, i), plot__value(s->y, i)}, error = fabs(s->error[i]);
   if (!(error > 0 && error < plot__most)) return;
   double a = plot__inside(f, along, at[along] - error), b = plot__inside(f, along, at[along] + error);
   double c = plot__inside(f, !along, at[!along]);
   if (along) plot__print(to, "<path d=\"M% %V%", c, a, b, 0);
   else plot__print(to, "<path d=\"M% %H%", a, c, b, 0);
   if (along) plot__print(to, "M% %h6M% %h6", c - 3, a, c - 3, b);
   else plot__print(to, "M% %v6M% %v6", a, c - 3, b, c - 3);
   fputs("\" fill=\"none\" stroke-width=\"1.3\" stroke-dasharray=\"none\"/>\n", to);
}

static inline void plot__label(FILE *to, const plot__frame *f, const plot_series *s, int i)
{
   static const double dx[] = {0, 0, 9, -9}, dy[] = {-9, 19, 5, 5};
   static const char *const style[] = {"m", "m", "", "e"};
   double v[2] = {plot__value(s->x, i), plot__value(s->y, i)};
   if (s->kind == PLOT_BARS && s->error && s->error[i] > 0 && s->error[i] < plot__most) v[!s->sideways] += s->error[i];
   double x = plot__inside(f, 0, v[0]), y = plot__inside(f, 1, v[1]);
   int place = (int)s->place & 3, rule = s->kind == PLOT_HORIZONTAL ? 1 : s->kind == PLOT_VERTICAL ? 2 : 0;
   double half = plot__width(s->labels[i]) / 2 + 4;
   if (rule == 1) { /* at the right end, on the line or under it */
      plot__text(to, f->at[0] + f->size[0] - 4, y + (place == PLOT_BELOW ? 16 : -5), "e", s->labels[i]);
   } else if (rule == 2) { /* at the upper end, beside the line */
      plot__text(to, x + (place == PLOT_LEFT ? -5 : 5), f->at[1] + 13, place == PLOT_LEFT ? "e" : "", s->labels[i]);
   } else {
      if (place < 2) x = fmin(fmax(x, f->at[0] + half), f->at[0] + f->size[0] - half);
      y = fmin(fmax(y + dy[place], f->at[1] + 12), f->at[1] + f->size[1] - 4);
      plot__text(to, x + dx[place], y, style[place], s->labels[i]);
   }
}

static inline void plot__open(FILE *to, const plot_series *s)
{
   static const char *const dash[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 4\""};
   fprintf(to, "<g class=\"c%d\" fill=\"currentColor\" stroke=\"currentColor\" stroke-width=\"%s\"%s>\n",
           (int)s->colour % PLOT_COLOURS, s->kind >= PLOT_HORIZONTAL ? "1.3" : "2", dash[s->dash % 3]);
}

static inline void plot__draw(FILE *to, const plot__frame *f, const plot_series *s)
{
   plot__open(to, s);
   if (s->kind == PLOT_LINE) plot__curve(to, f, s);
   if (s->kind == PLOT_BAND) plot__band(to, f, s);
   for (int i = 0; i < s->n; ++i) {
      double x[2], y[2], v[2] = {plot__value(s->x, i), plot__value(s->y, i)};
      int in = 1, used[2] = {plot__reach(s, i, 0, x), plot__reach(s, i, 1, y)};
      for (int k = 0; k < 2; ++k)
         in = in && (!used[k] || (plot__can(&f->axis[k], v[k]) && v[k] >= f->axis[k].lo && v[k] <= f->axis[k].hi));
      if (s->kind == PLOT_CELLS || s->kind == PLOT_BARS) {
         if (!plot__valid(f, s, i)) continue;
         double shade = s->kind == PLOT_BARS ? 0.85 : s->shade ? s->shade[i] : 1;
         while (s->kind == PLOT_CELLS && i + 1 < s->n && plot__value(s->y, i + 1) >= v[1] && /* a row at once */
                plot__value(s->y, i + 1) <= v[1] && fabs(plot__value(s->x, i + 1) - x[1] - 0.5) < 1e-9 &&
                fabs((s->shade ? s->shade[i + 1] : 1) - shade) < 1e-9)
            x[1] += 1, ++i;
         if (shade > 0) plot__box(to, f, x, y, shade);
      }
      if (!in) continue;
      double px = used[0] ? plot__pixel(f, 0, v[0]) : 0, py = used[1] ? plot__pixel(f, 1, v[1]) : 0;
      if (!used[0]) plot__print(to, "<path d=\"M% %h%\"/>\n", f->at[0], py, f->size[0], 0);
      if (!used[1]) plot__print(to, "<path d=\"M% %v%\"/>\n", px, f->at[1], f->size[1], 0);
      if (s->error && s->kind != PLOT_BAND && s->kind != PLOT_CELLS) plot__whisker(to, f, s, i);
      if (s->kind <= PLOT_POINTS)
         plot__mark(to, s->kind == PLOT_POINTS && s->marker == PLOT_NONE ? PLOT_CIRCLE : s->marker, px, py);
      if (s->labels && s->labels[i]) plot__label(to, f, s, i);
   }
   fputs("</g>\n", to);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* The names of the series of n panels, each once, in lines of a width. Returns their height; to NULL: only that. */
static inline double plot__legend(FILE *to, const plot_panel *panels, int n, double left, double top, double width)
{
   double x = 0, y = 0;
   for (int p = 0; p < n; ++p)
      for (int k = 0; k < panels[p].n_series; ++k) {
         const plot_series *s = &panels[p].series[k];
         int again = !s->name;
         for (int q = 0; q <= p && !again; ++q)
            for (int j = 0; j < (q < p ? panels[q].n_series : k) && !again; ++j)
               again = panels[q].series[j].name && !strcmp(panels[q].series[j].name, s->name);
         if (again) continue;
         double wide = 28 + plot__width(s->name);
         if (x > 0 && x + wide > width) x = 0, y += plot__row;
         if (to) {
            double at = left + x, mid = top + y + 9;
            plot__open(to, s);
            if (s->kind == PLOT_LINE || s->kind >= PLOT_HORIZONTAL)
               plot__print(to, "<path d=\"M% %h22\"/>\n", at, mid, 0, 0);
            else if (s->kind != PLOT_POINTS)
               plot__print(to, "<path stroke=\"none\" fill-opacity=\"%\" d=\"M% %h14v12h-14z\"/>\n",
                           s->kind == PLOT_BAND ? 0.25 : s->kind == PLOT_BARS ? 0.85 : 1, at + 4, mid - 6, 0);
            if (s->kind <= PLOT_POINTS)
               plot__mark(to, s->kind == PLOT_POINTS && !s->marker ? PLOT_CIRCLE : s->marker, at + 11, mid);
            fputs("</g>\n", to);
            plot__text(to, at + 28, mid + 5, "", s->name);
         }
         x += wide + 13;
      }
   return x > 0 ? y + plot__row + 5 : 0;
}

/* What stands around the axes of a panel that is `width` wide. */
typedef struct plot__margin {
   double left, right, top, bottom, legend;
} plot__margin;

static inline double plot__height(const plot_panel *p) { return p->height > 0 ? p->height : 240; }
static inline double plot__share(const plot_panel *p) { return p->width > 0 ? p->width : 1; }
static inline double plot__wide(const plot_panel *p, double width)
{
   return plot__share(p) * (width + plot__gap) - plot__gap;
}

static inline plot__margin plot__around(const plot_panel *p, double width, int legend, plot__frame *f)
{
   plot__margin m = {10, 10, 6, 10, 0};
   plot_tick ticks[PLOT_TICKS];
   f->axis[0] = plot__range(p, 0);
   f->axis[1] = plot__range(p, 1);
   for (int i = plot_ticks(&f->axis[1], plot__height(p), 40, ticks) - 1; i >= 0; --i)
      m.left = fmax(m.left, plot__width(ticks[i].text) + 10);
   for (int i = plot_ticks(&f->axis[0], width, 50, ticks) - 1; i >= 0; --i) {
      if (!f->axis[0].names) m.right = fmax(m.right, plot__width(ticks[i].text) / 2);
      if (ticks[i].text[0]) m.bottom = fmax(m.bottom, strchr(ticks[i].text, '\n') ? 24 + plot__row - 3 : 24);
   }
   if (p->x.label) m.bottom += plot__row;
   if (p->y.label) m.top += plot__row;
   if (p->title) m.top += plot__row + 2;
   if (legend) m.top += m.legend = plot__legend(NULL, p, 1, 0, 0, width - m.right);
   return m;
}

static inline void plot__axis(FILE *to, const plot__frame *f, int axis)
{
   plot_tick ticks[PLOT_TICKS];
   double end = -1e9, bottom = f->at[1] + f->size[1];
   int n = plot_ticks(&f->axis[axis], f->size[axis], axis ? 40 : 50, ticks);
   for (int i = 0; i < n; ++i) {
      double at = plot__inside(f, axis, ticks[i].at), half = plot__width(ticks[i].text) / 2;
      if (!ticks[i].minor && !f->axis[axis].names) {
         if (axis) plot__print(to, "<path class=\"grid\" d=\"M% %h%\"/>", f->at[0], at, f->size[0], 0);
         else plot__print(to, "<path class=\"grid\" d=\"M% %v%\"/>", at, f->at[1], f->size[1], 0);
      }
      if (axis) plot__print(to, "<path class=\"axis\" d=\"M% %h%\"/>\n", f->at[0], at, ticks[i].minor ? -3 : -5, 0);
      else plot__print(to, "<path class=\"axis\" d=\"M% %v%\"/>\n", at, bottom, ticks[i].minor ? 3 : 5, 0);
      if (!ticks[i].text[0]) continue;
      if (axis) plot__text(to, f->at[0] - 8, at + 5, "e", ticks[i].text);
      else if (fabs(at - end) >= half + 5) { /* else it would touch the one before */
         const char *line = ticks[i].text;
         for (double y = bottom + 19; line; y += plot__row - 3) line = plot__text(to, at, y, "m", line);
         end = at + (f->axis[0].down ? -half : half);
      }
   }
}

/* top: of the row; area: of what is within the axes. */
static inline void plot__panel(FILE *to, const plot_panel *p, plot__frame *f, const plot__margin *m, double left,
                               double top, double area, double width)
{
   f->at[0] = left + m->left; f->at[1] = area;
   f->size[0] = width - m->left - m->right; f->size[1] = plot__height(p);
   double bottom = f->at[1] + f->size[1], y = top + 15;
   if (p->title) plot__text(to, left, y, "b", p->title), y += plot__row + 2;
   if (m->legend > 0) plot__legend(to, p, 1, left, y - 14, width - m->right);
   if (p->y.label) plot__text(to, left, area - 9, "l", p->y.label);
   plot__print(to, "<rect class=\"area\" x=\"%\" y=\"%\" width=\"%\" height=\"%\"/>\n", f->at[0], f->at[1], f->size[0],
               f->size[1]);
   plot__axis(to, f, 0);
   plot__axis(to, f, 1);
   plot__print(to, "<path class=\"axis\" d=\"M% %V%H%\"/>\n", f->at[0], f->at[1], bottom, f->at[0] + f->size[0]);
   if (p->x.label) { /* in the middle, or at the end of the panel */
      double middle = f->at[0] + f->size[0] / 2, room = left + width - plot__width(p->x.label) / 2;
      plot__text(to, fmin(middle, room), bottom + m->bottom - 1, "m l", p->x.label);
   }
   for (int k = 0; k < p->n_series; ++k) plot__draw(to, f, &p->series[k]);
}

/* Draws the panels, from `top` on, in rows. Returns where they end; to NULL: only that. */
static inline double plot__rows(FILE *to, const plot *p, double width, double top)
{
   for (int first = 0, end; first < p->n_panels; first = end) {
      double share = 0, height = 0, above = 0, left = 0;
      plot__frame f;
      plot__margin m;
      for (end = first; end < p->n_panels; ++end) { /* axes of a row begin at one height */
         share += plot__share(&p->panels[end]);
         if (end > first && share > 1.001) break;
         m = plot__around(&p->panels[end], plot__wide(&p->panels[end], width), !p->legend, &f);
         above = fmax(above, m.top);
      }
      for (int i = first; i < end; ++i) {
         const plot_panel *panel = &p->panels[i];
         double w = plot__wide(panel, width);
         m = plot__around(panel, w, !p->legend, &f);
         if (to) plot__panel(to, panel, &f, &m, left, top, top + above, w);
         height = fmax(height, above + plot__height(panel) + m.bottom);
         left += w + plot__gap;
      }
      top += height + (end < p->n_panels ? plot__gap : 4);
   }
   return top;
}

/* Writes the figure. 0: the file says that writing failed. Colours are classes, which set `color`, and not custom
   properties: programs that know no var() show the figure too. */
static inline int plot_svg(FILE *to, const plot *p)
{
   static const char *const colours[2] = {
      ".plot{color:#1f2328}.plot .c0{color:#57606a}.plot .c1{color:#0067a8}.plot .c2{color:#c24e00}"
      ".plot .c3{color:#00795a}.plot .c4{color:#a3407a}.plot .c5{color:#856500}",
      ".plot{color:#e6edf3}.plot .c0{color:#a9b3bd}.plot .c1{color:#58b0f0}.plot .c2{color:#ff8f52}"
      ".plot .c3{color:#2fc89c}.plot .c4{color:#e88fc0}.plot .c5{color:#e0b93a}"};
   double width = p->width > 0 ? p->width : 720, top = p->title ? 30 : 4;
   double legend = p->legend ? plot__legend(NULL, p->panels, p->n_panels, 0, 0, width) : 0;
   int height = (int)ceil(plot__rows(NULL, p, width, top + legend));
   fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 %d %d\"", (int)width, height);
   fprintf(to, " width=\"%d\" height=\"%d\" role=\"img\">\n<title>", (int)width, height);
   plot__line(to, p->title ? p->title : "figure");
   fputs("</title>\n<desc>", to);
   for (const char *d = p->desc; d; fputc(' ', to)) d = plot__line(to, d);
   fprintf(to,
           "</desc>\n<style>\n%s\n"
           ".plot text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;"
           "font-size:14px;fill:currentColor;stroke:none}\n"
           ".plot .m{text-anchor:middle}.plot .e{text-anchor:end}.plot .l{fill-opacity:0.75}"
           ".plot .b,.plot .t{font-weight:600}.plot .t{font-size:16px}\n"
           ".plot .axis{fill:none;stroke:currentColor}.plot .grid{fill:none;stroke:#8c959f;stroke-opacity:0.25}"
           ".plot .area{fill:#8c959f;fill-opacity:0.07}\n"
           "@media (prefers-color-scheme:dark){%s}\n</style>\n",
           colours[0], colours[1]);
   if (p->title) plot__text(to, 0, 17, "t", p->title);
   if (p->legend) plot__legend(to, p->panels, p->n_panels, 0, top, width);
   plot__rows(to, p, width, top + legend);
   fputs("</svg>\n", to);
   return fflush(to) == 0 && !ferror(to);
}

#endif
