//! Checks of certificates in handshakes, and afterwards on connections that stay open.
//!
//! rustls' own verifier checks signature, validity and purpose. This module adds that nothing lies
//! between a certificate and the cluster's key, that it names one holder in this cluster, and that it
//! was not revoked. On open connections it also looks whether the key is trusted still. Sessions are
//! never resumed: rustls would take the certificate of the first handshake for good.

use super::credentials::Credentials;
use super::error::{CertificateError, Refusal};
use super::identity::{Certified, ClusterId, Identity, Serial, identify};
use super::{provider, records};
use canopy_store::storage::Storage;
use parking_lot::{Mutex, RwLock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError as TlsRefusal, ClientConfig, DigitallySignedStruct, DistinguishedName,
    OtherError, RootCertStore, ServerConfig, SignatureScheme,
};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Certificates that are remembered as signed by a key that is trusted.
const VERIFIED_MAX: usize = 1 << 16;

/// Everything that decides which certificates of one cluster are accepted.
#[derive(Debug)]
pub struct Trust {
    cluster: ClusterId,
    keys: RwLock<Arc<Keys>>,
    revoked: RwLock<HashSet<Serial>>,
}

/// The keys of the cluster that are trusted.
#[derive(Debug)]
struct Keys {
    certificates: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    /// Hashes of certificates that one of them has signed.
    verified: Mutex<HashSet<[u8; 32]>>,
}

impl Keys {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<Self>, CertificateError> {
        let failed = |what: String| CertificateError::Failed { task: "use the certificate", what };
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| failed(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
        let clients = clients.build().map_err(|error| failed(error.to_string()))?;
        Ok(Arc::new(Keys { certificates, roots, clients, verified: Mutex::default() }))
    }

    /// Fails unless one of the keys has signed a certificate. All certificates are fit for clients.
    fn verify(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let hash = *blake3::hash(leaf).as_bytes();
        if self.verified.lock().contains(&hash) {
            return Ok(());
        }
        self.clients.verify_client_cert(leaf, &[], now).map_err(|_| Refusal::Key)?;
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(hash);
        Ok(())
    }
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
        let keys = trusted(storage)?;
        let is_known = credentials.authorities().iter().any(|one| keys.contains(one));
        if certified.cluster != ClusterId::of(storage)? || !is_known {
            return Err(Refusal::OtherCluster.into());
        }
        let trust = Trust::new(credentials, keys)?;
        trust.refresh(storage)?;
        trust.check(&certified, UnixTime::now())?;
        if let Some(leaf) = credentials.leaf() {
            trust.keys().verify(&leaf, UnixTime::now())?;
        }
        Ok(trust)
    }

    /// Returns the trust of a client, which knows no storage. It cannot know that a server's certificate
    /// was revoked.
    ///
    /// # Errors
    ///
    /// Fails if the cluster's certificate in the credentials is damaged.
    pub fn of_client(credentials: &Credentials) -> Result<Arc<Self>, CertificateError> {
        Trust::new(credentials, credentials.authorities())
    }

    fn new(
        credentials: &Credentials,
        keys: Vec<CertificateDer<'static>>,
    ) -> Result<Arc<Self>, CertificateError> {
        let (cluster, keys) = (credentials.certified().cluster, RwLock::new(Keys::new(keys)?));
        Ok(Arc::new(Trust { cluster, keys, revoked: RwLock::default() }))
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().clone()
    }

    /// Trusts these keys from now on. If they are others than before, open connections are checked
    /// again, too.
    fn trust(&self, certificates: Vec<CertificateDer<'static>>) -> Result<(), CertificateError> {
        if self.keys().certificates != certificates {
            *self.keys.write() = Keys::new(certificates)?;
        }
        Ok(())
    }

    /// Trusts the keys that a client's file has now.
    ///
    /// # Errors
    ///
    /// Fails if a certificate of a key is damaged.
    pub fn follow(&self, credentials: &Credentials) -> Result<(), CertificateError> {
        self.trust(credentials.authorities())
    }

    /// Reads from storage which certificates were revoked, and which keys are trusted. After an error,
    /// what was known before counts.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn refresh(&self, storage: &dyn Storage) -> Result<(), CertificateError> {
        self.refresh_revoked(storage)?;
        self.trust(trusted(storage)?)
    }

    /// Reads from storage which certificates were revoked. Costs one listing.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn refresh_revoked(&self, storage: &dyn Storage) -> Result<(), CertificateError> {
        let revoked = records::revoked(storage)?;
        *self.revoked.write() = revoked;
        Ok(())
    }

    /// Returns the contents of the certificate of a peer, with which a handshake has succeeded.
    ///
    /// # Errors
    ///
    /// Fails with `Refused` if it was revoked since, if its key is not trusted any more, or if no handshake
    /// can have succeeded.
    pub fn identify(&self, leaf: &[u8]) -> Result<Certified, CertificateError> {
        let (certified, now) = (identify(leaf)?, UnixTime::now());
        self.check(&certified, now)?;
        self.keys().verify(&CertificateDer::from(leaf), now)?;
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

/// Returns whether the newest key of a cluster has signed the certificate in a file.
///
/// # Errors
///
/// Fails as [`Credentials::open`] and storage do.
pub fn is_of_newest_key(storage: &dyn Storage, file: &Path) -> Result<bool, CertificateError> {
    let credentials = Credentials::open(file)?;
    let newest = trusted(storage)?.pop();
    let (Some(newest), Some(leaf)) = (newest, credentials.leaf()) else { return Ok(false) };
    match Keys::new(vec![newest])?.verify(&leaf, UnixTime::now()) {
        Err(CertificateError::Refused(_)) => Ok(false),
        verified => verified.map(|()| true),
    }
}

/// Returns the certificates of the keys that a cluster trusts.
fn trusted(storage: &dyn Storage) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let parse = |one: records::TrustedKey| {
        CertificateDer::from_pem_slice(one.certificate.as_bytes()).map_err(|_| {
            let object = records::authority_name(one.number);
            CertificateError::Corrupt { object, what: "it is not a certificate".into() }
        })
    };
    records::authorities(storage)?.into_iter().map(parse).collect()
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
        let verified = self.0.keys().clients.verify_client_cert(leaf, others, now)?;
        self.0.check_peer(leaf, others, now).map_err(in_handshake)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.keys().clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.keys().clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.keys().clients.supported_verify_schemes()
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
        let keys = self.0.keys();
        verify_server_cert_signed_by_trust_anchor(&parsed, &keys.roots, others, now, algorithms)?;
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
        self.0.keys().clients.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.keys().clients.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.keys().clients.supported_verify_schemes()
    }
}
