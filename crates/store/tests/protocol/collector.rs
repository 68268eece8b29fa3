//! Removes what nothing refers to, and closes what is over. Deadlines may pass at any moment, so
//! whatever has one may be closed at any moment.

use crate::actor::{Actor, Chores, Kind, Outcome, Step};
use crate::rules::{ManifestChange, Rule, Rules};
use crate::world::{self, Manifest, NONE, Phase, Table, World};
use std::rc::Rc;

const READING: u8 = 1;
const READING_KEPT: u8 = 2;
const REMOVING: u8 = 3;
const READING_HOLDER: u8 = 4;
const COMMITTING: u8 = 5;

impl Step<'_> {
    /// Goes on after a call on manifests.
    pub fn collector_has(
        &mut self,
        world: &World,
        mut actor: Actor,
        chores: Chores,
        outcome: Outcome,
    ) {
        match (actor.at, outcome) {
            (READING, Outcome::Current(Some(current))) => {
                (actor.seen, actor.kept_files) = (Some(current), 0);
                let kept = current.has_checkpoints();
                actor.goes(if kept { READING_KEPT } else { REMOVING });
            }
            (READING_HOLDER, Outcome::Current(current))
                if self.rules.is_released(current.as_ref(), actor.home) =>
            {
                actor.commits(COMMITTING, actor.home, ManifestChange::Release { slot: actor.slot });
            }
            _ if actor.rounds_left == 0 => actor.ends(),
            _ => {
                let rounds_left = actor.rounds_left;
                actor =
                    Actor { calls: actor.calls, ..Actor::new(Kind::Collector(chores), actor.home) };
                actor.rounds_left = rounds_left;
            }
        }
        self.push(world, actor);
    }

    /// Does what is not a call on manifests.
    pub fn collect(&mut self, world: &World, actor: Actor, chores: Chores) {
        match actor.at {
            READING_KEPT => self.read_all_kept(world, actor),
            REMOVING => {
                self.remove(world, actor);
                self.choose(world, actor, chores);
            }
            _ => self.choose(world, actor, chores),
        }
    }

    fn choose(&mut self, world: &World, mut actor: Actor, chores: Chores) {
        if actor.rounds_left == 0 {
            return;
        }
        actor.rounds_left -= 1;
        (actor.seen, actor.kept_files) = (None, 0);
        let home = actor.home;
        if chores.removes {
            actor.reads(READING, home);
            self.begin(world, actor);
        }
        let closes = [ManifestChange::CloseJobs, ManifestChange::GiveUpClone].into_iter();
        let mut changes: Vec<_> = closes.filter(|_| chores.closes).collect();
        let bits = |mask: u8| (0..8).filter(move |bit| mask >> bit & 1 == 1);
        changes.extend(bits(chores.expires).map(|slot| ManifestChange::Expire { slot }));
        changes.extend(bits(chores.drops).map(|parent| ManifestChange::DropParent { parent }));
        for change in changes {
            actor.commits(COMMITTING, home, change);
            self.begin(world, actor);
        }
        for slot in bits(chores.releases) {
            actor.slot = slot;
            actor.reads(READING_HOLDER, slot - 1);
            self.begin(world, actor);
        }
    }

    fn read_all_kept(&mut self, world: &World, mut actor: Actor) {
        let Some(seen) = actor.seen else { return };
        for one in seen.checkpoints.iter().filter(|one| one.version != 0) {
            let kept = world.table(actor.home).manifest(one.version);
            match kept.filter(|kept| kept.nonce == one.nonce) {
                Some(kept) => actor.kept_files |= kept.files[usize::from(actor.home)],
                None => {
                    actor.reads(READING, actor.home);
                    return self.push(world, actor);
                }
            }
        }
        actor.goes(REMOVING);
        self.push(world, actor);
    }

    /// Removes one object that the manifest permits to remove.
    fn remove(&mut self, world: &World, actor: Actor) {
        let Some(seen) = actor.seen else { return };
        let table = world.table(actor.home);
        for manifest in &table.manifests {
            if self.may_remove_manifest(&seen, table, manifest.version) {
                let mut world = world.clone();
                let manifests = &mut world.table_mut(actor.home).manifests;
                manifests.retain(|one| one.version != manifest.version);
                self.next.push(world);
            }
        }
        let files = seen.needs(actor.home);
        for job in 0..8u8 {
            for sst in [world::sst(job, 0), world::sst(job, 1)] {
                let is_kept = self.rules.has(Rule::KeptFilesCount) && actor.kept_files & sst != 0;
                let is_needed = files & sst != 0 || is_kept || !self.is_closed(&seen, job);
                if table.ssts & sst != 0 && !is_needed {
                    let mut world = world.clone();
                    world.table_mut(actor.home).ssts &= !sst;
                    self.next.push(world);
                }
            }
        }
        for (epoch, segments) in table.log.iter().enumerate() {
            for (number, segment) in segments.iter().enumerate() {
                if *segment != 0 && self.may_remove_segment(&seen, table, epoch, number) {
                    let mut world = world.clone();
                    world.table_mut(actor.home).log[epoch][number] = 0;
                    self.next.push(world);
                }
            }
        }
    }

    fn may_remove_manifest(&self, seen: &Manifest, table: &Table, version: u8) -> bool {
        let is_kept = self.rules.has(Rule::KeptManifests) && seen.keeps(version);
        if self.rules.has(Rule::LastManifestStays) {
            return version < seen.version && !is_kept;
        }
        // The rules of old: the version before stays while a table lives, nothing at last.
        match seen.phase {
            Phase::Deleted if version == seen.version => {
                !seen.has_checkpoints() && table.manifests.len() == 1
            }
            Phase::Deleted => version < seen.version && !is_kept,
            _ => version + 1 < seen.version && !is_kept,
        }
    }

    fn is_closed(&self, seen: &Manifest, job: u8) -> bool {
        let is_open = seen.jobs >> job & 1 == 1 || seen.writer_job == job;
        let is_known = job < seen.next_job || !self.rules.has(Rule::OnlyKnownOnes);
        is_known && !(is_open && self.rules.has(Rule::OpenJobsCount))
    }

    fn may_remove_segment(
        &self,
        seen: &Manifest,
        table: &Table,
        epoch: usize,
        number: usize,
    ) -> bool {
        let is_known = epoch <= usize::from(seen.epoch) || !self.rules.has(Rule::OnlyKnownOnes);
        let first = seen.log[epoch];
        let is_over = first == NONE || number < usize::from(first);
        let is_last = table.log[epoch][number + 1..].iter().all(|later| *later == 0);
        let stays = is_last && self.rules.has(Rule::FencesStay) && seen.phase != Phase::Deleted;
        is_known && is_over && !stays
    }
}

/// Returns what collectors leave when nobody else is there, once every deadline has passed.
pub fn cleaned(world: &World, rules: &Rules) -> World {
    let mut world = world.clone();
    world.faults = 0;
    let slots = |range: std::ops::Range<u8>| range.map(|slot| 1 << slot);
    let none = Chores::default();
    let mut chores = vec![Chores { closes: true, ..none }];
    chores.extend(slots(0..4).map(|expires| Chores { expires, ..none }));
    chores.extend(slots(0..2).map(|drops| Chores { drops, ..none }));
    chores.extend(slots(2..4).map(|releases| Chores { releases, ..none }));
    chores.push(Chores { removes: true, ..none });
    loop {
        let before = world.tables.clone();
        for table in (0..3).rev() {
            for &chores in &chores {
                let mut actor = Actor::new(Kind::Collector(chores), table);
                actor.rounds_left = 1;
                for choice in 0..1 + usize::from(chores.closes) {
                    world = run(world, actor, rules, choice);
                }
            }
        }
        if world.tables == before {
            return world;
        }
    }
}

/// Runs an actor alone, until there is nothing to do.
pub fn run(mut world: World, actor: Actor, rules: &Rules, choice: usize) -> World {
    world.actors = vec![Rc::new(actor)];
    let mut next = Vec::new();
    let mut choice = Some(choice);
    loop {
        Step { rules, actor: 0, next: &mut next }.take(&world);
        let at = choice.take().unwrap_or(0);
        match next.drain(..).nth(at) {
            Some(following) => world = following,
            None => return world,
        }
    }
}

/// Returns whether collectors left no more than what is needed.
pub fn is_clean(world: &World, is_all_deleted: bool) -> bool {
    world.tables.iter().zip(0u8..).all(|(table, at)| {
        let Some(current) = table.current() else { return true };
        let kept = current.checkpoints.iter().filter(|one| one.version != 0);
        let needs = |slot: u8| {
            let holder = slot.checked_sub(1).and_then(|holder| world.table(holder).current());
            holder.is_some_and(|holder| holder.parents >> at & 1 == 1)
        };
        let are_held = (0..4u8).zip(&current.checkpoints).all(|(slot, one)| {
            one.version == 0 || one.is_confirmed && needs(slot) && !is_all_deleted
        });
        let files = |manifest: &Manifest| manifest.needs(at);
        let kept_files = kept.filter_map(|one| table.manifest(one.version)).map(files);
        let job = match current.writer_job {
            NONE => 0,
            job => world::sst(job, 0) | world::sst(job, 1),
        };
        let needed = kept_files.fold(files(current) | job, |all, one| all | one);
        let is_old = |one: &Manifest| one.version != current.version && !current.keeps(one.version);
        let is_one_an_epoch = table.log.iter().zip(current.log).all(|(log, first)| {
            let over = log.iter().take(usize::from(first)).filter(|one| **one != 0);
            over.count() <= usize::from(!is_all_deleted)
        });
        are_held
            && table.ssts & !needed == 0
            && !table.manifests.iter().any(is_old)
            && is_one_an_epoch
            && current.jobs == 0
            && (!is_all_deleted || current.phase == Phase::Deleted)
    })
}
