program io
  implicit none
  integer :: i, u, total, x
  real(8) :: t(1000)
  open(newunit=u, file='numbers.txt', status='replace', action='write')
  do i = 1, 1000
    write(u, *) i, i*i
  end do
  close(u)
  open(newunit=u, file='numbers.txt', status='old', action='read')
  total = 0
  do i = 1, 1000
    read(u, *) x
    total = total + x
  end do
  close(u, status='delete')
  print *, 'sum', total
  t = 1.5d0
  open(newunit=u, file='bin.dat', form='unformatted', access='stream', status='replace')
  write(u) t
  close(u)
  t = 0
  open(newunit=u, file='bin.dat', form='unformatted', access='stream', status='old')
  read(u) t
  close(u, status='delete')
  print *, 'binary', sum(t)
  open(newunit=u, status='scratch')
  write(u, *) 'scratch'
  rewind(u)
  close(u)
  open(newunit=u, file='direct.dat', access='direct', recl=80, form='unformatted', status='replace')
  do i = 10, 1, -1
    write(u, rec=i) i
  end do
  read(u, rec=7) x
  close(u, status='delete')
  print *, 'direct', x
end program
