//! Signatures of requests, version 4 (AWS4-HMAC-SHA256), in a header or in the query.

use std::time::{Duration, SystemTime};

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
};
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HOST},
    http::request::Parts,
};

use super::{
    date,
    error::{Code, S3Error},
    keys::Keys,
    query::{Query, decoded, encoded_path},
};

/// Coverage of the body by a signature.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Nothing.
    Unsigned,
    /// SHA-256 of the whole body, in hexadecimal digits.
    Digest(String),
    /// The body is in chunks; with a chain if each of them is signed.
    Chunks {
        chain: Option<Box<Chain>>,
        has_trailer: bool,
    },
}

/// Signatures of the chunks of a body; each covers the one before.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    key: hmac::Key,
    /// Time and scope of the signature, a line each.
    head: String,
    previous: String,
}

impl Chain {
    /// Verifies the signature of a chunk, whose SHA-256 this is.
    pub(crate) fn verify_chunk(&mut self, signature: &str, hash: &[u8]) -> Result<(), S3Error> {
        let (empty, hash) = (hex::encode(digest(&SHA256, b"")), hex::encode(hash));
        let rest = format!("{empty}\n{hash}");
        self.verify("AWS4-HMAC-SHA256-PAYLOAD", signature, &rest)
    }

    pub(crate) fn verify_trailer(&mut self, signature: &str, trailer: &str) -> Result<(), S3Error> {
        let hash = hex::encode(digest(&SHA256, trailer.as_bytes()));
        self.verify("AWS4-HMAC-SHA256-TRAILER", signature, &hash)
    }

    fn verify(&mut self, kind: &str, signature: &str, rest: &str) -> Result<(), S3Error> {
        let text = format!("{kind}\n{}\n{}\n{rest}", self.head, self.previous);
        verify(&self.key, &text, signature)?;
        self.previous = signature.to_owned();
        Ok(())
    }
}

/// Signs chunks, for the fuzzer.
#[cfg(any(test, fuzzing))]
impl Chain {
    pub(crate) fn of_tests() -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, b"known to the client"),
            head: "20130524T000000Z\n20130524/r/s3/aws4_request".to_owned(),
            previous: "0".repeat(64),
        }
    }

    pub(crate) fn sign_chunk(&mut self, chunk: &[u8]) -> String {
        let (empty, hash) = (digest(&SHA256, b""), digest(&SHA256, chunk));
        let rest = format!("{}\n{}", hex::encode(empty), hex::encode(hash));
        self.sign("AWS4-HMAC-SHA256-PAYLOAD", &rest)
    }

    pub(crate) fn sign_trailer(&mut self, trailer: &str) -> String {
        let hash = hex::encode(digest(&SHA256, trailer.as_bytes()));
        self.sign("AWS4-HMAC-SHA256-TRAILER", &hash)
    }

    fn sign(&mut self, kind: &str, rest: &str) -> String {
        let text = format!("{kind}\n{}\n{}\n{rest}", self.head, self.previous);
        self.previous = hex::encode(hmac::sign(&self.key, text.as_bytes()));
        self.previous.clone()
    }
}

/// Signature as a request carries it.
#[derive(Debug)]
struct Claim<'a> {
    /// Key, date, region, service and the word `aws4_request`.
    credential: Vec<&'a str>,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
    time: &'a str,
    /// Coverage of the body by the signature.
    payload: &'a str,
    /// Time of validity, of a signature in the query.
    expires: Option<Duration>,
}

/// Verifies that a request is signed with these keys, at about this time. Returns what the signature says
/// of its body.
pub(crate) fn check(
    keys: &Keys,
    head: &Parts,
    query: &Query,
    now: SystemTime,
) -> Result<Body, S3Error> {
    let claim = claim(&head.headers, query)?;
    let [access, day, region, service, end] = claim.credential[..] else {
        return Err(malformed("the credential has not five parts"));
    };
    if access != keys.access() {
        return Err(
            Code::INVALID_ACCESS_KEY_ID.because("the access key is not that of this gateway")
        );
    }
    if (service, end) != ("s3", "aws4_request") || !claim.time.starts_with(day) || day.len() != 8 {
        return Err(malformed(
            "the scope of the credential is not that of S3 or of its day",
        ));
    }
    check_time(&claim, now)?;
    check_headers(&head.headers, &claim)?;
    let key = signing_key(keys, [day, region, service, end]);
    let hash = hex::encode(digest(&SHA256, canonical(head, query, &claim)?.as_bytes()));
    let scope = format!("{day}/{region}/{service}/{end}");
    let signed = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", claim.time);
    verify(&key, &signed, claim.signature)?;
    body(&claim, key, &scope)
}

fn claim<'a>(headers: &'a HeaderMap, query: &'a Query) -> Result<Claim<'a>, S3Error> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let payload = text("x-amz-content-sha256");
    if query.has("X-Amz-Signature") || query.has("X-Amz-Algorithm") {
        let get = |name| {
            query
                .get(name)
                .ok_or_else(|| malformed("the query lacks a part of its signature"))
        };
        if get("X-Amz-Algorithm")? != ALGORITHM || headers.contains_key(AUTHORIZATION) {
            return Err(malformed("expected one signature of AWS4-HMAC-SHA256"));
        }
        let expires = query.number("X-Amz-Expires")?.unwrap_or_default();
        return Ok(Claim {
            credential: get("X-Amz-Credential")?.split('/').collect(),
            signed_headers: get("X-Amz-SignedHeaders")?.split(';').collect(),
            signature: get("X-Amz-Signature")?,
            time: get("X-Amz-Date")?,
            payload: payload.unwrap_or(UNSIGNED),
            expires: Some(Duration::from_secs(expires)),
        });
    }
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(Code::ACCESS_DENIED.because("the request is not signed"));
    };
    let fields = header
        .to_str()
        .ok()
        .and_then(|header| header.strip_prefix(ALGORITHM));
    let fields = fields.ok_or_else(|| malformed("expected a signature of AWS4-HMAC-SHA256"))?;
    let field = |name: &str| {
        let mut fields = fields.split(',').map(str::trim);
        let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.ok_or_else(|| malformed("the header Authorization lacks a field"))
    };
    let missing = || Code::INVALID_REQUEST.because("x-amz-content-sha256 is missing");
    Ok(Claim {
        credential: field("Credential")?.split('/').collect(),
        signed_headers: field("SignedHeaders")?.split(';').collect(),
        signature: field("Signature")?,
        time: text("x-amz-date").ok_or_else(|| malformed("x-amz-date is missing"))?,
        payload: payload.ok_or_else(missing)?,
        expires: None,
    })
}

/// Refuses a signature of another time. So one that was recorded is of no use later.
fn check_time(claim: &Claim<'_>, now: SystemTime) -> Result<(), S3Error> {
    let time = date::parse_basic(claim.time).ok_or_else(|| malformed("x-amz-date is no time"))?;
    let skewed = || {
        Code::REQUEST_TIME_TOO_SKEWED
            .because("the clocks of the client and of the gateway differ by more than 15 minutes")
    };
    let early = time.duration_since(now).unwrap_or_default();
    if early > SKEW {
        return Err(skewed());
    }
    let age = now.duration_since(time).unwrap_or_default();
    match claim.expires {
        None if age > SKEW => Err(skewed()),
        Some(expires) if expires.is_zero() || expires > LONGEST => {
            Err(malformed("X-Amz-Expires is not 1 to 604800"))
        }
        Some(expires) if age > expires => {
            Err(Code::ACCESS_DENIED.because("the request has expired"))
        }
        _ => Ok(()),
    }
}

/// Refuses a request with headers that its signature should cover and does not, or covers twice: the text
/// that is signed would be many times longer than the request.
fn check_headers(headers: &HeaderMap, claim: &Claim<'_>) -> Result<(), S3Error> {
    let mut names = claim.signed_headers.clone();
    names.sort_unstable();
    let is_twice = names.windows(2).any(|pair| pair[0] == pair[1]);
    if is_twice || names.iter().any(|name| has_capitals(name)) {
        return Err(malformed(
            "signed headers are named in small letters and once",
        ));
    }
    let is_signed = |name: &str| claim.signed_headers.contains(&name);
    let unsigned = headers
        .keys()
        .map(|name| name.as_str())
        .find(|name| name.starts_with("x-amz-") && !is_signed(name));
    match unsigned {
        _ if !is_signed("host") => {
            Err(Code::ACCESS_DENIED.because("the header Host is not signed"))
        }
        Some(name) => Err(Code::ACCESS_DENIED.because(format!("the header {name} is not signed"))),
        None => Ok(()),
    }
}

fn has_capitals(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Returns the text whose hash is signed.
fn canonical(head: &Parts, query: &Query, claim: &Claim<'_>) -> Result<String, S3Error> {
    let path = encoded_path(decoded(head.uri.path())?.as_bytes());
    let mut text = format!(
        "{}\n{path}\n{}\n",
        head.method,
        query.canonical_without("X-Amz-Signature")
    );
    for name in &claim.signed_headers {
        let value = header(head, name).ok_or_else(|| malformed("a signed header is missing"))?;
        text.extend([*name, ":", &value, "\n"]);
    }
    text.extend(["\n", &claim.signed_headers.join(";"), "\n", claim.payload]);
    Ok(text)
}

/// Returns the value of a header as it is signed.
fn header(head: &Parts, name: &str) -> Option<String> {
    let values = head.headers.get_all(name).iter();
    let values = values.map(|value| Some(collapsed(str::from_utf8(value.as_bytes()).ok()?)));
    let values: Vec<String> = values.collect::<Option<_>>()?;
    match values.is_empty() {
        false => Some(values.join(",")),
        // HTTP/2 has it elsewhere.
        true if name == HOST => Some(head.uri.authority()?.as_str().to_owned()),
        true => None,
    }
}

/// Returns a value without spaces around it, and with single ones within.
fn collapsed(value: &str) -> String {
    value
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn signing_key(keys: &Keys, scope: [&str; 4]) -> hmac::Key {
    let first = format!("AWS4{}", keys.secret());
    scope.iter().fold(
        hmac::Key::new(hmac::HMAC_SHA256, first.as_bytes()),
        |key, part| {
            let tag = hmac::sign(&key, part.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
        },
    )
}

fn body(claim: &Claim<'_>, key: hmac::Key, scope: &str) -> Result<Body, S3Error> {
    let chain = || {
        Box::new(Chain {
            key,
            head: format!("{}\n{scope}", claim.time),
            previous: claim.signature.to_owned(),
        })
    };
    let chunks = |chain, has_trailer| Body::Chunks { chain, has_trailer };
    Ok(match claim.payload {
        UNSIGNED => Body::Unsigned,
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunks(Some(chain()), false),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunks(Some(chain()), true),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunks(None, true),
        hash if hash.len() == 64 && hex::decode(hash).is_ok() => Body::Digest(hash.to_lowercase()),
        _ => return Err(malformed("x-amz-content-sha256 is not known")),
    })
}

/// Compares a signature in constant time.
fn verify(key: &hmac::Key, text: &str, signature: &str) -> Result<(), S3Error> {
    let is_valid = hex::decode(signature)
        .is_ok_and(|signature| hmac::verify(key, text.as_bytes(), &signature).is_ok());
    match is_valid {
        true => Ok(()),
        false => Err(Code::SIGNATURE_DOES_NOT_MATCH
            .because("the signature is not that of the request and the secret key")),
    }
}

fn malformed(why: &'static str) -> S3Error {
    Code::INVALID_REQUEST.because(why)
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Maximum difference of the clocks, that of AWS.
const SKEW: Duration = Duration::from_secs(15 * 60);

/// Maximum validity of a signature in a query, that of AWS.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
pub(crate) mod tests {
    use hyper::Request;

    use super::*;

    /// Keys and requests of the documentation of S3's API, "Authenticating Requests".
    fn keys() -> Keys {
        Keys::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        )
        .unwrap()
    }

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const DAY: &str = "20130524T000000Z";

    fn request(uri: &str, pairs: &[(&str, &str)]) -> Parts {
        let request = Request::builder().uri(uri);
        let request = pairs.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap().into_parts().0
    }

    fn checked(head: &Parts, after: Duration) -> Result<Body, S3Error> {
        let query = Query::parse(head.uri.query()).unwrap();
        let now = date::parse_basic(DAY).unwrap() + after;
        check(&keys(), head, &query, now)
    }

    fn ranged(signature: &str, range: &str) -> Parts {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature={signature}"
        );
        request(
            "/test.txt",
            &[
                ("host", "examplebucket.s3.amazonaws.com"),
                ("range", range),
                ("x-amz-content-sha256", EMPTY),
                ("x-amz-date", DAY),
                ("authorization", &authorization),
            ],
        )
    }

    #[test]
    fn the_documented_signatures_are_accepted_and_no_others() {
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        let head = ranged(signature, "bytes=0-9");
        let soon = Duration::from_secs(60);
        assert!(matches!(checked(&head, soon), Ok(Body::Digest(hash)) if hash == EMPTY));
        let code = |head: &Parts, after| checked(head, after).unwrap_err().code;
        let late = Duration::from_secs(16 * 60);
        assert_eq!(code(&head, late), Code::REQUEST_TIME_TOO_SKEWED);
        let other = ranged(signature, "bytes=0-8");
        assert_eq!(code(&other, soon), Code::SIGNATURE_DOES_NOT_MATCH);
        let wrong = ranged(&signature.replace("f0", "f1"), "bytes=0-9");
        assert_eq!(code(&wrong, soon), Code::SIGNATURE_DOES_NOT_MATCH);
        let none = ranged("", "bytes=0-9");
        assert_eq!(code(&none, soon), Code::SIGNATURE_DOES_NOT_MATCH);
        let mut more = ranged(signature, "bytes=0-9");
        more.headers.insert("x-amz-acl", "private".parse().unwrap());
        assert_eq!(code(&more, soon), Code::ACCESS_DENIED);
        let anonymous = request("/test.txt", &[("host", "localhost")]);
        assert_eq!(code(&anonymous, soon), Code::ACCESS_DENIED);
    }

    #[test]
    fn a_header_is_signed_once() {
        // Each name adds the value of its header to the text that is signed, before its key is checked.
        for names in [
            "host;range;range;x-amz-content-sha256;x-amz-date",
            "Range;host;range",
        ] {
            let mut head = ranged("00", "bytes=0-9");
            let text = head.headers["authorization"].to_str().unwrap();
            let (before, behind) = text
                .split_once("host;range;x-amz-content-sha256;x-amz-date")
                .unwrap();
            let text = format!("{before}{names}{behind}");
            head.headers.insert(AUTHORIZATION, text.parse().unwrap());
            let refused = checked(&head, Duration::ZERO).unwrap_err();
            assert_eq!(refused.code, Code::INVALID_REQUEST, "{names}");
        }
    }

    #[test]
    fn a_signed_url_is_accepted_until_it_expires() {
        let uri = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524\
            %2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
            &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let head = request(uri, &[("host", "examplebucket.s3.amazonaws.com")]);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert!(matches!(checked(&head, hours(23)), Ok(Body::Unsigned)));
        assert_eq!(
            checked(&head, hours(25)).unwrap_err().code,
            Code::ACCESS_DENIED
        );
    }

    /// Returns the chain of the documented request in chunks.
    pub(crate) fn chain() -> Chain {
        let scope = ["20130524", "us-east-1", "s3", "aws4_request"];
        Chain {
            key: signing_key(&keys(), scope),
            head: format!("{DAY}\n{}", scope.join("/")),
            previous: "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".to_owned(),
        }
    }

    /// Signs a request with these keys, now.
    pub(crate) fn sign(keys: &Keys, head: &mut Parts, payload: &str) {
        let now: String = date::iso(SystemTime::now())
            .split('.')
            .next()
            .unwrap()
            .replace(['-', ':'], "")
            + "Z";
        let mut add =
            |name: &'static str, value: &str| head.headers.insert(name, value.parse().unwrap());
        add("host", "localhost:1");
        add("x-amz-date", &now);
        add("x-amz-content-sha256", payload);
        let mut names: Vec<String> = head.headers.keys().map(ToString::to_string).collect();
        names.sort();
        let scope = [&now[..8], "eu-test-1", "s3", "aws4_request"];
        let claim = Claim {
            credential: Vec::new(),
            signed_headers: names.iter().map(String::as_str).collect(),
            signature: "",
            time: &now,
            payload,
            expires: None,
        };
        let query = Query::parse(head.uri.query()).unwrap();
        let hash = hex::encode(
            digest(&SHA256, canonical(head, &query, &claim).unwrap().as_bytes()).as_ref(),
        );
        let text = format!("{ALGORITHM}\n{now}\n{}\n{hash}", scope.join("/"));
        let signature = hex::encode(hmac::sign(&signing_key(keys, scope), text.as_bytes()));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
            keys.access(),
            scope.join("/"),
            names.join(";")
        );
        head.headers
            .insert(AUTHORIZATION, authorization.parse().unwrap());
    }
}
