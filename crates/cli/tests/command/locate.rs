//! `canopy locate`: names in all sources, the best first. Needs root and script(1).

use crate::common;

use common::{Fixture, User};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

fn locate(place: &Fixture, words: &[&str]) -> Output {
    let words = ["locate"].iter().chain(words).map(OsStr::new).collect::<Vec<_>>();
    place.canopy(&place.path("index"), &words)
}

/// The names of what is found, below the place, in their order.
fn names(place: &Fixture, words: &[&str]) -> Vec<String> {
    let output = locate(place, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let prefix = format!("{}/", place.path("").display().to_string().trim_end_matches('/'));
    text.lines().map(|line| line.strip_prefix(&prefix).unwrap().to_owned()).collect()
}

fn indexed() -> Fixture {
    let place = Fixture::new();
    for name in ["one/run", "one/Run.txt", "one/overrun", "one/my-run.h5", "two/runs", "two/x[1]"] {
        let path = place.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    fs::create_dir_all(place.path("one/deep/run")).unwrap();
    let (one, two, deep) = (place.path("one"), place.path("two"), place.path("one/deep"));
    let words = ["index".as_ref(), one.as_os_str(), two.as_os_str()];
    assert!(place.canopy(&place.path("index"), &words).status.success());
    // A source within another one is searched once.
    let words = ["index".as_ref(), deep.as_os_str()];
    assert!(place.canopy(&place.path("index"), &words).status.success());
    place
}

#[test]
fn the_best_names_come_first() {
    let place = indexed();
    let all =
        ["one/deep/run", "one/run", "one/Run.txt", "two/runs", "one/my-run.h5", "one/overrun"];
    assert_eq!(names(&place, &["run"]), all);
    assert_eq!(names(&place, &["Run"]), ["one/Run.txt"]);
    assert_eq!(names(&place, &["*.h5"]), ["one/my-run.h5"]);
    assert_eq!(names(&place, &["deep", "run"]), ["one/deep/run"]);
    assert_eq!(names(&place, &["1]"]), ["two/x[1]"]);
    assert_eq!(locate(&place, &["--null", "-n", "1", "Run"]).stdout.last(), Some(&0));
    let some = locate(&place, &["--count=2", "run"]);
    assert_eq!(String::from_utf8_lossy(&some.stdout).lines().count(), 2);
    assert!(String::from_utf8_lossy(&some.stderr).contains("the best 2; there are more (-n 20)"));
    let all = locate(&place, &["-n", "6", "run"]);
    assert!(all.stderr.is_empty(), "{all:?}");
    let none = locate(&place, &["nothing-like-this"]);
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0));
    assert_eq!(locate(&place, &[]).status.code(), Some(2));
    let told = locate(&place, &["--threads=1", "--verbose", "--at=now", "Run"]);
    assert!(
        String::from_utf8_lossy(&told.stderr).contains("answers from generation 2"),
        "{told:?}"
    );
    let help = String::from_utf8(locate(&place, &["--help"]).stdout).unwrap();
    assert!(help.contains("Example: canopy locate"), "{help}");
}

#[test]
fn nobody_finds_what_is_hidden() {
    let place = indexed();
    fs::set_permissions(place.path("one/deep"), fs::Permissions::from_mode(0o700)).unwrap();
    let one = place.path("one");
    let words = ["index".as_ref(), one.as_os_str()];
    assert!(place.canopy(&place.path("index"), &words).status.success());
    let nobody = User { uid: 65_534, gid: 65_534, groups: Vec::new() };
    let index = place.path("index");
    let words = [OsStr::new("--index"), index.as_os_str(), "locate".as_ref(), "run".as_ref()];
    let shown = nobody.run(place.canopy.as_os_str(), &words).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(!shown.contains("deep") && shown.lines().count() == 5, "{shown}");
}

#[test]
fn terminals_get_marks_and_links() {
    let place = indexed();
    let line =
        format!("{} --index {} locate Run", place.canopy.display(), place.path("index").display());
    let shown = |terminal: &str| {
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).env("TERM", terminal).env_remove("NO_COLOR");
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    let colored = shown("xterm");
    assert!(colored.contains("\u{1b}[1;31mRun\u{1b}[0m.txt\u{1b}]8;;\u{7}"), "{colored:?}");
    assert!(colored.starts_with("\u{1b}]8;;file://"), "{colored:?}");
    assert!(shown("dumb").ends_with("/one/Run.txt\r\n"));
    assert!(!shown("dumb").contains('\u{1b}'));
}

#[test]
fn programs_get_json() {
    let place = indexed();
    let asked = |words: &[&str]| {
        let output = locate(&place, &[&["--json"], words].concat());
        (serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), output.status.code())
    };
    let (found, code) = asked(&["-n", "1", "Run"]);
    assert_eq!((found.as_array().unwrap().len(), code), (1, Some(0)));
    assert!(found[0]["path"].as_str().unwrap().ends_with("/Run.txt"), "{found}");
    assert_eq!(asked(&["not-there"]), (serde_json::json!([]), Some(1)));
}

/// The bug: a word with a slash found nothing and said nothing.
#[test]
fn words_may_have_directories_and_owners() {
    let place = indexed();
    assert_eq!(names(&place, &["one/run"]), ["one/run", "one/Run.txt"]);
    assert_eq!(names(&place, &["eep/ru"]), ["one/deep/run"]);
    assert_eq!(names(&place, &["two/"]), ["two/runs", "two/x[1]"]);
    assert_eq!(names(&place, &["*/one/*.h5"]), ["one/my-run.h5"]);
    assert_eq!(names(&place, &["-i", "RUN.TXT"]), ["one/Run.txt"]);
    assert_eq!(names(&place, &["--ignore-case", "ONE/RUN"])[..2], ["one/run", "one/Run.txt"]);
    std::os::unix::fs::chown(place.path("two/runs"), Some(2001), None).unwrap();
    let two = place.path("two");
    let words = ["index".as_ref(), two.as_os_str()];
    assert!(place.canopy(&place.path("index"), &words).status.success());
    assert_eq!(names(&place, &["--user", "2001", "run"]), ["two/runs"]);
    assert!(!names(&place, &["--mine", "run"]).contains(&"two/runs".to_owned()));
    let none = locate(&place, &["no/such"]);
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(
        (none.status.code(), &*said),
        (Some(1), "canopy: the index has nothing for 'no/such'\n")
    );
}
