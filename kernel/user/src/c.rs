//! The functions of `hearth.h`, which says what each does. Together with what a program without
//! Rust's standard library needs - an allocator over `malloc`, a panic handler - they make
//! `libhearth.a`.
//!
//! Neighbours: `include/hearth.h` declares them, [`crate::World`] and [`crate::call`] do the work.
//!
//! Invariant: nothing here decides anything; arguments that make no sense become an error of
//! `HEARTH_EINVAL` before memory is touched.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::panic::PanicInfo;
use core::slice;
use core::sync::atomic::{AtomicI32, Ordering};

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{CHECK, FOREVER, Kind, Operation, STATUS_BYTES, Status};

use crate::call::{self, Patience};
use crate::scope::{self, carry_out};
use crate::{Combine, Error, Group, Number, Result, World};

mod messages;

unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn write(descriptor: c_int, bytes: *const c_void, count: usize) -> isize;
    fn abort() -> !;
}

struct Malloc;

// SAFETY: malloc aligns for every type of this crate, which has none that wants more than 16 bytes.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= 16 {
            // SAFETY: malloc may be called with any length.
            true => unsafe { malloc(layout.size()).cast() },
            false => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from malloc.
        unsafe { free(memory.cast()) }
    }
}

#[global_allocator]
static ALLOCATOR: Malloc = Malloc;

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    const TEXT: &[u8] = b"libhearth: a bug in the library; please report it\n";
    // SAFETY: the text is that long.
    unsafe {
        write(2, TEXT.as_ptr().cast(), TEXT.len());
        abort()
    }
}

/// Waiting does not halt the processor.
static SPIN: AtomicI32 = AtomicI32::new(0);

// The rank that the last error of a thread named, -1 for none. Each thread has its own, as it has
// its errno; a variable of threads needs Rust's standard library, or these lines.
core::arch::global_asm!(
    ".section .tdata.hearth_named, \"awT\", @progbits",
    ".p2align 2",
    ".type hearth_named_of_thread, @tls_object",
    ".size hearth_named_of_thread, 4",
    "hearth_named_of_thread: .long -1",
    ".text",
);

/// Where this thread's is.
fn named() -> *mut i32 {
    let at: *mut i32;
    // SAFETY: the word at FS:0 is the thread's own address (System V ABI for x86-64, 3.4.6); the
    // program is static, so that the variable lies at a fixed distance from it.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr fs:[0]",
            "lea {at}, [{at} + hearth_named_of_thread@tpoff]",
            at = out(reg) at,
            options(nostack, pure, readonly, preserves_flags),
        );
    }
    at
}

/// `struct hearth_status`.
#[repr(C)]
pub struct CStatus {
    error: i32,
    rank: u32,
    tag: u32,
    zero: u32,
    bytes: u64,
}

/// `HEARTH_ANY_RANK`.
const ANY_RANK: c_int = -1;
/// `HEARTH_ANY_TAG`.
const ANY_TAG: u32 = u32::MAX;

/// `hearth_request`.
type CRequest = u32;

fn world() -> Result<World> {
    let world = World::new()?;
    Ok(match SPIN.load(Ordering::Relaxed) {
        0 => world,
        _ => world.spinning(),
    })
}

fn patience(micros: u64) -> Patience {
    let spin = SPIN.load(Ordering::Relaxed) != 0;
    Patience { spin, micros }
}

/// The number that a C function returns for an error.
fn code(error: Error) -> c_int {
    let named = match error {
        Error::Lost(rank)
        | Error::Mismatch(rank)
        | Error::Withdrawn(rank)
        | Error::TooLong { rank, .. } => i32::try_from(rank).unwrap_or(-1),
        _ => -1,
    };
    // SAFETY: nobody but this thread uses it.
    unsafe { self::named().write(named) };
    -error.number()
}

fn result(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => code(error),
    }
}

/// A rank as C has it.
fn rank(rank: c_int) -> Result<u32> {
    u32::try_from(rank).map_err(|_| Error::Invalid)
}

#[unsafe(no_mangle)]
extern "C" fn hearth_rank() -> c_int {
    world().map_or_else(code, |world| world.rank() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn hearth_size() -> c_int {
    world().map_or_else(code, |world| world.size() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn hearth_wtime() -> f64 {
    call::seconds()
}

#[unsafe(no_mangle)]
extern "C" fn hearth_spin(on: c_int) {
    SPIN.store(on, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
extern "C" fn hearth_count(counter: c_int, value: i64) -> c_int {
    // A negative number becomes one that is too large.
    result(call::count(counter as u32, value))
}

#[unsafe(no_mangle)]
extern "C" fn hearth_named_rank() -> c_int {
    // SAFETY: nobody but this thread uses it.
    unsafe { named().read() }
}

#[unsafe(no_mangle)]
extern "C" fn hearth_strerror(error: c_int) -> *const c_char {
    let text: &CStr = match Error::of_number(-error) {
        _ if error == 0 => c"no error",
        Error::BadAddress => c"a buffer is not the program's memory",
        Error::Invalid => c"invalid argument",
        Error::NoTable => c"the job's connection table has not come",
        Error::TooMany => c"too many operations are outstanding, or too many messages wait here",
        Error::Cancelled => c"cancelled, here or by another rank",
        Error::NoMemory => c"no memory for a temporary buffer",
        Error::NotHearth => {
            c"this is no Hearth node: run the program with `hearth run -n RANKS ./program`"
        }
        Error::Other(number) if number == Error::Lost(0).number() => {
            c"a rank is lost (hearth_named_rank says which)"
        }
        Error::Other(number) if number == i32::from(Errno::EMSGSIZE.number()) => {
            c"a message does not fit the receive"
        }
        Error::Other(number) if number == Error::Mismatch(0).number() => {
            c"a rank sends another number of bytes than expected, or takes part in something else (hearth_named_rank says which)"
        }
        _ => c"unknown error",
    };
    text.as_ptr()
}

/// # Safety
/// As `hearth.h` says of `hearth_isend`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_isend(
    data: *const c_void,
    bytes: usize,
    to: c_int,
    tag: u32,
    request: *mut CRequest,
) -> c_int {
    let operation = |to: u32| Operation {
        kind: Kind::Send as u16,
        rank: to,
        tag,
        send: data as u64,
        send_bytes: bytes as u64,
        ..Operation::default()
    };
    let to = rank(to).and_then(|to| match tag {
        ANY_TAG => Err(Error::Invalid),
        _ => Ok(to),
    });
    // SAFETY: the caller's promise.
    unsafe { post(to.map(operation), request) }
}

/// # Safety
/// As `hearth.h` says of `hearth_irecv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_irecv(
    into: *mut c_void,
    bytes: usize,
    from: c_int,
    tag: u32,
    request: *mut CRequest,
) -> c_int {
    let from = match from {
        ANY_RANK => Ok(None),
        from => rank(from).map(Some),
    };
    let tag = Some(tag).filter(|&tag| tag != ANY_TAG);
    let operation = from.map(|from| Operation {
        receive: into as u64,
        receive_bytes: bytes as u64,
        ..scope::receive::<u8>(0, from, tag, &mut [])
    });
    // SAFETY: the caller's promise.
    unsafe { post(operation, request) }
}

/// # Safety
/// The operation's addresses are the caller's, and `request` may be written.
unsafe fn post(operation: Result<Operation>, request: *mut CRequest) -> c_int {
    // SAFETY: the caller's promise.
    let posted = operation.and_then(|operation| unsafe { call::post(&operation) });
    match posted {
        Ok(number) => {
            // SAFETY: the caller's promise.
            unsafe { *request = number };
            0
        }
        Err(error) => code(error),
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_send`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_send(data: *const c_void, bytes: usize, to: c_int, tag: u32) -> c_int {
    let mut request = 0;
    // SAFETY: the request is waited for before the caller gets its memory back.
    match unsafe { hearth_isend(data, bytes, to, tag, &mut request) } {
        // SAFETY: the request is this function's own, and no status is wanted.
        0 => unsafe { hearth_wait(&mut request, core::ptr::null_mut()) },
        error => error,
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_recv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_recv(
    into: *mut c_void,
    bytes: usize,
    from: c_int,
    tag: u32,
    status: *mut CStatus,
) -> c_int {
    let mut request = 0;
    // SAFETY: the request is waited for before the caller gets its memory back.
    match unsafe { hearth_irecv(into, bytes, from, tag, &mut request) } {
        // SAFETY: the request is this function's own; the status is the caller's, or null.
        0 => unsafe { hearth_wait(&mut request, status) },
        error => error,
    }
}

/// Takes the status of one request: tells it, and gives its error.
///
/// # Safety
/// `to` may be null or is written.
unsafe fn tell(bytes: &[u8; STATUS_BYTES], to: *mut CStatus) -> c_int {
    let status = Status::from_bytes(bytes);
    if !to.is_null() {
        let told = CStatus {
            error: status.error,
            rank: status.rank,
            tag: status.tag,
            zero: 0,
            bytes: status.bytes,
        };
        // SAFETY: the caller's promise.
        unsafe { *to = told };
    }
    match status.error {
        0 => 0,
        _ => code(Error::of_status(&status)),
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_wait`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_wait(request: *mut CRequest, status: *mut CStatus) -> c_int {
    // SAFETY: one request is a list of them.
    unsafe { hearth_waitall(1, request, status) }
}

/// # Safety
/// As `hearth.h` says of `hearth_waitall`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_waitall(
    count: usize,
    requests: *mut CRequest,
    statuses: *mut CStatus,
) -> c_int {
    const AT_ONCE: usize = 32;
    let mut first = 0;
    let mut done = 0;
    while done < count {
        let piece = (count - done).min(AT_ONCE);
        // SAFETY: the caller has `count` requests.
        let requests = unsafe { slice::from_raw_parts_mut(requests.add(done), piece) };
        let mut found = [[0; STATUS_BYTES]; AT_ONCE];
        if let Err(error) = call::wait(requests, &mut found, patience(FOREVER)) {
            return code(error);
        }
        for (index, status) in found[..piece].iter().enumerate() {
            let to = match statuses.is_null() {
                true => statuses,
                // SAFETY: the caller has as many statuses as requests.
                false => unsafe { statuses.add(done + index) },
            };
            // SAFETY: as above.
            let error = unsafe { tell(status, to) };
            first = if first == 0 { error } else { first };
        }
        done += piece;
    }
    first
}

/// # Safety
/// As `hearth.h` says of `hearth_waitany`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_waitany(
    count: usize,
    requests: *mut CRequest,
    index: *mut c_int,
    status: *mut CStatus,
) -> c_int {
    // SAFETY: the caller has `count` requests.
    let requests = unsafe { slice::from_raw_parts_mut(requests, count) };
    // SAFETY: the caller's promise.
    unsafe { take_one(requests, FOREVER, index, status) }
}

/// # Safety
/// As `hearth.h` says of `hearth_test`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_test(
    request: *mut CRequest,
    done: *mut c_int,
    status: *mut CStatus,
) -> c_int {
    let mut index = -1;
    // SAFETY: the caller has one request.
    let requests = unsafe { slice::from_raw_parts_mut(request, 1) };
    let nothing = requests[0] == 0;
    // SAFETY: the caller's promise.
    let error = unsafe { take_one(requests, 0, &mut index, status) };
    // SAFETY: the caller's promise.
    unsafe { *done = c_int::from(index == 0 || nothing) };
    error
}

/// Waits for one of the requests and takes it.
///
/// # Safety
/// `index` and `status` (or null) may be written.
unsafe fn take_one(
    requests: &mut [CRequest],
    micros: u64,
    index: *mut c_int,
    status: *mut CStatus,
) -> c_int {
    let mut found = [0; STATUS_BYTES];
    let taken = call::wait_any(requests, &mut found, patience(micros));
    // SAFETY: the caller's promise.
    unsafe {
        *index = -1;
        match taken {
            Ok(Some(at)) => {
                *index = at as c_int;
                tell(&found, status)
            }
            Ok(None) => 0,
            Err(error) => code(error),
        }
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_cancel`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_cancel(request: *mut CRequest) -> c_int {
    // SAFETY: the caller's promise.
    let number = unsafe { core::mem::take(&mut *request) };
    match number {
        0 => 0,
        _ => result(call::cancel(number)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn hearth_barrier() -> c_int {
    result(world().and_then(World::barrier))
}

/// # Safety
/// As `hearth.h` says of `hearth_alltoall`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_alltoall(
    send: *const c_void,
    receive: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller has `size` blocks of so many bytes in each.
    result(world().and_then(|world| unsafe {
        let length = bytes.checked_mul(world.size() as usize);
        let length = length.ok_or(Error::Invalid)?;
        world.all_to_all::<u8>(lent(send, length), lent_mut(receive, length))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_alltoallv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_alltoallv(
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const usize,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const usize,
) -> c_int {
    let all = Operation {
        context: crate::collective::COLLECTIVE,
        ..Operation::default()
    };
    let to = (send, send_counts, send_offsets);
    let from = (receive, receive_counts, receive_offsets);
    // SAFETY: the caller's promise.
    result(world().and_then(|world| unsafe { exchange_lists(world, all, to, from) }))
}

/// Exchanges blocks that lists name, among the ranks that the operation names.
///
/// # Safety
/// The lists have an entry for each of these ranks; the blocks are there.
unsafe fn exchange_lists(
    world: World,
    among: Operation,
    (send, send_counts, send_offsets): (*const c_void, *const usize, *const usize),
    (receive, receive_counts, receive_offsets): (*mut c_void, *const usize, *const usize),
) -> Result<()> {
    let lists = [send_counts, send_offsets, receive_counts, receive_offsets];
    if lists.iter().any(|list| list.is_null()) {
        return Err(Error::BadAddress);
    }
    let operation = Operation {
        kind: Kind::AllToAll as u16,
        send: send as u64,
        receive: receive as u64,
        send_counts: send_counts as u64,
        send_offsets: send_offsets as u64,
        receive_counts: receive_counts as u64,
        receive_offsets: receive_offsets as u64,
        ..among
    };
    // SAFETY: the lists lie as C's size_t does, which has 64 bits; the rest is the caller's
    // promise.
    unsafe { carry_out(world, &operation).map(drop) }
}

/// `struct hearth_group`.
#[repr(C)]
struct CGroup {
    ranks: *const u32,
    size: u32,
    context: u32,
    number: u32,
}

/// # Safety
/// The pointer is that of a group, whose list has so many entries, or null.
unsafe fn group<'a>(group: *const CGroup) -> Result<Group<'a>> {
    // SAFETY: the caller's promise.
    let group = unsafe { group.as_ref() }.ok_or(Error::BadAddress)?;
    if group.ranks.is_null() || group.size == 0 {
        return Err(Error::Invalid);
    }
    // SAFETY: the caller's promise.
    let ranks = unsafe { slice::from_raw_parts(group.ranks, group.size as usize) };
    Ok(world()?.group(ranks, group.context)?.at(group.number))
}

/// # Safety
/// As `hearth.h` says of `hearth_group_barrier`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_group_barrier(among: *const CGroup) -> c_int {
    // SAFETY: the caller's promise.
    result(unsafe { group(among) }.and_then(Group::barrier))
}

/// # Safety
/// As `hearth.h` says of `hearth_group_alltoall`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_group_alltoall(
    among: *const CGroup,
    send: *const c_void,
    receive: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller has a block of so many bytes in each for each rank of the group.
    result(unsafe { group(among) }.and_then(|among| unsafe {
        let length = bytes.checked_mul(among.size());
        let length = length.ok_or(Error::Invalid)?;
        among.all_to_all::<u8>(lent(send, length), lent_mut(receive, length))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_group_alltoallv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_group_alltoallv(
    among: *const CGroup,
    send: *const c_void,
    send_counts: *const usize,
    send_offsets: *const usize,
    receive: *mut c_void,
    receive_counts: *const usize,
    receive_offsets: *const usize,
) -> c_int {
    let to = (send, send_counts, send_offsets);
    let from = (receive, receive_counts, receive_offsets);
    // SAFETY: the caller's promise.
    result(unsafe {
        group(among).and_then(|among| exchange_lists(among.world(), among.operation(), to, from))
    })
}

/// # Safety
/// As `hearth.h` says of `hearth_bcast`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_bcast(data: *mut c_void, bytes: usize, root: c_int) -> c_int {
    // SAFETY: the caller has so many bytes there.
    result(world().and_then(|world| unsafe {
        let root = rank(root)?;
        check(data, bytes, world.rank() != root)?;
        world.broadcast::<u8>(root, lent_mut(data, bytes))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_gather`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_gather(
    send: *const c_void,
    receive: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    // SAFETY: the caller has the block, and the root one for each rank.
    result(world().and_then(|world| unsafe {
        let root = rank(root)?;
        let all = blocks(world, root, bytes)?;
        world.gather::<u8>(root, lent(send, bytes), lent_mut(receive, all))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_scatter`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_scatter(
    send: *const c_void,
    receive: *mut c_void,
    bytes: usize,
    root: c_int,
) -> c_int {
    // SAFETY: the caller has the block, and the root one for each rank.
    result(world().and_then(|world| unsafe {
        let root = rank(root)?;
        let all = blocks(world, root, bytes)?;
        world.scatter::<u8>(root, lent(send, all), lent_mut(receive, bytes))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_allgather`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_allgather(
    send: *const c_void,
    receive: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller has the block, and room for one of each rank.
    result(world().and_then(|world| unsafe {
        let all = blocks(world, world.rank(), bytes)?;
        world.all_gather::<u8>(lent(send, bytes), lent_mut(receive, all))
    }))
}

/// # Safety
/// As `hearth.h` says of `hearth_reduce`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_reduce(
    values: *mut c_void,
    count: usize,
    kind: c_int,
    how: c_int,
    root: c_int,
) -> c_int {
    // SAFETY: the caller has so many values there.
    result(rank(root).and_then(|root| unsafe { reduce(values, count, kind, how, Some(root)) }))
}

/// # Safety
/// As `hearth.h` says of `hearth_allreduce`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_allreduce(
    values: *mut c_void,
    count: usize,
    kind: c_int,
    how: c_int,
) -> c_int {
    // SAFETY: the caller has so many values there.
    result(unsafe { reduce(values, count, kind, how, None) })
}

/// To `root`, or to all.
///
/// # Safety
/// There are `count` values of the kind at `values`.
unsafe fn reduce(
    values: *mut c_void,
    count: usize,
    kind: c_int,
    how: c_int,
    root: Option<u32>,
) -> Result<()> {
    let how = match how {
        1 => Combine::Sum,
        2 => Combine::Product,
        3 => Combine::Minimum,
        4 => Combine::Maximum,
        _ => return Err(Error::Invalid),
    };
    /// # Safety
    /// There are `count` values at `values`.
    unsafe fn typed<T: Number>(
        values: *mut c_void,
        count: usize,
        how: Combine,
        root: Option<u32>,
    ) -> Result<()> {
        let world = world()?;
        if !values.addr().is_multiple_of(align_of::<T>()) {
            return Err(Error::Invalid);
        }
        let bytes = count.checked_mul(size_of::<T>()).ok_or(Error::Invalid)?;
        let is_written = root.is_none_or(|root| root == world.rank());
        check(values, bytes, is_written)?;
        // SAFETY: the caller's promise; the alignment was looked at.
        let values = unsafe { lent_mut(values, count) };
        match root {
            Some(root) => world.reduce::<T>(how, root, values),
            None => world.all_reduce::<T>(how, values),
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            1 => typed::<i32>(values, count, how, root),
            2 => typed::<u32>(values, count, how, root),
            3 => typed::<i64>(values, count, how, root),
            4 => typed::<u64>(values, count, how, root),
            5 => typed::<f32>(values, count, how, root),
            6 => typed::<f64>(values, count, how, root),
            _ => Err(Error::Invalid),
        }
    }
}

/// Bytes of a block for each rank, at the root; nothing elsewhere.
fn blocks(world: World, root: u32, bytes: usize) -> Result<usize> {
    match world.rank() == root {
        true => bytes
            .checked_mul(world.size() as usize)
            .ok_or(Error::Invalid),
        false => Ok(0),
    }
}

/// Memory is the program's, to be written or only to be read: what is wrong is an error before
/// anything else has begun.
fn check(data: *const c_void, bytes: usize, is_written: bool) -> Result<()> {
    let (address, bytes) = (data as u64, bytes as u64);
    let mut operation = Operation {
        flags: CHECK,
        ..Operation::default()
    };
    if is_written {
        operation.kind = Kind::Receive as u16;
        (operation.receive, operation.receive_bytes) = (address, bytes);
    } else {
        operation.kind = Kind::Send as u16;
        (operation.send, operation.send_bytes) = (address, bytes);
    }
    // SAFETY: it only looks.
    unsafe { call::post(&operation).map(drop) }
}

/// # Safety
/// There are so many values at an aligned address, or none.
unsafe fn lent<'a, T>(data: *const c_void, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { slice::from_raw_parts(data.cast(), count) },
    }
}

/// # Safety
/// There are so many values at an aligned address, which nobody else uses, or none.
unsafe fn lent_mut<'a, T>(data: *mut c_void, count: usize) -> &'a mut [T] {
    match count {
        0 => &mut [],
        // SAFETY: the caller's promise.
        _ => unsafe { slice::from_raw_parts_mut(data.cast(), count) },
    }
}
