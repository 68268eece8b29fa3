//! `canopy cluster`: its arguments. `canopy-cluster` carries it out.

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
}

#[derive(clap::Args)]
pub struct Certificate {
    #[command(flatten)]
    pub task: Task,
    /// The namespace
    pub namespace: PathBuf,
    /// Let the node also speak for root
    #[arg(long, requires = "node")]
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
}
