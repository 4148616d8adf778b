//! Where things are: the source tree, the build directory, the user-facing outputs.
//!
//! Key type: [`Workspace`]. Neighbours: every task.
//!
//! Invariant: paths come from cargo's environment or from the working directory at run time; no
//! path of the machine that compiled this program is used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The bare-metal target of the kernel and of the boot stub.
pub const BARE_METAL_TARGET: &str = "x86_64-unknown-none";
/// The cargo profile the kernel and the boot stub are built with.
pub const KERNEL_PROFILE: &str = "kernel";

/// How the hosted crates are compiled, and where the outputs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As users get them: optimized, into `target/hearth`.
    Shipped,
    /// As tests use them: with overflow checks and debug assertions, into `target/checked`. The
    /// tests of the crates are compiled in the same way, so that everything is compiled once.
    Checked,
}

/// The source tree and its build directory.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    mode: Mode,
}

impl Workspace {
    /// Finds the workspace root from cargo's environment, else upwards from the working directory.
    pub fn locate() -> Result<Self> {
        let root = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(directory) => Path::new(&directory)
                .ancestors()
                .nth(2)
                .map(Path::to_path_buf),
            None => {
                let here = std::env::current_dir().context("asking for the working directory")?;
                here.ancestors()
                    .find(|directory| directory.join("tools/xtask/Cargo.toml").is_file())
                    .map(Path::to_path_buf)
            }
        };
        let Some(root) = root.filter(|root| root.join("rust-toolchain.toml").is_file()) else {
            bail!("the Hearth source tree was not found: run this inside it, as `cargo xtask ...`");
        };
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(directory) => root.join(directory),
            None => root.join("target"),
        };
        Ok(Self {
            root,
            target,
            mode: Mode::Shipped,
        })
    }

    /// A workspace at a given place: a copy, or one of a test.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            target: root.join("target"),
            mode: Mode::Shipped,
        }
    }

    /// The same workspace, as tests use it.
    pub fn checked(&self) -> Self {
        Self {
            mode: Mode::Checked,
            ..self.clone()
        }
    }

    /// The same workspace, as users have it.
    pub fn shipped(&self) -> Self {
        Self {
            mode: Mode::Shipped,
            ..self.clone()
        }
    }

    /// How the hosted crates are compiled.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Cargo's profile of the hosted crates.
    pub fn profile(&self) -> &'static str {
        match self.mode {
            Mode::Shipped => "release",
            Mode::Checked => "dev",
        }
    }

    /// A hosted executable, or an example as `examples/NAME`, as cargo leaves it.
    pub fn hosted(&self, name: &str) -> PathBuf {
        let directory = match self.mode {
            Mode::Shipped => "release",
            Mode::Checked => "debug",
        };
        self.target.join(directory).join(name)
    }

    /// The directory with the workspace's `Cargo.toml`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's build directory.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What a user needs: `hearth`, `hearth.efi`, `programs/`.
    pub fn outputs(&self) -> PathBuf {
        self.target.join(match self.mode {
            Mode::Shipped => "hearth",
            Mode::Checked => "checked",
        })
    }

    /// The operator's binary.
    pub fn hearth(&self) -> PathBuf {
        self.outputs().join("hearth")
    }

    /// The boot image.
    pub fn boot_image(&self) -> PathBuf {
        self.outputs().join("hearth.efi")
    }

    /// The boot image whose kernel has its tests in it.
    pub fn test_image(&self) -> PathBuf {
        self.outputs().join("hearth-test.efi")
    }

    /// The boot image with a kernel that only prints: what firmware and loader alone cost.
    pub fn stub_image(&self) -> PathBuf {
        self.outputs().join("hearth-stub.efi")
    }

    /// The compiled example programs.
    pub fn programs(&self) -> PathBuf {
        self.outputs().join("programs")
    }

    /// A bare-metal executable as cargo leaves it.
    pub fn bare_metal(&self, name: &str) -> PathBuf {
        self.target
            .join(BARE_METAL_TARGET)
            .join(KERNEL_PROFILE)
            .join(name)
    }

    /// A command of the same cargo that started this program, run in the workspace root.
    pub fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// `rustc` of the pinned toolchain, run in the workspace root.
    pub fn rustc(&self) -> Command {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut command = Command::new(rustc);
        command.current_dir(&self.root);
        command
    }
}

/// Runs a command and returns its standard output without the final newline.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output = command
        .output()
        .with_context(|| format!("starting `{name}`"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("`{name}` failed ({}): {}", output.status, text.trim());
    }
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("`{name}` printed something that is not UTF-8"))?;
    Ok(text.trim_end().to_owned())
}

/// Runs a command with the caller's terminal; an exit status other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command
        .status()
        .with_context(|| format!("starting `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// The command as a person would type it.
pub fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Looks a program up in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}
