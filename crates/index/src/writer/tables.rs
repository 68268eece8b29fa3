//! Adding tables to an index, and the rows of derived ones.
//!
//! A derived table is computed class by class: [`Writer::view`] shows what one class holds and
//! nothing else, and [`Writer::add_rows`] puts what was made of it into that class's directory. So
//! whoever may read a row may read all that it was computed from. It is published with all else, as
//! one generation.

use super::{Held, Writer};
use crate::error::{Error, Result};
use crate::own_tables::{
    TableColumn, TableKind, TableRecord, TableWriter, WrittenRows, table_schema,
};
use crate::reader::Index;
use crate::source_id::SourceId;
use canopy_model::ClassId;

impl Writer {
    /// Returns the tables that were added, by name.
    pub fn tables(&self) -> &[TableRecord] {
        &self.tables
    }

    /// Returns whether any of the tables is derived.
    pub fn has_derived_tables(&self) -> bool {
        self.tables.iter().any(|table| matches!(table.kind, TableKind::Derived { .. }))
    }

    /// Returns the query of a derived table.
    pub fn table_query(&self, name: &str) -> Option<&str> {
        self.queries.get(name).map(String::as_str)
    }

    /// Adds a table; `query` is that of a derived one.
    pub fn add_table(&mut self, record: TableRecord, query: Option<String>) -> Result<()> {
        if self.tables.iter().any(|table| table.name == record.name) {
            return Err(Error::TableTaken(record.name));
        }
        if let Some(query) = query {
            self.queries.insert(record.name.clone(), query);
        }
        let at = self.tables.partition_point(|table| table.name < record.name);
        self.tables.insert(at, record);
        Ok(())
    }

    /// Removes a table. The file of an attached one stays.
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        let known = self.tables.iter().position(|table| table.name == name);
        let at = known.ok_or_else(|| Error::NoTable(name.to_owned()))?;
        self.remove_rows(Some(name));
        self.tables.remove(at);
        self.queries.remove(name);
        Ok(())
    }

    /// Replaces what is known of a table. The rows that it had go away.
    pub fn replace_table(&mut self, record: TableRecord) -> Result<()> {
        self.remove_rows(Some(&record.name));
        let known = self.tables.iter_mut().find(|table| table.name == record.name);
        let known = known.ok_or_else(|| Error::NoTable(record.name.clone()))?;
        *known = record;
        Ok(())
    }

    /// Takes away the rows of all derived tables, which a change of the sources makes wrong.
    pub fn clear_derived(&mut self) {
        self.remove_rows(None);
        for table in &mut self.tables {
            if let TableKind::Derived { fresh, .. } = &mut table.kind {
                *fresh = false;
            }
        }
    }

    /// Returns the classes of which a derived table has to be computed anew, and takes away the rows
    /// that it has of them: those that have changed since the index was opened, if the table was
    /// fresh and has the same columns still, else all.
    pub fn classes_to_compute(
        &mut self,
        name: &str,
        columns: &[TableColumn],
    ) -> Result<Vec<ClassId>> {
        let held = self.held_classes();
        let known = self.tables.iter().find(|table| table.name == name);
        let is_fresh = known.is_some_and(|table| match &table.kind {
            TableKind::Derived { columns: known, fresh } => *fresh && known == columns,
            TableKind::Attached { .. } => false,
        });
        if !is_fresh {
            let kind = TableKind::Derived { columns: columns.to_vec(), fresh: true };
            self.replace_table(TableRecord { name: name.to_owned(), kind })?;
            return Ok(held);
        }
        let touched: Vec<ClassId> =
            held.into_iter().filter(|class| self.changed.contains(class)).collect();
        for class in &touched {
            if let Some(held) = self.classes.get_mut(class) {
                held.manifest.tables.retain(|file| file.table != name);
            }
        }
        Ok(touched)
    }

    /// Notes that all derived tables have been computed from the present rows of the classes.
    pub fn derived_are_computed(&mut self) {
        self.derived_is_stale = false;
    }

    fn remove_rows(&mut self, table: Option<&str>) {
        for (&class, Held { manifest, .. }) in &mut self.classes {
            let before = manifest.tables.len();
            manifest.tables.retain(|file| table.is_some_and(|name| file.table != name));
            if manifest.tables.len() != before {
                self.changed.insert(class);
            }
        }
    }

    /// Returns the classes that hold anything, what was written since the last publication among
    /// it.
    pub fn held_classes(&mut self) -> Vec<ClassId> {
        self.settle();
        self.classes.keys().copied().collect()
    }

    /// Returns what every reader of a class sees; of no class, nothing.
    pub fn view(&self, class: Option<ClassId>) -> Index {
        let empty = Default::default();
        let held = class.and_then(|class| self.classes.get(&class)).map(|held| &held.manifest);
        let manifest = held.unwrap_or(&empty);
        let directory = class.map(|class| self.dirs.directory(&self.table, class));
        let used = |id: SourceId| {
            manifest.sources.iter().any(|source| source.id == id)
                || manifest.shards.pages.iter().any(|page| page.extent.source == id)
                || manifest.shards.loose.iter().any(|shard| shard.source == id)
        };
        let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
        Index::of_class(
            directory.as_ref().unwrap_or(&self.path),
            manifest,
            sources.filter(|source| used(source.id)).cloned().collect(),
            self.tables.clone(),
        )
    }

    /// Returns a writer for the rows that a class has of a derived table.
    pub fn table_writer(&self, class: ClassId, name: &str) -> Result<TableWriter> {
        let known = self.tables.iter().find(|table| table.name == name);
        let Some(TableRecord { kind: TableKind::Derived { columns, .. }, .. }) = known else {
            return Err(Error::NoTable(name.to_owned()));
        };
        let directory = self.dirs.ensure(&self.table, class)?;
        let schema = table_schema(columns);
        TableWriter::create(&self.options.disk, &directory, name, self.generation, schema)
    }

    /// Adds the rows that were written to what a class holds. Not durable before publication.
    pub fn add_rows(&mut self, class: ClassId, rows: WrittenRows) {
        self.changed.insert(class);
        self.classes.entry(class).or_default().manifest.tables.push(rows.0);
    }
}
