//! The node as the core has it that takes a rank apart: with the lock, which is open while it
//! waits.
//!
//! Key type: [`Undertaker`]. Neighbours: [`super::super::ending`] and what it calls are written as
//! if they had the node to themselves.
//!
//! Invariant: between two calls of [`NodeServices::poll`] or [`NodeServices::wait`] nobody else has
//! the node.

use kernel_core::addr::{PhysAddr, VirtAddr};
use kernel_core::files::temporary::Temporary;
use kernel_core::objects::{ObjectId, Objects};
use kernel_core::retention::WarmTable;
use kernel_core::threads::Core;
use netstack::ids::{CallId, LocalRank, Rank, RequestId};
use netstack::io::{IoOp, SubmitError};
use netstack::node::Full;
use netstack::page::{Object, PageTraffic};
use netstack::time::Instant;

use super::{Held, Lock, release, sleep};
use crate::exchange::{Exchange, PeerLookup};
use crate::process::services::{CastPage, IoCompletion, NodeServices, PageCompletion, Running};
use crate::shipping::Shipping;

/// The node for the end of one rank.
pub(super) struct Undertaker<'l, 'a> {
    core: Core,
    rank: LocalRank,
    lock: &'l Lock<'a>,
    /// `None` only within [`Self::give_way`].
    held: Option<Held<'l, 'a>>,
}

impl<'l, 'a> Undertaker<'l, 'a> {
    pub(super) fn new(core: Core, rank: LocalRank, lock: &'l Lock<'a>, held: Held<'l, 'a>) -> Self {
        Self {
            core,
            rank,
            lock,
            held: Some(held),
        }
    }

    pub(super) fn into_held(self) -> Held<'l, 'a> {
        self.held.expect("the lock is held between calls")
    }

    fn held(&mut self) -> &mut Held<'l, 'a> {
        self.held.as_mut().expect("the lock is held between calls")
    }

    fn node(&mut self) -> &mut dyn NodeServices {
        let rank = self.rank;
        self.held().node.rank(rank)
    }

    /// The same for a look: it was selected when the lock was taken.
    fn present(&self) -> &dyn NodeServices {
        let held = self.held.as_ref();
        held.expect("the lock is held between calls").node.present()
    }

    /// Others have the lock meanwhile.
    fn give_way(&mut self, how: impl FnOnce(Held<'l, 'a>) -> Held<'l, 'a>) {
        let held = self.held.take().expect("the lock is held between calls");
        self.held = Some(how(held));
    }
}

impl NodeServices for Undertaker<'_, '_> {
    fn name(&self) -> &str {
        self.present().name()
    }

    fn now(&self) -> Instant {
        self.present().now()
    }

    fn poll(&mut self) {
        let (core, rank, lock) = (self.core, self.rank, self.lock);
        self.node().poll();
        if self.held().slots.len() > 1 {
            self.held().settle_polled(rank);
            self.give_way(|held| {
                release(core, held);
                lock.lock()
            });
            self.node();
        }
    }

    fn send_due(&mut self) {
        self.node().send_due();
    }

    fn take_polled(&mut self) -> bool {
        self.node().take_polled()
    }

    fn wait(&mut self, deadline: Instant) {
        let (core, rank, lock) = (self.core, self.rank, self.lock);
        self.held().send_due(core, rank);
        self.held().slots[rank.index()].waits = Some(deadline);
        self.give_way(|held| sleep(core, rank, lock, held, deadline));
        self.held().slots[rank.index()].waits = None;
        self.node();
    }

    fn begin_sleep(&mut self, deadline: Instant) -> Option<Instant> {
        self.node().begin_sleep(deadline)
    }

    fn end_sleep(&mut self) {
        self.node().end_sleep();
    }

    fn tick(&self) -> Instant {
        self.present().tick()
    }

    fn monitor_deadline(&self) -> Option<Instant> {
        self.present().monitor_deadline()
    }

    fn be_quiet(&mut self) {
        self.node().be_quiet();
    }

    fn cancelled(&self) -> Option<u8> {
        self.present().cancelled()
    }

    fn is_by_cancel(&self, signal: u8) -> bool {
        self.present().is_by_cancel(signal)
    }

    fn take_signal(&mut self) -> Option<u8> {
        self.node().take_signal()
    }

    fn request_pages(
        &mut self,
        object: Object,
        offset: u64,
        length: u32,
        demand: bool,
    ) -> Result<RequestId, Full> {
        self.node().request_pages(object, offset, length, demand)
    }

    fn take_pages(&mut self) -> Option<PageCompletion> {
        self.node().take_pages()
    }

    fn forget_pages(&mut self) {
        self.node().forget_pages();
    }

    fn page_traffic(&self) -> PageTraffic {
        self.present().page_traffic()
    }

    fn warm(&mut self) -> &mut WarmTable {
        self.node().warm()
    }

    fn objects(&mut self) -> &mut Objects {
        self.node().objects()
    }

    fn keep_room(&mut self, least: u64) {
        self.node().keep_room(least);
    }

    fn set_running(&mut self, running: Option<Running>) {
        self.node().set_running(running);
    }

    fn cast_page(&self, page: u64) -> CastPage {
        self.present().cast_page(page)
    }

    fn page_beside(&self, page: VirtAddr) -> Option<PhysAddr> {
        self.present().page_beside(page)
    }

    fn is_asked_beside(&self, offset: u64) -> bool {
        self.present().is_asked_beside(offset)
    }

    fn read_page(&self, id: &ObjectId, page: u64) -> CastPage {
        self.present().read_page(id, page)
    }

    fn want_read(&mut self, id: &ObjectId, page: u64) {
        self.node().want_read(id, page);
    }

    fn cast_progress(&self) -> u64 {
        self.present().cast_progress()
    }

    fn want_page(&mut self, page: u64) {
        self.node().want_page(page);
    }

    fn peer(&self, rank: Rank) -> PeerLookup {
        self.present().peer(rank)
    }

    fn shipping(&mut self) -> Option<&mut Shipping> {
        self.node().shipping()
    }

    fn temporary(&mut self) -> &mut Temporary {
        self.node().temporary()
    }

    fn exchange(&mut self) -> &mut Exchange {
        self.node().exchange()
    }

    fn peers_deadline(&self) -> Option<Instant> {
        self.present().peers_deadline()
    }

    fn listen(&mut self, on: bool) -> bool {
        self.node().listen(on)
    }

    fn dropped(&self) -> bool {
        self.present().dropped()
    }

    fn io_submit(&mut self, op: IoOp) -> Result<CallId, SubmitError> {
        self.node().io_submit(op)
    }

    fn io_pending(&self) -> usize {
        self.present().io_pending()
    }

    fn take_io(&mut self) -> Option<IoCompletion> {
        self.node().take_io()
    }
}
