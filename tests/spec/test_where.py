"""What does a condition mean, and what is said when it means nothing?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import InvalidSpec
from trainmaster.spec.where import Compared, Either, Every, Field, Has, Not, fields, parse_where


def hp(name, operator, value):
    return Compared(field=Field(kind="hp", name=name), operator=operator, value=value)


MEANINGS = {
    "hp.lr < 0.1": hp("lr", "<", 0.1),
    "hp.lr<1e-3": hp("lr", "<", 0.001),
    "hp.lr == -.5": hp("lr", "=", -0.5),
    "hp.opt = adam": hp("opt", "=", "adam"),
    "hp.opt != 'adam w'": hp("opt", "!=", "adam w"),
    'hp.n = "5"': hp("n", "=", "5"),
    "hp.opt ~ 5": hp("opt", "~", "5"),
    "hp.opt !~ ada": hp("opt", "!~", "ada"),
    'hp."learning rate" >= 1': hp("learning rate", ">=", 1.0),
    "hp.'a.b' <= 1": hp("a.b", "<=", 1.0),
    "hp.model.layers > 3": hp("model.layers", ">", 3.0),
    "tag.team = vision": Compared(field=Field(kind="tag", name="team"), operator="=", value="vision"),
    "metric.val/loss < 1": Compared(field=Field(kind="metric", name="val/loss"), operator="<", value=1.0),
    "min(metric.loss) < 1": Compared(field=Field(kind="metric", name="loss", extreme="min"), operator="<", value=1.0),
    "MAX( metric.loss ) < 1": Compared(field=Field(kind="metric", name="loss", extreme="max"), operator="<", value=1.0),
    "outcome = failed": Compared(field=Field(kind="outcome"), operator="=", value="failed"),
    "duration > 1h30m": Compared(field=Field(kind="duration"), operator=">", value=5400.0),
    "duration > '90'": Compared(field=Field(kind="duration"), operator=">", value=90.0),
    "attempts >= 2": Compared(field=Field(kind="attempts"), operator=">=", value=2.0),
    "metric.loss": Has(field=Field(kind="metric", name="loss")),
    "not tag.old": Not(condition=Has(field=Field(kind="tag", name="old"))),
    "hp.a = 1 and hp.b = 2 or hp.c = 3": Either(
        conditions=(Every(conditions=(hp("a", "=", 1.0), hp("b", "=", 2.0))), hp("c", "=", 3.0))
    ),
    "hp.a = 1 AND (hp.b = 2 OR hp.c)": Every(
        conditions=(hp("a", "=", 1.0), Either(conditions=(hp("b", "=", 2.0), Has(field=Field(kind="hp", name="c")))))
    ),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_what_a_condition_means(text):
    assert parse_where(text) == MEANINGS[text]


#: text → (the character the mark stands below, counted from 1; what is said)
MISTAKES = {
    "": (1, "there is no condition"),
    "   ": (4, "there is no condition"),
    "hp.lr <": (8, "wanted a value"),
    "hp.lr < <": (9, "wanted a value"),
    "hp.lr 0.1": (7, "wanted an operator"),
    "hp.lr < 0.1 hp.b": (13, 'wanted "and", "or" or the end'),
    "hp.lr < 0.1 and": (16, "wanted a field"),
    "and": (1, "wanted a field"),
    "0.1 > hp.lr": (1, 'there is no field "0.1"'),
    "(hp.lr < 0.1": (13, 'wanted ")"'),
    "hp.lr < 0.1)": (12, 'wanted "and", "or" or the end'),
    "hp.lr = 'adam": (9, "this quote is not closed"),
    "hp.lr ! 3": (7, '"!" has no meaning here'),
    "hp. = 3": (1, "hp. what?"),
    "metric. = 3": (1, "such as metric.loss"),
    "metrik.loss < 3": (1, "did you mean `metric.loss`?"),
    "outcom = failed": (1, "did you mean `outcome`?"),
    "outcom.x = failed": (1, 'there is no field "outcom.x"'),
    "zzz.x = 1": (1, 'there is no field "zzz.x"'),
    "min(hp.lr) < 3": (5, "min() is for metrics, such as min(metric.loss)"),
    "min(metric.lr < 3": (15, 'wanted ")"'),
    "hp.a = 1 and phase = runing": (22, "did you mean `running`?"),
    "outcome = done": (11, 'no outcome is called "done"'),
    "priority = high": (12, "wanted a number"),
    "duration > long": (12, "wanted seconds, or a duration"),
    "(" * 60 + "hp.a": (51, "nested too deep"),
    "not " * 60 + "hp.a": (201, "nested too deep"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_shown_with_its_position(text):
    position, sentence = MISTAKES[text]
    with pytest.raises(InvalidSpec) as caught:
        parse_where(text)
    said, shown, mark = caught.value.sentence.split("\n")
    assert said.startswith("--where: ")
    assert sentence in said
    assert said.endswith(f"(at character {position})")
    assert len(shown) <= 70
    column = mark.index("^")
    rest = text[position - 1 : position + 3]
    assert shown[column : column + len(rest)] == rest


def test_a_text_without_end_is_refused():
    with pytest.raises(InvalidSpec, match="5000 characters; 4000 at most"):
        parse_where("x" * 5000)


@given(st.text(alphabet="hp.metric lr<>=!~()'\"andornot 0.1\n\t\x1bé", max_size=60) | st.text(max_size=40))
def test_safety_any_text_is_a_condition_or_a_mistake_with_a_position(text):
    mistake = ""
    try:
        assert fields(parse_where(text))
    except InvalidSpec as error:
        mistake = error.sentence
    assert not mistake or ("(at character " in mistake and "^" in mistake.split("\n")[2])


def test_the_fields_of_a_condition():
    found = fields(parse_where("not hp.a = 1 and (tag.b or metric.c > 1)"))
    assert [(field.kind, field.name) for field in found] == [("hp", "a"), ("tag", "b"), ("metric", "c")]
