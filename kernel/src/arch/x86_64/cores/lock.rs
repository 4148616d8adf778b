//! The lock under which a core does the kernel's work.
//!
//! Key type: [`BigLock`]. It keeps no order among those that wait: where cores are virtual, the
//! first in a line may not be running.
//!
//! Invariant: it is held neither in ring 3 nor while a core sleeps.

use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// What one core at a time may touch.
pub struct BigLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one core at a time has a guard. Nothing in the kernel is tied to a core by its type:
// there are no thread-locals, and what a core has of its own is reached by its number.
unsafe impl<T> Sync for BigLock<T> {}

impl<T> BigLock<T> {
    /// An open lock.
    pub const fn new(value: T) -> Self {
        Self {
            is_held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. Whoever has it does the kernel's work, which does not wait.
    pub fn lock(&self) -> Guard<'_, T> {
        while self.is_held.swap(true, Ordering::Acquire) {
            while self.is_held.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        Guard(self)
    }
}

/// The lock, held.
pub struct Guard<'a, T>(&'a BigLock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way to the value, and there is one at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; the guard is borrowed alone.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::Release);
    }
}
