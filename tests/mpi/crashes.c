/* A rank crashes while the others wait for it and for each other: all of them end, and why is said. */
#include <mpi.h>
#include <signal.h>

int main(int argc, char **argv)
{
    int rank, got;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        raise(SIGSEGV);
    MPI_Recv(&got, 1, MPI_INT, rank == 0 ? 1 : 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
