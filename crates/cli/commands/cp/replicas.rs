//! Copies of one file from several machines that have it: `cp a:img,b:img .`

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::Arc,
};

use futures_util::future::join_all;
use nicstripe::{
    Client, CopyOptions, Name, Report, escaped,
    replicas::{Drawn, Replica, draw},
    routes::RouteKeeper,
};

use super::{
    arguments::Cp,
    closing::Ends,
    show::Show,
    single::path_of_get,
    view::Shape,
    watch::{Running, Tell},
};
use crate::{
    connect::{
        location::{Location, Remote, RemotePath, shown_place},
        setup::{self, Connected},
    },
    failure::{Failure, Fault, exit::Exit, usage},
    output::terminal::Terminal,
    process::signals::Signals,
    text::shown,
};

/// Copy of one file that several machines have.
#[derive(Debug)]
pub(super) struct Replicas {
    /// Each replica as it was typed.
    typed: Vec<OsString>,
    remotes: Vec<Remote>,
    target: PathBuf,
}

impl Replicas {
    /// Returns the copy if the only source is a list of files at machines, joined by commas; `None` for
    /// other copies.
    ///
    /// # Errors
    ///
    /// The target, or an option, is of no use for such a copy.
    pub(super) fn of(cp: &Cp) -> Result<Option<Self>, Failure> {
        let [source] = cp.sources() else {
            return Ok(None);
        };
        let Some((typed, remotes)) = replicas_of(source) else {
            return Ok(None);
        };
        let shard = cp.tree.shard.shard.is_some().then_some("--shard");
        if let Some(option) = shard.or_else(|| cp.first_option_without_parts()) {
            let text = format!("{option} cannot be used with a file of several machines");
            return Err(usage(text).into());
        }
        match Location::parse(cp.target())? {
            Location::Local(target) => Ok(Some(Self {
                typed,
                remotes,
                target,
            })),
            Location::Remote(_) | Location::Pipe => Err(usage(TARGET).into()),
        }
    }

    /// Runs the copy. The first signal ends it, and what arrived is kept.
    pub(super) async fn run(
        self,
        cp: &Cp,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
        show: &mut Show,
    ) -> Result<(Report, Ends), Failure> {
        let mut signals = Signals::with_bars(terminal)?;
        let connecting = self.connect(cp, &keeper, terminal);
        let connected = signals.unless_stopped(connecting).await?;
        let result = self
            .draw(cp, &connected, terminal, show, &mut signals)
            .await;
        let closing = connected
            .into_iter()
            .map(|(_, connected, _)| connected.close());
        signals
            .finish(async { drop(join_all(closing).await) })
            .await;
        result
    }

    /// Connects to all machines. Fails only if it can to none.
    async fn connect(
        &self,
        cp: &Cp,
        keeper: &Arc<RouteKeeper>,
        terminal: &Terminal,
    ) -> Result<Vec<(usize, Connected, Name)>, Failure> {
        let connects = self.typed.iter().zip(&self.remotes);
        let connects = connects.map(|(typed, remote)| connect(cp, typed, remote, keeper));
        let (mut all, mut first) = (Vec::new(), None);
        for (index, connected) in join_all(connects).await.into_iter().enumerate() {
            match connected {
                Ok((connected, name)) => all.push((index, connected, name)),
                Err(failure) => {
                    let why = failure.one_line();
                    terminal.warning(&format!("{} is not used: {why}", self.shown(index)));
                    first.get_or_insert(failure);
                }
            }
        }
        match first.filter(|_| all.is_empty()) {
            Some(failure) => Err(failure),
            None => Ok(all),
        }
    }

    async fn draw(
        &self,
        cp: &Cp,
        connected: &[(usize, Connected, Name)],
        terminal: &Terminal,
        show: &mut Show,
        signals: &mut Signals,
    ) -> Result<(Report, Ends), Failure> {
        let Some((_, _, name)) = connected.first() else {
            return Err(usage(TARGET).into());
        };
        let target = path_of_get(name, &self.target);
        show.begin(escaped(name.file_name()), Shape::File);
        let replica = |(_, connected, name): &(usize, Connected, Name)| Replica {
            client: Client::clone(&connected.client),
            name: name.clone(),
        };
        let replicas: Vec<Replica> = connected.iter().map(replica).collect();
        let options = CopyOptions {
            replace: !cp.no_replace,
            force: cp.force,
            restart: cp.no_resume,
            parents: cp.mkpath,
            ..CopyOptions::default()
        };
        let running = Running::start(|stop, tell: Tell| {
            let (replicas, target) = (replicas.clone(), target.clone());
            async move {
                let tell = move |event| tell(event);
                Ok(draw(&replicas, &target, options, stop, tell).await?)
            }
        });
        let drawn = running.finish(show, signals).await;
        show.end(drawn.as_ref().ok().map(|drawn| &drawn.report));
        let Drawn { report, left, .. } = drawn?;
        for (index, why) in left {
            let which = connected.get(index).map_or(0, |(which, ..)| *which);
            let why = shown(why.to_string());
            terminal.warning(&format!("{}: {why}", self.shown(which)));
        }
        let all = self.typed.iter().map(|typed| shown_place(typed));
        let from = all.collect::<Vec<_>>().join(", ");
        let proof = "verified by the BLAKE3 of the replicas".to_owned();
        let ends = Ends::of_elsewhere(from, shown(&target), proof, true);
        Ok((report, ends))
    }

    fn shown(&self, index: usize) -> String {
        let typed = self.typed.get(index);
        typed.map_or_else(String::new, |typed| shown_place(typed))
    }
}

/// Connects to a machine. Returns the name of its file.
async fn connect(
    cp: &Cp,
    typed: &OsStr,
    remote: &Remote,
    keeper: &Arc<RouteKeeper>,
) -> Result<(Connected, Name), Failure> {
    let mut cp = cp.clone();
    cp.paths = vec![typed.to_owned(), cp.target().to_owned()];
    let connected = cp.connect(&remote.place, keeper, |builder| builder, setup::say);
    let connected = connected.await?;
    let located = connected.located(typed)?;
    match located.unwrap_or_else(|| remote.clone()).path {
        RemotePath::File(name) => Ok((connected, name)),
        RemotePath::Root | RemotePath::Directory(_) => {
            connected.close().await;
            let typed = shown_place(typed);
            let text = format!("{typed} is a directory: expected a file that all machines have");
            Err(Fault::new(Exit::Files, text).into())
        }
    }
}

/// Returns the files of a list joined by commas, if it has several and each is at a machine.
fn replicas_of(source: &OsStr) -> Option<(Vec<OsString>, Vec<Remote>)> {
    let parts = source.as_bytes().split(|byte| *byte == b',');
    let typed: Vec<OsString> = parts
        .map(|part| OsStr::from_bytes(part).to_owned())
        .collect();
    if typed.len() < 2 {
        return None;
    }
    let remote = |typed: &OsString| match Location::parse(typed) {
        Ok(Location::Remote(remote)) => Some(remote),
        _ => None,
    };
    let remotes = typed.iter().map(remote).collect::<Option<Vec<_>>>()?;
    Some((typed, remotes))
}

const TARGET: &str =
    "a file of several machines is copied to here: expected HOST:FILE,HOST:FILE PATH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_files_at_machines_is_one_source_and_a_name_with_a_comma_is_not() {
        let count = |source: &str| replicas_of(source.as_ref()).map(|(typed, _)| typed.len());
        assert_eq!(count("a:img,b:img"), Some(2));
        assert_eq!(count("a:img,b:dir/img,nicstripe://c/img"), Some(3));
        for one in ["a:img", "a:img,v2", "img,b:img", "a:img,", "./a:img,b:img"] {
            assert_eq!(count(one), None, "{one}");
        }
    }
}
