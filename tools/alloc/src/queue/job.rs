//! What a job asks of the queue.
//!
//! Key types: [`Job`], [`Tie`] (which nodes it may have), [`Array`] (jobs that share a bound).
//! Neighbour: [`super`].

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{JobNumber, Time};

/// Nodes that hold a program. Jobs of one program are best given one such set: a pass then looks at
/// its nodes once, however many of them wait.
pub type Held = Rc<BTreeSet<u32>>;

/// What a job waits for before it may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// The job that has to end first.
    pub job: JobNumber,
    /// It must have ended well; else this job waits until it is cancelled.
    pub must_succeed: bool,
}

/// Which nodes a job may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tie {
    /// Any.
    #[default]
    None,
    /// These and no others, as many as it has.
    Named(Vec<u32>),
    /// Those of the set that the pass has for it: the holders of its program, as a rule.
    Warm,
    /// All but some, and these among them.
    Among {
        /// Those that it must have, each once; no more than it has nodes.
        with: Vec<u32>,
        /// Those that it must not have; none of the others.
        without: BTreeSet<u32>,
    },
}

/// Jobs that were submitted together, of which so many run at a time: a job array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// The number of its first job.
    pub first: JobNumber,
    /// Most of its jobs that run at a time.
    pub at_once: u32,
}

/// A job in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number; rising in the order of arrival.
    pub number: JobNumber,
    /// Who submitted it.
    pub user: u32,
    /// Nodes.
    pub count: u32,
    /// How long it may run; none: without limit.
    pub walltime: Option<Time>,
    /// Higher goes first.
    pub priority: i32,
    /// When it was submitted.
    pub submitted: Time,
    /// Not to be started until released.
    pub is_held: bool,
    /// Jobs that must end first. Jobs that the queue does not know have ended.
    pub after: Vec<Dependency>,
    /// Which nodes it may have.
    pub tie: Tie,
    /// The array that it is of, where that has a bound.
    pub array: Option<Array>,
}

impl Job {
    /// A plain job: no priority, no dependencies, not held.
    pub fn new(number: JobNumber, count: u32, walltime: Option<Time>, submitted: Time) -> Self {
        Job {
            number,
            user: 0,
            count,
            walltime,
            priority: 0,
            submitted,
            is_held: false,
            after: Vec::new(),
            tie: Tie::None,
            array: None,
        }
    }
}
