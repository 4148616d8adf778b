! hello-fortran: formatted output and an intrinsic that allocates.
program hello
  implicit none
  character(len=16) :: rank, ranks
  real(8), allocatable :: a(:)
  integer :: i
  call get_environment_variable("HEARTH_RANK", rank)
  call get_environment_variable("HEARTH_SIZE", ranks)
  allocate(a(1000))
  a = [(real(i, 8), i = 1, 1000)]
  write(*, '(5a,f10.1)') "hello from hello-fortran, rank ", trim(rank), " of ", trim(ranks), ", sum", sum(a)
end program
