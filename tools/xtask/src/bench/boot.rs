//! `bench boot`: from power-on to a joined node, beside a Linux node and beside a stub that only
//! prints.
//!
//! All cases boot through the same firmware, the same boot service and the same emulated machine.
//! Hearth reports its times itself (`hearth nodes --json`); the Linux node reports its uptime and
//! idle time to the boot service when it has a lease; the stub's time is that of its first line on
//! the serial console.

use anyhow::{Context, Result};
use serde_json::Value;

use super::cluster::Cluster;
use super::linux::{LEASE_SCRIPT, Linux};
use super::{Goal, LOAD_MOST, Report, Row, median, ready};
use crate::workspace::Workspace;

const CLUSTER: &str = "bench-boot";
/// Largest boot image, in bytes.
const IMAGE_BYTES_MOST: f64 = 1_048_576.0;
/// Hearth's share of Linux's time must be at most this.
const SHARE_MOST: f64 = 0.1;

/// What the Linux node does: a lease, then one report to the boot service.
const LINUX_SCRIPT: &str = r#"mac=$($bb cat /sys/class/net/eth0/address)
set -- $($bb cat /proc/uptime)
# /proc/uptime has hundredths of a second: without the point and with a zero they are milliseconds.
$bb wget -q -O - "http://$($bb cat /etc/server):7180/boot/report?mac=$mac&uptime_ms=${1%.*}${1#*.}0&idle_ms=${2%.*}${2#*.}0"
echo LINUX-REPORTED $1 $2
while :; do $bb sleep 3600; done
"#;

/// Times of one node, in milliseconds.
struct Times {
    power_on_to_report_ms: f64,
    kernel_ms: f64,
    busy_ms: f64,
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut linux_one = None;
    // The one-minute average before anything is measured: what others do with the processors.
    let load = ready(workspace, report)?;
    for count in [1, 4] {
        let case = format!("linux-{count}");
        // linux-1 is also the yardstick of the goals of hearth-1.
        if report.wants(&case) || (count == 1 && report.wants("hearth-1")) {
            report.progress(&format!("{case}: power on"));
            let times = on_linux(workspace, count)?;
            rows(report, &case, &times);
            if count == 1 {
                linux_one = Some(times);
            }
        }
    }
    for count in [1, 16] {
        let case = format!("stub-{count}");
        if report.wants(&case) {
            report.progress(&format!("{case}: power on"));
            let seconds = on_stub(workspace, count)?;
            spread(report, &case, "power_on_to_print_s", &seconds);
        }
    }
    for count in [1, 4, 16] {
        let case = format!("hearth-{count}");
        if report.wants(&case) {
            report.progress(&format!("{case}: power on"));
            hearth(report, workspace, &case, count, linux_one.as_deref(), load)?;
        }
    }
    Ok(())
}

fn rows(report: &mut Report, case: &str, times: &[Times]) {
    let seconds: Vec<f64> = times
        .iter()
        .map(|t| t.power_on_to_report_ms / 1000.0)
        .collect();
    spread(report, case, "power_on_to_joined_s", &seconds);
    report.row(Row::context(
        case,
        "kernel_ms",
        median(times.iter().map(|t| t.kernel_ms)),
        "ms",
    ));
    report.row(Row::context(
        case,
        "busy_ms",
        median(times.iter().map(|t| t.busy_ms)),
        "ms",
    ));
}

fn spread(report: &mut Report, case: &str, metric: &str, values: &[f64]) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    report.row(Row::context(case, &format!("{metric}_min"), least, "s"));
    report.row(Row::context(
        case,
        &format!("{metric}_median"),
        median(values.iter().copied()),
        "s",
    ));
    report.row(Row::context(case, &format!("{metric}_max"), most, "s"));
}

fn hearth(
    report: &mut Report,
    workspace: &Workspace,
    case: &str,
    count: usize,
    linux: Option<&[Times]>,
    load: f64,
) -> Result<()> {
    let cluster = Cluster::up(workspace, CLUSTER, count, &["--memory", "48M"])?;
    let nodes = cluster.json(&["nodes"])?;
    let nodes = nodes
        .as_array()
        .context("hearth nodes --json is no array")?;
    let field = |node: &Value, name: &str| {
        node[name]
            .as_f64()
            .with_context(|| format!("hearth nodes --json has no {name}: {node}"))
    };
    let mut times = Vec::new();
    let mut memory: f64 = 0.0;
    for node in nodes {
        times.push(Times {
            power_on_to_report_ms: field(node, "joined_unix_ms")?
                - field(node, "power_on_unix_ms")?,
            kernel_ms: field(node, "kernel_ms")?,
            busy_ms: field(node, "busy_ms")?,
        });
        memory = memory.max(field(node, "memory_used_bytes")?);
    }
    rows(report, case, &times);
    report.row(Row::context(case, "memory_used_bytes", memory, "bytes"));
    let image = std::fs::metadata(workspace.boot_image())?.len() as f64;
    report.row(Row::goal(
        case,
        "image_bytes",
        image,
        "bytes",
        Goal::AtMost(IMAGE_BYTES_MOST),
    ));
    if let (1, Some([linux])) = (count, linux) {
        let shares = [
            ("kernel_ms_over_linux", times[0].kernel_ms / linux.kernel_ms),
            ("busy_ms_over_linux", times[0].busy_ms / linux.busy_ms),
        ];
        for (metric, share) in shares {
            report.row(if load > LOAD_MOST {
                let reason = format!(
                    "load average {load} before the first power-on: other work had the processors"
                );
                Row::refused(case, metric, "ratio", reason)
            } else {
                Row::goal(case, metric, share, "ratio", Goal::AtMost(SHARE_MOST))
            });
        }
    }
    cluster.down()
}

fn on_linux(workspace: &Workspace, count: usize) -> Result<Vec<Times>> {
    let linux = Linux::prepare(workspace.target())?;
    let initrd = linux.initramfs("boot", &format!("{LEASE_SCRIPT}{LINUX_SCRIPT}"), &[])?;
    let kernel = linux.kernel.to_string_lossy().into_owned();
    let initrd = initrd.to_string_lossy().into_owned();
    let args = [
        "--memory",
        "160M",
        "--no-wait",
        "--boot-kernel",
        &kernel,
        "--boot-initrd",
        &initrd,
    ];
    // no_timer_check: an emulated machine under load fails Linux's check of its timer.
    let append = ["--boot-append", "console=ttyS0 quiet no_timer_check"];
    let cluster = Cluster::up(workspace, CLUSTER, count, &[&args[..], &append].concat())?;
    let times = cluster.poll(count, "LINUX-REPORTED", |line, waited_ms| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "LINUX-REPORTED")?;
        let uptime_s: f64 = words.get(at + 1)?.parse().ok()?;
        let idle_s: f64 = words.get(at + 2)?.parse().ok()?;
        Some(Times {
            power_on_to_report_ms: waited_ms,
            kernel_ms: uptime_s * 1000.0,
            busy_ms: (uptime_s - idle_s) * 1000.0,
        })
    })?;
    cluster.down()?;
    Ok(times)
}

fn on_stub(workspace: &Workspace, count: usize) -> Result<Vec<f64>> {
    let image = workspace.outputs().join("hearth-stub.efi");
    let image = image.to_string_lossy().into_owned();
    let cluster = Cluster::up(
        workspace,
        CLUSTER,
        count,
        &["--memory", "48M", "--no-wait", "--image", &image],
    )?;
    let seconds = cluster.poll(count, "HEARTH-STUB up", |_, waited_ms| {
        Some(waited_ms / 1000.0)
    })?;
    cluster.down()?;
    Ok(seconds)
}
