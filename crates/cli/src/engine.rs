//! Functions that only some of the programs have.

use crate::commands;
use crate::invocation::Invocation;
use crate::outcome::{KindOf, Outcome};
use canopy_ingest::{DerivedTables, Namespaces};
use std::path::Path;

/// The functions that need the SQL engine, which only `canopy-sql` has.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Carries out `canopy sql`.
    pub sql: fn(&Invocation, commands::sql::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy table`.
    pub table: fn(&Invocation, commands::table::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy import`.
    pub import: fn(&Invocation, commands::import::Arguments) -> anyhow::Result<Outcome>,
    /// Computes derived tables anew.
    pub derived: &'static dyn DerivedTables,
    /// Returns the kind of an error of the SQL engine.
    pub kind_of: KindOf,
    /// Carries out `canopy index` for scans that several workers share.
    pub share:
        fn(&Invocation, &Path, &commands::index::Arguments, &Engine) -> anyhow::Result<Outcome>,
}

/// The functions that `canopy-ns` has.
#[derive(Clone, Copy)]
pub struct Mounts<'a> {
    /// Carries out `canopy ns`.
    pub namespace: fn(commands::ns::Arguments) -> anyhow::Result<Outcome>,
    /// Returns the kind of an error of a namespace.
    pub kind_of: KindOf,
    /// Opens namespaces that are indexed.
    pub namespaces: &'a dyn Namespaces,
    /// Carries out `canopy mount`.
    pub mount: fn(&Invocation, commands::mount::Arguments) -> anyhow::Result<Outcome>,
    /// Carries out `canopy unmount`.
    pub unmount: fn(commands::mount::Unmount) -> anyhow::Result<Outcome>,
}
