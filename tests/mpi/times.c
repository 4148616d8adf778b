/* What operations of MPI need, beside those of libhearth in the same run.
 *
 *   times message COUNT          8 bytes from rank 0 to itself, in ticks of the time-stamp counter
 *   times message-mpi COUNT      those of MPI alone, and
 *   times message-own COUNT      those of libhearth, for what the job's report says of them
 *   times bandwidth BYTES COUNT  from rank 0 to rank 1, in seconds
 *   times alltoall BYTES COUNT   seconds of the slowest rank
 *   times allreduce COUNT        8 bytes, and one way of a message of as many
 *   times put COUNT              8 bytes from rank 0 to rank 1 until they are there
 *   times get COUNT              8 bytes from rank 1 to rank 0
 *
 * Rank 0 prints the medians, and of messages the means, NAME=VALUE each: some of what a message
 * costs is done for many at once. Both libraries take turns, so that what else the machine does is
 * the same for both. */
#include <hearth.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#define USAGE "times message[-mpi|-own]|bandwidth|alltoall|allreduce|put|get [BYTES] COUNT"

static int rank, size;

static void need(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "times: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static double mean(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

/* The slowest rank's. */
static double slowest(double seconds)
{
    double all;
    MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static double message_of_mpi(uint64_t out)
{
    uint64_t in = 0, begin = __rdtsc();
    MPI_Request requests[2];
    MPI_Irecv(&in, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    double ticks = (double) (__rdtsc() - begin);
    need(in == out, "another message than was sent");
    return ticks;
}

static double message_of_ours(uint64_t out)
{
    uint64_t in = 0, begin = __rdtsc();
    hearth_request requests[2];
    int error = hearth_irecv(&in, 8, 0, 1, &requests[0]);
    error = error ? error : hearth_isend(&out, 8, 0, 1, &requests[1]);
    error = error ? error : hearth_waitall(2, requests, NULL);
    double ticks = (double) (__rdtsc() - begin);
    need(!error && in == out, "a message of libhearth's failed");
    return ticks;
}

static void message(const char *of, int count)
{
    double mpi[count], own[count];
    for (int i = 0; i < count && rank == 0; i++) {
        mpi[i] = *of == 'o' ? 0 : message_of_mpi(2 * i + 1);
        own[i] = *of == 'm' ? 0 : message_of_ours(2 * i + 2);
    }
    if (rank == 0)
        printf("mpi=%.0f own=%.0f\n", mean(mpi, count), mean(own, count));
}

static void bandwidth(size_t bytes, int count)
{
    double mpi[count], own[count];
    char *data = malloc(bytes), done = 0;
    need(data != NULL && size >= 2, "two ranks, and memory");
    memset(data, rank + 1, bytes);
    for (int i = 0; i < count && rank < 2; i++) {
        double begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(data, (int) bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(&done, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(data, (int) bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            need(data[0] == 1 && data[bytes - 1] == 1, "other bytes than were sent");
            MPI_Send(&done, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
        mpi[i] = MPI_Wtime() - begin;
        memset(data, rank + 1, bytes);

        int error;
        begin = MPI_Wtime();
        if (rank == 0) {
            error = hearth_send(data, bytes, 1, 1);
            error = error ? error : hearth_recv(&done, 1, 1, 2, NULL);
        } else {
            error = hearth_recv(data, bytes, 0, 1, NULL);
            need(data[0] == 1 && data[bytes - 1] == 1, "other bytes than were sent");
            error = error ? error : hearth_send(&done, 1, 0, 2);
        }
        own[i] = MPI_Wtime() - begin;
        need(!error, "a message of libhearth's failed");
        memset(data, rank + 1, bytes);
    }
    if (rank == 0)
        printf("mpi=%.6f own=%.6f\n", median(mpi, count), median(own, count));
    free(data);
}

static void alltoall(size_t bytes, int count)
{
    double mpi[count], own[count];
    char *send = malloc(size * bytes), *receive = malloc(size * bytes);
    need(send && receive, "memory");
    memset(send, rank + 1, size * bytes);
    for (int i = 0; i < count; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Alltoall(send, (int) bytes, MPI_BYTE, receive, (int) bytes, MPI_BYTE, MPI_COMM_WORLD);
        mpi[i] = slowest(MPI_Wtime() - begin);
        for (int from = 0; from < size; from++)
            need(receive[from * bytes] == (char) (from + 1), "another block than was sent");
        memset(receive, 0, size * bytes);

        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        int error = hearth_alltoall(send, receive, bytes);
        own[i] = slowest(MPI_Wtime() - begin);
        need(!error, "an exchange of libhearth's failed");
        memset(receive, 0, size * bytes);
    }
    if (rank == 0)
        printf("mpi=%.6f own=%.6f\n", median(mpi, count), median(own, count));
    free(send);
    free(receive);
}

/* Ranks leave a barrier up to as many one-way times apart as it has rounds, and so much longer the
 * one that was first would take. So many in a row have that once. */
#define ROW 16

/* One way of a message of 8 bytes between ranks 0 and 1. */
static double one_way_now(void)
{
    double value = rank, other;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int turn = 0; turn < ROW && rank < 2; turn++) {
        if (turn % 2 == rank)
            MPI_Send(&value, 1, MPI_DOUBLE, !rank, 1, MPI_COMM_WORLD);
        else
            MPI_Recv(&other, 1, MPI_DOUBLE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return (MPI_Wtime() - begin) / ROW;
}

static void allreduce(int count)
{
    double all[count], one_way[count];
    for (int i = 0; i < count; i++) {
        double value = rank, sum;
        one_way[i] = one_way_now();
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        for (int turn = 0; turn < ROW; turn++) {
            MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            need(sum == size * (size - 1) / 2.0, "another sum");
        }
        all[i] = slowest(MPI_Wtime() - begin) / ROW;
    }
    if (rank == 0)
        printf("all=%.6f one_way=%.6f\n", median(all, count), median(one_way, count));
}

/* Put or Get of 8 bytes and the flush that ends it, while the target waits in MPI. */
static void one_sided(int is_put, int count)
{
    double all[count], one_way[count];
    uint64_t *window, value = 0;
    MPI_Win win;
    need(size >= 2, "two ranks");
    MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    *window = 1;
    for (int i = 0; i < count; i++) {
        one_way[i] = one_way_now();
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
        for (int turn = 0; turn < ROW && rank == 0; turn++) {
            uint64_t out = (uint64_t) i * ROW + turn + 2;
            if (is_put)
                MPI_Put(&out, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
            else
                MPI_Get(&value, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
            MPI_Win_flush(1, win);
            need(is_put || value == 1, "another value than the window has");
        }
        all[i] = (MPI_Wtime() - begin) / ROW;
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        need(!is_put || rank != 1 || *window == (uint64_t) i * ROW + ROW + 1,
             "another value than was put");
    }
    MPI_Win_free(&win);
    if (rank == 0)
        printf("all=%.6f one_way=%.6f\n", median(all, count), median(one_way, count));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 2 ? argv[1] : "";
    long last = argc > 2 ? atol(argv[argc - 1]) : 0, bytes = argc > 3 ? atol(argv[2]) : 0;
    need(last > 0 && last <= 10000, USAGE);
    if (!strcmp(what, "message"))
        message("", (int) last);
    else if (!strcmp(what, "message-mpi") || !strcmp(what, "message-own"))
        message(what + strlen("message-"), (int) last);
    else if (!strcmp(what, "bandwidth") && bytes > 0)
        bandwidth((size_t) bytes, (int) last);
    else if (!strcmp(what, "alltoall") && bytes > 0)
        alltoall((size_t) bytes, (int) last);
    else if (!strcmp(what, "allreduce"))
        allreduce((int) last);
    else if (!strcmp(what, "put") || !strcmp(what, "get"))
        one_sided(what[0] == 'p', (int) last);
    else
        need(0, USAGE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
