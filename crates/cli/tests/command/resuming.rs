//! Scans that are interrupted go on where they were, and end in the index that a scan without an
//! interruption makes. Needs root.

use crate::common;

use canopy_index::Index;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGKILL, Signal::SIGTERM, Signal::SIGHUP];

/// A tree of many small ones.
pub fn many_trees(root: &Path, random: &mut StdRng) {
    std::fs::create_dir(root).unwrap();
    for number in 0..30 {
        let tree = root.join(format!("t{number}"));
        random_tree(&tree, random, true);
        // In an order that no file system decides, so that a seed makes one site everywhere.
        let mut paths = all_paths(&tree);
        paths.sort();
        random_xattrs(&paths, random);
    }
}

fn index(place: &Fixture, index: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(&place.canopy);
    command.arg("--index").arg(index).arg("index").args(arguments).env("LC_ALL", "C.UTF-8");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Scans slowly, and sends a signal once it was noted `times` times how far the scan is. Returns
/// what the command said; it may have come to its end.
fn interrupt(
    place: &Fixture,
    location: &Path,
    arguments: &[&OsStr],
    signal: Signal,
    times: usize,
) -> Output {
    let slowly = ["--noted-every", "40", "--max-rate", "200", "--threads", "2"];
    let mut run = index(place, location, arguments).args(slowly).spawn().unwrap();
    let noted =
        || location.join("unfinished").metadata().ok().map(|it| (it.ino(), it.mtime_nsec()));
    let mut last = noted();
    let mut seen = 0;
    while seen < times && run.try_wait().unwrap().is_none() {
        let now = noted();
        seen += usize::from(now.is_some() && now != last);
        last = now;
        std::thread::sleep(Duration::from_micros(200));
    }
    // It may have ended.
    let _ = kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), signal);
    run.wait_with_output().unwrap()
}

pub fn finish(place: &Fixture, location: &Path, arguments: &[&OsStr]) -> (String, String) {
    let output = index(place, location, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, warned) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{warned}");
    (said, warned)
}

/// Asserts that two indexes give users the same answers about a tree.
pub fn assert_equal(place: &Fixture, one: &Path, other: &Path, tree: &Path, random: &mut StdRng) {
    let mut starts = vec![tree.to_owned()];
    let dirs = all_paths(tree).into_iter().filter(|path| path.symlink_metadata().unwrap().is_dir());
    starts.extend(dirs.filter(|_| random.random_bool(0.2)));
    let mut users = vec![None];
    users.extend((0..4).map(|_| Some(User::random(random))));
    let format = "%p %i %n %m %U %G %s %b %y %l %T@ %C@\\0";
    for user in users {
        let answer = |location: &Path, command: &str, options: &[&str]| {
            let mut all: Vec<&OsStr> =
                vec!["--index".as_ref(), location.as_os_str(), command.as_ref()];
            all.extend(starts.iter().map(|start| start.as_os_str()));
            all.extend(options.iter().map(OsStr::new));
            let output = match &user {
                Some(user) => user.run(place.canopy.as_os_str(), &all),
                None => Command::new(&place.canopy).args(&all).output().unwrap(),
            };
            (sorted(&output.stdout, 0), output.status.code())
        };
        for (command, options) in [
            ("find", &["-printf", format][..]),
            ("find", &["-xattr", "user.a", "-print0"]),
            ("du", &["-a0", "--block-size=1"]),
        ] {
            let (shown, expected) =
                (answer(one, command, options), answer(other, command, options));
            assert_same(&shown.0, &expected.0, &format!("{command} of {user:?}"));
            assert_eq!(shown.1, expected.1, "{command} of {user:?}");
        }
    }
    let values = |location: &Path| {
        let query = "SELECT * FROM xattrs";
        sorted(&place.canopy(location, &["sql".as_ref(), query.as_ref()]).stdout, b'\n')
    };
    assert_same(&values(one), &values(other), "values of extended attributes");
}

/// Asserts that the directory above whatever the index has is in it, too, and nothing is twice.
pub fn assert_sound(place: &Fixture, location: &Path, tree: &Path) {
    let output =
        place.canopy(location, &["find".as_ref(), tree.as_os_str(), "-print0".as_ref()]).stdout;
    let mut known = HashSet::new();
    for path in output.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
        assert!(known.insert(path.to_owned()), "{} is there twice", path.escape_ascii());
    }
    for path in &known {
        let path = Path::new(OsStr::from_bytes(path));
        let above = path.parent().unwrap().as_os_str().as_bytes();
        assert!(path == tree || known.contains(above), "{} is left", path.display());
    }
}

/// Where the answers come from until the scan is over.
fn answers_are_those_of(place: &Fixture, location: &Path, tree: &Path, before: Option<&[String]>) {
    let output = place.canopy(location, &["find".as_ref(), tree.as_os_str(), "-print0".as_ref()]);
    match before {
        Some(before) => assert_same(&sorted(&output.stdout, 0), before, "the old generation"),
        None => {
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let known = ["is not complete", "no index at"];
            assert!(known.iter().any(|known| said.contains(known)), "{said}");
        }
    }
}

fn paths(place: &Fixture, location: &Path, tree: &Path) -> Vec<String> {
    let arguments = ["find".as_ref(), tree.as_os_str(), "-print0".as_ref()];
    sorted(&place.canopy(location, &arguments).stdout, 0)
}

#[test]
fn a_scan_that_is_interrupted_anywhere_ends_as_one_that_is_not() {
    let mut went_on = 0;
    for seed in 0..4 {
        let mut random = seeded(400 + seed);
        let place = Fixture::new();
        let (tree, other) = (place.path("tree"), place.path("tree2"));
        let (location, fresh) = (place.path("index"), place.path("fresh"));
        many_trees(&tree, &mut random);
        random_tree(&other, &mut random, false);
        let mut arguments = vec![other.as_os_str(), tree.as_os_str()];
        let mut before = None;
        if seed % 2 == 1 {
            finish(&place, &location, &arguments);
            for number in 0..5 {
                let gone = tree.join(format!("t{}", random.random_range(0..30)));
                let _ = std::fs::remove_dir_all(gone);
                random_tree(&tree.join(format!("new{number}")), &mut random, true);
            }
            arguments.push("--incremental".as_ref());
            if seed == 3 {
                arguments.push("--trust-directory-times".as_ref());
            }
            before = Some(paths(&place, &location, &tree));
        }
        for round in 0..5 {
            let signal = SIGNALS[(round + seed as usize) % 4];
            let times = random.random_range(1..4);
            let ended = interrupt(&place, &location, &arguments, signal, times);
            if ended.status.code() == Some(0) {
                before = Some(paths(&place, &location, &tree));
                continue;
            }
            went_on += usize::from(String::from_utf8_lossy(&ended.stderr).contains("going on"));
            answers_are_those_of(&place, &location, &tree, before.as_deref());
        }
        finish(&place, &location, &arguments);
        assert!(!location.join("unfinished").exists() && !location.join("journal").exists());
        finish(&place, &fresh, &[other.as_os_str(), tree.as_os_str()]);
        assert_equal(&place, &location, &fresh, &tree, &mut random);
        assert_equal(&place, &location, &fresh, &other, &mut random);
        assert_sound(&place, &location, &tree);
        // Nothing is left of what was interrupted: the same as without it, once it is joined. Only
        // the number of bundles depends on which of them could stay.
        finish(&place, &location, &[other.as_os_str(), tree.as_os_str(), "--replace".as_ref()]);
        finish(&place, &fresh, &[other.as_os_str(), tree.as_os_str(), "--replace".as_ref()]);
        let files = |location: &Path| {
            let paths = all_paths(location).into_iter();
            let is_bundle = |path: &Path| path.to_string_lossy().ends_with("-bundle.bin");
            paths.filter(|path| path.is_file() && !is_bundle(path)).collect::<Vec<_>>()
        };
        let (left, fresh) = (files(&location), files(&fresh));
        assert_eq!(left.len(), fresh.len(), "{left:?}\n{fresh:?}");
    }
    assert!(went_on > 4, "{went_on}");
}

/// One run or the other lists each entry that the summary counts. Both list only the root and
/// half-listed directories, which count once.
#[test]
fn a_resumed_scan_lists_only_the_rest() {
    let place = Fixture::new();
    let tree = place.path("tree");
    // Scanning it slowly takes ten seconds.
    for dir in 0..50 {
        let dir = tree.join(dir.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        (0..40).for_each(|file| std::fs::write(dir.join(file.to_string()), "").unwrap());
    }
    let counted = ": 2000 files and 51 directories, ";
    let (said, _) = finish(&place, &place.path("fresh"), &[tree.as_os_str()]);
    assert!(said.contains(counted), "{said}");
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let location = place.path(&format!("index {signal}"));
        interrupt(&place, &location, &[tree.as_os_str()], signal, 4);
        interrupt(&place, &location, &[tree.as_os_str()], signal, 4);
        let (said, warned) = finish(&place, &location, &[tree.as_os_str()]);
        assert!(warned.contains("going on"), "{signal}: {warned}");
        assert!(said.contains(counted), "{signal}: {said}");
        let resumed = said.lines().find_map(|line| line.strip_prefix("resumed: ")).unwrap();
        let numbers: Vec<u64> = resumed.split(' ').flat_map(str::parse).collect();
        assert!((80..2050).contains(&numbers[0]), "{signal}: {resumed}");
        assert!((2..51).contains(&numbers[1]), "{signal}: {resumed}");
    }
}

#[test]
fn unreadable_entries_are_listed_by_both_runs() {
    let place = Fixture::new();
    let (tree, location, list) =
        (place.path("tree"), place.path("own/index"), place.path("own/list"));
    for dir in 0..50 {
        let closed = tree.join(dir.to_string()).join("closed");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::create_dir(place.path("own")).unwrap();
    std::os::unix::fs::chown(place.path("own"), Some(4321), Some(4321)).unwrap();
    let run = |more: &[&str]| {
        let arguments = ["--errors".as_ref(), list.as_os_str(), tree.as_os_str()];
        let mut command = index(&place, &location, &arguments);
        command.args(more).uid(4321).gid(4321).env("HOME", "/nonexistent");
        command.spawn().unwrap()
    };
    let listed = || {
        let text = std::fs::read_to_string(&list).unwrap();
        let lines = text.lines().map(str::to_owned).collect::<HashSet<_>>();
        assert_eq!(lines.len(), text.lines().count(), "{text}");
        lines
    };
    let mut first = run(&["--noted-every", "70", "--max-rate", "50", "--threads", "1"]);
    let mut wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() && first.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until(&|| location.join("unfinished").exists());
    // What is listed after the note comes again.
    let noted = listed().len();
    wait_until(&|| listed().len() > noted + 3);
    let _ = kill(Pid::from_raw(i32::try_from(first.id()).unwrap()), Signal::SIGKILL);
    let first = first.wait_with_output().unwrap();
    if !first.status.success() {
        let some = listed().len();
        assert!(some < 50, "{some}");
        // One is torn.
        let file = std::fs::File::options().write(true).open(&list).unwrap();
        file.set_len(file.metadata().unwrap().len() - 3).unwrap();
    }
    let output = run(&[]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(listed().len(), 50, "{:?}", listed());
    // Another run begins another list.
    for closed in std::fs::read_dir(&tree).unwrap() {
        std::fs::remove_dir(closed.unwrap().path().join("closed")).unwrap();
    }
    assert_eq!(run(&[]).wait().unwrap().code(), Some(0));
    assert_eq!(listed().len(), 0);
}

#[test]
fn a_slow_scan_of_a_large_directory_ends_when_it_is_told_to() {
    let place = Fixture::new();
    let (tree, location) = (place.path("tree"), place.path("index"));
    std::fs::create_dir(&tree).unwrap();
    (0..300).for_each(|file| std::fs::write(tree.join(file.to_string()), "").unwrap());
    let slowly = ["--max-rate", "4", "--threads", "2"];
    let run = index(&place, &location, &[tree.as_os_str()]).args(slowly).spawn().unwrap();
    // Until it reads the tree.
    let opened = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", run.id())).unwrap();
        files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|at| at == tree))
    };
    while !opened() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Most likely it waits for its next entry then.
    std::thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), Signal::SIGINT).unwrap();
    let ended = run.wait_with_output().unwrap();
    let warned = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(warned.contains("the same command goes on where this one ended"), "{warned}");
}

#[test]
fn a_tree_may_change_while_a_scan_of_it_is_interrupted() {
    for seed in 0..4 {
        let mut random = seeded(500 + seed);
        let place = Fixture::new();
        let (tree, location, fresh) =
            (place.path("tree"), place.path("index"), place.path("fresh"));
        many_trees(&tree, &mut random);
        let arguments = [tree.as_os_str()];
        for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGINT] {
            interrupt(&place, &location, &arguments, signal, 2);
            change(&tree, &mut random);
        }
        let output = index(&place, &location, &arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_sound(&place, &location, &tree);
        // What of it is old is known to be so.
        finish(&place, &location, &[tree.as_os_str(), "--incremental".as_ref()]);
        finish(&place, &fresh, &arguments);
        assert_equal(&place, &location, &fresh, &tree, &mut random);
    }
}

/// Moves, removes, makes and closes directories.
fn change(tree: &Path, random: &mut StdRng) {
    for number in 0..6 {
        let one = tree.join(format!("t{}", random.random_range(0..30)));
        let other = tree.join(format!("t{}", random.random_range(0..30)));
        match number {
            0 | 1 => drop(std::fs::rename(&one, other.join(format!("moved{number}")))),
            2 => drop(std::fs::remove_dir_all(one)),
            3 if one.exists() => {
                let place = one.join(format!("new{}", random.random_range(0..u32::MAX)));
                random_tree(&place, random, false);
            }
            _ if one.exists() => common::adorn(&one, random),
            _ => {}
        }
    }
}

#[test]
fn another_scan_begins_anew() {
    let place = Fixture::new();
    let tree = place.path("tree");
    // Scanning it slowly takes ten seconds.
    for dir in 0..2000 {
        std::fs::create_dir_all(tree.join(format!("{}/{dir}", dir % 10))).unwrap();
    }
    let fresh = place.path("fresh");
    finish(&place, &fresh, &[tree.as_os_str()]);
    let shard = |location: &Path| -> PathBuf {
        let list = std::fs::read_to_string(location.join("unfinished-files")).unwrap();
        // Copies that others have replaced are gone.
        let files = list.lines().skip(1).map(|line| location.join(line.split(' ').nth(2).unwrap()));
        files.into_iter().find(|file| file.exists()).unwrap()
    };
    let damage = |location: &Path| {
        let path = location.join("unfinished");
        let mut text = std::fs::read(&path).unwrap();
        let middle = text.len() / 2;
        text[middle] ^= 1;
        std::fs::write(path, text).unwrap();
    };
    let flip = |location: &Path| {
        let is_listings = |path: &PathBuf| path.to_string_lossy().ends_with("-listings.parquet");
        for path in all_paths(location).into_iter().filter(is_listings) {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[0] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
    };
    type TreeChange<'a> = (&'a str, &'a dyn Fn(&Path), &'a [&'a str]);
    let moved = place.path("moved");
    let replace = |_: &Path| {
        std::fs::rename(&tree, &moved).unwrap();
        assert!(Command::new("cp").arg("-a").arg(&moved).arg(&tree).status().unwrap().success());
        std::fs::remove_dir_all(&moved).unwrap();
    };
    let changes: [TreeChange<'_>; 8] = [
        ("with other options", &|_| (), &["--exclude", "nothing"]),
        ("with other options", &|_| (), &["--no-xattrs"]),
        ("--restart was given", &|_| (), &["--restart"]),
        ("is damaged", &damage, &[]),
        ("it is missing", &|location| std::fs::remove_file(shard(location)).unwrap(), &[]),
        (
            "the list of its files is missing",
            &|location| std::fs::remove_file(location.join("unfinished-files")).unwrap(),
            &[],
        ),
        ("listings.parquet is damaged", &flip, &[]),
        ("is another directory", &replace, &[]),
    ];
    for (number, (reason, change, options)) in changes.into_iter().enumerate() {
        let location = place.path(&format!("index{number}"));
        interrupt(&place, &location, &[tree.as_os_str()], Signal::SIGTERM, 1);
        let noted = location.join("unfinished").metadata().unwrap();
        assert_eq!((noted.mode() & 0o777, noted.uid()), (0o600, 0));
        change(&location);
        let mut arguments = vec![tree.as_os_str()];
        arguments.extend(options.iter().map(OsStr::new));
        let (said, warned) = finish(&place, &location, &arguments);
        assert!(warned.contains("all is scanned anew") && warned.contains(reason), "{warned}");
        assert!(!said.contains("resumed"), "{said}");
        assert_same(&paths(&place, &location, &tree), &paths(&place, &fresh, &tree), reason);
    }
}

/// An update in between publishes another generation, on which the scan is not based.
#[test]
fn an_index_that_was_written_since_is_scanned_anew() {
    let place = Fixture::new();
    let (tree, location) = (place.path("tree"), place.path("index"));
    // Scanning it slowly takes ten seconds.
    for dir in 0..2000 {
        std::fs::create_dir_all(tree.join(format!("{}/{dir}", dir % 10))).unwrap();
    }
    finish(&place, &location, &[tree.as_os_str()]);
    interrupt(&place, &location, &[tree.as_os_str()], Signal::SIGKILL, 2);
    let info = place.canopy(&location, &["info".as_ref()]).stdout;
    assert!(String::from_utf8_lossy(&info).contains("\nunfinished  a scan that began"));
    std::fs::create_dir(tree.join("new")).unwrap();
    assert!(place.canopy(&location, &["update".as_ref(), tree.as_os_str()]).status.success());
    assert!(!location.join("unfinished").exists() && !location.join("unfinished-files").exists());
    let (said, _) = finish(&place, &location, &[tree.as_os_str()]);
    assert!(!said.contains("resumed"), "{said}");
    assert!(paths(&place, &location, &tree).iter().any(|path| path.ends_with("/new")));
    assert_sound(&place, &location, &tree);
}

/// Notes of a run that found no change do not stand for the results of the next one.
#[test]
fn nothing_is_left_of_notes_where_nothing_has_changed() {
    let place = Fixture::new();
    let (tree, at) = (place.path("tree"), place.path("index"));
    let trees = [tree.join("first"), tree.join("second")];
    for path in
        trees.iter().flat_map(|tree| (0..9).map(move |number| tree.join(number.to_string())))
    {
        std::fs::create_dir_all(&path).unwrap();
        (0..100).for_each(|file| std::fs::write(path.join(file.to_string()), "").unwrap());
    }
    let trees = trees.iter().map(|tree| tree.as_os_str());
    let words: Vec<&OsStr> = trees.chain([OsStr::new("--incremental")]).collect();
    let noted = [&words[..], &["--noted-every", "20", "--threads", "3"].map(OsStr::new)].concat();
    // What a run that notes how far it is has published is as another one finds it.
    finish(&place, &at, &noted);
    for words in [&words, &noted, &noted] {
        let (said, _) = finish(&place, &at, words);
        assert!(said.starts_with("nothing has changed since generation 1: "), "{said}");
        assert!(!at.join("unfinished").exists());
    }
    // Nor does one that goes on publish anything.
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        interrupt(&place, &at, &words, signal, 2);
        let (said, warned) = finish(&place, &at, &words);
        assert!(warned.contains("going on"), "{warned}");
        assert!(said.starts_with("nothing has changed since generation 1: "), "{said}");
        assert!(!at.join("unfinished").exists());
    }
    std::fs::write(tree.join("first/0/new"), "").unwrap();
    let (said, _) = finish(&place, &at, &words);
    assert!(said.starts_with("generation 2: "), "{said}");
    assert_eq!(Index::open(&at).unwrap().sources().len(), 2);
    let words = ["find".as_ref(), tree.as_os_str(), "-name".as_ref(), "new".as_ref()];
    let found = place.canopy(&at, &words).stdout;
    assert!(!found.is_empty());
}

#[test]
fn a_scan_goes_on_where_a_full_disk_takes_no_note() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for path in (0..20).map(|number| tree.join(number.to_string())) {
        std::fs::create_dir_all(&path).unwrap();
        (0..20).for_each(|file| std::fs::write(path.join(file.to_string()), "").unwrap());
    }
    let disk = place.small_disk("disk", "4m");
    let location = disk.0.join("index");
    let mut run = index(&place, &location, &[tree.as_os_str()])
        .args(["--noted-every", "20", "--max-rate", "100", "--threads", "1"])
        .spawn()
        .unwrap();
    let mut told = std::io::BufReader::new(run.stderr.take().unwrap()).lines();
    while !location.join("unfinished").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let filler = disk.0.join("filler");
    let fill = std::fs::File::create(&filler).and_then(|mut file| {
        std::iter::repeat_with(|| std::io::Write::write_all(&mut file, &[0; 4096]))
            .find_map(std::result::Result::err)
            .map_or(Ok(()), Err)
    });
    assert!(fill.is_err());
    let warned = told.next().unwrap().unwrap();
    assert!(warned.contains("cannot be noted") && warned.contains("No space left"), "{warned}");
    // Once is enough.
    std::thread::sleep(Duration::from_millis(700));
    std::fs::remove_file(filler).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(told.count(), 0);
    assert_eq!(paths(&place, &location, &tree).len(), 1 + 20 * 21);
}
