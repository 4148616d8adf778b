//! What a job was asked to be, as the store keeps it: enough to launch it after a restart.
//!
//! Key functions: [`write`], [`read`]. Neighbours: `ledger` writes the text, `again` reads it. What
//! a client sees of the job (its number, state, priority, user ...) is in its record, not here.
//!
//! Invariant: as for records of jobs: fields are added, with a default, and never change their
//! meaning.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::allocator::Want;
use super::record::{Job, Submission, Terms};
use super::retention::Wishes;
use crate::api::types::JobInfo;
use crate::casts::for_jobs::JobFile;
use crate::config::{Load, Verify};
use crate::io_service::Mounts;
use crate::output_files::Wanted;
use crate::principal::Identity;
use crate::programs::ProgramStore;
use crate::secrets;

#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    /// Base64.
    args: Vec<String>,
    env: Vec<String>,
    #[serde(default)]
    nodes: Option<Vec<u32>>,
    /// Nodes for its ranks; 0: one each.
    #[serde(default)]
    places: u32,
    #[serde(default)]
    with: Vec<u32>,
    #[serde(default)]
    without: BTreeSet<u32>,
    #[serde(default)]
    warm_only: bool,
    #[serde(default)]
    verify: Option<Verify>,
    /// Most bytes of a core file of each rank.
    #[serde(default)]
    core_bytes: u64,
    load: Load,
    #[serde(default)]
    files: Vec<File>,
    #[serde(default)]
    wait: bool,
    /// A client was to send standard input.
    #[serde(default)]
    stdin: bool,
    /// Hash of the file with standard input.
    #[serde(default)]
    input: Option<String>,
    /// Files that its output goes to.
    #[serde(default)]
    output_files: Wanted,
    /// What it sees of the control node's directories.
    #[serde(default)]
    mounts: Option<Mounts>,
    /// The numbers of its user; none where the site does not know any, or an earlier version
    /// accepted it.
    #[serde(default)]
    identity: Option<Identity>,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    name: String,
    object: String,
    bytes: u64,
}

/// What the store keeps of a job that was accepted.
pub(super) fn write(job: &Job, stdin: bool) -> String {
    let encode = |words: &[Vec<u8>]| words.iter().map(|word| STANDARD.encode(word)).collect();
    let file = |file: &JobFile| File {
        name: file.name.clone(),
        object: secrets::encode_hex(&file.object),
        bytes: file.bytes,
    };
    let spec = Spec {
        args: encode(&job.args),
        env: encode(&job.env),
        nodes: job.want.nodes.clone(),
        places: job.want.places,
        with: job.want.with.clone(),
        without: job.want.without.clone(),
        warm_only: job.want.warm_only,
        verify: job.wishes.verify,
        core_bytes: job.wishes.core_bytes,
        load: job.load,
        files: job.files.iter().map(file).collect(),
        wait: job.wait,
        stdin,
        input: job
            .input
            .as_ref()
            .map(|input| secrets::encode_hex(&input.hash())),
        output_files: job.output_files.clone(),
        mounts: job.mounts.clone(),
        identity: job.identity.clone(),
    };
    serde_json::to_string(&spec).expect("plain data")
}

/// The submission of a job of an earlier run of control; its files are looked for in `programs`,
/// and not read.
///
/// # Errors
/// Why it cannot be launched again, for people.
pub(super) fn read(
    info: &JobInfo,
    text: Option<&str>,
    programs: &ProgramStore,
) -> Result<Submission, String> {
    let text = text.ok_or(
        "an earlier version of hearth accepted it, which did not write down how to run it",
    )?;
    let spec: Spec = serde_json::from_str(text)
        .map_err(|error| format!("what was written down of it cannot be read ({error})"))?;
    let get = |hash: &str, what: &str| {
        let found = secrets::decode_hex(hash).and_then(|hash| programs.unread(&hash));
        found.ok_or_else(|| format!("{what} is not in the control node's cache any more"))
    };
    let decode = |words: Vec<String>| {
        let words = words.iter().map(|word| STANDARD.decode(word));
        let words: Result<Vec<Vec<u8>>, _> = words.collect();
        words.map_err(|error| format!("what was written down of it cannot be read ({error})"))
    };
    let files = spec.files.into_iter().map(|file| {
        let object = secrets::decode_hex(&file.object).ok_or("the hash of a file is damaged")?;
        Ok(JobFile {
            name: file.name,
            object,
            bytes: file.bytes,
            content: programs.unread(&object),
        })
    });
    Ok(Submission {
        name: info.name.clone(),
        program: get(&info.program, "its program")?,
        args: decode(spec.args)?,
        env: decode(spec.env)?,
        want: Want {
            ranks: info.ranks_total,
            places: spec.places,
            nodes: spec.nodes,
            warm_only: spec.warm_only,
            with: spec.with,
            without: spec.without,
            cores: info.cores.unwrap_or(0),
        },
        wishes: Wishes {
            reuse: info.reuse,
            verify: spec.verify,
            core_bytes: spec.core_bytes,
        },
        load: Some(spec.load),
        files: files.collect::<Result<_, String>>()?,
        wait: spec.wait,
        time_limit_s: Some(info.time_limit_s.unwrap_or(0)),
        stdin: spec.stdin,
        terms: Terms {
            user: info.user.clone(),
            identity: spec.identity,
            directory: info.directory.clone(),
            batch: info.batch,
            hold: info.held,
            priority: info.priority,
            after: info.after.clone(),
            known_ends: std::collections::BTreeMap::new(),
            requeue: info.requeue,
            input: match &spec.input {
                Some(hash) => Some(get(hash, "the file with its standard input")?),
                None => None,
            },
            output_files: spec.output_files,
            array: info.array,
            mounts: spec.mounts,
        },
    })
}
