//! Reads of every kind, compared with what the oracle expects.

use crate::model::{Map, check_equal, histories_in, read_some, within};
use crate::oracle::Oracle;
use crate::process::Process;
use canopy_store::{
    Direction, Key, KeyRange, KeyRef, Reader, Result, Scan, Table, TableId, TableSnapshot,
};

/// What can be read: a table that is open, a snapshot of it, a checkpoint.
pub trait TableReads {
    fn range(&self) -> KeyRange;
    fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>>;
    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>>;
    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan>;
}

/// Something to read.
pub enum Question {
    /// Records of a range, up to a count of them.
    Scan(KeyRange, Direction, usize),
    /// Keys, one after the other or at once.
    Keys(Vec<Key>, bool),
}

impl Question {
    fn ask(&self, view: &impl TableReads) -> Result<Map> {
        let (keys, at_once) = match self {
            Question::Scan(range, direction, count) => {
                return read_some(view.scan(range, *direction)?, *count, *direction);
            }
            Question::Keys(keys, at_once) => (keys, at_once),
        };
        let values = match at_once {
            true => view.get_many(keys)?,
            false => keys.iter().map(|key| view.get(key.as_ref())).collect::<Result<_>>()?,
        };
        assert_eq!(values.len(), keys.len());
        let found = keys.iter().cloned().zip(values);
        Ok(found.filter_map(|(key, value)| Some((key, value?))).collect())
    }

    /// Returns the answer, given all records.
    fn answer(&self, all: Map) -> Map {
        match self {
            Question::Scan(range, Direction::Forward, count) => {
                within(all, range).into_iter().take(*count).collect()
            }
            Question::Scan(range, Direction::Backward, count) => {
                within(all, range).into_iter().rev().take(*count).collect()
            }
            Question::Keys(keys, _) => {
                all.into_iter().filter(|(key, _)| keys.contains(key)).collect()
            }
        }
    }
}

/// Returns the records that tell a view's history, and the range that it has.
fn histories(view: &impl TableReads) -> Result<(Map, KeyRange)> {
    let range = view.range();
    let keys = histories_in(&range);
    Ok((Question::Keys(keys, true).ask(view)?, range))
}

/// Asks a question of a view, and checks the answer. Returns the records that tell the history.
pub fn check(
    oracle: &Oracle,
    id: TableId,
    view: &impl TableReads,
    question: &Question,
) -> Result<(Map, KeyRange)> {
    loop {
        let before = histories(view)?;
        let found = question.ask(view)?;
        // A table that found an SSTable missing has taken over what others did.
        if histories(view)? == before {
            let (histories, range) = &before;
            let expected = question.answer(oracle.expected(id, histories, range));
            check_equal(&found, &expected, "a read");
            return Ok(before);
        }
    }
}

/// A snapshot, and the range that the table had.
pub struct SnapshotView(pub TableSnapshot, pub KeyRange);

impl SnapshotView {
    pub fn of(table: &Table) -> Self {
        SnapshotView(table.snapshot(), table.range())
    }
}

impl TableReads for SnapshotView {
    fn range(&self) -> KeyRange {
        self.1.clone()
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.get_many(keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        self.0.scan(range, direction)
    }
}

impl TableReads for Table {
    fn range(&self) -> KeyRange {
        self.manifest().state.range.clone()
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        Table::get(self, key)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        Table::get_many(self, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        Table::scan(self, range, direction)
    }
}

impl TableReads for Reader {
    fn range(&self) -> KeyRange {
        self.manifest().state.range.clone()
    }

    fn get(&self, key: KeyRef<'_>) -> Result<Option<Vec<u8>>> {
        Reader::get(self, key)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        Reader::get_many(self, keys)
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Scan> {
        Reader::scan(self, range, direction)
    }
}

impl Process {
    /// Returns a direction, either one.
    pub fn direction(&self) -> Direction {
        if self.below(2) == 0 { Direction::Forward } else { Direction::Backward }
    }
}
