//! Errors of S3, and the one table that maps those of the daemon to them.

use std::{borrow::Cow, fmt, io};

use hyper::StatusCode;
use nicstripe::{Error, FailCode};

/// Error code of S3: its word, and the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(&'static str, u16);

impl Code {
    pub(crate) const ACCESS_DENIED: Self = Self("AccessDenied", 403);
    pub(crate) const ACL_NOT_SUPPORTED: Self = Self("AccessControlListNotSupported", 400);
    pub(crate) const BAD_DIGEST: Self = Self("BadDigest", 400);
    pub(crate) const BUCKET_ALREADY_OWNED_BY_YOU: Self = Self("BucketAlreadyOwnedByYou", 409);
    pub(crate) const BUCKET_NOT_EMPTY: Self = Self("BucketNotEmpty", 409);
    pub(crate) const CONTENT_SHA256_MISMATCH: Self = Self("XAmzContentSHA256Mismatch", 400);
    pub(crate) const ENTITY_TOO_LARGE: Self = Self("EntityTooLarge", 400);
    pub(crate) const FORWARDED: Self = Self("InvalidRequest", 421);
    pub(crate) const INCOMPLETE_BODY: Self = Self("IncompleteBody", 400);
    pub(crate) const INSUFFICIENT_STORAGE: Self = Self("InsufficientStorage", 507);
    pub(crate) const INTERNAL_ERROR: Self = Self("InternalError", 500);
    pub(crate) const INVALID_ACCESS_KEY_ID: Self = Self("InvalidAccessKeyId", 403);
    pub(crate) const INVALID_ARGUMENT: Self = Self("InvalidArgument", 400);
    pub(crate) const INVALID_BUCKET_NAME: Self = Self("InvalidBucketName", 400);
    pub(crate) const INVALID_DIGEST: Self = Self("InvalidDigest", 400);
    pub(crate) const INVALID_PART: Self = Self("InvalidPart", 400);
    pub(crate) const INVALID_PART_ORDER: Self = Self("InvalidPartOrder", 400);
    pub(crate) const INVALID_RANGE: Self = Self("InvalidRange", 416);
    pub(crate) const INVALID_REQUEST: Self = Self("InvalidRequest", 400);
    pub(crate) const INVALID_STORAGE_CLASS: Self = Self("InvalidStorageClass", 400);
    pub(crate) const KEY_TOO_LONG: Self = Self("KeyTooLongError", 400);
    pub(crate) const MALFORMED_XML: Self = Self("MalformedXML", 400);
    pub(crate) const METADATA_TOO_LARGE: Self = Self("MetadataTooLarge", 400);
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self("MethodNotAllowed", 405);
    pub(crate) const MISSING_CONTENT_LENGTH: Self = Self("MissingContentLength", 411);
    pub(crate) const NAME_CONFLICT: Self = Self("NameConflict", 409);
    pub(crate) const NO_SUCH_BUCKET: Self = Self("NoSuchBucket", 404);
    pub(crate) const NO_SUCH_KEY: Self = Self("NoSuchKey", 404);
    pub(crate) const NO_SUCH_UPLOAD: Self = Self("NoSuchUpload", 404);
    pub(crate) const NOT_IMPLEMENTED: Self = Self("NotImplemented", 501);
    pub(crate) const PRECONDITION_FAILED: Self = Self("PreconditionFailed", 412);
    pub(crate) const REQUEST_TIME_TOO_SKEWED: Self = Self("RequestTimeTooSkewed", 403);
    pub(crate) const REQUEST_TIMEOUT: Self = Self("RequestTimeout", 400);
    pub(crate) const SIGNATURE_DOES_NOT_MATCH: Self = Self("SignatureDoesNotMatch", 403);
    pub(crate) const SLOW_DOWN: Self = Self("SlowDown", 503);

    /// Returns the code of a bucket that has no configuration of a kind.
    pub(crate) const fn not_configured(word: &'static str) -> Self {
        Self(word, 404)
    }

    pub(crate) fn because(self, message: impl Into<Cow<'static, str>>) -> S3Error {
        S3Error {
            code: self,
            message: message.into(),
        }
    }

    /// Returns the code for an error of the daemon or of the way there.
    fn of(error: &Error) -> Self {
        match error.fail_code() {
            Some(FailCode::NotFound) => Self::NO_SUCH_KEY,
            // Also the rights of an append-only peer, which replaces and removes nothing.
            Some(FailCode::Refused | FailCode::NotPermitted) => Self::ACCESS_DENIED,
            Some(FailCode::Exists | FailCode::Precondition) => Self::PRECONDITION_FAILED,
            Some(FailCode::NoSpace) => Self::INSUFFICIENT_STORAGE,
            Some(FailCode::NotAFile | FailCode::NotADirectory | FailCode::Occupied) => {
                Self::NAME_CONFLICT
            }
            Some(FailCode::Range) => Self::INVALID_RANGE,
            _ if matches!(error, Error::Unsupported { .. }) => Self::NOT_IMPLEMENTED,
            _ if error.is_retryable() => Self::SLOW_DOWN,
            _ => Self::INTERNAL_ERROR,
        }
    }
}

/// Reason why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct S3Error {
    pub(crate) code: Code,
    pub(crate) message: Cow<'static, str>,
}

impl S3Error {
    /// Returns the error of a request for something that the gateway does not have.
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Code::NOT_IMPLEMENTED.because(format!("{what} is not supported"))
    }

    pub(crate) fn word(&self) -> &'static str {
        self.code.0
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the error of a read: a name that is no file has no object.
    pub(crate) fn of_read(error: Error) -> Self {
        let read = Self::from(error);
        match read.code {
            Code::NAME_CONFLICT => Code::NO_SUCH_KEY.because(read.message),
            _ => read,
        }
    }

    /// Returns this error with another code if it says that there is no such object.
    pub(crate) fn missing(self, code: Code) -> Self {
        match self.code {
            Code::NO_SUCH_KEY | Code::NAME_CONFLICT => code.because(self.message),
            _ => self,
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.code == Code::NO_SUCH_KEY
    }
}

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        Code::of(&error).because(nicstripe::chain(&error))
    }
}

/// Unwraps the library's error from that of a writer.
impl From<io::Error> for S3Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Code::INTERNAL_ERROR.because(nicstripe::chain(&error)),
        }
    }
}
