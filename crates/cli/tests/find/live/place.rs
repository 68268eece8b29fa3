//! A tree with every kind of entry, and both commands run on it.

use crate::common::shells::{self, Variables};
use crate::common::{Fixture, User, assert_same, sorted};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

pub struct Trial {
    pub place: Fixture,
}

impl Trial {
    /// With an empty directory.
    pub fn empty() -> Self {
        let place = Fixture::new();
        fs::write(place.path("reference"), "").unwrap();
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400 * 400);
        fs::File::open(place.path("reference")).unwrap().set_modified(past).unwrap();
        Trial { place }
    }

    /// With a tree, which is indexed.
    pub fn new() -> Self {
        let trial = Trial::empty();
        make_tree(&trial.place.path("tree"));
        trial.place.index(&trial.place.path("index"), &trial.place.path("tree"));
        trial
    }

    pub fn words(line: &str) -> Vec<String> {
        let word = |word: &str| word.replace("REF", "reference").replace("TREE", "tree");
        line.split_whitespace().map(word).collect()
    }

    fn run(&self, user: Option<&User>, program: &OsStr, words: &[&OsStr]) -> Output {
        let all = [program].into_iter().chain(words.iter().copied());
        shells::run(user, Variables::Inherited, self.place.dir.path(), &[], all)
    }

    /// Runs our find.
    pub fn canopy(&self, user: Option<&User>, words: &[&str]) -> Output {
        let index = self.place.path("index");
        let first = [OsStr::new("--index"), index.as_os_str(), OsStr::new("find")];
        let words: Vec<&OsStr> = first.into_iter().chain(words.iter().map(OsStr::new)).collect();
        self.run(user, self.place.canopy.as_os_str(), &words)
    }

    /// Compares a live search with find(1): lines, messages and exit code.
    pub fn compare(&self, user: Option<&User>, before: &[&str], line: &str) {
        self.compare_with(&["--live"], user, before, line);
    }

    /// Compares a search of the index.
    pub fn compare_index(&self, user: Option<&User>, before: &[&str], line: &str) {
        self.compare_with(&[], user, before, line);
    }

    fn compare_with(&self, first: &[&str], user: Option<&User>, before: &[&str], line: &str) {
        let words = Self::words(line);
        let words: Vec<&str> =
            before.iter().copied().chain(words.iter().map(String::as_str)).collect();
        let expected = {
            let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            self.run(user, OsStr::new("find"), &words)
        };
        let all: Vec<&str> = first.iter().copied().chain(words.iter().copied()).collect();
        let shown = self.canopy(user, &all);
        let what = format!("{user:?} find {all:?}: {}", String::from_utf8_lossy(&shown.stderr));
        let end = if line.contains("print0") { 0 } else { b'\n' };
        let lines = |output: &Output| {
            let mut lines = sorted(&output.stdout, end);
            if line.contains("-ls") {
                // Columns of find(1) become wider with what it has met.
                let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
                lines = lines.iter().map(words).collect();
                lines.sort();
            }
            lines
        };
        assert_same(&lines(&shown), &lines(&expected), &what);
        assert_same(&sorted_errors(&shown), &sorted_errors(&expected), &what);
        assert_eq!(shown.status.code(), expected.status.code(), "{what}");
    }
}

/// Returns the sorted lines on standard error, without the name of the command.
fn sorted_errors(output: &Output) -> Vec<String> {
    let said = |line: String| {
        let said = line.split_once(": ").map_or(line.clone(), |(_, said)| said.to_owned());
        // Odd names are quoted otherwise, and count by what is wrong with them. Quotation marks are
        // not ASCII.
        let plain = said.replace("\\xe2\\x80\\x98", "").replace("\\xe2\\x80\\x99", "");
        match said.rsplit_once(": ") {
            Some((_, wrong)) if plain.contains(['?', '\\']) => wrong.to_owned(),
            _ => said,
        }
    };
    let mut said: Vec<String> = sorted(&output.stderr, b'\n').into_iter().map(said).collect();
    said.sort();
    said
}

#[expect(clippy::too_many_lines, reason = "a list of entries")]
fn make_tree(root: &Path) {
    let at = |name: &str| root.join(name);
    for directory in [
        "",
        "dir",
        "dir/deeper",
        "dir/empty",
        "closed",
        "closed/inner",
        "names",
        "through",
        "sticky",
    ] {
        fs::create_dir(at(directory)).unwrap();
    }
    for file in [
        "file",
        "dir/f",
        "dir/deeper/f2",
        "closed/file",
        "closed/inner/file",
        "names/file",
        "through/file",
    ] {
        fs::write(at(file), file.repeat(300)).unwrap();
    }
    fs::write(at("nothing"), "").unwrap();
    fs::File::create(at("sparse")).unwrap().set_len(1 << 20).unwrap();
    fs::hard_link(at("file"), at("dir/same")).unwrap();
    for (name, target) in [
        ("tofile", "file"),
        ("todir", "dir"),
        ("tolink", "tofile"),
        ("broken", "missing"),
        ("loop", "loop"),
        ("loop1", "loop2"),
        ("loop2", "loop1"),
        ("dir/up", ".."),
        ("dir/deeper/self", "."),
        ("dir/deeper/dirs", "../../dir/deeper"),
        ("nodir", "file/x"),
        ("slash", "file/"),
        ("toclosed", "closed"),
        ("intoclosed", "closed/file"),
        ("tothrough", "through/file"),
        ("tonames", "names/file"),
        ("tofifo", "fifo"),
    ] {
        symlink(target, at(name)).unwrap();
    }
    symlink(at("dir/deeper"), at("absolute")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    let device = |name: &str, kind, major, minor| {
        let dev = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), dev).unwrap();
    };
    device("character", FileType::CharacterDevice, 1, 3);
    device("block", FileType::BlockDevice, 7, 200);
    for name in
        [&b"new\nline"[..], b"\xff\xfe", b" blank ", b"-dash", b"*", b"back\\slash", &[b'n'; 255]]
    {
        fs::write(root.join("dir").join(OsStr::from_bytes(name)), "x").unwrap();
    }
    chown(at("dir/f"), Some(2001), Some(3001)).unwrap();
    chown(at("dir"), Some(2001), Some(3002)).unwrap();
    for (name, mode) in [
        ("closed", 0o700),
        ("names", 0o744),
        ("through", 0o711),
        ("sticky", 0o1777),
        ("dir/f", 0o4750),
        ("nothing", 0o666),
    ] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    settle(root);
}

/// Sets times of access to the future, so that no search changes them.
fn settle(root: &Path) {
    for path in crate::common::all_paths(root) {
        let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 5 };
        let times = rustix::fs::Timestamps {
            last_access: at(4_000_000_000),
            last_modification: at(1_000_000_000),
        };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// A tree of so many levels, each with a file and another directory, with paths longer than system
/// calls take.
pub fn deep_tree(root: &Path, levels: usize) {
    fs::create_dir(root).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut here = rustix::fs::open(root, flags, Mode::empty()).unwrap();
    let mode = Mode::from_raw_mode(0o755);
    for _ in 0..levels {
        for name in ["deeper", "side"] {
            rustix::fs::mkdirat(&here, name, mode).unwrap();
        }
        rustix::fs::openat(&here, "end", OFlags::CREATE | OFlags::WRONLY, mode).unwrap();
        here = rustix::fs::openat(&here, "deeper", flags, Mode::empty()).unwrap();
    }
}

/// The paths below a directory, sorted.
pub fn listed(root: &Path) -> Vec<String> {
    let arguments: [OsString; 3] = [root.into(), "-printf".into(), "%P|%y|%l\\n".into()];
    sorted(&Command::new("find").args(arguments).output().unwrap().stdout, b'\n')
}
