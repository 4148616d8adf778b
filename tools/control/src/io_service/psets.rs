//! Which nodes call which I/O service: each service has a *pset*, nodes that stand beside one
//! another, as on Blue Gene.
//!
//! Key function: [`service_of`]. Neighbour: `services` asks when a job starts; what a job was told
//! then stays as it is until its end.
//!
//! Invariant: sizes of psets differ by one node at most.

/// Nodes of a pset for which a service is made: windows and buffers are of that size. Where there
/// are too few services, psets are larger, and their nodes slower.
pub const PSET_NODES: usize = 64;

/// The place of a node's service among `services` of them. `known` are the numbers of all nodes,
/// ascending; a node that is not among them is where it would be.
pub fn service_of(node: u32, known: &[u32], services: usize) -> usize {
    let place = known.partition_point(|other| *other < node);
    let place = place.min(known.len().saturating_sub(1));
    place * services / known.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_service_and_none_has_more_than_its_share() {
        for (nodes, services) in [(4, 2), (5, 4), (3, 7), (64, 1), (1000, 16), (1, 1)] {
            // Numbers with holes.
            let known: Vec<u32> = (0..nodes).map(|node| node * 3).collect();
            let of: Vec<usize> = known
                .iter()
                .map(|node| service_of(*node, &known, services))
                .collect();
            assert!(
                of.is_sorted() && of.iter().all(|of| *of < services),
                "{of:?}"
            );
            let size = |service| of.iter().filter(|of| **of == service).count();
            let sizes: Vec<usize> = (0..services).map(size).collect();
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn a_node_that_is_new_has_a_service() {
        assert_eq!(service_of(9, &[0, 1, 2, 3], 2), 1);
        assert_eq!(service_of(0, &[], 3), 0);
    }
}
