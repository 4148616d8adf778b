//! Files that many nodes of a job read at once, from the I/O services to `casts`.
//!
//! The service of this process hands them over in memory ([`run`]); others send each as they would
//! a file to cast, and name it then ([`ReadFile`]).
//!
//! Invariant: each file that a service hands over is answered, and none is read or hashed under the
//! lock.

use std::fs::File;
use std::net::SocketAddrV4;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use hearth_io::{Cast, Read};
use netstack::files::CastObject;
use netstack::ids::{JobId, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::casts::object::{DescribeError, Described};
use crate::casts::shelf::Content;
use crate::control::Shared;

/// What an I/O service says of a file that many nodes read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// Where nodes reach the service.
    pub service: String,
    /// The job that they are of.
    pub job: u64,
    /// The number that the service gave the file.
    pub number: u64,
    /// BLAKE3 hash of the file, in hexadecimal, which was sent before; none: it was named before.
    #[serde(default)]
    pub object: Option<String>,
    /// Nodes that read it, too.
    pub nodes: Vec<u32>,
}

/// What has become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadAnswer {
    /// BLAKE3 hash of what is cast to these nodes, in hexadecimal; none: nothing is, and they go on
    /// reading from the service.
    pub object: Option<String>,
    /// Its size.
    pub bytes: u64,
}

/// What is needed to cast a file.
pub type Whole = (Arc<Described>, Content);

/// Has what the service of this process hands over cast, as long as there is one. To be called by a
/// thread of its own: it reads each file.
pub fn run(shared: &Weak<Shared>, reads: &Receiver<Read>) {
    for read in reads {
        let content = read.content.map(|(file, bytes)| describe(file, bytes));
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let service = shared.lock().io_services.own_address();
        let object = match (content.transpose(), service) {
            (Ok(content), Some(service)) => {
                let key = (read.job, service, read.number);
                cast(&shared, key, content, &read.nodes)
            }
            (Err(error), _) => {
                tracing::warn!("what nodes of job {} read: {error}", read.job.0);
                None
            }
            (Ok(_), None) => None,
        };
        let cast = Cast {
            number: read.number,
            object,
            nodes: read.nodes,
        };
        shared.lock().io_services.tell_cast(read.job, cast);
    }
}

fn describe(file: File, bytes: u64) -> Result<Whole, DescribeError> {
    let described = Described::of_file(&file, bytes)?;
    Ok((Arc::new(described), Content::File(Arc::new(file))))
}

/// Has a file cast, unless its job is over: nobody would take it away again.
pub fn cast(
    shared: &Shared,
    (job, service, number): (JobId, SocketAddrV4, u64),
    content: Option<Whole>,
    nodes: &[NodeId],
) -> Option<CastObject> {
    let now = shared.now();
    let mut core = shared.lock();
    core.runner.present(job)?;
    let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
    let key = (job.0, service, number);
    let object = core.casts.cast_read(now, key, content, &nodes);
    core.settle(now);
    drop(core);
    shared.kick();
    object
}
