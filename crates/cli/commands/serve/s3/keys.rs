//! Key pair of the gateway.

use std::env;

use nicstripe_s3::{Keys, KeysError};

use crate::failure::Failure;

/// Reads the keys from the environment; `None` if neither is set.
///
/// # Errors
///
/// Only one of them is set, or they cannot be keys.
pub(super) fn from_env() -> Result<Option<Keys>, Failure> {
    let failed = |why: String| Failure::Setting { key: ACCESS, why };
    let half = || failed(format!("expected {ACCESS} and {SECRET}, or neither"));
    let read = |name| match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(failed(format!("{name} is not UTF-8"))),
    };
    match (read(ACCESS)?, read(SECRET)?) {
        (Some(access), Some(secret)) => {
            let keys = Keys::new(access, secret);
            keys.map(Some).map_err(|error| failed(error.to_string()))
        }
        (None, None) => Ok(None),
        _ => Err(half()),
    }
}

/// Generates keys for this run.
pub(super) fn generated() -> Result<Keys, KeysError> {
    Keys::random()
}

pub(super) const ACCESS: &str = "AWS_ACCESS_KEY_ID";
pub(super) const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
