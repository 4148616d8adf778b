/* udp-cost: what a datagram costs on Linux, in time-stamp counter ticks, which are instructions when
 * QEMU runs with -icount shift=0. Used by `cargo xtask bench packet`. Hearth has no sockets.
 *
 * Datagrams go over the loopback device, so that no card and no wait is in it: sendto returns when
 * the other socket has the datagram.
 *
 * full   sendto and recv of 1,448 bytes, as many as a packet of an exchange has, mean of 512
 * short  the same of 8 bytes
 *
 * Prints one line: packet-cost linux full=N short=N */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { FULL = 1448, SHORT = 8, WARM = 64, TIMES = 512 };

static inline unsigned long tsc(void)
{
    unsigned lo, hi;
    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(lo), "=d"(hi) : : "memory");
    return (unsigned long)hi << 32 | lo;
}

static char sent[FULL], received[FULL];

/* The mean of one datagram of so many bytes; 0 when one does not come as it was sent. */
static unsigned long cost(int from, int to, const struct sockaddr_in *at, long bytes)
{
    unsigned long began = 0;
    for (int time = 0; time < WARM + TIMES; time++) {
        if (time == WARM)
            began = tsc();
        sent[0] = (char)time;
        if (sendto(from, sent, bytes, 0, (const struct sockaddr *)at, sizeof *at) != bytes
            || recv(to, received, sizeof received, 0) != bytes || received[0] != (char)time)
            return 0;
    }
    return (tsc() - began) / TIMES;
}

int main(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7118)};
    int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (from < 0 || to < 0 || bind(to, (struct sockaddr *)&at, sizeof at) != 0) {
        perror("udp-cost");
        return 1;
    }
    memset(sent, 7, sizeof sent);
    unsigned long full = cost(from, to, &at, FULL), few = cost(from, to, &at, SHORT);
    if (full == 0 || few == 0) {
        fprintf(stderr, "udp-cost: a datagram did not come as it was sent\n");
        return 1;
    }
    printf("packet-cost linux full=%lu short=%lu\n", full, few);
    return 0;
}
