//! Files of the user, read and written by programs on nodes: what they print is what they print on
//! this machine.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::Scenario;
use crate::cluster::{Boot, Cluster};
use crate::command;
use crate::sqlite;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "files-as-on-linux",
        boot: Boot::Network,
        run: as_on_linux,
    },
    Scenario {
        name: "files-at-random",
        boot: Boot::Network,
        run: at_random,
    },
    Scenario {
        name: "files-in-tmp",
        boot: Boot::Network,
        run: in_tmp,
    },
    Scenario {
        name: "files-of-several-ranks",
        boot: Boot::Network,
        run: of_several_ranks,
    },
    Scenario {
        name: "files-that-many-nodes-read-are-cast",
        boot: Boot::Direct16,
        run: cast_what_many_read,
    },
    Scenario {
        name: "files-shared-by-all-ranks",
        boot: Boot::Network,
        run: shared_by_all_ranks,
    },
    Scenario {
        name: "files-under-other-paths",
        boot: Boot::Network,
        run: under_other_paths,
    },
    Scenario {
        name: "files-that-are-mapped-while-their-service-dies",
        boot: Boot::Network,
        run: mapped_meanwhile,
    },
    Scenario {
        name: "files-that-cannot-be-written",
        boot: Boot::Network,
        run: cannot_be_written,
    },
    Scenario {
        name: "files-of-the-machine-stay-out-of-reach",
        boot: Boot::Network,
        run: out_of_reach,
    },
    Scenario {
        name: "files-outlive-their-service",
        boot: Boot::Network,
        run: outlive_their_service,
    },
    Scenario {
        name: "files-feel-nothing-of-control",
        boot: Boot::Network,
        run: feel_nothing_of_control,
    },
];

/// What `files-outlive` prints when the process that carries out its calls is killed twice.
const OUTLIVED: &str = "\
lock: 0
written: 300000
fsync: 0
not synchronised: 5
log: 4
an entry: 1
ready
position: 300000
read: 300000
the same: 1
more: 1000
below: 5
in it: below
log: 4
moved: EIO
once more: EIO
gone: EIO
locked: EIO
opened anew: 1
entry below: 0
close moved: 0
close locked: EIO
rest of a list: 1
names: 3
asking
errors: 1
after it: 1000
the same: 1
close: 0
close: 0
close: 0
close: 0
";

/// What the first rank of `ranks-tmp` prints where so many are on its node.
pub fn tmp_said(ranks: usize) -> String {
    let sum = ranks * ADDS;
    format!("{ranks} files\nsum {sum}\nfull: ENOSPC\na good part: 1\n")
}

/// Programs in several languages; what they print on Linux, run in a folder of its own, is the
/// answer.
const PROGRAMS: [&str; 6] = [
    "files",
    "files-threads",
    "files-fortran",
    "files-cpp",
    "files-rust",
    "files-go",
];
/// Ranks that share files, lines of each, and additions of each.
const RANKS: usize = 4;
const LINES: usize = 50;
const ADDS: usize = 20;
/// Records that each of them appends, and bytes of one: more than a call takes.
const RECORDS: usize = 6;
const RECORD: usize = 100_000;
/// Nodes that read the same files: one in calls of so many bytes, the other in odd pieces.
const SAME_NODES: usize = 8;
const SAME_CALLS: u64 = 4;
const SAME_CALL_BYTES: u64 = 1 << 20;
const SAME_BYTES: u64 = 3_000_001;
/// Files of each rank in the shared directory of `ranks-files-names`, and of how many one stays.
const SHARED_FILES: usize = 40;
const KEPT: usize = 5;
/// Random calls on a file; so many in a long run.
const OPERATIONS: &str = "3000";
const LONG_OPERATIONS: &str = "100000";
/// How often the process dies that reads a file which is being mapped.
const KILLS: usize = 3;
/// How long the program may take that maps it, which takes ten seconds.
const MAPPING_LIMIT: Duration = Duration::from_secs(180);
/// How long these may take.
const LONG_LIMIT: Duration = Duration::from_secs(1200);
/// How long a command may take that looks at processes.
const LIMIT: Duration = Duration::from_secs(10);

/// A folder of this scenario, empty.
pub fn folder(cluster: &Cluster, name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(cluster.scratch(name));
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
    }
    fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn entries(path: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(path)?;
    let names: Result<Vec<String>, _> = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

fn as_on_linux(cluster: &Cluster) -> Result<()> {
    for name in PROGRAMS {
        let program = cluster.program(name);
        if name == "files-go" && !Path::new(&program).exists() {
            println!("          {name}: no Go compiler here, left out");
            continue;
        }
        let (here, there) = (
            folder(cluster, &format!("{name}-here"))?,
            folder(cluster, &format!("{name}-there"))?,
        );
        let on_linux = Command::new(&program).current_dir(&here).output()?;
        let expected = String::from_utf8_lossy(&on_linux.stdout).into_owned();
        ensure!(
            on_linux.status.success(),
            "{name} fails on Linux: {expected}"
        );
        let done = cluster.hearth(&["run", "-n", "1", "-D", &there.to_string_lossy(), &program])?;
        let done = done.expect_code(0).with_context(|| name.to_owned())?;
        let (wanted, got) = (expected.lines(), done.out());
        if let Some((wanted, got)) = wanted.zip(got.lines()).find(|(a, b)| a != b) {
            bail!("{name}: Linux prints {wanted:?}, the node {got:?}");
        }
        ensure!(got == expected, "{name}: another number of lines");
        let (left_here, left_there) = (entries(&here)?, entries(&there)?);
        ensure!(
            left_here == left_there,
            "{name} leaves {left_there:?}, on Linux {left_here:?}"
        );
    }
    Ok(())
}

/// Random calls on one file, which the program compares with a model of it; and with the same calls
/// on Linux.
fn at_random(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("files-random");
    let seed = std::process::id().to_string();
    let operations = match crate::is_long() {
        true => LONG_OPERATIONS,
        false => OPERATIONS,
    };
    let arguments = [&seed[..], operations];
    let (here, there) = (
        folder(cluster, "random-here")?,
        folder(cluster, "random-there")?,
    );
    let on_linux = Command::new(&program)
        .args(arguments)
        .current_dir(&here)
        .output()?;
    let expected = String::from_utf8_lossy(&on_linux.stdout).into_owned();
    ensure!(on_linux.status.success(), "on Linux: {expected}");
    let there_name = there.to_string_lossy();
    let command = ["run", "-n", "1", "-D", &there_name, &program];
    let command = [&command[..], &arguments].concat();
    let done = cluster.hearth_within(&command, b"", LONG_LIMIT)?;
    let replay = || format!("files-random {seed} {operations}");
    let got = done.expect_code(0).with_context(replay)?.out();
    ensure!(
        got == expected,
        "{}: Linux prints {expected}, the node {got}",
        replay()
    );
    let same = fs::read(here.join("random"))? == fs::read(there.join("random"))?;
    ensure!(same, "{}: another file is left", replay());
    Ok(())
}

/// `/tmp` is the node's: the same programs print there what they print on Linux, with an I/O
/// service and without one.
fn in_tmp(cluster: &Cluster) -> Result<()> {
    let here = folder(cluster, "tmp-here")?;
    let here = here.to_string_lossy();
    let seed = std::process::id().to_string();
    for (name, arguments) in [
        ("files", &[][..]),
        ("files-random", &[&seed[..], OPERATIONS]),
    ] {
        let program = cluster.program(name);
        let on_linux = Command::new(&program)
            .args(arguments)
            .arg(&*here)
            .output()?;
        let expected = String::from_utf8_lossy(&on_linux.stdout).into_owned();
        ensure!(on_linux.status.success(), "{name} on Linux: {expected}");
        for without in [&["--no-files"][..], &[]] {
            let run = [
                &["run", "-n", "1"],
                without,
                &[&program],
                arguments,
                &["/tmp"],
            ]
            .concat();
            let done = cluster.hearth_within(&run, b"", LONG_LIMIT)?;
            let done = done
                .expect_code(0)
                .with_context(|| format!("{name} {seed}"))?;
            let (wanted, got) = (expected.lines(), done.out());
            if let Some((wanted, got)) = wanted.zip(got.lines()).find(|(a, b)| a != b) {
                bail!("{name}: Linux prints {wanted:?}, the node {got:?} ({without:?})");
            }
            ensure!(got == expected, "{name}: another number of lines");
        }
    }
    // Nothing of it has reached this machine, or stays on the node.
    let program = cluster.program("ranks-tmp");
    for _ in 0..2 {
        let said = cluster
            .hearth(&["run", "-n", "1", &program])?
            .expect_code(0)?;
        ensure!(said.out() == tmp_said(1), "{}", said.out());
    }
    Ok(())
}

pub fn of_several_ranks(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "ranks-files")?;
    let program = cluster.program("ranks-files");
    let folder_name = folder.to_string_lossy();
    let done = cluster
        .hearth(&["run", "-n", "4", "-D", &folder_name, &program])?
        .expect_code(0)?;
    let sum = format!(": {}", RANKS * ADDS);
    let right = done
        .out()
        .lines()
        .filter(|line| line.ends_with(&sum))
        .count();
    ensure!(right == RANKS, "{right} ranks saw the sum:\n{}", done.out());
    let log = fs::read_to_string(folder.join("log"))?;
    let mut lines: Vec<&str> = log.lines().collect();
    ensure!(
        lines.len() == RANKS * LINES,
        "{} lines were kept",
        lines.len()
    );
    lines.sort_unstable();
    lines.dedup();
    ensure!(lines.len() == RANKS * LINES, "lines were torn or doubled");
    let records = fs::read(folder.join("records"))?;
    let whole = records.chunks(RECORD).filter(|record| {
        let is_one = record.iter().all(|byte| *byte == record[0]);
        is_one && record.len() == RECORD
    });
    let mut whole: Vec<u8> = whole.map(|record| record[0]).collect();
    whole.sort_unstable();
    whole.dedup();
    ensure!(
        whole.len() == RANKS * RECORDS && records.len() == whole.len() * RECORD,
        "{} of {} records are whole",
        whole.len(),
        RANKS * RECORDS
    );
    Ok(())
}

/// Eight nodes read one file: a cast brings it, and the service reads it about once. What rank 0
/// writes is what all others read then.
fn cast_what_many_read(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "reads")?;
    let word = |place: u64| place.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    // As `ranks-files-time` has it: each block begins with its number.
    let block = |number: u64| std::iter::once(number).chain((1..SAME_CALL_BYTES / 8).map(word));
    let blocks = (0..SAME_CALLS).flat_map(block).flat_map(u64::to_le_bytes);
    fs::write(folder.join("bulk.0"), blocks.collect::<Vec<u8>>())?;
    let words = (0..).flat_map(|place| word(place).to_le_bytes());
    let words = words.take(SAME_BYTES as usize).collect::<Vec<u8>>();
    fs::write(folder.join("same"), words)?;
    // They are to be at rest when they are read.
    std::thread::sleep(Duration::from_millis(1_500));
    let sent = || -> Result<u64> {
        let services = cluster.json(&["nodes", "--io"])?;
        let sent = services[0]["sent_bytes"].as_u64();
        sent.with_context(|| format!("no bytes sent in {services}"))
    };
    let before = sent()?;
    let folder = folder.to_string_lossy();
    let run = |program: &str, arguments: &[&str]| {
        let program = cluster.program(program);
        let words = ["run", "-n", "8", "-D", &folder, &program];
        let done = cluster.hearth(&[&words, arguments].concat())?;
        done.expect_code(0)
    };
    let (calls, bytes) = (SAME_CALLS.to_string(), SAME_CALL_BYTES.to_string());
    run("ranks-files-time", &["same", &calls, &bytes])?;
    let took = sent()? - before;
    let all = SAME_CALLS * SAME_CALL_BYTES;
    ensure!(took < 2 * all, "of {all} bytes the service gave {took}");
    let casts = cluster.json(&["casts"])?;
    let of = casts["casts"].as_array().into_iter().flatten();
    let of = of.filter(|cast| cast["kind"] == "read" && cast["bytes"] == all);
    // Those that came late have it by a cast of their own.
    let done = of.map(|cast| cast["done"].as_u64().unwrap_or(0));
    ensure!(
        done.sum::<u64>() == SAME_NODES as u64,
        "it was not cast to all that read it: {casts}"
    );
    let done = run("ranks-reads", &["same"])?;
    let line = format!("{SAME_BYTES} 300000 300000 {SAME_BYTES}");
    let right = done.out().lines().filter(|said| *said == line).count();
    ensure!(
        right == SAME_NODES,
        "{right} ranks read all:\n{}",
        done.out()
    );
    Ok(())
}

/// All ranks write one file in blocks by turns and read each other's; and they make, rename and
/// remove names in one directory. What is left is checked here.
pub fn shared_by_all_ranks(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "shared-by-all")?;
    let run = |program: &str, arguments: &[&str]| -> Result<String> {
        let (program, folder) = (cluster.program(program), folder.to_string_lossy());
        let command = [&["run", "-n", "4", "-D", &*folder, &program], arguments].concat();
        Ok(cluster.hearth(&command)?.expect_code(0)?.out())
    };
    let expect_all = |said: &str, end: &str| -> Result<()> {
        let right = said.lines().filter(|line| line.ends_with(end)).count();
        ensure!(right == RANKS, "{right} ranks say {end:?}:\n{said}");
        Ok(())
    };
    // Blocks of whole pages, and of odd lengths.
    for (file, segments, block, piece) in [("even", 8, 65_536, 16_384), ("odd", 15, 10_007, 3_001)]
    {
        let numbers = [segments, block, piece].map(|number: usize| number.to_string());
        let [segments_said, block_said, piece_said] = &numbers;
        let arguments = [file, segments_said, block_said, piece_said];
        expect_all(&run("ranks-files-shared", &arguments)?, ": whole")?;
        let written = fs::read(folder.join(file))?;
        let byte = |at: usize| (at * 31 + at / 251 + 101) as u8;
        let whole: Vec<u8> = (0..RANKS * segments * block).map(byte).collect();
        ensure!(written == whole, "{file} is not what was written last");
    }
    let kept = SHARED_FILES.div_ceil(KEPT);
    let said = run("ranks-files-names", &[&SHARED_FILES.to_string()])?;
    expect_all(&said, &format!(": {kept} kept"))?;
    let left = entries(&folder)?;
    ensure!(left == ["even", "odd", "shared"], "{left:?}");
    let moved = |rank| (0..kept).map(move |file| format!("moved.{rank}.{}", file * KEPT));
    let mut expected: Vec<String> = (0..RANKS).flat_map(moved).collect();
    expected.sort();
    let names = entries(&folder.join("shared"))?;
    ensure!(names == expected, "{names:?} are left in the directory");
    for name in names {
        let made = format!("shared/{}", name.replace("moved", "made"));
        let held = fs::read_to_string(folder.join("shared").join(&name))?;
        ensure!(held == made, "{name} holds {held:?}");
    }
    Ok(())
}

fn under_other_paths(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "mounts")?;
    let folder_name = folder.to_string_lossy().into_owned();
    fs::write(folder.join("input"), [7; 5000])?;
    let program = cluster.program("filesum");
    let mount = format!("{folder_name}:/data:ro");
    let run = |more: &[&str], file: &str| {
        let words = [
            &["run", "-n", "1", "-D", &folder_name],
            more,
            &[&program, file],
        ];
        cluster.hearth(&words.concat())
    };
    let direct = run(&[], "input")?.expect_code(0)?.out();
    let mounted = run(&["--mount", &mount], "/data/input")?.expect_code(0)?;
    ensure!(
        mounted.out().split_once(": ").map(|parts| parts.1)
            == direct.split_once(": ").map(|parts| parts.1),
        "{} is not {direct}",
        mounted.out()
    );
    // Without files, and with one that is nowhere.
    ensure!(
        run(&["--no-files"], "input")?.code() != 0,
        "files without files"
    );
    run(&["--mount", "/none:/data"], "input")?.expect_err("/none")?;
    run(&["--mount", "nonsense"], "input")?.expect_err("HOST:NODE")?;
    Ok(())
}

/// The process that carries out a job's calls is killed: while nothing is asked of it, and while it
/// stands still with a call.
fn outlive_their_service(cluster: &Cluster) -> Result<()> {
    let kill = || signal_worker(&cluster.control_pid()?, "KILL");
    let stop = || signal_worker(&cluster.control_pid()?, "STOP");
    outlive(cluster, &kill, &stop, &kill)?;
    let jobs = cluster.json(&["jobs"])?;
    let last = jobs.as_array().and_then(|jobs| jobs.last());
    let why = last.and_then(|job| job["troubles"][0].as_str());
    ensure!(
        why.is_some_and(|why| why.contains("has ended")),
        "the job does not say why its files failed: {jobs}"
    );
    Ok(())
}

/// The control node, which carries calls out here, is stopped and started, and then killed: SQLite
/// goes on with its files and locks, and there is nothing to tell.
fn feel_nothing_of_control(cluster: &Cluster) -> Result<()> {
    let again = |time: usize| -> Result<()> {
        match time {
            0 => {
                cluster.hearth(&["stop"])?.expect_code(0)?;
                cluster.hearth(&["up"])?.expect_code(0)?;
            }
            _ => {
                let pid = cluster.control_pid()?;
                command::run("kill".as_ref(), &["-KILL", &pid], b"", LIMIT)?.expect_code(0)?;
            }
        }
        Ok(())
    };
    let before = failures(cluster)?;
    let reopened = sqlite::commit_meanwhile(cluster, 2, &again)?;
    ensure!(
        reopened == 0,
        "the database was opened again {reopened} times"
    );
    ensure!(failures(cluster)? == before, "files-failed was told");
    Ok(())
}

/// How often files of jobs have failed.
fn failures(cluster: &Cluster) -> Result<usize> {
    let events = cluster.hearth(&["events"])?.expect_code(0)?.out();
    Ok(events.matches("files-failed").count())
}

/// Runs `files-outlive`, whose files are open while `idle` is done; then `stop` has what carries
/// out its calls stand still, and `dies` ends it.
pub fn outlive(
    cluster: &Cluster,
    idle: &dyn Fn() -> Result<()>,
    stop: &dyn Fn() -> Result<()>,
    dies: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let folder = folder(cluster, "outlive")?;
    for name in ["moved", "gone"] {
        fs::write(folder.join(name), name)?;
    }
    fs::create_dir_all(folder.join("sub"))?;
    let program = cluster.program("files-outlive");
    let folder_name = folder.to_string_lossy().into_owned();
    let mut client = cluster
        .command(&["run", "-n", "1", "-D", &folder_name, &program])
        .stdout(Stdio::piped())
        .spawn()?;
    let said = client.stdout.take().context("no standard output")?;
    let mut said = BufReader::new(said);
    let mut all = String::new();
    let mut until = |line: &str| -> Result<()> {
        let begin = all.len();
        while !all[begin..].ends_with(&format!("{line}\n")) {
            ensure!(
                said.read_line(&mut all)? > 0,
                "it ended without {line:?}:\n{all}"
            );
        }
        Ok(())
    };
    until("ready")?;
    idle()?;
    // Another file of that name, and none.
    fs::write(folder.join("new"), "another")?;
    fs::rename(folder.join("new"), folder.join("moved"))?;
    fs::remove_file(folder.join("gone"))?;
    fs::write(folder.join("go"), "")?;
    until("asking")?;
    stop()?;
    std::thread::sleep(Duration::from_secs(1));
    dies()?;
    fs::write(folder.join("on"), "")?;
    said.read_to_string(&mut all)?;
    let status = client.wait()?;
    ensure!(status.success(), "{status}:\n{all}");
    let lines = || OUTLIVED.lines().zip(all.lines());
    if let Some((wanted, got)) = lines().find(|(wanted, got)| wanted != got) {
        bail!("{got:?} instead of {wanted:?}:\n{all}");
    }
    ensure!(all == OUTLIVED, "another number of lines:\n{all}");
    ensure!(fs::read(folder.join("data"))?.len() == 301_000);
    ensure!(fs::read_to_string(folder.join("log"))? == "one\ntwo\n");
    Ok(())
}

/// The process by which a service carries out the calls of the job that called it last: those of
/// jobs that are over may be there for a moment.
pub fn worker_pid(service: &str) -> Result<String> {
    find_worker(service)?.with_context(|| format!("service {service} has no worker"))
}

/// The same, where there is one.
pub fn find_worker(service: &str) -> Result<Option<String>> {
    let found = ["-n", "-P", service, "-f", "io-worker"];
    let found = command::run("pgrep".as_ref(), &found, b"", LIMIT)?;
    let pid = found.out().trim().to_owned();
    Ok((!pid.is_empty()).then_some(pid))
}

/// Sends a signal to it.
pub fn signal_worker(service: &str, signal: &str) -> Result<()> {
    let signal = format!("-{signal}");
    let worker = worker_pid(service)?;
    command::run("kill".as_ref(), &[&signal, &worker], b"", LIMIT)?.expect_code(0)?;
    Ok(())
}

/// A file system of three megabytes, mounted here while this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Nothing where this user may not mount.
    fn mount(folder: PathBuf) -> Result<Option<Self>> {
        let place = folder.to_string_lossy().into_owned();
        let arguments = ["-t", "tmpfs", "-o", "size=3m,mode=777", "none", &place];
        let done = command::run("mount".as_ref(), &arguments, b"", LIMIT)?;
        Ok((done.code() == 0).then_some(Self(folder)))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A worker may still be about to end that sees it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A disk becomes full by writes of a megabyte, and what they said is there; a mount that is to be
/// read only, and mappings that would have to be written back.
fn cannot_be_written(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "cannot")?;
    let program = cluster.program("files-full");
    let run = |place: &Path, more: &[&str], what: &str| -> Result<String> {
        let place = place.to_string_lossy().into_owned();
        let words = [&["run", "-n", "1", "--report", "-D", &place], more];
        let words = [&words.concat(), &[&program[..], what][..]].concat();
        let done = cluster.hearth(&words)?.expect_code(0);
        let done = done.with_context(|| what.to_owned())?;
        Ok(format!("{}{}", done.out(), done.err()))
    };
    let on_linux = |place: &Path, what: &str| -> Result<String> {
        let done = Command::new(&program)
            .arg(what)
            .current_dir(place)
            .output()?;
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let disk = folder.join("disk");
    fs::create_dir(&disk)?;
    match SmallDisk::mount(disk.clone())? {
        None => println!("          a full disk: this user may not mount, left out"),
        Some(disk) => {
            let expected = on_linux(&disk.0, "full")?;
            ensure!(expected.starts_with("full: ENOSPC"), "Linux: {expected}");
            fs::remove_file(disk.0.join("kept"))?;
            let said = run(&disk.0, &[], "full")?;
            ensure!(said.starts_with(&expected), "{said}instead of\n{expected}");
            let kept = fs::read(disk.0.join("kept"))?;
            let byte = |at: usize| (at * 31 + at / 4099) as u8;
            let right = kept.iter().enumerate().all(|(at, kept)| *kept == byte(at));
            ensure!(
                right && said.contains(&format!("kept has {}\n", kept.len())),
                "{} bytes of what was synchronised are there: {said}",
                kept.len()
            );
        }
    }
    let closed = folder.join("closed");
    fs::create_dir(&closed)?;
    fs::write(closed.join("input"), "input")?;
    let mount = format!("{0}:{0}:ro", closed.to_string_lossy());
    let said = run(&closed, &["--mount", &mount], "read-only")?;
    let refused = said.lines().take(8).filter(|line| line.ends_with("EROFS"));
    ensure!(
        refused.count() == 8 && said.contains("\ninput: 5\n"),
        "an export that is read only: {said}"
    );
    ensure!(entries(&closed)? == ["input"], "it was changed");
    let expected = on_linux(&folder, "maps")?;
    let expected = expected.replace("writable: 0", "writable: ENODEV");
    let said = run(&folder, &[], "maps")?;
    ensure!(said.starts_with(&expected), "{said}instead of\n{expected}");
    ensure!(
        said.contains("mmap"),
        "the report does not name mmap: {said}"
    );
    Ok(())
}

/// A file is mapped while the process that reads it is killed: no mapping has zeros in its place.
fn mapped_meanwhile(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "mapping")?;
    let pages = (0..4096_u32).flat_map(|page| [(page % 255 + 1) as u8; 4096]);
    fs::write(folder.join("bulk"), pages.collect::<Vec<u8>>())?;
    let (program, place) = (cluster.program("files-full"), folder.to_string_lossy());
    let limit = format!("{}s", MAPPING_LIMIT.as_secs());
    let options = ["run", "-n", "1", "-t", &limit, "-D", &place];
    let arguments = [&options[..], &[&program, "mapping"]].concat();
    let mut client = cluster.command(&arguments).stdout(Stdio::piped()).spawn()?;
    let said = client.stdout.take().context("no standard output")?;
    let (mut said, mut all) = (BufReader::new(said), String::new());
    said.read_line(&mut all)?;
    ensure!(all == "mapping\n", "it says {all:?}");
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(1_500));
        signal_worker(&cluster.control_pid()?, "KILL")?;
    }
    std::thread::sleep(Duration::from_millis(1_500));
    fs::write(folder.join("on"), "")?;
    said.read_to_string(&mut all)?;
    let status = client.wait()?;
    ensure!(
        status.success() && all == "mapping\nwrong: 0\n",
        "{status}:\n{all}"
    );
    Ok(())
}

/// What the machine has beside what is exported.
fn out_of_reach(cluster: &Cluster) -> Result<()> {
    let folder = folder(cluster, "reach")?;
    let folder_name = folder.to_string_lossy().into_owned();
    std::os::unix::fs::symlink("/etc/hostname", folder.join("link"))?;
    let up = format!("{}etc/hostname", "../".repeat(40));
    let program = cluster.program("filesum");
    for path in ["/etc/hostname", "/proc/self/root/etc/hostname", "link", &up] {
        let done = cluster.hearth(&["run", "-n", "1", "-D", &folder_name, &program, path])?;
        ensure!(done.code() != 0, "{path} was read: {}", done.out());
    }
    Ok(())
}
