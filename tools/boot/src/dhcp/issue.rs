//! Hands out personalities: once per machine and boot epoch.
//!
//! A repeat before the node has joined is a retransmission and gets the same answer. Once the node has joined, its key is in
//! use, and whoever asks for it again is not that node.

use crate::config::MAX_LEASES;
use crate::hooks::{Personalities, Refused};
use crate::mac::Mac;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Longest personality: one DHCP option.
const MAX_PERSONALITY_BYTES: usize = 255;

/// A personality that was handed out.
#[derive(Debug)]
struct Issued {
    boot_epoch: u64,
    bytes: Vec<u8>,
    /// The node has joined with it: nobody may get it any more.
    used: bool,
}

/// The latest personality of every machine.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    issued: BTreeMap<Mac, Issued>,
}

impl Issuer {
    /// The personality for one boot of one machine.
    pub(super) fn request(
        &mut self,
        mac: Mac,
        boot_epoch: u64,
        address: Ipv4Addr,
        personalities: &dyn Personalities,
    ) -> Result<Vec<u8>, Refused> {
        match self.issued.get(&mac) {
            Some(issued) if issued.boot_epoch == boot_epoch && issued.used => Err(Refused {
                reason: "the key of this boot is in use already; if the machine is yours, restart \
                         it, else somebody copies its requests"
                    .into(),
            }),
            Some(issued) if issued.boot_epoch == boot_epoch => Ok(issued.bytes.clone()),
            _ => self.issue(mac, boot_epoch, address, personalities),
        }
    }

    /// The node of this boot has joined.
    pub(super) fn joined(&mut self, mac: Mac, boot_epoch: u64) {
        // It may have its personality from before a restart of this service, or from its command line.
        if self.issued.len() < MAX_LEASES || self.issued.contains_key(&mac) {
            self.issued.insert(
                mac,
                Issued {
                    boot_epoch,
                    bytes: Vec::new(),
                    used: true,
                },
            );
        }
    }

    fn issue(
        &mut self,
        mac: Mac,
        boot_epoch: u64,
        address: Ipv4Addr,
        personalities: &dyn Personalities,
    ) -> Result<Vec<u8>, Refused> {
        if self.issued.len() >= MAX_LEASES && !self.issued.contains_key(&mac) {
            let reason = format!("{MAX_LEASES} machines have personalities already");
            return Err(Refused { reason });
        }
        let bytes = personalities.personality(mac, boot_epoch, address)?;
        if bytes.len() > MAX_PERSONALITY_BYTES {
            let reason = format!(
                "its personality has {} bytes, more than one DHCP option holds; give the node a shorter name",
                bytes.len()
            );
            return Err(Refused { reason });
        }
        self.issued.insert(
            mac,
            Issued {
                boot_epoch,
                bytes: bytes.clone(),
                used: false,
            },
        );
        Ok(bytes)
    }
}
