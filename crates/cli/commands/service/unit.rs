//! Unit file of the service, from the one that packages install.

use std::path::Path;

#[derive(Debug, Clone)]
pub(super) struct Unit<'a> {
    pub(super) program: &'a str,
    pub(super) root: &'a str,
    pub(super) user: &'a str,
    pub(super) group: &'a str,
}

impl Unit<'_> {
    /// Returns the text of the unit file, which begins with [`MARK`].
    pub(super) fn text(&self) -> String {
        let line = |line: &str| match line.split_once('=') {
            Some(("User", _)) => format!("User={}", self.user),
            Some(("Group", group)) if self.group != group => {
                // For the records of host routes, which all users of the machine share.
                format!("Group={}\nSupplementaryGroups={group}", self.group)
            }
            Some((key @ ("RequiresMountsFor" | "ReadWritePaths"), path))
                if !path.starts_with('-') =>
            {
                format!("{key}={}", quoted(self.root))
            }
            Some(("ExecStart", _)) => {
                let (program, root) = (quoted_command(self.program), quoted_command(self.root));
                format!("ExecStart={program} serve --root {root}")
            }
            Some(("ExecStopPost", _)) => {
                format!(
                    "ExecStopPost=-{} routes clean",
                    quoted_command(self.program)
                )
            }
            _ => line.to_owned(),
        };
        let lines = TEMPLATE.lines().skip_while(|line| line.starts_with('#'));
        let lines: Vec<String> = lines.map(line).collect();
        format!("{MARK}\n{}\n", lines.join("\n").trim_start())
    }
}

/// Returns true if a unit file is one of [`Unit::text`].
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Returns the directory that a unit file serves, and its user.
pub(super) fn served(text: &str) -> Option<(String, String)> {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let root = value("ReadWritePaths")?;
    let root = root
        .strip_prefix('"')
        .and_then(|root| root.strip_suffix('"'))
        .unwrap_or(root);
    let plain = root
        .replace("%%", "%")
        .replace("\\\"", "\"")
        .replace("\\\\", "\\");
    Some((plain, value("User")?.to_owned()))
}

/// Quotes a path for a list of paths, where `%` begins a specifier (systemd.syntax(7)).
fn quoted(text: &str) -> String {
    let escaped = text.replace('%', "%%");
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,%=".contains(c);
    match escaped.chars().all(is_plain) {
        true => escaped,
        false => format!("\"{}\"", escaped.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Quotes a word of a command line, where `$` begins a variable as well (systemd.service(5)).
fn quoted_command(text: &str) -> String {
    quoted(&text.replace('$', "$$"))
}

/// First line of the units that this program writes.
const MARK: &str =
    "# Written by `nicstripe service install`; `nicstripe service remove` removes it.";

/// Path of the unit, which takes precedence over that of a package.
pub(super) fn path() -> &'static Path {
    Path::new("/etc/systemd/system/nicstripe.service")
}

/// Unit that packages install.
const TEMPLATE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/packaging/systemd/nicstripe.service"
));

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(root: &str) -> String {
        let unit = Unit {
            program: "/opt/bin/nicstripe",
            root,
            user: "alice",
            group: "users",
        };
        unit.text()
    }

    #[test]
    fn the_unit_differs_from_that_of_packages_in_what_was_asked_for() {
        let text = unit("/data");
        assert!(is_ours(&text) && !is_ours(TEMPLATE));
        for line in [
            "User=alice",
            "Group=users",
            "RequiresMountsFor=/data",
            "SupplementaryGroups=nicstripe",
            "ReadWritePaths=/data",
            "ReadWritePaths=-/run/nicstripe",
            "ExecStart=/opt/bin/nicstripe serve --root /data",
            "ExecStopPost=-/opt/bin/nicstripe routes clean",
            "NoNewPrivileges=yes",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(
            !text.contains("/srv/files") && !text.contains("/usr/local"),
            "{text}"
        );
        assert_eq!(served(&text), Some(("/data".into(), "alice".into())));
    }

    #[test]
    fn odd_directories_are_quoted() {
        for (root, word, path) in [
            ("/a b", "\"/a b\"", "\"/a b\""),
            ("/100%", "/100%%", "/100%%"),
            ("/a$HOME", "\"/a$$HOME\"", "\"/a$HOME\""),
            ("/\"q\"", "\"/\\\"q\\\"\"", "\"/\\\"q\\\"\""),
        ] {
            let text = unit(root);
            assert!(text.contains(&format!("--root {word}\n")), "{text}");
            assert!(text.contains(&format!("ReadWritePaths={path}\n")), "{text}");
            assert_eq!(served(&text).unwrap().0, root);
        }
    }
}
