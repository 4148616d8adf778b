//! Text on a framebuffer: the console of a machine without a serial port.
//!
//! Lines run from the top to the bottom and then begin at the top again, with an empty line below
//! the newest one: moving everything up would mean reading or drawing the whole screen for each
//! line, and such memory is slow. Characters are grey, so that the order of a pixel's colours does
//! not matter.
//!
//! Key types: [`Screen`], which is a [`fmt::Write`]; [`Layout`], where its characters are;
//! [`Pixels`], the memory. Neighbours: `hearth_abi::handoff` has what firmware's screen is,
//! `kernel::drivers::framebuffer` maps it, `noto-sans-mono-bitmap` draws the characters.
//!
//! Invariant: no pixel outside of [`Layout::bytes`] is written, whatever firmware said of its
//! screen and whatever is printed.

use core::fmt;

use hearth_abi::handoff::Framebuffer;
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

const WEIGHT: FontWeight = FontWeight::Regular;
const SIZE: RasterHeight = RasterHeight::Size16;
/// Pixels of a character and the space about it.
pub const CELL_WIDTH: usize = get_raster_width(WEIGHT, SIZE) + 1;
/// The same from line to line.
pub const CELL_HEIGHT: usize = SIZE.val() + 2;
/// Drawn for what the font does not have.
const UNKNOWN: char = '?';
/// Bytes of a pixel.
pub const PIXEL_BYTES: usize = 4;
/// Most bytes of a screen that are used: all of 1920 x 1200, the upper half of one that has four
/// times as many pixels. Mapping more would take more page tables than a log is worth.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Fewest characters in a line, and fewest lines, that are of any use.
const COLUMNS_LEAST: usize = 20;
const ROWS_LEAST: usize = 4;

/// Where characters are on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pixels from the beginning of a row of pixels to that of the next.
    stride: usize,
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

impl Layout {
    /// The layout on a screen; `None` where that is too small, or says nonsense of itself.
    pub fn of(screen: &Framebuffer) -> Option<Self> {
        let [width, height, stride] =
            [screen.width, screen.height, screen.stride].map(|number| number as usize);
        if width > stride {
            return None;
        }
        let row_bytes = stride.checked_mul(PIXEL_BYTES)?.checked_mul(CELL_HEIGHT)?;
        let columns = width / CELL_WIDTH;
        let rows = (height / CELL_HEIGHT).min(BYTES_MAX.checked_div(row_bytes)?);
        let layout = Self {
            stride,
            columns,
            rows,
        };
        (columns >= COLUMNS_LEAST && rows >= ROWS_LEAST).then_some(layout)
    }

    /// Bytes from the first pixel on that are written to.
    pub fn bytes(&self) -> usize {
        self.rows * CELL_HEIGHT * self.stride * PIXEL_BYTES
    }
}

/// The memory of a screen.
pub trait Pixels {
    /// Colours the pixel at this place, counted from the top left by the screen's stride.
    fn set(&mut self, place: usize, colour: u32);
}

/// Text on a screen.
#[derive(Debug)]
pub struct Screen<P> {
    pixels: P,
    layout: Layout,
    column: usize,
    row: usize,
}

impl<P: Pixels> Screen<P> {
    /// A black screen.
    pub fn new(pixels: P, layout: Layout) -> Self {
        let mut this = Self {
            pixels,
            layout,
            column: 0,
            row: 0,
        };
        (0..layout.rows).for_each(|row| this.clear(row));
        this
    }

    fn clear(&mut self, row: usize) {
        for line in row * CELL_HEIGHT..(row + 1) * CELL_HEIGHT {
            let first = line * self.layout.stride;
            for place in first..first + self.layout.columns * CELL_WIDTH {
                self.pixels.set(place, 0);
            }
        }
    }

    fn print(&mut self, letter: char) {
        if letter == '\n' {
            self.next_line();
            return;
        }
        if self.column == self.layout.columns {
            self.next_line();
        }
        let glyph = get_raster(letter, WEIGHT, SIZE).or_else(|| get_raster(UNKNOWN, WEIGHT, SIZE));
        let origin = self.row * CELL_HEIGHT * self.layout.stride + self.column * CELL_WIDTH;
        for (line, row) in glyph.iter().flat_map(|glyph| glyph.rows()).enumerate() {
            let first = origin + line * self.layout.stride;
            for (at, &grey) in row.iter().enumerate() {
                self.pixels.set(first + at, u32::from(grey) * 0x01_0101);
            }
        }
        self.column += 1;
    }

    /// The lines go on below, or at the top; the one after that is empty.
    fn next_line(&mut self) {
        self.column = 0;
        self.row = (self.row + 1) % self.layout.rows;
        self.clear(self.row);
        self.clear((self.row + 1) % self.layout.rows);
    }
}

impl<P: Pixels> fmt::Write for Screen<P> {
    /// Never fails.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().for_each(|letter| self.print(letter));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::fmt::Write;

    use hearth_abi::handoff::PixelFormat;
    use proptest::prelude::*;

    use super::*;

    /// Pixels as they were coloured; white where nobody has.
    #[derive(Debug)]
    struct Picture(Vec<u32>);

    impl Pixels for Picture {
        fn set(&mut self, place: usize, colour: u32) {
            self.0[place] = colour;
        }
    }

    fn framebuffer(width: u32, height: u32, stride: u32) -> Framebuffer {
        Framebuffer {
            address: 0x8000_0000,
            width,
            height,
            stride,
            format: PixelFormat::Bgr,
        }
    }

    fn screen(layout: Layout) -> Screen<Picture> {
        let pixels = layout.bytes() / PIXEL_BYTES;
        Screen::new(Picture(vec![0xff_ffff; pixels]), layout)
    }

    fn pixels_at(screen: &Screen<Picture>, row: usize, column: usize) -> Vec<u32> {
        let origin = row * CELL_HEIGHT * screen.layout.stride + column * CELL_WIDTH;
        let lines = (0..SIZE.val()).map(|line| origin + line * screen.layout.stride);
        let lines = lines.flat_map(|first| first..first + CELL_WIDTH - 1);
        lines.map(|place| screen.pixels.0[place]).collect()
    }

    /// The text of a line, read off its pixels.
    fn line(screen: &Screen<Picture>, row: usize) -> String {
        let letter = |column| {
            let seen = pixels_at(screen, row, column);
            let is_seen = |letter: &char| {
                let glyph = get_raster(*letter, WEIGHT, SIZE).unwrap();
                let grey = glyph
                    .pixels()
                    .iter()
                    .map(|&grey| u32::from(grey) * 0x01_0101);
                grey.eq(seen.iter().copied())
            };
            (' '..='~').find(is_seen).expect("a character of the font")
        };
        let text: String = (0..screen.layout.columns).map(letter).collect();
        text.trim_end().to_string()
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let layout = Layout::of(&framebuffer(300, 120, 320)).unwrap();
        assert_eq!((layout.columns, layout.rows), (37, 6));
        let mut screen = screen(layout);
        write!(
            screen,
            "[   0.012345] info  net: card\nsecond\n\ttab \u{e4}"
        )
        .unwrap();
        assert_eq!(line(&screen, 0), "[   0.012345] info  net: card");
        assert_eq!(line(&screen, 1), "second");
        assert_eq!(line(&screen, 2), "?tab ?");
        assert_eq!(line(&screen, 3), "");
        // What is right of the last character is firmware's still.
        let beside = layout.columns * CELL_WIDTH;
        assert_eq!(screen.pixels.0[beside], 0xff_ffff);
    }

    #[test]
    fn long_lines_go_on_below_and_the_last_line_at_the_top() {
        let layout = Layout::of(&framebuffer(160, 72, 160)).unwrap();
        assert_eq!((layout.columns, layout.rows), (20, 4));
        let mut screen = screen(layout);
        screen.write_str("abcdefghijklmnopqrstuvwxyz\n").unwrap();
        assert_eq!(line(&screen, 0), "abcdefghijklmnopqrst");
        assert_eq!(line(&screen, 1), "uvwxyz");
        screen.write_str("three\nfour\nfive").unwrap();
        // The newest line is at the top, the oldest one gave way to an empty one.
        let lines: Vec<String> = (0..4).map(|row| line(&screen, row)).collect();
        assert_eq!(lines, ["five", "", "three", "four"]);
    }

    #[test]
    fn screens_that_cannot_be_are_none() {
        for (width, height, stride) in [
            (0, 0, 0),
            (1280, 800, 0),
            (1280, 800, 1279),
            (u32::MAX, u32::MAX, u32::MAX),
            (100, 800, 100),
            (1280, 40, 1280),
        ] {
            let screen = framebuffer(width, height, stride);
            assert_eq!(Layout::of(&screen), None, "{screen:?}");
        }
        // Of a large one the upper part is used.
        let large = Layout::of(&framebuffer(3840, 2160, 3840)).unwrap();
        assert!(large.bytes() <= BYTES_MAX && large.rows > 50, "{large:?}");
        let usual = Layout::of(&framebuffer(1920, 1200, 1920)).unwrap();
        assert_eq!((usual.columns, usual.rows), (240, 66));
    }

    proptest! {
        #[test]
        fn nothing_is_drawn_outside(
            (width, height, more) in (150..400u32, 60..200u32, 0..40u32),
            texts in prop::collection::vec(any::<String>(), 0..20),
        ) {
            if let Some(layout) = Layout::of(&framebuffer(width, height, width + more)) {
                prop_assert!(layout.bytes() <= ((width + more) * height * 4) as usize);
                // A pixel outside panics.
                let mut screen = screen(layout);
                for text in &texts {
                    writeln!(screen, "{text}").unwrap();
                }
            }
        }
    }
}
