//! Handing in jobs and their streams. Neighbours: `crate::jobs` (the runner and its streams).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Json, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use hearth_io::User;
use serde::Deserialize;
use utoipa::IntoParams;

use super::types::{
    CancelRequest, Done, Frame, JobAccepted, JobRequest, Reuse, SignalRequest, Size,
};
use super::{Api, Refusal, casts, past, programs};
use crate::blocking;
use crate::config::{FileService, GRACE_MOST_S, Load};
use crate::control::Core;
use crate::io_service::{self, Mounts};
use crate::jobs::allocator::Want;
use crate::jobs::command_line;
use crate::jobs::kept::KeptReader;
use crate::jobs::record::{Submission, Terms};
use crate::jobs::retention::Wishes;
use crate::jobs::streams::{Item, SinkReader};
use crate::jobs::{JobError, SubmitError};
use crate::output_files::{Pattern, Wanted};
use crate::principal::{By, Principal};
use crate::programs::Program;
use crate::signal;

/// Silence after which a line is sent that says nothing, so that both sides notice a dead peer.
const PING_AFTER: Duration = Duration::from_secs(5);

/// Bytes of output gathered into one piece for the connection.
const PIECE_BYTES: usize = 64 * 1024;

/// Most bytes of which the last are found: where their records begin is held in memory.
const LAST_BYTES_MAX: u64 = 1024 * 1024;

/// Longest reason for ending a job, in bytes: it is in the job's record and in an event.
const REASON_MAX: usize = 256;

/// Hand a job in.
///
/// Its program must have been PUT before.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobRequest, responses((status = 200, body = JobAccepted)))]
pub async fn submit(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<JobRequest>,
) -> Result<Json<JobAccepted>, Refusal> {
    by.claims(&request.user)?;
    let hash = programs::parse_hash(&request.program)?;
    let program = api
        .shared
        .programs
        .find_for(&by, &hash)
        .await
        .ok_or_else(|| programs::unknown_program(&hash))?;
    let args = decode(&request.args)?;
    let program_name = match command_line::program_name(&args) {
        name if name.is_empty() => request.name.clone(),
        name => name,
    };
    if !request.no_precheck {
        check_program(&program_name, &program)?;
    }
    let want = want(&api, &request)?;
    let mut terms = terms(&api, &by, &request).await?;
    terms.mounts = mounts(&api, &by, &request).await?;
    terms.output_files = output_files(&by, &request)?;
    let files = casts::job_files(&api, &by, &request.with).await?;
    let config = api.shared.lock().casts.config().clone();
    let may_cast = match request.load.unwrap_or(config.load) {
        Load::Demand => false,
        Load::Broadcast => true,
        Load::Auto => program.bytes() > config.threshold,
    };
    if may_cast {
        // A program that cannot be cast is loaded by demand, and the job says why.
        drop(casts::describe(&program_name, &program).await);
    }
    // Beside the launch, which does not need it: a node checks pages after the run at the earliest,
    // and asks again when the list is not there yet.
    let listed = program.clone();
    tokio::task::spawn_blocking(move || listed.make_page_hashes().is_ok());
    let submission = Submission {
        name: request.name,
        program,
        args,
        env: decode(&request.env)?,
        want,
        wishes: Wishes {
            reuse: request.reuse,
            verify: request.verify,
            core_bytes: request.core_bytes.unwrap_or(0),
        },
        load: request.load,
        files,
        wait: request.wait,
        time_limit_s: request.time_limit_s,
        stdin: request.stdin,
        terms,
    };
    let id = hand_in(&api, &by, submission).map_err(|error| match error {
        SubmitError::Denied(denied) => denied.into(),
        SubmitError::NotStored(_) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", error)
        }
        SubmitError::QueueFull(_) | SubmitError::QueueBytes(_) | SubmitError::UserQueue { .. } => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "queue-full", error)
        }
        SubmitError::Stopping => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error),
        SubmitError::UnknownDependency(_) | SubmitError::FailedDependency { .. } => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-dependency", error)
        }
        SubmitError::UnknownNodes(_)
        | SubmitError::TooMany { .. }
        | SubmitError::TooManyExcluded { .. }
        | SubmitError::NoPlaces { .. } => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "no-such-nodes", error)
        }
        // The request makes sense, and the configuration does not allow it.
        SubmitError::UserNodes { .. } | SubmitError::NothingKept => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "not-allowed", error)
        }
        error => Refusal::bad_request(error),
    })?;
    let look_for_s = api.shared.lock().runner.look_for_s();
    Ok(Json(JobAccepted { id, look_for_s }))
}

/// What a job sees of the directories of this machine: as its user, where the control node can be
/// that user.
async fn mounts(
    api: &Api,
    by: &Principal,
    request: &JobRequest,
) -> Result<Option<Mounts>, Refusal> {
    let Some(files) = &request.files else {
        return Ok(None);
    };
    let serves_others = io_service::serves_others();
    // A service on another machine is told the number of everybody, root's too, by a control node
    // that knows numbers.
    let goes_by_name = serves_others && api.files.service == FileService::Joined;
    let user = match (by.is_owner, &by.identity) {
        (true, None) => None,
        (true, Some(_)) if !goes_by_name => None,
        (_, Some(identity)) if serves_others => Some(User {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.clone(),
        }),
        _ if files.mounts.is_empty() => return Ok(None),
        _ => {
            let text = format!(
                "the control node runs as {} and opens files for that user alone; leave --mount out",
                crate::user::name()
            );
            return Err(Refusal::new(StatusCode::FORBIDDEN, "not-allowed", text));
        }
    };
    let (exported, files) = (api.files.clone(), files.clone());
    let granted = blocking::run(move || io_service::grant(&exported, &files, user)).await;
    granted.map_err(Refusal::bad_request)
}

/// Files that the output of a batch job goes to: control writes files as the user who it is, and
/// for nobody else.
fn output_files(by: &Principal, request: &JobRequest) -> Result<Wanted, Refusal> {
    let pattern = |text: &Option<String>| -> Result<Option<Pattern>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        let pattern: Pattern = text.parse().map_err(Refusal::bad_request)?;
        match pattern.is_absolute() {
            true => Ok(Some(pattern)),
            false => Err(Refusal::bad_request(
                "a file for output is a path from the root",
            )),
        }
    };
    let wanted = Wanted {
        output: pattern(&request.output)?,
        error: pattern(&request.error)?,
        core: pattern(&request.core)?,
    };
    if let Some(core) = wanted.core.as_ref().filter(|core| !core.is_per_rank()) {
        let text = format!("{core}: each rank has a core file of its own; write %n for the rank");
        return Err(Refusal::bad_request(text));
    }
    if wanted.is_nothing() {
        return Ok(wanted);
    }
    if !request.batch {
        return Err(Refusal::bad_request(
            "only the output of a batch job is written by the control node",
        ));
    }
    if !by.is_owner {
        let text = "the control node writes files as the user who it runs as, and for that user alone, asked over its unix socket; leave -o and -e out, `hearth output JOB` prints what a job writes";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "not-allowed", text));
    }
    wanted
        .check()
        .map_err(|error| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "not-writable", error))?;
    Ok(wanted)
}

/// Which nodes the job asks for.
fn want(api: &Api, request: &JobRequest) -> Result<Want, Refusal> {
    let list = |text: &Option<String>| api.nodes_if(text.as_deref());
    let nodes = list(&request.nodes)?;
    let with = list(&request.nodelist)?.unwrap_or_default();
    let named = nodes.as_ref().map_or(with.len(), Vec::len);
    let named = u32::try_from(named).unwrap_or(0);
    let (ranks, places) = match (request.ranks, request.node_count) {
        (0, 0) => (named, 0),
        (0, nodes) => (nodes, 0),
        counts => counts,
    };
    Ok(Want {
        ranks,
        places,
        nodes,
        warm_only: request.reuse == Reuse::Require,
        with,
        without: list(&request.exclude)?
            .unwrap_or_default()
            .into_iter()
            .collect(),
        cores: match request.cores {
            Some(0) => {
                return Err(Refusal::bad_request(
                    "a rank uses at least one core; leave `cores` out for all that its node has",
                ));
            }
            cores => cores.unwrap_or(0),
        },
    })
}

/// Hands a job to the runner. A batch job is taken only if that is written down: nobody waits for
/// it, and who has its number may forget it.
fn hand_in(api: &Api, by: &Principal, submission: Submission) -> Result<u64, SubmitError> {
    let now = api.shared.now();
    let mut core = api.shared.lock();
    let is_batch = submission.terms.batch;
    let failing = |core: &Core| core.ledger.failing().map(str::to_string);
    if let Some(trouble) = failing(&core).filter(|_| is_batch) {
        return Err(SubmitError::NotStored(trouble));
    }
    let taken = core.with_runner(now, |runner, now_us, _| {
        runner.submit(by, now_us, submission)
    });
    core.settle(now);
    let mut result = taken;
    if let (Ok(id), Some(trouble)) = (&result, failing(&core).filter(|_| is_batch)) {
        let id = *id;
        let reason = "it could not be written down";
        let ended = core.with_runner(now, |runner, now_us, fabric| {
            let control = Principal::control();
            runner.cancel(&control, now_us, fabric, id, (15, Some(0)), reason)
        });
        core.settle(now);
        // One that has ended by itself in between is known.
        if ended.is_ok() {
            result = Err(SubmitError::NotStored(trouble));
        }
    }
    drop(core);
    api.shared.kick();
    result
}

/// How the job is to stand in the queue.
async fn terms(api: &Api, by: &Principal, request: &JobRequest) -> Result<Terms, Refusal> {
    if request.batch && request.stdin {
        return Err(Refusal::bad_request(
            "a batch job has no client that could send standard input; name a file as its input",
        ));
    }
    if !request.batch && (request.requeue || request.input.is_some()) {
        return Err(Refusal::bad_request(
            "only a batch job can be queued again, or have a file as its input",
        ));
    }
    if !request.batch && request.array.is_some() {
        return Err(Refusal::bad_request("only batch jobs are of an array"));
    }
    let mut known_ends = BTreeMap::new();
    for after in &request.after {
        let known = api.shared.lock().runner.get(after.job).is_ok();
        if known {
            continue;
        }
        let stored = api.shared.history.job(after.job).await;
        let stored = stored.map_err(past::unreadable)?;
        known_ends.extend(stored.map(|job| (job.id, job.state)));
    }
    let input = match &request.input {
        None => None,
        Some(text) => {
            let hash = programs::parse_hash(text)?;
            let file = api.shared.programs.find_for(by, &hash).await;
            Some(file.ok_or_else(|| programs::unknown_program(&hash))?)
        }
    };
    Ok(Terms {
        mounts: None,
        // Whoever hands it in.
        user: String::new(),
        identity: None,
        directory: request.directory.clone(),
        batch: request.batch,
        hold: request.hold,
        priority: request.priority,
        after: request.after.clone(),
        known_ends,
        requeue: request.requeue,
        input,
        output_files: Wanted::default(),
        array: request.array,
    })
}

/// Refuses a file that no node would run, before any is bothered.
fn check_program(name: &str, program: &Program) -> Result<(), Refusal> {
    let head_bytes = usize::try_from(kernel_core::loader::HEAD_BYTES).expect("two pages");
    let head = program
        .read_at(0, head_bytes)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "cache-failed", error))?;
    match kernel_core::loader::Image::parse(&head, program.bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "bad-program",
            format!("{name}: {error}"),
        )),
    }
}

fn decode(words: &[String]) -> Result<Vec<Vec<u8>>, Refusal> {
    let word = |text: &String| STANDARD.decode(text);
    words
        .iter()
        .map(word)
        .collect::<Result<_, _>>()
        .map_err(|error| {
            Refusal::bad_request(format!(
                "arguments and environment are sent in base64: {error}"
            ))
        })
}

/// Query of `GET /v1/jobs/ID/output`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// Of a batch job: `false` ends with what has been written so far.
    #[serde(default = "yes")]
    follow: bool,
    /// Of a job that goes on over a restart of the control node: for ranks the last `call` of their
    /// output that has arrived, as in `0:17,3:4`.
    received: Option<String>,
    /// Of a batch job: leave out so many frames from its beginning, those that came before a
    /// connection broke; pings are not counted.
    #[serde(default)]
    skip: u64,
    /// Of a batch job: begin with about the last so many bytes of what has been written, at least
    /// 1. A notice says how much was left out.
    last_bytes: Option<u64>,
}

impl OutputQuery {
    fn received(&self) -> Result<BTreeMap<u32, u64>, Refusal> {
        let entry = |entry: &str| {
            let (rank, call) = entry.split_once(':')?;
            Some((rank.parse().ok()?, call.parse().ok()?))
        };
        let text = self.received.as_deref().unwrap_or_default();
        let entries = text.split(',').filter(|text| !text.is_empty());
        let known: Option<BTreeMap<u32, u64>> = entries.map(entry).collect();
        known.ok_or_else(|| {
            Refusal::bad_request("received is a list of RANK:CALL, separated by commas")
        })
    }
}

fn yes() -> bool {
    true
}

/// What a job writes and what becomes of it: one frame a line until it has ended.
///
/// Reading takes the output, so it needs the token as a change does, and ending the request ends
/// the job. Not so for a batch job: its output is kept, and can be read any number of times, also
/// when it has ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/output", tag = "jobs", params(("id" = u64, Path, description = "Number of the job"), OutputQuery), responses((status = 200, body = Frame, content_type = "application/x-ndjson")))]
pub async fn output(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    Query(query): Query<OutputQuery>,
) -> Result<Response, Refusal> {
    let received = query.received()?;
    if query.last_bytes == Some(0) || (query.last_bytes.is_some() && query.skip > 0) {
        return Err(Refusal::bad_request(
            "last_bytes is at least 1, and skip does not go with it",
        ));
    }
    let attached = api.shared.with_runner(|runner, now_us, fabric| {
        runner.attach_behind(&by, now_us, fabric, id, received)
    });
    let reader = match attached {
        Ok(reader) => OutputReader::Live(reader),
        Err(error) => kept_output(&api, &by, error, id, &query).await?,
    };
    let stream = futures_util::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let (piece, more) = next_piece(&mut reader).await;
        // An empty last piece only ends the stream.
        Some((
            Ok::<_, std::convert::Infallible>(piece),
            more.then_some(reader),
        ))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(stream)).into_response())
}

/// A reader of what a batch job has written; `error` is why there is no live one.
async fn kept_output(
    api: &Api,
    by: &Principal,
    error: JobError,
    id: u64,
    query: &OutputQuery,
) -> Result<OutputReader, Refusal> {
    let job = past::find(api, id).await?;
    let access = by.access(id, &job.user)?;
    if !job.batch {
        return Err(job_refusal(error));
    }
    let (outputs, skip, last) = (api.shared.outputs.clone(), query.skip, query.last_bytes);
    // Finding the last bytes reads the file from its beginning.
    let found = blocking::run(move || {
        let mut reader = outputs.reader(&access)?;
        reader.skip(skip);
        let left_out = last.map_or(0, |bytes| reader.skip_to_last(bytes.min(LAST_BYTES_MAX)));
        Some((reader, left_out))
    });
    let (reader, left_out) = found.await.unzip();
    let left_out = left_out.unwrap_or(0);
    // A job that has written nothing has no file, which is not one that went.
    let is_silent = job
        .output
        .is_some_and(|output| output.bytes == 0 && output.dropped_bytes == 0);
    if reader.is_none() && !is_silent {
        let text = format!(
            "the output of job {id} is not kept any more; see jobs.output_total_bytes in `hearth config --show-defaults`"
        );
        return Err(Refusal::new(StatusCode::GONE, "output-gone", text));
    }
    Ok(OutputReader::Kept {
        left_out,
        reader,
        follow: query.follow,
        api: api.clone(),
        job: Some(id),
    })
}

/// Where output comes from.
enum OutputReader {
    /// The job itself.
    Live(SinkReader),
    /// What is kept of a batch job.
    Kept {
        /// Bytes at its beginning that are left out, until that has been told.
        left_out: u64,
        /// None: it has written nothing.
        reader: Option<KeptReader>,
        follow: bool,
        api: Api,
        /// The job, until its end has been told.
        job: Option<u64>,
    },
}

impl OutputReader {
    async fn next(&mut self) -> Option<Item> {
        let (reader, follow, api, job) = match self {
            OutputReader::Live(reader) => return reader.next().await,
            OutputReader::Kept { left_out, .. } if *left_out > 0 => {
                let bytes = std::mem::take(left_out);
                let text = format!("{bytes} bytes before this are left out");
                return Some(Item::Frame(Frame::Notice { text }));
            }
            OutputReader::Kept {
                reader,
                follow,
                api,
                job,
                ..
            } => (reader, *follow, api, job),
        };
        let item = match reader {
            Some(reader) if follow => reader.next().await,
            Some(reader) => reader.try_next(),
            None => None,
        };
        if item.is_some() {
            return item;
        }
        let job = past::find(api, job.take()?).await.ok()?;
        let over = job.state.is_final();
        let job = Box::new(job);
        over.then_some(Item::Frame(Frame::End { job }))
    }

    fn try_next(&mut self) -> Option<Item> {
        match self {
            OutputReader::Live(reader) => reader.try_next(),
            OutputReader::Kept { reader, .. } => reader.as_mut()?.try_next(),
        }
    }
}

/// The next lines, and whether more will follow.
async fn next_piece(reader: &mut OutputReader) -> (Bytes, bool) {
    let mut text = Vec::new();
    match tokio::time::timeout(PING_AFTER, reader.next()).await {
        Err(_) => write_line(&mut text, &Frame::Ping {}),
        Ok(None) => return (Bytes::new(), false),
        Ok(Some(item)) => {
            write_item(&mut text, item);
            while text.len() < PIECE_BYTES
                && let Some(item) = reader.try_next()
            {
                write_item(&mut text, item);
            }
        }
    }
    (Bytes::from(text), true)
}

fn write_item(text: &mut Vec<u8>, item: Item) {
    match item {
        Item::Output {
            rank,
            fd,
            data,
            call,
        } => {
            write_line(
                text,
                &Frame::Output {
                    rank,
                    fd,
                    data: STANDARD.encode(data),
                    call: (call > 0).then_some(call),
                },
            );
        }
        Item::Frame(frame) => write_line(text, &frame),
    }
}

fn write_line(text: &mut Vec<u8>, frame: &Frame) {
    serde_json::to_writer(&mut *text, frame).expect("a frame is plain data");
    text.push(b'\n');
}

/// Standard input of rank 0, as the body.
#[utoipa::path(post, path = "/v1/jobs/{id}/stdin", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = Size)))]
pub async fn stdin(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    body: Body,
) -> Result<Json<Size>, Refusal> {
    let mut writer = api
        .shared
        .with_runner(|runner, _, _| runner.stdin(&by, id))
        .map_err(job_refusal)?;
    let mut pieces = body.into_data_stream();
    let mut bytes: u64 = 0;
    while let Some(Ok(piece)) = pieces.next().await {
        bytes += piece.len() as u64;
        if !writer.write(piece).await {
            break;
        }
    }
    Ok(Json(Size { bytes }))
}

/// End a job with a signal.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), request_body = CancelRequest, responses((status = 200, body = Done)))]
pub async fn cancel(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    Json(request): Json<CancelRequest>,
) -> Result<Json<Done>, Refusal> {
    let signal = checked_signal(request.signal.unwrap_or(15))?;
    let grace_s = request.grace_s;
    if grace_s > Some(GRACE_MOST_S) {
        return Err(Refusal::bad_request(format!(
            "a grace has at most {GRACE_MOST_S} seconds"
        )));
    }
    let reason = request.reason.unwrap_or_else(|| "cancelled".to_string());
    if reason.len() > REASON_MAX {
        return Err(Refusal::bad_request(format!(
            "a reason has at most {REASON_MAX} bytes, this one {}",
            reason.len()
        )));
    }
    api.shared
        .with_runner(|runner, now_us, fabric| {
            runner.cancel(&by, now_us, fabric, id, (signal, grace_s), &reason)
        })
        .map_err(job_refusal)?;
    Ok(Json(Done {}))
}

/// Send a signal to all ranks of a job that runs.
#[utoipa::path(post, path = "/v1/jobs/{id}/signal", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), request_body = SignalRequest, responses((status = 200, body = Done)))]
pub async fn signal(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    Json(request): Json<SignalRequest>,
) -> Result<Json<Done>, Refusal> {
    let signal = checked_signal(request.signal)?;
    api.shared
        .with_runner(|runner, _, fabric| runner.signal(&by, fabric, id, signal))
        .map_err(job_refusal)?;
    Ok(Json(Done {}))
}

fn checked_signal(number: i32) -> Result<i32, Refusal> {
    match number {
        1..=signal::MAX => Ok(number),
        _ => Err(Refusal::bad_request(format!(
            "{number} is not a signal; use 1 to {}",
            signal::MAX
        ))),
    }
}

pub(super) fn job_refusal(error: JobError) -> Refusal {
    match error {
        JobError::Denied(denied) => denied.into(),
        JobError::Unknown(_) => Refusal::new(StatusCode::NOT_FOUND, "no-such-job", error),
        JobError::Ended(_) => Refusal::new(StatusCode::CONFLICT, "job-ended", error),
        JobError::Taken(_) => Refusal::new(StatusCode::CONFLICT, "stream-taken", error),
        JobError::Batch(_) => Refusal::new(StatusCode::CONFLICT, "batch-job", error),
        JobError::NotPending { .. } => Refusal::new(StatusCode::CONFLICT, "job-not-pending", error),
        JobError::NotRunning { .. } => Refusal::new(StatusCode::CONFLICT, "job-not-running", error),
        JobError::NotHeld(_) => Refusal::new(StatusCode::CONFLICT, "job-not-held", error),
    }
}
