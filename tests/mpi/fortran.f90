! Messages, a reduction and an exchange by the module mpi_f08. Prints "No Errors" from rank 0.
program fortran
  use mpi_f08
  implicit none
  integer :: rank, ranks, i, got, errors, all_errors
  integer, allocatable :: send(:), receive(:)
  type(MPI_Status) :: status
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  errors = 0
  call MPI_Sendrecv(rank, 1, MPI_INTEGER, modulo(rank + 1, ranks), 5, got, 1, MPI_INTEGER, &
                    MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, status)
  if (got /= modulo(rank - 1, ranks) .or. status%MPI_SOURCE /= got) errors = errors + 1
  allocate (send(ranks), receive(ranks))
  send = [(rank * 100 + i, i = 0, ranks - 1)]
  call MPI_Alltoall(send, 1, MPI_INTEGER, receive, 1, MPI_INTEGER, MPI_COMM_WORLD)
  if (any(receive /= [(i * 100 + rank, i = 0, ranks - 1)])) errors = errors + 1
  call MPI_Reduce(errors, all_errors, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. all_errors == 0) print *, 'No Errors'
  call MPI_Finalize()
end program
