//! `canopy check`: damage of every kind of file of an index is named, with the directories that it is
//! of, and `--repair` makes all answers those of find(1) again, for every user. Needs root.

use crate::common;

use common::{Fixture, User, all_paths, sorted};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A tree that several users see differently, with an index that has every kind of file.
struct Site {
    place: Fixture,
}

/// That of the derived table.
const QUERY: &str = "SELECT path, size FROM entries WHERE size = 6";

const USERS: [(u32, u32); 3] = [(2001, 3001), (2002, 3002), (2003, 3003)];

impl Site {
    fn new() -> Self {
        let place = Fixture::new();
        let tree = place.path("tree");
        for (name, mode, uid, gid) in [
            ("", 0o755, 0, 0),
            ("open", 0o755, 0, 0),
            ("open/deep", 0o755, 0, 0),
            ("team", 0o750, 0, 3002),
            ("bob", 0o700, 2001, 0),
            ("root", 0o700, 0, 0),
            ("gate", 0o711, 0, 0),
            ("gate/in", 0o755, 0, 0),
            ("gate/large", 0o755, 0, 0),
        ] {
            let path = tree.join(name);
            fs::create_dir(&path).unwrap();
            let files = if name == "gate/large" { 4200 } else { 20 };
            (0..files).for_each(|file| fs::write(path.join(format!("f{file}.txt")), "x").unwrap());
            chown(&path, Some(uid), Some(gid)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(tree.join("open/f1.txt"), "user.a", b"value", flags).unwrap();
        // Enough of them for a file of their own.
        for number in 0..600 {
            let first = tree.join(format!("open/deep/l{number}"));
            fs::write(&first, "linked").unwrap();
            fs::hard_link(&first, tree.join(format!("open/m{number}"))).unwrap();
        }
        let site = Site { place };
        fs::create_dir(site.place.path("gone")).unwrap();
        site.done(&["index", "GONE"]);
        site.done(&["index", "TREE"]);
        site.done(&["table", "derive", "links", QUERY]);
        // Earlier failures are known.
        fs::rename(site.place.path("gone"), site.place.path("away")).unwrap();
        assert_eq!(site.run(&["index", "GONE"]).status.code(), Some(2));
        fs::rename(site.place.path("away"), site.place.path("gone")).unwrap();
        site
    }

    fn index(&self) -> PathBuf {
        self.place.path("index")
    }

    fn run(&self, words: &[&str]) -> Output {
        let word = |word: &&str| match *word {
            "TREE" => self.place.path("tree").into(),
            "GONE" => self.place.path("gone").into(),
            word => std::ffi::OsString::from(word),
        };
        let words: Vec<_> = words.iter().map(word).collect();
        let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        self.place.canopy(&self.index(), &words)
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
        said(&output)
    }

    fn as_user(&self, (uid, gid): (u32, u32), words: &[&str]) -> Output {
        let user = User { uid, gid, groups: Vec::new() };
        let index = self.index();
        let mut all: Vec<&OsStr> = vec!["--index".as_ref(), index.as_os_str()];
        all.extend(words.iter().map(|word| OsStr::new(*word)));
        user.run(self.place.canopy.as_os_str(), &all)
    }

    /// The directories that a search begins from: some are found only by those who name them.
    fn starts(&self) -> Vec<String> {
        let names = ["", "gate/in", "gate/large", "bob", "team"];
        let path = |name| self.place.path("tree").join(name);
        names.map(|name| path(name).to_str().unwrap().trim_end_matches('/').to_owned()).into()
    }

    /// Asserts that everybody gets the answers of find(1).
    fn is_right(&self, what: &str) {
        let starts = self.starts();
        let format = ["-printf", "%p %s %i %m %U %n\\n"];
        for user in [(0, 0)].into_iter().chain(USERS) {
            let mut words: Vec<&str> = vec!["find"];
            words.extend(starts.iter().map(String::as_str));
            words.extend(format);
            let ours = self.as_user(user, &words);
            let (uid, gid) = user;
            let user = User { uid, gid, groups: Vec::new() };
            let rest: Vec<&OsStr> = words[1..].iter().map(|word| OsStr::new(*word)).collect();
            let theirs = user.run("find".as_ref(), &rest);
            let (ours, errors) = (sorted(&ours.stdout, b'\n'), said(&ours));
            assert_eq!(ours, sorted(&theirs.stdout, b'\n'), "{what} as {uid}: {errors}");
            assert!(ours.len() > 1000, "{what} as {uid}");
        }
        let query = "SELECT count(*) AS n FROM links";
        let counted = self.done(&["sql", "--format", "csv", query]);
        assert!(counted.contains("1200"), "{what}: {counted}");
    }

    /// The first file of the index that is called so.
    fn file(&self, name: &str) -> PathBuf {
        if self.index().join(name).is_file() {
            return self.index().join(name);
        }
        let (place, end) = name.split_once('*').unwrap_or(("", name));
        let is_one = |path: &PathBuf| {
            let path = path.strip_prefix(self.index()).unwrap().to_str().unwrap();
            let is_found = path.starts_with(place) && path.contains(end);
            // Those behind gates are asked for by that name.
            is_found && path.contains("/gated/") == name.contains("/gated/")
        };
        let mut found: Vec<_> = all_paths(&self.index())
            .into_iter()
            .filter(|path| path.is_file())
            .filter(is_one)
            .collect();
        // The newest file counts.
        found.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
        found.pop().unwrap_or_else(|| panic!("no file {name}"))
    }

    fn keep(&self) {
        copy(&self.index(), &self.place.path("sound"));
    }

    fn restore(&self) {
        copy(&self.place.path("sound"), &self.index());
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn flip(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    // Behind the first line of a document, and in the data of a shard.
    let at = file.metadata().unwrap().len() / 2;
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Each kind of file, with a directory of the tree that its damage must be said of.
const KINDS: [(&str, &str); 22] = [
    ("CURRENT", ""),
    ("CURRENT.copy", ""),
    ("lock", ""),
    ("failures", ""),
    ("catalog-", ""),
    ("lists/*u2001-", "uid 2001"),
    ("lists/*g3002-", "the members of gid 3002"),
    ("manifests-", "tree"),
    ("-bundle.bin", "tree"),
    ("everyone/*manifest-", "tree"),
    ("classes/*manifest-", "tree"),
    ("everyone/*-page.bin", "tree"),
    ("classes/*/gated/", "tree/gate"),
    ("everyone/*-listings.parquet", "tree"),
    ("everyone/*-entries.parquet", "tree"),
    ("everyone/*-dirs.parquet", "tree"),
    ("everyone/*-usage.parquet", "tree"),
    ("everyone/*-hardlinks.parquet", "tree"),
    ("everyone/*-summaries.parquet", "tree"),
    ("everyone/*-xattrs.parquet", "tree"),
    ("-sealed.bin", "tree"),
    ("table-links-", ""),
];

/// Every kind of damage was an error of the Parquet library, or silent, and nothing repaired it.
#[test]
fn damage_of_every_kind_of_file_is_named_and_repaired() {
    let site = Site::new();
    site.is_right("at first");
    let sound = site.done(&["check"]);
    assert!(sound.contains(" is sound: generation ") && sound.lines().count() == 1, "{sound}");
    site.keep();
    for (kind, of) in KINDS {
        for is_gone in [false, true] {
            let kind = kind.replace("classes/*/gated/", "/gated/");
            if ["failures", "CURRENT.copy"].contains(&&*kind) && is_gone {
                // There need not be one.
                continue;
            }
            let file = site.file(&kind);
            match is_gone {
                true => fs::remove_file(&file).unwrap(),
                false => flip(&file),
            }
            let what = format!("{}, gone: {is_gone}", file.display());
            let output = site.run(&["check"]);
            assert_eq!(output.status.code(), Some(1), "{what}: {}", said(&output));
            let told = said(&output);
            let line = told.lines().find(|line| line.starts_with(file.to_str().unwrap()));
            let line = line.unwrap_or_else(|| panic!("{what} is not in {told}"));
            assert!(line.contains(of) && line.contains("): "), "{what}: {line}");
            assert!(!told.contains("Parquet") && !told.contains("External"), "{told}");
            assert!(!told.contains("os error"), "{told}");
            assert!(told.contains("'canopy check --repair' "), "{what}: {told}");
            let repaired = site.run(&["check", "--repair", "--threads=2", "--memory=64M"]);
            // The query of a table is nowhere else.
            let is_lost = kind == "manifests-";
            let code = repaired.status.code();
            assert_eq!(code, Some(i32::from(is_lost)), "{what}: {}", said(&repaired));
            let told = site.done(&["check"]);
            assert!(told.contains(" is sound: "), "{what}: {told}");
            if is_lost {
                let told = "the query of the table links is lost: derive it again";
                assert!(said(&repaired).contains(told), "{}", said(&repaired));
                site.done(&["table", "derive", "links", QUERY]);
            }
            site.is_right(&what);
            // Writing commands work as before.
            let again = site.done(&["index", "--incremental", "TREE"]);
            assert!(again.contains("generation "), "{what}: {again}");
            site.restore();
        }
    }
}

/// An error of a query is one sentence, and an incremental run does not say that nothing has changed.
#[test]
fn damaged_data_is_told_in_one_sentence_and_found_by_incremental_runs() {
    let site = Site::new();
    let file = site.file("everyone/*-entries.parquet");
    flip(&file);
    let output = site.as_user(USERS[0], &["find", &site.starts()[0], "-size", "+0"]);
    let told = said(&output);
    let expected = format!(
        "canopy: {} (files) is damaged: the checksum of the block at byte ",
        file.display()
    );
    let line = told.lines().find(|line| line.starts_with(&expected));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    assert!(line.ends_with("can repair it with 'canopy check --repair'"), "{line}");
    let told = site.done(&["index", "--incremental", "TREE"]);
    assert!(
        told.contains(" is damaged: all of ") && !told.contains("nothing has changed"),
        "{told}"
    );
    site.is_right("after an incremental run");
    assert!(site.done(&["check"]).contains(" is sound"));
}

/// The bug: ends of lines in JSON were shown as `?`.
#[test]
fn json_of_a_check_is_json() {
    let site = Site::new();
    let output = site.run(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sound"], &report["damages"]), (&true.into(), &serde_json::json!([])));
    let file = site.file("everyone/*-entries.parquet");
    flip(&file);
    let output = site.run(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sound"], false);
    assert_eq!(report["damages"][0]["remedy"], "scan");
}

/// Owners and permissions are part of who sees what.
#[test]
fn permissions_that_are_others_are_named_and_made_right() {
    let site = Site::new();
    site.keep();
    let all = all_paths(&site.index());
    let classes = site.index().join("classes");
    let class = all.iter().find(|path| path.parent() == Some(&classes)).unwrap().clone();
    let page = site.file("everyone/*-page.bin");
    for (path, mode) in [
        (class.clone(), 0o755),
        (class, 0o700),
        (classes, 0o700),
        (site.index().join("lists"), 0o755),
        (site.index().join("everyone"), 0o700),
        (site.index().join("CURRENT"), 0o600),
        (page, 0o600),
    ] {
        // A mode alone leaves the ACL of a directory.
        rustix::fs::removexattr(&path, "system.posix_acl_access").ok();
        let before = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let what = format!("{} {mode:o} instead of {before:o}", path.display());
        let output = site.run(&["check"]);
        let told = said(&output);
        if before & 0o7777 != mode {
            assert_eq!(output.status.code(), Some(1), "{what}: {told}");
            assert!(told.contains(path.to_str().unwrap()), "{what}: {told}");
        }
        site.done(&["check", "--repair"]);
        site.is_right(&what);
        assert!(site.done(&["check"]).contains(" is sound"), "{what}");
        site.restore();
    }
}

/// Users check what they may read of the site's index, and repair nothing.
#[test]
fn users_check_what_they_may_read() {
    let site = Site::new();
    site.keep();
    let output = site.as_user(USERS[2], &["check"]);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains(" is sound, as far as you may read it: generation "), "{told}");
    // Files that only others may read do not concern them.
    let own = site.file("lists/*u2001-");
    flip(&own);
    assert_eq!(site.as_user(USERS[2], &["check"]).status.code(), Some(0));
    let output = site.as_user(USERS[0], &["check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("whoever writes the index can repair it"), "{}", said(&output));
    site.restore();
    flip(&site.file("everyone/*-entries.parquet"));
    let output = site.as_user(USERS[2], &["check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        !said(&output).contains("bob") && !said(&output).contains("/root"),
        "{}",
        said(&output)
    );
    let refused = site.as_user(USERS[2], &["check", "--repair"]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("only who writes the index at "), "{}", said(&refused));
    // There, it is for the caller to make one.
    let missing = site.place.canopy(&site.place.path("none"), &["check".as_ref()]);
    assert_eq!(missing.status.code(), Some(2), "{}", said(&missing));
    assert!(said(&missing).contains("no index at "), "{}", said(&missing));
    assert!(!site.place.path("none").exists());
}

/// `CURRENT` alone said which generations are kept: without it, all of the past was lost.
#[test]
fn the_past_stays_where_the_pointer_to_it_is_damaged() {
    let site = Site::new();
    site.done(&["index", "--incremental", "--keep=5", "TREE"]);
    fs::write(site.place.path("tree/open/later"), "x").unwrap();
    site.done(&["update", site.place.path("tree/open").to_str().unwrap()]);
    let kept = |site: &Site| {
        let info: serde_json::Value =
            serde_json::from_str(&site.done(&["info", "--json"])).unwrap();
        (info["kept"].clone(), info["retention"].clone())
    };
    let before = kept(&site);
    let older = before.0[0]["generation"].to_string();
    let path = site.place.path("tree/open/later");
    let then = ["find", "--at", &older, path.to_str().unwrap()];
    let was_missing = site.run(&then).status.code();
    assert_eq!(was_missing, Some(1));
    site.keep();
    for has_copy in [true, false] {
        for name in ["CURRENT", "manifests-", "-bundle.bin"] {
            let file = site.file(name);
            fs::write(&file, "damaged").unwrap();
            if !has_copy {
                fs::remove_file(site.index().join("CURRENT.copy")).unwrap();
            }
            let repaired = site.run(&["check", "--repair"]);
            let told = said(&repaired);
            assert_eq!(repaired.status.code(), Some(0), "{name} {has_copy}: {told}");
            assert!(!told.contains("remove the index"), "{told}");
            let (generations, retention) = kept(&site);
            let has = |generation: &serde_json::Value| {
                generations
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|it| it["generation"] == generation["generation"])
            };
            assert!(before.0.as_array().unwrap().iter().all(has), "{name}: {generations}");
            if has_copy || name != "CURRENT" {
                assert_eq!(retention, before.1, "{name}");
            }
            assert_eq!(site.run(&then).status.code(), was_missing, "{name}");
            site.is_right(name);
            site.restore();
        }
    }
    // Files of an older generation alone are lost, which is reported; the others are as they were.
    let old = before.0.as_array().unwrap().last().unwrap()["generation"].to_string();
    let file = site.index().join(format!("manifests-{old}.bin"));
    fs::write(&file, "damaged").unwrap();
    let output = site.run(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let told = format!("nothing brings back what only generation {old} has");
    assert!(said(&output).contains(&told), "{}", said(&output));
    site.done(&["check", "--repair"]);
    site.is_right("an older generation");
}

/// Without its catalog, what the writer goes by cannot be made again but from the past.
#[test]
fn an_older_generation_stands_for_one_that_is_lost() {
    let site = Site::new();
    site.keep();
    for name in ["manifests-", "catalog-"] {
        fs::write(site.file(name), "damaged").unwrap();
    }
    let output = site.run(&["check", "--repair"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("does not suffice to repair the index"), "{}", said(&output));
    site.restore();
    site.done(&["index", "--incremental", "--keep=5", "TREE"]);
    fs::write(site.place.path("tree/open/later"), "x").unwrap();
    site.done(&["update", site.place.path("tree/open").to_str().unwrap()]);
    for name in ["manifests-", "catalog-"] {
        fs::write(site.file(name), "damaged").unwrap();
    }
    site.done(&["check", "--repair"]);
    site.is_right("from an older generation");
    assert!(site.done(&["check"]).contains(" is sound"));
}

/// A repair that is killed or interrupted has changed nothing that answers go by.
#[test]
fn a_repair_that_ends_early_loses_nothing() {
    let site = Site::new();
    let file = site.file("everyone/*-xattrs.parquet");
    flip(&file);
    flip(&site.index().join("CURRENT"));
    for (signal, wait_ms) in [
        (Signal::SIGKILL, 20),
        (Signal::SIGKILL, 150),
        (Signal::SIGINT, 400),
        (Signal::SIGKILL, 500),
    ] {
        let mut repair = Command::new(&site.place.canopy);
        repair.arg("--index").arg(site.index()).args(["check", "--repair", "--max-rate=1000"]);
        let mut repair = repair.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        kill(Pid::from_raw(i32::try_from(repair.id()).unwrap()), signal).unwrap();
        assert!(!repair.wait().unwrap().success());
        let output = site.run(&["check"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        if !said(&output).contains("CURRENT") {
            site.is_right("after a repair that ended early");
        }
    }
    site.done(&["check", "--repair"]);
    site.is_right("at last");
    assert!(site.done(&["check"]).contains(" is sound"));
}

/// An imported source cannot be scanned: it stays, and the command reports what to do.
#[test]
fn imports_are_to_be_imported_again() {
    let site = Site::new();
    let trace = site.place.path("trace");
    let tree = site.place.path("tree");
    let exported = site.run(&["export", "--format=gufi-trace", "TREE"]);
    fs::write(&trace, exported.stdout).unwrap();
    let index = site.place.path("imported");
    let run = |words: &[&OsStr]| site.place.canopy(&index, words);
    let format = ["import", "--format=gufi-trace", "--root=/imported"].map(OsStr::new);
    let words = [&format[..], &[trace.as_os_str()]].concat();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = run(&["index".as_ref(), tree.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let files = all_paths(&index);
    let files = files.iter().filter(|path| path.to_str().unwrap().ends_with("-entries.parquet"));
    files.for_each(|path| flip(path));
    let output = run(&["check".as_ref(), "--repair".as_ref(), "--json".as_ref()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["sound"], &report["whole"]), (&false.into(), &true.into()));
    // Sources that could be scanned are repaired.
    for damage in report["damages"].as_array().unwrap() {
        assert_eq!(
            (&damage["remedy"], &damage["sources"][0]["root"]),
            (&"scan".into(), &"/imported".into())
        );
    }
    assert!(
        report["remedies"].to_string().contains("/imported was not scanned: import"),
        "{report}"
    );
    assert_eq!(run(&words).status.code(), Some(0));
    let output = run(&["check".as_ref()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

/// A user's own index has one class and other permissions.
#[test]
fn users_repair_their_own_index() {
    let place = Fixture::new();
    let (tree, home) = (place.path("tree"), place.path("home"));
    for directory in [&tree, &home] {
        fs::create_dir(directory).unwrap();
        chown(directory, Some(2001), Some(3001)).unwrap();
    }
    (0..50).for_each(|file| fs::write(tree.join(file.to_string()), "x").unwrap());
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let run = |words: &[&str]| {
        let mut command = user.command();
        command.arg(&place.canopy).args(words).current_dir("/").env("HOME", &home);
        command.env("CANOPY_SITE_CONFIG", "/dev/null");
        for name in ["CANOPY_INDEX", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.output().unwrap()
    };
    let tree = tree.to_str().unwrap();
    assert!(run(&["index", tree]).status.success());
    let found = sorted(&run(&["find", tree]).stdout, b'\n');
    assert_eq!(found.len(), 51);
    let index = home.join(".local/share/canopy/index");
    let told = said(&run(&["check"]));
    assert!(told.contains(" is sound: "), "{told}");
    // Root can look at it, and has it be as it is.
    let by_root = place.canopy(&index, &["check".as_ref()]);
    assert_eq!(by_root.status.code(), Some(0), "{}", said(&by_root));
    copy(&index, &place.path("sound"));
    for end in ["CURRENT", "lock", "catalog-", "manifests-", "-bundle", "manifest-", "-entries"] {
        let files = all_paths(&index);
        let is_one = |path: &&PathBuf| path.is_file() && path.to_str().unwrap().contains(end);
        let file = files.iter().find(is_one).unwrap();
        flip(file);
        assert_eq!(run(&["check"]).status.code(), Some(1), "{end}");
        let repaired = run(&["check", "--repair"]);
        assert_eq!(repaired.status.code(), Some(0), "{end}: {}", said(&repaired));
        assert_eq!(sorted(&run(&["find", tree]).stdout, b'\n'), found, "{end}");
        copy(&place.path("sound"), &index);
    }
}

/// Without `CURRENT`, all commands but `check` said that there was no index, and `canopy index` made
/// a new one in its place: the other sources and the past were gone.
#[test]
fn an_index_without_its_pointer_is_damaged_and_not_made_anew() {
    let site = Site::new();
    site.keep();
    let tree = site.place.path("tree");
    let below = tree.join("open");
    let below = below.to_str().unwrap();
    for lost in [&["CURRENT"][..], &["CURRENT", "CURRENT.copy"]] {
        lost.iter().for_each(|name| fs::remove_file(site.index().join(name)).unwrap());
        let before = all_paths(&site.index());
        for words in [
            &["find", below][..],
            &["du", below],
            &["info"],
            &["sql", "SELECT count(*) FROM entries"],
            &["index", "TREE"],
            &["index", "--incremental", "TREE"],
            &["index", "--restart", "TREE"],
            &["index", "--dry-run", "TREE"],
            &["index", "--level=1", "--workers=1", "TREE"],
            &["update", below],
            &["compact"],
            &["source", "remove", "TREE"],
            &["table", "drop", "links"],
        ] {
            let output = site.run(words);
            let told = said(&output);
            assert_eq!(output.status.code(), Some(2), "{lost:?} {words:?}: {told}");
            let damaged =
                "CURRENT (the number of the current generation) is damaged: it is missing";
            assert!(told.contains(damaged), "{lost:?} {words:?}: {told}");
            assert!(told.contains("'canopy check --repair' repairs it"), "{words:?}: {told}");
            assert!(!told.contains("no index at"), "{words:?}: {told}");
        }
        assert_eq!(all_paths(&site.index()), before);
        let output = site.as_user(USERS[0], &["find", below]);
        let expected = "whoever writes the index can repair it with 'canopy check --repair'";
        assert!(said(&output).contains(expected), "{}", said(&output));
        site.done(&["check", "--repair"]);
        site.is_right("after the pointer was lost");
        site.done(&["index", "TREE"]);
        assert!(site.done(&["source", "list"]).contains("gone"));
        site.restore();
    }
}

/// An index whose file `lock` was lost was said to be none, with advice to name another directory.
#[test]
fn an_index_without_its_lock_is_named_as_damaged() {
    let site = Site::new();
    site.keep();
    for (content, lost) in [
        (None, &[][..]),
        (Some(""), &[]),
        (Some("12345\n"), &[]),
        (None, &["CURRENT"]),
        (None, &["CURRENT.copy"]),
    ] {
        let lock = site.index().join("lock");
        match content {
            None => fs::remove_file(&lock).unwrap(),
            Some(content) => fs::write(&lock, content).unwrap(),
        }
        lost.iter().for_each(|name| fs::remove_file(site.index().join(name)).unwrap());
        for words in [&["index", "TREE"][..], &["compact"]] {
            let output = site.run(words);
            let told = said(&output);
            assert_eq!(output.status.code(), Some(2), "{content:?} {lost:?}: {told}");
            // Where both are lost, either is named.
            let is_named = told.contains("lock (the key of the index) is damaged: it ")
                || lost.contains(&"CURRENT")
                    && told.contains("CURRENT (the number of the current generation) is damaged");
            assert!(is_named, "{told}");
            assert!(told.contains("'canopy check --repair' repairs it"), "{told}");
        }
        site.done(&["check", "--repair"]);
        site.is_right("after the lock was lost");
        site.restore();
    }
}

/// Commands that write refuse a directory that others can write to, and `check` called it sound.
#[test]
fn a_directory_that_others_can_write_to_is_not_sound() {
    let site = Site::new();
    let around = site.index().parent().unwrap().to_owned();
    for directory in [site.index(), around] {
        let mode = |mode| fs::Permissions::from_mode(mode);
        let before = fs::metadata(&directory).unwrap().permissions();
        fs::set_permissions(&directory, mode(0o777)).unwrap();
        let path = directory.display();
        let advice = format!("others can write to it; 'chmod go-w {path}'");
        let checked = site.run(&["check"]);
        assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
        assert!(said(&checked).contains(&advice), "{}", said(&checked));
        for words in [&["check", "--repair"][..], &["index", "TREE"]] {
            let refused = site.run(words);
            assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", said(&refused));
            assert!(said(&refused).contains(&advice), "{words:?}: {}", said(&refused));
        }
        fs::set_permissions(&directory, before).unwrap();
        assert!(site.done(&["check"]).contains(" is sound: "));
    }
}

/// A repair advised to repair, and nothing said how to end damage that it cannot repair.
#[test]
fn damage_of_older_generations_alone_ends_with_them() {
    let site = Site::new();
    site.done(&["index", "--incremental", "--keep=5", "TREE"]);
    let old = site.file("everyone/*-entries.parquet");
    fs::write(site.place.path("tree/open/later"), "x").unwrap();
    site.done(&["index", "TREE"]);
    flip(&old);
    fs::remove_file(site.file("-bundle.bin")).unwrap();
    let checked = said(&site.run(&["check"]));
    assert!(checked.contains("'canopy check --repair' "), "{checked}");
    let output = site.run(&["check", "--repair"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!said(&output).contains("'canopy check --repair'"), "{}", said(&output));
    assert!(!said(&output).contains("os error"), "{}", said(&output));
    assert!(said(&output).contains("'canopy compact --keep none' ends this"), "{}", said(&output));
    site.done(&["compact", "--keep=none"]);
    assert!(site.done(&["check"]).contains(" is sound: "));
    site.is_right("without older generations");
}

/// Users were advised to remove an index of another format that is root's.
#[test]
fn users_who_may_not_remove_an_old_index_learn_who_may() {
    let site = Site::new();
    let current = site.index().join("CURRENT");
    let bytes = fs::read(&current).unwrap();
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let line = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    words[2] = (words[2].parse::<u32>().unwrap() - 1).to_string();
    fs::write(&current, [words.join(" ").as_bytes(), &bytes[end..]].concat()).unwrap();
    let by_root = said(&site.run(&["info"]));
    assert!(by_root.contains("; remove the index and index its sources again"), "{by_root}");
    let by_user = said(&site.as_user(USERS[0], &["info"]));
    let expected = "; whoever writes the index can remove it and index its sources again";
    assert!(by_user.contains(expected), "{by_user}");
}
