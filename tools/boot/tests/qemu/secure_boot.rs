//! Secure Boot with a key of one's own: OVMF trusts the snake-oil key of its Debian package, which
//! stands for the site's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::rack::{LIMIT, Rack, has_stage, in_namespace};

const CERTIFICATE: &str = "/usr/share/ovmf/PkKek-1-snakeoil.pem";
const KEY: &str = "/usr/share/ovmf/PkKek-1-snakeoil.key";

#[test]
#[ignore = "needs QEMU, a network namespace, sbsign and the outputs of `cargo xtask build`"]
fn a_signed_image_joins() {
    in_namespace("secure_boot::a_signed_image_joins", || {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let signed = sign(folder.path());
        let rack = Rack::new(&["--image", &signed.display().to_string()]);
        let machine = Machine::secure_boot(rack.folder()).boots_by_network();
        let (boot, _) = rack.joins(machine);
        assert_eq!(boot["firmware"], "uefi-pxe");
    });
}

/// The other half: the machine that boots the signed image does refuse another.
#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn an_unsigned_image_is_refused() {
    in_namespace("secure_boot::an_unsigned_image_is_refused", || {
        let rack = Rack::new(&[]);
        let machine = Machine::secure_boot(rack.folder()).boots_by_network();
        let mut machine = rack.start(machine);
        let begin = Instant::now();
        while !machine.console().contains("Access Denied") {
            let ended = machine.is_off() || begin.elapsed() > LIMIT;
            assert!(!ended, "not refused: {}", machine.console());
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("refused after {:?}", begin.elapsed());
        let boot = rack.boot().expect("it asked");
        assert!(!has_stage(&boot, "joined"));
    });
}

/// Signs the image as the documentation says.
fn sign(folder: &Path) -> PathBuf {
    let (key, signed) = (folder.join("key.pem"), folder.join("signed.efi"));
    let mut open = Command::new("openssl");
    open.args(["rsa", "-passin", "pass:snakeoil", "-in", KEY, "-out"]);
    let opened = open.arg(&key).output().expect("openssl is installed");
    assert!(opened.status.success(), "{opened:?}");
    let mut sign = Command::new(crate::output("hearth"));
    sign.args(["image", "sign", "--certificate", CERTIFICATE, "--key"]);
    sign.arg(&key).arg("--output").arg(&signed);
    let done = sign.output().expect("hearth starts");
    assert!(done.status.success(), "{done:?}");
    signed
}
