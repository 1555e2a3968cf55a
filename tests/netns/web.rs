//! Copies from a web server that others wrote (nginx), over every interface of a host with several.

use std::{fs, process::Command};

use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Outcome, Process, Side, content, number, program, tests, text,
    trial::{Test, is_installed},
};
use tempfile::TempDir;

use crate::hosts::{BEHIND as ADDRESS, Hosts, MIB, ip, lead_behind};

pub(crate) const TESTS: &[Test] = tests![
    a_cable_that_is_pulled_midway_costs_its_share,
    tls_and_http_2_carry_over_every_cable_and_redirections_are_followed,
    a_file_goes_on_to_a_daemon_and_to_standard_output,
    a_login_page_on_one_cable_is_left_out,
    tls_that_fails_on_one_cable_costs_that_cable,
    what_a_cable_lacks_is_said,
];

pub(crate) fn obstacle() -> Option<String> {
    let needed = ["nginx", "ip", "openssl", "python3"];
    let missing = needed.into_iter().find(|tool| !is_installed(tool));
    missing.map(|tool| format!("{tool} is not installed"))
}

/// nginx on host B, at an address to which each cable of host A has a route, as two routers to the
/// Internet would be.
struct Site {
    hosts: Hosts,
    folder: TempDir,
    _nginx: Process,
}

impl Site {
    fn joined_by(links: &[LinkSpec]) -> Self {
        let hosts = Hosts::joined_by(links);
        let lab: &Lab = &hosts.lab;
        lead_behind(lab);
        let folder = tempfile::tempdir().unwrap();
        let nginx = nginx(lab, &folder);
        Self {
            hosts,
            folder,
            _nginx: nginx,
        }
    }

    /// Puts a file at the server. Returns its URL.
    fn with(&self, bytes: &[u8]) -> String {
        fs::write(self.folder.path().join("file"), bytes).unwrap();
        format!("http://{ADDRESS}:8080/file")
    }

    fn client(&self) -> &Side {
        &self.hosts.client
    }

    fn cp(&self, arguments: &[&str]) -> Process {
        let first = ["cp", "--json-stream", "--timeout", "20"];
        Process::spawn(self.command(&[&first, arguments].concat()))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.client().command(program());
        command.args(arguments);
        command
    }

    /// Runs a command that trusts the server's certificate.
    fn trusting(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.command(arguments);
        command.env("SSL_CERT_FILE", self.folder.path().join("cert"));
        Process::spawn(command).finish()
    }
}

fn nginx(lab: &Lab, folder: &TempDir) -> Process {
    let root = folder.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary
        .iter()
        .map(|kind| format!("{kind}_temp_path {root};"))
        .collect();
    let settings = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log stderr notice; events {{}} \
         http {{ access_log off; {temporary} root {root}; sendfile on; server {{ listen {ADDRESS}:8080 reuseport; }} \
         server {{ listen {ADDRESS}:8443 ssl http2 reuseport; ssl_certificate {root}/cert; ssl_certificate_key {root}/key; \
         location /moved {{ return 302 /file?signed=$connection; }} }} }}"
    );
    certificate(folder);
    let file = folder.path().join("nginx.conf");
    fs::write(&file, settings).unwrap();
    let mut command = lab.command(Host::B, "nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(file);
    let nginx = Process::spawn(command);
    // Said once its sockets listen.
    nginx.await_stderr("getrlimit");
    nginx
}

/// Writes a certificate for the server's address, and its key.
fn certificate(folder: &TempDir) {
    let (key, certificate) = (folder.path().join("key"), folder.path().join("cert"));
    let mut command = Command::new("openssl");
    command
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=lab", "-addext"])
        .arg(format!("subjectAltName=IP:{ADDRESS}"))
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate);
    let made = command.output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Python's server for what comes in over the first cable: it is more specific than nginx, which listens
/// on all.
fn odd_server(site: &Site, port: u16, script: &str) -> Process {
    let mut command = site.hosts.lab.command(Host::B, "python3");
    let device = site.hosts.lab.interface(0).to_owned();
    let bound = format!(
        "import socket, sys, threading, time\n\
         s = socket.socket()\n\
         s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'{device}')\n\
         s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n\
         s.bind(('{ADDRESS}', {port}))\n\
         s.listen(64)\n\
         print('it listens', file=sys.stderr, flush=True)\n\
         while True:\n    c, _ = s.accept()\n    {script}\n"
    );
    command.args(["-c", &bound]);
    let server = Process::spawn(command);
    server.await_stderr("it listens");
    server
}

fn tls_and_http_2_carry_over_every_cable_and_redirections_are_followed() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(64 * MIB);
    site.with(&bytes);
    let url = format!("https://{ADDRESS}:8443/moved");
    let document = site
        .trusting(&["links", "--json", &url])
        .expect(0)
        .document_of("links");
    assert_eq!(document["has_parts"], true, "{document:#}");
    for link in document["web_links"].as_array().unwrap() {
        assert_eq!(link["protocol"], "HTTP/2.0", "{document:#}");
    }
    let copy = || site.trusting(&["cp", "--json", &url, "file"]);
    let (outcome, carried) = site.hosts.carried(copy);
    let report = outcome.expect(0).document();
    site.client().check("file", &bytes, &report);
    for counters in &carried {
        let part = counters.at(Host::A).received_bytes as f64 / bytes.len() as f64;
        assert!(part > 0.25, "{part}: {report:#}");
    }
    site.trusting(&["bench", "-t", "1", "--json", &url])
        .expect(0)
        .document_of("nicstripe-web-bench-1");
    // Nobody vouches for the certificate.
    Process::spawn(site.command(&["cp", "--timeout", "1", &url, "other"]))
        .finish()
        .expect(10)
        .error(&["certificate"]);
}

fn a_file_goes_on_to_a_daemon_and_to_standard_output() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(32 * MIB);
    let url = site.with(&bytes);
    let target = format!("{}:copy", site.hosts.lab.address(Host::B, 0));
    let (outcome, carried) = site
        .hosts
        .carried(|| site.hosts.cp(&["--json", &url, &target]));
    let report = outcome.expect(0).document();
    site.hosts.server.check("copy", &bytes, &report);
    for counters in &carried {
        let part = counters.at(Host::A).sent_bytes as f64 / bytes.len() as f64;
        assert!(part > 0.2, "{part}: {report:#}");
    }
    let output = site.command(&["cp", "-q", &url, "-"]).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout == bytes, "{} bytes", output.stdout.len());
}

fn a_login_page_on_one_cable_is_left_out() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(16 * MIB);
    let url = site.with(&bytes);
    let page = "c.recv(4096); c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 13\\r\\nConnection: close\\r\\n\\r\\n<html>login</'); c.close()";
    let _portal = odd_server(&site, 8080, page);
    let outcome = site.cp(&[&url, "."]).finish().expect(0);
    let report = outcome.document();
    site.client().check("file", &bytes, &report);
    let first = &report["links"][0];
    assert_eq!(first["state"], "left_out", "{report:#}");
    assert!(
        text(first, "reason").contains("another version"),
        "{report:#}"
    );
    // With that cable alone, the page is what there is: with a digest it is refused.
    let digest = format!("sha256:{}", "00".repeat(32));
    let interface = site.hosts.lab.interface(0);
    let arguments = ["--link", &interface, "--digest", &digest, &url, "page"];
    site.cp(&arguments).finish().expect(40);
    assert!(!site.client().has("page"));
}

fn tls_that_fails_on_one_cable_costs_that_cable() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let bytes = content(16 * MIB);
    site.with(&bytes);
    let _odd = odd_server(
        &site,
        8443,
        "c.recv(64); c.sendall(b'SSH-2.0-x\\r\\n'); c.close()",
    );
    let url = format!("https://{ADDRESS}:8443/file");
    let report = site.trusting(&["cp", "--json", &url, "."]);
    let report = report.expect(0).document();
    site.client().check("file", &bytes, &report);
    assert_eq!(report["links"][0]["state"], "down", "{report:#}");
    assert_eq!(number(&report["links"][0], "bytes"), 0, "{report:#}");
}

fn what_a_cable_lacks_is_said() {
    let site = Site::joined_by(&[LinkSpec::mbit(200); 2]);
    let url = site.with(b"bytes");
    let second = site.hosts.lab.interface(1);
    ip(
        &site.hosts.lab,
        Host::A,
        &format!("route del {ADDRESS}/32 dev {second}"),
    );
    // Otherwise the other host would answer for the address on every cable.
    let device = format!("net.ipv4.conf.{}.arp_ignore=2", site.hosts.lab.interface(1));
    let ignoring = site
        .hosts
        .lab
        .command(Host::B, "sysctl")
        .args(["-qw", &device])
        .status();
    assert!(ignoring.unwrap().success());
    let document = Process::spawn(site.command(&["links", "--json", &url]))
        .finish()
        .expect(0)
        .document_of("links");
    let link = &document["web_links"][1];
    assert!(
        text(link, "remedy").contains("needs a gateway to"),
        "{document:#}"
    );
    assert_eq!(document["web_links"][0].get("why"), None, "{document:#}");
}

fn a_cable_that_is_pulled_midway_costs_its_share() {
    let site = Site::joined_by(&[LinkSpec::mbit(100); 2]);
    let bytes = content(128 * MIB);
    let url = site.with(&bytes);
    let cp = site.cp(&[&url, "."]);
    cp.await_event("progress", |event| number(event, "bytes") > 20 * MIB as u64);
    site.hosts.lab.cut(0).unwrap();
    cp.await_event("link", |event| text(event, "state") == "down");
    let before = site.hosts.lab.counters().unwrap();
    site.hosts.lab.heal(0).unwrap();
    let report = cp.finish().expect(0).document();
    site.client().check("file", &bytes, &report);
    let after = site.hosts.lab.counters().unwrap();
    let back = after[0].since(&before[0]).at(Host::A).received_bytes;
    assert!(
        back > MIB as u64,
        "the healed cable carried {back} bytes: {report:#}"
    );
    assert!(
        number(&report, "resent_bytes") < 16 * MIB as u64,
        "{report:#}"
    );
}
