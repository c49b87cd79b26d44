"""Secrets planted in every place from which one has ever leaked."""

from __future__ import annotations

import pytest

from lake.core.base.redaction import MAX_TEXT, Redactor, one_line, printable

LEAKS = [
    "s3.secret-access-key=canary",
    "token: canary",
    '{"s3.session-token": "canary", "a": 1}',
    "{'credential': 'id:canary'}",
    '"client_secret":"can\\"ary canary"',
    "Authorization: Bearer canary.canary",
    "Authorization: Basic Y2FuYXJ5Y2FuYXJ5canary",
    "{'authorization': 'AWS4-HMAC-SHA256 Credential=canary/x, Signature=canary'}",
    "got 'bearer canary-canary'",
    "postgresql://user:canary@host/db",
    "postgresql://user:can@canary/x@host/db",
    "https://:canary@host",
    "https://b.s3.amazonaws.com/k?X-Amz-Credential=canary&X-Amz-Signature=canary&x=1",
    "https://acc.blob.core.windows.net/c?sv=1&sig=canary",
    "https://h/?a=1&access_token=canary&b=2",
    "adls.account-key=canary==",
    "sas-token=sv=canary",
    "AKIACANARYCANARYXX is wrong",
    "oauth2 eyJcanarycanary.eyJcanarycanary.sigcanary failed",
    "password = canary",
    "PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY=canary",
    "spark.ssl.keyPassword=canary",
    "Set-Cookie: sid=canary; canary\n",
    "-----BEGIN PRIVATE KEY-----\ncanary\ncanary\n-----END PRIVATE KEY-----",
]
HARMLESS = [
    "cannot open s3://bucket/token=x/part.parquet".replace("token", "kind"),
    "key=5 is missing",
    "no column named id; columns: key, name",
    "file s3://b/data/day=2026-01-01/00000-0-abc.parquet has no footer",
    "snapshot 8372 is not an ancestor of 991",
    "not a size: '12 parsecs'",
    "postgresql://host:5432/db is down",
    "basic type int expected",
]


@pytest.mark.parametrize("text", LEAKS)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    redacted = Redactor()(text)

    assert "canary" not in redacted.lower()
    assert "***" in redacted


@pytest.mark.parametrize("text", HARMLESS)
def test_text_without_secrets_stays_readable(text: str) -> None:
    assert Redactor()(text) == text


def test_known_values_are_masked_wherever_they_turn_up() -> None:
    redact = Redactor()
    redact.learn(
        {
            "s3.secret-access-key": "Zm9v/bar+1",
            "credential": "client-one:hush-hush",
            "uri": "https://me:open-sesame@host/",
            "oauth2-server-uri": "https://host/tokens",
            "auth": {"oauth2": {"client_secret": "nested-one"}, "type": "oauth2"},
            "token": "short",
            "header.x-team": 'headed-\\one"',
            "adls.connection-string": "connected-one",
        }
    )
    spoken = "Zm9v/bar+1 Zm9v%2Fbar%2B1 client-one hush-hush open-sesame nested-one"
    spoken += ' headed-\\\\one" connected-one'

    redacted = redact(spoken + " https://host/tokens oauth2 short")

    assert redacted == "*** " * 8 + "https://host/tokens oauth2 short"


def test_the_environment_gives_up_its_secrets_and_not_its_words() -> None:
    redact = Redactor()
    redact.learn_environment(
        {
            "AWS_SECRET_ACCESS_KEY": "aws-canary",
            "PYICEBERG_CATALOG__X__CREDENTIAL": "one-canary:two-canary",
            "PYICEBERG_CATALOG__X__HEADER__X_TEAM": "six-canary",
            "DATABASE_PASSWORD": "db-canary",
            "XDG_SESSION_TYPE": "wayland",
            "SSH_KEY_PATH": "/home/me",
            "HOME": "/home/me",
        }
    )

    assert (
        redact("aws-canary two-canary six-canary db-canary wayland /home/me")
        == "*** *** *** *** wayland /home/me"
    )


def test_what_is_left_of_a_value_that_was_cut_is_masked_too() -> None:
    redact = Redactor()
    redact.learn({"token": "canary-of-some-length"})

    redacted = redact("the server said (no: canary-of-so)")

    assert redacted == "the server said (no: ***)"


def test_a_text_is_cut_unless_it_is_a_trace() -> None:
    assert len(Redactor()("x" * 2 * MAX_TEXT)) == MAX_TEXT
    assert len(Redactor()("x" * 2 * MAX_TEXT, limit=None)) == 2 * MAX_TEXT


@pytest.mark.parametrize(
    "part",
    [
        "x",
        "eyJ-",
        "eyJaaaaaaaa",
        "a.b-",
        "://",
        "://:",
        "token",
        "token ",
        "AKIA-",
        "authorization",
        "basic ",
    ],
)
def test_a_long_text_without_secrets_is_read_once_and_stays(part: str) -> None:
    # If it were read again from each position, it would take hours.
    text = part * (400_000 // len(part))
    assert Redactor()(text, limit=None) == text


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x9b", "\u202e", "\u2066", "\udc80"])
def test_no_character_can_steer_a_terminal(char: str) -> None:
    assert printable(f"a{char}b") == "a�b"


def test_letters_of_all_scripts_stay() -> None:
    assert printable("déjà 東京 🙂 \u3000") == "déjà 東京 🙂 \u3000"


def test_one_line_is_one_line() -> None:
    assert one_line("a\nb\tc\r\u2028d") == "a b c��d"
