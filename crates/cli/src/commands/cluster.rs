//! `canopy cluster`: its arguments. `canopy-cluster` carries it out.

use crate::limits::seconds;
use clap::Subcommand;
use std::path::PathBuf;

/// Run and look after namespaces on several servers
///
/// NAMESPACE is where 'canopy ns create --servers N' made one: a directory that many machines share, or
/// a bucket, s3://BUCKET/PREFIX or DIRECTORY+s3://BUCKET/PREFIX.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Make, list and revoke the certificates of servers, machines and users
    ///
    /// Connections between machines need a certificate at both ends. The first time, this makes the
    /// cluster's own key, which signs them. In a directory, the key is NAMESPACE/cluster.key unless
    /// --key names a file; for a bucket, --key is required. The file that is written has the
    /// certificate, its private key and the cluster's certificate; only its owner can read it.
    ///
    /// A server's certificate lets the holder run servers, for all machines. A node's lets a machine
    /// speak for its users, and for root only with --root. A user's is for that user alone.
    ///
    /// Example: canopy cluster certificate --node n17 /gpfs/ns
    Certificate(Certificate),
    /// Run a share of a namespace's servers
    ///
    /// Start it on each machine. It takes its share of the servers from the processes that run already,
    /// prints a line for each address once it serves them, and runs until it gets SIGTERM: then it hands
    /// its servers over. If it dies, others take them over when its lease ends. Addresses of other
    /// machines than this one need a certificate.
    ///
    /// Example: canopy cluster start /gpfs/ns --listen 10.1.0.5:7040
    Start(Start),
    /// Show which process runs which servers
    ///
    /// Prints a line for each process: its address, its servers, their partitions of directories that
    /// are spread, their entries, the time since it renewed its lease, and its state. A dash means that
    /// the process did not answer within 2 seconds, or has not counted yet. A process is dead
    /// once its lease has ended, and disappears when another one takes its servers over. Exit code 1 means
    /// that no process runs some servers.
    ///
    /// Example: canopy cluster status /gpfs/ns
    Status(Status),
    /// Show which servers hold the partitions of a directory
    ///
    /// DIRECTORY is its path in the namespace. Prints a line for each partition: its number, its share of
    /// all names, its entries, its server, and the process that runs it.
    ///
    /// Example: canopy cluster partitions /home /gpfs/ns
    Partitions(Partitions),
    /// Spread a directory over all servers at once
    ///
    /// Directories that grow are spread by themselves. This saves the work where it is known that a
    /// directory will be large: best while it is empty. Each server gets as many partitions as it may
    /// have. DIRECTORY is its path in the namespace.
    ///
    /// Example: canopy cluster spread /home/ada/results /gpfs/ns
    Spread(Spread),
    /// Move all servers of a machine to other processes
    ///
    /// Waits until they have moved. Its processes go on running without servers, and get none until they
    /// are started again.
    ///
    /// Example: canopy cluster drain 10.1.0.5 /gpfs/ns
    Drain(Drain),
    /// Add logical servers
    ///
    /// Processes that run take their shares of them at once. New directories use them; large ones that
    /// exist use them as they grow, or once 'balance' has split them. Servers cannot be removed. After
    /// an interruption, run it again: it completes what was begun.
    ///
    /// Example: canopy cluster add --servers 4 /gpfs/ns
    Add(Add),
    /// Split a large directory onto servers that were added
    ///
    /// Without this, its partitions split when they are next used. Partitions with at most a quarter of
    /// the entries at which they split by themselves stay whole. DIRECTORY is its path in the namespace.
    ///
    /// Example: canopy cluster balance /home/ada/results /gpfs/ns
    Balance(Balance),
    /// Check all records of all servers, and objects of contents
    ///
    /// Prints a line for each fault. Servers that run go on meanwhile. If no process runs, the command
    /// opens the tables itself. Exit code 1 means that there were faults. With --repair, mends what can
    /// be mended: files and directories that no name leads to get one in 'lost+found'. If some faults
    /// cannot be mended, the exit code is 2.
    ///
    /// Example: canopy cluster check /gpfs/ns
    Check(Check),
}

#[derive(clap::Args)]
pub struct Check {
    /// The namespace
    pub namespace: PathBuf,
    /// Mend what can be mended
    #[arg(long)]
    pub repair: bool,
    /// Read all contents, too, and compare them with their checksums
    ///
    /// With --repair, chunks that are damaged are lost: reading them fails until they are written
    /// again.
    #[arg(long)]
    pub data: bool,
    /// Check this snapshot instead
    #[arg(long, value_name = "NAME", conflicts_with = "repair")]
    pub snapshot: Option<String>,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Status {
    /// The namespace
    pub namespace: PathBuf,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Drain {
    /// The machine, as in the addresses that 'status' shows; with :PORT, one process
    pub host: String,
    /// The namespace
    pub namespace: PathBuf,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Add {
    /// The namespace
    pub namespace: PathBuf,
    /// Add N servers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub servers: u32,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Balance {
    /// The directory, by its path in the namespace
    pub directory: PathBuf,
    /// The namespace
    pub namespace: PathBuf,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Certificate {
    #[command(flatten)]
    pub task: Task,
    /// The namespace
    pub namespace: PathBuf,
    /// Let the node also speak for root
    #[arg(long)]
    pub root: bool,
    /// Make it valid for N days
    #[arg(long, value_name = "N", default_value_t = 365, conflicts_with_all = ["revoke", "list"])]
    pub days: u32,
    /// The file of the cluster's own key [default: NAMESPACE/cluster.key]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["revoke", "list"])]
    pub key: Option<PathBuf>,
    /// Write the certificate and its key to FILE [default: NAMESPACE/server.pem for servers of a
    /// directory, else server.pem, or the NAME of the node or user with .pem, in the working directory]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["revoke", "list"])]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there, to renew a certificate
    #[arg(long, conflicts_with_all = ["revoke", "list"])]
    pub replace: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}

/// Task with certificates.
#[derive(clap::Args)]
#[group(id = "task", required = true, multiple = false)]
pub struct Task {
    /// Make one for servers
    #[arg(long)]
    pub server: bool,
    /// Make one for the machine NAME
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Make one for a user, by name or number
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Revoke the certificate with this serial number, or with these first digits of it; servers refuse
    /// it within seconds, for good
    #[arg(long, value_name = "SERIAL")]
    pub revoke: Option<String>,
    /// List all certificates that were made
    #[arg(long)]
    pub list: bool,
    /// Make a new key for the cluster, which signs from now on; the old one is trusted until it is
    /// retired
    #[arg(long)]
    pub new_key: bool,
    /// Trust the newest key alone: servers refuse certificates of older ones within seconds, for good
    #[arg(long)]
    pub retire_key: bool,
}

#[derive(clap::Args)]
pub struct Partitions {
    /// The directory, by its path in the namespace
    pub directory: PathBuf,
    /// The namespace
    pub namespace: PathBuf,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Spread {
    /// The directory, by its path in the namespace
    pub directory: PathBuf,
    /// The namespace
    pub namespace: PathBuf,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Start {
    /// The namespace
    pub namespace: PathBuf,
    /// Listen at HOST:PORT, or at the socket unix:/PATH; other processes and clients find this one at
    /// the first address
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub listen: Vec<String>,
    /// Have others reach this process at ADDRESS, HOST:PORT, and not at the first --listen: where that is
    /// 0.0.0.0, or the network translates addresses. It has to lead here from this machine, too
    #[arg(long, value_name = "ADDRESS")]
    pub advertise: Option<String>,
    /// The file of the server's certificate [default: NAMESPACE/server.pem, if it is there]
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Let others take over after SECONDS without a sign of life; the same for all processes [default: 1
    /// in a directory, 3 in a bucket]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub lease: Option<f64>,
    /// Let the tables of all servers here take SIZE of memory together, such as 2G [default: 512M]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Serve numbers for Prometheus at http://HOST:PORT/metrics; they contain no names and no paths
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// Write these numbers for node_exporter's textfile collector to FILE every few seconds
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
    /// Read settings from FILE, named like these options [default: NAMESPACE/cluster.toml, if it is
    /// there]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
}
