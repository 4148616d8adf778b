/* MPI_Alltoall, v, w and their non-blocking forms as one exchange of the kernel each.
 *
 * A communicator's ranks are a group of the kernel's, its context the prefix of MPICH's context. A
 * context that MPICH gives away again may have been used by some ranks and not by others: the first
 * blocking exchange of a communicator agrees upon a number that none has reached (docs/abi.md,
 * Groups). Until then non-blocking ones are MPICH's own.
 *
 * Blocks that lie in one piece go straight from and to the program's memory, others are packed.
 *
 * Invariant: whether an exchange is ours depends on what all its ranks know alike. */
#include "stubnm_impl.h"
#include "hearth_call.h"

/* The kernel's contexts for groups are 1 to 32766; MPICH's prefixes have 11 bits. */
#define CONTEXT_OF(comm) (1 + MPIR_CONTEXT_READ_FIELD(PREFIX, (comm)->context_id))
#define CONTEXTS ((1 << MPIR_CONTEXT_PREFIX_WIDTH) + 1)

/* Exchanges that this rank has begun in each context. */
static uint32_t begun[CONTEXTS];

struct side {
    char *base;
    uint64_t *counts, *offsets;
    char *staging;
};

/* An exchange under way: lists of a rank each, and what is unpacked at the end. */
struct hearth_exchange {
    int size;
    struct side send, receive;
    uint32_t *group;
    struct hearth_block *into;
    MPIR_Request *request;
    int is_done, error;
};

static void free_exchange(struct hearth_exchange *exchange)
{
    MPL_free(exchange->send.staging);
    MPL_free(exchange->receive.staging);
    MPL_free(exchange);
}

static MPI_Aint bytes_of(const struct hearth_block *block, int *is_contiguous, char **at)
{
    MPI_Aint bytes, lower_bound;
    MPIR_Datatype *type;
    MPIDI_Datatype_get_info(block->count, block->type, *is_contiguous, bytes, type, lower_bound);
    *at = (char *) block->buffer + lower_bound;
    return bytes;
}

/* Says where blocks are, or makes room for their copies in the order of the ranks: always where
 * they will be overwritten meanwhile. */
static int lay_out(struct side *side, const struct hearth_block *blocks, int size, int is_copied)
{
    int mpi_errno = MPI_SUCCESS, is_straight = !is_copied, is_contiguous;
    char *lowest = NULL, *at;
    MPI_Aint total = 0;

    for (int rank = 0; rank < size; rank++) {
        MPI_Aint bytes = bytes_of(&blocks[rank], &is_contiguous, &at);
        side->counts[rank] = bytes;
        side->offsets[rank] = total;
        total += bytes;
        is_straight &= is_contiguous || bytes == 0;
        if (bytes && (!lowest || at < lowest))
            lowest = at;
    }
    if (is_straight) {
        side->base = lowest;
        for (int rank = 0; rank < size; rank++) {
            bytes_of(&blocks[rank], &is_contiguous, &at);
            side->offsets[rank] = side->counts[rank] ? (uint64_t) (at - lowest) : 0;
        }
        return MPI_SUCCESS;
    }
    side->base = side->staging = MPL_malloc(total ? total : 1, MPL_MEM_COLL);
    MPIR_ERR_CHKANDJUMP(!side->base, mpi_errno, MPI_ERR_OTHER, "**nomem");
  fn_fail:
    return mpi_errno;
}

static int pack(struct hearth_exchange *exchange, const struct hearth_block *blocks)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint packed;
    for (int rank = 0; exchange->send.staging && rank < exchange->size; rank++) {
        const struct hearth_block *block = &blocks[rank];
        mpi_errno = MPIR_Typerep_pack(block->buffer, block->count, block->type, 0,
                                      exchange->send.staging + exchange->send.offsets[rank],
                                      exchange->send.counts[rank], &packed);
        MPIR_ERR_CHECK(mpi_errno);
    }
  fn_fail:
    return mpi_errno;
}

void hearth_exchange_done(struct hearth_exchange *exchange, int error)
{
    int mpi_errno = MPI_SUCCESS;
    MPI_Aint unpacked;
    if (error) {
        /* A rank sends another number of bytes than this one expects. */
        MPIR_ERR_SET(mpi_errno, MPI_ERR_TRUNCATE, "**truncate");
    }
    for (int rank = 0; !error && exchange->receive.staging && rank < exchange->size; rank++) {
        const struct hearth_block *block = &exchange->into[rank];
        int result = MPIR_Typerep_unpack(exchange->receive.staging +
                                         exchange->receive.offsets[rank],
                                         exchange->receive.counts[rank], block->buffer,
                                         block->count, block->type, 0, &unpacked);
        mpi_errno = mpi_errno ? mpi_errno : result;
    }
    for (int rank = 0; exchange->receive.staging && rank < exchange->size; rank++)
        MPIR_Datatype_release_if_not_builtin(exchange->into[rank].type);
    exchange->is_done = 1;
    exchange->error = mpi_errno;
    /* Who waits for progress has some. */
    MPL_atomic_fetch_add_int(&MPIDI_VCI(0).progress_count, 1);
    if (exchange->request) {
        exchange->request->status.MPI_ERROR = mpi_errno;
        MPID_Request_complete(exchange->request);
        free_exchange(exchange);
    }
}

/* Whether all ranks have the same next number for exchanges of this communicator. */
static int agree(MPIR_Comm * comm, MPIR_Errflag_t * errflag)
{
    int mpi_errno;
    uint32_t *next = &begun[CONTEXT_OF(comm)], most = 0;
    mpi_errno = MPIR_Allreduce_impl(next, &most, 1, MPI_UINT32_T, MPI_MAX, comm, errflag);
    if (mpi_errno == MPI_SUCCESS) {
        *next = most;
        MPIDI_STUBNM_COMM(comm).has_agreed = 1;
    }
    return mpi_errno;
}

int hearth_exchange_is_ours(MPIR_Comm * comm, int is_blocking)
{
    return comm->comm_kind == MPIR_COMM_KIND__INTRACOMM && comm->local_size > 1
        && (is_blocking || MPIDI_STUBNM_COMM(comm).has_agreed);
}

static int begin_exchange(MPIR_Comm * comm, const struct hearth_block *from,
                          const struct hearth_block *into, struct hearth_exchange **made)
{
    int mpi_errno = MPI_SUCCESS, size = comm->local_size;
    size_t bytes = sizeof(struct hearth_exchange) +
        size * (4 * sizeof(uint64_t) + sizeof(struct hearth_block) + sizeof(uint32_t));
    struct hearth_exchange *exchange = MPL_calloc(1, bytes, MPL_MEM_COLL);
    MPIR_ERR_CHKANDJUMP(!exchange, mpi_errno, MPI_ERR_OTHER, "**nomem");
    exchange->size = size;
    uint64_t *lists = (uint64_t *) (exchange + 1);
    exchange->send.counts = lists;
    exchange->send.offsets = lists + size;
    exchange->receive.counts = lists + 2 * size;
    exchange->receive.offsets = lists + 3 * size;
    exchange->into = (struct hearth_block *) (lists + 4 * size);
    exchange->group = (uint32_t *) (exchange->into + size);
    memcpy(exchange->into, into, size * sizeof(*into));
    for (int rank = 0; rank < size; rank++) {
        int lpid = 0, avtid = 0;
        MPIDIU_comm_rank_to_pid(comm, rank, &lpid, &avtid);
        exchange->group[rank] = (uint32_t) lpid;
    }
    mpi_errno = lay_out(&exchange->send, from, size, from == into);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = lay_out(&exchange->receive, into, size, 0);
    MPIR_ERR_CHECK(mpi_errno);
    mpi_errno = pack(exchange, from);
    MPIR_ERR_CHECK(mpi_errno);
    for (int rank = 0; exchange->receive.staging && rank < size; rank++)
        MPIR_Datatype_add_ref_if_not_builtin(into[rank].type);
    int context = CONTEXT_OF(comm);
    struct hearth_operation operation = {
        .kind = HEARTH_ALLTOALL,
        .context = (uint32_t) context,
        .group_size = (uint32_t) size,
        .send = exchange->send.base,
        .receive = exchange->receive.base,
        .send_counts = exchange->send.counts,
        .send_offsets = exchange->send.offsets,
        .receive_counts = exchange->receive.counts,
        .receive_offsets = exchange->receive.offsets,
        .group = exchange->group,
        .number = begun[context]++,
    };
    hearth_engine_exchange(&operation, exchange);
    *made = exchange;
  fn_exit:
    return mpi_errno;
  fn_fail:
    if (exchange)
        free_exchange(exchange);
    goto fn_exit;
}

/* Carries out an exchange, or begins it where `request` is not NULL. */
static int exchange_blocks(MPIR_Comm * comm, const struct hearth_block *from,
                           const struct hearth_block *into, MPIR_Errflag_t * errflag,
                           MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS;
    struct hearth_exchange *exchange = NULL;
    MPIR_Request *made = NULL;

    if (request) {
        made = MPIR_Request_create(MPIR_REQUEST_KIND__COLL);
        MPIR_ERR_CHKANDJUMP(!made, mpi_errno, MPI_ERR_OTHER, "**nomemreq");
        /* One reference is the program's, one goes when the exchange is done. */
        MPIR_Request_add_ref(made);
        *request = made;
    } else if (!MPIDI_STUBNM_COMM(comm).has_agreed) {
        mpi_errno = agree(comm, errflag);
        MPIR_ERR_CHECK(mpi_errno);
    }
    MPID_THREAD_CS_ENTER(VCI, MPIDI_VCI(0).lock);
    mpi_errno = begin_exchange(comm, from, into, &exchange);
    if (mpi_errno == MPI_SUCCESS)
        exchange->request = made;
    MPID_THREAD_CS_EXIT(VCI, MPIDI_VCI(0).lock);
    if (mpi_errno || made)
        return mpi_errno;
    MPID_Progress_state state;
    MPID_Progress_start(&state);
    while (!*(volatile int *) &exchange->is_done) {
        mpi_errno = MPID_Progress_wait(&state);
        MPIR_ERR_CHECK(mpi_errno);
    }
    MPID_Progress_end(&state);
    mpi_errno = exchange->error;
    free_exchange(exchange);
  fn_fail:
    return mpi_errno;
}

/* Equal blocks of one type, or with counts and displacements (in `unit` bytes) of each rank. */
static void list(struct hearth_block *blocks, int size, const void *buffer, MPI_Aint count,
                 const MPI_Aint * counts, const MPI_Aint * displacements, MPI_Aint unit,
                 MPI_Datatype type, const MPI_Datatype * types)
{
    for (int rank = 0; rank < size; rank++) {
        MPI_Aint from = displacements ? displacements[rank] : rank * count;
        blocks[rank].buffer = (char *) buffer + from * unit;
        blocks[rank].count = counts ? counts[rank] : count;
        blocks[rank].type = types ? types[rank] : type;
    }
}

static MPI_Aint extent_of(MPI_Datatype type)
{
    MPI_Aint extent;
    MPIR_Datatype_get_extent_macro(type, extent);
    return extent;
}

int hearth_to_all(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype, void *recvbuf,
                  MPI_Aint recvcount, MPI_Datatype recvtype, MPIR_Comm * comm,
                  MPIR_Errflag_t * errflag, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS, size = comm->local_size, in_place = sendbuf == MPI_IN_PLACE;
    struct hearth_block *from = MPL_malloc(2 * size * sizeof(*from), MPL_MEM_COLL);
    MPIR_ERR_CHKANDJUMP(!from, mpi_errno, MPI_ERR_OTHER, "**nomem");
    struct hearth_block *into = from + size;
    if (!in_place)
        list(from, size, sendbuf, sendcount, NULL, NULL, extent_of(sendtype), sendtype, NULL);
    list(into, size, recvbuf, recvcount, NULL, NULL, extent_of(recvtype), recvtype, NULL);
    mpi_errno = exchange_blocks(comm, in_place ? into : from, into, errflag, request);
    MPL_free(from);
  fn_fail:
    return mpi_errno;
}

int hearth_to_allv(const void *sendbuf, const MPI_Aint * sendcounts, const MPI_Aint * sdispls,
                   MPI_Datatype sendtype, void *recvbuf, const MPI_Aint * recvcounts,
                   const MPI_Aint * rdispls, MPI_Datatype recvtype, MPIR_Comm * comm,
                   MPIR_Errflag_t * errflag, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS, size = comm->local_size, in_place = sendbuf == MPI_IN_PLACE;
    struct hearth_block *from = MPL_malloc(2 * size * sizeof(*from), MPL_MEM_COLL);
    MPIR_ERR_CHKANDJUMP(!from, mpi_errno, MPI_ERR_OTHER, "**nomem");
    struct hearth_block *into = from + size;
    if (!in_place)
        list(from, size, sendbuf, 0, sendcounts, sdispls, extent_of(sendtype), sendtype, NULL);
    list(into, size, recvbuf, 0, recvcounts, rdispls, extent_of(recvtype), recvtype, NULL);
    mpi_errno = exchange_blocks(comm, in_place ? into : from, into, errflag, request);
    MPL_free(from);
  fn_fail:
    return mpi_errno;
}

int hearth_to_allw(const void *sendbuf, const MPI_Aint * sendcounts, const MPI_Aint * sdispls,
                   const MPI_Datatype * sendtypes, void *recvbuf, const MPI_Aint * recvcounts,
                   const MPI_Aint * rdispls, const MPI_Datatype * recvtypes, MPIR_Comm * comm,
                   MPIR_Errflag_t * errflag, MPIR_Request ** request)
{
    int mpi_errno = MPI_SUCCESS, size = comm->local_size, in_place = sendbuf == MPI_IN_PLACE;
    struct hearth_block *from = MPL_malloc(2 * size * sizeof(*from), MPL_MEM_COLL);
    MPIR_ERR_CHKANDJUMP(!from, mpi_errno, MPI_ERR_OTHER, "**nomem");
    struct hearth_block *into = from + size;
    if (!in_place)
        list(from, size, sendbuf, 0, sendcounts, sdispls, 1, MPI_BYTE, sendtypes);
    list(into, size, recvbuf, 0, recvcounts, rdispls, 1, MPI_BYTE, recvtypes);
    mpi_errno = exchange_blocks(comm, in_place ? into : from, into, errflag, request);
    MPL_free(from);
  fn_fail:
    return mpi_errno;
}
