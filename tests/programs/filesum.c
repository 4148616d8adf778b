/* filesum FILE: prints the length of a file and a checksum of its contents (Fletcher, 32 bits). */
#include <stdio.h>

int main(int argc, char **argv)
{
    unsigned char buffer[4096];
    unsigned low = 1, high = 0;
    unsigned long length = 0;
    size_t n;
    FILE *file;

    if (argc != 2) {
        fprintf(stderr, "usage: filesum FILE\n");
        return 2;
    }
    file = fopen(argv[1], "rb");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    while ((n = fread(buffer, 1, sizeof buffer, file)) > 0) {
        for (size_t i = 0; i < n; i++) {
            low = (low + buffer[i]) % 65535;
            high = (high + low) % 65535;
        }
        length += n;
    }
    printf("%s: %lu bytes, checksum %04x%04x\n", argv[1], length, high, low);
    fclose(file);
    return 0;
}
