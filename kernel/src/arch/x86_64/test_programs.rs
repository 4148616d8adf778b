//! Programs of a few instructions for the kernel's own tests of ring 3.
//!
//! Each is a naked function that refers to nothing but its registers and the addresses given here;
//! a test copies its machine code to a page of ring 3. Neighbours: `ktest::sandbox` maps the pages
//! at [`CODE`] and [`DATA`].
//!
//! Invariant: none of this code is ever run in ring 0.

use core::arch::naked_asm;

/// Where the code goes in ring 3.
pub const CODE: u64 = 0x40_0000;
/// A page of ring 3 to read and write.
pub const DATA: u64 = 0x50_0000;
/// Bytes of machine code given out: more than any program here has.
const CODE_BYTES: usize = 512;

/// A program as a function that gives its machine code.
macro_rules! program {
    ($(#[$text:meta])* $name:ident, $($code:tt)*) => {
        $(#[$text])*
        pub fn $name() -> &'static [u8] {
            #[unsafe(naked)]
            unsafe extern "C" fn code() {
                naked_asm!($($code)*)
            }
            machine_code(code)
        }
    };
}

fn machine_code(function: unsafe extern "C" fn()) -> &'static [u8] {
    // SAFETY: the kernel's code is mapped for reading and does not change; what lies behind a
    // function is more code, and these are not within `CODE_BYTES` of its end (a fault would say
    // so).
    unsafe { core::slice::from_raw_parts(function as *const () as *const u8, CODE_BYTES) }
}

program! {
    /// Counts in rbx for ever.
    spin,
    "2: inc rbx", "jmp 2b"
}

program! {
    /// Calls once and again, for ever, changing nothing.
    call_twice,
    "2: syscall", "jmp 2b"
}

program! {
    /// Calls, then reads from the address in r15 into r14, then calls again.
    call_and_read,
    "syscall", "mov r14, [r15]", "syscall", "2: jmp 2b"
}

program! {
    /// Divides by zero, then executes UD2, INT3, HLT, and a jump to an address that is not canonical.
    misbehave,
    "xor ecx, ecx",
    "div rcx",
    "ud2",
    "int3",
    "hlt",
    "int 0x80",
    "in al, dx",
    "mov rax, cr3",
    "mov rax, 0x8000000000000000",
    "jmp rax"
}

program! {
    /// Sets all flags it may (direction, alignment check, carry and the like), calls, then faults.
    set_flags,
    "pushfq",
    "or qword ptr [rsp], 0x240cd5",
    "popfq",
    "syscall",
    "ud2"
}

program! {
    /// Reads from the address in r15.
    read_r15,
    "mov r14, [r15]", "2: jmp 2b"
}

program! {
    /// Jumps to the address in r15.
    jump_r15,
    "jmp r15"
}

program! {
    /// Stores to the address in r15.
    write_r15,
    "mov [r15], r14", "2: jmp 2b"
}

program! {
    /// Tells where the interrupt table is.
    store_table,
    "sidt [rsp - 16]", "2: jmp 2b"
}

program! {
    /// Loads patterns into xmm0, xmm15, the x87 stack and (by r13) ymm1; calls, reads an unmapped
    /// page, computes until interrupted; then stores what is left to the data page and calls.
    use_fpu,
    "movq xmm0, r12",
    "movq xmm15, r14",
    "fld1",
    "fldpi",
    "test r13, r13",
    "jz 2f",
    "vpbroadcastq ymm1, xmm0",
    "2:",
    "syscall",
    "mov rbp, [r15]",
    "mov rbx, 20000000",
    "3: dec rbx",
    "jnz 3b",
    "mov rdi, {data}",
    "movq [rdi], xmm0",
    "movq [rdi + 8], xmm15",
    "fstp qword ptr [rdi + 16]",
    "fstp qword ptr [rdi + 24]",
    "test r13, r13",
    "jz 4f",
    "vmovdqu [rdi + 32], ymm1",
    "4:",
    "syscall",
    "5: jmp 5b",
    data = const DATA
}

program! {
    /// Sends itself an NMI (registers at r15, command in r13 and r14) and calls at once, in a loop.
    send_nmi_and_call,
    "2: mov [r15 + 0x310], r13d",
    "mov [r15 + 0x300], r14d",
    "syscall",
    "mov [r15 + 0x310], r13d",
    "mov [r15 + 0x300], r14d",
    "inc rbx",
    "jmp 2b"
}

program! {
    /// Reads the words that FS and GS point to.
    read_bases,
    "mov rbx, fs:[0]", "mov rdx, gs:[8]", "syscall", "2: jmp 2b"
}
