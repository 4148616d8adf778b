/* musl-resources: the checks of resources.c with musl. */
#include "resources.c"
