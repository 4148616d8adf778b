//! A communication process: a hub below, an uplink above, and what goes from one to the other.
//!
//! Neighbours: [`super::node`] has one for each role and gives it its messages.
//!
//! Invariant: what the hub passes on goes to the uplink in the same turn, so that nothing is held
//! twice.

use alloc::vec::Vec;

use super::MAX_CHILDREN;
use super::hub::Hub;
use super::message::{BuildEntry, Candidate, CensusEntry, Message, Process, Standing};
use super::metric::OverlayMetric;
use super::uplink::{Io, Told, Uplink};
use crate::broadcast::Peer;
use crate::ids::BootEpoch;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Cp {
    pub hub: Hub,
    pub uplink: Uplink,
    /// What it builds as soon as it has a parent, and with it the overlay's time.
    pub below: Vec<BuildEntry>,
}

impl Cp {
    fn standing(&self) -> Standing {
        let below = self.hub.below();
        Standing {
            room: self.hub.room(),
            back_ends: below.back_ends,
            quiet_below: below.quiet,
            cps: below.cps.saturating_add(1),
            dropped: self.dropped(),
            lag_us: self.hub.lag_us,
            ..Standing::default()
        }
    }

    /// Samples given up.
    pub fn dropped(&self) -> u64 {
        self.hub.dropped + self.uplink.dropped
    }

    /// Bytes that are held, as counted against the bounds of [`super::room`].
    pub fn bytes(&self) -> usize {
        let below = self.below.capacity() * size_of::<BuildEntry>();
        self.hub.bytes() + self.uplink.bytes() + below
    }

    /// It ends: what it holds is given up and counted. Gives what the front end has not heard for
    /// certain.
    pub fn end(&mut self, io: &mut Io<'_>) -> Vec<CensusEntry> {
        self.hub.end();
        let known = self.uplink.end(io);
        // The newest word about a link is the one that counts.
        let fresh = self.hub.entries.drain(..);
        known.into_values().chain(fresh).collect()
    }

    /// Gives what the hub has to the uplink, which acts.
    pub fn pass_up(&mut self, io: &mut Io<'_>) {
        while let Some(flushed) = self.hub.next_flushed() {
            flushed.encode(&mut |section| self.uplink.push(section));
        }
        while let Some(entry) = self.hub.entries.pop_front() {
            self.uplink.push_census(io, entry);
        }
        let standing = self.standing();
        self.uplink.tick(io, standing);
    }

    /// Takes a message; gives the parent when it was found just now.
    pub fn deliver(
        &mut self,
        io: &mut Io<'_>,
        from: (Process, BootEpoch, Peer),
        message: Message,
    ) -> Option<Process> {
        let (process, boot, peer) = from;
        let clock = self.uplink.clock.clone();
        match message {
            Message::Attach(attach) => {
                let open = self.uplink.is_open();
                self.hub.attach(io, from, attach, &clock, open);
            }
            Message::Report { standing, sections } => {
                self.hub.report(io, from, (standing, &sections), &clock);
            }
            Message::BuildAck { next, refused } => self.hub.build_ack(io, process, next, refused),
            Message::StreamAck { id, version } => self.hub.stream_ack(io, process, id, version),
            Message::Taken { standing } => self.hub.taken(process, boot, standing),
            Message::Census { number, entries } => {
                if self.hub.has_child(process) {
                    entries
                        .into_iter()
                        .for_each(|entry| self.uplink.push_census(io, entry));
                    let me = self.hub.me();
                    io.send(me, (process, peer), Message::CensusAck { number });
                }
            }
            Message::CensusAck { number } if self.uplink.is_linked(process) => {
                self.uplink.census_ack(number)
            }
            Message::AttachAck(ack) => {
                if let Told::Attached = self.uplink.attach_ack(io, process, ack) {
                    self.renew_kin(&[]);
                    self.hub.shift = self.uplink.shift_below();
                    let own = Candidate {
                        process: self.hub.me(),
                        peer: io.me,
                        height: self.hub.height(),
                        room: MAX_CHILDREN as u16,
                    };
                    self.hub.build(io, own, core::mem::take(&mut self.below));
                    return Some(process);
                }
            }
            Message::Beat(beat) => {
                if let Told::Siblings(siblings) = self.uplink.beat(io, process, beat)
                    && !siblings.is_empty()
                {
                    self.renew_kin(&siblings);
                }
            }
            Message::Stream { id, version, spec } if self.uplink.is_linked(process) => {
                if version == 0 {
                    self.hub.forget_stream(id);
                } else {
                    self.hub.set_stream(io.now, id, version, spec);
                    let me = self.hub.me();
                    io.send(me, (process, peer), Message::StreamAck { id, version });
                }
            }
            Message::TakeDown if self.uplink.is_linked(process) => {
                self.take_down(io, (process, peer))
            }
            Message::Detach { link } => self.uplink.detached(io, process, link),
            _ => io.count(OverlayMetric::Misdirected, 1),
        }
        None
    }

    /// Where the children go when this process is lost: its siblings, and its parent.
    fn renew_kin(&mut self, siblings: &[Candidate]) {
        if let Some(parent) = self.uplink.parent() {
            let most = super::message::MAX_CANDIDATES - 1;
            let mut kin: Vec<Candidate> = siblings.iter().take(most).copied().collect();
            kin.push(parent);
            self.hub.kin = kin;
        }
    }

    /// The parent says that the tree is taken down, for the first time or again.
    fn take_down(&mut self, io: &mut Io<'_>, parent: (Process, Peer)) {
        self.hub.take_down(io);
        self.pass_up(io);
        let standing = self.standing();
        let below_down = self
            .hub
            .leaving
            .as_ref()
            .is_some_and(|leaving| leaving.below_down);
        if below_down
            && self.uplink.is_drained()
            && let Some(leaving) = &mut self.hub.leaving
            && let Some(standing) = self.uplink.last_standing(io.now, standing)
        {
            leaving.answered(io.now);
            io.send(self.hub.me(), parent, Message::Taken { standing });
        }
    }
}
