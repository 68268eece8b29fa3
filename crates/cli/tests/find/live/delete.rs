//! `-delete`: what find(1) removes, and nothing else.

use super::place::{Trial, deep_tree, listed};
use crate::common::{Fixture, User, all_paths, assert_same, command_as, random_tree, seeded};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

const EXPRESSIONS: &[&str] = &[
    "-delete",
    "-type f -delete",
    "-type l -delete",
    "-name *a* -delete",
    "-mindepth 1 -delete",
    "-maxdepth 1 -delete",
    "-empty -delete",
    "-type d -empty -delete",
    "-size +8 -delete -print",
    "! -name d* -delete",
    "-type d -delete",
    "-delete -o -print",
    "-depth -name d* -prune -o -delete",
    "-mtime +100 -delete",
    "-user root -delete",
    "-name a* -exec true ; -delete",
    "-xdev -delete -printf %f\\n",
];

fn run(
    program: &OsStr,
    first: &[&str],
    user: Option<&User>,
    directory: &Path,
    line: &str,
) -> Output {
    let mut command = command_as(user, program);
    command.args(first).args(line.split_whitespace()).current_dir(directory);
    command.env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// Two equal trees, one for each command.
fn pair(place: &Fixture, seed: u64) -> [std::path::PathBuf; 2] {
    ["ours", "theirs"].map(|name| {
        let above = place.path(name);
        if above.exists() {
            fs::remove_dir_all(&above).unwrap();
        }
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
        random_tree(&above.join("tree"), &mut seeded(seed), false);
        above
    })
}

#[test]
fn files_that_find_removes_are_removed() {
    let trial = Trial::empty();
    let place = &trial.place;
    for (number, line) in EXPRESSIONS.iter().enumerate() {
        for round in 0..6 {
            let seed = 6000 + number as u64 * 10 + round;
            let user = (round % 2 == 1).then(|| User::random(&mut seeded(seed)));
            let [ours, theirs] = pair(place, seed);
            let start = if round < 4 { "tree" } else { "./tree/" };
            let line = format!("{start} {line}");
            let expected = run("find".as_ref(), &[], user.as_ref(), &theirs, &line);
            let shown =
                run(place.canopy.as_os_str(), &["find", "--live"], user.as_ref(), &ours, &line);
            let what =
                format!("seed {seed} {user:?} {line}: {}", String::from_utf8_lossy(&shown.stderr));
            assert_same(&listed(&ours), &listed(&theirs), &what);
            assert_eq!(shown.status.code(), expected.status.code(), "{what}");
            let lines = |output: &Output| {
                let mut lines: Vec<u8> = output.stdout.clone();
                lines.sort_unstable();
                lines
            };
            assert_eq!(lines(&shown), lines(&expected), "{what}");
        }
    }
}

#[test]
fn the_working_directory_stays() {
    let trial = Trial::empty();
    let place = &trial.place;
    for (line, code, left) in [
        (". -delete", 0, true),
        ("./ -delete", 1, true),
        ("-delete", 0, true),
        (". -mindepth 1 -delete", 0, true),
    ] {
        let tree = place.path("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), "").unwrap();
        let output = run(place.canopy.as_os_str(), &["find", "--live"], None, &tree, line);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(tree.exists(), left, "{line}");
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 0, "{line}");
    }
}

#[test]
fn deleting_is_refused_where_it_could_be_meant_otherwise() {
    let trial = Trial::new();
    let told = |words: &[&str]| {
        let output = trial.canopy(None, words);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&["tree", "-name", "file", "-delete"]).contains("add --live"));
    let pruned = ["tree", "-name", "dir", "-prune", "-o", "-name", "none", "-delete"];
    let live: Vec<&str> = ["--live"].into_iter().chain(pruned).collect();
    assert!(told(&live).contains("just explicitly use the -depth option"));
    trial.compare(None, &pruned, "");
    assert!(trial.place.path("tree/file").exists());
}

#[test]
fn deep_trees_are_removed() {
    let trial = Trial::empty();
    deep_tree(&trial.place.path("deep"), 1500);
    let output = trial.canopy(None, &["--live", "deep", "-delete"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!trial.place.path("deep").exists());
    deep_tree(&trial.place.path("deep"), 100);
    let output = Command::new("prlimit")
        .arg("--nofile=40:40")
        .arg(&trial.place.canopy)
        .args(["find", "--live", "deep", "-delete"])
        .current_dir(trial.place.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!trial.place.path("deep").exists());
}

/// Directories are swapped for links to a tree outside while what is in them is removed.
#[test]
fn nothing_outside_is_removed_whatever_is_swapped_meanwhile() {
    let trial = Trial::empty();
    let place = &trial.place;
    let outside = place.path("outside");
    for number in 0..20 {
        let directory = outside.join(format!("d{number}"));
        fs::create_dir_all(&directory).unwrap();
        (0..20).for_each(|file| fs::write(directory.join(format!("f{file}")), "").unwrap());
    }
    let before = all_paths(&outside).len();
    for round in 0..30 {
        let tree = place.path("tree");
        for number in 0..20 {
            let directory = tree.join(format!("top/d{number}"));
            fs::create_dir_all(&directory).unwrap();
            (0..20).for_each(|file| fs::write(directory.join(format!("f{file}")), "").unwrap());
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // The whole tree, and single directories in it, become links to what is outside
                    // and directories again.
                    swap(&tree.join("top"), &tree.join("aside"), &outside);
                    for number in 0..20 {
                        let name = format!("top/d{number}");
                        swap(
                            &tree.join(&name),
                            &tree.join("away"),
                            &outside.join(format!("d{number}")),
                        );
                    }
                }
            });
            let threads = ["1", "2", "8"][round % 3];
            let output = run(
                place.canopy.as_os_str(),
                &["find", "--threads", threads, "--live"],
                None,
                place.dir.path(),
                "tree -mindepth 1 -delete",
            );
            over.store(true, Ordering::Relaxed);
            assert!(matches!(output.status.code(), Some(0 | 1)));
        });
        assert_eq!(all_paths(&outside).len(), before, "round {round}");
        fs::remove_dir_all(&tree).unwrap();
    }
}

/// Makes a directory a link for a moment.
fn swap(directory: &Path, aside: &Path, target: &Path) {
    if fs::rename(directory, aside).is_ok() {
        if symlink(target, directory).is_ok() {
            std::thread::yield_now();
            fs::remove_file(directory).ok();
        }
        fs::rename(aside, directory).ok();
    }
}
