//! The address at which others find a process: before the process joins, it is checked that the address
//! leads here. Otherwise the process would get servers that nobody can reach.
//!
//! For a moment, this program listens where the process will, connects to the address and sends a random
//! word. The word has to arrive at the own socket. Encryption does not matter to that.

use anyhow::{Context, bail};
use canopy_cluster::wire::Address;
use std::io::Write;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time for the connection and the word.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two looks at sockets.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A random word.
pub type Word = [u8; 8];

/// Returns the address at which others find this process.
///
/// # Errors
///
/// Fails if it cannot be an address of this process.
pub fn parse(address: &str) -> anyhow::Result<Address> {
    let parsed = address.parse::<Address>().with_context(|| format!("--advertise {address}"))?;
    if is_unspecified(&parsed) || matches!(parsed, Address::Tcp { port: 0, .. }) {
        bail!("--advertise {address}: others must reach this machine by it, such as n17:7040");
    }
    Ok(parsed)
}

/// Returns whether an address stands for all of a machine's.
pub fn is_unspecified(address: &Address) -> bool {
    address.ip().is_some_and(|ip| ip.is_unspecified())
}

/// Checks that an address leads to a process that listens at others, by a random word.
///
/// # Errors
///
/// Fails if it does not, or if the system chooses the port to listen at.
pub fn check(advertise: &Address, listen: &[Address], word: Word) -> anyhow::Result<()> {
    if listen.contains(advertise) {
        return Ok(());
    }
    let Address::Tcp { port: to, .. } = advertise else {
        bail!(
            "--advertise {advertise}: this process does not listen there: add --listen {advertise}"
        );
    };
    let mut sockets = Vec::new();
    for address in listen {
        match address {
            Address::Tcp { port: 0, .. } => bail!(
                "--listen {address}: with --advertise, others need a port that stays: name one, such as \
                 {to}"
            ),
            // Where it cannot listen, the process says so when it starts.
            Address::Tcp { .. } => sockets.extend(TcpListener::bind(address.to_string()).ok()),
            // A program between may pass on to it whatever it likes.
            Address::Unix(_) => return Ok(()),
        }
    }
    if sockets.is_empty() {
        return Ok(());
    }
    let listened = Vec::from_iter(listen.iter().map(Address::to_string)).join(" and ");
    arrives(advertise, &sockets, word).with_context(|| {
        format!(
            "--advertise {advertise}: it does not lead to this process, which listens at {listened}, so \
             others could not reach its servers"
        )
    })
}

/// Sends a word to an address, and fails unless it arrives at one of the sockets.
fn arrives(advertise: &Address, sockets: &[TcpListener], word: Word) -> anyhow::Result<()> {
    let mut failed = None;
    for address in advertise.to_string().to_socket_addrs()? {
        let sent = TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
            stream.write_all(&word)?;
            Ok(stream)
        });
        match sent {
            // The connection stays open until the word has arrived.
            Ok(_stream) if has_arrived(sockets, word)? => return Ok(()),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => bail!("another program answers there"),
    }
}

/// Waits for a word at sockets, to which others may connect, too.
fn has_arrived(sockets: &[TcpListener], word: Word) -> anyhow::Result<bool> {
    let begun = Instant::now();
    let mut accepted = Vec::new();
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
    while begun.elapsed() < PATIENCE {
        for socket in sockets {
            while let Ok((stream, _)) = socket.accept() {
                stream.set_nonblocking(true)?;
                accepted.push(stream);
            }
        }
        let is_it = |stream: &TcpStream| {
            let mut found = Word::default();
            stream.peek(&mut found).is_ok_and(|length| length == word.len()) && found == word
        };
        if accepted.iter().any(is_it) {
            return Ok(true);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}
