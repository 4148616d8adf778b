/* cg: conjugate gradients for the five-point Laplacian on a square grid. The rows of the grid are
 * shared out among the ranks; each product with the matrix needs the neighbours' edge rows, and
 * each dot product an all-reduce.
 *
 * The solution is compared with that of a serial run, and put into the equations. */
#include <hearth.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UP 1
#define DOWN 2
#define LIMIT 1e-10
#define STEPS_MAX 2000

static int rank, size;

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "cg: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

/* Some rows of the grid, with one row above and one below that belong to neighbours or are zero. */
struct part {
    size_t rows, width;
    int alone; /* all rows are here: no messages */
};

static double *field(const struct part *part)
{
    double *memory = calloc((part->rows + 2) * part->width, sizeof *memory);
    if (!memory)
        must(HEARTH_ENOMEM, "fields");
    return memory + part->width;
}

static void exchange_edges(const struct part *part, double *p)
{
    size_t width = part->width, bytes = width * sizeof *p;
    hearth_request requests[4] = {HEARTH_NO_REQUEST, HEARTH_NO_REQUEST, HEARTH_NO_REQUEST, HEARTH_NO_REQUEST};
    if (part->alone)
        return;
    if (rank > 0) {
        must(hearth_irecv(p - width, bytes, rank - 1, DOWN, &requests[0]), "receive from above");
        must(hearth_isend(p, bytes, rank - 1, UP, &requests[1]), "send up");
    }
    if (rank < size - 1) {
        must(hearth_irecv(p + part->rows * width, bytes, rank + 1, UP, &requests[2]), "receive from below");
        must(hearth_isend(p + (part->rows - 1) * width, bytes, rank + 1, DOWN, &requests[3]), "send down");
    }
    must(hearth_waitall(4, requests, NULL), "exchange of edges");
}

static void multiply(const struct part *part, double *p, double *q)
{
    size_t width = part->width;
    exchange_edges(part, p);
    for (size_t row = 0; row < part->rows; row++)
        for (size_t x = 0; x < width; x++) {
            const double *at = p + row * width + x;
            double around = at[-(ptrdiff_t)width] + at[width];
            around += (x > 0 ? at[-1] : 0.0) + (x + 1 < width ? at[1] : 0.0);
            q[row * width + x] = 4.0 * *at - around;
        }
}

static double dot(const struct part *part, const double *a, const double *b)
{
    double sum = 0.0;
    for (size_t at = 0; at < part->rows * part->width; at++)
        sum += a[at] * b[at];
    if (!part->alone)
        must(hearth_allreduce(&sum, 1, HEARTH_DOUBLE, HEARTH_SUM), "dot product");
    return sum;
}

/* Solves A x = b; gives the number of steps. */
static int solve(const struct part *part, const double *b, double *x)
{
    size_t points = part->rows * part->width;
    double *r = field(part), *p = field(part), *q = field(part);
    memcpy(r, b, points * sizeof *r);
    memcpy(p, b, points * sizeof *p);
    double rr = dot(part, r, r), enough = LIMIT * LIMIT * rr;
    int steps = 0;
    while (rr > enough && steps < STEPS_MAX) {
        multiply(part, p, q);
        double alpha = rr / dot(part, p, q);
        for (size_t at = 0; at < points; at++) {
            x[at] += alpha * p[at];
            r[at] -= alpha * q[at];
        }
        double next = dot(part, r, r), beta = next / rr;
        rr = next;
        for (size_t at = 0; at < points; at++)
            p[at] = r[at] + beta * p[at];
        steps++;
    }
    free(r - part->width);
    free(p - part->width);
    free(q - part->width);
    return steps;
}

static double source(size_t row, size_t x)
{
    return (double)((row * 31 + x * 17) % 23) - 11.0;
}

int main(int argc, char **argv)
{
    size_t height = argc > 1 ? strtoul(argv[1], NULL, 10) : 32;
    rank = hearth_rank();
    size = hearth_size();
    must(rank, "rank");
    size_t rows = (height + (size_t)size - 1) / (size_t)size;
    height = rows * (size_t)size;
    struct part mine = {rows, height, 0}, whole = {height, height, 1};
    double *b = field(&mine), *x = field(&mine), *product = field(&mine);
    for (size_t at = 0; at < rows * height; at++)
        b[at] = source(rows * (size_t)rank + at / height, at % height);
    int steps = solve(&mine, b, x);
    multiply(&mine, x, product);
    double worst = 0.0;
    for (size_t at = 0; at < rows * height; at++)
        worst = fmax(worst, fabs(product[at] - b[at]));
    must(hearth_allreduce(&worst, 1, HEARTH_DOUBLE, HEARTH_MAX), "residual");
    double *all = rank == 0 ? field(&whole) : NULL;
    must(hearth_gather(x, all, rows * height * sizeof *x, 0), "gathering");
    if (rank != 0)
        return 0;
    double *serial_b = field(&whole), *serial = field(&whole);
    for (size_t at = 0; at < height * height; at++)
        serial_b[at] = source(at / height, at % height);
    int serial_steps = solve(&whole, serial_b, serial);
    double off = 0.0, largest = 0.0;
    for (size_t at = 0; at < height * height; at++) {
        off = fmax(off, fabs(all[at] - serial[at]));
        largest = fmax(largest, fabs(serial[at]));
    }
    /* Sums are taken in another order: the last bits differ, and a step more or less may be needed.
     */
    if (!(worst < 1e-6 && off < 1e-7 * largest && abs(steps - serial_steps) <= 2)) {
        printf("cg: residual %g, off by %g of %g, %d steps, serial %d\n", worst, off, largest, steps, serial_steps);
        return 1;
    }
    printf("cg: %d ranks, %zu x %zu unknowns, %d steps, serial %d: ok\n", size, height, height, steps, serial_steps);
    return 0;
}
