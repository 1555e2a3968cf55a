//! Bodies in chunks, `aws-chunked`: a line with the length of each, perhaps with its signature, and a
//! trailer behind the last.

use aws_lc_rs::digest::{Context, SHA256};
use hyper::body::{Buf as _, Bytes};

use super::{
    error::{Code, S3Error},
    signature::Chain,
};

/// Decodes a body in chunks. Bytes are passed on before the signature of their chunk is verified: who
/// takes them must discard them after an error.
pub(crate) struct Chunked {
    /// Signatures; `None` if the chunks have none.
    chain: Option<Box<Chain>>,
    has_trailer: bool,
    state: State,
    /// Line that is being read.
    line: Vec<u8>,
    /// Signature of the chunk, and hash of its bytes so far.
    signature: String,
    hash: Context,
    trailer: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the line before a chunk.
    Head,
    Data {
        left: u64,
    },
    /// Before the end of the line behind a chunk.
    Behind,
    Trailer,
    End,
}

impl Chunked {
    pub(crate) fn new(chain: Option<Box<Chain>>, has_trailer: bool) -> Self {
        Self {
            chain,
            has_trailer,
            state: State::Head,
            line: Vec::new(),
            signature: String::new(),
            hash: Context::new(&SHA256),
            trailer: Vec::new(),
        }
    }

    /// Takes bytes of the body, and returns the next ones of the object; `None` if all are taken.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, S3Error> {
        while !input.is_empty() {
            match self.state {
                State::Data { left } => {
                    let len = left.min(input.len() as u64);
                    let bytes = input.split_to(len as usize);
                    if self.chain.is_some() {
                        self.hash.update(&bytes);
                    }
                    self.state = match left - len {
                        0 => State::Behind,
                        left => State::Data { left },
                    };
                    return Ok(Some(bytes));
                }
                State::End => return Err(malformed("there are bytes behind its end")),
                State::Head | State::Behind | State::Trailer => {
                    if self.take_line(input)? {
                        let line = std::mem::take(&mut self.line);
                        self.take(&text(line)?)?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Verifies that the body has ended. Returns its trailer.
    pub(crate) fn end(mut self) -> Result<Vec<(String, String)>, S3Error> {
        // Some clients do not end the last line.
        if self.state == State::Trailer {
            let line = text(std::mem::take(&mut self.line))?;
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if !line.is_empty() {
                self.take(line)?;
            }
            if self.state == State::Trailer {
                self.take("")?;
            }
        }
        match self.state {
            State::End => Ok(self.trailer),
            _ => Err(Code::INCOMPLETE_BODY.because("the body ended early")),
        }
    }

    /// Reads up to the end of a line. Returns true if the line is whole.
    fn take_line(&mut self, input: &mut Bytes) -> Result<bool, S3Error> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(input.len());
        if self.line.len() + taken > LONGEST_LINE {
            return Err(malformed("a line is too long"));
        }
        self.line.extend_from_slice(&input[..taken]);
        input.advance(taken + usize::from(end.is_some()));
        if end.is_some() && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(end.is_some())
    }

    /// Takes a whole line.
    fn take(&mut self, line: &str) -> Result<(), S3Error> {
        match self.state {
            State::Head => self.begin(line),
            State::Behind if line.is_empty() => {
                self.verify_chunk()?;
                self.state = State::Head;
                Ok(())
            }
            State::Trailer if line.is_empty() => self.end_trailer(),
            State::Trailer => {
                let (name, value) = line
                    .split_once(':')
                    .ok_or_else(|| malformed("a line of its trailer has no colon"))?;
                if self.trailer.len() >= LONGEST_TRAILER {
                    return Err(malformed("its trailer is too long"));
                }
                let name = name.trim().to_ascii_lowercase();
                self.trailer.push((name, value.trim().to_owned()));
                Ok(())
            }
            _ => Err(malformed("a chunk is longer than announced")),
        }
    }

    fn begin(&mut self, line: &str) -> Result<(), S3Error> {
        let (length, rest) = line.split_once(';').unwrap_or((line, ""));
        let is_digits =
            (1..=16).contains(&length.len()) && length.bytes().all(|byte| byte.is_ascii_hexdigit());
        let left = is_digits
            .then(|| u64::from_str_radix(length, 16).ok())
            .flatten();
        let left = left.ok_or_else(|| malformed("a chunk has no length"))?;
        self.signature = rest
            .trim()
            .strip_prefix("chunk-signature=")
            .unwrap_or_default()
            .to_owned();
        self.hash = Context::new(&SHA256);
        self.state = State::Data { left };
        if left == 0 {
            self.verify_chunk()?;
            self.state = State::Trailer;
        }
        Ok(())
    }

    fn verify_chunk(&mut self) -> Result<(), S3Error> {
        let hash = std::mem::replace(&mut self.hash, Context::new(&SHA256)).finish();
        match &mut self.chain {
            Some(chain) => chain.verify_chunk(&self.signature, hash.as_ref()),
            None => Ok(()),
        }
    }

    fn end_trailer(&mut self) -> Result<(), S3Error> {
        let is_signature = |(name, _): &(String, String)| name == "x-amz-trailer-signature";
        let signature = self.trailer.iter().position(is_signature);
        let signature = signature.map(|at| self.trailer.remove(at).1);
        if !self.has_trailer && !self.trailer.is_empty() {
            return Err(malformed("it has a trailer that was not announced"));
        }
        if let (Some(chain), true) = (&mut self.chain, self.has_trailer) {
            let lines = self.trailer.iter();
            let text: String = lines
                .map(|(name, value)| format!("{name}:{value}\n"))
                .collect();
            chain.verify_trailer(&signature.unwrap_or_default(), &text)?;
        }
        self.state = State::End;
        Ok(())
    }
}

fn text(line: Vec<u8>) -> Result<String, S3Error> {
    String::from_utf8(line).map_err(|_| malformed("a line is not UTF-8"))
}

fn malformed(why: &'static str) -> S3Error {
    Code::INVALID_REQUEST.because(format!("the body is not in chunks: {why}"))
}

const LONGEST_LINE: usize = 1024;
const LONGEST_TRAILER: usize = 16;

#[cfg(test)]
mod tests {
    use super::{super::signature::tests::chain, *};

    /// Bytes of an object, and the trailer.
    type Decoded = (Vec<u8>, Vec<(String, String)>);

    /// Decodes a body with the signatures of the documented request, or without any.
    fn decoded(
        is_signed: bool,
        has_trailer: bool,
        body: &[u8],
        step: usize,
    ) -> Result<Decoded, S3Error> {
        let mut chunked = Chunked::new(is_signed.then(|| Box::new(chain())), has_trailer);
        let mut object = Vec::new();
        for piece in body.chunks(step) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(bytes) = chunked.next(&mut input)? {
                object.extend_from_slice(&bytes);
            }
        }
        Ok((object, chunked.end()?))
    }

    /// The documented request: 65 KiB in two chunks.
    fn signed() -> Vec<u8> {
        let mut body = b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n".to_vec();
        body.extend([b'a'; 65536]);
        body.extend(b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n");
        body.extend([b'a'; 1024]);
        body.extend(b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n");
        body
    }

    #[test]
    fn the_documented_chunks_are_read_however_they_are_cut() {
        for step in [7, 1000, 1 << 20] {
            let (object, trailer) = decoded(true, false, &signed(), step).unwrap();
            assert_eq!(object, [b'a'; 66560]);
            assert!(trailer.is_empty());
        }
    }

    #[test]
    fn another_byte_or_signature_and_an_early_end_are_refused() {
        let body = signed();
        for at in [200, body.len() - 20, 65536 + 200] {
            let mut wrong = body.clone();
            wrong[at] ^= 1;
            assert!(decoded(true, false, &wrong, 999).is_err(), "{at}");
        }
        for len in [0, 10, 66_000, body.len() - 90] {
            assert!(decoded(true, false, &body[..len], 999).is_err(), "{len}");
        }
        let unsigned = b"1\r\na\r\n0\r\n\r\n";
        assert!(decoded(true, false, unsigned, 99).is_err());
        assert!(decoded(true, true, unsigned, 99).is_err());
        let more = [&body[..], b"x"].concat();
        assert!(decoded(true, false, &more, 999).is_err());
    }

    #[test]
    fn a_trailer_is_returned() {
        for end in ["", "\r\n", "\r\n\r\n"] {
            let body = format!("3\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAAAA=={end}");
            let (object, trailer) = decoded(false, true, body.as_bytes(), 4).unwrap();
            assert_eq!(object, b"abcde");
            assert_eq!(
                trailer,
                [("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())]
            );
        }
        for wrong in [
            "g\r\n",
            "\r\n",
            "3\r\nabcd\r\n",
            "0\r\nx\r\n\r\n",
            "11111111111111111\r\n",
            "-1\r\n",
        ] {
            let found = decoded(false, true, wrong.as_bytes(), 99);
            assert!(found.is_err(), "{wrong}");
        }
        let no_text = b"0\r\n\xff";
        assert!(decoded(false, true, no_text, 99).is_err());
    }
}
