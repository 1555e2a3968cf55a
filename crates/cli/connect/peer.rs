//! Other end of `links` and `bench`: a daemon, or a web server.

use std::{fmt, str::FromStr};

#[cfg(feature = "web")]
use nicstripe_web::WebUrl;

use super::place::Place;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    Daemon(Place),
    #[cfg(feature = "web")]
    Web(WebUrl),
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[cfg(feature = "web")]
        if super::location::is_web_url(text.as_ref()) {
            let url = text.parse::<WebUrl>();
            return url.map(Self::Web).map_err(|error| error.to_string());
        }
        let place = text.parse::<Place>();
        place.map(Self::Daemon).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon(place) => place.fmt(f),
            #[cfg(feature = "web")]
            Self::Web(url) => url.fmt(f),
        }
    }
}
