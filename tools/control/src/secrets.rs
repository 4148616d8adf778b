//! The cluster secret, from which every node's key derives, and the token of the HTTP API.
//!
//! Key types: [`ClusterSecret`], [`Token`]. Neighbours: `serve` (keys of nodes), `api::auth`.
//!
//! Invariant: both files are created with mode 0600 and never printed or logged; a file that
//! others can read is refused, not repaired in silence.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::durable;

/// Bytes of the cluster secret: the key size of SipHash.
pub const SECRET_BYTES: usize = 16;

/// Random bytes of the token: 256 bits, 64 hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Least length of a token, in characters: an operator may write one of their own.
const TOKEN_LENGTH_MIN: usize = 32;

/// How often a file that is too short is looked at, and the pause between two looks: who makes it
/// writes a line.
const WRITTEN_WITHIN: u32 = 20;
const WRITTEN_PAUSE: Duration = Duration::from_millis(10);

/// The secret all node keys of a cluster derive from.
#[derive(Clone)]
pub struct ClusterSecret(pub [u8; SECRET_BYTES]);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClusterSecret(..)")
    }
}

/// The bearer token; only its hash is kept, and hashes are compared in constant time.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

impl Token {
    /// Whether `given` is the token; takes the same time whatever the answer.
    pub fn matches(&self, given: &str) -> bool {
        blake3::hash(given.trim().as_bytes()) == self.0
    }
}

/// Why a secret could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Reading or creating the file failed.
    #[error("cannot read or create {path}: {source}; is its folder there and writable?")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others may read the file.
    #[error(
        "{path} can be read by others (mode {mode:03o}); run `chmod 600 {path}` (on FAT, where that does nothing, mount the file system with umask=077), and delete it instead if it may have been seen"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file does not hold what it should.
    #[error(
        "{path} is damaged; delete it and a new one is made (running nodes then join again after a reboot)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file holds what anybody can guess.
    #[error(
        "{path} holds a key of zeros only, which protects nothing; delete it and a new one is made (copy that to whatever else had this one)"
    )]
    Zero {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Loads the cluster secret, or makes one.
///
/// # Errors
/// [`SecretError`].
pub fn cluster_secret(path: &Path) -> Result<ClusterSecret, SecretError> {
    let text = load_or_create(path, SECRET_BYTES, 2 * SECRET_BYTES)?;
    let damaged = || SecretError::Damaged { path: path.into() };
    let secret = decode_hex(text.trim()).ok_or_else(damaged)?;
    match secret == [0; SECRET_BYTES] {
        true => Err(SecretError::Zero { path: path.into() }),
        false => Ok(ClusterSecret(secret)),
    }
}

/// Loads the API token, or makes one.
///
/// # Errors
/// [`SecretError`].
pub fn token(path: &Path) -> Result<Token, SecretError> {
    let text = load_or_create(path, TOKEN_BYTES, TOKEN_LENGTH_MIN)?;
    if text.trim().len() < TOKEN_LENGTH_MIN {
        return Err(SecretError::Damaged { path: path.into() });
    }
    Ok(Token(blake3::hash(text.trim().as_bytes())))
}

/// A secret that somebody has written down: the first line of a file that is its owner's alone.
///
/// # Errors
/// [`SecretError`].
pub fn read(path: &Path) -> Result<String, SecretError> {
    let failed = |source| SecretError::File {
        path: path.into(),
        source,
    };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    check_mode(&file, path)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
}

/// Writes a secret down, for its owner alone.
///
/// # Errors
/// [`SecretError`].
pub fn put(path: &Path, text: &str) -> Result<(), SecretError> {
    let written = durable::replace(path, format!("{text}\n").as_bytes(), 0o600);
    written.map_err(|source| SecretError::File {
        path: path.into(),
        source,
    })
}

fn check_mode(file: &std::fs::File, path: &Path) -> Result<(), SecretError> {
    let data = file.metadata().map_err(|source| SecretError::File {
        path: path.into(),
        source,
    })?;
    let mode = data.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(SecretError::Exposed {
            path: path.into(),
            mode,
        }),
    }
}

/// What the file holds, or the digits of `bytes` random bytes that it then holds. `least`: length
/// that the caller takes.
fn load_or_create(path: &Path, bytes: usize, least: usize) -> Result<String, SecretError> {
    let failed = |source| SecretError::File {
        path: path.into(),
        source,
    };
    match std::fs::File::open(path) {
        Ok(file) => {
            check_mode(&file, path)?;
            let pause = || std::thread::sleep(WRITTEN_PAUSE);
            read_written(file, least, pause).map_err(failed)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut random = vec![0; bytes];
            getrandom::fill(&mut random).map_err(SecretError::Random)?;
            let text = encode_hex(&random);
            match durable::create(path, format!("{text}\n").as_bytes(), 0o600).map_err(failed)? {
                true => Ok(text),
                // A link to a file that there is not; or whoever made it has removed it again.
                false if !path.exists() => Err(failed(std::io::ErrorKind::NotFound.into())),
                // Somebody else was faster.
                false => load_or_create(path, bytes, least),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

/// Reads a file that another process may be making, on a file system on which it is seen before it
/// is whole: again after each `pause`, until there is a line or `least` characters.
fn read_written(
    mut file: impl Read,
    least: usize,
    mut pause: impl FnMut(),
) -> std::io::Result<String> {
    let mut text = String::new();
    for _ in 0..WRITTEN_WITHIN {
        file.read_to_string(&mut text)?;
        if text.ends_with('\n') || text.trim().len() >= least {
            break;
        }
        pause();
    }
    Ok(text)
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn encode_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Exactly `N` bytes from `2 N` hexadecimal digits.
pub fn decode_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_secret_is_made_once_private_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let first = cluster_secret(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(cluster_secret(&path).unwrap().0, first.0);
        assert_ne!(first.0, [0; SECRET_BYTES]);
        assert_eq!(format!("{first:?}"), "ClusterSecret(..)");
    }

    #[test]
    fn who_makes_a_secret_at_the_same_time_gets_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        for _ in 0..20 {
            let all: Vec<_> = std::thread::scope(|scope| {
                let each: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| cluster_secret(&path)))
                    .collect();
                each.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let first = all[0].as_ref().unwrap().0;
            assert!(all.iter().all(|one| one.as_ref().unwrap().0 == first));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_secret_that_is_being_written_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "00112233").unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let mut writer = options.append(true).open(&path).unwrap();
        // It is written between two looks and not by a clock, which a busy machine would not keep
        // to.
        let mut pauses = 0;
        let text = read_written(reader, 2 * SECRET_BYTES, || {
            pauses += 1;
            if pauses == 2 {
                writer.write_all(b"445566778899aabbccddeeff\n").unwrap();
            }
        });
        assert_eq!(text.unwrap(), "00112233445566778899aabbccddeeff\n");
        assert_eq!(pauses, 2);
    }

    #[test]
    fn only_what_is_too_short_is_waited_for_and_not_forever() {
        let looks = |text: &str| {
            let mut pauses = 0;
            let read = read_written(text.as_bytes(), TOKEN_LENGTH_MIN, || pauses += 1);
            assert_eq!(read.unwrap(), text);
            pauses
        };
        assert_eq!(looks(&"x".repeat(TOKEN_LENGTH_MIN)), 0);
        assert_eq!(looks("short\n"), 0);
        assert_eq!(looks("short"), WRITTEN_WITHIN);
    }

    #[test]
    fn an_exposed_or_damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        cluster_secret(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            cluster_secret(&path),
            Err(SecretError::Exposed { mode: 0o644, .. })
        ));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(
            cluster_secret(&path),
            Err(SecretError::Damaged { .. })
        ));
        std::fs::write(&path, "0".repeat(2 * SECRET_BYTES)).unwrap();
        let refused = cluster_secret(&path).unwrap_err();
        assert!(matches!(refused, SecretError::Zero { .. }));
        assert!(refused.to_string().contains("delete it"), "{refused}");
    }

    #[test]
    fn only_the_token_matches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let token = token(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(token.matches(&text));
        assert!(!token.matches(""));
        assert!(!token.matches(&text[1..]));
        let own = "x".repeat(TOKEN_LENGTH_MIN);
        std::fs::write(&path, &own).unwrap();
        assert!(super::token(&path).unwrap().matches(&own));
    }

    #[test]
    fn hex_is_read_back() {
        assert_eq!(decode_hex::<3>("00ffA1"), Some([0, 255, 161]));
        assert_eq!(decode_hex::<3>("00ff"), None);
        assert_eq!(decode_hex::<1>("+f"), None);
    }
}
