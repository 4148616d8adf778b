//! The structure test: rules about the source tree that no compiler checks.
//!
//! Purpose: directions of dependencies ([`dependencies`]); sizes, documentation and names of
//! modules, where unsafe code may be ([`sources`]); layers of the kernel ([`layers`]); how
//! documents are written ([`documents`]); links ([`links`]) and commands ([`commands`]) in the
//! documentation that really exist. That the page of figures is made of its data is
//! [`bench::record`]'s rule. Neighbours: `test` runs it as two of its steps.
//!
//! Invariant: a rule names the file and what to do about it.

pub mod commands;
mod dependencies;
mod documents;
mod layers;
mod links;
mod sources;
mod tokens;

use anyhow::Result;

use crate::bench;
use crate::test::checks::Checks;
use crate::workspace::Workspace;

/// Checks all rules about sources and dependencies.
pub fn check(workspace: &Workspace) -> Result<Checks> {
    let mut findings = dependencies::check(workspace)?;
    findings.extend(sources::check(workspace)?);
    findings.extend(links::check(workspace)?);
    findings.extend(documents::check(workspace)?);
    findings.push(bench::record::check(workspace)?);
    Ok(tell(&findings))
}

/// Shows what was found; a rule with nothing found has passed.
pub fn tell(rules: &[Rule]) -> Checks {
    let mut checks = Checks::default();
    for rule in rules {
        if rule.violations.is_empty() {
            checks.pass();
            continue;
        }
        let what = format!("{}:\n  {}", rule.text, rule.violations.join("\n  "));
        what.lines().for_each(|line| eprintln!("    {line}"));
        checks.fail(what);
    }
    checks
}

/// One rule, and where it is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub text: &'static str,
    pub violations: Vec<String>,
}
