//! What happens to machines from outside.

use super::{Action, Checked, HEALTH_NS, World, services};
use crate::net::fabric::{Noise, Way};
use crate::setup::Fault;

impl World {
    pub(super) fn inflict(&mut self, fault: Fault) -> Checked {
        match fault {
            Fault::Boot(node) => {
                self.switch_off(node);
                self.boot(node)?;
            }
            Fault::Die(node) => self.switch_off(node),
            Fault::CrashControl => self.switch_off(self.net.control()),
            Fault::RestartControl => {
                if !self.net.is_on(self.net.control()) {
                    self.boot(self.net.control())?;
                }
            }
            Fault::Part(node, part) => self.net.fabric.set_part(node, part),
            Fault::Mute(node, way) => self.net.fabric.set_mute(node, way, true),
            Fault::Mend(node) => self.mend(node),
            Fault::Noise(noise) => self.net.fabric.set_noise(noise),
            Fault::Stop(node) => self.net.hosts[node as usize].stopped = true,
            Fault::Compute(node) => {
                self.net.hosts[node as usize].computes = true;
                self.net.ask(node);
            }
            Fault::Idle(node) => self.net.hosts[node as usize].computes = false,
            Fault::Continue(node) => self.net.hosts[node as usize].stopped = false,
            Fault::Jump(host, by_us) => {
                let now = self.net.now();
                self.net.hosts[host as usize].clock.jump(now, by_us);
            }
            Fault::Heal => self.heal()?,
            Fault::KillCp(number) => {
                let overlay = self.overlay.as_ref();
                if let Some(node) = overlay.and_then(|it| it.host_of(&self.net, number)) {
                    self.switch_off(node);
                }
            }
            Fault::Leave(_) | Fault::AskLeave(_) | Fault::Drop(..) | Fault::Corrupt(_) => {}
            Fault::Join { .. } | Fault::Tight(_) | Fault::Replan => {}
        }
        services!(self).try_for_each(|service| service.inflict(&mut self.net, fault))?;
        if let Fault::Idle(node) | Fault::Continue(node) | Fault::Jump(node, _) = fault {
            self.net.hosts[node as usize].look_at = None;
            self.look(node)?;
        }
        Ok(())
    }

    /// A machine that did not look does so now.
    fn look(&mut self, host: u32) -> Checked {
        if self.net.looks(host) {
            self.take_in(host, self.net.now() + 1)?;
            self.drive(host)?;
        }
        Ok(())
    }

    fn mend(&mut self, node: u32) {
        self.net.fabric.set_part(node, 0);
        for way in [Way::Out, Way::In] {
            self.net.fabric.set_mute(node, way, false);
        }
    }

    pub(super) fn boot(&mut self, host: u32) -> Checked {
        self.net.switch_on(host);
        services!(self).try_for_each(|service| service.boot(&mut self.net, host))?;
        self.net.ask(host);
        Ok(())
    }

    pub(super) fn switch_off(&mut self, host: u32) {
        if self.net.is_on(host) {
            services!(self).for_each(|service| service.off(&mut self.net, host));
            self.net.hosts[host as usize].is_on = false;
        }
    }

    /// From now on nothing goes wrong, and everything has to be well again by the deadline.
    fn heal(&mut self) -> Checked {
        self.net.fabric.set_noise(Noise::default());
        self.net.silence_attacker();
        let control = self.net.control();
        self.inflict(Fault::RestartControl)?;
        for node in 0..control {
            self.inflict(Fault::Mend(node))?;
            self.inflict(Fault::Idle(node))?;
            match self.net.is_on(node) {
                true => self.inflict(Fault::Continue(node))?,
                false => self.inflict(Fault::Boot(node))?,
            }
        }
        let at = self.net.now() + HEALTH_NS;
        self.net.schedule(at, Action::Health);
        Ok(())
    }
}
