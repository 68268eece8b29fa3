//! `canopy-sql` and `canopy-store` beside `canopy`: where they are looked for, and what happens
//! without them or with another version's. Needs root.

use crate::common;

use common::Fixture;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const COUNT: &str = "SELECT count(*) AS n FROM entries";

/// A place with an index of a tree of two files.
fn indexed() -> (Fixture, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("one"), "1").unwrap();
    fs::write(tree.join("two"), "22").unwrap();
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index)
}

/// Asks in SQL with the given `canopy`.
fn ask(canopy: &Path, index: &Path) -> Output {
    let mut command = Command::new(canopy);
    command.arg("--index").arg(index).args(["sql", "--format", "csv", COUNT]).output().unwrap()
}

#[track_caller]
fn assert_answers(output: &Output) {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n\n2\n");
    assert_eq!(output.status.code(), Some(0));
}

#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(why), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(output.status.code(), Some(2));
}

/// All files below a directory with their contents.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let contents = fs::read(&path).unwrap();
            all.insert(path, contents);
        }
    }
    all
}

#[test]
fn sql_is_beside_canopy_or_in_libexec_and_nowhere_else() {
    let (place, index) = indexed();
    assert_answers(&ask(&place.canopy, &index));
    let link = place.path("link");
    symlink(&place.canopy, &link).unwrap();
    assert_answers(&ask(&link, &index));

    let installed = place.path("bin/canopy");
    fs::create_dir_all(place.path("bin")).unwrap();
    fs::copy(&place.canopy, &installed).unwrap();
    let elsewhere = place.path("path");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("canopy-sql"), "#!/bin/sh\necho from the path\n").unwrap();
    fs::set_permissions(elsewhere.join("canopy-sql"), fs::Permissions::from_mode(0o755)).unwrap();
    let with_path = Command::new(&installed)
        .arg("--index")
        .arg(&index)
        .args(["sql", COUNT])
        .env("PATH", &elsewhere)
        .current_dir(&elsewhere)
        .output()
        .unwrap();
    assert_refused(&with_path, "canopy-sql is not installed");
    let help = Command::new(&installed).args(["sql", "--help"]).output().unwrap();
    assert!(help.status.success() && help.stdout.starts_with(b"Ask the index in SQL"));

    fs::create_dir_all(place.path("libexec/canopy")).unwrap();
    fs::rename(place.path("canopy-sql"), place.path("libexec/canopy/canopy-sql")).unwrap();
    assert_answers(&ask(&installed, &index));
}

#[test]
fn canopy_sql_of_another_version_is_refused() {
    let (place, index) = indexed();
    let run = |version: Option<&str>| {
        let mut command = Command::new(place.path("canopy-sql"));
        command.arg("--index").arg(&index).args(["sql", "--format", "csv", COUNT]);
        command.env_remove("CANOPY_COMPANION_OF");
        command.envs(version.map(|version| ("CANOPY_COMPANION_OF", version)));
        command.output().unwrap()
    };
    assert_answers(&run(None));
    assert_refused(&run(Some("0.0.1 (index format 1)")), "install both from one package");
}

#[test]
fn an_index_with_derived_tables_stays_as_it_is_without_canopy_sql() {
    let (place, index) = indexed();
    let derive: [&OsStr; 4] = [
        "table".as_ref(),
        "derive".as_ref(),
        "sizes".as_ref(),
        "SELECT path, size FROM entries".as_ref(),
    ];
    let derived = place.canopy(&index, &derive);
    assert!(derived.status.success(), "{}", String::from_utf8_lossy(&derived.stderr));
    let before = files(&index);
    let (companion, away) = (place.path("canopy-sql"), place.path("away"));
    fs::rename(&companion, &away).unwrap();

    let tree = place.path("tree");
    let output = place.canopy(&index, &["index".as_ref(), tree.as_os_str()]);
    assert_refused(&output, "canopy-sql is not installed");
    let dropped = place.canopy(&index, &["table".as_ref(), "drop".as_ref(), "sizes".as_ref()]);
    assert_refused(&dropped, "canopy-sql is not installed");
    assert!(files(&index) == before, "the index has changed");
    let found = place.canopy(
        &index,
        &[
            "find".as_ref(),
            tree.as_os_str(),
            "-size".as_ref(),
            "-3c".as_ref(),
            "-type".as_ref(),
            "f".as_ref(),
        ],
    );
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 2);

    fs::rename(&away, &companion).unwrap();
    place.index(&index, &tree);
    assert_answers(&ask(&place.canopy, &index));
}

#[test]
fn a_companion_that_is_none_is_an_error() {
    let (place, index) = indexed();
    let companion = place.path("canopy-sql");
    fs::remove_file(&companion).unwrap();
    // As a full disk leaves it: execvp(3) would have a shell run it, which succeeds.
    fs::write(&companion, "").unwrap();
    fs::set_permissions(&companion, fs::Permissions::from_mode(0o755)).unwrap();
    assert_refused(&ask(&place.canopy, &index), "cannot run");
    fs::remove_file(&companion).unwrap();
    // It would run itself for ever.
    symlink("canopy", &companion).unwrap();
    assert_refused(&ask(&place.canopy, &index), "has no SQL inside");
}

#[test]
fn canopy_store_is_found_like_canopy_sql() {
    let place = Fixture::new();
    let tables = place.path("tables");
    fs::create_dir(&tables).unwrap();
    let companion = place.path("canopy-store");
    let run = |program: &Path, version: Option<&str>| {
        let mut command = Command::new(program);
        command.args(["store", "list"]).arg(&tables);
        command.envs(version.map(|version| ("CANOPY_COMPANION_OF", version)));
        // It works with a configuration that is broken.
        command.env("CANOPY_THREADS", "many").output().unwrap()
    };
    for program in [&place.canopy, &companion] {
        let output = run(program, None);
        assert!(String::from_utf8_lossy(&output.stderr).contains("there are no tables in "));
        assert!(output.status.success() && output.stdout.is_empty());
    }
    assert_refused(&run(&companion, Some("0.0.1")), "install both from one package");
    fs::remove_file(&companion).unwrap();
    assert_refused(
        &run(&place.canopy, None),
        "canopy-store is not installed, which 'canopy store'",
    );
    let help = Command::new(&place.canopy).args(["store", "verify", "--help"]).output().unwrap();
    assert!(help.status.success() && help.stdout.starts_with(b"Read and check every byte"));
    symlink("canopy", &companion).unwrap();
    assert_refused(&run(&place.canopy, None), "has no 'canopy store' inside");
}
