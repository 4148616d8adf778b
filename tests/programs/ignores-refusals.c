/* ignores-refusals: writes a file, starts a process and a thread with files of its own, looks at
 * no error, and exits with 0. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    FILE *file = fopen("/results", "w");
    if (file)
        fputs("results\n", file);
    if (fork() == 0)
        return 0;
    static char stack[256];
    long thread = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    if (syscall(SYS_clone, thread, stack + sizeof stack, NULL, NULL, 0) == 0)
        syscall(SYS_exit, 0);
    puts("ignores-refusals: done");
    return 0;
}
