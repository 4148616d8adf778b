/* signals: handlers of faults and of signals that a program sends itself, masks, waiting, timers.
 * Each is checked; the last line is "signals: ok", and the exit status the number of checks that
 * failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static int wrong;
static volatile sig_atomic_t count, last_code;
static void *volatile last_address;
static siginfo_t last;
static ucontext_t context;
static sigjmp_buf back;
static volatile int zero;

static void check(int good, const char *what)
{
    if (!good) {
        printf("signals: %s (count %d, code %d, errno %d)\n", what, (int)count, (int)last_code,
               errno);
        wrong++;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void note(int signal, siginfo_t *info, void *where)
{
    count++;
    last_code = info->si_code;
    last_address = info->si_addr;
    last = *info;
    memcpy(&context, where, offsetof(ucontext_t, uc_sigmask));
    if (signal != info->si_signo)
        count = -1000;
}

static void leave(int signal, siginfo_t *info, void *where)
{
    note(signal, info, where);
    siglongjmp(back, 1);
}

static void on(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {0};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    check(sigaction(signal, &action, NULL) == 0, "sigaction");
    count = 0;
}

/* A fault, and what its handler must hear of it; address 1 stands for any. */
static void fault(const char *what, int signal, void (*act)(void), int code, void *address)
{
    on(signal, leave, 0);
    if (!sigsetjmp(back, 1))
        act();
    check(count == 1, what);
    check(last_code == code, what);
    check(address == (void *)1 || last_address == address, what);
    /* The mask is what it was: another one comes, too. */
    if (!sigsetjmp(back, 1))
        act();
    check(count == 2, what);
}

static char *page;
static void read_null(void) { *(volatile int *)(long)(zero + 16); }
static void write_page(void) { page[5] = 1; }
static void divide(void) { zero = 100 / zero; }
static void illegal(void) { __asm__ volatile("ud2"); }
static void privileged(void) { __asm__ volatile("hlt"); }
static void trap(void) { __asm__ volatile("int3"); }
/* By the x87: emulated processors do not raise the exceptions of SSE. */
static void divide_double(void)
{
    unsigned short control = 0x037f & ~4;
    __asm__ volatile("fninit; fldcw %0; fld1; fldz; fdivrp; fwait; fninit" : : "m"(control));
}

static void faults(void)
{
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fault("null", SIGSEGV, read_null, SEGV_MAPERR, (void *)16);
    fault("protection", SIGSEGV, write_page, SEGV_ACCERR, page + 5);
    check(context.uc_mcontext.gregs[REG_TRAPNO] == 14, "REG_TRAPNO");
    check(context.uc_mcontext.gregs[REG_CR2] == (long)(page + 5), "REG_CR2");
    check(context.uc_mcontext.gregs[REG_ERR] & 2, "REG_ERR");
    fault("divide", SIGFPE, divide, FPE_INTDIV, (void *)1);
    fault("illegal", SIGILL, illegal, ILL_ILLOPN, (void *)1);
    fault("privileged", SIGSEGV, privileged, 0x80 /* SI_KERNEL */, NULL);
    fault("trap", SIGTRAP, trap, 0x80, (void *)1);
    fault("floating point", SIGFPE, divide_double, FPE_FLTDIV, (void *)1);
    __asm__ volatile("fninit");
}

/* A handler repairs what the fault was about and returns: the instruction is carried out again. */
static void repair(int signal, siginfo_t *info, void *where)
{
    note(signal, info, where);
    mprotect((void *)((long)info->si_addr & ~4095), 4096, PROT_READ | PROT_WRITE);
}

/* ... or goes on behind it: ud2 has two bytes. */
static void skip(int signal, siginfo_t *info, void *where)
{
    note(signal, info, where);
    ucontext_t *uc = where;
    uc->uc_mcontext.gregs[REG_RIP] += 2;
    uc->uc_mcontext.gregs[REG_RBX] = 4711;
}

static void returns(void)
{
    on(SIGSEGV, repair, 0);
    page[5] = 77;
    check(count == 1 && page[5] == 77, "a handler that repairs");
    on(SIGILL, skip, 0);
    long rbx = 1, rcx = 2, r11 = 3, flags;
    __asm__ volatile("mov $0x1234567, %%rcx; mov $0x7654321, %%r11; stc; ud2; pushfq; pop %3;"
                     "mov %%rcx, %1; mov %%r11, %2"
                     : "=&b"(rbx), "=&r"(rcx), "=&r"(r11), "=&r"(flags)
                     :
                     : "rcx", "r11", "cc");
    check(rbx == 4711 && rcx == 0x1234567 && r11 == 0x7654321, "registers behind a handler");
    check(flags & 1, "flags behind a handler");
}

/* A handler may compute: the interrupted program's floating-point state is its own. */
static void compute(int signal, siginfo_t *info, void *where)
{
    ucontext_t *uc = where;
    volatile double x = 3;
    for (int i = 0; i < 100; i++)
        x = x * 1.5 + i;
    (void)signal;
    (void)info;
    __asm__ volatile("pxor %%xmm5, %%xmm5; fninit; fldpi" : : : "xmm5", "memory");
    last_code = uc->uc_mcontext.fpregs->_xmm[5].element[0];
    count++;
}

static void floating_point(void)
{
    on(SIGUSR1, compute, 0);
    uint64_t before = 0x1122334455667788, after = 0;
    long double one = 0;
    int pid = getpid();
    long result;
    __asm__ volatile("fninit; fld1; movq %3, %%xmm5; syscall; movq %%xmm5, %1; fstpt %2"
                     : "=a"(result), "=&r"(after), "=m"(one)
                     : "r"(before), "a"((long)SYS_kill), "D"((long)pid), "S"((long)SIGUSR1)
                     : "rcx", "r11", "xmm5", "memory");
    check(result == 0 && count == 1, "a signal to itself");
    check(after == before && one == 1, "floating-point state behind a handler");
    check(last_code == 0x55667788, "floating-point state in the frame");
    if (__builtin_cpu_supports("avx")) {
        uint64_t high[4] = {1, 2, 3, 4}, found[4] = {0};
        __asm__ volatile("vmovdqu %3, %%ymm5; syscall; vmovdqu %%ymm5, %1; vzeroupper"
                         : "=a"(result), "=m"(found)
                         : "0"((long)SYS_kill), "m"(high), "D"((long)pid), "S"((long)SIGUSR1)
                         : "rcx", "r11", "xmm5", "memory");
        check(!memcmp(high, found, sizeof high), "AVX state behind a handler");
    }
}

static void sending(void)
{
    on(SIGUSR1, note, 0);
    check(raise(SIGUSR1) == 0 && count == 1 && last_code == SI_TKILL, "raise");
    check(kill(getpid(), SIGUSR1) == 0 && count == 2 && last_code == SI_USER, "kill");
    check(last.si_pid == getpid() && last.si_uid == 0, "who has sent it");
    check(kill(getpid(), 0) == 0 && count == 2, "kill with 0");
    check(kill(4711, SIGUSR1) == -1 && errno == ESRCH, "kill of nobody");
    check(kill(getpid(), 99) == -1 && errno == EINVAL, "kill with 99");
    check(signal(SIGUSR1, SIG_IGN) != SIG_ERR && raise(SIGUSR1) == 0, "an ignored signal");
    check(raise(SIGCHLD) == 0 && raise(SIGWINCH) == 0, "signals that do nothing");
    on(SIGUSR1, note, SA_RESETHAND | SA_NODEFER);
    raise(SIGUSR1);
    struct sigaction action;
    sigaction(SIGUSR1, NULL, &action);
    check(count == 1 && action.sa_handler == SIG_DFL, "SA_RESETHAND");
    /* Real-time signals wait one behind the other, with their values. */
    on(SIGRTMIN + 1, note, 0);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, &old);
    for (int i = 0; i < 3; i++) {
        union sigval value = {.sival_int = 40 + i};
        check(sigqueue(getpid(), SIGRTMIN + 1, value) == 0, "sigqueue");
    }
    sigset_t waiting;
    check(sigpending(&waiting) == 0 && sigismember(&waiting, SIGRTMIN + 1), "sigpending");
    check(count == 0, "a blocked signal");
    siginfo_t info;
    check(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_value.sival_int == 40, "sigwaitinfo");
    sigprocmask(SIG_SETMASK, &old, NULL);
    check(count == 2 && last_code == SI_QUEUE && last.si_value.sival_int == 42, "what has waited");
    struct timespec none = {0, 20000000};
    sigprocmask(SIG_BLOCK, &set, NULL);
    check(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN, "sigtimedwait");
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static char other[65536] __attribute__((aligned(16)));
static volatile int depth;

static void on_other(int signal, siginfo_t *info, void *where)
{
    char here;
    note(signal, info, where);
    last_code = &here > other && &here < other + sizeof other;
    stack_t stack;
    sigaltstack(NULL, &stack);
    if (!(stack.ss_flags & SS_ONSTACK))
        last_code = 2;
}

static void on_other_leave(int signal, siginfo_t *info, void *where)
{
    on_other(signal, info, where);
    siglongjmp(back, 1);
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) static long recurse(long n)
{
    volatile char frame[1024];
    frame[n & 1023] = (char)n;
    return recurse(n + 1) + frame[(n * 7) & 1023];
}

static void alternate_stack(void)
{
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other}, old;
    check(sigaltstack(&stack, &old) == 0 && old.ss_flags == SS_DISABLE, "sigaltstack");
    on(SIGUSR2, on_other, SA_ONSTACK);
    raise(SIGUSR2);
    check(count == 1 && last_code == 1, "the alternate stack");
    check(sigaltstack(NULL, &old) == 0 && old.ss_flags == 0 && old.ss_sp == other,
          "the stack behind it");
    /* A stack overflow is a fault that only such a handler hears of. */
    on(SIGSEGV, on_other_leave, SA_ONSTACK);
    if (!sigsetjmp(back, 1))
        recurse(zero);
    check(count == 1 && last_code == 1, "stack overflow");
    stack.ss_size = 10;
    check(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM, "a small stack");
    stack.ss_flags = SS_DISABLE;
    check(sigaltstack(&stack, NULL) == 0, "no alternate stack");
}

static void timers(void)
{
    on(SIGALRM, note, 0);
    double start = now();
    struct itimerval timer = {{0, 0}, {0, 50000}}, old;
    check(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
    check(pause() == -1 && errno == EINTR && count == 1, "pause");
    double waited = now() - start;
    check(waited >= 0.05 && waited < 5, "how long pause takes");
    /* A program that computes is interrupted, again and again. */
    count = 0;
    timer.it_interval.tv_usec = 10000;
    setitimer(ITIMER_REAL, &timer, NULL);
    for (start = now(); count < 5 && now() - start < 20;)
        for (volatile int i = 0; i < 100000; i++)
            ;
    check(count >= 5, "a timer with an interval");
    check(getitimer(ITIMER_REAL, &old) == 0 && old.it_interval.tv_usec == 10000, "getitimer");
    memset(&timer, 0, sizeof timer);
    check(setitimer(ITIMER_REAL, &timer, &old) == 0 && old.it_value.tv_usec > 0, "stopping it");
    check(alarm(100) == 0 && alarm(0) == 100, "alarm");
    /* nanosleep says what is left; select is interrupted; both whatever SA_RESTART says. */
    on(SIGALRM, note, SA_RESTART);
    timer.it_value.tv_usec = 50000;
    setitimer(ITIMER_REAL, &timer, NULL);
    struct timespec span = {30, 0}, left = {0, 0};
    check(nanosleep(&span, &left) == -1 && errno == EINTR && count == 1, "nanosleep");
    check(left.tv_sec >= 20 && left.tv_sec < 30, "what nanosleep leaves");
    setitimer(ITIMER_REAL, &timer, NULL);
    check(select(0, NULL, NULL, NULL, NULL) == -1 && errno == EINTR && count == 2, "select");
    setitimer(ITIMER_REAL, &timer, NULL);
    check(poll(NULL, 0, -1) == -1 && errno == EINTR && count == 3, "poll");
    /* A timer that is blocked all the time but in the call. */
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, &before);
    setitimer(ITIMER_REAL, &timer, NULL);
    usleep(100000);
    check(count == 3, "a blocked timer");
    check(sigsuspend(&before) == -1 && errno == EINTR && count == 4, "sigsuspend");
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    check(sigismember(&mask, SIGALRM), "the mask behind sigsuspend");
    setitimer(ITIMER_REAL, &timer, NULL);
    check(pselect(0, NULL, NULL, NULL, NULL, &before) == -1 && errno == EINTR && count == 5,
          "pselect");
    setitimer(ITIMER_REAL, &timer, NULL);
    check(ppoll(NULL, 0, NULL, &before) == -1 && errno == EINTR && count == 6, "ppoll");
    sigprocmask(SIG_SETMASK, &before, NULL);
    /* A futex wait without a time-out begins again with SA_RESTART and ends without. */
    static int word = 1;
    on(SIGALRM, note, 0);
    setitimer(ITIMER_REAL, &timer, NULL);
    check(syscall(SYS_futex, &word, 0, 1, NULL) == -1 && errno == EINTR && count == 1, "futex");
}

/* Bytes of the floating-point state in a frame: without XSAVE nothing says so. */
static unsigned fp_bytes(const ucontext_t *uc)
{
    unsigned bytes = ((unsigned *)uc->uc_mcontext.fpregs)[117];
    return bytes ? bytes : 512;
}

/* Frames that no kernel has made; each must end in SIGSEGV or go on, and never in the kernel. */
static void hostile(int signal, siginfo_t *info, void *where)
{
    ucontext_t *uc = where;
    count++;
    (void)signal;
    switch (info->si_value.sival_int) {
    case 0: uc->uc_mcontext.gregs[REG_RIP] = (long)0x8000000000000000ul; break;
    case 1: uc->uc_mcontext.gregs[REG_RIP] = (long)0xffffffff80000000ul; break;
    case 2: uc->uc_mcontext.gregs[REG_CSGSFS] = 0x0008000800080008l; break; /* kernel selectors */
    case 3: uc->uc_mcontext.gregs[REG_EFL] = -1l; break;
    case 4: memset(uc->uc_mcontext.fpregs, 0xff, fp_bytes(uc)); break;
    case 5: uc->uc_mcontext.fpregs->mxcsr = 0xffffffff; break;
    case 6: /* reserved in the header of XSAVE */
        if (fp_bytes(uc) > 520)
            ((char *)uc->uc_mcontext.fpregs)[520] = 1;
        break;
    case 7: uc->uc_mcontext.fpregs = NULL; break;
    case 8: uc->uc_mcontext.gregs[REG_RIP] = 0x7ffffffffffe; break;
    }
}

static void trapped(int signal, siginfo_t *info, void *where)
{
    ucontext_t *uc = where;
    (void)signal;
    (void)info;
    uc->uc_mcontext.gregs[REG_EFL] &= ~0x100l;
}

/* An instruction without an operand: it faults whatever the registers are. */
__attribute__((naked)) static void landing(void)
{
    __asm__ volatile("ud2");
}

/* Fills a frame with random bytes, but for what would end the program: its mask and stack. */
static void scribble(int signal, siginfo_t *info, void *where)
{
    static uint64_t random = 0x9e3779b97f4a7c15;
    ucontext_t *uc = where;
    (void)signal;
    count++;
    uint64_t *areas[] = {(uint64_t *)uc->uc_mcontext.gregs, (uint64_t *)uc->uc_mcontext.fpregs};
    uint32_t words[] = {23, fp_bytes(uc) / 8};
    for (int area = 0; area < 2; area++)
        for (uint32_t i = 0; i < words[area]; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            areas[area][i] = random;
        }
    /* Alignment is not checked, so that the handler of the next fault may run. */
    uc->uc_mcontext.gregs[REG_EFL] &= ~0x40000l;
    if (info->si_value.sival_int % 4)
        uc->uc_mcontext.gregs[REG_RIP] = (long)landing;
    sigemptyset(&uc->uc_sigmask);
}

/* Handlers that are no code: a hole, and a page of data. */
static void not_code(void)
{
    static char data[16] = {(char)0xc3};
    void *places[] = {(void *)0x20000, data};
    int codes[] = {SEGV_MAPERR, SEGV_ACCERR};
    for (volatile int i = 0; i < 2; i++) {
        struct sigaction action = {0};
        action.sa_handler = (void (*)(int))places[i];
        check(sigaction(SIGUSR2, &action, NULL) == 0, "sigaction");
        on(SIGSEGV, leave, 0);
        if (!sigsetjmp(back, 1))
            raise(SIGUSR2);
        check(count == 1, "a handler that is no code");
        check(last_code == codes[i] && last_address == places[i], "where there is no code");
    }
    signal(SIGUSR2, SIG_DFL);
}

static void frames(void)
{
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    sigaltstack(&stack, NULL);
    static const int faults[] = {SIGSEGV, SIGILL, SIGTRAP, SIGBUS, SIGFPE};
    for (int i = 0; i < 5; i++)
        on(faults[i], leave, SA_NODEFER | SA_ONSTACK);
    on(SIGRTMIN + 3, scribble, 0);
    for (volatile int i = 0; i < 200; i++) {
        union sigval value = {.sival_int = i};
        count = 0;
        if (!sigsetjmp(back, 1))
            sigqueue(getpid(), SIGRTMIN + 3, value);
        check(count >= 2, "a random frame");
    }
    on(SIGTRAP, trapped, 0);
    on(SIGRTMIN + 2, hostile, 0);
    on(SIGSEGV, leave, SA_NODEFER);
    for (volatile int i = 0; i < 9; i++) {
        union sigval value = {.sival_int = i};
        count = 0;
        if (!sigsetjmp(back, 1))
            sigqueue(getpid(), SIGRTMIN + 2, value);
        unsigned mxcsr = 0x1f80;
        __asm__ volatile("fninit; ldmxcsr %0; pushfq; andq $~0x40100, (%%rsp); popfq"
                         :
                         : "m"(mxcsr));
        check(count >= 1, "a hostile frame");
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        /* signals NUMBER: what the signal does without a handler. */
        raise(atoi(argv[1]));
        puts("signals: survived");
        return 0;
    }
    faults();
    returns();
    floating_point();
    sending();
    alternate_stack();
    timers();
    not_code();
    frames();
    if (!wrong)
        puts("signals: ok");
    return wrong;
}
