/* A file that uses the library and leaves the implementation to another. NAME: the function it defines. */
#include "../../mod.h"
#include "../../mod.h"

#ifdef __cplusplus
extern "C"
#else
extern
#endif
int NAME(void);

#include "use.h"
