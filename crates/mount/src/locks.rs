//! Locks of programs, where servers keep them: owners by open file, and threads that wait.
//!
//! fuser passes two facts of the kernel on only in part. Both are found out by `/proc`, of the thread
//! that waits for the answer:
//!
//! - Whether a lock of a whole file is one of flock(2) or of fcntl(2): the number of its system call.
//!   If that cannot be read, it counts as one of fcntl(2).
//! - Whether a signal has come for a thread that waits. The kernel ends the call once it is answered
//!   with EINTR. Calls that wait for a lock end with any signal, as on one machine. All other calls that
//!   wait for servers end with signals that end a program: its authors expect no EINTR of those.

use crate::node::Node;
use canopy_namespace::operation::{FileLocks, LockKind, LockOwner};
use fuser::{FileHandle, INodeNo, Notifier};
use nix::libc;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fs::read_to_string;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Threads that wait for locks, and those of one user.
const WAITING: usize = 512;
const WAITING_OF_USER: usize = 128;

/// The first handle. Smaller ones have other meanings.
const FIRST_HANDLE: u64 = 2;

/// flock(2) of 32-bit programs, on all machines that have them.
const FLOCK_32: &str = "143";

/// Looks at a thread until it is in its system call.
const LOOKS: u32 = 100;
const LOOK_PAUSE: Duration = Duration::from_micros(50);

/// Locks of a mount.
pub(crate) struct Locks {
    next_handle: AtomicU64,
    /// Owners that have asked for locks by an open file.
    owners: Mutex<HashMap<u64, BTreeSet<LockOwner>>>,
    /// Threads that wait, by user.
    waiting: Mutex<HashMap<u32, usize>>,
    notifier: OnceLock<Notifier>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            next_handle: AtomicU64::new(FIRST_HANDLE),
            owners: Mutex::default(),
            waiting: Mutex::default(),
            notifier: OnceLock::new(),
        }
    }
}

impl Locks {
    /// Sets the way to the kernel's memory of files.
    pub(crate) fn set_notifier(&self, notifier: Notifier) {
        // It is set once.
        let _ = self.notifier.set(notifier);
    }

    /// Has a thread make the kernel forget files whose locks were lost: programs must not go on reading
    /// what it has of them. It ends once losses are reported no more.
    pub(crate) fn forget_lost(self: &Arc<Self>, servers: &dyn FileLocks) -> std::io::Result<()> {
        let (lost, files) = channel();
        let locks = Arc::downgrade(self);
        let run = move || {
            for id in files {
                let Some(locks) = locks.upgrade() else { return };
                locks.forget_pages(Node::File(id).into());
            }
        };
        thread::Builder::new().name("mount-lost".into()).spawn(run)?;
        // The thread may have ended with the mount.
        servers.report_losses(Box::new(move |id| _ = lost.send(id)));
        Ok(())
    }

    /// Has the kernel forget what it has of a file: others may have changed it.
    pub(crate) fn forget_pages(&self, id: INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            // A file that the kernel does not know is forgotten.
            let _ = notifier.inval_inode(id, 0, 0);
        }
    }

    /// Returns a handle that no other open file has.
    pub(crate) fn handle(&self) -> FileHandle {
        FileHandle(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that an owner asks for a lock by an open file.
    pub(crate) fn note(&self, handle: FileHandle, owner: LockOwner) {
        self.owners.lock().entry(handle.0).or_default().insert(owner);
    }

    /// Returns the owners that have asked by an open file, of which a descriptor is closed.
    pub(crate) fn owners(&self, handle: FileHandle) -> BTreeSet<LockOwner> {
        self.owners.lock().get(&handle.0).cloned().unwrap_or_default()
    }

    /// Returns the owners that have asked by an open file, which is closed.
    pub(crate) fn close(&self, handle: FileHandle) -> BTreeSet<LockOwner> {
        self.owners.lock().remove(&handle.0).unwrap_or_default()
    }

    /// Counts a thread that waits for a user. Returns whether it may.
    pub(crate) fn begin_waiting(&self, uid: u32) -> bool {
        let mut waiting = self.waiting.lock();
        let all: usize = waiting.values().sum();
        let own = waiting.entry(uid).or_default();
        if all >= WAITING || *own >= WAITING_OF_USER {
            return false;
        }
        *own += 1;
        true
    }

    /// Counts a thread that waits no longer.
    pub(crate) fn end_waiting(&self, uid: u32) {
        let mut waiting = self.waiting.lock();
        if let Some(count) = waiting.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&uid);
            }
        }
    }
}

/// Returns the kind of a lock of a whole file that a thread waits for.
pub(crate) fn kind_of(thread: u32) -> LockKind {
    for _ in 0..LOOKS {
        let Ok(line) = read_to_string(format!("/proc/{thread}/syscall")) else {
            return LockKind::Range;
        };
        if let Some(kind) = parse_kind(&line) {
            return kind;
        }
        thread::sleep(LOOK_PAUSE);
    }
    LockKind::Range
}

/// Returns the kind by a line about a system call; none if the thread runs.
fn parse_kind(line: &str) -> Option<LockKind> {
    let number = line.split_whitespace().next().filter(|word| *word != "running")?;
    let is_flock = number == libc::SYS_flock.to_string() || number == FLOCK_32;
    Some(if is_flock { LockKind::Whole } else { LockKind::Range })
}

/// Returns whether a signal has come for a thread that it does not block.
pub(crate) fn is_interrupted(thread: u32) -> bool {
    read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| has_signal(&status))
}

/// Returns whether a signal has come for a thread that ends its program, or usually does.
pub(crate) fn is_ending(thread: u32) -> bool {
    read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| has_ending_signal(&status))
}

fn has_signal(status: &str) -> bool {
    signals(status) != 0
}

/// Returns whether a signal has come that ends a program: one that it does not handle, or one by which
/// users end programs.
fn has_ending_signal(status: &str) -> bool {
    let bit = |signal: i32| 1_u64 << (signal - 1);
    let ends = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGKILL].map(bit);
    let stays =
        [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGCONT].map(bit);
    let ignored = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH].map(bit);
    let [ends, stays, ignored] = [&ends[..], &stays, &ignored].map(|bits| bits.iter().sum::<u64>());
    signals(status) & (ends | !(mask(status, "SigCgt:") | stays | ignored)) != 0
}

/// Returns the signals that have come for a thread and that it does not block, one bit each.
fn signals(status: &str) -> u64 {
    // A signal of the process goes to its first thread if that does not block it.
    let is_first = value(status, "Tgid:") == value(status, "Pid:");
    let of_process = if is_first { mask(status, "ShdPnd:") } else { 0 };
    (mask(status, "SigPnd:") | of_process) & !mask(status, "SigBlk:")
}

fn value<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

fn mask(status: &str, key: &str) -> u64 {
    value(status, key).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_flock_or_not() {
        let flock = format!("{} 0x3 0x2\n", libc::SYS_flock);
        assert_eq!(parse_kind(&flock), Some(LockKind::Whole));
        assert_eq!(parse_kind("143 0x3 0x2\n"), Some(LockKind::Whole));
        assert_eq!(parse_kind("72 0x3 0x6\n"), Some(LockKind::Range));
        assert_eq!(parse_kind("-1 0x7ffd 0x7f0a\n"), Some(LockKind::Range));
        assert_eq!(parse_kind("running\n"), None);
    }

    #[test]
    fn signals_are_those_that_the_thread_gets() {
        let status = |pid: u32, own: u64, shared: u64, blocked: u64| {
            format!(
                "Tgid:\t7\nPid:\t{pid}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        assert!(!has_signal(&status(7, 0, 0, 0)));
        assert!(has_signal(&status(7, 2, 0, 0)));
        assert!(has_signal(&status(8, 2, 0, 0)));
        assert!(has_signal(&status(7, 0, 2, 0)));
        assert!(!has_signal(&status(8, 0, 2, 0)));
        assert!(!has_signal(&status(7, 2, 2, 2)));
        assert!(has_signal(&status(7, 6, 0, 2)));
    }

    #[test]
    fn signals_end_a_program_unless_it_goes_on() {
        let ends = |signal: i32, is_caught: bool| {
            let bit = 1_u64 << (signal - 1);
            let caught = if is_caught { bit } else { 0 };
            has_ending_signal(&format!(
                "Tgid:\t7\nPid:\t7\nShdPnd:\t{bit:x}\nSigCgt:\t{caught:x}\n"
            ))
        };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            assert!(ends(signal, false) && ends(signal, true), "{signal}");
        }
        for signal in [libc::SIGALRM, libc::SIGPROF, libc::SIGUSR1] {
            assert!(ends(signal, false) && !ends(signal, true), "{signal}");
        }
        for signal in [libc::SIGTSTP, libc::SIGCHLD, libc::SIGWINCH, libc::SIGURG] {
            assert!(!ends(signal, false) && !ends(signal, true), "{signal}");
        }
    }

    #[test]
    fn one_user_leaves_threads_for_others() {
        let locks = Locks::default();
        let count = (0..WAITING).filter(|_| locks.begin_waiting(7)).count();
        assert_eq!(count, WAITING_OF_USER);
        assert!(locks.begin_waiting(8));
        locks.end_waiting(7);
        assert!(locks.begin_waiting(7));
    }
}
