//! `hearth up --nic`: which node gets which network card.
//!
//! Key function: [`parse`]. Neighbours: `hearth_qemu::Cards` is what comes out, `hostlist` reads
//! names of nodes.
//!
//! Invariant: a node is named once at most.

use anyhow::bail;
use hearth_qemu::{Card, Cards};

use crate::hostlist;

/// `e1000e` for all nodes, `n0=e1000,n[1-2]=e1000e` for some, `virtio,n0=e1000` for both.
pub fn parse(text: &str) -> anyhow::Result<Cards> {
    let mut cards = Cards::default();
    let mut usual = None;
    for item in hostlist::split_outside_brackets(text)? {
        let Some((nodes, card)) = item.split_once('=') else {
            if usual.replace(item.parse::<Card>()?).is_some() {
                bail!("two network cards for all nodes; name one, or nodes for each: n0=e1000");
            }
            continue;
        };
        let card = card.trim().parse()?;
        for node in hostlist::parse(nodes.trim())? {
            if cards.of.insert(node, card).is_some() {
                bail!("n{node} has two network cards; name each node once");
            }
        }
    }
    if usual.is_none() && cards.of.is_empty() {
        bail!("no network card is named; write e1000e, or n0=e1000,n[1-2]=e1000e");
    }
    cards.usual = usual.unwrap_or_default();
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_for_all_nodes_or_for_some() {
        let of = |text: &str| {
            let cards = parse(text).unwrap();
            [0, 1, 2, 3].map(|node| cards.of(node).name())
        };
        assert_eq!(of("e1000e"), ["e1000e"; 4]);
        let mixed = ["e1000", "e1000e", "e1000e", "virtio"];
        assert_eq!(of("n0=e1000,n[1-2]=e1000e"), mixed);
        assert_eq!(
            of("n[0,2]=e1000, e1000e"),
            ["e1000", "e1000e", "e1000", "e1000e"]
        );
    }

    #[test]
    fn what_is_no_card_is_said() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert!(said("").contains("no network card is named"));
        assert!(said("ne2k").contains("virtio, e1000"));
        assert!(said("n0=").contains("virtio, e1000"));
        assert!(said("e1000,virtio").contains("two network cards for all"));
        assert!(said("n0=e1000,n[0-1]=virtio").contains("n0 has two"));
        assert!(said("m=e1000").contains("not a node name"));
        assert!(said("n[0=e1000").contains("brackets"));
    }
}
