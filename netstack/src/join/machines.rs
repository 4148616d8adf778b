//! Which machines may join, beside having the right key.
//!
//! Key type: [`Machines`]. Neighbours: `admission` asks at each HELLO; the owner of the endpoint
//! decides, since the protocol does not know why.
//!
//! Invariant: a machine that is not admitted stays out, whatever key it has.

use alloc::collections::BTreeSet;

/// A MAC address.
type Mac = [u8; 6];

/// Which machines may join.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// These and no others; none: any.
    only: Option<BTreeSet<Mac>>,
}

impl Machines {
    pub(crate) fn admit_only(&mut self, machines: Option<BTreeSet<Mac>>) {
        self.only = machines;
    }

    pub(crate) fn admit(&mut self, mac: Mac) {
        if let Some(only) = &mut self.only {
            only.insert(mac);
        }
    }

    pub(super) fn admits(&self, mac: Mac) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&mac))
    }
}
