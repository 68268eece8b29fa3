//! Work of a process beside requests: partitions that have grown are split, and what a crash has left undone
//! is done. Threads of `tasks` do it, or a simulation step by step.

use super::Process;
use crate::error::{Error, Result};
use crate::handover;
use crate::tasks::Task;
use canopy_partition::ServerId;
use std::time::Duration;

/// Time after which the home of a directory without a name asks why.
const MAKING_PATIENCE: Duration = Duration::from_secs(10);

/// Time after which a server asks again about partitions that it was offered. A giver whose table
/// another process has opened may have sent them, and nobody gives them then.
const OFFER_PATIENCE: Duration = Duration::from_secs(5);

impl Process {
    /// Returns whether there is work beside requests, in a simulation.
    pub fn has_work(&self) -> bool {
        self.tasks.has_any()
    }

    /// Does a piece of work beside requests, in a simulation; with `retries` also one that has failed.
    /// Returns whether there was any.
    pub fn work_once(&self, retries: bool) -> bool {
        let Some(task) = self.tasks.take(retries) else { return false };
        if self.work(task) {
            self.tasks.fail(task);
        }
        true
    }

    /// Does a piece of work beside requests. Returns whether it has to be done again later.
    pub(super) fn work(&self, task: Task) -> bool {
        let done = match task {
            Task::Split(server, directory, partition) => {
                self.split_while_large(server, directory, partition).map(|()| true)
            }
            Task::Recover(server) => self.recover(server),
            Task::Learn(servers) => self.layout.learn(servers).map(|()| true),
            Task::Doubts(server) => self.clear_doubts(server),
            Task::ConfirmNames(server) => {
                self.server(server).and_then(|server| server.confirm_names(self)).map(|()| true)
            }
            Task::Limits(server) => {
                self.server(server).and_then(|server| server.settle_limits(self)).map(|()| true)
            }
            Task::EndSnapshots(server) => self
                .server(server)
                .and_then(|server| self.end_unfinished_snapshots(&server))
                .map(|()| true),
            Task::SettleMaking(server) => self
                .server(server)
                .and_then(|server| server.settle_making(self, MAKING_PATIENCE))
                .map(|_| true),
            Task::Offers(server) => self
                .server(server)
                .and_then(|server| handover::ask_all(&server, self))
                .map(|()| true),
        };
        match done {
            Ok(is_done) => !is_done,
            // Another server that does not run may do so later.
            Err(Error::NotRunning(server)) if Some(server) == task.server() => false,
            // The entry that made a partition too large is there, whatever becomes of the split.
            Err(Error::Stopped(_)) => matches!(task, Task::Recover(_)),
            Err(error) => {
                self.note_failure(&format!("{task}"), error);
                true
            }
        }
    }

    /// Notes a failure of work beside requests. The log gets it unless it was the last one, too.
    pub(crate) fn note_failure(&self, what: &str, error: Error) {
        let mut failure = self.failure.lock();
        let is_known = failure.as_ref().is_some_and(|last| last.to_string() == error.to_string());
        if !is_known {
            tracing::warn!("{what}: {error}");
        }
        *failure = Some(error);
    }

    /// Does what a crash has left undone at a server. Returns whether all is done.
    pub(super) fn recover(&self, server: ServerId) -> Result<bool> {
        let server = self.server(server)?;
        for directory in server.pending_attributes()? {
            server.push_attributes(self, directory)?;
        }
        let is_clear = server.clear_doubts(self)?;
        let is_settled = server.settle_making(self, Duration::ZERO)?;
        server.confirm_names(self)?;
        Ok(handover::recover(&server, self)? && is_settled && is_clear)
    }

    /// Finds out about changes of several servers that have not ended. Returns whether all have.
    fn clear_doubts(&self, server: ServerId) -> Result<bool> {
        self.server(server)?.clear_doubts(self)
    }

    /// Does what is due by the clock: holds and sessions of silent clients end. A thread of the process calls
    /// it a few times in a second.
    pub fn tick(&self) {
        let mut asked = self.ticking.lock();
        let now = (self.settings.sessions.clock)();
        let asks = now.saturating_sub(*asked) >= OFFER_PATIENCE;
        if asks {
            *asked = now;
        }
        for id in self.running() {
            let Ok(server) = self.server(id) else { continue };
            if let Err(error) = server.end_holds().and_then(|()| server.end_silent_sessions()) {
                self.note_failure(&format!("server {id}"), error);
            }
            server.checking.expire();
            for (directory, partition) in server.growth.take_oversized() {
                self.tasks.add(Task::Split(id, directory, partition));
            }
            if server.making.has_named() {
                self.tasks.add(Task::ConfirmNames(id));
            }
            if server.has_notices() || server.has_reviews() {
                self.tasks.add(Task::Limits(id));
            }
            if asks && (server.has_offers(None) || server.has_ended_offers(None)) {
                self.tasks.add(Task::Offers(id));
            }
            if server.making.has_unnamed(MAKING_PATIENCE, server.sessions.now()) {
                self.tasks.add(Task::SettleMaking(id));
            }
            server.cuts.end_old_pause(server.sessions.now());
            if server.snapshots.has_unfinished(self.environment.clock.now_ms()) {
                self.tasks.add(Task::EndSnapshots(id));
            }
        }
    }
}
