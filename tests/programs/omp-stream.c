/* omp-stream: copy, scale, add and triad of three arrays, as STREAM has them, by a team of threads,
 * beside a team of one (omp-team.h). The last line is "omp-stream: ok". */
#define NAME "omp-stream"
#include "omp-team.h"

enum { LENGTH = 60000, ROUNDS = 4 };

static double a[LENGTH], b[LENGTH], c[LENGTH];
static const double scalar = 3;

static void work(void)
{
#pragma omp for
    for (int i = 0; i < LENGTH; i++) {
        a[i] = 1 + i % 5;
        b[i] = 2;
        c[i] = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp for
        for (int i = 0; i < LENGTH; i++)
            c[i] = a[i];
#pragma omp for
        for (int i = 0; i < LENGTH; i++)
            b[i] = scalar * c[i];
#pragma omp for
        for (int i = 0; i < LENGTH; i++)
            c[i] = a[i] + b[i];
#pragma omp for
        for (int i = 0; i < LENGTH; i++)
            a[i] = b[i] + scalar * c[i];
    }
}

static void check(void)
{
    /* A round makes 15 times as much of a: 3 + 3 * 4. */
    double factor = 1;
    for (int round = 0; round < ROUNDS; round++)
        factor *= 15;
    for (int i = 0; i < LENGTH; i++)
        HOLDS(a[i] == factor * (1 + i % 5) && b[i] == factor / 5 * (1 + i % 5) &&
              c[i] == factor / 15 * 4 * (1 + i % 5));
}

int main(int argc, char **argv)
{
    return measure(argc, argv);
}
