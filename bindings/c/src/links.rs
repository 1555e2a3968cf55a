//! Links of a session.

use std::{ffi::c_char, mem::MaybeUninit};

use library::SurveyedLink;

use crate::{
    client::{checked, nicstripe_client},
    error::{Failure, call, quietly, required},
    raw::{ErrorOut, OwnedText},
};

/// Links of a session at one moment. Never changes, so that any number of threads may read it.
pub struct nicstripe_link_list(Vec<Shown>);

struct Shown {
    interface: OwnedText,
    peer_interface: OwnedText,
    local: OwnedText,
    remote: OwnedText,
    state: OwnedText,
    line_rate: u64,
    theory: u64,
    streams: u32,
}

/// Link of a session. The list owns the texts, which are never NULL.
#[repr(C)]
pub struct nicstripe_link {
    /// Name of the local interface.
    pub interface: *const c_char,
    /// Name of the daemon's interface; "" if unknown.
    pub peer_interface: *const c_char,
    /// Local address; "" if unknown.
    pub local: *const c_char,
    /// Remote address.
    pub remote: *const c_char,
    /// "connecting", "up", "suspect", "down" or "left_out".
    pub state: *const c_char,
    /// Line rate of the slower end in bit/s; 0 if unknown.
    pub line_rate: u64,
    /// Theoretical goodput towards the daemon in bit/s; 0 if unknown.
    pub theory: u64,
    /// Number of TCP connections.
    pub streams: u32,
}

impl Shown {
    fn of(link: &SurveyedLink) -> Self {
        let text = |value: Option<String>| OwnedText::new(value.unwrap_or_default());
        let rates = [link.line_rate, link.peer_line_rate];
        Self {
            interface: OwnedText::new(link.link.interface.clone()),
            peer_interface: text(link.link.peer_interface.clone()),
            local: text(link.link.local.map(|address| address.to_string())),
            remote: OwnedText::new(link.link.remote.to_string()),
            state: OwnedText::new(link.state.word()),
            line_rate: rates.into_iter().flatten().min().map_or(0, |rate| rate.0),
            theory: link.theory.map_or(0, |rate| rate.0),
            streams: link.streams,
        }
    }
}

/// Stores the links of the session in `links`, and their number in `count`, which may be NULL. Waits
/// at most 2 s for links that are still connecting.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_links(
    client: Option<&nicstripe_client>,
    links: Option<&mut MaybeUninit<Option<Box<nicstripe_link_list>>>>,
    count: Option<&mut MaybeUninit<usize>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(links, "links")?.write(None);
        let survey = checked(client)?.links()?;
        let shown: Vec<_> = survey.links.iter().map(Shown::of).collect();
        count.map(|count| count.write(shown.len()));
        *into = Some(Box::new(nicstripe_link_list(shown)));
        Ok(())
    })
}

/// Stores a link in `link`; `index` is less than the count.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_links_at(
    links: Option<&nicstripe_link_list>,
    index: usize,
    link: Option<&mut MaybeUninit<nicstripe_link>>,
    error: ErrorOut<'_>,
) -> i32 {
    call(error, || {
        let into = required(link, "link")?;
        let links = &required(links, "links")?.0;
        let outside =
            || Failure::argument(format!("index {index}, expected below {}", links.len()));
        let link = links.get(index).ok_or_else(outside)?;
        into.write(nicstripe_link {
            interface: link.interface.as_ptr(),
            peer_interface: link.peer_interface.as_ptr(),
            local: link.local.as_ptr(),
            remote: link.remote.as_ptr(),
            state: link.state.as_ptr(),
            line_rate: link.line_rate,
            theory: link.theory,
            streams: link.streams,
        });
        Ok(())
    })
}

/// Frees a list of links and its texts; NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn nicstripe_links_free(links: Option<Box<nicstripe_link_list>>) {
    quietly(|| drop(links));
}
