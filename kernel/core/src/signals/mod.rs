//! The signals of a program: what it wants done about them, which its threads block, which wait.
//!
//! | item | what it is |
//! |---|---|
//! | [`Program`] | actions and waiting signals of a process; which signal a thread takes next |
//! | [`Thread`] | mask and waiting signals of a thread |
//! | [`Posted`] | signals for threads that run |
//! | [`Action`], [`Info`], [`AltStack`] | `struct sigaction`, `siginfo_t`, `stack_t` |
//! | [`frame`] | what lies on the stack of a handler, and what is believed of it afterwards |
//! | [`fault`] | the signal that a fault is |
//! | [`Timers`] | the timers of alarm, setitimer and timer_create |
//!
//! A signal is sent to the process (kill, timers) or to one thread (tkill, tgkill, faults). One of
//! the process goes to any thread that does not block it, whichever looks first.
//!
//! Neighbours: `kernel::process::signals` enters handlers and comes back from them,
//! `process::calls` has the system calls.
//!
//! Invariant: [`Program::is_due`] is true exactly while a signal waits for the process or the
//! thread that the thread does not block and the program does not ignore; at most [`WAITING_MAX`]
//! signals wait for the process, and for each thread.

mod action;
pub mod fault;
pub mod frame;
mod info;
mod posted;
mod program;
mod queue;
mod set;
mod stack;
mod thread;
mod timer;
mod timers;

pub use action::{ACTION_BYTES, Action, flag};
pub use info::{INFO_BYTES, Info, code};
pub use posted::Posted;
pub use program::{Delivery, Program};
pub use queue::{SendError, WAITING_MAX};
pub use stack::{AltStack, STACK_BYTES};
pub use thread::Thread;
pub use timer::Timer;
pub use timers::{Expiry, Notify, Posix, Timers};

#[cfg(test)]
mod tests;
