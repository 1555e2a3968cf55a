//! Endpoint, region and credentials of a store, and signatures of requests.

use std::{fmt, fs, io::Read as _, path::PathBuf, sync::Arc, time::Duration};

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderValue;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use reqsign_core::{Context, Env as _, Error, ErrorKind, FileRead, HttpSend, OsEnv, Signer};
use reqwest::{Client, Url};
use tokio::{task::spawn_blocking, time::timeout};
use tokio_util::bytes::{Bytes, BytesMut};

use super::place::S3Place;
use crate::{
    error::{LinkError, WebError},
    url::{ESCAPED, WebUrl, WebUrlError},
};

/// Where a store is, and who asks.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AccountOptions {
    /// URL of the store; `None` for `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or Amazon.
    pub endpoint: Option<String>,
    /// Region; `None` for `AWS_REGION`, `AWS_DEFAULT_REGION`, the one of the profile, or `us-east-1`.
    pub region: Option<String>,
    /// Profile of `~/.aws`; `None` for `AWS_PROFILE`, or `default`.
    pub profile: Option<String>,
    /// True to ask the machine's own metadata service for credentials, too (EC2).
    pub instance: bool,
    /// True to sign nothing: for public buckets.
    pub anonymous: bool,
}

/// Endpoint of a store, with the credentials for it. Cheap to clone. Prints no secret.
#[derive(Clone)]
pub struct Account(Arc<Inner>);

struct Inner {
    endpoint: Url,
    /// True if the bucket is in the path and not in the host's name.
    has_path_style: bool,
    region: String,
    signer: Option<Signer<Credential>>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}, {})", self.0.endpoint, self.0.region)
    }
}

impl Account {
    /// Finds out where the store is. Credentials are looked up by the first request: in the
    /// environment, in `~/.aws` (keys, SSO, roles), by a web identity, and in a container.
    ///
    /// # Errors
    ///
    /// The endpoint is no URL of a web server.
    pub fn new(options: AccountOptions) -> Result<Self, WebError> {
        let profile = options.profile.or_else(|| OsEnv.var("AWS_PROFILE"));
        let first = |typed: Option<String>, names: [&str; 2]| {
            let set = names.into_iter().filter_map(|name| OsEnv.var(name));
            let mut all = typed.into_iter().chain(set);
            all.find(|value| !value.is_empty())
        };
        let region = first(options.region, ["AWS_REGION", "AWS_DEFAULT_REGION"])
            .or_else(|| region_of(profile.as_deref().unwrap_or("default")))
            .unwrap_or_else(|| "us-east-1".to_owned());
        let variables = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
        let named = first(options.endpoint, variables);
        let text = named
            .clone()
            .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let wrong = |why: String| WebError::Endpoint {
            url: text.clone(),
            why,
        };
        let url: WebUrl = text
            .parse()
            .map_err(|why: WebUrlError| wrong(why.to_string()))?;
        let endpoint = url.url().clone();
        if !matches!(endpoint.path(), "" | "/") || endpoint.query().is_some() {
            return Err(wrong("expected no path behind the host".to_owned()));
        }
        let signer = (!options.anonymous).then(|| signer(profile, &region, options.instance));
        Ok(Self(Arc::new(Inner {
            endpoint,
            has_path_style: named.is_some(),
            region,
            signer,
        })))
    }

    /// Returns the region that signatures name.
    pub fn region(&self) -> &str {
        &self.0.region
    }

    /// Returns the URL of an object, or of the bucket for an empty key.
    ///
    /// # Errors
    ///
    /// The key has the component `.` or `..`, which would make a URL of another object.
    pub fn url(&self, place: &S3Place) -> Result<WebUrl, WebError> {
        if place
            .key()
            .split('/')
            .any(|component| matches!(component, "." | ".."))
        {
            return Err(WebError::Endpoint {
                url: place.to_string(),
                why: "a key with the component . or .. cannot be asked for".to_owned(),
            });
        }
        let mut url = self.0.endpoint.clone();
        let key = utf8_percent_encode(place.key(), IN_KEY);
        // A certificate for all buckets is for one label: a bucket with dots goes into the path.
        if self.0.has_path_style || place.bucket().contains('.') {
            url.set_path(&format!("/{}/{key}", place.bucket()));
        } else {
            let host = url.host_str().unwrap_or_default();
            let host = format!("{}.{host}", place.bucket());
            // Fails for an address only, which has a path style.
            let _ = url.set_host(Some(&host));
            url.set_path(&format!("/{key}"));
        }
        let wrong = |why: WebUrlError| WebError::Endpoint {
            url: place.to_string(),
            why: why.to_string(),
        };
        WebUrl::of(url).map_err(wrong)
    }

    /// Signs a request. `body` is what it sends, if anything. Over TLS the body is not hashed.
    ///
    /// # Errors
    ///
    /// There are no credentials.
    pub(crate) async fn signed(
        &self,
        request: reqwest::Request,
        body: Option<&Bytes>,
    ) -> Result<reqwest::Request, LinkError> {
        let Some(signer) = &self.0.signer else {
            return Ok(request);
        };
        let wrong = |why: String| LinkError::Credentials(nicstripe::printable(why.as_bytes()));
        let request = http::Request::<reqwest::Body>::try_from(request)
            .map_err(|error| wrong(error.to_string()))?;
        let (mut parts, content) = request.into_parts();
        let is_open = parts.uri.scheme_str() == Some("http");
        let hash = match body {
            Some(body) if is_open => sha256(body),
            None if is_open => sha256(b""),
            _ => "UNSIGNED-PAYLOAD".to_owned(),
        };
        let hash = HeaderValue::from_str(&hash).map_err(|error| wrong(error.to_string()))?;
        parts.headers.insert("x-amz-content-sha256", hash);
        signer
            .sign(&mut parts, None)
            .await
            .map_err(|error| wrong(said(&error)))?;
        reqwest::Request::try_from(http::Request::from_parts(parts, content))
            .map_err(|error| wrong(error.to_string()))
    }
}

/// Returns an error of reqsign in one line, without the types of this program.
fn said(error: &Error) -> String {
    match error.kind() {
        ErrorKind::CredentialInvalid => "no valid credentials: expected AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, or a profile of ~/.aws"
            .to_owned(),
        _ => error.to_string(),
    }
}

fn sha256(body: &[u8]) -> String {
    hex::encode(digest(&SHA256, body))
}

fn signer(profile: Option<String>, region: &str, instance: bool) -> Signer<Credential> {
    let mut provider = DefaultCredentialProvider::builder();
    if let Some(profile) = profile {
        provider = provider.with_profile(profile);
    }
    if !instance {
        provider = provider.no_imds();
    }
    let context = Context::new()
        .with_env(OsEnv)
        .with_file_read(Files)
        .with_http_send(Web);
    Signer::new(context, provider.build(), RequestSigner::new("s3", region))
}

/// Reads files of `~/.aws`.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let path = path.to_owned();
        let read = spawn_blocking(move || {
            let mut bytes = Vec::new();
            let file = fs::File::open(path)?;
            file.take(MOST_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        });
        let failed = |why: String| Error::unexpected(why);
        let read = read.await.map_err(|error| failed(error.to_string()))?;
        read.map_err(|error| failed(error.to_string()))
    }
}

/// Asks the services of Amazon that hand out credentials.
#[derive(Debug)]
struct Web;

impl HttpSend for Web {
    async fn http_send(
        &self,
        request: http::Request<Bytes>,
    ) -> reqsign_core::Result<http::Response<Bytes>> {
        let failed = |error: reqwest::Error| Error::unexpected(error.without_url().to_string());
        let request = reqwest::Request::try_from(request).map_err(failed)?;
        let asking = async {
            let mut response = Client::new().execute(request).await.map_err(failed)?;
            let mut body = BytesMut::new();
            while let Some(piece) = response.chunk().await.map_err(failed)? {
                body.extend_from_slice(&piece);
                if body.len() as u64 > MOST_BYTES {
                    return Err(Error::unexpected("the answer is too long"));
                }
            }
            let mut answer = http::Response::new(body.freeze());
            *answer.status_mut() = response.status();
            *answer.headers_mut() = response.headers().clone();
            Ok(answer)
        };
        timeout(ANSWER_TIME, asking)
            .await
            .unwrap_or_else(|_| Err(Error::unexpected("the service for credentials is silent")))
    }
}

/// Returns the region of a profile in `~/.aws/config`.
fn region_of(profile: &str) -> Option<String> {
    let path = OsEnv.var("AWS_CONFIG_FILE").map(PathBuf::from);
    let path = path.or_else(|| Some(OsEnv.home_dir()?.join(".aws/config")))?;
    region_in(&fs::read_to_string(path).ok()?, profile)
}

fn region_in(text: &str, profile: &str) -> Option<String> {
    let mut is_meant = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let name = section.trim();
            is_meant = name.strip_prefix("profile ").map_or(name, str::trim) == profile;
        } else if let (true, Some((key, value))) = (is_meant, line.split_once('='))
            && key.trim() == "region"
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

/// All but the unreserved characters and the slash, as signatures need it.
const IN_KEY: &AsciiSet = &ESCAPED.remove(b'/');

const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Longest file or answer about credentials.
const MOST_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn account(endpoint: Option<&str>) -> Account {
        let options = AccountOptions {
            endpoint: endpoint.map(str::to_owned),
            region: Some("eu-west-1".to_owned()),
            anonymous: true,
            ..AccountOptions::default()
        };
        Account::new(options).unwrap()
    }

    #[test]
    fn a_store_of_ones_own_has_buckets_in_the_path_and_amazon_in_the_host() {
        let place = |text: &str| text.parse::<S3Place>().unwrap();
        let own = account(Some("http://10.0.0.1:9000"));
        let url = own.url(&place("s3://bucket/a b/c+d%")).unwrap();
        assert_eq!(
            url.url().as_str(),
            "http://10.0.0.1:9000/bucket/a%20b/c%2Bd%25"
        );
        assert_eq!(
            own.url(&place("s3://bucket")).unwrap().url().path(),
            "/bucket/"
        );
        // Other tests of this process do not set the endpoint of the environment.
        let amazon = account(None);
        let url = amazon.url(&place("s3://bucket/key")).unwrap();
        assert_eq!(
            url.url().as_str(),
            "https://bucket.s3.eu-west-1.amazonaws.com/key"
        );
        let url = amazon.url(&place("s3://with.dots/key")).unwrap();
        assert_eq!(
            url.url().as_str(),
            "https://s3.eu-west-1.amazonaws.com/with.dots/key"
        );
    }

    #[test]
    fn a_key_does_not_leave_its_bucket() {
        let own = account(Some("http://10.0.0.1:9000"));
        let place: S3Place = "s3://bucket/../other/x".parse().unwrap();
        assert!(own.url(&place).is_err());
        let place: S3Place = "s3://bucket/a/.".parse().unwrap();
        assert!(own.url(&place).is_err());
    }

    #[test]
    fn an_endpoint_has_no_path() {
        for endpoint in ["ftp://host", "host", "http://host/path", "http://host/?x"] {
            let options = AccountOptions {
                endpoint: Some(endpoint.to_owned()),
                ..AccountOptions::default()
            };
            assert!(Account::new(options).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn the_region_of_a_profile_is_read() {
        let text =
            "[default]\nregion = eu-north-1\n[profile work]\nsso_session = x\nregion=us-west-2\n";
        assert_eq!(region_in(text, "default").as_deref(), Some("eu-north-1"));
        assert_eq!(region_in(text, "work").as_deref(), Some("us-west-2"));
        assert_eq!(region_in(text, "other"), None);
    }
}
