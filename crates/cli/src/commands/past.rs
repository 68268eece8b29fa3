//! Older generations: which of two indexes has the past that a user may read.

use crate::outcome::{Outcome, message};
use canopy_index::Index;
use canopy_read::locate::absolute_path;
use canopy_read::resolve::locate_all;
use canopy_site::Opened;
use canopy_tools::diff::relative;
use std::ffi::OsStr;
use std::path::Path;

/// Returns the site's index, if the user has another one, and the site's has entries at, above or
/// below a path that the other lacks. The user may not read its past.
fn past_denied<'a>(opened: &'a Opened, path: &OsStr) -> Option<&'a Index> {
    let starts = |index: &Index| -> Vec<String> {
        let starts = locate_all(index, path).unwrap_or_default();
        starts.iter().map(|start| absolute_path(&start.source, start.path.as_path())).collect()
    };
    let own = starts(opened.own.as_ref()?);
    let has = |start: &str| own.iter().any(|own| relative(start, own).is_some());
    starts(&opened.first).iter().any(|start| !has(start)).then_some(&opened.first)
}

/// Warns if the answer lacks the past of the site's index. Returns whether it is complete.
pub(super) fn warn_of_past(opened: &Opened, path: &OsStr) -> Outcome {
    let Some(site) = past_denied(opened, path) else { return Outcome::Complete };
    message(format_args!(
        "{}: only what your own index has of it is told; the past of the index at {} is only for \
         those who write it",
        Path::new(path).display(),
        site.path().display()
    ));
    Outcome::Partial
}
