//! Output on a terminal: names that would command it are shown as find(1) shows them. Needs
//! script(1).

use crate::common::{Fixture, on_terminal};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

/// Controls of one byte and of two, alone and within characters, and what is not a character at
/// all.
const NAMES: [&[u8]; 9] = [
    b"plain name",
    b"\x1b[31mred",
    b"bell\x07del\x7f",
    "csi\u{9b}2J".as_bytes(),
    b"raw\x9b2J",
    b"\xff\x80",
    "\u{11b}\u{65e5}\u{e9}".as_bytes(),
    b"cut\xe2\x82",
    b"line\nand\ttab",
];

#[test]
fn a_terminal_gets_names_as_from_find() {
    let place = Fixture::new();
    let tree = place.path("tree");
    for name in NAMES {
        let directory = tree.join(OsStr::from_bytes(name));
        fs::create_dir_all(&directory).unwrap();
        symlink(OsStr::from_bytes(name), directory.join("link")).unwrap();
    }
    let index = place.path("index");
    place.index(&index, &tree);
    // Colours are another matter.
    let ours = format!("NO_COLOR=1 {} --index {} find", place.canopy.display(), index.display());
    for locale in ["C.UTF-8", "C"] {
        for arguments in [
            "",
            "-print",
            "-printf '%p %f %h %P %H %l\\n'",
            "-printf '%10f|%-30p|%.3f\\n'",
            "-fprint /dev/stdout",
            "-fprintf /dev/stdout '%p %l\\n'",
            "-ls",
            "-fprint /dev/stderr",
        ] {
            let shown = |find: &str| {
                let (shown, code) = on_terminal(&format!("{find} {arguments}"), locale);
                assert_eq!(code, Some(0), "{find} {arguments}");
                let mut lines: Vec<String> = shown
                    .split(|byte| *byte == b'\n')
                    .map(|line| line.escape_ascii().to_string())
                    .collect();
                lines.sort();
                lines
            };
            let tree = tree.display();
            let expected = shown(&format!("find {tree}"));
            assert!(expected.len() > 2 * NAMES.len());
            for find in [format!("{ours} {tree}"), format!("{ours} --live {tree}")] {
                assert_eq!(shown(&find), expected, "{find} {arguments} in {locale}");
            }
        }
    }
}
