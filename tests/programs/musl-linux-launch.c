/* musl-linux-launch LABEL RUNS SERVER PHASE FILE [ARGUMENT...]: what a launch costs on a Linux
 * node. For the Linux peer of `cargo xtask bench launch`; it does not run on a Hearth node, which
 * has neither vfork nor sockets.
 *
 * Waits until http://SERVER:8117/go-PHASE exists, so that all nodes begin at once; fetches /FILE
 * into /tmp and runs it with the arguments (cold), then runs it RUNS times again (warm). With `-`
 * for SERVER nothing is fetched: /tmp/FILE is there already. Prints one line of KEY=VALUE, medians
 * of the warm runs: fetch_us, cold_exit_us from the request to the file's last byte, and to the end
 * of the first run cold_first_us from before vfork to the first instruction, of a file that never
 * ran first_us, exit_us from before vfork to the program's first instruction, and to its end
 * first_ticks, exit_ticks the same in ticks of the time-stamp counter: instructions under QEMU's
 * -icount shift=0 minor_faults of one run, bytes: fetched, bad: runs with another exit status than
 * 0
 *
 * The first instruction is seen by a copy of the program in which the code at the entry point is
 * replaced: it reads the counter, writes it to descriptor 3 and exits. Everything that the launch
 * does before is that of the program. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 8117
#define RUNS_MAX 64
#define PROBE_DESCRIPTOR 3
#define POLL_US 200000
#define POLLS_MAX 3000 /* ten minutes */

/* rdtsc; write(3, {low, high}, 16); exit(0) */
static const unsigned char probe_code[] = {
    0x0f, 0x31,       /* rdtsc */
    0x52, 0x50,       /* push rdx, rax */
    0x54, 0x5e,       /* rsi = rsp */
    0x6a, 0x10, 0x5a, /* rdx = 16 */
    0x6a, PROBE_DESCRIPTOR, 0x5f,
    0x6a, 0x01, 0x58, 0x0f, 0x05, /* write */
    0x31, 0xff, 0x6a, 0x3c, 0x58, 0x0f, 0x05, /* exit(0) */
};

static void fail(const char *what)
{
    fprintf(stderr, "musl-linux-launch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned long tsc(void)
{
    unsigned lo, hi;
    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(lo), "=d"(hi) : : "memory");
    return (unsigned long)hi << 32 | lo;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Gets PATH from the server: -1 if it is not there, else the bytes of the body, written to `to`
 * unless that is -1. */
static long get(const char *server, const char *path, int to)
{
    static char buffer[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    size_t have = 0;
    char *body = NULL;
    long bytes = 0, got;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || inet_pton(AF_INET, server, &address.sin_addr) != 1)
        fail(server);
    if (connect(s, (struct sockaddr *)&address, sizeof address) != 0) {
        close(s);
        return -1;
    }
    int length = snprintf(buffer, sizeof buffer, "GET /%s HTTP/1.0\r\n\r\n", path);
    if (write(s, buffer, (size_t)length) != length)
        fail("asking");
    while (!body && (got = read(s, buffer + have, sizeof buffer - 1 - have)) > 0) {
        have += (size_t)got;
        buffer[have] = 0;
        body = strstr(buffer, "\r\n\r\n");
    }
    if (!body || strncmp(buffer, "HTTP/1.", 7) != 0 || strncmp(buffer + 9, "200", 3) != 0) {
        close(s);
        return -1;
    }
    const char *field = strcasestr(buffer, "\r\ncontent-length:");
    long expected = field ? atol(field + 17) : -1;
    for (char *from = body + 4;; from = buffer) {
        long part = buffer + have - from;
        if (to >= 0 && write(to, from, (size_t)part) != part)
            fail("writing the file");
        bytes += part;
        if ((got = read(s, buffer, sizeof buffer)) < 0)
            fail("reading from the server");
        if (got == 0)
            break;
        have = (size_t)got;
    }
    close(s);
    if (expected >= 0 && bytes != expected) {
        errno = EIO;
        fail("a file came incomplete");
    }
    return bytes;
}

/* Makes the copy of the program whose first instructions are the probe's. */
static void make_probe(const char *file, const char *probe)
{
    struct stat status;
    int in = open(file, O_RDONLY | O_CLOEXEC);
    if (in < 0 || fstat(in, &status) != 0)
        fail(file);
    char *bytes = malloc((size_t)status.st_size);
    long have = 0, part;
    while ((part = read(in, bytes + have, (size_t)(status.st_size - have))) > 0)
        have += part;
    close(in);
    Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
    Elf64_Phdr *segment = (Elf64_Phdr *)(bytes + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++, segment++)
        if (segment->p_type == PT_LOAD && header->e_entry - segment->p_vaddr < segment->p_filesz - sizeof probe_code)
            memcpy(bytes + segment->p_offset + (header->e_entry - segment->p_vaddr), probe_code, sizeof probe_code);
    int out = open(probe, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (out < 0 || write(out, bytes, (size_t)have) != have || close(out) != 0)
        fail(probe);
    free(bytes);
}

/* Runs FILE; the counter before vfork, and what wait says. The child does nothing but execve. */
static unsigned long run(const char *file, char **arguments, int *status, struct rusage *usage)
{
    static char *environment[] = {"HEARTH_RANK=0", "HEARTH_SIZE=1", NULL};
    unsigned long before = tsc();
    pid_t child = vfork();
    if (child == 0) {
        execve(file, arguments, environment);
        _exit(127);
    }
    if (child < 0 || wait4(child, status, 0, usage) != child)
        fail("starting a program");
    return before;
}

static int compare(const void *a, const void *b)
{
    unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
    return x < y ? -1 : x > y;
}

static unsigned long median(unsigned long *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

int main(int argc, char **argv)
{
    static unsigned long first[RUNS_MAX], ends[RUNS_MAX], faults[RUNS_MAX];
    unsigned long tick_start = tsc(), before, fetch = 0, cold = 0, cold_first = 0;
    double us_start = now_us();
    char file[256], probe[272];
    int status, bad = 0, ends_of_pipe[2];
    long bytes = 0;
    struct rusage usage;

    if (argc < 6)
        return 2;
    const char *label = argv[1], *server = argv[3], *name = argv[5];
    int runs = atoi(argv[2]), is_here = !strcmp(server, "-");
    if (runs < 1 || runs > RUNS_MAX)
        return 2;
    snprintf(file, sizeof file, "/tmp/%s", name);
    snprintf(probe, sizeof probe, "%s.probe", file);
    argv[5] = file;
    /* Programs find the pipe at 3 and write what they print to nowhere; ours goes to the console.
     */
    int console = fcntl(1, F_DUPFD_CLOEXEC, 10), nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (console < 0 || nowhere < 0 || dup2(nowhere, 1) < 0 || pipe2(ends_of_pipe, O_CLOEXEC) != 0)
        fail("preparing");
    int from_probe = fcntl(ends_of_pipe[0], F_DUPFD_CLOEXEC, 10), to_us = fcntl(ends_of_pipe[1], F_DUPFD_CLOEXEC, 10);
    if (from_probe < 0 || to_us < 0 || dup2(to_us, PROBE_DESCRIPTOR) < 0)
        fail("preparing");

    if (!is_here) {
        char go[64];
        int polls = 0;
        snprintf(go, sizeof go, "go-%s", argv[4]);
        while (get(server, go, -1) < 0) {
            if (++polls > POLLS_MAX) {
                errno = ETIMEDOUT;
                fail("waiting for the start");
            }
            usleep(POLL_US);
        }
        before = tsc();
        int to = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
        if (to < 0 || (bytes = get(server, name, to)) < 0 || close(to) != 0)
            fail(name);
        fetch = tsc() - before;
        run(file, argv + 5, &status, &usage);
        cold = tsc() - before;
        bad += status != 0;
    }
    make_probe(file, probe);
    for (int i = -1; i < runs; i++) {
        unsigned long at[2], after;
        before = run(file, argv + 5, &status, &usage);
        after = tsc();
        bad += status != 0;
        if (i >= 0) { /* the first is not counted: caches of the kernel fill */
            ends[i] = after - before;
            faults[i] = (unsigned long)usage.ru_minflt;
        }
        before = run(probe, argv + 5, &status, &usage);
        if (read(from_probe, at, sizeof at) != sizeof at)
            fail("reading from the probe");
        *(i >= 0 ? &first[i] : &cold_first) = (at[1] << 32 | at[0]) - before;
    }
    unlink(probe);
    /* The rate of the counter, over everything that happened here. */
    while (now_us() - us_start < 50000)
        ;
    double us = (now_us() - us_start) / (double)(tsc() - tick_start);
    unsigned long first_ticks = median(first, runs), exit_ticks = median(ends, runs);
    dprintf(console,
            "LINUX-LAUNCHED label=%s fetch_us=%.0f cold_first_us=%.1f cold_exit_us=%.0f first_us=%.1f exit_us=%.1f "
            "first_ticks=%lu exit_ticks=%lu minor_faults=%lu bytes=%ld bad=%d\n",
            label, (double)fetch * us, (double)cold_first * us, (double)cold * us, (double)first_ticks * us,
            (double)exit_ticks * us, first_ticks, exit_ticks, median(faults, runs), bytes, bad);
    return 0;
}
