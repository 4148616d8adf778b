/* calls: what the kernel's most used paths cost, in time-stamp counter ticks, which are
 * instructions when QEMU runs with -icount shift=0. Used by `cargo xtask bench call`, on Hearth and
 * on Linux alike. null_call getpid, mean of 1,000 anonymous_fault first touch of an anonymous page,
 * mean of 256 file_fault first touch of a page of this program's file that is already in memory,
 * mean of
 *                    48 (64 pages of read-only data, asked for by madvise(MADV_WILLNEED) before; on
 *                    Linux they are in the page cache since the file was written). The last page is
 *                    touched first, which waits until all have arrived; both kernels map the 16 pages
 *                    around it then, so these are left out
 * Prints one line: null_call=N anonymous_fault=N file_fault=N */
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

int main(void)
{
    unsigned long a, b, call, anonymous, file;
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

    printf("null_call=%lu anonymous_fault=%lu file_fault=%lu\n", call, anonymous, file);
    return 0;
}
