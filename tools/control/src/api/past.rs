//! Jobs and events: the newest from memory, older ones from the store, in pages.
//!
//! Neighbours: `jobs::Runner` and `events::EventLog` (memory), `history::History` (the store).
//!
//! Invariants: an answer has a bound, in number and in bytes; the control state is held for a
//! bounded time; what the store cannot take or give at present is answered from memory as far as
//! that goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::queue::Wanted;
use super::types::JobInfo;
use super::{Api, Refusal, jobs};
use crate::events::Event;
use crate::history::{self, weight};
use crate::jobs::{JobError, record};
use crate::principal::{By, Principal};

/// Jobs or events in an answer when the request does not say.
const PAGE: u32 = 1_000;

/// Most jobs or events in an answer.
pub const PAGE_MAX: u32 = 10_000;

/// About the most bytes of jobs in an answer, by their weight.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Most jobs, and bytes of jobs, that are copied while others wait for the state.
const COPIES_MAX: usize = 1_000;
const COPIED_BYTES: usize = 4 * 1024 * 1024;

/// Query of `GET /v1/jobs`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct JobsQuery {
    /// Jobs that are over as well.
    #[serde(default)]
    all: bool,
    /// Of these, ones with a smaller number.
    before: Option<u64>,
    /// At most so many, the ones with the highest numbers.
    limit: Option<u32>,
    /// In one of these states, separated by commas.
    state: Option<String>,
    /// Of one of these users, separated by commas.
    user: Option<String>,
    /// With one of these names, separated by commas.
    name: Option<String>,
    /// Those of whoever asks.
    #[serde(default)]
    mine: bool,
    /// Not over before this, in microseconds since 1970.
    since_unix_us: Option<u64>,
    /// Submitted before this, in microseconds since 1970.
    until_unix_us: Option<u64>,
    /// Without what each rank did.
    #[serde(default)]
    brief: bool,
}

/// Jobs, by number; without `all` every job that is not over.
///
/// An answer ends with the jobs of the highest numbers at some 16 MB of them, also before `limit`:
/// what is missing has smaller numbers than the first of them, and is asked for with `before`,
/// until an answer is empty. `brief` has more fit. With `all` the token is needed as for a change.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobsQuery), responses((status = 200, body = Vec<JobInfo>)))]
pub async fn jobs(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Vec<JobInfo>>, Refusal> {
    let (state, user, name) = (&query.state, &query.user, &query.name);
    let wanted = Wanted::new(state.as_deref(), user.as_deref(), name.as_deref())?;
    let filter = Filter {
        wanted: wanted.of(&by, query.mine),
        since: query.since_unix_us,
        until: query.until_unix_us,
        brief: query.brief,
    };
    let limit = match query.all {
        true => query.limit.unwrap_or(PAGE).min(PAGE_MAX),
        false => query.limit.unwrap_or(u32::MAX),
    };
    let before = query.before.unwrap_or(u64::MAX);
    let filter = Arc::new(filter);
    let mut list = newest(&api, query.all, before, limit as usize, &filter).await;
    for job in &mut list {
        withhold(&by, job);
    }
    Ok(Json(list))
}

/// Which jobs are wanted, and what of them.
#[derive(Debug)]
struct Filter {
    wanted: Wanted,
    since: Option<u64>,
    until: Option<u64>,
    brief: bool,
}

impl Filter {
    fn has(&self, job: &JobInfo) -> bool {
        let ended = job.ended_unix_us;
        self.wanted.has(job)
            && self
                .since
                .is_none_or(|since| ended.is_none_or(|ended| ended >= since))
            && self.until.is_none_or(|until| job.submitted_unix_us < until)
    }

    /// What is wanted of a job that was read.
    fn of(&self, mut job: JobInfo) -> Option<JobInfo> {
        if self.brief {
            job.ranks = Vec::new();
        }
        self.has(&job).then_some(job)
    }
}

/// The jobs with the highest numbers below `before` that are wanted, page by page of what is known;
/// by number. At most `limit`, and no more than [`ANSWER_BYTES`] of them.
async fn newest(
    api: &Api,
    all: bool,
    mut before: u64,
    limit: usize,
    filter: &Arc<Filter>,
) -> Vec<JobInfo> {
    let mut found: Vec<JobInfo> = Vec::new();
    let mut left = ANSWER_BYTES;
    while before > 0 && found.len() < limit && left > 0 {
        // A page of the past weighs no more than what is left of the answer.
        let page = page(api, all, before, left, filter).await;
        before = page.floor;
        for job in page.jobs.into_values().rev().flatten() {
            let weighs = weight(&job);
            if found.len() == limit || (weighs > left && !found.is_empty()) {
                before = 0;
                break;
            }
            left = left.saturating_sub(weighs);
            found.push(job);
        }
    }
    found.reverse();
    found
}

/// A part of the list of all jobs.
struct Page {
    /// By number; nothing of those that are not wanted.
    jobs: BTreeMap<u64, Option<JobInfo>>,
    /// All that are known with this number or a higher one are here.
    floor: u64,
}

/// What there is below `before`, as far as one query and one look into memory go.
async fn page(api: &Api, all: bool, before: u64, bytes: usize, filter: &Arc<Filter>) -> Page {
    let past = match all {
        false => Ok(history::Jobs::default()),
        true => {
            let filter = filter.clone();
            let wanted = move |job| filter.of(job);
            let rows = PAGE as usize;
            api.shared.history.jobs(before, rows, bytes, wanted).await
        }
    };
    let past = past.unwrap_or_else(|error| {
        tracing::warn!("{error}; jobs are listed from memory");
        history::Jobs::default()
    });
    let last = past.jobs.last().map(|(id, _)| *id);
    let mut floor = last.filter(|_| past.more).unwrap_or(0);
    let mut jobs: BTreeMap<u64, Option<JobInfo>> = past.jobs.into_iter().collect();
    // Memory knows better about jobs that are not written down yet, and later than the answer of
    // the store.
    let mut core = api.shared.lock();
    let (mut weighs, mut looked_at) = (0, 0);
    for job in core.runner.below(before, all) {
        // Others wait for the lock: what is copied under it has a bound, and the rest is another
        // page's.
        if job.id < floor || looked_at == COPIES_MAX || weighs > bytes.min(COPIED_BYTES) {
            floor = floor.max(job.id + 1);
            break;
        }
        looked_at += 1;
        let copy = filter.has(job).then(|| match filter.brief {
            true => job.without_ranks(),
            false => job.clone(),
        });
        weighs += copy.as_ref().map_or(0, weight);
        jobs.insert(job.id, copy);
    }
    drop(core);
    let jobs = jobs.split_off(&floor);
    Page { jobs, floor }
}

/// One job, of the present or the past.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), responses((status = 200, body = JobInfo)))]
pub async fn job(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
) -> Result<Json<JobInfo>, Refusal> {
    let mut job = find(&api, id).await?;
    withhold(&by, &mut job);
    Ok(Json(job))
}

/// Leaves what everybody may know: what is in a program's registers is as much its user's as what
/// it writes, and command lines are for those who have a name.
fn withhold(by: &Principal, job: &mut JobInfo) {
    if by.access(job.id, &job.user).is_ok() {
        return;
    }
    if by.name.is_empty() {
        // Everybody on the machine may ask without a name, also who may not use the cluster.
        job.command.clear();
        job.directory.clear();
    }
    let faults = job.ranks.iter_mut().filter_map(|rank| rank.fault.as_mut());
    for fault in faults {
        fault.truncate(record::first_line(fault).len());
    }
}

/// A job of the present or the past.
pub(super) async fn find(api: &Api, id: u64) -> Result<JobInfo, Refusal> {
    let known = api.shared.lock().runner.get(id);
    if let Ok(job) = known {
        return Ok(job);
    }
    let stored = api.shared.history.job(id).await.map_err(unreadable)?;
    stored.ok_or_else(|| jobs::job_refusal(JobError::Unknown(id)))
}

/// Query of `GET /v1/events`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only events with a larger number.
    #[serde(default)]
    after: u64,
    /// At most so many, the oldest of these, from as far back as the store goes. Without a limit
    /// and a number: what memory holds.
    limit: Option<u32>,
}

/// What happened to nodes and jobs, by number.
#[utoipa::path(get, path = "/v1/events", tag = "control", params(EventsQuery), responses((status = 200, body = Vec<Event>)))]
pub async fn events(
    State(api): State<Api>,
    Query(query): Query<EventsQuery>,
) -> Result<Json<Vec<Event>>, Refusal> {
    let (oldest, recent) = {
        let core = api.shared.lock();
        let recent: Vec<Event> = core.events.since(query.after).cloned().collect();
        (core.events.oldest_seq(), recent)
    };
    let limit = query.limit.unwrap_or(PAGE).min(PAGE_MAX);
    let in_memory = query.after.saturating_add(1) >= oldest;
    let mut list = recent;
    if !in_memory && (query.limit.is_some() || query.after > 0) {
        let stored = api.shared.history.events(query.after, limit).await;
        let mut stored = stored.map_err(unreadable)?;
        let last = stored.last().map_or(query.after, |event| event.seq);
        // The rest is in memory, or else in the next page.
        if stored.len() < limit as usize || last.saturating_add(1) >= oldest {
            stored.extend(list.into_iter().filter(|event| event.seq > last));
        }
        list = stored;
    }
    if query.limit.is_some() {
        list.truncate(limit as usize);
    }
    Ok(Json(list))
}

pub(super) fn unreadable(error: history::HistoryError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", error)
}
