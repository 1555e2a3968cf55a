//! Tests of senders that omit requested entries: the transfer fails.

use nicstripe_proto::{
    FailCode,
    message::{TreeSource, WalkRules},
    tree::{EntryId, TreeRules},
};

use super::harness::{RootDir, Sending, file, name, reason, symlink};
use crate::tree::filter::Filters;
use crate::tree::receiver::ReceiverRequest;
use crate::tree::receiver::promised::Promised;

/// Simulated request of a client: sources (a trailing slash requests the contents only), listed
/// names, filters and `one_file_system`.
#[derive(Default)]
struct Request {
    sources: &'static [&'static str],
    listed: Option<&'static [&'static str]>,
    filters: &'static [&'static str],
    recursive: bool,
    one_file_system: bool,
}

impl Request {
    fn start(&self, ground: &RootDir) -> Sending {
        let source = |text: &&str| TreeSource {
            name: Some(name(text.trim_end_matches('/'))),
            content: text.ends_with('/'),
        };
        let sources: Vec<TreeSource> = self.sources.iter().map(source).collect();
        let walk = WalkRules {
            recursive: self.recursive,
            one_file_system: self.one_file_system,
            only: self
                .listed
                .map(|listed| listed.iter().map(|text| name(text)).collect()),
            ..WalkRules::default()
        };
        let filters = Filters::new(
            &self
                .filters
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
        )
        .unwrap();
        Sending::start(ReceiverRequest {
            promised: Some(Promised::new(&sources, &walk)),
            filters,
            ..ground.request(TreeRules::default())
        })
    }
}

/// Announces symbolic links, which need no content, and their parent directories. A trailing slash
/// denotes a directory.
fn announce(sending: &mut Sending, paths: &[&str]) {
    let mut open: Vec<(&str, EntryId)> = Vec::new();
    for path in paths {
        let mut names: Vec<&str> = path.split('/').collect();
        let own = names.pop().unwrap();
        let shared = open
            .iter()
            .zip(&names)
            .take_while(|((known, _), name)| known == *name)
            .count();
        open.drain(shared..)
            .rev()
            .for_each(|(_, id)| sending.end(id));
        for &name in &names[shared..] {
            let id = sending.directory(open.last().map(|(_, id)| *id), name);
            open.push((name, id));
        }
        if !own.is_empty() {
            sending.entry(open.last().map(|(_, id)| *id), own, symlink("x"));
        }
    }
    open.drain(..).rev().for_each(|(_, id)| sending.end(id));
    sending.flush();
}

/// Request, announced entries, and the missing name in the expected error; `None` if the tree
/// succeeds.
type Case = (Request, &'static [&'static str], Option<&'static str>);

fn cases() -> Vec<Case> {
    let sources = |sources| Request {
        sources,
        recursive: true,
        ..Request::default()
    };
    let listed = |listed| Request {
        sources: &["s"],
        listed: Some(listed),
        ..Request::default()
    };
    vec![
        (sources(&["top/a", "top/b"]), &["a", "b"], None),
        (sources(&["top/a", "top/b"]), &["b", "a"], None),
        (sources(&["top/a", "top/b"]), &["a"], Some("top/b")),
        (sources(&["top/a"]), &[], Some("top/a")),
        (sources(&["top/a/"]), &[], Some("top/a")),
        (sources(&["top/a/"]), &["/f"], None),
        (sources(&["top/a/", "top/b/"]), &["/f"], Some("top/b")),
        (
            listed(&["a", "d/b", "d/e/c"]),
            &["s/a", "s/d/b", "s/d/e/c"],
            None,
        ),
        (
            listed(&["a", "d/b", "d/e/c"]),
            &["s/d/b", "s/d/e/c"],
            Some("a"),
        ),
        (
            listed(&["a", "d/b", "d/e/c"]),
            &["s/a", "s/d/b", "s/d/e/"],
            Some("d/e/c"),
        ),
        (listed(&["a", "d/b", "d/e/c"]), &["s/a"], Some("d")),
        (listed(&["a", "d/b"]), &["s/a", "s/d"], Some("d/b")),
        (listed(&["a"]), &["s"], Some("a")),
        (listed(&["d", "d/b"]), &["s/d/"], Some("d/b")),
        (listed(&[]), &["s/"], None),
        // A listed directory comes with everything in it, which the receiver cannot know.
        (
            Request {
                recursive: true,
                ..listed(&["d", "d/b"])
            },
            &["s/d/x"],
            None,
        ),
        // Two sources, each with all listed names.
        (
            Request {
                sources: &["s", "t"],
                ..listed(&["a"])
            },
            &["s/a", "t/a"],
            None,
        ),
        (
            Request {
                sources: &["s", "t"],
                ..listed(&["a"])
            },
            &["s/a", "t/"],
            Some("a"),
        ),
        // Filters of the client itself.
        (
            Request {
                filters: &["*.o"],
                ..listed(&["a.o", "b"])
            },
            &["s/b"],
            None,
        ),
        (
            Request {
                filters: &["d/"],
                ..listed(&["d/a", "b"])
            },
            &["s/b"],
            None,
        ),
        (
            Request {
                filters: &["*.o"],
                ..listed(&["a.o", "b"])
            },
            &["s/"],
            Some("b"),
        ),
        // A directory on another file system is not entered.
        (
            Request {
                one_file_system: true,
                ..listed(&["d/b"])
            },
            &["s/d/"],
            None,
        ),
        (
            Request {
                one_file_system: true,
                ..listed(&["b"])
            },
            &["s/"],
            Some("b"),
        ),
        (
            Request {
                one_file_system: true,
                ..listed(&["d/b", "d/c"])
            },
            &["s/d/b"],
            Some("d/c"),
        ),
    ]
}

#[test]
fn a_sender_that_leaves_out_what_was_asked_for_is_found_out() {
    for (index, (asked, announced, missing)) in cases().into_iter().enumerate() {
        let ground = RootDir::quick();
        let mut sending = asked.start(&ground);
        announce(&mut sending, announced);
        match missing {
            None => assert_eq!(sending.report().failed, 0, "case {index}"),
            Some(missing) => {
                let text = sending.breach();
                assert!(
                    text.contains(&format!("without \"{missing}\", which was requested")),
                    "case {index}: {text}"
                );
            }
        }
    }
}

#[test]
fn a_source_that_the_sender_cannot_read_is_told_once() {
    let ground = RootDir::quick();
    let mut sending = Request {
        sources: &["a", "b"],
        ..Request::default()
    }
    .start(&ground);
    announce(&mut sending, &["a"]);
    sending.trouble(None, Some("b"), reason(FailCode::NotFound, "no such file"));
    assert_eq!(sending.report().failed, 1);
}

#[test]
fn a_client_gets_only_what_it_asked_for_and_only_once() {
    for second in [".bashrc", "asked"] {
        let ground = RootDir::new();
        let mut sending = Request {
            sources: &["asked"],
            ..Request::default()
        }
        .start(&ground);
        sending.entry(None, "asked", symlink("x"));
        sending.entry(None, second, file(1));
        assert!(sending.breach().contains("not requested"));
        assert_eq!(ground.names(), ["asked"]);
    }
}

#[test]
fn a_client_gets_no_name_beside_the_listed_ones() {
    for (listed, announced, is_right) in [
        (&["d/a"][..], &["s/d/a"][..], true),
        (&["d/a"], &["s/d/a", "s/d/.bashrc"], false),
        (&["d/a"], &["s/.bashrc"], false),
        (&["d/a"], &["s/d/b/c"], false),
        (&["d"], &["s/d/any"], true),
    ] {
        let ground = RootDir::quick();
        let mut sending = Request {
            sources: &["s"],
            listed: Some(listed),
            recursive: true,
            ..Request::default()
        }
        .start(&ground);
        announce(&mut sending, announced);
        if is_right {
            assert_eq!(sending.report().failed, 0, "{announced:?}");
        } else {
            assert!(sending.breach().contains("not requested"), "{announced:?}");
        }
    }
}
