//! Clusters of QEMU nodes on bridges, in a network namespace of their own.
//!
//! Purpose: bring up switches, links, the control node and the machines of one cluster with one
//! call ([`up`]), take them away again without a trace ([`down`]), switch single nodes off and on
//! ([`reset`], [`power_off`]), and show them ([`list`], [`console::follow`]).
//!
//! How: [`up`] starts a *supervisor* (the caller's own executable, re-executed, which calls
//! [`supervise`]). It enters a network namespace (with a user namespace when not root), lays out
//! the network, starts the control node and the QEMU processes, and then waits for requests on a
//! unix socket. Unix sockets do not care for network namespaces, so control and supervisor are
//! reached from outside; the control node's TCP listener is made outside and handed in.
//!
//! Key types: [`Spec`] (what is wanted), [`Accelerator`] (KVM or emulation),
//! [`Cards`] (their network cards), [`Paths`] (where its files are), [`Record`] (what is
//! running), [`Launcher`] (which executables to start). Neighbours: `tools/control` (commands
//! `up`, `down`, `node reset`, `console`) and the tests.
//!
//! Invariant: every process started here dies with its supervisor, and each is recorded with pid
//! and start time, so that nothing is left behind whatever crashes, and no foreign process is
//! ever killed.

mod accel;
mod card;
pub mod console;
mod control_socket;
mod error;
mod lifecycle;
mod machine;
mod namespace;
mod network;
mod paths;
mod process;
mod record;
mod request;
mod spec;
mod supervisor;
mod tree;

pub use accel::{Accelerator, Choice as AcceleratorChoice, Refusal, choose as choose_accelerator};
pub use card::{Card, Cards};
pub use error::Error;
pub use lifecycle::{
    DownReport, Launcher, Progress, Summary, down, is_running, list, power_off, power_on, reset,
    restart_control, start_control, up,
};
pub use paths::Paths;
pub use process::ProcessId;
pub use record::{MachineState, NodeRecord, Record};
pub use request::ANSWER_LIMIT;
pub use spec::{
    CLUSTER_NAMES, Firmware, MAX_CPUS, MAX_IO_SERVICES, MAX_NODES, Rate, Spec, is_cluster_name,
    parse_memory_mib,
};
pub use supervisor::supervise;
pub use tree::{MAX_LEVELS, Tree};
