//! Attributes of objects, under the names of the headers of HTTP and of S3.

use nicstripe::ObjectAttributes;

use super::{
    failure::{generic, not_implemented},
    object_store::{Attribute, Attributes, Result},
};

/// Returns the attributes as the daemon keeps them.
pub(crate) fn kept(attributes: &Attributes) -> Result<ObjectAttributes> {
    let mut kept = ObjectAttributes::new();
    for (attribute, value) in attributes {
        let name = match attribute {
            Attribute::Metadata(name) => format!("{METADATA}{name}"),
            known => match NAMES.iter().find(|(_, it)| it == known) {
                Some((name, _)) => (*name).to_owned(),
                None => return Err(not_implemented(&format!("put with {known:?}"))),
            },
        };
        kept.set(name, value.as_ref()).map_err(generic)?;
    }
    Ok(kept)
}

/// Returns the attributes of an object. Other programs may have given it some that are none here.
pub(crate) fn told(kept: &ObjectAttributes) -> Attributes {
    let named = |name: &str| match name.strip_prefix(METADATA) {
        Some(name) => Some(Attribute::Metadata(name.to_owned().into())),
        None => {
            let known = NAMES.iter().find(|(known, _)| *known == name);
            known.map(|(_, attribute)| attribute.clone())
        }
    };
    let known = |(name, value): (&String, &String)| Some((named(name)?, value.clone()));
    kept.iter().filter_map(known).collect()
}

const NAMES: [(&str, Attribute); 5] = [
    ("cache-control", Attribute::CacheControl),
    ("content-disposition", Attribute::ContentDisposition),
    ("content-encoding", Attribute::ContentEncoding),
    ("content-language", Attribute::ContentLanguage),
    ("content-type", Attribute::ContentType),
];

const METADATA: &str = "x-amz-meta-";
