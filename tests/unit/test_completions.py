"""What an argument may be completed to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.http import Http404
from django.test.utils import CaptureQueriesContext
from mcp.shared.exceptions import MCPError
from mcp_types import Completion

from django_mcp_idem import RequestContext, Site
from django_mcp_idem.schemas import InvalidArguments
from tests.factories import UserFactory

CONTEXT = RequestContext(user=AnonymousUser(), request=None)


def review(language: str, framework: str = "") -> str:
    return f"Review this {language} code. {framework}"


def completed(function: Callable[..., Any], text: str = "", **others: str) -> Completion:
    """What ``function`` completes the argument ``framework`` to."""
    site = Site("test")
    site.prompt(name="review", completions={"framework": function})(review)
    return async_to_sync(site.prompts[0].complete)("framework", text, others=others, context=CONTEXT)


def test_the_function_is_given_what_was_typed() -> None:
    completion = completed(lambda typed: [name for name in ("flask", "django") if name.startswith(typed)], "fl")

    assert completion == Completion(values=["flask"], total=1, has_more=False)


def test_the_function_is_given_the_other_arguments_that_it_asks_for() -> None:
    def frameworks(typed: str, language: str = "any") -> list[str]:
        return [f"{typed} in {language}"]

    assert completed(frameworks, "fl").values == ["fl in any"]
    assert completed(frameworks, "fl", language="python", other="x").values == ["fl in python"]


def test_an_async_function_is_given_its_context() -> None:
    async def frameworks(typed: str, ctx: RequestContext) -> list[str]:
        return [str(ctx.user)]

    assert completed(frameworks).values == ["AnonymousUser"]


def test_no_more_than_100_values_are_told() -> None:
    values = [str(number) for number in range(101)]

    assert completed(lambda typed: values[:100]) == Completion(values=values[:100], total=100, has_more=False)
    assert completed(lambda typed: values) == Completion(values=values[:100], total=101, has_more=True)


def test_any_iterable_of_strings_will_do() -> None:
    assert completed(lambda typed: (name for name in ("a", "b"))).values == ["a", "b"]


@pytest.mark.django_db
def test_of_a_query_set_no_more_rows_are_read_than_are_told() -> None:
    UserFactory.create_batch(102)

    with CaptureQueriesContext(connection) as queries:
        completion = completed(lambda typed: User.objects.order_by("pk").values_list("username", flat=True))

    assert len(completion.values) == 100
    assert (completion.total, completion.has_more) == (None, True)
    assert [query["sql"].endswith("LIMIT 101") for query in queries] == [True]


@pytest.mark.parametrize("returned", ["flask", [1], None, [None]], ids=str)
def test_what_is_no_list_of_strings_is_a_failure(returned: Any) -> None:
    with pytest.raises(MCPError, match="completion of 'framework' failed"):
        completed(lambda typed: returned)


def test_what_django_answers_with_404_completes_to_nothing() -> None:
    def frameworks(typed: str) -> list[str]:
        raise Http404

    assert completed(frameworks) == Completion(values=[], total=0, has_more=False)


def test_an_argument_that_nothing_completes_completes_to_nothing() -> None:
    site = Site("test")
    site.prompt(review)

    completion = async_to_sync(site.prompts[0].complete)("language", "py", others={}, context=CONTEXT)

    assert completion == Completion(values=[], total=0, has_more=False)


def test_there_is_nothing_to_complete_of_an_argument_that_does_not_exist() -> None:
    site = Site("test")
    site.prompt(review)

    with pytest.raises(InvalidArguments, match="no argument 'size'"):
        async_to_sync(site.prompts[0].complete)("size", "", others={}, context=CONTEXT)


def takes_nothing() -> list[str]: ...


def takes_something_else(typed: str, size: str = "") -> list[str]: ...


def takes_itself(typed: str, framework: str = "") -> list[str]: ...


def takes_what_may_be_missing(typed: str, language: str) -> list[str]: ...


@pytest.mark.parametrize(
    ("completions", "message"),
    [
        ({"size": lambda typed: []}, "has no argument 'size' to complete"),
        ({"framework": takes_nothing}, "takes no parameter"),
        ({"framework": takes_something_else}, "takes 'size', which is no other argument"),
        ({"framework": takes_itself}, "takes 'framework', which is no other argument"),
        ({"framework": takes_what_may_be_missing}, "give it a default"),
        ({"framework": lambda *typed: []}, "cannot be given by name"),
    ],
    ids=["unknown argument", "no parameter", "an unknown other", "itself", "no default", "any number"],
)
def test_a_function_that_cannot_complete_is_refused(completions: dict[str, Any], message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        Site("test").prompt(completions=completions)(review)
