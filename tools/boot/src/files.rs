//! The files machines ask for, in memory.
//!
//! Key type: [`Store`]. Read by [`crate::http`] and by TFTP (in [`crate::service`]).
//!
//! Invariant: only the files named in the configuration and plain files of the firmware directory
//! are ever opened; no part of a request becomes a path with directories.

use crate::config::{Config, OtherSystem};
use axum::body::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Largest file served. Boot images have about one megabyte; another system's initial file system
/// may have a hundred.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Files kept in memory: the image, another system's two, and the few network boot programs there
/// are.
const MAX_CACHED: usize = 16;

/// Length of what [`check_image`] looks at.
pub(crate) const IMAGE_START_BYTES: usize = 0x206;

/// Whether the start of a file is that of a boot image: a PE file and a Linux boot image at once.
/// It is checked because iPXE runs any file, as it is, that it does not recognise.
///
/// # Errors
/// What is wrong, to stand after the file's name.
pub fn check_image(start: &[u8]) -> Result<(), &'static str> {
    if start.len() < IMAGE_START_BYTES {
        return Err("is cut short; build it again");
    }
    if start[..2] != *b"MZ" || start[0x202..0x206] != *b"HdrS" {
        return Err("is not a boot image; name the hearth.efi that `cargo xtask build` makes");
    }
    Ok(())
}

/// Keeps files in memory and reads them again when they change on disk, so that a new image is
/// served at the next boot without a restart.
#[derive(Debug)]
pub struct Store {
    image: PathBuf,
    firmware_dir: PathBuf,
    other: Option<OtherSystem>,
    cache: Mutex<BTreeMap<PathBuf, Cached>>,
}

#[derive(Clone, Debug)]
struct Cached {
    modified: SystemTime,
    bytes: Bytes,
}

impl Store {
    pub fn new(config: &Config) -> Store {
        Store {
            image: config.image.clone(),
            firmware_dir: config.firmware_dir.clone(),
            other: config.other.clone(),
            cache: Mutex::new(BTreeMap::new()),
        }
    }

    /// The boot image.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn image(&self) -> Result<Bytes, String> {
        let path = self.image.display();
        let bytes = self.load(&self.image).map_err(|error| {
            format!("the boot image {path} cannot be read ({error}); build it or name another one")
        })?;
        check_image(&bytes).map_err(|wrong| format!("{path} {wrong}"))?;
        Ok(bytes)
    }

    /// The kernel and initial file system of the other system, if one is configured.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn other(&self, initrd: bool) -> Result<Bytes, String> {
        let other = self.other.as_ref().ok_or("no other system is configured")?;
        let path = if initrd {
            other.initrd.as_ref()
        } else {
            Some(&other.kernel)
        };
        let path = path.ok_or("the other system has no initial file system")?;
        self.load(path)
            .map_err(|error| format!("{} cannot be read ({error})", path.display()))
    }

    /// A network boot program of the firmware directory. `name` is a plain file name.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn firmware(&self, name: &str) -> Result<Bytes, String> {
        if name.starts_with('.') || name.contains(['/', '\0']) {
            return Err("only plain file names are served".into());
        }
        self.load(&self.firmware_dir.join(name)).map_err(|error| {
            let directory = self.firmware_dir.display();
            format!(
                "{name} is not in {directory} ({error}); install it there (Debian: package ipxe) or name another directory"
            )
        })
    }

    fn load(&self, path: &Path) -> std::io::Result<Bytes> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is not a file"));
        }
        if metadata.len() > MAX_FILE_BYTES {
            return Err(std::io::Error::other("it is larger than 512 MiB"));
        }
        let modified = metadata.modified()?;
        let fits = |cached: &&Cached| {
            cached.modified == modified && cached.bytes.len() as u64 == metadata.len()
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.get(path).filter(fits) {
            return Ok(cached.bytes.clone());
        }
        let bytes = Bytes::from(fs::read(path)?);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        // The time was taken before reading: a file that changed meanwhile is read again next time.
        cache.insert(
            path.to_owned(),
            Cached {
                modified,
                bytes: bytes.clone(),
            },
        );
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn image_of(length: usize) -> Vec<u8> {
        let mut image = vec![7; length];
        image[..2].copy_from_slice(b"MZ");
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image
    }

    #[test]
    fn a_changed_image_is_read_again_and_a_missing_one_named() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("hearth.efi");
        let mut config = Config::new("eth0", Ipv4Addr::new(10, 0, 0, 1), 24, image.clone());
        config.firmware_dir = directory.path().to_owned();
        let store = Store::new(&config);
        assert!(store.image().unwrap_err().contains("hearth.efi"));
        for bytes in [image_of(600), image_of(700)] {
            fs::write(&image, &bytes).unwrap();
            assert_eq!(store.image().unwrap(), bytes);
            assert_eq!(store.firmware("hearth.efi").unwrap(), bytes);
        }
        fs::write(&image, b"MZ").unwrap();
        assert!(store.image().unwrap_err().contains("cut short"));
        fs::write(&image, [0; 4096]).unwrap();
        assert!(store.image().unwrap_err().contains("not a boot image"));
        assert!(
            store
                .firmware("../hearth.efi")
                .unwrap_err()
                .contains("plain")
        );
        assert!(
            store
                .firmware("undionly.kpxe")
                .unwrap_err()
                .contains("install")
        );
        assert!(store.other(false).is_err());
    }
}
