//! `hearth cast` and `hearth casts`: files into the nodes' memory, and what is there.
//!
//! Neighbours: `api::casts` on the other side. Invariant: `cast` ends with status 0 only when every
//! node has the file; an interrupt cancels the cast before it ends.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    Global, block_on, exit, hosted, print_json, print_text, programs as programs_command, table,
};
use crate::api::types::{
    CastAccepted, CastCancelRequest, CastCancelled, CastFailure, CastInfo, CastKind, CastRequest,
    CastState, CastsInfo, DropAnswer, FileDropRequest,
};
use crate::casts::figures;
use crate::client::{self, Client, RequestError};
use crate::config::{LinkRate, Scheme};
use crate::{hostlist, near, output, paths, programs, secrets};

/// Some nodes do not have the file.
const EXIT_INCOMPLETE: u8 = 1;
/// The time was up.
const EXIT_TIME_UP: u8 = 124;
/// Interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// How long one question waits for news, in milliseconds.
const WAIT_MS: u64 = 1000;

/// How long a cancelled cast is waited for.
const CANCEL_LIMIT: Duration = Duration::from_secs(15);

/// Options of `hearth cast`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file stays in the nodes' memory until `hearth casts drop` or their next boot.
Programs find it as /with/NAME, with `hearth run --with NAME`.
Ctrl-C cancels, and leaves nothing on the nodes, but for those on which others asked for the same file.
Exit status: 0 every node has it; 1 some do not; 124 the time was up; 130 interrupted; 2 a wrong option; 125 anything else.")]
pub struct CastOptions {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The nodes: n0,n[3-5] [default: all in service].
    #[arg(value_name = "NODES")]
    nodes: Option<String>,
    /// Its name on the nodes [default: as here].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How it spreads [config: broadcast.scheme].
    #[arg(long, value_enum, value_name = "SCHEME", help_heading = super::MEASUREMENTS)]
    scheme: Option<Scheme>,
    /// Most that control and each node send of this cast a second, as in 50mbit; at most the link's
    /// [config: broadcast.rate].
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// Wait for nodes that are not in service instead of refusing.
    #[arg(long)]
    wait: bool,
    /// Cancel after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = hosted::seconds)]
    timeout: Option<f64>,
}

/// Options of `hearth casts`.
#[derive(Debug, Args)]
pub struct ListOptions {
    #[command(subcommand)]
    command: Option<ListCommand>,
}

#[derive(Debug, Subcommand)]
enum ListCommand {
    /// Have nodes let go of a file.
    Drop(DropOptions),
    /// End a cast; nodes that did not hold the file before let go of it.
    Cancel(CancelOptions),
}

/// Options of `hearth casts drop`.
#[derive(Debug, Args)]
struct DropOptions {
    /// Its name, or the beginning of its id as `hearth casts` shows it.
    #[arg(value_name = "NAME")]
    file: String,
    /// Only these nodes: n0,n[3-5] [default: all that hold it].
    #[arg(value_name = "NODES")]
    nodes: Option<String>,
}

/// Options of `hearth casts cancel`.
#[derive(Debug, Args)]
struct CancelOptions {
    /// Its number, or the name of its file where one cast under way has it; `hearth casts` lists
    /// both.
    #[arg(value_name = "CAST")]
    cast: String,
}

/// Casts a file.
pub fn cast(global: &Global, options: &CastOptions) -> anyhow::Result<ExitCode> {
    hosted::check_file("cast", &options.file)?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => hosted::file_name(&options.file)?,
    };
    crate::hosted::check_name(&name)?;
    let hash = hash_file(&options.file)?;
    let request = CastRequest {
        name,
        object: secrets::encode_hex(&hash),
        nodes: options.nodes.clone(),
        scheme: options.scheme,
        rate: options.rate,
        wait: options.wait,
    };
    let client = global.client()?;
    let (info, end, goes_on) = block_on(async {
        // Before anything is begun, so that an interrupt cannot leave it behind.
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        };
        let cast = hand_in(&client, &request, &options.file).await?;
        follow(&client, &cast, signals, (options.timeout, global.json)).await
    })?;
    if global.json {
        print_json(&info)?;
    } else {
        summary(&info, goes_on)
            .into_iter()
            .for_each(output::say_line);
    }
    Ok(match (info.state, end) {
        (CastState::Done, _) if !goes_on => ExitCode::SUCCESS,
        (_, End::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        (_, End::TimeUp) => ExitCode::from(EXIT_TIME_UP),
        _ => ExitCode::from(EXIT_INCOMPLETE),
    })
}

/// The id of a file, read as a whole.
pub(super) fn hash_file(file: &std::path::Path) -> anyhow::Result<programs::Hash> {
    hosted::check_file("cast", file)?;
    programs::hash_of_file(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Hands a cast in; sends the file first if control does not have it.
async fn hand_in(
    client: &Client,
    request: &CastRequest,
    file: &std::path::Path,
) -> anyhow::Result<CastAccepted> {
    let accepted: Result<CastAccepted, RequestError> = client.post("/v1/casts", request).await;
    match accepted {
        Err(error) if error.code() == Some("unknown-program") => {}
        accepted => return Ok(accepted?),
    }
    upload(client, &request.object, file).await?;
    Ok(client.post("/v1/casts", request).await?)
}

/// Sends a file to control.
pub(super) async fn upload(
    client: &Client,
    object: &str,
    file: &std::path::Path,
) -> anyhow::Result<()> {
    let opened = tokio::fs::File::open(file).await;
    let opened = opened.with_context(|| format!("cannot read {}", file.display()))?;
    let length = opened.metadata().await?.len();
    let path = format!("/v1/programs/{object}");
    client
        .send_sized(Method::PUT, &path, client::streamed(opened), length)
        .await?;
    Ok(())
}

/// What tells a command to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Over,
    Interrupted,
    TimeUp,
}

/// Follows a cast to its end, or until it is taken back and goes on for others, which is told.
async fn follow(
    client: &Client,
    cast: &CastAccepted,
    mut signals: Signals,
    (timeout_s, quiet): (Option<f64>, bool),
) -> anyhow::Result<(CastInfo, End, bool)> {
    let limit = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let mut deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
    let mut bar = Bar::new(quiet);
    let mut end = End::Over;
    let mut gone_since: Option<tokio::time::Instant> = None;
    let id = cast.id;
    loop {
        let request = cast.request;
        let path = format!("/v1/casts/{id}?wait_ms={WAIT_MS}&request={request}");
        let far = tokio::time::Instant::now() + Duration::from_secs(86_400);
        let why = tokio::select! {
            answer = client.get::<CastInfo>(&path) => {
                let info = match answer {
                    // A control node that starts again goes on with the cast.
                    Err(error) if error.is_gone() => {
                        let since = *gone_since.get_or_insert_with(tokio::time::Instant::now);
                        if since.elapsed() > paths::START_LIMIT {
                            return Err(error.into());
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                    answer => answer?,
                };
                gone_since = None;
                bar.show(&info);
                bar.tell_absence(&info);
                if info.state.is_final() {
                    bar.clear();
                    return Ok((info, end, false));
                }
                continue;
            }
            _ = signals.interrupt.recv() => End::Interrupted,
            _ = signals.terminate.recv() => End::Interrupted,
            () = tokio::time::sleep_until(deadline.unwrap_or(far)) => End::TimeUp,
        };
        if end != End::Over {
            bail!("cast {id} was cancelled, and its end was not waited for; see `hearth casts`");
        }
        end = why;
        deadline = Some(tokio::time::Instant::now() + CANCEL_LIMIT);
        let reason = match why {
            End::TimeUp => "its time was up",
            _ => "interrupted by its user",
        };
        if take_back(client, cast, reason).await? {
            bar.clear();
            let info = client.get(&format!("/v1/casts/{id}")).await?;
            return Ok((info, end, true));
        }
    }
}

/// Whether it goes on, for others.
async fn take_back(
    client: &Client,
    cast: &CastAccepted,
    reason: &str,
) -> Result<bool, RequestError> {
    let request = CastCancelRequest {
        reason: Some(reason.to_string()),
        request: Some(cast.request),
    };
    let path = format!("/v1/casts/{}/cancel", cast.id);
    let answer: Result<CastCancelled, RequestError> = client.post(&path, &request).await;
    match answer {
        Ok(answer) => Ok(answer.goes_on),
        Err(error) if error.code() == Some("cast-ended") => Ok(false),
        Err(error) => Err(error),
    }
}

/// How far a cast is: on a terminal a line with nodes done, rate, time and limit; everywhere which
/// nodes it waits for, when that changes.
struct Bar {
    line: Option<indicatif::ProgressBar>,
    quiet: bool,
    /// What was said of the nodes that are waited for.
    said: String,
}

impl Bar {
    fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let line = shown.then(|| {
            let bar = indicatif::ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Bar {
            line,
            quiet,
            said: String::new(),
        }
    }

    fn tell_absence(&mut self, info: &CastInfo) {
        let Some(text) = absence(info).filter(|text| *text != self.said && !self.quiet) else {
            return;
        };
        match &self.line {
            Some(bar) => bar.suspend(|| output::say_line(&text)),
            None => output::say_line(&text),
        }
        self.said = text;
    }

    fn show(&self, info: &CastInfo) {
        if let Some(bar) = &self.line {
            bar.set_message(output::plain(&progress(info)));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.line {
            bar.finish_and_clear();
        }
    }
}

/// Whom a cast waits for, why, and what brings them back.
fn absence(info: &CastInfo) -> Option<String> {
    if info.nodes_absent.is_empty() || info.state.is_final() {
        return None;
    }
    let why = match &info.absent_why[..] {
        "" => &info.nodes_absent,
        why => why,
    };
    Some(format!("{} waits: {why}", info.name))
}

/// `data.bin: 3 of 4 nodes, 5.6 MB/s, 0.61 s (sent once over one link: 0.64 s)`.
fn progress(info: &CastInfo) -> String {
    let seconds = info.ms / 1e3;
    let rate = info.bytes_sent as f64 / 1e3 / (info.ms - info.absent_ms).max(1.0);
    let mut text = format!(
        "{}: {} of {}, {rate:.1} MB/s, {seconds:.1} s (sent once over one link: {:.1} s)",
        info.name,
        info.done,
        output::count(info.nodes_total, "node"),
        info.limit_ms / 1e3
    );
    if !info.nodes_absent.is_empty() {
        text = format!("{text}; waits for {}", info.nodes_absent);
    }
    text
}

/// How a cast ended, in lines.
fn summary(info: &CastInfo, goes_on: bool) -> Vec<String> {
    if goes_on {
        let name = &info.name;
        let text = format!("the cast of {name} goes on, since others asked for it, too");
        return vec![text];
    }
    let mut lines = failures(&info.failed);
    let name = &info.name;
    let all = output::count(info.nodes_total, "node");
    let end = match info.state {
        CastState::Done | CastState::Partial => {
            let Some(figures) = figures::of_cast(info) else {
                lines.push(format!("{name} was on {} already", info.nodes_done));
                return lines;
            };
            let whence = match info.resumed {
                true => "the control node was started again meanwhile".to_string(),
                false => format!(
                    "{} bytes came from the control node, {} from nodes",
                    info.bytes_sent, info.bytes_from_nodes
                ),
            };
            format!("{name} is on {} of {all}: {figures}; {whence}", info.done)
        }
        CastState::Cancelled => {
            let why = format!("the cast of {name} was cancelled: {}", info.reason);
            let lacking = std::mem::take(&mut lines).into_iter();
            std::iter::once(why)
                .chain(lacking)
                .collect::<Vec<_>>()
                .join("; ")
        }
        _ => format!("{name} is on none of {all}"),
    };
    lines.push(end);
    lines
}

/// Who does not have it and why, a line for each reason.
fn failures(failed: &[CastFailure]) -> Vec<String> {
    let mut nodes: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for failure in failed {
        let number = hostlist::parse(&failure.node).unwrap_or_default();
        nodes.entry(&failure.reason).or_default().extend(number);
    }
    let mut lines: Vec<(Vec<u32>, String)> = Vec::new();
    for (reason, mut nodes) in nodes {
        nodes.sort_unstable();
        let (verb, rest) = reason.split_once(' ').unwrap_or((reason, ""));
        let verb = match (nodes.len(), verb) {
            (1, verb) => verb,
            (_, "was") => "were",
            (_, "has") => "have",
            (_, "does") => "do",
            (_, verb) => verb,
        };
        let line = format!("{} {verb} {rest}", hostlist::format(&nodes));
        lines.push((nodes, line.trim_end().to_string()));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Lists casts and files, or does something about them.
pub fn casts(global: &Global, options: &ListOptions) -> anyhow::Result<ExitCode> {
    match &options.command {
        None => list(global).map(|()| ExitCode::SUCCESS),
        Some(ListCommand::Drop(options)) => drop_file(global, options),
        Some(ListCommand::Cancel(options)) => {
            let client = global.client()?;
            block_on(async move {
                let id = match options.cast.parse() {
                    Ok(id) => id,
                    Err(_) => {
                        let found: CastsInfo = client.get("/v1/casts").await?;
                        named(&found.casts, &options.cast)?
                    }
                };
                let request = CastCancelRequest::default();
                let path = format!("/v1/casts/{id}/cancel");
                let cancelled: CastCancelled = client.post(&path, &request).await?;
                if global.json {
                    let goes_on = cancelled.goes_on;
                    print_json(&serde_json::json!({ "cast": id, "goes_on": goes_on }))?;
                }
                Ok(ExitCode::SUCCESS)
            })
        }
    }
}

/// The number of the cast under way with this name.
fn named(casts: &[CastInfo], name: &str) -> Result<u64, exit::Usage> {
    let running = casts.iter().filter(|cast| !cast.state.is_final());
    let found = running.filter(|cast| cast.kind != CastKind::Table && cast.name == name);
    let found: Vec<u64> = found.map(|cast| cast.id).collect();
    let quoted = near::quoted(name);
    match found[..] {
        [id] => Ok(id),
        [] => Err(exit::Usage(format!(
            "{quoted} is neither the number of a cast nor the name of one under way; `hearth casts` lists them"
        ))),
        _ => {
            let numbers: Vec<String> = found.iter().map(u64::to_string).collect();
            Err(exit::Usage(format!(
                "several casts under way are called {quoted}; give the number of one: {}",
                numbers.join(", ")
            )))
        }
    }
}

fn list(global: &Global) -> anyhow::Result<()> {
    let client = global.client()?;
    let mut found: CastsInfo = block_on(async move { Ok(client.get("/v1/casts").await?) })?;
    found.casts.retain(is_listed);
    if global.json {
        return print_json(&found);
    }
    print_text(&text(&found))
}

/// Whether a cast is worth being listed: a job's table is over before anybody has read of it.
fn is_listed(cast: &CastInfo) -> bool {
    cast.kind != CastKind::Table || !cast.state.is_final()
}

/// Both tables as text: files that nodes hold; casts that are under way.
fn text(found: &CastsInfo) -> String {
    let mut rows = table::new(&["NAME", "ID", "BYTES", "HELD", "NODES", "AWAY"]);
    let dash = |text: &str| match text {
        "" => "-".to_string(),
        text => text.to_string(),
    };
    for file in &found.files {
        rows.add_row([
            table::name(&file.name),
            table::program_id(&file.object),
            file.bytes.to_string(),
            file.nodes_total.to_string(),
            dash(&file.nodes),
            dash(&file.nodes_away),
        ]);
    }
    let mut text = table::text(&rows);
    let running = found.casts.iter().filter(|cast| !cast.state.is_final());
    // A job's table is over before anybody has read of it.
    let running = running.filter(|cast| cast.kind != CastKind::Table);
    let mut rows = table::new(&[
        "CAST",
        "WHAT",
        "NAME",
        "STATE",
        "DONE",
        "NODES",
        "SENT",
        "SECONDS",
        "LIMIT",
        "WAITS_FOR",
    ]);
    let mut any = false;
    for cast in running {
        any = true;
        rows.add_row([
            cast.id.to_string(),
            cast.kind.word().to_string(),
            table::name(&cast.name),
            cast.state.word().to_string(),
            cast.done.to_string(),
            cast.nodes.clone(),
            cast.bytes_sent.to_string(),
            format!("{:.1}", cast.ms / 1e3),
            format!("{:.1}", cast.limit_ms / 1e3),
            dash(&cast.nodes_absent),
        ]);
    }
    if any {
        text = format!("{text}\n{}", table::text(&rows));
    }
    text
}

fn drop_file(global: &Global, options: &DropOptions) -> anyhow::Result<ExitCode> {
    let request = FileDropRequest {
        file: options.file.clone(),
        nodes: options.nodes.clone(),
    };
    let client = global.client()?;
    let answer: DropAnswer =
        block_on(async move { Ok(client.post("/v1/casts/drop", &request).await?) })?;
    programs_command::print_dropped(global, &answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::FileInfo;

    fn info(state: CastState, done: usize) -> CastInfo {
        CastInfo {
            id: 7,
            kind: CastKind::File,
            name: "data.bin".to_string(),
            object: "ab".repeat(32),
            bytes: 4 << 20,
            state,
            reason: "interrupted by its user".to_string(),
            job: None,
            scheme: Scheme::Auto,
            rate: 6_250_000,
            nodes: "n[0-3]".to_string(),
            nodes_total: 4,
            done,
            held: 0,
            nodes_done: String::new(),
            nodes_absent: String::new(),
            absent_why: String::new(),
            failed: Vec::new(),
            resumed: false,
            began_unix_us: 0,
            ms: 720.0,
            absent_ms: 0.0,
            limit_ms: 670.0,
            ratio: None,
            blocks: 1000,
            blocks_sent: 1000,
            bytes_sent: 4 << 20,
            bytes_from_nodes: 12 << 20,
            corrupt: 0,
        }
    }

    fn failed(node: &str, reason: &str) -> CastFailure {
        CastFailure {
            node: node.to_string(),
            reason: reason.to_string(),
        }
    }

    #[test]
    fn tables_of_jobs_that_are_over_are_not_listed() {
        let mut table = info(CastState::Done, 4);
        assert!(is_listed(&table), "a file is");
        table.kind = CastKind::Table;
        assert!(!is_listed(&table));
        table.state = CastState::Running;
        assert!(is_listed(&table));
    }

    #[test]
    fn a_cast_under_way_is_known_by_its_name_too() {
        let numbered = |id: u64, state: CastState| CastInfo {
            id,
            ..info(state, 1)
        };
        let mut casts = vec![
            numbered(3, CastState::Done),
            numbered(7, CastState::Running),
        ];
        assert_eq!(named(&casts, "data.bin").unwrap(), 7);
        let text = named(&casts, "other").unwrap_err().to_string();
        assert!(text.contains("`hearth casts` lists them"), "{text}");
        casts.push(numbered(9, CastState::Waiting));
        let text = named(&casts, "data.bin").unwrap_err().to_string();
        assert!(text.ends_with("7, 9"), "{text}");
    }

    #[test]
    fn progress_has_nodes_rate_time_and_limit() {
        let mut cast = info(CastState::Running, 3);
        assert_eq!(
            progress(&cast),
            "data.bin: 3 of 4 nodes, 5.8 MB/s, 0.7 s (sent once over one link: 0.7 s)"
        );
        cast.nodes_absent = "n3".to_string();
        assert!(progress(&cast).ends_with("waits for n3"));
        // The rate is that of the time in which there was somebody to send to.
        (cast.ms, cast.absent_ms) = (10_720.0, 10_000.0);
        let text = progress(&cast);
        assert!(text.contains("5.8 MB/s, 10.7 s"), "{text}");
    }

    #[test]
    fn who_is_waited_for_is_told_with_what_brings_them_back() {
        let mut cast = info(CastState::Waiting, 3);
        assert_eq!(absence(&cast), None);
        cast.nodes_absent = "n3".to_string();
        assert_eq!(absence(&cast).unwrap(), "data.bin waits: n3");
        cast.absent_why = "n3 left in good order, `hearth node reset n3`".to_string();
        let text = absence(&cast).unwrap();
        assert_eq!(text, format!("data.bin waits: {}", cast.absent_why));
        cast.state = CastState::Cancelled;
        assert_eq!(absence(&cast), None);
    }

    #[test]
    fn the_end_is_told_with_its_ratio_and_who_failed() {
        let lines = summary(&info(CastState::Done, 4), false);
        assert!(
            lines[0].contains("on 4 of 4 nodes") && lines[0].contains("1.07 times"),
            "{lines:?}"
        );
        let mut partial = info(CastState::Partial, 3);
        partial.failed.push(failed("n2", "was lost"));
        let lines = summary(&partial, false);
        assert_eq!((lines.len(), &lines[0][..]), (2, "n2 was lost"));
        let lines = summary(&info(CastState::Cancelled, 0), false);
        assert!(lines[0].contains("interrupted"), "{lines:?}");
        // One line, however many nodes.
        let mut cancelled = info(CastState::Cancelled, 1);
        cancelled.failed = ["n10", "n2", "n3"]
            .map(|node| failed(node, "did not have it yet"))
            .into();
        assert_eq!(
            summary(&cancelled, false),
            [
                "the cast of data.bin was cancelled: interrupted by its user; n[2-3,10] did not have it yet"
            ]
        );
        let mut partial = info(CastState::Partial, 1);
        partial.failed = vec![
            failed("n1", "was lost"),
            failed("n2", "does not answer"),
            failed("n3", "was lost"),
        ];
        let lines = summary(&partial, false);
        assert_eq!(lines[..2], ["n[1,3] were lost", "n2 does not answer"]);
        let mut known = info(CastState::Done, 4);
        known.held = 4;
        known.nodes_done = "n[0-3]".to_string();
        assert_eq!(summary(&known, false), ["data.bin was on n[0-3] already"]);
        // Nobody got it: no rate, and no multiple of a limit.
        let mut rest = info(CastState::Partial, 2);
        (rest.held, rest.nodes_done) = (2, "n[0-1]".to_string());
        rest.failed = vec![
            failed("n2", "left in good order"),
            failed("n3", "left in good order"),
        ];
        let lines = summary(&rest, false);
        assert_eq!(
            lines,
            [
                "n[2-3] left in good order",
                "data.bin was on n[0-1] already"
            ]
        );
        let mut late = info(CastState::Done, 4);
        (late.ms, late.absent_ms) = (10_720.0, 10_000.0);
        let lines = summary(&late, false);
        assert!(
            lines[0].contains("in 0.72 s, 5.8 MB/s, 1.07 times")
                && lines[0].contains("without 10.00 s in which nodes were away"),
            "{lines:?}"
        );
    }

    #[test]
    fn files_and_casts_are_listed() {
        let file = FileInfo {
            name: "data\u{1b}.bin".to_string(),
            object: "ab".repeat(32),
            bytes: 9,
            nodes: "n[0-1]".to_string(),
            nodes_total: 2,
            nodes_away: String::new(),
            cast_unix_us: 0,
        };
        let found = CastsInfo {
            files: vec![file],
            casts: vec![info(CastState::Running, 1), info(CastState::Done, 4)],
        };
        let text = text(&found);
        assert!(
            !text.contains('\u{1b}') && text.contains("abababababab "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}
