/* Ranks whose counts of an MPI_Alltoallv disagree get an error of MPI's own, and nobody hangs. A
 * communicator that has nothing to do with it goes on.
 *
 * Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>

#define RANKS 4

int main(int argc, char **argv)
{
    int rank, size, class, sum, errors = 0, all = 0;
    int send[2 * RANKS] = {0}, receive[2 * RANKS], counts[2][RANKS], places[RANKS];
    MPI_Comm copy;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != RANKS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    for (int other = 0; other < RANKS; other++) {
        counts[0][other] = counts[1][other] = 1;
        places[other] = 2 * other;
    }
    /* Rank 1 expects one. */
    if (rank == 0)
        counts[0][1] = 2;
    int error = MPI_Alltoallv(send, counts[0], places, MPI_INT, receive, counts[1], places, MPI_INT,
                              copy);
    MPI_Error_class(error, &class);
    if (rank < 2 && class != MPI_ERR_TRUNCATE) {
        fprintf(stderr, "rank %d: class %d in place of MPI_ERR_TRUNCATE\n", rank, class);
        errors++;
    } else if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE) {
        fprintf(stderr, "rank %d, which is not concerned: class %d\n", rank, class);
        errors++;
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    errors += sum != RANKS * (RANKS - 1) / 2;
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Comm_free(&copy);
    MPI_Finalize();
    return errors != 0;
}
