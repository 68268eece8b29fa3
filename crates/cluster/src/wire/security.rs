//! Requirements for the other end, and the streams that fulfil them.

use crate::wire::address::Address;
use crate::wire::loopback::uid_of_other_end;
use crate::wire::peer::Peer;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
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

/// A connection whose other end is known.
pub(crate) struct Secured {
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
    /// The certificate of the other end, if it has one, and the function that decides about it.
    pub(crate) certificate: Option<(CertificateDer<'static>, Identify)>,
}

impl Secured {
    /// Decides again about the certificate, which may have expired or been revoked. Returns the
    /// reason if it, or another holder than before, is found.
    pub(crate) fn check(
        peer: &Peer,
        certificate: &Option<(CertificateDer<'static>, Identify)>,
    ) -> Result<(), String> {
        let Some((certificate, identify)) = certificate else { return Ok(()) };
        match identify(certificate)? == *peer {
            true => Ok(()),
            false => Err("the certificate has another holder now".into()),
        }
    }
}

/// A stream to the other end.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a stream cannot be used.
pub(crate) enum Unfit {
    /// The other end is not accepted. It can be told so, if there is a stream.
    Denied(String, Option<Stream>),
    /// The stream broke.
    Io(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidMessage(_)) => Unfit::denied(
                "one side uses TLS and the other does not, or another program listens there: a client gives a \
                 certificate (--certificate FILE or CANOPY_CERTIFICATE=FILE) exactly where the servers have \
                 one",
            ),
            Some(inner) => Unfit::denied(in_words(inner)),
            None => Unfit::Io(error),
        }
    }
}

/// Returns the error of a handshake in words of certificates.
fn in_words(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Fault, Error};
    let words = match error {
        Error::AlertReceived(Alert::CertificateRevoked) => {
            "the certificate of this side was revoked"
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "the certificate of this side has expired, or is not valid yet: renew it, or set the clock"
        }
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "the certificate of this side is of another cluster, or its key was retired: name one of this \
             cluster, or renew it"
        }
        Error::InvalidCertificate(Fault::Revoked) => {
            "the certificate of the other side was revoked"
        }
        Error::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. }) => {
            "the certificate of the other side has expired"
        }
        Error::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. }) => {
            "the certificate of the other side is not valid yet: is a clock wrong?"
        }
        Error::InvalidCertificate(Fault::UnknownIssuer | Fault::BadSignature) => {
            "the certificate of the other side is of another cluster than that of this side, or of a newer \
             key: name one of its cluster, or renew the one of this side"
        }
        other => return other.to_string(),
    };
    words.to_owned()
}

impl Unfit {
    fn denied(reason: impl Into<String>) -> Self {
        Unfit::Denied(reason.into(), None)
    }
}

/// Has small frames sent at once. The kernel finds out that the other machine has gone in some 4 s if
/// nothing is sent.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Finds out whose certificate the other end has.
fn identified(stream: TlsStream<TcpStream>, identify: &Identify) -> Result<Secured, Unfit> {
    let certificates = stream.get_ref().1.peer_certificates();
    let leaf = certificates.and_then(|certificates| certificates.first());
    let leaf = leaf.map(|leaf| leaf.clone().into_owned());
    let stream = Stream::Tls(Box::new(stream));
    let Some(leaf) = leaf else {
        return Err(Unfit::Denied("a certificate is required".into(), Some(stream)));
    };
    match identify(&leaf) {
        Ok(peer) => Ok(Secured { stream, peer, certificate: Some((leaf, identify.clone())) }),
        Err(reason) => Err(Unfit::Denied(reason, Some(stream))),
    }
}

/// Origin of a connection, known before anything is read from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A user of this machine.
    Local(u32),
    /// A machine; with IPv6 all that share 64 bits.
    Remote(IpAddr),
    /// A process of this machine whose user the kernel does not report, and why.
    Unknown(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Local(uid) => write!(f, "user {uid} of this machine"),
            Origin::Remote(ip) => ip.fmt(f),
            Origin::Unknown(_) => f.write_str("a process of this machine"),
        }
    }
}

impl ServerSecurity {
    /// Returns the origin of a connection that was just accepted.
    pub(crate) fn origin(&self, stream: &Accepted) -> io::Result<Origin> {
        let stream = match stream {
            Accepted::Unix(stream) => return Ok(Origin::Local(stream.peer_cred()?.uid())),
            Accepted::Tcp(stream) => stream,
        };
        let (ours, theirs) = (stream.local_addr()?, stream.peer_addr()?);
        if self.tls.is_none() {
            return Ok(match uid_of_other_end(ours, theirs) {
                Ok(uid) => Origin::Local(uid),
                Err(error) => Origin::Unknown(format!("the user is not known: {error}")),
            });
        }
        Ok(Origin::Remote(match theirs.ip() {
            IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => {
                Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()
            }
            ip => ip.to_canonical(),
        }))
    }

    /// Secures an accepted connection, and returns the client as well.
    pub(crate) async fn secure(&self, stream: Accepted, origin: &Origin) -> Result<Secured, Unfit> {
        let local =
            |stream, uid| Ok(Secured { stream, peer: Peer::Local { uid }, certificate: None });
        let stream = match (stream, &self.tls, origin) {
            (Accepted::Unix(stream), _, Origin::Local(uid)) => {
                return local(Stream::Unix(stream), *uid);
            }
            (Accepted::Tcp(stream), None, Origin::Local(uid)) => {
                set_socket_options(&stream)?;
                return local(Stream::Tcp(stream), *uid);
            }
            (Accepted::Tcp(stream), Some(tls), Origin::Remote(_)) => {
                set_socket_options(&stream)?;
                TlsAcceptor::from(tls.config.clone()).accept(stream).await?
            }
            (Accepted::Tcp(stream), _, Origin::Unknown(reason)) => {
                return Err(Unfit::Denied(reason.clone(), Some(Stream::Tcp(stream))));
            }
            _ => return Err(Unfit::denied("the origin is not known")),
        };
        let stream = TlsStream::Server(stream);
        let Some(tls) = &self.tls else { return Err(Unfit::denied("TLS is off")) };
        identified(stream, &tls.identify)
    }
}

impl ClientSecurity {
    /// Connects to a server.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Secured, Unfit> {
        let (host, port) = match address {
            Address::Tcp { host, port } => (host, *port),
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                let uid = stream.peer_cred()?.uid();
                self.trust(uid)?;
                let peer = Peer::Local { uid };
                return Ok(Secured { stream: Stream::Unix(stream), peer, certificate: None });
            }
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        set_socket_options(&stream)?;
        let Some(tls) = &self.tls else {
            if !stream.peer_addr()?.ip().to_canonical().is_loopback() {
                return Err(Unfit::denied(
                    "servers on other machines require a certificate (--certificate FILE)",
                ));
            }
            // Its owner can be found out once the server has accepted it.
            let peer = Peer::Local { uid: 0 };
            return Ok(Secured { stream: Stream::Tcp(stream), peer, certificate: None });
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Unfit::denied(format!("{host} cannot be in a certificate")))?;
        let stream = TlsConnector::from(tls.config.clone()).connect(name, stream).await?;
        let stream = TlsStream::Client(stream);
        let secured = identified(stream, &tls.identify)?;
        match &secured.peer {
            Peer::Server { .. } => Ok(secured),
            other => {
                Err(Unfit::denied(format!("it has the certificate of {other}, not a server's")))
            }
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
                Err(Unfit::denied(format!("user {uid}, who is not trusted, runs the server")))
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
