/* The netmod's inline functions: active messages by the engine, everything else by MPICH's own
 * functions over them. */
#ifndef NETMOD_INLINE_H_INCLUDED
#define NETMOD_INLINE_H_INCLUDED

#include "stubnm_noinline.h"

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_progress(int vci, int blocking)
{
    return vci == 0 ? hearth_engine_progress(blocking) : MPI_SUCCESS;
}

/* The rank of the job that is this rank of a communicator. */
MPL_STATIC_INLINE_PREFIX int hearth_world_rank(MPIR_Comm * comm, int rank)
{
    int lpid = 0, avtid = 0;
    MPIDIU_comm_rank_to_pid(comm, rank, &lpid, &avtid);
    return lpid;
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_send_hdr(int rank, MPIR_Comm * comm, int handler_id,
                                                  const void *am_hdr, MPI_Aint am_hdr_sz,
                                                  int src_vci, int dst_vci)
{
    return hearth_engine_send(hearth_world_rank(comm, rank), handler_id, am_hdr, am_hdr_sz, NULL, 0,
                              MPI_BYTE, NULL);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_isend(int rank, MPIR_Comm * comm, int handler_id,
                                               const void *am_hdr, MPI_Aint am_hdr_sz,
                                               const void *data, MPI_Aint count,
                                               MPI_Datatype datatype, int src_vci, int dst_vci,
                                               MPIR_Request * sreq)
{
    return hearth_engine_send(hearth_world_rank(comm, rank), handler_id, am_hdr, am_hdr_sz, data,
                              count, datatype, sreq);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_send_hdr_reply(MPIR_Comm * comm, int src_rank,
                                                        int handler_id, const void *am_hdr,
                                                        MPI_Aint am_hdr_sz, int src_vci,
                                                        int dst_vci)
{
    return MPIDI_NM_am_send_hdr(src_rank, comm, handler_id, am_hdr, am_hdr_sz, src_vci, dst_vci);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_isend_reply(MPIR_Comm * comm, int src_rank, int handler_id,
                                                     const void *am_hdr, MPI_Aint am_hdr_sz,
                                                     const void *data, MPI_Aint count,
                                                     MPI_Datatype datatype, int src_vci,
                                                     int dst_vci, MPIR_Request * sreq)
{
    return MPIDI_NM_am_isend(src_rank, comm, handler_id, am_hdr, am_hdr_sz, data, count, datatype,
                             src_vci, dst_vci, sreq);
}

MPL_STATIC_INLINE_PREFIX MPIDIG_recv_data_copy_cb MPIDI_NM_am_get_data_copy_cb(uint32_t attr)
{
    return hearth_engine_receive;
}

MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_hdr_max_sz(void)
{
    return HEARTH_AM_ROOM;
}

MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_eager_limit(void)
{
    return HEARTH_AM_ROOM;
}

MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_eager_buf_limit(void)
{
    return HEARTH_AM_ROOM;
}

MPL_STATIC_INLINE_PREFIX bool MPIDI_NM_am_check_eager(MPI_Aint am_hdr_sz, MPI_Aint data_sz,
                                                      const void *data, MPI_Aint count,
                                                      MPI_Datatype datatype, MPIR_Request * sreq)
{
    return hearth_engine_may_send(am_hdr_sz, data_sz);
}

MPL_STATIC_INLINE_PREFIX void MPIDI_NM_am_request_init(MPIR_Request * req)
{
}

MPL_STATIC_INLINE_PREFIX void MPIDI_NM_am_request_finalize(MPIR_Request * req)
{
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_comm_get_gpid(MPIR_Comm * comm_ptr, int idx,
                                                    uint64_t * gpid_ptr, bool is_remote)
{
    int avtid = 0, lpid = 0;
    if (comm_ptr->comm_kind == MPIR_COMM_KIND__INTRACOMM || is_remote)
        MPIDIU_comm_rank_to_pid(comm_ptr, idx, &lpid, &avtid);
    else
        MPIDIU_comm_rank_to_pid_local(comm_ptr, idx, &lpid, &avtid);
    *gpid_ptr = MPIDIU_GPID_CREATE(avtid, lpid);
    return MPI_SUCCESS;
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_rank_is_local(int rank, MPIR_Comm * comm)
{
    return MPIDIU_rank_is_local(rank, comm);
}

/* All but these. */
#define MPIDI_NM_mpi_isend hearth_own_isend
#define MPIDI_NM_isend_coll hearth_own_isend_coll
#define MPIDI_NM_mpi_allreduce hearth_own_allreduce
#define MPIDI_NM_mpi_alltoall hearth_own_alltoall
#define MPIDI_NM_mpi_alltoallv hearth_own_alltoallv
#define MPIDI_NM_mpi_alltoallw hearth_own_alltoallw
#define MPIDI_NM_mpi_ialltoall hearth_own_ialltoall
#define MPIDI_NM_mpi_ialltoallv hearth_own_ialltoallv
#define MPIDI_NM_mpi_ialltoallw hearth_own_ialltoallw
#include "../include/netmod_am_fallback.h"
#undef MPIDI_NM_mpi_isend
#undef MPIDI_NM_isend_coll
#undef MPIDI_NM_mpi_allreduce
#undef MPIDI_NM_mpi_alltoall
#undef MPIDI_NM_mpi_alltoallv
#undef MPIDI_NM_mpi_alltoallw
#undef MPIDI_NM_mpi_ialltoall
#undef MPIDI_NM_mpi_ialltoallv
#undef MPIDI_NM_mpi_ialltoallw

/* A message in one piece that fits its packet: its request is one that is done. Whether it was. */
MPL_STATIC_INLINE_PREFIX bool hearth_isend_short(const void *buf, MPI_Aint count,
                                                 MPI_Datatype datatype, int rank, int tag,
                                                 MPIR_Comm * comm, int context_offset,
                                                 MPIR_Request ** request, MPIR_Errflag_t errflag,
                                                 int *mpi_errno)
{
    int is_contiguous;
    MPI_Aint bytes, lower_bound;
    MPIR_Datatype *type;

    MPIDI_Datatype_get_info(count, datatype, is_contiguous, bytes, type, lower_bound);
    if (*request || !is_contiguous || bytes > HEARTH_AM_ROOM - (MPI_Aint) sizeof(MPIDIG_hdr_t))
        return false;
    MPIDIG_hdr_t header = {
        .src_rank = comm->rank,
        .tag = tag,
        .context_id = comm->context_id + context_offset,
        .error_bits = errflag,
        .data_sz = bytes,
    };
    MPID_THREAD_CS_ENTER(VCI, MPIDI_VCI(0).lock);
    *mpi_errno = hearth_engine_send_short(hearth_world_rank(comm, rank), &header,
                                          MPIR_get_contig_ptr(buf, lower_bound), bytes);
    MPID_THREAD_CS_EXIT(VCI, MPIDI_VCI(0).lock);
    *request = MPIR_Request_create_complete(MPIR_REQUEST_KIND__SEND);
    return true;
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_isend(const void *buf, MPI_Aint count,
                                                MPI_Datatype datatype, int rank, int tag,
                                                MPIR_Comm * comm, int context_offset,
                                                MPIDI_av_entry_t * addr, MPIR_Request ** request)
{
    int mpi_errno;
    if (hearth_isend_short(buf, count, datatype, rank, tag, comm, context_offset, request,
                           MPIR_ERR_NONE, &mpi_errno))
        return mpi_errno;
    return hearth_own_isend(buf, count, datatype, rank, tag, comm, context_offset, addr, request);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_isend_coll(const void *buf, MPI_Aint count,
                                                 MPI_Datatype datatype, int rank, int tag,
                                                 MPIR_Comm * comm, int context_offset,
                                                 MPIDI_av_entry_t * addr, MPIR_Request ** request,
                                                 MPIR_Errflag_t * errflag)
{
    int mpi_errno;
    if (hearth_isend_short(buf, count, datatype, rank, tag, comm, context_offset, request, *errflag,
                           &mpi_errno))
        return mpi_errno;
    return hearth_own_isend_coll(buf, count, datatype, rank, tag, comm, context_offset, addr,
                                 request, errflag);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_allreduce(const void *sendbuf, void *recvbuf,
                                                    MPI_Aint count, MPI_Datatype datatype,
                                                    MPI_Op op, MPIR_Comm * comm,
                                                    MPIR_Errflag_t * errflag)
{
    if (HANDLE_IS_BUILTIN(datatype) && comm->comm_kind == MPIR_COMM_KIND__INTRACOMM
        && comm->local_size <= HEARTH_ALLREDUCE_RANKS
        && count * MPIR_Datatype_get_basic_size(datatype) <= HEARTH_ALLREDUCE_BYTES)
        return hearth_reduce_few(sendbuf, recvbuf, count, datatype, op, comm, errflag);
    return hearth_own_allreduce(sendbuf, recvbuf, count, datatype, op, comm, errflag);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_alltoall(const void *sendbuf, MPI_Aint sendcount,
                                                   MPI_Datatype sendtype, void *recvbuf,
                                                   MPI_Aint recvcount, MPI_Datatype recvtype,
                                                   MPIR_Comm * comm, MPIR_Errflag_t * errflag)
{
    if (hearth_exchange_is_ours(comm, 1))
        return hearth_to_all(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                             errflag, NULL);
    return hearth_own_alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                               errflag);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_alltoallv(const void *sendbuf,
                                                    const MPI_Aint * sendcounts,
                                                    const MPI_Aint * sdispls,
                                                    MPI_Datatype sendtype, void *recvbuf,
                                                    const MPI_Aint * recvcounts,
                                                    const MPI_Aint * rdispls,
                                                    MPI_Datatype recvtype, MPIR_Comm * comm,
                                                    MPIR_Errflag_t * errflag)
{
    if (hearth_exchange_is_ours(comm, 1))
        return hearth_to_allv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                              rdispls, recvtype, comm, errflag, NULL);
    return hearth_own_alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                rdispls, recvtype, comm, errflag);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_alltoallw(const void *sendbuf,
                                                    const MPI_Aint sendcounts[],
                                                    const MPI_Aint sdispls[],
                                                    const MPI_Datatype sendtypes[], void *recvbuf,
                                                    const MPI_Aint recvcounts[],
                                                    const MPI_Aint rdispls[],
                                                    const MPI_Datatype recvtypes[],
                                                    MPIR_Comm * comm, MPIR_Errflag_t * errflag)
{
    if (hearth_exchange_is_ours(comm, 1))
        return hearth_to_allw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
                              rdispls, recvtypes, comm, errflag, NULL);
    return hearth_own_alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
                                rdispls, recvtypes, comm, errflag);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_ialltoall(const void *sendbuf, MPI_Aint sendcount,
                                                    MPI_Datatype sendtype, void *recvbuf,
                                                    MPI_Aint recvcount, MPI_Datatype recvtype,
                                                    MPIR_Comm * comm, MPIR_Request ** request)
{
    if (hearth_exchange_is_ours(comm, 0))
        return hearth_to_all(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                             NULL, request);
    return hearth_own_ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                                request);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_ialltoallv(const void *sendbuf,
                                                     const MPI_Aint * sendcounts,
                                                     const MPI_Aint * sdispls,
                                                     MPI_Datatype sendtype, void *recvbuf,
                                                     const MPI_Aint * recvcounts,
                                                     const MPI_Aint * rdispls,
                                                     MPI_Datatype recvtype, MPIR_Comm * comm,
                                                     MPIR_Request ** request)
{
    if (hearth_exchange_is_ours(comm, 0))
        return hearth_to_allv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                              rdispls, recvtype, comm, NULL, request);
    return hearth_own_ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                 rdispls, recvtype, comm, request);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_mpi_ialltoallw(const void *sendbuf,
                                                     const MPI_Aint * sendcounts,
                                                     const MPI_Aint * sdispls,
                                                     const MPI_Datatype sendtypes[], void *recvbuf,
                                                     const MPI_Aint * recvcounts,
                                                     const MPI_Aint * rdispls,
                                                     const MPI_Datatype recvtypes[],
                                                     MPIR_Comm * comm, MPIR_Request ** request)
{
    if (hearth_exchange_is_ours(comm, 0))
        return hearth_to_allw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
                              rdispls, recvtypes, comm, NULL, request);
    return hearth_own_ialltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
                                 rdispls, recvtypes, comm, request);
}

#endif
