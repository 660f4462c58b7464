/* The implementation in a file of its own; a second inclusion adds nothing. */
#define MOD_IMPLEMENTATION
#include "../../mod.h"
#include "../../mod.h"
