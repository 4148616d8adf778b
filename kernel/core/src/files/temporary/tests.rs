//! Files in memory beside those of the system that runs the test: the same calls, the same answers.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::string::{String, ToString as _};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::addr::{PhysAddr, VirtAddr};
use crate::frames::FrameAllocator;
use crate::phys::FakeMemory;
use hearth_abi::linux::{open, rename, seek};

const NOW: Time = (7, 8);
const ROOT: Who = Who { user: 0, group: 0 };
const USER: Who = Who {
    user: 1000,
    group: 1000,
};
const FIRST: Process = Process(0);

struct Fake {
    mem: FakeMemory,
    frames: FrameAllocator,
}

impl Fake {
    fn new(count: u64) -> Self {
        let base = PhysAddr::new(0x10_0000);
        let tags = Box::leak(std::vec![0; count as usize].into_boxed_slice());
        let mut frames = FrameAllocator::new(base, tags);
        frames.add_region(base, base.offset(count * PAGE_SIZE));
        let mem = FakeMemory::new(base, count);
        Self { mem, frames }
    }
}

impl Machine for Fake {
    type Mem = FakeMemory;
    fn mem(&mut self) -> &mut FakeMemory {
        &mut self.mem
    }
    fn with<R>(&mut self, act: impl FnOnce(&mut FakeMemory, &mut FrameAllocator) -> R) -> R {
        act(&mut self.mem, &mut self.frames)
    }
    fn invalidate(&mut self, _first: VirtAddr, _last: VirtAddr) {}
}

/// The files and what they live on, as one user sees them.
struct World {
    machine: Fake,
    files: Temporary,
    who: Who,
}

impl World {
    fn new(frames: u64, who: Who) -> Self {
        let mut files = Temporary::default();
        files.join(frames, NOW);
        let machine = Fake::new(frames);
        Self {
            machine,
            files,
            who,
        }
    }

    fn found(&self, path: &str, last: Last) -> Result<Found, Errno> {
        let mem = &self.machine.mem;
        let from = Ino::ROOT;
        self.files.walk(mem, from, path.as_bytes(), last, self.who)
    }

    fn open(&mut self, path: &str, flags: u64, mode: u32) -> Result<OpenId, Errno> {
        let asked = Open { flags, mode };
        let found = self.found(path, asked.last(path.as_bytes()))?;
        self.files
            .open(&mut self.machine, &found, asked, self.who, NOW)
    }

    fn close(&mut self, open: OpenId) {
        self.files.close(&mut self.machine, FIRST, open);
    }

    fn write(&mut self, open: OpenId, mut at: u64, mut data: &[u8]) -> Result<(), Errno> {
        let ino = self.files.opened(open);
        while !data.is_empty() {
            let room = (PAGE_SIZE - at % PAGE_SIZE) as usize;
            let (piece, rest) = data.split_at(room.min(data.len()));
            self.files.write(&mut self.machine, ino, at, piece, NOW)?;
            (at, data) = (at + piece.len() as u64, rest);
        }
        Ok(())
    }

    fn read(&mut self, open: OpenId) -> Vec<u8> {
        let ino = self.files.opened(open);
        let mut all = Vec::new();
        let mut page = [0; PAGE_SIZE as usize];
        loop {
            let at = all.len() as u64;
            let read = self.files.read(&self.machine.mem, ino, at, &mut page);
            if read == 0 {
                return all;
            }
            all.extend_from_slice(&page[..read]);
        }
    }

    fn make(&mut self, path: &str) {
        let flags = open::CREATE | open::EXCLUSIVE | open::WRITE_ONLY;
        let made = self.open(path, flags, 0o644).unwrap();
        self.close(made);
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Result<(), Errno> {
        let found = self.found(path, Last::Name)?;
        self.files.make_directory(&found, mode, self.who, NOW)
    }

    fn remove(&mut self, path: &str, is_directory: bool) -> Result<(), Errno> {
        let found = self.found(path, Last::Name)?;
        let machine = &mut self.machine;
        self.files
            .remove(machine, &found, is_directory, self.who, NOW)
    }

    fn rename(&mut self, from: &str, to: &str, flags: u64) -> Result<(), Errno> {
        let (from, to) = (self.found(from, Last::Name)?, self.found(to, Last::Name)?);
        let machine = &mut self.machine;
        self.files
            .rename(machine, [&from, &to], flags, self.who, NOW)
    }

    fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let from = self.found(from, Last::Link)?;
        from.there()?;
        let to = self.found(to, Last::Name)?;
        self.files.link(&from, &to, self.who, NOW)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Result<(), Errno> {
        let found = self.found(path, Last::Name)?;
        let machine = &mut self.machine;
        self.files
            .make_link(machine, target.as_bytes(), &found, self.who, NOW)
    }

    fn stat(&self, path: &str, last: Last) -> Result<Metadata, Errno> {
        let ino = self.found(path, last)?.there()?;
        Ok(self.files.metadata(ino))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let ino = self.found(path, Last::Target)?.there()?;
        let mut names = Vec::new();
        let mut position = 2;
        while let Some((at, name, ..)) = self.files.entry(ino, position)? {
            names.push(String::from_utf8(name.to_vec()).unwrap());
            position = at + 1;
        }
        names.sort();
        Ok(names)
    }

    /// Ends the job; every frame must be back.
    fn end(mut self) {
        self.files.leave(&mut self.machine);
        assert_eq!(self.files.frames(), 0);
        assert_eq!(self.machine.frames.usage().object, 0);
        self.machine.frames.check_tags().unwrap();
        self.machine.frames.scrub(&mut self.machine.mem, u64::MAX);
        assert_eq!(self.machine.frames.usage().dirty, 0);
    }
}

#[test]
fn a_file_without_a_name_is_there_until_it_is_closed() {
    let mut world = World::new(4096, USER);
    let file = world
        .open("f", open::CREATE | open::READ_WRITE, 0o600)
        .unwrap();
    world.write(file, 3 * PAGE_SIZE, b"here").unwrap();
    world.remove("f", false).unwrap();
    assert_eq!(world.stat("f", Last::Target), Err(Errno::ENOENT));
    let ino = world.files.opened(file);
    assert_eq!(world.files.metadata(ino).links, 0);
    assert_eq!(world.read(file).len() as u64, 3 * PAGE_SIZE + 4);
    assert!(world.files.frames() > 0);
    world.close(file);
    assert_eq!(world.files.frames(), 0);
    let flags = open::TMPFILE | open::DIRECTORY | open::READ_WRITE;
    let nameless = world.open(".", flags, 0o600).unwrap();
    world.write(nameless, 0, b"x").unwrap();
    assert_eq!(world.list(".").unwrap(), [""; 0]);
    world.close(nameless);
    world.end();
}

#[test]
fn room_is_bounded_and_comes_back() {
    let mut world = World::new(4096, USER);
    let file = world.open("f", open::CREATE | open::READ_WRITE, 0o600);
    let file = file.unwrap();
    let full = (0..).find_map(|page| world.write(file, page * PAGE_SIZE, b"x").err());
    assert_eq!(full, Some(Errno::ENOSPC));
    assert_eq!(world.files.frames(), 2048);
    assert_eq!(world.files.room(&mut world.machine).frames_free, 0);
    // What has a frame can be written, and the end of it can be cut.
    world.write(file, 0, b"y").unwrap();
    let ino = world.files.opened(file);
    let files = &mut world.files;
    files.set_length(&mut world.machine, ino, 1, NOW).unwrap();
    assert_eq!(world.read(file), b"y");
    let room = world.files.room(&mut world.machine);
    assert!(room.frames_free > 2000, "{room:?}");
    let asked = (0, 3000 * PAGE_SIZE);
    let refused = world.files.check_room(&mut world.machine, ino, asked);
    assert_eq!(refused, Err(Errno::ENOSPC));
    world.close(file);
    for number in 0..254 {
        world.make(&number.to_string());
    }
    let flags = open::CREATE | open::WRITE_ONLY;
    assert_eq!(world.open("more", flags, 0o600), Err(Errno::ENOSPC));
    world.remove("7", false).unwrap();
    world.make("more");
    world.end();
}

#[test]
fn holes_are_zeros_and_take_no_room() {
    let mut world = World::new(4096, USER);
    let file = world
        .open("f", open::CREATE | open::READ_WRITE, 0o600)
        .unwrap();
    let ino = world.files.opened(file);
    let far = 1 << 40;
    world.write(file, 0, b"ab").unwrap();
    world.write(file, far, b"cd").unwrap();
    assert!(world.files.frames() < 12);
    let seek = |world: &World, at, whence| world.files.seek(&world.machine.mem, ino, at, whence);
    assert_eq!(seek(&world, 1, seek::DATA), Ok(1));
    assert_eq!(seek(&world, 1, seek::HOLE), Ok(PAGE_SIZE));
    assert_eq!(seek(&world, PAGE_SIZE, seek::DATA), Ok(far));
    assert_eq!(seek(&world, far, seek::HOLE), Ok(far + 2));
    assert_eq!(seek(&world, far + 2, seek::HOLE), Err(Errno::ENXIO));
    let punch = (0, far + PAGE_SIZE);
    let files = &mut world.files;
    files
        .allocate(&mut world.machine, ino, 3, punch, NOW)
        .unwrap();
    assert_eq!(world.files.frames(), 0);
    assert_eq!(world.files.bytes(ino), far + 2);
    let too_far = world.write(file, i64::MAX as u64, b"x");
    assert_eq!(too_far, Err(Errno::EFBIG));
    world.close(file);
    world.end();
}

#[test]
fn paths_that_lead_out_say_where_to() {
    let mut world = World::new(4096, USER);
    let files = &mut world.files;
    files.set_outside(b"/tmp/run/home", NOW);
    files.set_outside(b"/tmp/run/home/below", NOW);
    files.set_outside(b"/home", NOW);
    assert!(!files.is_outside());
    world.symlink("/data/x", "away").unwrap();
    world.symlink("run", "here").unwrap();
    for (path, to) in [
        ("/tmp/run/home", "/tmp/run/home"),
        ("/tmp/here/home/a/../b", "/tmp/run/home/a/../b"),
        ("away/y/", "/data/x/y/"),
        ("../home//z", "/home//z"),
        ("/tmp/..", "/"),
    ] {
        let found = world.found(path, Last::Target).unwrap();
        assert_eq!(found, Found::Outside(to.into()), "{path}");
    }
    assert_eq!(
        world.found("/../tmp/./run", Last::Target).unwrap().there(),
        { world.found("run", Last::Target).unwrap().there() }
    );
    assert_eq!(world.remove("run/home", true), Err(Errno::EINVAL));
    assert_eq!(world.list("run").unwrap(), ["home"]);
    world.symlink("loop", "loop").unwrap();
    assert_eq!(world.found("loop/x", Last::Target), Err(Errno::ELOOP));
    assert!(walk::is_temporary(b"//./tmp") && walk::is_temporary(b"/tmp/x"));
    assert!(!walk::is_temporary(b"tmp/x") && !walk::is_temporary(b"/tmpx"));
    world.files.set_outside(b"/tmp", NOW);
    assert!(world.files.is_outside());
    world.end();
}

#[test]
fn rights_count_but_for_root() {
    let mut world = World::new(4096, USER);
    world.mkdir("d", 0o500).unwrap();
    let flags = open::CREATE | open::WRITE_ONLY;
    assert_eq!(world.open("d/f", flags, 0o600), Err(Errno::EACCES));
    let file = world.open("f", flags, 0o400).unwrap();
    world.close(file);
    assert_eq!(world.open("f", open::WRITE_ONLY, 0), Err(Errno::EACCES));
    let ino = world.found("f", Last::Target).unwrap().there().unwrap();
    let files = &mut world.files;
    assert_eq!(
        files.set_owner(ino, [0, u32::MAX], USER, NOW),
        Err(Errno::EPERM)
    );
    files.set_owner(ino, [0, 0], ROOT, NOW).unwrap();
    assert_eq!(files.set_mode(ino, 0o777, USER, NOW), Err(Errno::EPERM));
    // It is root's, in a directory of root's from which only owners remove.
    assert_eq!(world.remove("f", false), Err(Errno::EPERM));
    world.who = ROOT;
    let file = world.open("f", open::WRITE_ONLY, 0).unwrap();
    world.close(file);
    world.remove("f", false).unwrap();
    world.make("d/f");
    world.end();
}

#[test]
fn a_directory_that_is_too_deep_to_be_named_has_no_path() {
    let mut world = World::new(4096, USER);
    let name = "n".repeat(255);
    let (mut inside, mut longest) = (Ino::ROOT, 0);
    for _ in 0..40 {
        let mem = &world.machine.mem;
        let walk = |last| world.files.walk(mem, inside, name.as_bytes(), last, USER);
        let found = walk(Last::Name).unwrap();
        world
            .files
            .make_directory(&found, 0o755, USER, NOW)
            .unwrap();
        let found = world
            .files
            .walk(mem, inside, name.as_bytes(), Last::Target, USER);
        inside = found.unwrap().there().unwrap();
        match world.files.path(inside) {
            Ok(path) => longest = path.len(),
            Err(error) => assert_eq!(error, Errno::ENAMETOOLONG),
        }
    }
    assert!((3_500..4_096).contains(&longest), "{longest}");
    assert_eq!(world.files.path(inside), Err(Errno::ENAMETOOLONG));
    world.end();
}

#[test]
fn what_a_link_leads_to_has_one_frame() {
    let mut world = World::new(4096, USER);
    world.symlink(&"t".repeat(4095), "longest").unwrap();
    let beyond = world.symlink(&"t".repeat(4096), "beyond");
    assert_eq!(beyond, Err(Errno::ENAMETOOLONG));
    world.end();
}

#[test]
fn a_directory_moves_with_what_is_in_it() {
    let mut world = World::new(4096, USER);
    world.mkdir("a", 0o755).unwrap();
    world.mkdir("a/b", 0o755).unwrap();
    world.mkdir("c", 0o755).unwrap();
    let inside = world.found("a/b", Last::Target).unwrap().there().unwrap();
    assert_eq!(world.rename("a", "a/b/x", 0), Err(Errno::EINVAL));
    world.rename("a", "c/d", 0).unwrap();
    assert_eq!(world.files.path(inside).unwrap(), b"/tmp/c/d/b");
    assert_eq!(world.stat("c", Last::Target).unwrap().links, 3);
    world.make("f");
    world.rename("f", "c/d", rename::EXCHANGE).unwrap();
    assert_eq!(world.files.path(inside).unwrap(), b"/tmp/f/b");
    assert_eq!(world.stat("c", Last::Target).unwrap().links, 2);
    let held = world.open("f/b", open::PATH, 0).unwrap();
    world.remove("f/b", true).unwrap();
    world.remove("f", true).unwrap();
    assert_eq!(world.files.path(inside), Err(Errno::ENOENT));
    let mem = &world.machine.mem;
    for path in [&b".."[..], b"x", b"../x"] {
        let dead = world.files.walk(mem, inside, path, Last::Target, USER);
        let created = dead.and_then(|found| {
            let asked = Open {
                flags: open::CREATE,
                mode: 0,
            };
            let machine = &mut Fake::new(512);
            world.files.open(machine, &found, asked, USER, NOW)
        });
        assert_eq!(created, Err(Errno::ENOENT));
    }
    world.close(held);
    world.end();
}

#[test]
fn the_last_process_takes_the_files_along() {
    let mut world = World::new(4096, USER);
    world.files.join(4096, NOW);
    let file = world
        .open("f", open::CREATE | open::READ_WRITE, 0o600)
        .unwrap();
    world.write(file, 0, &[7; 3 * PAGE_SIZE as usize]).unwrap();
    world.files.leave(&mut world.machine);
    assert_eq!(world.read(file).len() as u64, 3 * PAGE_SIZE);
    world.close(file);
    world.end();
}

/// A call on a few names.
#[derive(Clone, Debug)]
enum Step {
    Open(usize, u64),
    Write(usize, u64, usize),
    Truncate(usize, u64),
    Mkdir(usize),
    Remove(usize, bool),
    Rename(usize, usize),
    Link(usize, usize),
    Symlink(usize, usize),
    Mode(usize, u32),
}

const PATHS: [&str; 14] = [
    "a", "b", "c", "d", "a/x", "a/y", "b/x", "b/x/z", "a/../c", "a/.", "b/x/..", "c/", "a/x/",
    "d/y/x",
];

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    let create = open::CREATE | open::READ_WRITE;
    let flags = prop_oneof![
        Just(open::READ_ONLY),
        Just(open::READ_WRITE),
        Just(create),
        Just(create | open::EXCLUSIVE),
        Just(create | open::TRUNCATE),
        Just(open::READ_WRITE | open::TRUNCATE),
        Just(open::DIRECTORY),
        Just(create | open::NO_FOLLOW),
    ];
    let place = prop_oneof![0..20_u64, 4000..9000_u64, Just(3 << 20)];
    prop_oneof![
        3 => (path(), flags).prop_map(|(path, flags)| Step::Open(path, flags)),
        3 => (path(), place.clone(), 1..9000_usize).prop_map(|(path, at, length)| Step::Write(path, at, length)),
        2 => (path(), place).prop_map(|(path, length)| Step::Truncate(path, length)),
        3 => path().prop_map(Step::Mkdir),
        2 => (path(), any::<bool>()).prop_map(|(path, is)| Step::Remove(path, is)),
        3 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => (path(), path()).prop_map(|(to, at)| Step::Symlink(to, at)),
        1 => (path(), 0..0o777_u32).prop_map(|(path, mode)| Step::Mode(path, mode | 0o700)),
    ]
}

/// The files of the system below a directory of its own.
struct Host {
    root: PathBuf,
}

type Answer = Result<(), u16>;

impl Host {
    fn new() -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = std::format!("hearth-tmp-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir(&root).unwrap();
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn take(&self, step: &Step) -> std::io::Result<()> {
        let at = |path: &usize| self.at(PATHS[*path]);
        match step {
            Step::Open(path, flags) => {
                let mut options = fs::OpenOptions::new();
                options.read(true);
                options.write(flags & open::ACCESS_MODE == open::READ_WRITE);
                let extra = flags & !(open::ACCESS_MODE | open::CREATE | open::EXCLUSIVE);
                options.create(flags & open::CREATE != 0);
                options.create_new(flags & open::EXCLUSIVE != 0);
                options.truncate(flags & open::TRUNCATE != 0);
                options
                    .custom_flags((extra & !open::TRUNCATE) as i32)
                    .mode(0o644);
                options.open(at(path)).map(drop)
            }
            Step::Write(path, offset, length) => {
                let mut file = fs::OpenOptions::new().write(true).open(at(path))?;
                file.seek(SeekFrom::Start(*offset))?;
                file.write_all(&pattern(*offset, *length))
            }
            Step::Truncate(path, length) => fs::OpenOptions::new()
                .write(true)
                .open(at(path))?
                .set_len(*length),
            Step::Mkdir(path) => fs::create_dir(at(path)),
            Step::Remove(path, true) => fs::remove_dir(at(path)),
            Step::Remove(path, false) => fs::remove_file(at(path)),
            Step::Rename(from, to) => fs::rename(at(from), at(to)),
            Step::Link(from, to) => fs::hard_link(at(from), at(to)),
            Step::Symlink(to, path) => std::os::unix::fs::symlink(PATHS[*to], at(path)),
            Step::Mode(path, mode) => {
                fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))
            }
        }
    }

    fn answer(&self, step: &Step) -> Answer {
        let answer = self.take(step);
        answer.map_err(|error| error.raw_os_error().expect("an error of the system") as u16)
    }

    /// All that is there: kind, links, length or target and contents of each path.
    fn all(&self) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let mut rest = std::vec![String::new()];
        while let Some(below) = rest.pop() {
            for entry in fs::read_dir(self.at(&below)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let path = std::format!("{below}{name}");
                let known = fs::symlink_metadata(self.at(&path)).unwrap();
                let (links, bytes) = match known.file_type() {
                    kind if kind.is_dir() => {
                        rest.push(std::format!("{path}/"));
                        (0, Vec::new())
                    }
                    kind if kind.is_symlink() => {
                        let target = fs::read_link(self.at(&path)).unwrap();
                        (known.nlink(), target.to_str().unwrap().into())
                    }
                    _ => {
                        let mut bytes = Vec::new();
                        let mut file = fs::File::open(self.at(&path)).unwrap();
                        file.read_to_end(&mut bytes).unwrap();
                        (known.nlink(), bytes)
                    }
                };
                all.insert(path, (known.mode(), links, bytes));
            }
        }
        all
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (offset as usize * 31 + at / 3) as u8 | 1)
        .collect()
}

impl World {
    fn take(&mut self, step: &Step) -> Result<(), Errno> {
        let at = |path: &usize| PATHS[*path];
        match step {
            Step::Open(path, flags) => {
                let opened = self.open(at(path), *flags, 0o644 & !umask())?;
                self.close(opened);
            }
            Step::Write(path, offset, length) => {
                let opened = self.open(at(path), open::WRITE_ONLY, 0)?;
                let written = self.write(opened, *offset, &pattern(*offset, *length));
                self.close(opened);
                written?;
            }
            Step::Truncate(path, length) => {
                let opened = self.open(at(path), open::WRITE_ONLY, 0)?;
                let ino = self.files.opened(opened);
                let machine = &mut self.machine;
                let cut = self.files.set_length(machine, ino, *length, NOW);
                self.close(opened);
                cut?;
            }
            Step::Mkdir(path) => self.mkdir(at(path), 0o777 & !umask())?,
            Step::Remove(path, is_directory) => self.remove(at(path), *is_directory)?,
            Step::Rename(from, to) => self.rename(at(from), at(to), 0)?,
            Step::Link(from, to) => self.link(at(from), at(to))?,
            Step::Symlink(to, path) => self.symlink(at(to), at(path))?,
            Step::Mode(path, mode) => {
                let ino = self.found(at(path), Last::Target)?.there()?;
                self.files.set_mode(ino, *mode, self.who, NOW)?;
            }
        }
        Ok(())
    }

    fn all(&mut self) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let mut rest = std::vec![String::new()];
        while let Some(below) = rest.pop() {
            for name in self.list(&std::format!("{below}.")).unwrap() {
                let path = std::format!("{below}{name}");
                let known = self.stat(&path, Last::Link).unwrap();
                let ino = self.found(&path, Last::Link).unwrap().there().unwrap();
                let (links, bytes) = match self.files.kind(ino) {
                    Kind::Directory => {
                        rest.push(std::format!("{path}/"));
                        (0, Vec::new())
                    }
                    Kind::Link => {
                        let target = self.files.link_target(&self.machine.mem, ino);
                        (known.links.into(), target.unwrap())
                    }
                    Kind::File => {
                        let opened = self.open(&path, open::READ_ONLY, 0).unwrap();
                        let bytes = self.read(opened);
                        self.close(opened);
                        (known.links.into(), bytes)
                    }
                };
                all.insert(path, (known.mode, links, bytes));
            }
        }
        all
    }
}

/// The mask of this process, as a new directory shows it.
fn umask() -> u32 {
    static MASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *MASK.get_or_init(|| {
        let host = Host::new();
        0o777 & !fs::metadata(&host.root).unwrap().mode()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever calls are made, they are answered as the system's own file system answers them, and
    /// what is there is the same.
    #[test]
    fn files_are_as_on_the_system(steps in prop::collection::vec(step(), 1..60)) {
        let host = Host::new();
        let known = fs::metadata(&host.root).unwrap();
        let who = Who { user: known.uid(), group: known.gid() };
        let mut world = World::new(16384, who);
        for (number, step) in steps.iter().enumerate() {
            let theirs = host.answer(step);
            let ours = world.take(step).map_err(Errno::number);
            prop_assert_eq!(ours, theirs, "{}: {:?}", number, step);
        }
        prop_assert_eq!(world.all(), host.all());
        world.end();
    }
}
