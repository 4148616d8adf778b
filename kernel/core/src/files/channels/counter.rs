//! An event counter (eventfd): a number that writes add to and reads take.

use super::Edges;
use crate::files::ready::Ready;
use hearth_abi::errno::Errno;

/// The largest value: one less than the number that cannot be written.
const VALUE_MAX: u64 = u64::MAX - 1;

/// An event counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    value: u64,
    /// A read takes one.
    takes_one: bool,
    edges: Edges,
}

impl Counter {
    /// One with this value.
    pub fn new(value: u32, takes_one: bool) -> Self {
        Self {
            value: value.into(),
            takes_one,
            edges: Edges::default(),
        }
    }

    /// Takes the value, or one of it; EAGAIN where it is 0.
    pub fn read(&mut self) -> Result<u64, Errno> {
        let taken = match (self.value, self.takes_one) {
            (0, _) => return Err(Errno::EAGAIN),
            (_, true) => 1,
            (value, false) => value,
        };
        self.value -= taken;
        self.edges.write += 1;
        Ok(taken)
    }

    /// Adds to the value; EAGAIN where that is too much now, EINVAL where it always is.
    pub fn write(&mut self, more: u64) -> Result<(), Errno> {
        if more > VALUE_MAX {
            return Err(Errno::EINVAL);
        }
        if more > VALUE_MAX - self.value {
            return Err(Errno::EAGAIN);
        }
        self.value += more;
        self.edges.read += 1;
        Ok(())
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        let read = Ready::READ.when(self.value > 0);
        read.or(Ready::WRITE.when(self.value < VALUE_MAX))
    }

    /// What has come about.
    pub const fn edges(&self) -> Edges {
        self.edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_all_or_one() {
        let mut counter = Counter::new(3, false);
        counter.write(4).unwrap();
        assert_eq!(counter.read(), Ok(7));
        assert_eq!(counter.read(), Err(Errno::EAGAIN));
        let mut semaphore = Counter::new(2, true);
        assert_eq!([semaphore.read(), semaphore.read()], [Ok(1), Ok(1)]);
        assert_eq!(semaphore.read(), Err(Errno::EAGAIN));
    }

    #[test]
    fn the_largest_value_is_one_less_than_the_largest_number() {
        let mut counter = Counter::new(0, false);
        assert_eq!(counter.write(u64::MAX), Err(Errno::EINVAL));
        assert_eq!(counter.ready(), Ready::WRITE);
        counter.write(u64::MAX - 2).unwrap();
        assert_eq!(counter.write(2), Err(Errno::EAGAIN));
        assert_eq!(counter.ready(), Ready::READ.or(Ready::WRITE));
        counter.write(1).unwrap();
        assert_eq!(counter.ready(), Ready::READ);
        let edges = counter.edges();
        assert_eq!(counter.read(), Ok(u64::MAX - 1));
        assert_ne!(counter.edges().write, edges.write);
        assert_eq!(counter.edges().read, edges.read);
    }
}
