//! Where a node is reached: an address changes only once it has proved that the node is there.
//!
//! Whoever sees a datagram can send it on from another address, and be faster than its sender. What
//! comes from an address that is new is taken, since the node has sealed it, but nothing is sent
//! there but a *challenge*: a number that nobody can guess, which the node puts into its next
//! heartbeat. The address is the node's when that heartbeat comes from there, and nothing has come
//! from the one before for [`super::Timing::reboot_silence`]. A node that is still heard where it
//! was has not moved, whoever repeats what it says.
//!
//! Source: path validation, RFC 9000, sections 8.2 and 9.3. There an answer alone suffices, and
//! section 9.3.3 has the peer ask the old path again; here the old one goes first for as long as it
//! lives, because nodes keep their address for a whole boot.
//!
//! Neighbours: [`super::slot`] has one for each session, which [`super::registry`] asks;
//! [`crate::files::server`] has one for each rank, whose answer is a message of its own.
//!
//! Invariant: there is one challenge at a time, and one a second at most.

use core::net::SocketAddrV4;

use crate::time::{Instant, Micros};
use crate::transport::retry::LOOKS;

/// Time between challenges: a node that computes looks no more often.
const AGAIN: Micros = LOOKS;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    addr: SocketAddrV4,
    /// When something came from there last.
    heard: Instant,
    asked: Option<Asked>,
}

/// An address that was asked for proof.
#[derive(Clone, Copy, Debug)]
struct Asked {
    addr: SocketAddrV4,
    challenge: u64,
    at: Instant,
}

impl Path {
    /// To where the node said HELLO from.
    pub(crate) fn new(now: Instant, addr: SocketAddrV4) -> Self {
        Path {
            addr,
            heard: now,
            asked: None,
        }
    }

    /// Where datagrams go.
    pub(crate) fn addr(&self) -> SocketAddrV4 {
        self.addr
    }

    /// A datagram of the session has come from here, for the first time or again. True: the address
    /// is to be asked for proof ([`Path::ask`]).
    pub(crate) fn came(&mut self, now: Instant, from: SocketAddrV4) -> bool {
        if from == self.addr {
            self.heard = now;
            return false;
        }
        (self.asked).is_none_or(|asked| now.saturating_since(asked.at) >= AGAIN)
    }

    /// An address is sent this challenge.
    pub(crate) fn ask(&mut self, now: Instant, addr: SocketAddrV4, challenge: u64) {
        let at = now;
        self.asked = Some(Asked {
            addr,
            challenge,
            at,
        });
    }

    /// A heartbeat from here has this answer, 0 for none.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        answer: u64,
        silence: Micros,
    ) {
        let is_proved = self
            .asked
            .is_some_and(|asked| answer != 0 && (asked.addr, asked.challenge) == (from, answer));
        if is_proved && now.saturating_since(self.heard) >= silence {
            *self = Path::new(now, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Micros = Micros::from_millis(2_500);

    fn addr(host: u8) -> SocketAddrV4 {
        SocketAddrV4::new([10, 0, 0, host].into(), 7118)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Micros::from_millis(millis)
    }

    #[test]
    fn an_address_is_the_nodes_once_it_has_answered_and_the_other_is_silent() {
        let mut path = Path::new(at(0), addr(1));
        assert!(!path.came(at(10), addr(1)));
        assert!(path.came(at(2_000), addr(2)));
        path.ask(at(2_000), addr(2), 77);
        assert!(!path.came(at(2_900), addr(2)), "a second later at most");
        // The wrong answer, the right one from elsewhere, none.
        for (from, answer) in [(2, 78), (3, 77), (2, 0)] {
            path.answered(at(2_900), addr(from), answer, SILENCE);
            assert_eq!(path.addr(), addr(1));
        }
        path.answered(at(2_900), addr(2), 77, SILENCE);
        assert_eq!(path.addr(), addr(2));
    }

    #[test]
    fn who_is_heard_where_it_was_has_not_moved() {
        let mut path = Path::new(at(0), addr(1));
        for second in 1..60 {
            // Somebody is always first with a copy, and has the challenge answered.
            let now = at(second * 1_000);
            if path.came(now, addr(2)) {
                path.ask(now, addr(2), second);
            }
            path.came(now, addr(1));
            path.answered(at(second * 1_000 + 1), addr(2), second, SILENCE);
            assert_eq!(path.addr(), addr(1));
        }
    }
}
