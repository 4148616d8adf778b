use super::*;

fn put(store: &ProgramStore, content: &[u8]) -> Result<Program, StoreError> {
    let mut upload = store.receive(
        "ann",
        *blake3::hash(content).as_bytes(),
        content.len() as u64,
    )?;
    upload.write(content)?;
    upload.finish()
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_program_is_kept_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    let hash = put(&store, b"program").unwrap().hash();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    let program = store.get(&hash).unwrap();
    assert_eq!(program.bytes(), 7);
    assert_eq!(program.read_at(3, 100).unwrap(), b"gram");
    assert_eq!(program.read_at(100, 10).unwrap(), b"");
}

#[test]
fn a_file_that_nobody_uses_is_not_open() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 1_000_000, 1000).unwrap();
    let before = open();
    let hashes: Vec<Hash> = (0..600)
        .map(|number: u32| put(&store, &number.to_le_bytes()).unwrap().hash())
        .collect();
    // Other tests run beside this one and open some.
    assert!(open() < before + 300, "{} files are open", open());
    let used = store.get(&hashes[7]).unwrap();
    assert_eq!(used.read_at(0, 4).unwrap(), 7u32.to_le_bytes());
    drop((used, store));
    let store = ProgramStore::open(dir.path(), 1_000_000, 1000).unwrap();
    assert!(open() < before + 300, "{} files are open", open());
    assert!(hashes.iter().all(|hash| store.get(hash).is_some()));
}

#[test]
fn a_damaged_file_is_neither_taken_nor_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    let mut upload = store.receive("ann", [7; 32], 3).unwrap();
    upload.write(b"abc").unwrap();
    assert!(matches!(upload.finish(), Err(StoreError::WrongHash { .. })));
    drop(store.receive("ann", [8; 32], 3).unwrap());
    assert_eq!(files(dir.path()), 0);
    let hash = put(&store, b"whole").unwrap().hash();
    std::fs::write(store.path_of(&hash), b"other").unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    assert!(store.get(&hash).is_none());
    assert_eq!(files(dir.path()), 0);
    put(&store, b"whole").unwrap();
    assert!(store.get(&hash).is_some());
}

#[test]
fn an_opening_reads_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    let hash = put(&store, b"whole").unwrap().hash();
    // Damage that only a look at the content shows.
    std::fs::write(store.path_of(&hash), b"other").unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    assert_eq!(files(dir.path()), 2, "it and who has sent it");
    assert!(store.get(&hash).is_none());
}

#[test]
fn a_file_that_cannot_be_read_for_once_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    let hash = put(&store, b"whole").unwrap().hash();
    let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
    // A folder can be opened and not read.
    let (path, aside) = (store.path_of(&hash), dir.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(store.get(&hash).is_none());
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    let again = store.get(&hash).unwrap();
    assert_eq!(again.read_at(0, 5).unwrap(), b"whole");
}

#[test]
fn uploads_that_end_together_keep_the_bound() {
    for round in 0..200u32 {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::open(dir.path(), 30, 10).unwrap();
        // Three go in, of which nobody uses one.
        for old in 0..2u32 {
            let content = [&old.to_le_bytes()[..], b"kept.."].concat();
            put(&store, &content).unwrap();
        }
        let uploads: Vec<Upload> = (2..4u32)
            .map(|new| {
                let content = [&new.to_le_bytes()[..], b"new..."].concat();
                let mut upload = store
                    .receive("ann", *blake3::hash(&content).as_bytes(), 10)
                    .unwrap();
                upload.write(&content).unwrap();
                upload
            })
            .collect();
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for upload in uploads {
                scope.spawn(|| {
                    together.wait();
                    upload.finish().unwrap();
                });
            }
        });
        let bytes = store.index().total_bytes;
        assert!(bytes <= 30, "round {round}: {bytes} bytes of 30");
    }
}

#[test]
fn what_has_not_arrived_evicts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 10, 8).unwrap();
    let kept = put(&store, b"abcdef").unwrap().hash();
    let content = b"ABCDEFGH";
    let mut upload = store
        .receive("ann", *blake3::hash(content).as_bytes(), 8)
        .unwrap();
    upload.write(b"ABCD").unwrap();
    assert!(store.get(&kept).is_some());
    drop(upload);
    assert!(store.get(&kept).is_some());
    put(&store, content).unwrap();
    assert!(store.get(&kept).is_none());
}

#[test]
fn the_list_of_page_hashes_is_kept_beside_the_program_and_proven() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..20_000u32).map(|at| (at / 97) as u8).collect();
    let open = || ProgramStore::open(dir.path(), 100_000, 100_000).unwrap();
    let program = put(&open(), &content).unwrap();
    assert_eq!(program.page_hashes(), Err(NoList::Yet));
    let list = program.make_page_hashes().unwrap();
    assert_eq!(list.len(), 5 * 32);
    assert_eq!(program.page_hashes(), Ok(list));
    assert_eq!(files(dir.path()), 3);
    // It survives a restart, and a damaged one is made anew.
    let path = page_list::beside(&dir.path().join(crate::secrets::encode_hex(&program.hash())));
    assert_eq!(std::fs::read(&path).unwrap(), list);
    std::fs::write(&path, vec![7; list.len()]).unwrap();
    let again = open().get(&program.hash()).unwrap();
    assert_eq!(again.make_page_hashes(), Ok(list));
    assert_eq!(std::fs::read(&path).unwrap(), list);
    // Without its program it goes.
    std::fs::remove_file(path.with_extension("")).unwrap();
    drop(open());
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn uploads_under_way_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 10, 8).unwrap();
    let first = store.receive("ann", [1; 32], 6).unwrap();
    assert!(matches!(
        store.receive("ann", [2; 32], 6),
        Err(StoreError::Full { .. })
    ));
    drop(first);
    let mut second = store.receive("ann", [2; 32], 6).unwrap();
    second.write(b"123456").unwrap();
    assert!(matches!(
        second.write(b"7"),
        Err(StoreError::Longer { promised: 6 })
    ));
    drop(second);
    let kept = put(&store, b"abcdef").unwrap();
    assert!(matches!(
        store.receive("ann", [3; 32], 5),
        Err(StoreError::Full { .. })
    ));
    drop(kept);
    assert!(store.receive("ann", [3; 32], 5).is_ok());
}

#[test]
fn the_store_is_bounded_and_spares_programs_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(dir.path(), 10, 8).unwrap();
    assert!(matches!(
        store.receive("ann", [0; 32], 9),
        Err(StoreError::TooLarge { limit: 8 })
    ));
    let used = put(&store, b"aaaaa").unwrap();
    let idle = put(&store, b"bbbbb").unwrap().hash();
    put(&store, b"ccccc").unwrap();
    assert!(store.get(&idle).is_none());
    assert!(store.get(&used.hash()).is_some());
    let _all_used = store.get(blake3::hash(b"ccccc").as_bytes());
    assert!(matches!(
        put(&store, b"ddddd"),
        Err(StoreError::Full { limit: 10 })
    ));
    assert_eq!(used.read_at(0, 5).unwrap(), b"aaaaa");
}

#[test]
fn a_file_is_given_to_those_who_have_sent_it_and_to_operators() {
    let dir = tempfile::tempdir().unwrap();
    let open = || ProgramStore::open(dir.path(), 100, 100).unwrap();
    let user = |name: &str, role| Principal {
        name: name.to_string(),
        identity: None,
        role,
        is_owner: false,
    };
    let theirs = |store: &ProgramStore, hash: &Hash| {
        let named = ["ann", "bob", ""].map(|name| user(name, Role::User));
        let named = named.map(|by| store.is_theirs(&by, hash));
        assert!(store.is_theirs(&user("root", Role::Operator), hash));
        named
    };
    let send = |store: &ProgramStore, owner: &str, content: &[u8], sent: &[u8]| {
        let hash = *blake3::hash(content).as_bytes();
        let mut upload = store.receive(owner, hash, content.len() as u64).unwrap();
        upload.write(sent).unwrap();
        upload.finish().map(|program| program.hash())
    };
    let store = open();
    let hash = send(&store, "ann", b"secret", b"secret").unwrap();
    assert_eq!(theirs(&store, &hash), [true, false, false]);
    // Who knows the hash alone has nothing to send.
    assert!(send(&store, "bob", b"secret", b"guess!").is_err());
    assert_eq!(theirs(&store, &hash), [true, false, false]);
    // Also after a restart.
    let store = open();
    assert_eq!(theirs(&store, &hash), [true, false, false]);
    send(&store, "bob", b"secret", b"secret").unwrap();
    assert_eq!(theirs(&store, &hash), [true, true, false]);
    let store = open();
    assert_eq!(theirs(&store, &hash), [true, true, false]);
    // What went is nobody's.
    send(&store, "eve", &[7; 100], &[7; 100]).unwrap();
    assert_eq!(theirs(&store, &hash), [false, false, false]);
    drop(open());
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "a file and its list: {left:?}");
}
