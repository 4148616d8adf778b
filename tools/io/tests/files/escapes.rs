//! Attempts to reach what is not exported: none does, and each is an errno.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_io::{Export, Service};
use netstack::files::{Call, Op, WORKING};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{geteuid, mkfifo};

use super::node::{
    APPEND, CREAT, DIRECTORY, EACCES, EBADF, EIO, ENOENT, EXCL, EXDEV, NOFOLLOW, Node, PATH,
    RDONLY, RDWR, TMPFILE, TRUNC, files, service,
};

const SECRET: &[u8] = b"nobody's business";

/// A directory that is exported, and a secret in one that is not.
struct Lab {
    inside: tempfile::TempDir,
    outside: tempfile::TempDir,
    service: Service,
    node: Node,
}

impl Lab {
    fn new() -> Self {
        let inside = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        std::fs::write(outside.path().join("secret"), SECRET).expect("written");
        std::fs::create_dir_all(inside.path().join("a/b/c")).expect("made");
        std::fs::write(inside.path().join("a/file"), b"own").expect("written");
        let service = service();
        service.admit(files(vec![Export::same(inside.path())], inside.path()));
        let node = Node::new(&service, 0);
        Self {
            inside,
            outside,
            service,
            node,
        }
    }

    fn secret(&self) -> String {
        self.outside.path().join("secret").display().to_string()
    }

    /// What is outside is as it was.
    fn check_outside(&self) {
        let names = std::fs::read_dir(self.outside.path()).expect("a directory");
        assert_eq!(names.count(), 1, "something was made outside");
        let secret = std::fs::read(self.outside.path().join("secret")).expect("there");
        assert_eq!(secret, SECRET);
    }
}

/// Paths that lead out, where a process is not shut in.
fn paths_out(lab: &Lab) -> Vec<String> {
    let secret = lab.secret();
    let up = |count: usize| "../".repeat(count);
    let mut paths = vec![
        secret.clone(),
        format!("/{secret}"),
        format!("/.{secret}"),
        format!("/..{secret}"),
        format!("a/b/c/{}{secret}", up(40)),
        format!("a/../a/b/../../{}{secret}", up(40)),
        format!("/tmp/{}{secret}", up(3)),
        "/etc/passwd".to_owned(),
        "/etc/shadow".to_owned(),
        "/proc/self/root/etc/passwd".to_owned(),
        "/proc/self/cwd".to_owned(),
        "/proc/1/root/etc/passwd".to_owned(),
        "/proc/self/environ".to_owned(),
        "/proc/self/mem".to_owned(),
        "/proc/sys/kernel/core_pattern".to_owned(),
        "/sys/kernel/uevent_helper".to_owned(),
        "/dev/null".to_owned(),
        "/dev/mem".to_owned(),
        "/dev/fd/0".to_owned(),
        "/dev/stdin".to_owned(),
        "/.old".to_owned(),
        "/.old/etc/passwd".to_owned(),
        "../.old/etc/passwd".to_owned(),
        "/run/hearth".to_owned(),
        "/root".to_owned(),
        // Of 4,096 bytes and more.
        format!("{}{secret}", "./".repeat(2_048 - secret.len() / 2)),
        format!("{}{secret}", up(1_365)),
        format!("{}{secret}", up(1_300)),
        format!("{}/{secret}", "x".repeat(4_096)),
        "/".repeat(4_095) + "etc/passwd",
    ];
    for (proc_fd, count) in [("/proc/self/fd", 20), ("/dev/fd", 4)] {
        paths.extend((0..count).map(|fd| format!("{proc_fd}/{fd}")));
    }
    paths.extend((1..12).map(|count| format!("{}{secret}", up(count))));
    paths.extend((1..12).map(|count| format!("{}etc/passwd", up(count))));
    paths
}

#[test]
fn no_path_leads_out() {
    let mut lab = Lab::new();
    let mut attempts = 0;
    for path in paths_out(&lab) {
        for flags in [
            RDONLY,
            RDWR,
            RDWR | CREAT,
            RDWR | TRUNC,
            RDWR | APPEND,
            RDONLY | NOFOLLOW,
            PATH,
            RDONLY | DIRECTORY,
        ] {
            let result = lab.node.open(&path, flags);
            assert!(result < 0, "{path} was opened with {flags:o}");
            attempts += 1;
        }
        for (op, words) in [
            (Op::Stat, [0; 4]),
            (Op::ReadLink, [0; 4]),
            (Op::StatFileSystem, [0; 4]),
            (Op::Access, [0; 4]),
            (Op::MakeDirectory, [0o777, 0, 0, 0]),
            (Op::Remove, [0; 4]),
            (Op::Remove, [0x200, 0, 0, 0]),
            (Op::SetLength, [0; 4]),
            (Op::ChangeMode, [0o777, 0, 0, 0]),
            (Op::ChangeOwner, [1, 1, 0, 0]),
            (Op::SetTimes, [1, 1, 0, 0]),
        ] {
            let result = lab.node.plain(op, words, &path);
            assert!(result < 0, "{op:?} reached {path}");
            attempts += 1;
        }
        for (op, paths) in [
            (Op::Link, format!("{path}\0hard")),
            (Op::Link, format!("a/file\0{path}")),
            (Op::Rename, format!("{path}\0mine")),
            (Op::Rename, format!("a/file\0{path}")),
            (Op::SymbolicLink, format!("a/file\0{path}")),
        ] {
            let call = Call::new(op, WORKING).with_input(paths.into());
            assert!(lab.node.call(call).result < 0, "{op:?} reached {path}");
            attempts += 1;
        }
    }
    assert!(attempts > 1_000, "{attempts} attempts");
    lab.check_outside();
    assert!(!Path::new("/tmp/hard").exists());
}

#[test]
fn no_link_leads_out() {
    let mut lab = Lab::new();
    let inside = lab.inside.path().to_path_buf();
    let mut links = Vec::new();
    for (index, target) in paths_out(&lab).into_iter().enumerate() {
        // By the job, and by somebody on the machine; to the file, and to what is above it.
        let name = format!("link{index}");
        let words = format!("{target}\0{name}");
        let call = Call::new(Op::SymbolicLink, WORKING).with_input(words.into());
        if lab.node.call(call).result == 0 {
            links.push(name);
        }
        let name = format!("a/b/theirs{index}");
        if symlink(&target, inside.join(&name)).is_ok() {
            links.push(name);
        }
    }
    symlink(lab.outside.path(), inside.join("door")).expect("a link");
    symlink("door", inside.join("door2")).expect("a link");
    symlink("/", inside.join("slash")).expect("a link");
    let there = lab.outside.path().display();
    links.extend([
        "door/secret".to_owned(),
        "door2/secret".to_owned(),
        format!("slash{there}/secret"),
        format!("slash/../..{there}/secret"),
        "slash/etc/passwd".to_owned(),
    ]);
    assert!(links.len() > 100, "{} links", links.len());
    for path in links {
        for flags in [RDONLY, RDWR | CREAT, PATH, RDWR | TRUNC] {
            assert!(lab.node.open(&path, flags) < 0, "{path} was opened");
        }
        for op in [Op::Stat, Op::StatFileSystem, Op::SetLength, Op::ChangeMode] {
            assert!(lab.node.plain(op, [0; 4], &path) < 0, "{op:?} by {path}");
        }
        let words = format!("{path}\0hard");
        let call = Call::new(Op::Link, WORKING).with_words([0x400]);
        assert!(lab.node.call(call.with_input(words.into())).result < 0);
    }
    for name in ["door/new", "door2/new"] {
        let made = lab.node.plain(Op::MakeDirectory, [0o777, 0, 0, 0], name);
        assert_eq!(made, ENOENT);
        assert_eq!(lab.node.open(name, RDWR | CREAT | EXCL), ENOENT);
    }
    lab.check_outside();
}

#[test]
fn links_that_change_while_they_are_used_do_not_lead_out() {
    let mut lab = Lab::new();
    let inside = lab.inside.path().to_path_buf();
    std::fs::create_dir(inside.join("real")).expect("made");
    std::fs::write(inside.join("real/secret"), b"decoy").expect("written");
    symlink(lab.outside.path(), inside.join("link")).expect("a link");
    std::fs::create_dir(inside.join("swap")).expect("made");
    let stop = AtomicBool::new(false);
    let (mut read, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
            let exchange = RenameFlags::RENAME_EXCHANGE;
            let name = |name| inside.join(name);
            while !stop.load(Ordering::Relaxed) {
                for other in ["real", "link"] {
                    let (a, b) = (name("swap"), name(other));
                    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, exchange).expect("exchanged");
                    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, exchange).expect("exchanged");
                }
            }
        });
        for _ in 0..3_000 {
            match lab.node.open("swap/secret", RDWR) {
                ENOENT => refused += 1,
                handle @ 1.. => {
                    let handle = u32::try_from(handle).expect("a handle");
                    assert_eq!(lab.node.read(handle, 0, 100).output, b"decoy");
                    let closed = lab.node.call(Call::new(Op::Close, handle)).result;
                    assert_eq!(closed, 0);
                    read += 1;
                }
                other => panic!("{other}"),
            }
            let made = lab.node.open("swap/new", RDWR | CREAT);
            if let Ok(handle) = u32::try_from(made) {
                assert_eq!(lab.node.call(Call::new(Op::Close, handle)).result, 0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
    lab.check_outside();
}

#[test]
fn directories_that_are_moved_away_do_not_lead_out() {
    let mut lab = Lab::new();
    let deep = lab.node.open_ok("a/b/c", RDONLY | DIRECTORY);
    // Somebody on the machine moves it out of the export.
    let (from, to) = (lab.inside.path().join("a/b"), lab.outside.path().join("b"));
    std::fs::rename(&from, &to).expect("moved");
    let up = |count: usize, name: &str| "../".repeat(count) + name;
    for path in (0..8).flat_map(|count| [up(count, "secret"), up(count, "etc/passwd")]) {
        let call = Call::new(Op::Open, deep).with_words([RDONLY, 0]);
        let call = call.with_input(path.clone().into()).with_room(200);
        assert!(lab.node.call(call).result < 0, "{path}");
        let call = Call::new(Op::Link, deep).with_input(format!("{path}\0x").into());
        assert!(lab.node.call(call).result < 0, "{path}");
    }
    assert!(
        lab.node
            .call(Call::new(Op::Path, deep).with_room(4_000))
            .result
            < 0
    );
    std::fs::rename(to, from).expect("moved back");
    lab.check_outside();
    // The job itself moves what it has open; what is above it is the export still.
    let call = Call::new(Op::Rename, WORKING).with_input(b"a/b\0moved".to_vec());
    assert_eq!(lab.node.call(call).result, 0);
    for count in 0..40 {
        let path = up(count, &lab.secret());
        let call = Call::new(Op::Stat, deep).with_input(path.into());
        assert!(lab.node.call(call.with_room(200)).result < 0);
    }
}

#[test]
fn devices_pipes_and_numbers_of_nobody_lead_nowhere() {
    let mut lab = Lab::new();
    let inside = lab.inside.path().to_path_buf();
    mkfifo(&inside.join("pipe"), Mode::S_IRWXU).expect("a pipe");
    let mut nodes = vec!["pipe"];
    if geteuid().is_root() {
        for (name, kind, number) in [
            ("null", SFlag::S_IFCHR, (1, 3)),
            ("memory", SFlag::S_IFCHR, (1, 1)),
            ("terminal", SFlag::S_IFCHR, (5, 0)),
            ("disk", SFlag::S_IFBLK, (254, 0)),
        ] {
            let device = nix::sys::stat::makedev(number.0, number.1);
            mknod(&inside.join(name), kind, Mode::S_IRWXU, device).expect("a device");
            nodes.push(name);
        }
    }
    for name in nodes {
        for flags in [RDONLY, 1, RDWR, RDWR | TRUNC, RDWR | CREAT] {
            let refused = lab.node.open(name, flags);
            assert!([EACCES, -6].contains(&refused), "{name}: {refused}");
        }
        // To name it is all that can be done.
        let named = lab.node.open_ok(name, PATH);
        assert_eq!(lab.node.read(named, 0, 1).result, EBADF);
        assert_eq!(lab.node.write(named, 0, b"x"), EBADF);
    }
    for handle in (300..400).chain([u32::MAX, 1 << 31]) {
        assert_eq!(lab.node.read(handle, 0, 10).result, EBADF);
        let call = Call::new(Op::Stat, handle).with_room(200);
        assert_eq!(lab.node.call(call).result, EBADF);
    }
    // Above the exports nothing can be made.
    for path in ["/x", "../x", "/tmp/../x"] {
        let path = if path == "../x" { "/../x" } else { path };
        assert!(lab.node.open(path, RDWR | CREAT) < 0);
        assert!(lab.node.plain(Op::MakeDirectory, [0o777, 0, 0, 0], path) < 0);
    }
    assert!(lab.node.open("/", TMPFILE | RDWR) < 0);
    assert!(lab.node.plain(Op::ChangeMode, [0o777, 0, 0, 0], "/") < 0);
    lab.check_outside();
    drop(lab.service);
}

#[test]
fn exports_are_file_systems_of_their_own() {
    let (one, two) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    std::fs::write(one.path().join("file"), b"one").expect("written");
    let service = service();
    let export = |host: &Path, node: &str| Export {
        host: host.into(),
        node: node.into(),
        read_only: node == "/two",
    };
    service.admit(files(
        vec![export(one.path(), "/one"), export(two.path(), "/two")],
        Path::new("/one"),
    ));
    let mut node = Node::new(&service, 0);
    for op in [Op::Link, Op::Rename] {
        for to in ["/two/file", "../two/file", "/tmp/file", "/file"] {
            let call = Call::new(op, WORKING).with_input(format!("file\0{to}").into());
            let refused = node.call(call).result;
            assert!([EXDEV, -30].contains(&refused), "{op:?} {to}: {refused}");
        }
    }
    assert_eq!(std::fs::read_dir(two.path()).expect("there").count(), 0);
}

#[test]
fn what_the_system_tells_of_itself_is_covered() {
    let service = service();
    let export = |host: &str, node: &str| Export {
        host: host.into(),
        node: node.into(),
        read_only: true,
    };
    // Who exports all of a machine exports its files, and not its processes and devices.
    service.admit(files(
        vec![export("/", "/all"), export("/proc", "/processes")],
        Path::new("/all"),
    ));
    let mut node = Node::new(&service, 0);
    node.open_ok("/all/etc/passwd", RDONLY);
    for path in [
        "/processes/self",
        "/processes/1/root/etc/passwd",
        "/all/proc/self/root",
        "/all/proc/1/environ",
        "/all/proc/sys/kernel/hostname",
        "/all/sys/kernel",
    ] {
        assert_eq!(node.open(path, RDONLY), ENOENT, "{path}");
    }
    for path in ["/all/dev/null", "/all/dev/zero"] {
        let refused = node.open(path, RDWR);
        assert!([ENOENT, EACCES].contains(&refused), "{path}: {refused}");
    }
}

#[test]
fn places_for_exports_are_not_made_through_links() {
    let lab = Lab::new();
    let inside = lab.inside.path();
    symlink(lab.outside.path(), inside.join("door")).expect("a link");
    let data = tempfile::tempdir().expect("a directory");
    symlink(data.path(), inside.join("data")).expect("a link");
    let export = |host: &Path, node: &Path| Export {
        host: host.into(),
        node: node.into(),
        read_only: false,
    };
    let own = Export::same(inside);
    for (exports, names) in [
        (
            vec![own.clone(), export(data.path(), &inside.join("door/made"))],
            "door",
        ),
        (
            vec![own.clone(), export(data.path(), &inside.join("made/made"))],
            "made",
        ),
        (
            vec![export(&inside.join("data"), Path::new("/data"))],
            "symbolic link",
        ),
        (vec![export(data.path(), Path::new("/../x"))], ".."),
        (vec![export(data.path(), Path::new("/data/../../x"))], ".."),
        (
            vec![export(Path::new("/none"), Path::new("/data"))],
            "/none",
        ),
    ] {
        let service = service();
        service.admit(files(exports, inside));
        assert_eq!(Node::new(&service, 0).open("a", RDONLY), EIO, "{names}");
        let problem = service.next_problem().expect("told");
        assert!(problem.why.contains(names), "{}", problem.why);
    }
    assert!(!inside.join("made").exists());
    lab.check_outside();
}

#[test]
fn the_directory_that_the_root_is_made_in_can_be_exported() {
    let inside = tempfile::tempdir_in("/tmp").expect("a directory");
    std::fs::write(inside.path().join("file"), b"own").expect("written");
    let name = inside.path().strip_prefix("/tmp").expect("it is there");
    let service = service();
    let mut export = Export::same("/data");
    export.host = "/tmp".into();
    service.admit(files(vec![export], Path::new("/data")));
    let mut node = Node::new(&service, 0);
    node.open_ok(&format!("/data/{}/file", name.display()), RDONLY);
}
