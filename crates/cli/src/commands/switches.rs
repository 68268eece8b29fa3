//! Options of tools that others have defined, where a later one takes back what an earlier one
//! said: they take effect in the order in which they were given.
//!
//! A tool has one table of them: each row has the names, the help and the effect of an option.

use crate::offered::Offered;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// An option of a tool.
pub struct Switch<T> {
    /// By what it is known, and its long name unless `short_only`.
    id: &'static str,
    short: Option<char>,
    /// Whether it has no long name.
    short_only: bool,
    /// Whether GNU's tool does not have it, so that beginnings of its name do not mean it where
    /// they mean another.
    own: bool,
    effect: Effect<T>,
    help: &'static str,
    /// The words that its value may be.
    words: fn() -> Vec<&'static str>,
}

/// Says which words the value of an option may be, for shells to complete.
pub const fn of<T>(words: fn() -> Vec<&'static str>, switch: Switch<T>) -> Switch<T> {
    let Switch { id, short, short_only, own, effect, help, words: _ } = switch;
    Switch { id, short, short_only, own, effect, help, words }
}

/// What an option does, and whether it has a value, with what that is called in the help.
pub enum Effect<T> {
    /// It has none.
    Flag(fn(&mut T)),
    /// It has one.
    Value(&'static str, Take<T>),
    /// It may have one, after `=`; one that was left out is empty.
    Optional(&'static str, Take<T>),
}

/// Takes the value of an option. Errors say what is wrong with it.
pub type Take<T> = fn(&mut T, Argument<'_>) -> anyhow::Result<()>;

/// Defines an option without a letter.
pub const fn long<T>(id: &'static str, effect: Effect<T>, help: &'static str) -> Switch<T> {
    Switch { id, short: None, short_only: false, own: false, effect, help, words: Vec::new }
}

/// Defines an option with a letter and a long name.
pub const fn both<T>(
    short: char,
    id: &'static str,
    effect: Effect<T>,
    help: &'static str,
) -> Switch<T> {
    Switch { id, short: Some(short), short_only: false, own: false, effect, help, words: Vec::new }
}

/// Defines an option of one letter.
pub const fn short<T>(
    short: char,
    id: &'static str,
    effect: fn(&mut T),
    help: &'static str,
) -> Switch<T> {
    let effect = Effect::Flag(effect);
    Switch { id, short: Some(short), short_only: true, own: true, effect, help, words: Vec::new }
}

/// Defines an option without a letter that GNU's tool does not have.
pub const fn own<T>(id: &'static str, effect: Effect<T>, help: &'static str) -> Switch<T> {
    Switch { id, short: None, short_only: false, own: true, effect, help, words: Vec::new }
}

/// What the options of a tool have asked for so far.
pub trait Tool: Sized + 'static {
    /// The name of the command.
    const NAME: &'static str;
    /// All options.
    const SWITCHES: &'static [Switch<Self>];
    /// Options of GNU's tool that are missing here, by long name and letter: told as such instead
    /// of being taken for the beginning of another name.
    const MISSING: &'static [(&'static str, Option<char>)];
}

/// The options that were given to a tool.
pub struct Switches<T: 'static> {
    /// In their order, with their values.
    given: Vec<(&'static Switch<T>, OsString)>,
    /// One of [`Tool::MISSING`].
    missing: Option<&'static str>,
}

impl<T: Tool> Switches<T> {
    /// Lets the options take effect, one after the other. Stops at the first error.
    pub fn apply(&self, tool: &mut T) -> anyhow::Result<()> {
        if let Some(missing) = self.missing {
            let tool = T::NAME;
            anyhow::bail!("canopy {tool} has no --{missing}; see docs/differences.md");
        }
        self.given.iter().try_for_each(|(switch, value)| match switch.effect {
            Effect::Flag(effect) => {
                effect(tool);
                Ok(())
            }
            Effect::Value(_, take) | Effect::Optional(_, take) => {
                take(tool, Argument { id: switch.id, value })
            }
        })
    }
}

/// Writes the names of long options out that are abbreviated as GNU's tool takes them, whatever
/// options there are beside its own.
pub fn unabbreviated<T: Tool>(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words;
    let mut whole = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            whole.push(word);
            whole.extend(words);
            break;
        }
        let (word, has_value) = match word.as_bytes() {
            [b'-', b'-', name @ ..] => unabbreviated_name::<T>(name, &word),
            [b'-', letters @ ..] => (word.clone(), value_of_letter::<T>(letters)),
            _ => (word, false),
        };
        whole.push(word);
        if has_value {
            whole.extend(words.next());
        }
    }
    whole
}

/// Returns a long option with its whole name, and whether the next word is its value.
fn unabbreviated_name<T: Tool>(option: &[u8], word: &OsStr) -> (OsString, bool) {
    let end = option.iter().position(|byte| *byte == b'=').unwrap_or(option.len());
    let (name, value) = option.split_at(end);
    let gnu = || {
        let switches = T::SWITCHES.iter().filter(|switch| !switch.own).map(|switch| switch.id);
        switches.chain(T::MISSING.iter().map(|(name, _)| *name)).chain(["help", "version"])
    };
    let known = gnu().chain(T::SWITCHES.iter().map(|switch| switch.id));
    let mut known = known.chain(["index", "threads", "verbose"]);
    let mut begun = gnu().filter(|known| known.as_bytes().starts_with(name));
    let found = known.find(|known| known.as_bytes() == name).or_else(|| {
        let first = begun.next().filter(|_| !name.is_empty());
        first.filter(|_| begun.next().is_none())
    });
    let Some(found) = found else { return (word.to_owned(), false) };
    let mut whole = OsString::from(format!("--{found}"));
    whole.push(OsStr::from_bytes(value));
    let switch = T::SWITCHES.iter().find(|switch| switch.id == found);
    let takes = match switch {
        Some(switch) => matches!(switch.effect, Effect::Value(..)),
        None => matches!(found, "index" | "threads"),
    };
    (whole, takes && value.is_empty())
}

/// Returns whether the word behind options of one letter is the value of the last.
fn value_of_letter<T: Tool>(letters: &[u8]) -> bool {
    let takes = |letter: &u8| {
        let same = |switch: &&Switch<T>| switch.short == Some(char::from(*letter));
        let found = T::SWITCHES.iter().find(same);
        found.is_some_and(|switch| matches!(switch.effect, Effect::Value(..)))
    };
    letters.iter().position(takes) == letters.len().checked_sub(1) && !letters.is_empty()
}

impl<T: Tool> FromArgMatches for Switches<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let mut missing = T::MISSING.iter().map(|(name, _)| *name);
        Ok(Switches { given: given(matches), missing: missing.find(|name| is_given(name)) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Tool> Args for Switches<T> {
    /// Adds the options to a command. Those without values may be given again and again.
    fn augment_args(command: Command) -> Command {
        let command = command.args_override_self(true).infer_long_args(true);
        let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
        let missing = T::MISSING.iter().map(|&(name, letter)| missing(name, letter));
        let command = command.disable_help_flag(true).args(T::SWITCHES.iter().map(Switch::arg));
        command.args(missing).arg(help)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns an option that help does not show, with a value or without one.
fn missing(name: &'static str, letter: Option<char>) -> Arg {
    let arg = Arg::new(name).long(name).hide(true).action(ArgAction::Append);
    let arg = arg.num_args(0..=1).default_missing_value("").value_parser(ValueParser::os_string());
    arg.short(letter)
}

impl<T> Switch<T> {
    fn arg(&self) -> Arg {
        let mut arg = Arg::new(self.id).help(self.help);
        if let Some(letter) = self.short {
            arg = arg.short(letter);
        }
        if !self.short_only {
            arg = arg.long(self.id);
        }
        match self.effect {
            Effect::Flag(_) => arg.action(ArgAction::SetTrue),
            Effect::Value(name, _) => arg
                .action(ArgAction::Append)
                .value_name(name)
                .allow_hyphen_values(true)
                .hide_possible_values(true)
                .value_parser(Offered(self.words)),
            Effect::Optional(name, _) => arg
                .action(ArgAction::Append)
                .value_name(name)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .hide_possible_values(true)
                .value_parser(Offered(self.words)),
        }
    }
}

/// Returns the options that were given, in their order.
fn given<T: Tool>(matches: &ArgMatches) -> Vec<(&'static Switch<T>, OsString)> {
    let mut given: Vec<(usize, &Switch<T>, OsString)> = Vec::new();
    for switch in T::SWITCHES {
        if matches.value_source(switch.id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let Some(mut indices) = matches.indices_of(switch.id) else { continue };
        match switch.effect {
            Effect::Flag(_) => {
                given.extend(indices.next_back().map(|at| (at, switch, OsString::new())));
            }
            _ => {
                let values = matches.get_many::<OsString>(switch.id).into_iter().flatten();
                given.extend(indices.zip(values).map(|(at, value)| (at, switch, value.clone())));
            }
        }
    }
    given.sort_by_key(|(at, ..)| *at);
    given.into_iter().map(|(_, switch, value)| (switch, value)).collect()
}

/// The value of an option.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    /// By what the option is known.
    pub id: &'static str,
    /// The value.
    pub value: &'a OsStr,
}

impl<'a> Argument<'a> {
    /// Returns the value as text; others than UTF-8 are refused.
    pub fn text(self) -> anyhow::Result<&'a str> {
        self.value.to_str().ok_or_else(|| anyhow::anyhow!("invalid argument of --{}", self.id))
    }

    /// Returns the meaning of the one of some words that the value is or begins, as GNU's tools
    /// take them. Several words may mean the same.
    pub fn word<W: Copy + PartialEq>(self, words: &[(&str, W)]) -> anyhow::Result<W> {
        let value = self.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
            return Ok(*meaning);
        }
        let mut begun =
            words.iter().filter(|(word, _)| !value.is_empty() && word.starts_with(value));
        match begun.next() {
            Some((_, meaning)) if begun.all(|(_, other)| other == meaning) => Ok(*meaning),
            _ => {
                let words = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty());
                let words: Vec<&str> = words.collect();
                anyhow::bail!(
                    "invalid or ambiguous argument '{value}' of --{}: give {}",
                    self.id,
                    words.join(", ")
                )
            }
        }
    }
}

/// Returns the words of a table, for shells to complete.
pub fn words_of<W>(table: &[(&'static str, W)]) -> Vec<&'static str> {
    table.iter().map(|(word, _)| *word).collect()
}
