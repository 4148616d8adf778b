//! Nodes by the host names of a site, as `boot.nodes_file` has them.
//!
//! Key type: [`Hosts`]. Neighbours: `nodes` reads the file; the API takes these names wherever it
//! takes nodes, and the command line asks it where a list has any (`cli::named`); `hostlist` has
//! the names of this system, `n0`; `site_tree` finds the places of a tree's hosts.
//!
//! Invariant: `n3` is node 3, whatever a site calls its machines.

use std::collections::BTreeMap;

use crate::hostlist::{self, ParseError};
use crate::near;

/// Numbers by host name, with or without the domain.
#[derive(Debug, Default)]
pub struct Hosts {
    full: BTreeMap<String, u32>,
    /// Names without domains; none where several hosts have one.
    short: BTreeMap<String, Option<u32>>,
    /// Names by number.
    names: BTreeMap<u32, String>,
}

impl Hosts {
    /// Of these.
    pub fn of<'a>(names: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut hosts = Hosts::default();
        for (name, node) in names {
            hosts.full.insert(name.to_string(), node);
            hosts.names.insert(node, name.to_string());
            let short = name.split('.').next().unwrap_or(name);
            let of_short = hosts.short.entry(short.to_string());
            of_short
                .and_modify(|node| *node = None)
                .or_insert(Some(node));
        }
        hosts
    }

    /// The number of a host.
    pub fn node(&self, name: &str) -> Option<u32> {
        let by_short = || self.short.get(name).copied().flatten();
        self.full.get(name).copied().or_else(by_short)
    }

    /// The name of a node's host.
    pub fn name(&self, node: u32) -> Option<&str> {
        self.names.get(&node).map(String::as_str)
    }

    /// The nodes of a list of names of both kinds, in the order written: `n0,tux[1-3],login`.
    ///
    /// # Errors
    /// [`ParseError`] says which part was not understood; of a host that there is not, which ones
    /// are near.
    pub fn list(&self, text: &str) -> Result<Vec<u32>, ParseError> {
        hostlist::parse_items(text, |item| match hostlist::own(item) {
            Err(ParseError::NotANode(_) | ParseError::Brackets(_)) if !self.full.is_empty() => {
                self.expand(item)
            }
            own => own,
        })
    }

    fn expand(&self, item: &str) -> Result<Vec<u32>, ParseError> {
        let names = hearth_alloc::site::host_names(item);
        let names = names
            .map_err(|wrong| ParseError::Hosts(format!("{:?}: it {}", wrong.word, wrong.what)))?;
        let number = |name: &String| {
            self.node(name).ok_or_else(|| {
                let known = self.full.keys().chain(self.short.keys());
                let mut known: Vec<&str> = known.map(String::as_str).collect();
                known.sort_unstable();
                known.dedup();
                let near = near::did_you_mean(name, known.into_iter());
                ParseError::NoHost(near::quoted(name), near)
            })
        };
        names.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_domain_is_that_of_one_host_alone() {
        let names = [("a.x", 0), ("b.x", 1), ("b.y", 2)];
        let hosts = Hosts::of(names.into_iter());
        assert_eq!(hosts.node("a"), Some(0));
        assert_eq!(hosts.node("b"), None);
        assert_eq!(hosts.node("b.y"), Some(2));
        assert_eq!((hosts.name(1), hosts.name(3)), (Some("b.x"), None));
    }

    #[test]
    fn lists_have_names_of_both_kinds() {
        let names = (1..=12).map(|number| (format!("tux{number:02}.example"), number + 10));
        let names: Vec<(String, u32)> = names.chain([("n1".to_string(), 40)]).collect();
        let hosts = Hosts::of(names.iter().map(|(name, node)| (name.as_str(), *node)));
        let list = |text: &str| hosts.list(text);
        assert_eq!(list("n[0-2],7"), Ok(vec![0, 1, 2, 7]));
        assert_eq!(list("tux03"), Ok(vec![13]));
        assert_eq!(
            list("tux[09-11],n0, tux01.example"),
            Ok(vec![19, 20, 21, 0, 11])
        );
        assert_eq!(list("tux[01,12].example"), Ok(vec![11, 22]));
        // This system's own names come first.
        assert_eq!(list("n1"), Ok(vec![1]));
        assert_eq!(list("tux01,n11"), Err(ParseError::Twice(11)));
        assert_eq!(list(""), Err(ParseError::Empty));
        assert_eq!(list("tux[01-"), Err(ParseError::Brackets("tux[01-".into())));
    }

    #[test]
    fn a_host_that_there_is_not_is_told_with_those_that_are_near() {
        let hosts = Hosts::of([("tux1", 0), ("tux2", 1), ("login", 2)].into_iter());
        let said = |text: &str| hosts.list(text).unwrap_err().to_string();
        let near = said("n0,tux3");
        assert!(
            near.contains("no node \"tux3\" (did you mean tux1 or tux2?)"),
            "{near}"
        );
        assert!(near.contains("boot.nodes_file"), "{near}");
        assert!(said("tux[1-3]").contains("\"tux3\""));
        assert!(!said("elsewhere").contains("did you mean"));
        let wrong = said("tux[3-1]");
        assert!(
            wrong.contains("\"tux[3-1]\"") && wrong.contains("backwards"),
            "{wrong}"
        );
        assert!(said("tux[1-9999999]").contains("more than"));
        // Without host names, lists are as they were.
        let none = Hosts::default();
        assert_eq!(none.list("tux1"), Err(ParseError::NotANode("tux1".into())));
        assert_eq!(none.list("n[0-1]"), Ok(vec![0, 1]));
    }
}
