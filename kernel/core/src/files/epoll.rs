//! What epolls are told to watch, and what they tell.

use alloc::vec::Vec;

use super::channels::{Channel, Event, WATCHED_MAX, Watches};
use super::{ChannelId, Descriptors, Opened};
use hearth_abi::errno::Errno;
use hearth_abi::linux::epoll;

impl Descriptors {
    /// The epoll that a descriptor is; EINVAL where it is none.
    pub fn epoll(&self, fd: u64) -> Result<ChannelId, Errno> {
        match self.get(fd)?.opened {
            Opened::Channel(id, _) if matches!(self.channels.get(id), Some(Channel::Epoll(_))) => {
                Ok(id)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// epoll_ctl. EPERM where the descriptor is a file, which is always ready, EINVAL where it is
    /// an epoll.
    pub fn watch(
        &mut self,
        epoll_fd: u64,
        command: u64,
        fd: u64,
        event: Event,
    ) -> Result<(), Errno> {
        self.get(epoll_fd)?;
        let description = self.description(fd)?;
        match self.get(fd)?.opened {
            Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => {
                return Err(Errno::EPERM);
            }
            Opened::Stream(_) | Opened::Channel(..) => {}
        }
        let id = self.epoll(epoll_fd)?;
        if self.epoll(fd).is_ok() {
            return Err(Errno::EINVAL);
        }
        let is_full = self.channels.watched() >= WATCHED_MAX;
        let watches = self.watches(id)?;
        let fd = fd as u32;
        match command {
            epoll::ADD if is_full => Err(Errno::ENOSPC),
            epoll::ADD => watches.add(fd, description, event),
            epoll::MOD => watches.change(fd, description, event),
            epoll::DEL => watches.remove(fd, description),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether an epoll has anything to tell.
    pub fn has_told(&self, id: ChannelId) -> bool {
        match self.channels.get(id) {
            Some(Channel::Epoll(watches)) => {
                watches.is_ready(|description| self.state_of(description))
            }
            _ => false,
        }
    }

    /// Takes what an epoll has to tell, at most `most`.
    pub fn take_told(&mut self, id: ChannelId, most: usize) -> Vec<Event> {
        let Ok(watches) = self.watches(id) else {
            return Vec::new();
        };
        let mut watches = core::mem::take(watches);
        let told = watches.collect(most, |description| self.state_of(description));
        if let Ok(place) = self.watches(id) {
            *place = watches;
        }
        told
    }

    fn watches(&mut self, id: ChannelId) -> Result<&mut Watches, Errno> {
        match self.channels.get_mut(id) {
            Some(Channel::Epoll(watches)) => Ok(watches),
            _ => Err(Errno::EINVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Place;
    use crate::files::channels::Counter;
    use hearth_abi::linux::poll;

    const IN: Event = Event {
        bits: poll::IN,
        data: 5,
    };

    #[test]
    fn an_epoll_watches_descriptors() {
        let mut table = Descriptors::new();
        let epoll = table.open_epoll(0).unwrap();
        let id = table.epoll(epoll).unwrap();
        let counter = table.open_counter(Counter::new(0, false), 0).unwrap();
        let file = table.open(Place::File(0), 0).unwrap();
        let mut watch = |command, fd| table.watch(epoll, command, fd, IN);
        assert_eq!(watch(epoll::ADD, file), Err(Errno::EPERM));
        assert_eq!(watch(epoll::ADD, epoll), Err(Errno::EINVAL));
        assert_eq!(watch(epoll::ADD, 99), Err(Errno::EBADF));
        assert_eq!(watch(epoll::MOD, counter), Err(Errno::ENOENT));
        assert_eq!(watch(9, counter), Err(Errno::EINVAL));
        watch(epoll::ADD, counter).unwrap();
        assert_eq!(watch(epoll::ADD, counter), Err(Errno::EEXIST));
        assert!(!table.has_told(id));
        assert_eq!(table.ready(epoll).unwrap().bits(), 0);
        let Opened::Channel(counter_id, _) = table.get(counter).unwrap().opened else {
            panic!("a counter is a channel");
        };
        let Some(Channel::Counter(value)) = table.channels.get_mut(counter_id) else {
            panic!("it is one");
        };
        value.write(1).unwrap();
        assert_eq!(table.ready(epoll).unwrap().bits() & poll::IN, poll::IN);
        assert_eq!(table.take_told(id, 9), [IN]);
        assert_eq!(table.watch(counter, epoll::ADD, 0, IN), Err(Errno::EINVAL));
    }

    #[test]
    fn a_watch_goes_with_the_last_descriptor_of_its_description() {
        let mut table = Descriptors::new();
        let epoll = table.open_epoll(0).unwrap();
        let id = table.epoll(epoll).unwrap();
        let counter = table.open_counter(Counter::new(1, false), 0).unwrap();
        table.watch(epoll, epoll::ADD, counter, IN).unwrap();
        let copy = table.copy(counter, 0, false).unwrap();
        table.watch(epoll, epoll::ADD, copy, IN).unwrap();
        table.close(counter).unwrap();
        assert_eq!(table.take_told(id, 9).len(), 2, "as on Linux");
        table.close(copy).unwrap();
        assert!(!table.has_told(id));
        // Another that gets the number is not watched.
        let other = table.open_counter(Counter::new(1, false), 0).unwrap();
        assert_eq!(other, counter);
        assert!(!table.has_told(id));
        assert_eq!(
            table.watch(epoll, epoll::DEL, other, IN),
            Err(Errno::ENOENT)
        );
    }

    #[test]
    fn the_standard_streams_are_always_ready() {
        let mut table = Descriptors::new();
        let epoll = table.open_epoll(0).unwrap();
        let id = table.epoll(epoll).unwrap();
        let edge = Event {
            bits: poll::IN | epoll::EDGE,
            data: 0,
        };
        table.watch(epoll, epoll::ADD, 0, edge).unwrap();
        assert_eq!(table.take_told(id, 9).len(), 1);
        assert_eq!(table.take_told(id, 9).len(), 0);
        table.channels.used_stream(0);
        assert_eq!(table.take_told(id, 9).len(), 1);
    }

    #[test]
    fn all_epolls_together_watch_no_more_than_there_may_be() {
        let mut table = Descriptors::new();
        let counter = table.open_counter(Counter::new(1, false), 0).unwrap();
        let copies: Vec<u64> = (0..230)
            .map(|_| table.copy(counter, 0, false).unwrap())
            .collect();
        let epolls: Vec<u64> = (0..5).map(|_| table.open_epoll(0).unwrap()).collect();
        let pairs = epolls
            .iter()
            .flat_map(|epoll| copies.iter().map(move |fd| (*epoll, *fd)));
        let results: Vec<_> = pairs
            .map(|(epoll, fd)| table.watch(epoll, epoll::ADD, fd, IN))
            .collect();
        assert!(results[..WATCHED_MAX].iter().all(Result::is_ok));
        assert_eq!(results[WATCHED_MAX], Err(Errno::ENOSPC));
    }
}
