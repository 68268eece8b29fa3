//! Reaching the servers of a cluster, and directories by their paths.

use crate::place::{CERTIFICATE, Place};
use anyhow::{Context, bail, ensure};
use canopy_cluster::certificates::Identity;
use canopy_cluster::wire::Address;
use canopy_cluster::{Client, Connection, ConnectionError, Patience, Remote, Security, Wait};
use canopy_namespace::operation::{Caller, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, Reply};
use canopy_store::Environment;
use canopy_text::shell_word;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// Time for the answer of a server, where a command goes on without it.
const QUICK: Patience = Patience { attempt: Duration::from_secs(2), whole: Duration::from_secs(2) };

/// Connects to the processes of the newest map.
pub fn connect(
    place: &Place,
    namespace: &Path,
    certificate: Option<&Path>,
) -> anyhow::Result<Connection> {
    let environment = Environment::system(place.storage.clone());
    // The user gets to know why the command takes long.
    let observer = Arc::new(|wait: &Wait| canopy::message(wait));
    let connected = Connection::of_storage(&environment, security(place, certificate)?, observer);
    let (shown, word) = (namespace.display(), shell_word(namespace));
    connected.map_err(|error| {
        let context = match error {
            ConnectionError::NoProcess(_) => format!(
                "no servers can be reached; start some: canopy cluster start {word} --listen ADDRESS"
            ),
            _ => format!("cannot connect to the servers of {shown}"),
        };
        anyhow::Error::new(error).context(context)
    })
}

/// Connects to processes at addresses that answer at once, or not at all.
pub fn connect_quickly(
    place: &Place,
    addresses: &[Address],
    certificate: Option<&Path>,
) -> anyhow::Result<Arc<Remote>> {
    let security = security(place, certificate)?;
    Ok(Remote::connect(addresses, security.for_servers()?, QUICK)?)
}

/// Fails unless a command has the certificate of the servers, or there are none.
pub fn check_certificate(place: &Place, certificate: Option<&Path>) -> anyhow::Result<()> {
    let identity = security(place, certificate)?.identity();
    let Some(identity) = identity.filter(|identity| *identity != Identity::Server) else {
        return Ok(());
    };
    bail!(
        "the certificate of {identity} is not enough for this: name that of the servers, such as {}",
        Path::new(&place.name).join(CERTIFICATE).display()
    )
}

fn security(place: &Place, certificate: Option<&Path>) -> anyhow::Result<Security> {
    let beside = place.certificate();
    Security::of_client(Some(&place.storage), certificate.or(beside.as_deref()))
        .context("cannot use the certificate")
}

/// Finds a directory by its path in the namespace.
pub fn find(client: &Client, path: &Path) -> anyhow::Result<FileId> {
    let shown = path.display();
    let mut found = ROOT;
    for component in path.components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => EntryName::new(found, name.as_bytes()),
            _ => bail!("{shown}: give the path of a directory in the namespace, from its root on"),
        };
        let lookup = Operation::Read(Moment::Now, Read::Lookup(name));
        let reply = client.execute_for(Caller::Trusted, &lookup);
        let inode = match reply.map_err(canopy_namespace::Error::from) {
            Ok(Reply::Inode(inode)) => inode,
            Ok(_) => bail!("{shown}: a server has sent a reply that does not fit"),
            Err(error) => return Err(error).with_context(|| shown.to_string()),
        };
        ensure!(inode.is_directory(), "{shown}: not a directory");
        found = inode.id;
    }
    Ok(found)
}
