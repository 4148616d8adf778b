//! What a job is to be: the options that `run`, `submit` and job scripts share, and the request
//! made of them.
//!
//! Key types: [`JobOptions`], [`QueueOptions`], [`Files`]. Neighbours: `run`, `submit`, `script`.
//!
//! Invariant: an option means the same in all three places, since it is defined once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;

use super::array::Array;
use super::{exit, slurm};
use crate::api::types::{
    AfterCondition, AfterJob, FilesRequest, JobAccepted, JobRequest, Reuse, WithFile,
};
use crate::client::{Client, RequestError};
use crate::config::{Load, Verify};
use crate::jobs::{OWN_VARIABLES, TIME_LIMIT_MOST_S};
use crate::output_files::{Pattern, Wanted};
use crate::{programs, secrets};

/// Options of a job.
#[derive(Debug, Clone, Default, Args)]
pub struct JobOptions {
    /// Number of ranks [default: as many as nodes, else 1].
    #[arg(short = 'n', long, alias = "ntasks", value_name = "N", value_parser = whole::<u32>)]
    ranks: Option<u32>,
    /// Number of nodes that the ranks are shared out to, in blocks: with -n 8 -N 2 ranks 0 to 3 are
    /// on the first [default: a node for each rank].
    #[arg(short = 'N', value_name = "N", value_parser = slurm::node_count)]
    node_count: Option<u32>,
    /// Cores that each rank may use; its node has as many for each of its ranks at least [default:
    /// any nodes, all their cores, shared out]. OMP_NUM_THREADS is their number, unless --env says
    /// otherwise.
    #[arg(short = 'c', long, alias = "cpus-per-task", value_name = "N", value_parser = whole::<u16>)]
    cores: Option<u16>,
    /// Run on these nodes and no others, rank 0 on the first: n0,n[3-5]. A number is a number of
    /// nodes.
    #[arg(long, value_name = "LIST", value_parser = slurm::nodes)]
    nodes: Option<String>,
    /// Have these nodes among the job's: n0,n[3-5].
    #[arg(short = 'w', long, value_name = "LIST", conflicts_with = "warm_only")]
    nodelist: Option<String>,
    /// Have none of these nodes among the job's.
    #[arg(short = 'x', long, value_name = "LIST", conflicts_with = "warm_only")]
    exclude: Option<String>,
    /// Name of the job in lists [default: the program's].
    #[arg(short = 'J', long, alias = "job-name", value_name = "NAME")]
    name: Option<String>,
    /// Give the job an environment variable; it gets no others than these and HEARTH_*.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable())]
    env: Vec<OsString>,
    /// The same for several, separated by commas; NAME alone has the value that it has here.
    #[arg(long, value_name = "NAMES", value_parser = slurm::export)]
    export: Vec<slurm::Export>,
    /// Take no measurements on the job's nodes while it runs, and one when it has ended.
    #[arg(long, help_heading = super::MEASUREMENTS)]
    quiet: bool,
    /// End the job after so long, as in Slurm: minutes, or M:SS, H:MM:SS, D-HH, D-HH:MM,
    /// D-HH:MM:SS; also 30s, 10m, 2h, 1d; 0: never [config: jobs.time_limit_s].
    #[arg(short = 't', long, alias = "time", value_name = "TIME", value_parser = time_limit)]
    time_limit: Option<u64>,
    /// Jobs with a higher priority go first [default: 0].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// A priority of so much less, as in Slurm [default with the option: 100].
    #[arg(long, value_name = "NUMBER", num_args = 0..=1, require_equals = true, default_missing_value = "100", allow_negative_numbers = true, conflicts_with = "priority", hide = true)]
    nice: Option<i32>,
    /// Start only when these jobs have ended, however they did: 12,14.
    #[arg(long, value_name = "JOBS", value_delimiter = ',', value_parser = super::queue::job_number)]
    after: Vec<u64>,
    /// Start only when these jobs have completed; if one did not, this one is cancelled.
    #[arg(long, value_name = "JOBS", value_delimiter = ',', value_parser = super::queue::job_number)]
    after_ok: Vec<u64>,
    /// --after and --after-ok as Slurm writes them: afterany:12:14,afterok:13.
    #[arg(short = 'd', long, value_name = "LIST", value_parser = slurm::dependencies)]
    dependency: Option<Dependencies>,
    /// Write standard output to FILE, without -e standard error too; %j in its name is the job, %n
    /// and %r are the rank (a file a rank).
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<Pattern>,
    /// Write standard error to FILE.
    #[arg(short = 'e', long, value_name = "FILE")]
    error: Option<Pattern>,
    /// Leave a core file of each rank that crashes, for a debugger: core.RANK in the folder of
    /// --chdir (of `submit`: core.JOB.RANK), each of at most SIZE [default with the option: 64MiB].
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "64MiB", value_parser = core_size)]
    core: Option<u64>,
    /// Folder from which the paths of the program, its input, --with, -o and -e count.
    #[arg(short = 'D', long, value_name = "DIR")]
    chdir: Option<PathBuf>,
    /// Take a job that wants more nodes than ever joined, or names some that never did, and let it
    /// wait for them; with --warm-only also without limit for warm nodes that are out of service.
    /// For nodes that left or were lost every job waits.
    #[arg(long)]
    wait: bool,
    /// Load the program anew: what its nodes have kept of it from earlier launches is dropped.
    #[arg(long, conflicts_with = "warm_only", help_heading = super::MEASUREMENTS)]
    cold: bool,
    /// Run only on nodes that have kept the program from an earlier launch; fail if there are too
    /// few.
    #[arg(long, help_heading = super::MEASUREMENTS)]
    warm_only: bool,
    /// When to check the pages that a node has kept of the program [config: retention.verify].
    #[arg(long, value_name = "WHEN", help_heading = super::MEASUREMENTS)]
    verify: Option<Verify>,
    /// How the program reaches nodes that do not hold it: broadcast, the job starts when all of it
    /// is there; demand, page by page; auto, as suits [config: broadcast.load].
    #[arg(long, value_name = "HOW", help_heading = super::MEASUREMENTS)]
    load: Option<Load>,
    /// A file that the program finds as /with/NAME: a path, or the name of a file that was cast
    /// before; can be repeated. What is not on the job's nodes is cast to them first.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Let the job see a directory of the control node's machine under another path, or read only;
    /// can be repeated. What is exported there it sees in any case.
    #[arg(long, value_name = "HOST:NODE[:ro]")]
    mount: Vec<String>,
    /// Let the job see no directory of the control node's machine: it has the files of --with.
    #[arg(long, conflicts_with = "mount")]
    no_files: bool,
    /// Leave checking the program to the nodes (for tests of the nodes).
    #[arg(long, hide = true)]
    no_precheck: bool,
    #[command(flatten)]
    not_taken: slurm::NotTaken,
}

/// A value of `--dependency`.
type Dependencies = Vec<AfterJob>;

/// What tells a node that its job wants silence (docs/abi.md).
const QUIET: &str = "HEARTH_MONITOR=quiet";

/// Options of a job that nobody waits for.
#[derive(Debug, Clone, Default, Args)]
pub struct QueueOptions {
    /// Hold the job back until `hearth release`.
    #[arg(short = 'H', long)]
    hold: bool,
    /// Queue the job again when a node is lost under it, or the control node ends.
    #[arg(long)]
    requeue: bool,
    /// A file that rank 0 reads as its standard input.
    #[arg(short = 'i', long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Queue a job for each of these tasks, which it finds as HEARTH_ARRAY_TASK_ID: 1-100, 0-9:3,
    /// 1,4,7; %10 behind them: at most ten run at a time.
    #[arg(short = 'a', long, value_name = "TASKS")]
    pub(super) array: Option<Array>,
}

/// Smallest core file: what comes before the memory of a program with one thread has room in it.
const CORE_LEAST: u64 = 16 * 1024;

/// Takes `NAME=VALUE`, in whatever encoding.
fn variable() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| {
        match text.as_bytes().iter().position(|&byte| byte == b'=') {
            Some(1..) => Ok(text),
            _ => Err("write NAME=VALUE"),
        }
    })
}

/// A number of things of which there is one at least.
fn whole<T: std::str::FromStr + Default + PartialEq>(text: &str) -> Result<T, &'static str> {
    let number = text.parse().ok().filter(|number| *number != T::default());
    // No number of things that a job has is larger than that of u32.
    let is_larger = || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number.ok_or_else(
        || match is_larger() && text.bytes().any(|byte| byte != b'0') {
            true => "that is more than there can be; write a smaller number",
            false => "write a whole number from 1 on",
        },
    )
}

/// Bytes of a core file, of which there is one for at least the state of a thread and the list of
/// its memory.
fn core_size(text: &str) -> Result<u64, String> {
    match super::size(text)? {
        0..CORE_LEAST => Err(format!(
            "a core file of that size holds nothing; write at least {}KiB, or --core alone for 64MiB",
            CORE_LEAST / 1024
        )),
        bytes => Ok(bytes),
    }
}

/// Seconds of a time limit.
pub(super) fn time_limit(text: &str) -> Result<u64, &'static str> {
    match seconds(text)? {
        seconds if seconds > TIME_LIMIT_MOST_S => Err("at most 36525d; 0 is no limit"),
        seconds => Ok(seconds),
    }
}

/// Seconds of a time as Slurm writes it (`90` is minutes, `M:SS`, `H:MM:SS`, `D-HH`, `D-HH:MM`,
/// `D-HH:MM:SS`, `UNLIMITED`), or `30s`, `10m`, `2h`, `1d`.
fn seconds(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str =
        "write minutes, or M:SS, H:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, or 30s, 10m, 2h, 1d";
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().map_err(|_| WRONG),
        false => Err(WRONG),
    };
    if ["unlimited", "infinite"].contains(&text.to_ascii_lowercase().as_str()) {
        return Ok(0);
    }
    let suffixes = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    for (suffix, seconds) in suffixes {
        if let Some(count) = text.strip_suffix(suffix) {
            return number(count)?.checked_mul(seconds).ok_or(WRONG);
        }
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Result<_, _>>()?;
    // After days the first part is hours; without them the last is seconds, but for minutes alone.
    let (hours, minutes, seconds) = match (days, &parts[..]) {
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return Err(WRONG),
    };
    if parts.iter().skip(1).any(|part| *part >= 60) {
        return Err(WRONG);
    }
    let parts = [
        (days.unwrap_or(0), 86_400),
        (hours, 3600),
        (minutes, 60),
        (seconds, 1),
    ];
    let sum = parts.into_iter().try_fold(0_u64, |sum, (count, seconds)| {
        sum.checked_add(count.checked_mul(seconds)?)
    });
    sum.ok_or(WRONG)
}

/// Files to send to control, by the id of their content.
pub type Files = BTreeMap<String, PathBuf>;

impl JobOptions {
    /// These options where they say something, else `script`'s; both where many are possible.
    #[must_use]
    pub fn over(self, script: JobOptions) -> JobOptions {
        let both = |mine: Vec<u64>, theirs: Vec<u64>| [theirs, mine].concat();
        let names_list = self.named_nodes().is_some();
        let names_count = self.ranks.is_some() || self.node_count.is_some() || self.nodes.is_some();
        // The number of ranks and the nodes that they run on belong together.
        let script = match (names_list, names_count || self.nodelist.is_some()) {
            (true, _) => script.without_nodes(),
            (false, true) => JobOptions {
                nodes: None,
                ..script
            },
            (false, false) => script,
        };
        let (ranks, node_count) = match names_count {
            true => (self.ranks, self.node_count),
            false => (script.ranks, script.node_count),
        };
        let reuse_named = self.cold || self.warm_only;
        let is_ranked = self.priority.is_some() || self.nice.is_some();
        let (priority, nice) = match is_ranked {
            true => (self.priority, self.nice),
            false => (script.priority, script.nice),
        };
        JobOptions {
            ranks,
            node_count,
            nodes: self.nodes.or(script.nodes),
            nodelist: self.nodelist.or(script.nodelist),
            exclude: self.exclude.or(script.exclude),
            cores: self.cores.or(script.cores),
            name: self.name.or(script.name),
            env: [script.env, self.env].concat(),
            export: [script.export, self.export].concat(),
            quiet: self.quiet || script.quiet,
            time_limit: self.time_limit.or(script.time_limit),
            priority,
            nice,
            after: both(self.after, script.after),
            after_ok: both(self.after_ok, script.after_ok),
            dependency: self.dependency.or(script.dependency),
            output: self.output.or(script.output),
            error: self.error.or(script.error),
            core: self.core.or(script.core),
            chdir: self.chdir.or(script.chdir),
            wait: self.wait || script.wait,
            cold: self.cold || (script.cold && !reuse_named),
            warm_only: self.warm_only || (script.warm_only && !reuse_named),
            verify: self.verify.or(script.verify),
            load: self.load.or(script.load),
            with: [script.with, self.with].concat(),
            no_files: self.no_files || (script.no_files && self.mount.is_empty()),
            mount: [script.mount, self.mount].concat(),
            no_precheck: self.no_precheck || script.no_precheck,
            not_taken: slurm::NotTaken,
        }
    }

    /// Without what it says of its nodes and their number.
    fn without_nodes(self) -> JobOptions {
        JobOptions {
            ranks: None,
            node_count: None,
            nodes: None,
            nodelist: None,
            exclude: None,
            ..self
        }
    }

    /// A path of the job, from where this command runs.
    #[must_use]
    pub fn path(&self, path: &Path) -> PathBuf {
        match &self.chdir {
            Some(folder) => folder.join(path),
            None => path.to_path_buf(),
        }
    }

    /// The files that its output goes to, which can be made; `in_array`: the job is of an array;
    /// `core`: what a core file is called, if it is to leave any.
    ///
    /// # Errors
    /// A folder is not there or cannot be written.
    pub fn output_files(&self, in_array: bool, core: &str) -> anyhow::Result<Wanted> {
        let mut patterns = [&self.output, &self.error].into_iter().flatten();
        if !in_array && patterns.any(Pattern::names_task) {
            let text = "%a is the task of an array, which `hearth submit --array TASKS` has; write %j for the job";
            return Err(exit::Failed::usage(text).into());
        }
        let folder = match &self.chdir {
            Some(folder) => folder.clone(),
            None => std::env::current_dir().context(
                "the directory in which this command runs is gone; go to another (cd), or name one with -D",
            )?,
        };
        let within = |pattern: &Option<Pattern>| match pattern {
            Some(pattern) => pattern.in_folder(&folder).map(Some),
            None => Ok(None),
        };
        let core: Option<Pattern> = self.core.map(|_| core.parse().expect("a name of ours"));
        let wanted = Wanted {
            output: within(&self.output)?,
            error: within(&self.error)?,
            core: within(&core)?,
        };
        wanted.check()?;
        Ok(wanted)
    }

    /// The numbers of ranks and of nodes for them; 0: one a node, as many as nodes are named.
    fn counts(&self) -> Result<(u32, u32), exit::Failed> {
        let as_nodes = self.nodes.as_deref().and_then(|nodes| nodes.parse().ok());
        let nodes = match (self.node_count, as_nodes) {
            (Some(one), Some(other)) if one != other => {
                return Err(exit::Failed::usage(format!(
                    "-N {one} and --nodes {other}: how many nodes? write one of them"
                )));
            }
            (one, other) => one.or(other),
        };
        let is_named = self.named_nodes().is_some() || self.nodelist.is_some();
        Ok(match (self.ranks, nodes) {
            (Some(ranks), nodes) => (ranks, nodes.unwrap_or(0)),
            (None, Some(nodes)) => (nodes, 0),
            (None, None) => (u32::from(!is_named), 0),
        })
    }

    /// The list of `--nodes`, where that is no number.
    fn named_nodes(&self) -> Option<&String> {
        let is_list = |nodes: &&String| nodes.parse::<u32>().is_err();
        self.nodes.as_ref().filter(is_list)
    }

    /// With more variables, which those given by `--env` go before.
    pub fn add_variables(&mut self, variables: Vec<OsString>) {
        self.env.splice(0..0, variables);
    }

    /// The request for a job of `command`, whose program has the hash `hash`; files that control
    /// may lack are put into `files`.
    ///
    /// # Errors
    /// A file of `--with` cannot be read or has no good name.
    pub fn request(
        &self,
        command: &[OsString],
        hash: programs::Hash,
        files: &mut Files,
    ) -> anyhow::Result<JobRequest> {
        let encode = |word: &OsString| STANDARD.encode(word.as_bytes());
        let file_name = Path::new(&command[0]).file_name().unwrap_or_default();
        let file_name = || file_name.to_string_lossy().into_owned();
        let (ranks, node_count) = self.counts()?;
        if self.named_nodes().is_some() && (self.nodelist.is_some() || self.exclude.is_some()) {
            return Err(exit::Failed::usage(
                "--nodes LIST names all nodes of the job; leave -w and -x out, or write -n N for --nodes",
            )
            .into());
        }
        let after = |jobs: &[u64], condition| -> Vec<AfterJob> {
            let after = |&job| AfterJob { job, condition };
            jobs.iter().map(after).collect()
        };
        let quiet = OsString::from(QUIET);
        let exported = self.export.iter().flat_map(|export| &export.0);
        let named: Vec<OsString> = exported.chain(&self.env).cloned().collect();
        let mut env = last_of_each(&named);
        if let Some(name) = env.iter().find_map(|variable| told_by_control(variable)) {
            let text = format!(
                "--env {name}: each rank is told its own by this variable; choose another name"
            );
            return Err(exit::Failed::usage(text).into());
        }
        if self.quiet {
            env.push(&quiet);
        }
        let program = secrets::encode_hex(&hash);
        files.insert(program.clone(), self.path(Path::new(&command[0])));
        Ok(JobRequest {
            name: self.name.clone().unwrap_or_else(file_name),
            program,
            args: command.iter().map(encode).collect(),
            env: env.into_iter().map(encode).collect(),
            ranks,
            node_count,
            nodes: self.named_nodes().cloned(),
            nodelist: self.nodelist.clone(),
            exclude: self.exclude.clone(),
            cores: self.cores,
            core_bytes: self.core,
            time_limit_s: self.time_limit,
            no_precheck: self.no_precheck,
            wait: self.wait,
            reuse: match (self.cold, self.warm_only) {
                (true, _) => Reuse::Forbid,
                (_, true) => Reuse::Require,
                _ => Reuse::Allow,
            },
            verify: self.verify,
            load: self.load,
            with: self.with_files(files)?,
            // Whoever asks.
            user: String::new(),
            priority: match self.nice {
                Some(nice) => nice.saturating_neg(),
                None => self.priority.unwrap_or(0),
            },
            after: [
                after(&self.after, AfterCondition::Any),
                after(&self.after_ok, AfterCondition::Ok),
                self.dependency.clone().unwrap_or_default(),
            ]
            .concat(),
            directory: directory(),
            files: (!self.no_files).then(|| self.files_request()),
            ..JobRequest::default()
        })
    }

    /// What is to be said before a job begins in a directory whose files it cannot see.
    pub fn unseen(&self) -> Option<String> {
        let working = std::path::absolute(self.path(Path::new(""))).ok()?;
        let real = working.canonicalize().unwrap_or(working);
        (!self.no_files && real == Path::new("/tmp")).then(|| {
            "/tmp is each node's own, so that the job sees nothing of this one; begin in a directory below it (-D /tmp/DIR), or name this one anew (--mount /tmp:/DIR)".to_string()
        })
    }

    /// What it is to see of directories.
    fn files_request(&self) -> FilesRequest {
        let home = std::env::var("HOME").unwrap_or_default();
        let working = self.path(Path::new(""));
        FilesRequest {
            working: std::path::absolute(working)
                .map_or_else(|_| directory(), |path| path.to_string_lossy().into_owned()),
            home,
            mounts: self.mount.clone(),
        }
    }

    /// The files of `--with`. A word that is the path of a file is that; another is the name of a
    /// file that was cast.
    fn with_files(&self, paths: &mut Files) -> anyhow::Result<Vec<WithFile>> {
        let mut files: Vec<WithFile> = Vec::with_capacity(self.with.len());
        for word in &self.with {
            let path = self.path(word);
            // A name may be that of a file that was cast, but not of a folder.
            let is_path = word.components().count() > 1 || path.exists();
            let file = if is_path {
                let object = secrets::encode_hex(&super::casts::hash_file(&path)?);
                let name = super::hosted::file_name(word)?;
                paths.insert(object.clone(), path);
                let object = Some(object);
                WithFile { name, object }
            } else {
                let name = word
                    .to_str()
                    .context("names of files that were cast are UTF-8")?;
                WithFile {
                    name: name.to_string(),
                    object: None,
                }
            };
            crate::hosted::check_name(&file.name)?;
            if files.iter().any(|known| known.name == file.name) {
                bail!(
                    "two files of --with are called {:?}; rename one, or cast it under another name with `hearth cast --name`",
                    file.name
                );
            }
            files.push(file);
        }
        Ok(files)
    }
}

impl QueueOptions {
    /// These options where they say something, else `script`'s.
    #[must_use]
    pub fn over(self, script: QueueOptions) -> QueueOptions {
        QueueOptions {
            hold: self.hold || script.hold,
            requeue: self.requeue || script.requeue,
            input: self.input.or(script.input),
            array: self.array.or(script.array),
        }
    }

    /// Puts these options into a request.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn complete(
        &self,
        job: &JobOptions,
        request: &mut JobRequest,
        files: &mut Files,
    ) -> anyhow::Result<()> {
        request.batch = true;
        request.hold = self.hold;
        request.requeue = self.requeue;
        if let Some(path) = &self.input {
            let path = job.path(path);
            let hash = programs::hash_of_file(&path)
                .with_context(|| format!("cannot read the input {}", path.display()))?;
            let id = secrets::encode_hex(&hash);
            files.insert(id.clone(), path);
            request.input = Some(id);
        }
        Ok(())
    }
}

/// The directory of this process, for people.
fn directory() -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    directory.to_string_lossy().into_owned()
}

/// The name of a variable that control gives each rank, whatever the user says.
fn told_by_control(variable: &OsString) -> Option<&'static str> {
    let name = variable.as_bytes().split(|byte| *byte == b'=').next()?;
    let mut own = OWN_VARIABLES.into_iter();
    own.find(|own| own.as_bytes() == name)
}

/// Variables, each name once: the last value goes.
fn last_of_each(variables: &[OsString]) -> Vec<&OsString> {
    let name = |variable: &OsString| -> Vec<u8> {
        let bytes = variable.as_bytes();
        bytes
            .split(|byte| *byte == b'=')
            .next()
            .unwrap_or_default()
            .to_vec()
    };
    let last: BTreeMap<Vec<u8>, usize> = variables
        .iter()
        .enumerate()
        .map(|(index, variable)| (name(variable), index))
        .collect();
    let stays = |(index, variable)| (last.get(&name(variable)) == Some(&index)).then_some(variable);
    variables.iter().enumerate().filter_map(stays).collect()
}

/// The hash of a program's file, or the exit status and the reason why there is none.
pub fn hash_program(program: &Path) -> Result<programs::Hash, exit::Failed> {
    let path = program.display();
    let metadata = std::fs::metadata(program).map_err(|error| {
        let hint = match (error.kind(), program.components().count()) {
            (std::io::ErrorKind::NotFound, 1) => "; give its path, the search path is not used",
            (std::io::ErrorKind::NotFound, _)
                if program.parent().is_some_and(|at| !at.is_dir()) =>
            {
                "; its folder is not there"
            }
            _ => "",
        };
        let text = format!("cannot run {path}: {error}{hint}");
        exit::Failed::new(exit::NO_PROGRAM, text)
    })?;
    if !metadata.is_file() {
        let text = format!("cannot run {path}: it is not a file");
        return Err(exit::Failed::new(exit::BAD_PROGRAM, text));
    }
    programs::hash_of_file(program).map_err(|error| {
        exit::Failed::new(exit::BAD_PROGRAM, format!("cannot read {path}: {error}"))
    })
}

/// Hands the job in; sends files first that control does not have.
///
/// # Errors
/// [`RequestError`] where control refuses; a file that cannot be read.
pub async fn hand_in(
    client: &Client,
    request: &JobRequest,
    files: &Files,
) -> anyhow::Result<JobAccepted> {
    let accepted: Result<JobAccepted, RequestError> = client.post("/v1/jobs", request).await;
    match accepted {
        Err(error) if error.code() == Some("unknown-program") => {}
        accepted => return Ok(accepted?),
    }
    for (object, path) in files {
        let known: Result<serde_json::Value, RequestError> =
            client.get(&format!("/v1/programs/{object}")).await;
        match known {
            Err(error) if error.code() == Some("unknown-program") => {
                super::casts::upload(client, object, path).await?;
            }
            known => drop(known?),
        }
    }
    Ok(client.post("/v1/jobs", request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_reads_them() {
        for (text, seconds) in [
            ("0", 0),
            ("UNLIMITED", 0),
            ("10", 600),
            ("90", 5400),
            ("30s", 30),
            ("10m", 600),
            ("2h", 7200),
            ("1d", 86_400),
            ("1:30", 90),
            ("2:00:01", 7201),
            ("1-2", 93_600),
            ("1-2:30", 95_400),
            ("1-00:00:01", 86_401),
            ("0-1", 3600),
            ("100:00:00", 360_000),
        ] {
            assert_eq!(time_limit(text), Ok(seconds), "{text}");
        }
        for wrong in [
            "",
            "-1",
            "1.5",
            "1:60",
            "1:2:3:4",
            "1-",
            "-2",
            "1-2:60",
            "1-2-3",
            "1-2:3:4:5",
            "x",
            "5x",
            ":",
            "m",
            "99999999999999999999",
            "9999999999999999999d",
            "99999999999999d",
            "36526d",
            "52596001",
        ] {
            assert!(time_limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_goes_before_the_script() {
        let script = JobOptions {
            ranks: Some(4),
            time_limit: Some(60),
            env: vec!["A=1".into(), "B=2".into()],
            cold: true,
            after: vec![1],
            ..JobOptions::default()
        };
        let line = JobOptions {
            nodes: Some("n[0-1]".into()),
            env: vec!["A=3".into()],
            warm_only: true,
            after: vec![2],
            ..JobOptions::default()
        };
        let both = line.over(script);
        assert_eq!((both.ranks, both.nodes.as_deref()), (None, Some("n[0-1]")));
        assert_eq!((both.cold, both.warm_only), (false, true));
        assert_eq!((both.time_limit, &both.after[..]), (Some(60), &[1, 2][..]));
        let request = both
            .request(&["./p".into()], [7; 32], &mut Files::new())
            .unwrap();
        let env: Vec<Vec<u8>> = request
            .env
            .iter()
            .map(|word| STANDARD.decode(word).unwrap())
            .collect();
        assert_eq!(env, [b"B=2".to_vec(), b"A=3".to_vec()]);
        assert_eq!(request.after.len(), 2);
        assert_eq!(request.ranks, 0);
    }

    #[test]
    fn numbers_and_sizes_that_make_no_sense_say_what_does() {
        assert_eq!(whole::<u32>("3"), Ok(3));
        for (text, word) in [
            ("99999999999", "smaller"),
            ("0", "from 1"),
            ("-1", "from 1"),
            ("x", "from 1"),
            ("", "from 1"),
        ] {
            let error = whole::<u32>(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(core_size("64MiB"), Ok(64 << 20));
        for small in ["0", "1KiB"] {
            assert!(core_size(small).unwrap_err().contains("16KiB"), "{small}");
        }
    }

    #[test]
    fn a_job_that_begins_in_tmp_itself_is_told() {
        let begins = |folder: &str| JobOptions {
            chdir: Some(folder.into()),
            ..JobOptions::default()
        };
        for folder in ["/tmp", "/tmp/", "/tmp/."] {
            let text = begins(folder).unseen().unwrap();
            assert!(text.contains("--mount") && text.contains("below"), "{text}");
        }
        assert_eq!(begins("/usr").unseen(), None);
        let none = JobOptions {
            no_files: true,
            ..begins("/tmp")
        };
        assert_eq!(none.unseen(), None);
    }

    #[test]
    fn variables_of_control_are_not_the_users() {
        let with = |variable: &str| JobOptions {
            env: vec![variable.into()],
            ..JobOptions::default()
        };
        let request = |job: JobOptions| job.request(&["./p".into()], [7; 32], &mut Files::new());
        for name in OWN_VARIABLES {
            let error = request(with(&format!("{name}=9"))).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(request(with("HEARTH_RANKS=9")).is_ok());
    }

    #[test]
    fn a_missing_program_is_named() {
        let failed = hash_program(Path::new("/no/such/program")).unwrap_err();
        assert_eq!(failed.status, 127);
        assert!(failed.text.contains("/no/such/program"), "{failed}");
        assert_eq!(hash_program(Path::new("/")).unwrap_err().status, 126);
    }
}
