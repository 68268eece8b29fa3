//! Access control lists as text, in the words of setfacl:
//! `u::rw-,u:65533:r--,g::r--,m::rw-,o::---`.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use rustix::fs::XattrFlags;

/// The version in front of the entries.
const VERSION: u32 = 2;

/// Id in entries without a user or group.
const NOBODY: u32 = u32::MAX;

/// `setacl PATH KIND ACL`, `getacl PATH KIND`, where the kind is `access` or `default`.
pub const CALLS: Calls = &[("setacl", set), ("getacl", get)];

fn name_of(kind: &str) -> String {
    format!("system.posix_acl_{kind}")
}

fn set(_: &mut Worker, words: &mut Words) -> Answer {
    let (path, name) = (words.path()?, name_of(words.word()?));
    let acl = words.word()?;
    let value = encode(acl).ok_or_else(|| Refusal::broken(format!("{acl} is not an ACL")))?;
    done(rustix::fs::setxattr(path, name, &value, XattrFlags::empty()))
}

fn get(_: &mut Worker, words: &mut Words) -> Answer {
    let (path, name) = (words.path()?, name_of(words.word()?));
    let mut value = [0; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value)?;
    decode(&value[..length]).ok_or_else(|| Refusal::broken("the kernel's ACL makes no sense"))
}

/// Writes an ACL as the kernel takes it, in the order of the text.
fn encode(text: &str) -> Option<Vec<u8>> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in text.split(',') {
        let (tag, entry) = entry.split_once(':')?;
        let (id, permissions) = entry.split_once(':')?;
        let tag: u16 = match (tag, id) {
            ("u", "") => 0x01,
            ("u", _) => 0x02,
            ("g", "") => 0x04,
            ("g", _) => 0x08,
            ("m", "") => 0x10,
            ("o", "") => 0x20,
            _ => return None,
        };
        let id = if id.is_empty() { NOBODY } else { id.parse().ok()? };
        let bits = permissions.chars().zip([4_u16, 2, 1]);
        let bits: u16 = bits.filter(|(letter, _)| *letter != '-').map(|(_, bit)| bit).sum();
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

fn decode(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_at_checked(4)?;
    if version != VERSION.to_le_bytes() || entries.len() % 8 != 0 {
        return None;
    }
    let entries = entries.chunks_exact(8).map(|entry| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let bits = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let letter = |bit, letter| if bits & bit == 0 { '-' } else { letter };
        let (tag, id) = match tag {
            0x01 => ("u", String::new()),
            0x02 => ("u", id.to_string()),
            0x04 => ("g", String::new()),
            0x08 => ("g", id.to_string()),
            0x10 => ("m", String::new()),
            0x20 => ("o", String::new()),
            _ => return None,
        };
        Some(format!("{tag}:{id}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')))
    });
    Some(entries.collect::<Option<Vec<_>>>()?.join(","))
}
