//! Certificates for both ends, as files that both processes read.

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::Path;

/// Writes a root certificate, and certificates and keys of a server and a client.
pub fn write(directory: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(directory.join("root.pem"), params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["localhost", "127.0.0.1"].map(String::from))?;
        let certificate = params.signed_by(&key, &issuer)?;
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem())?;
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}

/// Reads one of these files.
pub fn read(directory: &Path, name: &str) -> Result<Vec<u8>> {
    Ok(std::fs::read(directory.join(name))?)
}
