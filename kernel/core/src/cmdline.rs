//! The kernel command line: `hearth.NAME=VALUE` words, everything else belongs to firmware or to
//! boot loaders and is ignored.
//!
//! A word that cannot be used becomes a [`Warning`] with the reason; the node still boots, since
//! a node that does not answer cannot tell anybody what is wrong with its command line.
//!
//! Neighbours: the boot stub passes the line on (`hearth_abi::handoff`), `kernel::main` logs the
//! warnings, `docs/reference.md` lists the words.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::nic::Signal;
use crate::threads::CORES_MAX;

/// UDP port of control when `hearth.control=` names none.
pub const CONTROL_PORT: u16 = 7117;
/// What the secret word begins with; a misspelt one is better hidden, too.
const SECRET: &str = "hearth.key";
/// Warnings kept; more are counted only by their absence, one line would be unreadable anyway.
pub const WARNINGS_MAX: usize = 16;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What a developer wants to know.
    Debug,
}

impl Level {
    /// Name in log lines and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Error, Self::Warn, Self::Info, Self::Debug]
            .into_iter()
            .find(|level| level.name() == text)
    }
}

/// Where the console goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Console {
    /// The serial port; where there is none, the screen.
    Serial,
    /// The serial port and the screen.
    Screen,
    /// Nowhere; the ring still keeps the lines.
    None,
}

/// How datagrams between nodes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPath {
    /// Straight from and to the card.
    Direct,
    /// Through UDP sockets of the stack.
    Smoltcp,
}

/// A static address instead of DHCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticAddress {
    /// The node's IPv4 address.
    pub address: [u8; 4],
    /// Bits of the network part, 0 to 32.
    pub prefix: u8,
    /// Gateway, when there is one.
    pub gateway: Option<[u8; 4]>,
}

/// The command line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// `hearth.control=IP[:PORT]`: control, when it does not come with the personality.
    pub control: Option<([u8; 4], u16)>,
    /// `hearth.node=N`: number of the node.
    pub node: Option<u32>,
    /// `hearth.key=HEX32`: the node's key, for a lab.
    pub key: Option<[u8; 16]>,
    /// `hearth.console=ttyS0|screen|none[,LEVEL]`: where the console goes.
    pub console: Console,
    /// Level of the console: from `hearth.console`, else from `hearth.log`.
    pub console_level: Level,
    /// `hearth.log=LEVEL`: what is written to the log at all.
    pub log: Level,
    /// `hearth.test=NAME`: run one kernel test and leave QEMU.
    pub test: Option<String>,
    /// `hearth.scrub=off`: do not scrub frames; for the test that shows scrubbing matters, and in
    /// its image only.
    pub scrub: bool,
    /// `hearth.panic=reboot|halt`: whether the node boots again after a panic.
    pub reboots: bool,
    /// `hearth.cores=N`: how many cores work at most; all, unless it is given.
    pub cores: usize,
    /// `hearth.ip=CIDR[,GATEWAY]`: no DHCP.
    pub ip: Option<StaticAddress>,
    /// `hearth.interrupts=msix|msi|none`: the best way in which a card may interrupt.
    pub interrupts: Signal,
    /// `hearth.net=smoltcp|direct`: how datagrams between nodes come and go.
    pub peers: PeerPath,
    /// `BOOTIF=01-XX-XX-XX-XX-XX-XX`, as boot loaders pass it: the card that they used.
    pub boot_card: Option<[u8; 6]>,
    /// Words that were not used, with the reason.
    pub warnings: Vec<Warning>,
}

/// A word of the command line that was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The word, a secret value left out.
    pub word: String,
    /// Why.
    pub reason: Reason,
}

/// Why a word was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `hearth.` and something the kernel does not know.
    UnknownKey,
    /// The value does not have the form that is given.
    BadValue(&'static str),
    /// Given before: the first one counts.
    Repeated,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::UnknownKey => write!(f, "{}: unknown option, ignored", self.word),
            Reason::BadValue(form) => write!(f, "{}: ignored, expected {form}", self.word),
            Reason::Repeated => write!(f, "{}: ignored, given before", self.word),
        }
    }
}

impl Default for CommandLine {
    fn default() -> Self {
        Self {
            control: None,
            node: None,
            key: None,
            console: Console::Serial,
            console_level: Level::Info,
            log: Level::Info,
            test: None,
            scrub: true,
            reboots: true,
            cores: CORES_MAX,
            ip: None,
            interrupts: Signal::Msix,
            peers: PeerPath::Direct,
            boot_card: None,
            warnings: Vec::new(),
        }
    }
}

/// The command line as it may be shown: without the value of `hearth.key`. The console and the
/// panic report are read by people who must not be able to speak for the node.
pub fn without_secrets(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for piece in line.split_inclusive(|letter: char| letter.is_ascii_whitespace()) {
        let word = piece.trim_ascii_end();
        shown.push_str(&masked(word));
        shown.push_str(&piece[word.len()..]);
    }
    shown
}

fn masked(word: &str) -> Cow<'_, str> {
    match word.strip_prefix(SECRET) {
        Some(rest) if !rest.is_empty() => Cow::Owned([SECRET, "=(hidden)"].concat()),
        _ => Cow::Borrowed(word),
    }
}

impl CommandLine {
    /// Reads a command line. Never fails: see [`CommandLine::warnings`].
    pub fn parse(line: &str) -> Self {
        let mut parsed = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let mut console_level = None;
        for word in line.split_ascii_whitespace() {
            if let Some(card) = word.strip_prefix("BOOTIF=") {
                match boot_card(card) {
                    Some(card) => parsed.boot_card = Some(card),
                    None => parsed.warn(word, Reason::BadValue("01- and six bytes, XX-XX-...")),
                }
            }
            let Some(option) = word.strip_prefix("hearth.") else {
                continue;
            };
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let result = if seen.contains(&key) {
                Err(Reason::Repeated)
            } else {
                parsed.set(key, value, &mut console_level)
            };
            match result {
                Ok(()) => seen.push(key),
                Err(reason) => parsed.warn(word, reason),
            }
        }
        parsed.console_level = console_level.unwrap_or(parsed.log);
        parsed
    }

    fn set(
        &mut self,
        key: &str,
        value: &str,
        console_level: &mut Option<Level>,
    ) -> Result<(), Reason> {
        let bad = Reason::BadValue;
        match key {
            "control" => self.control = Some(endpoint(value).ok_or(bad("IP or IP:PORT"))?),
            "node" => self.node = Some(value.parse().map_err(|_| bad("a number"))?),
            "key" => {
                let key = key_bytes(value).filter(|key| *key != [0; 16]);
                self.key = Some(key.ok_or(bad("32 hexadecimal digits, not all zeros"))?);
            }
            "console" => {
                let form = bad("ttyS0, screen or none, with an optional ,LEVEL");
                let (device, level) = value.split_once(',').unwrap_or((value, ""));
                let console = match device {
                    "ttyS0" => Console::Serial,
                    "screen" => Console::Screen,
                    "none" => Console::None,
                    _ => return Err(form),
                };
                if !level.is_empty() {
                    *console_level = Some(Level::parse(level).ok_or(form)?);
                }
                self.console = console;
            }
            "log" => self.log = Level::parse(value).ok_or(bad("error, warn, info or debug"))?,
            "test" if value.is_empty() => return Err(bad("the name of a test")),
            "test" => self.test = Some(value.to_string()),
            "scrub" => {
                self.scrub = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("on or off")),
                }
            }
            "panic" => {
                self.reboots = match value {
                    "reboot" => true,
                    "halt" => false,
                    _ => return Err(bad("reboot or halt")),
                }
            }
            "cores" => {
                let cores = value.parse().ok();
                let cores = cores.filter(|cores| (1..=CORES_MAX).contains(cores));
                self.cores = cores.ok_or(bad("a number from 1 to 64"))?;
            }
            "interrupts" => {
                self.interrupts = match value {
                    "msix" => Signal::Msix,
                    "msi" => Signal::Msi,
                    "none" => Signal::None,
                    _ => return Err(bad("msix, msi or none")),
                }
            }
            "net" => {
                self.peers = match value {
                    "direct" => PeerPath::Direct,
                    "smoltcp" => PeerPath::Smoltcp,
                    _ => return Err(bad("smoltcp or direct")),
                }
            }
            "ip" => self.ip = Some(static_address(value).ok_or(bad("A.B.C.D/BITS[,GATEWAY]"))?),
            _ => return Err(Reason::UnknownKey),
        }
        Ok(())
    }

    fn warn(&mut self, word: &str, reason: Reason) {
        if self.warnings.len() < WARNINGS_MAX {
            let word = masked(word).into_owned();
            self.warnings.push(Warning { word, reason });
        }
    }
}

fn ipv4(text: &str) -> Option<[u8; 4]> {
    let address: core::net::Ipv4Addr = text.parse().ok()?;
    Some(address.octets())
}

fn endpoint(text: &str) -> Option<([u8; 4], u16)> {
    match text.split_once(':') {
        None => Some((ipv4(text)?, CONTROL_PORT)),
        Some((address, port)) => {
            let port: u16 = port.parse().ok()?;
            (port != 0).then_some((ipv4(address)?, port))
        }
    }
}

fn static_address(text: &str) -> Option<StaticAddress> {
    let (cidr, gateway) = match text.split_once(',') {
        None => (text, None),
        Some((cidr, gateway)) => (cidr, Some(ipv4(gateway)?)),
    };
    let (address, prefix) = cidr.split_once('/')?;
    let prefix: u8 = prefix.parse().ok()?;
    (prefix <= 32).then_some(StaticAddress {
        address: ipv4(address)?,
        prefix,
        gateway,
    })
}

/// The address in the value of `BOOTIF=`: the type of the hardware, Ethernet, comes first.
fn boot_card(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.strip_prefix("01-")?.split('-');
    let mut mac = [0; 6];
    for byte in &mut mac {
        let digits = bytes.next().filter(|digits| digits.len() == 2)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    bytes.next().is_none().then_some(mac)
}

fn key_bytes(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    let mut key = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_option_is_read() {
        let line = "quiet hearth.control=10.1.0.1:99 hearth.node=7 hearth.console=none,debug \
                    hearth.key=000102030405060708090a0b0c0d0eFF hearth.log=warn hearth.test=boot \
                    hearth.scrub=off hearth.panic=halt hearth.ip=10.1.0.7/16,10.1.0.1 initrd=x \
                    hearth.interrupts=msi hearth.net=smoltcp BOOTIF=01-52-54-00-07-00-0a";
        let parsed = CommandLine::parse(line);
        assert_eq!(parsed.control, Some(([10, 1, 0, 1], 99)));
        assert_eq!(parsed.node, Some(7));
        assert_eq!(parsed.key.unwrap()[15], 0xff);
        assert_eq!(parsed.console, Console::None);
        assert_eq!(parsed.console_level, Level::Debug);
        assert_eq!(parsed.log, Level::Warn);
        assert_eq!(parsed.test.as_deref(), Some("boot"));
        assert!(!parsed.scrub && !parsed.reboots);
        assert!(CommandLine::parse("").reboots);
        assert_eq!(parsed.ip.unwrap().gateway, Some([10, 1, 0, 1]));
        assert_eq!(parsed.interrupts, Signal::Msi);
        assert_eq!(parsed.peers, PeerPath::Smoltcp);
        assert_eq!(CommandLine::parse("").peers, PeerPath::Direct);
        assert_eq!(parsed.boot_card, Some([0x52, 0x54, 0, 7, 0, 0xa]));
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let parsed = CommandLine::parse(
            "hearth.control=ten hearth.nodes=7 hearth.node=1 hearth.node=2 hearth.ip=10.0.0.1/33 \
             BOOTIF=52:54:00:07:00:01 hearth.key=00000000000000000000000000000000",
        );
        let said: Vec<_> = parsed.warnings.iter().map(|w| w.to_string()).collect();
        assert_eq!(
            said,
            [
                "hearth.control=ten: ignored, expected IP or IP:PORT",
                "hearth.nodes=7: unknown option, ignored",
                "hearth.node=2: ignored, given before",
                "hearth.ip=10.0.0.1/33: ignored, expected A.B.C.D/BITS[,GATEWAY]",
                "BOOTIF=52:54:00:07:00:01: ignored, expected 01- and six bytes, XX-XX-...",
                "hearth.key=(hidden): ignored, expected 32 hexadecimal digits, not all zeros",
            ]
        );
        assert_eq!((parsed.node, parsed.key), (Some(1), None));
        assert_eq!(
            CommandLine::parse("hearth.log=debug").console_level,
            Level::Debug
        );
    }

    #[test]
    fn the_key_is_not_shown() {
        let key = "000102030405060708090a0b0c0d0eff";
        let line = std::format!("quiet  hearth.node=7 hearth.key={key}\thearth.log=info ");
        assert_eq!(
            without_secrets(&line),
            "quiet  hearth.node=7 hearth.key=(hidden)\thearth.log=info "
        );
        // Nor when it is given twice, is damaged, or the option misspelt.
        let line =
            std::format!("hearth.key={key}x hearth.key={key} hearth.key={key} hearth.keys={key}");
        let parsed = CommandLine::parse(&line);
        assert_eq!(parsed.warnings.len(), 3);
        for warning in &parsed.warnings {
            assert!(!warning.to_string().contains(key), "{warning}");
        }
        assert!(!without_secrets(&line).contains(key));
        assert_eq!(without_secrets("hearth.key"), "hearth.key");
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "\\PC{0,200}", tail in "[ -~]{0,40}") {
            let parsed = CommandLine::parse(&line);
            prop_assert!(parsed.warnings.len() <= WARNINGS_MAX);
            if !line.contains(SECRET) {
                prop_assert_eq!(without_secrets(&line), line);
            }
            CommandLine::parse(&std::format!("BOOTIF=01-{tail}"));
            for key in ["control", "node", "key", "console", "log", "test", "scrub", "ip"] {
                CommandLine::parse(&std::format!("hearth.{key}={tail}"));
            }
        }
    }
}
