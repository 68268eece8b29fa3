//! The locale, as the environment sets it.

/// Returns whether the locale's characters are those of UTF-8.
pub fn is_utf8() -> bool {
    let locale = first_set(["LC_ALL", "LC_CTYPE", "LANG"]).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Returns whether times are shown as the POSIX locale has them.
pub(crate) fn is_posix_time() -> bool {
    let locale = first_set(["LC_ALL", "LC_TIME", "LANG"]);
    locale.is_none_or(|locale| matches!(locale.as_str(), "C" | "POSIX"))
}

/// Returns the value of the first of some variables that is set.
fn first_set(names: [&str; 3]) -> Option<String> {
    let mut values = names.into_iter().filter_map(std::env::var_os);
    values.find(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}
