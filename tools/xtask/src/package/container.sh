# The package on a minimal system: container.sh SYSTEM PACKAGE, in a mount space of its own.
system=$1
package=$2

# All that is written goes to memory.
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$system,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
mount -t proc proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
cp "$package" /mnt/root/root/package.tar.gz
hostname container

exec chroot /mnt/root env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -eu -c '
    cd /root
    tar -xzf package.tar.gz
    cd hearth-*
    ./hearth up --nodes 1
    ./hearth run -n 1 programs/hello-c
    ./hearth down
    test -s symbols/kernel
    echo "container: done"
'
