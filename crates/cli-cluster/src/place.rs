//! Places of namespaces on several servers: a directory that machines share, or a bucket.

use anyhow::{Context, bail};
use canopy_cluster::certificates::CertificateError;
use canopy_cluster::membership::MembershipError;
use canopy_cluster::{ListeningError, has_cluster};
use canopy_index::safety;
use canopy_store::storage::Storage;
use std::error::Error;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file with the server's certificate in the directory of a namespace.
pub const CERTIFICATE: &str = "server.pem";

/// A namespace on several servers.
pub struct Place {
    /// Its storage.
    pub storage: Arc<dyn Storage>,
    /// Its full name, which means the same on all machines that have its directory.
    pub name: String,
    /// Its directory; none if all of it is in a bucket.
    pub directory: Option<PathBuf>,
}

impl Place {
    /// Opens the storage of a namespace.
    ///
    /// # Errors
    ///
    /// Fails if there is no namespace on several servers, if root is given a directory of another user,
    /// and as storage does.
    pub fn open(namespace: &Path) -> anyhow::Result<Self> {
        let shown = namespace.display();
        let name = namespace.to_str().with_context(|| format!("{shown}: its name is not UTF-8"))?;
        if name.starts_with("canopy://") {
            bail!(
                "{shown} names servers, and this command needs their storage: name the directory or \
                 bucket of the namespace"
            );
        }
        let directory = match name.split_once("s3://") {
            Some(("", _)) => None,
            Some((directory, _)) => Some(Path::new(directory.trim_end_matches('+'))),
            None => Some(namespace),
        };
        let directory = directory.map(own_directory).transpose()?;
        let storage = match &directory {
            // The process may change its working directory later.
            Some(directory) if !name.contains("s3://") => {
                canopy_object_storage::open_directory(directory)?
            }
            _ => canopy_object_storage::open(name)?,
        };
        if !has_cluster(&*storage)? {
            bail!(
                "{shown} is not a namespace on several servers: name the directory or bucket that \
                 'canopy ns create --servers N' was given, and not a mount of it"
            );
        }
        let name = match (&directory, name.split_once("s3://")) {
            (Some(directory), Some((_, bucket))) => {
                format!("{}+s3://{bucket}", directory.display())
            }
            (Some(directory), None) => directory.display().to_string(),
            (None, _) => name.to_owned(),
        };
        Ok(Place { storage, name, directory })
    }
}

impl Place {
    /// Returns the file of the server's certificate beside the namespace, if it is there.
    pub fn certificate(&self) -> Option<PathBuf> {
        let file = self.directory.as_ref()?.join(CERTIFICATE);
        file.symlink_metadata().is_ok().then_some(file)
    }
}

/// Adds the place to an error of its storage, which names an object alone.
pub fn named(namespace: &Path, error: anyhow::Error) -> anyhow::Error {
    let shown = namespace.display().to_string();
    match error.chain().any(is_of_storage) && !format!("{error:#}").contains(&shown) {
        true => error.context(format!("cannot use {shown}")),
        false => error,
    }
}

fn is_of_storage(error: &(dyn Error + 'static)) -> bool {
    // Errors that show another one have the source of that one.
    let of_node = error.downcast_ref().is_some_and(|error| {
        matches!(
            error,
            ListeningError::Cluster(_) | ListeningError::Membership(MembershipError::Storage(_))
        )
    });
    let of_membership =
        error.downcast_ref().is_some_and(|error| matches!(error, MembershipError::Storage(_)));
    let of_certificates =
        error.downcast_ref().is_some_and(|error| matches!(error, CertificateError::Storage(_)));
    of_node
        || of_membership
        || of_certificates
        || error.is::<canopy_cluster::Error>()
        || error.is::<canopy_namespace::Error>()
        || error.is::<canopy_store::Error>()
}

/// Returns the full path of a directory. Root does not use one that others could redirect.
fn own_directory(directory: &Path) -> anyhow::Result<PathBuf> {
    let shown = directory.display();
    let full = directory.canonicalize().with_context(|| shown.to_string())?;
    let about = full.metadata().with_context(|| shown.to_string())?;
    if nix::unistd::geteuid().is_root() {
        if about.uid() != 0 {
            let (uid, gid) = (about.uid(), about.gid());
            bail!(
                "{shown} belongs to uid {uid}, who could have it lead elsewhere: run this as that \
                 user, as with 'setpriv --reuid {uid} --regid {gid} --clear-groups canopy cluster ...'"
            );
        }
        safety::check(&full, 0)?;
    } else if full.read_dir().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        bail!(
            "{shown} belongs to uid {}, who alone can run this: others use the namespace through \
             'canopy ns mount canopy://ADDRESS DIRECTORY'",
            about.uid()
        );
    }
    Ok(full)
}
