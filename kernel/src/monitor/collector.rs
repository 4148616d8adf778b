//! From metric numbers to values: the node's collector for the overlay.
//!
//! Key type: [`Sources`], what the collector may look at; made for each turn, so that nothing is
//! copied that no stream wants.
//!
//! Invariant: reading changes nothing, and takes the same few steps for every metric.

use kernel_core::interrupts::Class;
use kernel_core::retention::WarmTable;
use netstack::ids::{JobId, Rank};
use netstack::node::Endpoint;
use netstack::overlay::{Collector, Footprint, MetricId, NetworkMetric, NodeMetric};
use netstack::vitals::CastVitals;

use super::{Program, profile};
use crate::drivers::nic;
use crate::{arch, mm, net, time};

/// Kinds of auxiliary service processes, by the bits of `Hello::auxiliary`.
const NETWORK: u8 = 0;
const PROFILE: u8 = 1;
/// Both.
pub const AUXILIARY: u32 = 1 << NETWORK | 1 << PROFILE;

/// What the overlay has done on this node, and what it keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Samples given up.
    pub dropped: u64,
    /// What is kept.
    pub footprint: Footprint,
}

/// Where values come from.
pub struct Sources<'a> {
    /// The endpoint of the control protocol.
    pub endpoint: Option<&'a Endpoint>,
    /// What casts have moved.
    pub casts: CastVitals,
    /// Blocks of casts, and packets between ranks, that were asked for again.
    pub asked_again: (u64, u64),
    /// The warm programs.
    pub warm: &'a WarmTable,
    /// What the card has done.
    pub card: nic::Counters,
    /// What the stack did not pass on.
    pub stack: net::Counters,
    /// The job that the node has, and its rank in it.
    pub job: Option<(JobId, Rank)>,
    /// What the overlay itself has done, and what it keeps.
    pub overlay: Figures,
}

impl Collector for Sources<'_> {
    fn read(&mut self, metric: MetricId) -> Option<i64> {
        let value = match metric.0 {
            MetricId::FIRST_PROGRAM.. => {
                return super::counter(usize::from(metric.0 - MetricId::FIRST_PROGRAM));
            }
            number if number >= NetworkMetric::FIRST + 256 => return profile::read(metric),
            NetworkMetric::FIRST.. => self.network(usize::from(metric.0 - NetworkMetric::FIRST))?,
            MetricId::FIRST_CALL.. => {
                return super::calls(usize::from(metric.0 - MetricId::FIRST_CALL));
            }
            _ => self.node(usize::from(metric.0.checked_sub(NodeMetric::FIRST)?))?,
        };
        Some(i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn trigger(&mut self, kind: u8, on: bool) {
        // The other kind is read from what is counted anyhow.
        if kind == PROFILE {
            profile::switch(on);
        }
    }
}

/// `match` over the variants of a table.
macro_rules! variants {
    ($index:expr, $table:ident { $($variant:ident => $value:expr,)+ }) => {
        match $index {
            $(index if index == $table::$variant as usize => $value,)+
            _ => return None,
        }
    };
}

impl Sources<'_> {
    fn node(&self, index: usize) -> Option<u64> {
        let program: fn() -> Program = super::total;
        let faults = || program().faults;
        let interrupts = arch::interrupts::counts;
        let user = |class: Class| interrupts().user[class as usize];
        let idle = |class: Class| interrupts().idle[class as usize];
        // Times are means of all cores: shares of them are shares of the node.
        let cores = arch::cores::count() as u64;
        let user_us = || time::of_counts(program().user_counts / cores).as_micros();
        let idle_us = || time::mean_slept().as_micros();
        let control = || self.endpoint.map(Endpoint::counters);
        Some(variants!(index, NodeMetric {
            Uptime => time::now().as_micros(),
            TimeUser => user_us(),
            TimeKernel => time::now().as_micros().saturating_sub(user_us() + idle_us()),
            TimeIdle => idle_us(),
            MemoryUsed => {
                let memory = mm::stats();
                memory.total_bytes - memory.free_bytes
            },
            MemoryFree => mm::stats().free_bytes,
            Job => self.job.map_or(0, |(job, _)| job.0),
            Rank => self.job?.1.0.into(),
            FaultsCode => faults().code,
            FaultsReadonly => faults().readonly,
            FaultsData => faults().data,
            FaultsZero => faults().zero,
            FaultsStack => faults().stack,
            FaultsHeld => faults().held,
            FaultsCopy => faults().copy,
            PagesRetained => self.warm.pages(),
            PagesScrubbed => mm::frames().counters().scrubbed,
            FramesReceived => self.card.received,
            FramesSent => self.card.transmitted,
            BytesReceived => self.card.received_bytes,
            BytesSent => self.card.transmitted_bytes,
            FramesDropped => self.card.receive_errors + self.card.transmit_full,
            RetransmissionsControl => control()?.retransmitted,
            RetransmissionsCasts => self.asked_again.0,
            RetransmissionsExchange => self.asked_again.1,
            SystemCalls => program().system_calls,
            UserHeartbeatInterrupts => user(Class::Heartbeat),
            UserTimeLimitInterrupts => user(Class::TimeLimit),
            UserMonitorInterrupts => user(Class::Monitor),
            UserNicInterrupts => user(Class::Nic),
            UserCastInterrupts => user(Class::Cast),
            UserSpuriousInterrupts => user(Class::Spurious),
            IdleHeartbeatInterrupts => idle(Class::Heartbeat),
            IdleNicInterrupts => idle(Class::Nic),
            IdleCastInterrupts => idle(Class::Cast),
            IdleSpuriousInterrupts => idle(Class::Spurious),
            CastBlocksReceived => self.casts.blocks_in,
            CastBlocksSent => self.casts.blocks_out,
            CastBlocksCorrupt => self.casts.corrupt,
            CastDuplicates => self.casts.duplicates,
            OverlayBytesSent => self.overlay.sent_bytes,
            OverlayRoles => self.overlay.footprint.roles as u64,
            OverlayMemory => self.overlay.footprint.bytes as u64,
            OverlayDropped => self.overlay.dropped,
            HardwareErrors => arch::machine_check::corrected(),
            Threads => program().threads,
        }))
    }

    fn network(&self, index: usize) -> Option<u64> {
        let control = self.endpoint?.counters();
        Some(variants!(index, NetworkMetric {
            ControlReceived => control.received,
            ControlSent => control.sent,
            BadLength => control.bad_length,
            BadTag => control.bad_tag,
            Replayed => control.replayed,
            BadPayload => control.bad_payload,
            Misdirected => control.misdirected,
            Stale => control.stale,
            Overloaded => control.overloaded,
            PageTimeouts => control.page_timeouts,
            Foreign => self.stack.foreign,
            ReceiveErrors => self.card.receive_errors,
            TransmitFull => self.card.transmit_full,
            OverlayReceived => self.overlay.received,
            OverlaySent => self.overlay.sent,
        }))
    }
}
