//! The peer's server: nfs-ganesha, from Debian's packages, in the network of a cluster.
//!
//! The packages are downloaded by the machine's own package manager and unpacked under `target/`;
//! they are not installed. The server looks for its libraries and for `/etc/idmapd.conf` in places
//! of the system, so it runs in a mount namespace in which the packages lie over these.
//!
//! Key type: [`Ganesha`]. Neighbour: [`super::nfs`] measures.
//!
//! Invariant: the server is gone when its value is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::cluster::Cluster;
use crate::workspace::output_of;

/// The server, its file system, and the libraries that Debian's base system has not.
const PACKAGES: [&str; 6] = [
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "libntirpc4.3",
    "liburcu8",
    "libwbclient0",
    "libnfsidmap1",
];
const PROGRAM: &str = "usr/bin/ganesha.nfsd";
/// What it writes into its log when it serves.
const SERVES: &str = "NFS SERVER INITIALIZED";
const BEGIN_LIMIT: Duration = Duration::from_secs(60);
/// The exported directory, as clients name it.
pub const EXPORT: &str = "/exp";

/// In the mount namespace: `$1` is the folder with the packages, and what follows the command.
const OVERLAYS: &str = "set -e
mount --make-rprivate /
libraries=usr/lib/x86_64-linux-gnu
mount -t overlay overlay -o lowerdir=$1/$libraries:/$libraries /$libraries
mount -t overlay overlay -o lowerdir=$1/etc-over:/etc /etc
export LD_LIBRARY_PATH=$1/usr/lib/ganesha
shift
exec \"$@\"
";

/// A server that runs.
pub struct Ganesha(Child);

impl Ganesha {
    /// Begins to serve `exported`. Files of its own are in `folder` below the build directory.
    pub fn begin(cluster: &Cluster, folder: &Path, exported: &Path) -> Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "nfs-ganesha opens files by their handles, which only root may"
        );
        let unpacked = unpacked(folder)?;
        let own = folder.join("run");
        if own.exists() {
            fs::remove_dir_all(&own)?;
        }
        fs::create_dir_all(own.join("recovery"))?;
        let log = own.join("log");
        let settings = own.join("ganesha.conf");
        fs::write(&settings, settings_for(&own, exported))?;
        let mut child = cluster
            .in_namespace()?
            .args(["unshare", "-m", "sh", "-c", OVERLAYS, "sh"])
            .arg(&unpacked)
            .arg(unpacked.join(PROGRAM))
            .args(["-F", "-f"])
            .arg(&settings)
            .arg("-L")
            .arg(&log)
            .arg("-p")
            .arg(own.join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting nsenter; `cargo xtask setup` installs it")?;
        let end = Instant::now() + BEGIN_LIMIT;
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains(SERVES) {
                return Ok(Self(child));
            }
            if child.try_wait()?.is_some() || Instant::now() > end {
                // It may have ended by itself.
                let _ = child.kill();
                let said_too = child.wait_with_output()?.stderr;
                let last = said.lines().last().unwrap_or_default();
                bail!(
                    "nfs-ganesha does not serve: {last} {}",
                    String::from_utf8_lossy(&said_too)
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its defaults, but for what makes it serve one directory by NFS 4 at once: without NFS 3 it needs
/// no port mapper, and without a client before this one there is nothing to wait for.
fn settings_for(own: &Path, exported: &Path) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 60; RecoveryBackend = fs; RecoveryRoot = \
         \"{}\"; Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"{EXPORT}\"; Access_Type = RW; Squash = \
         No_Root_Squash; Protocols = 4; Transports = TCP; SecType = sys; FSAL {{ Name = VFS; }} \
         }}\n",
        own.join("recovery").display(),
        exported.display()
    )
}

/// The folder with the packages, which are downloaded where they are not there.
fn unpacked(folder: &Path) -> Result<PathBuf> {
    let unpacked = folder.join("unpacked");
    if unpacked.join(PROGRAM).exists() {
        return Ok(unpacked);
    }
    fs::create_dir_all(folder)?;
    eprintln!(
        "bench: downloading nfs-ganesha for comparison (unpacked under target/, not installed)"
    );
    let mut download = Command::new("apt-get");
    download.args(["download", "-q"]).args(PACKAGES);
    output_of(download.current_dir(folder)).context("the packages of nfs-ganesha")?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            output_of(Command::new("dpkg").arg("-x").arg(&path).arg(&unpacked))?;
            fs::remove_file(path)?;
        }
    }
    let etc = unpacked.join("etc-over");
    fs::create_dir_all(&etc)?;
    let names = "[General]\nDomain = localdomain\n[Translation]\nMethod = nsswitch\n";
    fs::write(etc.join("idmapd.conf"), names)?;
    Ok(unpacked)
}
