//! What the engine refuses, in words that say what to do.

use crate::error::Error;
use datafusion::common::utils::datafusion_strsim::normalized_levenshtein;
use datafusion::error::DataFusionError;

/// How alike two names are at least, from 0 to 1, for one to be meant by the other.
const ALIKE: f64 = 0.5;

/// Turns an error of the engine into one of ours: its cause, without what the engine was doing.
pub(super) fn refusal(root: &DataFusionError) -> Error {
    if let DataFusionError::Plan(text) = root {
        let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
        let table = text.strip_prefix("table '").and_then(|rest| rest.strip_suffix("' not found"));
        if let Some(table) = table {
            let name = table.strip_prefix("datafusion.").unwrap_or(table);
            let name = name.strip_prefix("public.").unwrap_or(name);
            if name.contains('/') {
                let files = "queries read tables, and files that 'canopy table add' has added";
                return Error::Sql(format!("table '{name}' not found: {files}"));
            }
            return Error::NoTable(name.to_owned());
        }
        if text.starts_with("DDL not supported") || text.starts_with("DML not supported") {
            return Error::Sql(format!("queries cannot change the index ({text})"));
        }
    }
    let said = root.strip_backtrace();
    // An option that nobody can set here.
    const OPTION: &str =
        " or disable the datafusion.sql_parser.enable_ident_normalization configuration";
    let mut said = said.replace(OPTION, "");
    if said.contains("No field named \"") {
        said.push_str("\nText stands in single quotes, names of columns in double ones.");
    }
    Error::Sql(said)
}

/// Says that there is no such table, which of those that there are may be meant, and names all.
pub(super) fn no_table(name: &str, tables: &[String]) -> String {
    let likeness = |table: &&String| normalized_levenshtein(table, name);
    let nearest = tables.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let meant = match nearest.filter(|table| likeness(table) >= ALIKE) {
        Some(table) => format!("; did you mean '{table}'?"),
        None => String::new(),
    };
    format!("no table '{name}'{meant} (tables: {})", tables.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_tell_what_is_meant() {
        let plan = |text: &str| refusal(&DataFusionError::Plan(text.to_owned())).to_string();
        assert_eq!(plan("table 'datafusion.public.entres' not found"), "no table 'entres'");
        assert_eq!(plan("table 'datafusion.gufi.x' not found"), "no table 'gufi.x'");
        assert!(plan("table 'datafusion.public./etc/x' not found").contains("canopy table add"));
        assert!(
            plan("DDL not supported: DropTable").starts_with("queries cannot change the index")
        );
        let tables = ["directories", "entries", "xattrs"].map(str::to_owned);
        assert_eq!(
            no_table("entres", &tables),
            "no table 'entres'; did you mean 'entries'? (tables: directories, entries, xattrs)"
        );
        assert!(no_table("weather", &tables).starts_with("no table 'weather' (tables: "));
    }
}
