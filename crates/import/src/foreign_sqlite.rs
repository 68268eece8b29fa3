//! Opening SQLite databases of strangers: read-only, as ones that nobody writes, with nothing run
//! that they bring along.

use crate::fault::{Checked, Fault};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest value of a foreign database, in bytes. A sparse file of a few blocks could hold one of
/// a gigabyte.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Opens a database; no file is made beside it. An error if changes in files beside it are not in
/// it yet. Blocks.
pub fn open_foreign_sqlite(path: &Path) -> Checked<Connection> {
    for end in ["-wal", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        if Path::new(&beside).metadata().is_ok_and(|metadata| metadata.len() > 0) {
            let beside = Path::new(&beside).display();
            return Err(Fault::form(format!(
                "changes in {beside} are not in it yet; close the database where it is open"
            )));
        }
    }
    // Opening a pipe takes for ever.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(Fault::form("it is not a regular file"));
    }
    let escaped: String =
        path.as_os_str().as_bytes().iter().map(|byte| format!("%{byte:02x}")).collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let uri = format!("file:{escaped}?mode=ro&immutable=1");
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    Ok(connection)
}

/// Returns the plain tables of a database, by name: views and virtual tables run what the database
/// says.
pub fn plain_sqlite_tables(connection: &Connection) -> Checked<Vec<String>> {
    let query = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' \
                 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
    let names = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
        connection.prepare(query)?.query_map((), |row| row.get(0))?.collect()
    };
    Ok(names(connection)?)
}
