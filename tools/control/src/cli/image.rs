//! `hearth image ...`: the boot image brought to machines that do not load it over the network, and
//! signed for those that want it signed.
//!
//! Key types: [`Start`], what is started and with which kernel options. Neighbours: [`usb`] makes
//! a medium, [`sign`] signs; the boot service serves the same image to everybody else.
//!
//! Invariant: nothing here changes a machine: commands are printed, files are written where the
//! user says.

mod sign;
mod tools;
mod usb;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use hearth_boot::Mac;
use kernel_core::cmdline::CommandLine;

use super::Global;
use crate::api::types::Status;
use crate::nodes::NODES_MAX;

/// Options of `hearth image`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the commands that make a node of a machine that runs Linux.
    Kexec(Start),
    /// Print the menu entry that has GRUB start a node.
    Grub(Start),
    /// Make an image for a USB stick or a CD that starts a node, by BIOS and by UEFI.
    Usb(usb::Options),
    /// Sign the boot image with a key of one's own, for UEFI Secure Boot.
    Sign(sign::Options),
}

/// What is started, and how.
#[derive(Debug, Clone, Args)]
pub struct Start {
    /// Boot image [config: boot.image; else hearth.efi beside this program].
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Number of the node, for a laboratory key (`hearth serve --lab-keys`). Without it the node
    /// gets its number and its key from the boot service.
    #[arg(long, value_name = "NUMBER", requires = "mac", value_parser = clap::value_parser!(u32).range(..NODES_MAX as i64))]
    node: Option<u32>,
    /// Its MAC address.
    #[arg(long, value_name = "MAC", requires = "node")]
    mac: Option<Mac>,
    /// Address of the control node, with a laboratory key; else that of the one that runs here.
    #[arg(long, value_name = "IP[:PORT]", requires = "node")]
    control: Option<String>,
    /// Kernel options [config: boot.command_line].
    #[arg(long, value_name = "TEXT")]
    command_line: Option<String>,
}

/// Does it.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<()> {
    match &options.action {
        Action::Kexec(start) => kexec(global, start),
        Action::Grub(start) => grub(global, start),
        Action::Usb(options) => usb::main(global, options),
        Action::Sign(options) => sign::main(global, options),
    }
}

fn kexec(global: &Global, start: &Start) -> anyhow::Result<()> {
    let image = boot_image(global, start.image.as_ref())?;
    let line = start.command_line(global)?;
    let commands = [
        format!("kexec -s -l hearth.efi --command-line='{line}'"),
        "sync; kexec -e".to_owned(),
    ];
    if global.json {
        let all = serde_json::json!({ "image": image, "command_line": line, "commands": commands });
        return super::print_json(&all);
    }
    let [load, start] = commands;
    super::print_text(&format!(
        "# Copy {} to the machine; there, as root:\n{load}\n{start}\n",
        image.display()
    ))
}

fn grub(global: &Global, start: &Start) -> anyhow::Result<()> {
    let image = boot_image(global, start.image.as_ref())?;
    let line = start.command_line(global)?;
    let entry = menu_entry("/boot/hearth.efi", &line);
    if global.json {
        let all = serde_json::json!({ "image": image, "command_line": line, "entry": entry });
        return super::print_json(&all);
    }
    super::print_text(&format!(
        "# Copy {} to /boot; add this to /etc/grub.d/40_custom and run update-grub:\n{entry}",
        image.display()
    ))
}

/// An entry of GRUB's menu, the same by BIOS and by UEFI. A kernel without a serial port writes to
/// the screen, for which a BIOS has to be asked for a mode with pixels.
fn menu_entry(image: &str, command_line: &str) -> String {
    format!(
        "menuentry \"Hearth\" {{\n    \
         if [ \"$grub_platform\" = pc ]; then\n        \
         insmod all_video\n        \
         set gfxpayload=1024x768x32,800x600x32,640x480x32,auto\n    \
         fi\n    \
         linux {image} {command_line}\n}}\n"
    )
}

impl Start {
    /// The kernel's command line.
    fn command_line(&self, global: &Global) -> anyhow::Result<String> {
        let line = match &self.command_line {
            Some(line) => line.clone(),
            None => {
                let boot = global.load_config()?.boot;
                boot.panic.added_to(&boot.command_line)
            }
        };
        let quotes = |letter: char| letter.is_control() || "'\"\\$;{}".contains(letter);
        ensure!(
            !line.contains(quotes),
            "kernel options {line:?}: write them on one line, without quotes and the signs $ ; {{ }} \\"
        );
        let line = match (self.node, self.mac) {
            (Some(node), Some(mac)) => {
                let control = match &self.control {
                    Some(control) => control.clone(),
                    None => running_control(global)?,
                };
                let key = super::node::lab_key(global, node, mac)?;
                format!("{line} hearth.control={control} hearth.node={node} hearth.key={key}")
            }
            _ => line,
        };
        // What cannot be used would be found out only by the machine that boots.
        match CommandLine::parse(&line).warnings.first() {
            None => Ok(line.trim().to_owned()),
            Some(wrong) => bail!("the kernel would not use an option: {wrong}"),
        }
    }
}

/// Where the control node that runs here is reached by nodes.
fn running_control(global: &Global) -> anyhow::Result<String> {
    let ask = async {
        let status: Status = global.client()?.get("/v1/status").await?;
        Ok(status.control)
    };
    let control = super::block_on(ask);
    let control = control.context("where is the control node? Give --control IP, or start it")?;
    ensure!(
        !control.starts_with("127."),
        "the control node listens at {control} only, where no other machine reaches it; give --control IP"
    );
    Ok(control)
}

/// The boot image that was named, or else the configured one; looked at.
fn boot_image(global: &Global, named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let configured = || -> anyhow::Result<PathBuf> {
        let image = global.load_config()?.boot.image;
        match image.as_os_str().is_empty() {
            true => super::serve_command::default_image(),
            false => Ok(image),
        }
    };
    let image = named.cloned().map_or_else(configured, Ok)?;
    check(&image)?;
    Ok(image)
}

/// Whether a file is a boot image.
fn check(image: &Path) -> anyhow::Result<()> {
    let shown = image.display();
    let bytes = std::fs::read(image).with_context(|| {
        format!("the boot image {shown} cannot be read; name another with --image")
    })?;
    hearth_boot::check_image(&bytes).map_err(|wrong| anyhow::anyhow!("{shown} {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_menu_entry_has_all_options_on_one_line() {
        let entry = menu_entry("/hearth.efi", "hearth.node=1");
        assert!(
            entry.starts_with("menuentry \"Hearth\" {\n    if "),
            "{entry}"
        );
        assert!(entry.contains("\n        set gfxpayload=1024x768x32,"));
        assert!(entry.ends_with("\n    fi\n    linux /hearth.efi hearth.node=1\n}\n"));
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("hearth.efi");
        let said = |image: &Path| format!("{:#}", check(image).unwrap_err());
        assert!(said(&image).contains("--image"), "{}", said(&image));
        std::fs::write(&image, vec![0; 4096]).unwrap();
        assert!(said(&image).contains("not a boot image"));
    }
}
