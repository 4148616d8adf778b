//! One row type a table, and the bounds of the tables.
//!
//! Key types: [`NodeRow`], [`WarmRow`], [`ProgramRow`], [`JobRow`], [`EventRow`], [`SpecRow`],
//! [`RankEndRow`], [`DrainRow`], [`FileRow`], [`HeldRow`], [`CastRow`], [`StreamRow`],
//! [`TokenRow`], [`Limits`].
//! Neighbours: [`crate::batch`] carries them in, [`crate::Query`] gives them out.
//!
//! Invariant: widths are fixed and nothing here is interpreted: words such as a job's state are
//! the writer's. Numbers, times and sizes are below 2^63, SQLite's largest integer; a larger one
//! is stored as 2^63 - 1.

/// The name of a program: the BLAKE3 hash of its file.
pub type ProgramHash = [u8; 32];

/// Names kept of one program, the latest first: the same file is often run under a few names, and
/// a script that copies it for each run must not grow the row.
pub const NAMES_MAX: usize = 8;

/// How many rows the tables may have that grow with use. Machines, drained nodes, warm programs and
/// cast files are bounded by the cluster: 32,768 nodes, 64 programs and 64 files a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that have ended; those that ended first go first.
    pub jobs: u64,
    /// Events; the oldest go first.
    pub events: u64,
    /// Programs; those not used for longest go first.
    pub programs: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            jobs: 100_000,
            events: 100_000,
            programs: 10_000,
        }
    }
}

/// A machine that has joined, and its node number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// MAC address.
    pub mac: [u8; 6],
    /// Node number; no two machines have the same.
    pub node: u32,
    /// The boot that joined last, where it was seen.
    pub boot_epoch: Option<u64>,
    /// When that boot joined, in microseconds since 1970.
    pub joined_unix_us: Option<u64>,
    /// The boots before it whose keys are used up, the oldest first; a handful.
    pub earlier_boots: Vec<u64>,
}

/// A program that a node holds: one line of the node status table of the retention method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmRow {
    /// The node.
    pub node: u32,
    /// The program.
    pub program: ProgramHash,
    /// The boot in which the node holds it; a later boot has forgotten it.
    pub boot_epoch: u64,
    /// Since when, in microseconds since 1970.
    pub since_unix_us: u64,
    /// Pages held, of 4 KiB.
    pub pages: u32,
    /// Pristine contents of touched data pages among them.
    pub pristine: u32,
    /// The last job of the program on the node, where it is known.
    pub last_job: Option<u64>,
}

/// A program that was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRow {
    /// The program.
    pub hash: ProgramHash,
    /// Names it was run under, the latest first; at most [`NAMES_MAX`].
    pub names: Vec<String>,
    /// Size of its file.
    pub bytes: u64,
    /// First use, in microseconds since 1970.
    pub first_used_unix_us: u64,
    /// Last use.
    pub last_used_unix_us: u64,
    /// Launches on nodes: a job of eight ranks counts eight.
    pub launches: u64,
    /// Launches among these that found the program warm.
    pub warm_launches: u64,
}

/// One use of a program, to be added to its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramUse {
    /// The program.
    pub hash: ProgramHash,
    /// Name it was run under.
    pub name: String,
    /// Size of its file.
    pub bytes: u64,
    /// When, in microseconds since 1970.
    pub at_unix_us: u64,
    /// Launches on nodes.
    pub launches: u64,
    /// Launches that found it warm.
    pub warm_launches: u64,
}

impl ProgramRow {
    /// The row of a program that was used once.
    pub fn first(used: &ProgramUse) -> Self {
        ProgramRow {
            hash: used.hash,
            names: vec![used.name.clone()],
            bytes: used.bytes,
            first_used_unix_us: used.at_unix_us,
            last_used_unix_us: used.at_unix_us,
            launches: used.launches,
            warm_launches: used.warm_launches,
        }
    }

    /// Adds a use.
    pub fn add(&mut self, used: &ProgramUse) {
        self.names.retain(|name| *name != used.name);
        self.names.insert(0, used.name.clone());
        self.names.truncate(NAMES_MAX);
        self.bytes = used.bytes;
        self.first_used_unix_us = self.first_used_unix_us.min(used.at_unix_us);
        self.last_used_unix_us = self.last_used_unix_us.max(used.at_unix_us);
        self.launches = self.launches.saturating_add(used.launches);
        self.warm_launches = self.warm_launches.saturating_add(used.warm_launches);
    }
}

/// A job. The fields are what is searched by and what is shown when `record` cannot be read any
/// more; `record` is all of it, with the reports of its ranks, as the writer's JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Its number.
    pub id: u64,
    /// Name of the program's file.
    pub name: String,
    /// The program.
    pub program: ProgramHash,
    /// State, as a word.
    pub state: String,
    /// Why it ended as it did.
    pub reason: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Its nodes as a hostlist, in rank order.
    pub nodes: String,
    /// Microseconds since 1970 at which it was submitted.
    pub submitted_unix_us: u64,
    /// ... at which it began to run.
    pub started_unix_us: Option<u64>,
    /// ... at which it ended; none while it is under way.
    pub ended_unix_us: Option<u64>,
    /// Highest exit status of its ranks.
    pub exit_status: Option<i32>,
    /// Everything, as JSON.
    pub record: String,
}

/// What a job that has not ended was asked to be, as far as its [`JobRow`] does not say it: what it
/// takes to launch it after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecRow {
    /// The job.
    pub id: u64,
    /// The writer's JSON.
    pub spec: String,
}

/// How one rank of a job ended that has not ended itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEndRow {
    /// The job.
    pub job: u64,
    /// The rank.
    pub rank: u32,
    /// Which attempt of the job it belongs to; of a rank the last that was written is kept.
    pub attempt: u32,
    /// The writer's JSON.
    pub record: String,
}

/// A node that gets no jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainRow {
    /// The node.
    pub node: u32,
    /// Why, for people.
    pub reason: String,
    /// Since when, in microseconds since 1970.
    pub since_unix_us: u64,
    /// Who wanted it.
    pub by: String,
}

/// A name under which a file was cast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// The name; it stands for one content.
    pub name: String,
    /// BLAKE3 hash of the content.
    pub object: ProgramHash,
    /// Its size.
    pub bytes: u64,
    /// When it was cast first, in microseconds since 1970.
    pub cast_unix_us: u64,
    /// Everybody's jobs may use it.
    pub shared: bool,
}

/// A cast file that a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRow {
    /// The node.
    pub node: u32,
    /// BLAKE3 hash of the content.
    pub object: ProgramHash,
    /// The boot in which the node holds it; a later boot has forgotten it.
    pub boot_epoch: u64,
    /// Since when, in microseconds since 1970.
    pub since_unix_us: u64,
}

/// A cast of a file that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastRow {
    /// Its number.
    pub id: u64,
    /// The file's name.
    pub name: String,
    /// BLAKE3 hash of the content.
    pub object: ProgramHash,
    /// The nodes that are to have it, as a hostlist.
    pub nodes: String,
    /// How it spreads, as a word.
    pub scheme: String,
    /// Bytes a second; 0: as configured.
    pub rate: u64,
    /// It waits for nodes that are not in service.
    pub patient: bool,
    /// When it began, in microseconds since 1970.
    pub began_unix_us: u64,
}

/// A stream of values that somebody has opened and nobody has closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// Its number.
    pub number: u16,
    /// Name of what is stored of it.
    pub name: String,
    /// What it is, as JSON.
    pub spec: String,
}

/// A token for the API over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its number.
    pub id: u64,
    /// BLAKE3 hash of its text.
    pub hash: [u8; 32],
    /// What it is good for, as a word.
    pub role: String,
    /// Name of whom it stands for.
    pub user: String,
    /// Who made it.
    pub made_by: String,
    /// When, in microseconds since 1970.
    pub made_unix_us: u64,
    /// From when on it is good no more; none: never.
    pub expires_unix_us: Option<u64>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number, from 1, over the life of the store.
    pub seq: u64,
    /// Microseconds since 1970.
    pub time_unix_us: u64,
    /// How much it matters, as a word.
    pub severity: String,
    /// What happened, as a stable word.
    pub kind: String,
    /// Name of the node concerned.
    pub node: Option<String>,
    /// The job concerned.
    pub job: Option<u64>,
    /// The MAC address concerned.
    pub mac: Option<String>,
    /// For people.
    pub text: String,
}
