//! What nodes hold for the next launch: the list of programs, and letting go of them.
//!
//! Key types: [`types::ProgramInfo`], [`types::DropRequest`]. Neighbours: `warm::Index` (who holds
//! what), `history` (programs that were run), `drops` (commands to nodes).
//!
//! Invariant: a drop is answered within [`DROP_LIMIT`], whatever nodes do; a name that could mean
//! two programs is never acted upon.
//!
//! [`types::ProgramInfo`]: super::types::ProgramInfo
//! [`types::DropRequest`]: super::types::DropRequest

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Extension;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use hearth_store::{ProgramRow, WarmRow};
use netstack::time::Instant;
use tokio::sync::oneshot;

use super::types::{
    DropAnswer, DropOutcome, DropRequest, DroppedOn, JobInfo, JobState, ProgramInfo,
};
use super::{Api, Refusal};
use crate::control::Core;
use crate::drops::{self, Answer, NotTold};
use crate::events::{Event, Severity};
use crate::principal::{By, Operator};
use crate::programs::{Hash, short_id};
use crate::warm::Warm;
use crate::{hostlist, secrets};

/// Programs looked at: more than anybody reads, and as many as the store keeps by default.
const PROGRAMS_MAX: u32 = 10_000;

/// Jobs that wait or are over and are looked at for programs that no rank has told the end of yet.
/// Those that have nodes are looked at anyhow: there are no more of them than nodes.
const RECENT_JOBS: usize = 1_000;

/// How long nodes may take to answer a drop. One that computes looks at its network once a second.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// Fewest digits of a program's id that are taken for its beginning.
pub(super) const PREFIX_MIN: usize = 4;

/// Programs that were run or are held, the last used first.
#[utoipa::path(get, path = "/v1/programs", tag = "programs", responses((status = 200, body = Vec<ProgramInfo>)))]
pub async fn programs(State(api): State<Api>) -> Result<Json<Vec<ProgramInfo>>, Refusal> {
    let mut rows = rows(&api).await?;
    let mut held: BTreeMap<Hash, Vec<Warm>> = BTreeMap::new();
    let mut active = Active::default();
    {
        let mut core = api.shared.lock();
        for warm in core.ledger.warm.iter() {
            held.entry(warm.program).or_default().push(warm);
        }
        let has_nodes = |job: &&JobInfo| job.state != JobState::Pending;
        let with_nodes = core.runner.jobs().filter(has_nodes);
        with_nodes.for_each(|job| active.take(job));
        let recent = core.runner.below(u64::MAX, true).take(RECENT_JOBS);
        recent.for_each(|job| active.take(job));
    }
    rows.extend(first_runs(&api, &rows, active));
    let mut list: Vec<ProgramInfo> = rows
        .iter()
        .map(|row| info(row, held.remove(&row.hash).unwrap_or_default()))
        .collect();
    // Held, and nothing else is known: its row is gone.
    for (hash, warm) in held {
        let row = ProgramRow {
            hash,
            names: Vec::new(),
            bytes: 0,
            first_used_unix_us: 0,
            last_used_unix_us: 0,
            launches: 0,
            warm_launches: 0,
        };
        list.push(info(&row, warm));
    }
    list.sort_by_key(|program| std::cmp::Reverse(program.last_used_unix_us));
    Ok(Json(list))
}

/// A program of jobs that no rank has told the end of yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FirstRun {
    /// The lowest number of its jobs, and the program's name in that one.
    job: u64,
    name: String,
    /// Microseconds since 1970 at which the first of them began, and the last; 0: none has.
    first_unix_us: u64,
    last_unix_us: u64,
}

/// Programs of jobs, however often and in whatever order a job is looked at.
#[derive(Debug, Default)]
struct Active(BTreeMap<Hash, FirstRun>);

impl Active {
    fn take(&mut self, job: &JobInfo) {
        let began = job.started_unix_us;
        let Some(hash) = secrets::decode_hex::<32>(&job.program) else {
            return;
        };
        if began.is_none() && job.state.is_final() {
            return;
        }
        let run = self.0.entry(hash).or_insert_with(|| FirstRun {
            job: job.id,
            name: job.program_name().to_string(),
            first_unix_us: 0,
            last_unix_us: 0,
        });
        if job.id < run.job {
            (run.job, run.name) = (job.id, job.program_name().to_string());
        }
        if let Some(began) = began {
            run.first_unix_us = match run.first_unix_us {
                0 => began,
                first => first.min(began),
            };
            run.last_unix_us = run.last_unix_us.max(began);
        }
    }
}

/// Programs of jobs that have no row yet: no rank of theirs has told how it ended.
fn first_runs(api: &Api, rows: &[ProgramRow], active: Active) -> Vec<ProgramRow> {
    let known: BTreeSet<Hash> = rows.iter().map(|row| row.hash).collect();
    let active = active.0.into_iter();
    let first = active.filter(|(hash, _)| !known.contains(hash));
    let row = |(hash, run): (Hash, FirstRun)| ProgramRow {
        hash,
        names: vec![run.name],
        bytes: api
            .shared
            .programs
            .get(&hash)
            .map_or(0, |program| program.bytes()),
        first_used_unix_us: run.first_unix_us,
        last_used_unix_us: run.last_unix_us,
        launches: 0,
        warm_launches: 0,
    };
    first.map(row).collect()
}

/// The last names of programs that are held; without the store the list is only poorer. Jobs that
/// are remembered here know most of them, so that a list of nodes seldom asks the store.
pub(super) async fn names(api: &Api) -> BTreeMap<Hash, String> {
    let mut names = BTreeMap::new();
    let mut nameless = BTreeSet::new();
    {
        let core = api.shared.lock();
        let held: BTreeSet<Hash> = core.ledger.warm.iter().map(|warm| warm.program).collect();
        for program in held {
            match core.runner.program_name(&program) {
                Some(name) => _ = names.insert(program, name.to_string()),
                None => _ = nameless.insert(program),
            }
        }
    }
    if !nameless.is_empty() {
        let rows = rows(api).await.unwrap_or_default().into_iter();
        let rows = rows.filter(|row| nameless.contains(&row.hash));
        names.extend(rows.filter_map(|row| Some((row.hash, row.names.into_iter().next()?))));
    }
    names
}

/// The rows of programs that were run.
async fn rows(api: &Api) -> Result<Vec<ProgramRow>, Refusal> {
    let rows = api.shared.history.programs(PROGRAMS_MAX).await;
    rows.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "store-failed", error))
}

fn info(row: &ProgramRow, mut warm: Vec<Warm>) -> ProgramInfo {
    warm.sort_by_key(|warm| warm.node);
    let nodes: Vec<u32> = warm.iter().map(|warm| warm.node).collect();
    ProgramInfo {
        program: secrets::encode_hex(&row.hash),
        name: row.names.first().cloned().unwrap_or_default(),
        names: row.names.clone(),
        bytes: row.bytes,
        nodes: if nodes.is_empty() {
            String::new()
        } else {
            hostlist::format(&nodes)
        },
        nodes_total: nodes.len(),
        pages: warm.iter().map(|warm| u64::from(warm.pages)).sum(),
        launches: row.launches,
        hits: row.warm_launches,
        last_used_unix_us: (row.last_used_unix_us > 0).then_some(row.last_used_unix_us),
    }
}

/// A program that a request means.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Meant {
    hash: Hash,
    name: Option<String>,
}

/// Have nodes let go of a program, or of all; waits for their answers.
#[utoipa::path(post, path = "/v1/drop", tag = "programs", request_body = DropRequest, responses((status = 200, body = DropAnswer)))]
pub async fn drop_programs(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<DropRequest>,
) -> Result<Json<DropAnswer>, Refusal> {
    let operator = by.operator()?;
    let named = api.nodes_if(request.nodes.as_deref())?;
    let all_nodes = named.is_none();
    let meant = match &request.program {
        Some(text) => Some(find(&known(&api).await?, text)?),
        None => None,
    };
    let hash = meant.as_ref().map(|meant| meant.hash);
    let asked = ask(&api, &operator, named, hash)?;
    let mut nodes = answers(asked).await;
    // Some were asked to be sure, not because they were known to hold anything.
    nodes.retain(|node| !all_nodes || node.outcome != DropOutcome::NotHeld);
    note(&api, meant.as_ref(), &nodes);
    Ok(Json(DropAnswer {
        program: hash.map(|hash| secrets::encode_hex(&hash)),
        name: meant.and_then(|meant| meant.name),
        nodes,
    }))
}

/// Has nodes let go of one thing, a file called `name`; waits for their answers.
pub(super) async fn drop_on(
    api: &Api,
    operator: &Operator<'_>,
    nodes: Vec<u32>,
    (hash, name): (Hash, &str),
) -> Vec<DroppedOn> {
    let asked = {
        let now = api.shared.now();
        let mut core = api.shared.lock();
        let asked = tell(&mut core, operator, now, nodes, Some(hash));
        core.settle(now);
        asked
    };
    api.shared.kick();
    let nodes = answers(asked).await;
    let meant = Meant {
        hash,
        name: Some(name.to_string()),
    };
    note(api, Some(&meant), &nodes);
    nodes
}

/// What nodes answer, as far as they do in time.
async fn answers(asked: Vec<Asked>) -> Vec<DroppedOn> {
    let deadline = tokio::time::Instant::now() + DROP_LIMIT;
    let mut nodes = Vec::with_capacity(asked.len());
    for (node, asked) in asked {
        let (outcome, pages) = match asked {
            Ok(waiting) => outcome(tokio::time::timeout_at(deadline, waiting).await.ok()),
            Err(outcome) => (outcome, 0),
        };
        nodes.push(DroppedOn {
            node: hostlist::name(node),
            outcome,
            pages,
        });
    }
    nodes
}

/// Tells nodes to let go of something.
fn tell(
    core: &mut Core,
    _: &Operator<'_>,
    now: Instant,
    nodes: impl IntoIterator<Item = u32>,
    hash: Option<Hash>,
) -> Vec<Asked> {
    nodes
        .into_iter()
        .map(|node| {
            let asked = drops::ask(core, now, node, hash);
            let asked = asked.map_err(|not_told| match not_told {
                NotTold::NotUp => DropOutcome::NotUp,
                NotTold::Away => DropOutcome::Away,
                NotTold::TooMany => DropOutcome::TooMany,
            });
            (node, asked)
        })
        .collect()
}

type Asked = (u32, Result<oneshot::Receiver<Answer>, DropOutcome>);

/// Tells the nodes: the named ones, else all that hold or run the program as far as control knows,
/// those that are silent included, and those where it has just ended.
fn ask(
    api: &Api,
    operator: &Operator<'_>,
    named: Option<Vec<u32>>,
    hash: Option<Hash>,
) -> Result<Vec<Asked>, Refusal> {
    let now = api.shared.now();
    let mut core = api.shared.lock();
    let holds = |row: &&WarmRow| hash.is_none_or(|hash| row.program == hash);
    let nodes: BTreeSet<u32> = match named {
        Some(named) => named.into_iter().collect(),
        None => {
            let warm = &core.ledger.warm;
            let mut nodes = core.runner.nodes_with(hash.as_ref());
            nodes.extend(warm.rows().filter(holds).map(|row| row.node));
            nodes.extend(warm.last_ran(hash.as_ref()));
            nodes
        }
    };
    let unknown: Vec<u32> = nodes
        .iter()
        .copied()
        .filter(|node| !core.runner.knows(*node))
        .collect();
    if !unknown.is_empty() {
        let error = format!(
            "unknown nodes: {}; `hearth nodes` lists the nodes",
            hostlist::format(&unknown)
        );
        return Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "no-such-nodes",
            error,
        ));
    }
    let asked = tell(&mut core, operator, now, nodes, hash);
    core.settle(now);
    drop(core);
    api.shared.kick();
    Ok(asked)
}

/// What an answer means; none: it did not come in time.
fn outcome(answer: Option<Result<Answer, oneshot::error::RecvError>>) -> (DropOutcome, u32) {
    match answer {
        None => (DropOutcome::NoAnswer, 0),
        Some(Err(_)) => (DropOutcome::Away, 0),
        Some(Ok(Answer::Void)) => (DropOutcome::NotUp, 0),
        Some(Ok(Answer::Done { pages, in_use })) => match (in_use, pages) {
            (true, pages) => (DropOutcome::Running, pages),
            (false, 0) => (DropOutcome::NotHeld, 0),
            (false, pages) => (DropOutcome::Dropped, pages),
        },
    }
}

/// Leaves an event about a drop.
fn note(api: &Api, meant: Option<&Meant>, nodes: &[DroppedOn]) {
    let numbers = |wanted: DropOutcome| {
        let found = nodes.iter().filter(|node| node.outcome == wanted);
        let numbers = found.filter_map(|node| node.node.strip_prefix('n')?.parse().ok());
        numbers.collect::<Vec<u32>>()
    };
    let what = match meant {
        None => "all programs".to_string(),
        Some(meant) => describe(meant),
    };
    let pages: u64 = nodes.iter().map(|node| u64::from(node.pages)).sum();
    let mut parts = Vec::new();
    for (outcome, words) in [
        (DropOutcome::Dropped, "let go of it"),
        (DropOutcome::Running, "lets go of it when its job ends"),
        (DropOutcome::NoAnswer, "did not answer"),
        (DropOutcome::Away, "is told when it is heard again"),
        (
            DropOutcome::TooMany,
            "was not asked: too many drops wait for it",
        ),
    ] {
        let numbers = numbers(outcome);
        if !numbers.is_empty() {
            parts.push(format!("{} {words}", hostlist::format(&numbers)));
        }
    }
    if parts.is_empty() {
        return;
    }
    let text = format!(
        "drop of {what}: {} ({})",
        parts.join(", "),
        crate::output::count(pages, "page")
    );
    let event = Event::new(Severity::Info, "drop", text);
    let mut core = api.shared.lock();
    core.events.push(event);
    core.settle(api.shared.now());
}

/// `hello (a41f03c29be0)`.
fn describe(meant: &Meant) -> String {
    let id = short_id(&meant.hash);
    match &meant.name {
        Some(name) => format!("{name} ({id})"),
        None => id,
    }
}

/// Programs that a word can mean, with their names.
async fn known(api: &Api) -> Result<BTreeMap<Hash, Vec<String>>, Refusal> {
    let rows = rows(api).await?;
    let mut known: BTreeMap<Hash, Vec<String>> =
        rows.into_iter().map(|row| (row.hash, row.names)).collect();
    let core = api.shared.lock();
    for warm in core.ledger.warm.iter() {
        known.entry(warm.program).or_default();
    }
    for job in core.runner.list(false) {
        if let Some(hash) = secrets::decode_hex(&job.program) {
            let names = known.entry(hash).or_default();
            let name = job.program_name();
            if !names.iter().any(|known| known == name) {
                names.insert(0, name.to_string());
            }
        }
    }
    Ok(known)
}

/// The program meant by `text`: its name, its id, or the beginning of its id.
fn find(known: &BTreeMap<Hash, Vec<String>>, text: &str) -> Result<Meant, Refusal> {
    let named = |names: &[String]| names.iter().any(|name| name == text);
    let mut found: Vec<&Hash> = known
        .iter()
        .filter(|(_, names)| named(names))
        .map(|(hash, _)| hash)
        .collect();
    let digits = text.len() >= PREFIX_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if found.is_empty() && digits {
        let prefix = text.to_ascii_lowercase();
        found = known
            .keys()
            .filter(|hash| secrets::encode_hex(&hash[..]).starts_with(&prefix))
            .collect();
    }
    let meant = |hash: &Hash| Meant {
        hash: *hash,
        name: known.get(hash).and_then(|names| names.first().cloned()),
    };
    match found.as_slice() {
        [one] => Ok(meant(one)),
        [] => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no-such-program",
            format!(
                "no program {text:?} is known; `hearth programs` lists the programs (a name, or at least {PREFIX_MIN} digits of the id)"
            ),
        )),
        several => {
            let list: Vec<String> = several.iter().map(|hash| describe(&meant(hash))).collect();
            Err(Refusal::new(
                StatusCode::CONFLICT,
                "ambiguous-program",
                format!(
                    "{text:?} can mean {} programs: {}; give more of the id",
                    several.len(),
                    list.join(", ")
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_by_the_beginning_of_its_id() {
        let hash = |first: u8, second: u8| {
            let mut hash = [0; 32];
            (hash[0], hash[1], hash[2]) = (first, second, second);
            hash
        };
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let known = BTreeMap::from([
            (hash(0xab, 0xcd), names(&["hello", "greet"])),
            (hash(0xab, 0xce), names(&["work"])),
            (hash(0x11, 0x11), names(&["work"])),
            (hash(0x22, 0x22), names(&[])),
        ]);
        let found = |text: &str| find(&known, text).map(|meant| (meant.hash[1], meant.name));
        let code = |text: &str| find(&known, text).unwrap_err().code().to_string();
        assert_eq!(found("greet").unwrap(), (0xcd, Some("hello".into())));
        assert_eq!(found("ABCE").unwrap(), (0xce, Some("work".into())));
        assert_eq!(found("222222").unwrap(), (0x22, None));
        let whole = secrets::encode_hex(&hash(0x11, 0x11));
        assert_eq!(found(&whole).unwrap().0, 0x11);
        assert_eq!(code("work"), "ambiguous-program");
        for unknown in ["abc", "nonsense", "ffff", "", "hell"] {
            assert_eq!(code(unknown), "no-such-program", "{unknown}");
        }
    }

    #[test]
    fn a_program_has_the_name_and_the_time_of_its_first_job() {
        let job = |id: u64, name: &str, began: Option<u64>, state: JobState| JobInfo {
            id,
            name: name.into(),
            program: "ab".repeat(32),
            started_unix_us: began,
            state,
            ..JobInfo::default()
        };
        let jobs = [
            job(9, "later", None, JobState::Pending),
            job(8, "second", Some(800), JobState::Running),
            job(7, "first", Some(700), JobState::Running),
            job(3, "never", None, JobState::Cancelled),
        ];
        // As they come, the other way round, and twice.
        for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
            let mut active = Active::default();
            for index in order.into_iter().chain(order) {
                active.take(&jobs[index]);
            }
            let run = FirstRun {
                job: 7,
                name: "first".into(),
                first_unix_us: 700,
                last_unix_us: 800,
            };
            assert_eq!(active.0.into_values().collect::<Vec<_>>(), [run]);
        }
    }

    #[test]
    fn answers_are_told_apart() {
        let answer = |pages, in_use| outcome(Some(Ok(Answer::Done { pages, in_use }))).0;
        assert_eq!(answer(5, false), DropOutcome::Dropped);
        assert_eq!(answer(0, false), DropOutcome::NotHeld);
        assert_eq!(answer(0, true), DropOutcome::Running);
        assert_eq!(outcome(None).0, DropOutcome::NoAnswer);
        assert_eq!(outcome(Some(Ok(Answer::Void))).0, DropOutcome::NotUp);
        let (sender, receiver) = oneshot::channel();
        drop(sender);
        assert_eq!(outcome(Some(receiver.blocking_recv())).0, DropOutcome::Away);
    }
}
