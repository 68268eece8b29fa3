//! Requirements for the other end, and the streams that fulfil them.

use crate::wire::address::Address;
use crate::wire::loopback::uid_of_other_end;
use crate::wire::peer::Peer;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// Function that decides who the holder of a certificate is, after its chain was verified: from the
/// certificate (DER) to the peer, or to the reason why it is not accepted.
pub type Identify = Arc<dyn Fn(&CertificateDer<'_>) -> Result<Peer, String> + Send + Sync>;

/// TLS of one side.
#[derive(Clone)]
pub struct Tls<C> {
    /// Keys, and the verification of the other end's chain of certificates. A server's must demand
    /// a certificate; a connection without one is refused.
    pub config: Arc<C>,
    /// Decides about the certificate of each connection.
    pub identify: Identify,
}

/// Requirements of a server for its clients. Sockets in directories are always for local users.
#[derive(Clone, Default)]
pub struct ServerSecurity {
    /// TLS on all TCP ports. Without it, only loopback addresses are possible.
    pub tls: Option<Tls<ServerConfig>>,
}

/// Requirements of a client for its servers.
#[derive(Clone, Default)]
pub struct ClientSecurity {
    /// TLS to all TCP ports; `identify` must find a [`Peer::Server`]. Without it, only loopback
    /// addresses are possible.
    pub tls: Option<Tls<ClientConfig>>,
    /// Users whose processes are accepted as servers where TLS is not used. Without it, all are:
    /// any user can then take the place of a server that does not run.
    pub trusted_uids: Option<Vec<u32>>,
}

/// An accepted connection, before TLS.
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A stream to the other end.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An error of a stream that another attempt will meet again.
pub(crate) enum Unfit {
    /// The other end is not accepted.
    Denied(String),
    /// The stream broke.
    Io(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Unfit::Io(error)
    }
}

/// Lets the kernel find out that the other machine has gone: in some 4 s if nothing is sent.
fn watch(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

fn leaf<'a>(certificates: Option<&'a [CertificateDer<'a>]>) -> Result<&'a CertificateDer<'a>, Unfit> {
    let first = certificates.and_then(|certificates| certificates.first());
    first.ok_or_else(|| Unfit::Denied("a certificate is required".into()))
}

/// Origin of a connection, known before anything is read from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A user of this machine.
    Local(u32),
    /// A machine; with IPv6 all that share 64 bits.
    Remote(IpAddr),
}

impl ServerSecurity {
    /// Returns the origin of a connection that was just accepted.
    pub(crate) fn origin(&self, stream: &Accepted) -> io::Result<Origin> {
        match stream {
            Accepted::Unix(stream) => Ok(Origin::Local(stream.peer_cred()?.uid())),
            Accepted::Tcp(stream) if self.tls.is_none() => {
                uid_of_other_end(stream.local_addr()?, stream.peer_addr()?).map(Origin::Local)
            }
            Accepted::Tcp(stream) => Ok(Origin::Remote(match stream.peer_addr()?.ip() {
                IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => {
                    Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()
                }
                ip => ip.to_canonical(),
            })),
        }
    }

    /// Secures an accepted connection, and returns the client as well.
    pub(crate) async fn secure(
        &self,
        stream: Accepted,
        origin: &Origin,
    ) -> Result<(Stream, Peer), Unfit> {
        let stream = match (stream, &self.tls, origin) {
            (Accepted::Unix(stream), _, Origin::Local(uid)) => {
                return Ok((Stream::Unix(stream), Peer::Local { uid: *uid }));
            }
            (Accepted::Tcp(stream), None, Origin::Local(uid)) => {
                watch(&stream)?;
                return Ok((Stream::Tcp(stream), Peer::Local { uid: *uid }));
            }
            (Accepted::Tcp(stream), Some(tls), Origin::Remote(_)) => {
                watch(&stream)?;
                TlsAcceptor::from(tls.config.clone()).accept(stream).await?
            }
            _ => return Err(Unfit::Denied("the origin is not known".into())),
        };
        let stream = TlsStream::Server(stream);
        let Some(tls) = &self.tls else { return Err(Unfit::Denied("TLS is off".into())) };
        let peer = (tls.identify)(leaf(stream.get_ref().1.peer_certificates())?);
        Ok((Stream::Tls(Box::new(stream)), peer.map_err(Unfit::Denied)?))
    }
}

impl ClientSecurity {
    /// Connects to a server.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Stream, Unfit> {
        let (host, port) = match address {
            Address::Tcp { host, port } => (host, *port),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                self.trust(stream.peer_cred()?.uid())?;
                return Ok(Stream::Unix(stream));
            }
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        watch(&stream)?;
        let Some(tls) = &self.tls else {
            if !stream.peer_addr()?.ip().to_canonical().is_loopback() {
                return Err(Unfit::Denied(
                    "a certificate is required for servers on other machines".into(),
                ));
            }
            return Ok(Stream::Tcp(stream));
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Unfit::Denied(format!("{host} cannot be in a certificate")))?;
        let stream = TlsConnector::from(tls.config.clone()).connect(name, stream).await?;
        let stream = TlsStream::Client(stream);
        let peer = (tls.identify)(leaf(stream.get_ref().1.peer_certificates())?);
        match peer.map_err(Unfit::Denied)? {
            Peer::Server { .. } => Ok(Stream::Tls(Box::new(stream))),
            other => Err(Unfit::Denied(format!("it has the certificate of {other}, not a server's"))),
        }
    }

    /// Checks the user of a local server, once it has accepted the connection.
    pub(crate) fn check_accepted(&self, stream: &Stream) -> Result<(), Unfit> {
        let (Stream::Tcp(stream), Some(_)) = (stream, &self.trusted_uids) else { return Ok(()) };
        self.trust(uid_of_other_end(stream.local_addr()?, stream.peer_addr()?)?)
    }

    fn trust(&self, uid: u32) -> Result<(), Unfit> {
        match &self.trusted_uids {
            Some(trusted) if !trusted.contains(&uid) => {
                Err(Unfit::Denied(format!("user {uid}, who is not trusted, runs the server")))
            }
            _ => Ok(()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
