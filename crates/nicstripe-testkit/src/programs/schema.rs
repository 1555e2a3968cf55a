//! Validator of JSON documents against the schemas in `docs/schema`, for tests.
//!
//! Implements the part of JSON Schema 2020-12 that those schemas use. An unsupported keyword fails
//! the test, so that no keyword is silently ignored. One rule is stricter than the standard: the
//! schemas allow unknown properties for later versions, but the validator rejects them.

use std::{fs, path::Path};

use serde_json::{Map, Value};

#[derive(Debug)]
pub struct Schema {
    root: Value,
}

impl Schema {
    /// Loads `docs/schema/NAME.schema.json`, or `docs/schema/NAME.json` if `name` includes a
    /// version.
    pub fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        let [unversioned, versioned] =
            ["schema.json", "json"].map(|end| folder.join(format!("{name}.{end}")));
        let path = if unversioned.exists() {
            unversioned
        } else {
            versioned
        };
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            root: serde_json::from_str(&text).unwrap(),
        }
    }

    /// Panics unless the JSON document matches the schema.
    pub fn check(&self, document: &Value) {
        let mut problems = Vec::new();
        self.compare(&self.root, document, "$", &mut problems);
        assert!(problems.is_empty(), "{problems:#?}\nin {document:#}");
    }

    fn compare(&self, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
        let rules = schema.as_object().unwrap();
        for (keyword, rule) in rules {
            match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "$comment" | "title" | "description"
                | "properties" => {}
                "$ref" => self.compare(self.definition(rule), value, at, problems),
                "oneOf" => self.one_of(rule, value, at, problems),
                "type" => fail_unless(
                    is_of_type(value, rule.as_str().unwrap()),
                    at,
                    || format!("{value} is no {rule}"),
                    problems,
                ),
                "const" => fail_unless(
                    value == rule,
                    at,
                    || format!("{value} is not {rule}"),
                    problems,
                ),
                "enum" => fail_unless(
                    rule.as_array().unwrap().contains(value),
                    at,
                    || format!("{value} is none of {rule}"),
                    problems,
                ),
                "minimum" => fail_unless(
                    value.as_f64() >= rule.as_f64(),
                    at,
                    || format!("{value} is under {rule}"),
                    problems,
                ),
                "required" => require(rule, value, at, problems),
                "items" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|item| self.compare(rule, item, &format!("{at}[]"), problems)),
                other => problems.push(format!(
                    "{at}: keyword {other} is not understood by this test"
                )),
            }
        }
        if let (Some(properties), Some(object)) = (rules.get("properties"), value.as_object()) {
            self.compare_properties(properties.as_object().unwrap(), object, at, problems);
        }
    }

    fn compare_properties(
        &self,
        properties: &Map<String, Value>,
        object: &Map<String, Value>,
        at: &str,
        problems: &mut Vec<String>,
    ) {
        for (name, value) in object {
            match properties.get(name) {
                Some(schema) => self.compare(schema, value, &format!("{at}.{name}"), problems),
                None => problems.push(format!("{at}: {name} is not described")),
            }
        }
    }

    fn one_of(&self, rule: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
        let attempts = rule.as_array().unwrap().iter().map(|schema| {
            let mut found = Vec::new();
            self.compare(schema, value, at, &mut found);
            found
        });
        let attempts: Vec<Vec<String>> = attempts.collect();
        let fitting = attempts.iter().filter(|found| found.is_empty()).count();
        fail_unless(
            fitting == 1,
            at,
            || format!("fits {fitting} of the alternatives: {attempts:#?}"),
            problems,
        );
    }

    fn definition(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        self.root
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{reference} is not defined"))
    }
}

fn fail_unless(
    holds: bool,
    at: &str,
    problem: impl FnOnce() -> String,
    problems: &mut Vec<String>,
) {
    if !holds {
        problems.push(format!("{at}: {}", problem()));
    }
}

fn require(names: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
    for name in names.as_array().unwrap() {
        let name = name.as_str().unwrap();
        fail_unless(
            value.get(name).is_some(),
            at,
            || format!("{name} is missing"),
            problems,
        );
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        _ => false,
    }
}

#[test]
fn a_document_that_breaks_a_rule_is_found() {
    let schema = Schema::load("cp-event");
    let check = |text: &str| {
        let mut problems = Vec::new();
        schema.compare(
            &schema.root,
            &serde_json::from_str(text).unwrap(),
            "$",
            &mut problems,
        );
        problems.is_empty()
    };
    assert!(check(
        r#"{"schema":"nicstripe-cp-event/1","time_s":0,"event":"restarted"}"#
    ));
    for broken in [
        r#"{"schema":"nicstripe-cp-event/2","time_s":0,"event":"restarted"}"#,
        r#"{"schema":"nicstripe-cp-event/1","event":"restarted"}"#,
        r#"{"schema":"nicstripe-cp-event/1","time_s":-1,"event":"restarted"}"#,
        r#"{"schema":"nicstripe-cp-event/1","time_s":0,"event":"exploded"}"#,
        r#"{"schema":"nicstripe-cp-event/1","time_s":0,"event":"restarted","extra":1}"#,
        r#"{"schema":"nicstripe-cp-event/1","time_s":0,"event":"started","size_bytes":1.5,"resumed_bytes":0}"#,
    ] {
        assert!(!check(broken), "{broken}");
    }
}
