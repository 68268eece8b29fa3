//! Where a namespace lies: a directory with its records, and `contents` for those of large files.

use anyhow::{Context, bail};
use canopy_namespace::{Contents, Namespace, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use std::path::Path;
use std::sync::Arc;

const CONTENTS: &str = "contents";

/// Returns what the records of a namespace run on.
pub fn environment(namespace: &Path) -> anyhow::Result<Environment> {
    if !namespace.is_dir() {
        bail!("{}: no such directory", namespace.display());
    }
    Ok(Environment::system(Arc::new(LocalStorage::existing(namespace)?)))
}

/// Opens a namespace, which nobody else has open.
pub fn open(namespace: &Path) -> anyhow::Result<Namespace> {
    let environment = environment(namespace)?;
    let failed = || format!("cannot open the namespace {}", namespace.display());
    // Before a directory is made where there is no namespace.
    canopy_namespace::table_of(environment.storage.as_ref()).with_context(failed)?;
    let contents = Contents::new(&namespace.join(CONTENTS))?;
    match Namespace::open(&environment, contents, system_clock()) {
        // The lock, which is let go with the process that has it.
        Err(canopy_namespace::Error::Store(canopy_store::Error::Fenced(_))) => bail!(
            "{} is mounted, or used by another command: unmount it first (canopy ns unmount \
             DIRECTORY), or wait",
            namespace.display()
        ),
        opened => opened.with_context(failed),
    }
}
