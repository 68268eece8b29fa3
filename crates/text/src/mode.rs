//! Modes as ls(1) shows them.

use canopy_model::FileType;

/// Shows a mode as ls(1) does, such as `drwxr-xr-x`.
pub fn mode_string(mode: u32) -> String {
    let letter = match FileType::of_mode(mode) {
        FileType::Regular => '-',
        FileType::Unknown => '?',
        other => other.letter(),
    };
    let mut text = String::from(letter);
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}
