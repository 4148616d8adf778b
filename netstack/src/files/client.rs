//! The node's side: one rank's calls.
//!
//! A call that is made before the service was heard names no run, and no service carries it out.
//! The answer has the run, under which it is sent once more: a rank's first call takes two round
//! trips. So no copy of it, however late, is carried out by the next service.
//!
//! Invariant: a call that was submitted ends with a [`Completion`], or is forgotten by who made
//! it; at the latest [`SILENCE`] after the service was heard last.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::wire::{FileCall, FileData, FileFetch, FileReply, Standing, channel_of};
use super::{Call, ChannelId, EARLY, Layout, NOT_CARRIED_OUT, Reply, WINDOW, first_fragments};
use crate::ids::{BootEpoch, NodeId};
use crate::time::{Instant, Micros};
use crate::transport::pull::{Arrival, Puller};
use crate::transport::retry::{Backoff, LOOKS};
use crate::wire::datagram::{self, Header, Kind, Packet};
use crate::wire::key::{Direction, Key};
use crate::wire::window::ReplayWindow;

/// A service that says nothing for so long, while calls are under way, is dead: they fail. People
/// start one again within two minutes, and a job that waits longer holds its nodes for nothing.
pub const SILENCE: Micros = Micros::from_secs(120);
/// How often a call is repeated that the service knows of: only its reply can be lost. As often as
/// a node that computes looks.
const PENDING_AGAIN: Micros = LOOKS;
/// Largest window, in fragments: what 64 KB buffers of four reads need, and the bandwidth-delay
/// product of a link of 10 Gbit/s at 300 us.
pub(crate) const MOST_FRAGMENTS: u32 = 256;
/// The clocks of a node and of a service count the same time, and one may say more than the other:
/// by one part of so many, which is far beyond a bad clock's 500 in a million, and by so many
/// microseconds.
const CLOCKS_DRIFT: u64 = 256;
const CLOCKS_DIFFER: u64 = 10_000;
/// Linux's EIO.
const EIO: i64 = 5;

/// Who asks, and under which key.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The rank.
    pub channel: ChannelId,
    /// The node that it runs on.
    pub node: NodeId,
    /// The boot of that node.
    pub boot: BootEpoch,
    /// Key of the rank's calls ([`Key::files_key`]).
    pub key: Key,
}

/// A call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its number.
    pub number: u64,
    /// The run of the service that a handle in the reply is of.
    pub run: u64,
    /// How.
    pub reply: Reply,
}

/// No call can be made now: [`WINDOW`] are under way. Wait for a [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Debug)]
enum State {
    /// It is, or is being, carried out.
    Asked,
    /// It has been; some of its output is not here.
    Fetching {
        result: i64,
        output: Vec<u8>,
        missing: u64,
    },
}

#[derive(Debug)]
struct Pending {
    call: Call,
    state: State,
    /// When it is to be sent, next.
    due: Instant,
    sent: Option<Instant>,
    /// When the first copy that names this run was.
    first: Option<Instant>,
    tries: u32,
    /// Fragments that come without being asked for: of input, of output.
    early: [u32; 2],
    /// The run that its handles are of, which each copy of it names. 0: none was heard.
    run: u64,
    /// The service knows of it.
    known: bool,
    /// Nobody waits for it.
    forgotten: bool,
}

/// One rank's calls.
#[derive(Debug)]
pub struct Client {
    config: Config,
    transmit: Key,
    /// The run of the service that was heard last: its number, its key, what came from it.
    service: Option<(u64, Key, ReplayWindow)>,
    sequence: u64,
    next: u64,
    calls: BTreeMap<u64, Pending>,
    puller: Puller<u64>,
    /// Input that the service has asked for.
    serving: VecDeque<(u64, u64)>,
    completed: VecDeque<Completion>,
    /// What the service is to have back from this address.
    echo: Option<i64>,
    heard: Instant,
}

impl Client {
    /// The calls of one rank.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            transmit: config
                .key
                .files_direction(Direction::ToControl, config.boot.0),
            service: None,
            sequence: 0,
            next: 1,
            calls: BTreeMap::new(),
            puller: Puller::new(MOST_FRAGMENTS, Arrival::OfAll),
            serving: VecDeque::new(),
            completed: VecDeque::new(),
            echo: None,
            heard: Instant::ZERO,
        }
    }

    /// Whose calls these are.
    pub fn channel(&self) -> ChannelId {
        self.config.channel
    }

    /// The run of the service that handles are of: they are void in any other. 0 before it was
    /// heard.
    pub fn run(&self) -> u64 {
        self.service.as_ref().map_or(0, |(run, ..)| *run)
    }

    /// Makes a call; returns its number.
    pub fn submit(&mut self, now: Instant, call: Call) -> Result<u64, Full> {
        assert!(
            call.input.len().max(call.room as usize) <= super::MAX_TRANSFER,
            "a call moves {} bytes at most",
            super::MAX_TRANSFER
        );
        if self.next - self.lowest() >= WINDOW {
            return Err(Full);
        }
        if self.calls.is_empty() {
            self.heard = now;
        }
        let number = self.next;
        self.next += 1;
        self.calls.insert(
            number,
            Pending {
                call,
                state: State::Asked,
                due: now,
                sent: None,
                first: None,
                tries: 0,
                early: [0; 2],
                run: self.run(),
                known: false,
                forgotten: false,
            },
        );
        Ok(number)
    }

    /// Nobody waits for a call any more; it is carried out all the same.
    pub fn forget(&mut self, number: u64) {
        self.completed
            .retain(|completion| completion.number != number);
        if let Some(pending) = self.calls.get_mut(&number) {
            pending.forgotten = true;
            if matches!(pending.state, State::Fetching { .. }) {
                self.calls.remove(&number);
                self.puller.forget(number);
            }
        }
    }

    /// Calls under way.
    pub fn under_way(&self) -> usize {
        self.calls.len()
    }

    /// Bytes of output that calls under way may still need memory for.
    pub fn promised(&self) -> u64 {
        let asked = self
            .calls
            .values()
            .filter(|pending| matches!(pending.state, State::Asked) && !pending.forgotten);
        asked.map(|pending| u64::from(pending.call.room)).sum()
    }

    /// The next call that has ended.
    pub fn poll_event(&mut self) -> Option<Completion> {
        self.completed.pop_front()
    }

    /// All calls below this one have ended.
    fn lowest(&self) -> u64 {
        self.calls.keys().next().copied().unwrap_or(self.next)
    }

    /// Takes a datagram of the service; false when it is none, or says nothing new.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let Ok(packet) = Packet::new_checked(bytes) else {
            return false;
        };
        let header = packet.header();
        let is_ours = channel_of(packet.unverified_payload()) == Ok(self.config.channel);
        if !is_ours || header.node != self.config.node {
            return false;
        }
        let run = header.epoch.0;
        match &mut self.service {
            Some((known, key, window)) if *known == run => {
                let Ok(payload) = packet.open(key) else {
                    return false;
                };
                if !window.accept(header.seq) {
                    return false;
                }
                self.take(now, header.kind, payload);
            }
            // Runs are numbered in the order of time: an earlier one is over.
            known if known.as_ref().is_none_or(|(known, ..)| *known < run) => {
                let direction = Direction::ToNode;
                let key = self.config.key.files_direction(direction, run);
                let Ok(payload) = packet.open(&key) else {
                    return false;
                };
                let mut window = ReplayWindow::default();
                if !window.accept(header.seq) {
                    return false;
                }
                let is_first = known.is_none();
                *known = Some((run, key, window));
                match is_first {
                    true => self.name_run(now, run),
                    false => self.begin_run(),
                }
                self.take(now, header.kind, payload);
            }
            _ => return false,
        }
        true
    }

    /// The service is heard for the first time: what was asked for under no run, and was not
    /// carried out therefore, is asked for under this one.
    fn name_run(&mut self, now: Instant, run: u64) {
        for pending in self.calls.values_mut() {
            (pending.run, pending.due) = (run, now);
            (pending.first, pending.tries) = (None, 0);
        }
    }

    /// Another run of the service has begun. It will say of each call that the run before was asked
    /// for how it stands; output that is not here is lost, and what was not sent was not carried
    /// out.
    fn begin_run(&mut self) {
        self.serving.clear();
        for (number, pending) in core::mem::take(&mut self.calls) {
            self.puller.forget(number);
            let result = match (&pending.state, pending.tries) {
                (State::Fetching { .. }, _) => -EIO,
                (State::Asked, 0) => NOT_CARRIED_OUT,
                (State::Asked, _) => {
                    self.calls.insert(number, pending);
                    continue;
                }
            };
            self.complete(number, Reply::plain(result), pending.forgotten);
        }
    }

    /// Nobody knows of what was under way whether it was carried out.
    fn fail_all(&mut self) {
        self.serving.clear();
        for (number, pending) in core::mem::take(&mut self.calls) {
            self.puller.forget(number);
            self.complete(number, Reply::plain(-EIO), pending.forgotten);
        }
    }

    fn take(&mut self, now: Instant, kind: Kind, payload: &[u8]) {
        let reply = match kind {
            Kind::FileReply => FileReply::parse(payload).ok(),
            _ => None,
        };
        if let Some(reply) = &reply
            && reply.standing == Standing::Challenge
        {
            // Its answers go elsewhere: that is as good as silence.
            self.echo = Some(reply.result);
            return;
        }
        self.heard = now;
        match kind {
            Kind::FileReply => {
                if let Some(reply) = &reply {
                    self.take_reply(now, reply);
                }
            }
            Kind::FileFetch => {
                if let Ok(fetch) = FileFetch::parse(payload)
                    && let Some(pending) = self.calls.get_mut(&fetch.number)
                {
                    pending.is_known(now);
                    let all = Layout::input(pending.call.input.len()).all();
                    let asked = fetch.fragments & all;
                    let known = self
                        .serving
                        .iter_mut()
                        .find(|(number, _)| *number == fetch.number);
                    match known {
                        Some((_, fragments)) => *fragments |= asked,
                        None if asked != 0 => self.serving.push_back((fetch.number, asked)),
                        None => {}
                    }
                }
            }
            Kind::FileData => {
                if let Ok(data) = FileData::parse(payload) {
                    self.take_data(now, &data);
                }
            }
            _ => {}
        }
    }

    fn take_reply(&mut self, now: Instant, reply: &FileReply<'_>) {
        let (number, run) = (reply.number, self.run());
        let Some(pending) = self.calls.get_mut(&number) else {
            return;
        };
        if !matches!(pending.state, State::Asked) {
            // What would bring the rest has been replaced: the call is made again.
            if reply.standing == Standing::Unknown {
                pending.state = State::Asked;
                (pending.due, pending.known) = (now, false);
                self.puller.forget(number);
            }
            return;
        }
        match reply.standing {
            Standing::Unknown => return,
            // Karn: of a call that was repeated nobody knows which copy was answered.
            Standing::Pending => return pending.is_known(now),
            // This is about a copy that names no run.
            Standing::OtherRun if pending.run == run => return,
            Standing::Challenge => return,
            Standing::OtherRun | Standing::NotCarriedOut => {
                // Not carried out either when the service that says so had begun before the first
                // copy was sent: no other can have one. The two times are of two clocks.
                let since_first = pending.first.map(|first| now.saturating_since(first));
                let is_later = since_first.is_none_or(|since| {
                    let since = since.as_micros();
                    let at_most = since + since / CLOCKS_DRIFT + CLOCKS_DIFFER;
                    u64::try_from(reply.result).is_ok_and(|has_been| has_been > at_most)
                });
                let is_new = reply.standing == Standing::NotCarriedOut || is_later;
                let result = if is_new { NOT_CARRIED_OUT } else { -EIO };
                let forgotten = pending.forgotten;
                self.calls.remove(&number);
                return self.complete(number, Reply::plain(result), forgotten);
            }
            Standing::Done => {}
        }
        if let (Some(sent), 1) = (pending.sent, pending.tries) {
            self.puller.sample(now.saturating_since(sent));
        }
        let layout = Layout::output(reply.output_bytes as usize);
        let buffer = match reply.output_bytes <= pending.call.room {
            true => match layout.buffer(reply.output) {
                // Without memory for it now it is asked for again.
                None => return pending.is_known(now),
                some => some,
            },
            // It says more than it was asked for.
            false => None,
        };
        match buffer {
            Some(output) if layout.count() > 0 && !pending.forgotten => {
                let missing = layout.all();
                pending.state = State::Fetching {
                    result: reply.result,
                    output,
                    missing,
                };
                let early = missing & first_fragments(pending.early[1]);
                self.puller.expect(now, number, early);
                self.puller.want(number, missing & !early);
            }
            buffer => {
                let reply = match buffer {
                    // A number of ours, which no service gives.
                    Some(_) if reply.result == NOT_CARRIED_OUT => Reply::plain(-EIO),
                    Some(output) => Reply {
                        result: reply.result,
                        output,
                    },
                    None => Reply::plain(-EIO),
                };
                let forgotten = pending.forgotten;
                self.calls.remove(&number);
                self.complete(number, reply, forgotten);
            }
        }
    }

    fn complete(&mut self, number: u64, reply: Reply, forgotten: bool) {
        self.serving.retain(|(other, _)| *other != number);
        if !forgotten {
            let run = self.run();
            self.completed.push_back(Completion { number, run, reply });
        }
    }

    fn take_data(&mut self, now: Instant, data: &FileData<'_>) {
        let number = data.number_from(self.lowest());
        let Some(pending) = self.calls.get_mut(&number) else {
            return;
        };
        let State::Fetching {
            result,
            output,
            missing,
        } = &mut pending.state
        else {
            return;
        };
        let layout = Layout::output(output.len());
        if !layout.put(output, missing, data.fragment, data.bytes) {
            return;
        }
        self.puller.arrived(now, number, data.fragment);
        if *missing == 0 {
            let reply = Reply {
                result: *result,
                output: core::mem::take(output),
            };
            self.calls.remove(&number);
            self.puller.forget(number);
            self.complete(number, reply, false);
        }
    }

    /// When [`Self::poll_transmit`] has something to do; `None`: never, as it stands.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.echo.is_some() {
            return Some(Instant::ZERO);
        }
        if self.calls.is_empty() {
            return None;
        }
        if !self.serving.is_empty() {
            return Some(Instant::ZERO);
        }
        let asked = |pending: &&Pending| matches!(pending.state, State::Asked);
        let due = self.calls.values().filter(asked).map(|pending| pending.due);
        let silent = self.heard + SILENCE;
        due.chain(self.puller.poll_timeout()).chain([silent]).min()
    }

    /// The next datagram for the service, in `out`, which has
    /// [`MAX_DATAGRAM`](crate::MAX_DATAGRAM) bytes.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        if !self.calls.is_empty() && now >= self.heard + SILENCE {
            self.fail_all();
        }
        let channel = self.config.channel;
        if let Some(challenge) = self.echo.take() {
            let echo = FileReply::without_output(channel, 1, Standing::Challenge, challenge);
            return Some(self.seal(Kind::FileReply, out, |writer| echo.emit(writer)));
        }
        if let Some((number, fragments)) = self.puller.poll(now) {
            let fetch = FileFetch {
                channel,
                number,
                fragments,
            };
            return Some(self.seal(Kind::FileFetch, out, |writer| fetch.emit(writer)));
        }
        if let Some(number) = self.due(now) {
            return Some(self.send_call(now, number, out));
        }
        self.send_input(now, out)
    }

    fn due(&self, now: Instant) -> Option<u64> {
        let is_due =
            |pending: &Pending| matches!(pending.state, State::Asked) && pending.due <= now;
        let due = self.calls.iter().find(|(_, pending)| is_due(pending));
        due.map(|(number, _)| *number)
    }

    fn send_call(&mut self, now: Instant, number: u64, out: &mut [u8]) -> usize {
        let done = self.lowest();
        let timeout = self.puller.timeout();
        let early = self.early(number);
        let mut pending = self.calls.remove(&number).expect("a call that is due");
        let wait = match pending.known {
            true => PENDING_AGAIN,
            false => Backoff::new(timeout, PENDING_AGAIN).after(pending.tries),
        };
        pending.due = now + wait;
        pending.sent = Some(now);
        pending.first.get_or_insert(now);
        pending.tries = pending.tries.saturating_add(1);
        pending.early = early;
        if early[0] > 0 {
            self.serving.push_back((number, first_fragments(early[0])));
        }
        let channel = self.config.channel;
        let message = FileCall {
            early_input: early[0] as u8,
            early_output: early[1] as u8,
            ..FileCall::of(channel, number, done, pending.run, &pending.call)
        };
        let length = self.seal(Kind::FileCall, out, |writer| message.emit(writer));
        self.calls.insert(number, pending);
        length
    }

    /// Fragments of a call's input, and of its output, that shall come without being asked for. Of
    /// a call that is repeated none does: what was lost may have been too much. Nor of one that
    /// names no run: nobody takes it.
    fn early(&self, number: u64) -> [u32; 2] {
        let mut early = [0; 2];
        for (other, pending) in &self.calls {
            if *other != number && matches!(pending.state, State::Asked) {
                early = [early[0] + pending.early[0], early[1] + pending.early[1]];
            }
        }
        let [input, output] = early.map(|taken| EARLY.saturating_sub(taken));
        let is_first = |pending: &&Pending| pending.tries == 0 && pending.run != 0;
        let Some(pending) = self.calls.get(&number).filter(is_first) else {
            return [0; 2];
        };
        let (call, room) = (&pending.call, self.puller.room());
        let of_input = Layout::input(call.input.len()).count();
        let of_output = Layout::output(call.room as usize).count();
        [
            if of_input <= input { of_input } else { 0 },
            of_output.min(output).min(room),
        ]
    }

    fn send_input(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        loop {
            let (number, fragments) = self.serving.front_mut()?;
            let number = *number;
            let fragment = fragments.trailing_zeros() as u8;
            *fragments &= fragments.wrapping_sub(1);
            let is_last = *fragments == 0;
            if is_last {
                self.serving.pop_front();
            }
            let Some(mut pending) = self.calls.remove(&number) else {
                continue;
            };
            if is_last {
                // The service has what it asked for: a reply is due in a round trip, and may be
                // lost. One that takes longer is known as pending by the next answer.
                pending.due = pending.due.min(now + self.puller.timeout());
            }
            let input = &pending.call.input;
            let data = FileData {
                channel: self.config.channel,
                number,
                fragment,
                bytes: &input[Layout::input(input.len()).range(fragment)],
            };
            let length = self.seal(Kind::FileData, out, |writer| data.emit(writer));
            self.calls.insert(number, pending);
            return Some(length);
        }
    }

    fn seal(
        &mut self,
        kind: Kind,
        out: &mut [u8],
        payload: impl FnOnce(&mut crate::wire::field::Writer<'_>),
    ) -> usize {
        self.sequence += 1;
        let header = Header {
            kind,
            node: self.config.node,
            epoch: self.config.boot,
            seq: self.sequence,
        };
        datagram::emit(header, Some(&self.transmit), out, payload)
    }
}

impl Pending {
    /// The service knows of it: it is repeated seldom.
    fn is_known(&mut self, now: Instant) {
        self.known = true;
        self.due = now + PENDING_AGAIN;
    }
}
