/* musl-with NAME BYTES SEED: with-c with musl's C library. */
#include "with-c.c"
