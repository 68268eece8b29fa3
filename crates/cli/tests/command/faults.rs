//! Killed runs, readers during publication, sources that change under the scan, and wrong input.
//! Needs root.

use crate::common;

use common::{Fixture, random_tree, seeded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Counts the files of an index, but those that stay for readers alone, and the lists of these.
fn count_files(index: &Path) -> usize {
    let mut files = common::all_paths(index);
    files.retain(|path| path.is_file());
    let is_list =
        |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("leaving-");
    let (lists, files): (Vec<_>, Vec<_>) = files.iter().partition(is_list);
    let lists: String = lists.iter().map(|list| std::fs::read_to_string(list).unwrap()).collect();
    let leaving: Vec<&str> = lists.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let stays = |path: &&&PathBuf| {
        let below = path.strip_prefix(index).unwrap().to_string_lossy();
        !leaving.contains(&&*below)
    };
    files.iter().filter(stays).count()
}

/// A tree of plain files, `files` in each of `dirs` directories of different owners.
fn plain_tree(root: &Path, dirs: u32, files: u32) {
    for dir in 0..dirs {
        let path = root.join(format!("dir{dir}"));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..files {
            std::fs::write(path.join(format!("file{file}")), "x").unwrap();
        }
        std::os::unix::fs::chown(&path, Some(5000 + dir % 20), None).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
    }
}

fn lines(place: &Fixture, index: &Path, tree: &Path) -> usize {
    let output = place.canopy(index, &["find".as_ref(), tree.as_os_str()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|&&byte| byte == b'\n').count()
}

#[test]
fn a_killed_run_loses_nothing() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    plain_tree(&tree, 60, 30);
    place.index(&index, &tree);
    place.index(&index, &tree);
    let (expected, settled) = (1 + 60 * 31, count_files(&index));
    assert_eq!(lines(&place, &index, &tree), expected);
    let mut random = seeded(7);
    for _ in 0..60 {
        let mut run = Command::new(&place.canopy)
            .args([OsStr::new("--index"), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.random_range(0..40_000)));
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(lines(&place, &index, &tree), expected);
    }
    place.index(&index, &tree);
    place.index(&index, &tree);
    assert_eq!(lines(&place, &index, &tree), expected);
    assert_eq!(count_files(&index), settled);
}

/// Ctrl-C and its like change no answer, and what a run leaves goes with the next one that comes to
/// its end; a run that is so far as to publish goes on.
#[test]
fn an_interrupted_run_changes_no_answer() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    plain_tree(&tree, 200, 30);
    place.index(&index, &tree);
    place.index(&index, &tree);
    let (expected, settled) = (1 + 200 * 31, count_files(&index));
    let mut random = seeded(11);
    let mut interrupted = 0;
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    for round in 0..45 {
        let run = Command::new(&place.canopy)
            .args([OsStr::new("--index"), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
            .args(["--memory", "16M"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
        let process = Pid::from_raw(i32::try_from(run.id()).unwrap());
        // It may have ended.
        let _ = kill(process, signals[round % 3]);
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!said.contains("panicked"), "{said}");
        interrupted += usize::from(said.contains("interrupted; nothing was published"));
        assert_eq!(lines(&place, &index, &tree), expected, "round {round}: {said}");
    }
    assert!(interrupted > 0);
    place.index(&index, &tree);
    place.index(&index, &tree);
    assert_eq!(count_files(&index), settled);
    assert_eq!(lines(&place, &index, &tree), expected);
}

/// As nohup(1) starts it.
#[test]
fn an_ignored_signal_interrupts_nothing() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    plain_tree(&tree, 50, 30);
    let script = "trap '' HUP; (kill -HUP $$; sleep 0.01; kill -HUP $$) & exec \"$@\"";
    let ended = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&place.canopy)
        .args([OsStr::new("--index"), index.as_os_str(), "index".as_ref(), tree.as_os_str()])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(lines(&place, &index, &tree), 1 + 50 * 31);
}

#[test]
fn readers_see_one_generation_or_the_other() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    plain_tree(&tree, 40, 5);
    place.index(&index, &tree);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Every generation has 20 files more or 20 less in each directory.
            for round in 0..30 {
                for dir in 0..40 {
                    for file in 0..20 {
                        let path = tree.join(format!("dir{dir}/more{file}"));
                        if round % 2 == 0 {
                            std::fs::write(path, "").unwrap()
                        } else {
                            std::fs::remove_file(path).unwrap()
                        }
                    }
                }
                place.index(&index, &tree);
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut reads = 0;
        while !done.load(Ordering::Relaxed) || reads < 20 {
            let seen = lines(&place, &index, &tree);
            assert!(seen == 1 + 40 * 6 || seen == 1 + 40 * 26, "{seen}");
            reads += 1;
        }
    });
}

#[test]
fn a_source_may_change_under_the_scan() {
    let place = Fixture::new();
    let (tree, index, errors) = (place.path("tree"), place.path("index"), place.path("errors"));
    plain_tree(&tree, 50, 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut random = seeded(3);
            while !done.load(Ordering::Relaxed) {
                let at = random.random_range(0..25);
                let (from, to) = (tree.join(format!("dir{at}")), tree.join(format!("moved{at}")));
                let (from, to) = if from.exists() { (from, to) } else { (to, from) };
                std::fs::rename(&from, &to).unwrap();
                let file = tree.join(format!("dir30/file{}", random.random_range(0..20)));
                if std::fs::remove_file(&file).is_err() {
                    std::fs::write(&file, "").unwrap();
                }
                // A directory turns into a link to elsewhere, which must not be followed.
                let swapped = tree.join("swapped");
                let _ = std::fs::remove_file(&swapped);
                std::fs::create_dir(&swapped).unwrap();
                std::fs::remove_dir(&swapped).unwrap();
                std::os::unix::fs::symlink("/etc", &swapped).unwrap();
            }
        });
        for _ in 0..40 {
            let output = place.canopy(
                &index,
                &["index".as_ref(), "--errors".as_ref(), errors.as_os_str(), tree.as_os_str()],
            );
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let listed = std::fs::read_to_string(&errors).unwrap().lines().count();
            assert_eq!(
                output.status.code(),
                Some(i32::from(listed > 0)),
                "{text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let found = place.canopy(&index, &["find".as_ref(), tree.as_os_str()]);
            assert!(!String::from_utf8_lossy(&found.stdout).contains("swapped/"));
        }
        done.store(true, Ordering::Relaxed);
        changes.join().unwrap();
    });
}

#[test]
fn wrong_input_is_one_clear_error() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    std::fs::create_dir(&tree).unwrap();
    random_tree(&tree.join("random"), &mut seeded(1), true);
    let check = |index: &Path, arguments: &[&str], code: i32, words: &str| {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let output = place.canopy(index, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    };
    let tree_path = tree.to_str().unwrap();
    check(&index, &["find", tree_path], 2, "no index at");
    check(&index, &["index", "/no/such/tree"], 2, "cannot open /no/such/tree");
    check(&index, &["index", "/etc/passwd"], 2, "Not a directory");
    check(&index, &["index", "--memory", "1", tree_path], 2, "at least 16M");
    check(&index, &["index", "--exclude", "[", tree_path], 2, "--exclude");
    check(&index, &["index", tree_path], 0, "");
    check(&index, &["find", "/proc/self"], 1, "no index covers");
    check(&index, &["find", &format!("{tree_path}/none")], 1, "No such file");
    check(&index, &["du", "/proc/self"], 1, "no index covers");
    check(&index, &["find", tree_path, "-frobnicate"], 1, "unknown predicate");
    check(&index, &["sql", "SELECT nonsense FROM entries"], 2, "nonsense");
    check(&index, &["sql", "DROP TABLE entries"], 2, "queries change nothing");
    check(&index, &["sql", "COPY entries TO '/tmp/x.csv'"], 2, "queries change nothing");
    check(&index, &["sql", "SELECT * FROM '/etc/passwd'"], 2, "no table '/etc/passwd'");
    check(&index, &["index", "--name", "other", tree_path], 0, "");
    let name_taken = place.path("second");
    std::fs::create_dir(&name_taken).unwrap();
    check(
        &index,
        &["index", "--name", "other", name_taken.to_str().unwrap()],
        2,
        "belongs to the source",
    );
}

#[test]
fn an_index_is_never_indexed_and_excludes_hold() {
    let place = Fixture::new();
    let tree = place.path("tree");
    std::fs::create_dir_all(tree.join("keep/deep")).unwrap();
    std::fs::create_dir_all(tree.join("skip/deep")).unwrap();
    std::fs::write(tree.join("keep/a.tmp"), "").unwrap();
    let index = tree.join("index");
    for _ in 0..2 {
        let output = place.canopy(
            &index,
            &[
                "index".as_ref(),
                "--exclude".as_ref(),
                "*.tmp".as_ref(),
                "--exclude".as_ref(),
                "/skip".as_ref(),
                tree.as_os_str(),
            ],
        );
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = place
        .canopy(&index, &["find".as_ref(), tree.as_os_str(), "-printf".as_ref(), "%P\\n".as_ref()]);
    assert_eq!(common::sorted(&output.stdout, b'\n'), ["index", "keep", "keep/deep"]);
}

/// The output of `canopy info` for root.
fn info(place: &Fixture, index: &Path) -> serde_json::Value {
    let output = place.canopy(index, &["info".as_ref(), "--json".as_ref()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The mount at a source may be away: that does not count as an empty tree.
#[test]
fn a_source_that_is_not_mounted_stays() {
    let place = Fixture::new();
    let index = place.path("index");
    let disk = place.small_disk("disk", "1m");
    let at = disk.0.clone();
    plain_tree(&at, 2, 2);
    place.index(&index, &at);
    drop(disk);
    let path = at.as_os_str();
    for words in [
        &["index".as_ref(), path][..],
        &["index".as_ref(), "--incremental".as_ref(), path],
        &["update".as_ref(), path],
        &["update".as_ref(), "--recursive".as_ref(), path],
    ] {
        let output = place.canopy(&index, words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains("it seems not to be mounted"), "{words:?}: {errors}");
        assert_eq!(lines(&place, &index, &at), 1 + 2 * 3);
    }
    // Another file system with something in it is what it is; so is one that was emptied.
    std::fs::write(at.join("file"), "").unwrap();
    place.index(&index, &at);
    assert_eq!(lines(&place, &index, &at), 2);
    std::fs::remove_file(at.join("file")).unwrap();
    place.index(&index, &at);
    assert_eq!(lines(&place, &index, &at), 1);
}

#[test]
fn one_source_that_fails_keeps_its_state_and_stops_no_other() {
    let place = Fixture::new();
    let (index, good, bad) = (place.path("index"), place.path("good"), place.path("bad"));
    plain_tree(&good, 3, 3);
    plain_tree(&bad, 2, 2);
    let run = |paths: &[&Path], code: i32| {
        let mut arguments = vec![OsStr::new("index")];
        arguments.extend(paths.iter().map(|path| path.as_os_str()));
        let output = place.canopy(&index, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        errors
    };
    run(&[&bad, &good], 0);
    assert_eq!(info(&place, &index)["failures"], serde_json::json!([]));
    let away = place.path("away");
    std::fs::rename(&bad, &away).unwrap();
    std::fs::write(good.join("new"), "").unwrap();
    // The good one is published, before and after the bad one; the bad one stays.
    let other = place.path("other");
    plain_tree(&other, 1, 1);
    let errors = run(&[&good, &bad, &other], 1);
    let stays = format!("{} stays as it was in the index", bad.display());
    assert!(errors.contains("cannot open") && errors.contains(&stays), "{errors}");
    assert_eq!(lines(&place, &index, &good), 1 + 3 * 4 + 1);
    assert_eq!(lines(&place, &index, &bad), 1 + 2 * 3);
    assert_eq!(lines(&place, &index, &other), 1 + 2);
    // Since when, over several runs, also such that publish nothing.
    let first = info(&place, &index);
    assert_eq!(first["failures"][0]["root"], bad.to_str().unwrap());
    assert!(first["failures"][0]["reason"].as_str().unwrap().contains("No such file"), "{first}");
    assert!(run(&[&bad], 2).contains("nothing was published"));
    let second = info(&place, &index);
    assert_eq!(second["failures"][0]["since_ns"], first["failures"][0]["since_ns"]);
    assert_ne!(second["failures"][0]["last_ns"], first["failures"][0]["last_ns"]);
    assert_eq!(second["generation"], first["generation"]);
    let shown = place.canopy(&index, &["info".as_ref()]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains(&format!("failed      {} since ", bad.display())), "{shown}");
    assert!(!shown.contains("os error"), "{shown}");
    assert!(!second.to_string().contains("os error"), "{second}");
    // Others do not learn of it.
    let user = common::User { uid: 2001, gid: 3001, groups: Vec::new() };
    let arguments = ["--index".as_ref(), index.as_os_str(), "info".as_ref(), "--json".as_ref()];
    let seen = user.run(place.canopy.as_os_str(), &arguments).stdout;
    let seen: serde_json::Value = serde_json::from_slice(&seen).unwrap();
    assert_eq!(seen["failures"], serde_json::json!([]));
    // It ends with a run that succeeds.
    std::fs::rename(&away, &bad).unwrap();
    run(&[&bad], 0);
    assert_eq!(info(&place, &index)["failures"], serde_json::json!([]));
}

#[test]
fn a_full_disk_keeps_the_index_and_takes_a_refresh_that_replaces() {
    let place = Fixture::new();
    let tree = place.path("tree");
    plain_tree(&tree, 40, 50);
    let disk = place.small_disk("disk", "16m");
    let index = disk.0.join("index");
    place.index(&index, &tree);
    let (expected, used) = (1 + 40 * 51, disk.used_bytes());
    disk.resize(used + used / 2);
    // No second generation fits: an error, and all of it goes away again.
    for _ in 0..3 {
        let output = place.canopy(&index, &["index".as_ref(), tree.as_os_str()]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("No space left"), "{errors}");
        // With one generation, 'canopy compact --replace' has nothing to do.
        assert!(errors.contains("'canopy index --replace' needs half"), "{errors}");
        assert!(!errors.contains("canopy compact"), "{errors}");
        assert_eq!(lines(&place, &index, &tree), expected);
        assert!(disk.used_bytes() <= used + 16 * 1024, "{} > {used}", disk.used_bytes());
    }
    let failures = &info(&place, &index)["failures"];
    assert!(failures[0]["reason"].as_str().unwrap().contains("No space left"), "{failures}");
    for _ in 0..3 {
        let replace = ["index".as_ref(), "--replace".as_ref(), tree.as_os_str()];
        let output = place.canopy(&index, &replace);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert_eq!(lines(&place, &index, &tree), expected);
        assert!(disk.used_bytes() <= used + 16 * 1024, "{} > {used}", disk.used_bytes());
    }
    assert_eq!(info(&place, &index)["failures"], serde_json::json!([]));
    // What cannot be scanned anew is not given up.
    std::fs::rename(&tree, place.path("away")).unwrap();
    let replace = ["index".as_ref(), "--replace".as_ref(), tree.as_os_str()];
    assert_eq!(place.canopy(&index, &replace).status.code(), Some(2));
    assert_eq!(lines(&place, &index, &tree), expected);
}

/// A query for one source does not need the sealed files of another one.
#[test]
fn damage_behind_a_gate_stops_nobody_elsewhere() {
    let place = Fixture::new();
    let index = place.path("index");
    let trees = ["one", "two"].map(|name| place.path(name));
    for tree in &trees {
        std::fs::create_dir_all(tree.join("gate/home")).unwrap();
        std::fs::write(tree.join("gate/home/file"), "").unwrap();
        let gate = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(tree.join("gate"), gate).unwrap();
        place.index(&index, tree);
    }
    let user = crate::common::User { uid: 4321, gid: 4321, groups: Vec::new() };
    let look = |tree: &Path| {
        let file = tree.join("gate/home/file");
        let words = ["--index".as_ref(), index.as_os_str(), "stat".as_ref(), file.as_os_str()];
        let output = user.run(place.canopy.as_os_str(), &words);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(trees.iter().all(|tree| look(tree).0));
    let files = std::fs::read_dir(index.join("everyone")).unwrap();
    let mut sealed = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("1-") && name.ends_with("-sealed.bin")
    });
    let first = sealed.next().unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let (found, errors) = look(&trees[0]);
    assert!(!found && errors.contains("is damaged"), "{errors}");
    assert!(look(&trees[1]).0);
    // It is published, too, however often files are joined.
    for _ in 0..12 {
        std::fs::write(trees[1].join("gate/home/file"), "x").unwrap();
        let home = trees[1].join("gate/home");
        let output = place.canopy(&index, &["update".as_ref(), home.as_os_str()]);
        assert!(output.status.success(), "{output:?}");
    }
    assert!(look(&trees[1]).0);
    place.index(&index, &trees[0]);
    assert!(trees.iter().all(|tree| look(tree).0));
}
