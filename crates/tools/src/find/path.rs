//! Parts of paths, as find(1) cuts them.

/// Returns a path without the slashes at its end; one is left of a path that has nothing else.
pub(crate) fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |at| at + 1);
    &path[..end]
}

/// Returns the last component of a path, with one slash if any follow it, as `%f` prints it.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    let trimmed = trim_slashes(path);
    if trimmed == b"/" {
        return trimmed;
    }
    let begin = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    &path[begin..path.len().min(trimmed.len() + 1)]
}

/// Adds a component to the path of a directory.
pub(crate) fn push_component(path: &mut Vec<u8>, name: &[u8]) {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slash_is_left_behind_a_name() {
        for (path, name) in [
            (&b"t//"[..], &b"t/"[..]),
            (b"t/", b"t/"),
            (b"t//sub//", b"sub/"),
            (b"/t", b"t"),
            (b"//", b"/"),
            (b"/", b"/"),
            (b"./", b"./"),
            (b"", b""),
        ] {
            assert_eq!(file_name(path), name);
        }
    }

    #[test]
    fn a_name_is_searched_without_its_slashes() {
        for (path, name) in
            [(&b"/"[..], &b"/"[..]), (b"//", b"/"), (b"a/b/", b"b"), (b".", b"."), (b"a", b"a")]
        {
            assert_eq!(trim_slashes(file_name(path)), name);
        }
    }
}
