//! Hints for conditions that no row can fulfil, though the engine accepts them: the column never
//! holds such a value, but would in another language. Comparing a text of the index with a number,
//! which the engine would try to parse from it, is an error.

use super::provider::Provider;
use super::tables::IndexTable;
use canopy_model::FileType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};
use std::any::Any;
use std::collections::HashMap;

/// Bits of a mode that are permissions, and not the type.
const PERMISSIONS: i64 = 0o7777;

/// Operators that compare.
const COMPARISONS: [Operator; 6] =
    [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];

/// Columns of numbers, which texts are compared with by mistake.
const NUMBERS: [&str; 9] =
    ["size", "uid", "gid", "ino", "mode", "nlink", "depth", "blocks", "blksize"];

/// The index's own tables, by the names that a statement gives them.
type Named = HashMap<String, &'static str>;

/// Returns a line for each condition of a statement that cannot hold. Fails if one compares a text
/// with a number.
pub(super) fn of(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut tables = Named::new();
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(_) => {
                if let Some(own) = own_table(node) {
                    tables.insert(own.to_owned(), own);
                }
            }
            LogicalPlan::SubqueryAlias(alias) => {
                if let Some(own) = own_table(&alias.input) {
                    tables.insert(alias.alias.table().to_owned(), own);
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut hints: Vec<String> = Vec::new();
    if tables.is_empty() {
        return Ok(hints);
    }
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                check_types(part, &tables)?;
                for hint in of_expression(part, &tables) {
                    let hint = format!("note: {hint}");
                    if !hints.contains(&hint) {
                        hints.push(hint);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(hints)
}

/// Returns the name of the table of the index that a node of a plan reads.
fn own_table(node: &LogicalPlan) -> Option<&'static str> {
    let LogicalPlan::TableScan(scan) = node else { return None };
    let provider = source_as_provider(&scan.source).ok()?;
    let provider: &dyn Any = &*provider;
    Some(provider.downcast_ref::<Provider<IndexTable>>()?.table.name())
}

/// Refuses to compare a text of the index's own with a number.
fn check_types(expression: &Expr, tables: &Named) -> Result<()> {
    let pairs: Vec<(&Expr, &Expr)> = match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if COMPARISONS.contains(op) => {
            vec![(left, right), (right, left)]
        }
        Expr::InList(InList { expr, list, .. }) => {
            list.iter().map(|value| (&**expr, value)).collect()
        }
        Expr::Between(Between { expr, low, high, .. }) => vec![(expr, low), (expr, high)],
        _ => return Ok(()),
    };
    for (text, number) in pairs {
        let (Some((_, text)), Some(number)) = (column_of(text, tables), number_of(number, tables))
        else {
            continue;
        };
        if is_text(text) {
            return Err(DataFusionError::Plan(format!(
                "cannot compare the text {text} with the number {number}: put texts in single \
                 quotes"
            )));
        }
    }
    Ok(())
}

/// Returns whether a column of the index's own tables is text by its name.
fn is_text(column: &str) -> bool {
    matches!(column, "path" | "name" | "source" | "type" | "target" | "key" | "tag" | "kind")
}

/// Returns a number that is written out, or the name of a column of numbers.
fn number_of(value: &Expr, tables: &Named) -> Option<String> {
    match value {
        Expr::Literal(value, _) => value.data_type().is_numeric().then(|| value.to_string()),
        value => {
            let (_, column) = column_of(value, tables)?;
            NUMBERS.contains(&column).then(|| column.to_owned())
        }
    }
}

fn of_expression(expression: &Expr, tables: &Named) -> Vec<String> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq | Operator::NotEq, right }) => {
            let hint = of_values(left, right, tables).or_else(|| of_values(right, left, tables));
            hint.into_iter().collect()
        }
        Expr::InList(InList { expr, list, .. }) => {
            list.iter().filter_map(|value| of_values(expr, value, tables)).collect()
        }
        Expr::Like(Like { expr, pattern, .. }) => {
            let hint = column_of(expr, tables).zip(text(pattern));
            hint.and_then(|((_, column), pattern)| of_pattern(column, pattern))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the column of one of the index's tables that an expression is, behind the table's name.
fn column_of<'a>(expression: &'a Expr, tables: &Named) -> Option<(&'static str, &'a str)> {
    let Expr::Column(Column { relation: Some(relation), name, .. }) = expression else {
        return None;
    };
    Some((tables.get(relation.table())?, name))
}

fn text(value: &Expr) -> Option<&str> {
    match value {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text),
        _ => None,
    }
}

fn whole(value: &Expr) -> Option<i64> {
    match value {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        _ => None,
    }
}

/// Returns the hint for a comparison.
fn of_values(left: &Expr, right: &Expr, tables: &Named) -> Option<String> {
    if let Some((table, column)) = column_of(left, tables) {
        return match column {
            "type" => of_type(table, text(right)?),
            "mode" => of_mode(whole(right)?),
            "name" => of_name(text(right)?),
            "kind" if table == "acls" => of_words(column, text(right)?, &["access", "default"]),
            "tag" if table == "acls" => {
                let tags = ["owner", "user", "owning_group", "group", "mask", "other"];
                of_words(column, text(right)?, &tags)
            }
            _ => None,
        };
    }
    match left {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseAnd, right: mask }) => {
            let (column, mask) = match whole(mask) {
                Some(mask) => (left, mask),
                None => (mask, whole(left)?),
            };
            let is_mode = matches!(column_of(column, tables), Some((_, "mode")));
            is_mode.then(|| of_permissions(mask, whole(right)?)).flatten()
        }
        Expr::ScalarFunction(call) if call.func.name() == "extension" => {
            let extension = text(right)?.strip_prefix('.')?;
            Some(format!("extension() is without the dot: extension(name) = '{extension}'"))
        }
        _ => None,
    }
}

fn of_type(table: &str, value: &str) -> Option<String> {
    let letter = match value.to_lowercase().as_str() {
        "f" | "file" | "regular" | "reg" => 'f',
        "d" | "dir" | "directory" => 'd',
        "l" | "link" | "symlink" => 'l',
        "p" | "fifo" | "pipe" => 'p',
        "s" | "sock" | "socket" => 's',
        "b" | "block" => 'b',
        "c" | "char" | "character" => 'c',
        "u" => FileType::Unknown.letter(),
        _ => '?',
    };
    let is_letter = value.chars().eq([letter]);
    Some(match (table, letter) {
        ("entries", 'd') => {
            "entries has no directories, so type is never 'd' there: see the table directories"
                .to_owned()
        }
        ("directories", other) if other != 'd' => format!(
            "directories has nothing but directories, so type is always 'd', and never '{value}': \
             see the table entries"
        ),
        _ if is_letter => return None,
        (_, '?') => {
            format!("type is one of find's letters, f, l, p, s, b, c and d, and never '{value}'")
        }
        (_, letter) => {
            format!("type is one of find's letters, and never '{value}': type = '{letter}'")
        }
    })
}

/// Reads the digits of a number as an octal one.
fn octal(value: i64) -> Option<i64> {
    let octal = i64::from_str_radix(&value.to_string(), 8).ok()?;
    (octal <= PERMISSIONS && value >= 0).then_some(octal)
}

/// Returns whether files often have these permissions: each class has letters for reading, and none
/// that the class before it lacks.
fn is_usual(permissions: i64) -> bool {
    let [owner, group, others] = [6, 3, 0].map(|shift| permissions >> shift & 0o7);
    (0..=PERMISSIONS).contains(&permissions)
        && owner >= 4
        && [group, others].iter().all(|bits| *bits == 0 || *bits >= 4)
        && group & !owner == 0
        && others & !group == 0
}

/// Reads the digits of a number as an octal one, if that is meant rather than the number itself: 420
/// is 0644 already.
fn meant_octal(value: i64) -> Option<i64> {
    octal(value).filter(|octal| is_usual(*octal) || !is_usual(value))
}

fn of_mode(value: i64) -> Option<String> {
    if FileType::of_mode(u32::try_from(value).ok()?) != FileType::Unknown {
        return None;
    }
    let meant = meant_octal(value).unwrap_or(value & PERMISSIONS);
    Some(format!(
        "mode contains the type, so it is never {value}: permissions are mode & 4095, in decimal \
         (0{meant:o} is {meant}): mode & 4095 = {meant}"
    ))
}

/// Returns the hint for permissions, which other tools write in octal digits.
fn of_permissions(mask: i64, value: i64) -> Option<String> {
    let hint = |wrong: i64, meant: i64| {
        format!("numbers are decimal: {wrong} is 0{wrong:o}, and for 0{meant:o} write {meant}")
    };
    if let 777 | 7777 = mask {
        return Some(hint(mask, octal(mask)?));
    }
    let meant = octal(value).filter(|meant| meant & !mask == 0)?;
    let never = value & !mask != 0;
    let unlikely =
        mask == PERMISSIONS && (444..=777).contains(&value) && meant_octal(value).is_some();
    (never || unlikely).then(|| hint(value, meant))
}

/// Returns the hint for a name; `seen` gives that for a path.
fn of_name(value: &str) -> Option<String> {
    (value.contains('/') && value != "/")
        .then(|| format!("name is without directories, and never '{value}': path has them"))
}

fn of_pattern(column: &str, pattern: &str) -> Option<String> {
    let is_wild = |pattern: &str| pattern.contains(['%', '_']);
    match column {
        "name" | "path" if !is_wild(pattern) && pattern.contains('*') => Some(format!(
            "in LIKE, % stands for any text and _ for a letter: '{}'",
            pattern.replace('*', "%")
        )),
        "name" if pattern.contains('/') && pattern != "/" => {
            Some(format!("name is without directories, and never like '{pattern}': path has them"))
        }
        _ => None,
    }
}

fn of_words(column: &str, value: &str, words: &[&str]) -> Option<String> {
    (!words.contains(&value))
        .then(|| format!("{column} is one of {}, and never '{value}'", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_octal_digits() {
        assert!(of_mode(0o100_644).is_none());
        assert!(of_mode(644).unwrap().ends_with("(0644 is 420): mode & 4095 = 420"));
        assert!(of_mode(493).unwrap().ends_with("(0755 is 493): mode & 4095 = 493"));
        // Digits that may be octal, of numbers that are permissions themselves.
        for (value, meant) in
            [(420, 420), (511, 511), (436, 436), (416, 416), (400, 256), (755, 493), (440, 288)]
        {
            let said = of_mode(value).unwrap();
            assert!(said.ends_with(&format!("mode & 4095 = {meant}")), "{value}: {said}");
        }
        for (mask, value, meant) in [
            (4095, 644, "for 0644 write 420"),
            (511, 755, "for 0755 write 493"),
            (777, 644, "for 0777 write 511"),
        ] {
            assert!(of_permissions(mask, value).unwrap().ends_with(meant), "{mask} {value}");
        }
        for (mask, value) in [(4095, 420), (4095, 511), (511, 420), (2, 2), (18, 0), (4095, 0)] {
            assert_eq!(of_permissions(mask, value), None, "{mask} {value}");
        }
    }

    #[test]
    fn types_are_letters() {
        assert!(of_type("entries", "d").unwrap().ends_with("see the table directories"));
        assert!(of_type("directories", "f").unwrap().ends_with("see the table entries"));
        assert!(of_type("entries", "file").unwrap().ends_with("type = 'f'"));
        assert!(of_type("entries", "F").unwrap().ends_with("type = 'f'"));
        assert!(of_type("entries", "x").unwrap().contains("never 'x'"));
        for (table, letter) in [("entries", "f"), ("directories", "d"), ("xattrs", "d")] {
            assert_eq!(of_type(table, letter), None);
        }
    }
}
