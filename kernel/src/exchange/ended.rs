//! Jobs whose program has ended here: their other ranks are answered for what was done.
//!
//! Neighbour: [`super::Exchange`] keeps the last of them.
//!
//! Invariant: the memory of a program that has ended is not touched.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use netstack::MAX_DATAGRAM;
use netstack::exchange::Endpoint;
use netstack::ids::JobId;
use netstack::time::Instant;

use super::UNROUTED_MAX;
use super::memory::ProgramMemory;
use super::routes::{Route, Routes};
use crate::net::peer::PeerDatagram;

/// Answers for jobs that have ended which wait for the card; more are not worth it, since whoever
/// asks asks again.
const ANSWERS_MAX: usize = 16;
/// Bytes of an answer to an address that nothing proves, to one of the question.
const UNPROVEN_TIMES: usize = 3;

/// A job whose program has ended here.
#[derive(Debug)]
pub(super) struct Ended {
    pub job: JobId,
    pub endpoint: Endpoint,
    /// Those that the program's datagrams went by.
    pub routes: Routes,
}

/// A datagram to be sent, and where to.
#[derive(Debug)]
pub(super) struct Answer {
    pub route: Route,
    pub datagram: Vec<u8>,
}

impl Ended {
    /// Takes a datagram of a rank that was late, and adds what there is to say to it. False: it is
    /// not of this job.
    pub fn answer(
        &mut self,
        now: Instant,
        arrived: &PeerDatagram<'_>,
        answers: &mut VecDeque<Answer>,
    ) -> bool {
        let (endpoint, mut memory) = (&mut self.endpoint, ProgramMemory(None));
        let Some(sender) = endpoint.handle_datagram(now, arrived.bytes, &mut memory) else {
            return false;
        };
        let back = Route {
            address: arrived.from,
            mac: arrived.mac,
        };
        let mut unproven = UNPROVEN_TIMES * arrived.bytes.len();
        while answers.len() < ANSWERS_MAX {
            let mut datagram = Vec::new();
            if datagram.try_reserve_exact(MAX_DATAGRAM).is_err() || answers.try_reserve(1).is_err()
            {
                break;
            }
            datagram.resize(MAX_DATAGRAM, 0);
            let Some((to, length)) = endpoint.poll_transmit(now, &mut datagram, &mut memory) else {
                break;
            };
            // A rank that is not known any more is answered where the question came from, which
            // nothing proves: with no more than three times its bytes (RFC 9000, section 8).
            let known = self.routes.find(to, || None);
            let is_allowed = to == sender && length <= unproven;
            if let Some(route) = known.or(is_allowed.then_some(back)) {
                if known.is_none() {
                    unproven -= length;
                }
                datagram.truncate(length);
                answers.push_back(Answer { route, datagram });
            }
        }
        true
    }

    /// The next datagram by itself: a message that is not acknowledged yet.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(Route, usize)> {
        for _ in 0..UNROUTED_MAX {
            let mut memory = ProgramMemory(None);
            let (to, length) = self.endpoint.poll_transmit(now, buffer, &mut memory)?;
            if let Some(route) = self.routes.find(to, || None) {
                return Some((route, length));
            }
        }
        None
    }
}
