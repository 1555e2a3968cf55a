//! Options of copies, from keyword arguments.

use nicstripe::{CopyOptions, ETag, RenameOptions, TreeOptions};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::PyDict,
};

use crate::name::RemoteName;

/// Options of a copy, and those that only a tree has.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) tree: TreeOptions,
    /// Name of an option that only a tree has.
    pub(crate) of_tree: Option<&'static str>,
}

impl Options {
    /// Reads the options of a file or a tree.
    pub(crate) fn of_copy(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        options.tree.recursive = true;
        each(keywords, |name, value| options.set(name, value))?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if set_copy(&mut self.tree.files, name, value)? {
            return Ok(true);
        }
        let tree = &mut self.tree;
        let (word, flag) = match name {
            "update" => ("update", &mut tree.update),
            "checksum" => ("checksum", &mut tree.checksum),
            "owners" => ("owners", &mut tree.owners),
            "numeric_ids" => ("numeric_ids", &mut tree.numeric_ids),
            "xattrs" => ("xattrs", &mut tree.xattrs),
            "nodes" => ("nodes", &mut tree.nodes),
            "hard_links" => ("hard_links", &mut tree.hard_links),
            "delete" => ("delete", &mut tree.delete),
            "dry_run" => ("dry_run", &mut tree.dry_run),
            "one_file_system" => ("one_file_system", &mut tree.one_file_system),
            "entries" => ("entries", &mut tree.list),
            "exclude" => {
                tree.filters = value.extract()?;
                self.of_tree = Some("exclude");
                return Ok(true);
            }
            "files_from" => {
                let names: Vec<RemoteName> = value.extract()?;
                tree.files_from = Some(names.into_iter().map(|name| name.0).collect());
                self.of_tree = Some("files_from");
                return Ok(true);
            }
            _ => return Ok(false),
        };
        *flag = value.extract()?;
        if *flag {
            self.of_tree = Some(word);
        }
        Ok(true)
    }
}

/// Reads the options of a file.
pub(crate) fn copy_options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<CopyOptions> {
    let mut options = CopyOptions::default();
    each(keywords, |name, value| set_copy(&mut options, name, value))?;
    Ok(options)
}

/// Sets an option of a file. Returns false for a name that is none.
fn set_copy(options: &mut CopyOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = match name {
        "replace" => &mut options.replace,
        "force" => &mut options.force,
        "restart" => &mut options.restart,
        "preserve" => &mut options.preserve,
        "verify" => &mut options.verify,
        "delta" => &mut options.delta,
        "in_place" => &mut options.in_place,
        "compress" => &mut options.compress,
        "allow_changing" => &mut options.allow_changing,
        "parents" => &mut options.parents,
        "only_if" => {
            options.only_if = tag(value.extract()?)?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    *flag = value.extract()?;
    Ok(true)
}

fn each(
    keywords: Option<&Bound<'_, PyDict>>,
    mut set: impl FnMut(&str, &Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<()> {
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        if !set(&name, &value)? {
            return Err(PyTypeError::new_err(format!("unexpected option {name:?}")));
        }
    }
    Ok(())
}

/// Reads the entity tag of a condition.
pub(crate) fn tag(text: Option<String>) -> PyResult<Option<ETag>> {
    let parsed = text.map(|text| {
        let parsed = text.parse();
        parsed.map_err(|error| PyValueError::new_err(format!("entity tag {text:?}: {error}")))
    });
    parsed.transpose()
}

pub(crate) fn rename_options(
    replace: bool,
    parents: bool,
    only_if: Option<String>,
) -> PyResult<RenameOptions> {
    Ok(RenameOptions {
        replace,
        parents,
        only_if: tag(only_if)?,
    })
}
