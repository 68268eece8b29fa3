//! Reads directories as find(1) does: getdents64, then fstatat of every entry.

use anyhow::{Context, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};

/// The size of find(1)'s buffer for getdents64.
const BUFFER_BYTES: usize = 32 << 10;

/// Opens a directory to read it.
pub fn open(parent: impl AsFd, path: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path, flags, Mode::empty()).with_context(|| path.to_string())
}

/// Calls `visit` with what fstatat says of each entry below a directory. Returns how many there
/// are.
pub fn walk(directory: &OwnedFd, visit: &mut dyn FnMut(&Stat)) -> Result<u64> {
    let mut count = 0;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        visit(&stat);
        count += 1;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            count += walk(&below, visit)?;
        }
    }
    Ok(count)
}

/// Reads one directory. With `with_stat`, asks what each entry is, or leads to. Returns how many
/// there are.
pub fn list(directory: &OwnedFd, with_stat: bool) -> Result<u64> {
    let mut count = 0;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0))?;
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if with_stat {
            rustix::fs::statat(directory, name, AtFlags::empty())?;
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_walk_goes_into_directories_only_and_a_list_follows_links() {
        let path = std::env::temp_dir().join(format!("canopy-walk-{}", std::process::id()));
        fs::create_dir_all(path.join("a/b")).expect("directories are made");
        fs::write(path.join("a/b/file"), "text").expect("a file is made");
        symlink("a", path.join("link")).expect("a link is made");
        let root = open(rustix::fs::CWD, path.to_str().expect("UTF-8")).expect("it is there");
        let mut bytes = 0;
        let mut visit = |stat: &Stat| {
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            bytes += if is_file { stat.st_size } else { 0 };
        };
        assert_eq!(walk(&root, &mut visit).expect("it is read"), 4);
        assert_eq!(bytes, 4);
        for with_stat in [false, true] {
            assert_eq!(list(&root, with_stat).expect("it is read"), 2);
        }
        symlink("nowhere", path.join("dangling")).expect("a link is made");
        assert!(list(&root, true).is_err());
        fs::remove_dir_all(&path).expect("the directory is removed");
    }
}
