//! `hearth programs` and `hearth drop`: what nodes hold for the next launch.
//!
//! Neighbours: `api::warm` on the other side. Invariant: `drop` says of every node what became of
//! it, and ends with status 0 only if none of them holds the program any more, now or after its
//! job.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::{Global, block_on, exit, job_options, print_json, print_text, table};
use crate::api::types::{DropAnswer, DropOutcome, DropRequest, ProgramInfo};
use crate::{clock, hostlist, output, secrets};

/// Options of `hearth programs`.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// Only programs that some node holds for the next launch.
    #[arg(long)]
    warm: bool,
}

/// Options of `hearth drop`.
#[derive(Debug, Args)]
#[command(after_help = "\
A program that a node runs just now is let go of when its job ends. Status 125: it is not certain of
every node that it lets go, because it is silent or did not answer; it is told as soon as it can be.")]
pub struct DropOptions {
    /// Its name, the beginning of its id as `hearth programs` shows it, or the path of its file.
    #[arg(value_name = "PROGRAM", required_unless_present = "all")]
    program: Option<String>,
    /// Only these nodes: n0,n[3-5] [default: all that hold or run it].
    #[arg(value_name = "NODES")]
    nodes: Option<String>,
    /// All programs instead of one.
    #[arg(long)]
    all: bool,
}

/// Prints the programs.
pub fn list(global: &Global, options: &ListOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let mut programs: Vec<ProgramInfo> =
        block_on(async move { Ok(client.get("/v1/programs").await?) })?;
    if options.warm {
        programs.retain(|program| program.nodes_total > 0);
    }
    if global.json {
        return print_json(&programs);
    }
    print_text(&text(&programs, clock::unix_us()))
}

/// The table as text; `now_us` is microseconds since 1970.
fn text(programs: &[ProgramInfo], now_us: u64) -> String {
    let mut rows = table::new(&[
        "PROGRAM", "NAME", "BYTES", "WARM", "PAGES", "LAUNCHES", "HITS", "USED", "NODES",
    ]);
    for program in programs {
        let used = program.last_used_unix_us.map(|used| {
            let ago = now_us.saturating_sub(used) / 1_000_000;
            format!("{} ago", clock::span(ago))
        });
        let dash = |text: &str| match text {
            "" => "-".to_string(),
            text => text.to_string(),
        };
        rows.add_row([
            table::program_id(&program.program),
            table::name(&program.name),
            program.bytes.to_string(),
            program.nodes_total.to_string(),
            program.pages.to_string(),
            program.launches.to_string(),
            program.hits.to_string(),
            table::or_dash(used),
            dash(&program.nodes),
        ]);
    }
    table::text(&rows)
}

/// Has nodes let go of a program.
pub fn drop(global: &Global, options: &DropOptions) -> anyhow::Result<ExitCode> {
    let request = request(options)?;
    let client = global.client()?;
    let answer: DropAnswer = block_on(async move { Ok(client.post("/v1/drop", &request).await?) })?;
    print_dropped(global, &answer)
}

/// Prints what became of a drop; gives its status.
pub(super) fn print_dropped(global: &Global, answer: &DropAnswer) -> anyhow::Result<ExitCode> {
    if global.json {
        print_json(answer)?;
    } else {
        let mut rows = table::new(&["NODE", "OUTCOME", "PAGES"]);
        for node in &answer.nodes {
            rows.add_row([
                node.node.clone(),
                node.outcome.word().to_string(),
                node.pages.to_string(),
            ]);
        }
        if !answer.nodes.is_empty() {
            print_text(&table::text(&rows))?;
        }
        remarks(answer).into_iter().for_each(output::say_line);
    }
    if !answer.nodes.iter().all(|node| node.outcome.is_certain()) {
        return Ok(ExitCode::from(exit::CONTROL));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the words in the table mean for these nodes.
fn remarks(answer: &DropAnswer) -> Vec<String> {
    let nodes = |outcome: DropOutcome| {
        let found = answer.nodes.iter().filter(|node| node.outcome == outcome);
        let numbers: Vec<u32> = found
            .filter_map(|node| node.node.strip_prefix('n')?.parse().ok())
            .collect();
        (!numbers.is_empty()).then(|| hostlist::format(&numbers))
    };
    let mut lines = Vec::new();
    if answer.nodes.is_empty() {
        let what = match answer.program {
            Some(_) => "no node holds it",
            None => "no node holds any program",
        };
        lines.push(what.to_string());
    }
    if let Some(list) = nodes(DropOutcome::Running) {
        lines.push(format!(
            "the program runs on {list}; it is dropped there when the job ends"
        ));
    }
    if let Some(list) = nodes(DropOutcome::NotUp) {
        lines.push(format!("{list} not in service; nothing is held there"));
    }
    if let Some(list) = nodes(DropOutcome::Away) {
        lines.push(format!(
            "no contact with {list}: asked when it is heard again, unless the control node is restarted before"
        ));
    }
    if let Some(list) = nodes(DropOutcome::TooMany) {
        lines.push(format!(
            "not asked, because too many drops wait for it: {list}; try again"
        ));
    }
    if let Some(list) = nodes(DropOutcome::NoAnswer) {
        lines.push(format!(
            "no answer from {list} yet; asked again until it answers or is lost"
        ));
    }
    lines
}

/// What to ask of control. A word with a slash is a path; another word is one if control could not
/// know it by that name: it is the id of the file that counts.
fn request(options: &DropOptions) -> anyhow::Result<DropRequest> {
    if options.all {
        // With --all the first word, if there is one, names nodes.
        let nodes = options.program.clone().or(options.nodes.clone());
        if options.program.is_some() && options.nodes.is_some() {
            bail!("--all stands for the program: write `hearth drop --all [NODES]`");
        }
        return Ok(DropRequest {
            program: None,
            nodes,
        });
    }
    let word = options.program.clone().unwrap_or_default();
    let program = if word.contains('/') {
        match job_options::hash_program(Path::new(&word)) {
            Ok(hash) => secrets::encode_hex(&hash),
            Err(failed) => bail!("{}", failed.text.replacen("cannot run", "cannot read", 1)),
        }
    } else {
        word
    };
    Ok(DropRequest {
        program: Some(program),
        nodes: options.nodes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::DroppedOn;

    #[test]
    fn the_table_of_programs_lines_up() {
        let program = |name: &str, nodes: &str, pages| ProgramInfo {
            program: "a41f03c29be0".repeat(6)[..64].to_string(),
            name: name.to_string(),
            names: vec![name.to_string()],
            bytes: 30_000,
            nodes: nodes.to_string(),
            nodes_total: usize::from(!nodes.is_empty()),
            pages,
            launches: 12,
            hits: 3,
            last_used_unix_us: Some(1_000_000),
        };
        let text = text(
            &[program("hello", "n0", 7), program("", "", 123_456)],
            61_000_000,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("a41f03c29be0 "), "{text}");
        assert!(lines[1].contains("ago"), "{text}");
        for heading in ["NAME", "LAUNCHES", "NODES"] {
            let at = lines[0].find(heading).unwrap();
            assert_ne!(&lines[1][at..=at], " ", "{text}");
            assert_eq!(&lines[1][at - 1..at], " ", "{text}");
        }
        assert!(lines[2].ends_with('-'), "{text}");
    }

    #[test]
    fn every_outcome_that_needs_words_has_some() {
        let on = |node: u32, outcome| DroppedOn {
            node: hostlist::name(node),
            outcome,
            pages: 0,
        };
        let answer = |nodes| DropAnswer {
            program: None,
            name: None,
            nodes,
        };
        let lines = remarks(&answer(vec![
            on(0, DropOutcome::Dropped),
            on(1, DropOutcome::Running),
            on(2, DropOutcome::Running),
            on(3, DropOutcome::NoAnswer),
        ]));
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].contains("n[1-2]") && lines[1].contains("n3"),
            "{lines:?}"
        );
        assert_eq!(remarks(&answer(Vec::new())), ["no node holds any program"]);
        for outcome in [DropOutcome::NotUp, DropOutcome::Away, DropOutcome::TooMany] {
            assert_eq!(
                remarks(&answer(vec![on(4, outcome)])).len(),
                1,
                "{outcome:?}"
            );
        }
        assert!(DropOutcome::NotUp.is_certain() && !DropOutcome::Away.is_certain());
    }

    #[test]
    fn paths_are_told_from_names() {
        let options = |program: Option<&str>, nodes: Option<&str>, all| DropOptions {
            program: program.map(str::to_string),
            nodes: nodes.map(str::to_string),
            all,
        };
        let named = request(&options(Some("hello"), Some("n1"), false)).unwrap();
        assert_eq!(
            (named.program.as_deref(), named.nodes.as_deref()),
            (Some("hello"), Some("n1"))
        );
        let missing = request(&options(Some("./no-such-file"), None, false)).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("cannot read ./no-such-file"),
            "{missing}"
        );
        let all = request(&options(Some("n[0-3]"), None, true)).unwrap();
        assert_eq!((all.program, all.nodes.as_deref()), (None, Some("n[0-3]")));
        assert!(request(&options(Some("x"), Some("n1"), true)).is_err());
    }
}
