//! Buckets and keys as names at the daemon.

use nicstripe::Name;

use crate::protocol::error::{Code, S3Error};

/// Bucket: a directory directly below the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) dir: Name,
}

/// Object that a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) bucket: Bucket,
    pub(crate) key: String,
    /// Name of the file, or of the directory of a key that ends with `/`.
    pub(crate) name: Name,
    pub(crate) is_folder: bool,
}

/// Directory in each bucket for the parts of uploads that are not complete. No key is in it, and no
/// listing shows it.
pub(crate) const UPLOADS: &str = ".nicstripe-uploads";

impl Bucket {
    pub(crate) fn new(base: Option<&Name>, name: &str) -> Result<Self, S3Error> {
        if !is_bucket(name.as_bytes()) {
            let why =
                "a bucket is a directory of letters, digits, `-`, `_` and `.`, not at the start";
            return Err(Code::INVALID_BUCKET_NAME.because(why));
        }
        let above = base.into_iter().flat_map(Name::components);
        let dir = Name::new(above.chain([name.as_bytes()]));
        Ok(Self {
            name: name.to_owned(),
            dir: dir.map_err(|error| Code::INVALID_BUCKET_NAME.because(error.to_string()))?,
        })
    }

    /// Returns the object of a key in this bucket.
    pub(crate) fn target(&self, key: &str) -> Result<Target, S3Error> {
        if key.len() > LONGEST_KEY {
            let why = format!("a key has at most {LONGEST_KEY} bytes");
            return Err(Code::KEY_TOO_LONG.because(why));
        }
        let is_folder = key.ends_with('/');
        let path = key.strip_suffix('/').unwrap_or(key);
        let refused = |why: String| {
            Code::INVALID_ARGUMENT.because(format!("a key is the path of a file here: {why}"))
        };
        let below = path.split('/').map(str::as_bytes);
        let name = Name::new(self.dir.components().chain(below));
        let name = name.map_err(|error| refused(error.to_string()))?;
        if path.split('/').next() == Some(UPLOADS) {
            return Err(refused(format!("{UPLOADS} is for parts of uploads")));
        }
        Ok(Target {
            bucket: self.clone(),
            key: key.to_owned(),
            name,
            is_folder,
        })
    }

    /// Returns the name of what is below the bucket; the bucket itself for an empty path.
    pub(crate) fn below(&self, path: &str) -> Option<Name> {
        let below = path.split('/').filter(|_| !path.is_empty());
        Name::new(self.dir.components().chain(below.map(str::as_bytes))).ok()
    }

    /// Returns the directory for the parts of uploads.
    pub(crate) fn uploads(&self) -> Result<Name, S3Error> {
        let uploads = self.below(UPLOADS);
        uploads.ok_or_else(|| Code::INVALID_BUCKET_NAME.because("the bucket is too deep"))
    }
}

impl Target {
    /// Returns the directories that hold the object within its bucket, the innermost first.
    pub(crate) fn parents(&self) -> Vec<Name> {
        let of_bucket = self.bucket.dir.components().len();
        std::iter::successors(self.name.parent(), Name::parent)
            .take_while(|dir| dir.components().len() > of_bucket)
            .collect()
    }
}

pub(crate) fn is_bucket(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    !name.is_empty() && name.len() <= 255 && !name.starts_with(b".") && name.iter().all(is_plain)
}

/// Maximum length of a key in bytes, that of S3.
pub(crate) const LONGEST_KEY: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_path_of_a_file_and_nothing_else() {
        let base = Name::parse(b"lake").unwrap();
        let bucket = Bucket::new(Some(&base), "raw").unwrap();
        let target = bucket.target("a/b.txt").unwrap();
        assert_eq!(target.name.to_string(), "lake/raw/a/b.txt");
        assert!(!target.is_folder);
        let parents: Vec<_> = target.parents().iter().map(Name::to_string).collect();
        assert_eq!(parents, ["lake/raw/a"]);
        assert!(bucket.target("a/").unwrap().is_folder);
        let long = "a/".repeat(600);
        for key in [
            "",
            "/",
            "/a",
            "a//b",
            "a//",
            "..",
            "a/../b",
            "./a",
            "a/.",
            "a\0b",
            &long,
            ".nicstripe-uploads",
            ".nicstripe-uploads/x/y",
            ".nicstripe-uploads/",
        ] {
            assert!(bucket.target(key).is_err(), "{key}");
        }
        assert!(bucket.target(&"a".repeat(256)).is_err());
        assert!(bucket.target("a/.nicstripe-uploads").is_ok());
    }

    #[test]
    fn a_bucket_is_a_directory_below_the_base() {
        for name in ["", ".", "..", ".cache", "a/b", "a b", "ä", "a\0"] {
            assert!(Bucket::new(None, name).is_err(), "{name}");
        }
        assert_eq!(
            Bucket::new(None, "A_b-9.c").unwrap().dir.to_string(),
            "A_b-9.c"
        );
    }
}
