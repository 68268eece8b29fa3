//! Certificates of a cluster: those that are accepted, in handshakes of TLS in memory, and many that
//! are not. Some forged ones are signed with the cluster's own key, as by a careless administrator.

use canopy_cluster::certificates::{
    Authority, CertificateError, ClusterId, Credentials, Identity, NodeName, Refusal, Serial,
    Trust, client_config, identify, issued, retire_keys, revoke, server_config,
};
use canopy_cluster::create_cluster;
use canopy_namespace::{Ownership, Settings, system_clock};
use canopy_partition::SplitPolicy;
use canopy_store::Environment;
use canopy_store::storage::{MemoryStorage, SharedDirectory, Storage};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tempfile::TempDir;
use time::OffsetDateTime;

const DAY_S: i64 = 86_400;

fn create_empty(environment: &Environment, servers: u32) {
    let (settings, policy) = (Settings::default(), SplitPolicy::default());
    let owner = Ownership::ROOT;
    create_cluster(environment, &settings, owner, servers, policy, &system_clock()).unwrap();
}

fn now_s() -> i64 {
    UnixTime::now().as_secs().cast_signed()
}

fn node(name: &str, is_root: bool) -> Identity {
    Identity::Node { name: NodeName::parse(name).unwrap(), is_root }
}

/// A cluster with a key.
struct Site {
    place: TempDir,
    storage: Arc<dyn Storage>,
    cluster: ClusterId,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        Site::on(Arc::new(MemoryStorage::default()))
    }

    fn on(storage: Arc<dyn Storage>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let environment = Environment::system(storage.clone());
        create_empty(&environment, 2);
        let cluster = ClusterId::of(&*storage).unwrap();
        let key = place.path().join("cluster.key");
        let authority = Authority::open(&*storage, &key, now_s()).unwrap();
        Site { place, storage, cluster, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn credentials_at(&self, identity: &Identity, days: u32, at_s: i64) -> Arc<Credentials> {
        let made = self.authority.issue(&*self.storage, identity, days, at_s).unwrap();
        Credentials::of_made(&made).unwrap()
    }

    fn credentials(&self, identity: &Identity) -> Arc<Credentials> {
        self.credentials_at(identity, 1, now_s())
    }

    /// The configuration of a server with a certificate of its own.
    fn server(&self) -> (Arc<Trust>, Arc<ServerConfig>) {
        let credentials = self.credentials(&Identity::Server);
        let trust = Trust::of_server(&*self.storage, &credentials).unwrap();
        let config = server_config(&trust, &credentials).unwrap();
        (trust, config)
    }

    /// The key in the file of the cluster, with which anything can be signed.
    fn issuer(&self) -> Issuer<'static, KeyPair> {
        let key = fs::read_to_string(self.path("cluster.key")).unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let name = format!("Canopy cluster {}", self.cluster);
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Issuer::new(parameters, KeyPair::from_pem(&key).unwrap())
    }

    /// Contents as the cluster makes them.
    fn contents(&self, uri: &str) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        parameters.serial_number = Some(SerialNumber::from_slice(&[0x41; 16]));
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        parameters.not_before = OffsetDateTime::now_utc() - Duration::from_secs(60);
        parameters.not_after = OffsetDateTime::now_utc() + Duration::from_secs(3600);
        parameters
    }

    fn uri(&self, holder: &str) -> String {
        format!("canopy://{}/{holder}", self.cluster)
    }

    /// A client with a certificate that `Credentials` would not take.
    fn forged(&self, chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Arc<ClientConfig> {
        let own = self.credentials(&node("n1", false));
        let trust = Trust::of_client(&own).unwrap();
        let honest = client_config(&trust, &own).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = honest.crypto_provider().key_provider.load_private_key(key).unwrap();
        let mut config = (*honest).clone();
        let certified = rustls::sign::CertifiedKey::new(chain, key);
        config.client_auth_cert_resolver =
            Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        Arc::new(config)
    }
}

fn client(credentials: &Arc<Credentials>) -> Arc<ClientConfig> {
    client_config(&Trust::of_client(credentials).unwrap(), credentials).unwrap()
}

fn sign(parameters: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> (Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    (parameters.signed_by(&key, issuer).unwrap(), key)
}

/// A handshake in memory, until both are done or one fails: the certificate that the server got.
fn shake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Result<Vec<u8>, rustls::Error> {
    let name = ServerName::try_from("10.1.0.5").unwrap();
    let mut client: Connection = ClientConnection::new(client.clone(), name).unwrap().into();
    let mut server: Connection = ServerConnection::new(server.clone()).unwrap().into();
    for _ in 0..10 {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
        if !client.is_handshaking() && !server.is_handshaking() {
            assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::Full));
            return Ok(server.peer_certificates().unwrap()[0].to_vec());
        }
    }
    panic!("the handshake does not end")
}

fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

#[track_caller]
fn assert_refused<T>(outcome: Result<T, rustls::Error>, expected: &str) {
    let Err(error) = outcome else { panic!("accepted, instead of: {expected}") };
    assert!(format!("{error:?} {error}").contains(expected), "{error:?}");
}

#[test]
fn every_holder_is_known_by_its_certificate() {
    let site = Site::new();
    let (trust, server) = site.server();
    let holders =
        [Identity::Server, node("n17", false), node("n17", true), Identity::user(1000).unwrap()];
    for identity in holders {
        let credentials = site.credentials(&identity);
        let leaf = shake(&client(&credentials), &server).unwrap();
        let certified = trust.identify(&leaf).unwrap();
        assert_eq!(certified, credentials.certified());
        assert_eq!((certified.identity, certified.cluster), (identity, site.cluster));
        assert!((certified.not_after_s - now_s() - DAY_S).abs() < 600);
    }
    assert_eq!(issued(&*site.storage).unwrap().len(), 5);
}

#[test]
fn only_servers_answer() {
    let site = Site::new();
    let own = site.credentials(&node("n1", false));
    for identity in [node("n17", true), Identity::user(1000).unwrap()] {
        let credentials = site.credentials(&identity);
        assert!(matches!(
            Trust::of_server(&*site.storage, &credentials),
            Err(CertificateError::Refused(Refusal::NotServer))
        ));
        // One that does it all the same.
        let trust = Trust::of_client(&credentials).unwrap();
        let server = server_config(&trust, &credentials).unwrap();
        assert_refused(shake(&client(&own), &server), "InvalidPurpose");
        // Even with a certificate that is fit for servers, but names no server.
        let (made, key) = sign(&site.contents(&identity.uri(site.cluster)), &site.issuer());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut odd = ServerConfig::builder_with_provider(server.crypto_provider().clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der().clone()], key)
            .unwrap();
        odd.send_tls13_tickets = 2;
        assert_refused(shake(&client(&own), &Arc::new(odd)), "NotServer");
    }
}

/// Resolves to nothing.
#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let site = Site::new();
    let (_, server) = site.server();
    let own = site.credentials(&node("n1", false));
    let mut config = (*client(&own)).clone();
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    assert_refused(shake(&Arc::new(config), &server), "NoCertificatesPresented");
}

#[test]
fn another_cluster_is_refused_even_with_one_key_for_both() {
    let (one, other) = (Site::new(), Site::new());
    let (_, server) = one.server();
    for identity in [Identity::Server, node("n1", true)] {
        let stranger = other.credentials(&identity);
        // Each refuses the other: the client is first.
        assert_refused(shake(&client(&stranger), &server), "UnknownIssuer");
        let mut config = (*client(&one.credentials(&node("n1", false)))).clone();
        config.client_auth_cert_resolver = stranger.clone();
        assert_refused(shake(&Arc::new(config), &server), "UnknownIssuer");
        assert!(matches!(
            Trust::of_server(&*one.storage, &stranger),
            Err(CertificateError::Refused(Refusal::OtherCluster | Refusal::NotServer))
        ));
    }
    // The administrator uses one key for both clusters.
    let third: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    let environment = Environment::system(third.clone());
    create_empty(&environment, 2);
    let authority = Authority::open(&*third, &one.path("cluster.key"), now_s()).unwrap();
    let made = authority.issue(&*third, &Identity::Server, 1, now_s()).unwrap();
    let stranger = Credentials::of_made(&made).unwrap();
    let (certificate, key) =
        sign(&one.contents(&Identity::Server.uri(stranger.certified().cluster)), &one.issuer());
    let forged = one.forged(vec![certificate.der().clone()], &key);
    assert_refused(shake(&forged, &server), "OtherCluster");
    assert!(Trust::of_server(&*one.storage, &stranger).is_err());
}

#[test]
fn certificates_expire() {
    let site = Site::new();
    let (trust, server) = site.server();
    let old = site.credentials_at(&node("n1", false), 1, now_s() - DAY_S - 60);
    assert_refused(shake(&client(&old), &server), "Expired");
    let early = site.credentials_at(&node("n1", false), 1, now_s() + DAY_S);
    assert_refused(shake(&client(&early), &server), "NotValidYet");
    // A clock that is half an hour behind does no harm.
    let fresh = site.credentials_at(&node("n1", false), 1, now_s() + 1800);
    shake(&client(&fresh), &server).unwrap();
    // A connection may last longer than its certificate.
    let certified = fresh.certified();
    let later = UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(certified.not_after_s + 1).unwrap(),
    ));
    trust.check(&certified, UnixTime::now()).unwrap();
    let refused = trust.check(&certified, later).unwrap_err();
    assert!(matches!(refused, CertificateError::Refused(Refusal::Expired)));
    // A server with an old one does not start.
    let old = site.credentials_at(&Identity::Server, 1, now_s() - DAY_S - 60);
    assert!(matches!(
        Trust::of_server(&*site.storage, &old),
        Err(CertificateError::Refused(Refusal::Expired))
    ));
    let server = server_config(&Trust::of_client(&old).unwrap(), &old).unwrap();
    assert_refused(shake(&client(&fresh), &server), "Expired");
    for days in [0, 3651, u32::MAX] {
        let made = site.authority.issue(&*site.storage, &Identity::Server, days, now_s());
        assert!(matches!(made, Err(CertificateError::Invalid(_))), "{days}");
    }
}

#[test]
fn revoked_certificates_are_refused_once_a_server_has_read_it() {
    for storage in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = match storage {
            true => Arc::new(MemoryStorage::default()),
            false => Arc::new(SharedDirectory::make(place.path()).unwrap()),
        };
        let site = Site::on(storage.clone());
        let (trust, server) = site.server();
        let [one, other] = [(); 2].map(|()| site.credentials(&node("n1", true)));
        let serial = one.certified().serial;
        let leaf = shake(&client(&one), &server).unwrap();
        assert!(revoke(&*storage, serial, now_s()).unwrap());
        assert!(!revoke(&*storage, serial, now_s()).unwrap(), "it is revoked already");
        trust.refresh(&*storage).unwrap();
        assert_refused(shake(&client(&one), &server), "Revoked");
        // On a connection that is open, too.
        assert!(matches!(trust.identify(&leaf), Err(CertificateError::Refused(Refusal::Revoked))));
        shake(&client(&other), &server).unwrap();
        let list = issued(&*storage).unwrap();
        assert!(list.iter().all(|one| one.is_revoked == (one.certified.serial == serial)));
        // A server that is revoked does not start.
        let own = site.credentials(&Identity::Server);
        revoke(&*storage, own.certified().serial, now_s()).unwrap();
        assert!(matches!(
            Trust::of_server(&*storage, &own),
            Err(CertificateError::Refused(Refusal::Revoked))
        ));
        let unknown = Serial::parse(&"41".repeat(16)).unwrap();
        assert!(matches!(revoke(&*storage, unknown, now_s()), Err(CertificateError::Invalid(_))));
        // After an error, what was known counts.
        storage.create("cluster/revoked/x", "".into()).unwrap();
        assert!(trust.refresh(&*storage).is_err());
        assert_refused(shake(&client(&one), &server), "Revoked");
    }
}

#[test]
fn sessions_are_not_resumed() {
    let site = Site::new();
    let (trust, server) = site.server();
    let own = site.credentials(&node("n1", false));
    // A client that would like to.
    let mut config = (*client(&own)).clone();
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    let config = Arc::new(config);
    for _ in 0..3 {
        shake(&config, &server).unwrap();
    }
    revoke(&*site.storage, own.certified().serial, now_s()).unwrap();
    trust.refresh(&*site.storage).unwrap();
    assert_refused(shake(&config, &server), "Revoked");
}

#[test]
fn a_holder_cannot_make_certificates() {
    let site = Site::new();
    let (_, server) = site.server();
    // Its own key signs another certificate, which comes with its own.
    let own_key = KeyPair::generate().unwrap();
    let own = site.contents(&site.uri("node/n1"));
    let own_certificate = own.signed_by(&own_key, &site.issuer()).unwrap();
    let issuer = Issuer::new(own, own_key);
    let (made, key) = sign(&site.contents(&site.uri("server")), &issuer);
    let chain = vec![made.der().clone(), own_certificate.der().clone()];
    assert_refused(shake(&site.forged(chain, &key), &server), "");
    assert_refused(shake(&site.forged(vec![made.der().clone()], &key), &server), "UnknownIssuer");
    // Not even if the cluster's key had made it one that may.
    let mut between = site.contents(&site.uri("node/n1"));
    between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let between_key = KeyPair::generate().unwrap();
    let between_made = between.signed_by(&between_key, &site.issuer()).unwrap();
    let issuer = Issuer::new(between, between_key);
    let (made, key) = sign(&site.contents(&site.uri("server")), &issuer);
    let chain = vec![made.der().clone(), between_made.der().clone()];
    assert_refused(shake(&site.forged(chain, &key), &server), "Chain");
    // A certificate that nobody has signed but its holder.
    let key = KeyPair::generate().unwrap();
    let made = site.contents(&site.uri("server")).self_signed(&key).unwrap();
    let forged = site.forged(vec![made.der().clone()], &key);
    assert_refused(shake(&forged, &server), "UnknownIssuer");
    // Another's certificate, without its key.
    let (made, _) = sign(&site.contents(&site.uri("server")), &site.issuer());
    let forged = site.forged(vec![made.der().clone()], &key);
    assert_refused(shake(&forged, &server), "BadSignature");
}

#[test]
fn a_certificate_names_one_holder_in_one_way() {
    let site = Site::new();
    let (_, server) = site.server();
    let uri = |holder: &str| SanType::URI(site.uri(holder).try_into().unwrap());
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let other = "canopy://00000000000000000000000000000000/server";
    let names = [
        vec![],
        vec![uri("node/n1"), uri("server")],
        vec![uri("server"), uri("node/n1")],
        vec![uri("node/n1"), uri("node/n1")],
        vec![uri("node/n1"), dns("n1")],
        vec![dns("n1"), uri("node/n1")],
        vec![uri("node/n1"), SanType::IpAddress([10, 1, 0, 5].into())],
        vec![uri("node/n1"), SanType::Rfc822Name("a@b".try_into().unwrap())],
        vec![dns(&site.uri("server"))],
        vec![SanType::Rfc822Name(site.uri("server").try_into().unwrap())],
        vec![uri("node/n1?root")],
        vec![uri("node/n1#/server")],
        vec![uri("node/n1%2froot")],
        vec![uri("node/n1\0")],
        vec![uri("Server")],
        vec![uri("user/0")],
        vec![uri("user/00")],
        vec![uri("user/4294967295")],
        vec![uri("user/4294967296")],
        vec![uri("server/../user/1000")],
        vec![SanType::URI(format!("{other}/x").try_into().unwrap())],
        vec![SanType::URI(other.try_into().unwrap())],
    ];
    for names in names {
        let mut parameters = site.contents("");
        parameters.subject_alt_names = names.clone();
        let (made, key) = sign(&parameters, &site.issuer());
        let refused = shake(&site.forged(vec![made.der().clone()], &key), &server);
        let Err(error) = refused else { panic!("{names:?}") };
        let told = format!("{error:?}");
        let is_ours = ["Name", "OtherCluster", "BadDer"].iter().any(|word| told.contains(word));
        assert!(is_ours, "{names:?}: {told}");
    }
    // One extension twice: readers of the first and of the last would see different names.
    let mut parameters = site.contents(&site.uri("node/n1"));
    let second = site.uri("server");
    let mut value = vec![0x30, u8::try_from(second.len()).unwrap() + 2, 0x86];
    value.push(u8::try_from(second.len()).unwrap());
    value.extend(second.bytes());
    for is_critical in [false, true] {
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], value.clone());
        extension.set_criticality(is_critical);
        parameters.custom_extensions = vec![extension];
        let (made, key) = sign(&parameters, &site.issuer());
        assert!(matches!(identify(made.der()), Err(CertificateError::Refused(Refusal::Name))));
        assert!(shake(&site.forged(vec![made.der().clone()], &key), &server).is_err());
    }
    // Serial numbers that no cluster gives: a revocation would miss another spelling of one.
    let serials = [&[1][..], &[0x41; 15], &[0x41; 17], &[0x3f; 16], &[0x80; 16], &[0; 16]];
    for serial in serials {
        let mut parameters = site.contents(&site.uri("node/n1"));
        parameters.serial_number = Some(SerialNumber::from_slice(serial));
        let (made, key) = sign(&parameters, &site.issuer());
        let told = identify(made.der()).map(|certified| certified.serial.to_string());
        assert!(told.is_err(), "{serial:?}: {told:?}");
        assert!(shake(&site.forged(vec![made.der().clone()], &key), &server).is_err());
    }
}

#[test]
fn changed_bytes_of_a_certificate_never_name_another_holder() {
    let site = Site::new();
    let (made, _) = sign(&site.contents(&site.uri("user/1000")), &site.issuer());
    let right = identify(made.der()).unwrap();
    for at in 0..made.der().len() {
        for bit in 0..8 {
            let mut bytes = made.der().to_vec();
            bytes[at] ^= 1 << bit;
            // The signature would fail; here only the parser is asked, and must not panic.
            let _ = identify(&bytes);
        }
        assert!(identify(&made.der()[..at]).is_err());
    }
    let longer = [made.der(), &[0][..]].concat();
    assert!(identify(&longer).is_err());
    assert_eq!(identify(made.der()).unwrap(), right);
}

#[test]
fn private_keys_are_read_from_files_of_the_owner_alone() {
    let site = Site::new();
    let made = site.authority.issue(&*site.storage, &node("n1", false), 1, now_s()).unwrap();
    let file = site.path("n1.pem");
    made.write(&file, false).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(Credentials::open(&file).unwrap().certified(), made.certified);
    let again = made.write(&file, false).unwrap_err();
    assert!(again.to_string().contains("exists"), "{again}");
    for mode in [0o640, 0o604, 0o660, 0o601] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let refused = Credentials::open(&file).unwrap_err();
        assert!(refused.to_string().contains("others may read"), "{refused}");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        let refused = Credentials::open(&file).unwrap_err();
        assert!(refused.to_string().contains("belongs to uid 65534"), "{refused}");
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    // The key of the cluster is guarded in the same way.
    let key = site.path("cluster.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    assert!(Authority::open(&*site.storage, &key, now_s()).is_err());
    // Nothing is left of files that were written.
    let names = fs::read_dir(site.place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 2);
}

#[test]
fn files_that_are_not_credentials_are_refused() {
    let site = Site::new();
    let made = site.authority.issue(&*site.storage, &node("n1", false), 1, now_s()).unwrap();
    let other = site.authority.issue(&*site.storage, &node("n2", false), 1, now_s()).unwrap();
    let (file, second) = (site.path("n1.pem"), site.path("n2.pem"));
    made.write(&file, false).unwrap();
    other.write(&second, false).unwrap();
    let [text, other] = [&file, &second].map(|file| fs::read_to_string(file).unwrap());
    let key = text.find("-----BEGIN PRIVATE").unwrap();
    let authority = key + text[key..].find("-----BEGIN CERT").unwrap();
    let other_key = &other[other.find("-----BEGIN PRIVATE").unwrap()..];
    let other_key = &other_key[..other_key.find("-----BEGIN CERT").unwrap()];
    let odd = [
        String::new(),
        "text".to_owned(),
        text[..key].to_owned(),
        text[..authority].to_owned(),
        format!("{}{}", &text[..key], &text[authority..]),
        format!("{text}{text}"),
        format!("{text}{other_key}"),
        format!("{}{other_key}{}", &text[..key], &text[authority..]),
        text.replace("-----END PRIVATE KEY-----", ""),
        text.replacen('M', "N", 5),
    ];
    for odd in odd {
        fs::write(&file, &odd).unwrap();
        assert!(Credentials::open(&file).is_err(), "{odd}");
    }
    for odd in ["", "text", &text[..key]] {
        let key = site.path("odd.key");
        let _ = fs::remove_file(&key);
        fs::write(&key, odd).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let refused = Authority::open(&*site.storage, &key, now_s()).err().unwrap();
        assert!(refused.to_string().contains("does not have the key"), "{refused}");
    }
}

#[test]
fn renewed_certificates_count_from_the_next_connection_on() {
    let site = Site::new();
    let file = site.path("n1.pem");
    let make = |identity: &Identity| {
        let made = site.authority.issue(&*site.storage, identity, 1, now_s()).unwrap();
        made.write(&file, true).unwrap();
        made.certified
    };
    let first = make(&node("n1", false));
    let credentials = Credentials::open(&file).unwrap();
    let (trust, server) = site.server();
    let config = client(&credentials);
    let serial = || trust.identify(&shake(&config, &server).unwrap()).unwrap().serial;
    assert_eq!(serial(), first.serial);
    assert!(!credentials.reload().unwrap());
    let second = make(&node("n1", false));
    assert!(credentials.reload().unwrap());
    assert_eq!(serial(), second.serial);
    // It does not become another holder's, and a damaged file changes nothing.
    make(&node("n1", true));
    assert!(credentials.reload().is_err());
    fs::write(&file, "").unwrap();
    assert!(credentials.reload().is_err());
    assert_eq!(serial(), second.serial);
}

#[test]
fn the_key_is_made_once() {
    let site = Site::new();
    let key = site.path("cluster.key");
    Authority::open(&*site.storage, &key, now_s()).unwrap();
    let elsewhere = site.path("other.key");
    let missing = Authority::open(&*site.storage, &elsewhere, now_s()).err().unwrap();
    assert!(missing.to_string().contains("name its file with --key"), "{missing}");
    assert!(!elsewhere.exists());
    let other = Site::new();
    let wrong = Authority::open(&*site.storage, &other.path("cluster.key"), now_s());
    let wrong = wrong.err().unwrap();
    assert!(wrong.to_string().contains("it is not the key of this cluster"), "{wrong}");
    // Several administrators at once.
    for _ in 0..20 {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
        let environment = Environment::system(storage.clone());
        create_empty(&environment, 1);
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("cluster.key");
        let barrier = Barrier::new(4);
        let made = std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                let authority = Authority::open(&*storage, &file, now_s()).unwrap();
                let made = authority.issue(&*storage, &Identity::Server, 1, now_s()).unwrap();
                Credentials::of_made(&made).unwrap()
            };
            let threads = [(); 4].map(|()| scope.spawn(open));
            threads.map(|thread| thread.join().unwrap())
        });
        for credentials in &made {
            Trust::of_server(&*storage, credentials).unwrap();
        }
    }
    // A storage without a cluster has no key.
    let empty = MemoryStorage::default();
    let file = site.path("empty.key");
    assert!(Authority::open(&empty, &file, now_s()).is_err());
    assert!(!file.exists());
}

#[test]
fn the_key_is_replaced_while_servers_run() {
    let mut site = Site::new();
    let (storage, key) = (site.storage.clone(), site.path("cluster.key"));
    let first = fs::read_to_string(&key).unwrap();
    let file = site.path("n1.pem");
    let make = |site: &Site, identity: &Identity| {
        let made = site.authority.issue(&*site.storage, identity, 1, now_s()).unwrap();
        made.write(&file, true).unwrap();
    };
    make(&site, &node("n1", false));
    let node_file = Credentials::open(&file).unwrap();
    let node_trust = Trust::of_client(&node_file).unwrap();
    let of_node = client_config(&node_trust, &node_file).unwrap();
    let (old_trust, old_server) = site.server();
    let old_leaf = shake(&of_node, &old_server).unwrap();

    // The new key is made, by a run that is interrupted before the key is in its place.
    site.authority = Authority::replace(&*storage, &key, now_s()).unwrap();
    let second = fs::read_to_string(&key).unwrap();
    assert_ne!(first, second);
    fs::rename(&key, site.path("cluster.key.new")).unwrap();
    fs::write(&key, &first).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    site.authority = Authority::open(&*storage, &key, now_s()).unwrap();
    assert_eq!(fs::read_to_string(&key).unwrap(), second);
    assert!(!site.path("cluster.key.new").exists());
    let again = Authority::replace(&*storage, &key, now_s()).err().unwrap();
    assert!(again.to_string().contains("retire that one first"), "{again}");

    // Before a server has read of it, it does not know the new key; then it takes both.
    let newer = site.credentials(&node("n2", false));
    assert!(shake(&client(&newer), &old_server).is_err());
    old_trust.refresh(&*storage).unwrap();
    shake(&client(&newer), &old_server).unwrap();
    shake(&of_node, &old_server).unwrap();
    // A new certificate of a server is for nodes with new ones. A node that runs reads its own again.
    let (new_trust, new_server) = site.server();
    shake(&client(&newer), &new_server).unwrap();
    assert!(shake(&of_node, &new_server).is_err());
    make(&site, &node("n1", false));
    assert!(node_file.reload().unwrap());
    node_trust.follow(&node_file).unwrap();
    let new_leaf = shake(&of_node, &new_server).unwrap();
    shake(&of_node, &old_server).unwrap();

    // Without the old key, its certificates are refused, on open connections, too.
    old_trust.identify(&old_leaf).unwrap();
    assert_eq!(retire_keys(&*storage, now_s()).unwrap(), 1);
    assert_eq!(retire_keys(&*storage, now_s()).unwrap(), 0);
    for trust in [&old_trust, &new_trust] {
        trust.refresh(&*storage).unwrap();
        let refused = trust.identify(&old_leaf).err().unwrap();
        assert!(matches!(refused, CertificateError::Refused(Refusal::Key)), "{refused}");
        trust.identify(&new_leaf).unwrap();
    }
    shake(&of_node, &new_server).unwrap();
    // With the old key, nothing can be made that is accepted.
    fs::write(&key, &first).unwrap();
    let wrong = Authority::open(&*storage, &key, now_s()).err().unwrap();
    assert!(wrong.to_string().contains("it is not the key of this cluster"), "{wrong}");
    let forged = sign(&site.contents(&site.uri("server")), &site.issuer());
    assert!(shake(&site.forged(vec![forged.0.der().clone()], &forged.1), &new_server).is_err());
    // Certificates that were made since have the new key alone, and running holders take them.
    fs::write(&key, &second).unwrap();
    site.authority = Authority::open(&*storage, &key, now_s()).unwrap();
    make(&site, &node("n1", false));
    assert!(node_file.reload().unwrap());
    node_trust.follow(&node_file).unwrap();
    shake(&of_node, &new_server).unwrap();
    // There can be a third one.
    Authority::replace(&*storage, &key, now_s()).unwrap();
}
