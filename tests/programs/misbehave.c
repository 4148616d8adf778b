/* misbehave HOW: does one forbidden thing. The node must end it with a report and stay in service.
 *   null       read through a null pointer          -> SIGSEGV
 *   write-text write to its own code                -> SIGSEGV
 *   exec-data  jump into writable data              -> SIGSEGV
 *   kernel     read a kernel address                -> SIGSEGV
 *   stack      recurse without end                  -> SIGSEGV
 *   illegal    execute ud2                          -> SIGILL
 *   divide     divide by zero                       -> SIGFPE
 *   gp         load a non-canonical address         -> SIGSEGV
 *   hlt        execute a privileged instruction     -> SIGSEGV
 *   memory     touch more memory than the node has  -> SIGKILL
 *   abort      call abort()                         -> SIGABRT
 *   badptr     give write() a kernel address        -> exit 0 when it answers EFAULT
 *   status N   exit with status N
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char data[64] = {(char)0xc3};
static volatile int zero;

__attribute__((noinline)) static long recurse(long n)
{
    volatile char frame[1024];
    frame[n & 1023] = (char)n;
    return recurse(n + 1) + frame[(n * 7) & 1023];
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    printf("misbehave: %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "null"))
        return *(volatile int *)(long)zero;
    if (!strcmp(how, "write-text")) {
        *(volatile char *)(void *)main = 0;
    } else if (!strcmp(how, "exec-data")) {
        ((void (*)(void))(void *)data)();
    } else if (!strcmp(how, "kernel")) {
        return *(volatile int *)0xffffffff80000000ul;
    } else if (!strcmp(how, "stack")) {
        return (int)recurse(zero);
    } else if (!strcmp(how, "illegal")) {
        __asm__ volatile("ud2");
    } else if (!strcmp(how, "divide")) {
        __asm__ volatile("xor %%edx,%%edx; mov $1,%%eax; divl %0" : : "m"(zero) : "eax", "edx");
    } else if (!strcmp(how, "gp")) {
        return *(volatile int *)0x8000000000000000ul;
    } else if (!strcmp(how, "hlt")) {
        __asm__ volatile("hlt");
    } else if (!strcmp(how, "memory")) {
        for (;;) {
            char *p = malloc(1 << 20);
            if (!p) {
                puts("misbehave: malloc returned NULL");
                return 3;
            }
            memset(p, 1, 1 << 20);
        }
    } else if (!strcmp(how, "abort")) {
        abort();
    } else if (!strcmp(how, "badptr")) {
        ssize_t n = write(1, (void *)0xffffffff80000000ul, 16);
        if (n == -1 && errno == EFAULT) {
            puts("misbehave: EFAULT");
            return 0;
        }
        return 4;
    } else if (!strcmp(how, "status")) {
        return argc > 2 ? atoi(argv[2]) : 0;
    } else {
        fprintf(stderr, "misbehave: unknown way '%s'\n", how);
        return 2;
    }
    printf("misbehave: survived %s\n", how);
    return 99;
}
