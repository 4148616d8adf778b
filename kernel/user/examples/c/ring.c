/* ring: every rank sends to the next one and receives from the one before.
 *
 * First a token goes once around, and each rank adds its number; then all ranks shift blocks of any
 * length at the same time, until each has its own back. What arrives is compared with what a serial
 * run would have made of it. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN 1
#define SHIFT 2

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "ring: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)((unsigned)rank * 37 + at * 11 + (at >> 8));
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    int rank = hearth_rank(), size = hearth_size();
    must(rank, "rank");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    int64_t token = 0;
    if (rank != 0)
        must(hearth_recv(&token, sizeof token, previous, TOKEN, NULL), "receiving the token");
    token += rank;
    must(hearth_send(&token, sizeof token, next, TOKEN), "sending the token");
    if (rank == 0) {
        must(hearth_recv(&token, sizeof token, previous, TOKEN, NULL), "receiving the token");
        if (token != (int64_t)size * (size - 1) / 2) {
            printf("ring: the token came back as %lld\n", (long long)token);
            return 1;
        }
    }

    unsigned char *have = malloc(bytes ? bytes : 1), *get = malloc(bytes ? bytes : 1);
    if (!have || !get)
        must(HEARTH_ENOMEM, "blocks");
    for (size_t at = 0; at < bytes; at++)
        have[at] = byte_of(rank, at);
    for (int step = 1; step <= size; step++) {
        hearth_request requests[2];
        struct hearth_status statuses[2];
        must(hearth_irecv(get, bytes, previous, SHIFT, &requests[0]), "posting a receive");
        must(hearth_isend(have, bytes, next, SHIFT, &requests[1]), "posting a send");
        must(hearth_waitall(2, requests, statuses), "shifting");
        int from = ((rank - step) % size + size) % size;
        int good = statuses[0].bytes == bytes && statuses[0].rank == (uint32_t)previous;
        for (size_t at = 0; at < bytes; at++)
            good &= get[at] == byte_of(from, at);
        if (!good) {
            printf("ring: rank %d has another block than that of rank %d after %d steps\n", rank, from, step);
            return 1;
        }
        unsigned char *other = have;
        have = get;
        get = other;
    }
    must(hearth_barrier(), "barrier");
    if (rank == 0)
        printf("ring: %d ranks, %zu bytes shifted %d times: ok\n", size, bytes, size);
    return 0;
}
