/* A loop of MPI_Send to a rank that receives slowly goes on, and takes no more memory with each
 * message. What was sent before a long computation arrives during it.
 *
 * Usage: sends [MESSAGES]. Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 1024
/* 12 MB. */
#define MESSAGES 12000
/* The receiver rests after so many messages, so long. */
#define BETWEEN 1000
#define RESTS_S 0.05
#define FEW 100
#define COMPUTES_S 2.0

static void compute(double seconds)
{
    double until = MPI_Wtime() + seconds;
    while (MPI_Wtime() < until)
        ;
}

int main(int argc, char **argv)
{
    int rank, errors = 0, all = 0;
    long messages = argc > 1 ? atol(argv[1]) : MESSAGES;
    char data[BYTES];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(data, 0, sizeof(data));
    for (long i = 0; i < messages; i++) {
        if (rank == 0) {
            memcpy(data, &i, sizeof(i));
            MPI_Send(data, BYTES, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        } else {
            if (i % BETWEEN == 0)
                compute(RESTS_S);
            MPI_Recv(data, BYTES, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            errors += memcmp(data, &i, sizeof(i)) != 0;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < FEW; i++) {
        if (rank == 0)
            MPI_Send(data, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        else
            MPI_Recv(data, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) {
        compute(COMPUTES_S);
    } else if (MPI_Wtime() - begin > COMPUTES_S) {
        fprintf(stderr, "some of %d messages came after the sender had computed\n", FEW);
        errors++;
    }
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
