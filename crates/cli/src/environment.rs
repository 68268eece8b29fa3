//! Variables of the environment that several tools read.

use crate::outcome::message;
use crate::switches::{quoted, word};
use canopy_text::Style;
use canopy_tools::ls::Colors;
use std::os::unix::ffi::OsStringExt;

/// Returns the style of quoting that the environment asks for.
pub fn quoting_style() -> Option<Style> {
    // Empty, it makes no sense either.
    let style = |style: &str| word(style, "", &Style::NAMES).ok().filter(|_| !style.is_empty());
    from_environment("value of", "QUOTING_STYLE", true, style)
}

/// Returns the value of a variable. Warns if it makes no sense. An empty variable counts as one that
/// is not set, unless `empty`.
pub fn from_environment<V>(
    what: &str,
    name: &str,
    empty: bool,
    read: impl FnOnce(&str) -> Option<V>,
) -> Option<V> {
    let said = std::env::var(name).ok().filter(|said| empty || !said.is_empty())?;
    let value = read(&said);
    if value.is_none() {
        let said = quoted(&said);
        message(format_args!("ignoring invalid {what} environment variable {name}: {said}"));
    }
    value
}

/// Returns whether the user wants no colours of any program (see no-color.org).
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Returns the colours of the environment. `None` if they make no sense, or the terminal has none.
pub fn colors() -> Option<Colors> {
    let value = std::env::var_os("LS_COLORS").filter(|value| !value.is_empty());
    if let Some(value) = value {
        let colors = Colors::parse(&value.into_vec());
        if colors.is_none() {
            message("unparsable value for LS_COLORS environment variable");
        }
        return colors;
    }
    let set = std::env::var_os("COLORTERM").is_some_and(|value| !value.is_empty());
    let terminal = std::env::var("TERM").unwrap_or_default();
    (set || knows_colors(&terminal)).then(|| Colors::parse(b"")).flatten()
}

/// Returns whether a terminal of that name has colours, by the database of dircolors(1).
pub fn knows_colors(terminal: &str) -> bool {
    const NAMES: [&str; 17] = [
        "ansi",
        "cons25",
        "console",
        "cygwin",
        "dtterm",
        "gnome",
        "hurd",
        "jfbterm",
        "konsole",
        "kterm",
        "linux",
        "linux-c",
        "mlterm",
        "putty",
        "st",
        "terminator",
        "vt100",
    ];
    const BEGINNINGS: [&str; 5] = ["Eterm", "rxvt", "screen", "tmux", "xterm"];
    NAMES.contains(&terminal)
        || BEGINNINGS.iter().any(|name| terminal.starts_with(name))
        || terminal.contains("color")
        || terminal.contains("direct")
        || (terminal.starts_with("con") && terminal.contains('x'))
}
