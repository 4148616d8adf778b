//! Casts over HTTP: beginning, watching, cancelling them; the files that nodes hold, and letting go
//! of them.
//!
//! Neighbours: `crate::casts` (does it), `api::warm` (commands to nodes to let go of something).
//!
//! Invariant: hashing happens outside the lock, on a thread that may wait for the disk.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::types::{
    CastAccepted, CastCancelRequest, CastCancelled, CastInfo, CastRequest, CastsInfo, DropAnswer,
    DropOutcome, DroppedOn, FileDropRequest, FileInfo, WithFile,
};
use super::{Api, Refusal, programs, warm};
use crate::casts::cast::{Asker, What};
use crate::casts::files::Named;
use crate::casts::for_jobs::JobFile;
use crate::casts::shelf::Content;
use crate::casts::{NotUnderWay, Order, Refused};
use crate::config::LinkRate;
use crate::control::Core;
use crate::principal::{By, Denied, Principal};
use crate::programs::{Hash, Program};
use crate::{hosted, hostlist, secrets};

/// Longest time that `GET /v1/casts/ID` waits for news.
const WAIT_MAX_MS: u64 = 10_000;

/// So long a cast waits for nodes that are about to be heard again after a restart of control: most
/// are within seconds, and the others are as good as gone.
const AWAITED_LIMIT: Duration = Duration::from_secs(20);

/// Most often that it tells news, so that a cast to thousands of nodes is not told node by node.
const NEWS_PERIOD: Duration = Duration::from_millis(20);

/// Files that nodes hold, casts under way and the last that have ended.
#[utoipa::path(get, path = "/v1/casts", tag = "casts", responses((status = 200, body = CastsInfo)))]
pub async fn list(State(api): State<Api>) -> Json<CastsInfo> {
    let core = api.shared.lock();
    // A file that is on its way to its first nodes is a cast alone.
    let files = core.casts.files.iter().filter_map(|file| {
        let nodes: Vec<u32> = core.casts.files.holders(&file.object).into_iter().collect();
        let away: Vec<u32> = core.casts.files.away(&file.object).into_iter().collect();
        let is_there = !(nodes.is_empty() && away.is_empty());
        is_there.then(|| FileInfo {
            name: file.name,
            object: secrets::encode_hex(&file.object),
            bytes: file.bytes,
            nodes: hostlist::format(&nodes),
            nodes_total: nodes.len(),
            nodes_away: hostlist::format(&away),
            cast_unix_us: file.cast_unix_us,
        })
    });
    let files = files.collect();
    let mut casts = core.casts.list(api.shared.now());
    casts.iter_mut().for_each(|cast| say_why(&core, cast));
    Json(CastsInfo { files, casts })
}

/// Says why nodes are out of service that a cast waits for.
fn say_why(core: &Core, cast: &mut CastInfo) {
    let absent = hostlist::parse(&cast.nodes_absent).unwrap_or_default();
    cast.absent_why = core.runner.why_absent(absent.into_iter());
}

/// What may stand behind `GET /v1/casts/ID`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// Wait for news at most so long, unless the cast is over.
    #[serde(default)]
    wait_ms: u64,
    /// The request whose nodes alone are meant, as `POST /v1/casts` gave it: others may have joined
    /// the cast, and wait for other nodes. What was sent is still that of the whole cast.
    request: Option<u64>,
}

/// One cast; waits for news if asked to.
#[utoipa::path(get, path = "/v1/casts/{id}", tag = "casts", params(("id" = u64, Path, description = "Number of the cast"), WaitQuery), responses((status = 200, body = CastInfo)))]
pub async fn get(
    State(api): State<Api>,
    Path(id): Path<u64>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<CastInfo>, Refusal> {
    let mut news = api.shared.lock().casts.watch();
    let asker = query.request.map(Asker::Request);
    let look = || {
        let core = api.shared.lock();
        let mut found = core.casts.get(api.shared.now(), id, asker);
        found.iter_mut().for_each(|cast| say_why(&core, cast));
        found.ok_or_else(|| refuse_unknown(NotUnderWay::Unknown(id)))
    };
    let first = look()?;
    if first.state.is_final() || query.wait_ms == 0 {
        return Ok(Json(first));
    }
    let limit = Duration::from_millis(query.wait_ms.min(WAIT_MAX_MS));
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        // Fails when control ends, which the client notices by itself.
        let changed = tokio::time::timeout_at(deadline, news.changed()).await;
        let now = look()?;
        let told = |cast: &CastInfo| (cast.state, cast.done, cast.failed.len(), cast.bytes_sent);
        let still = !matches!(changed, Ok(Ok(())));
        if now.state.is_final() || still {
            return Ok(Json(now));
        }
        if told(&now) != told(&first) {
            let soon = deadline.min(tokio::time::Instant::now() + NEWS_PERIOD);
            tokio::time::sleep_until(soon).await;
            return Ok(Json(look()?));
        }
    }
}

/// Begin to cast a file to nodes.
///
/// The file must have been PUT before, as a program is.
#[utoipa::path(post, path = "/v1/casts", tag = "casts", request_body = CastRequest, responses((status = 200, body = CastAccepted)))]
pub async fn begin(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<CastRequest>,
) -> Result<Json<CastAccepted>, Refusal> {
    hosted::check_name(&request.name).map_err(|error| refuse(Refused::BadName(error)))?;
    let hash = programs::parse_hash(&request.object)?;
    by.operator()?;
    let file = api.shared.programs.find_for(&by, &hash).await;
    let file = file.ok_or_else(|| programs::unknown_program(&hash))?;
    let named = api.nodes_if(request.nodes.as_deref())?;
    let described = describe(&request.name, &file).await?;
    if !request.wait {
        awaited_are_back(&api, named.as_deref()).await;
    }
    let now = api.shared.now();
    let begun = {
        let mut core = api.shared.lock();
        let nodes = match named {
            Some(named) => named,
            None => core.casts.nodes_up(),
        };
        let awaited = awaited(&core, None);
        if nodes.is_empty() && !awaited.is_empty() {
            return Err(refuse_awaited(&core, awaited));
        }
        let unknown: Vec<u32> = nodes
            .iter()
            .copied()
            .filter(|node| !request.wait && !core.runner.knows(*node))
            .collect();
        if !unknown.is_empty() {
            return Err(refuse_nodes(unknown));
        }
        let number = core.casts.next_request();
        let order = Order {
            what: What::File {
                name: request.name,
                job: None,
            },
            described,
            content: Content::Cached(file),
            holders: core.casts.files.holders(&hash),
            nodes,
            asker: Asker::Request(number),
            patient: request.wait,
            scheme: request.scheme,
            rate: request.rate.map(LinkRate::bytes_per_second),
        };
        let begun = core.casts.begin(now, order);
        if begun.is_ok() {
            core.casts.files.share(&hash);
        }
        core.settle(now);
        begun.map(|id| CastAccepted {
            id,
            request: number,
        })
    };
    api.shared.kick();
    begun.map(Json).map_err(refuse)
}

/// Nodes, of all or of those named, that were in service when control was started again and have
/// not been heard since.
fn awaited(core: &Core, named: Option<&[u32]>) -> Vec<u32> {
    let all = || core.known_nodes();
    let wanted = named.map_or_else(all, <[u32]>::to_vec);
    let is_awaited = |node: &u32| core.runner.awaits(*node);
    wanted.into_iter().filter(is_awaited).collect()
}

/// Waits until no such node is left, or [`AWAITED_LIMIT`].
async fn awaited_are_back(api: &Api, named: Option<&[u32]>) {
    let mut news = api.shared.lock().casts.watch();
    let deadline = tokio::time::Instant::now() + AWAITED_LIMIT;
    while !awaited(&api.shared.lock(), named).is_empty() {
        // A node that joins is news. That control ends is noticed by the client.
        let changed = tokio::time::timeout_at(deadline, news.changed()).await;
        if !matches!(changed, Ok(Ok(()))) {
            return;
        }
    }
}

fn refuse_awaited(core: &Core, awaited: Vec<u32>) -> Refusal {
    let why = core.runner.why_absent(awaited.into_iter());
    let text = format!(
        "no node is in service yet: {why}; try again in a moment, or name nodes with --nodes and wait for them with --wait"
    );
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "nodes-not-up", text)
}

/// End a cast, or take one request for it back; nodes that did not hold the file before let go of
/// it.
#[utoipa::path(post, path = "/v1/casts/{id}/cancel", tag = "casts", params(("id" = u64, Path, description = "Number of the cast")), request_body = CastCancelRequest, responses((status = 200, body = CastCancelled)))]
pub async fn cancel(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    Json(request): Json<CastCancelRequest>,
) -> Result<Json<CastCancelled>, Refusal> {
    by.operator()?;
    let why = request.reason.unwrap_or_else(|| "cancelled".to_string());
    let now = api.shared.now();
    let cancelled = {
        let mut core = api.shared.lock();
        let cancelled = match request.request.map(Asker::Request) {
            Some(asker) => core.casts.withdraw(now, id, asker, &why),
            None => core.casts.cancel(now, id, &why).map(|()| false),
        };
        core.settle(now);
        cancelled
    };
    api.shared.kick();
    let answer = cancelled.map(|goes_on| Json(CastCancelled { goes_on }));
    answer.map_err(refuse_unknown)
}

/// Have nodes let go of a file; waits for their answers.
#[utoipa::path(post, path = "/v1/casts/drop", tag = "casts", request_body = FileDropRequest, responses((status = 200, body = DropAnswer)))]
pub async fn drop_file(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<FileDropRequest>,
) -> Result<Json<DropAnswer>, Refusal> {
    let operator = by.operator()?;
    let named = api.nodes_if(request.nodes.as_deref())?;
    let file = {
        let core = api.shared.lock();
        find(core.casts.files.iter(), &request.file)?
    };
    let nodes = {
        let core = api.shared.lock();
        let unknown: Vec<u32> = named
            .iter()
            .flatten()
            .copied()
            .filter(|node| !core.runner.knows(*node))
            .collect();
        if !unknown.is_empty() {
            return Err(refuse_nodes(unknown));
        }
        named.unwrap_or_else(|| {
            let files = &core.casts.files;
            let holders = files.holders(&file.object).into_iter();
            holders.chain(files.away(&file.object)).collect()
        })
    };
    let asked = nodes.clone();
    let nodes = warm::drop_on(&api, &operator, nodes, (file.object, &file.name)).await;
    let sure = |node: &DroppedOn| node.outcome.is_certain() || node.outcome == DropOutcome::Away;
    if nodes.iter().all(sure) {
        api.shared.lock().casts.let_go_by(&file.object, &asked);
        api.shared.kick();
    }
    Ok(Json(DropAnswer {
        program: Some(secrets::encode_hex(&file.object)),
        name: Some(file.name),
        nodes,
    }))
}

/// The file meant by `text`: its name, its id, or the beginning of its id.
fn find(files: impl Iterator<Item = Named>, text: &str) -> Result<Named, Refusal> {
    let files: Vec<Named> = files.collect();
    if let Some(file) = files.iter().find(|file| file.name == text) {
        return Ok(file.clone());
    }
    let mut found: BTreeMap<Hash, &Named> = BTreeMap::new();
    if text.len() >= warm::PREFIX_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let prefix = text.to_ascii_lowercase();
        for file in &files {
            if secrets::encode_hex(&file.object).starts_with(&prefix) {
                found.insert(file.object, file);
            }
        }
    }
    match found.into_values().collect::<Vec<_>>()[..] {
        [file] => Ok(file.clone()),
        [] => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no-such-file",
            format!(
                "{text}: no such file, and no cast file has that name; `hearth casts` lists cast files"
            ),
        )),
        _ => Err(Refusal::new(
            StatusCode::CONFLICT,
            "ambiguous-file",
            format!("{text:?} can mean several files; give more of the id, or a name"),
        )),
    }
}

/// The files that a job is to find under `/with`.
pub async fn job_files(
    api: &Api,
    by: &Principal,
    with: &[WithFile],
) -> Result<Vec<JobFile>, Refusal> {
    let mut files = Vec::with_capacity(with.len());
    for file in with {
        hosted::check_name(&file.name).map_err(|error| refuse(Refused::BadName(error)))?;
        let object = file
            .object
            .as_deref()
            .map(programs::parse_hash)
            .transpose()?;
        let known = {
            let core = api.shared.lock();
            let mut known = core.casts.files.iter();
            match object {
                Some(object) => known.find(|known| known.object == object),
                None => Some(find(known, &file.name)?),
            }
        };
        let is_named = object.is_none();
        let object = object
            .or(known.as_ref().map(|known| known.object))
            .expect("given, or found by name");
        let is_shared = known.as_ref().is_some_and(|known| known.shared);
        if !is_shared && !api.shared.programs.is_theirs(by, &object) {
            return Err(match is_named {
                true => Denied::NotYourFile(file.name.clone()).into(),
                // Whoever has it sends it.
                false => programs::unknown_program(&object),
            });
        }
        let content = api.shared.programs.find(&object).await;
        let held = known.filter(|known| {
            !api.shared
                .lock()
                .casts
                .files
                .holders(&known.object)
                .is_empty()
        });
        let bytes = match (&content, held) {
            (Some(content), _) => content.bytes(),
            (None, Some(held)) => held.bytes,
            (None, None) => return Err(programs::unknown_program(&object)),
        };
        if let Some(content) = &content {
            describe(&file.name, content).await?;
        }
        files.push(JobFile {
            name: file.name.clone(),
            object,
            bytes,
            content,
        });
    }
    Ok(files)
}

/// The hashes of a file's blocks.
pub async fn describe(
    name: &str,
    file: &Program,
) -> Result<std::sync::Arc<crate::casts::object::Described>, Refusal> {
    if let Some(described) = file.described() {
        return Ok(described);
    }
    let file = file.clone();
    let described = crate::blocking::run(move || file.describe()).await;
    described.map_err(|error| {
        let text = format!("{name} cannot be cast: {error}");
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "cannot-cast", text)
    })
}

fn refuse(refused: Refused) -> Refusal {
    let (status, code) = match &refused {
        Refused::BadName(_) => (StatusCode::BAD_REQUEST, "bad-name"),
        Refused::NameTaken { .. } => (StatusCode::CONFLICT, "name-taken"),
        Refused::OtherTerms { .. } => (StatusCode::CONFLICT, "cast-otherwise"),
        Refused::NotUp(_) | Refused::NoNodes => (StatusCode::UNPROCESSABLE_ENTITY, "nodes-not-up"),
        Refused::TooLarge { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "too-large"),
        Refused::TooMany(_) | Refused::TooManyAskers(..) | Refused::TooManyNames => {
            (StatusCode::SERVICE_UNAVAILABLE, "too-many-casts")
        }
        Refused::Protocol(_) => (StatusCode::UNPROCESSABLE_ENTITY, "cannot-cast"),
    };
    Refusal::new(status, code, refused)
}

fn refuse_unknown(error: NotUnderWay) -> Refusal {
    match error {
        NotUnderWay::Unknown(_) => Refusal::new(StatusCode::NOT_FOUND, "no-such-cast", error),
        NotUnderWay::Ended(_) => Refusal::new(StatusCode::CONFLICT, "cast-ended", error),
    }
}

fn refuse_nodes(mut unknown: Vec<u32>) -> Refusal {
    unknown.sort_unstable();
    let error = format!(
        "unknown nodes: {}; `hearth nodes` lists the nodes",
        hostlist::format(&unknown)
    );
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "no-such-nodes", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_name_and_by_the_beginning_of_its_id() {
        let file = |name: &str, first: u8, last: u8| {
            let mut object = [first; 32];
            object[31] = last;
            Named {
                name: name.to_string(),
                object,
                bytes: 1,
                cast_unix_us: 0,
                shared: true,
            }
        };
        let files = || {
            [
                file("data", 0xab, 1),
                file("alias", 0xab, 1),
                file("abab", 0xcd, 1),
                file("x", 0xcd, 2),
            ]
            .into_iter()
        };
        let found = |text| find(files(), text).map(|file| file.name);
        assert_eq!(found("data").unwrap(), "data");
        assert_eq!(found("abab").unwrap(), "abab", "a name comes before an id");
        assert!(["data", "alias"].contains(&&found("ababa").unwrap()[..]));
        assert_eq!(found("cdcd").unwrap_err().code(), "ambiguous-file");
        for unknown in ["", "dat", "abc", "ffff"] {
            assert_eq!(found(unknown).unwrap_err().code(), "no-such-file");
        }
    }
}
