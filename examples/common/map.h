/* map.h - which token went through which block, drawn: as text, as SVG, as CSV

   Alone: no other header of this project is needed. Fill a `map`, then draw it. Nothing is allocated; a failed write
   shows in ferror of the file, as with fprintf. C99, C++11.
*/
#ifndef MAP_H
#define MAP_H

#include <stdio.h>

typedef struct map {
   int n_tokens, n_blocks;
   const unsigned char *bytes;   /* [n_tokens] what stands above a column */
   const unsigned char *routed;  /* [n_blocks] 0: a dense block, which takes every token */
   const unsigned char *entered; /* [n_blocks, n_tokens] 1: went through */
   const float *score;           /* [n_blocks, n_tokens] the router's score; NULL or NaN: none */
   const float *logit;           /* the same: what decided, if that is not the score */
   long long first;              /* position of the first token in its text */
} map;

static inline int map_entered(const map *m, int block, int token) { return m->entered[block * m->n_tokens + token]; }

/* Through how many routed blocks a token went; how many there are. */
static inline int map_uses(const map *m, int token)
{
   int uses = 0;
   for (int l = 0; l < m->n_blocks; ++l) uses += m->routed[l] && map_entered(m, l, token);
   return uses;
}
static inline int map_routed(const map *m)
{
   int n = 0;
   for (int l = 0; l < m->n_blocks; ++l) n += m->routed[l] != 0;
   return n;
}

static inline void map_tokens(FILE *to, const map *m, int first, int end, int colour)
{
   for (int i = first; i < end; ++i) {
      int c = m->bytes[i], hot = colour && map_uses(m, i) * 2 > map_routed(m);
      if (hot) fputs("\x1b[7m", to); /* reversed: a token that more than half of the routed blocks took */
      if (c == '\n') fputs("\xc2\xb6", to); /* pilcrow */
      else fputc(c >= 32 && c < 127 ? c : '~', to);
      if (hot) fputs("\x1b[0m", to);
   }
}

/* In UTF-8, `columns` tokens beside each other; colour: for a terminal. */
static inline void map_text(FILE *to, const map *m, int columns, int colour)
{
   for (int first = 0; first < m->n_tokens; first += columns) {
      int end = first + columns < m->n_tokens ? first + columns : m->n_tokens;
      fprintf(to, first ? "\n%10s" : "%10s", "");
      map_tokens(to, m, first, end, colour);
      fputs("  took\n", to);
      for (int l = 0; l < m->n_blocks; ++l) {
         int took = 0;
         fprintf(to, "block %-4d", l + 1);
         for (int i = first; i < end; ++i) {
            took += map_entered(m, l, i);
            fputs(map_entered(m, l, i) ? "\xe2\x96\x88" : "\xc2\xb7", to); /* full block, middle dot */
         }
         if (m->routed[l]) fprintf(to, "  %d\n", took);
         else fputs("  all\n", to);
      }
      if (!map_routed(m)) continue;
      fputs("used      ", to); /* by how many routed blocks, in one character */
      for (int i = first; i < end; ++i) {
         int uses = map_uses(m, i);
         fputc(uses > 35 ? '+' : " 123456789abcdefghijklmnopqrstuvwxyz"[uses], to);
      }
      fputc('\n', to);
   }
}

/* A line per token and block. */
static inline void map_csv(FILE *to, const map *m)
{
   fputs("position,byte,block,routed,entered,score,logit\n", to);
   for (int i = 0; i < m->n_tokens; ++i)
      for (int l = 0; l < m->n_blocks; ++l) {
         int at = l * m->n_tokens + i;
         fprintf(to, "%lld,%d,%d,%d,%d,", m->first + i, m->bytes[i], l + 1, m->routed[l] != 0, m->entered[at] != 0);
         if (m->score && m->score[at] == m->score[at]) fprintf(to, "%.9g", (double)m->score[at]); /* not NaN */
         fputc(',', to);
         if (m->logit && m->logit[at] == m->logit[at]) fprintf(to, "%.9g", (double)m->logit[at]);
         fputc('\n', to);
      }
}

/* Characters that XML wants escaped, or cannot show. */
static inline void map_xml(FILE *to, int c)
{
   if (c == '\n') fputs("\xc2\xb6", to);
   else if (c == ' ') fputs("\xe2\x90\xa3", to); /* open box */
   else if (c < 32 || c > 126) fputc('~', to);
   else if (c == '&' || c == '<' || c == '>' || c == '"') fprintf(to, "&#%d;", c);
   else fputc(c, to);
}

/* A picture, light or dark as the viewer is; hovering over a cell tells its numbers. */
static inline void map_svg(FILE *to, const map *m, int columns)
{
   enum { CELL_W = 13, CELL_H = 14, LEFT = 76, TOP = 40, GAP = 22 };
   int shown = m->n_tokens < columns ? m->n_tokens : columns, routed = map_routed(m);
   int bands = (m->n_tokens + columns - 1) / columns, band_h = 20 + m->n_blocks * CELL_H + GAP;
   int width = LEFT + shown * CELL_W + 56, height = TOP + bands * band_h;
   if (width < 850) width = 850; /* the legend */
   fprintf(to,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
           "aria-label=\"Which token went through which block\">\n"
           "<style>\nsvg{background:#fff;color:#1a1a1a;font:12px ui-monospace,Menlo,Consolas,monospace}\n"
           "text{fill:currentColor}.c{text-anchor:middle}.d{fill:#c9ced6}.o{fill:#eef0f3}.r{fill:#c2410c}"
           ".h{fill:#fb923c}.k{fill:#111;font-weight:bold}\n"
           "@media(prefers-color-scheme:dark){svg{background:#14161a;color:#e6e6e6}.d{fill:#4b5563}.o{fill:#23272e}"
           ".r{fill:#fb923c}}\n</style>\n",
           width, height, width, height);
   fprintf(to,
           "<rect class=\"r\" x=\"8\" y=\"9\" width=\"12\" height=\"12\"/>"
           "<text x=\"26\" y=\"20\">went through a routed block</text>"
           "<rect class=\"o\" x=\"236\" y=\"9\" width=\"12\" height=\"12\"/><text x=\"254\" y=\"20\">passed by</text>"
           "<rect class=\"d\" x=\"344\" y=\"9\" width=\"12\" height=\"12\"/><text x=\"362\" y=\"20\">dense block</text>"
           "<rect class=\"h\" x=\"468\" y=\"9\" width=\"12\" height=\"12\"/>"
           "<text x=\"486\" y=\"20\">hot: more than half of the routed blocks took it</text>\n");
   for (int band = 0; band < bands; ++band) {
      int first = band * columns, end = first + columns < m->n_tokens ? first + columns : m->n_tokens;
      int y = TOP + band * band_h;
      fprintf(to, "<text x=\"8\" y=\"%d\">%lld</text>\n", y + 13, m->first + first);
      for (int i = first; i < end; ++i) {
         int x = LEFT + (i - first) * CELL_W, hot = map_uses(m, i) * 2 > routed;
         if (hot) fprintf(to, "<rect class=\"h\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"18\"/>", x, y, CELL_W);
         fprintf(to, "<text class=\"c%s\" x=\"%d\" y=\"%d\">", hot ? " k" : "", x + CELL_W / 2, y + 13);
         map_xml(to, m->bytes[i]);
         fputs("</text>\n", to);
      }
      for (int l = 0; l < m->n_blocks; ++l) {
         int top = y + 20 + l * CELL_H, took = 0;
         fprintf(to, "<text x=\"8\" y=\"%d\">block %d</text>\n", top + 11, l + 1);
         for (int i = first; i < end; ++i) {
            int at = l * m->n_tokens + i;
            took += m->entered[at] != 0;
            fprintf(to, "<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><title>",
                    !m->routed[l] ? 'd' : m->entered[at] ? 'r' : 'o', LEFT + (i - first) * CELL_W, top, CELL_W - 1,
                    CELL_H - 1);
            map_xml(to, m->bytes[i]);
            fprintf(to, " at %lld, block %d", m->first + i, l + 1);
            if (m->score && m->score[at] == m->score[at]) fprintf(to, ", score %.3f", (double)m->score[at]);
            if (m->logit && m->logit[at] == m->logit[at]) fprintf(to, ", logit %.3f", (double)m->logit[at]);
            fputs("</title></rect>\n", to);
         }
         fprintf(to, "<text x=\"%d\" y=\"%d\">", LEFT + (end - first) * CELL_W + 8, top + 11);
         if (m->routed[l]) fprintf(to, "%d</text>\n", took);
         else fputs("all</text>\n", to);
      }
   }
   fputs("</svg>\n", to);
}

#endif
