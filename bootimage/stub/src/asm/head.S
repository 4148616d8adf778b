/* Start of the protected-mode part: 32-bit entry, image descriptor, 64-bit entry.
 *
 * Everything is position-independent. %ebp/%rbp = address of RVA 0, %esi/%rsi = zero page.
 * Working memory lies behind the image, see descriptor.rs.
 */
.section .head, "ax"
.code32
.globl stub_head
stub_head:
    cli
    cld
    jmp start32

    .org 0x40
.globl image_descriptor
image_descriptor:
    .skip 0x1c0

    .org 0x200
.code64
start64:
    cli
    cld
    rdtsc
    movl %eax, ZP_TSC(%rsi)
    movl %edx, ZP_TSC + 4(%rsi)
    movl $3, ZP_ENTRY(%rsi)
    leaq stub_head - 0x1000(%rip), %rbp
    leaq ZP_SCRATCH_STACK(%rsi), %rsp

/* Long mode with the low 4 GiB or the loader's own mapping; a few words of stack in the zero page. */
start64_common:
    call verify_and_relocate
    je 3f
    leaq text_damaged(%rip), %rsi
    jmp fail64
3:
    /* Is there memory behind the image? */
    movl DESC_WORKSPACE(%rbp), %edi
    addq %rbp, %rdi
    leaq WORKSPACE_BYTES - 8(%rdi), %rax
    movabsq $0x5aa55aa5f00ff00f, %rbx
    movq %rbx, (%rax)
    notq %rbx                   /* from 32-bit code the tables at its start are in use */
    movq %rbx, WORKSPACE_TABLE_BYTES(%rdi)
    cmpq %rbx, WORKSPACE_TABLE_BYTES(%rdi)
    jne 4f
    notq %rbx
    cmpq %rbx, (%rax)
    je 5f
4:  leaq text_memory(%rip), %rsi
    jmp fail64
5:
    leaq WORKSPACE_STACK_TOP(%rdi), %rsp
    movq %rdi, %rdx
    movq %rbp, %rdi
    xorl %ebp, %ebp
    pushq %rbp
    jmp start_linux             /* (image base, zero page, workspace) */

/* UEFI: image handle in %rcx, system table in %rdx, interrupts on, firmware's stack and tables. */
.globl pe_entry
pe_entry:
    cld
    movq %rcx, %rsi
    movq %rdx, %rdi
    rdtsc
    shlq $32, %rdx
    orq %rax, %rdx
    movq %rdx, %r12
    leaq stub_head - 0x1000(%rip), %rbp
    andq $-16, %rsp
    pushq $0                    /* as after a call */
    call verify_and_relocate
    jne 1f
    movq %rdi, %rdx
    movq %rbp, %rdi
    movq %r12, %rcx
    xorl %ebp, %ebp
    jmp start_uefi              /* (image base, image handle, system table, time stamp) */
1:  leaq text_damaged(%rip), %r12
    movq %rdi, %r13
    subq $40, %rsp              /* 32 bytes for the callee, 8 for a character and its end */
2:  movzbl (%r12), %eax
    incq %r12
    testl %eax, %eax
    jz 3f
    movl %eax, 32(%rsp)
    movq 64(%r13), %rcx         /* ConOut */
    testq %rcx, %rcx
    jz 3f
    leaq 32(%rsp), %rdx
    call *8(%rcx)               /* OutputString */
    jmp 2b
3:  leaq text_damaged(%rip), %rsi
    xorl %edi, %edi
    jmp fail64_at

/* Sums the stub in memory at %rbp (RVA 0), so that a file cut off there is noticed before more of
 * it runs, and if it is whole moves its addresses. Zero flag: whole. Clobbers %rax-%rdx.
 */
verify_and_relocate:
    movl DESC_STUB_BYTES(%rbp), %ecx
    subl $0x1200, %ecx
    cmpl $0x100000, %ecx
    ja 5f
    shrl $2, %ecx
    jz 5f
    leaq 0x1200(%rbp), %rbx
    xorl %edx, %edx
1:  roll $1, %edx
    addl (%rbx), %edx
    addq $4, %rbx
    decl %ecx
    jnz 1b
    cmpl DESC_EARLY_SUM(%rbp), %edx
    jne 4f
    movl DESC_RELOCATIONS(%rbp), %ebx
    movl DESC_RELOCATION_COUNT(%rbp), %ecx
    addq %rbp, %rbx
    cmpl $0x400, %ecx           /* the descriptor is not part of the sum */
    ja 5f
2:  subl $1, %ecx
    jb 3f
    movl (%rbx), %eax
    addq $4, %rbx
    cmpl DESC_STUB_BYTES(%rbp), %eax
    ja 5f
    addq %rbp, (%rbp,%rax)
    jmp 2b
3:  cmpl %ecx, %ecx
4:  ret
5:  orl $1, %ecx
    ret

/* Prints the text at %rsi on COM1 and VGA (at %rdi, 0: none) and stops. */
fail64:
    movl $0xb8000, %edi
fail64_at:
1:  lodsb
    testb %al, %al
    jz 4f
    testl %edi, %edi
    jz 2f
    movb $0x4f, %ah
    cmpb $0x20, %al
    jb 2f
    stosw
2:  movw $0x3f8, %dx
    outb %al, %dx
    movw $0x3fd, %dx
    movl $100000, %ecx
3:  inb %dx, %al
    testb $0x20, %al
    loopz 3b
    jmp 1b
4:  cli
    hlt
    jmp 4b

.code32
start32:
    cmpl $SETUP_MAGIC, %edi
    je 1f
    rdtsc
    movl %eax, ZP_TSC(%esi)
    movl %edx, ZP_TSC + 4(%esi)
    movl $2, ZP_ENTRY(%esi)
1:  leal ZP_SCRATCH_STACK(%esi), %esp
    call 2f
2:  popl %ebp
    subl $(2b - stub_head + 0x1000), %ebp

    /* Long mode and NX, or nothing. */
    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb 3f
    movl $0x80000001, %eax
    cpuid
    andl $0x20100000, %edx
    cmpl $0x20100000, %edx
    je 4f
3:  leal (text_cpu - stub_head + 0x1000)(%ebp), %esi
    jmp fail32
4:
    /* Identity map of the low 4 GiB in 2 MiB pages at the start of the working memory. If there
     * is no memory, paging would fail: look first. */
    movl DESC_WORKSPACE(%ebp), %edi
    addl %ebp, %edi
    movl $0x5aa5f00f, %eax
    movl %eax, WORKSPACE_BYTES - 4(%edi)
    notl %eax
    movl %eax, (%edi)
    cmpl %eax, (%edi)
    jne 5f
    notl %eax
    cmpl %eax, WORKSPACE_BYTES - 4(%edi)
    je 6f
5:  leal (text_memory - stub_head + 0x1000)(%ebp), %esi
    jmp fail32
6:
    movl %edi, %ebx
    xorl %eax, %eax
    movl $(0x2000 / 4), %ecx
    rep stosl                   /* PML4 and PDPT; %edi is now the first page directory */
    leal 0x1003(%ebx), %eax
    movl %eax, (%ebx)
    leal 0x2003(%ebx), %eax
    xorl %ecx, %ecx
7:  movl %eax, 0x1000(%ebx,%ecx,8)
    addl $0x1000, %eax
    incl %ecx
    cmpl $4, %ecx
    jne 7b
    movl $0x83, %eax
    movl $2048, %ecx
8:  movl %eax, (%edi)
    movl $0, 4(%edi)
    addl $0x200000, %eax
    addl $8, %edi
    loop 8b

    movl %cr4, %eax
    orl $0x20, %eax             /* PAE */
    movl %eax, %cr4
    movl %ebx, %cr3
    movl $0xc0000080, %ecx      /* EFER: LME, NXE */
    rdmsr
    orl $0x900, %eax
    wrmsr
    /* The GDT's address goes through the scratch stack: the image stays as it was summed. */
    leal (head_gdt - stub_head + 0x1000)(%ebp), %eax
    subl $8, %esp
    movw $31, 2(%esp)
    movl %eax, 4(%esp)
    lgdt 2(%esp)
    movl %cr0, %eax
    orl $0x80000001, %eax
    movl %eax, %cr0
    leal (start64_from32 - stub_head + 0x1000)(%ebp), %eax
    pushl $0x10
    pushl %eax
    lretl

fail32:
    movl $0xb8000, %edi
1:  lodsb
    testb %al, %al
    jz 4f
    movb $0x4f, %ah
    cmpb $0x20, %al
    jb 2f
    stosw
2:  movw $0x3f8, %dx
    outb %al, %dx
    movw $0x3fd, %dx
    movl $100000, %ecx
3:  inb %dx, %al
    testb $0x20, %al
    loopz 3b
    jmp 1b
4:  cli
    hlt
    jmp 4b

.code64
start64_from32:
    movl $0x18, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    movl %ebp, %ebp
    movl %esi, %esi
    movl %esp, %esp
    jmp start64_common

    .p2align 3
head_gdt:
    .quad 0
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
text_damaged: .asciz "Hearth: the boot image is damaged or cut off; load it again; stopped\r\n"
text_memory: .asciz "Hearth: too little memory for the boot image; give the machine more; stopped\r\n"
text_cpu: .asciz "Hearth: this processor has no 64-bit mode with no-execute pages; stopped\r\n"
