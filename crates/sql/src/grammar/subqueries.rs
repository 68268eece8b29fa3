//! Refuses subqueries that the engine answers wrongly: each error says how to write them.

use super::Checked;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, SetExpr,
    TableFactor, UnaryOperator, Visit, Visitor,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

const NOT_EXISTS: &str = "write NOT EXISTS (SELECT 1 FROM ... WHERE ...)";

/// Checks an expression that is, or contains, a subquery.
pub(super) fn check(expression: &Expr) -> Checked {
    match expression {
        // The engine takes a column of an outer table of the same name for one of the inner table.
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } if is_query(right) => {
            Err("ANY and ALL of a query are not known: write IN (SELECT ...), or compare with \
             (SELECT max(...) ...) or (SELECT min(...) ...)"
                .to_owned())
        }
        // The engine does not see NULLs in the answer of the subquery then.
        Expr::InSubquery { expr, subquery, negated: true } => {
            if matches!(**expr, Expr::Value(_)) {
                return Err(format!("NOT IN (SELECT ...) of a constant: {NOT_EXISTS}"));
            }
            match is_correlated(subquery) {
                true => Err(format!("NOT IN of a query that names outer columns: {NOT_EXISTS}")),
                false => Ok(()),
            }
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right }
            if has_not_in(left) || has_not_in(right) =>
        {
            Err(format!("NOT IN (SELECT ...) beside OR: {NOT_EXISTS}"))
        }
        Expr::Exists { subquery, .. } if is_one_row(subquery) => {
            Err("EXISTS of sums without GROUP BY is always true: write SELECT 1 in the subquery"
                .to_owned())
        }
        _ => Ok(()),
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
fn is_one_row(query: &Query) -> bool {
    const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];
    let SetExpr::Select(select) = &*query.body else { return false };
    let Select { projection, group_by: GroupByExpr::Expressions(by, _), having: None, .. } =
        &**select
    else {
        return false;
    };
    let is_aggregate = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Function(function))
        | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. } => {
            let name = function.name.to_string().to_lowercase();
            function.over.is_none() && AGGREGATES.contains(&name.as_str())
        }
        _ => false,
    };
    by.is_empty() && projection.iter().any(is_aggregate)
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
