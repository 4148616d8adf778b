/* One-sided access: fences, locks, flushes and atomic operations on windows of every rank.
 * Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, errors = 0, all = 0, *memory;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win_allocate(sizeof(int) * (size + 2), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    for (int i = 0; i < size + 2; i++)
        memory[i] = 0;
    MPI_Win_fence(0, window);
    for (int to = 0; to < size; to++)
        MPI_Put(&rank, 1, MPI_INT, to, rank, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < size; i++)
        errors += memory[i] != i;
    /* All count at rank 0. */
    int one = 1, before, got = -1, next = (rank + 1) % size;
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < 10; i++) {
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, size, MPI_SUM, window);
        MPI_Accumulate(&one, 1, MPI_INT, 0, size + 1, 1, MPI_INT, MPI_SUM, window);
        MPI_Win_flush(0, window);
        errors += before < i || before >= 10 * size;
    }
    MPI_Get(&got, 1, MPI_INT, next, next, 1, MPI_INT, window);
    MPI_Win_flush(next, window);
    errors += got != next;
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        errors += memory[size] != 10 * size || memory[size + 1] != 10 * size;
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
