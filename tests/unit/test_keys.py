"""Conversation keys: what becomes one, what is refused, and that nobody can be taken for somebody else."""

import string
from collections import defaultdict
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clew.domain.items import decode_part, encode_part, history_namespace
from clew.history import keys
from clew.history.keys import KeyScope, render, resolve, valid

WECOM_CS = "wecom_cs:{{results.wecom_cs_sync.open_kf_id}}:{{results.wecom_cs_sync.external_userid}}"


def telegram(chat_id: object) -> KeyScope:
    return KeyScope(results={"telegram_events_parser": {"chat_id": chat_id}})


def wecom_cs(kf: object, user: object) -> KeyScope:
    return KeyScope(results={"wecom_cs_sync": {"open_kf_id": kf, "external_userid": user}})


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        (telegram("123456789"), "telegram:123456789"),
        (telegram("-100123"), "telegram:-100123"),
        (telegram(-100123), "telegram:-100123"),
        (wecom_cs("wkAJ2G_a-1", "wmABC"), "wecom_cs:wkAJ2G_a-1:wmABC"),
        (
            KeyScope(results={"wecom_ai_bot_events_parser": {"chat_type": "single", "user": "zs"}}),
            "wecom_aibot:single:zs",
        ),
        (
            KeyScope(results={"wecom_events_parser": {"user": "zhang.san@corp"}}),
            "wecom_dm:zhang_x2esan_x40corp",
        ),
        (KeyScope(configurable={"history_key": "vip:1"}), "vip:1"),
        (KeyScope(inputs={"history_key": "vip:2"}), "vip:2"),
        (KeyScope(thread_id="0190-af"), "0190-af"),
    ],
)
def test_the_seeds_candidates_give_the_seeds_keys(scope: KeyScope, key: str) -> None:
    assert resolve(scope) == key


def test_the_first_valid_candidate_wins() -> None:
    everything = KeyScope(
        results={
            "resolve_history_key": {"session_key": "chosen"},
            "telegram_events_parser": {"chat_id": "1"},
        },
        configurable={"history_key": "configured"},
        inputs={"history_key": "given"},
        thread_id="t",
    )
    assert resolve(everything) == "chosen"
    assert resolve(KeyScope(configurable={"history_key": " "}, inputs={"history_key": "given"})) == "given"
    assert resolve(KeyScope(inputs={"history_key": "no spaces"}, thread_id="t")) == "t"


def test_a_webhooks_thread_is_no_conversation() -> None:
    assert resolve(KeyScope(thread_id="t", webhook=True)) is None
    assert resolve(KeyScope(thread_id="t")) == "t"


def test_a_literal_is_used_as_it_is() -> None:
    assert resolve(KeyScope(), ["support-room-1"]) == "support-room-1"


@pytest.mark.parametrize(
    "candidate",
    [
        "",
        "   ",
        "{{",
        "}}",
        "{{inputs.missing}}",
        "{{inputs.name",
        "x{{ a b }}",
        "{{}}",
        "{{.}}",
        "{{inputs..name}}",
        "a b",
    ],
)
def test_what_does_not_resolve_is_passed_over(candidate: str) -> None:
    assert resolve(KeyScope(inputs={"name": "n"}), [candidate, "next"]) == "next"


@pytest.mark.parametrize(
    "value",
    [None, "", " ", "\t\n", True, 1.5, b"x", {}, [], {"a": 1}, object(), pytest.param(10**5000, id="huge")],
)
def test_a_part_that_identifies_nobody_rejects_the_candidate(value: object) -> None:
    assert resolve(telegram(value), ["telegram:{{results.telegram_events_parser.chat_id}}"]) is None
    assert resolve(wecom_cs("kf1", value), [WECOM_CS]) is None
    assert resolve(wecom_cs(value, "u1"), [WECOM_CS]) is None


@pytest.mark.parametrize("key", ["telegram:", ":1", "wecom_cs:kf1:", "wecom_cs::u"])
def test_a_given_key_with_an_empty_segment_is_rejected(key: str) -> None:
    assert resolve(KeyScope(inputs={"history_key": key})) is None


@pytest.mark.fault("F3")
@pytest.mark.parametrize(
    ("key", "is_valid"),
    [
        ("a", True),
        ("A-Z_0:9", True),
        ("k" * 256, True),
        ("k" * 257, False),
        ("abc\n", False),
        ("\nabc", False),
        ("a\x00", False),
        ("\u0661\u0662", False),
        ("\u212a", False),  # the Kelvin sign, a "K" to careless matchers
        ("a.b", False),
        ("a%", False),
        ("a b", False),
        ("", False),
    ],
)
def test_a_key_is_matched_in_full(key: str, is_valid: bool) -> None:
    assert (valid(key) == key) is is_valid
    assert (resolve(KeyScope(inputs={"history_key": key})) == key) is is_valid


def test_the_template_is_validated_by_the_same_rules() -> None:
    scope = telegram("1")
    assert resolve(scope, template="v2:{{conversation_key}}") == "v2:telegram:1"
    assert resolve(scope, template="fixed") == "fixed"
    assert resolve(scope, template="{{conversation_key}} ") is None
    assert resolve(scope, template="{{nothing}}") is None
    assert resolve(KeyScope(inputs={"history_key": "k" * 256}), template="v2:{{conversation_key}}") is None


def test_a_literal_key_with_an_odd_shape_survives_the_template() -> None:
    assert resolve(KeyScope(), ["lobby:"]) == "lobby:"


def test_names_without_a_colon_between_them_are_refused() -> None:
    scope = {"inputs": {"a": "1", "b": "2"}}
    assert render("{{inputs.a}}:{{inputs.b}}", scope) == "1:2"
    assert render("x-{{inputs.a}}-:-{{inputs.b}}-y", scope) == "x-1-:-2-y"
    for template in ("{{inputs.a}}{{inputs.b}}", "{{inputs.a}}-{{inputs.b}}"):
        assert keys.is_ambiguous(template)
        assert render(template, scope) is None


def test_lists_are_indexed_by_number() -> None:
    scope = {"results": {"rows": [{"id": "a"}, {"id": "b"}]}}
    assert render("{{results.rows.1.id}}", scope) == "b"
    for name in ("2.id", "-1.id", "01x.id", "9999999999.id", "id"):
        assert render("{{results.rows." + name + "}}", scope) is None


def test_what_was_put_in_is_not_looked_at_again() -> None:
    scope = KeyScope(inputs={"history_key": "{{configurable.secret}}"}, configurable={"secret": "s3cret"})
    assert resolve(scope) is None
    assert render("room:{{inputs.history_key}}", scope.names()) is None


class Trap:
    """Anything one does to it, but for asking its type, is noticed."""

    def __getattribute__(self, name: str) -> Any:
        pytest.fail(f"attribute {name} was read")


class TrapDict(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        pytest.fail("an overridden method was called")

    def get(self, key: str, default: Any = None) -> Any:
        pytest.fail("an overridden method was called")

    def __missing__(self, key: str) -> Any:
        pytest.fail("a missing key was made up")


class ChatType(StrEnum):
    SINGLE = "single"


@pytest.mark.fault("F2")
def test_no_attribute_is_read_and_no_method_of_a_value_called() -> None:
    grown: defaultdict[str, Any] = defaultdict(lambda: "made up")
    names = {"inputs": TrapDict(kind=ChatType.SINGLE, trap=Trap()), "results": grown, "configurable": Trap()}
    assert render("{{inputs.kind}}", names) == "single"
    for name in (
        "inputs.trap",
        "inputs.trap.__class__",
        "inputs.__class__",
        "results.x",
        "configurable.__init__",
    ):
        assert render("{{" + name + "}}", names) is None
    assert not grown


words = st.text(string.ascii_letters + "_.-: {}\x00\n\u0663\u00e9", max_size=8)
templates = st.lists(
    st.one_of(words, st.sampled_from(["{{", "}}", "{{inputs.a}}", "{{results.b.0}}", ":"])), max_size=6
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from("ab0"), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.fault("F2")
@settings(max_examples=300)
@given(template=templates.map("".join) | st.text(), inputs=values, results=values)
def test_whatever_it_is_given_it_answers_a_valid_key_or_none(
    template: str, inputs: Any, results: Any
) -> None:
    key = resolve(
        KeyScope(inputs=inputs, results=results, thread_id=inputs), [template, "{{thread_id}}"], template
    )
    assert key is None or valid(key) == key


identities = st.text(st.sampled_from("ab_x3:-.@  0\u00e9{%\x00"), min_size=1, max_size=6) | st.text(
    min_size=1
)


@pytest.mark.fault("F2", "F3")
@settings(max_examples=500)
@given(one=st.tuples(identities, identities), two=st.tuples(identities, identities))
@example(one=("a:b", "c"), two=("a", "b:c"))
@example(one=("a@", "c"), two=("a_x40", "c"))
@example(one=("a_", "x3a"), two=("a_x3a", "x"))
def test_two_identities_never_make_one_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    first, second = (resolve(wecom_cs(*identity), [WECOM_CS]) for identity in (one, two))
    assert first is None or (first == second) == (one == two)


@settings(max_examples=300)
@given(st.text())
@example("_x5f")
@example("\ud800")
def test_a_part_can_be_decoded(text: str) -> None:
    part = encode_part(text)
    assert decode_part(part) == text
    assert not part or valid(part) == part or len(part) > keys.MAX_LENGTH
    assert ":" not in part


@given(st.text(string.ascii_letters + string.digits + "-", max_size=64))
def test_a_plain_id_stays_as_it_is(text: str) -> None:
    assert encode_part(text) == text


def test_a_tenant_is_a_label_of_its_own() -> None:
    assert history_namespace(["agent_chat_history"]) == ("agent_chat_history",)
    assert history_namespace(["agent_chat_history"], "acme.com") == (
        "tenant:acme_x2ecom",
        "agent_chat_history",
    )


@given(one=st.text(), two=st.text())
def test_two_tenants_never_share_a_label(one: str, two: str) -> None:
    assert (history_namespace(["h"], one) == history_namespace(["h"], two)) == (one == two)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(
    "text", ["{{" * 50_000, "{{a." * 25_000, "{{" + "a." * 50_000, "{" * 100_000, "{{ " * 30_000]
)
def test_a_hostile_template_costs_no_time(text: str) -> None:
    assert render(text, {"a": {}}) is None
