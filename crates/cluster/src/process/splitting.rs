//! Splits of partitions that servers of a process hold, and their hand-overs.

use super::Process;
use crate::error::Result;
use crate::handover::{HandOver, HandOverHook, HandOverStage};
use crate::message::{Response, Sender};
use crate::tasks::Task;
use canopy_namespace::FileId;
use canopy_namespace::operation::Caller;
use canopy_partition::{PartitionId, ServerId, Split, SplitHistory};
use rustix::io::Errno;
use std::time::Instant;

impl Process {
    /// Splits a partition for somebody who has asked for it.
    pub(super) fn split_for(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        directory: FileId,
        partition: PartitionId,
    ) -> Result<Response> {
        match sender.caller {
            Caller::Trusted => {
                let steps = &mut |_: HandOverStage| true;
                self.split_at(server, directory, partition, steps).map(Response::Done)
            }
            Caller::User(_) => Err(canopy_namespace::Error::from(Errno::PERM).into()),
        }
    }

    /// Splits a partition until it has few enough entries, or there is no server for another half.
    pub(super) fn split_while_large(
        &self,
        server: ServerId,
        directory: FileId,
        partition: PartitionId,
    ) -> Result<()> {
        while self.server(server)?.is_too_large(directory, partition)?
            && self.split_at(server, directory, partition, &mut |_: HandOverStage| true)?
        {}
        Ok(())
    }

    /// Splits a partition of a directory, which a server here holds, if there is a server for its
    /// upper half. Returns whether it did.
    ///
    /// # Errors
    ///
    /// Fails with `Stopped` if the hand-over did not come to its end, and as the tablets do.
    pub fn split(
        &self,
        directory: FileId,
        partition: PartitionId,
        steps: &mut dyn HandOverHook,
    ) -> Result<bool> {
        for id in self.running() {
            if self.server(id)?.holdings(directory)?.history(partition).is_some() {
                return self.split_at(id, directory, partition, steps);
            }
        }
        Ok(false)
    }

    fn split_at(
        &self,
        server: ServerId,
        directory: FileId,
        partition: PartitionId,
        steps: &mut dyn HandOverHook,
    ) -> Result<bool> {
        let giver = self.server(server)?;
        if giver.has_removed(directory)? {
            return Ok(false);
        }
        let history = giver.holdings(directory)?.history(partition);
        let Some(history) = history else { return Ok(false) };
        let Some((placement, split)) = giver.next_split(directory, history)? else {
            return Ok(false);
        };
        let Split { child, moves } = split;
        let (lower, upper) = giver.halves(directory, partition, child)?.may_split_again();
        if !moves {
            let is_split =
                giver.record(directory, |holdings| holdings.split(partition).is_some())?;
            for (may_split, half) in [(lower, partition), (upper, child)] {
                if !may_split {
                    giver.mark_unsplittable(directory, half)?;
                }
            }
            if is_split {
                self.metrics.splits.add(1);
                tracing::info!(
                    "server {server}: {partition} of {} split, with {child}",
                    shown(directory)
                );
            }
            self.tasks.add(Task::Split(server, directory, child));
            return Ok(is_split);
        }
        let receiver = placement.server(child);
        let attempt = giver.next_attempt();
        let hand_over = HandOver {
            giver: &giver,
            peers: self,
            receiver,
            placement,
            directory,
            child,
            attempt,
            splits: upper,
        };
        let began = Instant::now();
        let outcome = hand_over.run(steps);
        self.note_handover(&hand_over, began, &outcome);
        if outcome.is_err() {
            self.tasks.add(Task::Recover(server));
        }
        if !lower && outcome.is_ok() {
            giver.mark_unsplittable(directory, partition)?;
        }
        outcome.map(|_| true)
    }

    fn note_handover(&self, moved: &HandOver<'_>, began: Instant, outcome: &Result<u64>) {
        let HandOver { giver, receiver, directory, child, .. } = moved;
        let directory = shown(*directory);
        let what = format!("server {}: {child} of {directory} to server {receiver}", giver.id);
        match outcome {
            Ok(entries) => {
                self.metrics.handovers.add(1);
                self.metrics.moved_entries.add(*entries);
                let time = began.elapsed().as_millis();
                tracing::info!("{what}: split, {entries} entries moved in {time} ms");
            }
            Err(error) => {
                self.metrics.stopped_handovers.add(1);
                tracing::debug!("{what}: {error}");
            }
        }
    }

    /// Returns the partitions of a directory, by the word of the servers that run here.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn partitions(&self, directory: FileId) -> Result<Vec<(ServerId, SplitHistory)>> {
        let mut found = Vec::new();
        for id in self.running() {
            let histories = self.server(id)?.histories(directory)?;
            found.extend(histories.into_iter().map(|history| (id, history)));
        }
        Ok(found)
    }
}

/// Names a directory in a line of the log.
fn shown(directory: FileId) -> String {
    format!("the directory with inode number {directory}")
}
