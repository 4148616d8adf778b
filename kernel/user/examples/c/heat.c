/* heat: the heat equation on a square plate with cold edges and a hot side, by explicit steps. The
 * rows are shared out among the ranks; before each step neighbours exchange their edge rows, and
 * the rows inside are computed meanwhile.
 *
 * Rank 0 gathers the plate and compares it, bit for bit, with a serial run. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP 1
#define DOWN 2

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "heat: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

static double *plate(size_t rows, size_t width)
{
    double *memory = calloc(rows * width, sizeof *memory);
    if (!memory)
        must(HEARTH_ENOMEM, "plate");
    return memory;
}

/* One row of a step: each inner point moves a quarter of the way to its neighbours' mean. */
static void step_row(const double *old, double *new, size_t width)
{
    new[0] = old[0];
    new[width - 1] = old[width - 1];
    for (size_t x = 1; x + 1 < width; x++) {
        double around = (old[x - 1] + old[x + 1]) + (old[x - width] + old[x + width]);
        new[x] = old[x] + 0.25 * (0.25 * around - old[x]);
    }
}

/* The first row is hot, some points inside are warm. */
static double start(size_t row, size_t x)
{
    return row == 0 ? 100.0 : row % 7 == 3 && x % 5 == 2 ? 20.0 : 0.0;
}

int main(int argc, char **argv)
{
    size_t height = argc > 1 ? strtoul(argv[1], NULL, 10) : 96, steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 50;
    int rank = hearth_rank(), size = hearth_size();
    must(rank, "rank");
    size_t rows = (height + (size_t)size - 1) / (size_t)size;
    height = rows * (size_t)size;
    size_t width = height, first = rows * (size_t)rank;
    /* One row above and one below are the neighbours'. */
    double *old = plate(rows + 2, width), *new = plate(rows + 2, width);
    for (size_t row = 0; row < rows; row++)
        for (size_t x = 0; x < width; x++)
            old[(row + 1) * width + x] = start(first + row, x);
    size_t bytes = width * sizeof *old;
    for (size_t step = 0; step < steps; step++) {
        hearth_request requests[4] = {HEARTH_NO_REQUEST, HEARTH_NO_REQUEST, HEARTH_NO_REQUEST, HEARTH_NO_REQUEST};
        if (rank > 0) {
            must(hearth_irecv(old, bytes, rank - 1, DOWN, &requests[0]), "receive from above");
            must(hearth_isend(old + width, bytes, rank - 1, UP, &requests[1]), "send up");
        }
        if (rank < size - 1) {
            must(hearth_irecv(old + (rows + 1) * width, bytes, rank + 1, UP, &requests[2]), "receive from below");
            must(hearth_isend(old + rows * width, bytes, rank + 1, DOWN, &requests[3]), "send down");
        }
        for (size_t row = 2; row < rows; row++)
            step_row(old + row * width, new + row * width, width);
        must(hearth_waitall(4, requests, NULL), "exchange of edges");
        for (size_t edge = 0; edge < 2; edge++) {
            size_t row = edge ? rows : 1, whole = first + row - 1;
            if (whole == 0 || whole == height - 1)
                memcpy(new + row * width, old + row * width, bytes);
            else
                step_row(old + row * width, new + row * width, width);
        }
        double *other = old;
        old = new;
        new = other;
    }
    double *all = rank == 0 ? plate(height, width) : NULL;
    must(hearth_gather(old + width, all, rows * bytes, 0), "gathering");
    if (rank != 0)
        return 0;
    double *a = plate(height, width), *b = plate(height, width);
    for (size_t row = 0; row < height; row++)
        for (size_t x = 0; x < width; x++)
            a[row * width + x] = start(row, x);
    for (size_t step = 0; step < steps; step++) {
        memcpy(b, a, bytes);
        memcpy(b + (height - 1) * width, a + (height - 1) * width, bytes);
        for (size_t row = 1; row + 1 < height; row++)
            step_row(a + row * width, b + row * width, width);
        double *other = a;
        a = b;
        b = other;
    }
    for (size_t at = 0; at < height * width; at++)
        if (memcmp(&all[at], &a[at], sizeof *a) != 0) {
            printf("heat: row %zu, point %zu is %.17g, serial %.17g\n", at / width, at % width, all[at], a[at]);
            return 1;
        }
    printf("heat: %d ranks, %zu x %zu points, %zu steps: ok\n", size, height, width, steps);
    return 0;
}
