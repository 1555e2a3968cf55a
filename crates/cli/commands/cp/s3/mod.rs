//! Copies to and from S3 stores.
//!
//! - [`put`]: local files, trees and standard input become objects
//! - [`get`]: objects below a prefix become files; single objects are files of a web server ([`super::web`])
//! - [`each`]: copies of many files
//! - [`tally`]: what a copy of several files did
//!
//! This module finds out which kind of copy it is.

mod each;
mod get;
mod put;
mod tally;

use std::{path::PathBuf, sync::Arc};

use nicstripe::{Report, routes::RouteKeeper};
use nicstripe_web::{Account, FetchOptions, S3Place, Store};

use super::{
    arguments::Cp,
    closing::Ends,
    show::Show,
    web::{
        WebCopy,
        error::{folder, mixed, not_utf8},
        options,
    },
};
use crate::{
    connect::location::{Location, is_pipe, is_s3, is_web_url},
    failure::{Failure, Fault, usage},
    output::terminal::Terminal,
    process::signals::Signals,
    text::{first_true, shown},
};

/// Copy with an S3 store at one end.
#[derive(Debug)]
pub(super) struct S3Copy {
    account: Account,
    kind: Kind,
    options: FetchOptions,
}

#[derive(Debug)]
enum Kind {
    /// Single objects, by their keys.
    Objects(Box<WebCopy>),
    /// All objects below these places, into a directory.
    Trees(Vec<S3Place>, PathBuf),
    /// Files and directories.
    Put(Vec<PathBuf>, S3Place),
    /// Standard input.
    Pipe(S3Place),
}

impl S3Copy {
    /// Returns the copy if one end is an S3 store; `None` for other copies.
    ///
    /// # Errors
    ///
    /// The places or an option make no such copy.
    pub(super) fn of(cp: &Cp) -> Result<Option<Self>, Failure> {
        let sources = cp.sources();
        let count = sources.iter().filter(|source| is_s3(source)).count();
        let is_put = is_s3(cp.target());
        match (count, is_put) {
            (0, false) => {
                return match cp.web.first_option_of_store() {
                    Some(option) => Err(usage(format!(
                        "{option} is for S3 stores: expected s3://BUCKET/KEY as SRC or DST"
                    ))
                    .into()),
                    None => Ok(None),
                };
            }
            (1.., true) => return Err(both_stores().into()),
            (count, false) if count < sources.len() => return Err(mixed().into()),
            _ => {}
        }
        let of_web = match is_put || cp.tree.is_recursive() {
            true => cp.web.first_option(),
            false => None,
        };
        if let Some(option) = refused(cp).or(of_web) {
            return Err(usage(format!("{option} cannot be used with an S3 store")).into());
        }
        let account = cp.web.account()?;
        let kind = match is_put {
            true => put_kind(cp)?,
            false => get_kind(cp, &account)?,
        };
        let mut options = options(cp, &[])?;
        options.account = Some(account.clone());
        options.preserve = cp.preserve || cp.tree.archive;
        Ok(Some(Self {
            account,
            kind,
            options,
        }))
    }

    pub(super) async fn run(
        self,
        cp: &Cp,
        keeper: Arc<RouteKeeper>,
        terminal: &Terminal,
        show: &mut Show,
    ) -> Result<(Report, Ends), Failure> {
        if let Kind::Objects(copy) = self.kind {
            return copy.run(cp, keeper, terminal, show).await;
        }
        let mut signals = Signals::with_bars(terminal)?;
        let finding = async { Ok(Store::find(self.account.clone(), &self.options).await?) };
        let store = Arc::new(signals.unless_stopped(finding).await?);
        let mut end = End {
            cp,
            store,
            options: self.options,
            show,
            signals: &mut signals,
        };
        match self.kind {
            Kind::Put(sources, place) => end.put(&sources, &place).await,
            Kind::Pipe(place) => end.put_pipe(place).await,
            Kind::Trees(places, target) => end.get_trees(&places, &target).await,
            Kind::Objects(_) => Err(both_stores().into()),
        }
    }
}

/// Store at one end of a copy that runs.
struct End<'a> {
    cp: &'a Cp,
    store: Arc<Store>,
    options: FetchOptions,
    show: &'a mut Show,
    signals: &'a mut Signals,
}

impl End<'_> {
    fn ends(&self, proof: String) -> Ends {
        let from = match self.cp.sources() {
            [source] if is_pipe(source) => "standard input".to_owned(),
            [source] => shown(source),
            sources => format!("{} sources", sources.len()),
        };
        Ends::of_elsewhere(from, shown(self.cp.target()), proof, true)
    }
}

/// Returns the first option that means nothing for a store.
fn refused(cp: &Cp) -> Option<&'static str> {
    let tree = &cp.tree;
    let of_copy = [
        (cp.verify, "--verify"),
        (cp.delta, "--delta"),
        (cp.inplace, "--inplace"),
        (cp.compress, "-z"),
        (cp.allow_changing, "--allow-changing"),
        (cp.session.bwlimit.is_some(), "--bwlimit"),
        (tree.files_from.is_some(), "--files-from"),
        (tree.shard.shard.is_some(), "--shard"),
        (tree.update, "-u"),
        (tree.checksum, "-c"),
        (tree.dry_run, "-n"),
        (tree.owner, "--owner"),
        (tree.nodes, "-D"),
        (tree.xattrs, "-X"),
        (tree.acls, "-A"),
        (tree.hard_links, "-H"),
        (tree.one_file_system, "-x"),
        (
            !tree.filters.0.is_empty(),
            "--exclude, --include or --exclude-from",
        ),
    ];
    first_true(of_copy).or_else(|| cp.links.beyond_interfaces())
}

fn put_kind(cp: &Cp) -> Result<Kind, Failure> {
    let place = place(cp.target())?;
    let mut sources = Vec::new();
    for source in cp.sources() {
        match Location::parse(source) {
            Ok(Location::Local(path)) => sources.push(path),
            Ok(Location::Pipe) if cp.sources().len() == 1 && !place.is_folder() => {
                return Ok(Kind::Pipe(place));
            }
            Ok(Location::Pipe) => return Err(folder(&place).into()),
            _ if is_web_url(source) => return Err(mixed().into()),
            Ok(Location::Remote(_)) => {
                let text = "a file at another machine cannot be copied to an S3 store: expected a local SRC";
                return Err(usage(text).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let directory = sources.iter().find(|path| path.is_dir());
    match directory {
        Some(path) if !cp.tree.is_recursive() => {
            Err(usage(format!("{} is a directory: expected -r", shown(path))).into())
        }
        _ => Ok(Kind::Put(sources, place)),
    }
}

fn get_kind(cp: &Cp, account: &Account) -> Result<Kind, Failure> {
    let places = cp.sources().iter().map(|source| place(source));
    let places = places.collect::<Result<Vec<_>, Failure>>()?;
    if cp.tree.is_recursive() {
        return match Location::parse(cp.target())? {
            Location::Local(target) => Ok(Kind::Trees(places, target)),
            _ => Err(usage("-r to a pipe or a daemon cannot be used with an S3 store").into()),
        };
    }
    match places.iter().find(|place| place.is_folder()) {
        Some(place) => Err(folder(place).into()),
        None => Ok(Kind::Objects(Box::new(WebCopy::of_objects(
            cp, account, &places,
        )?))),
    }
}

fn both_stores() -> Fault {
    usage(
        "objects of one store cannot be copied to another: expected a local path or HOST:PATH as the other end",
    )
}

fn place(argument: &std::ffi::OsStr) -> Result<S3Place, Failure> {
    let text = argument.to_str();
    let text = text.ok_or_else(|| not_utf8(argument))?;
    Ok(text.parse::<S3Place>()?)
}
