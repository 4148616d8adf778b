! omp-fortran: OpenMP in Fortran: the default team, and one with more threads than cores; loops,
! reductions, critical sections, private data. The last line is "omp-fortran: ok".
program omp_fortran
  use omp_lib
  implicit none
  integer :: team
  team = omp_get_max_threads()
  if (team < 1) call fail("the default team", team)
  call work(team)
  call work(2 * omp_get_num_procs() + 1)
  print '(a)', "omp-fortran: ok"

contains

  subroutine work(wanted)
    integer, intent(in) :: wanted
    integer, parameter :: many = 20000
    integer :: i, found, critical, mine
    double precision :: values(many), total
    found = 0
    critical = 0
    total = 0
    !$omp parallel num_threads(wanted) private(mine)
    mine = omp_get_thread_num()
    !$omp atomic
    found = found + 1
    do i = 1, 30
      !$omp critical
      critical = critical + 1
      !$omp end critical
    end do
    if (mine /= omp_get_thread_num()) call fail("private data", mine)
    !$omp do schedule(dynamic, 500)
    do i = 1, many
      values(i) = sqrt(dble(i)) ** 2
    end do
    !$omp end do
    !$omp do reduction(+:total)
    do i = 1, many
      total = total + anint(values(i))
    end do
    !$omp end do
    !$omp end parallel
    if (found /= wanted) call fail("a team", found)
    if (critical /= 30 * wanted) call fail("critical sections", critical)
    if (total /= dble(many) * (many + 1) / 2) call fail("a sum", int(total))
  end subroutine work

  subroutine fail(what, value)
    character(*), intent(in) :: what
    integer, intent(in) :: value
    print '(3a,i0)', "omp-fortran: ", what, ": ", value
    stop 1
  end subroutine fail

end program omp_fortran
