/* Twenty calls of MPI_Alltoall and its kin, and as little else as there can be: its report says that
 * each was one exchange.
 *
 * Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 10
#define COUNT 2000

int main(int argc, char **argv)
{
    int rank, size, errors = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *send = malloc(sizeof(int) * COUNT * size), *receive = malloc(sizeof(int) * COUNT * size);
    int *counts = malloc(sizeof(int) * size), *places = malloc(sizeof(int) * size);
    for (int other = 0; other < size; other++) {
        counts[other] = COUNT;
        places[other] = other * COUNT;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT * size; i++)
            send[i] = round * 100 + rank * size + i / COUNT;
        for (int is_v = 0; is_v < 2; is_v++) {
            for (int i = 0; i < COUNT * size; i++)
                receive[i] = -1;
            if (is_v)
                MPI_Alltoallv(send, counts, places, MPI_INT, receive, counts, places, MPI_INT,
                              MPI_COMM_WORLD);
            else
                MPI_Alltoall(send, COUNT, MPI_INT, receive, COUNT, MPI_INT, MPI_COMM_WORLD);
            for (int i = 0; i < COUNT * size; i++)
                errors += receive[i] != round * 100 + i / COUNT * size + rank;
        }
    }
    if (rank == 0 && errors == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
