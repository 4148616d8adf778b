// Ranks that share files: each appends its lines to one file and long records to another, adds to a number in another under a lock,
// reads what all have made of it, and ends with a lock that the next rank waits for. Prints one line
// when all is right.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "hearth.h"

enum { LINES = 50, ADDS = 20, RECORDS = 6, RECORD = 100000 };

static void check(int good, const char *what) {
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

int main(void) {
    int rank = hearth_rank(), size = hearth_size();
    char line[64];
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    check(log >= 0, "log");
    for (int i = 0; i < LINES; i++) {
        int length = snprintf(line, sizeof line, "rank %d line %d\n", rank, i);
        check(write(log, line, length) == length, "append");
    }
    check(close(log) == 0, "close");

    static char record[RECORD];
    int records = open("records", O_WRONLY | O_CREAT | O_APPEND, 0644);
    check(records >= 0 && hearth_barrier() == 0, "records");
    for (int i = 0; i < RECORDS; i++) {
        memset(record, 'a' + rank * RECORDS + i, RECORD);
        check(write(records, record, RECORD) == RECORD, "a record");
    }
    check(close(records) == 0, "close");

    int number = open("number", O_RDWR | O_CREAT, 0644);
    check(number >= 0, "number");
    for (int i = 0; i < ADDS; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8};
        check(fcntl(number, F_SETLKW, &lock) == 0, "lock");
        long value = 0;
        check(pread(number, &value, sizeof value, 0) >= 0, "read");
        value++;
        check(pwrite(number, &value, sizeof value, 0) == sizeof value, "write");
        lock.l_type = F_UNLCK;
        check(fcntl(number, F_SETLK, &lock) == 0, "unlock");
    }
    check(hearth_barrier() == 0, "barrier");
    long value = 0;
    check(pread(number, &value, sizeof value, 0) == sizeof value, "read");
    check(value == (long)size * ADDS, "the sum");
    close(number);

    // What was read ahead is not what counts once another rank has spoken.
    static char whole[20000];
    int ahead = open("ahead", O_RDWR | O_CREAT, 0644);
    check(ahead >= 0, "ahead");
    for (int turn = 0; turn < 3; turn++) {
        char expected = 'a' + turn;
        memset(whole, expected, sizeof whole);
        if (rank == 0)
            check(pwrite(ahead, whole, sizeof whole, 0) == sizeof whole, "write");
        check(hearth_barrier() == 0, "barrier");
        for (int piece = 0; piece < 3; piece++)
            check(read(ahead, line, sizeof line) == sizeof line && line[0] == expected &&
                      line[sizeof line - 1] == expected,
                  "what the other rank has written");
        check(hearth_barrier() == 0, "barrier");
    }
    close(ahead);
    // Those of a rank that has ended are free, as those of any program are.
    int last = open("last", O_RDWR | O_CREAT, 0644);
    check(last >= 0 && flock(last, LOCK_EX) == 0, "the last lock");
    printf("rank %d: %ld\n", rank, value);
    return 0;
}
