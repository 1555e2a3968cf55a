//! Direction of a copy between client and daemon.

use nicstripe_testkit::{Outcome, Process, Side, pair::Pair};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Put,
    Get,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Put, Self::Get];

    pub(crate) fn from(self, pair: &Pair) -> &Side {
        match self {
            Self::Put => &pair.client,
            Self::Get => &pair.server,
        }
    }

    pub(crate) fn to(self, pair: &Pair) -> &Side {
        match self {
            Self::Put => &pair.server,
            Self::Get => &pair.client,
        }
    }

    /// Returns the `cp` arguments for these sources and this target, in this direction.
    pub(crate) fn words(self, sources: &[&str], target: &str) -> Vec<String> {
        let remote = |path: &str| format!("127.0.0.1:{path}");
        let local = |path: &str| if path.is_empty() { "." } else { path }.to_owned();
        match self {
            Self::Put => {
                let sources = sources.iter().map(|source| local(source));
                sources.chain([remote(target)]).collect()
            }
            Self::Get => {
                let sources = sources.iter().map(|source| remote(source));
                sources.chain([local(target)]).collect()
            }
        }
    }

    pub(crate) fn start(
        self,
        pair: &Pair,
        options: &[&str],
        sources: &[&str],
        target: &str,
    ) -> Process {
        let words = self.words(sources, target);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        pair.start_cp(&[options, &words].concat())
    }

    pub(crate) fn cp(
        self,
        pair: &Pair,
        options: &[&str],
        sources: &[&str],
        target: &str,
    ) -> Outcome {
        self.start(pair, options, sources, target).finish()
    }
}
