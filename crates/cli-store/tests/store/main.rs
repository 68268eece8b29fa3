//! `canopy store` on real tables.

mod buckets;
mod damage;
mod dump;
#[path = "../../../object-storage/tests/s3/garage.rs"]
mod garage;
mod place;
#[path = "../../../object-storage/tests/s3/server.rs"]
mod server;

use canopy_store::{Base, KeyRange, checkpoint, clone, compact_all, delete, inspect};
use place::{Fixture, command, options, put, with_merges};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

/// All files and directories below a directory: what they have, and when they were changed.
fn snapshot(directory: &Path, found: &mut BTreeMap<PathBuf, (Vec<u8>, i64, i64)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.metadata().unwrap();
        let bytes = if metadata.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        if metadata.is_dir() {
            snapshot(&path, found);
        }
        found.insert(path, (bytes, metadata.mtime(), metadata.mtime_nsec()));
    }
}

#[test]
fn lists_tables_and_what_they_have() {
    let place = Fixture::new();
    let output = place.run(&["list", "@"]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are no tables in"));

    let id = place.table(3000);
    let (checkpoint, _) = checkpoint(&place.environment, id, None).unwrap();
    let base = Base { table: id, checkpoint: Some(checkpoint) };
    let cloned = clone(&place.environment, &[base], &KeyRange::directory(1)).unwrap();
    let dead = place.table(5);
    delete(&place.environment, dead).unwrap();
    fs::create_dir(place.dir.path().join("storage/no-table")).unwrap();
    fs::write(place.dir.path().join("storage/file"), "").unwrap();

    let text = place.text(&["list", "@"]);
    let lines = Vec::from_iter(text.lines());
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("TABLE ") && lines[0].ends_with("CHECKPOINTS  PARENTS"));
    let words = |id: String| {
        let line = lines.iter().find(|line| line.starts_with(&id)).unwrap();
        Vec::from_iter(line.split_whitespace().skip(1).map(str::to_owned))
    };
    let own = words(id.to_string());
    let state = inspect(&place.environment, id).unwrap().state;
    let bytes: u64 = state.sstables().map(|one| one.info.size_bytes).sum();
    let sstables = state.sstables().count();
    assert!(sstables > 1, "{sstables}");
    assert_eq!(own[..2], ["live", "1"]);
    let rest = ["1", &sstables.to_string(), &bytes.to_string(), "3000", "2", "0"];
    assert_eq!(own[3..], rest);
    assert_eq!(words(cloned.to_string()).last().unwrap(), "1");
    assert_eq!(words(dead.to_string())[3..], ["-", "-", "-", "-", "0", "0"]);

    let json = place.text(&["list", "@", "--json"]);
    let all = Vec::from_iter(
        json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()),
    );
    let of = |id: String| all.iter().find(|one| one["table"] == id).unwrap();
    assert_eq!(of(id.to_string())["records"], 3000);
    assert_eq!(of(id.to_string())["bytes"], bytes);
    assert_eq!(of(cloned.to_string())["parents"][0], id.to_string());
    assert_eq!(of(dead.to_string())["phase"], "deleted");
    place.assert_sound();
}

#[test]
fn tells_all_of_a_table_and_of_an_sstable() {
    let place = Fixture::new();
    let id = place.table(3000);
    let table = place.open(id, &options());
    put(&table, 0..10);
    table.flush().unwrap();
    put(&table, 10..20);
    let (released, _) = checkpoint(&place.environment, id, Some(3_600_000)).unwrap();
    let base = Base { table: id, checkpoint: None };
    let cloned = clone(&place.environment, &[base], &KeyRange::directory(1)).unwrap();
    compact_all(&place.environment, id, &place.cache, &options()).unwrap();

    // The first digits of an id are enough.
    let short = &id.to_string()[..12];
    let text = place.text(&["stat", "@", short]);
    for expected in [
        format!("table        {id}"),
        "phase        live".into(),
        "columns      size:4 mtime:8".into(),
        "keys         all".into(),
        "3000 records (0 deletes, 0 merges)".into(),
        "run 0 (the newest): ".into(),
        "log          epoch 2 from segment 1 on".into(),
        "segment      0 of epoch 1: ".into(),
        "segment      1 of epoch 2: ".into(),
        "job          ".into(),
        format!("checkpoint   {released} of version "),
        ", in 5".into(),
        format!("for the clone {cloned}"),
        "garbage      ".into(),
    ] {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    let text = place.text(&["stat", "@", &cloned.to_string()]);
    assert!(text.contains(&format!("parent       {id} at checkpoint ")), "{text}");
    assert!(text.contains("of which count: 1/0000000000000000/ to 2/"), "{text}");

    let json = place.text(&["stat", "@", &id.to_string(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["phase"], "live");
    assert_eq!(json["runs"][0].as_array().unwrap().len(), json_sstables(&place, id));
    let garbage = json["garbage"].as_array().unwrap();
    // What the checkpoint keeps is none.
    assert!(garbage.iter().all(|one| !one["name"].as_str().unwrap().contains("/sst/")));
    assert!(!garbage.is_empty());

    let sstable = place.objects(id, "sst/").remove(0);
    let text = place.text(&["stat", sstable.to_str().unwrap()]);
    for expected in ["SSTable      ", "filter", "records      ", "first key    0/", "size", "mtime"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let copy = place.dir.path().join("copy");
    fs::copy(&sstable, &copy).unwrap();
    let json = place.text(&["stat", copy.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bytes = fs::metadata(&copy).unwrap().len();
    let sections = json["sections"].as_object().unwrap().values();
    assert_eq!(sections.map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), bytes);
    assert_eq!(json["columns"][1]["name"], "mtime");
    drop(table);
}

fn json_sstables(place: &Fixture, id: canopy_store::TableId) -> usize {
    inspect(&place.environment, id).unwrap().state.sstables().count()
}

#[test]
fn changes_nothing_and_needs_no_lock() {
    let place = Fixture::new();
    let id = place.table(2000);
    // The writer has the lock all the time.
    let table = place.open(id, &options());
    put(&table, 0..10);
    fs::set_permissions(place.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    fs::set_permissions(place.storage(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    // Where others may run it.
    let program = place.dir.path().join("canopy-store");
    fs::copy(env!("CARGO_BIN_EXE_canopy-store"), &program).unwrap();
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    snapshot(place.dir.path(), &mut before);
    let (id, storage) = (id.to_string(), place.storage());
    for line in [
        vec!["list"],
        vec!["stat", &id],
        vec!["verify"],
        vec!["verify", &id],
        vec!["dump", &id],
        vec!["dump", &id, "--log", "--limit", "3000"],
    ] {
        let (name, rest) = line.split_first().unwrap();
        let mut command = std::process::Command::new(&program);
        command.arg0("canopy").arg("store").arg(name).arg(&storage).args(rest);
        // Somebody who may change nothing there.
        if nix_is_root() {
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {said}");
    }
    snapshot(place.dir.path(), &mut after);
    assert!(before == after, "something has changed");
    put(&table, 10..20);
}

/// Whether this is root, who owns what it makes.
fn nix_is_root() -> bool {
    tempfile::tempfile().unwrap().metadata().unwrap().uid() == 0
}

#[test]
fn wrong_use_is_told() {
    let place = Fixture::new();
    let id = place.table(10).to_string();
    let file = place.dir.path().join("file");
    fs::write(&file, "nothing").unwrap();
    let (file, dir) = (file.to_str().unwrap(), place.dir.path().to_str().unwrap());
    let other = "0".repeat(32);
    let missing = format!("{}/{id}/sst/00000000000000000009-0000000000", place.storage());
    for (line, why) in [
        (vec!["list", "/no/such/place"], "/no/such/place: no such directory"),
        (vec!["list", file], "Not a directory"),
        (vec!["list", "s3://bucket/prefix"], "set AWS_ACCESS_KEY_ID and"),
        (vec!["list", "gs://bucket"], "storage is a directory or s3://BUCKET/PREFIX, not gs"),
        (vec!["list"], "STORAGE"),
        (vec!["stat", "@", &other], "there is no table 0000"),
        (vec!["stat", "@", "table"], "is not an id of a table"),
        (vec!["stat", "@", ""], "is not an id of a table"),
        (vec!["stat", "@"], "a directory, and no table is named"),
        (vec!["stat", "/no/such/file"], "no such "),
        (vec!["stat", file], "neither a manifest nor an SSTable nor a segment"),
        (vec!["stat", &missing], "no such object"),
        (vec!["verify", "/no/such/place"], "no such directory"),
        (vec!["verify", "@", &other], "there is no table"),
        (vec!["verify", file], "Not a directory"),
        (vec!["verify", "--json"], "unexpected argument"),
        (vec!["dump", "@", &other], "there is no table"),
        (vec!["dump", "@", &id, "--from", "x"], "is not a number of a directory"),
        (vec!["dump", "@", &id, "--prefix", "1", "--from", "1"], "cannot be used with"),
        (vec!["dump", "@", &id, "--log", "--reverse"], "cannot be used with"),
        (vec!["dump", dir], "a directory"),
        (vec!["nonsense"], "unrecognized subcommand"),
    ] {
        let output = place.run(&line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.is_empty() && said.contains(why), "{line:?}: {said}");
        assert!(said.matches("os error").count() <= 1, "{said}");
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
    }
    let mut find = std::process::Command::new(env!("CARGO_BIN_EXE_canopy-store"));
    let output = find.args(["find", "/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'canopy store' alone"));
}

#[test]
fn each_subcommand_explains_itself_and_needs_no_index() {
    let place = Fixture::new();
    let id = place.table(3).to_string();
    for (line, about) in [
        (vec!["list", "@"], "List the tables"),
        (vec!["stat", "@", &id], "Show the current manifest"),
        (vec!["verify", "@"], "Read and check every byte"),
        (vec!["dump", "@", &id], "Print the records of a table"),
    ] {
        let usage = format!("Usage: canopy store {} ", line[0]);
        for option in ["-h", "--help"] {
            let help = place.text(&[line[0], option]);
            assert!(help.starts_with(about) && help.contains(&usage), "{help}");
        }
        // It stands before all commands.
        let told = place.text(&line);
        assert_eq!(place.text(&[&line[..], &["--index", "/no/such/index"]].concat()), told);
    }
    for option in ["-h", "--help"] {
        assert!(place.text(&["probe", option]).contains("Usage: canopy store probe "));
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = Fixture::new();
    let id = place.table(20_000).to_string();
    let (storage, path) = (place.storage(), place.objects(canopy_id(&id), "sst/").remove(0));
    let sstable = path.to_str().unwrap();
    for line in [
        vec!["list", &storage],
        vec!["list", &storage, "--json"],
        vec!["stat", &storage, &id],
        vec!["stat", sstable],
        vec!["stat", sstable, "--json"],
        vec!["verify", &storage],
        vec!["dump", &storage, &id],
        vec!["dump", &storage, &id, "--reverse", "--json"],
        vec!["dump", sstable],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command().args(&line).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line:?}");
        // Whoever asks whether all is whole has to read the answer.
        let code = if line[0] == "verify" { 1 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{line:?}");
    }
}

fn canopy_id(id: &str) -> canopy_store::TableId {
    canopy_store::TableId::parse(id).unwrap()
}

#[test]
fn a_collector_that_runs_meanwhile_is_no_fault() {
    let place = Fixture::new();
    let id = place.create(&with_merges());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let table = place.open(id, &with_merges());
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                put(&table, round % 7 * 500..round % 7 * 500 + 1500);
                table.flush().unwrap();
                if round % 3 == 2 {
                    compact_all(&place.environment, id, &place.cache, &with_merges()).unwrap();
                    canopy_store::collect(&place.environment, id).unwrap();
                }
            }
        });
        for _ in 0..30 {
            place.assert_sound();
            let dumped = place.run(&["dump", "@", &id.to_string()]);
            let said = String::from_utf8_lossy(&dumped.stderr);
            let is_told = said.is_empty() || said.contains("it was collected while it was read");
            assert!(is_told && dumped.status.code() != Some(2), "{said}");
            let stat = place.run(&["stat", "@", &id.to_string()]);
            assert!(stat.status.code() != Some(2), "{}", String::from_utf8_lossy(&stat.stderr));
        }
        is_over.store(true, Ordering::Relaxed);
        writing.join().unwrap();
    });
}
