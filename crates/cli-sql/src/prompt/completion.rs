//! Completes words of statements and commands.

use canopy::commands::sql::{FormatName, PROMPT_COMMANDS};
use canopy_sql::Session;
use std::collections::BTreeMap;

/// Words of SQL that statements over an index are made of.
const KEYWORDS: [&str; 38] = [
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "SELECT",
    "THEN",
    "UNION",
    "WHEN",
    "WHERE",
];

/// Words that can be completed. Names are sorted within each kind.
pub struct Words {
    tables: Vec<String>,
    columns: Vec<String>,
    functions: Vec<String>,
    /// The columns of each of the index's own tables.
    columns_of: BTreeMap<String, Vec<String>>,
}

impl Words {
    /// Takes the names that a session knows.
    pub fn of(session: &Session) -> Self {
        let own = session.own_tables().map(|table| {
            let columns = session.columns(table).unwrap_or_default();
            (table.to_owned(), columns.into_iter().map(|(column, _)| column).collect())
        });
        Words {
            tables: session.tables(),
            columns: session.own_columns(),
            functions: session.functions(),
            columns_of: own.collect(),
        }
    }

    /// Returns where the word before `at` begins, and its completions: tables behind FROM or JOIN,
    /// columns of a table behind its name or alias and a dot, otherwise columns, functions,
    /// aliases, tables and SQL's own words.
    pub fn complete(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = &line[..at];
        if let Some(command) = before.trim_start().strip_prefix('.') {
            return self.complete_command(before, command);
        }
        let start = word_start(before);
        let word = &before[start..];
        if is_quoted(before) {
            return (start, Vec::new());
        }
        let aliases = aliases(line);
        if let Some(before) = before[..start].strip_suffix('.') {
            let name = before[word_start(before)..].to_lowercase();
            let table = aliases.get(&name).unwrap_or(&name);
            let columns = self.columns_of.get(table).map(Vec::as_slice).unwrap_or_default();
            return (start, matching(columns, word, ""));
        }
        if word.is_empty() && !wants_table(&before[..start]) {
            return (start, Vec::new());
        }
        if wants_table(&before[..start]) {
            return (start, matching(&self.tables, word, ""));
        }
        let mut found = matching(&self.columns, word, "");
        found.extend(matching(&self.functions, word, "("));
        found.extend(matching(&aliases.into_keys().collect::<Vec<_>>(), word, ""));
        found.extend(matching(&self.tables, word, ""));
        found.extend(keywords(word));
        found.dedup();
        (start, found)
    }

    fn complete_command(&self, before: &str, command: &str) -> (usize, Vec<String>) {
        let start = word_start(before);
        let Some((name, _)) = command.split_once(' ') else {
            let names = PROMPT_COMMANDS.map(|(name, ..)| name.to_owned());
            let start = before.len() - command.len() - 1;
            return (start, matching(&names, &format!(".{command}"), ""));
        };
        let values: &[&str] = match name {
            "schema" => return (start, matching(&self.tables, &before[start..], "")),
            "timer" | "pager" => &["off", "on"],
            "maxrows" => &["all"],
            "mode" => &FormatName::OF_PROMPT.map(FormatName::word),
            _ => &[],
        };
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        (start, matching(&values, &before[start..], ""))
    }
}

fn word_start(before: &str) -> usize {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    before
        .rfind(|c| !of_word(c))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
}

/// Returns whether a text is open, in which names mean nothing.
fn is_quoted(before: &str) -> bool {
    before.matches('\'').count() % 2 == 1
}

fn wants_table(before: &str) -> bool {
    let words: Vec<&str> = before.split_whitespace().collect();
    let ends = |word: &str| {
        ["FROM", "JOIN", "DESCRIBE"].iter().any(|known| known.eq_ignore_ascii_case(word))
    };
    before.ends_with(char::is_whitespace) && words.last().is_some_and(|word| ends(word))
}

/// Returns the tables of a statement by their aliases, both in lower case.
fn aliases(statement: &str) -> BTreeMap<String, String> {
    let is_mark = |letter: char| letter.is_whitespace() || ",();".contains(letter);
    let words: Vec<String> =
        statement.split(is_mark).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let is_keyword = |word: &str| {
        let others = ["cross", "full", "natural", "offset", "outer", "right", "using"];
        others.contains(&word) || KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
    };
    let mut found = BTreeMap::new();
    for (at, word) in words.iter().enumerate() {
        if word == "from" || word == "join" {
            let mut behind = words[at + 1..].iter().filter(|word| *word != "as");
            if let (Some(table), Some(alias)) = (behind.next(), behind.next())
                && !is_keyword(alias)
            {
                found.insert(alias.clone(), table.clone());
            }
        }
    }
    found
}

fn matching(names: &[String], word: &str, end: &str) -> Vec<String> {
    let wanted = word.to_lowercase();
    names
        .iter()
        .filter(|name| name.starts_with(&wanted))
        .map(|name| format!("{name}{end}"))
        .collect()
}

/// Returns SQL's words, in the case that was begun.
fn keywords(word: &str) -> Vec<String> {
    let lower = word.starts_with(char::is_lowercase);
    let wanted = word.to_uppercase();
    let found = KEYWORDS.iter().filter(|keyword| keyword.starts_with(&wanted));
    found
        .map(|keyword| if lower { keyword.to_lowercase() } else { (*keyword).to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Words {
            tables: owned(&["directories", "entries"]),
            columns: owned(&["mtime", "size", "size_min"]),
            functions: owned(&["sum", "user_name"]),
            columns_of: BTreeMap::from([
                ("directories".to_owned(), owned(&["mtime", "path"])),
                ("entries".to_owned(), owned(&["mtime", "size"])),
            ]),
        }
    }

    fn complete(line: &str) -> Vec<String> {
        words().complete(line, line.len()).1
    }

    #[test]
    fn words_are_completed_by_where_they_are() {
        assert_eq!(complete("SELECT * FROM e"), ["entries"]);
        assert_eq!(complete("SELECT * FROM "), ["directories", "entries"]);
        assert_eq!(complete("SELECT si"), ["size", "size_min"]);
        assert_eq!(complete("SELECT sum(siz"), ["size", "size_min"]);
        assert_eq!(complete("SELECT us"), ["user_name("]);
        assert_eq!(complete("sel"), ["select"]);
        assert_eq!(complete("SELECT 'fro"), [""; 0]);
        assert_eq!(complete("SELECT ü + si"), ["size", "size_min"]);
        assert_eq!(complete(".sc"), [".schema"]);
        assert_eq!(complete(".schema en"), ["entries"]);
        assert_eq!(complete(".timer o"), ["off", "on"]);
        assert_eq!(complete(".mode ma"), ["markdown"]);
        assert_eq!(words().complete(" .ti", 4).0, 1);
    }

    #[test]
    fn tables_and_aliases_have_columns() {
        assert_eq!(complete("SELECT entries."), ["mtime", "size"]);
        assert_eq!(complete("SELECT * FROM entries AS big WHERE big.s"), ["size"]);
        let line = "SELECT d.p FROM entries e JOIN directories d ON e.path = d.path";
        assert_eq!(words().complete(line, "SELECT d.p".len()).1, ["path"]);
        assert_eq!(complete("SELECT * FROM entries big WHERE bi"), ["big"]);
        assert_eq!(complete("SELECT nothing.s"), [""; 0]);
        assert!(aliases("SELECT * FROM entries WHERE x").is_empty());
    }
}
