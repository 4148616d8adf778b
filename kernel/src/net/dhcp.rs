//! The node's lease and personality by DHCP.
//!
//! Key type: [`Client`], around smoltcp's DHCP socket. It adds what a Hearth node says and asks:
//! vendor class (option 60), boot epoch (option 225), personality (option 224). Renewal and
//! rebinding are the socket's (RFC 2131, section 4.4.5); back-off, messages and the decision when
//! an answer is of no use are made here. Neighbours: `netstack::personality` for the format.
//!
//! Invariant: a personality is asked for until one was received and never again in this boot; the
//! boot service gives a key once for a boot epoch.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;

use netstack::personality::{self, Personality};
use netstack::rng::Rng;
use netstack::time::{Instant, Micros};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Duration;
use smoltcp::wire::{DhcpOption, Ipv4Address, Ipv4Cidr};

use crate::drivers::nic::Nic;

/// Subnet mask, router, DNS (the socket wants it), lease time, server, personality.
const ASK_WITH_PERSONALITY: &[u8] = &[1, 3, 6, 51, 54, personality::DHCP_OPTION];
const ASK: &[u8] = &[1, 3, 6, 51, 54];
/// Why a server refuses something, in words.
const OPTION_MESSAGE: u8 = 56;
const OPTION_VENDOR_CLASS: u8 = 60;

/// Wait for the first answer. A boot service on the same wire answers in milliseconds; half a
/// second covers one that serves 64 nodes switched on together.
const FIRST_WAIT: Micros = Micros::from_millis(500);
/// Wait before others are asked after a stranger's lease: not at once, so that a network full of
/// strangers sees no storm.
const STRANGER_PAUSE: Micros = Micros::from_millis(500);
/// Silence after which the operator is told.
const FIRST_REPORT: Micros = Micros::from_secs(2);
/// Longest wait between two attempts of a node whose boot service stays silent: short enough that
/// a cluster is back within half a minute of its control node.
const LONGEST_WAIT: Micros = Micros::from_secs(30);
/// Wait for the answer to a request; the socket doubles it every second attempt.
const REQUEST_WAIT: Duration = Duration::from_secs(1);
/// Largest DHCP message kept: a full frame.
const MESSAGE_MAX: usize = 1500;

/// What an ACK gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The node's address and prefix.
    pub address: Ipv4Cidr,
    /// Default router, if there is one.
    pub router: Option<Ipv4Address>,
    /// The server that gave the lease, by the name it gave itself.
    pub server: Ipv4Address,
}

/// What an ACK says about the personality.
enum Verdict {
    /// It brought the personality.
    Given(Personality),
    /// No personality is needed, or it did not come and must be asked for again.
    None,
    /// It is from a server that knows nothing of personalities.
    Stranger,
}

/// What happened to the lease.
#[derive(Debug)]
pub enum Event {
    /// A new or renewed lease; the personality when it came with this answer.
    Leased(Lease, Option<Personality>),
    /// A lease from a server that is not the boot service, which made its offer from this
    /// address; it is given up.
    Stranger(Ipv4Address),
    /// The lease has run out or the server took it back.
    Lost,
}

/// DHCP client of the node.
pub struct Client {
    handle: SocketHandle,
    started: Instant,
    next_report: Instant,
    rng: Rng,
    leased: bool,
    /// When to throw away a lease that came without the personality the node needs.
    discard_at: Option<Instant>,
    vendor_only: &'static [DhcpOption<'static>],
    /// Still needs a personality.
    wants_personality: bool,
}

impl Client {
    /// Adds the DHCP socket to `sockets`; the first DISCOVER leaves with the next poll.
    pub fn new(
        sockets: &mut SocketSet<'static>,
        version: &str,
        boot_epoch: u64,
        wants_personality: bool,
        now: Instant,
    ) -> Self {
        // These live as long as the kernel: there is one client per boot.
        let class: &'static [u8] = String::leak(alloc::format!(
            "{}{version}",
            personality::VENDOR_CLASS_PREFIX
        ))
        .as_bytes();
        let epoch: &'static [u8] = Box::leak(Box::new(boot_epoch.to_be_bytes()));
        let vendor = DhcpOption {
            kind: OPTION_VENDOR_CLASS,
            data: class,
        };
        let vendor_only: &'static [DhcpOption<'static>] = Box::leak(Box::new([vendor]));
        let mut socket = dhcpv4::Socket::new();
        if wants_personality {
            let epoch = DhcpOption {
                kind: personality::EPOCH_OPTION,
                data: epoch,
            };
            socket.set_outgoing_options(Box::leak(Box::new([vendor, epoch])));
            socket.set_parameter_request_list(ASK_WITH_PERSONALITY);
        } else {
            socket.set_outgoing_options(vendor_only);
            socket.set_parameter_request_list(ASK);
        }
        socket.set_receive_packet_buffer(vec![0; MESSAGE_MAX].leak());
        Self {
            handle: sockets.add(socket),
            started: now,
            next_report: now + FIRST_REPORT,
            rng: Rng::new(boot_epoch),
            leased: false,
            discard_at: None,
            vendor_only,
            wants_personality,
        }
    }

    /// Asks anew on another card, with short waits as at first.
    pub fn start_over(&mut self, sockets: &mut SocketSet<'static>, now: Instant) {
        sockets.get_mut::<dhcpv4::Socket>(self.handle).reset();
        self.discard_at = None;
        self.started = now;
        self.next_report = now + FIRST_REPORT;
    }

    /// Sets the wait before the next attempt and says so from time to time. To be called before
    /// the interface is polled.
    pub fn prepare(&mut self, sockets: &mut SocketSet<'static>, card: &dyn Nic, now: Instant) {
        if self.discard_at.is_some_and(|at| at <= now) {
            self.discard_at = None;
            sockets.get_mut::<dhcpv4::Socket>(self.handle).reset();
        }
        if self.leased {
            return;
        }
        let wait = self.wait(now);
        let socket = sockets.get_mut::<dhcpv4::Socket>(self.handle);
        let mut retry = socket.get_retry_config();
        // A quarter at random keeps nodes that were switched on together from asking together.
        let jitter = self.rng.below(wait.as_micros() / 4 + 1);
        retry.discover_timeout = Duration::from_micros(wait.as_micros() + jitter);
        retry.initial_request_timeout = REQUEST_WAIT;
        socket.set_retry_config(retry);
        if now >= self.next_report {
            let silent = now.saturating_since(self.started);
            let why = match card.has_link() {
                true => "is the boot service running on this network?",
                false => "the card has no link; is its cable plugged in?",
            };
            warn!(
                "net",
                "no DHCP answer for {} s; {why} trying on",
                silent.as_micros() / 1_000_000
            );
            self.next_report = now + wait.saturating_mul(2);
        }
    }

    /// As long as the node has waited so far: the waits double.
    fn wait(&self, now: Instant) -> Micros {
        let waited = now.saturating_since(self.started).as_micros();
        Micros(waited.clamp(FIRST_WAIT.as_micros(), LONGEST_WAIT.as_micros()))
    }

    /// When [`Self::prepare`] has something to do beside the socket's own deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.discard_at
    }

    /// What the last poll of the interface brought.
    pub fn event(&mut self, sockets: &mut SocketSet<'static>, now: Instant) -> Option<Event> {
        let socket = sockets.get_mut::<dhcpv4::Socket>(self.handle);
        match socket.poll()? {
            dhcpv4::Event::Deconfigured => {
                let was_leased = core::mem::replace(&mut self.leased, false);
                if was_leased && !self.wants_personality {
                    warn!("net", "lease lost, asking for a new one");
                    // After a good answer: start over with short waits.
                    self.started = now;
                    self.next_report = now + FIRST_REPORT;
                }
                was_leased.then_some(Event::Lost)
            }
            dhcpv4::Event::Configured(config) => {
                let lease = Lease {
                    address: config.address,
                    router: config.router,
                    server: config.server.identifier,
                };
                let sender = config.server.address;
                let option = |kind| {
                    let packet = config.packet.as_ref()?;
                    let mut options = packet.options();
                    Some(options.find(|option| option.kind == kind)?.data)
                };
                let parsed = option(personality::DHCP_OPTION).map(Personality::parse);
                let reason = option(OPTION_MESSAGE).map(String::from_utf8_lossy);
                let verdict = self.judge(parsed, reason.as_deref(), &lease, now);
                match verdict {
                    Verdict::Stranger => Some(Event::Stranger(sender)),
                    Verdict::None => {
                        self.leased = true;
                        Some(Event::Leased(lease, None))
                    }
                    Verdict::Given(personality) => {
                        self.leased = true;
                        self.wants_personality = false;
                        self.discard_at = None;
                        let socket = sockets.get_mut::<dhcpv4::Socket>(self.handle);
                        socket.set_outgoing_options(self.vendor_only);
                        socket.set_parameter_request_list(ASK);
                        Some(Event::Leased(lease, Some(personality)))
                    }
                }
            }
        }
    }

    /// Decides about the personality an ACK brought or lacked.
    fn judge(
        &mut self,
        parsed: Option<Result<Personality, netstack::wire::Error>>,
        reason: Option<&str>,
        lease: &Lease,
        now: Instant,
    ) -> Verdict {
        if !self.wants_personality {
            return Verdict::None;
        }
        let server = lease.server;
        let mut again = self.wait(now);
        let mut verdict = Verdict::None;
        match (parsed, reason) {
            (Some(Ok(personality)), _) => return Verdict::Given(personality),
            (Some(Err(error)), _) => error!(
                "net",
                "personality from {server} not understood ({error}); boot service of another version?"
            ),
            (None, Some(reason)) => error!("net", "no personality from {server}: {reason}"),
            (None, None) => {
                error!(
                    "net",
                    "{server} gave address {} but no personality (DHCP option {}); is there a \
                     second DHCP server on this network? asking others",
                    lease.address,
                    personality::DHCP_OPTION
                );
                again = STRANGER_PAUSE;
                verdict = Verdict::Stranger;
            }
        }
        self.discard_at = Some(now + again);
        self.next_report = now + again + FIRST_REPORT;
        verdict
    }
}
