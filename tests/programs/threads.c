/* threads: threads as C programs use them: made, joined and detached; mutexes, conditions,
 * barriers, semaphores, locks for readers, time-outs; data of each thread; signals for one of them;
 * threads that share a core and spin; robust mutexes of a thread that ended; more threads than
 * there may be, and stacks and words that are not there. The last line is "threads: ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef NAME
#define NAME "threads"
#endif

enum { THREADS = 8, ROUNDS = 2000, MANY = 5000 };

static void fail(const char *what, long value)
{
    printf(NAME ": %s: %ld, %s\n", what, value, strerror(errno));
    exit(1);
}

#define CHECK(what)                  \
    do {                             \
        long value = (what);         \
        if (value != 0)              \
            fail(#what, value);      \
    } while (0)
#define HOLDS(what)                  \
    do {                             \
        if (!(what))                 \
            fail(#what, 0);          \
    } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static long counter, turn;
static _Thread_local long own;

static void *count(void *argument)
{
    long number = (long)argument;
    own = number;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return (void *)(own * 3);
}

static void counting(void)
{
    pthread_t threads[THREADS];
    own = -1;
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, count, (void *)i));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result));
        HOLDS((long)result == i * 3);
    }
    HOLDS(counter == (long)THREADS * ROUNDS);
    HOLDS(own == -1);
}

// Each thread waits for its turn: every step wakes one that sleeps.
static void *take_turns(void *argument)
{
    long number = (long)argument;
    for (int round = 0; round < 100; round++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != number)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void turns(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_turns, (void *)i));
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    HOLDS(turn == THREADS * 100);
}

static pthread_barrier_t barrier;
static atomic_long arrived;

static void *meet(void *argument)
{
    for (long round = 1; round <= 50; round++) {
        arrived++;
        pthread_barrier_wait(&barrier);
        if (arrived != round * THREADS)
            return argument;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void barriers(void)
{
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS));
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, meet, (void *)(i + 1)));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result));
        HOLDS(result == NULL);
    }
    CHECK(pthread_barrier_destroy(&barrier));
}

static void time_outs(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 30 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&mutex);
    HOLDS(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    HOLDS(now.tv_sec > until.tv_sec
          || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
}

static sem_t ping, pong;

static void *answer(void *argument)
{
    for (int i = 0; i < 500; i++) {
        sem_wait(&ping);
        sem_post(&pong);
    }
    return argument;
}

static void semaphores(void)
{
    pthread_t thread;
    CHECK(sem_init(&ping, 0, 0));
    CHECK(sem_init(&pong, 0, 0));
    CHECK(pthread_create(&thread, NULL, answer, NULL));
    for (int i = 0; i < 500; i++) {
        sem_post(&ping);
        sem_wait(&pong);
    }
    CHECK(pthread_join(thread, NULL));
}

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long first, second;

static void *read_or_write(void *argument)
{
    long number = (long)argument;
    for (int i = 0; i < 300; i++) {
        if (number % 4 == 0) {
            pthread_rwlock_wrlock(&lock);
            first++;
            sched_yield();
            second++;
        } else {
            pthread_rwlock_rdlock(&lock);
            if (first != second)
                fail("a reader saw half of a write", first - second);
        }
        pthread_rwlock_unlock(&lock);
    }
    return NULL;
}

static void readers(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, read_or_write, (void *)i));
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
    HOLDS(first == 600);
}

// One spins for another that may have to wait for the same core.
static atomic_int flag;

static void *raise_flag(void *argument)
{
    flag = 1;
    return argument;
}

static void spinning(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        flag = 0;
        CHECK(pthread_create(&threads[i], NULL, raise_flag, NULL));
        while (!flag)
            ;
    }
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL));
}

// The clock of another thread goes on while that computes, stands while it waits, and never goes
// back.
static atomic_int computes = 1;

static void *compute(void *argument)
{
    flag = 1;
    while (computes)
        ;
    flag = 2;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static long clock_us(clockid_t clock)
{
    struct timespec now;
    CHECK(clock_gettime(clock, &now));
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void clocks(void)
{
    pthread_t thread;
    clockid_t clock;
    flag = 0;
    pthread_mutex_lock(&mutex);
    CHECK(pthread_create(&thread, NULL, compute, NULL));
    CHECK(pthread_getcpuclockid(thread, &clock));
    while (!flag)
        sched_yield();
    long last = clock_us(clock), first = last;
    while (last - first < 20000) {
        long now = clock_us(clock);
        HOLDS(now >= last);
        last = now;
        usleep(100);
    }
    computes = 0;
    while (flag != 2)
        sched_yield();
    usleep(50000);
    long before = clock_us(clock);
    HOLDS(before >= last);
    usleep(50000);
    HOLDS(clock_us(clock) - before < 40000);
    pthread_mutex_unlock(&mutex);
    CHECK(pthread_join(thread, NULL));
}

static _Thread_local volatile sig_atomic_t caught;
static atomic_int ready;

static void on_signal(int signal)
{
    caught = signal;
}

static void *wait_for_signal(void *argument)
{
    (void)argument;
    ready = 1;
    while (!caught) {
        struct timespec a_while = { 0, 20000000 };
        nanosleep(&a_while, NULL);
    }
    return (void *)(long)caught;
}

static void *take_signal(void *argument)
{
    sigset_t *set = argument;
    int signal = 0;
    ready = 1;
    if (sigwait(set, &signal) != 0)
        return NULL;
    return (void *)(long)signal;
}

static void signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    CHECK(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread;
    void *result;
    ready = 0;
    CHECK(pthread_create(&thread, NULL, wait_for_signal, NULL));
    while (!ready)
        sched_yield();
    CHECK(pthread_kill(thread, SIGUSR1));
    CHECK(pthread_join(thread, &result));
    HOLDS((long)result == SIGUSR1);
    HOLDS(caught == 0);
    // All block it: it waits for the one that asks.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    ready = 0;
    CHECK(pthread_create(&thread, NULL, take_signal, &set));
    while (!ready)
        sched_yield();
    CHECK(kill(getpid(), SIGUSR2));
    CHECK(pthread_join(thread, &result));
    HOLDS((long)result == SIGUSR2);
}

static volatile int is_sent;

/* Counts signals that wait for it, once all were sent; until then it makes no call. */
static void *collect_signals(void *argument)
{
    const sigset_t *set = argument;
    const struct timespec at_once = {0};
    long count = 0;
    ready = 1;
    while (!is_sent)
        ;
    while (sigtimedwait(set, NULL, &at_once) == SIGRTMIN + 3)
        count++;
    return (void *)count;
}

/* Signals of real time wait one behind the other; those for which there is no room are refused,
 * also while the thread runs. */
static void many_signals(void)
{
    pthread_t thread;
    sigset_t set, before;
    struct rlimit limit;
    void *result;
    long sent = 0, refused = 0;
    CHECK(getrlimit(RLIMIT_SIGPENDING, &limit));
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, &before));
    ready = is_sent = 0;
    CHECK(pthread_create(&thread, NULL, collect_signals, &set));
    while (!ready)
        sched_yield();
    for (int i = 0; i < 300; i++) {
        int error = pthread_kill(thread, SIGRTMIN + 3);
        HOLDS(error == 0 || error == EAGAIN);
        sent += error == 0;
        refused += error == EAGAIN;
    }
    is_sent = 1;
    CHECK(pthread_join(thread, &result));
    HOLDS((long)result == sent && sent > 90);
    HOLDS(limit.rlim_cur >= 300 || (refused > 0 && sent <= (long)limit.rlim_cur));
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL));
}

static pthread_mutex_t robust;

static void *die_with_it(void *argument)
{
    pthread_mutex_lock(&robust);
    return argument;
}

static void robust_mutexes(void)
{
    pthread_mutexattr_t attributes;
    pthread_t thread;
    CHECK(pthread_mutexattr_init(&attributes));
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    CHECK(pthread_mutex_init(&robust, &attributes));
    CHECK(pthread_create(&thread, NULL, die_with_it, NULL));
    CHECK(pthread_join(thread, NULL));
    HOLDS(pthread_mutex_lock(&robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&robust));
    CHECK(pthread_mutex_unlock(&robust));
}

static void *float_on(void *argument)
{
    double sum = 0, step = (long)argument + 1;
    for (int i = 0; i < 20000; i++) {
        sum += step;
        if (i % 500 == 0)
            sched_yield();
    }
    return sum == step * 20000 ? NULL : argument;
}

static void floats(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, float_on, (void *)(i + 1)));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result));
        HOLDS(result == NULL);
    }
}

// A page that is unmapped, or becomes read-only, is so for all cores when the call returns.
static volatile long *page;
static atomic_long writes;
static atomic_int stopped;
static sigjmp_buf out;

static void on_fault(int signal)
{
    siglongjmp(out, signal);
}

static void *write_on(void *argument)
{
    if (sigsetjmp(out, 1) == 0)
        for (;;) {
            *page = writes;
            writes++;
        }
    stopped = 1;
    return argument;
}

static void unmapping(void)
{
    struct sigaction action = { .sa_handler = on_fault }, before;
    CHECK(sigaction(SIGSEGV, &action, &before));
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        HOLDS(page != MAP_FAILED);
        writes = stopped = 0;
        CHECK(pthread_create(&thread, NULL, write_on, NULL));
        while (writes < 1000)
            sched_yield();
        if (round % 2 == 0)
            CHECK(munmap((void *)page, 4096));
        else
            CHECK(mprotect((void *)page, 4096, PROT_READ));
        long then = writes;
        while (!stopped && writes < then + 1000)
            sched_yield();
        // One that was counted late.
        if (writes > then + 1)
            fail("writes to a page that was taken away", writes - then);
        CHECK(pthread_join(thread, NULL));
    }
    CHECK(sigaction(SIGSEGV, &before, NULL));
}

static void *stay(void *argument)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static void many(void)
{
    static pthread_t threads[MANY];
    pthread_attr_t attributes;
    int made = 0, error = 0;
    CHECK(pthread_attr_init(&attributes));
    CHECK(pthread_attr_setstacksize(&attributes, 16384));
    pthread_mutex_lock(&mutex);
    while (made < MANY) {
        error = pthread_create(&threads[made], &attributes, stay, NULL);
        if (error != 0)
            break;
        made++;
    }
    pthread_mutex_unlock(&mutex);
    HOLDS(error == EAGAIN);
    HOLDS(made >= 63 && (made + 1) % 64 == 0);
    for (int i = 0; i < made; i++)
        CHECK(pthread_join(threads[i], NULL));
    // There is room again.
    CHECK(pthread_create(&threads[0], &attributes, stay, NULL));
    CHECK(pthread_join(threads[0], NULL));
}

// A stack that cannot be mapped, and words that are not there.
static void refusals(void)
{
    struct rlimit before, less;
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(getrlimit(RLIMIT_AS, &before));
    less = before;
    less.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_AS, &less));
    CHECK(pthread_attr_init(&attributes));
    CHECK(pthread_attr_setstacksize(&attributes, 24 << 20));
    HOLDS(pthread_create(&thread, &attributes, stay, NULL) == EAGAIN);
    CHECK(setrlimit(RLIMIT_AS, &before));
    CHECK(pthread_create(&thread, &attributes, stay, NULL));
    CHECK(pthread_join(thread, NULL));
    void *hidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(hidden != MAP_FAILED);
    long words[] = {0x20000, (long)hidden, 0x7fffffffff00, -4096};
    for (int i = 0; i < 4; i++) {
        HOLDS(syscall(SYS_futex, words[i], 0 /* FUTEX_WAIT */, 0, NULL) == -1);
        HOLDS(errno == EFAULT);
    }
    HOLDS(syscall(SYS_futex, (long)&counter + 1, 0, 0, NULL) == -1 && errno == EINVAL);
    CHECK(munmap(hidden, 4096));
}

static void places(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK(sched_getaffinity(0, sizeof set, &set));
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (CPU_COUNT(&set) != online)
        fail("processors of the affinity and online", CPU_COUNT(&set) * 100 + online);
    int here = sched_getcpu();
    HOLDS(here >= 0 && CPU_ISSET(here, &set));
    HOLDS(syscall(SYS_gettid) == getpid());
}

static void *last_words(void *argument)
{
    pthread_join(*(pthread_t *)argument, NULL);
    puts(NAME ": ok");
    exit(0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    places();
    counting();
    turns();
    barriers();
    time_outs();
    semaphores();
    readers();
    spinning();
    clocks();
    signals();
    many_signals();
    robust_mutexes();
    floats();
    unmapping();
    many();
    refusals();
    // The first thread ends before the last.
    static pthread_t self;
    pthread_t thread;
    self = pthread_self();
    CHECK(pthread_create(&thread, NULL, last_words, &self));
    pthread_exit(NULL);
}
