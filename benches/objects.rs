//! Small things: objects of 4 KiB over an open connection, and a copy of one byte from a cold start.
//!
//! `cargo bench --bench objects -- --count 10000 --runs 15`
//!
//! One gigabit cable joins two hosts. Files are in memory, where a sync is free. The library puts,
//! stats and gets objects one by one; so do sftp (`put`, `ls`, `get` from a batch file) and a client
//! of nginx that keeps its connection (PUT, HEAD, GET). sftp and nginx sync nothing. Then `nicstripe
//! cp`, scp and curl, which fetches from nginx, copy one byte in turns.
//!
//! A round trip is one byte there and back over an open TCP connection.
#![forbid(unsafe_code)]

use std::{
    error::Error,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use clap::Args;
use nicstripe::{
    Client, CopyOptions, Name,
    trust::{Identity, Peers},
};
use nicstripe_lab::{Host, Lab, LinkSpec};
use nicstripe_testkit::{
    Sshd,
    bench::{
        Cell, Contender, NGINX_PORT, Place, Process, Result, Table, as_nicstripe, cell,
        circumstances, nginx, serve_in, sshd_in,
    },
    program,
};

#[derive(Debug, Args)]
struct Arguments {
    /// Number of objects
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Number of copies of one byte by each program
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

fn main() -> ExitCode {
    nicstripe_testkit::bench::run(bench)
}

fn bench(arguments: Arguments) -> Result<()> {
    let place = Place::in_memory(1 << 30)?;
    let stand = Stand {
        lab: Lab::builder().link(LinkSpec::gigabit()).build()?,
        sent: vec![7; OBJECT],
        count: arguments.count,
        place: &place,
    };
    let mut series = vec![stand.round_trips()?];
    let _daemon = serve_in(&stand.lab, &place)?;
    series.extend(stand.objects()?);
    let command = nginx(&stand.lab, &place, Host::B, "dav_methods PUT;")?;
    let server = Process::spawn(command, "nginx", &place.logs())?;
    server.await_listener(NGINX_PORT)?;
    series.extend(stand.over_http()?);
    let (sshd, command) = sshd_in(&stand.lab, &place)?;
    let ssh_server = Process::spawn(command, "sshd", &place.logs())?;
    ssh_server.await_line(Sshd::READY)?;
    series.extend(stand.over_sftp(&sshd)?);
    series.extend(stand.cold(&sshd, arguments.runs)?);
    let mut table = Table::default();
    series.iter().for_each(|one| table.row(one.row()));
    println!(
        "\n{}\n\n{table}",
        circumstances(&[Contender::Nicstripe, Contender::Scp])
    );
    Ok(())
}

/// Both hosts, and the folders of their files.
struct Stand<'a> {
    lab: Lab,
    place: &'a Place,
    sent: Vec<u8>,
    count: u32,
}

/// Times of one operation by one program.
struct Series {
    what: &'static str,
    program: &'static str,
    times: Vec<Duration>,
}

impl Series {
    fn new(what: &'static str, program: &'static str) -> Self {
        Self {
            what,
            program,
            times: Vec::new(),
        }
    }

    /// Adds the time since `start`.
    fn since(&mut self, start: Instant) {
        self.times.push(start.elapsed());
    }

    fn row(&self) -> [Cell; 5] {
        let mut times = self.times.clone();
        times.sort();
        let at = |share: usize| {
            let time = times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
            time.map_or_else(String::new, |time| {
                format!("{:.3}", time.as_secs_f64() * 1000.0)
            })
        };
        [
            cell("what", self.what),
            cell("program", self.program),
            cell("p50, ms", at(50)),
            cell("p99, ms", at(99)),
            cell("of", times.len()),
        ]
    }
}

impl Stand<'_> {
    fn peer(&self) -> Ipv4Addr {
        self.lab.address(Host::B, 0)
    }

    fn round_trips(&self) -> Result<Series> {
        let peer = self.peer();
        let listener = self.lab.on(Host::B, || TcpListener::bind((peer, 7001)))??;
        let echo = std::thread::spawn(move || -> io::Result<()> {
            let (mut tcp, _) = listener.accept()?;
            tcp.set_nodelay(true)?;
            let mut byte = [0];
            while tcp.read(&mut byte)? > 0 {
                tcp.write_all(&byte)?;
            }
            Ok(())
        });
        let mut tcp = self
            .lab
            .on(Host::A, || TcpStream::connect((peer, 7001)))??;
        tcp.set_nodelay(true)?;
        let mut series = Series::new("round trip", "TCP");
        for _ in 0..self.count {
            let start = Instant::now();
            tcp.write_all(&[1])?;
            tcp.read_exact(&mut [0])?;
            series.since(start);
        }
        drop(tcp);
        echo.join().map_err(|_| "the echo failed")??;
        Ok(series)
    }

    /// Puts, stats and gets objects by the library.
    fn objects(&self) -> Result<[Series; 3]> {
        let home = self.place.home(Host::A);
        let builder = Client::builder()
            .identity(Identity::load_or_create(home.identity_file())?)
            .peers(Peers::load(home.peers_file())?);
        let measured = self.lab.on(Host::A, || -> Sent<[Series; 3]> {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = builder.connect(&self.peer().to_string()).await?;
                let [mut put, mut stat, mut get] =
                    ["put", "stat", "get"].map(|what| Series::new(what, "nicstripe"));
                let options = CopyOptions::default();
                for number in 0..self.count {
                    let name = Name::parse(format!("object-{number}").as_bytes())?;
                    let start = Instant::now();
                    client.write(&name, &self.sent, options).await?;
                    put.since(start);
                    let start = Instant::now();
                    let size = client.stat(&name).await?.size;
                    stat.since(start);
                    let start = Instant::now();
                    let got = client.read(&name, None).await?;
                    get.since(start);
                    if got != self.sent || size != OBJECT as u64 {
                        return Err(format!("{name} is not what was sent").into());
                    }
                }
                client.close().await;
                Ok([put, stat, get])
            })
        })?;
        measured.map_err(|error| -> Box<dyn Error> { error })
    }

    /// Puts, stats and gets objects by requests over one connection to nginx.
    fn over_http(&self) -> Result<[Series; 3]> {
        let peer = self.peer();
        let tcp = self
            .lab
            .on(Host::A, || TcpStream::connect((peer, NGINX_PORT)))??;
        tcp.set_nodelay(true)?;
        let mut tcp = BufReader::new(tcp);
        let mut series = [("put", "PUT"), ("stat", "HEAD"), ("get", "GET")]
            .map(|(what, method)| (method, Series::new(what, "nginx")));
        for number in 0..self.count {
            for (method, one) in &mut series {
                let body = if *method == "PUT" {
                    &self.sent[..]
                } else {
                    &[]
                };
                let head = format!(
                    "{method} /nginx-{number} HTTP/1.1\r\nHost: b\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let start = Instant::now();
                tcp.get_mut().write_all(&[head.as_bytes(), body].concat())?;
                let got = response(&mut tcp, *method == "HEAD")?;
                one.since(start);
                if *method == "GET" && got != self.sent {
                    return Err(format!("nginx's {number} is not what was sent").into());
                }
            }
        }
        Ok(series.map(|(_, one)| one))
    }

    /// Puts, stats and gets objects by sftp, which prints each command as it starts.
    fn over_sftp(&self, sshd: &Sshd) -> Result<[Series; 3]> {
        let source = self.place.files(Host::A).join("object");
        fs::write(&source, &self.sent)?;
        let (there, back) = (
            self.place.files(Host::B),
            self.place.files(Host::A).join("got"),
        );
        let batch: String = (0..self.count)
            .map(|number| {
                let object = format!("{}/sftp-{number}", there.display());
                let (source, back) = (source.display(), back.display());
                format!("put {source} {object}\nls {object}\nget {object} {back}\n")
            })
            .collect();
        let file = self.place.logs().join("batch");
        fs::write(&file, batch + "pwd\n")?;
        let mut command = self.lab.command(Host::A, "sftp");
        command.args(sshd.copy_options()).arg("-b").arg(file);
        command.arg(format!("root@{}", self.peer()));
        let mut sftp = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut series = ["put", "stat", "get"].map(|what| Series::new(what, "sftp"));
        let lines = BufReader::new(sftp.stdout.take().ok_or("no output of sftp")?).lines();
        let mut running: Option<(usize, Instant)> = None;
        for line in lines {
            let line = line?;
            let Some(started) = line.strip_prefix("sftp> ") else {
                continue;
            };
            if let Some((which, start)) = running.take() {
                series[which].since(start);
            }
            let which = ["put ", "ls ", "get "]
                .iter()
                .position(|verb| started.starts_with(verb));
            running = which.map(|which| (which, Instant::now()));
        }
        if !sftp.wait()?.success() || fs::read(back)? != self.sent {
            return Err("sftp failed".into());
        }
        Ok(series)
    }

    /// Copies one byte by programs that start for it, in turns.
    fn cold(&self, sshd: &Sshd, runs: u32) -> Result<[Series; 3]> {
        let source = self.place.files(Host::A).join("byte");
        fs::write(&source, b"x")?;
        fs::write(self.place.files(Host::B).join("byte"), b"x")?;
        let mut series =
            ["nicstripe", "scp", "curl"].map(|program| Series::new("1 byte, cold", program));
        for run in 0..runs {
            let cp = self.lab.command(Host::A, program());
            let mut cp = as_nicstripe(cp, self.place, Host::A, "cp");
            cp.arg(&source).arg(format!("{}:cp-{run}", self.peer()));
            let mut scp = self.lab.command(Host::A, "scp");
            let target = self.place.files(Host::B).join(format!("scp-{run}"));
            scp.args(sshd.copy_options()).arg(&source).arg(format!(
                "root@{}:{}",
                self.peer(),
                target.display()
            ));
            let mut curl = self.lab.command(Host::A, "curl");
            curl.args(["-sS", "-o"])
                .arg(self.place.files(Host::A).join(format!("curl-{run}")))
                .arg(format!("http://{}:{NGINX_PORT}/byte", self.peer()));
            for (one, command) in series.iter_mut().zip([&mut cp, &mut scp, &mut curl]) {
                command.stdin(Stdio::null()).stdout(Stdio::null());
                let start = Instant::now();
                let status = command.stderr(Stdio::null()).status()?;
                one.since(start);
                if !status.success() {
                    return Err(format!("{}: {status}", one.program).into());
                }
            }
        }
        Ok(series)
    }
}

/// Result of another thread.
type Sent<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Reads a response of HTTP/1.1 with a length.
fn response(tcp: &mut BufReader<TcpStream>, is_head: bool) -> Result<Vec<u8>> {
    let mut len = 0;
    let mut line = String::new();
    tcp.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 20") {
        return Err(format!("nginx answers {line}").into());
    }
    while line != "\r\n" {
        line.clear();
        tcp.read_line(&mut line)?;
        let field = line.to_ascii_lowercase();
        if let Some(value) = field.strip_prefix("content-length:") {
            len = value.trim().parse()?;
        }
    }
    let mut body = vec![0; if is_head { 0 } else { len }];
    tcp.read_exact(&mut body)?;
    Ok(body)
}

/// Bytes of an object.
const OBJECT: usize = 4096;
