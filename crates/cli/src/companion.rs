//! Finds and runs `canopy-sql`, the command with the SQL engine inside, so that `canopy` itself
//! stays small and starts fast.
//!
//! It is looked for beside `canopy` itself and in `../libexec/canopy`, never in `$PATH`, and must
//! be of the same version.

use crate::Engine;
use crate::outcome::Outcome;
use anyhow::{Context, bail};
use canopy_index::Writer;
use canopy_index::schema::FORMAT;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "canopy-sql";

/// The variable in which `canopy` tells `canopy-sql` its version.
const VARIABLE: &str = "CANOPY_COMPANION_OF";

/// Returns the version of the command and of the indexes that it reads.
fn version() -> String {
    format!("{} (index format {FORMAT})", env!("CARGO_PKG_VERSION"))
}

/// Fails if this is the companion of another version's `canopy`.
pub fn check_version(engine: Option<&Engine>) -> anyhow::Result<()> {
    match std::env::var(VARIABLE) {
        Ok(other) if engine.is_some() && other != version() => bail!(
            "{NAME} has version {}, canopy {}: install both from one package",
            version(),
            other.escape_debug()
        ),
        _ => Ok(()),
    }
}

/// Replaces this process by `canopy-sql` with the same arguments. Returns only if that fails.
pub fn run() -> anyhow::Result<Outcome> {
    let path = path()?;
    let error =
        Command::new(&path).args(std::env::args_os().skip(1)).env(VARIABLE, version()).exec();
    Err(error).with_context(|| format!("cannot run {}", path.display()))
}

/// Returns whether `canopy-sql` has to write this index in our place: it has derived tables, which
/// have to be computed anew.
pub fn must_refresh(writer: &Writer, engine: Option<&Engine>) -> bool {
    engine.is_none() && writer.has_derived_tables()
}

fn path() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where canopy is")?;
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
