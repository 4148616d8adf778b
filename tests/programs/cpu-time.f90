! cpu-time: cpu_time advances while the program computes. The last line is "cpu-time: ok".
program cpu_time_advances
  implicit none
  real :: start, now
  double precision :: x
  integer :: i
  call cpu_time(start)
  x = 1
  do i = 1, 20000000
    x = x * 1.00000001d0
  end do
  call cpu_time(now)
  if (x > 0 .and. now > start) then
    print '(a)', 'cpu-time: ok'
  else
    print *, 'cpu-time:', start, now, x
    stop 1
  end if
end program
