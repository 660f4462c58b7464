/* sensor.c - not text: rows of floats in, a class or a number out, and nothing causal about it

      cc -O2 sensor.c -o sensor -lm && ./sensor [STEPS]

   A made-up motion sensor: 64 readings of three axes, noise for the most part, and somewhere in it a movement of twelve
   readings: one of four shapes, of some strength. One small encoder says which shape (class head), another how strong
   (regression head). Blocks 2 and 4 take a quarter of the readings, 16 of 64. An encoder sees a whole window, so its
   top-k needs no predictor. Does the router find the readings that matter? They are known here, so it can be counted:
   sometimes. Both tasks are so easy that two dense blocks of four do; then a router, or chance, may take what it likes. */
#include <stdio.h>
#include <stdlib.h>
#define MOD_IMPLEMENTATION
#include "../mod.h"

enum { LENGTH = 64, AXES = 3, SHAPES = 4, MOVE = 12, BATCH = 16, TESTS = 64 };

static mod_real readings[BATCH][LENGTH][AXES], strength[BATCH];
static int shape[BATCH], begin[BATCH];

/* Windows first .. first + BATCH - 1 of an endless supply: each is a function of its number alone. */
static void record(uint64_t first)
{
   /* what each axis does during a movement: shape x axis, a sign, and whether it swings twice as fast */
   static const int sign[SHAPES][AXES] = {{1, 1, 0}, {1, -1, 0}, {0, 1, 1}, {0, 1, -1}};
   uint64_t draw = mod_random_stream("sensor"), noise = mod_random_stream("noise");
   for (int s = 0; s < BATCH; ++s) {
      uint64_t window = first + (uint64_t)s;
      shape[s] = (int)(mod_random_bits(window, draw, 0) % SHAPES);
      begin[s] = (int)(mod_random_bits(window, draw, 1) % (LENGTH - MOVE));
      strength[s] = (mod_real)(0.5 + mod_random_uniform(window, draw, 2));
      for (int i = 0; i < LENGTH; ++i)
         for (int axis = 0; axis < AXES; ++axis) {
            int t = i - begin[s];
            double swing = t >= 0 && t < MOVE ? (t < MOVE / 2 ? 1 : -1) * sign[shape[s]][axis] : 0;
            double shake = 0.2 * mod_random_normal(window, noise, (uint64_t)(i * AXES + axis));
            readings[s][i][axis] = (mod_real)(swing * (double)strength[s] + shake);
         }
   }
}

/* How many of the readings that routed blocks took belong to the movement. */
typedef struct tally {
   int64_t taken, moving;
} tally;

static void count(void *user, int block, mod_site site, const mod_rows *rows, const mod_tensor *x)
{
   tally *t = (tally *)user;
   (void)block, (void)x;
   if (site != MOD_SITE_KEPT || !rows->parent) return; /* a dense block takes every row */
   for (int s = 0; s < rows->n_seqs; ++s)
      for (int i = rows->start[s]; i < rows->start[s + 1]; ++i) {
         ++t->taken;
         t->moving += rows->position[i] >= begin[s] && rows->position[i] < begin[s] + MOVE;
      }
}

static int failed(const mod_error *err)
{
   fprintf(stderr, "sensor: %s\n", err->message);
   return EXIT_FAILURE;
}

/* Trains a model and tests it on windows that it has not seen. */
static int run(const char *name, int head, int select, int steps)
{
   mod_error err;
   mod_config cfg = {0};
   mod_train_desc how = {0};
   mod_tape_desc forward_only = {0};
   mod_batch batch = {0};
   mod_forward out;
   mod_flops flops;
   size_t bytes;
   double right = 0, squares = 0, spread = 0;
   int length = LENGTH;
   tally taken = {0, 0};
   cfg.context = LENGTH; cfg.n_inputs = AXES;
   cfg.head = head; cfg.n_outputs = head == MOD_HEAD_CLASS ? SHAPES : 1;
   cfg.mask = MOD_MASK_FULL; cfg.bias = MOD_BIAS_ON;
   cfg.n_layers = 4; cfg.d_model = 16; cfg.n_heads = 2;
   cfg.select = select; cfg.capacity = 0.25; cfg.gate = MOD_GATE_SIGMOID;
   how.n_seqs = BATCH; how.steps = steps; how.warmup = steps / 10; how.lr = 3e-3; how.clip_norm = 1;
   batch.n_seqs = BATCH; batch.length = LENGTH;
   batch.inputs = &readings[0][0][0]; batch.targets = shape; batch.values = strength;

   mod_model *model = mod_model_create(&cfg, NULL, &err);
   if (!model || mod_model_randomize(model, 1, &err) != MOD_RESULT_OK) return failed(&err);
   mod_trainer *trainer = mod_trainer_create(model, &how, NULL, &err);
   if (!trainer) return failed(&err);
   for (int step = 0; step < steps; ++step) {
      record((uint64_t)step * BATCH);
      if (mod_train_step(trainer, &batch, NULL, &err) != MOD_RESULT_OK) return failed(&err);
   }

   forward_only.forward_only = 1;
   batch.probe = count; batch.probe_user = &taken;
   if (mod_forward_plan(&cfg, &batch, &forward_only, &bytes, &err) != MOD_RESULT_OK) return failed(&err);
   mod_tape *tape = mod_tape_create(&forward_only, bytes, NULL, &err);
   if (!tape) return failed(&err);
   for (int test = 0; test < TESTS; ++test) {
      record((uint64_t)(steps + test) * BATCH);
      mod_tape_reset(tape);
      if (mod_model_forward(model, tape, NULL, &batch, &out, &err) != MOD_RESULT_OK) return failed(&err);
      for (int s = 0; s < BATCH; ++s) {
         const mod_real *y = out.logits->data + s * cfg.n_outputs;
         int best = 0;
         for (int c = 1; c < cfg.n_outputs; ++c)
            if (y[c] > y[best]) best = c;
         right += best == shape[s];
         squares += ((double)y[0] - (double)strength[s]) * ((double)y[0] - (double)strength[s]);
         spread += ((double)strength[s] - 1) * ((double)strength[s] - 1);
      }
   }
   mod_config_flops(&cfg, 1, &length, NULL, &flops, &err);
   printf("%-22s", name);
   if (head == MOD_HEAD_CLASS) printf("right %5.1f%%            ", 100 * right / (TESTS * BATCH));
   else printf("unexplained %5.1f%%      ", 100 * squares / spread);
   printf("%7.0f FLOPs a reading", flops.total / LENGTH);
   if (taken.taken) printf("   of what it takes %2.0f%% moves", 100.0 * (double)taken.moving / (double)taken.taken);
   printf("\n");
   mod_tape_destroy(tape);
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
   int steps = argc > 1 ? atoi(argv[1]) : 600;
   if (steps < 10 || steps > 100000) {
      fprintf(stderr, "usage: sensor [STEPS], 10 to 100000 (default 600)\n");
      return 2;
   }
   printf("windows of %d readings, %d of which are a movement (%.0f%%); guessing is right in %d%%\n\n", LENGTH, MOVE,
          100.0 * MOVE / LENGTH, 100 / SHAPES);
   return run("shape, dense", MOD_HEAD_CLASS, MOD_SELECT_ALL, steps) ||
          run("shape, a quarter", MOD_HEAD_CLASS, MOD_SELECT_LEARNED, steps) ||
          run("shape, at random", MOD_HEAD_CLASS, MOD_SELECT_STOCHASTIC, steps) ||
          run("strength, dense", MOD_HEAD_REGRESSION, MOD_SELECT_ALL, steps) ||
          run("strength, a quarter", MOD_HEAD_REGRESSION, MOD_SELECT_LEARNED, steps) ||
          run("strength, at random", MOD_HEAD_REGRESSION, MOD_SELECT_STOCHASTIC, steps);
}
