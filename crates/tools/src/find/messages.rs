//! Messages of find about entries that it cannot look at, in find(1)'s words.

use canopy_read::links::Resolved;
use canopy_text::locale::is_utf8;

/// The message about a link that the index cannot follow.
pub(crate) const UNKNOWN_TARGET: &str = "the index does not know where this link leads";

/// The message about a link that leads to itself, or through too many others.
pub(crate) const TOO_MANY_LINKS: &str = "Too many levels of symbolic links";

/// The message for a link to a name that is too long for the kernel.
pub(crate) const LONG_NAME: &str = "File name too long";

/// The message about a link that leads through something that is not a directory.
pub(crate) const NOT_A_DIRECTORY: &str = "Not a directory";

/// Returns what is said of a link that leads there; of one that leads to nothing, nothing is said.
pub(crate) fn link_problem(resolved: &Resolved) -> Option<&'static str> {
    match resolved {
        Resolved::Entry(_) | Resolved::Missing => None,
        Resolved::NotDirectory => Some(NOT_A_DIRECTORY),
        Resolved::Loop => Some(TOO_MANY_LINKS),
        Resolved::LongName => Some(LONG_NAME),
        Resolved::Denied => Some("Permission denied"),
        Resolved::Unknown => Some(UNKNOWN_TARGET),
    }
}

/// Returns what is said of an extended attribute that is not what its name says.
pub(crate) fn unknown_value(key: &str) -> String {
    format!("the value of {key} cannot be understood")
}

/// Quotes a path as find(1) does in messages.
pub(crate) fn quoted(path: &[u8]) -> String {
    in_locale(format!("‘{}’", String::from_utf8_lossy(path)))
}

/// Returns a message with the quotation marks of the locale.
pub fn in_locale(message: String) -> String {
    if is_utf8() { message } else { message.replace(['‘', '’'], "'") }
}

/// Returns what is said of a directory that is one of those above it.
pub(crate) fn file_system_loop(shown: &[u8], above: &[u8]) -> String {
    let (shown, above) = (quoted(shown), quoted(above));
    format!("File system loop detected; {shown} is part of the same file system loop as {above}.")
}

/// Returns what the system calls an error, without its number.
pub(crate) fn system_message(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
