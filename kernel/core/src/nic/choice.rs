//! Which of several cards the node uses: most servers have ports without a cable, and ports on
//! other networks.
//!
//! Key types: [`Choice`], whose turn it is; [`Port`], what is known about a card. The order is that
//! of the bus, the card that the firmware booted from first. A card has its turn until its turn is
//! over, or until it has no link and another one has; then the next one with a link follows. Who
//! has an address keeps its turn, and has a new one when it loses the address. Neighbours:
//! `kernel::net` asks, with what the cards say.
//!
//! Invariant: every card has a turn again and again until one has an address; no turn is longer
//! than [`TURN_MAX`].

/// The first turn, in microseconds: some attempts of DHCP, and a link that comes up only seconds
/// after a card's reset.
pub const TURN: u64 = 4_000_000;
/// The longest turn: the longest wait of the DHCP client, so that it asks at least once.
pub const TURN_MAX: u64 = 32_000_000;
/// How often links are looked at while no card has an address.
pub const LOOK: u64 = 500_000;

/// What is known about a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Hardware address.
    pub mac: [u8; 6],
    /// It has a link.
    pub link: bool,
}

/// Whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    current: usize,
    /// Turns since all cards had one.
    turns: usize,
    turn: u64,
    /// When the turn ends, and when links are looked at again.
    ends: u64,
    looks: u64,
}

impl Choice {
    /// The first turn, at `now`: of the card with the address `boot`, else of the first with a
    /// link, else of the first. Panics without a card.
    pub fn new(ports: &[Port], boot: Option<[u8; 6]>, now: u64) -> Self {
        assert!(!ports.is_empty(), "no card to choose");
        let named = ports.iter().position(|port| Some(port.mac) == boot);
        let linked = || ports.iter().position(|port| port.link);
        Self {
            current: named.or_else(linked).unwrap_or(0),
            turns: 0,
            turn: TURN,
            ends: now + TURN,
            looks: now + LOOK,
        }
    }

    /// Whose turn it is.
    pub fn current(&self) -> usize {
        self.current
    }

    /// When [`Self::next`] is to be asked.
    pub fn deadline(&self) -> u64 {
        self.ends.min(self.looks)
    }

    /// The card whose turn it is has got an address or lost one: it leads somewhere, and has a
    /// first turn again before another one is tried.
    pub fn renew(&mut self, now: u64) {
        self.turns = 0;
        self.turn = TURN;
        self.ends = now + TURN;
        self.looks = now + LOOK;
    }

    /// The card whose turn begins now, if one does. The ports are those of [`Self::new`].
    pub fn next(&mut self, ports: &[Port], now: u64) -> Option<usize> {
        if now < self.deadline() {
            return None;
        }
        self.looks = now + LOOK;
        let others = (1..ports.len()).map(|step| (self.current + step) % ports.len());
        let linked = others.clone().find(|&other| ports[other].link);
        let has_link = ports[self.current].link;
        let next = match linked {
            Some(other) if !has_link => other,
            _ if now < self.ends => return None,
            Some(other) => other,
            // The only one with a link; where nobody has one, a card may be wrong about it.
            None if has_link => self.current,
            None => (self.current + 1) % ports.len(),
        };
        self.begin(next, ports.len(), now)
    }

    fn begin(&mut self, next: usize, cards: usize, now: u64) -> Option<usize> {
        self.turns += 1;
        if self.turns == cards {
            self.turns = 0;
            self.turn = (self.turn * 2).min(TURN_MAX);
        }
        self.ends = now + self.turn;
        let before = core::mem::replace(&mut self.current, next);
        (before != next).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn port(number: u8, link: bool) -> Port {
        Port {
            mac: [2, 0, 0, 0, 0, number],
            link,
        }
    }

    /// Whose turns they are in the first `seconds`, while nobody gets an address.
    fn turns(ports: &[Port], boot: Option<[u8; 6]>, seconds: u64) -> Vec<usize> {
        let mut choice = Choice::new(ports, boot, 0);
        let mut turns = vec![choice.current()];
        while choice.deadline() < seconds * 1_000_000 {
            let now = choice.deadline();
            turns.extend(choice.next(ports, now));
            assert!(choice.deadline() > now);
        }
        turns
    }

    #[test]
    fn a_port_without_a_link_is_passed_over() {
        let ports = [port(0, false), port(1, true), port(2, false)];
        assert_eq!(turns(&ports, None, 60), [1]);
        // The boot card loses its turn as soon as links are looked at.
        assert_eq!(turns(&ports, Some(ports[2].mac), 60), [2, 1]);
    }

    #[test]
    fn a_dead_port_that_says_it_has_a_link_loses_its_turn() {
        let ports = [port(0, true), port(1, true)];
        assert_eq!(turns(&ports, None, 5), [0, 1]);
        assert_eq!(turns(&ports, Some(ports[1].mac), 5), [1, 0]);
        // Later turns are longer, up to the limit.
        assert_eq!(turns(&ports, None, 24), [0, 1, 0, 1]);
        assert!(turns(&ports, None, 400).len() > 12);
    }

    #[test]
    fn without_any_link_all_have_turns() {
        let ports = [port(0, false), port(1, false), port(2, false)];
        assert_eq!(turns(&ports, None, 13), [0, 1, 2, 0]);
    }

    #[test]
    fn a_link_that_comes_later_is_seen_within_a_look() {
        let mut ports = [port(0, false), port(1, false)];
        let mut choice = Choice::new(&ports, None, 0);
        assert_eq!(choice.next(&ports, LOOK), None);
        ports[1].link = true;
        assert_eq!(choice.next(&ports, 2 * LOOK), Some(1));
    }

    #[test]
    fn who_loses_its_address_has_a_new_turn() {
        let mut ports = [port(0, true), port(1, true)];
        let mut choice = Choice::new(&ports, None, 0);
        // It had an address for an hour, in which nobody asked.
        let now = 3_600_000_000;
        let mut late = choice.clone();
        assert_eq!(
            late.next(&ports, now),
            Some(1),
            "the turn was over long ago"
        );
        choice.renew(now);
        assert_eq!(choice.next(&ports, now), None);
        let looks = (1..).map(|look| now + look * LOOK);
        let mut looks = looks.take_while(|at| *at < now + TURN);
        assert!(looks.all(|at| choice.next(&ports, at).is_none()));
        assert_eq!(choice.next(&ports, now + TURN), Some(1));
        // Without a link it is left at the first look.
        choice.renew(2 * now);
        ports[1].link = false;
        assert_eq!(choice.next(&ports, 2 * now + LOOK), Some(0));
    }

    #[test]
    fn a_single_card_is_never_left() {
        assert_eq!(turns(&[port(0, false)], None, 100), [0]);
    }

    proptest! {
        #[test]
        fn every_card_has_turns_for_ever(
            links in prop::collection::vec(any::<bool>(), 2..6),
            boot in 0..6u8,
        ) {
            let numbered = links.iter().enumerate();
            let ports: Vec<Port> = numbered.map(|(n, &link)| port(n as u8, link)).collect();
            let first = turns(&ports, Some(port(boot, true).mac), 400);
            let any = links.contains(&true);
            for (number, &link) in links.iter().enumerate() {
                prop_assert!(!any || !link || first.contains(&number), "{first:?}");
                prop_assert!(any || first.contains(&number), "{first:?}");
            }
        }
    }
}
