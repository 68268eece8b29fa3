//! Directories that are to be listed again.

use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// A directory to be listed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its absolute path, without symbolic links; it may be gone.
    pub path: PathBuf,
    /// Whether everything below it is listed, too.
    pub recursive: bool,
    /// Whether the directory above is listed, too, which has its row.
    pub with_row: bool,
    /// The path that a user gave, if it is another one.
    pub given: Option<PathBuf>,
}

/// Directories, each with sorted inodes that have several names. All directories at or below it are
/// listed again in which the index has one of these inodes.
pub type Links = Vec<(PathBuf, Vec<u64>)>;

/// Directories and inodes to list again.
#[derive(Clone, Debug, Default)]
pub struct Suspects {
    /// Directories.
    pub all: Vec<Suspect>,
    /// Inodes with several names.
    pub links: Links,
    /// Whether each directory is a request, whose cost is reported.
    pub are_requests: bool,
}

impl Suspect {
    /// Returns the directory to list again for a path that a user gave.
    ///
    /// # Errors
    ///
    /// If the directory, or the next one above a file or a path that is gone, cannot be opened.
    pub fn of_path(path: &Path, recursive: bool) -> anyhow::Result<Self> {
        let absolute = std::path::absolute(path)
            .with_context(|| format!("cannot tell where {} is", path.display()))?;
        if absolute.is_dir() {
            let path = absolute.canonicalize();
            let path = path.with_context(|| format!("cannot open {}", absolute.display()))?;
            return Ok(Suspect { path, recursive, with_row: true, given: None });
        }
        // A file, or a path that is gone, is seen in the next directory above.
        let above = directory_above(&absolute);
        let real = above.canonicalize();
        let real = real.with_context(|| format!("cannot open {}", above.display()))?;
        Ok(Suspect { path: real, recursive: false, with_row: true, given: Some(absolute) })
    }
}

/// Returns the next directory above an absolute path that is there.
pub(super) fn directory_above(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("/"))
}
