//! The tree that is asked about, and what the file system tells of it.

use crate::common;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;

/// Later than all that reads the tree, so that reading changes no access time.
pub(crate) const ATIME_S: i64 = 4_000_000_000;

/// A file, link or directory of the tree.
pub(crate) struct Row {
    /// The directory that holds it; of a directory, itself.
    pub(crate) dir: String,
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) kind: char,
    pub(crate) meta: Metadata,
    /// Level of its directory.
    pub(crate) level: usize,
    pub(crate) target: String,
    pub(crate) xattrs: Vec<(String, String)>,
}

impl Row {
    pub(crate) fn new(path: &Path, level: usize) -> Self {
        let meta = path.symlink_metadata().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let dir = if meta.is_dir() { path } else { path.parent().unwrap() };
        Row {
            dir: text(dir),
            path: text(path),
            name: text(Path::new(path.file_name().unwrap())),
            kind: if meta.is_dir() {
                'd'
            } else if meta.is_symlink() {
                'l'
            } else {
                'f'
            },
            level,
            target: fs::read_link(path).map(|target| text(&target)).unwrap_or_default(),
            xattrs: xattrs(path),
            meta,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.meta.size()
    }

    pub(crate) fn created_s(&self) -> i64 {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let mask = rustix::fs::StatxFlags::BTIME;
        rustix::fs::statx(rustix::fs::CWD, self.path.as_str(), flags, mask)
            .unwrap()
            .stx_btime
            .tv_sec
    }
}

pub(crate) fn xattrs(path: &Path) -> Vec<(String, String)> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return Vec::new() };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        (
            String::from_utf8(name.to_vec()).unwrap(),
            String::from_utf8(value[..length].to_vec()).unwrap(),
        )
    };
    names.map(value).collect()
}

/// All that is in a tree.
pub(crate) struct Tree {
    pub(crate) root: String,
    pub(crate) dirs: Vec<Row>,
    pub(crate) entries: Vec<Row>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Self {
        let mut tree =
            Tree { root: root.to_str().unwrap().to_owned(), dirs: Vec::new(), entries: Vec::new() };
        tree.read_below(root, 0);
        tree
    }

    pub(crate) fn read_below(&mut self, dir: &Path, level: usize) {
        self.dirs.push(Row::new(dir, level));
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                self.read_below(&path, level + 1);
            } else {
                self.entries.push(Row::new(&path, level));
            }
        }
    }

    pub(crate) fn of<'a>(&'a self, dir: &'a Row) -> impl Iterator<Item = &'a Row> {
        self.entries.iter().filter(|row| row.dir == dir.path)
    }

    pub(crate) fn count(&self, dir: &Row, kind: char) -> usize {
        self.of(dir).filter(|row| row.kind == kind).count()
    }

    pub(crate) fn totsize(&self, dir: &Row) -> u64 {
        self.of(dir).filter(|row| row.kind == 'f').map(Row::size).sum()
    }

    pub(crate) fn subdirs(&self, dir: &Row) -> usize {
        self.dirs.iter().filter(|row| parent(&row.path) == dir.path).count()
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Row> {
        self.dirs.iter().filter(|dir| self.subdirs(dir) == 0)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Row> {
        self.entries.iter().filter(|row| row.kind == 'f')
    }

    pub(crate) fn dir(&self, row: &Row) -> &Row {
        self.dirs.iter().find(|dir| dir.path == row.dir).unwrap()
    }
}

pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

/// The example tree of GUFI's SQL guide, and what makes its answers differ: sizes at the limits,
/// links, owners, times before 1970, attributes, names that patterns and quotes mean something in.
pub(crate) fn make(root: &Path) {
    let file = |path: &str, size: u64| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    };
    for dir in 1..=3 {
        file(&format!("l1.2/l2.{dir}/f1.xls"), 0);
        file(&format!("l1.1/l2.{dir}/f1.exe"), 0);
        file(&format!("l1.1/l2.{dir}/f1.tar"), 0);
    }
    for (path, size) in [
        ("l1.1/f1.1.doc", 2),
        ("l1.1/f2.1.doc", 2),
        ("l1.2/f2.1.doc", 2),
        ("l1.3/f3.1.doc", 2),
        ("l1.3/l2.1/f1.biggest", 10),
        ("l1.3/l2.2/f1.bigger", 7),
        ("l1.3/l2.3/f1.big", 4),
        ("sizes/zero.dat", 0),
        ("sizes/k.dat", 1024),
        ("sizes/k1.dat", 1025),
        ("sizes/m.dat", 1 << 20),
        ("sizes/m1.dat", (1 << 20) + 1),
        ("sizes/g1.dat", (1 << 30) + 1),
        ("sizes/t1.dat", (1 << 40) + 1),
        ("names/Makefile", 5),
        ("names/.hidden", 5),
        ("names/ends.", 5),
        ("names/LOUD.BIG", 5),
        ("names/its 100% _ü", 5),
        ("hard/one", 6),
    ] {
        file(path, size);
    }
    fs::hard_link(root.join("hard/one"), root.join("hard/two")).unwrap();
    fs::create_dir_all(root.join("empty/l2.empty")).unwrap();
    fs::create_dir(root.join("links")).unwrap();
    symlink("../l1.1/f1.1.doc", root.join("links/to")).unwrap();
    symlink("nowhere", root.join("links/broken.lnk")).unwrap();
    for (path, name, value) in [
        ("l1.3/l2.3/f1.big", "user.needle", "found the needle"),
        ("l1.3/l2.3/f1.big", "user.ext", "one"),
        ("l1.1/f1.1.doc", "user.ext", "two"),
        ("sizes", "user.ext", "of a directory"),
    ] {
        rustix::fs::setxattr(
            root.join(path),
            name,
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
    }
    let mut paths = common::all_paths(root);
    paths.reverse();
    for (number, path) in paths.iter().enumerate() {
        adorn(path, number);
    }
}

pub(crate) fn adorn(path: &Path, number: usize) {
    // Of users and groups that every system has: GUFI cannot show others.
    let ids = [(0, 0), (1, 1), (2, 1), (1, 2)];
    let (uid, gid) = ids[number % ids.len()];
    lchown(path, Some(uid), Some(gid)).unwrap();
    if !path.is_symlink() {
        let mode =
            if path.is_dir() { 0o755 } else { [0o644, 0o600, 0o755, 0o4711][number / 4 % 4] };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mtime_s = [1_700_000_000, 1_000_000_000, 1_790_000_000, 86_400, -1_000_000][number % 5]
        + number as i64;
    let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 500_000_000 };
    let times = rustix::fs::Timestamps { last_access: at(ATIME_S), last_modification: at(mtime_s) };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}
