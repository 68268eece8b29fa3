//! Options of tools that others have defined. They take effect in the order in which they were
//! given, and a later one may reset an earlier one.
//!
//! A tool has one table of them: each row has the names, the help and the effect of an option.

mod abbreviated;
mod argument;

pub use abbreviated::unabbreviated;
pub use argument::{Argument, LEFT_OUT, quoted, word, words_of};

use crate::offered::Offered;
use crate::outcome::{Refused, Wrong, error_chain};
use abbreviated::HasValue;
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;

/// An option of a tool.
pub struct Switch<T> {
    /// Its name, which is its long name unless `short_only`.
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

/// Lists the words that the value of an option may be, for shells to complete.
pub const fn of<T>(words: fn() -> Vec<&'static str>, switch: Switch<T>) -> Switch<T> {
    let Switch { id, short, short_only, own, effect, help, words: _ } = switch;
    Switch { id, short, short_only, own, effect, help, words }
}

/// The effect of an option, with the name of its value in the help.
pub enum Effect<T> {
    /// Without a value.
    Flag(fn(&mut T)),
    /// With a value.
    Value(&'static str, Take<T>),
    /// With a value after `=`, or without one: then the value is [`LEFT_OUT`].
    Optional(&'static str, Take<T>),
}

impl<T> Effect<T> {
    fn has_value(&self) -> HasValue {
        match self {
            Effect::Flag(_) => HasValue::No,
            Effect::Value(..) => HasValue::Yes,
            Effect::Optional(..) => HasValue::Maybe,
        }
    }
}

/// Takes the value of an option. Errors state the fault.
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

/// A tool with options: the requests that they have made so far.
pub trait Tool: Sized + 'static {
    /// The name of the command.
    const NAME: &'static str;
    /// The exit code of GNU's tool for a wrong command line. If a value is not one of the words of
    /// an option, it is 1 in all tools.
    const REFUSED: u8;
    /// All options.
    const SWITCHES: &'static [Switch<Self>];
    /// Options of GNU's tool that are missing here, by long name and letter. An error says so, instead
    /// of taking one for the beginning of another name.
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
    ///
    /// # Errors
    ///
    /// If an option is missing here, or its value is refused.
    pub fn apply(&self, tool: &mut T) -> Result<(), Refused> {
        if let Some(missing) = self.missing {
            let name = T::NAME;
            let error =
                anyhow::anyhow!("canopy {name} has no --{missing}; see docs/differences.md");
            return Err(refused::<T>(&error));
        }
        self.given.iter().try_for_each(|(switch, value)| match switch.effect {
            Effect::Flag(effect) => {
                effect(tool);
                Ok(())
            }
            Effect::Value(_, take) | Effect::Optional(_, take) => {
                let argument = Argument { id: switch.id, letter: switch.short, value };
                take(tool, argument).map_err(|error| refused::<T>(&error))
            }
        })
    }
}

/// Returns the error of a tool about its command line.
pub fn refused<T: Tool>(error: &anyhow::Error) -> Refused {
    refused_by(T::NAME, T::REFUSED, error)
}

fn refused_by(name: &str, code: u8, error: &anyhow::Error) -> Refused {
    let (hint, code) = match error.downcast_ref() {
        Some(Wrong::Word(_)) => (true, 1),
        Some(Wrong::Usage(_)) => (true, code),
        None => (false, code),
    };
    let mut told = error_chain(error);
    if hint {
        told += &format!("\nTry 'canopy {name} --help' for more information.");
    }
    Refused { told, code }
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
                .default_missing_value(LEFT_OUT)
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
