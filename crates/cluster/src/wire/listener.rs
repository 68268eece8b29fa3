//! Listening: sockets, threads, and the end of all connections.

use crate::wire::address::Address;
use crate::wire::calls::Service;
use crate::wire::error::ListenError;
use crate::wire::limits::Limits;
use crate::wire::registry::Registry;
use crate::wire::security::{Accepted, ServerSecurity};
use crate::wire::served::{Newcomer, Shared, serve};
use crate::wire::worker::Worker;
use canopy_events::LimitedEvents;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 4_096;
/// Pause after the system could not accept a connection, as there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A server's sockets and connections. All end when it is dropped.
pub struct Listener {
    addresses: Vec<Address>,
    registry: Arc<Registry>,
    stop: watch::Sender<bool>,
    workers: Arc<Vec<Worker>>,
    /// Sockets in directories, with device and inode: removed if they are still these.
    paths: Vec<(PathBuf, (u64, u64))>,
}

/// A socket that listens.
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Listener {
    /// Starts to listen. Calls go to `service`.
    ///
    /// # Errors
    ///
    /// Fails with `Plain` if TLS is off and an address can be reached from other machines, and as
    /// the system does.
    pub fn start(
        addresses: &[Address],
        security: ServerSecurity,
        limits: Limits,
        service: Arc<dyn Service>,
    ) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for address in addresses {
            let of_address = |error| ListenError::Io { address: address.clone(), error };
            match address {
                Address::Tcp { host, port } => {
                    let found = (host.as_str(), *port).to_socket_addrs().map_err(of_address)?;
                    let found = Vec::from_iter(found);
                    if security.tls.is_none() && !found.iter().all(is_loopback) {
                        return Err(ListenError::Plain(address.clone()));
                    }
                    sockets.push((address, listen_tcp(&found).map_err(of_address)?));
                }
                Address::Unix(path) => {
                    sockets.push((address, listen_unix(path).map_err(of_address)?));
                }
            }
        }
        let (stop, is_stopping) = watch::channel(false);
        let registry = Registry::new(limits.connections, limits.silent);
        let refusals = LimitedEvents::default();
        let shared = Shared { service, security, limits, registry, refusals, is_stopping };
        Self::accept_all(sockets, Arc::new(shared), stop)
    }

    fn accept_all(
        sockets: Vec<(&Address, Socket)>,
        shared: Arc<Shared>,
        stop: watch::Sender<bool>,
    ) -> Result<Self, ListenError> {
        let mut listener = Listener {
            addresses: Vec::new(),
            registry: shared.registry.clone(),
            stop,
            workers: Arc::default(),
            paths: Vec::new(),
        };
        let mut workers = Vec::new();
        for (address, socket) in sockets {
            let of_address = |error| ListenError::Io { address: address.clone(), error };
            if workers.is_empty() {
                let threads = 0..shared.limits.threads.max(1);
                let started = threads.map(|_| Worker::start("canopy-listen"));
                workers = started.collect::<io::Result<_>>().map_err(of_address)?;
                listener.workers = Arc::new(std::mem::take(&mut workers));
            }
            let (real, identity) = identity(address, &socket).map_err(of_address)?;
            if let Address::Unix(path) = &real {
                listener.paths.extend(identity.map(|identity| (path.clone(), identity)));
            }
            listener.addresses.push(real);
            let (shared, all) = (shared.clone(), listener.workers.clone());
            listener.workers[0].spawn(accept(socket, shared, all));
        }
        Ok(listener)
    }

    /// Returns the addresses, with the ports that the system has chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the numbers of connections: those of peers, and those that have not authenticated
    /// themselves yet.
    pub fn connections(&self) -> (usize, usize) {
        self.registry.counts()
    }

    /// Stops: takes no more calls, and answers those under way for at most `grace`. Clients learn
    /// which of their calls were not taken.
    pub fn stop(self, grace: Duration) {
        self.remove_paths();
        let _ = self.stop.send(true);
        self.registry.wait_until_empty(Instant::now() + grace);
    }

    fn remove_paths(&self) {
        for (path, identity) in &self.paths {
            if identity_of(path).ok() == Some(*identity) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove_paths();
        let _ = self.stop.send(true);
        self.workers.iter().for_each(Worker::stop);
    }
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn listen_tcp(addresses: &[SocketAddr]) -> io::Result<Socket> {
    let listener = std::net::TcpListener::bind(addresses)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Tcp(listener))
}

/// Listens in a directory; takes the place of a socket that nobody listens at any more.
fn listen_unix(path: &Path) -> io::Result<Socket> {
    use std::os::unix::net::{UnixListener, UnixStream};
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(refused) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    rustix::net::listen(&listener, BACKLOG)?;
    // The kernel states each client's user, so all may connect.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
    listener.set_nonblocking(true)?;
    Ok(Socket::Unix(listener))
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Returns the address with the port that the system has chosen; device and inode of a path.
fn identity(address: &Address, socket: &Socket) -> io::Result<(Address, Option<(u64, u64)>)> {
    Ok(match (address, socket) {
        (Address::Unix(path), _) => (address.clone(), Some(identity_of(path)?)),
        (Address::Tcp { host, .. }, Socket::Tcp(socket)) => {
            let port = socket.local_addr()?.port();
            (Address::Tcp { host: host.clone(), port }, None)
        }
        (Address::Tcp { .. }, Socket::Unix(_)) => (address.clone(), None),
    })
}

/// A socket that listens, in a runtime.
enum Acceptor {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Acceptor {
    /// Accepts a connection, outside of the runtime: another thread may serve it.
    async fn accept(&self) -> io::Result<Outside> {
        Ok(match self {
            Acceptor::Tcp(listener) => Outside::Tcp(listener.accept().await?.0.into_std()?),
            Acceptor::Unix(listener) => Outside::Unix(listener.accept().await?.0.into_std()?),
        })
    }
}

enum Outside {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Outside {
    /// Moves the connection into the runtime of this thread.
    fn enter(self) -> io::Result<Accepted> {
        Ok(match self {
            Outside::Tcp(stream) => Accepted::Tcp(tokio::net::TcpStream::from_std(stream)?),
            Outside::Unix(stream) => Accepted::Unix(tokio::net::UnixStream::from_std(stream)?),
        })
    }
}

/// Accepts connections until the listener stops, and deals them to the threads.
async fn accept(socket: Socket, shared: Arc<Shared>, workers: Arc<Vec<Worker>>) {
    let acceptor = match socket {
        Socket::Tcp(listener) => tokio::net::TcpListener::from_std(listener).map(Acceptor::Tcp),
        Socket::Unix(listener) => tokio::net::UnixListener::from_std(listener).map(Acceptor::Unix),
    };
    let Ok(acceptor) = acceptor else { return };
    let mut is_stopping = shared.is_stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            _ = is_stopping.wait_for(|is_stopping| *is_stopping) => return,
        };
        let Ok(stream) = accepted else {
            shared.registry.close_silent();
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let shared = shared.clone();
        let fewest = workers.iter().min_by_key(|worker| worker.tasks());
        let Some(worker) = fewest else { return };
        worker.spawn(async move {
            let Ok(stream) = stream.enter() else { return };
            let Ok(origin) = shared.security.origin(&stream) else { return };
            let (guard, evicted) = shared.registry.add_silent(origin.clone());
            serve(shared, Newcomer { stream, origin, guard, evicted }).await;
        });
    }
}
