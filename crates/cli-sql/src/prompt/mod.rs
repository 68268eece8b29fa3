//! The prompt of `canopy sql`, and scripts of statements and commands.
//!
//! `editor` edits lines, `completion` completes words, `dot` has the commands that begin with a
//! dot, `worker` has typed statements answered in a process of their own, `pager` shows answers page
//! by page, `progress` shows how far a long query is, `interrupt` says what Ctrl-C does, `history`
//! keeps what was typed.
//!
//! Not its job: SQL. A [`Session`] of `canopy_sql` answers statements.

mod completion;
mod dot;
mod editor;
mod history;
mod interrupt;
mod pager;
mod progress;
mod worker;

pub use interrupt::{end_without, hold_interrupts};
pub use worker::{Worker, is_worker};

use anyhow::Context;
use canopy::commands::sql::FormatName;
use canopy::{SeveralLines, error_chain, message, message_lines};
use canopy_site::Allowed;
use canopy_sql::{
    AnswerFormat, Answered, Error, Session, TableForm, TableStyle, blank, statement_end,
};
use canopy_text::counted;
use canopy_text::locale::is_utf8;
use canopy_text::safe::TerminalWriter;
use dot::Flow;
use editor::{Editor, Typed};
use progress::Display;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::time::Instant;
use worker::terminal_width;

/// Bytes of an answer that are written at once.
const BUFFER_BYTES: usize = 1 << 16;

/// A session and how its answers are shown.
pub struct Prompt {
    session: Session,
    format: FormatName,
    /// Limits of the site for this user.
    allowed: Allowed,
    /// Whether the time of each statement is shown.
    pub timer: bool,
    /// Text that represents NULL in tables.
    pub null: String,
    /// How many rows of a table are shown at most.
    pub rows_max: Option<u64>,
    /// Whether answers are shown page by page.
    pages: bool,
    /// Files that `.read` is reading, each within the one before.
    depth: usize,
    /// Whether CSV is made safe for spreadsheets.
    pub csv_safe: bool,
    /// Where answers go, if not to standard output.
    pub file: Option<File>,
    /// The form of answers on the screen, while a file has the form of its name.
    screen_format: Option<FormatName>,
    /// Whether a Parquet file has been written, behind which nothing can follow.
    full: bool,
    /// The process that answers typed statements.
    worker: Option<Worker>,
}

impl Prompt {
    /// Shows answers in one form on standard output, until a command changes that.
    pub fn new(session: Session, format: FormatName, allowed: Allowed) -> Self {
        Prompt {
            allowed,
            session,
            format,
            timer: false,
            null: "NULL".to_owned(),
            rows_max: None,
            pages: false,
            depth: 0,
            csv_safe: false,
            file: None,
            screen_format: None,
            full: false,
            worker: None,
        }
    }

    /// Runs statements and commands one after the other; the first that fails ends it, and `.quit`
    /// does. With the name of their file, errors contain the line.
    pub fn script(&mut self, text: &str, name: Option<&str>) -> anyhow::Result<Flow> {
        let mut at = 0;
        loop {
            at += blank(&text[at..]);
            let rest = &text[at..];
            if rest.is_empty() {
                return Ok(Flow::Continue);
            }
            let length = if is_command(rest) {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                statement_end(rest).unwrap_or(rest.len())
            };
            let done = self.one(&rest[..length]);
            let line = || text[..at].matches('\n').count() + 1;
            let flow = match name {
                Some(name) => done.with_context(|| format!("{name}, line {}", line()))?,
                None => done?,
            };
            if let (Flow::Failed, Some(name)) = (flow, name) {
                message(format_args!("that is {name}, line {}", line()));
            }
            if flow != Flow::Continue {
                return Ok(flow);
            }
            at += length;
        }
    }

    /// Asks for statements and commands until there are no more, and has each statement answered
    /// by a process of its own. Errors end nothing but their own line.
    pub fn interactive(&mut self, worker: Worker) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.format != FormatName::Parquet,
            "the prompt has no Parquet files; give a query"
        );
        self.worker = Some(worker);
        let mut editor = Editor::new(&self.session)?;
        eprintln!("'.help' tells what there is; statements end with ';', Ctrl-D ends the prompt");
        loop {
            match editor.read()? {
                Typed::Text(text) => match self.script(&text, None) {
                    Ok(Flow::Quit) => return Ok(()),
                    Ok(Flow::Continue | Flow::Failed) => {}
                    Err(error) => message_lines(error_chain(&error)),
                },
                Typed::Cleared => {}
                Typed::End => return Ok(()),
            }
        }
    }

    /// Carries one statement or command out.
    fn one(&mut self, text: &str) -> anyhow::Result<Flow> {
        if is_command(text) {
            return self.command(text);
        }
        let text = text.trim_end().strip_suffix(';').unwrap_or(text);
        if let Some(worker) = &self.worker {
            let mut options = vec![format!("--format={}", self.format.word())];
            options.push(format!("--null-value={}", self.null));
            options.extend(self.rows_max.map(|most| format!("--max-rows={most}")));
            options.extend(self.timer.then(|| "--timer".to_owned()));
            let is_safe = self.csv_safe && self.format == FormatName::Csv;
            options.extend(is_safe.then(|| "--csv-safe".to_owned()));
            let done = worker.answer(text, &options, self.file.as_ref(), self.pages)?;
            return Ok(if done { Flow::Continue } else { Flow::Failed });
        }
        self.statement(text).map(|()| Flow::Continue)
    }

    /// Runs a statement in this process.
    pub fn statement(&mut self, text: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        let Answered { rows, notes } = self.answer(text)?;
        notes.iter().for_each(message);
        if self.timer {
            eprintln!("{}, {:.3} s", counted(rows, "row"), begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Runs a statement and prints its rows.
    fn answer(&mut self, statement: &str) -> anyhow::Result<Answered> {
        anyhow::ensure!(!self.full, "a Parquet file has the answer of one statement");
        let stdout = std::io::stdout();
        let terminal = match &self.file {
            Some(file) => file.is_terminal(),
            None => stdout.is_terminal() || worker::is_paged(),
        };
        let format = match answer_format(self.format) {
            AnswerFormat::Csv if self.csv_safe => AnswerFormat::SafeCsv,
            format => format,
        };
        let parquet = format == AnswerFormat::Parquet;
        anyhow::ensure!(
            !(terminal && parquet),
            "a Parquet file is nothing for a terminal; redirect the output"
        );
        let target: Box<dyn Write + Send> = match &self.file {
            Some(file) => {
                let file = file.try_clone().context("cannot write the answer")?;
                match terminal && format != AnswerFormat::Table {
                    true => Box::new(TerminalWriter::new(file)),
                    false => Box::new(file),
                }
            }
            None if terminal && format != AnswerFormat::Table => {
                Box::new(TerminalWriter::new(stdout))
            }
            None => Box::new(stdout),
        };
        // Commands may have changed them.
        *self.session.table_style() = TableStyle {
            form: table_form(self.format, terminal),
            null: self.null.clone(),
            width: terminal_width().filter(|_| self.file.is_none()),
            rows_max: self.rows_max,
        };
        let display = Display::start(self.session.running());
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, display.before(target));
        let answered = self.session.run(statement, format, terminal, &mut output);
        // Flush the output so far of a statement that was stopped, too.
        let flushed = output.flush().map_err(Error::Output);
        self.full = parquet;
        let answered = answered.map_err(|error| with_setting(error, self.allowed))?;
        flushed?;
        Ok(answered)
    }
}

/// Returns whether the next text is a command of the prompt and not a statement.
fn is_command(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    text.starts_with('.') || dot::plain_word(line).is_some()
}

/// Returns how tables of a form are drawn.
fn table_form(name: FormatName, is_terminal: bool) -> TableForm {
    match name {
        // A terminal that does not know UTF-8 would take lines for control characters.
        FormatName::Box if is_terminal && !is_utf8() => TableForm::Ascii,
        FormatName::Box => TableForm::Box,
        FormatName::Markdown => TableForm::Markdown,
        FormatName::Line => TableForm::Lines,
        _ => TableForm::Ascii,
    }
}

fn answer_format(name: FormatName) -> AnswerFormat {
    match name {
        FormatName::Table | FormatName::Box | FormatName::Markdown | FormatName::Line => {
            AnswerFormat::Table
        }
        FormatName::Csv => AnswerFormat::Csv,
        FormatName::Json => AnswerFormat::Json,
        FormatName::Ndjson => AnswerFormat::NdJson,
        FormatName::Parquet => AnswerFormat::Parquet,
    }
}

/// Message where the site allows no more.
const NO_MORE: &str = "the site allows you no more, by 'limits' of its configuration";

/// Adds to an error how to raise a limit: by a setting, or by asking the site's administrator.
fn with_setting(error: Error, allowed: Allowed) -> anyhow::Error {
    let setting = match error {
        Error::Time(time) if allowed.time == Some(time) => NO_MORE,
        Error::Memory { limit_bytes, .. } if allowed.memory_bytes == Some(limit_bytes) => NO_MORE,
        Error::Time(_) => "--timeout or the setting sql_timeout gives more",
        Error::Memory { .. } => "--memory or the setting sql_memory gives more",
        // The place in the statement is marked.
        Error::Sql { said, .. } => return SeveralLines(said).into(),
        error => return error.into(),
    };
    anyhow::anyhow!("{error} ({setting})")
}
