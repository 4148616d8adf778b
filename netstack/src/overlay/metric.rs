//! What is measured: a table of counters, declared once, used by the kernel that counts, by the
//! wire that carries numbers only, and by the control node that names them in OpenMetrics text.
//!
//! [`counters!`](crate::counters) declares a table. Values are integers in the raw unit of
//! [`Unit`]; names are given without unit and `_total`, which [`MetricDef::open_metrics_name`]
//! adds.
//!
//! Invariant: a metric's number never changes its meaning: entries are added at the end of a table.

use alloc::string::String;
use core::fmt;

/// Number of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricId(pub u16);

impl MetricId {
    /// Metrics of auxiliary service processes have numbers from here on: 256 for each kind.
    pub const FIRST_AUXILIARY: u16 = 0x4000;
    /// System calls by number: see [`MetricId::of_call`].
    pub const FIRST_CALL: u16 = 0x1000;
    /// Numbers of system calls that are counted one by one: Linux's, then Hearth's own.
    pub const CALLS: usize = 512 + 16;
    /// Counters that programs add have numbers from here on.
    pub const FIRST_PROGRAM: u16 = 0x8000;
    /// Counters that a program can have (`hearth_abi::monitor::COUNTERS_MAX`).
    pub const PROGRAM: usize = 16;

    /// How often programs made the system call `number`; None: it is not counted by itself.
    pub const fn of_call(number: u64) -> Option<MetricId> {
        match Self::call_index(number) {
            Some(index) => Some(MetricId(Self::FIRST_CALL + index as u16)),
            None => None,
        }
    }

    /// The place of a system call among those that are counted.
    pub const fn call_index(number: u64) -> Option<usize> {
        match number {
            0..512 => Some(number as usize),
            OWN_CALLS.. if number < OWN_CALLS + 16 => Some(512 + (number - OWN_CALLS) as usize),
            _ => None,
        }
    }
}

/// Number of the first of Hearth's own system calls (`hearth_abi::sysno`).
const OWN_CALLS: u64 = 4096;

/// What a raw value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Time: raw values are microseconds.
    Seconds,
    /// A share from 0 to 1: raw values are millionths.
    Ratio,
}

impl Unit {
    /// Raw units in one base unit.
    pub const fn scale(self) -> u32 {
        match self {
            Unit::Count | Unit::Bytes => 1,
            Unit::Seconds | Unit::Ratio => 1_000_000,
        }
    }

    /// What the base unit adds to a name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
            Unit::Ratio => "_ratio",
        }
    }
}

/// Whether values only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, until the node boots again.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDef {
    /// Its number.
    pub id: MetricId,
    /// Its name without unit and `_total`.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// One line for people.
    pub help: &'static str,
}

impl MetricDef {
    /// The name in OpenMetrics text: base unit, and `_total` for a counter.
    pub fn open_metrics_name(&self) -> String {
        let total = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
        };
        alloc::format!("{}{}{total}", self.name, self.unit.suffix())
    }

    /// A raw value in base units.
    pub fn in_base_units(&self, raw: i128) -> Decimal {
        Decimal {
            raw,
            scale: self.unit.scale(),
        }
    }
}

/// A raw value as a decimal number of base units, without floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    raw: i128,
    scale: u32,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.raw < 0 { "-" } else { "" };
        let (size, scale) = (self.raw.unsigned_abs(), u128::from(self.scale));
        let (whole, part) = (size / scale, size % scale);
        match part {
            0 => write!(f, "{sign}{whole}"),
            part => {
                let digits = alloc::format!("{part:06}");
                write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
            }
        }
    }
}

/// A table's values, in its order. Counting needs no name and no memory beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters<const N: usize>([u64; N]);

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Counters([0; N])
    }
}

impl<const N: usize> Counters<N> {
    /// All zero.
    pub const fn new() -> Self {
        Counters([0; N])
    }

    /// Adds to a value, wrapping.
    pub fn add(&mut self, index: usize, more: u64) {
        self.0[index] = self.0[index].wrapping_add(more);
    }

    /// Sets a gauge, or a counter that is kept elsewhere.
    pub fn set(&mut self, index: usize, value: u64) {
        self.0[index] = value;
    }

    /// A value.
    pub fn get(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// The value of a metric whose table begins with number `first`; None: it is not of this table.
    pub fn read(&self, first: u16, metric: MetricId) -> Option<i64> {
        let index = usize::from(metric.0.checked_sub(first)?);
        let value = *self.0.get(index)?;
        Some(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// Declares a table of counters: `counters! { enum NAME from NUMBER { VARIANT: "name", kind, unit,
/// "help"; ... } }`. The enum's variants index [`Counters`]; `NAME::DEFS` has their definitions.
///
/// ```
/// netstack::counters! {
///     /// What the example counts.
///     pub enum Example from 0x4100 {
///         Busy: "example_busy", Counter, Seconds, "Time spent busy";
///         Depth: "example_queue", Gauge, Count, "Entries in the queue";
///     }
/// }
/// let mut values = Example::table();
/// values.add(Example::Busy as usize, 1_500_000);
/// assert_eq!(Example::DEFS[0].open_metrics_name(), "example_busy_seconds_total");
/// assert_eq!(Example::DEFS[0].in_base_units(1_500_000).to_string(), "1.5");
/// assert_eq!(values.read(Example::FIRST, Example::Busy.id()), Some(1_500_000));
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident from $first:literal {
            $($variant:ident: $text:literal, $kind:ident, $unit:ident, $help:literal;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        $visible enum $name {
            $(#[doc = $help] $variant,)+
        }

        impl $name {
            /// Number of the first metric.
            pub const FIRST: u16 = $first;
            /// Number of metrics.
            pub const COUNT: usize = [$($name::$variant,)+].len();
            /// The definitions, in the order of the variants.
            pub const DEFS: [$crate::overlay::metric::MetricDef; Self::COUNT] = [
                $($crate::overlay::metric::MetricDef {
                    id: $name::$variant.id(),
                    name: $text,
                    unit: $crate::overlay::metric::Unit::$unit,
                    kind: $crate::overlay::metric::MetricKind::$kind,
                    help: $help,
                },)+
            ];

            /// The metric's number.
            pub const fn id(self) -> $crate::overlay::metric::MetricId {
                $crate::overlay::metric::MetricId(Self::FIRST + self as u16)
            }

            /// Values for the table, all zero.
            pub const fn table() -> $crate::overlay::metric::Counters<{ Self::COUNT }> {
                $crate::overlay::metric::Counters::new()
            }
        }
    };
}

counters! {
    /// What every node counts about itself.
    pub enum NodeMetric from 1 {
        Uptime: "hearth_node_uptime", Gauge, Seconds, "Time since the node's kernel began";
        TimeUser: "hearth_node_user", Counter, Seconds, "Time the cores ran programs, mean of all";
        TimeKernel: "hearth_node_kernel", Counter, Seconds, "Time the cores ran the kernel, mean of all";
        TimeIdle: "hearth_node_idle", Counter, Seconds, "Time the cores were idle, mean of all";
        MemoryUsed: "hearth_node_memory_used", Gauge, Bytes, "Memory in use";
        MemoryFree: "hearth_node_memory_free", Gauge, Bytes, "Memory that is free";
        Job: "hearth_node_job", Gauge, Count, "Number of the node's job, 0 for none";
        Rank: "hearth_node_rank", Gauge, Count, "Rank in the node's job";
        FaultsCode: "hearth_node_faults_code", Counter, Count, "Page faults on program code";
        FaultsReadonly: "hearth_node_faults_readonly", Counter, Count, "Page faults on the program's read-only data";
        FaultsData: "hearth_node_faults_data", Counter, Count, "Page faults on the program's initialised data";
        FaultsZero: "hearth_node_faults_zero", Counter, Count, "Page faults on heap, bss and mapped memory, served with a page of zeros";
        FaultsStack: "hearth_node_faults_stack", Counter, Count, "Page faults on the stack";
        FaultsHeld: "hearth_node_faults_held", Counter, Count, "Page faults on pages that were in memory already";
        FaultsCopy: "hearth_node_faults_copy", Counter, Count, "Page faults that copied a page that was in memory";
        PagesRetained: "hearth_node_pages_retained", Gauge, Count, "Pages kept for the next launch of programs that have ended";
        PagesScrubbed: "hearth_node_pages_scrubbed", Counter, Count, "Page frames overwritten with zeros before another program gets them";
        FramesReceived: "hearth_node_frames_received", Counter, Count, "Ethernet frames received";
        FramesSent: "hearth_node_frames_sent", Counter, Count, "Ethernet frames sent";
        BytesReceived: "hearth_node_received", Counter, Bytes, "Bytes of frames received";
        BytesSent: "hearth_node_sent", Counter, Bytes, "Bytes of frames sent";
        FramesDropped: "hearth_node_frames_dropped", Counter, Count, "Ethernet frames lost on the node: of impossible length, or without a free transmit buffer";
        RetransmissionsControl: "hearth_node_retransmissions_control", Counter, Count, "Datagrams to the control node sent again";
        RetransmissionsCasts: "hearth_node_retransmissions_casts", Counter, Count, "Blocks of casts asked for again";
        RetransmissionsExchange: "hearth_node_retransmissions_exchange", Counter, Count, "Packets between ranks asked for again";
        SystemCalls: "hearth_node_system_calls", Counter, Count, "System calls of programs";
        UserHeartbeatInterrupts: "hearth_node_user_heartbeat_interrupts", Counter, Count, "Timer interrupts of a running program, for heartbeats and the ticks of the overlay with them";
        UserTimeLimitInterrupts: "hearth_node_user_time_limit_interrupts", Counter, Count, "Timer interrupts of a running program, for its time limit";
        UserMonitorInterrupts: "hearth_node_user_monitor_interrupts", Counter, Count, "Timer interrupts of a running program, for monitoring that was asked for";
        UserNicInterrupts: "hearth_node_user_nic_interrupts", Counter, Count, "Network interrupts of a running program that waits for the network";
        UserCastInterrupts: "hearth_node_user_cast_interrupts", Counter, Count, "Interrupts of a running program, for a cast or an exchange";
        UserSpuriousInterrupts: "hearth_node_user_spurious_interrupts", Counter, Count, "Interrupts of a running program that nobody asked for";
        IdleHeartbeatInterrupts: "hearth_node_idle_heartbeat_interrupts", Counter, Count, "Timer interrupts outside programs, for heartbeats";
        IdleNicInterrupts: "hearth_node_idle_nic_interrupts", Counter, Count, "Network interrupts outside programs";
        IdleCastInterrupts: "hearth_node_idle_cast_interrupts", Counter, Count, "Interrupts outside programs, for a cast";
        IdleSpuriousInterrupts: "hearth_node_idle_spurious_interrupts", Counter, Count, "Interrupts outside programs that nobody asked for";
        CastBlocksReceived: "hearth_node_cast_blocks_received", Counter, Count, "Blocks of casts received, checked and kept";
        CastBlocksSent: "hearth_node_cast_blocks_sent", Counter, Count, "Blocks of casts sent to others";
        CastBlocksCorrupt: "hearth_node_cast_blocks_corrupt", Counter, Count, "Blocks of casts that were not what their hash says";
        CastDuplicates: "hearth_node_cast_duplicates", Counter, Count, "Fragments of casts that were there already";
        OverlayBytesSent: "hearth_node_overlay_sent", Counter, Bytes, "Bytes of the overlay's datagrams sent, without UDP, IP and Ethernet headers";
        OverlayRoles: "hearth_node_overlay_roles", Gauge, Count, "Processes of the overlay that the node hosts";
        OverlayMemory: "hearth_node_overlay_memory", Gauge, Bytes, "Memory that the overlay holds on the node, as counted against its bounds";
        OverlayDropped: "hearth_node_overlay_dropped_samples", Counter, Count, "Samples that the node's processes of the overlay gave up for lack of room";
        HardwareErrors: "hearth_node_hardware_errors", Counter, Count, "Errors that hardware has corrected (machine-check banks)";
        Threads: "hearth_node_threads", Gauge, Count, "Threads of the programs that run";
    }
}

counters! {
    /// What the auxiliary service process for the network adds (kind 0): why datagrams were not
    /// taken.
    pub enum NetworkMetric from 0x4000 {
        ControlReceived: "hearth_network_control_received", Counter, Count, "Datagrams of the control protocol received";
        ControlSent: "hearth_network_control_sent", Counter, Count, "Datagrams of the control protocol sent";
        BadLength: "hearth_network_bad_length", Counter, Count, "Datagrams dropped for their length";
        BadTag: "hearth_network_bad_tag", Counter, Count, "Datagrams dropped because their seal does not match the key";
        Replayed: "hearth_network_replayed", Counter, Count, "Datagrams dropped as repeated or too old";
        BadPayload: "hearth_network_bad_payload", Counter, Count, "Datagrams with a good seal whose content makes no sense";
        Misdirected: "hearth_network_misdirected", Counter, Count, "Datagrams for another node, boot or session";
        Stale: "hearth_network_stale", Counter, Count, "Datagrams that came too late to be of use";
        Overloaded: "hearth_network_overloaded", Counter, Count, "Datagrams dropped because a table was full";
        PageTimeouts: "hearth_network_page_timeouts", Counter, Count, "Requests for pages of a program that were given up";
        Foreign: "hearth_network_foreign", Counter, Count, "Datagrams from another address than the control node's";
        ReceiveErrors: "hearth_network_receive_errors", Counter, Count, "Ethernet frames of impossible length";
        TransmitFull: "hearth_network_transmit_full", Counter, Count, "Times that no transmit buffer was free";
        OverlayReceived: "hearth_network_overlay_received", Counter, Count, "Datagrams of the overlay received";
        OverlaySent: "hearth_network_overlay_sent", Counter, Count, "Datagrams of the overlay sent";
    }
}

counters! {
    /// What the auxiliary service process for profiles adds (kind 1): the program's instruction
    /// pointer, sampled at each tick while it computes. Bucket k of [`ProfileMetric::BUCKETS`] is
    /// metric `Buckets + k`.
    pub enum ProfileMetric from 0x4100 {
        Samples: "hearth_profile_samples", Counter, Count, "Samples taken of the program";
        Pointer: "hearth_profile_pointer", Gauge, Count, "The instruction pointer as sampled last";
        TextStart: "hearth_profile_text_start", Gauge, Count, "Where the program's text begins";
        TextEnd: "hearth_profile_text_end", Gauge, Count, "Where the program's text ends";
        Elsewhere: "hearth_profile_elsewhere", Counter, Count, "Samples outside the text";
        Buckets: "hearth_profile_bucket", Counter, Count, "Samples in the first of the equal parts of the text";
    }
}

// Each table fits one stream, that of nodes together with the counters of their programs.
const _: () = assert!(NodeMetric::COUNT + MetricId::PROGRAM <= crate::overlay::stream::MAX_METRICS);
const _: () = assert!(
    ProfileMetric::Buckets as usize + ProfileMetric::BUCKETS <= crate::overlay::stream::MAX_METRICS
);

impl ProfileMetric {
    /// Equal parts into which the program's text is cut.
    pub const BUCKETS: usize = 56;
}

counters! {
    /// What a node counts about its part of the overlay.
    pub enum OverlayMetric from 0x100 {
        Received: "hearth_overlay_received_datagrams", Counter, Count, "Datagrams of the overlay received";
        Sent: "hearth_overlay_sent_datagrams", Counter, Count, "Datagrams of the overlay sent";
        SentBytes: "hearth_overlay_sent", Counter, Bytes, "Bytes of the overlay's datagrams sent, without UDP, IP and Ethernet headers";
        Bad: "hearth_overlay_bad_datagrams", Counter, Count, "Datagrams that do not parse or are not sealed with the key";
        Misdirected: "hearth_overlay_misdirected", Counter, Count, "Messages for a process or tree that is not here";
        Attached: "hearth_overlay_attached", Counter, Count, "Times a process found a parent";
        Detached: "hearth_overlay_detached", Counter, Count, "Times a parent refused a link that a process believed in";
        ParentsLost: "hearth_overlay_parents_lost", Counter, Count, "Parents that fell silent";
        ChildrenLost: "hearth_overlay_children_lost", Counter, Count, "Children that fell silent";
        BadSections: "hearth_overlay_bad_sections", Counter, Count, "Values that do not parse or do not fit their stream";
        Repeated: "hearth_overlay_repeated", Counter, Count, "Reports that arrived twice or too late to tell";
        Dropped: "hearth_overlay_dropped_samples", Counter, Count, "Samples of streams that are not known";
        Late: "hearth_overlay_late_ticks", Counter, Count, "Ticks that were passed on again because values came late";
        Forced: "hearth_overlay_forced_ticks", Counter, Count, "Ticks that were passed on because their place was needed";
        Overflowed: "hearth_overlay_overflowed", Counter, Count, "Messages and entries that found no room";
        Refused: "hearth_overlay_refused", Counter, Count, "Processes that a node would not host";
        Unbuilt: "hearth_overlay_unbuilt", Counter, Count, "Processes given up while the tree was built";
        Stalled: "hearth_overlay_local_stalls", Counter, Count, "Turns with more messages inside the node than expected";
        OverBound: "hearth_overlay_over_bound_samples", Counter, Count, "Samples that found no room in the memory of a process";
        Level: "hearth_overlay_level", Gauge, Seconds, "Time that the last tick took here beyond its slowest child, or beyond the wait for it";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use std::string::ToString;

    #[test]
    fn names_are_what_open_metrics_wants() {
        let mut names = BTreeSet::new();
        let tables = [
            &NodeMetric::DEFS[..],
            &NetworkMetric::DEFS,
            &ProfileMetric::DEFS,
            &OverlayMetric::DEFS,
        ];
        for def in tables.concat() {
            let name = def.open_metrics_name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(
                !def.name.ends_with("_total") && !def.name.contains("__"),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), def.kind == MetricKind::Counter);
            assert!(!def.help.is_empty() && !def.help.ends_with('.'), "{name}");
            assert!(names.insert(name));
        }
        assert_eq!(
            NodeMetric::DEFS[1].open_metrics_name(),
            "hearth_node_user_seconds_total"
        );
        assert_eq!(NodeMetric::MemoryFree.id(), MetricId(6));
        assert_eq!(MetricId::of_call(1), Some(MetricId(0x1001)));
        assert_eq!(MetricId::of_call(4097), Some(MetricId(0x1201)));
        assert_eq!(MetricId::of_call(4096 + 16), None);
        assert!(
            NodeMetric::DEFS
                .iter()
                .all(|def| def.id.0 < MetricId::FIRST_AUXILIARY)
        );
    }

    #[test]
    fn raw_values_become_base_units() {
        let def = NodeMetric::DEFS[NodeMetric::TimeUser as usize];
        for (raw, text) in [
            (0, "0"),
            (1, "0.000001"),
            (2_500_000, "2.5"),
            (-10, "-0.00001"),
        ] {
            assert_eq!(def.in_base_units(raw).to_string(), text);
        }
        let mut table = NodeMetric::table();
        table.set(NodeMetric::MemoryFree as usize, u64::MAX);
        assert_eq!(table.read(1, NodeMetric::MemoryFree.id()), Some(i64::MAX));
        assert_eq!(table.read(1, MetricId(0)), None);
        assert_eq!(table.read(1, MetricId(1 + NodeMetric::COUNT as u16)), None);
    }
}
