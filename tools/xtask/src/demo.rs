//! `cargo xtask demo`: the whole path, shown on this machine.
//!
//! Sets up, builds, boots diskless QEMU nodes through firmware over the network, runs real
//! programs on them and shows what comes back, then takes everything down. Key constant:
//! [`SCENES`]. Neighbours: `setup`, `build`, and the built `hearth`, which is used exactly as a
//! person would use it: every command is shown before it runs.
//!
//! Invariant: the cluster is taken down whatever happens, unless it is asked to stay.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

/// A name of its own: the demo disturbs no other cluster of this user.
const CLUSTER: &str = "demo";

/// Options of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of nodes
    #[arg(long, default_value_t = 4)]
    nodes: u32,
    /// Network cards of the nodes, as `hearth up` takes them: e1000e, or n0=e1000,n[1-2]=e1000e
    #[arg(long, value_name = "CARD")]
    nic: Option<String>,
    /// Leave the cluster up at the end
    #[arg(long)]
    keep: bool,
}

/// One command of the show.
struct Scene {
    /// What the watcher shall notice.
    says: &'static str,
    /// Words after `hearth --cluster demo`. `@NAME` is an example program, `*` the number of nodes.
    words: &'static [&'static str],
    /// Given as standard input.
    input: &'static str,
    /// The exit status that is right.
    status: i32,
}

const fn scene(says: &'static str, words: &'static [&'static str]) -> Scene {
    Scene {
        says,
        words,
        input: "",
        status: 0,
    }
}

const SCENES: &[Scene] = &[
    scene("The nodes, as the control node sees them", &["nodes"]),
    scene(
        "How they came here: firmware, loader, kernel, joined",
        &["timeline"],
    ),
    scene(
        "A C program (glibc, static) on every node; output is labelled by rank",
        &["run", "-n", "*", "--label", "@hello-c"],
    ),
    scene(
        "The same with another C library: musl",
        &["run", "-n", "1", "@musl-hello"],
    ),
    scene("C++", &["run", "-n", "1", "@hello-cpp"]),
    scene("Fortran", &["run", "-n", "1", "@hello-fortran"]),
    scene("Rust", &["run", "-n", "1", "@hello-rust"]),
    scene(
        "A static position-independent executable",
        &["run", "-n", "1", "@pie-hello"],
    ),
    scene(
        "A computation that checks its own result; the report counts pages and interrupts",
        &["run", "-n", "*", "--report", "@compute"],
    ),
    scene(
        "The same again, on the same nodes: no fault on code, no byte of the program on the wire",
        &["run", "-n", "*", "--warm-only", "--report", "@compute"],
    ),
    scene(
        "A program for all nodes by broadcast: each block leaves the control node once at most, \
         the nodes pass it on",
        &[
            "run",
            "-n",
            "*",
            "--load=broadcast",
            "--report",
            "@hello-cpp",
        ],
    ),
    scene(
        "A file into the memory of all nodes",
        &["cast", "@hello-rust", "--name", "input"],
    ),
    scene(
        "A program that finds the file as /with/input",
        &[
            "run",
            "-n",
            "*",
            "--label",
            "--with",
            "input",
            "@filesum",
            "/with/input",
        ],
    ),
    scene("Which files the nodes hold", &["casts"]),
    scene(
        "Ranks exchange data: a matrix is transposed by one all-to-all and checked (C)",
        &["run", "-n", "*", "@transpose-c", "512"],
    ),
    scene(
        "Conjugate gradient with reductions between the ranks, checked against a serial run (Rust)",
        &["run", "-n", "*", "@cg-rust"],
    ),
    scene(
        "Two nodes for a job: those with the fewest hops between them",
        &["run", "-n", "2", "--label", "@hello-rust"],
    ),
    scene(
        "The same question for a larger tree that is partly taken",
        &[
            "plan",
            "--tree",
            "4x4x4",
            "--free",
            "n[2-5,17-24]",
            "-n",
            "6",
        ],
    ),
    scene(
        "What the nodes count flows up a tree that they form themselves",
        &["overlay"],
    ),
    scene(
        "... and is seen live here, or in a browser at the address of the API",
        &["top", "--once"],
    ),
    Scene {
        says: "Arguments, environment and standard input reach the program; its exit status is \
               the number of arguments",
        words: &[
            "run",
            "-n",
            "1",
            "--env",
            "COLOUR=orange",
            "@echo-all",
            "--",
            "one",
            "two",
        ],
        input: "a line of standard input\n",
        status: 2,
    },
    Scene {
        says: "A program that follows a null pointer is ended with a report; the node stays",
        words: &["run", "-n", "1", "@misbehave", "null"],
        input: "",
        status: 139,
    },
    scene(
        "Which programs the nodes hold for their next launch",
        &["programs"],
    ),
    scene("The jobs so far", &["jobs"]),
    scene("And the nodes: all in service", &["nodes"]),
];

/// Runs the show.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    title("Setting this machine up");
    crate::setup::run(workspace, &crate::setup::Options::default())?;
    title("Building");
    let built = crate::build::run(workspace, &crate::build::Options::without_setup())?;
    ensure!(built == ExitCode::SUCCESS, "the build failed, see above");

    let stage = Stage {
        workspace,
        nodes: options.nodes.to_string(),
    };
    // What an interrupted demo may have left; usually there is nothing.
    let _ = stage
        .hearth(&["down"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    title("Booting diskless nodes over the network");
    let result = stage.show(&up(options), "", 0).and_then(|()| {
        SCENES.iter().try_for_each(|scene| {
            title(scene.says);
            stage.show(scene.words, scene.input, scene.status)
        })
    });
    if options.keep && result.is_ok() {
        title("The cluster stays up");
        eprintln!("  hearth --cluster {CLUSTER} down   takes it down");
    } else {
        title("Taking everything down");
        let down = stage.show(&["down"], "", 0);
        result.and(down)?;
    }
    eprintln!(
        "\nThat was the demo: {:.0} s, all as it should be.",
        started.elapsed().as_secs_f64()
    );
    eprintln!("`cargo xtask test` tests everything; README.md says how to use it.");
    Ok(ExitCode::SUCCESS)
}

/// The command that brings the cluster up.
fn up(options: &Options) -> Vec<&str> {
    let mut words = vec!["up", "--nodes", "*", "--memory", "48M"];
    if options.nodes == 4 {
        words.extend(["--tree", "2x2"]);
    }
    if let Some(cards) = &options.nic {
        words.extend(["--nic", cards]);
        // QEMU has no boot ROM for this one.
        if cards.contains("igb") {
            words.push("--direct");
        }
    }
    words
}

fn title(text: &str) {
    eprintln!("\n=== {text}");
}

struct Stage<'a> {
    workspace: &'a Workspace,
    nodes: String,
}

impl Stage<'_> {
    fn hearth(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.workspace.hearth());
        command.args(["--cluster", CLUSTER]);
        for word in words {
            match word.strip_prefix('@') {
                Some(program) => command.arg(self.workspace.programs().join(program)),
                None if *word == "*" => command.arg(&self.nodes),
                None => command.arg(word),
            };
        }
        command
    }

    /// Shows a command, runs it with the terminal, and compares its exit status.
    fn show(&self, words: &[&str], input: &str, status: i32) -> Result<()> {
        let shown: Vec<_> = words
            .iter()
            .map(|word| match word.strip_prefix('@') {
                Some(program) => format!("target/hearth/programs/{program}"),
                None if *word == "*" => self.nodes.clone(),
                None => (*word).to_owned(),
            })
            .collect();
        let line = format!("hearth --cluster {CLUSTER} {}", shown.join(" "));
        eprintln!("$ {line}");
        let mut child = self
            .hearth(words)
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting `{line}`"))?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that does not read its input is none the worse for it.
            let _ = pipe.write_all(input.as_bytes());
        }
        let ended = child
            .wait()
            .with_context(|| format!("waiting for `{line}`"))?;
        ensure!(
            ended.code() == Some(status),
            "`{line}` ended with {ended}, expected exit status {status}"
        );
        if status != 0 {
            eprintln!("(exit status {status}, as expected)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_has_the_cards_that_are_wanted() {
        let words = |nodes, nic: Option<&str>| {
            let nic = nic.map(str::to_owned);
            let keep = false;
            up(&Options { nodes, nic, keep }).join(" ")
        };
        assert_eq!(words(4, None), "up --nodes * --memory 48M --tree 2x2");
        let mixed = words(3, Some("n0=e1000,n1=e1000e"));
        assert_eq!(mixed, "up --nodes * --memory 48M --nic n0=e1000,n1=e1000e");
        assert!(words(4, Some("igb")).ends_with("--nic igb --direct"));
    }

    #[test]
    fn every_program_of_the_show_is_built() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let stems = |folder: &str, suffix: &str| -> Vec<String> {
            let files = std::fs::read_dir(format!("{root}/{folder}")).unwrap();
            let paths = files.map(|entry| entry.unwrap().path());
            paths
                .filter(|path| path.is_file())
                .map(|path| format!("{}{suffix}", path.file_stem().unwrap().to_str().unwrap()))
                .collect()
        };
        let stems = [
            stems("tests/programs", ""),
            stems("kernel/user/examples/c", "-c"),
            stems("kernel/user/examples/cpp", "-cpp"),
            stems("kernel/user/examples", "-rust"),
        ]
        .concat();
        let programs = SCENES
            .iter()
            .flat_map(|scene| scene.words)
            .filter_map(|w| w.strip_prefix('@'));
        for program in programs {
            assert!(
                stems.iter().any(|stem| stem == program),
                "{program} is in no source file"
            );
        }
    }
}
