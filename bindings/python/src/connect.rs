//! Settings of a client, from keyword arguments.

use nicstripe::{
    BitRate, Client, ClientBuilder, Family, RoutePolicy,
    trust::{AddressBook, Home, Identity, Peers},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::{
    error::{invalid_home, with_causes},
    name::LocalPath,
    wait::duration,
};

/// Returns a builder with the key, the trusted peers and the addresses of the command `nicstripe`, or of
/// the directory `home`.
pub(crate) fn builder(
    py: Python<'_>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<ClientBuilder> {
    let home = match keywords {
        Some(keywords) => keywords.get_item("home")?,
        None => None,
    };
    let home = match home.filter(|home| !home.is_none()) {
        Some(home) => Home::at(home.extract::<LocalPath>()?.0),
        None => Home::from_env().map_err(|error| invalid_home(py, error))?,
    };
    let key = Identity::load_or_create(home.identity_file());
    let key = key.map_err(|error| invalid_home(py, error))?;
    let peers = Peers::load(home.peers_file()).map_err(|error| invalid_home(py, error))?;
    let mut builder = Client::builder()
        .identity(key)
        .peers(peers)
        .address_book(AddressBook::at(home.addresses_file()));
    for (name, value) in keywords.into_iter().flatten() {
        if !value.is_none() {
            builder = set(builder, &name.extract::<String>()?, &value)?;
        }
    }
    Ok(builder)
}

fn set(builder: ClientBuilder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<ClientBuilder> {
    Ok(match name {
        "home" => builder,
        "port" => builder.port(value.extract()?),
        "links" => {
            let links: Vec<String> = value.extract()?;
            let links: Result<_, _> = links.iter().map(|link| link.parse()).collect();
            builder.links(links.map_err(invalid)?)
        }
        "exclude_links" => builder.exclude_links(value.extract()?),
        "streams" => builder.streams(value.extract()?),
        "bandwidth_bps" => builder.bandwidth(Some(BitRate(value.extract()?))),
        "patience" => builder.patience(duration(value.extract()?)?),
        "family" => builder.family(Some(match value.extract()? {
            4 => Family::V4,
            6 => Family::V6,
            other => {
                return Err(PyValueError::new_err(format!(
                    "family {other}: expected 4 or 6"
                )));
            }
        })),
        "routes" => builder.routes(match value.extract::<String>()?.as_str() {
            "auto" => RoutePolicy::Auto,
            "always" => RoutePolicy::Always,
            "never" => RoutePolicy::Never,
            other => {
                let why = format!("routes {other:?}: expected \"auto\", \"always\" or \"never\"");
                return Err(PyValueError::new_err(why));
            }
        }),
        "state_dir" => builder.state_dir(value.extract::<LocalPath>()?.0),
        other => {
            let why = format!("Client() got an unexpected keyword argument {other:?}");
            return Err(pyo3::exceptions::PyTypeError::new_err(why));
        }
    })
}

fn invalid(error: impl std::error::Error) -> PyErr {
    PyValueError::new_err(with_causes(&error))
}
