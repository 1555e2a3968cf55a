use std::os::unix::fs::symlink;

use super::*;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "makes symbolic links")]
fn no_link_leads_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "secret");
    let root = outside.path().join("root");
    write(&root, "sys/file", "inside");
    for (target, link) in [
        ("../../../../secret", "sys/up"),
        ("/sys/file", "sys/absolute"),
        (outside.path().join("secret").to_str().unwrap(), "sys/real"),
        ("loop", "sys/loop"),
        ("../..", "sys/top"),
        ("file", "sys/same"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let recorded = Recorded::open(&root).unwrap();
    let inside = Some("inside".to_owned());
    for path in [
        "/sys/file",
        "/sys/absolute",
        "/sys/same",
        "/../sys/./file",
        "/sys/top/sys/file",
    ] {
        assert_eq!(recorded.read(path), inside, "{path}");
    }
    for path in [
        "/sys/up",
        "/sys/real",
        "/sys/loop",
        "/../secret",
        "/sys/top/../secret",
        "/sys",
        "/",
    ] {
        assert_eq!(recorded.read(path), None, "{path}");
    }
    assert_eq!(
        recorded.follow("/sys/absolute").as_deref(),
        Some("/sys/file")
    );
    assert_eq!(recorded.follow("/sys/up"), None);
    assert_eq!(recorded.list("/sys/top"), ["sys"]);
    assert_eq!(recorded.list("/sys/nothing"), [""; 0]);
}

#[test]
#[cfg_attr(miri, ignore = "reads a folder")]
fn recorded_answers_are_used_and_broken_ones_are_an_error() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "sys/class/net/eth0/ifindex", "2\n");
    let open = || Recorded::open(root.path());
    assert_eq!(open().unwrap().interfaces()[0].name, "eth0");
    write(
        root.path(),
        "interfaces.json",
        r#"[{"name":"eth7","eee":{"active":true},"new":1}]"#,
    );
    let interfaces = open().unwrap().interfaces();
    assert_eq!(interfaces[0].name, "eth7");
    assert_eq!(interfaces[0].eee.unwrap().active, Some(true));
    write(root.path(), "interfaces.json", "[{");
    assert_eq!(open().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(Recorded::open(root.path().join("nothing")).is_err());
}

#[test]
fn the_kind_is_known_by_files() {
    let kind_of = |device_type, hardware, entries: &[&str], has_peer| {
        let entries: Vec<_> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        kind(&Signs {
            device_type,
            hardware: Some(hardware),
            entries: &entries,
            has_peer,
        })
    };
    for (device_type, hardware, entries, has_peer, expected) in [
        ("", 772, &[][..], false, "loopback"),
        ("", 1, &["device"], false, "ethernet"),
        ("wlan", 1, &["device", "phy80211"], false, "wi-fi"),
        ("", 1, &["wireless", "device"], false, "wi-fi"),
        ("", 1, &["tun_flags"], false, "tunnel"),
        ("", 65534, &[], false, "tunnel"),
        ("", 1, &[], true, "veth"),
        ("", 1, &["lower_eth0"], true, "vlan"),
        ("vlan", 1, &["lower_eth0"], true, "vlan"),
        ("bond", 1, &[], false, "bond"),
        ("", 1, &[], false, "other"),
        ("", 280, &[], false, "other"),
    ] {
        assert_eq!(kind_of(device_type, hardware, entries, has_peer), expected);
    }
}

#[test]
fn values_of_drivers_that_know_none_are_unknown() {
    assert_eq!(
        ["2500", "-1", "0", "4294967295"].map(known_speed),
        [Some(2500), None, None, None]
    );
    assert_eq!(
        ["0x1003", "0x1002", "3"].map(is_up),
        [Some(true), Some(false), None]
    );
    assert!(is_mac("52:54:00:12:34:56"));
    for other in [
        "00:00:00:00:00:00",
        "52:54:00:12:34",
        "52:54:00:12:34:+6",
        "1:2:3:4:5:6",
        "",
    ] {
        assert!(!is_mac(other), "{other}");
    }
}
