//! Transfers in virtual time, with clients that behave as firmware does and a wire that loses
//! packets.

use super::{Files, Finished, Outcome, Server};
use axum::body::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

struct OneFile(Bytes);

impl Files for OneFile {
    fn open(&self, _: Ipv4Addr, name: &str) -> Result<Bytes, String> {
        if name == "hearth.efi" {
            Ok(self.0.clone())
        } else {
            Err(format!("there is no {name}"))
        }
    }
}

fn content(length: usize) -> Bytes {
    (0..length)
        .map(|i| (i / 7 + i / 512) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn address(n: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, n), 2_070)
}

fn read_request(file: &str, options: &[(&str, u64)]) -> Vec<u8> {
    let mut packet = vec![0, 1];
    for text in [file, "octet"] {
        packet.extend(text.bytes());
        packet.push(0);
    }
    for (name, value) in options {
        packet.extend(name.bytes());
        packet.push(0);
        packet.extend(value.to_string().bytes());
        packet.push(0);
    }
    packet
}

fn ack(block: u16) -> Vec<u8> {
    [[0, 4], block.to_be_bytes()].concat()
}

/// A small generator of even quality, so that a failing seed can be run again.
struct Dice(u64);

impl Dice {
    fn percent(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 100
    }
}

/// A client that reads one file: acknowledges in order, at the end of each window, and repeats
/// itself when nothing comes.
struct Client {
    address: SocketAddrV4,
    request: Vec<u8>,
    block_bytes: usize,
    window: u64,
    received: Vec<u8>,
    /// Blocks received in order.
    blocks: u64,
    acknowledged: u64,
    answered: bool,
    size: Option<u64>,
    done: bool,
    last_activity: Duration,
}

/// How long the client waits before it repeats itself.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(1_000);

impl Client {
    fn new(n: u8, options: &[(&str, u64)]) -> Client {
        Client {
            address: address(n),
            request: read_request("hearth.efi", options),
            block_bytes: 512,
            window: 1,
            received: Vec::new(),
            blocks: 0,
            acknowledged: 0,
            answered: false,
            size: None,
            done: false,
            last_activity: Duration::ZERO,
        }
    }

    fn ack(&mut self) -> Vec<u8> {
        self.acknowledged = self.blocks;
        ack(self.blocks as u16)
    }

    fn handle(&mut self, now: Duration, packet: &[u8]) -> Option<Vec<u8>> {
        self.last_activity = now;
        match packet {
            [0, 6, options @ ..] => {
                self.answered = true;
                let mut texts = options.split(|byte| *byte == 0);
                while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                    let value: u64 = std::str::from_utf8(value).unwrap().parse().unwrap();
                    match name {
                        b"blksize" => self.block_bytes = value as usize,
                        b"windowsize" => self.window = value,
                        b"tsize" => self.size = Some(value),
                        _ => {}
                    }
                }
                (self.blocks == 0).then(|| ack(0))
            }
            [0, 3, high, low, data @ ..] => {
                self.answered = true;
                let block = u16::from_be_bytes([*high, *low]);
                if block != (self.blocks + 1) as u16 {
                    // A gap or an old packet: say what is here.
                    return Some(self.ack());
                }
                self.blocks += 1;
                self.received.extend(data);
                if data.len() < self.block_bytes {
                    self.done = true;
                    return Some(self.ack());
                }
                (self.blocks - self.acknowledged >= self.window).then(|| self.ack())
            }
            // The answer to an acknowledgement repeated after the transfer ended.
            [0, 5, 0, 5, ..] if self.done => None,
            other => panic!("client got {other:?}"),
        }
    }

    fn timeout(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.done || now < self.last_activity + CLIENT_TIMEOUT {
            return None;
        }
        self.last_activity = now;
        Some(if self.answered {
            self.ack()
        } else {
            self.request.clone()
        })
    }
}

struct World {
    server: Server,
    file: OneFile,
    clients: BTreeMap<SocketAddrV4, Client>,
    loss_percent: u64,
    dice: Dice,
    now: Duration,
    packets: u64,
}

impl World {
    fn new(file: Bytes, clients: Vec<Client>, loss_percent: u64, seed: u64) -> World {
        World {
            server: Server::new(),
            file: OneFile(file),
            clients: clients
                .into_iter()
                .map(|client| (client.address, client))
                .collect(),
            loss_percent,
            dice: Dice(seed),
            now: Duration::ZERO,
            packets: 0,
        }
    }

    /// Runs until all clients are done and the server has no transfer left; panics after `limit` of
    /// virtual time.
    fn run(&mut self, limit: Duration) -> Vec<Finished> {
        let mut to_server: VecDeque<(SocketAddrV4, Vec<u8>)> = self
            .clients
            .values()
            .map(|client| (client.address, client.request.clone()))
            .collect();
        let mut finished = Vec::new();
        loop {
            while let Some((from, packet)) = to_server.pop_front() {
                if self.dice.percent() >= self.loss_percent {
                    self.server.handle(self.now, from, &packet, &self.file);
                }
            }
            while let Some((to, packet)) = self.server.poll_transmit(self.now) {
                self.packets += 1;
                if self.dice.percent() >= self.loss_percent {
                    let client = self.clients.get_mut(&to).unwrap();
                    to_server.extend(client.handle(self.now, &packet).map(|answer| (to, answer)));
                }
            }
            finished.extend(std::iter::from_fn(|| self.server.poll_finished()));
            let done = self.clients.values().all(|client| client.done);
            if done && to_server.is_empty() && self.server.poll_timeout().is_none() {
                return finished;
            }
            self.now += Duration::from_millis(5);
            assert!(self.now < limit, "not done after {limit:?}");
            for client in self.clients.values_mut() {
                to_server.extend(
                    client
                        .timeout(self.now)
                        .map(|answer| (client.address, answer)),
                );
            }
        }
    }
}

const OVMF: [(&str, u64); 3] = [("tsize", 0), ("blksize", 1_468), ("windowsize", 4)];
const IPXE: [(&str, u64); 2] = [("blksize", 1_432), ("tsize", 0)];

#[test]
fn sixty_four_machines_read_the_image_through_loss() {
    let file = content(300_000);
    let clients = (0..64)
        .map(|n| Client::new(n, if n % 2 == 0 { &OVMF } else { &IPXE }))
        .collect();
    let mut world = World::new(file.clone(), clients, 5, 1);
    let finished = world.run(Duration::from_secs(300));
    assert_eq!(finished.len(), 64);
    for Finished {
        client,
        file,
        outcome,
    } in finished
    {
        assert_eq!(
            (file.as_str(), outcome),
            ("hearth.efi", Outcome::Complete),
            "{client}"
        );
    }
    for client in world.clients.values() {
        assert_eq!(client.received, file, "{}", client.address);
        assert_eq!(client.size, Some(300_000));
    }
}

#[test]
fn without_loss_no_block_is_sent_twice() {
    let file = content(100 * 1_468 + 1);
    let mut world = World::new(file, vec![Client::new(1, &OVMF)], 0, 1);
    world.run(Duration::from_secs(60));
    assert_eq!(
        world.packets,
        101 + 1,
        "blocks and the option acknowledgement"
    );
}

#[test]
fn a_size_that_is_a_multiple_of_the_block_ends_with_an_empty_block() {
    for length in [0, 511, 512, 1_024] {
        let file = content(length);
        let mut world = World::new(file.clone(), vec![Client::new(1, &[])], 0, 1);
        let finished = world.run(Duration::from_secs(60));
        assert_eq!(finished[0].outcome, Outcome::Complete);
        assert_eq!(world.clients[&address(1)].received, file);
        assert_eq!(world.packets as usize, length / 512 + 1);
    }
}

#[test]
fn block_numbers_go_round_in_long_files() {
    let file = content(70_000 * 8);
    let options = [("blksize", 8), ("windowsize", 16)];
    let mut world = World::new(file.clone(), vec![Client::new(1, &options)], 1, 3);
    world.run(Duration::from_secs(600));
    assert_eq!(world.clients[&address(1)].received, file);
}

#[test]
fn ovmf_asks_for_the_size_first() {
    let files = OneFile(content(5_000));
    let mut server = Server::new();
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("hearth.efi", &OVMF),
        &files,
    );
    let (_, answer) = server.poll_transmit(Duration::ZERO).unwrap();
    let expected = b"\0\x06blksize\x001468\0tsize\x005000\0windowsize\x004\0";
    assert_eq!(answer, expected);
    server.handle(
        Duration::ZERO,
        address(1),
        b"\0\x05\0\x08User aborted the transfer\0",
        &files,
    );
    assert_eq!(server.poll_finished().unwrap().outcome, Outcome::Declined);
    assert_eq!(server.poll_timeout(), None, "nothing is left of it");
    // Again from the same port, in earnest.
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("hearth.efi", &OVMF),
        &files,
    );
    assert!(server.poll_transmit(Duration::ZERO).is_some());
}

#[test]
fn values_too_large_are_lowered() {
    let files = OneFile(content(5_000));
    let mut server = Server::new();
    let options = [
        ("blksize", 65_464),
        ("windowsize", 65_535),
        ("timeout", 200),
    ];
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("hearth.efi", &options),
        &files,
    );
    let (_, answer) = server.poll_transmit(Duration::ZERO).unwrap();
    assert_eq!(answer, b"\0\x06blksize\x001468\0windowsize\x0016\0");
}

#[test]
fn a_repeated_request_is_no_second_transfer_and_a_vanished_client_is_given_up() {
    let files = OneFile(content(5_000));
    let mut server = Server::new();
    let request = read_request("hearth.efi", &[]);
    server.handle(Duration::ZERO, address(1), &request, &files);
    server.handle(Duration::ZERO, address(1), &request, &files);
    let mut now = Duration::ZERO;
    let mut sent = 0;
    while let Some(at) = server.poll_timeout() {
        while let Some((_, packet)) = server.poll_transmit(now) {
            assert_eq!(packet[..4], [0, 3, 0, 1]);
            sent += 1;
        }
        now = at.max(now);
        assert!(now < Duration::from_secs(60));
    }
    assert_eq!(sent, 1 + 8, "the block and its repeats");
    let reason = Outcome::Failed("the machine stopped answering at block 1 of 10".into());
    assert_eq!(server.poll_finished().unwrap().outcome, reason);
}

#[test]
fn old_acknowledgements_are_not_answered() {
    let files = OneFile(content(5_000));
    let mut server = Server::new();
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("hearth.efi", &[]),
        &files,
    );
    assert!(server.poll_transmit(Duration::ZERO).is_some());
    server.handle(Duration::ZERO, address(1), &ack(1), &files);
    assert!(server.poll_transmit(Duration::ZERO).is_some());
    server.handle(Duration::ZERO, address(1), &ack(1), &files);
    server.handle(Duration::ZERO, address(1), &ack(9), &files);
    assert_eq!(server.poll_transmit(Duration::ZERO), None);
}

#[test]
fn what_may_not_be_read_is_refused_with_a_reason() {
    let files = OneFile(content(10));
    let mut server = Server::new();
    let mut refusal = |packet: &[u8]| {
        server.handle(Duration::ZERO, address(1), packet, &files);
        let (_, answer) = server.poll_transmit(Duration::ZERO).unwrap();
        let text = String::from_utf8(answer[4..answer.len() - 1].to_vec()).unwrap();
        assert_eq!(answer[..3], [0, 5, 0]);
        (answer[3], text)
    };
    for name in [
        "../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "..",
        "",
        "c:\\x",
        ".hidden",
    ] {
        assert_eq!(refusal(&read_request(name, &[])).0, 2, "{name}");
    }
    assert_eq!(
        refusal(&read_request("nothing", &[])),
        (1, "there is no nothing".into())
    );
    assert_eq!(refusal(b"\0\x02hearth.efi\0octet\0").0, 2, "writing");
    assert_eq!(refusal(b"\0\x01hearth.efi\0netascii\0").0, 4);
    assert_eq!(refusal(&ack(5)).0, 5);
    // A leading slash is how some firmware writes a plain name.
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("/hearth.efi", &[]),
        &files,
    );
    assert_eq!(
        server.poll_transmit(Duration::ZERO).unwrap().1[..4],
        [0, 3, 0, 1]
    );
}

#[test]
fn transfers_are_bounded() {
    let files = OneFile(content(10_000));
    let mut server = Server::new();
    for port in 1..=5 {
        let from = SocketAddrV4::new(*address(1).ip(), port);
        server.handle(
            Duration::ZERO,
            from,
            &read_request("hearth.efi", &[]),
            &files,
        );
    }
    let refused = server.poll_finished().unwrap();
    assert_eq!(refused.client.port(), 5);
    assert!(matches!(refused.outcome, Outcome::Failed(reason) if reason.contains("too many")));
    let mut started = 4;
    for n in 0..=255u8 {
        for port in 1..=2 {
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 117, 2, n), port);
            server.handle(
                Duration::ZERO,
                from,
                &read_request("hearth.efi", &[]),
                &files,
            );
            started += usize::from(server.poll_finished().is_none());
        }
    }
    assert_eq!(started, 256);
}

#[test]
fn a_client_that_only_trickles_is_given_up() {
    let files = OneFile(content(100_000));
    let mut server = Server::new();
    let options = [("windowsize", 2), ("blksize", 8)];
    server.handle(
        Duration::ZERO,
        address(1),
        &read_request("hearth.efi", &options),
        &files,
    );
    let mut now = Duration::ZERO;
    server.handle(now, address(1), &ack(0), &files);
    let mut block = 0;
    while now < Duration::from_secs(700) {
        while server.poll_transmit(now).is_some() {}
        now += Duration::from_millis(400);
        block += 1;
        server.handle(now, address(1), &ack(block), &files);
    }
    let outcome = server.poll_finished().unwrap().outcome;
    assert!(matches!(outcome, Outcome::Failed(reason) if reason.contains("600 s")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the options, the length and the losses, the file arrives whole.
    #[test]
    fn the_file_arrives_whole(
        length in 0usize..20_000,
        block in 8u64..2_000,
        window in 1u64..40,
        with_options in any::<bool>(),
        loss in 0u64..30,
        seed in any::<u64>(),
    ) {
        let options = [("blksize", block), ("windowsize", window)];
        let client = Client::new(1, if with_options { &options } else { &[] });
        let file = content(length);
        let mut world = World::new(file.clone(), vec![client], loss, seed);
        let finished = world.run(Duration::from_secs(3_000));
        prop_assert_eq!(&world.clients[&address(1)].received, &file);
        prop_assert!(finished.iter().any(|finished| finished.outcome == Outcome::Complete));
    }

    /// Any packets in any order leave a server within its bounds.
    #[test]
    fn hostile_packets_do_no_harm(
        packets in prop::collection::vec((0u8..4, prop::collection::vec(any::<u8>(), 0..60), 0u8..7, 0u64..3_000), 0..100),
    ) {
        let files = OneFile(content(3_000));
        let mut server = Server::new();
        let mut now = Duration::ZERO;
        for (n, bytes, opcode, wait) in packets {
            let packet = match opcode {
                0 => bytes,
                6 => read_request("hearth.efi", &[("windowsize", u64::from(n) + 1)]),
                4 => ack(u16::from(bytes.first().copied().unwrap_or(0)) % 8),
                _ => [&[0, opcode], &bytes[..]].concat(),
            };
            server.handle(now, address(n), &packet, &files);
            let mut sent = 0;
            while server.poll_transmit(now).is_some() {
                sent += 1;
                prop_assert!(sent < 200);
            }
            while server.poll_finished().is_some() {}
            now += Duration::from_millis(wait);
        }
    }
}
