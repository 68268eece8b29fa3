//! `canopy store stat` of a table

use crate::manifest;
use crate::show::{stdout, text};
use crate::storage::{find_table, open_storage};
use canopy::{Outcome, message};
use canopy_store::manifest::Manifest;
use canopy_store::storage::Listed;
use canopy_store::{Environment, Object, TableId, garbage, inspect};
use canopy_text::counted;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Attempts to read a manifest that is replaced meanwhile, before it is shown as it was.
const ATTEMPTS: u32 = 16;

/// Objects of a table in storage, besides its manifest.
struct Found {
    manifest: Manifest,
    /// Unreferenced objects; an error with the reason if they cannot be determined.
    garbage: Result<Vec<Listed>, String>,
    /// Segments and fences: epoch, number, size.
    segments: Vec<(u64, u64, u64)>,
    /// Objects that the engine has no name for.
    strangers: Vec<Listed>,
}

/// Carries the subcommand out.
pub fn run(location: &str, table: &str, is_json: bool) -> anyhow::Result<Outcome> {
    let environment = open_storage(location)?;
    let id = find_table(&environment, table)?;
    let found = find(&environment, id)?;
    let mut output = stdout(is_json);
    if is_json {
        let object = as_json(id, &found);
        writeln!(output, "{object:#}")?;
    } else {
        let now_ms = environment.clock.now_ms();
        manifest::print(&found.manifest, Some(id), now_ms, &mut output)?;
        print(&found, &mut output)?;
    }
    output.flush()?;
    match found.garbage {
        Ok(_) => Ok(Outcome::Complete),
        Err(error) => {
            message(format_args!("what nothing refers to cannot be told: {error}"));
            Ok(Outcome::Partial)
        }
    }
}

fn find(environment: &Environment, id: TableId) -> canopy_store::Result<Found> {
    let mut manifest = inspect(environment, id)?;
    let mut found = garbage(environment, id, &manifest);
    for _ in 0..ATTEMPTS {
        if !matches!(found, Ok(None)) {
            break;
        }
        let current = inspect(environment, id)?;
        if current.version == manifest.version {
            break;
        }
        manifest = current;
        found = garbage(environment, id, &manifest);
    }
    let garbage = match found {
        Ok(Some(garbage)) => Ok(garbage.into_iter().map(|(listed, _)| listed).collect()),
        Ok(None) => Err("a version that a checkpoint keeps is missing".into()),
        Err(error) => Err(error.to_string()),
    };
    let mut found = Found { manifest, garbage, segments: Vec::new(), strangers: Vec::new() };
    for listed in environment.storage.list(&format!("{id}/"), "")? {
        match Object::parse(&listed.name) {
            Some((_, Object::Segment { epoch, number })) => {
                found.segments.push((epoch, number, listed.size_bytes));
            }
            Some(_) => {}
            None => found.strangers.push(listed),
        }
    }
    Ok(found)
}

fn print(found: &Found, output: &mut dyn Write) -> io::Result<()> {
    for (epoch, number, bytes) in &found.segments {
        let mut log = found.manifest.state.log.iter();
        let is_needed = log.any(|start| start.epoch == *epoch && start.segment <= *number);
        let needed = if is_needed { "" } else { ", not needed any more" };
        writeln!(output, "segment      {number} of epoch {epoch}: {bytes} bytes{needed}")?;
    }
    if let Ok(garbage) = &found.garbage {
        let bytes: u64 = garbage.iter().map(|listed| listed.size_bytes).sum();
        let (objects, bytes) = (counted(garbage.len(), "object"), counted(bytes, "byte"));
        writeln!(output, "garbage      {objects}, {bytes}")?;
        for listed in garbage {
            writeln!(output, "  {}: {} bytes", text(listed.name.as_bytes()), listed.size_bytes)?;
        }
    }
    for listed in &found.strangers {
        let name = text(listed.name.as_bytes());
        writeln!(output, "stranger     {name}: {} bytes", listed.size_bytes)?;
    }
    Ok(())
}

fn as_json(id: TableId, found: &Found) -> Value {
    let listed =
        |listed: &Listed| json!({"name": text(listed.name.as_bytes()), "bytes": listed.size_bytes});
    let mut object = manifest::as_json(&found.manifest);
    let garbage = found.garbage.as_ref().ok();
    let segments = found
        .segments
        .iter()
        .map(|(epoch, number, bytes)| json!({"epoch": epoch, "number": number, "bytes": bytes}));
    object["table"] = id.to_string().into();
    object["segments"] = segments.collect();
    object["garbage"] = json!(garbage.map(|all| Vec::from_iter(all.iter().map(listed))));
    object["strangers"] = found.strangers.iter().map(listed).collect();
    object
}
