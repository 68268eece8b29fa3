//! Older generations: `--keep` and `--at` as users type them, and that every command answers as it
//! did then. Needs root.

use crate::common;

use canopy_model::{Acl, AclEntry, AclTag};
use common::{Fixture, User, seeded, sorted};
use rand::{Rng, RngExt, rngs::StdRng};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Output;

fn run(place: &Fixture, words: &[&str]) -> Output {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    place.canopy(&place.path("index"), &words)
}

fn done(place: &Fixture, words: &[&str]) -> Vec<String> {
    let output = run(place, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    sorted(&output.stdout, b'\n')
}

fn error_of(place: &Fixture, words: &[&str]) -> String {
    let output = run(place, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn info(place: &Fixture) -> serde_json::Value {
    serde_json::from_slice(&run(place, &["info", "--json"]).stdout).unwrap()
}

/// The output of all commands that read, as of now or of a generation.
fn answers(place: &Fixture, at: Option<&str>) -> Vec<Vec<String>> {
    let tree = place.path("tree");
    let (tree, file) = (tree.to_str().unwrap(), tree.join("d0/fixed"));
    let commands: [&[&str]; 9] = [
        &["find", tree, "-printf", "%p %s %m %U %T@ %l\\n"],
        &["du", "-ab", tree],
        &["ls", "-laR", "--time-style=full-iso", tree],
        &["stat", tree, file.to_str().unwrap()],
        &["sql", "--format=csv", "SELECT path, size, uid, mtime FROM entries ORDER BY path"],
        &["top", "largest", "--json", tree],
        &["report", "--json", tree],
        &["export", "--format=ndjson", tree],
        &["source", "list", "--json"],
    ];
    let answer = |words: &&[&str]| {
        let mut words = words.to_vec();
        // Behind the name of the command, or of the command of sources.
        let behind = if words[0] == "source" { 2 } else { 1 };
        at.iter().for_each(|at| drop(words.splice(behind..behind, ["--at", at])));
        done(place, &words)
    };
    commands.iter().map(answer).collect()
}

/// Changes some files and directories.
fn change(tree: &Path, random: &mut StdRng) {
    for _ in 0..random.random_range(1..8) {
        let directory = tree.join(format!("d{}", random.random_range(0..5)));
        let path = directory.join(format!("f{}", random.random_range(0..6)));
        match random.random_range(0..6) {
            0 | 1 => fs::write(&path, vec![0; random.random_range(0..9000)]).unwrap(),
            2 => drop(fs::remove_file(&path)),
            3 => {
                let mode = [0o755, 0o700, 0o751][random.random_range(0..3)];
                fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            }
            4 => chown(&directory, Some(2000 + random.random_range(0..3)), None).unwrap(),
            _ => {
                let other = directory.join(format!("sub{}", random.next_u32() % 4));
                drop(fs::rename(&path, &other));
            }
        }
    }
}

/// Whatever is updated, indexed or compacted later, a generation that is kept says what it said,
/// whatever else is kept.
#[test]
fn kept_generations_keep_their_answers() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for number in 0..5 {
        fs::create_dir_all(tree.join(format!("d{number}"))).unwrap();
        fs::write(tree.join(format!("d{number}/fixed")), "x").unwrap();
    }
    let path = tree.to_str().unwrap();
    let random = &mut seeded(7);
    let mut said: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for round in 0..14 {
        match round {
            0 => drop(done(&place, &["index", "--keep=4", path])),
            6 => drop(done(&place, &["compact", "--replace"])),
            9 => drop(done(&place, &["index", "--keep=3,2h", path])),
            _ if random.random_bool(0.5) => {
                drop(done(&place, &["index", "--incremental", path]));
            }
            _ => drop(done(&place, &["update", "--recursive", "--copied-rows=0", path])),
        }
        let info = info(&place);
        said.insert(info["generation"].to_string(), answers(&place, None));
        let kept = info["kept"].as_array().unwrap();
        assert_eq!(kept.len(), said.len().min(if round < 9 { 4 } else { 3 }) - 1, "{info}");
        // Every third round, since nine commands for each take their time.
        for kept in kept.iter().filter(|_| round % 3 == 2) {
            let number = kept["generation"].to_string();
            for (now, then) in answers(&place, Some(&number)).iter().zip(&said[&number]) {
                assert_eq!(now, then, "{number} in {round}");
            }
        }
        change(&tree, random);
    }
    let distinct: std::collections::BTreeSet<_> = said.values().collect();
    assert!(distinct.len() > 8, "{} of {}", distinct.len(), said.len());
}

#[test]
fn moments_are_numbers_ages_and_dates() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    let begun = info(&place)["published_ns"].as_i64().unwrap();
    fs::write(tree.join("new"), "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    done(&place, &["update", path]);
    let before = format!("@{}.{:09}", begun / 1_000_000_000, begun % 1_000_000_000);
    for (at, expected) in [(&*before, 1), ("1", 1), ("2", 2), ("now", 2), ("0s", 2)] {
        let found = done(&place, &["find", "--at", at, path]);
        assert_eq!(found.len(), expected, "{at}");
    }
    // On a machine that is busy, an age may mean a later moment by the time that it is read.
    let is_then = |at: &dyn Fn(u64) -> String| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let age = now - u64::try_from(begun / 1_000_000_000).unwrap() - 1;
        done(&place, &["find", "--at", &at(age), path]).len() == 1
    };
    let tried = |at: &dyn Fn(u64) -> String| (0..100).any(|_| is_then(at));
    assert!(tried(&|age| format!("{age}s")) && tried(&|age| format!("{age} seconds ago")));
    let verbose = run(&place, &["du", "--verbose", "--at=1", path]);
    let verbose = String::from_utf8(verbose.stderr).unwrap();
    let told = "answers from generation 1, published ";
    assert!(verbose.contains(told) && verbose.contains(" s ago"), "{verbose}");
    for (at, expected) in [
        ("7", "generation 7 is not kept; the last is 2"),
        ("0", "generation 0 is not kept; the oldest is 1"),
        ("1h", "nothing is kept from before generation 1"),
        ("2001-01-01", "nothing is kept from before generation 1"),
        ("20010101", "nothing is kept from before generation 1: 'canopy info'"),
        ("20010101", "'canopy index --keep'"),
        ("20011301", "generation 20011301 is not kept; the last is 2"),
        ("12 frogs", "invalid value"),
        ("tomorrow", "that is in the future; an age is written as 7d"),
        ("7days", "that is in the future"),
        ("", "invalid value"),
        ("-3", "invalid value"),
        ("99999999999999999999h", "invalid value"),
    ] {
        let said = error_of(&place, &["find", &format!("--at={at}"), path]);
        assert!(said.contains(expected), "{at}: {said}");
    }
    let said = error_of(&place, &["find", "--at=1", "--live", path]);
    assert!(said.contains("--live walks the file system as it is now"), "{said}");
    for words in [&["find", path, "--at=1"][..], &["find", "--live", "--at", "1", path]] {
        let output = run(&place, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("--at, --index, --threads and --verbose go before"), "{said}");
    }
    for keep in ["", "0", "x", "3m", "24h,,3d", "2000"] {
        let said = error_of(&place, &["index", &format!("--keep={keep}"), path]);
        assert!(said.contains("24h,14d,8w"), "{keep}: {said}");
    }
    // A policy is changed without a scan, and what it leaves out goes.
    let said = run(&place, &["compact", "--keep", "none"]).stdout;
    assert_eq!(String::from_utf8(said).unwrap(), "generation 3: older ones are kept: none\n");
    assert_eq!(info(&place)["kept"].as_array().unwrap().len(), 0);
    let said = error_of(&place, &["find", "--at=2", path]);
    assert!(said.contains("generation 2 is not kept; the oldest is 3"), "{said}");
}

/// A generation that is damaged is told so, and neither others nor what comes after suffer.
#[test]
fn a_damaged_generation_is_passed_over() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=4", path]);
    for number in 2..5 {
        fs::write(tree.join(number.to_string()), "").unwrap();
        done(&place, &["update", path]);
    }
    fs::write(place.path("index/manifests-2.bin"), "damaged").unwrap();
    let history = run(&place, &["history", path]);
    assert_eq!(history.status.code(), Some(1), "{history:?}");
    assert!(String::from_utf8_lossy(&history.stderr).contains("generation 2 is lost"));
    assert_eq!(String::from_utf8_lossy(&history.stdout).lines().count(), 4);
    assert!(error_of(&place, &["find", "--at=2", path]).contains("generation 2 is lost"));
    for number in 5..8 {
        assert_eq!(done(&place, &["find", "--at=4", path]).len(), 4);
        fs::write(tree.join(number.to_string()), "").unwrap();
        done(&place, &["update", path]);
        let before = (number - 1).to_string();
        assert_eq!(done(&place, &["find", "--at", &before, path]).len(), number - 1);
    }
    fs::remove_file(place.path("index/manifests-6.bin")).unwrap();
    let history = run(&place, &["history", path]);
    assert_eq!(history.status.code(), Some(1), "{history:?}");
    assert!(String::from_utf8_lossy(&history.stderr).contains("manifests-6.bin"), "{history:?}");
    assert_eq!(String::from_utf8_lossy(&history.stdout).lines().count(), 4, "{history:?}");
}

#[test]
fn many_generations_are_told_in_one_short_line() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=90", path]);
    let kept = || {
        let told = String::from_utf8(run(&place, &["info"]).stdout).unwrap();
        told.lines().find(|line| line.starts_with("kept ")).unwrap().to_owned()
    };
    assert!(kept().ends_with("90: none yet"), "{}", kept());
    for _ in 0..3 {
        done(&place, &["index", path]);
    }
    assert_eq!(kept().matches(" ago)").count(), 3, "{}", kept());
    for _ in 0..4 {
        done(&place, &["index", path]);
    }
    assert!(kept().contains("90: 7 generations, from 1 ("), "{}", kept());
    assert!(kept().contains(" to 7 ("), "{}", kept());
}

/// Sizes are what their owners say: all of them together tell no less than one.
#[test]
fn huge_sizes_hide_no_growth() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    let list = place.path("list");
    let rows = [i64::MAX, i64::MAX - 4096, 50_000_000];
    let rows =
        rows.iter().enumerate().map(|(at, size)| format!("{path}/f{at},f,644,5,5,{size},1\n"));
    let text = format!("path,type,mode,uid,gid,size,mtime\n{path},d,755,0,0,0,1\n");
    fs::write(&list, rows.fold(text, |text, row| text + &row)).unwrap();
    done(&place, &["import", "--format=csv", list.to_str().unwrap()]);
    let count = done(&place, &["diff", "--count", "1", "2", path]).join("\n");
    assert!(count.contains("created    +17E          3\n"), "{count}");
    let grown = done(&place, &["top", "growth", "--since=1", "--by=user"]).join("\n");
    assert!(grown.contains("    17E  "), "{grown}");
}

/// Entries that were once visible to others are in no file that they can read.
#[test]
fn the_past_is_for_the_writer_alone() {
    let place = Fixture::new();
    let (tree, user) = (place.path("tree"), User { uid: 2001, gid: 3001, groups: Vec::new() });
    fs::create_dir_all(tree.join("secret")).unwrap();
    fs::write(tree.join("secret/unmistakable"), "").unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    let find = |at: &[&str]| {
        let index = place.path("index");
        let mut words: Vec<&OsStr> = vec!["--index".as_ref(), index.as_ref(), "find".as_ref()];
        words.extend(at.iter().map(OsStr::new));
        words.push(tree.as_ref());
        user.run(place.canopy.as_ref(), &words)
    };
    assert!(String::from_utf8_lossy(&find(&[]).stdout).contains("unmistakable"));
    fs::set_permissions(tree.join("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    done(&place, &["update", tree.join("secret").to_str().unwrap()]);
    done(&place, &["compact", "--replace"]);
    // Nobody reads on, so that nothing waits for readers.
    done(&place, &["index", "--incremental", path]);
    done(&place, &["compact", "--replace"]);
    assert!(!String::from_utf8_lossy(&find(&[]).stdout).contains("unmistakable"));
    let output = find(&["--at=1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty() && said.contains("only for those who write it"), "{said}");
    let index = place.path("index");
    let grep: [&OsStr; 3] = ["-rqs".as_ref(), "unmistakable".as_ref(), index.as_ref()];
    assert_eq!(user.run("grep".as_ref(), &grep).status.code(), Some(2));
    let grep = std::process::Command::new("grep").args(grep).status().unwrap();
    assert!(grep.success(), "the past is there for root");
    assert!(done(&place, &["find", "--at=1", path]).iter().any(|at| at.ends_with("unmistakable")));
}

/// A line of find: the type, then mode, owner, size, modification time, inode and link target.
/// Directories have no size and times.
type FindLine = (String, String);

/// Returns what a generation has at and below a path.
fn facts_at(place: &Fixture, at: &str, path: &str) -> BTreeMap<String, FindLine> {
    let format = "%p\t%y\t%m %U %s %T@ %i %l\n";
    let lines = run(place, &["find", "--at", at, path, "-printf", format]);
    assert!(lines.status.success(), "{lines:?}");
    let text = String::from_utf8(lines.stdout).unwrap();
    let entry = |line: &str| {
        let [path, kind, rest]: [&str; 3] =
            line.splitn(3, '\t').collect::<Vec<_>>().try_into().unwrap();
        let rest: Vec<&str> = rest.split(' ').collect();
        // What is in a directory changes its size and times.
        let rest = if kind == "d" { rest[..2].join(" ") } else { rest.join(" ") };
        (path.to_owned(), (kind.to_owned(), rest))
    };
    text.lines().map(entry).collect()
}

/// Returns the sizes of files, each inode once.
fn bytes_of(entries: &BTreeMap<String, FindLine>) -> i64 {
    let files = entries.values().filter(|(kind, _)| kind != "d");
    let sizes = files.map(|(_, rest)| {
        let words: Vec<&str> = rest.split(' ').collect();
        (words[4], words[2].parse::<i64>().unwrap())
    });
    sizes.collect::<BTreeMap<_, _>>().values().sum()
}

/// Does to the older generation what the differences say, and expects the newer one.
fn assert_differences(place: &Fixture, from: &str, to: &str, path: &str) -> usize {
    let (old, new) = (facts_at(place, from, path), facts_at(place, to, path));
    let output = run(place, &["diff", "--json", from, to, path]);
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let all: Vec<serde_json::Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what = format!("{from} to {to}: {output}");
    let of = |word: &str| -> Vec<&serde_json::Value> {
        all.iter().filter(|found| found["change"] == word).collect()
    };
    let paths = |word: &str, key: &str| -> Vec<String> {
        of(word).iter().map(|found| found[key].as_str().unwrap().to_owned()).collect()
    };
    let moved: BTreeMap<String, String> =
        paths("moved", "old_path").into_iter().zip(paths("moved", "path")).collect();
    let (deleted, created) = (paths("deleted", "path"), paths("created", "path"));
    let changed = paths("changed", "path");
    let mut left = BTreeMap::new();
    for (path, entry) in &old {
        if deleted.contains(path) {
            continue;
        }
        let mut ends = path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
        ends.push(path.len());
        let above = ends.into_iter().rev().find(|&end| moved.contains_key(&path[..end]));
        let now = match above {
            Some(end) => format!("{}{}", moved[&path[..end]], &path[end..]),
            None => path.clone(),
        };
        let is_told = changed.contains(&now) || moved.contains_key(path);
        match new.get(&now) {
            Some(new) => {
                assert!(is_told || new == entry, "{path} is {new:?}, not {entry:?}; {what}")
            }
            None => panic!("{path} is not at {now}; {what}"),
        }
        assert!(left.insert(now, ()).is_none(), "{what}");
    }
    for path in &created {
        assert!(left.insert(path.clone(), ()).is_none(), "{path} is created; {what}");
    }
    assert_eq!(left.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>(), "{what}");
    let grown: i64 = all.iter().map(|found| found["grown_bytes"].as_i64().unwrap()).sum();
    assert_eq!(grown, bytes_of(&new) - bytes_of(&old), "{what}");
    all.len()
}

/// Snapshots with hard links that are rotated, and links that change places with their directories.
#[test]
fn hard_links_move_with_their_directories() {
    let place = Fixture::new();
    let tree = place.path("tree");
    let day = |number: u32| tree.join(format!("daily.{number}"));
    fs::create_dir_all(day(0)).unwrap();
    fs::write(day(0).join("same"), "same").unwrap();
    fs::write(day(0).join("other"), "other").unwrap();
    for number in 1..3 {
        fs::create_dir(day(number)).unwrap();
        for name in ["same", "other"] {
            fs::hard_link(day(0).join(name), day(number).join(name)).unwrap();
        }
    }
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    fs::remove_dir_all(day(2)).unwrap();
    fs::rename(day(1), day(2)).unwrap();
    fs::rename(day(0), day(1)).unwrap();
    fs::create_dir(day(0)).unwrap();
    fs::hard_link(day(1).join("same"), day(0).join("same")).unwrap();
    fs::write(day(0).join("other"), "changed").unwrap();
    done(&place, &["index", "--incremental", path]);
    // The old daily.2 and the new daily.0, one link, and one file.
    assert!(assert_differences(&place, "1", "2", path) <= 7);
    fs::rename(day(1), tree.join("x")).unwrap();
    fs::rename(day(2), day(1)).unwrap();
    fs::rename(tree.join("x"), day(2)).unwrap();
    done(&place, &["index", "--incremental", path]);
    assert_eq!(assert_differences(&place, "2", "3", path), 2);
    // What was in a directory that has moved away comes back to its path.
    fs::rename(day(0), tree.join("x")).unwrap();
    fs::create_dir(day(0)).unwrap();
    fs::rename(tree.join("x/other"), day(0).join("other")).unwrap();
    fs::write(day(0).join("same"), "anew").unwrap();
    fs::remove_file(tree.join("x/same")).unwrap();
    done(&place, &["index", "--incremental", path]);
    assert_differences(&place, "3", "4", path);
    assert_differences(&place, "1", "4", path);
    assert_differences(&place, "4", "1", path);
}

/// ACLs and extended attributes alone make an entry another; that all is written anew does not.
#[test]
fn acls_and_extended_attributes_are_compared() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for name in ["a/acl", "a/value", "a/same", "b/gone", "b/new", "b/dir/default"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    let at = |name: &str| tree.join(name);
    let flags = rustix::fs::XattrFlags::empty();
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(at(name), key, value, flags).unwrap();
    };
    for name in ["", "a/value", "a/same", "b/gone"] {
        set(name, "user.x", b"old");
    }
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    let changed = |from: &str, to: &str| -> Vec<String> {
        let line = format!("changed       0  {path}");
        let lines = done(&place, &["diff", from, to]);
        lines.iter().map(|found| found.strip_prefix(&line).unwrap().to_owned()).collect()
    };
    // Which leaves the mode as it is.
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let entries = vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(2001), 5),
        entry(AclTag::OwningGroup, 5),
        entry(AclTag::Mask, 5),
        entry(AclTag::Other, 5),
    ];
    let acl = Acl { entries }.encode();
    set("a/acl", Acl::XATTR_NAME, &acl);
    set("a/value", "user.x", b"new");
    set("b/new", "user.x", b"new");
    set("b/dir/default", "system.posix_acl_default", &acl);
    rustix::fs::removexattr(at("b/gone"), "user.x").unwrap();
    done(&place, &["index", "--incremental", path]);
    let all = ["/a/acl", "/a/value", "/b/dir/default", "/b/gone", "/b/new"];
    assert_eq!(changed("1", "2"), all);
    let told = |from: &str, to: &str| {
        String::from_utf8(run(&place, &["diff", "--json", from, to]).stdout).unwrap()
    };
    assert_eq!(told("1", "2").matches("\"xattrs_changed\":true").count(), all.len());
    done(&place, &["index", path]);
    assert!(changed("2", "3").is_empty());
    fs::set_permissions(at("a/same"), fs::Permissions::from_mode(0o700)).unwrap();
    done(&place, &["update", at("a").to_str().unwrap()]);
    assert_eq!(changed("3", "4"), ["/a/same"]);
    set("", "user.x", b"new");
    done(&place, &["update", path]);
    assert_eq!(changed("4", "5"), [""]);
    assert_eq!(changed("1", "5").len(), all.len() + 2);
    // What moves takes its own along.
    fs::rename(at("a/value"), at("b/value")).unwrap();
    done(&place, &["index", "--incremental", path]);
    let moved = told("5", "6");
    assert!(moved.lines().count() == 1 && moved.contains("\"xattrs_changed\":false"), "{moved}");
}

/// Changes of the roots of sources, and of empty directories.
#[test]
fn differences_of_roots_and_of_empty_directories() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    let (path, inner) = (tree.to_str().unwrap(), tree.join("inner"));
    let diff = |from: &str, to: &str| done(&place, &["diff", from, to]);
    done(&place, &["index", "--keep=9", inner.to_str().unwrap()]);
    // Takes the other source in.
    done(&place, &["index", path]);
    assert_eq!(
        diff("1", "2"),
        [format!("created       0  {path}"), format!("created       0  {path}/empty")]
    );
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(tree.join("empty"), fs::Permissions::from_mode(0o711)).unwrap();
    done(&place, &["index", "--incremental", path]);
    assert_eq!(
        diff("2", "3"),
        [format!("changed       0  {path}"), format!("changed       0  {path}/empty")]
    );
    assert_eq!(done(&place, &["diff", "2", "3", &format!("{path}/empty")]).len(), 1);
    done(&place, &["source", "remove", path]);
    assert_eq!(diff("3", "4").len(), 3);
    assert_eq!(diff("4", "1"), [format!("created       0  {path}/inner")]);
    assert_eq!(diff("1", "4"), [format!("deleted       0  {path}/inner")]);
}

/// Entries that were imported without inodes are not moved only because all of them have none.
#[test]
fn nothing_moves_without_inodes() {
    let place = Fixture::new();
    let import = |lines: &str| {
        let file = place.path("scan.csv");
        fs::write(&file, format!("path,type,mode,uid,gid,size,mtime\n{lines}")).unwrap();
        done(&place, &["import", "--format=csv", file.to_str().unwrap()])
    };
    import("/i,d,755,0,0,0,1\n/i/gone,d,755,0,0,0,1\n/i/old,f,644,0,0,20,1\n");
    done(&place, &["compact", "--keep=3"]);
    import("/i,d,755,0,0,0,1\n/i/came,d,755,0,0,0,1\n/i/new,f,644,0,0,50,1\n");
    let expected = [
        "created       0  /i/came",
        "created     +50  /i/new",
        "deleted       0  /i/gone",
        "deleted     -20  /i/old",
    ];
    assert_eq!(done(&place, &["diff", "2", "3"]), expected);
}

#[test]
fn differences_lead_from_one_generation_to_another() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for number in 0..5 {
        fs::create_dir_all(tree.join(format!("d{number}/below/deep"))).unwrap();
        for file in 0..4 {
            fs::write(tree.join(format!("d{number}/below/deep/g{file}")), "g").unwrap();
        }
    }
    let path = tree.to_str().unwrap();
    let random = &mut seeded(11);
    done(&place, &["index", "--keep=30", path]);
    let mut found = 0;
    for round in 2..20 {
        change(&tree, random);
        let pick = |random: &mut StdRng| {
            let all = common::all_paths(&tree);
            all[random.random_range(1..all.len())].clone()
        };
        for _ in 0..3 {
            let (from, to) = (pick(random), pick(random));
            // A directory does not go into itself or onto what is not empty.
            drop(match random.random_range(0..4) {
                0 => fs::rename(&from, to.join("moved")),
                1 => fs::rename(&from, &to),
                2 => fs::hard_link(&from, to.join("link")),
                _ => fs::remove_dir_all(&from).or_else(|_| fs::remove_file(&from)),
            });
        }
        for number in 0..5 {
            fs::create_dir_all(tree.join(format!("d{number}"))).unwrap();
        }
        match round % 3 {
            0 => done(&place, &["index", path]),
            1 => done(&place, &["index", "--incremental", path]),
            _ => done(&place, &["update", "--recursive", path]),
        };
        found += assert_differences(&place, &(round - 1).to_string(), &round.to_string(), path);
        let part = tree.join("d1");
        let some = random.random_range(1..round);
        assert_differences(&place, &some.to_string(), "now", part.to_str().unwrap());
        assert_differences(&place, &round.to_string(), &some.to_string(), path);
    }
    assert!(found > 60, "{found} differences");
}

#[test]
fn commands_of_the_past_explain_themselves() {
    let place = Fixture::new();
    for command in ["diff", "history"] {
        for option in ["-h", "--help"] {
            let help = run(&place, &[command, option]);
            assert_eq!(help.status.code(), Some(0));
            let help = String::from_utf8(help.stdout).unwrap();
            assert!(help.contains(&format!("Usage: canopy {command} ")), "{help}");
        }
    }
}

/// As in du, what has several names counts once, and another name is not a growth.
#[test]
fn growth_counts_inodes_once() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for name in ["a", "b", "c"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    let write = |name: &str, size: usize| fs::write(tree.join(name), vec![0; size]).unwrap();
    let link = |from: &str, to: &str| fs::hard_link(tree.join(from), tree.join(to)).unwrap();
    let path = tree.to_str().unwrap();
    let grown = |since: &str, by: &str| -> Vec<(String, i64)> {
        let words = ["top", "growth", "--json", "--since", since, "--by", by, path];
        let output = run(&place, &words);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = said["growth"].as_array().unwrap().iter();
        rows.map(|row| {
            let key = row["path"].as_str().unwrap();
            (key.strip_prefix(path).unwrap().to_owned(), row["grown_bytes"].as_i64().unwrap())
        })
        .collect()
    };
    let row = |name: &str, bytes| (name.to_owned(), bytes);
    write("a/old", 1000);
    write("b/pair", 200);
    link("b/pair", "c/pair");
    done(&place, &["index", "--keep=9", path]);
    // A name more of what was there, two of what is new, and two names of what grows.
    link("a/old", "c/another");
    write("a/new", 50);
    link("a/new", "c/new");
    fs::OpenOptions::new().append(true).open(tree.join("c/pair")).unwrap().set_len(207).unwrap();
    done(&place, &["update", "--recursive", path]);
    assert_eq!(grown("1", "file"), [row("/a/new", 50), row("/b/pair", 7)]);
    assert_eq!(grown("1", "directory"), [row("/a", 50), row("/b", 7)]);
    // One of two names goes, and the other moves with its directory.
    fs::remove_file(tree.join("a/new")).unwrap();
    fs::rename(tree.join("c"), tree.join("d")).unwrap();
    write("d/more", 3);
    done(&place, &["update", "--recursive", path]);
    assert_eq!(grown("2", "file"), [row("/d/more", 3)]);
    for (from, to, bytes) in [("1", "2", 57), ("2", "3", 3), ("1", "3", 60)] {
        let counted = run(&place, &["diff", "--count", "--json", from, to, path]);
        let counted: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
        let counted = counted.as_object().unwrap().values();
        let sum: i64 = counted.map(|one| one["grown_bytes"].as_i64().unwrap()).sum();
        assert_eq!(sum, bytes, "{from} to {to}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn growth_and_history_are_told() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for name in ["a", "b"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("file"), vec![0; 1000]).unwrap();
    }
    fs::write(tree.join("a/shrinks"), vec![0; 90_000]).unwrap();
    let path = tree.to_str().unwrap();
    done(&place, &["index", "--keep=9", path]);
    fs::write(tree.join("a/file"), vec![0; 5000]).unwrap();
    fs::write(tree.join("a/shrinks"), "").unwrap();
    fs::write(tree.join("b/new"), vec![0; 3000]).unwrap();
    chown(tree.join("b/new"), Some(54_321), Some(54_322)).unwrap();
    fs::rename(tree.join("b/file"), tree.join("a/moved")).unwrap();
    done(&place, &["index", "--incremental", path]);
    let top = |more: &[&str]| -> Vec<(String, i64)> {
        let words = [&["top", "growth", "--since=1", "--json"], more, &[path]].concat();
        let output = run(&place, &words);
        assert!(output.status.success(), "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["generations"], serde_json::json!([1, 2]));
        let rows = said["growth"].as_array().unwrap().iter();
        rows.map(|row| {
            let key = ["path", "user", "group"].iter().find_map(|key| row[key].as_str()).unwrap();
            (key.strip_prefix(path).unwrap_or(key).to_owned(), row["grown_bytes"].as_i64().unwrap())
        })
        .collect()
    };
    // Without a time, since the oldest generation that is there.
    let default = run(&place, &["top", "growth", "--verbose", path]);
    assert!(String::from_utf8_lossy(&default.stderr).contains("from generation 2"), "{default:?}");
    assert_eq!(default.stdout, run(&place, &["top", "growth", "--since=1", path]).stdout);
    assert!(!default.stdout.is_empty());
    assert!(error_of(&place, &["top", "growth", "--at=1", path]).contains("nothing is kept"));
    assert!(error_of(&place, &["top", "growth", "-n", "0", path]).contains("1..=10000"));
    let row = |name: &str, bytes| (name.to_owned(), bytes);
    assert_eq!(top(&[]), [row("/a/file", 4000), row("/b/new", 3000)]);
    assert_eq!(top(&["-n", "1"]), [row("/a/file", 4000)]);
    assert_eq!(top(&["--by=directory"]), [row("/b", 2000)]);
    assert_eq!(top(&["--by=user"]), [row("54321", 3000)]);
    assert_eq!(top(&["--by", "group"]), [row("54322", 3000)]);
    let none = run(&place, &["top", "growth", "--since=2", path]);
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    let said = String::from_utf8(none.stderr).unwrap();
    assert_eq!(said, "canopy: nothing has grown since generation 2\n");
    let text = run(&place, &["top", "growth", "--since", "1", path]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, format!("   4.0K  {path}/a/file\n   3.0K  {path}/b/new\n"));
    for (words, expected) in [
        (&["top", "largest", "--since=1"][..], "--since and --by are for 'canopy top growth'"),
        (&["top", "growth", "--mine", "--since=1"], "growth is told of all users"),
        (&["top", "growth", "--user=0", "--since=1"], "growth is told of all users"),
        (&["top", "growth", "--since=3"], "generation 3 is not kept; the last is 2"),
        (&["top", "growth", "--since=2", "--at=1"], "--since is generation 2, which came after 1"),
        (&["diff", "1", "4"], "generation 4 is not kept; the last is 2"),
        (&["diff", "1", "2", "/no/such"], "no index covers /no/such"),
        (&["history", "/no/such"], "no index covers /no/such"),
    ] {
        assert!(error_of(&place, words).contains(expected), "{words:?}");
    }
    // What is below another path counts once, and no size hides others.
    let a = tree.join("a");
    assert_eq!(
        top(&[a.to_str().unwrap(), path, path]),
        [row("/a/file", 4000), row("/b/new", 3000)]
    );
    let history = run(&place, &["history", "--json", "--threads=1", path]).stdout;
    let history: serde_json::Value = serde_json::from_slice(&history).unwrap();
    let of = |at: usize, key: &str| history[at][key].as_i64().unwrap();
    assert_eq!((of(0, "generation"), of(0, "entries"), of(0, "bytes")), (1, 6, 92_000));
    assert_eq!((of(1, "generation"), of(1, "entries"), of(1, "bytes")), (2, 7, 9000));
    let du = |at| done(&place, &["du", "--at", at, "-s", "--block-size=1", path]);
    for (at, generation) in [(0, "1"), (1, "2")] {
        assert_eq!(
            du(generation),
            [format!("{}\t{path}", of(at, "disk_bytes"))].map(|line| line.replace('\t', "\\t"))
        );
    }
    let lines = run(&place, &["history", "--ascii", tree.join("b/new").to_str().unwrap()]).stdout;
    let lines = String::from_utf8(lines).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].ends_with("-        -"), "{lines:?}");
    assert!(lines[2].ends_with(&"#".repeat(30)), "{lines:?}");
    let count = String::from_utf8(run(&place, &["diff", "1", "2", "--count"]).stdout).unwrap();
    assert_eq!(
        count,
        "change    grown    entries\ncreated   +3.0K          1\ndeleted       0          0\n\
         changed    -84K          2\nmoved         0          1\n"
    );
}
