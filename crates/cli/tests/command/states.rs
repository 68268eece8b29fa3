//! The state of an index as commands report it: age, completeness, place and size. Needs root.

use crate::common;

use common::{Fixture, SmallDisk, User, on_terminal};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn run(place: &Fixture, index: &Path, words: &[&str]) -> Output {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    place.canopy(index, &words)
}

/// Makes a tree of directories with files.
fn tree(place: &Fixture, name: &str, directories: usize, files: usize) -> PathBuf {
    let tree = place.path(name);
    for directory in 0..directories {
        let directory = tree.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..files).for_each(|file| fs::write(directory.join(file.to_string()), "x").unwrap());
    }
    tree
}

/// A scan that was begun for workers said nothing, and commands said that there is no index.
#[test]
fn a_first_scan_that_is_not_over_is_told_with_what_is_left() {
    let place = Fixture::new();
    let (tree, index) = (tree(&place, "tree", 3, 2), place.path("index"));
    let tree = tree.to_str().unwrap();
    let output = run(&place, &index, &["index", "--level", "2", "--workers", "0", tree]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let expected = "the scan is begun, with 1 part left; 'canopy index --worker' works on it";
    assert!(said(&output).contains(expected), "{}", said(&output));
    let expected = format!(
        "the index at {} is not complete: workers share its first scan, of {tree}, with 1 part left; \
         'canopy index --worker' ",
        index.display()
    );
    for words in [&["info"][..], &["find", tree], &["du", tree], &["sql", "SELECT 1"]] {
        let output = run(&place, &index, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(&expected), "{words:?}: {}", said(&output));
    }
    // Others learn that it is not complete, and not of what.
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let words = ["--index".as_ref(), index.as_os_str(), "info".as_ref()];
    let told = said(&user.run(place.canopy.as_os_str(), &words));
    assert!(told.contains("is not complete: workers share its first scan; "), "{told}");
    assert!(!told.contains(tree), "{told}");
    let output = run(&place, &index, &["index", "--worker"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains(": 6 files and 4 directories, "), "{}", said(&output));
    // Beside a generation that answers, it is told, too.
    let output = run(&place, &index, &["index", "--level", "2", "--workers", "0", tree]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let told = said(&run(&place, &index, &["info"]));
    assert!(told.contains("unfinished  a scan of ") && told.contains("1 part left; "), "{told}");
}

/// The command that makes room depends on what takes it.
#[test]
fn a_full_disk_says_what_makes_room() {
    let place = Fixture::new();
    let tree = tree(&place, "tree", 40, 500);
    let tree = tree.to_str().unwrap();
    let disk: SmallDisk = place.small_disk("disk", "64m");
    let index = disk.0.join("index");
    disk.resize(64 * 1024);
    let output = run(&place, &index, &["index", tree]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("another place with --index"), "{}", said(&output));
    disk.resize(64 << 20);
    assert!(run(&place, &index, &["index", "--keep=3", tree]).status.success());
    let used = disk.used_bytes();
    disk.resize(used + used / 4);
    let output = run(&place, &index, &["index", tree]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let advice = "'canopy compact --keep N' with a smaller N frees";
    assert!(said(&output).contains(advice), "{}", said(&output));
}

/// The numbers were 98,163, 98,164 and 97,263 for one tree: without the root, with it, and without
/// directories.
#[test]
fn counts_are_those_of_find_everywhere() {
    let place = Fixture::new();
    let (tree, index) = (tree(&place, "tree", 7, 30), place.path("index"));
    // A name that is not a directory counts as a file, and so does each name of an inode.
    std::os::unix::fs::symlink("d1", tree.join("link")).unwrap();
    fs::hard_link(tree.join("d1/1"), tree.join("again")).unwrap();
    let tree = tree.to_str().unwrap();
    let find = |more: &[&str]| {
        let output = Command::new("find").arg(tree).args(more).output().unwrap();
        output.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    let (entries, directories) = (find(&[]), find(&["-type", "d"]));
    let counted = format!("{} files and {directories} directories", entries - directories);
    let told = said(&run(&place, &index, &["index", tree]));
    assert!(told.starts_with(&format!("generation 1: {counted}, ")), "{told}");
    let told = said(&run(&place, &index, &["index", "--incremental", tree]));
    assert!(told.contains(&format!(": {counted}, ")), "{told}");
    let told = said(&run(&place, &index, &["info"]));
    let line = format!("entries     {entries} visible to you: {counted}, ");
    assert!(told.contains(&line) && told.contains(&format!("tree: {counted}, ")), "{told}");
    // How the index is divided is for those who ask.
    assert!(!told.contains("classes") && !told.contains("shards"), "{told}");
    let told = said(&run(&place, &index, &["info", "--verbose"]));
    assert!(told.contains("classes     ") && told.contains("shards      "), "{told}");
    let json = |words: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(&place, &index, words).stdout).unwrap()
    };
    let info = json(&["info", "--json"]);
    let all = (&info["visible_entries"], &info["visible_files"], &info["visible_directories"]);
    let expected = (entries.into(), (entries - directories).into(), directories.into());
    assert_eq!(all, (&expected.0, &expected.1, &expected.2));
    let summary = json(&["index", "--json", tree]);
    let all = (&summary["entries"], &summary["files"], &summary["directories"]);
    assert_eq!(all, (&expected.0, &expected.1, &expected.2));
    let plan = json(&["index", "--dry-run", "--json", tree]);
    assert_eq!(plan["sources"][0]["entries"], expected.0);
    let shared = ["index", "--level", "1", "--workers", "2", tree];
    let told = said(&run(&place, &place.path("shared"), &shared));
    assert!(told.contains(&format!("generation 1: {counted}, ")), "{told}");
}

/// No command said where a user's own index is, and that it answers from then on.
#[test]
fn users_learn_where_their_index_is() {
    let place = Fixture::new();
    let (tree, home) = (tree(&place, "tree", 1, 1), place.path("home"));
    fs::create_dir(&home).unwrap();
    chown(&home, Some(2001), Some(3001)).unwrap();
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let config = place.path("site.toml");
    fs::write(&config, format!("index = {:?}\n", place.path("site"))).unwrap();
    let run = |words: &[&str]| {
        let mut command = user.command();
        command.arg(&place.canopy).args(words).current_dir("/").env("HOME", &home);
        command.env("CANOPY_SITE_CONFIG", &config);
        for name in ["CANOPY_INDEX", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.output().unwrap()
    };
    let tree = tree.to_str().unwrap();
    let own = home.join(".local/share/canopy/index");
    let told = String::from_utf8(run(&["index", tree]).stderr).unwrap();
    let expected = format!("canopy: your own index is at {}, for you alone", own.display());
    assert!(told.starts_with(&expected) && !told.contains("the site's"), "{told}");
    place.index(&place.path("site"), Path::new(tree));
    let told = String::from_utf8(run(&["index", tree]).stderr).unwrap();
    assert!(told.starts_with(&expected), "{told}");
    assert!(
        told.contains(&format!("answers about {tree} from now on, before the site's")),
        "{told}"
    );
    let quiet = run(&["index", "--quiet", tree]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{}", said(&quiet));
    // A place that the user named is not reported.
    let named = run(&["--index", home.join("named").to_str().unwrap(), "index", tree]);
    assert!(named.stderr.is_empty(), "{}", said(&named));
}

/// Answers of an index that nothing brought up to date looked like any others.
#[test]
fn old_answers_are_marked_on_a_terminal() {
    let place = Fixture::new();
    let (old, new) = (tree(&place, "old", 1, 1), tree(&place, "new", 1, 1));
    let index = place.path("index");
    place.index(&index, &old);
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(2100));
    place.index(&index, &new);
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    let canopy = format!("{} --index {}", place.canopy.display(), index.display());
    let shown = |setting: &str, words: &str| {
        let line = format!("CANOPY_STALE_AFTER={setting} {canopy} {words}");
        let (shown, code) = on_terminal(&line, "C.UTF-8");
        assert_eq!(code, Some(0), "{words}");
        String::from_utf8_lossy(&shown).into_owned()
    };
    let footer = format!("canopy: this answer may be out of date: {old} was indexed ");
    for words in [
        format!("find {old}"),
        format!("find {new} {old} -maxdepth 0"),
        format!("find {}", place.dir.path().display()),
        format!("du -s {old}/d0"),
        format!("ls {old}"),
        format!("stat {old}"),
        "locate d0".to_owned(),
        format!("report {old}"),
        format!("top largest {old}"),
        "sql 'SELECT 1 AS a'".to_owned(),
    ] {
        let told = shown("2s", &words);
        let last = told.lines().last().unwrap_or_default();
        assert!(last.starts_with(&footer) && last.ends_with(" ago"), "{words}: {told}");
        assert!(!shown("1d", &words).contains("this answer may be out of date"), "{words}");
    }
    // On a busy machine, the new one is old by now.
    let limit = format!("{}s", began.elapsed().as_secs());
    place.index(&index, Path::new(new));
    assert!(!shown(&limit, &format!("find {new}")).contains("this answer may be out of date"));
    assert!(shown(&limit, &format!("find {old}")).contains(&footer));
    assert!(!shown("none", &format!("find {old}")).contains("this answer may be out of date"));
    // A day, where nothing is said; and nothing where nobody looks.
    let (told, _) = on_terminal(&format!("{canopy} find {old}"), "C.UTF-8");
    assert!(!String::from_utf8_lossy(&told).contains("this answer may be out of date"));
    let mut piped = Command::new(&place.canopy);
    piped.arg("--index").arg(&index).args(["find", old]).env("CANOPY_STALE_AFTER", "1s");
    assert!(piped.output().unwrap().stderr.is_empty());
    let mut wrong = Command::new(&place.canopy);
    wrong.arg("--index").arg(&index).args(["find", old]).env("CANOPY_STALE_AFTER", "old");
    let told = said(&wrong.output().unwrap());
    assert!(told.contains("CANOPY_STALE_AFTER: give an age such as 26h or 7d"), "{told}");
}

/// No monitor noticed that the timer of the index had stopped.
#[test]
fn monitors_learn_how_old_an_index_is() {
    let place = Fixture::new();
    let (old, new) = (tree(&place, "old", 1, 1), tree(&place, "n\"ew", 2, 3));
    let index = place.path("index");
    place.index(&index, &old);
    std::thread::sleep(Duration::from_millis(2100));
    place.index(&index, &new);
    let output = run(&place, &index, &["info", "--max-age", "26h"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "2 sources indexed within 26 h\n");
    let output = run(&place, &index, &["info", "--max-age=2s"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let told = said(&output);
    let expected = format!("canopy: older than 2 s: {} was indexed ", old.display());
    assert!(told.starts_with(&expected) && told.lines().count() == 1, "{told}");
    assert!(!told.contains("n\"ew"), "{told}");
    // A scan that finds all as it was makes it new.
    let words = ["index", "--incremental", old.to_str().unwrap()];
    assert!(run(&place, &index, &words).status.success());
    assert_eq!(run(&place, &index, &["info", "--max-age=2s"]).status.code(), Some(0));
    for wrong in ["0h", "1", "h", "-1d", "soon"] {
        let output = run(&place, &index, &["info", &format!("--max-age={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", said(&output));
    }
    let file = place.path("canopy.prom");
    fs::write(&file, "old").unwrap();
    let inode = fs::metadata(&file).unwrap().ino();
    let words = ["info", "--prometheus", file.to_str().unwrap()];
    let output = run(&place, &index, &words);
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let text = fs::read_to_string(&file).unwrap();
    let about = fs::metadata(&file).unwrap();
    // It is replaced as a whole, and the collector may read it.
    assert!(about.ino() != inode && about.permissions().mode() & 0o444 == 0o444);
    let label = format!("{{source=\"{}\"}}", new.to_str().unwrap().replace('"', "\\\""));
    for line in [
        "# TYPE canopy_index_generation gauge".to_owned(),
        "canopy_index_generation 2".to_owned(),
        format!("canopy_index_files{label} 6"),
        format!("canopy_index_directories{label} 3"),
        format!("canopy_index_failing{label} 0"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    // Not into the index.
    let inside = index.join("x.prom");
    let output = run(&place, &index, &["info", "--prometheus", inside.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(!inside.exists());
    // Failures are in the numbers.
    fs::rename(&old, place.path("away")).unwrap();
    fs::write(&old, "").unwrap();
    assert!(!run(&place, &index, &["index", old.to_str().unwrap()]).status.success());
    assert!(run(&place, &index, &words).status.success());
    let failing = format!("canopy_index_failing{{source=\"{}\"}} 1", old.display());
    assert!(fs::read_to_string(&file).unwrap().contains(&failing));
}

/// A source that was never indexed was invisible to monitors, and a mistyped path stayed for ever.
#[test]
fn configured_sources_that_were_never_indexed_are_reported() {
    let place = Fixture::new();
    let tree = tree(&place, "tree", 1, 1);
    let (index, missing) = (place.path("index"), place.path("missing"));
    let config = place.path("site.toml");
    fs::write(&config, format!("sources = [{tree:?}, {missing:?}]\n")).unwrap();
    let canopy = |words: &[&str]| {
        let mut command = Command::new(&place.canopy);
        command.env("CANOPY_SITE_CONFIG", &config).arg("--index").arg(&index).args(words);
        command.output().unwrap()
    };
    assert_eq!(canopy(&["index"]).status.code(), Some(1));
    // A mistyped one, and a file.
    for wrong in [place.path("typo"), tree.join("d0/0")] {
        assert_eq!(canopy(&["index", wrong.to_str().unwrap()]).status.code(), Some(2));
    }
    let told = said(&canopy(&["info"]));
    let failed: Vec<&str> = told.lines().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(failed.len(), 1, "{told}");
    assert!(failed[0].starts_with(&format!("failed      {} since ", missing.display())), "{told}");
    let output = canopy(&["info", "--max-age", "1d"]);
    assert_eq!(output.status.code(), Some(1));
    let never = format!("canopy: {} was never indexed\n", missing.display());
    assert_eq!(String::from_utf8_lossy(&output.stderr), never);
    // It is none any more.
    let output = canopy(&["source", "remove", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).contains("no longer tells that it failed"), "{output:?}");
    assert_eq!(canopy(&["info", "--max-age", "1d"]).status.code(), Some(0));
    assert_eq!(canopy(&["source", "remove", missing.to_str().unwrap()]).status.code(), Some(2));
}
