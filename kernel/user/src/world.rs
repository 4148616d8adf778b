//! Who we are among the ranks, messages between two of them, barrier, time.
//!
//! Key type: [`World`]. Neighbours: [`crate::scope`] has what goes on in the background,
//! `collective` what all ranks take part in.

use hearth_abi::exchange::{Kind, Operation, Status};

use crate::scope::{self, Scope, carry_out};
use crate::{Data, Result, call};

/// Messages of the program itself.
pub(crate) const MESSAGES: u32 = 0;

/// The ranks of this job, of which this is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    rank: u32,
    size: u32,
    spin: bool,
}

/// What a finished operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The other rank.
    pub rank: u32,
    /// The tag.
    pub tag: u32,
    /// Values received, whole ones; 0 for a send.
    pub count: usize,
}

impl Received {
    pub(crate) fn of(status: &Status, element_bytes: usize) -> Self {
        Self {
            rank: status.rank,
            tag: status.tag,
            count: (status.bytes as usize)
                .checked_div(element_bytes)
                .unwrap_or(0),
        }
    }
}

impl World {
    /// Asks the node.
    ///
    /// # Errors
    /// [`crate::Error::NotHearth`] on any other system.
    pub fn new() -> Result<Self> {
        let identity = call::identity()?;
        Ok(Self {
            rank: identity.rank,
            size: identity.size,
            spin: false,
        })
    }

    /// The same ranks; whoever waits does not halt the processor, which saves the time to wake up.
    #[must_use]
    pub fn spinning(self) -> Self {
        Self { spin: true, ..self }
    }

    /// Sets counter `counter`, 0 to 15, of this rank: whoever watches the job (`hearth overlay
    /// open`) sees the value that it has at each tick. Costs a system call, and nothing while
    /// nobody watches.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number.
    pub fn count(self, counter: u32, value: i64) -> Result<()> {
        call::count(counter, value)
    }

    pub(crate) fn spins(self) -> bool {
        self.spin
    }

    /// Number of this rank, 0 to size - 1.
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(self) -> u32 {
        self.size
    }

    /// Seconds since some point in the past of this node: for differences.
    pub fn seconds(self) -> f64 {
        call::seconds()
    }

    /// Sends `data` to rank `to`, which receives it with the same tag. Returns when `data` may be
    /// used again; of a long message that is when it has been received.
    ///
    /// # Errors
    /// [`crate::Error::Lost`], [`crate::Error::Invalid`] for a rank that the job does not have.
    pub fn send<T: Data>(self, to: u32, tag: u32, data: &[T]) -> Result<()> {
        self.scope(|scope| scope.send(to, tag, data).map(drop))
    }

    /// As [`World::send`], but returns only when a receive has taken the message, however short it
    /// is.
    ///
    /// # Errors
    /// Those of [`World::send`].
    pub fn send_synchronous<T: Data>(self, to: u32, tag: u32, data: &[T]) -> Result<()> {
        self.scope(|scope| scope.send_synchronous(to, tag, data).map(drop))
    }

    /// Receives what rank `from` sends with this tag.
    ///
    /// # Errors
    /// [`crate::Error::Lost`], [`crate::Error::TooLong`] when the message does not fit.
    pub fn receive<T: Data>(self, from: u32, tag: u32, into: &mut [T]) -> Result<Received> {
        self.receive_any(Some(from), Some(tag), into)
    }

    /// Receives the next message of a rank or of any, with a tag or with any; what it gives says
    /// whose it was. One that takes any rank's fails with [`crate::Error::Lost`] once for each rank
    /// that is lost, but not for one that has ended without an error, as long as another is left.
    ///
    /// # Errors
    /// Those of [`World::receive`].
    pub fn receive_any<T: Data>(
        self,
        from: Option<u32>,
        tag: Option<u32>,
        into: &mut [T],
    ) -> Result<Received> {
        let operation = scope::receive(MESSAGES, from, tag, into);
        // SAFETY: `into` is borrowed mutably while this runs.
        let status = unsafe { carry_out(self, &operation)? };
        Ok(Received::of(&status, size_of::<T>()))
    }

    /// Sends to one rank and receives from another at the same time.
    ///
    /// # Errors
    /// Those of [`World::send`] and [`World::receive`].
    pub fn send_receive<T: Data>(
        self,
        (to, data): (u32, &[T]),
        (from, into): (u32, &mut [T]),
        tag: u32,
    ) -> Result<()> {
        self.scope(|scope| {
            scope.receive(from, tag, into).map(drop)?;
            scope.send(to, tag, data).map(drop)
        })
    }

    /// Posts operations that go on while `body` computes. Returns when all have finished; when
    /// `body` fails or panics, those that have not are cancelled.
    ///
    /// # Errors
    /// That of `body`, else the first of an operation.
    pub fn scope<'env, R>(
        self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        scope::scope(self, MESSAGES, body)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// [`crate::Error::Lost`].
    pub fn barrier(self) -> Result<()> {
        let operation = Operation {
            kind: Kind::Barrier as u16,
            ..Operation::default()
        };
        // SAFETY: no memory is involved.
        unsafe { carry_out(self, &operation).map(drop) }
    }
}
