//! A timer that is exact to some tens of microseconds: the runtime's own is exact to a millisecond,
//! in which a link of 10 Gbit/s moves a megabyte.
//!
//! Key type: [`Timer`], over `timerfd_create(2)`.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::net::unix::pipe::Receiver;

/// A deadline further away than a day is a day away: timers have a range, and waking once a day
/// costs nothing.
const FURTHEST: Duration = Duration::from_secs(86_400);

/// One deadline at a time.
#[derive(Debug)]
pub struct Timer {
    timer: TimerFd,
    /// The same timer as the runtime waits for it: a descriptor that is read, as a pipe is.
    readable: Receiver,
    /// The deadline that is set; none: it has passed or there is none.
    armed_us: Option<u64>,
}

impl Timer {
    /// A timer without a deadline.
    ///
    /// # Errors
    /// What the system said.
    pub fn new() -> std::io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Timer {
            readable: Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?,
            timer,
            armed_us: None,
        })
    }

    /// Sets the deadline, in microseconds of a clock at which it is `now_us`.
    pub fn set(&mut self, deadline_us: u64, now_us: u64) {
        if self.armed_us == Some(deadline_us) {
            return;
        }
        // Zero would be no deadline at all.
        let ahead = Duration::from_micros(deadline_us.saturating_sub(now_us))
            .clamp(Duration::from_micros(1), FURTHEST);
        let once = Expiration::OneShot(TimeSpec::from_duration(ahead));
        let flags = TimerSetTimeFlags::empty();
        self.timer
            .set(once, flags)
            .expect("a positive time of at most a day is a valid one");
        self.armed_us = Some(deadline_us);
    }

    /// Completes at the deadline.
    pub async fn wait(&mut self) {
        loop {
            if self.readable.readable().await.is_err() {
                return std::future::pending().await;
            }
            // Reading it resets it; a deadline that was moved as it passed reads as nothing yet.
            match self.readable.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        self.armed_us = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn deadlines_can_be_moved_both_ways() {
        let mut timer = Timer::new().unwrap();
        let began = std::time::Instant::now();
        timer.set(60_000_000, 0);
        timer.set(300, 0);
        timer.wait().await;
        assert!(began.elapsed() < Duration::from_secs(30));
        timer.set(1_000, 0);
        timer.set(20_000, 0);
        let began = std::time::Instant::now();
        timer.wait().await;
        assert!(began.elapsed() >= Duration::from_millis(20));
        timer.set(5, 10);
        timer.wait().await;
    }
}
