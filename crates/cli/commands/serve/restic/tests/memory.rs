//! In-memory object storage, for tests of the HTTP server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use hyper::{StatusCode, body::Bytes};
use nicstripe::Name;
use tokio::sync::mpsc;

use super::super::objects::{Entries, Entry, ObjectError, Objects, Pieces, Upload};

const PIECE: usize = 100_000;

/// In-memory storage of files and directories. Clones share the content.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeSet<String>,
    /// Error that every call returns, if set.
    obstacle: Option<StatusCode>,
    /// Directory whose list has no end.
    endless: Option<String>,
}

impl Memory {
    pub(super) fn fail(&self, obstacle: Option<StatusCode>) {
        self.0.lock().unwrap().obstacle = obstacle;
    }

    pub(super) fn files(&self) -> Vec<String> {
        self.0.lock().unwrap().files.keys().cloned().collect()
    }

    pub(super) fn directories(&self) -> usize {
        self.0.lock().unwrap().directories.len()
    }

    pub(super) fn plant(&self, name: &str, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap();
        state.files.insert(name.to_owned(), bytes.to_vec());
    }

    pub(super) fn make_endless(&self, directory: &str) {
        self.0.lock().unwrap().endless = Some(directory.to_owned());
    }

    fn endless(&self, directory: &Name) -> bool {
        self.0.lock().unwrap().endless == Some(directory.to_string())
    }

    fn entries(&self, directory: &Name) -> Result<Vec<Entry>, ObjectError> {
        let prefix = format!("{directory}/");
        self.with(|state| {
            let files = state.files.iter().filter_map(|(name, bytes)| {
                Some((name.strip_prefix(&prefix)?, bytes.len() as u64))
            });
            let folders = state
                .directories
                .iter()
                .filter_map(|name| name.strip_prefix(&prefix));
            let inner = files
                .clone()
                .filter_map(|(name, _)| name.split_once('/').map(|(folder, _)| folder));
            let folders: BTreeSet<&str> = folders
                .chain(inner)
                .filter(|name| !name.contains('/'))
                .collect();
            if files.clone().next().is_none()
                && folders.is_empty()
                && !state.directories.contains(&directory.to_string())
            {
                return Err(missing());
            }
            let files = files
                .filter(|(name, _)| !name.contains('/'))
                .map(|(name, size)| (name, size, true));
            let all = files.chain(folders.into_iter().map(|name| (name, 0, false)));
            Ok(all
                .map(|(name, size, is_file)| Entry {
                    name: name.into(),
                    size,
                    is_file,
                })
                .collect())
        })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut State) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let mut state = self.0.lock().unwrap();
        match state.obstacle {
            Some(obstacle) => Err(ObjectError::new(obstacle, "the test wants it so")),
            None => act(&mut state),
        }
    }
}

fn missing() -> ObjectError {
    ObjectError::new(StatusCode::NOT_FOUND, "there is nothing")
}

impl Objects for Memory {
    type Upload = Written;

    fn list(&self, directory: &Name) -> Entries {
        let (to, entries) = mpsc::channel(1);
        let (memory, directory) = (self.clone(), directory.clone());
        tokio::spawn(async move {
            match memory.entries(&directory) {
                Ok(all) => {
                    for entry in all {
                        let _ = to.send(Ok(entry)).await;
                    }
                    // Like a hostile daemon, whose list has no end.
                    for number in (0..u64::MAX).take_while(|_| memory.endless(&directory)) {
                        let name = format!("{number:064x}").into_bytes();
                        let entry = Entry {
                            name,
                            size: 1,
                            is_file: true,
                        };
                        if to.send(Ok(entry)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => _ = to.send(Err(error)).await,
            }
        });
        entries
    }

    async fn size(&self, name: &Name) -> Result<u64, ObjectError> {
        self.with(|state| {
            state
                .files
                .get(&name.to_string())
                .map(|bytes| bytes.len() as u64)
                .ok_or_else(missing)
        })
    }

    async fn read(&self, name: &Name, offset: u64, len: u64) -> Result<Pieces, ObjectError> {
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap();
        let bytes = self.with(|state| {
            state
                .files
                .get(&name.to_string())
                .map(|bytes| bytes[range].to_vec())
                .ok_or_else(missing)
        })?;
        let (to, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            for piece in bytes.chunks(PIECE) {
                let _ = to.send(Ok(Bytes::copy_from_slice(piece))).await;
            }
        });
        Ok(pieces)
    }

    fn create(&self, name: &Name) -> Written {
        Written {
            memory: self.clone(),
            name: name.to_string(),
            bytes: Vec::new(),
        }
    }

    async fn remove(&self, name: &Name) -> Result<(), ObjectError> {
        self.with(|state| {
            state
                .files
                .remove(&name.to_string())
                .map(drop)
                .ok_or_else(missing)
        })
    }

    async fn make_dir(&self, name: &Name) -> Result<(), ObjectError> {
        self.with(|state| {
            state.directories.insert(name.to_string());
            Ok(())
        })
    }
}

#[derive(Debug)]
pub(super) struct Written {
    memory: Memory,
    name: String,
    bytes: Vec<u8>,
}

impl Upload for Written {
    async fn write(&mut self, bytes: Bytes) -> Result<(), ObjectError> {
        self.bytes.extend_from_slice(&bytes);
        self.memory.with(|_| Ok(()))
    }

    async fn finish(self) -> Result<(), ObjectError> {
        self.memory
            .with(|state| match state.files.contains_key(&self.name) {
                true => Err(ObjectError::new(StatusCode::FORBIDDEN, "it is there")),
                false => {
                    state.files.insert(self.name, self.bytes);
                    Ok(())
                }
            })
    }
}
