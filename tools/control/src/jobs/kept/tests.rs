use super::*;

const NO_CALL: CallAt = CallAt {
    attempt: 0,
    call: 0,
};

fn text(item: Option<Item>) -> String {
    match item {
        Some(Item::Output { rank, fd, data, .. }) => {
            format!("{rank}/{fd} {}", String::from_utf8_lossy(&data))
        }
        Some(Item::Frame(Frame::Notice { text })) => format!("notice {text}"),
        Some(Item::Frame(Frame::Fault { rank, node, text })) => {
            format!("fault {rank} {node} {text}")
        }
        other => panic!("{other:?}"),
    }
}

fn all(outputs: &Outputs, job: u64) -> Vec<String> {
    let Some(mut reader) = outputs.follow(job) else {
        return Vec::new();
    };
    std::iter::from_fn(|| reader.try_next().map(|item| text(Some(item)))).collect()
}

#[tokio::test]
async fn a_reader_follows_until_the_job_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    assert!(outputs.follow(7).is_none());
    let kept = outputs.begin(7);
    let mut reader = outputs.follow(7).unwrap();
    let follow = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(item) = reader.next().await {
            seen.push(text(Some(item)));
        }
        seen
    });
    tokio::task::yield_now().await;
    kept.output(3, 2, NO_CALL, b"two\n");
    tokio::task::yield_now().await;
    kept.frame(&Frame::Fault {
        rank: 1,
        node: "n4".to_string(),
        text: "SIGSEGV".to_string(),
    });
    assert!(!follow.is_finished());
    kept.close();
    assert_eq!(follow.await.unwrap(), ["3/2 two\n", "fault 1 n4 SIGSEGV"]);
    let mut later = outputs.follow(7).unwrap();
    later.skip(1);
    assert_eq!(text(later.try_next()), "fault 1 n4 SIGSEGV");
    assert!(later.try_next().is_none());
    assert_eq!(all(&outputs, 7).len(), 2, "it can be read again");
}

#[test]
fn a_reader_of_the_last_bytes_begins_with_a_whole_record() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let kept = outputs.begin(1);
    for (call, line) in [(1, &b"one\n"[..]), (2, b"two\n"), (3, b"three\n")] {
        let attempt = 0;
        kept.output(0, 1, CallAt { attempt, call }, line);
    }
    let last = |most| {
        let mut reader = outputs.follow(1).unwrap();
        let left_out = reader.skip_to_last(most);
        let items: Vec<_> =
            std::iter::from_fn(|| reader.try_next().map(|item| text(Some(item)))).collect();
        (left_out, items.join(""))
    };
    assert_eq!(last(100), (0, "0/1 one\n0/1 two\n0/1 three\n".to_string()));
    assert_eq!(last(11), (4, "0/1 two\n0/1 three\n".to_string()));
    assert_eq!(last(9), (8, "0/1 three\n".to_string()));
    assert_eq!(last(0), (8, "0/1 three\n".to_string()), "never nothing");
    // What comes later is read too.
    let mut reader = outputs.follow(1).unwrap();
    reader.skip_to_last(0);
    kept.output(0, 1, NO_CALL, b"four\n");
    assert_eq!(text(reader.try_next()), "0/1 three\n");
    assert_eq!(text(reader.try_next()), "0/1 four\n");
}

#[test]
fn a_job_goes_on_after_a_restart_behind_its_last_whole_record() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let kept = outputs.begin(1);
    kept.output(0, 1, NO_CALL, b"one");
    kept.output(0, 1, NO_CALL, b"two");
    drop(kept);
    let path = dir.path().join("1.out");
    let length = std::fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(length - 1).unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    assert_eq!(all(&outputs, 1), ["0/1 one"], "also while it is torn");
    let kept = outputs.go_on(1);
    kept.output(0, 1, NO_CALL, b"three");
    assert_eq!(all(&outputs, 1), ["0/1 one", "0/1 three"]);
    assert_eq!(kept.sum().bytes, 8, "what the program wrote");
}

#[test]
fn what_is_too_much_is_dropped_counted_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 40, 10_000).unwrap();
    let kept = outputs.begin(1);
    for _ in 0..5 {
        kept.output(0, 1, NO_CALL, b"12345678");
    }
    let sum = kept.sum();
    assert_eq!(
        (sum.bytes, sum.dropped_bytes),
        (16, 24),
        "all that was written"
    );
    let seen = all(&outputs, 1);
    assert_eq!(seen[..2], ["0/1 12345678", "0/1 12345678"]);
    assert!(
        seen[2].contains("beyond 40 bytes") && seen.len() == 3,
        "{seen:?}"
    );
}

#[test]
fn what_jobs_wrote_that_are_over_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 300).unwrap();
    for job in 1..=3 {
        outputs.begin(job).output(0, 1, NO_CALL, &[b'x'; 80]);
    }
    let (first, second) = (outputs.begin(8), outputs.begin(9));
    first.output(0, 1, NO_CALL, &[b'x'; 80]);
    assert!(all(&outputs, 1).is_empty(), "the oldest went");
    assert_eq!(all(&outputs, 2).len(), 1);
    assert!(!dir.path().join("1.out").exists());
    second.output(0, 1, NO_CALL, &[b'x'; 180]);
    first.output(0, 1, NO_CALL, &[b'x'; 80]);
    assert_eq!((first.sum().dropped_bytes, all(&outputs, 3).len()), (80, 0));
    assert_eq!(
        all(&outputs, 9).len(),
        1,
        "of jobs that are not over nothing goes"
    );
}

#[test]
fn a_call_that_comes_again_after_a_restart_is_in_the_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |attempt, call| CallAt { attempt, call };
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let kept = outputs.begin(1);
    kept.output(0, 1, at(0, 1), b"a");
    kept.output(1, 1, at(0, 7), b"b");
    drop(kept);
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let kept = outputs.go_on(1);
    kept.output(0, 1, at(0, 1), b"a");
    kept.output(1, 1, at(0, 7), b"b");
    kept.output(0, 2, at(0, 2), b"c");
    // Another attempt counts its calls anew.
    kept.output(1, 1, at(1, 1), b"d");
    drop(kept);
    let kept = Outputs::open(dir.path(), 1_000, 10_000).unwrap().go_on(1);
    assert_eq!(kept.sum().bytes, 4);
    kept.output(1, 1, at(1, 1), b"d");
    kept.output(0, 1, at(1, 1), b"e");
    assert_eq!(
        all(&outputs, 1),
        ["0/1 a", "1/1 b", "0/2 c", "1/1 d", "0/1 e"]
    );
}

#[test]
fn a_new_job_does_not_go_on_in_a_file_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    outputs.begin(4).output(0, 1, NO_CALL, b"of another job");
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    assert_eq!(outputs.highest(), 4, "jobs are numbered behind it");
    let kept = outputs.begin(4);
    assert!(all(&outputs, 4).is_empty());
    kept.output(0, 1, NO_CALL, b"new");
    assert_eq!(all(&outputs, 4), ["0/1 new"]);
    assert_eq!(outputs.index().total, 15);
}

/// Makes a file fail: as root nothing else does.
fn put_aside(path: &Path) -> PathBuf {
    let aside = path.with_extension("aside");
    std::fs::rename(path, &aside).unwrap();
    std::fs::create_dir(path).unwrap();
    aside
}

fn bring_back(aside: &Path, path: &Path) {
    std::fs::remove_dir(path).unwrap();
    std::fs::rename(aside, path).unwrap();
}

#[test]
fn a_file_that_cannot_be_opened_after_a_restart_is_waited_for_and_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    let at = |call| CallAt { attempt: 0, call };
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    assert_eq!(outputs.begin(1).output(0, 1, at(1), b"one"), Taken::Yes);
    let path = dir.path().join("1.out");
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let aside = put_aside(&path);
    let kept = outputs.go_on(1);
    assert_eq!(kept.output(0, 1, at(2), b"two"), Taken::Later);
    assert!(kept.trouble().is_some());
    assert_eq!(kept.sum().dropped_bytes, 0);
    bring_back(&aside, &path);
    // A call of before the restart is known again, and the next one goes behind it.
    assert_eq!(kept.output(0, 1, at(1), b"one"), Taken::Yes);
    assert_eq!(kept.output(0, 1, at(2), b"two"), Taken::Yes);
    assert!(kept.trouble().is_none());
    assert_eq!(all(&outputs, 1), ["0/1 one", "0/1 two"]);
    assert_eq!(kept.sum().bytes, 6);
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(outputs.index().total, length);
}

/// A file of which the disk cannot read what lies behind some bytes.
struct BadDisk {
    good: io::Cursor<Vec<u8>>,
}

impl Read for BadDisk {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.good.read(buffer)? {
            0 => Err(io::Error::from_raw_os_error(nix::libc::EIO)),
            bytes => Ok(bytes),
        }
    }
}

impl Seek for BadDisk {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.good.seek(to)
    }
}

#[test]
fn what_the_disk_cannot_read_is_not_taken_for_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
    let kept = outputs.begin(1);
    for data in [b"one", b"two"] {
        kept.output(0, 1, NO_CALL, data);
    }
    let bytes = std::fs::read(dir.path().join("1.out")).unwrap();
    let (whole, record) = (bytes.len() as u64, bytes.len() / 2);
    let read = |bytes: &[u8]| Records::read(io::Cursor::new(bytes), whole).unwrap().end;
    assert_eq!(read(&bytes), whole);
    assert_eq!(read(&bytes[..record]), record as u64, "it ends there");
    // At a header, and within one.
    for good in [0, 5, record, record + 5] {
        let good = io::Cursor::new(bytes[..good].to_vec());
        let error = Records::read(BadDisk { good }, whole).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EIO));
    }
}

#[test]
fn what_was_dropped_is_counted_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Outputs::open(dir.path(), 40, 10_000).unwrap();
    let kept = open().begin(1);
    for _ in 0..5 {
        assert_eq!(kept.output(0, 1, NO_CALL, b"12345678"), Taken::Yes);
    }
    drop(kept);
    let outputs = open();
    let kept = outputs.go_on(1);
    assert_eq!((kept.sum().bytes, kept.sum().dropped_bytes), (16, 24));
    kept.output(0, 1, NO_CALL, b"12345678");
    kept.give_up(5);
    assert_eq!(all(&outputs, 1).len(), 3, "one notice");
    drop(kept);
    assert_eq!(open().go_on(1).sum().dropped_bytes, 37);
}
