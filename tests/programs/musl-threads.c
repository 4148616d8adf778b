/* musl-threads: the checks of threads.c with musl. */
#define NAME "musl-threads"
#include "threads.c"
