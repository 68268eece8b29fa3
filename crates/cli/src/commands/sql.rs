//! `canopy sql`

use crate::options::ReadOptions;
use crate::outcome::Outcome;
use canopy_query::sql::{self, Format};
use std::io::BufWriter;
use std::path::PathBuf;

/// Ask the index in SQL
///
/// Tables: entries (all but directories), directories, summaries (statistics of each directory's entries), trees
/// (statistics of everything below each directory), both also as _by_user and _by_group, usage (by directory,
/// owner and group), xattrs (values of extended attributes), acls; 'DESCRIBE entries' lists columns, 'canopy table
/// list' the tables that were added.
/// Functions: user_name(uid), group_name(gid), human_size(bytes), extension(name), depth(path).
/// Queries for GUFI: its views (pentries, summary, vrpentries, vrsummary, treesummary, ...) and functions are known too.
///
/// Example: canopy sql "SELECT user_name(uid), human_size(sum(size)) FROM entries GROUP BY uid"
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Form of the answer
    #[arg(long, value_enum, default_value = "table")]
    format: FormatName,
    /// Let 'entries' and 'xattrs' mean GUFI's tables of these names, and read the statement as GUFI does
    #[arg(long)]
    gufi: bool,
    /// One statement; those that would change anything are refused
    query: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatName {
    Table,
    Csv,
    Json,
    Ndjson,
    Parquet,
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let format = match arguments.format {
        FormatName::Table => Format::Table,
        FormatName::Csv => Format::Csv,
        FormatName::Json => Format::Json,
        FormatName::Ndjson => Format::NdJson,
        FormatName::Parquet => Format::Parquet,
    };
    let index = arguments.read.open(index)?;
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout());
    sql::run(index, &arguments.query, format, arguments.read.threads(), arguments.gufi, &mut output)?;
    Ok(Outcome::Complete)
}
