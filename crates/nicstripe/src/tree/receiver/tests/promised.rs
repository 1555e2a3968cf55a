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

/// Returns the request of these sources, with everything in them.
fn sources(sources: &'static [&'static str]) -> Request {
    Request {
        sources,
        recursive: true,
        ..Request::default()
    }
}

/// Returns the request of these names in a source `s`.
fn listed(listed: &'static [&'static str]) -> Request {
    Request {
        sources: &["s"],
        listed: Some(listed),
        ..Request::default()
    }
}

impl Request {
    fn filtered(self, filters: &'static [&'static str]) -> Self {
        Self { filters, ..self }
    }

    fn recursive(self) -> Self {
        Self {
            recursive: true,
            ..self
        }
    }

    fn within_file_system(self) -> Self {
        Self {
            one_file_system: true,
            ..self
        }
    }

    fn of_two_sources(self) -> Self {
        Self {
            sources: &["s", "t"],
            ..self
        }
    }
}

/// Request, announced entries, and the missing name in the expected error; `None` if the tree
/// succeeds.
type Case = (Request, &'static [&'static str], Option<&'static str>);

fn cases() -> Vec<Case> {
    let three = || listed(&["a", "d/b", "d/e/c"]);
    vec![
        (sources(&["top/a", "top/b"]), &["a", "b"], None),
        (sources(&["top/a", "top/b"]), &["b", "a"], None),
        (sources(&["top/a", "top/b"]), &["a"], Some("top/b")),
        (sources(&["top/a"]), &[], Some("top/a")),
        (sources(&["top/a/"]), &[], Some("top/a")),
        (sources(&["top/a/"]), &["/f"], None),
        (sources(&["top/a/", "top/b/"]), &["/f"], Some("top/b")),
        (three(), &["s/a", "s/d/b", "s/d/e/c"], None),
        (three(), &["s/d/b", "s/d/e/c"], Some("a")),
        (three(), &["s/a", "s/d/b", "s/d/e/"], Some("d/e/c")),
        (three(), &["s/a"], Some("d")),
        (listed(&["a", "d/b"]), &["s/a", "s/d"], Some("d/b")),
        (listed(&["a"]), &["s"], Some("a")),
        (listed(&["d", "d/b"]), &["s/d/"], Some("d/b")),
        (listed(&[]), &["s/"], None),
        // A listed directory comes with everything in it, which the receiver cannot know.
        (listed(&["d", "d/b"]).recursive(), &["s/d/x"], None),
        // Two sources, each with all listed names.
        (listed(&["a"]).of_two_sources(), &["s/a", "t/a"], None),
        (listed(&["a"]).of_two_sources(), &["s/a", "t/"], Some("a")),
        // Filters of the client itself.
        (listed(&["a.o", "b"]).filtered(&["*.o"]), &["s/b"], None),
        (listed(&["d/a", "b"]).filtered(&["d/"]), &["s/b"], None),
        (listed(&["a.o", "b"]).filtered(&["*.o"]), &["s/"], Some("b")),
        // A directory on another file system is not entered.
        (listed(&["d/b"]).within_file_system(), &["s/d/"], None),
        (listed(&["b"]).within_file_system(), &["s/"], Some("b")),
        (
            listed(&["d/b", "d/c"]).within_file_system(),
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
        let Some(missing) = missing else {
            assert_eq!(sending.report().failed, 0, "case {index}");
            continue;
        };
        let text = sending.breach();
        let expected = format!("without \"{missing}\", which was requested");
        assert!(text.contains(&expected), "case {index}: {text}");
    }
}

#[test]
fn a_source_that_the_sender_cannot_read_is_told_once() {
    let ground = RootDir::quick();
    let mut sending = sources(&["a", "b"]).start(&ground);
    announce(&mut sending, &["a"]);
    sending.trouble(None, Some("b"), reason(FailCode::NotFound, "no such file"));
    assert_eq!(sending.report().failed, 1);
}

#[test]
fn a_client_gets_only_what_it_asked_for_and_only_once() {
    for second in [".bashrc", "asked"] {
        let ground = RootDir::new();
        let mut sending = sources(&["asked"]).start(&ground);
        sending.entry(None, "asked", symlink("x"));
        sending.entry(None, second, file(1));
        assert!(sending.breach().contains("not requested"));
        assert_eq!(ground.names(), ["asked"]);
    }
}

#[test]
fn a_client_gets_no_name_beside_the_listed_ones() {
    for (names, announced, is_right) in [
        (&["d/a"][..], &["s/d/a"][..], true),
        (&["d/a"], &["s/d/a", "s/d/.bashrc"], false),
        (&["d/a"], &["s/.bashrc"], false),
        (&["d/a"], &["s/d/b/c"], false),
        (&["d"], &["s/d/any"], true),
    ] {
        let ground = RootDir::quick();
        let mut sending = listed(names).recursive().start(&ground);
        announce(&mut sending, announced);
        if is_right {
            assert_eq!(sending.report().failed, 0, "{announced:?}");
        } else {
            assert!(sending.breach().contains("not requested"), "{announced:?}");
        }
    }
}
