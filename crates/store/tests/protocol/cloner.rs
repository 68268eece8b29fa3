//! Makes a clone, in four steps.

use crate::actor::{Actor, Step};
use crate::rules::{ManifestChange, Rule};
use crate::world::{Manifest, Object, Phase, World};

impl Step<'_> {
    /// Goes on after a commit. A clone of a clone has a checkpoint in the first table too, if it
    /// refers to SSTables there: of the version that the clone's own checkpoint keeps.
    pub fn cloner_has(
        &mut self,
        world: &mut World,
        actor: &mut Actor,
        of: u8,
        at: u8,
        next: Manifest,
    ) {
        let slot = actor.slot;
        let has_two = |actor: &Actor| of != 0 && actor.seen.is_some_and(|seen| seen.files[0] != 0);
        match at {
            1 => {
                let seen = Manifest::first(Phase::Creating, 0);
                actor.seen = Some(Manifest { files: next.files, flushed: next.flushed, ..seen });
                match has_two(actor) {
                    true => actor.commits(2, 0, ManifestChange::Keep { slot, like: Some(of + 1) }),
                    false => actor.goes(3),
                }
            }
            2 => actor.goes(3),
            4 if has_two(actor) => actor.commits(5, 0, ManifestChange::Confirm { slot }),
            4 | 5 => self.clone_goes_live(actor, of),
            _ => {
                world.cloned |= 1 << actor.home;
                actor.ends();
            }
        }
    }

    fn clone_goes_live(&self, actor: &mut Actor, of: u8) {
        let late = if self.rules.has(Rule::ParentsAtCreation) { 0 } else { parents(actor, of) };
        actor.seen = None;
        actor.commits(6, actor.home, ManifestChange::GoLive { parents: late });
    }

    /// Step 2: version 1.
    pub fn create_clone(&mut self, world: &World, actor: Actor, of: u8) {
        let mut first = Manifest::first(Phase::Creating, self.actor as u8 + 1);
        if let Some(seen) = actor.seen {
            (first.files, first.flushed) = (seen.files, seen.flushed);
        }
        if self.rules.has(Rule::ParentsAtCreation) {
            first.parents = parents(&actor, of);
        }
        self.creates(world, actor.home, Object::Manifest(first), |step, world, created| {
            let mut actor = actor;
            match created {
                None => {}
                Some(_) if step.rules.has(Rule::Confirm) => {
                    actor.commits(4, of, ManifestChange::Confirm { slot: actor.slot });
                }
                Some(_) => step.clone_goes_live(&mut actor, of),
            }
            step.push(&world, actor);
        });
    }
}

fn parents(actor: &Actor, of: u8) -> u8 {
    let is_of_first = actor.seen.is_some_and(|seen| seen.files[0] != 0);
    1 << of | u8::from(is_of_first)
}
