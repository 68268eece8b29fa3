//! Finds the command that frees room on a full disk, from the state of an index.

use crate::manifest::{self, Current};
use crate::names;
use std::path::Path;

/// Returns the remedy for a full disk, given a file of an index that could not be written.
pub fn advice_when_full(file: &Path) -> &'static str {
    let is_index = |directory: &&Path| names::lock(directory).symlink_metadata().is_ok();
    let Some(index) = file.ancestors().find(is_index) else { return NEW };
    let Ok(current) = manifest::read::<Current>(&names::current(index)) else { return NEW };
    if current.leaving.iter().any(|leaving| leaving.bytes > 0) {
        return "'canopy compact --replace' frees replaced files, which otherwise stay for a while";
    }
    match current.kept.is_empty() && current.retention.is_none() {
        true => {
            "'canopy index --replace' needs half of the space: it removes the old state of each \
             PATH before the scan, and queries find nothing in PATH until the scan ends"
        }
        false => "'canopy compact --keep N' with a smaller N frees the space of older generations",
    }
}

/// Advice if no generation could make room.
const NEW: &str = "free some space, or give another place with --index";
