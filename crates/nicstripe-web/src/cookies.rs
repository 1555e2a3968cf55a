//! Cookies in a file of the format that browsers' extensions, curl and wget write.

use std::{str::FromStr, time::SystemTime};

use reqwest::{Url, header::HeaderValue};
use thiserror::Error;

/// Cookies for many hosts. Their values are printed nowhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Cookies(Vec<Cookie>);

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cookies({})", self.0.len())
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Cookie {
    /// Host in lower case, without the dot before it.
    host: String,
    /// True if hosts below are meant, too.
    has_below: bool,
    path: String,
    is_secure: bool,
    /// Seconds since 1970; 0 for the end of the browser.
    expires: u64,
    pair: String,
}

/// Why a text has no [`Cookies`]. Does not repeat the line, which may have a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "line {0}: expected host, TRUE or FALSE, path, TRUE or FALSE, seconds since 1970, name and value, with tabs between"
)]
pub struct CookiesError(usize);

impl FromStr for Cookies {
    type Err = CookiesError;

    fn from_str(text: &str) -> Result<Self, CookiesError> {
        let mut cookies = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.strip_prefix("#HttpOnly_").unwrap_or(line);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            cookies.push(cookie(line).ok_or(CookiesError(number))?);
        }
        Ok(Self(cookies))
    }
}

fn cookie(line: &str) -> Option<Cookie> {
    let fields: Vec<&str> = line.trim_end_matches('\r').split('\t').collect();
    let [host, has_below, path, is_secure, expires, name, value] = fields[..] else {
        return None;
    };
    let flag = |text: &str| match text {
        "TRUE" => Some(true),
        "FALSE" => Some(false),
        _ => None,
    };
    let pair = match name {
        "" => value.to_owned(),
        name => format!("{name}={value}"),
    };
    let is_sound =
        path.starts_with('/') && HeaderValue::from_str(&pair).is_ok() && !pair.contains(';');
    is_sound.then_some(Cookie {
        host: host.trim_start_matches('.').to_ascii_lowercase(),
        has_below: flag(has_below)?,
        path: path.to_owned(),
        is_secure: flag(is_secure)?,
        expires: expires.parse().ok()?,
        pair,
    })
}

impl Cookies {
    /// Returns the value of the header `Cookie` for a URL; `None` if there is none for it.
    pub(crate) fn header(&self, url: &Url) -> Option<HeaderValue> {
        let now = SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            .as_secs();
        let of = self.0.iter().filter(|cookie| cookie.is_for(url, now));
        let pairs: Vec<&str> = of.map(|cookie| &*cookie.pair).collect();
        if pairs.is_empty() {
            return None;
        }
        let mut value = HeaderValue::from_str(&pairs.join("; ")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Cookie {
    /// Compares as RFC 6265 does (sections 5.1.3 and 5.1.4).
    fn is_for(&self, url: &Url, now: u64) -> bool {
        let host = url.host_str().unwrap_or_default();
        let below = || {
            host.strip_suffix(&*self.host)
                .is_some_and(|rest| rest.ends_with('.'))
        };
        let is_name = host.parse::<std::net::IpAddr>().is_err() && !host.starts_with('[');
        let has_host = host == self.host || (self.has_below && is_name && below());
        let has_path = url.path().strip_prefix(&*self.path).is_some_and(|rest| {
            self.path.ends_with('/') || rest.is_empty() || rest.starts_with('/')
        });
        let is_alive = self.expires == 0 || self.expires > now;
        has_host && has_path && is_alive && (!self.is_secure || url.scheme() == "https")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookies: &Cookies, url: &str) -> String {
        let value = cookies.header(&url.parse().unwrap());
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_cookie_goes_to_its_host_path_and_scheme_only() {
        let text = "# Netscape HTTP Cookie File\n\n\
                    .host.org\tTRUE\t/\tFALSE\t0\ta\t1\n\
                    #HttpOnly_sub.host.org\tFALSE\t/files\tTRUE\t4102444800\tb\t2\n\
                    host.org\tFALSE\t/\tFALSE\t1\told\t3\n\
                    10.0.0.1\tTRUE\t/\tFALSE\t0\tc\t4\n";
        let cookies: Cookies = text.parse().unwrap();
        for (url, expected) in [
            ("https://host.org/x", "a=1"),
            ("https://sub.host.org/files/x", "a=1; b=2"),
            ("https://sub.host.org/files", "a=1; b=2"),
            ("https://sub.host.org/filesystem", "a=1"),
            ("http://sub.host.org/files/x", "a=1"),
            ("https://evilhost.org/", ""),
            ("https://host.org.evil.com/", ""),
            ("http://10.0.0.1/", "c=4"),
            ("http://110.0.0.1/", ""),
        ] {
            assert_eq!(sent(&cookies, url), expected, "{url}");
        }
        assert!(!format!("{cookies:?}").contains("a=1"));
    }

    #[test]
    fn a_line_of_another_format_is_an_error_with_its_number() {
        for line in [
            "host.org TRUE / FALSE 0 a 1",
            "host.org\tyes\t/\tFALSE\t0\ta\t1",
            "host.org\tTRUE\tx\tFALSE\t0\ta\t1",
            "host.org\tTRUE\t/\tFALSE\tsoon\ta\t1",
            "host.org\tTRUE\t/\tFALSE\t0\ta\t1; admin=1",
            "host.org\tTRUE\t/\tFALSE\t0\ta\t\u{1}",
        ] {
            let error = format!("# one\n{line}").parse::<Cookies>().unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{line}");
        }
    }
}
