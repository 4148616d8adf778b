//! Slurm's words on our command line: what `run`, `submit` and job scripts make of its options that
//! have no equivalent or another name here, and which command of ours stands for which of its.
//!
//! Key types: [`NotTaken`] (options that are refused with what to write instead), [`Export`],
//! [`dependencies`]. Neighbours: `job_options` has the options that are taken.
//!
//! Invariant: an option of Slurm either means what it means there or stops the command with a
//! sentence that says what to write; none is passed over in silence.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::api::types::{AfterCondition, AfterJob};

/// What an option of Slurm takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Value,
    /// Nothing, or a value behind `=`.
    Maybe,
}

/// An option of Slurm without an equivalent.
struct Row {
    long: &'static str,
    short: Option<char>,
    takes: Takes,
    /// Values for which it says what is so anyway; it is taken with these. Empty: without a value.
    always_so: &'static [&'static str],
    /// What to write instead, or why there is nothing.
    instead: &'static str,
}

const fn row(
    long: &'static str,
    short: Option<char>,
    takes: Takes,
    always_so: &'static [&'static str],
    instead: &'static str,
) -> Row {
    Row {
        long,
        short,
        takes,
        always_so,
        instead,
    }
}

const ONE_RANK: &str =
    "ranks are shared out to nodes evenly; write -n RANKS -N NODES, -c N for N cores of each rank";
const WHOLE_NODES: &str = "a job has its nodes alone, with all their memory; leave it out";
const NO_GPUS: &str = "nodes have no GPUs and no other generic resources; leave it out";
const NO_MAIL: &str = "no mail is sent; `hearth output JOB --follow` waits for the end of a job, then send it yourself";
const NO_SHARING: &str = "a node has one job at a time; leave it out";

/// Slurm's options without an equivalent. One that means the same as ours is not here: it is an
/// alias there.
const ROWS: &[Row] = {
    use Takes::{Maybe, Value};
    &[
        row(
            "account",
            Some('A'),
            Value,
            &[],
            "there are no accounts; leave it out. `hearth history --user USER` lists the jobs of a user",
        ),
        row(
            "begin",
            Some('b'),
            Value,
            &[],
            "jobs have no time to begin at; write --hold, and `hearth release JOB` when it may start",
        ),
        row(
            "clusters",
            Some('M'),
            Value,
            &[],
            "write `hearth --cluster NAME`; `hearth list` has the names",
        ),
        row(
            "constraint",
            Some('C'),
            Value,
            &[],
            "nodes have no features; write -w LIST for nodes that the job must have, -x LIST for those that it must not",
        ),
        row("cpu-bind", None, Value, &["none"], ONE_RANK),
        row(
            "distribution",
            Some('m'),
            Value,
            &[],
            "write --nodes LIST: rank i runs on the i-th node of it",
        ),
        row("exclusive", None, Maybe, &[""], NO_SHARING),
        row(
            "get-user-env",
            None,
            Maybe,
            &[],
            "write --export=NAME=VALUE for each variable that the job needs",
        ),
        row("gpus", Some('G'), Value, &[], NO_GPUS),
        row("gpus-per-node", None, Value, &[], NO_GPUS),
        row("gpus-per-task", None, Value, &[], NO_GPUS),
        row("gres", None, Value, &["none"], NO_GPUS),
        row(
            "licenses",
            Some('L'),
            Value,
            &[],
            "there are no licenses; leave it out",
        ),
        row("mail-type", None, Value, &["NONE"], NO_MAIL),
        row("mail-user", None, Value, &[], NO_MAIL),
        row("mem", None, Value, &["0"], WHOLE_NODES),
        row("mem-per-cpu", None, Value, &[], WHOLE_NODES),
        row("mem-per-gpu", None, Value, &[], WHOLE_NODES),
        row(
            "mpi",
            None,
            Value,
            &["none"],
            "ranks talk through libhearth (hearth.h), not MPI; leave it out",
        ),
        row(
            "no-requeue",
            None,
            Maybe,
            &[""],
            "jobs are queued again with --requeue alone",
        ),
        row("ntasks-per-core", None, Value, &["1"], ONE_RANK),
        row("ntasks-per-node", None, Value, &["1"], ONE_RANK),
        row("ntasks-per-socket", None, Value, &["1"], ONE_RANK),
        row(
            "open-mode",
            None,
            Value,
            &["truncate"],
            "files of -o and -e begin empty; write a name with %j for one a job",
        ),
        row("oversubscribe", Some('s'), Maybe, &[], NO_SHARING),
        row(
            "partition",
            Some('p'),
            Value,
            &[],
            "there are no partitions, one queue has all nodes; leave it out, or write -w LIST for nodes that the job must have",
        ),
        row(
            "qos",
            Some('q'),
            Value,
            &[],
            "there is no QOS; write --priority NUMBER, a higher one goes first",
        ),
        row(
            "reservation",
            None,
            Value,
            &[],
            "there are no reservations; leave it out, or write -w LIST for nodes that the job must have",
        ),
        row(
            "signal",
            None,
            Value,
            &[],
            "SIGTERM comes at the time limit, and SIGKILL when jobs.grace_s are over; leave it out, and send others with `hearth signal JOB USR1`",
        ),
        row(
            "switches",
            None,
            Value,
            &[],
            "jobs get the nodes with the fewest hops anyway; leave it out",
        ),
        row(
            "test-only",
            None,
            Maybe,
            &[],
            "write `hearth plan` to see which nodes a job would get",
        ),
        row("threads-per-core", None, Value, &["1"], ONE_RANK),
        row(
            "time-min",
            None,
            Value,
            &[],
            "write --time-limit TIME: a job has one limit",
        ),
        row(
            "tmp",
            None,
            Value,
            &[],
            "nodes have no disks; write --with FILE for files that the program reads",
        ),
        row(
            "wrap",
            None,
            Value,
            &[],
            "nodes have no shell; write the program and its arguments: `hearth submit ./app --size 100`",
        ),
    ]
};

impl Row {
    fn argument(&self) -> Arg {
        let argument = Arg::new(self.long).long(self.long).hide(true);
        let argument = match self.short {
            Some(short) => argument.short(short),
            None => argument,
        };
        let argument = argument.value_parser(ValueParser::string());
        let argument = argument.action(ArgAction::Append);
        match self.takes {
            Takes::Value => argument,
            Takes::Maybe => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(""),
        }
    }

    /// What to say of it where it was given and is not so anyway.
    fn refusal(&self, matches: &ArgMatches) -> Option<String> {
        let mut given = matches.get_many::<String>(self.long)?;
        let is_other = |value: &&String| !self.always_so.contains(&value.as_str());
        given.find(is_other)?;
        let short = self.short.map(|short| format!("-{short}, "));
        let short = short.unwrap_or_default();
        Some(format!("{short}--{} of Slurm: {}", self.long, self.instead))
    }
}

/// The options of Slurm that are refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotTaken;

impl clap::Args for NotTaken {
    fn augment_args(command: Command) -> Command {
        let add = |command: Command, row: &Row| command.arg(row.argument());
        ROWS.iter().fold(command, add)
    }

    fn augment_args_for_update(command: Command) -> Command {
        NotTaken::augment_args(command)
    }
}

impl clap::FromArgMatches for NotTaken {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match ROWS.iter().find_map(|row| row.refusal(matches)) {
            Some(refusal) => Err(clap::Error::raw(ErrorKind::UnknownArgument, refusal)),
            None => Ok(NotTaken),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = NotTaken::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A number of nodes, for `-N`.
pub fn node_count(text: &str) -> Result<u32, &'static str> {
    let count = text.parse::<u32>().ok().filter(|count| *count > 0);
    count.ok_or("write one number of nodes; -w LIST names nodes that the job must have")
}

/// A value of `--nodes`: a list of ours, or a number of nodes as Slurm has it there. The control
/// node reads lists. One without `n`, which it would take, could be meant as either.
pub fn nodes(text: &str) -> Result<String, &'static str> {
    let is_list = !text.starts_with(|first: char| first.is_ascii_digit());
    match is_list || node_count(text).is_ok() {
        true => Ok(text.to_string()),
        false => Err("write one number of nodes, or a list with n before its numbers: n0,n[3-5]"),
    }
}

/// Jobs to wait for, as Slurm writes them: `afterany:12:14,afterok:13`.
pub fn dependencies(text: &str) -> Result<Vec<AfterJob>, String> {
    let mut after = Vec::new();
    for part in text.split(',') {
        let (kind, jobs) = part.split_once(':').unwrap_or((part, ""));
        let condition = match kind {
            "afterany" => AfterCondition::Any,
            "afterok" => AfterCondition::Ok,
            _ => {
                return Err(format!(
                    "{kind:?} is not among afterany:JOB[:JOB] and afterok:JOB[:JOB], which are taken; \
                     a job waits for the end of others in no other way"
                ));
            }
        };
        for job in jobs.split(':') {
            let job = super::queue::job_number(job)?;
            after.push(AfterJob { job, condition });
        }
    }
    Ok(after)
}

/// Variables of `--export`: `NAME=VALUE`, or `NAME` for the value that it has here; `NONE` is
/// nothing, as without the option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Export(pub Vec<OsString>);

/// Reads the value of `--export`.
pub fn export(text: &str) -> Result<Export, String> {
    if text == "NONE" {
        return Ok(Export::default());
    }
    let variable = |part: &str| match part {
        "ALL" | "NIL" | "" | "NONE" => Err(format!(
            "{part:?}: a job gets the variables that are named and no others; write --export=NAME,NAME=VALUE"
        )),
        _ if part.starts_with('=') => Err("write NAME=VALUE".to_string()),
        _ if part.contains('=') => Ok(OsString::from(part)),
        name => match std::env::var_os(name) {
            Some(value) => {
                let mut variable = OsString::from(format!("{name}="));
                variable.push(value);
                Ok(variable)
            }
            None => Err(format!(
                "the variable {name} is not set here; write {name}=VALUE"
            )),
        },
    };
    text.split(',')
        .map(variable)
        .collect::<Result<_, _>>()
        .map(Export)
}

/// Why a line of options for Slurm cannot be taken that would have `sbatch` wait: `--wait` is an
/// option of ours with another meaning.
pub fn waiting(words: &[OsString]) -> Option<&'static str> {
    let waits = |word: &OsString| word == "--wait" || word == "-W";
    words.iter().any(waits).then_some(
        "-W, --wait of Slurm: `hearth run` waits for the end of a job, and so does `hearth output JOB --follow`",
    )
}

/// Programs that start others on nodes, which `hearth` does by itself.
const STARTERS: [&str; 4] = ["srun", "mpirun", "mpiexec", "prun"];

/// Why a job script's program is none, if it is one that starts programs on nodes.
pub fn starter(program: &str) -> Option<String> {
    STARTERS.contains(&program).then(|| {
        format!(
            "{program} is not needed: a job's program runs once on each of its nodes; write the \
             program itself, and its number of ranks as -n N"
        )
    })
}

/// Commands of Slurm, and of other tools, with ours.
const COMMANDS: &[(&str, &str)] = &[
    (
        "info",
        "`hearth nodes` lists the nodes, `hearth queue` the jobs, `hearth job JOB` shows a job",
    ),
    ("kill", "`hearth cancel JOB` ends a job"),
    (
        "logs",
        "`hearth output JOB` prints what a job has written, `hearth events` what happened",
    ),
    (
        "ps",
        "`hearth queue` lists the jobs that wait or run, `hearth jobs` those that are over too",
    ),
    (
        "rm",
        "`hearth cancel JOB` ends a job, `hearth casts drop NAME` has nodes let go of a file",
    ),
    ("sacct", "`hearth history` lists the jobs that are over"),
    (
        "salloc",
        "a job has its nodes while its program runs: `hearth run` waits for it, `hearth submit` does not",
    ),
    (
        "sattach",
        "`hearth output JOB --follow` prints what a job writes",
    ),
    (
        "sbatch",
        "`hearth submit` queues a program or a job script, whose #SBATCH lines are read",
    ),
    (
        "scancel",
        "`hearth cancel JOB` ends a job; `hearth signal JOB USR1` sends it a signal",
    ),
    (
        "scontrol",
        "`hearth job JOB` shows a job; `hearth hold`, `release`, `priority` change it; `hearth drain`, `resume` are for nodes",
    ),
    (
        "show",
        "`hearth job JOB` shows a job, `hearth nodes` the nodes, `hearth config` the configuration",
    ),
    ("sinfo", "`hearth nodes` lists the nodes"),
    (
        "sprio",
        "`hearth queue` lists jobs in their order; `hearth priority` changes it",
    ),
    ("squeue", "`hearth queue` lists the jobs that wait or run"),
    (
        "srun",
        "`hearth run` runs a program on nodes and waits for it",
    ),
    (
        "sstat",
        "`hearth jobs JOB` shows what the ranks of a job did, `hearth top` the cluster live",
    ),
    (
        "start",
        "`hearth up` starts a cluster of QEMU nodes, `hearth serve` a control node for real ones",
    ),
    (
        "status",
        "`hearth nodes` lists the nodes, `hearth queue` the jobs, `hearth top` shows both live",
    ),
];

/// What to write instead of a command that there is not.
pub fn command(word: &str) -> Option<&'static str> {
    let found = COMMANDS.iter().find(|(theirs, _)| *theirs == word);
    found.map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        not_taken: NotTaken,
        words: Vec<String>,
    }

    fn refused(line: &[&str]) -> Option<String> {
        Line::try_parse_from(line)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn each_option_is_refused_with_a_sentence() {
        for row in ROWS {
            assert!(!row.instead.is_empty(), "--{}", row.long);
            let line = format!("--{}=another", row.long);
            let text = refused(&[&line]).unwrap_or_else(|| panic!("{line} was taken"));
            assert!(text.contains(row.instead), "{text}");
        }
        assert!(ROWS.is_sorted_by_key(|row| row.long));
    }

    #[test]
    fn short_forms_are_refused_too_and_take_their_value() {
        let text = refused(&["-p", "debug", "./app"]).unwrap();
        assert!(
            text.contains("-p, --partition") && text.contains("-w LIST"),
            "{text}"
        );
        assert!(refused(&["-A", "project"]).unwrap().contains("accounts"));
        assert!(
            refused(&["--wrap", "./a | ./b"])
                .unwrap()
                .contains("no shell")
        );
    }

    #[test]
    fn what_is_so_anyway_is_taken() {
        for line in [
            &["--exclusive", "./app"][..],
            &["--threads-per-core=1", "./app"],
            &["--ntasks-per-node=1", "./app"],
            &["--no-requeue", "./app"],
            &["--mem=0", "./app"],
        ] {
            let taken = Line::try_parse_from(line).unwrap();
            assert_eq!(taken.words, ["./app"], "{line:?}");
        }
        assert!(refused(&["--exclusive=user"]).is_some());
        assert!(refused(&["--ntasks-per-node", "4"]).is_some());
        let twice = ["--ntasks-per-node=1", "--ntasks-per-node=4"];
        assert!(refused(&twice).is_some());
    }

    #[test]
    fn dependencies_are_read() {
        let after = |job, condition| AfterJob { job, condition };
        let (any, ok) = (AfterCondition::Any, AfterCondition::Ok);
        let wanted = vec![after(1, any), after(2, any), after(3, ok)];
        assert_eq!(dependencies("afterany:1:2,afterok:3"), Ok(wanted));
        for (wrong, word) in [
            ("after:1", "afterany"),
            ("afternotok:1", "afterok"),
            ("singleton", "singleton"),
            ("afterok", "job's number"),
            ("afterok:x", "job's number"),
            ("afterok:1?afterok:2", "job's number"),
        ] {
            let text = dependencies(wrong).unwrap_err();
            assert!(text.contains(word), "{wrong}: {text}");
        }
    }

    #[test]
    fn exported_variables_are_named() {
        assert_eq!(export("NONE"), Ok(Export::default()));
        let taken = export("A=1,B=x=y,PATH").unwrap().0;
        assert_eq!(taken[..2], ["A=1", "B=x=y"]);
        assert!(
            taken[2].to_string_lossy().starts_with("PATH=/"),
            "{taken:?}"
        );
        for wrong in ["ALL", "ALL,A=1", "=1", "", "HEARTH_NO_SUCH_VARIABLE"] {
            assert!(export(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_nodes_are_no_ranges() {
        assert_eq!(node_count("4"), Ok(4));
        for wrong in ["0", "2-4", "n3", ""] {
            assert!(node_count(wrong).is_err(), "{wrong}");
        }
        assert!(nodes("n[2-4]").is_ok() && nodes("4").is_ok());
        assert!(nodes("2-4").is_err() && nodes("0").is_err());
    }

    #[test]
    fn commands_of_ours_are_named_and_none_of_theirs_is_one() {
        assert!(COMMANDS.is_sorted());
        let hearth = super::super::Cli::command();
        for (theirs, ours) in COMMANDS {
            assert!(hearth.find_subcommand(theirs).is_none(), "{theirs}");
            let named = ours.split("`hearth ").skip(1);
            for named in named {
                let word = named.split(['`', ' ']).next().unwrap();
                assert!(hearth.find_subcommand(word).is_some(), "{theirs}: {word}");
            }
        }
        assert!(command("squeue").unwrap().contains("hearth queue"));
        assert_eq!(command("queue"), None);
    }
}
