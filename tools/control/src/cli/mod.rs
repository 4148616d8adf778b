//! The command line of `hearth`: what it takes, and which module does it.
//!
//! Key types: [`Cli`], [`Command`], [`Global`] (options of every command). Neighbours: one module
//! a command below this one; `client` for everything that asks a control node.
//!
//! Invariant: every option is documented here, in the text that `--help` prints; results go to
//! standard output, everything else to standard error.

mod array;
mod casts;
mod cluster;
mod config_command;
mod doctor;
mod down;
mod exchange;
pub mod exit;
mod faults;
mod hosted;
mod image;
mod io;
mod io_reads;
mod job_options;
mod lists;
mod man;
mod named;
mod node;
mod node_log;
mod output;
mod overlay;
mod plan;
mod power;
mod programs;
mod queue;
mod report;
mod run;
mod run_input;
mod run_session;
mod screen;
mod script;
mod serve_command;
mod slurm;
mod stop;
mod submit;
mod table;
mod token;
mod top;
mod tree;
mod up_cards;
mod up_progress;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::client::{Client, Remote};
use crate::{config, near, paths, tls};

/// Heading of options that measurements and research need, and nobody else.
const MEASUREMENTS: &str = "Options for measurements";

/// A number of bytes as options take it.
fn size(text: &str) -> Result<u64, String> {
    let bytes = netstack::size::parse(text);
    bytes.ok_or_else(|| format!("{} is not {}", near::quoted(text), netstack::size::FORM))
}

/// Compute nodes that boot over the network, and the jobs on them.
#[derive(Debug, Parser)]
#[command(
    name = "hearth",
    version,
    max_term_width = 100,
    propagate_version = true
)]
#[command(after_help = "Start with `hearth up --nodes 4`, then `hearth run -n 4 ./program`.")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Cluster to talk to; not needed while only one runs [env: HEARTH_CLUSTER].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "NAME"
    )]
    cluster: Option<String>,
    /// State directory of the control node, instead of a cluster's name.
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "DIR"
    )]
    state_dir: Option<PathBuf>,
    /// Control node on another machine, at the address of its `hearth serve --listen`; needs a
    /// token (HEARTH_TOKEN) and its fingerprint [env: HEARTH_HOST].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "HOST[:PORT]",
        conflicts_with_all = ["cluster", "state_dir"]
    )]
    host: Option<String>,
    /// Fingerprint of that control node's certificate, as `hearth serve` prints it at its start and
    /// `hearth token create` does [env: HEARTH_FINGERPRINT].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "SHA256"
    )]
    fingerprint: Option<tls::Fingerprint>,
    /// File with the token for it, mode 0600 [default: HEARTH_TOKEN, else ~/.config/hearth/token].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "FILE"
    )]
    token_file: Option<PathBuf>,
    /// Configuration file [default: ~/.config/hearth/config.toml, else /etc/hearth/config.toml].
    #[arg(
        long,
        global = true,
        help_heading = "Options of every command",
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    /// Print JSON on standard output; an error is an object of JSON on standard error, in its last
    /// line.
    #[arg(long, global = true, help_heading = "Options of every command")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program on nodes and wait for it.
    Run(run::Options),
    /// Queue a program or a job script, and do not wait for it.
    Submit(submit::Options),
    /// List the jobs that wait for nodes or run.
    Queue(queue::QueueOptions),
    /// Show everything about a job.
    Job(queue::ShowOptions),
    /// Print what a job that was submitted has written.
    Output(output::Options),
    /// End jobs.
    Cancel(queue::CancelOptions),
    /// Send a signal to all ranks of a job that runs.
    Signal(queue::SignalOptions),
    /// Hold jobs back that wait for nodes.
    Hold(queue::JobsOptions),
    /// Let jobs start that were held back.
    Release(queue::JobsOptions),
    /// Change the priority of jobs that wait for nodes.
    Priority(queue::PriorityOptions),
    /// List jobs of the past, and what became of them.
    History(queue::HistoryOptions),
    /// List all jobs, or show what the ranks of some did.
    Jobs(lists::JobsOptions),
    /// List the nodes, or show the tree that they are in.
    Nodes(lists::NodesOptions),
    /// Give nodes no more jobs; what runs there goes on.
    Drain(node::DrainOptions),
    /// Give drained nodes jobs again.
    Resume(node::ResumeOptions),
    /// List the programs that were run, and the nodes that hold them for the next launch.
    Programs(programs::ListOptions),
    /// Have nodes let go of a program that they hold for its next launch.
    Drop(programs::DropOptions),
    /// Cast a file into the nodes' memory.
    Cast(casts::CastOptions),
    /// List the files that nodes hold, and the casts that are under way.
    Casts(casts::ListOptions),
    /// Show what happened to nodes and jobs.
    Events(lists::EventsOptions),
    /// Watch nodes, jobs and events in the terminal.
    Top(top::Options),
    /// Show the tree in which nodes send what they count, open streams, take it down.
    Overlay(overlay::Options),
    /// Show how the boot of each machine went, step by step.
    Timeline(lists::TimelineOptions),
    /// Be the control node and boot service of a network.
    Serve(serve_command::Options),
    /// Carry out the calls of jobs on files, on a machine that mounts the site's file systems.
    Io(io::Options),
    /// Find what stops machines from booting.
    Doctor(doctor::Options),
    /// Make, list and revoke tokens for the control node over the network.
    Token(token::Options),
    /// End the control node alone: jobs that run go on without it.
    Stop(stop::Options),
    /// Start a cluster of QEMU nodes on this machine, or the control node of one where it was
    /// stopped.
    Up(cluster::UpOptions),
    /// Stop a cluster of QEMU nodes and remove what it needed, its jobs, their history and kept
    /// output with it.
    Down(down::DownOptions),
    /// List the clusters that run here.
    List(cluster::ListOptions),
    /// Show the serial console of a QEMU node, or what another node's kernel has logged.
    Console(cluster::ConsoleOptions),
    /// Do something with nodes.
    Node(node::Options),
    /// Bring the boot image to machines by other ways than the network, or sign it.
    Image(image::Options),
    /// Send a file to ordinary machines that run `hearth receive`, without a cluster.
    Send(hosted::SendOptions),
    /// Receive files from `hearth send`.
    Receive(hosted::ReceiveOptions),
    /// Measure an all-to-all exchange between ordinary machines
    Exchange(exchange::ExchangeOptions),
    /// Say which nodes of a tree a job would get, without a cluster.
    Plan(plan::Options),
    /// Show the configuration.
    Config(config_command::Options),
    /// Print completions for a shell.
    Completions(man::CompletionsOptions),
    /// Print a manual page, or write all of them.
    Man(man::ManOptions),
    /// Show the versions of this program and of the running control node.
    Version,
    /// The process behind `hearth up`; not for people.
    #[command(name = "__supervise", hide = true)]
    Supervise(cluster::SuperviseOptions),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let mut cli = match Cli::try_parse().map_err(with_our_command) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            crate::output::say(&exit::json_of_usage(&error.to_string()));
            return ExitCode::from(exit::USAGE);
        }
        Err(error) if error.use_stderr() => error.exit(),
        // Help and version.
        Err(error) => return ended(written(error.print()).map(|()| ExitCode::SUCCESS), false),
    };
    // Read here and not by the parser, whose texts would call it an argument that was given. Empty
    // is none.
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let global = &mut cli.global;
    if global.cluster.is_none() && global.state_dir.is_none() {
        global.host = (global.host.take()).or_else(|| named("HEARTH_HOST"));
    }
    if global.host.is_none() {
        global.cluster = (global.cluster.take()).or_else(|| named("HEARTH_CLUSTER"));
    }
    let json = global.json;
    ended(dispatch(cli), json)
}

/// Says why a command failed, if it did; its exit status.
fn ended(result: anyhow::Result<ExitCode>, json: bool) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            match json {
                true => crate::output::say(&exit::json_of(&error)),
                false => crate::output::say_line(format_args!("{error:#}")),
            }
            ExitCode::from(exit::of_error(&error))
        }
    }
}

/// An error of the command line; one for a command that there is not, and that users know from
/// elsewhere, says which is ours.
fn with_our_command(error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    match slurm::command(word) {
        Some(ours) => {
            let text = format!("there is no command '{word}': {ours}\n");
            clap::Error::raw(ErrorKind::InvalidSubcommand, text)
        }
        None => error,
    }
}

/// Whether a command line that was not understood asks for JSON: what stands after `--`, or after
/// the program of `run` and `submit`, belongs to the program. An option that there is not has no
/// value.
fn asks_for_json(words: impl Iterator<Item = OsString>) -> bool {
    let mut whole = Cli::command();
    whole.build();
    let mut command = &whole;
    let mut words = words
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            return false;
        }
        if word == "--json" {
            return true;
        }
        if word.starts_with('-') {
            let is_value = |next: &String| !next.starts_with('-');
            if wants_value(command, &word) {
                words.next_if(is_value);
            }
        } else if let Some(below) = command.find_subcommand(&word) {
            command = below;
        } else if command
            .get_positionals()
            .any(clap::Arg::is_trailing_var_arg_set)
        {
            return false;
        }
    }
    false
}

/// Whether the word after this option is its value.
fn wants_value(command: &clap::Command, option: &str) -> bool {
    let wants = |argument: &clap::Arg| {
        argument.get_action().takes_values() && !argument.is_require_equals_set()
    };
    let mut arguments = command.get_arguments();
    match option.strip_prefix("--") {
        Some(name) => {
            arguments.any(|argument| argument.get_long() == Some(name) && wants(argument))
        }
        // Of several letters the first that takes a value has the rest of the word.
        None => {
            let mut letters = option.chars().skip(1);
            let of = |letter: char| {
                command
                    .get_arguments()
                    .any(|argument| argument.get_short() == Some(letter) && wants(argument))
            };
            letters.any(of) && letters.next().is_none()
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { global, command } = cli;
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Run(options) => run::main(&global, options),
        Command::Nodes(options) => lists::nodes(&global, &options).map(done),
        Command::Jobs(options) => lists::jobs(&global, &options).map(done),
        Command::Submit(options) => submit::main(&global, options),
        Command::Queue(options) => queue::queue(&global, &options).map(done),
        Command::Job(options) => queue::job(&global, &options).map(done),
        Command::Output(options) => output::main(&global, &options),
        Command::Cancel(options) => queue::cancel(&global, &options),
        Command::Signal(options) => queue::signal(&global, &options),
        Command::Hold(options) => queue::hold(&global, &options),
        Command::Release(options) => queue::release(&global, &options),
        Command::Priority(options) => queue::priority(&global, &options),
        Command::History(options) => queue::history(&global, &options).map(done),
        Command::Drain(options) => node::drain(&global, &options).map(done),
        Command::Resume(options) => node::resume(&global, &options).map(done),
        Command::Programs(options) => programs::list(&global, &options).map(done),
        Command::Drop(options) => programs::drop(&global, &options),
        Command::Cast(options) => casts::cast(&global, &options),
        Command::Casts(options) => casts::casts(&global, &options),
        Command::Send(options) => hosted::send(&global, &options),
        Command::Receive(options) => hosted::receive(&global, &options),
        Command::Exchange(options) => exchange::exchange(&global, &options),
        Command::Top(options) => top::main(&global, &options).map(ExitCode::from),
        Command::Overlay(options) => overlay::main(&global, options).map(done),
        Command::Events(options) => lists::events(&global, &options).map(done),
        Command::Timeline(options) => lists::timeline(&global, &options).map(done),
        Command::Serve(options) => serve_command::main(&global, options).map(done),
        Command::Io(options) => io::main(&global, options).map(done),
        Command::Doctor(options) => doctor::main(&global, &options),
        Command::Up(options) => cluster::up(&global, options).map(done),
        Command::Token(options) => token::main(&global, options).map(done),
        Command::Stop(options) => stop::stop(&global, &options).map(done),
        Command::Down(options) => down::down(&global, &options).map(done),
        Command::List(options) => cluster::list(&global, &options).map(done),
        Command::Console(options) => cluster::console(&global, &options).map(done),
        Command::Node(options) => node::main(&global, options).map(done),
        Command::Image(options) => image::main(&global, &options).map(done),
        Command::Plan(options) => plan::main(&global, &options),
        Command::Config(options) => config_command::main(&global, &options).map(done),
        Command::Completions(options) => man::completions(Cli::command(), &options).map(done),
        Command::Man(options) => man::man(&global, Cli::command(), &options).map(done),
        Command::Version => config_command::version(&global).map(done),
        Command::Supervise(options) => cluster::supervise(options).map(done),
    }
}

impl Global {
    /// The configuration in force.
    fn load_config(&self) -> Result<config::Config, config::LoadError> {
        config::load(self.config.as_deref()).map(|(config, _)| config)
    }

    /// That this machine is meant, for commands that do their work on it.
    ///
    /// # Errors
    /// A control node on another machine is named.
    fn here(&self) -> anyhow::Result<()> {
        match &self.host {
            None => Ok(()),
            Some(host) => anyhow::bail!(
                "this works on the control node's own machine only, and it is asked at {host}; leave --host (HEARTH_HOST) out there"
            ),
        }
    }

    /// The state directory of the control node that this command talks to.
    fn find(&self) -> anyhow::Result<paths::StateDir> {
        self.here()?;
        let system = self.load_config()?.serve.state_dir;
        Ok(paths::find_patiently(
            self.state_dir.as_deref(),
            self.cluster.as_deref(),
            &system,
            paths::START_LIMIT,
        )?)
    }

    /// A client of that control node.
    fn client(&self) -> anyhow::Result<Client> {
        self.reach().map(|(client, _)| client)
    }

    /// A client of that control node, and its state directory if it is on this machine.
    fn reach(&self) -> anyhow::Result<(Client, Option<paths::StateDir>)> {
        if let Some(host) = &self.host {
            return Ok((Client::remote(self.remote(host)?), None));
        }
        let state = self.find()?;
        Ok((Client::new(state.socket()), Some(state)))
    }

    /// The control node at `host`, and by what it is asked.
    fn remote(&self, host: &str) -> anyhow::Result<Remote> {
        let fingerprint = match &self.fingerprint {
            Some(fingerprint) => *fingerprint,
            None => {
                let text = std::env::var("HEARTH_FINGERPRINT").unwrap_or_default();
                if text.is_empty() {
                    anyhow::bail!(
                        "by what is the control node at {host} known? Give --fingerprint (HEARTH_FINGERPRINT): `hearth serve` prints it at its start, and `hearth token create` does"
                    );
                }
                text.parse()
                    .map_err(|error| anyhow::anyhow!("HEARTH_FINGERPRINT: {error}"))?
            }
        };
        let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
        let has_port = !is_address
            && host
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = match (has_port, is_address) {
            (true, _) => host.to_string(),
            (false, true) => format!("[{host}]:{REMOTE_PORT}"),
            (false, false) => format!("{host}:{REMOTE_PORT}"),
        };
        Ok(Remote {
            host,
            token: self.token()?,
            fingerprint,
        })
    }

    /// The token for a control node elsewhere.
    fn token(&self) -> anyhow::Result<String> {
        let given = std::env::var("HEARTH_TOKEN").unwrap_or_default();
        if self.token_file.is_none() && !given.trim().is_empty() {
            return as_token(&given, "HEARTH_TOKEN");
        }
        let file = self.token_file.clone().unwrap_or_else(paths::token_file);
        if !file.exists() {
            anyhow::bail!(
                "a control node elsewhere needs a token, and there is no file {0}: `hearth token create --role user` on its machine prints one; set HEARTH_TOKEN, or write it to {0} (chmod 600)",
                file.display()
            );
        }
        as_token(&crate::secrets::read(&file)?, &file.display().to_string())
    }
}

/// Port of a control node elsewhere, unless its address names one.
const REMOTE_PORT: u16 = 7182;

/// A token as it may stand in a request.
fn as_token(text: &str, place: &str) -> anyhow::Result<String> {
    let text = text.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(
        is_plain,
        "what is in {place} is no token: that is one word, as `hearth token create` prints it"
    );
    Ok(text.to_string())
}

/// A path with a query.
fn path(base: &str, query: &[(&str, String)]) -> String {
    let mut path = base.to_string();
    let mut separator = '?';
    for (key, value) in query {
        path.push(separator);
        path.push_str(key);
        path.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' => {
                    path.push(char::from(byte));
                }
                _ => path.push_str(&format!("%{byte:02X}")),
            }
        }
        separator = '&';
    }
    path
}

/// Runs `work` on a runtime of its own: one thread, for commands that ask and print.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

/// Prints one JSON document.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(value)? + "\n";
    print_text(&crate::output::plain_json(&json))
}

/// Prints to standard output; a reader that has gone is not an error.
fn print_text(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut output = std::io::stdout();
    written(
        output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush()),
    )
}

/// What became of writing to standard output: a reader that has gone is not an error.
fn written(result: std::io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_is_documented() {
        fn check(command: &clap::Command) {
            for argument in command
                .get_arguments()
                .filter(|argument| !argument.is_hide_set())
            {
                let help = argument
                    .get_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let name = format!("{} {}", command.get_name(), argument.get_id());
                assert!(!help.is_empty(), "{name}");
                let adds = !argument.is_hide_default_value_set()
                    && !argument.get_default_values().is_empty();
                assert!(
                    !adds || !help.contains("[default"),
                    "{name} has two defaults"
                );
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Cli::command();
        command.build();
        check(&command);
    }

    #[test]
    fn options_for_measurements_stand_apart() {
        let mut command = Cli::command();
        command.build();
        for name in ["run", "submit"] {
            let command = command.find_subcommand(name).unwrap();
            let apart = command
                .get_arguments()
                .filter(|argument| argument.get_help_heading() == Some(MEASUREMENTS));
            let apart: Vec<&str> = apart.filter_map(clap::Arg::get_long).collect();
            for option in ["verify", "load", "cold", "warm-only", "quiet"] {
                assert!(apart.contains(&option), "{name} --{option}: {apart:?}");
            }
            assert!(!apart.contains(&"time-limit") && !apart.contains(&"with"));
        }
    }

    #[test]
    fn commands_of_slurm_are_answered_with_ours() {
        let refused = |word: &str| {
            let error = Cli::try_parse_from(["hearth", word, "-l"]).map_err(with_our_command);
            error.unwrap_err()
        };
        for (theirs, ours) in [
            ("squeue", "`hearth queue`"),
            ("ps", "`hearth queue`"),
            ("sbatch", "`hearth submit`"),
            ("logs", "`hearth output JOB`"),
        ] {
            let text = refused(theirs).to_string();
            assert!(text.contains(ours) && text.contains(theirs), "{text}");
            assert!(text.ends_with('\n'), "{text}");
            assert_eq!(refused(theirs).exit_code(), 2);
        }
        assert!(refused("quue").to_string().contains("'queue'"));
    }

    #[test]
    fn json_after_two_dashes_is_the_programs() {
        let asks = |line: &[&str]| asks_for_json(line.iter().map(OsString::from));
        assert!(asks(&["hearth", "nodes", "--bogus", "--json"]));
        assert!(asks(&["hearth", "--json", "run", "-n", "x", "--", "p"]));
        assert!(!asks(&["hearth", "run", "-n", "x", "--", "p", "--json"]));
        // Nor is what stands after a program without them, wherever that is.
        assert!(!asks(&["hearth", "run", "-n", "x", "p", "--json"]));
        assert!(!asks(&["hearth", "submit", "-Hn", "x", "p", "--json"]));
        assert!(!asks(&["hearth", "run", "--cold", "p", "--json"]));
        assert!(!asks(&[
            "hearth",
            "--cluster",
            "c",
            "run",
            "-n4",
            "p",
            "--json"
        ]));
        assert!(asks(&["hearth", "run", "-nx", "--json", "p"]));
        assert!(asks(&["hearth", "run", "--ranks", "x", "--json", "p"]));
        assert!(asks(&["hearth", "run", "--ranks", "--json", "p"]));
        assert!(asks(&["hearth", "job", "abc", "--json"]));
        assert!(asks(&["hearth", "casts", "drop", "--bogus", "--json"]));
        assert!(!asks(&["hearth", "nodes", "--bogus"]));
    }

    #[test]
    fn a_number_of_a_job_that_is_none_is_told_where_they_are_listed() {
        for line in [
            &["hearth", "job", "abc"][..],
            &["hearth", "jobs", "abc"],
            &["hearth", "cancel", "1.5"],
            &["hearth", "output", "abc"],
            &["hearth", "run", "--after", "1,b", "p"],
            &["hearth", "events", "--job", "abc"],
        ] {
            let error = Cli::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains("`hearth history`"), "{error}");
        }
    }

    #[test]
    fn up_knows_the_option_that_it_refuses_and_does_not_list_it() {
        let mut command = Cli::command();
        command.build();
        let help = |name: &str| {
            let below = command.find_subcommand(name).unwrap().clone();
            below
                .disable_help_subcommand(true)
                .render_long_help()
                .to_string()
        };
        assert!(help("down").contains("--state-dir"));
        assert!(!help("up").contains("--state-dir"));
        let given = Cli::try_parse_from(["hearth", "up", "--state-dir", "x"]).unwrap();
        assert_eq!(given.global.state_dir, Some(PathBuf::from("x")));
        let before = Cli::try_parse_from(["hearth", "--state-dir", "x", "up"]).unwrap();
        assert_eq!(before.global.state_dir, Some(PathBuf::from("x")));
    }

    fn program_of(line: &[&str]) -> Vec<String> {
        let Command::Run(options) = Cli::try_parse_from(line).unwrap().command else {
            panic!()
        };
        options
            .command()
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn everything_after_the_program_is_the_programs() {
        assert_eq!(program_of(&["hearth", "run", "-n", "2", "p"]), ["p"]);
        assert_eq!(
            program_of(&["hearth", "run", "p", "--json", "-n"]),
            ["p", "--json", "-n"]
        );
        assert_eq!(
            program_of(&["hearth", "run", "p", "--", "--nodes", "x"]),
            ["p", "--nodes", "x"]
        );
        assert_eq!(
            program_of(&["hearth", "run", "p", "--", "--", "x"]),
            ["p", "--", "x"]
        );
        assert_eq!(
            program_of(&["hearth", "run", "p", "a", "--", "b"]),
            ["p", "a", "--", "b"]
        );
        assert_eq!(program_of(&["hearth", "run", "--", "p", "-x"]), ["p", "-x"]);
        assert_eq!(
            program_of(&["hearth", "run", "p", "", "two words"]),
            ["p", "", "two words"]
        );
    }
}
