//! Errors of S3, and the one table that maps those of the daemon to them.

use std::{borrow::Cow, io};

use hyper::StatusCode;
use nicstripe::{Error, FailCode};

/// Error code of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    AccessDenied,
    AclNotSupported,
    BadDigest,
    BucketAlreadyOwnedByYou,
    BucketNotEmpty,
    ContentSha256Mismatch,
    EntityTooLarge,
    Forwarded,
    IncompleteBody,
    InsufficientStorage,
    InternalError,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidBucketName,
    InvalidDigest,
    InvalidPart,
    InvalidPartOrder,
    InvalidRange,
    InvalidRequest,
    InvalidStorageClass,
    KeyTooLong,
    MalformedXml,
    MetadataTooLarge,
    MethodNotAllowed,
    MissingContentLength,
    NameConflict,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    /// The bucket has no configuration of this kind.
    NotConfigured(&'static str),
    NotImplemented,
    PreconditionFailed,
    RequestTimeTooSkewed,
    RequestTimeout,
    SignatureDoesNotMatch,
    SlowDown,
}

impl Code {
    /// Returns the word of the code, and the HTTP status.
    fn told(self) -> (&'static str, u16) {
        match self {
            Self::AccessDenied => ("AccessDenied", 403),
            Self::AclNotSupported => ("AccessControlListNotSupported", 400),
            Self::BadDigest => ("BadDigest", 400),
            Self::BucketAlreadyOwnedByYou => ("BucketAlreadyOwnedByYou", 409),
            Self::BucketNotEmpty => ("BucketNotEmpty", 409),
            Self::ContentSha256Mismatch => ("XAmzContentSHA256Mismatch", 400),
            Self::EntityTooLarge => ("EntityTooLarge", 400),
            Self::Forwarded => ("InvalidRequest", 421),
            Self::IncompleteBody => ("IncompleteBody", 400),
            Self::InsufficientStorage => ("InsufficientStorage", 507),
            Self::InternalError => ("InternalError", 500),
            Self::InvalidAccessKeyId => ("InvalidAccessKeyId", 403),
            Self::InvalidArgument => ("InvalidArgument", 400),
            Self::InvalidBucketName => ("InvalidBucketName", 400),
            Self::InvalidDigest => ("InvalidDigest", 400),
            Self::InvalidPart => ("InvalidPart", 400),
            Self::InvalidPartOrder => ("InvalidPartOrder", 400),
            Self::InvalidRange => ("InvalidRange", 416),
            Self::InvalidRequest => ("InvalidRequest", 400),
            Self::InvalidStorageClass => ("InvalidStorageClass", 400),
            Self::KeyTooLong => ("KeyTooLongError", 400),
            Self::MalformedXml => ("MalformedXML", 400),
            Self::MetadataTooLarge => ("MetadataTooLarge", 400),
            Self::MethodNotAllowed => ("MethodNotAllowed", 405),
            Self::MissingContentLength => ("MissingContentLength", 411),
            Self::NameConflict => ("NameConflict", 409),
            Self::NoSuchBucket => ("NoSuchBucket", 404),
            Self::NoSuchKey => ("NoSuchKey", 404),
            Self::NoSuchUpload => ("NoSuchUpload", 404),
            Self::NotConfigured(word) => (word, 404),
            Self::NotImplemented => ("NotImplemented", 501),
            Self::PreconditionFailed => ("PreconditionFailed", 412),
            Self::RequestTimeTooSkewed => ("RequestTimeTooSkewed", 403),
            Self::RequestTimeout => ("RequestTimeout", 400),
            Self::SignatureDoesNotMatch => ("SignatureDoesNotMatch", 403),
            Self::SlowDown => ("SlowDown", 503),
        }
    }

    /// Returns the code for an error of the daemon or of the way there.
    fn of(error: &Error) -> Self {
        match error.fail_code() {
            Some(FailCode::NotFound) => Self::NoSuchKey,
            // Also the rights of an append-only peer, which replaces and removes nothing.
            Some(FailCode::Refused | FailCode::NotPermitted) => Self::AccessDenied,
            Some(FailCode::Exists | FailCode::Precondition) => Self::PreconditionFailed,
            Some(FailCode::NoSpace) => Self::InsufficientStorage,
            Some(FailCode::NotAFile | FailCode::NotADirectory | FailCode::Occupied) => {
                Self::NameConflict
            }
            Some(FailCode::Range) => Self::InvalidRange,
            _ if matches!(error, Error::Unsupported { .. }) => Self::NotImplemented,
            _ if error.is_retryable() => Self::SlowDown,
            _ => Self::InternalError,
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
    pub(crate) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        self.code.told().0
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.told().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the error of a read: a name that is no file has no object.
    pub(crate) fn of_read(error: Error) -> Self {
        let read = Self::from(error);
        match read.code {
            Code::NameConflict => Self::new(Code::NoSuchKey, read.message),
            _ => read,
        }
    }

    /// Returns this error with another code if it says that there is no such object.
    pub(crate) fn missing(self, code: Code) -> Self {
        match self.code {
            Code::NoSuchKey | Code::NameConflict => Self::new(code, self.message),
            _ => self,
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.code == Code::NoSuchKey
    }
}

impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        Self::new(Code::of(&error), nicstripe::chain(&error))
    }
}

/// Unwraps the library's error from that of a writer.
impl From<io::Error> for S3Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(Code::InternalError, nicstripe::chain(&error)),
        }
    }
}
