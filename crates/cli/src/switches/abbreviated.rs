//! Command lines with abbreviated names of options, as getopt_long(3) reads them.

use super::{Tool, refused};
use crate::outcome::{Refused, Wrong};
use canopy_text::safe::message_line;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Checks the options of a command line as getopt_long(3) does for GNU's tool, and writes out
/// abbreviated names of long options. Options of ours do not make a name ambiguous.
///
/// # Errors
///
/// If an option is unknown or ambiguous, or its value is missing or not allowed.
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
    checked(&known, words.collect()).map_err(|message| refused::<T>(&Wrong::Usage(message).into()))
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
pub(super) enum HasValue {
    No,
    Maybe,
    Yes,
}

/// Returns a command line with whole names of options, or an error message.
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
                    LetterValue::Next(message) => (word, Some(message)),
                    // clap does not count '=' as part of a value.
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
        if let Some(message) = without_value {
            whole.push(words.next().ok_or(message)?);
        }
    }
    whole.extend(words);
    Ok(whole)
}

/// Returns a long option with its whole name. If its value is the next word and there is none, also
/// returns the error message.
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
            let mut message = format!("option '--{shown}' is ambiguous; possibilities:");
            several.iter().for_each(|(name, _)| message += &format!(" '--{name}'"));
            return Err(message);
        }
    };
    if has_value == HasValue::No && !value.is_empty() {
        return Err(format!("option '--{found}' doesn't allow an argument"));
    }
    let without_value = (has_value == HasValue::Yes && value.is_empty())
        .then(|| format!("option '--{found}' requires an argument"));
    Ok((OsString::from_vec([b"--", found.as_bytes(), value].concat()), without_value))
}

/// Returns the long options that a name means or abbreviates. Its meaning to GNU's tool comes
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
    /// In the next word; with the error message if there is none.
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
