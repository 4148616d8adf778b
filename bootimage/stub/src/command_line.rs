//! The kernel command line: the image's default, then what firmware or boot loader passed.
//!
//! Later options override earlier ones in the kernel, so what was passed wins over the default.
//!
//! Invariant: [`CommandLine::text`] is printable ASCII of at most `COMMAND_LINE_MAX` bytes.

use hearth_abi::handoff::COMMAND_LINE_MAX;

/// A command line under construction.
pub struct CommandLine {
    bytes: [u8; COMMAND_LINE_MAX],
    length: usize,
}

/// Why text was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLineError {
    /// Longer than `COMMAND_LINE_MAX` bytes in all.
    TooLong,
    /// Something that is not printable ASCII: firmware passes binary data now and then.
    NotText,
}

impl Default for CommandLine {
    fn default() -> Self {
        Self::new()
    }
}

impl CommandLine {
    /// An empty command line.
    pub const fn new() -> Self {
        Self {
            bytes: [0; COMMAND_LINE_MAX],
            length: 0,
        }
    }

    /// Appends `text`, a space between; takes all of it or, with an error, nothing. Tabs and
    /// line ends become spaces; spaces at either end are dropped.
    pub fn append(
        &mut self,
        text: impl Iterator<Item = u16> + Clone,
    ) -> Result<(), CommandLineError> {
        let text = text.map(|unit| match unit {
            0x09 | 0x0a | 0x0d => u16::from(b' '),
            other => other,
        });
        if text.clone().any(|unit| !(0x20..0x7f).contains(&unit)) {
            return Err(CommandLineError::NotText);
        }
        let before = self.length;
        let mut pending_space = before > 0;
        for unit in text {
            if unit == u16::from(b' ') {
                pending_space = self.length > 0;
                continue;
            }
            if core::mem::take(&mut pending_space) && self.push(b' ').is_none()
                || self.push(unit as u8).is_none()
            {
                self.length = before;
                return Err(CommandLineError::TooLong);
            }
        }
        Ok(())
    }

    /// The command line.
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.length)? = byte;
        self.length += 1;
        Some(())
    }
}

/// Drops a first word that is only the name of the file: iPXE and the UEFI shell pass it like
/// `argv[0]`. Units of UTF-16; the file is recognised by its `.efi`.
pub fn without_file_name(units: &[u16]) -> &[u16] {
    const SUFFIX: [u8; 4] = *b".efi";
    let space = u16::from(b' ');
    let start = units
        .iter()
        .position(|&u| u != space)
        .unwrap_or(units.len());
    let rest = &units[start..];
    let end = rest.iter().position(|&u| u == space).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    let has_suffix = word.len() >= SUFFIX.len()
        && word[word.len() - SUFFIX.len()..]
            .iter()
            .zip(SUFFIX)
            .all(|(&unit, byte)| unit < 0x80 && (unit as u8).eq_ignore_ascii_case(&byte));
    if has_suffix { after } else { rest }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    #[test]
    fn parts_are_joined_by_one_space() {
        let mut line = CommandLine::new();
        line.append(units("hearth.console=ttyS0 ").into_iter())
            .unwrap();
        line.append(units("").into_iter()).unwrap();
        line.append(units("  a\t b\r\n").into_iter()).unwrap();
        assert_eq!(line.text(), "hearth.console=ttyS0 a b");
    }

    #[test]
    fn too_long_or_binary_text_changes_nothing() {
        let mut line = CommandLine::new();
        line.append(units("a").into_iter()).unwrap();
        let long = std::vec![u16::from(b'x'); COMMAND_LINE_MAX - 1];
        assert_eq!(
            line.append(long.iter().copied()),
            Err(CommandLineError::TooLong)
        );
        assert_eq!(
            line.append([0x41, 0x1234].into_iter()),
            Err(CommandLineError::NotText)
        );
        assert_eq!(line.text(), "a");
        line.append(long.iter().copied().skip(1)).unwrap();
        assert_eq!(line.text().len(), COMMAND_LINE_MAX);
    }

    #[test]
    fn only_a_file_name_is_dropped() {
        let rest =
            |text: &str| std::string::String::from_utf16(without_file_name(&units(text))).unwrap();
        assert_eq!(rest("hearth.EFI a=b"), " a=b");
        assert_eq!(rest(" fs0:\\hearth.efi"), "");
        assert_eq!(rest("hearth.node=1 x.efi"), "hearth.node=1 x.efi");
        assert_eq!(rest(""), "");
        assert_eq!(rest("efi"), "efi");
    }
}
