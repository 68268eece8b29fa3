//! `canopy store dump`

use crate::place::{Fixture, command, key, options, put, value, with_merges};
use canopy_store::{Batch, Durability, Key, KeyRange, Op, RecordRef};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The keys of the lines of a dump, in order.
fn keys(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split('\t').nth(1).unwrap()).collect()
}

fn shown(key: &Key) -> String {
    format!("{}/{:016x}/{}", key.directory, key.hash, String::from_utf8_lossy(&key.name))
}

#[test]
fn prints_merged_records_in_order() {
    let place = Fixture::new();
    let id = place.table(2500);
    let table = place.open(id, &options());
    let mut batch = Batch::new();
    batch.delete_range(&KeyRange::directory(1)).unwrap();
    batch.put(key(1001).as_ref(), b"short").unwrap();
    batch.delete(key(3).as_ref()).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
    batch.clear();
    batch.put(key(5).as_ref(), b"in the log").unwrap();
    batch.delete_range(&KeyRange::directory(9)).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    let id = id.to_string();

    let numbers = (0..1000).filter(|at| *at != 3).chain(2000..2500);
    let mut expected = BTreeMap::from_iter(numbers.map(|at| {
        let mtime = 1_700_000_000_000_000_000_u64 + at;
        (key(at), format!("size={at} mtime={mtime} \"and more\""))
    }));
    expected.insert(key(1001), "\"short\"".into());
    let lines = |keys: &mut dyn Iterator<Item = (&Key, &String)>| {
        keys.map(|(key, value)| format!("put\t{}\t{value}\n", shown(key))).collect::<String>()
    };
    let dumped = place.text(&["dump", "@", &id]);
    assert!(dumped == lines(&mut expected.iter()), "{dumped}");
    let reverse = place.text(&["dump", "@", &id, "--reverse", "--limit", "7"]);
    assert_eq!(reverse, lines(&mut expected.iter().rev().take(7)));
    assert_eq!(place.text(&["dump", "@", &id, "--limit", "0"]), "");

    let one = place.text(&["dump", "@", &id, "--prefix", "1"]);
    assert_eq!(keys(&one), [shown(&key(1001))]);
    let digits = format!("{:016x}", key(7).hash);
    for length in 1..=16 {
        let prefix = format!("0/{}", &digits[..length]);
        let some = place.text(&["dump", "@", &id, "--prefix", &prefix]);
        let like = |key: &Key| shown(key).starts_with(&prefix);
        assert_eq!(some, lines(&mut expected.iter().filter(|(key, _)| like(key))), "{prefix}");
    }
    let (from, to) = ("0//file-7", shown(&key(2007)));
    let some = place.text(&["dump", "@", &id, "--from", from, "--to", &to]);
    assert_eq!(some, lines(&mut expected.range(key(7)..key(2007))));

    let json = place.text(&["dump", "@", &id, "--json", "--from", from, "--limit", "1"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["name"], "file-7");
    assert_eq!(json["hash"], digits);
    assert_eq!(json["value"]["columns"]["size"], 7);
    assert_eq!(json["value"]["rest"], "and more");

    let with_log = place.text(&["dump", "@", &id, "--log"]);
    let log = with_log.strip_prefix(&dumped).unwrap();
    let removed = "range delete\t9/0000000000000000/ to 10/0000000000000000/";
    assert_eq!(log, format!("put\t{}\t\"in the log\"\n{removed}\n", shown(&key(5))));
    let json = place.text(&["dump", "@", &id, "--log", "--json", "--prefix", "0"]);
    let json: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&json["epoch"], &json["segment"], &json["group"]),
        (&2.into(), &1.into(), &0.into())
    );
    drop(table);
}

#[test]
fn prints_single_objects() {
    let place = Fixture::new();
    let id = place.table(1500);
    let table = place.open(id, &options());
    let mut batch = Batch::new();
    batch.delete(key(3).as_ref()).unwrap();
    batch.delete_range(&KeyRange::directory(1)).unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
    put(&table, 0..4);
    let copy = place.dir.path().join("copy");
    // An object is known by its name, and a copy by its bytes.
    let dump = |path: &std::path::Path, more: &[&str]| {
        let named = place.text(&[&["dump", path.to_str().unwrap()], more].concat());
        fs::copy(path, &copy).unwrap();
        let copied = place.text(&[&["dump", copy.to_str().unwrap()], more].concat());
        (named, copied)
    };
    let sstables = place.objects(id, "sst/");
    let (named, copied) = dump(sstables.last().unwrap(), &[]);
    assert_eq!(named, copied);
    let removed = "range delete\t1/0000000000000000/ to 2/0000000000000000/";
    assert_eq!(named, format!("{removed}\ndelete\t{}\n", shown(&key(3))));
    let (forward, _) = dump(&sstables[0], &["--prefix", "0"]);
    let (backward, _) = dump(&sstables[0], &["--prefix", "0", "--reverse"]);
    let mut lines = Vec::from_iter(backward.lines());
    lines.reverse();
    assert!(!lines.is_empty() && lines == Vec::from_iter(forward.lines()));

    let segment = place.objects(id, "log/").pop().unwrap();
    let (named, copied) = dump(&segment, &[]);
    // The name tells the table, and that the columns.
    assert!(named.starts_with("put\t0/") && named.contains("size=0 mtime="), "{named}");
    assert_eq!(keys(&named), keys(&copied));
    assert!(!copied.contains("size="));
    let backward = place.run(&["dump", segment.to_str().unwrap(), "--reverse"]);
    assert_eq!(backward.status.code(), Some(2));

    let fence =
        place.objects(id, "log/").into_iter().find(|path| fs::read(path).unwrap().len() == 24);
    let output = place.run(&["dump", fence.unwrap().to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("a fence of epoch 2"));

    let manifest = place.objects(id, "manifest/").pop().unwrap();
    let (named, copied) = dump(&manifest, &[]);
    assert!(named.starts_with(&format!("table        {id}\nphase        live")), "{named}");
    assert!(copied.starts_with("phase        live"), "{copied}");
    let (named, copied) = dump(&manifest, &["--json"]);
    assert_eq!(named, copied);
    let json: serde_json::Value = serde_json::from_str(&named).unwrap();
    assert_eq!(json["epoch"], 2);
    drop(table);
}

#[test]
fn operands_of_merges_are_printed_as_they_are() {
    let place = Fixture::new();
    let id = place.create(&with_merges());
    let table = place.open(id, &with_merges());
    let (one, two) = (key(1), key(2));
    let write = |key: &Key, op, value: &[u8]| {
        let mut batch = Batch::new();
        batch.record(RecordRef { key: key.as_ref(), op, value }).unwrap();
        table.write(&batch, Durability::Durable).unwrap();
    };
    write(&one, Op::Put, &value(1));
    table.flush().unwrap();
    write(&two, Op::Delete, b"");
    for operand in [&b"a"[..], b"b", b"c"] {
        write(&one, Op::Merge, operand);
        table.flush().unwrap();
    }
    write(&two, Op::Merge, b"alone");
    table.flush().unwrap();
    let dumped = place.text(&["dump", "@", &id.to_string()]);
    let value = "size=1 mtime=1700000000000000001 \"and more\"";
    let mut expected = [
        format!("put\t{}\t{value}\tmerge \"a\"\tmerge \"b\"\tmerge \"c\"", shown(&one)),
        format!("merge\t{}\tmerge \"alone\"", shown(&two)),
    ];
    if two < one {
        expected.reverse();
    }
    assert_eq!(Vec::from_iter(dumped.lines()), expected);
    place.assert_sound();
}

#[test]
fn nothing_that_is_printed_commands_a_terminal() {
    let place = Fixture::new();
    let id = place.create(&options());
    let table = place.open(id, &options());
    let names: [&[u8]; 6] = [
        b"\x1b[31mred\x07",
        b"two\nlines\tand\\more",
        b"\xff\x9b2J",
        "\u{9b}31m\u{202e}txt.exe".as_bytes(),
        b"",
        "größe 日本".as_bytes(),
    ];
    let mut batch = Batch::new();
    for name in names {
        batch.put(Key::named(7, name).as_ref(), name).unwrap();
    }
    table.write(&batch, Durability::Durable).unwrap();
    table.flush().unwrap();
    table.write(&batch, Durability::Durable).unwrap();
    let id = id.to_string();
    let dumped = place.text(&["dump", "@", &id, "--log"]);
    let others = [
        place.text(&["dump", "@", &id, "--log", "--json"]),
        place.text(&["stat", "@", &id]),
        place.text(&["stat", "@", &id, "--json"]),
    ];
    for text in others.iter().chain([&dumped]) {
        let is_bad = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!text.contains(is_bad), "{text:?}");
    }
    assert_eq!(dumped.lines().count(), 12);
    assert!(dumped.contains("größe 日本") && dumped.contains("\\x1b[31mred\\x07"), "{dumped}");
    // What is printed can be typed.
    for key in keys(&dumped) {
        let one = place.text(&["dump", "@", &id, "--from", key, "--limit", "1"]);
        assert_eq!(keys(&one), [key]);
    }
}

#[test]
fn a_large_table_takes_little_memory() {
    let place = Fixture::new();
    let id = place.create(&options());
    let table = place.open(id, &options());
    for part in 0..30 {
        put(&table, part * 20_000..(part + 1) * 20_000);
    }
    table.flush().unwrap();
    put(&table, 0..300_000);
    drop(table);
    let (id, storage) = (id.to_string(), place.storage());
    for line in [vec!["dump", &storage, &id, "--log"], vec!["verify", &storage]] {
        let mut limited = Command::new("sh");
        let program = command().get_program().to_owned();
        limited.args(["-c", "ulimit -v 400000; exec \"$@\" | wc -l", "sh"]);
        let output = limited.arg(program).arg("store").args(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let expected = if line[0] == "dump" { 900_000 } else { 1 };
        assert!(said.is_empty() && lines == expected, "{line:?}: {lines} lines, {said}");
    }
}
