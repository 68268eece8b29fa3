//! The index shows a user the entries that the kernel shows that user. Trees and credentials are
//! random; find(1) and du(1) are the oracle, run with these credentials. 672 users of 84 trees take
//! turns with questions; with `CANOPY_LONG=1`, 2,016 users ask all. Needs root.

use crate::common;

use common::batch::{Line, Ran, run_all};
use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use rand::RngExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FORMAT: &str = "%p|%P|%f|%h|%d|%y|%s|%b|%k|%m|%M|%u|%U|%g|%G|%n|%i|%D|%l|%T@|%C@|%A@|%S\\0";

#[test]
fn users_see_what_the_kernel_shows_them_1() {
    // One of the three is not in memory.
    cases(Fixture::on_disk(), 0..84);
}

#[test]
fn users_see_what_the_kernel_shows_them_2() {
    cases(Fixture::new(), 84..168);
}

#[test]
fn users_see_what_the_kernel_shows_them_3() {
    cases(Fixture::new(), 168..252);
}

/// Eight users on each tree.
fn cases(mut place: Fixture, seeds: std::ops::Range<u64>) {
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
        for number in 0..8 {
            let user = User::random(&mut random);
            // Also from paths that nothing above them shows: those that one has to know.
            let starts = [(); 2].map(|()| paths[random.random_range(0..paths.len())].clone());
            let case = Case { place: &place, index: &index, user: &user, seed };
            case.compare(&tree, &starts, hard_links, number);
        }
        if only.is_none() {
            std::fs::remove_dir_all(&tree).unwrap();
            std::fs::remove_dir_all(&index).unwrap();
        }
    }
}

/// A test of attributes, and the entries that it finds.
struct XattrTest {
    pattern: &'static str,
    asks_value: bool,
    /// Whether a line of getfattr, without its path, is of such an attribute.
    hits: fn(&str) -> bool,
}

const fn xattr_test(pattern: &'static str, asks_value: bool, hits: fn(&str) -> bool) -> XattrTest {
    XattrTest { pattern, asks_value, hits }
}

const XATTR_TESTS: [XattrTest; 8] = [
    xattr_test("user.a", false, |line| line == "user.a"),
    xattr_test("user.b,c[\\\\]d", false, |line| line == "user.b,c\\d"),
    xattr_test("trusted.*", false, |line| line == "trusted.t"),
    xattr_test("system.posix_acl*", false, |line| line.starts_with("system.posix_acl")),
    xattr_test("security.*=plain", true, |line| line == "security.canopy=0x706c61696e"),
    xattr_test("user.a=pl?in", true, |line| line == "user.a=0x706c61696e"),
    xattr_test("user.a=", true, |line| line == "user.a=0x"),
    xattr_test("trusted.t=*", true, |line| line.starts_with("trusted.t=")),
];

struct Case<'a> {
    place: &'a Fixture,
    index: &'a Path,
    user: &'a User,
    seed: u64,
}

/// Compares both sides, given the answers of a shell from the first one of this case on.
type Comparison<'a> = Box<dyn FnOnce(&mut dyn Iterator<Item = Ran>) + 'a>;

impl<'a> Case<'a> {
    /// Compares all answers for one user, which come from one shell. Unless all are asked for,
    /// users take turns with attributes, with ACLs and with sums of the tree.
    fn compare(&'a self, tree: &'a Path, starts: &'a [PathBuf], hard_links: bool, number: usize) {
        let [first, second] = starts else { unreachable!("two starts") };
        let starts = [tree, first, second];
        let mut asked = Vec::new();
        if number.is_multiple_of(rounds(2, 1)) {
            asked.extend([self.find_with_xattrs(starts), self.acls(tree)]);
        }
        if rounds(asked.is_empty(), true) {
            asked.push(self.find(starts));
        }
        asked.extend([self.du(first, &["-s"]), self.du(second, &["-s"])]);
        let others: &'static [&[&str]] = match hard_links {
            true => &[&["-s", "--inodes"]],
            false => &[&["-a"], &["-c", "-h", "-d1", "--apparent-size"]],
        };
        let sums: [&[&str]; 2] = [&["-s"], &["-s", "--apparent-size"]];
        let sums: Vec<&'static [&str]> = sums.iter().chain(others).copied().collect();
        let turns = rounds(sums.len(), 1);
        let sums = sums.into_iter().enumerate().filter(|(at, _)| at % turns == number % turns);
        asked.extend(sums.map(|(_, options)| self.du(tree, options)));
        let (lines, comparisons): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let mut answers = run_all(self.user, lines.into_iter().flatten()).into_iter();
        comparisons.into_iter().for_each(|compare| compare(&mut answers));
    }

    fn canopy(&self, word: &str) -> Line {
        let line = Line::default().words([self.place.canopy.as_os_str()]).plain("--index");
        line.words([self.index.as_os_str()]).plain(word)
    }

    /// Returns the output of the command. Its only faults may be entries that the user cannot look
    /// up or list.
    fn shown(&self, ran: Ran) -> Vec<u8> {
        let errors = String::from_utf8_lossy(&ran.stderr);
        let known = ["or not for you to see", "Permission denied"];
        let fine = ran.code == 0 || known.iter().any(|known| errors.contains(known));
        assert!(fine, "seed {} {:?}: {errors}", self.seed, self.user);
        ran.stdout
    }

    /// Compares find from several starts.
    fn find(&'a self, starts: [&'a Path; 3]) -> (Vec<Line>, Comparison<'a>) {
        let print = ["-printf", FORMAT];
        let lines = [Line::new("find"), self.canopy("find")];
        let lines = lines.map(|line| line.words(starts).words(print)).to_vec();
        let compare = move |answers: &mut dyn Iterator<Item = Ran>| {
            let expected = answers.next().unwrap().stdout;
            let shown = self.shown(answers.next().unwrap());
            let what = format!("seed {} {:?} find {starts:?}", self.seed, self.user);
            assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
        };
        (lines, Box::new(compare))
    }

    /// Compares find from them, and the output of getfattr(1) below them with tests of find, of
    /// which the index is asked at once. Values that the user cannot read must not be found.
    fn find_with_xattrs(&'a self, starts: [&'a Path; 3]) -> (Vec<Line>, Comparison<'a>) {
        let print = ["-printf", FORMAT];
        let [named, valued] = getfattr(starts);
        let both = self.canopy("find").words(starts).words(print).words(xattr_words());
        let lines = vec![Line::new("find").words(starts).words(print), named, valued, both];
        let compare = move |answers: &mut dyn Iterator<Item = Ran>| {
            let expected = answers.next().unwrap().stdout;
            let expected_xattrs = expected_xattrs(answers);
            let shown = sorted(&self.shown(answers.next().unwrap()), 0);
            let (shown, xattrs): (Vec<_>, Vec<_>) =
                shown.into_iter().partition(|line| line.starts_with('/'));
            let what = format!("seed {} {:?} find {starts:?}", self.seed, self.user);
            assert_same(&shown, &sorted(&expected, 0), &what);
            assert_same(&xattrs, &expected_xattrs, &format!("{what} -xattr"));
        };
        (lines, Box::new(compare))
    }

    /// Compares what getfacl(1) shows of all entries of the tree but links, which it follows, with
    /// the table of ACLs.
    fn acls(&'a self, tree: &'a Path) -> (Vec<Line>, Comparison<'a>) {
        let getfacl = Line::new("find").words([tree]);
        let getfacl = getfacl.plain("! -type l -exec getfacl -n -s -p -- {} +");
        let sql = "SELECT path, kind, tag, id, permissions FROM acls";
        let table = self.canopy("sql --format ndjson").words([sql]);
        let compare = move |answers: &mut dyn Iterator<Item = Ran>| {
            let output = answers.next().unwrap().stdout;
            let lines: Vec<&[u8]> = output.split(|&byte| byte == b'\n').collect();
            let files = lines.chunk_by(|_, next| !next.starts_with(b"# file: "));
            let files = files.filter(|file| file[0].starts_with(b"# file: "));
            let mut expected: Vec<String> = files.flat_map(acl_lines).collect();
            expected.sort();
            let shown = self.shown(answers.next().unwrap());
            let shown = String::from_utf8(shown).unwrap();
            let mut shown: Vec<String> = shown.lines().map(acl_row).collect();
            shown.sort();
            assert_same(&shown, &expected, &format!("seed {} {:?} getfacl", self.seed, self.user));
        };
        (vec![getfacl, table], Box::new(compare))
    }

    fn du(&'a self, start: &'a Path, options: &'static [&str]) -> (Vec<Line>, Comparison<'a>) {
        let du = |line: Line| line.plain("-0").words(options).words([start]);
        let compare = move |answers: &mut dyn Iterator<Item = Ran>| {
            let expected = answers.next().unwrap().stdout;
            let shown = self.shown(answers.next().unwrap());
            let what = format!("seed {} {:?} du {options:?}", self.seed, self.user);
            assert_same(&sorted(&shown, 0), &sorted(&expected, 0), &what);
        };
        (vec![du(Line::new("du")), du(self.canopy("du"))], Box::new(compare))
    }
}

/// Shows names of the attributes of all entries below starts, then their values.
fn getfattr(starts: [&Path; 3]) -> [Line; 2] {
    ["", "-d -e hex "].map(|values| {
        let run = format!("-exec getfattr -h --absolute-names -m - {values}-- {{}} +");
        Line::new("find").words(starts).plain(&run)
    })
}

/// Returns expressions that print the number of each test of attributes beside its hits.
fn xattr_words() -> Vec<String> {
    let tests = XATTR_TESTS.iter().enumerate().flat_map(|(number, test)| {
        let print = format!("{number}|%p\\0");
        ["(", "-xattr", test.pattern, "-printf", &print, "-o", "-true", ")"].map(str::to_owned)
    });
    tests.collect()
}

/// Returns the expected output of these tests, from the names and values that getfattr prints.
fn expected_xattrs(answers: &mut dyn Iterator<Item = Ran>) -> Vec<String> {
    let [named, valued] = [(); 2].map(|()| attributes(&answers.next().unwrap().stdout));
    let mut expected = Vec::new();
    for (number, test) in XATTR_TESTS.iter().enumerate() {
        let among = if test.asks_value { &valued } else { &named };
        let lines = among.iter().filter_map(|line| line.split_once('|'));
        let hits = lines.filter(|(_, rest)| (test.hits)(rest));
        expected.extend(hits.map(|(path, _)| format!("{number}|{path}")));
    }
    expected.sort();
    expected
}

/// A row of the table of ACLs, as `acl_lines` has it.
fn acl_row(line: &str) -> String {
    let row: serde_json::Value = serde_json::from_str(line).unwrap();
    let id = row["id"].as_u64().map_or(String::new(), |id| id.to_string());
    let text = |name: &str| row[name].as_str().unwrap().to_owned();
    let [path, kind, tag, permissions] = ["path", "kind", "tag", "permissions"].map(text);
    format!("{path}|{kind}|{tag}|{id}|{permissions}")
}

/// The output of getfattr, as `path|name` or `path|name=value`, with the path as `sorted` shows it.
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

/// The output of getfacl for one file: `path|kind|tag|id|permissions`, with the path escaped.
/// Access rights that the mode shows alone are not an ACL.
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
