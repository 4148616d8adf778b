//! Probes, messages that are kept for a receive, synchronous sends, and operations as a binding of
//! another library posts them.
//!
//! Neighbour: [`super`] has the other functions of `hearth.h`.

use core::ffi::{c_int, c_void};

use hearth_abi::exchange::{CLAIM, FOREVER, Kind, NOW, OPERATION_BYTES, Operation, SYNCHRONOUS};

use super::{ANY_RANK, ANY_TAG, CRequest, CStatus, code, hearth_cancel, hearth_wait, patience};
use super::{post, rank, result, tell};
use crate::{Error, Result, call, message};

/// Contexts from here on are the library's own.
const CONTEXTS: u32 = 1 << 15;

/// # Safety
/// As `hearth.h` says of `hearth_issend`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_issend(
    data: *const c_void,
    bytes: usize,
    to: c_int,
    tag: u32,
    request: *mut CRequest,
) -> c_int {
    let operation = |to: u32| Operation {
        kind: Kind::Send as u16,
        flags: SYNCHRONOUS,
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
/// As `hearth.h` says of `hearth_ssend`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_ssend(data: *const c_void, bytes: usize, to: c_int, tag: u32) -> c_int {
    let mut request = 0;
    // SAFETY: the request is waited for before the caller gets its memory back.
    match unsafe { hearth_issend(data, bytes, to, tag, &mut request) } {
        // SAFETY: the request is this function's own, and no status is wanted.
        0 => unsafe { hearth_wait(&mut request, core::ptr::null_mut()) },
        error => error,
    }
}

/// A probe as C asks for it.
fn probe(from: c_int, tag: u32, flags: u16) -> Result<Operation> {
    let from = match from {
        ANY_RANK => None,
        from => Some(rank(from)?),
    };
    let tag = Some(tag).filter(|&tag| tag != ANY_TAG);
    Ok(message::probe(from, tag, flags))
}

/// Carries a probe out. Gives whether it found a message, as its request and 0, or an error.
///
/// # Safety
/// `status` may be null or is written.
unsafe fn look(operation: Result<Operation>, status: *mut CStatus) -> (CRequest, c_int) {
    let looked = operation.and_then(|operation| message::look(&operation, patience(FOREVER)));
    match looked {
        Ok(None) => (0, 0),
        Ok(Some((number, found))) => {
            // SAFETY: the caller's promise.
            let error = unsafe { tell(&found, status) };
            (if error == 0 { number } else { 0 }, error)
        }
        Err(error) => (0, code(error)),
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_probe`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_probe(from: c_int, tag: u32, status: *mut CStatus) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { look(probe(from, tag, 0), status).1 }
}

/// # Safety
/// As `hearth.h` says of `hearth_iprobe`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_iprobe(
    from: c_int,
    tag: u32,
    found: *mut c_int,
    status: *mut CStatus,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let (number, error) = look(probe(from, tag, NOW), status);
        *found = c_int::from(number != 0);
        error
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_mprobe`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_mprobe(
    from: c_int,
    tag: u32,
    message: *mut CRequest,
    status: *mut CStatus,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let (number, error) = look(probe(from, tag, CLAIM), status);
        *message = number;
        error
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_improbe`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_improbe(
    from: c_int,
    tag: u32,
    found: *mut c_int,
    message: *mut CRequest,
    status: *mut CStatus,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let (number, error) = look(probe(from, tag, CLAIM | NOW), status);
        (*found, *message) = (c_int::from(number != 0), number);
        error
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_imrecv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_imrecv(
    into: *mut c_void,
    bytes: usize,
    message: *mut CRequest,
    request: *mut CRequest,
) -> c_int {
    // SAFETY: the caller's promise.
    let number = unsafe { *message };
    let operation = Operation {
        receive: into as u64,
        receive_bytes: bytes as u64,
        ..message::claimed(number)
    };
    // SAFETY: the caller's promise.
    let error = unsafe { post(Ok(operation), request) };
    if error == 0 {
        // SAFETY: the caller's promise.
        unsafe { *message = 0 };
    }
    error
}

/// # Safety
/// As `hearth.h` says of `hearth_mrecv`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_mrecv(
    into: *mut c_void,
    bytes: usize,
    message: *mut CRequest,
    status: *mut CStatus,
) -> c_int {
    let mut request = 0;
    // SAFETY: the request is waited for before the caller gets its memory back.
    match unsafe { hearth_imrecv(into, bytes, message, &mut request) } {
        // SAFETY: the request is this function's own; the status is the caller's, or null.
        0 => unsafe { hearth_wait(&mut request, status) },
        error => error,
    }
}

/// # Safety
/// As `hearth.h` says of `hearth_mrelease`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_mrelease(message: *mut CRequest) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { hearth_cancel(message) }
}

/// # Safety
/// As `hearth.h` says of `hearth_room`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_room(memory: *mut c_void, bytes: usize) -> c_int {
    let operation = message::room(memory as u64, bytes as u64);
    // SAFETY: the caller's promise.
    result(unsafe { call::post(&operation).map(drop) })
}

/// # Safety
/// As `hearth.h` says of `hearth_post`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hearth_post(
    operation: *const [u8; OPERATION_BYTES],
    request: *mut CRequest,
) -> c_int {
    // SAFETY: the caller's promise.
    let mut bytes = unsafe { operation.read() };
    bytes[..4].copy_from_slice(&(OPERATION_BYTES as u32).to_le_bytes());
    let operation = Operation::from_bytes(&bytes).ok_or(Error::Invalid);
    let operation = operation.and_then(|operation| match operation.context {
        0..CONTEXTS => Ok(operation),
        _ => Err(Error::Invalid),
    });
    // SAFETY: the caller's promise.
    unsafe { post(operation, request) }
}
