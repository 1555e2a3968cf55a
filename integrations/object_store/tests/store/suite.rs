//! object_store's own suite, as its stores run it: a daemon for each test, with a directory and with
//! a storage in memory.

use crate::harness::Served;

macro_rules! suite {
    ($version:ident, $store:ident, { $($test:ident($($argument:expr),*);)* }) => {
        mod $version {
            use $version::{Error, integration};

            use super::Served;

            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    for served in [Served::files().await, Served::memory().await] {
                        integration::$test(&served.$store $(, $argument)*).await;
                    }
                }
            )*

            #[tokio::test(flavor = "multi_thread")]
            async fn multipart() {
                for served in [Served::files().await, Served::memory().await] {
                    integration::multipart(&served.$store, &served.$store).await;
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn get_nonexistent_object() {
                for served in [Served::files().await, Served::memory().await] {
                    let error = integration::get_nonexistent_object(&served.$store, None).await;
                    let error = error.unwrap_err();
                    assert!(matches!(error, Error::NotFound { .. }), "{error}");
                }
            }
        }
    };
}

macro_rules! suite_of {
    ($version:ident, $store:ident) => {
        suite! { $version, $store, {
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
        } }
    };
}

suite_of!(object_store, store);
#[cfg(feature = "v0_13")]
suite_of!(object_store_0_13, older);
