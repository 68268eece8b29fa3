//! Our own frames: the real edge of a cluster.

use crate::{ANSWER, REQUEST, certificates};
use anyhow::{Result, anyhow};
use canopy_cluster::wire::{
    Address, Batch, ClientSecurity, Connections, Limits, Listener, Peer, Replies, ServerSecurity,
    Service, Terms, Tls,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Answers without doing anything.
struct Nothing;

impl Service for Nothing {
    fn take(&self, batch: Batch) {
        let mut replies = Replies::default();
        batch.for_each(|call| replies.answer(call, &[2; ANSWER]));
    }
}

/// Gives the calls to another thread, as a server does that executes them.
struct Elsewhere(mpsc::Sender<Batch>);

impl Elsewhere {
    fn start() -> Self {
        let (sender, receiver) = mpsc::channel::<Batch>();
        std::thread::spawn(move || {
            while let Ok(first) = receiver.recv() {
                // All calls that have arrived; their answers leave together.
                let mut replies = Replies::default();
                for batch in std::iter::once(first).chain(receiver.try_iter()) {
                    batch.for_each(|call| replies.answer(call, &[2; ANSWER]));
                }
            }
        });
        Elsewhere(sender)
    }
}

impl Service for Elsewhere {
    fn take(&self, batch: Batch) {
        // The receiver lives as long as the process.
        let _ = self.0.send(batch);
    }
}

type Holder = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, Arc<RootCertStore>);

fn holder(directory: &Path, name: &str) -> Result<Holder> {
    let read = |file: String| certificates::read(directory, &file);
    let certificate = CertificateDer::from_pem_slice(&read(format!("{name}.pem"))?)?;
    let key = PrivateKeyDer::from_pem_slice(&read(format!("{name}.key"))?)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read("root.pem".into())?)?)?;
    Ok((vec![certificate], key, Arc::new(roots)))
}

/// Serves as many addresses, and prints them, until the end of the input.
pub fn serve(addresses: usize, tls: Option<&Path>, is_elsewhere: bool) -> Result<()> {
    let security = match tls {
        None => ServerSecurity::default(),
        Some(directory) => {
            let (certificates, key, roots) = holder(directory, "server")?;
            let provider = Arc::new(aws_lc_rs::default_provider());
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                roots,
                provider.clone(),
            );
            let config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .with_client_cert_verifier(verifier.build()?)
                .with_single_cert(certificates, key)?;
            let identify = Arc::new(|_: &CertificateDer<'_>| Ok(Peer::User { uid: 0 }));
            ServerSecurity { tls: Some(Tls { config: Arc::new(config), identify }) }
        }
    };
    let addresses = vec!["127.0.0.1:0".parse()?; addresses];
    let service: Arc<dyn Service> = match is_elsewhere {
        true => Arc::new(Elsewhere::start()),
        false => Arc::new(Nothing),
    };
    let listener = Listener::start(&addresses, security, Limits::default(), service)?;
    let text = Vec::from_iter(listener.addresses().iter().map(Address::to_string));
    println!("{}", text.join(" "));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Calls the addresses, each by one thread with `operations` at a time, until it must stop.
pub fn call(
    addresses: &[String],
    operations: usize,
    tls: Option<&Path>,
    count: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut security = ClientSecurity::default();
    if let Some(directory) = tls {
        let (certificates, key, roots) = holder(directory, "client")?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates, key)?;
        let identify = Arc::new(|_: &CertificateDer<'_>| Ok(Peer::Server { name: "s".into() }));
        security.tls = Some(Tls { config: Arc::new(config), identify });
    }
    let connections = Connections::new(security)?;
    let one = |address: &String| -> Result<()> {
        let destination = connections.to(&address.parse()?);
        let terms = Terms { time: Duration::from_secs(10), room: 1 << 10 };
        while !stop.load(Ordering::Relaxed) {
            let bodies = (0..operations).map(|_| &[1; REQUEST][..]);
            for pending in destination.start_all(bodies, terms) {
                anyhow::ensure!(pending.wait()?.len() == ANSWER);
            }
            count.fetch_add(operations as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = Vec::from_iter(addresses.iter().map(|address| scope.spawn(|| one(address))));
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|outcome| outcome.map_err(|_| anyhow!("a client panicked"))?).collect()
    })
}
