// Files that several threads have open at once: what it prints on a node is what it prints on Linux.
// It works in the directory in which it is started, and leaves it empty.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define THREADS 24
#define ROUNDS 8
#define BYTES 300000
#define PIECE 262144

static atomic_int failed;
static pthread_t threads[THREADS];

static void check(int holds, const char *what) {
    if (holds)
        return;
    if (!atomic_fetch_add(&failed, 1))
        printf("%s: %s\n", what, strerror(errno));
}

static char byte_at(long at) {
    return at * 7 + (at >> 8);
}

static void all_do(void *(*work)(void *), const char *what) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    failed = 0;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, work, (void *)i))
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%s: %d failed\n", what, failed);
}

// Every thread reads the whole file, as fast as it can.
static void *reads(void *own) {
    (void)own;
    char *piece = malloc(PIECE);
    for (int round = 0; round < ROUNDS; round++) {
        int fd = open("data", O_RDONLY);
        check(fd >= 0, "open");
        long at = 0, got;
        while ((got = read(fd, piece, PIECE)) > 0)
            for (long end = at + got; at < end; at++)
                if (piece[at % PIECE] != byte_at(at)) {
                    errno = EILSEQ;
                    check(0, "a byte");
                    break;
                }
        check(got == 0, "read");
        check(at == BYTES, "length");
        check(close(fd) == 0, "close of what was read");
    }
    free(piece);
    return NULL;
}

// Every thread writes files of its own.
static void *writes(void *own) {
    char name[32], *bytes = calloc(1, BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "own.%ld.%d", (long)own, round);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        check(fd >= 0, "create");
        check(write(fd, bytes, BYTES) == BYTES, "write");
        check(close(fd) == 0, "close of what was written");
        check(unlink(name) == 0, "unlink");
    }
    free(bytes);
    return NULL;
}

// Opens the file until no descriptor is left; how often.
static int fill(void) {
    static int fds[4096];
    int count = 0;
    while (count < 4096 && (fds[count] = open("data", O_RDONLY)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return count;
}

// Threads that find no descriptor left.
static void *crowds(void *own) {
    (void)own;
    for (int round = 0; round < 2; round++) {
        int fds[64], count = 0;
        while (count < 64 && (fds[count] = open("data", O_RDONLY)) >= 0)
            count++;
        while (count > 0)
            close(fds[--count]);
    }
    return NULL;
}

static int shared;

static void *reads_shared(void *own) {
    char *bytes = malloc(BYTES);
    *(long *)own = read(shared, bytes, BYTES);
    free(bytes);
    return NULL;
}

// A descriptor is closed while it is read by, and its number given to another file. The read goes
// on with its own file, and a copy of the descriptor goes on behind it.
static void closes(void) {
    long wrong = 0;
    for (int wait = 0; wait < 20; wait++) {
        shared = open("data", O_RDONLY);
        int copy = dup(shared);
        long got = -1;
        pthread_create(&threads[0], NULL, reads_shared, &got);
        usleep(100 * wait);
        close(shared);
        int other = open("other", O_RDONLY);
        pthread_join(threads[0], NULL);
        char byte = 0;
        // The thread may have come too late to read at all, or it reads the other file.
        if (got == BYTES)
            wrong += read(copy, &byte, 1) != 0 || lseek(other, 0, SEEK_CUR) != 0;
        else if (got == 5)
            wrong += read(copy, &byte, 1) != 1 || lseek(other, 0, SEEK_CUR) != 5;
        else
            wrong += got != -1 || read(copy, &byte, 1) != 1 || lseek(other, 0, SEEK_CUR) != 0;
        close(other);
        close(copy);
    }
    printf("closed under a read: %ld wrong\n", wrong);
}

static void *writes_shared(void *own) {
    char *bytes = calloc(1, PIECE);
    *(long *)own = write(shared, bytes, PIECE);
    free(bytes);
    return NULL;
}

// A position is set while a read, or a write, of another thread moves it: whichever comes first,
// what is set is not lost.
static void seeks(void) {
    enum { FAR = 5000000 };
    static const struct {
        void *(*work)(void *);
        const char *name;
        long behind;
    } kinds[] = {{reads_shared, "read", 0}, {writes_shared, "write", PIECE}};
    for (int kind = 0; kind < 2; kind++) {
        long wrong = 0;
        for (int wait = 0; wait < 20; wait++) {
            shared = open(kind ? "far" : "data", O_RDWR | O_CREAT, 0666);
            long got = -1;
            pthread_create(&threads[0], NULL, kinds[kind].work, &got);
            usleep(100 * wait);
            wrong += lseek(shared, FAR, SEEK_SET) != FAR;
            pthread_join(threads[0], NULL);
            long at = lseek(shared, 0, SEEK_CUR);
            wrong += at != FAR && at != FAR + kinds[kind].behind;
            close(shared);
        }
        printf("a seek beside a %s: %ld wrong\n", kinds[kind].name, wrong);
    }
    unlink("far");
}

// Bytes that are in memory only when they are touched: who writes them waits for each page.
static const char untouched[4][PIECE] = {{1}, {2}, {3}, {4}};
static int next_piece;

static void *writes_untouched(void *own) {
    *(long *)own = write(shared, untouched[next_piece++], PIECE);
    return NULL;
}

// The same of files in a node's memory: a descriptor is closed while it is written by, and its
// number given to another file; and it is read by while a write moves its position.
static void in_memory(void) {
    const char *name = "/tmp/files-threads", *other = "/tmp/files-threads-other";
    char bytes[8];
    struct iovec vector = {bytes, sizeof bytes};
    long wrong = 0;
    for (int wait = 0; wait < 2; wait++) {
        long wrote = -1;
        shared = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        int copy = dup(shared);
        pthread_create(&threads[0], NULL, writes_untouched, &wrote);
        usleep(500 + 500 * wait);
        close(shared);
        int next = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
        pthread_join(threads[0], NULL);
        // The thread may have come too late to write at all, or it writes the other file.
        long at = lseek(copy, 0, SEEK_CUR), at_next = lseek(next, 0, SEEK_CUR);
        wrong += wrote == -1 ? at || at_next : wrote != PIECE || at + at_next != PIECE;
        wrong += at && at_next;
        close(copy);
        close(next);
    }
    printf("closed under a write: %ld wrong\n", wrong);
    wrong = 0;
    for (int wait = 0; wait < 2; wait++) {
        long wrote = -1;
        shared = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        pthread_create(&threads[0], NULL, writes_untouched, &wrote);
        usleep(500 + 500 * wait);
        // Whichever comes first, it finds the end of the file.
        wrong += readv(shared, &vector, 1) != 0;
        pthread_join(threads[0], NULL);
        wrong += wrote != PIECE || lseek(shared, 0, SEEK_CUR) != PIECE;
        close(shared);
    }
    printf("readv beside a write: %ld wrong\n", wrong);
    unlink(name);
    unlink(other);
}

int main(void) {
    int fd = open("data", O_RDWR | O_CREAT | O_EXCL, 0666);
    char *bytes = malloc(BYTES);
    for (long at = 0; at < BYTES; at++)
        bytes[at] = byte_at(at);
    if (write(fd, bytes, BYTES) != BYTES)
        perror("data");
    close(fd);
    free(bytes);
    fd = open("other", O_RDWR | O_CREAT | O_EXCL, 0666);
    if (write(fd, "other", 5) != 5)
        perror("other");
    close(fd);

    int before = fill();
    all_do(reads, "reads");
    all_do(writes, "writes");
    all_do(crowds, "crowds");
    printf("descriptors left behind: %d\n", before - fill());
    closes();
    seeks();
    in_memory();
    unlink("data");
    unlink("other");
    return 0;
}
