//! The node's side of demand paging: outstanding requests, each with a bitmap of the fragments
//! it still lacks.
//!
//! Fragments in flight are limited by a window that grows with every fragment that arrives and
//! halves with every time-out (as in RFC 5681), so that a request does not overrun a slow link's
//! queue. A request a program waits for goes before those that read ahead.
//!
//! Invariant: a request ends: with its data, or after [`MAX_TRIES`] attempts without progress;
//! while there is no control node to ask it waits, for as long as its node keeps the job.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::backoff::Backoff;
use crate::counters::Counters;
use crate::ids::{JobId, RequestId};
use crate::node::{Event, Full};
use crate::page::{
    FRAGMENT, FRAMING, MAX_FRAGMENTS, MAX_REQUEST, MAX_REQUESTS, Object, PageError, PageRequest,
    PageTraffic, fragment_mask,
};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::rtt::RttEstimator;
use crate::wire::datagram::OVERHEAD;
use crate::wire::page::{Content, PageData, PageRead};

/// Attempts without a single new fragment before a request fails. With the back-off below it is
/// at least ten seconds, longer than it takes to notice that the control node is lost.
const MAX_TRIES: u32 = 14;
/// Longest wait between two attempts.
const SLOWEST: Micros = Micros::from_secs(2);
/// After the last fragment of an attempt has arrived, missing ones can only be late by reordering:
/// so long is waited for them at least.
const REORDER: Micros = Micros::from_millis(2);
/// Smallest window: one request of the largest size.
const WINDOW_MIN: u32 = MAX_FRAGMENTS as u32;
/// Largest window: all requests at once.
const WINDOW_MAX: u32 = (MAX_FRAGMENTS * MAX_REQUESTS) as u32;
/// Requests of the program that have ended and are still counted for: what was sent twice may
/// arrive after the request is complete.
const ENDED: usize = 4 * MAX_REQUESTS;

#[derive(Debug)]
struct Request {
    spec: PageRequest,
    missing: u32,
    /// Known from the first fragment on.
    available: Option<u32>,
    bytes: Vec<u8>,
    attempt: u8,
    tries: u32,
    /// When the present attempt was sent; None while it waits for the window.
    sent_at: Option<Instant>,
    deadline: Instant,
}

/// What reading one job's program has cost.
#[derive(Debug, Default)]
struct Account {
    job: JobId,
    traffic: PageTraffic,
    /// The last requests that have ended.
    ended: VecDeque<RequestId>,
}

impl Account {
    fn sent(&mut self, spec: &PageRequest) {
        if spec.object != Object::Program {
            return;
        }
        if self.job != spec.job {
            *self = Account {
                job: spec.job,
                ..Account::default()
            };
        }
        self.traffic.requests += 1;
        self.traffic.wire_bytes += (FRAMING + OVERHEAD + PageRead::LEN) as u64;
    }

    fn received(&mut self, data: usize) {
        self.traffic.fragments += 1;
        self.traffic.bytes += data as u64;
        self.traffic.wire_bytes += (FRAMING + OVERHEAD + PageData::FIXED_LEN + data) as u64;
    }

    fn ended(&mut self, id: RequestId, spec: &PageRequest) {
        if spec.object == Object::Program && spec.job == self.job {
            if self.ended.len() == ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(id);
        }
    }
}

/// The page requests of a node.
#[derive(Debug)]
pub(crate) struct PageClient {
    requests: BTreeMap<RequestId, Request>,
    next: u64,
    rtt: RttEstimator,
    window: u32,
    threshold: u32,
    /// What the window is at most.
    most: u32,
    credit: u32,
    account: Account,
    /// Nobody is there to answer: nothing is sent, and nothing fails.
    waiting: bool,
}

impl PageClient {
    pub(crate) fn new() -> Self {
        PageClient {
            requests: BTreeMap::new(),
            next: 1,
            rtt: RttEstimator::default(),
            window: WINDOW_MIN,
            threshold: WINDOW_MAX,
            most: WINDOW_MAX,
            credit: 0,
            account: Account::default(),
            waiting: false,
        }
    }

    /// Has requests wait while there is no control node that knows their job; then they begin anew.
    pub(crate) fn set_waiting(&mut self, waiting: bool) {
        if core::mem::replace(&mut self.waiting, waiting) == waiting {
            return;
        }
        for request in self.requests.values_mut() {
            (request.sent_at, request.tries) = (None, 0);
        }
    }

    /// What reading this job's program has cost so far.
    pub(crate) fn traffic(&self, job: JobId) -> PageTraffic {
        if self.account.job == job {
            self.account.traffic
        } else {
            PageTraffic::default()
        }
    }

    /// How long an answer may take at present.
    pub(crate) fn timeout(&self) -> Micros {
        self.rtt.timeout()
    }

    pub(crate) fn request(&mut self, now: Instant, spec: PageRequest) -> Result<RequestId, Full> {
        assert!(
            (1..=MAX_REQUEST).contains(&spec.length),
            "a page request asks for 1 to {MAX_REQUEST} bytes"
        );
        if self.requests.len() >= MAX_REQUESTS {
            return Err(Full);
        }
        // With no memory for the answer the request waits, like one too many.
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(spec.length as usize)
            .map_err(|_| Full)?;
        bytes.resize(spec.length as usize, 0);
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request {
            spec,
            missing: fragment_mask(spec.length),
            available: None,
            bytes,
            attempt: 0,
            tries: 0,
            sent_at: None,
            deadline: now,
        };
        self.requests.insert(id, request);
        Ok(id)
    }

    pub(crate) fn cancel(&mut self, job: JobId) {
        let account = &mut self.account;
        self.requests.retain(|id, request| {
            let stays = request.spec.job != job;
            if !stays {
                // What is on its way still comes.
                account.ended(*id, &request.spec);
            }
            stays
        });
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
    }

    pub(crate) fn in_flight(&self) -> u32 {
        let sent = self
            .requests
            .values()
            .filter(|request| request.sent_at.is_some());
        sent.map(|request| request.missing.count_ones()).sum()
    }

    /// No more fragments are asked for at a time than this, what a program waits for aside.
    pub(crate) fn set_most(&mut self, fragments: u32) {
        self.most = fragments.max(WINDOW_MIN);
    }

    /// The request to send next, if the window has room for it: the one a program waits for, else
    /// the oldest.
    fn next_to_send(&self) -> Option<RequestId> {
        let unsent = self
            .requests
            .iter()
            .filter(|(_, request)| request.sent_at.is_none());
        let (id, request) = unsent.min_by_key(|(id, request)| (!request.spec.demand, **id))?;
        let in_flight = self.in_flight();
        let fits = in_flight + request.missing.count_ones() <= self.window.min(self.most);
        (fits || in_flight == 0 || request.spec.demand).then_some(*id)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting {
            return None;
        }
        if self.next_to_send().is_some() {
            return Some(Instant::ZERO);
        }
        let sent = self
            .requests
            .values()
            .filter(|request| request.sent_at.is_some());
        sent.map(|request| request.deadline).min()
    }

    /// Acts on time-outs and returns the next PAGE_READ to send.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        counters: &mut Counters,
        mut fail: impl FnMut(Event),
    ) -> Option<PageRead> {
        if self.waiting {
            return None;
        }
        let expired = |request: &Request| request.sent_at.is_some() && request.deadline <= now;
        let late: Vec<RequestId> = (self.requests.iter())
            .filter_map(|(id, request)| expired(request).then_some(*id))
            .collect();
        for id in late {
            self.expire(id, counters, &mut fail);
        }
        let id = self.next_to_send()?;
        let timeout = self.rtt.timeout();
        let request = self.requests.get_mut(&id)?;
        counters.retransmitted += u64::from(request.attempt > 0);
        self.account.sent(&request.spec);
        request.attempt = request.attempt.wrapping_add(1);
        request.tries += 1;
        request.sent_at = Some(now);
        let backoff = Backoff::new(timeout, SLOWEST);
        request.deadline = now + backoff.wait_for_answer(request.tries - 1, rng);
        Some(PageRead {
            request: id,
            job: request.spec.job,
            object: request.spec.object,
            attempt: request.attempt,
            offset: request.spec.offset,
            length: request.spec.length,
            fragments: request.missing,
        })
    }

    fn expire(&mut self, id: RequestId, counters: &mut Counters, fail: &mut impl FnMut(Event)) {
        let request = self
            .requests
            .get_mut(&id)
            .expect("the caller took it from the table");
        if request.tries >= MAX_TRIES {
            let job = request.spec.job;
            self.account.ended(id, &request.spec);
            self.requests.remove(&id);
            counters.page_timeouts += 1;
            fail(Event::PageFailed {
                request: id,
                job,
                reason: PageError::TimedOut,
            });
            return;
        }
        request.sent_at = None;
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        self.window = self.threshold;
    }

    /// Takes an answer; gives the event when the request is complete. False when it was of no
    /// use.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        answer: &PageData<'_>,
        done: impl FnOnce(Event),
    ) -> bool {
        let id = answer.request;
        let length = match answer.content {
            Content::Fragment { data, .. } => data.len(),
            Content::Failed(_) => 0,
        };
        let Some(request) = self.requests.get_mut(&id) else {
            if self.account.ended.contains(&id) {
                self.account.received(length);
            }
            return false;
        };
        if request.spec.object == Object::Program && request.spec.job == self.account.job {
            self.account.received(length);
        }
        match answer.content {
            Content::Failed(reason) => {
                let job = request.spec.job;
                self.account.ended(id, &request.spec);
                self.requests.remove(&id);
                done(Event::PageFailed {
                    request: id,
                    job,
                    reason,
                });
                true
            }
            Content::Fragment {
                index,
                available,
                data,
            } => {
                let known = request.available.is_none_or(|known| known == available);
                if !known || available > request.spec.length {
                    return false;
                }
                if let Some(sent_at) = request
                    .sent_at
                    .filter(|_| request.attempt == answer.attempt)
                {
                    self.rtt.sample(now.saturating_since(sent_at));
                }
                if request.missing & (1 << index) == 0 {
                    return false;
                }
                request.take(now, index, available, data, &self.rtt);
                let sent_at = request.sent_at;
                self.put_off(now, id, sent_at);
                let request = self.requests.get(&id).expect("it was found above");
                if request.missing == 0 {
                    let request = self.requests.remove(&id).expect("it was found above");
                    self.account.ended(id, &request.spec);
                    done(request.into_event(id));
                }
                self.grow();
                true
            }
        }
    }

    /// Answers come in the order of the requests: as long as one arrives, those to requests sent
    /// later cannot be late, however long a slow link takes for all of them.
    fn put_off(&mut self, now: Instant, id: RequestId, sent_at: Option<Instant>) {
        let Some(sent_at) = sent_at else {
            return;
        };
        let earliest = now + self.rtt.timeout();
        for (other, request) in &mut self.requests {
            if *other != id && request.sent_at.is_some_and(|at| at >= sent_at) {
                request.deadline = request.deadline.max(earliest);
            }
        }
    }

    /// A fragment arrived: the network can carry more.
    fn grow(&mut self) {
        if self.window < self.threshold {
            self.window += 1;
        } else {
            self.credit += 1;
            if self.credit >= self.window {
                self.credit = 0;
                self.window += 1;
            }
        }
        self.window = self.window.min(WINDOW_MAX);
    }
}

impl Request {
    fn take(&mut self, now: Instant, index: u8, available: u32, data: &[u8], rtt: &RttEstimator) {
        if self.available.is_none() {
            self.available = Some(available);
            self.bytes.truncate(available as usize);
            // What lies beyond the end of the object is not missing.
            self.missing &= if available == 0 {
                0
            } else {
                fragment_mask(available)
            };
        }
        let start = usize::from(index) * FRAGMENT;
        self.bytes[start..start + data.len()].copy_from_slice(data);
        self.missing &= !(1u32.checked_shl(index.into()).unwrap_or(0));
        self.tries = 1;
        let rest_is_late = self.missing >> index == 0;
        let wait = if rest_is_late {
            Micros(rtt.smoothed().0 / 2).max(REORDER)
        } else {
            rtt.timeout()
        };
        if self.sent_at.is_some() {
            self.deadline = now + wait;
        }
    }

    fn into_event(self, id: RequestId) -> Event {
        Event::Data {
            request: id,
            job: self.spec.job,
            object: self.spec.object,
            offset: self.spec.offset,
            bytes: self.bytes,
        }
    }
}
