//! Derives the format of an output file from its name: `-o x.csv` is CSV.

use anyhow::bail;
use std::path::Path;

/// Ends of names of compressed files, and the programs that make them.
const COMPRESSED: [(&str, &str); 9] = [
    ("gz", "gzip"),
    ("tgz", "gzip"),
    ("zst", "zstd"),
    ("bz2", "bzip2"),
    ("xz", "xz"),
    ("lz4", "lz4"),
    ("br", "brotli"),
    ("z", "compress"),
    ("zip", "zip"),
];

/// Ends of names of files in forms that neither answers nor reports have: a text of such a name
/// would be taken for something else.
pub const OTHER_FORMS: [&str; 18] = [
    "arrow", "avro", "db", "duckdb", "feather", "htm", "html", "ipc", "ods", "orc", "pdf",
    "sqlite", "sqlite3", "tsv", "xls", "xlsx", "xml", "yaml",
];

/// Returns how a name ends, behind its last dot and in small letters; nothing if it has none.
/// Refuses names of compressed files, which nothing here writes, and `-`.
///
/// # Errors
///
/// If the path is `-`, or the name promises a compressed file.
pub fn ending(path: &Path) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        bail!("answers go to standard output without -o; './-' names a file");
    }
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if let Some((_, program)) = COMPRESSED.iter().find(|(compressed, _)| *compressed == ending) {
        let plain = path.with_extension("");
        let (path, plain) = (path.display(), plain.display());
        bail!(
            "{path} would not be compressed: write {plain}, then run '{program} {plain}', or send \
             standard output through {program}"
        );
    }
    Ok(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compressed_files_are_refused() {
        for (name, expected) in [
            ("x.csv", "csv"),
            ("/a.b/x", ""),
            ("x.PARQUET", "parquet"),
            (".csv", ""),
            ("a.gz/x.json", "json"),
        ] {
            assert_eq!(ending(Path::new(name)).unwrap(), expected, "{name}");
        }
        for name in ["x.csv.gz", "x.zst", "x.json.XZ", "x.parquet.zip"] {
            let said = ending(Path::new(name)).unwrap_err().to_string();
            assert!(said.contains("would not be compressed"), "{said}");
        }
        let said = ending(Path::new("-")).unwrap_err().to_string();
        assert_eq!(said, "answers go to standard output without -o; './-' names a file");
        assert_eq!(ending(Path::new("./-")).unwrap(), "");
        let said = ending(Path::new("x.csv.gz")).unwrap_err().to_string();
        assert!(said.ends_with("'gzip x.csv', or send standard output through gzip"), "{said}");
    }
}
