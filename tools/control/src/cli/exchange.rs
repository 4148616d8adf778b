//! `hearth exchange`: an all-to-all exchange between ordinary machines, to measure it.
//!
//! Neighbours: `crate::hosted::exchange` does it. Invariant: status 0 means that every byte was
//! compared.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use netstack::exchange::{Scheme, SchemeError};

use super::{Global, block_on, exit, hosted as sides};
use crate::clock::Clock;
use crate::config::LinkRate;
use crate::hosted;
use crate::hosted::exchange::{Failure, Order, Station};
use crate::{near, output, udp};

/// Options of `hearth exchange`.
#[derive(Debug, Args)]
#[command(after_help = "\
Start it once on each machine within four seconds: with the same list, key file, --bytes, --repeats and --scheme, and
another --rank. Every rank sends a block to every other, which compares it; the time is from when all are ready until
this rank has sent and received everything. Standard output gets the seconds of each exchange, a line each, at the end.
Exit status: 0 every byte was right; 1 it failed; 2 a wrong option; 124 the time was up; 125 anything else;
130 interrupted.")]
pub struct ExchangeOptions {
    /// All ranks: ADDRESS[:PORT] or HOST[:PORT], with commas between them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    ranks: Vec<String>,
    /// Which of them this is, from 0 on.
    #[arg(long, value_name = "RANK")]
    rank: usize,
    /// File with the key that they share; made if there is none.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Bytes of each block, as in 65536, 64KB (of 1,000) or 64KiB (of 1,024).
    #[arg(long, value_name = "SIZE", default_value = "65536", value_parser = super::size)]
    bytes: u64,
    /// Exchanges, one after another.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeats: u32,
    /// Rate of everybody's link, as in 50mbit [default: found out].
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// Bytes that may wait in front of a link, as --bytes [default: what is usual].
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = port)]
    port_buffer: u32,
    /// How many ranks of the list share each leaf switch, leaf after leaf: rounds then cross the
    /// tree's trunks evenly [default: the order of their numbers].
    #[arg(
        long,
        value_name = "RANKS",
        default_value_t = 0,
        hide_default_value = true
    )]
    leaf: u32,
    /// default, published, published-L=NUMBER (so many ranks send at a time, all where there are
    /// fewer) or published-L=auto (as many as rate and buffers suggest).
    #[arg(long, value_name = "SCHEME", default_value = "default", value_parser = scheme)]
    scheme: Scheme,
    /// Give up after so many seconds, all exchanges together.
    #[arg(long, value_name = "SECONDS", value_parser = sides::seconds, default_value = "60")]
    timeout: f64,
}

/// Most bytes of all blocks that a rank sends, or receives: it has them in memory twice.
const BYTES_MAX: u64 = 4 << 30;

fn port(text: &str) -> Result<u32, String> {
    let bytes = super::size(text)?;
    u32::try_from(bytes).map_err(|_| {
        format!(
            "a buffer of {bytes} bytes is too large; give at most {} bytes",
            u32::MAX
        )
    })
}

fn scheme(name: &str) -> Result<Scheme, String> {
    Scheme::parse(name).map_err(|error| match error {
        SchemeError::Unknown => {
            let near = near::did_you_mean(name, Scheme::NAMES.into_iter());
            format!("{} is no scheme{near}; {error}", near::quoted(name))
        }
        SchemeError::NobodyActive => error.to_string(),
    })
}

/// Takes part in exchanges.
pub fn exchange(global: &Global, options: &ExchangeOptions) -> anyhow::Result<ExitCode> {
    let key = sides::key(&options.key_file)?;
    let ranks: Vec<_> = options
        .ranks
        .iter()
        .map(|text| hosted::resolve(text))
        .collect::<Result<_, _>>()?;
    let Some(&listen) = ranks.get(options.rank) else {
        return Err(exit::Usage(format!(
            "--rank {} is none of those in --ranks, which have the numbers 0 to {}",
            options.rank,
            ranks.len().saturating_sub(1)
        ))
        .into());
    };
    let mut places = ranks.iter().enumerate();
    if let Some((_, twice)) = places.find(|(at, rank)| ranks[..*at].contains(rank)) {
        return Err(exit::Usage(format!(
            "{twice} is named twice in --ranks; each rank has an address and a port of its own"
        ))
        .into());
    }
    let all = options.bytes.checked_mul(ranks.len() as u64);
    if all.is_none_or(|all| all > BYTES_MAX) {
        return Err(exit::Usage(format!(
            "--bytes {} to each of {} is more than {BYTES_MAX} bytes, the most that a rank sends at once: take smaller blocks",
            options.bytes,
            output::count(ranks.len(), "rank")
        ))
        .into());
    }
    if options.leaf != 0 && !ranks.len().is_multiple_of(options.leaf as usize) {
        return Err(exit::Usage(format!(
            "--leaf {} does not divide the number of ranks, {}; leave it out where leaf switches have different numbers of them",
            options.leaf,
            ranks.len()
        ))
        .into());
    }
    block_on(async {
        let clock = Clock::start();
        let socket = udp::open(listen).with_context(|| {
            format!("cannot listen at {listen}; is it an address of this machine, and is nobody else there?")
        })?;
        let mut config = Order::config(options.rank, ranks.len(), key);
        config.rate = options.rate.map_or(0, LinkRate::bytes_per_second);
        config.port_buffer = options.port_buffer;
        config.leaf = options.leaf;
        config.scheme = options.scheme;
        let order = Order {
            ranks,
            config,
            bytes: options.bytes as usize,
            repeats: options.repeats as usize,
            deadline_us: sides::deadline(Some(options.timeout), &clock),
        };
        let mut station = Station::new(order, clock, sides::interrupts()?);
        let never = std::future::pending();
        udp::drive(&mut station, &socket, clock, never).await?;
        report(global, options, &station)
    })
}

fn report(
    global: &Global,
    options: &ExchangeOptions,
    station: &Station,
) -> anyhow::Result<ExitCode> {
    let counters = station.counters();
    let failure = station.failure.as_ref().map(ToString::to_string);
    if global.json {
        super::print_json(&serde_json::json!({
            "rank": options.rank,
            "bytes": options.bytes,
            "seconds": station.seconds,
            "failure": failure,
            "packets_sent": counters.packets_sent,
            "asked_again": counters.asked_again,
            "duplicates": counters.duplicates,
            "control_sent": counters.control_sent,
        }))?;
    } else {
        super::print_text(&figures(&station.seconds))?;
        if let Some(failure) = &failure {
            output::say_line(format_args!("rank {}: {failure}", options.rank));
        }
    }
    Ok(match &station.failure {
        None => ExitCode::SUCCESS,
        Some(Failure::Interrupted) => ExitCode::from(exit::CANCELLED),
        Some(Failure::TimeUp { .. }) => ExitCode::from(exit::TIME_UP),
        Some(_) => ExitCode::FAILURE,
    })
}

/// The result: seconds of each exchange.
fn figures(seconds: &[f64]) -> String {
    seconds.iter().map(|s| format!("{s:.4} s\n")).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        options: ExchangeOptions,
    }

    #[test]
    fn sizes_have_units() {
        let line = |more: &[&str]| {
            let start = ["x", "--ranks", "a,b", "--rank", "0", "--key-file", "k"];
            Alone::try_parse_from(start.iter().chain(more)).map(|alone| alone.options)
        };
        let plain = line(&[]).unwrap();
        assert_eq!((plain.bytes, plain.port_buffer), (65_536, 0));
        let given = line(&["--bytes", "64KB", "--port-buffer", "256KiB"]).unwrap();
        assert_eq!((given.bytes, given.port_buffer), (64_000, 262_144));
        for (wrong, word) in [
            (["--bytes", "64XB"], "64KiB (of 1,024)"),
            (["--bytes", "1.5"], "--bytes"),
            (["--port-buffer", "4GiB"], "at most 4294967295"),
            (["--scheme", "published-L=0"], "no rank would send"),
        ] {
            let error = line(&wrong).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_help_and_the_error_name_every_scheme_and_each_is_one() {
        let command = Alone::command();
        let of_scheme = command
            .get_arguments()
            .find(|option| option.get_id() == "scheme");
        let help = of_scheme.and_then(clap::Arg::get_help).unwrap().to_string();
        let error = scheme("publishd").unwrap_err();
        assert!(error.contains("did you mean published?"), "{error}");
        let gone = scheme("at-once").unwrap_err();
        assert!(gone.contains("there are default, published,"), "{gone}");
        for name in Scheme::NAMES {
            assert!(help.contains(name) && error.contains(name), "{name}");
            assert!(scheme(&name.replace("NUMBER", "4")).is_ok(), "{name}");
        }
    }
}
