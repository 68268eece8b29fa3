//! Settings of a namespace on several servers, in `cluster.toml` beside it. Keys are named like the
//! options of `canopy cluster start`, which go before them. An unknown key is an error, since a misspelt
//! one would silently do nothing.

use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// Name of the file in the directory of a namespace.
pub const FILE: &str = "cluster.toml";

/// Known keys.
const KEYS: [&str; 5] = ["certificate", "lease", "memory", "metrics", "prometheus"];

/// Bytes of the longest file that is read.
const BYTES_MAX: u64 = 64 << 10;

/// Seconds that a lease can last.
const LEASE_S: std::ops::RangeInclusive<f64> = 0.1..=60.0;

/// The least memory that tables can have.
const MEMORY_MIN: u64 = 16 << 20;

/// Values that are set. `None` means that one is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// File of the server's certificate.
    pub certificate: Option<PathBuf>,
    /// Length of a lease.
    pub lease: Option<Duration>,
    /// Bytes of memory of the tables.
    pub memory_bytes: Option<u64>,
    /// Address at which numbers about the process are served.
    pub metrics: Option<String>,
    /// File that numbers about the process are written to.
    pub prometheus: Option<PathBuf>,
}

impl Settings {
    /// Reads a file. Without one, nothing is set, unless `must_exist`.
    ///
    /// # Errors
    ///
    /// Fails if a key is unknown or a value is wrong, and as the file system does.
    pub fn read(file: &Path, must_exist: bool) -> anyhow::Result<Self> {
        let shown = file.display();
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound && !must_exist => {
                return Ok(Settings::default());
            }
            opened => opened.with_context(|| format!("cannot read {shown}"))?,
        };
        let mut text = String::new();
        let read = opened.take(BYTES_MAX + 1).read_to_string(&mut text);
        let bytes = read.with_context(|| format!("cannot read {shown}"))? as u64;
        ensure!(bytes <= BYTES_MAX, "{shown}: it is too long for a file of settings");
        let mut settings = Settings::parse(&text).with_context(|| shown.to_string())?;
        // A relative path begins where the file lies.
        let beside = |path: PathBuf| file.parent().map_or(path.clone(), |parent| parent.join(path));
        settings.certificate = settings.certificate.map(beside);
        settings.prometheus = settings.prometheus.map(beside);
        Ok(settings)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let line = |at: usize| format!("line {}", text[..at].matches('\n').count() + 1);
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            anyhow::anyhow!("{}: {}", line(at), error.message())
        })?;
        let mut settings = Settings::default();
        for (key, value) in table.get_ref().iter() {
            settings.set(key.get_ref(), value.get_ref()).with_context(|| line(key.span().start))?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>) -> anyhow::Result<()> {
        match (key, value) {
            ("certificate", DeValue::String(path)) => {
                self.certificate = Some(path.as_ref().into());
            }
            ("certificate", _) => bail!("certificate: the path of a file is wanted"),
            ("lease", DeValue::Integer(number)) => {
                let digits = number.as_str().parse().ok().filter(|_| number.radix() == 10);
                self.lease = Some(lease(digits).context("lease")?);
            }
            ("lease", DeValue::Float(number)) => {
                let seconds = number.as_str().parse().ok();
                self.lease = Some(lease(seconds).context("lease")?);
            }
            ("lease", _) => bail!("lease: a number of seconds is wanted"),
            ("memory", DeValue::String(size)) => {
                self.memory_bytes = Some(memory(size).context("memory")?);
            }
            ("memory", _) => bail!("memory: a size is wanted, such as '512M'"),
            ("metrics", DeValue::String(address)) => self.metrics = Some(address.to_string()),
            ("metrics", _) => bail!("metrics: an address is wanted, HOST:PORT"),
            ("prometheus", DeValue::String(path)) => {
                self.prometheus = Some(path.as_ref().into());
            }
            ("prometheus", _) => bail!("prometheus: the path of a file is wanted"),
            _ => bail!("unknown key '{key}'; known are {}", KEYS.join(", ")),
        }
        Ok(())
    }
}

/// Returns the length of a lease of so many seconds.
///
/// # Errors
///
/// Fails if it would be too short or too long.
pub fn lease(seconds: Option<f64>) -> anyhow::Result<Duration> {
    let seconds = seconds.filter(|seconds| LEASE_S.contains(seconds));
    let (least, most) = (LEASE_S.start(), LEASE_S.end());
    seconds
        .map(Duration::from_secs_f64)
        .with_context(|| format!("it lasts from {least} to {most} seconds"))
}

/// Returns the bytes of memory that tables take together.
///
/// # Errors
///
/// Fails if it is not a size, and if it is too small.
pub fn memory(size: &str) -> anyhow::Result<u64> {
    let bytes = canopy_text::parse_size(size)?;
    let least = MEMORY_MIN >> 20;
    ensure!(bytes >= MEMORY_MIN, "at least {least}M is needed");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_what_is_meant_or_where_they_are_wrong() {
        let text = "# a comment\nlease = 2.5\ncertificate = 'server.pem'\nmemory = '64M'\n\
                    metrics = '127.0.0.1:9100'\nprometheus = 'canopy.prom'\n";
        let expected = Settings {
            certificate: Some("server.pem".into()),
            lease: Some(Duration::from_millis(2500)),
            memory_bytes: Some(64 << 20),
            metrics: Some("127.0.0.1:9100".into()),
            prometheus: Some("canopy.prom".into()),
        };
        assert_eq!(Settings::parse(text).unwrap(), expected);
        assert_eq!(Settings::parse("lease = 3").unwrap().lease, Some(Duration::from_secs(3)));
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        for (text, expected) in [
            ("\nleases = 1", "line 2: unknown key 'leases'; known are certificate, lease, memory"),
            ("memory = '15M'", "line 1: memory: at least 16M is needed"),
            ("memory = 512", "line 1: memory: a size is wanted"),
            ("metrics = 9100", "line 1: metrics: an address is wanted"),
            ("prometheus = true", "line 1: prometheus: the path of a file is wanted"),
            ("lease = 0", "line 1: lease: it lasts from 0.1 to 60 seconds"),
            ("lease = -1", "line 1: lease: it lasts"),
            ("lease = 61", "line 1: lease: it lasts"),
            ("lease = nan", "line 1: lease: it lasts"),
            ("lease = inf", "line 1: lease: it lasts"),
            ("lease = 0x1", "line 1: lease: it lasts"),
            ("lease = '1s'", "line 1: lease: a number of seconds is wanted"),
            ("certificate = 1", "line 1: certificate: the path of a file is wanted"),
            ("lease = 1\nlease = 2", "line 2: duplicate"),
            ("[lease]", "line 1: lease: a number"),
            ("lease", "line 1: "),
        ] {
            let error = format!("{:#}", Settings::parse(text).unwrap_err());
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
