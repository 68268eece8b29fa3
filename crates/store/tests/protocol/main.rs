//! Explores the rules of `docs/engine.md` exhaustively, for few actors and short lives: whoever
//! uses storage is a small state machine (`actor.rs` and beside it) whose every step is one call,
//! in any order with those of others. Nobody need take a further step, so a crash and a sleep of
//! any length are in it everywhere; there is no clock, so a deadline has passed as soon as
//! somebody looks at it; a `create` may fail and happen later, or never. In every state
//! properties are looked at (`world.rs`). Each rule is also left out, to see that a property
//! breaks: nobody can say that this finds nothing.
//!
//! | setup | about |
//! | --- | --- |
//! | `versions` | reading and committing, call by call, with a failing `create` |
//! | `listings` | listings that are not of one moment |
//! | `deletion` | a table that is deleted and collected while others sleep |
//! | `writers`, `three_writers` | epochs, fences, replay, flushes, collecting the log |
//! | `failing_writers` | segments and fences that are created late |
//! | `compactions` | jobs that are closed; SSTables of jobs that are open, or new |
//! | `checkpoints` | those of readers, of older versions too, that end before it is known |
//! | `cloning` | the four steps of a cloner who may sleep between them |
//! | `given_up_clone` | a cloner who sleeps while its parent or its clone is deleted |
//! | `deleted_writer` | a writer, and an opener, of a table that is deleted |
//! | `deleted_clone`, `compacted_clone` | how long a clone holds its parent |
//! | `clone_of_clone` | checkpoints in two tables |
//! | `remains`, `remains_of_clones` | that cleaning leaves what is needed, and no more |
//!
//! The first three take every call apart. In the others, reading the current manifest is one step
//! and a commit is two, to read and to create, since the first ones show that no more comes of
//! it. Files that grow, ranges of keys and merging are not in it.

mod actor;
mod cloner;
mod collector;
mod explore;
mod rules;
mod world;
mod writer;

use actor::{Actor, Calls, Chores, Kind, Step};
use explore::{Model, explore, hash_of};
use rules::{ManifestChange, Rule, Rules};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use world::{Checkpoint, Manifest, Phase, Table, World};

/// Who there is, and what may go wrong.
#[derive(Clone)]
struct Setup {
    actors: Vec<Actor>,
    faults: u8,
    has_clone: bool,
    /// Every state is cleaned, to see what is left.
    is_cleaned: bool,
}

struct Protocol {
    rules: Rules,
    is_cleaned: bool,
    /// What lies in storage in states that were cleaned already.
    cleaned: RefCell<HashSet<u128>>,
}

impl Model for Protocol {
    type State = World;

    fn step(&self, world: &World, next: &mut Vec<World>) {
        for actor in 0..world.actors.len() {
            Step { rules: &self.rules, actor, next }.take(world);
        }
        for at in 0..world.late.len() {
            let mut world = world.clone();
            let (table, object) = world.late.remove(at);
            world.create(table, object);
            next.push(world);
        }
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let is_left = || {
            let is_new =
                || self.cleaned.borrow_mut().insert(hash_of(&(&world.tables, &world.late)));
            self.is_cleaned && is_new() && !self.can_be_cleaned(world)
        };
        world.wrong(&self.rules).or_else(|| is_left().then_some(world::LEFT))
    }
}

impl Protocol {
    /// Returns whether only what is needed is left when everybody has crashed and collectors have
    /// done their work, and nothing but last manifests if every table is deleted.
    fn can_be_cleaned(&self, world: &World) -> bool {
        let mut late = world.clone();
        for (table, object) in late.late.drain(..).collect::<Vec<_>>() {
            late.create(table, object);
        }
        [world, &late].into_iter().all(|world| {
            let mut world = collector::cleaned(world, &self.rules);
            let is_clean = collector::is_clean(&world, false);
            for table in 0..3 {
                let deleter = Actor::new(Kind::Once(ManifestChange::Delete), table);
                world = collector::run(world, deleter, &self.rules, 0);
            }
            is_clean && collector::is_clean(&collector::cleaned(&world, &self.rules), true)
        })
    }
}

impl Setup {
    fn new(actors: &[Actor]) -> Self {
        let actors = actors.to_vec();
        Setup { actors, faults: 0, has_clone: false, is_cleaned: false }
    }

    fn failing(self, faults: u8) -> Self {
        Setup { faults, ..self }
    }

    fn with(mut self, calls: Calls) -> Self {
        self.actors.iter_mut().for_each(|actor| actor.calls = calls);
        self
    }

    /// The second table is a clone of the first one already, which was compacted since.
    fn with_clone(self) -> Self {
        Setup { has_clone: true, ..self }
    }

    fn cleaned(self) -> Self {
        Setup { is_cleaned: true, ..self }
    }

    /// Returns the first state: a table with two SSTables of a closed job.
    fn first(&self) -> World {
        let ssts = world::sst(0, 0) | world::sst(0, 1);
        let manifest = Manifest { files: [ssts, 0, 0], ..Manifest::first(Phase::Live, 100) };
        let (manifests, history) = (vec![manifest], vec![100]);
        let mut tables = [
            Table { manifests, ssts, history, ..Table::default() },
            Table::default(),
            Table::default(),
        ];
        if self.has_clone {
            let output = world::sst(1, 0);
            let mut second = Manifest { version: 2, nonce: 101, before: [100, 0], ..manifest };
            (second.files[0], second.next_job) = (output, 2);
            tables[0].ssts |= output;
            second.checkpoints[2] = Checkpoint { version: 1, nonce: 100, is_confirmed: true };
            tables[0].manifests.push(second);
            tables[0].history.push(101);
            tables[1].manifests.push(Manifest { parents: 1, nonce: 102, ..manifest });
            tables[1].history.push(102);
        }
        World {
            tables: tables.map(Rc::new),
            actors: self.actors.iter().copied().map(Rc::new).collect(),
            late: Vec::new(),
            faults: self.faults,
            acknowledged: 0,
            opened: (0, 0),
            contents: std::array::from_fn(|sst| 1 << sst),
            cloned: if self.has_clone { 2 } else { 0 },
            broken: None,
        }
    }

    /// With all the rules, every property holds in every state.
    fn holds(&self) {
        assert_eq!(self.explore(None), None);
    }

    /// Without the rule, the property does not.
    fn breaks(&self, without: Rule, property: &str) {
        assert_eq!(self.explore(Some(without)), Some(property));
    }

    /// Prints the number of states, and the trace to one that is wrong.
    fn explore(&self, without: Option<Rule>) -> Option<&'static str> {
        let is_cleaned = self.is_cleaned;
        let rules = Rules { without };
        let explored =
            explore(&Protocol { rules, is_cleaned, cleaned: RefCell::default() }, self.first());
        println!("{} states", explored.states);
        let (property, trace) = explored.broken?;
        println!("not so: {property}");
        for pair in trace.windows(2) {
            show(&pair[0], &pair[1]);
        }
        Some(property)
    }
}

/// Prints what a step changed.
fn show(before: &World, after: &World) {
    for (at, (one, other)) in before.actors.iter().zip(&after.actors).enumerate() {
        if one != other {
            println!(
                "{at} {:?} at {}: {:?} -> at {}: {:?}",
                one.kind, one.at, one.call, other.at, other.call
            );
        }
    }
    for (at, (one, other)) in before.tables.iter().zip(&after.tables).enumerate() {
        if one != other {
            let versions: Vec<_> = other.manifests.iter().map(|m| (m.version, m.nonce)).collect();
            println!("    {at}: {versions:?} ssts {:b} log {:?}", other.ssts, other.log);
        }
    }
    if before.late != after.late {
        println!("    late: {:?}", after.late);
    }
}

fn writer(first_record: u8, appends: u8, flushes: u8) -> Actor {
    let writer = Actor::new(Kind::Writer, 0);
    Actor { next_record: first_record, appends_left: appends, rounds_left: flushes, ..writer }
}

fn collector(table: u8, rounds: u8, chores: Chores) -> Actor {
    Actor { rounds_left: rounds, ..Actor::new(Kind::Collector(chores), table) }
}

/// Makes a change, and again so many times.
fn once(table: u8, change: ManifestChange, again: u8) -> Actor {
    Actor { rounds_left: again, ..Actor::new(Kind::Once(change), table) }
}

fn reader(table: u8) -> Actor {
    Actor::new(Kind::Reader, table)
}

fn later_reader() -> Actor {
    Actor { slot: 1, ..Actor::new(Kind::LaterReader, 0) }
}

fn cloner(table: u8, of: u8) -> Actor {
    Actor::new(Kind::Cloner { of }, table)
}

fn compactor(table: u8) -> Actor {
    Actor::new(Kind::Compactor, table)
}

const NOTHING: Chores = Chores { removes: false, closes: false, expires: 0, releases: 0, drops: 0 };
const REMOVES: Chores = Chores { removes: true, ..NOTHING };
const CLOSES: Chores = Chores { closes: true, ..NOTHING };

fn versions() -> Setup {
    let actors = [
        once(0, ManifestChange::Touch, 0),
        once(0, ManifestChange::Touch, 3),
        collector(0, 2, REMOVES),
    ];
    Setup::new(&actors).with(Calls::Single).failing(1)
}

fn listings() -> Setup {
    let halves = |actor: Actor| Actor { calls: Calls::Halves, ..actor };
    let actors = [
        halves(once(0, ManifestChange::Touch, 0)),
        once(0, ManifestChange::Touch, 2),
        collector(0, 2, REMOVES),
        halves(collector(0, 1, REMOVES)),
    ];
    Setup::new(&actors)
}

fn deletion() -> Setup {
    let touch = once(0, ManifestChange::Touch, 0);
    let deleter = once(0, ManifestChange::Delete, 0);
    let actors = [touch, touch, touch, deleter, collector(0, 1, REMOVES)];
    Setup::new(&actors).with(Calls::Single)
}

fn writers() -> Setup {
    let actors = [writer(0, 2, 1), writer(3, 1, 1), collector(0, 2, REMOVES)];
    Setup::new(&actors)
}

fn failing_writers() -> Setup {
    let actors = [writer(0, 2, 0), writer(3, 1, 1), collector(0, 1, REMOVES)];
    Setup::new(&actors).failing(1)
}

fn three_writers() -> Setup {
    let actors = [writer(0, 1, 0), writer(3, 1, 0), writer(5, 0, 1), collector(0, 1, REMOVES)];
    Setup::new(&actors)
}

fn compactions() -> Setup {
    let collector = collector(0, 2, Chores { closes: true, ..REMOVES });
    let actors = [compactor(0), compactor(0), collector];
    Setup::new(&actors)
}

fn checkpoints() -> Setup {
    let collector = collector(0, 2, Chores { expires: 1, ..REMOVES });
    let actors =
        [once(0, ManifestChange::Touch, 0), reader(0), later_reader(), compactor(0), collector];
    Setup::new(&actors)
}

fn cloning() -> Setup {
    let collector_of_first = collector(0, 2, Chores { expires: 4, releases: 4, ..REMOVES });
    let actors = [cloner(1, 0), compactor(0), collector_of_first, collector(1, 1, CLOSES)];
    Setup::new(&actors).failing(1)
}

fn given_up_clone() -> Setup {
    let collectors = [
        collector(0, 2, Chores { expires: 4, releases: 4, ..REMOVES }),
        collector(1, 2, Chores { closes: true, ..REMOVES }),
    ];
    let actors = [cloner(1, 0), once(0, ManifestChange::Delete, 0), collectors[0], collectors[1]];
    Setup::new(&actors).failing(1)
}

fn deleted_writer() -> Setup {
    let deleter = once(0, ManifestChange::Delete, 0);
    let actors = [writer(0, 1, 1), writer(3, 1, 0), deleter, collector(0, 1, REMOVES)];
    Setup::new(&actors)
}

fn deleted_clone() -> Setup {
    let collectors = [
        collector(0, 2, Chores { releases: 4, ..REMOVES }),
        collector(1, 2, Chores { expires: 1, ..REMOVES }),
    ];
    let deleter = once(1, ManifestChange::Delete, 0);
    let actors = [reader(1), deleter, collectors[0], collectors[1]];
    Setup::new(&actors).with_clone()
}

fn compacted_clone() -> Setup {
    let collectors = [
        collector(0, 2, Chores { releases: 4, ..REMOVES }),
        collector(1, 3, Chores { expires: 1, drops: 1, ..REMOVES }),
    ];
    let actors = [reader(1), compactor(1), collectors[0], collectors[1]];
    Setup::new(&actors).with_clone()
}

fn clone_of_clone() -> Setup {
    let collectors = [
        collector(0, 2, Chores { releases: 4, expires: 8, ..REMOVES }),
        collector(1, 2, Chores { expires: 8, drops: 1, ..REMOVES }),
    ];
    let actors = [cloner(2, 1), compactor(1), collectors[0], collectors[1]];
    Setup::new(&actors).with_clone()
}

fn remains() -> Setup {
    let collector = collector(0, 1, Chores { closes: true, ..REMOVES });
    Setup::new(&[compactor(0), writer(0, 1, 1), collector]).failing(1).cleaned()
}

fn remains_of_clones() -> Setup {
    let collectors = [
        collector(0, 1, Chores { releases: 4, ..REMOVES }),
        collector(1, 1, Chores { drops: 1, ..REMOVES }),
    ];
    let actors = [cloner(2, 1), compactor(1), collectors[0], collectors[1]];
    Setup::new(&actors).with_clone().cleaned()
}

/// Explores a setup with all the rules, and without some.
macro_rules! explores {
    ($setup:ident $(, $name:ident: $rule:ident breaks $property:ident)*) => {
        mod $setup {
            #[test]
            fn holds() {
                super::$setup().holds();
            }
            $(#[test]
            fn $name() {
                super::$setup().breaks(super::Rule::$rule, super::world::$property);
            })*
        }
    };
}

explores!(
    versions,
    list_last: ListLast breaks FALSE_COMMIT,
    list_after_create: ListAfterCreate breaks FALSE_COMMIT,
    nonces_after_failure: NoncesAfterFailure breaks FALSE_FAILURE,
    too_long_ago: TooLongAgo breaks FALSE_FAILURE
);
explores!(
    listings,
    in_order: ListingInOrder breaks FALSE_COMMIT,
    list_after_read: ListAfterRead breaks NEVER_CURRENT
);
explores!(deletion, last_manifest_stays: LastManifestStays breaks MISSING);
explores!(
    writers,
    fence: Fence breaks LOST,
    fences_stay: FencesStay breaks STALE,
    only_known_ones: OnlyKnownOnes breaks LOST
);
explores!(failing_writers, same_bytes: SameBytes breaks STALE);
explores!(three_writers, epoch_after_replay: EpochAfterReplay breaks LOST);
explores!(
    compactions,
    job_is_open: JobIsOpen breaks MISSING,
    inputs_are_there: InputsAreThere breaks TWICE,
    open_jobs_count: OpenJobsCount breaks MISSING,
    only_known_ones: OnlyKnownOnes breaks MISSING
);
explores!(
    checkpoints,
    kept_manifests: KeptManifests breaks MISSING,
    kept_files_count: KeptFilesCount breaks MISSING,
    kept_version_only: KeptVersionOnly breaks MISSING,
    checkpoint_nonce: CheckpointNonce breaks NEVER_CURRENT
);
explores!(
    cloning,
    confirm: Confirm breaks MISSING,
    confirmed_has_no_deadline: ConfirmedHasNoDeadline breaks MISSING,
    parents_at_creation: ParentsAtCreation breaks MISSING,
    absent_holds: AbsentHolds breaks MISSING,
    live_once: LiveOnce breaks MISSING
);
explores!(
    given_up_clone,
    kept_files_count: KeptFilesCount breaks MISSING
);
explores!(deleted_writer);
explores!(deleted_clone, deleted_holds_too: DeletedHoldsToo breaks MISSING);
explores!(compacted_clone, kept_holds_parents: KeptHoldsParents breaks MISSING);
explores!(clone_of_clone, kept_holds_parents: KeptHoldsParents breaks MISSING);
explores!(remains);
explores!(remains_of_clones, dropped_is_released: DroppedIsReleased breaks LEFT);
