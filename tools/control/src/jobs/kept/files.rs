//! Files that batch jobs' users asked for (`hearth submit -o FILE`), written from what is kept of
//! their output.
//!
//! Key types: [`Order`], [`Writers`]. Neighbours: `kept` keeps what jobs write;
//! `crate::output_files` is what a file looks like; `serve` runs [`write`].
//!
//! A file is made anew from the beginning of what is kept when its job first writes, and by each
//! run of control that finds the job not over. So a restart loses nothing of it and writes nothing
//! twice.
//!
//! Invariants: a file has what `hearth output` prints, as far as it is written; one that cannot be
//! written stops neither its job nor other files, and is told once. Core files are in no output.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{KeptReader, Outputs};
use crate::api::types::Frame;
use crate::jobs::streams::Item;
use crate::output_files::{Names, Streams, Wanted};

/// How long output gathers before it is written to the files.
const PAUSE: Duration = Duration::from_millis(200);

/// Files of one job.
#[derive(Debug, Clone)]
pub struct Order {
    /// Which.
    pub wanted: Wanted,
    /// What the job is called.
    pub names: Names,
    /// How many ranks it has.
    pub ranks: u32,
}

impl Outputs {
    /// What a job writes goes to these files as well, from its beginning.
    pub fn order(&self, order: Order) {
        let job = order.names.job;
        let mut orders = self.0.orders.lock().expect("no panic while held");
        orders.insert(job, order);
    }

    /// Jobs with files that have written something, or are over.
    fn due(&self) -> Vec<(Order, bool)> {
        let orders = self.0.orders.lock().expect("no panic while held");
        let index = self.index();
        let due = |order: &Order| match index.files.get(&order.names.job) {
            Some(entry) if entry.open => (entry.bytes > 0).then(|| (order.clone(), false)),
            _ => Some((order.clone(), true)),
        };
        orders.values().filter_map(due).collect()
    }

    fn forget_order(&self, job: u64) {
        let mut orders = self.0.orders.lock().expect("no panic while held");
        orders.remove(&job);
    }
}

/// Core files of a job that cannot be written and are told of.
const LOST_CORES_TOLD: usize = 4;

/// A file of a job that cannot be written.
#[derive(Debug)]
pub struct Unwritten {
    /// The job.
    pub job: u64,
    /// What it is, why it cannot be written, and where else its content is.
    pub text: String,
}

impl Unwritten {
    fn output(job: u64, error: &io::Error) -> Self {
        let text = format!(
            "a file with what job {job} writes cannot be written: {error}; `hearth output {job}` has all of it"
        );
        Unwritten { job, text }
    }

    fn core(job: u64, rank: u32, error: &io::Error) -> Self {
        let text = format!(
            "the core file of rank {rank} of job {job} cannot be written, and is nowhere else: {error}; make room and submit it again"
        );
        Unwritten { job, text }
    }
}

/// The files of one job, as far as they are written.
struct Writer {
    streams: Streams,
    /// None: it has written nothing.
    reader: Option<KeptReader>,
}

impl Writer {
    fn open(outputs: &Outputs, order: &Order) -> io::Result<Self> {
        let Order {
            wanted,
            names,
            ranks,
        } = order;
        // A stream without a file is kept, and nowhere else.
        let nowhere = || Box::new(io::sink());
        Ok(Writer {
            streams: wanted.open(names, (false, *ranks), nowhere(), nowhere())?,
            reader: outputs.follow(names.job),
        })
    }

    /// Writes what has come since.
    fn go_on(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        while let Some(item) = reader.try_next() {
            match item {
                Item::Output { rank, fd, data, .. } => self.streams.output(rank, fd, &data)?,
                Item::Frame(Frame::Notice { text }) => self.streams.say(0, &lines(&text))?,
                Item::Frame(Frame::Fault { rank, text, .. }) => {
                    self.streams.say(rank, &lines(&text))?;
                }
                Item::Frame(_) => {}
            }
        }
        Ok(())
    }
}

/// A text of ours, each line naming its speaker.
fn lines(text: &str) -> String {
    text.lines()
        .map(|line| format!("hearth: {line}\n"))
        .collect()
}

/// Files that are being written.
pub struct Writers {
    outputs: Outputs,
    open: Mutex<BTreeMap<u64, Writer>>,
}

impl Writers {
    /// Of the jobs of `outputs`.
    pub fn new(outputs: Outputs) -> Self {
        Writers {
            outputs,
            open: Mutex::default(),
        }
    }

    /// Writes what jobs have written since; gives the files that cannot be written, and why.
    pub fn write(&self) -> Vec<Unwritten> {
        let mut open = self.open.lock().expect("no panic while held");
        let mut failed = Vec::new();
        for (order, is_over) in self.outputs.due() {
            let job = order.names.job;
            let written = self.write_one(&mut open, &order, is_over);
            if is_over || written.is_err() {
                let lost = open.remove(&job);
                let lost = lost.iter().flat_map(|writer| writer.streams.lost_cores());
                let lost = lost.take(LOST_CORES_TOLD);
                failed.extend(lost.map(|(rank, error)| Unwritten::core(job, rank, error)));
                self.outputs.forget_order(job);
            }
            failed.extend(written.err().map(|error| Unwritten::output(job, &error)));
        }
        failed
    }

    fn write_one(
        &self,
        open: &mut BTreeMap<u64, Writer>,
        order: &Order,
        is_over: bool,
    ) -> io::Result<()> {
        let writer = match open.entry(order.names.job) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(Writer::open(&self.outputs, order)?)
            }
        };
        writer.go_on()?;
        match is_over {
            true => writer.streams.finish(),
            false => Ok(()),
        }
    }
}

/// Writes files as long as there is something to keep; `tell` hears of files that cannot be
/// written.
pub async fn write(writers: Arc<Writers>, tell: impl Fn(Unwritten)) {
    let mut changed = writers.outputs.0.changed.subscribe();
    while changed.changed().await.is_ok() {
        tokio::time::sleep(PAUSE).await;
        let writers = writers.clone();
        let failed = tokio::task::spawn_blocking(move || writers.write()).await;
        failed.unwrap_or_default().into_iter().for_each(&tell);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::jobs::kept::CallAt;

    fn order(dir: &Path, job: u64, output: &str, error: Option<&str>) -> Order {
        let within = |text: &str| {
            let pattern: crate::output_files::Pattern = text.parse().unwrap();
            pattern.in_folder(dir).unwrap()
        };
        Order {
            wanted: Wanted {
                output: Some(within(output)),
                error: error.map(within),
                core: None,
            },
            names: Names {
                job,
                ..Names::default()
            },
            ranks: 2,
        }
    }

    fn at(call: u64) -> CallAt {
        CallAt { attempt: 0, call }
    }

    #[test]
    fn files_grow_with_their_jobs_and_are_made_anew_by_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
        let open = || Outputs::open(&dir.path().join("kept"), 10_000, 10_000).unwrap();
        let (outputs, order) = (open(), order(dir.path(), 7, "o-%j", Some("e-%j.%n")));
        let writers = Writers::new(outputs.clone());
        outputs.order(order.clone());
        let kept = outputs.begin(7);
        assert!(writers.write().is_empty());
        assert!(!dir.path().join("o-7").exists(), "it has written nothing");
        kept.output(1, 1, at(1), b"one\n");
        kept.output(1, 2, at(2), b"wrong\n");
        assert!(writers.write().is_empty());
        assert_eq!(
            (read("o-7"), read("e-7.1")),
            ("one\n".into(), "wrong\n".into())
        );
        // The control node is killed; the next one begins anew.
        std::mem::forget(kept);
        let outputs = open();
        outputs.order(order);
        let writers = Writers::new(outputs.clone());
        let kept = outputs.go_on(7);
        kept.output(0, 1, at(1), b"no end");
        let text = "n0 is lost".to_string();
        kept.frame(&Frame::Notice { text });
        assert!(writers.write().is_empty());
        assert_eq!(read("o-7"), "one\n");
        drop(kept);
        assert!(writers.write().is_empty());
        assert_eq!(read("o-7"), "one\nno end");
        assert_eq!(read("e-7.0"), "hearth: n0 is lost\n");
        assert!(outputs.due().is_empty(), "it is done");
    }

    #[test]
    fn a_silent_job_has_an_empty_file_and_one_that_fails_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(&dir.path().join("kept"), 10_000, 10_000).unwrap();
        let writers = Writers::new(outputs.clone());
        for (job, name) in [(1, "silent"), (2, "none/o")] {
            outputs.order(order(dir.path(), job, name, None));
        }
        let (silent, lost) = (outputs.begin(1), outputs.begin(2));
        lost.output(0, 1, at(1), b"x");
        let failed = writers.write();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].job == 2 && failed[0].text.contains("none/o"));
        assert!(failed[0].text.contains("`hearth output 2` has all of it"));
        lost.output(0, 1, at(2), b"y");
        assert!(writers.write().is_empty());
        drop(silent);
        assert!(writers.write().is_empty());
        assert_eq!(std::fs::read(dir.path().join("silent")).unwrap(), b"");
    }

    #[test]
    fn a_core_file_that_is_lost_is_said_to_be_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(&dir.path().join("kept"), 10_000, 10_000).unwrap();
        let writers = Writers::new(outputs.clone());
        let mut order = order(dir.path(), 3, "o", None);
        let core: crate::output_files::Pattern = "core.%j.%n".parse().unwrap();
        order.wanted.core = Some(core.in_folder(dir.path()).unwrap());
        std::fs::create_dir(dir.path().join("core.3.1")).unwrap();
        outputs.order(order);
        let kept = outputs.begin(3);
        kept.output(1, netstack::io::CORE_FILE, at(1), b"ELF");
        kept.output(1, 1, at(2), b"last words\n");
        drop(kept);
        let failed = writers.write();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].text.contains("core.3.1") && failed[0].text.contains("nowhere else"));
        let output = std::fs::read_to_string(dir.path().join("o")).unwrap();
        assert_eq!(output, "last words\n");
    }
}
