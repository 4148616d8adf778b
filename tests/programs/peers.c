/* peers: prints the connection table of its job, one line a rank, as the node has it:
 *
 *   rank 1 sees rank 0: node 0, 10.117.0.2:7118, mac 52:54:00:12:00:01, window 0, network 0,
 *   logical 0, mask 0, port 0
 *
 * The table comes after the start: EAGAIN is asked again, for at most 30 seconds. Exit status 0
 * when each rank of the job has an entry, the rank after the last gives EINVAL, and a bad address
 * EFAULT; a job of one rank has no table (ENODATA). */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HEARTH_PEER 4096

struct hearth_peer {
    uint32_t rank, node;
    uint8_t address[4];
    uint16_t port;
    uint8_t mac[6];
    uint32_t window_id;
    uint64_t network_id;
    uint32_t logical_id, mask, port_id, zero;
};
_Static_assert(sizeof(struct hearth_peer) == 48, "layout of the call");

static long peer(unsigned rank, struct hearth_peer *entry)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    time_t begin = time(NULL);
    long result;
    while ((result = syscall(HEARTH_PEER, rank, entry)) < 0 && errno == EAGAIN && time(NULL) - begin < 30)
        nanosleep(&pause, NULL);
    return result;
}

int main(void)
{
    const char *rank = getenv("HEARTH_RANK"), *size_text = getenv("HEARTH_SIZE");
    unsigned size = size_text ? (unsigned)atoi(size_text) : 0;
    struct hearth_peer entry;
    if (size == 1) {
        if (peer(0, &entry) == 0 || errno != ENODATA) {
            printf("a job of one rank has a table, or another error: %s\n", strerror(errno));
            return 1;
        }
        printf("no table\n");
        return 0;
    }
    for (unsigned other = 0; other < size; other++) {
        memset(&entry, 0xff, sizeof entry);
        if (peer(other, &entry) != 0) {
            printf("rank %u: %s\n", other, strerror(errno));
            return 1;
        }
        const uint8_t *ip = entry.address, *mac = entry.mac;
        printf("rank %s sees rank %u: node %u, %u.%u.%u.%u:%u, mac %02x:%02x:%02x:%02x:%02x:%02x, window %u, "
               "network %llu, logical %u, mask %u, port %u\n",
               rank ? rank : "?", entry.rank, entry.node, ip[0], ip[1], ip[2], ip[3], entry.port, mac[0], mac[1],
               mac[2], mac[3], mac[4], mac[5], entry.window_id, (unsigned long long)entry.network_id,
               entry.logical_id, entry.mask, entry.port_id);
        if (entry.rank != other || entry.zero != 0)
            return 1;
    }
    if (peer(size, &entry) == 0 || errno != EINVAL) {
        printf("the rank after the last: %s\n", strerror(errno));
        return 1;
    }
    if (syscall(HEARTH_PEER, 0, (void *)0xffff800000000000) == 0 || errno != EFAULT) {
        printf("a bad address: %s\n", strerror(errno));
        return 1;
    }
    return 0;
}
