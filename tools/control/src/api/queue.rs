//! The queue: its jobs, and what changes their places; nodes that get no more jobs.
//!
//! Neighbours: `jobs::Runner` (has the queue), `past` (jobs that are over).
//!
//! Invariant: an answer has a bound, which is the queue's own.

use std::collections::HashMap;

use axum::Extension;
use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::jobs::job_refusal;
use super::types::{
    Done, DrainRequest, JobInfo, JobState, PriorityRequest, QueuedJob, ResumeRequest,
};
use super::{Api, Refusal};
use crate::jobs::{JobError, NodeError, Runner};
use crate::principal::{By, Principal};

/// Which jobs are wanted; what is absent does not matter.
#[derive(Debug, Default, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct QueueQuery {
    /// In one of these states: pending, starting, running or ending, separated by commas.
    state: Option<String>,
    /// Of one of these users, separated by commas.
    user: Option<String>,
    /// With one of these names, separated by commas.
    name: Option<String>,
    /// Those of whoever asks.
    #[serde(default)]
    mine: bool,
}

/// Jobs by what people name them by.
#[derive(Debug, Default)]
pub struct Wanted {
    states: Vec<JobState>,
    users: Vec<String>,
    names: Vec<String>,
}

impl Wanted {
    /// Reads lists separated by commas.
    ///
    /// # Errors
    /// A word that is no state.
    pub fn new(
        state: Option<&str>,
        user: Option<&str>,
        name: Option<&str>,
    ) -> Result<Self, Refusal> {
        let words = |list: Option<&str>| -> Vec<String> {
            let words = list.into_iter().flat_map(|list| list.split(','));
            words.map(|word| word.trim().to_string()).collect()
        };
        let states = words(state);
        let states = states.iter().map(|word| state_of(word));
        Ok(Wanted {
            states: states.collect::<Result<_, _>>()?,
            users: words(user),
            names: words(name),
        })
    }

    /// Of these, the jobs of one user; `mine`: whether that is wanted.
    pub fn of(mut self, by: &Principal, mine: bool) -> Self {
        if mine {
            self.users = vec![by.name.clone()];
        }
        self
    }

    /// Whether a job is one of them.
    pub fn has(&self, job: &JobInfo) -> bool {
        (self.states.is_empty() || self.states.contains(&job.state))
            && (self.users.is_empty() || self.users.contains(&job.user))
            && (self.names.is_empty() || self.names.contains(&job.name))
    }
}

/// Slurm's words for states that have others here.
const SLURM: [(&str, JobState); 4] = [
    ("configuring", JobState::Starting),
    ("completing", JobState::Ending),
    ("timeout", JobState::TimeLimit),
    ("node-fail", JobState::NodeLost),
];

/// The state that a word means, which may be Slurm's, or short.
fn state_of(word: &str) -> Result<JobState, Refusal> {
    let lower = word.to_ascii_lowercase().replace('_', "-");
    let mut all = JobState::ALL.into_iter();
    let found = all.find(|state| state.word() == lower || state.short() == word);
    let slurms = || SLURM.into_iter().find(|(known, _)| *known == lower);
    found.or_else(|| Some(slurms()?.1)).ok_or_else(|| {
        let words: Vec<&str> = JobState::ALL.iter().map(|state| state.word()).collect();
        Refusal::bad_request(format!(
            "{word:?} is not a state of a job; states are {}",
            words.join(", ")
        ))
    })
}

/// Jobs that are not over: pending ones in the order of the queue, then the others by number.
#[utoipa::path(get, path = "/v1/queue", tag = "jobs", params(QueueQuery), responses((status = 200, body = Vec<QueuedJob>)))]
pub async fn list(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Query(query): Query<QueueQuery>,
) -> Result<Json<Vec<QueuedJob>>, Refusal> {
    let (state, user, name) = (&query.state, &query.user, &query.name);
    let wanted = Wanted::new(state.as_deref(), user.as_deref(), name.as_deref())?;
    let wanted = wanted.of(&by, query.mine);
    let core = api.shared.lock();
    let runner = &core.runner;
    let order = runner.queue_order();
    let places: HashMap<u64, usize> = order.into_iter().zip(0..).collect();
    let place = |job: &QueuedJob| {
        let pending = job.state == JobState::Pending;
        let place = places.get(&job.id).copied().filter(|_| pending);
        (!pending, place.unwrap_or(usize::MAX), job.id)
    };
    let jobs = runner.jobs().filter(|job| wanted.has(job));
    let mut jobs: Vec<QueuedJob> = jobs.map(QueuedJob::from).collect();
    drop(core);
    jobs.sort_by_cached_key(place);
    Ok(Json(jobs))
}

/// Keep a pending job from starting.
#[utoipa::path(post, path = "/v1/jobs/{id}/hold", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), responses((status = 200, body = Done)))]
pub async fn hold(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
) -> Result<Json<Done>, Refusal> {
    change(&api, |runner| runner.hold(&by, id))
}

/// Let a held job start.
#[utoipa::path(post, path = "/v1/jobs/{id}/release", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), responses((status = 200, body = Done)))]
pub async fn release(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
) -> Result<Json<Done>, Refusal> {
    change(&api, |runner| runner.release(&by, id))
}

/// Give a pending job another priority.
#[utoipa::path(post, path = "/v1/jobs/{id}/priority", tag = "jobs", params(("id" = u64, Path, description = "Number of the job")), request_body = PriorityRequest, responses((status = 200, body = Done)))]
pub async fn priority(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
    Json(request): Json<PriorityRequest>,
) -> Result<Json<Done>, Refusal> {
    change(&api, |runner| {
        runner.set_priority(&by, id, request.priority)
    })
}

fn change(
    api: &Api,
    change: impl FnOnce(&mut Runner) -> Result<(), JobError>,
) -> Result<Json<Done>, Refusal> {
    let changed = api.shared.with_runner(|runner, _, _| change(runner));
    changed.map(|()| Json(Done {})).map_err(job_refusal)
}

/// Give nodes no more jobs; what runs there goes on.
#[utoipa::path(post, path = "/v1/nodes/drain", tag = "nodes", request_body = DrainRequest, responses((status = 200, body = Done)))]
pub async fn drain(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<DrainRequest>,
) -> Result<Json<Done>, Refusal> {
    let nodes = api.nodes(&request.nodes)?;
    by.claims(&request.by)?;
    let shared = &api.shared;
    let drained = shared.with_runner(|runner, _, _| runner.drain(&by, &nodes, &request.reason));
    drained.map(|()| Json(Done {})).map_err(node_refusal)
}

/// Give drained nodes jobs again.
#[utoipa::path(post, path = "/v1/nodes/resume", tag = "nodes", request_body = ResumeRequest, responses((status = 200, body = Done)))]
pub async fn resume(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<ResumeRequest>,
) -> Result<Json<Done>, Refusal> {
    let nodes = api.nodes(&request.nodes)?;
    let shared = &api.shared;
    let resumed = shared.with_runner(|runner, _, _| runner.resume(&by, &nodes));
    resumed.map(|()| Json(Done {})).map_err(node_refusal)
}

pub(super) fn node_refusal(error: NodeError) -> Refusal {
    match error {
        NodeError::Denied(denied) => denied.into(),
        NodeError::Unknown(_) => {
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "no-such-nodes", error)
        }
        NodeError::NotDrained(_) => Refusal::new(StatusCode::CONFLICT, "not-drained", error),
        error => Refusal::bad_request(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_chosen_by_state_user_and_name() {
        let job = JobInfo {
            user: "eva".into(),
            name: "solve".into(),
            state: JobState::Running,
            ..JobInfo::default()
        };
        let has = |state, user, name| Wanted::new(state, user, name).unwrap().has(&job);
        assert!(has(None, None, None));
        assert!(has(
            Some("pending,running"),
            Some("ida, eva"),
            Some("solve")
        ));
        assert!(has(Some("R"), None, None) && has(Some("RUNNING"), None, None));
        assert!(!has(Some("PD"), None, None));
        assert!(!has(None, Some("ida"), None));
        let eva = Principal {
            name: "eva".into(),
            ..Principal::nameless()
        };
        let of = |by: &Principal, mine| {
            let wanted = Wanted::new(None, None, None).unwrap();
            wanted.of(by, mine).has(&job)
        };
        assert!(of(&eva, true) && of(&Principal::nameless(), false));
        assert!(!of(&Principal::nameless(), true));
        assert!(!has(None, None, Some("solv")));
        let error = Wanted::new(Some("walking"), None, None).unwrap_err();
        assert_eq!(error.code(), "bad-request");
    }

    #[test]
    fn states_are_named_as_here_or_as_slurm_names_them() {
        for (word, state) in [
            ("running", JobState::Running),
            ("PD", JobState::Pending),
            ("time-limit", JobState::TimeLimit),
            ("TIMEOUT", JobState::TimeLimit),
            ("TO", JobState::TimeLimit),
            ("node_fail", JobState::NodeLost),
            ("COMPLETING", JobState::Ending),
        ] {
            assert_eq!(state_of(word).unwrap(), state, "{word}");
        }
        assert_eq!(state_of("nonsense").unwrap_err().code(), "bad-request");
    }
}
