//! Two hosts and the cables between them, simulated with network namespaces and veth pairs.
//! Dropping the lab removes both.

use std::{
    fs::{self, File},
    future::Future,
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd},
    thread,
    time::{Duration, Instant},
};

use nicstripe_link::{Interface, InterfaceAddress, InterfaceIndex, InterfaceName, interfaces};
use rtnetlink::{
    Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, packet_route::link::LinkMessage,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// Network namespace that simulates a host. Its loopback interface is up.
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> io::Result<Self> {
        let made = thread::spawn(|| {
            // SAFETY: only the network namespace of this short-lived thread changes, no memory or
            // descriptor table.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net")
        });
        let namespace = Self(made.join().expect("the thread does not panic")?);
        namespace.set("lo", LinkMessageBuilder::up);
        Ok(namespace)
    }

    /// Runs `body` in a new thread inside this namespace, and propagates its panic to the caller.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            body()
        };
        thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub(crate) fn block_on<T: Send, F: Future<Output = T>>(
        &self,
        body: impl FnOnce() -> F + Send,
    ) -> T {
        self.run(|| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(body())
        })
    }

    /// Runs `body` in this namespace with an rtnetlink connection.
    pub(crate) fn netlink<T: Send, F: Future<Output = T>>(
        &self,
        body: impl FnOnce(Handle) -> F + Send,
    ) -> T {
        self.block_on(|| async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            let connection = tokio::spawn(connection);
            let result = body(handle).await;
            connection.abort();
            result
        })
    }

    pub(crate) fn add_link(&self, link: LinkMessage) {
        self.netlink(|handle| async move { handle.link().add(link).execute().await.unwrap() });
    }

    pub(crate) fn set(
        &self,
        name: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec> + Send,
    ) {
        let link = change(LinkUnspec::new_with_name(name)).build();
        self.netlink(|handle| async move { handle.link().set(link).execute().await.unwrap() });
    }

    pub(crate) fn up(&self, name: &str) {
        self.set(name, LinkMessageBuilder::up);
    }

    pub(crate) fn down(&self, name: &str) {
        self.set(name, LinkMessageBuilder::down);
    }

    pub(crate) fn remove_link(&self, name: &str) {
        let index = self.index(name).0;
        self.netlink(|handle| async move { handle.link().del(index).execute().await.unwrap() });
    }

    pub(crate) fn add_address(&self, name: &str, address: &str) {
        let index = self.index(name).0;
        let (ip, prefix_len) = address.split_once('/').unwrap();
        let (ip, prefix_len): (IpAddr, u8) = (ip.parse().unwrap(), prefix_len.parse().unwrap());
        self.netlink(|handle| async move {
            handle
                .address()
                .add(index, ip, prefix_len)
                .execute()
                .await
                .unwrap();
        });
    }

    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        self.run(|| interfaces().unwrap())
    }

    pub(crate) fn interface(&self, name: &str) -> Interface {
        self.interfaces()
            .into_iter()
            .find(|interface| interface.is_called(name))
            .unwrap()
    }

    pub(crate) fn index(&self, name: &str) -> InterfaceIndex {
        self.interface(name).index
    }

    /// Waits until the interface has carrier and a usable link-local address. The kernel sets both
    /// with a delay.
    fn wait_until_settled(&self, name: &str) {
        let start = Instant::now();
        let settled = |interface: &Interface| {
            interface.carrier
                && interface
                    .addresses
                    .iter()
                    .any(InterfaceAddress::is_link_local)
        };
        while !settled(&self.interface(name)) {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{name} has no carrier or no link-local address after 10 s"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes `value` to the kernel setting `path` below `/proc/sys/net`.
    pub(crate) fn sysctl(&self, path: &str, value: &str) {
        self.run(|| fs::write(format!("/proc/sys/net/{path}"), value).unwrap());
    }

    pub(crate) fn sent_bytes(&self, name: &str) -> u64 {
        let table = self.run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let counters = table
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))
            .unwrap();
        counters.split_whitespace().nth(8).unwrap().parse().unwrap()
    }
}

pub(crate) struct Lab {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self {
            near: Namespace::new().unwrap(),
            far: Namespace::new().unwrap(),
        };
        for side in [&lab.near, &lab.far] {
            // Duplicate address detection would delay link-local addresses by seconds. The only
            // test of it turns it on.
            side.sysctl("ipv6/conf/default/accept_dad", "0");
        }
        lab
    }

    /// Adds a cable between the interfaces `near` and `far` of the two hosts. Both interfaces are
    /// up and have the given addresses (`ip/len`).
    pub(crate) fn cable(self, near: (&str, &[&str]), far: (&str, &[&str])) -> Self {
        self.near.add_link(LinkVeth::new(near.0, far.0).build());
        let there = self.far.0.as_raw_fd();
        self.near.set(far.0, |link| link.setns_by_fd(there));
        for (side, (name, addresses)) in [(&self.near, near), (&self.far, far)] {
            side.up(name);
            addresses
                .iter()
                .for_each(|address| side.add_address(name, address));
        }
        self.near.wait_until_settled(near.0);
        self.far.wait_until_settled(far.0);
        self
    }

    /// Returns a lab with one cable, `a0` 10.1.0.1/24 to `b0` 10.1.0.2/24.
    pub(crate) fn one_cable() -> Self {
        Self::new().cable(("a0", &["10.1.0.1/24"]), ("b0", &["10.1.0.2/24"]))
    }

    /// Returns a lab with two cables in separate subnets: `a0` 10.1.0.1/24 to `b0` 10.1.0.2/24, and
    /// `a1` 10.2.0.1/24 to `b1` 10.2.0.2/24.
    pub(crate) fn two_cables() -> Self {
        Self::one_cable().cable(("a1", &["10.2.0.1/24"]), ("b1", &["10.2.0.2/24"]))
    }
}

pub(crate) fn name(text: &str) -> InterfaceName {
    text.parse().unwrap()
}
