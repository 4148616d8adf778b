//! TLS for the API over the network: the control node's certificate, and clients that know it by
//! its fingerprint.
//!
//! Key types: [`Certificate`] (made at the first start), [`Fingerprint`], [`Accepting`] (a
//! connection whose handshake is under way). Neighbours: `serve` listens, `client` connects.
//!
//! A cluster's control node has no name that an authority would sign for, so the certificate signs
//! itself, and whoever connects knows its fingerprint beforehand. Names and dates in it say
//! nothing.
//!
//! Invariants: the private key is its owner's alone, as the other secrets are; nothing is sent to a
//! node whose certificate has another fingerprint; TLS 1.3 and no other version.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::{durable, secrets};

/// The name in certificates, and what clients say whom they want: nobody looks at it.
const NAME: &str = "hearth";

/// SHA-256 of a certificate, by which clients know it: as `openssl x509 -fingerprint -sha256` has
/// it, without the colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Fingerprint(digest.as_ref().try_into().expect("256 bits"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&secrets::encode_hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim().replace(':', "");
        let bytes = secrets::decode_hex(&digits).ok_or_else(|| {
            format!("{text:?} is no fingerprint: that is 64 hexadecimal digits, as `hearth serve` prints at its start and `hearth token create` does")
        })?;
        Ok(Fingerprint(bytes))
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of it cannot be used.
    #[error(transparent)]
    Key(#[from] secrets::SecretError),
    /// The certificate cannot be read or written.
    #[error("cannot read or write {path}: {source}; is its folder there and writable?")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be made.
    #[error("a certificate cannot be made: {0}")]
    Make(String),
    /// Certificate and key do not go together.
    #[error(
        "{path} and the key beside it are damaged or do not belong together ({why}); remove both and new ones are made: clients then need the new fingerprint"
    )]
    Damaged {
        /// The certificate.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The control node's certificate, with its key.
pub struct Certificate {
    /// By what clients know it.
    pub fingerprint: Fingerprint,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Certificate");
        shown.field("fingerprint", &self.fingerprint);
        shown.finish_non_exhaustive()
    }
}

impl Certificate {
    /// Loads the certificate at `path` and its key at `key`, or makes them.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn load_or_make(path: &Path, key: &Path) -> Result<Self, CertificateError> {
        let failed = |source| CertificateError::File {
            path: path.into(),
            source,
        };
        if !path.exists() {
            let made = rcgen::generate_simple_self_signed([NAME.to_string()]);
            let made = made.map_err(|error| CertificateError::Make(error.to_string()))?;
            // The key first: a certificate that is there has one.
            let text = secrets::encode_hex(made.signing_key.serialized_der());
            secrets::put(key, &text)?;
            durable::create(path, made.cert.der(), 0o644).map_err(failed)?;
        }
        let der = CertificateDer::from(std::fs::read(path).map_err(failed)?);
        let text = secrets::read(key)?;
        let damaged = |why: String| CertificateError::Damaged {
            path: path.into(),
            why,
        };
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes());
        let bytes = bytes.map_err(|error| damaged(format!("the key: {error}")))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(bytes));
        let fingerprint = Fingerprint::of(&der);
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![der], key)
            .map_err(|error| damaged(error.to_string()))?;
        Ok(Certificate {
            fingerprint,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// A connection whose handshake is made while it is first read or written.
    pub fn accept<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> Accepting<I> {
        Accepting::Handshake(Box::new(self.acceptor.accept(io)))
    }
}

/// A connection of a client.
pub enum Accepting<I> {
    /// The handshake is under way.
    Handshake(Box<Accept<I>>),
    /// It is open.
    Open(Box<TlsStream<I>>),
    /// The handshake has failed.
    Failed,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Accepting<I> {
    fn open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<I>>> {
        if let Accepting::Handshake(accept) = self {
            *self = match ready!(Pin::new(accept.as_mut()).poll(context)) {
                Ok(stream) => Accepting::Open(Box::new(stream)),
                Err(error) => {
                    *self = Accepting::Failed;
                    return Poll::Ready(Err(error));
                }
            };
        }
        match self {
            Accepting::Open(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Accepting<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_read(context, buffer)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Accepting<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.open(context))?;
        Pin::new(stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.as_mut().get_mut() {
            Accepting::Open(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written.
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.as_mut().get_mut() {
            Accepting::Open(stream) => Pin::new(stream).poll_shutdown(context),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// A client's side of connections to the control node with this fingerprint.
pub fn connector(fingerprint: Fingerprint) -> tokio_rustls::TlsConnector {
    let provider = Arc::new(provider::default_provider());
    let verifier = Arc::new(Pinned {
        fingerprint,
        provider: provider.clone(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Arc::new(config).into()
}

/// Why a handshake failed, and what to do.
pub fn why(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::General(text)) => text.clone(),
        Some(rustls::Error::InvalidMessage(_)) => {
            "what answers there does not speak TLS; --host takes the address of `hearth serve --listen`"
                .to_string()
        }
        _ => format!("{error}; --host takes the address of `hearth serve --listen`"),
    }
}

/// Whom a client says it wants.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("a name")
}

/// Takes one certificate and no other.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "its certificate has the fingerprint {found}, and {} was expected; it is another control node, somebody in between, or has a new certificate: compare with what `hearth serve` prints there at its start, then use that (--fingerprint, HEARTH_FINGERPRINT)",
            self.fingerprint
        )))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_string()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn made(dir: &Path) -> Certificate {
        Certificate::load_or_make(&dir.join("cert.der"), &dir.join("cert.key")).unwrap()
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = made(dir.path()).fingerprint;
        assert_eq!(made(dir.path()).fingerprint, first);
        let key = dir.path().join("cert.key");
        let mode = std::fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(made(other.path()).fingerprint, first);
        // A key of another certificate, and one that others can read.
        std::fs::copy(other.path().join("cert.key"), &key).unwrap();
        let load = || Certificate::load_or_make(&dir.path().join("cert.der"), &key).unwrap_err();
        assert!(matches!(load(), CertificateError::Damaged { .. }));
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load().to_string().contains("can be read by others"));
    }

    #[test]
    fn fingerprints_are_read_as_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let fingerprint = made(dir.path()).fingerprint;
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        let pairs: Vec<String> = (0..32)
            .map(|at| text[2 * at..][..2].to_uppercase())
            .collect();
        assert_eq!(pairs.join(":").parse(), Ok(fingerprint));
        for wrong in ["", "ab", &text[1..]] {
            let error = wrong.parse::<Fingerprint>().unwrap_err();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }

    /// What a client with this fingerprint gets from a node with this certificate.
    async fn ask(certificate: &Certificate, fingerprint: Fingerprint) -> io::Result<String> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let mut server = certificate.accept(far);
        let serving = async move {
            let mut asked = [0; 4];
            server.read_exact(&mut asked).await?;
            server.write_all(&asked).await?;
            server.shutdown().await
        };
        let asking = async {
            let mut stream = connector(fingerprint).connect(server_name(), near).await?;
            stream.write_all(b"ping").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        let (_, answer) = tokio::join!(serving, asking);
        answer
    }

    #[tokio::test]
    async fn a_client_speaks_to_the_certificate_that_it_knows_and_to_no_other() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (own, strange) = (made(dir.path()), made(other.path()));
        assert_eq!(ask(&own, own.fingerprint).await.unwrap(), "ping");
        let error = ask(&strange, own.fingerprint)
            .await
            .unwrap_err()
            .to_string();
        let names_both = error.contains(&strange.fingerprint.to_string())
            && error.contains(&own.fingerprint.to_string());
        assert!(names_both && error.contains("--fingerprint"), "{error}");
    }

    #[tokio::test]
    async fn who_does_not_speak_tls_gets_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let certificate = made(dir.path());
        let (mut near, far) = tokio::io::duplex(1024);
        let mut server = certificate.accept(far);
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(server.read_u8().await.is_err());
        assert!(server.read_u8().await.is_err(), "and no panic");
    }
}
