use nicstripe_testkit::replay;

use super::*;

#[test]
fn the_targets_accept_every_file_of_their_corpora() {
    replay(&[
        ("records", records),
        ("handshake", handshake),
        ("zstd", zstd),
        ("filters", filters),
        ("peers", peers),
    ]);
}
