//! The table against the kernel's: processes set locks of a real file.

use super::*;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const FILE: &str = "CANOPY_LOCKED_FILE";

/// A process that sets locks: it reads commands, and replies with a line for each.
struct Worker {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Worker {
    fn start(path: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["locks::table::tests::worker", "--exact", "--nocapture", "--test-threads=1"])
            .env(FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Worker { child, commands, replies }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        while !line.contains('=') {
            line.clear();
            assert_ne!(self.replies.read_line(&mut line).unwrap(), 0, "the worker has ended");
        }
        line.trim_end().rsplit('=').next().unwrap().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All conflicts at once are those of each lock.
#[test]
fn conflicts_of_many_locks_are_those_of_each() {
    let mut random = 5u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut found = [0; 2];
    for _ in 0..3000 {
        let mut some = |count: u64| {
            let lock = |_| {
                let start = next(100);
                let mode = if next(4) == 0 { LockMode::Exclusive } else { LockMode::Shared };
                let kind = if next(5) == 0 { LockKind::Whole } else { LockKind::Range };
                let range = LockRange { start, end: start + next(8) };
                FileLock { owner: LockOwner { kind, number: next(9) }, mode, range, pid: 1, uid: 1 }
            };
            Vec::from_iter((0..count).map(lock))
        };
        let (held, wanted) = (some(6), some(4));
        let mut table = LockTable::default();
        held.iter().for_each(|lock| table.set(SessionId(1), lock));
        let each = wanted.iter().any(|lock| table.conflict(SessionId(2), lock).is_some());
        assert_eq!(table.conflicts_with_any(SessionId(2), &wanted), each, "{held:?} {wanted:?}");
        assert!(!table.conflicts_with_any(SessionId(1), &wanted));
        found[usize::from(each)] += 1;
    }
    assert!(found.iter().all(|count| *count > 500), "{found:?}");
}

/// Not a test: the process that `Worker` starts.
#[test]
fn worker() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (ranges, whole) = (open(), open());
    for line in stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let reply = match words[0] {
            "flock" => done(flock(&whole, operation(words[1]))),
            name => range_lock(&ranges, name, &words),
        };
        println!("={reply}");
    }
}

fn done<T, E>(outcome: Result<T, E>) -> String {
    if outcome.is_ok() { "ok" } else { "refused" }.to_owned()
}

fn operation(mode: &str) -> FlockOperation {
    match mode {
        "shared" => FlockOperation::NonBlockingLockShared,
        "exclusive" => FlockOperation::NonBlockingLockExclusive,
        _ => FlockOperation::NonBlockingUnlock,
    }
}

fn range_lock(file: &File, name: &str, words: &[&str]) -> String {
    let kind = match words[1] {
        "shared" => libc::F_RDLCK,
        "exclusive" => libc::F_WRLCK,
        _ => libc::F_UNLCK,
    };
    let (start, end): (i64, i64) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let l_len = if end == i64::MAX { 0 } else { end - start + 1 };
    let l_whence = libc::SEEK_SET as libc::c_short;
    let mut lock =
        libc::flock { l_type: kind as libc::c_short, l_whence, l_start: start, l_len, l_pid: 0 };
    if name == "set" {
        return done(fcntl(file, FcntlArg::F_SETLK(&lock)));
    }
    fcntl(file, FcntlArg::F_GETLK(&mut lock)).unwrap();
    if lock.l_type == libc::F_UNLCK as libc::c_short {
        return "free".to_owned();
    }
    let end = if lock.l_len == 0 { i64::MAX } else { lock.l_start + lock.l_len - 1 };
    let is_exclusive = lock.l_type == libc::F_WRLCK as libc::c_short;
    format!("{} {is_exclusive} {} {end}", lock.l_pid, lock.l_start)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

struct Step {
    word: &'static str,
    mode: Option<LockMode>,
    range: LockRange,
}

fn step(state: &mut u64) -> Step {
    let (word, mode) = match random(state) % 5 {
        0 | 1 => ("shared", Some(LockMode::Shared)),
        2 | 3 => ("exclusive", Some(LockMode::Exclusive)),
        _ => ("free", None),
    };
    let start = random(state) % 24;
    let end = match random(state) % 8 {
        0 => i64::MAX as u64,
        length => start + length * 2 - 1,
    };
    Step { word, mode, range: LockRange { start, end } }
}

/// Sets or frees a lock of flock in a table. Returns the outcome.
fn take_flock(table: &mut LockTable, holder: Holder, wanted: Option<FileLock>) -> &'static str {
    let Some(wanted) = wanted else {
        table.unlock(holder, LockRange::ALL);
        return "ok";
    };
    table.drop_other_mode(holder.session, &wanted);
    if table.conflict(holder.session, &wanted).is_some() {
        return "refused";
    }
    table.set(holder.session, &wanted);
    "ok"
}

/// Locks of one file by processes: random calls have the outcomes that they have in Linux.
#[test]
fn locks_are_those_of_linux() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("file");
    File::create(&path).unwrap();
    let mut workers = Vec::from_iter((0..3).map(|_| Worker::start(&path)));
    let mut table = LockTable::default();
    let state = &mut 0x2545_f491_4f6c_dd1d;
    for number in 0..6000 {
        let at = (random(state) % 3) as usize;
        let (worker, session) = (&mut workers[at], SessionId(at as u64 + 1));
        let Step { word, mode, range } = step(state);
        let LockRange { start, end } = range;
        let kind = if random(state).is_multiple_of(4) { LockKind::Whole } else { LockKind::Range };
        let owner = LockOwner { kind, number: 7 };
        let holder = Holder { session, owner };
        let pid = worker.child.id();
        let lock = |mode| FileLock { owner, mode, range, pid, uid: 0 };
        let why = format!("step {number}, process {at}: {kind:?} {word} {start} {end}");
        let expected = |table: &mut LockTable| match mode.map(lock) {
            None => {
                table.unlock(holder, range);
                "ok"
            }
            Some(lock) => {
                table.drop_other_mode(session, &lock);
                match table.conflict(session, &lock) {
                    Some(_) => "refused",
                    None => {
                        table.set(session, &lock);
                        "ok"
                    }
                }
            }
        };
        if kind == LockKind::Whole {
            let wanted = mode.map(|mode| FileLock { range: LockRange::ALL, ..lock(mode) });
            let expected = take_flock(&mut table, holder, wanted);
            assert_eq!(worker.ask(&format!("flock {word}")), expected, "{why}");
            continue;
        }
        match mode.filter(|_| random(state).is_multiple_of(3)) {
            None => {
                let found = worker.ask(&format!("set {word} {start} {end}"));
                assert_eq!(found, expected(&mut table), "{why}");
            }
            Some(mode) => {
                let found = worker.ask(&format!("get {word} {start} {end}"));
                // If several are in the way, it may be any of them.
                let conflicts = Vec::from_iter(table.conflicts(session, &lock(mode)));
                let all = conflicts.iter().flat_map(|(holder, _)| table.of_session(holder.session));
                let shown = all.filter(|lock| lock.owner.kind == LockKind::Range).map(|lock| {
                    let LockRange { start, end } = lock.range;
                    format!("{} {} {start} {end}", lock.pid, lock.mode == LockMode::Exclusive)
                });
                let shown = Vec::from_iter(shown);
                let is_right = match conflicts.is_empty() {
                    true => found == "free",
                    false => shown.contains(&found),
                };
                assert!(is_right, "{why}: {found}, not {shown:?}");
            }
        }
    }
}
