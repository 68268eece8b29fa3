//! Locks: of whole files (flock), of ranges by process and of ranges by open file (OFD).

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;

/// `flock FD KIND`; `setlk FD KIND START LENGTH` and its relations. `getlk FD KIND START LENGTH`
/// returns the kind, start and length of a lock in the way, or `F_UNLCK`.
pub const CALLS: Calls = &[
    ("flock", flock),
    ("setlk", |worker, words| set(worker, words, |lock| FcntlArg::F_SETLK(lock))),
    ("setlkw", |worker, words| set(worker, words, |lock| FcntlArg::F_SETLKW(lock))),
    ("getlk", |worker, words| get(worker, words, |lock| FcntlArg::F_GETLK(lock))),
    ("ofd-setlk", |worker, words| set(worker, words, |lock| FcntlArg::F_OFD_SETLK(lock))),
    ("ofd-setlkw", |worker, words| set(worker, words, |lock| FcntlArg::F_OFD_SETLKW(lock))),
    ("ofd-getlk", |worker, words| get(worker, words, |lock| FcntlArg::F_OFD_GETLK(lock))),
];

fn flock(worker: &mut Worker, words: &mut Words) -> Answer {
    use FlockOperation as Operation;
    let file = worker.descriptor(words)?;
    let operation = match words.word()? {
        "LOCK_SH" => Operation::LockShared,
        "LOCK_EX" => Operation::LockExclusive,
        "LOCK_UN" => Operation::Unlock,
        "LOCK_SH|LOCK_NB" => Operation::NonBlockingLockShared,
        "LOCK_EX|LOCK_NB" => Operation::NonBlockingLockExclusive,
        "LOCK_UN|LOCK_NB" => Operation::NonBlockingUnlock,
        other => return Err(Refusal::broken(format!("{other} is not a lock"))),
    };
    done(rustix::fs::flock(file, operation))
}

fn lock(words: &mut Words) -> Result<libc::flock, Refusal> {
    Ok(libc::flock {
        l_type: words.number()? as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: words.number()?,
        l_len: words.number()?,
        l_pid: 0,
    })
}

fn set(
    worker: &mut Worker,
    words: &mut Words,
    operation: for<'a> fn(&'a libc::flock) -> FcntlArg<'a>,
) -> Answer {
    let file = worker.descriptor(words)?;
    done(fcntl(file, operation(&lock(words)?)))
}

fn get(
    worker: &mut Worker,
    words: &mut Words,
    operation: for<'a> fn(&'a mut libc::flock) -> FcntlArg<'a>,
) -> Answer {
    let file = worker.descriptor(words)?;
    let mut lock = lock(words)?;
    fcntl(file, operation(&mut lock))?;
    let kind = match i32::from(lock.l_type) {
        libc::F_UNLCK => return Ok("F_UNLCK".to_owned()),
        libc::F_RDLCK => "F_RDLCK",
        _ => "F_WRLCK",
    };
    Ok(format!("{kind} {} {}", lock.l_start, lock.l_len))
}
