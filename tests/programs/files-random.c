// files-random SEED OPERATIONS: random calls on one file, each compared with a model of it in memory, as
// fsx does. It works in the directory in which it is started. Prints a line every tenth of the
// operations: what it prints on a node is what it prints on Linux.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST = 300000, PAGE = 4096, PARTS = 4 };

static unsigned char model[MOST], bytes[MOST];
static size_t size;
static unsigned long state, sum = 14695981039346656037ul;
static long operation;
static int fd, appends;

static size_t below(size_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (state * 0x2545f4914f6cdd1dul >> 16) % limit : 0;
}

// Mostly short, now and then long.
static size_t length_of(size_t most) {
    size_t length = 1 + below(below(8) ? 5000 : MOST / 2);
    return length < most ? length : most;
}

static void mix(const unsigned char *from, size_t length) {
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ from[at]) * 1099511628211ul;
}

static void must(int good, const char *what) {
    if (!good) {
        printf("operation %ld, %s: %s\n", operation, what, strerrorname_np(errno));
        exit(1);
    }
}

static void same(const unsigned char *got, size_t at, size_t length, const char *what) {
    for (size_t i = 0; i < length; i++)
        if (got[i] != model[at + i]) {
            printf("operation %ld, %s: byte %zu is %d instead of %d\n", operation, what, at + i, got[i],
                   model[at + i]);
            exit(1);
        }
    mix(got, length);
}

static void fill(size_t length) {
    unsigned long word = state;
    for (size_t i = 0; i < length; i++) {
        if (i % 8 == 0)
            word = word * 6364136223846793005ul + 1442695040888963407ul;
        bytes[i] = word >> (i % 8 * 8);
    }
}

static void grow(size_t end) {
    if (end > size)
        size = end;
}

static void cut(size_t end) {
    if (end < size)
        memset(model + end, 0, size - end);
    size = end;
}

static struct iovec *parts_of(size_t length) {
    static struct iovec parts[PARTS];
    size_t begin = 0;
    for (int i = 0; i < PARTS; i++) {
        size_t part = i == PARTS - 1 ? length - begin : below(length - begin + 1);
        parts[i] = (struct iovec){bytes + begin, part};
        begin += part;
    }
    return parts;
}

static void reading(int how) {
    size_t at = below(size + 100), length = length_of(MOST);
    size_t expected = at >= size ? 0 : length < size - at ? length : size - at;
    memset(bytes, 0xee, length);
    ssize_t got;
    if (how == 0)
        got = pread(fd, bytes, length, at);
    else if (how == 1)
        got = preadv(fd, parts_of(length), PARTS, at);
    else {
        must(lseek(fd, at, SEEK_SET) == (off_t)at, "lseek");
        got = read(fd, bytes, length);
        must(lseek(fd, 0, SEEK_CUR) == (off_t)(at + expected), "position after read");
    }
    must(got == (ssize_t)expected, "read");
    same(bytes, at, expected, "read");
}

// One piece after another, now and then with a change of what comes next.
static void reading_on(void) {
    size_t at = below(size + 100);
    must(lseek(fd, at, SEEK_SET) == (off_t)at, "lseek");
    for (size_t pieces = 2 + below(9); pieces > 0; pieces--) {
        size_t length = 1 + below(9000), expected = at >= size ? 0 : length < size - at ? length : size - at;
        must(read(fd, bytes, length) == (ssize_t)expected, "read on");
        same(bytes, at, expected, "read on");
        at += expected;
        if (at + 100 < size && below(3) == 0) {
            fill(100);
            must(pwrite(fd, bytes, 100, at) == 100, "write ahead");
            memcpy(model + at, bytes, 100);
        }
        if (below(5) == 0 && at < size) {
            cut(at + below(size - at));
            must(ftruncate(fd, size) == 0, "cut ahead");
        }
    }
}

static void writing(int how) {
    size_t at = below(MOST - 1), length = length_of(MOST - at);
    if (how == 3) {
        at = size;
        length = length_of(MOST - at);
    }
    if (length == 0)
        return;
    fill(length);
    ssize_t got;
    if (how == 0)
        got = pwrite(fd, bytes, length, at);
    else if (how == 1)
        got = pwritev(fd, parts_of(length), PARTS, at);
    else if (how == 2) {
        must(lseek(fd, at, SEEK_SET) == (off_t)at, "lseek");
        got = write(fd, bytes, length);
    } else
        got = write(appends, bytes, length);
    must(got == (ssize_t)length, "write");
    memcpy(model + at, bytes, length);
    grow(at + length);
}

static void mapping(void) {
    if (size == 0)
        return;
    size_t page = below((size + PAGE - 1) / PAGE), at = page * PAGE;
    size_t length = length_of(size - at);
    unsigned char *place = NULL;
    size_t how = below(4), whole = (length + PAGE - 1) / PAGE * PAGE;
    // Over what is there, over its second half, or where it was.
    if (how > 0) {
        place = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(place != MAP_FAILED, "mmap of memory");
        place[0] = place[whole - 1] = 'x';
        if (how == 2)
            must(munmap(place, (whole / 2 + PAGE - 1) / PAGE * PAGE) == 0, "munmap of a half");
        if (how == 3)
            must(munmap(place, whole) == 0, "munmap of all");
    }
    int flags = MAP_PRIVATE | (how > 0 ? MAP_FIXED : 0);
    unsigned char *map = mmap(place, length, PROT_READ, flags, fd, at);
    must(map != MAP_FAILED && (how == 0 || map == place), "mmap");
    same(map, at, length, "mmap");
    must(munmap(map, length) == 0, "munmap");
}

static void copying(int sends) {
    size_t from = below(size), to = below(MOST), length = length_of(MOST - to);
    if (size == 0 || length > size - from)
        length = size ? size - from : 0;
    if (length == 0 || (from < to + length && to < from + length))
        return;
    loff_t from_at = from, to_at = to;
    ssize_t got;
    if (sends) {
        must(lseek(fd, to, SEEK_SET) == (off_t)to, "lseek");
        int source = open("random", O_RDONLY);
        got = sendfile(fd, source, &from_at, length);
        must(close(source) == 0, "close");
    } else
        got = copy_file_range(fd, &from_at, fd, &to_at, length, 0);
    must(got == (ssize_t)length && from_at == (loff_t)(from + length), "copy");
    memmove(model + to, model + from, length);
    grow(to + length);
}

static void allocating(void) {
    size_t at = below(MOST - 1), length = length_of(MOST - at);
    switch (below(3)) {
    case 0:
        must(fallocate(fd, 0, at, length) == 0, "fallocate");
        grow(at + length);
        break;
    case 1:
        must(fallocate(fd, FALLOC_FL_KEEP_SIZE, at, length) == 0, "fallocate, size kept");
        break;
    default:
        must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) == 0, "a hole");
        if (at < size)
            memset(model + at, 0, length < size - at ? length : size - at);
    }
}

static void reopening(void) {
    must(close(fd) == 0, "close");
    fd = open("random", O_RDWR);
    must(fd >= 0, "open");
}

static void looking(void) {
    struct stat info;
    must((below(2) ? fstat(fd, &info) : stat("random", &info)) == 0, "stat");
    must(info.st_size == (off_t)size, "size");
    must(lseek(fd, 0, SEEK_END) == (off_t)size, "end");
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoul(argv[1], NULL, 10) * 2 + 1 : 1;
    long operations = argc > 2 ? atol(argv[2]) : 1000;
    for (int i = 0; i < 20; i++)
        below(2);
    // A directory to work in.
    must(argc < 4 || chdir(argv[3]) == 0, "chdir");
    fd = open("random", O_RDWR | O_CREAT | O_TRUNC, 0644);
    appends = open("random", O_WRONLY | O_APPEND);
    must(fd >= 0 && appends >= 0, "open");
    for (operation = 1; operation <= operations; operation++) {
        size_t what = below(100);
        if (what < 25)
            reading(below(3));
        else if (what < 35)
            reading_on();
        else if (what < 70)
            writing(below(4));
        else if (what < 75)
            mapping();
        else if (what < 82) {
            size_t end = below(MOST);
            must((below(2) ? ftruncate(fd, end) : truncate("random", end)) == 0, "truncate");
            cut(end);
        } else if (what < 86)
            allocating();
        else if (what < 91)
            copying(below(2));
        else if (what < 94)
            reopening();
        else if (what < 99)
            looking();
        else
            must((below(2) ? fsync(fd) : fdatasync(fd)) == 0, "fsync");
        if (operation % (operations / 10 ? operations / 10 : 1) == 0)
            printf("%ld operations, %zu bytes, sum %016lx\n", operation, size, sum);
    }
    ssize_t got = pread(fd, bytes, MOST, 0);
    must(got == (ssize_t)size, "the whole");
    same(bytes, 0, size, "the whole");
    printf("the same to the end, sum %016lx\n", sum);
    return 0;
}
