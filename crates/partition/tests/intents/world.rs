//! Servers with a table each, whoever owns the tables or believes to, and the messages on the way.
//! Each step is one message, one write or one request.

use crate::rules::{Rule, Rules};
use canopy_partition::{
    Age, Decisions, IntentId, Locked, Locks, Preparation, Preparations, ServerId, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// A change of several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The file of one server's name goes to that of another. A third server may count it.
    Rename { from: usize, to: usize, counts: Option<usize> },
}

/// A part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The name gets this file.
    Put(u8),
    /// One more.
    Count,
}

/// Records of one table: a name with its file (0 if there is none), or a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    cell: u8,
    prepared: Preparations,
    parts: BTreeMap<IntentId, (Part, Age)>,
    decisions: Decisions,
}

/// A try of a change that a decider has not decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    change: usize,
    intent: IntentId,
    parts: BTreeMap<ServerId, Part>,
    prepared: BTreeMap<ServerId, Preparation>,
}

/// A process that opened a table. Once another one has opened it, this one reads what it knew, and
/// its writes fail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    server: usize,
    epoch: u64,
    begun: u64,
    prepared: u64,
    running: Option<Running>,
    locks: Locks<()>,
    /// The table as a process that was replaced knows it.
    stale: Option<Table>,
}

/// A message between servers. It may arrive never, late, and again and again, at any process that
/// opened the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Prepare(Part, Age),
    Prepared(ServerId, Preparation),
    /// An older change has the name.
    GiveUp,
    Answer(Preparation, Verdict),
    Confirm(ServerId, Preparation),
}

/// Numbers of events that may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that each table is opened by another process.
    pub opens: Vec<u8>,
    /// Tries of all changes together.
    pub tries: u8,
    /// Times that each participant prepares.
    pub preparations: u8,
    /// Times that a client creates or removes a name.
    pub changes: u8,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub tables: Vec<Table>,
    owners: Vec<Owner>,
    messages: BTreeSet<(usize, IntentId, Message)>,
    budget: Budget,
    epochs: Vec<u64>,
    changes: Vec<Kind>,
    /// Changes that have happened, or that there is nothing to do for.
    done: u8,
    /// State of each server after all changes that have happened.
    pub expected: Vec<u8>,
}

impl Kind {
    fn decider(self) -> usize {
        let Kind::Rename { from, .. } = self;
        from
    }

    fn parts(self, file: u8) -> BTreeMap<ServerId, Part> {
        let Kind::Rename { to, counts, .. } = self;
        let count = counts.map(|counts| (ServerId(counts as u32), Part::Count));
        [(ServerId(to as u32), Part::Put(file))].into_iter().chain(count).collect()
    }
}

impl Part {
    fn made(self, cell: u8) -> u8 {
        match self {
            Part::Put(file) => file,
            Part::Count => cell + 1,
        }
    }
}

impl Table {
    /// A preparation was decided or aborted. Returns whether it was recorded.
    fn end(&mut self, intent: IntentId, preparation: Preparation, is_committed: bool) -> bool {
        let is_recorded = self.prepared.end(intent, preparation);
        let part = self.parts.get(&intent).filter(|_| is_recorded).copied();
        if let Some((part, _)) = part {
            self.parts.remove(&intent);
            if is_committed {
                self.cell = part.made(self.cell);
            }
        }
        is_recorded
    }
}

impl World {
    /// Returns a world where all tables have been opened once.
    pub fn new(cells: &[u8], changes: &[Kind], budget: Budget) -> Self {
        let table = |cell: &u8| Table { cell: *cell, ..Table::default() };
        World {
            tables: cells.iter().map(table).collect(),
            owners: (0..cells.len()).map(|server| owner(server, 1, &Table::default())).collect(),
            messages: BTreeSet::new(),
            budget,
            epochs: vec![1; cells.len()],
            changes: changes.to_vec(),
            done: 0,
            expected: cells.to_vec(),
        }
    }

    fn view(&self, owner: usize) -> &Table {
        let owner = &self.owners[owner];
        owner.stale.as_ref().unwrap_or(&self.tables[owner.server])
    }

    /// Returns the world after a durable write by a process, and whether it was made. A process that
    /// was replaced gets to know so by the failure, and ends.
    fn written(&self, owner: usize, rules: Rules, write: impl FnOnce(&mut Table)) -> (Self, bool) {
        let mut world = self.clone();
        let server = world.owners[owner].server;
        match (&mut world.owners[owner].stale, rules.has(Rule::FenceOldOwners)) {
            (None, _) => write(&mut world.tables[server]),
            (Some(_), true) => {
                world.owners.remove(owner);
                return (world, false);
            }
            (Some(stale), false) => {
                write(stale);
                world.tables[server] = stale.clone();
            }
        }
        (world, true)
    }

    fn sent(mut self, server: usize, intent: IntentId, message: Message) -> Self {
        self.messages.insert((server, intent, message));
        self
    }

    /// Adds every world that one step of one process, of a client or of a new process leads to.
    pub fn step(&self, rules: Rules, next: &mut Vec<World>) {
        for server in 0..self.tables.len() {
            if self.budget.opens[server] > 0 {
                next.push(self.opened(server));
            }
        }
        for owner in 0..self.owners.len() {
            next.extend(self.change(owner, rules));
            next.extend(self.begin(owner, rules));
            next.extend(self.decide(owner, rules));
            next.extend(self.ask(owner, rules));
            next.extend(self.repeat(owner));
            if self.owners[owner].running.is_some() {
                next.push(self.given_up(owner));
            }
            for sent in &self.messages {
                if sent.0 == self.owners[owner].server {
                    next.extend(self.receive(owner, *sent, rules));
                }
            }
        }
    }

    /// Another process opens a table.
    fn opened(&self, server: usize) -> Self {
        let mut world = self.clone();
        world.budget.opens[server] = world.budget.opens[server].saturating_sub(1);
        let table = &world.tables[server];
        for owner in world.owners.iter_mut().filter(|owner| owner.server == server) {
            owner.stale.get_or_insert_with(|| table.clone());
        }
        world.epochs[server] += 1;
        world.owners.push(owner(server, world.epochs[server], &world.tables[server]));
        world
    }

    /// A client creates or removes a name.
    fn change(&self, owner: usize, rules: Rules) -> Option<Self> {
        let server = self.owners[owner].server;
        let is_count =
            self.changes.iter().any(|Kind::Rename { counts, .. }| *counts == Some(server));
        let is_locked = self.owners[owner].locks.holder(&()).is_some_and(|intent| {
            match intent.decider.0 as usize == server {
                true => rules.has(Rule::DeciderLocks),
                false => rules.has(Rule::ParticipantLocks),
            }
        });
        if self.budget.changes == 0 || is_locked || is_count {
            return None;
        }
        let file = 16 * (self.budget.changes);
        let file = if self.view(owner).cell == 0 { file } else { 0 };
        let (mut world, is_made) = self.written(owner, rules, |table| table.cell = file);
        world.budget.changes -= 1;
        if is_made {
            world.expected[server] = file;
        }
        Some(world)
    }

    /// A decider begins to try a change.
    fn begin(&self, owner: usize, rules: Rules) -> Vec<Self> {
        let Owner { server, epoch, begun, ref running, .. } = self.owners[owner];
        let epoch = if rules.has(Rule::IntentsHaveEpochs) { epoch } else { 0 };
        if running.is_some() || self.budget.tries == 0 {
            return Vec::new();
        }
        let mut begun_worlds = Vec::new();
        for (change, kind) in self.changes.iter().enumerate() {
            if kind.decider() != server || self.done & 1 << change != 0 {
                continue;
            }
            let intent = IntentId { decider: ServerId(server as u32), epoch, number: begun + 1 };
            // The first change is the oldest.
            let age = Age { time: change as u64, server: intent.decider, number: 0 };
            let mut world = self.clone();
            if world.owners[owner].locks.lock([()], intent, age) != Locked::Granted {
                continue;
            }
            let file = self.view(owner).cell;
            let parts = kind.parts(file);
            world.budget.tries -= 1;
            world.owners[owner].begun += 1;
            if file == 0 {
                // There is no such file.
                world.done |= 1 << change;
                world.owners[owner].locks.unlock(intent);
                begun_worlds.push(world);
                continue;
            }
            for (participant, part) in &parts {
                world = world.sent(participant.0 as usize, intent, Message::Prepare(*part, age));
            }
            let prepared = BTreeMap::new();
            world.owners[owner].running = Some(Running { change, intent, parts, prepared });
            begun_worlds.push(world);
        }
        begun_worlds
    }

    /// A decider stops a try: one that nobody answers, or that would have to wait.
    fn given_up(&self, owner: usize) -> Self {
        let mut world = self.clone();
        if let Some(running) = world.owners[owner].running.take() {
            world.owners[owner].locks.unlock(running.intent);
        }
        world
    }

    fn decide(&self, owner: usize, rules: Rules) -> Option<Self> {
        let Running { change, intent, parts, prepared } = self.owners[owner].running.as_ref()?;
        let is_prepared = parts.keys().all(|participant| prepared.contains_key(participant));
        if !is_prepared && rules.has(Rule::CommitWhatIsPrepared) {
            return None;
        }
        let (mut world, is_made) = self.written(owner, rules, |table| {
            table.cell = 0;
            if rules.has(Rule::KnownUntilConfirmed) {
                table.decisions.commit(*intent, prepared.clone());
            }
        });
        if is_made {
            let server = self.owners[owner].server;
            world.done |= 1 << change;
            // It moves the file that the name has now, by all changes before.
            let file = std::mem::take(&mut world.expected[server]);
            for (participant, part) in &self.changes[*change].parts(file) {
                let cell = &mut world.expected[participant.0 as usize];
                *cell = part.made(*cell);
            }
            for (participant, preparation) in prepared {
                let committed = Message::Answer(*preparation, Verdict::Committed);
                world = world.sent(participant.0 as usize, *intent, committed);
            }
            world = world.given_up(owner);
        }
        Some(world)
    }

    /// A participant asks about an intent, and somebody who opened the decider's table sends the
    /// answer. A question that arrives late is one that was asked late.
    fn ask(&self, owner: usize, rules: Rules) -> Vec<Self> {
        let server = self.owners[owner].server;
        let mut asked = Vec::new();
        for (intent, preparation) in self.view(owner).prepared.unanswered() {
            for other in (0..self.owners.len()).filter(|other| self.decides(*other, intent)) {
                let verdict = self.answer(other, server, (intent, preparation), rules);
                let answer = Message::Answer(preparation, verdict);
                asked.push(self.clone().sent(server, intent, answer));
            }
        }
        asked
    }

    fn decides(&self, owner: usize, intent: IntentId) -> bool {
        self.owners[owner].server == intent.decider.0 as usize
    }

    fn answer(
        &self,
        owner: usize,
        participant: usize,
        (intent, preparation): (IntentId, Preparation),
        rules: Rules,
    ) -> Verdict {
        let Owner { epoch, ref running, .. } = self.owners[owner];
        let is_running = running.as_ref().is_some_and(|running| running.intent == intent);
        let is_running = is_running && rules.has(Rule::RunningIsPending);
        let epoch = if rules.has(Rule::ReplacedOwnersDoNotKnow) { epoch } else { u64::MAX };
        let participant = ServerId(participant as u32);
        self.view(owner).decisions.answer(intent, participant, preparation, epoch, is_running)
    }

    /// A decider repeats its decisions.
    fn repeat(&self, owner: usize) -> Vec<Self> {
        let unconfirmed = self.view(owner).decisions.unconfirmed();
        let repeated = |(intent, participant, preparation): (IntentId, ServerId, _)| {
            let committed = Message::Answer(preparation, Verdict::Committed);
            self.clone().sent(participant.0 as usize, intent, committed)
        };
        unconfirmed.map(repeated).collect()
    }

    /// A process receives a message.
    fn receive(
        &self,
        owner: usize,
        (server, intent, message): (usize, IntentId, Message),
        rules: Rules,
    ) -> Option<Self> {
        match message {
            Message::Prepare(part, age) => self.prepare(owner, intent, (part, age), rules),
            Message::Prepared(participant, preparation) => {
                let mut world = self.clone();
                let running = world.owners[owner].running.as_mut()?;
                if running.intent != intent {
                    return None;
                }
                running.prepared.entry(participant).or_insert(preparation);
                Some(world)
            }
            Message::GiveUp => {
                let running = self.owners[owner].running.as_ref()?;
                (running.intent == intent).then(|| self.given_up(owner))
            }
            Message::Answer(preparation, verdict) => {
                let is_committed = match verdict {
                    Verdict::Committed => true,
                    Verdict::Aborted => false,
                    Verdict::Pending if !rules.has(Rule::PendingStays) => false,
                    Verdict::Pending | Verdict::Unknown => return None,
                };
                let world = self.ended(owner, (intent, preparation), is_committed, rules)?;
                let id = ServerId(server as u32);
                let confirm = Message::Confirm(id, preparation);
                let to = intent.decider.0 as usize;
                Some(if is_committed { world.sent(to, intent, confirm) } else { world })
            }
            Message::Confirm(participant, preparation) => {
                let mut changed = self.view(owner).decisions.clone();
                if !changed.confirm(intent, participant, preparation) {
                    return None;
                }
                Some(self.written(owner, rules, |table| table.decisions = changed).0)
            }
        }
    }

    /// A participant makes its part, or drops it. None if its owner could not write.
    fn ended(
        &self,
        owner: usize,
        (intent, preparation): (IntentId, Preparation),
        is_committed: bool,
        rules: Rules,
    ) -> Option<Self> {
        if self.view(owner).prepared.of(intent) != Some(preparation) {
            let confirms = preparation.was_ended(self.owners[owner].epoch)
                || !rules.has(Rule::ReplacedOwnersDoNotConfirm);
            return confirms.then(|| self.clone());
        }
        let (mut world, is_made) = self.written(owner, rules, |table| {
            table.end(intent, preparation, is_committed);
        });
        if is_made {
            world.owners[owner].locks.unlock(intent);
            return Some(world);
        }
        None
    }

    fn prepare(
        &self,
        owner: usize,
        intent: IntentId,
        (part, age): (Part, Age),
        rules: Rules,
    ) -> Option<Self> {
        let Owner { server, epoch, prepared, .. } = self.owners[owner];
        let to = intent.decider.0 as usize;
        let id = ServerId(server as u32);
        if let Some(preparation) = self.view(owner).prepared.of(intent) {
            return Some(self.clone().sent(to, intent, Message::Prepared(id, preparation)));
        }
        if prepared >= u64::from(self.budget.preparations) {
            return None;
        }
        let mut locked = self.clone();
        match locked.owners[owner].locks.lock([()], intent, age) {
            Locked::Granted => {}
            Locked::Wait(_) => return None,
            Locked::GiveUp(_) if !rules.has(Rule::YoungerGivesUp) => return None,
            Locked::GiveUp(_) => return Some(self.clone().sent(to, intent, Message::GiveUp)),
        }
        let number = if rules.has(Rule::FreshPreparations) { prepared + 1 } else { 0 };
        let fresh = Preparation { epoch, number };
        locked.owners[owner].prepared += 1;
        let (world, is_made) = locked.written(owner, rules, |table| {
            table.prepared.prepare(intent, fresh);
            table.parts.insert(intent, (part, age));
        });
        let reply = Message::Prepared(id, fresh);
        Some(if is_made { world.sent(to, intent, reply) } else { world })
    }

    /// Returns what a reader may see of a server's name, by the word of any process that opened the
    /// table of a decider.
    fn seen(&self, server: usize, rules: Rules) -> Vec<u8> {
        let table = &self.tables[server];
        let mut seen = Vec::new();
        for (intent, preparation) in table.prepared.unanswered() {
            let (part, _) = table.parts[&intent];
            if !rules.has(Rule::PreparedIsInvisible) {
                return vec![part.made(table.cell)];
            }
            if !rules.has(Rule::ReadersAsk) {
                continue;
            }
            for owner in (0..self.owners.len()).filter(|owner| self.decides(*owner, intent)) {
                match self.answer(owner, server, (intent, preparation), rules) {
                    Verdict::Committed => seen.push(part.made(table.cell)),
                    Verdict::Pending | Verdict::Aborted => seen.push(table.cell),
                    // The reader asks another one.
                    Verdict::Unknown => {}
                }
            }
        }
        if seen.is_empty() {
            seen.push(table.cell);
        }
        seen
    }

    /// Returns the property that does not hold.
    pub fn wrong(&self, rules: Rules) -> Option<&'static str> {
        for (server, expected) in self.expected.iter().enumerate() {
            if self.seen(server, rules).iter().any(|seen| seen != expected) {
                return Some(HALF);
            }
        }
        None
    }

    /// Returns the property that does not hold once new processes own all tables, all messages arrive
    /// and nothing is tried any more.
    pub fn wrong_at_rest(&self, rules: Rules) -> Option<&'static str> {
        let mut world = self.clone();
        (0..self.tables.len()).for_each(|server| world = world.opened(server));
        world.owners.drain(..self.owners.len());
        // All that was on the way is lost.
        world.messages.clear();
        world.budget.tries = 0;
        world.run(rules);
        world.wrong(rules).or_else(|| (!world.is_at_rest()).then_some(RESTLESS))
    }

    /// Returns whether the changes that run come to their end if nobody dies, stops or loses a
    /// message, and no client changes anything.
    pub fn proceeds(&self, rules: Rules) -> bool {
        let mut world = self.clone();
        world.owners.retain(|owner| owner.stale.is_none());
        if world.owners.iter().all(|owner| owner.running.is_none()) {
            return true;
        }
        world.budget.tries = 0;
        world.budget.preparations = u8::MAX;
        world.run(rules);
        world.owners.iter().all(|owner| owner.running.is_none()) && world.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        let is_at_rest = |table: &Table| {
            table.prepared.unanswered().next().is_none()
                && table.decisions.unconfirmed().next().is_none()
                && table.parts.is_empty()
        };
        let is_unlocked = |owner: &Owner| owner.locks.is_empty();
        self.tables.iter().all(is_at_rest) && self.owners.iter().all(is_unlocked)
    }

    /// Has every process do what it can, until nothing changes. A message arrives once.
    fn run(&mut self, rules: Rules) {
        for _ in 0..32 {
            let before = self.clone();
            for owner in 0..self.owners.len() {
                if let Some(after) = self.decide(owner, rules) {
                    *self = after;
                }
                self.send_again(owner);
                let asked = self.ask(owner, rules).pop().filter(|_| rules.has(Rule::Ask));
                if let Some(after) = asked {
                    *self = after;
                }
                let repeated = self.repeat(owner).pop().filter(|_| rules.has(Rule::Repeat));
                if let Some(after) = repeated {
                    *self = after;
                }
            }
            while let Some(sent) = self.messages.pop_first() {
                let owner = self.owners.iter().position(|owner| owner.server == sent.0);
                let after = owner.and_then(|owner| self.receive(owner, sent, rules));
                if let Some(after) = after {
                    *self = after;
                }
                self.messages.remove(&sent);
            }
            if *self == before {
                break;
            }
        }
    }

    /// A decider sends parts again that were not prepared.
    fn send_again(&mut self, owner: usize) {
        let Some(running) = self.owners[owner].running.clone() else { return };
        let change = running.change as u64;
        let age = Age { time: change, server: running.intent.decider, number: 0 };
        for (participant, part) in &running.parts {
            if !running.prepared.contains_key(participant) {
                let sent = (participant.0 as usize, running.intent, Message::Prepare(*part, age));
                self.messages.insert(sent);
            }
        }
    }
}

/// Returns a process that has opened a table: what is prepared there is locked.
fn owner(server: usize, epoch: u64, table: &Table) -> Owner {
    let mut locks = Locks::default();
    for (intent, (_, age)) in &table.parts {
        locks.lock([()], *intent, *age);
    }
    Owner { server, epoch, begun: 0, prepared: 0, running: None, locks, stale: None }
}

pub const HALF: &str = "a reader sees a part of a change, or what there is not";
pub const RESTLESS: &str = "servers that are left alone do not come to rest";
pub const STUCK: &str = "changes wait for each other";
