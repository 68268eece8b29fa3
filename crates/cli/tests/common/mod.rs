//! Shared parts of the tests of the command: a place that every user can reach, random trees, and
//! running commands as other users. All of it needs root.

#![allow(dead_code, missing_docs)]

pub mod batch;
pub mod expressions;
pub mod length;
mod programs;
pub mod requirements;
pub mod shells;

use canopy_model::{Acl, AclEntry, AclTag};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

pub const UIDS: [u32; 5] = [2001, 2002, 2003, 2004, 0];
pub const GIDS: [u32; 5] = [3001, 3002, 3003, 3004, 0];

/// The path of a command that was built with the tests, which lie in a directory beside it.
pub fn built(command: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join(command);
    assert!(path.exists(), "build all commands first: {} is missing", path.display());
    path
}

/// A directory that every user can search, with the programs, which every user can run.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub canopy: PathBuf,
}

impl Fixture {
    pub fn new() -> Self {
        Fixture::below("/tmp")
    }

    /// A place on the disk of the machine: `scripts/test` has `/tmp` in memory.
    pub fn on_disk() -> Self {
        Fixture::below("/var/tmp")
    }

    fn below(parent: &str) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests switch users and need root");
        let dir = tempfile::tempdir_in(parent).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        programs::link_into(dir.path());
        let canopy = dir.path().join("canopy");
        Fixture { dir, canopy }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the command as root.
    pub fn canopy(&self, index: &Path, arguments: &[&OsStr]) -> Output {
        Command::new(&self.canopy).arg("--index").arg(index).args(arguments).output().unwrap()
    }

    /// Mounts a small file system at a path in this place.
    pub fn small_disk(&self, name: &str, size: &str) -> SmallDisk {
        SmallDisk::new(self.path(name), size)
    }

    /// Indexes a tree and expects success.
    pub fn index(&self, index: &Path, tree: &Path) {
        let output = self.canopy(index, &["index".as_ref(), tree.as_os_str()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A small file system of its own, unmounted when it goes away.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    fn new(at: PathBuf, size: &str) -> Self {
        fs::create_dir(&at).unwrap();
        let options = format!("size={size},mode=755");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(&at)
            .status()
            .unwrap();
        assert!(mounted.success(), "mounting a tmpfs needs root");
        SmallDisk(at)
    }

    pub fn resize(&self, bytes: u64) {
        let options = format!("remount,size={bytes}");
        let resized = Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap();
        assert!(resized.success());
    }

    pub fn used_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A user with groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl User {
    pub fn random(random: &mut StdRng) -> Self {
        let groups = GIDS
            .iter()
            .filter(|_| random.random_bool(0.3))
            .copied()
            .filter(|&gid| gid != 0)
            .collect();
        // Now and then somebody whom no file names.
        let uid = if random.random_bool(0.1) { 2999 } else { UIDS[random.random_range(0..4)] };
        User { uid, gid: GIDS[random.random_range(0..4)], groups }
    }

    /// The command that runs another as this user.
    pub fn command(&self) -> Command {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &self.uid.to_string(), "--regid", &self.gid.to_string()]);
        if groups.is_empty() {
            command.arg("--clear-groups");
        } else {
            command.args(["--groups", &groups.join(",")]);
        }
        command
    }

    /// Runs a program as this user, in a directory that all can reach.
    pub fn run(&self, program: &OsStr, arguments: &[&OsStr]) -> Output {
        let words = [program].into_iter().chain(arguments.iter().copied());
        shells::run(Some(self), shells::Variables::Inherited, Path::new("/"), &[], words)
    }
}

/// The command that runs a program, as root or as somebody else.
pub fn command_as(user: Option<&User>, program: &OsStr) -> Command {
    match user {
        None => Command::new(program),
        Some(user) => {
            let mut command = user.command();
            command.arg(program);
            command
        }
    }
}

/// Runs a line of the shell on a terminal of its own; gives what that shows and the exit code.
pub fn on_terminal(line: &str, locale: &str) -> (Vec<u8>, Option<i32>) {
    let mut command = Command::new("script");
    command.args(["-qec", line, "/dev/null"]).env("SHELL", "/bin/sh").env("LC_ALL", locale);
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    (output.stdout, output.status.code())
}

/// Asserts that paths that end with NULs have directories behind what is in them.
pub fn assert_contents_first(output: &[u8]) {
    let paths: Vec<&[u8]> =
        output.split(|&byte| byte == 0).filter(|path| !path.is_empty()).collect();
    assert!(paths.len() > 10);
    for (at, path) in paths.iter().enumerate() {
        let below = [path, &b"/"[..]].concat();
        assert!(!paths[at..].iter().any(|later| later.starts_with(&below)));
    }
}

/// Makes a random tree at `root`. Deterministic but for times and inode numbers.
pub fn random_tree(root: &Path, random: &mut StdRng, hard_links: bool) {
    fs::create_dir(root).unwrap();
    let mut dirs = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for number in 0..random.random_range(0..40) {
        let parent = dirs[random.random_range(0..dirs.len())].clone();
        let path = parent.join(odd_name(random, number));
        match random.random_range(0..10) {
            0..4 => {
                fs::create_dir(&path).unwrap();
                dirs.push(path);
                continue;
            }
            4 => symlink(OsString::from_vec(vec![b'.', b'/', 0xfe, b'x']), &path).unwrap(),
            5 => {
                nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap()
            }
            6 if hard_links && !files.is_empty() => {
                fs::hard_link(&files[random.random_range(0..files.len())], &path).unwrap();
                continue;
            }
            7 => {
                let file = fs::File::create(&path).unwrap();
                file.set_len(random.random_range(0..1 << 22)).unwrap();
            }
            _ => fs::write(&path, vec![b'x'; random.random_range(0..20_000)]).unwrap(),
        }
        files.push(path);
    }
    for path in files.iter().chain(&dirs) {
        adorn(path, random);
    }
    // Times in the future keep the live commands from changing access times.
    let later = SystemTime::now() + Duration::from_secs(3600);
    for path in dirs.iter().rev() {
        let times = fs::FileTimes::new()
            .set_accessed(later)
            .set_modified(SystemTime::now() - random_age(random));
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
}

fn random_age(random: &mut StdRng) -> Duration {
    Duration::new(random.random_range(0..100_000_000), random.random_range(0..1_000_000_000))
}

/// A random tree with a file, links of all kinds, and nothing that all may not list.
pub fn tree_for_all(root: &Path, random: &mut StdRng) {
    random_tree(root, random, true);
    for path in all_paths(root).into_iter().filter(|path| path.symlink_metadata().unwrap().is_dir())
    {
        rustix::fs::removexattr(&path, "system.posix_acl_access").ok();
        // None is sticky: there, fs.protected_symlinks keeps users from following each other's
        // links.
        let mode = [0o755, 0o777, 0o2755, 0o775][random.random_range(0..4)];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let at = |name: &str| root.join(name);
    fs::create_dir(at("linkdir")).unwrap();
    fs::write(at("file"), "x").unwrap();
    fs::write(at("linkdir/inner"), "x").unwrap();
    fs::hard_link(at("file"), at("linkdir/same")).unwrap();
    let absolute = at("linkdir");
    for (name, target) in [
        ("link1", "file"),
        ("link2", "linkdir"),
        ("link3", "link1"),
        ("link4", "nothing"),
        ("link5", "link5"),
        ("link6", "linkdir/../file"),
        ("link7", "link2/inner"),
        ("link8", "file/"),
        ("link9", "file/x"),
        ("link10", "linkdir/."),
        ("link11", "./linkdir/inner"),
        ("link12", absolute.to_str().unwrap()),
        ("linkdir/up", ".."),
        ("linkdir/FILE", "../file"),
    ] {
        symlink(target, at(name)).unwrap();
        let at_times = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 5 };
        let times = rustix::fs::Timestamps {
            last_access: at_times(4_000_000_000),
            last_modification: at_times(1_000_000_000),
        };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            at(name),
            &times,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
    }
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    for path in all_paths(root).into_iter().filter(|path| path.symlink_metadata().unwrap().is_dir())
    {
        let times = fs::FileTimes::new().set_accessed(later);
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
}

/// Gives a file or directory a random owner, mode and ACL.
pub fn adorn(path: &Path, random: &mut StdRng) {
    let is_dir = path.symlink_metadata().unwrap().is_dir();
    let (uid, gid) = (UIDS[random.random_range(0..5)], GIDS[random.random_range(0..5)]);
    if path.symlink_metadata().unwrap().is_symlink() {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
        // Reading where it points must not change its access time: that is kept in the future.
        let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 5 };
        let times = rustix::fs::Timestamps {
            last_access: at(4_000_000_000),
            last_modification: at(1_000_000_000),
        };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .unwrap();
        return;
    }
    chown(path, Some(uid), Some(gid)).unwrap();
    let common = [
        0o755, 0o755, 0o755, 0o750, 0o700, 0o711, 0o775, 0o1777, 0o2750, 0o705, 0o070, 0o444, 0o000,
    ];
    let mode = if random.random_bool(0.7) {
        common[random.random_range(0..common.len())]
    } else {
        random.random_range(0..0o10000)
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if random.random_bool(if is_dir { 0.3 } else { 0.1 }) {
        let acl = random_acl(random);
        rustix::fs::setxattr(path, Acl::XATTR_NAME, &acl.encode(), rustix::fs::XattrFlags::empty())
            .unwrap();
    }
}

/// Gives some of the entries of a tree extended attributes, those of root among them.
pub fn random_xattrs(paths: &[PathBuf], random: &mut StdRng) {
    let values: [&[u8]; 5] =
        [b"plain", b"", b"\x00\xff\xfe binary", "ümlaut\n,\\".as_bytes(), &[b'v'; 500]];
    for path in paths {
        if random.random_bool(0.7) {
            continue;
        }
        let file_type = path.symlink_metadata().unwrap().file_type();
        let user = file_type.is_dir() || file_type.is_file();
        for key in ["user.a", "user.b,c\\d", "trusted.t", "security.canopy"] {
            if random.random_bool(0.5) && (user || !key.starts_with("user.")) {
                let value = values[random.random_range(0..values.len())];
                rustix::fs::lsetxattr(path, key, value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
    }
}

/// All paths of a tree, its root first.
pub fn all_paths(root: &Path) -> Vec<PathBuf> {
    let output = Command::new("find").arg(root).arg("-print0").output().unwrap().stdout;
    let paths = output.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

pub fn random_acl(random: &mut StdRng) -> Acl {
    let mut bits = || {
        if random.random_bool(0.6) {
            [0, 5, 7, 5][random.random_range(0..4)]
        } else {
            random.random_range(0..8)
        }
    };
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let mut entries = vec![entry(AclTag::Owner, bits()), entry(AclTag::OwningGroup, bits())];
    entries.extend([entry(AclTag::Mask, bits()), entry(AclTag::Other, bits())]);
    let users: Vec<u16> = (0..4).map(|_| bits()).collect();
    let groups: Vec<u16> = (0..4).map(|_| bits()).collect();
    for at in 0..4 {
        if random.random_bool(0.4) {
            entries.push(entry(AclTag::User(UIDS[at]), users[at]));
        }
        if random.random_bool(0.4) {
            entries.push(entry(AclTag::Group(GIDS[at]), groups[at]));
        }
    }
    entries.sort_by_key(|entry| match entry.tag {
        AclTag::Owner => (0, 0),
        AclTag::User(id) => (1, id),
        AclTag::OwningGroup => (2, 0),
        AclTag::Group(id) => (3, id),
        AclTag::Mask => (4, 0),
        AclTag::Other => (5, 0),
    });
    Acl { entries }
}

pub fn odd_name(random: &mut StdRng, number: usize) -> OsString {
    let stems: [&[u8]; 14] = [
        b"a",
        b"data",
        b"a b",
        b"new\nline",
        b"-dash",
        b"\xff\xfe",
        "ü".as_bytes(),
        "\u{10FF90}".as_bytes(),
        b"*",
        b"back\\slash",
        b"a-",
        b"a.",
        b".hidden",
        b"\x1b[31m",
    ];
    let mut name = stems[random.random_range(0..stems.len())].to_vec();
    name.extend(number.to_string().bytes());
    if random.random_bool(0.02) {
        name.resize(255, b'n');
    }
    OsStr::from_bytes(&name).to_owned()
}

pub fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// Asserts that two sets of lines are equal, and shows where they differ.
pub fn assert_same(shown: &[String], expected: &[String], what: &str) {
    let (all_shown, all_expected): (BTreeSet<_>, BTreeSet<_>) =
        (shown.iter().collect(), expected.iter().collect());
    let (extra, missing) = (&all_shown - &all_expected, &all_expected - &all_shown);
    assert!(shown == expected, "{what}\nnot expected: {extra:#?}\nmissing: {missing:#?}");
}

/// Lines of an output, sorted, for comparing what comes in no certain order.
pub fn sorted(output: &[u8], end: u8) -> Vec<String> {
    let lines = output.split(|&byte| byte == end).filter(|line| !line.is_empty());
    let mut lines: Vec<String> = lines.map(|line| line.escape_ascii().to_string()).collect();
    lines.sort();
    lines
}
