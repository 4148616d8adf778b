//! What takes long or downloads something, and is therefore not in every run but in
//! `cargo xtask test --full`; by hand
//! `cargo test -p hearth-boot --test qemu -- --ignored on_request`.

mod cards;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::joining::{BESIDE, SITE};
use crate::machine::{MAC, Machine};
use crate::rack::{Rack, Site, in_namespace};
use crate::support;

/// Firmware that passes no command line on, beside the site's own server.
#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn uefi_pxe_beside_another_dhcp_server_joins() {
    in_namespace(
        "on_request::uefi_pxe_beside_another_dhcp_server_joins",
        || {
            let rack = Rack::configured(BESIDE, &[]);
            let _site = Site::new(&rack);
            let machine = Machine::uefi(rack.folder()).boots_by_network();
            let (boot, console) = rack.joins(machine);
            assert_eq!(boot["firmware"], "uefi-pxe");
            assert!(console.contains(SITE), "{console}");
        },
    );
}

#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn uefi_http_boot_beside_another_dhcp_server_joins() {
    in_namespace(
        "on_request::uefi_http_boot_beside_another_dhcp_server_joins",
        || {
            let rack = Rack::configured(BESIDE, &[]);
            let _site = Site::new(&rack);
            let machine = Machine::uefi(rack.folder()).without("IPv4PXESupport");
            let (boot, console) = rack.joins(machine.boots_by_network());
            assert_eq!(boot["firmware"], "uefi-http");
            assert!(console.contains(SITE), "{console}");
        },
    );
}

/// Linux runs, and what `hearth image kexec` prints makes a node of the machine.
#[test]
#[ignore = "needs QEMU, a network namespace, kexec, Debian's package server and the outputs of `cargo xtask build`"]
fn linux_becomes_a_node_by_kexec() {
    if support::role().is_none() {
        // Outside, where there is a network.
        Debian::unpacked();
    }
    in_namespace("on_request::linux_becomes_a_node_by_kexec", || {
        let rack = Rack::new(&["--lab-keys"]);
        let options = "hearth.console=ttyS0 hearth.ip=10.117.4.7/16";
        let printed = rack.hearth(&[
            "image",
            "kexec",
            "--node",
            "7",
            "--mac",
            MAC,
            "--command-line",
            options,
        ]);
        let debian = Debian::unpacked();
        let initrd = debian.initramfs(rack.folder(), &printed);
        let machine = Machine::bios().options(&["-m", "256"]);
        let machine = machine.boots_directly(&debian.kernel, &initrd, "console=ttyS0 quiet");
        let (boot, console) = rack.joins(machine);
        assert_eq!(boot["node"], "n7");
        assert!(console.contains("Linux is up"), "{console}");
    });
}

/// Debian's kernel for virtual machines and its kexec, downloaded and unpacked once, not installed.
struct Debian {
    kernel: PathBuf,
    root: PathBuf,
}

impl Debian {
    fn unpacked() -> Debian {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian");
        if !root.join("sbin/kexec").exists() {
            std::fs::create_dir_all(&root).expect("it can be made");
            shell(DOWNLOAD, &root);
        }
        let files = std::fs::read_dir(root.join("boot")).expect("the package has a kernel");
        let mut paths = files.flatten().map(|file| file.path());
        let is_kernel = |path: &PathBuf| path.to_string_lossy().contains("/vmlinuz-");
        let kernel = paths.find(is_kernel).expect("the package has a kernel");
        Debian { kernel, root }
    }

    /// An initial file system that runs `commands`: busybox, kexec with its libraries, the image.
    fn initramfs(&self, folder: &Path, commands: &str) -> PathBuf {
        let root = folder.join("initramfs");
        std::fs::create_dir_all(&root).expect("it can be made");
        let init = format!(
            "#!/bin/busybox sh\n/bin/busybox mkdir -p /proc /sys\n\
             /bin/busybox mount -t proc proc /proc\n/bin/busybox mount -t sysfs sys /sys\n\
             export PATH=/bin\nalias sync='busybox sync'\necho Linux is up\n{commands}\n\
             echo kexec has failed\n/bin/busybox poweroff -f\n"
        );
        std::fs::write(root.join("init"), init).expect("it can be written");
        let image = root.join("hearth.efi");
        std::fs::copy(crate::output("hearth.efi"), image).expect("it can be copied");
        shell(&format!("d={}\n{PACK}", self.root.display()), &root);
        folder.join("initramfs.gz")
    }
}

/// The libraries are those that nothing else on the machine needs.
const DOWNLOAD: &str = "\
    kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/ *Depends: \\(linux-image-.*\\)/\\1/p')
    libraries=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances kexec-tools | grep -E '^lib(xen|yajl)' | sort -u)
    apt-get download -q $kernel kexec-tools $libraries
    for package in *.deb; do dpkg -x $package . && rm $package; done";

const PACK: &str = "\
    mkdir bin && chmod 755 init && cp /bin/busybox $d/sbin/kexec bin/
    export LD_LIBRARY_PATH=$d/usr/lib/x86_64-linux-gnu:$d/lib/x86_64-linux-gnu
    mkdir -p lib64 lib/x86_64-linux-gnu
    for file in $(ldd bin/kexec | grep -o '/[^ ]*'); do
        case $file in */ld-linux*) cp -L $file lib64/ ;; *) cp -L $file lib/x86_64-linux-gnu/ ;; esac
    done
    find . | cpio --quiet -o -H newc | gzip -1 > ../initramfs.gz";

fn shell(script: &str, folder: &Path) {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).current_dir(folder);
    let output = command.output().expect("sh starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said}");
}
