//! A writer, who reads what it wrote.

use super::{Site, expect_failure, some_key, some_question, some_steps};
use crate::model::{Step, batch_of, both_ways, check_equal, range_of};
use crate::oracle::Seen;
use crate::process::Process;
use crate::reads::{self, SnapshotView, TableReads};
use canopy_store::{Durability, Error, KeyRange, Result, Table, TableId, compact};
use std::sync::Arc;

/// Opens a table, which may be another writer's, and writes for a while.
pub fn writer(site: &Site, process: &Arc<Process>) {
    let Some(table) = site.some_table(process) else { return };
    expect_failure(process, site, table, write(site, process, table));
}

fn write(site: &Site, process: &Arc<Process>, id: TableId) -> Result<()> {
    let own = Own::open(site, process, id)?;
    for _ in 0..process.below(40) {
        match own.do_something() {
            // It is not known what happened. Whoever goes on is told what cannot go on.
            Err(Error::Storage { .. } | Error::Deferred { .. } | Error::Contended(_))
                if !process.is_dead() => {}
            done => done?,
        }
    }
    Ok(())
}

/// A table that a process has open.
pub struct Own<'a> {
    site: &'a Site,
    process: &'a Arc<Process>,
    pub table: Table,
    writer: usize,
}

impl<'a> Own<'a> {
    /// Opens a table, and checks what is there.
    pub fn open(site: &'a Site, process: &'a Arc<Process>, id: TableId) -> Result<Self> {
        let before = site.oracle.table(id);
        let tables = site.tables(process);
        let table = Table::open(&process.environment(), id, tables, site.options.clone())?;
        let (range, map) = loop {
            let view = SnapshotView::of(&table);
            match both_ways(|direction| view.scan(&KeyRange::all(), direction)) {
                // A collector may remove what a writer that missed others' compactions reads.
                Err(error) if error.is_not_found() => table.refresh()?,
                map => break (view.range(), map?),
            }
        };
        let seen = Seen { id, before: &before, range: &range };
        let writer = site.oracle.opened(&seen, table.epoch(), &map);
        Ok(Own { site, process, table, writer })
    }

    fn do_something(&self) -> Result<()> {
        let Own { site, process, table, .. } = self;
        match process.below(24) {
            0 => self.flush(),
            1 => table.flush_frozen().and_then(|_| table.remove_old_segments()),
            2 => {
                let (environment, tables) = (process.environment(), site.tables(process));
                compact(&environment, table.id(), &tables, &site.options).map(drop)
            }
            3 => table.refresh(),
            4 => {
                table.sync()?;
                site.oracle.acknowledged(self.writer);
                Ok(())
            }
            5 | 6 => self.check_table(),
            7 => self.check_snapshot(),
            8 => self.check_refused(),
            _ => {
                let durability = match process.below(3) {
                    0 => Durability::Durable,
                    _ => Durability::Visible,
                };
                self.write(durability)
            }
        }
    }

    pub fn flush(&self) -> Result<()> {
        self.table.flush()?;
        self.site.oracle.flushed(self.writer);
        Ok(())
    }

    pub fn write(&self, durability: Durability) -> Result<()> {
        let range = self.table.range();
        let steps = some_steps(self.process, &range, 1 + self.process.below(5));
        let batch = self.site.oracle.begin_batch(self.writer, &range, steps);
        let written = match self.process.below(4) {
            0 => self.table.write_freeing(&batch, durability),
            _ => self.table.write(&batch, durability),
        };
        written.inspect_err(|error| {
            if matches!(error, Error::Deferred { .. }) {
                self.site.oracle.withdraw_batch(self.writer);
            }
        })?;
        if durability == Durability::Durable {
            self.site.oracle.acknowledged(self.writer);
        }
        Ok(())
    }

    /// Checks that a key that is not in the table's range is refused.
    fn check_refused(&self) -> Result<()> {
        let range = self.table.range();
        let step = Step::Put(some_key(self.process), Vec::new());
        if range.covers(&range_of(&step)) {
            return Ok(());
        }
        match self.table.write(&batch_of(&[step]), Durability::Visible) {
            Err(Error::Invalid(_)) => Ok(()),
            Ok(()) => panic!("a key was accepted that is not in {range:?}"),
            refused => refused,
        }
    }

    /// Checks that the table has all that was written, and what it answers.
    pub fn check_table(&self) -> Result<()> {
        let (oracle, question) = (&self.site.oracle, some_question(self.process));
        let (histories, range) = loop {
            match reads::check(oracle, self.table.id(), &self.table, &question) {
                Err(error) if error.is_not_found() => self.table.refresh()?,
                checked => break checked?,
            }
        };
        oracle.check_own(self.writer, &histories, &range);
        Ok(())
    }

    /// Checks that a snapshot stays as it was while the table goes on.
    fn check_snapshot(&self) -> Result<()> {
        let view = SnapshotView::of(&self.table);
        let all = || both_ways(|direction| view.scan(&KeyRange::all(), direction));
        let check = || -> Result<()> {
            let before = all()?;
            for _ in 0..self.process.below(4) {
                self.write(Durability::Visible)?;
            }
            let question = some_question(self.process);
            reads::check(&self.site.oracle, self.table.id(), &view, &question)?;
            check_equal(&all()?, &before, "a snapshot");
            Ok(())
        };
        match check() {
            Err(error) if error.is_not_found() => self.table.refresh(),
            checked => checked,
        }
    }
}
