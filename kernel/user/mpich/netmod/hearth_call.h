/* The kernel's calls for data between ranks, for waits with a limit, which hearth.h has not.
 *
 * Structures and numbers are those of hearth.h; docs/abi.md says what they mean.
 * Neighbours: hearth_engine.c and pmi.c are the users.
 * Never here: anything of MPI. */
#ifndef HEARTH_CALL_H_INCLUDED
#define HEARTH_CALL_H_INCLUDED

#include "hearth.h"

/* Numbers of calls. */
enum { HEARTH_SELF = 4097, HEARTH_POST = 4098, HEARTH_WAIT = 4099, HEARTH_CANCEL = 4100 };
/* Flag of a wait: takes one request that has finished. */
enum { HEARTH_WAIT_ANY = 1 };

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

static inline long hearth_call_self(struct hearth_identity *identity)
{
    return hearth_call5(HEARTH_SELF, (long) identity, 0, 0, 0, 0);
}

/* The number of the request, or an error. */
static inline long hearth_call_post(struct hearth_operation *operation)
{
    operation->length = sizeof(*operation);
    return hearth_call5(HEARTH_POST, (long) operation, sizeof(*operation), 0, 0, 0);
}

static inline long hearth_call_wait(uint32_t *requests, long count,
                                    struct hearth_status *statuses, long flags,
                                    unsigned long micros)
{
    return hearth_call5(HEARTH_WAIT, (long) requests, count, (long) statuses, flags,
                        (long) micros);
}

static inline long hearth_call_cancel(uint32_t request)
{
    return hearth_call5(HEARTH_CANCEL, request, 0, 0, 0, 0);
}

#endif
