//! Store of object_store 0.14.

pub(crate) use object_store;

use self::object_store::{
    Attributes, GetResult, GetResultPayload, ListResult, ObjectMeta, PutResult, path::Path,
};

#[path = "attribute.rs"]
mod attribute;
#[path = "failure.rs"]
mod failure;
#[path = "multipart.rs"]
mod multipart;
#[path = "object.rs"]
mod object;
#[path = "store.rs"]
mod store;
#[path = "upload.rs"]
mod upload;

pub use self::store::NicstripeStore;

fn put_result(e_tag: Option<String>) -> PutResult {
    PutResult {
        e_tag,
        version: None,
        extensions: Default::default(),
    }
}

fn get_result(
    payload: GetResultPayload,
    meta: ObjectMeta,
    range: std::ops::Range<u64>,
    attributes: Attributes,
) -> GetResult {
    GetResult {
        payload,
        meta,
        range,
        attributes,
        extensions: Default::default(),
    }
}

fn list_result(common_prefixes: Vec<Path>, objects: Vec<ObjectMeta>) -> ListResult {
    ListResult {
        common_prefixes,
        objects,
        extensions: Default::default(),
    }
}
