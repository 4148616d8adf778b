//! What `hearth top` hears while it draws: pictures of control, and signals that end it.
//!
//! Key type: [`Hearing`]. Neighbour: [`super::watch`] looks at it between two keys.
//!
//! Invariant: nothing here makes the loop over keys wait, whatever control does.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::monitor::Now;
use crate::client::Client;

/// Time between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an answer may take until the screen says that none comes.
const PATIENCE: Duration = Duration::from_secs(3);

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

/// Asks, and waits for signals, on a thread of its own.
#[derive(Debug)]
pub struct Hearing {
    heard: Receiver<Heard>,
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
        let (sender, heard) = channel();
        let inside = runtime.enter();
        for kind in [
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::interrupt(),
        ] {
            let mut signals = signal(kind)?;
            let sender = sender.clone();
            runtime.spawn(async move {
                signals.recv().await;
                let number = u8::try_from(kind.as_raw_value()).unwrap_or(0);
                drop(sender.send(Heard::Signal(number)));
            });
        }
        runtime.spawn(async move {
            let mut ticks = tokio::time::interval(PERIOD);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let answer = tokio::time::timeout(PATIENCE, client.get("/v1/monitor/now")).await;
                let heard = match answer {
                    Ok(Ok(now)) => Heard::Picture(Box::new(now)),
                    Ok(Err(error)) => Heard::Trouble(error.to_string()),
                    Err(_) => Heard::Trouble(format!(
                        "the control node has not answered for {} s: this is what it said last",
                        PATIENCE.as_secs()
                    )),
                };
                if sender.send(heard).is_err() {
                    return;
                }
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
        self.heard.try_recv().ok()
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
