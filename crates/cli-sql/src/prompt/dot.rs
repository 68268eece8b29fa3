//! The commands of the prompt that begin with a dot.

use super::Prompt;
use anyhow::{Context, bail};
use canopy::commands::sql::{FormatName, PROMPT_COMMANDS};
use std::fs::File;
use std::io::Write;

/// Whether the prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// With what comes next.
    Continue,
    /// Not at all.
    Quit,
    /// Behind the line that was typed: a statement has failed, of which there was a message.
    Failed,
}

impl Prompt {
    /// Carries a command out.
    pub(super) fn command(&mut self, line: &str) -> anyhow::Result<Flow> {
        let line = line.trim();
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        match (name, argument) {
            (".exit" | ".quit", None) => return Ok(Flow::Quit),
            (".help", None) => self.print(&help())?,
            (".tables", None) => self.print(&(self.session.tables().join("\n") + "\n"))?,
            (".schema", table) => self.schema(table)?,
            (".mode", Some(mode)) => self.format = format_of(mode)?,
            (".timer", Some("on")) => self.timer = true,
            (".timer", Some("off")) => self.timer = false,
            (".output", None | Some("stdout")) => self.file = None,
            (".output", Some(name)) => {
                self.file =
                    Some(File::create_new(name).with_context(|| format!("cannot create {name}"))?);
            }
            _ => bail!("{}", wrong(name)),
        }
        Ok(Flow::Continue)
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::io::stdout().write_all(text.as_bytes())?)
    }

    fn schema(&self, table: Option<&str>) -> anyhow::Result<()> {
        let tables = table.map_or_else(|| self.session.tables(), |table| vec![table.to_owned()]);
        for name in tables {
            match self.session.columns(&name) {
                Ok(columns) => {
                    let columns: Vec<String> =
                        columns.iter().map(|(column, of)| format!("  {column} {of}")).collect();
                    self.print(&format!("{name} (\n{}\n)\n", columns.join(",\n")))?;
                }
                // A file that somebody attached may be closed to this user; the other tables are
                // still there.
                Err(error) if table.is_none() => canopy::message(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn help() -> String {
    let line = |(name, argument, what): &(&str, &str, &str)| {
        format!("{:32}{what}\n", format!("{name} {argument}"))
    };
    PROMPT_COMMANDS.iter().map(line).collect()
}

fn format_of(mode: &str) -> anyhow::Result<FormatName> {
    Ok(match mode {
        "table" => FormatName::Table,
        "csv" => FormatName::Csv,
        "json" => FormatName::Json,
        "ndjson" => FormatName::Ndjson,
        _ => bail!("no mode '{mode}'; there are table, csv, json and ndjson"),
    })
}

/// Says what is wrong with a command: its name or its argument.
fn wrong(name: &str) -> String {
    match PROMPT_COMMANDS.iter().find(|(known, ..)| *known == name) {
        Some((name, argument, _)) => format!("use: {}", format!("{name} {argument}").trim()),
        None => format!("no command '{name}'; '.help' lists them"),
    }
}
