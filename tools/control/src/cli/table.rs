//! Plain tables: columns under headings, nothing drawn, easy for eyes and for awk.
//!
//! Key type: [`Rows`], for lists that may have tens of thousands of rows and numbers that line up
//! to the right; [`new`] for the rest.

/// On which side a column's texts begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// A table whose rows are all known before it is printed.
#[derive(Debug)]
pub struct Rows<const N: usize> {
    sides: [Side; N],
    widths: [usize; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Rows<N> {
    /// Without rows.
    pub fn new(columns: &[(&str, Side); N]) -> Self {
        let mut rows = Rows {
            sides: columns.map(|(_, side)| side),
            widths: [0; N],
            rows: Vec::new(),
        };
        rows.add(columns.map(|(heading, _)| heading.to_string()));
        rows
    }

    /// One more row.
    pub fn add(&mut self, row: [String; N]) {
        let row = row.map(|text| crate::output::plain(&text));
        for (width, text) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(text.chars().count());
        }
        self.rows.push(row);
    }

    /// The table's text; no blanks at the ends of lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let start = text.len();
            for (index, cell) in row.iter().enumerate() {
                let blanks = self.widths[index] - cell.chars().count();
                let before = if self.sides[index] == Side::Right {
                    blanks
                } else {
                    0
                };
                text.extend(std::iter::repeat_n(' ', before));
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', blanks - before + 2));
            }
            let end = text[start..].trim_end().len();
            text.truncate(start + end);
            text.push('\n');
        }
        text
    }
}

/// A table without lines; numbers are the caller's to format.
pub fn new(headings: &[&str]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(headings);
    table
}

/// The table's text: lines without padding at either end, nothing that steers a terminal.
pub fn text(table: &comfy_table::Table) -> String {
    table
        .lines()
        .map(|line| crate::output::plain(line.trim()) + "\n")
        .collect()
}

/// Most characters of a name in a table.
const NAME_MAX: usize = 40;

/// Most characters of a name in a table that has many columns: it fits in 80 to 120 characters.
const SHORT_NAME_MAX: usize = 16;

/// A name that others chose (a program's file) as it may stand in a row: one line, no tab, not too
/// long. `-` for none.
pub fn name(name: &str) -> String {
    limited(name, NAME_MAX)
}

/// The same for a narrow column.
pub fn short_name(name: &str) -> String {
    limited(name, SHORT_NAME_MAX)
}

fn limited(name: &str, most: usize) -> String {
    let shown = |character: char| match crate::output::steers(character) {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    let mut text: String = name.chars().take(most).map(shown).collect();
    if name.chars().nth(most).is_some() {
        text.pop();
        text.push('…');
    }
    if text.is_empty() {
        "-".to_string()
    } else {
        text
    }
}

/// `-` for nothing.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_string(), |value| value.to_string())
}

/// The beginning of a program's id: enough to tell programs apart, and for `hearth drop`.
pub fn program_id(program: &str) -> String {
    program.chars().take(12).collect()
}

/// Bytes in binary units as memory is sold, in one word for who counts columns: `48MiB`.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}MiB", bytes / (1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_decoration() {
        let mut table = new(&["NODE", "STATE"]);
        table.add_row(["n0", "idle"]);
        table.add_row(["n10", "busy"]);
        let lines: Vec<String> = text(&table).lines().map(str::to_string).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1].find("idle"), lines[2].find("busy"));
        assert_eq!(lines[2], lines[2].trim());
        table.add_row(["\x1b[31mred", "\x07"]);
        assert!(!text(&table).contains(['\x1b', '\x07']));
    }

    #[test]
    fn numbers_line_up_to_the_right() {
        let mut rows = Rows::new(&[
            ("JOBID", Side::Right),
            ("NAME", Side::Left),
            ("N", Side::Right),
        ]);
        rows.add(["7".into(), "app".into(), "12".into()]);
        rows.add(["1234567".into(), "\x1b[2J".into(), "1".into()]);
        let text = rows.text();
        assert_eq!(
            text,
            "  JOBID  NAME   N\n      7  app   12\n1234567  \u{fffd}[2J   1\n"
        );
    }

    #[test]
    fn a_name_cannot_make_a_row_of_its_own_or_widen_the_table() {
        assert_eq!(name("app"), "app");
        assert_eq!(name(""), "-");
        assert_eq!(name("x\nn0\tlost"), "x\u{fffd}n0\u{fffd}lost");
        let long = name(&"ä".repeat(200));
        assert_eq!(
            (long.chars().count(), long.ends_with('…')),
            (NAME_MAX, true)
        );
        assert_eq!(name(&"n".repeat(NAME_MAX)), "n".repeat(NAME_MAX));
    }
}
