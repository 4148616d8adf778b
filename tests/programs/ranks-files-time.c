/* ranks-files-time WHAT [COUNT] [BYTES]: how long calls on files take, one line from rank 0. It works
 * in the directory in which it is started.
 *
 *   write  each rank makes `bulk.RANK` of COUNT times BYTES, in calls of BYTES, and closes it
 *   read   each rank opens `bulk.RANK` and reads it so, comparing every byte
 *   same   each rank opens `bulk.0` and reads it so, comparing every byte
 *   stat   COUNT times stat of `small`
 *   small  COUNT times `small` opened, read (4 KB) and closed
 *   create COUNT times a file of its own made, written (4 KB) and closed
 *   list   COUNT times all names of the directory `many`
 *
 * Prints "WHAT seconds S": those of the slowest rank, from a barrier on. */
#include <dirent.h>
#include <fcntl.h>
#ifndef ALONE
#include <hearth.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL = 4096 };

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* The word at this place of each block of a rank's file, but for the first: that is the block's number.
 * The bench has the same. */
static unsigned long word_of(int rank, size_t at)
{
    return ((unsigned long)rank << 40 | at) * 0x9e3779b97f4a7c15ul + 1;
}

static void bulk(int rank, int writes, long count, size_t bytes)
{
    char name[32];
    snprintf(name, sizeof name, "bulk.%d", rank);
    unsigned long *block = malloc(bytes), *expected = malloc(bytes);
    must(block != NULL && expected != NULL, "block");
    for (size_t at = 0; at < bytes / sizeof *block; at++)
        expected[at] = word_of(rank, at);
    int flags = writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    int fd = open(name, flags, 0644);
    must(fd >= 0, name);
    for (long turn = 0; turn < count; turn++) {
        expected[0] = (unsigned long)turn;
        if (writes) {
            must(write(fd, expected, bytes) == (ssize_t)bytes, "write");
            continue;
        }
        must(read(fd, block, bytes) == (ssize_t)bytes, "read");
        must(memcmp(block, expected, bytes) == 0, "another byte");
    }
    must(close(fd) == 0, "close");
    free(expected);
    free(block);
}

static void small(int rank, const char *what, long turn)
{
    char block[SMALL], name[64];
    struct stat info;
    if (strcmp(what, "stat") == 0) {
        must(stat("small", &info) == 0, "stat");
    } else if (strcmp(what, "small") == 0) {
        int fd = open("small", O_RDONLY);
        must(fd >= 0 && read(fd, block, SMALL) == SMALL && close(fd) == 0, "small");
    } else if (strcmp(what, "create") == 0) {
        snprintf(name, sizeof name, "new.%d.%ld", rank, turn);
        memset(block, 'n', SMALL);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        must(fd >= 0 && write(fd, block, SMALL) == SMALL && close(fd) == 0, name);
    } else if (strcmp(what, "list") == 0) {
        DIR *directory = opendir("many");
        must(directory != NULL, "many");
        int names = 0;
        while (readdir(directory) != NULL)
            names++;
        must(closedir(directory) == 0 && names == 1002, "1,000 names");
    } else {
        exit(2);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long count = argc > 2 ? atol(argv[2]) : 1;
    size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 10) : 1 << 20;
    int rank = hearth_rank();
    must(rank >= 0 && hearth_barrier() >= 0, "barrier");
    double began = hearth_wtime();
    if (strcmp(what, "write") == 0 || strcmp(what, "read") == 0)
        bulk(rank, what[0] == 'w', count, bytes);
    else if (strcmp(what, "same") == 0)
        bulk(0, 0, count, bytes);
    else
        for (long turn = 0; turn < count; turn++)
            small(rank, what, turn);
    double took = hearth_wtime() - began;
    must(hearth_allreduce(&took, 1, HEARTH_DOUBLE, HEARTH_MAX) >= 0, "slowest");
#ifndef ALONE
    if (rank == 0)
#endif
        printf("%s seconds %.6f\n", what, took);
    return 0;
}
