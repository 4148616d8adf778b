//! `hearth serve`: its options, laid over the configuration.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use super::Global;
use crate::config::{AdmissionMode, FileService, LinkRate};
use crate::paths::StateDir;
use crate::serve::{self, Http};
use crate::site_tree::{Network, Shape};

/// Options of `hearth serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs an interface with an IPv4 address and NET_ADMIN, NET_RAW, NET_BIND_SERVICE (or root);
`hearth doctor` finds what is missing. Where root runs it, members of the group api.group (hearth) run jobs over its
socket, run/control.sock in the state directory; else it serves its own user and operators. Other machines use --listen
and a token (`hearth token`). On SIGTERM it ends and leaves jobs as they are: see `hearth stop`. The environment variable HEARTH_LOG sets the log level on standard error: error, warn, info (default) or debug.")]
pub struct Options {
    /// Network interface of the boot network [config: serve.interface].
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// No boot service: only nodes with laboratory keys join, through --address.
    #[arg(long, conflicts_with = "interface")]
    no_boot: bool,
    /// IPv4 address and prefix of control on the interface [config: serve.address].
    #[arg(long, value_name = "A.B.C.D/P")]
    address: Option<String>,
    /// UDP port of the control protocol; 0 takes any free one [config: serve.control_port].
    #[arg(long, value_name = "PORT")]
    control_port: Option<u16>,
    /// TCP port that booting nodes load from [config: serve.boot_http_port].
    #[arg(long, value_name = "PORT")]
    boot_http_port: Option<u16>,
    /// Address of the HTTP API without TLS, on loopback, or `none` [config: serve.http].
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Address at which the API listens with TLS, for other machines, or `none` [config:
    /// api.listen].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Serve the HTTP API on this inherited listening socket; only 0 (standard input).
    #[arg(long, value_name = "FD", conflicts_with = "http")]
    http_fd: Option<u32>,
    /// Boot image [config: boot.image; else hearth.efi beside this program].
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Folder with network boot firmware [config: boot.firmware_dir].
    #[arg(long, value_name = "DIR")]
    firmware_dir: Option<PathBuf>,
    /// File with one `MAC IP NODE` a line; only these machines boot [config: boot.nodes_file].
    #[arg(long, value_name = "FILE")]
    nodes_file: Option<PathBuf>,
    /// Kernel command line of the nodes [config: boot.command_line].
    #[arg(long, value_name = "TEXT")]
    command_line: Option<String>,
    /// Shape of the network: widths from the leaves up, as in 4x2, or a file as Slurm's
    /// topology.conf [config: serve.tree].
    #[arg(long, value_name = "WxW|FILE")]
    tree: Option<Shape>,
    /// Rate of every node's link, as in 50mbit [config: broadcast.rate].
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// End jobs that name no time limit after so long, as in 1h; 0: never [config:
    /// jobs.time_limit_s].
    #[arg(long, value_name = "TIME", value_parser = super::job_options::time_limit)]
    time_limit: Option<u64>,
    /// Let jobs see this directory, as in files.export; can be repeated [config: files.export].
    #[arg(long, value_name = "DIR")]
    export: Vec<String>,
    /// What carries out the calls of jobs on these directories [config: files.service].
    #[arg(long, value_enum, value_name = "WHAT")]
    file_service: Option<FileService>,
    /// Take nodes whose key was given on their command line (laboratory only).
    #[arg(long)]
    lab_keys: bool,
    /// Which machines may join: every one, those of a list, those approved of [config:
    /// admission.mode].
    #[arg(long, value_enum, value_name = "MODE")]
    admission: Option<AdmissionMode>,
    #[command(flatten)]
    other: OtherSystem,
}

/// A Linux system that machines boot instead of hearth, to compare with.
#[derive(Debug, Clone, Args)]
pub struct OtherSystem {
    /// Have machines boot this Linux kernel instead of hearth, for comparisons.
    #[arg(long, value_name = "FILE", help_heading = super::MEASUREMENTS)]
    boot_kernel: Option<PathBuf>,
    /// Initial file system of that kernel.
    #[arg(long, value_name = "FILE", requires = "boot_kernel", help_heading = super::MEASUREMENTS)]
    boot_initrd: Option<PathBuf>,
    /// Command line of that kernel.
    #[arg(long, value_name = "TEXT", requires = "boot_kernel", help_heading = super::MEASUREMENTS)]
    boot_append: Option<String>,
}

impl OtherSystem {
    /// The same as arguments of another process.
    pub(super) fn arguments(&self) -> anyhow::Result<Vec<OsString>> {
        let mut arguments = Vec::new();
        let files = [
            ("--boot-kernel", &self.boot_kernel),
            ("--boot-initrd", &self.boot_initrd),
        ];
        for (name, file) in files {
            if let Some(file) = file {
                let file = std::fs::canonicalize(file)
                    .with_context(|| format!("cannot read {}", file.display()))?;
                arguments.extend([name.into(), file.into()]);
            }
        }
        if let Some(text) = &self.boot_append {
            arguments.extend(["--boot-append".into(), text.into()]);
        }
        Ok(arguments)
    }

    fn resolve(self) -> Option<hearth_boot::OtherSystem> {
        Some(hearth_boot::OtherSystem {
            kernel: self.boot_kernel?,
            initrd: self.boot_initrd,
            command_line: self.boot_append.unwrap_or_default(),
        })
    }
}

/// Runs the control node in the foreground.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    start_logging();
    let resolved = resolve(global, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve::run(resolved));
    // Tasks of the API may wait for clients for ever.
    runtime.shutdown_background();
    result
}

/// Log lines go to standard error, those of level info and above unless HEARTH_LOG says otherwise.
pub(super) fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HEARTH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Fails only when a subscriber is set already, which is as good.
    drop(
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
    );
}

fn resolve(global: &Global, options: Options) -> anyhow::Result<serve::Options> {
    let mut config = global.load_config()?;
    config.broadcast.rate = options.rate.unwrap_or(config.broadcast.rate);
    config.admission.mode = options.admission.unwrap_or(config.admission.mode);
    if !options.export.is_empty() {
        config.files.export = options.export;
    }
    config.files.service = options.file_service.unwrap_or(config.files.service);
    config.jobs.time_limit_s = options.time_limit.unwrap_or(config.jobs.time_limit_s);
    let set = |text: &str| (!text.is_empty()).then(|| text.to_string());
    let file = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
    let state = match (&global.state_dir, &global.cluster) {
        (Some(dir), _) => StateDir::new(dir),
        (None, Some(name)) => {
            crate::paths::check_name(name)?;
            StateDir::of_cluster(name)
        }
        (None, None) => StateDir::new(&config.serve.state_dir),
    };
    let interface = options.interface.or_else(|| set(&config.serve.interface));
    let interface = if options.no_boot { None } else { interface };
    if interface.is_none() && !options.no_boot {
        bail!(
            "which network do nodes boot on? Give --interface IF (`ip link` lists them), or --no-boot"
        );
    }
    let address = options.address.or_else(|| set(&config.serve.address));
    let http = match (
        options.http_fd,
        options.http.as_deref().unwrap_or(&config.serve.http),
    ) {
        (Some(0), _) => Http::Stdin,
        (Some(fd), _) => bail!("--http-fd {fd}: only 0 (standard input) can be inherited"),
        (None, "none") => Http::None,
        (None, text) => Http::Address(text.parse::<SocketAddr>().with_context(|| {
            format!("{text:?} is not an address to listen at; write 127.0.0.1:7181, or none")
        })?),
    };
    let listen = match options.listen.as_deref().unwrap_or(&config.api.listen) {
        "none" => None,
        text => Some(text.parse::<SocketAddr>().with_context(|| {
            format!("{text:?} is not an address to listen at with TLS; write 0.0.0.0:7182, or none")
        })?),
    };
    let nodes_file = options.nodes_file.or_else(|| file(&config.boot.nodes_file));
    let of_configuration = || {
        let shape = set(&config.serve.tree).map(|tree| tree.parse());
        shape
            .transpose()
            .map_err(|error| anyhow::anyhow!("serve.tree in the configuration: {error}"))
    };
    let shape = match options.tree {
        Some(shape) => Some(shape),
        None => of_configuration()?,
    };
    let network = shape.map(|shape| Network::of(&shape, nodes_file.as_deref()));
    let network = network.transpose()?;
    Ok(serve::Options {
        state,
        interface,
        address: address.as_deref().map(parse_address).transpose()?,
        control_port: options.control_port.unwrap_or(config.serve.control_port),
        boot_http_port: options
            .boot_http_port
            .unwrap_or(config.serve.boot_http_port),
        http,
        listen,
        image: match options.image.or_else(|| file(&config.boot.image)) {
            Some(image) => image,
            None => default_image()?,
        },
        firmware_dir: options
            .firmware_dir
            .or_else(|| file(&config.boot.firmware_dir)),
        range: set(&config.boot.range)
            .as_deref()
            .map(parse_range)
            .transpose()?,
        nodes_file,
        command_line: options
            .command_line
            .unwrap_or_else(|| config.boot.panic.added_to(&config.boot.command_line)),
        proxy_dhcp: config.boot.proxy_dhcp,
        network,
        lab_keys: options.lab_keys,
        other: options.other.resolve(),
        config,
    })
}

/// `hearth.efi` beside this program.
pub(super) fn default_image() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(program.with_file_name("hearth.efi"))
}

/// `10.117.0.1/16`.
fn parse_address(text: &str) -> anyhow::Result<(Ipv4Addr, u8)> {
    let parse = || {
        let (address, prefix) = text.split_once('/')?;
        let prefix: u8 = prefix.parse().ok()?;
        Some((address.parse().ok()?, prefix)).filter(|_| prefix <= 32)
    };
    parse().with_context(|| format!("{text:?} is not an address with prefix; write 10.117.0.1/16"))
}

/// `10.117.1.0-10.117.1.99`.
fn parse_range(text: &str) -> anyhow::Result<(Ipv4Addr, Ipv4Addr)> {
    let parse = || {
        let (first, last) = text.split_once('-')?;
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    parse().with_context(|| format!("boot.range = {text:?}: write FIRST-LAST, two IPv4 addresses"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ranges_are_read_or_explained() {
        assert_eq!(
            parse_address("10.117.0.1/16").unwrap(),
            (Ipv4Addr::new(10, 117, 0, 1), 16)
        );
        for bad in ["10.117.0.1", "10.117.0.1/33", "x/8"] {
            assert!(
                parse_address(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("10.117.0.1/16")
            );
        }
        assert!(parse_range("10.0.0.1-10.0.0.9").is_ok());
        assert!(parse_range("10.0.0.1").is_err());
    }
}
