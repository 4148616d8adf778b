/* echo-all: prints its arguments, its whole environment and its standard input, so that a test can
 * compare them byte for byte. Exit status: the number of arguments. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char buffer[4096];
    ssize_t n;
    long total = 0;
    unsigned long sum = 5381;

    for (int i = 1; i < argc; i++)
        printf("arg %d [%s]\n", i, argv[i]);
    for (char **e = environ; *e; e++)
        printf("env [%s]\n", *e);
    while ((n = read(0, buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sum = sum * 33 + (unsigned char)buffer[i];
        total += n;
        if (total <= 4096)
            printf("stdin [%.*s]\n", (int)n, buffer);
    }
    if (n < 0) {
        fprintf(stderr, "echo-all: read: %s\n", strerror(errno));
        return 100;
    }
    printf("stdin %ld bytes, sum %lu\n", total, sum);
    fprintf(stderr, "echo-all: done\n");
    return argc - 1;
}
