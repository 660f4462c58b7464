/* A file with the whole library private to it. NAME: the function it defines. */
#define MOD_STATIC
#define MOD_IMPLEMENTATION
#include "../../mod.h"

#ifdef __cplusplus
extern "C"
#else
extern
#endif
int NAME(void);

#include "use.h"
