/* ranks-outlive TURNS STATUS: a job that must not notice that the control node is started again. In
 * each turn of half a second a rank writes a line, meets the others in a barrier and an exchange,
 * asks where they are, and touches pages of its file that it has not touched before, which come
 * from the control node. Rank 0 reads as many bytes of standard input as there are turns, one a
 * turn, and prints them. The last rank ends with STATUS. */
#include <hearth.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEARTH_PEER 4096
#define TURNS_MAX 64
#define PAGES 16
#define PAGE 4096

/* Never zero, so it is in the file. */
static const unsigned char table[TURNS_MAX * PAGES * PAGE] = {[0 ... TURNS_MAX * PAGES * PAGE - 1] = 3};

int main(int argc, char **argv)
{
    int rank = hearth_rank(), size = hearth_size();
    int turns = argc > 1 ? atoi(argv[1]) : 0;
    if (argc != 3 || turns < 1 || turns > TURNS_MAX || size < 2)
        return 90;
    setvbuf(stdout, NULL, _IONBF, 0);
    uint32_t *out = calloc((size_t)size, sizeof *out), *in = calloc((size_t)size, sizeof *in);
    for (int turn = 0; turn < turns; turn++) {
        double until = hearth_wtime() + 0.5;
        char typed = '-', line[100], entry[48];
        unsigned sum = 0;
        for (int page = 0; page < PAGES; page++)
            sum += ((volatile const unsigned char *)table)[(turn * PAGES + page) * PAGE];
        if (sum != 3 * PAGES)
            return 91;
        for (int other = 0; other < size; other++)
            out[other] = (uint32_t)(turn * 10000 + rank * 100 + other);
        if (hearth_barrier() != 0 || hearth_alltoall(out, in, sizeof *out) != 0)
            return 92;
        for (int other = 0; other < size; other++)
            if (in[other] != (uint32_t)(turn * 10000 + other * 100 + rank) || syscall(HEARTH_PEER, other, entry) != 0)
                return 93;
        if (rank == 0 && read(0, &typed, 1) != 1)
            typed = '-';
        snprintf(line, sizeof line, "rank %d turn %d %c\n", rank, turn, typed);
        if (write(1, line, strlen(line)) != (ssize_t)strlen(line))
            return 94;
        while (hearth_wtime() < until)
            ;
    }
    return rank == size - 1 ? atoi(argv[2]) : 0;
}
