//! `hearth image sign`: the boot image signed for UEFI Secure Boot.
//!
//! The signature goes behind the image, where the loader's own check does not look, so a signed
//! image still starts by every other entry.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Args;

use super::tools::{self, Tool};
use crate::cli::Global;

const TOOLS: &[Tool] = &[
    Tool {
        name: "sbsign",
        package: "sbsigntool",
    },
    Tool {
        name: "sbverify",
        package: "sbsigntool",
    },
];

/// Options of `hearth image sign`.
#[derive(Debug, Args)]
#[command(after_help = "\
A key of one's own:
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj '/CN=my cluster' -keyout key.pem -out cert.pem
The firmware of each machine takes the certificate into its list of allowed signatures, `db`:
    openssl x509 -in cert.pem -outform DER -out cert.der")]
pub struct Options {
    /// Boot image [config: boot.image; else hearth.efi beside this program].
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// The key, RSA in PEM, without a password.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Its certificate, X.509 in PEM.
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Where the signed image goes.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub fn main(global: &Global, options: &Options) -> anyhow::Result<()> {
    tools::need(TOOLS)?;
    let image = super::boot_image(global, options.image.as_ref())?;
    for (what, file) in [("key", &options.key), ("certificate", &options.certificate)] {
        std::fs::File::open(file)
            .with_context(|| format!("the {what} {} cannot be read", file.display()))?;
    }
    let mut sign = Command::new("sbsign");
    sign.arg("--key").arg(&options.key);
    sign.arg("--cert").arg(&options.certificate);
    sign.arg("--output").arg(&options.output).arg(&image);
    tools::run(&mut sign)?;
    let mut verify = Command::new("sbverify");
    verify.arg("--cert").arg(&options.certificate);
    tools::run(verify.arg(&options.output))?;
    super::check(&options.output)?;
    let output = options.output.display();
    if global.json {
        return crate::cli::print_json(&serde_json::json!({ "signed": options.output }));
    }
    crate::cli::print_text(&format!(
        "{output} is signed. Serve it: image = \"{output}\" in [boot] of the configuration, or \
         `hearth serve --image {output}`\n"
    ))
}
