//! Handlers of signals: how a program enters one, and how it comes back.
//!
//! Neighbours: `kernel_core::signals` says which signal is next, what lies in a frame and what is
//! believed of it; [`super::turn`] has signals delivered before the program runs on,
//! [`super::calls`] has the system calls.
//!
//! Invariant: a frame is written and read through the program's own page table. A program that has
//! no room for one, or comes back by one that is not there, is ended; whatever it has put there it
//! gets as its own registers in ring 3 and nothing more.

use hearth_abi::errno::Errno;
use hearth_abi::linux::Signal;
use kernel_core::addr::USER_END;
use kernel_core::fault::Cause;
use kernel_core::program::UserSlice;
use kernel_core::signals::frame::{
    CONTEXT_AT, FRAME_BYTES, Fault, Frame, INFO_AT, LEGACY_BYTES, Place, Restored,
};
use kernel_core::signals::{AltStack, Delivery, Info, code, fault, flag};

use super::Process;
use super::ending::{Ending, Stop};
use crate::agent::services::NodeServices;
use crate::arch::fpu::{self, FpuState};
use crate::arch::gdt;
use crate::time;

/// Flags that are off when a handler begins: single step, direction, resume.
const FLAGS_OFF: u64 = 1 << 8 | 1 << 10 | 1 << 16;
/// Bytes of the address that a handler has returned by.
const RETURN_BYTES: u64 = 8;

impl Process {
    /// Has the program enter the handlers of the signals that are due; the last of them runs first.
    /// Fails when one ends the program.
    #[inline]
    pub(super) fn deliver(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        match self.signals.is_due() {
            true => self.deliver_all(services),
            false => Ok(()),
        }
    }

    #[cold]
    fn deliver_all(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        while let Some(delivery) = self.signals.take() {
            if !delivery.action.is_handler() {
                let signal = Signal::from_number(delivery.signal).unwrap_or(Signal::Kill);
                return Err(Ending::killed(Cause::Raised(signal)));
            }
            self.enter_handler(services, &delivery, Fault::default())
                .map_err(|stop| stop.ending(Ending::killed(Cause::SignalFrame)))?;
        }
        Ok(())
    }

    /// Hands a fault that would end the program to its handler. Fails with that end where there is
    /// none that can run.
    #[cold]
    pub(super) fn catch(
        &mut self,
        services: &mut dyn NodeServices,
        ending: Ending,
        fault: Fault,
    ) -> Result<(), Ending> {
        let Ending::Killed { cause, access } = ending else {
            return Err(ending);
        };
        let state = FpuState::of_registers();
        let address = access.map_or(0, |(address, _)| address);
        let found = fault::signal_of(cause, address, self.context.rip, state.bytes());
        let (signal, info) = found.ok_or(ending)?;
        let action = self.signals.handler_of_fault(signal).ok_or(ending)?;
        let delivery = Delivery {
            signal: signal.number(),
            info,
            action,
        };
        self.enter_handler(services, &delivery, fault)
            .map_err(|stop| stop.ending(ending))
    }

    /// Puts a frame onto the program's stack and has it go on in the handler.
    fn enter_handler(
        &mut self,
        services: &mut dyn NodeServices,
        delivery: &Delivery,
        fault: Fault,
    ) -> Result<(), Stop> {
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
        let mut registers = self.context.registers();
        let stack = self.signals.stack;
        let place = Place::below(registers.rsp, &action, &stack, format.frame_bytes());
        let place = place.ok_or(Errno::EFAULT)?;
        let mut state = *FpuState::of_registers().bytes();
        let state = &mut state[..format.frame_bytes()];
        format.mark(state);
        let frame = Frame {
            restorer: action.restorer,
            registers,
            selectors: (gdt::USER_CODE, gdt::USER_DATA),
            fault,
            mask: self.signals.mask_behind(),
            stack: stack.to_bytes(registers.rsp),
            fp: (place.fp, format.components != 0),
            info: info.to_bytes(signal),
        };
        self.write_bytes(services, place.fp, state)?;
        self.write_bytes(services, place.frame, &frame.to_bytes())?;
        // Nothing fails from here on.
        fpu::reset();
        self.signals.enter(signal, &action);
        registers.rip = action.handler;
        registers.rsp = place.frame;
        registers.rdi = signal.into();
        registers.rsi = place.frame + INFO_AT;
        registers.rdx = place.frame + CONTEXT_AT;
        registers.rax = 0;
        registers.rflags &= !FLAGS_OFF;
        self.context.set_registers(&registers);
        Ok(())
    }

    /// rt_sigreturn: goes back to where the signal met the program. The answer is what its `rax`
    /// was.
    pub(super) fn leave_handler(&mut self, services: &mut dyn NodeServices) -> Result<u64, Stop> {
        let lost = |stop: Stop| Stop::Ending(stop.ending(Ending::killed(Cause::SignalFrame)));
        let at = self.context.rsp.wrapping_sub(RETURN_BYTES);
        let bytes: [u8; FRAME_BYTES] = self.read_array(services, at).map_err(lost)?;
        let frame = Restored::from_bytes(&bytes);
        let state = match frame.fp {
            0 => FpuState::INITIAL,
            at => self.read_fp_state(services, at).map_err(lost)?,
        };
        fpu::restore(&state);
        self.signals.set_mask(frame.mask);
        if let Ok(stack) = AltStack::from_bytes(&frame.stack)
            && !self.signals.stack.holds(frame.registers.rsp)
        {
            self.signals.stack = stack;
        }
        self.context.set_registers(&frame.registers);
        Ok(frame.registers.rax)
    }

    /// The floating-point state of a frame: the legacy part must be there, and the rest is taken
    /// where it is.
    fn read_fp_state(
        &mut self,
        services: &mut dyn NodeServices,
        at: u64,
    ) -> Result<FpuState, Stop> {
        let mut bytes = *FpuState::INITIAL.bytes();
        let (legacy, rest) = bytes[..fpu::format().frame_bytes()].split_at_mut(LEGACY_BYTES);
        self.read_user(services, UserSlice::new(at, LEGACY_BYTES as u64)?, legacy)?;
        // Its end lies in the user half, or the address above would not.
        let behind = at + LEGACY_BYTES as u64;
        let whole = UserSlice::new(behind, rest.len() as u64).map_err(Stop::from);
        match whole.and_then(|slice| self.read_user(services, slice, rest)) {
            Ok(()) => {}
            Err(Stop::Errno(_)) => rest.fill(0),
            Err(stop) => return Err(stop),
        }
        Ok(FpuState::of_program(bytes))
    }

    /// Sends the program what control has for it. Fails when that ends it: a wait of the kernel for
    /// a page or for other ranks does not end by itself.
    pub(super) fn take_signals(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        while let Some(number) = services.take_signal() {
            // As if another process had sent it; a real-time one that finds no room is lost.
            let _ = self.signals.send(number.into(), Info::sent(code::USER, 0));
            let signal = Signal::from_number(number).filter(|_| self.signals.ends_by(number));
            if let Some(signal) = signal {
                return Err(Ending::killed(Cause::Raised(signal)));
            }
        }
        Ok(())
    }

    /// Sends the program SIGALRM when its timer has expired.
    pub(super) fn ring(&mut self) {
        if self.signals.timer.expired(time::now().as_micros()) {
            // One that waits already counts for both.
            let _ = self
                .signals
                .send(Signal::Alrm.number().into(), Info::KERNEL);
        }
    }
}
