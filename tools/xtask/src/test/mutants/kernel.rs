//! Changes of how memory is taken away, each of which a certain test must notice.
//!
//! cargo-mutants tries changes with the tests of one package on the host. What other cores may
//! still use shows only where there are cores: in a kernel test. So these changes are made here, in
//! a copy of the source tree, and the copy is built and tested.
//!
//! Key type: [`Change`]. Neighbour: [`super::super::kernel`] runs the kernel's tests.
//!
//! Invariant: a test counts as having noticed a change only when it passes without it.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::LABEL;
use crate::build;
use crate::limited::{self, Show};
use crate::test::checks::Checks;
use crate::test::kernel;
use crate::workspace::{Workspace, output_of};

/// Below the build directory: the copy.
const COPY: &str = "mutants/kernel";
/// Compiling the tests of a package, and running one.
const HOST_LIMIT: Duration = Duration::from_secs(900);

/// A change of the code.
struct Change {
    /// What is wrong with a kernel that has it.
    what: &'static str,
    file: &'static str,
    /// What stands there once, and what is put in its place.
    from: &'static str,
    to: &'static str,
    noticed_by: Test,
}

/// A test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    /// Of the kernel, in QEMU.
    Kernel(&'static str),
    /// Of `kernel-core`, on the host: the whole name.
    Core(&'static str),
}

const CHANGES: [Change; 2] = [
    Change {
        what: "other cores are not told that translations are gone",
        file: "kernel/src/mm/hardware.rs",
        from: "        cores::shoot_down();\n",
        to: "",
        noticed_by: Test::Kernel("threads-on-4-cores"),
    },
    Change {
        what: "frames are given back before all cores have forgotten them",
        file: "kernel/core/src/program/mod.rs",
        from: "        if remembered {\n            machine.invalidate(first, last);\n        }\n        \
               self.free_deferred(machine);\n",
        to: "        self.free_deferred(machine);\n        if remembered {\n            \
             machine.invalidate(first, last);\n        }\n",
        noticed_by: Test::Core(
            "program::tests::frames_are_given_back_when_they_are_forgotten_and_not_before",
        ),
    },
];

/// Makes each change in turn.
pub fn run(workspace: &Workspace) -> Result<Checks> {
    let copy = copy(workspace)?;
    let mut checks = Checks::default();
    for change in &CHANGES {
        let what = change.what;
        match change.is_noticed(workspace, &copy) {
            Ok(true) => {
                limited::say(LABEL, &format!("caught  {what}"));
                checks.pass();
            }
            Ok(false) => {
                let what = format!("FAILED  {what}: {} passes", change.noticed_by.name());
                limited::say(LABEL, &what);
                checks.fail(what);
            }
            Err(error) => {
                let what = format!("FAILED  {what}: {error:#}");
                limited::say(LABEL, &what);
                checks.fail(what);
            }
        }
    }
    Ok(checks)
}

impl Change {
    /// Whether its test passes without it and fails with it.
    fn is_noticed(&self, workspace: &Workspace, copy: &Workspace) -> Result<bool> {
        let name = self.noticed_by.name();
        let passes = self.noticed_by.passes(copy)?;
        ensure!(passes, "{name} fails without the change, too");
        let original = workspace.root().join(self.file);
        let text = fs::read_to_string(&original)
            .with_context(|| format!("reading {}", original.display()))?;
        let file = copy.root().join(self.file);
        write(&file, self.apply(&text)?.as_bytes())?;
        let passes = self.noticed_by.passes(copy);
        write(&file, text.as_bytes())?;
        Ok(!passes?)
    }

    /// The text of its file with the change.
    fn apply(&self, text: &str) -> Result<String> {
        let found = text.matches(self.from).count();
        ensure!(
            found == 1,
            "`{}` is {found} times in {}, once is wanted: put the change right",
            self.from.trim(),
            self.file
        );
        Ok(text.replace(self.from, self.to))
    }
}

impl Test {
    const fn name(self) -> &'static str {
        match self {
            Self::Kernel(name) | Self::Core(name) => name,
        }
    }

    /// Compiles and runs it.
    ///
    /// # Errors
    /// It does not compile.
    fn passes(self, copy: &Workspace) -> Result<bool> {
        match self {
            Self::Kernel(name) => {
                let built = build::run(copy, &build::Options::kernel_tests())?;
                ensure!(built == ExitCode::SUCCESS, "the kernel does not compile");
                match kernel::console_of(copy, name) {
                    Ok(_) => Ok(true),
                    Err(error) => {
                        limited::say(LABEL, &format!("{name}: {error:#}"));
                        Ok(false)
                    }
                }
            }
            Self::Core(name) => {
                let test = |more: &[&str]| {
                    let mut command = copy.cargo();
                    command.args(["test", "--quiet", "--package", "kernel-core", "--lib"]);
                    command.args(more);
                    limited::run(&mut command, HOST_LIMIT, Show::All(LABEL))
                };
                test(&["--no-run"])?.expect_success("cargo test --no-run")?;
                let finished = test(&["--", "--exact", name])?;
                let one_ran = finished.lines.contains(&"running 1 test".to_string());
                ensure!(one_ran, "kernel-core has no test {name}");
                Ok(finished.status.success())
            }
        }
    }
}

/// A copy of the source tree as it is, with a build directory of its own. Files that it has already
/// are left alone, so that what was compiled of them counts.
fn copy(workspace: &Workspace) -> Result<Workspace> {
    let root = workspace.target().join(COPY);
    let mut git = Command::new("git");
    git.current_dir(workspace.root());
    let list = output_of(git.args(["ls-files", "--cached", "--others", "--exclude-standard"]))
        .context("asking git for the files of the source tree")?;
    for name in list.lines() {
        let from = workspace.root().join(name);
        // One that was deleted is in the list until that is committed.
        if from.is_file() {
            let bytes = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
            write(&root.join(name), &bytes)?;
        }
    }
    // As shipped, since only the tool that packs the image is compiled beside it then.
    let copy = Workspace::at(&root);
    // The kernel's tests read programs, which no change is about.
    let programs = copy.programs();
    fs::create_dir_all(copy.outputs()).context("making the folder of outputs")?;
    if fs::read_link(&programs).ok() != Some(workspace.programs()) {
        let _ = fs::remove_file(&programs);
        std::os::unix::fs::symlink(workspace.programs(), &programs)
            .with_context(|| format!("linking {}", programs.display()))?;
    }
    Ok(copy)
}

/// Writes a file, unless it holds that already.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_fit_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for change in &CHANGES {
            let text = fs::read_to_string(root.join(change.file)).unwrap();
            let changed = change.apply(&text).unwrap();
            assert_ne!(changed, text, "{}", change.what);
        }
        let error = CHANGES[0].apply("nothing of it").unwrap_err();
        assert!(error.to_string().contains("0 times in"), "{error}");
    }
}
