//! Servers with a table each, and the authority with another one; whoever owns the tables or
//! believes to, and the messages on the way. One account has a limit of some files.

use crate::rules::{Rule, Rules};
use canopy_partition::{Bounds, Collected, Grant, Ledger, Round, ServerId, Share};
use std::collections::BTreeSet;

/// The number of the kind of amounts that is limited.
const FILES: usize = 1;

/// Records of a server's table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    share: Share,
    /// Files of the account here.
    used: i64,
    /// Files that have left, less those that have arrived.
    moved: i64,
}

/// A process that opened a server's table. Once another one has, this one reads what it knew, and
/// its writes fail.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owner {
    server: usize,
    stale: Option<Table>,
}

/// A process that opened the authority's table: its ledger has the rounds in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Authority {
    ledger: Ledger,
    is_replaced: bool,
}

/// A message. It may arrive never, late, and again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Collect(usize, Round),
    Collected(usize, Collected),
    Grant(usize, Grant),
}

/// Numbers of events that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Times that a server's table, and the authority's, is opened by another process.
    pub opens: [u8; 2],
    pub collections: u8,
    pub grants: u8,
    pub creates: u8,
    pub removals: u8,
    pub moves: u8,
}

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    limit: i64,
    tables: Vec<Table>,
    owners: Vec<Owner>,
    /// Recorded bases.
    bases: Vec<(ServerId, [i64; 2])>,
    authorities: Vec<Authority>,
    epoch: u64,
    /// Files on the way to each server.
    moving: Vec<i64>,
    messages: BTreeSet<Message>,
    budget: Budget,
}

fn bounds(limit: i64) -> Bounds {
    Bounds { hard: [0, limit], ..Bounds::default() }
}

impl Table {
    fn room(&self) -> i64 {
        self.share.room([0, self.used + self.moved])[FILES]
    }
}

impl World {
    /// Returns a world where the servers have this many files, and no room so far.
    pub fn new(limit: i64, used: &[i64], budget: Budget, rules: Rules) -> Self {
        let mut world = World {
            limit,
            tables: Vec::new(),
            owners: Vec::new(),
            bases: Vec::new(),
            authorities: Vec::new(),
            epoch: 0,
            moving: vec![0; used.len()],
            messages: BTreeSet::new(),
            budget,
        };
        for (server, used) in used.iter().enumerate() {
            let mut table = Table { used: *used, ..Table::default() };
            let round = Round { epoch: 0, number: 1 };
            let collected = table.share.collect(round, [false, true], [0, *used], [0; 2]);
            let id = ServerId(server as u32);
            world.bases.push((id, collected.expect("the first message").base));
            world.tables.push(table);
            world.owners.push(Owner { server, stale: None });
        }
        world.replace_authority(rules);
        world
    }

    /// Another process opens the authority's table.
    fn replace_authority(&mut self, rules: Rules) {
        self.epoch += 1;
        self.authorities.iter_mut().for_each(|one| one.is_replaced = true);
        let epoch = if rules.has(Rule::RoundsHaveEpochs) { self.epoch } else { 1 };
        let ledger = Ledger::new(epoch, bounds(self.limit), [0; 2], self.bases.iter().copied());
        self.authorities.push(Authority { ledger, is_replaced: false });
    }

    /// Another process opens a server's table.
    fn replace_owner(&mut self, server: usize) {
        let table = &self.tables[server];
        for owner in self.owners.iter_mut().filter(|owner| owner.server == server) {
            owner.stale.get_or_insert_with(|| table.clone());
        }
        self.owners.push(Owner { server, stale: None });
    }

    fn view(&self, owner: usize) -> &Table {
        let owner = &self.owners[owner];
        owner.stale.as_ref().unwrap_or(&self.tables[owner.server])
    }

    /// Writes a server's table. Returns whether that succeeded: a process that was replaced ends.
    fn write(&mut self, owner: usize, rules: Rules, table: Table) -> bool {
        let server = self.owners[owner].server;
        match (&mut self.owners[owner].stale, rules.has(Rule::FenceOldOwners)) {
            (None, _) => self.tables[server] = table,
            (Some(_), true) => {
                self.owners.remove(owner);
                return false;
            }
            (Some(stale), false) => {
                stale.clone_from(&table);
                self.tables[server] = table;
            }
        }
        true
    }

    /// Records an authority's bases. Returns whether that succeeded.
    fn record(&mut self, authority: usize, rules: Rules) -> bool {
        if self.authorities[authority].is_replaced && rules.has(Rule::FenceOldOwners) {
            self.authorities.remove(authority);
            return false;
        }
        let bases = self.authorities[authority].ledger.bases().iter();
        self.bases = bases.map(|(server, base)| (*server, *base)).collect();
        true
    }

    /// Adds every world that one step of one process or of a client leads to.
    pub fn step(&self, rules: Rules, next: &mut Vec<World>) {
        let [of_servers, of_authority] = self.budget.opens;
        if of_authority > 0 {
            let mut world = self.clone();
            world.budget.opens[1] -= 1;
            world.replace_authority(rules);
            next.push(world);
        }
        for server in (0..self.tables.len()).filter(|_| of_servers > 0) {
            let mut world = self.clone();
            world.budget.opens[0] -= 1;
            world.replace_owner(server);
            next.push(world);
        }
        for owner in 0..self.owners.len() {
            self.change(owner, rules, next);
            self.moves(owner, rules, next);
        }
        for authority in 0..self.authorities.len() {
            self.ask(authority, rules, next);
        }
        for message in &self.messages {
            self.arrive(*message, rules, next);
        }
    }

    /// A client creates or removes a file.
    fn change(&self, owner: usize, rules: Rules, next: &mut Vec<World>) {
        let table = self.view(owner);
        if self.budget.creates > 0 && table.share.terms.is_open && table.room() > 0 {
            let mut world = self.clone();
            world.budget.creates -= 1;
            world.write(owner, rules, Table { used: table.used + 1, ..table.clone() });
            next.push(world);
        }
        if self.budget.removals > 0 && table.used > 0 {
            let mut world = self.clone();
            world.budget.removals -= 1;
            world.write(owner, rules, Table { used: table.used - 1, ..table.clone() });
            next.push(world);
        }
    }

    /// A file leaves for the next server, or arrives.
    fn moves(&self, owner: usize, rules: Rules, next: &mut Vec<World>) {
        let (table, server) = (self.view(owner), self.owners[owner].server);
        let noted = i64::from(rules.has(Rule::MovesAreNoted));
        if self.budget.moves > 0 && table.used > 0 {
            let mut world = self.clone();
            world.budget.moves -= 1;
            let to = (server + 1) % self.tables.len();
            let (used, moved) = (table.used - 1, table.moved + noted);
            if world.write(owner, rules, Table { used, moved, ..table.clone() }) {
                world.moving[to] += 1;
            }
            next.push(world);
        }
        if self.moving[server] > 0 {
            let mut world = self.clone();
            let (used, moved) = (table.used + 1, table.moved - noted);
            if world.write(owner, rules, Table { used, moved, ..table.clone() }) {
                world.moving[server] -= 1;
            }
            next.push(world);
        }
    }

    /// An authority sends a message.
    fn ask(&self, authority: usize, rules: Rules, next: &mut Vec<World>) {
        for server in 0..self.tables.len() {
            let id = ServerId(server as u32);
            if self.budget.collections > 0 {
                let mut world = self.clone();
                world.budget.collections -= 1;
                let round = world.authorities[authority].ledger.next_round(id);
                world.messages.insert(Message::Collect(server, round));
                next.push(world);
            }
            if self.budget.grants > 0 {
                let mut world = self.clone();
                world.budget.grants -= 1;
                let count = self.tables.len() as u32;
                let ledger = &mut world.authorities[authority].ledger;
                let Some(grant) = ledger.grant(id, [0, 1], count, 1, false) else { continue };
                let is_recorded =
                    !rules.has(Rule::RecordBeforeGrant) || world.record(authority, rules);
                if is_recorded {
                    world.messages.insert(Message::Grant(server, grant));
                }
                next.push(world);
            }
        }
    }

    /// A message arrives at some process.
    fn arrive(&self, message: Message, rules: Rules, next: &mut Vec<World>) {
        match message {
            Message::Collect(server, round) => {
                for owner in self.of(server) {
                    next.extend(self.collect(owner, round, rules));
                }
            }
            Message::Grant(server, grant) => {
                for owner in self.of(server) {
                    let mut table = self.view(owner).clone();
                    let is_new = match rules.has(Rule::RoundsGrow) {
                        true => table.share.take(&grant),
                        false => {
                            let Grant { round, base, terms } = grant;
                            table.share = Share { round, base, terms };
                            true
                        }
                    };
                    if is_new {
                        let mut world = self.clone();
                        world.write(owner, rules, table);
                        next.push(world);
                    }
                }
            }
            Message::Collected(server, collected) => {
                for authority in 0..self.authorities.len() {
                    let mut world = self.clone();
                    let ledger = &mut world.authorities[authority].ledger;
                    let id = ServerId(server as u32);
                    if !rules.has(Rule::LastReplyCounts) {
                        let round = ledger.next_round(id);
                        ledger.collected(id, &Collected { round, ..collected });
                    } else if !ledger.collected(id, &collected) {
                        continue;
                    }
                    world.record(authority, rules);
                    next.push(world);
                }
            }
        }
    }

    fn of(&self, server: usize) -> impl Iterator<Item = usize> {
        (0..self.owners.len()).filter(move |owner| self.owners[*owner].server == server)
    }

    fn collect(&self, owner: usize, round: Round, rules: Rules) -> Option<Self> {
        let server = self.owners[owner].server;
        let mut table = self.view(owner).clone();
        let before = table.clone();
        let used = [0, table.used + table.moved];
        let mut collected = table.share.collect(round, [false, true], used, [0; 2])?;
        if !rules.has(Rule::RepliesAreTrue) {
            collected.base[FILES] = before.share.base[FILES];
        }
        let mut world = self.clone();
        let is_written = table != before && rules.has(Rule::LowerBeforeReply);
        if !is_written || world.write(owner, rules, table) {
            world.messages.insert(Message::Collected(server, collected));
        }
        Some(world)
    }

    /// Returns the number of files that there are.
    fn files(&self) -> i64 {
        self.tables.iter().map(|table| table.used).chain(self.moving.iter().copied()).sum()
    }

    /// Returns the property that does not hold.
    pub fn wrong(&self, rules: Rules) -> Option<&'static str> {
        if self.files() > self.limit {
            return Some(PASSED);
        }
        let noted: i64 = self.tables.iter().map(|table| table.moved).sum();
        let moving: i64 = self.moving.iter().sum();
        (rules.has(Rule::MovesAreNoted) && noted != moving).then_some(UNCOUNTED)
    }

    /// Returns the property that does not hold once new processes own all tables, files have
    /// arrived and the authority has collected from all servers: it can grant exactly what is left.
    pub fn wrong_at_rest(&self, rules: Rules) -> Option<&'static str> {
        let mut world = self.clone();
        world.messages.clear();
        (0..world.tables.len()).for_each(|server| world.replace_owner(server));
        world.owners.retain(|owner| owner.stale.is_none());
        world.replace_authority(rules);
        let mut ledger = world.authorities.pop().expect("an authority").ledger;
        for (server, table) in world.tables.iter_mut().enumerate() {
            let arrived = std::mem::take(&mut world.moving[server]);
            let noted = arrived * i64::from(rules.has(Rule::MovesAreNoted));
            (table.used, table.moved) = (table.used + arrived, table.moved - noted);
            let id = ServerId(server as u32);
            let (round, before) = (ledger.next_round(id), table.share.base);
            let used = [0, table.used + table.moved];
            let collected = table.share.collect(round, [false, true], used, [0; 2]);
            let Some(mut collected) = collected else { return Some(LOST) };
            if !rules.has(Rule::RepliesAreTrue) {
                collected.base = before;
            }
            ledger.collected(id, &collected);
        }
        (ledger.free(1)[FILES] != self.limit - self.files()).then_some(LOST)
    }
}

pub const PASSED: &str = "more files than the limit";
pub const UNCOUNTED: &str = "files on the way are not counted";
pub const LOST: &str = "room is lost";
