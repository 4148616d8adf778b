//! The last lines of the log, kept so that a panic report can show them, and until the control node
//! has them.
//!
//! A ring of bytes: writing never fails and never allocates; the oldest bytes are overwritten.
//! Readers start at the first whole line. A reader that comes back ([`Cursor`]) is told how many
//! lines were overwritten before it could read them.

/// Bytes kept: some 200 lines, little enough for a 32 MB node.
pub const LOG_RING_BYTES: usize = 16 * 1024;

/// The last `N` bytes written.
pub struct LogRing<const N: usize = LOG_RING_BYTES> {
    bytes: [u8; N],
    /// Bytes written since start; the next byte goes to `written % N`.
    written: u64,
    /// Line feeds among them.
    lines: u64,
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Bytes read or overwritten.
    at: u64,
    /// Lines among them.
    line: u64,
}

/// Lines that a reader got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Bytes of them; 0: there are no whole lines that are new.
    pub bytes: usize,
    /// Lines before them that were overwritten.
    pub missed: u32,
}

impl<const N: usize> LogRing<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            written: 0,
            lines: 0,
        }
    }

    /// Adds text; a line ends with `\n`.
    pub fn write(&mut self, text: &[u8]) {
        // Only the last N bytes can survive.
        let skipped = text.len().saturating_sub(N);
        self.written += skipped as u64;
        self.lines += line_feeds(text);
        for &byte in &text[skipped..] {
            self.bytes[(self.written % N as u64) as usize] = byte;
            self.written += 1;
        }
    }

    /// Bytes written since start.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether [`Self::read`] would give something.
    pub fn has_more(&self, cursor: &Cursor) -> bool {
        self.lines > cursor.line
    }

    /// Copies the next whole lines after `cursor` that fit into `out`. One that does not fit by
    /// itself is cut.
    pub fn read(&self, cursor: &mut Cursor, out: &mut [u8]) -> Read {
        let held_from = self.written.saturating_sub(N as u64);
        let from = match cursor.at >= held_from {
            true => cursor.at,
            // The first line that is held is cut, or nobody knows.
            false => match self.line_feed_from(held_from) {
                Some(end) => end + 1,
                None => return Read::default(),
            },
        };
        let unread = (from..self.written).filter(|&at| self.byte(at) == b'\n');
        let line = match from == cursor.at {
            true => cursor.line,
            false => self.lines - unread.count() as u64,
        };
        let until = self.written.min(from + out.len() as u64);
        let whole = (from..until).rev().find(|&at| self.byte(at) == b'\n');
        let (bytes, next) = match whole {
            Some(end) => {
                let bytes = (end + 1 - from) as usize;
                for (slot, at) in out[..bytes].iter_mut().zip(from..) {
                    *slot = self.byte(at);
                }
                (bytes, end + 1)
            }
            None => match self.line_feed_from(from) {
                Some(end) => (self.cut(from, out), end + 1),
                None => return Read::default(),
            },
        };
        let missed = u32::try_from(line - cursor.line).unwrap_or(u32::MAX);
        *cursor = Cursor {
            at: next,
            line: line + line_feeds(&out[..bytes]),
        };
        Read { bytes, missed }
    }

    fn byte(&self, at: u64) -> u8 {
        self.bytes[(at % N as u64) as usize]
    }

    fn line_feed_from(&self, from: u64) -> Option<u64> {
        (from..self.written).find(|&at| self.byte(at) == b'\n')
    }

    /// The beginning of a line that is longer than `out`, with a line feed.
    fn cut(&self, from: u64, out: &mut [u8]) -> usize {
        let Some(room) = out.len().checked_sub(1) else {
            return 0;
        };
        for (slot, at) in out[..room].iter_mut().zip(from..) {
            *slot = self.byte(at);
        }
        // Not within a character.
        let is_inside = |end: usize| self.byte(from + end as u64) & 0xc0 == 0x80;
        let end = (0..=room).rev().find(|&end| !is_inside(end)).unwrap_or(0);
        out[end] = b'\n';
        end + 1
    }

    /// Copies the newest whole lines that fit into `out`; returns how many bytes. A last line
    /// without its `\n` is included.
    pub fn tail(&self, out: &mut [u8]) -> usize {
        let held = self.written.min(N as u64);
        let wanted = held.min(out.len() as u64);
        let start = self.written - wanted;
        for (slot, at) in out.iter_mut().zip(start..self.written) {
            *slot = self.bytes[(at % N as u64) as usize];
        }
        if start == 0 || wanted == 0 {
            return wanted as usize;
        }
        let before = self.bytes[((start - 1) % N as u64) as usize];
        if held > wanted && before == b'\n' {
            return wanted as usize;
        }
        // The first line is cut: leave it out.
        let filled = &out[..wanted as usize];
        let Some(end) = filled.iter().position(|&byte| byte == b'\n') else {
            return 0;
        };
        out.copy_within(end + 1..wanted as usize, 0);
        wanted as usize - end - 1
    }
}

fn line_feeds(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

impl<const N: usize> Default for LogRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_line_goes_first_and_whole() {
        let mut ring = LogRing::<16>::new();
        ring.write(b"first line\n");
        ring.write(b"second\n");
        let mut out = [0; 64];
        let length = ring.tail(&mut out);
        assert_eq!(&out[..length], b"second\n");
        assert_eq!(ring.written(), 18);
    }

    /// All that a reader gets now.
    fn read<const N: usize>(ring: &LogRing<N>, cursor: &mut Cursor) -> (u32, String) {
        let (mut missed, mut text) = (0, String::new());
        loop {
            let mut out = [0; 12];
            let has_more = ring.has_more(cursor);
            let read = ring.read(cursor, &mut out);
            assert_eq!(read.bytes > 0, has_more);
            if read.bytes == 0 {
                return (missed, text);
            }
            missed += read.missed;
            text += core::str::from_utf8(&out[..read.bytes]).unwrap();
        }
    }

    #[test]
    fn a_reader_gets_every_line_once_and_hears_of_those_it_missed() {
        let mut ring = LogRing::<16>::new();
        let mut cursor = Cursor::default();
        assert_eq!(read(&ring, &mut cursor), (0, String::new()));
        ring.write(b"one\ntwo\nthr");
        assert_eq!(read(&ring, &mut cursor), (0, "one\ntwo\n".into()));
        assert_eq!(read(&ring, &mut cursor), (0, String::new()));
        ring.write(b"ee\n");
        assert_eq!(read(&ring, &mut cursor), (0, "three\n".into()));
        // The ring holds `our!\n`, `five\n`, `seven\n`: one line is gone, one is cut.
        ring.write(b"four!\nfive\nseven\n");
        assert_eq!(read(&ring, &mut cursor), (1, "five\nseven\n".into()));
        ring.write(b"a line that is longer than all\nend\n");
        assert_eq!(read(&ring, &mut cursor), (1, "end\n".into()));
        // Longer than what the reader takes at a time, and cut before a character of two bytes.
        ring.write("abcdefghij\u{e4}x\n".as_bytes());
        assert_eq!(read(&ring, &mut cursor), (0, "abcdefghij\n".into()));
        assert_eq!(read(&ring, &mut cursor), (0, String::new()));
    }

    proptest! {
        #[test]
        fn readers_get_lines_in_order_and_count_the_rest(
            steps in proptest::collection::vec(("[a-z]{0,10}", any::<bool>()), 0..60),
        ) {
            let mut ring = LogRing::<40>::new();
            let (mut cursor, mut got) = (Cursor::default(), 0);
            let mut written: std::vec::Vec<String> = std::vec::Vec::new();
            for (line, reads) in &steps {
                ring.write(line.as_bytes());
                ring.write(b"\n");
                written.push(line.clone());
                if *reads {
                    let (missed, text) = read(&ring, &mut cursor);
                    got += missed as usize;
                    for line in text.lines() {
                        prop_assert_eq!(line, &*written[got]);
                        got += 1;
                    }
                    prop_assert_eq!(got, written.len());
                }
            }
        }

        #[test]
        fn tail_is_a_line_aligned_end_of_everything(
            lines in proptest::collection::vec("[a-z]{0,12}", 0..40),
            room in 0usize..80,
        ) {
            let mut ring = LogRing::<48>::new();
            let mut all = std::string::String::new();
            for line in &lines {
                let line = std::format!("{line}\n");
                ring.write(line.as_bytes());
                all.push_str(&line);
            }
            let mut out = std::vec![0; room];
            let length = ring.tail(&mut out);
            let tail = core::str::from_utf8(&out[..length]).unwrap();
            prop_assert!(all.ends_with(tail));
            let before = &all[..all.len() - tail.len()];
            prop_assert!(before.is_empty() || tail.is_empty() || before.ends_with('\n'));
            // Nothing that would have fitted is missing: the next line up does not fit.
            if let Some(cut) = before.strip_suffix('\n') {
                let line = cut.rsplit('\n').next().unwrap().len() + 1;
                prop_assert!(length + line > room.min(48) - usize::from(room.min(48) > 0));
            }
        }
    }
}
