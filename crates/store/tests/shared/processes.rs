//! Real processes that share a directory, and that are killed.

use super::{made, opened};
use crate::place::{Fixture, key, number, options};
use canopy_store::storage::{Created, SharedDirectory, Storage};
use canopy_store::{Batch, Durability, Error, Options, Table, TableId, collect, compact_all};
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

const WORK: &str = "CANOPY_TEST_WORK";

/// Runs one of the kinds of work below as a process of its own.
fn start(work: &str, directory: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::work", "--nocapture", "--test-threads=1"]);
    let words = [&[work, directory.to_str().unwrap()], words].concat().join("\n");
    command.env(WORK, words).stdout(Stdio::piped()).spawn().unwrap()
}

/// Lines that a process has printed about its work.
fn lines(child: Child) -> Vec<String> {
    let all = BufReader::new(child.stdout.unwrap()).lines().map_while(Result::ok);
    all.filter_map(|line| Some(line.split_once("did: ")?.1.to_owned())).collect()
}

fn did(what: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "did: {what}").unwrap();
    out.flush().unwrap();
}

/// The process that another test has started.
#[test]
fn work() {
    let Ok(words) = std::env::var(WORK) else { return };
    let words = Vec::from_iter(words.split('\n'));
    let directory = PathBuf::from(words[1]);
    match words[0] {
        "race" => race(&directory, words[2], words[3].parse().unwrap()),
        "large" => large(&directory, words[2]),
        "write" => write(&directory, TableId::parse(words[2]).unwrap(), words[3].parse().unwrap()),
        other => panic!("{other}"),
    }
}

/// Tries to create names that others want, too.
fn race(directory: &Path, own: &str, count: usize) {
    let storage = SharedDirectory::open(directory).unwrap();
    for at in 0..count {
        let created = storage.create(&format!("race/{at:05}"), own.to_owned().into()).unwrap();
        if created == Created::Now {
            did(at);
        }
    }
}

#[test]
fn one_of_several_processes_creates_a_name() {
    let directory = tempfile::tempdir().unwrap();
    drop(made(directory.path()));
    let count = 600;
    let racers = ["a", "b", "c", "d"]
        .map(|own| (own, start("race", directory.path(), &[own, &count.to_string()])));
    let mut winners = BTreeMap::new();
    let mut wins = BTreeMap::new();
    for (own, racer) in racers {
        for at in lines(racer) {
            let at: usize = at.parse().unwrap();
            assert_eq!(winners.insert(at, own), None, "{at} was created twice");
            *wins.entry(own).or_insert(0) += 1;
        }
    }
    assert_eq!(winners.len(), count);
    println!("{wins:?}");
    let storage = SharedDirectory::open(directory.path()).unwrap();
    for (at, own) in winners {
        assert_eq!(storage.read(&format!("race/{at:05}")).unwrap(), own);
    }
    assert_eq!(fs::read_dir(directory.path().join("temporary")).unwrap().count(), 0);
}

const LARGE_BYTES: usize = 300_000;

/// Creates large objects until it is killed.
fn large(directory: &Path, own: &str) {
    let storage = SharedDirectory::open(directory).unwrap();
    for at in 0..u64::MAX {
        let byte = (at % 251) as u8;
        storage.create(&format!("large/{own}-{at}"), vec![byte; LARGE_BYTES].into()).unwrap();
        did(at);
    }
}

#[test]
fn killed_processes_leave_whole_objects_and_files_that_go() {
    let directory = tempfile::tempdir().unwrap();
    drop(made(directory.path()));
    let mut random = rand::rng();
    let mut durable = BTreeSet::new();
    for own in 0..12 {
        let mut process = start("large", directory.path(), &[&own.to_string()]);
        std::thread::sleep(Duration::from_millis(random.random_range(150..400)));
        process.kill().unwrap();
        process.wait().unwrap();
        durable.extend(lines(process).into_iter().map(|at| format!("large/{own}-{at}")));
    }
    let storage = SharedDirectory::open(directory.path()).unwrap();
    let listed = storage.list("large/", "").unwrap();
    for one in &listed {
        let at: u64 = one.name.rsplit_once('-').unwrap().1.parse().unwrap();
        let bytes = storage.read(&one.name).unwrap();
        let is_whole = bytes.len() == LARGE_BYTES && bytes.iter().all(|b| *b == (at % 251) as u8);
        assert!(is_whole && one.size_bytes == LARGE_BYTES as u64, "{}", one.name);
        durable.remove(&one.name);
    }
    assert!(durable.is_empty() && listed.len() > 12, "{durable:?}");

    // What they left goes when it is old, and nothing else.
    let temporary = directory.path().join("temporary");
    let left = || fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left(), 12);
    storage.create("large/next", "bytes".into()).unwrap();
    drop(storage);
    assert_eq!(left(), 12, "they are not old");
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 60 * 60);
    let name = |entry: fs::DirEntry| entry.path();
    let mut all = Vec::from_iter(fs::read_dir(&temporary).unwrap().map(|one| name(one.unwrap())));
    all.sort();
    let (others, all) = all.split_first().unwrap();
    std::os::unix::fs::chown(others, Some(12345), None).unwrap();
    let strange = temporary.join("of-somebody-else");
    fs::create_dir(&strange).unwrap();
    let linked = directory.path().join("linked");
    fs::create_dir(&linked).unwrap();
    fs::write(linked.join("1"), "kept").unwrap();
    std::os::unix::fs::symlink(&linked, temporary.join("00000000000000aa")).unwrap();
    fs::write(all[0].join("kept"), "not a file of ours").unwrap();
    for path in all.iter().chain([others, &strange, &linked]) {
        File::open(path).unwrap().set_modified(old).unwrap();
    }
    let storage = SharedDirectory::open(directory.path()).unwrap();
    storage.create("large/last", "bytes".into()).unwrap();
    drop(storage);
    assert!(others.exists() && strange.exists() && linked.join("1").exists());
    assert!(all[0].join("kept").exists() && all[1..].iter().all(|one| !one.exists()));
    assert_eq!(others.metadata().unwrap().uid(), 12345);
}

/// Opens the table again and again, writes, flushes, merges and collects, as others do.
fn write(directory: &Path, id: TableId, own: u64) {
    let place = opened(directory);
    let small = Options { grace_ms: 0, memtable_bytes: 2000, ..options() };
    let mut next = 0;
    loop {
        let table = match Table::open(&place.environment, id, place.cache.clone(), small.clone()) {
            // Another one has taken it meanwhile, and collected what this one was reading.
            Err(Error::Fenced(_) | Error::Contended(_) | Error::NotFound(_)) => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            table => table.unwrap(),
        };
        for _ in 0..rand::rng().random_range(10..60) {
            match step(&place, &table, own, &mut next) {
                Err(Error::Fenced(_) | Error::Contended(_)) => break,
                // Another one has collected what this one reads; it begins anew.
                Err(Error::NotFound(_)) => break,
                done => done.unwrap(),
            }
        }
        drop(table);
        // The others get a turn.
        std::thread::sleep(Duration::from_millis(rand::rng().random_range(50..300)));
    }
}

fn step(place: &Fixture, table: &Table, own: u64, next: &mut u64) -> canopy_store::Result<()> {
    let (mut batch, number) = (Batch::new(), *next);
    // If this fails, the next writer may have it or not.
    *next += 1;
    batch.put(key(own, number).as_ref(), &number.to_le_bytes())?;
    batch.merge(key(100 + own, number).as_ref(), &1u64.to_le_bytes())?;
    table.write(&batch, Durability::Durable)?;
    did(number);
    let no_grace = Options { grace_ms: 0, ..options() };
    match rand::rng().random_range(0..12) {
        0..4 => table.flush(),
        4 => compact_all(&place.environment, table.id(), &place.cache, &no_grace).map(drop),
        5 | 6 => collect(&place.environment, table.id()).map(drop),
        _ => Ok(()),
    }
}

#[test]
fn processes_that_take_a_table_from_each_other_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = made(directory.path());
    let id = place.create();
    let mut durable: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut random = rand::rng();
    for round in 0..4 {
        let writers = Vec::from_iter((0..3).map(|at| {
            let own = 3 * round + at;
            (own, start("write", directory.path(), &[&id.to_string(), &own.to_string()]))
        }));
        std::thread::sleep(Duration::from_millis(random.random_range(1500..2500)));
        for (own, mut writer) in writers {
            assert!(writer.try_wait().unwrap().is_none(), "a writer failed");
            writer.kill().unwrap();
            writer.wait().unwrap();
            let acknowledged = lines(writer).into_iter().map(|number| number.parse().unwrap());
            durable.insert(own, acknowledged.collect());
        }
    }
    let table = place.open(id);
    for (own, acknowledged) in &durable {
        let last = acknowledged.last().copied().unwrap_or(0);
        for at in 0..last + 100 {
            let [found, count] = [*own, 100 + own].map(|directory| {
                let found = table.get(key(directory, at).as_ref()).unwrap();
                found.map(|value| number(&value))
            });
            // Nothing counts twice, and what was acknowledged counts.
            let is_whole = [found, count] == [Some(at), Some(1)];
            let is_absent = [found, count] == [None, None] && !acknowledged.contains(&at);
            assert!(is_whole || is_absent, "{own}, {at}: {found:?}, {count:?}");
        }
    }
    let version = table.manifest().version.number;
    let writes = durable.values().map(BTreeSet::len).sum::<usize>();
    println!("{writes} writes, {version} versions, epoch {}", table.epoch());
    assert!(writes > 50 && version > 50, "{durable:?}");
}
