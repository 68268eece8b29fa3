//! Security of a process: its certificate and what it accepts. Without a certificate, it trusts the
//! word of the kernel about users of this machine.

use crate::place::Place;
use canopy_cluster::certificates::{
    Certified, Credentials, Identity, Trust, client_config, server_config,
};
use canopy_cluster::wire::{ClientSecurity, Identify, Peer, ServerSecurity, Tls};
use canopy_store::storage::Storage;
use std::path::Path;
use std::sync::Arc;

/// Security of a process of the cluster.
pub struct Security {
    storage: Arc<dyn Storage>,
    tls: Option<(Arc<Trust>, Arc<Credentials>)>,
}

impl Security {
    /// Returns the security of a process with a server's certificate, or without one.
    ///
    /// # Errors
    ///
    /// Fails if the certificate is not one of a server of this cluster, and as storage does.
    pub fn new(place: &Place, certificate: Option<&Path>) -> anyhow::Result<Self> {
        let storage = place.storage.clone();
        let tls = match certificate {
            None => None,
            Some(file) => {
                let credentials = Credentials::open(file)?;
                Some((Trust::of_server(&*storage, &credentials)?, credentials))
            }
        };
        Ok(Security { storage, tls })
    }

    /// Returns whether there is no certificate.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns the requirements for those who connect.
    ///
    /// # Errors
    ///
    /// Fails as the library of TLS does.
    pub fn of_server(&self) -> anyhow::Result<ServerSecurity> {
        let Some((trust, credentials)) = &self.tls else { return Ok(ServerSecurity::default()) };
        let config = server_config(trust, credentials)?;
        Ok(ServerSecurity { tls: Some(Tls { config, identify: identify(trust) }) })
    }

    /// Returns the requirements for other processes of the cluster.
    ///
    /// # Errors
    ///
    /// Fails as the library of TLS does.
    pub fn of_client(&self) -> anyhow::Result<ClientSecurity> {
        // A process of this machine that is not root's or this user's may have taken the address of a
        // server that has ended.
        let trusted_uids = Some(vec![0, nix::unistd::geteuid().as_raw()]);
        let tls = match &self.tls {
            None => None,
            Some((trust, credentials)) => {
                let config = client_config(trust, credentials)?;
                Some(Tls { config, identify: identify(trust) })
            }
        };
        Ok(ClientSecurity { tls, trusted_uids })
    }

    /// Reads again which certificates were revoked, and the own certificate.
    ///
    /// # Errors
    ///
    /// Fails as storage and the file do.
    pub fn refresh(&self) -> anyhow::Result<()> {
        let Some((trust, credentials)) = &self.tls else { return Ok(()) };
        trust.refresh(&*self.storage)?;
        credentials.reload()?;
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
