//! The operator's binary `hearth` and the control node behind `hearth serve`.
//!
//! | module | purpose |
//! |---|---|
//! | [`cli`] | the command line: one file a command |
//! | [`client`] | requests to a control node, over its unix socket or TLS |
//! | [`serve`] | starts the control node: state directory, sockets, tasks |
//! | [`control`] | the one task that owns the protocol endpoint, the job runner and the node table |
//! | [`control_events`] | translation between endpoint and runner |
//! | [`outgoing`] | launches and starts that are not written down yet |
//! | [`jobs`] | the job runner, a state machine without sockets or clock |
//! | [`api`] | the HTTP API on the unix socket and on TCP |
//! | [`nodes`] | numbers, names and addresses of nodes, kept over a restart |
//! | [`node_logs`] | what the nodes' kernels have logged |
//! | [`drops`] | nodes that were told to let go of programs |
//! | [`udp`] | the loop between a protocol machine and a UDP socket |
//! | [`boot`] | what the boot service asks of control: personalities, boot timeline |
//! | [`casts`] | what goes to many nodes at once: programs, files, connection tables |
//! | [`hosted`] | the same without a cluster, between ordinary processes |
//! | [`ledger`] | what is written down, before anybody is told |
//! | [`history`], [`stored`] | what was written down, for readers |
//! | [`monitor`] | watching the cluster: a picture a second, kept and shown |
//! | [`import`] | files of earlier versions |
//! | [`warm`] | which node holds which program |
//! | [`reading`] | files of earlier jobs and casts, read after the start |
//! | [`programs`], [`events`], [`secrets`], [`config`], [`paths`] | state on disk |
//! | [`durable`] | replacing files whole |
//! | [`site_tree`] | the shape of the network, also from a site's topology.conf |
//! | [`principal`], [`people`], [`tokens`] | who asks, and what they may do |
//! | [`tls`] | the control node's certificate, and clients that know it by its fingerprint |
//! | [`hostlist`], [`clock`], [`output`], [`user`] | notations, names and texts |
//! | [`output_files`] | files that a job's output goes to, by its user's wish |
//!
//! Invariant: protocol logic lives in `netstack`; nothing here parses a datagram.

pub mod api;
pub mod blocking;
pub mod boot;
pub mod casts;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod control;
pub mod control_events;
pub mod drops;
pub mod durable;
pub mod events;
pub mod history;
pub mod hosted;
pub mod hostlist;
pub mod hosts;
pub mod import;
pub mod io_service;
pub mod jobs;
pub mod ledger;
pub mod monitor;
pub mod near;
pub mod node_lists;
pub mod node_logs;
pub mod nodes;
pub mod outgoing;
pub mod output;
pub mod output_files;
pub mod overlay;
pub mod paths;
pub mod people;
pub mod power;
pub mod principal;
pub mod programs;
pub mod reading;
pub mod secrets;
pub mod serve;
pub mod signal;
pub mod site_tree;
pub mod stored;
pub mod tls;
pub mod tokens;
pub mod udp;
pub mod user;
pub mod warm;
