/* hashes.h - what test_hash must give with every compiler, level, standard and number of threads */
#ifndef TEST_HASHES_H
#define TEST_HASHES_H

#define HASH_WEIGHTS 0x7ac624b496deb66eull /* all weights after 50 steps */
#define HASH_TOKENS 0x30fd09c482f679c3ull  /* 100 sampled tokens */

#endif
