use super::*;

/// What came of a piece at commit `c`.
fn piece(part: Part, piece: u32, passed: u64, failed: u64) -> Piece {
    let checks = Checks {
        passed,
        failed,
        what_failed: vec!["x".into(); failed as usize],
    };
    Piece {
        commit: "c".to_owned(),
        part: part.label().to_owned(),
        piece,
        checks,
    }
}

fn at(commit: &str, mut piece: Piece) -> Piece {
    piece.commit = commit.to_owned();
    piece
}

fn kept(pieces: &[Piece]) -> Kept {
    Kept {
        pieces: pieces.to_vec(),
    }
}

fn results(folder: &Path) -> Results {
    Results {
        pieces: folder.join("pieces.json"),
        sums: folder.join("sums.json"),
        lock: folder.join("lock"),
    }
}

#[test]
fn shares_have_every_piece_once() {
    let nothing = kept(&[]);
    for of in 1..=5 {
        for (part, pieces) in PARTS {
            let shards = (1..=of).map(|number| Shard { number, of });
            let lists = shards.map(|shard| left(&nothing, "c", shard, part));
            let lists: Vec<_> = lists.collect();
            let mut all = lists.concat();
            all.sort_unstable();
            assert_eq!(all, (0..pieces).collect::<Vec<_>>());
            let sizes = lists.iter().map(Vec::len);
            let (least, most) = (sizes.clone().min(), sizes.max());
            assert!(most <= least.map(|least| least + 1), "{lists:?}");
        }
    }
    assert_eq!("2/3".parse(), Ok(Shard { number: 2, of: 3 }));
    for wrong in ["0/3", "4/3", "1", "1/0", "a/b", "-1/2"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

#[test]
fn what_passed_is_not_run_again_at_the_same_commit_and_what_failed_or_counted_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let results = results(folder.path());
    for piece in [
        piece(Part::Soak, 0, 9, 0),
        piece(Part::Soak, 2, 8, 1),
        piece(Part::Soak, 4, 0, 0),
        piece(Part::Kernel, 1, 4, 0),
    ] {
        results.put(piece).unwrap();
    }
    let left = |commit| left(&results.read(), commit, Shard::WHOLE, Part::Soak);
    assert_eq!(left("c"), [1, 2, 3, 4, 5, 6, 7]);
    results.put(piece(Part::Soak, 2, 9, 0)).unwrap();
    assert_eq!(left("c"), [1, 3, 4, 5, 6, 7]);
    assert_eq!(results.read().pieces.len(), 4);
    assert_eq!(left("d").len(), 8);
    // Half of a file is nothing, and so is one of another form.
    for text in ["{\"pieces\": [", "{\"commit\": \"c\", \"pieces\": [{}]}"] {
        fs::write(&results.pieces, text).unwrap();
        assert_eq!(results.read(), kept(&[]));
    }
    assert!(expect_some(Checks::default()).is_err());
}

#[test]
fn runs_at_once_lose_no_piece_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let of = 4;
    std::thread::scope(|scope| {
        for number in 1..=of {
            let results = results(folder.path());
            scope.spawn(move || {
                for (part, _) in PARTS {
                    for left in left(&results.read(), "c", Shard { number, of }, part) {
                        results.put(piece(part, left, 1, 0)).unwrap();
                        results.write_sums("c").unwrap();
                    }
                }
            });
        }
    });
    let results = results(folder.path());
    let all: u32 = PARTS.iter().map(|(_, pieces)| pieces).sum();
    assert_eq!(results.read().pieces.len() as u32, all);
    let rows = rows_of(&fs::read_to_string(&results.sums).unwrap()).unwrap();
    assert_eq!(rows.len(), PARTS.len());
    assert!(rows.iter().all(|row| row.pieces == row.of), "{rows:?}");
}

#[test]
fn pieces_of_another_commit_stay_and_do_not_count() {
    let mut kept = kept(&[]);
    kept.put(piece(Part::Fuzz, 0, 1, 0));
    kept.put(at("d", piece(Part::Fuzz, 1, 7, 2)));
    kept.put(at("d", piece(Part::Fuzz, 0, 3, 0)));
    let sum = |commit| {
        let (checks, pieces) = kept.sum(commit, Part::Fuzz.label());
        (checks.passed, checks.failed, pieces)
    };
    assert_eq!(
        [sum("c"), sum("d"), sum("e")],
        [(1, 0, 1), (10, 2, 2), (0, 0, 0)]
    );
    // Those of old commits go.
    for commit in 1..COMMITS_MOST {
        kept.put(at(&commit.to_string(), piece(Part::Fuzz, 0, 1, 0)));
    }
    let (_, pieces) = kept.sum("c", Part::Fuzz.label());
    assert_eq!((pieces, kept.pieces.len()), (0, COMMITS_MOST + 1));
}

#[test]
fn a_run_is_of_a_commit_without_changes() {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(folder.path());
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        output_of(git.args(arguments)).unwrap()
    };
    let workspace = Workspace::at(folder.path());
    assert!(commit(&workspace).is_err(), "there is no git");
    let file = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
    git(&["init", "-q"]);
    file("a");
    git(&["add", "a"]);
    git(&["commit", "-q", "-m", "a"]);
    let first = commit(&workspace).unwrap();
    assert_eq!(first.len(), 12);
    file("b");
    let error = commit(&workspace).unwrap_err().to_string();
    assert!(error.contains("?? b"), "{error}");
    git(&["add", "b"]);
    git(&["commit", "-q", "-m", "b"]);
    assert_ne!(commit(&workspace).unwrap(), first);
    // The result alone is no change.
    fs::create_dir(folder.path().join("tests")).unwrap();
    file(RESULT);
    assert!(commit(&workspace).is_ok());
}

#[test]
fn the_result_sums_pieces_up_and_leaves_parts_alone_that_were_not_run() {
    let first = kept(&[piece(Part::Fuzz, 0, 1, 0), piece(Part::Soak, 0, 9, 0)]);
    let before = result("", &first, "c").unwrap();
    let mut then = first;
    then.put(at("d", piece(Part::Soak, 1, 7, 2)));
    then.put(at("d", piece(Part::Soak, 4, 3, 0)));
    let rows = rows_of(&result(&before, &then, "d").unwrap()).unwrap();
    let [fuzz, soak] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!((fuzz.part.as_str(), fuzz.commit.as_str()), ("fuzz", "c"));
    assert_eq!((soak.commit.as_str(), soak.pieces, soak.of), ("d", 2, 8));
    assert_eq!((soak.passed, soak.failed), (10, 2));
    assert!(result("no list", &then, "d").is_err());
}

#[test]
fn every_card_of_qemu_has_its_pieces() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |file: &str| fs::read_to_string(format!("{root}/{file}")).unwrap();
    let cards = read("qemu/src/card.rs");
    let (_, names) = cards.split_once("pub fn name(self)").unwrap();
    let (names, _) = names.split_once("pub(crate) fn").unwrap();
    let tests = read("tools/boot/tests/qemu/on_request/cards.rs");
    for card in CARDS {
        assert!(names.contains(&format!("\"{card}\"")), "{card}");
        assert!(tests.contains(&format!("tests_of!({card}, ")), "{card}");
    }
    assert_eq!(names.matches("Self::").count(), CARDS.len());
    assert_eq!(tests.matches("tests_of!(").count(), CARDS.len());
    let of = |part| (0..pieces(part)).map(move |piece| card_of(part, piece));
    let cards = CARDS.map(Some);
    for part in [Part::EndToEnd, Part::Qemu] {
        assert_eq!(Vec::from_iter(of(part).skip(1)), cards);
        assert_eq!(card_of(part, 0), None, "what else takes long");
    }
    assert_eq!(card_of(Part::Soak, 0), None);
}
