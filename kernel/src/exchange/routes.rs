//! How ranks are reached: the last answers of the connection table, so that a packet costs no
//! look-up.
//!
//! Invariant: a route is forgotten with its job.

use core::net::SocketAddrV4;

use netstack::ids::Rank;

/// Routes kept, by the low bits of the rank: those of the few ranks that a node sends to at a time,
/// and their successors.
const ROUTES: usize = 256;

/// Where datagrams for a rank go.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Address and port.
    pub address: SocketAddrV4,
    /// Hardware address.
    pub mac: [u8; 6],
}

/// The routes of a job.
#[derive(Debug, Default)]
pub(super) struct Routes(alloc::vec::Vec<Option<(Rank, Route)>>);

impl Routes {
    /// The route to a rank, from the table if it is not known.
    pub(super) fn find(
        &mut self,
        rank: Rank,
        table: impl FnOnce() -> Option<Route>,
    ) -> Option<Route> {
        let place = rank.0 as usize % ROUTES;
        if let Some(Some((known, route))) = self.0.get(place)
            && *known == rank
        {
            return Some(*route);
        }
        let route = table()?;
        if self.0.is_empty() && self.0.try_reserve_exact(ROUTES).is_ok() {
            self.0.resize(ROUTES, None);
        }
        if let Some(slot) = self.0.get_mut(place) {
            *slot = Some((rank, route));
        }
        Some(route)
    }
}
