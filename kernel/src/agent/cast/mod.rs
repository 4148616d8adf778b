//! This node's part in broadcasts: it receives, keeps, and passes on.
//!
//! Key type: [`Casts`], the engine's member with what it needs of the node. It stands beside the
//! protocol's endpoint and shares nothing with it but the card: datagrams of peers' kinds from any
//! address go to it, and its own go straight to the card.
//!
//! | module | purpose |
//! |---|---|
//! | [`store`] | where blocks are: the store of objects, pages of programs |
//! | [`table`] | the connection tables of jobs |
//! | [`reads`] | files of I/O services that ranks of jobs read |
//!
//! Neighbours: `agent::node` moves datagrams and asks for deadlines, `netstack::broadcast` decides,
//! `process` takes pages of a program's image from the store.
//!
//! Invariant: what a cast leaves unfinished is given back when it ends, at the latest
//! [`REANNOUNCED_WITHIN`] after the control node that announced it was replaced; without a cast
//! under way there is no deadline, and the node sleeps.

mod reads;
pub mod store;
pub mod table;

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use kernel_core::addr::PAGE_SIZE;
use kernel_core::objects::{self, InUse, Kept, ObjectId, Objects, Spec};
use netstack::broadcast::{
    FRAGMENT, FailReason, MEMBER_BYTES, MEMBER_CASTS, Member, MemberConfig, MemberEvent, Object,
    Part, Purpose, RefuseReason, SPARE_CREDIT, Want,
};
use netstack::ids::{CastId, JobId};
use netstack::page::MAX_FRAGMENTS;
use netstack::time::{Instant, Micros};
use netstack::vitals::CastVitals;
use netstack::wire::key::Key;

use crate::drivers::nic::RECEIVE_ENTRIES;
use crate::mm::Hardware;
use crate::mm::{self, DirectMap};
use crate::net;
use crate::process::services::CastPage;
use reads::Reads;
use store::{CastStore, Places, part_of};
use table::Tables;

/// Reassembly buffers of a cast, one block each; their memory is 1 MiB with the largest blocks.
pub const BUFFERS: u32 = 16;
/// Fragments that may arrive at any time, of all casts together: all buffers of one cast with
/// blocks of 8 KiB. As many as [`SPARE_CREDIT`] may come beside them.
pub const CREDIT: u32 = BUFFERS * (8192_usize.div_ceil(FRAGMENT)) as u32;
/// Fragments of pages that may be on their way while casts lack something. What was asked for
/// before may be more: so much less is asked for of casts.
pub const PAGES_BESIDE: u32 = 3 * MAX_FRAGMENTS as u32;
/// All these together: they fit the card's ring.
const ARRIVING_MAX: u32 = CREDIT + SPARE_CREDIT + PAGES_BESIDE;
const _: () = assert!(ARRIVING_MAX as usize + 16 <= RECEIVE_ENTRIES);
/// Room of the kernel's heap that a cast's reassembly buffers leave: the addresses of some ten
/// thousand members, and what the node's own buffers take.
const HEAP_KEPT_BYTES: u64 = 1024 * 1024;
/// The part of the heap's room that the members of all casts may take, addresses and reports,
/// whatever others say of them.
const HEAP_PART_OF_MEMBERS: u64 = 2;
/// How long what is unfinished is kept for a new run of the control node to announce it again.
const REANNOUNCED_WITHIN: Micros = Micros::from_secs(60);

/// Members of casts that this node's heap has room for beside what it holds now: some forty
/// thousand on a node of 48 MiB. Jobs take room and give it back.
fn members_room() -> u32 {
    let room = mm::heap_room_bytes() / HEAP_PART_OF_MEMBERS / MEMBER_BYTES;
    u32::try_from(room).unwrap_or(u32::MAX)
}

/// A cast that this node has a part in.
#[derive(Debug)]
pub struct Entry {
    cast: CastId,
    id: ObjectId,
    block_log2: u8,
    kind: Kind,
    /// Everything of it is here, or as much as this node wants.
    complete: bool,
    /// Keeps the object while it arrives.
    held: Option<InUse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Program,
    File,
    /// Of a job, and bytes a second of its nodes' links.
    Table(JobId, u64),
    /// A file of an I/O service, for ranks of a job.
    Read(JobId),
}

impl Kind {
    /// Whether it goes when a running program needs the memory.
    const fn gives_way(self) -> bool {
        matches!(self, Self::Program | Self::Read(_))
    }
}

/// Casts on this node.
#[derive(Debug, Default)]
pub struct Casts {
    member: Option<Member>,
    key: Option<Key>,
    entries: Vec<Entry>,
    tables: Tables,
    reads: Reads,
    /// Unfinished objects of an earlier run of the control node, and when they go.
    lapsed: Vec<(ObjectId, Instant)>,
    /// Data blocks stored since the start.
    stored: u64,
    /// A block was stored or a cast ended.
    news: bool,
    /// Counts of members of earlier runs of the control node, and blocks that these asked for
    /// again.
    earlier: CastVitals,
    earlier_repeated: u64,
}

impl Casts {
    /// The node has joined a run of the control node, whose peers share `config.key`. Casts of an
    /// earlier run are over; what came of them stays a while.
    pub fn join(&mut self, config: MemberConfig, now: Instant, objects: &mut Objects) {
        let key = config.key;
        match &self.member {
            Some(_) if self.key.as_ref() == Some(&key) => return,
            Some(_) => {
                self.earlier = self.vitals();
                self.earlier_repeated = self.asked_again();
                self.lapse(now, objects);
            }
            None => {}
        }
        // Control may have come back under another address.
        self.member = Some(Member::new(config, now));
        self.key = Some(key);
    }

    /// The node has joined at this time of the control node, in microseconds.
    pub fn begin_at(&mut self, now: Instant, time: u64) {
        if let Some(member) = &mut self.member {
            member.begin_at(now, time);
        }
    }

    /// It is this time at the control node.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        if let Some(member) = &mut self.member {
            member.set_time(now, time);
        }
    }

    /// Whether a cast is unfinished in which this node has a part: while a program computes, the
    /// card may interrupt it.
    pub fn is_active(&self) -> bool {
        self.member.as_ref().is_some_and(Member::is_active)
    }

    /// A cast lacks something here.
    pub fn is_receiving(&self) -> bool {
        self.member.as_ref().is_some_and(Member::is_receiving)
    }

    /// So many fragments of pages are on their way: what casts ask for leaves them room in the
    /// card's ring.
    pub fn leave_room(&mut self, pages: u32) {
        if let Some(member) = &mut self.member {
            let room = (ARRIVING_MAX - SPARE_CREDIT).saturating_sub(pages);
            member.set_credit(room.min(CREDIT));
        }
    }

    /// When something is due without a datagram arriving.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let member = self.member.as_ref().and_then(Member::poll_timeout);
        let lapsed = self.lapsed.iter().map(|&(_, until)| until).min();
        [member, lapsed].into_iter().flatten().min()
    }

    /// Takes a datagram of a peer.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
        places: &mut Places<'_>,
    ) {
        let Some(member) = &mut self.member else {
            return;
        };
        let entries = &self.entries;
        let mut store = CastStore { entries, places };
        member.handle_datagram(now, from, datagram, &mut store);
    }

    /// Sends what is due while the card's ring has room; returns whether it was full.
    pub fn transmit(
        &mut self,
        now: Instant,
        stack: &mut net::Stack,
        buffer: &mut [u8],
        places: &mut Places<'_>,
    ) -> bool {
        self.drop_lapsed(now, places.objects);
        let Some(member) = &mut self.member else {
            return false;
        };
        let entries = &self.entries;
        let mut store = CastStore { entries, places };
        loop {
            if !stack.can_send_peer() {
                return member.poll_timeout().is_some_and(|at| at <= now);
            }
            let Some((peer, length)) = member.poll_transmit(now, buffer, &mut store) else {
                return false;
            };
            stack.send_peer(peer.addr, peer.mac, &buffer[..length]);
        }
    }

    /// Acts on what has happened. `wanted` says whether a job is open or about to be.
    pub fn take_events(
        &mut self,
        now: Instant,
        places: &mut Places<'_>,
        wanted: &dyn Fn(JobId) -> bool,
    ) {
        while let Some(event) = self.member.as_mut().and_then(Member::poll_event) {
            match event {
                MemberEvent::Announced {
                    cast,
                    object,
                    purpose,
                    rate,
                    plan_bytes,
                    ..
                } => {
                    let about = (&purpose, rate, plan_bytes);
                    self.announced(now, cast, &object, about, places, wanted);
                }
                MemberEvent::Stored { .. } => {
                    self.stored += 1;
                    self.news = true;
                }
                MemberEvent::Complete { cast } => {
                    self.completed(cast, wanted);
                    // What was dropped while it arrived goes now.
                    places.objects.sweep(&mut Hardware::new());
                }
                MemberEvent::Ended { cast, .. } => self.ended(cast, places.objects, wanted),
                MemberEvent::Failed { cast, reason } => self.failed(cast, reason, places.objects),
            }
        }
    }

    /// A number that rises with every block that is stored.
    pub fn progress(&self) -> u64 {
        self.stored
    }

    /// Whether a block was stored or a cast ended since the last call.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Where a page of an object is that gives way: of an image, or of a file that ranks read.
    pub fn page(&self, id: &ObjectId, page: u64, objects: &Objects) -> CastPage {
        if objects.page(&DirectMap, id, page).is_some() {
            return CastPage::Here;
        }
        let arriving = |entry: &&Entry| entry.id == *id && !entry.complete;
        let entry = self.entries.iter().find(arriving);
        // Without its object a cast brings nothing any more.
        let Some(entry) = entry.filter(|_| objects.find(id).is_some()) else {
            return CastPage::Absent;
        };
        let block = block_of(page, entry.block_log2);
        match objects.has(id, objects::Part::Data(block)) {
            // It was here and is given away.
            true => CastPage::Absent,
            false => CastPage::Coming,
        }
    }

    /// A program waits for a page that is coming.
    pub fn want(&mut self, now: Instant, id: &ObjectId, page: u64) {
        let arriving = |entry: &&Entry| entry.id == *id && !entry.complete;
        if let (Some(entry), Some(member)) = (self.entries.iter().find(arriving), &mut self.member)
        {
            member.want(now, entry.cast, block_of(page, entry.block_log2));
        }
    }

    /// The connection tables of jobs.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The job has ended, or will not begin: its table goes, and what its ranks read.
    pub fn close_job(&mut self, job: JobId, objects: &mut Objects) {
        self.tables.close(job, objects);
        self.reads.close(job, objects);
    }

    /// Lets go of images that arrive: a running program needs the memory. Their casts fail here.
    pub fn let_go_of_images(&mut self) {
        for entry in &mut self.entries {
            if entry.kind.gives_way() {
                entry.held = None;
            }
        }
    }

    /// Blocks asked for again.
    pub fn asked_again(&self) -> u64 {
        let member = self.member.as_ref();
        self.earlier_repeated + member.map_or(0, |member| member.counters().repeated)
    }

    /// Figures for the heartbeat.
    pub fn vitals(&self) -> CastVitals {
        let Some(counters) = self.member.as_ref().map(Member::counters) else {
            return CastVitals::default();
        };
        CastVitals {
            blocks_in: self.earlier.blocks_in + counters.stored,
            blocks_out: self.earlier.blocks_out + counters.trains,
            corrupt: self.earlier.corrupt + counters.corrupt,
            duplicates: self.earlier.duplicates + counters.duplicates,
        }
    }

    /// Answers an announcement: takes the object, serves what it has of it, or refuses.
    fn announced(
        &mut self,
        now: Instant,
        cast: CastId,
        object: &Object,
        (purpose, rate, plan_bytes): (&Purpose, u64, u64),
        places: &mut Places<'_>,
        wanted: &dyn Fn(JobId) -> bool,
    ) {
        let kind = match purpose {
            Purpose::Program => Kind::Program,
            Purpose::File { .. } => Kind::File,
            Purpose::Table { job } => Kind::Table(*job, rate),
            Purpose::Read { job } => Kind::Read(*job),
        };
        let id = ObjectId(object.id);
        // A cast that is announced anew goes on with what is here.
        self.entries.retain(|entry| entry.cast != cast);
        self.forget_other_shapes(&id, object.block_log2);
        // As if no buffer of the casts under way were there yet. A plan is made of a few large
        // pieces, which need more room.
        let arriving = self.entries.iter().filter(|entry| !entry.complete);
        let promised: u64 = arriving.map(|entry| buffers(entry.block_log2)).sum();
        let room = self.entries.len() < MEMBER_CASTS
            && self.entries.try_reserve(1).is_ok()
            && mm::heap_room_bytes()
                >= promised + buffers(object.block_log2) + 2 * plan_bytes + HEAP_KEPT_BYTES;
        let want = match kind {
            // It has what its runs have touched, and nobody here waits for the rest.
            Kind::Program if places.is_warm(&id) => Want::Nothing,
            _ => Want::All,
        };
        // Nobody would take it away again.
        let is_late = matches!(kind, Kind::Read(job) if !wanted(job));
        let is_of_reads = self.reads.has(&id) || places.objects.find(&id).is_none();
        let placed = match want {
            _ if !room || is_late => Err(objects::Refused::TooMany),
            Want::Nothing => Ok(()),
            Want::All => place(places, object, kind),
        };
        let Some(member) = &mut self.member else {
            return;
        };
        if let Err(refused) = placed {
            info!(
                "cast",
                "{cast:?}: {} bytes not taken: {refused}", object.bytes
            );
            member.refuse(now, cast, RefuseReason::NoRoom);
            return;
        }
        self.lapsed.retain(|(lapsed, _)| *lapsed != id);
        match kind {
            Kind::Read(job) if is_of_reads => self.reads.put(job, id, places.objects),
            // Whoever had it cast before, or now, has it beyond the job.
            Kind::Read(_) => {}
            Kind::Program | Kind::File | Kind::Table(..) => self.reads.forget(&id),
        }
        self.entries.push(Entry {
            cast,
            id,
            block_log2: object.block_log2,
            kind,
            complete: want == Want::Nothing,
            held: places.objects.hold(&id),
        });
        let view = places.objects.find(&id);
        let is_file = view.is_some_and(|view| view.kept == Kept::File);
        // Reads look into the store alone.
        let is_in_store = is_file || matches!(kind, Kind::Read(_));
        member.accept(now, cast, want, &mut |part| {
            is_here(places, object, part, is_in_store)
        });
    }

    /// A cast that is complete and cut this object into other blocks would serve on what is not in
    /// its lists.
    fn forget_other_shapes(&mut self, id: &ObjectId, block_log2: u8) {
        let member = &mut self.member;
        self.entries.retain(|entry| {
            let other = entry.id == *id && entry.block_log2 != block_log2 && entry.complete;
            if other && let Some(member) = member {
                member.forget(entry.cast);
            }
            !other
        });
    }

    fn completed(&mut self, cast: CastId, wanted: &dyn Fn(JobId) -> bool) {
        let found = self.entries.iter_mut().find(|entry| entry.cast == cast);
        let Some(entry) = found else { return };
        entry.complete = true;
        self.news = true;
        match (entry.kind, entry.held.take()) {
            (Kind::Table(job, rate), Some(held)) => self.tables.put((job, rate), held, wanted),
            // What gives way may go from now on; files stay by themselves.
            (Kind::Program | Kind::File | Kind::Read(_), _) | (Kind::Table(..), None) => {}
        }
    }

    fn ended(&mut self, cast: CastId, objects: &mut Objects, wanted: &dyn Fn(JobId) -> bool) {
        let Some(entry) = self.remove(cast) else {
            return;
        };
        if !entry.complete {
            give_back(entry, &self.entries, objects);
        } else if let Kind::Table(job, _) = entry.kind
            && !wanted(job)
        {
            self.tables.close(job, objects);
        }
    }

    fn failed(&mut self, cast: CastId, reason: FailReason, objects: &mut Objects) {
        let Some(entry) = self.remove(cast) else {
            return;
        };
        info!("cast", "{cast:?} will not be complete here: {reason:?}");
        if !entry.complete {
            give_back(entry, &self.entries, objects);
        }
    }

    fn remove(&mut self, cast: CastId) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.cast == cast)?;
        let entry = self.entries.swap_remove(index);
        self.news = true;
        Some(entry)
    }

    /// The control node was replaced: what was under way may be announced again.
    fn lapse(&mut self, now: Instant, objects: &mut Objects) {
        for entry in core::mem::take(&mut self.entries) {
            match entry {
                Entry { complete: true, .. } => {}
                _ if self.lapsed.len() < MEMBER_CASTS => {
                    self.lapsed.push((entry.id, now + REANNOUNCED_WITHIN));
                }
                _ => give_back(entry, &[], objects),
            }
        }
    }

    fn drop_lapsed(&mut self, now: Instant, objects: &mut Objects) {
        self.lapsed.retain(|(id, until)| {
            if now >= *until {
                objects.drop_object(&mut Hardware::new(), id);
            }
            now < *until
        });
    }
}

/// The data block that holds a page.
const fn block_of(page: u64, block_log2: u8) -> u32 {
    ((page * PAGE_SIZE) >> block_log2) as u32
}

/// Bytes of the reassembly buffers of a cast.
const fn buffers(block_log2: u8) -> u64 {
    (BUFFERS as u64) << block_log2
}

/// Gives back what a cast that is over without being complete has brought, unless one of the others
/// has a part in it or it was a whole file before.
fn give_back(entry: Entry, others: &[Entry], objects: &mut Objects) {
    let id = entry.id;
    drop(entry);
    let view = objects.find(&id);
    let whole_file = view.is_some_and(|view| view.kept == Kept::File && view.whole);
    if whole_file || others.iter().any(|other| other.id == id) {
        return;
    }
    objects.drop_object(&mut Hardware::new(), &id);
    objects.sweep(&mut Hardware::new());
}

/// Makes a place for an object that is going to arrive, or to be completed.
fn place(places: &mut Places<'_>, object: &Object, kind: Kind) -> Result<(), objects::Refused> {
    let id = ObjectId(object.id);
    let mut kept = match kind {
        Kind::File => Kept::File,
        Kind::Program | Kind::Table(..) | Kind::Read(_) => Kept::Image,
    };
    if let Some(view) = places.objects.find(&id) {
        // What is a file stays one, also when the same bytes are cast as a program.
        if view.kept == Kept::File {
            kept = Kept::File;
        }
        if view.block_log2 == object.block_log2 {
            places.objects.keep_as(&id, kept);
            return Ok(());
        }
        if view.in_use {
            return Err(objects::Refused::Exists);
        }
        places.objects.drop_object(&mut Hardware::new(), &id);
    }
    let mut spec = Spec::new(id, object.bytes, object.block_log2, kept);
    match kind {
        // Reads do without a cast rather than others without their programs.
        Kind::Read(_) => return places.objects.create(&mut Hardware::new(), spec),
        _ if kept == Kept::File => return places.create(spec),
        _ => {}
    }
    let pages = 0..object.bytes.div_ceil(PAGE_SIZE);
    let resident = pages.filter(|&page| places.page(&id, page).is_some());
    spec.missing_pages -= resident.count() as u64;
    places.create(spec)?;
    for block in 0..object.data_blocks() {
        if is_here(places, object, Part::Data(block), false) {
            places.objects.assume(&id, block);
        }
    }
    Ok(())
}

/// Whether all of a part is on this node: of a file in the store (`is_in_store`), which programs
/// read and map; of an image also among the pages of its program.
fn is_here(places: &Places<'_>, object: &Object, part: Part, is_in_store: bool) -> bool {
    let id = ObjectId(object.id);
    match part {
        Part::List(_) => places.objects.has(&id, part_of(part)),
        Part::Data(block) => {
            let first = (u64::from(block) << object.block_log2) / PAGE_SIZE;
            let pages = 1 << (object.block_log2 - PAGE_SIZE.ilog2() as u8);
            let last = (first + pages).min(object.bytes.div_ceil(PAGE_SIZE));
            (first..last).all(|page| match is_in_store {
                true => places.objects.page(&DirectMap, &id, page).is_some(),
                false => places.page(&id, page).is_some(),
            })
        }
    }
}
