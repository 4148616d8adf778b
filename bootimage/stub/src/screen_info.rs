//! The screen as a loader of the Linux boot protocol describes it in the zero page.
//!
//! Key function: [`framebuffer`]. Source: `struct screen_info` of Linux
//! (include/uapi/linux/screen_info.h). Neighbours: the stub's entry by that protocol; UEFI firmware
//! is asked itself.
//!
//! Invariant: only a mode whose pixels are four bytes, three of them colours, is a framebuffer.

use hearth_abi::handoff::{Framebuffer, PixelFormat};

/// Bytes of the structure, at the beginning of the zero page.
pub const BYTES: usize = 64;

const KIND: usize = 0x0f;
const WIDTH: usize = 0x12;
const HEIGHT: usize = 0x14;
const DEPTH: usize = 0x16;
const BASE: usize = 0x18;
const LINE_BYTES: usize = 0x24;
/// Size and position in bits of red, green and blue.
const COLOURS: usize = 0x26;
const CAPABILITIES: usize = 0x36;
const BASE_HIGH: usize = 0x3a;

/// Kinds with a linear framebuffer: of VESA BIOS, of UEFI.
const LINEAR: [u8; 2] = [0x23, 0x70];
/// The base has an upper half.
const BASE_OF_64_BITS: u32 = 1 << 1;
const PIXEL_BYTES: u32 = 4;

/// The framebuffer, where there is one that text can be drawn in.
pub fn framebuffer(info: &[u8; BYTES]) -> Option<Framebuffer> {
    let word = |at: usize| u32::from(u16::from_le_bytes([info[at], info[at + 1]]));
    let long = |at: usize| word(at) | word(at + 2) << 16;
    if !LINEAR.contains(&info[KIND]) || word(DEPTH) != PIXEL_BYTES * 8 {
        return None;
    }
    let colours: &[u8; 6] = info[COLOURS..].first_chunk()?;
    let format = match colours {
        [8, 0, 8, 8, 8, 16] => PixelFormat::Rgb,
        [8, 16, 8, 8, 8, 0] => PixelFormat::Bgr,
        _ => return None,
    };
    let high = match long(CAPABILITIES) & BASE_OF_64_BITS {
        0 => 0,
        _ => long(BASE_HIGH),
    };
    let address = u64::from(high) << 32 | u64::from(long(BASE));
    let line = word(LINE_BYTES);
    let is_whole = address != 0 && line.is_multiple_of(PIXEL_BYTES);
    is_whole.then_some(Framebuffer {
        address,
        width: word(WIDTH),
        height: word(HEIGHT),
        stride: line / PIXEL_BYTES,
        format,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As GRUB describes 1024 by 768 on QEMU's card.
    fn info() -> [u8; BYTES] {
        let mut info = [0; BYTES];
        info[KIND] = 0x23;
        info[WIDTH..WIDTH + 2].copy_from_slice(&1024_u16.to_le_bytes());
        info[HEIGHT..HEIGHT + 2].copy_from_slice(&768_u16.to_le_bytes());
        info[DEPTH] = 32;
        info[BASE..BASE + 4].copy_from_slice(&0xfd00_0000_u32.to_le_bytes());
        info[LINE_BYTES..LINE_BYTES + 2].copy_from_slice(&4096_u16.to_le_bytes());
        info[COLOURS..COLOURS + 8].copy_from_slice(&[8, 16, 8, 8, 8, 0, 8, 24]);
        info
    }

    fn changed(at: usize, value: u8) -> Option<Framebuffer> {
        let mut info = info();
        info[at] = value;
        framebuffer(&info)
    }

    #[test]
    fn a_linear_mode_is_a_framebuffer() {
        let wanted = Framebuffer {
            address: 0xfd00_0000,
            width: 1024,
            height: 768,
            stride: 1024,
            format: PixelFormat::Bgr,
        };
        assert_eq!(framebuffer(&info()), Some(wanted));
        assert_eq!(changed(KIND, 0x70), Some(wanted));
        let mut high = info();
        high[BASE_HIGH] = 0x20;
        assert_eq!(
            framebuffer(&high),
            Some(wanted),
            "the upper half is not said to count"
        );
        high[CAPABILITIES] = 1 << 1;
        let far = framebuffer(&high).unwrap();
        assert_eq!(far.address, 0x20_fd00_0000);
        let mut other = info();
        other[COLOURS..COLOURS + 6].copy_from_slice(&[8, 0, 8, 8, 8, 16]);
        let format = framebuffer(&other).unwrap().format;
        assert_eq!(format, PixelFormat::Rgb);
    }

    #[test]
    fn what_text_cannot_be_drawn_in_is_none() {
        assert_eq!(framebuffer(&[0; BYTES]), None);
        // Text of VGA, 24 bits a pixel, no address, rows of odd lengths, other colours.
        assert_eq!(changed(KIND, 1), None);
        assert_eq!(changed(DEPTH, 24), None);
        assert_eq!(changed(BASE + 3, 0), None);
        assert_eq!(changed(LINE_BYTES, 2), None);
        assert_eq!(changed(COLOURS, 5), None);
    }
}
