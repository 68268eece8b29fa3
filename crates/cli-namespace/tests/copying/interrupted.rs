//! Imports that are killed, that race each other, and trees that change under them.

use super::{Fixture, check, command, run, succeed};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes directories with small and large files.
fn fill(source: &Path, directories: usize) {
    for at in 0..directories {
        let directory = source.join(format!("d{at}"));
        fs::create_dir(&directory).expect("a directory");
        for file in 0..40 {
            let length = if file % 4 == 0 { 20_000 } else { file };
            fs::write(directory.join(format!("f{file}")), vec![b'x'; length]).expect("a file");
        }
        let link = fs::hard_link(directory.join("f0"), source.join(format!("l{at}")));
        link.expect("a link");
    }
}

/// Returns how many objects there are.
fn objects(namespace: &Path) -> usize {
    let directories = fs::read_dir(namespace.join("contents")).expect("objects");
    directories
        .map(|part| fs::read_dir(part.expect("a part").path()).expect("a part").count())
        .sum()
}

#[test]
fn killed_imports_leave_nothing() {
    let place = Fixture::new();
    let source = place.directory("source");
    fill(&source, 150);
    let namespace = place.namespace("namespace");
    let (mut finished, mut killed) = (0, 0);
    for round in 0..12_u64 {
        let into = format!("round{round}");
        let words: [&dyn AsRef<Path>; 6] =
            [&"import", &source, &namespace, &"--data", &"--into", &into];
        let mut import =
            command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        // From before it has begun until it may have finished.
        std::thread::sleep(Duration::from_millis(round * 37 % 400));
        import.kill().expect("a kill");
        match import.wait().expect("an end").success() {
            true => finished += 1,
            false => killed += 1,
        }
        check(&namespace);
        let there = succeed(&[&"du", &"-d", &"1", &namespace]).lines().count() - 1;
        // It may be killed when everything is done but its end.
        assert!(there >= finished, "{there} {finished}");
        assert_eq!(objects(&namespace), there * 150 * 10);
    }
    assert!(killed > 0);
    succeed(&[&"import", &source, &namespace, &"--data", &"--into", &"last"]);
    check(&namespace);
    let copy = place.join("copy");
    succeed(&[&"export", &format!("{}:last", namespace.display()), &copy]);
    assert_eq!(fs::read(copy.join("d7/f36")).expect("a file"), vec![b'x'; 20_000]);
}

#[test]
fn one_of_two_at_once_waits_for_nobody() {
    let place = Fixture::new();
    let source = place.directory("source");
    fill(&source, 60);
    let namespace = place.namespace("namespace");
    let start = |into: &str| {
        let words: [&dyn AsRef<Path>; 6] =
            [&"import", &source, &namespace, &"--data", &"--into", &into];
        let mut command = command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    let ends = [start("one"), start("other")].map(|child| child.wait_with_output().expect("ends"));
    let finished = ends.iter().filter(|end| end.status.success()).count();
    assert!(finished >= 1);
    for end in ends.iter().filter(|end| !end.status.success()) {
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(said.contains("is mounted, or used by another command"), "{said}");
        assert_eq!(end.status.code(), Some(2));
    }
    check(&namespace);
    assert_eq!(succeed(&[&"du", &"-d", &"1", &namespace]).lines().count(), 1 + finished);
}

/// Changes a tree in all ways until it is told to stop.
fn change(source: &Path, stop: &AtomicBool) {
    for round in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let directory = source.join(format!("d{}", round * 7 % 60));
        let other = source.join(format!("d{}", round * 11 % 60));
        // Each of these may find what it needs gone, by what was done before.
        let _ = fs::remove_file(directory.join(format!("f{}", round % 40)));
        let _ = fs::write(directory.join("new"), vec![b'y'; round % 9000]);
        let _ = fs::rename(directory.join("new"), directory.join(format!("f{}", round % 33)));
        let _ = fs::rename(directory.join("f4"), other.join("f5"));
        let _ = fs::hard_link(other.join("f8"), directory.join(format!("h{}", round % 5)));
        let _ = fs::remove_file(other.join(format!("h{}", round % 5)));
        let _ = fs::rename(&directory, other.join("moved"));
        let _ = fs::rename(other.join("moved"), &directory);
        if round % 50 == 0 {
            let _ = fs::remove_dir_all(&other);
            let _ = fs::create_dir(&other);
        }
    }
}

#[test]
fn trees_may_change_meanwhile() {
    let place = Fixture::new();
    let source = place.directory("source");
    fill(&source, 60);
    let namespace = place.namespace("namespace");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| change(&source, &stop));
        for round in 0..10 {
            let into = format!("round{round}");
            let data = if round % 2 == 0 { "--data" } else { "--cross-mounts" };
            let (code, _, said) = run(&[&"import", &source, &namespace, &"--into", &into, &data]);
            assert!(code == 0 || code == 1 && !said.is_empty(), "{code} {said}");
            check(&namespace);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
