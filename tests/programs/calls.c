/* calls: what the kernel's most used paths cost, in time-stamp counter ticks, which are
 * instructions when QEMU runs with -icount shift=0. Used by `cargo xtask bench call`, on Hearth and
 * on Linux alike, on one core.
 *
 * null_call        getpid, mean of 1,000
 * anonymous_fault  first touch of an anonymous page, mean of 256
 * file_fault       first touch of a page of this program's file that is already in memory, mean of
 *                  48 (64 pages of read-only data, asked for by madvise(MADV_WILLNEED) before; on
 *                  Linux they are in the page cache since the file was written). The last page is
 *                  touched first, which waits until all have arrived; both kernels map the 16 pages
 *                  around it then, so these are left out
 * thread           pthread_create and pthread_join of a thread that does nothing, mean of 200
 * ping_pong        one thread wakes another by a futex and waits for its answer: two calls of each,
 *                  two changes of thread, mean of 500
 * signal           a signal that a thread sends itself, its handler, and the way back, mean of 500
 *
 * Prints one line: null_call=N ... signal=N */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_PAGES 64
#define AROUND_PAGES 16

/* Read-only data that nothing else in the program touches. */
__attribute__((aligned(4096))) static const unsigned char table[FILE_PAGES * 4096] = {1, 2, 3};

static inline unsigned long tsc(void)
{
    unsigned lo, hi;
    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(lo), "=d"(hi) : : "memory");
    return (unsigned long)hi << 32 | lo;
}

static inline long null_call(void)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_getpid) : "rcx", "r11", "memory");
    return r;
}

enum { WARM = 20, THREADS = 200, TURNS = 500 };

static void *nothing(void *argument)
{
    return argument;
}

static int thread(void)
{
    pthread_t one;
    return pthread_create(&one, NULL, nothing, NULL) || pthread_join(one, NULL);
}

/* Whose turn it is: 0 main, 1 the other thread. */
static atomic_int turn;

static void give_turn_to(int whose)
{
    atomic_store(&turn, whose);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    while (atomic_load(&turn) == whose)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, whose, NULL, NULL, 0);
}

static void *answers(void *argument)
{
    while (atomic_load(&turn) == 0)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    for (int i = 1; i < WARM + TURNS; i++)
        give_turn_to(0);
    atomic_store(&turn, 0);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return argument;
}

static volatile int signals;

static void handler(int number)
{
    signals += number != 0;
}

int main(void)
{
    unsigned long a, b, call, anonymous, file, create, switches, delivery;
    volatile unsigned char sum = 0;

    null_call();
    a = tsc();
    for (int i = 0; i < 1000; i++)
        null_call();
    b = tsc();
    call = (b - a) / 1000;

    volatile unsigned char *p = mmap(NULL, 257 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 1;
    p[256 * 4096] = 1; /* the page tables themselves are not part of the figure */
    a = tsc();
    for (int i = 0; i < 256; i++)
        p[i * 4096] = 1;
    b = tsc();
    anonymous = (b - a) / 256;

    const volatile unsigned char *t = table;
    madvise((void *)table, sizeof table, MADV_WILLNEED);
    sum += t[(FILE_PAGES - 1) * 4096];
    a = tsc();
    for (int i = 0; i < FILE_PAGES - AROUND_PAGES; i++)
        sum += t[i * 4096];
    b = tsc();
    file = (b - a) / (FILE_PAGES - AROUND_PAGES);

    for (int i = 0; i < WARM; i++)
        if (thread())
            return 2;
    a = tsc();
    for (int i = 0; i < THREADS; i++)
        thread();
    b = tsc();
    create = (b - a) / THREADS;

    pthread_t other;
    if (pthread_create(&other, NULL, answers, NULL))
        return 3;
    for (int i = 0; i < WARM; i++)
        give_turn_to(1);
    a = tsc();
    for (int i = 0; i < TURNS; i++)
        give_turn_to(1);
    b = tsc();
    switches = (b - a) / TURNS;
    pthread_join(other, NULL);

    signal(SIGUSR1, handler);
    pid_t self = getpid(), tid = gettid();
    for (int i = 0; i < WARM; i++)
        syscall(SYS_tgkill, self, tid, SIGUSR1);
    a = tsc();
    for (int i = 0; i < TURNS; i++)
        syscall(SYS_tgkill, self, tid, SIGUSR1);
    b = tsc();
    delivery = (b - a) / TURNS;
    if (signals != WARM + TURNS)
        return 4;

    printf("null_call=%lu anonymous_fault=%lu file_fault=%lu thread=%lu ping_pong=%lu signal=%lu\n", call,
           anonymous, file, create, switches, delivery);
    return 0;
}
