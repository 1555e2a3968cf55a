#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::trust::{file::private_folder, peer::Access};

fn line(seed: u8, comment: &str) -> PublicLine {
    PublicLine::new(PublicKey::from_bytes([seed; 32]).unwrap(), comment)
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = private_folder();
    let path = folder.path().join("peers");
    (folder, path)
}

fn parse(text: &str) -> Result<Peers, PeersError> {
    Peers::parse(Path::new("/etc/peers"), text.as_bytes())
}

#[test]
fn comments_blank_lines_and_untouched_lines_survive_an_edit() {
    let (_folder, path) = folder();
    let first = format!("# ours\n\n  read-only   {}   nas\n#end\n", line(1, ""));
    fs::write(&path, &first).unwrap();
    set(&path, 0o644);
    assert_eq!(
        Peers::edit(&path, |peers| peers.add(&line(2, "me@box"), None)).unwrap(),
        Added::New
    );
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("{first}{}\n", line(2, "box"))
    );
    Peers::edit(&path, |peers| peers.remove("box")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
}

#[test]
fn an_edited_file_is_private_and_nothing_else_is_left_in_its_folder() {
    let (folder, path) = folder();
    Peers::edit(&path, |peers| peers.add(&line(1, ""), Some("nas"))).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn edits_at_the_same_time_are_all_kept() {
    let (_folder, path) = folder();
    std::thread::scope(|scope| {
        for seed in 1..9 {
            let path = &path;
            scope.spawn(move || {
                Peers::edit(path, |peers| peers.add(&line(seed, ""), None)).unwrap()
            });
        }
    });
    assert_eq!(Peers::load(&path).unwrap().iter().count(), 8);
}

#[test]
fn a_failed_edit_changes_nothing_and_a_missing_file_trusts_nobody() {
    let (_folder, path) = folder();
    let failed = Peers::edit(&path, |peers| {
        peers.add(&line(1, ""), None)?;
        peers.remove("nobody")
    });
    assert_eq!(
        failed.unwrap_err().to_string(),
        "no peer \"nobody\": expected a name, key or fingerprint from the peers file"
    );
    assert!(!path.exists());
    assert_eq!(Peers::load(&path).unwrap().iter().count(), 0);
}

#[test]
fn a_key_added_twice_takes_the_new_name_and_keeps_its_rights() {
    let mut peers = parse(&format!("read-only {} nas\n", line(1, ""))).unwrap();
    assert_eq!(
        peers.add(&line(1, "other@comment"), None).unwrap(),
        Added::Unchanged
    );
    let from = Some("nas".parse().unwrap());
    assert_eq!(
        peers.add(&line(1, ""), Some("store")).unwrap(),
        Added::Renamed { from }
    );
    assert_eq!(peers.iter().count(), 1);
    assert_eq!(
        peers.by_name("store").unwrap().options.access,
        Access::ReadOnly
    );
    assert!(peers.by_name("nas").is_none());
}

#[test]
fn a_name_belongs_to_one_key() {
    let mut peers = Peers::default();
    peers.add(&line(1, ""), Some("nas")).unwrap();
    let error = peers.add(&line(2, ""), Some("nas")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "name \"nas\" belongs to another key, AQEB-AQEB-AQEB: expected a unique name"
    );
    assert!(matches!(
        peers.add(&line(2, ""), Some("two words")),
        Err(PeersError::Value(LineError::Name { .. }))
    ));
    assert!(peers.find(&line(2, "").key).is_none());
}

#[test]
fn a_name_is_found_in_either_case_and_first_as_it_is() {
    let named = |names: [&str; 2]| {
        let mut peers = Peers::default();
        for (seed, name) in (1..).zip(names) {
            peers.add(&line(seed, ""), Some(name)).unwrap();
        }
        peers
    };
    let name = |peers: &Peers, name: &str| {
        let found = peers.by_name(name)?.name.clone();
        found.map(|name| name.to_string())
    };
    let peers = named(["NAS", "pc"]);
    for typed in ["nas", "NAS", "Nas"] {
        assert_eq!(name(&peers, typed).as_deref(), Some("NAS"), "{typed}");
    }
    assert_eq!(name(&peers, "na"), None);
    // Files of earlier versions.
    let text = format!("{} nas\n{} NAS\n", line(1, ""), line(2, ""));
    let peers = parse(&text).unwrap();
    for typed in ["nas", "NAS"] {
        assert_eq!(name(&peers, typed).as_deref(), Some(typed));
    }
}

#[test]
fn without_a_name_a_key_gets_that_of_its_host_or_the_next_that_is_free() {
    let mut peers = Peers::default();
    for (byte, comment, name) in [
        (1, "alice@right", Some("right")),
        (2, "bob@right", Some("right-2")),
        (3, "right", Some("right-3")),
        (4, "alice@", None),
        (5, "two words", None),
        (6, "a@b:c", None),
        (7, "a@10.0.0.1", None),
        (9, "a@fe80::1%eth0", None),
        (10, "a@LocalHost", None),
        (11, "a@x.localhost", None),
        (8, "", None),
    ] {
        peers.add(&line(byte, comment), None).unwrap();
        let found = peers.find(&line(byte, "").key).unwrap();
        let found = found.name.as_ref().map(PeerName::as_str);
        assert_eq!(found, name, "{comment}");
    }
}

#[test]
fn a_peer_is_removed_by_name_key_or_fingerprint() {
    let key = line(3, "").key;
    let text = key.to_string();
    let (_, base64) = text.split_once(' ').unwrap();
    for which in ["nas", text.as_str(), base64, key.fingerprint().as_str()] {
        let mut peers = Peers::default();
        peers.add(&line(3, "nas"), None).unwrap();
        peers.add(&line(4, ""), None).unwrap();
        assert_eq!(peers.remove(which).unwrap().key, key, "{which}");
        assert_eq!(peers.iter().count(), 1);
    }
}

#[test]
fn rights_are_changed_in_place() {
    let mut peers = parse(&format!("{} nas\n# end\n", line(1, ""))).unwrap();
    let options: PeerOptions = "root=/srv,append-only".parse().unwrap();
    peers
        .set_options(&line(1, "").key, options.clone())
        .unwrap();
    assert_eq!(
        peers.to_text(),
        format!("root=/srv,append-only {} nas\n# end\n", line(1, ""))
    );
    assert!(matches!(
        peers.set_options(&line(2, "").key, options),
        Err(PeersError::Unknown { .. })
    ));
    for root in ["relative", "/line\nbreak"] {
        let options = PeerOptions {
            root: Some(root.into()),
            ..PeerOptions::unrestricted()
        };
        assert!(matches!(
            peers.set_options(&line(1, "").key, options),
            Err(PeersError::Value(LineError::Root { .. }))
        ));
    }
}

#[test]
fn one_bad_line_spoils_the_file_and_is_named() {
    let good = line(1, "nas").to_string();
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let unknown = error(&format!("# x\n{good}\nreadonly {}\n", line(2, "")));
    let said = "\"/etc/peers\", line 3: unknown option \"readonly\": expected root=DIR";
    assert!(unknown.starts_with(said), "{unknown}");
    let twice = error(&format!("{good}\nread-only {good}\n"));
    assert_eq!(
        twice,
        "\"/etc/peers\", line 2: key AQEB-AQEB-AQEB is a duplicate: expected one line per key"
    );
    assert!(
        error(&format!("{good}\n{} nas\n", line(2, "")))
            .contains("line 2: name \"nas\" is a duplicate")
    );
    assert!(
        error(&format!("{good}\r\n# x\rread-only\n{}\u{7}\n", line(2, "")))
            .contains("line 3: control characters")
    );
    // The neutral point, for which anybody can sign.
    let weak = error("nicstripe-ed25519 AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= nas2\n");
    assert!(weak.contains("line 1: the key is weak"), "{weak}");
    assert!(
        Peers::parse(Path::new("p"), b"# \xff\n")
            .unwrap_err()
            .to_string()
            .ends_with("line 1: not UTF-8 text")
    );
}

#[test]
fn a_file_that_others_can_change_is_refused() {
    let (_folder, path) = folder();
    fs::write(&path, "").unwrap();
    set(&path, 0o666);
    let error = Peers::load(&path).unwrap_err().to_string();
    let said = "has mode 0666, others could change it: expected at most 0644 (chmod go-w)";
    assert!(error.ends_with(said), "{error}");
    set(&path, 0o644);
    assert!(Peers::load(&path).is_ok());
}

#[test]
fn a_file_that_others_can_replace_is_refused() {
    let (_folder, path) = folder();
    fs::write(&path, "").unwrap();
    set(&path, 0o644);
    let elsewhere = private_folder();
    let linked = elsewhere.path().join("linked");
    std::os::unix::fs::symlink(&path, &linked).unwrap();
    set(path.parent().unwrap(), 0o777);
    for path in [&path, &linked] {
        let error = Peers::load(path).unwrap_err().to_string();
        assert!(error.ends_with("has mode 0777, others could replace files in it: expected at most 0755 (chmod go-w)"), "{error}");
    }
    set(path.parent().unwrap(), 0o1777);
    assert!(Peers::load(&path).is_ok(), "as in /tmp");
    assert!(Peers::load(&linked).is_ok(), "as in /tmp");
}
