//! `nicstripe ls`: lists files and directories at a daemon.
//!
//! - [`find`]: the arguments, and the files and directories that they mean
//! - [`s3`]: the same of an S3 store
//! - [`show`]: output, as lines or as JSON, entry by entry
//! - [`complete`]: names for the completions of shells
//!
//! A large directory is neither collected nor sorted here: the daemon sends its names page by page in
//! byte order, and each page is printed when it arrives.

mod complete;
mod find;
#[cfg(feature = "web")]
mod s3;
mod show;

use std::ffi::OsString;

use clap::{ArgAction, Args};
use nicstripe::Client;

use self::{
    find::{Found, Group, Item},
    show::{Listed, Show},
};
#[cfg(feature = "web")]
use crate::{connect::location::is_s3, failure::usage};
use crate::{
    connect::{
        arguments::LinkArgs,
        location::Remote,
        setup::{Connected, Needs, connect_without_routes},
    },
    failure::{Failure, Fault},
    output::{logging, terminal::Terminal},
    process::runtime,
    text::shown,
};

/// List files and directories on another machine
///
/// Prints one name per line in byte order, with a slash after directories. Names that begin with a
/// dot are hidden, as in ls. Lists what a copy could read, and changes nothing.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// Directory or file, as for cp: HOST: is the directory that the daemon serves. May be a
    /// pattern, in quotes. Or s3://BUCKET/PREFIX
    #[arg(value_name = "HOST[:PATH]", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    wishes: Wishes,

    #[command(flatten)]
    links: LinkArgs,

    #[cfg(feature = "web")]
    #[command(flatten, next_help_heading = "Options for S3 stores")]
    store: crate::connect::store_arguments::StoreArgs,

    /// Print one JSON document on standard output, also after a failure
    /// (docs/schema/ls.schema.json)
    #[arg(long)]
    json: bool,

    /// Print paths that continue the first word, for completions; the other words are those of the
    /// command line
    #[arg(long, hide = true, conflicts_with = "json")]
    complete: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Options of `ls` for the choice of entries and their form.
#[derive(Debug, Clone, Copy, Args)]
struct Wishes {
    /// Print kind, size, modification time (UTC) and name
    #[arg(short, long)]
    long: bool,

    /// With -l, print sizes with units, as in 1.40 GiB
    #[arg(short = 'h', long)]
    human_readable: bool,

    /// Include names that begin with a dot
    #[arg(short, long)]
    all: bool,

    /// List directories themselves, not their content
    #[arg(short, long)]
    directory: bool,
}

impl Ls {
    pub(crate) fn run(self, terminal: &Terminal) -> Result<(), Failure> {
        if self.complete {
            complete::print(&self.paths, self.links);
            return Ok(());
        }
        #[cfg(feature = "web")]
        match self.paths.iter().filter(|path| is_s3(path)).count() {
            0 => {
                if let Some(option) = self.store.first_option() {
                    let text = format!("{option} is for S3 stores: expected s3://BUCKET/PREFIX");
                    return Err(usage(text).into());
                }
            }
            count if count < self.paths.len() => {
                let text = "an S3 store and machines cannot be listed by one command".to_owned();
                return Err(usage(text).into());
            }
            _ => return s3::run(&self, terminal),
        }
        let mut show = Show::new(self.wishes, self.json);
        let mut failed = Vec::new();
        let listed = self.list(terminal, &mut show, &mut failed);
        let result = listed.and_then(|()| outcome(failed, self.paths.len()));
        let printed = show.finish(result.as_ref().err());
        // A failed listing outranks failed output.
        result.and(printed)
    }

    fn list(
        &self,
        terminal: &Terminal,
        show: &mut Show,
        failed: &mut Vec<(String, Failure)>,
    ) -> Result<(), Failure> {
        logging::start(terminal)?;
        self.links.check()?;
        let groups = find::groups(&self.paths)?;
        runtime::run(async {
            for group in &groups {
                self.list_group(group, show, failed).await?;
            }
            Ok(())
        })
    }

    /// Lists the arguments that name one machine. Files come first, as in ls.
    async fn list_group(
        &self,
        group: &Group,
        show: &mut Show,
        failed: &mut Vec<(String, Failure)>,
    ) -> Result<(), Failure> {
        let needs = Needs {
            paths: &group.paths,
            ..Needs::default()
        };
        let connected = connect_without_routes(&group.place, &self.links, &needs).await?;
        let result = self.list_connected(&connected, group, show, failed).await;
        connected.close().await;
        result
    }

    async fn list_connected(
        &self,
        connected: &Connected,
        group: &Group,
        show: &mut Show,
        failed: &mut Vec<(String, Failure)>,
    ) -> Result<(), Failure> {
        let client = &connected.client;
        let mut found = Found::default();
        for path in &group.paths {
            match find::look(connected, path, self.wishes).await {
                Ok(items) => found.add(items),
                Err(failure) => failed.push((shown(path), of_one(failure)?)),
            }
        }
        let has_headings = self.paths.len() > 1 || found.len() > 1;
        for item in &found.files {
            show.entry(&item.listed())?;
        }
        for item in &found.directories {
            if has_headings {
                show.heading(&item.remote.to_string())?;
            }
            if let Err(failure) = list_directory(client, item, self.wishes.all, show).await {
                failed.push((item.remote.to_string(), of_one(failure)?));
            }
        }
        show.flush()
    }
}

async fn list_directory(
    client: &Client,
    item: &Item,
    all: bool,
    show: &mut Show,
) -> Result<(), Failure> {
    let dir = item.remote.path.name();
    let mut entries = client.entries(dir.cloned());
    while let Some(entry) = entries.next().await? {
        let leaf = entry.name.file_name();
        if !all && leaf.starts_with(b".") {
            continue;
        }
        let remote: Remote = find::inside(&item.remote, leaf)?;
        let stat = &entry.stat;
        show.entry(&Listed::of(&remote, stat.kind, Some(stat), false))?;
    }
    Ok(())
}

/// Returns a failure that concerns one argument, after which the others are still listed.
///
/// # Errors
///
/// The failure concerns all arguments, such as a lost connection or a closed standard output.
fn of_one(failure: Failure) -> Result<Failure, Failure> {
    match &failure {
        Failure::Command(_) => Ok(failure),
        Failure::Library(error) if error.fail_code().is_some() => Ok(failure),
        _ => Err(failure),
    }
}

/// Returns the failure of the command: that of the argument, or one that lists those of some of `of`
/// arguments, with the exit code of the first.
fn outcome(mut failed: Vec<(String, Failure)>, of: usize) -> Result<(), Failure> {
    if failed.len() < 2 {
        return failed.pop().map_or(Ok(()), |(_, failure)| Err(failure));
    }
    let lines = failed
        .iter()
        .map(|(argument, failure)| format!("{argument}: {}", failure.one_line()));
    // A pattern may match several directories that cannot be read.
    let (count, of) = (failed.len(), of.max(failed.len()));
    let text = format!("{count} of {of} could not be listed");
    Err(Fault::new(failed[0].1.exit(), text)
        .with_details(lines.collect())
        .into())
}
