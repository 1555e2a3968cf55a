//! Name resolution for the tunnels of all peers of a daemon.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::file::Quota;

/// Resolver of host names, shared by all sessions of a daemon.
///
/// The system's resolver blocks a thread until a silent name server has timed out. A name is
/// resolved at most once at a time, however many tunnels wait for it, and the keys of peers share
/// the threads.
#[derive(Clone)]
pub(crate) struct Resolver {
    running: Arc<Mutex<HashMap<String, watch::Receiver<Option<Outcome>>>>>,
    threads: Quota,
    resolve: Arc<Resolve>,
}

/// Blocking function that resolves a host and port.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Result of a resolution, for all tunnels that wait for it.
type Outcome = Result<Vec<SocketAddr>, Arc<io::Error>>;

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("running", &self.running.lock().len())
            .finish_non_exhaustive()
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::by(|target| Ok(target.to_socket_addrs()?.collect()))
    }
}

impl Resolver {
    /// Creates a resolver that calls the function `resolve` for each name.
    fn by(resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self {
            running: Arc::default(),
            threads: Quota::new(MOST_THREADS),
            resolve: Arc::new(resolve),
        }
    }

    pub(crate) fn of(&self, key: [u8; 32]) -> Self {
        Self {
            threads: self.threads.of(key),
            ..self.clone()
        }
    }

    /// Returns the addresses of `target`, a host or address and a port. Waits as long as the system's
    /// resolver does. Cancel safe.
    ///
    /// # Errors
    ///
    /// The error of the resolver. [`io::ErrorKind::QuotaExceeded`] if too many names are being
    /// resolved for this key.
    pub(crate) async fn resolve(&self, target: &str) -> Result<Vec<SocketAddr>, Arc<io::Error>> {
        if let Ok(address) = target.parse() {
            return Ok(vec![address]);
        }
        let mut running = self.join_or_start(target)?;
        let outcome = running.wait_for(Option::is_some).await;
        // The thread sends before it drops its end, unless it panicked.
        outcome
            .ok()
            .and_then(|outcome| outcome.clone())
            .unwrap_or_else(|| Err(gone()))
    }

    fn join_or_start(
        &self,
        target: &str,
    ) -> Result<watch::Receiver<Option<Outcome>>, Arc<io::Error>> {
        let mut running = self.running.lock();
        // The end of a thread that panicked is closed.
        let is_alive = |known: &&watch::Receiver<_>| known.has_changed().is_ok();
        if let Some(known) = running.get(target).filter(is_alive) {
            return Ok(known.clone());
        }
        let lease = self.threads.try_lease(1).ok_or_else(|| {
            let why = "too many names are being resolved for this key";
            Arc::new(io::Error::new(io::ErrorKind::QuotaExceeded, why))
        })?;
        let (sender, receiver) = watch::channel(None);
        let (all, resolve, name) = (
            self.running.clone(),
            self.resolve.clone(),
            target.to_owned(),
        );
        let work = move || {
            let outcome = resolve(&name).map_err(Arc::new);
            all.lock().remove(&name);
            drop(lease);
            // Fails if no tunnel waits any more.
            let _ = sender.send(Some(outcome));
        };
        thread::Builder::new()
            .name("nicstripe-resolve".into())
            .spawn(work)
            .map_err(Arc::new)?;
        running.insert(target.to_owned(), receiver.clone());
        Ok(receiver)
    }
}

fn gone() -> Arc<io::Error> {
    Arc::new(io::Error::other("the resolver's thread has ended"))
}

/// Maximum number of names resolved at once for all peers; one key gets half of them at most.
const MOST_THREADS: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    /// Returns a resolver whose name server does not answer for names that begin with `silent`
    /// until the sender is dropped, and the number of calls.
    fn silent() -> (Resolver, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (release, held) = mpsc::channel();
        let (held, calls) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let resolver = Resolver::by(move |target| {
            counted.fetch_add(1, Ordering::SeqCst);
            if target.starts_with("silent") {
                let _: Result<(), _> = held.lock().recv();
            }
            Ok(vec![([127, 0, 0, 1], 1).into()])
        });
        (resolver, release, calls)
    }

    #[tokio::test]
    async fn a_silent_name_server_takes_one_thread_for_a_name_and_half_of_all_for_a_key() {
        let (resolver, release, calls) = silent();
        let [one, other] = [[1; 32], [2; 32]].map(|key| resolver.of(key));
        let mut waiting: Vec<_> = (0..2000)
            .map(|_| one.join_or_start("silent:1").unwrap())
            .collect();
        let names = (0..100).map(|index| format!("silent{index}:1"));
        let (started, refused): (Vec<_>, Vec<_>) = names
            .map(|name| one.join_or_start(&name))
            .partition(Result::is_ok);
        assert_eq!(refused.len(), 100 - (MOST_THREADS / 2 - 1));
        // A thread may call the resolver only once the last has ended.
        waiting.extend(started.into_iter().flatten());
        let found = other.resolve("other:1").await.unwrap();
        assert_eq!(found, [([127, 0, 0, 1], 1).into()]);
        assert_eq!(
            one.resolve("[::1]:7").await.unwrap(),
            ["[::1]:7".parse().unwrap()]
        );
        drop(release);
        for mut waiting in waiting {
            assert!(waiting.wait_for(Option::is_some).await.is_ok());
        }
        // Each name once, and `other`.
        assert_eq!(calls.load(Ordering::SeqCst), MOST_THREADS / 2 + 1);
    }
}
