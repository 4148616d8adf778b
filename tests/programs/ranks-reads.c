/* ranks-reads FILE: all ranks read one file at once, also after rank 0 has changed it. The word at each
 * place of the file is `word_of(0, place)`; rank 0 makes it `word_of(1, place)`, a part first.
 *
 * Prints, for each rank, how many bytes were right at first, in the part that was changed, read by the
 * descriptor that was open before, mapped, and after the file was opened anew. */
#include <fcntl.h>
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a read: no multiple of a page, nor of what the node asks for at a time. */
enum { PIECE = 200001, PART = 300000 };

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static unsigned long word_of(int version, size_t place)
{
    return ((unsigned long)version << 40 | place) * 0x9e3779b97f4a7c15ul + 1;
}

static void fill(int version, unsigned char *bytes, size_t from, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        unsigned long word = word_of(version, (from + at) / 8);
        bytes[at] = (unsigned char)(word >> (from + at) % 8 * 8);
    }
}

static size_t right(int version, const unsigned char *bytes, size_t from, size_t count)
{
    unsigned char *expected = malloc(count);
    must(expected != NULL, "memory");
    fill(version, expected, from, count);
    size_t right = 0;
    for (size_t at = 0; at < count; at++)
        right += bytes[at] == expected[at];
    free(expected);
    return right;
}

static size_t read_all(int fd, int version)
{
    static unsigned char piece[PIECE];
    size_t at = 0, good = 0;
    for (;;) {
        ssize_t got = read(fd, piece, sizeof piece);
        must(got >= 0, "read");
        if (got == 0)
            break;
        good += right(version, piece, at, (size_t)got);
        at += (size_t)got;
    }
    must(read(fd, piece, 1) == 0, "the end");
    return good;
}

static void write_as(const char *name, int version, size_t from, size_t count)
{
    unsigned char *bytes = malloc(count);
    must(bytes != NULL, "memory");
    fill(version, bytes, from, count);
    int fd = open(name, O_WRONLY);
    must(fd >= 0 && pwrite(fd, bytes, count, (off_t)from) == (ssize_t)count, "pwrite");
    must(close(fd) == 0, "close");
    free(bytes);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int rank = hearth_rank();
    must(rank >= 0, "rank");
    int fd = open(name, O_RDONLY);
    struct stat info;
    must(fd >= 0 && fstat(fd, &info) == 0, name);
    size_t bytes = (size_t)info.st_size;
    must(hearth_barrier() >= 0, "barrier");
    size_t first = read_all(fd, 0);
    must(hearth_barrier() >= 0, "barrier");
    if (rank == 0)
        write_as(name, 1, bytes / 2, PART);
    must(hearth_barrier() >= 0, "barrier");
    unsigned char *part = malloc(PART);
    must(part != NULL && pread(fd, part, PART, (off_t)(bytes / 2)) == PART, "pread");
    size_t changed = right(1, part, bytes / 2, PART);
    free(part);
    must(hearth_barrier() >= 0, "barrier");
    if (rank == 0)
        write_as(name, 1, 0, bytes);
    must(hearth_barrier() >= 0, "barrier");
    unsigned char *map = mmap(NULL, PART, PROT_READ, MAP_PRIVATE, fd, 4096);
    must(map != MAP_FAILED, "mmap");
    size_t mapped = right(1, map, 4096, PART);
    must(close(fd) == 0, "close");
    fd = open(name, O_RDONLY);
    must(fd >= 0, name);
    size_t anew = read_all(fd, 1);
    printf("%zu %zu %zu %zu\n", first, changed, mapped, anew);
    return 0;
}
