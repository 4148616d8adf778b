/* ignores-refusals: writes a file and starts a process, looks at neither's error, and exits with 0.
 */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    FILE *file = fopen("/results", "w");
    if (file)
        fputs("results\n", file);
    if (fork() == 0)
        return 0;
    puts("ignores-refusals: done");
    return 0;
}
