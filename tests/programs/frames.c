/* frames fill|scan MIB: the proof that no program sees what another left in memory.
 *   fill  writes a pattern to every byte of MIB MiB of anonymous memory and exits;
 *   scan  maps as much, counts the bytes that are not zero and exits 1 when there are any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: frames fill|scan MIB\n");
        return 2;
    }
    size_t bytes = (size_t)atoi(argv[2]) << 20, dirty = 0;
    unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("frames: mmap");
        return 3;
    }
    if (!strcmp(argv[1], "fill")) {
        for (size_t i = 0; i < bytes; i += 8)
            memcpy(p + i, "SECRET!!", 8);
        printf("frames: filled %zu bytes\n", bytes);
        return 0;
    }
    for (size_t i = 0; i < bytes; i += 4096) {
        /* Touch by a write first, so that a frame of its own is behind the page. */
        ((volatile unsigned char *)p)[i + 8] = 0;
        for (size_t j = 0; j < 4096; j++)
            dirty += p[i + j] != 0;
    }
    printf("frames: %zu of %zu bytes are not zero\n", dirty, bytes);
    return dirty != 0;
}
