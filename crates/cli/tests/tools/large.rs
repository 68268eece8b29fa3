//! Sums of sizes beyond 64 bits. Any user can make sparse files of 2^63 - 1 bytes on a tmpfs; three
//! of them made `du -cb` print `-2` for everybody above them. Needs root.

use crate::common::{Fixture, SmallDisk, User};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

/// The largest size that Linux gives a file.
const LARGEST: u64 = i64::MAX as u64;

/// Alice owns the large files, Bob small ones.
const ALICE: u32 = 2001;
const BOB: u32 = 2002;

struct Site {
    place: Fixture,
    _disk: SmallDisk,
    tree: PathBuf,
    index: PathBuf,
}

/// Makes a directory or a file of a size that is all hole.
fn make(path: &Path, owner: u32, size: Option<u64>) {
    match size {
        Some(size) => File::create(path).unwrap().set_len(size).unwrap(),
        None => fs::create_dir(path).unwrap(),
    }
    chown(path, Some(owner), Some(owner)).unwrap();
    if size.is_none() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Site {
    fn new() -> Self {
        let place = Fixture::new();
        let disk = place.small_disk("disk", "16m");
        let tree = disk.0.join("tree");
        make(&tree, 0, None);
        for (name, owner, size) in [
            ("alice", ALICE, None),
            ("alice/a.large", ALICE, Some(LARGEST)),
            ("alice/b.large", ALICE, Some(LARGEST)),
            ("alice/c.large", ALICE, Some(LARGEST)),
            ("alice/deep", ALICE, None),
            ("alice/deep/d.large", ALICE, Some(LARGEST)),
            ("alice/other", ALICE, None),
            ("bob", BOB, None),
            ("bob/file", BOB, Some(5000)),
            ("bob/more", BOB, None),
            ("bob/more/file", BOB, Some(70_000)),
            ("mixed", 0, None),
            ("mixed/1.large", ALICE, Some(LARGEST)),
            ("mixed/2.small", BOB, Some(7)),
            ("mixed/3.large", ALICE, Some(LARGEST)),
            ("mixed/4.small", BOB, Some(8)),
            ("mixed/5.large", ALICE, Some(LARGEST)),
        ] {
            make(&tree.join(name), owner, size);
        }
        // Three names of one inode.
        for name in ["alice/deep/again", "alice/other/again"] {
            fs::hard_link(tree.join("alice/deep/d.large"), tree.join(name)).unwrap();
        }
        let index = place.path("index");
        place.index(&index, &tree);
        Site { place, _disk: disk, tree, index }
    }

    fn run(&self, user: Option<&User>, words: &[&str]) -> Output {
        let tree = self.tree.to_str().unwrap();
        let words: Vec<String> = words.iter().map(|word| word.replace("TREE", tree)).collect();
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        let index = [OsStr::new("--index"), self.index.as_os_str()];
        let arguments = [&index[..], &words].concat();
        match user {
            Some(user) => user.run(self.place.canopy.as_os_str(), &arguments),
            None => self.place.canopy(&self.index, &words),
        }
    }

    /// Returns the output of a command, which is equal for root and for another user.
    fn done(&self, words: &[&str]) -> String {
        let bob = User { uid: BOB, gid: BOB, groups: Vec::new() };
        let [root, other] = [None, Some(&bob)].map(|user| {
            let output = self.run(user, words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{words:?}: {said}");
            let shown = String::from_utf8(output.stdout).unwrap();
            // Reports begin with who asked.
            let begins = ["\"owner\": null", "of the index\n"];
            let cut = begins.iter().find_map(|begin| shown.split_once(begin));
            cut.map_or(shown.clone(), |(_, shown)| shown.to_owned())
        });
        assert_eq!(root, other, "{words:?}");
        root.replace(self.tree.to_str().unwrap(), "TREE")
    }

    /// Returns the bytes below a path, each inode once, as du(1) would if it had the digits.
    fn bytes_below(&self, name: &str) -> u128 {
        let mut seen = HashSet::new();
        let mut left = vec![self.tree.join(name)];
        let mut sum = 0;
        while let Some(path) = left.pop() {
            let about = path.symlink_metadata().unwrap();
            if about.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            if seen.insert(about.ino()) {
                sum += u128::from(about.size());
            }
        }
        sum
    }

    /// Checks what du prints of every directory.
    fn assert_du(&self) {
        let name = |path: &Path| path.strip_prefix(&self.tree).unwrap().display().to_string();
        let line = |path: &Path| {
            let shown = match name(path).as_str() {
                "" => "TREE".to_owned(),
                name => format!("TREE/{name}"),
            };
            format!("{}\t{shown}", self.bytes_below(&name(path)))
        };
        let mut expected = Vec::new();
        let mut left = vec![self.tree.clone()];
        while let Some(path) = left.pop() {
            expected.push(line(&path));
            // Each argument alone counts what the others have too.
            let alone = self.done(&["du", "-sb", path.to_str().unwrap()]);
            assert_eq!(alone.trim_end(), line(&path));
            let entries = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            left.extend(entries.filter(|path| path.is_dir()));
        }
        expected.sort();
        let mut shown: Vec<String> =
            self.done(&["du", "-b", "TREE"]).lines().map(str::to_owned).collect();
        shown.sort();
        // The file with three names counts in the directory that comes first.
        let other =
            format!("{}\tTREE/alice/other", self.bytes_below("alice/other") - u128::from(LARGEST));
        expected.retain(|line| !line.ends_with("TREE/alice/other"));
        expected.push(other);
        expected.sort();
        assert_eq!(shown, expected);
    }
}

/// One number of a line of JSON, as it is written.
fn number<'a>(text: &'a str, key: &str) -> &'a str {
    let (_, rest) =
        text.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {text}"));
    let rest = rest.trim_start();
    rest.split([',', '}', '\n']).next().unwrap().trim()
}

#[test]
fn du_adds_up_more_than_64_bits() {
    let site = Site::new();
    site.assert_du();
    let large = u128::from(LARGEST);
    assert_eq!(
        site.done(&["du", "-cb", "TREE/alice/a.large", "TREE/alice/b.large"]).lines().last(),
        Some(format!("{}\ttotal", 2 * large).as_str())
    );
    assert_eq!(
        site.done(&["du", "-s", "--apparent-size", "-h", "TREE/mixed"]),
        "25E\tTREE/mixed\n"
    );
    let all = site.bytes_below("");
    assert!(site.done(&["du", "-ab", "TREE"]).ends_with(&format!("\n{all}\tTREE\n")));
    assert_eq!(number(&site.done(&["du", "-sb", "--json", "TREE"]), "bytes"), all.to_string());
    // Sums pass thresholds as what they are.
    let over = site.done(&["du", "-b", "-t", "7E", "TREE"]);
    let over: Vec<&str> = over.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(over, ["TREE/alice/deep", "TREE/alice", "TREE/mixed", "TREE"]);
    let under = site.done(&["du", "-b", "-t", "-100K", "TREE/bob", "TREE/mixed"]);
    assert!(under.contains("TREE/bob\n") && !under.contains("TREE/mixed"), "{under}");
    // By owner and extension, each name counts.
    let by_user = site.done(&["du", "-b", "--by", "user", "TREE"]);
    assert!(by_user.contains(&format!("{}\t2001\t", 9 * large)), "{by_user}");
    assert!(by_user.contains("75015\t2002\t"), "{by_user}");
    let by_extension = site.done(&["du", "-b", "--by", "extension", "TREE"]);
    assert!(by_extension.contains(&format!("{}\t.large\t", 7 * large)), "{by_extension}");
    assert!(by_extension.contains("15\t.small\t"), "{by_extension}");
}

#[test]
fn sums_are_right_after_updates() {
    let site = Site::new();
    let large = u128::from(LARGEST);
    // Rows of the old listings stay and are taken off the sums.
    for (name, owner, size) in
        [("alice/e.large", ALICE, LARGEST), ("mixed/0.large", BOB, LARGEST), ("bob/new", BOB, 100)]
    {
        make(&site.tree.join(name), owner, Some(size));
        let path = site.tree.join(name);
        let directory = path.parent().unwrap().to_str().unwrap();
        let output = site.run(None, &["update", "--copied-rows", "0", directory]);
        assert!(output.status.success(), "{output:?}");
        site.assert_du();
    }
    fs::remove_file(site.tree.join("alice/a.large")).unwrap();
    let output = site.run(None, &["update", "--copied-rows", "0", "TREE/alice"]);
    assert!(output.status.success(), "{output:?}");
    site.assert_du();
    assert!(site.bytes_below("") > 8 * large);
    assert!(site.run(None, &["compact"]).status.success());
    site.assert_du();
}

#[test]
fn reports_add_up_more_than_64_bits() {
    let site = Site::new();
    let large = u128::from(LARGEST);
    let report = |section: &str| site.done(&["report", "--json", "--section", section, "TREE"]);
    assert_eq!(number(&report("totals"), "bytes"), site.bytes_below("").to_string());
    let text = site.done(&["report", "--section", "totals", "TREE"]);
    assert!(text.contains("57E"), "{text}");
    let users = report("users");
    let of = |uid: u32| {
        users.split("\"id\":").find(|part| part.trim_start().starts_with(&uid.to_string()))
    };
    assert_eq!(number(of(ALICE).unwrap(), "bytes"), (9 * large).to_string());
    assert_eq!(number(of(BOB).unwrap(), "bytes"), "75015");
    let trees = report("trees");
    let of = |path: &str| {
        let path = format!("\"{}/{path}\"", "TREE");
        let part = trees.split("\"path\":").find(|part| part.trim_start().starts_with(&path));
        number(part.unwrap_or_else(|| panic!("{path} {trees}")), "bytes").to_owned()
    };
    for path in ["alice", "alice/deep", "alice/other", "mixed", "bob"] {
        assert_eq!(of(path), site.bytes_below(path).to_string(), "{path}");
    }
    let directories = report("directories");
    let most = directories.split("\"most_bytes\"").nth(1).unwrap();
    assert_eq!(number(most, "bytes"), (3 * large + 15).to_string());
    assert_eq!(number(&report("sparse"), "saved_bytes"), (9 * large + 75_015).to_string());
    let mine =
        site.run(None, &["report", "--json", "--section", "totals", "--user", "2002", "TREE"]);
    let mine = String::from_utf8(mine.stdout).unwrap();
    let own = ["bob", "bob/more"].map(|name| site.tree.join(name).metadata().unwrap().size());
    assert_eq!(number(&mine, "bytes"), (75_015 + own.iter().sum::<u64>()).to_string());
    let top = site.done(&["top", "users", "TREE"]);
    assert!(top.contains("72E"), "{top}");
}

#[test]
fn growth_and_history_add_up_more_than_64_bits() {
    let site = Site::new();
    let large = u128::from(LARGEST);
    let done = |words: &[&str]| {
        let output = site.run(None, words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for name in ["e", "f", "g"] {
        make(&site.tree.join("alice").join(name), ALICE, Some(LARGEST));
    }
    done(&["index", "--keep=9", "TREE"]);
    for name in ["h", "i", "j"] {
        make(&site.tree.join("alice").join(name), ALICE, Some(LARGEST));
    }
    make(&site.tree.join("bob/new"), BOB, Some(300));
    done(&["index", "--keep=9", "TREE"]);
    let counted = done(&["diff", "--count", "--json", "2", "3", "TREE"]);
    let created = counted.split("\"created\"").nth(1).unwrap();
    assert_eq!(number(created, "grown_bytes"), (3 * large + 300).to_string());
    let grown = done(&["top", "growth", "--since=2", "--by=user", "--json", "TREE"]);
    assert_eq!(number(&grown, "grown_bytes"), (3 * large).to_string());
    let grown = done(&["top", "growth", "--since=2", "--by=user", "TREE"]);
    assert!(grown.contains("    24E  ") && grown.contains("    300  "), "{grown}");
    let history = done(&["history", "--json", "TREE"]);
    let rows: Vec<&str> = history.split('{').skip(1).map(|row| number(row, "bytes")).collect();
    let sums = [7 * large + 75_015, 10 * large + 75_015, 13 * large + 75_315];
    assert_eq!(rows, sums.map(|sum| sum.to_string()));
}

#[test]
fn sql_stops_at_the_largest_number_and_other_rows_are_right() {
    let site = Site::new();
    let largest = LARGEST.to_string();
    let rows = |query: &str| -> Vec<String> {
        let answer = site.done(&["sql", "--format", "csv", query]);
        answer.lines().skip(1).map(str::to_owned).collect()
    };
    let trees = rows("SELECT path, size FROM trees ORDER BY path");
    for (path, size) in [
        ("TREE", largest.as_str()),
        ("TREE/alice", &largest),
        ("TREE/alice/deep", &largest),
        ("TREE/bob", "75000"),
        ("TREE/bob/more", "70000"),
        ("TREE/mixed", &largest),
    ] {
        assert!(trees.contains(&format!("{path},{size}")), "{path}: {trees:?}");
    }
    let by_user = "SELECT uid, size FROM trees_by_user WHERE path LIKE '%/mixed' ORDER BY uid";
    assert_eq!(rows(by_user), [format!("2001,{largest}"), "2002,15".to_owned()]);
    let summaries = "SELECT size FROM summaries WHERE path LIKE '%/mixed'";
    assert_eq!(rows(summaries), std::slice::from_ref(&largest));
    // An owner whose files need more has several rows, each of which is right.
    let usage = "SELECT uid, size, count FROM usage WHERE path LIKE '%/mixed' ORDER BY uid";
    let one = format!("2001,{largest},1");
    assert_eq!(rows(usage), [one.clone(), one.clone(), one, "2002,15,2".to_owned()]);
}
