//! The system calls of Hearth that this library is made of; docs/abi.md says what each does.
//!
//! Neighbours: `hearth_abi::exchange` has the structures, everything else here calls these
//! functions.
//!
//! Invariant: nothing else in this crate enters the kernel.

use core::sync::atomic::{AtomicU32, Ordering};

use hearth_abi::exchange::{
    FOREVER, IDENTITY_BYTES, Identity, Operation, STATUS_BYTES, Status, WAIT_ANY, WAIT_SPIN,
};
use hearth_abi::sysno;

use crate::{Error, Result};

/// Collective operations of messages that this program has begun.
static COLLECTIVES: AtomicU32 = AtomicU32::new(0);

/// Requests that stay outstanding until the program ends, see [`may_stay`].
static STAYING: AtomicU32 = AtomicU32::new(0);

/// CLOCK_MONOTONIC.
const MONOTONIC: usize = 1;

/// How long [`wait`] waits, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Without halting the processor.
    pub spin: bool,
    /// At most so many microseconds.
    pub micros: u64,
}

impl Patience {
    /// Until all have finished.
    pub const ALL: Self = Self {
        spin: false,
        micros: FOREVER,
    };

    fn flags(self) -> u64 {
        match self.spin {
            true => WAIT_SPIN,
            false => 0,
        }
    }
}

/// Who the program is.
pub fn identity() -> Result<Identity> {
    let mut bytes = [0; IDENTITY_BYTES];
    // SAFETY: the kernel writes an identity and nothing else.
    unsafe {
        call(
            sysno::HEARTH_SELF,
            [bytes.as_mut_ptr() as usize, 0, 0, 0, 0],
        )?
    };
    Ok(Identity::from_bytes(&bytes))
}

/// Posts an operation; gives the number of the request, which is not 0.
///
/// # Safety
/// What the operation's addresses name must stay readable, or writable and otherwise unused, until
/// the request has been waited for or cancelled.
pub unsafe fn post(operation: &Operation) -> Result<u32> {
    let bytes = operation.to_bytes();
    // SAFETY: the kernel reads the structure; the rest is the caller's promise.
    let number = unsafe {
        call(
            sysno::HEARTH_POST,
            [bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )?
    };
    Ok(number as u32)
}

/// Waits for all requests. Finished ones become 0, with their status in the same place; zeros are
/// passed over. Gives how many finished in this call: fewer than there are when the time is over.
pub fn wait(
    requests: &mut [u32],
    statuses: &mut [[u8; STATUS_BYTES]],
    patience: Patience,
) -> Result<usize> {
    assert!(
        statuses.len() >= requests.len(),
        "a status for each request"
    );
    let flags = patience.flags();
    let arguments = [
        requests.as_mut_ptr() as usize,
        requests.len(),
        statuses.as_mut_ptr() as usize,
        flags as usize,
        patience.micros as usize,
    ];
    // SAFETY: both slices have the lengths given; buffers of operations are what `post` was
    // promised.
    let finished = unsafe { call(sysno::HEARTH_WAIT, arguments)? };
    Ok(finished)
}

/// Waits for one of the requests, which becomes 0, and gives its place and status; `None` when the
/// time is over or there is none but zeros.
pub fn wait_any(
    requests: &mut [u32],
    status: &mut [u8; STATUS_BYTES],
    patience: Patience,
) -> Result<Option<usize>> {
    let arguments = [
        requests.as_mut_ptr() as usize,
        requests.len(),
        status.as_mut_ptr() as usize,
        (patience.flags() | WAIT_ANY) as usize,
        patience.micros as usize,
    ];
    // SAFETY: the slice has the length given, and one status is written; buffers of operations are
    // what `post` was promised.
    let place = unsafe { call(sysno::HEARTH_WAIT, arguments)? };
    Ok(place.checked_sub(1))
}

/// Takes a request back: when this returns the kernel does not touch its memory any more.
pub fn cancel(request: u32) -> Result<()> {
    // SAFETY: the call has no pointer.
    unsafe { call(sysno::HEARTH_CANCEL, [request as usize, 0, 0, 0, 0])? };
    Ok(())
}

/// Sets a counter of this program, which the node's monitoring sees.
pub fn count(counter: u32, value: i64) -> Result<()> {
    // SAFETY: the call has no pointer.
    unsafe {
        call(
            sysno::HEARTH_COUNT,
            [counter as usize, value as usize, 0, 0, 0],
        )?
    };
    Ok(())
}

/// How many collective operations of messages have begun.
pub fn collectives() -> u32 {
    COLLECTIVES.load(Ordering::Relaxed)
}

/// Another one begins.
pub fn collective_begins() {
    COLLECTIVES.fetch_add(1, Ordering::Relaxed);
}

/// Whether one more request may stay outstanding until the program ends, of which nobody knows any
/// more, where these are at most so many; counts it.
pub fn may_stay(most: u32) -> bool {
    let next = |staying| (staying < most).then_some(staying + 1);
    STAYING
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .is_ok()
}

/// Seconds since the node's start.
pub fn seconds() -> f64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes a timespec of two words. It cannot fail with a clock that exists.
    let _ = unsafe {
        call(
            sysno::CLOCK_GETTIME,
            [MONOTONIC, time.as_mut_ptr() as usize, 0, 0, 0],
        )
    };
    time[0] as f64 + time[1] as f64 * 1e-9
}

/// The status that a call of [`wait`] has left.
pub fn status(bytes: &[u8; STATUS_BYTES]) -> Result<Status> {
    let status = Status::from_bytes(bytes);
    match status.error {
        0 => Ok(status),
        _ => Err(Error::of_status(&status)),
    }
}

/// # Safety
/// What the call does with its pointers must be allowed.
unsafe fn call(number: u64, arguments: [usize; 5]) -> Result<usize> {
    let [a, b, c, d, e] = arguments;
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 and what the caller vouches for.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Error::of_number(-result as i32)),
    }
}
