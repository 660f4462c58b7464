/* The implementation, compiled once for all programs of this folder. */
#define MOD_IMPLEMENTATION
#include "../../mod.h"
