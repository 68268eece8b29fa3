//! `canopy ns info`.

use crate::{place, viewed};
use canopy::Outcome;
use canopy_cluster::membership::{living, newest_map};
use canopy_cluster::{cluster_tables, has_cluster};
use canopy_namespace::origin_of;
use canopy_store::{Environment, inspect};
use canopy_text::counted;
use serde_json::json;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub fn run(namespace: &Path, is_json: bool) -> anyhow::Result<Outcome> {
    let namespace = match viewed::mounted(namespace)? {
        Some(mount) => PathBuf::from(OsStr::from_bytes(&mount.source)),
        None => namespace.to_owned(),
    };
    let namespace = viewed::place_of_records(&namespace)?;
    let environment = place::environment(&namespace)?;
    if has_cluster(environment.storage.as_ref())? {
        return of_servers(&environment, is_json);
    }
    place::found(&namespace)?;
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

/// Prints the state of a namespace on several servers.
fn of_servers(environment: &Environment, is_json: bool) -> anyhow::Result<Outcome> {
    let tables = cluster_tables(environment.storage.as_ref())?;
    let (mut bytes, mut runs, mut sstables) = (0_u64, 0, 0);
    for table in &tables {
        let state = inspect(environment, *table)?.state;
        runs += state.runs.len();
        sstables += state.runs.iter().map(|run| run.sstables.len()).sum::<usize>();
        bytes += state.runs.iter().map(|run| run.size_bytes()).sum::<u64>();
    }
    let map = newest_map(environment.storage.as_ref(), 0)?.unwrap_or_default();
    let processes = living(environment, &map)?.len();
    let mut out = std::io::stdout().lock();
    if is_json {
        let told = json!({
            "servers": tables.len(), "processes": processes, "runs": runs, "sstables": sstables,
            "bytes": bytes,
        });
        writeln!(out, "{told}")?;
        return Ok(Outcome::Complete);
    }
    writeln!(out, "servers   {}", tables.len())?;
    writeln!(out, "processes {processes}")?;
    let (bytes, files) = (counted(bytes, "byte"), counted(sstables, "file"));
    writeln!(out, "records   {bytes} in {files}, and what is in the logs")?;
    Ok(Outcome::Complete)
}
