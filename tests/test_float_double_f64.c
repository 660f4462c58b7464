/* test_float_double_f64.c - the double half of test_float_double.c: mod.h again, private to this file. */
#define MOD_STATIC
#define MOD_USE_DOUBLE
#define MOD_IMPLEMENTATION
#include "../mod.h"
#include "float_double.h"

const char *fd_pass_f64(int i, const float *weights, size_t n_weights, const int *tokens, const int *targets,
                        const int *lengths, fd_result *result)
{
   return fd_pass(i, weights, n_weights, tokens, targets, lengths, result);
}
