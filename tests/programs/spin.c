/* spin SECONDS: computes without a system call for about that long (by the time-stamp counter,
 * calibrated by nothing but the argument: SECONDS * GHZ ticks; GHZ defaults to 1, QEMU's TSC rate).
 * Used to count the interrupts that a computing program sees, and as something to cancel. */
#include <stdio.h>
#include <stdlib.h>

static unsigned long tsc(void)
{
    unsigned lo, hi;
    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return (unsigned long)hi << 32 | lo;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10, ghz = argc > 2 ? atof(argv[2]) : 1;
    printf("spin: computing\n");
    fflush(stdout);
    unsigned long end = tsc() + (unsigned long)(seconds * ghz * 1e9), n = 0;
    while (tsc() < end)
        n++;
    printf("spin: done after %lu rounds\n", n > 0 ? 1ul : 0ul);
    return 0;
}
