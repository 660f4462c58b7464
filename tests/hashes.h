/* hashes.h - what test_hash and test_file must give with every compiler, level, standard and number of threads */
#ifndef TEST_HASHES_H
#define TEST_HASHES_H

#define HASH_WEIGHTS 0xd6066e3a6971af17ull /* all weights after 50 steps */
#define HASH_TOKENS 0xfeb0559d4fd27d47ull  /* 100 sampled tokens */
#define HASH_SCHEMES 0x0a705fdb6e2926f3ull /* a block of every other scheme: weights, logits, thresholds */

/* tests/checkpoint-v1.safetensors: logits in causal mode; all weights after five more steps */
#define HASH_CHECKPOINT_LOGITS 0xa00f563d8cd35abeull
#define HASH_CHECKPOINT_RESUMED 0x216cc02fdee7baa4ull

/* the same of tests/checkpoint-v2.safetensors */
#define HASH_CHECKPOINT_2_LOGITS 0x49adb2c7b1b7baadull
#define HASH_CHECKPOINT_2_RESUMED 0x2f2dd3896f6d77caull

#endif
