/* Macros that well-known headers leave behind (windows.h, Arduino.h, X11, curses, sys/). No name of mod.h may be one of
   them: most are given a value that does not compile. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#undef ABSOLUTE
#define ABSOLUTE ?
#undef ABORT
#define ABORT ?
#undef ALTERNATE
#define ALTERNATE ?
#undef BOOL
#define BOOL ?
#undef Bool
#define Bool ?
#undef CALLBACK
#define CALLBACK ?
#undef CONST
#define CONST ?
#undef DEFAULT
#define DEFAULT ?
#undef DELETE
#define DELETE ?
#undef DIFFERENCE
#define DIFFERENCE ?
#undef DOMAIN
#define DOMAIN ?
#undef ERROR
#define ERROR ?
#undef EXTERN
#define EXTERN ?
#undef FALSE
#define FALSE ?
#undef FAR
#define FAR ?
#undef GetObject
#define GetObject ?
#undef IGNORE
#define IGNORE ?
#undef IN
#define IN ?
#undef INFINITE
#define INFINITE ?
#undef INPUT
#define INPUT ?
#undef INTERFACE
#define INTERFACE ?
#undef MOD_ALT
#define MOD_ALT ?
#undef MOD_CONTROL
#define MOD_CONTROL ?
#undef MOD_ERROR
#define MOD_ERROR ?
#undef MOD_MASK
#define MOD_MASK ?
#undef MOD_NANO
#define MOD_NANO ?
#undef MOD_SHIFT
#define MOD_SHIFT ?
#undef MOD_STATUS
#define MOD_STATUS ?
#undef MOD_WIN
#define MOD_WIN ?
#undef NEAR
#define NEAR ?
#undef NO_ERROR
#define NO_ERROR ?
#undef None
#define None ?
#undef OPTIONAL
#define OPTIONAL ?
#undef OUT
#define OUT ?
#undef OUTPUT
#define OUTPUT ?
#undef OVERFLOW
#define OVERFLOW ?
#undef PI
#define PI ?
#undef RELATIVE
#define RELATIVE ?
#undef STATIC
#define STATIC ?
#undef STRICT
#define STRICT ?
#undef Status
#define Status ?
#undef Success
#define Success ?
#undef TRANSPARENT
#define TRANSPARENT ?
#undef TRUE
#define TRUE ?
#undef UNDERFLOW
#define UNDERFLOW ?
#undef VOID
#define VOID ?
#undef WINDING
#define WINDING ?
#undef cdecl
#define cdecl ?
#undef far
#define far ?
#undef hyper
#define hyper ?
#undef interface
#define interface ?
#undef near
#define near ?
#undef pascal
#define pascal ?
#undef small
#define small ?
#undef abs
#define abs(x) ((x) > 0 ? (x) : -(x))
#undef bit
#define bit(n) ?
#undef constrain
#define constrain(x, a, b) ?
#undef degrees
#define degrees(x) ?
#undef highByte
#define highByte(x) ?
#undef lowByte
#define lowByte(x) ?
#undef major
#define major(x) ?
#undef makedev
#define makedev(a, b) ?
#undef max
#define max(a, b) ?
#undef min
#define min(a, b) ?
#undef minor
#define minor(x) ?
#undef radians
#define radians(x) ?
#undef refresh
#define refresh() ?
#undef round
#define round(x) ?
#undef sq
#define sq(x) ?

#define MOD_IMPLEMENTATION
#include "../../mod.h"
