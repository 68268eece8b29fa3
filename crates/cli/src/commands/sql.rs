//! `canopy sql`

use crate::options::ReadOptions;
use crate::outcome::Outcome;
use crate::prompt::{self, Prompt};
use anyhow::Context;
use canopy_query::sql::{Format, Session};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

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
    read: ReadOptions,
    /// Form of the answer
    #[arg(long, value_enum, default_value = "table")]
    format: FormatName,
    /// Let 'entries' and 'xattrs' mean GUFI's tables of these names, and read the statement as
    /// GUFI does
    #[arg(long)]
    gufi: bool,
    /// Run the statements of FILE, separated by ';' ('-' is standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// Statements, separated by ';'; those that would change anything are refused
    query: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatName {
    Table,
    Csv,
    Json,
    Ndjson,
    Parquet,
}

impl FormatName {
    fn format(self) -> Format {
        match self {
            FormatName::Table => Format::Table,
            FormatName::Csv => Format::Csv,
            FormatName::Json => Format::Json,
            FormatName::Ndjson => Format::NdJson,
            FormatName::Parquet => Format::Parquet,
        }
    }
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let given = given(&arguments)?;
    if given.is_none() {
        // Before any thread is there that the signal could go to.
        prompt::hold_interrupts()?;
    }
    let index = arguments.read.open(index)?;
    let session = Session::open(index, arguments.read.threads(), arguments.gufi)?;
    let mut prompt = Prompt::new(session, arguments.format.format());
    match given {
        Some((text, name)) => prompt.script(&text, name.as_deref()).map(drop)?,
        None => prompt.interactive()?,
    }
    Ok(Outcome::Complete)
}

/// The statements and what to call where they are from; `None` if they are to be typed.
fn given(arguments: &Arguments) -> anyhow::Result<Option<(String, Option<String>)>> {
    if let Some(query) = &arguments.query {
        return Ok(Some((query.clone(), None)));
    }
    match arguments.file.as_deref() {
        Some(file) if file != Path::new("-") => {
            let name = file.display().to_string();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            Ok(Some((text, Some(name))))
        }
        None if std::io::stdin().is_terminal() => Ok(None),
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            Ok(Some((text, Some("standard input".to_owned()))))
        }
    }
}
