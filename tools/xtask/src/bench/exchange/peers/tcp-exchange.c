/* tcp-exchange MODE RANK BYTES REPEATS ADDRESS...: an all-to-all exchange over TCP connections
 * between all pairs, made before the clock starts.
 *
 *   pairwise p - 1 steps; in step k a rank sends to the k-th rank behind it and receives from the
 *   k-th before it, then goes on at-once everything to and from everybody at the same time
 *
 * Congestion control is cubic, whatever the system's default is: it was the best of those that were
 * tried.
 *
 * Blocks are compared. Prints "rank R seconds S1 S2 ...". */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 7121
#define MOST 64

static int rank, size, peer[MOST];

static void fail(const char *what)
{
    fprintf(stderr, "tcp-exchange: rank %d: %s: %s\n", rank, what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static unsigned char byte_of(int from, int to, size_t at, int round)
{
    return (unsigned char)(from * 41 + to * 17 + (int)at * 7 + round);
}

/* Moves bytes as the sockets take and give them until all are there. */
struct flow {
    int socket;
    unsigned char *bytes;
    size_t left;
    int sends;
};

static void move(struct flow *flows, int count)
{
    struct pollfd polls[2 * MOST];
    int which[2 * MOST];
    for (;;) {
        int open = 0;
        for (int at = 0; at < count; at++)
            if (flows[at].left > 0) {
                polls[open] = (struct pollfd){flows[at].socket, flows[at].sends ? POLLOUT : POLLIN, 0};
                which[open++] = at;
            }
        if (open == 0)
            return;
        if (poll(polls, (nfds_t)open, 60000) <= 0)
            fail("poll");
        for (int at = 0; at < open; at++) {
            if (!polls[at].revents)
                continue;
            struct flow *flow = &flows[which[at]];
            ssize_t moved = flow->sends ? send(flow->socket, flow->bytes, flow->left, MSG_NOSIGNAL)
                                        : recv(flow->socket, flow->bytes, flow->left, 0);
            if (moved > 0) {
                flow->bytes += moved;
                flow->left -= (size_t)moved;
            } else if (moved == 0 || errno != EAGAIN) {
                fail("connection");
            }
        }
    }
}

static void one(int other, void *bytes, size_t count, int sends)
{
    struct flow flow = {peer[other], bytes, count, sends};
    move(&flow, 1);
}

static void barrier(void)
{
    char token = 0;
    for (int other = 1; rank == 0 && other < size; other++)
        one(other, &token, 1, 0);
    if (rank > 0)
        one(0, &token, 1, 1);
    for (int other = 1; rank == 0 && other < size; other++)
        one(other, &token, 1, 1);
    if (rank > 0)
        one(0, &token, 1, 0);
}

static void use(int socket, int other)
{
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic")) < 0)
        fail("cubic");
    if (fcntl(socket, F_SETFL, O_NONBLOCK) < 0)
        fail("fcntl");
    peer[other] = socket;
}

/* Each rank connects to those below it and says who it is. */
static void connect_all(char **addresses)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, MOST) < 0)
        fail("listen");
    for (int other = 0; other < rank; other++) {
        inet_pton(AF_INET, addresses[other], &address.sin_addr);
        int made;
        for (int tries = 0;; tries++) {
            made = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(made, (struct sockaddr *)&address, sizeof address) == 0)
                break;
            close(made);
            if (tries == 500)
                fail("connect");
            usleep(20000);
        }
        unsigned char me = (unsigned char)rank;
        if (write(made, &me, 1) != 1)
            fail("greeting");
        use(made, other);
    }
    for (int left = size - 1 - rank; left > 0; left--) {
        int made = accept(listener, NULL, NULL);
        unsigned char other;
        if (made < 0 || read(made, &other, 1) != 1 || other >= size)
            fail("accept");
        use(made, other);
    }
}

int main(int argc, char **argv)
{
    if (argc < 7 || argc - 5 > MOST)
        return 2;
    int pairwise = strcmp(argv[1], "pairwise") == 0;
    rank = atoi(argv[2]);
    size_t bytes = strtoul(argv[3], NULL, 10);
    int repeats = atoi(argv[4]);
    size = argc - 5;
    connect_all(argv + 5);
    unsigned char *to = malloc(bytes * (size_t)size), *from = malloc(bytes * (size_t)size);
    printf("rank %d seconds", rank);
    /* The first one opens the windows. */
    for (int round = -1; round < repeats; round++) {
        for (int other = 0; other < size; other++)
            for (size_t at = 0; at < bytes; at++)
                to[(size_t)other * bytes + at] = byte_of(rank, other, at, round);
        memset(from, 0, bytes * (size_t)size);
        barrier();
        double began = now();
        memcpy(from + (size_t)rank * bytes, to + (size_t)rank * bytes, bytes);
        struct flow flows[2 * MOST];
        int count = 0;
        for (int step = 1; step < size; step++) {
            int next = (rank + step) % size, previous = (rank + size - step) % size;
            flows[count++] = (struct flow){peer[next], to + (size_t)next * bytes, bytes, 1};
            flows[count++] = (struct flow){peer[previous], from + (size_t)previous * bytes, bytes, 0};
            if (pairwise) {
                move(flows, count);
                count = 0;
            }
        }
        move(flows, count);
        double took = now() - began;
        for (int other = 0; other < size; other++)
            for (size_t at = 0; at < bytes; at++)
                if (from[(size_t)other * bytes + at] != byte_of(other, rank, at, round)) {
                    fprintf(stderr, "tcp-exchange: rank %d: another byte from rank %d\n", rank, other);
                    return 1;
                }
        if (round >= 0)
            printf(" %.6f", took);
    }
    puts("");
    fflush(stdout);
    barrier();
    return 0;
}
