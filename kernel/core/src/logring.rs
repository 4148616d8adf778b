//! The last lines of the log, kept so that a panic report can show them.
//!
//! A ring of bytes: writing never fails and never allocates; the oldest bytes are overwritten.
//! Readers start at the first whole line.

/// Bytes kept: some 200 lines, little enough for a 32 MB node.
pub const LOG_RING_BYTES: usize = 16 * 1024;

/// The last `N` bytes written.
pub struct LogRing<const N: usize = LOG_RING_BYTES> {
    bytes: [u8; N],
    /// Bytes written since start; the next byte goes to `written % N`.
    written: u64,
}

impl<const N: usize> LogRing<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            written: 0,
        }
    }

    /// Adds text; a line ends with `\n`.
    pub fn write(&mut self, text: &[u8]) {
        // Only the last N bytes can survive.
        let skipped = text.len().saturating_sub(N);
        self.written += skipped as u64;
        for &byte in &text[skipped..] {
            self.bytes[(self.written % N as u64) as usize] = byte;
            self.written += 1;
        }
    }

    /// Bytes written since start.
    pub fn written(&self) -> u64 {
        self.written
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

impl<const N: usize> Default for LogRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
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
