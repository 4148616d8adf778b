//! `hearth doctor`: what stops machines from booting (the checks are in `hearth_boot::doctor`), and
//! whether a control node that runs can write down what happens.

use std::process::ExitCode;

use clap::Args;
use hearth_boot::{DoctorOptions, Severity};

use super::Global;
use crate::api::types::Status;

/// Options of `hearth doctor`.
#[derive(Debug, Args)]
pub struct Options {
    /// Network interface of the boot network [config: serve.interface].
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
}

/// Prints what was found; exit status 1 when something stops boots.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let config = global.load_config()?;
    let interface = options
        .interface
        .clone()
        .unwrap_or_else(|| config.serve.interface.clone());
    anyhow::ensure!(
        !interface.is_empty(),
        "which network do nodes boot on? Give --interface IF (`ip link` lists them)"
    );
    let running: Option<Status> = global.client().ok().and_then(|client| {
        super::block_on(async move { Ok(client.get("/v1/status").await?) }).ok()
    });
    let serving = running
        .as_ref()
        .is_some_and(|status| status.interface.as_ref() == Some(&interface));
    let image = match config.boot.image.as_os_str().is_empty() {
        true => super::serve_command::default_image()?,
        false => config.boot.image.clone(),
    };
    let firmware = &config.boot.firmware_dir;
    let mut findings = hearth_boot::doctor(&DoctorOptions {
        address: crate::serve::interface_address(&interface)
            .ok()
            .map(|(address, _)| address),
        interface,
        http_port: config.serve.boot_http_port,
        image: Some(image),
        firmware_dir: (!firmware.as_os_str().is_empty()).then(|| firmware.clone()),
        serving,
        proxy_dhcp: config.boot.proxy_dhcp,
        rate_bits: config.broadcast.rate.bytes_per_second() * 8,
        clock: true,
    });
    let store = running.and_then(|status| status.store);
    findings.extend(store.map(|what| hearth_boot::Finding {
        severity: Severity::Warning,
        what,
        fix: "`hearth events` says what became of it".to_string(),
    }));
    let stops = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    if global.json {
        super::print_json(&findings)?;
    } else if findings.is_empty() {
        super::print_text("nothing found that would stop a boot\n")?;
    } else {
        for finding in &findings {
            super::print_text(&format!("{}: {}\n", finding.severity, finding.what))?;
            if !finding.fix.is_empty() {
                super::print_text(&format!("    {}\n", finding.fix))?;
            }
        }
    }
    Ok(if stops {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}
