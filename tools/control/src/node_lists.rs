//! Lists of machines that a site has already, turned into the file that `boot.nodes_file` names:
//! tables of commas, dhcpd.conf, Warewulf's nodes.conf.
//!
//! Key types: [`Format`], [`Entry`]; key functions: [`read`], [`numbered`], [`numbered_by`],
//! [`file`]. Neighbours: `nodes` reads the file that comes out; `cli::node` prints it; `site_tree`
//! reads the site's tree of switches.
//!
//! Invariant: what comes out has each MAC address, address and number once, or it is an error.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use hearth_alloc::site::Wired;
use hearth_boot::Mac;
use serde::Serialize;

use crate::hosts::Hosts;
use crate::nodes::NODES_MAX;

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line of names, then a line a machine; commas between values.
    Csv,
    /// ISC dhcpd: `host NAME { hardware ethernet MAC; fixed-address ADDRESS; }`.
    Dhcpd,
    /// Warewulf 4: nodes.conf.
    Warewulf,
}

impl Format {
    /// By the name of the file.
    pub fn of_file(name: &str) -> Option<Self> {
        match name {
            "nodes.conf" => Some(Format::Warewulf),
            name if name.ends_with(".csv") => Some(Format::Csv),
            name if name.starts_with("dhcpd") => Some(Format::Dhcpd),
            _ => None,
        }
    }
}

/// A machine and its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Numbered {
    /// The number.
    pub node: u32,
    /// The machine.
    #[serde(flatten)]
    pub entry: Entry,
}

/// A machine of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its host name.
    pub name: String,
    /// The MAC address of the card that it boots from.
    pub mac: Mac,
    /// Its address.
    pub address: Ipv4Addr,
}

/// What is wrong with a list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A line.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A machine.
    #[error("{name}: {what}")]
    Machine {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// No machine.
    #[error("there is no machine with a MAC address in it; is it of this --format?")]
    Empty,
}

/// A machine as far as it was read.
#[derive(Debug, Default)]
struct Found {
    name: String,
    mac: Option<String>,
    address: Option<String>,
}

impl Found {
    fn named(name: &str) -> Self {
        Found {
            name: name.to_string(),
            ..Found::default()
        }
    }

    /// The machine; none where there is no MAC address.
    fn entry(self) -> Result<Option<Entry>, ListError> {
        let Found { name, mac, address } = self;
        let wrong = |what: String| ListError::Machine {
            name: name.clone(),
            what,
        };
        let Some(mac) = mac else { return Ok(None) };
        let mac = mac
            .parse::<Mac>()
            .map_err(|error| wrong(error.to_string()))?;
        let address = address.ok_or_else(|| wrong("it has no address".to_string()))?;
        let address = address
            .parse()
            .map_err(|_| wrong(format!("{address:?} is not an IPv4 address")))?;
        Ok(Some(Entry { name, mac, address }))
    }
}

/// The machines of a list, in its order.
///
/// # Errors
/// [`ListError`].
pub fn read(format: Format, text: &str) -> Result<Vec<Entry>, ListError> {
    let found = match format {
        Format::Csv => csv(text)?,
        Format::Dhcpd => dhcpd(text),
        Format::Warewulf => warewulf(text),
    };
    let mut entries = Vec::new();
    for found in found {
        entries.extend(found.entry()?);
    }
    match entries.is_empty() {
        true => Err(ListError::Empty),
        false => Ok(entries),
    }
}

/// Gives each machine its number: the one at the end of its name where all names have one and all
/// are different; else machines are numbered as they stand.
///
/// # Errors
/// [`ListError::Machine`]: something is there twice, or there are too many.
pub fn numbered(entries: Vec<Entry>) -> Result<Vec<Numbered>, ListError> {
    let by_name: Option<Vec<u32>> = entries.iter().map(|entry| number(&entry.name)).collect();
    let distinct = |numbers: &Vec<u32>| numbers.iter().collect::<BTreeSet<_>>().len();
    let by_name = by_name.filter(|numbers| distinct(numbers) == numbers.len());
    let as_they_stand = || (0..).take(entries.len()).collect();
    let numbers = by_name.unwrap_or_else(as_they_stand);
    checked(entries, numbers)
}

/// Gives each machine the number of its place in the site's tree of switches.
///
/// # Errors
/// [`ListError::Machine`]: the tree does not have it, or something is there twice.
pub fn numbered_by(entries: Vec<Entry>, tree: &Wired) -> Result<Vec<Numbered>, ListError> {
    let hosts = Hosts::of(tree.nodes.iter().map(|(node, name)| (name.as_str(), *node)));
    let number = |entry: &Entry| {
        let short = || hosts.node(entry.name.split('.').next()?);
        let node = hosts.node(&entry.name).or_else(short);
        node.ok_or_else(|| ListError::Machine {
            name: entry.name.clone(),
            what: "it is on no switch of the tree".to_string(),
        })
    };
    let numbers: Result<Vec<u32>, ListError> = entries.iter().map(number).collect();
    checked(entries, numbers?)
}

/// The machines with these numbers, where nothing is there twice.
fn checked(entries: Vec<Entry>, numbers: Vec<u32>) -> Result<Vec<Numbered>, ListError> {
    let (mut macs, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    let (mut names, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    let number = |(entry, node): (Entry, u32)| {
        let wrong = |what: String| ListError::Machine {
            name: entry.name.clone(),
            what,
        };
        if entry.name.contains(|c: char| c.is_whitespace() || c == '#') {
            return Err(wrong("a host name has no blanks and no #".to_string()));
        }
        if !names.insert(entry.name.clone()) {
            return Err(wrong("two machines have this name".to_string()));
        }
        if !nodes.insert(node) {
            return Err(wrong(format!("n{node} is another machine already")));
        }
        if !macs.insert(entry.mac.0) {
            return Err(wrong(format!("{} is listed twice", entry.mac)));
        }
        if !addresses.insert(entry.address) {
            return Err(wrong(format!("{} is listed twice", entry.address)));
        }
        if node as usize >= NODES_MAX {
            let most = NODES_MAX - 1;
            return Err(wrong(format!("{node} is above {most}, the highest number")));
        }
        Ok(Numbered { node, entry })
    };
    entries.into_iter().zip(numbers).map(number).collect()
}

/// The file of nodes: a line `MAC ADDRESS NUMBER NAME` each.
pub fn file(nodes: &[Numbered]) -> String {
    let line = |Numbered { node, entry }: &Numbered| {
        let Entry { name, mac, address } = entry;
        format!("{mac} {address} {node} {name}\n")
    };
    nodes.iter().map(line).collect()
}

/// The number at the end of a host name, without its domain.
fn number(name: &str) -> Option<u32> {
    let host = name.split('.').next().unwrap_or(name);
    let digits = host.trim_start_matches(|c: char| !c.is_ascii_digit());
    // Digits in the middle, as in r1n3, are no part of it.
    let digits = digits.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn csv(text: &str) -> Result<Vec<Found>, ListError> {
    let mut lines = (1..).zip(text.lines());
    let mut lines = lines.by_ref().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',');
        cells
            .map(|cell| cell.trim().trim_matches('"').to_string())
            .collect()
    };
    let (first, head) = lines.next().ok_or(ListError::Empty)?;
    let head: Vec<String> = cells(head).iter().map(|name| name.to_lowercase()).collect();
    let place = |names: &[&str]| {
        let place = head.iter().position(|name| names.contains(&name.as_str()));
        place.ok_or_else(|| ListError::Line {
            line: first,
            what: format!(
                "no column is called {}; the first line names the columns: name, mac, address",
                names.join(" or ")
            ),
        })
    };
    let (name, mac, address) = (
        place(&["name", "node", "host", "hostname"])?,
        place(&["mac", "hwaddr"])?,
        place(&["address", "ip", "ipaddr"])?,
    );
    let found = lines.map(|(line, text)| {
        let cells = cells(text);
        match [name, mac, address]
            .iter()
            .all(|place| *place < cells.len())
        {
            false => Err(ListError::Line {
                line,
                what: format!("{} values instead of {}", cells.len(), head.len()),
            }),
            true => Ok(Found {
                name: cells[name].clone(),
                mac: Some(cells[mac].clone()),
                address: Some(cells[address].clone()),
            }),
        }
    });
    found.collect()
}

/// The hosts of a dhcpd.conf, wherever they stand in groups, subnets and pools.
fn dhcpd(text: &str) -> Vec<Found> {
    let plain: Vec<&str> = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .collect();
    let spaced = plain
        .join("\n")
        .replace('{', " { ")
        .replace('}', " } ")
        .replace(';', " ; ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut hosts: Vec<Found> = Vec::new();
    let mut is_in_host = false;
    for (at, word) in words.iter().enumerate() {
        let next = |more: usize| words.get(at + more).copied().unwrap_or_default();
        match *word {
            "host" if next(2) == "{" => {
                hosts.push(Found::named(next(1).trim_matches('"')));
                is_in_host = true;
            }
            "}" => is_in_host = false,
            "hardware" if is_in_host && next(1) == "ethernet" => {
                let host = hosts.last_mut().expect("one is open");
                host.mac = Some(next(2).to_string());
            }
            "fixed-address" if is_in_host => {
                let host = hosts.last_mut().expect("one is open");
                host.address = Some(next(1).trim_end_matches(',').to_string());
            }
            _ => {}
        }
    }
    hosts
}

/// The nodes of Warewulf's nodes.conf, of each the first network device that has a MAC address. Of
/// YAML it takes what Warewulf writes: maps by indentation, a key a line.
fn warewulf(text: &str) -> Vec<Found> {
    let mut nodes: Vec<Found> = Vec::new();
    let mut is_in_nodes = false;
    // How far names of nodes stand in; and where a network device begins.
    let (mut of_names, mut device) = (None, 0);
    let mut taken_from = None;
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        let inner = line.trim_start();
        if inner.is_empty() || inner.starts_with('#') {
            continue;
        }
        let depth = line.len() - inner.len();
        let (key, value) = inner.split_once(':').unwrap_or((inner, ""));
        let value = value.trim().trim_matches(['"', '\'']);
        if depth == 0 {
            is_in_nodes = key == "nodes";
            of_names = None;
            continue;
        }
        if !is_in_nodes {
            continue;
        }
        if depth == *of_names.get_or_insert(depth) {
            nodes.push(Found::named(key.trim_matches(['"', '\''])));
            taken_from = None;
            continue;
        }
        let Some(node) = nodes.last_mut() else {
            continue;
        };
        if inner.ends_with(':') {
            // A map begins: perhaps a device.
            device += 1;
        }
        match key {
            "hwaddr" if node.mac.is_none() => {
                // An address that came before it in the same device is its own.
                if taken_from != Some(device) {
                    node.address = None;
                }
                (node.mac, taken_from) = (Some(value.to_string()), Some(device));
            }
            "ipaddr" if node.mac.is_none() || taken_from == Some(device) => {
                (node.address, taken_from) = (Some(value.to_string()), Some(device));
            }
            _ => {}
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
52:54:00:00:00:01 10.0.2.1 1 n001
52:54:00:00:00:02 10.0.2.2 2 n002
";

    fn imported(format: Format, text: &str) -> Result<String, ListError> {
        Ok(file(&numbered(read(format, text)?)?))
    }

    #[test]
    fn tables_have_a_line_of_names() {
        let text = "# rack 1\nIP,Name,MAC,remarks\n10.0.2.1,n001,52:54:00:00:00:01,\n\
                    \"10.0.2.2\",\"n002\",\"52:54:00:00:00:02\",new\n";
        assert_eq!(imported(Format::Csv, text).unwrap(), FILE);
        let error = imported(Format::Csv, "name,mac\na,b\n").unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        let error = imported(Format::Csv, "name,mac,ip\nn1,x\n").unwrap_err();
        assert!(error.to_string().contains("line 2: 2 values"), "{error}");
    }

    #[test]
    fn hosts_of_dhcpd_are_found_wherever_they_stand() {
        let text = "subnet 10.0.2.0 netmask 255.255.255.0 {\n  option routers 10.0.2.254; # host x {\n\
                    group { next-server 10.0.2.254;\n\
                    host n001 { hardware ethernet 52:54:00:00:00:01; fixed-address 10.0.2.1; }\n\
                    host \"n002\"{\n fixed-address 10.0.2.2;\n  option host-name \"n002\";\n\
                    hardware ethernet 52:54:00:00:00:02;}\n} }\nhost printer { fixed-address 10.0.2.9; }\n";
        assert_eq!(imported(Format::Dhcpd, text).unwrap(), FILE);
    }

    #[test]
    fn nodes_of_warewulf_are_found_and_profiles_are_not() {
        let text = "nodeprofiles:\n  default:\n    network devices:\n      default:\n        ipaddr: 10.9.9.9\n\
                    nodes:\n  n001:\n    profiles:\n    - default\n    network devices:\n      default:\n\
                    \x20       ipaddr: 10.0.2.1\n        hwaddr: \"52:54:00:00:00:01\"\n      ib0:\n\
                    \x20       hwaddr: 52:54:00:00:00:ff\n        ipaddr: 10.1.2.1\n\
                    \x20 n002:\n    network devices:\n      mgmt:\n        ipaddr: 10.7.0.2\n      default:\n\
                    \x20       hwaddr: 52:54:00:00:00:02 # new\n        ipaddr: 10.0.2.2\n";
        assert_eq!(imported(Format::Warewulf, text).unwrap(), FILE);
    }

    #[test]
    fn what_comes_out_is_a_file_of_nodes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), FILE).unwrap();
        let table = crate::nodes::NodeTable::fixed(file.path()).unwrap();
        let second = table.by_node(2).unwrap();
        assert_eq!(second.address, Some(Ipv4Addr::new(10, 0, 2, 2)));
        assert_eq!(second.mac, [0x52, 0x54, 0, 0, 0, 2]);
    }

    #[test]
    fn numbers_are_those_of_the_names_where_these_differ() {
        let text = |first: &str, second: &str| {
            format!("name,mac,ip\n{first},2:0:0:0:0:1,10.0.0.1\n{second},2:0:0:0:0:2,10.0.0.2\n")
        };
        let numbers = |first: &str, second: &str| {
            let text = text(first, second).replace("2:0:0:0:0:", "02:00:00:00:00:0");
            let file = imported(Format::Csv, &text).unwrap();
            let of = |line: &str| line.split(' ').nth(2).unwrap().to_string();
            file.lines().map(of).collect::<Vec<_>>()
        };
        assert_eq!(numbers("r1n07.example", "r1n3.example"), ["7", "3"]);
        assert_eq!(numbers("r1n3", "r2n3"), ["0", "1"]);
        assert_eq!(numbers("alpha", "beta4"), ["0", "1"]);
    }

    #[test]
    fn numbers_are_places_where_a_tree_is_given() {
        let site = "SwitchName=a Nodes=beta,alpha\nSwitchName=b Nodes=gamma[1-3]\n\
                    SwitchName=c Switches=a,b\n";
        let tree = hearth_alloc::site::Site::read(site)
            .unwrap()
            .number()
            .unwrap();
        let imported = |names: &[&str]| {
            let line = |(at, name)| format!("{name},02:00:00:00:00:0{at},10.0.0.{at}\n");
            let lines: String = (1..).zip(names).map(line).collect();
            let entries = read(Format::Csv, &format!("name,mac,ip\n{lines}")).unwrap();
            numbered_by(entries, &tree)
        };
        let all = imported(&["alpha.example", "gamma3", "beta"]).unwrap();
        assert_eq!(Vec::from_iter(all.iter().map(|of| of.node)), [1, 5, 0]);
        let error = imported(&["alpha", "delta"]).unwrap_err().to_string();
        assert_eq!(error, "delta: it is on no switch of the tree");
        let error = imported(&["alpha", "alpha.example"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("n1 is another machine"), "{error}");
    }

    #[test]
    fn what_is_there_twice_or_nowhere_is_an_error() {
        let host = |name: &str, mac: u32, address: u32| {
            format!(
                "host {name} {{ hardware ethernet 02:00:00:00:00:0{mac}; fixed-address 10.0.0.{address}; }}\n"
            )
        };
        for (text, words) in [
            (host("a", 1, 1) + &host("b", 1, 2), "b: 02:00:00:00:00:01"),
            (host("a", 1, 1) + &host("b", 2, 1), "b: 10.0.0.1"),
            (host("n40000", 1, 1), "above 32767"),
            (
                "host a { hardware ethernet 02:00:00:00:00:01; }".into(),
                "a: it has no",
            ),
            (
                "host a { hardware ethernet 02:00; fixed-address 10.0.0.1; }".into(),
                "a: ",
            ),
            (host("a", 1, 1) + &host("a", 2, 2), "a: two machines"),
            ("nodes:\n  a: {}\n".into(), "no machine"),
        ] {
            let error = imported(Format::Dhcpd, &text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
