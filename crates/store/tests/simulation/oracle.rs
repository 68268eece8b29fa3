//! What must be in each table: a map for every moment of its history (`model.rs`).

use crate::model::{
    Map, Step, apply, batch_of, check_between, check_equal, histories_in, range_of, within,
};
use canopy_store::{Batch, Key, KeyRange, TableId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// All tables' histories.
#[derive(Default)]
pub struct Oracle(Mutex<Known>);

#[derive(Default)]
struct Known {
    events: Vec<Event>,
    writers: Vec<Writer>,
    tables: BTreeMap<TableId, Table>,
}

/// A batch or an ingestion; a table's history has its number.
struct Event {
    table: TableId,
    steps: Vec<Step>,
    is_batch: bool,
}

/// Somebody who opened a table for writing, and what it wrote.
struct Writer {
    table: TableId,
    /// The batches that it found, and those that it wrote.
    batches: Vec<u16>,
    /// So many of them were acknowledged as durable.
    durable: usize,
    /// So many of them the next writer found.
    left: Option<usize>,
}

#[derive(Clone)]
pub struct Table {
    /// What it began with.
    base: Map,
    /// Keys that may have been removed from it, or from what it began with.
    removed: Vec<KeyRange>,
    /// What was acknowledged as being in its SSTables.
    committed: BTreeSet<u16>,
    /// The range that it was acknowledged to be restricted to.
    wide: KeyRange,
    /// The range with what was only tried.
    narrow: KeyRange,
    /// The record of its history that is never taken away.
    pub home: Key,
    /// Its latest writer, if there was one.
    writer: Option<usize>,
    epoch: u64,
    pub is_deleted: bool,
}

impl Table {
    fn new(id: TableId, base: Map, range: KeyRange, removed: Vec<KeyRange>) -> Self {
        let all = histories_in(&range);
        Table {
            base,
            removed,
            committed: BTreeSet::new(),
            home: all[id.0 as usize % all.len()].clone(),
            wide: range.clone(),
            narrow: range,
            writer: None,
            epoch: 0,
            is_deleted: false,
        }
    }

    /// Returns the keys that it has for certain.
    pub fn range(&self) -> &KeyRange {
        &self.narrow
    }
}

/// What a reader saw: of which table, when it began, and the range that the table had then.
pub struct Seen<'a> {
    pub id: TableId,
    pub before: &'a Table,
    pub range: &'a KeyRange,
}

impl Known {
    /// Returns a table's history as the records in `range` tell it, which must be all the same.
    fn history(&self, id: TableId, map: &Map, range: &KeyRange) -> Vec<u16> {
        let table = &self.tables[&id];
        let mut all = histories_in(range).into_iter().map(|key| {
            let [value, base] =
                [map, &table.base].map(|map| map.get(&key).map_or(&[][..], Vec::as_slice));
            let own = value.strip_prefix(base);
            let own = own.unwrap_or_else(|| panic!("{key:?} has lost what the table began with"));
            let numbers =
                own.chunks(2).map(|number| u16::from_le_bytes(number.try_into().unwrap()));
            numbers.collect::<Vec<u16>>()
        });
        let history = all.next().expect("a range with a record that is the history");
        assert!(all.all(|other| other == history), "a batch is there in parts");
        let distinct = BTreeSet::from_iter(&history);
        assert_eq!(distinct.len(), history.len(), "something happened twice: {history:?}");
        let is_own = |number: &u16| self.events[usize::from(*number)].table == id;
        assert!(history.iter().all(is_own), "a history of another table");
        history
    }

    /// Returns a table's records after a history.
    fn at(&self, id: TableId, history: &[u16], range: &KeyRange) -> Map {
        let mut map = self.tables[&id].base.clone();
        let events = history.iter().map(|number| &self.events[usize::from(*number)]);
        events.flat_map(|event| &event.steps).for_each(|step| apply(&mut map, step));
        within(map, range)
    }

    fn batches_of(&self, history: &[u16]) -> Vec<u16> {
        let is_batch = |number: &u16| self.events[usize::from(*number)].is_batch;
        history.iter().copied().filter(is_batch).collect()
    }

    /// Checks a history that somebody read who began when the table was `before`.
    fn check_moment(&self, id: TableId, history: &[u16], before: &Table) {
        let batches = self.batches_of(history);
        let all = self.tables[&id].writer.map_or(&[][..], |at| &self.writers[at].batches);
        assert!(all.starts_with(&batches), "{batches:?} is there, of {all:?}");
        let missing = before.committed.iter().find(|number| !history.contains(number));
        assert_eq!(missing, None, "was in SSTables, and is not in {history:?}");
    }

    fn event(
        &mut self,
        id: TableId,
        range: &KeyRange,
        mut steps: Vec<Step>,
        is_batch: bool,
    ) -> u16 {
        let number = self.events.len() as u16;
        let own = number.to_le_bytes().to_vec();
        steps.extend(histories_in(range).into_iter().map(|key| Step::Merge(key, own.clone())));
        if let Some(table) = self.tables.get_mut(&id) {
            let removes = |step: &&Step| matches!(step, Step::Delete(_) | Step::DeleteRange(_));
            table.removed.extend(steps.iter().filter(removes).map(range_of));
        }
        self.events.push(Event { table: id, steps, is_batch });
        number
    }
}

impl Oracle {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap()
    }

    pub fn add_table(&self, id: TableId, base: Map, range: KeyRange, removed: Vec<KeyRange>) {
        self.known().tables.insert(id, Table::new(id, base, range, removed));
    }

    pub fn tables(&self) -> Vec<(TableId, Table)> {
        self.known().tables.iter().map(|(id, table)| (*id, table.clone())).collect()
    }

    pub fn table(&self, id: TableId) -> Table {
        self.known().tables[&id].clone()
    }

    pub fn mark_deleted(&self, id: TableId) {
        if let Some(table) = self.known().tables.get_mut(&id) {
            table.is_deleted = true;
        }
    }

    pub fn is_deleted(&self, id: TableId) -> bool {
        self.known().tables.get(&id).is_none_or(|table| table.is_deleted)
    }

    /// Returns the ranges of a table that may have had a key that is not there any more.
    pub fn removed(&self, id: TableId) -> Vec<KeyRange> {
        self.known().tables[&id].removed.clone()
    }

    /// A table is about to be restricted.
    pub fn restricting(&self, id: TableId, range: &KeyRange) {
        if let Some(table) = self.known().tables.get_mut(&id) {
            table.narrow = table.narrow.intersection(range);
        }
    }

    /// It was.
    pub fn restricted(&self, id: TableId, range: &KeyRange) {
        if let Some(table) = self.known().tables.get_mut(&id) {
            table.wide = table.wide.intersection(range);
        }
    }

    /// Returns what a table must have, all of it, given the records of its history.
    pub fn expected(&self, id: TableId, histories: &Map, range: &KeyRange) -> Map {
        let known = self.known();
        known.at(id, &known.history(id, histories, range), range)
    }

    /// Checks that a range is one that the table may have.
    pub fn check_range(&self, seen: &Seen<'_>) {
        let narrow = &self.known().tables[&seen.id].narrow;
        assert!(seen.range.covers(narrow), "{:?} went too far", seen.range);
        assert!(seen.before.wide.covers(seen.range), "{:?} is too much", seen.range);
    }

    /// Checks that all of a table's records are what it had in SSTables at some moment since
    /// `before`.
    pub fn check_moment(&self, seen: &Seen<'_>, map: &Map, what: &str) {
        self.check_range(seen);
        let known = self.known();
        let history = known.history(seen.id, map, seen.range);
        known.check_moment(seen.id, &history, seen.before);
        check_equal(map, &known.at(seen.id, &history, seen.range), what);
    }

    /// Checks that a clone of `range` of a table has what the table had at some moment since
    /// `before`. Somebody may just have restricted the table.
    pub fn check_clone(&self, id: TableId, before: &Table, map: &Map, range: &KeyRange) {
        let known = self.known();
        let narrow = known.tables[&id].narrow.intersection(range);
        if histories_in(&narrow).is_empty() {
            // Somebody has taken all of it away: what the clone got of it is not known.
            return;
        }
        let history = known.history(id, map, &narrow);
        known.check_moment(id, &history, before);
        let expected = known.at(id, &history, &before.wide.intersection(range));
        check_between(map, &expected, &narrow, "a clone");
    }

    /// Checks what the new writer of a table found, and begins what it writes; returns its number.
    /// If another opened the table since, nothing that it writes may be acknowledged.
    pub fn opened(&self, seen: &Seen<'_>, epoch: u64, map: &Map) -> usize {
        self.check_moment(seen, map, "what a new writer found");
        let mut known = self.known();
        let batches = known.batches_of(&known.history(seen.id, map, seen.range));
        let found = batches.len();
        let mut writer = Writer { table: seen.id, batches, durable: found, left: Some(found) };
        let number = known.writers.len();
        let Table { writer: before, epoch: epoch_before, .. } = known.tables[&seen.id];
        if epoch > epoch_before {
            if let Some(before) = before {
                let before = &mut known.writers[before];
                assert!(
                    found >= before.durable,
                    "{} batches were acknowledged as durable, {found} are there",
                    before.durable
                );
                before.left = Some(found);
            }
            writer.left = None;
            if let Some(table) = known.tables.get_mut(&seen.id) {
                (table.writer, table.epoch) = (Some(number), epoch);
            }
        }
        known.writers.push(writer);
        number
    }

    /// Adds a batch that is about to be written to a table of this range, and returns it.
    pub fn begin_batch(&self, writer: usize, range: &KeyRange, steps: Vec<Step>) -> Batch {
        let mut known = self.known();
        let id = known.writers[writer].table;
        let number = known.event(id, range, steps, true);
        known.writers[writer].batches.push(number);
        batch_of(&known.events[usize::from(number)].steps)
    }

    /// The batch that the writer began last was deferred: nobody may ever see it.
    pub fn withdraw_batch(&self, writer: usize) {
        self.known().writers[writer].batches.pop();
    }

    /// Adds an ingestion, and returns its number and all that it adds.
    pub fn begin_ingestion(
        &self,
        id: TableId,
        range: &KeyRange,
        steps: Vec<Step>,
    ) -> (u16, Vec<Step>) {
        let mut known = self.known();
        let number = known.event(id, range, steps, false);
        (number, known.events[usize::from(number)].steps.clone())
    }

    pub fn ingested(&self, id: TableId, number: u16) {
        if let Some(table) = self.known().tables.get_mut(&id) {
            table.committed.insert(number);
        }
    }

    /// Everything that the writer wrote was acknowledged as durable.
    pub fn acknowledged(&self, writer: usize) {
        let mut known = self.known();
        let of = &mut known.writers[writer];
        of.durable = of.batches.len();
        if let Some(left) = of.left {
            assert!(
                of.durable <= left,
                "a batch was acknowledged, {}, after another had opened the table with {left}",
                of.durable
            );
        }
    }

    /// Everything that the writer wrote was acknowledged as being in SSTables.
    pub fn flushed(&self, writer: usize) {
        self.acknowledged(writer);
        let mut known = self.known();
        let (id, batches) = (known.writers[writer].table, known.writers[writer].batches.clone());
        if let Some(table) = known.tables.get_mut(&id) {
            table.committed.extend(batches);
        }
    }

    /// Checks that a table that is open has all that was written to it, given the records of its
    /// history.
    pub fn check_own(&self, writer: usize, histories: &Map, range: &KeyRange) {
        let known = self.known();
        let of = &known.writers[writer];
        let history = known.history(of.table, histories, range);
        assert_eq!(known.batches_of(&history), of.batches, "of a writer's own table");
    }
}
