//! Files that many nodes of the job read at once, and nobody writes: the service has them cast, and
//! reads of them are answered with the name of what the nodes have in their memory then.
//!
//! A file is known by its [`Key`]. Each read looks at that first, so that one that has been changed
//! is read from the disk again. The bytes of a file go to the service once ([`Reads::hand_over`]);
//! who had the right to read them is who the worker is.
//!
//! Invariant: a read is answered with a cast only where the file's key is the one that it had
//! before and after the bytes were read that are cast, and where the rank may read the file by this
//! descriptor.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netstack::broadcast::hashes::MAX_OBJECT_BYTES;
use netstack::files::{CastObject, MAX_TRANSFER};
use netstack::ids::{NodeId, Rank};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};

use super::handles::{FileId, Handles, Open};
use super::link::Link;
use crate::message::{Cast, FromReads};

/// So many nodes have to read a file: two are served as fast by the service, and a cast has to be
/// agreed upon.
const READERS_LEAST: usize = 3;
/// Smallest file that is cast. What a cast costs beside its bytes is some round trips.
const BYTES_LEAST: u64 = 1 << 20;
/// A node reads a file where it has asked for such a part of it, and at least [`PART_LEAST`] bytes:
/// what many nodes have a look at is not cast.
const PART: u64 = 256;
const PART_LEAST: u64 = MAX_TRANSFER as u64;
/// They read it at once where they begin within this time.
const AT_ONCE: Duration = Duration::from_secs(10);
/// A file is cast that was changed last so long ago, or longer: times of changes are then far apart
/// on all file systems, and nobody is writing to it.
const AT_REST: Duration = Duration::from_secs(1);
/// How long reads wait for what has become of a file that was handed over: a service on another
/// machine sends it on first, and what nodes read meanwhile would be in its way.
const COMING_MOST: Duration = Duration::from_secs(10);
/// Files of a job that are known; of others it is counted anew.
const MOST: usize = 16;

/// Which content of a file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    bytes: u64,
    changed: (i64, i64),
}

#[derive(Debug)]
struct Known {
    key: Key,
    number: u64,
    /// Nodes that have read it, and how many bytes each, since then.
    readers: HashMap<NodeId, u64>,
    since: Instant,
    /// When it was read last.
    used: Instant,
    /// Nodes that the service is told of, and until when each of them waits for the cast.
    told: BTreeMap<NodeId, Instant>,
    /// The service knows of the file.
    has_begun: bool,
    /// What is cast, and the nodes that it is cast to and that do not lack it.
    object: Option<CastObject>,
    brought: BTreeSet<NodeId>,
    /// It will not be cast.
    is_refused: bool,
}

#[derive(Debug)]
struct State {
    /// Where ranks run.
    nodes: HashMap<Rank, NodeId>,
    files: HashMap<FileId, Known>,
    /// The number that was given last. The first one is the time at which the process began: who
    /// has been told of files by a process that died does not take these for them.
    last: u64,
    /// The bytes of a file are being handed over.
    is_handing_over: bool,
}

/// The files that nodes of the job read.
#[derive(Debug, Default)]
pub struct Reads(Mutex<State>);

/// How a read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// By the bytes.
    Bytes,
    /// The file is going to be cast to this node: it is to ask again.
    Coming,
    /// By what is cast.
    Cast(CastObject),
}

/// What the service is to be told once the read has its answer.
#[derive(Debug)]
pub struct Wanted {
    number: u64,
    nodes: Vec<NodeId>,
    /// The file, where its bytes are to be handed over.
    content: Option<(Arc<Open>, Key)>,
}

impl Reads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank on this node reads so many bytes of an open file, and would take a cast of it for an
    /// answer: the answer, and what the service is to be told.
    pub fn read(
        &self,
        handles: &Handles,
        (rank, node): (Rank, NodeId),
        open: &Arc<Open>,
        bytes: u64,
    ) -> (Answer, Option<Wanted>) {
        let key = key_of(&open.file).filter(|_| is_readable(&open.file));
        let Some(key) = key else {
            return (Answer::Bytes, None);
        };
        let now = Instant::now();
        let mut state = self.state();
        let state = &mut *state;
        state.nodes.insert(rank, node);
        let is_other = |known: &Known| known.key != key;
        if state.files.get(&open.id).is_none_or(is_other) {
            state.files.remove(&open.id);
            state.make_room();
            state.last += 1;
            state
                .files
                .insert(open.id, Known::new(key, state.last, now));
        }
        let Some(known) = state.files.get_mut(&open.id) else {
            return (Answer::Bytes, None);
        };
        known.used = now;
        if let Some(object) = known.object.filter(|_| known.brought.contains(&node)) {
            return (Answer::Cast(object), None);
        }
        if known.is_refused || !key.is_at_rest() {
            return (Answer::Bytes, None);
        }
        if known.told.is_empty() && now > known.since + AT_ONCE {
            known.readers.clear();
            known.since = now;
        }
        let read = known.readers.entry(node).or_default();
        *read += bytes;
        if let Some(until) = known.told.get(&node) {
            let answer = match now < *until {
                true => Answer::Coming,
                false => Answer::Bytes,
            };
            return (answer, None);
        }
        if *read < key.part() {
            return (Answer::Bytes, None);
        }
        let readers = known.readers.values();
        if readers.filter(|read| **read >= key.part()).count() < READERS_LEAST {
            return (Answer::Bytes, None);
        }
        let is_first = known.told.is_empty();
        if is_first && state.is_handing_over {
            return (Answer::Bytes, None);
        }
        // Those that have it open are about to read it.
        let ranks = handles.ranks_with(open.id);
        let nodes = ranks.iter().filter_map(|rank| state.nodes.get(rank));
        let mut nodes: BTreeSet<NodeId> = nodes.copied().collect();
        nodes.extend(known.readers.keys());
        nodes.retain(|node| !known.told.contains_key(node));
        let until = now + COMING_MOST;
        known.told.extend(nodes.iter().map(|node| (*node, until)));
        state.is_handing_over |= is_first;
        let wanted = Wanted {
            number: known.number,
            nodes: nodes.into_iter().collect(),
            content: is_first.then(|| (Arc::clone(open), key)),
        };
        (Answer::Bytes, Some(wanted))
    }

    /// A rank on this node reads bytes of an open file from `at` on that the node does not take
    /// from a cast. Where the file was cast to it, it lacks it: it is not named to it again.
    pub fn read_bytes(&self, node: NodeId, open: &Open, at: u64) {
        let mut state = self.state();
        if let Some(known) = state.files.get_mut(&open.id)
            && at < known.key.bytes
            && known.brought.remove(&node)
        {
            // The service is not told of it again either.
            known.told.insert(node, Instant::now());
        }
    }

    /// A rank that calls runs on this node.
    pub fn know(&self, rank: Rank, node: NodeId) {
        self.state().nodes.insert(rank, node);
    }

    /// Tells the service what it is to know of a file, all of its bytes where it does not have
    /// them.
    pub fn hand_over(&self, link: &Link, wanted: Wanted) {
        let Wanted {
            number,
            nodes,
            content,
        } = wanted;
        let Some((open, key)) = content else {
            if self.state().has_begun(number) {
                link.send(&FromReads::More(nodes).packet(number));
            }
            return;
        };
        link.send(&FromReads::Begins(key.bytes, nodes.clone()).packet(number));
        let late = self.state().begin(number, &nodes);
        if !late.is_empty() {
            link.send(&FromReads::More(late).packet(number));
        }
        let mut piece = vec![0; MAX_TRANSFER];
        let mut at = 0;
        while at < key.bytes {
            let length = (key.bytes - at).min(MAX_TRANSFER as u64) as usize;
            if open.file.read_exact_at(&mut piece[..length], at).is_err() {
                break;
            }
            link.send(&FromReads::Piece(&piece[..length]).packet(number));
            at += length as u64;
        }
        let is_whole = at == key.bytes && key_of(&open.file) == Some(key);
        link.send(&FromReads::Ends(is_whole).packet(number));
        self.state().is_handing_over = false;
    }

    /// What has become of a file.
    pub fn cast(&self, cast: &Cast) {
        let mut state = self.state();
        let Some(known) = state.find(cast.number) else {
            return;
        };
        match cast.object {
            Some(object) if object.bytes == known.key.bytes => {
                known.object = Some(object);
                known.brought.extend(&cast.nodes);
            }
            // Of another content, or of none. Nodes that have it go on with it.
            _ => {
                known.is_refused = known.object.is_none();
                let now = Instant::now();
                known.told.values_mut().for_each(|until| *until = now);
            }
        }
    }
}

impl Default for State {
    fn default() -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            nodes: HashMap::new(),
            files: HashMap::new(),
            last: began.map_or(0, |began| began.as_nanos() as u64),
            is_handing_over: false,
        }
    }
}

impl State {
    fn find(&mut self, number: u64) -> Option<&mut Known> {
        let mut files = self.files.values_mut();
        files.find(|known| known.number == number)
    }

    /// Whether the service knows of a file. Nodes that come before are told with it.
    fn has_begun(&mut self, number: u64) -> bool {
        self.find(number).is_some_and(|known| known.has_begun)
    }

    /// The service knows of a file and of these nodes; which nodes have come meanwhile.
    fn begin(&mut self, number: u64, nodes: &[NodeId]) -> Vec<NodeId> {
        let Some(known) = self.find(number) else {
            return Vec::new();
        };
        known.has_begun = true;
        let told = known.told.keys();
        let late = told.filter(|node| !nodes.contains(node));
        late.copied().collect()
    }

    /// Forgets the file that was read longest ago, where there are too many.
    fn make_room(&mut self) {
        if self.files.len() >= MOST {
            let oldest = self.files.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.files.remove(&oldest);
            }
        }
    }
}

impl Known {
    fn new(key: Key, number: u64, now: Instant) -> Self {
        Self {
            key,
            number,
            readers: HashMap::new(),
            since: now,
            used: now,
            told: BTreeMap::new(),
            has_begun: false,
            object: None,
            brought: BTreeSet::new(),
            is_refused: false,
        }
    }
}

impl Key {
    /// Bytes of it that a node has asked for that reads it.
    fn part(&self) -> u64 {
        PART_LEAST.max(self.bytes / PART)
    }

    fn is_at_rest(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as i128);
        let changed = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1);
        now - changed >= AT_REST.as_nanos() as i128
    }
}

/// The key of a file that could be cast.
fn key_of(file: &File) -> Option<Key> {
    let stat = fstat(file).ok()?;
    let is_file = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
    let bytes = u64::try_from(stat.st_size).ok()?;
    let fits = (BYTES_LEAST..=MAX_OBJECT_BYTES).contains(&bytes);
    (is_file && fits).then_some(Key {
        bytes,
        changed: (stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// Whether it can be read by this descriptor.
fn is_readable(file: &File) -> bool {
    let flags = fcntl(file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    flags.is_ok_and(|flags| {
        let is_path = flags.contains(OFlag::O_PATH);
        !is_path && flags & OFlag::O_ACCMODE != OFlag::O_WRONLY
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::os::unix::net::UnixDatagram;

    fn at_rest(path: &std::path::Path) -> (Handles, Vec<Arc<Open>>) {
        std::fs::write(path, vec![7; BYTES_LEAST as usize + 5]).unwrap();
        std::thread::sleep(AT_REST + Duration::from_millis(20));
        let directory = File::open(path.parent().unwrap()).unwrap();
        let own = File::open("/proc/self/fd").expect("a directory");
        let handles = Handles::new(directory.into(), 1, own.into());
        let open = |rank: u32| {
            let room = handles.room(Rank(rank)).unwrap();
            let file = OwnedFd::from(File::open(path).unwrap());
            let stat = fstat(&file).unwrap();
            let handle = room.fill(file, (stat.st_dev, stat.st_ino)).unwrap();
            handles.get(Rank(rank), handle).unwrap()
        };
        let opened = (0..5).map(open).collect();
        (handles, opened)
    }

    /// Three nodes have read the file: what the service is to be told.
    fn wanted(reads: &Reads, handles: &Handles, open: &Arc<Open>) -> Wanted {
        let mut nodes = (0..3).map(|node| (Rank(node), NodeId(node)));
        let wanted = nodes.find_map(|who| reads.read(handles, who, open, PART_LEAST).1);
        wanted.expect("three nodes read it")
    }

    fn who(rank: u32) -> (Rank, NodeId) {
        (Rank(rank), NodeId(rank / 2))
    }

    #[test]
    fn three_nodes_have_a_file_cast_to_all_that_have_it_open_until_it_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (handles, opened) = at_rest(&path);
        let reads = Reads::default();
        let read = |rank: u32| reads.read(&handles, who(rank), &opened[rank as usize], PART_LEAST);
        for rank in 0..5 {
            let look = reads.read(&handles, who(rank), &opened[0], 100);
            assert!(look.1.is_none(), "it has a look at the file");
        }
        // Ranks 0 and 1 are on one node, 2 and 3 on another.
        for rank in [0, 1, 2, 0, 3] {
            assert!(matches!(read(rank), (Answer::Bytes, None)), "{rank}");
        }
        let wanted = read(4).1.expect("a third node");
        assert_eq!(wanted.nodes, [0, 1, 2].map(NodeId));
        assert!(wanted.content.is_some());
        assert!(matches!(read(4), (Answer::Coming, None)), "it is told once");
        let object = CastObject {
            id: [1; 32],
            bytes: BYTES_LEAST + 5,
        };
        reads.cast(&Cast {
            number: wanted.number,
            object: Some(object),
            nodes: vec![NodeId(0), NodeId(2)],
        });
        assert_eq!(read(0).0, Answer::Cast(object));
        assert_eq!(read(2).0, Answer::Coming, "not cast to that node yet");
        let late = reads.read(&handles, (Rank(9), NodeId(7)), &opened[0], PART_LEAST);
        let late = late.1.expect("a node that comes later");
        assert_eq!(late.nodes, [NodeId(7)]);
        assert!(late.content.is_none(), "the service has the bytes");
        std::fs::write(&path, vec![8; BYTES_LEAST as usize + 5]).unwrap();
        assert_eq!(read(0).0, Answer::Bytes, "it is another content");
    }

    #[test]
    fn a_file_that_is_written_small_or_refused_is_not_cast() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (handles, opened) = at_rest(&path);
        let reads = Reads::default();
        let read =
            |node: u32| reads.read(&handles, (Rank(node), NodeId(node)), &opened[0], PART_LEAST);
        let wanted = wanted(&reads, &handles, &opened[0]);
        reads.cast(&Cast {
            number: wanted.number,
            object: None,
            nodes: Vec::new(),
        });
        assert!((0..9).all(|node| matches!(read(node), (Answer::Bytes, None))));
        // Changed a moment ago.
        std::fs::write(&path, vec![8; BYTES_LEAST as usize + 5]).unwrap();
        assert!((0..9).all(|node| matches!(read(node), (Answer::Bytes, None))));
        std::fs::write(&path, b"small").unwrap();
        std::thread::sleep(AT_REST);
        assert!((0..9).all(|node| matches!(read(node), (Answer::Bytes, None))));
    }

    #[test]
    fn a_node_that_lacks_what_was_cast_is_answered_with_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, opened) = at_rest(&folder.path().join("file"));
        let reads = Reads::default();
        let wanted = wanted(&reads, &handles, &opened[0]);
        let object = CastObject {
            id: [1; 32],
            bytes: BYTES_LEAST + 5,
        };
        reads.cast(&Cast {
            number: wanted.number,
            object: Some(object),
            nodes: wanted.nodes,
        });
        let read = |node| {
            let who = (Rank(node), NodeId(node));
            reads.read(&handles, who, &opened[0], PART_LEAST)
        };
        reads.read_bytes(NodeId(1), &opened[0], object.bytes);
        assert_eq!(read(1).0, Answer::Cast(object), "it looks for the end");
        reads.read_bytes(NodeId(1), &opened[0], 4096);
        for _ in 0..2 {
            assert!(matches!(read(1), (Answer::Bytes, None)));
        }
        assert_eq!(read(2).0, Answer::Cast(object), "another node has it");
    }

    #[test]
    fn a_cast_of_a_process_before_is_of_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, opened) = at_rest(&folder.path().join("file"));
        let [before, reads] = [(); 2].map(|()| Reads::default());
        let number = wanted(&before, &handles, &opened[0]).number;
        let wanted = wanted(&reads, &handles, &opened[0]);
        assert_ne!(wanted.number, number);
        let bytes = BYTES_LEAST + 5;
        for (number, bytes) in [(number, bytes), (wanted.number, bytes + 1)] {
            reads.cast(&Cast {
                number,
                object: Some(CastObject { id: [1; 32], bytes }),
                nodes: wanted.nodes.clone(),
            });
            let (answer, _) = reads.read(&handles, who(0), &opened[0], PART_LEAST);
            assert!(!matches!(answer, Answer::Cast(_)), "{number}, {bytes}");
        }
    }

    #[test]
    fn who_may_not_read_a_file_is_not_given_its_cast() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (handles, opened) = at_rest(&path);
        let reads = Reads::default();
        let wanted = wanted(&reads, &handles, &opened[0]);
        let object = CastObject {
            id: [1; 32],
            bytes: BYTES_LEAST + 5,
        };
        reads.cast(&Cast {
            number: wanted.number,
            object: Some(object),
            nodes: wanted.nodes,
        });
        let of = |file: File| {
            let room = handles.room(Rank(0)).unwrap();
            let handle = room.fill(file.into(), opened[0].id).unwrap();
            let open = handles.get(Rank(0), handle).unwrap();
            reads.read(&handles, who(0), &open, PART_LEAST).0
        };
        let mut options = File::options();
        assert_eq!(
            of(options.read(true).open(&path).unwrap()),
            Answer::Cast(object)
        );
        let path_only = options.custom_flags(OFlag::O_PATH.bits());
        assert_eq!(of(path_only.open(&path).unwrap()), Answer::Bytes);
        let write_only = File::options().write(true).open(&path).unwrap();
        assert_eq!(of(write_only), Answer::Bytes);
    }

    #[test]
    fn a_node_that_comes_before_the_file_has_begun_is_told_behind_its_begin() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, opened) = at_rest(&folder.path().join("file"));
        let reads = Reads::default();
        let first = wanted(&reads, &handles, &opened[0]);
        let late = (Rank(9), NodeId(9));
        let late = reads.read(&handles, late, &opened[0], PART_LEAST).1;
        let (link, number, nodes) = (Link::default(), first.number, first.nodes.clone());
        let (worker, service) = UnixDatagram::pair().unwrap();
        service
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        link.connect(Arc::new(worker));
        let mut packet = vec![0; crate::message::MAX];
        std::thread::scope(|scope| {
            reads.hand_over(&link, late.expect("it is told of"));
            scope.spawn(|| reads.hand_over(&link, first));
            let mut next = || {
                let length = service.recv(&mut packet).unwrap();
                let (of, said) = FromReads::parse(&packet[..length]).unwrap();
                assert_eq!(of, number);
                match said {
                    FromReads::Begins(_, nodes) => (1, nodes),
                    FromReads::Piece(_) => (2, Vec::new()),
                    FromReads::Ends(_) => (3, Vec::new()),
                    FromReads::More(nodes) => (4, nodes),
                }
            };
            assert_eq!(next(), (1, nodes));
            assert_eq!(next(), (4, vec![NodeId(9)]));
            while next().0 != 3 {}
        });
        let more = (Rank(8), NodeId(8));
        let more = reads.read(&handles, more, &opened[0], PART_LEAST).1;
        reads.hand_over(&link, more.expect("it is told of"));
        let length = service.recv(&mut packet).unwrap();
        let said = FromReads::More(vec![NodeId(8)]).packet(number);
        assert_eq!(packet[..length], said);
    }
}
