//! Tests of requests about names and their answers, under link faults.

use nicstripe_proto::{
    Event, FailCode, Message, Name, PathError, Role,
    journal::Timestamp,
    message::{
        Answer, AnswerKind, Ask, AskKind, MOST_ASKS, MOST_ENTRIES, ObjectEntry, ObjectKind,
        ObjectStat,
    },
};
use nicstripe_sim::{End, Rng};

use crate::{
    harness::{Lab, Seed, ms, secs},
    hostile::Victim,
    random::{finish, random_lab},
    seeds::run_all,
};

const SEEDS: u64 = 60;

#[test]
fn whatever_happens_what_is_asked_is_answered_once() {
    run_all("whatever_happens_what_is_asked", &[17_407], SEEDS, |seed| {
        let mut lab = random_lab(seed);
        let mut rng = Rng::new(seed.0 ^ 0xa5);
        for id in 0..rng.below(200) as u32 {
            lab.at(ms(rng.below(4_000)), move |lab| lab.ask(id));
        }
        // More requests than may be open at once.
        let first = 1000 + rng.below(1000) as u32;
        lab.at(ms(rng.below(1_000)), move |lab| {
            (first..first + 80).for_each(|id| lab.ask(id));
        });
        finish(&mut lab);
        let until = lab.net.now() + secs(200);
        lab.run_while(until, |lab| lab.peers[0].session.open_asks() > 0);
        let client = &lab.peers[0];
        assert!(
            client.asked.iter().eq(client.answers.keys()),
            "{:?} asked, answers: {:?}",
            client.asked,
            client.answers.keys()
        );
        assert!(
            client
                .answers
                .values()
                .all(|answer| answer.answer == expected(answer.id))
        );
        assert_eq!(lab.peers[1].session.open_asks(), 0);
    });
}

#[test]
fn what_is_asked_survives_the_loss_of_its_path_at_any_moment() {
    for cut in 0..60 {
        let mut lab = Lab::small(Seed(cut), 0).link(100).link(1000);
        lab.start();
        lab.at(ms(20), |lab| (0..40).for_each(|id| lab.ask(id)));
        lab.at(ms(20) + ms(cut) / 4, |lab| lab.cut(1));
        lab.run_until(secs(2));
        assert_eq!(lab.peers[0].answers.len(), 40, "cut after {cut} × 0.25 ms");
    }
}

impl Lab {
    pub(crate) fn ask(&mut self, id: u32) {
        let peer = self.peer_mut(End::A);
        let ask = AskKind::Stat { name: name("a") };
        let before = peer.session.open_asks();
        let is_new = !peer.asked.contains(&id);
        if is_new && peer.session.ask(Ask { id, ask }) {
            peer.asked.insert(id);
        } else {
            assert!(!is_new || before == MOST_ASKS, "refused {id} and {before}");
        }
    }

    pub(crate) fn answer(&mut self, end: End, ask: Ask) {
        let answer = Answer {
            id: ask.id,
            answer: expected(ask.id),
        };
        self.peer_mut(end).session.answer(answer.clone());
        // A second answer to the same request is ignored.
        self.peer_mut(end).session.answer(answer);
    }
}

fn expected(id: u32) -> AnswerKind {
    AnswerKind::Stat {
        stat: stat(id.into()),
    }
}

fn stat(size: u64) -> ObjectStat {
    ObjectStat {
        kind: ObjectKind::File,
        size,
        mtime: Timestamp::default(),
    }
}

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn ask(id: u32) -> Message {
    Message::Ask(Ask {
        id,
        ask: AskKind::Stat { name: name("a") },
    })
}

fn answer(id: u32, answer: AnswerKind) -> Message {
    Message::Answer(Answer { id, answer })
}

fn list(after: Option<&[u8]>, most: u32) -> AskKind {
    AskKind::List {
        dir: None,
        after: after.map(<[u8]>::to_vec),
        most,
    }
}

fn entries(names: &[&[u8]], more: bool) -> AnswerKind {
    let entries = names
        .iter()
        .map(|name| ObjectEntry {
            name: name.to_vec(),
            stat: stat(1),
        })
        .collect();
    AnswerKind::Entries { entries, more }
}

#[test]
fn what_only_the_other_end_says_of_names_ends_the_path() {
    let mut client = Victim::new(Role::Client);
    assert!(matches!(client.say(&ask(1)), Err(PathError::Unexpected(_))));
    let mut daemon = Victim::new(Role::Daemon);
    daemon.say(&ask(1)).unwrap();
    assert!(matches!(
        daemon.say(&answer(1, AnswerKind::Done)),
        Err(PathError::Answer { .. })
    ));
    assert!(!daemon.session.ask(Ask {
        id: 2,
        ask: list(None, 1)
    }));
    client.is_healthy();
    daemon.is_healthy();
}

#[test]
fn more_asks_than_may_be_open_and_one_that_is_open_end_the_path_and_the_others_are_answered() {
    let mut daemon = Victim::new(Role::Daemon);
    for id in 0..MOST_ASKS as u32 {
        daemon.say(&ask(id)).unwrap();
    }
    assert!(matches!(daemon.say(&ask(1000)), Err(PathError::Ask { .. })));
    assert!(matches!(daemon.say(&ask(5)), Err(PathError::Ask { .. })));
    assert_eq!(
        daemon
            .drain()
            .0
            .iter()
            .filter(|event| matches!(event, Event::Asked(_)))
            .count(),
        MOST_ASKS
    );
    daemon.session.answer(Answer {
        id: 5,
        answer: AnswerKind::Done,
    });
    daemon.session.answer(Answer {
        id: 1000,
        answer: AnswerKind::Done,
    });
    assert_eq!(daemon.session.open_asks(), MOST_ASKS - 1);
    daemon.say(&ask(5)).unwrap();
    daemon.is_healthy();
}

#[test]
fn a_list_is_asked_for_within_bounds_whatever_is_said() {
    for (said, meant) in [
        (0, 1),
        (1, 1),
        (MOST_ENTRIES, MOST_ENTRIES),
        (u32::MAX, MOST_ENTRIES),
    ] {
        let mut daemon = Victim::new(Role::Daemon);
        daemon
            .say(&Message::Ask(Ask {
                id: 1,
                ask: list(None, said),
            }))
            .unwrap();
        let Some(Event::Asked(ask)) = daemon.drain().0.pop() else {
            panic!("nothing was asked")
        };
        assert_eq!(ask.ask, list(None, meant));
    }
}

#[test]
fn answers_that_are_none_end_the_path_and_whoever_asked_hears_of_it() {
    let long = vec![b'a'; 256];
    let wrong = [
        (list(None, 9), AnswerKind::Done),
        (list(None, 9), entries(&[b"b", b"a"], false)),
        (list(None, 9), entries(&[b"a", b"a"], false)),
        (list(None, 9), entries(&[b".."], false)),
        (list(None, 9), entries(&[b""], false)),
        (list(None, 9), entries(&[b"a/b"], false)),
        (list(None, 9), entries(&[b"a\0"], false)),
        (list(None, 9), entries(&[&long], false)),
        (list(None, 9), entries(&[], true)),
        (list(None, 1), entries(&[b"a", b"b"], false)),
        (list(Some(b"b"), 9), entries(&[b"a", b"c"], false)),
        (list(Some(b"b"), 9), entries(&[b"b"], true)),
        (AskKind::Stat { name: name("a") }, AnswerKind::Done),
        (
            AskKind::Remove { name: name("a") },
            AnswerKind::Stat { stat: stat(1) },
        ),
        (AskKind::MakeDir { name: name("a") }, entries(&[], false)),
    ];
    for (asked, said) in wrong {
        let mut client = Victim::new(Role::Client);
        assert!(client.session.ask(Ask {
            id: 3,
            ask: asked.clone()
        }));
        assert!(
            matches!(
                client.say(&answer(4, said.clone())),
                Err(PathError::Answer { .. })
            ),
            "not asked"
        );
        assert!(
            matches!(
                client.say(&answer(3, said.clone())),
                Err(PathError::Answer { .. })
            ),
            "{said:?} to {asked:?}"
        );
        let events = client.drain().0;
        let is_failed = |event: &Event| match event {
            Event::Answered(Answer {
                id: 3,
                answer: AnswerKind::Failed { code, .. },
            }) => *code == FailCode::Protocol,
            _ => false,
        };
        assert!(events.iter().any(is_failed), "{events:?}");
        assert!(client.say(&answer(3, said)).is_err(), "answered twice");
        assert_eq!(client.session.open_asks(), 0);
        client.is_healthy();
    }
    let mut client = Victim::new(Role::Client);
    assert!(client.session.ask(Ask {
        id: 1,
        ask: list(Some(b"b"), 2)
    }));
    client
        .say(&answer(1, entries(&[b"c", b"d"], true)))
        .unwrap();
}
