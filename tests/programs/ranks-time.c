/* ranks-time WHAT [BYTES] [REPEATS] [spin]: how long operations between ranks take, one line from
 * rank 0.
 *
 *   latency 8 bytes from rank 0 to the last rank and back: half of it barrier one barrier exchange
 *   an all-to-all exchange of blocks of BYTES, which are checked: the slowest rank of each; first a
 *   barrier wait a barrier that the last rank reaches a second late
 *
 * With "spin" a rank that waits does not halt its processor.
 * Prints "WHAT seconds S1 S2 ...", one figure a repeat. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "ranks-time: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

/* The word at this place of a block: told apart by sender, receiver, place and round. */
static unsigned long word_of(int from, int to, size_t at, int round)
{
    unsigned long who = (unsigned long)from << 40 | (unsigned long)to << 20 | (unsigned long)round;
    return (who + 1) * 0x9e3779b97f4a7c15ul + at * 0xc2b2ae3d27d4eb4ful;
}

/* Fills a block, or compares it: the place of the first word that is another, or the block's
 * length. A word at a time, and copies of a length that the compiler knows: sixteen machines on two
 * processors spend more on this than on the exchange. */
static void fill(unsigned char *block, size_t bytes, int from, int to, int round)
{
    size_t at = 0;
    for (; at + sizeof(long) <= bytes; at += sizeof(long)) {
        unsigned long word = word_of(from, to, at, round);
        memcpy(block + at, &word, sizeof word);
    }
    unsigned long last = word_of(from, to, at, round);
    memcpy(block + at, &last, bytes - at);
}

static size_t compare(const unsigned char *block, size_t bytes, int from, int to, int round)
{
    size_t at = 0;
    for (; at + sizeof(long) <= bytes; at += sizeof(long)) {
        unsigned long word;
        memcpy(&word, block + at, sizeof word);
        if (word != word_of(from, to, at, round))
            return at;
    }
    unsigned long last = word_of(from, to, at, round);
    return memcmp(block + at, &last, bytes - at) == 0 ? bytes : at;
}

static double latency(int rank, int size)
{
    enum { TURNS = 10 };
    char message[8] = "message";
    int last = size - 1;
    double began = hearth_wtime();
    for (int turn = 0; turn < TURNS; turn++) {
        if (rank == 0) {
            must(hearth_send(message, sizeof message, last, 1), "send");
            must(hearth_recv(message, sizeof message, last, 1, NULL), "receive");
        } else if (rank == last) {
            must(hearth_recv(message, sizeof message, 0, 1, NULL), "receive");
            must(hearth_send(message, sizeof message, 0, 1), "send");
        }
    }
    return (hearth_wtime() - began) / (2 * TURNS);
}

static double barrier(void)
{
    enum { TURNS = 10 };
    double began = hearth_wtime();
    for (int turn = 0; turn < TURNS; turn++)
        must(hearth_barrier(), "barrier");
    return (hearth_wtime() - began) / TURNS;
}

static double wait_for_the_last(int rank, int size)
{
    double began = hearth_wtime();
    if (rank == size - 1)
        sleep(1);
    must(hearth_barrier(), "barrier");
    return hearth_wtime() - began;
}

static double exchange(int rank, int size, size_t bytes, int round)
{
    size_t all = bytes * (size_t)size;
    unsigned char *send = malloc(all + 1), *receive = malloc(all + 1);
    if (!send || !receive)
        must(HEARTH_ENOMEM, "blocks");
    for (int to = 0; to < size; to++)
        fill(send + (size_t)to * bytes, bytes, rank, to, round);
    for (int from = 0; from < size; from++)
        fill(receive + (size_t)from * bytes, bytes, rank, from, ~round);
    must(hearth_barrier(), "barrier");
    double began = hearth_wtime();
    must(hearth_alltoall(send, receive, bytes), "exchange");
    double took = hearth_wtime() - began;
    /* Whoever compares takes the processor that emulates those who still exchange. */
    must(hearth_barrier(), "barrier");
    for (int from = 0; from < size; from++) {
        size_t at = compare(receive + (size_t)from * bytes, bytes, from, rank, round);
        if (at < bytes) {
            fprintf(stderr, "ranks-time: byte %zu from rank %d, or one of the seven after it, is another\n", at, from);
            exit(1);
        }
    }
    free(send);
    free(receive);
    return took;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    int repeats = argc > 3 ? atoi(argv[3]) : 3;
    int rank = hearth_rank(), size = hearth_size();
    must(rank, "rank");
    if (argc > 4 && strcmp(argv[4], "spin") == 0)
        hearth_spin(1);
    if (rank == 0)
        printf("%s seconds", what);
    for (int round = 0; round < repeats; round++) {
        double took;
        must(hearth_barrier(), "barrier");
        if (strcmp(what, "latency") == 0)
            took = latency(rank, size);
        else if (strcmp(what, "barrier") == 0)
            took = barrier();
        else if (strcmp(what, "wait") == 0)
            took = wait_for_the_last(rank, size);
        else if (strcmp(what, "exchange") == 0)
            took = exchange(rank, size, bytes, round);
        else
            return 2;
        if (strcmp(what, "latency") != 0)
            must(hearth_allreduce(&took, 1, HEARTH_DOUBLE, HEARTH_MAX), "slowest");
        if (rank == 0)
            printf(" %.6f", took);
    }
    if (rank == 0)
        puts("");
    return 0;
}
