//! The rules of `docs/engine.md`, each of which can be left out, and the changes of a manifest with
//! their conditions.

use crate::world::{Checkpoint, Manifest, NONCES, NONE, Phase, Records, Ssts, World, sst};

/// A rule, by what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A listing looks at names in their order.
    ListingInOrder,
    /// Whoever has read the current manifest lists again.
    ListAfterRead,
    /// Whoever has created a manifest lists.
    ListAfterCreate,
    /// Whoever has read a manifest to see whether its commit succeeded lists again.
    ListLast,
    /// After a failure, nonces tell whether a commit succeeded.
    NoncesAfterFailure,
    /// What is too long ago for the nonces is not known.
    TooLongAgo,
    /// The last manifest of a deleted table is never removed.
    LastManifestStays,
    /// Only the current manifest and kept ones stay.
    KeptManifests,
    /// An opener puts a fence at the end of each older log.
    Fence,
    /// The last segment of an epoch is not removed.
    FencesStay,
    /// An opener looks at the epoch again once it has replayed.
    EpochAfterReplay,
    /// A segment is tried again with the same bytes.
    SameBytes,
    /// Flushes and compactions ask that their job is open.
    JobIsOpen,
    /// A compaction asks that its inputs are there.
    InputsAreThere,
    /// SSTables of open jobs are not removed.
    OpenJobsCount,
    /// Jobs that a manifest does not know are not closed, epochs not over.
    OnlyKnownOnes,
    /// What kept versions refer to is not removed.
    KeptFilesCount,
    /// A checkpoint of an older version is made only if it has one.
    KeptVersionOnly,
    /// A checkpoint has the nonce of its version.
    CheckpointNonce,
    /// A cloner confirms its checkpoints before the clone is live.
    Confirm,
    /// A confirmed checkpoint has no deadline.
    ConfirmedHasNoDeadline,
    /// Parents are given at creation.
    ParentsAtCreation,
    /// A holder that is absent was not created yet.
    AbsentHolds,
    /// Only a clone that is being created becomes live.
    LiveOnce,
    /// A deleted clone holds its parents while it has checkpoints.
    DeletedHoldsToo,
    /// A checkpoint is removed when its holder has dropped the parent.
    DroppedIsReleased,
    /// A parent is dropped only if no kept version refers to it.
    KeptHoldsParents,
}

/// All rules, but for one at most.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub without: Option<Rule>,
}

/// A change of the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ManifestChange {
    /// Changes nothing, but makes a version.
    Touch,
    OpenEpoch,
    Flush {
        epoch: u8,
        job: u8,
        number: u8,
        records: Records,
        next: u8,
    },
    OpenJob,
    Compact {
        job: u8,
        inputs: [Ssts; 3],
    },
    /// Closes the jobs of compactions.
    CloseJobs,
    /// Makes a checkpoint: of the current version, or of the one that another checkpoint keeps.
    Keep {
        slot: u8,
        like: Option<u8>,
    },
    /// Makes a checkpoint of a version that was read before.
    KeepOlder {
        slot: u8,
        version: u8,
        nonce: u8,
    },
    Confirm {
        slot: u8,
    },
    /// Removes a checkpoint whose deadline has passed.
    Expire {
        slot: u8,
    },
    /// Removes a checkpoint whose holder needs it no more.
    Release {
        slot: u8,
    },
    GoLive {
        parents: u8,
    },
    /// Deletes a clone that was being created for too long.
    GiveUpClone,
    Delete,
    DropParent {
        parent: u8,
    },
}

impl Rules {
    pub fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the manifest after `base`, if the condition of the change holds.
    pub fn apply(
        &self,
        world: &World,
        table: u8,
        change: ManifestChange,
        base: &Manifest,
    ) -> Option<Manifest> {
        let mut next = *base;
        next.version += 1;
        next.before = [base.nonce; NONCES];
        next.before[1..].copy_from_slice(&base.before[..NONCES - 1]);
        let is_live = base.phase == Phase::Live;
        let holds = match change {
            ManifestChange::Touch => is_live,
            ManifestChange::OpenEpoch => {
                next.epoch += 1;
                next.log[usize::from(next.epoch)] = 0;
                next.writer_job = next.next_job;
                next.next_job += 1;
                is_live
            }
            ManifestChange::Flush { epoch, job, number, records, next: needed } => {
                next.files[usize::from(table)] |= sst(job, number);
                next.flushed |= records;
                next.log[..usize::from(epoch)].fill(NONE);
                next.log[usize::from(epoch)] = needed;
                is_live && (base.writer_job == job || !self.has(Rule::JobIsOpen))
            }
            ManifestChange::OpenJob => {
                next.jobs |= 1 << next.next_job;
                next.next_job += 1;
                is_live && base.files != [0; 3]
            }
            ManifestChange::Compact { job, inputs } => {
                next.jobs &= !(1 << job);
                let pairs = next.files.iter_mut().zip(inputs);
                let are_there = pairs.fold(true, |are_there, (files, inputs)| {
                    let is_there = inputs & !*files == 0;
                    *files &= !inputs;
                    are_there && is_there
                });
                next.files[usize::from(table)] |= sst(job, 0);
                let is_open = base.jobs >> job & 1 == 1;
                is_live
                    && (is_open || !self.has(Rule::JobIsOpen))
                    && (are_there || !self.has(Rule::InputsAreThere))
            }
            ManifestChange::CloseJobs => {
                next.jobs = 0;
                base.jobs != 0
            }
            ManifestChange::Delete | ManifestChange::GiveUpClone => {
                next.phase = Phase::Deleted;
                (next.jobs, next.writer_job) = (0, NONE);
                next.log = [NONE; 4];
                let phase =
                    if change == ManifestChange::Delete { Phase::Live } else { Phase::Creating };
                base.phase == phase
            }
            ManifestChange::GoLive { parents } => {
                next.phase = Phase::Live;
                next.parents |= parents;
                base.phase == Phase::Creating || !self.has(Rule::LiveOnce)
            }
            ManifestChange::DropParent { parent } => {
                next.parents &= !(1 << parent);
                base.parents >> parent & 1 == 1 && self.needs_not(world, table, base, parent)
            }
            _ => self.apply_to_checkpoint(change, base, &mut next),
        };
        holds.then_some(next)
    }

    fn apply_to_checkpoint(
        &self,
        change: ManifestChange,
        base: &Manifest,
        next: &mut Manifest,
    ) -> bool {
        let at = |slot: u8| usize::from(slot);
        match change {
            ManifestChange::Keep { slot, like: None } => {
                let (version, nonce) = (base.version, base.nonce);
                let one = Checkpoint { version, nonce, is_confirmed: false };
                next.checkpoints[at(slot)] = one;
                base.phase == Phase::Live
            }
            ManifestChange::Keep { slot, like: Some(like) } => {
                let one = Checkpoint { is_confirmed: false, ..base.checkpoints[at(like)] };
                next.checkpoints[at(slot)] = one;
                one.version != 0
            }
            ManifestChange::KeepOlder { slot, version, nonce } => {
                next.checkpoints[at(slot)] = Checkpoint { version, nonce, is_confirmed: false };
                base.keeps(version) || !self.has(Rule::KeptVersionOnly)
            }
            ManifestChange::Confirm { slot } => {
                next.checkpoints[at(slot)].is_confirmed = true;
                base.checkpoints[at(slot)].version != 0
            }
            ManifestChange::Expire { slot } => {
                let one = base.checkpoints[at(slot)];
                next.checkpoints[at(slot)] = Checkpoint::default();
                let has_deadline = !one.is_confirmed || !self.has(Rule::ConfirmedHasNoDeadline);
                one.version != 0 && has_deadline
            }
            ManifestChange::Release { slot } => {
                next.checkpoints[at(slot)] = Checkpoint::default();
                base.checkpoints[at(slot)].is_confirmed
            }
            _ => unreachable!("{change:?} is not of a checkpoint"),
        }
    }

    /// Returns whether neither `base` nor a version that it keeps refers to a parent's SSTables.
    fn needs_not(&self, world: &World, table: u8, base: &Manifest, parent: u8) -> bool {
        let refers = |manifest: &Manifest| manifest.needs(parent) != 0;
        let mut kept = base.checkpoints.iter().filter(|one| one.version != 0);
        let is_kept = kept.any(|one| world.table(table).manifest(one.version).is_none_or(refers));
        !refers(base) && (!is_kept || !self.has(Rule::KeptHoldsParents))
    }

    /// Returns whether a holder needs a parent's checkpoint no more, given its current manifest.
    pub fn is_released(&self, holder: Option<&Manifest>, parent: u8) -> bool {
        let Some(holder) = holder else { return !self.has(Rule::AbsentHolds) };
        let is_over = !holder.has_checkpoints() || !self.has(Rule::DeletedHoldsToo);
        let is_dropped = holder.parents >> parent & 1 == 0;
        is_dropped && self.has(Rule::DroppedIsReleased) || holder.phase == Phase::Deleted && is_over
    }
}
