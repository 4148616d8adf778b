/* ranks-threads: four threads of each rank send and receive at the same time, each with tags of its
 * own: around the ring of ranks with blocking calls, and by posted receives that are waited for in
 * one call. An error names a rank in the thread that met it, and in no other. Rank 0 prints
 * "ranks-threads: ok". */
#include <hearth.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 40, LONG = 20000 };

static int rank, size;
static pthread_barrier_t together;

static void must(int error, const char *what, long thread)
{
    if (error < 0) {
        printf("ranks-threads: rank %d, thread %ld: %s: %s\n", rank, thread, what, hearth_strerror(error));
        exit(1);
    }
}

static void holds(int is, const char *what, long thread)
{
    if (!is) {
        printf("ranks-threads: rank %d, thread %ld: %s\n", rank, thread, what);
        exit(1);
    }
}

/* A number that goes around all ranks, once a round. */
static void around(long thread)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    unsigned tag = 100 + (unsigned)thread;
    for (long round = 0; round < ROUNDS; round++) {
        long value = thread * 1000 + round, got = -1;
        struct hearth_status status;
        if (rank == 0) {
            must(hearth_send(&value, sizeof value, next, tag), "send", thread);
            must(hearth_recv(&got, sizeof got, before, tag, &status), "receive", thread);
            holds(got == value + size - 1, "a number came back as another", thread);
        } else {
            must(hearth_recv(&got, sizeof got, before, tag, &status), "receive", thread);
            holds(got == value + rank - 1, "a number came as another", thread);
            got++;
            must(hearth_send(&got, sizeof got, next, tag), "send", thread);
        }
        holds(status.bytes == sizeof got && status.tag == tag, "the status of a receive", thread);
    }
}

/* Long messages both ways at once. */
static void both_ways(long thread)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    unsigned tag = 200 + (unsigned)thread;
    static char out[THREADS][LONG], in[THREADS][LONG];
    memset(out[thread], 'a' + (int)thread + rank, LONG);
    hearth_request requests[2];
    must(hearth_irecv(in[thread], LONG, before, tag, &requests[0]), "irecv", thread);
    must(hearth_isend(out[thread], LONG, next, tag, &requests[1]), "isend", thread);
    must(hearth_waitall(2, requests, NULL), "waitall", thread);
    for (int at = 0; at < LONG; at++)
        holds(in[thread][at] == 'a' + (int)thread + before, "bytes of another message", thread);
}

static void *work(void *argument)
{
    long thread = (long)argument;
    around(thread);
    both_ways(thread);
    pthread_barrier_wait(&together);
    int before = (rank + size - 1) % size, names = -1;
    if (thread == 1) {
        char two[2] = "x", one;
        must(hearth_send(two, sizeof two, (rank + 1) % size, 300), "send", thread);
        holds(hearth_recv(&one, sizeof one, before, 300, NULL) == HEARTH_EMSGSIZE, "a message too long", thread);
        names = before;
    }
    pthread_barrier_wait(&together);
    holds(hearth_named_rank() == names, "the rank that an error named", thread);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    rank = hearth_rank();
    size = hearth_size();
    must(rank, "rank", -1);
    pthread_barrier_init(&together, NULL, THREADS);
    for (long thread = 0; thread < THREADS; thread++)
        holds(!pthread_create(&threads[thread], NULL, work, (void *)thread), "pthread_create", thread);
    for (long thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], NULL);
    must(hearth_barrier(), "barrier", -1);
    if (rank == 0)
        puts("ranks-threads: ok");
    return 0;
}
