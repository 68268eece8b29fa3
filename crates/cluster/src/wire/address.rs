//! Addresses of servers.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens: `HOST:PORT`, or `unix:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A port of a machine, by its name or number.
    Tcp {
        /// Name or number of the machine; that of IPv6 is without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket in a directory.
    Unix(PathBuf),
}

impl Address {
    /// Returns the number of the machine, if the address has one instead of a name. An IPv4 address
    /// in the form of IPv6 is returned as IPv4.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Tcp { host, .. } => host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()),
            Address::Unix(_) => None,
        }
    }

    /// Returns whether only this machine has the address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp { host, .. } if host == "localhost" => true,
            Address::Tcp { .. } => self.ip().is_some_and(|ip| ip.is_loopback()),
            Address::Unix(_) => true,
        }
    }
}

/// A string is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address: expected HOST:PORT, [IPV6]:PORT or unix:/PATH")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Path::new(path);
            return match path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0) {
                true => Ok(Address::Unix(path.to_owned())),
                false => Err(error()),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number).ok_or_else(error)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_right = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        let host = bracketed.unwrap_or(host).to_owned();
        if is_right { Ok(Address::Tcp { host, port }) } else { Err(error()) }
    }
}

/// Returns whether a string can be the name of a machine, or its IPv4 address.
fn is_name(host: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.len() <= 253 && host.bytes().all(is_right)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["10.1.0.5:7040", "[::1]:7040", "n17.example:1", "unix:/run/canopy.sock"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let wrong = [
            "",
            ":",
            "host",
            "host:",
            ":7040",
            "host:65536",
            "host:+1",
            "::1:7040",
            "[::1]7040",
            "[host]:1",
            "a b:1",
            "unix:",
            "unix:relative",
            "unix:/a\0b",
            "http://host:1",
        ];
        for text in wrong {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_in_the_form_of_ipv6_is_ipv4() {
        let address: Address = "[::ffff:127.0.0.1]:7040".parse().unwrap();
        assert_eq!(address.ip(), Some([127, 0, 0, 1].into()));
        assert_eq!("localhost:1".parse::<Address>().unwrap().ip(), None);
    }
}
