//! Text that `canopy watch` exchanges with the processes that carry out its verbs.
//!
//! Suspects are lines that end in a zero byte:
//!
//! | line | meaning |
//! | --- | --- |
//! | `d` and a path | a directory, and the one above for its row |
//! | `o` and a path | a directory alone |
//! | `r` and a path | a directory with all below it |
//! | `i`, a number and a path | an inode with several names, and the root of its source |
//! | `c/` | each directory is a request of a user |

use anyhow::Context as _;
use canopy_ingest::update::{Links, Suspect, Suspects};
use canopy_watch::requests::Share;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variable in the environment of a process whose parent wants to know that it makes progress.
pub const REPORTS_PROGRESS: &str = "CANOPY_TELLS_PARENT";

/// Byte that such a process prints whenever it has made progress.
pub const PROGRESS: u8 = b'\x06';

/// Byte that it prints once it reads no source any more.
pub const FINISHED: u8 = b'\x04';

/// Begins the line of the costs of requests.
const COSTS: &str = "costs";

/// Returns suspects as `canopy update --suspects` reads them.
pub fn write_suspects(suspects: &Suspects) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut line = |kind: &[u8], path: &Path| {
        lines.extend_from_slice(kind);
        lines.extend_from_slice(path.as_os_str().as_bytes());
        lines.push(0);
    };
    if suspects.are_requests {
        line(b"c", Path::new("/"));
    }
    for suspect in &suspects.all {
        let kind = match (suspect.recursive, suspect.with_row) {
            (true, _) => b"r",
            (false, true) => b"d",
            (false, false) => b"o",
        };
        line(kind, &suspect.path);
    }
    for (root, inodes) in &suspects.links {
        inodes.iter().for_each(|inode| line(format!("i{inode}").as_bytes(), root));
    }
    lines
}

/// Reads suspects.
///
/// # Errors
///
/// If it is another text.
pub fn read_suspects(bytes: &[u8]) -> anyhow::Result<Suspects> {
    let (mut suspects, mut links) = (Vec::new(), Links::new());
    let mut are_requests = false;
    let mut read = |line: &[u8]| {
        let (kind, path) = line.split_at(line.iter().position(|&byte| byte == b'/')?);
        let path = PathBuf::from(OsStr::from_bytes(path));
        match kind {
            b"c" => are_requests = true,
            b"d" | b"r" | b"o" => {
                let (recursive, with_row) = (kind == b"r", kind != b"o");
                suspects.push(Suspect { path, recursive, with_row, given: None });
            }
            kind => {
                let inode = str::from_utf8(kind.strip_prefix(b"i")?).ok()?.parse().ok()?;
                match links.last_mut().filter(|(last, _): &&mut (PathBuf, _)| *last == path) {
                    Some((_, inodes)) => inodes.push(inode),
                    None => links.push((path, vec![inode])),
                }
            }
        }
        Some(())
    };
    let mut lines = bytes.split(|&byte| byte == 0).filter(|line| !line.is_empty());
    lines.try_for_each(|line| read(line).context("standard input has no suspects"))?;
    links.iter_mut().for_each(|(_, inodes)| inodes.sort_unstable());
    Ok(Suspects { all: suspects, links, are_requests })
}

/// Returns the line of the costs of requests.
pub fn shares_line(shares: &[Share]) -> String {
    let shares = shares.iter().map(|Share { listings, entries }| format!(" {listings}:{entries}"));
    format!("{COSTS}{}", shares.collect::<String>())
}

/// Reads the costs of requests from the output of a process.
pub fn read_shares(printed: &str) -> Option<Vec<Share>> {
    let line = printed.lines().find_map(|line| line.strip_prefix(COSTS))?;
    let share = |text: &str| {
        let (listings, entries) = text.split_once(':')?;
        Some(Share { listings: listings.parse().ok()?, entries: entries.parse().ok()? })
    };
    line.split_whitespace().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_come_through() {
        let share = |listings, entries| Share { listings, entries };
        let shares = [share(4, 200_010), share(2, 8), share(1, 5), share(1, 3), share(1, 1)];
        let line = shares_line(&shares);
        assert_eq!(line, "costs 4:200010 2:8 1:5 1:3 1:1");
        let read = read_shares(&format!("generation 7: 9 entries\n{line}\n"));
        assert_eq!(read.as_deref(), Some(&shares[..]));
        assert_eq!(read_shares("generation 7: 9 entries\n"), None);
    }

    #[test]
    fn suspects_come_through() {
        let suspect = |path: &str, recursive, with_row| Suspect {
            path: PathBuf::from(path),
            recursive,
            with_row,
            given: None,
        };
        let all = vec![
            suspect("/a", true, true),
            suspect("/a/line\nend", false, true),
            suspect("/b", false, false),
        ];
        for are_requests in [false, true] {
            let links = vec![(PathBuf::from("/a"), vec![3, 7]), (PathBuf::from("/b"), vec![1])];
            let suspects = Suspects { all: all.clone(), links, are_requests };
            let read = read_suspects(&write_suspects(&suspects)).unwrap();
            assert_eq!(read.all, suspects.all);
            assert_eq!((read.links, read.are_requests), (suspects.links, are_requests));
        }
        assert!(read_suspects(b"no suspects").is_err());
    }
}
