//! Decides what each request gets.

use super::client::{self, Client};
use super::issue::Issuer;
use super::leases::{Lease, LeaseError, LeaseTable};
use super::notice::{Notice, Notices};
use super::packet::{self, Request};
use super::reply::{self, Decision, Settings};
use crate::config::Config;
use crate::event::Event;
use crate::hooks::{Personalities, Refused};
use crate::mac::Mac;
use dhcproto::v4::MessageType;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Which of the service's ports a packet came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 67, the DHCP server.
    Dhcp,
    /// 4011, the proxy-DHCP ("boot") server.
    Proxy,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub to: SocketAddrV4,
}

/// Packets by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    /// Not a DHCP request; see [`packet::ParseError`].
    pub malformed: u64,
    /// A request that gets no answer by the rules, for example one meant for another server.
    pub ignored: u64,
    pub offers: u64,
    pub acks: u64,
    pub naks: u64,
    /// Personalities sent, retransmissions included.
    pub personalities: u64,
}

/// The DHCP server's logic and state.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    /// Whether a network card can be used, by PCI vendor and device.
    drives: fn(u16, u16) -> bool,
    lease_time: Duration,
    leases: LeaseTable,
    issuer: Issuer,
    notices: Notices,
    counters: Counters,
}

impl Server {
    /// A server for a configuration that [`Config::check`] accepts.
    pub fn new(config: &Config) -> Server {
        let settings = Settings::of(config);
        let network = Ipv4Addr::from_bits(config.address.to_bits() & settings.netmask.to_bits());
        let mut excluded = vec![config.address, network, settings.broadcast];
        excluded.extend(config.gateway);
        Server {
            leases: LeaseTable::new(&config.leases, &excluded),
            drives: match config.other {
                None => config.drives,
                // It has drivers of its own.
                Some(_) => |_, _| true,
            },
            lease_time: config.lease_time,
            settings,
            issuer: Issuer::default(),
            notices: Notices::default(),
            counters: Counters::default(),
        }
    }

    /// Takes one datagram and gives the answer to it, if it gets one.
    pub fn handle(
        &mut self,
        now: Duration,
        port: Port,
        from: SocketAddrV4,
        bytes: &[u8],
        personalities: &dyn Personalities,
    ) -> Option<Reply> {
        self.counters.received += 1;
        let request = match packet::parse(bytes) {
            Ok(request) => request,
            Err(_) => {
                self.counters.malformed += 1;
                return None;
            }
        };
        let reply = self.answer(now, port, from, &request, personalities);
        if reply.is_none() {
            self.counters.ignored += 1;
        }
        reply
    }

    /// The next thing that happened.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The lease table, for questions about addresses.
    pub fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    /// The lease table, for keeping it over a restart.
    pub fn leases_mut(&mut self) -> &mut LeaseTable {
        &mut self.leases
    }

    /// The node of this boot has joined: its personality is not given out again.
    pub fn joined(&mut self, mac: Mac, boot_epoch: u64) {
        self.issuer.joined(mac, boot_epoch);
    }

    fn answer(
        &mut self,
        now: Duration,
        port: Port,
        from: SocketAddrV4,
        request: &Request,
        personalities: &dyn Personalities,
    ) -> Option<Reply> {
        let client = Client::of(request);
        if client == Client::Doctor || !self.on_this_network(request) {
            return None;
        }
        if let Err(error) = self.leases.admits(request.mac) {
            self.report_lease_error(now, request.mac, error);
            return None;
        }
        if let Client::Unsupported { architecture } = client {
            let event = Event::UnsupportedFirmware {
                mac: request.mac,
                architecture,
            };
            self.notices.report(now, request.mac, event);
            return None;
        }
        if let Some((vendor, device)) = client::card_of(request)
            && !(self.drives)(vendor, device)
        {
            // Without an answer the firmware goes on to its next card, which may do.
            self.note_asked(request, client);
            let event = Event::NoDriver {
                mac: request.mac,
                vendor,
                device,
            };
            self.notices.report(now, request.mac, event);
            return None;
        }
        if self.settings.proxy {
            return self.answer_as_proxy(now, port, from, request, client, personalities);
        }
        if port != Port::Dhcp {
            return None;
        }
        match request.kind {
            MessageType::Discover => self.discover(now, request, client),
            MessageType::Request => self.request(now, request, client, personalities),
            MessageType::Inform => Some(self.inform(request, client)),
            MessageType::Decline => {
                self.decline(now, request);
                None
            }
            MessageType::Release => {
                self.leases.release(request.mac, request.ciaddr, now);
                None
            }
            _ => None,
        }
    }

    /// Packets of a relay on another network are not for this pool. A proxy has none.
    fn on_this_network(&self, request: &Request) -> bool {
        let mask = self.settings.netmask.to_bits();
        let server = self.settings.places.address.to_bits();
        let is_here = |giaddr: Ipv4Addr| giaddr.to_bits() & mask == server & mask;
        let relay = request.giaddr;
        relay.is_unspecified() || self.settings.proxy || is_here(relay)
    }

    fn discover(&mut self, now: Duration, request: &Request, client: Client) -> Option<Reply> {
        self.note_asked(request, client);
        let lease = match self.leases.offer(request.mac, request.requested, now) {
            Ok(lease) => lease,
            Err(error) => {
                self.report_lease_error(now, request.mac, error);
                return None;
            }
        };
        self.counters.offers += 1;
        Some(self.reply(request, client, lease_decision(MessageType::Offer, lease)))
    }

    /// RFC 2131, 4.3.2: which state the client is in shows in what it fills in.
    fn request(
        &mut self,
        now: Duration,
        request: &Request,
        client: Client,
        personalities: &dyn Personalities,
    ) -> Option<Reply> {
        let address = match (request.server, request.requested) {
            (Some(server), _) if server != self.settings.places.address => {
                let event = Event::ForeignServer {
                    server,
                    mac: Some(request.mac),
                };
                self.notices.report(now, request.mac, event);
                return None;
            }
            (_, Some(requested)) if request.ciaddr.is_unspecified() => requested,
            _ if !request.ciaddr.is_unspecified() => request.ciaddr,
            _ => return None,
        };
        self.note_asked(request, client);
        let Some(lease) = self
            .leases
            .confirm(request.mac, address, now + self.lease_time)
        else {
            self.counters.naks += 1;
            let text = format!("{address} is not this machine's address here; ask again");
            return Some(self.reply(request, client, Decision::nak(text)));
        };
        let Lease { address, node } = lease;
        self.notices.push(Notice::Addressed {
            mac: request.mac,
            address,
            node,
        });
        self.counters.acks += 1;
        let mut decision = lease_decision(MessageType::Ack, lease);
        // A renewal carries the epoch as well, but its node has its personality already.
        let renewal = !request.ciaddr.is_unspecified();
        let epoch = request
            .boot_epoch
            .filter(|_| client == Client::Kernel && !renewal);
        let personality =
            epoch.map(|epoch| self.personality(now, request.mac, epoch, address, personalities));
        match &personality {
            Some(Ok(bytes)) => decision.personality = Some(bytes),
            Some(Err(refused)) => decision.message = Some(refused.reason.clone()),
            None => {}
        }
        Some(self.reply(request, client, decision))
    }

    fn inform(&mut self, request: &Request, client: Client) -> Reply {
        self.counters.acks += 1;
        let decision = no_lease_decision(MessageType::Ack);
        self.reply(request, client, decision)
    }

    fn decline(&mut self, now: Duration, request: &Request) {
        let Some(address) = request.requested else {
            return;
        };
        if self.leases.decline(request.mac, address, now) {
            let event = Event::AddressDeclined {
                mac: request.mac,
                address,
            };
            self.notices.report(now, request.mac, event);
        }
    }

    /// Proxy DHCP: the address comes from the site's own server, this one only says what to boot. A
    /// kernel asks with an INFORM once it has its address.
    fn answer_as_proxy(
        &mut self,
        now: Duration,
        port: Port,
        from: SocketAddrV4,
        request: &Request,
        client: Client,
        personalities: &dyn Personalities,
    ) -> Option<Reply> {
        let boots = client
            .boot_file(request.mac, &self.settings.places)
            .is_some();
        if let (MessageType::Request, Port::Dhcp, Some(address)) =
            (request.kind, port, request.requested)
        {
            // To the site's server; it tells which machine will ask for files from that address.
            if client.firmware().is_some() {
                self.notices.push(Notice::Addressed {
                    mac: request.mac,
                    address,
                    node: None,
                });
            }
            return None;
        }
        let kind = match (request.kind, port) {
            (MessageType::Discover, Port::Dhcp) if boots => MessageType::Offer,
            (MessageType::Request | MessageType::Inform, Port::Proxy) if boots => MessageType::Ack,
            (MessageType::Inform, _) if client == Client::Kernel => MessageType::Ack,
            _ => return None,
        };
        self.note_asked(request, client);
        let mut decision = no_lease_decision(kind);
        let epoch = request.boot_epoch.filter(|_| client == Client::Kernel);
        let personality = epoch
            .map(|epoch| self.personality(now, request.mac, epoch, request.ciaddr, personalities));
        match &personality {
            Some(Ok(bytes)) => decision.personality = Some(bytes),
            Some(Err(refused)) => decision.message = Some(refused.reason.clone()),
            None => {}
        }
        match kind {
            MessageType::Offer => self.counters.offers += 1,
            _ => self.counters.acks += 1,
        }
        let mut reply = self.reply(request, client, decision);
        if port == Port::Proxy {
            reply.to = from;
        }
        Some(reply)
    }

    /// The personality for one boot of one machine: asked for once, repeated until the node has
    /// joined, refused from then on.
    fn personality(
        &mut self,
        now: Duration,
        mac: Mac,
        boot_epoch: u64,
        address: Ipv4Addr,
        personalities: &dyn Personalities,
    ) -> Result<Vec<u8>, Refused> {
        let answer = self.issuer.request(mac, boot_epoch, address, personalities);
        match &answer {
            Ok(_) => {
                self.counters.personalities += 1;
                self.notices.push(Notice::Personality { mac, boot_epoch });
            }
            Err(Refused { reason }) => {
                let reason = reason.clone();
                self.notices.report(
                    now,
                    mac,
                    Event::PersonalityRefused {
                        mac,
                        boot_epoch,
                        reason,
                    },
                );
            }
        }
        answer
    }

    fn reply(&self, request: &Request, client: Client, decision: Decision<'_>) -> Reply {
        let to = reply::destination(request, decision.kind);
        Reply {
            bytes: reply::encode(&self.settings, request, client, decision),
            to,
        }
    }

    fn note_asked(&mut self, request: &Request, client: Client) {
        if let Some(firmware) = client.firmware() {
            let Request {
                mac, boot_epoch, ..
            } = *request;
            self.notices.push(Notice::Asked {
                mac,
                firmware,
                boot_epoch,
            });
        }
    }

    fn report_lease_error(&mut self, now: Duration, mac: Mac, error: LeaseError) {
        let event = match error {
            LeaseError::UnknownMachine => Event::UnknownMachine { mac },
            LeaseError::Exhausted { size } => Event::LeasesExhausted { mac, size },
        };
        self.notices.report(now, mac, event);
    }
}

fn lease_decision(kind: MessageType, lease: Lease) -> Decision<'static> {
    Decision {
        kind,
        address: lease.address,
        node: lease.node,
        personality: None,
        message: None,
    }
}

fn no_lease_decision(kind: MessageType) -> Decision<'static> {
    Decision {
        kind,
        address: Ipv4Addr::UNSPECIFIED,
        node: None,
        personality: None,
        message: None,
    }
}
