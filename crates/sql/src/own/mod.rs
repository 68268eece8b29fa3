//! Tables that the administrator adds: attached files and derived tables.
//!
//! | module | |
//! | --- | --- |
//! | `attached` | a file, opened by the asking user when a query names it |
//! | `csv`, `parquet`, `sqlite` | its formats |
//! | `derived` | rows that the index holds, class by class |
//! | `derive` | making these |
//! | `error` | errors of all of them |
//!
//! [`OwnTables`] stands in front of the index's own tables and looks names up that those do not
//! have: a query that names no added table opens and reads nothing for them.

mod attached;
mod csv;
mod derive;
mod derived;
mod error;
mod parquet;
mod sqlite;

pub use attached::{AttachedFormat, attach};
pub use derive::{DerivedRows, check_name, derive, follow_all, refresh, refresh_all};
pub use error::{FileError, TableError};

use async_trait::async_trait;
use attached::AttachedTable;
use canopy_index::{Index, TableKind};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use datafusion::prelude::SessionContext;
use derived::DerivedTable;
use std::sync::Arc;

/// Makes the tables known that were added to the index.
pub(super) fn register(context: &SessionContext, index: &Arc<Index>) {
    if index.tables().is_empty() {
        return;
    }
    let options = context.state().config_options().catalog.clone();
    let Some(catalog) = context.catalog(&options.default_catalog) else { return };
    if let Some(built_in) = catalog.schema(&options.default_schema) {
        let own = OwnTables { built_in, index: index.clone() };
        catalog
            .register_schema(&options.default_schema, Arc::new(own))
            .expect("a schema can be replaced");
    }
}

/// The tables of the index, and behind them those that were added.
#[derive(Debug)]
struct OwnTables {
    built_in: Arc<dyn SchemaProvider>,
    index: Arc<Index>,
}

#[async_trait]
impl SchemaProvider for OwnTables {
    /// Without attached tables, since a query for all columns of all tables would open them.
    fn table_names(&self) -> Vec<String> {
        let derived = self.index.tables().iter().filter(|table| match table.kind {
            TableKind::Attached { .. } => false,
            TableKind::Derived { fresh, .. } => fresh,
        });
        let derived = derived.map(|table| table.name.clone());
        self.built_in.table_names().into_iter().chain(derived).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.built_in.table(name).await? {
            return Ok(Some(table));
        }
        let Some(record) = self.index.tables().iter().find(|table| table.name == name) else {
            return Ok(None);
        };
        if self.index.is_one_class() {
            return Err(TableError::Added.of(name));
        }
        Ok(Some(match &record.kind {
            TableKind::Attached { file, format } => {
                Arc::new(AttachedTable::open(name, file, format)?)
            }
            TableKind::Derived { fresh: false, .. } => return Err(TableError::Stale.of(name)),
            TableKind::Derived { columns, .. } => {
                Arc::new(DerivedTable::new(self.index.clone(), name, columns))
            }
        }))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        match self.index.tables().iter().any(|table| table.name == name) {
            true => Ok(Some(TableType::Base)),
            false => self.built_in.table_type(name).await,
        }
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.built_in.register_table(name, table)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.built_in.table_exist(name)
            || self.index.tables().iter().any(|table| table.name == name)
    }
}
