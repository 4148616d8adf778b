//! I/O services on other machines (`hearth io`): who they are, and what each is to be told.
//!
//! A service asks for orders, says by a number which it has taken, and is answered when there are
//! more, or after a while. One that is new, or has missed some, gets the whole state: the jobs that
//! it serves. So neither its end nor that of the control node needs more than asking again.
//!
//! Key types: [`Poll`] and [`Orders`] (what is said), [`Joined`] (one service). Neighbours:
//! `api::io` waits, `services` has all of them.
//!
//! Invariant: a service that has taken all orders serves what it would serve after a whole state.

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_io::{Export, User};
use netstack::files::server::{Counters, Member};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use utoipa::ToSchema;

use crate::{clock, secrets};

/// How long a service waits for orders.
pub const POLL: Duration = Duration::from_secs(2);
/// A service that has not asked for so long is lost.
const LOST: Duration = Duration::from_secs(2);
/// Orders that are kept for a service that does not take them; then it gets the whole state.
const ORDERS_MAX: usize = 4096;
/// Longest name of a service, in bytes.
pub const NAME_MAX: usize = 64;
/// Most problems that are told at once.
pub const PROBLEMS_MAX: usize = 64;

/// What a service says of itself when it asks for orders.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// The name of its machine.
    pub name: String,
    /// Where nodes reach it: an IPv4 address and a UDP port.
    pub address: String,
    /// A number that is another in each run of the service.
    pub run: u64,
    /// What the last answer said; 0 to get the whole state.
    pub taken: u64,
    /// What it has counted.
    pub counted: Counted,
    /// Jobs whose calls it could not carry out since it last said so.
    #[serde(default)]
    pub problems: Vec<JobProblem>,
}

/// What a service has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counted {
    /// Calls of ranks.
    pub calls: u64,
    /// Bytes that came with calls: what was written, and names.
    pub received_bytes: u64,
    /// Bytes that went with replies: what was read, and lists.
    pub sent_bytes: u64,
    /// Datagrams that were passed over.
    pub refused: u64,
}

impl From<Counters> for Counted {
    fn from(counters: Counters) -> Self {
        Counted {
            calls: counters.calls,
            received_bytes: counters.bytes[0],
            sent_bytes: counters.bytes[1],
            refused: counters.refused,
        }
    }
}

/// A job whose calls cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobProblem {
    /// The job, as its nodes know it.
    pub job: u64,
    /// Why, in words.
    pub why: String,
}

/// What a service is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orders {
    /// These are all jobs that it serves: it ends what it does for others.
    pub whole: bool,
    /// One after the other.
    pub orders: Vec<Order>,
    /// What the next question says.
    pub taken: u64,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Serve a job.
    Serve(ServedJob),
    /// Serve more ranks of it, or the same under other keys.
    Add {
        /// The job.
        job: u64,
        /// Its ranks.
        ranks: Vec<RankKey>,
    },
    /// A rank has ended.
    Leave {
        /// The job.
        job: u64,
        /// The rank.
        rank: u32,
    },
    /// A job has ended.
    Close {
        /// The job.
        job: u64,
    },
}

/// A job that a service serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServedJob {
    /// The job, as its nodes know it.
    pub job: u64,
    /// Tells it from a job of the same number that another control node had.
    pub identity: u64,
    /// Who its files are read and written as; absent: the user who control runs as.
    #[schema(value_type = Option<Object>)]
    pub user: Option<User>,
    /// The directories that it sees.
    #[schema(value_type = Vec<Object>)]
    pub exports: Vec<Export>,
    /// Where it begins, as it sees it.
    #[schema(value_type = String)]
    pub working: std::path::PathBuf,
    /// Its ranks on nodes of this service.
    pub ranks: Vec<RankKey>,
}

/// A rank, and what its calls are sealed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankKey {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// Where that is.
    pub address: String,
    /// The key of its calls, in hexadecimal.
    pub key: String,
}

impl From<Member> for RankKey {
    fn from(member: Member) -> Self {
        RankKey {
            rank: member.rank.0,
            node: member.node.0,
            address: member.address.to_string(),
            key: secrets::encode_hex(&member.key.0),
        }
    }
}

/// What comes of a question.
#[derive(Debug)]
pub enum Polled {
    /// The answer.
    Orders(Orders),
    /// There is nothing new: to be asked again when this says so.
    Wait(Arc<Notify>),
}

/// A service that has joined.
#[derive(Debug)]
pub struct Joined {
    /// What it says of itself.
    pub name: String,
    /// Which run of it.
    pub run: u64,
    /// Since when that run is known.
    pub since_unix_us: u64,
    /// What it has counted.
    pub counted: Counted,
    /// Questions that wait for an answer.
    asking: u32,
    /// When it was last heard.
    seen: Instant,
    /// That it is lost has been told.
    told_lost: bool,
    /// Number of the first of `orders`; those below were taken.
    first: u64,
    orders: VecDeque<Order>,
    news: Arc<Notify>,
}

impl Joined {
    /// One that asks for the first time.
    pub fn new(poll: &Poll) -> Self {
        Joined {
            name: poll.name.clone(),
            run: poll.run,
            since_unix_us: clock::unix_us(),
            counted: poll.counted,
            asking: 0,
            seen: Instant::now(),
            told_lost: false,
            // No number that an earlier run of control has used.
            first: clock::unix_us(),
            orders: VecDeque::new(),
            news: Arc::default(),
        }
    }

    /// Whether it asks.
    pub fn is_there(&self) -> bool {
        self.asking > 0 || self.seen.elapsed() < LOST
    }

    /// Whether a question of it waits.
    pub fn is_asking(&self) -> bool {
        self.asking > 0
    }

    /// It asks: says whether it was lost.
    pub fn asks(&mut self, poll: &Poll) -> bool {
        self.asking += 1;
        self.seen = Instant::now();
        self.name.clone_from(&poll.name);
        self.counted = poll.counted;
        if poll.run != self.run {
            self.run = poll.run;
            self.since_unix_us = clock::unix_us();
        }
        std::mem::take(&mut self.told_lost)
    }

    /// A question of it has an answer, or nobody waits for one any more.
    pub fn answered(&mut self) {
        self.asking = self.asking.saturating_sub(1);
        self.seen = Instant::now();
    }

    /// Whether it is lost, once each time.
    pub fn is_news_of_loss(&mut self) -> bool {
        !self.is_there() && !std::mem::replace(&mut self.told_lost, true)
    }

    /// Something for it to do.
    pub fn push(&mut self, order: Order) {
        if self.orders.len() == ORDERS_MAX {
            // What it has taken is unknown from now on, so it gets the whole state.
            self.first += ORDERS_MAX as u64 + 1;
            self.orders.clear();
        }
        self.orders.push_back(order);
        self.news.notify_one();
    }

    /// The answer to a question of this run that has taken so much; `whole` gives all that it
    /// serves.
    pub fn answer(&mut self, taken: u64, whole: impl FnOnce() -> Vec<Order>) -> Polled {
        let next = self.first + self.orders.len() as u64;
        if !(self.first..=next).contains(&taken) {
            self.orders.clear();
            self.first = next;
            return Polled::Orders(Orders {
                whole: true,
                orders: whole(),
                taken: next,
            });
        }
        let done = usize::try_from(taken - self.first).expect("at most the length");
        self.orders.drain(..done);
        self.first = taken;
        match self.orders.is_empty() {
            true => Polled::Wait(self.news.clone()),
            false => Polled::Orders(Orders {
                whole: false,
                orders: self.orders.iter().cloned().collect(),
                taken: next,
            }),
        }
    }
}

/// Where a service says that nodes reach it.
///
/// # Errors
/// What is wrong with the address.
pub fn address(text: &str) -> Result<SocketAddrV4, String> {
    let address: SocketAddrV4 = text.parse().map_err(|_| {
        format!("{text:?} is no address for nodes; an I/O service has one such as 10.117.0.9:7118")
    })?;
    let ip = address.ip();
    match address.port() == 0 || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
        true => Err(format!(
            "nodes cannot send to {address}; give the service's own address and port (--listen)"
        )),
        false => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(run: u64) -> Poll {
        Poll {
            run,
            ..Poll::default()
        }
    }

    fn orders(polled: Polled) -> Orders {
        match polled {
            Polled::Orders(orders) => orders,
            Polled::Wait(_) => panic!("there is nothing new"),
        }
    }

    #[test]
    fn orders_are_given_until_they_are_taken_and_then_not_again() {
        let mut joined = Joined::new(&poll(1));
        let close = |job| Order::Close { job };
        let first = orders(joined.answer(0, || vec![close(1)]));
        assert!(first.whole && first.orders == [close(1)]);
        assert!(matches!(
            joined.answer(first.taken, Vec::new),
            Polled::Wait(_)
        ));
        joined.push(close(2));
        joined.push(close(3));
        // The first answer is lost.
        for _ in 0..2 {
            let more = orders(joined.answer(first.taken, Vec::new));
            assert!(!more.whole && more.orders == [close(2), close(3)]);
        }
        joined.push(close(4));
        let more = orders(joined.answer(first.taken + 2, Vec::new));
        assert_eq!(more.orders, [close(4)]);
        // Of an earlier run of control, or after too many.
        assert!(orders(joined.answer(first.taken, Vec::new)).whole);
        let taken = orders(joined.answer(0, Vec::new)).taken;
        for job in 0..=ORDERS_MAX as u64 {
            joined.push(close(job));
        }
        assert!(orders(joined.answer(taken, Vec::new)).whole);
    }

    #[test]
    fn addresses_that_nodes_cannot_reach_are_refused() {
        assert!(address("10.117.0.9:7118").is_ok());
        for bad in [
            "10.117.0.9",
            "0.0.0.0:7118",
            "10.0.0.1:0",
            "224.0.0.1:7",
            "[::1]:7118",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
