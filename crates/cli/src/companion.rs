//! Finds and runs `canopy-sql`, the command with the SQL engine inside, so that `canopy` itself
//! stays small and starts fast.
//!
//! It is looked for beside `canopy` itself and in `../libexec/canopy`, never in `$PATH`, and must
//! be of the same version.

use crate::Engine;
use crate::options::command_name;
use crate::outcome::Outcome;
use anyhow::{Context, bail};
use canopy_index::Writer;
use canopy_index::schema::FORMAT;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const NAME: &str = "canopy-sql";

/// The variable in which `canopy` tells `canopy-sql` its version.
const VARIABLE: &str = "CANOPY_COMPANION_OF";

/// Returns the version of the command and of the indexes that it reads.
fn version() -> String {
    format!("{} (index format {FORMAT})", env!("CARGO_PKG_VERSION"))
}

/// Fails if this is the companion of another version's `canopy`.
pub fn check_version(engine: Option<&Engine>) -> anyhow::Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(other) if engine.is_some() && *other != *version() => bail!(
            "{NAME} has version {}, canopy {}: install both from one package",
            version(),
            other.to_string_lossy().escape_debug()
        ),
        _ => Ok(()),
    }
}

/// Replaces this process by `canopy-sql` if the command line plainly asks for what that has,
/// before anything else is done: it parses the command line and reads the configuration itself.
/// Returns if it does not, or if that fails: then the command is parsed, and fails again.
pub fn run_early() {
    let command = command_name(std::env::args_os());
    if command.is_some_and(|name| name == "sql" || name == "table") {
        let _ = run();
    }
}

/// Replaces this process by `canopy-sql` with the same arguments. Returns only if that fails.
pub fn run() -> anyhow::Result<Outcome> {
    let path = path()?;
    // It would look for its companion in turn, for ever.
    anyhow::ensure!(
        std::env::var_os(VARIABLE).is_none(),
        "{} has no SQL inside: install canopy and {NAME} from one package",
        path.display()
    );
    let cannot = || format!("cannot run {}", path.display());
    let text = |text: OsString| CString::new(text.into_vec()).with_context(cannot);
    let program = text(path.clone().into())?;
    let arguments = std::env::args_os().map(text).collect::<anyhow::Result<Vec<CString>>>()?;
    let mut variables = Vec::new();
    for (mut name, value) in std::env::vars_os() {
        name.push("=");
        name.push(value);
        variables.push(text(name)?);
    }
    variables.push(text(format!("{VARIABLE}={}", version()).into())?);
    // Not through the shell that execvp(3) would take for a file without a program in it: an empty
    // one, as a full disk leaves it, would do nothing and succeed.
    let Err(errno) = nix::unistd::execve(&program, &arguments, &variables);
    Err(std::io::Error::from(errno)).with_context(cannot)
}

/// Returns whether `canopy-sql` has to write this index in our place: it has derived tables, which
/// have to be computed anew.
pub fn must_refresh(writer: &Writer, engine: Option<&Engine>) -> bool {
    engine.is_none() && writer.has_derived_tables()
}

fn path() -> anyhow::Result<PathBuf> {
    // Where /proc is not mounted, only the place of packages is known.
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/canopy"));
    let directory = own.parent().unwrap_or(&own);
    let places = [directory.join(NAME), directory.join("../libexec/canopy").join(NAME)];
    let found = places.iter().find(|path| path.exists());
    found.cloned().with_context(|| {
        format!(
            "{NAME} is not installed, which SQL and indexes with derived tables need: it belongs \
             beside canopy, in {}",
            directory.display()
        )
    })
}
