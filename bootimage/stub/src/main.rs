//! The boot stub: what firmware runs. Four entries (16-bit setup, 32-bit, 64-bit, UEFI) gather the
//! same facts about the machine and hand over to one shim that loads the kernel.
//!
//! Order of work: [`asm/setup16.S`, `asm/head.S`] -> [`linux`] or [`uefi`] -> [`shim`] (memory,
//! page tables, kernel) -> [`jump`] (`asm/jump.S`) -> kernel. Neighbours: the library of this
//! package (pure parts, tested on the host), `hearth_abi::handoff`.
//!
//! Invariant: nothing of the stub stays in use once the kernel runs; whatever stops a boot says so
//! on COM1 and on the screen or UEFI console and halts.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod image;
#[cfg(target_os = "none")]
mod jump;
#[cfg(target_os = "none")]
mod linux;
#[cfg(target_os = "none")]
mod shim;
#[cfg(target_os = "none")]
mod tables;
#[cfg(target_os = "none")]
mod uefi;

/// On a host there is nothing to boot: the binary exists so that the whole workspace compiles.
#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("asm/constants.S"),
    include_str!("asm/setup16.S"),
    include_str!("asm/head.S"),
    include_str!("asm/jump.S"),
    desc_stub_bytes = const DESCRIPTOR + offset::STUB_BYTES,
    desc_early_sum = const DESCRIPTOR + offset::EARLY_SUM,
    desc_workspace = const DESCRIPTOR + offset::WORKSPACE,
    desc_relocations = const DESCRIPTOR + offset::RELOCATIONS,
    desc_relocation_count = const DESCRIPTOR + offset::RELOCATION_COUNT,
    workspace_bytes = const bootstub::descriptor::WORKSPACE_BYTES,
    workspace_table_bytes = const bootstub::descriptor::WORKSPACE_TABLE_BYTES,
    workspace_stack_top = const bootstub::descriptor::WORKSPACE_STACK_TOP,
    zp_tsc = const linux::ZP_TSC,
    zp_entry = const linux::ZP_ENTRY,
    jump_params = const jump::PARAMETERS_AT,
    options(att_syntax)
);

#[cfg(target_os = "none")]
use bootstub::descriptor::{DESCRIPTOR_RVA, offset};
#[cfg(target_os = "none")]
const DESCRIPTOR: usize = DESCRIPTOR_RVA as usize;

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    console::stop(format_args!("error in the boot stub: {info}"))
}
