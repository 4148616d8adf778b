/* mappings: memory as language run times manage it: mremap, large reservations of which parts are
 * used, memory that is shared between threads, advice; and the small files that they look for. The
 * last line is "mappings: ok". It ends so on Linux, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef NAME
#define NAME "mappings"
#endif

enum { PAGE = 4096, MEGABYTE = 1 << 20 };

static void fail(const char *what, int line)
{
    printf(NAME ": line %d: %s: %s\n", line, what, strerror(errno));
    exit(1);
}

#define HOLDS(what)                  \
    do {                             \
        if (!(what))                 \
            fail(#what, __LINE__);   \
    } while (0)
#define REFUSED(what, error) HOLDS((what) == MAP_FAILED && errno == (error))

static unsigned char *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(at != MAP_FAILED);
    return at;
}

static int is_mapped(void *at)
{
    // A call that reads there fails where nothing is.
    int ends[2];
    HOLDS(pipe(ends) == 0);
    int is_there = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is_there;
}

static void fill(unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PAGE)
        at[i] = (unsigned char)(i / PAGE % 255 + 1);
}

static void check(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PAGE)
        HOLDS(at[i] == i / PAGE % 255 + 1);
}

static void remapped(void)
{
    unsigned char *at = map(64 * PAGE);
    fill(at, 64 * PAGE);
    HOLDS(mremap(at, 64 * PAGE, 16 * PAGE, 0) == at);
    HOLDS(is_mapped(at + 15 * PAGE) && !is_mapped(at + 16 * PAGE));
    // What is behind it is free: it grows where it is.
    HOLDS(mremap(at, 16 * PAGE, 20 * PAGE, 0) == at);
    check(at, 16 * PAGE);
    HOLDS(at[16 * PAGE] == 0 && at[19 * PAGE] == 0);
    // Something is behind it: it moves, or stays as it is.
    void *wall = mmap(at + 20 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    HOLDS(wall == at + 20 * PAGE);
    REFUSED(mremap(at, 20 * PAGE, 30 * PAGE, 0), ENOMEM);
    unsigned char *moved = mremap(at, 20 * PAGE, 700 * PAGE, MREMAP_MAYMOVE);
    HOLDS(moved != MAP_FAILED && moved != at && !is_mapped(at));
    check(moved, 16 * PAGE);
    HOLDS(moved[699 * PAGE] == 0);
    fill(moved, 700 * PAGE);
    // To an address of its own choice, over what is there.
    unsigned char *place = map(1000 * PAGE);
    memset(place, 0xee, 1000 * PAGE);
    void *there = mremap(moved, 700 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 3 * PAGE);
    HOLDS(there == place + 3 * PAGE);
    check(place + 3 * PAGE, 600 * PAGE);
    HOLDS(place[0] == 0xee && place[603 * PAGE] == 0xee);
    HOLDS(!is_mapped(moved) && !is_mapped(moved + 650 * PAGE));
    // A part of a mapping, and rights that it keeps.
    HOLDS(mprotect(place, 10 * PAGE, PROT_READ) == 0);
    unsigned char *part = mremap(place + 4 * PAGE, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    HOLDS(part != MAP_FAILED && part[0] == 2 && part[PAGE] == 3 && part[2 * PAGE] == 0);
    HOLDS(is_mapped(place + 3 * PAGE) && !is_mapped(place + 4 * PAGE) && is_mapped(place + 6 * PAGE));
    REFUSED(mremap(at + 1, PAGE, PAGE, 0), EINVAL);
    REFUSED(mremap(place, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
    REFUSED(mremap(place, PAGE, PAGE, MREMAP_FIXED, part), EINVAL);
    REFUSED(mremap(place + 4 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    HOLDS(munmap(place, 1000 * PAGE) == 0 && munmap(wall, PAGE) == 0 && munmap(part, 3 * PAGE) == 0);
    // C libraries make large blocks larger by it.
    unsigned char *block = malloc(MEGABYTE);
    for (size_t bytes = MEGABYTE; bytes <= 12 * MEGABYTE; bytes += MEGABYTE) {
        block = realloc(block, bytes);
        HOLDS(block != NULL);
        memset(block + bytes - MEGABYTE, (int)(bytes / MEGABYTE), MEGABYTE);
    }
    for (size_t i = 0; i < 12 * MEGABYTE; i += 100)
        HOLDS(block[i] == i / MEGABYTE + 1);
    free(block);
}

enum { ROUNDS = 100 };
static unsigned char *_Atomic shown;
static atomic_int is_over;
static atomic_long looks;

/* Reads by the address that is shown; the page there says so. */
static void *look(void *argument)
{
    while (!is_over) {
        unsigned char *at = shown;
        if (at != NULL && (at[0] != 1 || at[PAGE] != 2))
            return &looks;
        // Others have the core now and then, where it is shared.
        if (++looks % 20 == 0)
            sched_yield();
    }
    return argument;
}

/* While a mapping moves to and fro all threads see it where it is. */
static void moved_among_threads(void)
{
    pthread_t thread;
    unsigned char *one = map(2 * PAGE), *other = map(2 * PAGE);
    fill(one, 2 * PAGE);
    shown = one;
    HOLDS(pthread_create(&thread, NULL, look, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        // Nobody looks while it moves: each has looked at nothing in between.
        shown = NULL;
        long before = looks;
        while (looks < before + 2)
            sched_yield();
        void *moved = mremap(one, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other);
        HOLDS(moved == other);
        // The old place holds something else: a stale translation would show.
        void *again = mmap(one, 2 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        HOLDS(again == one && one[0] == 0);
        one[0] = one[PAGE] = 9;
        shown = other;
        other = one;
        one = shown;
    }
    is_over = 1;
    void *result;
    HOLDS(pthread_join(thread, &result) == 0 && result == NULL);
    munmap(one, 2 * PAGE);
    munmap(other, 2 * PAGE);
}

static int *shared;

static void *add(void *argument)
{
    shared[1000] += 41;
    return argument;
}

static void shared_memory(void)
{
    pthread_t thread;
    shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HOLDS(shared != MAP_FAILED);
    shared[1000] = 1;
    HOLDS(pthread_create(&thread, NULL, add, NULL) == 0 && pthread_join(thread, NULL) == 0);
    HOLDS(shared[1000] == 42);
    HOLDS(munmap(shared, 2 * PAGE) == 0);
}

static void reservations(void)
{
    // As Go does: an arena at its own address, reserved, and then used in part.
    enum { ARENA = 64 * MEGABYTE };
    unsigned char *wanted = (unsigned char *)0xc000000000;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *arena = mmap(wanted, ARENA, PROT_NONE, flags, -1, 0);
    HOLDS(arena == wanted);
    HOLDS(mmap(arena, 4 * MEGABYTE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == arena);
    fill(arena, 4 * MEGABYTE);
    HOLDS(!is_mapped(arena + 4 * MEGABYTE));
    HOLDS(madvise(arena, 4 * MEGABYTE, MADV_DONTNEED) == 0);
    HOLDS(arena[0] == 0 && arena[3 * MEGABYTE] == 0);
    HOLDS(munmap(arena, ARENA) == 0);
    // Far more than there is, in several pieces.
    size_t bytes = (size_t)700 * MEGABYTE;
    unsigned char *pieces[3];
    for (int i = 0; i < 3; i++) {
        int protection = i == 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
        pieces[i] = mmap(NULL, bytes, protection, flags | MAP_NORESERVE, -1, 0);
        HOLDS(pieces[i] != MAP_FAILED);
        HOLDS(mprotect(pieces[i] + bytes / 2, PAGE, PROT_READ | PROT_WRITE) == 0);
        pieces[i][bytes / 2] = 7;
    }
    for (int i = 0; i < 3; i++)
        HOLDS(pieces[i][bytes / 2] == 7 && munmap(pieces[i], bytes) == 0);
}

static void advice(void)
{
    unsigned char *at = map(16 * PAGE);
    fill(at, 16 * PAGE);
    int harmless[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTFORK,
                      MADV_DOFORK, MADV_DONTDUMP, MADV_DODUMP};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        HOLDS(madvise(at, 16 * PAGE, harmless[i]) == 0);
    check(at, 16 * PAGE);
    HOLDS(madvise(at + PAGE, PAGE, MADV_FREE) == 0);
    HOLDS(at[PAGE] == 0 || at[PAGE] == 2);
    HOLDS(madvise(at, PAGE, MADV_HUGEPAGE) == 0 || errno == EINVAL);
    HOLDS(madvise(at, PAGE, 999) == -1 && errno == EINVAL);
    HOLDS(madvise(at + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    HOLDS(munmap(at, 16 * PAGE) == 0);
}

static void small_files(void)
{
    char text[8192] = "";
    ssize_t length = readlink("/proc/self/exe", text, sizeof text);
    HOLDS(length > 1 && text[0] == '/');
    char two[2];
    HOLDS(readlink("/proc/self/exe", two, 2) == 2 && memcmp(two, text, 2) == 0);
    int stat = open("/proc/stat", O_RDONLY);
    HOLDS(stat >= 0);
    length = read(stat, text, sizeof text - 1);
    HOLDS(length > 0);
    text[length] = 0;
    HOLDS(strncmp(text, "cpu  ", 5) == 0 && strstr(text, "\ncpu0 ") != NULL);
    HOLDS(strstr(text, "\nbtime ") != NULL);
    close(stat);
    // A node has no large pages of this kind, and says so.
    int large = open("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", O_RDONLY);
    HOLDS(large >= 0 || errno == ENOENT);
}

int main(void)
{
    remapped();
    moved_among_threads();
    shared_memory();
    reservations();
    advice();
    small_files();
    printf(NAME ": ok\n");
    return 0;
}
