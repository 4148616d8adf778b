//! What the boot stub told the kernel, copied out of the stub's memory.
//!
//! Neighbours: [`hearth_abi::handoff`] defines the block, [`kernel_core::cmdline`] the options;
//! `console`, `net` and `agent` read them from [`facts`].
//!
//! Invariant: after [`init`] nothing points into the stub's memory any more.

use alloc::string::String;
use bootloader_api::BootInfo;
use hearth_abi::handoff::{COMMAND_LINE_MAX, Framebuffer, Handoff};
use kernel_core::cmdline::CommandLine;
use spin::Once;

/// How this kernel was booted.
pub struct BootFacts {
    /// The kernel command line as given.
    pub command_line: &'static str,
    /// Its options.
    pub options: CommandLine,
    /// Time-stamp counter at the stub's first instruction; `time::at_tsc` makes it time zero.
    pub entry_tsc: u64,
    /// Time-stamp counter at the kernel's first instruction.
    pub kernel_entry_tsc: u64,
    /// Entry path of the image as a number, see `hearth_abi::handoff::Entry`.
    pub entry: u32,
    /// Size of the boot image in bytes.
    pub image_bytes: u32,
    /// Version of the image, zero-padded text.
    pub version: [u8; 16],
    /// Build id of the kernel ELF.
    pub build_id: [u8; 20],
    /// Physical address of the ACPI root pointer.
    pub rsdp: Option<u64>,
    /// The screen that firmware has left.
    pub framebuffer: Option<Framebuffer>,
}

/// The block, copied before there is a heap.
struct Copied {
    kernel_entry_tsc: u64,
    handoff: Handoff<'static>,
    rsdp: Option<u64>,
    line: [u8; COMMAND_LINE_MAX],
    line_length: usize,
}

static COPIED: Once<Copied> = Once::new();
static FACTS: Once<BootFacts> = Once::new();

impl BootFacts {
    /// Version without its padding.
    pub fn version_text(&self) -> &str {
        let length = self.version.iter().position(|&b| b == 0).unwrap_or(16);
        core::str::from_utf8(&self.version[..length]).unwrap_or("?")
    }

    /// Build id in hexadecimal.
    pub fn build_id_text(&self) -> String {
        use core::fmt::Write;
        let mut text = String::new();
        for byte in self.build_id {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Copies the hand-off block, before the stub's memory is given up. A stub without a block (or
/// with a damaged one) is logged as an error; the kernel goes on with an empty command line.
///
/// `kernel_entry_tsc` is the time-stamp counter at the kernel's first instruction.
pub fn copy(info: &BootInfo, kernel_entry_tsc: u64) {
    let block = info
        .ramdisk_addr
        .into_option()
        .map(|at| crate::mm::stub_memory(at, info.ramdisk_len as usize));
    let handoff = match block.map(Handoff::parse) {
        Some(Ok(handoff)) => handoff,
        other => {
            error!(
                "boot",
                "no usable hand-off block ({:?}): boot the image that `cargo xtask build` makes",
                other.map(|parsed| parsed.err())
            );
            Handoff {
                entry_tsc: crate::arch::tsc(),
                entry: 0,
                image_bytes: 0,
                version: [0; 16],
                build_id: [0; 20],
                framebuffer: None,
                command_line: "",
            }
        }
    };
    if handoff.command_line.contains("hearth.test=") {
        crate::arch::set_leaves_when_done(true);
    }
    COPIED.call_once(|| {
        let text = handoff.command_line.as_bytes();
        let mut line = [0; COMMAND_LINE_MAX];
        line[..text.len()].copy_from_slice(text);
        Copied {
            kernel_entry_tsc,
            rsdp: info.rsdp_addr.into_option(),
            line,
            line_length: text.len(),
            handoff: Handoff {
                command_line: "",
                ..handoff
            },
        }
    });
}

/// Reads the command line; needs the heap and [`copy`].
pub fn init() -> &'static BootFacts {
    let copied = COPIED.get().expect("boot::copy has not run");
    FACTS.call_once(|| {
        let command_line = core::str::from_utf8(&copied.line[..copied.line_length])
            .expect("command line was text when it was copied");
        BootFacts {
            command_line,
            options: CommandLine::parse(command_line),
            entry_tsc: copied.handoff.entry_tsc,
            kernel_entry_tsc: copied.kernel_entry_tsc,
            entry: copied.handoff.entry,
            image_bytes: copied.handoff.image_bytes,
            version: copied.handoff.version,
            build_id: copied.handoff.build_id,
            rsdp: copied.rsdp,
            framebuffer: copied.handoff.framebuffer,
        }
    })
}

/// The facts; [`init`] must have run.
pub fn facts() -> &'static BootFacts {
    FACTS.get().expect("boot::init has not run")
}

/// Logs version and command line (without the node's key), and what was wrong with the latter.
pub fn report() {
    let facts = facts();
    info!(
        "boot",
        "Hearth {} build {} image {} bytes, entry path {}, kernel proper entered at {} s",
        facts.version_text(),
        facts.build_id_text(),
        facts.image_bytes,
        facts.entry,
        crate::time::at_tsc(facts.kernel_entry_tsc)
    );
    let shown = kernel_core::cmdline::without_secrets(facts.command_line);
    info!("boot", "command line: {shown}");
    for warning in &facts.options.warnings {
        warn!("boot", "{warning}");
    }
}
