//! `bootimage`: makes a boot image, or shows what one says about itself.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Parser};

/// Joins kernel and boot stub into one boot image, or inspects one.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    build: Option<Build>,
    /// Check an image and show its version, build id and sizes.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["kernel", "stub", "out"])]
    inspect: Option<PathBuf>,
}

#[derive(Args)]
struct Build {
    /// Kernel ELF file (x86_64-unknown-none).
    #[arg(long)]
    kernel: PathBuf,
    /// Boot stub ELF file (package `bootstub`).
    #[arg(long)]
    stub: PathBuf,
    /// Image to write.
    #[arg(long, default_value = "target/hearth/hearth.efi")]
    out: PathBuf,
    /// Version that the image states.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    image_version: String,
    /// Kernel options that hold unless the boot loader's command line overrides them.
    #[arg(long, default_value = "")]
    default_command_line: String,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(image) = &cli.inspect {
        return show(image);
    }
    match &cli.build {
        Some(build) => make(build),
        None => anyhow::bail!("give --kernel and --stub to make an image, or --inspect IMAGE"),
    }
}

fn make(build: &Build) -> anyhow::Result<()> {
    let options = bootimage::Options {
        version: build.image_version.clone(),
        default_command_line: build.default_command_line.clone(),
    };
    let image = bootimage::build(&read(&build.kernel)?, &read(&build.stub)?, &options)
        .context("making the boot image")?;
    if let Some(directory) = build.out.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
    }
    std::fs::write(&build.out, &image)
        .with_context(|| format!("writing {}", build.out.display()))?;
    show(&build.out)
}

fn show(path: &Path) -> anyhow::Result<()> {
    let info = bootimage::inspect(&read(path)?)
        .with_context(|| format!("inspecting {}", path.display()))?;
    println!(
        "{}: version {}, build {}, {} bytes (stub {}, kernel {}, unpacked {}, in memory {})",
        path.display(),
        info.version,
        info.build_id_hex(),
        info.bytes,
        info.stub_bytes,
        info.kernel_bytes,
        info.kernel_unpacked_bytes,
        info.kernel_memory_bytes
    );
    if !info.default_command_line.is_empty() {
        println!("default command line: {}", info.default_command_line);
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}
