//! Contents of a manifest, as text and as JSON.

use crate::show;
use canopy_store::manifest::{Hold, LeaseKind, LogStart, Manifest, Phase, Run, SstableRef, State};
use canopy_store::{Object, TableId};
use canopy_text::clock::age;
use canopy_text::clock::full_time;
use canopy_text::counted;
use serde_json::{Value, json};
use std::io::{self, Write};

/// Prints rows with columns of equal width: the first `left` columns aligned left, others right.
/// Blanks at the ends of lines are dropped.
pub fn print_aligned<const N: usize>(
    rows: &[[String; N]],
    left: usize,
    indent: &str,
    output: &mut dyn Write,
) -> io::Result<()> {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = indent.to_owned();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if at == 0 { "" } else { "  " };
            match at {
                at if at < left => line.push_str(&format!("{gap}{cell:<width$}")),
                _ => line.push_str(&format!("{gap}{cell:>width$}")),
            }
        }
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns the word for a phase.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Creating { .. } => "creating",
        Phase::Live => "live",
        Phase::Deleted => "deleted",
    }
}

/// Returns a deadline and how far it is from now.
fn deadline(deadline_ms: u64, now_ms: u64) -> String {
    let ns = |ms: u64| i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(1_000_000));
    let Some((deadline_ns, now_ns)) = ns(deadline_ms).zip(ns(now_ms)) else {
        return format!("until {deadline_ms} ms after 1970");
    };
    let time = full_time(deadline_ns);
    match deadline_ns - now_ns {
        left if left > 0 => format!("until {time}, in {}", age(left)),
        over => format!("until {time}, over for {}", age(-over)),
    }
}

fn hold(hold: Hold, now_ms: u64) -> String {
    match hold {
        Hold::Forever => "until it is released".into(),
        Hold::Until(deadline_ms) => deadline(deadline_ms, now_ms),
        Hold::Pending { clone, deadline_ms } => {
            format!("for the clone {clone}, pending {}", deadline(deadline_ms, now_ms))
        }
        Hold::Confirmed { clone } => format!("for the clone {clone}"),
    }
}

/// Returns `bytes / records` with one digit behind the point.
pub fn bytes_per(bytes: u64, records: u64) -> String {
    match records {
        0 => "-".into(),
        records => format!("{:.1}", bytes as f64 / records as f64),
    }
}

fn job_kind(kind: &LeaseKind) -> String {
    match kind {
        LeaseKind::Writer => "of the writer".into(),
        LeaseKind::Ingestion => "of an ingestion".into(),
        LeaseKind::Compaction(inputs) => format!("of a compaction of {} SSTables", inputs.len()),
    }
}

/// Returns the name of an SSTable, with its table if that is not `table`.
fn sstable_name(sstable: &SstableRef, table: Option<TableId>) -> String {
    let name = Object::Sstable(sstable.id.name).name(sstable.id.table);
    let own = table.filter(|table| *table == sstable.id.table);
    let short = own.and_then(|_| name.rsplit_once('/')).map(|(_, short)| short.to_owned());
    short.unwrap_or(name)
}

/// The numbers of some SSTables together.
#[derive(Default)]
struct Sums {
    sstables: u64,
    bytes: u64,
    records: u64,
    deletes: u64,
    merges: u64,
    range_deletes: u64,
}

impl Sums {
    fn of<'a>(sstables: impl Iterator<Item = &'a SstableRef>) -> Self {
        let mut sums = Sums::default();
        for SstableRef { info, .. } in sstables {
            sums.sstables += 1;
            sums.bytes = sums.bytes.saturating_add(info.size_bytes);
            sums.records = sums.records.saturating_add(info.records);
            sums.deletes = sums.deletes.saturating_add(info.deletes);
            sums.merges = sums.merges.saturating_add(info.merges);
            sums.range_deletes = sums.range_deletes.saturating_add(info.range_deletes);
        }
        sums
    }

    fn line(&self) -> String {
        format!(
            "{}, {}, {} ({}, {}), {} bytes a record, {}",
            counted(self.sstables, "SSTable"),
            counted(self.bytes, "byte"),
            counted(self.records, "record"),
            counted(self.deletes, "delete"),
            counted(self.merges, "merge"),
            bytes_per(self.bytes, self.records),
            counted(self.range_deletes, "range delete")
        )
    }
}

/// Prints what a manifest says, of `table` if that is known.
pub fn print(
    manifest: &Manifest,
    table: Option<TableId>,
    now_ms: u64,
    output: &mut dyn Write,
) -> io::Result<()> {
    let Manifest { version, state, .. } = manifest;
    if let Some(table) = table {
        writeln!(output, "table        {table}")?;
    }
    let until = match state.phase {
        Phase::Creating { deadline_ms } => format!(" {}", deadline(deadline_ms, now_ms)),
        _ => String::new(),
    };
    let operator = match &*state.merge_operator {
        "" => "none".into(),
        name => show::text(name.as_bytes()),
    };
    writeln!(output, "phase        {}{until}", phase(state.phase))?;
    writeln!(output, "version      {} (nonce {:016x})", version.number, version.nonce)?;
    writeln!(output, "epoch        {}", state.epoch)?;
    writeln!(output, "keys         {}", show::range(&state.range))?;
    writeln!(output, "columns      {}", show::layout(&state.layout))?;
    writeln!(output, "merges by    {operator}")?;
    writeln!(output, "next         job {}, checkpoint {}", state.next_job, state.next_checkpoint)?;
    let sums = Sums::of(state.sstables());
    writeln!(output, "runs         {}: {}", state.runs.len(), sums.line())?;
    for (at, run) in state.runs.iter().enumerate() {
        print_run(at, run, table, output)?;
    }
    print_rest(state, now_ms, output)
}

fn print_run(
    at: usize,
    run: &Run,
    table: Option<TableId>,
    output: &mut dyn Write,
) -> io::Result<()> {
    let newest = if at == 0 { " (the newest)" } else { "" };
    writeln!(output, "run {at}{newest}: {}", Sums::of(run.sstables.iter()).line())?;
    let heads = ["SSTABLE", "BYTES", "RECORDS", "BYTES/RECORD", "DELETES", "MERGES", "RANGES"];
    let mut rows = vec![heads.map(str::to_owned)];
    for sstable in &run.sstables {
        let info = &sstable.info;
        rows.push([
            sstable_name(sstable, table),
            info.size_bytes.to_string(),
            info.records.to_string(),
            bytes_per(info.size_bytes, info.records),
            info.deletes.to_string(),
            info.merges.to_string(),
            info.range_deletes.to_string(),
        ]);
    }
    print_aligned(&rows, 1, "  ", output)?;
    for sstable in &run.sstables {
        let name = sstable_name(sstable, table);
        writeln!(output, "  keys of {name}: {}", show::range(&sstable.info.span))?;
        if !sstable.range.covers(&sstable.info.span) {
            writeln!(output, "    of which count: {}", show::range(&sstable.range))?;
        }
    }
    Ok(())
}

fn print_rest(state: &State, now_ms: u64, output: &mut dyn Write) -> io::Result<()> {
    for LogStart { epoch, segment } in &state.log {
        writeln!(output, "log          epoch {epoch} from segment {segment} on")?;
    }
    for job in &state.jobs {
        let until = job.deadline_ms.map(|ms| format!(", {}", deadline(ms, now_ms)));
        let until = until.unwrap_or_default();
        writeln!(output, "job          {} {}{until}", job.id, job_kind(&job.kind))?;
    }
    for checkpoint in &state.checkpoints {
        let (id, version) = (checkpoint.id, checkpoint.version.number);
        let hold = hold(checkpoint.hold, now_ms);
        writeln!(output, "checkpoint   {id} of version {version} {hold}")?;
    }
    for parent in &state.parents {
        writeln!(output, "parent       {} at checkpoint {}", parent.table, parent.checkpoint)?;
    }
    Ok(())
}

fn sstable_json(sstable: &SstableRef) -> Value {
    let info = &sstable.info;
    json!({
        "name": sstable_name(sstable, None),
        "bytes": info.size_bytes,
        "tail_bytes": info.tail_bytes,
        "records": info.records,
        "deletes": info.deletes,
        "merges": info.merges,
        "range_deletes": info.range_deletes,
        "keys": show::range_json(&info.span),
        "keys_that_count": show::range_json(&sstable.range),
    })
}

fn hold_json(hold: Hold) -> Value {
    match hold {
        Hold::Forever => json!({"kind": "forever"}),
        Hold::Until(deadline_ms) => json!({"kind": "until", "deadline_ms": deadline_ms}),
        Hold::Pending { clone, deadline_ms } => {
            json!({"kind": "pending", "clone": clone.to_string(), "deadline_ms": deadline_ms})
        }
        Hold::Confirmed { clone } => json!({"kind": "confirmed", "clone": clone.to_string()}),
    }
}

/// Returns what a manifest says, as an object.
pub fn as_json(manifest: &Manifest) -> Value {
    let Manifest { version, nonces_before, state } = manifest;
    let nonce = |nonce: &u64| format!("{nonce:016x}");
    let deadline_ms = match state.phase {
        Phase::Creating { deadline_ms } => Some(deadline_ms),
        _ => None,
    };
    let runs = state.runs.iter().map(|run| {
        let sstables = run.sstables.iter().map(sstable_json);
        Value::from_iter(sstables)
    });
    let log = state.log.iter().map(|log| json!({"epoch": log.epoch, "segment": log.segment}));
    let jobs = state.jobs.iter().map(|job| {
        let (kind, inputs) = match &job.kind {
            LeaseKind::Writer => ("writer", None),
            LeaseKind::Ingestion => ("ingestion", None),
            LeaseKind::Compaction(inputs) => ("compaction", Some(inputs)),
        };
        let name = |id: &canopy_store::manifest::SstableId| Object::Sstable(id.name).name(id.table);
        let inputs = inputs.map(|inputs| Vec::from_iter(inputs.iter().map(name)));
        json!({"id": job.id, "kind": kind, "inputs": inputs, "deadline_ms": job.deadline_ms})
    });
    let checkpoints = state.checkpoints.iter().map(|checkpoint| {
        let (id, version) = (checkpoint.id, checkpoint.version);
        json!({
            "id": id,
            "version": version.number,
            "nonce": nonce(&version.nonce),
            "hold": hold_json(checkpoint.hold),
        })
    });
    let parents = state
        .parents
        .iter()
        .map(|parent| json!({"table": parent.table.to_string(), "checkpoint": parent.checkpoint}));
    json!({
        "phase": phase(state.phase),
        "deadline_ms": deadline_ms,
        "version": version.number,
        "nonce": nonce(&version.nonce),
        "nonces_before": Vec::from_iter(nonces_before.iter().map(nonce)),
        "epoch": state.epoch,
        "keys": show::range_json(&state.range),
        "columns": show::layout_json(&state.layout),
        "merge_operator": show::text(state.merge_operator.as_bytes()),
        "next_job": state.next_job,
        "next_checkpoint": state.next_checkpoint,
        "runs": Vec::from_iter(runs),
        "log": Vec::from_iter(log),
        "jobs": Vec::from_iter(jobs),
        "checkpoints": Vec::from_iter(checkpoints),
        "parents": Vec::from_iter(parents),
    })
}
