/* noise: a thread on each core computes without a call, between two pages that it touches for the
 * first time: whoever logs page faults sees from where to where it computes, and everything that
 * interrupts it. Prints a line for each core: its number, the addresses of the two pages, the
 * result. argv[1] is how many million rounds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CORES_MOST = 64, PAGE = 4096 };

static char *pages;
static atomic_int arrived, done;
static int cores;
static uint64_t rounds, results[CORES_MOST];
static int places[CORES_MOST];

static void *compute(void *argument)
{
    long core = (long)argument;
    volatile char *begin = pages + 2 * core * PAGE, *end = begin + PAGE;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        exit(3);
    places[core] = sched_getcpu();
    uint64_t sum = core;
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < cores)
        __asm__ volatile("pause");
    *begin = 1;
    for (uint64_t round = 0; round < rounds; round++)
        sum = sum * 6364136223846793005ULL + 1442695040888963407ULL;
    *end = 1;
    results[core] = sum;
    /* The end of a thread gives its stack back, and the other cores must forget where it was. */
    atomic_fetch_add(&done, 1);
    while (atomic_load(&done) < cores)
        __asm__ volatile("pause");
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[CORES_MOST];
    cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    rounds = (argc > 1 ? strtoull(argv[1], NULL, 10) : 100) * 1000000;
    pages = mmap(NULL, 2 * CORES_MOST * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cores < 1 || cores > CORES_MOST || pages == MAP_FAILED)
        return 1;
    for (long core = 1; core < cores; core++)
        if (pthread_create(&threads[core], NULL, compute, (void *)core))
            return 2;
    compute((void *)0L);
    for (int core = 1; core < cores; core++)
        pthread_join(threads[core], NULL);
    for (int core = 0; core < cores; core++)
        printf("noise: core %d %p %p %016llx\n", places[core], (void *)(pages + 2 * core * PAGE),
               (void *)(pages + (2 * core + 1) * PAGE), (unsigned long long)results[core]);
    return 0;
}
