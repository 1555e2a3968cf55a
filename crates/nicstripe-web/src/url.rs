//! URLs of files at web servers.

use std::{fmt, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use reqwest::Url;
use thiserror::Error;

/// URL of a file at a web server: `http` or `https`, with a host and without a fragment.
///
/// Prints neither a password nor the values of a query, which is the secret of a signed URL.
#[derive(Clone, PartialEq, Eq)]
pub struct WebUrl {
    url: Url,
    login: Option<Login>,
}

/// User and password of a URL, which is sent to its host only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Option<String>,
}

/// Why a text is no [`WebUrl`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WebUrlError {
    /// The text is no URL at all.
    #[error("no URL: {0}")]
    Syntax(String),
    /// The URL has another scheme.
    #[error("scheme {0:?} is not spoken, expected http or https")]
    Scheme(String),
    /// The URL is longer than servers accept.
    #[error("URL has {0} bytes, limit is {MOST_BYTES}")]
    Long(usize),
    /// The name or the password of the URL is not UTF-8 once decoded.
    #[error("name or password in the URL is not UTF-8")]
    Login,
}

impl FromStr for WebUrl {
    type Err = WebUrlError;

    fn from_str(text: &str) -> Result<Self, WebUrlError> {
        if text.len() > MOST_BYTES {
            return Err(WebUrlError::Long(text.len()));
        }
        let url = Url::parse(text).map_err(|why| WebUrlError::Syntax(why.to_string()))?;
        Self::of(url)
    }
}

impl WebUrl {
    pub(crate) fn of(mut url: Url) -> Result<Self, WebUrlError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebUrlError::Scheme(url.scheme().to_owned()));
        }
        let login = (!url.username().is_empty() || url.password().is_some())
            .then(|| {
                Ok(Login {
                    user: decoded(url.username())?,
                    password: url.password().map(decoded).transpose()?,
                })
            })
            .transpose()?;
        // Neither fails for a URL with a host, which http and https have.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Ok(Self { url, login })
    }

    /// Returns the last component of the path, decoded; `None` if the path ends with a slash or the
    /// component is not the name of a file.
    ///
    /// ```
    /// let url: nicstripe_web::WebUrl = "https://host/a/disk%20image?token=7".parse()?;
    /// assert_eq!(url.file_name().as_deref(), Some(b"disk image".as_slice()));
    /// # Ok::<_, nicstripe_web::WebUrlError>(())
    /// ```
    pub fn file_name(&self) -> Option<Vec<u8>> {
        let last = self.url.path_segments()?.next_back()?;
        let name = percent_decode_str(last).collect::<Vec<u8>>();
        let is_name = !matches!(&name[..], b"" | b"." | b"..")
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        is_name.then_some(name)
    }

    /// Returns the URL of another file in the same folder, without a query.
    pub fn beside(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.url.set_query(None);
        if let Ok(mut segments) = other.url.path_segments_mut() {
            segments.pop().push(name);
        }
        other
    }

    /// Returns the URL of a file below this folder, whose path may lack the slash at its end.
    /// `components` are the bytes of each component.
    ///
    /// ```
    /// let folder: nicstripe_web::WebUrl = "https://host/a".parse()?;
    /// let file = folder.below([b"b c".as_slice(), b"d?"]);
    /// assert_eq!(file.to_string(), "https://host/a/b%20c/d%3F");
    /// # Ok::<_, nicstripe_web::WebUrlError>(())
    /// ```
    pub fn below<'a>(&self, components: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut below = self.clone();
        let mut path = below.url.path().trim_end_matches('/').to_owned();
        for component in components {
            path.push('/');
            path.extend(percent_encode(component, ESCAPED));
        }
        below.url.set_path(&path);
        below
    }

    /// Returns the host as typed, an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Returns the port, that of the scheme if none was typed.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Returns true if both URLs have the same scheme, host and port: what was given for one may be
    /// sent to the other.
    pub(crate) fn is_of_one_server(&self, other: &Url) -> bool {
        self.url.origin() == other.origin()
    }
}

/// Shows the URL without password and query values.
impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(&self.url, f)
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebUrl({self})")
    }
}

/// URL that a server named, for display without its secrets.
pub(crate) struct Shown<'a>(pub(crate) &'a Url);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0, f)
    }
}

fn shown(url: &Url, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "{}://{}",
        url.scheme(),
        url.host_str().unwrap_or_default()
    )?;
    if let Some(port) = url.port() {
        write!(f, ":{port}")?;
    }
    f.write_str(url.path())?;
    if url.query().is_some() {
        f.write_str("?…")?;
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, WebUrlError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| WebUrlError::Login)
}

/// All but the unreserved characters (RFC 3986, section 2.3).
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Length of the longest URL in bytes: nginx and Apache refuse longer request lines (8 KiB).
const MOST_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WebUrl {
        text.parse().unwrap()
    }

    #[test]
    fn no_secret_of_a_url_is_printed() {
        let url = url("https://me:pa%3Ass@host:8443/a/b?X-Signature=secret#part");
        for text in [url.to_string(), format!("{url:?}")] {
            assert!(text.contains("https://host:8443/a/b?…"), "{text}");
            for secret in ["me", "pa", "secret", "part"] {
                assert!(
                    !text.replace("nicstripe", "").contains(secret),
                    "{text}: {secret}"
                );
            }
        }
        let login = url.login().unwrap();
        assert_eq!(login.user.as_str(), "me");
        assert_eq!(login.password.as_deref(), Some("pa:ss"));
        assert_eq!(
            url.url().as_str(),
            "https://host:8443/a/b?X-Signature=secret"
        );
    }

    #[test]
    fn the_name_of_a_file_is_the_last_component_and_never_leaves_its_folder() {
        for (text, name) in [
            ("http://h/a/disk.img", Some("disk.img")),
            ("http://h/a%20b", Some("a b")),
            ("http://h/100%", Some("100%")),
            ("http://h/a/", None),
            ("http://h", None),
            ("http://h/a/%2e%2E", None),
            ("http://h/a%2Fb", None),
            ("http://h/a%00b", None),
            ("http://h/..", None),
        ] {
            let found = url(text).file_name();
            assert_eq!(found.as_deref(), name.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_web_server_is_refused_with_the_reason() {
        for (text, said) in [
            ("ftp://host/x", "scheme \"ftp\" is not spoken"),
            ("https://", "no URL"),
            ("host/x", "no URL"),
            ("http://host:99999/x", "no URL"),
            ("http://%ff@host/", "not UTF-8"),
        ] {
            let error = text.parse::<WebUrl>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let long = format!("http://host/{}", "x".repeat(MOST_BYTES));
        assert!(matches!(long.parse::<WebUrl>(), Err(WebUrlError::Long(_))));
    }
}
