//! Messages for statements that the engine refuses: they say how to fix a statement, and where.

use crate::error::{Error, StatementPosition};
use arrow::error::ArrowError;
use canopy_text::safe::{message_line, table_cell};
use canopy_text::{group_id, user_id};
use datafusion::common::utils::datafusion_strsim::normalized_levenshtein;
use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::functions_window::all_default_window_functions;
use datafusion::sql::sqlparser::parser::ParserError;
use std::collections::BTreeSet;
use unicode_width::UnicodeWidthStr;

/// How alike two names are at least, from 0 to 1, for one to be meant by the other.
const ALIKE: f64 = 0.5;

/// Letters of a line of a statement that are shown at most with the place of an error: a terminal
/// has room for them.
const LINE_MAX: usize = 76;

/// Letters that are shown behind the place at least, where there are as many.
const BEHIND: usize = 24;

/// Marks letters that are not shown.
const CUT: &str = "...";

const CHANGES_NOTHING: &str =
    "queries change nothing: statements are SELECT, EXPLAIN, DESCRIBE and SHOW";

/// The form of times, behind an error.
const TIMES: &str = "; times are written as '2026-06-01', '2026-06-01 12:00', or now() - INTERVAL \
                     '7 days'";

/// Suggests types with more digits, after a message that a result has too many.
const WIDER: &str = "; CAST(x AS DECIMAL(38, 0)) has 38 digits, and CAST(x AS DOUBLE) any size";

/// First words of statements that would change something, here or elsewhere.
const CHANGES: [&str; 23] = [
    "ALTER", "ANALYZE", "ATTACH", "BEGIN", "COMMIT", "COPY", "CREATE", "DELETE", "DROP", "GRANT",
    "INSERT", "LOAD", "MERGE", "PRAGMA", "REPLACE", "RESET", "REVOKE", "ROLLBACK", "SET",
    "TRUNCATE", "UPDATE", "USE", "VACUUM",
];

/// Turns an error of the engine into one of ours: its cause, without the engine's context.
pub(super) fn refusal(error: &DataFusionError) -> Error {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    let place = span.map(|span| StatementPosition::At(span.start.line, span.start.column));
    let said = match error.find_root() {
        DataFusionError::SQL(error, _) => match &**error {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
                let (text, place) = without_place(text);
                return Error::Refused { said: syntax(text), place };
            }
            ParserError::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
        },
        DataFusionError::SchemaError(error, _) => schema(error),
        DataFusionError::Plan(text) => match table(text) {
            Some(name) if name.contains('/') => {
                let files = "queries read tables, and files that 'canopy table add' has added";
                format!("no table '{name}': {files}")
            }
            Some(name) => return Error::NoTable { name: name.to_owned(), place },
            None => plan(without_backtrace(text)),
        },
        DataFusionError::ArrowError(error, _) => computation(error),
        DataFusionError::Execution(text) => plan(without_backtrace(text)),
        DataFusionError::NotImplemented(text) => not_implemented(without_backtrace(text)),
        other => match other.strip_backtrace() {
            text if text.contains("regex parse error") => regular_expression(&text),
            text => text,
        },
    };
    Error::Refused { said, place }
}

fn without_backtrace(text: &str) -> &str {
    text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default()
}

/// Returns the name of a missing table, if the planner reports one.
fn table(text: &str) -> Option<&str> {
    let name = without_backtrace(text).strip_prefix("table '")?.strip_suffix("' not found")?;
    let name = name.strip_prefix("datafusion.").unwrap_or(name);
    Some(name.strip_prefix("public.").unwrap_or(name))
}

/// Divides a message of the parser into the fault and its place; the end has no place.
fn without_place(text: &str) -> (&str, Option<StatementPosition>) {
    if text.ends_with("found: EOF") {
        return (text, Some(StatementPosition::End));
    }
    let Some((said, place)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let place = place.split_once(", Column: ");
    let place = place.and_then(|(line, column)| {
        Some(StatementPosition::At(line.parse().ok()?, column.trim().parse().ok()?))
    });
    (said, place)
}

fn not_implemented(text: &str) -> String {
    match text {
        "TOP" | "FETCH clause is not supported yet" => {
            "so many rows are asked for by LIMIT at the end, as LIMIT 5".to_owned()
        }
        _ if text.contains(": RLike {") => {
            "regular expressions are asked for by ~, as name ~ '^run[0-9]'".to_owned()
        }
        _ if text.starts_with("Unsupported ast node in ") => {
            let node = text.split(": ").nth(1).unwrap_or(text);
            format!("not known here: {}", node.split([' ', '(', '{']).next().unwrap_or(node))
        }
        // The engine appends its parse tree; cut it off.
        _ => format!("not implemented: {}", lower(text.split(" {").next().unwrap_or(text))),
    }
}

/// Describes a syntax error of the parser.
fn syntax(text: &str) -> String {
    let said = text.strip_prefix("sql parser error: ").unwrap_or(text);
    let expected = said.strip_prefix("Expected: ").and_then(|rest| rest.split_once(", found: "));
    match expected {
        Some((wanted, "EOF")) => format!("expected {wanted}, but the statement ends"),
        Some(("end of statement", unit)) if is_unit(unit) => {
            format!("expected end of statement, found '{unit}'; sizes are numbers of bytes")
        }
        Some((wanted, "GLOB")) => {
            format!("expected {wanted}, found 'GLOB'; patterns are LIKE '%.txt' and ~ '[.]txt$'")
        }
        Some((wanted, found)) => format!("expected {wanted}, found '{found}'"),
        None if said.starts_with("Expected close delimiter") => {
            "unterminated name in quotes".to_owned()
        }
        None => lower(said),
    }
}

/// Returns whether a word is a unit that people write behind a number of bytes.
fn is_unit(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    let word = word.trim_end_matches('B').trim_end_matches('I');
    matches!(word, "K" | "M" | "G" | "T" | "P")
}

fn schema(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            let name = field.name();
            format!("'{name}' is a column of several tables: write the table before it, t.{name}")
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            format!("there are two columns '{name}': give one another name with AS")
        }
    }
}

/// Says that there is no such column, which may be meant, and names all.
fn no_column(field: &Column, valid: &[Column]) -> String {
    let relations: BTreeSet<String> =
        valid.iter().filter_map(|column| Some(column.relation.as_ref()?.to_string())).collect();
    let name = |column: &Column| match &column.relation {
        Some(relation) if relations.len() > 1 => format!("{relation}.{}", column.name),
        _ => column.name.clone(),
    };
    let mut names: Vec<String> = Vec::new();
    for name in valid.iter().map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let asked = match &field.relation {
        Some(relation) if !relations.is_empty() && !relations.contains(&relation.to_string()) => {
            let relations = Vec::from_iter(relations).join(", ");
            return format!("no table or alias '{relation}' after FROM; there is {relations}");
        }
        Some(relation) => format!("{relation}.{}", field.name),
        None => field.name.clone(),
    };
    let hint = match nearest(&field.name, valid.iter().map(Column::name)) {
        // Without quotes it would be in lower case.
        Some(meant) if meant.contains(char::is_uppercase) => {
            format!("; did you mean '\"{meant}\"'?")
        }
        Some(meant) => format!("; did you mean '{meant}'?"),
        None if field.relation.is_some() => String::new(),
        None => "; text stands in single quotes, and names in double ones".to_owned(),
    };
    match names.is_empty() {
        true => format!("no column '{asked}'"),
        false => format!("no column '{asked}'{hint} (columns: {})", names.join(", ")),
    }
}

/// Describes an error of the planner.
fn plan(text: &str) -> String {
    if text.starts_with("DDL not supported")
        || text.starts_with("DML not supported")
        || text.starts_with("Statement not supported")
    {
        return CHANGES_NOTHING.to_owned();
    }
    if let Some(rest) = text.strip_prefix("Invalid function '") {
        let (name, rest) = rest.split_once('\'').unwrap_or((rest, ""));
        let meant = rest.split('\'').nth(1).unwrap_or_default();
        if all_default_window_functions().iter().any(|function| function.name() == name) {
            return format!("{name}() is of rows in an order: {name}() OVER (ORDER BY x)");
        }
        let hint = nearest(name, std::iter::once(meant));
        let hint = hint.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default();
        return format!("no function '{name}'{hint}");
    }
    if text.contains("must appear in the GROUP BY clause") {
        let column = text.split("column \"").nth(1).and_then(|rest| rest.split('"').next());
        let column = column.map(|name| name.rsplit('.').next().unwrap_or(name)).unwrap_or("x");
        let ways = format!("min({column}) or count({column})");
        return format!("'{column}' has to be in GROUP BY or in an aggregate function, as {ways}");
    }
    if let Some(rest) = text.strip_prefix("Cannot coerce arithmetic expression ") {
        let operation = rest.strip_suffix(" to valid types").unwrap_or(rest);
        let hint = match operation.contains("Timestamp") {
            true => "; a time and a span of it are added, as now() - INTERVAL '7 days'",
            false => "",
        };
        return format!("cannot compute {}{hint}", in_words(operation));
    }
    if let Some(rest) =
        text.strip_prefix("Cannot infer common argument type for comparison operation ")
    {
        let hint = if rest.contains("Timestamp") { TIMES } else { "" };
        return format!("cannot compare {}{hint}", in_words(rest));
    }
    if let Some(rest) = text.strip_prefix("There isn't a common type to coerce ") {
        let types = rest.split(" in ").next().unwrap_or(rest);
        return format!("cannot compare {}", in_words(types).replace(" and ", " with "));
    }
    if text.starts_with("Substring without for/from") {
        return "substr takes a text, from which letter and how many, as substr(name, 1, 3)"
            .to_owned();
    }
    if let Some(rest) = text.strip_prefix("Placeholder '") {
        let name = rest.split('\'').next().unwrap_or(rest);
        return format!("there are no parameters: write a value in place of {name}");
    }
    if let Some((said, of)) = text.rsplit_once(" expression, got ") {
        return format!("{} expression, got {}", lower(said), in_words(of));
    }
    if let Some(call) = text.split("given name and argument types '").nth(1) {
        return no_call(call);
    }
    // Options of the engine are nothing that a user could set.
    let said = text.split(" or disable the datafusion.").next().unwrap_or(text);
    lower(said)
}

/// Returns that a function does not take such arguments, and those that it takes: of `sum(Utf8)'.
/// ... Candidate functions:\n\tsum(Int64)\n...`.
fn no_call(text: &str) -> String {
    let (call, rest) = text.split_once('\'').unwrap_or((text, ""));
    let mut candidates: Vec<String> = Vec::new();
    // Skip candidates of functions that check their types themselves: they carry no information.
    let lines = rest.lines().skip(1).filter(|line| line.starts_with('\t') && line.contains('('));
    for line in lines.filter(|line| !line.contains("UserDefined")) {
        let candidate = signature(line.trim());
        if !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    let said = format!("there is no {}", signature(call));
    if candidates.contains(&signature(call)) {
        // In words, both are the same.
        let lines =
            rest.lines().skip(1).filter(|line| line.starts_with('\t') && line.contains('('));
        let lines: Vec<&str> = lines.map(str::trim).collect();
        return format!("there is no {call}, but {}", lines.join(", "));
    }
    match candidates.is_empty() {
        true => said,
        false => format!("{said}, but {}", candidates.join(", ")),
    }
}

/// Returns a function with its types in words: `sum(Int64)` becomes `sum(number)`.
fn signature(call: &str) -> String {
    let Some((name, types)) = call.split_once('(') else { return call.to_owned() };
    let types = types.strip_suffix(')').unwrap_or(types);
    format!("{name}({})", in_words(types))
}

/// Returns a text with the types of the engine in it in words: `Timestamp(ns, "UTC") > Int64`
/// becomes `time > number`.
fn in_words(text: &str) -> String {
    let mut depth = 0;
    let mut outer = String::new();
    for letter in text.chars() {
        depth += i32::from(letter == '(');
        if depth <= 0 {
            outer.push(letter);
        }
        depth -= i32::from(letter == ')');
    }
    let words = outer.split(' ').map(|word| {
        let bare = word.trim_end_matches(',');
        type_name(bare).map_or(word.to_owned(), |of| format!("{of}{}", &word[bare.len()..]))
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a word for a type of the engine.
fn type_name(word: &str) -> Option<&'static str> {
    let begins = |names: &[&str]| names.iter().any(|name| word.starts_with(name));
    Some(if begins(&["Int", "UInt", "Float", "Decimal", "Numeric"]) {
        match word.starts_with("Interval") {
            true => "interval",
            false => "number",
        }
    } else if begins(&["Utf8", "LargeUtf8", "String"]) {
        "text"
    } else if begins(&["Timestamp", "Date", "Time"]) {
        "time"
    } else if begins(&["Boolean"]) {
        "truth value"
    } else if begins(&["Duration"]) {
        "duration"
    } else if word == "Any" {
        "value"
    } else {
        return None;
    })
}

/// Describes a computation that fails for some row.
fn computation(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero; nullif(x, 0) makes it NULL".to_owned(),
        ArrowError::CastError(text) => {
            let said = text.strip_prefix("Cannot cast string ");
            let said = said.and_then(|rest| rest.strip_suffix(" type"));
            match said.and_then(|rest| rest.rsplit_once(" to value of ")) {
                Some((value, kind)) => {
                    let kind = type_name(kind).unwrap_or(kind);
                    format!("{value} is not a {kind}{}", of_number(value.trim_matches('\'')))
                }
                None => lower(text),
            }
        }
        ArrowError::ParseError(text) => match text.strip_prefix("Error parsing timestamp from ") {
            Some(rest) => {
                let value = rest.split("': ").next().unwrap_or(rest);
                format!("{value}' is not a time{TIMES}")
            }
            None => lower(text),
        },
        ArrowError::ArithmeticOverflow(text) | ArrowError::ComputeError(text) => {
            let overflow = ["Overflow happened on: ", " overflow on "];
            let operation = overflow.into_iter().find_map(|words| Some(text.split_once(words)?.1));
            match text.strip_prefix("Regular expression did not compile: ").unwrap_or(text) {
                text if text.contains("regex parse error") => regular_expression(text),
                text => match operation {
                    Some(operation) => format!("the result is too large: {operation}{WIDER}"),
                    None => lower(text),
                },
            }
        }
        other => other.to_string(),
    }
}

/// Returns the likely meaning of a text where a number has to be.
fn of_number(text: &str) -> &'static str {
    let end = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    if end.len() < text.len() && is_unit(end) {
        "; sizes are numbers of bytes"
    } else if text.parse::<u32>().is_err() && user_id(text).or_else(|| group_id(text)).is_some() {
        "; names of owners are user_name(uid) and group_name(gid)"
    } else {
        ""
    }
}

/// Describes the fault of a regular expression in a line.
pub(super) fn regular_expression(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let why = lines.iter().rev().find_map(|line| line.strip_prefix("error: "));
    format!("wrong regular expression: {}", why.unwrap_or(text))
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        // Words such as GROUP stay.
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let nearest = known
        .map(|known| (normalized_levenshtein(&known.to_lowercase(), &name), known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    nearest.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, known)| known)
}

/// Says that there is no such table, which of those that there are may be meant, and names all.
pub(super) fn no_table(name: &str, tables: &[String]) -> String {
    let meant = match nearest(name, tables.iter().map(String::as_str)) {
        Some(table) => format!("; did you mean '{table}'?"),
        None => String::new(),
    };
    format!("no table '{name}'{meant} (tables: {})", tables.join(", "))
}

/// Describes the fault of a statement, with its line and a mark below the place.
pub(super) fn of_statement(
    said: &str,
    statement: &str,
    place: Option<StatementPosition>,
) -> String {
    let word =
        statement.split(|letter: char| !letter.is_alphanumeric()).find(|word| !word.is_empty());
    if word.is_some_and(|word| CHANGES.contains(&word.to_uppercase().as_str())) {
        return CHANGES_NOTHING.to_owned();
    }
    // Values that cannot be computed with are in it.
    let said = message_line(said);
    let lines: Vec<&str> = statement.trim_end().lines().collect();
    let (line, column) = match place {
        Some(StatementPosition::At(line, column)) => (line as usize, column as usize),
        Some(StatementPosition::End) => {
            (lines.len(), lines.last().map_or(0, |line| line.chars().count()) + 1)
        }
        None => return said.into_owned(),
    };
    let Some(text) = line.checked_sub(1).and_then(|line| lines.get(line)) else {
        return said.into_owned();
    };
    let (shown, width) = around(text, column.saturating_sub(1));
    format!("{said}\n  {shown}\n  {:width$}^", "")
}

/// Returns the visible part of a line around a place in it, and its distance from the beginning.
fn around(line: &str, place: usize) -> (String, usize) {
    let count = line.chars().count();
    let (mut from, mut to) = (0, count);
    if count > LINE_MAX {
        to = count.min(LINE_MAX.max(place + BEHIND));
        from = to.saturating_sub(LINE_MAX);
    }
    let part = |from: usize, to: usize| {
        let part: String = line.chars().skip(from).take(to.saturating_sub(from)).collect();
        table_cell(&part, false).into_owned()
    };
    let (begin, end) = (if from > 0 { CUT } else { "" }, if to < count { CUT } else { "" });
    let place = place.min(count);
    let before = format!("{begin}{}", part(from + begin.len(), place));
    let behind = format!("{}{end}", part(place, to - end.len()));
    let width = before.width();
    (before + &behind, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: DataFusionError) -> String {
        refusal(&error).to_string()
    }

    fn plan(text: &str) -> String {
        said(DataFusionError::Plan(text.to_owned()))
    }

    fn parsed(text: &str) -> (String, Option<StatementPosition>) {
        let error = ParserError::ParserError(text.to_owned());
        match refusal(&DataFusionError::SQL(Box::new(error), None)) {
            Error::Refused { said, place } => (said, place),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_tell_what_is_meant() {
        assert_eq!(plan("table 'datafusion.public.entres' not found"), "no table 'entres'");
        assert_eq!(plan("table 'datafusion.gufi.x' not found"), "no table 'gufi.x'");
        assert!(plan("table 'datafusion.public./etc/x' not found").contains("canopy table add"));
        assert!(plan("DDL not supported: DropTable").starts_with("queries change nothing"));
        let tables = ["directories", "entries", "xattrs"].map(str::to_owned);
        assert_eq!(
            no_table("entres", &tables),
            "no table 'entres'; did you mean 'entries'? (tables: directories, entries, xattrs)"
        );
        assert!(no_table("weather", &tables).starts_with("no table 'weather' (tables: "));
    }

    #[test]
    fn the_parser_is_put_into_words() {
        let text = "Expected: an SQL statement, found: SELEC at Line: 1, Column: 1";
        let expected = "expected an SQL statement, found 'SELEC'".to_owned();
        assert_eq!(parsed(text), (expected, Some(StatementPosition::At(1, 1))));
        let expected = "expected an expression, but the statement ends".to_owned();
        assert_eq!(
            parsed("Expected: an expression, found: EOF"),
            (expected, Some(StatementPosition::End))
        );
        let (said, _) = parsed("Expected: end of statement, found: GiB at Line: 1, Column: 44");
        assert!(said.ends_with("sizes are numbers of bytes"), "{said}");
        assert_eq!(parsed("Something else").0, "something else");
    }

    #[test]
    fn the_planner_is_put_into_words() {
        for (text, expected) in [
            ("Invalid function 'foo'.\nDid you mean 'cos'?", "no function 'foo'"),
            (
                "Invalid function 'usr_name'.\nDid you mean 'user_name'?",
                "no function 'usr_name'; did you mean 'user_name'?",
            ),
            (
                "Cannot coerce arithmetic expression Int64 + Utf8 to valid types",
                "cannot compute number + text",
            ),
            (
                "No function matches the given name and argument types 'sum(Utf8)'. You might \
                 need.\n\tCandidate functions:\n\tsum(Int64)\n\tsum(Float64)\n\tsum(Interval)",
                "there is no sum(text), but sum(number), sum(interval)",
            ),
            ("LIMIT must be >= 0, '-1' was provided", "LIMIT must be >= 0, '-1' was provided"),
            (
                "Cannot coerce arithmetic expression Timestamp(ns, \"UTC\") - Utf8 to valid types",
                "cannot compute time - text; a time and a span of it are added, as now() - \
                 INTERVAL '7 days'",
            ),
            (
                "There isn't a common type to coerce Utf8 and Int64 in LIKE expression",
                "cannot compare text with number",
            ),
            (
                "Unary operator 'NOT' requires a boolean expression, got Int64",
                "unary operator 'NOT' requires a boolean expression, got number",
            ),
            (
                "No function matches the given name and argument types 'max(Int64, Int64)'. \
                 So.\n\tCandidate functions:\n\tmax(UserDefined)",
                "there is no max(number, number)",
            ),
            (
                "Invalid function 'row_number'.\nDid you mean 'round'?",
                "row_number() is of rows in an order: row_number() OVER (ORDER BY x)",
            ),
            (
                "Placeholder '$1' was not provided a value for execution.",
                "there are no parameters: write a value in place of $1",
            ),
        ] {
            assert_eq!(plan(text), expected);
        }
        let grouped = plan("column \"entries.name\" must appear in the GROUP BY clause or so");
        assert!(grouped.starts_with("'name' has to be in GROUP BY"), "{grouped}");
    }

    #[test]
    fn impossible_conditions_are_put_into_words() {
        let cast = "Cannot cast string 'x' to value of Int32 type";
        let time = "Error parsing timestamp from 'yesterday': timestamp must contain more";
        for (error, expected) in [
            (ArrowError::DivideByZero, "division by zero"),
            (ArrowError::CastError(cast.to_owned()), "'x' is not a number"),
            (ArrowError::ParseError(time.to_owned()), "'yesterday' is not a time; times are"),
        ] {
            let said = said(DataFusionError::ArrowError(Box::new(error), None));
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[test]
    fn the_place_is_marked() {
        let at = |statement, place| of_statement("wrong", statement, Some(place));
        assert_eq!(
            at("SELECT x\nFROM y", StatementPosition::At(2, 6)),
            "wrong\n  FROM y\n       ^"
        );
        assert_eq!(
            at("SELECT '日本', z", StatementPosition::At(1, 14)),
            "wrong\n  SELECT '日本', z\n                 ^"
        );
        assert_eq!(at("SELECT\n", StatementPosition::End), "wrong\n  SELECT\n        ^");
        assert_eq!(at("SELECT", StatementPosition::At(7, 1)), "wrong");
        assert_eq!(of_statement("wrong", "SELECT", None), "wrong");
        assert!(
            of_statement("wrong", " insert INTO x", None).starts_with("queries change nothing")
        );
        let long = format!("{}x{}", "a".repeat(500), "b".repeat(500));
        let shown = at(&long, StatementPosition::At(1, 501));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1].as_bytes()[lines[2].len() - 1], b'x');
        assert!(lines[1].len() < 130, "{shown}");
    }
}
