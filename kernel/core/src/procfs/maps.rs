//! `/proc/self/maps`: a line for each region of a program.
//!
//! Source: Linux, `fs/proc/task_mmu.c` (`show_vma_header_prefix`): a name begins at column 73.

use core::fmt::{self, Write};

use crate::paging::entry::Protection;
use crate::space::{Kind, Region};

/// Where names begin, less one.
const PAD: usize = 72;
/// Inode of the program; those of other files follow. 0 is no file.
const PROGRAM_INODE: u64 = 1;
/// Behind those, and what shared memory objects are called: their names may change.
const SHARED_INODE: u64 = 1 << 16;
const SHARED_MEMORY: &str = "/dev/shm";

/// A region as its line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// What the program may do.
    pub protection: Protection,
    /// Whether others would see what is written.
    pub is_shared: bool,
    /// Where it begins in its file; 0 without one.
    pub offset: u64,
    /// A number of the file; 0 without one.
    pub inode: u64,
    /// The file's path, or what else it is; mostly nothing.
    pub name: &'a str,
}

impl<'a> Line<'a> {
    /// Of a region of the program whose file has the path `program`; `file` says the paths of
    /// others by number.
    pub fn of(region: &Region, program: &'a str, file: impl FnOnce(u16) -> &'a str) -> Self {
        let (shift, inode, name) = match region.kind {
            Kind::File { shift, .. } => (Some(shift), PROGRAM_INODE, program),
            Kind::Object {
                file: number,
                shift,
                ..
            } => {
                let inode = PROGRAM_INODE + 1 + u64::from(number);
                (Some(shift), inode, file(number))
            }
            Kind::SharedMemory { object, shift, .. } => {
                let inode = SHARED_INODE + u64::from(object);
                (Some(shift), inode, SHARED_MEMORY)
            }
            Kind::Heap => (None, 0, "[heap]"),
            Kind::Stack => (None, 0, "[stack]"),
            Kind::Anonymous { .. } | Kind::Guard => (None, 0, ""),
        };
        Self {
            start: region.start,
            end: region.end,
            protection: region.protection,
            is_shared: matches!(
                region.kind,
                Kind::Object { shared: true, .. } | Kind::SharedMemory { shared: true, .. }
            ),
            offset: shift.map_or(0, |shift| region.start.wrapping_add(shift)),
            inode,
            name,
        }
    }
}

/// Writes the lines, which come in ascending order. Fails as `out` does.
pub fn write<'a>(out: &mut impl Write, lines: impl IntoIterator<Item = Line<'a>>) -> fmt::Result {
    for line in lines {
        write_line(out, &line)?;
    }
    Ok(())
}

fn write_line(out: &mut impl Write, line: &Line<'_>) -> fmt::Result {
    let rwx = match line.protection {
        Protection::None => "---",
        Protection::Read => "r--",
        Protection::ReadWrite => "rw-",
        Protection::ReadExecute => "r-x",
    };
    let shared = if line.is_shared { 's' } else { 'p' };
    let (start, end, offset, inode) = (line.start, line.end, line.offset, line.inode);
    let mut counted = Counted { out, written: 0 };
    write!(
        counted,
        "{start:08x}-{end:08x} {rwx}{shared} {offset:08x} 00:00 {inode} "
    )?;
    if !line.name.is_empty() {
        let room = PAD.saturating_sub(counted.written);
        write!(counted, "{:room$} ", "")?;
        // One line a region, whatever a file is called.
        for part in line.name.split_inclusive('\n') {
            match part.strip_suffix('\n') {
                Some(part) => write!(counted, "{part}\\012")?,
                None => counted.write_str(part)?,
            }
        }
    }
    counted.write_char('\n')
}

/// Counts the bytes of a line.
struct Counted<'a, W> {
    out: &'a mut W,
    written: usize,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.written += text.len();
        self.out.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::synthetic;
    use crate::space::Space;

    fn text(line: Line<'_>) -> String {
        let mut text = String::new();
        write(&mut text, [line]).unwrap();
        text
    }

    const FILE: Line<'_> = Line {
        start: 0x563b_4627_a000,
        end: 0x563b_4628_0000,
        protection: Protection::ReadExecute,
        is_shared: false,
        offset: 0x2000,
        inode: 247_282,
        name: "/usr/bin/head",
    };

    /// Lines that Linux has written, with 00:00 for the device.
    #[test]
    fn lines_are_linux_s() {
        assert_eq!(
            text(FILE),
            "563b4627a000-563b46280000 r-xp 00002000 00:00 247282                     \
             /usr/bin/head\n"
        );
        let heap = Line {
            start: 0x40_5000,
            end: 0x42_6000,
            protection: Protection::ReadWrite,
            offset: 0,
            inode: 0,
            name: "[heap]",
            ..FILE
        };
        assert_eq!(
            text(heap),
            "00405000-00426000 rw-p 00000000 00:00 0                                  [heap]\n"
        );
        let nothing = Line { name: "", ..heap };
        assert_eq!(text(nothing), "00405000-00426000 rw-p 00000000 00:00 0 \n");
    }

    #[test]
    fn names_begin_at_one_column_and_stay_in_their_line() {
        assert_eq!(text(FILE).find("/usr"), Some(73));
        let name = "/with/a\nb\n";
        let odd = text(Line { name, ..FILE });
        assert!(odd.ends_with(" /with/a\\012b\\012\n") && odd.lines().count() == 1);
        let long = text(Line {
            start: u64::MAX,
            end: u64::MAX,
            offset: u64::MAX,
            inode: u64::MAX,
            protection: Protection::None,
            is_shared: true,
            ..FILE
        });
        assert!(
            long.contains(" ---s ") && long.ends_with("  /usr/bin/head\n"),
            "{long}"
        );
    }

    #[test]
    fn the_regions_of_a_program_are_its_segments_heap_and_stack() {
        let space = Space::new(&synthetic::image(), 32 << 20, true);
        let mut all = String::new();
        let lines = space
            .regions()
            .map(|region| Line::of(&region, "/bin/app", |_| unreachable!()));
        write(&mut all, lines).unwrap();
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len(), space.len());
        assert!(lines[0].contains(" 00:00 1 "), "{all}");
        assert_eq!(lines[0].find("/bin/app"), Some(73));
        assert!(lines.iter().any(|line| line.contains(" r-xp ")));
        assert!(lines.last().unwrap().ends_with(" [stack]"));
        assert!(lines[lines.len() - 2].contains(" ---p "), "the guard");
        let first = space.regions().next().unwrap();
        let Kind::File { shift, .. } = first.kind else {
            panic!("{first:?}");
        };
        let offset = format!(" {:08x} ", first.start.wrapping_add(shift));
        assert!(lines[0].contains(&offset), "{all}");
    }

    #[test]
    fn a_file_that_is_mapped_has_its_own_name() {
        let region = Region {
            start: 0x7000_0000,
            end: 0x7000_2000,
            protection: Protection::Read,
            kind: Kind::Object {
                file: 3,
                shared: true,
                shift: 0x1000u64.wrapping_sub(0x7000_0000),
                file_end: 0x7000_2000,
            },
        };
        let line = Line::of(&region, "/bin/app", |file| {
            assert_eq!(file, 3);
            "/with/data"
        });
        assert_eq!(
            text(line),
            "70000000-70002000 r--s 00001000 00:00 5                                  /with/data\n"
        );
    }
}
