//! Which machine is which node: numbers by MAC address, kept over a restart.
//!
//! Key type: [`NodeTable`]. Neighbours: `boot` (personalities), `control` (states).
//!
//! Invariant: a MAC address keeps its number for the life of the state directory; two MAC
//! addresses never have the same.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::events::mac_text;

/// Most nodes of a cluster; the protocol endpoint's own bound.
pub const NODES_MAX: usize = 32_768;

/// One machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// MAC address.
    pub mac: [u8; 6],
    /// Fixed address, if it has one.
    pub address: Option<Ipv4Addr>,
    /// Node number.
    pub node: u32,
}

/// Why the table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read the list of nodes {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error(
        "{path}, line {line}: {what}; write one `MAC ADDRESS NODE` a line, as in `52:54:00:07:00:00 10.117.1.0 0`"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The file that control keeps itself is damaged.
    #[error("{path} is damaged ({what}); delete it and nodes are numbered anew as they boot")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Why a machine has no number.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NumberError {
    /// The list of nodes is fixed and does not have it.
    #[error("{0} is not in the list of nodes; add it to the file given as boot.nodes_file")]
    NotListed(String),
    /// The table is at its bound.
    #[error("{0} would be one node more than the {NODES_MAX} that a cluster can have")]
    TooMany(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    mac: String,
    node: u32,
}

/// Numbers by MAC address.
#[derive(Debug, Default)]
pub struct NodeTable {
    machines: BTreeMap<[u8; 6], Machine>,
    /// Where numbers given out are kept; none when the list is fixed.
    file: Option<PathBuf>,
}

impl NodeTable {
    /// The fixed list in `file`: one `MAC ADDRESS NODE` a line, `#` begins a comment.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn fixed(file: &Path) -> Result<Self, TableError> {
        let text = std::fs::read_to_string(file).map_err(|source| TableError::Read {
            path: file.into(),
            source,
        })?;
        let mut table = NodeTable::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |what: String| TableError::Line {
                path: file.into(),
                line: index + 1,
                what,
            };
            let machine = parse_line(line).map_err(wrong)?;
            if table
                .machines
                .values()
                .any(|known| known.node == machine.node)
            {
                return Err(wrong(format!("node {} is listed twice", machine.node)));
            }
            if table.machines.insert(machine.mac, machine).is_some() {
                return Err(wrong(format!("{} is listed twice", mac_text(machine.mac))));
            }
            if table.machines.len() > NODES_MAX {
                return Err(wrong(format!("more than {NODES_MAX} nodes")));
            }
        }
        Ok(table)
    }

    /// A table that gives out numbers in the order of first boots and keeps them in `file`.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn growing(file: &Path) -> Result<Self, TableError> {
        let mut table = NodeTable {
            machines: BTreeMap::new(),
            file: Some(file.into()),
        };
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(table),
            Err(source) => {
                return Err(TableError::Read {
                    path: file.into(),
                    source,
                });
            }
        };
        let damaged = |what: String| TableError::Damaged {
            path: file.into(),
            what,
        };
        let saved: Vec<Saved> =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        for Saved { mac, node } in saved {
            let mac =
                hearth_boot::Mac::from_str(&mac).map_err(|error| damaged(error.to_string()))?;
            table.machines.insert(
                mac.0,
                Machine {
                    mac: mac.0,
                    address: None,
                    node,
                },
            );
        }
        Ok(table)
    }

    /// Whether only listed machines are nodes.
    pub fn is_fixed(&self) -> bool {
        self.file.is_none()
    }

    /// All machines, by MAC address.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// The machine that is node `node`.
    pub fn by_node(&self, node: u32) -> Option<&Machine> {
        self.machines.values().find(|machine| machine.node == node)
    }

    /// The number of a machine; a new one for a new machine if the table may grow.
    ///
    /// # Errors
    /// [`NumberError`].
    pub fn number(&mut self, mac: [u8; 6]) -> Result<u32, NumberError> {
        if let Some(machine) = self.machines.get(&mac) {
            return Ok(machine.node);
        }
        if self.is_fixed() {
            return Err(NumberError::NotListed(mac_text(mac)));
        }
        if self.machines.len() >= NODES_MAX {
            return Err(NumberError::TooMany(mac_text(mac)));
        }
        let taken: std::collections::BTreeSet<u32> =
            self.machines.values().map(|machine| machine.node).collect();
        let node = (0..)
            .find(|node| !taken.contains(node))
            .expect("the table is bounded");
        self.note(mac, node);
        Ok(node)
    }

    /// Keeps what a node that joined by its own key says about itself.
    pub fn note(&mut self, mac: [u8; 6], node: u32) {
        if self.machines.contains_key(&mac) || self.by_node(node).is_some() {
            return;
        }
        self.machines.insert(
            mac,
            Machine {
                mac,
                address: None,
                node,
            },
        );
        if let Err(error) = self.save() {
            tracing::warn!(
                "cannot keep the numbers of nodes: {error}; they may change after a restart"
            );
        }
    }

    fn save(&self) -> std::io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let saved: Vec<Saved> = self
            .machines
            .values()
            .map(|machine| Saved {
                mac: mac_text(machine.mac),
                node: machine.node,
            })
            .collect();
        let new = file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec_pretty(&saved)?)?;
        std::fs::rename(&new, file)
    }
}

fn parse_line(line: &str) -> Result<Machine, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [mac, address, node] = words.as_slice() else {
        return Err(format!("{} words instead of three", words.len()));
    };
    let mac = hearth_boot::Mac::from_str(mac).map_err(|error| error.to_string())?;
    let address = address
        .parse()
        .map_err(|_| format!("{address:?} is not an IPv4 address"))?;
    let node = node.strip_prefix('n').unwrap_or(node);
    let node = node
        .parse()
        .map_err(|_| format!("{node:?} is not a node number"))?;
    Ok(Machine {
        mac: mac.0,
        address: Some(address),
        node,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        let mut table = NodeTable::growing(&path).unwrap();
        assert_eq!(table.number([2, 0, 0, 0, 0, 9]), Ok(0));
        assert_eq!(table.number([2, 0, 0, 0, 0, 1]), Ok(1));
        assert_eq!(table.number([2, 0, 0, 0, 0, 9]), Ok(0));
        let mut table = NodeTable::growing(&path).unwrap();
        assert_eq!(table.number([2, 0, 0, 0, 0, 1]), Ok(1));
        assert_eq!(table.number([2, 0, 0, 0, 0, 2]), Ok(2));
        std::fs::write(&path, "[{").unwrap();
        assert!(matches!(
            NodeTable::growing(&path),
            Err(TableError::Damaged { .. })
        ));
    }

    #[test]
    fn a_fixed_list_is_read_and_not_extended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes");
        let text = "# two\n52:54:00:07:00:00 10.117.1.0 0\n\n52:54:00:07:00:01 10.117.1.1 n1 # b\n";
        std::fs::write(&path, text).unwrap();
        let mut table = NodeTable::fixed(&path).unwrap();
        assert_eq!(table.number([0x52, 0x54, 0, 7, 0, 1]), Ok(1));
        assert_eq!(
            table.by_node(1).unwrap().address,
            Some(Ipv4Addr::new(10, 117, 1, 1))
        );
        let unknown = table.number([2; 6]);
        assert_eq!(
            unknown,
            Err(NumberError::NotListed("02:02:02:02:02:02".into()))
        );
        for (text, word) in [
            ("52:54:00:07:00:00 10.117.1.0", "line 1"),
            ("52:54:00:07:00:00 10.117.1 0", "10.117.1"),
            ("\n52:54:00:07:00 10.117.1.0 0", "line 2"),
            (
                "52:54:00:07:00:00 10.1.1.0 0\n52:54:00:07:00:01 10.1.1.1 0",
                "twice",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = NodeTable::fixed(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
