//! The file in which the prompt keeps statements.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Lines that are kept.
pub const LINES: usize = 1000;

/// `$XDG_STATE_HOME/canopy/sql_history`, or below `~/.local/state`, with its directory made. `None`
/// where there is no such place, or where it belongs to somebody else, as after sudo: what they put
/// there must lead nowhere.
pub fn file() -> Option<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = match variable("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        Some(state) => is_own(&state).then_some(state),
        None => variable("HOME").filter(|home| is_own(home)).map(|home| home.join(".local/state")),
    }?;
    let directory = state.join("canopy");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    is_own(&directory).then(|| directory.join("sql_history"))
}

fn is_own(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|directory| directory.uid() == nix::unistd::geteuid().as_raw())
}
