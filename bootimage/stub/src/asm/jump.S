/* Last step: from whatever page tables the stub runs on to the kernel's, then into the kernel.
 *
 * jump_code is copied to the start of a page below 4 GiB that the new tables map twice, at its
 * physical address and high; the parameters lie in the same page at JUMP_PARAMS (jump.rs).
 * It always leaves long mode on the way, because that is the only way to leave 5-level paging
 * and so is tried at every boot.
 */
.section .text.jump, "ax"
.code64
/* (page: %rdi, CR3 to go there with: %rsi) */
.globl jump_to_page
jump_to_page:
    cli
    movb $0xff, %al
    outb %al, $0x21
    outb %al, $0xa1
    movl $0xc0000080, %ecx      /* EFER: NXE before tables that use it */
    rdmsr
    orl $0x900, %eax
    wrmsr
    movq %cr4, %rax
    andl $~0x00820080, %eax     /* CET, PCID, global pages: each would fault or linger below */
    movq %rax, %cr4
    movq %rsi, %cr3
    jmp *%rdi

.globl jump_code
jump_code:
    movl %edi, %ebx
    lgdt JUMP_GDTR_LOW(%rbx)
    movq JUMP_STACK(%rbx), %rsp
    leaq jump_code32 - jump_code(%rbx), %rax
    pushq $0x18
    pushq %rax
    lretq
.code32
jump_code32:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $0x00000011, %eax      /* paging off */
    movl %eax, %cr0
    movl $0x20, %eax            /* PAE only: no LA57, no PCID, no SSE */
    movl %eax, %cr4
    movl JUMP_CR3(%ebx), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    movl $0x900, %eax
    xorl %edx, %edx
    wrmsr
    movl $0x80010033, %eax      /* PG, WP, NE, ET, MP, PE */
    movl %eax, %cr0
    ljmpl *JUMP_FAR(%ebx)
.code64
jump_code64:
    movq JUMP_HIGH(%rbx), %rbx
    leaq jump_code_high - jump_code(%rbx), %rax
    jmp *%rax
jump_code_high:
    lgdt JUMP_GDTR_HIGH(%rbx)
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    /* The lower half goes: from here on a null pointer faults. */
    movq JUMP_PML4(%rbx), %rdi
    movl $256, %ecx
    rep stosq
    movq %cr3, %rax
    movq %rax, %cr3
    movq JUMP_STACK(%rbx), %rsp
    movq JUMP_BOOT_INFO(%rbx), %rdi
    movq JUMP_ENTRY(%rbx), %rax
    xorl %ebx, %ebx
    xorl %ecx, %ecx
    xorl %edx, %edx
    xorl %esi, %esi
    xorl %ebp, %ebp
    pushq %rbp
    jmp *%rax
.globl jump_code_end
jump_code_end:
