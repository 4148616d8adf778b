//! This node's part in calls on files that an I/O service carries out: the calls of the job that
//! runs, and where they go.
//!
//! Neighbours: `netstack::files::client` has the protocol, [`super::node`] moves the datagrams,
//! `process::calls::shipped` makes the calls.
//!
//! Invariant: nothing of a job is left here when it has ended.

use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;

use netstack::files::client::{Client, Config, Full};
use netstack::files::{Call, Reply};
use netstack::time::Instant;

/// Kinds of datagrams of file calls, as the fourth byte has them.
const KINDS: core::ops::Range<u8> = 112..116;

/// The calls of one job.
pub struct Shipping {
    client: Client,
    service: SocketAddrV4,
    /// Replies that nobody has taken, and the runs that they are of.
    replies: BTreeMap<u64, (u64, Reply)>,
    news: bool,
}

impl Shipping {
    /// Of the rank that `config` names, to the service there.
    pub fn new(config: Config, service: SocketAddrV4) -> Self {
        Self {
            client: Client::new(config),
            service,
            replies: BTreeMap::new(),
            news: false,
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
        self.client.submit(now, call)
    }

    /// The reply to a call, once it is here, and the run that a handle in it is of.
    pub fn take(&mut self, number: u64) -> Option<(u64, Reply)> {
        self.replies.remove(&number)
    }

    /// Keeps a reply for later that was taken.
    pub fn put_back(&mut self, number: u64, reply: (u64, Reply)) {
        self.replies.insert(number, reply);
    }

    /// Nobody waits for the reply to a call any more.
    pub fn forget(&mut self, number: u64) {
        self.replies.remove(&number);
        self.client.forget(number);
    }

    /// Takes a datagram.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.client.handle_datagram(now, datagram);
        self.take_completions();
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.client.poll_event() {
            let reply = (completion.run, completion.reply);
            self.replies.insert(completion.number, reply);
            self.news = true;
        }
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
        self.take_completions();
        length
    }
}
