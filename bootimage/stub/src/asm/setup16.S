/* 16-bit entry of the Linux boot protocol. The host tool puts a jump to setup_start into the
 * setup header at 0x26c.
 *
 * The loaded setup area serves as the zero page: it is cleared below the header, and the E820 map
 * goes to 0x2d0. Everything here is addressed by its offset from the start of the file.
 *
 * Left for the 32-bit entry: zero page in %esi, SETUP_MAGIC in %edi. Of the image descriptor only
 * the early sum is used here.
 */
.section .setup, "ax"
.code16
.set SETUP_START_RVA, 0xcd0
.set STACK_TOP, 0x8ff0          /* inside what the boot protocol grants: 0x8000-0x9000 */
.set ZP_TSC, 0x290
.set ZP_ENTRY, 0x298
.set ZP_E820_COUNT, 0x1e8
.set ZP_E820, 0x2d0
.set E820_MAX, 128
.set SETUP_MAGIC, 0x36314853    /* "SH16" */
.set CODE32_START, 0x214
.set A20_ATTEMPTS, 64

setup_start:
    cli
    cld
    rdtsc
    movw %ds, %cx
    movw %cx, %es
    movw %cx, %ss
    movl $STACK_TOP, %esp
    pushw %cx
    pushw $(setup_local - setup_start + SETUP_START_RVA)
    lretw
setup_local:
    movl %eax, ZP_TSC
    movl %edx, ZP_TSC + 4
    movl $1, ZP_ENTRY

    /* The words of 0xcd0-0x1000 add up to zero: the host tool sets the last one. */
    movw $SETUP_START_RVA, %si
    movw $((0x1000 - SETUP_START_RVA) / 2), %cx
    xorw %dx, %dx
1:  lodsw
    addw %ax, %dx
    loop 1b
    testw %dx, %dx
    movw $(setup_damaged - setup_start + SETUP_START_RVA), %si
    jnz setup_fail

    /* The PE header lies where the zero page has screen_info and others: clear it. */
    xorw %di, %di
    xorl %eax, %eax
    movw $(0x1f0 / 4), %cx
    rep stosl

    /* E820 memory map. */
    xorl %ebx, %ebx
    movw $ZP_E820, %di
1:  movl $0xe820, %eax
    movl $0x534d4150, %edx
    movl $20, %ecx
    int $0x15
    jc 2f
    cmpl $0x534d4150, %eax
    jne 2f
    addw $20, %di
    incb ZP_E820_COUNT
    cmpb $E820_MAX, ZP_E820_COUNT
    jae 2f
    testl %ebx, %ebx
    jnz 1b
2:
    /* A20: ask the BIOS, then port 0x92, then the keyboard controller; test each time. */
    movw $A20_ATTEMPTS, %bp
1:  call a20_test
    jnz 3f
    movw $0x2401, %ax
    int $0x15
    call a20_test
    jnz 3f
    inb $0x92, %al
    orb $2, %al
    andb $0xfe, %al
    outb %al, $0x92
    call a20_test
    jnz 3f
    movb $0xd1, %al
    outb %al, $0x64
    outb %al, $0x80
    movb $0xdf, %al
    outb %al, $0x60
    outb %al, $0x80
    decw %bp
    jnz 1b
    movw $(setup_a20 - setup_start + SETUP_START_RVA), %si
    jmp setup_fail
3:
    cli
    movb $0x80, %al             /* no NMI from here on */
    outb %al, $0x70
    movb $0xff, %al
    outb %al, $0x21
    outb %al, $0xa1

    /* Protected mode with flat segments. */
    xorl %esi, %esi
    movw %ds, %si
    shll $4, %esi
    leal (setup_gdt - setup_start + SETUP_START_RVA)(%esi), %eax
    movl %eax, (setup_gdtr - setup_start + SETUP_START_RVA + 2)
    lgdtl (setup_gdtr - setup_start + SETUP_START_RVA)
    leal (setup_pm - setup_start + SETUP_START_RVA)(%esi), %eax
    pushl $0x10
    pushl %eax
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    lretl

/* Zero flag clear when A20 is on. Clobbers %ax, %fs, %gs. */
a20_test:
    xorw %ax, %ax
    movw %ax, %fs
    decw %ax
    movw %ax, %gs
    movl %fs:0x200, %eax
    pushl %eax
    incl %eax
    movl %eax, %fs:0x200
    outb %al, $0x80
    cmpl %gs:0x210, %eax
    popl %fs:0x200
    ret

/* Prints the text at %ds:%si by BIOS, then on COM1 (they may be one line), and stops. */
setup_fail:
    movw %si, %bp
1:  lodsb
    movb $0x0e, %ah
    movw $7, %bx
    pushw %bp
    int $0x10
    popw %bp
    testb %al, %al
    jnz 1b
    movw %bp, %si
    movw $0x3f8, %dx
2:  lodsb
    outb %al, %dx
    testb %al, %al
    jnz 2b
3:  cli
    hlt
    jmp 3b

.code32
setup_pm:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    movl %eax, %ss
    leal STACK_TOP(%esi), %esp
    movl CODE32_START(%esi), %eax
    /* Is what should be the stub the stub? The file may have been cut off anywhere. */
    leal -0x1000(%eax), %ebp
    call early_sum_setup
    jne 3f
    movl $SETUP_MAGIC, %edi
    xorl %ebx, %ebx
    xorl %ebp, %ebp
    jmp *%eax
3:  leal (setup_image - setup_start + SETUP_START_RVA)(%esi), %esi
    movl $0xb8000, %edi
1:  lodsb
    testb %al, %al
    jz 2f
    movb $0x4f, %ah
    cmpb $0x20, %al
    jb 4f
    stosw
4:  movw $0x3f8, %dx
    outb %al, %dx
    movw $0x3fd, %dx
    movl $100000, %ecx
5:  inb %dx, %al
    testb $0x20, %al
    loopz 5b
    jmp 1b
2:  cli
    hlt
    jmp 2b

/* Zero flag set when the stub in memory at %ebp (RVA 0) is whole. Keeps %eax, %esi, %ebp. */
early_sum_setup:
    pushl %eax
    pushl %esi
    movl DESC_STUB_BYTES(%ebp), %ecx
    subl $0x1200, %ecx
    cmpl $0x100000, %ecx
    ja 1f
    shrl $2, %ecx
    jz 1f
    leal 0x1200(%ebp), %esi
    xorl %edx, %edx
2:  lodsl
    roll $1, %edx
    addl %eax, %edx
    loop 2b
    cmpl DESC_EARLY_SUM(%ebp), %edx
    jmp 3f
1:  orl $1, %ecx
3:  popl %esi
    popl %eax
    ret

    .p2align 3
setup_gdt:
    .quad 0
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
setup_gdtr:
    .word 31
    .long 0
setup_damaged: .asciz "\r\nHearth: the boot image is damaged (setup code); stopped\r\n"
setup_image: .asciz "\r\nHearth: the boot image is damaged or cut off; load it again; stopped\r\n"
setup_a20: .asciz "Hearth: address line A20 stays off; stopped\r\n"
