//! Restores a snapshot to a new directory.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    Result,
    content::Content,
    format::{Hash, Kind, Node},
    repo::Repo,
};

impl Repo {
    pub(crate) async fn restore(&self, wanted: &str, folder: PathBuf) -> Result<()> {
        let places = self.places().await?;
        let all = self.snapshots().await?;
        let is_it = |name: &Hash| wanted == "latest" || name.hex().starts_with(wanted);
        let (_, snapshot) = all
            .into_iter()
            .rev()
            .find(|(name, _)| is_it(name))
            .ok_or_else(|| format!("no snapshot {wanted}"))?;
        let nodes = self.manifest(&places, &snapshot).await?;
        let content = Content::new(self, &places, nodes.iter().flat_map(Node::chunks))?;
        spawn_blocking(move || restore_nodes(&nodes, content, &folder)).await??;
        println!("{} files, {} bytes", snapshot.files, snapshot.bytes);
        Ok(())
    }
}

/// Creates the directory `folder` with all files of a manifest. Runs on a separate thread.
fn restore_nodes(nodes: &[Node], mut content: Content, folder: &Path) -> Result<()> {
    // Writes only into directories created here, so that a manifest cannot write outside the
    // folder.
    let mut made = HashSet::new();
    for node in nodes {
        let path = Path::new(OsStr::from_bytes(&node.path));
        let is_fine = path.parent().is_none_or(|parent| made.contains(parent))
            && !path.ends_with("..")
            && path.is_relative();
        if !is_fine {
            return Err(format!(
                "cannot restore {}: its directory is not in the snapshot",
                path.display()
            )
            .into());
        }
        restore_node(node, &mut content, &folder.join(path))
            .map_err(|error| format!("cannot restore {}: {error}", path.display()))?;
        if matches!(node.kind, Kind::Dir) {
            made.insert(path);
        }
    }
    // Sets the mode and the time of a directory after creating its entries, because the mode may
    // forbid writing.
    for node in nodes
        .iter()
        .rev()
        .filter(|node| matches!(node.kind, Kind::Dir))
    {
        finish_node(node, &folder.join(OsStr::from_bytes(&node.path)))?;
    }
    Ok(())
}

fn restore_node(node: &Node, content: &mut Content, path: &Path) -> Result<()> {
    match &node.kind {
        Kind::Dir => return Ok(fs::create_dir(path)?),
        Kind::Link(target) => symlink(OsStr::from_bytes(target), path)?,
        Kind::File(chunks) => {
            let mut file = File::create_new(path)?;
            for chunk in chunks {
                file.write_all(Handle::current().block_on(content.next(chunk))?)?;
            }
        }
    }
    finish_node(node, path)
}

fn finish_node(node: &Node, path: &Path) -> Result<()> {
    if !matches!(node.kind, Kind::Link(_)) {
        fs::set_permissions(path, Permissions::from_mode(node.mode))?;
    }
    let time = Timespec {
        tv_sec: node.modified.0,
        tv_nsec: node.modified.1,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
