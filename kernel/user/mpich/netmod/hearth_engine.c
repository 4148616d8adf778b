/* See stubnm_impl.h.
 *
 * Invariant: callbacks of MPICH run only from hearth_engine_progress and hearth_engine_send, with
 * the lock of the one VCI held; none is called while the tables below are being changed. */
#include "stubnm_impl.h"
#include <stdio.h>
#include <string.h>
#include <x86intrin.h>

/* Buffers that wait for active messages. */
#define RING 64
/* How many of them one poll looks at. */
#define LOOK 8
/* Place of the first task in what a poll looks at: behind those and the watch. */
#define TASKS (LOOK + 1)
/* Operations under way of each kind; what is beyond waits. Each kind has a limit of its own, so
 * that two ranks full of sends to each other still receive, and data that nobody receives yet holds
 * up nothing else. */
#define PACKETS 50
#define BULKS 40
#define UNMATCHED 30
#define RECEIVES 60
#define UNDER_WAY (PACKETS + BULKS + UNMATCHED + RECEIVES)
/* Messages that wait at a rank of all others together, of the 4,096 that the kernel keeps. */
#define UNMATCHED_OF_ALL 2048
/* How long a wait may last, in microseconds: MPICH looks at other things in between. */
#define PATIENCE_ALONE 10000
#define PATIENCE_THREADED 50
/* Who looks so many times in vain, without so many cycles of work of its own in between, waits too,
 * though not for long: MPI_Test in a loop, and MPICH's waits for windows. */
#define VAIN_LOOKS 32
#define WORK_CYCLES 20000
#define PATIENCE_LOOKING 100

enum work { SEND_PACKET, SEND_DATA, RECEIVE_DATA, BARRIER, EXCHANGE };

/* An operation that the kernel has, or will get. */
struct task {
    enum work work;
    int handler;
    int to;
    uint32_t tag;
    void *buffer;               /* freed at the end; NULL where the data is the program's */
    void *data;
    uint64_t bytes;
    MPIR_Request *request;
    const struct hearth_operation *exchange;    /* until it is begun */
    struct task *bulk;          /* of a packet: its data, begun with it or not at all */
    int *under_way, limit;      /* of its kind; the data of a message that may find no receive has
                                 * its place from the beginning */
    struct task *next;
};

/* Tasks that begin in this order: MPI's messages of a pair of ranks do not overtake. */
struct queue {
    struct task *first, **end;
};

static struct {
    struct hearth_identity self;
    int ending;
    int inside;                 /* progress does not call itself */
    uint32_t next_tag;
    unsigned vain_looks;
    uint64_t looked_at;

    char *ring;
    uint32_t ring_request[RING];
    struct hearth_status ring_status[RING];
    int head;
    uint32_t watch;             /* a receive of a message that the next rank never sends */

    int count;
    uint32_t number[UNDER_WAY];
    struct task *task[UNDER_WAY];

    struct queue sends, receives;
    int packets, bulks, unmatched, unmatched_limit, receives_under_way;
} engine;

/* Ends all ranks: the others notice that this one is gone. */
static void give_up(const char *what, long error)
{
    fprintf(stderr, "MPI: rank %u: %s (%ld, %s)\n", engine.self.rank, what, error,
            strerror((int) -error));
    exit(1);
}

static void lost(uint32_t rank)
{
    fprintf(stderr, "MPI: rank %u is lost: its program has ended without MPI_Finalize, or its node "
            "is gone; rank %u ends too\n", rank, engine.self.rank);
    exit(1);
}

static char *slot(int index)
{
    return engine.ring + (size_t) index * HEARTH_SHORT_BYTES;
}

static void post_slot(int index)
{
    struct hearth_operation operation = {
        .kind = HEARTH_RECEIVE,
        .flags = HEARTH_ANY_RANK,
        .context = HEARTH_AM_CONTEXT,
        .receive = slot(index),
        .receive_bytes = HEARTH_SHORT_BYTES,
    };
    long number = hearth_post(&operation);
    if (number < 0)
        give_up("a receive was refused", number);
    engine.ring_request[index] = (uint32_t) number;
}

/* Nobody misses a message of any rank's when a rank ends with 0, and the ring goes on waiting. A
 * receive from that rank alone fails: each rank watches the next. */
static void watch_next(void)
{
    struct hearth_operation operation = {
        .kind = HEARTH_RECEIVE,
        .rank = (engine.self.rank + 1) % engine.self.size,
        .context = HEARTH_DATA_CONTEXT,
    };
    if (engine.self.size == 1)
        return;
    long number = hearth_post(&operation);
    if (number < 0)
        give_up("a receive was refused", number);
    engine.watch = (uint32_t) number;
}

int hearth_engine_begin(void)
{
    int mpi_errno = MPI_SUCCESS;
    engine.sends.end = &engine.sends.first;
    engine.receives.end = &engine.receives.first;
    long error = hearth_self(&engine.self);
    MPIR_ERR_CHKANDJUMP(error < 0, mpi_errno, MPI_ERR_OTHER, "**other");
    engine.unmatched_limit = MPL_MIN(UNMATCHED, UNMATCHED_OF_ALL / (int) engine.self.size);
    engine.ring = MPL_malloc(RING * HEARTH_SHORT_BYTES, MPL_MEM_BUFFER);
    MPIR_ERR_CHKANDJUMP(!engine.ring, mpi_errno, MPI_ERR_OTHER, "**nomem");
    for (int index = 0; index < RING; index++)
        post_slot(index);
    watch_next();
  fn_fail:
    return mpi_errno;
}

/* Hands a task to the kernel. */
static void begin(struct task *task)
{
    struct hearth_operation operation = { 0 };
    switch (task->work) {
        case SEND_PACKET:
        case SEND_DATA:
            operation.kind = HEARTH_SEND;
            operation.send = task->data;
            operation.send_bytes = task->bytes;
            break;
        case RECEIVE_DATA:
            operation.kind = HEARTH_RECEIVE;
            operation.receive = task->data;
            operation.receive_bytes = task->bytes;
            break;
        case BARRIER:
            operation.kind = HEARTH_BARRIER;
            operation.context = HEARTH_FINALIZE_CONTEXT;
            break;
        case EXCHANGE:
            operation = *task->exchange;
            break;
    }
    if (task->work < BARRIER) {
        operation.rank = (uint32_t) task->to;
        operation.tag = task->tag;
        operation.context =
            task->work == SEND_PACKET ? HEARTH_AM_CONTEXT : HEARTH_DATA_CONTEXT;
    }
    long number = hearth_post(&operation);
    if (number < 0)
        give_up("a message was refused", number);
    engine.number[engine.count] = (uint32_t) number;
    engine.task[engine.count] = task;
    engine.count++;
    if (task->limit)
        ++*task->under_way;
}

static int has_room(const struct task *task)
{
    return !task || !task->limit || *task->under_way < task->limit;
}

static void begin_what_may(struct queue *queue)
{
    while (queue->first) {
        struct task *task = queue->first;
        struct task *next = task->next, *bulk = task->bulk;
        if (!has_room(task) || !has_room(bulk))
            return;
        queue->first = next;
        if (!next)
            queue->end = &queue->first;
        begin(task);
        if (bulk)
            begin(bulk);
    }
}

static void enqueue(struct queue *queue, struct task *task)
{
    task->next = NULL;
    *queue->end = task;
    queue->end = &task->next;
    begin_what_may(queue);
}

static struct task *new_task(enum work work, int rank, uint32_t tag, size_t buffer_bytes)
{
    struct task *task = MPL_calloc(1, sizeof(*task), MPL_MEM_BUFFER);
    if (task && buffer_bytes) {
        task->buffer = MPL_malloc(buffer_bytes, MPL_MEM_BUFFER);
    }
    if (!task || (buffer_bytes && !task->buffer))
        give_up("no memory for a message", -12);
    task->work = work;
    task->under_way = work == SEND_DATA ? &engine.bulks : work == RECEIVE_DATA ?
        &engine.receives_under_way : &engine.packets;
    task->limit = work == SEND_DATA ? BULKS : work == RECEIVE_DATA ? RECEIVES : PACKETS;
    task->to = rank;
    task->tag = tag;
    task->data = task->buffer;
    task->bytes = buffer_bytes;
    return task;
}

void hearth_engine_exchange(const struct hearth_operation *operation,
                            struct hearth_exchange *exchange)
{
    struct task *task = new_task(EXCHANGE, 0, 0, sizeof(*operation));
    memcpy(task->buffer, operation, sizeof(*operation));
    task->exchange = task->buffer;
    task->data = exchange;
    enqueue(&engine.sends, task);
}

static void free_task(struct task *task)
{
    MPL_free(task->buffer);
    MPL_free(task);
}

int hearth_engine_send(int world_rank, int handler, const void *header, MPI_Aint header_bytes,
                       const void *data, MPI_Aint count, MPI_Datatype datatype, MPIR_Request * sreq)
{
    int mpi_errno = MPI_SUCCESS;
    int is_contiguous = 1;
    MPI_Aint data_bytes = 0, lower_bound = 0, packed;
    MPIR_Datatype *type;

    if (sreq)
        MPIDI_Datatype_get_info(count, datatype, is_contiguous, data_bytes, type, lower_bound);
    MPIR_Assert(header_bytes <= HEARTH_AM_ROOM);
    int is_short = header_bytes + data_bytes <= HEARTH_AM_ROOM;

    struct hearth_am_header ours = {
        .handler = (uint16_t) handler,
        .header_bytes = (uint16_t) header_bytes,
        .data_tag = is_short ? 0 : ++engine.next_tag,
        .data_bytes = (uint64_t) data_bytes,
    };
    size_t bytes = sizeof(ours) + header_bytes + (is_short ? data_bytes : 0);
    struct task *packet = new_task(SEND_PACKET, world_rank, 0, bytes);
    char *at = packet->buffer;
    memcpy(at, &ours, sizeof(ours));
    at += sizeof(ours);
    memcpy(at, header, header_bytes);
    at += header_bytes;
    if (is_short && data_bytes) {
        mpi_errno = MPIR_Typerep_pack(data, count, datatype, 0, at, data_bytes, &packed);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (is_short) {
        enqueue(&engine.sends, packet);
        /* The data is in the packet: the request is done. */
        if (sreq)
            mpi_errno = MPIDIG_global.origin_cbs[handler] (sreq);
        goto fn_exit;
    }
    struct task *bulk = new_task(SEND_DATA, world_rank, ours.data_tag,
                                 is_contiguous ? 0 : data_bytes);
    if (is_contiguous) {
        bulk->data = MPIR_get_contig_ptr(data, lower_bound);
        bulk->bytes = data_bytes;
    } else {
        mpi_errno = MPIR_Typerep_pack(data, count, datatype, 0, bulk->buffer, data_bytes, &packed);
        MPIR_ERR_CHECK(mpi_errno);
    }
    bulk->handler = handler;
    bulk->request = sreq;
    if (handler == MPIDIG_SEND) {
        /* hearth_engine_may_send has seen that there is room. */
        bulk->under_way = &engine.unmatched;
        bulk->limit = 0;
        engine.unmatched++;
    }
    packet->bulk = bulk;
    enqueue(&engine.sends, packet);
  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

int hearth_engine_may_send(MPI_Aint header_bytes, MPI_Aint data_bytes)
{
    return header_bytes + data_bytes <= HEARTH_AM_ROOM
        || engine.unmatched < engine.unmatched_limit;
}

int hearth_engine_receive(MPIR_Request * rreq)
{
    const MPIDI_STUBNM_am_request_t *from = &MPIDI_STUBNM_AM(rreq);
    int is_contiguous = 0, is_gpu = 0;
    void *room = NULL;
    MPI_Aint room_bytes = 0, bytes = (MPI_Aint) from->data_bytes;

    MPIDIG_get_recv_data(&is_contiguous, &is_gpu, &room, &room_bytes, rreq);
    int is_straight = is_contiguous && room_bytes >= bytes;
    struct task *task = new_task(RECEIVE_DATA, from->rank, from->data_tag, is_straight ? 0 : bytes);
    if (is_straight) {
        task->data = room;
        task->bytes = bytes;
    }
    task->request = rreq;
    enqueue(&engine.receives, task);
    return MPI_SUCCESS;
}

static void handle_packet(int index)
{
    struct hearth_am_header ours;
    char *at = slot(index);
    MPIR_Request *rreq = NULL;

    memcpy(&ours, at, sizeof(ours));
    at += sizeof(ours);
    if (ours.data_tag == 0) {
        MPIDIG_global.target_msg_cbs[ours.handler] (at, at + ours.header_bytes, ours.data_bytes, 0,
                                                    NULL);
        return;
    }
    MPIDIG_global.target_msg_cbs[ours.handler] (at, NULL, ours.data_bytes,
                                                MPIDIG_AM_ATTR__IS_ASYNC | MPIDIG_AM_ATTR__IS_RNDV,
                                                &rreq);
    MPIR_Assert(rreq);
    MPIDI_STUBNM_AM(rreq).rank = (int) engine.ring_status[index].rank;
    MPIDI_STUBNM_AM(rreq).data_tag = ours.data_tag;
    MPIDI_STUBNM_AM(rreq).data_bytes = ours.data_bytes;
    /* Where no receive is there yet, MPICH calls hearth_engine_receive when there is. */
    if (MPIDIG_recv_initialized(rreq))
        hearth_engine_receive(rreq);
}

static int finish(struct task *task, const struct hearth_status *status)
{
    int mpi_errno = MPI_SUCCESS;
    if (status->error == HEARTH_ELOST) {
        if (!engine.ending)
            lost(status->rank);
    } else if (status->error && task->work != EXCHANGE) {
        give_up("a message failed", status->error);
    }
    switch (task->work) {
        case SEND_PACKET:
            break;
        case SEND_DATA:
            mpi_errno = MPIDIG_global.origin_cbs[task->handler] (task->request);
            break;
        case RECEIVE_DATA:
            MPIDIG_recv_setup(task->request);
            if (task->buffer)
                MPIDIG_recv_copy_seg(task->buffer, task->bytes, task->request);
            mpi_errno = MPIDIG_REQUEST(task->request, req->target_cmpl_cb) (task->request);
            break;
        case BARRIER:
            engine.ending = 2;
            break;
        case EXCHANGE:
            hearth_exchange_done(task->data, status->error);
            break;
    }
    free_task(task);
    return mpi_errno;
}

/* What a poll has found: places of the ring, from its head on, the watch, then tasks. */
static int carry_out(uint32_t * list, struct hearth_status *statuses, int total)
{
    int mpi_errno = MPI_SUCCESS, errors = MPI_SUCCESS;
    struct task *finished[UNDER_WAY];
    struct hearth_status status_of[UNDER_WAY];
    int finished_count = 0, kept = 0;

    for (int place = TASKS; place < total; place++) {
        int index = place - TASKS;
        if (list[place] == 0) {
            --*engine.task[index]->under_way;
            status_of[finished_count] = statuses[place];
            finished[finished_count++] = engine.task[index];
        } else {
            engine.number[kept] = engine.number[index];
            engine.task[kept++] = engine.task[index];
        }
    }
    engine.count = kept;
    for (int place = 0; place < LOOK; place++) {
        int index = (engine.head + place) % RING;
        if (list[place] == 0 && engine.ring_request[index] != 0) {
            engine.ring_request[index] = 0;
            engine.ring_status[index] = statuses[place];
        }
    }
    while (engine.ring_request[engine.head] == 0) {
        int index = engine.head;
        struct hearth_status *status = &engine.ring_status[index];
        engine.head = (index + 1) % RING;
        if (status->error == 0) {
            handle_packet(index);
        } else if (status->error != HEARTH_ELOST) {
            give_up("a receive failed", status->error);
        } else if (!engine.ending) {
            lost(status->rank);
        }
        post_slot(index);
    }
    if (engine.watch && list[LOOK] == 0) {
        engine.watch = 0;
        if (!engine.ending)
            lost(statuses[LOOK].rank);
    }
    for (int i = 0; i < finished_count; i++) {
        mpi_errno = finish(finished[i], &status_of[i]);
        if (mpi_errno)
            errors = mpi_errno;
    }
    return errors;
}

/* How long this look may last where nothing is there. */
static unsigned long patience_of(int blocking)
{
    uint64_t now = __rdtsc();
    engine.vain_looks = now - engine.looked_at < WORK_CYCLES ? engine.vain_looks + 1 : 0;
    if (MPIR_ThreadInfo.isThreaded)
        return blocking ? PATIENCE_THREADED : 0;
    if (blocking)
        return PATIENCE_ALONE;
    return engine.vain_looks < VAIN_LOOKS ? 0 : PATIENCE_LOOKING;
}

int hearth_engine_progress(int blocking)
{
    int mpi_errno = MPI_SUCCESS;
    uint32_t list[TASKS + UNDER_WAY];
    struct hearth_status statuses[TASKS + UNDER_WAY];

    if (engine.inside || !engine.ring)
        return MPI_SUCCESS;
    engine.inside = 1;
    begin_what_may(&engine.receives);
    begin_what_may(&engine.sends);
    for (int place = 0; place < LOOK; place++)
        list[place] = engine.ring_request[(engine.head + place) % RING];
    list[LOOK] = engine.watch;
    memcpy(list + TASKS, engine.number, engine.count * sizeof(*list));
    int total = TASKS + engine.count;
    long found = hearth_wait(list, total, statuses, 0, 0);
    unsigned long patience = found == 0 ? patience_of(blocking) : 0;
    if (patience) {
        struct hearth_status status;
        found = hearth_wait(list, total, &status, HEARTH_WAIT_ANY, patience);
        if (found > 0)
            statuses[found - 1] = status;
    }
    if (found < 0)
        give_up("waiting failed", found);
    if (found > 0) {
        engine.vain_looks = 0;
        mpi_errno = carry_out(list, statuses, total);
    }
    engine.inside = 0;
    engine.looked_at = __rdtsc();
    return mpi_errno;
}

int hearth_engine_end(void)
{
    int mpi_errno = MPI_SUCCESS;
    engine.ending = 1;
    enqueue(&engine.sends, new_task(BARRIER, 0, 0, 0));
    while (engine.ending != 2 || engine.count || engine.sends.first) {
        mpi_errno = hearth_engine_progress(1);
        MPIR_ERR_CHECK(mpi_errno);
    }
    for (int index = 0; index < RING; index++)
        hearth_cancel(engine.ring_request[index]);
    if (engine.watch)
        hearth_cancel(engine.watch);
    MPL_free(engine.ring);
    engine.ring = NULL;
  fn_fail:
    return mpi_errno;
}
