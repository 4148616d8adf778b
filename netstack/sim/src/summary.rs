//! What a run came to, of all services; what it cost; and how far it is meanwhile.
//!
//! Key type: [`Summary`]. Neighbours: each service has its own figures in a module of this name.
//!
//! Invariant: the time of the machine only decides when something is told, never what happens.

use std::time::{Duration, Instant};

use netstack::MAX_DATAGRAM;
use serde_json::{Value, json};

use crate::casts::Casts;
use crate::net::Net;
use crate::net::fabric::{Tally, frame_bytes};
use crate::world::World;
use crate::{casts, exchange, jobs, overlay};

/// Time between two lines that tell how far a run is.
const EVERY: Duration = Duration::from_secs(5);

/// Nanoseconds that one link of `rate` bits a second needs for `bytes` bytes in full datagrams.
pub fn limit_ns(bytes: u64, rate: u64) -> f64 {
    let full = MAX_DATAGRAM as u64;
    let mut wire = bytes / full * u64::from(frame_bytes(MAX_DATAGRAM as u32));
    if !bytes.is_multiple_of(full) {
        wire += u64::from(frame_bytes((bytes % full) as u32));
    }
    wire as f64 * 8e9 / rate as f64
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// A number that two runs of one setup share.
    pub digest: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Virtual time at the end, in nanoseconds.
    pub ended_ns: u64,
    /// What became of what was sent.
    pub tally: Tally,
    /// Datagrams that found the queue of a machine full.
    pub inbox_overflows: u64,
    /// Of sessions and jobs.
    pub jobs: Option<jobs::summary::Figures>,
    /// Of casts.
    pub casts: Option<casts::summary::Figures>,
    /// Of an exchange.
    pub exchange: Option<exchange::summary::Figures>,
    /// Of the overlay.
    pub overlay: Option<overlay::summary::Figures>,
}

/// What a run cost; not part of what is compared.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Seconds of the machine.
    pub wall_s: f64,
    /// Most bytes of memory.
    pub memory_bytes: u64,
}

impl Cost {
    /// Of this process, for a run that began then.
    pub fn since(begin: Instant) -> Self {
        Cost {
            wall_s: begin.elapsed().as_secs_f64(),
            memory_bytes: memory_bytes(),
        }
    }
}

impl Summary {
    /// Of a run that has ended.
    pub(crate) fn of(world: &World) -> Self {
        let net = &world.net;
        let casts = world.casts.as_ref();
        let exchange = world.exchanges.as_ref();
        let overlay = world.overlay.as_ref();
        let sessions = world.sessions.as_ref();
        Summary {
            digest: net.digest,
            events: net.events,
            ended_ns: net.now(),
            tally: net.fabric.tally,
            inbox_overflows: net.inbox_overflows,
            jobs: sessions.map(|it| jobs::summary::Figures::of(it, net)),
            casts: casts.map(|it| casts::summary::Figures::of(it, net)),
            exchange: exchange.map(|it| exchange::summary::Figures::of(it, net)),
            overlay: overlay.map(|it| overlay::summary::Figures::of(it, net)),
        }
    }

    /// The figures for programs: one object, in which several services have one of their own.
    pub fn to_json(&self, cost: Cost) -> Value {
        let mut all = json!({
            "digest": format!("{:016x}", self.digest),
            "events": self.events,
            "port_backlog_bytes": self.tally.port_backlog,
            "trunk_backlog_bytes": self.tally.trunk_backlog,
            "datagrams": self.tally.datagrams,
            "lost_datagrams": self.tally.lost,
            "overflowed_datagrams": self.tally.overflowed,
            "virtual_s": self.ended_ns as f64 / 1e9,
            "wall_s": cost.wall_s,
            "memory_bytes": cost.memory_bytes,
        });
        let services = [
            ("jobs", self.jobs.as_ref().map(jobs::summary::Figures::json)),
            (
                "casts",
                self.casts.as_ref().map(casts::summary::Figures::json),
            ),
            (
                "exchange",
                self.exchange.as_ref().map(exchange::summary::Figures::json),
            ),
            (
                "overlay",
                self.overlay.as_ref().map(overlay::summary::Figures::json),
            ),
        ];
        let is_alone = services.iter().filter(|(_, it)| it.is_some()).count() == 1;
        for (name, figures) in services {
            match (&mut all, figures) {
                (Value::Object(all), Some(Value::Object(more))) if is_alone => all.extend(more),
                (_, Some(figures)) => all[name] = figures,
                _ => {}
            }
        }
        all
    }

    /// The figures for people.
    pub fn to_table(&self, cost: Cost) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| text += &format!("{name:<42} {value}\n");
        if let Some(jobs) = &self.jobs {
            jobs.tell(&mut row);
        }
        if let Some(casts) = &self.casts {
            casts.tell(&mut row);
        }
        if let Some(exchange) = &self.exchange {
            exchange.tell(&mut row);
        }
        if let Some(overlay) = &self.overlay {
            overlay.tell(&mut row);
        }
        let tally = &self.tally;
        row(
            "port backlog, most",
            format!("{} bytes", tally.port_backlog),
        );
        let overflowed = tally.overflowed + self.inbox_overflows;
        row("dropped at full queues", format!("{overflowed} datagrams"));
        row("lost", format!("{} datagrams", tally.lost));
        row(
            "events, digest",
            format!("{}, {:016x}", self.events, self.digest),
        );
        let (wall_s, megabytes) = (cost.wall_s, cost.memory_bytes / 1_000_000);
        row("took", format!("{wall_s:.1} s, {megabytes} MB"));
        text
    }

    /// Of casts.
    ///
    /// # Panics
    /// If there were none.
    pub fn casts(&self) -> &casts::summary::Figures {
        self.casts.as_ref().expect("there are casts")
    }

    /// Of an exchange.
    ///
    /// # Panics
    /// If there was none.
    pub fn exchange(&self) -> &exchange::summary::Figures {
        self.exchange.as_ref().expect("there is an exchange")
    }

    /// Of the overlay.
    ///
    /// # Panics
    /// If there was none.
    pub fn overlay(&self) -> &overlay::summary::Figures {
        self.overlay.as_ref().expect("there is an overlay")
    }

    /// Of sessions and jobs.
    ///
    /// # Panics
    /// If there were none.
    pub fn jobs(&self) -> &jobs::summary::Figures {
        self.jobs.as_ref().expect("there are sessions")
    }
}

/// Tells how far a long run is, on standard error.
pub(crate) struct Progress {
    wanted: bool,
    begun: Instant,
    told: Instant,
}

impl Progress {
    pub(crate) fn new(wanted: bool) -> Self {
        let now = Instant::now();
        Progress {
            wanted,
            begun: now,
            told: now,
        }
    }

    /// Tells it if it is time.
    pub(crate) fn tell(&mut self, net: &Net, casts: Option<&Casts>) {
        if !self.wanted || self.told.elapsed() < EVERY {
            return;
        }
        self.told = Instant::now();
        let blocks = casts.map_or(String::new(), |casts| {
            format!(
                "{:5.1} % of the blocks delivered, ",
                casts.delivered_percent()
            )
        });
        eprintln!(
            "{blocks}virtual time {:.6} s, {:.0} s, {} events, {} MB",
            net.now() as f64 / 1e9,
            self.begun.elapsed().as_secs_f64(),
            net.events,
            memory_bytes() / 1_000_000,
        );
    }
}

/// Most memory that this process has had, in bytes; 0 where the system does not say.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_charges_full_datagrams() {
        // Ten full datagrams at 1 Gbit/s: 8 ns a byte.
        assert_eq!(limit_ns(14_720, 1_000_000_000), 10.0 * 1538.0 * 8.0);
        // One byte takes the shortest frame.
        assert!(limit_ns(1, 1_000_000_000) >= 84.0 * 8.0);
    }
}
