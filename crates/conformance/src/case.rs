//! Cases: calls in a fresh directory, each with its caller and the expected reply.

use std::fmt;

/// One case of the suite.
#[derive(Clone, Debug)]
pub struct Case {
    /// A path-like name, `rename/onto-itself`, with the variant in brackets.
    pub name: String,
    /// Features that the file system must have for the case to make sense.
    pub needs: Vec<String>,
    /// Features that it must not have.
    pub lacks: Vec<String>,
    /// Calls in order. The case ends at the first reply that is not the expected one.
    pub steps: Vec<Step>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The caller; see `credentials`.
    pub who: String,
    /// The variable that its value goes to.
    pub variable: Option<String>,
    /// The call and its arguments, in which variables are still to be replaced.
    pub call: String,
    /// Whether the answer is awaited by a later step only (`later`).
    pub later: bool,
    /// The expected reply.
    pub expected: Expected,
}

/// Expected reply of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any value.
    Success,
    /// Words that match those of the value, or the name of an error: each word has alternatives
    /// (`EEXIST|ENOTEMPTY`, where `ok` is any value), is `*` (anything) or excludes (`!5`).
    Words(Vec<String>),
}

/// Reply of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Its value.
    Value(String),
    /// The name of an error.
    Errno(String),
    /// A fault of the suite, or of the process that makes calls.
    Broken(String),
}

impl Expected {
    /// Reads what stands behind `=>`.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "ok" => Self::Success,
            text => Self::Words(text.split_ascii_whitespace().map(str::to_owned).collect()),
        }
    }

    /// Whether an answer is as expected.
    pub fn matches(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (_, Reply::Broken(_)) => false,
            (Self::Success, reply) => matches!(reply, Reply::Value(_)),
            (Self::Words(words), Reply::Errno(errno)) => {
                let [word] = &words[..] else { return false };
                word.split('|').any(|alternative| alternative == errno)
            }
            (Self::Words(words), Reply::Value(value)) => {
                let any = words.len() == 1 && words[0].split('|').any(|word| word == "ok");
                let mut told = value.split_ascii_whitespace();
                let same = words.iter().all(|word| told.next().is_some_and(|one| fits(word, one)));
                any || (same && told.next().is_none())
            }
        }
    }

    /// Replaces the variables in it, whose values may be several words.
    pub fn replaced(&self, replace: impl Fn(&str) -> String) -> Self {
        match self {
            Self::Success => Self::Success,
            Self::Words(words) => Self::parse(&replace(&words.join(" "))),
        }
    }
}

fn fits(word: &str, told: &str) -> bool {
    match word.strip_prefix('!') {
        Some(excluded) => told != excluded,
        None => word == "*" || word.split('|').any(|alternative| alternative == told),
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Success => formatter.write_str("success"),
            Self::Words(words) => formatter.write_str(&words.join(" ")),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Value(value) if value.is_empty() => formatter.write_str("success"),
            Self::Value(text) | Self::Errno(text) => formatter.write_str(text),
            Self::Broken(reason) => write!(formatter, "no answer ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_match_by_word() {
        let value = |text: &str| Reply::Value(text.to_owned());
        let errno = |text: &str| Reply::Errno(text.to_owned());
        for (expected, reply, matches) in [
            ("ok", value("5"), true),
            ("ok", errno("EIO"), false),
            ("EIO|ENOSPC", errno("ENOSPC"), true),
            ("EIO", value(""), false),
            ("ok|EPERM", value("5"), true),
            ("file 0644", value("file 0644"), true),
            ("file *", value("file 0644"), true),
            ("file", value("file 0644"), false),
            ("!5 1|2", value("6 2"), true),
            ("!5", value("5"), false),
        ] {
            assert_eq!(Expected::parse(expected).matches(&reply), matches, "{expected} {reply}");
        }
        assert!(!Expected::Success.matches(&Reply::Broken("lost".to_owned())));
    }
}
