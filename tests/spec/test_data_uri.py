"""Does an address lead where it says, and is nothing secret shown?"""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.spec.data_uri import DataUri, parse_uri, shown_uri, unsigned_query


@pytest.mark.parametrize(
    ("text", "scheme", "place", "path"),
    [
        ("data", "", "", "data"),
        ("./a b", "", "", "./a b"),
        ("file:///a%20b/c", "", "", "/a b/c"),
        ("file://localhost/a", "", "", "/a"),
        ("s3://bucket", "s3", "bucket", ""),
        ("s3://bucket/a/b/", "s3", "bucket", "a/b"),
        ("S3://bucket/ü ?#", "s3", "bucket", "ü ?#"),
        ("gs://bucket/a", "gs", "bucket", "a"),
        ("az://container/a", "az", "container", "a"),
        ("https://host:8080/x/data%20set.csv?sig=1", "https", "host:8080", "data set.csv"),
    ],
)
def test_where_an_address_leads(text, scheme, place, path):
    assert parse_uri(text) == DataUri(scheme, place, path)
    assert parse_uri(text).is_local == (scheme == "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is blank"),
        ("  ", "is blank"),
        ("file://elsewhere/a", "another machine"),
        ("file://", "another machine"),
        ("s3://", "no plain bucket name"),
        ("s3://key:secret@bucket/a", "credentials come from the environment"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/../x", "empty part"),
        ("gcs://bucket/a", "did you mean `gs`?"),
        ("ftp://host/a", "no kind of address"),
        ("https://", "is no address"),
        ("https://host/a b", "without spaces"),
        ("https://host:port/a", "is no address"),
        ("https://me:hunter2@host/a", "~/.netrc"),
        ("https://host/", "names no file"),
        ("https://host/a/..", "names no file"),
    ],
)
def test_what_leads_nowhere_is_said(text, said):
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        parse_uri(text)
    assert "hunter2" not in str(caught.value)


@given(st.text() | st.text().map("s3://{}".format) | st.text().map("https://{}".format))
def test_whatever_is_written_is_an_address_or_told(text):
    with contextlib.suppress(ValueError):
        assert parse_uri(text).path or text.startswith("s3://")


def test_what_is_shown_has_no_secret():
    assert shown_uri("https://me:hunter2@host/a.csv?sig=hunter2#x") == "https://host/a.csv"
    assert shown_uri("s3://bucket/a?b") == "s3://bucket/a?b"
    assert shown_uri("data/https") == "data/https"


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", ""),
        ("file=a&v=2", "file=a&v=2"),
        ("v=2&X-Amz-Date=1&X-Amz-Signature=f00&x-amz-expires=9", "v=2"),
        ("X-Goog-Signature=f00&X-Goog-Date=2&file=a", "file=a"),
        ("AWSAccessKeyId=k&Expires=9&Signature=s&versionId=3", "versionId=3"),
        ("Policy=p&Signature=s&Key-Pair-Id=k", ""),
        ("sv=2024&se=tomorrow&sr=b&sp=r&sig=s&part=1", "part=1"),
        ("sv=2024&Expires=3", "sv=2024&Expires=3"),
    ],
)
def test_of_a_signed_address_what_names_the_file_is_kept(query, kept):
    assert unsigned_query(f"https://host/a.csv?{query}") == kept
