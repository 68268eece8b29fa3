//! `canopy sql`: its arguments. `canopy-sql` carries it out.

use crate::options::ReadOptions;
use std::path::PathBuf;

/// Ask the index in SQL
///
/// Tables: entries (all but directories), directories, summaries (statistics of each directory's
/// entries), trees (statistics of everything below each directory), both also as _by_user and
/// _by_group, usage (by directory, owner and group), xattrs (values of extended attributes), acls;
/// 'DESCRIBE entries' lists columns, 'canopy table list' the tables that were added.
/// Functions: user_name(uid), group_name(gid), human_size(bytes), extension(name), depth(path).
/// Queries for GUFI: its views (pentries, summary, vrpentries, vrsummary, treesummary, ...) and
/// functions are known too.
///
/// Without a query on a terminal there is a prompt ('canopy help prompt'); without one elsewhere,
/// statements are read from standard input.
///
/// Example: canopy sql "SELECT user_name(uid), human_size(sum(size)) FROM entries GROUP BY uid"
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub read: ReadOptions,
    /// Form of the answer
    #[arg(long, value_enum, default_value = "table")]
    pub format: FormatName,
    /// Let 'entries' and 'xattrs' mean GUFI's tables of these names, and read the statement as
    /// GUFI does
    #[arg(long)]
    pub gufi: bool,
    /// Run the statements of FILE, separated by ';' ('-' is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// Statements, separated by ';'; those that would change anything are refused
    pub query: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FormatName {
    Table,
    Csv,
    Json,
    Ndjson,
    Parquet,
}

/// The commands of the prompt: names, arguments, and what they do.
pub const PROMPT_COMMANDS: [(&str, &str, &str); 8] = [
    (".exit", "", "end the prompt"),
    (".help", "", "show this"),
    (".mode", "table|csv|json|ndjson", "set the form of answers"),
    (".output", "[FILE]", "write answers to a new FILE, or to standard output again"),
    (".quit", "", "end the prompt"),
    (".schema", "[TABLE]", "list the columns of a table, or of all"),
    (".tables", "", "list the tables"),
    (".timer", "on|off", "tell how long each statement took"),
];
