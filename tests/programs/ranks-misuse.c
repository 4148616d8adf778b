/* ranks-misuse: everything that can be asked wrongly of the calls between ranks. Each mistake must
 * give its error and leave the ranks able to go on. Two ranks or more; exit status 0 when every
 * answer is right. */
#include <errno.h>
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEARTH_POST 4098
#define HEARTH_WAIT 4099
#define HEARTH_CANCEL 4100
#define PAGE 4096

static int wrong, rank, size;

static void expect(const char *what, long found, long wanted)
{
    if (found != wanted) {
        printf("rank %d: %s: %ld instead of %ld\n", rank, what, found, wanted);
        fflush(stdout);
        wrong = 1;
    }
}

/* A raw call; its answer as the library's numbers have it. */
static long raw(long number, const void *a, unsigned long b, void *c, unsigned long d, unsigned long e)
{
    long result = syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
}

static void *pages(size_t count, int protection)
{
    void *memory = mmap(NULL, count * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

static void arguments(void)
{
    char byte = 0;
    hearth_request request = 0;
    expect("send to the rank after the last", hearth_send(&byte, 1, size, 0), HEARTH_EINVAL);
    expect("send to a negative rank", hearth_send(&byte, 1, -1, 0), HEARTH_EINVAL);
    expect("receive from a rank far away", hearth_recv(&byte, 1, 1 << 30, 0, NULL), HEARTH_EINVAL);
    expect("broadcast from no rank", hearth_bcast(&byte, 1, size), HEARTH_EINVAL);
    expect("reduction of no type", hearth_allreduce(&byte, 1, 99, HEARTH_SUM), HEARTH_EINVAL);
    expect("reduction of no kind", hearth_allreduce(&byte, 1, HEARTH_INT32, 0), HEARTH_EINVAL);
    request = 12345;
    expect("wait for what was not posted", hearth_wait(&request, NULL), HEARTH_EINVAL);
    request = HEARTH_NO_REQUEST;
    expect("wait for nothing", hearth_wait(&request, NULL), 0);
    uint64_t operation[13] = {0};
    expect("a structure of another length", raw(HEARTH_POST, operation, 64, NULL, 0, 0), -EINVAL);
    expect("a structure that does not say its length", raw(HEARTH_POST, operation, 104, NULL, 0, 0), -EINVAL);
    operation[0] = 104 | 77ull << 32;
    expect("an operation of no kind", raw(HEARTH_POST, operation, 104, NULL, 0, 0), -EINVAL);
    operation[0] = 104 | 3ull << 32;
    operation[7] = (uintptr_t)operation;
    expect("an exchange with one list of four", raw(HEARTH_POST, operation, 104, NULL, 0, 0), -EINVAL);
    operation[7] = 0;
    operation[11] = (uintptr_t)operation;
    expect("a group without a length", raw(HEARTH_POST, operation, 104, NULL, 0, 0), -EINVAL);
    operation[11] = 0;
    operation[12] = 1ull << 32;
    expect("a field that must be zero", raw(HEARTH_POST, operation, 104, NULL, 0, 0), -EINVAL);
    expect("a structure nowhere", raw(HEARTH_POST, (void *)0x10, 104, NULL, 0, 0), -EFAULT);
    expect("a structure in the kernel", raw(HEARTH_POST, (void *)0xffff800000000000, 104, NULL, 0, 0), -EFAULT);
    char statuses[48];
    uint32_t list[2] = {0, 0};
    expect("too long a list", raw(HEARTH_WAIT, list, 1025, statuses, 0, 0), -EINVAL);
    expect("a flag that is not there", raw(HEARTH_WAIT, list, 2, statuses, 8, 0), -EINVAL);
    expect("a list nowhere", raw(HEARTH_WAIT, (void *)0x10, 2, statuses, 0, 0), -EFAULT);
    expect("zeros", raw(HEARTH_WAIT, list, 2, statuses, 0, 0), 0);
    expect("cancel what was not posted", raw(HEARTH_CANCEL, (void *)77, 0, NULL, 0, 0), -EINVAL);
    go_on("after bad arguments");
}

static void buffers(void)
{
    static const char constant[PAGE] = "read only";
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *nothing = (char *)0x7000000, *kernel = (char *)0xffff800000000000;
    expect("send from nowhere", hearth_send(nothing, 100, next, 1), HEARTH_EFAULT);
    expect("send from the kernel", hearth_send(kernel, 100, next, 1), HEARTH_EFAULT);
    expect("send of all memory", hearth_send((void *)8, SIZE_MAX - 4, next, 1), HEARTH_EFAULT);
    expect("receive into nothing", hearth_recv(nothing, 100, previous, 1, NULL), HEARTH_EFAULT);
    expect("receive into constants", hearth_recv((void *)constant, PAGE, previous, 1, NULL), HEARTH_EFAULT);
    char *memory = pages(2, PROT_READ | PROT_WRITE);
    munmap(memory + PAGE, PAGE);
    expect("send over the end", hearth_send(memory, PAGE + 1, next, 1), HEARTH_EFAULT);
    size_t counts[size], offsets[size];
    for (int other = 0; other < size; other++) {
        counts[other] = 8;
        offsets[other] = (size_t)other * 8;
    }
    offsets[size - 1] = PAGE;
    expect("exchange over the end", hearth_alltoallv(memory, counts, offsets, memory, counts, counts), HEARTH_EFAULT);
    offsets[size - 1] = SIZE_MAX - 16;
    expect("exchange beyond everything", hearth_alltoallv(memory, counts, offsets, memory, counts, counts), HEARTH_EFAULT);
    expect("lists nowhere", hearth_alltoallv(memory, (size_t *)nothing, offsets, memory, counts, counts), HEARTH_EFAULT);
    expect("an exchange without lists", hearth_alltoallv(memory, NULL, NULL, memory, NULL, NULL), HEARTH_EFAULT);
    expect("an exchange with three lists", hearth_alltoallv(memory, counts, offsets, memory, counts, NULL), HEARTH_EFAULT);
    expect("a sum of nothing", hearth_allreduce(NULL, 1, HEARTH_DOUBLE, HEARTH_SUM), HEARTH_EFAULT);
    expect("a sum of the kernel's", hearth_reduce(kernel, 1, HEARTH_DOUBLE, HEARTH_SUM, 0), HEARTH_EFAULT);
    expect("a sum of all memory", hearth_reduce((void *)8, SIZE_MAX / 4, HEARTH_DOUBLE, HEARTH_SUM, 0), HEARTH_EINVAL);
    expect("a sum into constants", hearth_allreduce((void *)constant, 8, HEARTH_DOUBLE, HEARTH_SUM), HEARTH_EFAULT);
    expect("a large sum of nothing", hearth_allreduce(NULL, 100000, HEARTH_DOUBLE, HEARTH_SUM), HEARTH_EFAULT);
    expect("a broadcast of nothing", hearth_bcast(NULL, 1, 0), HEARTH_EFAULT);
    go_on("after bad buffers");
}

/* Memory goes while an operation is outstanding that receives into it. */
static void unmapped(void)
{
    if (rank > 1)
        return;
    size_t length = 40 * PAGE;
    char *memory = pages(40, PROT_READ | PROT_WRITE);
    hearth_request request;
    if (rank == 1) {
        expect("post", hearth_irecv(memory, length, 0, 5, &request), 0);
        munmap(memory + 8 * PAGE, 32 * PAGE);
        expect("ready", hearth_send("r", 1, 0, 6), 0);
        expect("receive into memory that is gone", hearth_wait(&request, NULL), HEARTH_EFAULT);
        expect("what is left is there", memory[0] == 0 || memory[0] == 1, 1);
    } else {
        char ready;
        memset(memory, 1, length);
        expect("ready", hearth_recv(&ready, 1, 1, 6, NULL), 0);
        struct hearth_status status;
        expect("post", hearth_isend(memory, length, 1, 5, &request), 0);
        /* It ends, one way or the other: the receiver cannot take it. */
        hearth_wait(&request, &status);
        expect("request is used up", request, HEARTH_NO_REQUEST);
    }
}

static void limits(void)
{
    enum { MOST = 256 };
    static char room[MOST + 1];
    static hearth_request requests[MOST + 1];
    int previous = (rank + size - 1) % size, next = (rank + 1) % size;
    for (int at = 0; at < MOST; at++)
        expect("post", hearth_irecv(&room[at], 1, previous, 1000 + (uint32_t)at, &requests[at]), 0);
    uint32_t twice[2] = {requests[0], requests[0]};
    char statuses[48];
    expect("one request twice", raw(HEARTH_WAIT, twice, 2, statuses, 0, 0), -EINVAL);
    int done = 1;
    expect("test", hearth_test(&requests[3], &done, NULL), 0);
    expect("nothing was sent yet", done, 0);
    expect("statuses nowhere", raw(HEARTH_WAIT, requests, 1, NULL, 0, 0), 0);
    expect("cancel", hearth_cancel(&requests[MOST - 1]), 0);
    /* Nobody sends before all have looked. */
    expect("barrier", hearth_barrier(), 0);
    for (int at = MOST - 2; at >= 0; at--) {
        char byte = (char)at;
        expect("send", hearth_send(&byte, 1, next, 1000 + (uint32_t)at), 0);
    }
    for (int got = 0; got < MOST - 1; got++) {
        int index;
        struct hearth_status status;
        expect("any", hearth_waitany(MOST, requests, &index, &status), 0);
        if (index < 0 || index >= MOST - 1) {
            expect("index", index, 0);
            return;
        }
        expect("tag", status.tag, 1000 + index);
        expect("from", status.rank, previous);
        expect("content", room[index], (char)index);
    }
    int index = 0;
    expect("any of none", hearth_waitany(MOST, requests, &index, NULL), 0);
    expect("none", index, -1);
    go_on("after many operations");
}

static void lengths(void)
{
    char big[5000] = {0}, small[100];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    struct hearth_status status;
    for (int round = 0; round < 2; round++) {
        size_t bytes = round ? sizeof big : 200;
        hearth_request request;
        expect("send", hearth_isend(big, bytes, next, 3, &request), 0);
        expect("a message too long", hearth_recv(small, sizeof small, previous, 3, &status), HEARTH_EMSGSIZE);
        expect("its length", (long)status.bytes, (long)bytes);
        expect("whose it was", status.rank, previous);
        expect("its tag", status.tag, 3);
        hearth_wait(&request, NULL);
    }
    go_on("after long messages");
    /* Only to oneself: each side of an exchange is known to both. */
    size_t counts[size], others[size], offsets[size];
    for (int other = 0; other < size; other++) {
        counts[other] = others[other] = 8;
        offsets[other] = (size_t)other * 8;
    }
    char send[8 * size], receive[16 * size];
    memset(send, rank, sizeof send);
    if (rank == 0)
        others[1] = 16;
    int error = hearth_alltoallv(send, counts, offsets, receive, others, offsets);
    if (rank == 0) {
        expect("another length than expected", error, HEARTH_EPROTO);
        expect("whose", hearth_named_rank(), 1);
    }
    go_on("after blocks of another length");
}

/* More messages that nobody receives than there is room for, and one behind them that somebody
 * waits for. */
static void flood(void)
{
    enum { MANY = 4300 };
    static char big[5000];
    if (rank == 1) {
        for (int at = 0; at < MANY; at++)
            expect("one of many", hearth_send(NULL, 0, 0, 7), 0);
        expect("the one behind", hearth_send(big, sizeof big, 0, 8), 0);
    }
    if (rank == 0) {
        expect("behind too many", hearth_recv(big, sizeof big, 1, 8, NULL), HEARTH_ENOBUFS);
        /* With room for them it is seen. */
        static char room[64 * MANY];
        expect("room", hearth_room(room, sizeof room), 0);
        expect("the same room", hearth_room(room + 64, 64), HEARTH_EINVAL);
        expect("behind many", hearth_recv(big, sizeof big, 1, 8, NULL), 0);
        for (int at = 0; at < MANY; at++)
            expect("one of many", hearth_recv(NULL, 0, 1, 7, NULL), 0);
    }
    go_on("after a flood");
}

int main(void)
{
    rank = hearth_rank();
    size = hearth_size();
    if (size < 2) {
        puts("needs two ranks");
        return 2;
    }
    arguments();
    buffers();
    limits();
    lengths();
    unmapped();
    flood();
    expect("barrier", hearth_barrier(), 0);
    if (!wrong && rank == 0)
        puts("every mistake has its error");
    return wrong;
}
