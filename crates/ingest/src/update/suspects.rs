//! Directories that are to be listed again, and their text form between processes.

use anyhow::Context as _;
use canopy_watch::Batch;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
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
#[derive(Default)]
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

pub(crate) fn line(kind: u8, path: &[u8], lines: &mut Vec<u8>) {
    lines.push(kind);
    lines.extend_from_slice(path);
    lines.push(0);
}

/// Returns what `canopy update --suspects` reads: a line for each directory, `d` and its path, `r`
/// if all below is listed, too, `o` if the directory above is not listed for its row; and for each
/// inode `i`, its number and the path of the root. Each directory is a request of a user if there is
/// a line `c/`.
pub(crate) fn lines(root: &[u8], batch: &Batch) -> Vec<u8> {
    let mut lines = Vec::new();
    for suspect in &batch.suspects {
        line(if suspect.recursive { b'r' } else { b'd' }, &suspect.path, &mut lines);
    }
    for inode in &batch.links {
        lines.extend_from_slice(format!("i{inode}").as_bytes());
        lines.extend_from_slice(root);
        lines.push(0);
    }
    lines
}

impl Suspects {
    /// Reads the text that the daemon writes.
    ///
    /// # Errors
    ///
    /// If it is another text.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let (mut suspects, mut links) = (Vec::new(), Links::new());
        let mut are_requests = false;
        let mut read = |line: &[u8]| {
            let (kind, path) = line.split_at(line.iter().position(|&byte| byte == b'/')?);
            let path = PathBuf::from(OsStr::from_bytes(path));
            match kind {
                b"c" => are_requests = true,
                b"d" | b"r" | b"o" => {
                    let (recursive, with_row) = (kind == b"r", kind != b"o");
                    suspects.push(Suspect { path, recursive, with_row, given: None });
                }
                kind => {
                    let inode = str::from_utf8(kind.strip_prefix(b"i")?).ok()?.parse().ok()?;
                    match links.last_mut().filter(|(last, _): &&mut (PathBuf, _)| *last == path) {
                        Some((_, inodes)) => inodes.push(inode),
                        None => links.push((path, vec![inode])),
                    }
                }
            }
            Some(())
        };
        let mut lines = bytes.split(|&byte| byte == 0).filter(|line| !line.is_empty());
        lines.try_for_each(|line| read(line).context("standard input has no suspects"))?;
        links.iter_mut().for_each(|(_, inodes)| inodes.sort_unstable());
        Ok(Suspects { all: suspects, links, are_requests })
    }
}
