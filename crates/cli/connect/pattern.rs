//! Shell patterns in remote sources: `*`, `?`, `[a-z]`, `{a,b}`, and `\` to escape.

/// Shell pattern for one path component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    One(u32),
    AnyOne,
    AnyMany,
    Class {
        negated: bool,
        ranges: Vec<(u32, u32)>,
    },
}

impl Pattern {
    /// Parses one path component of a pattern. An opening bracket without a closing one is literal.
    pub(super) fn of(component: &[u8]) -> Self {
        let letters = letters(component);
        let mut tokens = Vec::new();
        let mut rest = &letters[..];
        while let [first, tail @ ..] = rest {
            rest = tail;
            tokens.push(match char::from_u32(*first) {
                Some('*') => Token::AnyMany,
                Some('?') => Token::AnyOne,
                Some('[') => match class(tail) {
                    Some((token, behind)) => {
                        rest = behind;
                        token
                    }
                    None => Token::One(*first),
                },
                Some('\\') if !tail.is_empty() => {
                    rest = &tail[1..];
                    Token::One(tail[0])
                }
                _ => Token::One(*first),
            });
        }
        Self(tokens)
    }

    /// Returns true if the pattern has no special characters, so that only one name can match.
    pub(super) fn is_plain(&self) -> bool {
        self.0.iter().all(|token| matches!(token, Token::One(_)))
    }

    /// Returns the name if the pattern has no special characters, otherwise `None`.
    pub(super) fn plain(&self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        for token in &self.0 {
            let Token::One(letter) = token else {
                return None;
            };
            match char::from_u32(*letter) {
                Some(letter) => name.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                None => name.push(letter.wrapping_sub(BYTES) as u8),
            }
        }
        Some(name)
    }

    /// Returns true if the pattern matches a file name. As in a shell, a leading dot must be
    /// literal.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        if name.first() == Some(&b'.') && self.0.first() != Some(&Token::One(u32::from('.'))) {
            return false;
        }
        let name = letters(name);
        // Position of the last star and the length it matches: backtracking to earlier stars is not
        // needed.
        let (mut token, mut letter, mut star) = (0, 0, None);
        while letter < name.len() {
            match self.0.get(token) {
                Some(Token::AnyMany) => {
                    star = Some((token, letter));
                    token += 1;
                }
                Some(found) if found.takes(name[letter]) => {
                    token += 1;
                    letter += 1;
                }
                _ => {
                    let Some((at, taken)) = star else {
                        return false;
                    };
                    star = Some((at, taken + 1));
                    (token, letter) = (at + 1, taken + 1);
                }
            }
        }
        self.0[token..].iter().all(|token| *token == Token::AnyMany)
    }
}

impl Token {
    fn takes(&self, letter: u32) -> bool {
        match self {
            Self::One(one) => *one == letter,
            Self::AnyOne => true,
            Self::AnyMany => false,
            Self::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&letter))
                    != *negated
            }
        }
    }
}

/// Returns the characters of a name as numbers. A byte that is not valid UTF-8 becomes a number
/// above all code points.
fn letters(bytes: &[u8]) -> Vec<u32> {
    let chunks = bytes.utf8_chunks();
    chunks
        .flat_map(|chunk| {
            chunk
                .valid()
                .chars()
                .map(u32::from)
                .chain(chunk.invalid().iter().map(|byte| BYTES + u32::from(*byte)))
        })
        .collect()
}

/// Parses a character class after its opening bracket, and returns it with the rest of the pattern.
fn class(letters: &[u32]) -> Option<(Token, &[u32])> {
    let is = |letter: Option<&u32>, c: char| letter == Some(&u32::from(c));
    let negated = is(letters.first(), '!') || is(letters.first(), '^');
    let mut rest = &letters[usize::from(negated)..];
    let mut ranges = Vec::new();
    loop {
        // A closing bracket at the start belongs to the class.
        if is(rest.first(), ']') && !ranges.is_empty() {
            return Some((Token::Class { negated, ranges }, &rest[1..]));
        }
        let from = *rest.first()?;
        let is_range = is(rest.get(1), '-') && rest.get(2).is_some_and(|to| *to != u32::from(']'));
        let to = if is_range { rest[2] } else { from };
        ranges.push((from, to));
        rest = &rest[if is_range { 3 } else { 1 }..];
    }
}

/// Expands braces into at most [`MOST_WRITTEN_OUT`] patterns: `a{b,c}` becomes `ab` and `ac`.
/// Braces without a comma are literal.
pub(super) fn without_braces(text: &[u8]) -> Vec<Vec<u8>> {
    let mut done = Vec::new();
    let mut open = vec![text.to_vec()];
    while let Some(text) = open.pop() {
        match first_brace(&text) {
            Some((before, choices, behind))
                if done.len() + open.len() + choices.len() <= MOST_WRITTEN_OUT =>
            {
                open.extend(
                    choices
                        .iter()
                        .rev()
                        .map(|choice| [before, choice, behind].concat()),
                );
            }
            _ => done.push(text),
        }
    }
    done
}

/// Text before a pair of braces, the alternatives inside, and the text after it.
type Braced<'a> = (&'a [u8], Vec<&'a [u8]>, &'a [u8]);

/// Finds the first pair of braces that contains a comma.
fn first_brace(text: &[u8]) -> Option<Braced<'_>> {
    let starts = (0..text.len()).filter(|at| text[*at] == b'{' && !is_escaped(text, *at));
    starts
        .map(|start| (start, choices(text, start)))
        .find_map(|(start, found)| {
            let (choices, end) = found.filter(|(choices, _)| choices.len() > 1)?;
            Some((&text[..start], choices, &text[end + 1..]))
        })
}

/// Returns the alternatives between the brace at `start` and its closing brace, and the index of
/// the closing brace.
fn choices(text: &[u8], start: usize) -> Option<(Vec<&[u8]>, usize)> {
    let (mut depth, mut choice_start, mut choices) = (0, start + 1, Vec::new());
    for at in (start + 1..text.len()).filter(|at| !is_escaped(text, *at)) {
        match text[at] {
            b'{' => depth += 1,
            b'}' if depth == 0 => {
                choices.push(&text[choice_start..at]);
                return Some((choices, at));
            }
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                choices.push(&text[choice_start..at]);
                choice_start = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count()
        % 2
        == 1
}

pub(super) fn is_special(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| b"*?[{\\".contains(byte))
}

/// Maximum number of patterns that braces expand to.
const MOST_WRITTEN_OUT: usize = 1024;

/// First number above all Unicode code points. Bytes of invalid UTF-8 are mapped from here.
const BYTES: u32 = 0x11_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_they_do_in_a_shell() {
        for (pattern, matching, others) in [
            (
                "*.img",
                &["a.img", "a.b.img", "ä.img"][..],
                &["a.IMG", ".img", "a.imgs", "img"][..],
            ),
            ("a*b*c", &["abc", "aXbYc", "abbcbc"], &["ab", "acb", "abcd"]),
            ("?.c", &["a.c", "ä.c"], &["ab.c", ".c"]),
            ("[a-cx].c", &["a.c", "b.c", "x.c"], &["d.c", "-.c"]),
            ("[!a-c]", &["d", "]"], &["a", "b"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[a", &["[a"], &["a"]),
            (r"\*\[a", &["*[a"], &["x[a"]),
            ("*", &["a"], &[".hidden"]),
            (".*", &[".hidden"], &["a"]),
            ("**", &["a", "abc"], &[".a"]),
        ] {
            let matches = |name: &&str| Pattern::of(pattern.as_bytes()).matches(name.as_bytes());
            assert!(matching.iter().all(&matches), "{pattern} {matching:?}");
            assert!(!others.iter().any(&matches), "{pattern} {others:?}");
        }
        assert!(Pattern::of(b"?").matches(b"\xff") && !Pattern::of(b"?").matches(b"\xff\xfe"));
        assert!(Pattern::of(br"a\*b").is_plain() && !Pattern::of(b"a*").is_plain());
        assert_eq!(
            Pattern::of(b"a\\*\xc3\xa4\xff").plain().as_deref(),
            Some(&b"a*\xc3\xa4\xff"[..])
        );
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::of("a*".repeat(60).as_bytes());
        assert!(!pattern.matches(format!("{}b", "a".repeat(59)).as_bytes()));
    }

    #[test]
    fn braces_are_written_out() {
        for (text, expected) in [
            ("a", &["a"][..]),
            ("x{a,b}y", &["xay", "xby"]),
            ("{a,b{c,d}}", &["a", "bc", "bd"]),
            ("{a,b}{c,d}", &["ac", "ad", "bc", "bd"]),
            ("{a}", &["{a}"]),
            ("{a,b", &["{a,b"]),
            (r"\{a,b}", &[r"\{a,b}"]),
            ("{,a}", &["", "a"]),
        ] {
            let found: Vec<String> = without_braces(text.as_bytes())
                .into_iter()
                .map(|text| String::from_utf8(text).unwrap())
                .collect();
            assert_eq!(found, expected, "{text}");
        }
        assert!(without_braces("{a,b}".repeat(40).as_bytes()).len() <= 1024);
    }
}
