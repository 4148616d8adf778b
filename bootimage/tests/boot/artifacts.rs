//! Images for the tests: built once per run from the stub package's own kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Default command line of the test image; what a loader passes comes after it.
pub const DEFAULT_COMMAND_LINE: &str = "hearth.log=info";

/// Images in a directory of their own.
pub struct Images {
    directory: PathBuf,
    /// The image of the kernel that only prints.
    pub stub: Vec<u8>,
}

impl Images {
    /// Where the images lie: also the root for TFTP.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The image of the kernel that only prints.
    pub fn stub_path(&self) -> PathBuf {
        self.directory.join("stub.efi")
    }

    /// The image of the kernel that plays GRUB and kexec.
    pub fn chain_path(&self) -> PathBuf {
        self.directory.join("chain.efi")
    }

    /// Writes another image beside them.
    pub fn write(&self, name: &str, image: &[u8]) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, image).unwrap();
        path
    }
}

/// The images, built on first use.
pub fn images() -> &'static Images {
    static IMAGES: OnceLock<Images> = OnceLock::new();
    IMAGES.get_or_init(build)
}

fn build() -> Images {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().unwrap();
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "bootstub",
            "--profile",
            "kernel",
        ])
        .args(["--target", "x86_64-unknown-none", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo starts");
    assert!(
        status.success(),
        "the boot stub does not build; `cargo xtask setup` installs what it needs"
    );
    let built = target.join("x86_64-unknown-none/kernel");
    let read = |name: &str| std::fs::read(built.join(name)).unwrap();
    let stub = read("bootstub");
    let image = |kernel: &str, line: &str| {
        let options = bootimage::Options {
            version: "0.0.1-test".into(),
            default_command_line: line.into(),
        };
        bootimage::build(&read(kernel), &stub, &options).unwrap()
    };
    let images = Images {
        directory: temporary.join("boot"),
        stub: image("stub-kernel", DEFAULT_COMMAND_LINE),
    };
    std::fs::create_dir_all(&images.directory).unwrap();
    images.write("stub.efi", &images.stub);
    images.write("chain.efi", &image("chain-kernel", ""));
    images
}
