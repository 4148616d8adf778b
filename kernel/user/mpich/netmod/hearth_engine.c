/* See stubnm_impl.h.
 *
 * Invariant: callbacks of MPICH run only from hearth_engine_progress and hearth_engine_send, with
 * the lock of the one VCI held; none is called while the tables below are being changed. */
#include "stubnm_impl.h"
#include "hearth_call.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

/* Buffers that wait for active messages. */
#define RING 64
/* How many of them one look has, at most: twice as many as before where all were found, else as
 * many as were found. One in vain costs as much as a call of the kernel, so it is one more only after
 * some looks that found theirs. */
#define LOOK_MOST 8
#define FULL_LOOKS 16
/* How many operations one look has besides: the kernel goes through all of them at each packet. */
#define SCAN 64
/* Short packets are forgotten: the kernel keeps copies of up to 64 KiB of them until they have
 * arrived. One without room there is an operation like all others, and is under way until it has
 * arrived itself.
 * Operations under way of each kind; what is beyond waits in the program. Each kind has a limit of
 * its own, so that two ranks full of sends to each other still receive, and data that nobody
 * receives yet holds up nothing else. All of them together are far from the 65,536 that the kernel
 * allows, whose heap they take.
 * Packets: the kernel announces what has no room at the other end again and again, so that more of
 * them cost time: with 1,024 tests/mpi/flood.c took half as long again, twice on a busy machine. */
#define PACKETS 64
/* Packets that wait in the program, at most: about 6 MB. Who sends more waits until ranks that they
 * are for have called MPI; with several threads one of WAITING_MORE waits, for PATIENCE_LOOKING.
 * With so many more the engine looks whether some have arrived. */
#define WAITING 4096
#define WAITING_MORE 16
/* Nobody waits for a packet's end: a look has them when there are so many, and when others wait. */
#define PACKETS_FEW 16
/* Data that may find no receive: of each of them the kernel at the other end keeps a note. */
#define UNMATCHED 128
/* Data that is asked for, and that is asked for here: enough to have the link busy with messages of
 * two packets. */
#define BULKS 256
#define RECEIVES 256
/* Exchanges and barriers count among the packets, and are in `tasks`. */
#define UNDER_WAY (PACKETS + UNMATCHED + BULKS + RECEIVES)
#define LIST_MOST (LOOK_MOST + SCAN + PACKETS + 1)
/* Messages that wait at a rank of all others together, of the 4,096 that the kernel keeps. */
#define UNMATCHED_OF_ALL 2048
/* How long a wait may last, in microseconds: MPICH looks at other things in between. */
#define PATIENCE_ALONE 10000
/* With several threads who waits, or looks in vain, lets go of the lock and sleeps: twice as long
 * with each look in vain, up to 2 to the power of DOUBLINGS times as long, until some thread does something. */
#define NAP_MICROS 50
#define DOUBLINGS 5
/* Who looks so many times in vain, with less time in between than a look takes, waits too, though
 * not for long: MPI_Test in a loop, and MPICH's waits for windows. Work of a program between its
 * looks takes longer. */
#define VAIN_LOOKS 4
#define PATIENCE_LOOKING 1000
/* And where one look has not all operations: the next has others. */
#define PATIENCE_MANY 200

enum work { SEND_PACKET, SEND_DATA, RECEIVE_DATA, REFUSE_DATA, BARRIER, EXCHANGE };

/* An operation that the kernel has, or will get. A buffer of its own lies behind it. */
struct task {
    enum work work;
    int handler;
    int to;
    uint32_t tag;
    int has_buffer, is_of_pool;
    void *data;
    uint64_t bytes;
    MPIR_Request *request;
    struct hearth_exchange *exchange;   /* with the operation in the buffer */
    struct task *bulk;          /* of a packet: its data, begun with it or not at all */
    int *under_way, limit;      /* of its kind; the data of a message that may find no receive has
                                 * its place from the beginning */
    struct task *next;
};

/* Tasks under way, and the kernel's numbers of them. */
struct set {
    int count;
    uint32_t *number;
    struct task **task;
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
    unsigned vain_looks, naps;
    uint64_t looked_at;

    char *ring;
    uint32_t ring_request[RING];
    struct hearth_status ring_status[RING];
    int head, look, full_looks;
    uint32_t watch;             /* a receive of a message that the next rank never sends */

    struct set tasks, sent;     /* packets are in `sent` */
    int scanned;                /* the next look has tasks from there on */
    uint32_t task_number[UNDER_WAY], sent_number[PACKETS];
    struct task *task[UNDER_WAY], *sent_task[PACKETS];

    uint32_t list[LIST_MOST];   /* what a look has */
    struct hearth_status statuses[LIST_MOST];

    struct queue sends, receives;
    struct task *pool;          /* packets that nobody uses, each with room for the longest */
    int packets, bulks, unmatched, unmatched_limit, receives_under_way;
    int waiting;                /* packets in `sends` */
    int is_sending;             /* progress is made for room, inside a call that sends */

    /* The packet that is being made, and how it is handed over. */
    _Alignas(16) char packet[HEARTH_SHORT_BYTES];
    struct hearth_operation packet_send, packet_receive;
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
    engine.packet_receive.receive = slot(index);
    long number = hearth_call_post(&engine.packet_receive);
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
    long number = hearth_call_post(&operation);
    if (number < 0)
        give_up("a receive was refused", number);
    engine.watch = (uint32_t) number;
}

static struct task *allocate(size_t buffer_bytes)
{
    struct task *task = MPL_malloc(sizeof(*task) + buffer_bytes, MPL_MEM_BUFFER);
    if (!task)
        give_up("no memory for a message", HEARTH_ENOMEM);
    return task;
}

/* As many as may be under way are of the pool; what waits in the program takes what it needs. */
static void fill_pool(void)
{
    for (int count = 0; count < PACKETS; count++) {
        struct task *task = allocate(HEARTH_SHORT_BYTES);
        task->next = engine.pool;
        engine.pool = task;
    }
}

int hearth_engine_begin(void)
{
    int mpi_errno = MPI_SUCCESS;
    engine.sends.end = &engine.sends.first;
    engine.receives.end = &engine.receives.first;
    engine.tasks = (struct set) {0, engine.task_number, engine.task};
    engine.sent = (struct set) {0, engine.sent_number, engine.sent_task};
    long error = hearth_call_self(&engine.self);
    MPIR_ERR_CHKANDJUMP(error < 0, mpi_errno, MPI_ERR_OTHER, "**other");
    engine.packet_send = (struct hearth_operation) {
        .kind = HEARTH_SEND,
        .flags = HEARTH_FORGET,
        .context = HEARTH_AM_CONTEXT,
        .send = engine.packet,
    };
    engine.packet_receive = (struct hearth_operation) {
        .kind = HEARTH_RECEIVE,
        .flags = HEARTH_FROM_ANY,
        .context = HEARTH_AM_CONTEXT,
        .receive_bytes = HEARTH_SHORT_BYTES,
    };
    engine.unmatched_limit = MPL_MIN(UNMATCHED, UNMATCHED_OF_ALL / (int) engine.self.size);
    engine.look = 1;
    engine.ring = MPL_malloc(RING * HEARTH_SHORT_BYTES, MPL_MEM_BUFFER);
    MPIR_ERR_CHKANDJUMP(!engine.ring, mpi_errno, MPI_ERR_OTHER, "**nomem");
    for (int index = 0; index < RING; index++)
        post_slot(index);
    fill_pool();
    watch_next();
  fn_fail:
    return mpi_errno;
}

/* Hands a task to the kernel, if that has memory for it. */
static int begin(struct task *task)
{
    struct hearth_operation operation = {
        .rank = (uint32_t) task->to,
        .tag = task->tag,
        .context = task->work == SEND_PACKET ? HEARTH_AM_CONTEXT : HEARTH_DATA_CONTEXT,
    };
    switch (task->work) {
        case SEND_PACKET:
        case SEND_DATA:
            operation.kind = HEARTH_SEND;
            operation.send = task->data;
            operation.send_bytes = task->bytes;
            break;
        case REFUSE_DATA:
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
            memcpy(&operation, task->data, sizeof(operation));
            break;
    }
    long number = hearth_call_post(&operation);
    if ((number == HEARTH_ENOMEM || number == HEARTH_ENOBUFS)
        && engine.tasks.count + engine.sent.count)
        return 0;
    if (number < 0)
        give_up("a message was refused", number);
    struct set *set = task->work == SEND_PACKET ? &engine.sent : &engine.tasks;
    set->number[set->count] = (uint32_t) number;
    set->task[set->count] = task;
    set->count++;
    if (task->limit)
        ++*task->under_way;
    return 1;
}

static int has_room(const struct task *task)
{
    return !task || !task->limit || *task->under_way < task->limit;
}

/* Data begins before its packet: nobody waits for what has not begun. */
static void begin_what_may(struct queue *queue)
{
    while (queue->first) {
        struct task *task = queue->first;
        struct task *next = task->next;
        if (!has_room(task) || !has_room(task->bulk))
            return;
        if (task->bulk) {
            if (!begin(task->bulk))
                return;
            task->bulk = NULL;
        }
        if (!begin(task))
            return;
        engine.waiting -= task->work == SEND_PACKET;
        queue->first = next;
        if (!next)
            queue->end = &queue->first;
    }
}

static void enqueue(struct queue *queue, struct task *task)
{
    engine.naps = 0;
    engine.waiting += task->work == SEND_PACKET;
    task->next = NULL;
    *queue->end = task;
    queue->end = &task->next;
    begin_what_may(queue);
}

static void free_task(struct task *task)
{
    if (task->is_of_pool) {
        task->next = engine.pool;
        engine.pool = task;
    } else {
        MPL_free(task);
    }
}

static struct task *new_task(enum work work, int rank, uint32_t tag, size_t buffer_bytes)
{
    struct task *task = engine.pool;
    int is_of_pool = work == SEND_PACKET && task;
    if (is_of_pool)
        engine.pool = task->next;
    else
        task = allocate(buffer_bytes);
    *task = (struct task) {
        .work = work,
        .to = rank,
        .tag = tag,
        .has_buffer = buffer_bytes > 0,
        .is_of_pool = is_of_pool,
        .data = task + 1,
        .bytes = buffer_bytes,
        .under_way = &engine.packets,
        .limit = PACKETS,
    };
    if (work == SEND_DATA) {
        task->under_way = &engine.bulks;
        task->limit = BULKS;
    } else if (work == RECEIVE_DATA || work == REFUSE_DATA) {
        task->under_way = &engine.receives_under_way;
        task->limit = RECEIVES;
    }
    return task;
}

void hearth_engine_exchange(const struct hearth_operation *operation,
                            struct hearth_exchange *exchange)
{
    struct task *task = new_task(EXCHANGE, 0, 0, sizeof(*operation));
    memcpy(task->data, operation, sizeof(*operation));
    task->exchange = exchange;
    enqueue(&engine.sends, task);
}

/* Whether the kernel has taken the packet: then nothing of it is left to do here. Behind packets that
 * wait it may not go. */
static int has_taken(int to, size_t bytes)
{
    if (engine.sends.first)
        return 0;
    engine.packet_send.rank = (uint32_t) to;
    engine.packet_send.send_bytes = bytes;
    long result = hearth_call_post(&engine.packet_send);
    if (result == HEARTH_EAGAIN || result == HEARTH_ENOMEM)
        return 0;
    if (result == HEARTH_ELOST && !engine.ending)
        lost((uint32_t) to);
    if (result < 0 && result != HEARTH_ELOST)
        give_up("a message was refused", result);
    engine.naps = 0;
    return 1;
}

/* Sends that find no room follow each other here without any other call of MPI. */
static int make_room(void)
{
    int mpi_errno = MPI_SUCCESS;
    if (engine.inside || engine.waiting == 0
        || (engine.waiting % WAITING_MORE
            && (engine.waiting < WAITING || MPIR_ThreadInfo.isThreaded)))
        return MPI_SUCCESS;
    engine.is_sending = 1;
    engine.vain_looks = 0;
    mpi_errno = hearth_engine_progress(0);
    /* With several threads one look: a receiver may wait for one that wants the lock. It cannot be let
     * go: MPICH may be in the middle of things here, where no other thread may find it. */
    while (mpi_errno == MPI_SUCCESS && engine.waiting >= WAITING) {
        mpi_errno = hearth_engine_progress(1);
        if (MPIR_ThreadInfo.isThreaded)
            break;
    }
    engine.is_sending = 0;
    return mpi_errno;
}

/* Sends the packet that was made. */
static int send_packet(int to, size_t bytes)
{
    if (has_taken(to, bytes))
        return MPI_SUCCESS;
    struct task *task = new_task(SEND_PACKET, to, 0, bytes);
    memcpy(task->data, engine.packet, bytes);
    enqueue(&engine.sends, task);
    return make_room();
}

/* Begins a packet; where the data goes in it. */
static char *make_packet(int handler, const void *header, MPI_Aint header_bytes, uint32_t data_tag,
                         MPI_Aint data_bytes)
{
    struct hearth_am_header *ours = (struct hearth_am_header *) engine.packet;
    *ours = (struct hearth_am_header) {
        .handler = (uint16_t) handler,
        .header_bytes = (uint16_t) header_bytes,
        .data_tag = data_tag,
        .data_bytes = (uint64_t) data_bytes,
    };
    memcpy(ours + 1, header, header_bytes);
    return (char *) (ours + 1) + header_bytes;
}

int hearth_engine_send_short(int world_rank, const MPIDIG_hdr_t * header, const void *data,
                             MPI_Aint data_bytes)
{
    char *at = make_packet(MPIDIG_SEND, header, sizeof(*header), 0, data_bytes);
    if (data_bytes)
        memcpy(at, data, data_bytes);
    return send_packet(world_rank, at + data_bytes - engine.packet);
}

/* 0 says that there is no such message. */
static uint32_t next_data_tag(void)
{
    engine.next_tag += 1 + (engine.next_tag == UINT32_MAX);
    return engine.next_tag;
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

    uint32_t data_tag = is_short ? 0 : next_data_tag();
    char *at = make_packet(handler, header, header_bytes, data_tag, data_bytes);
    if (is_short && is_contiguous && data_bytes) {
        memcpy(at, MPIR_get_contig_ptr(data, lower_bound), data_bytes);
    } else if (is_short && data_bytes) {
        mpi_errno = MPIR_Typerep_pack(data, count, datatype, 0, at, data_bytes, &packed);
        MPIR_ERR_CHECK(mpi_errno);
    }
    if (is_short) {
        mpi_errno = send_packet(world_rank, at + data_bytes - engine.packet);
        MPIR_ERR_CHECK(mpi_errno);
        /* The data is in the packet: the request is done. */
        if (sreq)
            mpi_errno = MPIDIG_global.origin_cbs[handler] (sreq);
        goto fn_exit;
    }
    size_t bytes = at - engine.packet;
    struct task *packet = new_task(SEND_PACKET, world_rank, 0, bytes);
    memcpy(packet->data, engine.packet, bytes);
    struct task *bulk = new_task(SEND_DATA, world_rank, data_tag,
                                 is_contiguous ? 0 : data_bytes);
    if (is_contiguous) {
        bulk->data = MPIR_get_contig_ptr(data, lower_bound);
        bulk->bytes = data_bytes;
    } else {
        mpi_errno = MPIR_Typerep_pack(data, count, datatype, 0, bulk->data, data_bytes, &packed);
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
    mpi_errno = make_room();
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

    /* Of a message that does not fit nothing is received, and the request has the error already. */
    if (MPIDIG_REQUEST(rreq, req->recv_async).recv_type == MPIDIG_RECV_DATATYPE) {
        MPIR_Datatype_get_size_macro(MPIDIG_REQUEST(rreq, datatype), room_bytes);
        room_bytes *= MPIDIG_REQUEST(rreq, count);
        if (room_bytes < bytes) {
            MPIR_STATUS_SET_COUNT(rreq->status, room_bytes);
            struct task *task = new_task(REFUSE_DATA, from->rank, from->data_tag, 0);
            task->bytes = 0;
            task->request = rreq;
            enqueue(&engine.receives, task);
            return MPI_SUCCESS;
        }
    }
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
    } else if (status->error && task->work != EXCHANGE
               && !(task->work == REFUSE_DATA && status->error == HEARTH_EMSGSIZE)) {
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
            if (task->has_buffer)
                MPIDIG_recv_copy_seg(task->data, task->bytes, task->request);
            /* fall through */
        case REFUSE_DATA:
            mpi_errno = MPIDIG_REQUEST(task->request, req->target_cmpl_cb) (task->request);
            break;
        case BARRIER:
            engine.ending = 2;
            break;
        case EXCHANGE:
            hearth_exchange_done(task->exchange, status->error);
            break;
    }
    free_task(task);
    return mpi_errno;
}

/* What a look has: places of the ring from its head on, so many tasks from `first` on, packets,
 * then the watch. */
struct look {
    int ring, first, tasks, packets;
};

static struct look next_look(void)
{
    int others_wait = engine.sends.first || engine.receives.first || engine.ending;
    int has_packets = others_wait || engine.sent.count >= PACKETS_FEW;
    return (struct look) {
        .ring = engine.look,
        .first = engine.scanned,
        .tasks = MPL_MIN(engine.tasks.count - engine.scanned, SCAN),
        .packets = has_packets ? engine.sent.count : 0,
    };
}

static int list_all(const struct look *look)
{
    uint32_t *at = engine.list;
    for (int place = 0; place < look->ring; place++)
        *at++ = engine.ring_request[(unsigned) (engine.head + place) % RING];
    for (int index = 0; index < look->tasks; index++)
        *at++ = engine.tasks.number[look->first + index];
    for (int index = 0; index < look->packets; index++)
        *at++ = engine.sent.number[index];
    *at++ = engine.watch;
    return (int) (at - engine.list);
}

/* Takes what has finished of a set, of which the list has so many from `first` on; its places in the
 * list begin at `place`. Puts them into `finished` and gives how many. */
static int take_finished(struct set *set, int first, int listed, int place,
                         struct task **finished, struct hearth_status *status_of)
{
    int taken = 0, kept = first, end = first + listed;
    for (int index = first; index < end; index++, place++) {
        struct task *task = set->task[index];
        if (engine.list[place] == 0) {
            --*task->under_way;
            status_of[taken] = engine.statuses[place];
            finished[taken++] = task;
        } else {
            set->number[kept] = set->number[index];
            set->task[kept++] = task;
        }
    }
    int rest = set->count - end;
    if (taken && rest) {
        memmove(set->number + kept, set->number + end, rest * sizeof(*set->number));
        memmove(set->task + kept, set->task + end, rest * sizeof(*set->task));
    }
    set->count -= taken;
    return taken;
}

/* How many places of the ring the next look has, after one that found so many of its own. */
static void grow_or_shrink(int looked, int arrived)
{
    if (arrived < looked) {
        engine.look = MPL_MAX(arrived, 1);
        engine.full_looks = 0;
    } else if (looked > 1 || ++engine.full_looks == FULL_LOOKS) {
        engine.look = MPL_MIN(2 * looked, LOOK_MOST);
        engine.full_looks = 0;
    }
}

/* Carries out what a look has found. */
static int carry_out(const struct look *look)
{
    int mpi_errno = MPI_SUCCESS, errors = MPI_SUCCESS, arrived = 0;
    struct task *finished[SCAN + PACKETS];
    struct hearth_status status_of[SCAN + PACKETS];

    for (int place = 0; place < look->ring; place++) {
        int index = (unsigned) (engine.head + place) % RING;
        if (engine.list[place] == 0 && engine.ring_request[index] != 0) {
            engine.ring_request[index] = 0;
            engine.ring_status[index] = engine.statuses[place];
            arrived++;
        }
    }
    grow_or_shrink(look->ring, arrived);
    int watch = look->ring + look->tasks + look->packets;
    if (engine.watch && engine.list[watch] == 0) {
        engine.watch = 0;
        if (!engine.ending)
            lost(engine.statuses[watch].rank);
    }
    int taken = take_finished(&engine.tasks, look->first, look->tasks, look->ring, finished,
                              status_of);
    int next = look->first + look->tasks - taken;
    engine.scanned = next < engine.tasks.count ? next : 0;
    taken += take_finished(&engine.sent, 0, look->packets, look->ring + look->tasks,
                           finished + taken, status_of + taken);
    while (engine.ring_request[engine.head] == 0) {
        int index = engine.head;
        struct hearth_status *status = &engine.ring_status[index];
        engine.head = (unsigned) (index + 1) % RING;
        if (status->error == 0) {
            handle_packet(index);
        } else if (status->error != HEARTH_ELOST) {
            give_up("a receive failed", status->error);
        } else if (!engine.ending) {
            lost(status->rank);
        }
        post_slot(index);
    }
    for (int i = 0; i < taken; i++) {
        mpi_errno = finish(finished[i], &status_of[i]);
        if (mpi_errno)
            errors = mpi_errno;
    }
    return errors;
}

/* How long this look may last where nothing is there, after one that has taken from `began` on. */
static unsigned long patience_of(int blocking, uint64_t began)
{
    uint64_t between = began - engine.looked_at, took = __rdtsc() - began;
    engine.vain_looks = between < took ? engine.vain_looks + 1 : 0;
    if (MPIR_ThreadInfo.isThreaded && !engine.is_sending)
        return 0;
    if (blocking)
        return MPIR_ThreadInfo.isThreaded ? PATIENCE_LOOKING : PATIENCE_ALONE;
    return engine.vain_looks < VAIN_LOOKS ? 0 : PATIENCE_LOOKING;
}

/* Other threads may do anything meanwhile, as between two calls of MPID_Progress_wait. */
static void nap(void)
{
    struct timespec time = {.tv_nsec = 1000 * (NAP_MICROS << MPL_MIN(engine.naps, DOUBLINGS)) };
    engine.naps++;
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    nanosleep(&time, NULL);
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
}

int hearth_engine_progress(int blocking)
{
    int mpi_errno = MPI_SUCCESS;

    if (engine.inside || !engine.ring)
        return MPI_SUCCESS;
    engine.inside = 1;
    uint64_t began = __rdtsc();
    if (engine.receives.first)
        begin_what_may(&engine.receives);
    if (engine.sends.first)
        begin_what_may(&engine.sends);
    struct look look = next_look();
    int total = list_all(&look);
    long found = 0;
    /* Who waits for one thing need not look first. Where something is found all the time nobody waits
     * for who has left. */
    if (total > 2 || !blocking || MPIR_ThreadInfo.isThreaded)
        found = hearth_call_wait(engine.list, total - (engine.vain_looks == 0),
                                 engine.statuses, 0, 0);
    unsigned long patience = found == 0 ? patience_of(blocking, began) : 0;
    if (look.tasks < engine.tasks.count)
        patience = MPL_MIN(patience, PATIENCE_MANY);
    if (patience) {
        struct hearth_status status;
        found = hearth_call_wait(engine.list, total, &status, HEARTH_WAIT_ANY, patience);
        if (found > 0)
            engine.statuses[found - 1] = status;
    }
    if (found < 0)
        give_up("waiting failed", found);
    if (found > 0) {
        engine.vain_looks = engine.naps = 0;
        mpi_errno = carry_out(&look);
    } else {
        int next = look.first + look.tasks;
        engine.scanned = next < engine.tasks.count ? next : 0;
    }
    engine.inside = 0;
    /* MPICH's own yield leaves a thread that wants the lock no time to take it. */
    int is_vain = found == 0 && (blocking || engine.vain_looks >= VAIN_LOOKS);
    if (is_vain && MPIR_ThreadInfo.isThreaded && !engine.is_sending)
        nap();
    engine.looked_at = __rdtsc();
    return mpi_errno;
}

int hearth_engine_end(void)
{
    int mpi_errno = MPI_SUCCESS;
    engine.ending = 1;
    enqueue(&engine.sends, new_task(BARRIER, 0, 0, 0));
    while (engine.ending != 2 || engine.tasks.count || engine.sent.count || engine.sends.first) {
        mpi_errno = hearth_engine_progress(1);
        MPIR_ERR_CHECK(mpi_errno);
    }
    for (int index = 0; index < RING; index++)
        hearth_call_cancel(engine.ring_request[index]);
    if (engine.watch)
        hearth_call_cancel(engine.watch);
    MPL_free(engine.ring);
    engine.ring = NULL;
    while (engine.pool) {
        struct task *task = engine.pool;
        engine.pool = task->next;
        MPL_free(task);
    }
  fn_fail:
    return mpi_errno;
}
