//! Keeps range leases over a restart of the service.

use crate::mac::Mac;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::{fs, io};

/// Largest lease file read: [`crate::config::MAX_LEASES`] entries of some 60 bytes, with room.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// A JSON file with one entry a lease, always written whole under another name and then moved.
#[derive(Clone, Debug)]
pub(crate) struct LeaseFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    leases: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    mac: Mac,
    address: Ipv4Addr,
}

impl LeaseFile {
    pub(crate) fn new(path: PathBuf) -> LeaseFile {
        LeaseFile { path }
    }

    /// The leases in the file; none if it does not exist yet.
    pub(crate) fn load(&self) -> io::Result<Vec<(Mac, Ipv4Addr)>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
                return Err(io::Error::other("it is too large for a lease file"));
            }
            Ok(_) => {}
        }
        let contents: Contents = serde_json::from_slice(&fs::read(&self.path)?)?;
        Ok(contents
            .leases
            .into_iter()
            .map(|entry| (entry.mac, entry.address))
            .collect())
    }

    /// Writes all leases.
    pub(crate) fn save(&self, leases: impl Iterator<Item = (Mac, Ipv4Addr)>) -> io::Result<()> {
        let leases = leases
            .map(|(mac, address)| Entry { mac, address })
            .collect();
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        fs::write(&temporary, serde_json::to_vec(&Contents { leases })?)?;
        fs::rename(&temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_gives_what_save_took() {
        let directory = tempfile::tempdir().unwrap();
        let file = LeaseFile::new(directory.path().join("leases.json"));
        assert_eq!(file.load().unwrap(), []);
        let leases = [(Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 9))];
        file.save(leases.into_iter()).unwrap();
        assert_eq!(file.load().unwrap(), leases);
        fs::write(directory.path().join("leases.json"), "{").unwrap();
        assert!(file.load().is_err());
    }
}
