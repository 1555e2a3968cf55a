//! Key pair that requests are signed with.

use std::fmt;

use aws_lc_rs::rand;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Access key and secret key. `Debug` does not print the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    access: String,
    secret: String,
}

/// Error of making a key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The access key is empty, longer than 128 bytes, or has other characters than letters, digits, `-`,
    /// `_` and `.`.
    #[error("an access key has 1 to 128 letters, digits, `-`, `_` and `.`")]
    Access,
    /// The secret key is shorter than 8 bytes or longer than 128, or has control characters.
    #[error("a secret key has 8 to 128 bytes, none of them a control character")]
    Secret,
    /// The system provides no random numbers.
    #[error("the system provides no random numbers")]
    Random,
}

impl Keys {
    /// Returns a key pair of the user.
    ///
    /// # Errors
    ///
    /// One of the keys is not valid.
    pub fn new(access: impl Into<String>, secret: impl Into<String>) -> Result<Self, KeysError> {
        let (access, secret) = (access.into(), secret.into());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MOST).contains(&access.len()) || !access.bytes().all(is_plain) {
            return Err(KeysError::Access);
        }
        if !(LEAST_SECRET..=MOST).contains(&secret.len()) || secret.chars().any(char::is_control) {
            return Err(KeysError::Secret);
        }
        Ok(Self { access, secret })
    }

    /// Returns a random key pair; the secret has 240 bits.
    ///
    /// # Errors
    ///
    /// The system provides no random numbers.
    pub fn random() -> Result<Self, KeysError> {
        let mut bytes = [0; 40];
        rand::fill(&mut bytes).map_err(|_| KeysError::Random)?;
        let (access, secret) = bytes.split_at(10);
        let letter = |byte: &u8| char::from(b'A' + byte % 26);
        Self::new(
            format!("NS{}", access.iter().map(letter).collect::<String>()),
            URL_SAFE_NO_PAD.encode(secret),
        )
    }

    /// Returns the access key, which is no secret.
    pub fn access(&self) -> &str {
        &self.access
    }

    /// Returns the secret key.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

const MOST: usize = 128;
const LEAST_SECRET: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_not_printed_and_two_pairs_differ() {
        let (one, two) = (Keys::random().unwrap(), Keys::random().unwrap());
        assert_ne!(one, two);
        assert!(!format!("{one:?}").contains(one.secret()));
        assert_eq!(one.secret().len(), 40);
        assert_eq!(Keys::new("a b", "12345678"), Err(KeysError::Access));
        assert_eq!(Keys::new("", "12345678"), Err(KeysError::Access));
        assert_eq!(Keys::new("a", "1234567"), Err(KeysError::Secret));
        assert_eq!(Keys::new("a", "1234567\n"), Err(KeysError::Secret));
    }
}
