//! `canopy cluster start`.

use crate::numbers::ranges;
use crate::place::Place;
use crate::settings::{self, Settings};
use crate::{advertised, metrics};
use anyhow::{Context, bail};
use canopy::commands::cluster::Start as Arguments;
use canopy::{Outcome, interrupt, message};
use canopy_cluster::wire::Address;
use canopy_cluster::{ListeningProcess, ListeningSettings, ProcessSettings, Security};
use canopy_index::safety;
use canopy_namespace::system_clock;
use canopy_store::Environment;
use canopy_text::shell_word;
use nix::sys::signal::{SigSet, Signal};
use parking_lot::Mutex;
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Pause between two looks at keys and the own certificate. Revocations are looked at once in a lease.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(500);

/// Time in which other processes have to take the servers over.
const LEAVE_TIME: Duration = Duration::from_secs(30);

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    // Before other threads are there, which then hold them back, too.
    let signals = interrupt::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let mut listen = Vec::new();
    for address in &arguments.listen {
        listen.push(address.parse::<Address>().with_context(|| format!("--listen {address}"))?);
    }
    let ends = Ends::wait(signals)?;
    check_sockets(&listen)?;
    let place = Place::open(&arguments.namespace)?;
    let set = settings_of(arguments, &place)?;
    let certificate = certificate_of(arguments, &set, &place);
    let security = Security::of_server(&place.storage, certificate.as_deref())
        .context("cannot use the certificate of this server")?;
    if security.is_plain() {
        check_loopback(&listen, arguments)?;
    }
    let advertise = arguments.advertise.as_deref().map(advertised::parse).transpose()?;
    if let Some(first) =
        listen.first().filter(|first| advertise.is_none() && advertised::is_unspecified(first))
    {
        bail!(
            "--listen {first}: other processes find this one at its first address, which must be one of \
             this machine, such as its name; or name that with --advertise HOST:PORT"
        );
    }
    let lease = match arguments.lease {
        Some(seconds) => Some(settings::lease(Some(seconds)).context("--lease")?),
        None => set.lease,
    };
    let settings = ListeningSettings {
        listen,
        advertise,
        security: security.for_clients()?,
        to_others: security.for_servers()?,
        lease,
        place: place.name.clone(),
    };
    let environment = Environment::system(place.storage.clone());
    if let Some(advertise) = &settings.advertise {
        let word = environment.random.next_u64().to_ne_bytes();
        advertised::check(advertise, &settings.listen, word)?;
    }
    let memory = match &arguments.memory {
        Some(size) => Some(settings::memory(size).context("--memory")?),
        None => set.memory_bytes,
    };
    let metrics = arguments.metrics.as_ref().or(set.metrics.as_ref());
    let metrics = metrics.map(|address| metrics::listen(address)).transpose()?;
    let prometheus = arguments.prometheus.as_ref().or(set.prometheus.as_ref());
    prometheus.map_or(Ok(()), |file| metrics::prepare(file))?;
    canopy::print_events(String::new());
    let mut process = ProcessSettings::default();
    process.memory_bytes = memory.unwrap_or(process.memory_bytes);
    let node = ListeningProcess::start_with(&environment, &system_clock(), &settings, process)?;
    let ends = ends.serves();
    report(&node, metrics)?;
    prometheus.map_or(Ok(()), |file| metrics::write(file, node.process()))?;
    // Without systemd, there is nobody to notify.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let ended = serve(&node, &security, &ends);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    ended?;
    node.leave(LEAVE_TIME)?;
    Ok(Outcome::Complete)
}

/// Prints where the process can be reached, and serves its numbers.
fn report(node: &ListeningProcess, metrics: Option<TcpListener>) -> anyhow::Result<()> {
    let running = Vec::from_iter(node.running().iter().map(|server| server.0));
    for address in node.addresses() {
        let (running, all) = (ranges(&running), node.server_count());
        canopy::say(format!("listening on {address}, running servers {running} of {all}"))?;
    }
    if let Some(listener) = metrics {
        let address = metrics::serve(listener, node.process())?;
        canopy::say(format!("metrics at http://{address}/metrics"))?;
    }
    Ok(())
}

/// Serves until a signal comes.
///
/// # Errors
///
/// Fails if this process is not a member of the cluster any more.
fn serve(node: &ListeningProcess, security: &Security, ends: &Receiver<()>) -> anyhow::Result<()> {
    let mut told = String::new();
    let lease = node.lease().unwrap_or(LOOK_EVERY).max(LOOK_MIN);
    let mut looked = Instant::now();
    loop {
        match ends.recv_timeout(lease.min(LOOK_EVERY)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(()),
        }
        if let Some(error) = node.ended() {
            return Err(error.into());
        }
        // The list that was known before counts meanwhile.
        let refreshed = match looked.elapsed() >= LOOK_EVERY {
            true => {
                looked = Instant::now();
                security.refresh()
            }
            false => security.refresh_revoked(),
        };
        let problem = refreshed.err().map(|error| format!("{error:#}")).unwrap_or_default();
        if !problem.is_empty() && problem != told {
            message(format_args!("cannot read certificates again: {problem}"));
        }
        told = problem;
    }
}

/// Waits for a signal to end, from the beginning on. One that comes before the process serves ends it.
/// The receiver of a later one is returned by `serves`.
struct Ends {
    is_serving: Arc<Mutex<bool>>,
    receiver: Receiver<()>,
}

impl Ends {
    fn wait(signals: SigSet) -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let is_serving = Arc::new(Mutex::new(false));
        let serving = is_serving.clone();
        let wait = move || {
            let _ = signals.wait();
            // Nobody notices a change of it any more once the process ends.
            let is_serving = serving.lock();
            if !*is_serving {
                // Its lease ends by itself, and a started server has written what it has answered.
                message("ended before it served");
                std::process::exit(0);
            }
            let _ = sender.send(());
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(Ends { is_serving, receiver })
    }

    fn serves(self) -> Receiver<()> {
        *self.is_serving.lock() = true;
        self.receiver
    }
}

/// Fails if others could replace a socket while its permissions are set.
fn check_sockets(listen: &[Address]) -> anyhow::Result<()> {
    let uid = nix::unistd::geteuid().as_raw();
    for address in listen {
        if let Address::Unix(path) = address {
            safety::check_way(path, uid).with_context(|| format!("--listen {address}"))?;
        }
    }
    Ok(())
}

fn settings_of(arguments: &Arguments, place: &Place) -> anyhow::Result<Settings> {
    match (&arguments.settings, &place.directory) {
        (Some(file), _) => Settings::read(file, true),
        (None, Some(directory)) => Settings::read(&directory.join(settings::FILE), false),
        (None, None) => Ok(Settings::default()),
    }
}

/// Returns the file of the certificate, if there is one.
fn certificate_of(arguments: &Arguments, set: &Settings, place: &Place) -> Option<PathBuf> {
    let named = arguments.certificate.clone().or_else(|| set.certificate.clone());
    named.or_else(|| place.certificate())
}

/// Fails if other machines could connect, and could claim anything.
fn check_loopback(listen: &[Address], arguments: &Arguments) -> anyhow::Result<()> {
    for address in listen {
        let is_local = match (address, address.ip()) {
            (Address::Unix(_), _) => true,
            (_, Some(ip)) => ip.is_loopback(),
            (Address::Tcp { host, .. }, None) => host == "localhost",
        };
        if !is_local {
            let namespace = shell_word(&arguments.namespace);
            bail!(
                "--listen {address}: other machines can connect only with certificates; make one for \
                 the servers with 'canopy cluster certificate --server {namespace}'"
            );
        }
    }
    Ok(())
}
