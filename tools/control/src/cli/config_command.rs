//! `hearth config` and `hearth version`.

use clap::Args;

use super::Global;
use crate::api::types::Status;
use crate::config;

/// Options of `hearth config`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print every key with its meaning and default, in the form of the file.
    #[arg(long)]
    show_defaults: bool,
}

/// Prints the defaults; or which file is used, that it is sound and what it says; with `--json` the
/// values in force.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<()> {
    if options.show_defaults {
        return super::print_text(config::DEFAULTS);
    }
    let (config, file) = config::load(global.config.as_deref())?;
    if global.json {
        return super::print_json(&config);
    }
    match file {
        Some(path) => {
            let text = std::fs::read_to_string(&path)?;
            super::print_text(&format!("# {} (sound)\n{text}", path.display()))
        }
        None => super::print_text(
            "# no configuration file: the defaults hold; see `hearth config --show-defaults`\n",
        ),
    }
}

/// Prints the version of this program and, if one runs, of the control node.
pub fn version(global: &Global) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    let control: Option<Status> = match global.client() {
        Ok(client) => super::block_on(async move { Ok(client.get("/v1/status").await?) }).ok(),
        Err(_) => None,
    };
    let control = control.map(|status| status.version);
    if global.json {
        return super::print_json(&serde_json::json!({ "hearth": own, "control": control }));
    }
    let control = control.unwrap_or_else(|| "not running".to_string());
    super::print_text(&format!("hearth {own}\ncontrol node: {control}\n"))
}
