//! The trees that commands are compared on, and the comparison.

use crate::common::shells::{self, Variables};
use crate::common::{Fixture, User};
use canopy_model::{Acl, AclEntry, AclTag};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

/// A place with two indexed trees.
pub struct Site {
    pub place: Fixture,
    pub index: PathBuf,
    /// With every kind of entry, without hard links.
    pub tree: PathBuf,
    /// With hard links in and across directories.
    pub linked: PathBuf,
}

/// Where links of a tree and their inodes are.
const NAMES: [&[u8]; 36] = [
    b"plain",
    b"a b",
    b"new\nline",
    b"-dash",
    b"--all",
    b"\xff\xfe",
    "ümlaut".as_bytes(),
    "日本".as_bytes(),
    b"*?[x]",
    b"back\\slash",
    b"\x1b[31mred\x1b[0m",
    b"\x07bell\ttab\r",
    b"it's",
    b"it's \"both\" $x",
    b".hidden",
    b"archive.tar.gz",
    b"picture.PNG",
    b"#hash",
    b"~tilde",
    b"a:b",
    b"x=y|z@*>",
    b"{",
    "e\u{301} combined".as_bytes(),
    "\u{200b}no width".as_bytes(),
    "\u{a0}no break".as_bytes(),
    "soft\u{ad}hyphen".as_bytes(),
    "\u{1f600}smile".as_bytes(),
    "\u{202e}backwards".as_bytes(),
    "two\u{2028}lines".as_bytes(),
    "\u{85}control".as_bytes(),
    b"cut off \xe2\x82",
    b"a\xc3(",
    b"del\x7f",
    b"\x80\x9f",
    "\u{fc}'q".as_bytes(),
    b"50% ^caret;!bang,\"",
];

impl Site {
    pub fn new() -> Self {
        let place = Fixture::new();
        let (tree, linked) = (place.path("tree"), place.path("linked"));
        every_kind(&tree);
        hard_links(&linked);
        let index = place.path("index");
        place.index(&index, &tree);
        place.index(&index, &linked);
        Site { place, index, tree, linked }
    }

    /// Runs the command and the tool of that name in a directory as a user (or root), with more
    /// variables.
    pub fn run(
        &self,
        who: Option<&User>,
        dir: &Path,
        tool: &str,
        words: &[OsString],
        vars: &[(&str, &str)],
    ) -> [Output; 2] {
        let index = [OsStr::new("--index"), self.index.as_os_str(), tool.as_ref()];
        let canopy = [&[self.place.canopy.as_os_str()][..], &index].concat();
        [vec![OsStr::new(tool)], canopy].map(|program| {
            let all = program.into_iter().chain(words.iter().map(OsString::as_os_str));
            let mut set = vec![("TZ", "UTC"), ("LC_ALL", "C.UTF-8")];
            set.extend(vars);
            shells::run(who, Variables::Path, dir, &set, all)
        })
    }

    /// Asserts that both print nothing and fail with the same words and exit code, but for words
    /// that ours takes as later versions do.
    pub fn both_refuse(&self, tool: &str, line: &str, vars: &[(&str, &str)]) {
        let words: Vec<OsString> = words(line).into_iter().map(Into::into).collect();
        for locale in ["C", "C.UTF-8"] {
            let vars = [&[("LC_ALL", locale)], vars].concat();
            let [expected, shown] = self.run(None, &self.tree, tool, &words, &vars);
            assert!(expected.stdout.is_empty() && shown.stdout.is_empty(), "{tool} {line}");
            let own = ["  - 'mtime', ", "  - ‘mtime’, "];
            let lines = |said: &[u8]| {
                let said = String::from_utf8(said.to_vec()).unwrap();
                let said = said.replace(&format!("{tool}: "), "canopy: ");
                let said = said.replace(&format!("Try '{tool} "), &format!("Try 'canopy {tool} "));
                let lines =
                    said.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
                let sorted = |line: &str| match line.split_once("possibilities: ") {
                    Some((before, names)) => {
                        let mut names: Vec<&str> = names.split(' ').collect();
                        names.sort_unstable();
                        format!("{before}{}", names.join(" "))
                    }
                    None => line.to_owned(),
                };
                lines.map(sorted).collect::<Vec<_>>()
            };
            assert_eq!(lines(&shown.stderr), lines(&expected.stderr), "{tool} {line} {vars:?}");
            assert_eq!(shown.status.code(), expected.status.code(), "{tool} {line} {vars:?}");
            assert!(!shown.status.success(), "{tool} {line}");
        }
    }

    /// Asserts that both print the same, and say the same on standard error.
    pub fn both_say(&self, tool: &str, line: &str, vars: &[(&str, &str)]) {
        let words: Vec<OsString> = words(line).into_iter().map(Into::into).collect();
        let [expected, shown] = self.run(None, &self.tree, tool, &words, vars);
        let said = String::from_utf8(expected.stderr).unwrap();
        let said = said.replace(&format!("{tool}: "), "canopy: ");
        assert_eq!(String::from_utf8(shown.stderr).unwrap(), said, "{tool} {line} {vars:?}");
        let lines = |output: &[u8]| crate::common::sorted(output, b'\n');
        assert_eq!(lines(&shown.stdout), lines(&expected.stdout), "{tool} {line} {vars:?}");
        assert_eq!(shown.status.code(), expected.status.code(), "{tool} {line} {vars:?}");
    }

    /// Asserts that both print the same, in any order of lines if that is none of the command's
    /// business.
    pub fn compare(&self, case: &Case<'_>) {
        let words: Vec<OsString> = case.words.iter().map(OsString::from).collect();
        let [expected, shown] = self.run(case.user, case.dir, case.tool, &words, case.vars);
        let errors = String::from_utf8_lossy(&shown.stderr);
        let lines = |output: &[u8]| {
            let mut lines: Vec<String> = output
                .split(|byte| *byte == case.end)
                .map(|line| line.escape_ascii().to_string())
                .collect();
            if case.unordered {
                lines.sort();
            }
            lines
        };
        let what = format!(
            "{} {:?} {:?} as {:?} in {:?}: {errors}",
            case.tool, case.words, case.vars, case.user, case.dir
        );
        let (shown_lines, expected_lines) = (lines(&shown.stdout), lines(&expected.stdout));
        if shown_lines != expected_lines {
            let differ = shown_lines.iter().zip(&expected_lines).find(|(a, b)| a != b);
            panic!(
                "{what}\nfirst difference (canopy, {}): {differ:#?}\ncanopy: \
                 {shown_lines:#?}\nexpected: {expected_lines:#?}",
                case.tool
            );
        }
        let told = String::from_utf8_lossy(&expected.stderr);
        let alike = messages(case.tool, &errors) == messages(case.tool, &told);
        let own = OWN_WORDS.iter().any(|own| errors.contains(own));
        // Sums that are kept ready do not tell what was not seen.
        let unseen = case.tool == "du" && told.contains("cannot read directory");
        let ready = unseen && !errors.contains("cannot read directory");
        assert!(alike || own || ready, "{what}\n{}: {told}", case.tool);
        if !ready {
            assert_eq!(
                shown.status.code(),
                expected.status.code(),
                "{what}\n{}: {told}",
                case.tool
            );
        }
        assert!(
            !told.contains("invalid option") && !told.contains("unrecognized option"),
            "{what}: {told}"
        );
    }
}

/// Messages where an index does not know what GNU's tools print.
pub const OWN_WORDS: [&str; 4] =
    ["or not for you to see", "this link leads out", "no index covers", "it is there now"];

/// Returns the messages of a tool, or of the command in its place, without the name, in order of
/// their words.
pub fn messages(tool: &str, said: &str) -> Vec<String> {
    // du does not say why it cannot look at broken links.
    let why = if tool == "du" { ": No such file or directory" } else { "" };
    let name = format!("{tool}: ");
    let message = |line: &str| {
        let line = line.strip_prefix(&name).or_else(|| line.strip_prefix("canopy: "));
        line.unwrap_or_default().replace(why, "")
    };
    let mut lines: Vec<String> = said.lines().map(message).collect();
    lines.sort();
    lines
}

/// A command line.
pub struct Case<'a> {
    pub tool: &'a str,
    pub words: Vec<String>,
    pub dir: &'a Path,
    pub user: Option<&'a User>,
    pub vars: &'a [(&'a str, &'a str)],
    /// The end of lines.
    pub end: u8,
    /// Whether the order of lines is that of the walk.
    pub unordered: bool,
}

/// Words of a line, where `\s` stands for a space in one.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.replace("\\s", " ")).collect()
}

/// Some of the options, in any order.
pub fn some_of(options: &[&str], most: usize, random: &mut StdRng) -> Vec<String> {
    let count = random.random_range(0..=most);
    (0..count).flat_map(|_| words(options[random.random_range(0..options.len())])).collect()
}

/// Users who see different parts of the trees.
pub fn users() -> [Option<User>; 3] {
    let user = |uid, gid| Some(User { uid, gid, groups: Vec::new() });
    [None, user(2001, 3001), user(2002, 3002)]
}

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn every_kind(root: &Path) {
    fs::create_dir(root).unwrap();
    let mut dirs = vec![root.to_owned()];
    for dir in [
        "sub",
        "sub/deeper",
        "sub/deeper/deepest",
        "empty",
        "private",
        "sticky",
        "open dir",
        ".dot",
    ] {
        let path = root.join(dir);
        fs::create_dir(&path).unwrap();
        dirs.push(path);
    }
    for (number, name) in NAMES.iter().enumerate() {
        let name = OsStr::from_bytes(name);
        fs::write(root.join(name), vec![b'x'; number * number * 311]).unwrap();
        if number % 3 == 0 {
            fs::write(root.join("sub").join(name), vec![b'y'; number * 100]).unwrap();
        }
    }
    fs::write(root.join("sub/deeper").join(OsString::from_vec(vec![b'n'; 255])), "long").unwrap();
    fs::write(root.join("sub/deeper/deepest/file.txt"), [0; 70_000]).unwrap();
    fs::write(root.join("private/secret"), [0; 9000]).unwrap();
    fs::File::create(root.join("sparse")).unwrap().set_len(5 << 30).unwrap();
    for number in 0..30 {
        fs::write(root.join(format!("open dir/file{number:02}")), vec![0; number * 1024]).unwrap();
    }
    for (link, target) in [
        ("to-dir", "sub"),
        ("to-file", "plain"),
        ("broken", "nowhere"),
        ("loop", "loop"),
        ("to-exec", "exec"),
        ("odd target", "a b"),
        ("up", "sub/../sub/deeper"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let abs = root.join("sub/deeper");
    symlink(&abs, root.join("absolute")).unwrap();
    let node = |name: &str, kind, device| {
        mknodat(CWD, root.join(name), kind, Mode::from(0o640), device).unwrap()
    };
    node("pipe", FileType::Fifo, 0);
    node("char", FileType::CharacterDevice, makedev(1, 3));
    node("block", FileType::BlockDevice, makedev(259, 1234));
    node("sub/char9", FileType::CharacterDevice, makedev(10, 200));
    std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    for (name, mode) in
        [("exec", 0o755), ("setuid", 0o4755), ("setgid", 0o2755), ("odd-bits", 0o7000), ("none", 0)]
    {
        fs::write(root.join(name), "").unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    lchown(root.join("exec"), Some(2001), Some(3001)).unwrap();
    lchown(root.join("to-dir"), Some(123_456), Some(3002)).unwrap();
    lchown(root.join("private"), Some(2001), Some(3001)).unwrap();
    for (dir, mode) in [
        ("private", 0o700),
        ("sticky", 0o1777),
        ("open dir", 0o777),
        ("empty", 0o1755),
        (".dot", 0o2750),
    ] {
        fs::set_permissions(root.join(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    // ACLs where stat is not asked, which names them.
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let entries = [
        (AclTag::Owner, 7),
        (AclTag::User(2002), 5),
        (AclTag::OwningGroup, 5),
        (AclTag::Mask, 5),
        (AclTag::Other, 5),
    ];
    let acl = Acl { entries: entries.map(|(tag, permissions)| entry(tag, permissions)).to_vec() }
        .encode();
    for (path, name) in
        [("sub/plain", Acl::XATTR_NAME), ("sub/deeper/deepest", "system.posix_acl_default")]
    {
        rustix::fs::setxattr(root.join(path), name, &acl, rustix::fs::XattrFlags::empty()).unwrap();
    }
    set_times(root);
}

fn hard_links(root: &Path) {
    fs::create_dir(root).unwrap();
    for dir in ["a", "a/b", "c", "c/d"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for (number, first) in ["a/one", "a/b/two", "c/three", "top"].iter().enumerate() {
        fs::write(root.join(first), vec![b'z'; 5000 * (number + 1)]).unwrap();
        fs::hard_link(root.join(first), root.join(format!("c/d/link{number}"))).unwrap();
        fs::hard_link(root.join(first), root.join(format!("{first}-again"))).unwrap();
    }
    fs::write(root.join("c/alone"), [1; 100]).unwrap();
    symlink("a", root.join("to-a")).unwrap();
    set_times(root);
}

/// Gives all entries times that no live command changes, some of them in the last half year and one
/// in the future.
fn set_times(root: &Path) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
        as i64;
    for (number, path) in crate::common::all_paths(root).iter().enumerate().rev() {
        let number = number as i64;
        let modified = match number % 5 {
            0 => now - number * 86_400 * 3,
            1 => now - number * 86_400 * 100,
            2 => 951_782_400 + number * 86_400,
            3 => -86_400 * number,
            _ => now + 1_000_000,
        };
        // Access times in the future stay as they are.
        let time = |tv_sec| Timespec { tv_sec, tv_nsec: 123_456_789 - number };
        let times = Timestamps {
            last_access: time(4_000_000_000 - number * 1000),
            last_modification: time(modified),
        };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}
