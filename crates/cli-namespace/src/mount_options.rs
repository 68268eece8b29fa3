//! Options of mount(8), as after `-o` or in /etc/fstab.

use anyhow::bail;

/// Options of mount(8) that change nothing here: the kernel, mount(8) or systemd obeys them, or a mount
/// is like that anyway. Those with `=` have a value.
const IGNORED: [&str; 44] = [
    "rw",
    "defaults",
    "suid",
    "dev",
    "exec",
    "sync",
    "async",
    "dirsync",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "mand",
    "nomand",
    "auto",
    "noauto",
    "fail",
    "nofail",
    "user",
    "nouser",
    "users",
    "nousers",
    "group",
    "nogroup",
    "owner",
    "noowner",
    "_netdev",
    "allow_other",
    "default_permissions",
    "fsname=",
    "subtype=",
    "comment=",
    "user=",
    "nonempty",
];

/// Options that restrict a mount.
const OBEYED: [&str; 4] = ["ro", "nosuid", "nodev", "noexec"];

/// Checks options, of which some have values that this mount uses.
///
/// # Errors
///
/// Fails with the first option that is unknown.
pub fn check(options: &[String], with_values: &[&str]) -> anyhow::Result<()> {
    for option in options.iter().filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        if name == "remount" {
            bail!("-o remount: unmount it, and mount it again with the options that it is to have");
        }
        let is_ignored = IGNORED.iter().any(|ignored| match ignored.strip_suffix('=') {
            Some(ignored) => ignored == name && value.is_some(),
            None => *ignored == option,
        });
        let is_comment = name.starts_with("x-") || name.starts_with("X-");
        if is_ignored || is_comment || OBEYED.contains(&option.as_str()) {
            continue;
        }
        match (with_values.contains(&name), value) {
            (true, Some(value)) if !value.is_empty() => {}
            (true, _) => bail!("-o {name}: give a value, as in {name}=..."),
            (false, _) => {
                let own = with_values.iter().map(|name| format!(", {name}=..."));
                let own = String::from_iter(own);
                bail!(
                    "-o {option}: there is no such option; those that count are {}{own}",
                    OBEYED.join(", ")
                )
            }
        }
    }
    Ok(())
}

/// Returns whether the mount is to refuse changes.
pub fn is_read_only(options: &[String]) -> bool {
    options.iter().any(|option| option == "ro")
}

/// Returns the last value of an option, if it is given.
pub fn value<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    let value = |option: &'a String| option.strip_prefix(name)?.strip_prefix('=');
    options.iter().rev().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(options: &str) -> String {
        let options = Vec::from_iter(options.split(',').map(str::to_owned));
        let checked = check(&options, &["certificate", "cache"]);
        checked.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn options_of_fstab_pass() {
        for options in [
            "",
            "defaults,nosuid,nodev,nofail",
            "_netdev,x-systemd.automount,x-systemd.idle-timeout=5min,comment=ours",
            "rw,ro,cache=3,certificate=/etc/canopy/n17.pem",
        ] {
            assert_eq!(checked(options), "", "{options}");
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        let unknown = "there is no such option; those that count are ro, nosuid, nodev, noexec, \
                       certificate=..., cache=...";
        for option in ["certificat=x", "bogus", "ro=1", "storage=/x", "bind", "comment"] {
            assert_eq!(checked(&format!("rw,{option}")), format!("-o {option}: {unknown}"));
        }
        assert_eq!(checked("cache"), "-o cache: give a value, as in cache=...");
        assert_eq!(checked("cache="), "-o cache: give a value, as in cache=...");
        assert!(checked("remount,ro").starts_with("-o remount: unmount it"));
    }

    #[test]
    fn the_last_value_counts() {
        let options = ["cache=1", "cachet=5", "ro", "cache=2"].map(str::to_owned);
        assert_eq!(value(&options, "cache"), Some("2"));
        assert_eq!(value(&options, "storage"), None);
        assert!(is_read_only(&options));
        assert!(!is_read_only(&options[..2]));
    }
}
