//! Which share this process copies: as typed, or as a scheduler's variables tell.

use std::{ffi::OsString, str::FromStr};

use clap::Args;
use nicstripe::{Share, ShareError};

use crate::{
    failure::{Fault, usage},
    text::{invocation::Invocation, shown},
};

/// Options of `cp` for one of several processes that copy the same.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ShardArgs {
    /// Copy the K-th of N shares of the files, of equal weight; other processes, on any machine, copy the
    /// others. auto: K and N as Slurm (job array or tasks), Kubernetes (indexed job) or GNU parallel
    /// tell them
    #[arg(long, value_name = "K/N|auto")]
    pub(crate) shard: Option<Shard>,

    /// Number of shares for --shard auto where the scheduler does not tell it
    #[arg(long, value_name = "N", requires = "shard")]
    pub(crate) shards: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shard {
    Given(Share),
    Auto,
}

impl FromStr for Shard {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Given),
        }
    }
}

impl ShardArgs {
    /// Returns the share to copy; `None` for all.
    pub(in crate::commands::cp) fn share(
        self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Share>, Fault> {
        let share = match (self.shard, self.shards) {
            (None, _) => return Ok(None),
            (Some(Shard::Given(share)), None) => share,
            (Some(Shard::Given(_)), Some(_)) => {
                return Err(usage(
                    "--shards goes with --shard auto: --shard K/N already has the number",
                ));
            }
            (Some(Shard::Auto), shards) => of_scheduler(&variable, shards)?,
        };
        Ok(Some(share))
    }
}

/// Variables by which a scheduler numbers one of several processes.
#[derive(Debug, Clone, Copy)]
struct Scheduler {
    name: &'static str,
    /// Variable with the number of the process.
    number: &'static str,
    /// Variable with the number of the first process; `None` if there is none.
    first: Option<&'static str>,
    /// Number of the first process if no variable has it.
    base: u32,
    /// Variable with the distance of two numbers.
    step: Option<&'static str>,
    /// Variable with the number of processes; `None` if there is none.
    count: Option<&'static str>,
}

/// Scheduler that tells only the number.
const OTHER: Scheduler = Scheduler {
    name: "",
    number: "",
    first: None,
    base: 0,
    step: None,
    count: None,
};

const SCHEDULERS: [Scheduler; 4] = [
    Scheduler {
        name: "Slurm's job array",
        number: "SLURM_ARRAY_TASK_ID",
        first: Some("SLURM_ARRAY_TASK_MIN"),
        base: 0,
        step: Some("SLURM_ARRAY_TASK_STEP"),
        count: Some("SLURM_ARRAY_TASK_COUNT"),
    },
    Scheduler {
        name: "Slurm's tasks",
        number: "SLURM_PROCID",
        count: Some("SLURM_NTASKS"),
        ..OTHER
    },
    Scheduler {
        name: "Kubernetes' indexed job",
        number: "JOB_COMPLETION_INDEX",
        ..OTHER
    },
    Scheduler {
        name: "GNU parallel",
        number: "PARALLEL_SEQ",
        base: 1,
        ..OTHER
    },
];

impl Scheduler {
    /// Returns true if the process is one of several. A batch script of Slurm is its only task.
    fn is_present(&self, variable: &impl Fn(&str) -> Option<OsString>) -> bool {
        let is_alone = |count| variable(count).is_none_or(|value| value == "1");
        let is_task = self.number == "SLURM_PROCID";
        variable(self.number).is_some() && !(is_task && self.count.is_some_and(is_alone))
    }

    fn share(
        &self,
        variable: &impl Fn(&str) -> Option<OsString>,
        shards: Option<u32>,
    ) -> Result<Share, Fault> {
        let read = |name: &'static str| read(name, variable);
        let first = match self.first {
            Some(first) => read(first)?,
            None => self.base,
        };
        let step = match self.step.filter(|step| variable(step).is_some()) {
            Some(step) => read(step)?.max(1),
            None => 1,
        };
        let of = match (self.count.map(read).transpose()?, shards) {
            (Some(told), Some(given)) if told != given => {
                let name = self.name;
                return Err(usage(format!(
                    "--shards says {given} and {name} has {told}: expected the same"
                )));
            }
            (Some(of), _) | (None, Some(of)) => of,
            (None, None) => {
                let name = self.name;
                let how = Invocation::of_this_process().with_flag("--shards=N");
                return Err(
                    auto(format!("{name} does not tell how many shares there are"))
                        .with_hint(format!("say how many: {how}")),
                );
            }
        };
        let told = read(self.number)?;
        let number = told.checked_sub(first).filter(|behind| behind % step == 0);
        let number = number.and_then(|behind| (behind / step).checked_add(1));
        let share = Share::new(number.unwrap_or_default(), of);
        share.map_err(|error| {
            auto(format!("{} is {told}", self.number))
                .because(error)
                .with_hint(WHICH)
        })
    }
}

fn of_scheduler(
    variable: &impl Fn(&str) -> Option<OsString>,
    shards: Option<u32>,
) -> Result<Share, Fault> {
    let present = SCHEDULERS.iter().filter(|one| one.is_present(variable));
    match &present.collect::<Vec<_>>()[..] {
        [] => Err(auto("no scheduler tells which share this is").with_hint(WHICH)),
        [scheduler] => scheduler.share(variable, shards),
        several => {
            let names = several
                .iter()
                .map(|one| format!("{} ({})", one.name, one.number));
            let names = names.collect::<Vec<_>>().join(", ");
            let text = format!("several schedulers tell which share this is: {names}");
            Err(auto(text).with_hint(WHICH))
        }
    }
}

fn read(name: &'static str, variable: &impl Fn(&str) -> Option<OsString>) -> Result<u32, Fault> {
    let value = variable(name).unwrap_or_default();
    let text = value.to_string_lossy();
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_digits);
    number.ok_or_else(|| {
        let value = shown(&*value);
        auto(format!("{name} is \"{value}\", expected a number"))
    })
}

/// Returns the error of a share that no scheduler tells.
fn auto(text: impl std::fmt::Display) -> Fault {
    usage(format!("--shard auto: {text}"))
}

const WHICH: &str = "say which: --shard K/N";

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(variables: &[(&str, &str)], shards: Option<u32>) -> Result<String, Fault> {
        let args = ShardArgs {
            shard: Some(Shard::Auto),
            shards,
        };
        let share = args.share(|name| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).into())
        });
        Ok(share?.unwrap().to_string())
    }

    const ARRAY: [(&str, &str); 3] = [
        ("SLURM_ARRAY_TASK_ID", "14"),
        ("SLURM_ARRAY_TASK_MIN", "10"),
        ("SLURM_ARRAY_TASK_COUNT", "8"),
    ];

    #[test]
    fn the_share_is_the_one_that_a_scheduler_means() {
        let with = |more: &[(&'static str, &'static str)]| [&ARRAY[..], more].concat();
        for (variables, shards, expected) in [
            (ARRAY.to_vec(), None, "5/8"),
            (ARRAY.to_vec(), Some(8), "5/8"),
            (with(&[("SLURM_ARRAY_TASK_STEP", "2")]), None, "3/8"),
            // A batch script is the only task of its job.
            (
                with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]),
                None,
                "5/8",
            ),
            (with(&[("SLURM_PROCID", "0")]), None, "5/8"),
            (
                vec![("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")],
                None,
                "1/4",
            ),
            (vec![("JOB_COMPLETION_INDEX", "3")], Some(4), "4/4"),
            (vec![("PARALLEL_SEQ", "1")], Some(4), "1/4"),
        ] {
            assert_eq!(auto(&variables, shards).unwrap(), expected, "{variables:?}");
        }
    }

    #[test]
    fn what_is_not_told_or_contradictory_is_an_error_that_names_it() {
        let both = [&ARRAY[..], &[("PARALLEL_SEQ", "1")]].concat();
        for (variables, shards, said) in [
            (vec![], Some(4), "no scheduler tells"),
            (
                both,
                None,
                "Slurm's job array (SLURM_ARRAY_TASK_ID), GNU parallel (PARALLEL_SEQ)",
            ),
            (
                ARRAY.to_vec(),
                Some(9),
                "--shards says 9 and Slurm's job array has 8",
            ),
            (
                vec![("PARALLEL_SEQ", "1")],
                None,
                "GNU parallel does not tell how many",
            ),
            (vec![("PARALLEL_SEQ", "0")], Some(4), "PARALLEL_SEQ is 0"),
            (vec![("PARALLEL_SEQ", "5")], Some(4), "PARALLEL_SEQ is 5"),
            (
                vec![("JOB_COMPLETION_INDEX", "x")],
                Some(4),
                "JOB_COMPLETION_INDEX is \"x\"",
            ),
            (ARRAY[..2].to_vec(), None, "SLURM_ARRAY_TASK_COUNT is \"\""),
        ] {
            let error = auto(&variables, shards).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let given = ShardArgs {
            shard: Some("1/2".parse().unwrap()),
            shards: Some(2),
        };
        let error = given.share(|_| None).unwrap_err().to_string();
        assert!(error.starts_with("--shards goes with"), "{error}");
    }
}
