//! Killed runs, readers during publication, sources that change under the scan, and wrong input.
//! Needs root.

use crate::common;

use common::{Place, random_tree, seeded};
use rand::RngExt;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn count_files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count_files(&path) } else { 1 }).sum()
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

fn lines(place: &Place, index: &Path, tree: &Path) -> usize {
    let output = place.canopy(index, &["find".as_ref(), tree.as_os_str()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.iter().filter(|&&byte| byte == b'\n').count()
}

#[test]
fn a_killed_run_loses_nothing() {
    let place = Place::new();
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

#[test]
fn readers_see_one_generation_or_the_other() {
    let place = Place::new();
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
    let place = Place::new();
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
    let place = Place::new();
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
    check(&index, &["find", &format!("{tree_path}/none")], 1, "no such file");
    check(&index, &["du", "/proc/self"], 1, "no index covers");
    check(&index, &["find", tree_path, "-frobnicate"], 1, "unknown predicate");
    check(&index, &["sql", "SELECT nonsense FROM entries"], 2, "nonsense");
    check(&index, &["sql", "DROP TABLE entries"], 2, "DDL not supported");
    check(&index, &["sql", "COPY entries TO '/tmp/x.csv'"], 2, "DML not supported");
    check(&index, &["sql", "SELECT * FROM '/etc/passwd'"], 2, "not found");
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
    let place = Place::new();
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
