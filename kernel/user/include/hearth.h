/* hearth.h: how the ranks of a job talk. For C and C++.
 *
 *   gcc -static -O2 -o app app.c -I.../include -L.../lib -lhearth
 *   hearth run -n 8 ./app
 *
 * A job is one program on several nodes, one rank on each, numbered from 0 on. Functions return 0,
 * or a negative number of the list below; hearth_strerror says it in words. A rank that ends or
 * whose node dies makes operations that need it fail with HEARTH_ELOST in all other ranks, within
 * seconds; hearth_named_rank says which it was.
 *
 * All threads of a program may call these functions, at the same time too. Two receives that match
 * one message are in the order in which they were posted, so give threads tags of their own.
 * Collective functions are of the program: one thread at a time calls them.
 *
 * Collective functions (barrier to allreduce) are called by all ranks, in the same order, with
 * matching lengths. Lengths are in bytes where the pointer is to void, but for the reductions,
 * which count values. Where lengths, groups or calls differ the ranks fail with HEARTH_EPROTO, where
 * one cannot go on with HEARTH_ECANCELED; those that had done their part before that was noticed, or
 * before a rank was lost, may have succeeded. */
#ifndef HEARTH_H
#define HEARTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors. Their numbers are those of Linux. */
#define HEARTH_EFAULT (-14)    /* a buffer is not the program's memory */
#define HEARTH_EAGAIN (-11)    /* no room now for a message that is forgotten */
#define HEARTH_ENOMEM (-12)    /* no memory for a temporary buffer */
#define HEARTH_EINVAL (-22)    /* an argument makes no sense */
#define HEARTH_ENOSPC (-28)    /* too many contexts were used for exchanges and barriers: use one of these again */
#define HEARTH_ENOSYS (-38)    /* the program does not run on a Hearth node */
#define HEARTH_ENODATA (-61)   /* the job's connection table has not come */
#define HEARTH_EPROTO (-71)    /* a rank sends another number of bytes than is expected of it, names another group, or calls something else */
#define HEARTH_EMSGSIZE (-90)  /* a message does not fit the receive */
#define HEARTH_ENOBUFS (-105)  /* too many operations are outstanding: wait for some; or too many messages wait here: receive some */
#define HEARTH_ELOST (-112)    /* a rank has ended or its node is gone */
#define HEARTH_ECANCELED (-125)/* a rank has taken back its part (hearth_named_rank says which) */

/* In words; never null, not to be freed. */
const char *hearth_strerror(int error);
/* The rank that the last error of a function named that this thread called, -1 for none. */
int hearth_named_rank(void);

/* Who we are. Negative: an error. */
int hearth_rank(void);
int hearth_size(void);
/* Seconds since some point in the past of this node. */
double hearth_wtime(void);
/* From now on whoever waits does not halt the processor (on = 1), which saves the time to wake up,
 * or does (on = 0). */
void hearth_spin(int on);

/* Sets counter 0 to 15 of this rank. Who watches the job (hearth overlay open) sees the value that
 * it has at each tick. */
int hearth_count(int counter, int64_t value);

/* What the counters are called, for whoever watches: HEARTH_COUNTERS("steps,residual"); once,
 * outside functions. The names stand in the program's file, in the order of the counters; letters,
 * digits and _-./ and blanks, up to 32 for each. */
#define HEARTH_COUNTERS(names)                                                                          \
    __attribute__((used, aligned(4), section(".note.hearth"))) static const struct {                    \
        uint32_t owner_bytes, bytes, type;                                                              \
        char owner[8], text[sizeof(names)];                                                             \
    } hearth_counters_note = {7, sizeof(names), 1, "Hearth", names}

/* How an operation ended. */
struct hearth_status {
    int32_t error;  /* 0 or one of the list above */
    uint32_t rank;  /* the other rank; with HEARTH_ELOST, HEARTH_EPROTO and HEARTH_ECANCELED the one at fault */
    uint32_t tag;   /* rank and tag are those of the message also with HEARTH_EMSGSIZE */
    uint32_t zero;
    uint64_t bytes; /* received; with HEARTH_EMSGSIZE the length of the message */
};

/* Messages. A receive takes the messages of one rank with one tag, in the order in which they were
 * sent. A send returns when its bytes may be used again: of a message longer than a datagram when
 * it has been received. status may be NULL. Instead of a rank or a tag a receive may take any;
 * status says whose message it was. One that takes any rank's fails with HEARTH_ELOST once for each
 * rank that is lost, but not for one that has ended without an error, as long as another is left. */
#define HEARTH_ANY_RANK (-1)
#define HEARTH_ANY_TAG UINT32_MAX /* not to be sent */
int hearth_send(const void *data, size_t bytes, int to, uint32_t tag);
int hearth_recv(void *into, size_t bytes, int from, uint32_t tag, struct hearth_status *status);
/* As hearth_send, but returns only when a receive has taken the message, however short it is. */
int hearth_ssend(const void *data, size_t bytes, int to, uint32_t tag);

/* The same in the background. Until the request has been waited for, tested as done or cancelled,
 * the bytes must stay as they are, and room to receive is nobody else's. At most 65,536 may be
 * outstanding, as far as the node has memory for them. */
typedef uint32_t hearth_request;
#define HEARTH_NO_REQUEST 0
int hearth_isend(const void *data, size_t bytes, int to, uint32_t tag, hearth_request *request);
int hearth_issend(const void *data, size_t bytes, int to, uint32_t tag, hearth_request *request);
int hearth_irecv(void *into, size_t bytes, int from, uint32_t tag, hearth_request *request);
/* Waits and makes the request HEARTH_NO_REQUEST, which all of these pass over. status may be NULL.
 */
int hearth_wait(hearth_request *request, struct hearth_status *status);
/* Waits for all; statuses may be NULL. Returns the first error when all have finished. */
int hearth_waitall(size_t count, hearth_request *requests, struct hearth_status *statuses);
/* Waits for one and says which; index -1: there was none. */
int hearth_waitany(size_t count, hearth_request *requests, int *index, struct hearth_status *status);
/* Does not wait: done says whether it has finished. */
int hearth_test(hearth_request *request, int *done, struct hearth_status *status);
/* Takes a request back: when this returns its memory is not touched any more. */
int hearth_cancel(hearth_request *request);

/* Looks for a message that a receive with the same rank and tag would take; status says whose it is,
 * its tag and its bytes. The message stays. hearth_probe waits for one; hearth_iprobe does not: found
 * says whether there is one. */
int hearth_probe(int from, uint32_t tag, struct hearth_status *status);
int hearth_iprobe(int from, uint32_t tag, int *found, struct hearth_status *status);
/* The same, and keeps the message: no other receive or probe finds it. It is received by
 * hearth_mrecv or hearth_imrecv, which make it HEARTH_NO_MESSAGE; hearth_mrelease lets it go, so that
 * it waits as before. A message counts as an operation that is outstanding. */
typedef uint32_t hearth_message;
#define HEARTH_NO_MESSAGE 0
int hearth_mprobe(int from, uint32_t tag, hearth_message *message, struct hearth_status *status);
int hearth_improbe(int from, uint32_t tag, int *found, hearth_message *message,
                   struct hearth_status *status);
int hearth_mrecv(void *into, size_t bytes, hearth_message *message, struct hearth_status *status);
int hearth_imrecv(void *into, size_t bytes, hearth_message *message, hearth_request *request);
int hearth_mrelease(hearth_message *message);

/* Gives memory for messages that nobody receives yet, until the program ends: 64 bytes for each and
 * its own, up to 1,384. Without it 4,096 may wait at a rank; more of one rank hide those behind them.
 * May be called again with other memory. */
int hearth_room(void *memory, size_t bytes);

/* Posts any operation, in any context: for bindings of other libraries. docs/abi.md says what the
 * fields mean ("Calls between ranks"); length is filled in. The request is waited for as any other;
 * HEARTH_NO_REQUEST: nothing was posted (a probe that does not wait has found nothing, or a flag asks
 * for that). Contexts from 32,768 on are the library's. */
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
enum hearth_kind { HEARTH_SEND = 1, HEARTH_RECEIVE, HEARTH_ALLTOALL, HEARTH_BARRIER, HEARTH_PROBE, HEARTH_ROOM };
enum hearth_flag {
    HEARTH_FROM_ANY = 1,     /* of a receive or probe: of any rank; rank is then 0 */
    HEARTH_WITH_ANY = 2,     /* of a receive or probe: with any tag; tag is then 0 */
    HEARTH_SYNCHRONOUS = 16, /* of a send: done when a receive has taken it */
    HEARTH_CLAIM = 32,       /* of a probe: keeps the message, by the request's number */
    HEARTH_NOW = 64,         /* of a probe: does not wait */
    HEARTH_CLAIMED = 128,    /* of a receive: of the message that number keeps; rank, context, tag 0 */
    HEARTH_FORGET = 256      /* of a send of up to 1,384 bytes: the kernel has a copy, and nothing is
                              * waited for; HEARTH_EAGAIN without room for it */
};
int hearth_post(const struct hearth_operation *operation, hearth_request *request);

/* Returns when all ranks have called it. */
int hearth_barrier(void);
/* Block i of send goes to rank i, which finds it as block of this rank in receive; each block has
 * so many bytes. */
int hearth_alltoall(const void *send, void *receive, size_t bytes);
/* The same with blocks of any length: for each rank how many bytes, and where they begin. */
int hearth_alltoallv(const void *send, const size_t *send_counts, const size_t *send_offsets,
                     void *receive, const size_t *receive_counts, const size_t *receive_offsets);
/* Some ranks of the job, for exchanges and barriers among them. All of them name the same ranks in
 * the same order; where a rank stands in the list is its number in the group. Groups may share a
 * context, 1 to 32767, as long as no rank is in two of them: rows of a grid have one context, its
 * columns another. number is 0, but where some ranks have used the context in another group: then
 * one that all have agreed upon and none has reached, for the first call of the group. */
struct hearth_group {
    const uint32_t *ranks;
    uint32_t size;
    uint32_t context;
    uint32_t number;
};
/* As hearth_barrier, hearth_alltoall and hearth_alltoallv, with the ranks of the group. */
int hearth_group_barrier(const struct hearth_group *group);
int hearth_group_alltoall(const struct hearth_group *group, const void *send, void *receive,
                          size_t bytes);
int hearth_group_alltoallv(const struct hearth_group *group, const void *send,
                           const size_t *send_counts, const size_t *send_offsets, void *receive,
                           const size_t *receive_counts, const size_t *receive_offsets);
/* data of the root to all. */
int hearth_bcast(void *data, size_t bytes, int root);
/* A block of each rank, in the order of the ranks, to the root (the others' receive may be NULL),
 * to all; and from the root. */
int hearth_gather(const void *send, void *receive, size_t bytes, int root);
int hearth_allgather(const void *send, void *receive, size_t bytes);
int hearth_scatter(const void *send, void *receive, size_t bytes, int root);

/* Reductions combine the values of all ranks place by place, always in the same order: equal runs
 * give equal bits. */
enum hearth_type { HEARTH_INT32 = 1, HEARTH_UINT32, HEARTH_INT64, HEARTH_UINT64, HEARTH_FLOAT, HEARTH_DOUBLE };
enum hearth_op { HEARTH_SUM = 1, HEARTH_PRODUCT, HEARTH_MIN, HEARTH_MAX };
/* values of the root become the result; those of the others are unchanged. */
int hearth_reduce(void *values, size_t count, int type, int op, int root);
/* values of every rank become the result. */
int hearth_allreduce(void *values, size_t count, int type, int op);

#ifdef __cplusplus
}
#endif
#endif
