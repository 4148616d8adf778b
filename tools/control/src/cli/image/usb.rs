//! `hearth image usb`: a medium with GRUB and the boot image on it.
//!
//! `grub-mkrescue` makes an ISO image that is a disk image as well, so one file serves USB sticks,
//! CDs and the virtual media of management controllers, by BIOS and by UEFI.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::Args;

use super::tools::{self, Tool};
use crate::cli::Global;

/// What makes the medium.
const TOOLS: &[Tool] = &[
    Tool {
        name: "grub-mkrescue",
        package: "grub-common",
    },
    Tool {
        name: "/usr/lib/grub/i386-pc",
        package: "grub-pc-bin",
    },
    Tool {
        name: "/usr/lib/grub/x86_64-efi",
        package: "grub-efi-amd64-bin",
    },
    Tool {
        name: "xorriso",
        package: "xorriso",
    },
    Tool {
        name: "mformat",
        package: "mtools",
    },
];
/// Seconds in which somebody at the machine can press a key and change the kernel's options.
const TIMEOUT_S: u32 = 2;

/// Options of `hearth image usb`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    start: super::Start,
    /// Where the medium's image goes.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub fn main(global: &Global, options: &Options) -> anyhow::Result<()> {
    tools::need(TOOLS)?;
    let image = super::boot_image(global, options.start.image.as_ref())?;
    let line = options.start.command_line(global)?;
    // The key of a node may be on it.
    crate::paths::make_files_private();
    let output = options.output.display();
    // Beside its place, so that a medium is there whole or not at all.
    let folder = Folder::beside(&options.output)?;
    let root = folder.0.join("root");
    let grub = root.join("boot/grub");
    std::fs::create_dir_all(&grub).with_context(|| format!("cannot write beside {output}"))?;
    std::fs::copy(&image, root.join("hearth.efi")).context("cannot copy the boot image")?;
    std::fs::write(grub.join("grub.cfg"), configuration(&line))?;
    let medium = folder.0.join("medium");
    let mut command = Command::new("grub-mkrescue");
    command.arg("-o").arg(&medium);
    // Of the menu nothing but text is used.
    command.args(["--locales=", "--fonts=", "--themes="]);
    command.arg(&root);
    tools::run(&mut command)?;
    std::fs::rename(&medium, &options.output).with_context(|| format!("cannot write {output}"))?;
    if global.json {
        let all =
            serde_json::json!({ "medium": options.output, "image": image, "command_line": line });
        return crate::cli::print_json(&all);
    }
    crate::cli::print_text(&format!(
        "{output} is a medium for USB sticks and CDs. To a stick, which loses what is on it:\n\
         dd if={output} of=/dev/sdX bs=4M conv=fsync\n"
    ))
}

fn configuration(command_line: &str) -> String {
    let entry = super::menu_entry("/hearth.efi", command_line);
    format!("set default=0\nset timeout={TIMEOUT_S}\n{entry}")
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn beside(file: &Path) -> anyhow::Result<Folder> {
        let name = file.file_name().context("--output: name a file")?;
        let mut name = name.to_owned();
        name.push(format!(".{}", std::process::id()));
        let folder = file.with_file_name(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot write beside {}", file.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
