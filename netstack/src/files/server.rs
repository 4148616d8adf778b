//! The service's side: the channels of all ranks that it serves.
//!
//! Who carries calls out takes them from [`Server::poll_event`] and says with
//! [`Server::complete`] how each ended, in any order.
//!
//! A service that is replaced while who carries the calls out lives on leaves its run to the next
//! one ([`Server::admit_in`]). That one knows no call, and gives out once more what the nodes have
//! no reply to: who carries calls out tells by their numbers those that it has had.
//!
//! Replies go where the node is known to be: to the address that its session has, until another has
//! proved itself ([`crate::join::path`]).
//!
//! Invariant: a call is given out once by one service, when all of its input is here; its reply is
//! kept until the node has it. A call that names no run, or another, is never given out. Work for a
//! datagram does not grow with the number of channels.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{SocketAddr, SocketAddrV4};
use core::ops::RangeInclusive;

use super::wire::{FileCall, FileData, FileFetch, FileReply, INLINE_OUTPUT, Standing, channel_of};
use super::{Call, ChannelId, Layout, Op, Reply, WINDOW, first_fragments};
use crate::ids::{BootEpoch, JobId, NodeId, Rank};
use crate::join::path::Path;
use crate::time::{Instant, Micros};
use crate::transport::pull::{Arrival, Puller};
use crate::wire::datagram::{self, Header, Kind, Packet};
use crate::wire::field::Writer;
use crate::wire::key::{Direction, Key};
use crate::wire::window::ReplayWindow;

/// Largest window of a channel, in fragments. Sixty-four nodes share a service, which has a buffer
/// of its socket for all of them.
const MOST_FRAGMENTS: u32 = 64;
/// A node whose address another one wants to be is silent there for so long first. As for sessions
/// ([`crate::join::Timing::reboot_silence`]).
const MOVES_AFTER: Micros = Micros::from_millis(2_500);
/// Linux's EIO.
const EIO: i64 = 5;

/// A rank that may call.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The rank.
    pub rank: Rank,
    /// The node that it runs on.
    pub node: NodeId,
    /// Where the node is, as its session has it.
    pub address: SocketAddrV4,
    /// Key of its calls ([`Key::files_key`]).
    pub key: Key,
}

/// A call to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose.
    pub channel: ChannelId,
    /// Where the rank runs.
    pub node: NodeId,
    /// Its number.
    pub number: u64,
    /// The node has the replies of all calls below this one.
    pub done: u64,
    /// What to do.
    pub call: Call,
}

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams of no channel, with a wrong tag, or heard before.
    pub refused: u64,
    /// Calls that were given out.
    pub calls: u64,
    /// Bytes of input, and of output.
    pub bytes: [u64; 2],
}

#[derive(Debug)]
enum State {
    /// Some of its input is not here.
    Receiving { call: Call, missing: u64 },
    /// It has been given out.
    Running,
    /// It has been carried out.
    Done(Reply),
}

/// A call that the node has no reply to.
#[derive(Debug)]
struct Known {
    op: Op,
    state: State,
    /// The first fragments of output that are sent without being asked for.
    early: u32,
}

#[derive(Debug)]
enum Outgoing {
    /// How a call stands, and the number that goes with it.
    Standing(u64, Standing, i64),
    Reply(u64),
    Output(u64, u64),
}

#[derive(Debug)]
struct Channel {
    /// The run that its handles are of.
    run: u64,
    /// The first such run: no call of it and those behind it is unknown here.
    first_run: u64,
    node: NodeId,
    receive: Option<(BootEpoch, Key, ReplayWindow)>,
    key: Key,
    transmit: Key,
    sequence: u64,
    path: Path,
    /// An address that is to be sent this challenge.
    challenge: Option<(SocketAddrV4, u64)>,
    calls: BTreeMap<u64, Known>,
    /// The node has the replies of all calls below.
    done: u64,
    puller: Puller<u64>,
    outgoing: VecDeque<Outgoing>,
    /// Since when no call is given out that is not known here.
    since: Instant,
    /// The highest number of a datagram from the address that the node has.
    heard_at: u64,
    /// When it is to be looked at, as [`Server::timers`] has it.
    timer: Option<Instant>,
}

/// All channels of a service.
#[derive(Debug)]
pub struct Server {
    /// The run that it began with.
    run: u64,
    /// When a datagram came last.
    heard: Instant,
    /// Since then no calls were forgotten with a job that was closed.
    since: Instant,
    /// The highest number that a run or a datagram has had.
    highest: u64,
    /// The last run of all jobs. New ones begin in it.
    latest: u64,
    channels: BTreeMap<ChannelId, Channel>,
    timers: BTreeSet<(Instant, ChannelId)>,
    requests: VecDeque<Request>,
    /// Jobs with a call of a run before this service, of which nobody has been told.
    doubtful: BTreeSet<JobId>,
    told_doubtful: BTreeSet<JobId>,
    counters: Counters,
}

impl Server {
    /// A service that begins now. `run` must be greater than what every service before it at this
    /// address gave as [`Self::highest`].
    pub fn new(now: Instant, run: u64) -> Self {
        Self {
            run,
            heard: now,
            since: now,
            highest: run,
            latest: run,
            channels: BTreeMap::new(),
            timers: BTreeSet::new(),
            requests: VecDeque::new(),
            doubtful: BTreeSet::new(),
            told_doubtful: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// The highest number so far that a run or a datagram has had.
    pub fn highest(&self) -> u64 {
        self.highest.max(self.latest)
    }

    /// The run that handles of a job are of; `None` where no rank of it may call.
    pub fn run_of(&self, job: JobId) -> Option<u64> {
        let known = self.channels.range(channels_of(job));
        known.map(|(_, channel)| channel.run).max()
    }

    /// Lets the ranks of a job call. One that may already, under this key, goes on; under another
    /// key it begins anew.
    pub fn admit(&mut self, job: JobId, members: impl IntoIterator<Item = Member>) {
        let run = self.run_of(job).unwrap_or(self.latest);
        self.admit_in(job, members, run);
    }

    /// The same, of a job that no rank calls for yet: its handles are of this run, of a service
    /// before this one.
    pub fn admit_in(&mut self, job: JobId, members: impl IntoIterator<Item = Member>, run: u64) {
        self.latest = self.latest.max(run);
        for member in members {
            let id = ChannelId {
                job,
                rank: member.rank,
            };
            let known = self.channels.get(&id);
            if known.is_some_and(|known| known.node == member.node && known.key == member.key) {
                continue;
            }
            let channel = Channel {
                run,
                first_run: run,
                node: member.node,
                receive: None,
                key: member.key,
                transmit: member.key.files_direction(Direction::ToNode, run),
                // Numbers are times: a service before this one may have used this run's key.
                sequence: self.run,
                path: Path::new(Instant::ZERO, member.address),
                challenge: None,
                calls: BTreeMap::new(),
                done: 1,
                puller: Puller::new(MOST_FRAGMENTS, Arrival::OfAll),
                outgoing: VecDeque::new(),
                since: self.since,
                heard_at: 0,
                timer: None,
            };
            if let Some(before) = self.channels.insert(id, channel)
                && let Some(at) = before.timer
            {
                self.timers.remove(&(at, id));
            }
        }
    }

    /// The job has ended: nobody calls any more. Its calls are forgotten; so if it is let in again,
    /// it begins another run, in which none of them is given out once more.
    pub fn close(&mut self, job: JobId) {
        let channels = self.channels_of(job);
        if !channels.is_empty() {
            self.latest += 1;
            self.since = self.heard;
        }
        for id in channels {
            if let Some(Channel {
                timer: Some(at), ..
            }) = self.channels.remove(&id)
            {
                self.timers.remove(&(at, id));
            }
        }
        self.requests.retain(|request| request.channel.job != job);
        self.doubtful.remove(&job);
        self.told_doubtful.remove(&job);
    }

    /// The next job whose calls another service carried out that has left nothing: whether those
    /// were carried out that were under way then, nobody knows. Each job is told once.
    pub fn poll_doubtful(&mut self) -> Option<JobId> {
        let job = self.doubtful.pop_first()?;
        self.told_doubtful.insert(job);
        Some(job)
    }

    /// Who carried out the calls of a job is gone, with all that it had open: its channels begin
    /// another run. Each call that was given out and has not been answered fails with EIO, as
    /// nobody knows which of them were carried out; none is given out again. What has been answered
    /// stands, but for what was opened or locked: that is gone.
    pub fn begin_again(&mut self, job: JobId) {
        self.latest += 1;
        self.requests.retain(|request| request.channel.job != job);
        for id in self.channels_of(job) {
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.begin_again(self.latest);
            }
            self.schedule(id);
        }
    }

    fn channels_of(&self, job: JobId) -> Vec<ChannelId> {
        let channels = self.channels.range(channels_of(job));
        channels.map(|(id, _)| *id).collect()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next call to be carried out.
    pub fn poll_event(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// A call has been carried out. Passed over when nobody knows of it any more.
    pub fn complete(&mut self, id: ChannelId, number: u64, reply: Reply) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let Some(known) = channel.calls.get_mut(&number) else {
            return;
        };
        if !matches!(known.state, State::Running) {
            return;
        }
        self.counters.bytes[1] += reply.output.len() as u64;
        known.state = State::Done(reply);
        channel.answer(number);
        self.schedule(id);
    }

    /// Takes a datagram; false when it is of no channel, or says nothing new.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> bool {
        self.heard = self.heard.max(now);
        let taken = self.open_and_take(now, from, bytes);
        match taken {
            Some(id) => self.schedule(id),
            None => self.counters.refused += 1,
        }
        taken.is_some()
    }

    fn open_and_take(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Option<ChannelId> {
        let packet = Packet::new_checked(bytes).ok()?;
        let header = packet.header();
        let id = channel_of(packet.unverified_payload()).ok()?;
        let SocketAddr::V4(from) = from else {
            return None;
        };
        let channel = self.channels.get_mut(&id)?;
        if header.node != channel.node {
            return None;
        }
        let (payload, is_new) = channel.open(&packet)?;
        // What comes again says nothing, but shows where the node is heard.
        channel.came(now, from, header.seq);
        if !is_new {
            self.schedule(id);
            return None;
        }
        match header.kind {
            Kind::FileCall => {
                let call = FileCall::parse(payload).ok()?;
                let is_known = channel.calls.contains_key(&call.number);
                if call.run != channel.run && !is_known {
                    let before = channel.first_run.min(self.run);
                    let is_before = (1..before).contains(&call.run);
                    if is_before && !self.told_doubtful.contains(&id.job) {
                        self.doubtful.insert(id.job);
                    }
                    let is_own = call.run >= self.run;
                    channel.refuse(now, &call, is_own);
                } else if let Some(request) = channel.take_call(now, id, &call) {
                    self.counters.calls += 1;
                    self.counters.bytes[0] += request.call.input.len() as u64;
                    self.requests.push_back(request);
                }
            }
            Kind::FileReply => {
                let reply = FileReply::parse(payload).ok()?;
                let answers = reply.standing == Standing::Challenge;
                answers.then_some(())?;
                let answer = reply.result as u64;
                channel.path.answered(now, from, answer, MOVES_AFTER);
            }
            Kind::FileFetch => channel.take_fetch(&FileFetch::parse(payload).ok()?),
            Kind::FileData => {
                let data = FileData::parse(payload).ok()?;
                if let Some(request) = channel.take_data(now, id, &data) {
                    self.counters.calls += 1;
                    self.counters.bytes[0] += request.call.input.len() as u64;
                    self.requests.push_back(request);
                }
            }
            _ => return None,
        }
        Some(id)
    }

    /// Looks again at when a channel is due.
    fn schedule(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let due = match channel.outgoing.is_empty() && channel.challenge.is_none() {
            false => Some(Instant::ZERO),
            true => channel.puller.poll_timeout(),
        };
        if channel.timer == due {
            return;
        }
        if let Some(at) = core::mem::replace(&mut channel.timer, due) {
            self.timers.remove(&(at, id));
        }
        if let Some(at) = due {
            self.timers.insert((at, id));
        }
    }

    /// When [`Self::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next datagram, in `out`, which has [`MAX_DATAGRAM`](crate::MAX_DATAGRAM) bytes, and
    /// where it goes.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(usize, SocketAddr)> {
        loop {
            let &(at, id) = self.timers.first()?;
            if at > now {
                return None;
            }
            let channel = self.channels.get_mut(&id)?;
            let sent = channel.transmit(now, id, out);
            self.highest = self.highest.max(channel.sequence);
            self.schedule(id);
            if let Some((length, to)) = sent {
                return Some((length, to.into()));
            }
        }
    }
}

/// All channels of a job.
fn channels_of(job: JobId) -> RangeInclusive<ChannelId> {
    let of_job = |rank| ChannelId {
        job,
        rank: Rank(rank),
    };
    of_job(0)..=of_job(u32::MAX)
}

impl Channel {
    /// Begins another run. Calls stay known by their numbers, so that a copy of one that comes late
    /// is not taken for a new call.
    fn begin_again(&mut self, run: u64) {
        self.run = run;
        self.transmit = self.key.files_direction(Direction::ToNode, run);
        self.outgoing.clear();
        for (number, mut known) in core::mem::take(&mut self.calls) {
            self.puller.forget(number);
            // One that is not here whole was not given out: it is not known any more.
            if matches!(known.state, State::Receiving { .. }) {
                let standing = Outgoing::Standing(number, Standing::NotCarriedOut, 0);
                self.outgoing.push_back(standing);
                continue;
            }
            let is_gone = matches!(known.op, Op::Open | Op::Lock);
            if is_gone || matches!(known.state, State::Running) {
                known.state = State::Done(Reply::plain(-EIO));
            }
            self.calls.insert(number, known);
            self.outgoing.push_back(Outgoing::Reply(number));
        }
    }

    /// The payload of a datagram of this channel, and whether it is new.
    fn open<'a>(&mut self, packet: &Packet<'a>) -> Option<(&'a [u8], bool)> {
        let header = packet.header();
        let (epoch, key, window) = match &mut self.receive {
            Some(receive) => receive,
            none => {
                let direction = Direction::ToControl;
                let key = self.key.files_direction(direction, header.epoch.0);
                packet.open(&key).ok()?;
                none.insert((header.epoch, key, ReplayWindow::default()))
            }
        };
        let is_known = *epoch == header.epoch;
        let payload = is_known.then(|| packet.open(key).ok()).flatten()?;
        Some((payload, window.accept(header.seq)))
    }

    /// A datagram has come from here, for the first time or again: somebody may have been faster
    /// with a copy than the node. From the node's address it counts once. What comes there later
    /// still, anybody may send who has seen it.
    fn came(&mut self, now: Instant, from: SocketAddrV4, number: u64) {
        if from == self.path.addr() {
            if number <= self.heard_at {
                return;
            }
            self.heard_at = number;
        }
        if self.path.came(now, from) {
            // Nobody without the key can tell, and it is another one each time.
            let parts = [&b"hearth files path"[..], &self.sequence.to_le_bytes()];
            let [challenge @ .., _, _, _, _, _, _, _, _] = self.transmit.mac(&parts);
            let challenge = u64::from_le_bytes(challenge).max(1);
            self.path.ask(now, from, challenge);
            self.challenge = Some((from, challenge));
        }
    }

    /// Says of a call that names another run that it is not carried out. `is_own`: that run was of
    /// this service.
    fn refuse(&mut self, now: Instant, call: &FileCall<'_>, is_own: bool) {
        // What is queued is enough for each call of a window to be repeated.
        if self.outgoing.len() >= 2 * WINDOW as usize {
            return;
        }
        let is_sure = is_own && call.run >= self.first_run && call.number >= self.done;
        let standing = match is_sure {
            true => Outgoing::Standing(call.number, Standing::NotCarriedOut, 0),
            false => {
                let since = now.saturating_since(self.since).as_micros();
                let since = since.min(i64::MAX as u64) as i64;
                Outgoing::Standing(call.number, Standing::OtherRun, since)
            }
        };
        self.outgoing.push_back(standing);
    }

    /// Sends the reply to a call, and what of its output is not asked for.
    fn answer(&mut self, number: u64) {
        let known = self.calls.get(&number);
        let Some((State::Done(reply), early)) = known.map(|known| (&known.state, known.early))
        else {
            return;
        };
        let all = Layout::output(reply.output.len()).all();
        self.outgoing.push_back(Outgoing::Reply(number));
        match all & first_fragments(early) {
            0 => {}
            fragments => self.outgoing.push_back(Outgoing::Output(number, fragments)),
        }
    }

    fn take_call(&mut self, now: Instant, id: ChannelId, call: &FileCall<'_>) -> Option<Request> {
        let number = call.number;
        if call.done > self.done {
            self.done = call.done;
            let kept = self.calls.split_off(&call.done);
            for gone in core::mem::replace(&mut self.calls, kept).into_keys() {
                self.puller.forget(gone);
            }
        }
        match self.calls.get_mut(&number) {
            _ if number < self.done => return None,
            // What is queued is enough for each call of a window to be repeated.
            Some(_) if self.outgoing.len() >= 2 * WINDOW as usize => return None,
            Some(known) if matches!(known.state, State::Done(_)) => {
                known.early = call.early_output.into();
                self.answer(number);
                return None;
            }
            Some(_) => {
                let standing = Outgoing::Standing(number, Standing::Pending, 0);
                self.outgoing.push_back(standing);
                return None;
            }
            None => {}
        }
        // Without memory it is passed over: the node asks again.
        let layout = Layout::input(call.input_bytes as usize);
        let input = layout.buffer(call.input)?;
        let (early_input, early) = (call.early_input.into(), call.early_output.into());
        let call = Call {
            op: call.op,
            handles: call.handles,
            words: call.words,
            input,
            room: call.room,
        };
        if layout.count() == 0 {
            let state = State::Running;
            let op = call.op;
            self.calls.insert(number, Known { op, state, early });
            return Some(Request {
                channel: id,
                node: self.node,
                number,
                done: self.done,
                call,
            });
        }
        let missing = layout.all();
        let op = call.op;
        let state = State::Receiving { call, missing };
        self.calls.insert(number, Known { op, state, early });
        let coming = missing & first_fragments(early_input);
        self.puller.expect(now, number, coming);
        self.puller.want(number, missing & !coming);
        None
    }

    fn take_fetch(&mut self, fetch: &FileFetch) {
        let is_unknown = fetch.number >= self.done && !self.calls.contains_key(&fetch.number);
        if is_unknown && self.outgoing.len() < 2 * WINDOW as usize {
            let standing = Outgoing::Standing(fetch.number, Standing::Unknown, 0);
            self.outgoing.push_back(standing);
            return;
        }
        let Some(reply) = reply_of(&self.calls, fetch.number) else {
            return;
        };
        let asked = fetch.fragments & Layout::output(reply.output.len()).all();
        if asked == 0 {
            return;
        }
        let queued = self
            .outgoing
            .iter_mut()
            .find_map(|outgoing| match outgoing {
                Outgoing::Output(number, fragments) if *number == fetch.number => Some(fragments),
                _ => None,
            });
        match queued {
            Some(fragments) => *fragments |= asked,
            None => self
                .outgoing
                .push_back(Outgoing::Output(fetch.number, asked)),
        }
    }

    fn take_data(&mut self, now: Instant, id: ChannelId, data: &FileData<'_>) -> Option<Request> {
        let number = data.number_from(self.done);
        let known = self.calls.get_mut(&number)?;
        let State::Receiving { call, missing } = &mut known.state else {
            return None;
        };
        let layout = Layout::input(call.input.len());
        if !layout.put(&mut call.input, missing, data.fragment, data.bytes) {
            return None;
        }
        self.puller.arrived(now, number, data.fragment);
        if *missing != 0 {
            return None;
        }
        self.puller.forget(number);
        let known = self.calls.get_mut(&number)?;
        let state = core::mem::replace(&mut known.state, State::Running);
        let State::Receiving { call, .. } = state else {
            return None;
        };
        Some(Request {
            channel: id,
            node: self.node,
            number,
            done: self.done,
            call,
        })
    }

    fn transmit(
        &mut self,
        now: Instant,
        id: ChannelId,
        out: &mut [u8],
    ) -> Option<(usize, SocketAddrV4)> {
        if let Some((to, challenge)) = self.challenge.take() {
            let reply = FileReply::without_output(id, 1, Standing::Challenge, challenge as i64);
            let length = self.seal(Kind::FileReply, out, |writer| reply.emit(writer));
            return Some((length, to));
        }
        let (to, run) = (self.path.addr(), self.run);
        while let Some(outgoing) = self.outgoing.front_mut() {
            let (number, fragment) = match outgoing {
                Outgoing::Output(number, fragments) => {
                    let fragment = fragments.trailing_zeros() as u8;
                    *fragments &= fragments.wrapping_sub(1);
                    let number = *number;
                    if *fragments == 0 {
                        self.outgoing.pop_front();
                    }
                    (number, fragment)
                }
                Outgoing::Standing(number, standing, with) => {
                    let reply = FileReply::without_output(id, *number, *standing, *with);
                    self.outgoing.pop_front();
                    let length = self.seal(Kind::FileReply, out, |writer| reply.emit(writer));
                    return Some((length, to));
                }
                Outgoing::Reply(number) => {
                    let number = *number;
                    self.outgoing.pop_front();
                    let Some(reply) = reply_of(&self.calls, number) else {
                        continue;
                    };
                    let output = &reply.output;
                    let message = FileReply {
                        channel: id,
                        number,
                        standing: Standing::Done,
                        result: reply.result,
                        output_bytes: output.len() as u32,
                        output: &output[..output.len().min(INLINE_OUTPUT)],
                    };
                    let header = header(Kind::FileReply, self.node, run, &mut self.sequence);
                    let emit = |writer: &mut Writer<'_>| message.emit(writer);
                    let length = datagram::emit(header, Some(&self.transmit), out, emit);
                    return Some((length, to));
                }
            };
            let Some(reply) = reply_of(&self.calls, number) else {
                continue;
            };
            let data = FileData {
                channel: id,
                number,
                fragment,
                bytes: &reply.output[Layout::output(reply.output.len()).range(fragment)],
            };
            let header = header(Kind::FileData, self.node, run, &mut self.sequence);
            let emit = |writer: &mut Writer<'_>| data.emit(writer);
            let length = datagram::emit(header, Some(&self.transmit), out, emit);
            return Some((length, to));
        }
        let (number, fragments) = self.puller.poll(now)?;
        let fetch = FileFetch {
            channel: id,
            number,
            fragments,
        };
        let length = self.seal(Kind::FileFetch, out, |writer| fetch.emit(writer));
        Some((length, to))
    }

    fn seal(&mut self, kind: Kind, out: &mut [u8], payload: impl FnOnce(&mut Writer<'_>)) -> usize {
        let header = header(kind, self.node, self.run, &mut self.sequence);
        datagram::emit(header, Some(&self.transmit), out, payload)
    }
}

/// The reply to a call that has been carried out.
fn reply_of(calls: &BTreeMap<u64, Known>, number: u64) -> Option<&Reply> {
    match &calls.get(&number)?.state {
        State::Done(reply) => Some(reply),
        _ => None,
    }
}

/// The header of the next datagram of a channel.
fn header(kind: Kind, node: NodeId, run: u64, sequence: &mut u64) -> Header {
    *sequence += 1;
    Header {
        kind,
        node,
        epoch: BootEpoch(run),
        seq: *sequence,
    }
}
