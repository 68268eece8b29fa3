//! What the index shows a user is what the kernel shows that user: random trees, random
//! credentials, and find(1) and du(1) as the oracle, run with the same credentials. 672 cases, and
//! 2,016 with `CANOPY_LONG=1`. Needs root.

use crate::common;

use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use rand::RngExt;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FORMAT: &str = "%p|%P|%f|%h|%d|%y|%s|%b|%k|%m|%M|%u|%U|%g|%G|%n|%i|%D|%l|%T@|%C@|%A@|%S\\0";

#[test]
fn users_see_what_the_kernel_shows_them_1() {
    cases(0..84);
}

#[test]
fn users_see_what_the_kernel_shows_them_2() {
    cases(84..168);
}

#[test]
fn users_see_what_the_kernel_shows_them_3() {
    cases(168..252);
}

/// Eight users on each tree.
fn cases(seeds: std::ops::Range<u64>) {
    let mut place = Fixture::new();
    // CANOPY_SEED=46 repeats one tree alone, and keeps it for a look at what failed.
    let only: Option<u64> = std::env::var("CANOPY_SEED").ok().map(|seed| seed.parse().unwrap());
    place.dir.disable_cleanup(only.is_some());
    let seeds = seeds.filter(|&seed| only.is_none_or(|only| seed == only));
    for seed in seeds.take(rounds(28, 84)) {
        let mut random = seeded(seed);
        let tree = place.path(&format!("tree{seed}"));
        let index = place.path(&format!("index{seed}"));
        // Which directory a hard link's space is shown at depends on the order of the walk: where
        // lines of single directories are compared, there are none.
        let hard_links = seed % 2 == 0;
        random_tree(&tree, &mut random, hard_links);
        let paths = all_paths(&tree);
        random_xattrs(&paths, &mut random);
        place.index(&index, &tree);
        nobody_else_can_write(&index);
        for _ in 0..8 {
            let user = User::random(&mut random);
            let case = Case { place: &place, index: &index, user: &user, seed };
            case.compare_find(&tree);
            case.compare_xattrs(&tree);
            case.compare_acls(&tree);
            // Also from paths that nothing above them shows: those that one has to know.
            for _ in 0..2 {
                let start = &paths[random.random_range(0..paths.len())];
                case.compare_find(start);
                case.compare_xattrs(start);
                case.compare_du(start, &["-s"]);
            }
            case.compare_du(&tree, &["-s"]);
            case.compare_du(&tree, &["-s", "--apparent-size"]);
            if hard_links {
                case.compare_du(&tree, &["-s", "--inodes"]);
            } else {
                case.compare_du(&tree, &["-a"]);
                case.compare_du(&tree, &["-c", "-h", "-d1", "--apparent-size"]);
            }
        }
        if only.is_none() {
            std::fs::remove_dir_all(&tree).unwrap();
            std::fs::remove_dir_all(&index).unwrap();
        }
    }
}

struct Case<'a> {
    place: &'a Fixture,
    index: &'a Path,
    user: &'a User,
    seed: u64,
}

impl Case<'_> {
    fn canopy(&self, arguments: &[&OsStr]) -> Vec<u8> {
        let mut all = vec![OsStr::new("--index"), self.index.as_os_str()];
        all.extend(arguments);
        let output = self.user.run(self.place.canopy.as_os_str(), &all);
        let errors = String::from_utf8_lossy(&output.stderr);
        // What the user cannot look up or list is the one fault there may be.
        let known = ["or not for you to see", "Permission denied"];
        let fine = output.status.success() || known.iter().any(|known| errors.contains(known));
        assert!(fine, "seed {} {:?}: {errors}", self.seed, self.user);
        output.stdout
    }

    /// Compares find from a start.
    fn compare_find(&self, start: &Path) {
        let arguments = ["find".as_ref(), start.as_os_str(), "-printf".as_ref(), FORMAT.as_ref()];
        let expected = self.user.run("find".as_ref(), &arguments[1..]).stdout;
        let shown = self.canopy(&arguments);
        let what = format!("seed {} {:?} find {start:?}", self.seed, self.user);
        assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
    }

    /// Compares what getfattr(1) shows of all entries below a start with tests of find. Values that
    /// the user cannot read must not be found.
    fn compare_xattrs(&self, start: &Path) {
        let list = self.user.run("find".as_ref(), &[start.as_os_str(), "-print0".as_ref()]).stdout;
        let paths: Vec<&OsStr> = list
            .split(|&byte| byte == 0)
            .filter(|path| !path.is_empty())
            .map(OsStr::from_bytes)
            .collect();
        let mut named = Vec::new();
        let mut valued = Vec::new();
        if !paths.is_empty() {
            let mut arguments: Vec<&OsStr> =
                ["-h", "--absolute-names", "-m", "-", "-d", "-e", "hex", "--"]
                    .map(OsStr::new)
                    .to_vec();
            arguments.extend(&paths);
            let output = self.user.run("getfattr".as_ref(), &arguments);
            valued = attributes(&output.stdout);
            arguments
                .retain(|argument| *argument != "-d" && *argument != "-e" && *argument != "hex");
            named = attributes(&self.user.run("getfattr".as_ref(), &arguments).stdout);
        }
        // Pattern, whether it asks for values, and what a line of getfattr has after the path.
        let tests: [(&str, bool, &dyn Fn(&str) -> bool); 8] = [
            ("user.a", false, &|line| line == "user.a"),
            ("user.b,c[\\\\]d", false, &|line| line == "user.b,c\\d"),
            ("trusted.*", false, &|line| line == "trusted.t"),
            ("system.posix_acl*", false, &|line| line.starts_with("system.posix_acl")),
            ("security.*=plain", true, &|line| line == "security.canopy=0x706c61696e"),
            ("user.a=pl?in", true, &|line| line == "user.a=0x706c61696e"),
            ("user.a=", true, &|line| line == "user.a=0x"),
            ("trusted.t=*", true, &|line| line.starts_with("trusted.t=")),
        ];
        let mut arguments: Vec<String> = Vec::new();
        let mut expected = Vec::new();
        for (number, (pattern, asks_value, hits)) in tests.iter().enumerate() {
            let print = format!("{number}|%p\\0");
            arguments.extend(
                ["(", "-xattr", pattern, "-printf", &print, "-o", "-true", ")"].map(str::to_owned),
            );
            let among = if *asks_value { &valued } else { &named };
            let lines = among.iter().filter_map(|line| line.split_once('|'));
            expected.extend(
                lines.filter(|(_, rest)| hits(rest)).map(|(path, _)| format!("{number}|{path}")),
            );
        }
        expected.sort();
        let mut all: Vec<&OsStr> = vec!["find".as_ref(), start.as_os_str()];
        all.extend(arguments.iter().map(OsStr::new));
        let what = format!("seed {} {:?} {start:?} -xattr", self.seed, self.user);
        assert_same(&sorted(&self.canopy(&all), 0), &expected, &what);
    }

    /// Compares what getfacl(1) shows of all entries of the tree but links, which it follows, with
    /// the table of ACLs.
    fn compare_acls(&self, tree: &Path) {
        let find =
            [tree.as_os_str(), "!".as_ref(), "-type".as_ref(), "l".as_ref(), "-print0".as_ref()];
        let list = self.user.run("find".as_ref(), &find).stdout;
        let mut arguments = ["-n", "-s", "-p", "--"].map(OsStr::new).to_vec();
        arguments
            .extend(list.split(|&byte| byte == 0).filter(|p| !p.is_empty()).map(OsStr::from_bytes));
        let mut expected = Vec::new();
        if arguments.len() > 4 {
            let output = self.user.run("getfacl".as_ref(), &arguments).stdout;
            let lines: Vec<&[u8]> = output.split(|&byte| byte == b'\n').collect();
            let files = lines.chunk_by(|_, next| !next.starts_with(b"# file: "));
            expected
                .extend(files.filter(|file| file[0].starts_with(b"# file: ")).flat_map(acl_lines));
        }
        expected.sort();
        let sql = "SELECT path, kind, tag, id, permissions FROM acls";
        let shown = self.canopy(&["sql", "--format", "ndjson", sql].map(OsStr::new));
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let id = row["id"].as_u64().map_or(String::new(), |id| id.to_string());
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            format!(
                "{}|{}|{}|{id}|{}",
                text("path"),
                text("kind"),
                text("tag"),
                text("permissions")
            )
        };
        let mut shown: Vec<String> = String::from_utf8(shown).unwrap().lines().map(row).collect();
        shown.sort();
        assert_same(&shown, &expected, &format!("seed {} {:?} getfacl", self.seed, self.user));
    }

    fn compare_du(&self, start: &Path, options: &[&str]) {
        let mut arguments: Vec<&OsStr> = vec!["du".as_ref(), "-0".as_ref()];
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(start.as_os_str());
        let expected = self.user.run("du".as_ref(), &arguments[1..]).stdout;
        let shown = self.canopy(&arguments);
        let what = format!("seed {} {:?} du {options:?}", self.seed, self.user);
        assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
    }
}

/// What getfattr printed, as `path|name` or `path|name=value`, with the path as `sorted` shows it.
pub fn attributes(output: &[u8]) -> Vec<String> {
    let mut path = String::new();
    let mut found = Vec::new();
    for line in output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        match line.strip_prefix(b"# file: ") {
            Some(quoted) => path = unquoted(quoted).escape_ascii().to_string(),
            None => {
                let (key, value) = match line.iter().position(|&byte| byte == b'=') {
                    Some(at) => line.split_at(at),
                    None => (line, &b""[..]),
                };
                let [key, value] =
                    [unquoted(key), value.to_vec()].map(|t| String::from_utf8(t).unwrap());
                found.push(format!("{path}|{key}{value}"));
            }
        }
    }
    found
}

/// What getfacl printed of one file: `path|kind|tag|id|permissions`, with the path escaped. Access
/// rights that the mode tells alone are no ACL.
fn acl_lines(file: &[&[u8]]) -> Vec<String> {
    let Some((first, lines)) = file.split_first() else { return Vec::new() };
    let path =
        canopy_model::escape(&unquoted(first.strip_prefix(b"# file: ").unwrap())).into_owned();
    let has_access = lines.iter().any(|line| line.starts_with(b"mask:"));
    let entry = |line: &&[u8]| {
        let line = std::str::from_utf8(line).unwrap();
        let line = line.split(['\t', ' ', '#']).next().filter(|line| !line.is_empty())?;
        let (kind, entry) =
            line.strip_prefix("default:").map_or(("access", line), |rest| ("default", rest));
        let parts: Vec<&str> = entry.split(':').collect();
        let tag = match (parts[0], parts[1]) {
            ("user", "") => "owner",
            ("group", "") => "owning_group",
            (tag, _) => tag,
        };
        (kind == "default" || has_access)
            .then(|| format!("{path}|{kind}|{tag}|{}|{}", parts[1], parts[2]))
    };
    lines.iter().filter_map(entry).collect()
}

/// Bytes that getfattr and getfacl show as a backslash and three octal digits, or two backslashes.
fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'\\' && after.first() == Some(&b'\\') {
            bytes.push(byte);
            rest = &after[1..];
        } else if byte == b'\\' && after.len() >= 3 {
            bytes.push(
                after[..3].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'))
                    as u8,
            );
            rest = &after[3..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    bytes
}

/// Everything in the index belongs to root and has no write bit for anybody else (with an ACL, the
/// group's bits are the mask, which bounds every named entry), and users cannot put a lock on it.
fn nobody_else_can_write(directory: &Path) {
    let metadata = directory.symlink_metadata().unwrap();
    assert_eq!(metadata.uid(), 0, "{directory:?}");
    assert_eq!(metadata.mode() & 0o022, 0, "{directory:?}");
    if metadata.is_dir() {
        for entry in std::fs::read_dir(directory).unwrap() {
            nobody_else_can_write(&entry.unwrap().path());
        }
    }
}
