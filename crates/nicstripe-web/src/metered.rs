//! Interfaces whose traffic costs money, as NetworkManager knows them.

use std::{path::Path, process::Stdio, time::Duration};

use nicstripe_link::Interface;
use tokio::{process::Command, time::timeout};

/// Returns the names of the metered interfaces; none if NetworkManager does not run or does not answer.
pub(crate) async fn metered(all: &[Interface]) -> Vec<String> {
    match Path::new("/run/NetworkManager").is_dir() {
        true => asked("nmcli")
            .await
            .map_or_else(Vec::new, |text| of(&text, all)),
        false => Vec::new(),
    }
}

async fn asked(program: &str) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args([
            "-t",
            "-f",
            "GENERAL.DEVICE,GENERAL.METERED",
            "device",
            "show",
        ])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(ANSWER_TIME, command.output()).await.ok()?.ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Reads a block of two lines per device. NetworkManager also guesses: `yes (guessed)`.
fn of(text: &str, all: &[Interface]) -> Vec<String> {
    let mut device = None;
    let mut metered = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            Some(("GENERAL.DEVICE", name)) => device = Some(name),
            Some(("GENERAL.METERED", value)) if value.starts_with("yes") => {
                let found = device.and_then(|name| all.iter().find(|one| one.is_called(name)));
                metered.extend(found.map(|interface| interface.name.to_string()));
            }
            _ => {}
        }
    }
    metered
}

const ANSWER_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use nicstripe_link::{InterfaceIndex, InterfaceKind};

    use super::*;

    #[test]
    fn interfaces_that_cost_are_known_also_by_a_guess() {
        let interface = |index, name: &str| {
            Interface::new(
                InterfaceIndex(index),
                name.parse().unwrap(),
                InterfaceKind::Other,
            )
        };
        let all = ["eth0", "wwan0", "wlan0", "usb0"]
            .iter()
            .zip(1..)
            .map(|(name, index)| interface(index, name))
            .collect::<Vec<_>>();
        let text = "GENERAL.DEVICE:wlan0\nGENERAL.METERED:yes\n\n\
                    GENERAL.DEVICE:usb0\nGENERAL.METERED:yes (guessed)\n\n\
                    GENERAL.DEVICE:eth0\nGENERAL.METERED:no (guessed)\n\n\
                    GENERAL.DEVICE:wwan0\nGENERAL.METERED:unknown\n\n\
                    GENERAL.DEVICE:gone\nGENERAL.METERED:yes\nGENERAL.METERED\n";
        assert_eq!(of(text, &all), ["wlan0", "usb0"]);
        assert_eq!(of("", &all), [""; 0]);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_knows_no_interface() {
        assert_eq!(asked("nicstripe-no-such-program").await, None);
    }
}
