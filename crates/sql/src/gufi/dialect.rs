//! Reads a statement as GUFI means it: path functions of the directory at hand become columns, and
//! constructs that SQLite treats otherwise than the engine get the engine's words.
//!
//! | in GUFI | here |
//! | --- | --- |
//! | `path()`, `rpath(sname, sroll)`, `level()`, ... | columns that `*` does not show |
//! | `"text"` that names no column | `'text'` |
//! | `LIKE` | `ILIKE` |
//! | `a REGEXP b`, `regexp(b, a)` | `regexp_like(a, b)` |
//! | `TOTAL(x)` | a sum that is 0.0 of nothing |
//! | `CAST(x AS INTEGER)`, `INT64` | 64 bits |
//! | columns without a name | named by their text |

use super::super::grammar::call;
use super::views::{self, ENTRY, HIDDEN, LEVEL, PATH, PINODE, ROOT, SUBDIRS};
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, ExcludeSelectItem, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectName, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias, TableFactor, UnaryOperator,
    Value, Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions, visit_expressions,
    visit_expressions_mut, visit_relations,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Suffix of the name of a view that includes the hidden columns.
pub(super) const WITH_PATHS: &str = " with paths";

/// Returns the names of the tables that a statement reads, without schemas, and whether each is a
/// view of GUFI's.
pub(super) fn tables(statement: &Statement, gufi: bool) -> Vec<(String, bool)> {
    let mut names = Vec::new();
    let _: ControlFlow<()> = visit_relations(statement, |name| {
        if let Some(view) = view_name(name, gufi) {
            names.push((view, true));
        } else if let Some(name) = name.0.last().and_then(|part| part.as_ident()) {
            names.push((normal(name), false));
        }
        ControlFlow::Continue(())
    });
    names
}

/// Returns the names of the functions that a statement calls.
pub(super) fn functions(statement: &Statement) -> HashSet<String> {
    let mut names = HashSet::new();
    let _: ControlFlow<()> = visit_expressions(statement, |expression| {
        if let Expr::Function(function) = expression {
            names.insert(function_name(function));
        }
        ControlFlow::Continue(())
    });
    names
}

/// Rewrites a statement. `columns` are the names of columns of the tables that it reads.
pub(super) fn rewrite(statement: &mut Statement, gufi: bool, columns: HashSet<String>) {
    let mut aliases = Aliases(columns);
    let _ = Visit::visit(statement, &mut aliases);
    let _ = VisitMut::visit(statement, &mut Rewriter { gufi, columns: aliases.0 });
}

/// Names that a statement gives to columns, which it may use before it gives them.
struct Aliases(HashSet<String>);

impl Visitor for Aliases {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.0.extend(select.projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            SelectItem::UnnamedExpr(expr @ Expr::Function(_)) => Some(expr.to_string()),
            _ => None,
        }));
        ControlFlow::Continue(())
    }
}

/// Refuses a path function where no view of GUFI's is read.
pub(super) fn check(statement: &Statement) -> Result<()> {
    match functions(statement).into_iter().find(|name| is_path_function(name)) {
        Some(name) => Err(DataFusionError::Plan(format!(
            "{name}() is of a directory: it needs one of GUFI's views after FROM"
        ))),
        None => Ok(()),
    }
}

/// Returns the view of GUFI's that a name means. Names that the index's own tables have mean those
/// unless `gufi` says so.
fn view_name(name: &ObjectName, gufi: bool) -> Option<String> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(normal).collect();
    let (table, schema) = match parts.as_slice() {
        [table] => (table, None),
        [.., schema, table] => (table, Some(schema.as_str())),
        [] => return None,
    };
    let own = super::super::tables::TABLES.iter().any(|own| own.name == table);
    let meant = match schema {
        Some(schema) => schema == super::SCHEMA,
        None => gufi || !own,
    };
    (meant && views::named(table).is_some()).then(|| table.clone())
}

fn normal(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn function_name(function: &Function) -> String {
    function.name.0.last().and_then(|part| part.as_ident()).map(normal).unwrap_or_default()
}

fn is_path_function(name: &str) -> bool {
    matches!(
        name,
        "path"
            | "fpath"
            | "epath"
            | "rpath"
            | "spath"
            | "level"
            | "pinode"
            | "starting_point"
            | "subdirs"
    )
}

fn arguments(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let expression = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression.clone()),
        _ => None,
    };
    list.args.iter().filter_map(expression).collect()
}

fn cast(expression: Expr, data_type: DataType) -> Expr {
    let expr = Box::new(expression);
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn double(expression: Expr) -> Expr {
    cast(expression, DataType::Double(ExactNumberInfo::None))
}

struct Rewriter {
    gufi: bool,
    columns: HashSet<String>,
}

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut taken = HashSet::new();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if matches!(expr, Expr::CompoundIdentifier(_)) || self.is_column(expr) {
                continue;
            }
            let mut name = expr.to_string();
            while !taken.insert(name.clone()) {
                name.push('\'');
            }
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', name),
            };
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut order: Vec<&mut Expr> = Vec::new();
        if let Some(OrderByKind::Expressions(expressions)) =
            query.order_by.as_mut().map(|order| &mut order.kind)
        {
            order.extend(expressions.iter_mut().map(|by| &mut by.expr));
        }
        self.paths(&mut query.body, order);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let rewritten = match expression {
            Expr::Like { negated, any: false, expr, pattern, escape_char } => Expr::ILike {
                negated: *negated,
                any: false,
                expr: expr.clone(),
                pattern: pattern.clone(),
                escape_char: escape_char.clone(),
            },
            Expr::RLike { negated, expr, pattern, .. } => {
                let matches =
                    Expr::Function(call("regexp_like", vec![*expr.clone(), *pattern.clone()]));
                match negated {
                    true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(matches) },
                    false => matches,
                }
            }
            Expr::Cast { data_type, .. } => {
                use DataType::{Int, Int64, Integer};
                if matches!(data_type, Int64 | Int(_) | Integer(_)) {
                    *data_type = DataType::BigInt(None);
                }
                return ControlFlow::Continue(());
            }
            Expr::Identifier(name) if name.quote_style == Some('"') && !self.names_column(name) => {
                Expr::value(Value::SingleQuotedString(name.value.clone()))
            }
            Expr::Function(function) => match of_sqlite(function) {
                Some(rewritten) => rewritten,
                None => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        *expression = rewritten;
        ControlFlow::Continue(())
    }
}

/// Returns the replacement of a function that SQLite or GUFI has in other words or with another
/// meaning.
fn of_sqlite(function: &Function) -> Option<Expr> {
    let given = arguments(function);
    let name = |name: &str| ObjectName::from(vec![Ident::new(name)]);
    let renamed = |new: &str| Function { name: name(new), ..function.clone() };
    match (function_name(function).as_str(), given.as_slice()) {
        ("total", [_]) => {
            let sum = double(Expr::Function(renamed("sum")));
            let nothing = double(Expr::value(Value::Number("0".to_owned(), false)));
            Some(Expr::Function(call("coalesce", vec![sum, nothing])))
        }
        ("regexp", [pattern, text]) => {
            Some(Expr::Function(call("regexp_like", vec![text.clone(), pattern.clone()])))
        }
        ("log2_hist", [value, buckets]) => {
            let base = Expr::value(Value::Number("2".to_owned(), false));
            let args = call("log_hist", vec![value.clone(), base, buckets.clone()]).args;
            Some(Expr::Function(Function { args, ..renamed("log_hist") }))
        }
        ("rpad", [_, _]) => Some(Expr::Function(renamed("gufi_rpad"))),
        ("char", [_]) => Some(Expr::Function(renamed("chr"))),
        _ => None,
    }
}

/// A view of GUFI's in a FROM clause.
struct Relation {
    view: String,
    qualifier: Ident,
    entries: bool,
    used: bool,
}

impl Rewriter {
    /// Returns whether an expression is the name of a column, as far as one can know.
    fn is_column(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Identifier(name) if self.names_column(name))
    }

    fn names_column(&self, name: &Ident) -> bool {
        name.quote_style != Some('"')
            || HIDDEN.contains(&name.value.as_str())
            || self.columns.contains(&name.value)
    }

    fn paths(&self, body: &mut SetExpr, order: Vec<&mut Expr>) {
        match body {
            SetExpr::Select(select) => self.paths_of_select(select, order),
            SetExpr::SetOperation { left, right, .. } => {
                self.paths(left, Vec::new());
                self.paths(right, Vec::new());
            }
            _ => {}
        }
    }

    /// Replaces path functions by hidden columns of the views that the SELECT reads, which get
    /// them.
    fn paths_of_select(&self, select: &mut Select, order: Vec<&mut Expr>) {
        let mut relations: Vec<Relation> =
            factors(select).filter_map(|factor| self.relation(factor)).collect();
        if relations.is_empty() {
            return;
        }
        let mut replace = |expression: &mut Expr| -> ControlFlow<()> {
            if let Expr::Function(function) = expression
                && let Some(column) = path_column(function, &mut relations)
            {
                *expression = column;
            }
            ControlFlow::Continue(())
        };
        let _ = visit_expressions_mut(select, &mut replace);
        for expression in order {
            let _ = visit_expressions_mut(expression, &mut replace);
        }
        let used: Vec<&Relation> = relations.iter().filter(|relation| relation.used).collect();
        if used.is_empty() {
            return;
        }
        for factor in factors(select) {
            let qualifier = self.relation(factor).map(|relation| relation.qualifier);
            if let Some(relation) =
                used.iter().find(|used| Some(&used.qualifier) == qualifier.as_ref())
            {
                widen(factor, relation);
            }
        }
        for item in &mut select.projection {
            hide(item, &used);
        }
    }

    fn relation(&self, factor: &TableFactor) -> Option<Relation> {
        let TableFactor::Table { name, alias, .. } = factor else { return None };
        let view = view_name(name, self.gufi)?;
        let own = name.0.last()?.as_ident()?.clone();
        let qualifier = alias.as_ref().map_or(own, |alias| alias.name.clone());
        let entries = views::named(&view)?.is_of_entries();
        Some(Relation { view, qualifier, entries, used: false })
    }
}

/// Returns the tables of a FROM clause.
fn factors(select: &mut Select) -> impl Iterator<Item = &mut TableFactor> {
    select.from.iter_mut().flat_map(|table| {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        std::iter::once(&mut table.relation).chain(joined)
    })
}

fn path_column(function: &Function, relations: &mut [Relation]) -> Option<Expr> {
    let name = function_name(function);
    if !is_path_function(&name) {
        return None;
    }
    let given = arguments(function);
    // rpath(t.sname, t.sroll) is of t, all else of the first view.
    let at = given.iter().find_map(|argument| match argument {
        Expr::CompoundIdentifier(parts) => {
            let table = normal(parts.get(parts.len().checked_sub(2)?)?);
            relations.iter().position(|relation| normal(&relation.qualifier) == table)
        }
        _ => None,
    });
    let relation = &mut relations[at.unwrap_or(0)];
    let column = |name: &str| {
        Expr::CompoundIdentifier(vec![relation.qualifier.clone(), Ident::with_quote('"', name)])
    };
    let value = match (name.as_str(), given.as_slice()) {
        ("path", [] | [_]) | ("fpath", []) | ("rpath" | "spath", [_, _]) => column(PATH),
        ("epath", []) => Expr::Function(call("basename", vec![column(PATH)])),
        ("rpath" | "spath", [_, _, entry]) => match entry {
            Expr::Identifier(name) if relation.entries && normal(name) == "name" => column(ENTRY),
            _ => Expr::Function(call("gufi_join", vec![column(PATH), entry.clone()])),
        },
        ("level", []) => column(LEVEL),
        ("pinode", []) => column(PINODE),
        ("starting_point", []) => column(ROOT),
        ("subdirs", [_, _]) => column(SUBDIRS),
        _ => return None,
    };
    relation.used = true;
    Some(value)
}

/// Makes a table the one with hidden columns, under the name that it had.
fn widen(factor: &mut TableFactor, relation: &Relation) {
    let TableFactor::Table { name, alias, .. } = factor else { return };
    let wide = format!("{}{WITH_PATHS}", relation.view);
    *name = ObjectName::from(vec![Ident::new(super::SCHEMA), Ident::with_quote('"', wide)]);
    if alias.is_none() {
        *alias = Some(TableAlias {
            explicit: true,
            name: relation.qualifier.clone(),
            columns: Vec::new(),
            at: None,
        });
    }
}

/// Keeps hidden columns out of `*`.
fn hide(item: &mut SelectItem, used: &[&Relation]) {
    let exclude = |options: &mut WildcardAdditionalOptions| {
        let name = |name: &str| ObjectName::from(vec![Ident::with_quote('"', name)]);
        let mut names = HIDDEN.map(name).to_vec();
        names.extend(match options.opt_exclude.take() {
            Some(ExcludeSelectItem::Single(name)) => vec![name],
            Some(ExcludeSelectItem::Multiple(names)) => names,
            None => Vec::new(),
        });
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
    };
    match item {
        SelectItem::Wildcard(options) => exclude(options),
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(table),
            options,
        ) => {
            let table = table.0.last().and_then(|part| part.as_ident()).map(normal);
            if used.iter().any(|relation| Some(normal(&relation.qualifier)) == table) {
                exclude(options);
            }
        }
        _ => {}
    }
}
