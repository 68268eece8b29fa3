//! Limits of users and groups, from a table of the administrator's: CSV, whose first line names its
//! columns `user`, `group`, `bytes` and `files`.

use canopy_model::ErrorKind;
use canopy_text::{group_id, parse_size, user_id};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits of users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub(super) users: BTreeMap<u32, Limit>,
    pub(super) groups: BTreeMap<u32, Limit>,
}

/// The limits of one owner; `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Limit of space, in bytes.
    pub(super) bytes: Option<i64>,
    /// Limit of inodes.
    pub(super) inodes: Option<i64>,
}

/// A line of a table of limits that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LimitsError {
    line: usize,
    reason: String,
}

impl LimitsError {
    /// Returns the kind, by which callers handle the error.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

const COLUMNS: [&str; 4] = ["user", "group", "bytes", "files"];

impl Limits {
    /// Reads a table. Users and groups are names or ids, `bytes` may have a unit (`20G`).
    pub fn parse(text: &str) -> Result<Self, LimitsError> {
        let mut limits = Limits::default();
        let mut columns: Option<Vec<String>> = None;
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let wrong = |reason: String| LimitsError { line: number + 1, reason };
            if line.trim().is_empty() {
                continue;
            }
            let values = values(line).map_err(|reason| wrong(reason.to_owned()))?;
            match &columns {
                None => columns = Some(titles(values).map_err(wrong)?),
                Some(columns) => limits.add(columns, &values).map_err(wrong)?,
            }
        }
        match columns {
            Some(_) => Ok(limits),
            None => Err(LimitsError { line: 1, reason: "no names of columns".to_owned() }),
        }
    }

    /// Returns the limit of a user, if there is one.
    pub fn of_user(&self, uid: u32) -> Option<Limit> {
        self.users.get(&uid).copied()
    }

    /// Sets the limit of a user.
    pub fn set_user(&mut self, uid: u32, limit: Limit) {
        self.users.insert(uid, limit);
    }

    fn add(&mut self, columns: &[String], values: &[String]) -> Result<(), String> {
        if values.len() != columns.len() {
            return Err(format!("{} values, expected {}", values.len(), columns.len()));
        }
        let value = |column: &str| {
            let at = columns.iter().position(|known| known == column);
            at.map_or("", |at| &*values[at])
        };
        let (owners, id) = match (value("user"), value("group")) {
            ("", "") => return Err("neither a user nor a group".to_owned()),
            (user, "") => {
                (&mut self.users, user_id(user).ok_or_else(|| format!("no such user '{user}'"))?)
            }
            ("", group) => {
                let id = group_id(group).ok_or_else(|| format!("no such group '{group}'"))?;
                (&mut self.groups, id)
            }
            _ => return Err("both a user and a group".to_owned()),
        };
        let limit = Limit {
            bytes: number("bytes", value("bytes"), |text| parse_size(text).ok())?,
            inodes: number("files", value("files"), |text| text.parse().ok())?,
        };
        match owners.insert(id, limit) {
            Some(_) => Err(format!("a second limit of id {id}")),
            None => Ok(()),
        }
    }
}

fn titles(values: Vec<String>) -> Result<Vec<String>, String> {
    for (at, title) in values.iter().enumerate() {
        if !COLUMNS.contains(&title.as_str()) {
            return Err(format!("no column is called '{title}'; there are {}", COLUMNS.join(", ")));
        }
        if values[..at].contains(title) {
            return Err(format!("two columns are called '{title}'"));
        }
    }
    Ok(values)
}

fn number(
    column: &str,
    text: &str,
    parse: impl Fn(&str) -> Option<u64>,
) -> Result<Option<i64>, String> {
    // '010' is ten here, whatever it is in C.
    let digits = text.trim_start_matches('0');
    let digits = if digits.starts_with(|c: char| c.is_ascii_digit()) { digits } else { text };
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(['x', 'X']);
    let number = plain.then(|| parse(digits)).flatten().and_then(|n| i64::try_from(n).ok());
    match text {
        "" => Ok(None),
        _ => number.map(Some).ok_or_else(|| format!("{column}: got '{text}', expected a number")),
    }
}

/// Takes a line of CSV apart, without blanks around values.
fn values(line: &str) -> Result<Vec<String>, &'static str> {
    let mut values = Vec::new();
    let mut rest = line.trim();
    loop {
        let (value, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        values.push(value);
        match behind.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if behind.is_empty() => return Ok(values),
            None => return Err("text behind a quotation mark"),
        }
    }
}

/// Returns what stands before the quotation mark at the end, and what comes behind it.
fn quoted_value(quoted: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut rest = quoted;
    loop {
        let end = rest.find('"').ok_or("a quotation mark without its other one")?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                value.push('"');
                rest = next;
            }
            None => return Ok((value, rest.trim_start())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_limits() {
        let text =
            "\u{feff}user, bytes,files,group\r\n4001,1K,,\r\n\n \"4002\" ,010,0,\n,,7,\"4003\"\n";
        let limits = Limits::parse(text).unwrap();
        let limit = |bytes, inodes| Limit { bytes, inodes };
        let users = [(4001, limit(Some(1024), None)), (4002, limit(Some(10), Some(0)))];
        assert_eq!(limits.users, BTreeMap::from(users));
        assert_eq!(limits.groups, BTreeMap::from([(4003, limit(None, Some(7)))]));
    }

    #[test]
    fn wrong_tables_tell_their_line() {
        for (text, message) in [
            ("", "line 1: no names of columns"),
            ("user,byte\n", "line 1: no column is called 'byte'"),
            ("user,user\n", "line 1: two columns are called 'user'"),
            ("user,bytes\n1,2,3\n", "line 2: 3 values, expected 2"),
            ("user,bytes\n\n,2\n", "line 3: neither a user nor a group"),
            ("user,group\n1,2\n", "line 2: both a user and a group"),
            ("user\nno-such-user-here\n", "line 2: no such user 'no-such-user-here'"),
            ("group\nno-such-group-here\n", "line 2: no such group"),
            ("user,bytes\n1,-5\n", "line 2: bytes: got '-5', expected a number"),
            ("user,bytes\n1,12Q9\n", "line 2: bytes: got"),
            ("user,bytes\n1,99E\n", "line 2: bytes: got"),
            ("user,files\n1,1K\n", "line 2: files: got '1K'"),
            ("user,files\n1,1\n01,2\n", "line 3: a second limit of id 1"),
            ("user\n\"1\n", "line 2: a quotation mark without its other one"),
            ("user\n\"1\"x\n", "line 2: text behind a quotation mark"),
        ] {
            let error = Limits::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }
}
