/* NAME() uses a little of each section of the library, and is 1 if that worked. */
#include <string.h>

int NAME(void)
{
   static const int tokens[4] = {1, 2, 3, 0}, targets[4] = {2, 3, 0, 1};
   static const mod_real score[3] = {1, 3, 2};
   mod_config cfg;
   mod_train_desc how;
   mod_batch batch;
   mod_error err;
   mod_model *model;
   mod_trainer *trainer;
   int kept[2], ok;
   if (mod_route_topk(score, 3, 2, kept, NULL) != MOD_RESULT_OK || kept[0] != 1 || kept[1] != 2) return 0;
   memset(&cfg, 0, sizeof cfg);
   memset(&how, 0, sizeof how);
   memset(&batch, 0, sizeof batch);
   cfg.vocab_size = cfg.context = 4;
   cfg.n_layers = 2;
   cfg.d_model = 8;
   how.n_seqs = 1;
   model = mod_model_create(&cfg, NULL, &err);
   trainer = mod_trainer_create(model, &how, NULL, &err);
   ok = trainer && mod_model_randomize(model, 1, &err) == MOD_RESULT_OK;
   batch.n_seqs = 1;
   batch.length = 4;
   batch.tokens = tokens;
   batch.targets = targets;
   ok = ok && mod_train_step(trainer, &batch, NULL, &err) == MOD_RESULT_OK;
   ok = ok && mod_sample(score, 3, NULL, 0, &err) == 1 && mod_version() == MOD_H_VERSION;
   mod_trainer_destroy(trainer);
   mod_model_destroy(model);
   return ok;
}
