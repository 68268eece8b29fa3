//! `canopy ns query`: the results of a query on a mount, its plan, or the reason why it fails.

use anyhow::{Context, bail};
use canopy::Outcome;
use canopy_fuse::attributes::{ERROR, PLAN};
use canopy_fuse::results::{Refusal, is_query, parsed};
use canopy_ingest::now_ns;
use canopy_query::{Component as Query, shown};
use canopy_text::Quoting;
use canopy_text::locale::is_utf8;
use canopy_text::safe::{message_line, message_lines, terminal_name};
use rustix::fs::Access;
use rustix::io::Errno;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Longer values of attributes do not come from a mount of ours.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The list of snapshots, which is not a query of its own.
const SNAPSHOTS: &[u8] = b"[@]";

/// Carries the command out.
pub fn run(path: &Path, explains: bool) -> anyhow::Result<Outcome> {
    let (base, queries) = split(path)?;
    for query in queries.iter().filter(|query| *query != SNAPSHOTS) {
        if let Err(refusal) = parsed(query, now_ns()) {
            // Where nobody listens there is nothing to show.
            let _ = write!(std::io::stderr(), "{}", message_lines(&pointed(&refusal)));
            bail!("{}", refusal.why);
        }
    }
    // As the mount reads them: it may know other users, and has snapshots.
    let mut at = base.clone();
    for query in &queries {
        let below = at.clone();
        at.push(std::ffi::OsStr::from_bytes(query));
        match rustix::fs::access(&at, Access::EXISTS) {
            Ok(()) => {}
            Err(errno) => bail!("{}", reason(&below, &at, errno)),
        }
    }
    match queries.last() {
        Some(last) if is_snapshot(last) => bail!(
            "{} is a snapshot, not a query: list it with ls, or put a query behind it, as in \
             {}/[size>1G]",
            at.display(),
            shown(last)
        ),
        Some(last) if last == SNAPSHOTS && !explains => bail!(
            "{} has all snapshots, and is not a query: list it with ls, or with canopy ns snapshot \
             list",
            at.display()
        ),
        _ => {}
    }
    if explains {
        return explain(&base, &at, &queries);
    }
    // The name of a directory may look like a query.
    if matches!(attribute(&at, PLAN), Ok(None)) {
        bail!("{}", not_a_query(&at));
    }
    list(&base, &at, &queries)
}

/// Returns the directory that queries hang below, and the queries.
fn split(path: &Path) -> anyhow::Result<(PathBuf, Vec<Vec<u8>>)> {
    let mut base = path.to_owned();
    let mut queries = Vec::new();
    while let Some(Component::Normal(name)) = base.components().next_back()
        && is_query(name.as_bytes())
    {
        queries.push(name.as_bytes().to_vec());
        base = base.parent().map(Path::to_owned).unwrap_or_default();
    }
    queries.reverse();
    if queries.is_empty() {
        bail!("{} does not end with a query in brackets, such as [size>1G]", path.display());
    }
    if base.as_os_str().is_empty() {
        base.push(".");
    }
    fs::metadata(&base).with_context(|| format!("cannot look at {}", base.display()))?;
    Ok((base, queries))
}

/// Returns a query in one line, and points below it to where something is wrong with it.
fn pointed(refusal: &Refusal<'_>) -> String {
    let (before, rest) = refusal.component.split_at(refusal.at.min(refusal.component.len()));
    let (before, rest) = (shown(before), shown(rest));
    let indent = Quoting::terminal(is_utf8()).width(before.as_bytes());
    format!("  {before}{rest}\n  {}^\n", " ".repeat(indent))
}

/// Returns whether a component is the name of a snapshot.
fn is_snapshot(query: &[u8]) -> bool {
    matches!(parsed(query, now_ns()), Ok(Some(Query::Snapshot(_))))
}

fn not_a_query(at: &Path) -> String {
    format!("{} is not a query on a mount of ours", at.display())
}

/// Returns why a query does not exist, from the mount's message or an error of the kernel.
fn reason(below: &Path, at: &Path, errno: Errno) -> String {
    // That of the last query, which this was.
    match attribute(below, ERROR).ok().flatten() {
        Some(said) => said,
        None if errno == Errno::NOENT => {
            format!("{}: no namespace and no index is mounted there", below.display())
        }
        None => format!("cannot look at {}: {errno}", at.display()),
    }
}

/// Returns the beginning of the mount's message about a query.
fn about(query: &[u8]) -> String {
    format!("the query {}: ", shown(query))
}

/// Prints how a query is answered, and why it failed last.
fn explain(base: &Path, at: &Path, queries: &[Vec<u8>]) -> anyhow::Result<Outcome> {
    let plan = attribute(at, PLAN).with_context(|| format!("cannot ask about {}", at.display()))?;
    let Some(plan) = plan else {
        bail!("{}", not_a_query(at));
    };
    let mut output = std::io::stdout().lock();
    // Any file can have such an attribute.
    write!(output, "{}", message_lines(&plan))?;
    if let (Some(last), Ok(Some(said))) = (queries.last(), attribute(base, ERROR))
        && let Some(why) = said.strip_prefix(&about(last))
    {
        writeln!(output, "failed last: {}", message_line(why))?;
    }
    Ok(Outcome::Complete)
}

/// Prints the paths of the files that a query finds.
fn list(base: &Path, at: &Path, queries: &[Vec<u8>]) -> anyhow::Result<Outcome> {
    let failed = |error: std::io::Error| {
        let last = queries.last().map_or(&b""[..], Vec::as_slice);
        let said = attribute(base, ERROR).ok().flatten();
        let own = said.filter(|said| said.starts_with(&about(last)));
        anyhow::anyhow!(own.unwrap_or_else(|| format!("cannot list {}: {error}", at.display())))
    };
    let stdout = std::io::stdout();
    let is_terminal = stdout.is_terminal();
    let mut output = std::io::BufWriter::new(stdout.lock());
    let mut outcome = Outcome::Complete;
    for entry in fs::read_dir(at).map_err(failed)? {
        let path = entry?.path();
        let target = match fs::read_link(&path) {
            Ok(target) => target.into_os_string().into_vec(),
            Err(error) => {
                canopy::message(format_args!("cannot read {}: {error}", path.display()));
                outcome = Outcome::Partial;
                continue;
            }
        };
        output.write_all(&terminal_name(below_queries(&target), is_terminal))?;
        output.write_all(b"\n")?;
    }
    output.flush()?;
    Ok(outcome)
}

/// Returns the path of a result below the directory that queries hang below. Links to results lead
/// up through the queries, but not through a snapshot before them.
fn below_queries(mut target: &[u8]) -> &[u8] {
    while let Some(rest) = target.strip_prefix(b"../") {
        target = rest;
    }
    target
}

/// Returns an attribute of a directory; none if there is none, or it has other ones.
fn attribute(path: &Path, name: &str) -> rustix::io::Result<Option<String>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match rustix::fs::getxattr(path, name, &mut value) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
