//! Options of `cp` for files at web servers.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use nicstripe_web::{Account, Cookies, CookiesError, Expected, Header, HeaderError, WebUrl};

use crate::{
    connect::store_arguments::StoreArgs,
    failure::{Failure, Fault, usage},
    places,
    text::{first_true, quantity::parse_size, shown},
};

/// Options for copies from a web server.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct WebArgs {
    /// Compare the file with this digest before it gets its name: sha256, sha512 or blake3, and
    /// hexadecimal digits
    #[arg(long, value_name = "ALG:HEX", conflicts_with = "sha256")]
    digest: Option<Expected>,

    /// Equals --digest sha256:HEX
    #[arg(long, value_name = "HEX", value_parser = parse_sha256)]
    sha256: Option<Expected>,

    /// Send this header to the server of the URL, and to none to which it redirects; may be repeated.
    /// Other users see arguments: @FILE reads headers from a file, one per line
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,

    /// Fetch from this URL of the same file, too; may be repeated. Needs a digest
    #[arg(long, value_name = "URL")]
    mirror: Vec<String>,

    /// Compare the file with the sha256 that this file of checksums has of its name; without URL, the
    /// file SHA256SUMS next to it
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, conflicts_with_all = ["digest", "sha256"])]
    sha256sums: Option<Option<String>>,

    /// Send the cookies of this file, in the format of curl and wget, each to its host
    #[arg(long, value_name = "FILE")]
    cookies: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArgs,

    /// Least bytes of a part of an object, 5M to 5G [default: 8M]
    #[arg(long, value_name = "SIZE", value_parser = parse_part)]
    part_size: Option<u64>,

    /// Ignore ~/.netrc [default: send its login for the host of a URL without one]
    #[arg(long)]
    no_netrc: bool,
}

impl WebArgs {
    pub(in crate::commands::cp) fn first_option(&self) -> Option<&'static str> {
        first_true([
            (self.digest.is_some(), "--digest"),
            (self.sha256.is_some(), "--sha256"),
            (!self.header.is_empty(), "--header"),
            (!self.mirror.is_empty(), "--mirror"),
            (self.sha256sums.is_some(), "--sha256sums"),
            (self.cookies.is_some(), "--cookies"),
            (self.no_netrc, "--no-netrc"),
        ])
    }

    pub(in crate::commands::cp) fn first_option_of_store(&self) -> Option<&'static str> {
        let part = self.part_size.map(|_| "--part-size");
        self.store.first_option().or(part)
    }

    pub(in crate::commands::cp) fn account(&self) -> Result<Account, Failure> {
        self.store.account()
    }

    pub(in crate::commands::cp) fn part_size(&self) -> Option<u64> {
        self.part_size
    }

    /// Returns the digest that the file must have.
    pub(super) fn expected(&self) -> Option<Expected> {
        self.digest.clone().or_else(|| self.sha256.clone())
    }

    /// Returns the other URLs of the file.
    pub(super) fn mirrors(&self) -> Result<Vec<WebUrl>, Failure> {
        let urls = self.mirror.iter().map(|url| Ok(url.parse::<WebUrl>()?));
        let urls = urls.collect::<Result<Vec<_>, Failure>>()?;
        let has_digest = self.expected().is_some() || self.sha256sums.is_some();
        match urls.is_empty() || has_digest {
            true => Ok(urls),
            false => Err(usage(
                "--mirror needs the digest of the file: expected --sha256, --digest or --sha256sums, too",
            )
            .into()),
        }
    }

    /// Returns the URL of the file of checksums for a file at `url`.
    pub(super) fn sums(&self, url: &WebUrl) -> Result<Option<WebUrl>, Failure> {
        match &self.sha256sums {
            None => Ok(None),
            Some(Some(sums)) => Ok(Some(sums.parse()?)),
            Some(None) => Ok(Some(url.beside("SHA256SUMS"))),
        }
    }

    pub(super) fn read_cookies(&self) -> Result<Cookies, Failure> {
        let Some(path) = &self.cookies else {
            return Ok(Cookies::default());
        };
        let text = fs::read_to_string(path).map_err(Fault::reading(path))?;
        let wrong = |error: CookiesError| usage(format!("{}: {error}", shown(path)));
        Ok(text.parse().map_err(wrong)?)
    }

    /// Returns the text of the netrc file that belongs to this user: that of `NETRC`, or `~/.netrc`.
    /// Ignores a file in which others can read or write passwords.
    pub(super) fn netrc(&self) -> Result<Option<String>, Failure> {
        if self.no_netrc {
            return Ok(None);
        }
        let named = env::var_os("NETRC").filter(|path| !path.is_empty());
        let path = named
            .clone()
            .map_or_else(|| places::own_home().join(".netrc"), PathBuf::from);
        match fs::metadata(&path) {
            Ok(found) if found.mode() & 0o077 != 0 => {
                tracing::warn!(path = %shown(&path), "ignored: others can read it, expected mode 0600");
                Ok(None)
            }
            Ok(_) => Ok(Some(
                fs::read_to_string(&path).map_err(Fault::reading(&path))?,
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Ok(None),
            Err(error) => Err(Fault::reading(&path)(error).into()),
        }
    }

    pub(super) fn headers(&self) -> Result<Vec<Header>, Failure> {
        let mut headers = Vec::new();
        for argument in &self.header {
            match argument.strip_prefix('@') {
                None => headers.push(header(argument)?),
                Some(path) => {
                    let path = Path::new(path);
                    let text = fs::read_to_string(path).map_err(Fault::reading(path))?;
                    let lines = text.lines().filter(|line| !line.trim().is_empty());
                    for line in lines {
                        headers.push(header(line)?);
                    }
                }
            }
        }
        Ok(headers)
    }
}

fn header(text: &str) -> Result<Header, Failure> {
    let wrong = |error: HeaderError| usage(format!("--header: {error}"));
    Ok(text.parse::<Header>().map_err(wrong)?)
}

fn parse_part(text: &str) -> Result<u64, String> {
    let size = parse_size(text).map_err(|error| error.to_string())?;
    let is_part = (5 << 20..=5 << 30).contains(&size);
    is_part
        .then_some(size)
        .ok_or_else(|| "expected 5M to 5G".to_owned())
}

fn parse_sha256(digits: &str) -> Result<Expected, String> {
    let expected = format!("sha256:{digits}").parse::<Expected>();
    expected.map_err(|_| "expected 64 hexadecimal digits".to_owned())
}
