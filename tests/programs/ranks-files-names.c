// ranks-files-names COUNT: directories with many files, as mdtest makes them. Each rank makes COUNT
// files in a directory of its own and COUNT in one that all share; looks at those of the next rank;
// lists, renames and removes. All ranks also try to make, and to remove, the same names: of each, one
// rank may. One file of KEPT stays. Prints one line when all is right.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hearth.h"

enum { RACES = 10, KEPT = 5 };

static int rank, size;
static char path[128], other[160];

static void check(int good, const char *what) {
    if (!good) {
        printf("rank %d: %s: %s\n", rank, what, strerror(errno));
        exit(1);
    }
}

static void together(void) {
    check(hearth_barrier() == 0, "barrier");
}

static const char *name(char *into, const char *kind, const char *begin, int of, long number) {
    if (kind[0] == 's')
        snprintf(into, sizeof path, "shared/%s.%d.%ld", begin, of, number);
    else
        snprintf(into, sizeof path, "own.%d/%s.%d.%ld", of, begin, of, number);
    return into;
}

// A file holds its own name.
static void make(const char *kind, long number) {
    name(path, kind, "made", rank, number);
    ssize_t length = (ssize_t)strlen(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0640);
    check(fd >= 0 && write(fd, path, length) == length && close(fd) == 0, path);
}

static void look(const char *kind, int of, long number) {
    struct stat info;
    name(path, kind, "made", of, number);
    check(stat(path, &info) == 0 && S_ISREG(info.st_mode), path);
    check((info.st_mode & 0777) == 0640 && info.st_nlink == 1, "rights and links");
    check(info.st_size == (off_t)strlen(path), "the size");
    char held[sizeof path];
    int fd = open(path, O_RDONLY);
    check(fd >= 0 && read(fd, held, sizeof held) == info.st_size && close(fd) == 0, "read");
    check(memcmp(held, path, info.st_size) == 0, "what it holds");
}

// The names in a directory, each of which may be there once.
static long list(const char *directory, long most) {
    DIR *opened = opendir(directory);
    check(opened != NULL, directory);
    char (*seen)[256] = calloc(most + 1, sizeof *seen);
    check(seen != NULL, "memory");
    long count = 0;
    struct dirent *entry;
    while ((errno = 0, entry = readdir(opened)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        check(count < most, "too many names");
        snprintf(seen[count++], sizeof *seen, "%s", entry->d_name);
    }
    check(errno == 0 && closedir(opened) == 0, "readdir");
    qsort(seen, count, sizeof *seen, (int (*)(const void *, const void *))strcmp);
    for (long i = 1; i < count; i++)
        check(strcmp(seen[i - 1], seen[i]) != 0, "a name twice");
    free(seen);
    return count;
}

// Of all ranks one may do a thing, the others are told why not.
static void one_of_all(int done, int why_not, const char *what) {
    check(done == 0 || errno == why_not, what);
    int64_t did = done == 0;
    check(hearth_allreduce(&did, 1, HEARTH_INT64, HEARTH_SUM) == 0, "allreduce");
    errno = 0;
    check(did == 1, what);
}

static void race(void) {
    for (int turn = 0; turn < RACES; turn++) {
        snprintf(path, sizeof path, "shared/race.%d", turn);
        one_of_all(mkdir(path, 0755), EEXIST, "mkdir by all");
        snprintf(other, sizeof other, "%s/file", path);
        int fd = open(other, O_WRONLY | O_CREAT | O_EXCL, 0644);
        one_of_all(fd < 0 ? -1 : close(fd), EEXIST, "create by all");
        one_of_all(unlink(other), ENOENT, "unlink by all");
        one_of_all(rmdir(path), ENOENT, "rmdir by all");
    }
}

int main(int argc, char **argv) {
    rank = hearth_rank(), size = hearth_size();
    long count = argc == 2 ? atol(argv[1]) : 0;
    check(count > 0, "ranks-files-names COUNT");
    snprintf(path, sizeof path, "own.%d", rank);
    check(mkdir(path, 0755) == 0, path);
    check(mkdir("shared", 0755) == 0 || errno == EEXIST, "shared");
    together();
    for (long i = 0; i < count; i++) {
        make("own", i);
        make("shared", i);
    }
    together();
    int next = (rank + 1) % size;
    for (long i = 0; i < count; i++) {
        look("own", next, i);
        look("shared", next, i);
    }
    check(list("shared", count * size) == count * size, "the number of names");
    snprintf(path, sizeof path, "own.%d", next);
    check(list(path, count) == count, "the number of names of the next rank");
    // Nobody lists any more.
    together();
    for (long i = 0; i < count; i++)
        check(rename(name(path, "shared", "made", next, i), name(other, "shared", "moved", next, i)) == 0, path);
    together();
    for (long i = 0; i < count; i++) {
        check(access(name(path, "shared", "made", rank, i), F_OK) < 0 && errno == ENOENT, path);
        if (i % KEPT != 0)
            check(unlink(name(path, "shared", "moved", rank, i)) == 0, path);
        check(unlink(name(path, "own", "made", next, i)) == 0, path);
    }
    together();
    long kept = (count + KEPT - 1) / KEPT;
    check(list("shared", count * size) == kept * size, "the number of kept names");
    snprintf(path, sizeof path, "own.%d", rank);
    check(list(path, count) == 0 && rmdir(path) == 0, path);
    together();
    race();
    printf("rank %d: %ld kept\n", rank, kept);
    return 0;
}
