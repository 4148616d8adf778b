//! A machine without a serial port: its log is on the screen that firmware or GRUB has left.
//!
//! The picture that QEMU takes of the screen is read with the font of the kernel. A copy of it
//! stays in the folder that `HEARTH_SCREENS` names, for people.

use std::path::Path;
use std::time::{Duration, Instant};

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::rack::{LIMIT, Rack, has_stage, in_namespace};

const WEIGHT: FontWeight = FontWeight::Regular;
const SIZE: RasterHeight = RasterHeight::Size16;
/// From one character to the next, and from line to line (`kernel_core::screen`).
const CELL: (usize, usize) = (get_raster_width(WEIGHT, SIZE) + 1, SIZE.val() + 2);

#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn the_log_is_on_the_screen_where_there_is_no_serial_port() {
    in_namespace(
        "screen::the_log_is_on_the_screen_where_there_is_no_serial_port",
        || {
            let rack = Rack::new(&[]);
            let machine = Machine::uefi(rack.folder()).boots_by_network();
            shows_its_log(&rack, machine);
        },
    );
}

/// A BIOS is in text mode; the menu on the stick has GRUB ask for another one.
#[test]
#[ignore = "needs QEMU, a network namespace, GRUB and the outputs of `cargo xtask build`"]
fn the_log_is_on_the_screen_of_a_bios_with_a_stick() {
    in_namespace(
        "screen::the_log_is_on_the_screen_of_a_bios_with_a_stick",
        || {
            let rack = Rack::new(&[]);
            let medium = rack.file("hearth.iso");
            let path = medium.display().to_string();
            rack.hearth(&["image", "usb", "--output", &path]);
            shows_its_log(&rack, Machine::bios().boots_from_stick(&medium));
        },
    );
}

/// Starts a machine with a screen and no serial port, and reads its log there.
fn shows_its_log(rack: &Rack, machine: Machine) {
    let socket = rack.file("qmp.sock");
    let machine = machine.with_monitor(&socket).options(&["-device", "VGA"]);
    let mut machine = machine.start_without_serial_port();
    let begin = Instant::now();
    while !rack.boot().is_some_and(|boot| has_stage(&boot, "joined")) {
        let late = begin.elapsed() > LIMIT;
        let timeline = || rack.hearth(&["timeline"]);
        assert!(!machine.is_off() && !late, "not joined: {}", timeline());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut monitor = Monitor::connect(&socket);
    let picture = rack.file("screen.ppm");
    // The event of a join and the line about it are not one moment.
    let text = loop {
        monitor.execute("screendump", serde_json::json!({ "filename": picture }));
        let text = Picture::read(&picture).text();
        if text.contains(" joined") {
            break text;
        }
        assert!(begin.elapsed() < LIMIT, "no line of a join:\n{text}");
        std::thread::sleep(Duration::from_millis(200));
    };
    if let Some(folder) = std::env::var_os("HEARTH_SCREENS") {
        let copy = Path::new(&folder).join("screen.ppm");
        std::fs::copy(&picture, copy).expect("a folder that can be written to");
    }
    println!("{text}");
    for words in ["Hearth ", "KiB of memory", "address 10.117."] {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
}

/// A picture in grey.
struct Picture {
    width: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// Reads a PPM file as QEMU writes it: `P6 WIDTH HEIGHT 255` and three bytes a pixel.
    fn read(file: &Path) -> Picture {
        let bytes = std::fs::read(file).expect("QEMU has written it");
        let mut words = bytes.splitn(4, |byte| byte.is_ascii_whitespace());
        let mut word = || words.next().expect("a header");
        assert_eq!(word(), b"P6");
        let number = |word: &[u8]| -> usize {
            let text = String::from_utf8_lossy(word);
            text.parse().expect("a number")
        };
        let (width, height) = (number(word()), number(word()));
        let pixels = &bytes[bytes.len() - 3 * width * height..];
        let pixels = pixels.chunks(3).map(|pixel| pixel[0]).collect();
        Picture { width, pixels }
    }

    /// The characters on it; `~` for what is none.
    fn text(&self) -> String {
        let height = self.pixels.len() / self.width;
        let mut text = String::new();
        for row in 0..height / CELL.1 {
            let columns = 0..self.width / CELL.0;
            let line: String = columns.map(|column| self.letter(row, column)).collect();
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn letter(&self, row: usize, column: usize) -> char {
        let origin = row * CELL.1 * self.width + column * CELL.0;
        let seen = || {
            let lines = (0..SIZE.val()).map(|line| origin + line * self.width);
            lines.flat_map(|first| &self.pixels[first..first + CELL.0 - 1])
        };
        let is_seen = |letter: &char| {
            let glyph = get_raster(*letter, WEIGHT, SIZE).expect("in the font");
            glyph.pixels().iter().eq(seen())
        };
        (' '..'~').find(is_seen).unwrap_or('~')
    }
}
