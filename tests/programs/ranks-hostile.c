/* ranks-hostile: what a program can do to the node that it should not. Nothing of it may harm the
 * node or hang the other ranks; each part ends with all ranks able to talk. "exit": ends with as
 * many operations outstanding as there may be, for the next job to find nothing of them. Two ranks
 * or more; exit status 0 when every answer is right. */
#include <errno.h>
#include <hearth.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEARTH_POST 4098
#define HEARTH_WAIT 4099
#define PAGE 4096
#define LONG (60 * PAGE)

static int wrong, rank, size;

static void expect(const char *what, long found, long wanted)
{
    if (found != wanted) {
        printf("rank %d: %s: %ld instead of %ld\n", rank, what, found, wanted);
        fflush(stdout);
        wrong = 1;
    }
}

static void *pages(size_t count)
{
    void *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(3);
    return memory;
}

/* The ranks are still able to talk. */
static void go_on(const char *after)
{
    int64_t sum = rank;
    expect(after, hearth_allreduce(&sum, 1, HEARTH_INT64, HEARTH_SUM), 0);
    expect(after, sum, (long)size * (size - 1) / 2);
}

/* Memory of a long send goes while it is outstanding: both ends are told, and the messages behind
 * it arrive. */
static void unmapped_send(void)
{
    if (rank > 1)
        return;
    char *memory = pages(60), last = 7, gone = 0;
    hearth_request request;
    struct hearth_status status;
    if (rank == 1) {
        expect("post", hearth_isend(memory, LONG, 0, 1, &request), 0);
        munmap(memory + PAGE, LONG - PAGE);
        expect("behind it", hearth_send(&last, 1, 0, 1), 0);
        /* Nobody takes any of it before: a busy machine may send all of it before this program goes
         * on. */
        expect("gone", hearth_send(&gone, 1, 0, 2), 0);
        expect("send of memory that is gone", hearth_wait(&request, &status), HEARTH_EFAULT);
    } else {
        expect("gone", hearth_recv(&gone, 1, 1, 2, NULL), 0);
        expect("receive of memory that is gone", hearth_recv(memory, LONG, 1, 1, &status), HEARTH_ECANCELED);
        expect("whose", status.rank, 1);
        last = 0;
        expect("behind it", hearth_recv(&last, 1, 1, 1, NULL), 0);
        expect("what", last, 7);
    }
}

/* Made unwritable, discarded, overwritten: memory of a receive that is outstanding. */
static void changed_receive(void)
{
    if (rank > 1)
        return;
    char *memory = pages(60), ready;
    hearth_request request;
    for (int how = 0; how < 3; how++) {
        if (rank == 0) {
            memset(memory, 1, LONG);
            expect("ready", hearth_recv(&ready, 1, 1, 6, NULL), 0);
            expect("post", hearth_isend(memory, LONG, 1, 5, &request), 0);
            hearth_wait(&request, NULL);
            expect("used up", request, HEARTH_NO_REQUEST);
            continue;
        }
        expect("post", hearth_irecv(memory, LONG, 0, 5, &request), 0);
        if (how == 0)
            mprotect(memory + 30 * PAGE, PAGE, PROT_READ);
        if (how == 1)
            madvise(memory + 30 * PAGE, 10 * PAGE, MADV_DONTNEED);
        expect("ready", hearth_send("r", 1, 0, 6), 0);
        int done = 0, error = 0;
        while (!done) {
            /* What the kernel writes, the program writes too. */
            if (how == 2)
                memset(memory, 9, LONG);
            error = hearth_test(&request, &done, NULL);
        }
        if (how == 0)
            expect("receive into constants", error, HEARTH_EFAULT);
        if (how == 1 && error != 0)
            expect("receive into discarded pages", error, HEARTH_EFAULT);
        if (how == 2)
            expect("receive into what changes", error, 0);
        mprotect(memory, LONG, PROT_READ | PROT_WRITE);
    }
}

/* More messages than there is room for, in front of the one that is waited for. */
static void flood(void)
{
    enum { MESSAGES = 150, BYTES = 1000 };
    static char out[MESSAGES][BYTES], in[BYTES];
    static hearth_request requests[MESSAGES + 1];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int at = 0; at < MESSAGES; at++) {
        memset(out[at], at, BYTES);
        expect("post", hearth_isend(out[at], BYTES, next, 1, &requests[at]), 0);
    }
    expect("post", hearth_isend("last", 5, next, 2, &requests[MESSAGES]), 0);
    expect("the last first", hearth_recv(in, BYTES, previous, 2, NULL), 0);
    expect("what", strcmp(in, "last"), 0);
    for (int at = 0; at < MESSAGES; at++) {
        expect("the others", hearth_recv(in, BYTES, previous, 1, NULL), 0);
        expect("which", in[BYTES - 1], (char)at);
    }
    expect("all", hearth_waitall(MESSAGES + 1, requests, NULL), 0);
}

/* Thousands of operations, posted and taken back or never matched at once. */
static void thousands(void)
{
    enum { TURNS = 3000, AT_ONCE = 200 };
    static char room[AT_ONCE][64];
    static hearth_request requests[AT_ONCE];
    char *memory = pages(60);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    hearth_request request;
    for (int turn = 0; turn < TURNS; turn++) {
        expect("post", hearth_irecv(memory, LONG, previous, 50, &request), 0);
        expect("cancel", hearth_cancel(&request), 0);
    }
    for (int turn = 0; turn < 300; turn++) {
        expect("post", hearth_isend(memory, LONG, next, 51, &request), 0);
        expect("cancel", hearth_cancel(&request), 0);
    }
    go_on("after cancelled operations");
    for (int turn = 0; turn < 10; turn++) {
        for (int at = 0; at < AT_ONCE / 2; at++)
            expect("post", hearth_irecv(room[at], sizeof room[at], previous, 100 + (uint32_t)at, &requests[at]), 0);
        for (int at = 0; at < AT_ONCE / 2; at++)
            expect("post", hearth_isend(room[AT_ONCE / 2 + at], 64, next, 100 + (uint32_t)at, &requests[AT_ONCE / 2 + at]), 0);
        expect("all", hearth_waitall(AT_ONCE, requests, NULL), 0);
    }
    /* A cancelled barrier and a cancelled exchange end with an error at all others, in a context of
     * their own. */
    uint64_t operation[13] = {104 | 4ull << 32, 77ull << 32};
    long barrier = syscall(HEARTH_POST, operation, 104);
    expect("post", barrier > 0, 1);
    uint32_t number = (uint32_t)barrier;
    if (rank == 0) {
        request = number;
        expect("cancel", hearth_cancel(&request), 0);
    } else {
        struct hearth_status status;
        syscall(HEARTH_WAIT, &number, 1, &status, 0, UINT64_MAX);
        if (status.error != 0) /* some had heard of rank 0 */
            expect("a barrier that was taken back", status.error, HEARTH_ECANCELED);
    }
}

/* Any rank, any tag. */
static void anybody(void)
{
    struct hearth_status status;
    int64_t sum = 0, value = rank;
    expect("send with any tag", hearth_send(&value, 8, 0, HEARTH_ANY_TAG), HEARTH_EINVAL);
    expect("send to any rank", hearth_send(&value, 8, HEARTH_ANY_RANK, 0), HEARTH_EINVAL);
    if (rank > 0) {
        expect("send", hearth_send(&value, 8, 0, 400 + (uint32_t)rank), 0);
    } else {
        for (int from = 1; from < size; from++) {
            expect("any", hearth_recv(&value, 8, HEARTH_ANY_RANK, HEARTH_ANY_TAG, &status), 0);
            expect("tag", status.tag, 400 + (long)value);
            expect("rank", status.rank, value);
            sum += value;
        }
        expect("everybody", sum, (long)size * (size - 1) / 2);
    }
}

/* Lengths and places that make no sense, together. */
static void sizes(void)
{
    char *memory = pages(4);
    size_t huge[size], zeros[size], counts[size];
    for (int other = 0; other < size; other++) {
        huge[other] = SIZE_MAX / 2;
        zeros[other] = 0;
        counts[other] = PAGE;
    }
    expect("blocks longer than memory", hearth_alltoall(memory, memory, SIZE_MAX / 8), HEARTH_EFAULT);
    expect("blocks that wrap", hearth_alltoallv(memory, huge, huge, memory, huge, huge), HEARTH_EFAULT);
    expect("offsets that wrap", hearth_alltoallv(memory, counts, huge, memory, counts, zeros), HEARTH_EFAULT);
    expect("all of the address space", hearth_send(memory, 0x7fffffffffff, (rank + 1) % size, 1), HEARTH_EFAULT);
    /* All blocks at one place, sent from where they are received: anything may be there, but
     * nothing else happens. */
    expect("one place for all", hearth_alltoallv(memory, counts, zeros, memory, counts, zeros), 0);
    go_on("after sizes");
    /* As many exchanges at once as may be under way. Some are done before the last is posted, so
     * that one more may be taken or not. */
    uint64_t operation[13] = {104 | 3ull << 32, 78ull << 32, 0, (uintptr_t)memory, 64, (uintptr_t)memory + PAGE, 64};
    static uint32_t requests[256];
    static struct hearth_status statuses[256];
    for (int at = 0; at < 256; at++) {
        long number = syscall(HEARTH_POST, operation, 104);
        expect("post", number > 0, 1);
        requests[at] = (uint32_t)number;
    }
    expect("all", syscall(HEARTH_WAIT, requests, 256, statuses, 0, UINT64_MAX), 256);
    for (int at = 0; at < 256; at++)
        expect("each", statuses[at].error, 0);
}

static int end_in_the_middle(void)
{
    static char room[LONG];
    hearth_request request;
    uint64_t exchange[13] = {104 | 3ull << 32, 5ull << 32, 0, (uintptr_t)room, 1000, (uintptr_t)room, 1000};
    uint64_t barrier[13] = {104 | 4ull << 32, 6ull << 32};
    int next = (rank + 1) % size;
    for (int at = 0; at < 80; at++) {
        hearth_irecv(room, sizeof room, next, 900, &request);
        hearth_isend(room, at % 2 ? sizeof room : 1000, next, 901, &request);
        syscall(HEARTH_POST, at % 2 ? exchange : barrier, 104);
    }
    puts("ends");
    return 0;
}

int main(int argc, char **argv)
{
    rank = hearth_rank();
    size = hearth_size();
    if (size < 2)
        return 2;
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        return end_in_the_middle();
    unmapped_send();
    go_on("after a send whose memory went");
    changed_receive();
    go_on("after receives whose memory changed");
    flood();
    go_on("after a flood");
    thousands();
    go_on("after thousands");
    anybody();
    go_on("after anybody");
    sizes();
    expect("barrier", hearth_barrier(), 0);
    if (!wrong && rank == 0)
        puts("the node goes on");
    return wrong;
}
