/* The kernel's calls for data between ranks, as docs/abi.md lays them out.
 *
 * Neighbours: hearth_engine.c is the only user.
 * Never here: anything of MPI. */
#ifndef HEARTH_CALL_H_INCLUDED
#define HEARTH_CALL_H_INCLUDED

#include <stdint.h>

enum { HEARTH_SELF = 4097, HEARTH_POST = 4098, HEARTH_WAIT = 4099, HEARTH_CANCEL = 4100 };
enum { HEARTH_SEND = 1, HEARTH_RECEIVE = 2, HEARTH_ALLTOALL = 3, HEARTH_BARRIER = 4 };
enum { HEARTH_ANY_RANK = 1, HEARTH_ANY_TAG = 2 };
enum { HEARTH_WAIT_ANY = 1 };

/* Errors of a status or a call, negative as Linux has them. */
#define HEARTH_EINVAL (-22)
#define HEARTH_ENOSYS (-38)
#define HEARTH_EMSGSIZE (-90)
#define HEARTH_ENOBUFS (-105)
#define HEARTH_ELOST (-112)
#define HEARTH_ECANCELED (-125)

/* A message up to so many bytes is one datagram, and its send is done at once. */
#define HEARTH_SHORT_BYTES 1384

struct hearth_operation {
    uint32_t length;
    uint16_t kind, flags;
    uint32_t rank, context, tag, group_size;
    const void *send;
    uint64_t send_bytes;
    void *receive;
    uint64_t receive_bytes;
    const uint64_t *send_counts, *send_offsets, *receive_counts, *receive_offsets;
    const uint32_t *group;
    uint32_t number, zero;
};

struct hearth_status {
    int32_t error;
    uint32_t rank, tag, zero;
    uint64_t bytes;
};

struct hearth_identity {
    uint32_t rank, size;
    uint64_t job;
    uint32_t outstanding_max, zero;
};

static inline long hearth_call5(long number, long a, long b, long c, long d, long e)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long hearth_self(struct hearth_identity *identity)
{
    return hearth_call5(HEARTH_SELF, (long) identity, 0, 0, 0, 0);
}

/* The number of the request, or an error. */
static inline long hearth_post(struct hearth_operation *operation)
{
    operation->length = sizeof(*operation);
    return hearth_call5(HEARTH_POST, (long) operation, sizeof(*operation), 0, 0, 0);
}

static inline long hearth_wait(uint32_t *requests, long count, struct hearth_status *statuses,
                               long flags, unsigned long micros)
{
    return hearth_call5(HEARTH_WAIT, (long) requests, count, (long) statuses, flags,
                        (long) micros);
}

static inline long hearth_cancel(uint32_t request)
{
    return hearth_call5(HEARTH_CANCEL, request, 0, 0, 0, 0);
}

#endif
