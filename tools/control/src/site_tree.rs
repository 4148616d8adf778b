//! The shape of the network as it is configured: widths, or a file of the site's own tree.
//!
//! Key types: [`Shape`] (what `--tree` and `serve.tree` take), [`Network`] (what comes of it).
//! Neighbours: `hearth_alloc::site` reads the file, `hosts` has the host names of the list of
//! nodes, `serve` hands the tree on.
//!
//! Invariant: in a site's own tree, the number of a node is its place.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use hearth_alloc::site::{Site, Wired};
use hearth_qemu::Tree;

use crate::hostlist;
use crate::hosts::Hosts;
use crate::nodes::{NODES_MAX, NodeTable};

/// Most bytes of a file: some hundred for each of the most nodes.
const FILE_MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What `--tree` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Widths from the leaves up, as in 4x2.
    Widths(Tree),
    /// A file as Slurm's topology.conf.
    File(PathBuf),
}

impl FromStr for Shape {
    type Err = hearth_qemu::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A file that is named so is written ./4x2.
        let is_file = text.contains(['/', '.']);
        match is_file {
            true => Ok(Shape::File(text.into())),
            false => text.parse().map(Shape::Widths),
        }
    }
}

/// The tree that nodes are in.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its widths.
    pub tree: Tree,
    /// The nodes that the site's file names; none: every place has one.
    pub places: Option<BTreeSet<u32>>,
}

impl Network {
    /// The tree of this shape. Host names in its file are those of the list of nodes.
    ///
    /// # Errors
    /// A file cannot be read, or what is wrong with it by line and word.
    pub fn of(shape: &Shape, nodes_file: Option<&Path>) -> anyhow::Result<Self> {
        let path = match shape {
            Shape::Widths(tree) => {
                return Ok(Network {
                    tree: tree.clone(),
                    places: None,
                });
            }
            Shape::File(path) => path,
        };
        let hosts = match nodes_file {
            Some(file) => Hosts::of(NodeTable::fixed(file)?.names()),
            None => Hosts::default(),
        };
        let wired = read(path, |site| {
            Ok(site.with_numbers(|name| hosts.node(name).or_else(|| own(name)))?)
        })?;
        let widths: Vec<String> = wired.widths.iter().map(u32::to_string).collect();
        Ok(Network {
            tree: widths.join("x").parse()?,
            places: Some(wired.nodes.into_keys().collect()),
        })
    }
}

/// Reads a site's tree of switches, and does something with it.
///
/// # Errors
/// Errors of the file have its name.
pub fn read(
    path: &Path,
    give_places: impl FnOnce(&Site) -> anyhow::Result<Wired>,
) -> anyhow::Result<Wired> {
    let shown = path.display();
    let read = || {
        let mut text = String::new();
        std::fs::File::open(path)?
            .take(FILE_MAX_BYTES)
            .read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = read().with_context(|| {
        format!("cannot read the tree {shown} (a tree is widths, as in 4x2, or a file)")
    })?;
    let site = Site::read(&text).with_context(|| shown.to_string())?;
    let wired = give_places(&site).with_context(|| shown.to_string())?;
    let highest = wired.nodes.keys().next_back().copied().unwrap_or(0);
    if highest as usize >= NODES_MAX {
        bail!("{shown}: a node would be n{highest}; a cluster has at most {NODES_MAX}");
    }
    Ok(wired)
}

/// The number of a node by the name that it has here.
pub fn own(name: &str) -> Option<u32> {
    let number = name.strip_prefix('n')?.parse().ok()?;
    (hostlist::name(number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(tree: &str, nodes: &str) -> Result<Network, String> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let shape = Shape::File(write("topology.conf", tree));
        let nodes = (!nodes.is_empty()).then(|| write("nodes", nodes));
        Network::of(&shape, nodes.as_deref()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_tree_is_widths_or_a_file() {
        assert!(matches!("4x2".parse(), Ok(Shape::Widths(_))));
        for file in ["topology.conf", "./4x2", "/etc/slurm/topology"] {
            assert_eq!(file.parse::<Shape>().unwrap(), Shape::File(file.into()));
        }
        assert!("4xb".parse::<Shape>().is_err());
        let error = Network::of(&Shape::File("/no/such.conf".into()), None).unwrap_err();
        assert!(error.to_string().contains("/no/such.conf"), "{error}");
    }

    #[test]
    fn hosts_stand_where_the_file_has_them() {
        let tree = "SwitchName=a Nodes=tux[1-2]\nSwitchName=b Nodes=tux[3-5]\n\
                    SwitchName=c Switches=a,b\n";
        let line = |mac: u32, node: u32, name: &str| {
            format!("52:54:00:00:00:0{mac} 10.0.0.{mac} {node} {name}\n")
        };
        let nodes: String = [(1, 0), (2, 1), (3, 3), (4, 4), (5, 5)]
            .map(|(mac, node)| line(mac, node, &format!("tux{mac}.example")))
            .concat();
        let network_of = network(tree, &nodes).unwrap();
        assert_eq!(network_of.tree.to_string(), "3x2");
        let places = network_of.places.unwrap();
        assert_eq!(Vec::from_iter(places), [0, 1, 3, 4, 5]);
        // The third host has the number of the first switch.
        let wrong = nodes.replace("10.0.0.3 3 ", "10.0.0.3 2 ");
        let error = network(tree, &wrong).unwrap_err();
        assert!(
            error.contains("topology.conf: line 2: `tux3` is node 2"),
            "{error}"
        );
        let error = network(tree, "").unwrap_err();
        assert!(error.contains("line 1: `tux1` is no node"), "{error}");
        // Without a list of nodes, their own names do.
        let own =
            "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[4-7]\nSwitchName=c Switches=a,b\n";
        assert_eq!(network(own, "").unwrap().tree.to_string(), "4x2");
        let deep: String = (0..5)
            .map(|level| format!("SwitchName=s{level} Switches=s{}\n", level + 1))
            .collect();
        let error = network(&format!("{deep}SwitchName=s5 Nodes=n0\n"), "").unwrap_err();
        assert!(error.contains("at most 4 levels"), "{error}");
    }

    #[test]
    fn own_names_are_written_in_one_way() {
        assert_eq!((own("n7"), own("n07"), own("x7")), (Some(7), None, None));
    }
}
