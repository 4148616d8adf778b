/* compute: a conjugate-gradient solve of a small Laplace system that checks its own result.
 * Exit status 0 when the residual is small, 1 otherwise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N 96

static double x[N * N], b[N * N], r[N * N], p[N * N], q[N * N];

static void apply(const double *in, double *out)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double v = 4.0 * in[i * N + j];
            if (i > 0) v -= in[(i - 1) * N + j];
            if (i < N - 1) v -= in[(i + 1) * N + j];
            if (j > 0) v -= in[i * N + j - 1];
            if (j < N - 1) v -= in[i * N + j + 1];
            out[i * N + j] = v;
        }
}

static double dot(const double *a, const double *c)
{
    double s = 0;
    for (int i = 0; i < N * N; i++)
        s += a[i] * c[i];
    return s;
}

int main(void)
{
    const char *rank = getenv("HEARTH_RANK");
    for (int i = 0; i < N * N; i++)
        b[i] = r[i] = p[i] = 1.0 + (i % 7) * 0.25 + (rank ? atoi(rank) : 0);
    double rr = dot(r, r), start = rr;
    int it = 0;
    for (; it < 10 * N && rr > 1e-20 * start; it++) {
        apply(p, q);
        double alpha = rr / dot(p, q);
        for (int i = 0; i < N * N; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        double next = dot(r, r), beta = next / rr;
        rr = next;
        for (int i = 0; i < N * N; i++)
            p[i] = r[i] + beta * p[i];
    }
    /* The true residual, from x alone. */
    apply(x, q);
    double err = 0, norm = sqrt(dot(b, b));
    for (int i = 0; i < N * N; i++)
        err += (b[i] - q[i]) * (b[i] - q[i]);
    err = sqrt(err) / norm;
    printf("compute rank %s: %d iterations, relative residual %s 1e-8: %s\n", rank ? rank : "?", it,
           err < 1e-8 ? "<" : ">=", err < 1e-8 ? "ok" : "WRONG");
    return err < 1e-8 ? 0 : 1;
}
