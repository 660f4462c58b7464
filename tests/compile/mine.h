/* What a program that overrides malloc, free and assert brings along. Included by the compiler's -include. */
#ifndef MINE_H
#define MINE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *my_malloc(size_t size);
void my_free(void *memory);
void my_assert(const char *what);
#ifdef __cplusplus
}
#endif
#endif
