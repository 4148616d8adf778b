//! What programs call their counters: a note in the program's file (`HEARTH_COUNTERS` of
//! `hearth.h`, `hearth::counters!`).
//!
//! The note's owner is [`OWNER`], its type [`TYPE`], its content names separated by commas: the
//! first is that of counter 0. Names are read once for each program, from the beginning of its
//! file, where linkers put notes.
//!
//! Key type: [`Names`]. Invariant: a file that has no such note, or a broken one, has no names;
//! nothing else comes of it.

use std::collections::BTreeMap;

use elf::endian::AnyEndian;
use elf::file::{FileHeader, parse_ident};
use elf::note::{Note, NoteIterator};
use elf::segment::SegmentTable;

use super::picture::JobNow;
use crate::programs::ProgramStore;
use crate::secrets;

/// Who the note is of.
const OWNER: &str = "Hearth";
/// Its type: names of counters.
const TYPE: u64 = 1;
/// Bytes of a file that are looked at.
const HEAD: usize = 64 * 1024;
/// Programs whose names are remembered.
const PROGRAMS_MAX: usize = 1_000;
/// Characters of a name.
const NAME_MAX: usize = 32;

/// Names by program.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    /// Jobs whose program has not been looked at.
    pub fn lack(&self, jobs: &[JobNow]) -> bool {
        jobs.iter().any(|job| !self.0.contains_key(&job.program))
    }

    /// Looks at programs that are new. Reads files.
    pub fn learn(&mut self, jobs: &[JobNow], programs: &ProgramStore) {
        if self.0.len() + jobs.len() > PROGRAMS_MAX {
            self.0
                .retain(|program, _| jobs.iter().any(|job| job.program == *program));
        }
        for job in jobs {
            if self.0.contains_key(&job.program) {
                continue;
            }
            let program = secrets::decode_hex(&job.program).and_then(|hash| programs.get(&hash));
            let head = program.and_then(|program| program.read_at(0, HEAD).ok());
            let names = head.map_or_else(Vec::new, |head| names(&head));
            self.0.insert(job.program.clone(), names);
        }
    }

    /// Puts the names that are known to jobs.
    pub fn put(&self, jobs: &mut [JobNow]) {
        for job in jobs {
            if let Some(names) = self.0.get(&job.program) {
                job.counters.clone_from(names);
            }
        }
    }
}

/// The names in a program of which this is the beginning.
fn names(head: &[u8]) -> Vec<String> {
    note(head).unwrap_or_default()
}

fn note(head: &[u8]) -> Option<Vec<String>> {
    let ident = parse_ident::<AnyEndian>(head.get(..16)?).ok()?;
    let (endian, class) = (ident.0, ident.1);
    let header = FileHeader::parse_tail(ident, head.get(16..64)?).ok()?;
    let begin = usize::try_from(header.e_phoff).ok()?;
    let length = usize::from(header.e_phnum) * usize::from(header.e_phentsize);
    let segments = head.get(begin..begin.checked_add(length)?)?;
    for segment in SegmentTable::new(endian, class, segments).iter() {
        if segment.p_type != elf::abi::PT_NOTE {
            continue;
        }
        let begin = usize::try_from(segment.p_offset).ok()?;
        let end = begin.checked_add(usize::try_from(segment.p_filesz).ok()?)?;
        let Some(notes) = head.get(begin..end) else {
            continue;
        };
        let align = usize::try_from(segment.p_align).ok()?.clamp(1, 8);
        for note in NoteIterator::new(endian, class, align, notes) {
            if let Note::Unknown(any) = note
                && any.n_type == TYPE
                && any.name_str().is_ok_and(|owner| owner == OWNER)
            {
                return Some(split(any.desc));
            }
        }
    }
    None
}

/// Names as people can read them: at most sixteen, each of some plain characters and given once;
/// others stay numbers, and so do names that are a number, for it may be another counter's.
fn split(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches('\0');
    let most = usize::try_from(hearth_abi::monitor::COUNTERS_MAX).unwrap_or(usize::MAX);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-. /".contains(c);
    let mut names: Vec<String> = Vec::new();
    for (index, name) in text.split(',').take(most).enumerate() {
        let name = name.trim();
        let is_plain = !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(plain);
        let is_number = name.chars().all(|c| c.is_ascii_digit());
        names.push(
            match is_plain && !is_number && !names.iter().any(|known| known == name) {
                true => name.to_string(),
                false => index.to_string(),
            },
        );
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of one segment, which is a note.
    fn program(owner: &str, kind: u32, text: &str) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[6] = 1;
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        let mut note = Vec::new();
        for word in [owner.len() as u32 + 1, text.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for bytes in [format!("{owner}\0"), text.to_string()] {
            note.extend(bytes.as_bytes());
            note.resize(note.len().next_multiple_of(4), 0);
        }
        file[64] = 4;
        file[72] = 120;
        file[96] = note.len() as u8;
        file[112] = 4;
        file.extend(note);
        file
    }

    #[test]
    fn names_come_from_the_note_and_nothing_else_does() {
        let found = |file: &[u8]| names(file);
        assert_eq!(
            found(&program("Hearth", 1, "steps,residual norm\0")),
            ["steps", "residual norm"]
        );
        assert_eq!(
            found(&program("Hearth", 1, "a,<b>,,d")),
            ["a", "1", "2", "d"]
        );
        // Labels of one node are never alike.
        assert_eq!(
            found(&program("Hearth", 1, "a,a, a ,7,0")),
            ["a", "1", "2", "3", "4"]
        );
        assert_eq!(found(&program("GNU", 1, "steps")), [""; 0]);
        assert_eq!(found(&program("Hearth", 2, "steps")), [""; 0]);
        let many: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let many = many.join(",");
        assert_eq!(found(&program("Hearth", 1, &many)).len(), 16);
        let whole = program("Hearth", 1, "steps");
        for cut in 0..whole.len() - 4 {
            assert_eq!(found(&whole[..cut]), [""; 0]);
        }
        // Whatever stands in it, it is no more than a file without names.
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            drop(found(&broken));
        }
    }
}
