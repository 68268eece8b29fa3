//! Values of options of tools that others have defined, in the words of those tools.

use crate::outcome::Wrong;
use canopy_text::locale::is_utf8;
use canopy_text::{Quoting, SizeForm, Style};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Stands for a value that was left out, in tables of words: an empty one is none of them.
pub const LEFT_OUT: &str = "\0";

/// The value of an option.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    /// The name of the option.
    pub(super) id: &'static str,
    /// Its letter, if it has one.
    pub(super) letter: Option<char>,
    /// The value.
    pub value: &'a OsStr,
}

impl<'a> Argument<'a> {
    /// Returns the value as text; others than UTF-8 are refused.
    ///
    /// # Errors
    ///
    /// If the value is not UTF-8.
    pub fn text(self) -> anyhow::Result<&'a str> {
        self.value.to_str().ok_or_else(|| anyhow::anyhow!("invalid argument of --{}", self.id))
    }

    /// Returns the meaning of the word that the value is or abbreviates, as GNU's tools take them.
    /// Several words may have one meaning.
    ///
    /// # Errors
    ///
    /// If the value is or begins none of the words, or several with other meanings.
    pub fn word<W: Copy + PartialEq>(self, words: &[(&str, W)]) -> anyhow::Result<W> {
        word(self.text()?, &format!("--{}", self.id), words)
    }

    /// Returns the form of sizes that the value asks for, as `--block-size` of du and ls takes it.
    ///
    /// # Errors
    ///
    /// If it is not a size.
    pub fn block_size(self) -> anyhow::Result<SizeForm> {
        SizeForm::parse(self.text()?).map_err(|error| self.wrong_size(&error))
    }

    /// Returns the error for a value that is not a size, in the words of GNU's tools.
    pub fn wrong_size(self, error: &canopy_text::Error) -> anyhow::Error {
        let (option, value) = (self.option(), self.value.display());
        match error {
            canopy_text::Error::SizeSuffix(_) => {
                anyhow::anyhow!("invalid suffix in {option} argument '{value}'")
            }
            canopy_text::Error::LargeSize(_) => {
                anyhow::anyhow!("{option} argument '{value}' too large")
            }
            _ => anyhow::anyhow!("invalid {option} argument '{value}'"),
        }
    }

    /// Returns the option as the command line has it: its letter, unless its long name is there.
    fn option(self) -> String {
        let is_name = |word: &OsStr| {
            let name = word.as_bytes().strip_prefix(b"--").unwrap_or_default();
            let name = name.split(|byte| *byte == b'=').next().unwrap_or_default();
            !name.is_empty() && self.id.as_bytes().starts_with(name)
        };
        match self.letter.filter(|_| !std::env::args_os().any(|word| is_name(&word))) {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", self.id),
        }
    }
}

/// Returns the meaning of the one of some words that a value of something is or begins.
///
/// # Errors
///
/// If the value is or begins none of the words, or several with other meanings.
pub fn word<W: Copy + PartialEq>(
    value: &str,
    what: &str,
    words: &[(&str, W)],
) -> anyhow::Result<W> {
    let first = |meaning| words.iter().position(|(_, other)| *other == meaning);
    let known: Vec<_> = words.iter().map(|(word, meaning)| (*word, first(*meaning))).collect();
    Ok(words[word_at(value, what, &known)?].1)
}

/// Returns the position of the word that a value is or abbreviates. Words with equal numbers have
/// one meaning.
fn word_at(value: &str, what: &str, words: &[(&str, Option<usize>)]) -> anyhow::Result<usize> {
    if let Some(found) = words.iter().position(|(word, _)| *word == value) {
        return Ok(found);
    }
    let is_begun = |word: &str| word != LEFT_OUT && word.starts_with(value);
    let first = words.iter().position(|(word, _)| is_begun(word));
    let same = |(word, meaning): &(&str, _)| {
        !is_begun(word) || first.is_some_and(|first| *meaning == words[first].1)
    };
    if let Some(first) = first.filter(|_| words.iter().all(same)) {
        return Ok(first);
    }
    let mut valid = String::new();
    let mut last = None;
    for (word, meaning) in words.iter().filter(|(word, _)| *word != LEFT_OUT) {
        valid += if last == Some(meaning) { ", " } else { "\n  - " };
        valid += &quoted(word);
        last = Some(meaning);
    }
    let wrong = if first.is_some() { "ambiguous" } else { "invalid" };
    let (value, what) = (quoted(value), quoted(what));
    let message = format!("{wrong} argument {value} for {what}\nValid arguments are:{valid}");
    Err(Wrong::Word(message).into())
}

/// Returns a text in the quotation marks of the locale.
pub fn quoted(text: impl AsRef<OsStr>) -> String {
    let quoting = Quoting { style: Style::Locale, utf8: is_utf8(), ..Quoting::default() };
    String::from_utf8_lossy(&quoting.quote(text.as_ref().as_bytes())).into_owned()
}

/// Returns the words of a table, for shells to complete.
pub fn words_of<W>(table: &[(&'static str, W)]) -> Vec<&'static str> {
    table.iter().map(|(word, _)| *word).filter(|word| *word != LEFT_OUT).collect()
}
