//! What tree a configuration wants, and lists of nodes as the overlay has them.
//!
//! Key function: [`of`]. Neighbours: section `[overlay]` of `config`,
//! `netstack::overlay::placement`.
//!
//! Invariant: what cannot be meant is refused here, at the start, with the key that has it.

use std::collections::BTreeSet;

use netstack::ids::NodeId;
use netstack::overlay::Scope;
use netstack::overlay::fixed::Fixed;
use netstack::overlay::placement::{self, Layout, Policy, Topology};

use crate::config;
use crate::hosts::Hosts;

/// The layout that a configuration names.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn of(config: &config::Overlay) -> Result<Layout, String> {
    let policy = match config.placement.as_str() {
        "averaging" => Policy::Averaging,
        "comprehensive" => Policy::Comprehensive(judging(config)?),
        text => Policy::Given(Topology::parse(text).map_err(|error| {
            format!(
                "overlay.placement is \"averaging\", \"comprehensive\" or a topology, as in \"k-ary 4 2\": {error}"
            )
        })?),
    };
    if !(2..=128).contains(&config.fan_out) {
        return Err(format!(
            "overlay.fan_out is {}: take 2 to 128",
            config.fan_out
        ));
    }
    if !(100..=60_000).contains(&config.period_ms) {
        return Err(format!(
            "overlay.period_ms is {}: take 100 to 60000",
            config.period_ms
        ));
    }
    Ok(Layout {
        policy,
        fan_out: config.fan_out,
    })
}

/// How hosts are judged.
fn judging(config: &config::Overlay) -> Result<placement::FuzzyConfig, String> {
    let factors = |key: &str, text: &str| -> Result<placement::Factors, String> {
        let numbers: Result<Vec<Fixed>, _> = text.split_whitespace().map(Fixed::parse).collect();
        let numbers = numbers.map_err(|error| format!("overlay.{key}: {error}"))?;
        let names = placement::FACTOR_NAMES.join(", ");
        let count = numbers.len();
        (numbers.try_into())
            .map_err(|_| format!("overlay.{key} has {count} numbers: give one each for {names}"))
    };
    let judging = placement::FuzzyConfig {
        weights: factors("judge_weights", &config.judge_weights)?,
        low: factors("judge_low", &config.judge_low)?,
        high: factors("judge_high", &config.judge_high)?,
        memory_least: Fixed::ZERO,
    };
    // What is wrong with it is wrong for any host.
    let any = placement::HostFactors {
        raw: judging.low,
        up: true,
        cap: 1,
        back_ends: 1,
    };
    match placement::judge(&judging, &any) {
        Ok(_) => Ok(judging),
        Err(error) => Err(format!(
            "overlay.judge_weights, judge_low, judge_high: {error}"
        )),
    }
}

/// Nodes as ranges, both ends included.
pub(super) fn ranges(nodes: &BTreeSet<u32>) -> Vec<(NodeId, NodeId)> {
    let mut ranges: Vec<(NodeId, NodeId)> = Vec::new();
    for node in nodes {
        match ranges.last_mut() {
            Some((_, last)) if last.0 + 1 == *node => last.0 = *node,
            _ => ranges.push((NodeId(*node), NodeId(*node))),
        }
    }
    ranges
}

/// The scope of some nodes.
pub fn nodes_scope(nodes: Vec<u32>) -> Scope {
    Scope::Nodes(ranges(&nodes.into_iter().collect()))
}

/// The nodes that a key of the configuration lists.
pub(super) fn nodes_of(hosts: &Hosts, key: &str, list: &str) -> Result<BTreeSet<u32>, String> {
    if list.is_empty() {
        return Ok(BTreeSet::new());
    }
    let nodes = hosts
        .list(list)
        .map_err(|error| format!("{key}: {error}"))?;
    Ok(nodes.into_iter().collect())
}
