//! The node's lease and personality by DHCP.
//!
//! Key type: [`Client`], around smoltcp's DHCP socket. It adds what a Hearth node says and asks:
//! vendor class (option 60), boot epoch (option 225), personality (option 224). Renewal and
//! rebinding are the socket's (RFC 2131, section 4.4.5); back-off, messages and the decision when
//! an answer is of no use are made here. A server that knows nothing of personalities may be the
//! site's own, with the boot service beside it: `proxy` asks that one. Neighbours:
//! `netstack::personality` for the format.
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

use super::proxy::{Asker, Inquiry};
use crate::drivers::nic::Nic;

/// Subnet mask, router, DNS (the socket wants it), lease time, server, personality.
const ASK_WITH_PERSONALITY: &[u8] = &[1, 3, 6, 51, 54, personality::DHCP_OPTION];
const ASK: &[u8] = &[1, 3, 6, 51, 54];
/// Why a server refuses something, in words.
pub(super) const OPTION_MESSAGE: u8 = 56;
const OPTION_VENDOR_CLASS: u8 = 60;

/// Wait for the first answer. A boot service on the same wire answers in milliseconds; half a
/// second covers one that serves 64 nodes switched on together.
const FIRST_WAIT: Micros = Micros::from_millis(500);
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
    /// The server with this address is not the boot service, and none answers beside it: its lease
    /// is given up.
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
    asker: Asker,
    /// The lease of a server that knows nothing of personalities, while the boot service is looked
    /// for beside it.
    beside: Option<Beside>,
    /// A server whose lease was just given up.
    stranger: Option<Ipv4Address>,
}

/// A lease without personality, and the search for the boot service.
struct Beside {
    lease: Lease,
    /// Where the server sends from.
    server: Ipv4Address,
    inquiry: Inquiry,
}

impl Client {
    /// Adds the DHCP socket to `sockets`; the first DISCOVER leaves with the next poll.
    pub fn new(
        sockets: &mut SocketSet<'static>,
        mac: [u8; 6],
        config: &super::Config,
        now: Instant,
    ) -> Self {
        let super::Config {
            version,
            boot_epoch,
            wants_personality,
            ..
        } = *config;
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
        let epoch = DhcpOption {
            kind: personality::EPOCH_OPTION,
            data: epoch,
        };
        let with_epoch: &'static [DhcpOption<'static>] = Box::leak(Box::new([vendor, epoch]));
        let mut socket = dhcpv4::Socket::new();
        if wants_personality {
            socket.set_outgoing_options(with_epoch);
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
            asker: Asker {
                mac,
                boot_epoch,
                options: with_epoch,
            },
            beside: None,
            stranger: None,
        }
    }

    /// Asks anew on another card, with short waits as at first.
    pub fn start_over(&mut self, sockets: &mut SocketSet<'static>, now: Instant) {
        sockets.get_mut::<dhcpv4::Socket>(self.handle).reset();
        if let Some(beside) = self.beside.take() {
            beside.inquiry.end(sockets);
        }
        self.discard_at = None;
        self.started = now;
        self.next_report = now + FIRST_REPORT;
    }

    /// Sets the wait before the next attempt and says so from time to time. To be called before
    /// the interface is polled.
    pub fn prepare(&mut self, sockets: &mut SocketSet<'static>, card: &dyn Nic, now: Instant) {
        self.asker.mac = card.mac();
        if self.discard_at.is_some_and(|at| at <= now) {
            self.discard_at = None;
            sockets.get_mut::<dhcpv4::Socket>(self.handle).reset();
        }
        if let Some(beside) = &mut self.beside
            && !beside.inquiry.prepare(sockets, now)
        {
            self.give_up(sockets, now);
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
        let beside = self.beside.as_ref();
        let inquiry = beside.map(|beside| beside.inquiry.deadline());
        [self.discard_at, inquiry].into_iter().flatten().min()
    }

    /// What the last poll of the interface brought; to be asked until `None`.
    pub fn event(&mut self, sockets: &mut SocketSet<'static>, now: Instant) -> Option<Event> {
        if let Some(server) = self.stranger.take() {
            return Some(Event::Stranger(server));
        }
        if let Some(event) = self.answer_beside(sockets, now) {
            return Some(event);
        }
        let socket = sockets.get_mut::<dhcpv4::Socket>(self.handle);
        match socket.poll()? {
            dhcpv4::Event::Deconfigured => {
                let was_leased = core::mem::replace(&mut self.leased, false);
                if let Some(beside) = self.beside.take() {
                    beside.inquiry.end(sockets);
                }
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
                    Verdict::Stranger => {
                        self.leased = true;
                        self.look_beside(sockets, lease.clone(), sender, now);
                        Some(Event::Leased(lease, None))
                    }
                    Verdict::None => {
                        self.leased = true;
                        Some(Event::Leased(lease, None))
                    }
                    Verdict::Given(personality) => {
                        self.leased = true;
                        self.has_personality(sockets);
                        Some(Event::Leased(lease, Some(personality)))
                    }
                }
            }
        }
    }

    /// From now on nothing is asked for but the lease.
    fn has_personality(&mut self, sockets: &mut SocketSet<'static>) {
        self.wants_personality = false;
        self.discard_at = None;
        let socket = sockets.get_mut::<dhcpv4::Socket>(self.handle);
        socket.set_outgoing_options(self.vendor_only);
        socket.set_parameter_request_list(ASK);
    }

    /// Looks for the boot service beside the `server` that gave `lease`.
    fn look_beside(
        &mut self,
        sockets: &mut SocketSet<'static>,
        lease: Lease,
        server: Ipv4Address,
        now: Instant,
    ) {
        if let Some(beside) = self.beside.take() {
            beside.inquiry.end(sockets);
        }
        let address = lease.address.address();
        let inquiry = Inquiry::begin(sockets, &self.asker, address, now);
        self.beside = Some(Beside {
            lease,
            server,
            inquiry,
        });
    }

    /// What the boot service beside another server has said.
    fn answer_beside(&mut self, sockets: &mut SocketSet<'static>, now: Instant) -> Option<Event> {
        let beside = self.beside.as_mut()?;
        let answer = beside.inquiry.answer(sockets)?;
        let beside = self.beside.take()?;
        beside.inquiry.end(sockets);
        match answer {
            Ok(personality) => {
                self.has_personality(sockets);
                Some(Event::Leased(beside.lease, Some(personality)))
            }
            Err(reason) => {
                let reason = String::from_utf8_lossy(&reason);
                error!("net", "no personality from the boot service: {reason}");
                let again = now + self.wait(now);
                self.discard_at = Some(again);
                self.next_report = again + FIRST_REPORT;
                None
            }
        }
    }

    /// Nobody answers beside the server: others get their turn.
    fn give_up(&mut self, sockets: &mut SocketSet<'static>, now: Instant) {
        let Some(beside) = self.beside.take() else {
            return;
        };
        error!(
            "net",
            "{} gave address {} but no personality (DHCP option {}), and no boot service answers \
             beside it (proxy DHCP, UDP port 4011); asking others",
            beside.lease.server,
            beside.lease.address,
            personality::DHCP_OPTION
        );
        beside.inquiry.end(sockets);
        self.stranger = Some(beside.server);
        self.next_report = now + FIRST_REPORT;
        sockets.get_mut::<dhcpv4::Socket>(self.handle).reset();
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
        match (parsed, reason) {
            (Some(Ok(personality)), _) => return Verdict::Given(personality),
            (Some(Err(error)), _) => error!(
                "net",
                "personality from {server} not understood ({error}); boot service of another version?"
            ),
            (None, Some(reason)) => error!("net", "no personality from {server}: {reason}"),
            (None, None) => return Verdict::Stranger,
        }
        let again = now + self.wait(now);
        self.discard_at = Some(again);
        self.next_report = again + FIRST_REPORT;
        Verdict::None
    }
}
