//! `canopy ns info`.

use crate::{place, viewed};
use canopy::Outcome;
use canopy_namespace::origin_of;
use canopy_store::inspect;
use canopy_text::counted;
use serde_json::json;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn run(namespace: &Path, is_json: bool) -> anyhow::Result<Outcome> {
    let namespace = match viewed::mounted(namespace)? {
        Some(mount) => OsStr::from_bytes(&mount.source).into(),
        None => namespace.to_owned(),
    };
    place::found(&namespace)?;
    let environment = place::environment(&namespace)?;
    let (format, table) = origin_of(environment.storage.as_ref())?;
    let state = inspect(&environment, table)?.state;
    let sstables = state.runs.iter().map(|run| run.sstables.len()).sum::<usize>();
    let bytes: u64 = state.runs.iter().map(|run| run.size_bytes()).sum();
    let mut out = std::io::stdout().lock();
    if is_json {
        let told = json!({
            "format": format, "table": table.to_string(), "opened": state.epoch,
            "runs": state.runs.len(), "sstables": sstables, "bytes": bytes,
        });
        writeln!(out, "{told}")?;
        return Ok(Outcome::Complete);
    }
    writeln!(out, "format    {format}")?;
    writeln!(out, "table     {table}")?;
    writeln!(out, "opened    {}", counted(state.epoch, "time"))?;
    let (bytes, files) = (counted(bytes, "byte"), counted(sstables, "file"));
    writeln!(out, "records   {bytes} in {files}, and what is in the log")?;
    Ok(Outcome::Complete)
}
