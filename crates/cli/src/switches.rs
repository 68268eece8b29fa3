//! Options of tools that others have defined, where a later one takes back what an earlier one
//! said: they take effect in the order in which they were given.
//!
//! A tool has one table of them: each row has the names, the help and the effect of an option.

use crate::offered::Offered;
use crate::outcome::{Refused, error_chain};
use canopy_text::locale::is_utf8;
use canopy_text::safe::message_line;
use canopy_text::{Quoting, Style};
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

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

/// Effect of an option, and whether it has a value, with the value's name in the help.
pub enum Effect<T> {
    /// It has no value.
    Flag(fn(&mut T)),
    /// It has a value.
    Value(&'static str, Take<T>),
    /// It may have one, after `=`, else it is [`LEFT_OUT`].
    Optional(&'static str, Take<T>),
}

/// Stands for a value that was left out, in tables of words: an empty one is none of them.
pub const LEFT_OUT: &str = "\0";

impl<T> Effect<T> {
    fn has_value(&self) -> HasValue {
        match self {
            Effect::Flag(_) => HasValue::No,
            Effect::Value(..) => HasValue::Yes,
            Effect::Optional(..) => HasValue::Maybe,
        }
    }
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

/// State of a tool, which its options change one after the other.
pub trait Tool: Sized + 'static {
    /// The name of the command.
    const NAME: &'static str;
    /// The exit code of GNU's tool where a command line is wrong; where a value is none of the
    /// words that it may be, it is 1 in all tools.
    const REFUSED: u8;
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

/// Checks the options of a command line as getopt_long(3) does for GNU's tool, and writes the names
/// of long ones out that are abbreviated, whatever options there are beside its own.
pub fn unabbreviated<T: Tool>(
    words: impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>, Refused> {
    use HasValue::{Maybe, No, Yes};
    let missing = T::MISSING.iter().map(|(name, letter)| (Some(*name), *letter, Maybe, false));
    let switches = T::SWITCHES.iter().map(|switch| {
        let name = Some(switch.id).filter(|_| !switch.short_only);
        (name, switch.short, switch.effect.has_value(), switch.own)
    });
    let others = [
        (Some("help"), None, No, false),
        (Some("version"), Some('V'), No, false),
        (Some("index"), None, Yes, true),
        (Some("at"), None, Yes, true),
        (Some("threads"), None, Yes, true),
        (Some("verbose"), None, No, true),
    ];
    let known = switches.chain(missing).chain(others);
    let known = known.map(|(name, letter, value, own)| Known { name, letter, value, own });
    let known: Vec<Known> = known.collect();
    checked(&known, words.collect()).map_err(|told| refused::<T>(&Wrong::Usage(told).into()))
}

/// An option that a command line may have.
struct Known {
    /// Its long name.
    name: Option<&'static str>,
    letter: Option<char>,
    value: HasValue,
    /// Whether GNU's tool does not have it.
    own: bool,
}

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasValue {
    No,
    Maybe,
    Yes,
}

/// Returns a command line with whole names of options, or what is wrong with it.
fn checked(known: &[Known], words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut words = words.into_iter();
    let mut whole = Vec::from_iter(words.next());
    let mut has_command = false;
    while let Some(word) = words.next() {
        let (word, without_value) = match word.as_bytes() {
            b"--" => {
                whole.push(word);
                break;
            }
            [b'-', b'-', option @ ..] => match unabbreviated_name(known, option)? {
                (asks, None) if asks == "--help" || asks == "--version" => {
                    whole.push(asks);
                    break;
                }
                found => found,
            },
            [b'-', letters @ ..] if !letters.is_empty() => {
                match value_of_letters(known, letters)? {
                    LetterValue::Next(told) => (word, Some(told)),
                    // To clap, '=' is no part of a value.
                    LetterValue::At(at) if letters[at..].starts_with(b"=") => {
                        whole.push(OsStr::from_bytes(&word.as_bytes()[..=at]).to_owned());
                        (OsStr::from_bytes(&letters[at..]).to_owned(), None)
                    }
                    LetterValue::At(_) | LetterValue::None => (word, None),
                }
            }
            _ if has_command && std::env::var_os("POSIXLY_CORRECT").is_some() => {
                whole.extend(["--".into(), word]);
                break;
            }
            _ => {
                has_command = true;
                (word, None)
            }
        };
        whole.push(word);
        if let Some(told) = without_value {
            whole.push(words.next().ok_or(told)?);
        }
    }
    whole.extend(words);
    Ok(whole)
}

/// Returns a long option with its whole name, and, if the next word is its value, what is wrong if
/// there is none.
fn unabbreviated_name(
    known: &[Known],
    option: &[u8],
) -> Result<(OsString, Option<String>), String> {
    let end = option.iter().position(|byte| *byte == b'=').unwrap_or(option.len());
    let (name, value) = option.split_at(end);
    let shown = String::from_utf8_lossy(option);
    let shown = message_line(&shown);
    let (found, has_value) = match named(known, name)[..] {
        [found] => found,
        [] => return Err(format!("unrecognized option '--{shown}'")),
        ref several => {
            let mut told = format!("option '--{shown}' is ambiguous; possibilities:");
            several.iter().for_each(|(name, _)| told += &format!(" '--{name}'"));
            return Err(told);
        }
    };
    if has_value == HasValue::No && !value.is_empty() {
        return Err(format!("option '--{found}' doesn't allow an argument"));
    }
    let without_value = (has_value == HasValue::Yes && value.is_empty())
        .then(|| format!("option '--{found}' requires an argument"));
    Ok((OsString::from_vec([b"--", found.as_bytes(), value].concat()), without_value))
}

/// Returns the long options of a name: one, or several that it begins. Options of GNU's tool come
/// before our own.
fn named(known: &[Known], name: &[u8]) -> Vec<(&'static str, HasValue)> {
    let mut begun = [Vec::new(), Vec::new()];
    for option in known {
        match option.name {
            Some(known) if known.as_bytes() == name => return vec![(known, option.value)],
            Some(known) if known.as_bytes().starts_with(name) => {
                begun[usize::from(option.own)].push((known, option.value));
            }
            _ => {}
        }
    }
    begun.into_iter().find(|begun| !begun.is_empty()).unwrap_or_default()
}

/// Where the value of the last of some short options is.
enum LetterValue {
    /// It has none.
    None,
    /// From here on among the letters.
    At(usize),
    /// In the next word; with what is wrong if there is none.
    Next(String),
}

/// Returns where the value of some short options is, the letters behind a '-'.
fn value_of_letters(known: &[Known], letters: &[u8]) -> Result<LetterValue, String> {
    for (at, letter) in letters.iter().enumerate() {
        let letter = char::from(*letter);
        match known.iter().find(|option| option.letter == Some(letter)) {
            Some(option) if option.value == HasValue::Yes => {
                return Ok(match at + 1 == letters.len() {
                    true => LetterValue::Next(format!("option requires an argument -- '{letter}'")),
                    false => LetterValue::At(at + 1),
                });
            }
            Some(_) => {}
            None => {
                let shown = String::from_utf8_lossy(&letters[at..=at]);
                return Err(format!("invalid option -- '{}'", message_line(&shown)));
            }
        }
    }
    Ok(LetterValue::None)
}

/// An error of a command line for which GNU's tools hint at their help. Other errors are printed
/// without a hint.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A value that is none of the words that it may be.
    #[error("{0}")]
    Word(String),
    /// Anything else.
    #[error("{0}")]
    Usage(String),
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

/// The value of an option.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    /// By what the option is known.
    id: &'static str,
    /// Its letter, if it has one.
    letter: Option<char>,
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
        word(self.text()?, &format!("--{}", self.id), words)
    }

    /// Returns what is wrong with the value, a size, in the words of GNU's tools.
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
pub fn word<W: Copy + PartialEq>(
    value: &str,
    what: &str,
    words: &[(&str, W)],
) -> anyhow::Result<W> {
    let first = |meaning| words.iter().position(|(_, other)| *other == meaning);
    let known: Vec<_> = words.iter().map(|(word, meaning)| (*word, first(*meaning))).collect();
    Ok(words[word_at(value, what, &known)?].1)
}

/// Returns which of some words, each with what tells words of other meanings apart, a value is or
/// begins.
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
    let told = format!("{wrong} argument {value} for {what}\nValid arguments are:{valid}");
    Err(Wrong::Word(told).into())
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
