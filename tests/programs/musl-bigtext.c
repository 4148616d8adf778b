/* musl-bigtext [PERCENT [ROUNDS]]: 16 MiB of machine code, of which it executes PERCENT (default
 * 100), spread evenly, in the order of the addresses, ROUNDS times (default 1).
 *
 * The code is one function a page, made by the assembler. Each is entered at the page's first byte
 * and left at its last, multiplies its argument by 31 and adds a number of its own: the result is
 * right only if every page was executed, once, in order, and with its own contents. What lies
 * between is filled with a different value in each page, so that no two pages are alike. Exit
 * status 0 when the result is right, 1 otherwise. */
#include <stdio.h>
#include <stdlib.h>

#define PAGES 4096
#define PAGE_BYTES 4096
#define TEXT(number) #number
#define STRING(number) TEXT(number)

__asm__(".section .text.bigtext, \"ax\", @progbits\n"
        ".balign 4096\n"
        ".globl bigtext\n"
        "bigtext:\n"
        ".set index, 0\n"
        ".rept " STRING(PAGES) "\n"
        "  .set page, .\n"
        "  imulq $31, %rdi, %rax\n"
        "  addq $index, %rax\n"
        "  .byte 0xe9\n" /* jmp to the page's last byte, whatever the distance */
        "  .long 4095 - (. + 4 - page)\n"
        "  .fill (4095 - (. - page)) / 4, 4, 0xcc000000 + index\n"
        "  .fill 4095 - (. - page), 1, 0xcc\n"
        "  ret\n"
        "  .set index, index + 1\n"
        ".endr\n"
        ".text\n");

extern const char bigtext[];

typedef unsigned long function(unsigned long);

/* Whether page `index` is one of the `percent` that are executed: evenly spread, the first one
 * always. */
static int wanted(long index, long percent)
{
    return index * percent / 100 != (index - 1) * percent / 100 || index == 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("HEARTH_RANK");
    long percent = argc > 1 ? atol(argv[1]) : 100, rounds = argc > 2 ? atol(argv[2]) : 1, executed = 0;
    unsigned long got = 1, expected = 1;

    if (percent < 1 || percent > 100 || rounds < 1) {
        fprintf(stderr, "musl-bigtext: the percentage is 1 to 100, the rounds at least 1\n");
        return 2;
    }
    for (long round = 0; round < rounds; round++)
        for (long index = 0; index < PAGES; index++)
            if (wanted(index, percent)) {
                got = ((function *)(bigtext + index * PAGE_BYTES))(got);
                expected = expected * 31 + (unsigned long)index;
                executed++;
            }
    printf("bigtext rank %s: %ld of %d pages executed, result %016lx: %s\n", rank ? rank : "?", executed / rounds,
           PAGES, got, got == expected ? "ok" : "WRONG");
    return got == expected ? 0 : 1;
}
