//! The XML of S3: a writer, and a reader of the few documents that requests have.

use std::fmt::Write as _;

use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

use super::error::{Code, S3Error};

/// Document that is being written.
#[derive(Debug)]
pub(crate) struct Xml {
    root: String,
    text: String,
}

impl Xml {
    /// Begins a document with this root.
    pub(crate) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            text: format!("<{root} xmlns=\"{NAMESPACE}\">"),
        }
    }

    /// Begins a document whose root is of no namespace.
    pub(crate) fn plain(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            text: format!("<{root}>"),
        }
    }

    pub(crate) fn open(&mut self, name: &str) -> &mut Self {
        self.text.extend(["<", name, ">"]);
        self
    }

    pub(crate) fn close(&mut self, name: &str) -> &mut Self {
        self.text.extend(["</", name, ">"]);
        self
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.open(name);
        escape(&mut self.text, text);
        self.close(name)
    }

    pub(crate) fn shown(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        self.text(name, &value.to_string())
    }

    /// Adds text to the open element, for the fuzzer.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn escaped(&mut self, text: &str) {
        escape(&mut self.text, text);
    }

    /// Adds text that is XML.
    pub(crate) fn raw(&mut self, xml: &str) -> &mut Self {
        self.text.push_str(xml);
        self
    }

    /// Ends the document, and returns it without the declaration.
    pub(crate) fn end(self) -> String {
        self.text + "</" + &self.root + ">"
    }
}

/// Declaration that begins each document.
pub(crate) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            // XML cannot express most of them; S3 writes them like this all the same.
            c if c.is_control() => {
                let _ = write!(into, "&#x{:X};", u32::from(c));
            }
            c => into.push(c),
        }
    }
}

/// Element of a document that was read: its name without a prefix, its text, and the elements in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) within: Vec<Element>,
}

impl Element {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.within.iter().find(|element| element.name == name);
        found.map(|element| element.text.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.within
            .iter()
            .filter(move |element| element.name == name)
    }
}

/// Reads a document with this root. Attributes are ignored, and document types refused: so there are no
/// entities but the five of XML.
pub(crate) fn read(bytes: &[u8], root: &str) -> Result<Element, S3Error> {
    let malformed = || Code::MALFORMED_XML.because(format!("expected an element {root}"));
    let text = str::from_utf8(bytes).map_err(|_| malformed())?;
    let element = document(text.trim_start_matches('\u{feff}')).ok_or_else(malformed)?;
    match element.name == root {
        true => Ok(element),
        false => Err(malformed()),
    }
}

fn document(text: &str) -> Option<Element> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    // The outermost is the document itself.
    let mut open = vec![Element::default()];
    let mut count = 0;
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                count += 1;
                let name = tag.local_name().as_ref().to_owned();
                let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
                if !is_name || count > MOST_ELEMENTS || open.len() > DEEPEST {
                    return None;
                }
                open.push(Element {
                    name,
                    ..Element::default()
                });
            }
            Event::End(_) => {
                let closed = open.pop()?;
                open.last_mut()?.within.push(closed);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text.into_inner()),
            Event::GeneralRef(name) => open.last_mut()?.text.push(character(&name.into_inner())?),
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            Event::Eof => break,
            _ => return None,
        }
    }
    let mut outermost = open.pop()?;
    let is_whole = open.is_empty() && outermost.within.len() == 1;
    (is_whole && outermost.text.trim().is_empty()).then(|| outermost.within.pop())?
}

/// Returns the character of an entity. Unlike XML, S3 writes control characters in this way, too.
fn character(entity: &str) -> Option<char> {
    let number = |digits: &str, radix| char::from_u32(u32::from_str_radix(digits, radix).ok()?);
    match (entity.strip_prefix("#x"), entity.strip_prefix('#')) {
        (Some(digits), _) => number(digits, 16),
        (None, Some(digits)) => number(digits, 10),
        (None, None) => resolve_predefined_entity(entity)?.chars().next(),
    }
}

/// Number of elements that may be open at once. The documents of S3 have four.
const DEEPEST: usize = 8;

/// Number of elements of a document: 10,000 parts with their number, tag and checksums. One of four bytes
/// takes a hundred in memory.
const MOST_ELEMENTS: usize = 100_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_document_is_read() {
        let text = "<?xml version='1.0'?><!-- a > b --><s3:Delete xmlns=\"http://x/>\">\n\
            <Object><Key>a&amp;b&#x41;&#66;</Key><VersionId/></Object><Quiet>true</Quiet></s3:Delete>\n";
        let delete = read(text.as_bytes(), "Delete").unwrap();
        let object = delete.all("Object").next().unwrap();
        assert_eq!(object.get("Key"), Some("a&bAB"));
        assert_eq!(object.get("VersionId"), Some(""));
        assert_eq!(delete.get("Quiet"), Some("true"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(20), "</a>".repeat(20));
        let many = format!("<a>{}</a>", "<b/>".repeat(100_000));
        for text in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><a/>",
            "</a>",
            "<a>&b;</a>",
            "<a>&#xD800;</a>",
            "<a>&amp</a>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            "<a><![CDATA[x]]></a>",
            "<a/>x",
            deep.as_str(),
            many.as_str(),
        ] {
            assert!(read(text.as_bytes(), "a").is_err(), "{text}");
        }
        assert!(read(b"<b/>", "a").is_err());
        assert!(read(&[0xff], "a").is_err());
    }

    proptest! {
        #[test]
        fn text_comes_back(text in any::<String>()) {
            let mut xml = Xml::new("a");
            xml.text("b", &text);
            let read = read(xml.end().as_bytes(), "a").unwrap();
            prop_assert_eq!(read.get("b"), Some(text.as_str()));
        }

        #[test]
        fn nothing_panics(text in "[<>/&;?!a-c'\"#x\\-]{0,40}") {
            let _ = read(text.as_bytes(), "a");
        }
    }
}
