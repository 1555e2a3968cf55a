//! Key pair of this machine.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::file::{self, FileError};
use super::key::PublicKey;

/// Ed25519 key pair that identifies this machine.
///
/// On disk it is PKCS#8 in PEM (`openssl pkey -in identity -text` reads it), readable only by its
/// owner. In memory aws-lc holds the secret and erases it with the last clone. The secret cannot be
/// exported, and `Debug` does not show it.
#[derive(Clone)]
pub struct Identity {
    public: PublicKey,
    certified: Arc<CertifiedKey>,
}

impl Identity {
    /// Generates a key pair without a file, such as for a single session over ssh.
    ///
    /// ```
    /// let identity = nicstripe::trust::Identity::generate()?;
    /// println!("{}", identity.public_key());
    /// # Ok::<(), nicstripe::trust::IdentityError>(())
    /// ```
    pub fn generate() -> Result<Self, IdentityError> {
        let der = Secret(new_key()?);
        Self::from_der(&der.0, Path::new("(new)"))
    }

    /// Reads the key pair in `path`.
    ///
    /// ```no_run
    /// let identity = nicstripe::trust::Identity::load("/etc/backup-tool/identity")?;
    /// # Ok::<(), nicstripe::trust::IdentityError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The file does not exist, is not a regular file (symbolic links are followed), is accessible
    /// to group or others, or is not a PKCS#8 Ed25519 key in PEM.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, IdentityError> {
        let path = path.as_ref();
        let text = Secret(file::read_private(path, MAX_FILE)?);
        let malformed = || IdentityError::Malformed {
            path: path.to_owned(),
        };
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text.0).map_err(|_| malformed())?;
        let der = Secret(der.secret_pkcs8_der().to_vec());
        Self::from_der(&der.0, path)
    }

    /// Reads the key pair in `path`, or creates it if it is missing.
    ///
    /// A new file is created atomically and durably with mode 0600, missing folders with mode 0700.
    /// Two concurrent processes get the same key.
    ///
    /// ```no_run
    /// let identity =
    ///     nicstripe::trust::Identity::load_or_create("/etc/backup-tool/identity")?;
    /// println!("{}", identity.public_key());
    /// # Ok::<(), nicstripe::trust::IdentityError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Identity::load`]; or the file cannot be written.
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, IdentityError> {
        let path = path.as_ref();
        match Self::load(path) {
            Err(IdentityError::File(error)) if error.is_missing() => {}
            other => return other,
        }
        let der = Secret(new_key()?);
        let pem = Secret(to_pem(&der.0).into_bytes());
        match file::create_private(path, &pem.0) {
            Ok(()) => Self::from_der(&der.0, path),
            Err(error) if error.is_taken() => Self::load(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the public key, by which other machines identify this one.
    ///
    /// ```
    /// let identity = nicstripe::trust::Identity::generate()?;
    /// println!("{}", identity.public_key().fingerprint());
    /// # Ok::<(), nicstripe::trust::IdentityError>(())
    /// ```
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns the key pair for TLS: the SubjectPublicKeyInfo in place of a certificate (RFC 7250),
    /// and the signing key.
    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    fn from_der(der: &[u8], path: &Path) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed {
            path: path.to_owned(),
        };
        let pair = Ed25519KeyPair::from_pkcs8(der).map_err(|_| malformed())?;
        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .ok()
            .and_then(|bytes| PublicKey::from_bytes(bytes).ok())
            .ok_or_else(malformed)?;
        let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(der)).map_err(|_| malformed())?;
        let spki = CertificateDer::from(public.to_spki().to_vec());
        Ok(Self {
            public,
            certified: Arc::new(CertifiedKey::new(vec![spki], signer)),
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Failure to load or create an [`Identity`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read or written, or other users could read it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not an Ed25519 private key, PKCS#8 in PEM.
    #[error("{path:?} is not an identity: expected an Ed25519 private key, PKCS#8 in PEM")]
    Malformed {
        /// Path of the file.
        path: PathBuf,
    },
    /// The system's random number generator failed.
    #[error("cannot make a key pair: the system provides no random numbers")]
    NoRandom,
}

impl IdentityError {
    /// Returns the error of the operating system, if a system call failed.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::File(error) => error.io(),
            Self::Malformed { .. } | Self::NoRandom => None,
        }
    }
}

/// Bytes of a private key, overwritten on drop.
struct Secret(Vec<u8>);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without a reader the compiler may remove the stores.
        std::hint::black_box(&mut self.0);
    }
}

fn new_key() -> Result<Vec<u8>, IdentityError> {
    let pair = Ed25519KeyPair::generate().map_err(|_| IdentityError::NoRandom)?;
    let document = pair.to_pkcs8v1().map_err(|_| IdentityError::NoRandom)?;
    Ok(document.as_ref().to_vec())
}

fn to_pem(der: &[u8]) -> String {
    let mut body = STANDARD.encode(der);
    // 48 bytes of DER are 64 characters: an Ed25519 key without its public half fits one line (RFC
    // 8410, section 10.3).
    debug_assert!(body.len() <= 64);
    body.insert_str(0, "-----BEGIN PRIVATE KEY-----\n");
    body.push_str("\n-----END PRIVATE KEY-----\n");
    body
}

/// Maximum size of an identity file in bytes. A generated file has 119; other tools add comments
/// around the PEM.
const MAX_FILE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/identity");
        (folder, path)
    }

    #[test]
    fn the_first_use_makes_a_private_file_and_later_ones_read_it() {
        let (_folder, path) = folder();
        let made = Identity::load_or_create(&path).unwrap().public_key();
        assert_eq!(Identity::load_or_create(&path).unwrap().public_key(), made);
        assert_eq!(Identity::load(&path).unwrap().public_key(), made);
        for (path, mode) in [(&*path, 0o600), (path.parent().unwrap(), 0o700)] {
            let permissions = fs::metadata(path).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o7777, mode);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("-----BEGIN PRIVATE KEY-----\n") && text.len() == 119,
            "{} bytes",
            text.len()
        );
    }

    #[test]
    fn whoever_comes_at_the_same_time_gets_the_same_key() {
        let (_folder, path) = folder();
        let keys: Vec<PublicKey> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Identity::load_or_create(&path).unwrap().public_key()))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let (_folder, path) = folder();
        Identity::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load_or_create(&path).unwrap_err().to_string();
            let said = "others could read or change it: expected 0600 (chmod 600)";
            assert!(
                error.ends_with(&format!("mode {mode:04o}, {said}")),
                "{error}"
            );
        }
    }

    #[test]
    fn other_contents_are_refused_and_left_alone() {
        let (_folder, path) = folder();
        Identity::load_or_create(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        // Header of an X25519 key, which has the same length.
        let other = good.replace("MC4CAQAwBQYDK2Vw", "MC4CAQAwBQYDK2Vu");
        assert_ne!(other, good);
        for text in ["", "hello", &good[..80], &other] {
            fs::write(&path, text).unwrap();
            let error = Identity::load_or_create(&path).unwrap_err().to_string();
            let said = "is not an identity: expected an Ed25519 private key, PKCS#8 in PEM";
            assert!(error.ends_with(said), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, vec![b'x'; MAX_FILE + 1]).unwrap();
        assert!(matches!(
            Identity::load(&path),
            Err(IdentityError::File(FileError::TooLong { .. }))
        ));
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let (folder, _) = folder();
        let pipe = folder.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
        for path in [&*pipe, folder.path()] {
            assert!(matches!(
                Identity::load(path),
                Err(IdentityError::File(FileError::NotRegular { .. }))
            ));
        }
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(matches!(
            Identity::load_or_create(&socket),
            Err(IdentityError::File(FileError::Io { action: "open", .. }))
        ));
    }

    #[test]
    fn debug_shows_the_public_half_only() {
        let der = new_key().unwrap();
        let identity = Identity::from_der(&der, Path::new("x")).unwrap();
        let shown = format!("{identity:?}");
        assert!(
            shown.contains(&format!("{:?}", identity.public_key())),
            "{shown}"
        );
        // RFC 8410: the last 32 bytes of the short form are the seed.
        let seed = STANDARD.encode(&der[der.len() - 32..]);
        assert!(!shown.contains(&seed[..40]));
    }
}
