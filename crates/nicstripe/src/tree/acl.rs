//! Translation of users and groups in POSIX ACLs: their numeric IDs differ between machines.

use std::collections::HashMap;

use nicstripe_proto::tree::{AclKind, AclName, AclNames, Xattr};

use super::owners::Owners;

/// Returns the names of the users and groups in the ACLs among these extended attributes. Omits IDs
/// without a name.
pub(super) fn names_of(xattrs: &[Xattr], owners: &mut Owners) -> Option<AclNames> {
    let mut names: Vec<AclName> = Vec::new();
    for entry in xattrs.iter().filter_map(entries).flatten() {
        let Some((kind, id)) = mentioned(entry) else {
            continue;
        };
        if names.len() == AclNames::MOST {
            break;
        }
        if !names
            .iter()
            .any(|known| (known.kind, known.id) == (kind, id))
        {
            names.extend(
                owners
                    .name_in_acl(kind, id)
                    .map(|name| AclName { kind, id, name }),
            );
        }
    }
    AclNames::new(names)
}

/// Replaces the sender's IDs in ACLs by the local IDs of the same names, and sorts the entries as
/// ACLs require.
pub(super) fn make_local(xattrs: &mut [Xattr], names: &AclNames, owners: &mut Owners) {
    let local: HashMap<(AclKind, u32), u32> = names
        .as_slice()
        .iter()
        .map(|name| ((name.kind, name.id), owners.local_in_acl(name)))
        .collect();
    for xattr in xattrs {
        let Some(mut all) = entries(xattr).map(<[[u8; ENTRY]]>::to_vec) else {
            continue;
        };
        for entry in &mut all {
            let local_id = mentioned(entry).and_then(|mentioned| local.get(&mentioned));
            local_id
                .into_iter()
                .for_each(|id| entry[4..].copy_from_slice(&id.to_le_bytes()));
        }
        all.sort_by_key(|entry| (tag_of(entry), id_of(entry)));
        xattr.value[VERSION.len()..].copy_from_slice(all.as_flattened());
    }
}

/// Returns the entries of an ACL in the kernel's format (linux/posix_acl_xattr.h); `None` for other
/// extended attributes.
fn entries(xattr: &Xattr) -> Option<&[[u8; ENTRY]]> {
    let is_acl = matches!(
        &xattr.name[..],
        b"system.posix_acl_access" | b"system.posix_acl_default"
    );
    let (entries, rest) = xattr
        .value
        .strip_prefix(&VERSION)
        .filter(|_| is_acl)?
        .as_chunks();
    rest.is_empty().then_some(entries)
}

/// Returns the user or group that an ACL entry names; `None` for owner, owning group, others and
/// mask.
fn mentioned(entry: &[u8; ENTRY]) -> Option<(AclKind, u32)> {
    let kind = match tag_of(entry) {
        0x02 => AclKind::User,
        0x08 => AclKind::Group,
        _ => return None,
    };
    Some((kind, id_of(entry)))
}

fn tag_of(&[low, high, ..]: &[u8; ENTRY]) -> u16 {
    u16::from_le_bytes([low, high])
}

fn id_of(&[.., a, b, c, d]: &[u8; ENTRY]) -> u32 {
    u32::from_le_bytes([a, b, c, d])
}

/// Version header of an ACL attribute (linux/posix_acl_xattr.h).
const VERSION: [u8; 4] = [2, 0, 0, 0];

/// Size of an ACL entry in bytes: tag (2), permissions (2) and ID (4), little-endian.
const ENTRY: usize = 8;

#[cfg(test)]
mod tests {
    use nicstripe_proto::tree::OwnerName;

    use super::*;

    const USER: u16 = 0x02;
    const GROUP: u16 = 0x08;
    const NOBODY: u32 = u32::MAX;

    fn acl(of: &[(u16, u32)]) -> Xattr {
        let entry =
            |(tag, id): &(u16, u32)| [&tag.to_le_bytes()[..], &[4, 0], &id.to_le_bytes()].concat();
        let value = [VERSION.to_vec(), of.iter().flat_map(entry).collect()].concat();
        Xattr {
            name: b"system.posix_acl_access".to_vec().into(),
            value: value.into(),
        }
    }

    fn name(kind: AclKind, id: u32, name: &str) -> AclName {
        AclName {
            kind,
            id,
            name: OwnerName::new(name).unwrap(),
        }
    }

    #[test]
    fn those_whom_an_acl_mentions_have_names_but_root() {
        let mut owners = Owners::knowing(|id| (id != 1001).then(|| format!("n{id}")), |_| None);
        let full = acl(&[
            (1, NOBODY),
            (USER, 0),
            (USER, 1000),
            (USER, 1001),
            (4, 3),
            (GROUP, 1000),
            (16, NOBODY),
            (32, NOBODY),
        ]);
        let again = Xattr {
            name: b"system.posix_acl_default".to_vec().into(),
            ..acl(&[(USER, 1000), (USER, 7)])
        };
        let expected = [
            name(AclKind::User, 1000, "n1000"),
            name(AclKind::Group, 1000, "n1000"),
            name(AclKind::User, 7, "n7"),
        ];
        assert_eq!(
            names_of(&[full, again], &mut owners).unwrap().as_slice(),
            expected
        );
        let other = Xattr {
            name: b"user.acl".to_vec().into(),
            ..acl(&[(USER, 7)])
        };
        let mut cut = acl(&[(USER, 7)]);
        cut.value.pop();
        assert_eq!(names_of(&[other, cut], &mut owners), None);
        let many: Vec<(u16, u32)> = (1..9000).map(|id| (USER, 2000 + id)).collect();
        assert_eq!(
            names_of(&[acl(&many)], &mut owners)
                .unwrap()
                .as_slice()
                .len(),
            AclNames::MOST
        );
    }

    #[test]
    fn numbers_become_those_of_this_machine_and_are_in_order_again() {
        let here = |name: &str| match name {
            "alice" => Some(9),
            "staff" => Some(50),
            "toor" => Some(0),
            _ => None,
        };
        let mut owners = Owners::knowing(|_| None, here);
        let names = [
            (AclKind::User, 5, "alice"),
            (AclKind::User, 6, "unknown"),
            (AclKind::User, 8, "toor"),
            (AclKind::Group, 5, "staff"),
        ];
        let names =
            AclNames::new(names.map(|(kind, id, text)| name(kind, id, text)).to_vec()).unwrap();
        let sent = acl(&[
            (1, NOBODY),
            (USER, 5),
            (USER, 6),
            (USER, 7),
            (USER, 8),
            (4, 5),
            (GROUP, 5),
            (16, NOBODY),
            (32, NOBODY),
        ]);
        let other = Xattr {
            name: b"user.acl".to_vec().into(),
            ..sent.clone()
        };
        let mut xattrs = [sent, other.clone()];
        make_local(&mut xattrs, &names, &mut owners);
        let expected = acl(&[
            (1, NOBODY),
            (USER, 6),
            (USER, 7),
            (USER, 8),
            (USER, 9),
            (4, 5),
            (GROUP, 50),
            (16, NOBODY),
            (32, NOBODY),
        ]);
        assert_eq!(xattrs, [expected, other]);
    }
}
