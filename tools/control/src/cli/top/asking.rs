//! What `hearth top` hears while it draws: pictures of control, and signals that end it.
//!
//! Key type: [`Hearing`]. Neighbour: [`super::watch`] looks at it between two keys.
//!
//! Invariants: nothing here makes the loop over keys wait, whatever control does. A terminal that
//! takes nothing holds the loop up: then the newest picture is all that is kept, and a signal ends
//! the command nevertheless.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratatui::crossterm::terminal::disable_raw_mode;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::monitor::Now;
use crate::cli::exit;
use crate::client::Client;

/// Time between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an answer may take until the screen says that none comes.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long after a signal the loop may take to end by itself; a write to the terminal may hold it
/// up for ever.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What has come.
#[derive(Debug)]
pub enum Heard {
    /// A newer picture.
    Picture(Box<Now>),
    /// Why there is none.
    Trouble(String),
    /// The number of a signal that wants the command to end.
    Signal(u8),
}

/// What nobody has looked at yet.
#[derive(Debug, Default)]
struct Newest {
    /// A picture, or why there is none: the newer one alone.
    said: Mutex<Option<Heard>>,
    signal: Mutex<Option<u8>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Newest {
    fn say(&self, heard: Heard) {
        *locked(&self.said) = Some(heard);
    }

    /// Signals come first.
    fn next(&self) -> Option<Heard> {
        let signal = locked(&self.signal).take().map(Heard::Signal);
        signal.or_else(|| locked(&self.said).take())
    }
}

/// Asks, and waits for signals, on a thread of its own.
#[derive(Debug)]
pub struct Hearing {
    heard: Arc<Newest>,
    /// Ends at once with this, in the middle of a question too.
    runtime: Option<Runtime>,
}

impl Hearing {
    /// Begins to ask once a second.
    ///
    /// # Errors
    /// When the system has no thread or no signal handler for it.
    pub fn begin(client: Client) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let heard = Arc::new(Newest::default());
        let inside = runtime.enter();
        for kind in [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
        ] {
            let mut signals = signal(kind)?;
            let hearing = heard.clone();
            runtime.spawn(async move {
                signals.recv().await;
                let number = u8::try_from(kind.as_raw_value()).unwrap_or(0);
                *locked(&hearing.signal) = Some(number);
                tokio::time::sleep(END_PATIENCE).await;
                // Still here: the loop is held up. Its lock on the output is not waited for.
                drop(disable_raw_mode());
                std::process::exit(exit::by_signal(number).into());
            });
        }
        let saying = heard.clone();
        runtime.spawn(async move {
            let mut ticks = tokio::time::interval(PERIOD);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let answer = tokio::time::timeout(PATIENCE, client.get("/v1/monitor/now")).await;
                saying.say(match answer {
                    Ok(Ok(now)) => Heard::Picture(Box::new(now)),
                    Ok(Err(error)) => Heard::Trouble(error.to_string()),
                    Err(_) => Heard::Trouble(format!(
                        "the control node has not answered for {} s: this is what it said last",
                        PATIENCE.as_secs()
                    )),
                });
            }
        });
        drop(inside);
        Ok(Hearing {
            heard,
            runtime: Some(runtime),
        })
    }

    /// The next thing that has come; `None`: nothing more yet.
    pub fn next(&self) -> Option<Heard> {
        self.heard.next()
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_is_kept_and_signals_come_first() {
        let newest = Newest::default();
        for number in 0..1_000 {
            newest.say(Heard::Trouble(number.to_string()));
        }
        *locked(&newest.signal) = Some(15);
        assert!(matches!(newest.next(), Some(Heard::Signal(15))));
        assert!(matches!(newest.next(), Some(Heard::Trouble(text)) if text == "999"));
        assert!(newest.next().is_none());
    }
}
