/* ignores-refusals: writes a file and starts a thread, looks at neither's error, and exits with 0.
 */
#include <pthread.h>
#include <stdio.h>

static void *nothing(void *argument)
{
    return argument;
}

int main(void)
{
    FILE *file = fopen("/tmp/results", "w");
    if (file)
        fputs("results\n", file);
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    puts("ignores-refusals: done");
    return 0;
}
