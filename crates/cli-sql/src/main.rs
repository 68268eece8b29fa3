//! The `canopy-sql` command: `canopy` with the SQL engine inside, which `canopy` runs where a
//! command needs it.

mod import;
mod prompt;
mod sql;
mod table;

use std::process::ExitCode;

/// See `canopy`'s own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let engine = canopy::Engine {
        sql: sql::run,
        table: table::run,
        import: import::run,
        derived: &table::Tables,
        share: canopy::commands::index::workers::run,
        kind_of: |error| error.downcast_ref().map(canopy_sql::Error::kind),
    };
    canopy::main(Some(&engine))
}
