/* omp-team: what omp-stream.c and omp-matrix.c have in common. A team with a thread for each core
 * does the work once between two pages that each thread touches for the first time, for whoever
 * logs page faults; then teams of one thread and of all take turns, and the shortest time of each
 * counts. argv[1] is how often. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, TEAM_MOST = 64 };

#define HOLDS(what)                                          \
    do {                                                     \
        if (!(what)) {                                       \
            printf(NAME ": line %d: %s\n", __LINE__, #what); \
            exit(1);                                         \
        }                                                    \
    } while (0)

/* What the program does: to be called by every thread of a team. */
static void work(void);
/* Fails where the result is not what it must be. */
static void check(void);

static double seconds_of(int threads)
{
    double begin = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    work();
    double took = omp_get_wtime() - begin;
    check();
    return took;
}

static int measure(int argc, char **argv)
{
    int threads = omp_get_max_threads(), times = argc > 1 ? atoi(argv[1]) : 3;
    int cores[TEAM_MOST] = { 0 };
    char *pages = mmap(NULL, 2 * TEAM_MOST * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(threads <= TEAM_MOST && pages != MAP_FAILED);
    /* All pages of the work are there when it is looked at. */
    seconds_of(threads);
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num();
        volatile char *begin = pages + 2 * thread * PAGE, *end = begin + PAGE;
        cores[thread] = sched_getcpu();
#pragma omp barrier
        *begin = 1;
        work();
        *end = 1;
    }
    check();
    double one = 1e9, all = 1e9;
    for (int i = 0; i < times; i++) {
        double took = seconds_of(1);
        one = took < one ? took : one;
        took = seconds_of(threads);
        all = took < all ? took : all;
    }
    for (int thread = 0; thread < threads; thread++)
        printf(NAME ": core %d %p %p -\n", cores[thread], (void *)(pages + 2 * thread * PAGE),
               (void *)(pages + (2 * thread + 1) * PAGE));
    printf(NAME ": threads=%d one_us=%.0f all_us=%.0f\n", threads, one * 1e6, all * 1e6);
    printf(NAME ": ok\n");
    return 0;
}
