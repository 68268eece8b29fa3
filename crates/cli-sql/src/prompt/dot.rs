//! The commands of the prompt that begin with a dot.

use super::{Prompt, terminal_width};
use anyhow::{Context, anyhow, bail, ensure};
use canopy::commands::sql::{FormatName, PROMPT_COMMANDS};
use canopy_text::safe::TerminalWriter;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Columns of the help where there is no terminal.
const HELP_WIDTH: usize = 80;

/// Files that read one another, at most.
const DEPTH_MAX: usize = 16;

/// Returns the command that a word means which does not begin with a dot, as other prompts have it.
pub(super) fn plain_word(line: &str) -> Option<&'static str> {
    match line.trim().trim_end_matches(';').to_ascii_lowercase().as_str() {
        "exit" | "quit" | "\\q" => Some(".quit"),
        "help" | "\\?" => Some(".help"),
        _ => None,
    }
}

/// Whether the prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continues with the next statement.
    Continue,
    /// Not at all.
    Quit,
    /// Behind the line that was typed: a statement has failed, of which there was a message.
    Failed,
}

impl Prompt {
    /// Carries a command out.
    pub(super) fn command(&mut self, line: &str) -> anyhow::Result<Flow> {
        let line = plain_word(line).unwrap_or(line.trim());
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        match (name, argument) {
            (".exit" | ".quit", None) => return Ok(Flow::Quit),
            (".help", None) => self.print(&help(terminal_width().unwrap_or(HELP_WIDTH)))?,
            (".tables", None) => self.print(&self.tables())?,
            (".read", Some(name)) => return self.read(name),
            (".maxrows", Some("all")) => self.rows_max = None,
            (".maxrows", Some(most)) => {
                self.rows_max = Some(most.parse().map_err(|_| anyhow!("{}", wrong(name)))?);
            }
            (".nullvalue", text) => self.null = text.unwrap_or_default().to_owned(),
            (".pager", Some("on")) => self.pages = true,
            (".pager", Some("off")) => self.pages = false,
            (".schema", table) => self.schema(table)?,
            (".mode", Some(mode)) => self.format = format_of(mode)?,
            (".timer", Some("on")) => self.timer = true,
            (".timer", Some("off")) => self.timer = false,
            (".output", None | Some("stdout")) => self.answer_on_screen(),
            (".output", Some(name)) => self.answer_in_file(name)?,
            _ => bail!("{}", wrong(name)),
        }
        Ok(Flow::Continue)
    }

    /// Makes answers go to a new file, in the form of its name.
    fn answer_in_file(&mut self, name: &str) -> anyhow::Result<()> {
        let form = FormatName::of_file(Path::new(name), "")?;
        ensure!(
            form != Some(FormatName::Parquet),
            "a Parquet file has the answer of one statement: canopy sql -o {name} 'SELECT ...'"
        );
        let file = File::create_new(name).with_context(|| format!("cannot create {name}"))?;
        self.answer_on_screen();
        self.file = Some(file);
        if let Some(form) = form {
            self.screen_format = Some(std::mem::replace(&mut self.format, form));
        }
        Ok(())
    }

    /// Has answers go to standard output, in the form that they had there before.
    fn answer_on_screen(&mut self) {
        self.file = None;
        if let Some(format) = self.screen_format.take() {
            self.format = format;
        }
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        let stdout = std::io::stdout();
        match stdout.is_terminal() {
            true => TerminalWriter::new(stdout).write_all(text.as_bytes())?,
            false => (&stdout).write_all(text.as_bytes())?,
        }
        Ok(())
    }

    /// Runs the statements and commands of a file.
    fn read(&mut self, name: &str) -> anyhow::Result<Flow> {
        ensure!(self.depth < DEPTH_MAX, "{name}: more than {DEPTH_MAX} files read one another");
        let text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        self.depth += 1;
        let done = self.script(&text, Some(name));
        self.depth -= 1;
        done
    }

    /// Returns the names of the tables by where they are from.
    fn tables(&self) -> String {
        let mut text = String::new();
        for (title, tables) in self.session.table_groups() {
            if !tables.is_empty() {
                text += &format!("{title}:\n  {}\n", tables.join("\n  "));
            }
        }
        text
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

/// Width of the commands in the help, which stand before their descriptions.
const COMMANDS: usize = 24;

/// Returns the commands and their descriptions, in lines that fit.
fn help(width: usize) -> String {
    let mut text = String::new();
    for (name, argument, what) in PROMPT_COMMANDS {
        let mut line = format!("{:COMMANDS$}", format!("{name} {argument} "));
        for word in what.split(' ') {
            if line.len() > COMMANDS && line.len() + 1 + word.len() > width {
                text += &line;
                text.push('\n');
                line = " ".repeat(COMMANDS);
            }
            if !line.ends_with(' ') {
                line.push(' ');
            }
            line += word;
        }
        text += &line;
        text.push('\n');
    }
    text
}

fn format_of(mode: &str) -> anyhow::Result<FormatName> {
    let all = FormatName::OF_PROMPT;
    let known = all.iter().copied().find(|format| format.word() == mode);
    let words = all.map(FormatName::word);
    known.with_context(|| format!("no mode '{mode}'; there are {}", words.join(", ")))
}

/// Returns the fault of a command: its name or its argument.
fn wrong(name: &str) -> String {
    match PROMPT_COMMANDS.iter().find(|(known, ..)| *known == name) {
        Some((name, argument, _)) => format!("use: {}", format!("{name} {argument}").trim()),
        None => format!("no command '{name}'; '.help' lists them"),
    }
}
