//! Opens the table, then appends and flushes.

use crate::actor::{Actor, Outcome, Step};
use crate::rules::{ManifestChange, Rule};
use crate::world::{self, FENCE, NONE, Object, Phase, World};

const OPENING: u8 = 1;
const REPLAYING: u8 = 2;
const FENCING: u8 = 3;
const LOOKING_AGAIN: u8 = 4;
const OPEN: u8 = 5;
const APPENDING: u8 = 6;
const COMPARING: u8 = 7;
const MAKING_SST: u8 = 8;
const FLUSHING: u8 = 9;

impl Step<'_> {
    /// Goes on after a call on manifests.
    pub fn writer_has(&mut self, mut world: World, mut actor: Actor, outcome: Outcome) {
        match (actor.at, outcome) {
            (OPENING, Outcome::Committed(next)) => {
                (actor.epoch, actor.job) = (next.epoch, next.writer_job);
                (actor.known, actor.seen) = (next.flushed, Some(next));
                self.replay_from(&mut world, &mut actor, 0);
            }
            (LOOKING_AGAIN, Outcome::Current(Some(current)))
                if current.epoch == actor.epoch && current.phase == Phase::Live =>
            {
                opened(&mut world, &mut actor);
            }
            (FLUSHING, Outcome::Committed(_)) => {
                actor.rounds_left -= 1;
                actor.next_sst += 1;
                actor.goes(OPEN);
            }
            _ => actor.ends(),
        }
        self.push(&world, actor);
    }

    /// Goes on with the log of the first epoch from this one on that has one.
    fn replay_from(&self, world: &mut World, actor: &mut Actor, epoch: u8) {
        let log = actor.seen.map_or([NONE; 4], |seen| seen.log);
        match (epoch..actor.epoch).find(|epoch| log[usize::from(*epoch)] != NONE) {
            Some(epoch) => {
                actor.cursor = (epoch, log[usize::from(epoch)]);
                actor.goes(REPLAYING);
            }
            None => {
                (actor.seen, actor.cursor) = (None, (0, 0));
                match self.rules.has(Rule::EpochAfterReplay) {
                    true => actor.reads(LOOKING_AGAIN, 0),
                    false => opened(world, actor),
                }
            }
        }
    }

    /// Does what is not a call on manifests.
    pub fn write(&mut self, world: &World, mut actor: Actor) {
        match actor.at {
            0 => {
                actor.commits(OPENING, 0, ManifestChange::OpenEpoch);
                self.begin(world, actor);
            }
            REPLAYING => self.replay(world, actor),
            FENCING => self.fence(world, actor),
            OPEN => {
                if actor.appends_left > 0 {
                    let mut actor = actor;
                    next_record(&mut actor);
                    actor.goes(APPENDING);
                    self.begin(world, actor);
                }
                if actor.rounds_left > 0 {
                    actor.goes(MAKING_SST);
                    self.begin(world, actor);
                }
            }
            APPENDING => self.append(world, actor),
            COMPARING => self.compare(world, actor),
            _ => self.flush(world, actor),
        }
    }

    fn replay(&mut self, world: &World, mut actor: Actor) {
        let mut world = world.clone();
        let (epoch, number) = actor.cursor;
        match world.tables[0].log[usize::from(epoch)][usize::from(number)] {
            0 if self.rules.has(Rule::Fence) => actor.goes(FENCING),
            0 | FENCE => self.replay_from(&mut world, &mut actor, epoch + 1),
            records => {
                actor.known |= records;
                actor.cursor.1 += 1;
            }
        }
        self.push(&world, actor);
    }

    fn fence(&mut self, world: &World, actor: Actor) {
        let (epoch, number) = actor.cursor;
        let fence = Object::Segment { epoch, number, bytes: FENCE };
        self.creates(world, 0, fence, |step, mut world, created| {
            let mut actor = actor;
            match created {
                Some(true) => step.replay_from(&mut world, &mut actor, epoch + 1),
                Some(false) => actor.goes(REPLAYING),
                None => {}
            }
            step.push(&world, actor);
        });
    }

    fn append(&mut self, world: &World, actor: Actor) {
        let segment = Object::Segment {
            epoch: actor.epoch,
            number: actor.next_segment,
            bytes: actor.pending,
        };
        self.creates(world, 0, segment, |step, mut world, created| {
            let mut actor = actor;
            match created {
                Some(true) => acknowledge(&mut world, &mut actor),
                Some(false) => actor.goes(COMPARING),
                None if !step.rules.has(Rule::SameBytes) => next_record(&mut actor),
                None => {}
            }
            step.push(&world, actor);
        });
    }

    fn compare(&mut self, world: &World, mut actor: Actor) {
        let mut world = world.clone();
        let at = (usize::from(actor.epoch), usize::from(actor.next_segment));
        match world.tables[0].log[at.0][at.1] {
            0 => actor.goes(APPENDING),
            bytes if bytes == actor.pending => acknowledge(&mut world, &mut actor),
            _ => actor.ends(),
        }
        self.push(&world, actor);
    }

    fn flush(&mut self, world: &World, actor: Actor) {
        let sst = Object::Sst(world::sst(actor.job, actor.next_sst));
        self.creates(world, 0, sst, |step, world, created| {
            let mut actor = actor;
            let (epoch, job, number) = (actor.epoch, actor.job, actor.next_sst);
            let (records, next) = (actor.known, actor.next_segment);
            if created.is_some() {
                let change = ManifestChange::Flush { epoch, job, number, records, next };
                actor.commits(FLUSHING, 0, change);
            }
            step.push(&world, actor);
        });
    }
}

/// Adds a record to the segment that is about to be created.
fn next_record(actor: &mut Actor) {
    if actor.appends_left > 0 {
        actor.appends_left -= 1;
        actor.pending |= 1 << actor.next_record;
        actor.next_record += 1;
    }
}

fn opened(world: &mut World, actor: &mut Actor) {
    if world.acknowledged & !actor.known != 0 {
        world.breaks(world::LOST);
    }
    if actor.epoch > world.opened.0 {
        world.opened = (actor.epoch, actor.known);
    }
    actor.goes(OPEN);
}

fn acknowledge(world: &mut World, actor: &mut Actor) {
    let (epoch, found) = world.opened;
    let is_live = world.tables[0].current().is_some_and(|current| current.phase == Phase::Live);
    if is_live && epoch > actor.epoch && actor.pending & !found != 0 {
        world.breaks(world::STALE);
    }
    world.acknowledged |= actor.pending;
    actor.known |= actor.pending;
    actor.pending = 0;
    actor.next_segment += 1;
    actor.goes(OPEN);
}
