/* musl-signals: the checks of signals.c with musl. */
#include "signals.c"
