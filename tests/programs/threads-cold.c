/* threads-cold: a thread on another core reads pages of the program that are not there yet, while the
 * first thread sleeps: each must come in the time of a round trip, not with the next thing that wakes
 * the first core. Prints ok when all were there long before the sleep was over. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 64, PAGE = 4096, LIMIT_MS = 2500, SLEEP_S = 5 };

static const char table[PAGES * PAGE] = {1};
static volatile int sum;
static double took_ms;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *reads(void *unused)
{
    double begin = now_ms();
    /* Not in sequence, so that nothing is read ahead. */
    for (int i = 0; i < PAGES; i++)
        sum += ((volatile const char *)table)[i * 37 % PAGES * PAGE];
    took_ms = now_ms() - begin;
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, reads, NULL))
        return 1;
    sleep(SLEEP_S);
    pthread_join(thread, NULL);
    if (took_ms < LIMIT_MS)
        puts("ok");
    else
        printf("%d pages took %.0f ms\n", PAGES, took_ms);
    return 0;
}
