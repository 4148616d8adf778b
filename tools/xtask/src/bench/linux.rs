//! The peer: Debian's cloud kernel with an initramfs of busybox, as a Linux compute node would
//! boot.
//!
//! The kernel package is downloaded by the machine's own package manager and unpacked under
//! `target/`; it is not installed. The initramfs holds busybox, the virtio modules and one script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A kernel with the files an initramfs is made from.
pub struct Linux {
    folder: PathBuf,
    /// The kernel image.
    pub kernel: PathBuf,
    modules: PathBuf,
}

/// Longest time for a machine that counts instructions, in seconds.
const COUNTED_LIMIT_S: u32 = 300;

/// Modules in the order in which they are loaded.
const MODULES: &[&str] = &[
    "kernel/drivers/virtio/virtio_ring.ko",
    "kernel/drivers/virtio/virtio.ko",
    "kernel/drivers/virtio/virtio_pci_legacy_dev.ko",
    "kernel/drivers/virtio/virtio_pci_modern_dev.ko",
    "kernel/drivers/virtio/virtio_pci.ko",
    "kernel/net/core/failover.ko",
    "kernel/drivers/net/net_failover.ko",
    "kernel/drivers/net/virtio_net.ko",
];

/// Part of a script: a lease for `eth0`; the address of who gave it is in `/etc/server` afterwards.
pub const LEASE_SCRIPT: &str = r#"$bb ip link set eth0 up
cat > /etc/lease 2>/dev/null <<'END'
#!/bin/busybox sh
[ "$1" = bound ] || exit 0
/bin/busybox ip addr add $ip/$mask dev $interface
echo "$serverid" > /etc/server
END
$bb chmod 755 /etc/lease
$bb udhcpc -i eth0 -s /etc/lease -n -q -t 20 -T 1 -A 1
"#;

impl Linux {
    /// Finds the unpacked kernel under `target`, or downloads it.
    pub fn prepare(target: &Path) -> Result<Self> {
        let folder = target.join("bench-linux");
        fs::create_dir_all(&folder)?;
        let unpacked = folder.join("unpacked");
        if find_kernel(&unpacked).is_err() {
            let package = kernel_package()?;
            eprintln!(
                "bench: downloading {package} for comparison (unpacked under target/, not installed)"
            );
            command(
                Command::new("apt-get")
                    .args(["download", "-q", &package])
                    .current_dir(&folder),
            )?;
            let deb = fs::read_dir(&folder)?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .find(|path| path.extension().is_some_and(|e| e == "deb"))
                .context("apt-get download left no package")?;
            command(Command::new("dpkg").arg("-x").arg(&deb).arg(&unpacked))?;
            fs::remove_file(deb)?;
        }
        let (kernel, version) = find_kernel(&unpacked)?;
        let modules = unpacked.join("lib/modules").join(version);
        Ok(Self {
            folder,
            kernel,
            modules,
        })
    }

    /// Makes an initramfs that runs `script` as `/init` after the virtio modules are loaded;
    /// `files` go to `/bin`.
    pub fn initramfs(&self, name: &str, script: &str, files: &[&Path]) -> Result<PathBuf> {
        self.initramfs_with(&[], name, script, files)
    }

    /// The same with more modules, which are loaded in this order.
    pub fn initramfs_with(
        &self,
        modules: &[&str],
        name: &str,
        script: &str,
        files: &[&Path],
    ) -> Result<PathBuf> {
        let root = self.folder.join(name);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(root.join("bin"))?;
        fs::create_dir_all(root.join("modules"))?;
        fs::copy("/bin/busybox", root.join("bin/busybox"))
            .context("copying busybox; `cargo xtask setup` installs it")?;
        for file in files {
            let to = root
                .join("bin")
                .join(file.file_name().context("a file without a name")?);
            fs::copy(file, to).with_context(|| {
                format!("copying {}; `cargo xtask build` makes it", file.display())
            })?;
        }
        let mut init = String::from(
            "#!/bin/busybox sh\nbb=/bin/busybox\n$bb mkdir -p /proc /sys /dev /etc\n$bb mount -t proc proc /proc\n\
             $bb mount -t sysfs sys /sys\n$bb mount -t devtmpfs dev /dev\n",
        );
        for module in MODULES.iter().chain(modules) {
            let from = self.modules.join(module);
            let file = from
                .file_name()
                .context("a module without a name")?
                .to_string_lossy()
                .into_owned();
            fs::copy(&from, root.join("modules").join(&file))
                .with_context(|| from.display().to_string())?;
            init.push_str(&format!("$bb insmod /modules/{file}\n"));
        }
        init.push_str(script);
        fs::write(root.join("init"), init)?;
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
        let archive = self.folder.join(format!("{name}.cpio"));
        let line = format!(
            "find . | cpio --quiet -o -H newc > '{}' && gzip -9 -n -f '{}'",
            archive.display(),
            archive.display()
        );
        command(Command::new("sh").arg("-c").arg(line).current_dir(&root))?;
        Ok(archive.with_extension("cpio.gz"))
    }

    /// Boots it on a machine of `memory_mib` whose clock counts instructions (`-icount shift=0`:
    /// one tick of the time-stamp counter an instruction), and returns what it printed. The script
    /// must power the machine off.
    pub fn counted(&self, initrd: &Path, memory_mib: u32) -> Result<String> {
        let memory = memory_mib.to_string();
        let output = Command::new("timeout")
            .arg(COUNTED_LIMIT_S.to_string())
            .arg("qemu-system-x86_64")
            .args(["-accel", "tcg,tb-size=64"])
            .args(["-icount", "shift=0,sleep=off"])
            .args(["-M", "pc,graphics=off", "-cpu", "max", "-m", &memory])
            .args(["-nodefaults", "-display", "none", "-serial", "stdio"])
            .arg("-no-reboot")
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 quiet"])
            .output()
            .context("starting qemu-system-x86_64; `cargo xtask setup` installs it")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn kernel_package() -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", "linux-image-cloud-amd64"])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .context("the package lists name no cloud kernel; run `apt-get update` and try again")
}

fn find_kernel(unpacked: &Path) -> Result<(PathBuf, String)> {
    for entry in fs::read_dir(unpacked.join("boot"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if let Some(version) = name.strip_prefix("vmlinuz-") {
            return Ok((path.clone(), version.to_owned()));
        }
    }
    bail!("no kernel in {}", unpacked.display())
}

fn command(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
