/* with-c NAME BYTES SEED: the file /with/NAME through the C library and the system calls under it.
 * Its byte at offset i must be (i * 2654435761 + SEED) mod 2^32, shifted right by 13, mod 256.
 * Prints one line and exits with 0 when all is as on Linux with /with mounted read only; else says
 * what differs and exits with 1. musl-with.c is the same with musl. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

static uint32_t seed;
static size_t bytes;

static unsigned char expected(size_t at)
{
    return ((uint32_t)at * 2654435761u + seed) >> 13;
}

static int same(const unsigned char *seen, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (seen[i] != expected(from + i))
            return 0;
    return 1;
}

static void by_stdio(const char *path)
{
    static unsigned char buffer[50000];
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t at = 0, got;
    while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) {
        CHECK(same(buffer, at, got));
        at += got;
    }
    CHECK(at == bytes && feof(file) && !ferror(file));
    CHECK(fseek(file, 0, SEEK_END) == 0 && ftell(file) == (long)bytes);
    for (int i = 0; i < 200; i++) {
        size_t to = (size_t)i * 7919 % bytes;
        CHECK(fseek(file, (long)to, SEEK_SET) == 0);
        CHECK(fgetc(file) == expected(to));
    }
    CHECK(fclose(file) == 0);
    errno = 0;
    CHECK(!fopen(path, "r+") && errno == EROFS);
}

static void by_calls(const char *path)
{
    unsigned char one[100], two[300];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd > 2);
    size_t middle = bytes / 2;
    size_t rest = bytes - middle < sizeof one ? bytes - middle : sizeof one;
    CHECK(lseek(fd, (off_t)middle, SEEK_SET) == (off_t)middle);
    CHECK(read(fd, one, sizeof one) == (ssize_t)rest && same(one, middle, rest));
    int copy = dup(fd);
    CHECK(copy > fd && lseek(copy, 0, SEEK_CUR) == (off_t)(middle + rest));
    CHECK(pread(copy, one, 10, 0) == 10 && same(one, 0, 10));
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)(middle + rest));
    struct iovec pieces[2] = {{one, 50}, {two, sizeof two}};
    size_t got = bytes < 350 ? bytes : 350;
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, pieces, 2) == (ssize_t)got);
    CHECK(same(one, 0, 50) && same(two, 50, got - 50));
    CHECK(lseek(fd, 0, SEEK_END) == (off_t)bytes && read(fd, one, 1) == 0);
    errno = 0;
    CHECK(write(fd, one, 1) == -1 && errno == EBADF);
    CHECK(lseek(fd, 1, SEEK_DATA) == 1 && lseek(fd, 0, SEEK_HOLE) == (off_t)bytes);
    struct stat by_fd, by_path;
    CHECK(fstat(fd, &by_fd) == 0 && stat(path, &by_path) == 0);
    CHECK(by_fd.st_size == (off_t)bytes && S_ISREG(by_fd.st_mode) && (by_fd.st_mode & 0777) == 0444);
    CHECK(by_fd.st_ino == by_path.st_ino && by_fd.st_dev == by_path.st_dev);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK(close(fd) == 0 && read(copy, one, 1) == 0 && close(copy) == 0);
    CHECK(access(path, R_OK) == 0 && access(path, W_OK) == -1);
    /* The standard streams can be copied like files. */
    int out = dup(1);
    CHECK(out > 2 && write(out, "copied ", 7) == 7 && close(out) == 0);
}

static void by_mapping(const char *path)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + page - 1) / page * page;
    int fd = open(path, O_RDONLY);
    CHECK(fd > 2);
    unsigned char *shared = mmap(0, bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *private = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED);
    errno = 0;
    CHECK(mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    if (bytes > (size_t)page) {
        unsigned char *second = mmap(0, page, PROT_READ, MAP_PRIVATE, fd, page);
        CHECK(second != MAP_FAILED && second[0] == expected(page));
        CHECK(munmap(second, page) == 0);
    }
    CHECK(close(fd) == 0);
    for (size_t at = 0; at < bytes; at += page)
        private[at] ^= 0xff;
    CHECK(same(shared, 0, bytes));
    for (size_t i = bytes; i < whole; i++)
        CHECK(shared[i] == 0 && private[i] == 0);
    for (size_t at = 0; at < bytes; at++)
        CHECK(private[at] == (expected(at) ^ (at % page ? 0 : 0xff)));
    CHECK(mprotect(shared, page, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    CHECK(munmap(shared, bytes) == 0 && munmap(private, bytes) == 0);
}

static void by_name(const char *name)
{
    DIR *directory = opendir("/with");
    CHECK(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        found += strcmp(entry->d_name, name) == 0 && entry->d_type == DT_REG;
    CHECK(found == 1 && closedir(directory) == 0);
    errno = 0;
    CHECK(open("/with/there is no such file", O_RDONLY) == -1 && errno == ENOENT);
    errno = 0;
    CHECK(open("/with", O_RDWR) == -1 && errno == EISDIR);
    errno = 0;
    CHECK(open("/with/new", O_CREAT | O_WRONLY, 0600) == -1 && errno == EROFS);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        puts("usage: with-c NAME BYTES SEED");
        return 2;
    }
    bytes = strtoul(argv[2], 0, 10);
    seed = strtoul(argv[3], 0, 10);
    char path[300];
    snprintf(path, sizeof path, "/with/%s", argv[1]);
    by_stdio(path);
    by_calls(path);
    by_mapping(path);
    by_name(argv[1]);
    printf("%zu bytes of %s are right\n", bytes, argv[1]);
    return 0;
}
