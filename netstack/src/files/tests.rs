//! Tests of file calls: a client and a server over a link that loses, doubles and delays.

mod bulk;
mod runs;

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::vec::Vec;

use super::client::{Client, Completion, Config, Full, SILENCE};
use super::server::{Member, Request, Server};
use super::wire::{FileCall, FileData, FileFetch, FileReply};
use super::*;
use crate::MAX_DATAGRAM;
use crate::ids::{BootEpoch, NodeId};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::wire::key::Key;

const CHANNEL: ChannelId = ChannelId {
    job: JobId(7),
    rank: Rank(3),
};
const KEY: Key = Key([9; 16]);

const ADDRESS: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 5), 7118);

fn node_address() -> SocketAddr {
    ADDRESS.into()
}

fn member(key: Key) -> Member {
    Member {
        rank: CHANNEL.rank,
        node: NodeId(5),
        address: ADDRESS,
        key,
    }
}

fn client() -> Client {
    Client::new(Config {
        channel: CHANNEL,
        node: NodeId(5),
        boot: BootEpoch(77),
        key: KEY,
    })
}

fn server(run: u64) -> Server {
    server_at(Instant::ZERO, run)
}

/// One that begins then.
fn server_at(now: Instant, run: u64) -> Server {
    let mut server = Server::new(now, run);
    server.admit(CHANNEL.job, [member(KEY)]);
    server
}

/// Both ends and what is between them.
struct World {
    now: Instant,
    client: Client,
    server: Server,
    rng: Rng,
    /// Of 1,000 datagrams, how many are lost, and how many come twice.
    loss: u64,
    doubled: u64,
    /// (when, to the server, bytes)
    flying: Vec<(Instant, bool, Vec<u8>)>,
    /// Calls that were given out, by number, and what is written where.
    given: BTreeMap<u64, u32>,
    file: Vec<u8>,
    completed: Vec<Completion>,
}

impl World {
    fn new(seed: u64, loss: u64, doubled: u64) -> Self {
        World {
            now: Instant::ZERO,
            client: client(),
            server: server(1),
            rng: Rng::new(seed),
            loss,
            doubled,
            flying: Vec::new(),
            given: BTreeMap::new(),
            file: Vec::new(),
            completed: Vec::new(),
        }
    }

    fn throw(&mut self, to_server: bool, bytes: &[u8]) {
        let copies = match self.rng.below(1_000) {
            luck if luck < self.loss => 0,
            luck if luck < self.loss + self.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at = self.now + Micros(100 + self.rng.below(400));
            self.flying.push((at, to_server, bytes.to_vec()));
        }
    }

    /// Carries a call out: a file of bytes in memory.
    fn carry_out(&mut self, request: Request) {
        *self.given.entry(request.number).or_default() += 1;
        let call = request.call;
        let start = call.words[0] as usize;
        let reply = match call.op {
            Op::Write => {
                let end = start + call.input.len();
                self.file.resize(self.file.len().max(end), 0);
                self.file[start..end].copy_from_slice(&call.input);
                Reply::plain(call.input.len() as i64)
            }
            Op::Read => {
                let end = (start + call.room as usize).min(self.file.len());
                let output = self.file[start.min(end)..end].to_vec();
                Reply {
                    result: output.len() as i64,
                    output,
                }
            }
            _ => Reply::plain(-38),
        };
        self.server.complete(request.channel, request.number, reply);
    }

    fn step(&mut self) -> bool {
        let mut out = [0; MAX_DATAGRAM];
        while let Some(length) = self.client.poll_transmit(self.now, &mut out) {
            let bytes = out[..length].to_vec();
            self.throw(true, &bytes);
        }
        while let Some((length, to)) = self.server.poll_transmit(self.now, &mut out) {
            assert_eq!(to, node_address());
            let bytes = out[..length].to_vec();
            self.throw(false, &bytes);
        }
        self.take_completions();
        let flying = self.flying.iter().map(|(at, ..)| *at).min();
        let due = [
            self.client.poll_timeout(),
            self.server.poll_timeout(),
            flying,
        ];
        let Some(next) = due.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(index) = self.flying.iter().position(|(at, ..)| *at <= self.now) {
            let (_, to_server, bytes) = self.flying.remove(index);
            match to_server {
                true => {
                    self.server
                        .handle_datagram(self.now, node_address(), &bytes);
                    while let Some(request) = self.server.poll_event() {
                        self.carry_out(request);
                    }
                }
                false => {
                    self.client.handle_datagram(self.now, &bytes);
                }
            }
        }
        self.take_completions();
        true
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.client.poll_event() {
            self.completed.push(completion);
        }
    }

    fn run_until(&mut self, completed: usize) {
        while self.completed.len() < completed {
            let moved = self.step();
            assert!(
                moved || self.completed.len() >= completed,
                "it stands still"
            );
            assert!(self.now < Instant::from_micros(600_000_000), "too slow");
        }
    }
}

fn pattern(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 7 + at / 251) as u8 ^ salt)
        .collect()
}

#[test]
fn what_replies_may_bring_is_known_beforehand() {
    let mut world = World::new(1, 0, 0);
    world.file = (0..100_000).map(|at| at as u8).collect();
    let read = |room| Call::new(Op::Read, 1).with_room(room);
    assert_eq!(world.client.promised(), 0);
    for room in [MAX_TRANSFER, 5_000] {
        world.client.submit(world.now, read(room)).unwrap();
    }
    let forgotten = world.client.submit(world.now, read(7_000)).unwrap();
    world.client.forget(forgotten);
    assert_eq!(world.client.promised(), MAX_TRANSFER as u64 + 5_000);
    while world.step() {}
    assert_eq!(world.completed.len(), 2);
    assert_eq!(world.client.promised(), 0);
}

#[test]
fn what_is_written_is_read_whatever_is_lost() {
    for (seed, loss, doubled) in [(1, 0, 0), (2, 100, 100), (3, 300, 300), (4, 500, 0)] {
        let mut world = World::new(seed, loss, doubled);
        let sizes = [1, 1_000, FRAGMENT, 20_000, MAX_TRANSFER, MAX_TRANSFER - 1];
        let mut offset = 0;
        let mut whole = Vec::new();
        for (index, size) in sizes.into_iter().enumerate() {
            let bytes = pattern(size, index as u8);
            let call = Call::new(Op::Write, 1).with_words([offset]);
            let call = call.with_input(bytes.clone());
            world.client.submit(world.now, call).expect("room");
            offset += size as u64;
            whole.extend(bytes);
        }
        world.run_until(sizes.len());
        assert!(world.file == whole, "seed {seed}");
        world.completed.clear();
        let mut numbers = BTreeMap::new();
        for offset in (0..whole.len()).step_by(MAX_TRANSFER) {
            let call = Call::new(Op::Read, 1).with_words([offset as u64]);
            let call = call.with_room(MAX_TRANSFER);
            let number = world.client.submit(world.now, call).expect("room");
            numbers.insert(number, offset);
        }
        world.run_until(numbers.len());
        for Completion { number, reply, .. } in &world.completed {
            let start = numbers[number];
            let end = (start + MAX_TRANSFER).min(whole.len());
            assert_eq!(reply.result, (end - start) as i64);
            assert!(reply.output == whole[start..end], "seed {seed}");
        }
        assert!(
            world.given.values().all(|count| *count == 1),
            "exactly once"
        );
    }
}

/// A world in which the node knows the run of the service.
fn acquainted(seed: u64) -> World {
    let mut world = World::new(seed, 0, 0);
    let read = Call::new(Op::Read, 1).with_room(1);
    world.client.submit(world.now, read).expect("room");
    // Refused, for it names no run, and asked for once more.
    assert_eq!(exchange(&mut world, 2), [2, 2]);
    assert_eq!(world.completed.len(), 1);
    world.completed.clear();
    world
}

/// Sends what is due either way, without time passing: datagrams to the service, and from it.
fn exchange(world: &mut World, rounds: usize) -> [usize; 2] {
    let mut out = [0; MAX_DATAGRAM];
    let mut sent = [0; 2];
    for _ in 0..rounds {
        let from_node = core::iter::from_fn(|| {
            let length = world.client.poll_transmit(world.now, &mut out)?;
            Some(out[..length].to_vec())
        });
        for bytes in from_node.collect::<Vec<_>>() {
            sent[0] += 1;
            world
                .server
                .handle_datagram(world.now, node_address(), &bytes);
        }
        while let Some(request) = world.server.poll_event() {
            world.carry_out(request);
        }
        while let Some((length, _)) = world.server.poll_transmit(world.now, &mut out) {
            sent[1] += 1;
            let bytes = out[..length].to_vec();
            world.client.handle_datagram(world.now, &bytes);
        }
        world.take_completions();
    }
    sent
}

#[test]
fn a_small_file_is_written_and_read_in_one_round_trip_each() {
    for bytes in [1, 4_096, 12_000] {
        let mut world = acquainted(1);
        let whole = pattern(bytes, 3);
        let write = Call::new(Op::Write, 1).with_input(whole.clone());
        world.client.submit(world.now, write).expect("room");
        let early = Layout::input(bytes).count() as usize;
        assert_eq!(exchange(&mut world, 1), [1 + early, 1], "{bytes} bytes");
        let read = Call::new(Op::Read, 1).with_room(bytes);
        world.client.submit(world.now, read).expect("room");
        let early = Layout::output(bytes).count() as usize;
        assert_eq!(exchange(&mut world, 1), [1, 1 + early], "{bytes} bytes");
        let replies: Vec<&Reply> = world.completed.iter().map(|done| &done.reply).collect();
        assert_eq!(*replies[0], Reply::plain(bytes as i64));
        assert!(replies[1].output == whole);
    }
}

#[test]
fn what_comes_unasked_is_bounded() {
    let mut world = acquainted(1);
    world.file = pattern(8 * MAX_TRANSFER, 1);
    for at in 0..8 {
        let read = Call::new(Op::Read, 1).with_words([at * MAX_TRANSFER as u64]);
        let read = read.with_room(MAX_TRANSFER);
        world.client.submit(world.now, read).expect("room");
    }
    // Eight replies, and of one of them the first fragments.
    assert_eq!(exchange(&mut world, 1), [8, 8 + EARLY as usize]);
    world.run_until(8);
    let whole: Vec<u8> = world
        .completed
        .iter()
        .flat_map(|completion| completion.reply.output.clone())
        .collect();
    assert_eq!(whole.len(), world.file.len());
    // Input that is longer than that is asked for from its begin.
    let write = Call::new(Op::Write, 1).with_input(pattern(20_000, 1));
    world.client.submit(world.now, write).expect("room");
    assert_eq!(exchange(&mut world, 1), [1, 1]);
}

#[test]
fn every_byte_travels_once() {
    for bytes in [0, 1, 1_340, 1_341, 20_000, MAX_TRANSFER - 1, MAX_TRANSFER] {
        for layout in [Layout::input(bytes), Layout::output(bytes)] {
            let mut end = layout.inline.min(bytes);
            for fragment in 0..layout.count() as u8 {
                let range = layout.range(fragment);
                assert!(range.start == end && range.len() <= FRAGMENT && !range.is_empty());
                end = range.end;
            }
            assert_eq!(end, bytes);
        }
    }
}

#[test]
fn the_number_of_a_call_is_known_by_its_lower_half() {
    for lowest in [1, 1 << 26, (1 << 26) - 3, 77 << 26, u64::MAX >> 1] {
        for number in lowest..lowest + WINDOW {
            let data = FileData {
                channel: CHANNEL,
                number,
                fragment: 63,
                bytes: &[1, 2, 3],
            };
            let mut payload = [0; 32];
            let mut writer = crate::wire::field::Writer::new(&mut payload);
            data.emit(&mut writer);
            let length = writer.written();
            let parsed = FileData::parse(&payload[..length]).expect("a fragment");
            assert_eq!(parsed.number_from(lowest), number);
            assert_eq!((parsed.fragment, parsed.bytes), (63, data.bytes));
        }
    }
}

#[test]
fn each_of_many_calls_is_carried_out_once() {
    let mut world = World::new(11, 200, 200);
    let (mut made, mut done) = (0, 0);
    while done < 500 {
        let call = Call::new(Op::Write, 1).with_words([made * 8]);
        let call = call.with_input(made.to_le_bytes().to_vec());
        match world.client.submit(world.now, call) {
            Ok(_) if made < 500 => made += 1,
            Ok(_) => made += 1,
            Err(Full) => {
                assert!(world.client.under_way() <= WINDOW as usize);
                world.step();
            }
        }
        done = world.completed.len();
    }
    assert!(world.given.values().all(|count| *count == 1));
}

#[test]
fn a_rank_that_is_admitted_again_goes_on() {
    let mut world = World::new(3, 0, 0);
    let write = || Call::new(Op::Write, 1).with_input(pattern(20_000, 0));
    world.client.submit(world.now, write()).expect("room");
    world.run_until(1);
    let number = world.client.submit(world.now, write()).expect("room");
    while !world.given.contains_key(&number) {
        assert!(world.step());
    }
    world.server.admit(CHANNEL.job, [member(KEY)]);
    world.run_until(2);
    assert_eq!(world.completed[1].reply.result, 20_000);
    assert_eq!(world.given[&number], 1);
    assert_eq!(world.server.counters().refused, 0);
}

#[test]
fn a_lost_reply_costs_a_time_out_and_no_more() {
    // A call that carries its input, and one whose input is pulled.
    for bytes in [100, 20_000] {
        let mut world = World::new(9, 0, 0);
        for offset in 0..10 {
            let call = Call::new(Op::Write, 1).with_words([offset * 20_000]);
            let call = call.with_input(pattern(bytes, 0));
            world.client.submit(world.now, call).expect("room");
            world.run_until(offset as usize + 1);
        }
        let call = Call::new(Op::Write, 1).with_input(pattern(bytes, 1));
        let number = world.client.submit(world.now, call).expect("room");
        while !world.given.contains_key(&number) {
            assert!(world.step());
        }
        let begun = world.now;
        let mut out = [0; MAX_DATAGRAM];
        let lost = world.server.poll_transmit(world.now, &mut out);
        assert!(lost.is_some(), "a reply");
        world.run_until(11);
        let took = world.now.saturating_since(begun);
        assert!(took < Micros::from_millis(60), "{bytes} bytes: {took:?}");
        assert_eq!(world.given[&number], 1);
    }
}

#[test]
fn another_run_of_the_service_fails_what_was_under_way_once() {
    let mut world = World::new(5, 0, 0);
    let read = || Call::new(Op::Read, 1).with_room(10);
    world.client.submit(world.now, read()).expect("room");
    world.run_until(1);
    // The run before may have carried it out; of the one that was not sent it is known that none
    // has.
    world.client.submit(world.now, read()).expect("room");
    let mut out = [0; MAX_DATAGRAM];
    assert!(world.client.poll_transmit(world.now, &mut out).is_some());
    world.server = server_at(world.now, 2);
    world.run_until(2);
    assert_eq!(world.completed[1].reply, Reply::plain(-5));
    assert_eq!(world.client.run(), 2);
    world.client.submit(world.now, read()).expect("room");
    world.run_until(3);
    assert_eq!(world.completed[2].reply.result, 0);
    // A service that is there before a call is made says so: nobody before it has carried that out.
    world.server = server_at(world.now, 3);
    world.now += Micros(100_000);
    world.client.submit(world.now, read()).expect("room");
    world.run_until(4);
    assert_eq!(world.completed[3].reply, Reply::plain(NOT_CARRIED_OUT));
    assert!(!world.given.contains_key(&4));
}

#[test]
fn a_job_that_begins_again_says_what_it_did_not_carry_out() {
    let mut world = World::new(6, 0, 0);
    let read = || Call::new(Op::Read, 1).with_room(10);
    world.client.submit(world.now, read()).expect("room");
    world.run_until(1);
    world.server.begin_again(CHANNEL.job);
    let mut out = [0; MAX_DATAGRAM];
    while world.server.poll_transmit(world.now, &mut out).is_some() {}
    // Two copies of it, of which the first is lost: the service has it from neither run.
    let number = world.client.submit(world.now, read()).expect("room");
    assert!(world.client.poll_transmit(world.now, &mut out).is_some());
    world.run_until(2);
    assert_eq!(world.completed[1].reply, Reply::plain(NOT_CARRIED_OUT));
    assert!(!world.given.contains_key(&number));
    // Nor is one whose input was on its way.
    let write = Call::new(Op::Write, 1).with_input(pattern(60_000, 1));
    let number = world.client.submit(world.now, write).expect("room");
    for _ in 0..2 {
        assert!(world.step());
    }
    world.server.begin_again(CHANNEL.job);
    world.run_until(3);
    assert_eq!(world.completed[2].reply, Reply::plain(NOT_CARRIED_OUT));
    assert!(!world.given.contains_key(&number));
    assert_eq!(world.client.run(), 3);
}

#[test]
fn a_job_that_begins_again_fails_what_was_under_way_and_repeats_nothing() {
    let mut world = acquainted(6);
    let write = |at: u64| {
        let call = Call::new(Op::Write, 1).with_words([at]);
        call.with_input(std::vec![7; 4])
    };
    let number = world.client.submit(world.now, write(4)).expect("room");
    let mut out = [0; MAX_DATAGRAM];
    let length = world.client.poll_transmit(world.now, &mut out);
    let call = out[..length.expect("a call")].to_vec();
    world
        .server
        .handle_datagram(world.now, node_address(), &call);
    let given = world.server.poll_event().expect("given out");
    world.server.begin_again(CHANNEL.job);
    // What is said of the other run is lost: the call comes once more, under the run before.
    while world.server.poll_transmit(world.now, &mut out).is_some() {}
    let late = Reply::plain(4);
    world.server.complete(CHANNEL, given.number, late);
    world.run_until(1);
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
    assert!(!world.given.contains_key(&number), "given out again");
    assert_eq!(world.client.run(), 2);
    world.client.submit(world.now, write(8)).expect("room");
    world.run_until(2);
    assert_eq!(world.completed[1].reply.result, 4);
    assert_eq!(world.server.counters().calls, 3);
}

/// Services of one run take over from each other at any moment, with who carries calls out alive:
/// it tells by their numbers those that it has had. Nothing fails, and what is written is there.
#[test]
fn a_service_that_takes_over_leaves_nothing_to_see() {
    for seed in 0..40 {
        let mut world = World::new(seed, 50, 20);
        let (mut since, mut services) = (world.now, 1);
        let mut expected = Vec::new();
        for (index, bytes) in [3_000, 60_000, 1, 64_000].into_iter().enumerate() {
            let input = pattern(bytes, index as u8);
            let write = Call::new(Op::Write, 1).with_words([expected.len() as u64]);
            expected.extend_from_slice(&input);
            world
                .client
                .submit(world.now, write.with_input(input))
                .expect("room");
            let read = Call::new(Op::Read, 1).with_room(MAX_TRANSFER);
            world.client.submit(world.now, read).expect("room");
        }
        while world.completed.len() < 8 {
            assert!(world.step(), "seed {seed}: nothing is due");
            let lasts = since + Micros(300 + 500 * (seed % 7));
            if services < 10 && world.now > lasts && world.rng.below(40) == 0 {
                (since, services) = (world.now, services + 1);
                let start = 1_000_000 + world.now.as_micros() * 1_000;
                world.server = Server::new(world.now, start);
                world.server.admit_in(CHANNEL.job, [member(KEY)], 1);
            }
        }
        let is_error = |completion: &Completion| completion.reply.result < 0;
        assert!(!world.completed.iter().any(is_error), "seed {seed}");
        assert!(world.file == expected, "seed {seed}");
        assert_eq!(world.client.run(), 1);
        assert_eq!(world.server.poll_doubtful(), None);
    }
}

#[test]
fn a_dead_service_is_an_error_after_a_while() {
    let mut world = World::new(5, 1_000, 0);
    let read = Call::new(Op::Read, 1).with_room(10);
    world.client.submit(world.now, read).expect("room");
    world.run_until(1);
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
    assert!(world.now >= Instant::ZERO + SILENCE);
    assert_eq!(world.client.poll_timeout(), None);
}

#[test]
fn a_forgotten_call_is_carried_out_and_not_told() {
    let mut world = World::new(6, 0, 0);
    let write = Call::new(Op::Write, 1).with_input(pattern(50_000, 1));
    let number = world.client.submit(world.now, write).expect("room");
    world.client.forget(number);
    let read = Call::new(Op::Read, 1).with_room(1);
    world.client.submit(world.now, read).expect("room");
    world.run_until(1);
    while world.client.under_way() > 0 {
        assert!(world.step());
    }
    assert_eq!(world.file.len(), 50_000);
    assert_eq!(world.completed.len(), 1);
}

#[test]
fn a_closed_job_and_a_stranger_get_no_answer() {
    let mut world = World::new(7, 0, 0);
    let mut out = [0; MAX_DATAGRAM];
    let read = Call::new(Op::Read, 1).with_room(1);
    world.client.submit(world.now, read).expect("room");
    let length = world
        .client
        .poll_transmit(world.now, &mut out)
        .expect("due");
    let mut stranger = Server::new(world.now, 1);
    stranger.admit(CHANNEL.job, [member(Key([1; 16]))]);
    assert!(!stranger.handle_datagram(world.now, node_address(), &out[..length]));
    world.server.close(CHANNEL.job);
    assert!(
        !world
            .server
            .handle_datagram(world.now, node_address(), &out[..length])
    );
    assert_eq!(world.server.poll_timeout(), None);
}

#[test]
fn a_replayed_call_is_passed_over() {
    let mut world = acquainted(8);
    let mut out = [0; MAX_DATAGRAM];
    let read = Call::new(Op::Read, 1).with_room(1);
    world.client.submit(world.now, read).expect("room");
    let length = world
        .client
        .poll_transmit(world.now, &mut out)
        .expect("due");
    assert!(
        world
            .server
            .handle_datagram(world.now, node_address(), &out[..length])
    );
    let thief = "10.9.9.9:1".parse().expect("an address");
    assert!(
        !world
            .server
            .handle_datagram(world.now, thief, &out[..length])
    );
    assert!(world.server.poll_event().is_some());
    assert!(world.server.poll_event().is_none());
}

#[test]
fn hostile_bytes_are_errors() {
    let mut rng = Rng::new(3);
    for _ in 0..20_000 {
        let length = rng.below(140) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        // Half of them have a channel, so that what follows is looked at.
        if length > 20 && rng.below(2) == 0 {
            bytes[8..20].fill(0);
            bytes[12] = 1;
        }
        let _ = FileCall::parse(&bytes);
        let _ = FileReply::parse(&bytes);
        let _ = FileFetch::parse(&bytes);
        let _ = FileData::parse(&bytes);
        let _ = Metadata::parse(&bytes);
        let _ = FileSystem::parse(&bytes);
        let _ = Entry::parse(&bytes);
    }
}

#[test]
fn what_stat_says_survives_the_way() {
    let metadata = Metadata {
        device: 1,
        inode: u64::MAX,
        mode: 0o100_644,
        links: 2,
        user: 1_000,
        group: 1_001,
        special: 3,
        size: 1 << 40,
        block_size: 4_096,
        blocks: 17,
        accessed: (-1, 999_999_999),
        modified: (1 << 33, 5),
        changed: (0, 0),
    };
    assert_eq!(Metadata::parse(&metadata.to_bytes()), Ok(metadata));
    let mut output = Vec::new();
    let entry = Entry {
        inode: 5,
        next: 2,
        kind: 8,
        name: b"a name",
    };
    assert!(entry.append(100, &mut output));
    assert!(!entry.append(output.len() + 10, &mut output));
    let parsed = Entry::parse(&output).expect("an entry");
    assert_eq!(parsed, Some((entry, &[][..])));
}
