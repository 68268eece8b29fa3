//! Redis, as the bound of one round trip for each create: HSET of a name in the hash of a directory.

use crate::cluster::find_program;
use crate::cluster::load::name_of;
use crate::cluster::mounts::Rates;
use crate::cluster::peers::daemons::{Daemon, Own, free_port, wait_until};
use crate::cluster::site::cpu_seconds;
use anyhow::{Result, anyhow, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Bytes of a value, about those of an inode.
const VALUE_BYTES: usize = 60;

/// A server. It is stopped when this is dropped.
pub struct Redis {
    server: Daemon,
    port: u16,
    _own: Own,
}

impl Redis {
    /// Starts a server, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Self>> {
        let Some(program) = find_program("redis-server") else { return Ok(None) };
        let (own, port) = (Own::new(scratch, "redis")?, free_port()?);
        let mut command = Command::new(program);
        command.current_dir(own.path()).args(["--port", &port.to_string(), "--save", ""]);
        command.args(["--bind", "127.0.0.1", "--appendonly", "no"]);
        let server = Daemon::start(&mut command, &own)?;
        wait_until("redis", || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(Some(Redis { server, port, _own: own }))
    }

    /// Measures clients that create entries and look up those of others, some at once.
    pub fn rates(&self, clients: u32, files: u32, at_once: u32) -> Result<Rates> {
        let value = "v".repeat(VALUE_BYTES);
        let key = format!("directory-{at_once}");
        let set = |name: &str| command(&["HSET", &key, name, &value]);
        let get = |name: &str| command(&["HGET", &key, name]);
        Ok(Rates {
            creates: self.rate([clients, files, at_once], 0, &set)?,
            stats: self.rate([clients, files, at_once], 1, &get)?,
        })
    }

    /// Returns the CPU seconds of the server so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(self.server.id())
    }

    fn rate(
        &self,
        [clients, files, at_once]: [u32; 3],
        shift: u32,
        text_of: &(dyn Fn(&str) -> String + Sync),
    ) -> Result<f64> {
        let each = files / clients;
        let streams = (0..clients).map(|_| -> Result<_> {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            Ok(BufReader::new(stream))
        });
        let mut streams = streams.collect::<Result<Vec<_>>>()?;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let threads = (0..).zip(&mut streams).map(|(number, stream)| {
                let of: u32 = (number + shift) % clients;
                scope.spawn(move || -> Result<()> {
                    let mut next = 0;
                    while next < each {
                        let end = each.min(next + at_once);
                        let texts = (next..end).map(|file| text_of(&name_of(of, file)));
                        stream.get_mut().write_all(texts.collect::<String>().as_bytes())?;
                        (next..end).try_for_each(|_| answer(stream))?;
                        next = end;
                    }
                    Ok(())
                })
            });
            let threads = Vec::from_iter(threads);
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a client panicked"))?)
        })?;
        Ok(f64::from(each * clients) / begin.elapsed().as_secs_f64())
    }
}

/// Returns a command as Redis reads it.
fn command(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

fn answer(stream: &mut BufReader<TcpStream>) -> Result<()> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    ensure!(!line.is_empty() && !line.starts_with('-'), "redis: {line}");
    if let Some(length) = line.strip_prefix('$') {
        let length = length.trim().parse::<i64>()?;
        let length = usize::try_from(length).map_err(|_| anyhow!("an entry is missing"))?;
        stream.read_exact(&mut vec![0; length + 2])?;
    }
    Ok(())
}
