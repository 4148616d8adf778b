//! Limited links: what one needs for some bytes, whether a cluster's are what was asked for, and
//! whether the processors have anything left.
//!
//! Neighbours: [`super::broadcast`] and [`super::exchange`] divide by [`limit_s`];
//! [`super::namespaces`] makes links for ordinary programs.
//!
//! Invariant: nothing that a protocol of ours adds is part of a limit.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;

/// Payload of a full UDP datagram on Ethernet: 1,500 bytes less the headers of IPv4 (20) and UDP
/// (8).
const DATAGRAM_BYTES: u64 = 1_472;
/// What tc charges for a datagram beyond its payload: headers of Ethernet (14), IPv4 (20) and UDP
/// (8).
const HEADER_BYTES: u64 = 42;
/// Most that waits in front of a limited link: the buffer of one port of a small switch.
pub const PORT_BUFFER_BYTES: u64 = 256_000;
/// With less than this share of the processors left over they were the bottleneck, not the links.
const IDLE_LEAST: f64 = 0.10;

/// Seconds that one link, limited by tc to `bits_per_second`, needs for `bytes` of payload in full
/// datagrams.
pub fn limit_s(bytes: u64, bits_per_second: u64) -> f64 {
    let charged = bytes + bytes.div_ceil(DATAGRAM_BYTES) * HEADER_BYTES;
    charged as f64 * 8.0 / bits_per_second as f64
}

/// Why a time of `ratio` limits says nothing of the links, if only the share `idle` of the
/// processors was left over.
pub fn busy(idle: f64, ratio: f64) -> Option<String> {
    (idle < IDLE_LEAST).then(|| {
        format!(
            "the processors are the bottleneck: {:.0} % of their time was left over, ratio {ratio:.2}",
            idle * 100.0
        )
    })
}

/// Both ends of every link of a cluster on one switch have the rate asked for and a queue no longer
/// than a switch's.
pub fn check(cluster: &Cluster, nodes: usize, bits_per_second: u64) -> Result<()> {
    let limits = cluster.link_limits()?;
    // Control's link and each node's, two ends each.
    ensure!(
        limits.len() == 2 * (nodes + 1),
        "{} ends of links are limited instead of {}",
        limits.len(),
        2 * (nodes + 1)
    );
    for limit in &limits {
        let field = |name: &str| {
            limit["options"][name]
                .as_u64()
                .with_context(|| format!("tc shows no {name}: {limit}"))
        };
        let rate = field("rate")? * 8;
        ensure!(
            rate == bits_per_second,
            "a link has {rate} bit/s instead of {bits_per_second}: {limit}"
        );
        // tc shows the longest wait, in microseconds.
        let queue_bytes = field("lat")? * bits_per_second / 8 / 1_000_000;
        ensure!(
            queue_bytes <= PORT_BUFFER_BYTES,
            "{queue_bytes} bytes may wait in front of a link: {limit}"
        );
    }
    Ok(())
}

/// What the processors did since some moment.
#[derive(Debug, Clone, Copy)]
pub struct Processors {
    all: u64,
    idle: u64,
}

impl Processors {
    /// From now on.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        // user nice system idle iowait ...; the last two, guests, are part of the first two.
        let idle = ticks.get(3..5).context("/proc/stat is short")?.iter().sum();
        Ok(Self {
            all: ticks.iter().take(8).sum(),
            idle,
        })
    }

    /// Share of their time until now that nobody used.
    pub fn idle_since(&self) -> Result<f64> {
        let now = Self::now()?;
        let all = (now.all - self.all).max(1);
        Ok((now.idle - self.idle) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_headers_of_full_datagrams_only() {
        // 4,000,000 bytes are 2,718 datagrams.
        assert!((limit_s(4_000_000, 50_000_000) - 4_114_156.0 * 8.0 / 50e6).abs() < 1e-9);
        assert!(limit_s(1_472, 1_000_000) < limit_s(1_473, 1_000_000));
    }

    #[test]
    fn a_machine_has_ticks() {
        let began = Processors::now().unwrap();
        assert!(began.all >= began.idle && began.all > 0);
        let idle = began.idle_since().unwrap();
        assert!((0.0..=1.0).contains(&idle), "{idle}");
    }
}
