/* musl-mappings: the checks of mappings.c with musl. */
#define NAME "musl-mappings"
#include "mappings.c"
