/* Collectives that are MPICH's own algorithms, against what each rank must find: with few bytes and
 * with more than a datagram has, from and to each rank, on the world and on the ranks in reverse.
 *
 * Prints "No Errors" from rank 0 where all ranks found what they should. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 4096

static int errors, rank, size;

static void expect(int got, int wanted, const char *what)
{
    if (got != wanted && ++errors < 10)
        fprintf(stderr, "rank %d of %d: %s: %d instead of %d\n", rank, size, what, got, wanted);
}

/* What a rank has in a place. */
static int value(int of, int place)
{
    return of * 1000 + place % 1000;
}

/* The sum of that of the first so many ranks. */
static int sum(int ranks, int place)
{
    return ranks * (ranks - 1) / 2 * 1000 + ranks * (place % 1000);
}

static void one_to_all(MPI_Comm comm, int count, int *here, int *all)
{
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < count; i++)
            here[i] = rank == root ? value(root, i) : -1;
        MPI_Bcast(here, count, MPI_INT, root, comm);
        for (int i = 0; i < count; i++)
            expect(here[i], value(root, i), "MPI_Bcast");
        for (int i = 0; i < count * size; i++)
            all[i] = rank == root ? value(i / count, i % count) : -1;
        MPI_Scatter(all, count, MPI_INT, here, count, MPI_INT, root, comm);
        for (int i = 0; i < count; i++)
            expect(here[i], value(rank, i), "MPI_Scatter");
    }
}

static void all_to_one(MPI_Comm comm, int count, int *here, int *all)
{
    int *counts = malloc(2 * size * sizeof(int)), *offsets = counts + size;
    for (int i = 0; i < count; i++)
        here[i] = value(rank, i);
    for (int root = 0; root < size; root++) {
        MPI_Reduce(here, all, count, MPI_INT, MPI_SUM, root, comm);
        for (int i = 0; i < count && rank == root; i++)
            expect(all[i], sum(size, i), "MPI_Reduce");
        MPI_Gather(here, count, MPI_INT, all, count, MPI_INT, root, comm);
        for (int i = 0; i < count * size && rank == root; i++)
            expect(all[i], value(i / count, i % count), "MPI_Gather");
        /* Of each rank one more, so that the first has none. */
        for (int from = 0, at = 0; from < size; from++) {
            counts[from] = from % (count + 1);
            offsets[from] = at;
            at += counts[from];
        }
        MPI_Gatherv(here, counts[rank], MPI_INT, all, counts, offsets, MPI_INT, root, comm);
        for (int from = 0; from < size && rank == root; from++)
            for (int i = 0; i < counts[from]; i++)
                expect(all[offsets[from] + i], value(from, i), "MPI_Gatherv");
    }
    free(counts);
}

static void all_to_all(MPI_Comm comm, int count, int *here, int *all)
{
    for (int i = 0; i < count; i++)
        here[i] = value(rank, i);
    MPI_Allreduce(here, all, count, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < count; i++)
        expect(all[i], sum(size, i), "MPI_Allreduce");
    MPI_Allgather(here, count, MPI_INT, all, count, MPI_INT, comm);
    for (int i = 0; i < count * size; i++)
        expect(all[i], value(i / count, i % count), "MPI_Allgather");
    MPI_Scan(here, all, count, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < count; i++)
        expect(all[i], sum(rank + 1, i), "MPI_Scan");
    MPI_Exscan(here, all, count, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < count && rank > 0; i++)
        expect(all[i], sum(rank, i), "MPI_Exscan");
    for (int i = 0; i < count * size; i++)
        all[i] = value(rank, i % count);
    MPI_Reduce_scatter_block(all, here, count, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < count; i++)
        expect(here[i], sum(size, i), "MPI_Reduce_scatter_block");
    MPI_Barrier(comm);
}

/* Joins two ranges of ranks, the first before the second: it does not commute. */
static void join(void *before, void *behind, int *count, MPI_Datatype *type)
{
    int *first = before, *second = behind;
    for (int i = 0; i < *count; i++, first += 2, second += 2) {
        second[0] = first[1] + 1 == second[0] ? first[0] : -1000000;
    }
    (void) type;
}

/* Few bytes go another way than many. */
static void reduce_few(MPI_Comm comm)
{
    MPI_Op joined;
    int mine[2] = {rank, rank}, all[2] = {-1, -1};
    double least = rank + 1;
    MPI_Op_create(join, 0, &joined);
    MPI_Allreduce(mine, all, 1, MPI_2INT, joined, comm);
    expect(all[0], 0, "MPI_Allreduce in the order of ranks");
    expect(all[1], size - 1, "MPI_Allreduce in the order of ranks");
    MPI_Op_free(&joined);
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_DOUBLE, MPI_MIN, comm);
    expect((int) least, 1, "MPI_Allreduce in place");
    int at[2] = {-(rank % 3), rank}, wanted = size > 2 ? 2 : size - 1;
    MPI_Allreduce(MPI_IN_PLACE, at, 1, MPI_2INT, MPI_MINLOC, comm);
    expect(at[0], -wanted, "MPI_MINLOC");
    expect(at[1], wanted, "MPI_MINLOC");
}

static void try_all(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *here = malloc(MOST * sizeof(int)), *all = malloc(MOST * size * sizeof(int));
    reduce_few(comm);
    for (int count = 1; count <= MOST; count *= 64) {
        one_to_all(comm, count, here, all);
        all_to_one(comm, count, here, all);
        all_to_all(comm, count, here, all);
    }
    free(here);
    free(all);
}

int main(int argc, char **argv)
{
    int all_errors = 0;
    MPI_Comm reverse;
    MPI_Init(&argc, &argv);
    try_all(MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reverse);
    try_all(reverse);
    MPI_Comm_free(&reverse);
    MPI_Allreduce(&errors, &all_errors, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && all_errors == 0)
        printf("No Errors\n");
    MPI_Finalize();
    return all_errors != 0;
}
