//! `canopy table`, carried out.

use anyhow::Context;
use canopy::commands::table::{Arguments, Command, FormatName};
use canopy::{Invocation, Outcome, message, say};
use canopy_index::{Index, TableFormat, TableKind, TableRecord, Writer};
use canopy_ingest::DerivedTables;
use canopy_ingest::edit::edit;
use canopy_model::Generation;
use canopy_read::to_path;
use canopy_sql::{AttachedFormat, DerivedRows};
use canopy_text::counted;
use canopy_text::safe::one_line;
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::List { json } => list(&invocation.open_indexes(None)?.joined(), json)?,
        Command::Add { name, file, format, sqlite_table } => {
            let attached = |writer: &mut Writer| {
                canopy_sql::check_name(writer, &name)?;
                let format = format_of(&file, format, sqlite_table)?;
                Ok(writer.add_table(canopy_sql::attach(&name, &file, format)?, None)?)
            };
            let ((), generation) = change(invocation, attached)?;
            say(format_args!("generation {generation}: table {name} attached"))?;
        }
        Command::Derive { name, query, threads: asked } => {
            let (rows, generation) = change(invocation, |writer| {
                Ok(canopy_sql::derive(writer, &name, &query, invocation.threads(asked))?)
            })?;
            report(&name, rows, generation)?;
        }
        Command::Refresh { name: Some(name), threads: asked } => {
            let (rows, generation) = change(invocation, |writer| {
                Ok(canopy_sql::refresh(writer, &name, invocation.threads(asked))?)
            })?;
            report(&name, rows, generation)?;
        }
        Command::Refresh { name: None, threads: asked } => {
            let (outcome, generation) = change(invocation, |writer| {
                let failed = canopy_sql::refresh_all(writer, invocation.threads(asked))?;
                Ok(warn_of_failed(failed))
            })?;
            say(format_args!("generation {generation}: derived tables computed anew"))?;
            return Ok(outcome);
        }
        Command::Drop { name } => {
            let ((), generation) = change(invocation, |writer| Ok(writer.drop_table(&name)?))?;
            say(format_args!("generation {generation}: table {name} dropped"))?;
        }
    }
    Ok(Outcome::Complete)
}

/// The derived tables of an index. Warns of tables that cannot be computed.
pub struct Tables;

impl DerivedTables for Tables {
    fn refresh(&self, writer: &mut Writer, threads: usize) -> anyhow::Result<bool> {
        Ok(warn_of_failed(canopy_sql::follow_all(writer, threads)?) == Outcome::Complete)
    }
}

/// Warns of tables that could not be computed.
fn warn_of_failed(failed: Vec<(String, canopy_sql::Error)>) -> Outcome {
    for (name, error) in &failed {
        message(format_args!("warning: the table {name} has no rows now: {error}"));
    }
    Outcome::of_errors(&failed)
}

/// Publishes a change of tables. Derived tables that it does not name stay as they are.
fn change<T>(
    invocation: &Invocation,
    change: impl FnOnce(&mut Writer) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Generation)> {
    edit(&invocation.ingest(Some(&Tables)), &invocation.site.index_to_write()?, change)
}

fn report(name: &str, rows: DerivedRows, generation: Generation) -> anyhow::Result<()> {
    let (rows, classes) = (counted(rows.rows, "row"), counted(rows.classes, "class"));
    say(format_args!("generation {generation}: table {name}, {rows} in {classes}"))
}

/// Returns the format of a file: as asked, or else by its name.
fn format_of(
    file: &Path,
    asked: Option<FormatName>,
    sqlite_table: Option<String>,
) -> anyhow::Result<AttachedFormat> {
    let by_name = || {
        Some(match file.extension()?.to_str()?.to_lowercase().as_str() {
            "csv" => FormatName::Csv,
            "parquet" => FormatName::Parquet,
            "db" | "sqlite" | "sqlite3" => FormatName::Sqlite,
            _ => return None,
        })
    };
    let format = asked.or_else(by_name).with_context(|| {
        format!("cannot tell what {} is by its name; say it with --format", file.display())
    })?;
    anyhow::ensure!(
        sqlite_table.is_none() || matches!(format, FormatName::Sqlite),
        "--sqlite-table is for SQLite databases"
    );
    Ok(match format {
        FormatName::Csv => AttachedFormat::Csv,
        FormatName::Parquet => AttachedFormat::Parquet,
        FormatName::Sqlite => AttachedFormat::Sqlite(sqlite_table),
    })
}

fn list(index: &Index, as_json: bool) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if as_json {
        let tables = index.tables().iter().map(|table| described(index, table));
        let tables = tables.collect::<anyhow::Result<Vec<_>>>()?;
        writeln!(output, "{:#}", json!(tables))?;
        return Ok(());
    }
    for table in index.tables() {
        let what = match &table.kind {
            TableKind::Attached { file, format } => {
                let file = one_line(&to_path(file).display().to_string());
                match format {
                    TableFormat::Csv => format!("csv      {file}"),
                    TableFormat::Parquet => format!("parquet  {file}"),
                    TableFormat::Sqlite { table } => {
                        format!("sqlite   {file}: {}", one_line(table))
                    }
                }
            }
            TableKind::Derived { fresh: false, .. } => {
                "derived  no rows; run 'canopy table refresh'".to_owned()
            }
            TableKind::Derived { columns, .. } => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                format!("derived  {}", names.join(", "))
            }
        };
        writeln!(output, "{:<20} {what}", table.name)?;
        if let Some(query) = index.table_query(&table.name) {
            writeln!(output, "{:<20} {}", "", one_line(query))?;
        }
    }
    Ok(())
}

fn described(index: &Index, table: &TableRecord) -> anyhow::Result<serde_json::Value> {
    Ok(match &table.kind {
        TableKind::Attached { file, format } => {
            let (format, sqlite_table) = match format {
                TableFormat::Csv => ("csv", None),
                TableFormat::Parquet => ("parquet", None),
                TableFormat::Sqlite { table } => ("sqlite", Some(table)),
            };
            let name = &table.name;
            json!({ "name": name, "file": file, "format": format, "sqlite_table": sqlite_table })
        }
        TableKind::Derived { columns, fresh } => {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let files = index.table_files(&table.name)?;
            json!({
                "name": table.name,
                "columns": names,
                "fresh": fresh,
                "visible_rows": files.iter().map(|file| file.rows()).sum::<u64>(),
                "visible_bytes": files.iter().map(|file| file.bytes()).sum::<u64>(),
                "query": index.table_query(&table.name),
            })
        }
    })
}
