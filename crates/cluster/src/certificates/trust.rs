//! Checks of certificates in handshakes, and afterwards on connections that stay open.
//!
//! rustls' own verifier checks signature, validity and purpose. This module adds that nothing lies
//! between a certificate and the cluster's key, that it names one holder in this cluster, and that it
//! was not revoked. Sessions are never resumed: rustls would take the certificate of the first
//! handshake for good.

use super::credentials::Credentials;
use super::error::{CertificateError, Refusal};
use super::identity::{Certified, ClusterId, Identity, Serial, identify};
use super::{provider, records};
use canopy_store::storage::Storage;
use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError as TlsRefusal, ClientConfig, DigitallySignedStruct, DistinguishedName,
    OtherError, RootCertStore, ServerConfig, SignatureScheme,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Everything that decides which certificates of one cluster are accepted.
#[derive(Debug)]
pub struct Trust {
    cluster: ClusterId,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    revoked: RwLock<HashSet<Serial>>,
}

impl Trust {
    /// Returns the trust of a server, which reads revocations from storage.
    ///
    /// # Errors
    ///
    /// Fails with `Refused` if the credentials are not those of a server of the cluster in the storage,
    /// and as storage does.
    pub fn of_server(
        storage: &dyn Storage,
        credentials: &Credentials,
    ) -> Result<Arc<Self>, CertificateError> {
        let certified = credentials.certified();
        if certified.identity != Identity::Server {
            return Err(Refusal::NotServer.into());
        }
        let authority = records::authority(storage)?.unwrap_or_default();
        if certified.cluster != ClusterId::of(storage)? || !credentials.is_of(&authority) {
            return Err(Refusal::OtherCluster.into());
        }
        let trust = Trust::new(credentials)?;
        trust.refresh(storage)?;
        trust.check(&certified, UnixTime::now())?;
        Ok(trust)
    }

    /// Returns the trust of a client, which knows no storage. It cannot know that a server's certificate
    /// was revoked.
    ///
    /// # Errors
    ///
    /// Fails if the cluster's certificate in the credentials is damaged.
    pub fn of_client(credentials: &Credentials) -> Result<Arc<Self>, CertificateError> {
        Trust::new(credentials)
    }

    fn new(credentials: &Credentials) -> Result<Arc<Self>, CertificateError> {
        let failed = |what: String| CertificateError::Failed { task: "use the certificate", what };
        let mut roots = RootCertStore::empty();
        roots.add(credentials.authority().clone()).map_err(|error| failed(error.to_string()))?;
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
        let clients = clients.build().map_err(|error| failed(error.to_string()))?;
        let cluster = credentials.certified().cluster;
        Ok(Arc::new(Trust { cluster, roots, clients, revoked: RwLock::default() }))
    }

    /// Reads from storage which certificates were revoked. Servers do this every few seconds; after an
    /// error, what was known before counts.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn refresh(&self, storage: &dyn Storage) -> Result<(), CertificateError> {
        let revoked = records::revoked(storage)?;
        *self.revoked.write() = revoked;
        Ok(())
    }

    /// Returns the contents of the certificate of a peer, with which a handshake has succeeded.
    ///
    /// # Errors
    ///
    /// Fails with `Refused` if it was revoked since, or if no handshake can have succeeded.
    pub fn identify(&self, leaf: &[u8]) -> Result<Certified, CertificateError> {
        let certified = identify(leaf)?;
        self.check(&certified, UnixTime::now())?;
        Ok(certified)
    }

    /// Checks a certificate again on a connection that stays open. Costs a look into a set.
    ///
    /// # Errors
    ///
    /// Fails with `Refused` if it has expired or was revoked, or is of another cluster.
    pub fn check(&self, certified: &Certified, now: UnixTime) -> Result<(), CertificateError> {
        if certified.cluster != self.cluster {
            return Err(Refusal::OtherCluster.into());
        }
        if i64::try_from(now.as_secs()).is_ok_and(|now_s| now_s > certified.not_after_s) {
            return Err(Refusal::Expired.into());
        }
        match self.revoked.read().contains(&certified.serial) {
            true => Err(Refusal::Revoked.into()),
            false => Ok(()),
        }
    }

    fn check_peer(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Certified, CertificateError> {
        if !others.is_empty() {
            return Err(Refusal::Chain.into());
        }
        let certified = identify(leaf)?;
        self.check(&certified, now)?;
        Ok(certified)
    }
}

/// Returns the configuration of a server: clients need a certificate of the cluster.
///
/// # Errors
///
/// Fails if the library does not know TLS 1.3.
pub fn server_config(
    trust: &Arc<Trust>,
    credentials: &Arc<Credentials>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(not_configured)?;
    let verifier = Arc::new(Clients(trust.clone()));
    let mut config =
        builder.with_client_cert_verifier(verifier).with_cert_resolver(credentials.clone());
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of a client: only servers of the cluster are accepted, whatever their
/// address is.
///
/// # Errors
///
/// Fails if the library does not know TLS 1.3.
pub fn client_config(
    trust: &Arc<Trust>,
    credentials: &Arc<Credentials>,
) -> Result<Arc<ClientConfig>, CertificateError> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&TLS13]).map_err(not_configured)?;
    let verifier = Arc::new(Servers(trust.clone()));
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(credentials.clone());
    config.resumption = Resumption::disabled();
    // Addresses are not names in certificates.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

fn not_configured(error: rustls::Error) -> CertificateError {
    CertificateError::Failed { task: "use TLS", what: error.to_string() }
}

/// Returns the error of a handshake. The peer gets the alert that belongs to it.
fn in_handshake(error: CertificateError) -> rustls::Error {
    let refusal = match &error {
        CertificateError::Refused(Refusal::Revoked) => TlsRefusal::Revoked,
        CertificateError::Refused(Refusal::Encoding) => TlsRefusal::BadEncoding,
        CertificateError::Refused(Refusal::Expired) => TlsRefusal::Expired,
        _ => TlsRefusal::Other(OtherError(Arc::new(error))),
    };
    refusal.into()
}

/// Accepts certificates of clients.
#[derive(Debug)]
struct Clients(Arc<Trust>);

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Peers have one certificate each.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.clients.verify_client_cert(leaf, others, now)?;
        self.0.check_peer(leaf, others, now).map_err(in_handshake)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clients.supported_verify_schemes()
    }
}

/// Accepts certificates of servers.
#[derive(Debug)]
struct Servers(Arc<Trust>);

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.0.roots, others, now, algorithms)?;
        let certified = self.0.check_peer(leaf, others, now).map_err(in_handshake)?;
        match certified.identity {
            Identity::Server => Ok(ServerCertVerified::assertion()),
            _ => Err(in_handshake(Refusal::NotServer.into())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clients.supported_verify_schemes()
    }
}
