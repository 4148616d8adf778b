//! The launch block of a rank: its arguments, environment and files, as `netstack` lays them out,
//! with the variables that tell the rank where it is.
//!
//! Invariant: what [`check`] accepts, [`emit`] can make for every rank.

use netstack::ids::Rank;
use std::os::unix::ffi::OsStrExt as _;

use netstack::job::launch_block::{self, EmitError, File, TMP_EXPORT};

use super::SubmitError;
use super::record::Submission;
use crate::casts::for_jobs::JobFile;
use crate::io_service::Mounts;

/// Variables that the job gets from control, whatever the user gives.
pub const OWN_VARIABLES: [&str; 4] = ["HEARTH_RANK", "HEARTH_SIZE", "HEARTH_JOB", "HEARTH_NODE"];

/// The variable that OpenMP reads, which the job gets unless the user gives it.
const THREADS: &str = "OMP_NUM_THREADS";

/// Where a rank is.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its job.
    pub job: u64,
    /// Its rank.
    pub rank: u32,
    /// Ranks in the job.
    pub size: u32,
    /// Its node.
    pub node: u32,
    /// Cores that it can use, where that is known: what OpenMP takes as its number of threads.
    pub threads: Option<u16>,
}

/// Whether every rank of a submission can have its launch block.
///
/// # Errors
/// [`SubmitError`].
pub fn check(submission: &Submission) -> Result<(), SubmitError> {
    let named = |entry: &&Vec<u8>| !matches!(entry.iter().position(|&b| b == b'='), Some(1..));
    if let Some(bad) = submission.env.iter().find(named) {
        return Err(SubmitError::NotAVariable(
            String::from_utf8_lossy(bad).into_owned(),
        ));
    }
    // The largest numbers give the longest variables.
    let place = Place {
        job: u64::MAX,
        rank: u32::MAX - 1,
        size: u32::MAX,
        node: u32::MAX,
        threads: Some(u16::MAX),
    };
    let strings = || submission.args.iter().chain(&submission.env);
    let mounts = submission.terms.mounts.as_ref();
    match emit(
        place,
        &submission.args,
        &submission.env,
        &submission.files,
        mounts,
    ) {
        Ok(_) => Ok(()),
        Err(EmitError::TooLarge) => Err(SubmitError::TooLarge {
            bytes: strings().map(|string| string.len() + 1).sum(),
            strings: strings().count(),
        }),
        Err(EmitError::ZeroByte) => Err(SubmitError::ZeroByte),
        Err(EmitError::TooManyFiles | EmitError::BadName) => Err(SubmitError::BadFiles),
    }
}

/// Makes the launch block of one rank. A variable given twice keeps its last value.
///
/// # Errors
/// [`EmitError`].
pub fn emit(
    place: Place,
    args: &[Vec<u8>],
    env: &[Vec<u8>],
    files: &[JobFile],
    mounts: Option<&Mounts>,
) -> Result<Vec<u8>, EmitError> {
    let name_of = |entry: &[u8]| entry.split(|&byte| byte == b'=').next().map(<[u8]>::to_vec);
    let tmp_export = TMP_EXPORT.strip_suffix(b"=").unwrap_or(TMP_EXPORT);
    let own =
        |name: &[u8]| name == tmp_export || OWN_VARIABLES.iter().any(|own| own.as_bytes() == name);
    let mut seen = std::collections::BTreeSet::new();
    let mut variables: Vec<Vec<u8>> = Vec::new();
    for entry in env.iter().rev() {
        let name = name_of(entry).unwrap_or_default();
        if !own(&name) && seen.insert(name) {
            variables.push(entry.clone());
        }
    }
    variables.reverse();
    let is_given = variables
        .iter()
        .any(|entry| name_of(entry).as_deref() == Some(THREADS.as_bytes()));
    if let Some(threads) = place.threads.filter(|_| !is_given) {
        variables.push(format!("{THREADS}={threads}").into_bytes());
    }
    let [rank, size, job, node] = OWN_VARIABLES;
    variables.push(format!("{rank}={}", place.rank).into_bytes());
    variables.push(format!("{size}={}", place.size).into_bytes());
    variables.push(format!("{job}={}", place.job).into_bytes());
    variables.push(format!("{node}={}", crate::hostlist::name(place.node)).into_bytes());
    // The rest of `/tmp` is the nodes' own.
    let exports = mounts.into_iter().flat_map(|mounts| &mounts.exports);
    for export in exports.filter(|export| export.node.starts_with("/tmp")) {
        variables.push([TMP_EXPORT, export.node.as_os_str().as_bytes()].concat());
    }
    let files: Vec<File<'_>> = files
        .iter()
        .map(|file| File {
            name: &file.name,
            object: file.object,
            bytes: file.bytes,
        })
        .collect();
    launch_block::emit(Rank(place.rank), place.size, args, &variables, &files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed_env(env: &[&str]) -> Vec<String> {
        let env: Vec<Vec<u8>> = env.iter().map(|entry| entry.as_bytes().to_vec()).collect();
        let place = Place {
            job: 7,
            rank: 2,
            size: 4,
            node: 9,
            threads: Some(3),
        };
        let file = JobFile {
            name: "data.bin".to_string(),
            object: [7; 32],
            bytes: 9,
            content: None,
        };
        let block = emit(
            place,
            &[b"prog".to_vec(), b"".to_vec()],
            &env,
            &[file],
            None,
        )
        .unwrap();
        let parsed = launch_block::parse(&block).unwrap();
        assert_eq!((parsed.rank, parsed.size), (Rank(2), 4));
        assert_eq!(parsed.argv, [&b"prog"[..], b""]);
        assert_eq!(
            (parsed.files[0].name, parsed.files[0].bytes),
            ("data.bin", 9)
        );
        let text = |entry: &&[u8]| String::from_utf8(entry.to_vec()).unwrap();
        parsed.envp.iter().map(text).collect()
    }

    #[test]
    fn every_rank_knows_its_place() {
        let own = [
            "OMP_NUM_THREADS=3",
            "HEARTH_RANK=2",
            "HEARTH_SIZE=4",
            "HEARTH_JOB=7",
            "HEARTH_NODE=n9",
        ];
        assert_eq!(parsed_env(&[]), own);
    }

    #[test]
    fn nodes_hear_which_exports_are_in_their_tmp() {
        let export = |path: &str| hearth_io::Export::same(path);
        let mounts = Mounts {
            identity: 1,
            user: None,
            exports: ["/tmp/a b", "/tmpx", "/home", "/tmp"].map(export).into(),
            working: "/".into(),
        };
        let place = Place {
            job: 7,
            rank: 0,
            size: 1,
            node: 9,
            threads: None,
        };
        let env = [b"HEARTH_TMP_EXPORT=/tmp/mine".to_vec()];
        let block = emit(place, &[b"prog".to_vec()], &env, &[], Some(&mounts)).unwrap();
        let parsed = launch_block::parse(&block).unwrap();
        let told = parsed
            .envp
            .iter()
            .filter_map(|entry| entry.strip_prefix(TMP_EXPORT));
        assert_eq!(told.collect::<Vec<_>>(), [&b"/tmp/a b"[..], b"/tmp"]);
    }

    #[test]
    fn the_last_value_of_a_variable_counts_and_ours_are_ours() {
        let env = parsed_env(&["A=1", "B=", "HEARTH_RANK=9", "A=2=3"]);
        assert_eq!(env[..2], ["B=", "A=2=3"]);
        assert_eq!(env[2..4], ["OMP_NUM_THREADS=3", "HEARTH_RANK=2"]);
        let env = parsed_env(&["OMP_NUM_THREADS=7"]);
        assert_eq!(env[..2], ["OMP_NUM_THREADS=7", "HEARTH_RANK=2"]);
    }
}
