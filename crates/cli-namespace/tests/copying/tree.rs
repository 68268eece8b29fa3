//! A tree with everything that a file system has, and what is seen of a tree.

use canopy_model::{Acl, AclEntry, AclTag};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags, makedev, mknodat,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// The visible state of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    stat: (u32, u32, u32, u64),
    mtime: (i64, i64),
    /// Times of files that reading this does not change.
    atime: Option<(i64, i64)>,
    /// The first path of the same file.
    first: PathBuf,
    size: u64,
    target: Option<PathBuf>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    contents: Option<u64>,
    /// Whether it takes less space than its length.
    is_sparse: bool,
}

fn acl(uid: u32) -> Vec<u8> {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let entries = vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(uid), 5),
        entry(AclTag::OwningGroup, 4),
        entry(AclTag::Mask, 5),
        entry(AclTag::Other, 0),
    ];
    Acl { entries }.encode()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).expect(name);
}

fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times");
}

/// Returns bytes that do not repeat.
fn noise(length: usize) -> Vec<u8> {
    let mut state = length as u64 | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Makes a tree with files of all types, names of all bytes, links across directories, attributes
/// and holes.
pub fn make(top: &Path) {
    let path = |name: &[u8]| top.join(OsStr::from_bytes(name));
    for name in [&b"sub"[..], b"sub/deeper", b"sticky", b"empty", b"with\nnewline", b"\xff\xfe"] {
        fs::create_dir(path(name)).expect("a directory");
    }
    for length in [0, 1, 511, 4096, 4097, 70_000, 10 << 20] {
        fs::write(path(format!("file-{length}").as_bytes()), noise(length)).expect("a file");
    }
    for name in [&b"with\nnewline/ \t\x01'\"\\"[..], b"\xff\xfe/\x80.dat", b"-rf", b"sub/..."] {
        fs::write(path(name), name).expect("a file");
    }
    fs::write(path(&[b'n'; 255]), "the longest name").expect("a file");
    make_links(&path);
    make_attributes(&path);
    let sparse = File::create(path(b"sparse")).expect("a file");
    sparse.write_all_at(b"start", 0).expect("writing");
    sparse.write_all_at(b"middle", 5 << 20).expect("writing");
    sparse.set_len(20 << 20).expect("a length");
    for (name, kind, device) in [
        (&b"pipe"[..], FileType::Fifo, 0),
        (b"socket", FileType::Socket, 0),
        (b"sub/null", FileType::CharacterDevice, makedev(1, 3)),
        (b"sub/block", FileType::BlockDevice, makedev(259, 70_000)),
    ] {
        mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o640), device).expect("a device");
    }
    // The first letter of each second name tells whether it comes before the first one.
    set_times(&path(b"sub/deeper"), (1, 2), (1_600_000_000, 999_999_999));
    set_times(top, (5, 6), (1_500_000_000, 1));
}

fn make_links(path: &impl Fn(&[u8]) -> PathBuf) {
    for (old, new) in [
        (&b"file-511"[..], &b"sub/again"[..]),
        (b"file-511", b"sub/deeper/again"),
        (b"file-70000", b"empty/large again"),
        (b"\xff\xfe/\x80.dat", b"sub/deeper/\x81"),
    ] {
        fs::hard_link(path(old), path(new)).expect("a link");
    }
    symlink("../file-1", path(b"sub/link")).expect("a symbolic link");
    symlink(OsStr::from_bytes(b"\xf0nowhere\n"), path(b"dangling")).expect("a symbolic link");
    fs::hard_link(path(b"dangling"), path(b"sub/dangling again")).expect("a link");
}

fn make_attributes(path: &impl Fn(&[u8]) -> PathBuf) {
    for (name, uid, gid) in [(&b"file-1"[..], 1000, 1001), (b"dangling", 7, 8), (b"sub", 12, 13)] {
        lchown(path(name), Some(uid), Some(gid)).expect("an owner");
    }
    for (name, mode) in
        [(&b"file-1"[..], 0o6755), (b"sticky", 0o3777), (b"file-0", 0), (b"empty", 0o500)]
    {
        fs::set_permissions(path(name), Permissions::from_mode(mode)).expect("a mode");
    }
    set_xattr(&path(b"file-511"), "user.small", b"");
    set_xattr(&path(b"file-70000"), "user.large", &noise(2000));
    set_xattr(&path(b"file-0"), "trusted.secret", b"\0\xff");
    set_xattr(&path(b"dangling"), "trusted.of a link", b"1");
    set_xattr(&path(b"sub"), "user.of a directory", b"2");
    set_xattr(&path(b"file-4096"), "system.posix_acl_access", &acl(77));
    set_xattr(&path(b"sub/deeper"), "system.posix_acl_default", &acl(78));
    set_times(&path(b"file-1"), (-5_000_000_000 / 3, 7), (-1, 999_999_999));
    set_times(&path(b"dangling"), (3, 4), (4_000_000_000, 5));
}

/// Returns what is seen of all files below a directory, by path.
pub fn see(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut seen, mut firsts) = (BTreeMap::new(), BTreeMap::new());
    see_below(top, Path::new(""), &mut seen, &mut firsts);
    seen
}

fn see_below(
    top: &Path,
    below: &Path,
    seen: &mut BTreeMap<PathBuf, Seen>,
    firsts: &mut BTreeMap<u64, PathBuf>,
) {
    let path = top.join(below);
    let stat = path.symlink_metadata().expect("attributes");
    if stat.is_dir() {
        let mut names = Vec::from_iter(
            path.read_dir().expect("a directory").map(|entry| entry.expect("an entry").file_name()),
        );
        names.sort();
        names.iter().for_each(|name| see_below(top, &below.join(name), seen, firsts));
    }
    let first = firsts.entry(stat.ino()).or_insert_with(|| below.into()).clone();
    let is_plain = !stat.is_dir() && !stat.is_symlink();
    let contents = stat.is_file().then(|| contents_of(&path));
    let facts = Seen {
        stat: (stat.mode(), stat.uid(), stat.gid(), stat.rdev()),
        mtime: (stat.mtime(), stat.mtime_nsec()),
        atime: is_plain.then(|| (stat.atime(), stat.atime_nsec())),
        first,
        size: if stat.is_dir() { 0 } else { stat.len() },
        target: stat.is_symlink().then(|| fs::read_link(&path).expect("a target")),
        xattrs: xattrs_of(&path),
        contents,
        is_sparse: stat.is_file() && stat.len() > 1 << 20 && stat.blocks() * 512 < stat.len() / 2,
    };
    seen.insert(below.into(), facts);
}

/// Returns a hash of what a file has, without changing its time of access.
fn contents_of(path: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::NOATIME;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).expect("a file"));
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut bytes).expect("contents");
    canopy_store::hash_of(&bytes)
}

fn xattrs_of(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut names, mut value) = (vec![0; 65_536], vec![0; 65_536]);
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("attributes");
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let with_value = names.map(|name| {
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).expect("an attribute");
        (name.to_vec(), value[..length].to_vec())
    });
    with_value.collect()
}
