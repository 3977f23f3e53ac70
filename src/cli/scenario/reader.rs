//! TOML with positions: every value of a file is taken by its key, and whatever is wrong is told with file, line, key
//! and what to write instead.
//!
//! Values go through the same functions that read flags, so numbers and truth values are text here, too.

use crate::cli::nearest;
use anyhow::{Error, Result, anyhow};
use std::fmt::Display;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file's name and text, to say where something is wrong.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Source<'a> {
    pub(in crate::cli) name: &'a str,
    pub(in crate::cli) text: &'a str,
}

impl<'a> Source<'a> {
    /// The whole file as a table.
    pub(in crate::cli) fn table(self) -> Result<Table<'a>> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            self.wrong(at, format_args!("not TOML: {}", error.message()))
        })?;
        let span = table.span();
        Ok(Table::new(
            self,
            "the file".to_owned(),
            span,
            table.into_inner(),
        ))
    }

    /// An error at a place.
    pub(in crate::cli) fn wrong(self, at: Range<usize>, what: impl Display) -> Error {
        anyhow!("{}:{}: {what}", self.name, self.line(&at))
    }

    /// The line of a place, from 1.
    pub(in crate::cli) fn line(self, at: &Range<usize>) -> usize {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }
}

/// A table whose keys are taken one by one.
pub(in crate::cli) struct Table<'a> {
    source: Source<'a>,
    /// As a person would call it: `[path]`.
    name: String,
    span: Range<usize>,
    rest: DeTable<'a>,
}

impl<'a> Table<'a> {
    fn new(source: Source<'a>, name: String, span: Range<usize>, rest: DeTable<'a>) -> Self {
        Self {
            source,
            name,
            span,
            rest,
        }
    }

    /// Whether there is such a key still to be taken.
    pub(in crate::cli) fn has(&self, key: &str) -> bool {
        self.rest.contains_key(key)
    }

    /// Where the value of a key still to be taken is.
    pub(in crate::cli) fn span(&self, key: &str) -> Option<Range<usize>> {
        self.rest.get(key).map(Spanned::span)
    }

    /// Where the table is.
    pub(in crate::cli) fn place(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The text of a key still to be taken, if it is text.
    pub(in crate::cli) fn peek(&self, key: &str) -> Option<String> {
        match self.rest.get(key)?.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        }
    }

    fn remove(&mut self, key: &str) -> Option<Spanned<DeValue<'a>>> {
        self.rest.remove(key)
    }

    fn wrong(&self, at: Range<usize>, key: &str, what: impl Display) -> Error {
        let name = &self.name;
        self.source
            .wrong(at, format_args!("key `{key}` of {name}: {what}"))
    }

    /// An error of the table as a whole.
    pub(in crate::cli) fn wrong_here(&self, what: impl Display) -> Error {
        let name = &self.name;
        self.source
            .wrong(self.span.clone(), format_args!("{name}: {what}"))
    }

    /// Takes a value, if it is there.
    pub(in crate::cli) fn take<T, E: Display>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        self.value(key, &value, read).map(Some)
    }

    fn value<T, E: Display>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            DeValue::Boolean(true) => "true",
            DeValue::Boolean(false) => "false",
            other => {
                let what = other.type_str();
                return Err(self.wrong(
                    value.span(),
                    key,
                    format_args!("is of type {what}: write one value in quotes"),
                ));
            }
        };
        read(text).map_err(|what| self.wrong(value.span(), key, what))
    }

    /// Takes one value or a list of values, if they are there.
    pub(in crate::cli) fn values<T, E: Display>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        let span = value.span();
        if !value.get_ref().is_array() {
            return Ok(Some(vec![self.value(key, &value, read)?]));
        }
        let DeValue::Array(array) = value.into_inner() else {
            return Ok(None);
        };
        if array.is_empty() {
            return Err(self.wrong(
                span,
                key,
                "is an empty list: write a value, or leave it out",
            ));
        }
        let values: Result<_> = array
            .iter()
            .map(|value| self.value(key, value, &read))
            .collect();
        values.map(Some)
    }

    /// Takes what is either a value or a table, if it is there.
    pub(in crate::cli) fn value_or_table<T, E: Display>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
        table: impl FnOnce(Self) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        self.either(key, value, read, table).map(Some)
    }

    /// Takes a list of those, if it is there.
    pub(in crate::cli) fn values_or_tables<T, E: Display>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, E>,
        table: impl Fn(Self) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        let span = value.span();
        let DeValue::Array(array) = value.into_inner() else {
            return Err(self.wrong(span, key, "is not a list: write it in brackets"));
        };
        let items = array.into_iter();
        let items: Result<_> = items
            .map(|item| self.either(key, item, &read, &table))
            .collect();
        items.map(Some)
    }

    fn either<T, E: Display>(
        &self,
        key: &'static str,
        value: Spanned<DeValue<'a>>,
        read: impl FnOnce(&str) -> Result<T, E>,
        table: impl FnOnce(Self) -> Result<T>,
    ) -> Result<T> {
        if !value.get_ref().is_table() {
            return self.value(key, &value, read);
        }
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(inner) => table(Self::new(self.source, format!("`{key}`"), span, inner)),
            _ => Err(self.wrong(span, key, "is not a table")),
        }
    }

    /// Takes a value that must be there; `form` shows how to write it.
    pub(in crate::cli) fn need<T, E: Display>(
        &mut self,
        key: &'static str,
        form: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T> {
        self.take(key, read)?.ok_or_else(|| {
            self.wrong_here(format_args!("the key `{key}` is missing: write {form}"))
        })
    }

    /// Takes a table, if it is there.
    pub(in crate::cli) fn table(&mut self, key: &'static str) -> Result<Option<Self>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Some(Self::new(
                self.source,
                format!("[{key}]"),
                span,
                table,
            ))),
            other => {
                let what = other.type_str();
                Err(self.wrong(
                    span,
                    key,
                    format_args!("is of type {what}: write [{key}] and its keys below"),
                ))
            }
        }
    }

    /// Takes tables, if they are there: `[[key]]` or `key = [{…}, {…}]`.
    pub(in crate::cli) fn tables(&mut self, key: &'static str) -> Result<Option<Vec<Self>>> {
        let Some(value) = self.remove(key) else {
            return Ok(None);
        };
        let span = value.span();
        let remedy = format!("write `[[{key}]]` and its keys below, or `{key} = [{{ … }}]`");
        let DeValue::Array(array) = value.into_inner() else {
            return Err(self.wrong(span, key, format_args!("is not a list of tables: {remedy}")));
        };
        let mut tables = Vec::new();
        for entry in array {
            let span = entry.span();
            let DeValue::Table(table) = entry.into_inner() else {
                return Err(self.wrong(
                    span,
                    key,
                    format_args!("holds something that is not a table: {remedy}"),
                ));
            };
            tables.push(Self::new(self.source, format!("[[{key}]]"), span, table));
        }
        Ok(Some(tables))
    }

    /// Refuses keys that are not among the known ones, and names the nearest that is.
    pub(in crate::cli) fn expect(&self, known: &[&str]) -> Result<()> {
        let foreign = self
            .rest
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = foreign.min_by_key(|key| key.span().start) else {
            return Ok(());
        };
        let name = key.get_ref().as_ref();
        let remedy = match nearest(name, known.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        Err(self.wrong(key.span(), name, format_args!("unknown; {remedy}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, read: impl FnOnce(Table<'_>) -> Result<()>) -> String {
        let source = Source {
            name: "f.toml",
            text,
        };
        format!("{:#}", source.table().and_then(read).unwrap_err())
    }

    fn any(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let unknown = said("a = 1\nquue = 2\n", |table| table.expect(&["a", "queue"]));
        assert_eq!(
            unknown,
            "f.toml:2: key `quue` of the file: unknown; did you mean `queue`?"
        );
        let missing = said("[p]\n\n[q]\n", |mut table| {
            let mut q = table.table("q")?.unwrap();
            q.need("rtt", "a time", any).map(drop)
        });
        assert_eq!(
            missing,
            "f.toml:3: [q]: the key `rtt` is missing: write a time"
        );
        let bad = said("x = [1]\n", |mut table| table.take("x", any).map(drop));
        assert!(
            bad.starts_with("f.toml:1: key `x` of the file: is of type array"),
            "{bad}"
        );
        let broken = said("a = 1\nb = = 2\n", |_| Ok(()));
        assert!(broken.starts_with("f.toml:2: not TOML: "), "{broken}");
    }
}
