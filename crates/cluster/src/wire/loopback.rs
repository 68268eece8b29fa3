//! The user at the other end of a TCP connection over loopback, as the kernel reports it
//! (`sock_diag(7)`): the owner of the socket with the two addresses exchanged.
//!
//! Addresses can be used again, so an answer could be about a later connection with the same ones.
//! And a socket that was closed has no owner: the kernel reports uid 0 for it. Hence these rules:
//!
//! - Both addresses are loopback, and so in the network namespace of this process. A connection
//!   that a rule of the firewall redirected has another address at one end.
//! - The other socket must be established, and a file must refer to it.
//! - Then our own socket must still be established. Two connections with the same addresses cannot
//!   both be, so the answer was about the other end of ours.

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, SocketAddr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
/// Bytes of `nlmsghdr`.
const HEAD: usize = 16;
/// Bytes of `inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Bytes of `inet_diag_msg`.
const MESSAGE: usize = 72;
/// Places in `inet_diag_msg`.
const STATE_AT: usize = 1;
const ADDRESSES_AT: usize = 4;
const UID_AT: usize = 64;
const INODE_AT: usize = 68;

/// Returns the user whose socket is the other end of an accepted connection over loopback.
///
/// # Errors
///
/// If one of the addresses is not loopback, or one end is closed: its user is not known.
pub(crate) fn uid_of_other_end(ours: SocketAddr, theirs: SocketAddr) -> io::Result<u32> {
    let (ours, theirs) = (canonical(ours), canonical(theirs));
    if !ours.ip().is_loopback() || !theirs.ip().is_loopback() {
        return Err(io::Error::other("the connection is not over loopback"));
    }
    let other = find(theirs, ours)?;
    if !other.is_established || other.inode == 0 {
        return Err(io::Error::other("the other end has closed the connection"));
    }
    match find(ours, theirs)?.is_established {
        true => Ok(other.uid),
        false => Err(io::Error::other("the connection is closed")),
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A socket, as the kernel describes it.
struct Socket {
    is_established: bool,
    uid: u32,
    inode: u32,
}

/// Ports and addresses as `inet_diag_sockid` has them.
fn addresses(local: SocketAddr, remote: SocketAddr) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[..2].copy_from_slice(&local.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (ip, at) in [(local.ip(), 4), (remote.ip(), 20)] {
        match ip {
            IpAddr::V4(ip) => bytes[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    bytes
}

/// Finds the socket with exactly these addresses.
fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Socket> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let asked = addresses(local, remote);
    rustix::net::sendto(
        &socket,
        &request(local.is_ipv4(), &asked),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    // The kernel answers within the call that asks, so this never waits for long.
    let mut answer = [0; 1024];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    decode(&answer[..length.min(1024)], &asked)
}

fn request(is_ipv4: bool, addresses: &[u8; 36]) -> [u8; HEAD + REQUEST] {
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = [0; HEAD + REQUEST];
    bytes[..4].copy_from_slice(&((HEAD + REQUEST) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    bytes[HEAD] = family.as_raw() as u8;
    bytes[HEAD + 1] = TCP;
    // All states; then the addresses, any interface, and no cookie.
    bytes[HEAD + 4..HEAD + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
    bytes[HEAD + 8..HEAD + 44].copy_from_slice(addresses);
    bytes[HEAD + 48..].copy_from_slice(&[0xff; 8]);
    bytes
}

fn decode(answer: &[u8], asked: &[u8; 36]) -> io::Result<Socket> {
    let short = || io::Error::other("the kernel's answer about a socket is too short");
    let u16_at = |at| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    match u16_at(4).ok_or_else(short)? {
        SOCK_DIAG_BY_FAMILY => {}
        NLMSG_ERROR => {
            let error = u32_at(HEAD).ok_or_else(short)?;
            return Err(io::Error::from_raw_os_error((error as i32).wrapping_neg()));
        }
        _ => {
            return Err(io::Error::other("the kernel's answer about a socket is of no known kind"));
        }
    }
    let message = answer.get(HEAD..HEAD + MESSAGE).ok_or_else(short)?;
    // The kernel finds a listening socket if no connection has these addresses.
    if !is_asked(&message[ADDRESSES_AT..ADDRESSES_AT + 36], asked) {
        return Err(io::Error::other("the kernel does not know the connection"));
    }
    Ok(Socket {
        is_established: message[STATE_AT] == TCP_ESTABLISHED,
        uid: u32_at(HEAD + UID_AT).ok_or_else(short)?,
        inode: u32_at(HEAD + INODE_AT).ok_or_else(short)?,
    })
}

/// Returns whether ports and addresses are the right ones. A socket of IPv6 can have a connection
/// of IPv4; its addresses then begin with `::ffff`.
fn is_asked(found: &[u8], asked: &[u8; 36]) -> bool {
    let is_mapped =
        |at: usize| found[at..at + 10] == [0; 10] && found[at + 10..at + 12] == [0xff; 2];
    let mut found_as_ipv4 = [0; 36];
    found_as_ipv4[..4].copy_from_slice(&found[..4]);
    found_as_ipv4[4..8].copy_from_slice(&found[16..20]);
    found_as_ipv4[20..24].copy_from_slice(&found[32..36]);
    found == asked || (is_mapped(4) && is_mapped(20) && found_as_ipv4 == *asked)
}

#[cfg(test)]
mod tests {
    use super::uid_of_other_end;
    use std::net::{TcpListener, TcpStream};

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn the_kernel_knows_the_user_of_a_connection() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0", "127.8.9.10:0"] {
            let (server, _client) = pair(address);
            let addresses = (server.local_addr().unwrap(), server.peer_addr().unwrap());
            let uid = uid_of_other_end(addresses.0, addresses.1).unwrap();
            assert_eq!(uid, rustix::process::geteuid().as_raw(), "{address}");
        }
    }

    #[test]
    fn a_closed_connection_has_no_user() {
        let (server, client) = pair("127.0.0.1:0");
        let addresses = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        drop(client);
        assert!(uid_of_other_end(addresses.0, addresses.1).is_err());
        drop(server);
        assert!(uid_of_other_end(addresses.0, addresses.1).is_err());
    }

    #[test]
    fn a_connection_that_is_not_accepted_yet_has_no_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, theirs) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        assert!(uid_of_other_end(ours, theirs).is_err());
    }

    #[test]
    fn unknown_and_outer_addresses_have_no_user() {
        let loopback = "127.0.0.1:1".parse().unwrap();
        assert!(uid_of_other_end(loopback, "127.0.0.1:2".parse().unwrap()).is_err());
        assert!(uid_of_other_end(loopback, "192.0.2.1:2".parse().unwrap()).is_err());
        assert!(uid_of_other_end("192.0.2.1:2".parse().unwrap(), loopback).is_err());
    }
}
