"""YAML as a configuration file may use it: what PyYAML reads in silence and a person did not mean is refused.

Numbers are decimal, and words are words, as in YAML 1.2: ``off`` is not False, ``0100`` not 64 and ``1:30`` not 90.
Whatever is a word to PyYAML is one here, too, so what it writes is read as it was.
"""

import re
from typing import Any, Final

import yaml

_MERGE: Final = "tag:yaml.org,2002:merge"
_WORDS: Final = ("null", "merge")
"""What PyYAML finds by itself beside what is added below."""


class YamlError(Exception):
    """The text is no YAML that could be a configuration; the message says where and why."""


def read_yaml(text: str) -> Any:
    """What a YAML document says, in Python's plain types; None for an empty one. Raises YamlError."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader, stricter
    except yaml.YAMLError as err:
        tabs = "; indent with blanks, not with tabs" if "'\\t'" in str(err) else ""
        raise YamlError(f"{' '.join(str(err).split())}{tabs}") from err
    except RecursionError as err:
        raise YamlError("it is nested too deeply") from err
    except ValueError as err:  # a number of thousands of digits
        raise YamlError(str(err)) from err
    except (
        AttributeError,
        LookupError,
        TypeError,
    ) as err:  # of a tag such as !!bool that does not fit
        raise YamlError("a tag (!!) does not fit its value; write values without tags") from err


class _StrictLoader(yaml.SafeLoader):
    """A SafeLoader that refuses a key given twice, and finds fewer types in plain words."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and form
        first: [(tag, regexp) for tag, regexp in resolvers if tag.rpartition(":")[2] in _WORDS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.YAMLError(f"a list or a section cannot be a key (line {line})")
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.YAMLError(f"key {key!r} is given twice in one section (line {line})")
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)\Z"), list("-+0123456789")
)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"([-+]?(0|[1-9][0-9]*)\.[0-9]*([eE][-+][0-9]+)?|\.[0-9]+([eE][-+][0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"
    ),
    list("-+0123456789."),
)
