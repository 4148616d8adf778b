//! Files that many nodes read at once, on their way from a worker to who has them cast.
//!
//! Key types: [`Receiving`], [`Read`]. Neighbours: `worker::reads` says which files; the control
//! node casts them and answers with [`Cast`].
//!
//! Invariant: at most [`MOST_RECEIVING`] files are received at a time, and [`MOST_BYTES`] are on
//! the disk of those and of what waits; a file that is not whole is given to nobody, and its worker
//! is told that it is not cast.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use netstack::broadcast::hashes::MAX_OBJECT_BYTES;
use netstack::ids::{JobId, NodeId};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::attached::Directory;
use crate::message::{Cast, FromReads};

/// Files that are received at a time, of all jobs. Others are read from the service.
const MOST_RECEIVING: usize = 4;
/// Files that wait for who has them cast.
pub const MOST_WAITING: usize = 16;
/// Bytes of files that are received, wait, or are being taken over: each may be of the largest.
const MOST_BYTES: u64 = MOST_RECEIVING as u64 * MAX_OBJECT_BYTES;

/// A file that many nodes read.
#[derive(Debug)]
pub struct Read {
    /// The job that they are of.
    pub job: JobId,
    /// The number that the job's worker gave it.
    pub number: u64,
    /// All of its bytes, in a file without a name; `None`: they were given before.
    pub content: Option<(File, u64)>,
    /// Nodes that it is to be cast to, too.
    pub nodes: Vec<NodeId>,
    /// It counts among [`MOST_BYTES`] until this is dropped.
    _room: Option<Room>,
}

/// Bytes that a file takes of those that all may have.
#[derive(Debug)]
struct Room {
    taken: Arc<AtomicU64>,
    bytes: u64,
}

#[derive(Debug)]
struct Partial {
    file: File,
    room: Room,
    bytes: u64,
    done: u64,
    nodes: Vec<NodeId>,
}

/// The files that are received.
#[derive(Debug)]
pub struct Receiving {
    partial: BTreeMap<(JobId, u64), Partial>,
    takes: SyncSender<Read>,
    /// Bytes of them, and of those that were given on and are not done with.
    taken: Arc<AtomicU64>,
}

impl Receiving {
    /// They go to `takes`.
    pub fn new(takes: SyncSender<Read>) -> Self {
        Self {
            partial: BTreeMap::new(),
            takes,
            taken: Arc::default(),
        }
    }

    /// A worker has said something of a file: what it is to be told at once.
    pub fn heard(
        &mut self,
        directory: &Directory,
        job: JobId,
        number: u64,
        said: FromReads<'_>,
    ) -> Option<Cast> {
        let key = (job, number);
        let read = |content, nodes, room| Read {
            job,
            number,
            content,
            nodes,
            _room: room,
        };
        let is_taken = match said {
            FromReads::Begins(bytes, nodes) => {
                let fits = bytes <= MAX_OBJECT_BYTES && self.partial.len() < MOST_RECEIVING;
                let room = fits.then(|| Room::take(&self.taken, bytes)).flatten();
                let file = room.map(|room| Ok((directory.nameless()?, room)));
                match file.transpose() {
                    Ok(Some((file, room))) => {
                        let partial = Partial {
                            file,
                            room,
                            bytes,
                            done: 0,
                            nodes,
                        };
                        self.partial.insert(key, partial);
                        true
                    }
                    Ok(None) => false,
                    Err::<_, io::Error>(error) => {
                        tracing::warn!(job = job.0, "no file for what many nodes read: {error}");
                        false
                    }
                }
            }
            FromReads::Piece(bytes) => match self.partial.get_mut(&key) {
                Some(partial) => match partial.take(bytes) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(job = job.0, "what many nodes read is not kept: {error}");
                        self.partial.remove(&key);
                        false
                    }
                },
                // It was told so when it began.
                None => true,
            },
            FromReads::Ends(is_whole) => match self.partial.remove(&key) {
                Some(partial) if is_whole && partial.done == partial.bytes => {
                    let content = Some((partial.file, partial.bytes));
                    let read = read(content, partial.nodes, Some(partial.room));
                    self.takes.try_send(read).is_ok()
                }
                Some(_) => false,
                None => true,
            },
            FromReads::More(nodes) => match self.partial.get_mut(&key) {
                Some(partial) => {
                    partial.nodes.extend(nodes);
                    true
                }
                None => self.takes.try_send(read(None, nodes, None)).is_ok(),
            },
        };
        let refused = Cast {
            number,
            object: None,
            nodes: Vec::new(),
        };
        (!is_taken).then_some(refused)
    }

    /// The worker of a job is gone.
    pub fn forget(&mut self, job: JobId) {
        self.partial.retain(|(of, _), _| *of != job);
    }
}

impl Room {
    /// Room for a file; `None`: there is none.
    fn take(taken: &Arc<AtomicU64>, bytes: u64) -> Option<Self> {
        // One thread takes; others only give back.
        if taken.load(Ordering::Relaxed) + bytes > MOST_BYTES {
            return None;
        }
        taken.fetch_add(bytes, Ordering::Relaxed);
        let taken = Arc::clone(taken);
        Some(Self { taken, bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Partial {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.done += bytes.len() as u64;
        if self.done > self.bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all(bytes)
    }
}

impl Directory {
    /// A file without a name, in the directory of the workers.
    ///
    /// # Errors
    /// The file system has none, or no room.
    fn nameless(&self) -> io::Result<File> {
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(openat(self.descriptor(), ".", flags, mode)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;
    use std::sync::mpsc::{Receiver, sync_channel};

    const JOB: JobId = JobId(4);

    fn receiving() -> (tempfile::TempDir, Directory, Receiving, Receiver<Read>) {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("workers")).unwrap();
        let (takes, taken) = sync_channel(1);
        (folder, directory, Receiving::new(takes), taken)
    }

    #[test]
    fn a_whole_file_is_given_on_and_no_other() {
        let (_folder, directory, mut receiving, taken) = receiving();
        let mut heard = |number, said| receiving.heard(&directory, JOB, number, said);
        let nodes = [1, 2, 9].map(NodeId);
        let begins = FromReads::Begins(6, nodes[..2].to_vec());
        assert_eq!(heard(1, begins), None);
        assert_eq!(heard(1, FromReads::Piece(b"abc")), None);
        // A node that comes before the file is whole goes with it.
        assert_eq!(heard(1, FromReads::More(vec![NodeId(9)])), None);
        assert_eq!(heard(1, FromReads::Piece(b"def")), None);
        assert_eq!(heard(1, FromReads::Ends(true)), None);
        let read = taken.try_recv().unwrap();
        let (file, bytes) = read.content.unwrap();
        let mut content = [0; 6];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!((&content, bytes), (b"abcdef", 6));
        assert_eq!((read.number, &read.nodes[..]), (1, &nodes[..]));
        assert_eq!(heard(1, FromReads::More(vec![NodeId(4)])), None);
        let more = taken.try_recv().unwrap();
        assert!(more.content.is_none() && more.nodes == [NodeId(4)]);
        for (bytes, is_whole) in [(6, false), (2, true), (5, true)] {
            let _ = heard(2, FromReads::Begins(bytes, Vec::new()));
            let piece = heard(2, FromReads::Piece(b"abc"));
            let end = heard(2, FromReads::Ends(is_whole));
            assert!(piece.or(end).is_some_and(|cast| cast.object.is_none()));
        }
        assert!(taken.try_recv().is_err());
    }

    #[test]
    fn files_have_a_bounded_number_of_bytes_until_they_are_taken_over() {
        let (_folder, directory, mut receiving, taken) = receiving();
        let begins = |bytes| FromReads::Begins(bytes, Vec::new());
        let mut heard = |number, said| receiving.heard(&directory, JOB, number, said);
        assert_eq!(heard(0, begins(1)), None);
        assert_eq!(heard(0, FromReads::Piece(b"a")), None);
        assert_eq!(heard(0, FromReads::Ends(true)), None);
        let read = taken.try_recv().unwrap();
        for number in 1..MOST_RECEIVING as u64 {
            assert_eq!(heard(number, begins(MAX_OBJECT_BYTES)), None);
        }
        assert!(heard(9, begins(MAX_OBJECT_BYTES)).is_some(), "a byte more");
        drop(read);
        assert_eq!(heard(9, begins(MAX_OBJECT_BYTES)), None);
    }

    #[test]
    fn few_files_are_received_at_a_time() {
        let (_folder, directory, mut receiving, _taken) = receiving();
        for number in 0..MOST_RECEIVING as u64 {
            let begins = FromReads::Begins(6, Vec::new());
            assert_eq!(receiving.heard(&directory, JOB, number, begins), None);
        }
        let begins = || FromReads::Begins(6, Vec::new());
        assert!(receiving.heard(&directory, JOB, 99, begins()).is_some());
        receiving.forget(JOB);
        assert!(receiving.heard(&directory, JOB, 99, begins()).is_none());
    }
}
