//! The network stack against a card whose other end is the test: DHCP as a boot service sees it,
//! datagrams, a full transmit ring. All in virtual time.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use kernel_core::cmdline::PeerPath;
use netstack::ids::NodeId;
use netstack::personality::{self, Personality, TREE_LEVELS};
use netstack::time::{Instant, Micros};
use netstack::wire::key::Key;
use smoltcp::wire::{
    DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, Ipv4Address, Ipv4Cidr,
};

use super::wire::{CARD_MAC, Sent, Wire};
use super::{Outcome, check};
use crate::net::{self, Arrival, Event, Stack};

const SERVER: Ipv4Address = Ipv4Address::new(10, 117, 0, 1);
const STRANGER: Ipv4Address = Ipv4Address::new(10, 117, 0, 66);
const NODE: Ipv4Address = Ipv4Address::new(10, 117, 1, 1);
const CONTROL: SocketAddrV4 = SocketAddrV4::new(SERVER, netstack::CONTROL_PORT);
const AT_NODE: SocketAddrV4 = SocketAddrV4::new(NODE, netstack::NODE_PORT);
const EPOCH: u64 = 0x0123_4567_89ab_cdef;
const LEASE_SECONDS: u32 = 600;
const DHCP_SERVER_PORT: u16 = 67;
const DHCP_CLIENT_PORT: u16 = 68;
const PROXY_PORT: u16 = 4011;
const OPTION_ASKED: u8 = 55;
const OPTION_MESSAGE: u8 = 56;
const OPTION_CLASS: u8 = 60;

/// The stack, its wire and the test's clock.
struct Bench {
    stack: Stack,
    wire: Wire,
    now: Instant,
    delivered: Vec<Vec<u8>>,
    peers: Vec<(SocketAddrV4, Vec<u8>)>,
}

impl Bench {
    fn new(address: Option<(Ipv4Cidr, Option<Ipv4Address>)>) -> Self {
        let (wire, card) = Wire::new();
        let now = Instant::from_micros(100_000);
        let config = net::Config {
            wants_personality: address.is_none(),
            address,
            version: "1.2.3",
            boot_epoch: EPOCH,
            peers: PeerPath::Direct,
        };
        Self {
            stack: Stack::new(card, &config, now),
            wire,
            now,
            delivered: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn poll(&mut self) -> bool {
        let (delivered, peers) = (&mut self.delivered, &mut self.peers);
        self.stack.poll(self.now, &mut |arrival| match arrival {
            Arrival::Control(datagram) => delivered.push(datagram.to_vec()),
            Arrival::Peer(arrived) => peers.push((arrived.from, arrived.bytes.to_vec())),
        })
    }

    /// Sleeps until the stack's next deadline.
    fn sleep(&mut self) -> Result<Micros, String> {
        let due = self.stack.next_deadline(self.now).ok_or("no deadline")?;
        check!(due > self.now, "a deadline that has passed: {due}");
        let slept = due.saturating_since(self.now);
        self.now = due;
        Ok(slept)
    }

    /// The DHCP message the node sends next, within ten minutes.
    fn dhcp_sent(&mut self) -> Result<Vec<u8>, String> {
        let end = self.now + Micros::from_secs(600);
        while self.now < end {
            self.poll();
            match self.wire.take_udp() {
                Some(Sent { port, payload }) if port == DHCP_SERVER_PORT => return Ok(payload),
                Some(_) => {}
                None => {
                    self.sleep()?;
                }
            }
        }
        Err("no DHCP message in ten minutes".to_string())
    }

    /// Answers a DHCP message as the boot service would when it adds `options`.
    fn dhcp_answer(&mut self, asked: &[u8], options: &[DhcpOption<'_>]) -> Outcome {
        self.dhcp_answer_from(SERVER, asked, options)
    }

    /// Answers a DHCP message as `server` would when it adds `options`.
    fn dhcp_answer_from(
        &mut self,
        server: Ipv4Address,
        asked: &[u8],
        options: &[DhcpOption<'_>],
    ) -> Outcome {
        let packet = DhcpPacket::new_checked(asked).map_err(|_| "no DHCP packet")?;
        let asked = DhcpRepr::parse(&packet).map_err(|_| "no DHCP message")?;
        if asked
            .server_identifier
            .is_some_and(|chosen| chosen != server)
        {
            return Ok(());
        }
        let answer = DhcpRepr {
            message_type: match asked.message_type {
                DhcpMessageType::Discover => DhcpMessageType::Offer,
                _ => DhcpMessageType::Ack,
            },
            client_ip: Ipv4Address::UNSPECIFIED,
            your_ip: NODE,
            server_ip: server,
            client_hardware_address: EthernetAddress(CARD_MAC),
            subnet_mask: Some(Ipv4Address::new(255, 255, 0, 0)),
            requested_ip: None,
            client_identifier: None,
            server_identifier: Some(server),
            parameter_request_list: None,
            max_size: None,
            lease_duration: Some(LEASE_SECONDS),
            additional_options: options,
            ..asked
        };
        let mut bytes = vec![0; answer.buffer_len()];
        answer
            .emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]))
            .map_err(|_| "answer too long")?;
        self.wire.put_udp(
            SocketAddrV4::new(server, DHCP_SERVER_PORT),
            SocketAddrV4::new(Ipv4Addr::BROADCAST, DHCP_CLIENT_PORT),
            &bytes,
        );
        self.poll();
        Ok(())
    }

    /// Answers the next two messages, which must be a DISCOVER and a REQUEST.
    fn dhcp_lease(&mut self, options: &[DhcpOption<'_>]) -> Outcome {
        for expected in [DhcpMessageType::Discover, DhcpMessageType::Request] {
            let sent = self.dhcp_sent()?;
            let kind = kind_of(&sent);
            check!(kind == Some(expected), "{kind:?} instead of {expected:?}");
            self.dhcp_answer(&sent, options)?;
        }
        Ok(())
    }

    fn personality(&mut self) -> Option<Personality> {
        core::iter::from_fn(|| self.stack.poll_event()).find_map(|event| match event {
            Event::Personality(personality) => Some(*personality),
            _ => None,
        })
    }
}

fn kind_of(message: &[u8]) -> Option<DhcpMessageType> {
    let packet = DhcpPacket::new_checked(message).ok()?;
    Some(DhcpRepr::parse(&packet).ok()?.message_type)
}

fn option(message: &[u8], kind: u8) -> Option<Vec<u8>> {
    let packet = DhcpPacket::new_checked(message).ok()?;
    let option = packet.options().find(|option| option.kind == kind)?;
    Some(option.data.to_vec())
}

fn sample() -> Personality {
    Personality {
        node: NodeId(3),
        control_addr: SERVER.octets(),
        control_port: netstack::CONTROL_PORT,
        http_port: 7180,
        tree_height: 0,
        place: [0; TREE_LEVELS],
        key_id: 1,
        key: Key([7; 16]),
        name: "n3".to_string(),
    }
}

fn with_personality(bytes: &[u8]) -> [DhcpOption<'_>; 1] {
    [DhcpOption {
        kind: personality::DHCP_OPTION,
        data: bytes,
    }]
}

/// A node says who it is, takes its personality, and renews its lease without asking for another.
pub fn dhcp_personality() -> Outcome {
    let mut bench = Bench::new(None);
    let bytes = sample().emit().map_err(|error| format!("{error}"))?;
    let discover = bench.dhcp_sent()?;
    let class = option(&discover, OPTION_CLASS);
    check!(
        class.as_deref() == Some(b"hearth-node:1.2.3"),
        "vendor class {class:?}"
    );
    let epoch = option(&discover, personality::EPOCH_OPTION);
    check!(
        epoch.as_deref() == Some(&EPOCH.to_be_bytes()[..]),
        "boot epoch {epoch:?}"
    );
    let asked = option(&discover, OPTION_ASKED).unwrap_or_default();
    check!(
        asked.contains(&personality::DHCP_OPTION),
        "asked for {asked:?}"
    );
    bench.dhcp_answer(&discover, &with_personality(&bytes))?;
    let request = bench.dhcp_sent()?;
    check!(bench.personality().is_none(), "an offer is no lease");
    bench.dhcp_answer(&request, &with_personality(&bytes))?;
    check!(
        bench.personality() == Some(sample()),
        "not the personality that was sent"
    );
    let leased = bench.now;
    for round in 1..=3 {
        let renewal = bench.dhcp_sent()?;
        check!(
            option(&renewal, personality::EPOCH_OPTION).is_none(),
            "renewal {round} asks for a key again"
        );
        bench.dhcp_answer(&renewal, &[])?;
        let after = bench.now.saturating_since(leased);
        let half = u64::from(LEASE_SECONDS) / 2 * round;
        let due = Micros::from_secs(half)..Micros::from_secs(half + 10);
        check!(due.contains(&after), "renewal {round} after {after}");
        check!(
            bench.stack.address().is_some(),
            "address lost at renewal {round}"
        );
    }
    Ok(())
}

/// A server that gives leases without personality, and is always the first to offer, does not keep
/// the node from its boot service.
pub fn dhcp_stranger() -> Outcome {
    let mut bench = Bench::new(None);
    let bytes = sample().emit().map_err(|error| format!("{error}"))?;
    let start = bench.now;
    for _ in 0..8 {
        let sent = bench.dhcp_sent()?;
        bench.dhcp_answer_from(STRANGER, &sent, &[])?;
        bench.dhcp_answer(&sent, &with_personality(&bytes))?;
        if bench.personality() == Some(sample()) {
            let took = bench.now.saturating_since(start);
            check!(took < Micros::from_secs(5), "took {took}");
            return Ok(());
        }
    }
    Err("no personality in eight messages".to_string())
}

/// Where the site's own server gives the address, the node asks the boot service beside it, takes
/// its personality from there and keeps the address.
pub fn dhcp_beside() -> Outcome {
    let mut bench = Bench::new(None);
    let bytes = sample().emit().map_err(|error| format!("{error}"))?;
    for _ in 0..2 {
        let sent = bench.dhcp_sent()?;
        bench.dhcp_answer_from(STRANGER, &sent, &[])?;
    }
    bench.poll();
    let Some(Sent { port, payload }) = bench.wire.take_udp() else {
        return Err("nothing was sent".to_string());
    };
    check!(port == PROXY_PORT, "asked at port {port}");
    let packet = DhcpPacket::new_checked(&payload[..]).map_err(|_| "no DHCP packet")?;
    let asked = DhcpRepr::parse(&packet).map_err(|_| "no DHCP message")?;
    let kind = asked.message_type;
    check!(kind == DhcpMessageType::Inform, "{kind:?}");
    check!(asked.client_ip == NODE, "from {}", asked.client_ip);
    let epoch = option(&payload, personality::EPOCH_OPTION);
    check!(
        epoch.as_deref() == Some(&EPOCH.to_be_bytes()[..]),
        "boot epoch {epoch:?}"
    );
    // Of another node's inquiry, then of this one's.
    for transaction in [asked.transaction_id ^ 1, asked.transaction_id] {
        check!(bench.personality().is_none(), "a personality of another");
        let options = with_personality(&bytes);
        let answer = DhcpRepr {
            message_type: DhcpMessageType::Ack,
            transaction_id: transaction,
            server_identifier: Some(SERVER),
            parameter_request_list: None,
            additional_options: &options,
            ..asked.clone()
        };
        let mut bytes = vec![0; answer.buffer_len()];
        answer
            .emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]))
            .map_err(|_| "answer too long")?;
        let from = SocketAddrV4::new(SERVER, PROXY_PORT);
        let to = SocketAddrV4::new(NODE, PROXY_PORT);
        bench.wire.put_udp(from, to, &bytes);
        bench.poll();
    }
    check!(bench.personality() == Some(sample()), "no personality");
    // Renewals go to who gave the lease, and ask for nothing else.
    let renewal = bench.dhcp_sent()?;
    check!(
        option(&renewal, personality::EPOCH_OPTION).is_none(),
        "the renewal asks for a key again"
    );
    bench.dhcp_answer_from(STRANGER, &renewal, &[])?;
    check!(bench.stack.address().is_some(), "address lost");
    Ok(())
}

/// A boot service beside the site's server that is away is looked for again and again.
pub fn dhcp_beside_later() -> Outcome {
    let mut bench = Bench::new(None);
    let end = bench.now + Micros::from_secs(900);
    let (mut last, mut longest) = (bench.now, Micros::ZERO);
    while bench.now < end {
        bench.poll();
        match bench.wire.take_udp() {
            Some(Sent { port, payload }) if port == DHCP_SERVER_PORT => {
                bench.dhcp_answer_from(STRANGER, &payload, &[])?;
            }
            Some(Sent { port, .. }) if port == PROXY_PORT => {
                longest = longest.max(bench.now.saturating_since(last));
                last = bench.now;
            }
            Some(_) => {}
            None => {
                bench.sleep()?;
            }
        }
    }
    longest = longest.max(bench.now.saturating_since(last));
    check!(longest <= Micros::from_secs(75), "not asked for {longest}");
    Ok(())
}

/// A boot service that refuses, or sends nonsense, is asked again and again.
pub fn dhcp_refused() -> Outcome {
    let mut bench = Bench::new(None);
    let bytes = sample().emit().map_err(|error| format!("{error}"))?;
    let reason = [DhcpOption {
        kind: OPTION_MESSAGE,
        data: b"no node is configured for this machine",
    }];
    for _ in 0..3 {
        bench.dhcp_lease(&reason)?;
        check!(bench.personality().is_none(), "a personality from nowhere");
    }
    bench.dhcp_lease(&with_personality(&bytes[..20]))?;
    check!(bench.personality().is_none(), "a cut personality was taken");
    bench.dhcp_lease(&with_personality(&bytes))?;
    check!(bench.personality() == Some(sample()), "no personality");
    Ok(())
}

/// Without an answer the node goes on asking, ever more slowly, at most every 37.5 s.
pub fn dhcp_silence() -> Outcome {
    let mut bench = Bench::new(None);
    let mut last = bench.now;
    let mut longest = Micros::ZERO;
    let hour = bench.now + Micros::from_secs(3600);
    let mut sent = 0u64;
    while bench.now < hour {
        bench.dhcp_sent()?;
        sent += 1;
        longest = longest.max(bench.now.saturating_since(last));
        last = bench.now;
    }
    check!(
        longest <= Micros::from_millis(37_500),
        "a pause of {longest}"
    );
    check!(
        (96..=130).contains(&sent),
        "{sent} messages in an hour of silence"
    );
    Ok(())
}

fn at_work() -> Bench {
    let mut bench = Bench::new(Some((Ipv4Cidr::new(NODE, 16), None)));
    bench.stack.set_control(CONTROL);
    bench
}

/// Datagrams of the control node arrive, in order and a burst at a time; others do not.
pub fn datagrams_in() -> Outcome {
    let mut bench = at_work();
    const COUNT: usize = 100;
    let stranger = SocketAddrV4::new(Ipv4Addr::new(10, 117, 0, 9), netstack::CONTROL_PORT);
    for index in 0..COUNT {
        bench.wire.put_udp(CONTROL, AT_NODE, &[index as u8; 1400]);
        if index % 10 == 0 {
            bench.wire.put_udp(stranger, AT_NODE, b"not from control");
        }
    }
    let mut bursts = 0;
    while bench.poll() {
        bursts += 1;
    }
    let expected: Vec<Vec<u8>> = (0..COUNT).map(|index| vec![index as u8; 1400]).collect();
    check!(
        bench.delivered == expected,
        "{} datagrams",
        bench.delivered.len()
    );
    check!(
        bursts == (COUNT + COUNT / 10) / net::RECEIVE_BURST,
        "{bursts} bursts"
    );
    let foreign = bench.stack.counters().1.foreign;
    check!(foreign == COUNT as u64 / 10, "{foreign} foreign datagrams");
    Ok(())
}

/// Datagrams leave in order; with a full transmit ring they wait, and the node sleeps.
pub fn datagrams_out() -> Outcome {
    let mut bench = at_work();
    bench.wire.set_room(0);
    let mut queued = 0u8;
    while bench.stack.can_send() {
        check!(bench.stack.send(&[queued; 100]), "datagram not taken");
        queued += 1;
    }
    check!(queued >= 32, "room for {queued} datagrams only");
    check!(
        !bench.stack.send(b"one more"),
        "a full queue took a datagram"
    );
    for _ in 0..10 {
        bench.poll();
        check!(bench.wire.take_udp().is_none(), "sent without room");
        bench.sleep()?;
    }
    bench.wire.set_room(usize::MAX);
    let mut sent = Vec::new();
    for _ in 0..10 {
        bench.poll();
        sent.extend(core::iter::from_fn(|| bench.wire.take_udp()));
    }
    check!(
        sent.len() == usize::from(queued),
        "{} of {queued} datagrams left",
        sent.len()
    );
    for (index, datagram) in sent.iter().enumerate() {
        check!(
            datagram.port == netstack::CONTROL_PORT && datagram.payload == [index as u8; 100],
            "datagram {index} is another"
        );
    }
    Ok(())
}
