/* musl-pipes: the checks of pipes.c with musl. */
#define NAME "musl-pipes"
#include "pipes.c"
