//! Which nodes a job asks for, and what it says while it has none.
//!
//! Key types: [`Want`], [`WarmNodes`]. Neighbours: `queueing` asks `hearth_alloc` for nodes and
//! this for words; `nodes` knows which are in service.

use std::collections::BTreeSet;

use hearth_alloc::queue::{Held, Tie};

use super::absent;
use super::nodes::{Nodes, sorted};
use crate::hostlist;
use crate::output::count;

/// What a job asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Want {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes for them; 0: a node for each.
    pub places: u32,
    /// These nodes and no others; the first has the first ranks.
    pub nodes: Option<Vec<u32>>,
    /// Only nodes that hold its program.
    pub warm_only: bool,
    /// These nodes among others.
    pub with: Vec<u32>,
    /// None of these nodes.
    pub without: BTreeSet<u32>,
    /// Cores of each rank, so that its node has as many at least; 0: all that the node has, shared
    /// out to its ranks.
    pub cores: u16,
}

/// Nodes that hold a job's program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmNodes {
    /// In service.
    pub held: BTreeSet<u32>,
    /// Out of service, and held it when they were last heard.
    pub away: BTreeSet<u32>,
}

/// What a job that wants warm nodes alone finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Warmth {
    /// Enough, or it waits for those that it names.
    Enough,
    /// Enough if those come back that are not in service.
    Away(String),
    /// Too few: waiting does not help.
    Cold(String),
}

impl Want {
    /// How many nodes it wants.
    pub fn node_count(&self) -> u32 {
        match self.places {
            0 => self.ranks,
            places => places,
        }
    }

    /// How many ranks each of its nodes has, in the order of ranks: as many as the next one, or one
    /// more.
    pub fn ranks_of_nodes(&self) -> impl Iterator<Item = u32> {
        let nodes = self.node_count();
        let each = self.ranks.checked_div(nodes).unwrap_or(0);
        let more = self.ranks - each * nodes;
        (0..nodes).map(move |node| each + u32::from(node < more))
    }

    /// The most ranks that one of its nodes has.
    pub fn most_on_node(&self) -> u32 {
        self.ranks_of_nodes().next().unwrap_or(0)
    }

    /// Cores that each of its nodes must have; 0: any number.
    pub(super) fn node_cores(&self) -> u16 {
        let most = u16::try_from(self.most_on_node()).unwrap_or(u16::MAX);
        match (most, self.cores) {
            (0 | 1, cores) => cores,
            (most, cores) => most.saturating_mul(cores.max(1)),
        }
    }

    /// Its nodes in the order of ranks, each as often as it has ranks.
    pub(super) fn share_out(&self, nodes: &[u32]) -> Vec<u32> {
        let ranks = nodes.iter().zip(self.ranks_of_nodes());
        ranks
            .flat_map(|(node, ranks)| std::iter::repeat_n(*node, ranks as usize))
            .collect()
    }

    /// The queue's word for it. One that avoids some nodes is tied to the others
    /// ([`Want::elsewhere`]), and so is one that wants cores; `small` are nodes with too few.
    pub(super) fn tie(&self, avoids_some: bool, small: impl Iterator<Item = u32>) -> Tie {
        match &self.nodes {
            Some(nodes) => Tie::Named(nodes.clone()),
            None if self.warm_only => Tie::Warm,
            // Who names nodes has said where it may run, also where some have crashed under it.
            None if self.names_nodes() => Tie::Among {
                with: self.with.clone(),
                without: self.without.iter().copied().chain(small).collect(),
            },
            None if avoids_some || self.node_cores() > 0 => Tie::Warm,
            None => Tie::None,
        }
    }

    /// What is left of `may`, the nodes in service that it may have, where it avoids some: all of
    /// them, where there are not enough others, also with those that are about to be heard.
    pub(super) fn elsewhere(
        &self,
        may: &Held,
        avoided: &BTreeSet<u32>,
        awaited: &BTreeSet<u32>,
    ) -> Held {
        if avoided.is_disjoint(may) {
            return may.clone();
        }
        let mut others = BTreeSet::clone(may);
        for node in avoided {
            others.remove(node);
        }
        let there = others.len() + awaited.difference(avoided).count();
        match there >= self.node_count() as usize {
            true => Held::new(others),
            false => may.clone(),
        }
    }

    /// Whether it names nodes that it is to have, or not to have.
    pub(super) fn names_nodes(&self) -> bool {
        self.nodes.is_some() || !self.with.is_empty() || !self.without.is_empty()
    }

    /// Of nodes that are counted, those that it excludes.
    fn excluded(&self, is_counted: impl Fn(u32) -> bool) -> usize {
        let excluded = self.without.iter().filter(|node| is_counted(**node));
        excluded.count()
    }

    /// Whether enough nodes hold the program; busy ones will be free.
    pub(super) fn warmth(&self, nodes: &Nodes, warm: &WarmNodes) -> Warmth {
        let advice = "run it once without --warm-only";
        if let Some(named) = &self.nodes {
            let held = |node: &&u32| warm.held.contains(node);
            let cold = sorted(named.iter().filter(|node| !held(node)).copied().collect());
            if cold.iter().all(|node| warm.away.contains(node)) {
                return match cold.is_empty() {
                    true => Warmth::Enough,
                    false => Warmth::Away(format!("{} not in service", hostlist::format(&cold))),
                };
            }
            return Warmth::Cold(format!(
                "{} of the {} nodes named hold the program warm, {} not; {advice}",
                named.len() - cold.len(),
                named.len(),
                hostlist::format(&cold)
            ));
        }
        let in_service = |node: &&u32| nodes.machine.is_in_service(**node);
        let held: Vec<u32> = warm.held.iter().filter(in_service).copied().collect();
        if held.len() >= self.node_count() as usize {
            return Warmth::Enough;
        }
        let which = match held.len() {
            0 => "no node holds the program warm".to_string(),
            1 => format!(
                "1 node holds the program warm ({})",
                hostlist::format(&held)
            ),
            many => format!(
                "{many} nodes hold the program warm ({})",
                hostlist::format(&held)
            ),
        };
        let short = format!(
            "{} needed, but {which}",
            count(self.node_count(), "warm node")
        );
        // One that is drained or ends an old job comes back as one that is away does.
        let out = warm.held.iter().filter(|node| !in_service(node));
        let away: Vec<u32> = warm.away.iter().chain(out).copied().collect();
        if held.len() + away.len() >= self.node_count() as usize {
            let list = hostlist::format(&sorted(away));
            return Warmth::Away(format!("{short}; {list} did and is not in service"));
        }
        Warmth::Cold(format!("{short}; {advice}, or use a smaller -n"))
    }

    /// Why there are no nodes for it, though there would be if no job ran.
    pub(super) fn lacks(&self, nodes: &Nodes, warm: &WarmNodes) -> String {
        if let Some(named) = &self.nodes {
            let busy = named.iter().filter(|node| !nodes.machine.is_free(**node));
            let busy = sorted(busy.copied().collect());
            return format!("{} busy", hostlist::format(&busy));
        }
        let free =
            |node: &&u32| nodes.machine.is_in_service(**node) && nodes.machine.is_free(**node);
        if self.warm_only {
            let free = warm.held.iter().filter(free).count();
            return format!(
                "{} needed, {free} free",
                count(self.node_count(), "warm node")
            );
        }
        let machine = &nodes.machine;
        let busy = self.with.iter().filter(|node| !machine.is_free(**node));
        let busy: Vec<u32> = busy.copied().collect();
        if !busy.is_empty() {
            return format!("{} busy", hostlist::format(&sorted(busy)));
        }
        let free = machine.free_nodes() - self.excluded(|node| machine.is_free(node));
        let text = format!("{} needed, {free} free", count(self.node_count(), "node"));
        // As many as it wants may be free, and no unit as a whole.
        match free >= self.node_count() as usize && machine.unit() > 1 {
            true => format!(
                "{text}, but nodes are given out in units of {}, of which {} are free",
                machine.unit(),
                machine.free_units()
            ),
            false => text,
        }
    }

    /// Why there would be no nodes for it if no job ran, and how they come back; `up` are in
    /// service, why others are not says `out`. `awaited`: control has just started, and nodes are
    /// about to be heard.
    pub(super) fn misses(&self, nodes: &Nodes, (up, out): (usize, &str), awaited: bool) -> String {
        let is_out = |node: &u32| nodes.absence(*node).is_some();
        let named = self.nodes.as_ref().unwrap_or(&self.with);
        let missing = sorted(named.iter().copied().filter(is_out).collect());
        if self.nodes.is_some() || !missing.is_empty() {
            let out = absent::told(nodes, missing.iter().copied(), awaited);
            return format!("{} not in service: {out}", hostlist::format(&missing));
        }
        let excluded = self.excluded(|node| nodes.machine.is_in_service(node));
        let needed = count(self.node_count(), "node");
        let reason = match up.saturating_sub(excluded) {
            _ if excluded == 0 => format!("{needed} needed, {up} in service"),
            0 => format!("{needed} needed, but -x (--exclude) leaves none of the {up} in service"),
            left => format!("{needed} needed, but -x (--exclude) leaves {left} of {up} in service"),
        };
        match out.is_empty() {
            true => reason,
            false => format!("{reason}; {out}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// n0 has a job, n2 is not in service, the others are free.
    fn cluster() -> Nodes {
        let mut nodes = Nodes::new(None, None, 1).unwrap();
        for node in 0..5 {
            nodes.set_up(node, node != 2);
        }
        nodes.machine.take(9, &[0]);
        nodes
    }

    fn want(ranks: u32, nodes: Option<Vec<u32>>) -> Want {
        Want {
            ranks,
            nodes,
            ..Want::default()
        }
    }

    fn holding(held: &[u32], away: &[u32]) -> WarmNodes {
        WarmNodes {
            held: held.iter().copied().collect(),
            away: away.iter().copied().collect(),
        }
    }

    #[test]
    fn busy_and_absent_nodes_are_told_apart() {
        let mut nodes = cluster();
        let none = WarmNodes::default();
        assert_eq!(want(4, None).lacks(&nodes, &none), "4 nodes needed, 3 free");
        assert_eq!(want(1, None).lacks(&nodes, &none), "1 node needed, 3 free");
        let named = want(2, Some(vec![1, 0]));
        assert_eq!(named.lacks(&nodes, &none), "n0 busy");
        nodes.note_left(2);
        let out = absent::told(&nodes, nodes.with_place(), false);
        let all = (nodes.in_service(), &out[..]);
        assert_eq!(
            want(5, None).misses(&nodes, all, false),
            "5 nodes needed, 4 in service; n2 left in good order, `hearth node reset n2` or its power switch starts it again"
        );
        let named = want(3, Some(vec![7, 0, 2]));
        let text = named.misses(&nodes, all, false);
        assert!(text.starts_with("n[2,7] not in service: n2 left"), "{text}");
        assert!(text.contains("; n7 has not joined"), "{text}");
    }

    #[test]
    fn nodes_that_it_must_and_must_not_have_are_told() {
        let (nodes, none) = (cluster(), WarmNodes::default());
        let with = Want {
            with: vec![3, 0],
            ..want(2, None)
        };
        assert_eq!(with.lacks(&nodes, &none), "n0 busy");
        let without = Want {
            without: BTreeSet::from([0, 1, 2]),
            ..want(3, None)
        };
        assert_eq!(without.lacks(&nodes, &none), "3 nodes needed, 2 free");
        let text = without.misses(&nodes, (4, ""), false);
        assert_eq!(
            text,
            "3 nodes needed, but -x (--exclude) leaves 2 of 4 in service"
        );
        let all = Want {
            without: BTreeSet::from([0, 1, 2, 3, 4, 5]),
            ..want(1, None)
        };
        let text = all.misses(&nodes, (4, "n2 is lost"), false);
        assert_eq!(
            text,
            "1 node needed, but -x (--exclude) leaves none of the 4 in service; n2 is lost"
        );
        let away = Want {
            with: vec![2, 3],
            ..want(2, None)
        };
        let text = away.misses(&nodes, (4, ""), false);
        assert!(text.starts_with("n2 not in service: "), "{text}");
        assert_eq!(want(1, None).tie(false, [].into_iter()), Tie::None);
        let small = || [2, 7].into_iter();
        let Tie::Among { without, .. } = away.tie(true, small()) else {
            panic!("it names nodes");
        };
        assert_eq!(without, BTreeSet::from([2, 7]));
        let cores = Want {
            cores: 4,
            ..want(1, None)
        };
        assert_eq!(cores.tie(false, small()), Tie::Warm);
    }

    #[test]
    fn ranks_are_shared_out_to_nodes_in_blocks() {
        let ranks = |ranks, places, cores| Want {
            ranks,
            places,
            cores,
            ..Want::default()
        };
        let alone = ranks(3, 0, 0);
        assert_eq!((alone.node_count(), alone.node_cores()), (3, 0));
        assert_eq!(alone.share_out(&[7, 5, 6]), [7, 5, 6]);
        assert_eq!(ranks(3, 0, 2).node_cores(), 2);
        let even = ranks(8, 2, 2);
        assert_eq!((even.node_count(), even.node_cores()), (2, 8));
        assert_eq!(even.share_out(&[4, 1]), [4, 4, 4, 4, 1, 1, 1, 1]);
        let uneven = ranks(7, 3, 0);
        assert_eq!(uneven.ranks_of_nodes().collect::<Vec<_>>(), [3, 2, 2]);
        // Each rank has a core at least.
        assert_eq!(uneven.node_cores(), 3);
    }

    #[test]
    fn free_nodes_that_are_no_unit_are_told() {
        let tree = hearth_alloc::topology::Topology::new(&[4]).unwrap();
        let mut nodes = Nodes::new(Some(tree), None, 2).unwrap();
        (0..4).for_each(|node| nodes.set_up(node, true));
        nodes.machine.take(9, &[0]);
        nodes.machine.take(10, &[2]);
        assert_eq!(
            want(2, None).lacks(&nodes, &WarmNodes::default()),
            "2 nodes needed, 2 free, but nodes are given out in units of 2, of which 0 are free"
        );
    }

    #[test]
    fn warm_only_waits_for_busy_nodes_but_not_for_cold_ones() {
        let nodes = cluster();
        let ask = |ranks, named, warm: &[u32], away: &[u32]| {
            let want = Want {
                warm_only: true,
                ..want(ranks, named)
            };
            let warm = holding(warm, away);
            (want.warmth(&nodes, &warm), want.lacks(&nodes, &warm))
        };
        assert_eq!(ask(1, None, &[3], &[]).0, Warmth::Enough);
        let (warmth, lacks) = ask(2, None, &[0, 3], &[]);
        assert_eq!(warmth, Warmth::Enough);
        assert_eq!(lacks, "2 warm nodes needed, 1 free");
        let Warmth::Cold(text) = ask(3, None, &[0, 3], &[]).0 else {
            panic!("nobody else will hold it")
        };
        assert!(
            text.starts_with("3 warm nodes needed, but 2 nodes"),
            "{text}"
        );
        assert!(
            text.contains("n[0,3]") && text.contains("--warm-only"),
            "{text}"
        );
        let Warmth::Cold(text) = ask(1, None, &[], &[]).0 else {
            panic!("nobody holds it")
        };
        assert!(text.contains("no node holds"), "{text}");
        let Warmth::Cold(text) = ask(2, Some(vec![4, 1]), &[1], &[]).0 else {
            panic!("n4 does not hold it")
        };
        assert!(
            text.starts_with("1 of the 2 nodes named") && text.contains("n4 not"),
            "{text}"
        );
        assert_eq!(ask(1, Some(vec![4]), &[4], &[]).0, Warmth::Enough);
    }

    #[test]
    fn warm_only_waits_for_nodes_that_held_the_program_and_are_away() {
        let nodes = cluster();
        let ask = |ranks, named, away: &[u32]| {
            let want = Want {
                warm_only: true,
                ..want(ranks, named)
            };
            want.warmth(&nodes, &holding(&[3], away))
        };
        let Warmth::Away(text) = ask(2, None, &[2]) else {
            panic!("n2 may come back")
        };
        assert!(
            text.contains("n3") && text.contains("n2 did and is not in service"),
            "{text}"
        );
        assert!(matches!(ask(3, None, &[2]), Warmth::Cold(_)));
        assert_eq!(
            ask(2, Some(vec![2, 3]), &[2]),
            Warmth::Away("n2 not in service".to_string())
        );
    }
}
