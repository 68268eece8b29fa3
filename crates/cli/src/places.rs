//! Where indexes are: the one that a command writes, and the one that it reads.
//!
//! What `--index`, the environment or the user's own configuration names is written and read. Else
//! root writes the site's index, which the site's configuration may name, and users write their
//! own: one that only they read.

use crate::config::settings;
use anyhow::Context;
use std::path::PathBuf;

/// The site's index where no configuration names one.
const SITE: &str = "/var/lib/canopy/index";

/// Returns the directory of the index that a command writes, which need not exist.
pub fn to_write(index: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(index) = index.or_else(|| settings().index.clone()) {
        return Ok(index);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(site());
    }
    own().context("neither XDG_DATA_HOME nor HOME is set; name an index with --index")
}

/// Returns the directory of the index that a command reads: of users, their own if they have one.
pub fn to_read(index: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(index) = index.or_else(|| settings().index.clone()) {
        return Ok(index);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(site());
    }
    let own = own();
    let exists = |index: &PathBuf| index.join("CURRENT").exists();
    Ok(match own.clone().filter(exists) {
        Some(own) => own,
        // Without either, what is missing is one's own.
        None => Some(site()).filter(exists).or(own).unwrap_or_else(site),
    })
}

fn site() -> PathBuf {
    settings().site_index.clone().unwrap_or_else(|| SITE.into())
}

/// Returns where a user's own index is; `None` where there is no home, as in services.
fn own() -> Option<PathBuf> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    Some(data?.join("canopy/index"))
}
