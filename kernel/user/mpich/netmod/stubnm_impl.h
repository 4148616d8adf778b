/* The engine: MPICH's active messages over Hearth's messages.
 *
 * An active message is one short message of context AM_CONTEXT: a header of ours, the handler's,
 * and up to what fits a datagram of data. Longer data follows as a message of its own, of context
 * DATA_CONTEXT, which the kernel pulls straight from the sender's memory into the receiver's once
 * MPICH has found the receive. A few such messages of each rank may wait for theirs; beyond these
 * MPICH asks for the receive first.
 * Short messages are received by a ring of buffers that are posted in order, from any rank.
 *
 * Never here: matching of MPI's messages, which MPICH does (MPIDIG). */
#ifndef STUBNM_IMPL_H_INCLUDED
#define STUBNM_IMPL_H_INCLUDED

#include <mpidimpl.h>
#include "mpidch4r.h"

/* A message up to so many bytes is one datagram, and its send is done at once. */
#define HEARTH_SHORT_BYTES 1384

/* Contexts of the kernel's messages; MPICH gives communicators lower ones. */
#define HEARTH_AM_CONTEXT 65535
#define HEARTH_DATA_CONTEXT 65534
/* Context of barriers and exchanges of ours: the kernel has 1 to 32767 for groups. */
#define HEARTH_FINALIZE_CONTEXT 32767

/* Before the handler's header. */
struct hearth_am_header {
    uint16_t handler;
    uint16_t header_bytes;
    uint32_t data_tag;          /* of the message with the data, where that is not in here */
    uint64_t data_bytes;
};

/* What an active message carries besides our header. */
#define HEARTH_AM_ROOM (HEARTH_SHORT_BYTES - (MPI_Aint) sizeof(struct hearth_am_header))

/* Learns rank and size; `MPI_ERR_OTHER` where this is no Hearth node. */
int hearth_engine_begin(void);
/* Waits until all ranks are here, then takes all receives back. */
int hearth_engine_end(void);
/* Sends an active message; `sreq` may be NULL where there is no data. */
int hearth_engine_send(int world_rank, int handler, const void *header, MPI_Aint header_bytes,
                       const void *data, MPI_Aint count, MPI_Datatype datatype,
                       MPIR_Request * sreq);
/* Sends a message of MPI that fits its packet: it is done when this returns. */
int hearth_engine_send_short(int world_rank, const MPIDIG_hdr_t * header, const void *data,
                             MPI_Aint data_bytes);
struct hearth_operation;
struct hearth_exchange;
/* Begins an exchange of the kernel; hearth_exchange_done is called at its end. */
void hearth_engine_exchange(const struct hearth_operation *operation,
                            struct hearth_exchange *exchange);
void hearth_exchange_done(struct hearth_exchange *exchange, int error);
/* Whether a message may go with its data at once, rather than after its receive is there. */
int hearth_engine_may_send(MPI_Aint header_bytes, MPI_Aint data_bytes);
/* Receives the data of a message that has its receive now. */
int hearth_engine_receive(MPIR_Request * rreq);
/* Carries out what has arrived; waits a while for something where `blocking`. */
int hearth_engine_progress(int blocking);

/* Ranks and bytes up to which MPI_Allreduce has all values at each rank: the last packet of a rank
 * has half of them. */
#define HEARTH_ALLREDUCE_RANKS 128
#define HEARTH_ALLREDUCE_BYTES 8
/* MPI_Allreduce of so few bytes of a predefined datatype. */
int hearth_reduce_few(const void *sendbuf, void *recvbuf, MPI_Aint count, MPI_Datatype datatype,
                     MPI_Op op, MPIR_Comm * comm, MPIR_Errflag_t * errflag);

/* A block of an exchange: what a rank sends to another, or has from it. */
struct hearth_block {
    void *buffer;
    MPI_Aint count;
    MPI_Datatype type;
};

#define MPIDI_STUBNM_AM(request) ((request)->dev.ch4.am.netmod_am.stubnm)
#define MPIDI_STUBNM_COMM(comm) ((comm)->dev.ch4.netmod.stubnm)

/* Whether this call of MPI_Alltoall and its kin is one exchange of the kernel. */
int hearth_exchange_is_ours(MPIR_Comm * comm, int is_blocking);
/* They are: at the end, or begun where `request` is not NULL. */
int hearth_to_all(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype, void *recvbuf,
                  MPI_Aint recvcount, MPI_Datatype recvtype, MPIR_Comm * comm,
                  MPIR_Errflag_t * errflag, MPIR_Request ** request);
int hearth_to_allv(const void *sendbuf, const MPI_Aint * sendcounts, const MPI_Aint * sdispls,
                   MPI_Datatype sendtype, void *recvbuf, const MPI_Aint * recvcounts,
                   const MPI_Aint * rdispls, MPI_Datatype recvtype, MPIR_Comm * comm,
                   MPIR_Errflag_t * errflag, MPIR_Request ** request);
int hearth_to_allw(const void *sendbuf, const MPI_Aint * sendcounts, const MPI_Aint * sdispls,
                   const MPI_Datatype * sendtypes, void *recvbuf, const MPI_Aint * recvcounts,
                   const MPI_Aint * rdispls, const MPI_Datatype * recvtypes, MPIR_Comm * comm,
                   MPIR_Errflag_t * errflag, MPIR_Request ** request);

#endif
