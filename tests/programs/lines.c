/* lines COUNT [DELAY]: COUNT numbered lines on standard output, every tenth also on standard error,
 * so that a test can see that none is lost, doubled or out of order. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100;
    for (long i = 0; i < count; i++) {
        printf("line %ld of %ld\n", i, count);
        if (i % 10 == 0) {
            fflush(stdout);
            fprintf(stderr, "mark %ld\n", i);
        }
    }
    return 0;
}
