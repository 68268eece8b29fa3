//! Programs that every user can run: the target directory may be closed to all but root.

use super::built;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PROGRAMS: [&str; 5] = ["canopy", "canopy-sql", "canopy-store", "canopy-ns", "canopy-cluster"];

/// How directories of copies begin; the rest of the name says of which build they are.
const COPIES: &str = "canopy-tests-";

/// Makes all programs in a directory, as hard links: a copy of them takes a tenth of a second.
pub fn link_into(directory: &Path) {
    for name in PROGRAMS {
        if fs::hard_link(built(name), directory.join(name)).is_err() {
            let copies = copies_beside(directory);
            fs::hard_link(copies.join(name), directory.join(name)).unwrap();
        }
    }
}

/// Returns a directory of copies that all tests of a build share, on the file system of a place.
fn copies_beside(place: &Path) -> PathBuf {
    let parent = place.parent().unwrap();
    let stamps = PROGRAMS.map(|name| {
        let metadata = built(name).metadata().unwrap();
        format!("{:x}.{:x}", metadata.ino(), metadata.mtime_nsec())
    });
    let copies = parent.join(format!("{COPIES}{}", stamps.join("-")));
    if !copies.exists() {
        make_copies(parent, &copies);
    }
    // Root is about to run them.
    let found = copies.symlink_metadata().unwrap();
    let is_ours = found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    assert!(is_ours, "{} is not a directory of root alone", copies.display());
    copies
}

/// Makes copies. Another test may be first.
fn make_copies(parent: &Path, copies: &Path) {
    remove_old_copies(parent);
    let made = tempfile::tempdir_in(parent).unwrap();
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in PROGRAMS {
        fs::copy(built(name), made.path().join(name)).unwrap();
    }
    match fs::rename(made.path(), copies) {
        Ok(()) => drop(made.keep()),
        Err(error) => {
            let others = [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists];
            assert!(others.contains(&error.kind()), "{error}");
        }
    }
}

/// Removes copies of builds that nobody tests any more.
fn remove_old_copies(parent: &Path) {
    let day = Duration::from_secs(86_400);
    for entry in fs::read_dir(parent).unwrap().flatten() {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > day));
        if is_old && entry.file_name().to_string_lossy().starts_with(COPIES) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
