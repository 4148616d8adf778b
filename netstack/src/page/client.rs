//! The node's side of demand paging: outstanding requests, each with a bitmap of the fragments
//! it still lacks.
//!
//! An adapter over [`crate::transport::pull`]: fragments are asked for under its window, those of a
//! request that a program waits for before those that read ahead.
//!
//! Invariant: a request ends: with its data, or after [`SILENCE`] of the control node; while there
//! is none to ask it waits, for as long as its node keeps the job.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::counters::Counters;
use crate::ids::{JobId, RequestId};
use crate::join::Timing;
use crate::node::{Event, Full};
use crate::page::{
    FRAGMENT, FRAMING, MAX_FRAGMENTS, MAX_REQUEST, MAX_REQUESTS, Object, PageError, PageRequest,
    PageTraffic, fragment_mask,
};
use crate::time::{Instant, Micros};
use crate::transport::pull::{Arrival, Puller};
use crate::wire::datagram::OVERHEAD;
use crate::wire::page::{Content, PageData, PageRead};

/// Requests fail when nothing of any comes for so long: twice the time after which a node takes a
/// silent control node for lost, and has its requests wait.
const SILENCE: Micros = Timing::DEFAULT.lost_after.saturating_mul(2);
/// Largest window: all requests at once.
pub(crate) const WINDOW_MAX: u32 = (MAX_FRAGMENTS * MAX_REQUESTS) as u32;
/// Requests of the program that have ended and are still counted for, because what was sent twice
/// may arrive after its request is complete: four full sets. What comes later still is not counted.
const ENDED: usize = 4 * MAX_REQUESTS;

/// Whether nobody waits for it, and its number: the order in which requests are asked for.
type Key = (bool, RequestId);

#[derive(Debug)]
struct Request {
    spec: PageRequest,
    missing: u32,
    /// Those that were asked for.
    asked: u32,
    /// Known from the first fragment on.
    available: Option<u32>,
    bytes: Vec<u8>,
}

impl Request {
    fn key(&self, id: RequestId) -> Key {
        (!self.spec.demand, id)
    }
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
    puller: Puller<Key>,
    /// What the window is at most.
    most: u32,
    account: Account,
    /// When a fragment came last, or the first was asked for; None: none was.
    heard: Option<Instant>,
    /// Nobody is there to answer: nothing is sent, and nothing fails.
    waiting: bool,
}

impl PageClient {
    pub(crate) fn new() -> Self {
        PageClient {
            requests: BTreeMap::new(),
            next: 1,
            puller: Puller::new(WINDOW_MAX, Arrival::OfRequest),
            most: WINDOW_MAX,
            account: Account::default(),
            heard: None,
            waiting: false,
        }
    }

    /// Has requests wait while there is no control node that knows their job; then they begin anew.
    pub(crate) fn set_waiting(&mut self, waiting: bool) {
        if core::mem::replace(&mut self.waiting, waiting) == waiting {
            return;
        }
        self.restart();
        for (id, request) in &self.requests {
            self.puller.want(request.key(*id), request.missing.into());
        }
    }

    /// Nothing is wanted of anybody.
    fn restart(&mut self) {
        self.puller = Puller::new(self.most, Arrival::OfRequest);
        self.heard = None;
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
        self.puller.timeout()
    }

    pub(crate) fn request(&mut self, spec: PageRequest) -> Result<RequestId, Full> {
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
            asked: 0,
            available: None,
            bytes,
        };
        self.puller.want(request.key(id), request.missing.into());
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
                self.puller.forget(request.key(*id));
            }
            stays
        });
        if self.requests.is_empty() {
            self.heard = None;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.restart();
    }

    /// Fragments that were asked for and have not come.
    pub(crate) fn in_flight(&self) -> u32 {
        self.puller.under_way()
    }

    /// No more fragments are asked for at a time than this.
    pub(crate) fn set_most(&mut self, fragments: u32) {
        self.most = fragments;
        self.puller.set_most(fragments);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting {
            return None;
        }
        let silent = self.heard.map(|heard| heard + SILENCE);
        silent.into_iter().chain(self.puller.poll_timeout()).min()
    }

    /// Acts on time-outs and returns the next PAGE_READ to send.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        counters: &mut Counters,
        mut fail: impl FnMut(Event),
    ) -> Option<PageRead> {
        if self.waiting {
            return None;
        }
        if self.heard.is_some_and(|heard| now >= heard + SILENCE) {
            while let Some((&request, _)) = self.requests.first_key_value()
                && let Some(Request { spec, .. }) = self.end(request)
            {
                counters.page_timeouts += 1;
                fail(Event::PageFailed {
                    request,
                    job: spec.job,
                    reason: PageError::TimedOut,
                });
            }
        }
        let ((_, id), fragments) = self.puller.poll(now)?;
        let fragments = fragments as u32;
        let request = self.requests.get_mut(&id)?;
        counters.retransmitted += u64::from(request.asked & fragments != 0);
        request.asked |= fragments;
        self.heard.get_or_insert(now);
        self.account.sent(&request.spec);
        Some(PageRead {
            request: id,
            job: request.spec.job,
            object: request.spec.object,
            offset: request.spec.offset,
            length: request.spec.length,
            fragments,
        })
    }

    /// A request is over.
    fn end(&mut self, id: RequestId) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        self.puller.forget(request.key(id));
        self.account.ended(id, &request.spec);
        if self.requests.is_empty() {
            self.heard = None;
        }
        Some(request)
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
                self.end(id);
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
                let key = request.key(id);
                if request.available.is_none() {
                    let beyond = request.end_at(available);
                    self.puller.forget_fragments(key, beyond.into());
                }
                self.puller.arrived(now, key, index);
                let is_new = request.take(index, data);
                if is_new {
                    self.heard = Some(now);
                }
                if request.missing == 0
                    && let Some(request) = self.end(id)
                {
                    done(request.into_event(id));
                }
                is_new
            }
        }
    }
}

impl Request {
    /// The object goes so far. Returns the fragments that are not missing because they lie beyond
    /// its end.
    fn end_at(&mut self, available: u32) -> u32 {
        self.available = Some(available);
        self.bytes.truncate(available as usize);
        let there = match available {
            0 => 0,
            available => fragment_mask(available),
        };
        let beyond = self.missing & !there;
        self.missing &= there;
        beyond
    }

    /// Puts a fragment in its place. False when it was there already.
    fn take(&mut self, index: u8, data: &[u8]) -> bool {
        let bit = 1u32.checked_shl(index.into()).unwrap_or(0);
        let is_missing = self.missing & bit != 0;
        if is_missing {
            let start = usize::from(index) * FRAGMENT;
            self.bytes[start..start + data.len()].copy_from_slice(data);
            self.missing &= !bit;
        }
        is_missing
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

#[cfg(test)]
mod tests;
