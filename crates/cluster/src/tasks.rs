//! Work beside requests, on a thread of its own. What fails is tried again later.

use canopy_namespace::FileId;
use canopy_partition::{PartitionId, ServerId};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Time until a task that failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Splits a partition of a directory that a server holds.
    Split(ServerId, FileId, PartitionId),
    /// Does what a crash has left undone at a server.
    Recover(ServerId),
    /// Finds out about changes of several servers that have not ended at a server.
    Doubts(ServerId),
    /// Has homes of directories know that a server gave them names.
    ConfirmNames(ServerId),
    /// Learns that there are so many servers.
    Learn(u32),
    /// Asks what became of directories at their home that may have no name.
    SettleMaking(ServerId),
    /// Asks what became of partitions that a server was offered.
    Offers(ServerId),
    /// Ends snapshots that a crash has left, and cuts whose time is over.
    EndSnapshots(ServerId),
    /// Reports to the authority of limits what it has to know of a server; has the authority find out
    /// what servers use.
    Limits(ServerId),
}

impl Task {
    /// Returns the server that has to run here for it; none if it concerns the process.
    pub(crate) fn server(self) -> Option<ServerId> {
        match self {
            Task::Split(server, ..)
            | Task::Recover(server)
            | Task::Doubts(server)
            | Task::ConfirmNames(server)
            | Task::SettleMaking(server)
            | Task::Offers(server)
            | Task::EndSnapshots(server)
            | Task::Limits(server) => Some(server),
            Task::Learn(_) => None,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Split(server, directory, partition) => {
                write!(f, "server {server}: splitting {partition} of {directory}")
            }
            Task::Recover(server) => write!(f, "server {server}: recovery"),
            Task::Doubts(server) => write!(f, "server {server}: changes of several servers"),
            Task::ConfirmNames(server) | Task::SettleMaking(server) => {
                write!(f, "server {server}: new directories")
            }
            Task::Learn(_) => f.write_str("the list of servers"),
            Task::Offers(server) => write!(f, "server {server}: partitions that were offered"),
            Task::EndSnapshots(server) => write!(f, "server {server}: the end of snapshots"),
            Task::Limits(server) => write!(f, "server {server}: limits of accounts"),
        }
    }
}

/// Tasks that wait, each once.
#[derive(Default)]
pub(crate) struct Tasks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    /// Those that wait, or have failed. One that runs can be added anew: it may have seen too little.
    known: HashSet<Task>,
    is_running: bool,
    /// Those that failed, and are tried again.
    failed: Vec<Task>,
    is_ended: bool,
}

impl Tasks {
    /// Starts the thread. It ends when the tasks are dropped, or the owner is.
    pub(crate) fn start<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        work: impl Fn(&T, Task) -> bool + Send + 'static,
    ) -> Result<(), canopy_namespace::Error> {
        let (shared, owner) = (self.0.clone(), Arc::downgrade(owner));
        let run = move || shared.run(&owner, work);
        let spawned = thread::Builder::new().name("cluster-tasks".into()).spawn(run);
        let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
        spawned.map(|_| ()).map_err(io)
    }

    pub(crate) fn add(&self, task: Task) {
        let mut queue = self.0.queue.lock();
        if queue.known.insert(task) {
            queue.waiting.push_back(task);
            self.0.changed.notify_all();
        }
    }

    /// Takes a task that waits, and then those that failed if `retries`: a simulation does them.
    pub(crate) fn take(&self, retries: bool) -> Option<Task> {
        let mut queue = self.0.queue.lock();
        if retries {
            let failed = std::mem::take(&mut queue.failed);
            queue.waiting.extend(failed);
        }
        let task = queue.waiting.pop_front()?;
        queue.known.remove(&task);
        Some(task)
    }

    /// Returns whether a task waits, or has failed.
    pub(crate) fn has_any(&self) -> bool {
        let queue = self.0.queue.lock();
        !queue.waiting.is_empty() || !queue.failed.is_empty()
    }

    /// Has a task that failed be done again.
    pub(crate) fn fail(&self, task: Task) {
        let mut queue = self.0.queue.lock();
        if queue.known.insert(task) {
            queue.failed.push(task);
        }
    }

    /// Waits until nothing waits or runs.
    pub(crate) fn settle(&self) {
        let mut queue = self.0.queue.lock();
        while queue.is_running || !queue.waiting.is_empty() {
            self.0.changed.wait(&mut queue);
        }
    }
}

impl Shared {
    fn run<T>(&self, owner: &Weak<T>, work: impl Fn(&T, Task) -> bool) {
        while let Some(task) = self.next() {
            let Some(owner) = owner.upgrade() else { return };
            let has_failed = work(&owner, task);
            drop(owner);
            let mut queue = self.queue.lock();
            queue.is_running = false;
            if has_failed && queue.known.insert(task) {
                queue.failed.push(task);
            }
            self.changed.notify_all();
        }
    }

    /// Returns the next task; none at the end.
    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_ended {
                return None;
            }
            if let Some(task) = queue.waiting.pop_front() {
                queue.known.remove(&task);
                queue.is_running = true;
                return Some(task);
            }
            match queue.failed.is_empty() {
                true => self.changed.wait(&mut queue),
                false if self.changed.wait_for(&mut queue, PAUSE).timed_out() => {
                    let failed = std::mem::take(&mut queue.failed);
                    queue.waiting.extend(failed);
                }
                false => {}
            }
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.queue.lock().is_ended = true;
        self.0.changed.notify_all();
    }
}
