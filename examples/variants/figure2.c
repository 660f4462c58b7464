/* figure2.c - figure 2 of the paper in numbers: six tokens, three experts with room for two each

   Raposo et al. 2024, arXiv:2404.02258. Left: every token chooses its expert, and one comes too late. Middle: every
   expert chooses its tokens, one of them twice and one not at all. Right: Mixture-of-Depths, where the one expert is
   a block and who is not chosen passes it by. On plain arrays: no tape, no tensors. */
#include "../../mod.h"
#include <stdio.h>

enum { TOKENS = 6, EXPERTS = 3, ROOM = 2 };
static const char *const names[TOKENS] = {"red", "yellow", "orange", "purple", "teal", "blue"};

/* What each token thinks of each expert; and what the one block thinks of each token. */
static const mod_real score[TOKENS * EXPERTS] = {
   0.70f, 0.20f, 0.10f, /* red */
   0.44f, 0.46f, 0.10f, /* yellow */
   0.40f, 0.35f, 0.25f, /* orange */
   0.41f, 0.40f, 0.19f, /* purple */
   0.15f, 0.25f, 0.60f, /* teal */
   0.10f, 0.20f, 0.70f, /* blue */
};
static const mod_real weight[TOKENS] = {0.8f, 0.1f, 0.3f, 0.2f, 0.4f, 0.9f};

/* A column for each expert: the number if the token goes there. */
static void print_row(int token, const int *goes, const char *fate)
{
   printf("   %-8s", names[token]);
   for (int e = 0; e < EXPERTS; ++e) {
      if (goes[e]) printf("  [%.2f]", (double)score[token * EXPERTS + e]);
      else printf("   %.2f ", (double)score[token * EXPERTS + e]);
   }
   printf("%s%s\n", *fate ? "   " : "", fate);
}

static int token_choice(void)
{
   int slots[EXPERTS], used[EXPERTS] = {0}, path[TOKENS], slot[TOKENS];
   for (int e = 0; e < EXPERTS; ++e) slots[e] = ROOM;
   if (mod_route_choose(score, TOKENS, EXPERTS, 1, slots, used, path, slot, NULL) != MOD_RESULT_OK) return 0;
   puts("token-choice: a token goes to the expert that it likes best, while there is room\n");
   puts("   token     expert1 expert2 expert3");
   for (int i = 0; i < TOKENS; ++i) {
      int goes[EXPERTS] = {0};
      goes[path[i]] = slot[i] >= 0;
      print_row(i, goes, slot[i] < 0 ? "dropped: its expert is full" : "");
   }
   printf("   in use  %5d   %5d   %5d\n", used[0], used[1], used[2]);
   return 1;
}

static int expert_choice(void)
{
   int goes[TOKENS * EXPERTS] = {0};
   for (int e = 0; e < EXPERTS; ++e) {
      mod_real column[TOKENS];
      int kept[ROOM];
      for (int i = 0; i < TOKENS; ++i) column[i] = score[i * EXPERTS + e];
      if (mod_route_topk(column, TOKENS, ROOM, kept, NULL) != MOD_RESULT_OK) return 0;
      for (int j = 0; j < ROOM; ++j) goes[kept[j] * EXPERTS + e] = 1;
   }
   puts("\nexpert-choice: an expert takes the two tokens that like it best\n");
   puts("   token     expert1 expert2 expert3");
   for (int i = 0; i < TOKENS; ++i) {
      const int *g = goes + i * EXPERTS;
      int times = g[0] + g[1] + g[2];
      print_row(i, g, times == 0 ? "dropped: chosen by none" : times > 1 ? "chosen twice" : "");
   }
   return 1;
}

static int mixture_of_depths(void)
{
   int kept[ROOM];
   if (mod_route_topk(weight, TOKENS, ROOM, kept, NULL) != MOD_RESULT_OK) return 0;
   puts("\nMixture-of-Depths: a block takes the two tokens with the highest weights\n");
   puts("   token       block");
   for (int i = 0, j = 0; i < TOKENS; ++i) {
      int taken = j < ROOM && kept[j] == i;
      j += taken;
      printf(taken ? "   %-8s  [%.2f]   attention and MLP\n" : "   %-8s   %.2f    passes by\n", names[i],
             (double)weight[i]);
   }
   return 1;
}

int main(void) { return !(token_choice() && expert_choice() && mixture_of_depths()); }
