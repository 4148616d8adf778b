/* core-dump, where the program is loaded at another address than it was linked for. */
#include "core-dump.c"
