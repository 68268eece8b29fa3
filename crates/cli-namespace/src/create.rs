//! `canopy ns create`.

use anyhow::{Context, bail};
use canopy::Outcome;
use canopy_namespace::{Settings, create_namespace, system_clock};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Contents in records are this long at most: each is in memory as a whole.
const INLINE_BYTES_MAX: usize = 64 << 10;

pub fn run(namespace: &Path, inline: usize, indexes: &[String]) -> anyhow::Result<Outcome> {
    let shown = namespace.display();
    if inline > INLINE_BYTES_MAX {
        bail!("--inline {inline}: {INLINE_BYTES_MAX} at most");
    }
    let mut settings = Settings { inline_bytes_max: inline, ..Settings::default() };
    if !indexes.is_empty() {
        let names = Vec::from_iter(indexes.iter().filter(|name| *name != "none"));
        settings = settings.with_indexes(&names)?;
    }
    match namespace.read_dir() {
        Ok(mut names) => {
            if names.next().is_some() {
                bail!("{shown} is not empty: a namespace needs a directory of its own");
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    }
    let storage = LocalStorage::new(namespace)?;
    // A directory that was there may be open to all, and what users may not see is in its files.
    std::fs::set_permissions(namespace, Permissions::from_mode(0o700))
        .with_context(|| format!("cannot close {shown} to others"))?;
    let environment = Environment::system(Arc::new(storage));
    let owner = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    create_namespace(&environment, &settings, owner, &system_clock())
        .with_context(|| format!("cannot make a namespace in {shown}"))?;
    canopy::say(format!("made {shown}; mount it with: canopy ns mount {shown} DIRECTORY"))?;
    Ok(Outcome::Complete)
}
