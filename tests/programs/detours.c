/* detours: what takes the boot core away from a program that computes. The same piece of work is
 * done again and again, and the time-stamp counter is read in between. Where it counts instructions
 * (QEMU's -icount) every piece takes the same, and what one takes longer are instructions of
 * somebody else. argv[1] is for how many thousand million counts. Prints what was counted in all,
 * what of it was taken, by how many interruptions, and what the longest of them took. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

enum { ROUNDS = 5000, TRIALS = 1000 };

static uint64_t sum;

static void piece(void)
{
    for (int round = 0; round < ROUNDS; round++)
        sum = sum * 6364136223846793005ULL + 1442695040888963407ULL;
}

int main(int argc, char **argv)
{
    uint64_t counts = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 1000000000;
    uint64_t least = UINT64_MAX, taken = 0, longest = 0;
    unsigned long interruptions = 0;
    uint64_t at = __rdtsc(), now;
    for (int i = 0; i < TRIALS; i++, at = now) {
        piece();
        now = __rdtsc();
        least = now - at < least ? now - at : least;
    }
    /* The counter may be an instruction off; no interruption is as short as a thousandth. */
    uint64_t usual = least + least / 1000, begin = at;
    /* All is touched and known: from here on nothing of the program's own enters the kernel. */
    for (; at - begin < counts; at = now) {
        piece();
        now = __rdtsc();
        uint64_t took = now - at;
        if (took > usual) {
            interruptions++;
            taken += took - least;
            longest = took - least > longest ? took - least : longest;
        }
    }
    printf("detours: counts=%llu taken=%llu interruptions=%lu longest=%llu piece=%llu sum=%016llx\n",
           (unsigned long long)(at - begin), (unsigned long long)taken, interruptions,
           (unsigned long long)longest, (unsigned long long)least, (unsigned long long)sum);
    return 0;
}
