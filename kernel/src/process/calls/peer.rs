//! hearth_peer: how another rank of the job is reached.

use hearth_abi::errno::Errno;
use hearth_abi::peer::PeerEntry;
use netstack::broadcast::table::Entry;
use netstack::ids::Rank;

use super::Args;
use crate::exchange::PeerLookup;
use crate::exchange::TABLE_WITHIN;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

impl Current<'_> {
    /// Answers at once. A table that is on its way is EAGAIN; the node looks at its network before
    /// it says so, so that a program may ask in a loop.
    pub(super) fn hearth_peer(&mut self, args: Args) -> Result<u64, Stop> {
        let [rank, address, ..] = args;
        let rank = u32::try_from(rank).ok();
        let Some(rank) = rank.filter(|&rank| rank < self.process.spec.size) else {
            return Err(Errno::EINVAL.into());
        };
        let mut found = self.services.peer(Rank(rank));
        if found == PeerLookup::NoTable && self.process.spec.size > 1 {
            self.poll();
            self.process.check_cancelled(self.services)?;
            found = self.services.peer(Rank(rank));
        }
        let entry = match found {
            PeerLookup::Found(entry) => entry,
            PeerLookup::NotThere => return Err(Errno::ENODATA.into()),
            PeerLookup::NoTable => {
                let late = time::now() >= self.process.clock.started + TABLE_WITHIN;
                return Err(match late || self.process.spec.size == 1 {
                    true => Errno::ENODATA.into(),
                    false => Errno::EAGAIN.into(),
                });
            }
        };
        self.write_bytes(address, &entry_of(rank, &entry).to_bytes())?;
        Ok(0)
    }
}

fn entry_of(rank: u32, entry: &Entry) -> PeerEntry {
    PeerEntry {
        rank,
        node: entry.node.0,
        address: entry.addr.ip().octets(),
        port: entry.addr.port(),
        mac: entry.mac,
        window: entry.window,
        network: entry.network,
        logical: entry.logical.into(),
        mask: entry.lid_mask.into(),
        port_id: entry.port_id.into(),
    }
}
