//! Which machine is which node: numbers by MAC address, kept over a restart.
//!
//! Key type: [`NodeTable`]. Neighbours: `boot` (personalities), `control` (states), `ledger` (keeps
//! the numbers of machines that joined), `import` (files of earlier versions).
//!
//! Invariant: a machine that has joined keeps its number for the life of the state directory; two
//! machines never have the same. A machine that only asked for one does not use it up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::clock;
use crate::config::{self, AdmissionMode};
use crate::events::mac_text;
use crate::principal::Operator;

/// Most nodes of a cluster; the protocol endpoint's own bound.
pub const NODES_MAX: usize = 32_768;

/// Machines that asked for a personality and have not joined, whose numbers are kept for them: a
/// rack that is switched on together. One more takes the number of the one that asked first.
const ASKED_MAX: usize = 4_096;

/// Machines that wait for approval, as far as they are listed: a few racks. One more takes the
/// place of the one that asked longest ago; who still wants to join asks again within seconds.
pub const WAITING_MAX: usize = 256;

/// A machine that asked to join and waits for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// When it asked first, in microseconds since 1970.
    pub since_unix_us: u64,
    /// When it asked last.
    pub asked_unix_us: u64,
    /// The number that it claims, with a laboratory key.
    pub node: Option<u32>,
}

/// Which machines may be nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Admission {
    /// Every one.
    #[default]
    Open,
    /// These.
    List(BTreeSet<[u8; 6]>),
    /// Those with a number.
    Approve,
}

impl Admission {
    /// As configured.
    pub fn of(config: &config::Admission) -> Self {
        match config.mode {
            AdmissionMode::Open => Admission::Open,
            AdmissionMode::List => {
                Admission::List(config.machines.iter().map(|mac| mac.0).collect())
            }
            AdmissionMode::Approve => Admission::Approve,
        }
    }
}

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
        "{path}, line {line}: {what}; write one `MAC ADDRESS NODE` a line, and the host name behind it if you like, as in `52:54:00:07:00:00 10.117.1.0 0 tux1`"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
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
    /// The configuration does not have it.
    #[error("{0} is not among admission.machines; add it there and start the control node again")]
    NotAdmitted(String),
    /// Nobody has approved of it.
    #[error("{0} waits for approval; `hearth node approve {0}` lets it join")]
    Waits(String),
    /// Another machine has the number that it claims.
    #[error(
        "{mac} claims to be n{node}, which another machine is; make its key for another number"
    )]
    NumberTaken {
        /// The machine.
        mac: String,
        /// The number.
        node: u32,
    },
    /// The table is at its bound.
    #[error("{0} would be one node more than the {NODES_MAX} that a cluster can have")]
    TooMany(String),
}

/// Numbers by MAC address.
#[derive(Debug, Default)]
pub struct NodeTable {
    /// Machines that are listed or have joined.
    machines: BTreeMap<[u8; 6], Machine>,
    /// Their numbers.
    numbers: BTreeSet<u32>,
    /// Machines that asked and have not joined, the oldest first.
    asked: VecDeque<([u8; 6], u32)>,
    /// Only listed machines are nodes.
    fixed: bool,
    admission: Admission,
    /// Machines that wait for approval.
    waiting: BTreeMap<[u8; 6], Waiting>,
    /// Nodes by the host names that the fixed list has.
    names: BTreeMap<String, u32>,
}

impl NodeTable {
    /// The fixed list in `file`: one `MAC ADDRESS NODE` a line, and a host name behind it where
    /// there is one; `#` begins a comment.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn fixed(file: &Path) -> Result<Self, TableError> {
        let text = std::fs::read_to_string(file).map_err(|source| TableError::Read {
            path: file.into(),
            source,
        })?;
        let mut table = NodeTable {
            fixed: true,
            ..NodeTable::default()
        };
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
            let (machine, name) = parse_line(line).map_err(wrong)?;
            if let Some(name) = name
                && table.names.insert(name.to_string(), machine.node).is_some()
            {
                return Err(wrong(format!("{name} is listed twice")));
            }
            if !table.numbers.insert(machine.node) {
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

    /// A table that gives out numbers in the order of first boots, and in which `machines` have
    /// theirs.
    pub fn growing(machines: impl IntoIterator<Item = Machine>) -> Self {
        let mut table = NodeTable::default();
        for machine in machines {
            table.insert(machine);
        }
        table
    }

    /// The table with another rule of which machines may be nodes.
    pub fn admitting(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// The machines that may join; none: any machine with a key.
    pub fn admitted(&self) -> Option<BTreeSet<[u8; 6]>> {
        match &self.admission {
            Admission::Open => None,
            Admission::List(list) => Some(list.clone()),
            Admission::Approve => Some(self.machines.keys().copied().collect()),
        }
    }

    /// Machines that wait for approval, by MAC address.
    pub fn waiting(&self) -> impl Iterator<Item = ([u8; 6], &Waiting)> {
        self.waiting.iter().map(|(mac, waiting)| (*mac, waiting))
    }

    /// A machine asked to join and may not; `node` is the number that it claims, if it does.
    /// Whether it waits for approval.
    pub fn note_waiting(&mut self, mac: [u8; 6], node: Option<u32>, now_unix_us: u64) -> bool {
        let may_be_approved = self.admission == Admission::Approve && !self.fixed;
        if !may_be_approved || self.machines.contains_key(&mac) {
            return false;
        }
        if self.waiting.len() >= WAITING_MAX && !self.waiting.contains_key(&mac) {
            let oldest = self.waiting.iter().min_by_key(|(_, of)| of.asked_unix_us);
            if let Some(oldest) = oldest.map(|(mac, _)| *mac) {
                self.waiting.remove(&oldest);
            }
        }
        let waiting = self.waiting.entry(mac).or_insert(Waiting {
            since_unix_us: now_unix_us,
            asked_unix_us: now_unix_us,
            node,
        });
        waiting.asked_unix_us = now_unix_us;
        waiting.node = node.or(waiting.node);
        true
    }

    /// Lets a machine be a node, by an operator's word, and gives its number.
    ///
    /// # Errors
    /// [`NumberError`].
    pub fn approve(&mut self, _: &Operator<'_>, mac: [u8; 6]) -> Result<u32, NumberError> {
        if matches!(&self.admission, Admission::List(list) if !list.contains(&mac)) {
            return Err(NumberError::NotAdmitted(mac_text(mac)));
        }
        let claimed = self.waiting.get(&mac).and_then(|waiting| waiting.node);
        let node = match (self.machines.get(&mac), claimed) {
            (Some(machine), _) => machine.node,
            (None, _) if self.fixed => return Err(NumberError::NotListed(mac_text(mac))),
            (None, Some(node)) if self.numbers.contains(&node) => {
                let mac = mac_text(mac);
                return Err(NumberError::NumberTaken { mac, node });
            }
            (None, Some(node)) => node,
            (None, None) => self.free_number(mac)?,
        };
        self.joined(mac, node);
        Ok(node)
    }

    /// Whether only listed machines are nodes.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// The host names of the fixed list, with the numbers of their nodes.
    pub fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(name, node)| (name.as_str(), *node))
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
        if matches!(&self.admission, Admission::List(list) if !list.contains(&mac)) {
            return Err(NumberError::NotAdmitted(mac_text(mac)));
        }
        if let Some(machine) = self.machines.get(&mac) {
            return Ok(machine.node);
        }
        if self.is_fixed() {
            return Err(NumberError::NotListed(mac_text(mac)));
        }
        if self.note_waiting(mac, None, clock::unix_us()) {
            return Err(NumberError::Waits(mac_text(mac)));
        }
        if let Some((_, node)) = self.asked.iter().find(|(asked, _)| *asked == mac) {
            return Ok(*node);
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.pop_front();
        }
        let node = self.free_number(mac)?;
        self.asked.push_back((mac, node));
        Ok(node)
    }

    /// The lowest number that no machine has.
    fn free_number(&self, mac: [u8; 6]) -> Result<u32, NumberError> {
        let asked: BTreeSet<u32> = self.asked.iter().map(|(_, node)| *node).collect();
        let free = |node: &u32| !self.numbers.contains(node) && !asked.contains(node);
        let node = (0..NODES_MAX as u32).find(free);
        node.ok_or_else(|| NumberError::TooMany(mac_text(mac)))
    }

    /// Keeps the number of a machine that has joined.
    pub fn joined(&mut self, mac: [u8; 6], node: u32) {
        self.waiting.remove(&mac);
        self.asked.retain(|(asked, _)| *asked != mac);
        self.insert(Machine {
            mac,
            address: None,
            node,
        });
    }

    fn insert(&mut self, machine: Machine) {
        let known = self.machines.contains_key(&machine.mac);
        if known || self.machines.len() >= NODES_MAX || !self.numbers.insert(machine.node) {
            return;
        }
        self.machines.insert(machine.mac, machine);
    }
}

/// A machine, and its host name where the line has one.
fn parse_line(line: &str) -> Result<(Machine, Option<&str>), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (mac, address, node, name) = match words.as_slice() {
        [mac, address, node] => (mac, address, node, None),
        [mac, address, node, name] => (mac, address, node, Some(*name)),
        _ => return Err(format!("{} words instead of three or four", words.len())),
    };
    let mac = hearth_boot::Mac::from_str(mac).map_err(|error| error.to_string())?;
    let address = address
        .parse()
        .map_err(|_| format!("{address:?} is not an IPv4 address"))?;
    let node = node.strip_prefix('n').unwrap_or(node);
    let node = node
        .parse()
        .map_err(|_| format!("{node:?} is not a node number"))?;
    let machine = Machine {
        mac: mac.0,
        address: Some(address),
        node,
    };
    Ok((machine, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    fn mac(number: u32) -> [u8; 6] {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn a_machine_that_joined_keeps_its_number() {
        let mut table = NodeTable::growing([]);
        assert_eq!((table.number(mac(9)), table.number(mac(1))), (Ok(0), Ok(1)));
        assert_eq!(table.number(mac(9)), Ok(0));
        assert_eq!(table.machines().count(), 0, "asking is not joining");
        table.joined(mac(1), 1);
        let kept: Vec<Machine> = table.machines().copied().collect();
        let mut table = NodeTable::growing(kept);
        assert_eq!(table.number(mac(1)), Ok(1));
        // The number of the machine that only asked is free again.
        assert_eq!((table.number(mac(2)), table.number(mac(3))), (Ok(0), Ok(2)));
    }

    #[test]
    fn machines_that_never_join_do_not_use_numbers_up() {
        let mut table = NodeTable::growing([]);
        table.joined(mac(0), 0);
        for stranger in 1..=3 * ASKED_MAX as u32 {
            assert!(table.number(mac(stranger)).unwrap() <= ASKED_MAX as u32);
        }
        assert_eq!(table.number(mac(0)), Ok(0));
        assert_eq!(table.machines().count(), 1);
    }

    #[test]
    fn a_machine_waits_until_it_is_approved_of() {
        let control = Principal::control();
        let operator = control.operator().unwrap();
        let known = Machine {
            mac: mac(1),
            address: None,
            node: 0,
        };
        let mut table = NodeTable::growing([known]).admitting(Admission::Approve);
        assert_eq!(table.number(mac(1)), Ok(0), "it was a node before");
        assert!(
            matches!(table.number(mac(2)), Err(NumberError::Waits(text)) if text.contains("00:02"))
        );
        assert_eq!(table.waiting().count(), 1);
        assert_eq!(table.approve(&operator, mac(2)), Ok(1));
        assert_eq!(table.waiting().count(), 0);
        assert_eq!(table.number(mac(2)), Ok(1));
        assert_eq!(table.admitted().unwrap().len(), 2);
        // One with a key of its own has a number already, or claims that of another.
        assert!(table.note_waiting(mac(3), Some(7), 1));
        assert_eq!(table.approve(&operator, mac(3)), Ok(7));
        assert!(table.note_waiting(mac(4), Some(7), 1));
        assert!(matches!(
            table.approve(&operator, mac(4)),
            Err(NumberError::NumberTaken { node: 7, .. })
        ));
    }

    #[test]
    fn a_list_admits_its_machines_and_no_others() {
        let control = Principal::control();
        let operator = control.operator().unwrap();
        let known = Machine {
            mac: mac(1),
            address: None,
            node: 0,
        };
        let list = Admission::List([mac(2)].into());
        let mut table = NodeTable::growing([known]).admitting(list);
        assert_eq!(table.number(mac(2)), Ok(1));
        for out in [1, 3] {
            assert!(matches!(
                table.number(mac(out)),
                Err(NumberError::NotAdmitted(_))
            ));
            assert!(matches!(
                table.approve(&operator, mac(out)),
                Err(NumberError::NotAdmitted(_))
            ));
        }
        assert_eq!(table.waiting().count(), 0);
    }

    #[test]
    fn machines_that_wait_are_bounded_and_who_asks_again_is_listed() {
        let mut table = NodeTable::growing([]).admitting(Admission::Approve);
        for stranger in 0..3 * WAITING_MAX as u32 {
            table.note_waiting(mac(1_000 + stranger), None, u64::from(stranger));
            table.note_waiting(mac(1), None, u64::from(stranger));
        }
        assert_eq!(table.waiting().count(), WAITING_MAX);
        assert!(table.waiting().any(|(of, _)| of == mac(1)));
    }

    #[test]
    fn a_fixed_list_is_read_and_not_extended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes");
        let text =
            "# two\n52:54:00:07:00:00 10.117.1.0 0\n\n52:54:00:07:00:01 10.117.1.1 n1 tux2 # b\n";
        std::fs::write(&path, text).unwrap();
        let mut table = NodeTable::fixed(&path).unwrap();
        assert_eq!(table.number([0x52, 0x54, 0, 7, 0, 1]), Ok(1));
        assert_eq!(
            table.by_node(1).unwrap().address,
            Some(Ipv4Addr::new(10, 117, 1, 1))
        );
        assert_eq!(Vec::from_iter(table.names()), [("tux2", 1)]);
        let unknown = table.number([2; 6]);
        assert_eq!(
            unknown,
            Err(NumberError::NotListed("02:02:02:02:02:02".into()))
        );
        for (text, word) in [
            ("52:54:00:07:00:00 10.117.1.0", "line 1"),
            ("52:54:00:07:00:00 10.117.1 0", "10.117.1"),
            ("52:54:00:07:00:00 10.117.1.0 0 a b", "5 words"),
            (
                "52:54:00:07:00:00 10.1.1.0 0 a\n52:54:00:07:00:01 10.1.1.1 1 a",
                "a is listed twice",
            ),
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
