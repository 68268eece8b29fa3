//! Reads statements and commands from a terminal.

use super::completion::Words;
use super::history;
use super::is_command;
use anyhow::Context as _;
use canopy::message;
use canopy_sql::{Session, blank, statement_end};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Behavior, CompletionType, Config, Context, Helper};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Input from the terminal.
pub enum Typed {
    /// Statements, all of them whole, or a command.
    Text(String),
    /// Ctrl-C: the typed text is gone.
    Cleared,
    /// Ctrl-D.
    End,
}

/// The line editor with its history.
pub struct Editor {
    lines: rustyline::Editor<Typing, FileHistory>,
    /// Where lines are kept; `None` if nowhere.
    history: Option<PathBuf>,
}

impl Editor {
    /// Reads the history and learns the session's names.
    pub fn new(session: &Session) -> anyhow::Result<Self> {
        let stdout = std::io::stdout().is_terminal();
        let config = Config::builder()
            .max_history_size(history::LINES)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            // The prompt goes to the terminal where answers go elsewhere.
            .behavior(if stdout { Behavior::Stdio } else { Behavior::PreferTerm })
            .build();
        let mut lines =
            rustyline::Editor::with_history(config.clone(), FileHistory::with_config(&config))
                .context("cannot set the terminal up")?;
        lines.set_helper(Some(Typing { words: Words::of(session) }));
        let history = history::file();
        if let Some(file) = history.as_deref().filter(|file| file.exists())
            && let Err(error) = lines.load_history(file)
        {
            message(format_args!("warning: cannot read {}: {error}", file.display()));
        }
        Ok(Editor { lines, history })
    }

    /// Waits until something is typed as a whole.
    pub fn read(&mut self) -> anyhow::Result<Typed> {
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { "canopy> " } else { "   ...> " };
            match self.lines.readline(prompt) {
                Ok(line) => text.push_str(&line),
                Err(ReadlineError::Interrupted) => return Ok(Typed::Cleared),
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(error) => return Err(error).context("cannot read what is typed"),
            }
            if is_whole(&text) {
                self.remember(&text);
                return Ok(Typed::Text(text));
            }
            text.push('\n');
        }
    }

    fn remember(&mut self, text: &str) {
        let added = !text.trim().is_empty() && self.lines.add_history_entry(text).unwrap_or(false);
        let Some(file) = self.history.clone().filter(|_| added) else { return };
        if let Err(error) = self.lines.append_history(&file) {
            message(format_args!("warning: cannot write {}: {error}", file.display()));
            self.history = None;
        }
    }
}

/// Completes words while a line is typed.
struct Typing {
    words: Words,
}

impl Helper for Typing {}
impl Highlighter for Typing {}
impl Hinter for Typing {
    type Hint = String;
}

impl Completer for Typing {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.words.complete(line, at);
        let pair = |word: String| Pair { display: word.clone(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Validator for Typing {}

/// Returns whether Enter ends the text: a command, or statements with their semicolons.
fn is_whole(mut text: &str) -> bool {
    loop {
        text = &text[blank(text)..];
        if text.is_empty() || is_command(text) {
            return true;
        }
        match statement_end(text) {
            Some(end) => text = &text[end..],
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn statements_go_on_until_their_semicolon() {
        for whole in [
            "",
            "  ",
            ".tables",
            " .schema entries",
            "exit",
            "QUIT;",
            "\\q",
            "SELECT 1;",
            "SELECT ';';",
            "SELECT 1; SELECT 2; -- x",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for open in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT", "SELECT 1 -- ;"] {
            assert!(!is_whole(open), "{open}");
        }
    }
}
