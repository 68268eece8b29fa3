//! Certificates of both ends, over real TLS.

use crate::common::*;
use canopy_cluster::wire::{
    Address, Call, ClientSecurity, Connections, Identify, Limits, ListenError, Listener, Peer,
    Refusal, ServerSecurity, Tls, WireError,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::aws_lc_rs};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A key that signs certificates, and the peers to whom it gave them.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    peers: Arc<Mutex<HashMap<Vec<u8>, Peer>>>,
    are_revoked: Arc<AtomicBool>,
}

type Holder = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        Authority { issuer, root, peers: Arc::default(), are_revoked: Arc::default() }
    }

    fn issue(&self, peer: Peer, last_year: i32) -> Holder {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1"].map(String::from);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        self.peers.lock().unwrap().insert(certificate.to_vec(), peer);
        (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn identify(&self) -> Identify {
        let (peers, are_revoked) = (self.peers.clone(), self.are_revoked.clone());
        Arc::new(move |leaf| {
            if are_revoked.load(Ordering::Relaxed) {
                return Err("the certificate is revoked".into());
            }
            let peers = peers.lock().unwrap();
            peers.get(&leaf[..]).cloned().ok_or_else(|| "unknown certificate".into())
        })
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        Arc::new(roots)
    }

    fn server(&self, (certificate, key): Holder) -> ServerSecurity {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            self.roots(),
            provider.clone(),
        );
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate], key)
            .unwrap();
        ServerSecurity { tls: Some(Tls { config: Arc::new(config), identify: self.identify() }) }
    }

    fn client(&self, holder: Option<Holder>) -> Connections {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        let config = match holder {
            Some((certificate, key)) => {
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let tls = Some(Tls { config: Arc::new(config), identify: self.identify() });
        Connections::new(ClientSecurity { tls, trusted_uids: None }).unwrap()
    }
}

fn server() -> Peer {
    Peer::Server { name: "s1".into() }
}

fn user() -> Peer {
    Peer::User { uid: 1234 }
}

/// Answers with the peer.
fn name_peer(call: Call) {
    let peer = call.peer().to_string();
    call.answer(peer.as_bytes());
}

fn start(security: ServerSecurity, address: &str) -> Listener {
    let addresses = [address.parse().unwrap()];
    Listener::start(&addresses, security, Limits::default(), Arc::new(Each(name_peer))).unwrap()
}

/// Calls a server that has the first holder's certificate, as the second one.
fn ask(
    server_of: &Authority,
    server: Holder,
    client_of: &Authority,
    client: Option<Holder>,
) -> Result<String, WireError> {
    let listener = start(server_of.server(server), "localhost:0");
    let connections = client_of.client(client);
    let answer = connections.call(&address(&listener), b"", terms())?;
    assert_eq!(listener.connections(), (1, 0));
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

#[test]
fn holders_of_good_certificates_are_known_by_them() {
    let authority = Authority::new();
    let node = Peer::Node { name: "n17".into(), speaks_for_root: false };
    for (peer, name) in [(user(), "user 1234"), (node, "node n17"), (server(), "server s1")] {
        let server = authority.issue(server(), 9999);
        let client = authority.issue(peer, 9999);
        assert_eq!(ask(&authority, server, &authority, Some(client)).unwrap(), name);
    }
}

#[test]
fn wrong_certificates_are_refused_at_either_end() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let good = |peer| ours.issue(peer, 9999);
    let cases = [
        ("expired client", ask(&ours, good(server()), &ours, Some(ours.issue(user(), 2021)))),
        ("expired server", ask(&ours, ours.issue(server(), 2021), &ours, Some(good(user())))),
        ("no certificate", ask(&ours, good(server()), &ours, None)),
        (
            "other authority's server",
            ask(&theirs, theirs.issue(server(), 9999), &ours, Some(good(user()))),
        ),
        ("user as server", ask(&ours, good(user()), &ours, Some(good(user())))),
    ];
    for (case, outcome) in cases {
        let error = outcome.expect_err(case);
        assert!(error.is_surely_not_executed(), "{case}: {error}");
        let is_denied = matches!(&error, WireError::Refused { refusal: Refusal::Denied(_), .. });
        assert!(is_denied, "{case}: {error:?}");
    }
    // A client that trusts our server, and has a certificate of another authority.
    let listener = start(ours.server(good(server())), "localhost:0");
    let stranger = theirs.issue(user(), 9999);
    let error = ours.client(Some(stranger)).call(&address(&listener), b"", terms()).unwrap_err();
    assert!(matches!(error, WireError::Refused { refusal: Refusal::Denied(_), .. }), "{error:?}");
}

#[test]
fn a_certificate_that_identifies_nobody_is_refused_with_the_reason() {
    let authority = Authority::new();
    let listener = start(authority.server(authority.issue(server(), 9999)), "localhost:0");
    let client = authority.issue(user(), 9999);
    authority.peers.lock().unwrap().remove(&client.0[..]);
    let error = authority.client(Some(client)).call(&address(&listener), b"", terms()).unwrap_err();
    let WireError::Refused { refusal: Refusal::Denied(text), .. } = error else {
        panic!("{error}")
    };
    assert_eq!(text, "unknown certificate");
}

#[test]
fn a_revoked_certificate_ends_an_open_connection() {
    let authority = Authority::new();
    let listener = start(authority.server(authority.issue(server(), 9999)), "localhost:0");
    let connections = authority.client(Some(authority.issue(user(), 9999)));
    let address = address(&listener);
    connections.call(&address, b"", terms()).unwrap();
    authority.are_revoked.store(true, Ordering::Relaxed);
    wait_until(|| listener.connections() == (0, 0));
    let error = connections.call(&address, b"", terms()).unwrap_err();
    assert!(error.is_surely_not_executed(), "{error}");
}

#[test]
fn plain_and_tls_do_not_mix_and_say_so() {
    let authority = Authority::new();
    let tls = start(authority.server(authority.issue(server(), 9999)), "127.0.0.1:0");
    let plain = start(ServerSecurity::default(), "127.0.0.1:0");
    let error = connections().call(&address(&tls), b"", terms()).unwrap_err();
    assert!(error.to_string().contains("one side uses TLS"), "{error}");
    let client = authority.client(Some(authority.issue(user(), 9999)));
    let error = client.call(&address(&plain), b"", terms()).unwrap_err();
    assert!(error.is_surely_not_executed(), "{error}");
    // Garbage in place of a handshake ends the connection.
    let mut socket = socket(&tls);
    socket.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3, 4, 5]).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = socket.read_to_end(&mut Vec::new());
    wait_until(|| tls.connections() == (0, 0));
}

#[test]
fn large_bodies_and_many_calls_pass_through_tls() {
    let authority = Authority::new();
    let security = authority.server(authority.issue(server(), 9999));
    let addresses = ["localhost:0".parse().unwrap()];
    let service = Arc::new(Each(echo));
    let listener = Listener::start(&addresses, security, Limits::default(), service).unwrap();
    let connections = authority.client(Some(authority.issue(user(), 9999)));
    let destination = connections.to(&address(&listener));
    let bodies: Vec<Vec<u8>> =
        (0..200_usize).map(|at| vec![at as u8; if at % 50 == 0 { 1 << 20 } else { at }]).collect();
    let terms = terms().with_room(1 << 20);
    let pending = destination.start_all(bodies.iter().map(|body| &body[..]), terms);
    for (pending, body) in pending.into_iter().zip(&bodies) {
        assert!(pending.wait().unwrap()[..] == body[..]);
    }
    listener.stop(Duration::from_secs(60));
    assert!(destination.call(b"", terms).unwrap_err().is_surely_not_executed());
}

#[test]
fn plain_addresses_that_others_can_reach_are_refused_at_the_start() {
    let other = ["0.0.0.0:0", "[::]:0", "192.0.2.1:7040", "[::ffff:192.0.2.1]:7040"];
    for text in other {
        let address: Address = text.parse().unwrap();
        let security = ServerSecurity::default();
        let service = Arc::new(Each(echo));
        let addresses = [address.clone()];
        let error =
            Listener::start(&addresses, security, Limits::default(), service).err().unwrap();
        assert!(matches!(error, ListenError::Plain(_)), "{error}");
        assert!(error.to_string().contains("needs a certificate"), "{error}");
    }
    let address = "192.0.2.1:7040".parse().unwrap();
    let short = canopy_cluster::wire::Terms::within(Duration::from_millis(200));
    let error = connections().call(&address, b"", short).unwrap_err();
    assert!(error.is_surely_not_executed(), "{error}");
}
