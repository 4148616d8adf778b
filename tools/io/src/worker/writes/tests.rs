//! Pieces in all orders, and what the file holds after each.

use std::fs::File;

use netstack::files::{Op, WORKING};
use netstack::ids::Rank;
use nix::libc;

use super::*;
use crate::worker::calls::carry_out;
use crate::worker::handles::Handles;

const RANK: Rank = Rank(3);
const PIECE: usize = 1000;
const APPEND: u64 = libc::O_APPEND as u64;

struct Worker {
    handles: Handles,
    folder: tempfile::TempDir,
}

impl Worker {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let directory = File::open(folder.path()).expect("a directory");
        let own = File::open("/proc/self/fd").expect("a directory");
        let handles = Handles::new(directory.into(), 1, own.into());
        Self { handles, folder }
    }

    fn open(&self, flags: u64) -> u32 {
        let flags = flags | (libc::O_RDWR | libc::O_CREAT) as u64;
        let call = Call::new(Op::Open, WORKING).with_words([flags, 0o600]);
        let call = call.with_input(b"file".to_vec()).with_room(200);
        let reply = carry_out(&self.handles, (RANK, 1), &call, false).expect("opened");
        u32::try_from(reply.result).expect("a handle")
    }

    fn file(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("file")).expect("there")
    }

    /// A piece of the write that begins at `begin` and whose first call has number `first`.
    fn piece(
        &self,
        (handle, first, number): (u32, u64, u64),
        begin: u64,
        (at, total): (usize, usize),
        bytes: &[u8],
    ) -> Result<(i64, Vec<u64>), Errno> {
        let first = if first == number { 0 } else { first };
        let words = [begin + at as u64, first, at as u64, total as u64];
        let call = Call::new(Op::Write, handle).with_words(words);
        let call = call.with_input(bytes.to_vec()).with_room(16);
        let reply = carry_out(&self.handles, (RANK, number), &call, false)?;
        let (words, _) = reply.output.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        Ok((reply.result, words.collect()))
    }

    fn has_writes(&self, handle: u32) -> bool {
        let open = self.handles.get(RANK, handle).expect("open");
        let writes = open.writes.0.lock().expect("a lock");
        !writes.is_empty()
    }
}

fn text(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + seed) as u8).collect()
}

/// All orders of four pieces.
fn orders() -> Vec<[usize; 4]> {
    let all = (0..256).map(|number| [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6]);
    let is_order = |order: &[usize; 4]| (0..4).all(|piece| order.contains(&piece));
    all.filter(is_order).collect()
}

#[test]
fn a_piece_is_written_when_all_before_it_are() {
    let whole = text(4 * PIECE - 300, 1);
    assert_eq!(orders().len(), 24);
    for order in orders() {
        let worker = Worker::new();
        let handle = worker.open(0);
        let mut come = [false; 4];
        for index in order {
            come[index] = true;
            let at = index * PIECE;
            let bytes = &whole[at..(at + PIECE).min(whole.len())];
            let name = (handle, 10, 10 + index as u64);
            let said = worker.piece(name, 50, (at, whole.len()), bytes);
            let before = come.iter().take_while(|come| **come).count();
            let written = (before * PIECE).min(whole.len());
            assert_eq!(said, Ok((0, vec![written as u64])));
            let expected = match written {
                0 => Vec::new(),
                _ => [&[0; 50], &whole[..written]].concat(),
            };
            assert!(worker.file() == expected, "{order:?}: a hole");
        }
        assert!(!worker.has_writes(handle));
    }
}

#[test]
fn an_append_is_one_record() {
    let records = [text(4 * PIECE, 1), text(4 * PIECE, 99)];
    for order in orders() {
        let worker = Worker::new();
        let handles = [worker.open(APPEND), worker.open(APPEND)];
        let mut ends = Vec::new();
        // Piece by piece of two records, the second of which comes in the other order.
        for (turn, index) in order.into_iter().enumerate() {
            for (which, index) in [(0, index), (1, order[3 - turn])] {
                let first = 10 + 100 * which as u64;
                let name = (handles[which], first, first + index as u64);
                let bytes = &records[which][index * PIECE..][..PIECE];
                let said = worker.piece(name, 0, (index * PIECE, 4 * PIECE), bytes);
                let (result, words) = said.expect("taken");
                assert_eq!(result, 0);
                match turn {
                    3 => ends.push(words),
                    _ => assert_eq!((words, worker.file().len()), (vec![0], 0)),
                }
            }
        }
        let length = 4 * PIECE as u64;
        assert_eq!(ends, [[length, length], [length, 2 * length]]);
        assert!(worker.file() == records.concat());
        assert!(!handles.iter().any(|handle| worker.has_writes(*handle)));
    }
}

#[test]
fn what_is_longer_than_a_record_is_appended_in_several() {
    let worker = Worker::new();
    let handle = worker.open(APPEND);
    let pieces = RECORD_MAX as usize / MAX_TRANSFER + 2;
    let total = pieces * MAX_TRANSFER;
    let whole = text(total, 5);
    for index in 0..pieces {
        let at = index * MAX_TRANSFER;
        let name = (handle, 10, 10 + index as u64);
        let bytes = &whole[at..][..MAX_TRANSFER];
        let (_, words) = worker.piece(name, 0, (at, total), bytes).expect("taken");
        let end = (index + 1) * MAX_TRANSFER;
        let written = match end == total {
            true => end as u64,
            false => end as u64 / RECORD_MAX * RECORD_MAX,
        };
        assert_eq!((words[0], worker.file().len() as u64), (written, written));
    }
    assert!(worker.file() == whole);
}

#[test]
fn a_write_that_is_cut_short_ends_with_what_has_come() {
    for (flags, end) in [(0, None), (APPEND, Some(2 * PIECE as u64))] {
        let worker = Worker::new();
        let handle = worker.open(flags);
        let whole = text(2 * PIECE, 3);
        for index in 0..2 {
            let name = (handle, 10, 10 + index as u64);
            let bytes = &whole[index * PIECE..][..PIECE];
            let said = worker.piece(name, 0, (index * PIECE, 9 * PIECE), bytes);
            assert_eq!(said.map(|(result, _)| result), Ok(0));
        }
        assert!(worker.has_writes(handle));
        let said = worker.piece((handle, 10, 12), 0, (2 * PIECE, 2 * PIECE), b"");
        let words = [Some(2 * PIECE as u64), end];
        assert_eq!(said, Ok((0, words.into_iter().flatten().collect())));
        assert!(worker.file() == whole);
        assert!(!worker.has_writes(handle));
    }
}

#[test]
fn what_is_no_piece_is_refused_and_writes_are_bounded() {
    let worker = Worker::new();
    let handle = worker.open(0);
    let far = RECORD_MAX as usize * 9;
    for (at, total, offset) in [(500, 600, 0), (0, PIECE - 1, 0), (far, far + PIECE, far)] {
        let words = [offset as u64, 0, at as u64, total as u64];
        let call = Call::new(Op::Write, handle).with_words(words);
        let call = call.with_input(vec![1; PIECE]).with_room(16);
        let said = carry_out(&worker.handles, (RANK, 7), &call, false);
        assert_eq!(said, Err(Errno::EINVAL));
    }
    assert!(worker.file().is_empty());
    assert!(!worker.has_writes(handle), "what is refused has not begun");
    let second = |write: u64| {
        let name = (handle, 5 + write, 900);
        worker.piece(name, 0, (PIECE, 2 * PIECE), &[1; PIECE])
    };
    for write in 0..MOST as u64 {
        assert_eq!(second(write), Ok((0, vec![0])));
    }
    for write in MOST as u64..3 * MOST as u64 {
        assert_eq!(second(write), Err(Errno::ENOBUFS));
    }
    // Those that had begun go on.
    let said = worker.piece((handle, 5, 5), 0, (0, 2 * PIECE), &[1; PIECE]);
    assert_eq!(said, Ok((0, vec![2 * PIECE as u64])));
    assert_eq!(second(MOST as u64), Ok((0, vec![0])), "there is room again");
    // Nobody has waited for one for long.
    let open = worker.handles.get(RANK, handle).expect("open");
    if let Some(long_ago) = Instant::now().checked_sub(OVER) {
        let writes = open.writes.0.lock().expect("a lock");
        let long = writes.first_key_value().expect("they have begun").1;
        long.lock().expect("a lock").heard = Some(long_ago);
        drop(writes);
        assert_eq!(second(3 * MOST as u64), Ok((0, vec![0])));
    }
    assert_eq!(open.writes.0.lock().expect("a lock").len(), MOST);
}

#[test]
fn pieces_that_never_become_a_write_are_not_kept_without_end() {
    let worker = Worker::new();
    let handle = worker.open(APPEND);
    let total = 1 << 40;
    let piece = |at: u64, length: usize| {
        worker.piece((handle, 5, 900), 0, (at as usize, total), &vec![7; length])
    };
    let refused = Err(Errno::EINVAL);
    // All but the first.
    assert_eq!(piece(AHEAD_MAX - 1, 2), refused);
    assert!(!worker.has_writes(handle));
    assert_eq!(piece(1, MAX_TRANSFER), Ok((0, vec![0])));
    for at in [0, 1, 2, MAX_TRANSFER as u64] {
        assert_eq!(piece(at, MAX_TRANSFER), refused, "over another, at {at}");
    }
    assert_eq!(piece(1 + MAX_TRANSFER as u64, 1), Ok((0, vec![0])));
    let kept = (0..).find(|more| piece(4 + 2 * MAX_TRANSFER as u64 + 2 * more, 1) == refused);
    assert_eq!(kept, Some(PIECES_MAX as u64 - 2));
    // What is written already is not kept.
    let handle = worker.open(0);
    let again = |at| worker.piece((handle, 6, 900), 0, (at, 3 * PIECE), &[7; PIECE]);
    assert_eq!(again(0), Ok((0, vec![PIECE as u64])));
    assert_eq!(again(0), refused);
    assert_eq!(again(PIECE / 2), refused);
}
