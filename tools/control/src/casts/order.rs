//! What is asked of casts, why it is refused, and what comes of it.
//!
//! Key types: [`Order`], [`Refused`], [`NotUnderWay`], [`Outcome`]. Neighbour: `casts`, whose
//! interface this is.
//!
//! Invariant: every refusal says what to do next.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cast::{Asker, What};
use super::object::Described;
use super::shelf::Content;
use crate::api::types::LoadReport;
use crate::config::Scheme;
use crate::hosted;
use crate::programs::Hash;

/// What is to be cast.
#[derive(Debug)]
pub struct Order {
    /// What it is.
    pub what: What,
    /// Its hashes.
    pub described: Arc<Described>,
    /// Its bytes.
    pub content: Content,
    /// The nodes that are to have it.
    pub nodes: Vec<u32>,
    /// Who wants it there.
    pub asker: Asker,
    /// Further nodes that hold it.
    pub holders: BTreeSet<u32>,
    /// Wait for nodes that are not in service.
    pub patient: bool,
    /// None: as configured.
    pub scheme: Option<Scheme>,
    /// Bytes a second; none: as configured.
    pub rate: Option<u64>,
}

/// Why nothing is cast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The name cannot be used.
    #[error(transparent)]
    BadName(#[from] hosted::BadName),
    /// Another content has the name.
    #[error(
        "another file is called {name:?} ({id}{on}); drop it with `hearth casts drop {name}`, or choose another name with --name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other file.
        id: String,
        /// Where it is.
        on: String,
    },
    /// The same content is being cast in another way.
    #[error(
        "{name} is being cast with --scheme {scheme} at {rate} bytes a second already (cast {id}), and this would join it; leave these options out, or wait for its end"
    )]
    OtherTerms {
        /// The file.
        name: String,
        /// The cast.
        id: u64,
        /// Its scheme.
        scheme: &'static str,
        /// Its rate, in bytes a second.
        rate: u64,
    },
    /// Nodes that are not in service.
    #[error("{0} not in service; leave it out, or wait for it with --wait")]
    NotUp(String),
    /// There is nobody.
    #[error("no node is in service; see `hearth nodes`")]
    NoNodes,
    /// A node's memory is too small.
    #[error(
        "{bytes} bytes do not fit {node}: files may take half of its memory of {memory} bytes; leave it out, or cast less"
    )]
    TooLarge {
        /// The file.
        bytes: u64,
        /// The node.
        node: String,
        /// Its memory.
        memory: u64,
    },
    /// There are too many.
    #[error(
        "{0} casts are under way, which is the most there can be; wait for one to end, or cancel one"
    )]
    TooMany(usize),
    /// Too many want the same content at once.
    #[error(
        "{0} clients and jobs wait for this content already (cast {1}), which is the most there can be; wait for its end"
    )]
    TooManyAskers(usize, u64),
    /// Too many names.
    #[error("nodes hold too many files; drop some with `hearth casts drop`")]
    TooManyNames,
    /// The protocol does not take it.
    #[error("{0}")]
    Protocol(String),
}

/// What jobs and nodes are told.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All files that a job waits for are there.
    FilesHere(u64),
    /// A job will not get its files.
    FilesFailed(u64, String),
    /// The cast of a job's program has got further; `over`: as far as it goes.
    Load {
        /// The job.
        job: u64,
        /// How it stands.
        report: Box<LoadReport>,
        /// Nothing more will come.
        over: bool,
    },
    /// A node is to let go of a file.
    Drop(u32, Hash),
}

/// Why a cast cannot be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderWay {
    /// Never heard of it.
    #[error("there is no cast {0}; `hearth casts` lists the casts")]
    Unknown(u64),
    /// It is over.
    #[error("cast {0} has ended already")]
    Ended(u64),
}
