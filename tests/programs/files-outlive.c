// Files that are open while the service that carries their calls out dies. It works in the directory in
// which it is started, where `data`, `moved`, `gone` and `sub/` are. It says "ready", and goes on when
// somebody has made `go`; then the same with "asking" and `on`.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 300000, TRIES = 600 };

static char block[BLOCK], back[BLOCK];

static void say(const char *what, long result) {
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
}

static int ask(const char *what, const char *path) {
    int errors = 0;
    struct stat info;
    printf("%s\n", what);
    fflush(stdout);
    for (int tries = 0; tries < TRIES; tries++) {
        if (stat(path, &info) == 0)
            return errors;
        if (errno == EIO)
            errors++;
        usleep(100000);
    }
    exit(9);
}

int main(void) {
    for (size_t i = 0; i < BLOCK; i++)
        block[i] = i * 7 + i / 251;
    int data = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int again = dup(data);
    int moved = open("moved", O_RDONLY), gone = open("gone", O_RDONLY);
    int locked = open("locked", O_RDWR | O_CREAT, 0644);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int sub = open("sub", O_RDONLY | O_DIRECTORY);
    int below = openat(sub, "below", O_RDWR | O_CREAT, 0644);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8};
    say("lock", fcntl(locked, F_SETLK, &lock));
    say("written", write(data, block, BLOCK));
    say("fsync", fsync(data));
    say("not synchronised", write(below, "below", 5));
    say("log", write(log, "one\n", 4));
    DIR *part = opendir("sub"), *whole = opendir("sub");
    say("an entry", readdir(part) != NULL);

    ask("ready", "go");

    say("position", lseek(again, 0, SEEK_CUR));
    say("read", pread(data, back, BLOCK, 0));
    say("the same", memcmp(block, back, BLOCK) == 0);
    say("more", write(again, block, 1000));
    say("below", pread(below, back, 10, 0));
    printf("in it: %.5s\n", back);
    say("log", write(log, "two\n", 4));
    say("moved", read(moved, back, 10));
    say("once more", read(moved, back, 10));
    say("gone", read(gone, back, 10));
    say("locked", pwrite(locked, "x", 1, 0));
    int fresh = open("locked", O_RDWR);
    say("opened anew", fresh >= 0 && pwrite(fresh, "y", 1, 0) == 1);
    say("entry below", faccessat(sub, "below", R_OK, 0));
    say("close moved", close(moved));
    say("close locked", close(locked));
    say("rest of a list", readdir(part) != NULL || errno == EIO);
    int names = 0;
    while (readdir(whole) != NULL)
        names++;
    say("names", names);

    // The service stands still, with a call of ours, and dies.
    say("errors", ask("asking", "on"));
    say("after it", pread(data, back, 1000, BLOCK));
    say("the same", memcmp(block, back, 1000) == 0);
    say("close", close(data));
    say("close", close(again));
    say("close", close(below));
    say("close", close(log));
    return 0;
}
