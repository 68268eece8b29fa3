//! An entry of the live file system: what its directory tells of it, and what it is asked for only
//! where a test or action needs it.

use super::dir::{Stat, open_dir};
use super::{Live, Tree};
use crate::error::Result;
use crate::find::actions::{EntryView, LookedUp, Met, Needs, attribute};
use crate::find::evaluation::{Candidates, Numeric};
use crate::find::language::XattrTest;
use crate::find::messages::{quoted, system_message, unknown_value};
use crate::find::path::{file_name, trim_slashes};
use canopy_index::column::Column;
use canopy_model::{Attributes, Device, FileType, Wanted, escape};
use canopy_scan::look_at;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Access, AtFlags, RawDir};
use rustix::io::Errno;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// Largest list of names and largest value of extended attributes that Linux has.
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// One entry.
pub(super) struct LiveEntry<'e> {
    pub(super) live: &'e Live<'e>,
    pub(super) tree: &'e Tree<'e>,
    /// The directory that it is in, and its name there; of a start, the working directory and the
    /// path.
    pub(super) directory: BorrowedFd<'e>,
    pub(super) name: &'e CStr,
    /// The path as it is printed.
    pub(super) shown: &'e [u8],
    pub(super) depth: u32,
    /// Its type, as far as that is known without looking.
    pub(super) hint: Option<FileType>,
    /// Attributes; `None` where they cannot be had, of which there was a diagnostic.
    pub(super) stat: OnceCell<Option<Stat>>,
    /// Whether there was a diagnostic.
    diagnosed: Cell<bool>,
    target: OnceCell<Vec<u8>>,
}

impl<'e> LiveEntry<'e> {
    /// Makes an entry of a name in a directory.
    pub(super) fn new(
        live: &'e Live<'e>,
        tree: &'e Tree<'e>,
        directory: BorrowedFd<'e>,
        name: &'e CStr,
        shown: &'e [u8],
        depth: u32,
        hint: Option<FileType>,
    ) -> Self {
        let (stat, target) = (OnceCell::new(), OnceCell::new());
        let diagnosed = Cell::new(false);
        LiveEntry { live, tree, directory, name, shown, depth, hint, stat, diagnosed, target }
    }

    /// Adds attributes that are known already.
    pub(super) fn with_stat(self, stat: Option<Stat>) -> Self {
        LiveEntry {
            stat: stat.map_or_else(OnceCell::new, |stat| OnceCell::from(Some(stat))),
            ..self
        }
    }

    /// Returns whether it is looked at through symbolic links.
    fn follows(&self) -> bool {
        self.live.find.globals.follows(self.depth)
    }

    /// Returns the last component of its path.
    fn base(&self) -> &[u8] {
        if self.depth == 0 { file_name(self.shown) } else { self.name.to_bytes() }
    }

    pub(super) fn stat(&self) -> Option<&Stat> {
        let look = || match self.look(self.follows()) {
            Err(Errno::NOENT) if self.follows() => self.look(false),
            other => other,
        };
        self.stat.get_or_init(|| look().map_err(|errno| self.problem(errno)).ok()).as_ref()
    }

    pub(super) fn look(&self, follow: bool) -> Result<Stat, Errno> {
        look_at(self.directory, self.name, follow)
    }

    pub(super) fn file_type(&self) -> Option<FileType> {
        self.hint.or_else(|| self.stat().map(|(attributes, _)| attributes.file_type()))
    }

    /// Says what is wrong, once.
    pub(super) fn problem(&self, errno: Errno) {
        let gone = errno == Errno::NOENT && self.live.find.globals.ignores_races && self.depth > 0;
        if !gone && !self.diagnosed.replace(true) {
            self.live.problem(self.shown, errno);
        }
    }

    fn target_bytes(&self) -> &[u8] {
        if self.file_type() != Some(FileType::Symlink) {
            return b"";
        }
        self.target.get_or_init(|| {
            let read = rustix::fs::readlinkat(self.directory, self.name, Vec::new());
            read.map_err(|errno| self.problem(errno)).map(CString::into_bytes).unwrap_or_default()
        })
    }

    fn look_up(&self, needs: &Needs, dev: Device) -> LookedUp {
        LookedUp {
            file_system: match needs.file_system {
                true => self.live.file_systems.name(dev).to_owned(),
                false => String::new(),
            },
            target_type: if needs.target_type { self.target_type() } else { ' ' },
            context: match needs.context {
                true => self.xattr(c"security.selinux").unwrap_or_default(),
                false => Vec::new(),
            },
        }
    }

    /// Returns what `%Y` prints.
    fn target_type(&self) -> char {
        match self.file_type() {
            Some(FileType::Symlink) => match self.look(true) {
                Ok((attributes, _)) => attributes.file_type().letter(),
                Err(Errno::NOENT | Errno::NOTDIR) => 'N',
                Err(Errno::LOOP) => 'L',
                Err(errno) => {
                    if !self.diagnosed.replace(true) {
                        self.live.remark(self.shown, errno);
                    }
                    '?'
                }
            },
            Some(other) => other.letter(),
            None => '?',
        }
    }

    /// Returns a path for system calls that take no descriptor.
    fn system_path(&self) -> CString {
        if self.depth == 0 {
            return self.name.to_owned();
        }
        let path = format!("/proc/self/fd/{}/", self.directory.as_raw_fd());
        let path = [path.as_bytes(), self.name.to_bytes()].concat();
        CString::new(path).expect("a name has no NUL")
    }

    fn xattr(&self, key: &CStr) -> Option<Vec<u8>> {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let path = self.system_path();
        let read = match self.follows() {
            true => rustix::fs::getxattr(&path, key, &mut value[..]),
            false => rustix::fs::lgetxattr(&path, key, &mut value[..]),
        };
        value.truncate(read.ok()?);
        Some(value)
    }

    fn xattr_names(&self) -> Vec<u8> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let path = self.system_path();
        let read = match self.follows() {
            true => rustix::fs::listxattr(&path, &mut names[..]),
            false => rustix::fs::llistxattr(&path, &mut names[..]),
        };
        match read {
            Ok(length) => names.truncate(length),
            Err(errno) => {
                names.clear();
                if errno != Errno::OPNOTSUPP {
                    self.problem(errno);
                }
            }
        }
        names
    }

    fn is_empty_directory(&self) -> Result<bool, Errno> {
        let directory = open_dir(self.directory, self.name, self.follows())?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&directory, &mut buffer);
        while let Some(entry) = entries.next() {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_empty(&self) -> bool {
        // As find(1), which looks before it reads.
        let Some((attributes, _)) = self.stat() else { return false };
        match attributes.file_type() {
            FileType::Directory => self.is_empty_directory().unwrap_or_else(|errno| {
                self.problem(errno);
                false
            }),
            FileType::Regular => attributes.size_bytes == 0,
            _ => false,
        }
    }

    fn has_xattr(&self, test: &XattrTest) -> bool {
        let names = self.xattr_names();
        let listed = names.split_inclusive(|&byte| byte == 0);
        let listed = listed.filter_map(|key| CStr::from_bytes_with_nul(key).ok());
        listed.chain(test.unlisted_key()).any(|key| {
            let name = escape(key.to_bytes());
            let holds = |value: Vec<u8>| {
                test.holds(&name, &escape(&value)).unwrap_or_else(|| {
                    if !self.diagnosed.replace(true) {
                        let what = unknown_value(&name);
                        self.live.diagnose(&format!("{}: {what}", quoted(self.shown)));
                    }
                    false
                })
            };
            test.asks(&name) && (test.passes_by_name() || self.xattr(key).is_some_and(holds))
        })
    }
}

impl Met for LiveEntry<'_> {
    fn view(&self, needs: &Needs) -> Option<EntryView<'_>> {
        let (attributes, dev) = match needs {
            Needs { stat: true, .. } => *self.stat()?,
            Needs { file_type: true, .. } => (
                Attributes { mode: type_bits(self.file_type()?), ..Attributes::default() },
                Device(0),
            ),
            _ => (Attributes::default(), Device(0)),
        };
        Some(EntryView {
            shown: self.shown,
            name: self.base(),
            start: self.tree.given,
            link: self.tree.given,
            depth: self.depth,
            target: if needs.target { self.target_bytes() } else { b"" },
            dev,
            attributes,
            looked_up: self.look_up(needs, dev),
            directory: (self.depth > 0).then_some(self.directory),
        })
    }

    fn delete(&self) -> bool {
        // As find(1): the working directory itself stays.
        if self.depth == 0 && self.name == c"." {
            return true;
        }
        let remove = |flags| rustix::fs::unlinkat(self.directory, self.name, flags);
        let removed = match self.file_type() {
            Some(FileType::Directory) => remove(AtFlags::REMOVEDIR),
            _ => match remove(AtFlags::empty()) {
                Err(Errno::ISDIR) => remove(AtFlags::REMOVEDIR),
                other => other,
            },
        };
        match removed {
            Ok(()) => true,
            Err(Errno::NOENT) if self.live.find.globals.ignores_races => true,
            Err(errno) => {
                let why = system_message(&errno.into());
                self.live.diagnose(&format!("cannot delete {}: {why}", quoted(self.shown)));
                false
            }
        }
    }
}

impl Candidates for LiveEntry<'_> {
    fn len(&self) -> usize {
        1
    }

    fn names<'s>(&'s self) -> Result<impl Fn(usize) -> Cow<'s, str>> {
        Ok(|_| escape(trim_slashes(self.base())))
    }

    fn shown(&self, _: usize) -> Cow<'_, str> {
        escape(self.shown)
    }

    fn types(&self) -> Result<impl Fn(usize) -> Option<FileType>> {
        Ok(|_| self.file_type())
    }

    fn numbers<T: Numeric>(&self, column: Column<T>) -> Result<impl Fn(usize) -> Option<i64>> {
        let attribute = attribute(column.id());
        Ok(move |_| Some(attribute(&self.stat()?.0)))
    }

    fn dev(&self, _: usize) -> Option<Device> {
        Some(self.stat()?.1)
    }

    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str> {
        |_| match self.stat() {
            Some(_) => escape(self.target_bytes()),
            None => Cow::Borrowed(""),
        }
    }

    fn empties(&self) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| self.is_empty())
    }

    fn xattrs(&self, test: &XattrTest) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| self.has_xattr(test))
    }

    fn leads_to(&self, types: &[FileType]) -> Result<impl Fn(usize) -> bool> {
        Ok(|_| {
            let Some((own, dev)) = self.stat() else { return false };
            let other_way = match self.follows() {
                true => self.look(false),
                false if own.file_type() != FileType::Symlink => Ok((*own, *dev)),
                false => match self.look(true) {
                    Err(Errno::NOENT | Errno::NOTDIR) => self.look(false),
                    other => other,
                },
            };
            match other_way {
                Ok((attributes, _)) => types.contains(&attributes.file_type()),
                Err(errno) => {
                    self.problem(errno);
                    false
                }
            }
        })
    }

    fn may_access(&self, wanted: Wanted) -> Result<impl Fn(usize) -> bool> {
        let access = match wanted {
            Wanted::READ => Access::READ_OK,
            Wanted::WRITE => Access::WRITE_OK,
            _ => Access::EXEC_OK,
        };
        Ok(move |_| {
            rustix::fs::accessat(self.directory, self.name, access, AtFlags::empty()).is_ok()
        })
    }

    fn is_on(&self, file_system: &str, _: usize) -> bool {
        let known = &self.live.file_systems;
        known.has(file_system)
            && self.stat().is_some_and(|(_, dev)| known.name(*dev) == file_system)
    }
}

/// Returns a type as in `st_mode`.
fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => 0o100_000,
        FileType::Directory => 0o040_000,
        FileType::Symlink => 0o120_000,
        FileType::Fifo => 0o010_000,
        FileType::Socket => 0o140_000,
        FileType::Block => 0o060_000,
        FileType::Character => 0o020_000,
        FileType::Unknown => 0,
    }
}
