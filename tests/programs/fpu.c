/* fpu: SSE, AVX (when the CPU has it), x87 and MXCSR state must survive system calls and page
 * faults. Exit status 0 when every value is as it was left. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failures;

static void check(const char *what, int ok)
{
    if (!ok) {
        fprintf(stderr, "fpu: %s was changed\n", what);
        failures++;
    }
}

__attribute__((target("avx"))) static void avx(volatile char *fresh)
{
    double in[4] = {1.5, -2.25, 3.125, 1e300}, out[4];
    __asm__ volatile("vmovupd (%1), %%ymm7\n"
                     "mov %3, %%eax\n"
                     "syscall\n" /* getpid */
                     "movb $1, (%2)\n" /* page fault */
                     "vmovupd %%ymm7, (%0)\n"
                     : : "r"(out), "r"(in), "r"(fresh), "i"(SYS_getpid)
                     : "rax", "rcx", "r11", "ymm7", "memory");
    check("ymm7", !memcmp(in, out, sizeof in));
}

int main(void)
{
    volatile char *fresh = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned mxcsr = _mm_getcsr();
    unsigned short cw, cw2;
    check("initial mxcsr", mxcsr == 0x1f80);
    __asm__ volatile("fnstcw %0" : "=m"(cw));
    check("initial x87 control word", cw == 0x37f);

    double in[2] = {3.14159, -2.71828}, out[2];
    _mm_setcsr(0x9fc0); /* flush to zero, denormals are zero */
    __asm__ volatile("movupd (%1), %%xmm15\n"
                     "mov %3, %%eax\n"
                     "syscall\n"
                     "movb $1, (%2)\n"
                     "movupd %%xmm15, (%0)\n"
                     : : "r"(out), "r"(in), "r"(fresh), "i"(SYS_getpid)
                     : "rax", "rcx", "r11", "xmm15", "memory");
    check("xmm15", !memcmp(in, out, sizeof in));
    check("mxcsr", _mm_getcsr() == 0x9fc0);
    _mm_setcsr(mxcsr);

    unsigned short set = 0x27f; /* double precision */
    __asm__ volatile("fldcw %0" : : "m"(set));
    fresh[4096] = 1;
    syscall(SYS_getpid);
    __asm__ volatile("fnstcw %0" : "=m"(cw2));
    check("x87 control word", cw2 == 0x27f);
    __asm__ volatile("fldcw %0" : : "m"(cw));

    int has_avx = __builtin_cpu_supports("avx");
    if (has_avx)
        avx(fresh + 2 * 4096);
    printf("fpu: %s%s\n", failures ? "FAILED" : "ok", has_avx ? " (with AVX)" : " (SSE only)");
    return failures != 0;
}
