//! Patterns of `LIKE ... ESCAPE` and `SIMILAR TO` in the engine's words, by functions that
//! PostgreSQL has too.

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{Signature, SimpleScalarUDF, TypeSignature, Volatility};
use datafusion::prelude::SessionContext;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

/// The function that makes a pattern of LIKE with another escape character one with a backslash.
pub(super) const LIKE: &str = "like_escape";

/// The function that makes a pattern of SIMILAR TO a regular expression.
pub(super) const SIMILAR: &str = "similar_to_escape";

/// Makes both functions known.
pub(crate) fn register(context: &SessionContext) {
    add(context, LIKE, &[2], like);
    add(context, SIMILAR, &[1, 2], similar);
}

type Translate = fn(&str, Option<char>) -> Result<String, String>;

fn add(context: &SessionContext, name: &str, arguments: &[usize], translate: Translate) {
    let kinds = arguments.iter().map(|count| TypeSignature::Exact(vec![DataType::Utf8; *count]));
    let signature = Signature::one_of(kinds.collect(), Volatility::Immutable);
    let function = move |arrays: &[ArrayRef]| translated(arrays, translate);
    let function = Arc::new(make_scalar_function(function, Vec::new()));
    let function = SimpleScalarUDF::new_with_signature(name, signature, DataType::Utf8, function);
    context.register_udf(function.into());
}

fn translated(arrays: &[ArrayRef], translate: Translate) -> Result<ArrayRef> {
    let patterns = arrays[0].as_string::<i32>();
    let escapes = arrays.get(1).map(|escapes| escapes.as_string::<i32>());
    let of_row = |(row, pattern): (usize, Option<&str>)| {
        let Some(pattern) = pattern else { return Ok(None) };
        let escape = match escapes {
            None => Some('\\'),
            Some(escapes) if escapes.is_null(row) => return Ok(None),
            Some(escapes) => escape_character(escapes.value(row))?,
        };
        translate(pattern, escape).map(Some).map_err(DataFusionError::Execution)
    };
    let rows = patterns.iter().enumerate().map(of_row);
    Ok(Arc::new(rows.collect::<Result<StringArray>>()?))
}

/// Returns the only character of a text; `None` of an empty one.
fn escape_character(text: &str) -> Result<Option<char>> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (escape, None) => Ok(escape),
        _ => {
            Err(DataFusionError::Execution(format!("ESCAPE takes one character, and not '{text}'")))
        }
    }
}

fn ends() -> String {
    "the pattern ends with its escape character, which stands before another one".to_owned()
}

/// Makes a pattern of LIKE one whose escape character is a backslash.
fn like(pattern: &str, escape: Option<char>) -> Result<String, String> {
    let mut made = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            made.push('\\');
            made.push(letters.next().ok_or_else(ends)?);
        } else if letter == '\\' {
            made.push_str("\\\\");
        } else {
            made.push(letter);
        }
    }
    Ok(made)
}

/// Makes a pattern of SIMILAR TO a regular expression of the whole text: `%` and `_` as in LIKE,
/// and `| * + ? {m,n} ( ) [...]` of regular expressions, but neither `.` nor `^` nor `$`.
fn similar(pattern: &str, escape: Option<char>) -> Result<String, String> {
    let mut made = String::with_capacity(pattern.len() + 16);
    made.push_str("^(?s:");
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            letter if Some(letter) == escape => made.push_str(&escaped(letters.next(), letter)?),
            '%' => made.push_str(".*"),
            '_' => made.push('.'),
            '(' => made.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => made.push(letter),
            '[' => bracket(&mut letters, escape, &mut made)?,
            letter => made.push_str(&literal(letter)),
        }
    }
    made.push_str(")$");
    Ok(made)
}

/// Returns a letter behind the escape character, which stands for itself. PostgreSQL takes `\\d` and
/// its like for classes, which have names here.
fn escaped(letter: Option<char>, escape: char) -> Result<String, String> {
    match letter.ok_or_else(ends)? {
        letter if letter.is_ascii_alphanumeric() => Err(format!(
            "{escape}{letter} in a pattern of SIMILAR TO is not known: write [0-9] or [[:digit:]], \
             [[:alnum:]_], [[:space:]]; x ~ '...' takes regular expressions"
        )),
        letter => Ok(literal(letter)),
    }
}

fn literal(letter: char) -> String {
    regex::escape(letter.encode_utf8(&mut [0; 4]))
}

/// Copies the text between brackets.
fn bracket(
    letters: &mut Peekable<Chars<'_>>,
    escape: Option<char>,
    made: &mut String,
) -> Result<(), String> {
    made.push('[');
    if letters.next_if_eq(&'^').is_some() {
        made.push('^');
    }
    if letters.next_if_eq(&']').is_some() {
        made.push_str("\\]");
    }
    loop {
        match letters.next().ok_or("a [ in the pattern has no ]")? {
            ']' => break,
            '[' if letters.next_if_eq(&':').is_some() => class(letters, made)?,
            letter if Some(letter) == escape => made.push_str(&escaped(letters.next(), letter)?),
            '-' => made.push('-'),
            letter => made.push_str(&literal(letter)),
        }
    }
    made.push(']');
    Ok(())
}

/// Copies the rest of a class such as `[:alpha:]`.
fn class(letters: &mut Peekable<Chars<'_>>, made: &mut String) -> Result<(), String> {
    made.push_str("[:");
    while let Some(letter) = letters.next_if(char::is_ascii_lowercase) {
        made.push(letter);
    }
    if letters.next_if_eq(&':').is_none() || letters.next_if_eq(&']').is_none() {
        return Err("a [: in the pattern has no :]".to_owned());
    }
    made.push_str(":]");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn other_escape_characters_become_backslashes() {
        for (pattern, escape, made) in [
            ("50!%", Some('!'), Ok("50\\%")),
            ("a!!b%", Some('!'), Ok("a\\!b%")),
            ("a\\b!_", Some('!'), Ok("a\\\\b\\_")),
            ("a\\%", None, Ok("a\\\\%")),
            ("a\\%", Some('\\'), Ok("a\\%")),
            ("ü日_", Some('日'), Ok("ü\\_")),
            ("a!", Some('!'), Err(ends())),
        ] {
            assert_eq!(like(pattern, escape), made.map(str::to_owned), "{pattern}");
        }
    }

    /// Each line is an answer of PostgreSQL 16.
    #[test]
    fn similar_to_is_of_the_whole_text() {
        for (text, pattern, is_similar) in [
            ("a.txt", "%.txt", true),
            ("atxt", "%.txt", false),
            ("foobar", "foo", false),
            ("foobar", "foo%", true),
            ("abc", "_b_", true),
            ("abc", "(a|x)%", true),
            ("xbc", "(a|x)bc|y", true),
            ("zbc", "(a|x)bc|y", false),
            ("y", "(a|x)bc|y", true),
            ("aaa", "a+", true),
            ("aaa", "a{2}", false),
            ("aaa", "a{2,3}", true),
            ("a^b$", "a^b$", true),
            ("ab", "a.", false),
            ("a%", "a\\%", true),
            ("ab", "a\\%", false),
            ("run7", "run[0-9]", true),
            ("runx", "run[^0-9]", true),
            ("run7", "run[[:digit:]]", true),
            ("runx", "run[[:digit:]_x]", true),
            ("a]", "a[]]", true),
            ("a&&b", "a[&]+b", true),
            ("a~b", "a[~-]b", true),
            ("a-b", "a[~-]b", true),
            ("two\nlines", "two%", true),
            ("", "%", true),
            ("", "", true),
            ("a", "", false),
        ] {
            let made = similar(pattern, Some('\\')).unwrap();
            let regex = Regex::new(&made).unwrap_or_else(|error| panic!("{made}: {error}"));
            assert_eq!(regex.is_match(text), is_similar, "{text} {pattern}: {made}");
        }
        assert_eq!(similar("a!%", Some('!')).unwrap(), "^(?s:a%)$");
        assert!(similar("run\\d+", Some('\\')).unwrap_err().contains("[0-9]"));
        assert!(similar("[\\w]", Some('\\')).is_err());
        assert!(similar("a\\", Some('\\')).is_err());
        assert!(similar("[a", Some('\\')).is_err());
        assert!(Regex::new(&similar("(", Some('\\')).unwrap()).is_err());
    }
}
