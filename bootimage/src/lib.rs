//! Joins kernel and boot stub into one file, `hearth.efi`, that QEMU `-kernel`, iPXE, GRUB, kexec
//! and UEFI firmware all load: a Linux bzImage and a PE32+ program at once.
//!
//! [`build`] makes an image, [`inspect`] reads one. The file offset of every byte is also its
//! address relative to the image's base (RVA), so both kinds of loader place it alike:
//!
//! | offset | what |
//! |---|---|
//! | 0 | MZ and PE32+ headers ([`pe_header`]), Linux setup header at 0x1f1 ([`setup_header`]) |
//! | 0xcd0 | 16-bit setup code, version text, sum |
//! | 0x1000 | stub: 32-bit entry, image descriptor, 64-bit entry, code, data |
//! | then | stub relocations, default command line, kernel (flat, relocated to its address, deflated) |
//! | end | working memory, not in the file |
//!
//! Neighbours: the `bootstub` library (descriptor, shared limits), `cargo xtask build` (caller).
//!
//! Invariant: no input, however hostile, makes this crate panic; what it cannot place it refuses.
#![forbid(unsafe_code)]

pub mod elf_image;
pub mod inspect;
pub mod kernel_image;
pub mod layout;
pub mod pe_header;
pub mod setup_header;
pub mod stub_image;

pub use inspect::{ImageInfo, InspectError, inspect};
pub use layout::{Error, Options, build};
