//! Handlers of signals: how a program enters one, and how it comes back.
//!
//! Neighbours: `kernel_core::signals` says which signal is next, what lies in a frame and what is
//! believed of it; [`super::run_loop`] has signals delivered before the program runs on,
//! [`super::calls`] has the system calls.
//!
//! Invariant: a frame is written and read through the program's own page table. A program that has
//! no room for one, or comes back by one that is not there, is ended; whatever it has put there it
//! gets as its own registers in ring 3 and nothing more.

use alloc::boxed::Box;

use hearth_abi::errno::Errno;
use hearth_abi::linux::Signal;
use kernel_core::addr::USER_END;
use kernel_core::fault::Cause;
use kernel_core::program::UserSlice;
use kernel_core::signals::frame::{
    CONTEXT_AT, FRAME_BYTES, Fault, Frame, INFO_AT, LEGACY_BYTES, Place, Restored,
};
use kernel_core::signals::{Action, AltStack, Delivery, Info, SendError, fault, flag};
use kernel_core::threads::{CoreSet, State, Tid};

use super::Process;
use super::current::Current;
use super::ending::{Crashed, Ending, Stop};
use super::thread::Thread;
use crate::arch::fpu::{self, FpuState};
use crate::arch::gdt;
use crate::process::services::NodeServices;
use crate::time;

/// Flags that are off when a handler begins: single step, direction, resume.
const FLAGS_OFF: u64 = 1 << 8 | 1 << 10 | 1 << 16;
/// Bytes of the address that a handler has returned by.
const RETURN_BYTES: u64 = 8;

impl Current<'_> {
    /// Has the thread enter the handlers of the signals that are due; the last of them runs first.
    /// Fails when one ends the program.
    #[inline]
    pub(super) fn deliver(&mut self) -> Result<(), Stop> {
        let delivered = match self.is_signal_due() || self.thread.delivering.is_some() {
            true => self.deliver_all(),
            false => Ok(()),
        };
        // Nothing takes any, or adds some, before the thread comes back.
        let waiting = self.thread.signals.waiting();
        self.process.cores.set_signals(self.core, waiting);
        delivered
    }

    #[cold]
    fn deliver_all(&mut self) -> Result<(), Stop> {
        loop {
            let Some(delivery) = self.thread.delivering.or_else(|| {
                let signals = &mut self.process.signals;
                signals.next_for(&mut self.thread.signals)
            }) else {
                return Ok(());
            };
            self.thread.delivering = Some(delivery);
            if !delivery.action.is_handler() {
                let cause = Cause::of_signal(delivery.signal, &delivery.info);
                return Err(Ending::killed(cause).into());
            }
            self.enter_handler(&delivery, Fault::default())
                .map_err(|stop| stop.or_end(Ending::killed(Cause::SignalFrame)))?;
            self.thread.delivering = None;
            if !self.is_signal_due() {
                return Ok(());
            }
        }
    }

    /// Hands a fault that would end the program to its handler. Fails with that end where there is
    /// none that can run.
    #[cold]
    pub(super) fn catch(&mut self, ending: Ending, fault: Fault) -> Result<(), Stop> {
        let Ending::Killed { cause, access } = ending else {
            return Err(ending.into());
        };
        let state = FpuState::of_registers();
        let address = access.map_or(0, |(address, _)| address);
        let found = fault::signal_of(cause, address, self.thread.context.rip, state.bytes());
        let (signal, info) = found.ok_or(ending)?;
        let action = self
            .process
            .signals
            .handler_of_fault(&self.thread.signals, signal);
        let delivery = Delivery {
            signal: signal.number(),
            info,
            action: action.ok_or(ending)?,
        };
        self.enter_handler(&delivery, fault)
            .map_err(|stop| stop.or_end(ending))
    }

    /// Puts a frame onto the program's stack and has it go on in the handler.
    fn enter_handler(&mut self, delivery: &Delivery, fault: Fault) -> Result<(), Stop> {
        let Delivery {
            signal,
            info,
            action,
        } = *delivery;
        // Code outside of the user half faults without entering ring 3, where everything that ends
        // a program is looked at: a handler there that takes its own fault would go on for ever.
        if !action.has(flag::RESTORER) || action.handler >= USER_END {
            return Err(Errno::EFAULT.into());
        }
        let format = fpu::format();
        let mut registers = self.thread.context.registers();
        let stack = self.thread.signals.stack;
        let place = Place::below(registers.rsp, &action, &stack, format.frame_bytes());
        let place = place.ok_or(Errno::EFAULT)?;
        let frame = Frame {
            restorer: action.restorer,
            registers,
            selectors: (gdt::USER_CODE, gdt::USER_DATA),
            fault,
            mask: self.thread.signals.mask_behind(),
            stack: stack.to_bytes(registers.rsp),
            fp: (place.fp, format.components != 0),
            info: info.to_bytes(signal),
        };
        self.thread.save_state();
        let state = self.thread.state_mut().mark_for_frame();
        let to = UserSlice::new(place.fp, state.len() as u64)?;
        self.process.write_user(self.services, to, state)?;
        self.write_bytes(place.frame, &frame.to_bytes())?;
        // Nothing fails from here on.
        fpu::reset();
        self.process
            .signals
            .enter(&mut self.thread.signals, signal, &action);
        // What it blocks now another thread may take.
        self.process.offer_signals();
        registers.rip = action.handler;
        registers.rsp = place.frame;
        registers.rdi = signal.into();
        registers.rsi = place.frame + INFO_AT;
        registers.rdx = place.frame + CONTEXT_AT;
        registers.rax = 0;
        registers.rflags &= !FLAGS_OFF;
        self.thread.context.set_registers(&registers);
        Ok(())
    }

    /// rt_sigreturn: goes back to where the signal met the program. The answer is what its `rax`
    /// was.
    pub(super) fn leave_handler(&mut self) -> Result<u64, Stop> {
        let lost = |stop: Stop| stop.or_end(Ending::killed(Cause::SignalFrame));
        let at = self.thread.context.rsp.wrapping_sub(RETURN_BYTES);
        let frame = UserSlice::new(at, FRAME_BYTES as u64).map_err(Stop::from);
        let mut bytes = [0; FRAME_BYTES];
        frame
            .and_then(|from| self.read_user(from, &mut bytes))
            .map_err(lost)?;
        let frame = Restored::from_bytes(&bytes);
        match frame.fp {
            0 => *self.thread.state_mut() = FpuState::INITIAL,
            at => self.read_fp_state(at).map_err(lost)?,
        }
        self.thread.load_state();
        self.process
            .signals
            .set_mask(&mut self.thread.signals, frame.mask);
        self.process.offer_signals();
        if let Ok(stack) = AltStack::from_bytes(&frame.stack)
            && !self.thread.signals.stack.holds(frame.registers.rsp)
        {
            self.thread.signals.stack = stack;
        }
        self.thread.context.set_registers(&frame.registers);
        Ok(frame.registers.rax)
    }

    /// The floating-point state of a frame: the legacy part must be there, and the rest is taken
    /// where it is.
    fn read_fp_state(&mut self, at: u64) -> Result<(), Stop> {
        let (process, services) = (&mut *self.process, &mut *self.services);
        self.thread.state_mut().take_frame(|bytes| {
            let whole = UserSlice::new(at, bytes.len() as u64).map_err(Stop::from);
            match whole.and_then(|from| process.read_user(services, from, bytes)) {
                Err(Stop::Errno(_)) => {}
                other => return other,
            }
            let (legacy, rest) = bytes.split_at_mut(LEGACY_BYTES);
            process.read_user(services, UserSlice::new(at, LEGACY_BYTES as u64)?, legacy)?;
            rest.fill(0);
            Ok(())
        })
    }
}

impl Process {
    /// Sends the program the signals of its timers that have expired.
    pub(super) fn ring(&mut self) {
        let now_us = time::now().as_micros();
        if self.signals.timers.alarm.expired(now_us).is_some() {
            // One that waits already counts for both.
            let _ = self.send_signal(Signal::Alrm.number().into(), Info::KERNEL);
        }
        // Each expires once: its next expiry lies ahead.
        while let Some(expiry) = self.signals.timers.expired(now_us) {
            let (signal, info) = (expiry.signal.into(), expiry.info);
            // A real-time signal that finds no room is lost, as is that of a thread that is gone.
            match expiry.thread {
                Some(tid) => drop(self.send_signal_to(tid, signal, info)),
                None if self.signals.stands_for(&expiry) => {}
                None => drop(self.send_signal(signal, info)),
            }
        }
    }

    /// Sends the program what control has for it, as if another process had sent it.
    pub(super) fn take_signals(&mut self, services: &mut dyn NodeServices) {
        while let Some(number) = services.take_signal() {
            // A real-time one that finds no room is lost.
            let _ = self.send_signal(number.into(), Info::OUTSIDE);
        }
    }

    /// Sends the program a signal: one of its threads that does not block it takes it.
    pub(super) fn send_signal(&mut self, signal: u64, info: Info) -> Result<(), SendError> {
        self.send_signal_by(None, signal, info)
    }

    /// The same by a thread, which may take it itself.
    pub(super) fn send_signal_by(
        &mut self,
        sender: Option<&Thread>,
        signal: u64,
        info: Info,
    ) -> Result<(), SendError> {
        let others = self.threads.iter().filter_map(|(_, slot)| slot.as_deref());
        let all = others.chain(sender).map(|thread| &thread.signals);
        self.signals.send(signal, info, all)?;
        let takes = |thread: &Thread| self.signals.would_take(&thread.signals, signal);
        if sender.is_some_and(takes) {
            return Ok(());
        }
        // The thread that takes it, and whether it does so without having asked for it.
        let takes_slot = |(_, slot): (Tid, &Option<Box<Thread>>)| {
            let thread = slot.as_deref().filter(|thread| takes(thread))?;
            let is_due = self.signals.is_due(&thread.signals);
            Some((thread.crashed(info), is_due))
        };
        let found = self.threads.iter().find_map(takes_slot);
        match found {
            // Whatever the thread waits for: a page or another rank may never come.
            Some((thread, true)) if self.signals.ends_by(signal) => {
                self.end_by(thread, signal as u8);
            }
            Some((thread, _)) => {
                self.threads.wake(thread.tid);
            }
            // One that runs on another core may.
            None => self.cores.call(self.threads.running()),
        }
        Ok(())
    }

    /// Has a thread look for the signals that wait for the process: one that would have taken them
    /// has ended or blocks them now.
    pub(super) fn offer_signals(&mut self) {
        if self.signals.waiting() == 0 {
            return;
        }
        let looks = |(tid, slot): (Tid, &Option<Box<Thread>>)| {
            let thread = slot.as_deref()?;
            self.signals.is_due(&thread.signals).then_some(tid)
        };
        let found = self.threads.iter().find_map(looks);
        match found {
            Some(tid) => {
                self.threads.wake(tid);
            }
            None => self.cores.call(self.threads.running()),
        }
    }

    /// Sends another thread a signal; `None`: there is no such thread.
    pub(super) fn send_signal_to(
        &mut self,
        tid: Tid,
        signal: u64,
        info: Info,
    ) -> Option<Result<(), SendError>> {
        let core = match self.threads.state(tid)? {
            State::Running(core) => core,
            State::Ready | State::Waiting { .. } => self.threads.place(tid)?,
        };
        let sent = match self.threads.get_mut(tid)? {
            Some(thread) => self.signals.send_to(&mut thread.signals, signal, info),
            None => {
                let waiting = self.cores.signals(core);
                self.posted.put(tid, signal, info, waiting)
            }
        };
        if sent.is_ok() {
            // Whatever it waits for: a page or another rank may never come.
            let waits = self
                .threads
                .get_mut(tid)
                .and_then(|thread| thread.as_deref());
            let takes = |thread: &Thread| {
                let is_due = self.signals.is_due(&thread.signals);
                is_due && self.signals.would_take(&thread.signals, signal)
            };
            let taker = waits.filter(|thread| takes(thread));
            if let Some(thread) = taker
                && self.signals.ends_by(signal)
            {
                let thread = thread.crashed(info);
                self.end_by(thread, signal as u8);
            }
            self.threads.wake(tid);
            self.cores.call(CoreSet::only(core));
        }
        Some(sent)
    }

    /// Ends by a signal that one of its threads would have taken.
    fn end_by(&mut self, thread: Crashed, signal: u8) {
        let cause = Cause::of_signal(signal, &thread.sent);
        if self.ending.is_none() {
            self.crashed = Some(thread);
        }
        self.end(Ending::killed(cause));
    }

    /// Gives a thread the signals that were sent to it while it ran.
    #[inline]
    pub(super) fn take_posted(&mut self, thread: &mut Thread) {
        self.signals.drop_ignored(&thread.signals);
        if !self.posted.is_empty() {
            self.take_all_posted(thread);
        }
    }

    #[cold]
    fn take_all_posted(&mut self, thread: &mut Thread) {
        while let Some((signal, info)) = self.posted.take(thread.tid) {
            let sent = self.signals.send_to(&mut thread.signals, signal, info);
            debug_assert_eq!(sent, Ok(()), "there is room for what was put aside");
        }
    }

    /// Sets the action of a signal; false where it has none that can be set.
    pub(super) fn set_action(&mut self, thread: &mut Thread, signal: u64, action: Action) -> bool {
        let others = self
            .threads
            .iter_mut()
            .filter_map(|(_, slot)| slot.as_deref_mut());
        let all = others.chain([thread]).map(|thread| &mut thread.signals);
        self.signals.set_action(signal, action, all)
    }
}
