/* resources: what C libraries ask of their machine and of themselves. Each answer is checked; the
 * last line is "resources: ok", and the exit status the number of answers that were wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

static int wrong;

static void check(int good, const char *what)
{
    if (!good) {
        printf("resources: %s (errno %d)\n", what, errno);
        wrong++;
    }
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Computes until so many seconds have gone by. */
static void compute(double seconds)
{
    double end = now(CLOCK_MONOTONIC) + seconds;
    volatile double x = 1;
    while (now(CLOCK_MONOTONIC) < end)
        for (int i = 0; i < 1000; i++)
            x = x * 1.000001;
}

static double seconds(struct timeval t)
{
    return t.tv_sec + t.tv_usec / 1e6;
}

static void processor_time(void)
{
    struct rusage before, after;
    struct tms ticks, later;
    clock_t start = times(&ticks), clocks = clock();
    check(start != (clock_t)-1, "times fails");
    check(getrusage(RUSAGE_SELF, &before) == 0, "getrusage fails");
    compute(0.2);
    getrusage(RUSAGE_SELF, &after);
    double used = seconds(after.ru_utime) - seconds(before.ru_utime) + seconds(after.ru_stime) -
                  seconds(before.ru_stime);
    check(used > 0.1 && used < 5, "getrusage stands still");
    check(after.ru_maxrss > 16 && after.ru_maxrss < 1 << 20, "ru_maxrss");
    check(after.ru_minflt > 0, "ru_minflt");
    clock_t ran = times(&later) - start;
    check(ran >= 20 && ran < 500, "times stands still");
    ran = later.tms_utime + later.tms_stime - ticks.tms_utime - ticks.tms_stime;
    check(ran >= 10 && ran < 500, "tms_utime stands still");
    check(clock() - clocks > CLOCKS_PER_SEC / 10, "clock stands still");
    struct rusage children;
    check(getrusage(RUSAGE_CHILDREN, &children) == 0 && children.ru_utime.tv_usec == 0, "children");
    check(getrusage(77, &children) == -1 && errno == EINVAL, "getrusage of nobody");
    /* A program that sleeps uses no processor time. */
    getrusage(RUSAGE_SELF, &before);
    usleep(300000);
    getrusage(RUSAGE_SELF, &after);
    used = seconds(after.ru_utime) - seconds(before.ru_utime) + seconds(after.ru_stime) -
           seconds(before.ru_stime);
    check(used < 0.2, "sleep costs processor time");
}

static void clocks(void)
{
    static const clockid_t known[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID,
                                      CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_COARSE};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        struct timespec t = {-1, -1};
        check(clock_getres(known[i], &t) == 0 && t.tv_sec == 0 && t.tv_nsec > 0 &&
                  t.tv_nsec <= 1000, "clock_getres");
    }
    check(clock_getres(99, NULL) == -1 && errno == EINVAL, "clock_getres of no clock");
    clockid_t own;
    check(clock_getcpuclockid(0, &own) == 0 && now(own) > 0, "clock_getcpuclockid");
}

/* Programs sleep by select and poll without descriptors. */
static void sleeping(void)
{
    double start = now(CLOCK_MONOTONIC);
    struct timeval left = {0, 100000};
    check(select(0, NULL, NULL, NULL, &left) == 0, "select");
#ifdef __GLIBC__ /* musl gives the kernel a copy. */
    check(left.tv_sec == 0 && left.tv_usec == 0, "what select leaves");
#endif
    double slept = now(CLOCK_MONOTONIC) - start;
    check(slept >= 0.1 && slept < 5, "select does not sleep");
    start = now(CLOCK_MONOTONIC);
    struct timespec span = {0, 100000000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(1, &set);
    /* Nothing can be read from standard output. */
    check(pselect(2, &set, NULL, NULL, &span, NULL) == 0 && !FD_ISSET(1, &set), "pselect");
    check(ppoll(NULL, 0, &span, NULL) == 0, "ppoll");
    slept = now(CLOCK_MONOTONIC) - start;
    check(slept >= 0.2 && slept < 5, "pselect and ppoll do not sleep");
    FD_SET(1, &set);
    check(select(2, NULL, &set, NULL, NULL) == 1 && FD_ISSET(1, &set), "select of what is ready");
    FD_ZERO(&set);
    FD_SET(40, &set);
    check(select(41, &set, NULL, NULL, NULL) == -1 && errno == EBADF, "select of what is closed");
}

static void machine(void)
{
    struct utsname host;
    check(uname(&host) == 0 && !strcmp(host.sysname, "Linux") && host.nodename[0], "uname");
    struct sysinfo info;
    check(sysinfo(&info) == 0, "sysinfo fails");
    long bytes = (long)info.totalram * info.mem_unit;
    check(bytes > 16 << 20 && info.freeram <= info.totalram && info.freeram > 0, "sysinfo");
    check(info.procs == 1 && info.uptime >= 0 && info.totalswap == 0, "sysinfo, others");
    check(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) == bytes, "_SC_PHYS_PAGES");
    long available = sysconf(_SC_AVPHYS_PAGES);
    check(available > 0 && available <= sysconf(_SC_PHYS_PAGES), "_SC_AVPHYS_PAGES");
    check(sysconf(_SC_NPROCESSORS_ONLN) == 1, "_SC_NPROCESSORS_ONLN");
    check(sysconf(_SC_CLK_TCK) == 100, "_SC_CLK_TCK");
    check(sched_getcpu() == 0, "sched_getcpu");
    cpu_set_t set;
    check(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1, "sched_getaffinity");
    check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
    CPU_CLR(0, &set);
    CPU_SET(3, &set);
    check(sched_setaffinity(0, sizeof set, &set) == -1 && errno == EINVAL, "a missing processor");
    check(getppid() == 0, "getppid");
}

static void limits(void)
{
    struct rlimit limit;
    check(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20, "RLIMIT_STACK");
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 256, "RLIMIT_NOFILE");
    check(sysconf(_SC_OPEN_MAX) == 256, "_SC_OPEN_MAX");
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setting a limit to what it is");
    limit.rlim_cur = 4096;
    limit.rlim_max = 4096;
    check(setrlimit(RLIMIT_NOFILE, &limit) == -1 && errno == EPERM, "raising a limit");
    int first = dup(1);
    limit.rlim_cur = (rlim_t)first + 1;
    limit.rlim_max = 256;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "lowering RLIMIT_NOFILE");
    check(dup(1) == -1 && errno == EMFILE, "a descriptor beyond the limit");
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == (rlim_t)first + 1 &&
          limit.rlim_max == 256, "RLIMIT_NOFILE when it was lowered");
    limit.rlim_cur = 256;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0 && close(first) == 0, "raising it again");
    limit.rlim_cur = 0;
    limit.rlim_max = RLIM_INFINITY;
    check(setrlimit(RLIMIT_DATA, &limit) == 0 && sbrk(1 << 20) == (void *)-1 && errno == ENOMEM,
          "RLIMIT_DATA");
    limit.rlim_cur = RLIM_INFINITY;
    check(setrlimit(RLIMIT_DATA, &limit) == 0, "no RLIMIT_DATA");
    check(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0, "RLIMIT_CORE");
    check(getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur == 1, "RLIMIT_NPROC");
    check(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY, "RLIMIT_AS");
    check(getrlimit(RLIMIT_RSS, &limit) == 0 && limit.rlim_cur > 16 << 20 &&
              limit.rlim_cur < (rlim_t)1 << 40, "RLIMIT_RSS");
    check(getrlimit(99, &limit) == -1 && errno == EINVAL, "no limit");
    check(umask(077) == 022 && umask(0) == 077 && umask(022) == 0, "umask");
}

/* Whether a line of a file has a text. */
static int says(const char *path, const char *text)
{
    char line[512];
    int found = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        found |= strstr(line, text) != NULL;
    fclose(file);
    return found;
}

static void node_files(void)
{
    char bytes[64], zeros[64] = { 0 };
    check(says("/proc/self/maps", "[stack]"), "the stack in /proc/self/maps");
    check(says("/proc/self/status", "Threads:\t1"), "threads in /proc/self/status");
    check(says("/proc/cpuinfo", "model name"), "the processor in /proc/cpuinfo");
    check(says("/proc/meminfo", "MemTotal:"), "memory in /proc/meminfo");
    check(says("/sys/devices/system/cpu/online", "0"), "cores that are online");
    check(sysconf(_SC_NPROCESSORS_CONF) == sysconf(_SC_NPROCESSORS_ONLN), "configured cores");
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDONLY);
    int full = open("/dev/full", O_WRONLY), random = open("/dev/urandom", O_RDONLY);
    check(write(null, bytes, 64) == 64 && read(null, bytes, 64) == 0, "/dev/null");
    memset(bytes, 1, sizeof bytes);
    check(read(zero, bytes, 64) == 64 && !memcmp(bytes, zeros, 64), "/dev/zero");
    check(read(random, bytes, 64) == 64 && memcmp(bytes, zeros, 64), "/dev/urandom");
    errno = 0;
    check(write(full, bytes, 64) == -1 && errno == ENOSPC, "/dev/full");
    check(open("/proc/self/maps", O_WRONLY) == -1 && open("/proc/1/maps", O_RDONLY) == -1,
          "what is not there, and what is not to be written");
}

/* How threads are scheduled, and memory that is to stay. */
static void schedule(void)
{
    struct timespec turn = {1, 1};
#ifdef __GLIBC__ /* musl has ENOSYS for these without asking */
    struct sched_param none = {0}, some = {10};
    check(sched_getscheduler(0) == SCHED_OTHER, "sched_getscheduler");
    check(sched_getparam(0, &some) == 0 && some.sched_priority == 0, "sched_getparam");
    some.sched_priority = 10;
    check(sched_setscheduler(0, SCHED_OTHER, &none) == 0, "sched_setscheduler");
    check(sched_setscheduler(0, SCHED_OTHER, &some) == -1 && errno == EINVAL, "a priority of SCHED_OTHER");
    check(sched_setscheduler(0, 77, &none) == -1 && errno == EINVAL, "a policy that there is not");
    check(sched_setparam(0, &none) == 0, "sched_setparam");
    check(sched_getscheduler(30000) == -1 && errno == ESRCH, "the policy of nobody");
#endif
    check(sched_get_priority_min(SCHED_FIFO) == 1 && sched_get_priority_max(SCHED_RR) == 99, "priorities");
    check(sched_rr_get_interval(0, &turn) == 0 && turn.tv_sec == 0, "sched_rr_get_interval");
    check(getpgrp() == getpid() && getsid(0) == getpid(), "the group of a process");
    static char pages[3 * 4096] __attribute__((aligned(4096)));
    struct rusage before, after;
    check(mlock(pages + 100, 2 * 4096) == 0, "mlock");
    getrusage(RUSAGE_SELF, &before);
    check(pages[0] + pages[4096] + pages[2 * 4096] == 0, "locked pages");
    getrusage(RUSAGE_SELF, &after);
    check(after.ru_minflt == before.ru_minflt, "locked pages fault");
    check(munlock(pages, sizeof pages) == 0 && mlockall(MCL_CURRENT) == 0 && munlockall() == 0, "munlock");
    check(mlock((void *)0x123456789000, 4096) == -1 && errno == ENOMEM, "mlock of what is not mapped");
    check(msync(pages, sizeof pages, MS_SYNC) == 0, "msync");
    check(msync(pages + 1, 1, MS_SYNC) == -1 && errno == EINVAL, "msync in the middle of a page");
}

int main(void)
{
    schedule();
    processor_time();
    clocks();
    sleeping();
    machine();
    limits();
    node_files();
    if (!wrong)
        puts("resources: ok");
    return wrong;
}
