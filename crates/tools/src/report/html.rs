//! A report as one page of HTML that needs nothing else.
//!
//! Every text goes through [`escaped`]. The page has one script, which sorts tables. It declares
//! the script's hash, and browsers run no other script. Without it, the page is complete.

use super::Report;
use super::format::owner_name;
use super::view::{Block, SectionView, Table, coverage, problems, views};
use crate::error::Result;
use canopy_text::safe::report_name;
use std::io::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The SHA-256 of [`SCRIPT`] in Base64: `openssl dgst -sha256 -binary page.js | base64`.
const SCRIPT_HASH: &str = "cwzV1G1zP5oyBhNYMwbTEn136OsCAtXnqXpWFRymUqA=";

/// Writes a report as a page. Control characters and bytes that are not UTF-8 are written as
/// escapes.
pub fn write_html(report: &Report, output: &mut dyn Write) -> Result<()> {
    let views = views(report);
    let names: Vec<String> =
        report.paths.iter().map(|covered| report_name(&covered.path)).collect();
    let title = match names.as_slice() {
        [] => "Nothing to see".to_owned(),
        [path] => path.clone(),
        paths => paths.join(", "),
    };
    write!(
        output,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>Report of \
         {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        title = escaped(&title)
    )?;
    heading(report, &title, output)?;
    write!(output, "<nav aria-label=\"Sections\">")?;
    for view in &views {
        let (name, title) = (view.name, escaped(view.title));
        write!(output, "<a href=\"#{name}\">{title}</a> ")?;
    }
    writeln!(output, "</nav>\n<main>")?;
    for view in &views {
        section(view, output)?;
    }
    writeln!(output, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>")?;
    output.flush()?;
    Ok(())
}

fn heading(report: &Report, title: &str, output: &mut dyn Write) -> Result<()> {
    write!(
        output,
        "<header>\n<p class=\"kind\">Storage report</p>\n<h1>{}</h1>\n<p>",
        escaped(title)
    )?;
    if let Some(owner) = &report.owner {
        write!(output, "Only what belongs to user <b>{}</b>. ", escaped(&owner_name(owner)))?;
    }
    write!(output, "As <b>{}</b> sees it", escaped(&owner_name(&report.asked_by)))?;
    writeln!(output, " in generation {} of the index.</p>", report.generation)?;
    for covered in coverage(report) {
        writeln!(output, "<p>{}</p>", escaped(&covered))?;
    }
    for problem in problems(report) {
        writeln!(output, "<p class=\"problem\">{}</p>", escaped(&problem))?;
    }
    writeln!(output, "</header>")?;
    Ok(())
}

fn section(view: &SectionView, output: &mut dyn Write) -> Result<()> {
    let (name, title) = (view.name, escaped(view.title));
    writeln!(output, "<section id=\"{name}\">\n<h2>{title}</h2>")?;
    if let Some(note) = view.note {
        writeln!(output, "<p class=\"note\">{}</p>", escaped(note))?;
    }
    for block in &view.blocks {
        match block {
            Block::Facts(facts) => {
                write!(output, "<dl>")?;
                for (value, name) in facts {
                    write!(
                        output,
                        "<div><dd>{}</dd><dt>{}</dt></div>",
                        escaped(&value.shown),
                        escaped(name)
                    )?;
                }
                writeln!(output, "</dl>")?;
            }
            Block::Table(table) => write_table(table, output)?,
        }
    }
    writeln!(output, "</section>")?;
    Ok(())
}

fn write_table(table: &Table, output: &mut dyn Write) -> Result<()> {
    if table.rows.is_empty() {
        if table.title.is_some() || !table.columns.is_empty() {
            let title =
                table.title.as_ref().map_or(String::new(), |title| format!("{}: ", escaped(title)));
            writeln!(output, "<p class=\"note\">{title}none</p>")?;
        }
        return Ok(());
    }
    if let Some(title) = &table.title {
        writeln!(output, "<h3>{}</h3>", escaped(title))?;
    }
    let last = table.columns.len() - 1;
    // Targets of links may be as long as paths.
    let long = |at: usize| at == last || table.columns[at].0 == "target";
    let class = |at: usize| match (table.columns[at].1, long(at)) {
        (true, _) => " class=\"number\"",
        (false, true) => " class=\"name\"",
        (false, false) => " class=\"word\"",
    };
    write!(output, "<div class=\"scroll\"><table>\n<thead><tr>")?;
    for (at, (title, _)) in table.columns.iter().enumerate() {
        write!(output, "<th scope=\"col\"{}>{}</th>", class(at), escaped(title))?;
    }
    if !table.shares.is_empty() {
        write!(output, "<th class=\"bar\"><span class=\"hidden\">share</span></th>")?;
    }
    writeln!(output, "</tr></thead>\n<tbody>")?;
    for (number, row) in table.rows.iter().enumerate() {
        let rest = table.rest && number + 1 == table.rows.len();
        write!(output, "<tr{}>", if rest { " class=\"rest\"" } else { "" })?;
        for (at, cell) in row.iter().enumerate() {
            let lines: Vec<String> = cell.shown.lines().map(escaped).collect();
            let value = cell.exact.as_deref().map(escaped);
            let value = value.map_or(String::new(), |value| format!(" data-value=\"{value}\""));
            write!(output, "<td{}{value}>{}</td>", class(at), lines.join("<br>"))?;
        }
        if let Some(share) = table.shares.get(number) {
            let percent = share * 100.0;
            let bar = format!("<div style=\"width:{percent:.2}%\"></div>");
            write!(output, "<td class=\"bar\">{}</td>", if *share > 0.0 { &*bar } else { "" })?;
        }
        writeln!(output, "</tr>")?;
    }
    writeln!(output, "</tbody>\n</table></div>")?;
    Ok(())
}

/// A text in which nothing is markup, in elements and in quoted values of attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let hostile = "</td><script>alert('x')</script><img src=\"x\" onerror=a>&lt;";
        let safe = escaped(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'']), "{safe}");
        assert_eq!(safe.matches('&').count(), 13);
    }
}
