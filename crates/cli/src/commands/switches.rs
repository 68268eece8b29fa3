//! Options of tools that others have defined, where a later one takes back what an earlier one
//! said: they are read in the order in which they were given.

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;
use std::marker::PhantomData;

/// An option.
pub struct Switch {
    /// By what it is known, and its long name unless `short_only`.
    pub id: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// Whether it has no long name.
    pub short_only: bool,
    /// Its value, in the words of the help.
    pub value: Value,
    /// What it does.
    pub help: &'static str,
}

/// Whether an option has a value.
#[derive(Clone, Copy)]
pub enum Value {
    /// It has none.
    None,
    /// It has one.
    Needed(&'static str),
    /// It may have one, after `=`.
    Optional(&'static str),
}

/// An option without a letter.
pub const fn long(id: &'static str, value: Value, help: &'static str) -> Switch {
    Switch { id, short: None, short_only: false, value, help }
}

/// An option with a letter and a long name.
pub const fn both(short: char, id: &'static str, value: Value, help: &'static str) -> Switch {
    Switch { id, short: Some(short), short_only: false, value, help }
}

/// An option of one letter, known by it.
pub const fn short(short: char, id: &'static str, help: &'static str) -> Switch {
    Switch { id, short: Some(short), short_only: true, value: Value::None, help }
}

/// An option that was given, with its value; an optional value that was left out is empty.
pub type Given = (&'static str, OsString);

/// A tool with such options.
pub trait Tool {
    /// All of them.
    const SWITCHES: &'static [Switch];
}

/// The options that were given to a tool, in their order.
pub struct Switches<T> {
    /// What was given.
    pub given: Vec<Given>,
    tool: PhantomData<T>,
}

impl<T: Tool> FromArgMatches for Switches<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Switches { given: given(matches, T::SWITCHES), tool: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Tool> Args for Switches<T> {
    fn augment_args(command: Command) -> Command {
        add(command, T::SWITCHES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Adds options to a command. Those of letters may be given again and again.
fn add(command: Command, switches: &'static [Switch]) -> Command {
    let command = command.args_override_self(true).infer_long_args(true).disable_help_flag(true);
    let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
    command.args(switches.iter().map(argument)).arg(help)
}

fn argument(switch: &Switch) -> Arg {
    let mut argument = Arg::new(switch.id).help(switch.help);
    if let Some(letter) = switch.short {
        argument = argument.short(letter);
    }
    if !switch.short_only {
        argument = argument.long(switch.id);
    }
    match switch.value {
        Value::None => argument.action(ArgAction::SetTrue),
        Value::Needed(name) => argument
            .action(ArgAction::Append)
            .value_name(name)
            .allow_hyphen_values(true)
            .value_parser(ValueParser::os_string()),
        Value::Optional(name) => argument
            .action(ArgAction::Append)
            .value_name(name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("")
            .value_parser(ValueParser::os_string()),
    }
}

/// The options that were given, in their order.
fn given(matches: &ArgMatches, switches: &[Switch]) -> Vec<Given> {
    let mut given: Vec<(usize, Given)> = Vec::new();
    for switch in switches {
        if matches.value_source(switch.id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let Some(indices) = matches.indices_of(switch.id) else { continue };
        match switch.value {
            Value::None => {
                given.extend(indices.last().map(|at| (at, (switch.id, OsString::new()))))
            }
            _ => {
                let values = matches.get_many::<OsString>(switch.id).into_iter().flatten().cloned();
                given.extend(indices.zip(values).map(|(at, value)| (at, (switch.id, value))));
            }
        }
    }
    given.sort_by_key(|(at, _)| *at);
    given.into_iter().map(|(_, given)| given).collect()
}

/// A value as text; others than UTF-8 are refused.
pub fn text<'a>(id: &str, value: &'a OsString) -> anyhow::Result<&'a str> {
    value.to_str().ok_or_else(|| anyhow::anyhow!("invalid argument of --{id}"))
}

/// The one of some words that a value is or begins, as GNU's tools take them. Several words may
/// mean the same.
pub fn word<T: Copy + PartialEq>(
    id: &str,
    value: &OsString,
    words: &[(&str, T)],
) -> anyhow::Result<T> {
    let value = text(id, value)?;
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
        return Ok(*meaning);
    }
    let mut found = words.iter().filter(|(word, _)| !value.is_empty() && word.starts_with(value));
    match found.next() {
        Some((_, meaning)) if found.all(|(_, other)| other == meaning) => Ok(*meaning),
        _ => {
            let words = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty());
            let words: Vec<&str> = words.collect();
            anyhow::bail!(
                "invalid or ambiguous argument '{value}' of --{id}: give {}",
                words.join(", ")
            )
        }
    }
}
