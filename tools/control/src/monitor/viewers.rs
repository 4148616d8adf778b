//! Places for those who watch the stream.
//!
//! Key types: [`Viewers`], [`Place`]. Neighbour: `api::monitor::stream`.
//!
//! Invariant: no address has more than [`STREAMS_OF_ONE_MAX`] of the [`STREAMS_MAX`] places. The
//! unix socket, whose directory's rights are its access control, counts as no address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Streams at a time.
pub const STREAMS_MAX: usize = 256;
/// Of these, streams to one address.
pub const STREAMS_OF_ONE_MAX: usize = 64;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// [`STREAMS_MAX`] are taken.
    All,
    /// The address has [`STREAMS_OF_ONE_MAX`].
    OfAddress,
}

/// Who has places.
#[derive(Debug, Clone, Default)]
pub struct Viewers(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    viewers: Viewers,
    address: Option<IpAddr>,
}

impl Viewers {
    /// Takes a place for a client at `address`, `None` for one of the unix socket.
    ///
    /// # Errors
    /// [`Full`].
    pub fn enter(&self, address: Option<IpAddr>) -> Result<Place, Full> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = address.and_then(|address| taken.by_address.get(&address));
        if of_one.is_some_and(|count| *count >= STREAMS_OF_ONE_MAX) {
            return Err(Full::OfAddress);
        }
        if taken.all >= STREAMS_MAX {
            return Err(Full::All);
        }
        taken.all += 1;
        if let Some(address) = address {
            *taken.by_address.entry(address).or_default() += 1;
        }
        Ok(Place {
            viewers: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self
            .viewers
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(address) = self.address
            && let Some(count) = taken.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_have_all_places_and_places_come_back() {
        let viewers = Viewers::default();
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let enter = |last| viewers.enter(address(last));
        let mut places: Vec<Place> = Vec::new();
        for _ in 0..STREAMS_OF_ONE_MAX {
            places.push(enter(1).unwrap());
        }
        assert_eq!(enter(1).unwrap_err(), Full::OfAddress);
        places.push(enter(2).unwrap());
        places.push(viewers.enter(None).unwrap());
        while places.len() < STREAMS_MAX {
            places.push(viewers.enter(None).unwrap());
        }
        assert_eq!(enter(3).unwrap_err(), Full::All);
        assert_eq!(viewers.enter(None).unwrap_err(), Full::All);
        // The first was of address 1.
        drop(places.remove(0));
        enter(1).unwrap();
        drop(places);
        let taken = viewers.0.lock().unwrap();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0));
    }
}
