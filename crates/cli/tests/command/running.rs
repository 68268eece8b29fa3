//! Messages of `canopy index` to people, to cron and to programs, and its dry run. Needs root and
//! script(1).

use crate::common;

use common::Fixture;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `canopy index` with words, in the directory of the place, on the index `index` there.
fn index(place: &Fixture, words: &[&str]) -> Output {
    let mut command = Command::new(&place.canopy);
    command.args(["--index", "index", "index"]).args(words).current_dir(place.dir.path());
    command.env("CANOPY_SITE_CONFIG", place.path("site.toml"));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn tree(place: &Fixture) {
    fs::create_dir_all(place.path("tree/below")).unwrap();
    fs::write(place.path("tree/below/file"), "").unwrap();
    fs::write(place.path("tree/left.tmp"), "").unwrap();
}

fn files_below(path: &Path) -> usize {
    common::all_paths(path).len()
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let place = Fixture::new();
    tree(&place);
    fs::create_dir(place.path("other")).unwrap();
    let site = format!(
        "prune_names = ['.git']\nprune_paths = [{:?}]\n[[sources]]\npath = {:?}\nexclude = ['*.tmp']\n",
        place.path("tree/below"),
        place.path("tree"),
    );
    fs::write(place.path("site.toml"), site).unwrap();
    let output = index(&place, &["--dry-run"]);
    assert!(output.status.success(), "{output:?}");
    let shown = text(&output.stdout);
    let start = format!(
        "{}\n  new\n  without .git (prune_names)\n  without *.tmp (exclude)\n  \
         without /below (prune_paths)\nindex: index (none yet)\n",
        place.path("tree").display()
    );
    assert!(shown.starts_with(&start), "{shown}");
    assert!(shown.contains(&format!("configuration: {}\n", place.path("site.toml").display())));
    assert!(shown.ends_with("Nothing was written.\n"), "{shown}");
    assert!(!place.path("index").exists());
    // It is what a run then does.
    assert!(index(&place, &[]).status.success());
    let before = files_below(&place.path("index"));
    let words =
        ["--dry-run", "--json", "--exclude", "x", "-x", "tree", "tree/below", "other", "nope"];
    let output = index(&place, &words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let plan = json(&output);
    assert_eq!(plan["generation"], 1);
    let sources = plan["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 4);
    assert_eq!((&sources[0]["entries"], &sources[0]["one_file_system"]), (&1.into(), &true.into()));
    assert_eq!(sources[0]["left_out"][0]["by"], "--exclude");
    assert_eq!(sources[1]["within"], place.path("tree").to_str().unwrap());
    assert!(sources[2]["error"].is_null() && sources[2]["entries"].is_null());
    assert!(sources[3]["error"].as_str().unwrap().contains("No such file"), "{plan}");
    assert_eq!(files_below(&place.path("index")), before);
}

#[test]
fn a_tree_under_several_names_is_one_source() {
    let place = Fixture::new();
    tree(&place);
    std::os::unix::fs::symlink("tree", place.path("link")).unwrap();
    let shown = text(&index(&place, &["tree/", "tree", "./tree", "link"]).stdout);
    assert!(shown.starts_with("generation 1: 2 files and 2 directories, "), "{shown}");
}

#[test]
fn quiet_runs_say_nothing_but_errors() {
    let place = Fixture::new();
    tree(&place);
    let output = index(&place, &["-q", "tree"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    let output = index(&place, &["--quiet", "tree", "nope"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{output:?}");
    assert!(said.contains("nope: No such file") && said.ends_with("has nothing of it\n"), "{said}");
    fs::rename(place.path("tree"), place.path("gone")).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    let said = text(&index(&place, &["-q", "tree", "other"]).stderr);
    assert!(said.ends_with("/tree stays as it was in the index\n"), "{said}");
}

#[test]
fn programs_get_one_object() {
    let place = Fixture::new();
    tree(&place);
    let summary = json(&index(&place, &["--json", "tree"]));
    assert_eq!((&summary["generation"], &summary["entries"]), (&1.into(), &4.into()));
    assert_eq!((&summary["files"], &summary["listed_directories"]), (&2.into(), &2.into()));
    assert_eq!((&summary["directories"], &summary["complete"]), (&2.into(), &true.into()));
    assert_eq!(summary["sources"], serde_json::json!([place.path("tree").to_str().unwrap()]));
    let output = index(&place, &["--json", "-q", "nope", "tree"]);
    assert_eq!(output.status.code(), Some(1));
    let summary = json(&output);
    assert_eq!(summary["complete"], false);
    assert_eq!(summary["sources"].as_array().unwrap().len(), 1);
    assert_eq!(summary["failed"][0]["path"], "nope");
    assert!(summary["failed"][0]["error"].as_str().unwrap().contains("No such file"));
}

/// On a terminal, a run that is slow shows where it is and how far.
#[test]
fn terminals_see_how_far_a_run_is() {
    let place = Fixture::new();
    tree(&place);
    for number in 0..300 {
        let directory = place.path(&format!("tree/d{}", number % 20));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), "").unwrap();
    }
    assert!(index(&place, &["tree"]).status.success());
    // Three seconds at least, of which each fifth is shown.
    let line = format!(
        "{} --index {} index --max-rate 100 {}",
        place.canopy.display(),
        place.path("index").display(),
        place.path("tree").display()
    );
    let shown = |line: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", line, "/dev/null"]).env("TERM", "xterm").env("COLUMNS", "200");
        text(&command.stdin(std::process::Stdio::null()).output().unwrap().stdout)
    };
    let told = shown(&line);
    assert!(told.contains(" of about 323 entries ("), "{told:?}");
    assert!(told.contains(" %), ") && told.contains(" s left"), "{told:?}");
    assert_eq!(shown(&format!("{line} -q")), "");
}
