//! Fields of certificates, as X.509 encodes them. rustls does not hand them out.

use yasna::models::ObjectIdentifier;
use yasna::tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, PCBit, Tag, parse_der};

/// The encoding of version 3, which has extensions.
const VERSION_3: u8 = 2;

/// The extension with alternative names.
const ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];

/// Tag of a name that is a URI.
const URI: u64 = 6;

/// Fields of a certificate.
pub(super) struct Fields {
    /// Its serial number, without its sign.
    pub(super) serial: Vec<u8>,
    /// The end of its validity, in seconds since 1970.
    pub(super) not_after_s: i64,
    /// The public key with its kind, in DER.
    pub(super) public_key: Vec<u8>,
    /// Extensions of alternative names.
    alternative_names: Vec<Vec<u8>>,
}

impl Fields {
    /// Reads a certificate in DER; nothing if it is damaged.
    pub(super) fn read(certificate: &[u8]) -> Option<Self> {
        let fields = parse_der(certificate, |reader| {
            reader.read_sequence(|reader| {
                let fields = reader.next().read_sequence(signed_fields)?;
                let _algorithm = reader.next().read_der()?;
                let _signature = reader.next().read_der()?;
                Ok(fields)
            })
        });
        fields.ok()
    }

    /// Returns the name, if it is the only one of any kind and a URI.
    pub(super) fn only_uri(&self) -> Option<String> {
        let [names] = &self.alternative_names[..] else { return None };
        let names = parse_der(names, |reader| {
            reader.collect_sequence_of(|reader| reader.read_tagged_der())
        });
        let [name] = &names.ok()?[..] else { return None };
        let is_uri = name.tag() == Tag::context(URI) && name.pcbit() == PCBit::Primitive;
        is_uri.then(|| std::str::from_utf8(name.value()).ok().map(str::to_owned))?
    }
}

/// Reads the fields that the signature covers.
fn signed_fields(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Fields> {
    let version = reader.next().read_tagged(Tag::context(0), |reader| reader.read_u8())?;
    if version != VERSION_3 {
        return Err(ASN1Error::new(ASN1ErrorKind::Invalid));
    }
    let (serial, _) = reader.next().read_bigint_bytes()?;
    let _algorithm = reader.next().read_der()?;
    let _issuer = reader.next().read_der()?;
    let not_after_s = reader.next().read_sequence(|reader| {
        let _not_before_s = moment(reader.next())?;
        moment(reader.next())
    })?;
    let _subject = reader.next().read_der()?;
    let public_key = reader.next().read_der()?;
    let extensions = reader
        .next()
        .read_tagged(Tag::context(3), |reader| reader.collect_sequence_of(extension))?;
    let is_names = |(id, _): &(ObjectIdentifier, _)| id.components() == ALTERNATIVE_NAMES;
    let alternative_names = extensions.into_iter().filter(is_names);
    let alternative_names = alternative_names.map(|(_, value)| value).collect();
    Ok(Fields { serial, not_after_s, public_key, alternative_names })
}

fn extension(reader: BERReader<'_, '_>) -> ASN1Result<(ObjectIdentifier, Vec<u8>)> {
    reader.read_sequence(|reader| {
        let id = reader.next().read_oid()?;
        let _is_critical = reader.read_default(false, |reader| reader.read_bool())?;
        Ok((id, reader.next().read_bytes()?))
    })
}

fn moment(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    match reader.lookahead_tag()? {
        TAG_UTCTIME => Ok(reader.read_utctime()?.datetime().unix_timestamp()),
        TAG_GENERALIZEDTIME => Ok(reader.read_generalized_time()?.datetime().unix_timestamp()),
        _ => Err(ASN1Error::new(ASN1ErrorKind::Invalid)),
    }
}
