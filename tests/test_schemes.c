/* test_schemes.c - what must hold of every way to route: token-choice, controls by position, gated bypass, keys and
   values apart, experts, both MoDEs; with every kind of head. Decisions, counts, losses, FLOPs and the blocks'
   equations are worked out once more, in double, from the numbers that a probe sees. */
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "test.h"
#include <math.h>

enum {
   VOCAB = 23, CONTEXT = 24, LAYERS = 3, D = 16, FF = 24, SEQS = 3, LENGTH = 20, ROWS = SEQS * CONTEXT,
   N_IN = 5, N_OUT = 4, MAX_E = 4, MAX_COLUMNS = 8, MAX_PATHS = 2 + MAX_E
};
enum { POISON = VOCAB - 1 }; /* a token that no text has */

/* ---------------------------------------------------------------------------------------------------------------------
   Schemes
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct scheme {
   const char *name;
   mod_config cfg;
} scheme;

static const mod_block_config own[LAYERS] = {
   {.select = MOD_SELECT_TOKEN, .capacity = 0.4, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 0.6,
    .mlp = MOD_MLP_MOE},
   {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_EXPERT, .capacity = 0.7},
   {.gate = MOD_GATE_SIGMOID, .capacity = 0.6, .mlp = MOD_MLP_PLAIN, .kv_select = MOD_SELECT_EVERY}};

static const mod_block_config own_gates[LAYERS] = {{.gate = MOD_GATE_RAW}, {.gate = MOD_GATE_TANH},
                                                   {.gate = MOD_GATE_TANH, .mlp = MOD_MLP_MOE}};

static const scheme schemes[] = {
   {"token-choice", {.select = MOD_SELECT_TOKEN}},
   {"token-choice, everything else unusual",
    {.select = MOD_SELECT_TOKEN, .capacity = 0.3, .norm = MOD_NORM_LAYER, .bias = MOD_BIAS_ON, .n_kv_heads = 2,
     .position = MOD_POSITION_LEARNED, .head = MOD_HEAD_UNTIED}},
   {"every fourth", {.select = MOD_SELECT_EVERY, .capacity = 0.3}},
   {"the first", {.select = MOD_SELECT_FIRST, .n_kv_heads = 1}},
   {"nobody", {.select = MOD_SELECT_NONE}},
   {"nobody, before experts", {.select = MOD_SELECT_NONE, .mlp = MOD_MLP_MOE}},
   {"gated bypass", {.gate = MOD_GATE_TANH, .bypass = MOD_BYPASS_GATED}},
   {"gated bypass, by the router",
    {.gate = MOD_GATE_TANH, .gate_scale = 0.6, .bypass = MOD_BYPASS_GATED, .causal = MOD_CAUSAL_ROUTER,
     .activation = MOD_ACTIVATION_SWIGLU, .capacity = 0.6}},
   {"memory", {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED}},
   {"memory, raw gate, by the router",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_RAW, .n_kv_heads = 2,
     .causal = MOD_CAUSAL_ROUTER}},
   {"memory, gate one, both",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_ONE, .causal = MOD_CAUSAL_BOTH}},
   {"memory, tanh gate, untrained",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_gate = MOD_GATE_TANH, .causal = MOD_CAUSAL_NONE}},
   {"all keys of all", {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_ALL}},
   {"all keys", {.kv_select = MOD_SELECT_ALL, .gate = MOD_GATE_SIGMOID}},
   {"keys and queries by routers of their own",
    {.kv_select = MOD_SELECT_LEARNED, .causal = MOD_CAUSAL_BOTH, .kv_capacity = 0.3}},
   {"every third key", {.kv_select = MOD_SELECT_EVERY, .bias = MOD_BIAS_ON, .route_first = 1}},
   {"random, with the first keys",
    {.select = MOD_SELECT_STOCHASTIC, .kv_select = MOD_SELECT_FIRST, .kv_capacity = 0.2}},
   {"no key", {.kv_select = MOD_SELECT_NONE, .bias = MOD_BIAS_ON, .norm = MOD_NORM_LAYER}},
   {"token-choice with random keys",
    {.select = MOD_SELECT_TOKEN, .kv_select = MOD_SELECT_STOCHASTIC, .route_first = 1}},
   {"the first, with learned keys", {.select = MOD_SELECT_FIRST, .kv_select = MOD_SELECT_LEARNED}},
   {"gates only", {.capacity = 1, .gate = MOD_GATE_SIGMOID, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 1}},
   {"MoE top-1", {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE}},
   {"MoE top-2, half the slots",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choices = 2, .capacity_factor = 0.5, .bias = MOD_BIAS_ON,
     .activation = MOD_ACTIVATION_SWIGLU}},
   {"MoE top-1, twice the slots", {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .capacity_factor = 2, .n_experts = 3}},
   {"MoE by the experts", {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT}},
   {"MoE by the experts, two each, both",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT, .capacity_factor = 2,
     .causal = MOD_CAUSAL_BOTH}},
   {"MoE by the experts, who take everyone",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT, .capacity_factor = MAX_E}},
   {"MoE by the experts, by their router",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_ROUTER}},
   {"MoE by the experts, untrained",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_NONE,
     .activation = MOD_ACTIVATION_RELU, .n_experts = 2}},
   {"staged", {.mlp = MOD_MLP_MOE, .route_first = 1, .n_experts = 2}},
   {"staged, by the tokens, top-2",
    {.mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_TOKEN, .choices = 2, .causal = MOD_CAUSAL_ROUTER,
     .gate = MOD_GATE_SIGMOID}},
   {"integrated", {.mlp = MOD_MLP_MODE, .n_noops = 2, .capacity = 0.4}},
   {"integrated, top-2", {.mlp = MOD_MLP_MODE, .choices = 2, .bias = MOD_BIAS_ON, .norm = MOD_NORM_LAYER}},
   {"integrated, by the experts",
    {.mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_BOTH, .n_noops = 1, .n_experts = 3}},
   {"token-choice, then experts, gated keys",
    {.select = MOD_SELECT_TOKEN, .mlp = MOD_MLP_MOE, .kv_select = MOD_SELECT_LEARNED, .causal = MOD_CAUSAL_ROUTER}},
   {"token-choice, then token-choice among experts",
    {.select = MOD_SELECT_TOKEN, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_TOKEN, .route_first = 1, .n_experts = 2}},
   {"random, with random keys", {.select = MOD_SELECT_STOCHASTIC, .kv_select = MOD_SELECT_STOCHASTIC}},
   {"gated bypass, then experts",
    {.gate = MOD_GATE_TANH, .bypass = MOD_BYPASS_GATED, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_TOKEN}},
   {"integrated, by the experts, by their router",
    {.mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_ROUTER, .n_experts = 2}},
   {"each block its own", {.blocks = own, .mlp = MOD_MLP_MOE, .causal = MOD_CAUSAL_BOTH, .head = MOD_HEAD_UNTIED}},
   /* (No model could be made of these settings without the blocks' own.) */
   {"gated bypass, each block with its gate",
    {.blocks = own_gates, .bypass = MOD_BYPASS_GATED, .mlp = MOD_MLP_PLAIN, .gate = MOD_GATE_RAW}},
   {"rows in", {.n_inputs = N_IN, .head = MOD_HEAD_UNTIED, .kv_select = MOD_SELECT_LEARNED, .bias = MOD_BIAS_ON}},
   {"rows in, class out", {.n_inputs = N_IN, .head = MOD_HEAD_CLASS, .n_outputs = N_OUT, .mlp = MOD_MLP_MOE}},
   {"numbers out", {.head = MOD_HEAD_REGRESSION, .n_outputs = N_OUT, .select = MOD_SELECT_TOKEN, .bias = MOD_BIAS_ON}},
   {"encoder, class out",
    {.mask = MOD_MASK_FULL, .head = MOD_HEAD_CLASS, .n_outputs = N_OUT, .kv_select = MOD_SELECT_LEARNED}},
   {"encoder, experts, next token", {.mask = MOD_MASK_FULL, .mlp = MOD_MLP_MOE, .bias = MOD_BIAS_ON}},
};
enum { N_SCHEMES = sizeof schemes / sizeof schemes[0] };

static mod_config config_of(int i)
{
   mod_config cfg = schemes[i].cfg;
   if (!cfg.n_inputs || cfg.head == MOD_HEAD_UNTIED) cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = D;
   cfg.d_ff = FF;
   cfg.n_heads = 4;
   if (cfg.capacity == 0) cfg.capacity = 0.5;
   if (!cfg.route_first) cfg.route_first = 2;
   cfg.route_every = 1;
   return mod_config_resolve(&cfg);
}

static int pooled(const mod_config *c) { return c->head == MOD_HEAD_CLASS || c->head == MOD_HEAD_REGRESSION; }
static int causal_too(const mod_config *c) { return c->mask == MOD_MASK_CAUSAL; }
static int outputs(const mod_config *c) { return pooled(c) ? c->n_outputs : c->vocab_size; }
static int same(const void *a, const void *b, size_t n_floats) { return !memcmp(a, b, n_floats * sizeof(float)); }

/* A model with random numbers in every tensor, gains, biases and predictors too. */
static mod_model *make(const mod_config *cfg, uint64_t seed)
{
   mod_error err;
   size_t n;
   mod_model *model = mod_model_create(cfg, NULL, &err);
   CHECKF(model != NULL, "%s", err.message);
   if (!model) exit(test_end());
   CHECK(mod_model_randomize(model, seed, NULL) == MOD_RESULT_OK);
   float *w = mod_model_params(model, &n);
   test_state = 88172645463325252ull + seed * 2654435761u; /* the same noise for the same model */
   for (size_t i = 0; i < n; ++i) w[i] += (float)(0.2 * test_normal());
   return model;
}

static int tokens[ROWS], targets[ROWS], classes[SEQS];
static float inputs[ROWS * N_IN], values[SEQS * N_OUT];
static const int ragged[SEQS] = {LENGTH, 1, 7}, holes[SEQS] = {0, 13, LENGTH};
static const int *const lengths_of[3] = {NULL, ragged, holes};

static void fill_batch(void)
{
   for (int i = 0; i < ROWS; ++i) tokens[i] = test_below(POISON), targets[i] = test_below(VOCAB + 1) - 1;
   for (int i = 0; i < SEQS; ++i) classes[i] = test_below(N_OUT);
   for (int i = 0; i < ROWS * N_IN; ++i) inputs[i] = (float)test_normal();
   for (int i = 0; i < SEQS * N_OUT; ++i) values[i] = (float)test_normal();
}

static mod_batch make_batch(const mod_config *cfg, const int *lengths, int mode)
{
   mod_batch batch = {0};
   batch.n_seqs = SEQS;
   batch.length = LENGTH;
   if (cfg->n_inputs) batch.inputs = inputs;
   else batch.tokens = tokens;
   batch.targets = cfg->head == MOD_HEAD_CLASS ? classes : targets;
   batch.values = values;
   if (cfg->head == MOD_HEAD_REGRESSION) batch.targets = NULL;
   batch.lengths = lengths;
   batch.mode = mode;
   batch.seed = 3;
   return batch;
}

/* One sequence of a batch as a batch of its own. */
static mod_batch only(const mod_config *cfg, mod_batch batch, int s, int n)
{
   static int length;
   length = n < 0 ? batch.lengths ? batch.lengths[s] : batch.length : n;
   if (batch.tokens) batch.tokens += s * batch.length;
   if (batch.inputs) batch.inputs += s * batch.length * N_IN;
   if (batch.targets) batch.targets += s * (pooled(cfg) ? 1 : batch.length);
   if (batch.values) batch.values += s * N_OUT;
   batch.first_id += (uint64_t)s;
   batch.n_seqs = 1;
   batch.lengths = &length;
   return batch;
}

/* ---------------------------------------------------------------------------------------------------------------------
   A probe that copies all it sees
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct selection {
   int times, n, start[SEQS + 1], index[ROWS];
} selection;

typedef struct block_seen {
   int times[MOD_SITE_LOGITS + 1], n, start[SEQS + 1], position[ROWS];
   float input[ROWS * D], output[ROWS * D], attention[ROWS * D], mlp[ROWS * D], score[ROWS * 2], predictor[ROWS],
      kv_score[ROWS], kv_predictor[ROWS], expert_score[ROWS * MAX_COLUMNS], expert_predictor[ROWS * MAX_E];
   selection kept, keys, expert[MAX_E];
   int n_experts;
} block_seen;

static block_seen seen[LAYERS + 1];

static void copy_selection(selection *to, const mod_rows *rows)
{
   ++to->times;
   to->n = rows->n;
   memcpy(to->start, rows->start, sizeof(int) * (size_t)(rows->n_seqs + 1));
   for (int i = 0; i < rows->n; ++i) to->index[i] = rows->index ? rows->index[i] : i; /* all rows have no index */
}

static void probe(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   block_seen *b = (block_seen *)user + block;
   float *const to[MOD_SITE_LOGITS + 1] = {
      [MOD_SITE_INPUT] = b->input, [MOD_SITE_SCORE] = b->score, [MOD_SITE_PREDICTOR] = b->predictor,
      [MOD_SITE_ATTENTION] = b->attention, [MOD_SITE_MLP] = b->mlp, [MOD_SITE_OUTPUT] = b->output,
      [MOD_SITE_KV_SCORE] = b->kv_score, [MOD_SITE_KV_PREDICTOR] = b->kv_predictor,
      [MOD_SITE_EXPERT_SCORE] = b->expert_score, [MOD_SITE_EXPERT_PREDICTOR] = b->expert_predictor};
   ++b->times[site];
   if (to[site]) memcpy(to[site], x->data, sizeof(float) * (size_t)(x->dim[0] * x->dim[1]));
   if (site == MOD_SITE_INPUT) {
      b->n = rows->n;
      memcpy(b->start, rows->start, sizeof(int) * (size_t)(rows->n_seqs + 1));
      memcpy(b->position, rows->position, sizeof(int) * (size_t)rows->n);
   }
   if (site == MOD_SITE_KEPT) copy_selection(&b->kept, rows);
   if (site == MOD_SITE_KV_KEPT) copy_selection(&b->keys, rows);
   if (site == MOD_SITE_EXPERT_KEPT) copy_selection(&b->expert[b->n_experts++], rows);
}

/* ---------------------------------------------------------------------------------------------------------------------
   The rules once more
   ------------------------------------------------------------------------------------------------------------------ */

enum { BLOCK, KV, EXPERTS };

/* A router as the config says: how many logits, how many of them take rows, and how. */
typedef struct rule {
   int columns, paths, path, by_token, decides, predictor, loss;
   double share, warmed; /* how much of least_capacity a path takes at least */
} rule;

static rule rule_of(const mod_config *c, int l, int which)
{
   mod_block_config b = mod_config_block(c, l);
   rule r = {0};
   int mode = b.mlp == MOD_MLP_MODE;
   if (which == BLOCK && b.select == MOD_SELECT_LEARNED) r = (rule){.columns = 1, .share = b.capacity};
   if (which == BLOCK && b.select == MOD_SELECT_TOKEN) r = (rule){.columns = 2, .share = b.capacity, .by_token = 1};
   if (which == KV && b.kv_select == MOD_SELECT_LEARNED) r = (rule){.columns = 1, .share = b.kv_capacity};
   if (which == EXPERTS && b.mlp != MOD_MLP_PLAIN)
      r = (rule){.columns = c->n_experts + (mode ? c->n_noops : 0), .by_token = b.choice == MOD_CHOICE_TOKEN,
                 .share = (mode ? b.capacity : c->capacity_factor) / c->n_experts};
   if (!r.columns) return r;
   r.paths = which == EXPERTS ? c->n_experts : 1;
   r.warmed = which != EXPERTS ? 1 : mode ? 1.0 / c->n_experts : 0;
   r.path = which;
   r.decides = !r.by_token && r.share < 1 && c->mask == MOD_MASK_CAUSAL;
   r.predictor = r.decides && (c->causal == MOD_CAUSAL_PREDICTOR || c->causal == MOD_CAUSAL_BOTH);
   r.loss = r.decides && (c->causal == MOD_CAUSAL_ROUTER || c->causal == MOD_CAUSAL_BOTH);
   return r;
}

static int k_of(int n, double c)
{
   int k = (int)floor(c * n + 1e-6);
   return k < 1 ? n > 0 : k > n ? n : k;
}

static int slots_of(int n, double share)
{
   int k = (int)ceil(share * n - 1e-6);
   return k > n ? n : k;
}

/* The logit of row i that decides causally over path j. */
static double deciding(const rule *r, const block_seen *b, int i, int j)
{
   if (r->path == BLOCK) return (double)(r->predictor ? b->predictor : b->score)[i];
   if (r->path == KV) return (double)(r->predictor ? b->kv_predictor : b->kv_score)[i];
   return (double)(r->predictor ? b->expert_predictor[i * r->paths + j] : b->expert_score[i * r->columns + j]);
}

/* taken[i - from] = 1 for the k best of the scores [from, to), ties to the earlier. */
static void best_of(const float *score, int stride, int from, int to, int k, unsigned char *taken)
{
   for (int i = from; i < to; ++i) {
      int before = 0;
      for (int j = from; j < to; ++j)
         before += score[j * stride] > score[i * stride] || (score[j * stride] == score[i * stride] && j < i);
      taken[i - from] = before < k;
   }
}

static int n_different;
static void expect(const selection *got, const unsigned char *want, int n, const char *name, int l, const char *what)
{
   unsigned char mask[ROWS] = {0};
   for (int i = 0; i < got->n; ++i) mask[got->index[i]] = 1;
   if (memcmp(mask, want, (size_t)n) && n_different++ < 10) CHECKF(0, "%s, block %d: %s", name, l, what);
   for (int i = 1; i < got->n; ++i)
      if (got->index[i] <= got->index[i - 1] && n_different++ < 10) CHECKF(0, "%s, block %d: %s: order", name, l, what);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double bce(double x, int target) { return (x > 0 ? x : 0) - x * target + log1p(exp(-fabs(x))); }
static double gate_of(int kind, double r, double a)
{
   return kind == MOD_GATE_RAW       ? r
          : kind == MOD_GATE_SIGMOID ? sigmoid(r)
          : kind == MOD_GATE_TANH    ? 1 + a * tanh(r)
                                     : 1;
}

/* What one forward pass should have reported. */
typedef struct account {
   mod_block_stats block[LAYERS];
   int expert_rows[LAYERS][MAX_E];
   double router_bce, predictor_bce, balance, z, flops;
   unsigned char entered[ROWS];
} account;

/* Rows choose among columns, in order of position: fills who took whom, what was dropped, and the two losses. */
static void walk_choices(const rule *r, const float *score, const int *start, int slots, int choices,
                         unsigned char *taken, int64_t *dropped, double *balance, double *z)
{
   for (int s = 0; s < SEQS; ++s) {
      int used[MAX_COLUMNS] = {0}, wanted[MAX_COLUMNS] = {0}, n = start[s + 1] - start[s];
      double mean[MAX_COLUMNS] = {0};
      for (int i = start[s]; i < start[s + 1]; ++i) {
         const float *x = score + i * r->columns;
         double sum = 0;
         int first = -1;
         for (int e = 0; e < r->columns; ++e) sum += exp((double)x[e]);
         for (int e = 0; e < r->columns; ++e) mean[e] += exp((double)x[e]) / sum / n;
         *z += log(sum) * log(sum);
         for (int c = 0; c < choices; ++c) {
            int best = -1;
            for (int e = 0; e < r->columns; ++e)
               if (e != first && (best < 0 || x[e] > x[best])) best = e;
            first = best;
            ++wanted[best];
            if (best >= r->paths) continue;
            if (used[best] < slots) ++used[best], taken[best * ROWS + i] = 1;
            else ++*dropped;
         }
      }
      for (int e = 0; e < r->columns && n; ++e)
         *balance += r->columns * ((double)wanted[e] / choices / n) * mean[e] * n;
   }
}

/* Of one router: who should be taken, and what follows. taken [paths][ROWS]; rows [0, n) of the sequences in start. */
static void walk_router(const mod_config *c, int l, int which, const rule *r, const mod_model *model, int mode,
                        const int *start, double n_tokens, double least, account *a, mod_path_stats *p,
                        unsigned char *taken)
{
   const block_seen *b = &seen[l];
   const float *score = which == BLOCK ? b->score : which == KV ? b->kv_score : b->expert_score;
   mod_block_config bc = mod_config_block(c, l);
   int routers[3] = {0}, n = start[SEQS];
   for (int m = 0; m < LAYERS; ++m)
      for (int w = 0; w < 3; ++w) {
         rule other = rule_of(c, m, w);
         routers[0] += other.loss;
         routers[1] += other.predictor;
         routers[2] += other.columns > 0 && other.by_token;
      }
   memset(taken, 0, (size_t)(r->paths * ROWS));
   if (mode == MOD_MODE_CAUSAL) least = 0;
   if (r->by_token) {
      double balance = 0, z = 0;
      int choices = which == EXPERTS ? c->choices : 1,
          slots = k_of(CONTEXT, fmax(r->share, least));
      if (which == EXPERTS) {
         double capacity = fmax(bc.capacity, least);
         int rows = bc.select == MOD_SELECT_ALL ? CONTEXT : bc.select == MOD_SELECT_EVERY
            ? (CONTEXT + (int)ceil(1 / capacity) - 1) / (int)ceil(1 / capacity) : k_of(CONTEXT, capacity);
         slots = slots_of(rows, fmax(r->share, least * r->warmed) * choices);
      }
      walk_choices(r, score, start, slots, choices, taken, &a->block[l].dropped, &balance, &z);
      if (mode == MOD_MODE_TOPK) a->balance += balance / n_tokens / routers[2], a->z += z / n_tokens / routers[2];
      return;
   }
   for (int j = 0; j < r->paths; ++j) {
      unsigned char *mine = taken + j * ROWS;
      double theta = mod_model_thresholds(model)[(r->path + j) * LAYERS + l];
      double share = fmax(r->share, least * r->warmed);
      for (int s = 0; s < SEQS; ++s) {
         int rows = start[s + 1] - start[s], k = which == EXPERTS ? slots_of(rows, share) : k_of(rows, share);
         if (mode == MOD_MODE_TOPK || !r->decides)
            best_of(score + j, r->columns, start[s], start[s + 1], k, mine + start[s]);
         else
            for (int i = start[s]; i < start[s + 1]; ++i) mine[i] = deciding(r, b, i, j) > theta;
      }
      p->tokens += n;
      for (int i = 0; i < n; ++i) p->kept += mine[i];
      if (mode == MOD_MODE_CAUSAL || !r->decides) continue;
      p->decided = 1;
      for (int i = 0; i < n; ++i) {
         int yes = deciding(r, b, i, j) > theta;
         p->predicted += yes;
         p->hits += yes && mine[i];
         p->agree += yes == mine[i];
         if (r->loss)
            a->router_bce += bce((double)score[i * r->columns + j], mine[i]) / n_tokens / r->paths / routers[0];
         if (r->predictor) a->predictor_bce += bce(deciding(r, b, i, j), mine[i]) / n_tokens / r->paths / routers[1];
      }
   }
}

/* Who is taken by a selection that looks at no token, or by random numbers. */
static void walk_control(const mod_config *c, int select, double share, int mode, const block_seen *b, const float *u,
                         unsigned char *taken)
{
   for (int s = 0; s < SEQS; ++s) {
      int n = b->start[s + 1] - b->start[s];
      if (select == MOD_SELECT_STOCHASTIC && mode == MOD_MODE_TOPK)
         best_of(u, 1, b->start[s], b->start[s + 1], k_of(n, share), taken + b->start[s]);
      for (int i = b->start[s]; i < b->start[s + 1]; ++i) {
         int at = b->position[i];
         if (select == MOD_SELECT_STOCHASTIC && (u[i] < 0 || u[i] >= 1) && n_different++ < 10) CHECK(!"in [0, 1)");
         if (select == MOD_SELECT_STOCHASTIC && mode == MOD_MODE_CAUSAL) taken[i] = (double)u[i] > 1 - share;
         if (select == MOD_SELECT_EVERY) taken[i] = fmod(at, ceil(1 / share - 1e-6)) == 0;
         if (select == MOD_SELECT_FIRST) taken[i] = at < k_of(c->context, share);
         if (select == MOD_SELECT_ALL) taken[i] = 1;
      }
   }
}

/* All blocks of the last probed pass. */
static account walk(const mod_config *c, const mod_model *model, const mod_batch *batch, const char *name)
{
   account a;
   double hidden = D / 4 < 16 ? 16 : D / 4, kv_width = D / c->n_heads * c->n_kv_heads;
   memset(&a, 0, sizeof a);
   for (int l = 0; l < LAYERS; ++l) {
      block_seen *b = &seen[l];
      mod_block_config bc = mod_config_block(c, l);
      mod_block_stats *st = &a.block[l];
      unsigned char kept[ROWS] = {0}, keys[ROWS] = {0}, experts[MAX_E * ROWS] = {0};
      rule r[3] = {rule_of(c, l, BLOCK), rule_of(c, l, KV), rule_of(c, l, EXPERTS)};
      mod_path_stats p = {0};
      double n_tokens = batch->n_tokens ? (double)batch->n_tokens : b->n;
      for (int s = batch->n_seqs; s < SEQS; ++s) { /* the sequences that are not there */
         b->start[s + 1] = b->start[s];
         b->kept.start[s + 1] = b->kept.start[s];
         b->keys.start[s + 1] = b->keys.start[s];
      }
      if (r[BLOCK].columns)
         walk_router(c, l, BLOCK, &r[BLOCK], model, batch->mode, b->start, n_tokens, batch->least_capacity, &a, &p,
                     kept);
      else
         walk_control(c, bc.select, fmax(bc.capacity, batch->mode == MOD_MODE_TOPK ? batch->least_capacity : 0),
                      batch->mode, b, b->score, kept);
      expect(&b->kept, kept, b->n, name, l, "who enters");
      st->routed = bc.select != MOD_SELECT_ALL;
      st->tokens = b->n;
      st->kept = b->kept.n;
      st->decided = p.decided, st->predicted = p.predicted, st->hits = p.hits, st->agree = p.agree;
      for (int i = 0; i < b->n && st->routed; ++i) a.entered[i] |= kept[i];

      if (bc.kv_select == MOD_SELECT_ALL && bc.select == MOD_SELECT_ALL) bc.kv_select = MOD_SELECT_SAME;
      if (bc.kv_select == MOD_SELECT_SAME) b->keys = b->kept, b->keys.times = 0;
      else if (r[KV].columns)
         walk_router(c, l, KV, &r[KV], model, batch->mode, b->start, n_tokens, batch->least_capacity, &a, &st->kv,
                     keys);
      else
         walk_control(c, bc.kv_select, fmax(bc.kv_capacity, batch->mode == MOD_MODE_TOPK ? batch->least_capacity : 0),
                      batch->mode, b, b->kv_score, keys);
      if (bc.kv_select != MOD_SELECT_SAME)
         expect(&b->keys, keys, b->n, name, l, "whose keys");
      if (bc.select == MOD_SELECT_STOCHASTIC && bc.kv_select == bc.select)
         CHECKF(!b->n || !same(b->score, b->kv_score, (size_t)b->n), "%s: the same draw twice", name);
      st->keys = b->keys.n;
      for (int s = 0; s < SEQS; ++s)
         for (int i = b->kept.start[s]; i < b->kept.start[s + 1]; ++i)
            for (int j = b->keys.start[s]; j < b->keys.start[s + 1]; ++j)
               st->pairs += c->mask == MOD_MASK_FULL || b->keys.index[j] <= b->kept.index[i];

      st->mlp_rows = st->kept;
      if (r[EXPERTS].columns) {
         walk_router(c, l, EXPERTS, &r[EXPERTS], model, batch->mode, b->kept.start, n_tokens, batch->least_capacity, &a,
                     &st->experts, experts);
         if (b->n_experts != c->n_experts && n_different++ < 10) CHECKF(0, "%s: %d experts seen", name, b->n_experts);
         st->mlp_rows = 0;
         for (int e = 0; e < c->n_experts; ++e) {
            expect(&b->expert[e], experts + e * ROWS, b->kept.n, name, l, "an expert's rows");
            a.expert_rows[l][e] = b->expert[e].n;
            st->mlp_rows += b->expert[e].n;
         }
         for (int i = 0; i < b->kept.n && !r[EXPERTS].by_token; ++i) {
            int any = 0;
            for (int e = 0; e < c->n_experts; ++e) any |= experts[e * ROWS + i];
            st->dropped += !any;
         }
      }
      a.flops += 2.0 * st->kept * (2 * D * D) + 2.0 * st->keys * (2 * D * kv_width) + 4.0 * D * (double)st->pairs;
      a.flops += 2.0 * st->mlp_rows * D * FF * (c->activation == MOD_ACTIVATION_SWIGLU ? 3 : 2);
      for (int w = 0; w < 3; ++w) {
         double rows = w == EXPERTS ? b->kept.n : b->n;
         a.flops += 2 * rows * D * r[w].columns + (r[w].predictor ? 2 * rows * hidden * (D + r[w].paths) : 0);
      }
   }
   return a;
}

/* ---------------------------------------------------------------------------------------------------------------------
   The equations once more, in double
   ------------------------------------------------------------------------------------------------------------------ */

/* Numbers of a block's tensor, of experts those of number e; NULL if there is none. */
static const float *weight(const mod_model *model, int l, const char *name, int e)
{
   char full[64];
   mod_param p;
   snprintf(full, sizeof full, "blocks.%d.%s", l, name);
   if (mod_model_param(model, mod_model_find(model, full), &p, NULL) != MOD_RESULT_OK) return NULL;
   return p.data + (e > 0 ? p.count / (size_t)p.dim[0] * (size_t)e : 0);
}

static void linear(const double *x, int in, int out, const float *w, const float *bias, double *y)
{
   for (int o = 0; o < out; ++o) {
      y[o] = bias ? (double)bias[o] : 0;
      for (int i = 0; i < in; ++i) y[o] += x[i] * (double)w[i * out + o];
   }
}

static void norm(const mod_model *model, int l, int which, const double *x, double *y)
{
   char name[24];
   mod_config c = mod_model_config(model);
   double mean = 0, square = 0;
   snprintf(name, sizeof name, "norm%d.gain", which);
   const float *gain = weight(model, l, name, 0);
   snprintf(name, sizeof name, "norm%d.bias", which);
   const float *bias = weight(model, l, name, 0);
   for (int i = 0; i < D && c.norm == MOD_NORM_LAYER; ++i) mean += x[i] / D;
   for (int i = 0; i < D; ++i) square += (x[i] - mean) * (x[i] - mean) / D;
   for (int i = 0; i < D; ++i)
      y[i] = (x[i] - mean) / sqrt(square + 1e-5) * (double)gain[i] + (bias ? (double)bias[i] : 0);
}

static void rotate(const mod_config *c, double *x, int position, int width)
{
   int hd = D / c->n_heads;
   if (c->position != MOD_POSITION_ROPE) return;
   for (int i = 0; i < width; i += 2) {
      double angle = position * pow(10000, -(double)(i % hd) / hd), a = x[i], b = x[i + 1];
      x[i] = a * cos(angle) - b * sin(angle);
      x[i + 1] = a * sin(angle) + b * cos(angle);
   }
}

static void row_of(const float *from, int i, double *to)
{
   for (int c = 0; c < D; ++c) to[c] = (double)from[i * D + c];
}

static double off(const double *want, const float *got, int n)
{
   double worst = 0;
   for (int i = 0; i < n; ++i) worst = fmax(worst, fabs(want[i] - (double)got[i]) / (1 + fabs(want[i])));
   return worst;
}

static void predict(const mod_model *model, int l, const char *prefix, const double *x, int paths, double *y)
{
   double square = 0, u[D], h[16];
   const char *const part[4] = {"w1", "b1", "w2", "b2"};
   const float *w[4];
   for (int i = 0; i < 4; ++i) {
      char name[40];
      snprintf(name, sizeof name, "%spredictor.%s", prefix, part[i]);
      w[i] = weight(model, l, name, 0);
   }
   for (int i = 0; i < D; ++i) square += x[i] * x[i] / D;
   for (int i = 0; i < D; ++i) u[i] = x[i] / sqrt(square + 1e-5);
   linear(u, D, 16, w[0], w[1], h);
   for (int i = 0; i < 16; ++i)
      h[i] = h[i] / 2 * (1 + tanh(0.79788456080286535588 * (h[i] + 0.044715 * h[i] * h[i] * h[i])));
   linear(h, 16, paths, w[2], w[3], y);
}

/* Scores, predictors, h, m and y of block l, from its input; the largest relative difference. */
static double equation(const mod_config *c, const mod_model *model, int l, int *zero_rows)
{
   const block_seen *b = &seen[l];
   mod_block_config bc = mod_config_block(c, l);
   rule r[3] = {rule_of(c, l, BLOCK), rule_of(c, l, KV), rule_of(c, l, EXPERTS)};
   int hd = D / c->n_heads, kv = hd * c->n_kv_heads, group = c->n_heads / c->n_kv_heads, j = 0;
   double worst = 0, x[D], u[D], y[D], z[MAX_COLUMNS], k[CONTEXT * D], v[CONTEXT * D];
   for (int i = 0; i < b->n; ++i) {
      row_of(b->input, i, x);
      if (r[BLOCK].columns)
         linear(x, D, r[BLOCK].columns, weight(model, l, "router", 0), NULL, z),
            worst = fmax(worst, off(z, b->score + i * r[BLOCK].columns, r[BLOCK].columns));
      if (r[KV].columns)
         linear(x, D, 1, weight(model, l, "kv.router", 0), NULL, z), worst = fmax(worst, off(z, b->kv_score + i, 1));
      if (r[BLOCK].predictor) predict(model, l, "", x, 1, z), worst = fmax(worst, off(z, b->predictor + i, 1));
      if (r[KV].predictor) predict(model, l, "kv.", x, 1, z), worst = fmax(worst, off(z, b->kv_predictor + i, 1));
      while (j < b->kept.n && b->kept.index[j] < i) ++j;
      if (j < b->kept.n && b->kept.index[j] == i) continue;
      if (c->bypass == MOD_BYPASS_GATED && bc.select == MOD_SELECT_LEARNED) {
         for (int d = 0; d < D; ++d) y[d] = x[d] + c->gate_scale * tanh((double)b->score[i]) * x[d];
         worst = fmax(worst, off(y, b->output + i * D, D));
      } else if (!same(b->output + i * D, b->input + i * D, D)) {
         worst = 1;
      }
   }
   for (int s = 0; s < SEQS; ++s) {
      int n_keys = b->keys.start[s + 1] - b->keys.start[s];
      for (int key = 0; key < n_keys; ++key) {
         int i = b->keys.index[b->keys.start[s] + key];
         double g = r[KV].columns ? gate_of(bc.kv_gate, (double)b->kv_score[i], c->gate_scale) : 1;
         row_of(b->input, i, x);
         norm(model, l, 1, x, u);
         linear(u, D, kv, weight(model, l, "attn.wk", 0), weight(model, l, "attn.bk", 0), k + key * D);
         linear(u, D, kv, weight(model, l, "attn.wv", 0), weight(model, l, "attn.bv", 0), v + key * D);
         rotate(c, k + key * D, b->position[i], kv);
         for (int d = 0; d < kv; ++d) v[key * D + d] *= g;
      }
      for (int row = b->kept.start[s]; row < b->kept.start[s + 1]; ++row) {
         int i = b->kept.index[row], keys = 0;
         double o[D] = {0}, q[D], h[D], m[D] = {0}, sum, g = 1;
         while (keys < n_keys && (c->mask == MOD_MASK_FULL || b->keys.index[b->keys.start[s] + keys] <= i)) ++keys;
         *zero_rows += !keys;
         row_of(b->input, i, x);
         norm(model, l, 1, x, u);
         linear(u, D, D, weight(model, l, "attn.wq", 0), weight(model, l, "attn.bq", 0), q);
         rotate(c, q, b->position[i], D);
         for (int head = 0; head < c->n_heads; ++head) {
            double p[CONTEXT];
            sum = 0;
            for (int key = 0; key < keys; ++key) {
               p[key] = 0;
               for (int d = 0; d < hd; ++d) p[key] += q[head * hd + d] * k[key * D + head / group * hd + d];
               sum += p[key] = exp(p[key] / sqrt(hd));
            }
            for (int key = 0; key < keys; ++key)
               for (int d = 0; d < hd; ++d) o[head * hd + d] += p[key] / sum * v[key * D + head / group * hd + d];
         }
         linear(o, D, D, weight(model, l, "attn.wo", 0), weight(model, l, "attn.bo", 0), h);
         worst = fmax(worst, off(h, b->attention + row * D, D));

         for (int d = 0; d < D; ++d) x[d] += (double)b->attention[row * D + d];
         norm(model, l, 2, x, u);
         if (r[EXPERTS].columns)
            linear(x, D, r[EXPERTS].columns, weight(model, l, "mlp.router", 0), NULL, z),
               worst = fmax(worst, off(z, b->expert_score + row * r[EXPERTS].columns, r[EXPERTS].columns));
         if (r[EXPERTS].predictor)
            predict(model, l, "mlp.", x, c->n_experts, y),
               worst = fmax(worst, off(y, b->expert_predictor + row * c->n_experts, c->n_experts));
         sum = 0;
         for (int e = 0; e < r[EXPERTS].columns; ++e) sum += exp(z[e]);
         for (int e = 0; e < (r[EXPERTS].columns ? c->n_experts : 1); ++e) {
            double f[FF], gated[FF];
            int mine = !r[EXPERTS].columns;
            for (int t = 0; t < b->expert[e].n && !mine; ++t) mine = b->expert[e].index[t] == row;
            if (!mine) continue;
            linear(u, D, FF, weight(model, l, "mlp.w1", e), weight(model, l, "mlp.b1", e), f);
            if (c->activation == MOD_ACTIVATION_SWIGLU)
               linear(u, D, FF, weight(model, l, "mlp.wg", e), weight(model, l, "mlp.bg", e), gated);
            for (int d = 0; d < FF; ++d) {
               if (c->activation == MOD_ACTIVATION_SWIGLU) f[d] *= gated[d] * sigmoid(gated[d]);
               else if (c->activation == MOD_ACTIVATION_RELU) f[d] = f[d] > 0 ? f[d] : 0;
               else f[d] = f[d] / 2 * (1 + tanh(0.79788456080286535588 * (f[d] + 0.044715 * f[d] * f[d] * f[d])));
            }
            linear(f, FF, D, weight(model, l, "mlp.w2", e), weight(model, l, "mlp.b2", e), y);
            for (int d = 0; d < D; ++d) m[d] += y[d] * (r[EXPERTS].columns ? exp(z[e]) / sum : 1);
         }
         worst = fmax(worst, off(m, b->mlp + row * D, D));

         if (bc.select == MOD_SELECT_LEARNED) g = gate_of(bc.gate, (double)b->score[i], c->gate_scale);
         if (bc.select == MOD_SELECT_TOKEN) g = sigmoid((double)b->score[2 * i] - (double)b->score[2 * i + 1]);
         for (int d = 0; d < D; ++d)
            y[d] = (double)b->input[i * D + d] + g * ((double)b->attention[row * D + d] + (double)b->mlp[row * D + d]);
         worst = fmax(worst, off(y, b->output + i * D, D));
      }
   }
   return worst;
}

/* ---------------------------------------------------------------------------------------------------------------------
   A forward pass on a tape of exactly the planned size
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct run {
   mod_tape *tape;
   mod_forward out;
   mod_error err;
   mod_result result;
   float *grads; /* NULL: forward only */
   size_t bytes;
} run;

static void end_run(run *r)
{
   mod_tape_destroy(r->tape);
   free(r->grads);
   memset(r, 0, sizeof *r);
}

static run run_model(const mod_model *model, mod_batch batch, int with_grads, int n_threads, size_t less)
{
   run r;
   size_t n_params;
   mod_tape_desc desc = {0};
   mod_config cfg = mod_model_config(model);
   memset(&r, 0, sizeof r);
   memset(seen, 0, sizeof seen);
   batch.probe = probe;
   batch.probe_user = seen;
   desc.n_threads = n_threads;
   desc.forward_only = !with_grads;
   r.result = mod_forward_plan(&cfg, &batch, &desc, &r.bytes, &r.err);
   if (r.result != MOD_RESULT_OK) return r;
   mod_model_params(model, &n_params);
   if (with_grads) r.grads = (float *)calloc(n_params, sizeof(float));
   r.tape = mod_tape_create(&desc, r.bytes - less, NULL, &r.err);
   r.result = r.tape ? mod_model_forward(model, r.tape, r.grads, &batch, &r.out, &r.err) : r.err.code;
   if (r.result == MOD_RESULT_OK && with_grads) r.result = mod_tape_backward(r.tape, r.out.loss, &r.err);
   return r;
}

static int all_zero_rows, all_dropped[2];
static int near(double a, double b) { return fabs(a - b) <= 1e-5 * (1 + fabs(b)); }

/* All that a pass reports, against what the probe saw. */
static void check_run(const mod_model *model, const mod_batch *batch, run *r, const char *name, int deep)
{
   mod_config c = mod_model_config(model);
   mod_flops f, by_slots;
   int lengths[SEQS] = {0}, skipped = 0, any = 0, equal = 1, bound = 1, zero_rows = 0, n = 0;
   for (int s = 0; s < batch->n_seqs; ++s) n += lengths[s] = batch->lengths ? batch->lengths[s] : batch->length;
   account a = walk(&c, model, batch, name);
   double head = 2.0 * D * c.n_inputs * n +
                 2.0 * D * (pooled(&c) ? (double)c.n_outputs * batch->n_seqs : (double)c.vocab_size * n);
   CHECKF(mod_tape_peak(r->tape) == r->bytes, "%s: peak %zu, plan %zu", name, mod_tape_peak(r->tape), r->bytes);
   CHECKF(mod_config_flops(&c, batch->n_seqs, lengths, r->out.blocks, &f, NULL) == MOD_RESULT_OK &&
          f.total == a.flops + head && f.blocks == a.flops && mod_tape_flops(r->tape) == f.total &&
          r->out.flops_blocks == f.blocks && r->out.flops_head == head,
          "%s: FLOPs counted %.0f, formula %.0f, by hand %.0f", name, mod_tape_flops(r->tape), f.total, a.flops + head);
   CHECK(mod_config_flops(&c, batch->n_seqs, lengths, NULL, &by_slots, NULL) == MOD_RESULT_OK);
   for (int l = 0; l < LAYERS; ++l) {
      mod_block_config b = mod_config_block(&c, l);
      const mod_block_stats *got = &r->out.blocks[l], *want = &a.block[l];
      const int *times = seen[l].times;
      rule rules[3] = {rule_of(&c, l, BLOCK), rule_of(&c, l, KV), rule_of(&c, l, EXPERTS)};
      int random = b.select == MOD_SELECT_STOCHASTIC, random_kv = b.kv_select == MOD_SELECT_STOCHASTIC;
      int apart = b.kv_select != MOD_SELECT_SAME && !(b.kv_select == MOD_SELECT_ALL && b.select == MOD_SELECT_ALL);
      if (b.select == MOD_SELECT_TOKEN || (b.mlp != MOD_MLP_PLAIN && b.choice == MOD_CHOICE_TOKEN)) equal = 0;
      if (apart && c.mask != MOD_MASK_FULL) bound = 0;
      any |= b.select != MOD_SELECT_ALL;
      CHECKF(times[MOD_SITE_INPUT] == 1 && times[MOD_SITE_KEPT] == 1 && times[MOD_SITE_ATTENTION] == 1 &&
                times[MOD_SITE_MLP] == 1 && times[MOD_SITE_OUTPUT] == 1 && times[MOD_SITE_LOGITS] == 0 &&
                times[MOD_SITE_KV_KEPT] == apart && times[MOD_SITE_SCORE] == (rules[BLOCK].columns > 0 || random) &&
                times[MOD_SITE_PREDICTOR] == rules[BLOCK].predictor &&
                times[MOD_SITE_KV_SCORE] == (rules[KV].columns > 0 || random_kv) &&
                times[MOD_SITE_KV_PREDICTOR] == rules[KV].predictor &&
                times[MOD_SITE_EXPERT_SCORE] == (rules[EXPERTS].columns > 0) &&
                times[MOD_SITE_EXPERT_PREDICTOR] == rules[EXPERTS].predictor &&
                times[MOD_SITE_EXPERT_KEPT] == rules[EXPERTS].paths,
             "%s, block %d: what a probe sees", name, l);
      CHECKF(got->routed == want->routed && got->tokens == want->tokens && got->kept == want->kept &&
             got->keys == want->keys && got->pairs == want->pairs && got->mlp_rows == want->mlp_rows,
             "%s, block %d: %d %d %d %d", name, l, (int)got->kept, (int)got->keys, (int)got->pairs, (int)got->mlp_rows);
      CHECKF(got->dropped == want->dropped, "%s, block %d: dropped %d, not %d", name, l, (int)got->dropped,
             (int)want->dropped);
      CHECKF(got->decided == want->decided && got->predicted == want->predicted && got->hits == want->hits &&
             got->agree == want->agree, "%s, block %d", name, l);
      CHECKF(!memcmp(&got->kv, &want->kv, sizeof want->kv), "%s, block %d: kv %d %d", name, l, (int)got->kv.tokens,
             (int)want->kv.tokens);
      CHECKF(!memcmp(&got->experts, &want->experts, sizeof want->experts), "%s, block %d: experts", name, l);
      for (int s = 0; s < batch->n_seqs; ++s)
         CHECKF(r->out.kept[l * batch->n_seqs + s] == seen[l].kept.start[s + 1] - seen[l].kept.start[s], "%s", name);
      for (int e = 0; e < c.n_experts && r->out.expert_rows; ++e)
         CHECKF(r->out.expert_rows[l * c.n_experts + e] == a.expert_rows[l][e], "%s, block %d, expert %d", name, l, e);
      if (deep) {
         double worst = equation(&c, model, l, &zero_rows);
         CHECKF(worst < 2e-5, "%s, block %d: off by %g", name, l, worst);
      }
      all_dropped[batch->mode] += want->dropped > 0;
   }
   all_zero_rows += zero_rows;
   if (batch->mode == MOD_MODE_TOPK && bound && batch->least_capacity == 0)
      CHECKF(equal ? by_slots.total == f.total : by_slots.total >= f.total, "%s: %.0f by slots, %.0f", name,
             by_slots.total, f.total);
   for (int i = 0; i < n; ++i) skipped += any && !a.entered[i];
   CHECKF(r->out.skipped == skipped, "%s: skipped %d, not %d", name, (int)r->out.skipped, skipped);
   CHECKF(near(r->out.router_bce, a.router_bce) && near(r->out.predictor_bce, a.predictor_bce),
          "%s: BCE %g and %g, not %g and %g", name, r->out.router_bce, r->out.predictor_bce, a.router_bce,
          a.predictor_bce);
   CHECKF(near(r->out.balance_loss, a.balance) && near(r->out.z_loss, a.z), "%s: balance %g, not %g; z %g, not %g",
          name, r->out.balance_loss, a.balance, r->out.z_loss, a.z);
   if (r->out.loss && r->grads) {
      double want = r->out.cross_entropy + c.router_loss * a.router_bce + c.predictor_loss * a.predictor_bce +
         c.balance_loss * a.balance + c.z_loss * a.z;
      CHECKF(near((double)r->out.loss->data[0], want), "%s: loss %g, not %g", name, (double)r->out.loss->data[0], want);
   }
   /* the head's loss, from the logits */
   double loss = 0;
   int count = 0;
   for (int s = 0; s < batch->n_seqs; ++s)
      for (int i = 0; i < (pooled(&c) ? 1 : lengths[s]); ++i) {
         const float *x = r->out.logits->data + (pooled(&c) ? s : r->out.rows->start[s] + i) * outputs(&c);
         int target = batch->targets ? batch->targets[pooled(&c) ? s : s * batch->length + i] : -1;
         double sum = 0;
         for (int o = 0; o < outputs(&c); ++o) {
            double d = c.head == MOD_HEAD_REGRESSION ? (double)(x[o] - batch->values[s * N_OUT + o]) : 0;
            sum += c.head == MOD_HEAD_REGRESSION ? d * d : exp((double)x[o]);
         }
         if (c.head == MOD_HEAD_REGRESSION) loss += sum, count += N_OUT;
         else if (target >= 0) loss += log(sum) - (double)x[target], ++count;
      }
   CHECKF(near(r->out.cross_entropy, count ? loss / count : 0), "%s: %g, not %g", name, r->out.cross_entropy,
          loss / count);
   CHECKF(r->out.n_targets == count && r->out.n_tokens == n, "%s", name);
}

/* Thresholds at which causal mode takes about half of the rows, from a top-k pass. */
static void halve(mod_model *model)
{
   mod_config c = mod_model_config(model);
   double *theta = mod_model_thresholds(model);
   run r = run_model(model, make_batch(&c, NULL, MOD_MODE_TOPK), 0, 1, 0);
   CHECKF(r.result == MOD_RESULT_OK, "%s", r.err.message);
   for (int l = 0; l < LAYERS; ++l)
      for (int w = 0; w < 3; ++w) {
         rule r_w = rule_of(&c, l, w);
         int n = w == EXPERTS ? seen[l].kept.n : seen[l].n;
         for (int j = 0; j < r_w.paths && r_w.decides; ++j)
            for (int i = 0; i < n; ++i) {
               int below = 0;
               for (int o = 0; o < n; ++o) below += deciding(&r_w, &seen[l], o, j) < deciding(&r_w, &seen[l], i, j);
               if (below == n / 2) theta[(r_w.path + j) * LAYERS + l] = deciding(&r_w, &seen[l], i, j);
            }
      }
   end_run(&r);
}

static void test_runs(void)
{
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      int thetas = mod_config_paths(&cfg) * LAYERS;
      fill_batch();
      halve(model);
      for (int edge = 0; edge < 4; ++edge) { /* thresholds that half of the rows pass, 0, that none and that all pass */
         for (int i = 0; i < thetas && edge; ++i)
            mod_model_thresholds(model)[i] = edge == 1 ? 0 : edge == 2 ? 1e30 : -1e30;
         for (int l = 0; l < 3; ++l)
            for (int mode = edge > 1; mode <= causal_too(&cfg); ++mode)
               for (int grads = 0; grads < 2; ++grads) {
                  mod_batch batch = make_batch(&cfg, lengths_of[l], mode);
                  int threads = 1 + (l + mode + grads) % 3;
                  run r = run_model(model, batch, grads, threads, 0);
                  CHECKF(r.result == MOD_RESULT_OK, "%s: %s", name, r.err.message);
                  if (r.result == MOD_RESULT_OK) check_run(model, &batch, &r, name, edge == 0 || grads);
                  end_run(&r);
                  if (edge) continue;
                  r = run_model(model, batch, grads, threads, 1);
                  CHECKF(r.result == MOD_RESULT_MEMORY, "%s: one byte less", name);
                  end_run(&r);
               }
      }
      mod_model_destroy(model);
   }
   CHECKF(all_zero_rows > 100 && all_dropped[0] > 20 && all_dropped[1] > 20, "%d rows saw no key; %d and %d",
          all_zero_rows, all_dropped[0], all_dropped[1]);
}

/* ---------------------------------------------------------------------------------------------------------------------
   A trainer's and a session's memory
   ------------------------------------------------------------------------------------------------------------------ */

static mod_train_desc make_desc(void)
{
   mod_train_desc how = {0};
   how.n_seqs = SEQS;
   how.length = LENGTH;
   how.steps = 20;
   how.lr = 3e-3;
   how.weight_decay = 0.1;
   how.clip_norm = 0.5;
   how.seed = 7;
   return how;
}

static void test_memory(void)
{
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      mod_error err;
      for (int warm = 0; warm < 2; ++warm) {
         mod_train_desc how = make_desc();
         mod_plan plan;
         how.n_threads = 1 + (v + warm) % 3;
         how.dropout = warm ? 0.2 : 0;
         how.capacity_warmup = 3 * warm;
         how.threshold_decay = 0.9 * warm;
         CHECKF(mod_model_plan(&cfg, &how, &plan, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
         void *memory = malloc(plan.trainer);
         CHECKF(!mod_trainer_init(model, &how, memory, plan.trainer - 1, NULL), "%s", name);
         mod_trainer *trainer = mod_trainer_init(model, &how, memory, plan.trainer, &err);
         CHECKF(trainer != NULL, "%s: %s", name, err.message);
         for (int step = 0; step < 5 && trainer; ++step) {
            fill_batch();
            mod_batch batch = make_batch(&cfg, lengths_of[step % 3], MOD_MODE_TOPK);
            CHECKF(mod_train_step(trainer, &batch, NULL, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
            CHECKF(mod_trainer_peak(trainer) == plan.trainer, "%s, step %d: %zu of %zu", name, step,
                   mod_trainer_peak(trainer), plan.trainer);
         }
         free(memory);
      }
      if (causal_too(&cfg))
         for (int chunk = 1; chunk <= CONTEXT; chunk += 5) {
            mod_session_desc desc = {0};
            size_t bytes = 0;
            desc.chunk = chunk;
            desc.n_threads = 1 + chunk % 3;
            CHECK(mod_session_plan(&cfg, &desc, &bytes, NULL, NULL) == MOD_RESULT_OK);
            void *memory = malloc(bytes);
            CHECKF(!mod_session_init(model, &desc, memory, bytes - 1, NULL), "%s", name);
            mod_session *session = mod_session_init(model, &desc, memory, bytes, &err);
            CHECKF(session != NULL, "%s: %s", name, err.message);
            if (session) {
               mod_result fed = cfg.n_inputs ? mod_session_feed_rows(session, inputs, CONTEXT, &err)
                                             : mod_session_feed(session, tokens, CONTEXT, &err);
               CHECKF(fed == MOD_RESULT_OK && mod_session_peak(session) == bytes, "%s, chunk %d: %zu of %zu", name,
                      chunk, mod_session_peak(session), bytes);
            }
            free(memory);
         }
      mod_model_destroy(model);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   A sequence alone, its beginning alone, and with whatever stands in its padding
   ------------------------------------------------------------------------------------------------------------------ */

/* Rows of logits that belong to sequence s. */
static const float *logits_of(const mod_config *c, const run *r, int s)
{
   return r->out.logits->data + (size_t)(pooled(c) ? s : r->out.rows->start[s]) * (size_t)outputs(c);
}

/* Does scheme v, in top-k mode, look at later tokens? */
static int looks_ahead(const mod_config *c)
{
   for (int l = 0; l < LAYERS; ++l) {
      mod_block_config b = mod_config_block(c, l);
      for (int w = 0; w < 3; ++w) {
         rule r = rule_of(c, l, w);
         if (r.columns && !r.by_token && r.share < 1 && b.select != MOD_SELECT_NONE) return 1;
      }
      if (b.select == MOD_SELECT_STOCHASTIC || b.kv_select == MOD_SELECT_STOCHASTIC) return 1;
   }
   return !causal_too(c);
}

static void test_independence(void)
{
   int ahead = 0, not_ahead = 0;
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      fill_batch();
      halve(model);
      for (int mode = 0; mode <= causal_too(&cfg); ++mode) {
         static const int lengths[SEQS] = {LENGTH, 0, 13};
         mod_batch batch = make_batch(&cfg, lengths, mode);
         batch.dropout = 0.1;
         run all = run_model(model, batch, 0, 2, 0);
         int differ = 0;
         CHECKF(all.result == MOD_RESULT_OK, "%s: %s", name, all.err.message);
         for (int s = 0; s < SEQS; s += 2) { /* alone */
            run one = run_model(model, only(&cfg, batch, s, -1), 0, 1, 0);
            differ += one.result || !same(logits_of(&cfg, &all, s), one.out.logits->data,
                                          (size_t)((pooled(&cfg) ? 1 : lengths[s]) * outputs(&cfg)));
            for (int l = 0; l < LAYERS && !one.result; ++l) differ += one.out.kept[l] != all.out.kept[l * SEQS + s];
            end_run(&one);
         }
         CHECKF(!differ, "%s, mode %d: a sequence alone", name, mode);
         int saved_tokens[ROWS];
         float saved_inputs[ROWS * N_IN];
         memcpy(saved_tokens, tokens, sizeof tokens);
         memcpy(saved_inputs, inputs, sizeof inputs);
         for (int s = 0; s < SEQS; ++s)
            for (int i = lengths[s]; i < LENGTH; ++i) {
               tokens[s * LENGTH + i] = -5;
               for (int j = 0; j < N_IN; ++j) inputs[(s * LENGTH + i) * N_IN + j] = (float)NAN;
            }
         run padded = run_model(model, batch, 0, 3, 0);
         CHECKF(padded.result == MOD_RESULT_OK && !memcmp(padded.out.logits->data, all.out.logits->data,
            sizeof(float) * (size_t)(all.out.logits->dim[0] * outputs(&cfg))), "%s, mode %d: padding", name, mode);
         end_run(&padded);
         memcpy(tokens, saved_tokens, sizeof tokens);
         memcpy(inputs, saved_inputs, sizeof inputs);
         if (!pooled(&cfg)) { /* what comes later does not matter to what came before, but in a top-k */
            int looked = 0;
            for (int n = 1; n < LENGTH; ++n) {
               run begin = run_model(model, only(&cfg, batch, 0, n), 0, 1, 0);
               looked +=
                  begin.result || !same(begin.out.logits->data, logits_of(&cfg, &all, 0), (size_t)(n * outputs(&cfg)));
               end_run(&begin);
            }
            if (mode == MOD_MODE_TOPK && looks_ahead(&cfg)) {
               CHECKF(looked > 0, "%s should look ahead", name);
               ++ahead;
            } else {
               CHECKF(looked == 0, "%s, mode %d: %d prefixes differ", name, mode, looked);
               ++not_ahead;
            }
         }
         end_run(&all);
      }
      mod_model_destroy(model);
   }
   CHECKF(ahead > 10 && not_ahead > 30, "%d, %d", ahead, not_ahead);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Sessions: the same bits as the whole sequence at once, however it is cut; failures leave no trace
   ------------------------------------------------------------------------------------------------------------------ */

typedef struct truth {
   float logits[CONTEXT + 1][VOCAB]; /* after so many tokens */
   int keys[CONTEXT + 1][LAYERS], kept[LAYERS][CONTEXT], n_kept[LAYERS];
} truth;

static void find_truth(const mod_config *cfg, const mod_model *model, truth *t)
{
   mod_batch batch = make_batch(cfg, NULL, MOD_MODE_CAUSAL);
   memset(t, 0, sizeof *t);
   batch.length = CONTEXT;
   batch = only(cfg, batch, 0, CONTEXT);
   for (int n = pooled(cfg) ? 1 : CONTEXT; n <= CONTEXT; ++n) {
      batch.lengths = &n;
      run r = run_model(model, batch, 0, 1, 0);
      CHECKF(r.result == MOD_RESULT_OK, "%s", r.err.message);
      for (int i = pooled(cfg) ? n : 1; i <= n && r.result == MOD_RESULT_OK; ++i) {
         memcpy(t->logits[i], r.out.logits->data + (pooled(cfg) ? 0 : i - 1) * outputs(cfg),
                sizeof(float) * (size_t)outputs(cfg));
         for (int l = 0; l < LAYERS; ++l) {
            const selection *keys = seen[l].times[MOD_SITE_KV_KEPT] ? &seen[l].keys : &seen[l].kept;
            int count = 0;
            while (count < keys->n && seen[l].position[keys->index[count]] < i) ++count;
            t->keys[i][l] = count;
         }
      }
      end_run(&r);
   }
   for (int l = 0; l < LAYERS; ++l) {
      t->n_kept[l] = seen[l].kept.n;
      for (int i = 0; i < t->n_kept[l]; ++i) t->kept[l][i] = seen[l].position[seen[l].kept.index[i]];
   }
}

static mod_result feed(const mod_config *cfg, mod_session *s, int from, int n)
{
   return cfg->n_inputs ? mod_session_feed_rows(s, inputs + from * N_IN, n, NULL)
                        : mod_session_feed(s, tokens + from, n, NULL);
}

/* (A tied head gives the token whose embedding is NaN a logit that is: it is left out.) */
static int as_after(const mod_config *cfg, const mod_session *s, const truth *t, int n)
{
   size_t numbers = (size_t)(pooled(cfg) ? cfg->n_outputs : POISON);
   int ok = mod_session_length(s) == n &&
            (n == 0 ? !mod_session_logits(s) : same(mod_session_logits(s), t->logits[n], numbers));
   for (int l = 0; l < LAYERS; ++l) ok = ok && mod_session_cached(s, l) == t->keys[n][l];
   return ok;
}

static void test_sessions(void)
{
   static truth t;
   int failures = 0;
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      if (!causal_too(&cfg)) continue;
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      fill_batch();
      halve(model);
      find_truth(&cfg, model, &t);
      for (int chunk = 1; chunk <= CONTEXT; chunk += chunk < 4 ? 1 : 7)
         for (int piece = 1; piece <= CONTEXT; piece = piece * 2 + 1) {
            mod_session_desc desc = {0};
            desc.chunk = chunk;
            desc.seed = 3;
            desc.n_threads = 1 + piece % 2;
            mod_session *s = mod_session_create(model, &desc, NULL, NULL);
            int wrong = 0;
            for (int turn = 0; turn < 2 && s; ++turn) { /* once more after a reset in the middle */
               for (int at = 0; at < (turn ? CONTEXT : 2 * CONTEXT / 3);) {
                  int n = piece < CONTEXT - at ? piece : CONTEXT - at;
                  wrong += feed(&cfg, s, at, n) != MOD_RESULT_OK;
                  wrong += !as_after(&cfg, s, &t, at += n);
               }
               if (!turn) mod_session_reset(s);
            }
            CHECKF(s && !wrong, "%s, chunk %d, pieces of %d: %d wrong", name, chunk, piece, wrong);
            mod_session_destroy(s);
         }

      /* A feed that fails in its middle: by a NaN that some router meets, or by an input that is none. */
      mod_param embed;
      int had = mod_model_param(model, mod_model_find(model, "embed"), &embed, NULL) == MOD_RESULT_OK;
      for (int i = 0; i < D && had; ++i) embed.data[POISON * D + i] = (float)NAN;
      for (int chunk = 1; chunk <= 7; chunk += 3)
         for (int before = 0; before < CONTEXT - 8; before += 5) {
            mod_session_desc desc = {0};
            desc.chunk = chunk;
            desc.seed = 3;
            mod_session *s = mod_session_create(model, &desc, NULL, NULL);
            int kept_token = tokens[before + 7];
            float kept_input = inputs[(before + 7) * N_IN];
            if (before) CHECK(feed(&cfg, s, 0, before) == MOD_RESULT_OK);
            tokens[before + 7] = POISON;
            inputs[(before + 7) * N_IN] = (float)NAN;
            mod_result failed = feed(&cfg, s, before, 8);
            if (failed != MOD_RESULT_OK) {
               CHECKF(failed == MOD_RESULT_NUMERIC && as_after(&cfg, s, &t, before), "%s, chunk %d, after %d", name,
                      chunk, before);
               ++failures;
            } else { /* nobody looks at numbers here */
               mod_session_reset(s);
               tokens[before + 7] = kept_token;
               if (before) feed(&cfg, s, 0, before);
            }
            tokens[before + 7] = VOCAB;
            if (!cfg.n_inputs)
               CHECKF(feed(&cfg, s, before, 8) == MOD_RESULT_RANGE && as_after(&cfg, s, &t, before), "%s", name);
            CHECK(feed(&cfg, s, before, CONTEXT) == (before         ? MOD_RESULT_FULL
                                                     : cfg.n_inputs ? MOD_RESULT_NUMERIC
                                                                    : MOD_RESULT_RANGE));
            tokens[before + 7] = kept_token;
            inputs[(before + 7) * N_IN] = kept_input;
            CHECKF(feed(&cfg, s, before, CONTEXT - before) == MOD_RESULT_OK && as_after(&cfg, s, &t, CONTEXT),
                   "%s, chunk %d: after a failure at %d", name, chunk, before);
            mod_session_destroy(s);
         }
      mod_model_destroy(model);
   }
   CHECKF(failures > 200, "%d", failures);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Schemes that are others in disguise, bit for bit
   ------------------------------------------------------------------------------------------------------------------ */

static int same_weights(const mod_model *a, const mod_model *b)
{
   size_t n, m;
   const float *x = mod_model_params(a, &n), *y = mod_model_params(b, &m);
   return n == m && same(x, y, n);
}

/* Copies to b the tensors of a that it has too. Returns how many. */
static int copy_shared(const mod_model *a, mod_model *b)
{
   int copied = 0;
   for (int i = 0; i < mod_model_param_count(a); ++i) {
      mod_param p, q;
      mod_model_param(a, i, &p, NULL);
      if (mod_model_param(b, mod_model_find(b, p.name), &q, NULL) != MOD_RESULT_OK || q.count != p.count) continue;
      memcpy(q.data, p.data, p.count * sizeof *p.data);
      ++copied;
   }
   return copied;
}

/* The largest difference in a tensor of a that b has too (but predictors and, if asked, routers): 0 if all are the same
   to the bit, else |difference| / largest number of the tensor, at least 1e-30. */
static double apart(const mod_model *a, const mod_model *b, const float *grads_a, const float *grads_b, int routers,
                    int *compared)
{
   double worst = 0;
   *compared = 0;
   for (int i = 0; i < mod_model_param_count(a); ++i) {
      mod_param p, q;
      double largest = 0, differ = 0;
      mod_model_param(a, i, &p, NULL);
      if (mod_model_param(b, mod_model_find(b, p.name), &q, NULL) != MOD_RESULT_OK || q.count != p.count || p.predictor)
         continue;
      if (!routers && strstr(p.name, "router")) continue;
      const float *x = grads_a ? grads_a + p.offset : p.data, *y = grads_b ? grads_b + q.offset : q.data;
      ++*compared;
      if (same(x, y, p.count)) continue;
      for (size_t j = 0; j < p.count; ++j) {
         largest = fmax(largest, fabs((double)x[j]));
         differ = fmax(differ, fabs((double)x[j] - (double)y[j]));
      }
      worst = fmax(worst, fmax(1e-30, differ / largest));
   }
   return worst;
}

typedef struct pair {
   const char *name;
   mod_config a, b;
   double least;   /* least_capacity of b's batches */
   double grads;   /* how far gradients may be apart: 0 means the same bits, and after ten steps the same weights */
   int modes;      /* 1: top-k only */
} pair;

#define EXPERT_MOE .select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT
static const pair pairs[] = {
   {"learned of all",
    {.select = MOD_SELECT_ALL}, {.capacity = 1, .gate = MOD_GATE_ONE, .causal = MOD_CAUSAL_NONE}, 0, 0, 2},
   {"learned of all, biases", {.select = MOD_SELECT_ALL, .bias = MOD_BIAS_ON, .norm = MOD_NORM_LAYER},
    {.capacity = 1, .gate = MOD_GATE_ONE, .causal = MOD_CAUSAL_NONE, .bias = MOD_BIAS_ON, .norm = MOD_NORM_LAYER}, 0,
     0, 2},
   {"random of all", {.select = MOD_SELECT_ALL}, {.select = MOD_SELECT_STOCHASTIC, .capacity = 1}, 0, 0, 2},
   {"every one", {.select = MOD_SELECT_ALL}, {.select = MOD_SELECT_EVERY, .capacity = 1}, 0, 0, 2},
   {"the first of all", {.select = MOD_SELECT_ALL}, {.select = MOD_SELECT_FIRST, .capacity = 1}, 0, 0, 2},
   {"the same keys", {.capacity = 0.4}, {.capacity = 0.4, .kv_select = MOD_SELECT_SAME}, 0, 0, 2},
   {"all keys of all", {.select = MOD_SELECT_ALL}, {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_ALL}, 0, 0, 2},
   {"learned keys of all", {.select = MOD_SELECT_ALL},
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 1, .kv_gate = MOD_GATE_ONE,
     .causal = MOD_CAUSAL_NONE}, 0, 0, 2},
   {"learned keys and queries of all", {.select = MOD_SELECT_ALL},
    {.capacity = 1, .gate = MOD_GATE_ONE, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 1, .kv_gate = MOD_GATE_ONE,
     .causal = MOD_CAUSAL_NONE}, 0, 0, 2},
   {"one expert, who takes all", {.select = MOD_SELECT_ALL}, {EXPERT_MOE, .n_experts = 1}, 0, 0, 2},
   {"one expert, whom all choose", {.select = MOD_SELECT_ALL},
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .n_experts = 1, .balance_loss = 1e-30, .z_loss = 1e-30}, 0, 0, 2},
   {"staged after all", {EXPERT_MOE, .causal = MOD_CAUSAL_NONE},
    {.capacity = 1, .gate = MOD_GATE_ONE, .mlp = MOD_MLP_MOE, .choice = MOD_CHOICE_EXPERT, .causal = MOD_CAUSAL_NONE},
     0, 0, 2},
   {"at least all", {.capacity = 1, .gate = MOD_GATE_SIGMOID, .causal = MOD_CAUSAL_NONE},
    {.capacity = 0.3, .gate = MOD_GATE_SIGMOID, .causal = MOD_CAUSAL_NONE}, 1, 0, 1},
   {"at least all keys",
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 1, .causal = MOD_CAUSAL_NONE},
    {.select = MOD_SELECT_ALL, .kv_select = MOD_SELECT_LEARNED, .kv_capacity = 0.2, .causal = MOD_CAUSAL_NONE}, 1,
    1e-5, 1}, /* where the keys may be fewer, their norm is apart from that of the queries */
   {"at least all, every",
    {.select = MOD_SELECT_EVERY, .capacity = 1}, {.select = MOD_SELECT_EVERY, .capacity = 0.3}, 1, 0, 1},
   {"at least all, first",
    {.select = MOD_SELECT_FIRST, .capacity = 1}, {.select = MOD_SELECT_FIRST, .capacity = 0.3}, 1, 0, 1},
   {"at least all, random",
    {.select = MOD_SELECT_STOCHASTIC, .capacity = 1}, {.select = MOD_SELECT_STOCHASTIC, .capacity = 0.3}, 1, 0, 1},
   {"at least all, token-choice",
    {.select = MOD_SELECT_TOKEN, .capacity = 1}, {.select = MOD_SELECT_TOKEN, .capacity = 0.3}, 1, 0, 1},
   {"integrated, no-ops out of reach",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .capacity_factor = 0.4, .balance_loss = 1e-30},
    {.mlp = MOD_MLP_MODE, .capacity = 0.4, .balance_loss = 1e-30}, 0, 0, 2},
   {"integrated top-2, no-ops out of reach",
    {.select = MOD_SELECT_ALL, .mlp = MOD_MLP_MOE, .choices = 2, .capacity_factor = 0.4, .balance_loss = 1e-30},
    {.mlp = MOD_MLP_MODE, .choices = 2, .capacity = 0.4, .balance_loss = 1e-30, .n_noops = 1}, 0, 0, 2},
   {"integrated by the experts, no-ops out of reach", {EXPERT_MOE, .capacity_factor = 0.4, .causal = MOD_CAUSAL_BOTH},
    {.mlp = MOD_MLP_MODE, .choice = MOD_CHOICE_EXPERT, .capacity = 0.4, .causal = MOD_CAUSAL_BOTH}, 0, 0, 2},
};

static mod_config common(mod_config cfg)
{
   cfg.vocab_size = VOCAB;
   cfg.context = CONTEXT;
   cfg.n_layers = LAYERS;
   cfg.d_model = D;
   cfg.d_ff = FF;
   cfg.n_heads = 4;
   cfg.route_every = 1;
   return mod_config_resolve(&cfg);
}

/* The last feature of every row becomes 1 (embedding), and stays so (what is added to it is 0). The routers of b's
   experts become those of a, and their no-ops get -10^4 from that feature. */
static void no_noops(mod_model *a, mod_model *b)
{
   for (int i = 0; i < mod_model_param_count(a); ++i) {
      mod_param p, q;
      mod_model_param(a, i, &p, NULL);
      mod_model_param(b, mod_model_find(b, p.name), &q, NULL);
      if (!strcmp(p.name, "embed"))
         for (int t = 0; t < VOCAB; ++t) p.data[t * D + D - 1] = q.data[t * D + D - 1] = 1;
      if (strstr(p.name, "attn.wo") || strstr(p.name, "mlp.w2"))
         for (size_t r = 0; r < p.count / D; ++r) p.data[r * D + D - 1] = q.data[r * D + D - 1] = 0;
      if (!strstr(p.name, "mlp.router")) continue;
      for (int r = 0; r < D; ++r)
         for (int e = 0; e < q.dim[1]; ++e)
            q.data[r * q.dim[1] + e] = e < p.dim[1] ? p.data[r * p.dim[1] + e] : r == D - 1 ? -1e4f : 0;
   }
}

static void test_reductions(void)
{
   for (size_t v = 0; v < sizeof pairs / sizeof pairs[0]; ++v) {
      const pair *p = &pairs[v];
      mod_config ca = common(p->a), cb = common(p->b);
      mod_model *a = make(&ca, 40 + v), *b = make(&cb, 60 + v);
      int copied = copy_shared(a, b), compared, noops = cb.mlp == MOD_MLP_MODE;
      if (noops) no_noops(a, b);
      CHECKF(copied == mod_model_param_count(a) - noops * LAYERS, "%s: %d", p->name, copied);
      fill_batch();
      for (int l = 0; l < 3; ++l)
         for (int mode = 0; mode < p->modes; ++mode) {
            mod_batch batch = make_batch(&ca, lengths_of[l], mode), other = batch;
            other.least_capacity = p->least;
            run ra = run_model(a, batch, 1, 1, 0), rb = run_model(b, other, 1, 2, 0);
            CHECKF(!ra.result && !rb.result, "%s: %s", p->name, rb.err.message);
            if (!ra.result && !rb.result) {
               CHECKF(same(ra.out.logits->data, rb.out.logits->data, (size_t)(ra.out.logits->dim[0] * VOCAB)) &&
                      ra.out.cross_entropy == rb.out.cross_entropy, "%s, mode %d", p->name, mode);
               double differ = apart(a, b, ra.grads, rb.grads, 1, &compared);
               CHECKF(differ <= p->grads && compared > 20, "%s, mode %d: gradients differ by %g", p->name, mode,
                      differ);
            }
            end_run(&ra);
            end_run(&rb);
         }
      if (p->grads == 0 && p->least == 0) {
         mod_train_desc how = make_desc();
         mod_trainer *ta = mod_trainer_create(a, &how, NULL, NULL), *tb = mod_trainer_create(b, &how, NULL, NULL);
         for (int step = 0; step < 10; ++step) {
            fill_batch();
            mod_batch batch = make_batch(&ca, lengths_of[step % 3], MOD_MODE_TOPK);
            CHECK(mod_train_step(ta, &batch, NULL, NULL) == MOD_RESULT_OK &&
                  mod_train_step(tb, &batch, NULL, NULL) == MOD_RESULT_OK);
         }
         double differ = apart(a, b, NULL, NULL, 1, &compared);
         CHECKF(differ == 0 && compared > 20, "%s: weights differ by %g after ten steps", p->name, differ);
         mod_trainer_destroy(ta);
         mod_trainer_destroy(tb);
      }
      mod_model_destroy(a);
      mod_model_destroy(b);
   }
}

/* Mixture-of-Depths written on the public ops as a mixture of two experts: the block, which takes its k best, and the
   identity, whose logit and delta are 0; weights by softmax. It is the model's MoD block with the sigmoid gate. */
static mod_tensor *leaf_of(mod_tape *t, const mod_model *model, float *grads, const char *name)
{
   mod_param p;
   CHECKF(mod_model_param(model, mod_model_find(model, name), &p, NULL) == MOD_RESULT_OK, "%s", name);
   return mod_leaf(t, p.data, grads + p.offset, p.n_dim, p.dim);
}

static void test_two_experts(void)
{
   mod_config cfg = {.capacity = 0.4, .gate = MOD_GATE_SIGMOID, .causal = MOD_CAUSAL_NONE, .route_first = 1};
   static float grads[1 << 14], nothing[ROWS * D];
   static int ids[SEQS * LENGTH], wanted[SEQS * LENGTH];
   const int dim[2] = {SEQS * LENGTH, D}, column[2] = {SEQS * LENGTH, 1};
   cfg = common(cfg);
   cfg.n_layers = 1;
   mod_model *model = make(&cfg, 99);
   fill_batch();
   mod_batch batch = make_batch(&cfg, NULL, MOD_MODE_TOPK);
   mod_tape_desc desc = {0};
   size_t bytes = 0;
   CHECK(mod_forward_plan(&cfg, &batch, &desc, &bytes, NULL) == MOD_RESULT_OK);
   size_t n;
   mod_model_params(model, &n);
   float *model_grads = (float *)calloc(n, sizeof(float));
   mod_tape *tm = mod_tape_create(&desc, bytes, NULL, NULL), *t = mod_tape_create(&desc, 1 << 20, NULL, NULL);
   mod_forward out;
   CHECK(n < 1 << 14 && mod_model_forward(model, tm, model_grads, &batch, &out, NULL) == MOD_RESULT_OK);
   CHECK(mod_tape_backward(tm, out.loss, NULL) == MOD_RESULT_OK);

   memcpy(ids, tokens, sizeof ids);
   memcpy(wanted, targets, sizeof wanted);
   mod_rows *rows = mod_rows_make(t, SEQS, LENGTH, NULL);
   mod_tensor *embed = leaf_of(t, model, grads, "embed"), *table = mod_rope_table(t, 0, LENGTH, D / 4, 10000);
   mod_tensor *x = mod_embedding(t, embed, ids, SEQS * LENGTH);
   mod_tensor *r = mod_matmul(t, x, leaf_of(t, model, grads, "blocks.0.router"));
   mod_rows *kept = mod_rows_topk(t, rows, r, 0.4);
   mod_tensor *p = mod_softmax(t, mod_concat(t, r, mod_leaf(t, nothing, NULL, 2, column), 1));
   mod_tensor *s = mod_gather(t, x, kept),
              *u = mod_rmsnorm(t, s, leaf_of(t, model, grads, "blocks.0.norm1.gain"), 1e-5);
   mod_tensor *q = mod_matmul(t, u, leaf_of(t, model, grads, "blocks.0.attn.wq"));
   mod_tensor *k = mod_matmul(t, u, leaf_of(t, model, grads, "blocks.0.attn.wk"));
   mod_tensor *v = mod_matmul(t, u, leaf_of(t, model, grads, "blocks.0.attn.wv"));
   mod_tensor *h =
      mod_attention(t, mod_rope(t, q, kept, table), mod_rope(t, k, kept, table), v, kept, kept, 4, 4, MOD_MASK_CAUSAL);
   h = mod_matmul(t, h, leaf_of(t, model, grads, "blocks.0.attn.wo"));
   u = mod_rmsnorm(t, mod_add(t, s, h), leaf_of(t, model, grads, "blocks.0.norm2.gain"), 1e-5);
   u = mod_gelu(t, mod_matmul(t, u, leaf_of(t, model, grads, "blocks.0.mlp.w1")));
   u = mod_matmul(t, u, leaf_of(t, model, grads, "blocks.0.mlp.w2"));
   mod_tensor *y = mod_scatter_add(t, x, mod_add(t, h, u), mod_gather(t, mod_slice(t, p, 1, 0, 1), kept), kept);
   y = mod_scatter_add(t, y, mod_leaf(t, nothing, NULL, 2, dim), mod_slice(t, p, 1, 1, 1), rows);
   y = mod_matmul_nt(t, mod_rmsnorm(t, y, leaf_of(t, model, grads, "norm.gain"), 1e-5), embed);
   mod_tensor *loss = mod_cross_entropy(t, y, wanted, 0);
   mod_error err;
   CHECKF(mod_tape_backward(t, loss, &err) == MOD_RESULT_OK, "%s", err.message);
   CHECK(y && same(y->data, out.logits->data, (size_t)(SEQS * LENGTH * VOCAB)) && loss->value == out.cross_entropy);
   for (int i = 0; i < mod_model_param_count(model); ++i) {
      mod_param w;
      mod_model_param(model, i, &w, NULL);
      double largest = 0, differ = 0;
      for (size_t j = w.offset; j < w.offset + w.count; ++j) {
         largest = fmax(largest, fabs((double)model_grads[j]));
         differ = fmax(differ, fabs((double)(model_grads[j] - grads[j])));
      }
      /* The derivative of a softmax and that of a sigmoid are two formulas: it reaches the router, and through it x. */
      int through = !strcmp(w.name, "embed") || strstr(w.name, "router");
      CHECKF(largest > 0 && differ <= (through ? 2e-6 * largest : 0), "%s: %g of %g", w.name, differ, largest);
   }
   mod_tape_destroy(t);
   mod_tape_destroy(tm);
   free(model_grads);
   mod_model_destroy(model);
}

/* ---------------------------------------------------------------------------------------------------------------------
   Training: micro-batches, warm-up of the capacity, moving thresholds, dropout, predictors, calibration, NaN
   ------------------------------------------------------------------------------------------------------------------ */

/* Sequences [first, first + n) of a batch, as a micro-batch of it. */
static mod_batch micro(const mod_config *cfg, mod_batch batch, int first, int n, int64_t n_targets, int64_t n_tokens)
{
   if (batch.tokens) batch.tokens += first * LENGTH;
   if (batch.inputs) batch.inputs += first * LENGTH * N_IN;
   if (batch.targets) batch.targets += first * (pooled(cfg) ? 1 : LENGTH);
   if (batch.values) batch.values += first * N_OUT;
   if (batch.lengths) batch.lengths += first;
   batch.n_seqs = n;
   batch.n_targets = n_targets;
   batch.n_tokens = n_tokens;
   return batch;
}

static void test_micro_batches(void)
{
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      if (cfg.head == MOD_HEAD_TIED) cfg.head = MOD_HEAD_UNTIED; /* two ops feed a tied embedding */
      mod_model *model[3];
      mod_trainer *trainer[3]; /* in one batch; in three; in two, with threads */
      size_t n;
      for (int i = 0; i < 3; ++i) {
         mod_train_desc how = make_desc();
         how.n_threads = 1 + i;
         how.simd = i ? MOD_SIMD_SCALAR : MOD_SIMD_BEST;
         how.dropout = 0.15;
         how.capacity_warmup = 2;
         how.threshold_decay = 0.8;
         model[i] = make(&cfg, (uint64_t)v + 1);
         trainer[i] = mod_trainer_create(model[i], &how, NULL, NULL);
      }
      for (int step = 0; step < 4; ++step) {
         fill_batch();
         mod_batch batch = make_batch(&cfg, lengths_of[step % 3], MOD_MODE_TOPK);
         int64_t n_targets = 0, n_tokens = 0;
         for (int s = 0; s < SEQS; ++s) {
            int length = batch.lengths ? batch.lengths[s] : LENGTH;
            n_tokens += length;
            if (cfg.head == MOD_HEAD_REGRESSION) n_targets += N_OUT;
            else if (pooled(&cfg)) ++n_targets;
            else for (int i = 0; i < length; ++i) n_targets += targets[s * LENGTH + i] >= 0;
         }
         static const int cut[3][SEQS] = {{3, 0, 0}, {1, 1, 1}, {1, 2, 0}};
         mod_step_info info[3];
         for (int i = 0; i < 3; ++i)
            for (int c = 0, at = 0; c < SEQS && cut[i][c]; at += cut[i][c++]) {
               mod_batch piece = micro(&cfg, batch, at, cut[i][c], i ? n_targets : 0, i ? n_tokens : 0);
               mod_error err;
               CHECKF(mod_train_accumulate(trainer[i], &piece, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
            }
         const float *g = mod_trainer_grads(trainer[0], &n);
         int same_grads =
            same(g, mod_trainer_grads(trainer[1], NULL), n) && same(g, mod_trainer_grads(trainer[2], NULL), n);
         CHECKF(same_grads, "%s, step %d: gradients", name, step);
         for (int i = 0; i < 3; ++i) CHECK(mod_train_update(trainer[i], &info[i], NULL) == MOD_RESULT_OK);
         for (int i = 1; i < 3; ++i)
            CHECKF(near(info[i].loss, info[0].loss) && near(info[i].router_bce, info[0].router_bce) &&
                      near(info[i].predictor_bce, info[0].predictor_bce) &&
                      near(info[i].balance_loss, info[0].balance_loss) && near(info[i].z_loss, info[0].z_loss),
                   "%s, step %d", name, step);
      }
      for (int i = 1; i < 3; ++i) {
         CHECKF(same_weights(model[0], model[i]), "%s: weights", name);
         CHECKF(!memcmp(mod_model_thresholds(model[0]), mod_model_thresholds(model[i]),
                        sizeof(double) * (size_t)(mod_config_paths(&cfg) * LAYERS)), "%s: thresholds", name);
      }
      for (int i = 0; i < 3; ++i) mod_trainer_destroy(trainer[i]), mod_model_destroy(model[i]);
   }
}

/* Where dropout put zeros into x [rows, D]: one bit for each number, at [block][site][sequence][position][feature]. The
   rows are those of a selection. */
enum { DRAWS = SEQS * LENGTH * D };
static void zeros_of(const block_seen *b, const selection *rows, const float *x, signed char *out)
{
   memset(out, -1, DRAWS);
   for (int s = 0; s < SEQS; ++s)
      for (int i = rows->start[s]; i < rows->start[s + 1]; ++i)
         for (int c = 0; c < D; ++c) out[(s * LENGTH + b->position[rows->index[i]]) * D + c] = x[i * D + c] == 0;
}

/* Of the draws that both have seen, the share that agrees. */
static double agreement(const signed char *a, const signed char *b)
{
   int both = 0, equal = 0;
   for (int i = 0; i < DRAWS; ++i) both += a[i] >= 0 && b[i] >= 0, equal += a[i] >= 0 && a[i] == b[i];
   return both > 100 ? (double)equal / both : -1;
}

/* What is dropped is a function of (seed, step, block, site, sequence, position, feature), whoever else is there. */
static void test_dropout(void)
{
   static signed char draws[7][LAYERS * 2 + 1][DRAWS]; /* of seven runs; the last of each is the embedding's */
   mod_config dense = common((mod_config){.select = MOD_SELECT_ALL, .bias = MOD_BIAS_ON});
   mod_config routed = common((mod_config){.capacity = 0.4, .bias = MOD_BIAS_ON, .kv_select = MOD_SELECT_EVERY});
   mod_model *model[2] = {make(&dense, 1), make(&routed, 2)};
   fill_batch();
   for (int i = 0; i < 7; ++i) { /* dense, routed, ragged; another seed, step, id; a sequence that is another's */
      mod_batch batch = make_batch(&dense, i == 2 ? ragged : NULL, MOD_MODE_TOPK);
      batch.dropout = 0.25;
      batch.seed += i == 3;
      batch.step += i == 4;
      batch.first_id += i >= 5;
      run r = run_model(model[i == 1], batch, 1, 1, 0);
      CHECKF(r.result == MOD_RESULT_OK, "%s", r.err.message);
      for (int l = 0; l < LAYERS; ++l) {
         zeros_of(&seen[l], &seen[l].kept, seen[l].attention, draws[i][2 * l]);
         zeros_of(&seen[l], &seen[l].kept, seen[l].mlp, draws[i][2 * l + 1]);
      }
      zeros_of(&seen[0], &seen[0].kept, seen[0].input, draws[i][2 * LAYERS]);
      end_run(&r);
   }
   for (int i = 0; i <= 2 * LAYERS; ++i) {
      int zeros = 0;
      for (int j = 0; j < DRAWS; ++j) zeros += draws[0][i][j];
      CHECKF(fabs((double)zeros / DRAWS - 0.25) < 0.06, "%d of %d", zeros, DRAWS);
      CHECK(agreement(draws[0][i], draws[2][i]) == 1);
      CHECK(agreement(draws[0][i], draws[1][i]) == 1);
      for (int other = 3; other < 6; ++other) CHECK(fabs(agreement(draws[0][i], draws[other][i]) - 0.625) < 0.08);
      for (int j = 0; j < i; ++j) CHECKF(fabs(agreement(draws[0][i], draws[0][j]) - 0.625) < 0.08, "%d and %d", i, j);
      memmove(draws[6][i] + LENGTH * D, draws[6][i], DRAWS - LENGTH * D); /* its first sequence has the id 1 */
      memset(draws[6][i], -1, LENGTH * D);
      CHECK(agreement(draws[0][i], draws[6][i]) == 1);
   }
   for (int i = 0; i < 2; ++i) mod_model_destroy(model[i]);
}

static int descending(const void *a, const void *b)
{
   double x = *(const double *)a, y = *(const double *)b;
   return x < y ? 1 : x > y ? -1 : 0;
}

/* The (above + 1)-th largest of the logits that decide over path j, of rows [from, to). */
static double ranked(const rule *r, const block_seen *b, int j, int from, int to, int above)
{
   double sorted[ROWS];
   for (int i = from; i < to; ++i) sorted[i - from] = deciding(r, b, i, j);
   qsort(sorted, (size_t)(to - from), sizeof *sorted, descending);
   return sorted[above];
}

static void test_warmup_and_thresholds(void)
{
   enum { WARMUP = 4 };
   int moved = 0;
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      mod_train_desc how = make_desc();
      how.capacity_warmup = WARMUP;
      how.threshold_decay = 0.75;
      mod_trainer *trainer = mod_trainer_create(model, &how, NULL, NULL);
      double *theta = mod_model_thresholds(model);
      for (int step = 0; step < WARMUP + 3; ++step) {
         double want[MAX_PATHS * LAYERS];
         mod_error err;
         fill_batch();
         mod_batch batch = make_batch(&cfg, lengths_of[step % 3], MOD_MODE_TOPK);
         batch.probe = probe;
         batch.probe_user = seen;
         memset(seen, 0, sizeof seen);
         CHECKF(mod_train_accumulate(trainer, &batch, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
         batch.least_capacity = step < WARMUP ? 1 - (double)step / WARMUP : 0;
         account a = walk(&cfg, model, &batch, name); /* who entered */
         const mod_forward *f = mod_trainer_forward(trainer);
         for (int l = 0; l < LAYERS; ++l) {
            mod_block_config b = mod_config_block(&cfg, l);
            CHECKF(f->blocks[l].kept == a.block[l].kept && f->blocks[l].keys == a.block[l].keys, "%s, step %d", name,
                   step);
            for (int s = 0; s < SEQS && b.select == MOD_SELECT_LEARNED; ++s)
               CHECKF(f->kept[l * SEQS + s] ==
                         k_of(seen[l].start[s + 1] - seen[l].start[s], fmax(b.capacity, batch.least_capacity)),
                      "%s, step %d", name, step);
         }
         memcpy(want, theta, sizeof(double) * (size_t)(mod_config_paths(&cfg) * LAYERS));
         for (int l = 0; l < LAYERS; ++l)
            for (int w = 0; w < 3; ++w) {
               rule r = rule_of(&cfg, l, w);
               const int *start = w == EXPERTS ? seen[l].kept.start : seen[l].start;
               for (int j = 0; j < r.paths && r.decides; ++j) {
                  double sum = 0, *t = &want[(r.path + j) * LAYERS + l],
                         share = fmax(r.share, batch.least_capacity * r.warmed);
                  int count = 0;
                  for (int s = 0; s < SEQS; ++s) {
                     int n = start[s + 1] - start[s],
                         k = w == EXPERTS ? slots_of(n, share) : k_of(n, share);
                     if (k >= n) continue;
                     sum += (ranked(&r, &seen[l], j, start[s], start[s + 1], k - 1) +
                             ranked(&r, &seen[l], j, start[s], start[s + 1], k)) /
                            2;
                     ++count;
                  }
                  if (count) *t = *t == 0 ? sum / count : 0.75 * *t + 0.25 * (sum / count), ++moved;
               }
            }
         CHECK(mod_train_update(trainer, NULL, NULL) == MOD_RESULT_OK);
         for (int i = 0; i < mod_config_paths(&cfg) * LAYERS; ++i)
            CHECKF(fabs(theta[i] - want[i]) <= 1e-12 * (1 + fabs(want[i])), "%s, step %d: theta %g, not %g", name, step,
                   theta[i], want[i]);
      }
      mod_trainer_destroy(trainer);
      mod_model_destroy(model);
   }
   CHECKF(moved > 200, "%d", moved);

   /* A token-choice that everyone's first choice is the block: as many enter as there are slots. */
   for (int hundredths = 1; hundredths <= 100; ++hundredths) {
      mod_config cfg = common((mod_config){.select = MOD_SELECT_TOKEN, .capacity = 0.3});
      mod_model *model = make(&cfg, 5);
      mod_param router;
      mod_model_param(model, mod_model_find(model, "blocks.1.router"), &router, NULL);
      memset(router.data, 0, router.count * sizeof *router.data);
      mod_batch batch = make_batch(&cfg, NULL, MOD_MODE_TOPK);
      batch.least_capacity = hundredths / 100.0;
      run r = run_model(model, batch, 0, 1, 0);
      int want = k_of(CONTEXT, fmax(0.3, batch.least_capacity));
      if (want > LENGTH) want = LENGTH;
      CHECKF(!r.result && r.out.kept[SEQS] == want, "least %g: %d, not %d", batch.least_capacity, r.out.kept[SEQS],
             want);
      end_run(&r);
      mod_model_destroy(model);
   }
}

/* A step that is refused leaves nothing behind: not in weights, moments or thresholds, and not for the next. */
static void test_refused_steps(void)
{
   mod_config cfg = common((mod_config){.head = MOD_HEAD_CLASS, .n_outputs = N_OUT, .capacity = 0.4});
   mod_model *model[2];
   mod_trainer *trainer[2];
   fill_batch();
   for (int i = 0; i < 2; ++i) {
      mod_train_desc how = make_desc();
      how.threshold_decay = 0.9;
      model[i] = make(&cfg, 8);
      trainer[i] = mod_trainer_create(model[i], &how, NULL, NULL);
      mod_batch batch = make_batch(&cfg, ragged, MOD_MODE_TOPK);
      if (i) {
         classes[1] = N_OUT;
         CHECK(mod_train_step(trainer[i], &batch, NULL, NULL) == MOD_RESULT_RANGE);
         classes[1] = 0;
      }
      classes[1] = 0;
      batch.lengths = holes;
      CHECK(mod_train_step(trainer[i], &batch, NULL, NULL) == MOD_RESULT_OK);
   }
   CHECK(same_weights(model[0], model[1]));
   CHECK(!memcmp(mod_model_thresholds(model[0]), mod_model_thresholds(model[1]), LAYERS * sizeof(double)));
   for (int i = 0; i < 2; ++i) mod_trainer_destroy(trainer[i]), mod_model_destroy(model[i]);
}

/* The predictors train beside the language model, which never feels them. */
static void test_predictors_apart(void)
{
   int trained = 0;
   for (int v = 0; v < N_SCHEMES; ++v) {
      mod_config with = config_of(v), without = with;
      if (with.causal != MOD_CAUSAL_PREDICTOR && with.causal != MOD_CAUSAL_BOTH) continue;
      without.causal = with.causal == MOD_CAUSAL_BOTH ? MOD_CAUSAL_ROUTER : MOD_CAUSAL_NONE;
      mod_model *a = make(&without, 4), *b = make(&with, 5);
      int copied = copy_shared(a, b), compared;
      CHECK(copied == mod_model_param_count(a));
      if (mod_model_param_count(b) == copied || with.select == MOD_SELECT_NONE) { /* has none, or nobody to predict */
         mod_model_destroy(a);
         mod_model_destroy(b);
         continue;
      }
      mod_train_desc how = make_desc();
      how.dropout = 0.1;
      how.clip_norm = 0.05;
      mod_trainer *ta = mod_trainer_create(a, &how, NULL, NULL), *tb = mod_trainer_create(b, &how, NULL, NULL);
      double first = 0, last = 0;
      for (int step = 0; step < 8; ++step) {
         mod_step_info ia, ib;
         fill_batch();
         mod_batch batch = make_batch(&with, lengths_of[step % 3], MOD_MODE_TOPK);
         CHECK(mod_train_step(ta, &batch, &ia, NULL) == MOD_RESULT_OK &&
               mod_train_step(tb, &batch, &ib, NULL) == MOD_RESULT_OK);
         CHECKF(ia.grad_norm == ib.grad_norm && ia.grad_norm > 0.05 && ia.predictor_grad_norm == 0 &&
                   ib.predictor_grad_norm > 0,
                "%s", schemes[v].name);
         if (step % 3 == 0) last = ib.predictor_bce;
         if (step == 0) first = last;
      }
      trained += last < first;
      CHECKF(apart(a, b, NULL, NULL, 1, &compared) == 0 && compared == copied, "%s", schemes[v].name);
      mod_trainer_destroy(ta);
      mod_trainer_destroy(tb);
      mod_model_destroy(a);
      mod_model_destroy(b);
   }
   CHECKF(trained > 10, "%d", trained);
}

static void test_calibration(void)
{
   int paths = 0;
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v);
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      double *theta = mod_model_thresholds(model), before[MAX_PATHS * LAYERS];
      int n_theta = mod_config_paths(&cfg) * LAYERS, known[MAX_PATHS * LAYERS] = {0};
      size_t bytes = 0;
      mod_error err;
      mod_tape_desc desc = {.forward_only = 1};
      fill_batch();
      mod_batch batch = make_batch(&cfg, NULL, causal_too(&cfg));
      mod_batch shape = batch;
      shape.mode = MOD_MODE_TOPK;
      for (int i = 0; i < n_theta; ++i) before[i] = theta[i] = 100 + i;
      CHECK(mod_forward_plan(&cfg, &shape, &desc, &bytes, NULL) == MOD_RESULT_OK);
      mod_tape *tape = mod_tape_create(&desc, bytes, NULL, NULL);
      batch.probe = probe;
      batch.probe_user = seen;
      memset(seen, 0, sizeof seen);
      if (causal_too(&cfg)) {
         CHECKF(mod_model_calibrate(model, tape, &batch, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
         for (int l = 0; l < LAYERS; ++l)
            for (int w = 0; w < 3; ++w) {
               rule r = rule_of(&cfg, l, w);
               int n = w == EXPERTS ? seen[l].kept.n : seen[l].n,
                   k = w == EXPERTS ? slots_of(n, r.share) : k_of(n, r.share);
               for (int j = 0; j < r.paths && r.decides; ++j, ++paths) {
                  int at = (r.path + j) * LAYERS + l;
                  if (!n) continue; /* keeps its threshold */
                  CHECKF(theta[at] == ranked(&r, &seen[l], j, 0, n, k), "%s, block %d, path %d", name, l, r.path + j);
                  known[at] = 1;
               }
            }
         for (int i = 0; i < n_theta; ++i) CHECKF(known[i] || theta[i] == before[i], "%s: theta %d", name, i);
      }
      mod_tape_destroy(tape);

      /* NaN in a router, or in what decides: reported with its block and position, in both modes. */
      for (int i = 0; i < mod_model_param_count(model); ++i) {
         mod_param p;
         mod_model_param(model, i, &p, NULL);
         if (!strstr(p.name, "router") && !strstr(p.name, "predictor.b2")) continue;
         for (int last = 0; last < 2; ++last) { /* of the first and of the last path, which may be a no-op */
            float *w = &p.data[last ? p.count - 1 : 0], saved = *w;
            *w = (float)NAN;
            for (int mode = 0; mode <= causal_too(&cfg); ++mode) {
               run r = run_model(model, make_batch(&cfg, NULL, mode), 0, 1, 0);
               if (mod_config_block(&cfg, p.name[7] - '0').select == MOD_SELECT_NONE) {
                  end_run(&r); /* nobody is there to read it */
                  continue;
               }
               CHECKF(r.result == MOD_RESULT_NUMERIC && r.err.block == p.name[7] - '0' && r.err.where >= 0 &&
                         r.err.where < LENGTH,
                      "%s, mode %d, %s: %s, block %d, %d", name, mode, p.name, mod_result_name(r.result), r.err.block,
                      (int)r.err.where);
               end_run(&r);
            }
            *w = saved;
         }
      }
      mod_model_destroy(model);
   }
   CHECKF(paths > 60, "%d", paths);
}

/* Shares so small that one row of a long sequence is more: position 0 is taken all the same, and experts take nobody.
 */
static void test_tiny_shares(void)
{
   static const double shares[] = {1e-5, 1e-6, 1e-7, 1e-10, 1e-37, 1e-44};
   for (int i = 0; i < 6; ++i) {
      mod_config cfg =
         common((mod_config){.select = MOD_SELECT_EVERY, .capacity = shares[i], .kv_select = MOD_SELECT_EVERY});
      mod_model *model = make(&cfg, 3);
      fill_batch();
      for (int n = 1; n <= LENGTH; n += 19)
         for (int mode = 0; mode < 2; ++mode) {
            mod_batch batch = only(&cfg, make_batch(&cfg, NULL, mode), 0, n);
            batch.length = n;
            batch.lengths = NULL;
            run r = run_model(model, batch, 1, 1, 0);
            CHECKF(r.result == MOD_RESULT_OK, "%g: %s", shares[i], r.err.message);
            if (r.result == MOD_RESULT_OK) {
               check_run(model, &batch, &r, "every so many", 1);
               CHECK(r.out.kept[1] == 1 && r.out.rows->n == n);
            }
            end_run(&r);
         }
      mod_session_desc desc = {.chunk = 1};
      mod_session *s = mod_session_create(model, &desc, NULL, NULL);
      for (int n = 0; n < 3; ++n) CHECK(feed(&cfg, s, n, 1) == MOD_RESULT_OK && mod_session_cached(s, 1) == 1);
      mod_session_destroy(s);
      mod_model_destroy(model);

      if (shares[i] < 1e-30) continue; /* is 0 as a float: refused */
      cfg = common((mod_config){EXPERT_MOE, .capacity_factor = shares[i]});
      model = make(&cfg, 4);
      mod_train_desc how = make_desc();
      how.threshold_decay = 0.5;
      mod_trainer *trainer = mod_trainer_create(model, &how, NULL, NULL);
      mod_batch batch = make_batch(&cfg, ragged, MOD_MODE_TOPK);
      for (int step = 0; step < 2; ++step) CHECK(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
      const double *theta = mod_model_thresholds(model);
      for (int t = 0; t < mod_config_paths(&cfg) * LAYERS; ++t)
         CHECKF(theta[t] == theta[t], "%g: theta %d", shares[i], t);
      mod_trainer_destroy(trainer);
      mod_model_destroy(model);
   }
}

/* ---------------------------------------------------------------------------------------------------------------------
   Files
   ------------------------------------------------------------------------------------------------------------------ */

static struct {
   unsigned char data[1 << 20];
   size_t size;
} disk;

static size_t write_disk(const void *from, size_t size, void *user)
{
   (void)user;
   if (size > sizeof disk.data - disk.size) return 0;
   memcpy(disk.data + disk.size, from, size);
   disk.size += size;
   return size;
}

static size_t read_disk(uint64_t offset, void *to, size_t size, void *user)
{
   (void)user;
   if (offset > disk.size || size > disk.size - offset) return 0;
   memcpy(to, disk.data + offset, size);
   return size;
}

static void test_files(void)
{
   for (int v = 0; v < N_SCHEMES; ++v) {
      const char *name = schemes[v].name;
      mod_config cfg = config_of(v), read;
      mod_error err;
      mod_train_desc how = make_desc(), again;
      how.dropout = 0.1;
      how.capacity_warmup = 5;
      how.threshold_decay = 0.9;
      mod_model *model = make(&cfg, (uint64_t)v + 1);
      mod_trainer *trainer = mod_trainer_create(model, &how, NULL, NULL);
      for (int step = 0; step < 6; ++step) {
         if (step == 3) { /* save, load, and go on with both */
            mod_save_desc desc = {.trainer = trainer, .position = 77};
            mod_writer writer = {write_disk, NULL};
            disk.size = 0;
            CHECKF(mod_save(model, &desc, &writer, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
         }
         test_state = 1 + (uint64_t)step;
         fill_batch();
         mod_batch batch = make_batch(&cfg, lengths_of[step % 3], MOD_MODE_TOPK);
         CHECK(mod_train_step(trainer, &batch, NULL, NULL) == MOD_RESULT_OK);
      }
      mod_reader reader = {disk.size, read_disk, NULL};
      mod_file *file = mod_file_create(&reader, NULL, &err);
      uint64_t position = 0;
      CHECKF(file && mod_file_config(file, &read, &err) == MOD_RESULT_OK &&
                mod_file_train_desc(file, &again, &position, &err) == MOD_RESULT_OK && position == 77,
             "%s: %s", name, err.message);
      mod_model *copy = mod_model_create(&read, NULL, &err);
      mod_trainer *other = copy ? mod_trainer_create(copy, &again, NULL, &err) : NULL;
      CHECKF(other && mod_file_load(file, copy, other, &err) == MOD_RESULT_OK, "%s: %s", name, err.message);
      mod_file_close(file);
      mod_config now = mod_model_config(copy), was = mod_model_config(model);
      CHECKF(!memcmp(now.blocks, was.blocks, LAYERS * sizeof *now.blocks), "%s", name);
      now.blocks = was.blocks = NULL;
      CHECKF(!memcmp(&now, &was, sizeof now), "%s: config", name);
      for (int step = 3; step < 6 && other; ++step) {
         test_state = 1 + (uint64_t)step;
         fill_batch();
         mod_batch batch = make_batch(&cfg, lengths_of[step % 3], MOD_MODE_TOPK);
         CHECK(mod_train_step(other, &batch, NULL, NULL) == MOD_RESULT_OK);
      }
      CHECKF(same_weights(model, copy), "%s: weights", name);
      CHECKF(!memcmp(mod_model_thresholds(model), mod_model_thresholds(copy),
                     sizeof(double) * (size_t)(LAYERS * mod_config_paths(&cfg))),
             "%s: thresholds", name);
      for (int mode = 0; mode <= causal_too(&cfg); ++mode) {
         run a = run_model(model, make_batch(&cfg, ragged, mode), 0, 1, 0),
             b = run_model(copy, make_batch(&cfg, ragged, mode), 0, 1, 0);
         CHECKF(!a.result && !b.result &&
                   same(a.out.logits->data, b.out.logits->data, (size_t)(a.out.logits->dim[0] * outputs(&cfg))),
                "%s", name);
         end_run(&a);
         end_run(&b);
      }
      mod_trainer_destroy(trainer);
      mod_trainer_destroy(other);
      mod_model_destroy(model);
      mod_model_destroy(copy);
   }
}

int main(void)
{
   test_runs();
   test_memory();
   test_independence();
   test_sessions();
   test_reductions();
   test_two_experts();
   test_micro_batches();
   test_dropout();
   test_warmup_and_thresholds();
   test_refused_steps();
   test_predictors_apart();
   test_calibration();
   test_tiny_shares();
   test_files();
   return test_end();
}
