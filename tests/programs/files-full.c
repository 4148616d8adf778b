// Calls that fail: what it prints on a node is what it prints on Linux, but for the last line of `maps`.
// It works in the directory in which it is started: `full` where there is room for some megabytes,
// `read-only` where there is `input` and nothing can be written, `maps` anywhere. `mapping` maps `bulk`
// again and again, until there is `on`: its pages hold their numbers.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEGABYTE = 1 << 20, BEGIN = 5 };

static char block[MEGABYTE];

static void say(const char *what, long result) {
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
}

#define SAY(call) say(#call, (long)(call))

static char byte_at(long at) {
    return at * 31 + at / 4099;
}

static void make(long at) {
    for (long i = 0; i < MEGABYTE; i++)
        block[i] = byte_at(at + i);
}

// Writes megabytes until the disk is full: what the calls said is what the file has.
static void fill(const char *name, int flags) {
    int file = open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0644);
    make(0);
    long said = write(file, block, BEGIN), got;
    do {
        make(said);
        got = write(file, block, MEGABYTE);
        said += got > 0 ? got : 0;
    } while (got > 0);
    say("full", got);
    struct stat info;
    printf("length: %d\n", fstat(file, &info) == 0 && info.st_size == said);
    printf("position: %d\n", lseek(file, 0, SEEK_CUR) == said);
    SAY(fsync(file));
    int wrong = 0;
    static char back[MEGABYTE];
    for (long at = 0; at < said; at += MEGABYTE) {
        long rest = said - at < MEGABYTE ? said - at : MEGABYTE;
        make(at);
        wrong += pread(file, back, MEGABYTE, at) != rest || memcmp(back, block, rest);
    }
    say("wrong", wrong);
    SAY(close(file));
    printf("%s has %ld\n", name, said);
}

static void full(void) {
    fill("gone", 0);
    SAY(unlink("gone"));
    fill("kept", O_APPEND);
}

static void read_only(void) {
    SAY(open("input", O_RDWR));
    SAY(open("input", O_RDONLY | O_TRUNC));
    SAY(open("new", O_WRONLY | O_CREAT, 0644));
    SAY(mkdir("new", 0755));
    SAY(unlink("input"));
    SAY(rename("input", "new"));
    SAY(truncate("input", 0));
    SAY(access("input", W_OK));
    int file = open("input", O_RDONLY);
    say("input", file < 0 ? file : read(file, block, sizeof block));
}

static void try_map(const char *what, int flags, int protection, int kind) {
    int file = open("data", flags);
    void *at = mmap(NULL, 4096, protection, kind, file, 0);
    say(what, at == MAP_FAILED ? -1 : 0);
    if (at != MAP_FAILED)
        munmap(at, 4096);
    close(file);
}

static void maps(void) {
    int file = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    say("data", write(file, block, 8192));
    close(file);
    try_map("private", O_RDONLY, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    try_map("shared", O_RDONLY, PROT_READ, MAP_SHARED);
    try_map("write only", O_WRONLY, PROT_READ, MAP_PRIVATE);
    try_map("write only, shared", O_WRONLY, PROT_WRITE, MAP_SHARED);
    try_map("read only, shared", O_RDONLY, PROT_WRITE, MAP_SHARED);
    try_map("a name", O_PATH, PROT_READ, MAP_PRIVATE);
    try_map("shared and writable", O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void mapping(void) {
    enum { PAGES = 4096, PAGE = 4096 };
    int file = open("bulk", O_RDONLY);
    long wrong = 0, maps = 0;
    struct stat info;
    printf("mapping\n");
    fflush(stdout);
    // At the end one is made, after the last that failed.
    while (stat("on", &info) < 0 || maps == 0) {
        unsigned char *at = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED) {
            maps = 0;
            continue;
        }
        maps++;
        for (long page = 0; page < PAGES; page++)
            wrong += at[page * PAGE] != page % 255 + 1 || at[page * PAGE + PAGE - 1] != page % 255 + 1;
        munmap(at, PAGES * PAGE);
    }
    printf("wrong: %ld\n", wrong);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "full"))
        full();
    else if (!strcmp(what, "read-only"))
        read_only();
    else if (!strcmp(what, "maps"))
        maps();
    else if (!strcmp(what, "mapping"))
        mapping();
    else
        return 2;
    return 0;
}
