//! How far `hearth up` is.
//!
//! Key type: [`Display`]. Neighbours: `cluster` hands on what `hearth_qemu::up` says.
//!
//! Invariant: what is said ends with the last state, also without a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use hearth_qemu::Progress;

use crate::hostlist;
use crate::output::{self, count, count_of};

/// Progress on standard error: a bar on a terminal; elsewhere two lines a stage:
/// how it begins and how it ends.
pub(super) struct Display {
    bar: Option<indicatif::ProgressBar>,
    quiet: bool,
    stage: Option<std::mem::Discriminant<Progress>>,
    /// What was said last.
    said: String,
    /// The last state of the stage, where it differs.
    unsaid: Option<String>,
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !json;
        let bar = terminal.then(|| {
            let style = indicatif::ProgressStyle::with_template("{spinner} {msg}")
                .expect("the template is sound");
            let bar = indicatif::ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Display {
            bar,
            quiet: json,
            stage: None,
            said: String::new(),
            unsaid: None,
        }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        match &self.bar {
            Some(bar) => bar.set_message(progress_text(progress)),
            None if !self.quiet => {
                self.next(progress).iter().for_each(output::say_line);
            }
            None => {}
        }
    }

    /// The lines to say now, without a terminal.
    fn next(&mut self, progress: &Progress) -> Vec<String> {
        let text = progress_text(progress);
        let stage = Some(std::mem::discriminant(progress));
        if self.stage == stage {
            self.unsaid = (text != self.said).then_some(text);
            return Vec::new();
        }
        self.stage = stage;
        self.said.clone_from(&text);
        self.unsaid.take().into_iter().chain([text]).collect()
    }

    /// Ends with the last state.
    pub(super) fn finish(&mut self) {
        match self.bar.take() {
            Some(bar) => bar.finish_and_clear(),
            None => self.unsaid.take().iter().for_each(output::say_line),
        }
    }
}

fn progress_text(progress: &Progress) -> String {
    match progress {
        Progress::Preparing => "preparing".to_string(),
        Progress::Network { switches, links } => {
            format!(
                "network: {}, {}",
                count_of(*switches, "switch", "switches"),
                count(*links, "link")
            )
        }
        Progress::Control => "control node answers".to_string(),
        Progress::Machines { started, total } => {
            format!("machines switched on: {started} of {total}")
        }
        Progress::Nodes { joined, total } => {
            let numbers = joined
                .iter()
                .filter_map(|name| hostlist::parse(name).ok())
                .flatten();
            let mut numbers: Vec<u32> = numbers.collect();
            numbers.sort_unstable();
            let text = format!("nodes joined: {} of {total}", joined.len());
            match &numbers[..] {
                [] => text,
                numbers => format!("{text} {}", hostlist::format(numbers)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_without_a_terminal_ends_with_its_last_state() {
        let mut display = Display {
            bar: None,
            quiet: false,
            stage: None,
            said: String::new(),
            unsaid: None,
        };
        let machines = |started| Progress::Machines { started, total: 4 };
        let nodes = |count: u32| Progress::Nodes {
            joined: (0..count).map(hostlist::name).collect(),
            total: 4,
        };
        let mut said = Vec::new();
        let all = [
            Progress::Control,
            Progress::Control,
            machines(1),
            machines(2),
            machines(4),
            nodes(0),
            nodes(3),
            nodes(4),
        ];
        for progress in all {
            said.extend(display.next(&progress));
        }
        said.extend(display.unsaid.take());
        assert_eq!(
            said,
            [
                "control node answers",
                "machines switched on: 1 of 4",
                "machines switched on: 4 of 4",
                "nodes joined: 0 of 4",
                "nodes joined: 4 of 4 n[0-3]",
            ]
        );
    }
}
