/* musl-shared-memory: the checks of shared-memory.c with musl. */
#define NAME "musl-shared-memory"
#include "shared-memory.c"
