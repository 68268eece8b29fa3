//! Links that an index cannot follow: out of all its sources, or into directories that the caller
//! may search but not list.
//!
//! 1. Where the source of a link still lies at its root, and the link still has its target, the
//!    kernel follows it, as the caller. It does not where a program of another user would answer,
//!    who could let the caller wait for ever.
//! 2. Elsewhere, as in an import of another machine, such a link counts as one that leads nowhere.
//!    One line reports how many there were; it is not a failure.
//! 3. Directories that are reached so are not searched: no index has what is in them.

use crate::find::path::{push_component, trim_slashes};
use canopy_index::{SourceId, SourceRecord};
use canopy_model::{Attributes, Device, FileType, Wanted, unescape};
use canopy_read::locate::{Start, absolute_path, to_path};
use canopy_read::{Inode, Lost};
use canopy_scan::{Mount, look_at, look_at_open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, accessat, openat2, readlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Attributes and device of what a link leads to, or why the kernel does not follow it.
pub(crate) type Reached = Result<(Attributes, Device), Errno>;

/// The links of a search that its index cannot follow.
#[derive(Default)]
pub(crate) struct Outside {
    /// By number of a source: whether it is what lies at its root now.
    here: Mutex<FxHashMap<SourceId, bool>>,
    /// Where the kernel is not asked.
    others_mounts: OnceLock<OthersMounts>,
    /// Hashes of links that nobody can follow.
    unknown: Mutex<FxHashSet<u64>>,
    /// Hashes of links to directories that are not searched.
    unsearched: Mutex<FxHashSet<u64>>,
}

impl Outside {
    /// Looks at what a link of a source leads to, given its absolute path and its target, escaped.
    /// Returns nothing if the live file system does not have that link.
    pub(crate) fn look(&self, source: &SourceRecord, link: &str, target: &str) -> Option<Reached> {
        let path = self.live_path(source, link, target)?;
        Some(open_end(&path).and_then(|end| match end {
            Some(end) => look_at_open(end),
            None => look_at(CWD, &path, true),
        }))
    }

    /// Returns the target of a link that the index cannot follow, for tools that show one entry.
    pub(crate) fn reached(&self, link: &Start) -> Result<Inode, Lost> {
        let path = absolute_path(&link.source, link.path.as_path());
        match self.look(&link.source, &path, &link.inode.target) {
            Some(Ok((attributes, dev))) => Ok(inode_outside(attributes, dev)),
            Some(Err(Errno::NOENT)) => Err(Lost::Missing),
            Some(Err(Errno::NOTDIR)) => Err(Lost::NotDirectory),
            Some(Err(Errno::ACCESS)) => Err(Lost::Denied),
            Some(Err(Errno::LOOP)) => Err(Lost::Loop),
            Some(Err(Errno::NAMETOOLONG)) => Err(Lost::LongName),
            Some(Err(_)) | None => Err(Lost::Outside),
        }
    }

    /// As [`Outside::reached`], but for directories, whose contents the index does not have.
    pub(crate) fn file(&self, link: &Start) -> Result<Inode, Lost> {
        let is_file = |inode: &Inode| inode.attributes.file_type() != FileType::Directory;
        self.reached(link)
            .and_then(|inode| if is_file(&inode) { Ok(inode) } else { Err(Lost::Outside) })
    }

    /// Returns whether access(2) grants the caller the wanted bits of what a link leads to.
    pub(crate) fn may_access(
        &self,
        source: &SourceRecord,
        link: &str,
        target: &str,
        wanted: Wanted,
    ) -> Option<bool> {
        let path = self.live_path(source, link, target)?;
        let access = match wanted {
            Wanted::READ => Access::READ_OK,
            Wanted::WRITE => Access::WRITE_OK,
            _ => Access::EXEC_OK,
        };
        Some(open_end(&path).is_ok() && accessat(CWD, &path, access, AtFlags::empty()).is_ok())
    }

    /// Notes a link that nobody can follow.
    pub(crate) fn note_unknown(&self, link: &[u8]) {
        self.unknown.lock().insert(FxBuildHasher.hash_one(link));
    }

    /// Notes a link to a directory that is not searched.
    pub(crate) fn note_unsearched(&self, link: &[u8]) {
        self.unsearched.lock().insert(FxBuildHasher.hash_one(link));
    }

    /// Returns remarks about the links that were met.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let links = |count: usize| match count {
            1 => "1 symbolic link leads".to_owned(),
            count => format!("{count} symbolic links lead"),
        };
        let (unknown, unsearched) = (self.unknown.lock().len(), self.unsearched.lock().len());
        let mut remarks = Vec::new();
        if unknown > 0 {
            let links = links(unknown);
            remarks.push(format!("{links} out of what is searched; such links count as broken"));
        }
        if unsearched > 0 {
            let links = links(unsearched);
            remarks.push(format!(
                "{links} to directories that are not in the index and were not searched \
                 ('canopy find --live' searches them)"
            ));
        }
        remarks
    }

    /// Returns the path of a link for system calls, if the live file system has the link.
    fn live_path(&self, source: &SourceRecord, link: &str, target: &str) -> Option<CString> {
        if !*self.here.lock().entry(source.id).or_insert_with(|| is_here(source)) {
            return None;
        }
        let path = CString::new(to_path(link).as_os_str().as_bytes()).ok()?;
        let read = readlinkat(CWD, &path, Vec::new()).ok()?;
        let is_same = read.as_bytes() == &*unescape(target);
        let others_mounts = self.others_mounts.get_or_init(OthersMounts::read);
        (is_same && !others_mounts.has(path.as_bytes())).then_some(path)
    }
}

/// Opens what a path leads to, without a right to its contents. Not through links of `/proc` to what
/// processes have open: a file system of another user may be there that nobody sees mounted any more.
/// `None` if the kernel cannot do that.
fn open_end(path: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Returns an inode of which the live file system reports the attributes.
pub(crate) fn inode_outside(attributes: Attributes, dev: Device) -> Inode {
    Inode { attributes, target: String::new(), dev, xattrs: String::new() }
}

/// Returns where other users than root have mounted file systems for all users, and where a look
/// mounts one: whoever makes a link could choose the host that is to answer.
fn others_mounts() -> Vec<Vec<u8>> {
    let own = rustix::process::geteuid().as_raw();
    let is_others = |mount: &Mount| {
        let user = mount.option("user_id").and_then(|user| user.parse::<u32>().ok());
        let is_fuse = mount.file_system.starts_with("fuse");
        let is_others = user.is_some_and(|user| user != 0 && user != own);
        mount.file_system == "autofs" || is_fuse && mount.has_option("allow_other") && is_others
    };
    let all = canopy_scan::mounts().unwrap_or_default().into_iter();
    all.filter(is_others).map(|mount| mount.point).collect()
}

/// Paths that lead through file systems that other users' programs answer for, who could let a
/// caller wait for ever.
pub(crate) struct OthersMounts {
    /// Tells when the mounts of the system change.
    changes: Option<File>,
    points: Mutex<Vec<Vec<u8>>>,
}

impl OthersMounts {
    /// Reads the mounts of the system.
    pub(crate) fn read() -> Self {
        let changes = File::open("/proc/self/mountinfo").ok();
        OthersMounts { changes, points: Mutex::new(others_mounts()) }
    }

    /// Returns whether an absolute path leads through one of them, as they are now.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        let mut points = self.points.lock();
        if self.have_changed() {
            *points = others_mounts();
        }
        passes(path, &points)
    }

    fn have_changed(&self) -> bool {
        let Some(changes) = &self.changes else { return true };
        let mut polled = [PollFd::new(changes.as_fd(), PollFlags::POLLPRI)];
        poll(&mut polled, PollTimeout::ZERO) != Ok(0)
    }
}

/// Returns whether an absolute path leads through one of some mount points, symbolic links on its
/// way and at its end included. None of them is looked at.
fn passes(path: &[u8], mount_points: &[Vec<u8>]) -> bool {
    /// Links that the kernel follows.
    const LINKS_MAX: usize = 40;
    if mount_points.is_empty() {
        return false;
    }
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect()
    };
    let (mut ahead, mut directory, mut links) = (names(path), Vec::new(), 0);
    let parent = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    while let Some(name) = ahead.pop() {
        match &name[..] {
            b"" | b"." => continue,
            b".." => directory.truncate(parent(&directory)),
            name => {
                push_component(&mut directory, name);
                if mount_points.contains(&directory) {
                    return true;
                }
            }
        }
        let target = match readlinkat(CWD, &directory[..], Vec::new()) {
            Ok(target) => target,
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => continue,
            // The way from here on is not known, such as beyond the longest path.
            Err(_) => return true,
        };
        links += 1;
        if links > LINKS_MAX {
            return false;
        }
        let begin = if target.as_bytes().starts_with(b"/") { 0 } else { parent(&directory) };
        directory.truncate(begin);
        ahead.extend(names(target.as_bytes()));
    }
    false
}

/// Returns whether a source is what lies at its root now, as far as device and inode tell.
fn is_here(source: &SourceRecord) -> bool {
    let root = to_path(&source.root);
    let root = CString::new(trim_slashes(root.as_os_str().as_bytes()));
    let looked = |root: &CStr| look_at(CWD, root, false).ok();
    let found = root.ok().and_then(|root| looked(&root));
    found.is_some_and(|(found, dev)| (dev, found.ino) == (source.dev, source.attributes.ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A process can have files open on a file system that was unmounted lazily.
    #[test]
    fn links_to_what_processes_have_open_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| CString::new(place.path().join(name).as_os_str().as_bytes()).unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        symlink("file", place.path().join("plain")).unwrap();
        symlink("/proc/self/cwd/Cargo.toml", place.path().join("magic")).unwrap();
        symlink("magic", place.path().join("to-magic")).unwrap();
        assert!(open_end(&at("plain")).is_ok());
        for name in ["magic", "to-magic"] {
            assert_eq!(open_end(&at(name)).err(), Some(Errno::LOOP), "{name}");
        }
    }

    #[test]
    fn ways_through_mounts_of_others_are_known_without_a_look_at_them() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).into_os_string();
        fs::create_dir_all(at("theirs/inner")).unwrap();
        fs::create_dir_all(at("ours")).unwrap();
        symlink(at("theirs/inner/file"), at("direct")).unwrap();
        symlink("../direct", at("ours/relative")).unwrap();
        symlink("ours/../theirs", at("up")).unwrap();
        symlink("ours", at("harmless")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let theirs = [at("theirs").as_bytes().to_vec()];
        for (path, expected) in [
            ("theirs", true),
            ("theirs/inner", true),
            ("direct", true),
            ("ours/relative", true),
            ("up", true),
            ("theirsandmore", false),
            ("harmless", false),
            ("loop", false),
            ("missing/theirs", false),
        ] {
            assert_eq!(passes(at(path).as_bytes(), &theirs), expected, "{path}");
            assert!(!passes(at(path).as_bytes(), &[]), "{path}");
        }
    }
}
