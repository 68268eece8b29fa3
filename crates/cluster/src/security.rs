//! Security of a process at the edge of a cluster: its certificate, and the certificates that it
//! accepts. Without a certificate, it trusts the word of the kernel about users of this machine.

use crate::certificates::{
    CertificateError, Certified, Credentials, Identity, Trust, client_config, server_config,
};
use crate::wire::{ClientSecurity, Identify, Peer, ServerSecurity, Tls};
use canopy_store::storage::Storage;
use std::path::Path;
use std::sync::Arc;

/// Security of a process that runs servers, or asks them.
pub struct Security {
    /// Storage with revocations; none for a client that does not know it.
    storage: Option<Arc<dyn Storage>>,
    tls: Option<(Arc<Trust>, Arc<Credentials>)>,
}

impl Security {
    /// Returns the security of a process that runs servers, with a server's certificate or without
    /// one.
    ///
    /// # Errors
    ///
    /// Fails if the certificate is not one of a server of this cluster, and as storage does.
    pub fn of_server(
        storage: &Arc<dyn Storage>,
        certificate: Option<&Path>,
    ) -> Result<Self, CertificateError> {
        let tls = match certificate {
            None => None,
            Some(file) => {
                let credentials = Credentials::open(file)?;
                let trust = Trust::of_server(&**storage, &credentials);
                Some((trust.map_err(|error| error.of_file(file))?, credentials))
            }
        };
        Ok(Security { storage: Some(storage.clone()), tls })
    }

    /// Returns the security of a client with any certificate of the cluster, or without one. It knows
    /// revocations of servers' certificates only if it has the storage and a server's certificate.
    ///
    /// # Errors
    ///
    /// Fails if the certificate is unfit or, where the storage is known, of another cluster, and as
    /// storage does.
    pub fn of_client(
        storage: Option<&Arc<dyn Storage>>,
        certificate: Option<&Path>,
    ) -> Result<Self, CertificateError> {
        let Some(file) = certificate else { return Ok(Security { storage: None, tls: None }) };
        let credentials = Credentials::open(file)?;
        let is_server = credentials.certified().identity == Identity::Server;
        if let Some(storage) = storage.filter(|_| is_server) {
            return Self::of_server(storage, Some(file));
        }
        let trust = Trust::of_client(&credentials).map_err(|error| error.of_file(file))?;
        Ok(Security { storage: None, tls: Some((trust, credentials)) })
    }

    /// Returns whether there is no certificate.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns the holder of the certificate; none if there is no certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.tls.as_ref().map(|(_, credentials)| credentials.certified().identity)
    }

    /// Returns the requirements for those who connect.
    ///
    /// # Errors
    ///
    /// Fails as the library of TLS does.
    pub fn for_clients(&self) -> Result<ServerSecurity, CertificateError> {
        let Some((trust, credentials)) = &self.tls else { return Ok(ServerSecurity::default()) };
        let config = server_config(trust, credentials)?;
        Ok(ServerSecurity { tls: Some(Tls { config, identify: identify(trust) }) })
    }

    /// Returns the requirements for processes that run servers.
    ///
    /// # Errors
    ///
    /// Fails as the library of TLS does.
    pub fn for_servers(&self) -> Result<ClientSecurity, CertificateError> {
        // A process of this machine that is not root's or this user's may have taken the address of a
        // server that has ended.
        let trusted_uids = Some(vec![0, rustix::process::geteuid().as_raw()]);
        let tls = match &self.tls {
            None => None,
            Some((trust, credentials)) => {
                let config = client_config(trust, credentials)?;
                Some(Tls { config, identify: identify(trust) })
            }
        };
        Ok(ClientSecurity { tls, trusted_uids })
    }

    /// Reads again which certificates were revoked, if that is known. Costs one listing of storage.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn refresh_revoked(&self) -> Result<(), CertificateError> {
        match (&self.tls, &self.storage) {
            (Some((trust, _)), Some(storage)) => trust.refresh_revoked(&**storage),
            _ => Ok(()),
        }
    }

    /// Reads again which certificates were revoked and which keys are trusted, if that is known, and the
    /// own certificate.
    ///
    /// # Errors
    ///
    /// Fails as storage and the file do.
    pub fn refresh(&self) -> Result<(), CertificateError> {
        let Some((trust, credentials)) = &self.tls else { return Ok(()) };
        if let Some(storage) = &self.storage {
            trust.refresh(&**storage)?;
        }
        if credentials.reload()? && self.storage.is_none() {
            trust.follow(credentials)?;
        }
        Ok(())
    }
}

/// Returns the function that knows the holder of a certificate.
fn identify(trust: &Arc<Trust>) -> Identify {
    let trust = trust.clone();
    Arc::new(move |leaf| match trust.identify(leaf) {
        Ok(certified) => Ok(peer(certified)),
        Err(error) => Err(error.to_string()),
    })
}

fn peer(certified: Certified) -> Peer {
    match certified.identity {
        Identity::Server => Peer::Server { name: "server".into() },
        Identity::Node { name, is_root } => {
            Peer::Node { name: name.to_string().into(), speaks_for_root: is_root }
        }
        Identity::User { uid } => Peer::User { uid },
    }
}
