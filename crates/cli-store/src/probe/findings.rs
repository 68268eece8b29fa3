//! Findings of a machine about a file system, and the verdict on it.

use super::rounds::LATEST;
use anyhow::Context;
use canopy_store::storage::Machine;
use serde_json::{Value, json};
use std::fmt;
use std::io::Write;
use std::path::Path;

/// Names that are removed, and listings, may be late: that takes space for longer. Longer than this,
/// something is wrong.
const LATE_MS_MAX: u64 = 60_000;

/// How often and how much a change of the other machine was seen late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    pub looks: u64,
    pub late: u64,
    pub most_ms: u64,
}

/// The findings of one machine.
pub struct Findings {
    pub machine: Machine,
    /// Whether it could write to the directory before.
    pub may_write: bool,
    /// The type of the file system, and options of its mount.
    file_system: String,
    /// New objects, looked for by name.
    pub names: Lateness,
    /// Bytes that the other machine added to a file that it had begun.
    pub growth: Lateness,
    pub listings: Lateness,
    pub removals: Lateness,
    /// New objects, looked for by stat(2) without opening the directory; not needed.
    pub plain: Lateness,
    /// Objects that were created although they were there.
    pub twice: u32,
    /// Which of the names that both wanted this machine created.
    pub won: Vec<bool>,
}

impl Findings {
    pub fn new(machine: Machine, session: &Path, rounds: u32) -> anyhow::Result<Self> {
        let root = session.parent().and_then(Path::parent).unwrap_or(session);
        let shared = canopy_store::storage::SharedDirectory::root_of(root)?;
        let may_write = match shared {
            Some(root) => {
                canopy_store::storage::SharedDirectory::open(&root)?.notes().has(&machine)?
            }
            None => false,
        };
        let [names, growth, listings, removals, plain] = Default::default();
        let won = Vec::with_capacity(rounds as usize);
        let file_system = file_system(root);
        Ok(Findings {
            machine,
            may_write,
            file_system,
            names,
            growth,
            listings,
            removals,
            plain,
            twice: 0,
            won,
        })
    }

    pub fn as_json(&self) -> Value {
        let late =
            |of: Lateness| json!({"looks": of.looks, "late": of.late, "most_ms": of.most_ms});
        json!({
            "machine": self.machine.name,
            "id": format!("{:016x}", self.machine.id),
            "may_write": self.may_write,
            "file_system": self.file_system,
            "names": late(self.names),
            "growth": late(self.growth),
            "listings": late(self.listings),
            "removals": late(self.removals),
            "plain": late(self.plain),
            "twice": self.twice,
            "won": String::from_iter(self.won.iter().map(|won| if *won { '1' } else { '0' })),
        })
    }

    pub fn encode(&self) -> anyhow::Result<Vec<u8>> {
        Ok(serde_json::to_vec(&self.as_json())?)
    }

    /// Reads what the other machine found.
    pub fn decode(bytes: &[u8]) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_slice(bytes).context("the other machine's findings")?;
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let late = |key: &str| {
            let of = value.get(key)?;
            let number = |key: &str| of.get(key)?.as_u64();
            let (looks, late) = (number("looks")?, number("late")?);
            Some(Lateness { looks, late, most_ms: number("most_ms")? })
        };
        let read = || {
            let id = u64::from_str_radix(&text("id")?, 16).ok()?;
            Some(Findings {
                machine: Machine { id, name: text("machine")? },
                may_write: value.get("may_write")?.as_bool()?,
                file_system: text("file_system")?,
                names: late("names")?,
                growth: late("growth")?,
                listings: late("listings")?,
                removals: late("removals")?,
                plain: late("plain")?,
                twice: u32::try_from(value.get("twice")?.as_u64()?).ok()?,
                won: text("won")?.bytes().map(|one| one == b'1').collect(),
            })
        };
        read().context("the other machine runs another version of canopy")
    }

    /// Returns how many names both machines created, or neither.
    fn contested_wrongly(&self, other: &Findings) -> usize {
        let most = self.won.len().max(other.won.len());
        let won = |findings: &Findings, at: usize| findings.won.get(at).copied();
        (0..most).filter(|at| won(self, *at) != won(other, *at).map(|won| !won)).count()
    }

    /// Returns whether both machines may share the directory.
    pub fn passed(&self, other: &Findings) -> bool {
        self.contested_wrongly(other) == 0 && [self, other].iter().all(|one| one.is_fit())
    }

    fn is_fit(&self) -> bool {
        let is_soon = |of: Lateness| of.most_ms <= LATE_MS_MAX;
        let are_at_once = self.names.late == 0 && self.growth.late == 0;
        self.twice == 0 && are_at_once && is_soon(self.listings) && is_soon(self.removals)
    }

    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let won = self.won.iter().filter(|won| **won).count();
        writeln!(out, "{} sees, on {}:", self.machine.name, self.file_system)?;
        writeln!(out, "  new names      {}", self.names)?;
        writeln!(out, "  added bytes    {}", self.growth)?;
        writeln!(out, "  in listings    {}", self.listings)?;
        writeln!(out, "  by stat(2)     {} (not needed)", self.plain)?;
        writeln!(out, "  removed names  {}", self.removals)?;
        writeln!(out, "  of {} names that both tried to create, it created {won}", self.won.len())
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lateness { looks, late, most_ms } = self;
        match late {
            0 => write!(f, "at once, {looks} times"),
            _ if u128::from(*most_ms) >= LATEST.as_millis() => {
                write!(f, "late {late} times of {looks}, by more than {} s", LATEST.as_secs())
            }
            _ => write!(f, "late {late} times of {looks}, by {most_ms} ms at most"),
        }
    }
}

/// Returns why the machines may not share a directory, and what to do.
pub fn refusal(root: &Path, own: &Findings, other: &Findings) -> String {
    let shown = root.display();
    if own.contested_wrongly(other) > 0 || own.twice + other.twice > 0 {
        return format!(
            "{shown}: refused: two machines created one name; this file system cannot hold tables"
        );
    }
    let late = [own, other].into_iter().find(|one| !one.is_fit()).unwrap_or(own);
    let (name, file_system) = (&late.machine.name, &late.file_system);
    let advice = match file_system {
        of if of.starts_with("nfs") => {
            "mount it without the option nocto; if that does not help, with lookupcache=none or \
             actimeo=0"
        }
        of if of.starts_with("fuse") => {
            "mount it without a cache of names, as with entry_timeout=0,negative_timeout=0"
        }
        _ => "turn off its cache of names",
    };
    format!(
        "{shown}: refused: {name} sees changes of the other machine late, and tables would lose data; \
         {advice}, and try again"
    )
}

/// Returns the type of the file system of a directory, and the options of its mount.
fn file_system(directory: &Path) -> String {
    let mounts = canopy_scan::mounts().unwrap_or_default();
    let is_above = |point: &[u8]| {
        let point = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(point));
        directory.starts_with(point)
    };
    let above = mounts.iter().filter(|mount| is_above(&mount.point));
    // The last of several on one directory is what is seen.
    let mount = above.max_by_key(|mount| mount.point.len());
    let Some(mount) = mount else { return "an unknown file system".to_owned() };
    match mount.options.is_empty() {
        true => mount.file_system.clone(),
        false => format!("{} ({})", mount.file_system, mount.options),
    }
}
