//! A namespace on several servers: its records at checkpoints, and contents of files as they were then,
//! from the servers; if no process runs these, from this one.

use crate::servers::{Access, Served};
use crate::viewed::Viewed;
use anyhow::{Context, bail};
use canopy_cluster::contents::{ClusterNamespace, Memory};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{Client, ClusterView, Process, SessionId, cluster_tables};
use canopy_namespace::{FileContents, FileId, ReadView, Result, system_clock};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bytes that are read between two looks where a hole may be.
const PART_BYTES: u64 = 1 << 20;

/// A namespace that is read beside its servers.
pub struct OfServers {
    place: PathBuf,
    viewed: Viewed,
    /// The records of a snapshot, if one is read.
    past: Option<ReadView>,
    /// The moment that the servers know; none if only this process reads.
    moment: Option<u64>,
    /// The way to contents, once one was read.
    files: OnceLock<Files>,
}

/// The way to contents of files.
struct Files {
    client: Arc<Client>,
    namespace: Arc<ClusterNamespace>,
    /// Kept as long as it is used.
    _served: Option<Served>,
}

/// An open file: how to find data and holes, and to read.
pub struct Reading<'a> {
    /// Returns where a hole, or data, begins at or behind an offset.
    pub seek: &'a dyn Fn(bool, u64) -> Result<u64>,
    /// Returns bytes at an offset.
    pub read: &'a dyn Fn(u64, usize) -> Result<Vec<u8>>,
}

impl OfServers {
    /// Reads the records as they are now, or as the snapshot of this name has them.
    pub fn open(place: &Path, snapshot: Option<&str>) -> anyhow::Result<Self> {
        let viewed = Viewed::open(place)?;
        let (place, moment) = (place.to_owned(), viewed.cut());
        let opened = OfServers { place, viewed, past: None, moment, files: OnceLock::new() };
        match snapshot {
            None => Ok(opened),
            Some(name) => opened.at_snapshot(name),
        }
    }

    fn at_snapshot(self, name: &str) -> anyhow::Result<Self> {
        let client = &self.files()?.client;
        let (all, _) = client.snapshots()?;
        let found = all.into_iter().find(|one| one.name.as_deref() == Some(name));
        let Some(found) = found else { bail!("{} has no snapshot {name}", self.place.display()) };
        let found = client.snapshot_tables(found.number)?;
        let environment = self.viewed.environment();
        let tables = cluster_tables(environment.storage.as_ref())?;
        let tables = Vec::from_iter(tables.into_iter().zip(found.checkpoints));
        let past = ClusterView::at(environment, &tables)?;
        let past = Some(past.context("the tables of the snapshot do not fit")?);
        Ok(OfServers { past, moment: Some(found.number), ..self })
    }

    /// Returns the records.
    pub fn view(&self) -> &ReadView {
        self.past.as_ref().unwrap_or(&self.viewed.view)
    }

    /// Reads the contents of a regular file.
    pub fn read_file<T>(
        &self,
        id: FileId,
        work: impl FnOnce(Reading<'_>) -> T,
    ) -> anyhow::Result<T> {
        let files = &*self.files()?.namespace;
        let Some(moment) = self.moment else {
            files.open(id)?;
            let seek = |is_hole, at| files.seek_from(id, is_hole, at);
            let read = |at, length| files.read_at(id, at, length, false);
            let done = work(Reading { seek: &seek, read: &read });
            files.close(id)?;
            return Ok(done);
        };
        let handle = files.open_past_file(moment, id)?;
        let seek = |is_hole, at| match is_hole {
            // The part behind finds its own holes.
            true => Ok(at + PART_BYTES),
            false => files.past_data_from(handle, at),
        };
        let read = |at, length| files.read_past_at(handle, at, length);
        let done = work(Reading { seek: &seek, read: &read });
        files.close_past_file(handle);
        Ok(done)
    }

    fn files(&self) -> anyhow::Result<&Files> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let files = self.connect()?;
        Ok(self.files.get_or_init(|| files))
    }

    fn connect(&self) -> anyhow::Result<Files> {
        let environment = self.viewed.environment();
        if !is_stopped(environment)? {
            let served = Served::open(&self.place, &Access::default())?;
            let (client, namespace) =
                (served.connection.client().clone(), served.namespace.clone());
            return Ok(Files { client, namespace, _served: Some(served) });
        }
        let process = Process::with_all_servers(environment, &system_clock())?;
        // 0 is the session of servers.
        let session = SessionId(environment.random.next_u64().max(1));
        let client = Arc::new(Client::new(process, session));
        let settings = self.view().settings();
        let namespace =
            ClusterNamespace::new(client.clone(), environment, settings, Memory::default())?;
        Ok(Files { client, namespace: Arc::new(namespace), _served: None })
    }
}
