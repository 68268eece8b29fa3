//! Where a namespace lies: a directory with its records, and `contents` for those of large files.

use anyhow::{Context, bail};
use canopy_namespace::{Contents, Namespace, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CONTENTS: &str = "contents";

/// Returns the full path of a namespace that is there.
pub fn found(namespace: &Path) -> anyhow::Result<PathBuf> {
    let environment = environment(namespace)?;
    let failed = || format!("cannot open the namespace {}", namespace.display());
    canopy_namespace::table_of(environment.storage.as_ref()).with_context(failed)?;
    namespace.canonicalize().with_context(failed)
}

/// Returns what the records of a namespace run on.
pub fn environment(namespace: &Path) -> anyhow::Result<Environment> {
    if !namespace.is_dir() {
        bail!("{}: no such directory", namespace.display());
    }
    // Who opens it may go to another directory later.
    let namespace = namespace.canonicalize()?;
    Ok(Environment::system(Arc::new(LocalStorage::existing(&namespace)?)))
}

/// Returns what a namespace that is mounted on a directory says of itself, by an attribute that only
/// root sees; none if none is mounted there.
pub fn control(directory: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let mut value = vec![0; 1 << 16];
    match rustix::fs::getxattr(directory, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(String::from_utf8_lossy(&value).into_owned()))
        }
        // Who opens it as a namespace says what is wrong.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot ask {}", directory.display())),
    }
}

/// Opens a namespace, which nobody else has open.
pub fn open(namespace: &Path) -> anyhow::Result<Namespace> {
    // Before a directory is made where there is no namespace.
    let full = found(namespace)?;
    let failed = || format!("cannot open the namespace {}", namespace.display());
    let contents = Contents::new(&full.join(CONTENTS))?;
    match Namespace::open(&environment(&full)?, contents, system_clock()) {
        // The lock, which is let go with the process that has it.
        Err(canopy_namespace::Error::Store(canopy_store::Error::Fenced(_))) => bail!(
            "{} is mounted, or used by another command: unmount it first (canopy ns unmount \
             DIRECTORY), or wait",
            namespace.display()
        ),
        opened => opened.with_context(failed),
    }
}
