//! `canopy compact` as users type it; that no answer changes is compared in `find/random_sites.rs`.

use crate::common::Fixture;
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::process::Output;

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn run(place: &Fixture, words: &[&str]) -> Output {
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    place.canopy(&place.path("index"), &words)
}

/// Returns the number of shards that root can read.
fn shards(place: &Fixture) -> u64 {
    let info = run(place, &["info", "--json"]).stdout;
    serde_json::from_slice::<serde_json::Value>(&info).unwrap()["visible_shards"].as_u64().unwrap()
}

/// Makes an index that was updated several times.
fn updated() -> Fixture {
    let place = Fixture::new();
    for number in 0..12 {
        let directory = place.path(&format!("tree/d{number}"));
        fs::create_dir_all(&directory).unwrap();
        (0..50).for_each(|file| fs::write(directory.join(format!("file{file}")), "x").unwrap());
    }
    let tree = place.path("tree");
    assert!(run(&place, &["index", tree.to_str().unwrap()]).status.success());
    for number in 0..3 {
        let directory = place.path(&format!("tree/d{number}"));
        fs::write(directory.join("unmistakable"), "").unwrap();
        let output = run(&place, &["update", "--copied-rows=0", directory.to_str().unwrap()]);
        assert!(output.status.success(), "{}", said(&output));
        fs::remove_file(directory.join("unmistakable")).unwrap();
        let output = run(&place, &["update", "--copied-rows=0", directory.to_str().unwrap()]);
        assert!(output.status.success(), "{}", said(&output));
    }
    place
}

fn found(place: &Fixture) -> String {
    let tree = place.path("tree");
    let output = run(place, &["find", tree.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn files_that_updates_have_left_are_written_anew() {
    let place = updated();
    let (before, answer) = (shards(&place), found(&place));
    assert!(before >= 2, "{before} shards");
    // Nothing of it has waited for a day.
    let output = run(&place, &["compact", "--due", "--threads=2", "--memory=64M"]);
    assert_eq!(said(&output), "there is nothing to write anew\n");
    let output = run(&place, &["compact", "--once"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = said(&output);
    assert!(
        text.starts_with(&format!("generation 8: {before} shards became 1 without ")),
        "{text}"
    );
    assert_eq!((shards(&place), found(&place)), (1, answer.clone()));
    let output = run(&place, &["compact"]);
    assert_eq!(said(&output), "there is nothing to write anew\n");
    assert_eq!(found(&place), answer);
}

#[test]
fn programs_get_one_object() {
    let place = updated();
    let before = shards(&place);
    let object = |words: &[&str]| -> serde_json::Value {
        let output = run(&place, words);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let mut first = object(&["compact", "--json"]);
    assert!(first["seconds"].as_f64() > Some(0.0) && first["dropped_rows"].as_u64() > Some(0));
    for key in ["seconds", "dropped_rows"] {
        first.as_object_mut().unwrap().remove(key);
    }
    let expected = json!({
        "generation": 8, "unchanged": false, "complete": true, "shards": 1,
        "replaced_shards": before, "sealed_files": 0,
    });
    assert_eq!(first, expected);
    let nothing = object(&["compact", "--json"]);
    assert_eq!((&nothing["generation"], &nothing["unchanged"]), (&8.into(), &true.into()));
    assert_eq!((&nothing["shards"], &nothing["replaced_shards"]), (&0.into(), &0.into()));
    let kept = object(&["compact", "--json", "--keep=3"]);
    assert_eq!((&kept["generation"], &kept["unchanged"]), (&9.into(), &false.into()));
}

#[test]
fn the_generation_before_goes_where_that_is_wanted() {
    let place = updated();
    let files = |place: &Fixture| {
        let files = crate::common::all_paths(&place.path("index"));
        files.iter().filter(|path| path.extension().is_some_and(|end| end == "parquet")).count()
    };
    let (before, answer) = (files(&place), found(&place));
    let output = run(&place, &["compact", "--replace"]);
    assert!(output.status.success(), "{}", said(&output));
    let current = fs::read_to_string(place.path("index/CURRENT")).unwrap();
    assert!(!current.contains("leaving"), "{current}");
    assert!(files(&place) < before / 2, "{} files, {before} before", files(&place));
    assert_eq!(found(&place), answer);
}

#[test]
fn wrong_words_are_refused() {
    let place = Fixture::new();
    let output = run(&place, &["compact"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no index"), "{}", said(&output));
    // Nothing is made where there was nothing.
    assert!(!place.path("index").exists());
    let output = run(&place, &["compact", "somewhere"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
