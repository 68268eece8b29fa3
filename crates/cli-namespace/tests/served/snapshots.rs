//! Snapshots of a namespace on servers: by commands and mounts, while clients write and processes die.

use crate::common::{as_user, ns, success, wait_until};
use crate::site::Site;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn snapshot(place: &str, words: &[&str]) -> Output {
    let [verb, rest @ ..] = words else { panic!("no verb") };
    ns("snapshot").arg(verb).arg(place).args(rest).output().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names =
        Vec::from_iter(entries.map(|one| one.unwrap().file_name().into_string().unwrap()));
    names.sort();
    names
}

#[test]
fn a_snapshot_shows_the_tree_as_it_was() {
    let mut site = Site::with(4, 2, &["--split-entries", "64", "--chunk-size", "64K"]);
    let (one, other) = (site.mount("one", &[]), site.mount("other", &[]));
    let url = site.url();
    fs::create_dir(one.join("d")).unwrap();
    for number in 0..200 {
        fs::write(one.join(format!("d/{number}")), format!("{number}")).unwrap();
    }
    let large = Vec::from_iter((0..300_000).map(|at: usize| (at % 251) as u8));
    fs::write(one.join("large"), &large).unwrap();
    fs::create_dir(one.join("secret")).unwrap();
    fs::write(one.join("secret/file"), "then").unwrap();
    symlink("d/7", one.join("symlink")).unwrap();
    // By addresses, by the place, and by a mount.
    success(&snapshot(&url, &["create", "first"]));
    fs::write(other.join("large"), "now").unwrap();
    for number in 0..200 {
        fs::rename(other.join(format!("d/{number}")), other.join(format!("{number}"))).unwrap();
    }
    fs::remove_dir(other.join("d")).unwrap();
    let place = site.namespace.to_str().unwrap().to_owned();
    success(&snapshot(&place, &["create", "second"]));
    success(&snapshot(one.to_str().unwrap(), &["create", "third"]));
    let again = snapshot(&url, &["create", "second"]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("has a snapshot second already"));
    let listed = snapshot(&url, &["list"]);
    success(&listed);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(["first", "second", "third"].iter().all(|name| listed.contains(name)), "{listed}");
    // A process dies, and the other one has all of them.
    site.processes.pop().unwrap().kill();
    for mount in [&one, &other] {
        let then = mount.join("[@first]");
        assert_eq!(names(&then.join("d")).len(), 200);
        assert_eq!(fs::read_to_string(then.join("d/123")).unwrap(), "123");
        assert_eq!(fs::read(then.join("large")).unwrap(), large);
        assert_eq!(fs::read_link(then.join("symlink")).unwrap(), Path::new("d/7"));
        assert!(!then.join("0").exists());
        assert_eq!(fs::read_to_string(mount.join("[@second]/123")).unwrap(), "123");
        assert!(!mount.join("[@second]/d").exists());
        assert!(fs::write(then.join("new"), "").is_err());
        assert!(!mount.join("[@fourth]").exists());
    }
    // Files that were hidden since stay hidden.
    let file = one.join("[@first]/secret/file");
    let cat = || as_user(4000, "cat").arg(&file).output().unwrap();
    assert_eq!(success(&cat()), "then");
    fs::set_permissions(one.join("secret"), Permissions::from_mode(0o700)).unwrap();
    wait_until("it is hidden", || !cat().status.success());
    let past = site.mount("past", &["--snapshot", "first"]);
    assert_eq!(fs::read(past.join("large")).unwrap(), large);
    assert_eq!(past.join("d").metadata().unwrap().nlink(), 2);
    for on in ["past", "other"] {
        success(&site.unmount(on));
    }
    for name in ["first", "second", "third"] {
        success(&snapshot(one.to_str().unwrap(), &["delete", name]));
    }
    wait_until("it is gone", || fs::read_dir(one.join("[@first]/d")).is_err());
    let restore = snapshot(&place, &["restore", "first"]);
    assert!(String::from_utf8_lossy(&restore.stderr).contains("stop them"));
    success(&site.unmount("one"));
}

/// Files are made in order, in two directories: a snapshot has all up to one of them, and none after.
#[test]
fn snapshots_are_prefixes_while_processes_die() {
    let mut site = Site::with(4, 2, &["--split-entries", "64"]);
    let one = site.mount("one", &[]);
    for directory in ["a", "b", "c"] {
        fs::create_dir(one.join(directory)).unwrap();
    }
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut made = Vec::new();
    std::thread::scope(|scope| {
        let (one, is_over, count) = (&one, &is_over, &count);
        scope.spawn(move || {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let at = ["a", "b"][number % 2];
                fs::write(one.join(format!("{at}/{number}")), "").unwrap();
                // Some move to a third directory.
                if number % 3 == 0 {
                    let to = one.join(format!("c/{number}"));
                    fs::rename(one.join(format!("{at}/{number}")), to).unwrap();
                }
                count.store(number + 1, Ordering::SeqCst);
            }
        });
        wait_until("there are files", || count.load(Ordering::SeqCst) > 50);
        for number in 0..6 {
            let name = format!("s{number}");
            let before = count.load(Ordering::SeqCst);
            if number == 3 {
                site.processes.pop().unwrap().kill();
            }
            // One that fails is made again.
            wait_until("it is made", || {
                snapshot(one.to_str().unwrap(), &["create", &name]).status.success()
            });
            made.push((name, before, count.load(Ordering::SeqCst)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for (name, before, after) in made {
        let then = one.join(format!("[@{name}]"));
        let mut found = Vec::new();
        for directory in ["a", "b", "c"] {
            let names = names(&then.join(directory)).into_iter();
            found.extend(names.map(|name| (name.parse::<usize>().unwrap(), directory)));
        }
        found.sort_unstable();
        let last = found.len();
        for (at, (number, directory)) in found.into_iter().enumerate() {
            assert_eq!(number, at, "{name} lacks a file, or has one twice");
            let is_moved = number % 3 == 0 && (number + 1 < last || directory == "c");
            let expected = if is_moved { "c" } else { ["a", "b"][number % 2] };
            assert_eq!(directory, expected, "{name} {number}");
        }
        assert!((before..=after + 1).contains(&last), "{name}: {before} {last} {after}");
    }
    success(&site.unmount("one"));
}
