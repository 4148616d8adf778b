//! Jobs and events: the newest from memory, older ones from the store, in pages.
//!
//! Neighbours: `jobs::Runner` and `events::EventLog` (memory), `history::History` (the store).
//!
//! Invariants: an answer has a bound; what the store cannot take or give at present is answered
//! from memory as far as that goes.

use std::collections::BTreeMap;

use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::queue::Wanted;
use super::types::JobInfo;
use super::{Api, Refusal, jobs};
use crate::events::Event;
use crate::jobs::JobError;

/// Jobs or events in an answer when the request does not say.
const PAGE: u32 = 1_000;

/// Most jobs or events in an answer.
pub const PAGE_MAX: u32 = 10_000;

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
    /// Not over before this, in microseconds since 1970.
    since_unix_us: Option<u64>,
    /// Submitted before this, in microseconds since 1970.
    until_unix_us: Option<u64>,
    /// Without what each rank did.
    #[serde(default)]
    brief: bool,
}

/// Jobs, by number; without `all` every job that is not over.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobsQuery), responses((status = 200, body = Vec<JobInfo>)))]
pub async fn jobs(
    State(api): State<Api>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Vec<JobInfo>>, Refusal> {
    let (state, user, name) = (&query.state, &query.user, &query.name);
    let wanted = Wanted::new(state.as_deref(), user.as_deref(), name.as_deref())?;
    let (since, until) = (query.since_unix_us, query.until_unix_us);
    let has = |job: &JobInfo| {
        let ended = job.ended_unix_us;
        wanted.has(job)
            && since.is_none_or(|since| ended.is_none_or(|ended| ended >= since))
            && until.is_none_or(|until| job.submitted_unix_us < until)
    };
    let mut list: Vec<JobInfo> = match query.all {
        false => {
            let core = api.shared.lock();
            core.runner.jobs().filter(|job| has(job)).cloned().collect()
        }
        true => newest(&api, &query, has).await,
    };
    if query.brief {
        list.iter_mut().for_each(|job| job.ranks.clear());
    }
    Ok(Json(list))
}

/// The jobs with the highest numbers that `has` lets through, page by page of what is known; by number.
async fn newest(api: &Api, query: &JobsQuery, has: impl Fn(&JobInfo) -> bool) -> Vec<JobInfo> {
    let limit = query.limit.unwrap_or(PAGE).min(PAGE_MAX) as usize;
    let mut before = query.before.unwrap_or(u64::MAX);
    let mut found: Vec<JobInfo> = Vec::new();
    let size = PAGE.max(query.limit.unwrap_or(PAGE)).min(PAGE_MAX);
    while found.len() < limit {
        // Without filters the first page is the answer; with them few of a page may be wanted.
        let page = page(api, before, size, &has).await;
        let Some((first, _)) = page.first_key_value() else {
            break;
        };
        before = *first;
        let wanted = page.into_values().rev().flatten();
        found.extend(wanted.take(limit - found.len()));
    }
    found.reverse();
    found
}

/// At most `limit` jobs with numbers below `before`, the highest ones; by number, and nothing of those that `has`
/// does not let through.
async fn page(
    api: &Api,
    before: u64,
    limit: u32,
    has: &impl Fn(&JobInfo) -> bool,
) -> BTreeMap<u64, Option<JobInfo>> {
    let stored = api.shared.history.jobs(before, limit).await;
    let stored = stored.unwrap_or_else(|error| {
        tracing::warn!("{error}; jobs are listed from memory");
        Vec::new()
    });
    // Memory knows better about jobs that are not written down yet, and later than the answer of
    // the store.
    let stored = stored.into_iter();
    let mut list: BTreeMap<u64, Option<JobInfo>> =
        stored.map(|job| (job.id, Some(job).filter(has))).collect();
    {
        // Copied under the lock is what is wanted of this page, and no more.
        let core = api.shared.lock();
        for job in core.runner.highest(before, limit as usize) {
            list.insert(job.id, has(job).then(|| job.clone()));
        }
    }
    while list.len() > limit as usize {
        list.pop_first();
    }
    list
}

/// One job, of the present or the past.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), responses((status = 200, body = JobInfo)))]
pub async fn job(State(api): State<Api>, Path(id): Path<u64>) -> Result<Json<JobInfo>, Refusal> {
    find(&api, id).await.map(Json)
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

pub(super) fn unreadable(error: hearth_store::StoreError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", error)
}
