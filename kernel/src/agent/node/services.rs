//! What the node does for the processes that run on it.
//!
//! Neighbours: `process` asks through [`Ranks`] and [`NodeServices`]; [`super`] holds what it asks
//! about.
//!
//! Invariant: every answer is about the job whose mailbox is open, and about the rank that
//! [`Ranks::rank`] was given last.

use kernel_core::addr::{PhysAddr, VirtAddr};
use kernel_core::files::temporary::Temporary;
use kernel_core::objects::{ObjectId, Objects};
use kernel_core::retention::WarmTable;
use netstack::ids::{CallId, LocalRank, Rank, RequestId};
use netstack::io::{IoOp, SubmitError};
use netstack::node::{Endpoint, Full};
use netstack::page::{Object, PageRequest, PageTraffic};
use netstack::time::Instant;

use super::{Mailbox, Node, TICK, TICK_SLACK};
use crate::agent::mailbox::SIGKILL;
use crate::agent::ranks::Seat;
use crate::exchange::{Exchange, PeerLookup};
use crate::mm::Hardware;
use crate::process::services::{
    CastPage, IoCompletion, NodeServices, PageCompletion, Ranks, Running,
};
use crate::shipping::Shipping;
use crate::{arch, mm, time};

impl Ranks for Node {
    fn rank(&mut self, rank: LocalRank) -> &mut dyn NodeServices {
        self.present = rank;
        self
    }

    fn is_quiet(&self) -> bool {
        !self.casts.is_active() && self.seats.are_quiet()
    }

    fn present(&self) -> &dyn NodeServices {
        self
    }
}

impl Node {
    /// What the node has of the rank that asks.
    fn seat(&mut self) -> &mut Seat {
        self.seats.of_mut(self.present)
    }
}

impl NodeServices for Node {
    fn name(&self) -> &str {
        &self.name
    }

    fn now(&self) -> Instant {
        time::now()
    }

    fn poll(&mut self) {
        let (now, due) = (time::now(), self.tick());
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.hasten_heartbeat(now, TICK_SLACK);
        }
        self.pump();
        if now >= due {
            self.last_tick = now;
        }
        self.seats.set_polled();
    }

    fn send_due(&mut self) {
        Node::send_due(self);
    }

    fn take_polled(&mut self) -> bool {
        core::mem::take(&mut self.seat().polled)
    }

    fn begin_sleep(&mut self, deadline: Instant) -> Option<Instant> {
        self.begin_wait(deadline)
    }

    fn end_sleep(&mut self) {
        self.end_wait();
    }

    fn tick(&self) -> Instant {
        let earliest = self.last_tick + TICK;
        let heartbeat = self
            .endpoint
            .as_ref()
            .and_then(Endpoint::heartbeat_deadline);
        let own = heartbeat.map_or(earliest, |due| due.max(earliest));
        // The heartbeat goes with the overlay's tick, so that the two cost one interrupt.
        let tick = self.overlay.slow_tick(earliest - TICK_SLACK, TICK);
        let tick = tick.filter(|at| *at <= own + TICK).unwrap_or(own);
        self.kill_at().map_or(tick, |at| at.min(tick))
    }

    fn monitor_deadline(&self) -> Option<Instant> {
        self.overlay.fast_tick(time::now(), TICK)
    }

    fn be_quiet(&mut self) {
        self.overlay.set_quiet();
    }

    fn cancelled(&self) -> Option<u8> {
        self.mailbox.as_ref()?.cancelled(time::now())
    }

    fn is_by_cancel(&self, signal: u8) -> bool {
        let cancel = self.mailbox.as_ref().and_then(Mailbox::cancel);
        cancel.is_some_and(|cancel| [cancel.signal, SIGKILL].contains(&signal))
    }

    fn take_signal(&mut self) -> Option<u8> {
        self.mailbox.as_mut()?.take_signal(self.present)
    }

    fn request_pages(
        &mut self,
        object: Object,
        offset: u64,
        length: u32,
        demand: bool,
    ) -> Result<RequestId, Full> {
        let request = PageRequest {
            job: self.open().job(),
            object,
            offset,
            length,
            demand,
        };
        let number = self.endpoint().request_pages(time::now(), request)?;
        if let Some(mailbox) = &mut self.mailbox {
            let pages = (object == Object::Program).then(|| offset..offset + u64::from(length));
            mailbox.note_request(self.present, number, pages.unwrap_or_default());
        }
        Ok(number)
    }

    fn take_pages(&mut self) -> Option<PageCompletion> {
        self.mailbox.as_mut()?.take_pages(self.present)
    }

    fn forget_pages(&mut self) {
        let job = self.open().job();
        let mailbox = self.mailbox.as_mut();
        // What other ranks wait for goes on, and the answers that this one does not want are
        // dropped.
        if mailbox.is_none_or(|mailbox| mailbox.forget_pages(self.present)) {
            self.endpoint().cancel_requests(job);
        }
    }

    fn page_traffic(&self) -> PageTraffic {
        let job = self.open().job();
        let endpoint = self.endpoint.as_ref();
        endpoint.map_or(PageTraffic::default(), |endpoint| {
            endpoint.page_traffic(job)
        })
    }

    fn warm(&mut self) -> &mut WarmTable {
        &mut self.warm
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    fn keep_room(&mut self, least: u64) {
        let is_short = || mm::frames().available() < least;
        if !is_short() {
            return;
        }
        let machine = &mut Hardware::new();
        self.objects.keep_room(machine, least);
        self.warm.keep_room(machine, least);
        if is_short() {
            self.casts.let_go_of_images();
            self.objects.keep_room(machine, least);
        }
    }

    fn set_running(&mut self, running: Option<Running>) {
        self.seat().running = running;
    }

    fn cast_page(&self, page: u64) -> CastPage {
        let id = ObjectId(self.open().program().0);
        self.casts.page(&id, page, &self.objects)
    }

    fn want_page(&mut self, page: u64) {
        let id = ObjectId(self.open().program().0);
        self.casts.want(time::now(), &id, page);
    }

    fn read_page(&self, id: &ObjectId, page: u64) -> CastPage {
        self.casts.page(id, page, &self.objects)
    }

    fn want_read(&mut self, id: &ObjectId, page: u64) {
        self.casts.want(time::now(), id, page);
    }

    fn cast_progress(&self) -> u64 {
        self.casts.progress()
    }

    fn page_beside(&self, page: VirtAddr) -> Option<PhysAddr> {
        self.seats.page_beside(self.present, page)
    }

    fn is_asked_beside(&self, offset: u64) -> bool {
        self.open().is_asked_beside(self.present, offset)
    }

    fn peer(&self, rank: Rank) -> PeerLookup {
        let tables = self.casts.tables();
        tables.entry(self.open().job(), rank, &self.objects)
    }

    fn shipping(&mut self) -> Option<&mut Shipping> {
        self.seat().shipping.as_mut()
    }

    fn temporary(&mut self) -> &mut Temporary {
        &mut self.temporary
    }

    fn exchange(&mut self) -> &mut Exchange {
        &mut self.seat().exchange
    }

    fn peers_deadline(&self) -> Option<Instant> {
        let due = || {
            self.peers_timeout(time::now())
                .unwrap_or(Instant::FAR_FUTURE)
        };
        (self.casts.is_active() || self.seats.is_active()).then(due)
    }

    fn listen(&mut self, on: bool) -> bool {
        arch::interrupts::set_for_cast(on);
        self.stack.listen(on)
    }

    fn dropped(&self) -> bool {
        self.open().dropped()
    }

    fn io_submit(&mut self, op: IoOp) -> Result<CallId, SubmitError> {
        let job = self.open().job();
        let rank = self.present;
        self.endpoint().io_submit(time::now(), job, rank, op)
    }

    fn io_pending(&self) -> usize {
        let job = self.open().job();
        self.endpoint
            .as_ref()
            .map_or(0, |endpoint| endpoint.io_pending(job, self.present))
    }

    fn take_io(&mut self) -> Option<IoCompletion> {
        self.mailbox.as_mut()?.take_io(self.present)
    }
}
