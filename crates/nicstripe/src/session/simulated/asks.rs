//! Tests of requests about names and their answers, while links fail.

use nicstripe_proto::{
    FailCode, Name,
    message::{AnswerKind, AskKind},
};
use nicstripe_sim::{End, Rng};
use nicstripe_testkit::trial::amount;
use tokio::{sync::oneshot, time::sleep};

use super::{
    lab::{Lab, in_virtual_time, ms, secs},
    random::{add_fault, random_link},
};
use crate::session::{Command, inbox::Unanswered};

/// Size in bytes of the file that the daemon has.
const SIZE: u64 = 4096;

/// Request about a file that exists or about one that does not, and its answer.
struct Asked {
    exists: bool,
    answer: oneshot::Receiver<Result<AnswerKind, Unanswered>>,
}

impl Lab {
    /// Sends a request about a name.
    async fn ask(&self, exists: bool) -> Asked {
        let name = Name::new([if exists { "file" } else { "none" }]).unwrap();
        let (reply, answer) = oneshot::channel();
        let ask = AskKind::Stat { name };
        self.command(Command::Ask { ask, reply }).await;
        Asked { exists, answer }
    }

    async fn ask_often(&self, count: u64) -> Vec<Asked> {
        let mut asked = Vec::new();
        for number in 0..count {
            asked.push(self.ask(number % 3 > 0).await);
        }
        asked
    }
}

/// Asserts that each request is answered, and by its own answer.
async fn assert_answered(asked: Vec<Asked>, within: std::time::Duration, what: &str) {
    let until = tokio::time::Instant::now() + within;
    for Asked { exists, answer } in asked {
        let answer = tokio::time::timeout_at(until, answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{what}: no answer"));
        match answer.unwrap() {
            Ok(AnswerKind::Stat { stat, .. }) => assert!(exists && stat.size == SIZE, "{what}"),
            Err(Unanswered { error, .. }) => {
                let code = error.fail_code();
                assert!(!exists, "{what}: {error}");
                assert!(code == Some(FailCode::NotFound), "{what}: {error}");
            }
            Ok(other) => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn whatever_happens_what_is_asked_is_answered_once() {
    for seed in 0..amount(12, 300) {
        println!("seed {seed}");
        in_virtual_time(async move {
            let mut rng = Rng::new(seed ^ 0xa5);
            let links = (0..=rng.below(3)).map(|_| random_link(&mut rng)).collect();
            let lab = Lab::over_paths(seed, links).await;
            lab.write(End::B, SIZE);
            for _ in 0..rng.below(7) {
                add_fault(&lab, &mut rng, lab.links.count());
            }
            let mut asked = Vec::new();
            for _ in 0..rng.below(30) {
                sleep(ms(rng.below(300))).await;
                // More than may be open at once.
                let count = rng.below(2) * rng.below(150);
                asked.extend(lab.ask_often(count).await);
            }
            assert_answered(asked, secs(200), &format!("seed {seed}")).await;
            for end in End::BOTH {
                let open = lab.inspect(end, |session| session.open_asks()).await;
                assert_eq!(open, 0, "seed {seed} {end:?}");
            }
        });
    }
}

#[test]
fn what_is_asked_survives_the_loss_of_its_path_at_any_moment() {
    for cut in 0..amount(15, 60) {
        in_virtual_time(async move {
            let lab = Lab::new(cut, &[10, 100]).await;
            lab.write(End::B, SIZE);
            sleep(ms(20)).await;
            let asked = lab.ask_often(40).await;
            lab.at(lab.now() + ms(cut) / amount(1, 4), |links| links.cut(1));
            assert_answered(asked, secs(2), &format!("cut after {cut}")).await;
        });
    }
}
