//! object_store's own suite, as its stores run it: a daemon for each test, with a directory and with
//! a storage in memory.

use object_store::integration;

use crate::harness::Served;

macro_rules! suite {
    ($($test:ident($($argument:expr),*);)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                for served in [Served::files().await, Served::memory().await] {
                    integration::$test(&served.store $(, $argument)*).await;
                }
            }
        )*
    };
}

suite! {
    put_get_delete_list();
    put_get_attributes();
    get_opts();
    put_opts(true);
    stream_get();
    list_uses_directories_correctly();
    list_with_delimiter();
    rename_and_copy();
    copy_if_not_exists();
    copy_rename_nonexistent_object();
    multipart_out_of_order();
    list_with_offset_exclusivity();
}

#[tokio::test(flavor = "multi_thread")]
async fn get_nonexistent_object() {
    for served in [Served::files().await, Served::memory().await] {
        let error = integration::get_nonexistent_object(&served.store, None).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, object_store::Error::NotFound { .. }),
            "{error}"
        );
    }
}
