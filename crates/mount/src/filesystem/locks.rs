//! Locks of programs, where servers keep them.

use super::Filesystem;
use super::contents::current;
use crate::convert::errno;
use crate::locks::{Locks, is_interrupted, kind_of};
use crate::node::Node;
use canopy_namespace::operation::{
    FileLock, FileLocks, LockKind, LockMode, LockOutcome, LockOwner, LockRange, program,
};
use canopy_namespace::{Execute, FileId, Result};
use fuser::{Errno, FileHandle, INodeNo, ReplyEmpty, ReplyLock, Request};
use nix::libc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How often a lock that waits looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Time after which a lock is tried again without a sign that it is its turn.
const RETRY: Duration = Duration::from_secs(1);

/// Time for which a lock is tried again that another one keeps from being set whose open file may have
/// just been closed, and the pauses meanwhile.
const CLOSING: Duration = Duration::from_secs(1);
const RETRY_CLOSING: Duration = Duration::from_millis(10);

/// A request about a lock.
#[derive(Clone, Copy)]
pub(super) struct LockCall {
    pub(super) handle: FileHandle,
    /// The kernel's number of the owner.
    pub(super) owner: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: i32,
    pub(super) pid: u32,
}

impl LockCall {
    /// Returns the mode of the lock; none to free it.
    fn mode(&self) -> Option<LockMode> {
        match self.kind {
            libc::F_RDLCK => Some(LockMode::Shared),
            libc::F_WRLCK => Some(LockMode::Exclusive),
            _ => None,
        }
    }

    fn range(&self) -> LockRange {
        LockRange { start: self.start, end: self.end }
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && self.end >= i64::MAX as u64
    }

    fn owner(&self, kind: LockKind) -> LockOwner {
        LockOwner { kind, number: self.owner }
    }
}

/// A lock that a thread of a program asks for.
struct Asked {
    id: FileId,
    node: INodeNo,
    lock: FileLock,
    thread: u32,
}

impl Filesystem {
    /// Replies with a lock that is in the way of another one.
    pub(super) fn reply_lock(
        &self,
        request: &Request,
        node: Node,
        call: LockCall,
        reply: ReplyLock,
    ) {
        let asked =
            current(node).and_then(|id| Ok((id, call.mode().ok_or(rustix::io::Errno::INVAL)?)));
        let (id, mode) = match asked {
            Ok(asked) => asked,
            Err(error) => return reply.error(errno(&error)),
        };
        let (owner, range) = (call.owner(LockKind::Range), call.range());
        let wanted = FileLock { owner, mode, range, pid: call.pid, uid: request.uid() };
        self.transfer(request.uid(), false, move |namespace| {
            match servers(namespace).and_then(|locks| locks.test_lock(id, &wanted)) {
                Ok(None) => reply.locked(call.start, call.end, libc::F_UNLCK, 0),
                Ok(Some(lock)) => {
                    let kind = match lock.mode {
                        LockMode::Shared => libc::F_RDLCK,
                        LockMode::Exclusive => libc::F_WRLCK,
                    };
                    let end = lock.range.end.min(i64::MAX as u64);
                    reply.locked(lock.range.start, end, kind, lock.pid);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Sets a lock, or frees it.
    pub(super) fn change_lock(
        &self,
        request: &Request,
        node: Node,
        call: LockCall,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let Some(locks) = self.locks.clone() else { return reply.error(Errno::ENOLCK) };
        let id = match current(node) {
            Ok(id) => id,
            Err(error) => return reply.error(errno(&error)),
        };
        let (uid, thread, node) = (request.uid(), request.pid(), INodeNo::from(node));
        let Some(mode) = call.mode() else {
            return self.transfer(uid, false, move |namespace| {
                super::empty(reply, free(namespace, id, &call));
            });
        };
        let namespace = self.namespace.clone();
        if waits {
            if !locks.begin_waiting(uid) {
                return reply.error(Errno::ENOLCK);
            }
            return in_thread(locks.clone(), uid, move || {
                let asked = ask_for(&locks, id, node, &call, mode, uid, thread);
                wait(&*namespace, &locks, &asked, reply);
            });
        }
        self.transfer(uid, false, move |_| {
            let asked = ask_for(&locks, id, node, &call, mode, uid, thread);
            let outcome = attempt(&*namespace, &locks, &asked, false);
            if !matches!(outcome, Ok(LockOutcome::MayGo)) || !locks.begin_waiting(uid) {
                return answer(outcome, reply);
            }
            in_thread(locks.clone(), uid, move || retry(&*namespace, &locks, &asked, reply));
        });
    }
}

/// Runs what may wait for a user, whose thread is counted already.
fn in_thread(locks: Arc<Locks>, uid: u32, work: impl FnOnce() + Send + 'static) {
    let counted = locks.clone();
    let program = program::current();
    let run = move || {
        let _working = program::resume(program);
        work();
        locks.end_waiting(uid);
    };
    // A reply that is dropped is an error.
    if thread::Builder::new().name("mount-lock".into()).spawn(run).is_err() {
        counted.end_waiting(uid);
    }
}

fn answer(outcome: Result<LockOutcome>, reply: ReplyEmpty) {
    match outcome {
        Ok(LockOutcome::Set) => reply.ok(),
        Ok(LockOutcome::Refused | LockOutcome::MayGo | LockOutcome::Waits) => {
            reply.error(Errno::EAGAIN);
        }
        Err(error) => reply.error(errno(&error)),
    }
}

/// Tries again, for a moment, to set a lock: the one in its way may be gone as soon as the kernel has
/// reported the last close of its open file.
fn retry(namespace: &dyn Execute, locks: &Locks, asked: &Asked, reply: ReplyEmpty) {
    let since = Instant::now();
    loop {
        thread::sleep(RETRY_CLOSING);
        let outcome = attempt(namespace, locks, asked, false);
        let may_go = matches!(outcome, Ok(LockOutcome::MayGo));
        if !may_go || since.elapsed() >= CLOSING {
            return answer(outcome, reply);
        }
    }
}

/// Returns a lock that is asked for, whose owner is noted for its open file.
fn ask_for(
    locks: &Locks,
    id: FileId,
    node: INodeNo,
    call: &LockCall,
    mode: LockMode,
    uid: u32,
    thread: u32,
) -> Asked {
    let kind = if call.is_whole() { kind_of(thread) } else { LockKind::Range };
    let owner = call.owner(kind);
    locks.note(call.handle, owner);
    Asked {
        id,
        node,
        lock: FileLock { owner, mode, range: call.range(), pid: call.pid, uid },
        thread,
    }
}

fn servers(namespace: &dyn Execute) -> Result<&dyn FileLocks> {
    Ok(namespace.locks().ok_or(rustix::io::Errno::NOLCK)?)
}

/// Tries to set a lock. The kernel reads anew what it had of the file.
fn attempt(
    namespace: &dyn Execute,
    locks: &Locks,
    asked: &Asked,
    waits: bool,
) -> Result<LockOutcome> {
    let outcome = servers(namespace)?.set_lock(asked.id, &asked.lock, waits)?;
    if outcome == LockOutcome::Set {
        locks.forget_pages(asked.node);
    }
    Ok(outcome)
}

/// Waits for a lock, until a signal comes.
fn wait(namespace: &dyn Execute, locks: &Locks, asked: &Asked, reply: ReplyEmpty) {
    let Asked { id, lock, thread, .. } = asked;
    loop {
        match attempt(namespace, locks, asked, true) {
            Ok(LockOutcome::Set) => return reply.ok(),
            Ok(LockOutcome::Refused | LockOutcome::MayGo) => return reply.error(Errno::EAGAIN),
            Ok(LockOutcome::Waits) => {}
            Err(error) => return reply.error(errno(&error)),
        }
        let Ok(servers) = servers(namespace) else { return reply.error(Errno::ENOLCK) };
        let since = Instant::now();
        loop {
            if is_interrupted(*thread) {
                reply.error(Errno::EINTR);
                return servers.cancel_lock(*id, lock);
            }
            if servers.await_lock(*id, lock, LOOK) || since.elapsed() >= RETRY {
                break;
            }
        }
    }
}

/// Frees a range of an owner. Whether that is by flock or by fcntl does not matter: no owner has locks
/// of both.
fn free(namespace: &dyn Execute, id: FileId, call: &LockCall) -> Result<()> {
    let locks = servers(namespace)?;
    let whole = call.is_whole().then_some(call.owner(LockKind::Whole));
    for owner in [call.owner(LockKind::Range)].into_iter().chain(whole) {
        if locks.may_have_locks(id, owner) {
            locks.unlock(id, owner, call.range())?;
        }
    }
    Ok(())
}

/// Frees all locks of owners, as a file is closed.
pub(super) fn free_all(
    namespace: &dyn Execute,
    id: FileId,
    owners: impl IntoIterator<Item = LockOwner>,
) -> Result<()> {
    let Some(locks) = namespace.locks() else { return Ok(()) };
    let mut freed = Ok(());
    for owner in owners {
        if locks.may_have_locks(id, owner) {
            freed = freed.and(locks.unlock(id, owner, LockRange::ALL));
        }
    }
    freed
}

/// Notes that a descriptor of an open file is closed, by which owners have asked for locks.
pub(super) fn note_closing(
    namespace: &dyn Execute,
    id: FileId,
    owners: impl Iterator<Item = LockOwner>,
) {
    let Some(locks) = namespace.locks() else { return };
    let with_locks = Vec::from_iter(owners.filter(|owner| locks.may_have_locks(id, *owner)));
    if !with_locks.is_empty() {
        locks.may_be_closed(id, &with_locks);
    }
}

/// Returns the locks of a mount, if servers keep them.
pub(super) fn of(namespace: &dyn Execute) -> Option<Arc<Locks>> {
    namespace.locks().map(|_| Arc::default())
}
