//! All-to-all exchanges without a cluster: `hearth exchange`, one rank of the kernel's engine as an
//! ordinary process on an ordinary UDP socket, to measure what links carry.
//!
//! Key type: [`Station`] (driven by [`crate::udp::drive`]). Neighbours: `cli::exchange` (options
//! and words), `netstack::exchange` (all protocol).
//!
//! Invariant: a time is given only for an exchange whose every byte has been compared.

use std::net::SocketAddrV4;

use netstack::exchange::{
    Among, BufferId, Config, Counters, Endpoint, Event, Gone, Layout, Memory, Op, OpId, Side,
};
use netstack::ids::{JobId, Rank};
use netstack::time::Instant;
use netstack::wire::key::Key;
use tokio::signal::unix::Signal;

use crate::clock::Clock;
use crate::{output, udp};

/// What all ranks call the job: the key tells who belongs to it.
const JOB: JobId = JobId(1);
/// Buffers of [`Blocks`].
const SEND: BufferId = BufferId(0);
const RECEIVE: BufferId = BufferId(1);
/// How long the end waits at most for others to have everything, in microseconds: as long as they
/// take to call a rank lost.
const LINGER_US: u64 = 4_000_000;
/// Silence after which nobody misses anything, in microseconds: who waits for this rank asks ten
/// times a second.
const QUIET_US: u64 = 500_000;

/// What a rank is to do.
#[derive(Debug)]
pub struct Order {
    /// Where each rank listens.
    pub ranks: Vec<SocketAddrV4>,
    /// Which of them this is, with what the engine needs to know.
    pub config: Config,
    /// Bytes of each block.
    pub bytes: usize,
    /// Exchanges.
    pub repeats: usize,
    /// Microseconds of the clock at which it gives up.
    pub deadline_us: Option<u64>,
}

impl Order {
    /// The engine's configuration but for what is measured.
    pub fn config(me: usize, size: usize, key: Key) -> Config {
        Config {
            job: JOB,
            epoch: 0,
            me: Rank(me as u32),
            size: size as u32,
            key,
            rate: 0,
            port_buffer: 0,
            leaf: 0,
            scheme: netstack::exchange::Scheme::Default,
            eager_bytes: 0,
            seed: super::seed(),
        }
    }
}

/// Why a rank ended without its figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The engine says why.
    #[error("{0}{advice}", advice = advice(.0))]
    Engine(netstack::exchange::Error),
    /// A rank is lost that was never there, as far as this one knows.
    #[error("rank {0} is lost, and nothing was ever heard of it here: {ASK}")]
    NeverHeard(Rank),
    /// The engine does not take what is to be done.
    #[error("the exchange cannot be posted ({0:?}); choose other --bytes or fewer --ranks")]
    Post(netstack::exchange::PostError),
    /// A byte differs.
    #[error("byte {at} from rank {from} is another than was sent")]
    Differs {
        /// The sender.
        from: usize,
        /// Where in its block.
        at: usize,
    },
    /// The time was up.
    #[error("the time was up{}", missing(silent, needed))]
    TimeUp {
        /// Ranks that were needed and of which nothing was ever heard.
        silent: Vec<usize>,
        /// Others that were needed.
        needed: Vec<usize>,
    },
    /// Interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// What else an error of the engine may mean here: nobody tells the ranks that they were given
/// different options.
const fn advice(error: &netstack::exchange::Error) -> &'static str {
    match error {
        netstack::exchange::Error::SizeMismatch { .. } => "; give all ranks the same --bytes",
        netstack::exchange::Error::Other(_) => "; give all ranks the same list and --repeats",
        netstack::exchange::Error::RankLost(_) => {
            "; has it ended, or another --repeats, --scheme or --ranks?"
        }
        _ => "",
    }
}

/// What to look at where a rank was never heard.
const ASK: &str = "is `hearth exchange` started there, with this list and key file?";
/// Most ranks that an error names.
const NAMED_MAX: usize = 8;

/// What a time-out says of the ranks that were waited for.
fn missing(silent: &[usize], needed: &[usize]) -> String {
    match (silent, needed) {
        ([], []) => String::new(),
        ([], needed) => format!(
            "; it waited for {}, heard of before, and perhaps waiting for others",
            ranks(needed)
        ),
        (silent, _) => format!("; nothing was ever heard of {}: {ASK}", ranks(silent)),
    }
}

/// `rank 3`, `ranks 1, 2 and 7`, `ranks 1, 2, ... and 9 others`.
fn ranks(ranks: &[usize]) -> String {
    let mut words: Vec<String> = ranks.iter().take(NAMED_MAX).map(usize::to_string).collect();
    if let Some(others @ 1..) = ranks.len().checked_sub(NAMED_MAX) {
        words.push(output::count(others, "other"));
    }
    match &words[..] {
        [first @ .., last] if !first.is_empty() => format!("ranks {} and {last}", first.join(", ")),
        words => format!("rank {}", words.concat()),
    }
}

/// The memory of this rank.
#[derive(Debug)]
struct Blocks {
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Memory for Blocks {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        let from = if buffer == SEND {
            &self.send
        } else {
            &self.receive
        };
        let piece = from
            .get(offset as usize..)
            .and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(piece.ok_or(Gone)?);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        let to = if buffer == RECEIVE {
            &mut self.receive
        } else {
            &mut self.send
        };
        let piece = to
            .get_mut(offset as usize..)
            .and_then(|rest| rest.get_mut(..bytes.len()));
        piece.ok_or(Gone)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Waits for all ranks before an exchange.
    Gather(OpId),
    /// Exchanges since a time in microseconds.
    Exchange(OpId, u64),
    /// Has everything; stays until the others do too, at most until a time.
    Leave(u64),
}

/// One rank.
#[derive(Debug)]
pub struct Station {
    endpoint: Endpoint,
    memory: Blocks,
    order: Order,
    clock: Clock,
    interrupt: Signal,
    step: Option<Step>,
    round: usize,
    /// Of which ranks something came.
    heard: Vec<bool>,
    /// When something came last, in microseconds.
    heard_us: u64,
    /// Seconds of each exchange so far, at this rank.
    pub seconds: Vec<f64>,
    /// Why there will be no more.
    pub failure: Option<Failure>,
    over: bool,
}

impl Station {
    /// A rank that waits for the others.
    pub fn new(order: Order, clock: Clock, interrupt: Signal) -> Self {
        let all = order.bytes * order.ranks.len();
        let now = Instant::from_micros(clock.now_us());
        Self {
            endpoint: Endpoint::new(order.config, now),
            memory: Blocks {
                send: vec![0; all],
                receive: vec![0; all],
            },
            heard: vec![false; order.ranks.len()],
            heard_us: 0,
            order,
            clock,
            interrupt,
            step: None,
            round: 0,
            seconds: Vec::new(),
            failure: None,
            over: false,
        }
    }

    /// What the engine has counted.
    pub fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    fn me(&self) -> usize {
        self.order.config.me.0 as usize
    }

    /// Posts what comes next.
    fn advance(&mut self, now: Instant) {
        if self.failure.is_some() || self.seconds.len() == self.order.repeats {
            self.endpoint.leave(now, true);
            self.step = Some(Step::Leave(now.as_micros() + LINGER_US));
            return;
        }
        let (me, bytes, round) = (self.me(), self.order.bytes, self.round);
        for to in 0..self.order.ranks.len() {
            let block = &mut self.memory.send[to * bytes..][..bytes];
            fill(block, (me, to), round);
        }
        self.memory.receive.fill(0);
        let barrier = Op::Barrier {
            among: Among::all(0),
        };
        match self.endpoint.post(now, barrier, &mut self.memory) {
            Ok(op) => self.step = Some(Step::Gather(op)),
            Err(error) => self.fail(now, Failure::Post(error)),
        }
    }

    fn exchange(&mut self, now: Instant) {
        let side = |buffer: BufferId| Side {
            buffer,
            layout: Layout::Equal {
                bytes: self.order.bytes as u64,
            },
        };
        let op = Op::AllToAll {
            among: Among::all(0),
            send: side(SEND),
            receive: side(RECEIVE),
        };
        match self.endpoint.post(now, op, &mut self.memory) {
            Ok(op) => self.step = Some(Step::Exchange(op, now.as_micros())),
            Err(error) => self.fail(now, Failure::Post(error)),
        }
    }

    fn fail(&mut self, now: Instant, failure: Failure) {
        self.failure.get_or_insert(failure);
        if !matches!(self.step, Some(Step::Leave(_))) {
            self.advance(now);
        }
    }

    fn handle(&mut self, now: Instant, event: Event) {
        match (event, self.step) {
            (Event::Failed { error, .. }, _) => self.fail(now, self.failure_of(error)),
            (Event::Done { op, .. }, Some(Step::Gather(wanted))) if op == wanted => {
                self.exchange(now);
            }
            (Event::Done { op, .. }, Some(Step::Exchange(wanted, began_us))) if op == wanted => {
                if let Some(failure) = self.compare() {
                    return self.fail(now, failure);
                }
                let us = now.as_micros() - began_us;
                self.seconds.push(us as f64 / 1e6);
                self.round += 1;
                self.advance(now);
            }
            (Event::Done { .. }, _) => {}
        }
    }

    fn collect(&mut self, now: Instant, outbox: &mut udp::Outbox) {
        let (endpoint, memory, ranks) = (&mut self.endpoint, &mut self.memory, &self.order.ranks);
        outbox.collect(|out| {
            let (to, length) = endpoint.poll_transmit(now, out, memory)?;
            Some((*ranks.get(to.0 as usize)?, length))
        });
    }

    /// What the engine says, and whether the rank that is lost was ever there.
    fn failure_of(&self, error: netstack::exchange::Error) -> Failure {
        match error {
            netstack::exchange::Error::RankLost(rank)
                if self.heard.get(rank.0 as usize) == Some(&false) =>
            {
                Failure::NeverHeard(rank)
            }
            error => Failure::Engine(error),
        }
    }

    /// Whom it still waits for at the end of its time.
    fn time_up(&self) -> Failure {
        let all = (0..self.heard.len()).filter(|rank| *rank != self.me());
        let needed = all.filter(|rank| self.endpoint.waits_for(Rank(*rank as u32)));
        let (needed, silent) = needed.partition(|rank| self.heard[*rank]);
        Failure::TimeUp { silent, needed }
    }

    /// Compares what has come.
    fn compare(&self) -> Option<Failure> {
        let (me, bytes) = (self.me(), self.order.bytes);
        let mut expected = vec![0; bytes];
        for (from, found) in self.memory.receive.chunks(bytes.max(1)).enumerate() {
            fill(&mut expected, (from, me), self.round);
            if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
                return Some(Failure::Differs { from, at });
            }
        }
        None
    }
}

/// Bytes that tell sender, receiver and round.
fn fill(block: &mut [u8], (from, to): (usize, usize), round: usize) {
    let base = from * 41 + to * 17 + round * 5;
    for (at, byte) in block.iter_mut().enumerate() {
        *byte = (base + at * 7 + (at >> 8) * 3) as u8;
    }
}

impl udp::Engine for Station {
    fn receive(&mut self, arrived: &mut udp::Arrived<'_>) {
        while let Some((_, datagram)) = arrived.next() {
            let now = Instant::from_micros(self.clock.now_us());
            let (endpoint, memory) = (&mut self.endpoint, &mut self.memory);
            if let Some(rank) = endpoint.handle_datagram(now, datagram, memory) {
                self.heard_us = now.as_micros();
                if let Some(heard) = self.heard.get_mut(rank.0 as usize) {
                    *heard = true;
                }
            }
        }
    }

    fn turn(&mut self, outbox: &mut udp::Outbox) -> u64 {
        let now = Instant::from_micros(self.clock.now_us());
        if self.step.is_none() {
            self.advance(now);
        }
        // What the engine has to say leaves first: others wait for its last acknowledgements, and
        // to compare blocks and to make new ones takes a while.
        self.collect(now, outbox);
        let event = match outbox.is_empty() {
            true => self.endpoint.poll_event(),
            false => None,
        };
        let is_busy = event.is_some() || !outbox.is_empty();
        if let Some(event) = event {
            self.handle(now, event);
        }
        let deadline = match self.step {
            Some(Step::Leave(until_us)) => {
                let quiet_us = self.heard_us + QUIET_US;
                let is_done = self.endpoint.is_drained() && now.as_micros() >= quiet_us;
                self.over = is_done || now.as_micros() >= until_us;
                Some(until_us.min(quiet_us.max(now.as_micros() + 1)))
            }
            _ => self.order.deadline_us,
        };
        // Who leaves has everything, or has failed already.
        let leaves = matches!(self.step, Some(Step::Leave(_)));
        let due = |at: u64| at <= now.as_micros() && !leaves;
        if self.order.deadline_us.is_some_and(due) {
            self.fail(now, self.time_up());
        }
        if is_busy {
            return now.as_micros();
        }
        let next = self.endpoint.poll_timeout().map(Instant::as_micros);
        [next, deadline]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    async fn woken(&mut self) {
        self.interrupt.recv().await;
        self.failure.get_or_insert(Failure::Interrupted);
        self.over = true;
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::signal::unix::{SignalKind, signal};

    /// A rank of several that each have `deadline_us`.
    async fn rank(
        me: usize,
        socket: tokio::net::UdpSocket,
        ranks: Vec<SocketAddrV4>,
        deadline_us: u64,
    ) -> (usize, Option<Failure>) {
        let order = Order {
            config: Order::config(me, ranks.len(), Key([3; 16])),
            ranks,
            bytes: 20_000,
            repeats: 2,
            deadline_us: Some(deadline_us),
        };
        let interrupt = signal(SignalKind::interrupt()).unwrap();
        let clock = Clock::start();
        let mut station = Station::new(order, clock, interrupt);
        let never = std::future::pending();
        udp::drive(&mut station, &socket, clock, never)
            .await
            .unwrap();
        (station.seconds.len(), station.failure)
    }

    /// How three of four ranks end that have so long; nobody answers at the last.
    async fn three_of_four(deadline_us: u64) -> [String; 3] {
        let listen = || udp::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let sockets: Vec<_> = (0..4).map(|_| listen()).collect();
        let ranks: Vec<_> = sockets.iter().map(|s| udp::address(s).unwrap()).collect();
        let mut sockets = sockets.into_iter();
        let [first, second, third] = std::array::from_fn(|me| {
            let socket = sockets.next().unwrap();
            rank(me, socket, ranks.clone(), deadline_us)
        });
        let (first, second, third) = tokio::join!(first, second, third);
        [first, second, third].map(|(done, failure)| {
            assert_eq!(done, 0);
            failure.unwrap().to_string()
        })
    }

    #[tokio::test]
    async fn a_time_out_names_who_was_never_heard() {
        let texts = three_of_four(2_500_000).await;
        // Rank 2 waits for rank 0, which answers, and that and rank 1 for rank 3.
        for text in &texts[..2] {
            assert!(
                text.starts_with("the time was up; nothing was ever heard of rank 3: "),
                "{text}"
            );
        }
        let text = &texts[2];
        assert!(
            text.starts_with("the time was up; it waited for rank 0,"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_lost_rank_that_was_never_heard_is_told_as_such() {
        for text in three_of_four(20_000_000).await {
            let start = "rank 3 is lost, and nothing was ever heard of it here: ";
            assert!(text.starts_with(start), "{text}");
        }
    }

    #[test]
    fn options_that_differ_are_suggested() {
        let text = |error| Failure::Engine(error).to_string();
        let lost = text(netstack::exchange::Error::RankLost(Rank(3)));
        assert!(lost.starts_with("rank 3 is lost; ") && lost.contains("--repeats"));
        let size = text(netstack::exchange::Error::SizeMismatch { rank: Rank(2) });
        assert!(size.contains("rank 2") && size.ends_with("--bytes"));
    }

    #[test]
    fn ranks_that_are_missing_are_named_up_to_a_number() {
        let many: Vec<usize> = (1..11).collect();
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[3, 4, 9]), "ranks 3, 4 and 9");
        assert_eq!(ranks(&many), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 others");
        assert_eq!(ranks(&many[..8]), "ranks 1, 2, 3, 4, 5, 6, 7 and 8");
        assert_eq!(missing(&[], &[]), "");
        assert!(missing(&[], &[4]).contains("waited for rank 4"));
    }

    #[tokio::test]
    async fn ranks_on_ordinary_sockets_exchange_and_compare() {
        const RANKS: usize = 3;
        let listen = || udp::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let sockets: Vec<_> = (0..RANKS).map(|_| listen()).collect();
        let ranks: Vec<_> = sockets.iter().map(|s| udp::address(s).unwrap()).collect();
        let mut tasks = Vec::new();
        for (me, socket) in sockets.into_iter().enumerate() {
            tasks.push(tokio::spawn(rank(me, socket, ranks.clone(), 20_000_000)));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), (2, None));
        }
    }
}
