//! A namespace on several servers: its records at checkpoints, and contents of files through the
//! servers, or, if no process runs them, through this one.

use crate::servers::{Access, Served};
use crate::viewed::Viewed;
use anyhow::bail;
use canopy_cluster::contents::{ClusterNamespace, Memory};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{Client, Process, SessionId};
use canopy_namespace::{FileContents, ReadView, system_clock};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A namespace that is read beside its servers.
pub struct OfServers {
    place: PathBuf,
    viewed: Viewed,
    /// The way to contents, once one was read.
    files: Mutex<Option<Files>>,
}

/// The way to contents of files.
#[derive(Clone)]
enum Files {
    Running(Arc<Served>),
    Here(Arc<ClusterNamespace>),
}

impl OfServers {
    /// Reads the records as they are now.
    pub fn open(place: &Path, snapshot: Option<&str>) -> anyhow::Result<Self> {
        if snapshot.is_some() {
            let shown = place.display();
            bail!("{shown} is on several servers: mount it, and read the snapshot there");
        }
        let (viewed, place) = (Viewed::open(place)?, place.to_owned());
        Ok(OfServers { place, viewed, files: Mutex::default() })
    }

    /// Returns the records.
    pub fn view(&self) -> &ReadView {
        &self.viewed.view
    }

    /// Does something with the contents of files, as they are now.
    pub fn with_files<T>(
        &self,
        work: impl FnOnce(&dyn FileContents) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.is_none() {
            *files = Some(self.connect()?);
        }
        let known = files.clone();
        drop(files);
        match known {
            Some(Files::Running(served)) => work(&*served.namespace),
            Some(Files::Here(namespace)) => work(&*namespace),
            None => bail!("the way to contents is gone"),
        }
    }

    fn connect(&self) -> anyhow::Result<Files> {
        let environment = self.viewed.environment();
        if !is_stopped(environment)? {
            return Ok(Files::Running(Arc::new(Served::open(&self.place, &Access::default())?)));
        }
        let process = Process::with_all_servers(environment, &system_clock())?;
        // 0 is the session of servers.
        let session = SessionId(environment.random.next_u64().max(1));
        let client = Arc::new(Client::new(process, session));
        let settings = self.view().settings();
        let namespace = ClusterNamespace::new(client, environment, settings, Memory::default())?;
        Ok(Files::Here(Arc::new(namespace)))
    }
}
