//! This node's part in calls on files that an I/O service carries out: the calls of the job that
//! runs, and where they go.
//!
//! Neighbours: `netstack::files::client` has the protocol, [`super::node`] moves the datagrams,
//! `process::calls::shipped` makes the calls.
//!
//! Invariant: nothing of a job is left here when it has ended, and nothing that nobody waits for
//! while it runs: what was opened for nobody is closed.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::SocketAddrV4;

use netstack::files::client::{Client, Completion, Config, Full};
use netstack::files::{Call, Op, Reply};
use netstack::time::Instant;

/// Kinds of datagrams of file calls, as the fourth byte has them.
const KINDS: core::ops::Range<u8> = 112..116;

/// The calls of one job.
pub struct Shipping {
    client: Client,
    service: SocketAddrV4,
    /// Replies that nobody has taken, and the runs that they are of.
    replies: BTreeMap<u64, (u64, Reply)>,
    /// Calls under way that open something, and those of them that nobody waits for.
    opening: BTreeSet<u64>,
    unwanted: BTreeSet<u64>,
    /// Handles to be closed for which no call could be made yet, and the runs that they are of.
    leaving: VecDeque<(u64, u32)>,
    news: bool,
    /// Somebody waits for the memory that replies take.
    pub is_short: bool,
}

impl Shipping {
    /// Of the rank that `config` names, to the service there.
    pub fn new(config: Config, service: SocketAddrV4) -> Self {
        Self {
            client: Client::new(config),
            service,
            replies: BTreeMap::new(),
            opening: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            leaving: VecDeque::new(),
            news: false,
            is_short: false,
        }
    }

    /// Whether a datagram is about file calls.
    pub fn takes(datagram: &[u8]) -> bool {
        datagram.get(3).is_some_and(|kind| KINDS.contains(kind))
    }

    /// Where the service is.
    pub fn service(&self) -> SocketAddrV4 {
        self.service
    }

    /// The run of the service that handles are of now: those of another are void.
    pub fn run(&self) -> u64 {
        self.client.run()
    }

    /// Ships a call; [`Self::take`] gives its reply. On [`Full`], wait for any reply.
    pub fn submit(&mut self, now: Instant, call: Call) -> Result<u64, Full> {
        let opens = call.op == Op::Open;
        let number = self.client.submit(now, call)?;
        if opens {
            self.opening.insert(number);
        }
        Ok(number)
    }

    /// The reply to a call, once it is here, and the run that a handle in it is of.
    pub fn take(&mut self, number: u64) -> Option<(u64, Reply)> {
        let reply = self.replies.remove(&number)?;
        self.opening.remove(&number);
        Some(reply)
    }

    /// Keeps a reply for later that was taken.
    pub fn restore(&mut self, number: u64, reply: (u64, Reply)) {
        self.replies.insert(number, reply);
    }

    /// Nobody waits for the reply to a call any more. What it opens is closed.
    pub fn forget(&mut self, now: Instant, number: u64) {
        let opens = self.opening.remove(&number);
        match (self.replies.remove(&number), opens) {
            (Some((run, reply)), true) => self.close_opened(now, run, &reply),
            (None, true) => {
                self.unwanted.insert(number);
            }
            (_, false) => self.client.forget(number),
        }
    }

    /// Has a handle closed that nobody uses any more, without waiting for it. Those of another run
    /// are void, and may be those of other files now.
    pub fn close(&mut self, now: Instant, run: u64, handle: u32) {
        self.leaving.push_back((run, handle));
        self.close_leaving(now);
    }

    fn close_opened(&mut self, now: Instant, run: u64, reply: &Reply) {
        if let Ok(handle) = u32::try_from(reply.result) {
            self.close(now, run, handle);
        }
    }

    fn close_leaving(&mut self, now: Instant) {
        while let Some(&(run, handle)) = self.leaving.front() {
            if run == self.run() {
                let Ok(number) = self.client.submit(now, Call::new(Op::Close, handle)) else {
                    return;
                };
                self.client.forget(number);
            }
            self.leaving.pop_front();
        }
    }

    /// Bytes of replies that are on their way, at most.
    pub fn promised(&self) -> u64 {
        self.client.promised()
    }

    /// Whether a call is under way, or a reply waits for who made it.
    pub fn is_busy(&self) -> bool {
        self.client.under_way() > 0 || !self.replies.is_empty()
    }

    /// Takes a datagram.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.client.handle_datagram(now, datagram);
        self.take_completions(now);
    }

    fn take_completions(&mut self, now: Instant) {
        while let Some(Completion { number, run, reply }) = self.client.poll_event() {
            match self.unwanted.remove(&number) {
                true => self.close_opened(now, run, &reply),
                false => {
                    self.replies.insert(number, (run, reply));
                    self.news = true;
                }
            }
        }
        // One that is over makes room for another, also where nobody waited for it.
        self.close_leaving(now);
        self.news |= self.is_short;
    }

    /// Whether a reply has come since this was asked last.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// When [`Self::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    /// The next datagram for the service.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        let length = self.client.poll_transmit(now, out);
        self.take_completions(now);
        length
    }
}
