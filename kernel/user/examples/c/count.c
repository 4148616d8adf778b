/* count: every rank computes for some seconds and tells whoever watches how far it is.
 *
 * Counter 0 is the number of steps done so far, counter 1 the rank plus 100. The page shows both by
 * their names, and so does /metrics. Or watch their sum from another terminal:
 *
 *     hearth overlay open --metrics hearth_program_counter_0 --filter sum --job JOB
 *     hearth overlay */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

HEARTH_COUNTERS("steps,rank plus 100");

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    double length = argc > 1 ? atof(argv[1]) : 10, end = seconds() + length, sum = 0;
    int rank = hearth_rank();
    long steps = 0;
    if (rank < 0 || hearth_count(1, rank + 100) < 0 || hearth_count(16, 0) >= 0) {
        fprintf(stderr, "count: cannot count\n");
        return 1;
    }
    while (seconds() < end) {
        for (int i = 1; i < 200000; i++)
            sum += 1.0 / i;
        hearth_count(0, ++steps);
    }
    printf("count: rank %d did %ld steps, sum %.3f: ok\n", rank, steps, sum);
    return 0;
}
