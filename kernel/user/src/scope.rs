//! Operations that go on while the program computes.
//!
//! Key types: [`Scope`], in which operations are posted, made by [`crate::World::scope`];
//! [`Request`], one of them.
//!
//! Invariant: when a scope has ended, in whatever way, none of its operations is outstanding.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::marker::PhantomData;
use core::mem::size_of_val;

use hearth_abi::exchange::{ANY_RANK, ANY_TAG, Kind, Operation, STATUS_BYTES, SYNCHRONOUS, Status};

use crate::call::{self, Patience};
use crate::{Data, Received, Result, World};

/// Requests waited for with one call.
const AT_ONCE: usize = 32;

/// Operations posted here have finished when [`crate::World::scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    world: World,
    context: u32,
    /// Numbers of requests that have not been waited for.
    posted: RefCell<Vec<u32>>,
    /// As of `std::thread::Scope`: neither lifetime may shrink or grow.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// An operation that was posted. The scope waits for it at its end, unless somebody does before.
#[derive(Debug)]
pub struct Request<'scope> {
    number: u32,
    element_bytes: usize,
    scope: PhantomData<&'scope ()>,
}

/// Ends what a scope leaves outstanding.
struct Cancel<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for Cancel<'_, '_, '_> {
    fn drop(&mut self) {
        for number in self.0.posted.borrow_mut().drain(..) {
            // One that has finished is no error here; afterwards the kernel holds no buffer of it.
            let _ = call::cancel(number);
        }
    }
}

/// Runs `body` with a scope in `context`.
pub(crate) fn scope<'env, R>(
    world: World,
    context: u32,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let scope = Scope {
        world,
        context,
        posted: RefCell::new(Vec::new()),
        scope: PhantomData,
        env: PhantomData,
    };
    let cancel = Cancel(&scope);
    let result = body(&scope)?;
    scope.finish()?;
    drop(cancel);
    Ok(result)
}

/// A receive, as the kernel is asked for it.
pub(crate) fn receive<T: Data>(
    context: u32,
    from: Option<u32>,
    tag: Option<u32>,
    into: &mut [T],
) -> Operation {
    let any_rank = if from.is_none() { ANY_RANK } else { 0 };
    let any_tag = if tag.is_none() { ANY_TAG } else { 0 };
    Operation {
        kind: Kind::Receive as u16,
        flags: any_rank | any_tag,
        rank: from.unwrap_or(0),
        context,
        tag: tag.unwrap_or(0),
        receive: into.as_mut_ptr() as u64,
        receive_bytes: size_of_val(into) as u64,
        ..Operation::default()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins to send `data` to rank `to`; that rank receives it with the same tag.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a rank that the job does not have, [`crate::Error::TooMany`].
    pub fn send<T: Data>(
        &'scope self,
        to: u32,
        tag: u32,
        data: &'scope [T],
    ) -> Result<Request<'scope>> {
        self.send_with(to, tag, data, 0)
    }

    /// As [`Scope::send`], but has finished only when a receive has taken the message, however
    /// short it is.
    ///
    /// # Errors
    /// Those of [`Scope::send`].
    pub fn send_synchronous<T: Data>(
        &'scope self,
        to: u32,
        tag: u32,
        data: &'scope [T],
    ) -> Result<Request<'scope>> {
        self.send_with(to, tag, data, SYNCHRONOUS)
    }

    fn send_with<T: Data>(
        &'scope self,
        to: u32,
        tag: u32,
        data: &'scope [T],
        flags: u16,
    ) -> Result<Request<'scope>> {
        let operation = Operation {
            kind: Kind::Send as u16,
            flags,
            rank: to,
            context: self.context,
            tag,
            send: data.as_ptr() as u64,
            send_bytes: size_of_val(data) as u64,
            ..Operation::default()
        };
        // SAFETY: `data` is borrowed until the scope ends, which waits for the request or cancels
        // it.
        unsafe { self.post(&operation, size_of::<T>()) }
    }

    /// Begins to receive what rank `from` sends with this tag; a shorter message leaves the rest of
    /// `into` as it is.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a rank that the job does not have, [`crate::Error::TooMany`].
    pub fn receive<T: Data>(
        &'scope self,
        from: u32,
        tag: u32,
        into: &'scope mut [T],
    ) -> Result<Request<'scope>> {
        self.receive_any(Some(from), Some(tag), into)
    }

    /// Begins to receive the next message of a rank or of any, with a tag or with any; [`Received`]
    /// says whose it was. One that takes any rank's fails with [`crate::Error::Lost`] once for each
    /// rank that is lost, but not for one that has ended without an error, as long as another is
    /// left.
    ///
    /// # Errors
    /// Those of [`Scope::receive`].
    pub fn receive_any<T: Data>(
        &'scope self,
        from: Option<u32>,
        tag: Option<u32>,
        into: &'scope mut [T],
    ) -> Result<Request<'scope>> {
        let operation = receive(self.context, from, tag, into);
        // SAFETY: `into` is borrowed mutably until the scope ends, which waits for the request or
        // cancels it.
        unsafe { self.post(&operation, size_of::<T>()) }
    }

    /// Waits for one operation. What it says is told once: the end of the scope does not fail for
    /// it again.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn wait(&self, request: Request<'scope>) -> Result<Received> {
        let spin = self.world.spins();
        let status = wait_one(
            request.number,
            Patience {
                spin,
                ..Patience::ALL
            },
        )?;
        self.forget(request.number);
        let status = call::status(&status)?;
        Ok(Received::of(&status, request.element_bytes))
    }

    /// Waits for one of several operations: takes it from the list and gives its place there and
    /// its result, `None` for an empty list.
    ///
    /// # Errors
    /// Why the operation failed, which is taken from the list too.
    pub fn wait_any(
        &self,
        requests: &mut Vec<Request<'scope>>,
    ) -> Result<Option<(usize, Received)>> {
        let mut numbers = Vec::new();
        numbers
            .try_reserve_exact(requests.len())
            .map_err(|_| crate::Error::NoMemory)?;
        numbers.extend(requests.iter().map(|request| request.number));
        let mut status = [0; STATUS_BYTES];
        let patience = Patience {
            spin: self.world.spins(),
            ..Patience::ALL
        };
        let Some(place) = call::wait_any(&mut numbers, &mut status, patience)? else {
            return Ok(None);
        };
        let request = requests.remove(place);
        self.forget(request.number);
        let status = call::status(&status)?;
        Ok(Some((place, Received::of(&status, request.element_bytes))))
    }

    /// Whether one operation has finished: its result, or the request back.
    ///
    /// # Errors
    /// Why the operation failed.
    pub fn test(
        &self,
        request: Request<'scope>,
    ) -> Result<core::result::Result<Received, Request<'scope>>> {
        let now = Patience {
            micros: 0,
            ..Patience::ALL
        };
        let mut statuses = [[0; STATUS_BYTES]];
        if call::wait(&mut [request.number], &mut statuses, now)? == 0 {
            return Ok(Err(request));
        }
        self.forget(request.number);
        let status = call::status(&statuses[0])?;
        Ok(Ok(Received::of(&status, request.element_bytes)))
    }

    /// Takes an operation back; one that has finished is forgotten.
    pub(crate) fn cancel(&self, request: Request<'scope>) {
        // It has not been waited for, so the kernel knows it.
        let _ = call::cancel(request.number);
        self.forget(request.number);
    }

    /// # Safety
    /// What the operation's addresses name must be lent to this scope.
    unsafe fn post(&self, operation: &Operation, element_bytes: usize) -> Result<Request<'scope>> {
        let mut posted = self.posted.borrow_mut();
        posted.try_reserve(1).map_err(|_| crate::Error::NoMemory)?;
        // SAFETY: the caller's promise.
        let number = unsafe { call::post(operation)? };
        posted.push(number);
        Ok(Request {
            number,
            element_bytes,
            scope: PhantomData,
        })
    }

    fn forget(&self, number: u32) {
        self.posted.borrow_mut().retain(|&posted| posted != number);
    }

    /// Waits for all that is left; fails with the first error, when all have finished.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut left = self.posted.borrow_mut();
        let mut result = Ok(());
        let patience = Patience {
            spin: self.world.spins(),
            ..Patience::ALL
        };
        while !left.is_empty() {
            let count = left.len().min(AT_ONCE);
            let mut statuses = [[0; STATUS_BYTES]; AT_ONCE];
            call::wait(&mut left[..count], &mut statuses, patience)?;
            for status in &statuses[..count] {
                if let (Ok(()), Err(error)) = (result, call::status(status)) {
                    result = Err(error);
                }
            }
            left.retain(|&number| number != 0);
        }
        result
    }
}

/// Waits until one request has finished.
pub(crate) fn wait_one(number: u32, patience: Patience) -> Result<[u8; STATUS_BYTES]> {
    let mut statuses = [[0; STATUS_BYTES]];
    call::wait(&mut [number], &mut statuses, patience)?;
    Ok(statuses[0])
}

/// Posts an operation and waits for it.
///
/// # Safety
/// What its addresses name must be readable, or writable and otherwise unused, while this runs.
pub(crate) unsafe fn carry_out(world: World, operation: &Operation) -> Result<Status> {
    // SAFETY: the caller's promise.
    let status = unsafe { outcome(world, operation)? };
    match status.error {
        0 => Ok(status),
        _ => Err(crate::Error::of_status(&status)),
    }
}

/// Posts an operation and waits for it: how it ended.
///
/// # Safety
/// As of [`carry_out`].
pub(crate) unsafe fn outcome(world: World, operation: &Operation) -> Result<Status> {
    // SAFETY: the caller's promise; the request is finished or cancelled when this returns.
    let number = unsafe { call::post(operation)? };
    finished(world, number)
}

/// Waits for a request: how it ended. When this fails it is cancelled.
pub(crate) fn finished(world: World, number: u32) -> Result<Status> {
    let patience = Patience {
        spin: world.spins(),
        ..Patience::ALL
    };
    match wait_one(number, patience) {
        Ok(status) => Ok(Status::from_bytes(&status)),
        Err(error) => {
            let _ = call::cancel(number);
            Err(error)
        }
    }
}
