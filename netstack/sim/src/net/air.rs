//! What is under way on the simulated network: flights by number, and the way of each to the port
//! of its destination.
//!
//! Key types: [`Air`], [`Flight`]. Neighbours: [`super::fabric`] decides when a flight arrives and
//! what of it is lost; [`super::Net`] queues its events and says what it carries.
//!
//! Invariant: a number names one flight from its take-off to its landing, and the numbers that are
//! given out are a function of the take-offs and landings alone.

use super::fabric::{Arrival, Fabric, Train};

/// A message under way, or several datagrams of one.
pub struct Flight<L> {
    /// The station that sent it.
    pub from: u32,
    /// The station that it is for.
    pub to: u32,
    /// What is left of it.
    pub train: Train,
    /// What it carries.
    pub load: L,
}

/// All flights.
pub struct Air<L> {
    flights: Vec<Option<Flight<L>>>,
    free: Vec<u32>,
}

impl<L> Air<L> {
    /// Nothing is under way.
    pub const fn new() -> Self {
        Air {
            flights: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds a flight; gives its number.
    pub fn take_off(&mut self, flight: Flight<L>) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.flights[number as usize] = Some(flight);
                number
            }
            None => {
                self.flights.push(Some(flight));
                (self.flights.len() - 1) as u32
            }
        }
    }

    /// Takes a flight off the books.
    ///
    /// # Panics
    /// If no such flight is under way.
    pub fn land(&mut self, number: u32) -> Flight<L> {
        self.free.push(number);
        self.flights[number as usize].take().expect("in the air")
    }

    /// A flight, if there is one with this number.
    pub fn get(&self, number: u32) -> Option<&Flight<L>> {
        self.flights.get(number as usize)?.as_ref()
    }

    /// A flight, if there is one with this number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Flight<L>> {
        self.flights.get_mut(number as usize)?.as_mut()
    }

    /// A flight is at a switch now: see [`Fabric::arrive`]. One of which nothing is left has
    /// landed.
    ///
    /// # Panics
    /// If no such flight is under way.
    pub fn arrive(&mut self, fabric: &mut Fabric, now: u64, number: u32) -> Arrival {
        let flight = self.get_mut(number).expect("in the air");
        let arrival = fabric.arrive(now, flight.from, flight.to, &mut flight.train);
        if arrival == Arrival::Never {
            self.land(number);
        }
        arrival
    }
}

impl<L> Default for Air<L> {
    fn default() -> Self {
        Air::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(load: u8) -> Flight<u8> {
        Flight {
            from: 0,
            to: 1,
            train: Train {
                datagrams: 1,
                wire: 100,
                sent_in: 80,
                passed: 0,
            },
            load,
        }
    }

    #[test]
    fn a_number_is_free_again_after_the_landing() {
        let mut air = Air::new();
        assert_eq!((air.take_off(flight(1)), air.take_off(flight(2))), (0, 1));
        assert_eq!(air.land(0).load, 1);
        assert!(air.get(0).is_none() && air.get(7).is_none());
        assert_eq!((air.take_off(flight(3)), air.take_off(flight(4))), (0, 2));
        assert_eq!(air.get_mut(0).map(|flight| flight.load), Some(3));
        assert_eq!(air.get(1).map(|flight| flight.load), Some(2));
    }
}
