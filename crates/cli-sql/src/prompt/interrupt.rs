//! Ctrl-C stops the statement under way and nothing else.
//!
//! A statement of the prompt runs in a process of its own, since the engine may compute for hours
//! without looking up. Ctrl-C goes to both processes: the prompt holds it back, and the one with
//! the statement ends by it, behind its files.
//!
//! For example, a join with `<` can take hours. Starting the process takes milliseconds.

use canopy::interrupt::block;
use canopy::new_files::NewFiles;
use nix::sys::signal::Signal;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Has Ctrl-C do nothing to this process. To be called before other threads are there.
pub fn hold_interrupts() -> anyhow::Result<()> {
    block(&[Signal::SIGINT]).map(drop)
}

/// Has signals that end the process remove a directory first, and the files that it returns. To be
/// called before other threads are there.
pub fn end_without(directory: Option<PathBuf>) -> anyhow::Result<NewFiles> {
    NewFiles::ending_with(move || {
        if let Some(directory) = &directory {
            // A directory that cannot be removed stays below the one for temporary files.
            let _ = std::fs::remove_dir_all(directory);
        }
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            // Where the display of the progress was.
            let _ = stderr.write_all(b"\r\x1b[K");
        }
    })
}
