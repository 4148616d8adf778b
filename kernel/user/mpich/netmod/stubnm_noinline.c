/* The netmod's functions that MPICH calls seldom: begin, end, windows, datatypes.
 *
 * Datatypes and operations need nothing of this netmod, windows are MPICH's own over
 * active messages. There are no processes but those of the job: what would connect to others says
 * so.
 *
 * The makefile of MPICH compiles this file alone, so it brings in the engine. */
#include <mpidimpl.h>
#include "stubnm_noinline.h"

#include "hearth_engine.c"
#include "hearth_exchange.c"
#include "hearth_reduce.c"

int MPIDI_STUBNM_init_local(int *tag_bits)
{
    *tag_bits = MPIR_TAG_BITS_DEFAULT;
    return hearth_engine_begin();
}

int MPIDI_STUBNM_init_world(void)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_post_init(void)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_finalize_hook(void)
{
    return hearth_engine_end();
}

static int only_this_job(void)
{
    int mpi_errno = MPI_SUCCESS;
    MPIR_ERR_SET(mpi_errno, MPI_ERR_SPAWN, "**notimpl");
    return mpi_errno;
}

int MPIDI_STUBNM_get_local_upids(MPIR_Comm * comm, int **local_upid_size, char **local_upids)
{
    return only_this_job();
}

int MPIDI_STUBNM_upids_to_gpids(int size, int *remote_upid_size, char *remote_upids,
                                uint64_t * remote_gpids)
{
    return only_this_job();
}

int MPIDI_STUBNM_dynamic_send(uint64_t remote_gpid, int tag, const void *buf, int size, int timeout)
{
    return only_this_job();
}

int MPIDI_STUBNM_dynamic_recv(int tag, void *buf, int size, int timeout)
{
    return only_this_job();
}

/* Nothing to do. */

int MPIDI_STUBNM_comm_set_hints(MPIR_Comm * comm, MPIR_Info * info)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_comm_commit_pre_hook(MPIR_Comm * comm)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_comm_commit_post_hook(MPIR_Comm * comm)
{
    /* Nobody has used the context of MPI_COMM_WORLD before. */
    MPIDI_STUBNM_COMM(comm).has_agreed = comm == MPIR_Process.comm_world;
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_comm_free_hook(MPIR_Comm * comm)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_type_commit_hook(MPIR_Datatype * type)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_type_free_hook(MPIR_Datatype * type)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_op_commit_hook(MPIR_Op * op)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_op_free_hook(MPIR_Op * op)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_create_hook(MPIR_Win * win)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_allocate_hook(MPIR_Win * win)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_allocate_shared_hook(MPIR_Win * win)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_create_dynamic_hook(MPIR_Win * win)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_attach_hook(MPIR_Win * win, void *base, MPI_Aint size)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_detach_hook(MPIR_Win * win, const void *base)
{
    return MPI_SUCCESS;
}

int MPIDI_STUBNM_mpi_win_free_hook(MPIR_Win * win)
{
    return MPI_SUCCESS;
}

/* MPICH's own. */

void *MPIDI_STUBNM_mpi_alloc_mem(MPI_Aint size, MPIR_Info * info)
{
    return MPIDIG_mpi_alloc_mem(size, info);
}

int MPIDI_STUBNM_mpi_free_mem(void *memory)
{
    return MPIDIG_mpi_free_mem(memory);
}

int MPIDI_STUBNM_mpi_psend_init(const void *buf, int partitions, MPI_Aint count,
                                MPI_Datatype datatype, int rank, int tag, MPIR_Comm * comm,
                                MPIR_Info * info, MPIDI_av_entry_t * av, MPIR_Request ** request)
{
    return MPIDIG_mpi_psend_init(buf, partitions, count, datatype, rank, tag, comm, info, request);
}

int MPIDI_STUBNM_mpi_precv_init(void *buf, int partitions, MPI_Aint count, MPI_Datatype datatype,
                                int rank, int tag, MPIR_Comm * comm, MPIR_Info * info,
                                MPIDI_av_entry_t * av, MPIR_Request ** request)
{
    return MPIDIG_mpi_precv_init(buf, partitions, count, datatype, rank, tag, comm, info, request);
}

int MPIDI_STUBNM_mpi_win_set_info(MPIR_Win * win, MPIR_Info * info)
{
    return MPIDIG_mpi_win_set_info(win, info);
}

int MPIDI_STUBNM_mpi_win_get_info(MPIR_Win * win, MPIR_Info ** info)
{
    return MPIDIG_mpi_win_get_info(win, info);
}

int MPIDI_STUBNM_mpi_win_free(MPIR_Win ** win)
{
    return MPIDIG_mpi_win_free(win);
}

int MPIDI_STUBNM_mpi_win_create(void *base, MPI_Aint length, int disp_unit, MPIR_Info * info,
                                MPIR_Comm * comm, MPIR_Win ** win)
{
    return MPIDIG_mpi_win_create(base, length, disp_unit, info, comm, win);
}

int MPIDI_STUBNM_mpi_win_attach(MPIR_Win * win, void *base, MPI_Aint size)
{
    return MPIDIG_mpi_win_attach(win, base, size);
}

int MPIDI_STUBNM_mpi_win_detach(MPIR_Win * win, const void *base)
{
    return MPIDIG_mpi_win_detach(win, base);
}

int MPIDI_STUBNM_mpi_win_allocate_shared(MPI_Aint size, int disp_unit, MPIR_Info * info,
                                         MPIR_Comm * comm, void **base, MPIR_Win ** win)
{
    return MPIDIG_mpi_win_allocate_shared(size, disp_unit, info, comm, base, win);
}

int MPIDI_STUBNM_mpi_win_allocate(MPI_Aint size, int disp_unit, MPIR_Info * info, MPIR_Comm * comm,
                                  void *base, MPIR_Win ** win)
{
    return MPIDIG_mpi_win_allocate(size, disp_unit, info, comm, base, win);
}

int MPIDI_STUBNM_mpi_win_create_dynamic(MPIR_Info * info, MPIR_Comm * comm, MPIR_Win ** win)
{
    return MPIDIG_mpi_win_create_dynamic(info, comm, win);
}
