/* mpi-exchange BYTES REPEATS: MPI_Alltoall of blocks of BYTES, which are compared; each rank prints "rank R seconds S1 S2 ...".
 *
 * It ends without MPI_Finalize, which over UCX's TCP does not return in the version that is measured. */
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
    char line[4096];
    int length = snprintf(line, sizeof line, "rank %d seconds", rank);
    /* The first one makes the connections. */
    for (int round = -1; round < repeats; round++) {
        for (int to = 0; to < size; to++)
            for (size_t at = 0; at < bytes; at++)
                send[(size_t)to * bytes + at] = byte_of(rank, to, at, round);
        memset(receive, 0, bytes * (size_t)size);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Alltoall(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        double took = MPI_Wtime() - began;
        for (int from = 0; from < size; from++)
            for (size_t at = 0; at < bytes; at++)
                if (receive[(size_t)from * bytes + at] != byte_of(from, rank, at, round)) {
                    printf("rank %d: another byte from rank %d\n", rank, from);
                    fflush(stdout);
                    _exit(1);
                }
        if (round >= 0)
            length += snprintf(line + length, sizeof line - (size_t)length, " %.6f", took);
    }
    puts(line);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Lets the others' last messages and the output go: sixteen ranks that poll on two processors are slow at it. */
    sleep(5);
    _exit(0);
}
