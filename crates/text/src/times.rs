//! Times as `--time-style` asks for them, in the C locale.

use crate::error::{Error, Result};
use crate::locale::is_posix_time;
use crate::strftime::{format_time, is_recent};

/// All digits and the zone.
pub(crate) const FULL: &str = "%Y-%m-%d %H:%M:%S.%N %z";

/// Default format of ls(1) for recent times.
pub(crate) const LOCALE_RECENT: &str = "%b %e %H:%M";

/// Default format of ls(1) for other times.
pub(crate) const LOCALE_OTHER: &str = "%b %e  %Y";

/// Formats of strftime(3) for recent and for other times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStyle {
    recent: String,
    other: String,
}

impl Default for TimeStyle {
    /// Returns what ls(1) does by default.
    fn default() -> Self {
        TimeStyle::locale()
    }
}

impl TimeStyle {
    fn of(recent: &str, other: &str) -> Self {
        TimeStyle { recent: recent.to_owned(), other: other.to_owned() }
    }

    /// Returns `full-iso`: all digits and the zone.
    fn full_iso() -> Self {
        TimeStyle::of(FULL, FULL)
    }

    /// Returns `long-iso`: up to minutes, as du(1) does by default.
    pub fn long_iso() -> Self {
        TimeStyle::of("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M")
    }

    /// Returns `locale`: what ls(1) does by default.
    pub fn locale() -> Self {
        TimeStyle::of(LOCALE_RECENT, LOCALE_OTHER)
    }

    /// Returns the style of a name, as du(1) knows it.
    pub fn parse_for_du(text: &str) -> Result<Self> {
        match text.strip_prefix('+') {
            Some(format) => Ok(TimeStyle::of(format, format)),
            None if named("iso", text) => Ok(TimeStyle::of("%Y-%m-%d", "%Y-%m-%d")),
            None if named("long-iso", text) => Ok(TimeStyle::long_iso()),
            None if named("full-iso", text) => Ok(TimeStyle::full_iso()),
            None => Err(unknown(text, "full-iso, long-iso, iso or +FORMAT")),
        }
    }

    /// Returns the style of a name, as ls(1) knows it. `+FORMAT` may have two lines: for other and
    /// for recent times. A style of `posix-` is for all locales but POSIX's.
    pub fn parse_for_ls(text: &str) -> Result<Self> {
        let name = text.trim_start_matches("posix-");
        if name.len() < text.len() && is_posix_time() {
            return Ok(TimeStyle::locale());
        }
        match name.strip_prefix('+') {
            Some(format) => match format.split_once('\n') {
                Some((_, recent)) if recent.contains('\n') => {
                    Err(Error::TimeStyleLines(text.to_owned()))
                }
                Some((other, recent)) => Ok(TimeStyle::of(recent, other)),
                None => Ok(TimeStyle::of(format, format)),
            },
            None if named("locale", name) && !named("long-iso", name) => Ok(TimeStyle::locale()),
            None if named("iso", name) => Ok(TimeStyle::of("%m-%d %H:%M", "%Y-%m-%d ")),
            None if named("long-iso", name) && !named("locale", name) => Ok(TimeStyle::long_iso()),
            None if named("full-iso", name) => Ok(TimeStyle::full_iso()),
            None => Err(unknown(name, "full-iso, long-iso, iso, locale or +FORMAT")),
        }
    }

    /// Shows a time of nanoseconds since 1970 in the local zone.
    pub fn show(&self, time_ns: i64, now_ns: i64) -> String {
        let recent = is_recent(time_ns, now_ns, false);
        format_time(if recent { &self.recent } else { &self.other }, time_ns)
    }
}

fn unknown(style: &str, known: &'static str) -> Error {
    Error::TimeStyle { style: style.to_owned(), known }
}

/// Returns whether a text is a name or the beginning of it.
fn named(name: &str, text: &str) -> bool {
    !text.is_empty() && name.starts_with(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strftime::HALF_YEAR_NS;

    #[test]
    fn half_a_year_is_recent() {
        let style = TimeStyle::parse_for_ls("+other\nrecent").unwrap();
        let now = 2 * HALF_YEAR_NS;
        let shown =
            [now, now - 1, HALF_YEAR_NS + 1, HALF_YEAR_NS].map(|time| style.show(time, now));
        assert_eq!(shown, ["other", "recent", "recent", "other"]);
    }
}
