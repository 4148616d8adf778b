//! Somebody on the wire without any key: says datagrams again that went by, and flips bits in
//! others.
//!
//! Key types: [`Attack`], [`Attacker`]. Neighbour: [`super::Net`] asks it at each datagram.
//!
//! Invariants: what it does depends on the seed and on the order of datagrams alone; without an
//! attack it draws no random number, so that runs are those of a quiet wire.

use clap::Args;
use netstack::rng::Rng;

/// Most bits that are flipped in one datagram.
const FLIPS_MOST: u64 = 8;
/// Most times that a datagram is said again.
const AGAIN_MOST: u64 = 3;
/// The shortest time after which a datagram is said again, in nanoseconds, and how often that is
/// doubled at most: up to a minute, over reboots of nodes and restarts of the control node.
const SOONEST_NS: u64 = 1_000_000;
const DOUBLINGS: u64 = 16;
/// Addresses that are nobody's.
const STRANGERS: u64 = 4;

/// How much it does, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Attack {
    /// Share of the datagrams that an attacker says again later, from their own address or another,
    /// in per cent
    #[arg(long = "replay", value_name = "PERCENT", default_value = "0", value_parser = percent)]
    pub replay_ppm: u32,
    /// Share of the datagrams in which bits are flipped, in per cent
    #[arg(long = "flip", value_name = "PERCENT", default_value = "0", value_parser = percent)]
    pub flip_ppm: u32,
}

impl Attack {
    /// What a check has: enough of both to meet every kind of datagram.
    pub const CHECK: Attack = Attack {
        replay_ppm: 20_000,
        flip_ppm: 5_000,
    };

    /// Whether anything is done.
    pub fn is_on(&self) -> bool {
        *self != Attack::default()
    }

    /// The options that mean it, to be put behind a command.
    pub fn to_options(self) -> String {
        if !self.is_on() {
            return String::new();
        }
        let percent = |ppm: u32| f64::from(ppm) / 1e4;
        format!(
            " --replay {} --flip {}",
            percent(self.replay_ppm),
            percent(self.flip_ppm)
        )
    }
}

/// A datagram that is said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// After so many nanoseconds.
    pub after_ns: u64,
    /// From the address of this station; those above the last one are nobody's.
    pub from: u32,
}

/// Who does it.
#[derive(Debug)]
pub struct Attacker {
    attack: Attack,
    rng: Rng,
    /// Addresses of the network.
    stations: u32,
}

impl Attacker {
    /// On a network of `stations` addresses.
    pub fn new(attack: Attack, seed: u64, stations: u32) -> Self {
        Attacker {
            attack,
            rng: Rng::new(seed ^ 0x6174_7461_636b_6572),
            stations,
        }
    }

    /// Perhaps flips bits of a datagram.
    pub fn flip(&mut self, datagram: &mut [u8]) {
        if datagram.is_empty() || !self.happens(self.attack.flip_ppm) {
            return;
        }
        for _ in 0..=self.rng.below(FLIPS_MOST) {
            let bit = self.rng.below(8 * datagram.len() as u64);
            datagram[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// When and from where a datagram of a station is said again, if it is.
    pub fn again(&mut self, from: u32) -> Vec<Again> {
        if !self.happens(self.attack.replay_ppm) {
            return Vec::new();
        }
        let times = 1 + self.rng.below(AGAIN_MOST);
        (0..times).map(|_| self.once(from)).collect()
    }

    fn once(&mut self, own: u32) -> Again {
        let least = SOONEST_NS << self.rng.below(DOUBLINGS);
        let from = match self.rng.below(4) {
            0 | 1 => own,
            2 => self.rng.below(self.stations.into()) as u32,
            _ => self.stations + self.rng.below(STRANGERS) as u32,
        };
        Again {
            after_ns: least + self.rng.below(least),
            from,
        }
    }

    fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.below(1_000_000) < u64::from(ppm)
    }
}

/// Parts per million of a text like 1, 1% or 0.1.
pub fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 1e4).round() as u32),
        _ => Err("a share is 0 to 100 per cent".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_wire_is_left_alone_and_an_attack_is_not() {
        let mut quiet = Attacker::new(Attack::default(), 1, 5);
        let mut datagram = [7; 40];
        quiet.flip(&mut datagram);
        assert_eq!((datagram, quiet.again(2)), ([7; 40], Vec::new()));
        let all = Attack {
            replay_ppm: 1_000_000,
            flip_ppm: 1_000_000,
        };
        let mut attacker = Attacker::new(all, 1, 5);
        let mut from = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let again = attacker.again(2);
            assert!((1..=3).contains(&again.len()));
            assert!(again.iter().all(|again| again.after_ns >= SOONEST_NS));
            from.extend(again.iter().map(|again| again.from));
        }
        assert_eq!(from, (0..9).collect(), "its own, others' and nobody's");
        let flipped = (0..50).filter(|_| {
            let mut datagram = [7; 40];
            attacker.flip(&mut datagram);
            datagram != [7; 40]
        });
        assert!(flipped.count() > 40);
        assert_eq!(all.to_options(), " --replay 100 --flip 100");
    }
}
