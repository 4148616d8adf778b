//! hearth_self, hearth_post, hearth_wait, hearth_cancel: data between the ranks of the job.
//!
//! An operation's pages are brought in when it is posted, as if the program had touched them; from
//! then on the engine copies straight from and to them while the program computes or waits. However
//! long the buffers and lists are, they are gone through in pieces, between which the node does its
//! own work and looks whether the program must end.
//!
//! Neighbours: `exchange` has the operations, `hearth_abi::exchange` the structures.
//!
//! Invariant: nothing is taken from the list of finished operations before its status has reached
//! the program; no operation takes the heap's last [`crate::mm::HEAP_RESERVE_BYTES`].

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{
    ANY_RANK, ANY_TAG, CHECK, CLAIM, CLAIMED, FOREVER, FORGET, Identity, Kind, NOW,
    OPERATION_BYTES, OUTSTANDING_MAX, Operation, SIT_OUT, STATUS_BYTES, SYNCHRONOUS, Status,
    WAIT_ANY, WAIT_MAX, WAIT_SPIN, Why,
};
use kernel_core::fault::Access;
use kernel_core::program::UserSlice;
use netstack::exchange::{Among, BufferId, Group, GroupError, Layout, Op, Part, Side};
use netstack::ids::Rank;
use netstack::time::{Instant, Micros};

use super::Args;
use crate::exchange::State;
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::services::NodeServices;
use crate::time;

/// How long a program that waits for ever may have nothing to wait for but receives that are stuck.
const STUCK_FOR: Micros = Micros::from_secs(2);
/// Bytes of a buffer whose pages are looked at in one go.
const PIECE: u64 = 1 << 20;
/// Entries of a program's lists that are read in one go.
const LISTED: usize = 64;
/// What an exchange takes of the heap for each rank: which blocks have come and gone, who is ready.
const RANK_BYTES: u64 = 16;
/// What a group takes of it for each of its ranks, while it is made too.
const GROUP_BYTES: usize = 16;

impl Current<'_> {
    pub(super) fn hearth_self(&mut self, args: Args) -> Result<u64, Stop> {
        let identity = Identity {
            rank: self.process.spec.rank.0,
            size: self.process.spec.size,
            job: self.process.spec.job.0,
            outstanding_max: OUTSTANDING_MAX,
        };
        self.write_bytes(args[0], &identity.to_bytes())?;
        Ok(0)
    }

    /// Posts an operation; the number of its request.
    pub(super) fn hearth_post(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        if length != OPERATION_BYTES as u64 {
            return Err(Errno::EINVAL.into());
        }
        let bytes = self.read_array(address)?;
        let operation = Operation::from_bytes(&bytes).ok_or(Errno::EINVAL)?;
        let kind = Kind::from_number(operation.kind).ok_or(Errno::EINVAL)?;
        let rank = Rank(operation.rank);
        if rank.0 >= self.process.spec.size {
            return Err(Errno::EINVAL.into());
        }
        let Operation {
            context,
            tag,
            flags,
            ..
        } = operation;
        let allowed = match kind {
            Kind::Receive if flags & CLAIMED != 0 => CLAIMED,
            Kind::Receive => ANY_RANK | ANY_TAG | CHECK,
            Kind::Probe => ANY_RANK | ANY_TAG | CLAIM | NOW,
            Kind::Send if flags & FORGET != 0 => FORGET,
            Kind::Send => CHECK | SYNCHRONOUS,
            Kind::AllToAll => SIT_OUT,
            Kind::Barrier | Kind::Room => 0,
        };
        if flags & !allowed != 0 {
            return Err(Errno::EINVAL.into());
        }
        let among = match kind {
            Kind::AllToAll | Kind::Barrier => self.among(&operation)?,
            Kind::Send | Kind::Receive | Kind::Probe | Kind::Room => {
                let number = match flags & CLAIMED {
                    0 => operation.number,
                    _ => 0,
                };
                if (operation.group_size, operation.group, number) != (0, 0, 0) {
                    return Err(Errno::EINVAL.into());
                }
                Among::default()
            }
        };
        if flags & SIT_OUT != 0 {
            let why = Why::from_number(tag).ok_or(Errno::EINVAL)?;
            let exchange = self.services.exchange();
            if !exchange.has_room(0) {
                return Err(Errno::ENOMEM.into());
            }
            exchange.sit_out(time::now(), &among, (rank, why))?;
            self.poll();
            return Ok(0);
        }
        let op = match kind {
            Kind::Send => {
                let from = UserSlice::new(operation.send, operation.send_bytes)?;
                self.bring_in(from, Access::Read)?;
                if flags & FORGET != 0 {
                    return self.send_forgotten(&operation);
                }
                Op::Send {
                    to: rank,
                    context,
                    tag,
                    buffer: BufferId(operation.send),
                    bytes: operation.send_bytes,
                    is_synchronous: flags & SYNCHRONOUS != 0,
                }
            }
            Kind::Receive => {
                let to = UserSlice::new(operation.receive, operation.receive_bytes)?;
                self.bring_in(to, Access::Write)?;
                if flags & CLAIMED != 0 {
                    return self.receive_claimed(&operation);
                }
                Op::Receive {
                    from: (flags & ANY_RANK == 0).then_some(rank),
                    context,
                    tag: (flags & ANY_TAG == 0).then_some(tag),
                    buffer: BufferId(operation.receive),
                    capacity: operation.receive_bytes,
                }
            }
            Kind::Probe => Op::Probe {
                from: (flags & ANY_RANK == 0).then_some(rank),
                context,
                tag: (flags & ANY_TAG == 0).then_some(tag),
                claims: flags & CLAIM != 0,
                waits: flags & NOW == 0,
            },
            Kind::Room => return self.give_room(&operation),
            Kind::AllToAll => self.all_to_all(&operation, among)?,
            Kind::Barrier => Op::Barrier { among },
        };
        if flags & CHECK != 0 {
            return Ok(0);
        }
        // Bringing pages in has taken time, in which others have taken of the heap.
        let needed = match &op {
            Op::AllToAll { .. } => u64::from(self.process.spec.size) * RANK_BYTES,
            Op::Barrier { .. } => 0,
            _ => self.services.exchange().room_for_operation(),
        };
        if !self.services.exchange().has_room(needed) {
            return Err(Errno::ENOMEM.into());
        }
        if flags & NOW != 0 {
            // What has arrived is looked at first.
            self.poll();
        }
        let now = time::now();
        let exchange = self.services.exchange();
        let posted = exchange.post(now, op);
        // Most receives are only noted: programs post them ahead, and look when they wait.
        if kind != Kind::Receive || exchange.is_due(now) {
            self.poll();
        }
        match posted {
            // The probe found nothing.
            Err(Errno::EAGAIN) => Ok(0),
            other => {
                let request = other?;
                self.count(kind, operation.send_bytes);
                Ok(request.into())
            }
        }
    }

    /// Sends a message of which the program hears no more.
    fn send_forgotten(&mut self, operation: &Operation) -> Result<u64, Stop> {
        let exchange = self.services.exchange();
        let sent = match exchange.has_room(0) {
            true => exchange.send_forgotten(time::now(), operation),
            false => Err(Errno::ENOMEM),
        };
        // Also when it was refused: who sends it again in a loop waits for what arrives.
        self.poll();
        sent?;
        self.count(Kind::Send, operation.send_bytes);
        Ok(0)
    }

    /// Counts what has begun, for the report of the rank.
    fn count(&mut self, kind: Kind, send_bytes: u64) {
        let account = &mut self.process.account;
        match kind {
            Kind::Send => {
                account.messages_sent += 1;
                account.message_bytes += send_bytes;
            }
            Kind::AllToAll => account.exchanges += 1,
            Kind::Receive | Kind::Probe | Kind::Barrier | Kind::Room => {}
        }
    }

    /// The program gives memory for messages that wait.
    fn give_room(&mut self, operation: &Operation) -> Result<u64, Stop> {
        let room = UserSlice::new(operation.receive, operation.receive_bytes)?;
        self.bring_in(room, Access::Write)?;
        let exchange = self.services.exchange();
        if !exchange.has_room(0) {
            return Err(Errno::ENOMEM.into());
        }
        exchange.give_room(time::now(), (room.start(), room.length()))?;
        Ok(0)
    }

    /// Posts the receive of a message that a probe keeps.
    fn receive_claimed(&mut self, operation: &Operation) -> Result<u64, Stop> {
        let Operation {
            rank,
            context,
            tag,
            number,
            receive,
            receive_bytes,
            ..
        } = *operation;
        if (rank, context, tag) != (0, 0, 0) {
            return Err(Errno::EINVAL.into());
        }
        let exchange = self.services.exchange();
        if !exchange.has_room(exchange.room_for_operation()) {
            return Err(Errno::ENOMEM.into());
        }
        let to = (BufferId(receive), receive_bytes);
        let request = exchange.post_claimed(time::now(), number, to)?;
        self.poll();
        Ok(request.into())
    }

    /// Who takes part in an exchange or a barrier.
    fn among(&mut self, operation: &Operation) -> Result<Among, Stop> {
        let Operation {
            context,
            group_size,
            group,
            number,
            ..
        } = *operation;
        let group = match (group_size, group) {
            (0, 0) => Group::All,
            (0, _) | (_, 0) => return Err(Errno::EINVAL.into()),
            (size, _) if size > self.process.spec.size => return Err(Errno::EINVAL.into()),
            (size, list) => self.listed_ranks(list, size)?,
        };
        Ok(Among {
            context,
            group,
            number,
        })
    }

    /// The group of the ranks in a list of the program's.
    fn listed_ranks(&mut self, list: u64, size: u32) -> Result<Group, Stop> {
        let size = size as usize;
        let needed = (size * GROUP_BYTES) as u64;
        if !self.services.exchange().has_room(needed) {
            return Err(Errno::ENOMEM.into());
        }
        let mut ranks = Vec::new();
        ranks.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        while ranks.len() < size {
            let length = (size - ranks.len()).min(LISTED) * size_of::<u32>();
            let done = (ranks.len() * size_of::<u32>()) as u64;
            let start = list.checked_add(done).ok_or(Errno::EFAULT)?;
            let mut bytes = [0; LISTED * size_of::<u32>()];
            self.read_user(UserSlice::new(start, length as u64)?, &mut bytes[..length])?;
            let (words, _) = bytes[..length].as_chunks();
            ranks.extend(words.iter().copied().map(u32::from_le_bytes).map(Rank));
            self.poll_and_check()?;
        }
        let group = Group::listed(ranks).map_err(|error| match error {
            GroupError::Memory => Errno::ENOMEM,
            GroupError::Length | GroupError::Twice(_) => Errno::EINVAL,
        });
        Ok(group?)
    }

    fn all_to_all(&mut self, operation: &Operation, among: Among) -> Result<Op, Stop> {
        let size = match operation.group_size {
            0 => self.process.spec.size,
            size => size,
        };
        let lists = [
            operation.send_counts,
            operation.send_offsets,
            operation.receive_counts,
            operation.receive_offsets,
        ];
        let listed = match lists {
            [0, 0, 0, 0] => 0,
            _ => 2 * size_of::<Part>() as u64,
        };
        let needed = u64::from(size) * (RANK_BYTES + listed);
        if !self.services.exchange().has_room(needed) {
            return Err(Errno::ENOMEM.into());
        }
        let (send, receive) = match lists {
            [0, 0, 0, 0] => {
                let equal = |bytes: u64| Layout::Equal { bytes };
                (equal(operation.send_bytes), equal(operation.receive_bytes))
            }
            [to, to_at, from, from_at] if !lists.contains(&0) => (
                Layout::Parts(self.parts(size, to, to_at)?),
                Layout::Parts(self.parts(size, from, from_at)?),
            ),
            _ => return Err(Errno::EINVAL.into()),
        };
        self.bring_in_blocks(size, operation.send, &send, Access::Read)?;
        self.bring_in_blocks(size, operation.receive, &receive, Access::Write)?;
        let side = |address: u64, layout: Layout| Side {
            buffer: BufferId(address),
            layout,
        };
        Ok(Op::AllToAll {
            among,
            send: side(operation.send, send),
            receive: side(operation.receive, receive),
        })
    }

    /// The blocks that two lists of the program name, for so many ranks.
    fn parts(&mut self, size: u32, counts: u64, offsets: u64) -> Result<Vec<Part>, Stop> {
        let size = size as usize;
        let mut parts = Vec::new();
        parts.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        while parts.len() < size {
            let length = (size - parts.len()).min(LISTED) * size_of::<u64>();
            let done = (parts.len() * size_of::<u64>()) as u64;
            let mut words = [[0; LISTED * size_of::<u64>()]; 2];
            for (words, list) in words.iter_mut().zip([counts, offsets]) {
                let start = list.checked_add(done).ok_or(Errno::EFAULT)?;
                let from = UserSlice::new(start, length as u64)?;
                self.read_user(from, &mut words[..length])?;
            }
            let [counts, offsets] = words.each_ref().map(|words| words[..length].as_chunks().0);
            let pairs = counts.iter().zip(offsets);
            parts.extend(pairs.map(|(bytes, offset)| Part {
                offset: u64::from_le_bytes(*offset),
                bytes: u64::from_le_bytes(*bytes),
            }));
            self.poll_and_check()?;
        }
        Ok(parts)
    }

    /// Brings in the blocks of one side, for so many ranks.
    fn bring_in_blocks(
        &mut self,
        size: u32,
        address: u64,
        layout: &Layout,
        access: Access,
    ) -> Result<(), Stop> {
        for place in 0..size {
            let part = layout.part(place);
            if part.bytes > 0 {
                let start = address.checked_add(part.offset).ok_or(Errno::EFAULT)?;
                self.bring_in(UserSlice::new(start, part.bytes)?, access)?;
            }
        }
        Ok(())
    }

    /// Brings in all pages of a range, as if the program had touched them.
    fn bring_in(&mut self, range: UserSlice, access: Access) -> Result<(), Stop> {
        let mut rest = range;
        while rest.length() > 0 {
            let piece = rest.first(PIECE);
            let missing = self
                .process
                .memory()
                .lacks(&mut Hardware::new(), piece, access);
            let there = match missing {
                None => piece.length(),
                Some(address) => {
                    self.fault_for_kernel(address, access)?;
                    address - rest.start()
                }
            };
            rest = rest.after(there);
            self.poll_and_check()?;
        }
        Ok(())
    }

    /// Waits for requests, see `hearth_abi::exchange`.
    pub(super) fn hearth_wait(&mut self, args: Args) -> Result<u64, Stop> {
        let [list, count, statuses, flags, micros, ..] = args;
        if count > WAIT_MAX || flags & !(WAIT_ANY | WAIT_SPIN) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut bytes = Vec::new();
        let mut requests: Vec<u32> = Vec::new();
        let length = count as usize * size_of::<u32>();
        bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
        requests
            .try_reserve_exact(count as usize)
            .map_err(|_| Errno::ENOMEM)?;
        bytes.resize(length, 0);
        self.read_user(UserSlice::new(list, bytes.len() as u64)?, &mut bytes)?;
        let (words, _) = bytes.as_chunks();
        requests.extend(words.iter().copied().map(u32::from_le_bytes));
        check_requests(self.services, &requests)?;
        let deadline = self.thread.deadline(|| match micros {
            FOREVER => Instant::FAR_FUTURE,
            micros => time::now() + Micros(micros),
        });
        let any = flags & WAIT_ANY != 0;
        loop {
            let mut pending = 0;
            let mut stuck = Vec::new();
            // Of nearly all programs none ever is.
            let may_be_stuck = micros == FOREVER && self.services.exchange().is_full();
            for (place, &request) in requests.iter().enumerate() {
                match self.services.exchange().state(request) {
                    State::Finished(status) if any => {
                        self.tell((list, statuses), (place, 0), &status)?;
                        self.services.exchange().acknowledge(request);
                        return Ok(place as u64 + 1);
                    }
                    State::Pending => {
                        pending += 1;
                        if may_be_stuck && self.services.exchange().is_stuck(request) {
                            stuck.push(request);
                        }
                    }
                    State::Finished(_) | State::Unknown => {}
                }
            }
            let looked = self.thread.progress().begun;
            let is_over = looked && time::now() >= deadline;
            if pending == 0 || is_over {
                break;
            }
            // Who waits for all waits for ever when one is stuck, who waits for any when all are:
            // only the program could help.
            let is_stuck = !stuck.is_empty() && (!any || stuck.len() == pending);
            let progress = self.thread.progress();
            progress.begun = true;
            let since = &mut progress.stuck_since;
            *since = since.filter(|_| is_stuck).or(is_stuck.then(time::now));
            if since.is_some_and(|at| time::now() >= at + STUCK_FOR) {
                self.services.exchange().end_stuck(time::now(), stuck[0]);
                continue;
            }
            let spins = flags & WAIT_SPIN != 0 || micros == 0;
            if !spins {
                return Err(Stop::news_until(deadline));
            }
            // Others have a turn in between: on this core, or, as only one core at a time is in the
            // kernel, on another where another rank may be what this one waits for.
            let is_alone = self.process.threads.len() == 1 && self.process.spec.ranks == 1;
            if !is_alone && micros != 0 {
                return Err(Stop::news_until(time::now()));
            }
            self.poll();
            self.process.check_cancelled(self.services)?;
        }
        if any {
            return Ok(0);
        }
        for (place, &request) in requests.iter().enumerate() {
            if let State::Finished(status) = self.services.exchange().state(request) {
                self.tell((list, statuses), (place, place), &status)?;
                self.services.exchange().acknowledge(request);
                // An entry that is told is none when this begins anew.
                self.thread.progress().done += 1;
            }
        }
        Ok(self.thread.progress().done)
    }

    /// Writes the status of the request at place `of.0` of the list to place `of.1` of the
    /// statuses, and zero into the list.
    fn tell(
        &mut self,
        (list, statuses): (u64, u64),
        of: (usize, usize),
        status: &Status,
    ) -> Result<(), Stop> {
        let place = |start: u64, index: usize, bytes: usize| {
            let at = start.checked_add((index * bytes) as u64);
            at.ok_or(Stop::Errno(Errno::EFAULT))
        };
        let to = place(statuses, of.1, STATUS_BYTES)?;
        self.write_bytes(to, &status.to_bytes())?;
        let entry = place(list, of.0, size_of::<u32>())?;
        self.write_bytes(entry, &[0; size_of::<u32>()])
    }

    pub(super) fn hearth_cancel(&mut self, args: Args) -> Result<u64, Stop> {
        let request = u32::try_from(args[0]).map_err(|_| Errno::EINVAL)?;
        match self.services.exchange().forget(time::now(), request) {
            true => Ok(0),
            false => Err(Errno::EINVAL.into()),
        }
    }
}

/// Every request of a list exists and stands there once, or is 0.
fn check_requests(services: &mut dyn NodeServices, requests: &[u32]) -> Result<(), Errno> {
    let mut sorted: Vec<u32> = requests.iter().copied().filter(|&r| r != 0).collect();
    sorted.sort_unstable();
    let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let exchange = services.exchange();
    let unknown = |&request: &u32| exchange.state(request) == State::Unknown;
    match twice || sorted.iter().any(unknown) {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}
