//! Namespaces on several servers, as commands reach them: by their place, or by addresses of running
//! processes, `canopy://HOST:PORT[,HOST:PORT...]`.
//!
//! Chunks of large files lie in the storage of the servers. A machine may know it by another name
//! ([`Access::storage`]), or not at all (`none`): then only such contents fail.

use crate::place;
use anyhow::{Context, bail};
use canopy_cluster::contents::{ClusterNamespace, Memory};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::wire::Address;
use canopy_cluster::{
    Connection, ConnectionError, Security, Speaker, UnknownStorage, WaitObserver, addresses_of,
    check_restored, has_cluster, name_of,
};
use canopy_namespace::Result as NamespaceResult;
use canopy_store::Environment;
use canopy_text::shell_word;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file with the server's certificate in the directory of a namespace.
const CERTIFICATE: &str = "server.pem";

/// The variable of the environment with the file of a certificate, for commands without an option.
const CERTIFICATE_VARIABLE: &str = "CANOPY_CERTIFICATE";

/// The name of storage that says that there is none here.
const NONE: &str = "none";

/// How a command reaches a cluster.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The file of the certificate; by default that of `CANOPY_CERTIFICATE`, or that beside the place
    /// if it can be read.
    pub certificate: Option<PathBuf>,
    /// The storage as this machine knows it; as the servers know it by default.
    pub storage: Option<PathBuf>,
    /// Whether the command has an option for the storage.
    pub has_storage_option: bool,
    /// Limits of memory for contents.
    pub memory: Memory,
}

impl Access {
    /// Returns the access of a command that needs no contents of files, and so no storage.
    pub fn without_contents() -> Self {
        Access { storage: Some(NONE.into()), ..Access::default() }
    }

    /// Returns the file of the certificate that the user has named, in the environment at least.
    fn certificate(&self) -> Option<PathBuf> {
        let named = || std::env::var_os(CERTIFICATE_VARIABLE).filter(|file| !file.is_empty());
        self.certificate.clone().or_else(|| named().map(PathBuf::from))
    }
}

/// A namespace on several servers that run.
pub struct Served {
    /// The way to its servers.
    pub connection: Connection,
    /// The namespace.
    pub namespace: Arc<ClusterNamespace>,
    /// Its full name: that of its place, or of the addresses that the user gave.
    pub name: PathBuf,
    /// The directory of its storage on this machine, if it has one.
    pub directory: Option<PathBuf>,
}

/// Returns the addresses of a name that has some; none for places.
///
/// # Errors
///
/// Fails if something behind `canopy://` is not an address.
pub fn addresses(name: &Path) -> anyhow::Result<Option<Vec<Address>>> {
    let Some(addresses) = name.to_str().and_then(addresses_of) else { return Ok(None) };
    let addresses = addresses.with_context(|| {
        format!(
            "{}: name servers as canopy://HOST:PORT,HOST:PORT or canopy://unix:/PATH",
            name.display()
        )
    });
    addresses.map(Some)
}

/// Returns whether a name is that of a namespace on several servers. A place that cannot be opened is
/// none: opening it reports why.
///
/// # Errors
///
/// Fails as `addresses` does.
pub fn is_served(name: &Path) -> anyhow::Result<bool> {
    if addresses(name)?.is_some() {
        return Ok(true);
    }
    let Ok(environment) = place::environment(name) else { return Ok(false) };
    Ok(has_cluster(&*environment.storage).unwrap_or(false))
}

/// Fails for a namespace on several servers that no process runs: a mount of it would wait for them. One
/// that is named by addresses is not looked at.
///
/// # Errors
///
/// Fails as storage does, too.
pub fn check_running(name: &Path) -> anyhow::Result<()> {
    if addresses(name)?.is_some() {
        return Ok(());
    }
    let Ok(environment) = place::environment(name) else { return Ok(()) };
    let (shown, word) = (name.display(), shell_word(name));
    check_restored(&*environment.storage)?;
    if has_cluster(&*environment.storage).unwrap_or(false) && is_stopped(&environment)? {
        bail!(
            "no process runs the servers of {shown}: start some with 'canopy cluster start {word} \
             --listen ADDRESS'"
        );
    }
    Ok(())
}

/// Returns the full name of a namespace on several servers: enough to find it from any directory.
///
/// # Errors
///
/// Fails if an address is wrong, and if there is no such place.
pub fn full_name(name: &Path) -> anyhow::Result<PathBuf> {
    match addresses(name)? {
        Some(addresses) => Ok(name_of(&addresses).into()),
        None => place::full_name(name),
    }
}

/// Returns the directory of this machine for the log of mounts.
///
/// # Errors
///
/// Fails if it cannot be made.
pub fn local_of(name: &Path) -> anyhow::Result<PathBuf> {
    match addresses(name)? {
        Some(addresses) => place::local_by_name(name_of(&addresses).as_ref()),
        None => place::local_of(name),
    }
}

impl Served {
    /// Connects to the servers of a namespace that has some, by its place or by addresses.
    ///
    /// # Errors
    ///
    /// Fails if no server answers, if they refuse this client, and if the storage cannot be opened or
    /// is another one.
    pub fn open(name: &Path, access: &Access) -> anyhow::Result<Self> {
        Self::open_observed(name, access, Arc::new(|wait| canopy::message(wait)))
    }

    /// Like `open`. The observer is notified of long waits, until it is replaced.
    ///
    /// # Errors
    ///
    /// Fails as `open` does.
    pub fn open_observed(
        name: &Path,
        access: &Access,
        observer: WaitObserver,
    ) -> anyhow::Result<Self> {
        let full = full_name(name)?;
        let connection = match addresses(name)? {
            Some(addresses) => by_addresses(&addresses, &full, access, observer)?,
            None => by_place(name, access, observer)?,
        };
        let (environment, directory) = storage_of(&connection, name, access)?;
        let namespace = connection.namespace(&environment, access.memory)?;
        Ok(Served { connection, namespace, name: full, directory })
    }

    /// Returns whether servers trust this client, so that it has to check its callers.
    pub fn is_trusted(&self) -> bool {
        self.connection.speaker() == Speaker::Trusted
    }

    /// Sends all that was written, and ends the sessions.
    ///
    /// # Errors
    ///
    /// Fails as storage and servers do. What was not sent is lost then.
    pub fn end(&self) -> NamespaceResult<()> {
        let ended = self.namespace.end();
        self.connection.end();
        ended
    }
}

/// Connects to the processes in the map of a place.
fn by_place(name: &Path, access: &Access, observer: WaitObserver) -> anyhow::Result<Connection> {
    let environment = place::environment(name)?;
    let certificate = access.certificate().or_else(|| certificate_in(name));
    let security = Security::of_client(Some(&environment.storage), certificate.as_deref())
        .context("cannot use the certificate")?;
    Connection::of_storage(&environment, security, observer).map_err(|error| {
        let (shown, word) = (name.display(), shell_word(name));
        let advice = format!(
            " of {shown}; 'canopy cluster status {word}' shows which run, and 'canopy cluster start {word} \
             --listen ADDRESS' starts some"
        );
        unopened(error, name, &advice)
    })
}

/// Returns the error for servers that cannot be used, with advice on how to reach them.
fn unopened(error: ConnectionError, name: &Path, advice: &str) -> anyhow::Error {
    let what = match error {
        ConnectionError::Cluster(canopy_cluster::Error::Full(_)) => {
            format!("cannot use {}: make room in its storage", name.display())
        }
        _ => format!("cannot reach the servers{advice}"),
    };
    anyhow::Error::new(error).context(what)
}

/// Connects to processes at addresses.
fn by_addresses(
    addresses: &[Address],
    name: &Path,
    access: &Access,
    observer: WaitObserver,
) -> anyhow::Result<Connection> {
    let beside = || certificate_in(access.storage.as_deref()?);
    let certificate = access.certificate().or_else(beside);
    let security =
        Security::of_client(None, certificate.as_deref()).context("cannot use the certificate")?;
    Connection::open(addresses, security, observer).map_err(|error| {
        let advice = match addresses.iter().all(Address::is_local) {
            true => {
                "; 'canopy cluster start NAMESPACE --listen ADDRESS' starts one on this machine"
            }
            false => "",
        };
        unopened(error, name, &format!(" {}{advice}", name.display()))
    })
}

/// Returns the file of the server's certificate beside a place, if this process can read it.
fn certificate_in(place: &Path) -> Option<PathBuf> {
    let directory = match place::bucket_of(place) {
        Some((directory, _)) => directory?,
        None => place,
    };
    let file = directory.join(CERTIFICATE);
    std::fs::File::open(&file).is_ok().then_some(file)
}

/// Opens the storage of the servers, and returns its directory, if it has one.
fn storage_of(
    connection: &Connection,
    name: &Path,
    access: &Access,
) -> anyhow::Result<(Environment, Option<PathBuf>)> {
    if access.storage.as_deref() == Some(Path::new(NONE)) {
        return Ok((Environment::system(Arc::new(UnknownStorage)), None));
    }
    let reported = match addresses(name)? {
        Some(_) => PathBuf::from(connection.place()),
        None => name.to_owned(),
    };
    let storage = access.storage.clone().unwrap_or(reported);
    if storage.as_os_str().is_empty() {
        let advice = match access.has_storage_option {
            true => "--storage PLACE",
            false => "name the namespace by its place",
        };
        bail!("the servers do not say where contents of large files lie: {advice}");
    }
    let opened = place::environment(&storage).and_then(|environment| {
        connection.check_storage(&*environment.storage)?;
        Ok(environment)
    });
    let environment = opened.with_context(|| {
        let advice = match access.has_storage_option {
            true => format!(
                "name it as this machine has it (--storage PLACE), or do without these contents \
                 (--storage {NONE})"
            ),
            false => "name the namespace by that place as this machine has it, and not by \
                      canopy://"
                .into(),
        };
        format!("cannot use {}, where contents of large files lie: {advice}", storage.display())
    })?;
    let directory = match place::bucket_of(&storage) {
        Some((directory, _)) => directory.map(Path::to_owned),
        None => Some(storage),
    };
    Ok((environment, directory.and_then(|directory| directory.canonicalize().ok())))
}
