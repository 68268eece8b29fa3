//! Two servers with a table each, whoever owns the tables or believes to, and the messages on the
//! way. Each step is one message, one write or one request.

use crate::rules::{Rule, Rules};
use canopy_partition::{Answer, Attempt, Begun, Holding, Holdings, OfferState, PartitionId};
use std::collections::BTreeSet;

/// Names of the directory, one for each quarter of the hashes. A set of them is four bits.
pub const NAMES: u8 = 4;

/// Records of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// Records of partitions.
    pub holdings: Holdings,
    /// Names that have a record, visible or not.
    pub names: u8,
}

/// An attempt that a giver has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    child: PartitionId,
    attempt: Attempt,
    is_complete: bool,
}

/// A process that opened a table. Once another one has opened it, this one reads what it knew, and
/// its writes fail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub server: usize,
    epoch: u64,
    begun: u64,
    running: Option<Running>,
    /// The table as a process that was replaced knows it.
    stale: Option<Table>,
}

/// A message between servers. It may arrive never, late, and again and again, at any process that
/// opened the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Begin,
    Entry(u8),
    /// All entries were sent; their number.
    End(u32),
    Complete,
    Given,
    Held,
    Answer(Answer),
}

/// A message with what it is about: to a server, of a partition, of an attempt.
pub type Sent = (usize, PartitionId, Attempt, Message);

/// Numbers of events that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that a table is opened by another process.
    pub opens: [u8; 2],
    pub attempts: u8,
    /// Names that are created or removed.
    pub changes: u8,
    /// Those that may be.
    pub changing: u8,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub tables: [Table; 2],
    pub owners: Vec<Owner>,
    pub messages: BTreeSet<Sent>,
    pub budget: Budget,
    /// Names that there are, by the replies that clients got.
    pub acknowledged: u8,
    /// Partitions that are handed over in this setup, each with the server that gives it.
    pub gives: Vec<(PartitionId, usize)>,
}

/// Returns the hash of a name: the first of its quarter.
fn hash_of(name: u8) -> u64 {
    u64::from(name) << 62
}

/// Returns the names of a partition when it is handed over.
fn names_of(partition: PartitionId) -> u8 {
    let hashes = partition.hashes(partition.first_depth());
    (0..NAMES).filter(|name| hashes.contains(&hash_of(*name))).map(|name| 1 << name).sum()
}

impl Table {
    /// Returns the names that are in partitions that are held.
    fn held(&self) -> u8 {
        let is_held = |name: &u8| self.holdings.holder(hash_of(*name)).is_some();
        (0..NAMES).filter(is_held).map(|name| 1 << name).sum()
    }

    /// Returns the names of partitions with a record that is so.
    fn recorded(&self, is_so: impl Fn(Holding) -> bool) -> u8 {
        let recorded = self.holdings.records().filter(|(_, holding)| is_so(*holding));
        recorded.fold(0, |names, (partition, _)| names | names_of(partition))
    }
}

impl World {
    /// Returns a world where both tables have been opened once.
    pub fn new(tables: [Table; 2], gives: Vec<(PartitionId, usize)>, budget: Budget) -> Self {
        let acknowledged = tables.iter().fold(0, |names, table| names | table.names & table.held());
        let owner = |server| Owner { server, epoch: 1, begun: 0, running: None, stale: None };
        World {
            tables,
            owners: vec![owner(0), owner(1)],
            messages: BTreeSet::new(),
            budget,
            acknowledged,
            gives,
        }
    }

    fn view(&self, owner: usize) -> &Table {
        let owner = &self.owners[owner];
        owner.stale.as_ref().unwrap_or(&self.tables[owner.server])
    }

    /// Returns the world after a durable write by a process. One that was replaced gets to know so
    /// by the failure, and ends.
    fn written(&self, owner: usize, rules: Rules, write: impl FnOnce(&mut Table)) -> Self {
        let mut world = self.clone();
        let server = world.owners[owner].server;
        match (&mut world.owners[owner].stale, rules.has(Rule::FenceOldOwners)) {
            (None, _) => write(&mut world.tables[server]),
            (Some(_), true) => {
                world.owners.remove(owner);
            }
            (Some(stale), false) => {
                write(stale);
                world.tables[server] = stale.clone();
            }
        }
        world
    }

    /// Returns the world after a message was sent.
    fn sent(mut self, server: usize, about: (PartitionId, Attempt), message: Message) -> Self {
        self.messages.insert((server, about.0, about.1, message));
        self
    }

    /// Adds every world that one step of one process, of a client or of a new process leads to.
    pub fn step(&self, rules: Rules, next: &mut Vec<World>) {
        for server in 0..2 {
            if self.budget.opens[server] > 0 {
                next.push(self.opened(server));
            }
        }
        for owner in 0..self.owners.len() {
            self.change(owner, rules, next);
            self.give(owner, rules, next);
            next.extend(self.removal(owner, rules));
            next.extend(self.ask(owner, rules));
            next.extend(self.repeat(owner));
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
        world.budget.opens[server] -= 1;
        let table = &world.tables[server];
        let mut epoch = 0;
        for owner in world.owners.iter_mut().filter(|owner| owner.server == server) {
            epoch = epoch.max(owner.epoch);
            owner.stale.get_or_insert_with(|| table.clone());
        }
        // Epochs of processes that have ended count, too.
        let epoch = epoch.max(self.messages.iter().map(|sent| sent.2.epoch).max().unwrap_or(0));
        let owner = Owner { server, epoch: epoch + 1, begun: 0, running: None, stale: None };
        world.owners.push(owner);
        world
    }

    /// A client creates or removes a name.
    fn change(&self, owner: usize, rules: Rules, next: &mut Vec<World>) {
        let Owner { running, .. } = &self.owners[owner];
        let waiting = running.filter(|_| rules.has(Rule::ChangesWait));
        let waiting = waiting.map_or(0, |running| names_of(running.child));
        let Budget { changing, .. } = self.budget;
        let view = self.view(owner);
        let seen = match rules.has(Rule::OfferIsInvisible) {
            true => view.held(),
            false => {
                view.held() | view.recorded(|holding| matches!(holding, Holding::Offered { .. }))
            }
        };
        let names = (0..NAMES)
            .map(|name| 1u8 << name)
            .filter(|name| seen & !waiting & changing & name != 0);
        for name in names.filter(|_| self.budget.changes > 0) {
            let mut world = self.written(owner, rules, |table| table.names ^= name);
            world.budget.changes -= 1;
            if world.owners.len() == self.owners.len() {
                world.acknowledged ^= name;
            }
            next.push(world);
        }
    }

    /// The steps of a giver that no message causes.
    fn give(&self, owner: usize, rules: Rules, next: &mut Vec<World>) {
        let Owner { server, epoch, begun, running, .. } = self.owners[owner];
        let view = self.view(owner);
        let Some(Running { child, attempt, is_complete }) = running else {
            for (child, giver) in self.gives.iter().filter(|(_, giver)| *giver == server) {
                let parent = child.parent().unwrap();
                if self.budget.attempts == 0 || view.holdings.child(parent) != Some(*child) {
                    continue;
                }
                let epoch = if rules.has(Rule::AttemptsHaveEpochs) { epoch } else { 0 };
                let attempt = Attempt { epoch, number: begun + 1 };
                next.push(self.begun(owner, (*child, attempt), 1 - giver));
            }
            return;
        };
        let mut given_up = self.clone();
        given_up.owners[owner].running = None;
        next.push(given_up);
        if is_complete || !rules.has(Rule::GiveWhatIsComplete) {
            let mut world = self.written(owner, rules, |table| {
                table.holdings.give(child, attempt);
            });
            if world.owners.len() == self.owners.len() {
                world.owners[owner].running = None;
                world = world.sent(1 - server, (child, attempt), Message::Given);
            }
            next.push(world);
        }
    }

    /// A giver sends all that it has of a partition.
    fn begun(&self, owner: usize, about: (PartitionId, Attempt), to: usize) -> Self {
        let mut world = self.clone();
        world.budget.attempts -= 1;
        let (child, attempt) = about;
        world.owners[owner].begun += 1;
        world.owners[owner].running = Some(Running { child, attempt, is_complete: false });
        let names = self.view(owner).names & names_of(child);
        world = world.sent(to, about, Message::Begin);
        for name in (0..NAMES).filter(|name| names >> name & 1 == 1) {
            world = world.sent(to, about, Message::Entry(name));
        }
        world.sent(to, about, Message::End(names.count_ones()))
    }

    /// A process removes one entry that has to go, or notes that none is left.
    fn removal(&self, owner: usize, rules: Rules) -> Option<Self> {
        let (partition, _) = self.view(owner).holdings.remains().next()?;
        Some(self.written(owner, rules, |table| match table.names & names_of(partition) {
            0 => table.holdings.removed(partition),
            names => table.names &= !(1 << names.trailing_zeros()),
        }))
    }

    /// A receiver asks about an attempt, and somebody who opened the giver's table sends the answer.
    /// A question that arrives late is one that was asked late.
    fn ask(&self, owner: usize, rules: Rules) -> Vec<Self> {
        let server = self.owners[owner].server;
        let others = (0..self.owners.len()).filter(|other| self.owners[*other].server != server);
        let ask = |other| {
            let unanswered = self.view(owner).holdings.unanswered();
            let answered = move |about| {
                let answer = self.answer(other, about, rules);
                self.clone().sent(server, about, Message::Answer(answer))
            };
            unanswered.map(answered)
        };
        others.flat_map(ask).collect()
    }

    /// A giver repeats that it has given.
    fn repeat(&self, owner: usize) -> Vec<Self> {
        let to = 1 - self.owners[owner].server;
        let unconfirmed = self.view(owner).holdings.unconfirmed();
        unconfirmed.map(|about| self.clone().sent(to, about, Message::Given)).collect()
    }

    /// A process receives a message.
    fn receive(&self, owner: usize, sent: Sent, rules: Rules) -> Option<Self> {
        let (server, child, attempt, message) = sent;
        let about = (child, attempt);
        let view = self.view(owner);
        let mut changed = view.clone();
        let holdings = &mut changed.holdings;
        let reply = match message {
            Message::Begin => {
                begin(holdings, about, rules);
                None
            }
            Message::Entry(name) => {
                let takes = holdings.takes_entries(child, attempt)
                    || !rules.has(Rule::EntriesOfTheAttempt)
                        && matches!(holdings.record(child), Some(Holding::Offered { .. }));
                if takes {
                    changed.names |= 1 << name;
                }
                None
            }
            Message::End(count) => {
                let has_all = (changed.names & names_of(child)).count_ones() == count
                    || !rules.has(Rule::CountEntries);
                (has_all && holdings.complete(child, attempt)).then_some(Message::Complete)
            }
            Message::Complete => return self.learned_complete(owner, about),
            Message::Given | Message::Answer(Answer::Given) => {
                holdings.hold(child, attempt).then_some(Message::Held)
            }
            Message::Held => {
                holdings.confirm(child, attempt);
                None
            }
            Message::Answer(Answer::Ended) => {
                holdings.end(child, attempt);
                None
            }
            Message::Answer(Answer::Pending) => {
                if !rules.has(Rule::PendingOfferStays) {
                    holdings.end(child, attempt);
                }
                None
            }
            Message::Answer(Answer::Unknown) => None,
        };
        let is_written = changed != *view;
        let mut world = match is_written {
            true => self.written(owner, rules, |table| *table = changed),
            false => self.clone(),
        };
        if let Some(reply) = reply
            && world.owners.len() == self.owners.len()
        {
            world = world.sent(1 - server, about, reply);
        }
        Some(world)
    }

    fn learned_complete(&self, owner: usize, about: (PartitionId, Attempt)) -> Option<Self> {
        let mut world = self.clone();
        let running = world.owners[owner].running.as_mut()?;
        if (running.child, running.attempt) != about {
            return None;
        }
        running.is_complete = true;
        Some(world)
    }

    fn answer(&self, owner: usize, about: (PartitionId, Attempt), rules: Rules) -> Answer {
        let Owner { epoch, running, .. } = self.owners[owner];
        let epoch = if rules.has(Rule::ReplacedOwnersDoNotKnow) { epoch } else { u64::MAX };
        let running = running.map(|running| running.attempt);
        let answer = self.view(owner).holdings.answer(about.0, about.1, epoch, running);
        match (answer, rules.has(Rule::GivenUntilConfirmed)) {
            (Answer::Given, false) => Answer::Ended,
            _ => answer,
        }
    }

    /// Returns the property that does not hold.
    pub fn wrong(&self) -> Option<&'static str> {
        let [one, other] = &self.tables;
        if one.held() & other.held() != 0 {
            return Some(HELD_TWICE);
        }
        let given = |holding| matches!(holding, Holding::Given { is_confirmed: false, .. });
        for name in (0..NAMES).map(|name| 1u8 << name) {
            let is_there = self.acknowledged & name != 0;
            let holder = self.tables.iter().find(|table| table.held() & name != 0);
            // Between giving and holding, the offer counts.
            let offered = |table: &&Table| {
                let complete = |holding| {
                    matches!(holding, Holding::Offered { state: OfferState::Complete, .. })
                };
                table.recorded(complete) & name != 0
            };
            let answers = holder.or_else(|| {
                let is_given = self.tables.iter().any(|table| table.recorded(given) & name != 0);
                self.tables.iter().find(offered).filter(|_| is_given)
            });
            match answers {
                None => return Some(HELD_NOWHERE),
                Some(table) if (table.names & name != 0) != is_there => {
                    return Some(if is_there { LOST } else { CAME_BACK });
                }
                Some(_) => {}
            }
        }
        let is_accounted = |table: &Table| {
            let recorded = table.recorded(|holding| !matches!(holding, Holding::Held { .. }));
            table.names & !table.held() & !recorded == 0
        };
        (!self.tables.iter().all(is_accounted)).then_some(STRAY)
    }

    /// Returns whether both tables come to rest once new processes own them, all messages arrive
    /// and nothing is tried any more.
    pub fn settles(&self, rules: Rules) -> bool {
        let mut world = self.opened_anew();
        for _ in 0..64 {
            let before = world.clone();
            for owner in 0..world.owners.len() {
                if let Some(after) = world.removal(owner, rules) {
                    world = after;
                }
                if let Some(after) = world.ask(owner, rules).pop().filter(|_| rules.has(Rule::Ask))
                {
                    world = after;
                }
                let repeated = world.repeat(owner).pop();
                if let Some(after) = repeated.filter(|_| rules.has(Rule::RepeatWhatIsGiven)) {
                    world = after;
                }
            }
            while let Some(sent) = world.messages.pop_first() {
                let owner = world.owners.iter().position(|owner| owner.server == sent.0);
                let after = owner.and_then(|owner| world.receive(owner, sent, rules));
                world = after.unwrap_or(world);
                // It arrived, and is not repeated.
                world.messages.remove(&sent);
            }
            if world == before {
                break;
            }
        }
        let is_held = |(_, holding)| matches!(holding, Holding::Held { .. });
        let is_at_rest = world.tables.iter().all(|table| table.holdings.records().all(is_held));
        is_at_rest && world.wrong().is_none()
    }

    fn opened_anew(&self) -> Self {
        let mut world = World { budget: Budget { opens: [1; 2], ..self.budget }, ..self.clone() };
        world = world.opened(0).opened(1);
        world.owners.drain(..world.owners.len() - 2);
        // All that was on the way is lost.
        world.messages.clear();
        world
    }
}

/// Has a receiver decide about an attempt that begins, without the rule that is left out.
fn begin(holdings: &mut Holdings, (child, attempt): (PartitionId, Attempt), rules: Rules) {
    let record = holdings.record(child);
    let is_older = |other: Attempt| other < attempt;
    let accepts = match record {
        Some(Holding::Held { .. }) => !rules.has(Rule::HeldIsNotOffered),
        Some(Holding::Offered { attempt: other, .. }) if is_older(other) => {
            !rules.has(Rule::OldEntriesGoFirst)
        }
        Some(Holding::Offered { attempt: other, .. }) if other != attempt => {
            !rules.has(Rule::NewerAttemptStays)
        }
        None => !rules.has(Rule::CopiesGoFirst),
        _ => false,
    };
    if accepts {
        let offer = Holding::Offered { attempt, state: OfferState::Incomplete };
        let others = holdings.records().filter(|(other, _)| *other != child);
        *holdings = others.chain([(child, offer)]).collect();
        return;
    }
    let _: Begun = holdings.begin(child, attempt);
}

pub const HELD_TWICE: &str = "two servers hold a name";
pub const HELD_NOWHERE: &str = "no server holds a name, or will";
pub const LOST: &str = "a name is lost";
pub const CAME_BACK: &str = "a name came back";
pub const STRAY: &str = "an entry is in no recorded partition";
pub const RESTLESS: &str = "servers that are left alone do not come to rest";
