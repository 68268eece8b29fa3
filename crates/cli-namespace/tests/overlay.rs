//! A namespace as the upper directory of overlayfs, as containers have it.

mod common;

use common::{Mounted, shell};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_rename_can_leave_a_whiteout() {
    let mounted = Mounted::new();
    let path = |name: &str| mounted.path(name);
    fs::write(path("old"), b"text").unwrap();
    fs::write(path("there"), b"other").unwrap();
    let whiteout = RenameFlags::WHITEOUT;
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, path(from), CWD, path(to), flags);
    assert_eq!(rename("old", "there", whiteout | RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("old", "there", whiteout | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    rename("old", "new", whiteout | RenameFlags::NOREPLACE).unwrap();
    rename("there", "new", whiteout).unwrap();
    assert_eq!(fs::read(path("new")).unwrap(), b"other");
    for name in ["old", "there"] {
        let found = fs::symlink_metadata(path(name)).unwrap();
        assert!(found.file_type().is_char_device());
        assert_eq!((found.rdev(), found.mode() & 0o7777, found.uid()), (0, 0, 0));
    }
    mounted.unmount();
    mounted.mount(&[]);
    assert!(fs::symlink_metadata(path("old")).unwrap().file_type().is_char_device());
    mounted.assert_sound();
}

/// Takes an overlay away, whatever happens.
struct Merged(PathBuf);

impl Drop for Merged {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.0).status();
    }
}

#[test]
fn a_namespace_is_the_upper_directory_of_an_overlay() {
    // RENAME_WHITEOUT was EINVAL, and overlayfs refused the mount.
    let mounted = Mounted::new();
    let place = mounted.place.path();
    let _merged = Merged(place.join("merged"));
    shell(
        place,
        "mkdir -p lower/dir/sub lower/opaque merged on/upper on/work
         echo one > lower/dir/one; echo two > lower/dir/sub/two; echo gone > lower/gone
         echo kept > lower/kept; echo hidden > lower/opaque/hidden; ln lower/kept lower/linked
         setfattr -n user.color -v red lower/kept; chown 7:8 lower/kept",
    );
    let overlay = "mount -t overlay overlay merged \
                   -o lowerdir=lower,upperdir=on/upper,workdir=on/work,redirect_dir=on";
    shell(place, overlay);
    let work = "
        rm gone; rm -r opaque; mkdir opaque; echo new > opaque/new
        mv dir moved; echo more >> moved/one; mv moved/sub/two moved/sub/renamed
        echo changed >> kept; chmod 600 kept; ln kept another; ln -s kept link
        mkdir -p deep/er; mkfifo deep/pipe; echo x > deep/er/x; mv deep/er/x deep/er/y
        rm linked; echo again > gone; rm gone; truncate -s 100000 large; mv large larger";
    shell(&place.join("merged"), work);
    let list = "find . ! -type d | sort | tr '\\n' ' '; cat kept moved/one moved/sub/renamed
                cat opaque/new; stat -c '%u %g %a %h' kept
                getfattr -n user.color --only-values kept";
    let told = shell(&place.join("merged"), list);
    let is = "./another ./deep/er/y ./deep/pipe ./kept ./larger ./link ./moved/one \
              ./moved/sub/renamed ./opaque/new kept\nchanged\none\nmore\ntwo\nnew\n7 8 600 2\nred";
    assert_eq!(told, is);
    let whiteouts = "find on/upper -type c -printf '%P '";
    assert!(shell(place, whiteouts).split(' ').any(|name| name == "gone"));
    let opaque = "getfattr -n trusted.overlay.opaque --only-values on/upper/opaque";
    assert_eq!(shell(place, opaque), "y");
    // All of it is there after both were mounted again.
    shell(place, "umount merged");
    mounted.unmount();
    mounted.mount(&[]);
    shell(place, overlay);
    assert_eq!(shell(&place.join("merged"), list), is);
    shell(place, "umount merged");
    mounted.assert_sound();
}
