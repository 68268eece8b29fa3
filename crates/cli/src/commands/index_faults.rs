//! What `canopy index` says of entries and file systems that not all of is in the index: the file
//! of `--errors`, and warnings.

use crate::outcome::message;
use anyhow::Context;
use canopy_scan::{ClosedMount, Counts, Fault, Rules, ScanError, ScanOptions, Step};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Most characters of a path in a warning.
const SHOWN_MAX: usize = 200;

/// Takes in what is wrong with entries.
#[derive(Default)]
pub(super) struct Faults {
    /// Fault, reason and path, one a line, with control characters escaped.
    file: Option<Mutex<BufWriter<File>>>,
    narrowed: OnceLock<PathBuf>,
    long: OnceLock<PathBuf>,
}

impl Faults {
    /// Creates the file that lists them, if one is asked for. It names entries that only root may
    /// know of, so it is for its owner alone.
    pub(super) fn new(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Faults::default()) };
        let create = || {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            let file = options.open(path)?;
            if file.metadata()?.is_file() {
                file.set_permissions(Permissions::from_mode(0o600))?;
            }
            Ok::<_, std::io::Error>(file)
        };
        let file = create().with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Faults { file: Some(Mutex::new(BufWriter::new(file))), ..Faults::default() })
    }

    /// Takes in one of an entry below the root `base`.
    pub(super) fn add(&self, base: &Path, error: &ScanError) {
        let path = base.join(std::ffi::OsStr::from_bytes(&error.path));
        let (what, why) = match error.fault {
            Fault::Failed(step, errno) => {
                let what = match step {
                    Step::List => "cannot list",
                    Step::Look => "cannot look at",
                    Step::ReadLink => "cannot read the link",
                    Step::Xattrs => "cannot read the extended attributes of",
                };
                (what, std::io::Error::from(errno).to_string())
            }
            Fault::Narrowed => ("shown to fewer", "a directory on the way changed".to_owned()),
            Fault::LongPath => ("left out what is in", "the path is too long".to_owned()),
        };
        if let Some(file) = &self.file {
            let path = path.as_os_str().as_bytes().escape_ascii();
            // A full disk shows when the file is finished.
            drop(writeln!(file.lock(), "{what} {path}: {why}"));
        }
        let example = match error.fault {
            Fault::Failed(..) => return,
            Fault::Narrowed => &self.narrowed,
            Fault::LongPath => &self.long,
        };
        example.get_or_init(|| path);
    }

    /// Ends the file, and warns of what `counts` has, with an example each.
    pub(super) fn finish(self, counts: &Counts, options: &ScanOptions) -> anyhow::Result<()> {
        if let Some(file) = self.file {
            file.into_inner().flush().context("cannot write the list of errors")?;
        }
        if let Some(path) = self.narrowed.get() {
            message(format_args!(
                "warning: permissions or places of directories changed under the scan: {} listings \
                 are for those alone who were let in before and after, such as {}; index again",
                counts.narrowed.load(Ordering::Relaxed),
                shown(path)
            ));
        }
        if let Some(path) = self.long.get() {
            message(format_args!(
                "warning: what is in {} directories is left out, since their paths are longer than \
                 {} bytes ('path_max') or too deep for the open files that the system allows, \
                 such as {}",
                counts.long_paths.load(Ordering::Relaxed),
                options.path_bytes_max,
                shown(path)
            ));
        }
        let unmapped = counts.unmapped.load(Ordering::Relaxed);
        if unmapped > 0 && !options.one_reader {
            message(format_args!(
                "warning: {unmapped} directories are of users or groups that this user namespace \
                 does not know, and are for root alone; index outside of it"
            ));
        }
        Ok(())
    }
}

/// Warns of mounts whose contents not all see whom the system might let see them.
pub(super) fn warn_of_mounts(closed: &[ClosedMount]) {
    for mount in closed {
        let ClosedMount { point, file_system, rules, entered } = mount;
        let point = if point.is_empty() {
            "a file system that /proc does not tell".to_owned()
        } else {
            format!("{} ({file_system})", shown(Path::new(std::ffi::OsStr::from_bytes(point))))
        };
        match rules {
            _ if !entered => message(format_args!(
                "warning: {point} lets nobody in but its owner and is left out"
            )),
            Rules::Mode => message(format_args!(
                "warning: {point} may take no account of ACLs: what has one is for root alone, \
                 unless 'trust_fs' names the type"
            )),
            _ => message(format_args!(
                "warning: {point} does not leave it to modes and ACLs who sees what: it is for \
                 root alone, unless 'trust_fs' names the type"
            )),
        }
    }
}

/// Returns the beginning of a path for a message.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
