/* Messages that nobody receives yet, short and long, with their tags in reverse; and thousands of
 * sends outstanding. Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define SHORT 3000
#define LONG 100
#define LONG_INTS 4000

int main(int argc, char **argv)
{
    int rank, size, errors = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int *values = malloc(sizeof(int) * SHORT), *bulk = malloc(sizeof(int) * LONG * LONG_INTS);
    MPI_Request *requests = malloc(sizeof(*requests) * (SHORT + LONG));
    for (int i = 0; i < LONG * LONG_INTS; i++)
        bulk[i] = rank * 1000000 + i;
    for (int i = 0; i < LONG; i++)
        MPI_Isend(bulk + i * LONG_INTS, LONG_INTS, MPI_INT, to, SHORT + i, MPI_COMM_WORLD,
                  &requests[SHORT + i]);
    for (int i = 0; i < SHORT; i++) {
        values[i] = rank * 100000 + i;
        MPI_Isend(&values[i], 1, MPI_INT, to, i, MPI_COMM_WORLD, &requests[i]);
    }
    int *room = malloc(sizeof(int) * LONG_INTS), got;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = SHORT - 1; i >= 0; i--) {
        MPI_Recv(&got, 1, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        errors += got != from * 100000 + i;
    }
    for (int i = LONG - 1; i >= 0; i--) {
        MPI_Status status;
        int flag = 0, count;
        while (!flag)
            MPI_Iprobe(MPI_ANY_SOURCE, SHORT + i, MPI_COMM_WORLD, &flag, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        errors += count != LONG_INTS || status.MPI_SOURCE != from;
        MPI_Recv(room, LONG_INTS, MPI_INT, from, SHORT + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < LONG_INTS; k++)
            errors += room[k] != from * 1000000 + i * LONG_INTS + k;
    }
    MPI_Waitall(SHORT + LONG, requests, MPI_STATUSES_IGNORE);
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
