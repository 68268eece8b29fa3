//! `canopy table`: its arguments. `canopy-sql` carries it out.

use clap::Subcommand;
use std::path::PathBuf;

/// Add tables of your own to those of 'canopy sql'
///
/// Only who may write the index may add, derive, refresh and drop them.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Attach a file; each user who may read it can query it
    ///
    /// The index keeps the name of the table and the path of the file, which everybody may know. A
    /// query that names the table reads the file as it is then, with the rights of the asking
    /// user.
    ///
    /// Example: canopy table add projects /srv/site/projects.csv
    Add {
        /// Name of the table in SQL
        name: String,
        /// A CSV file with a header, a Parquet file or an SQLite database
        file: PathBuf,
        /// Format of FILE [default: by its name]
        #[arg(long, value_enum)]
        format: Option<FormatName>,
        /// The table of an SQLite database [default: the only one]
        #[arg(long, value_name = "TABLE")]
        sqlite_table: Option<String>,
    },
    /// Store the rows of a query in the index, split by access class
    ///
    /// The query runs once for each access class, over the entries of that class alone. Each user
    /// sees the rows of the classes that the kernel lets that user into, so no row was computed
    /// from entries that the user may not see. Sums and counts are per class; add them up again.
    /// The rows are computed anew whenever a source is indexed.
    ///
    /// Example: canopy table derive big "SELECT path, uid, size, mtime FROM entries WHERE size >
    /// 1000000000"
    Derive {
        /// Name of the table in SQL
        name: String,
        /// A SELECT over the index's own tables but 'trees'
        query: String,
        /// Threads that read [default: one per core]
        #[arg(long, value_name = "N")]
        threads: Option<usize>,
    },
    /// Compute derived tables anew
    ///
    /// Example: canopy table refresh big
    Refresh {
        /// The table [default: all derived tables]
        name: Option<String>,
        /// Threads that read [default: one per core]
        #[arg(long, value_name = "N")]
        threads: Option<usize>,
    },
    /// Remove a table from the index; the file of an attached one stays
    ///
    /// Example: canopy table drop projects
    Drop {
        /// The table
        name: String,
    },
    /// List the tables that were added
    ///
    /// Example: canopy table list --json
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FormatName {
    Csv,
    Parquet,
    Sqlite,
}
