// ranks-files-shared FILE SEGMENTS BLOCK PIECE: one file that all ranks write and read, as IOR does
// with a shared file. A segment of it has a block of each rank, written in pieces. Each rank reads the
// blocks of the next one, then all blocks in another order, and compares every byte. In a second pass
// each rank writes what the next one wrote before. Prints one line when all is right.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hearth.h"

enum { PASSES = 2, STEP = 7 };

static const char *file;
static long segments, block, piece;
static int rank, size;

static void check(int good, const char *what) {
    if (!good) {
        printf("rank %d: %s: %s\n", rank, what, strerror(errno));
        exit(1);
    }
}

// The byte at this place of the file after a pass. Whoever checks the file has the same.
static char byte_at(long at, int pass) {
    return (char)(at * 31 + at / 251 + pass * 101);
}

static long begin_of(long segment, int of) {
    return (segment * size + of) * block;
}

static void write_blocks(int of, int pass) {
    char *bytes = malloc(piece);
    int fd = open(file, O_RDWR | O_CREAT, 0644);
    check(bytes != NULL && fd >= 0, "open for writing");
    for (long segment = 0; segment < segments; segment++)
        for (long done = 0; done < block; done += piece) {
            long at = begin_of(segment, of) + done;
            long length = block - done < piece ? block - done : piece;
            for (long i = 0; i < length; i++)
                bytes[i] = byte_at(at + i, pass);
            check(pwrite(fd, bytes, length, at) == length, "pwrite");
        }
    check(fsync(fd) == 0 && close(fd) == 0, "fsync and close");
    free(bytes);
}

static void compare(const char *bytes, long at, long length, int pass) {
    for (long i = 0; i < length; i++)
        if (bytes[i] != byte_at(at + i, pass)) {
            printf("rank %d: pass %d: another byte at %ld\n", rank, pass, at + i);
            exit(1);
        }
}

static void read_blocks(int pass) {
    long blocks = segments * size;
    char *bytes = malloc(block);
    int fd = open(file, O_RDONLY);
    struct stat info;
    check(bytes != NULL && fd >= 0 && fstat(fd, &info) == 0, "open for reading");
    check(info.st_size == blocks * block, "the size");
    int next = (rank + 1) % size;
    for (long segment = 0; segment < segments; segment++) {
        long at = begin_of(segment, next);
        check(lseek(fd, at, SEEK_SET) == at, "lseek");
        for (long done = 0; done < block; done += piece) {
            long length = block - done < piece ? block - done : piece;
            check(read(fd, bytes, length) == length, "read");
            compare(bytes, at + done, length, pass);
        }
    }
    // A step that has no common divisor with the number comes to each block once.
    long step = blocks % STEP == 0 ? 1 : STEP;
    for (long turn = 0; turn < blocks; turn++) {
        long at = (turn * step + rank) % blocks * block;
        check(pread(fd, bytes, block, at) == block, "pread");
        compare(bytes, at, block, pass);
    }
    check(close(fd) == 0, "close");
    free(bytes);
}

int main(int argc, char **argv) {
    rank = hearth_rank(), size = hearth_size();
    check(argc == 5, "ranks-files-shared FILE SEGMENTS BLOCK PIECE");
    file = argv[1], segments = atol(argv[2]), block = atol(argv[3]), piece = atol(argv[4]);
    check(segments > 0 && block > 0 && piece > 0, "numbers above 0");
    for (int pass = 0; pass < PASSES; pass++) {
        write_blocks((rank + pass) % size, pass);
        check(hearth_barrier() == 0, "barrier");
        read_blocks(pass);
        check(hearth_barrier() == 0, "barrier");
    }
    printf("rank %d: whole\n", rank);
    return 0;
}
