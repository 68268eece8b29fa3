//! Hands a partition over: the steps of `canopy_partition::Holdings`, with the entries. The giver
//! sends each step to the receiver as a message.

use crate::error::{Error, Result};
use crate::holds::{APART, MovedHold};
use crate::message::{HandOverMessage, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::{DirectoryHalf, FileId, MovedEntry};
use canopy_partition::{Answer, Attempt, Begun, Holding, PartitionId, Placement, ServerId};
use std::borrow::Cow;
use std::collections::HashSet;

/// Entries that move in one step.
pub(crate) const ENTRIES: usize = 512;

/// Bytes of entries that move in one step; an entry with more is sent in parts.
const ENTRY_BYTES: usize = 512 << 10;

/// Records of executed changes in one step: those of symbolic links have 4 KiB.
const RECORDS: usize = 128;

/// Holds, and locks with them, in one step. One hold may have more locks.
const HOLDS: usize = 4096;

/// A step of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverStage {
    /// The receiver records that an attempt begins.
    Begin,
    /// The receiver records some entries.
    Entries,
    /// The receiver records that all entries are there.
    Complete,
    /// The giver gives.
    Give,
    /// The receiver holds.
    Hold,
    /// The giver knows that the receiver holds.
    Confirm,
    /// Some copies are removed.
    Remove,
}

/// Asked before each step whether to take it. A test stops here.
pub trait HandOverHook {
    /// Returns whether to go on.
    fn goes_on(&mut self, step: HandOverStage) -> bool;
}

impl<F: FnMut(HandOverStage) -> bool> HandOverHook for F {
    fn goes_on(&mut self, step: HandOverStage) -> bool {
        self(step)
    }
}

/// A partition that moves.
pub(crate) struct HandOver<'a> {
    pub(crate) giver: &'a Server,
    pub(crate) peers: &'a dyn Peers,
    pub(crate) receiver: ServerId,
    pub(crate) placement: Placement,
    pub(crate) directory: FileId,
    pub(crate) child: PartitionId,
    pub(crate) attempt: Attempt,
    /// Whether the receiver may split the partition by its size.
    pub(crate) splits: bool,
}

impl HandOver<'_> {
    /// Moves the partition. Changes of its names wait meanwhile. Returns the number of entries.
    ///
    /// # Errors
    ///
    /// Fails with `Stopped` if it did not come to the decision or to its end, and as the tablets do.
    pub(crate) fn run(&self, steps: &mut dyn HandOverHook) -> Result<u64> {
        if !self.giver.begin_moving(self.directory, self.child, self.attempt) {
            return Err(Error::Stopped(self.child));
        }
        let moved = self.offer(steps).and_then(|files| self.give(steps).map(|()| files));
        let moved = moved.and_then(|(files, count)| {
            self.giver.give_holds(&files)?;
            Ok(count)
        });
        self.giver.end_moving();
        let count = moved?;
        self.finish(steps)?;
        Ok(count)
    }

    fn check(&self, goes_on: bool) -> Result<()> {
        if goes_on { Ok(()) } else { Err(Error::Stopped(self.child)) }
    }

    /// Sends a step to the receiver.
    fn send(&self, step: HandOverMessage<'_>) -> Result<Response> {
        let step = ServerRequest::HandOver(self.directory, self.child, self.attempt, step);
        self.peers.ask(self.receiver, Sender::SERVER, &Request::OfServer(step))
    }

    /// The receiver gets all entries, and records that they are there. Returns the files that move,
    /// and the number of entries.
    fn offer(&self, steps: &mut dyn HandOverHook) -> Result<(HashSet<FileId>, u64)> {
        let HandOver { giver, directory, child, .. } = *self;
        self.check(steps.goes_on(HandOverStage::Begin))?;
        // It may have been removed just before the hand-over began.
        self.check(!giver.has_removed(directory)?)?;
        let half = giver.tablet.directory_half(directory)?;
        // The receiver keeps the placement.
        giver.tablet.table().sync()?;
        let begun = self.send(HandOverMessage::Begin(Cow::Owned(half), self.placement))?;
        self.check(begun == Response::Begun(Begun::Accepted))?;
        let hashes = child.hashes(child.first_depth());
        let mut files = HashSet::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let after = last.as_deref();
            let entries = giver.tablet.entries_to_move(directory, &hashes, after, ENTRIES)?;
            if entries.is_empty() {
                break;
            }
            let here = entries.iter().map(|entry| &entry.inode).filter(|inode| !inode.has(APART));
            files.extend(here.map(|inode| inode.id));
            last = entries.last().map(|entry| entry.name.clone());
            for some in in_steps(entries) {
                self.check(steps.goes_on(HandOverStage::Entries))?;
                let taken = self.send(HandOverMessage::Entries(Cow::Owned(some)))?;
                self.check(taken.done()?)?;
            }
        }
        self.send_executed()?;
        for holds in messages_of(giver.holds_of(&files)) {
            self.check(self.send(HandOverMessage::Holds(holds))?.done()?)?;
        }
        self.check(steps.goes_on(HandOverStage::Complete))?;
        let count = giver.tablet.count_entries(directory, &hashes)?;
        let is_complete = self.send(HandOverMessage::Complete(count, self.splits))?.done()?;
        self.check(is_complete)?;
        Ok((files, count))
    }

    /// The receiver gets the changes that were executed, of all sessions: clients may send those
    /// again whose names it gets. No such change runs now, so none is missed.
    fn send_executed(&self) -> Result<()> {
        let records = self.giver.tablet.executed_records()?;
        // A crash must not take back what the receiver knows to be executed.
        self.giver.tablet.table().sync()?;
        for records in records.chunks(RECORDS) {
            let taken = self.send(HandOverMessage::Executed(Cow::Borrowed(records)))?;
            self.check(taken.done()?)?;
        }
        Ok(())
    }

    fn give(&self, steps: &mut dyn HandOverHook) -> Result<()> {
        self.check(steps.goes_on(HandOverStage::Give))?;
        let HandOver { giver, directory, child, attempt, .. } = *self;
        let is_given = giver.record(directory, |holdings| holdings.give(child, attempt))?;
        self.check(is_given)
    }

    /// The receiver holds the partition, and the giver removes its copies.
    fn finish(&self, steps: &mut dyn HandOverHook) -> Result<()> {
        let HandOver { giver, directory, child, attempt, .. } = *self;
        self.check(steps.goes_on(HandOverStage::Hold))?;
        let is_held = self.send(HandOverMessage::Hold)?.done()?;
        self.check(is_held)?;
        self.check(steps.goes_on(HandOverStage::Confirm))?;
        giver.record(directory, |holdings| holdings.confirm(child, attempt))?;
        remove_remains(giver, directory, steps)
    }
}

/// Divides holds among messages.
fn messages_of(holds: Vec<MovedHold>) -> Vec<Vec<MovedHold>> {
    let (mut messages, mut last, mut size) = (Vec::new(), Vec::new(), 0);
    for hold in holds {
        let own = 1 + hold.locks.len();
        if size + own > HOLDS && !last.is_empty() {
            messages.push(std::mem::take(&mut last));
            size = 0;
        }
        size += own;
        last.push(hold);
    }
    if !last.is_empty() {
        messages.push(last);
    }
    messages
}

/// Returns entries as they are sent: together, but for those that are large, which are sent in parts.
fn in_steps(entries: Vec<MovedEntry>) -> Vec<Vec<MovedEntry>> {
    let (mut steps, mut together) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut parts = entry.into_parts(ENTRY_BYTES);
        match parts.len() {
            1 => together.append(&mut parts),
            _ => steps.extend(parts.into_iter().map(|part| vec![part])),
        }
    }
    if !together.is_empty() {
        steps.push(together);
    }
    steps
}

/// Takes a step of a hand-over at the receiver.
pub(crate) fn receive(
    receiver: &Server,
    directory: FileId,
    child: PartitionId,
    attempt: Attempt,
    step: &HandOverMessage<'_>,
) -> Result<Response> {
    match step {
        HandOverMessage::Begin(half, placement) => {
            begin(receiver, half, *placement, child, attempt).map(Response::Begun)
        }
        HandOverMessage::Entries(entries) => {
            let takes = receiver.take_entries(directory, child, attempt, entries)?;
            if takes {
                // Locks that an attempt has brought that failed.
                let ids = entries.iter().map(|entry| entry.inode.id);
                receiver.sessions.locks.change(|locks| ids.for_each(|id| locks.forget(id)));
            }
            Ok(Response::Done(takes))
        }
        HandOverMessage::Executed(records) => {
            receiver.sessions.adopt(records.iter().map(|record| record.session));
            receiver.tablet.take_executed(records)?;
            receiver.tablet.table().sync()?;
            Ok(Response::Done(true))
        }
        HandOverMessage::Holds(holds) => {
            let takes = receiver.holdings(directory)?.takes_entries(child, attempt);
            if takes {
                receiver.take_arriving_holds(directory, child, attempt, holds)?;
            }
            Ok(Response::Done(takes))
        }
        HandOverMessage::Complete(count, splits) => {
            if !splits {
                receiver.mark_unsplittable(directory, child)?;
            }
            let hashes = child.hashes(child.first_depth());
            let mut is_complete = false;
            if receiver.tablet.count_entries(directory, &hashes)? == *count {
                receiver.record(directory, |holdings| {
                    is_complete = holdings.complete(child, attempt);
                    is_complete
                })?;
            }
            Ok(Response::Done(is_complete))
        }
        HandOverMessage::Hold => {
            let holds = receiver.record(directory, |holdings| holdings.hold(child, attempt))?;
            if holds {
                receiver.keep_arrived_holds(directory, child);
            }
            Ok(Response::Done(holds))
        }
        HandOverMessage::Ask => receiver.answer_of(directory, child, attempt).map(Response::Answer),
    }
}

/// Records that an attempt begins, and removes what an older one has left first.
fn begin(
    receiver: &Server,
    half: &DirectoryHalf,
    placement: Placement,
    child: PartitionId,
    attempt: Attempt,
) -> Result<Begun> {
    receiver.tablet.put_content_half(half)?;
    let directory = half.inode.id;
    if receiver.take_placement(directory, placement)? != Some(placement) {
        return Ok(Begun::Late);
    }
    let mut begun = Begun::Late;
    for _ in 0..2 {
        receiver.record(directory, |holdings| {
            begun = holdings.begin(child, attempt);
            begun != Begun::Late
        })?;
        if begun != Begun::Busy {
            break;
        }
        remove_remains(receiver, directory, &mut |_: HandOverStage| true)?;
    }
    if begun == Begun::Accepted {
        receiver.drop_arrived_holds(directory, child, |before| before < attempt)?;
    }
    Ok(begun)
}

/// Removes all entries of a directory that a server has to remove.
pub(crate) fn remove_remains(
    server: &Server,
    directory: FileId,
    steps: &mut dyn HandOverHook,
) -> Result<()> {
    let holdings = server.holdings(directory)?;
    for (partition, _) in holdings.remains() {
        let Some(expected) = holdings.record(partition) else { continue };
        // A confirmation may come between two steps, and changes the record.
        let mut expected = expected;
        loop {
            if !steps.goes_on(HandOverStage::Remove) {
                return Err(Error::Stopped(partition));
            }
            if !server.remove_some(directory, partition, expected, ENTRIES)? {
                continue;
            }
            let now = server.holdings(directory)?;
            let is_left = now.remains().any(|(left, _)| left == partition);
            match now.record(partition).filter(|_| is_left) {
                Some(now) if is_of_same_attempt(now, expected) => expected = now,
                _ => break,
            }
        }
    }
    Ok(())
}

/// Returns whether two records are of entries of one attempt.
fn is_of_same_attempt(one: Holding, other: Holding) -> bool {
    let attempt = |holding| match holding {
        Holding::Offered { attempt, .. } | Holding::Given { attempt, .. } => Some(attempt),
        Holding::Held { .. } => None,
    };
    attempt(one) == attempt(other)
}

/// Has a receiver ask about what it was offered of a directory, and act on the answers. Returns
/// whether it holds a partition that it did not hold before.
pub(crate) fn ask(receiver: &Server, peers: &dyn Peers, directory: FileId) -> Result<bool> {
    let mut holds_more = false;
    for (child, attempt) in Vec::from_iter(receiver.holdings(directory)?.unanswered()) {
        let placement = receiver.recorded_placement(directory)?;
        let giver = placement.server(child.parent().unwrap_or_default());
        let ask = ServerRequest::HandOver(directory, child, attempt, HandOverMessage::Ask);
        let answer = peers.ask(giver, Sender::SERVER, &Request::OfServer(ask))?;
        let Response::Answer(answer) = answer else { return Err(Error::Unfit) };
        receiver.record(directory, |holdings| match answer {
            Answer::Given => {
                holds_more |= holdings.hold(child, attempt);
                true
            }
            Answer::Ended => holdings.end(child, attempt),
            Answer::Pending | Answer::Unknown => false,
        })?;
        match answer {
            Answer::Given => receiver.keep_arrived_holds(directory, child),
            Answer::Ended => {
                receiver.drop_arrived_holds(directory, child, |before| before <= attempt)?;
            }
            Answer::Pending | Answer::Unknown => {}
        }
    }
    Ok(holds_more)
}

/// Has a receiver ask about all that it was offered, and removes what it does not get.
pub(crate) fn ask_all(receiver: &Server, peers: &dyn Peers) -> Result<()> {
    for directory in receiver.directories() {
        let only = Some(directory);
        if receiver.has_offers(only) || receiver.has_ended_offers(only) {
            ask(receiver, peers, directory)?;
            remove_remains(receiver, directory, &mut |_: HandOverStage| true)?;
        }
    }
    Ok(())
}

/// Does what a crash of a server has left undone: it repeats what it gave, asks about offers, and
/// removes what has to go. No hand-over of this server runs. Returns whether nothing is left.
///
/// # Errors
///
/// Fails if another server did not answer: then it has to be tried again.
pub(crate) fn recover(server: &Server, peers: &dyn Peers) -> Result<bool> {
    // The log may not have the given partitions so far.
    server.tablet.table().sync()?;
    let mut is_done = true;
    for directory in server.directories() {
        for (child, attempt) in Vec::from_iter(server.holdings(directory)?.unconfirmed()) {
            let receiver = server.recorded_placement(directory)?.server(child);
            let hold = ServerRequest::HandOver(directory, child, attempt, HandOverMessage::Hold);
            let held = peers.ask(receiver, Sender::SERVER, &Request::OfServer(hold))?;
            if held.done()? {
                server.record(directory, |holdings| holdings.confirm(child, attempt))?;
            }
        }
        ask(server, peers, directory)?;
        remove_remains(server, directory, &mut |_: HandOverStage| true)?;
        is_done &= is_at_rest(server, directory)?;
    }
    Ok(is_done)
}

/// Returns whether nothing of a hand-over of a directory is left to be done.
pub(crate) fn is_at_rest(server: &Server, directory: FileId) -> Result<bool> {
    let holdings = server.holdings(directory)?;
    Ok(holdings.records().all(|(_, holding)| matches!(holding, Holding::Held { .. })))
}
