//! The Linux setup header at 0x1f1 of the image.
//!
//! Source: Documentation/arch/x86/boot.rst of Linux, protocol 2.15.

use bootstub::descriptor::{HEAD_RVA, SETUP_RVA, VERSION_TEXT_RVA, WORKSPACE_BYTES};
use hearth_abi::handoff::COMMAND_LINE_MAX;

/// End of the header; the jump in it leads here.
pub const HEADER_END: usize = 0x26c;
/// Preferred and default load address of the protected-mode part.
pub const LOAD_ADDRESS: u32 = 0x10_0000;

const SECTOR_BYTES: u32 = 512;
const LOADED_HIGH: u8 = 1;
/// 64-bit entry, loadable above 4 GiB, entered with 5-level paging or not.
const XLOADFLAGS: u16 = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6;
const KERNEL_ALIGNMENT_LOG2: u8 = 12;

/// Writes the setup header of an image of `image_bytes` bytes (a whole number of pages) into its
/// first page.
pub fn write(page: &mut [u8; HEAD_RVA as usize], image_bytes: u32) {
    let protected_bytes = image_bytes - HEAD_RVA;
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[(HEAD_RVA / SECTOR_BYTES - 1) as u8]);
    put(0x1f4, &protected_bytes.div_ceil(16).to_le_bytes());
    put(0x1fa, &0xffff_u16.to_le_bytes());
    put(0x1fe, &0xaa55_u16.to_le_bytes());
    put(0x200, &[0xeb, (HEADER_END - 0x202) as u8]);
    put(0x202, b"HdrS");
    put(0x206, &0x020f_u16.to_le_bytes());
    put(0x20c, &0x1000_u16.to_le_bytes());
    put(0x20e, &((VERSION_TEXT_RVA - 0x200) as u16).to_le_bytes());
    put(0x211, &[LOADED_HIGH]);
    put(0x212, &0x8000_u16.to_le_bytes());
    put(0x214, &LOAD_ADDRESS.to_le_bytes());
    put(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    put(0x230, &(1_u32 << KERNEL_ALIGNMENT_LOG2).to_le_bytes());
    put(0x234, &[1, KERNEL_ALIGNMENT_LOG2]);
    put(0x236, &XLOADFLAGS.to_le_bytes());
    put(0x238, &((COMMAND_LINE_MAX - 1) as u32).to_le_bytes());
    put(0x258, &u64::from(LOAD_ADDRESS).to_le_bytes());
    // What the stub uses from its load address on, the working memory behind the file included.
    put(0x260, &(protected_bytes + WORKSPACE_BYTES).to_le_bytes());
    // The header's own jump reaches only 127 bytes; here is the rest of the way.
    let from = HEADER_END as u32 + 3;
    put(HEADER_END, &[0xe9]);
    put(HEADER_END + 1, &((SETUP_RVA - from) as u16).to_le_bytes());
}
