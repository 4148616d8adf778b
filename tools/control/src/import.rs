//! Numbers that stand elsewhere than in the store, taken over into it: files of earlier versions
//! (`nodes.json`: numbers of machines, `next-job`: number of the next job) once; and when a store
//! begins, the numbers of jobs in the copy of the event log. Nodes remember the numbers of jobs
//! that ended on them and would not run another with the same.
//!
//! Key functions: [`find`], [`taken_over`], [`jobs_seen`]. Neighbour: `ledger` calls them when it
//! opens.
//!
//! Invariant: a file is renamed only when the store has what it says; so a crash in between does it
//! once more, which changes nothing.

use std::io::{BufRead, Seek, SeekFrom};
use std::path::Path;
use std::str::FromStr;

use hearth_store::NodeRow;
use serde::Deserialize;

use crate::events::{Event, Severity};

#[derive(Debug, Deserialize)]
struct Saved {
    mac: String,
    node: u32,
}

/// So much of the end of each event file is read: thousands of events, among which are those of the
/// newest jobs.
const EVENTS_TAIL_BYTES: u64 = 1024 * 1024;

/// What earlier versions left.
#[derive(Debug, Default)]
pub struct Found {
    /// Machines and their numbers.
    pub nodes: Vec<NodeRow>,
    /// Number of the next job.
    pub next_job: Option<u64>,
}

/// Finds what earlier versions left in the state directory `dir`; `notices` get what people should
/// know about it.
pub fn find(dir: &Path, notices: &mut Vec<Event>) -> Found {
    let nodes_file = dir.join("nodes.json");
    let nodes = match std::fs::read(&nodes_file).map(|bytes| parse_nodes(&bytes)) {
        Ok(Ok(nodes)) => nodes,
        Ok(Err(what)) => {
            let text = format!(
                "{} is damaged ({what}) and was set aside: nodes that are running keep their numbers, others are numbered anew as they boot",
                nodes_file.display()
            );
            notices.push(Event::new(Severity::Warning, "nodes-file-damaged", text));
            set_aside(&nodes_file, "damaged", notices);
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    let next_job = std::fs::read_to_string(dir.join("next-job"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Found { nodes, next_job }
}

/// What was found is in the store now: the files are renamed.
pub fn taken_over(dir: &Path, found: &Found, notices: &mut Vec<Event>) {
    if found.nodes.is_empty() && found.next_job.is_none() {
        return;
    }
    for file in [dir.join("nodes.json"), dir.join("next-job")] {
        if file.exists() {
            set_aside(&file, "imported", notices);
        }
    }
    let text = format!(
        "the numbers of {} and of jobs were taken over from files of an earlier version, which now end in .imported",
        crate::output::count(found.nodes.len(), "node")
    );
    notices.push(Event::new(Severity::Info, "store-imported", text));
}

/// The highest number of a job in `events.jsonl` and the file before it; 0 without any. Lines that
/// cannot be read are passed over: this is what can be known, not what must be.
pub fn jobs_seen(dir: &Path) -> u64 {
    #[derive(Deserialize)]
    struct Line {
        job: Option<u64>,
    }
    let of_file = |name: &str| {
        let mut file = std::fs::File::open(dir.join(name)).ok()?;
        let bytes = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(EVENTS_TAIL_BYTES)))
            .ok()?;
        let lines = std::io::BufReader::new(file)
            .split(b'\n')
            .map_while(Result::ok);
        let jobs = lines.filter_map(|line| serde_json::from_slice::<Line>(&line).ok()?.job);
        jobs.max()
    };
    let highest = ["events.jsonl.1", "events.jsonl"]
        .into_iter()
        .filter_map(of_file)
        .max();
    highest.unwrap_or(0)
}

fn set_aside(file: &Path, ending: &str, events: &mut Vec<Event>) {
    let aside = file.with_extension(ending);
    if let Err(error) = std::fs::rename(file, &aside) {
        let text = format!("cannot rename {}: {error}", file.display());
        events.push(Event::new(Severity::Warning, "store-imported", text));
    }
}

fn parse_nodes(bytes: &[u8]) -> Result<Vec<NodeRow>, String> {
    let saved: Vec<Saved> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let row = |saved: Saved| {
        let mac = hearth_boot::Mac::from_str(&saved.mac).map_err(|error| error.to_string())?;
        Ok(NodeRow {
            mac: mac.0,
            node: saved.node,
            boot_epoch: None,
            earlier_boots: Vec::new(),
            joined_unix_us: None,
        })
    };
    saved.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use hearth_store::Limits;

    use super::*;
    use crate::ledger::{self, Wanted};

    fn open(dir: &Path) -> ledger::Opened {
        let wanted = Wanted {
            jobs: 9,
            events: 9,
            instance: 7,
        };
        ledger::open(&dir.join("hearth.db"), Limits::default(), wanted).unwrap()
    }

    #[test]
    fn numbers_of_an_earlier_version_are_taken_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let json =
            r#"[{"mac": "52:54:00:07:00:01", "node": 4}, {"mac": "02:00:00:00:00:09", "node": 0}]"#;
        std::fs::write(path.join("nodes.json"), json).unwrap();
        std::fs::write(path.join("next-job"), "17\n").unwrap();
        let check = |opened: &ledger::Opened| {
            let nodes = opened.nodes.iter().map(|row| (row.mac[5], row.node));
            assert_eq!(nodes.collect::<Vec<_>>(), [(9, 0), (1, 4)]);
            assert_eq!(opened.next_job, 17);
        };
        let opened = open(path);
        assert!(
            opened.notices[0].text.contains("2 nodes"),
            "{:?}",
            opened.notices
        );
        assert!(!path.join("nodes.json").exists() && path.join("nodes.imported").exists());
        assert!(!path.join("next-job").exists());
        check(&opened);
        let opened = open(path);
        assert!(opened.notices.is_empty());
        check(&opened);
    }

    #[test]
    fn a_store_that_begins_goes_on_behind_the_jobs_of_the_event_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert_eq!(open(path).next_job, 1);
        let lines = "{\"seq\":7,\"job\":31}\n{\"seq\":8}\nnot JSON\n{\"seq\":9,\"job\":30}\n{\"cut";
        std::fs::write(path.join("events.jsonl"), lines).unwrap();
        let opened = open(path);
        let next = 31 + 1 + crate::jobs::JOBS_MAX as u64;
        assert_eq!(opened.next_job, next);
        assert!(
            opened.notices[0].text.contains(&next.to_string()),
            "{:?}",
            opened.notices
        );
        drop(opened);
        let opened = open(path);
        assert_eq!((opened.next_job, opened.notices.len()), (next, 0));
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        std::fs::write(path.join("nodes.json"), "[{").unwrap();
        assert_eq!(open(path).notices[0].kind, "nodes-file-damaged");
        assert_eq!(std::fs::read(path.join("nodes.damaged")).unwrap(), b"[{");
        assert!(open(path).notices.is_empty());
    }
}
