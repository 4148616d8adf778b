//! `hearth send` and `hearth receive`: a broadcast between ordinary machines, without a cluster.
//!
//! Neighbours: `crate::hosted` does it. Invariant: status 0 means that the files are there,
//! checked.

use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use netstack::wire::key::Key;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Global, block_on, exit};
use crate::casts::figures;
use crate::clock::Clock;
use crate::config::{LinkRate, Scheme};
use crate::hosted::receive::{self, Received, Receiver};
use crate::hosted::send::{self, End, Fate, Sender};
use crate::hosted::{self, PORT};
use crate::{output, secrets, udp};

/// Some receiver does not have the file.
const EXIT_INCOMPLETE: u8 = 1;
/// The time was up.
const EXIT_TIME_UP: u8 = 124;
/// Interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// Options of `hearth send`.
#[derive(Debug, Args)]
#[command(after_help = "\
The receivers pass on to one another what they get, so it takes little more than the time that one link
needs, however many they are. Start `hearth receive` on each first, with the same key file.
Exit status: 0 every receiver has it, checked; 1 some do not; 124 the time was up; 130 interrupted;
2 a wrong option; 125 anything else.")]
pub struct SendOptions {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The receivers: ADDRESS[:PORT] or HOST[:PORT], with commas between them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// File with the key that sender and receivers share; made if there is none.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Rate of everybody's link, as in 50mbit.
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: LinkRate,
    /// How the file spreads.
    #[arg(long, value_enum, default_value_t = Scheme::Auto, value_name = "SCHEME", help_heading = super::MEASUREMENTS)]
    scheme: Scheme,
    /// Its name at the receivers [default: as here].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Address and port to send from [default: whatever leads to the first receiver].
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddrV4>,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,
}

/// Options of `hearth receive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Works on any Linux, by itself: no control node, no configuration, no other process. A file is written
under a temporary name and gets its own when all of it is there and its BLAKE3 hash is right. A file of
that name with other content stays, and the new one is not received, unless --force is given. Names that
begin with a dot are never taken.
Exit status: 0 the files are there; 1 one could not be received; 124 the time was up; 130 interrupted;
2 a wrong option; 125 anything else.")]
pub struct ReceiveOptions {
    /// Address and port to listen at: ADDRESS[:PORT], of the network that the sender is on.
    #[arg(long, value_name = "ADDRESS")]
    listen: String,
    /// File with the key that sender and receivers share; made if there is none.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Folder for the files.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Replace files that are there under the same name.
    #[arg(long)]
    force: bool,
    /// End after so many files; 0: never.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    count: u64,
    /// Most that it sends to others, as in 50mbit [default: what the sender says].
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<f64>,
}

/// A number of seconds that a timer can have.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let possible = |number: &f64| *number > 0.0 && Duration::try_from_secs_f64(*number).is_ok();
    let possible = number.filter(possible);
    possible.ok_or_else(|| {
        format!("{text:?} is no number of seconds above 0; write one like 30 or 0.5")
    })
}

/// Sends a file.
pub fn send(global: &Global, options: &SendOptions) -> anyhow::Result<ExitCode> {
    let clock_start = std::time::Instant::now();
    let key = key(&options.key_file)?;
    let to: Vec<SocketAddrV4> = options
        .to
        .iter()
        .map(|text| hosted::resolve(text))
        .collect::<Result<_, _>>()?;
    if let Some(twice) = to
        .iter()
        .enumerate()
        .find(|(at, one)| to[..*at].contains(one))
    {
        bail!("{} is named twice; name each receiver once", twice.1);
    }
    check_file("send", &options.file)?;
    let from = send::from_address(options.bind, &to)?;
    let name = match &options.name {
        Some(name) => name.clone(),
        None => file_name(&options.file)?,
    };
    block_on(async {
        let clock = Clock::start();
        let socket = udp::open(from)
            .with_context(|| format!("cannot send from {from}; choose another --bind"))?;
        let order = send::Order {
            file: &options.file,
            name,
            to,
            from: udp::address(&socket)?,
            key,
            rate: options.rate.bytes_per_second(),
            scheme: options.scheme.protocol(),
            deadline_us: deadline(options.timeout, &clock),
        };
        let mut sender = Sender::new(order, clock, interrupts()?)?;
        let bar = Bar::new(global.json, &options.file.display().to_string());
        let began_us = clock.now_us();
        bar.follow(udp::drive(
            &mut sender,
            &socket,
            clock,
            std::future::pending(),
        ))
        .await?;
        let us = sender.done_us.max(began_us) - began_us;
        let whole = clock_start.elapsed();
        report_sent(global, options, &sender, us, whole)
    })
}

fn report_sent(
    global: &Global,
    options: &SendOptions,
    sender: &Sender,
    us: u64,
    whole: Duration,
) -> anyhow::Result<ExitCode> {
    let object = &sender.described.object;
    let limit_us = figures::limit_us(object.bytes, options.rate.bytes_per_second());
    let done = sender
        .receivers
        .iter()
        .filter(|(_, fate)| *fate == Fate::Done)
        .count();
    let all = sender.receivers.len();
    // Of what nobody has there is none.
    let ratio = (done > 0).then(|| us as f64 / limit_us.max(1) as f64);
    if global.json {
        let receivers: Vec<serde_json::Value> = sender
            .receivers
            .iter()
            .map(|(address, fate)| {
                let (state, reason) = match fate {
                    Fate::Open => ("open", None),
                    Fate::Done => ("done", None),
                    Fate::Failed(failure) => ("failed", Some(send::describe(*failure))),
                };
                serde_json::json!({ "address": address.to_string(), "state": state, "reason": reason })
            })
            .collect();
        let corrupt: Vec<serde_json::Value> = sender
            .corrupt
            .iter()
            .map(|(address, blocks)| {
                serde_json::json!({ "address": address.map(|address| address.to_string()), "blocks": blocks })
            })
            .collect();
        super::print_json(&serde_json::json!({
            "file": options.file.display().to_string(),
            "object": secrets::encode_hex(&object.id),
            "bytes": object.bytes,
            "scheme": options.scheme.word(),
            "receivers": receivers,
            "corrupt": corrupt,
            "ms": us as f64 / 1e3,
            "whole_ms": whole.as_secs_f64() * 1e3,
            "limit_ms": limit_us as f64 / 1e3,
            "ratio": ratio,
            "blocks_sent": sender.progress.blocks_sent,
            "bytes_sent": sender.progress.bytes_sent,
        }))?;
    } else {
        for (address, fate) in &sender.receivers {
            if let Fate::Failed(failure) = fate {
                output::say_line(format_args!("{address} {}", send::describe(*failure)));
            }
        }
        for (address, blocks) in &sender.corrupt {
            let who = address.map_or("this machine".to_string(), |address| address.to_string());
            output::say_line(format_args!(
                "{who} sent {blocks} damaged blocks; test its memory"
            ));
        }
        // Where nobody has it there is nothing that took a time.
        let figures = match done {
            0 => String::new(),
            _ => format!(": {}", figures::line(object.bytes, us, limit_us)),
        };
        output::say_line(format_args!("{done} of {all} receivers have it{figures}"));
    }
    Ok(match sender.ends {
        _ if done == all => ExitCode::SUCCESS,
        Some(End::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        Some(End::TimeUp) => ExitCode::from(EXIT_TIME_UP),
        None => ExitCode::from(EXIT_INCOMPLETE),
    })
}

/// Receives files.
pub fn receive(global: &Global, options: &ReceiveOptions) -> anyhow::Result<ExitCode> {
    let key = key(&options.key_file)?;
    let listen = hosted::resolve(&options.listen)?;
    if !options.dir.is_dir() {
        bail!("{} is not a folder; make it first", options.dir.display());
    }
    block_on(async {
        let clock = Clock::start();
        let socket = udp::open(listen).with_context(|| {
            format!("cannot listen at {listen}; is it an address of this machine, and is nobody else there?")
        })?;
        let order = receive::Order {
            listen: udp::address(&socket)?,
            key,
            folder: &options.dir,
            existing: match options.force {
                true => receive::Existing::Replace,
                false => receive::Existing::Keep,
            },
            count: options.count,
            rate: options.rate.map_or(0, LinkRate::bytes_per_second),
            socket_bytes: udp::receive_buffer(&socket),
            deadline_us: deadline(options.timeout, &clock),
        };
        let mut receiver = Receiver::new(&order, clock, interrupts()?);
        let bar = Bar::new(global.json, &format!("listening at {}", order.listen));
        loop {
            bar.follow(udp::drive(
                &mut receiver,
                &socket,
                clock,
                std::future::pending(),
            ))
            .await?;
            for received in std::mem::take(&mut receiver.received) {
                report_received(global, &received)?;
            }
            // They have been told to the sender when its time has passed; before, the loop goes on.
            let failed = match receiver.failed_are_told() {
                true => std::mem::take(&mut receiver.failed),
                false => Vec::new(),
            };
            for (name, why) in failed {
                let text = format!("{name} was not received: {why}");
                if options.count > 0 {
                    return Err(exit::Failed::new(EXIT_INCOMPLETE, text).into());
                }
                output::say_line(text);
            }
            match receiver.ends {
                Some(End::Interrupted) if options.count > 0 && !receiver.has_all() => {
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                Some(End::Interrupted) => return Ok(ExitCode::SUCCESS),
                Some(End::TimeUp) => {
                    let text = "the time was up before everything was there";
                    return Err(exit::Failed::new(EXIT_TIME_UP, text).into());
                }
                None => {}
            }
            if receiver.is_finished() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

fn report_received(global: &Global, received: &Received) -> anyhow::Result<()> {
    let ms = received.us as f64 / 1e3;
    if global.json {
        let line = serde_json::json!({
            "file": received.path.display().to_string(),
            "object": secrets::encode_hex(&received.object),
            "bytes": received.bytes,
            "ms": ms,
            "known": received.known,
        });
        return super::print_text(&format!("{line}\n"));
    }
    let path = received.path.display();
    if received.known {
        output::say_line(format_args!("{path} was there already"));
    } else {
        let rate = received.bytes as f64 / 1e3 / ms.max(0.001);
        output::say_line(format_args!(
            "{path}: {} bytes in {:.2} s, {rate:.1} MB/s",
            received.bytes,
            ms / 1e3
        ));
    }
    Ok(())
}

/// The shared key in a file, made if there is none.
pub(super) fn key(path: &Path) -> anyhow::Result<Key> {
    let known = path.exists();
    let secret =
        secrets::cluster_secret(path).with_context(|| format!("--key-file {}", path.display()))?;
    if !known {
        output::say_line(format_args!(
            "made a key in {}: copy it to the other machines",
            path.display()
        ));
    }
    Ok(Key(secret.0))
}

/// Whether there is a file to `send` or `cast`.
pub(super) fn check_file(verb: &str, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    let data = std::fs::metadata(path).with_context(|| format!("cannot {verb} {shown}"))?;
    if data.is_dir() {
        bail!("cannot {verb} {shown}: it is a folder; pack it with tar and {verb} the archive");
    }
    if !data.is_file() {
        bail!("cannot {verb} {shown}: it is neither a file nor a folder");
    }
    Ok(())
}

/// The last part of a path, as a name.
pub(super) fn file_name(path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| {
        format!(
            "{} has no name that can be sent; give one with --name",
            path.display()
        )
    })?;
    Ok(name.to_string())
}

pub(super) fn deadline(timeout_s: Option<f64>, clock: &Clock) -> Option<u64> {
    let timeout = Duration::try_from_secs_f64(timeout_s?).ok()?;
    Some(
        clock
            .now_us()
            .saturating_add(u64::try_from(timeout.as_micros()).ok()?),
    )
}

pub(super) fn interrupts() -> anyhow::Result<Signal> {
    Ok(signal(SignalKind::interrupt())?)
}

/// A line on a terminal while something goes on.
struct Bar(Option<indicatif::ProgressBar>);

impl Bar {
    fn new(quiet: bool, text: &str) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Bar(shown.then(|| {
            let bar = indicatif::ProgressBar::new_spinner();
            bar.set_message(output::plain(text));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        }))
    }

    /// Waits for `work`; takes the line away at its end.
    async fn follow<T>(&self, work: impl Future<Output = T>) -> T {
        let done = work.await;
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
        done
    }
}

const _: () = assert!(PORT != netstack::NODE_PORT && PORT != netstack::CONTROL_PORT);
