/* For chain_kernel.rs: leaves 64-bit mode and enters an image as GRUB (32-bit) or kexec (64-bit, with
 * 4-level or 5-level paging) would. Copied to CHAIN_PAGE, where it is mapped at its own address.
 *
 * In: %rbx = CHAIN_PAGE, parameters at CHAIN_PAGE + 0x800:
 * 0: GDT limit and base (10 bytes), 16: CR3 to enter with, 24: CR4, 32: entry, 40: zero page,
 * 48: 0 = 32-bit, 1 = 64-bit, 56: far pointer to chain_code64, 64: GDT.
 */
.section .text.chain, "ax"
.code64
.globl chain_code
chain_code:
    lgdt 0x800(%rbx)
    leaq 0x800(%rbx), %rsp
    leaq chain_code32 - chain_code(%rbx), %rax
    pushq $0x18
    pushq %rax
    lretq
.code32
chain_code32:
    movl $0x10, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $0x11, %eax
    movl %eax, %cr0
    movl 0x818(%ebx), %eax
    movl %eax, %cr4
    cmpl $0, 0x830(%ebx)
    je 1f
    movl 0x810(%ebx), %eax
    movl %eax, %cr3
    movl $0x80000011, %eax
    movl %eax, %cr0
    ljmpl *0x838(%ebx)
1:  movl $0xc0000080, %ecx
    xorl %eax, %eax
    xorl %edx, %edx
    wrmsr
    movl 0x828(%ebx), %esi
    movl 0x820(%ebx), %eax
    xorl %ebx, %ebx
    xorl %edi, %edi
    xorl %ebp, %ebp
    jmp *%eax
.code64
.globl chain_code64
chain_code64:
    movq 0x828(%rbx), %rsi
    movq 0x820(%rbx), %rax
    jmp *%rax
.globl chain_end
chain_end:
