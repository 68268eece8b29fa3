//! Clauses that the parser accepts but the planner would ignore or misread: they are put in the
//! planner's words, or refused.
//!
//! | clause | here |
//! | --- | --- |
//! | `SIMILAR TO`, `LIKE ... ESCAPE` | patterns as in PostgreSQL: [`patterns`] |
//! | `FROM entries` alone | `SELECT * FROM entries` |
//! | `FETCH FIRST 5 ROWS ONLY` | `LIMIT 5` |
//! | `ORDER BY 2`, `ORDER BY ALL` | of any expression |
//! | windows with names | wherever `OVER` can stand: [`windows`] |
//! | `SEMI JOIN`, `ANTI JOIN` | of the left table |
//! | `0xFF` | a number |
//! | `-x` | `x * -1`, which does not wrap |
//! | `COLLATE "C"` | how texts are compared anyway |
//! | subqueries that the engine answers wrongly | an error with the right form: [`subqueries`] |
//! | anything else that the planner does not look at | an error with the right form |
//!
//! Not its job: clauses that the planner refuses by itself.

mod patterns;
mod refused;
mod subqueries;
mod windows;

pub(super) use patterns::register;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as AstType, ExactNumberInfo, Expr, Fetch, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, LimitClause,
    ObjectName, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use std::ops::ControlFlow;

/// Checks of a statement that remain once it is planned.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Names of columns that `* REPLACE` replaces.
    replaced: Vec<String>,
}

/// Puts a statement in the planner's words. With `sqlite`, also accepts SQLite's clauses.
pub(super) fn prepare(
    statement: &mut Statement,
    is_scalar: &dyn Fn(&str) -> bool,
    sqlite: bool,
) -> Result<Prepared> {
    let mut grammar = Grammar { is_scalar, sqlite, prepared: Prepared::default() };
    match VisitMut::visit(statement, &mut grammar) {
        ControlFlow::Break(said) => Err(DataFusionError::Plan(said)),
        ControlFlow::Continue(()) => Ok(grammar.prepared),
    }
}

impl Prepared {
    /// Refuses a clause that the planner has ignored: a column that `* REPLACE` names and no table
    /// has.
    pub(super) fn check(&self, plan: &LogicalPlan) -> Result<()> {
        for name in &self.replaced {
            let mut is_there = false;
            plan.apply_with_subqueries(|node| {
                is_there |= node.schema().fields().iter().any(|field| field.name() == name);
                Ok(match is_there {
                    true => TreeNodeRecursion::Stop,
                    false => TreeNodeRecursion::Continue,
                })
            })?;
            if !is_there {
                return Err(DataFusionError::Plan(format!("no column '{name}' to REPLACE")));
            }
        }
        Ok(())
    }
}

struct Grammar<'a> {
    /// Whether a function is computed of one row.
    is_scalar: &'a dyn Fn(&str) -> bool,
    sqlite: bool,
    prepared: Prepared,
}

/// Why a statement is refused.
type Checked<T = ()> = std::result::Result<T, String>;

fn flow(checked: Checked) -> ControlFlow<String> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(said) => ControlFlow::Break(said),
    }
}

impl VisitorMut for Grammar<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        flow(prepare_query(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        // `FROM entries` has all columns.
        if select.projection.is_empty() && !select.from.is_empty() {
            select.projection.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        self.prepared.replaced.extend(replaced(select));
        flow(refused::in_select(select, self.sqlite).and_then(|()| windows::resolve(select)))
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<String> {
        flow(refused::in_table(table, self.sqlite))
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        flow(match expression {
            Expr::Function(function) => refused::in_function(function, self.is_scalar)
                .and_then(|()| subqueries::check_arguments(function)),
            Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. } => {
                Err("'^' means power in PostgreSQL and exclusive or elsewhere: write power(a, b), \
                     or (a | b) - (a & b)"
                    .to_owned())
            }
            other => subqueries::check(other, self.is_scalar),
        })
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<String> {
        flow(rewrite(expression))
    }
}

fn prepare_query(query: &mut Query) -> Checked {
    refused::in_query(query)?;
    if let Some(fetch) = query.fetch.take() {
        limit_to(query, fetch)?;
    }
    let Query { body, order_by: Some(order_by), .. } = query else { return Ok(()) };
    if let OrderByKind::Expressions(expressions) = &order_by.kind
        && let [OrderByExpr { expr: Expr::Identifier(all), options, with_fill: None }] =
            &expressions[..]
        && all.quote_style.is_none()
        && all.value.eq_ignore_ascii_case("all")
    {
        order_by.kind = OrderByKind::All(*options);
    }
    order_by_all(body, order_by)?;
    let OrderByKind::Expressions(expressions) = &mut order_by.kind else { return Ok(()) };
    for by in expressions.iter() {
        refused::constant("ORDER BY", &by.expr)?;
    }
    if let SetExpr::Select(select) = &mut **body {
        for by in expressions.iter_mut() {
            name_ordered(select, &by.expr);
            windows::resolve_in(&select.named_window, &mut by.expr)?;
        }
    }
    Ok(())
}

/// Makes a `FETCH` the `LIMIT` that it is.
fn limit_to(query: &mut Query, fetch: Fetch) -> Checked {
    if fetch.percent || fetch.with_ties {
        return Err(
            "FETCH takes a number of rows ONLY: for ties and percentages, compute rank() or \
                    percent_rank() and filter by QUALIFY"
                .to_owned(),
        );
    }
    let rows = fetch.quantity.unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        clause @ None => {
            let limit = Some(rows);
            *clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        Some(_) => return Err("LIMIT and FETCH both say how many rows: leave one out".to_owned()),
    }
    Ok(())
}

/// Makes `ORDER BY ALL` the positions of all columns.
fn order_by_all(body: &SetExpr, order_by: &mut OrderBy) -> Checked {
    let OrderByKind::All(options) = order_by.kind else { return Ok(()) };
    let columns = leftmost(body).map_or(&[][..], |select| &select.projection);
    if columns.is_empty() || columns.iter().any(is_wildcard) {
        return match body {
            SetExpr::Select(_) => Ok(()),
            _ => Err("ORDER BY ALL of a UNION needs columns with names in place of *".to_owned()),
        };
    }
    let by = |position: usize| {
        let expr = number(&position.to_string());
        OrderByExpr { expr, options, with_fill: None }
    };
    order_by.kind = OrderByKind::Expressions((1..=columns.len()).map(by).collect());
    Ok(())
}

fn leftmost(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => leftmost(&query.body),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        _ => None,
    }
}

/// Returns the columns that a SELECT replaces by name, as the planner calls them.
fn replaced(select: &Select) -> Vec<String> {
    let options = select.projection.iter().filter_map(|item| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => Some(options),
        _ => None,
    });
    let items = options.filter_map(|options| options.opt_replace.as_ref());
    let names = items.flat_map(|replace| &replace.items).map(|item| &item.column_name);
    names
        .map(|name| match name.quote_style {
            Some(_) => name.value.clone(),
            None => name.value.to_lowercase(),
        })
        .collect()
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// Gives the column that `ORDER BY 2` means a name, by which the planner finds what is computed of
/// aggregates.
fn name_ordered(select: &mut Select, by: &Expr) {
    let Expr::Value(ValueWithSpan { value: Value::Number(position, _), .. }) = by else { return };
    let Some(at) = position.parse::<usize>().ok().and_then(|at| at.checked_sub(1)) else { return };
    let Some(columns) = select.projection.get_mut(..=at) else { return };
    if columns.iter().any(is_wildcard) {
        return;
    }
    if let Some(item @ SelectItem::UnnamedExpr(_)) = columns.last_mut()
        && let SelectItem::UnnamedExpr(expr) = &*item
        && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
    {
        let alias = Ident::with_quote('"', expr.to_string());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// Puts an expression in the planner's words, whose parts are already.
fn rewrite(expression: &mut Expr) -> Checked {
    let rewritten = match expression {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if !is_literal(expr) => {
            let left = Box::new(Expr::Nested(expr.clone()));
            let one = Box::new(number("1"));
            let right = Box::new(Expr::UnaryOp { op: UnaryOperator::Minus, expr: one });
            Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Multiply, right }))
        }
        // The engine takes it for one of floating point.
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) if is_large(digits) => {
            let text = Expr::value(Value::SingleQuotedString(digits.clone()));
            let data_type = AstType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 0));
            Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(text),
                data_type,
                array: false,
                format: None,
            }
        }
        Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(digits), span })
            if is_hex_number(digits, span) =>
        {
            let value = u64::from_str_radix(digits, 16);
            number(&value.map_err(|_| format!("0x{digits} has more than 64 bits"))?.to_string())
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            let Some(escape) = escape_char.take() else { return Ok(()) };
            let arguments = vec![(**pattern).clone(), Expr::Value(escape)];
            **pattern = Expr::Function(call(patterns::LIKE, arguments));
            return Ok(());
        }
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            let escape = escape_char.take().map(Expr::Value);
            let arguments = std::iter::once((**pattern).clone()).chain(escape).collect();
            let op = match negated {
                true => BinaryOperator::PGRegexNotMatch,
                false => BinaryOperator::PGRegexMatch,
            };
            let right = Box::new(Expr::Function(call(patterns::SIMILAR, arguments)));
            Expr::Nested(Box::new(Expr::BinaryOp { left: expr.clone(), op, right }))
        }
        Expr::Collate { expr, collation } => match collation.to_string().trim_matches('"') {
            "C" | "POSIX" | "binary" | "BINARY" | "ucs_basic" => (**expr).clone(),
            other => {
                return Err(format!(
                    "no collation {other}: texts are compared by their bytes, and lower(x) makes \
                     letters alike"
                ));
            }
        },
        _ => return Ok(()),
    };
    *expression = rewritten;
    Ok(())
}

/// Returns whether a number is whole, and has more than 64 bits but at most 38 digits.
fn is_large(digits: &str) -> bool {
    digits.len() <= 38
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.parse::<u64>().is_err()
}

/// Returns whether the digits are written as `0xFF`, and not as the bytes `X'FF'`.
fn is_hex_number(digits: &str, span: &Span) -> bool {
    let length = span.end.column.saturating_sub(span.start.column);
    length == digits.len() as u64 + 2
}

/// Returns whether a minus sign in front is part of a value.
fn is_literal(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Interval(_) | Expr::Value(ValueWithSpan { value: Value::Number(..), .. })
    )
}

fn number(digits: &str) -> Expr {
    Expr::value(Value::Number(digits.to_owned(), false))
}

/// Makes a call of a function.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Function {
    let argument = |expression| FunctionArg::Unnamed(FunctionArgExpr::Expr(expression));
    Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    }
}
