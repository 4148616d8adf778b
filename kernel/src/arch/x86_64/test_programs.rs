//! Programs of a few instructions for the kernel's own tests of ring 3.
//!
//! Each is a naked function that refers to nothing but its registers and the addresses given here;
//! a test copies its machine code to a page of ring 3. Neighbours: `ktest::sandbox` maps the pages
//! at [`CODE`] and [`DATA`].
//!
//! Invariant: none of this code is ever run in ring 0.

use core::arch::naked_asm;

use hearth_abi::peer::ENTRY_BYTES;
use hearth_abi::sysno;

/// Where the code goes in ring 3.
pub const CODE: u64 = 0x40_0000;
/// A page of ring 3 to read and write.
pub const DATA: u64 = 0x50_0000;
/// Where the data of a whole program lies, which tests of `process` wrap into an ELF file.
pub const PROGRAM_DATA: u64 = CODE + 4096;
/// Pages of zeros behind its page of data.
pub const PROGRAM_BSS_PAGES: u64 = 64;
/// What its data begins with.
pub const PROGRAM_TEXT: &[u8] = b"hello from ring 3\n";
/// Pages of data that [`touch_data`] reads.
pub const TOUCHED_PAGES: u64 = 128;
/// Where [`fill_memory`] maps.
pub const FILLED: u64 = 0x1000_0000;
const MAP_FIXED_PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x4032;
/// Flags of clone for a thread that shares everything, as Go gives them.
const CLONE_OF_GO: u64 = 0x5_0f00;
/// Calls in the table of [`call_table`].
pub const TABLE_CALLS: u64 = 256;
/// Words of one call in that table: number and six arguments.
pub const TABLE_WORDS: usize = 7;
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
    /// Returns to its own next instructions with IRETQ, as ring 3 may, and exits with 42.
    return_by_iretq,
    "mov r8, rsp", "mov rax, ss", "push rax", "push r8", "pushfq", "mov rax, cs", "push rax",
    "lea rax, [rip + 2f]", "push rax", "iretq",
    "2: mov edi, 42", "mov eax, 231", "syscall", "ud2"
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
    /// Divides by zero, then executes UD2, INT3, HLT, and a jump to an address that is not
    /// canonical.
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

program! {
    /// Enters the kernel by SYSENTER.
    sysenter,
    "sysenter", "2: jmp 2b"
}

program! {
    /// Calls with the selectors of DS, ES, FS and GS in rbx, rdx, rsi and rdi, then loads that of
    /// its data segment into all four, reads through FS, and calls with them again.
    use_selectors,
    "2: mov ebx, ds", "mov edx, es", "mov esi, fs", "mov edi, gs", "syscall",
    "mov ecx, {user_data}", "mov ds, ecx", "mov es, ecx", "mov fs, ecx", "mov gs, ecx",
    "mov r14, fs:[{data}]",
    "jmp 2b",
    user_data = const super::gdt::USER_DATA, data = const DATA
}

program! {
    /// Writes its text to descriptor 1; exits with the sum of one byte in each page of bss plus 7.
    write_and_sum,
    "mov eax, 1", "mov edi, 1", "mov esi, {data}", "mov edx, {length}", "syscall",
    "xor edi, edi", "mov esi, {bss}", "mov ecx, {pages}",
    "2: movzx eax, byte ptr [rsi]", "add edi, eax", "add esi, 4096", "dec ecx", "jnz 2b",
    "add edi, 7", "mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA, length = const PROGRAM_TEXT.len(),
    bss = const PROGRAM_DATA + 4096, pages = const PROGRAM_BSS_PAGES
}

program! {
    /// Exits with 1 when a byte of bss is not zero; else fills all of it and exits with 0.
    scan_and_fill,
    "mov edi, {bss}", "mov ecx, {words}", "xor eax, eax", "repe scasq", "jne 3f",
    "mov edi, {bss}", "mov ecx, {words}", "mov rax, -1", "rep stosq",
    "xor edi, edi", "jmp 4f",
    "3: mov edi, 1",
    "4: mov eax, 60", "syscall", "ud2",
    bss = const PROGRAM_DATA + 4096, words = const PROGRAM_BSS_PAGES * 512
}

program! {
    /// Reads up to 100 bytes from descriptor 0, writes them to 2, makes a call nobody has, and
    /// exits with the error of that.
    echo,
    "xor eax, eax", "xor edi, edi", "mov esi, {bss}", "mov edx, 100", "syscall",
    "mov edx, eax", "mov eax, 1", "mov edi, 2", "syscall",
    "mov eax, 9999", "syscall",
    "mov edi, eax", "neg edi", "mov eax, 231", "syscall", "ud2",
    bss = const PROGRAM_DATA + 4096
}

program! {
    /// Makes the [`TABLE_CALLS`] calls that its data lists, one after another, and exits with 0.
    call_table,
    "mov ebx, {table}", "mov ebp, {calls}",
    "2: mov rax, [rbx]", "mov rdi, [rbx + 8]", "mov rsi, [rbx + 16]", "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]", "mov r8, [rbx + 40]", "mov r9, [rbx + 48]", "syscall",
    "add rbx, 56", "dec ebp", "jnz 2b",
    "xor edi, edi", "mov eax, 231", "syscall", "ud2",
    table = const PROGRAM_DATA, calls = const TABLE_CALLS
}

program! {
    /// The same, and has each call's number overwritten with what it gave; before it exits it
    /// writes the table to standard error.
    call_table_told,
    "mov ebx, {table}", "mov ebp, {calls}",
    "2: mov rax, [rbx]", "mov rdi, [rbx + 8]", "mov rsi, [rbx + 16]", "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]", "mov r8, [rbx + 40]", "mov r9, [rbx + 48]", "syscall",
    "mov [rbx], rax", "add rbx, 56", "dec ebp", "jnz 2b",
    "mov ebp, {calls} * 56", "mov ebx, {table}",
    "3: mov eax, 1", "mov edi, 2", "mov rsi, rbx", "mov edx, ebp", "syscall",
    "test rax, rax", "jle 4f", "add rbx, rax", "sub ebp, eax", "jnz 3b",
    "4: xor edi, edi", "mov eax, 231", "syscall", "ud2",
    table = const PROGRAM_DATA, calls = const TABLE_CALLS
}

program! {
    /// Makes the same calls by four threads, each a quarter of them; each then ends by itself.
    call_table_by_threads,
    "mov r13d, 3",
    "2: mov eax, {clone}", "mov edi, {flags}", "mov rsi, rsp", "xor edx, edx", "xor r10d, r10d",
    "xor r8d, r8d", "syscall", "test eax, eax", "jz 3f", "dec r13d", "jnz 2b",
    "3: imul ebx, r13d, {part} * 56", "add ebx, {table}", "mov ebp, {part}",
    "4: mov rax, [rbx]", "mov rdi, [rbx + 8]", "mov rsi, [rbx + 16]", "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]", "mov r8, [rbx + 40]", "mov r9, [rbx + 48]", "syscall",
    "add rbx, 56", "dec ebp", "jnz 4b",
    "xor edi, edi", "mov eax, {exit}", "syscall", "ud2",
    table = const PROGRAM_DATA, part = const TABLE_CALLS / 4, clone = const sysno::CLONE,
    flags = const CLONE_OF_GO, exit = const sysno::EXIT
}

program! {
    /// Asks how the rank is reached that its data begins with, again and again while that is not
    /// known; writes what it gets to where its data says next, and that to standard output. Exits
    /// with the error's number, or 0.
    ask_peer,
    "mov ebx, {data}",
    "2: mov eax, {hearth_peer}", "mov rdi, [rbx]", "mov rsi, [rbx + 8]", "syscall",
    "cmp rax, -11", "je 2b",
    "mov ebp, eax", "neg ebp", "jnz 3f",
    "mov eax, 1", "mov edi, 1", "mov rsi, [rbx + 8]", "mov edx, {entry}", "syscall",
    "3: mov edi, ebp", "mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA, hearth_peer = const sysno::HEARTH_PEER, entry = const ENTRY_BYTES
}

program! {
    /// Makes the calls that its data lists until one of number -1, and compares what each answers
    /// with what the list says. Exits with the place in the list of the first that differs, counted
    /// from 1, or with 0.
    check_calls,
    "mov ebx, {table}", "xor ebp, ebp",
    "2: mov rax, [rbx]", "cmp rax, -1", "je 3f", "inc ebp",
    "mov rdi, [rbx + 8]", "mov rsi, [rbx + 16]", "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]", "mov r8, [rbx + 40]", "mov r9, [rbx + 48]", "syscall",
    "cmp rax, [rbx + 56]", "jne 4f", "add rbx, 64", "jmp 2b",
    "3: xor ebp, ebp",
    "4: mov edi, ebp", "mov eax, 231", "syscall", "ud2",
    table = const PROGRAM_DATA
}

program! {
    /// Opens the path in its data, maps as many bytes of it as the data begins with, and adds up
    /// one byte of each of as many pages as the data says next. Exits with the sum.
    sum_mapped,
    "mov eax, {open}", "mov edi, {data} + 16", "xor esi, esi", "syscall",
    "mov r8, rax", "mov eax, {mmap}", "xor edi, edi", "mov rsi, [{data}]", "mov edx, 1",
    "mov r10d, 1", "xor r9d, r9d", "syscall",
    "mov rsi, rax", "mov rcx, [{data} + 8]", "xor edi, edi",
    "2: movzx eax, byte ptr [rsi]", "add edi, eax", "add rsi, 4096", "dec rcx", "jnz 2b",
    "and edi, 127", "mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA, open = const hearth_abi::sysno::OPEN,
    mmap = const hearth_abi::sysno::MMAP
}

program! {
    /// Adds up one byte of each of its [`TOUCHED_PAGES`] pages of data in order; exits with the
    /// sum.
    touch_data,
    "xor edi, edi", "mov esi, {data}", "mov ecx, {pages}",
    "2: movzx eax, byte ptr [rsi]", "add edi, eax", "add esi, 4096", "dec ecx", "jnz 2b",
    "and edi, 127", "mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA, pages = const TOUCHED_PAGES
}

program! {
    /// Exits with the first byte of its data, after adding one to it in memory.
    count_up,
    "mov esi, {data}", "movzx edi, byte ptr [rsi]", "inc byte ptr [rsi]",
    "mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA
}

program! {
    /// Maps as many bytes as its data begins with, at [`FILLED`]; exits with 1 when a byte of them
    /// is not zero, after writing to every page with 0.
    fill_memory,
    "mov ebx, {data}", "mov eax, {mmap}", "mov edi, {filled}", "mov rsi, [rbx]",
    "mov edx, 3", "mov r10d, {flags}", "mov r8, -1", "xor r9d, r9d", "syscall",
    "mov edi, {filled}", "mov rbp, [rbx]", "shr rbp, 12",
    "2: mov r12, rdi", "mov ecx, 512", "xor eax, eax", "repe scasq", "jne 3f",
    "mov qword ptr [r12], -1", "dec rbp", "jnz 2b",
    "xor edi, edi", "jmp 4f",
    "3: mov edi, 1",
    "4: mov eax, 231", "syscall", "ud2",
    data = const PROGRAM_DATA, mmap = const hearth_abi::sysno::MMAP, filled = const FILLED,
    flags = const MAP_FIXED_PRIVATE_ANONYMOUS_NORESERVE
}

program! {
    /// Makes its page of code writable and so takes the next instruction from under its own feet.
    spoil_text,
    "mov eax, {mprotect}", "mov edi, {text}", "mov esi, 4096", "mov edx, 3", "syscall", "ud2",
    mprotect = const hearth_abi::sysno::MPROTECT, text = const PROGRAM_DATA - 4096
}
