//! Jobs of different users.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use hearth_io::{Export, JobFiles, User};
use netstack::files::{Call, Op, WORKING};
use netstack::ids::JobId;

use super::node::{CREAT, EACCES, EIO, EPERM, EXCL, Node, RDONLY, RDWR, files, service};

const ADA: u32 = 1001;
const BOB: u32 = 1002;
const STAFF: u32 = 2001;

fn user(uid: u32, groups: &[u32]) -> User {
    User {
        uid,
        gid: uid,
        groups: groups.to_vec(),
    }
}

fn job(number: u64, user: Option<User>, folder: &Path) -> JobFiles {
    JobFiles {
        job: JobId(number),
        user,
        ..files(vec![Export::same(folder)], folder)
    }
}

/// A directory that everybody may write to.
fn shared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    let mode = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(folder.path(), mode).expect("set");
    folder
}

fn create(node: &mut Node, path: &str, mode: u64) -> i64 {
    let call = Call::new(Op::Open, WORKING).with_words([RDWR | CREAT | EXCL, mode]);
    node.call(call.with_input(path.into()).with_room(200))
        .result
}

#[test]
fn a_user_looks_with_their_own_rights_and_nobody_else_does() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: only root works for two users");
        return;
    }
    let folder = shared();
    let inside = |name: &str, mode, group| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.join("file")).expect("made");
        chown(&path, None, Some(group)).expect("given");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        path
    };
    let (roots, staffs) = (inside("roots", 0o700, 0), inside("staffs", 0o750, STAFF));
    let ada = user(ADA, &[ADA, STAFF]);
    let sees = |path: std::path::PathBuf| {
        let found = ada.looks(|| path.canonicalize());
        found
            .expect("root is anybody")
            .map_err(|error| error.kind())
    };
    let denied = std::io::ErrorKind::PermissionDenied;
    assert!(sees(staffs.join("file")).is_ok());
    // Whether it is there is not told.
    assert_eq!(sees(roots.join("file")), Err(denied));
    assert_eq!(sees(roots.join("none")), Err(denied));
    assert!(
        roots.join("file").canonicalize().is_ok(),
        "this thread is root"
    );
    assert_eq!(
        user(BOB, &[]).looks(|| staffs.join("file").exists()).ok(),
        Some(false)
    );
}

#[test]
fn neither_of_two_users_reads_the_others_files() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: only root works for two users");
        return;
    }
    let folder = shared();
    let service = service();
    service.admit(job(1, Some(user(ADA, &[ADA, STAFF])), folder.path()));
    service.admit(job(2, Some(user(BOB, &[BOB])), folder.path()));
    let mut ada = Node::of(&service, JobId(1), 0);
    let mut bob = Node::of(&service, JobId(2), 0);
    for (node, name, uid) in [(&mut ada, "ada", ADA), (&mut bob, "bob", BOB)] {
        assert!(create(node, name, 0o600) > 0);
        let there = folder.path().join(name).metadata().expect("there");
        assert_eq!((there.uid(), there.gid()), (uid, uid));
        assert_eq!(there.mode() & 0o7777, 0o600);
    }
    for (node, name) in [(&mut ada, "bob"), (&mut bob, "ada")] {
        for flags in [RDONLY, RDWR] {
            assert_eq!(node.open(name, flags), EACCES);
        }
        assert_eq!(node.plain(Op::Access, [4, 0, 0, 0], name), EACCES);
        assert_eq!(node.plain(Op::SetLength, [0; 4], name), EACCES);
        for (op, words) in [
            (Op::ChangeMode, [0o666, 0, 0, 0]),
            (Op::ChangeOwner, [ADA.into(), BOB.into(), 0, 0]),
            (Op::SetTimes, [1, 1, 0, 0]),
            (Op::Remove, [0; 4]),
        ] {
            assert_eq!(node.plain(op, words, name), EPERM, "{op:?} {name}");
        }
        let words = format!("{name}\0mine");
        let call = Call::new(Op::Rename, WORKING).with_input(words.into());
        assert_eq!(node.call(call).result, EPERM);
        // Nobody gives files away, or becomes root by one.
        let own = if name == "bob" { "ada" } else { "bob" };
        let root = [0, u64::from(u32::MAX), 0, 0];
        assert_eq!(node.plain(Op::ChangeOwner, root, own), EPERM);
    }
    // Groups are those of the user, and no more.
    let staff = folder.path().join("staff");
    std::fs::write(&staff, b"staff").expect("written");
    chown(&staff, Some(0), Some(STAFF)).expect("given");
    std::fs::set_permissions(&staff, std::fs::Permissions::from_mode(0o640)).expect("set");
    ada.open_ok("staff", RDONLY);
    assert_eq!(ada.open("staff", RDWR), EACCES);
    assert_eq!(bob.open("staff", RDONLY), EACCES);
}

#[test]
fn what_a_user_cannot_reach_is_not_reached_by_an_export() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: only root works for another user");
        return;
    }
    let folder = shared();
    // A directory that is open to all, in one that is its owner's.
    let hidden = folder.path().join("private/open");
    std::fs::create_dir_all(&hidden).expect("made");
    std::fs::write(hidden.join("file"), b"x").expect("written");
    for (path, mode) in [(hidden.clone(), 0o755), (hidden.join("file"), 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    }
    let private = folder.path().join("private");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).expect("set");
    let service = service();
    service.admit(job(1, Some(user(ADA, &[])), &hidden));
    assert_eq!(Node::of(&service, JobId(1), 0).open("file", RDONLY), EIO);
    let why = service.next_problem().expect("told").why;
    assert!(why.contains("may not go there"), "{why}");
    chown(&private, Some(ADA), None).expect("given");
    service.admit(job(2, Some(user(ADA, &[])), &hidden));
    Node::of(&service, JobId(2), 0).open_ok("file", RDONLY);
}

#[test]
fn a_service_that_is_not_root_works_for_its_own_user() {
    let folder = shared();
    let service = service();
    let own = nix::unistd::geteuid();
    let path = folder.path();
    service.admit(job(1, Some(user(own.as_raw(), &[own.as_raw()])), path));
    assert!(create(&mut Node::of(&service, JobId(1), 0), "f", 0o600) > 0);
    let there = path.join("f").metadata().expect("there");
    assert_eq!(there.uid(), own.as_raw());
    if own.is_root() {
        return;
    }
    service.admit(job(2, Some(user(own.as_raw() + 1, &[])), path));
    assert_eq!(Node::of(&service, JobId(2), 0).open("f", RDONLY), EIO);
    let why = service.next_problem().expect("told").why;
    assert!(why.contains("start it as root"), "{why}");
}
