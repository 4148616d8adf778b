/* ranks-files-time on a Linux machine that mounts the directory: RANK in the environment is its rank,
 * and nobody waits for others. What it prints are its own seconds. */
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#define ALONE
enum { HEARTH_DOUBLE, HEARTH_MAX };

static int hearth_rank(void)
{
    const char *rank = getenv("RANK");
    return rank == NULL ? 0 : atoi(rank);
}

static int hearth_barrier(void)
{
    return 0;
}

static int hearth_allreduce(void *values, size_t count, int type, int op)
{
    (void)values, (void)count, (void)type, (void)op;
    return 0;
}

static double hearth_wtime(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#include "ranks-files-time.c"
