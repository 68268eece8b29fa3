//! Refuses clauses that the planner would ignore without a word.

use super::Checked;
use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, GroupByExpr, Join, JoinConstraint, JoinOperator, LimitClause, NullTreatment,
    Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, TableWithJoins,
    Value, ValueWithSpan, WildcardAdditionalOptions, WindowType,
};

/// Functions of windows for which it counts whether values are NULL.
const OF_VALUES: [&str; 5] = ["first_value", "last_value", "nth_value", "lag", "lead"];

/// Returns the first thing that is there, as an error.
fn first(found: &[(bool, &str)]) -> Checked {
    match found.iter().find(|(is_there, _)| *is_there) {
        Some((_, said)) => Err((*said).to_owned()),
        None => Ok(()),
    }
}

/// Refuses set operations that the engine takes for INTERSECT and EXCEPT.
fn in_body(body: &SetExpr) -> Checked {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    let is_all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    let all = "INTERSECT ALL and EXCEPT ALL are not known: leave out ALL, or number equal rows by \
               row_number() OVER (PARTITION BY ...) first";
    first(&[(is_all && *op != SetOperator::Union, all)])?;
    in_body(left)?;
    in_body(right)
}

pub(super) fn in_query(query: &Query) -> Checked {
    in_body(&query.body)?;
    let limit_by = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit_by, .. }) => !limit_by.is_empty(),
        _ => false,
    };
    first(&[
        (!query.locks.is_empty(), "queries lock nothing: leave out FOR UPDATE and FOR SHARE"),
        (
            query.for_clause.is_some(),
            "FOR XML and FOR JSON are not known: --format json gives JSON",
        ),
        (query.settings.is_some(), "SETTINGS are not known"),
        (query.format_clause.is_some(), "FORMAT is not known: --format sets the form of answers"),
        (
            limit_by,
            "LIMIT BY is not known: QUALIFY row_number() OVER (PARTITION BY x ORDER BY y) <= 3 \
             keeps some rows of each",
        ),
    ])
}

pub(super) fn in_select(select: &mut Select, sqlite: bool) -> Checked {
    first(&[
        (select.select_modifiers.is_some(), "MySQL's words behind SELECT are not known"),
        (select.exclude.is_some(), "EXCLUDE stands behind *, as SELECT * EXCLUDE (size)"),
        (select.prewhere.is_some(), "PREWHERE is not known: write WHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY is not known: write WITH RECURSIVE"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY is not known"),
        (select.value_table_mode.is_some(), "SELECT AS STRUCT and SELECT AS VALUE are not known"),
    ])?;
    let (expressions, modifiers) = match &select.group_by {
        GroupByExpr::All(modifiers) => (&[][..], modifiers),
        GroupByExpr::Expressions(expressions, modifiers) => (&expressions[..], modifiers),
    };
    let rollup = "GROUP BY ... WITH ROLLUP is not known: write GROUP BY ROLLUP (a, b), CUBE or \
                  GROUPING SETS";
    first(&[(!modifiers.is_empty(), rollup)])?;
    expressions.iter().try_for_each(|expression| constant("GROUP BY", expression))?;
    for item in &select.projection {
        number_with_letters(item)?;
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
            in_wildcard(options)?;
        }
    }
    select.from.iter_mut().try_for_each(|table| in_joins(table, sqlite))
}

/// Refuses `1_000` and `0b11`: the parser takes letters behind a number as the name of a column.
fn number_with_letters(item: &SelectItem) -> Checked {
    if let SelectItem::ExprWithAlias { expr: Expr::Value(ValueWithSpan { value, span }), alias } =
        item
        && matches!(value, Value::Number(..))
        && span.end == alias.span.start
    {
        return Err(format!(
            "'{value}{alias}' is not a number: write it in digits alone, such as 1000000, or as \
             0xFF; AS gives a name to a column"
        ));
    }
    Ok(())
}

fn in_wildcard(options: &WildcardAdditionalOptions) -> Checked {
    let ilike = "* ILIKE is not known: name the columns, or leave some out by * EXCLUDE (a, b)";
    first(&[(options.opt_ilike.is_some(), ilike)])
}

/// Refuses a text where a column is meant: a text is equal in all rows.
pub(super) fn constant(clause: &str, expression: &Expr) -> Checked {
    let Expr::Value(ValueWithSpan { value, .. }) = expression else { return Ok(()) };
    match value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Err(format!(
            "{clause} '{text}' names a text, which is equal in all rows: write the column {text} \
             without quotes"
        )),
        _ => Ok(()),
    }
}

/// Checks joins, and puts some in the planner's words.
fn in_joins(table: &mut TableWithJoins, sqlite: bool) -> Checked {
    table.joins.iter_mut().try_for_each(|join| in_join(join, sqlite))
}

fn in_join(join: &mut Join, sqlite: bool) -> Checked {
    use JoinOperator::{
        Anti, CrossJoin, FullOuter, Inner, Left, LeftAnti, LeftOuter, LeftSemi, Right, RightOuter,
        Semi,
    };
    first(&[(join.global, "GLOBAL JOIN is not known: write JOIN")])?;
    join.join_operator = match std::mem::replace(&mut join.join_operator, JoinOperator::CrossApply)
    {
        Semi(constraint) => LeftSemi(constraint),
        Anti(constraint) => LeftAnti(constraint),
        // SQLite pairs all rows.
        JoinOperator::Join(JoinConstraint::None) | Inner(JoinConstraint::None) if sqlite => {
            CrossJoin(JoinConstraint::None)
        }
        operator => operator,
    };
    let unconditional = matches!(
        &join.join_operator,
        JoinOperator::Join(JoinConstraint::None)
            | Inner(JoinConstraint::None)
            | Left(JoinConstraint::None)
            | LeftOuter(JoinConstraint::None)
            | Right(JoinConstraint::None)
            | RightOuter(JoinConstraint::None)
            | FullOuter(JoinConstraint::None)
            | LeftSemi(JoinConstraint::None)
            | LeftAnti(JoinConstraint::None)
    );
    use JoinConstraint::{Natural, Using};
    let merges_right = matches!(
        &join.join_operator,
        Right(Using(_) | Natural) | RightOuter(Using(_) | Natural) | FullOuter(Using(_) | Natural)
    );
    first(&[
        (unconditional, "JOIN needs ON or USING behind it; CROSS JOIN pairs all rows"),
        (
            merges_right,
            "USING and NATURAL are known for JOIN and LEFT JOIN alone: write ON a.x = b.x, and \
             coalesce(a.x, b.x) for the column",
        ),
    ])
}

pub(super) fn in_table(table: &mut TableFactor, sqlite: bool) -> Checked {
    let sample = "TABLESAMPLE is not known: WHERE random() < 0.1 keeps a tenth of the rows";
    let ordinality = "WITH ORDINALITY is not known: row_number() OVER () counts rows";
    let alias = match table {
        TableFactor::Table {
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample: sampled,
            index_hints,
            ..
        } => {
            let past = "queries read one generation of the index: --at sets which";
            let settings = args.as_ref().is_some_and(|args| args.settings.is_some());
            first(&[
                (sampled.is_some(), sample),
                (*with_ordinality, ordinality),
                (version.is_some(), past),
                (!with_hints.is_empty() || !index_hints.is_empty(), "hints are not known"),
                (!partitions.is_empty(), "PARTITION is not known"),
                (json_path.is_some(), "paths into JSON are not known"),
                (settings, "SETTINGS are not known"),
            ])?;
            alias
        }
        TableFactor::Derived { alias, sample: sampled, .. } => {
            first(&[(sampled.is_some(), sample)])?;
            alias
        }
        TableFactor::Function { alias, with_ordinality, .. } => {
            first(&[(*with_ordinality, ordinality)])?;
            alias
        }
        TableFactor::NestedJoin { table_with_joins, alias } => {
            in_joins(table_with_joins, sqlite)?;
            alias
        }
        _ => return Ok(()),
    };
    let at = alias.as_ref().is_some_and(|alias| alias.at.is_some());
    first(&[(at, "AT behind the name of a table is not known")])
}

pub(super) fn in_function(function: &Function, is_scalar: &dyn Fn(&str) -> bool) -> Checked {
    let name = function.name.to_string();
    if let Some(WindowType::NamedWindow(window)) = &function.over {
        return Err(format!(
            "no window '{window}': WINDOW {window} AS (...) behind FROM defines one"
        ));
    }
    if function.parameters != FunctionArguments::None {
        return Err(format!("{name}(...) (...) is not known"));
    }
    let folded = name.to_lowercase();
    if ["to_char", "date_format"].contains(&folded.as_str()) {
        pattern_of_time(&name, function)?;
    }
    if is_scalar(&folded) {
        return match of_aggregates(function) {
            Some(clause) => Err(format!(
                "{clause} is for functions of several rows, such as count, and {name} is of one"
            )),
            None => Ok(()),
        };
    }
    let ignores = null_treatment(function) == Some(NullTreatment::IgnoreNulls);
    if function.over.is_some() && ignores && !OF_VALUES.contains(&folded.as_str()) {
        return Err(format!("IGNORE NULLS is for {}, and not for {name}", OF_VALUES.join(", ")));
    }
    Ok(())
}

/// Refuses the patterns of PostgreSQL for times, which would be printed as they are.
fn pattern_of_time(name: &str, function: &Function) -> Checked {
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(pattern)))) = list.args.get(1)
    else {
        return Ok(());
    };
    match &pattern.value {
        Value::SingleQuotedString(text) if !text.contains('%') && !text.is_empty() => Err(format!(
            "{name} takes patterns as strftime(3) does, such as {name}(mtime, '%Y-%m-%d')"
        )),
        _ => Ok(()),
    }
}

fn null_treatment(function: &Function) -> Option<NullTreatment> {
    function.null_treatment.or_else(|| {
        let FunctionArguments::List(list) = &function.args else { return None };
        list.clauses.iter().find_map(|clause| match clause {
            FunctionArgumentClause::IgnoreOrRespectNulls(treatment) => Some(*treatment),
            _ => None,
        })
    })
}

/// Returns a clause of a call that only aggregates and functions of windows have.
fn of_aggregates(function: &Function) -> Option<&'static str> {
    if function.filter.is_some() {
        return Some("FILTER");
    }
    if function.over.is_some() {
        return Some("OVER");
    }
    if !function.within_group.is_empty() {
        return Some("WITHIN GROUP");
    }
    if null_treatment(function).is_some() {
        return Some("IGNORE or RESPECT NULLS");
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Some("DISTINCT");
    }
    let ordered =
        list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    ordered.then_some("ORDER BY")
}
