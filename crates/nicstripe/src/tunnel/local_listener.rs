//! Listening sockets on this machine whose connections tunnels carry.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, fchmod, lstat, unlink};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};

use super::local_stream::LocalStream;
use crate::trust::ListenTarget;

/// Listening socket on this machine: a TCP port, or a socket file, which only the user of this
/// process and root can connect to.
///
/// The file never replaces another one, and is removed when the value is dropped.
#[derive(Debug)]
pub struct LocalListener {
    // Dropped before the socket, as `SocketFile` requires.
    file: Option<SocketFile>,
    socket: Socket,
    target: ListenTarget,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl LocalListener {
    /// Listens at a TCP port, any free one for port 0, or makes a socket file and listens there.
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) if a program listens at the port, or a file of the
    /// name exists; the address is not one of this machine; the file cannot be made.
    pub fn bind(target: &ListenTarget) -> io::Result<Self> {
        let (socket, file) = match (target.address(), target.socket_file()) {
            (Some(address), _) => (Socket::Tcp(listen_at(address)?), None),
            (None, Some(path)) => {
                let (listener, file) = SocketFile::make(path)?;
                (Socket::Unix(listener), Some(file))
            }
            (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let target = match &socket {
            Socket::Tcp(listener) => target.clone().with_port(listener.local_addr()?.port()),
            Socket::Unix(_) => target.clone(),
        };
        Ok(Self {
            file,
            socket,
            target,
        })
    }

    /// Returns where this listens, with the port that was free.
    pub fn target(&self) -> &ListenTarget {
        &self.target
    }

    /// Returns the next connection. Cancel safe.
    ///
    /// # Errors
    ///
    /// Too many files are open, or the connection has ended already. The listener stays usable.
    pub async fn accept(&self) -> io::Result<LocalStream> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(LocalStream::tcp(stream))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(LocalStream::Unix(stream))
            }
        }
    }

    /// Removes the socket file, if any. No new program can connect to it.
    pub(super) fn remove_file(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Name of a bound socket in the file system. Dropping the value removes the file.
///
/// The socket must be closed later: it holds the inode, whose number no other file can have until
/// then.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: Inode,
}

/// Device and number of an inode.
type Inode = (u64, u64);

impl SocketFile {
    fn make(path: &Path) -> io::Result<(UnixListener, Self)> {
        let socket = UnixSocket::new_stream()?;
        // The file gets the mode of the socket's inode (unix(7)), so that it never has another one.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        socket.bind(path).map_err(exists)?;
        let file = Self {
            path: path.to_owned(),
            inode: inode_of(path)?,
        };
        Ok((socket.listen(BACKLOG)?, file))
    }

    /// Removes the file, unless another one has the name.
    fn remove(&self) {
        if inode_of(&self.path).is_ok_and(|inode| inode == self.inode) {
            // Fails if the directory may no longer be written.
            let _ = unlink(self.path.as_path());
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn inode_of(path: &Path) -> io::Result<Inode> {
    let stat = lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Explains the error for a name that exists: "address in use" names no file.
fn exists(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(error.kind(), EXISTS),
        _ => error,
    }
}

const EXISTS: &str = "the file exists: remove it if no program listens there";

/// Backlog of a listening socket, equal to the maximum connections of a session. With the default
/// of 128, the kernel resets connections of a larger burst on a busy machine.
const BACKLOG: u32 = 4096;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn target(path: &Path) -> ListenTarget {
        format!("unix:{}", path.display()).parse().unwrap()
    }

    #[tokio::test]
    async fn a_socket_file_is_private_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.sock");
        let listener = LocalListener::bind(&target(&path)).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let _client = LocalStream::connect_to_file(&path).await.unwrap();
        listener.accept().await.unwrap();
        drop(listener);
        assert!(path.symlink_metadata().is_err());
    }

    #[tokio::test]
    async fn no_file_is_replaced_and_no_other_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "kept").unwrap();
        let error = LocalListener::bind(&target(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("remove it"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"kept");

        fs::remove_file(&path).unwrap();
        let listener = LocalListener::bind(&target(&path)).unwrap();
        assert!(LocalListener::bind(&target(&path)).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(listener);
        assert_eq!(fs::read(&path).unwrap(), b"another");
    }

    #[tokio::test]
    async fn port_0_is_a_free_one() {
        let listener = LocalListener::bind(&"0".parse().unwrap()).unwrap();
        let address = listener.target().address().unwrap();
        assert!(address.ip().is_loopback() && address.port() > 0);
        let service = address.to_string().parse().unwrap();
        let _client = LocalStream::connect(&service).await.unwrap();
        listener.accept().await.unwrap();
    }
}
