/* omp-matrix: the product of two matrices by a team of threads, beside a team of one (omp-team.h).
 * The last line is "omp-matrix: ok". */
#define NAME "omp-matrix"
#include "omp-team.h"

enum { SIZE = 96 };

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

static void work(void)
{
#pragma omp for
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            a[i][j] = i + j;
            b[i][j] = i - j;
            c[i][j] = 0;
        }
#pragma omp for
    for (int i = 0; i < SIZE; i++)
        for (int k = 0; k < SIZE; k++)
            for (int j = 0; j < SIZE; j++)
                c[i][j] += a[i][k] * b[k][j];
}

static void check(void)
{
    /* The sum of (i + k) * (k - j) over all k. */
    double first = SIZE * (SIZE - 1.0) / 2, squares = first * (2 * SIZE - 1) / 3;
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            HOLDS(c[i][j] == squares + (i - j) * first - (double)SIZE * i * j);
}

int main(int argc, char **argv)
{
    return measure(argc, argv);
}
