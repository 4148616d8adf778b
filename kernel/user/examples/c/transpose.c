/* transpose: a square matrix of doubles, its rows shared out among the ranks, is transposed by one
 * all-to-all exchange of blocks.
 *
 * Each element is compared with that of a serial transposition. The order of the matrix is rounded
 * up to a multiple of the ranks. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "transpose: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

static double element(size_t row, size_t column)
{
    return (double)row * 1e4 + (double)column + 0.25;
}

int main(int argc, char **argv)
{
    size_t order = argc > 1 ? strtoul(argv[1], NULL, 10) : 256;
    int rank = hearth_rank(), size = hearth_size();
    must(rank, "rank");
    size_t rows = (order + (size_t)size - 1) / (size_t)size;
    order = rows * (size_t)size;
    size_t first = rows * (size_t)rank, block = rows * rows;
    double *send = malloc(rows * order * sizeof *send), *receive = malloc(rows * order * sizeof *receive);
    if (!send || !receive)
        must(HEARTH_ENOMEM, "matrix");
    /* The block for each rank, transposed: what is a column there is a row here. */
    for (size_t to = 0; to < (size_t)size; to++)
        for (size_t column = 0; column < rows; column++)
            for (size_t row = 0; row < rows; row++)
                send[to * block + column * rows + row] = element(first + row, to * rows + column);
    double began = hearth_wtime();
    must(hearth_alltoall(send, receive, block * sizeof *send), "all-to-all");
    double took = hearth_wtime() - began;
    for (size_t from = 0; from < (size_t)size; from++)
        for (size_t row = 0; row < rows; row++)
            for (size_t column = 0; column < rows; column++) {
                double found = receive[from * block + row * rows + column];
                if (found != element(from * rows + column, first + row)) {
                    printf("transpose: row %zu, column %zu is %f\n", first + row, from * rows + column, found);
                    return 1;
                }
            }
    must(hearth_allreduce(&took, 1, HEARTH_DOUBLE, HEARTH_MAX), "time");
    if (rank == 0)
        printf("transpose: %d ranks, order %zu, exchange in %.3f s: ok\n", size, order, took);
    return 0;
}
