//! The node's end of the protocol on the node's network.
//!
//! Key type: [`Node`], which moves datagrams between `net::Stack` and `netstack::node::Endpoint`,
//! sorts events, and is the [`Ranks`](super::services::Ranks) of the job. Neighbours: `agent::job`
//! drives a job with it, `agent::last_words` is told how to reach control.
//!
//! Invariant: completions are kept for the current job only; what arrives for a job that has
//! ended is dropped, so a new job never sees another's data.

mod monitoring;
mod peers;
mod services;

use alloc::collections::VecDeque;
use alloc::string::String;
use core::net::{Ipv4Addr, SocketAddrV4};

use kernel_core::files::temporary::Temporary;
use kernel_core::logring::Cursor;
use kernel_core::objects::Objects;
use kernel_core::retention::WarmTable;
use netstack::MAX_DATAGRAM;
use netstack::broadcast::{MemberConfig, Peer};
use netstack::files::ChannelId;
use netstack::ids::{BootEpoch, JobId, LocalRank, NodeId, RequestId};
use netstack::job::LaunchSpec;
use netstack::node::{Config, Endpoint, Event};
use netstack::personality::Personality;
use netstack::time::{Instant, Micros};
use netstack::vitals::BootTimings;
use netstack::wire::key::Key;
use netstack::wire::log::TEXT_MAX;

use super::cast::store::Places;
use super::cast::{self, Casts};
use super::files;
use super::identity::Identity;
use super::last_words;
use super::mailbox::{Cancel, Mailbox};
use super::overlay::Overlay;
use super::ranks::Seats;
use super::vitals::vitals;
use super::warm::{self, Images};
use crate::boot::BootFacts;
use crate::exchange::Exchange;
use crate::net::frame::UdpFrame;
use crate::process::services::{IoCompletion, PageCompletion};
use crate::process::{self, Launch};
use crate::shipping::Shipping;
use crate::time::Moment;
use crate::{arch, console, mm, net, time};

/// Datagrams that wait when the next job begins have left within this time, unless the link is
/// down.
const SENT_WITHIN: Micros = Micros::from_millis(10);
/// A computing program is interrupted for the node's own sake at most this often.
pub const TICK: Micros = Micros::from_secs(1);
/// Silence of the control node after which the operator is told, the first time.
const FIRST_SILENCE: Micros = Micros::from_secs(3);
/// A heartbeat that is due so soon goes with the interrupt of a tick of the overlay.
const TICK_SLACK: Micros = Micros::from_millis(100);
/// Rounds of one [`Node::pump`], each takes a burst of frames. Eight bursts of 32 are a full
/// receive ring; what arrives beyond is left for the next call, so that a flood cannot keep a node
/// from its program.
const PUMP_ROUNDS: usize = 8;

/// Stack and endpoint of this node.
pub struct Node {
    boot: &'static BootFacts,
    identity: Identity,
    stack: net::Stack,
    endpoint: Option<Endpoint>,
    /// Its number; 0 before it has a personality.
    node: NodeId,
    /// Its name; empty before that.
    name: String,
    timings: BootTimings,
    /// Time of the first welcome, and of it halted.
    joined: Option<(Instant, Micros)>,
    /// When a program was interrupted last for the node's own sake.
    last_tick: Instant,
    /// When to say next that the control node does not answer, and how long after that again.
    silence_report: (Instant, Micros),
    launches: VecDeque<Launch>,
    mailbox: Option<Mailbox>,
    warm: WarmTable,
    objects: Objects,
    /// `/tmp` of the job.
    temporary: Temporary,
    casts: Casts,
    seats: Seats,
    /// Whose services it is now ([`Ranks::rank`](super::services::Ranks::rank)).
    present: LocalRank,
    overlay: Overlay,
    /// The card's transmit ring had no room for what casts or the exchange have to send.
    ring_full: bool,
    /// A datagram of the exchange goes before those of casts; every second turn.
    exchange_leads: bool,
    /// When the CPU woke for what is taken in now, or began to look.
    looked: Moment,
    /// It has left the cluster, and will not be heard again in this boot.
    left: bool,
    /// The last job, until what it left in buffers has been cleared.
    remains: Option<JobId>,
    /// What control was told of the log.
    told: Cursor,
    buffer: [u8; MAX_DATAGRAM],
}

impl Node {
    /// A node on `stack`. With a personality on the command line it says hello at once.
    pub fn new(
        boot: &'static BootFacts,
        identity: Identity,
        stack: net::Stack,
        timings: BootTimings,
    ) -> Self {
        let fixed = identity.fixed.clone();
        let frames = mm::frames().usage().total;
        let mut this = Self {
            boot,
            identity,
            stack,
            endpoint: None,
            node: NodeId(0),
            name: String::new(),
            timings,
            joined: None,
            last_tick: time::now(),
            silence_report: (Instant::FAR_FUTURE, FIRST_SILENCE),
            launches: VecDeque::new(),
            mailbox: None,
            warm: WarmTable::new(WarmTable::default_limit(frames)),
            objects: Objects::new(Objects::default_limit(frames)),
            temporary: Temporary::default(),
            casts: Casts::default(),
            seats: Seats::new(),
            present: LocalRank::FIRST,
            overlay: Overlay::default(),
            ring_full: false,
            exchange_leads: false,
            looked: Moment::now(),
            left: false,
            remains: None,
            told: Cursor::default(),
            buffer: [0; MAX_DATAGRAM],
        };
        if let Some(personality) = fixed {
            this.become_node(personality, time::now());
        }
        this
    }

    /// The next program the control node wants launched.
    pub fn next_launch(&mut self) -> Option<Launch> {
        self.launches.pop_front()
    }

    /// Whether the node has left the cluster: nothing is to be done any more.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Opens the mailbox of a job; events for it are kept from now on.
    pub fn open_job(&mut self, spec: &LaunchSpec) {
        assert!(self.mailbox.is_none(), "one job at a time");
        let (job, first) = (spec.job, spec.rank);
        let service = spec.files.map(|files| files.address);
        self.seats.make_room(spec.ranks);
        for local in LocalRank::first(spec.ranks) {
            let rank = first.plus(local);
            let shipping = service.map(|service| {
                let config = self.endpoint().files_config(ChannelId { job, rank });
                Shipping::new(config, service)
            });
            self.seats.of_mut(local).shipping = shipping;
        }
        self.stack.set_service(service);
        self.mailbox = Some(Mailbox::new(job, spec.program, spec.ranks));
        self.overlay.set_job(Some((job, first)));
    }

    /// Closes the mailbox and forgets the job's page requests.
    pub fn close_job(&mut self) {
        let mailbox = self.mailbox.take().expect("a job is open");
        self.endpoint().cancel_requests(mailbox.job());
        self.casts.close_job(mailbox.job(), &mut self.objects);
        self.overlay.set_job(None);
        for (_, seat) in self.seats.iter_mut() {
            seat.shipping = None;
        }
        self.stack.set_service(None);
        self.remains = Some(mailbox.job());
    }

    /// Whether what the last job left can be cleared: the control node has taken its last output.
    fn remains_are_due(&self) -> bool {
        let is_taken = |job| {
            let endpoint = self.endpoint.as_ref();
            endpoint.is_none_or(|endpoint| !endpoint.has_job(job))
        };
        self.remains.is_some_and(is_taken) && self.stack.can_scrub()
    }

    /// Clears what the last job left outside of its frames and the heap: in the queues of its
    /// datagrams and on the kernel's stack, below the caller's frame. Its last output goes first,
    /// when the control node has taken it or `at_once`.
    #[inline(never)]
    pub fn scrub_remains(&mut self, at_once: bool) {
        if self.remains.is_none() || !(at_once || self.remains_are_due()) {
            return;
        }
        let until = time::now() + SENT_WITHIN;
        while !self.stack.can_scrub() && time::now() < until {
            self.pump();
        }
        if self.stack.scrub() {
            self.remains = None;
        }
        self.buffer.fill(0);
        // What it got of random numbers is not kept either.
        arch::entropy::feed(&[]);
        mm::scrub_stack();
    }

    /// The endpoint; a job can only exist after it has joined.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.endpoint.as_mut().expect("the node has a personality")
    }

    /// Whether the control node has started the open job.
    pub fn started(&self) -> bool {
        self.mailbox.as_ref().is_some_and(Mailbox::started)
    }

    /// How the control node wants the open job ended, once it has said so.
    pub fn cancel(&self) -> Option<Cancel> {
        self.mailbox.as_ref().and_then(Mailbox::cancel)
    }

    /// Says whether the program of the open job has been entered and has not ended.
    pub fn set_entered(&mut self, entered: bool) {
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.set_entered(entered);
        }
    }

    /// When the program of the open job is ended, if it was given time.
    fn kill_at(&self) -> Option<Instant> {
        self.mailbox.as_ref().and_then(Mailbox::kill_at)
    }

    /// Moves datagrams in both directions and acts on deadlines, without waiting. What has arrived
    /// is taken in before anything is sent: while a program computes nobody empties the card, and
    /// an answer that lies there must not be asked for again because it is late.
    pub fn pump(&mut self) {
        self.looked = Moment::now();
        self.pump_awake();
    }

    /// [`Self::pump`] for what the CPU woke for.
    fn pump_awake(&mut self) {
        let mut more = true;
        for _ in 0..PUMP_ROUNDS {
            if !more {
                break;
            }
            let now = time::now();
            more = self.take_in(now);
            self.take_network_events(now);
            self.take_endpoint_events(now);
            self.take_cast_events(now);
        }
        // A launch is answered when it is loaded: its first instruction comes a datagram earlier.
        if self.mailbox.is_some() || self.launches.is_empty() {
            self.send_due();
            self.monitor();
        }
        self.report_silence(time::now());
    }

    /// Takes in a burst of datagrams; returns whether more may wait.
    fn take_in(&mut self, now: Instant) -> bool {
        let Self {
            stack,
            endpoint,
            casts,
            seats,
            overlay,
            objects,
            warm,
            ..
        } = self;
        stack.poll(now, &mut |arrival| match arrival {
            net::Arrival::Control(datagram) if Shipping::takes(datagram) => {
                seats.handle_file_datagram(now, datagram);
            }
            net::Arrival::Control(datagram) => {
                if let Some(endpoint) = endpoint {
                    endpoint.handle_datagram(now, datagram);
                }
            }
            net::Arrival::Peer(arrived) if Exchange::takes(arrived.bytes) => {
                seats.handle_datagram(now, &arrived);
            }
            net::Arrival::Peer(arrived) if Overlay::takes(arrived.bytes) => {
                overlay.handle_datagram(now, arrived.from, arrived.bytes);
            }
            net::Arrival::Peer(arrived) => {
                let mut places = Places {
                    objects,
                    warm,
                    running: seats.running(),
                };
                casts.handle_datagram(now, arrived.from, arrived.bytes, &mut places);
            }
        })
    }

    /// Sends what is due, without a look at what has arrived.
    pub fn send_due(&mut self) {
        let now = time::now();
        self.tell_holdings(now);
        self.tell_log(now);
        self.transmit(now);
        self.take_endpoint_events(now);
        self.transmit_to_peers(now);
        self.take_cast_events(now);
    }

    fn take_cast_events(&mut self, now: Instant) {
        let mut places = Places {
            objects: &mut self.objects,
            warm: &mut self.warm,
            running: self.seats.running(),
        };
        let (mailbox, launches) = (&self.mailbox, &self.launches);
        self.casts.take_events(now, &mut places, &|job| {
            let open = mailbox.as_ref().map(Mailbox::job);
            open == Some(job) || launches.iter().any(|launch| launch.spec.job == job)
        });
        let news = [self.casts.take_news(), self.seats.take_news()];
        if let Some(mailbox) = &mut self.mailbox
            && news.contains(&true)
        {
            mailbox.put_news();
        }
    }

    /// Tells control what has changed in the table of warm programs.
    fn tell_holdings(&mut self, now: Instant) {
        // A node that has not joined has run nothing.
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        warm::tell(&mut self.warm, endpoint, now);
    }

    /// Tells control lines of the log that it does not have.
    fn tell_log(&mut self, now: Instant) {
        let cursor = &mut self.told;
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        if !endpoint.takes_log() || !console::has_more(cursor) {
            return;
        }
        let mut lines = [0; TEXT_MAX];
        let read = console::next_lines(cursor, &mut lines);
        // Lines are text; what is not, by a bug, is no reason to tell nothing.
        match core::str::from_utf8(&lines[..read.bytes]) {
            Ok("") => {}
            Ok(text) => endpoint.log(now, read.missed, text),
            Err(_) => endpoint.log(now, read.missed, "(lines that are no text)\n"),
        }
    }

    /// Pumps, and when that brought no news for the main loop or the job, says until when the core
    /// may be halted: a deadline of the protocols, or `deadline`. The card interrupts until
    /// [`Self::end_wait`]. `None`: there are news.
    #[inline(never)]
    fn begin_wait(&mut self, deadline: Instant) -> Option<Instant> {
        self.pump();
        // Between jobs the caller clears what the last one left.
        if self.take_news() || self.mailbox.is_none() && self.remains_are_due() {
            return None;
        }
        let now = time::now();
        // While the stack takes no datagram, what the endpoint has due must not keep the CPU awake.
        let endpoint = self.endpoint.as_ref().filter(|_| self.stack.can_send());
        let due = endpoint.and_then(Endpoint::poll_timeout);
        let peers = self.peers_timeout(now);
        let overlay = self.overlay.poll_timeout(now);
        let card = self.stack.next_deadline(now);
        let shipping = match self.stack.can_send() {
            true => self.seats.files_timeout(),
            false => None,
        };
        let protocols = [due, card, peers, overlay, shipping, self.kill_at()];
        let until = protocols.into_iter().flatten().fold(deadline, Instant::min);
        self.looked = Moment::now();
        Some(match until > now && !self.scrub_some() {
            true => self.stack.begin_wait(now, until),
            false => now,
        })
    }

    /// The core is awake: pumps.
    fn end_wait(&mut self) {
        self.stack.end_wait();
        self.looked = Moment::woken_since(self.looked);
        self.pump_awake();
        self.take_news();
    }

    /// Scrubs some of what dropped programs left, when there is nothing else to do; returns whether
    /// there was anything.
    fn scrub_some(&self) -> bool {
        let idle = self.mailbox.is_none() && mm::frames().usage().dirty > 0;
        if idle {
            process::scrub_some();
        }
        idle
    }

    /// Whether something happened that the main loop or the job has not been woken for.
    fn take_news(&mut self) -> bool {
        match &mut self.mailbox {
            None => self.left || !self.launches.is_empty(),
            Some(mailbox) => mailbox.take_news(),
        }
    }

    fn transmit(&mut self, now: Instant) {
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        if endpoint.poll_timeout().is_some_and(|at| at <= now) {
            endpoint.set_vitals(vitals(
                self.mailbox.as_ref().map(Mailbox::job),
                self.joined,
                self.casts.vitals(),
                self.overlay.kept(),
            ));
        }
        endpoint.set_most_page_fragments(match self.casts.is_receiving() {
            true => cast::PAGES_BESIDE,
            false => u32::MAX,
        });
        // Ends when the endpoint has nothing to say or the stack's queue is full; the queue
        // empties into the card, whose ring is bounded.
        while self.stack.can_send() {
            let Some(len) = endpoint.poll_transmit(now, &mut self.buffer) else {
                break;
            };
            self.stack.send(&self.buffer[..len]);
        }
        let seats = self.seats.iter_mut();
        for shipping in seats.filter_map(|(_, seat)| seat.shipping.as_mut()) {
            let service = shipping.service();
            while self.stack.can_send() {
                let Some(len) = shipping.poll_transmit(now, &mut self.buffer) else {
                    break;
                };
                self.stack.send_to(service, &self.buffer[..len]);
            }
        }
        self.stack.flush(now);
    }

    fn take_network_events(&mut self, now: Instant) {
        while let Some(event) = self.stack.poll_event() {
            match event {
                net::Event::Address(address) => {
                    debug!("agent", "address {address}");
                    if self.timings.entry_to_dhcp_us == 0 {
                        self.timings.entry_to_dhcp_us = now.as_micros();
                    }
                }
                net::Event::AddressLost => last_words::prepare(None),
                net::Event::Personality(personality) => self.become_node(*personality, now),
            }
        }
    }

    fn become_node(&mut self, personality: Personality, now: Instant) {
        if self.endpoint.is_some() {
            return;
        }
        let [a, b, c, d] = personality.control_addr;
        let control = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), personality.control_port);
        info!("agent", "I am {}, joining {control}", personality.name);
        self.node = personality.node;
        self.name.clone_from(&personality.name);
        arch::entropy::feed(&personality.key.0);
        self.stack.set_control(control);
        self.timings.entry_to_hello_us = now.as_micros();
        self.timings.idle_us = time::slept().as_micros();
        let config = Config {
            lab_key: self.identity.fixed.is_some(),
            personality,
            mac: self.stack.mac(),
            boot_epoch: BootEpoch(self.identity.boot_epoch),
            version: self.boot.version,
            build_id: self.boot.build_id,
            memory_bytes: mm::stats().total_bytes,
            cores: arch::cores::count() as u16,
            seed: self.identity.boot_epoch,
            timings: self.timings,
        };
        self.endpoint = Some(Endpoint::new(config, now));
        self.silence_report.0 = now + FIRST_SILENCE;
    }

    /// Says from time to time that nobody welcomes this node.
    fn report_silence(&mut self, now: Instant) {
        let (at, pause) = self.silence_report;
        if self.joined.is_some() || now < at {
            return;
        }
        if let Some(control) = self.stack.control() {
            warn!(
                "agent",
                "no welcome from {control} yet; is the control node running there? trying on"
            );
        }
        self.silence_report = (now + pause, pause.saturating_mul(2));
    }

    fn take_endpoint_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.as_mut().and_then(Endpoint::poll_event) {
            self.take_endpoint_event(event, now);
        }
        let endpoint = self.endpoint.as_ref();
        if let Some(time) = endpoint.and_then(|endpoint| endpoint.control_time(now)) {
            self.casts.set_time(now, time);
            self.overlay.set_time(now, time);
        }
    }

    fn take_endpoint_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Joined {
                peer_key, time_us, ..
            } => {
                self.welcome(now);
                arch::entropy::feed(&peer_key.0);
                self.join_casts(peer_key, now);
                self.join_overlay(peer_key, now);
                self.casts.begin_at(now, time_us);
                self.overlay.begin_at(now, time_us);
            }
            Event::Refused { reason, text, .. } => {
                error!(
                    "agent",
                    "the control node refuses this node: {reason} {text}"
                );
            }
            Event::ControlLost => warn!("agent", "the control node is silent; trying on"),
            Event::ControlBack => info!("agent", "the control node is back"),
            Event::Left => {
                self.overlay.leave();
                last_words::prepare(None);
                self.left = true;
            }
            // An open job has been cancelled by now, or the endpoint would not say so; the launch
            // waits for its end.
            Event::Launch { spec, key, block } => {
                self.seats.launched(spec.job, key, spec.ranks);
                self.stack.set_ranks(spec.ranks);
                self.launches.push_back(Launch {
                    spec,
                    block,
                    arrived: self.looked,
                });
            }
            Event::Retain {
                job,
                program,
                read_only,
            } => {
                warm::drop_images(&mut self.objects, Images::AllBut(Some(program)));
                let pages = warm::retain(&mut self.warm, program, read_only);
                self.endpoint().retain_result(now, job, pages);
            }
            Event::Drop { id, program } => {
                let running = self.mailbox.as_mut();
                let (mut pages, mut in_use) = warm::drop(&mut self.warm, running, program);
                let images = program.map_or(Images::AllBut(None), Images::Of);
                pages = pages.saturating_add(warm::drop_images(&mut self.objects, images));
                if let Some(file) = program {
                    let (more, held) = files::drop(&mut self.objects, file);
                    pages = pages.saturating_add(more);
                    in_use |= held;
                }
                self.endpoint().drop_result(now, id, pages, in_use);
            }
            Event::Start { job } => {
                if let Some(mailbox) = self.mailbox_of(job) {
                    mailbox.put_start();
                }
            }
            Event::Cancel {
                job,
                signal,
                orphan,
                grace,
            } => {
                let kill_at = (grace > Micros::ZERO).then(|| now + grace);
                let cancel = Cancel {
                    signal,
                    orphan,
                    kill_at,
                };
                self.take_cancel(job, cancel);
            }
            Event::Signal { job, signal } => {
                if let Some(mailbox) = self.mailbox_of(job) {
                    mailbox.put_signal(signal);
                }
            }
            Event::Data {
                request,
                job,
                bytes,
                ..
            } => self.take_pages_of(job, request, Ok(bytes)),
            Event::PageFailed {
                request,
                job,
                reason,
            } => self.take_pages_of(job, request, Err(reason)),
            Event::IoDone {
                job,
                rank,
                call,
                result,
                data,
            } => {
                if let Some(mailbox) = self.mailbox_of(job) {
                    mailbox.put_io(rank, IoCompletion { call, result, data });
                }
            }
        }
    }

    fn welcome(&mut self, now: Instant) {
        let idle = time::slept();
        if self.joined.is_none() {
            self.joined = Some((now, idle));
            let busy = now.as_micros().saturating_sub(idle.as_micros());
            info!(
                "agent",
                "joined after {} us, of these busy {busy} us",
                now.as_micros()
            );
        } else {
            info!("agent", "joined again");
        }
        let vitals = vitals(
            self.mailbox.as_ref().map(Mailbox::job),
            self.joined,
            self.casts.vitals(),
            self.overlay.kept(),
        );
        self.endpoint().set_vitals(vitals);
        let reporter = self.endpoint().panic_reporter();
        last_words::prepare(reporter.and_then(|reporter| {
            let address = self.stack.address()?.address();
            Some(last_words::Route {
                reporter,
                frame: UdpFrame {
                    source_mac: self.stack.mac(),
                    target_mac: self.stack.control_mac()?,
                    source: SocketAddrV4::new(address, netstack::NODE_PORT),
                    target: self.stack.control()?,
                },
            })
        }));
    }

    /// Takes part in casts from now on, among those that share the key.
    fn join_casts(&mut self, key: Key, now: Instant) {
        let (Some(address), Some(control)) = (self.stack.address(), self.stack.control()) else {
            return;
        };
        let config = MemberConfig {
            node: self.node,
            boot: BootEpoch(self.identity.boot_epoch),
            me: Peer {
                addr: SocketAddrV4::new(address.address(), netstack::NODE_PORT),
                mac: self.stack.mac(),
            },
            control: self
                .stack
                .control_mac()
                .map(|mac| Peer { addr: control, mac }),
            key,
            rate: 0,
            buffers: cast::BUFFERS,
            credit: cast::CREDIT,
            // As many as the heap has room for.
            members: 0,
            seed: self.identity.boot_epoch,
        };
        self.casts.join(config, now, &mut self.objects);
    }

    fn take_cancel(&mut self, job: JobId, cancel: Cancel) {
        if let Some(mailbox) = self.mailbox_of(job) {
            mailbox.put_cancel(cancel);
            return;
        }
        // Not begun yet: the launch is answered with a refusal instead.
        let before = self.launches.len();
        self.launches.retain(|launch| launch.spec.job != job);
        if self.launches.len() < before {
            super::job::refuse_cancelled(self.endpoint(), job);
        }
    }

    fn take_pages_of(
        &mut self,
        job: JobId,
        request: RequestId,
        result: Result<alloc::vec::Vec<u8>, netstack::page::PageError>,
    ) {
        if let Some(mailbox) = self.mailbox_of(job) {
            mailbox.put_pages(PageCompletion { request, result });
        }
    }

    fn mailbox_of(&mut self, job: JobId) -> Option<&mut Mailbox> {
        self.mailbox.as_mut().filter(|mailbox| mailbox.job() == job)
    }

    fn open(&self) -> &Mailbox {
        self.mailbox.as_ref().expect("a job is open")
    }
}
