//! Programs of other people that `hearth image` runs.
//!
//! Key type: [`Tool`]. Invariant: one that is missing is named with the package that has it, before
//! anything is written.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// A program, or a file that one needs.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Name of the program, or path of the file.
    pub name: &'static str,
    /// Debian's package.
    pub package: &'static str,
}

impl Tool {
    fn is_there(self) -> bool {
        if self.name.starts_with('/') {
            return Path::new(self.name).exists();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path);
        folders.any(|folder| folder.join(self.name).is_file())
    }
}

/// Fails if one of them is missing.
pub fn need(tools: &[Tool]) -> anyhow::Result<()> {
    let missing: Vec<Tool> = tools
        .iter()
        .copied()
        .filter(|tool| !tool.is_there())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    bail!(
        "this needs {}, which this machine lacks: apt install {}",
        names.join(", "),
        packages.join(" ")
    )
}

/// Runs a command that says what is wrong on its standard error.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{name} ended with {}: {}", output.status, said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Tool = Tool {
        name: "sh",
        package: "dash",
    };

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        need(&[THERE]).unwrap();
        let missing = |name| Tool {
            name,
            package: "hearth-nothing",
        };
        let all = [THERE, missing("no-such-tool"), missing("/no/such/folder")];
        let said = need(&all).unwrap_err().to_string();
        assert_eq!(
            said,
            "this needs no-such-tool, /no/such/folder, which this machine lacks: \
             apt install hearth-nothing"
        );
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let said = run(Command::new("sh").args(["-c", "echo no disk >&2; exit 3"]));
        assert!(said.unwrap_err().to_string().contains("no disk"));
    }
}
