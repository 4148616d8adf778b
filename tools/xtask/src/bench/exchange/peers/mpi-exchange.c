/* mpi-exchange BYTES REPEATS: MPI_Alltoall of blocks of BYTES, which are compared; rank 0 prints
 * "rank R seconds S1 S2 ..." for each rank, since the starter mixes what several ranks print at a
 * time.
 *
 * It ends without MPI_Finalize, which over UCX's TCP does not return in the version that is
 * measured. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char byte_of(int from, int to, size_t at, int round)
{
    return (unsigned char)(from * 41 + to * 17 + (int)at * 7 + round);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t bytes = strtoul(argv[1], NULL, 10);
    int repeats = atoi(argv[2]);
    unsigned char *send = malloc(bytes * (size_t)size), *receive = malloc(bytes * (size_t)size);
    double *took = calloc((size_t)repeats + 1, sizeof *took);
    double *all = calloc((size_t)size * (size_t)repeats + 1, sizeof *all);
    /* The first one makes the connections. */
    for (int round = -1; round < repeats; round++) {
        for (int to = 0; to < size; to++)
            for (size_t at = 0; at < bytes; at++)
                send[(size_t)to * bytes + at] = byte_of(rank, to, at, round);
        memset(receive, 0, bytes * (size_t)size);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Alltoall(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        double seconds = MPI_Wtime() - began;
        for (int from = 0; from < size; from++)
            for (size_t at = 0; at < bytes; at++)
                if (receive[(size_t)from * bytes + at] != byte_of(from, rank, at, round)) {
                    printf("rank %d: another byte from rank %d\n", rank, from);
                    fflush(stdout);
                    _exit(1);
                }
        if (round >= 0)
            took[round] = seconds;
    }
    MPI_Gather(took, repeats, MPI_DOUBLE, all, repeats, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int other = 0; rank == 0 && other < size; other++) {
        printf("rank %d seconds", other);
        for (int round = 0; round < repeats; round++)
            printf(" %.6f", all[other * repeats + round]);
        puts("");
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Lets the others' last messages and the output go: sixteen ranks that poll on two processors
     * are slow at it. */
    sleep(5);
    _exit(0);
}
