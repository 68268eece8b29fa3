//! Titles of an answer's columns as they were typed, where the engine calls them otherwise: in
//! lower case, with their tables, or by its own form of an expression.

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};
use std::sync::Arc;

/// Returns the schema of a statement's answer with the titles that were typed.
pub(super) fn typed(statement: &str, schema: &SchemaRef) -> SchemaRef {
    let titles = DFParser::parse_sql(statement).ok().and_then(|mut parsed| {
        let Statement::Statement(statement) = parsed.pop_front()? else { return None };
        let ast::Statement::Query(query) = *statement else { return None };
        titles(&query.body, schema)
    });
    let Some(titles) = titles else { return schema.clone() };
    let fields = schema.fields().iter().zip(titles);
    let fields: Vec<_> =
        fields.map(|(field, title)| field.as_ref().clone().with_name(title)).collect();
    Arc::new(Schema::new(fields))
}

/// Returns a title for each column; `None` if the origin of a column is not clear.
fn titles(body: &SetExpr, schema: &SchemaRef) -> Option<Vec<String>> {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return titles(&query.body, schema),
        SetExpr::SetOperation { left, .. } => return titles(left, schema),
        _ => return None,
    };
    let title = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => {
            Some(names.last()?.value.clone())
        }
        SelectItem::UnnamedExpr(expression) => Some(expression.to_string()),
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    };
    let typed: Vec<Option<String>> = select.projection.iter().map(title).collect();
    let others = typed.iter().flatten().count();
    let stars = typed.len() - others;
    let of_stars = schema.fields().len().checked_sub(others)?;
    if stars > 1 || stars == 0 && of_stars > 0 {
        return None;
    }
    let mut found = Vec::with_capacity(schema.fields().len());
    for title in typed {
        match title {
            Some(title) => found.push(title),
            None => {
                let fields = schema.fields().iter().skip(found.len()).take(of_stars);
                found.extend(fields.map(|field| field.name().clone()));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    fn of(statement: &str, columns: &[&str]) -> Vec<String> {
        let fields = columns.iter().map(|name| Field::new(*name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        typed(statement, &schema).fields().iter().map(|field| field.name().clone()).collect()
    }

    #[test]
    fn titles_are_those_that_were_typed() {
        let statement = "SELECT NAME, e.Size, SiZe AS Big, count(*), \"Quoted\" FROM e";
        let engine = ["name", "size", "big", "count(*)", "Quoted"];
        assert_eq!(of(statement, &engine), ["NAME", "Size", "Big", "count(*)", "Quoted"]);
        assert_eq!(of("SELECT Sum(Size) FROM e", &["sum(e.size)"]), ["Sum(Size)"]);
        assert_eq!(of("SELECT A, *, B FROM e", &["a", "x", "y", "b"]), ["A", "x", "y", "B"]);
        assert_eq!(of("SELECT A FROM e UNION SELECT b FROM f", &["a"]), ["A"]);
        assert_eq!(of("WITH c AS (SELECT 1) SELECT X FROM c", &["x"]), ["X"]);
        // Two stars, and what is not a query, keep what the engine calls them.
        assert_eq!(of("SELECT A, e.*, f.* FROM e, f", &["a", "x"]), ["a", "x"]);
        assert_eq!(of("SHOW TABLES", &["table_name"]), ["table_name"]);
        assert_eq!(of("SELECT A", &["a", "b"]), ["a", "b"]);
    }
}
