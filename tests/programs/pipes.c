/* pipes: pipes and event counters, alone and between threads; what poll, select and epoll say of
 * them; signals that interrupt. The last line is "pipes: ok". It ends so on Linux, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef NAME
#define NAME "pipes"
#endif

enum { FULL = 65536, ATOMIC = 4096, MILLISECOND = 1000 };

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
#define FAILS(what, error) HOLDS((what) == -1 && errno == (error))

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    HOLDS(pthread_create(thread, NULL, run, argument) == 0);
}

static void join(pthread_t thread)
{
    void *result;
    HOLDS(pthread_join(thread, &result) == 0);
    HOLDS(result == NULL);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void plain(void)
{
    int ends[2];
    char bytes[16];
    HOLDS(pipe2(ends, O_CLOEXEC) == 0);
    HOLDS(fcntl(ends[0], F_GETFL) == O_RDONLY && fcntl(ends[1], F_GETFL) == O_WRONLY);
    HOLDS(fcntl(ends[0], F_GETFD) == FD_CLOEXEC);
    HOLDS(write(ends[1], "one two", 7) == 7);
    HOLDS(read(ends[0], bytes, 3) == 3 && memcmp(bytes, "one", 3) == 0);
    HOLDS(read(ends[0], bytes, sizeof bytes) == 4 && memcmp(bytes, " two", 4) == 0);
    HOLDS(read(ends[0], bytes, 0) == 0);
    FAILS(read(ends[1], bytes, 1), EBADF);
    FAILS(write(ends[0], bytes, 1), EBADF);
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    FAILS(pread(ends[0], bytes, 1, 0), ESPIPE);
    void *volatile nowhere = (void *)8;
    FAILS(write(ends[1], nowhere, 4), EFAULT);
    struct stat about;
    HOLDS(fstat(ends[0], &about) == 0 && S_ISFIFO(about.st_mode));
    // What a copy of the descriptor refers to stays open with it.
    int copy = fcntl(ends[1], F_DUPFD, 100);
    HOLDS(copy >= 100 && fcntl(copy, F_GETFD) == 0);
    HOLDS(close(ends[1]) == 0);
    HOLDS(write(copy, "x", 1) == 1 && read(ends[0], bytes, 9) == 1);
    HOLDS(dup2(ends[0], copy) == copy);
    HOLDS(read(copy, bytes, 1) == 0);
    HOLDS(close(copy) == 0 && close(ends[0]) == 0);
    FAILS(close(ends[0]), EBADF);
    FAILS(pipe2(ends, O_APPEND), EINVAL);
    HOLDS(pipe(ends) == 0 && fcntl(ends[1], F_GETFD) == 0);
    HOLDS(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void without_waiting(void)
{
    static char bytes[FULL + 10];
    int ends[2];
    HOLDS(pipe2(ends, O_NONBLOCK) == 0);
    HOLDS(fcntl(ends[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
    FAILS(read(ends[0], bytes, 1), EAGAIN);
    HOLDS(write(ends[1], bytes, sizeof bytes) == FULL);
    FAILS(write(ends[1], bytes, 1), EAGAIN);
    HOLDS(read(ends[0], bytes, ATOMIC - 1) == ATOMIC - 1);
    // Few bytes go in together or not at all.
    FAILS(write(ends[1], bytes, ATOMIC), EAGAIN);
    HOLDS(read(ends[0], bytes, 1) == 1);
    HOLDS(write(ends[1], bytes, ATOMIC) == ATOMIC);
    HOLDS(read(ends[0], bytes, sizeof bytes) == FULL);
    HOLDS(fcntl(ends[0], F_SETFL, 0) == 0 && fcntl(ends[0], F_GETFL) == O_RDONLY);
    struct iovec out[3] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};
    struct iovec in[2] = {{bytes, 1}, {bytes + 10, 9}};
    HOLDS(writev(ends[1], out, 3) == 5);
    HOLDS(readv(ends[0], in, 2) == 5);
    HOLDS(bytes[0] == 'a' && memcmp(bytes + 10, "bcde", 4) == 0);
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t caught;

static void catch(int signal)
{
    caught = signal;
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_handler = catch, .sa_flags = flags};
    HOLDS(sigaction(signal, &action, NULL) == 0);
}

static void broken(void)
{
    int ends[2];
    handle(SIGPIPE, 0);
    HOLDS(pipe(ends) == 0 && close(ends[0]) == 0);
    caught = 0;
    FAILS(write(ends[1], "x", 1), EPIPE);
    HOLDS(caught == SIGPIPE);
    signal(SIGPIPE, SIG_IGN);
    caught = 0;
    FAILS(write(ends[1], "x", 1), EPIPE);
    HOLDS(caught == 0);
    close(ends[1]);
}

enum { ROW = 300 * 1000, WRITERS = 4, RECORDS = 500, RECORD = 61 };

static int ends_of_row[2];

static unsigned char byte_of_row(int number)
{
    return (unsigned char)(number % 251 + number / 1000);
}

static void *write_row(void *argument)
{
    static unsigned char bytes[ROW];
    for (int i = 0; i < ROW; i++)
        bytes[i] = byte_of_row(i);
    // One call, that waits for its reader again and again.
    ssize_t written = write(ends_of_row[1], bytes, ROW);
    close(ends_of_row[1]);
    return written == ROW ? argument : &ends_of_row;
}

static void a_row(void)
{
    pthread_t writer;
    unsigned char bytes[7000];
    int got = 0;
    HOLDS(pipe(ends_of_row) == 0);
    start(&writer, write_row, NULL);
    for (;;) {
        ssize_t count = read(ends_of_row[0], bytes, sizeof bytes);
        HOLDS(count >= 0);
        for (int i = 0; i < count; i++)
            HOLDS(bytes[i] == byte_of_row(got + i));
        got += count;
        if (count == 0)
            break;
    }
    HOLDS(got == ROW);
    join(writer);
    close(ends_of_row[0]);
}

static void *write_records(void *argument)
{
    char record[RECORD];
    memset(record, 'a' + (int)(long)argument, RECORD);
    for (int i = 0; i < RECORDS; i++)
        if (write(ends_of_row[1], record, RECORD) != RECORD)
            return argument;
    return NULL;
}

static void records(void)
{
    pthread_t writers[WRITERS];
    char record[RECORD];
    int counts[WRITERS] = {0};
    HOLDS(pipe(ends_of_row) == 0);
    for (long i = 0; i < WRITERS; i++)
        start(&writers[i], write_records, (void *)i);
    for (int i = 0; i < WRITERS * RECORDS; i++) {
        for (size_t got = 0; got < RECORD;) {
            ssize_t count = read(ends_of_row[0], record + got, RECORD - got);
            HOLDS(count > 0);
            got += (size_t)count;
        }
        for (int at = 1; at < RECORD; at++)
            HOLDS(record[at] == record[0]);
        counts[record[0] - 'a']++;
    }
    for (int i = 0; i < WRITERS; i++) {
        join(writers[i]);
        HOLDS(counts[i] == RECORDS);
    }
    close(ends_of_row[0]);
    close(ends_of_row[1]);
}

static int counter, answers;

static void *count_down(void *argument)
{
    for (int i = 0; i < 200; i++) {
        uint64_t value;
        if (read(counter, &value, sizeof value) != 8 || value != 1)
            return &counter;
        value = 2;
        if (write(answers, &value, sizeof value) != 8)
            return &counter;
    }
    return argument;
}

static void counters(void)
{
    uint64_t value = 0;
    counter = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    HOLDS(counter >= 0 && fcntl(counter, F_GETFD) == FD_CLOEXEC);
    HOLDS(fcntl(counter, F_GETFL) == (O_RDWR | O_NONBLOCK));
    HOLDS(read(counter, &value, sizeof value) == 8 && value == 3);
    FAILS(read(counter, &value, sizeof value), EAGAIN);
    FAILS(read(counter, &value, 4), EINVAL);
    value = UINT64_MAX;
    FAILS(write(counter, &value, sizeof value), EINVAL);
    value = UINT64_MAX - 1;
    HOLDS(write(counter, &value, sizeof value) == 8);
    value = 1;
    FAILS(write(counter, &value, sizeof value), EAGAIN);
    struct pollfd asked = {.fd = counter, .events = POLLIN | POLLOUT};
    HOLDS(poll(&asked, 1, 0) == 1 && asked.revents == POLLIN);
    HOLDS(close(counter) == 0);
    FAILS(eventfd(0, 8), EINVAL);

    // Threads that wait for each other by turns.
    pthread_t thread;
    counter = eventfd(0, EFD_SEMAPHORE);
    answers = eventfd(0, 0);
    HOLDS(counter >= 0 && answers >= 0);
    start(&thread, count_down, NULL);
    for (int i = 0; i < 100; i++) {
        value = 2;
        HOLDS(write(counter, &value, sizeof value) == 8);
        for (uint64_t got = 0; got < 4; got += value)
            HOLDS(read(answers, &value, sizeof value) == 8);
    }
    join(thread);
    close(counter);
    close(answers);
}

static void *write_later(void *argument)
{
    usleep(30 * MILLISECOND);
    return write(*(int *)argument, "x", 1) == 1 ? NULL : argument;
}

static void polled(void)
{
    int ends[2];
    char byte;
    pthread_t thread;
    HOLDS(pipe(ends) == 0);
    struct pollfd asked[3] = {
        {.fd = ends[0], .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = ends[1], .events = POLLOUT},
    };
    HOLDS(poll(asked, 3, -1) == 1);
    HOLDS(asked[0].revents == 0 && asked[1].revents == 0 && asked[2].revents == POLLOUT);
    long begin = now_ms();
    HOLDS(poll(asked, 1, 40) == 0 && now_ms() - begin >= 39);
    start(&thread, write_later, &ends[1]);
    HOLDS(poll(asked, 1, 5000) == 1 && asked[0].revents == POLLIN);
    join(thread);

    fd_set reads, writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(ends[0], &reads);
    FD_SET(ends[1], &writes);
    HOLDS(select(ends[1] + 1, &reads, &writes, NULL, NULL) == 2);
    HOLDS(read(ends[0], &byte, 1) == 1);
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    struct timeval span = {.tv_usec = 20 * MILLISECOND};
    HOLDS(select(ends[0] + 1, &reads, NULL, NULL, &span) == 0);
    HOLDS(!FD_ISSET(ends[0], &reads));
    start(&thread, write_later, &ends[1]);
    FD_SET(ends[0], &reads);
    struct timespec long_span = {.tv_sec = 5};
    HOLDS(pselect(ends[0] + 1, &reads, NULL, NULL, &long_span, NULL) == 1);
    join(thread);

    HOLDS(close(ends[1]) == 0);
    HOLDS(poll(asked, 1, -1) == 1 && asked[0].revents == (POLLIN | POLLHUP));
    HOLDS(poll(asked + 2, 1, -1) == 1 && asked[2].revents == POLLNVAL);
    HOLDS(pipe(ends_of_row) == 0 && close(ends_of_row[0]) == 0);
    struct pollfd broken = {.fd = ends_of_row[1], .events = POLLOUT};
    HOLDS(poll(&broken, 1, -1) == 1 && broken.revents == (POLLOUT | POLLERR));
    close(ends_of_row[1]);
    close(ends[0]);
}

static int watch(int epoll, int command, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(epoll, command, fd, &event);
}

/* What an epoll tells of its one descriptor at once; 0 where that is nothing. */
static uint32_t told(int epoll)
{
    struct epoll_event events[4];
    int count = epoll_wait(epoll, events, 4, 0);
    HOLDS(count == 0 || count == 1);
    return count == 1 ? events[0].events : 0;
}

static void watched(void)
{
    int ends[2];
    char bytes[ATOMIC];
    struct epoll_event events[4];
    pthread_t thread;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    HOLDS(epoll >= 0 && pipe2(ends, O_NONBLOCK) == 0);
    FAILS(epoll_create1(1), EINVAL);
    HOLDS(watch(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0x1122334455667788) == 0);
    FAILS(watch(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), EEXIST);
    FAILS(watch(epoll, EPOLL_CTL_MOD, ends[1], EPOLLIN, 0), ENOENT);
    FAILS(watch(epoll, EPOLL_CTL_DEL, ends[1], 0, 0), ENOENT);
    FAILS(watch(epoll, EPOLL_CTL_ADD, 77, EPOLLIN, 0), EBADF);
    FAILS(watch(ends[0], EPOLL_CTL_ADD, ends[1], EPOLLIN, 0), EINVAL);
    FAILS(watch(epoll, EPOLL_CTL_ADD, epoll, EPOLLIN, 0), EINVAL);
    int file = open("/proc/self/status", O_RDONLY);
    HOLDS(file >= 0);
    FAILS(watch(epoll, EPOLL_CTL_ADD, file, EPOLLIN, 0), EPERM);
    close(file);
    FAILS(epoll_wait(epoll, events, 0, 0), EINVAL);
    FAILS(epoll_wait(ends[0], events, 1, 0), EINVAL);
    FAILS(read(epoll, bytes, 8), EINVAL);

    // As long as it is ready.
    long begin = now_ms();
    HOLDS(epoll_wait(epoll, events, 4, 40) == 0 && now_ms() - begin >= 39);
    HOLDS(write(ends[1], "x", 1) == 1);
    for (int i = 0; i < 2; i++) {
        HOLDS(epoll_wait(epoll, events, 4, -1) == 1);
        HOLDS(events[0].events == EPOLLIN && events[0].data.u64 == 0x1122334455667788);
    }
    struct pollfd asked = {.fd = epoll, .events = POLLIN};
    HOLDS(poll(&asked, 1, 0) == 1 && asked.revents == POLLIN);
    HOLDS(read(ends[0], bytes, 9) == 1 && told(epoll) == 0);
    start(&thread, write_later, &ends[1]);
    HOLDS(epoll_wait(epoll, events, 4, 5000) == 1);
    join(thread);

    // Once for each change.
    uint32_t edge = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    HOLDS(watch(epoll, EPOLL_CTL_MOD, ends[0], edge, 1) == 0);
    HOLDS(told(epoll) == EPOLLIN && told(epoll) == 0);
    HOLDS(write(ends[1], "y", 1) == 1);
    HOLDS(told(epoll) == EPOLLIN && told(epoll) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_DEL, ends[0], 0, 0) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_ADD, ends[1], edge, 2) == 0);
    HOLDS(told(epoll) == EPOLLOUT && told(epoll) == 0);
    while (write(ends[1], bytes, sizeof bytes) > 0)
        continue;
    HOLDS(told(epoll) == 0);
    while (read(ends[0], bytes, sizeof bytes) > 0)
        continue;
    HOLDS(told(epoll) == EPOLLOUT && told(epoll) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_DEL, ends[1], 0, 0) == 0);

    // Once, until it is set again.
    HOLDS(watch(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLONESHOT, 3) == 0);
    HOLDS(write(ends[1], "z", 1) == 1);
    HOLDS(told(epoll) == EPOLLIN && told(epoll) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 3) == 0);
    HOLDS(told(epoll) == EPOLLIN && told(epoll) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN, 3) == 0);
    HOLDS(close(ends[1]) == 0 && told(epoll) == (EPOLLIN | EPOLLHUP));
    HOLDS(close(ends[0]) == 0 && told(epoll) == 0);

    // An event counter, as Go wakes its poller by it; and standard output.
    int wakes = eventfd(0, EFD_NONBLOCK);
    uint64_t value = 1;
    HOLDS(watch(epoll, EPOLL_CTL_ADD, wakes, EPOLLIN | EPOLLET, 4) == 0);
    HOLDS(told(epoll) == 0 && write(wakes, &value, 8) == 8 && told(epoll) == EPOLLIN);
    HOLDS(write(wakes, &value, 8) == 8 && told(epoll) == EPOLLIN && told(epoll) == 0);
    HOLDS(close(wakes) == 0);
    HOLDS(watch(epoll, EPOLL_CTL_ADD, 1, EPOLLOUT, 5) == 0 || errno == EPERM);
    HOLDS(told(epoll) == EPOLLOUT || told(epoll) == 0);
    HOLDS(close(epoll) == 0);
}

static void *signal_later(void *argument)
{
    usleep(30 * MILLISECOND);
    pthread_kill(*(pthread_t *)argument, SIGUSR1);
    usleep(30 * MILLISECOND);
    return write(ends_of_row[1], "x", 1) == 1 ? NULL : argument;
}

static void interrupted(void)
{
    pthread_t self = pthread_self(), thread;
    char byte;
    HOLDS(pipe(ends_of_row) == 0);
    handle(SIGUSR1, 0);
    caught = 0;
    start(&thread, signal_later, &self);
    FAILS(read(ends_of_row[0], &byte, 1), EINTR);
    HOLDS(caught == SIGUSR1 && read(ends_of_row[0], &byte, 1) == 1);
    join(thread);
    handle(SIGUSR1, SA_RESTART);
    start(&thread, signal_later, &self);
    HOLDS(read(ends_of_row[0], &byte, 1) == 1);
    join(thread);
    int epoll = epoll_create1(0);
    struct epoll_event event;
    HOLDS(watch(epoll, EPOLL_CTL_ADD, ends_of_row[0], EPOLLIN, 0) == 0);
    start(&thread, signal_later, &self);
    FAILS(epoll_wait(epoll, &event, 1, -1), EINTR);
    join(thread);
    HOLDS(read(ends_of_row[0], &byte, 1) == 1);

    // A signal that is blocked but for the time of a call.
    sigset_t blocked, open;
    sigemptyset(&open);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    HOLDS(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    caught = 0;
    pthread_kill(self, SIGUSR1);
    HOLDS(epoll_wait(epoll, &event, 1, 0) == 0 && caught == 0);
    FAILS(epoll_pwait(epoll, &event, 1, -1, &open), EINTR);
    HOLDS(caught == SIGUSR1);
    HOLDS(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0);
    close(epoll);
    close(ends_of_row[0]);
    close(ends_of_row[1]);
}

/* As many as there may be: later ones may hold less, and all of them work. */
static void many(void)
{
    static int ends[1024][2];
    int count = 0;
    while (count < 1024 && pipe2(ends[count], O_NONBLOCK) == 0)
        count++;
    HOLDS(count > 100 && (count == 1024 || errno == EMFILE));
    for (int i = 0; i < count; i++)
        HOLDS(write(ends[i][1], &i, sizeof i) == sizeof i);
    for (int i = 0; i < count; i++) {
        int found;
        HOLDS(read(ends[i][0], &found, sizeof found) == sizeof found && found == i);
        HOLDS(close(ends[i][0]) == 0 && close(ends[i][1]) == 0);
    }
}

/* What ioctl says of bytes that wait, and how it makes calls not wait. */
static void asked(void)
{
    int ends[2], waiting = -1, counter = eventfd(1, 0), yes = 1;
    HOLDS(pipe(ends) == 0 && counter >= 0);
    HOLDS(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 0);
    HOLDS(write(ends[1], "12345", 5) == 5);
    HOLDS(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 5);
    HOLDS(ioctl(ends[1], FIONREAD, &waiting) == 0 && waiting == 5);
    FAILS(ioctl(counter, FIONREAD, &waiting), ENOTTY);
    char five[5];
    HOLDS(read(ends[0], five, 5) == 5);
    HOLDS(ioctl(ends[0], FIONBIO, &yes) == 0 && (fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
    FAILS(read(ends[0], five, 5), EAGAIN);
    close(ends[0]);
    close(ends[1]);
    close(counter);
}

/* Standard output can be made not to wait, and takes a line all the same. */
static void streams(void)
{
    int flags = fcntl(1, F_GETFL);
    HOLDS(flags >= 0 && fcntl(1, F_SETFL, flags | O_NONBLOCK) == 0);
    HOLDS((fcntl(1, F_GETFL) & O_NONBLOCK) != 0);
    HOLDS(write(1, NAME ": does not wait\n", sizeof NAME + 15) == sizeof NAME + 15);
    HOLDS(fcntl(1, F_SETFL, flags) == 0 && (fcntl(1, F_GETFL) & O_NONBLOCK) == 0);
}

static int told_until(int fd, struct epoll_event *events, struct timespec *timeout, sigset_t *mask)
{
    return (int)syscall(SYS_epoll_pwait2, fd, events, 4, timeout, mask, 8);
}

static void watched_finely(void)
{
    int fd = epoll_create1(0), counter = eventfd(0, 0);
    struct epoll_event event = { EPOLLIN, { .u64 = 7 } }, events[4];
    HOLDS(epoll_ctl(fd, EPOLL_CTL_ADD, counter, &event) == 0);
    struct timespec timeout = { 0, 20000000 };
    long begin = now_ms();
    HOLDS(told_until(fd, events, &timeout, NULL) == 0 && now_ms() - begin >= 19);
    timeout.tv_nsec = 1000000000;
    FAILS(told_until(fd, events, &timeout, NULL), EINVAL);
    HOLDS(eventfd_write(counter, 1) == 0);
    HOLDS(told_until(fd, events, NULL, NULL) == 1 && events[0].data.u64 == 7);
    close(fd);
    close(counter);
}

/* The mask of a call ends with it, also where the call fails. */
static void masks(void)
{
    sigset_t all, before, after;
    sigfillset(&all);
    HOLDS(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
    void *volatile nowhere = (void *)16;
    struct timespec timeout = { 1, 0 };
    FAILS(ppoll(nowhere, 1, &timeout, &all), EFAULT);
    fd_set none;
    FD_ZERO(&none);
    FD_SET(200, &none);
    FAILS(pselect(201, &none, NULL, NULL, &timeout, &all), EBADF);
    FAILS(epoll_pwait(1, nowhere, 1, 0, &all), EINVAL);
    HOLDS(sigprocmask(SIG_SETMASK, NULL, &after) == 0);
    HOLDS(memcmp(&before, &after, 8) == 0);
}

int main(void)
{
    asked();
    streams();
    watched_finely();
    masks();
    plain();
    without_waiting();
    broken();
    a_row();
    records();
    counters();
    polled();
    watched();
    interrupted();
    many();
    printf(NAME ": ok\n");
    return 0;
}
