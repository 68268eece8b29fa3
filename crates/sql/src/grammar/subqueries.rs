//! Refuses subqueries that the engine answers wrongly: each error says how to write them.

use super::Checked;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, LimitClause, ObjectName, Query, Select, SetExpr, TableFactor, UnaryOperator, Visit,
    Visitor,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

const NOT_EXISTS: &str = "write NOT EXISTS (SELECT 1 FROM ... WHERE ...)";

/// Functions whose values are NULL only if an argument is.
const OF_VALUES: [&str; 12] = [
    "lower",
    "upper",
    "trim",
    "btrim",
    "ltrim",
    "rtrim",
    "substr",
    "substring",
    "concat",
    "replace",
    "length",
    "extension",
];

/// Checks an expression that is, or contains, a subquery.
pub(super) fn check(expression: &Expr, is_scalar: &dyn Fn(&str) -> bool) -> Checked {
    match expression {
        // The engine takes a column of an outer table of the same name for one of the inner table.
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } if is_query(right) => {
            Err("ANY and ALL of a query are not known: write IN (SELECT ...), or compare with \
             (SELECT max(...) ...) or (SELECT min(...) ...)"
                .to_owned())
        }
        Expr::InSubquery { subquery, .. }
            if is_one_row(subquery, is_scalar) && is_correlated(subquery) =>
        {
            Err("IN of a sum that names outer columns is not known: compare with = (SELECT ...)"
                .to_owned())
        }
        Expr::InSubquery { expr, subquery, negated: true } => not_in(expr, subquery),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => match bare(expr) {
            Expr::InSubquery { expr, subquery, negated: false } => not_in(expr, subquery),
            inner if has_in(inner) => {
                Err(format!("NOT of IN (SELECT ...) with other conditions: {NOT_EXISTS}"))
            }
            _ => Ok(()),
        },
        Expr::IsNull(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotUnknown(inner)
        | Expr::Cast { expr: inner, .. }
            if has_in(inner) =>
        {
            Err(as_a_value())
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right }
            if has_not_in(left) || has_not_in(right) =>
        {
            Err(format!("NOT IN (SELECT ...) beside OR: {NOT_EXISTS}"))
        }
        Expr::BinaryOp { left, op, right }
            if !matches!(op, BinaryOperator::And | BinaryOperator::Or)
                && (has_in(left) || has_in(right)) =>
        {
            Err(as_a_value())
        }
        Expr::Exists { subquery, .. } if is_one_row(subquery, is_scalar) => {
            Err("EXISTS of sums without GROUP BY is always true: write SELECT 1 in the subquery"
                .to_owned())
        }
        Expr::Exists { subquery, .. } if has_offset(subquery) => {
            Err("EXISTS with OFFSET is not known: compare with (SELECT count(*) ...)".to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks arguments of a function.
pub(super) fn check_arguments(function: &Function) -> Checked {
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let has_in = |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if has_in(value));
    if list.args.iter().any(has_in) { Err(as_a_value()) } else { Ok(()) }
}

/// Refuses what the engine takes for a condition that is never unknown.
fn as_a_value() -> String {
    "IN (SELECT ...) is a condition of WHERE and HAVING here, not a value: write EXISTS (SELECT 1 \
     FROM ... WHERE ...)"
        .to_owned()
}

/// Refuses a `NOT IN` where the engine does not see NULLs, on the left or in the subquery.
fn not_in(left: &Expr, subquery: &Query) -> Checked {
    if matches!(bare(left), Expr::Value(_)) {
        return Err(format!("NOT IN (SELECT ...) of a constant: {NOT_EXISTS}"));
    }
    if !is_as_null_as_its_columns(left) {
        return Err(format!("NOT IN (SELECT ...) of what can be NULL: {NOT_EXISTS}"));
    }
    match is_correlated(subquery) {
        true => Err(format!("NOT IN of a query that names outer columns: {NOT_EXISTS}")),
        false => Ok(()),
    }
}

/// Returns whether an expression is NULL only if a column in it is.
fn is_as_null_as_its_columns(expression: &Expr) -> bool {
    match bare(expression) {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => true,
        Expr::BinaryOp { left, right, .. } => {
            is_as_null_as_its_columns(left) && is_as_null_as_its_columns(right)
        }
        Expr::Function(function) => {
            let name = function.name.to_string().to_lowercase();
            let FunctionArguments::List(list) = &function.args else { return false };
            OF_VALUES.contains(&name.as_str())
                && list.args.iter().all(|argument| {
                    matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
                        if is_as_null_as_its_columns(value))
                })
        }
        _ => false,
    }
}

fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// Returns whether a condition has an `IN (SELECT ...)` as one of its parts.
fn has_in(condition: &Expr) -> bool {
    match condition {
        Expr::InSubquery { .. } => true,
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => {
            has_in(inner)
        }
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            has_in(left) || has_in(right)
        }
        _ => false,
    }
}

fn has_offset(query: &Query) -> bool {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { offset, .. }) => offset.is_some(),
        Some(LimitClause::OffsetCommaLimit { .. }) => true,
        None => false,
    }
}

fn is_query(expression: &Expr) -> bool {
    match expression {
        Expr::Subquery(_) => true,
        Expr::Nested(inner) => is_query(inner),
        _ => false,
    }
}

/// Returns whether a condition has a `NOT IN (SELECT ...)` as one of its parts.
fn has_not_in(condition: &Expr) -> bool {
    match condition {
        Expr::InSubquery { negated, .. } => *negated,
        Expr::Nested(inner) => has_not_in(inner),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => match &**expr {
            Expr::InSubquery { negated, .. } => !negated,
            other => has_not_in(other),
        },
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            has_not_in(left) || has_not_in(right)
        }
        _ => false,
    }
}

/// Returns whether a query is a SELECT of aggregates of all rows, which has one row.
fn is_one_row(query: &Query, is_scalar: &dyn Fn(&str) -> bool) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    let Select { projection, group_by: GroupByExpr::Expressions(by, _), having: None, .. } =
        &**select
    else {
        return false;
    };
    let mut aggregates = Aggregates { is_scalar, depth: 0 };
    by.is_empty() && projection.iter().any(|item| item.visit(&mut aggregates).is_break())
}

/// Looks for functions of several rows, but not in subqueries.
struct Aggregates<'a> {
    is_scalar: &'a dyn Fn(&str) -> bool,
    /// Subqueries around.
    depth: u32,
}

impl Visitor for Aggregates<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Function(function) if self.depth == 0 && function.over.is_none() => {
                match (self.is_scalar)(&function.name.to_string().to_lowercase()) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Returns whether a query names a column by a table that is not in it.
fn is_correlated(query: &Query) -> bool {
    let mut names = Names::default();
    let _ = query.visit(&mut names);
    names.used.iter().any(|name| !names.tables.contains(name))
}

/// Names of tables in a query, in small letters.
#[derive(Default)]
struct Names {
    /// Tables and aliases in FROM.
    tables: HashSet<String>,
    /// Tables in front of columns.
    used: HashSet<String>,
}

fn folded(name: &Ident) -> String {
    name.value.to_lowercase()
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let last = relation.0.last().and_then(|part| part.as_ident());
        self.tables.extend(last.map(folded));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        let (TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::NestedJoin { alias, .. }) = table
        else {
            return ControlFlow::Continue(());
        };
        self.tables.extend(alias.iter().map(|alias| folded(&alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [.., table, _] = &parts[..]
        {
            self.used.insert(folded(table));
        }
        ControlFlow::Continue(())
    }
}
