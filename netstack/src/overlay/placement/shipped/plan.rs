//! The whole tree: how many levels, who hosts what, who is below whom.
//!
//! Levels: while a level has more processes than the fan-out, a level of communication processes is
//! put above it. Where they run is decided by the policy; processes high in the tree go to hosts
//! without back ends first. Neighbours in a level have neighbouring hosts, and a parent takes a run
//! of them, so that subtrees stay together.
//!
//! Source: the overlay method, step 1, with its placement policies ([`super::super::published`]).
//! What is ours is listed at [`super`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::super::published::attachment::attach;
use super::super::published::comprehensive::{self, FuzzyConfig, FuzzyError, HostFactors};
use super::capped::average_within;
use super::topology::{Named, Topology};
use crate::ids::NodeId;
use crate::overlay::{MAX_CHILDREN, MAX_CPS, MAX_HEIGHT};

/// A node that can host processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node.
    pub node: NodeId,
    /// What it is judged by, and how much it takes. `back_ends` is 0 for a dedicated node, else 1.
    pub factors: HostFactors,
    /// It hosts processes where no others can: a program computes there, or others are dedicated to
    /// it.
    pub reluctant: bool,
}

/// How communication processes get their hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Placement 1.
    Averaging,
    /// Placement 2.
    Comprehensive(FuzzyConfig),
    /// Placement 3. What a balanced tree leaves open is decided by averaging.
    Given(Topology),
}

/// What tree is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where processes go.
    pub policy: Policy,
    /// Most children of a process as planned; 32 is usual.
    pub fan_out: u32,
}

/// A process of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its host, by index.
    pub host: u32,
    /// Its number on the host: 0 for the back end, communication processes from 1.
    pub slot: u8,
    /// 0 for a back end; more than that of any process below.
    pub height: u8,
    /// Its parent, by index among the processes; None: the front end.
    pub parent: Option<u32>,
}

/// A tree. Processes stand behind their parents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All processes.
    pub processes: Vec<Planned>,
    /// Number of communication processes: these come first.
    pub cps: u32,
    /// Back ends whose parent is on their own host.
    pub local: u32,
    /// Height of the front end.
    pub height: u8,
}

/// Why there is no such tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The fan-out is below 2 or above the bound of a process.
    FanOut(u32),
    /// Hosts could not be judged.
    Fuzzy(FuzzyError),
    /// The topology names a process that its host does not take.
    Crowded {
        /// The process.
        process: Named,
        /// How many its host takes.
        room: u32,
    },
    /// All hosts together take fewer processes than the tree has.
    NoRoom {
        /// Communication processes of the tree.
        processes: u32,
        /// What the hosts take.
        room: u32,
    },
    /// The topology names a node that is not there.
    NoSuchNode(NodeId),
    /// A process would have more children than it may have.
    Wide(u32),
    /// More levels than there may be.
    High,
    /// There is no node to host a communication process.
    NoHosts,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::FanOut(given) => {
                write!(
                    f,
                    "a fan-out of {given} is not possible: take 2 to {MAX_CHILDREN}"
                )
            }
            PlanError::Fuzzy(error) => error.fmt(f),
            PlanError::Crowded {
                process: (node, slot),
                room,
            } => write!(
                f,
                "the topology names {node}:{slot}, and {node} has memory for {room} communication processes: name a process of another node, or give it more"
            ),
            PlanError::NoRoom { processes, room } => write!(
                f,
                "the tree has {processes} communication processes, and all nodes have memory for {room}: take fewer levels or a larger fan-out, add nodes, or give them more memory"
            ),
            PlanError::NoSuchNode(node) => {
                write!(
                    f,
                    "the topology names {node}, which has not said hello: take another node"
                )
            }
            PlanError::Wide(children) => write!(
                f,
                "a process would have {children} children, {MAX_CHILDREN} is the most: add communication processes"
            ),
            PlanError::High => f.write_str("too many levels: take a larger fan-out"),
            PlanError::NoHosts => f.write_str(
                "no node can host a communication process: wait until nodes have joined",
            ),
        }
    }
}

impl core::error::Error for PlanError {}

/// A communication process before the back ends are attached: host index, slot, level from the
/// front end down, parent.
struct Inner {
    host: u32,
    slot: u8,
    parent: Option<u32>,
}

impl Plan {
    /// The tree for these hosts, which are in the order of their distance: neighbours are close.
    ///
    /// # Errors
    /// What makes it impossible.
    pub fn make(hosts: &[Host], layout: &Layout) -> Result<Plan, PlanError> {
        if !(2..=MAX_CHILDREN as u32).contains(&layout.fan_out) {
            return Err(PlanError::FanOut(layout.fan_out));
        }
        let back_ends: Vec<u32> = (0..)
            .zip(hosts)
            .filter(|(_, host)| host.factors.back_ends > 0)
            .map(|(index, _)| index)
            .collect();
        let inner = match &layout.policy {
            Policy::Given(Topology::Explicit(edges)) => explicit(hosts, edges)?,
            Policy::Given(Topology::Balanced(widths)) => {
                let mut levels = Vec::new();
                let mut count = 1;
                for width in widths {
                    count *= width;
                    levels.push(count);
                }
                levelled(hosts, &levels, &Policy::Averaging)?
            }
            policy => {
                let levels = levels(back_ends.len() as u32, layout.fan_out);
                levelled(hosts, &levels, policy)?
            }
        };
        finish(&inner, &back_ends)
    }
}

/// Numbers of communication processes of each level from the front end down.
fn levels(back_ends: u32, fan_out: u32) -> Vec<u32> {
    let mut levels = Vec::new();
    let mut count = back_ends;
    while count > fan_out {
        count = count.div_ceil(fan_out);
        levels.insert(0, count);
    }
    levels
}

/// Processes of full levels, parents first.
fn levelled(hosts: &[Host], levels: &[u32], policy: &Policy) -> Result<Vec<Inner>, PlanError> {
    let count: u32 = levels.iter().sum();
    let usable: Vec<usize> = (0..hosts.len())
        .filter(|&host| hosts[host].factors.up)
        .collect();
    if count > 0 && usable.is_empty() {
        return Err(PlanError::NoHosts);
    }
    let at_ease = |host: &usize| !hosts[*host].reluctant;
    let room = |of: &mut dyn Iterator<Item = &usize>| -> u32 {
        of.map(|&host| room_of(&hosts[host])).sum()
    };
    let (all, easy) = (
        room(&mut usable.iter()),
        room(&mut usable.iter().filter(|host| at_ease(host))),
    );
    if all < count {
        return Err(PlanError::NoRoom {
            processes: count,
            room: all,
        });
    }
    // Those at ease get what they take; only what is left then goes to the others.
    let mut shares = vec![0; hosts.len()];
    let (first, rest): (Vec<usize>, Vec<usize>) = usable.into_iter().partition(at_ease);
    share(hosts, &first, count.min(easy), policy, &mut shares)?;
    share(hosts, &rest, count - count.min(easy), policy, &mut shares)?;
    let mut places = Vec::new();
    for (host, share) in (0..).zip(shares) {
        places.extend((1..=share as u8).map(|slot| (host, slot)));
    }
    // High processes go where no program computes, then where no back end is, then to second places
    // of a host.
    let quiet = |&(host, slot): &(u32, u8)| {
        (
            hosts[host as usize].reluctant,
            hosts[host as usize].factors.back_ends,
            core::cmp::Reverse(slot),
            host,
        )
    };
    places.sort_by_key(quiet);
    let mut inner = Vec::new();
    let mut places = places.into_iter();
    let mut above = 0..0;
    for &count in levels {
        let mut level: Vec<(u32, u8)> = places.by_ref().take(count as usize).collect();
        level.sort_unstable();
        let begin = inner.len() as u32;
        for (number, (host, slot)) in (0_u64..).zip(level) {
            let parents = u64::from(above.end - above.start);
            let parent =
                (parents > 0).then(|| above.start + (number * parents / u64::from(count)) as u32);
            inner.push(Inner { host, slot, parent });
        }
        above = begin..inner.len() as u32;
    }
    Ok(inner)
}

/// Processes that a host takes.
fn room_of(host: &Host) -> u32 {
    host.factors.cap.min(MAX_CPS.into())
}

/// Shares of `count` processes among some of the hosts, which have room for them.
fn share(
    hosts: &[Host],
    among: &[usize],
    count: u32,
    policy: &Policy,
    shares: &mut [u32],
) -> Result<(), PlanError> {
    if count == 0 {
        return Ok(());
    }
    let factors = among.iter().map(|&host| HostFactors {
        cap: room_of(&hosts[host]),
        ..hosts[host].factors
    });
    let factors: Vec<HostFactors> = factors.collect();
    let got: Vec<u32> = match policy {
        Policy::Comprehensive(config) => {
            let judged =
                comprehensive::evaluate(config, &factors, count).map_err(PlanError::Fuzzy)?;
            judged.iter().map(|host| host.processes).collect()
        }
        Policy::Averaging | Policy::Given(_) => {
            let back_ends: Vec<u32> = factors.iter().map(|host| host.back_ends).collect();
            let caps: Vec<u32> = factors.iter().map(|host| host.cap).collect();
            average_within(&back_ends, &caps, count).expect("there is room")
        }
    };
    for (&host, got) in among.iter().zip(got) {
        shares[host] = got;
    }
    Ok(())
}

fn explicit(hosts: &[Host], edges: &[(Named, Option<Named>)]) -> Result<Vec<Inner>, PlanError> {
    let host_of: BTreeMap<NodeId, u32> = (0..)
        .zip(hosts)
        .map(|(index, host)| (host.node, index))
        .collect();
    let mut index_of: BTreeMap<Named, u32> = BTreeMap::new();
    let mut inner = Vec::new();
    for &((node, slot), parent) in edges {
        let host = *host_of.get(&node).ok_or(PlanError::NoSuchNode(node))?;
        let room = match &hosts[host as usize] {
            host if host.factors.up => room_of(host),
            _ => 0,
        };
        if u32::from(slot) > room {
            let process = (node, slot);
            return Err(PlanError::Crowded { process, room });
        }
        let parent = parent.and_then(|parent| index_of.get(&parent).copied());
        index_of.insert((node, slot), inner.len() as u32);
        inner.push(Inner { host, slot, parent });
    }
    Ok(inner)
}

/// Attaches the back ends and counts heights and children.
fn finish(inner: &[Inner], back_ends: &[u32]) -> Result<Plan, PlanError> {
    let parents: BTreeSet<u32> = inner.iter().filter_map(|process| process.parent).collect();
    let leaves: Vec<u32> = (0..inner.len() as u32)
        .filter(|index| !parents.contains(index))
        .collect();
    let leaf_hosts: Vec<u32> = leaves
        .iter()
        .map(|&leaf| inner[leaf as usize].host)
        .collect();
    let attached = attach(back_ends, &leaf_hosts);
    let mut plan = Plan {
        cps: inner.len() as u32,
        local: attached.local,
        height: 1,
        ..Plan::default()
    };
    let planned = |process: &Inner| Planned {
        host: process.host,
        slot: process.slot,
        height: 1,
        parent: process.parent,
    };
    plan.processes = inner.iter().map(planned).collect();
    // Children stand behind their parents: from the back each height is final when it is used.
    for index in (0..inner.len()).rev() {
        let height = plan.processes[index].height + 1;
        let above = match inner[index].parent {
            Some(parent) => &mut plan.processes[parent as usize].height,
            None => &mut plan.height,
        };
        *above = height.max(*above);
        if height > MAX_HEIGHT {
            return Err(PlanError::High);
        }
    }
    for (number, &host) in back_ends.iter().enumerate() {
        plan.processes.push(Planned {
            host,
            slot: 0,
            height: 0,
            parent: attached
                .leaf_of
                .get(number)
                .map(|&leaf| leaves[leaf as usize]),
        });
    }
    let mut children = vec![0; inner.len()];
    for parent in plan.processes.iter().filter_map(|process| process.parent) {
        children[parent as usize] += 1;
    }
    match children.into_iter().max() {
        Some(most) if most > MAX_CHILDREN as u32 => Err(PlanError::Wide(most)),
        _ => Ok(plan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::fixed::Fixed;
    use proptest::prelude::*;
    use std::string::ToString;

    fn host(node: u32, back_ends: u32) -> Host {
        Host {
            node: NodeId(node),
            factors: HostFactors {
                raw: [10, 50, 20, 0].map(Fixed::whole),
                up: true,
                cap: MAX_CPS.into(),
                back_ends,
            },
            reluctant: false,
        }
    }

    /// Node, slot and place in the tree of each communication process.
    fn hosted(hosts: &[Host], plan: &Plan) -> Vec<(u32, u8, Option<u32>)> {
        let cps = &plan.processes[..plan.cps as usize];
        let of = cps.iter();
        of.map(|process| {
            (
                hosts[process.host as usize].node.0,
                process.slot,
                process.parent,
            )
        })
        .collect()
    }

    #[test]
    fn a_node_gets_what_it_has_memory_for() {
        // Fan-out 3: eight nodes need three processes.
        let mut hosts: Vec<Host> = (0..8).map(|node| host(node, 1)).collect();
        hosts.iter_mut().for_each(|host| host.factors.cap = 1);
        // Two are dedicated: the third process goes to one of the others, and not beside another.
        hosts[2..].iter_mut().for_each(|host| host.reluctant = true);
        let plan = Plan::make(&hosts, &averaging(3)).unwrap();
        assert_eq!(
            hosted(&hosts, &plan),
            [(0, 1, None), (1, 1, None), (2, 1, None)]
        );
        // Programs compute on all but one.
        hosts[1].reluctant = true;
        for policy in [
            Policy::Averaging,
            Policy::Comprehensive(FuzzyConfig::default()),
        ] {
            let plan = Plan::make(&hosts, &Layout { policy, fan_out: 3 }).unwrap();
            let hosted = hosted(&hosts, &plan);
            assert_eq!(hosted[0], (0, 1, None));
            assert!(hosted.iter().all(|(_, slot, _)| *slot == 1), "{hosted:?}");
        }
        // Four take two: nobody who computes gets any.
        hosts[..4].iter_mut().for_each(|host| {
            (host.factors.cap, host.reluctant) = (2, false);
        });
        let plan = Plan::make(&hosts, &averaging(2)).unwrap();
        assert_eq!(plan.cps, 6);
        assert!(hosted(&hosts, &plan).iter().all(|(node, ..)| *node < 4));
    }

    #[test]
    fn what_nobody_has_memory_for_is_refused() {
        let mut hosts: Vec<Host> = (0..4).map(|node| host(node, 1)).collect();
        hosts.iter_mut().for_each(|host| host.factors.cap = 1);
        let error = |hosts: &[Host], text| {
            let policy = Policy::Given(Topology::parse(text).unwrap());
            let error = Plan::make(hosts, &Layout { policy, fan_out: 4 }).unwrap_err();
            error.to_string()
        };
        let said = error(&hosts, "balanced 4x2");
        assert!(
            said.contains("12 communication processes") && said.contains("for 4:"),
            "{said}"
        );
        let said = error(&hosts, "explicit\nfe => n0:1\nn0:1 => n0:2 n1:1");
        assert!(said.contains("n0:2") && said.contains("for 1 "), "{said}");
        hosts[0].factors.up = false;
        let said = error(&hosts, "explicit\nfe => n0:1");
        assert!(said.contains("n0:1") && said.contains("for 0 "), "{said}");
    }

    fn averaging(fan_out: u32) -> Layout {
        Layout {
            policy: Policy::Averaging,
            fan_out,
        }
    }

    fn children(plan: &Plan) -> BTreeMap<Option<u32>, u32> {
        let mut children = BTreeMap::new();
        for process in &plan.processes {
            *children.entry(process.parent).or_default() += 1;
        }
        children
    }

    #[test]
    fn sixteen_thousand_nodes_make_three_levels() {
        let hosts: Vec<Host> = (0..16_384).map(|node| host(node, 1)).collect();
        let plan = Plan::make(&hosts, &averaging(32)).unwrap();
        assert_eq!((plan.cps, plan.height), (512 + 16, 3));
        let children = children(&plan);
        assert_eq!(children[&None], 16);
        assert!(
            children
                .iter()
                .all(|(parent, count)| parent.is_none() || *count == 32)
        );
    }

    #[test]
    fn few_nodes_need_no_communication_process() {
        let hosts: Vec<Host> = (0..32).map(|node| host(node, 1)).collect();
        let plan = Plan::make(&hosts, &averaging(32)).unwrap();
        assert_eq!((plan.cps, plan.height, plan.processes.len()), (0, 1, 32));
    }

    #[test]
    fn dedicated_nodes_come_first_and_high() {
        let mut hosts: Vec<Host> = (0..64).map(|node| host(node, 1)).collect();
        hosts.extend((64..74).map(|node| host(node, 0)));
        let plan = Plan::make(&hosts, &averaging(4)).unwrap();
        // 16 leaves and 4 above them: ten hosts have nothing else to do.
        assert_eq!(plan.cps, 20);
        for process in &plan.processes[..4] {
            assert!(hosts[process.host as usize].node.0 >= 64, "{process:?}");
        }
        assert!(
            plan.processes[..20]
                .iter()
                .filter(|process| process.host >= 64)
                .count()
                >= 10
        );
    }

    #[test]
    fn a_given_tree_is_taken_as_it_is() {
        let hosts: Vec<Host> = (0..6).map(|node| host(node, 1)).collect();
        let given = |text| Layout {
            policy: Policy::Given(Topology::parse(text).unwrap()),
            fan_out: 4,
        };
        let plan = Plan::make(
            &hosts,
            &given("explicit\nfe => n0:1 n3:1\nn0:1 => n1:1 n2:1"),
        )
        .unwrap();
        assert_eq!((plan.cps, plan.height, plan.local), (4, 3, 3));
        let error = Plan::make(&hosts, &given("explicit\nfe => n9:1")).unwrap_err();
        assert!(error.to_string().contains("n9"), "{error}");
        let plan = Plan::make(&hosts, &given("k-ary 2 2")).unwrap();
        assert_eq!((plan.cps, plan.height), (6, 3));
        let error = Plan::make(&hosts, &given("balanced 40")).unwrap_err();
        assert!(error.to_string().contains("memory for 24"), "{error}");
        assert_eq!(
            Plan::make(&hosts, &averaging(1)).unwrap_err(),
            PlanError::FanOut(1)
        );
    }

    proptest! {
        #[test]
        fn every_plan_is_a_tree_with_falling_heights(
            nodes in 1_u32..200, dedicated in 0_u32..10, fan_out in 2_u32..40, fuzzy: bool,
        ) {
            let hosts: Vec<Host> = (0..nodes).map(|node| host(node, u32::from(node >= dedicated))).collect();
            let policy = if fuzzy { Policy::Comprehensive(FuzzyConfig::default()) } else { Policy::Averaging };
            let plan = Plan::make(&hosts, &Layout { policy, fan_out }).unwrap();
            let mut seen = BTreeSet::new();
            for (index, process) in plan.processes.iter().enumerate() {
                prop_assert!(seen.insert((process.host, process.slot)), "one process twice");
                let above = process.parent.map_or(plan.height, |parent| plan.processes[parent as usize].height);
                prop_assert!(process.height < above);
                prop_assert!(process.parent.is_none_or(|parent| (parent as usize) < index));
            }
            for (parent, count) in children(&plan) {
                prop_assert!(count <= fan_out, "{parent:?} has {count}");
            }
            prop_assert_eq!(plan.processes.len() as u32 - plan.cps, nodes.saturating_sub(dedicated));
        }
    }
}
