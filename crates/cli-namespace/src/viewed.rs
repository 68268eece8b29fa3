//! Reading a namespace without changing anything, also while it is mounted, or while its servers run
//! (`cluster`).

mod cluster;

use crate::place;
use crate::servers::{Served, addresses};
use anyhow::{Context, bail};
use canopy_cluster::{ClusterView, cluster_tables, has_cluster, release_all};
use canopy_mount::{FLUSH, TYPE};
use canopy_namespace::{Namespace, ReadView, table_of};
use canopy_scan::Mount;
use canopy_store::{Environment, TableId};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long the state of a mounted namespace is kept if the process dies while it reads it.
const CHECKPOINT_MS: u64 = 6 * 60 * 60 * 1000;

/// Most bytes that closing a namespace writes besides the contents of its log.
const ROOM_BYTES: u64 = 1 << 20;

/// Time in which a mount has to answer if it does not wait for others.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The records of a namespace at one moment.
pub struct Viewed {
    /// The records.
    pub view: ReadView,
    /// Where it is mounted, if it is.
    pub mount: Option<Mount>,
    environment: Environment,
    kept: Held,
}

/// Keeps records unchanged while they are read.
enum Held {
    Checkpoint(HeldCheckpoint),
    /// A namespace that nobody else can open meanwhile, where a disk has no room for a checkpoint.
    Namespace(#[expect(dead_code, reason = "it is kept open")] Box<Namespace>),
}

/// How a namespace was when it was read, for who reads it again: the table, or the first one of several,
/// the checkpoint of each table, since when these are kept for some time, in milliseconds since 1970,
/// and the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    table: String,
    checkpoints: Vec<u64>,
    kept_ms: u64,
    mount: String,
}

impl Known {
    /// Parses the output of [`Display`](std::fmt::Display).
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next();
        let (table, checkpoints, kept_ms) = (word()?, word()?, word()?);
        let mount = word()?.to_owned();
        let checkpoints = checkpoints.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        let kept_ms = kept_ms.parse().ok()?;
        Some(Known { table: table.to_owned(), checkpoints, kept_ms, mount })
    }
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Known { table, checkpoints, kept_ms, mount } = self;
        let checkpoints = Vec::from_iter(checkpoints.iter().map(u64::to_string)).join(",");
        write!(f, "{table} {checkpoints} {kept_ms} {mount}")
    }
}

/// How a namespace is now.
pub enum Now {
    /// As it was; the description is another one if the checkpoint was renewed.
    Same(Option<Known>),
    /// It differs. Contains the state before, if it is still known.
    Other(Box<Viewed>, Option<Box<ReadView>>),
}

/// Checkpoints of the tables, which stay as long as the records are read.
struct HeldCheckpoint {
    environment: Environment,
    checkpoints: Vec<(TableId, u64)>,
    /// When they were made, in milliseconds since 1970.
    kept_ms: u64,
    /// Whether they stay beyond that.
    stays: bool,
    /// The servers that have made them, if it was not this process.
    served: Option<Box<Served>>,
}

/// A namespace, and where it is mounted.
struct Located {
    mount: Option<Mount>,
    /// Its name in full.
    namespace: PathBuf,
    environment: Environment,
    tables: Tables,
}

/// The tables of a namespace.
enum Tables {
    One(TableId),
    /// Those of logical servers, in their order.
    OfServers(Vec<TableId>),
}

impl Tables {
    fn of(environment: &Environment) -> anyhow::Result<Self> {
        let storage = environment.storage.as_ref();
        Ok(match has_cluster(storage)? {
            true => Tables::OfServers(cluster_tables(storage)?),
            false => Tables::One(table_of(storage)?),
        })
    }

    fn all(&self) -> &[TableId] {
        match self {
            Tables::One(table) => std::slice::from_ref(table),
            Tables::OfServers(tables) => tables,
        }
    }

    /// Returns the tables with checkpoints that were kept; none if they are others now.
    fn known(&self, known: &Known) -> Option<Vec<(TableId, u64)>> {
        let tables = self.all();
        let is_same =
            tables.first()?.to_string() == known.table && tables.len() == known.checkpoints.len();
        let checkpoints = known.checkpoints.iter().copied();
        is_same.then(|| tables.iter().copied().zip(checkpoints).collect())
    }
}

impl Located {
    /// Finds the namespace at `place`, or the one that is mounted there.
    fn find(place: &Path) -> anyhow::Result<Self> {
        let mount = mounted(place)?;
        let named = match &mount {
            Some(mount) => PathBuf::from(OsStr::from_bytes(&mount.source)),
            None => place.to_owned(),
        };
        let mut namespace = place_of_records(&named)?;
        if mount.is_none() {
            place::check(&namespace)?;
            namespace = place::full_name(&namespace)?;
        }
        let environment = place::environment(&namespace)?;
        let tables = Tables::of(&environment)?;
        Ok(Located { mount, namespace, environment, tables })
    }
}

impl Viewed {
    /// Opens a namespace, or the one that is mounted on a directory. If it is mounted, all changes
    /// that were done by now are read, and later ones are not. Others can still use it.
    pub fn open(place: &Path) -> anyhow::Result<Self> {
        Self::open_any(place).map_err(|error| place::advised(Some(place), error))
    }

    fn open_any(place: &Path) -> anyhow::Result<Self> {
        let Located { mount, namespace, environment, tables } = Located::find(place)?;
        let failed = || format!("cannot read {}", namespace.display());
        let Tables::One(table) = tables else {
            return Viewed::of_servers(&namespace, environment, mount).with_context(failed);
        };
        match &mount {
            Some(mount) => flush_mounted(&namespace, mount)?,
            None if canopy_store::is_flushed(&environment, table).with_context(failed)? => {}
            // The room that the log reserves is for changes that free space.
            None if !has_room(&environment, table) => return Viewed::of_open(place),
            None => {
                // Once, so that whoever reads next need not.
                let closed = place::open(place).and_then(|opened| Ok(opened.close()?));
                match closed {
                    Err(error) if is_full(&error) => return Viewed::of_open(place),
                    closed => closed?,
                }
            }
        }
        let is_mounted = mount.is_some();
        match Viewed::of(environment, table, mount) {
            Err(error) if is_full(&error) && !is_mounted => Viewed::of_open(place),
            viewed => viewed.with_context(failed),
        }
    }

    /// Opens a namespace that nobody else has open, without room for anything on its disk.
    fn of_open(place: &Path) -> anyhow::Result<Self> {
        let namespace = Box::new(place::open_read_only(place)?);
        let (environment, view) = (place::environment(place)?, namespace.view()?);
        Ok(Viewed { view, mount: None, environment, kept: Held::Namespace(namespace) })
    }

    fn of(environment: Environment, table: TableId, mount: Option<Mount>) -> anyhow::Result<Self> {
        let kept_ms = environment.clock.now_ms();
        let (id, _) = canopy_store::checkpoint(&environment, table, Some(CHECKPOINT_MS))?;
        // Whatever happens from here on, it is let go.
        let checkpoints = vec![(table, id)];
        let kept = HeldCheckpoint {
            environment: environment.clone(),
            checkpoints,
            kept_ms,
            stays: false,
            served: None,
        };
        let view = ReadView::of_table(&environment, Some(id))?;
        Ok(Viewed { view, mount, environment, kept: Held::Checkpoint(kept) })
    }

    /// Reads the tables of servers, each at a checkpoint.
    fn of_servers(
        namespace: &Path,
        environment: Environment,
        mount: Option<Mount>,
    ) -> anyhow::Result<Self> {
        let kept_ms = environment.clock.now_ms();
        let mut served = None;
        let make = || -> anyhow::Result<_> {
            let kept = Duration::from_millis(CHECKPOINT_MS);
            let made = cluster::checkpoints(namespace, &environment, mount.as_ref(), kept)?;
            served = made.served;
            Ok(made.tables)
        };
        let ClusterView { view, checkpoints } = ClusterView::open(&environment, make)?;
        let kept = HeldCheckpoint {
            environment: environment.clone(),
            checkpoints,
            kept_ms,
            stays: false,
            served: served.map(Box::new),
        };
        Ok(Viewed { view, mount, environment, kept: Held::Checkpoint(kept) })
    }

    /// Returns the number of the moment at which servers have made the checkpoints, if they have.
    pub fn cut(&self) -> Option<u64> {
        match &self.kept {
            Held::Checkpoint(HeldCheckpoint { checkpoints, served: Some(_), .. }) => {
                checkpoints.first().map(|(_, checkpoint)| *checkpoint)
            }
            _ => None,
        }
    }

    /// Returns the environment of the tables.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the records of a snapshot, by its number.
    pub fn at(&self, snapshot: u64) -> anyhow::Result<ReadView> {
        Ok(ReadView::of_table(&self.environment, Some(snapshot))?)
    }

    /// Opens a namespace that was read before, if it is another one since. Is not opened for
    /// writing: somebody else may have it open, on another machine.
    pub fn follow(place: &Path, known: Option<Known>) -> anyhow::Result<Now> {
        let Located { mount, namespace, environment, tables } = Located::find(place)?;
        let failed = || format!("cannot read {}", namespace.display());
        match (&tables, &mount) {
            (Tables::OfServers(_), mount) => {
                cluster::flush_running(&namespace, &environment, mount.as_ref())
                    .with_context(failed)?;
            }
            (Tables::One(_), Some(mount)) => flush_mounted(&namespace, mount)?,
            (Tables::One(table), None)
                if canopy_store::is_flushed(&environment, *table).with_context(failed)? => {}
            (Tables::One(_), None) => bail!(
                "{} was not closed: it is open elsewhere, or the process that had it was killed; \
                 what was written last is read once it is mounted here, or closed",
                namespace.display()
            ),
        }
        let known = known.filter(|known| known.mount == about(&mount));
        let before = known.and_then(|known| {
            // It may be gone, since nobody asked for a long time.
            let checkpoints = tables.known(&known)?;
            let before = match &tables {
                Tables::One(_) => ReadView::of_table(&environment, Some(checkpoints[0].1)).ok()?,
                Tables::OfServers(_) => ClusterView::at(&environment, &checkpoints).ok()??,
            };
            Some((known, checkpoints, before))
        });
        let opened = |mount| match &tables {
            Tables::One(table) => Viewed::of(environment.clone(), *table, mount),
            Tables::OfServers(_) => Viewed::of_servers(&namespace, environment.clone(), mount),
        };
        let Some((known, checkpoints, before)) = before else {
            return Ok(Now::Other(Box::new(opened(mount).with_context(failed)?), None));
        };
        if !before.is_current(&environment).with_context(failed)? {
            let viewed = opened(mount).with_context(failed)?;
            return Ok(Now::Other(Box::new(viewed), Some(Box::new(before))));
        }
        let now_ms = environment.clock.now_ms();
        if now_ms.saturating_sub(known.kept_ms) < CHECKPOINT_MS / 4 {
            return Ok(Now::Same(None));
        }
        let kept = Duration::from_millis(CHECKPOINT_MS);
        match &tables {
            Tables::One(table) => {
                canopy_store::renew(&environment, *table, checkpoints[0].1, CHECKPOINT_MS)?;
            }
            Tables::OfServers(_) => {
                cluster::renew(&namespace, &environment, &checkpoints, kept)
                    .with_context(failed)?;
            }
        }
        Ok(Now::Same(Some(Known { kept_ms: now_ms, ..known })))
    }

    /// Keeps the checkpoint for some time, and returns its description. Without a checkpoint, the
    /// description is of nothing that is there later.
    pub fn keep(mut self) -> Option<Known> {
        let Held::Checkpoint(kept) = &mut self.kept else { return None };
        kept.stays = true;
        let (table, mount) = (kept.checkpoints.first()?.0.to_string(), about(&self.mount));
        let checkpoints = kept.checkpoints.iter().map(|(_, id)| *id).collect();
        Some(Known { table, checkpoints, kept_ms: kept.kept_ms, mount })
    }
}

/// Returns whether there is room for SSTables with all that the log of a table contains.
fn has_room(environment: &Environment, table: TableId) -> bool {
    let segments = environment.storage.list(&format!("{table}/log/"), "").unwrap_or_default();
    let bytes: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
    environment.storage.check_room(bytes + ROOM_BYTES).is_ok()
}

/// Returns whether an error is that a disk is full.
fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let errno = cause.downcast_ref::<canopy_namespace::Error>().map(|one| one.errno());
        let errno = errno.or_else(|| match cause.downcast_ref()? {
            canopy_store::Error::Storage { source, .. }
            | canopy_store::Error::Deferred { source, .. } => Errno::from_io_error(source),
            _ => None,
        });
        errno.is_some_and(|errno| matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS))
    })
}

/// Returns the namespace that is mounted on a directory; the place itself if none is.
pub fn namespace_of(place: &Path) -> anyhow::Result<PathBuf> {
    let mounted = mounted(place)?;
    Ok(mounted.map_or(place.to_owned(), |mount| OsStr::from_bytes(&mount.source).into()))
}

/// Returns the place of the records of a namespace: that of its servers, if it is named by addresses.
pub fn place_of_records(namespace: &Path) -> anyhow::Result<PathBuf> {
    place_of_records_for(namespace, None)
}

/// Like [`place_of_records`], with the certificate that a user has named.
pub fn place_of_records_for(
    namespace: &Path,
    certificate: Option<&Path>,
) -> anyhow::Result<PathBuf> {
    match addresses(namespace)? {
        Some(_) => cluster::place_of(namespace, certificate),
        None => Ok(namespace.to_owned()),
    }
}

/// Lets a checkpoint go that was kept.
pub fn forget(namespace: &Path, known: &str) {
    let Some(known) = Known::parse(known) else { return };
    let source = mounted(namespace).ok().flatten().map(|mount| mount.source);
    let source = source.map(|source| PathBuf::from(OsStr::from_bytes(&source)));
    let Ok(place) = place_of_records(source.as_deref().unwrap_or(namespace)) else { return };
    let Ok(environment) = place::environment(&place) else { return };
    let Ok(tables) = Tables::of(&environment) else { return };
    match (tables.known(&known), &tables) {
        (Some(checkpoints), Tables::OfServers(_)) => {
            cluster::release_known(&place, &environment, &checkpoints);
        }
        (Some(checkpoints), Tables::One(_)) => release_all(&environment, &checkpoints),
        (None, _) => {}
    }
}

/// Returns the properties of a mount that the index depends on: the device, and whether other users
/// get in.
fn about(mount: &Option<Mount>) -> String {
    match mount {
        Some(mount) => format!("{} {}", mount.dev, mount.has_option("allow_other")),
        None => "none".to_owned(),
    }
}

/// Has the process that has mounted a namespace write all that is only in its memory.
fn flush_mounted(namespace: &Path, mount: &Mount) -> anyhow::Result<()> {
    let directory = Path::new(OsStr::from_bytes(&mount.point));
    let flushed = match place::ask(directory, FLUSH) {
        Err(Errno::ROFS) => bail!(
            "{} is mounted read-only on {} and was not closed before: use the mount (canopy find \
             --live), or mount it once so that it can be changed",
            namespace.display(),
            directory.display()
        ),
        Err(_) => place::control(directory, FLUSH)?,
        Ok(flushed) => flushed,
    };
    match flushed {
        Some(_) => Ok(()),
        None if rustix::process::geteuid().is_root() => bail!(
            "{} is mounted on {} in a way that it cannot be read beside, such as by --snapshot: \
             unmount it first, or read the mount itself, as with 'canopy find --live'",
            namespace.display(),
            directory.display()
        ),
        None => bail!(
            "{} is mounted on {}, beside which only root can read it: unmount it first, or read \
             the mount itself, as with 'canopy find --live', du(1) and cp(1)",
            namespace.display(),
            directory.display()
        ),
    }
}

impl Drop for HeldCheckpoint {
    fn drop(&mut self) {
        if !self.stays {
            // If this fails, they go by themselves later.
            cluster::release(self.served.as_deref(), &self.environment, &self.checkpoints);
        }
    }
}

/// Returns the mount of a namespace, or the one on a directory that is a namespace's. Others than
/// root and the owner of a namespace can only say that it is theirs to mount, which is not believed;
/// and a mount that nobody answers for any more counts only where it is.
pub fn mounted(place: &Path) -> anyhow::Result<Option<Mount>> {
    // In a bucket, mounts have the whole name, which is not a path.
    let Ok(real) = place::full_name(place) else { return Ok(None) };
    let path = real.as_os_str().as_bytes();
    let mounts = canopy_scan::mounts().context("cannot find out what is mounted")?;
    // Not where a directory of one is seen elsewhere.
    let is_ours = |mount: &Mount| mount.file_system == TYPE && mount.root == b"/";
    // The last one on a directory is the one that is seen there.
    let mounts = mounts.into_iter().rev().filter(is_ours);
    // Others are not looked at: a look at what a user has mounted can take for ever.
    let mut mounts = mounts.filter(|mount| mount.point == path || mount.source == path);
    let is_there = |mount: &Mount| mount.point == path || is_answered(mount);
    Ok(mounts.find(|mount| is_by_owner(mount) && is_there(mount)))
}

/// Returns whether there is still a process that answers for a mount. One that does not answer soon is
/// there, and may wait for servers.
pub fn is_answered(mount: &Mount) -> bool {
    let (answered, answer) = channel();
    let point = PathBuf::from(OsStr::from_bytes(&mount.point));
    std::thread::spawn(move || {
        // Unlike others, this attribute needs no server, and the kernel does not remember it.
        let asked = place::ask(&point, canopy_fuse::attributes::PROCESS);
        let _ = answered.send(!asked.is_err_and(place::is_killed));
    });
    answer.recv_timeout(ANSWER_PATIENCE).unwrap_or(true)
}

/// Returns whether root has mounted a namespace, or its owner: that of its directory, or who asks if
/// it lies in a bucket alone.
fn is_by_owner(mount: &Mount) -> bool {
    let by = mount.option("user_id").and_then(|uid| uid.parse::<u32>().ok());
    let source = Path::new(OsStr::from_bytes(&mount.source));
    let owner = match place::bucket_of(source) {
        Some((None, _)) => Ok(rustix::process::geteuid().as_raw()),
        Some((Some(directory), _)) => rustix::fs::lstat(directory).map(|stat| stat.st_uid),
        None => rustix::fs::lstat(source).map(|stat| stat.st_uid),
    };
    by == Some(0) || by.is_some() && by == owner.ok()
}
