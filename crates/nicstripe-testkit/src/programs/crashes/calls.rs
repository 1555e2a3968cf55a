//! Fault injection into single file system calls of the receiver: a kill, an error or a short
//! write.

use super::{
    case::{Case, Way},
    field::Field,
    tracer::{Fault, Plan, Seen, Traced, Which},
};
use crate::{Outcome, Process, number};

/// Series of copies. Each copy has the same fault in another system call.
pub struct Sweep<'a> {
    pub case: Case,
    pub which: Which,
    pub fault: Fault,
    pub field: &'a mut Field,
    /// True if the sweep prints each system call.
    pub is_told: bool,
}

#[derive(Debug, Default)]
pub struct Swept {
    /// Number of counted system calls in a copy without faults.
    pub calls: usize,
    /// Number of system calls with an injected fault.
    pub hits: usize,
    /// Number of copies that failed because of the fault. The other copies tolerated it.
    pub failed: usize,
}

impl Sweep<'_> {
    /// Runs one copy per `step`th system call, with the fault injected into that call. Panics if a
    /// file is damaged or a rerun fails.
    pub fn run(mut self, step: usize) -> Swept {
        let calls = self.attempt(0).calls.len();
        let mut swept = Swept {
            calls,
            ..Swept::default()
        };
        let mut at = 1;
        // Number and order of the calls vary between copies.
        while at <= 2 * calls {
            let seen = self.attempt(at);
            let Some(hit) = seen.hit else { break };
            if self.is_told {
                eprintln!(
                    "{}, {:?} at call {at}, {hit}: {}",
                    self.case.name,
                    self.fault,
                    if seen.failed { "failed" } else { "done" }
                );
            }
            swept.hits += 1;
            swept.failed += usize::from(seen.failed);
            at += step;
        }
        swept
    }

    /// Runs one copy with the fault in call number `at`. Reruns the copy if it failed.
    fn attempt(&mut self, at: usize) -> Attempt {
        let (case, plan) = (
            self.case,
            Plan {
                which: self.which,
                at,
                fault: self.fault,
            },
        );
        case.prepare(self.field);
        let (traced, client) =
            self.field
                .start_traced(&case, plan, &["--json", "--timeout", "300ms"]);
        // A daemon may fail before the client starts.
        let (outcome, watched) = match client.map(Process::finish) {
            Some(outcome) => (Some(outcome), Ok(traced)),
            None => {
                let (outcome, seen) = traced.finish();
                ((case.way() == Way::Get).then_some(outcome), Err(seen))
            }
        };
        let failed = outcome
            .as_ref()
            .is_none_or(|outcome| !outcome.status.success());
        let context = format!("{}, {:?} at call {at}", case.name, self.fault);
        if let Some(outcome) = outcome.as_ref().filter(|_| failed) {
            self.check_failure(&context, outcome);
        }
        case.check_between(self.field);
        let (rerun, Seen { calls, hit }) = self.rerun(failed, watched);
        let context = format!(
            "{context} of {}, {hit:?}\nfirst: {}",
            calls.len(),
            shown(outcome.as_ref())
        );
        assert!(!failed || hit.is_some(), "{context}");
        if let Some(rerun) = rerun {
            assert!(rerun.status.success(), "{context}\nthen: {rerun}");
            let is_poisoned = matches!(self.fault, Fault::Fail(_))
                && hit
                    .as_ref()
                    .is_some_and(|hit| hit.contains("sync") && hit.ends_with("*part"));
            // Data whose sync failed must not count as durable.
            assert!(
                !is_poisoned || !case.is_file() || number(&rerun.document(), "resumed_bytes") == 0,
                "{context}\nthen: {rerun}"
            );
        }
        // A journal that cannot be removed is obsolete. It stays until another copy to the same
        // name.
        if matches!(self.fault, Fault::Fail(_) | Fault::FailFrom(_))
            && hit.as_ref().is_some_and(|hit| hit.starts_with("unlinkat"))
        {
            case.remove_journals(self.field);
        }
        case.check_end(self.field, &context);
        Attempt { calls, hit, failed }
    }

    /// Reruns a failed copy and ends the traced process. The rerun uses the surviving daemon,
    /// unless the fault is permanent.
    fn rerun(&mut self, failed: bool, watched: Result<Traced, Seen>) -> (Option<Outcome>, Seen) {
        let lives = matches!(self.fault, Fault::Fail(_) | Fault::Short);
        match watched {
            Ok(watched) if lives => {
                let rerun = failed.then(|| self.field.cp(&self.case));
                (rerun, watched.end())
            }
            watched => {
                let seen = watched.map_or_else(|seen| seen, Traced::end);
                self.field.start_daemon();
                (failed.then(|| self.field.cp(&self.case)), seen)
            }
        }
    }

    /// Panics unless a failed copy has the expected exit code and error message.
    fn check_failure(&self, context: &str, outcome: &Outcome) {
        let code = outcome.status.code();
        if self.fault == Fault::Kill {
            assert!(
                matches!(code, None | Some(5 | 10 | 30)),
                "{context}: {outcome}"
            );
            return;
        }
        // The session opens the served directory first.
        let is_refused = outcome.stderr.contains("cannot open the directory served");
        let allowed: &[i32] = if is_refused {
            &[5]
        } else if self.case.is_file() {
            &[11]
        } else {
            &[11, 23]
        };
        assert!(
            code.is_some_and(|code| allowed.contains(&code)),
            "{context}: {outcome}"
        );
        let document = outcome.document();
        outcome.labelled("error: ", &[]);
        assert!(
            document["resumable"] == true || !outcome.stderr.contains("is kept"),
            "{context}: {outcome}"
        );
    }
}

fn shown(outcome: Option<&Outcome>) -> String {
    outcome.map_or_else(|| "the daemon did not start".into(), Outcome::to_string)
}

struct Attempt {
    calls: Vec<String>,
    hit: Option<String>,
    failed: bool,
}
