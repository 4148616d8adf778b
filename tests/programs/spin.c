/* spin SECONDS: computes for that long without a system call, after it has calibrated the
 * time-stamp counter against the clock for a tenth of a second. Used to count the interrupts that a
 * computing program sees, and as something to cancel. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned long tsc(void)
{
    unsigned lo, hi;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (unsigned long)hi << 32 | lo;
}

static double seconds_now(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) {
        perror("spin: clock_gettime");
        exit(2);
    }
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10, start, passed;
    /* The counter is read around the clock, so that the rate comes out too high rather than too low. */
    unsigned long first = tsc(), end;
    start = seconds_now();
    do
        passed = seconds_now() - start;
    while (passed < 0.1);
    end = tsc() + (unsigned long)((double)(tsc() - first) / passed * seconds);
    printf("spin: computing\n");
    fflush(stdout);
    while (tsc() < end)
        ;
    printf("spin: done\n");
    return 0;
}
