//! Mounts listed in `/proc/self/mountinfo`; see proc_pid_mountinfo(5).

use canopy_model::Device;
use std::io;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as statx(2) returns it.
    pub id: u64,
    /// Device of its files.
    pub dev: Device,
    /// Directory of the file system that is mounted there.
    pub root: Vec<u8>,
    /// Where it is mounted, as the bytes of an absolute path.
    pub point: Vec<u8>,
    /// Type of the file system, as mount(8) calls it.
    pub file_system: String,
    /// Source of the mount, as mount(8) calls it: a device, or whatever text the file system gives.
    pub source: Vec<u8>,
    /// Whether its users and groups are mapped to others.
    pub is_mapped: bool,
    /// Options of the file system, between commas.
    pub options: String,
}

impl Mount {
    /// Returns whether the file system has this option.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|known| known == option)
    }

    /// Returns the value of an option of the file system.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Reads the mounts that this process sees. Fails if the system does not list them.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mounts(&std::fs::read("/proc/self/mountinfo")?))
}

/// Parses the lines of `/proc/self/mountinfo`. Lines of another form are left out.
pub fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    // Mount, parent, device, root, mount point, options, any number of optional fields, a hyphen,
    // type, device name, options of the file system.
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
    let dev = Device(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?));
    let root = unescape_octal(fields.next()?);
    let point = unescape_octal(fields.next()?);
    let is_mapped = fields.next()?.split(|&byte| byte == b',').any(|option| option == b"idmapped");
    fields.find(|field| *field == b"-")?;
    let text = |field| String::from_utf8_lossy(&unescape_octal(field)).into_owned();
    let file_system = text(fields.next()?);
    let source = unescape_octal(fields.next().unwrap_or_default());
    let options = text(fields.next().unwrap_or_default());
    Some(Mount { id, dev, root, point, file_system, source, is_mapped, options })
}

/// Returns what a field stands for: the kernel writes blanks, tabs, ends of lines and backslashes
/// as a backslash and three octal digits.
fn unescape_octal(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(field[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_become_mounts() {
        let text = b"22 1 0:20 / /proc rw - proc proc rw\n\
            30 1 8:1 / /data/nfs\\040share\\134\\011 rw shared:1 master:2 - nfs4 h:/x rw\n\
            31 1 0:x / /wrong rw - ext4 /dev/sda rw\n\
            32 1 0:31 / /cut\n";
        let mount = |id, dev, point: &[u8], file_system: &str, source: &[u8]| Mount {
            id,
            dev,
            root: b"/".to_vec(),
            point: point.to_vec(),
            file_system: file_system.to_owned(),
            source: source.to_owned(),
            is_mapped: false,
            options: "rw".to_owned(),
        };
        let expected = [
            mount(22, Device(rustix::fs::makedev(0, 20)), b"/proc", "proc", b"proc"),
            mount(30, Device(rustix::fs::makedev(8, 1)), b"/data/nfs share\\\t", "nfs4", b"h:/x"),
        ];
        assert_eq!(parse_mounts(text), expected);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounts().unwrap().iter().any(|mount| mount.point == b"/"));
    }
}
