//! Core files: what a debugger reads of a program that crashed. And what threads of other cores
//! wait for.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::command;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "core-files",
        boot: Boot::Network,
        run: core_files,
    },
    Scenario {
        name: "threads-of-other-cores-fetch-pages",
        boot: Boot::Traced,
        run: fetch_pages,
    },
];

/// How long a debugger may take.
const DEBUGGER: Duration = Duration::from_secs(60);

/// Pages that a thread on another core waits for come while the first core sleeps.
fn fetch_pages(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("threads-cold");
    let run = ["run", "-n", "1", "--cold", "--load", "demand", &program];
    cluster.hearth(&run)?.expect_code(0)?.expect_out("ok\n")?;
    Ok(())
}

fn core_files(cluster: &Cluster) -> Result<()> {
    let folder = cluster.scratch("cores");
    std::fs::create_dir_all(&folder).context("making a folder")?;
    let core = |name: &str| Path::new(&folder).join(name);
    // Rank 2 of four crashes.
    for name in ["core-dump", "pie-core-dump"] {
        let program = cluster.program(name);
        let run = [
            "run", "-n", "4", "--core", "-D", &folder, &program, "--", "2",
        ];
        cluster
            .hearth(&run)?
            .expect_code(128 + 11)?
            .expect_err("core files: core.2; `gdb")?;
        backtraces(&program, &core("core.2"))?;
        if core("core.0").exists() {
            bail!("{name}: a rank that did not crash has left a core file");
        }
        std::fs::remove_file(core("core.2")).context("removing a core file")?;
    }
    // Without the option there is none; nor of a program that ends by itself.
    let program = cluster.program("core-dump");
    let run = ["run", "-n", "1", "-D", &folder, &program];
    cluster.hearth(&run)?.expect_code(128 + 11)?;
    let hello = cluster.program("hello-c");
    let run = ["run", "-n", "1", "--core", "-D", &folder, &hello];
    cluster.hearth(&run)?.expect_code(0)?;
    if core("core.0").exists() {
        bail!("a core file that nobody has asked for, or of nothing");
    }
    bounded(cluster, &folder)?;
    of_batch(cluster, &folder)?;
    cluster.all_nodes_idle()
}

/// Where each thread was, and what a variable has.
fn backtraces(program: &str, core: &Path) -> Result<()> {
    let core = core.to_str().context("paths of tests are UTF-8")?;
    let arguments = [
        "--batch",
        "--nx",
        "-ex",
        "bt",
        "-ex",
        // Number, code and address: SEGV_MAPERR at what the program wrote to.
        "print $_siginfo.si_signo * 100 + $_siginfo.si_code",
        "-ex",
        "print $_siginfo._sifields._sigfault.si_addr",
        "-ex",
        "print (int)known_number",
        "-ex",
        "print (char)*(char*)heap",
        "-ex",
        "thread apply all bt",
        program,
        core,
    ];
    let done = command::run(OsStr::new("gdb"), &arguments, &[], DEBUGGER)?.expect_code(0)?;
    let out = done.out();
    let order = [
        "SIGSEGV",
        "writes_to_nothing",
        "third_step",
        "second_step",
        "first_step",
        "= 1101",
        "(void *) 0x40",
        "= 424242",
        "= 104 'h'",
    ];
    let mut rest = out.as_str();
    for word in order {
        let Some(at) = rest.find(word) else {
            bail!("the debugger says nothing of {word}, or too early:\n{out}");
        };
        rest = &rest[at + word.len()..];
    }
    for word in ["turns_in_circles", "main ("] {
        if !rest.contains(word) {
            bail!("the debugger finds no thread in {word}:\n{out}");
        }
    }
    Ok(())
}

/// A limit is not passed, and what is there can be read.
fn bounded(cluster: &Cluster, folder: &str) -> Result<()> {
    let program = cluster.program("core-dump");
    let run = [
        "run",
        "-n",
        "1",
        "--core=1MiB",
        "-D",
        folder,
        &program,
        "--",
        "0",
        "8",
    ];
    cluster.hearth(&run)?.expect_code(128 + 11)?;
    let core = Path::new(folder).join("core.0");
    let bytes = std::fs::metadata(&core).context("the core file")?.len();
    if !(1 << 19..=1 << 20).contains(&bytes) {
        bail!("a core file of at most 1 MiB has {bytes} bytes");
    }
    std::fs::remove_file(&core).context("removing a core file")
}

/// A job that nobody waits for leaves them, too.
fn of_batch(cluster: &Cluster, folder: &str) -> Result<()> {
    let program = cluster.program("core-dump");
    let submit = [
        "submit",
        "--parsable",
        "-n",
        "2",
        "--core",
        "-D",
        folder,
        &program,
        "1",
    ];
    let job = cluster.hearth(&submit)?.expect_code(0)?.out();
    let job = job.trim();
    let output = cluster.hearth(&["output", "--follow", job])?;
    output.expect_out("core-dump: about to crash\n")?;
    // What a job has written goes into files a moment later.
    let core = Path::new(folder).join(format!("core.{job}.1"));
    let end = Instant::now() + LIMIT;
    loop {
        match backtraces(&program, &core) {
            Err(error) if Instant::now() >= end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
            Ok(()) => break,
        }
    }
    let output = cluster.hearth(&["output", job])?;
    if output.out().contains("ELF") {
        bail!("the output of a job has its core file in it");
    }
    Ok(())
}
