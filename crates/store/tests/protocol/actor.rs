//! Who uses storage. Every step of an actor is one call; what it makes of the answer is part of the
//! step. An actor that is never chosen again has crashed, or sleeps.

use crate::rules::{ManifestChange, Rule, Rules};
use crate::world::{self, Manifest, Object, Phase, Records, Ssts, World};
use std::rc::Rc;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Opens the first table, then appends and flushes.
    Writer,
    /// Replaces the runs by one.
    Compactor,
    /// Makes a checkpoint, and reads the manifest that it keeps.
    Reader,
    /// Makes a checkpoint of the version that the first reader's checkpoint keeps.
    LaterReader,
    /// Makes `table` a clone of `of`.
    Cloner { of: u8 },
    /// Makes one change.
    Once(ManifestChange),
    /// Does some of what collectors do.
    Collector(Chores),
    /// Is no more.
    Ended,
}

/// What a collector does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Chores {
    pub removes: bool,
    /// Closes jobs, and what was being created for too long.
    pub closes: bool,
    /// Removes these checkpoints if their deadline has passed: a bit for each.
    pub expires: u8,
    /// Removes the checkpoints of these holders, once they need them no more: a bit for each.
    pub releases: u8,
    /// Drops these parents: a bit for each.
    pub drops: u8,
}

/// Where in reading the current manifest, or in a commit, an actor is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    None,
    /// Lists versions.
    List,
    /// Reads the greatest one.
    Read(u8),
    /// Lists again, before it believes what it read.
    ListAgain(Manifest),
    Create {
        next: Manifest,
        has_failed: bool,
    },
    /// Lists, after it has created a manifest, or does not know whether.
    ListAfter {
        next: Manifest,
        is_created: bool,
    },
    /// Reads the greatest one, to see whether it came after ours.
    ReadAfter {
        next: Manifest,
        greatest: u8,
    },
    /// Lists again, before it believes what it read.
    ListLast {
        next: Manifest,
        found: Manifest,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Actor {
    pub kind: Kind,
    /// Its step, whose numbers are its kind's own.
    pub at: u8,
    /// The table that it is about.
    pub home: u8,
    /// The table of the call under way.
    pub table: u8,
    pub call: Call,
    pub calls: Calls,
    /// What it commits; if nothing, it reads the current manifest.
    pub change: Option<ManifestChange>,
    /// Of a listing by halves: up to where (or from where) it has looked, and what it found.
    pub half: Option<(u8, u8)>,
    /// The manifest that it acts upon.
    pub seen: Option<Manifest>,
    pub kept_files: Ssts,
    pub slot: u8,
    pub epoch: u8,
    pub job: u8,
    /// Segment that is read, by epoch and number.
    pub cursor: (u8, u8),
    pub next_segment: u8,
    pub next_sst: u8,
    pub next_record: u8,
    /// What is in the segment that is created.
    pub pending: Records,
    /// What it knows to be in the table.
    pub known: Records,
    pub appends_left: u8,
    /// Flushes of a writer, rounds of a collector.
    pub rounds_left: u8,
}

impl Actor {
    pub fn new(kind: Kind, table: u8) -> Self {
        Actor {
            kind,
            at: 0,
            home: table,
            table,
            call: Call::None,
            calls: Calls::Together,
            change: None,
            half: None,
            seen: None,
            kept_files: 0,
            slot: 0,
            epoch: 0,
            job: 0,
            cursor: (0, 0),
            next_segment: 0,
            next_sst: 0,
            next_record: 0,
            pending: 0,
            known: 0,
            appends_left: 0,
            rounds_left: 0,
        }
    }

    /// Does nothing any more.
    pub fn ends(&mut self) {
        *self = Actor::new(Kind::Ended, 0);
    }

    /// Goes on with a commit.
    pub fn commits(&mut self, at: u8, table: u8, change: ManifestChange) {
        (self.at, self.table, self.change, self.call) = (at, table, Some(change), Call::List);
    }

    /// Goes on with reading a current manifest.
    pub fn reads(&mut self, at: u8, table: u8) {
        (self.at, self.table, self.change, self.call) = (at, table, None, Call::List);
    }

    /// Goes on with something else.
    pub fn goes(&mut self, at: u8) {
        (self.at, self.change, self.call) = (at, None, Call::None);
    }
}

/// What a call on manifests came to.
pub enum Outcome {
    /// The current manifest; none, if the table never was.
    Current(Option<Manifest>),
    Committed(Manifest),
    /// The condition does not hold.
    Refused,
}

/// How much of reading a current manifest, and of a commit, is one step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Calls {
    /// Each call.
    Single,
    /// Half a listing, each other call.
    Halves,
    /// To read the current manifest is one step; to commit, another one. That nothing else comes
    /// of the calls is what is explored with single ones.
    Together,
}

/// One step of one actor.
pub struct Step<'a> {
    pub rules: &'a Rules,
    pub actor: usize,
    pub next: &'a mut Vec<World>,
}

impl Step<'_> {
    /// Adds what the actor may do next.
    pub fn take(&mut self, world: &World) {
        let actor = *world.actors[self.actor];
        match actor.call {
            Call::None => self.act(world, actor),
            Call::Read(version) => self.read(world, actor, version),
            Call::Create { next, has_failed } => self.create(world, actor, next, has_failed),
            Call::ReadAfter { next, greatest } => {
                let found = world.table(actor.table).manifest(greatest).copied();
                let call = match found {
                    Some(found) if !self.rules.has(Rule::ListLast) => {
                        return self.judge(world, actor, next, found);
                    }
                    Some(found) => Call::ListLast { next, found },
                    None => Call::ListAfter { next, is_created: false },
                };
                self.push(world, Actor { call, ..actor });
            }
            _ => self.list(world, actor),
        }
    }

    /// Adds the state in which the actor has become `actor`.
    pub fn push(&mut self, world: &World, actor: Actor) {
        let mut world = world.clone();
        world.actors[self.actor] = Rc::new(actor);
        self.next.push(world);
    }

    /// Creates an object that may fail, in which case it may be there later. Adds what `then` makes
    /// of it, given whether it is there now, and was not before; nothing if it failed.
    pub fn creates(
        &mut self,
        world: &World,
        table: u8,
        object: Object,
        mut then: impl FnMut(&mut Self, World, Option<bool>),
    ) {
        if world.faults > 0 {
            let mut failed = world.clone();
            failed.faults -= 1;
            failed.late.push((table, object));
            then(self, failed, None);
        }
        let mut created = world.clone();
        let is_new = created.create(table, object);
        then(self, created, Some(is_new));
    }

    fn list(&mut self, world: &World, actor: Actor) {
        let table = world.table(actor.table);
        let greatest = |low: u8, high: u8| {
            let versions = table.manifests.iter().map(|one| one.version);
            versions.filter(|version| (low..=high).contains(version)).max().unwrap_or(0)
        };
        let last = greatest(0, u8::MAX);
        match actor.calls {
            Calls::Single => return self.listed(world, actor, last),
            Calls::Together => return self.read_together(world, actor),
            Calls::Halves => {}
        }
        let is_in_order = self.rules.has(Rule::ListingInOrder);
        if let Some((half, found)) = actor.half {
            let rest = if is_in_order { greatest(half + 1, u8::MAX) } else { greatest(0, half) };
            return self.listed(world, Actor { half: None, ..actor }, rest.max(found));
        }
        for half in 0..=last {
            let found = if is_in_order { greatest(0, half) } else { greatest(half + 1, u8::MAX) };
            self.push(world, Actor { half: Some((half, found)), ..actor });
        }
    }

    fn listed(&mut self, world: &World, actor: Actor, greatest: u8) {
        let call = match actor.call {
            Call::List if self.is_nothing(world, actor, greatest) => {
                return self.known(world, actor, None);
            }
            Call::List => Call::Read(greatest),
            Call::ListAgain(found) if found.version == greatest => {
                return self.known(world, actor, Some(found));
            }
            Call::ListLast { next, found } if found.version == greatest => {
                return self.judge(world, actor, next, found);
            }
            Call::ListAfter { next, .. } | Call::ListLast { next, .. } if greatest == 0 => {
                return self.table_is_gone(world, actor, next);
            }
            Call::ListAfter { next, is_created: true } if next.version == greatest => {
                let is_gone = world.table(actor.table).manifest(greatest - 1).is_none();
                if is_gone && !self.rules.has(Rule::LastManifestStays) {
                    return self.table_is_gone(world, actor, next);
                }
                return self.committed(world, actor, next);
            }
            Call::ListAfter { next, .. } | Call::ListLast { next, .. }
                if greatest < next.version =>
            {
                Call::Create { next, has_failed: true }
            }
            Call::ListAfter { next, .. } | Call::ListLast { next, .. } => {
                Call::ReadAfter { next, greatest }
            }
            _ => Call::List,
        };
        self.push(world, Actor { call, ..actor });
    }

    /// Returns whether there is no table. When last manifests did not stay, a version alone was
    /// none.
    fn is_nothing(&self, world: &World, actor: Actor, greatest: u8) -> bool {
        let is_alone = world.table(actor.table).manifests.len() == 1 && greatest > 1;
        greatest == 0 || is_alone && !self.rules.has(Rule::LastManifestStays)
    }

    /// What rule 5 said, when last manifests did not stay.
    fn table_is_gone(&mut self, world: &World, mut actor: Actor, next: Manifest) {
        let mut world = world.clone();
        let manifests = &mut world.table_mut(actor.table).manifests;
        manifests.retain(|one| one.version != next.version);
        actor.ends();
        self.push(&world, actor);
    }

    fn read_together(&mut self, world: &World, actor: Actor) {
        let found = world.table(actor.table).current();
        match found.and_then(|found| self.next(world, actor, found)) {
            Some(call) => self.push(world, Actor { call, ..actor }),
            None => self.known(world, actor, found.copied()),
        }
    }

    fn read(&mut self, world: &World, mut actor: Actor, version: u8) {
        actor.call = Call::List;
        let Some(found) = world.table(actor.table).manifest(version).copied() else {
            return self.push(world, actor);
        };
        if let Some(call) = self.next(world, actor, &found) {
            return self.push(world, Actor { call, ..actor });
        }
        if self.rules.has(Rule::ListAfterRead) {
            actor.call = Call::ListAgain(found);
            return self.push(world, actor);
        }
        self.known(world, actor, Some(found));
    }

    /// Returns how a commit goes on after `found`, if its condition holds.
    fn next(&self, world: &World, actor: Actor, found: &Manifest) -> Option<Call> {
        let mut next = self.rules.apply(world, actor.table, actor.change?, found)?;
        next.nonce = self.actor as u8 + 1;
        Some(Call::Create { next, has_failed: false })
    }

    /// The current manifest is known.
    fn known(&mut self, world: &World, actor: Actor, current: Option<Manifest>) {
        let mut world = world.clone();
        let table = world.table(actor.table);
        if current.is_some_and(|current| !table.was(current.version, current.nonce)) {
            world.breaks(world::NEVER_CURRENT);
        }
        let outcome = match actor.change {
            Some(_) => Outcome::Refused,
            None => Outcome::Current(current),
        };
        self.done(world, actor, outcome);
    }

    fn create(&mut self, world: &World, actor: Actor, next: Manifest, has_failed: bool) {
        self.creates(world, actor.table, Object::Manifest(next), |step, mut world, created| {
            let current = world.table(actor.table).current().copied();
            if let (Calls::Together, Some(found)) = (actor.calls, current) {
                return match found.version < next.version {
                    true => step.push(&world, actor),
                    false => step.judge(&world, actor, next, found),
                };
            }
            let call = match created {
                Some(true) if !step.rules.has(Rule::ListAfterCreate) => {
                    return step.committed(&world, actor, next);
                }
                Some(false) if !has_failed || !step.rules.has(Rule::NoncesAfterFailure) => {
                    step.refutes(&mut world, actor, next);
                    Call::List
                }
                created => Call::ListAfter { next, is_created: created == Some(true) },
            };
            step.push(&world, Actor { call, ..actor });
        });
    }

    /// Judges by `found`, which is current, whether `next` was.
    fn judge(&mut self, world: &World, mut actor: Actor, next: Manifest, found: Manifest) {
        match found.nonce_at(next.version) {
            Some(nonce) if nonce == next.nonce => return self.committed(world, actor, next),
            None if self.rules.has(Rule::TooLongAgo) => {
                actor.ends();
                return self.push(world, actor);
            }
            _ => {}
        }
        let mut world = world.clone();
        self.refutes(&mut world, actor, next);
        self.push(&world, Actor { call: Call::List, ..actor });
    }

    /// The actor believes that its commit did not succeed.
    fn refutes(&self, world: &mut World, actor: Actor, next: Manifest) {
        if world.table(actor.table).was(next.version, next.nonce) {
            world.breaks(world::FALSE_FAILURE);
        }
    }

    fn committed(&mut self, world: &World, actor: Actor, next: Manifest) {
        let mut world = world.clone();
        if !world.table(actor.table).was(next.version, next.nonce) {
            world.breaks(world::FALSE_COMMIT);
        }
        self.done(world, actor, Outcome::Committed(next));
    }

    fn done(&mut self, world: World, mut actor: Actor, outcome: Outcome) {
        (actor.call, actor.change) = (Call::None, None);
        match actor.kind {
            Kind::Writer => self.writer_has(world, actor, outcome),
            Kind::Collector(chores) => self.collector_has(&world, actor, chores, outcome),
            _ => self.other_has(world, actor, outcome),
        }
    }

    fn act(&mut self, world: &World, actor: Actor) {
        match actor.kind {
            Kind::Writer => self.write(world, actor),
            Kind::Collector(chores) => self.collect(world, actor, chores),
            Kind::Ended => {}
            _ => self.act_otherwise(world, actor),
        }
    }

    /// Begins the first call of an actor at once.
    pub fn begin(&mut self, world: &World, actor: Actor) {
        let mut world = world.clone();
        world.actors[self.actor] = Rc::new(actor);
        self.take(&world);
    }

    /// What compactors, readers, cloners and those who make one change do first, and what they do
    /// apart from commits.
    fn act_otherwise(&mut self, world: &World, mut actor: Actor) {
        match (actor.kind, actor.at) {
            (Kind::Compactor, 0) => actor.commits(1, actor.table, ManifestChange::OpenJob),
            (Kind::Compactor, _) => {
                let output = Object::Sst(world::sst(actor.job, 0));
                return self.creates(world, actor.table, output, |step, mut world, created| {
                    let mut actor = actor;
                    merge(&mut world, &actor);
                    let inputs = actor.seen.map_or([0; 3], |seen| seen.files);
                    if created.is_some() {
                        let change = ManifestChange::Compact { job: actor.job, inputs };
                        actor.commits(2, actor.table, change);
                        actor.seen = None;
                    }
                    step.push(&world, actor);
                });
            }
            (Kind::Reader, 0) => {
                let change = ManifestChange::Keep { slot: actor.slot, like: None };
                actor.commits(1, actor.table, change);
            }
            (Kind::Reader, _) => return self.read_kept(world, actor),
            (Kind::LaterReader, _) => actor.reads(1, actor.table),
            (Kind::Cloner { of }, 0) => {
                actor.slot = actor.home + 1;
                actor.commits(1, of, ManifestChange::Keep { slot: actor.slot, like: None });
            }
            (Kind::Cloner { of }, _) => return self.create_clone(world, actor, of),
            (Kind::Once(change), _) => actor.commits(1, actor.table, change),
            _ => unreachable!("{actor:?} does nothing else"),
        }
        self.begin(world, actor);
    }

    /// A reader reads the manifest that its checkpoint keeps, or kept.
    fn read_kept(&mut self, world: &World, mut actor: Actor) {
        let mut world = world.clone();
        let kept = actor.seen.map(|seen| (seen.version, seen.nonce));
        if let Some((version, nonce)) = kept {
            let found = world.table(actor.table).manifest(version).map(|found| found.nonce);
            let is_other = found.is_some_and(|found| found != nonce);
            if is_other && !self.rules.has(Rule::CheckpointNonce) {
                world.breaks(world::NEVER_CURRENT);
            }
        }
        actor.ends();
        self.push(&world, actor);
    }

    fn other_has(&mut self, mut world: World, mut actor: Actor, outcome: Outcome) {
        match (actor.kind, actor.at, outcome) {
            (Kind::Compactor, 1, Outcome::Committed(next)) => {
                actor.job = next.next_job - 1;
                actor.seen = Some(next);
            }
            (Kind::Reader, 1, Outcome::Committed(next)) => {
                let kept = next.checkpoints[usize::from(actor.slot)];
                let seen = Manifest::first(Phase::Live, kept.nonce);
                actor.seen = Some(Manifest { version: kept.version, ..seen });
            }
            (Kind::LaterReader, 1, Outcome::Current(Some(current))) => {
                let one = current.checkpoints[0];
                let (version, nonce) = (one.version, one.nonce);
                match version {
                    0 => actor.ends(),
                    _ => {
                        let change = ManifestChange::KeepOlder { slot: actor.slot, version, nonce };
                        actor.commits(2, actor.table, change);
                    }
                }
            }
            (Kind::Cloner { of }, at, Outcome::Committed(next)) => {
                self.cloner_has(&mut world, &mut actor, of, at, next);
            }
            // Whoever made one change may make it again.
            (Kind::Once(_), _, Outcome::Committed(_)) if actor.rounds_left > 0 => {
                actor.rounds_left -= 1;
                actor.goes(0);
            }
            _ => actor.ends(),
        }
        self.push(&world, actor);
    }
}

/// What a compaction's output has. Only of the first table, whose SSTables are its own.
fn merge(world: &mut World, actor: &Actor) {
    if actor.table == 0 {
        let inputs = actor.seen.map_or(0, |seen| seen.files[0]);
        let output = world::sst(actor.job, 0).trailing_zeros() as usize;
        world.contents[output] = world.content(inputs).fold(0, |all, one| all | one);
    }
}
