//! `canopy ns check`.

use crate::{moment, place, servers, viewed};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Check as Arguments;
use canopy_mount::{CHECK, CHECK_DATA, LEFT, REPAIR, REPAIR_DATA};
use canopy_namespace::{Fault, Namespace};
use canopy_text::counted;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let namespace = &arguments.place;
    if let Some(name) = &arguments.snapshot {
        canopy_namespace::check_snapshot_name(name)?;
    }
    if let Some(servers) = served_behind(namespace, arguments.certificate.as_deref())? {
        return check_served(servers, arguments);
    }
    if arguments.certificate.is_some() {
        bail!("--certificate is for namespaces on several servers");
    }
    if let Some(name) = &arguments.snapshot {
        return check_snapshot(namespace, name, arguments.data);
    }
    if arguments.repair {
        return repair(namespace, arguments.data);
    }
    check(namespace, arguments.data)
}

fn check(namespace: &Path, reads_contents: bool) -> anyhow::Result<Outcome> {
    let namespace = &place::asked(namespace)?;
    let name = if reads_contents { CHECK_DATA } else { CHECK };
    let faults = match place::control(namespace, name)? {
        Some(told) => told.lines().map(str::to_owned).collect(),
        None => match place::open_read_only(namespace) {
            Err(error) if place::is_damage(&error) => vec![format!("{:#}", error.root_cause())],
            opened => {
                let opened = opened?;
                shown(&match reads_contents {
                    true => opened.check_contents(|_| {})?,
                    false => opened.check(|_| {})?,
                })
            }
        },
    };
    print_faults(&faults)
}

/// Has `canopy cluster check` check a namespace on several servers.
fn check_served(place: PathBuf, arguments: &Arguments) -> anyhow::Result<Outcome> {
    let mut words = vec![OsString::from("check")];
    words.extend(arguments.repair.then(|| "--repair".into()));
    words.extend(arguments.data.then(|| "--data".into()));
    let snapshot = arguments.snapshot.as_ref().map(OsString::from);
    let certificate = arguments.certificate.as_ref().map(OsString::from);
    for (option, value) in [("--snapshot", snapshot), ("--certificate", certificate)] {
        words.extend(value.into_iter().flat_map(|value| [option.into(), value]));
    }
    words.push(place.into());
    canopy::become_cluster(words)
}

/// Returns the place of the storage of a namespace on several servers: of this name, or mounted there.
fn served_behind(namespace: &Path, certificate: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let mounted = viewed::mounted(namespace)?;
    let name = mounted.map(|mount| PathBuf::from(OsStr::from_bytes(&mount.source)));
    let name = name.unwrap_or_else(|| namespace.to_owned());
    match servers::is_served(&name)? {
        true => viewed::place_of_records_for(&name, certificate).map(Some),
        false => Ok(None),
    }
}

/// Opens a namespace. If files of it are damaged, repairs it first so far that it can be opened,
/// and returns these repairs.
fn open_damaged(place: &Path) -> anyhow::Result<(Namespace, Vec<String>)> {
    let error = match place::open(place) {
        Err(error) if place::is_damage(&error) => error,
        opened => return Ok((opened?, Vec::new())),
    };
    let environment = place::environment(place)?;
    let done = match canopy_namespace::salvage(&environment) {
        Err(failed) if failed.is_damage() => bail!(
            "{failed}: this cannot be repaired; restore {} or this file from a backup \
             (docs/admin.md, \"Backups of namespaces\")",
            place.display()
        ),
        salvaged => salvaged.with_context(|| error.to_string())?,
    };
    Ok((place::open(place)?, done))
}

/// Checks a snapshot.
fn check_snapshot(place: &Path, name: &str, reads_contents: bool) -> anyhow::Result<Outcome> {
    let place = &place::asked(place)?;
    let of = if reads_contents { CHECK_DATA } else { CHECK };
    let told = match place::control(place, &format!("{of}@{name}")) {
        Err(error) if error.downcast_ref() == Some(&Errno::STALE) => {
            bail!("{} has no snapshot {name}", place.display());
        }
        told => told?,
    };
    let faults = match told {
        Some(told) => told.lines().map(str::to_owned).collect(),
        None => {
            let namespace = place::open_read_only(place)?;
            let past = moment::past(&namespace, place, name)?;
            shown(&namespace.check_past(&past, reads_contents)?)
        }
    };
    print_faults(&faults)
}

fn print_faults(faults: &[String]) -> anyhow::Result<Outcome> {
    let mut out = std::io::stdout().lock();
    for fault in faults {
        writeln!(out, "{fault}")?;
    }
    writeln!(out, "{}", fault_count(faults.len()))?;
    Ok(if faults.is_empty() { Outcome::Complete } else { Outcome::Partial })
}

/// Repairs everything; exit code 1 means that there were faults.
fn repair(namespace: &Path, reads_contents: bool) -> anyhow::Result<Outcome> {
    let namespace = &place::asked(namespace)?;
    let name = if reads_contents { REPAIR_DATA } else { REPAIR };
    let mounted = place::control(namespace, name)?;
    let is_mounted = mounted.is_some();
    let (left, done) = match mounted {
        Some(told) => {
            let lines = told.lines().map(str::to_owned);
            let (left, done): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(LEFT));
            let left = left.iter().map(|line| line.trim_start_matches(LEFT).to_owned());
            (Vec::from_iter(left), done)
        }
        None => {
            let (namespace, mut done) = open_damaged(namespace)?;
            let repaired = match reads_contents {
                true => namespace.repair_contents()?,
                false => namespace.repair()?,
            };
            namespace.close()?;
            done.extend(repaired.done);
            (shown(&repaired.left), done)
        }
    };
    let mut out = std::io::stdout().lock();
    for line in &done {
        writeln!(out, "{line}")?;
    }
    for fault in &left {
        writeln!(out, "left: {fault}")?;
    }
    if is_mounted && !done.is_empty() {
        let shown = namespace.display();
        writeln!(out, "programs may see what was before until {shown} is unmounted")?;
    }
    match (left.len(), done.is_empty()) {
        (0, true) => writeln!(out, "no faults")?,
        (0, false) => writeln!(out, "all faults are mended")?,
        (count, _) => {
            bail!("{} could not be mended: close all files and try again", fault_count(count))
        }
    }
    Ok(if done.is_empty() { Outcome::Complete } else { Outcome::Partial })
}

fn shown(faults: &[Fault]) -> Vec<String> {
    Vec::from_iter(faults.iter().map(Fault::to_string))
}

fn fault_count(count: usize) -> String {
    match count {
        0 => "no faults".into(),
        _ => counted(count, "fault"),
    }
}
