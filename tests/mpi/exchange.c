/* Every form of MPI_Alltoall against what each rank must find, on communicators that overlap:
 * the world, a copy, rows and columns of a grid, and one whose context was used before by others.
 *
 * Prints "No Errors" from rank 0 where all ranks found what they should. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int errors;

static void expect(int got, int wanted, const char *what, int rank)
{
    if (got != wanted && ++errors < 10)
        fprintf(stderr, "rank %d: %s: %d instead of %d\n", rank, what, got, wanted);
}

/* What rank `from` of a communicator has for rank `to`, in place `index`. */
static int value(int from, int to, int index)
{
    return from * 10000 + to * 100 + index % 100;
}

static void fill(int *block, int from, int to, int count)
{
    for (int i = 0; i < count; i++)
        block[i] = value(from, to, i);
}

static void check(const int *block, int from, int to, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        expect(block[i], value(from, to, i), what, to);
}

static void equal_blocks(MPI_Comm comm, int count)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *send = malloc(sizeof(int) * count * size), *receive = calloc(count * size, sizeof(int));
    for (int to = 0; to < size; to++)
        fill(send + to * count, rank, to, count);
    MPI_Alltoall(send, count, MPI_INT, receive, count, MPI_INT, comm);
    for (int from = 0; from < size; from++)
        check(receive + from * count, from, rank, count, "MPI_Alltoall");
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, send, count, MPI_INT, comm);
    for (int from = 0; from < size; from++)
        check(send + from * count, from, rank, count, "MPI_Alltoall in place");
    /* Two under way at once. */
    MPI_Request requests[2];
    int *again = calloc(count * size, sizeof(int)), *other = calloc(count * size, sizeof(int));
    for (int to = 0; to < size; to++)
        fill(send + to * count, rank, to, count);
    MPI_Ialltoall(send, count, MPI_INT, again, count, MPI_INT, comm, &requests[0]);
    MPI_Ialltoall(send, count, MPI_INT, other, count, MPI_INT, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int from = 0; from < size; from++) {
        check(again + from * count, from, rank, count, "MPI_Ialltoall");
        check(other + from * count, from, rank, count, "the second MPI_Ialltoall");
    }
    free(send);
    free(receive);
    free(again);
    free(other);
}

/* Every second int of a row, to ranks in reverse order of their displacements. */
static void uneven_blocks(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int most = size + 3, room = 2 * most * size;
    int *send = calloc(room, sizeof(int)), *receive = calloc(room, sizeof(int));
    int *counts = malloc(sizeof(int) * size), *places = malloc(sizeof(int) * size);
    int *into = malloc(sizeof(int) * size), *from_places = malloc(sizeof(int) * size);
    MPI_Datatype stride, resized;
    MPI_Type_vector(1, 1, 2, MPI_INT, &stride);
    MPI_Type_create_resized(stride, 0, 2 * sizeof(int), &resized);
    MPI_Type_commit(&resized);
    for (int other = 0; other < size; other++) {
        counts[other] = (rank + other) % 4;
        into[other] = (rank + other) % 4;
        places[other] = (size - 1 - other) * most;
        from_places[other] = other * most;
        for (int i = 0; i < counts[other]; i++)
            send[2 * (places[other] + i)] = value(rank, other, i);
    }
    MPI_Alltoallv(send, counts, places, resized, receive, into, from_places, resized, comm);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < into[from]; i++)
            expect(receive[2 * (from_places[from] + i)], value(from, rank, i), "MPI_Alltoallv",
                   rank);
    MPI_Datatype *types = malloc(sizeof(*types) * size);
    for (int other = 0; other < size; other++) {
        types[other] = resized;
        places[other] *= 2 * (int) sizeof(int);
        from_places[other] *= 2 * (int) sizeof(int);
    }
    for (int i = 0; i < room; i++)
        receive[i] = 0;
    MPI_Alltoallw(send, counts, places, types, receive, into, from_places, types, comm);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < into[from]; i++)
            expect(receive[from_places[from] / (int) sizeof(int) + 2 * i], value(from, rank, i),
                   "MPI_Alltoallw", rank);
    MPI_Type_free(&resized);
    MPI_Type_free(&stride);
    free(send);
    free(receive);
    free(counts);
    free(places);
    free(into);
    free(from_places);
    free(types);
}

int main(int argc, char **argv)
{
    int rank, size, all = 0;
    MPI_Comm copy, row, column;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    equal_blocks(MPI_COMM_WORLD, 1);
    equal_blocks(MPI_COMM_WORLD, 5000);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    equal_blocks(copy, 7);
    uneven_blocks(copy);
    for (int turn = 0; turn < 3; turn++) {
        int width = turn == 0 ? 2 : 3;
        MPI_Comm_split(MPI_COMM_WORLD, rank / width, rank, &row);
        MPI_Comm_split(MPI_COMM_WORLD, rank % width, rank, &column);
        equal_blocks(row, 300);
        equal_blocks(column, 300);
        uneven_blocks(row);
        if (rank % 2 == turn % 2)
            equal_blocks(MPI_COMM_SELF, 3);
        /* Its context is given away again, to ranks that have used it differently often. */
        MPI_Comm_free(&row);
        MPI_Comm_free(&column);
    }
    MPI_Comm_free(&copy);
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
