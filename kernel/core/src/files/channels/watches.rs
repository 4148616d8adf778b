//! The descriptors that an epoll watches.
//!
//! As on Linux a watch is of a descriptor's number together with the description behind it, and
//! goes with the description. One that tells of edges ([`epoll::EDGE`]) tells of a descriptor that
//! is ready once it is set or something has come about since it told last; any other as long as it
//! is ready.
//!
//! Source: epoll_ctl(2), epoll(7) and Linux, `fs/eventpoll.c`.

use alloc::vec::Vec;

use super::Edges;
use crate::files::ready::Ready;
use hearth_abi::errno::Errno;
use hearth_abi::linux::epoll;

/// Watches of one epoll.
pub const WATCHES_MAX: usize = 256;

/// What an epoll is to do about a descriptor: `struct epoll_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What is wanted, or has come; with flags.
    pub bits: u32,
    /// Told along.
    pub data: u64,
}

/// Bytes of `struct epoll_event`, which has no padding on x86-64.
pub const EVENT_BYTES: usize = 12;

impl Event {
    /// From its bytes.
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES]) -> Self {
        let [a, b, c, d, data @ ..] = *bytes;
        Self {
            bits: u32::from_le_bytes([a, b, c, d]),
            data: u64::from_le_bytes(data),
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..4].copy_from_slice(&self.bits.to_le_bytes());
        bytes[4..].copy_from_slice(&self.data.to_le_bytes());
        bytes
    }
}

/// What is known of a description.
pub type State = (Ready, Edges);

/// A descriptor that is watched.
#[derive(Clone, Copy, Debug)]
struct Watch {
    fd: u32,
    description: u16,
    event: Event,
    /// What had come about when it was looked at last.
    seen: Option<Edges>,
    /// It has told once, and is not to tell again.
    is_spent: bool,
}

impl Watch {
    /// What it would tell now.
    fn tells(&self, (ready, edges): State) -> Option<Event> {
        let wanted = Ready::from_bits(self.event.bits);
        let ready = ready.among(wanted);
        let is_news = self.seen.is_none_or(|seen| edges.is_news(&seen, wanted));
        let is_due = !self.has(epoll::EDGE) || is_news;
        let tells = !self.is_spent && !ready.is_none() && is_due;
        tells.then_some(Event {
            bits: ready.bits(),
            ..self.event
        })
    }

    const fn has(&self, flag: u32) -> bool {
        self.event.bits & flag != 0
    }
}

/// The watches of an epoll.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    list: Vec<Watch>,
    /// Which of them is asked first: in turn, so that none waits for ever behind others.
    first: usize,
}

impl Watches {
    /// Watches a descriptor: EEXIST where it is watched, ENOSPC where there are too many.
    pub fn add(&mut self, fd: u32, description: u16, event: Event) -> Result<(), Errno> {
        if self.find(fd, description).is_some() {
            return Err(Errno::EEXIST);
        }
        if self.list.len() >= WATCHES_MAX {
            return Err(Errno::ENOSPC);
        }
        let room = self.list.try_reserve(1);
        room.map_err(|_| Errno::ENOMEM)?;
        self.list.push(Watch {
            fd,
            description,
            event,
            seen: None,
            is_spent: false,
        });
        Ok(())
    }

    /// Watches a descriptor for something else; ENOENT where it is not watched.
    pub fn change(&mut self, fd: u32, description: u16, event: Event) -> Result<(), Errno> {
        let index = self.find(fd, description).ok_or(Errno::ENOENT)?;
        let watch = &mut self.list[index];
        (watch.event, watch.seen, watch.is_spent) = (event, None, false);
        Ok(())
    }

    /// Watches a descriptor no more; ENOENT where it is not watched.
    pub fn remove(&mut self, fd: u32, description: u16) -> Result<(), Errno> {
        let index = self.find(fd, description).ok_or(Errno::ENOENT)?;
        self.list.remove(index);
        Ok(())
    }

    /// A description is no more.
    pub fn forget(&mut self, description: u16) {
        self.list.retain(|watch| watch.description != description);
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.list.len()
    }

    /// Whether one tells anything.
    pub fn is_ready(&self, state: impl Fn(u16) -> State) -> bool {
        let tells = |watch: &Watch| watch.tells(state(watch.description)).is_some();
        self.list.iter().any(tells)
    }

    /// Takes what watches tell, at most `most` of them.
    pub fn collect(&mut self, most: usize, state: impl Fn(u16) -> State) -> Vec<Event> {
        let count = self.list.len();
        let mut told = Vec::new();
        for step in 0..count {
            let index = (self.first + step) % count;
            if told.len() == most {
                self.first = index;
                break;
            }
            let watch = &mut self.list[index];
            let state = state(watch.description);
            let event = watch.tells(state);
            watch.is_spent |= event.is_some() && watch.has(epoll::ONESHOT);
            watch.seen = Some(state.1);
            told.extend(event);
        }
        told
    }

    fn find(&self, fd: u32, description: u16) -> Option<usize> {
        let is_it = |watch: &Watch| watch.fd == fd && watch.description == description;
        self.list.iter().position(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_abi::linux::poll;

    const READABLE: Ready = Ready::READ;

    fn event(bits: u32, data: u64) -> Event {
        Event { bits, data }
    }

    fn edges(read: u64) -> Edges {
        Edges {
            read,
            ..Edges::default()
        }
    }

    /// What a watch of one descriptor tells.
    fn told(watches: &mut Watches, state: State) -> Vec<u32> {
        let told = watches.collect(9, |_| state);
        told.iter().map(|event| event.bits).collect()
    }

    #[test]
    fn what_is_ready_is_told_as_long_as_it_is() {
        let mut watches = Watches::default();
        watches.add(3, 3, event(poll::IN, 7)).unwrap();
        assert_eq!(watches.add(3, 3, event(0, 0)), Err(Errno::EEXIST));
        assert!(told(&mut watches, (Ready::WRITE, edges(0))).is_empty());
        for _ in 0..2 {
            let found = watches.collect(1, |_| (READABLE, edges(1)));
            assert_eq!(found, [event(poll::IN, 7)]);
        }
        watches.remove(3, 3).unwrap();
        assert_eq!(watches.remove(3, 3), Err(Errno::ENOENT));
        assert!(told(&mut watches, (READABLE, edges(1))).is_empty());
    }

    #[test]
    fn an_edge_is_told_once() {
        let mut watches = Watches::default();
        let bits = poll::IN | poll::OUT | epoll::EDGE;
        watches.add(3, 3, event(bits, 0)).unwrap();
        assert_eq!(told(&mut watches, (READABLE, edges(1))), [poll::IN]);
        assert!(told(&mut watches, (READABLE, edges(1))).is_empty());
        assert_eq!(told(&mut watches, (READABLE, edges(2))), [poll::IN]);
        // What has gone before anybody looked is not told later.
        assert!(told(&mut watches, (Ready::NONE, edges(3))).is_empty());
        assert!(told(&mut watches, (READABLE, edges(3))).is_empty());
        watches.change(3, 3, event(bits, 0)).unwrap();
        assert_eq!(told(&mut watches, (READABLE, edges(3))), [poll::IN]);
    }

    #[test]
    fn one_who_wants_writes_is_not_told_of_reads() {
        let mut watches = Watches::default();
        let bits = poll::OUT | epoll::EDGE;
        watches.add(3, 3, event(bits, 0)).unwrap();
        let both = READABLE.or(Ready::WRITE);
        assert_eq!(told(&mut watches, (both, edges(0))), [poll::OUT]);
        assert!(told(&mut watches, (both, edges(1))).is_empty());
        let hung_up = Edges { end: 1, ..edges(1) };
        let state = (both.or(Ready::HANGUP), hung_up);
        assert_eq!(told(&mut watches, state), [poll::OUT | poll::HUP]);
    }

    #[test]
    fn one_shot_is_told_once_until_it_is_changed() {
        let mut watches = Watches::default();
        let bits = poll::IN | epoll::ONESHOT;
        watches.add(3, 3, event(bits, 0)).unwrap();
        assert_eq!(told(&mut watches, (READABLE, edges(1))), [poll::IN]);
        assert!(told(&mut watches, (READABLE.or(Ready::HANGUP), edges(2))).is_empty());
        watches.change(3, 3, event(bits, 0)).unwrap();
        assert_eq!(told(&mut watches, (READABLE, edges(2))), [poll::IN]);
    }

    #[test]
    fn all_have_their_turn() {
        let mut watches = Watches::default();
        for fd in 0..5 {
            watches
                .add(fd, fd as u16, event(poll::IN, fd.into()))
                .unwrap();
        }
        let mut seen = Vec::new();
        for _ in 0..5 {
            let told = watches.collect(2, |_| (READABLE, edges(0)));
            assert_eq!(told.len(), 2);
            seen.extend(told.iter().map(|event| event.data));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        watches.forget(2);
        assert_eq!(watches.collect(9, |_| (READABLE, edges(0))).len(), 4);
    }

    #[test]
    fn there_are_not_too_many() {
        let mut watches = Watches::default();
        for fd in 0..WATCHES_MAX as u32 {
            watches.add(fd, 0, event(0, 0)).unwrap();
        }
        assert_eq!(watches.add(9999, 0, event(0, 0)), Err(Errno::ENOSPC));
        assert_eq!(watches.count(), WATCHES_MAX);
    }

    #[test]
    fn bytes_are_linux_s() {
        let event = event(0x8000_0001, 0x1122_3344_5566_7788);
        let bytes = event.to_bytes();
        assert_eq!(bytes[..6], [1, 0, 0, 0x80, 0x88, 0x77]);
        assert_eq!(Event::from_bytes(&bytes), event);
    }
}
