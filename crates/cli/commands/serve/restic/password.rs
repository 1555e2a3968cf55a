//! Password that HTTP requests over TCP must carry.
//!
//! It comes from `RCLONE_USER` and `RCLONE_PASS`, which rustic sets as well as rclone, or is
//! generated for this run.

use std::io;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hyper::header::{AUTHORIZATION, HeaderMap};

use super::super::gateway;
use crate::failure::Failure;

/// Hash of the user and password that a request must carry. Comparing hashes takes constant time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Password(blake3::Hash);

impl Password {
    /// Reads user and password from the environment; `None` if neither is set.
    pub(super) fn from_env() -> Result<Option<Self>, Failure> {
        let set = gateway::pair(USER, PASSWORD)?;
        Ok(set.map(|(user, password)| Self::of(&user, &password)))
    }

    /// Generates a random password, and returns it with its URL form, `user:password`.
    pub(super) fn random() -> io::Result<(Self, String)> {
        let mut bytes = [0; RANDOM_BYTES];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system provides no random numbers"))?;
        let password = URL_SAFE_NO_PAD.encode(bytes);
        Ok((
            Self::of(RANDOM_USER, &password),
            format!("{RANDOM_USER}:{password}"),
        ))
    }

    pub(super) fn of(user: &str, password: &str) -> Self {
        Self(blake3::hash(format!("{user}:{password}").as_bytes()))
    }

    /// Returns true if a request carries this user and password in its `Authorization` header (RFC
    /// 7617).
    pub(super) fn is_known_to(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, code) = value.to_str().ok()?.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("basic")
                .then(|| STANDARD.decode(code.trim()).ok())?
        });
        given.is_some_and(|given| blake3::hash(&given) == self.0)
    }
}

/// Length of a generated password in bytes, as long as an AES-128 key.
const RANDOM_BYTES: usize = 16;

const RANDOM_USER: &str = "restic";

pub(super) const USER: &str = "RCLONE_USER";
const PASSWORD: &str = "RCLONE_PASS";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn who_names_the_password_is_let_in_and_nobody_else() {
        let password = Password::of("Aladdin", "open sesame");
        assert!(password.is_known_to(&headers("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")));
        assert!(password.is_known_to(&headers("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")));
        for wrong in [
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZR==",
            "Basic",
            "Basic ",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
            "Basic =",
            "",
        ] {
            assert!(!password.is_known_to(&headers(wrong)), "{wrong:?}");
        }
        assert!(!password.is_known_to(&HeaderMap::new()));
    }
}
