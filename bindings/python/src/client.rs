//! The client.

use nicstripe::{
    CancellationToken, Error, Name, OpenOptions, TreeSource,
    blocking::{self, Transfer as Running},
    exec::ExitStatus,
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyCFunction, PyDict, PyList, PyTuple},
};

use crate::{
    bench::bench,
    buffer::Buffer,
    connect::builder,
    entries::Entries,
    error::raised,
    file::{ObjectReader, ObjectWriter, range, whole},
    name::{LocalPath, RemoteDir, RemoteName, decoded},
    options::{Options, copy_options, rename_options, tag},
    own::Own,
    report::Report,
    stat::Stat,
    survey::survey,
    transfer::Transfer,
    wait::{Limits, duration, is_interrupted, wait},
};

/// Client of one daemon, over every cable that leads there.
///
/// `Client(host)` connects with the key and the trusted peers of the command `nicstripe`; `home` names
/// another directory with them. Threads may share a client: its calls run at the same time. Each call
/// releases the interpreter's lock while it waits, and ends with what a signal handler raises, such as
/// `KeyboardInterrupt`. Names are `str`, `bytes` or paths, relative to the daemon's root.
///
/// A call waits for `patience` seconds (600) without any link before it fails; `within` limits it.
/// After `os.fork` a client of the parent raises `CallerError` with the word `forked` in the child.
///
/// Settings: `port` (7747), `home`, `links` (a list as of `--link`), `exclude_links`, `streams`,
/// `bandwidth_bps`, `patience`, `family` (4 or 6), `state_dir` and `routes` (host routes are installed
/// only with a `state_dir`).
#[pyclass(module = "nicstripe", frozen, weakref)]
pub(crate) struct Client {
    client: Own<blocking::Client>,
    limits: Limits,
    /// Host as it was given.
    #[pyo3(get)]
    host: String,
}

impl Client {
    /// Waits for a call of the client.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&blocking::Client) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let client = self.client.copy(py)?;
        wait(py, move || call(&client))
    }

    /// Starts a copy.
    fn start(
        &self,
        py: Python<'_>,
        start: impl FnOnce(&blocking::Client) -> Running + Send,
    ) -> PyResult<Transfer> {
        let transfer = self.call(py, |client| Ok(start(client)))?;
        Ok(Transfer::new(transfer, self.limits.clone()))
    }

    fn start_put_of(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Option<Name>,
        options: Options,
    ) -> PyResult<Transfer> {
        if is_sequence(source) {
            let sources: Vec<LocalPath> = source.extract()?;
            let sources: Vec<_> = sources.into_iter().map(|source| source.0).collect();
            return self.start(py, |client| client.put_tree(sources, name, options.tree));
        }
        let LocalPath(source) = source.extract()?;
        if source.is_dir() {
            let tree = nicstripe::TreeOptions {
                as_name: true,
                ..options.tree
            };
            return self.start(py, |client| client.put_tree([source], name, tree));
        }
        of_file(&options)?;
        self.start(py, |client| client.put(source, name, options.tree.files))
    }

    fn start_get_of(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        target: LocalPath,
        options: Options,
    ) -> PyResult<Transfer> {
        let target = target.0;
        if is_sequence(name) {
            let names: Vec<RemoteName> = name.extract()?;
            let sources: Vec<_> = names
                .into_iter()
                .map(|name| TreeSource::named(name.0))
                .collect();
            return self.start(py, |client| client.get_tree(sources, target, options.tree));
        }
        let RemoteDir(name) = name.extract()?;
        let source = match name {
            None => TreeSource::content_of(None),
            Some(name) => {
                if self.call(py, |client| client.stat(&name))?.kind != nicstripe::Kind::Dir {
                    of_file(&options)?;
                    return self.start(py, |client| client.get(name, target, options.tree.files));
                }
                TreeSource::named(name)
            }
        };
        let tree = nicstripe::TreeOptions {
            as_name: true,
            ..options.tree
        };
        self.start(py, |client| client.get_tree([source], target, tree))
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (host, **settings))]
    fn new(py: Python<'_>, host: String, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let builder = builder(py, settings)?;
        let client = wait(py, || {
            blocking::Client::connect_until(builder, &host, is_interrupted)
        })?;
        Ok(Self {
            client: Own::new(client),
            limits: Limits::default(),
            host,
        })
    }

    /// Returns a client of the same session whose calls, and those of its files, raise `TimeoutError`
    /// after `seconds`, or after the limit of this client if that is shorter.
    fn within(&self, py: Python<'_>, seconds: f64) -> PyResult<Self> {
        let most = self.limits.within(duration(seconds)?);
        let mut limits = self.limits.clone();
        limits.most = Some(most);
        Ok(Self {
            client: Own::new(self.client.copy(py)?.within(most)),
            limits,
            host: self.host.clone(),
        })
    }

    /// Returns a client of the same session, and a function without arguments that ends its calls, from
    /// any thread: they raise `CallerError` with the word `cancelled`.
    fn interruptible<'py>(&self, py: Python<'py>) -> PyResult<(Self, Bound<'py, PyCFunction>)> {
        let outer = self.limits.interrupt.as_ref();
        let interrupt = outer.map_or_else(CancellationToken::new, CancellationToken::child_token);
        let mut limits = self.limits.clone();
        limits.interrupt = Some(interrupt.clone());
        let client = Self {
            client: Own::new(self.client.copy(py)?.interrupted_by(interrupt.clone())),
            limits,
            host: self.host.clone(),
        };
        let interrupt = Own::new(interrupt);
        let end = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            interrupt.copy(arguments.py()).map(|token| token.cancel())
        };
        Ok((client, PyCFunction::new_closure(py, None, None, end)?))
    }

    /// Copies a file or a directory, or a list of them into the directory `name`, to the daemon.
    ///
    /// `name` is that at the daemon, by default the last component of `source`. `progress` is called
    /// about ten times a second with a dict of `bytes`, `size_bytes`, `goodput_bps` and `links`. An
    /// existing file is an error without `replace=True`. An interrupted copy resumes when it is repeated.
    #[pyo3(signature = (source, name=None, *, progress=None, **options))]
    fn put(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Option<RemoteName>,
        progress: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Report> {
        self.start_put(py, source, name, options)?
            .ended(py, progress)
    }

    /// Copies a file or a directory, or a list of them into the directory `target`, from the daemon.
    ///
    /// See `put`; `name` may be `""`, the daemon's root.
    #[pyo3(signature = (name, target, *, progress=None, **options))]
    fn get(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        target: LocalPath,
        progress: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Report> {
        self.start_get(py, name, target, options)?
            .ended(py, progress)
    }

    /// Starts a copy like `put`, which runs in the background.
    #[pyo3(signature = (source, name=None, **options))]
    fn start_put(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Option<RemoteName>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Transfer> {
        let options = Options::of_copy(options)?;
        self.start_put_of(py, source, name.map(|name| name.0), options)
    }

    /// Starts a copy like `get`, which runs in the background.
    #[pyo3(signature = (name, target, **options))]
    fn start_get(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        target: LocalPath,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Transfer> {
        self.start_get_of(py, name, target, Options::of_copy(options)?)
    }

    /// Opens a file at the daemon: `"rb"`, `"wb"`, `"xb"` (the name must not exist), or without `b` for
    /// text.
    ///
    /// A written file appears whole, with `close` or at the end of the `with` block; after an exception in
    /// the block it does not. `buffering` is the size of the buffer in bytes, 0 for none.
    #[pyo3(signature = (name, mode="rb", buffering=None, *, encoding=None, errors=None, newline=None, **options))]
    #[expect(clippy::too_many_arguments, reason = "those of Python's open")]
    fn open<'py>(
        this: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        mode: &str,
        buffering: Option<i64>,
        encoding: Option<&str>,
        errors: Option<&str>,
        newline: Option<&str>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static OPEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let open = OPEN.import(this.py(), "nicstripe._files", "open")?;
        let text = (encoding, errors, newline);
        open.call((this, name, mode, buffering, text), options)
    }

    /// Opens the reader beneath `open(name, "rb")`, of the content with the entity tag `only_if`.
    #[pyo3(signature = (name, *, only_if=None))]
    fn open_reader(
        &self,
        py: Python<'_>,
        name: RemoteName,
        only_if: Option<String>,
    ) -> PyResult<ObjectReader> {
        let (name, only_if) = (name.0, tag(only_if)?);
        let reader = self.call(py, |client| match only_if {
            None => client.open(&name),
            only_if => client.open_with(
                &name,
                OpenOptions {
                    range: None,
                    only_if,
                },
            ),
        });
        reader.map(ObjectReader::new)
    }

    /// Opens the writer beneath `open(name, "wb")`.
    #[pyo3(signature = (name, **options))]
    fn open_writer(
        &self,
        py: Python<'_>,
        name: RemoteName,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ObjectWriter> {
        let options = copy_options(options)?;
        let writer = self.call(py, |client| Ok(client.create(&name.0, options)));
        writer.map(ObjectWriter::new)
    }

    /// Returns the bytes of a file from the offset `start` up to `stop`, by default to its end.
    #[pyo3(signature = (name, start=0, stop=None, *, only_if=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: RemoteName,
        start: u64,
        stop: Option<u64>,
        only_if: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (range, only_if) = (range(start, stop), tag(only_if)?);
        let options = OpenOptions { range, only_if };
        let reader = self.call(py, |client| client.open_with(&name.0, options))?;
        whole(py, reader, stop)
    }

    /// Reads into a buffer from an offset on. Returns the number of bytes, less than the buffer's only at
    /// the end of the file.
    #[pyo3(signature = (name, into, offset=0))]
    fn read_into(
        &self,
        py: Python<'_>,
        name: RemoteName,
        into: &Bound<'_, PyAny>,
        offset: u64,
    ) -> PyResult<usize> {
        let mut buffer = Buffer::writable(into)?;
        self.call(py, |client| {
            client.read_into(&name.0, offset, buffer.bytes_mut())
        })
    }

    /// Writes a file of the bytes of any buffer, without a copy. It is durable when this returns, and
    /// readers find the old content or the new one.
    #[pyo3(signature = (name, data, **options))]
    fn write(
        &self,
        py: Python<'_>,
        name: RemoteName,
        data: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Report> {
        let (options, buffer) = (copy_options(options)?, Buffer::of(data)?);
        let report = self.call(py, |client| client.write(&name.0, buffer.bytes(), options));
        report.map(Report)
    }

    /// Returns what is in a directory, sorted by name.
    #[pyo3(signature = (name=None, *, digests=false))]
    fn list(&self, py: Python<'_>, name: Option<RemoteDir>, digests: bool) -> PyResult<Vec<Stat>> {
        let entries = self.call(py, |client| {
            let entries = client.entries(name.and_then(|name| name.0));
            let entries = if digests {
                entries.with_digests()
            } else {
                entries
            };
            entries.collect::<Result<Vec<_>, _>>()
        })?;
        Ok(entries.iter().map(Stat::of_entry).collect())
    }

    /// Iterates over all that is below a directory, with names relative to it. A directory comes before
    /// what is in it. `after` is a name behind which to begin.
    #[pyo3(signature = (name=None, *, after=None, digests=false))]
    fn walk(
        &self,
        py: Python<'_>,
        name: Option<RemoteDir>,
        after: Option<RemoteName>,
        digests: bool,
    ) -> PyResult<Entries> {
        let entries = self.call(py, |client| {
            let mut entries = client.walk(name.and_then(|name| name.0));
            if let Some(RemoteName(after)) = after {
                entries = entries.after(&after);
            }
            Ok(if digests {
                entries.with_digests()
            } else {
                entries
            })
        });
        entries.map(Entries::new)
    }

    /// Returns the metadata of a name.
    fn stat(&self, py: Python<'_>, name: RemoteName) -> PyResult<Stat> {
        let stat = self.call(py, |client| client.stat(&name.0))?;
        Ok(Stat::new(&name.0, &stat))
    }

    /// Reads a file at the daemon and compares it with the hash that was kept when it was written. Raises
    /// `PeerError` with the word `damaged` if they differ.
    fn verify(&self, py: Python<'_>, name: RemoteName) -> PyResult<Stat> {
        let stat = self.call(py, |client| client.verify(&name.0))?;
        Ok(Stat::new(&name.0, &stat))
    }

    /// Creates a directory and its missing parents. An existing one is no error.
    fn make_dir(&self, py: Python<'_>, name: RemoteName) -> PyResult<()> {
        self.call(py, |client| client.make_dir(&name.0))
    }

    /// Removes a file or an empty directory, with `only_if` a file of this entity tag.
    #[pyo3(signature = (name, *, only_if=None))]
    fn remove(&self, py: Python<'_>, name: RemoteName, only_if: Option<String>) -> PyResult<()> {
        let (name, only_if) = (name.0, tag(only_if)?);
        self.call(py, |client| match only_if {
            None => client.remove(&name),
            Some(tag) => client.remove_if(&name, tag),
        })
    }

    /// Removes files and empty directories, in one request for many of them. Returns a list of names that
    /// remain, with the exception of each.
    fn remove_many<'py>(
        &self,
        py: Python<'py>,
        names: Vec<RemoteName>,
    ) -> PyResult<Bound<'py, PyList>> {
        let names: Vec<_> = names.into_iter().map(|name| name.0).collect();
        let left = self.call(py, |client| client.remove_many(&names))?;
        let left = left
            .iter()
            .map(|left| (decoded(&left.name), raised(py, &left.error)));
        PyList::new(py, left.collect::<Vec<_>>())
    }

    /// Renames a file or a directory.
    #[pyo3(signature = (old, new, *, replace=false, parents=false, only_if=None))]
    fn rename(
        &self,
        py: Python<'_>,
        old: RemoteName,
        new: RemoteName,
        replace: bool,
        parents: bool,
        only_if: Option<String>,
    ) -> PyResult<()> {
        let options = rename_options(replace, parents, only_if)?;
        self.call(py, |client| client.rename(&old.0, &new.0, options))
    }

    /// Copies a file at the daemon. No data crosses the cables.
    #[pyo3(signature = (source, target, *, replace=false, parents=false, only_if=None))]
    fn copy(
        &self,
        py: Python<'_>,
        source: RemoteName,
        target: RemoteName,
        replace: bool,
        parents: bool,
        only_if: Option<String>,
    ) -> PyResult<Stat> {
        let options = rename_options(replace, parents, only_if)?;
        let stat = self.call(py, |client| client.copy(&source.0, &target.0, options))?;
        Ok(Stat::new(&target.0, &stat))
    }

    /// Makes one file of others, in their order, at the daemon. No data crosses the cables.
    #[pyo3(signature = (parts, target, *, replace=false, parents=false, only_if=None))]
    fn concat(
        &self,
        py: Python<'_>,
        parts: Vec<RemoteName>,
        target: RemoteName,
        replace: bool,
        parents: bool,
        only_if: Option<String>,
    ) -> PyResult<Stat> {
        let options = rename_options(replace, parents, only_if)?;
        let parts: Vec<_> = parts.into_iter().map(|part| part.0).collect();
        let stat = self.call(py, |client| client.concat(&parts, &target.0, options))?;
        Ok(Stat::new(&target.0, &stat))
    }

    /// Runs a command at the daemon to its end, as `subprocess.run` does, and returns a
    /// `subprocess.CompletedProcess` with `returncode`, `stdout` and `stderr`. The daemon's `exec=` lists
    /// the commands that this machine may run. For a signal N the
    /// `returncode` is 128 + N, as in a shell, or -N. Each output has at most 64 MiB.
    #[pyo3(signature = (args, *, input=None, text=false, check=false, timeout=None))]
    fn exec<'py>(
        &self,
        py: Python<'py>,
        args: Vec<Bound<'py, PyAny>>,
        input: Option<&Bound<'py, PyAny>>,
        text: bool,
        check: bool,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = args.iter().map(path_bytes);
        let words = words.collect::<PyResult<Vec<Vec<u8>>>>()?;
        let stdin = input.map(input_bytes).transpose()?.unwrap_or_default();
        let limit = timeout.map(duration).transpose()?;
        let limit = limit.map(|limit| self.limits.within(limit));
        let output = self.call(py, |client| match limit {
            Some(limit) => client.within(limit).exec(words, stdin),
            None => client.exec(words, stdin),
        })?;
        static COMPLETED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let completed = COMPLETED.import(py, "nicstripe._files", "completed")?;
        let code = match output.status {
            ExitStatus::Exited(code) => i64::from(code),
            ExitStatus::Signalled(signal) => -i64::from(signal),
        };
        let (stdout, stderr) = (
            PyBytes::new(py, &output.stdout),
            PyBytes::new(py, &output.stderr),
        );
        completed.call1((PyList::new(py, args)?, code, stdout, stderr, text, check))
    }

    /// Returns the links of the session as a dict: `links`, each with its ends, `state` and rates in bits
    /// per second, `unused` interfaces with the reason, and `theory_bps` of all links together.
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.call(py, blocking::Client::links)?;
        survey(py, &found)
    }

    /// Measures the links, each alone and all together, both ways. Returns the report of
    /// `nicstripe bench --json` as a dict. Each load takes at most `load` seconds; none begins
    /// later than `budget` seconds.
    #[pyo3(signature = (load=10.0, *, repeats=None, budget=None))]
    fn bench<'py>(
        &self,
        py: Python<'py>,
        load: f64,
        repeats: Option<u32>,
        budget: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        bench(py, self.client.copy(py)?, load, repeats, budget)
    }

    /// Returns the path of the directory that the daemon serves; `None` if it does not tell.
    fn root(&self, py: Python<'_>) -> PyResult<Option<std::ffi::OsString>> {
        let root = self.call(py, blocking::Client::root)?;
        Ok(root.map(Into::into))
    }

    /// True once it was closed, or belongs to the parent of this process.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.client.copy(py).is_err()
    }

    /// Closes the session. Running copies are interrupted, and later calls raise `CallerError` with the
    /// word `closed`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(client) = self.client.take_shared(py) else {
            return Ok(());
        };
        wait(py, || {
            client.close();
            Ok(())
        })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<nicstripe.Client of {:?}>", self.host)
    }
}

fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()
}

/// Refuses options that only a tree has.
fn of_file(options: &Options) -> PyResult<()> {
    match options.of_tree {
        Some(option) => Err(PyTypeError::new_err(format!(
            "option {option:?}: only for a directory"
        ))),
        None => Ok(()),
    }
}

fn path_bytes(word: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(word.extract::<LocalPath>()?.0.into_os_string().into_vec())
}

/// Returns the input of a command: bytes, or text in UTF-8.
fn input_bytes(input: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match input.extract::<String>() {
        Ok(text) => Ok(text.into_bytes()),
        Err(_) => Ok(Buffer::of(input)?.bytes().to_vec()),
    }
}
