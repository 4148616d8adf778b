/* musl-hello: the smallest useful program: one line from each rank. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *rank = getenv("HEARTH_RANK"), *size = getenv("HEARTH_SIZE");
    printf("hello from musl-hello, rank %s of %s\n", rank ? rank : "?", size ? size : "?");
    return 0;
}
