// Calls on files, each with its result: what it prints on a node is what it prints on Linux. It works
// in the directory in which it is started, or in one that it makes in the directory that it is given,
// and leaves it as it was but for `kept.txt`.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

static void say(const char *what, long result) {
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
}

#define SAY(call) say(#call, (long)(call))
// A descriptor's number is told by Linux's rule, too: the lowest that is free.
static char buffer[300000], other[300000];

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) {
        say(path, -1);
        return;
    }
    char *names[100];
    int count = 0;
    for (struct dirent *entry; count < 100 && (entry = readdir(directory));)
        names[count++] = strdup(entry->d_name);
    closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    printf("%s has", path);
    for (int i = 0; i < count; i++)
        printf(" %s", names[i]);
    printf("\n");
}

static void about(const char *path) {
    struct stat info;
    if (lstat(path, &info) < 0) {
        say(path, -1);
        return;
    }
    printf("%s: mode %o, %lu links, %ld bytes\n", path, info.st_mode, (unsigned long)info.st_nlink,
           S_ISDIR(info.st_mode) ? 0 : (long)info.st_size);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    umask(022);
    if (argc > 1) {
        snprintf(buffer, sizeof buffer, "%s/files-XXXXXX", argv[1]);
        SAY(chdir(mkdtemp(buffer)));
    }
    SAY(mkdir("work", 0777));
    SAY(mkdir("work", 0777));
    SAY(chdir("work"));
    char path[4096];
    printf("in %s\n", strrchr(getcwd(path, sizeof path), '/'));

    int fd = open("a", O_RDWR | O_CREAT | O_EXCL, 0666);
    say("open a", fd);
    SAY(open("a", O_RDWR | O_CREAT | O_EXCL, 0666));
    SAY(open("none", O_RDONLY));
    SAY(open("none/a", O_RDONLY));
    SAY(open("a/b", O_RDONLY));
    SAY(open("a", O_RDONLY | O_DIRECTORY));
    SAY(open("", O_RDONLY));
    SAY(write(fd, "hello, files\n", 13));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, -6, SEEK_END));
    memset(buffer, 0, 100);
    SAY(read(fd, buffer, 100));
    printf("read: %s", buffer);
    SAY(read(fd, buffer, 100));
    SAY(pwrite(fd, "HE", 2, 0));
    SAY(pread(fd, buffer, 5, 0));
    printf("pread: %.5s\n", buffer);
    SAY(lseek(fd, -1, SEEK_SET));
    SAY(lseek(fd, 0, 77));
    SAY(pread(fd, buffer, 5, -1));
    struct iovec parts[3] = {{"one ", 4}, {"", 0}, {"two\n", 4}};
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(writev(fd, parts, 3));
    SAY(pwritev(fd, parts, 3, 100));
    SAY(lseek(fd, 0, SEEK_END));
    struct iovec into[2] = {{buffer, 3}, {other, 50}};
    SAY(preadv(fd, into, 2, 2));
    SAY(ftruncate(fd, 5));
    about("a");
    SAY(ftruncate(fd, -1));
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    int again = dup(fd);
    say("dup", again);
    SAY(lseek(fd, 3, SEEK_SET));
    SAY(lseek(again, 0, SEEK_CUR));
    SAY(close(fd));
    SAY(read(again, buffer, 10));
    SAY(close(again));
    SAY(close(again));

    // Larger than a call moves at once.
    for (size_t i = 0; i < sizeof buffer; i++)
        buffer[i] = i * 7 + i / 251;
    fd = open("large", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SAY(write(fd, buffer, sizeof buffer));
    SAY(lseek(fd, 1, SEEK_SET));
    SAY(read(fd, other, sizeof other));
    printf("the same: %d\n", memcmp(other, buffer + 1, sizeof other - 1) == 0);
    SAY(pread(fd, other, 10, 1 << 20));
    SAY(lseek(fd, 1 << 20, SEEK_SET));
    SAY(write(fd, "x", 1));
    about("large");
    SAY(lseek(fd, 0, SEEK_HOLE) > 0);
    SAY(lseek(fd, 1 << 20, SEEK_DATA));
    SAY(read(fd, (void *)8, 10));
    SAY(write(fd, (void *)8, 10));
    SAY(close(fd));
    SAY(open("large", O_RDONLY));
    SAY(write(3, "x", 1));
    SAY(close(3));

    // Copying without a buffer, from one file to another.
    fd = open("large", O_RDONLY);
    int to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t from = 10;
    SAY(sendfile(to, fd, &from, 1000));
    printf("from %ld\n", (long)from);
    SAY(sendfile(to, fd, NULL, 2000));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(pread(to, other, 4000, 0));
    printf("the same: %d\n", !memcmp(other, buffer + 10, 1000) && !memcmp(other + 1000, buffer, 2000));
    // Flags are an int: the upper half of what is passed does not count.
    const long upper = 1L << 32;
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(syscall(SYS_copy_file_range, fd, NULL, to, NULL, 500, upper));
    SAY(syscall(SYS_copy_file_range, fd, NULL, to, NULL, 500, upper | 1));
    struct iovec part = {other, 20};
    SAY(syscall(SYS_preadv2, to, &part, 1, 0, 0, upper));
    SAY(sendfile(fd, to, NULL, 10));
    SAY(sendfile(99, fd, NULL, 10));
    SAY(close(to));
    SAY(close(fd));
    SAY(unlink("copy"));

    // Appending.
    fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    SAY(write(fd, "first\n", 6));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "second\n", 7));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, buffer, 1));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(close(fd));
    about("log");

    // Names.
    SAY(mkdir("d", 0755));
    SAY(rename("log", "d/log"));
    SAY(rename("none", "d/x"));
    SAY(rename("d", "d/inside"));
    SAY(link("d/log", "d/hard"));
    SAY(symlink("log", "d/soft"));
    SAY(symlink("log", "d/soft"));
    about("d/soft");
    about("d/hard");
    SAY(readlink("d/soft", buffer, 100));
    printf("link: %.3s\n", buffer);
    SAY(readlink("d/log", buffer, 100));
    memset(other, 't', 4200);
    SAY(symlink(other, "long"));
    other[4096] = 0;
    SAY(symlink(other, "long"));
    SAY(symlink("loop", "loop"));
    SAY(open("loop", O_RDONLY));
    SAY(open("loop", O_RDONLY | O_NOFOLLOW));
    SAY(unlink("loop"));
    list("d");
    SAY(chmod("d/log", 0400));
    about("d/log");
    SAY(access("d/log", R_OK));
    SAY(access("d/log", X_OK));
    SAY(access("d/none", F_OK));
    SAY(truncate("d/hard", 3));
    SAY(rmdir("d"));
    SAY(unlink("d"));
    SAY(unlink("d/none"));
    SAY(rmdir("d/log"));
    int at = open("d", O_RDONLY | O_DIRECTORY);
    SAY(openat(at, "log", O_RDONLY));
    SAY(close(4));
    SAY(mkdirat(at, "deep", 0700));
    SAY(unlinkat(at, "deep", AT_REMOVEDIR));
    SAY(read(at, buffer, 10));
    SAY(fchdir(at));
    printf("in %s\n", strrchr(getcwd(path, sizeof path), '/'));
    SAY(close(at));
    SAY(chdir("../a"));
    SAY(chdir(".."));
    struct timespec times[2] = {{1000000000, 5}, {1100000000, 123456789}};
    SAY(utimensat(AT_FDCWD, "a", times, 0));
    struct stat info;
    SAY(stat("a", &info));
    printf("mine: %d\n", info.st_uid == getuid() && info.st_uid == geteuid());
    printf("times %ld.%09ld %ld.%09ld\n", (long)info.st_atim.tv_sec, info.st_atim.tv_nsec,
           (long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    struct statfs system;
    SAY(statfs(".", &system));
    printf("block %d\n", system.f_bsize > 0 && system.f_blocks > 0);
    memset(path, 'n', 300);
    path[300] = 0;
    SAY(open(path, O_RDONLY | O_CREAT, 0600));
    memset(path, 'n', sizeof path - 1);
    SAY(open(path, O_RDONLY));

    // Locks: this program is alone.
    fd = open("a", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(fcntl(fd, F_SETLKW, &lock));
    SAY(flock(fd, LOCK_EX | LOCK_NB));
    SAY(flock(fd, LOCK_UN));
    lock.l_type = F_UNLCK;
    SAY(fcntl(fd, F_SETLK, &lock));
    // From the end of the file, forwards, backwards, and to before its begin.
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_END;
    SAY(fcntl(fd, F_SETLK, &lock));
    lock.l_start = -2;
    lock.l_len = -1;
    SAY(fcntl(fd, F_SETLK, &lock));
    lock.l_start = -1000000000;
    SAY(fcntl(fd, F_SETLK, &lock));
    lock.l_type = F_UNLCK;
    lock.l_start = -3;
    lock.l_len = 0;
    SAY(fcntl(fd, F_SETLK, &lock));
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END};
    SAY(fcntl(fd, F_GETLK, &lock));
    SAY(lock.l_type == F_UNLCK);

    // A file without a name.
    SAY(unlink("a"));
    SAY(write(fd, "still", 5));
    SAY(fstat(fd, &info));
    printf("links %lu\n", (unsigned long)info.st_nlink);
    SAY(close(fd));

    // What C makes of it.
    FILE *file = fopen("text", "w+");
    for (int i = 0; i < 20000; i++)
        fprintf(file, "line %d\n", i);
    SAY(fseek(file, 0, SEEK_SET));
    int lines = 0;
    while (fgets(path, sizeof path, file))
        lines++;
    printf("%d lines, the last %s", lines, path);
    SAY(fclose(file));
    about("text");
    file = tmpfile();
    printf("tmpfile %d\n", file != NULL);
    fputs("temporary", file);
    SAY(fclose(file));

    SAY(unlink("text"));
    SAY(unlink("large"));
    SAY(unlink("d/log"));
    SAY(unlink("d/hard"));
    SAY(unlink("d/soft"));
    list("d");
    SAY(rmdir("d"));
    SAY(chdir(".."));
    SAY(rmdir("work"));
    fd = open("kept.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    SAY(write(fd, "kept\n", 5));
    SAY(close(fd));
    return 0;
}
