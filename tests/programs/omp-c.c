/* omp-c: OpenMP in C: the default team, which has a thread for each core; a team with more threads
 * than cores; loops by several schedules, reductions, tasks, critical and ordered sections. With
 * OMP_NUM_THREADS in the environment the default team has that many. The last line is "omp-c: ok". */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define HOLDS(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            printf("omp-c: line %d: %s\n", __LINE__, #what);   \
            exit(1);                                           \
        }                                                      \
    } while (0)

enum { MANY = 40000 };
static double values[MANY];

static long fibonacci(int n)
{
    long one, other;
    if (n < 2)
        return n;
#pragma omp task shared(one) firstprivate(n) if (n > 8)
    one = fibonacci(n - 1);
    other = fibonacci(n - 2);
#pragma omp taskwait
    return one + other;
}

static void work(int wanted)
{
    int team = 0, inside = 0, critical = 0;
    double sum = 0;
#pragma omp parallel num_threads(wanted)
    {
#pragma omp single
        team = omp_get_num_threads();
#pragma omp atomic
        inside++;
        for (int i = 0; i < 50; i++)
#pragma omp critical
            critical++;
#pragma omp barrier
#pragma omp for schedule(static) nowait
        for (int i = 0; i < MANY; i++)
            values[i] = i;
#pragma omp barrier
#pragma omp for schedule(dynamic, 1000) reduction(+ : sum)
        for (int i = 0; i < MANY; i++)
            sum += values[i] * 2;
    }
    HOLDS(team == wanted && inside == wanted && critical == 50 * wanted);
    HOLDS(sum == (double)MANY * (MANY - 1));
    int last = -1, in_order = 0;
#pragma omp parallel for ordered schedule(dynamic) num_threads(wanted)
    for (int i = 0; i < 40; i++) {
#pragma omp ordered
        {
            in_order += last == i - 1;
            last = i;
        }
    }
    HOLDS(in_order == 40);
    long result = 0;
#pragma omp parallel num_threads(wanted)
#pragma omp single
    result = fibonacci(12);
    HOLDS(result == 144);
}

int main(void)
{
    cpu_set_t cores;
    HOLDS(sched_getaffinity(0, sizeof cores, &cores) == 0);
    HOLDS(omp_get_num_procs() == CPU_COUNT(&cores));
    const char *given = getenv("OMP_NUM_THREADS");
    int team = given != NULL ? atoi(given) : omp_get_num_procs();
    HOLDS(omp_get_max_threads() == team);
    int found = 0;
#pragma omp parallel
#pragma omp master
    found = omp_get_num_threads();
    HOLDS(found == team);
    work(team);
    work(2 * omp_get_num_procs() + 1);
    printf("omp-c: ok\n");
    return 0;
}
