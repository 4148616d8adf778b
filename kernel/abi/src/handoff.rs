//! The block that the boot stub hands to the kernel beside `bootloader_api::BootInfo`.
//!
//! `BootInfo` has no room for a command line, so the stub passes this block as its *ramdisk*
//! (`ramdisk_addr`, a kernel-virtual address, and `ramdisk_len`). Layout, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `HEARTH02` |
//! | 8 | 8 | time-stamp counter at the stub's first instruction |
//! | 16 | 4 | entry path, see [`Entry`] |
//! | 20 | 4 | image size in bytes |
//! | 24 | 16 | image version, text, zero-padded |
//! | 40 | 20 | build id of the kernel ELF |
//! | 60 | 4 | length of the command line, at most [`COMMAND_LINE_MAX`] |
//! | 64 | 8 | physical address of firmware's framebuffer, 0: none |
//! | 72 | 4 | its width in pixels |
//! | 76 | 4 | its height in pixels |
//! | 80 | 4 | pixels from one of its rows to the next |
//! | 84 | 4 | what a pixel is, see [`PixelFormat`] |
//! | 88 | n | command line, UTF-8, no terminator |

/// First eight bytes of the block.
pub const MAGIC: [u8; 8] = *b"HEARTH02";
/// Length of the fixed part in bytes.
pub const HEADER_LEN: usize = 88;
/// Longest command line in bytes; what firmware passes beyond it is an error the stub reports.
pub const COMMAND_LINE_MAX: usize = 2048;

/// Which of the image's entry points the firmware used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Entry {
    /// Linux boot protocol, 16-bit setup code.
    Setup16 = 1,
    /// Linux boot protocol, 32-bit entry.
    Linux32 = 2,
    /// Linux boot protocol, 64-bit entry (+0x200).
    Linux64 = 3,
    /// PE/COFF entry from UEFI firmware.
    Pe = 4,
    /// PVH entry of the plain ELF.
    Pvh = 5,
}

/// What the four bytes of a pixel are, from the lowest address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PixelFormat {
    /// Red, green, blue, nothing.
    Rgb = 1,
    /// Blue, green, red, nothing.
    Bgr = 2,
}

/// Memory that firmware's screen shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framebuffer {
    /// Physical address of the pixel at the top left.
    pub address: u64,
    /// Pixels in a row that are seen.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Pixels from the beginning of a row to that of the next, at least the width.
    pub stride: u32,
    /// What a pixel is.
    pub format: PixelFormat,
}

/// What the stub tells the kernel about how it was booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handoff<'a> {
    /// Time-stamp counter at the stub's first instruction.
    pub entry_tsc: u64,
    /// Entry path as a number; [`Entry`] names them.
    pub entry: u32,
    /// Size of the boot image in bytes.
    pub image_bytes: u32,
    /// Version of the image, zero-padded text.
    pub version: [u8; 16],
    /// Build id of the kernel ELF.
    pub build_id: [u8; 20],
    /// The screen that firmware has left, if it has.
    pub framebuffer: Option<Framebuffer>,
    /// Kernel command line.
    pub command_line: &'a str,
}

/// Why a hand-off block was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffError {
    /// Shorter than its header or than the command line it announces.
    Truncated,
    /// The first eight bytes are not [`MAGIC`].
    BadMagic,
    /// The command line is longer than [`COMMAND_LINE_MAX`] or not UTF-8.
    BadCommandLine,
}

impl<'a> Handoff<'a> {
    /// Reads a block; bytes after the command line are ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HandoffError> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(HandoffError::Truncated)?;
        if header[..8] != MAGIC {
            return Err(HandoffError::BadMagic);
        }
        let length = u32_at(header, 60) as usize;
        if length > COMMAND_LINE_MAX {
            return Err(HandoffError::BadCommandLine);
        }
        let line = rest.get(..length).ok_or(HandoffError::Truncated)?;
        Ok(Self {
            entry_tsc: u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32,
            entry: u32_at(header, 16),
            image_bytes: u32_at(header, 20),
            version: array_at(header, 24),
            build_id: array_at(header, 40),
            framebuffer: framebuffer(header),
            command_line: core::str::from_utf8(line).map_err(|_| HandoffError::BadCommandLine)?,
        })
    }

    /// Writes the block; returns its length, or `None` when `out` is too small or the command
    /// line too long.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let line = self.command_line.as_bytes();
        let total = HEADER_LEN + line.len();
        if line.len() > COMMAND_LINE_MAX || out.len() < total {
            return None;
        }
        out[..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.entry_tsc.to_le_bytes());
        out[16..20].copy_from_slice(&self.entry.to_le_bytes());
        out[20..24].copy_from_slice(&self.image_bytes.to_le_bytes());
        out[24..40].copy_from_slice(&self.version);
        out[40..60].copy_from_slice(&self.build_id);
        out[60..64].copy_from_slice(&(line.len() as u32).to_le_bytes());
        out[64..HEADER_LEN].fill(0);
        if let Some(framebuffer) = &self.framebuffer {
            out[64..72].copy_from_slice(&framebuffer.address.to_le_bytes());
            let Framebuffer {
                width,
                height,
                stride,
                format,
                ..
            } = *framebuffer;
            for (at, value) in [(72, width), (76, height), (80, stride), (84, format as u32)] {
                out[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
        out[HEADER_LEN..total].copy_from_slice(line);
        Some(total)
    }
}

/// The screen; none where the block names none, or a format that is not known.
fn framebuffer(header: &[u8; HEADER_LEN]) -> Option<Framebuffer> {
    let address = u64::from_le_bytes(array_at(header, 64));
    let format = match u32_at(header, 84) {
        1 => PixelFormat::Rgb,
        2 => PixelFormat::Bgr,
        _ => return None,
    };
    (address != 0).then(|| Framebuffer {
        address,
        width: u32_at(header, 72),
        height: u32_at(header, 76),
        stride: u32_at(header, 80),
        format,
    })
}

fn u32_at(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_returns_what_emit_wrote() {
        let block = Handoff {
            entry_tsc: 0x0123_4567_89ab_cdef,
            entry: Entry::Pe as u32,
            image_bytes: 500_000,
            version: *b"0.1.0\0\0\0\0\0\0\0\0\0\0\0",
            build_id: [7; 20],
            framebuffer: Some(Framebuffer {
                address: 0x38_0000_0000,
                width: 1_280,
                height: 800,
                stride: 1_344,
                format: PixelFormat::Bgr,
            }),
            command_line: "hearth.control=10.1.0.1 hearth.console=ttyS0",
        };
        let mut bytes = [0; 512];
        let length = block.emit(&mut bytes).unwrap();
        assert_eq!(Handoff::parse(&bytes[..length]), Ok(block));
        assert_eq!(
            Handoff::parse(&bytes[..length - 1]),
            Err(HandoffError::Truncated)
        );
        // A format of a later stub is no screen.
        bytes[84] = 9;
        assert_eq!(Handoff::parse(&bytes).unwrap().framebuffer, None);
        let none = Handoff {
            framebuffer: None,
            ..block
        };
        let length = none.emit(&mut bytes).unwrap();
        assert_eq!(Handoff::parse(&bytes[..length]), Ok(none));
        bytes[0] ^= 1;
        assert_eq!(Handoff::parse(&bytes), Err(HandoffError::BadMagic));
    }
}
