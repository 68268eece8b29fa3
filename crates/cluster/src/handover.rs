//! Hands a partition over: the steps of `canopy_partition::Holdings`, with the entries. Each step is a
//! call of one of the two servers; a message will stand for it between processes.

use crate::error::{Error, Result};
use crate::server::Server;
use canopy_namespace::{FileId, MovedEntry};
use canopy_partition::{Answer, Attempt, Begun, Holding, PartitionId};

/// Entries that move in one step.
const ENTRIES: usize = 512;

/// A step of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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
pub trait Steps {
    /// Returns whether to go on.
    fn goes_on(&mut self, step: Step) -> bool;
}

impl<F: FnMut(Step) -> bool> Steps for F {
    fn goes_on(&mut self, step: Step) -> bool {
        self(step)
    }
}

/// A partition that moves.
pub(crate) struct HandOver<'a> {
    pub(crate) giver: &'a Server,
    pub(crate) receiver: &'a Server,
    pub(crate) directory: FileId,
    pub(crate) child: PartitionId,
    pub(crate) attempt: Attempt,
}

impl HandOver<'_> {
    /// Moves the partition. Changes of its names wait meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with `Stopped` if it did not come to the decision or to its end, and as the tablets do.
    pub(crate) fn run(&self, steps: &mut dyn Steps) -> Result<()> {
        let hashes = self.child.hashes(self.child.first_depth());
        if !self.giver.begin_moving(self.directory, self.attempt, hashes) {
            return Err(Error::Stopped(self.child));
        }
        let moved = self.offer(steps).and_then(|()| self.give(steps));
        self.giver.end_moving();
        moved?;
        self.finish(steps)
    }

    fn check(&self, goes_on: bool) -> Result<()> {
        if goes_on { Ok(()) } else { Err(Error::Stopped(self.child)) }
    }

    /// The receiver gets all entries, and records that they are there.
    fn offer(&self, steps: &mut dyn Steps) -> Result<()> {
        let HandOver { giver, receiver, directory, child, attempt } = *self;
        self.check(steps.goes_on(Step::Begin))?;
        receiver.tablet.put_content_half(&giver.tablet.inode(directory)?)?;
        let mut begun = self.begin()?;
        if begun == Begun::Busy {
            remove_remains(receiver, directory, steps)?;
            begun = self.begin()?;
        }
        self.check(begun == Begun::Accepted)?;
        let hashes = child.hashes(child.first_depth());
        let mut last: Option<MovedEntry> = None;
        loop {
            let after = last.as_ref().map(|entry| &entry.name[..]);
            let entries = giver.tablet.entries_to_move(directory, &hashes, after, ENTRIES)?;
            if entries.is_empty() {
                break;
            }
            self.check(steps.goes_on(Step::Entries))?;
            self.check(receiver.holdings(directory)?.takes_entries(child, attempt))?;
            receiver.tablet.take_entries(directory, &entries)?;
            last = entries.into_iter().last();
        }
        self.check(steps.goes_on(Step::Complete))?;
        let sent = giver.tablet.count_entries(directory, &hashes)?;
        self.check(receiver.tablet.count_entries(directory, &hashes)? == sent)?;
        let mut is_complete = false;
        receiver.record(directory, |holdings| {
            is_complete = holdings.complete(child, attempt);
            is_complete
        })?;
        self.check(is_complete)
    }

    /// Has the receiver record that the attempt begins.
    fn begin(&self) -> Result<Begun> {
        let mut begun = Begun::Late;
        self.receiver.record(self.directory, |holdings| {
            begun = holdings.begin(self.child, self.attempt);
            begun != Begun::Late
        })?;
        Ok(begun)
    }

    fn give(&self, steps: &mut dyn Steps) -> Result<()> {
        self.check(steps.goes_on(Step::Give))?;
        let HandOver { giver, directory, child, attempt, .. } = *self;
        let is_given = giver.record(directory, |holdings| holdings.give(child, attempt))?;
        self.check(is_given)
    }

    /// The receiver holds the partition, and the giver removes its copies.
    fn finish(&self, steps: &mut dyn Steps) -> Result<()> {
        let HandOver { giver, receiver, directory, child, attempt } = *self;
        self.check(steps.goes_on(Step::Hold))?;
        let is_held = receiver.record(directory, |holdings| holdings.hold(child, attempt))?;
        self.check(is_held)?;
        self.check(steps.goes_on(Step::Confirm))?;
        giver.record(directory, |holdings| holdings.confirm(child, attempt))?;
        remove_remains(giver, directory, steps)
    }
}

/// Removes all entries of a directory that a server has to remove.
pub(crate) fn remove_remains(
    server: &Server,
    directory: FileId,
    steps: &mut dyn Steps,
) -> Result<()> {
    let holdings = server.holdings(directory)?;
    for (partition, _) in holdings.remains() {
        let Some(expected) = holdings.record(partition) else { continue };
        // A confirmation may come between two steps, and changes the record.
        let mut expected = expected;
        loop {
            if !steps.goes_on(Step::Remove) {
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
pub(crate) fn ask(
    servers: &[Server],
    receiver: &Server,
    directory: FileId,
    of_partition: impl Fn(FileId, PartitionId) -> Result<usize>,
) -> Result<bool> {
    let mut holds_more = false;
    for (child, attempt) in Vec::from_iter(receiver.holdings(directory)?.unanswered()) {
        let parent = child.parent().unwrap_or_default();
        let answer = servers[of_partition(directory, parent)?].answer(directory, child, attempt)?;
        receiver.record(directory, |holdings| match answer {
            Answer::Given => {
                holds_more |= holdings.hold(child, attempt);
                true
            }
            Answer::Ended => holdings.end(child, attempt),
            Answer::Pending | Answer::Unknown => false,
        })?;
    }
    Ok(holds_more)
}

/// Does what a crash of either server has left undone: the giver repeats what it gave, the receiver
/// asks about offers, and both remove what has to go. No hand-over runs.
pub(crate) fn recover(
    servers: &[Server],
    of_partition: impl Fn(FileId, PartitionId) -> Result<usize>,
) -> Result<()> {
    for giver in servers {
        for directory in giver.directories() {
            for (child, attempt) in Vec::from_iter(giver.holdings(directory)?.unconfirmed()) {
                let receiver = &servers[of_partition(directory, child)?];
                if receiver.record(directory, |holdings| holdings.hold(child, attempt))? {
                    giver.record(directory, |holdings| holdings.confirm(child, attempt))?;
                }
            }
        }
    }
    for receiver in servers {
        for directory in receiver.directories() {
            ask(servers, receiver, directory, &of_partition)?;
            remove_remains(receiver, directory, &mut |_: Step| true)?;
        }
    }
    Ok(())
}

/// Returns whether nothing of a hand-over is left to be done.
pub(crate) fn is_at_rest(server: &Server) -> Result<bool> {
    for directory in server.directories() {
        let holdings = server.holdings(directory)?;
        if !holdings.records().all(|(_, holding)| matches!(holding, Holding::Held { .. })) {
            return Ok(false);
        }
    }
    Ok(true)
}
