//! Names in certificates: the one place that writes and reads them.
//!
//! A certificate has one name, a URI in its extension of alternative names:
//!
//! ```text
//! canopy://CLUSTER/server             a server; it may act as any server of the cluster
//! canopy://CLUSTER/node/NAME          a machine, for all its users but root
//! canopy://CLUSTER/root-node/NAME     a machine, also for root
//! canopy://CLUSTER/user/UID           one user
//! ```
//!
//! A name is read, written again and compared with the bytes that were read. So there is one spelling
//! of each: no percent signs, no upper case, no query, no zeros before a number. A certificate with
//! a second name of any kind is refused, so that no other program can see another name in it.

use super::der::Fields;
use super::error::{CertificateError, Refusal};
use crate::tables::newest;
use canopy_store::TableId;
use canopy_store::storage::Storage;
use std::fmt;

/// The scheme of names.
const SCHEME: &str = "canopy://";

/// Bytes of the longest name of a node.
const NODE_BYTES_MAX: usize = 64;

/// Bytes of serial numbers. The first is from 0x40 to 0x7f, so that each has one encoding.
const SERIAL_BYTES: usize = 16;

/// Identifies a cluster: the id of the first table that it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(TableId);

impl ClusterId {
    /// Returns the id of the cluster in a storage.
    ///
    /// # Errors
    ///
    /// Fails with `Cluster` if there is none or its list of tables is damaged, and as storage does.
    pub fn of(storage: &dyn Storage) -> Result<Self, CertificateError> {
        let tables = match newest(storage, 1) {
            Ok(list) => list.tables,
            Err(error) => return Err(CertificateError::Cluster(error.to_string())),
        };
        let first = tables.first().copied().map(ClusterId);
        first.ok_or_else(|| CertificateError::Cluster("the cluster has no tables".into()))
    }

    /// Returns the id that 32 hexadecimal digits in lower case stand for.
    pub fn parse(text: &str) -> Option<Self> {
        let id = ClusterId(TableId::parse(text)?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A server of the cluster.
    Server,
    /// A machine that speaks for its users.
    Node {
        /// Name of the machine.
        name: NodeName,
        /// Whether it also speaks for root.
        is_root: bool,
    },
    /// A user.
    User {
        /// The user's number: never root's.
        uid: u32,
    },
}

impl Identity {
    /// Returns the identity of a user.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` for root, for whom only nodes speak, and for the number that stands for
    /// nobody at all.
    pub fn user(uid: u32) -> Result<Self, CertificateError> {
        match uid {
            0 => Err(CertificateError::Invalid(
                "root has no certificate: make one for the machine, with --node NAME --root".into(),
            )),
            u32::MAX => Err(CertificateError::Invalid(format!("{uid} is not a user"))),
            uid => Ok(Identity::User { uid }),
        }
    }

    /// Writes the name in a certificate of a cluster.
    pub fn uri(&self, cluster: ClusterId) -> String {
        match self {
            Identity::Server => format!("{SCHEME}{cluster}/server"),
            Identity::Node { name, is_root: false } => format!("{SCHEME}{cluster}/node/{name}"),
            Identity::Node { name, is_root: true } => format!("{SCHEME}{cluster}/root-node/{name}"),
            Identity::User { uid } => format!("{SCHEME}{cluster}/user/{uid}"),
        }
    }

    /// Reads a name as `uri` writes it, and nothing else.
    pub fn parse(uri: &str) -> Option<(ClusterId, Self)> {
        let (cluster, holder) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        let cluster = ClusterId::parse(cluster)?;
        let identity = match holder.split_once('/') {
            None if holder == "server" => Identity::Server,
            Some(("node", name)) => Identity::Node { name: NodeName::parse(name)?, is_root: false },
            Some(("root-node", name)) => {
                Identity::Node { name: NodeName::parse(name)?, is_root: true }
            }
            Some(("user", uid)) => Identity::user(uid.parse().ok()?).ok()?,
            _ => return None,
        };
        (identity.uri(cluster) == uri).then_some((cluster, identity))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Server => write!(formatter, "server"),
            Identity::Node { name, is_root: false } => write!(formatter, "node {name}"),
            Identity::Node { name, is_root: true } => write!(formatter, "node {name} with root"),
            Identity::User { uid } => write!(formatter, "user {uid}"),
        }
    }
}

/// Name of a machine: lower case letters, digits, `.`, `-` and `_`, beginning with one of the first
/// two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName(String);

impl NodeName {
    /// Returns a name, if it is one.
    pub fn parse(name: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = (1..=NODE_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| is_plain(byte) || b".-_".contains(&byte))
            && name.bytes().next().is_some_and(is_plain);
        is_name.then(|| NodeName(name.to_owned()))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Serial number of a certificate: random, so that none is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial([u8; SERIAL_BYTES]);

impl Serial {
    /// Returns a serial number that no other certificate has.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes.
    pub(super) fn random() -> Result<Self, CertificateError> {
        let mut bytes = [0; SERIAL_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| CertificateError::Failed {
            task: "get random bytes",
            what: error.to_string(),
        })?;
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Ok(Serial(bytes))
    }

    /// Returns the number that 32 hexadecimal digits in lower case stand for.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; SERIAL_BYTES];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Serial::from_bytes(&bytes).filter(|serial| serial.to_string() == text)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; SERIAL_BYTES] = bytes.try_into().ok()?;
        (0x40..0x80).contains(&bytes[0]).then_some(Serial(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex::encode(self.0))
    }
}

/// Contents of a certificate that concern the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The holder.
    pub identity: Identity,
    /// Its serial number.
    pub serial: Serial,
    /// The end of its validity, in seconds since 1970.
    pub not_after_s: i64,
}

/// Reads a certificate, in DER. Its signature is not checked: the caller does that
/// ([`Trust`](super::Trust) in a handshake).
///
/// # Errors
///
/// Fails with `Refused` unless a cluster makes certificates like this one.
pub fn identify(leaf: &[u8]) -> Result<Certified, CertificateError> {
    let fields = Fields::read(leaf).ok_or(Refusal::Encoding)?;
    let uri = fields.only_uri().ok_or(Refusal::Name)?;
    let (cluster, identity) = Identity::parse(&uri).ok_or(Refusal::Name)?;
    let serial = Serial::from_bytes(&fields.serial).ok_or(Refusal::Serial)?;
    let not_after_s = fields.not_after_s;
    Ok(Certified { cluster, identity, serial, not_after_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "4f0c6ab1f3a1de0b5f7d4ca3e5a1b2c3";

    #[test]
    fn names_are_read_as_they_are_written() {
        for holder in ["server", "node/n17", "root-node/n17.example.org", "user/1000", "node/0_-."]
        {
            let uri = format!("{SCHEME}{CLUSTER}/{holder}");
            let (cluster, identity) = Identity::parse(&uri).unwrap();
            assert_eq!(identity.uri(cluster), uri);
        }
    }

    #[test]
    fn each_name_has_one_spelling() {
        let long = format!("node/{}", "n".repeat(NODE_BYTES_MAX + 1));
        for holder in [
            "",
            "/",
            "server/",
            "Server",
            "server?",
            "server#",
            "server/n",
            "serve%72",
            "node",
            "node/",
            "node/N17",
            "node/n17/",
            "node/n17?root",
            "node/n17#",
            "node/n17%00",
            "node/../server",
            "node/.",
            "node/-n",
            "node/n 17",
            "node//n17",
            "node/n17/root",
            "node/n17\0",
            "node/ñ",
            "root-node",
            "root-node/",
            "rootnode/n17",
            "user/0",
            "user/",
            "user/+1",
            "user/01",
            "user/-1",
            "user/ 1",
            "user/1 ",
            "user/4294967295",
            "user/4294967296",
            "user/ada",
            "user/0x1",
            "user/1/2",
            "user/1?uid=0",
            "users/1",
            &long,
        ] {
            let uri = format!("{SCHEME}{CLUSTER}/{holder}");
            assert_eq!(Identity::parse(&uri), None, "{uri:?}");
        }
        let upper = CLUSTER.to_uppercase();
        for uri in [
            format!("CANOPY://{CLUSTER}/server"),
            format!("canopy:/{CLUSTER}/server"),
            format!("canopy://{upper}/server"),
            format!("canopy://{CLUSTER}:1/server"),
            format!("canopy://a@{CLUSTER}/server"),
            format!("canopy://{}/server", &CLUSTER[1..]),
            format!("canopy:///{CLUSTER}/server"),
            format!(" canopy://{CLUSTER}/server"),
            format!("canopy://{CLUSTER}/server\n"),
            format!("https://{CLUSTER}/server"),
        ] {
            assert_eq!(Identity::parse(&uri), None, "{uri:?}");
        }
    }

    #[test]
    fn certificates_are_for_users_who_exist_and_are_not_root() {
        assert!(Identity::user(1000).is_ok());
        assert!(Identity::user(0).is_err() && Identity::user(u32::MAX).is_err());
    }

    #[test]
    fn serial_numbers_have_one_spelling() {
        let serial = Serial::random().unwrap();
        let text = serial.to_string();
        assert_eq!(Serial::parse(&text), Some(serial));
        for text in [&text.to_uppercase().replace('4', "A")[..], &text[1..], "", &"0".repeat(32)] {
            assert_eq!(Serial::parse(text), None, "{text}");
        }
    }

    #[test]
    fn random_bytes_are_not_certificates() {
        let mut bytes = Vec::new();
        for seed in 0..2000u64 {
            let hash = xxhash_rust::xxh3::xxh3_64(&seed.to_le_bytes()).to_le_bytes();
            bytes.extend(hash);
            assert!(identify(&bytes[bytes.len().saturating_sub(300)..]).is_err());
        }
    }
}
