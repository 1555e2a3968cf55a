//! Options of connections and copies.

use std::time::Duration;

use library::{
    Client, ClientBuilder, CopyOptions, RenameOptions, TreeOptions,
    trust::{AddressBook, Home, Identity, Peers, Sightings},
};

use crate::{
    error::Failure,
    raw::{Text, Texts, path, utf8},
};

/// Options of nicstripe_connect. Set `size` to `sizeof(nicstripe_connect_options)`, and each field
/// that is not named to 0, as C does with `{ .size = sizeof options }`. Further fields may come.
#[repr(C)]
pub struct nicstripe_connect_options {
    /// Size of the struct in bytes.
    pub size: usize,
    /// Directory with this machine's key and the trusted peers. NULL for the one of the command
    /// `nicstripe`: NICSTRIPE_HOME, or the user's.
    pub home: Text,
    /// Links to use, each "LOCAL" or "LOCAL=REMOTE", an interface or an address. NULL to find them.
    pub links: Texts,
    /// Number of `links`.
    pub links_count: usize,
    /// Maximum time in ms that a call waits without any link; 0 for 10 minutes.
    pub patience_ms: u64,
    /// Maximum time in ms of each call, from nicstripe_connect on; 0 for no limit.
    pub timeout_ms: u64,
    /// Rate limit of all links together in bit/s; 0 for none.
    pub bits_per_second: u64,
    /// TCP port of the daemon; 0 for 7747.
    pub port: u16,
    /// Connections per link, 1 to 16; 0 for the default.
    pub streams: u8,
}

impl nicstripe_connect_options {
    /// Returns the builder with these settings.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let home = match self.home.optional() {
            Some(folder) => Home::at(path(folder)),
            None => Home::from_env().map_err(Failure::home)?,
        };
        let identity = Identity::load_or_create(home.identity_file()).map_err(Failure::home)?;
        let links = self.links.all(self.links_count, "links")?;
        let links = links.into_iter().map(|link| {
            let link = utf8(link, "links")?.parse();
            link.map_err(|error| Failure::argument(format!("{error}")))
        });
        let mut builder = Client::builder()
            .identity(identity)
            .peers(Peers::load(home.peers_file()).map_err(Failure::home)?)
            .address_book(AddressBook::at(home.addresses_file()))
            .sightings(Sightings::at(home.sightings_file()))
            .links(links.collect::<Result<_, Failure>>()?);
        if self.patience_ms > 0 {
            builder = builder.patience(Duration::from_millis(self.patience_ms));
        }
        if self.bits_per_second > 0 {
            builder = builder.bandwidth(Some(library::BitRate(self.bits_per_second)));
        }
        if self.port > 0 {
            builder = builder.port(self.port);
        }
        if self.streams > 0 {
            builder = builder.streams(self.streams);
        }
        Ok(builder)
    }
}

/// Flags of nicstripe_copy_options. A function rejects flags that it does not have with
/// NICSTRIPE_ARGUMENT.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum nicstripe_flag {
    /// Replace an existing file.
    NICSTRIPE_REPLACE = 1,
    /// Create missing parent directories.
    NICSTRIPE_PARENTS = 2,
    /// Preserve permission bits and modification time.
    NICSTRIPE_PRESERVE = 4,
    /// Read the data back from the disk and compare its hash before the file gets its name.
    NICSTRIPE_VERIFY = 8,
    /// Discard the data of an interrupted attempt.
    NICSTRIPE_RESTART = 16,
    /// Send only the chunks that differ from the existing file. Implies NICSTRIPE_REPLACE.
    NICSTRIPE_DELTA = 32,
    /// Compress chunks if that increases the rate.
    NICSTRIPE_COMPRESS = 64,
    /// Do not fail if the source changes while it is read.
    NICSTRIPE_ALLOW_CHANGING = 128,
    /// Trees: copy directories recursively.
    NICSTRIPE_RECURSIVE = 0x1_0000,
    /// Trees: preserve owners and groups.
    NICSTRIPE_OWNERS = 0x2_0000,
    /// Trees: preserve extended attributes and ACLs.
    NICSTRIPE_XATTRS = 0x4_0000,
    /// Trees: preserve hard links.
    NICSTRIPE_HARD_LINKS = 0x8_0000,
    /// Trees: delete files at the target that the source does not have.
    NICSTRIPE_DELETE = 0x10_0000,
    /// Trees: copy a single source to the target's name itself instead of into it.
    NICSTRIPE_AS_NAME = 0x20_0000,
    /// Trees: stay on the file system of each source.
    NICSTRIPE_ONE_FILE_SYSTEM = 0x40_0000,
}

/// Options of what writes a file, here or at the daemon. A NULL pointer stands for the defaults,
/// which replace nothing. Set `size` to `sizeof(nicstripe_copy_options)`, and each field that is not
/// named to 0, as C does with `{ .size = sizeof options }`. Further fields may come.
#[repr(C)]
pub struct nicstripe_copy_options {
    /// Size of the struct in bytes.
    pub size: usize,
    /// Sum of nicstripe_flag values.
    pub flags: u64,
    /// Replace or move the file only if it has this entity tag: the `etag` of a
    /// nicstripe_metadata. NULL for any. Not for trees.
    pub only_if: Text,
    /// Exclude filters of a tree in the syntax of gitignore(5), UTF-8; NULL for none.
    pub filters: Texts,
    /// Number of `filters`.
    pub filters_count: usize,
}

const RENAMES: u64 =
    nicstripe_flag::NICSTRIPE_REPLACE as u64 | nicstripe_flag::NICSTRIPE_PARENTS as u64;
const FILES: u64 = 0xff;
const TREES: u64 = 0x7f_00ff;

impl nicstripe_copy_options {
    fn has(&self, flag: nicstripe_flag) -> bool {
        self.flags & flag as u64 != 0
    }

    fn check(&self, known: u64) -> Result<(), Failure> {
        match self.flags & !known {
            0 => Ok(()),
            unknown => Err(Failure::argument(format!(
                "options: flags {unknown:#x} do not apply"
            ))),
        }
    }

    fn only_if(&self) -> Result<Option<library::ETag>, Failure> {
        let Some(tag) = self.only_if.optional() else {
            return Ok(None);
        };
        let tag = utf8(tag, "only_if")?.parse();
        tag.map(Some)
            .map_err(|error| Failure::argument(format!("only_if: {error}")))
    }

    /// Returns the options of a renaming or of a copy at the daemon.
    pub(crate) fn rename(&self) -> Result<RenameOptions, Failure> {
        self.check(RENAMES)?;
        Ok(RenameOptions {
            replace: self.has(nicstripe_flag::NICSTRIPE_REPLACE),
            parents: self.has(nicstripe_flag::NICSTRIPE_PARENTS),
            only_if: self.only_if()?,
        })
    }

    /// Returns the options of one file.
    pub(crate) fn file(&self) -> Result<CopyOptions, Failure> {
        self.check(FILES)?;
        self.each_file()
    }

    fn each_file(&self) -> Result<CopyOptions, Failure> {
        Ok(CopyOptions {
            replace: self.has(nicstripe_flag::NICSTRIPE_REPLACE),
            parents: self.has(nicstripe_flag::NICSTRIPE_PARENTS),
            preserve: self.has(nicstripe_flag::NICSTRIPE_PRESERVE),
            verify: self.has(nicstripe_flag::NICSTRIPE_VERIFY),
            restart: self.has(nicstripe_flag::NICSTRIPE_RESTART),
            delta: self.has(nicstripe_flag::NICSTRIPE_DELTA),
            compress: self.has(nicstripe_flag::NICSTRIPE_COMPRESS),
            allow_changing: self.has(nicstripe_flag::NICSTRIPE_ALLOW_CHANGING),
            only_if: self.only_if()?,
            ..CopyOptions::default()
        })
    }

    /// Returns the options of a tree.
    pub(crate) fn tree(&self) -> Result<TreeOptions, Failure> {
        self.check(TREES)?;
        if self.only_if.optional().is_some() {
            let text = "options: only_if does not apply to trees".to_owned();
            return Err(Failure::argument(text));
        }
        let filters = self.filters.all(self.filters_count, "filters")?;
        let filters = filters.into_iter().map(|filter| {
            let filter = utf8(filter, "filters")?;
            Ok(filter.to_owned())
        });
        Ok(TreeOptions {
            recursive: self.has(nicstripe_flag::NICSTRIPE_RECURSIVE),
            owners: self.has(nicstripe_flag::NICSTRIPE_OWNERS),
            xattrs: self.has(nicstripe_flag::NICSTRIPE_XATTRS),
            hard_links: self.has(nicstripe_flag::NICSTRIPE_HARD_LINKS),
            delete: self.has(nicstripe_flag::NICSTRIPE_DELETE),
            as_name: self.has(nicstripe_flag::NICSTRIPE_AS_NAME),
            one_file_system: self.has(nicstripe_flag::NICSTRIPE_ONE_FILE_SYSTEM),
            filters: filters.collect::<Result<_, Failure>>()?,
            files: self.each_file()?,
            ..TreeOptions::default()
        })
    }
}
