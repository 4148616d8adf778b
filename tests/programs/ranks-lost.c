/* ranks-lost MODE RANK: a rank goes away while the others wait for it. Each of them must get
 * HEARTH_ELOST with its name, and says how long it took.
 *
 *   exit    the rank ends at once
 *   abort   it ends by a signal
 *   hang    it computes for ever: somebody pulls the plug of its node
 *
 * The others wait in different calls: a receive, a barrier, an exchange, a long send. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank = hearth_rank(), size = hearth_size();
    if (argc != 3 || rank < 0)
        return 2;
    int lost = atoi(argv[2]);
    static char block[200000];
    if (hearth_barrier() != 0)
        return 3;
    if (rank == lost) {
        if (strcmp(argv[1], "exit") == 0)
            return 0;
        if (strcmp(argv[1], "abort") == 0)
            abort();
        puts("pull the plug");
        fflush(stdout);
        for (volatile unsigned long turns = 0;; turns++)
            ;
    }
    double began = hearth_wtime();
    int error;
    const char *what;
    switch (rank % 4) {
    case 0:
        what = "receive";
        error = hearth_recv(block, sizeof block, lost, 1, NULL);
        break;
    case 1:
        what = "barrier";
        error = hearth_barrier();
        break;
    case 2:
        what = "exchange";
        error = hearth_alltoall(block, block + sizeof block / 2, sizeof block / 2 / (size_t)size);
        break;
    default:
        what = "send";
        error = hearth_send(block, sizeof block, lost, 2);
    }
    printf("rank %d: %s after %.1f s: %s, rank %d\n", rank, what, hearth_wtime() - began, hearth_strerror(error), hearth_named_rank());
    fflush(stdout);
    return error == HEARTH_ELOST && hearth_named_rank() == lost ? 0 : 1;
}
