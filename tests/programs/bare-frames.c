/* bare-frames fill|scan MIB: the proof that no program sees what another left in memory.
 *   fill  writes a pattern to every byte of MIB MiB of anonymous memory and exits with 0;
 *   scan  maps as much, counts the bytes that are not zero and exits with 1 when there are any.
 * Without a C library, so that it runs correctly even where fresh memory is not zero: that is how a
 * node with scrubbing switched off is told from one that scrubs. */
#include <stddef.h>

#define PAGE 4096ul

enum { SYS_WRITE = 1, SYS_MMAP = 9, SYS_EXIT_GROUP = 231 };

static long call6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static void leave(int status)
{
    for (;;)
        call6(SYS_EXIT_GROUP, status, 0, 0, 0, 0, 0);
}

static void say(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    call6(SYS_WRITE, 1, (long)text, (long)n, 0, 0, 0);
}

static void say_number(unsigned long n)
{
    char digits[24], *p = digits + sizeof digits;
    *--p = 0;
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    say(p);
}

__attribute__((noreturn, used)) static void run(long *stack)
{
    char **argv = (char **)(stack + 1);
    if (stack[0] < 3) {
        say("usage: bare-frames fill|scan MIB\n");
        leave(2);
    }
    unsigned long mib = 0, dirty = 0;
    for (const char *p = argv[2]; *p >= '0' && *p <= '9'; p++)
        mib = mib * 10 + (unsigned long)(*p - '0');
    unsigned long bytes = mib << 20;
    /* PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS */
    long at = call6(SYS_MMAP, 0, (long)bytes, 3, 0x22, -1, 0);
    if (at < 0 && at > -4096) {
        say("bare-frames: mmap failed\n");
        leave(3);
    }
    volatile unsigned long *words = (volatile unsigned long *)at;
    if (argv[1][0] == 'f') {
        for (unsigned long i = 0; i < bytes / 8; i++)
            words[i] = 0x2121544552434553ul; /* SECRET!! */
        say("bare-frames: filled ");
        say_number(bytes);
        say(" bytes\n");
        leave(0);
    }
    for (unsigned long i = 0; i < bytes; i += PAGE) {
        /* Touch by a write first, so that a frame of its own is behind the page. */
        words[i / 8 + 1] = 0;
        for (unsigned long j = 0; j < PAGE / 8; j++)
            dirty += words[i / 8 + j] != 0;
    }
    say("bare-frames: ");
    say_number(dirty);
    say(" words of ");
    say_number(bytes / 8);
    say(" are not zero\n");
    leave(dirty != 0);
    __builtin_unreachable();
}

__attribute__((naked, noreturn, used)) void _start(void)
{
    __asm__("mov %rsp, %rdi; and $-16, %rsp; call run");
}
