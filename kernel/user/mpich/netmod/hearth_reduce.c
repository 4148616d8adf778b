/* MPI_Allreduce of a few bytes: every rank has all values after as many rounds as doubling the
 * number of ranks takes to reach all of them, and reduces them itself. MPICH's own needs two rounds
 * more where the ranks are no power of two.
 *
 * Invariant: values are reduced in the order of ranks, so that all have the same result and
 * operations need not commute. */
#include "stubnm_impl.h"

int hearth_reduce_few(const void *sendbuf, void *recvbuf, MPI_Aint count, MPI_Datatype datatype,
                     MPI_Op op, MPIR_Comm * comm, MPIR_Errflag_t * errflag)
{
    int mpi_errno = MPI_SUCCESS, errors = MPI_SUCCESS;
    int size = comm->local_size, rank = comm->rank;
    MPI_Aint bytes = count * MPIR_Datatype_get_basic_size(datatype);
    /* The value of rank (rank + i) % size is at i. */
    _Alignas(16) char values[HEARTH_ALLREDUCE_RANKS * HEARTH_ALLREDUCE_BYTES];

    if (count == 0)
        return MPI_SUCCESS;
    memcpy(values, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, bytes);
    for (int have = 1, more; have < size; have += more) {
        more = MPL_MIN(have, size - have);
        mpi_errno = MPIC_Sendrecv(values, more * bytes, MPI_BYTE, (rank - have + size) % size,
                                  MPIR_ALLREDUCE_TAG, values + have * bytes, more * bytes,
                                  MPI_BYTE, (rank + have) % size, MPIR_ALLREDUCE_TAG, comm,
                                  MPI_STATUS_IGNORE, errflag);
        if (mpi_errno) {
            /* for communication errors, just record the error but continue */
            *errflag = MPIX_ERR_PROC_FAILED == MPIR_ERR_GET_CLASS(mpi_errno)
                ? MPIR_ERR_PROC_FAILED : MPIR_ERR_OTHER;
            MPIR_ERR_SET(mpi_errno, *errflag, "**fail");
            MPIR_ERR_ADD(errors, mpi_errno);
        }
    }
#define VALUE(of) (values + ((of) - rank + size) % size * bytes)
    memcpy(recvbuf, VALUE(size - 1), bytes);
    for (int before = size - 2; before >= 0; before--) {
        mpi_errno = MPIR_Reduce_local(VALUE(before), recvbuf, count, datatype, op);
        MPIR_ERR_CHECK(mpi_errno);
    }
#undef VALUE
    if (errors)
        mpi_errno = errors;
    else if (*errflag != MPIR_ERR_NONE)
        MPIR_ERR_SET(mpi_errno, *errflag, "**coll_fail");
  fn_fail:
    return mpi_errno;
}
