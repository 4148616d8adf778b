/* ranks-cores: which cores each rank has, and that its memory is its own. Every rank prints one
 * line. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hearth.h"

static volatile int kept = 7;

int main(void) {
    cpu_set_t set;
    int first = -1;
    const char *variable = getenv("HEARTH_RANK"), *threads = getenv("OMP_NUM_THREADS");
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 2;
    for (int core = 0; core < CPU_SETSIZE && first < 0; core++)
        if (CPU_ISSET(core, &set))
            first = core;
    /* The other ranks of the node write to the same address. */
    kept = 100 + hearth_rank();
    if (hearth_barrier() != 0 || kept != 100 + hearth_rank())
        return 3;
    if (variable == NULL || atoi(variable) != hearth_rank())
        return 4;
    printf("rank %d of %d: %d cores from %d, %s threads\n", hearth_rank(), hearth_size(),
           CPU_COUNT(&set), first, threads == NULL ? "no" : threads);
    return 0;
}
