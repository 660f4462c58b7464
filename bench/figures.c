/* figures.c - draws the SVG files of docs/figures, after the paper's figures 3 to 7, from what the experiments measured

      make figures
      build/figures --help

   Reads runs.csv, curves.csv and speed.csv as bench/experiments.c writes them, and routing.csv of bench/routing.c. Rows
   are found by what they say, never by their place: a figure whose rows are not there yet is skipped, with a sentence.
   A model is all runs that differ in the seed only. Of several learning rates and batches it has the one with most
   seeds; of these, that of the lowest validation loss. "Best" is by validation loss, too; what is drawn of stage iso is
   the loss on the test part.
*/
#include "../examples/common/options.h"
#include "../examples/common/plot.h"
#include <stdarg.h>
#include <sys/stat.h>
#include "../mod.h"
#include "experiments/spec.h"

static const char *data = "bench/experiments", *out = "docs/figures";
static const option table[] = {
   {"--data", "DIR", OPTION_TEXT, &data, 0, 0, NULL, "where the CSV files are (default bench/experiments)"},
   {"--out", "DIR", OPTION_TEXT, &out, 0, 0, NULL, "where the figures go (default docs/figures)"}};
enum { OPTIONS = sizeof table / sizeof table[0] };

/* Of the plan's two rounds the second is drawn. Budgets: of stage iso, of the stages settings and mode, and the one at
   which single models are shown. */
#define ROUND "init=fan"
#define SETTINGS_BUDGET "3e12"
#define MODE_BUDGET "3e12"
#define SHOWN_BUDGET "1e13"
static const char *const budgets[] = {"3e12", "1e13", "3e13"};
enum { BUDGETS = sizeof budgets / sizeof budgets[0] };

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A CSV file without quotes. Row 0 has the names of the columns. */
typedef struct csv {
   char *bytes;
   const char **cell;
   int n_columns, n_rows, field[SPEC_FIELDS]; /* the columns of spec.h's fields; -1: there is none */
} csv;
static csv runs, curves, speed, routing;

static void csv_read(csv *t, const char *name)
{
   char path[512];
   long size;
   int cells = 1, lines = 0;
   snprintf(path, sizeof path, "%s/%s", data, name);
   FILE *f = fopen(path, "rb");
   if (!f) return;
   if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 0 && fseek(f, 0, SEEK_SET) == 0 &&
       (t->bytes = (char *)malloc((size_t)size + 1)) != NULL) {
      size = (long)fread(t->bytes, 1, (size_t)size, f);
      t->bytes[size] = '\0';
      for (char *at = t->bytes; *at; ++at) {
         cells += *at == ',' && lines == 0;
         lines += *at == '\n';
      }
      t->cell = (const char **)calloc((size_t)lines + 1, (size_t)cells * sizeof *t->cell);
   }
   fclose(f);
   if (!t->cell) return;
   t->n_columns = cells;
   for (int i = 0; i < SPEC_FIELDS; ++i) t->field[i] = -1;
   for (char *line = t->bytes, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) { /* a half line is no row */
      const char **row = t->cell + t->n_rows * cells;
      int n = 0;
      *end = '\0';
      for (char *at = line; at && n < cells; ++n) {
         row[n] = at;
         at = strchr(at, ',');
         if (at) *at++ = '\0';
      }
      for (; n < cells; ++n) row[n] = "";
      ++t->n_rows;
   }
   for (int i = 0; i < SPEC_FIELDS && t->n_rows; ++i)
      for (int c = 0; c < cells; ++c)
         if (strcmp(t->cell[c], spec_names[i]) == 0) t->field[i] = c;
}

/* "" if there is no such column. */
static const char *get(const csv *t, int row, const char *column)
{
   for (int c = 0; c < t->n_columns; ++c)
      if (strcmp(t->cell[c], column) == 0) return t->cell[row * t->n_columns + c];
   return "";
}
static const char *field(const csv *t, int row, int f)
{
   return t->field[f] < 0 ? "" : t->cell[row * t->n_columns + t->field[f]];
}
static int has(const csv *t, int row, const char *column) { return *get(t, row, column) != '\0'; }
static double number(const csv *t, int row, const char *column)
{
   return has(t, row, column) ? strtod(get(t, row, column), NULL) : (double)NAN;
}

/* Whether a row is as words `column=value` say. */
static int is(const csv *t, int row, const char *words)
{
   char word[64];
   int length;
   for (; sscanf(words, " %63s%n", word, &length) == 1; words += length) {
      char *value = strchr(word, '=');
      if (!value) return 0;
      *value++ = '\0';
      if (strcmp(get(t, row, word), value) != 0) return 0;
   }
   return 1;
}

/* Whether two rows say the same in every field of spec.h, but those of a list that ends with SPEC_FIELDS. */
static int alike(const csv *t, int row, const csv *u, int other, const spec_field *but)
{
   for (int f = SPEC_FIELDS - 1; f >= 0; --f) {
      const spec_field *b = but;
      if (strcmp(field(t, row, f), field(u, other, f)) == 0) continue;
      while (*b != SPEC_FIELDS && *b != (spec_field)f) ++b;
      if (*b == SPEC_FIELDS) return 0;
   }
   return strcmp(get(t, row, "text"), get(u, other, "text")) == 0;
}
static const spec_field in_seed[] = {SPEC_SEED, SPEC_FIELDS};
static const spec_field in_training[] = {SPEC_SEED, SPEC_LR, SPEC_SEQS, SPEC_FIELDS};
static const spec_field in_size[] = {SPEC_SEED, SPEC_LR, SPEC_SEQS, SPEC_SIZE, SPEC_BUDGET, SPEC_FIELDS};

/* ---- models ------------------------------------------------------------------------------------------------------ */

enum { MODELS = 64 };
typedef struct models {
   int n, row[MODELS]; /* a run of each, of the rate that the model has; in the order of FLOPs */
} models;

typedef struct value {
   double mean, error; /* standard error; 0 of one seed */
   int n;
} value;

static value average(const double *v, int n)
{
   value a = {0, 0, n};
   double squares = 0;
   for (int i = 0; i < n; ++i) a.mean += v[i] / n;
   for (int i = 0; i < n; ++i) squares += (v[i] - a.mean) * (v[i] - a.mean);
   if (n > 1) a.error = sqrt(squares / (n - 1) / n);
   if (n == 0) a.mean = (double)NAN;
   return a;
}

/* A column, over the seeds of a model. */
static value of(int model, const char *column)
{
   double v[MODELS];
   int n = 0;
   for (int r = 1; r < runs.n_rows && n < MODELS; ++r)
      if (has(&runs, r, column) && alike(&runs, r, &runs, model, in_seed)) v[n++] = number(&runs, r, column);
   return average(v, n);
}

/* column of the model / base of another one. Seed by seed, where all seeds of the model have a partner: they read the
   same text in the same order, so that much of the noise is common. */
static value relative(int model, const char *column, int other, const char *base)
{
   double v[MODELS], mean = of(other, base).mean;
   int n = 0, alone = 0;
   for (int pass = 0; pass < 2 && (pass == 0 || alone); ++pass) {
      n = 0;
      for (int r = 1; r < runs.n_rows && n < MODELS; ++r) {
         if (!has(&runs, r, column) || !alike(&runs, r, &runs, model, in_seed)) continue;
         double partner = (double)NAN;
         for (int q = 1; q < runs.n_rows; ++q)
            if (has(&runs, q, base) && alike(&runs, q, &runs, other, in_seed) &&
                strcmp(get(&runs, q, "seed"), get(&runs, r, "seed")) == 0)
               partner = number(&runs, q, base);
         if (!(partner > 0)) alone = 1;
         v[n++] = number(&runs, r, column) / (pass ? mean : partner);
      }
   }
   return average(v, n);
}

/* Of a training step, side by side with the other models; NAN if that was not measured. */
static double seconds_a_step(int model)
{
   for (int r = 1; r < speed.n_rows; ++r)
      if (alike(&speed, r, &runs, model, in_seed)) return number(&speed, r, "step_median");
   return (double)NAN;
}

static double flops(int row) { return number(&runs, row, "flops_per_token"); }
static double step_flops(int row) { return 3 * flops(row) * number(&runs, row, "seqs") * SPEC_CONTEXT; }

/* The models with this column whose rows are as the words say, and of the kind of a row (0: any). */
static models find(const char *words, int kind, const char *column)
{
   models m = {0, {0}};
   for (int r = 1; r < runs.n_rows && m.n < MODELS; ++r) {
      if (!has(&runs, r, column) || !is(&runs, r, ROUND) || !is(&runs, r, words)) continue;
      if (kind && !alike(&runs, r, &runs, kind, in_size)) continue;
      int at = 0;
      while (at < m.n && !alike(&runs, r, &runs, m.row[at], in_training)) ++at;
      if (at < m.n) {
         value old = of(m.row[at], "validation_loss"), now = of(r, "validation_loss");
         if (now.n > old.n || (now.n == old.n && now.mean < old.mean)) m.row[at] = r;
      } else m.row[m.n++] = r;
   }
   for (int i = 1; i < m.n; ++i)
      for (int k = i; k > 0 && flops(m.row[k]) < flops(m.row[k - 1]); --k) {
         int row = m.row[k];
         m.row[k] = m.row[k - 1]; m.row[k - 1] = row;
      }
   return m;
}

static int best(const models *m) /* 0: there is none */
{
   int found = 0;
   for (int i = 0; i < m->n; ++i)
      if (!found || of(m->row[i], "validation_loss").mean < of(found, "validation_loss").mean) found = m->row[i];
   return found;
}

/* A run of the MoD models that were trained at most sizes and budgets and tested: what the plan calls MoD. */
static int mod_kind(void)
{
   int found = 0, most = 0;
   for (int r = 1; r < runs.n_rows; ++r) {
      int before = 1;
      if (!has(&runs, r, "test_loss") || !is(&runs, r, ROUND " select=learned mlp=plain causal=predictor match=yes"))
         continue;
      while (before < r && !(alike(&runs, before, &runs, r, in_size) && has(&runs, before, "test_loss"))) ++before;
      if (before < r) continue; /* counted already */
      models same = find("", r, "test_loss");
      if (same.n > most) {
         most = same.n;
         found = r;
      }
   }
   return found;
}

/* Dense models that have a MoD model of the same size and budget beside them: those of stage iso. */
static models dense_beside(const models *mod, const char *budget)
{
   models all = find("select=all mlp=plain match=no", 0, "test_loss"), m = {0, {0}};
   for (int i = 0; i < all.n; ++i) {
      int beside = 0;
      for (int k = 0; k < mod->n; ++k)
         beside |= strcmp(get(&runs, mod->row[k], "size"), get(&runs, all.row[i], "size")) == 0;
      if (beside && strcmp(get(&runs, all.row[i], "budget"), budget) == 0) m.row[m.n++] = all.row[i];
   }
   return m;
}

/* The largest model whose pass costs at most 60% of a dense one's. 0: none does. */
static int small(const models *m, int dense)
{
   int found = 0;
   for (int i = 0; i < m->n; ++i)
      if (flops(m->row[i]) <= 0.6 * flops(dense)) found = m->row[i];
   return found;
}

static int config_of(int row, mod_config *cfg)
{
   spec s;
   double per_token;
   memset(&s, 0, sizeof s);
   for (int f = 0; f < SPEC_FIELDS; ++f) snprintf(s.value[f], sizeof s.value[f], "%s", field(&runs, row, f));
   return spec_config(&s, cfg, &per_token) == NULL;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* What figures point to: as long as one is drawn. */
static double numbers[65536];
static const char *words_of[1024];
static char texts[16384];
static plot_series series[256];
static int n_numbers, n_words, n_texts, n_series;

static void fresh(void) { n_numbers = n_words = n_texts = n_series = 0; }

static const char *say(const char *format, ...)
{
   char *to = texts + n_texts;
   va_list args;
   va_start(args, format);
   int n = vsnprintf(to, sizeof texts - (size_t)n_texts, format, args);
   va_end(args);
   n_texts += n + 1;
   if (n < 0 || n_texts > (int)sizeof texts) exit(3);
   return to;
}

static const char *ten_to(const char *budget)
{
   char text[PLOT_LABEL];
   double v = strtod(budget, NULL);
   int exponent = (int)floor(log10(v) + 1e-9);
   plot_power(text, v / pow(10, exponent), 0, exponent);
   return say("%s", text);
}

static const char *size_of(int row)
{
   mod_config c;
   if (!config_of(row, &c)) return say("%s", get(&runs, row, "size"));
   return say("%d\xc3\x97%d", c.n_layers, c.d_model);
}

typedef struct curve { /* a series that grows */
   plot_series *s;
   double *x, *y, *error;
   const char **labels;
   int most;
} curve;

/* The series of a panel follow one another: one panel after the other is filled. */
static curve add(plot_panel *p, plot_kind kind, const char *name, plot_colour colour, plot_marker marker, int most)
{
   curve c = {&series[n_series], numbers + n_numbers, numbers + n_numbers + most, numbers + n_numbers + 2 * most,
              words_of + n_words, most};
   if (n_series == 256 || n_numbers + 3 * most > 65536 || (kind != PLOT_CELLS && n_words + most > 1024)) exit(3);
   memset(c.s, 0, sizeof *c.s);
   c.s->kind = kind; c.s->name = name; c.s->colour = colour; c.s->marker = marker;
   c.s->x = c.x; c.s->y = c.y; c.s->error = c.error;
   if (!p->series) p->series = c.s;
   ++p->n_series; ++n_series;
   n_numbers += 3 * most;
   if (kind == PLOT_CELLS) return c; /* no labels */
   for (int i = 0; i < most; ++i) c.labels[i] = NULL;
   c.s->labels = c.labels;
   n_words += most;
   return c;
}

static void point(curve *c, double x, value y, const char *label)
{
   if (c->s->n == c->most) return;
   c->x[c->s->n] = x; c->y[c->s->n] = y.mean; c->error[c->s->n] = y.error;
   if (c->s->labels) c->labels[c->s->n] = label;
   ++c->s->n;
}
static value exactly(double mean)
{
   value v = {mean, 0, 1};
   return v;
}

static void rule(plot_panel *p, plot_kind kind, double at, const char *label) /* a label stands under it */
{
   curve c = add(p, kind, NULL, PLOT_GREY, PLOT_NONE, 1);
   c.s->dash = 1; c.s->place = PLOT_BELOW;
   point(&c, at, exactly(at), label);
}

static int draw(const char *name, const char *title, const char *desc, plot_panel *panels, int n, int legend)
{
   char path[512];
   plot figure = {0};
   figure.title = title; figure.desc = desc; figure.panels = panels; figure.n_panels = n; figure.legend = legend;
   snprintf(path, sizeof path, "%s/%s.svg", out, name);
   FILE *f = fopen(path, "wb");
   int ok = f != NULL;
   if (ok) ok = plot_svg(f, &figure);
   if (f && fclose(f) != 0) ok = 0;
   if (ok) printf("%s\n", path);
   else fprintf(stderr, "figures: cannot write %s\n", path);
   return ok;
}

static int skip(const char *name, const char *why)
{
   printf("skipped %s: %s\n", name, why);
   return 1;
}

static const char nats[] = "validation loss (nats a byte)";

/* ---- figure 3: settings, learning curves ------------------------------------------------------------------------- */

#define USUAL "select=learned mlp=plain match=yes gate=raw causal=predictor router_loss=- ramp=0 "

/* What is different from 12.5%, every second block, raw gate and predictor, in words. */
static const char *difference(int row)
{
   const char *select = get(&runs, row, "select"), *gate = get(&runs, row, "gate"), *ramp = get(&runs, row, "ramp");
   const char *causal = get(&runs, row, "causal"), *first = get(&runs, row, "first");
   const char *loss = get(&runs, row, "router_loss"), *text = "";
   if (!strcmp(select, "stochastic")) return "stochastic routing";
   if (!strcmp(select, "every")) return "every 8th position";
   if (!strcmp(select, "token")) return "token-choice";
   if (!strcmp(select, "first")) return "first positions";
   if (!strcmp(gate, "sigmoid")) text = say("%s, gate sigmoid", text);
   if (!strcmp(gate, "tanh")) text = say("%s, gate 1 + 0.2 tanh", text);
   if (!strcmp(gate, "one")) text = say("%s, gate 1", text);
   if (!strcmp(causal, "router")) text = say("%s, router loss", text);
   if (!strcmp(causal, "both")) text = say("%s, router loss + predictor", text);
   if (!strcmp(causal, "none")) text = say("%s, no predictor", text);
   if (strcmp(loss, "-")) text = say("%s, weight %s", text, loss);
   if (strcmp(first, "2")) text = say("%s, first routed: %s", text, first);
   if (strcmp(ramp, "0")) text = say("%s, warm-up over %.0f%%", text, 100 * strtod(ramp, NULL));
   return *text ? text + 2 : "raw gate, predictor";
}

static int settings(void)
{
   static const char name[] = "fig3-settings";
   static const double ticks[] = {6.25, 12.5, 25, 50, 75, 95, 100};
   static const char *const ticks_names[] = {"6.25", "12.5", "25", "50", "", "", "100"};
   models random = find("budget=" SETTINGS_BUDGET " select=stochastic mlp=plain match=yes", 0, "validation_loss");
   models all = find("budget=" SETTINGS_BUDGET " select=all mlp=plain match=no", 0, "validation_loss");
   int any = random.n ? random.row[0] : best(&all), dense = 0, n = 0;
   const char *size = any ? get(&runs, any, "size") : "";
   for (int i = 0; i < all.n; ++i)
      if (!strcmp(get(&runs, all.row[i], "size"), size)) dense = all.row[i];
   fresh();
   plot_panel p[2] = {{0}};
   models second = find(say("budget=" SETTINGS_BUDGET " size=%s first=2 every=2 " USUAL, size), 0, "validation_loss");
   models every = find(say("budget=" SETTINGS_BUDGET " size=%s every=1 " USUAL, size), 0, "validation_loss");
   if (!dense || second.n < 2) return skip(name, "runs.csv has no dense model and two capacities of one size");

   value base = of(dense, "validation_loss");
   p[0].title = say("(a) Capacity, %s FLOPs", ten_to(SETTINGS_BUDGET));
   p[0].width = 0.46; p[0].height = 310;
   p[0].x.label = "tokens that a routed block takes (%)"; p[0].x.log = 1; p[0].x.lo = 5.2; p[0].x.hi = 120;
   p[0].x.ticks = ticks; p[0].x.names = ticks_names; p[0].x.n_ticks = 7;
   p[0].y.label = nats;
   curve band = add(&p[0], PLOT_BAND, NULL, PLOT_BLUE, PLOT_NONE, 2);
   point(&band, p[0].x.lo, base, NULL);
   point(&band, p[0].x.hi, base, NULL);
   curve line = add(&p[0], PLOT_HORIZONTAL, "dense", PLOT_BLUE, PLOT_NONE, 1);
   line.s->dash = 1;
   point(&line, 0, exactly(base.mean), NULL);
   for (int k = 0; k < 2; ++k) {
      const models *m = k ? &every : &second;
      if (m->n == 0) continue;
      curve c = add(&p[0], PLOT_LINE, k ? "every block" : "every second block", k ? PLOT_GREEN : PLOT_RED,
                    k ? PLOT_DIAMOND : PLOT_SQUARE, MODELS);
      for (int last = 0, i = 0; i < m->n; ++i) { /* in the order of capacity */
         int next = 0;
         for (int j = 0; j < m->n; ++j) {
            double capacity = number(&runs, m->row[j], "capacity");
            if ((!last || capacity > number(&runs, last, "capacity")) &&
                (!next || capacity < number(&runs, next, "capacity")))
               next = m->row[j];
         }
         if (!next) break;
         point(&c, 100 * number(&runs, next, "capacity"), of(next, "validation_loss"), NULL);
         last = next;
      }
   }

   static const char *names[MODELS];
   int rows[MODELS];
   value v[MODELS];
   models others = find(say("budget=" SETTINGS_BUDGET " size=%s mlp=plain match=yes capacity=0.125 every=2", size), 0,
                        "validation_loss");
   for (int i = 0; i < others.n; ++i) {
      value r = relative(others.row[i], "validation_loss", dense, "validation_loss");
      int at = n++;
      r.mean = 100 * (r.mean - 1); r.error *= 100;
      for (; at > 0 && v[at - 1].mean > r.mean; --at) v[at] = v[at - 1], rows[at] = rows[at - 1];
      v[at] = r; rows[at] = others.row[i];
   }
   p[1].title = "(b) Other settings at 12.5%";
   p[1].width = 0.54; p[1].height = 310;
   p[1].x.label = "validation loss beside dense (%)";
   p[1].y.names = names; p[1].y.n_ticks = n; p[1].y.down = 1;
   line = add(&p[1], PLOT_VERTICAL, "dense", PLOT_BLUE, PLOT_NONE, 1);
   line.s->dash = 1;
   point(&line, 0, exactly(0), NULL);
   for (int random_too = 0; random_too < 2; ++random_too) {
      curve c = add(&p[1], PLOT_POINTS, random_too ? "not learned" : "learned", random_too ? PLOT_PURPLE : PLOT_RED,
                    random_too ? PLOT_TRIANGLE : PLOT_SQUARE, MODELS);
      c.s->sideways = 1;
      for (int i = 0; i < n; ++i) {
         names[i] = difference(rows[i]);
         if (is(&runs, rows[i], "select=learned") == random_too) continue;
         c.error[c.s->n] = v[i].error; c.x[c.s->n] = v[i].mean; c.y[c.s->n++] = i;
      }
   }
   return draw(name, "Settings of MoD", "Left: validation loss against the capacity of routed blocks. Right: "
               "validation loss of other settings relative to the dense model, with standard errors.", p, n ? 2 : 1, 0);
}

/* A column of curves.csv against another one times `scale`, averaged over the seeds of a model. */
static void course(curve *c, int model, const char *along, double scale, const char *column)
{
   for (int r = 1; r < curves.n_rows; ++r) {
      if (!alike(&curves, r, &runs, model, in_seed) || !has(&curves, r, column)) continue;
      double x[MODELS], y[MODELS];
      int n = 0, first = 0;
      for (int q = 1; q < curves.n_rows && n < MODELS; ++q)
         if (has(&curves, q, column) && alike(&curves, q, &runs, model, in_seed) &&
             strcmp(get(&curves, q, "step"), get(&curves, r, "step")) == 0) {
            if (!first) first = q;
            x[n] = scale * number(&curves, q, along); y[n++] = number(&curves, q, column);
         }
      if (first != r) continue; /* had already */
      point(c, average(x, n).mean, exactly(average(y, n).mean), NULL);
   }
}

static int learning(void)
{
   static const char name[] = "fig3-curves";
   static const plot_colour colours[] = {PLOT_BLUE, PLOT_PURPLE, PLOT_RED, PLOT_OCHRE};
   static const plot_marker markers[] = {PLOT_CIRCLE, PLOT_RING, PLOT_SQUARE, PLOT_TRIANGLE};
   static const char *ticks[4];
   const char *names[4];
   plot_panel p[4] = {{0}};
   int kind = mod_kind(), rows[4] = {0}, n = 0;
   models mod = find("budget=" SHOWN_BUDGET, kind, "test_loss"), dense = dense_beside(&mod, SHOWN_BUDGET);
   if (!kind || !(rows[0] = best(&dense)) || !(rows[2] = best(&mod)))
      return skip(name, "runs.csv has no dense and MoD model of one size");
   for (int i = dense.n - 1; i >= 0; --i)
      if (flops(dense.row[i]) >= 1.5 * flops(rows[0])) rows[1] = dense.row[i];
   rows[3] = small(&mod, rows[0]);
   for (int i = 0; i < 4; ++i)
      if (rows[i] && !(seconds_a_step(rows[i]) > 0)) return skip(name, "speed.csv has not all of its models");
   fresh();
   names[0] = say("dense %s, the best", size_of(rows[0]));
   names[1] = rows[1] ? say("dense %s, larger", size_of(rows[1])) : "";
   names[2] = say("MoD %s, the best", size_of(rows[2]));
   names[3] = rows[3] ? say("MoD %s, small", size_of(rows[3])) : "";
   p[0].title = "(a) By FLOPs"; p[0].x.label = say("FLOPs of training (%s)", ten_to("1e12"));
   p[1].title = "(b) By time"; p[1].x.label = "training (s), two threads";
   p[2].title = "(c) FLOPs of a step"; p[2].y.label = say("FLOPs (%s)", ten_to("1e9"));
   p[3].title = "(d) Speed"; p[3].y.label = "steps a second";
   for (int k = 0; k < 2; ++k) {
      double lo = 1e9, hi = 0;
      p[k].width = p[k + 2].width = 0.5;
      p[k + 2].height = 150;
      p[k].y.label = nats;
      p[k].x.lo = p[k].x.hi = 0;
      for (int i = 0; i < 4; ++i) {
         double step = rows[i] ? step_flops(rows[i]) / 1e12 : 0;
         if (!rows[i]) continue;
         curve c = add(&p[k], PLOT_LINE, names[i], colours[i], markers[i], MODELS);
         c.s->dash = i == 1 || i == 3;
         course(&c, rows[i], "step", k ? seconds_a_step(rows[i]) : step, "validation_loss");
         if (c.s->n < 3) return skip(name, "curves.csv has no course of these models");
         for (int j = 0; j < c.s->n; ++j) lo = fmin(lo, c.y[j]);
         hi = fmax(hi, c.y[2]); /* the first points, where little is learned yet, would squeeze the others */
      }
      p[k].y.lo = lo - 0.04 * (hi - lo); p[k].y.hi = hi + 0.04 * (hi - lo);
   }
   for (int k = 2; k < 4; ++k) {
      n = 0;
      for (int i = 0; i < 4; ++i) {
         if (!rows[i]) continue;
         double step = step_flops(rows[i]) / 1e9;
         double v = k == 2 ? step : 1 / seconds_a_step(rows[i]);
         curve c = add(&p[k], PLOT_BARS, names[i], colours[i], PLOT_NONE, 1);
         point(&c, n, exactly(v), say(v < 10 ? "%.2f" : "%.1f", v));
         ticks[n++] = say("%s\n%s", i < 2 ? "dense" : "MoD", size_of(rows[i]));
      }
      p[k].x.names = ticks; p[k].x.n_ticks = n;
   }
   return draw(name, say("Learning curves, %s FLOPs", ten_to(SHOWN_BUDGET)), "Validation loss of two dense and two MoD "
               "models against FLOPs and seconds of training; FLOPs of a step and steps a second.", p, 4, 1);
}

/* ---- figures 4, 6, 7: loss against size -------------------------------------------------------------------------- */

/* Loss beside that of the best dense model, against FLOPs of a pass beside its. */
static void normalised(plot_panel *p, const models *m, int base, const char *column, const char *on, curve *c)
{
   for (int i = 0; i < m->n; ++i)
      if (of(m->row[i], column).n)
         point(c, flops(m->row[i]) / flops(base), relative(m->row[i], column, base, on), NULL);
   p->x.log = 1;
   p->x.label = "FLOPs of a forward pass / best dense";
}
static void ones(plot_panel *p)
{
   rule(p, PLOT_HORIZONTAL, 1, NULL);
   rule(p, PLOT_VERTICAL, 1, NULL);
}
/* Not models that are far too large or small: they would squeeze what is near 1. */
static void near_one(plot_panel *p)
{
   double lo = 1, hi = 1, left = 1, right = 1;
   for (int k = 0; k < p->n_series; ++k)
      for (int i = 0; i < p->series[k].n; ++i) {
         const plot_series *s = &p->series[k];
         if (s->kind != PLOT_LINE || !(s->y[i] < 1.06)) continue;
         lo = fmin(lo, s->y[i] - s->error[i]); hi = fmax(hi, s->y[i] + s->error[i]);
         left = fmin(left, s->x[i]); right = fmax(right, s->x[i]);
      }
   p->y.lo = lo - 0.05 * (hi - lo); p->y.hi = hi + 0.05 * (hi - lo);
   p->x.lo = left / 1.1; p->x.hi = right * 1.1;
}

static int isoflop(void)
{
   static const char name[] = "fig4-isoflop";
   static const plot_marker markers[2][BUDGETS] = {{PLOT_CIRCLE, PLOT_RING, PLOT_CROSS},
                                             {PLOT_SQUARE, PLOT_TRIANGLE, PLOT_DIAMOND}};
   static const plot_colour colours[2] = {PLOT_BLUE, PLOT_RED};
   const char *names[BUDGETS][2];
   models m[BUDGETS][2];
   int kind = mod_kind(), base[BUDGETS], n = 0;
   plot_panel p[2] = {{0}};
   fresh();
   for (int b = 0; b < BUDGETS && kind; ++b) {
      m[b][1] = find(say("budget=%s", budgets[b]), kind, "test_loss");
      m[b][0] = dense_beside(&m[b][1], budgets[b]);
      base[b] = best(&m[b][0]);
      names[b][0] = say("dense %s", ten_to(budgets[b])); names[b][1] = say("MoD %s", ten_to(budgets[b]));
      n += base[b] != 0;
   }
   if (!kind || !n) return skip(name, "runs.csv has no dense and MoD models of one size with test losses");
   p[0].title = "(a) Loss"; p[0].width = p[1].width = 0.5; p[0].height = p[1].height = 330;
   p[0].x.label = "parameters (thousands)"; p[0].x.log = 1;
   p[0].y.label = "test loss (nats a byte)";
   p[1].title = "(b) Beside the best dense model"; p[1].y.label = "test loss / best dense";
   for (int b = 0; b < BUDGETS; ++b)
      for (int k = 0; k < 2 && base[b]; ++k) {
         curve c = add(&p[0], PLOT_LINE, names[b][k], colours[k], markers[k][b], MODELS);
         c.s->dash = b;
         for (int i = 0; i < m[b][k].n; ++i)
            point(&c, of(m[b][k].row[i], "params").mean / 1000, of(m[b][k].row[i], "test_loss"), NULL);
         if (k == 0) c.labels[0] = say("%s FLOPs", ten_to(budgets[b]));
      }
   ones(&p[1]);
   for (int b = 0; b < BUDGETS; ++b)
      for (int k = 0; k < 2 && base[b]; ++k) {
         curve c = add(&p[1], PLOT_LINE, names[b][k], colours[k], markers[k][b], MODELS);
         c.s->dash = b;
         normalised(&p[1], &m[b][k], base[b], "test_loss", "test_loss", &c);
      }
   near_one(&p[1]);
   return draw(name, "Models of equal training FLOPs", "Left: test loss against parameters, for each budget of "
               "training FLOPs, dense and MoD. Right: the same relative to the best dense model of the budget, against "
               "FLOPs of a forward pass relative to that model.", p, 2, 1);
}

static int causal(void)
{
   static const char name[] = "fig6-causal";
   static const char *const columns[] = {"test_topk_loss", "test_loss", "test_calibrated_loss"};
   static const char *const names[] = {"MoD, top-k (not causal)", "MoD, predictor", "MoD, predictor calibrated"};
   static const plot_colour colours[] = {PLOT_RED, PLOT_GREEN, PLOT_OCHRE};
   static const plot_marker markers[] = {PLOT_SQUARE, PLOT_TRIANGLE, PLOT_DIAMOND};
   static const char *const rates[] = {"accuracy", "precision", "recall", "share"};
   static const char *const rates_names[] = {"accuracy", "precision", "recall", "share routed, causal"};
   static const plot_colour rates_colours[] = {PLOT_GREEN, PLOT_PURPLE, PLOT_OCHRE, PLOT_GREY};
   static const plot_marker rates_markers[] = {PLOT_TRIANGLE, PLOT_CIRCLE, PLOT_DIAMOND, PLOT_NONE};
   plot_panel p[2] = {{0}};
   int kind = mod_kind(), base, n = 0;
   models mod = find("budget=" SHOWN_BUDGET, kind, "test_loss"), dense = dense_beside(&mod, SHOWN_BUDGET);
   if (!kind || !(base = best(&dense))) return skip(name, "runs.csv has no dense and MoD model of one size");
   fresh();
   p[0].title = say("(a) Loss, %s FLOPs", ten_to(SHOWN_BUDGET)); p[0].y.label = "test loss / best dense";
   p[0].width = p[1].width = 0.5; p[0].height = p[1].height = 300;
   ones(&p[0]);
   curve c = add(&p[0], PLOT_LINE, "dense", PLOT_BLUE, PLOT_CIRCLE, MODELS);
   normalised(&p[0], &dense, base, "test_loss", "test_loss", &c);
   for (int k = 0; k < 3; ++k) {
      c = add(&p[0], PLOT_LINE, names[k], colours[k], markers[k], MODELS);
      c.s->dash = k;
      normalised(&p[0], &mod, base, columns[k], "test_loss", &c);
   }
   for (int k = 0; k < 2; ++k) { /* the same models with the router's auxiliary loss */
      static const spec_field in_causal[] = {SPEC_SEED, SPEC_LR,     SPEC_SEQS,  SPEC_SIZE,
                                             SPEC_BUDGET, SPEC_CAUSAL, SPEC_FIELDS};
      models aux = find(say("budget=" SHOWN_BUDGET " causal=%s", k ? "both" : "router"), 0, "test_loss");
      int left = 0;
      for (int i = 0; i < aux.n; ++i)
         if (alike(&runs, aux.row[i], &runs, kind, in_causal)) aux.row[left++] = aux.row[i];
      aux.n = left;
      if (!left) continue;
      c = add(&p[0], PLOT_LINE, k ? "MoD, router loss and predictor" : "MoD, router loss instead",
              k ? PLOT_GREY : PLOT_PURPLE, k ? PLOT_CROSS : PLOT_RING, MODELS);
      normalised(&p[0], &aux, base, "test_loss", "test_loss", &c);
   }
   near_one(&p[0]);
   int row = best(&mod);
   p[1].title = say("(b) The predictor of MoD %s", size_of(row));
   p[1].x.label = "training steps"; p[1].y.label = "%"; p[1].y.lo = 0; p[1].y.hi = 102;
   c = add(&p[1], PLOT_HORIZONTAL, "accuracy if none is routed", PLOT_GREY, PLOT_NONE, 1);
   point(&c, 0, exactly(100 - 100 * number(&runs, row, "capacity")), NULL);
   c.s->dash = 2;
   for (int k = 0; k < 4; ++k) {
      c = add(&p[1], PLOT_LINE, rates_names[k], rates_colours[k], rates_markers[k], MODELS);
      c.s->dash = k == 3;
      course(&c, row, "step", 1, rates[k]);
      for (int i = 0; i < c.s->n; ++i) c.y[i] *= 100;
      n += c.s->n;
   }
   return draw(name, "Causal inference", "Left: test loss relative to the best dense model, judged with top-k and "
               "causally. Right: how the predictor agrees with top-k during training.", p, n ? 2 : 1, 0);
}

static int experts(void)
{
   static const char name[] = "fig7-mode";
   static const struct {
      const char *name, *words;
      plot_colour colour;
      plot_marker marker;
   } kinds[] = {
      {"dense", "select=all mlp=plain match=no", PLOT_BLUE, PLOT_CIRCLE},
      {"MoE", "select=all mlp=moe", PLOT_OCHRE, PLOT_DIAMOND},
      {"MoE of lowered capacity", "select=all mlp=moe", PLOT_GREY, PLOT_CROSS},
      {"staged MoDE", "select=learned mlp=moe", PLOT_RED, PLOT_SQUARE},
      {"integrated MoDE", "select=all mlp=mode", PLOT_GREEN, PLOT_TRIANGLE}};
   models m[5], moe = find("budget=" MODE_BUDGET " select=all mlp=moe", 0, "validation_loss");
   plot_panel p[1] = {{0}};
   fresh();
   for (int k = 0; k < 5; ++k) {
      models all = find(say("budget=" MODE_BUDGET " %s", kinds[k].words), 0, "validation_loss");
      m[k].n = 0;
      for (int i = 0; i < all.n; ++i) {
         double factor = number(&runs, all.row[i], "factor");
         int lowered = factor > 0 && factor < 1, beside = 0;
         for (int j = 0; j < moe.n; ++j) /* dense models of the other stages have other sizes */
            beside |= strcmp(get(&runs, moe.row[j], "size"), get(&runs, all.row[i], "size")) == 0;
         if (beside && (k == 0 || k > 2 || lowered == (k == 2))) m[k].row[m[k].n++] = all.row[i];
      }
   }
   int base = best(&m[0]);
   if (!base || !m[1].n) return skip(name, "runs.csv has no dense and MoE models of one size");
   p[0].height = 320; p[0].y.label = "validation loss / best dense";
   ones(&p[0]);
   for (int k = 0; k < 5; ++k) {
      if (!m[k].n) continue;
      curve c = add(&p[0], PLOT_LINE, kinds[k].name, kinds[k].colour, kinds[k].marker, MODELS);
      c.s->dash = k == 2;
      normalised(&p[0], &m[k], base, "validation_loss", "validation_loss", &c);
   }
   near_one(&p[0]);
   return draw(name, say("Experts and depths, %s FLOPs", ten_to(MODE_BUDGET)), "Validation loss relative to the best "
               "dense model against FLOPs of a forward pass relative to it: dense, MoE, staged and integrated MoDE.", p, 1,
               0);
}

/* ---- figure 5: routing ------------------------------------------------------------------------------------------- */

static const char *byte_name(int byte)
{
   static const char *const names[] = {"tab", "newline", "vert. tab", "form feed", "return"};
   if (byte >= 9 && byte <= 13) return names[byte - 9];
   if (byte == ' ') return "space";
   return byte > 32 && byte < 127 ? say("%c", byte) : say("byte %d", byte);
}

/* The rows of routing.csv about something, as a series: y times scale against x. */
static curve routed(plot_panel *p, plot_kind kind, const char *what, double scale, const char *name, plot_colour colour)
{
   int n = 0;
   for (int r = 1; r < routing.n_rows; ++r) n += !strcmp(get(&routing, r, "what"), what);
   curve c = add(p, kind, name, colour, PLOT_CIRCLE, n);
   for (int r = 1; r < routing.n_rows; ++r)
      if (!strcmp(get(&routing, r, "what"), what))
         point(&c, number(&routing, r, "x"), exactly(scale * number(&routing, r, "y")), NULL);
   return c;
}

static int routes(void)
{
   static const char name[] = "fig5-routing";
   enum { BLOCKS = 64, SHOWN = 8 };
   plot_panel p[7] = {{0}};
   int n = 0, n_blocks = 0, full[BLOCKS + 1], cells = 0;
   double tokens = 0;
   fresh();
   for (int b = 0; b <= BLOCKS; ++b) full[b] = 1;
   for (int r = 1; r < routing.n_rows; ++r) {
      int b = (int)number(&routing, r, "block");
      if (!is(&routing, r, "what=map") || b < 1 || b > BLOCKS) continue;
      if (b > n_blocks) n_blocks = b;
      if (!(number(&routing, r, "y") > 0)) full[b] = 0;
      tokens = fmax(tokens, number(&routing, r, "x") + 1);
      ++cells;
   }
   if (!cells) return skip(name, "there is no routing.csv with a map");

   plot_panel *map = &p[n++];
   map->title = "(a) Which token entered which block"; map->width = 0.64; map->height = 230;
   map->x.label = "position"; map->y.label = "block";
   map->x.lo = -0.5; map->x.hi = tokens - 0.5; map->y.lo = 0.5; map->y.hi = n_blocks + 0.5;
   static double block_ticks[BLOCKS];
   map->y.ticks = block_ticks;
   for (int b = 1, step = n_blocks > 12 ? (n_blocks + 11) / 12 : 1; b <= n_blocks; b += step)
      block_ticks[map->y.n_ticks++] = b;
   for (int k = 0; k < 2; ++k) {
      curve c = add(map, PLOT_CELLS, k ? "routed" : "full block", k ? PLOT_RED : PLOT_GREY, PLOT_NONE, cells);
      static double shade[65536];
      if (!k)
         for (int i = 0; i < 65536; ++i) shade[i] = 0.35;
      if (!k) c.s->shade = shade;
      for (int r = 1; r < routing.n_rows; ++r) {
         int b = (int)number(&routing, r, "block");
         if (is(&routing, r, "what=map") && b >= 1 && b <= BLOCKS && full[b] != k && number(&routing, r, "y") > 0)
            point(&c, number(&routing, r, "x"), exactly(b), NULL);
      }
   }

   plot_panel *bins = &p[n++];
   bins->title = "(b) Scores of routers"; bins->width = 0.36; bins->height = 230;
   bins->x.label = "sigmoid of the score"; bins->x.lo = 0; bins->x.hi = 1;
   bins->y.label = "share of tokens (%)"; bins->y.log = 1;
   curve c = routed(bins, PLOT_BARS, "router_histogram", 1, NULL, PLOT_RED);
   double total = 0, width = 1, least = 1e9;
   int left = 0;
   for (int i = 0; i < c.s->n; ++i) { /* sum over the blocks */
      int at = 0;
      while (at < left && fabs(c.x[at] - c.x[i]) > 1e-6) ++at;
      total += c.y[i];
      if (at == left) c.x[left] = c.x[i], c.y[left++] = c.y[i];
      else c.y[at] += c.y[i];
   }
   c.s->n = left;
   for (int i = 0; i < left; ++i) {
      c.y[i] *= 100 / total;
      if (c.y[i] > 0) least = fmin(least, c.y[i]);
      for (int k = 0; k < i; ++k) width = fmin(width, fabs(c.x[i] - c.x[k]));
   }
   c.s->thick = 0.9 * width;
   bins->y.lo = pow(10, floor(log10(least))); bins->y.hi = 100;
   rule(bins, PLOT_VERTICAL, 0.5, NULL);

   plot_panel *engaged = &p[n++];
   engaged->title = "(c) Blocks a token enters"; engaged->width = 1 / 3.0; engaged->height = 170;
   engaged->x.label = "routed blocks"; engaged->y.label = "tokens (%)";
   for (int k = 0; k < 2; ++k) {
      c = add(engaged, k ? PLOT_POINTS : PLOT_BARS, k ? "if independent" : "measured", k ? PLOT_BLUE : PLOT_RED,
              k ? PLOT_DIAMOND : PLOT_NONE, BLOCKS);
      for (int r = 1; r < routing.n_rows; ++r)
         if (is(&routing, r, k ? "what=engaged block=1" : "what=engaged block=0"))
            point(&c, number(&routing, r, "x"), exactly(100 * number(&routing, r, "y")), NULL);
   }
   if (!c.s->n) engaged->n_series = 1;

   plot_panel *entropy = &p[n++];
   entropy->title = "(d) By uncertainty"; entropy->width = 1 / 3.0; entropy->height = 170;
   entropy->x.label = "decile of entropy"; entropy->y.label = "routed blocks";
   c = routed(entropy, PLOT_LINE, "entropy", 1, NULL, PLOT_RED);

   plot_panel *place = &p[n++];
   place->title = "(e) By position"; place->width = 1 / 3.0; place->height = 170;
   place->x.label = "position"; place->y.label = "routed (%)";
   c = routed(place, PLOT_LINE, "position_share", 100, NULL, PLOT_RED);
   c.s->marker = PLOT_NONE;

   static const char *names[2][SHOWN];
   for (int low = 0; low < 2; ++low) { /* the bytes that are routed most, and least */
      int last = 0, used[256] = {0};
      plot_panel *bytes = &p[n++];
      bytes->title = low ? "(g) Bytes that pass by" : "(f) Bytes that are routed most";
      bytes->width = 0.5; bytes->height = 165;
      bytes->x.label = "routed (%)";
      bytes->y.names = names[low]; bytes->y.down = 1;
      c = add(bytes, PLOT_BARS, NULL, PLOT_RED, PLOT_NONE, SHOWN);
      c.s->sideways = 1; c.s->thick = 0.7;
      for (int i = 0; i < SHOWN; ++i, last = 0) {
         for (int r = 1; r < routing.n_rows; ++r) {
            int byte = (int)number(&routing, r, "x");
            if (!is(&routing, r, "what=byte_share") || byte < 0 || byte > 255 || used[byte]) continue;
            double d = last ? number(&routing, r, "y") - number(&routing, last, "y") : 0;
            if (!last || (low ? d < 0 : d > 0)) last = r;
         }
         if (!last) break;
         used[(int)number(&routing, last, "x")] = 1;
         names[low][bytes->y.n_ticks++] = byte_name((int)number(&routing, last, "x"));
         c.x[i] = 100 * number(&routing, last, "y"); c.y[i] = i; c.error[i] = 0;
         c.labels[i] = say(c.x[i] < 1 ? "%.2f" : "%.1f", c.x[i]);
         c.s->n = i + 1; c.s->place = PLOT_RIGHT;
      }
      if (!bytes->y.n_ticks) --n; /* no such rows */
   }
   return draw(name, "Who is routed", "Which tokens entered which blocks of a MoD model, the histogram of its routers' "
               "scores, how many routed blocks a token enters, and which tokens these are.", p, n, 0);
}

/* ---- figure 8: memory -------------------------------------------------------------------------------------------- */

/* The share of the cache's room that is used when routed blocks take what they have the capacity for. */
static double share(const mod_config *cfg)
{
   double kept = 0;
   for (int b = 1; b <= cfg->n_layers; ++b) {
      int from_first = cfg->select == MOD_SELECT_ALL ? -1 : b - cfg->route_first;
      kept += from_first >= 0 && from_first % cfg->route_every == 0 ? cfg->capacity : 1;
   }
   return kept / cfg->n_layers;
}

static int memory(void)
{
   static const char name[] = "fig8-memory";
   static const char *const titles[] = {"(a) Weights", "(b) Gradients and moments", "(c) Activations",
                                        "(d) Cache of a session, used", "(e) Cache, reserved"};
   static const plot_colour colours[] = {PLOT_BLUE, PLOT_RED, PLOT_OCHRE};
   const char *names[3];
   plot_panel p[5] = {{0}};
   double v[3][5];
   int kind = mod_kind(), rows[3] = {0};
   models mod = find("budget=" SHOWN_BUDGET, kind, "test_loss"), dense = dense_beside(&mod, SHOWN_BUDGET);
   if (!kind || !(rows[0] = best(&dense)) || !(rows[1] = best(&mod)))
      return skip(name, "runs.csv has no dense and MoD model of one size");
   rows[2] = small(&mod, rows[0]);
   fresh();
   for (int i = 0; i < 3; ++i) {
      mod_config cfg;
      mod_train_desc how = {0};
      mod_plan plan;
      size_t bytes, cache;
      if (!rows[i]) continue;
      names[i] = say("%s %s, %s", i ? "MoD" : "dense", size_of(rows[i]), i == 2 ? "small" : "the best");
      how.n_seqs = (int)number(&runs, rows[i], "seqs");
      if (!config_of(rows[i], &cfg) || mod_model_plan(&cfg, &how, &plan, NULL) != MOD_RESULT_OK ||
          mod_session_plan(&cfg, NULL, &bytes, &cache, NULL) != MOD_RESULT_OK)
         return skip(name, "a row of runs.csv is no model");
      v[i][0] = (double)plan.params / (1 << 20); v[i][1] = (double)(plan.grads + plan.optimizer) / (1 << 20);
      v[i][2] = (double)plan.activations / (1 << 20);
      v[i][3] = (double)cache * share(&cfg) / 1024; v[i][4] = (double)cache / 1024;
   }
   for (int k = 0; k < 5; ++k) {
      p[k].title = titles[k]; p[k].width = 1 / 3.0; p[k].height = 150; p[k].y.label = k < 3 ? "MiB" : "KiB";
      p[k].x.names = names; p[k].x.lo = -0.7; p[k].x.hi = rows[2] ? 2.7 : 1.7; /* no ticks: the legend says it */
      if (k > 2) p[k].y.hi = 1.15 * fmax(fmax(v[0][4], v[1][4]), rows[2] ? v[2][4] : 0);
      for (int i = 0; i < 3; ++i) {
         if (!rows[i]) continue;
         curve c = add(&p[k], PLOT_BARS, names[i], colours[i], PLOT_NONE, 1);
         point(&c, i, exactly(v[i][k]), say(v[i][k] < 10 ? "%.2f" : v[i][k] < 100 ? "%.1f" : "%.0f", v[i][k]));
      }
   }
   return draw(name, "Memory", "Bytes of weights, gradients and moments, activations of a training step, "
               "and the cache of a session of 256 tokens, as used at the capacity and as reserved, of the best dense "
               "model, the best MoD model, and a small MoD model.", p, 5, 1);
}

int main(int argc, char **argv)
{
   int n_words_given = 0, asked = option_parse("figures", table, OPTIONS, argc - 1, argv + 1, NULL, 0, &n_words_given);
   if (asked == 0) option_help(stdout, table, OPTIONS);
   if (asked <= 0) return asked == 0 ? 0 : 2;
   mkdir(out, 0777);
   csv_read(&runs, "runs.csv");
   csv_read(&curves, "curves.csv");
   csv_read(&speed, "speed.csv");
   csv_read(&routing, "routing.csv");
   int ok = settings();
   ok &= learning();
   ok &= isoflop();
   ok &= routes();
   ok &= causal();
   ok &= experts();
   ok &= memory();
   csv *all[] = {&runs, &curves, &speed, &routing};
   for (int i = 0; i < 4; ++i) {
      free(all[i]->bytes);
      free(all[i]->cell);
   }
   return ok ? 0 : 2;
}
