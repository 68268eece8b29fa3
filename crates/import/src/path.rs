//! Paths of an input: where its root is, and what lies below it.

use crate::fault::{Checked, Fault};

/// Longest path, so that none can be used to make others' memory large.
const PATH_BYTES_MAX: usize = 65_535;

/// Longest name; no file system that Linux knows has longer ones.
const NAME_BYTES_MAX: usize = 4095;

/// Returns the path without slashes at its end.
pub(crate) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// Returns what two paths have in common at their beginnings: whole components.
pub(crate) fn common<'a>(a: &'a [u8], b: &[u8]) -> &'a [u8] {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let ends = |path: &[u8]| path.len() == same || path[same] == b'/';
    if ends(a) && ends(b) {
        return &a[..same];
    }
    let slash = a[..same].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    trimmed(&a[..slash])
}

/// Returns the path below `root`, which has no slash at its end. `None` if it lies elsewhere.
/// Several slashes behind the root count as one: scanners that were started with a slash at the end
/// of a path print them so.
pub(crate) fn below<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(root)?;
    if !root.is_empty() && !rest.is_empty() && rest[0] != b'/' {
        return None;
    }
    let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
    Some(&rest[slashes..])
}

/// Checks that a name could be one of a directory's entries.
pub(crate) fn check_name(name: &[u8]) -> Checked<()> {
    let reason = match name {
        b"" => "an empty name",
        b"." | b".." => "a name '.' or '..'",
        _ if name.len() > NAME_BYTES_MAX => {
            return Err(Fault::name(format!(
                "a name of {} bytes, expected at most {NAME_BYTES_MAX}",
                name.len()
            )));
        }
        _ if memchr::memchr2(0, b'/', name).is_some() => "a name with a NUL or a slash",
        _ => return Ok(()),
    };
    Err(Fault::name(reason))
}

/// Checks a path below the root, which is empty for the root itself.
pub(crate) fn check(path: &[u8]) -> Checked<()> {
    if path.len() > PATH_BYTES_MAX {
        let length = path.len();
        let reason = format!("a path of {length} bytes, expected at most {PATH_BYTES_MAX}");
        return Err(Fault::name(reason));
    }
    if path.is_empty() {
        return Ok(());
    }
    path.split(|&byte| byte == b'/').try_for_each(check_name)
}

/// Returns a path for messages: its first bytes, with those that do not print made visible.
pub(crate) fn shown(path: &[u8]) -> String {
    const SHOWN: usize = 200;
    let more = if path.len() > SHOWN { "..." } else { "" };
    format!("'{}{more}'", path[..path.len().min(SHOWN)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_directories_are_whole_components() {
        let cases: [(&[u8], &[u8], &[u8]); 6] = [
            (b"/a/b", b"/a/c", b"/a"),
            (b"/a/b", b"/a/b/c", b"/a/b"),
            (b"/a/bc", b"/a/bd", b"/a"),
            (b"a", b"b", b""),
            (b"/a", b"/b", b""),
            (b"t", b"t/a", b"t"),
        ];
        for (a, b, expected) in cases {
            assert_eq!((common(a, b), common(b, a)), (expected, expected));
        }
    }

    #[test]
    fn paths_below_a_root() {
        assert_eq!(below(b"t", b"t"), Some(&b""[..]));
        assert_eq!(below(b"t", b"t//a/b"), Some(&b"a/b"[..]));
        assert_eq!(below(b"t", b"ta"), None);
        assert_eq!(below(b"", b"//etc"), Some(&b"etc"[..]));
        assert!(check(b"a/b").is_ok() && check(b"").is_ok());
        for path in
            [&b"a//b"[..], b"a/", b"/a", b"a/../b", b".", b"a\0", &[b'x'; 5000], &[b'/'; 70_000]]
        {
            assert!(check(path).is_err());
        }
    }
}
