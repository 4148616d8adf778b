//! What the services of a machine hear of one another, as the kernel and the control service have
//! them hear it.

use super::{Checked, World};
use crate::exchange::seat::Seat;
use crate::jobs::agent::Note;
use crate::jobs::operator::Seen;

impl World {
    /// Has services of a machine hear of one another; whether there was anything.
    pub(super) fn pass_on(&mut self, host: u32, _at: u64) -> Result<bool, String> {
        let Some(sessions) = &mut self.sessions else {
            return Ok(false);
        };
        if host == self.net.control() {
            let Some(seen) = sessions.seen() else {
                return Ok(false);
            };
            self.see(seen);
            return Ok(true);
        }
        if sessions.has_left(host) {
            self.switch_off(host);
            return Ok(false);
        }
        if let Some(note) = sessions.note(host) {
            self.hear(host, note)?;
            return Ok(true);
        }
        let exchanges = self.exchanges.as_mut();
        if let Some(done) = exchanges.and_then(|exchanges| exchanges.news.pop()) {
            sessions.talked(done.host, done.job, done.is_well);
            return Ok(true);
        }
        Ok(false)
    }

    /// The control node's services hear of a node.
    fn see(&mut self, seen: Seen) {
        let Some(casts) = &mut self.casts else {
            return;
        };
        match seen {
            Seen::Up(node) => casts.came(&mut self.net, node.0),
            Seen::Gone(node) => casts.lost(&mut self.net, node.0),
        }
    }

    /// The services of a node hear of its session or its program.
    fn hear(&mut self, host: u32, note: Note) -> Checked {
        match note {
            Note::Joined { run, time_us } => {
                if let Some(casts) = &mut self.casts {
                    casts.joined(&mut self.net, host, (run, time_us));
                }
                if let Some(overlay) = &mut self.overlay {
                    overlay.joined(&mut self.net, host, (run, time_us));
                }
            }
            Note::Launched { job, rank, key } => {
                let (sessions, exchanges) = (self.sessions.as_ref(), self.exchanges.as_mut());
                if let (Some(sessions), Some(exchanges)) = (sessions, exchanges) {
                    let hosts = sessions.operator.plans[&job].nodes.iter();
                    let hosts = hosts.map(|node| node.0).collect();
                    let now = self.net.clock(host);
                    let seat = Seat::of_program((job, rank, key), hosts, &self.net.setup, now);
                    exchanges.seats[host as usize] = Some(Box::new(seat));
                }
            }
            Note::Talk { bytes, is_message } => {
                if let Some(exchanges) = &mut self.exchanges {
                    exchanges.begin_step(&mut self.net, host, bytes, is_message);
                }
            }
            Note::Ended { is_well } => {
                if let Some(exchanges) = &mut self.exchanges {
                    exchanges.close(&self.net, host, is_well);
                    self.net.ask(host);
                }
            }
        }
        Ok(())
    }
}
